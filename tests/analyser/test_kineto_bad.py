"""test_kineto_bad - damaged, truncated and strange traces, and files that are no traces: the valid part is answered.

Each row gives the file's content, the kernels that must be answered, the number of lost events and the exit status:
0 for a whole answer, 3 for a partial one (stderr names the file, the place and the damage), 1 for none.
"""

import gzip
import json
import random
import re
import zlib
from types import SimpleNamespace

import pytest

import kineto
from conftest import clean_environment, execute
from kineto import Style, Trace
from test_kineto import exact, expected_stages, stage_rows

ONE = '{"ph":"X","cat":"kernel","name":"one","pid":0,"tid":7,"ts":10,"dur":5,"args":{"device":0,"stream":7}}'
TWO = ONE.replace('one', 'two').replace('"ts":10', '"ts":30')
THREE = TWO.replace('two', 'three')
BOTH = {'one': (1, 5), 'two': (1, 5)}
ALL = {**BOTH, 'three': (1, 5)}


def listed(*events):
    return '{"schemaVersion":1,"traceEvents":[' + ',\n'.join(events) + ']}'


def strange(**members):
    """ONE with members set to raw JSON; None removes a member."""
    event = json.loads(ONE)
    rows = {**{k: json.dumps(v) for k, v in event.items()}, **members}
    return '{' + ','.join(f'"{k}":{v}' for k, v in rows.items() if v is not None) + '}'


def between(*events):
    """Strange events between two good kernels."""
    return listed(ONE, *events, TWO)


def row(name, content, kernels=None, lost=0, rc=None, says=None):
    """`says` is a regular expression for stderr; without losses and without `says`, stderr is empty."""
    rc = (3 if lost else 0) if rc is None else rc
    return pytest.param(SimpleNamespace(content=content, kernels=BOTH if kernels is None else kernels, lost=lost, rc=rc,
                                        says=says), id=name)


def deep(levels):
    return '{"a":' * levels + '1' + '}' * levels


