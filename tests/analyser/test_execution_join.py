"""test_execution_join - `export et --et`: a given execution trace gets the times and the device work of a trace.

The oracle reads the same files with Python's json and searches in the plainest way. Hostile files end in an answer or a
message, never in a crash or in a huge answer.
"""

import gzip
import json
import random

import pytest
import tfr
from test_execution_bad import pair, trace
CATEGORIES = {'kernel', 'gpu_memcpy', 'gpu_memset'}
TIMES = {'inclusive_dur', 'exclusive_dur', 'ts'}


def attributes(rf_id, **more):
    return [{'name': 'rf_id', 'type': 'uint64', 'value': rf_id}] + [{'name': k, 'type': 'string', 'value': v} for k, v in more.items()]


def node(number, name, rf_id=0, parent=1, **more):
    return {'id': number, 'name': name, 'ctrl_deps': parent, 'inputs': {'values': [[number, 3, 0, 4, 4, 'cuda:0']], 'shapes': [[4]]},
            'outputs': {'values': []}, 'attrs': attributes(rf_id, op_schema='', pg_name='7'), **more}


def save(path, nodes, **members):
    text = json.dumps({'schema': '1.1.1-chakra.0.0.4', 'pid': 7, 'nodes': nodes, 'finish_ts': 5, **members}).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == '.gz' else text)
    return path


def run(seed, operators=60, threads=3):
    """A Kineto trace with device work, and the execution trace of the same run."""
    choose = random.Random(seed)
    events, nodes, number, correlation = [], [node(1, '[pytorch|profiler|execution_trace|process]')], 2, 0

    def work(tid, at):
        nonlocal correlation
        correlation += 1
        kind = choose.choice(sorted(CATEGORIES))
        events.append({'ph': 'X', 'cat': 'cuda_runtime', 'name': 'cudaLaunchKernel', 'pid': 7, 'tid': tid, 'ts': at, 'dur': 1,
                       'args': {'correlation': correlation}})
        events.append({'ph': 'X', 'cat': kind, 'name': f'work {choose.randrange(4)}', 'pid': 0, 'tid': 7 + tid % 2, 'ts': at + choose.randrange(5, 90),
                       'dur': choose.randrange(1, 9), 'args': {'correlation': correlation, 'device': 0, 'stream': 7 + tid % 2}})

    def operator(tid, start, end, parent, depth):
        nonlocal number
        own, number = number, number + 2
        name, kind = choose.choice([('aten::add', 'cpu_op'), ('stage é', 'user_annotation'), ('ProfilerStep#3', 'user_annotation')])
        rf_id = own * 10 + 1
        nodes.append(node(own, name, rf_id, parent, tensor=[own]))
        if choose.random() < .9:
            events.append({'ph': 'X', 'cat': kind, 'name': name if choose.random() < .9 else 'unknown', 'pid': 7, 'tid': tid, 'ts': start,
                           'dur': end - start, 'args': {'Record function id': rf_id, 'External id': own}})
        at = start + 1
        while at + 8 < end:
            until = min(end - 1, at + choose.randrange(6, 60))
            if choose.random() < .4 and depth < 5 and until - at > 4:
                operator(tid, at, until, own, depth + 1)
            elif choose.random() < .6:
                work(tid, at + 1)
            at = until + choose.randrange(3)
    for tid in range(threads):
        at = 1000
        for _ in range(operators):
            end = at + choose.randrange(20, 400)
            operator(tid, at, end, 1, 0)
            at = end + choose.randrange(5)
    work(50, 100)
    choose.shuffle(events)
    choose.shuffle(nodes)
    return events, nodes


