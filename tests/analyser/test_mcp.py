"""test_mcp - `tfanalyze mcp`: the answers are those of the command line, nothing else can be read or written, and no message
and no question ends the server.

PyPI's `mcp` is the client of one test; the others write messages themselves. tests/victims/libheld.c holds questions.
"""

import asyncio
import json
import os
import re
import shutil
import signal

import pytest

import kineto
from conftest import ROOT, clean_environment, execute
from mcp_client import Server, call, message, texts

TABLE = (ROOT / 'analysis/commands.def').read_text()
OWN = ['advise', 'budget', 'stages', 'hotspots', 'ops', 'breakdown', 'memory', 'comm']  # in the order of commands.def
WRITERS = ['report', 'reduce', 'watch', 'merge', 'export chrome', 'export pftrace', 'export pfw', 'export et', 'export tensorboard', 'export parquet', 'mcp']
QUESTIONS = [  # tool, arguments, the words of the command line
    ('advise', {}, ['advise']), ('budget', {'format': 'json'}, ['budget', '--format', 'json']),
    ('stages', {'stage': ['f*'], 'top': 3}, ['stages', '--stage', 'f*', '--top', '3']),
    ('hotspots', {'by': 'line'}, ['hotspots', '--by', 'line']), ('ops', {'group-by': 'name,shapes'}, ['ops', '--group-by', 'name,shapes']),
    ('breakdown', {'rank': 0, 'format': 'csv'}, ['breakdown', '--rank', '0', '--format', 'csv']),
    ('comm', {}, ['comm']), ('memory', {'layout': 'peaks'}, ['memory', '--layout', 'peaks']),
    ('ask', {'command': 'idle', 'from': 0.0001}, ['idle', '--from', '0.0001']), ('ask', {'command': 'critical-path', 'nodes': True}, ['critical-path', '--nodes']),
    ('ask', {'command': 'help', 'topic': 'terms'}, ['help', 'terms']), ('stages', {'stage': 'nothing'}, ['stages', '--stage', 'nothing']),
    ('ops', {'top': 0}, ['ops', '--top', '0']),
]


def trace(directory, rank=0, name='forward', launches=30):
    directory.mkdir(exist_ok=True, parents=True)
    t = kineto.Trace(pid=100 + rank, distributedInfo={'rank': rank, 'world_size': 2}).stage(name, 0, 100000)
    for i in range(launches):
        t.operator(f'aten::op{i}', 100 * i, 50, external=i + 1).launch(f'kernel_{i}', 100 * i + 10, i + 1, external=i + 1)
    t.write(directory / f'rank{rank}.json')
    return directory


@pytest.fixture
def run(tmp_path):
    for rank in range(2):
        trace(tmp_path / 'run', rank)
    return tmp_path / 'run'


@pytest.fixture
def server(tfanalyze, run):
    with Server(tfanalyze, 'run', cwd=run.parent) as server:
        yield server


def is_error(result, *parts):
    assert result['isError'] and all(part in texts(result)[-1] for part in parts), result
    return True


# ---- answers ----

def matches(tfanalyze, cwd, result, words, inputs=('run',)):
    """The texts are what the command line prints, whole or its first lines."""
    expected = execute([tfanalyze, *words, *([] if words[0] == 'help' else inputs)], clean_environment(), cwd)
    said = texts(result)
    assert result['isError'] == (expected.rc in (1, 2)), (words, result)
    assert expected.err.strip() in (said[-1] if expected.err else ''), (words, said, expected.err)
    if expected.out:
        assert expected.out.startswith(said[0]) and said[0].endswith('\n') and (len(said[0]) == len(expected.out) or 'go on with offset' in said[1])
    return bool(expected.out)