ROWS = [
    # ---- events without meaning are left out one by one ----
    row('no duration', between(strange(dur=None)), lost=1),
    row('negative duration', between(strange(dur='-5')), lost=1),
    row('no time', between(strange(ts=None)), lost=1),
    row('NaN as time', between(strange(ts='NaN')), lost=1),
    row('NaN as duration', between(strange(dur='NaN')), lost=1),
    row('Infinity as duration', between(strange(dur='Infinity')), lost=1),
    row('minus Infinity as time', between(strange(ts='-Infinity')), lost=1),
    row('a text as time', between(strange(ts='"soon"')), lost=1),
    row('an empty text as time', between(strange(ts='""')), lost=1),
    row('null as time', between(strange(ts='null')), lost=1),
    row('an object as duration', between(strange(dur='{"ts":1}')), lost=1),
    row('a time beyond 64 bits', between(strange(ts='1e300')), lost=1),
    row('a duration beyond 64 bits', between(strange(dur='99999999999999999999')), lost=1),
    row('an end beyond 64 bits', between(strange(ts='9e15', dur='9e15')), lost=1),
    row('an exponent without end', between(strange(ts='1e99999999999999999999')), lost=1),
    row('a number in the list', between('17'), lost=1),
    row('null in the list', between('null'), lost=1),
    row('a list in the list', between('[1,[2,{"ts":3}]]'), lost=1),
    row('a word in the list', between('"kernel"'), lost=1),
    row('half an event', listed(ONE, '{"ph":"X","cat":"kernel","na', THREE, TWO), ALL, lost=1),
    row('an event without its end', between(ONE.replace('one', 'lost')[:-1]), lost=1),
    row('a missing comma', between(strange(name='"lost" "twice"')), lost=1),
    row('a missing colon', between(ONE.replace('"dur":5', '"dur" 5')), lost=1),
    row('rubbish', listed(ONE, '{{{]]]"""', THREE, TWO), ALL, lost=1),
    row('an empty event', between('{}'), lost=1),
    row('all of them', listed(ONE, strange(dur='-5'), strange(ts='NaN'), '17', strange(dur=None), TWO), lost=4),
    # ---- unusual input without loss ----
    row('NaN in the arguments', between(strange(args='{"device":0,"stream":7,"x":NaN,"y":[-Infinity,Infinity,nan]}')),
        {'one': (2, 10), 'two': (1, 5)}),
    row('time zero', between(strange(ts='0', dur='0')), {'one': (2, 5), 'two': (1, 5)}),
    row('ts of 1e15', listed(strange(ts='1e15'), strange(ts='1000000000000007.125', dur='0.875')),
        {'one': (2, 5.875)}),
    row('negative times', listed(strange(ts='-1e6'), TWO), BOTH),
    row('arguments nested ten deep', between(strange(args='{"device":0,"stream":7,"x":%s}' % deep(10))),
        {'one': (2, 10), 'two': (1, 5)}),
    row('arguments nested 200,000 deep', between(strange(args='{"device":0,"stream":7,"x":%s}' % deep(200000))),
        {'one': (2, 10), 'two': (1, 5)}),
    row('unknown categories',
        between(strange(cat='"quantum"'), strange(cat='""'), strange(cat=None), strange(cat='7'))),
    row('unknown phases', between(strange(ph='"Q"'), strange(ph='"longer"'), strange(ph='7'), strange(ph=None)), lost=4),
    row('counters and instants', between(strange(ph='"C"'), strange(ph='"i"', dur=None), strange(ph='"M"', dur=None))),
    row('arguments that are none', between(strange(args='[1]'), strange(args='null'), strange(args='"{}"')),
        {'one': (4, 20), 'two': (1, 5)}),
    row('a name that is none', between(strange(name='7'), strange(name='null'), strange(name=None)),
        {'one': (1, 5), 'two': (1, 5), '': (3, 15)}),
    row('rows that are texts', between(strange(pid='"GPU 0"', tid='"stream 7"'), strange(pid='null', tid='[]')),
        {'one': (3, 15), 'two': (1, 5)}),
    row('ids that are none',
        between(strange(args='{"correlation":-1,"External id":"x","stream":1e99,"device":"all"}')),
        {'one': (2, 10), 'two': (1, 5)}),
    row('members that stand twice', listed(ONE[:-1] + ',"dur":6,"name":"two"}'), {'two': (1, 6)}),
    row('a comma too many', listed(ONE, TWO + ',')),
    row('text behind the end', listed(ONE, TWO) + '\n\n{"traceEvents":[]} rubbish', rc=3, says='goes on behind the end of its JSON, .*'),
    row('a quote that torch does not escape', '{"schemaVersion":1,\n  "who": "me /"q/"",\n"host_name": "vm",\n' + listed(ONE, TWO)[1:], rc=3,
        says=r'members before its events that are not valid JSON and were left out: 1 \(the first at byte 34\)'),
    row('two such members', '{"a": "b"c",\nrubbish\n"d": "/"",\n' + listed(ONE, TWO)[1:], rc=3, says=r'.* left out: 2 \(the first at byte 9\)'),
    row('no member behind it', '{"a": "b"c",\nrubbish', {}, rc=1),
    row('zero events', listed(), {}, says='contains no events'),
    row('an empty list', '[]', {}, says='contains no events'),
    row('no list of events', '{"schemaVersion":1}', {}, rc=1),
    # ---- no trace at all ----
    row('an empty file', '', {}, rc=1),
    row('white space', ' \n\t\n', {}, rc=1),
    row('a number', '17', {}, rc=1),
    row('a word', '"traceEvents"', {}, rc=1),
    row('plain text', 'It was a dark and stormy night.\n', {}, rc=1),
    row('an unknown document', '{"nodes":[{"id":1}]}', {}, rc=1),
    row('events that are no list', '{"schemaVersion":1,"traceEvents":{"ph":"X"}}', {}, rc=1),
    row('an ELF file', b'\x7fELF\x02\x01\x01' + bytes(range(256)) * 40, {}, rc=1),
    row('zeros', b'\0' * 5000, {}, rc=1),
    row('noise', random.Random(1).randbytes(70000), {}, rc=1),
    row('the head of a gzip file', gzip.compress(b'')[:7], {}, rc=1),
    row('gzip of nothing', gzip.compress(b''), {}, rc=1),
    row('gzip of noise', gzip.compress(random.Random(2).randbytes(70000)), {}, rc=1),
]