def expected(events, nodes):
    functions = [e for e in events if 'Record function id' in e['args']]
    by_number = {e['args']['Record function id']: e for e in functions}
    calls = {e['args']['correlation']: e for e in events if e['cat'] == 'cuda_runtime'}

    def inside(e, start, tid, end=None):
        return e['tid'] == tid and e['ts'] <= start and (end or start) <= e['ts'] + e['dur']
    works = {}
    for e in sorted((e for e in events if e['cat'] in CATEGORIES), key=lambda e: e['ts']):
        call = calls[e['args']['correlation']]
        around = [f for f in functions if inside(f, call['ts'], call['tid'])]
        if around:
            works.setdefault(min(around, key=lambda f: f['dur'])['args']['Record function id'], []).append(e)
    found = {}
    for n in nodes:
        number = n['attrs'][0]['value']
        e = by_number.get(number)
        if not e:
            found[n['id']] = (n, [])
            continue
        within = [f for f in functions if f is not e and f['tid'] == e['tid'] and e['ts'] <= f['ts'] and f['ts'] + f['dur'] <= e['ts'] + e['dur']]
        covered = {t for f in within for t in range(f['ts'], f['ts'] + f['dur'])}
        times = {'inclusive_dur': e['dur'], 'exclusive_dur': e['dur'] - len(covered), 'ts': e['ts']}
        children = [{**n, 'name': w['name'], 'cat': w['cat'], 'ph': 'X', 'ctrl_deps': n['id'], 'stream': w['args']['stream'], 'ts': w['ts'],
                     'inclusive_dur': w['dur'], 'exclusive_dur': w['dur']} for w in works.get(number, [])]
        found[n['id']] = ({**n, **times}, children)
    return found


def order(work):
    return work['ts'], work['inclusive_dur'], work['name'], work['cat'], work['stream']


def join(analyze, source, given, rc=0):
    result = analyze('export', 'et', '--et', given, source, rc=rc, format=None)
    return (json.loads(result.out) if rc in (0, 3) else None), result.err


@pytest.mark.parametrize('seed', range(4))
def test_kineto_with_device_work(analyze, tmp_path, seed):
    events, nodes = run(seed)
    (tmp_path / 'k.json').write_text(json.dumps({'traceEvents': events}))
    given = save(tmp_path / ('et.json.gz' if seed % 2 else 'et.json'), nodes)
    joined, err = join(analyze, tmp_path / 'k.json', given)
    want = expected(events, nodes)
    own = [n for n in joined['nodes'] if 'cat' not in n]
    assert [n['id'] for n in own] == [n['id'] for n in nodes] and {n['id']: n for n in own} == {k: v[0] for k, v in want.items()}
    largest, works = max(want), {}
    new = [n.pop('id') for n in joined['nodes'] if 'cat' in n]
    assert new == list(range(largest + 1, largest + 1 + len(new))) and len(new) > 100
    for n in joined['nodes']:
        if 'cat' in n:
            works.setdefault(n['ctrl_deps'], []).append(n)
    for number, (_, children) in want.items():
        assert sorted(works.get(number, []), key=order) == sorted(({k: v for k, v in c.items() if k != 'id'} for c in children), key=order)
    assert [joined[k] for k in ('schema', 'pid', 'finish_ts')] == ['1.1.1-chakra.0.0.4', 7, 5]
    missing = sum('ts' not in n for n, _ in want.values()) - 1
    assert f'{missing} of {len(nodes) - 1} functions have no times' in err and 'work' in err


def test_own_trace(analyze, tmp_path):
    def records(w):
        outer, outer_end = pair(w, 11, 1000, end=9000, name='outer')
        inner, inner_end = pair(w, 12, 2000, end=5000, name='inner')
        return [outer, inner, inner_end, outer_end]
    source = trace(tmp_path / 'rank0.h.7.tfr', records)
    nodes = [node(2, 'outer', 11), node(3, 'inner', 12, 2), node(4, 'other', 12, 2), node(5, 'lost', 13)]
    joined, err = join(analyze, source, save(tmp_path / 'et.json', nodes), 3)
    durations = {n['id']: (n.get('inclusive_dur'), n.get('exclusive_dur')) for n in joined['nodes']}
    assert durations == {2: (8, 5), 3: (3, 3), 4: (None, None), 5: (None, None)}
    assert joined['nodes'][1]['ts'] - joined['nodes'][0]['ts'] == 1
    assert '1 of 4 functions have no times: no function' in err and '1 of 4 functions have no times: the function' in err
    again, err = join(analyze, source, save(tmp_path / 'again.json', joined['nodes'][:2]))
    assert again['nodes'] == joined['nodes'][:2] and '2 of 2 functions have times already' in err