@pytest.mark.slow
@pytest.mark.parametrize('version', ['2025-11-25', '2026-07-28'])
def test_the_client_of_pypi(tfanalyze, run, version):
    """By its handshake, and by the newest version, which has none."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    async def session():
        async with stdio_client(StdioServerParameters(command=str(tfanalyze), args=['mcp', 'run'], cwd=run.parent)) as streams:
            async with ClientSession(*streams) as client:
                hello = await (client.initialize() if version == '2025-11-25' else client.discover())
                assert client.protocol_version == version
                listed = await client.list_tools()
                answers = [await client.call_tool(tool, arguments) for tool, arguments, _ in QUESTIONS]
                return [m.model_dump(by_alias=True, exclude_none=True, mode='json') for m in (hello, listed, *answers)]
    hello, listed, *answers = asyncio.run(session())
    server = hello.get('serverInfo') or hello['_meta']['io.modelcontextprotocol/serverInfo']
    assert server['name'] == 'tfanalyze' and version in hello.get('supportedVersions', [hello.get('protocolVersion')])
    assert hello['instructions'] == execute([tfanalyze, 'help', 'agents'], clean_environment()).out
    assert [tool['name'] for tool in listed['tools']] == [*OWN, 'ask']
    answered = [matches(tfanalyze, run.parent, answer, words) for answer, (_, _, words) in zip(answers, QUESTIONS, strict=True)]
    assert sum(answered) >= 10


def test_the_list_of_tools(tfanalyze, tmp_path):
    """It is short, whatever is served, has every command that only prints, and no option that writes."""
    directories = [tmp_path / f'{"long" * 20}{i}' for i in range(30)]
    for directory in directories:
        directory.mkdir()
    with Server(tfanalyze, *directories) as server:
        server.send(message('tools/list', 1))
        line = server.process.stdout.readline()
        tools = {tool['name']: tool for tool in json.loads(line)['result']['tools']}
    assert len(line) <= 12 * 1024 and list(tools) == [*OWN, 'ask']
    offered = tools['ask']['inputSchema']['properties']['command']['enum']
    assert sorted([*offered, *OWN, *WRITERS]) == sorted(re.findall(r'^COMMAND\("([^"]+)"', TABLE, re.M))
    for name, tool in tools.items():
        properties = set(tool['inputSchema']['properties'])
        assert tool['annotations'] == {'readOnlyHint': True, 'openWorldHint': False} and {'input', 'offset'} <= properties
        assert not properties & {'output', 'html', 'overlay', 'write-budget', 'help', 'jobs'}
        for option in properties - {'input', 'offset', 'command', 'topic'} if name != 'ask' else ():
            assert re.search(rf'^(-\w, )?--{option}\b', execute([tfanalyze, name, '--help'], clean_environment()).out, re.M)


def test_a_long_answer_in_pieces(server, tfanalyze, run):
    whole = execute([tfanalyze, 'ops', 'run', '--format', 'csv'], clean_environment(), run.parent).out
    long = execute([tfanalyze, 'dump', 'run'], clean_environment(), run.parent).out
    for expected, arguments in ((whole, {'format': 'csv'}), (long, {})):
        pieces, offset = [], 0
        while True:
            tool = 'ops' if arguments else 'ask'
            result = server.ask(tool, **arguments, offset=offset, **({} if arguments else {'command': 'dump'}))
            piece, *said = texts(result)
            assert len(piece) <= 8000 and piece.count('\n') > 1
            pieces.append(piece)
            more = re.search(r'^lines (\d+) to (\d+) of (\d+); go on with offset (\d+)', said[0] if said else '', re.M)
            if not more:
                break
            assert (int(more[1]), int(more[2]) + 1, int(more[3])) == (offset, int(more[4]), expected.count('\n'))
            offset = int(more[4])
        assert ''.join(pieces) == expected
    assert len(long) > 8000 and len(pieces) > 1
    assert 'none from offset 100000 on' in texts(server.ask('budget', offset=100000))[0]
    assert is_error(server.ask('budget', offset=-1), 'offset')


@pytest.mark.parametrize('tool, arguments', [('ops', {}), ('ask', {'command': 'kinds'}), ('ask', {'command': 'dump'}), ('advise', {'all': True}), ('ops', {'top': 150})])
def test_a_long_answer_in_json(tfanalyze, tmp_path, tool, arguments):
    """Each piece is JSON with whole rows, and says where the next one begins; the last one has the totals."""
    for rank in range(2):
        trace(tmp_path / 'run', rank, launches=300)
    words = [arguments.get('command', tool), *(['--all'] if 'all' in arguments else []), *(['--top', '150'] if 'top' in arguments else [])]
    whole = json.loads(execute([tfanalyze, *words, 'run', '--format', 'json'], clean_environment(), tmp_path).out)
    with Server(tfanalyze, 'run', cwd=tmp_path) as server:
        rows, offset, pieces = [], 0, 0
        while offset is not None:
            result = server.ask(tool, **arguments, format='json', offset=offset)
            answer = json.loads(texts(result)[0])
            assert not result['isError'] and len(texts(result)[0].encode()) <= 8000 and answer.get('offset', 0) == offset == len(rows)
            rows, pieces, offset = rows + answer['rows'], pieces + 1, answer.get('next_offset')
            assert ('totals' in answer) == (offset is None) and answer.get('rows_in_all', len(rows)) == len(whole['rows'])
            assert pieces > 1 or answer['command'] == words[0]
            assert offset is None or f'go on with offset {offset}' in texts(result)[1]
        assert rows == whole['rows'] and answer['totals'] == whole['totals'] and (pieces > 1) == (len(whole['rows']) > 50)
        late = json.loads(texts(server.ask(tool, **arguments, format='json', offset=10000))[0])
        assert late['rows'] == [] and late['next_offset'] is None and late['totals'] == whole['totals']


def test_a_line_longer_than_an_answer(tfanalyze, tmp_path):
    """It is cut, and the next piece begins behind it."""
    trace(tmp_path / 'run', name='x' * 20000)
    with Server(tfanalyze, tmp_path / 'run') as server:
        first, said = texts(server.ask('stages', format='csv', offset=1))[:2]
        assert len(first) == 8000 and first.startswith('xxx') and 'go on with offset 2' in said
        row = json.loads(texts(server.ask('stages', format='json'))[0])['rows'][-1]
        assert list(row) == ['left_out'] and 'bytes; --format csv has it' in row['left_out']


def test_runs_are_listed_where_none_is_named(tfanalyze, tmp_path):
    for i, name in enumerate(('a/old', 'b/new')):
        os.utime(trace(tmp_path / 'out' / name), (1000 + i, 1000 + i))
    (tmp_path / 'out/link').symlink_to(trace(tmp_path / 'elsewhere'))
    with Server(tfanalyze, tmp_path / 'out') as server:
        assert is_error(server.ask('budget'), f'{tmp_path}/out/b/new\n{tmp_path}/out/a/old') and 'link' not in texts(server.ask('budget'))[0]
        one = server.ask('budget', input=['b/new'])
        assert not one['isError'] and one == server.ask('budget', input=str(tmp_path / 'out/b/new')) == server.ask('budget', input=['rank=0:b/new'])
        assert not server.ask('ask', command='diff', input=['a/old', 'b/new'])['isError']
        assert is_error(server.ask('ask', command='diff', input=['a/old']), 'two inputs')
        gated = server.ask('ask', command='diff', gate=5, input=['a/old', 'b/new'], against=['b/new', 'a/old'])
        assert not gated['isError'] and 'exit status 4' in texts(gated)[1] and gated['content'][0]['text'] == execute(
            [tfanalyze, 'diff', '--gate', '5', *(tmp_path / 'out' / name for name in ('a/old', 'b/new')), '--', *(tmp_path / 'out' / name for name in ('b/new', 'a/old'))], clean_environment()).out
        assert is_error(server.ask('ask', command='diff', gate=5, input=['a/old', 'b/new'], against=['../x']), '`..`')


# ---- what is refused ----

@pytest.fixture
def surroundings(run, tmp_path):
    """A run beside what must not be read, and links in the run that lead there."""
    trace(tmp_path / 'secret', name='SECRET')
    (run / 'link.json').symlink_to(tmp_path / 'secret/rank0.json')
    (run / 'there').symlink_to(tmp_path / 'secret')
    (run / 'self.json').symlink_to(run / 'rank0.json')
    trace(tmp_path / 'run2', name='SECRET')
    return tmp_path


def refused_paths(where):
    secret = where / 'secret/rank0.json'
    return ['../secret', 'run/../secret', 'run/..', '..', './../secret', secret, 'run/link.json', 'link.json', 'run/there', 'there/rank0.json',
            'run/there/rank0.json', 'run/self.json', f'rank=0:{secret}', 'rank=1:../secret', 'run2', 'run2/rank0.json', where / 'run2', '/', '/etc/passwd',
            '~/x', 'run/rank0.json/x', '/proc/self/cwd/secret', 'run\n/../secret', f'{where}//secret', f'{where}/run/../secret', '--output=x', '-o']


def test_nothing_outside_is_read(tfanalyze, surroundings):
    with Server(tfanalyze, 'run', cwd=surroundings) as server:
        for path in map(str, refused_paths(surroundings)):
            for result in (server.ask('stages', input=[path]), server.ask('ask', command='info', input=['run', path]), server.ask('advise', **{'graph-capture': [path]}),
                           server.ask('ask', command='stragglers', topology=path), server.ask('ask', command='launches', budget=path)):
                assert is_error(result) and len(result['content']) == 1, path
                said = texts(result)[0]
                assert 'SECRET' not in said and ('symbolic link' in said or 'refused' in said or 'is not in what' in said or 'cannot be read' in said), said
        for path in ('run', 'run/', './run', 'run/rank0.json', 'rank0.json', str(surroundings / 'run'), f'{surroundings}/run/rank0.json', '.', 'rank=5:run/rank0.json'):
            assert server.ask('stages', input=[path])['isError'] == (path == './run'), path


def test_nothing_is_written(server, run):
    before = sorted(run.parent.rglob('*'))
    for arguments in ({'output': 'x'}, {'--output': 'x'}, {'o': 'x'}, {'-o': 'x'}, {'html': 'x'}, {'overlay': 'x'}, {'write-budget': 'x'}, {'write_budget': 'x'},
                      {'gpu --output': 'x'}, {'output=x': True}, {'inputs': ['/etc/passwd']}):
        for command in ('launches', 'critical-path', 'diff', 'stacks', 'advise'):
            assert is_error(server.ask('ask', command=command, **arguments)), (command, arguments)
    for command in WRITERS:
        assert is_error(server.ask('ask', command=command), 'command is one of')
    assert is_error(server.ask('memory', layout='torch'))
    assert is_error(server.ask('ask', command='roofline', gpu='--output=x'), '--gpu --output=x')  # a value is no option
    assert is_error(server.ask('stages', stage=['--output', 'x']), 'nothing matches')
    (run / 'x.ncu-rep').write_bytes(b'NVR\0' + bytes(100))
    assert is_error(server.ask('ask', command='ncu report', input=['x.ncu-rep']))
    (run / 'x.ncu-rep').unlink()
    assert sorted(run.parent.rglob('*')) == before


@pytest.mark.parametrize('tool, arguments, said', [
    ('stages', {'tops': 3}, 'did you mean top?'), ('stages', {'top': 'x'}, '--top needs N'), ('stages', {'top': {}}, 'top takes N'),
    ('stages', {'exclusive': 'yes'}, 'exclusive takes true or false'), ('stages', {'stage': [[]]}, 'stage takes GLOB'), ('stages', {'format': 'xml'}, '--format takes'),
    ('ask', {}, 'command is one of'), ('ask', {'command': 'kind'}, 'did you mean kinds?'), ('ask', {'command': 'stacks', 'metric': 1}, '--metric takes'),
    ('ask', {'command': 7}, 'command is one of'), ('ask', {'command': 'help', 'topic': 'nothing'}, 'there is no topic'), ('ask', {'command': 'help', 'topic': 5}, 'takes texts'), ('ask', {'command': 'ncu plan', 'command_line': [1]}, 'takes texts'),
    ('stages', {'input': 7}, 'input takes a list'), ('stages', {'input': [7]}, 'input takes a list'), ('stages', {'x' * 100000: 1}, 'has no option'),
])
def test_wrong_arguments_are_explained(server, tool, arguments, said):
    result = server.ask(tool, **arguments)
    assert is_error(result, said) and len(texts(result)[0]) < 1500


# ---- the protocol ----

def test_versions(server):
    for wanted, got in (('2024-11-05', '2024-11-05'), ('2025-06-18', '2025-06-18'), ('2099-01-01', '2025-11-25')):
        server.send(message('initialize', 1, protocolVersion=wanted, capabilities={}, clientInfo={'name': 'test', 'version': '1'}), message('notifications/initialized'))
        assert server.receive()['result']['protocolVersion'] == got
    server.send(message('ping', 'x'))
    assert server.receive() == {'jsonrpc': '2.0', 'id': 'x', 'result': {}}


def test_the_version_without_a_handshake(server):
    """Each request names it, and its answers have what it asks for; an unknown version is refused with those that are known."""
    def meta(version):
        return {'_meta': {'io.modelcontextprotocol/protocolVersion': version, 'io.modelcontextprotocol/clientInfo': {'name': 'test', 'version': '1'}}}
    new = meta('2026-07-28')
    server.send(message('server/discover', 1, **new), message('tools/list', 2, **new), message('tools/call', 3, name='stages', arguments={}, **new),
                message('tools/call', 4, name='stages', arguments={'x': 1}, **new))
    found, listed, *called = (server.receive()['result'] for _ in range(4))
    assert found['supportedVersions'] == ['2026-07-28'] and found['capabilities'] == {'tools': {}} and found['instructions']
    for result in (found, listed):
        assert result['resultType'] == 'complete' and result['ttlMs'] == 0 and result['cacheScope'] == 'private'
    assert [result['resultType'] for result in called] == ['complete'] * 2 and sorted(result['isError'] for result in called) == [False, True]
    server.send(message('server/discover', 5, **meta('2099-01-01')), message('server/discover', 6))
    refused, unknown = (server.receive()['error'] for _ in range(2))
    assert refused['code'] == -32022 and refused['data']['requested'] == '2099-01-01' and '2026-07-28' in refused['data']['supported'] and unknown['code'] == -32601
    assert 'resultType' not in server.ask('stages')


BAD = [  # a line, the code of the error, its id
    (b'{', -32700, None), (b'nothing', -32700, None), (b'"text"', -32700, None), (b'{}', -32600, None), (b'{"id": 1}', -32600, 1), (b'[]', -32600, None),
    (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', -32600, 1), (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', -32600, None),
    (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600, None), (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600, None),
    (b'{"jsonrpc": "2.0", "id": 1, "method": 7}', -32600, 1), (b'{"jsonrpc": "2.0", "id": 1, "method": "no/such"}', -32601, 1),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}', -32602, 1), (b'{"jsonrpc": "2.0", "id": 1, "method": "initialize"}', -32602, 1),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"cursor": "2"}}', -32602, 1), (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call"}', -32602, 1),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "export chrome"}}', -32602, 1),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "idle"}}', -32602, 1),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "stages", "arguments": []}}', -32602, 1),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "\xff"}', -32700, None), (b'{"jsonrpc": "2.0", "id": 1, "method": "\\u0000"}', -32700, None), (b'\0', -32700, None),
    (b'[' * 100000, -32700, None), (b'{"a":' * 100000, -32700, None), (b'{"id": 1e999}', -32700, None), (b'{"id": 123456789012345678901234567890}', -32700, None),
    (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', -32600, None), (b'x' * 3000000, -32600, None), (b'\xef\xbb\xbf{}', -32700, None),
]


def test_malformed_messages(server):
    """Each has its error, and the server goes on; what needs no answer gets none."""
    silent = [b'', b'  \t ', {'jsonrpc': '2.0', 'id': 1, 'result': {}}, {'jsonrpc': '2.0', 'id': 1, 'error': {}}, message('notifications/unknown'),
              message('notifications/cancelled'), message('notifications/cancelled', requestId=99), message('notifications/cancelled', requestId={}), message('tools/call', name='stages')]
    for line, code, number in BAD:
        server.send(*silent, line, message('ping', 'after'))
        answer = server.receive()
        assert (answer['error']['code'], answer['id'], answer['jsonrpc']) == (code, number, '2.0') and answer['error']['message'], line[:80]
        assert server.receive()['id'] == 'after', line[:80]
    server.send(call(2 ** 53, 'stages', top=1), b'{"jsonrpc": "2.0", "id": "last", "method": "ping"}')
    answers, rc, err = server.end()
    assert sorted((str(a['id']) for a in answers)) == [str(2 ** 53), 'last'] and (rc, err) == (0, '')


def test_batches(server):
    """The version that has them answers a batch with one line, once all is answered."""
    server.send(message('initialize', 1, protocolVersion='2025-03-26'))
    server.receive()
    server.send([message('ping', 1), call(2, 'stages'), message('notifications/initialized'), call(3, 'stages', input='..'), 7, message('ping', 4)])
    answers = server.receive()
    assert sorted(str(a['id']) for a in answers) == ['1', '2', '3', '4', 'None']
    server.send([message('notifications/initialized')], [call(5, 'stages'), message('notifications/cancelled', requestId=5)], [message('ping', 6)] * 65, message('ping', 7))
    assert [server.receive().get('error', {}).get('code') for _ in range(2)] == [-32600, None]
    assert server.end() == ([], 0, '')


def test_what_cannot_be_served(tfanalyze, run):
    for words, rc, said in (([], 2, 'needs a DIR'), ([run / 'nothing'], 1, 'No such file'), ([run / 'rank0.json'], 1, 'it is no directory'), (['--rank', '1', run], 2, 'not an option of mcp')):
        result = execute([tfanalyze, 'mcp', *words], clean_environment())
        assert (result.rc, result.out) == (rc, '') and said in result.err


# ---- several at a time ----

class Held:
    """A server whose questions wait: started() -> the process of the next one, which says that it has begun."""

    def __init__(self, tfanalyze, victim, directory, run):
        self.paths = [directory / name for name in ('say', 'go')]
        for path in self.paths:
            os.mkfifo(path)
        self.say, self.go = (os.open(path, os.O_RDWR) for path in self.paths)
        self.server = Server(tfanalyze, run, env={'LD_PRELOAD': str(victim('libheld.so')), 'HELD_SAY': str(self.paths[0]), 'HELD_GO': str(self.paths[1])})

    def started(self):
        line = b''
        while not line.endswith(b'\n'):
            line += os.read(self.say, 1)
        return int(line)

    def release(self, count=1):
        os.write(self.go, b'.' * count)


@pytest.fixture
def held(tfanalyze, victim, tmp_path, run):
    held = Held(tfanalyze, victim, tmp_path, run)
    with held.server:
        yield held
    os.close(held.say)
    os.close(held.go)


def test_a_question_that_waits(tfanalyze, victim, tmp_path, run, monkeypatch):
    """It ends though it takes no processor time, and says why."""
    monkeypatch.setenv('HELD_ALARM', '1')
    held = Held(tfanalyze, victim, tmp_path, run)
    with held.server as server:
        server.send(call(1, 'stages'))
        held.started()
        assert is_error(server.receive()['result'], 'the most that it may: does it wait for a file')
    os.close(held.say)
    os.close(held.go)


def test_four_questions_at_a_time(held):
    server = held.server
    server.send(*(call(i, 'stages', top=1) for i in range(6)), message('ping', 'now'))
    assert server.receive()['id'] == 'now'
    pids = {held.started() for _ in range(4)}
    server.send(message('ping', 'still'))
    assert server.receive()['id'] == 'still'
    held.release(6)
    pids |= {held.started() for _ in range(2)}
    answers = [server.receive() for _ in range(6)]
    assert len(pids) == 6 and sorted(a['id'] for a in answers) == list(range(6)) and not any(a['result']['isError'] for a in answers)


def test_cancelled_questions(held):
    """One that runs ends with its process, one that waits never begins; neither is answered."""
    server = held.server
    server.send(*(call(i, 'stages') for i in range(5)))
    pids = [held.started() for _ in range(4)]
    server.send(message('notifications/cancelled', requestId=4), message('notifications/cancelled', requestId=0), message('notifications/cancelled', requestId=0), message('ping', 'p'))
    assert server.receive()['id'] == 'p'
    server.send(call('next', 'stages'))
    pids.append(held.started())  # in the place of the first one
    held.release(4)
    assert sorted(str(server.receive()['id']) for _ in range(4)) == ['1', '2', '3', 'next'] and len(set(pids)) == 5
    assert server.end() == ([], 0, '')


def test_too_many_questions(held):
    held.server.send(*(call(i, 'stages') for i in range(70)))
    refused = [held.server.receive() for _ in range(6)]
    assert [(a['id'], a['error']['code']) for a in refused] == [(i, -32000) for i in range(64, 70)]


@pytest.mark.parametrize('number', [signal.SIGSEGV, signal.SIGKILL, signal.SIGXCPU])
def test_a_question_that_dies(held, number):
    """It is an error of its call; the server and the other questions go on."""
    held.server.send(call('dies', 'stages'))
    first = held.started()
    held.server.send(call('lives', 'stages'))
    held.started()
    os.kill(first, number)
    answer = held.server.receive()
    assert answer['id'] == 'dies' and is_error(answer['result'], 'processor time' if number == signal.SIGXCPU else f'signal {int(number)} ')
    held.release()
    answer = held.server.receive()
    assert answer['id'] == 'lives' and not answer['result']['isError']


def test_questions_end_with_the_server(held):
    """The process of a question keeps its end of the FIFO open until it is gone."""
    held.server.send(call(1, 'stages'))
    held.started()
    reader = os.open(held.paths[0], os.O_RDONLY | os.O_NONBLOCK)
    held.server.process.kill()
    os.close(held.say)
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b''
    os.close(reader)
    held.say = os.open(os.devnull, os.O_RDONLY)


@pytest.mark.parametrize('what', ['file', 'directory'])
def test_a_path_that_becomes_a_link(held, run, tmp_path, what):
    """It was checked, then somebody replaces it: what lies outside is not read."""
    trace(tmp_path / 'secret', name='SECRET')
    below = trace(run / 'below')
    path = below / 'rank0.json' if what == 'file' else below
    held.server.send(call(1, 'stages', input=[str(path)]))
    held.started()
    shutil.rmtree(path) if what == 'directory' else path.unlink()
    path.symlink_to(tmp_path / 'secret' / ('rank0.json' if what == 'file' else ''))
    held.release()
    result = held.server.receive()['result']
    assert is_error(result) and 'SECRET' not in json.dumps(result)