@pytest.fixture(params=['plain', 'asan'])
def program(request):
    """tfanalyze, without and with sanitizers."""
    return request.getfixturevalue('tfanalyze' if request.param == 'plain' else 'tfanalyze_asan')


def ask(program, command, path):
    """Exit status, parsed answer or None, and stderr. stdout must be whole JSON for every input."""
    result = execute([program, command, '--format', 'json', path], clean_environment())
    assert result.rc in (0, 1, 3), result.err
    return result.rc, json.loads(result.out) if result.rc != 1 else None, result.err


def answered(answer):
    """{kernel: (calls, microseconds)} of a breakdown."""
    return {r['name']: (r['calls'], r['total_us']) for r in answer['rows']}


def lost_of(answer):
    return sum(sum(r['lost'].values()) for r in answer['rows'])


def check(program, path, case):
    rc, answer, err = ask(program, 'breakdown', path)
    assert rc == case.rc, err
    rc, info, said = ask(program, 'info', path)
    assert rc == case.rc, said
    if rc == 1:
        assert path.name in said and len(said.splitlines()) <= 3, said
        return
    assert answered(answer) == case.kernels
    assert lost_of(info) == case.lost, info['rows'][0]
    assert info['rows'][0]['complete'] == ('behind the end' not in (case.says or ''))  # the whole file was read
    if rc == 3:
        assert path.name in said and path.name in err, said
    else:
        assert re.fullmatch(case.says or '', said.split(': ')[-1].strip()), said


@pytest.mark.parametrize('case', ROWS)
def test_content(program, tmp_path, case):
    path = tmp_path / 'strange.json'
    path.write_bytes(case.content.encode() if isinstance(case.content, str) else case.content)
    check(program, path, case)


def test_places_of_faults(analyze, tmp_path):
    """Each message about events that were left out has the byte at which the first of them begins."""
    for number, fault in enumerate((strange(dur=None), strange(ts=None), strange(dur='-5'), strange(ts='1e300'), '{"ph":"X","name":}')):
        text = between(fault)
        (tmp_path / f'{number}.json').write_text(text)
        assert f'(the first at byte {text.index(fault)})' in analyze('info', tmp_path / f'{number}.json', rc=3, format=None).err


def wreck(random, event):
    """An event with one byte changed, removed or added, with its end cut off, or with a piece missing."""
    at, kind = random.randrange(1, len(event)), random.choice(('change', 'remove', 'add', 'cut', 'gap'))
    byte = random.choice('{}[]",:x0')
    end = random.randrange(at, len(event)) if kind == 'gap' else at + (kind in ('change', 'remove'))
    return event[:at] + (byte if kind in ('change', 'add') else '') + ('' if kind == 'cut' else event[end:])


def test_neighbours_of_a_broken_event(analyze, tmp_path):
    """Whatever is wrong with one event, all others are read, and it is counted as lost, or read where the fault hides nothing. Only
    an event that is cut inside of a list makes the rest of the file items of that list."""
    path, asked = tmp_path / 'wreck.json', 0
    orders = ('ph', 'cat', 'name', 'pid', 'tid', 'ts', 'dur', 'args'), ('name', 'ts', 'dur', 'ph', 'cat', 'pid', 'tid', 'args'), \
        ('args', 'name', 'cat', 'ph', 'ts', 'dur', 'pid', 'tid')
    for seed in range(150):
        source = random.Random(seed)
        order, indent, k, events = source.choice(orders), source.choice((None, 1)), source.randrange(1, 5), []
        for i in range(7):
            event = {'ph': 'X', 'cat': 'kernel', 'name': f'k{i}', 'pid': 0, 'tid': 7, 'ts': 100 * i, 'dur': 5,
                     'args': {'device': 0, 'stream': 7, 'text': 'a\\b"c', 'dims': {'x': 1}}}
            events.append(json.dumps({key: event[key] for key in order}, indent=indent))
        events[k] = wreck(source, events[k])
        path.write_text(listed(*events))
        try:
            json.loads(path.read_text())
            continue
        except ValueError:
            asked += 1
        found = {row['name'] for row in analyze('breakdown', path, rc=None)['rows']}
        assert {f'k{i}' for i in range(7) if i != k} <= found, (seed, events[k])
        answer = analyze('info', path, rc=None)
        read = sum(sum(r['events'].values()) for r in answer['rows'])
        assert read + lost_of(answer) in (7, 8) and (read == 7 or lost_of(answer)), (seed, events[k])
    assert asked > 60