def test_records_that_are_left_out(analyze, tmp_path):
    """The answer says how many functions of the trace an invalid column takes, as without a given file."""
    w = tfr.Writer(rank=0, pid=7)
    good, bad = pair(w, 11, 1000), pair(w, 12, 2000)
    w.chunk(good, thread=1, tid=7)
    w.chunk(bad, thread=1, tid=7, pick=lambda field, values: 99 if field.name == 'logical_thread' else None)
    w.footer()
    source = w.save(tmp_path / 'rank0.h.7.tfr')
    joined, err = join(analyze, source, save(tmp_path / 'et.json', [node(2, 'aten::f', 11), node(3, 'aten::f', 12)]), 3)
    assert [n.get('inclusive_dur') is not None for n in joined['nodes']] == [True, False]
    assert '1 records are complete but not valid' in err and '1 records are' in analyze('export', 'et', source, rc=3, format=None).err


def test_traces_that_cannot_be_joined(analyze, tmp_path):
    source = trace(tmp_path / 'rank0.h.7.tfr', lambda w: pair(w, 11, 1000))
    assert 'is of process 8' in join(analyze, source, save(tmp_path / 'a.json', [node(2, 'aten::f', 11)], pid=8), 1)[1]
    assert 'No such file' in join(analyze, source, tmp_path / 'none.json', 1)[1]
    empty = trace(tmp_path / 'rank1.h.8.tfr', lambda w: [])
    assert 'TFI_TENSOR_ADDRESSES=1' in join(analyze, empty, save(tmp_path / 'b.json', []), 1)[1]
    (tmp_path / 'k.json').write_text('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}')
    assert 'has no `Record function id`' in join(analyze, tmp_path / 'k.json', save(tmp_path / 'c.json', []), 1)[1]


@pytest.mark.parametrize('text, rc', [
    (b'', 1), (b'[]', 1), (b'{"nodes": 5}', 1), (b'{}', 1), (b'\x1f\x8b\x08', 1),
    (b'{"nodes": []}', 0), (b'{"nodes": [', 3), (b'{"nodes": [}', 3), (b'{"nodes": [1, "a", null, [], {}]}', 3),
    (b'{"nodes": [{"id": 3, "attrs": [{"name": "rf_id", "value": 11', 3),
    (b'{"nodes": ' + b'[' * 200000, 3), (b'{"nodes": [' + b'[' * 3000 + b']' * 3000 + b']}', 3),
    (b'{"a": ' + b'[' * 3000 + b']' * 3000 + b', "nodes": []}', 0),
    (b'{"nodes": [{"id": 9223372036854775807, "attrs": []}]}', 3), (b'{"nodes": [{"id": -1}]}', 3), (b'{"nodes": [{"id": 1e300}]}', 3),
    (b'{"nodes": [{"id": 2, "attrs": {"name": "rf_id"}}, {"id": 3, "attrs": "x"}, {"id": 4, "attrs": [1, [], {"name": "rf_id"}]}]}', 0),
    (b'{"nodes": [{"id": 2, "name": [], "attrs": [{"name": "rf_id", "value": 11}]}]}', 3),
    (b'{"nodes": [{"id": 2, "name": "aten::f", "rf_id": 11, "x": NaN}]}', 0),
    (b'{"nodes": [{"id": 2, "name": "\xff\x1b[2J", "rf_id": 99}]}', 3),
    (b'{"' + b'k' * 9000 + b'": 1, "nodes": [], "nodes": [1]}', 3)])
def test_hostile_files(analyze, tmp_path, text, rc):
    source = trace(tmp_path / 'rank0.h.7.tfr', lambda w: pair(w, 11, 1000))
    (tmp_path / 'et.json').write_bytes(text)
    result = analyze('export', 'et', '--et', tmp_path / 'et.json', source, rc=rc, format=None)
    if rc != 1:
        json.loads(result.out)
    assert '\x1b' not in result.out + result.err


@pytest.mark.parametrize('text, said, nodes', [
    (b'{"nodes": [{"id": 2, "name": "aten::f", "rf_id": 11}], "nodes": [{"id": 3}]}', '1 members are left out', [2]),
    (b'{"nodes": 5, "nodes": [{"id": 2, "name": "aten::f", "rf_id": 11}]}', '1 members are left out', [2]),
    (b'{"' + b'k' * 9000 + b'": 1, "nodes": [{"id": 2, "name": "aten::f", "rf_id": 11}]}', '1 members are left out', [2]),
    (b'{"nodes": [{"id": 2, "name": "aten::f", "rf_id": 11}]}\n{"nodes": [{"id": 3}]}', 'goes on behind its end', [2]),
    (b'{"nodes": [{"id": 2, "name": "aten::f", "rf_id": 11}]}\0\0', 'goes on behind its end', [2])])