def test_a_broken_member_is_not_believed(analyze, tmp_path):
    """Of a text with a quote that torch does not escape nothing is shown; the members around it are."""
    path = tmp_path / 'trace.json'
    path.write_text('{"schemaVersion":1,\n"who": "me /"q/"",\n"host_name": "vm",\n' + listed(ONE, TWO)[1:])
    row, = analyze('info', path, rc=3)['rows']
    assert row['host'] == 'vm' and 'who' not in row['metadata']


COMMANDS = (['info'], ['stages'], ['stages', '--exclusive'], ['breakdown'], ['breakdown', '--group-by', 'op'],
            ['breakdown', '--rules', 'hta'], ['timeline'], ['timeline', '--rules', 'tracelens'],
            ['timeline', '--rules', 'hta'], ['kinds'], ['kinds', '--rules', 'hta'], ['overlap'],
            ['overlap', '--rules', 'hta'], ['idle'], ['idle', '--rules', 'hta'], ['queue'], ['queue', '--rules', 'hta'], ['steps'], ['bandwidth'], ['bandwidth', '--rules', 'hta'], ['annotations'], ['annotations', '--rules', 'hta'], ['patterns', '--operator', 'x'], ['patterns', '--rules', 'hta', '--operator', 'x'], ['counters'], ['counters', '--rules', 'hta'], ['comm'], ['comm', '--rules', 'tracelens'], ['stragglers'], ['stacks'], ['stacks', '--layout', 'speedscope'], ['diff'], ['diff', '--by', 'op'], ['diff', '--by', 'stage'], ['critical-path'], ['critical-path', '--nodes'], ['dump'], ['export', 'chrome'], ['report'])


@pytest.mark.parametrize('content, rc', [
    pytest.param(listed(), 0, id='nothing'), pytest.param(between(strange(dur='-5'), '17'), 3, id='bad events'),
    pytest.param(listed(ONE, TWO)[:-30], 3, id='cut'), pytest.param('no trace', 1, id='no trace'),
])
def test_every_command(tfanalyze_asan, tmp_path, content, rc):
    """All commands with an answer give an input the same exit status, and none crashes."""
    for command in COMMANDS:
        directory = tmp_path / '-'.join(command)
        directory.mkdir()
        (directory / 'trace.json').write_text(content)
        target = directory if command == ['report'] else directory / 'trace.json'
        result = execute([tfanalyze_asan, *command, *[target] * (1 + (command[0] == 'diff'))], clean_environment(), tmp_path)
        found = command[0] not in ('patterns', 'counters')  # these inputs have no operator `x` and no counters
        assert result.rc == (rc if found else 1), (command, result.err)


# ---- answers to unusual input without loss ----

def test_unordered(analyze, tmp_path):
    """The order of events in the file changes no answer."""
    trace = kineto.sample()
    random.Random(7).shuffle(trace.events)
    path = trace.write(tmp_path / 'trace.json')
    assert stage_rows(exact(analyze, 'stages', path)) == expected_stages(trace.document)


def test_duplicate_correlation_ids(analyze, tmp_path):
    """A kernel belongs to the last call with its id that began before it."""
    trace = Trace().stage('a', 0, 100).stage('b', 100, 100).stage('c', 200, 100)
    trace.call(10, 5).call(110, 5).call(210, 5)
    for ts in (50, 150, 250):
        trace.kernel(f'at {ts}', ts, 5, 5)
    rows = analyze('breakdown', trace.write(tmp_path / 'trace.json'))['rows']
    assert {r['name']: r['stage'] for r in rows} == {'at 50': 'a', 'at 150': 'b', 'at 250': 'c'}


def test_one_id_for_all(analyze, tmp_path):
    """A profiler without ids writes 0 everywhere: 150,000 calls with one id do not take quadratic time."""
    count, call, kernel = 150000, ONE.replace('kernel', 'cuda_runtime').replace('"stream":7', '"correlation":0'), ONE
    kernel = kernel.replace('"stream":7', '"stream":7,"correlation":0')
    with (tmp_path / 'trace.json').open('w') as out:
        out.write(listed('@').split('@')[0])
        for i in range(count):
            out.write(call.replace('"ts":10', f'"ts":{i * 10}') + ',')
            out.write(kernel.replace('"ts":10', f'"ts":{i * 10 + 5}') + ',')
        out.write(ONE + ']}')
    rows = analyze('breakdown', tmp_path / 'trace.json')['rows']
    assert [(r['stage'], r['calls']) for r in rows] == [('(run)', count + 1)]


def test_kernels_without_launches(analyze, tmp_path):
    """Kernels without a launch belong to no stage; they are counted, not lost."""
    trace = Trace().stage('s', 0, 100).launch('known', 10, 1).kernel('no call', 20, 5, 99).kernel('no id', 30, 5)
    path = trace.write(tmp_path / 'trace.json')
    answer = analyze('breakdown', path)
    assert {r['name']: r['stage'] for r in answer['rows']} == {'known': 's', 'no call': '(none)', 'no id': '(none)'}
    assert answer['totals']['without_launch'] == 2
    assert analyze('info', path)['rows'][0]['lost'] == {}


def test_overlapping_kernels_of_one_stream(analyze, tmp_path):
    trace = Trace().stage('s', 0, 100)
    trace.launch('a', 10, 1, delay=0, dur=30).launch('b', 20, 2, delay=0, dur=30).launch('c', 70, 3, delay=0, dur=10)
    rows = stage_rows(exact(analyze, 'stages', trace.write(tmp_path / 'trace.json')))
    assert rows['s'] == (1, 100000, 70000, 50000, 20000)


def test_cpu_events_that_overlap_in_part(analyze, tmp_path):
    """The innermost of two operators that overlap in part is the one that began last."""
    trace = Trace().stage('s', 0, 200).operator('first', 0, 50).operator('second', 30, 50)
    for ts in (10, 40, 60, 90):
        trace.launch(f'k{ts}', ts, ts, dur=1 + ts)
    path = trace.write(tmp_path / 'trace.json')
    rows = analyze('breakdown', '--group-by', 'op', path)['rows']
    assert {r['name']: r['total_us'] for r in rows} == {'first': 11, 'second': 41 + 61, '(none)': 91}


def test_several_processes_in_one_file(analyze, tmp_path):
    """Equal thread numbers in two processes are two threads."""
    trace = Trace().stage('a', 0, 100, pid=1, tid=5).stage('b', 0, 50, pid=2, tid=5)
    trace.launch('ka', 10, 1, pid=1, tid=5).launch('kb', 10, 2, pid=2, tid=5)
    rows = analyze('breakdown', trace.write(tmp_path / 'trace.json'))['rows']
    assert {r['name']: r['stage'] for r in rows} == {'ka': 'a', 'kb': 'b'}


def test_unknown_categories_are_counted_by_name(analyze, tmp_path):
    trace = Trace().add('quantum', 'q', 1, 2).add('quantum', 'q', 5, 2).kernel('k', 10, 1)
    events = analyze('info', trace.write(tmp_path / 'trace.json'))['rows'][0]['events']
    assert events['quantum'] == 2 and events['kernel'] == 1


INVALID = [b'\xff\xfe', b'\xc3', b'\xe2\x82', b'\xed\xa0\x80', b'\xf8\x88\x80\x80\x80', b'\xc0\xaf', b'a\x80b',
           b'\x00', b'\x01\x1f', b'\\ud83d', b'\\ude00', b'\\ud83d\\ud83d', b'\\ud83d\\u0041', b'\\u12', b'\\u12zz',
           b'\\q', b'\\']