def test_what_is_left_out_is_said(analyze, tmp_path, text, said, nodes):
    source = trace(tmp_path / 'rank0.h.7.tfr', lambda w: pair(w, 11, 1000))
    (tmp_path / 'et.json').write_bytes(text)
    joined, err = join(analyze, source, tmp_path / 'et.json', 3)
    assert said in err and 'MiB' not in err and [n['id'] for n in joined['nodes']] == nodes
    (tmp_path / 'et.json').write_bytes(b'{"nodes": [{"id": 2, "name": "aten::f", "rf_id": 11}]} \n\n')
    assert not join(analyze, source, tmp_path / 'et.json')[1]


def test_every_prefix_and_random_bytes(analyze, tmp_path):
    source = trace(tmp_path / 'rank0.h.7.tfr', lambda w: pair(w, 11, 1000))
    whole = save(tmp_path / 'whole.json', [node(2, 'aten::f', 11), node(3, 'g', 12, 2)]).read_bytes()
    choose = random.Random(3)
    for i in range(60):
        text = bytearray(whole[:choose.randrange(len(whole))] if i % 2 else whole)
        for _ in range(i % 5):
            text[choose.randrange(len(text))] = choose.choice(b'[]{}",:\\0 \xff')
        (tmp_path / 'et.json').write_bytes(gzip.compress(bytes(text)) if i % 3 == 0 else bytes(text))
        result = analyze('export', 'et', '--et', tmp_path / 'et.json', source, rc=any, format=None)
        if result.rc != 1:
            json.loads(result.out)


def test_nodes_of_one_function(analyze, tmp_path):
    """A hostile file: the device work follows the first node alone, and all nodes have the times."""
    events, _ = run(1)
    (tmp_path / 'k.json').write_text(json.dumps({'traceEvents': events}))
    name, number = next((e['name'], e['args']['Record function id']) for e in events if e['args'].get('Record function id') and e['name'] != 'unknown'
                        and any(w for w in expected(events, [node(2, e['name'], e['args']['Record function id'])])[2][1]))
    want, works = expected(events, [node(2, name, number)])[2]
    nodes = [node(7, 'other', number), node(2, name, number), node(3, name, number), node(4, name, number)]
    joined, err = join(analyze, tmp_path / 'k.json', save(tmp_path / 'et.json', nodes), 3)
    own = [n for n in joined['nodes'] if 'cat' not in n]
    assert [n.get('ts') for n in own] == [None, want['ts'], want['ts'], want['ts']]
    assert [n['ctrl_deps'] for n in joined['nodes'] if 'cat' in n] == [2] * len(works)
    assert '2 of 4 functions have the rf_id of an earlier node' in err and '1 of 4 functions have no times' in err


def test_copies_of_a_large_node_have_a_limit(analyze, tmp_path):
    events = [{'ph': 'X', 'cat': 'cpu_op', 'name': 'a', 'pid': 7, 'tid': 1, 'ts': 0, 'dur': 9000, 'args': {'Record function id': 5}}]
    for i in range(40):
        events.append({'ph': 'X', 'cat': 'cuda_runtime', 'name': 'cudaLaunchKernel', 'pid': 7, 'tid': 1, 'ts': i, 'dur': 1, 'args': {'correlation': i + 1}})
        events.append({'ph': 'X', 'cat': 'kernel', 'name': 'k', 'pid': 0, 'tid': 7, 'ts': i, 'dur': 1, 'args': {'correlation': i + 1, 'stream': 7, 'device': 0}})
    (tmp_path / 'k.json').write_text(json.dumps({'traceEvents': events}))
    given = save(tmp_path / 'et.json', [node(2, 'a', 5, blob='x' * (10 << 20))])
    result = analyze('export', 'et', '--et', given, tmp_path / 'k.json', '--output', tmp_path / 'out.json', rc=3, format=None)
    size = (tmp_path / 'out.json').stat().st_size
    (tmp_path / 'out.json').unlink()
    assert '15 nodes of device work lack the inputs' in result.err and 260 << 20 < size < 261 << 20