@pytest.mark.parametrize('name', INVALID, ids=repr)
def test_invalid_names(program, tmp_path, name):
    """Invalid UTF-8 and invalid escapes: the event counts, and the answer is valid JSON."""
    path = tmp_path / 'trace.json'
    event = ONE.encode().replace(b'"one"', b'"x' + name + b' "')
    path.write_bytes(listed(ONE, '@', TWO).encode().replace(b'@', event))
    result = execute([program, 'breakdown', '--format', 'json', path], clean_environment())
    assert result.rc in (0, 3), result.err
    rows = json.loads(result.out)['rows']
    assert {'one', 'two'} <= {r['name'] for r in rows}
    assert sum(r['calls'] for r in rows) == 3 or result.rc == 3
    for format in ('text', 'csv'):
        assert execute([program, 'breakdown', '--format', format, path], clean_environment()).rc == result.rc


def test_a_huge_name(analyze, tmp_path):
    """A name of 100 MB is an ordinary name, and text output survives it."""
    path = tmp_path / 'trace.json'
    with path.open('w') as out:
        out.write(listed(ONE, '@', TWO).split('@')[0])
        out.write(ONE[:ONE.index('one')])
        for _ in range(100):
            out.write('x' * 1000000)
        out.write(ONE[ONE.index('one') + 3:] + ',' + TWO + ']}')
    answer = analyze('breakdown', path)
    assert [(len(r['name']), r['calls']) for r in sorted(answer['rows'], key=lambda r: len(r['name']))] == [
        (3, 1), (3, 1), (100000000, 1)]
    assert analyze('info', path)['rows'][0]['lost'] == {}


# ---- truncated files ----

def cut_sample():
    """The text of a file with kernels only, whose whole events are easily counted, and the offsets at which events end."""
    events = [ONE.replace('one', f'k{i}').replace('"ts":10', f'"ts":{i * 10}') for i in range(6)]
    text = listed(*events)
    ends = [text.index(e) + len(e) for e in events]
    return text, ends


TEXT, ENDS = cut_sample()


@pytest.mark.slow
def test_cut_anywhere(program, tmp_path):
    """A file cut at any place: every whole event is answered, and status 3 says that more is missing."""
    path = tmp_path / 'cut.json'
    first = TEXT.index('[') + 1
    for length in range(1, len(TEXT), 3 if program.parent.name == 'build' else 11):
        path.write_text(TEXT[:length])
        whole = sum(end <= length for end in ENDS)
        rc, answer, err = ask(program, 'breakdown', path)
        if length < first:
            assert rc == 1, (length, err)
        elif whole:
            assert rc == 3 and len(answer['rows']) == whole, (length, whole, err)
            assert 'cut.json' in err and len(err.splitlines()) == 1, err
        else:
            assert rc in (1, 3), (length, err)


def test_a_cut_is_reported_with_its_place(analyze, tmp_path):
    (tmp_path / 'cut.json').write_text(TEXT[:ENDS[3] + 20])
    result = analyze('info', tmp_path / 'cut.json', rc=3, format=None)
    assert str(ENDS[3] + 20) in result.err.replace(',', '')
    row = analyze('info', tmp_path / 'cut.json', rc=3)['rows'][0]
    assert row['complete'] is False and sum(row['events'].values()) == 4
    assert analyze('breakdown', tmp_path / 'cut.json', rc=3)['inputs'][0]['complete'] is False


def long_trace(count=4000):
    trace = Trace()
    for i in range(count):
        trace.kernel(f'k{i % 7} {i * 7919 % 1000003}', i * 10, 3, i)
    return trace


@pytest.mark.parametrize('share', [0.02, 0.3, 0.7, 0.999])
def test_cut_gzip(program, tmp_path, share):
    """A truncated gzip file is answered as far as zlib unpacks it."""
    text = long_trace().text().encode()
    data = gzip.compress(text, mtime=0)
    data = data[:int(len(data) * share)]
    got = zlib.decompressobj(31).decompress(data)
    whole = got.count(b'}}')
    path = tmp_path / 'cut.json.gz'
    path.write_bytes(data)
    rc, answer, err = ask(program, 'breakdown', path)
    assert rc == 3 and 'cut.json.gz' in err
    assert sum(r['calls'] for r in answer['rows']) in (whole, whole - 1)


def test_gzip_cut_in_its_trailer(analyze, tmp_path):
    """A truncated gzip trailer lacks only the checksum: all events are answered, with status 3."""
    data = gzip.compress(long_trace().text().encode(), mtime=0)
    (tmp_path / 'trace.json.gz').write_bytes(data[:-3])
    result = analyze('breakdown', tmp_path / 'trace.json.gz', rc=3)
    assert sum(r['calls'] for r in result['rows']) == 4000


@pytest.mark.parametrize('place', [0.3, 0.6, 0.9])
def test_damaged_gzip(tfanalyze_asan, tmp_path, place):
    """Overwritten bytes inside a gzip file: the events before them are answered."""
    data = bytearray(gzip.compress(long_trace().text().encode(), mtime=0))
    at = int(len(data) * place)
    data[at:at + 64] = b'\xff' * 64
    path = tmp_path / 'trace.json.gz'
    path.write_bytes(data)
    rc, answer, err = ask(tfanalyze_asan, 'breakdown', path)
    assert rc == 3 and 'trace.json.gz' in err
    assert sum(r['calls'] for r in answer['rows']) > 4000 * (place - 0.15)


def test_wrong_checksum(analyze, tmp_path):
    data = bytearray(gzip.compress(long_trace().text().encode(), mtime=0))
    data[-6] ^= 0xff
    (tmp_path / 'trace.json.gz').write_bytes(data)
    result = analyze('breakdown', tmp_path / 'trace.json.gz', rc=3)
    assert sum(r['calls'] for r in result['rows']) == 4000


def test_rubbish_behind_the_gzip_member(analyze, tmp_path):
    """Bytes behind the last gzip member are ignored, as gzip does."""
    (tmp_path / 'trace.json.gz').write_bytes(gzip.compress(listed(ONE, TWO).encode()) + b'rubbish')
    assert answered(analyze('breakdown', tmp_path / 'trace.json.gz')) == BOTH


@pytest.mark.parametrize('name', ['trace.json.gz', 'trace.json'])
def test_still_being_written(analyze, tmp_path, name):
    """A file that grows between two reads is answered each time as far as it goes."""
    text = long_trace().text().encode()
    data = gzip.compress(text, mtime=0) if name.endswith('.gz') else text
    seen = []
    with (tmp_path / name).open('wb', buffering=0) as out:
        for share in (0.2, 0.5, 0.8):
            out.write(data[out.tell():int(len(data) * share)])
            rows = analyze('breakdown', tmp_path / name, rc=3)['rows']
            seen.append(sum(r['calls'] for r in rows))
        out.write(data[out.tell():])
    rows = analyze('breakdown', tmp_path / name)['rows']
    seen.append(sum(r['calls'] for r in rows))
    assert seen == sorted(set(seen)) and seen[-1] == 4000


def test_a_gz_name_without_gzip_content(analyze, tmp_path):
    (tmp_path / 'trace.json.gz').write_text(listed(ONE, TWO))
    assert answered(analyze('breakdown', tmp_path / 'trace.json.gz')) == BOTH


# ---- several inputs ----

def test_two_files_of_one_rank(analyze, tmp_path):
    """The second of two files of a rank whose times overlap is left out with a message; others both count."""
    for name, start in (('a', 0), ('b', 5), ('c', 100)):
        Trace(distributedInfo={'rank': 2}).stage('s', start, 10).write(tmp_path / f'{name}.json')
    a, b, c = (tmp_path / f'{name}.json' for name in 'abc')
    result = analyze('stages', a, b, format=None, rc=3)
    assert 'rank 2' in result.err and 'b.json' in result.err
    assert [(r['calls'], r['host_us']) for r in analyze('stages', a, b, rc=3)['rows']] == [(1, 10)]
    assert [(r['calls'], r['host_us']) for r in analyze('stages', a, c)['rows']] == [(2, 20)]
    rows = analyze('stages', f'rank=0:{a}', f'rank=1:{b}')['rows']
    assert {r['rank'] for r in rows} == {0, 1}


def test_device_work_of_two_files_of_one_rank(analyze, tmp_path):
    """Both parts of a rank's time count, the time between them does not."""
    for name, start, duration in (('a', 0, 40), ('b', 1000, 30)):
        kineto.Trace(distributedInfo={'rank': 2}).stage('s', start, 100).launch('k', start, 1, duration).write(tmp_path / f'{name}.json')
    row, = analyze('timeline', tmp_path)['rows']
    assert (row['total_us'], row['busy_us'], row['computation_us']) == (70, 70, 70)


def test_a_directory_of_mixed_files(analyze, tmp_path):
    """A directory's traces are read; other files are ignored, with a message if they are named .json, unless their name is one of a trace."""
    Trace(distributedInfo={'rank': 0}).stage('s', 0, 10).write(tmp_path / 'r0.json.gz')
    Trace(distributedInfo={'rank': 1}).stage('s', 0, 11).write(tmp_path / 'r1.json')
    (tmp_path / 'notes.txt').write_text('none')
    (tmp_path / 'picture.png').write_bytes(b'\x89PNG')
    (tmp_path / 'sub').mkdir()
    rows = analyze('stages', tmp_path)['rows']
    assert {(r['rank'], r['host_us']) for r in rows} == {(0, 10), (1, 11)}
    (tmp_path / 'r2.json').write_text(TEXT[:ENDS[1] + 5])
    result = analyze('info', tmp_path, rc=3, format=None)
    assert 'r2.json' in result.err
    (tmp_path / 'r2.json').rename(tmp_path / 'config.json').write_text('{"model": "resnet"}')
    result = analyze('stages', tmp_path, format=None)
    assert '1 .json files beside it are not traces' in result.err and 'notes.txt' not in result.err
    (tmp_path / 'r2.json').write_text('{"model": "resnet"}')  # it is named like the traces: a rank's file is missing
    assert 'r2.json' in analyze('stages', tmp_path, rc=3, format=None).err


@pytest.mark.parametrize('content', ['', '{"schemaVersion": 1, "deviceProp', '{"schemaVersion": 1, "traceEvents": ['])
def test_a_trace_in_a_directory_that_has_only_begun(analyze, tmp_path, content):
    """A rank's file that is cut before its first event is missing, so the answer is partial."""
    Trace(distributedInfo={'rank': 0}).stage('s', 0, 10).write(tmp_path / 'r0.json')
    (tmp_path / 'r1.json').write_text(content)
    result = analyze('stages', tmp_path, rc=3, format=None)
    assert 'r1.json' in result.err


def test_a_directory_without_traces(analyze, tmp_path):
    (tmp_path / 'notes.txt').write_text('none')
    result = analyze('stages', tmp_path, rc=1, format=None)
    assert tmp_path.name in result.err


def test_good_and_unusable(analyze, tmp_path):
    """One good input is enough for an answer; the unusable one makes the status 3."""
    (tmp_path / 'good.json').write_text(listed(ONE, TWO))
    (tmp_path / 'bad.json').write_text('no trace')
    for bad in ('bad.json', 'missing.json'):
        result = analyze('breakdown', tmp_path / 'good.json', tmp_path / bad, rc=3, format=None)
        assert bad in result.err and 'good.json' not in result.err
    answer = analyze('breakdown', tmp_path / 'good.json', tmp_path / 'bad.json', rc=3)
    assert answered(answer) == BOTH
    assert [i['complete'] for i in answer['inputs']].count(False) == 1


def damaged_anywhere(program, tmp_path, seed, packed=False):
    """25 files with random bytes overwritten: always an answer or a reason, never a sanitizer report."""
    rng = random.Random(seed)
    text = Style(space=' ').text(kineto.sample().document).encode()
    data = gzip.compress(text, mtime=0) if packed else text
    path = tmp_path / 'trace.json'
    for _ in range(25):
        damaged = bytearray(data)
        for _ in range(rng.choice((1, 2, 5, 40))):
            damaged[rng.randrange(len(damaged))] = rng.choice(b'{}[]",:\\\x00\xff0-e\n')
        path.write_bytes(damaged)
        for command in ('stages', 'breakdown'):
            rc, _, err = ask(program, command, path)
            assert rc == 0 or 'trace.json' in err, (rc, err)


@pytest.mark.parametrize('packed', [False, True], ids=['text', 'gzip'])
def test_damaged_anywhere(tfanalyze_asan, tmp_path, packed):
    damaged_anywhere(tfanalyze_asan, tmp_path, int(packed), packed)
