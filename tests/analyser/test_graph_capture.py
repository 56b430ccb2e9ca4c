"""test_graph_capture - operators of replayed CUDA graphs, from the trace in which the graph was captured.

TraceLens publishes two pairs of traces of vLLM with its own answer. The other pairs are made here: each replayed kernel
lasts as many microseconds as the number of its operator, so that the sum of a row tells what was taken for what.
"""

import csv
import gzip
import json
import random
from collections import Counter, defaultdict

import pytest

from growth_shapes import event, kineto

PAIRS = ['vllm_decode_full', 'vllm_prefilldecode_piecewise']


def by_op(answer):
    """{operator: (calls, us)}"""
    rows = defaultdict(lambda: [0, 0.0])
    for r in answer['rows']:
        rows[r['name']][0] += r['calls']
        rows[r['name']][1] += r['total_us']
    return {name: tuple(row) for name, row in rows.items()}


def counts(answer):
    return tuple(answer['totals'][key] for key in ('replayed', 'replayed_unknown', 'replayed_by_order'))


# ---- vLLM's ----

@pytest.mark.parametrize('pair', PAIRS)
def test_sums_equal_those_of_tracelens(analyze, shared_traces, pair):
    """The folder beside the trace is found by itself; calls and times of all operators are TraceLens's."""
    folder = shared_traces / 'replay' / pair
    answer = analyze('breakdown', '--group-by', 'op', folder / 'graph_execution.json.gz')
    with open(folder / 'perf_csvs' / 'ops_summary.csv', newline='') as file:
        report = {r['name']: (int(r['Count']), float(r['total_direct_kernel_time_sum'])) for r in csv.DictReader(file)}
    found = by_op(answer)
    assert found.keys() == report.keys()
    for name, (calls, us) in report.items():
        assert found[name] == (calls, pytest.approx(us, rel=1e-3)), name
    replayed, unknown, by_order = counts(answer)
    assert replayed > 300 and (unknown, by_order) == (0, 0)


@pytest.mark.parametrize('pair', PAIRS)
def test_the_capture_of_another_batch(analyze, shared_traces, pair):
    """The other pair's capture has other kernels: nothing of it is taken."""
    other = next(p for p in PAIRS if p != pair)
    capture = next((shared_traces / 'replay' / other / 'capture_traces').glob('*.gz'))
    answer = analyze('breakdown', '--group-by', 'op', '--graph-capture', capture,
                     shared_traces / 'replay' / pair / 'graph_execution.json.gz')
    replayed, unknown, by_order = counts(answer)
    assert unknown == replayed > 300 and by_order == 0
    assert by_op(answer)['(none)'][1] > 0


def innermost(capture):
    """Counter of (operator, its shapes as torch writes them, its modules, its Python function), one for each captured launch of
    a named kernel, found without the analyser."""
    with gzip.open(capture) as file:
        events = [e for e in json.load(file)['traceEvents'] if e.get('ph') == 'X' and e['tid'] == 851]
    own = {e['args'].get('correlation') for e in events if e['cat'] == 'kernel'}
    found, open_ = Counter(), []
    wanted = ('cpu_op', 'python_function', 'cuda_runtime')
    for e in sorted((e for e in events if e['cat'] in wanted), key=lambda e: (e['ts'], -e['dur'])):
        while open_ and open_[-1]['ts'] + open_[-1]['dur'] <= e['ts']:
            open_.pop()
        if e['cat'] != 'cuda_runtime':
            open_.append(e)
        elif 'kernel' in e['args'] and e['args']['correlation'] not in own:
            at = max((i for i, o in enumerate(open_) if o['cat'] == 'cpu_op'), default=None)
            if at is None:
                continue
            dims = open_[at]['args'].get('Input Dims', [])
            frames = [o['name'] for o in open_[:at] if o['cat'] == 'python_function']
            modules = [f.removeprefix('nn.Module: ') for f in frames if f.startswith('nn.Module: ')]
            flat = [[] if any(isinstance(d, list) for d in dim) else dim for dim in dims]
            found[open_[at]['name'], str(flat), '.'.join(modules), frames[-1]] += 1
    return found


@pytest.mark.parametrize('pair', PAIRS)
def test_operators_have_the_inputs_of_the_capture(analyze, shared_traces, pair):
    """Sums by operator are TraceLens's; shapes, modules and frames are those that the file of the capture has."""
    folder = shared_traces / 'replay' / pair
    answer = analyze('ops', '--group-by', 'name,shapes,modules,stack=1', folder / 'graph_execution.json.gz')
    with open(folder / 'perf_csvs' / 'ops_summary.csv', newline='') as file:
        report = {r['name']: float(r['total_direct_kernel_time_sum']) for r in csv.DictReader(file)}
    sums = Counter()
    rows = [r for r in answer['rows'] if r['self_device_us'] and (r['stack'] or r['cpu_total_us'])]  # no kernels
    for r in rows:
        sums[r['name']] += r['self_device_us']
    for name, us in report.items():
        assert sums[name] == pytest.approx(us, rel=1e-3), name
    captured_ = innermost(next((folder / 'capture_traces').glob('*.gz')))
    mine = {(r['name'], r['shapes'], r['modules'], r['stack'][0]) for r in rows if r['modules'] and r['stack']}
    assert mine <= captured_.keys() and len(mine) > 10
    assert answer['totals']['replayed'] > 300
    assert (answer['totals']['replayed_unknown'], answer['totals']['replayed_by_order']) == (0, 0)


@pytest.mark.parametrize('seed', range(3))
def test_permuted_captures_of_vllm(analyze, shared_traces, tmp_path, seed):
    """Two launches of vLLM's capture change places, or one is missing: a graph that is captured once agrees with it no more."""
    folder = shared_traces / 'replay' / PAIRS[0]
    with gzip.open(next((folder / 'capture_traces').glob('*.gz'))) as file:
        events = [e for e in json.load(file)['traceEvents'] if e.get('cat') in ('cpu_op', 'cuda_runtime', 'kernel')]
    own = {e['args'].get('correlation') for e in events if e['cat'] == 'kernel'}
    draw = random.Random(seed)
    calls = [e for e in events if 'kernel' in e['args'] and e['args']['correlation'] not in own]
    first = draw.choice(calls)
    second = draw.choice([e for e in calls if e['args']['kernel'] != first['args']['kernel']])
    replay = folder / 'graph_execution.json.gz'
    if seed:
        first['args']['kernel'], second['args']['kernel'] = second['args']['kernel'], first['args']['kernel']
    else:
        events.remove(first)
    capture = kineto(tmp_path, map(json.dumps, events), name='capture.json')
    replayed_, unknown, by_order = counts(analyze('breakdown', '--group-by', 'op', '--graph-capture', capture, replay))
    assert replayed_ == unknown > 300 and by_order == 0


def test_roofline_knows_the_operators(analyze, shared_traces):
    """Shapes of the capture give products their flops, for each of the 24 layers."""
    answer = analyze('roofline', shared_traces / 'replay' / PAIRS[0] / 'graph_execution.json.gz')
    rows = {(r['name'], r['shapes']): r for r in answer['rows']}
    names = {name for name, _ in rows}
    assert {'vllm::moe_forward', 'aten::addmm'} <= names and '(none)' not in names
    row = rows['aten::addmm', '[[5120], [32, 2880], [2880, 5120], [], []]']
    assert row['calls'] == 24 and row['flops'] == 24 * (2 * 32 * 2880 * 5120)


# ---- made pairs ----

class Node:
    """A captured launch: its operator's number, its kernel, and its place among the nodes."""

    def __init__(self, op, kernel, kind='kernel'):
        self.op, self.kernel, self.kind = op, kernel, kind


CALLS = {'kernel': 'LaunchKernel', 'gpu_memcpy': 'MemcpyAsync', 'gpu_memset': 'MemsetAsync'}


def captured(nodes, at=0, named=True, marked=True, maker='hip'):
    """The events of a capture: each operator around its call, which has no work."""
    if marked:
        yield event('cuda_runtime', maker + 'StreamBeginCapture', at, 1)
    for i, node in enumerate(nodes):
        args = {'kernel': node.kernel} if named and node.kind == 'kernel' else {}
        yield event('cpu_op', f'op{node.op}', at + 10 * i + 2, 8)
        yield event('cuda_runtime', maker + CALLS[node.kind], at + 10 * i + 4, 2, correlation=1000000 + at + i, **args)
    if marked:
        yield event('cuda_runtime', maker + 'StreamEndCapture', at + 10 * len(nodes) + 5, 1)


def replayed(nodes, at, correlation, graph=0, order=None, streams=1, maker='hip'):
    """The events of a launch. With a graph, records name their nodes, in any order; a loop has some of them again."""
    yield event('cuda_runtime', maker + 'GraphLaunch', at, 2, correlation=correlation)
    for place, i in enumerate(order or range(len(nodes))):
        args = {'graph id': graph, 'graph node id': graph << 32 | i} if graph else {}
        name = nodes[i].kernel if nodes[i].kind == 'kernel' else 'Memcpy DtoD' if nodes[i].kind == 'gpu_memcpy' else 'Memset'
        yield event(nodes[i].kind, name, at + 100 * place + 10, nodes[i].op, tid=7 + place % streams, pid=0,
                    device=0, stream=7 + place % streams, correlation=correlation, **args)


def ask(analyze, folder, replays, *captures, rc=0):
    """Returns the answer, and how many works have the operator `opN` but last otherwise than N microseconds."""
    main = kineto(folder, list(replays), name='replay.json')
    files = [kineto(folder, list(c), name=f'capture{i}.json') for i, c in enumerate(captures)]
    answer = analyze('breakdown', '--group-by', 'op', main, *(a for f in files for a in ('--graph-capture', f)), rc=rc)
    wrong = [r for r in answer['rows'] if r['name'] != '(none)' and
             not (r['min_us'] == r['max_us'] == int(r['name'][2:]))]
    return answer, wrong


def model(draw, size, kernels):
    """A graph: operators with several kernels; a kernel's name may occur in several operators."""
    kinds = ['kernel'] * 8 + ['gpu_memcpy', 'gpu_memset']
    return [Node(i + 1, f'kernel{draw.randrange(kernels)}<float>(int)', draw.choice(kinds)) for i in range(size)]


def test_a_suffix_of_symbols_does_not_count(analyze, tmp_path):
    nodes = [Node(1, '_Z3onev.kd'), Node(2, 'two')]
    plain = [Node(1, '_Z3onev'), Node(2, 'two.kd')]
    answer, wrong = ask(analyze, tmp_path, replayed(nodes, 0, 1), captured(plain))
    assert by_op(answer) == {'op1': (1, 1), 'op2': (1, 2)} and not wrong


def test_one_operator_with_several_kernels_is_one_call(analyze, tmp_path):
    capture = [event('cpu_op', 'op1', 0, 100)] + [
        event('cuda_runtime', 'hipLaunchKernel', 10 * i + 5, 2, correlation=50 + i, kernel=f'k{i}') for i in range(3)]
    replay = [e for n in range(2) for e in replayed([Node(1, f'k{i}') for i in range(3)], 1000 * n, n + 1)]
    answer, _ = ask(analyze, tmp_path, replay, capture)
    assert by_op(answer) == {'op1': (2, 6)} and counts(answer) == (6, 0, 0)


@pytest.mark.parametrize('seed', range(4))
def test_permutations_are_never_wrong(analyze, tmp_path, seed):
    """Of permuted, cut and lengthened captures with names nothing wrong is taken; of an unchanged one all is."""
    draw = random.Random(seed)
    for i in range(6):
        nodes = model(draw, draw.randrange(3, 40), draw.choice([2, 5, 40]))
        order = list(range(len(nodes)))
        draw.shuffle(order)
        other = [nodes[i] for i in order]
        # Calls that launch kernels of one name in another order can't be told apart by anybody: their keys agree.
        alike = [(n.kind, n.kernel if n.kind == 'kernel' else '') for n in other] == [
            (n.kind, n.kernel if n.kind == 'kernel' else '') for n in nodes]
        folder = tmp_path / str(i)
        folder.mkdir()
        for capture, matches in ((nodes, True), (other, alike), (nodes[:-1], False), (nodes[1:], False),
                                 (nodes + nodes[:1], False)):
            answer, wrong = ask(analyze, folder, replayed(nodes, 0, 1), captured(capture))
            assert counts(answer) == (len(nodes), 0 if matches else len(nodes), 0)
            assert not wrong or (capture is other and alike)


def test_captures_that_disagree(analyze, tmp_path):
    """Two captures launch equal kernels: what both capture in one operator is known, the rest is not."""
    first = [Node(1, 'a'), Node(2, 'b'), Node(3, 'a')]
    second = [Node(1, 'a'), Node(9, 'b'), Node(3, 'a')]
    answer, wrong = ask(analyze, tmp_path, replayed(first, 0, 1), captured(first), captured(second))
    assert by_op(answer) == {'op1': (1, 1), 'op3': (1, 3), '(none)': (1, 2)}
    assert counts(answer) == (3, 1, 0) and not wrong


def test_streams_without_nodes(analyze, tmp_path):
    """Nobody names a node and there are several streams: kernels of one name in two operators stay unknown."""
    nodes = [Node(1, 'a'), Node(2, 'b'), Node(3, 'a')]
    answer, _ = ask(analyze, tmp_path, replayed(nodes, 0, 1, streams=2), captured(nodes))
    assert by_op(answer) == {'op2': (1, 2), '(none)': (2, 4)} and counts(answer) == (3, 2, 0)


def test_inputs_that_captures_disagree_on(analyze, tmp_path):
    """Captures of two batch sizes launch the same kernels in the same operators: their shapes are unknown, the rest is not."""
    def capture(batch):
        yield event('python_function', 'nn.Module: Net_0', 0, 90)
        yield event('python_function', 'model.py(7): forward', 1, 80)
        yield event('cpu_op', 'outer', 2, 70, **{'Input Dims': [[batch, 4]]})
        yield event('cpu_op', 'op1', 3, 20, **{'Input Dims': [[3, 4]]})
        yield event('cuda_runtime', 'hipLaunchKernel', 5, 2, correlation=91, kernel='a')
        yield event('cuda_runtime', 'hipLaunchKernel', 8, 2, correlation=92, kernel='b')

    nodes = [Node(1, 'a'), Node(1, 'b')]
    main = kineto(tmp_path, [e for n in range(3) for e in replayed(nodes, 1000 * n, n + 1)], name='replay.json')
    files = [kineto(tmp_path, list(capture(b)), name=f'capture{b}.json') for b in (1, 2)]
    answer = analyze('ops', main, '--group-by', 'name,shapes,modules,stack=5',
                     *(a for f in files for a in ('--graph-capture', f)))
    rows = {r['name']: r for r in answer['rows']}
    inner, outer = rows['op1'], rows['outer']
    assert (inner['calls'], inner['self_device_us'], inner['device_total_us']) == (3, 6, 6)
    assert (outer['calls'], outer['self_device_us'], outer['device_total_us']) == (3, 0, 6)
    assert (inner['shapes'], outer['shapes']) == ('[[3, 4]]', '[]')
    for row in (inner, outer):
        assert row['modules'] == 'Net_0' and row['stack'] == ['model.py(7): forward', 'nn.Module: Net_0']


def test_ops_say_what_agrees_with_no_capture(analyze, tmp_path):
    nodes = [Node(1, 'a'), Node(2, 'b')]
    main = kineto(tmp_path, list(replayed(nodes, 0, 1)), name='replay.json')
    capture = kineto(tmp_path, list(captured(nodes[:1])), name='capture.json')
    result = analyze('ops', '--graph-capture', capture, main, format=None)
    assert '2 of 2 works that graphs replayed agree with no capture' in result.err
    answer = analyze('ops', '--graph-capture', capture, main)
    assert {r['name'] for r in answer['rows']} == {'a', 'b', 'hipGraphLaunch'}


# ---- calls without names, as CUDA's ----

def test_order_of_nodes(analyze, tmp_path):
    """Kinds and the order of nodes find the operators, whatever the order of time; that is said."""
    draw = random.Random(1)
    nodes = model(draw, 20, 5)
    order = list(range(20))
    draw.shuffle(order)
    answer, wrong = ask(analyze, tmp_path, replayed(nodes, 0, 1, graph=5, order=order, streams=3, maker='cuda'),
                        captured(nodes, named=False, maker='cuda'))
    assert counts(answer) == (20, 0, 20) and not wrong
    answer, wrong = ask(analyze, tmp_path, replayed(nodes, 0, 1, streams=3, maker='cuda'),
                        captured(nodes, named=False, maker='cuda'))
    assert counts(answer) == (20, 20, 0)


def test_a_loop_runs_nodes_again(analyze, tmp_path):
    nodes = [Node(1, 'a'), Node(2, 'b'), Node(3, 'c')]
    answer, _ = ask(analyze, tmp_path, replayed(nodes, 0, 1, graph=5, order=[0, 1, 2, 1, 2, 1, 2], maker='cuda'),
                    captured(nodes, named=False, maker='cuda'))
    assert by_op(answer) == {'op1': (1, 1), 'op2': (1, 6), 'op3': (1, 9)}
    assert counts(answer) == (7, 0, 7)


def test_nodes_of_several_graphs(analyze, tmp_path):
    """A launch with nodes of two graphs and no names is not matched, though the count would fit."""
    nodes = [Node(1, 'a'), Node(2, 'b')]
    replay = list(replayed(nodes[:1], 0, 1, graph=5)) + list(replayed(nodes[1:], 0, 1, graph=6))
    answer, _ = ask(analyze, tmp_path, replay, captured(nodes, named=False))
    assert counts(answer) == (2, 2, 0)


def test_two_threads_capture_at_once(analyze, tmp_path):
    """Captures of two threads interleave in time, and each replay agrees with its own."""
    graphs = [[Node(1, 'a'), Node(2, 'b')], [Node(3, '', 'gpu_memset'), Node(4, 'c')]]
    capture = []
    for tid, graph in enumerate(graphs, 1):
        capture += [json.dumps({**json.loads(e), 'tid': tid}) for e in captured(graph, at=3 * tid, named=False)]
    capture.sort(key=lambda e: json.loads(e)['ts'])
    replay = [e for i, graph in enumerate(graphs) for e in replayed(graph, 1000 * i, i + 1, graph=i + 5)]
    answer, wrong = ask(analyze, tmp_path, replay, capture)
    assert by_op(answer) == {f'op{i}': (1, i) for i in range(1, 5)} and counts(answer) == (4, 0, 4) and not wrong


def test_one_trace_has_capture_and_replays(analyze, tmp_path):
    """The capture in the trace itself counts, with its times: a launch before it replays another graph. A capture may be
    instantiated twice, and a kind at another place is another graph."""
    nodes = [Node(1, 'a'), Node(2, '', 'gpu_memset'), Node(3, 'c')]
    moved = [nodes[1], nodes[0], nodes[2]]
    events = [*replayed(nodes, 0, 1, graph=4), *captured(nodes, at=1000, named=False),
              *replayed(nodes, 2000, 2, graph=5), *replayed(nodes, 3000, 3, graph=6), *replayed(moved, 4000, 4, graph=7)]
    main = kineto(tmp_path, events)
    answer = analyze('breakdown', '--group-by', 'op', main)
    assert by_op(answer) == {'op1': (2, 2), 'op2': (2, 4), 'op3': (2, 6), '(none)': (6, 12)}
    assert counts(answer) == (12, 6, 6)


def test_a_later_capture_does_not_count(analyze, tmp_path):
    """Launches between two equal captures replay the first one; those after both may replay either."""
    first, second = [Node(1, 'a'), Node(2, 'b')], [Node(1, 'a'), Node(9, 'c')]
    main = kineto(tmp_path, [*captured(first, named=False), *replayed(first, 1000, 1, graph=4),
                             *captured(second, at=2000, named=False), *replayed(first, 3000, 2, graph=4)])
    answer = analyze('breakdown', '--group-by', 'op', main)
    assert by_op(answer) == {'op1': (2, 2), 'op2': (1, 2), '(none)': (1, 2)} and counts(answer) == (4, 1, 3)


def test_what_ran_at_once_was_not_captured(analyze, tmp_path):
    """A call with work of its own, on another stream, is no node."""
    nodes = [Node(1, 'a'), Node(2, 'b')]
    capture = list(captured(nodes))
    capture += [event('kernel', 'b', 500, 1, 7, 0, correlation=1000001, stream=7, device=0)]
    answer, wrong = ask(analyze, tmp_path, replayed(nodes[:1], 0, 1), capture)
    assert by_op(answer) == {'op1': (1, 1)} and not wrong


def test_a_file_without_captures(analyze, tmp_path):
    """It is said, and the answer is partial: a mistaken file would look like an unknown graph."""
    nodes = [Node(1, 'a')]
    main = kineto(tmp_path, list(replayed(nodes, 0, 1)), name='replay.json')
    nothing = kineto(tmp_path, [event('cpu_op', 'op1', 0, 1)], name='nothing.json')
    for file in (nothing, tmp_path / 'missing.json'):
        result = analyze('breakdown', '--graph-capture', file, main, format=None, rc=3)
        assert file.name in result.err and 'operators of replayed graphs stay unknown' in result.err


def test_kernels_by_order_are_few(analyze, tmp_path):
    """Without names a permuted capture may be taken if its kinds agree; then all of it is marked, none is sure."""
    draw = random.Random(7)
    taken = Counter()
    for i in range(10):
        nodes = model(draw, 12, 3)
        other = nodes[:]
        draw.shuffle(other)
        folder = tmp_path / str(i)
        folder.mkdir()
        answer, wrong = ask(analyze, folder, replayed(nodes, 0, 1, maker='cuda'), captured(other, named=False, maker='cuda'))
        replayed_, unknown, by_order = counts(answer)
        assert replayed_ - unknown == by_order and unknown in (0, replayed_)
        taken['taken'] += by_order > 0
    assert taken['taken'] < 10


# ---- exports ----

@pytest.mark.parametrize('pair', PAIRS)
def test_exports_say_where_work_was_captured(analyze, shared_traces, tmp_path, pair):
    """Each work of a graph gets its operator, and sums by it are TraceLens's. All else of the events is unchanged."""
    folder = shared_traces / 'replay' / pair
    out = tmp_path / 'out.json'
    analyze('export', 'chrome', '--output', out, folder / 'graph_execution.json.gz', format=None)
    with gzip.open(folder / 'graph_execution.json.gz') as file:
        before = {(e['ts'], e['name']): e for e in json.load(file)['traceEvents'] if e.get('cat', '').startswith(('kernel', 'gpu_m'))}
    operators = [e for e in json.loads(out.read_text())['traceEvents'] if e.get('cat', '').startswith(('kernel', 'gpu_m'))]
    sums, vias, lines = Counter(), Counter(), Counter()
    for e in operators:
        own = {k: v for k, v in e['args'].items() if not k.startswith('captured ')}
        assert own == before[e['ts'], e['name']]['args']
        if 'captured op' in e['args']:
            sums[e['args']['captured op']] += e['dur']
            vias[e['args']['captured via']] += 1
            lines['.py(' in e['args']['captured at']] += 1
    assert vias.keys() == {'capture'} and vias['capture'] > 300 and lines.keys() == {True}
    with open(folder / 'perf_csvs' / 'ops_summary.csv', newline='') as file:
        report = {r['name']: float(r['total_direct_kernel_time_sum']) for r in csv.DictReader(file)}
    assert sums.keys() <= report.keys() and len(sums) >= 10
    assert all(us <= report[name] * 1.001 for name, us in sums.items())
    assert sum(us == pytest.approx(report[name], rel=1e-3) for name, us in sums.items()) >= len(sums) - 1


def test_exports_of_several_inputs(analyze, tmp_path):
    """Merged files and protobuf files have the same arguments; an order without names says so, and texts are escaped."""
    nodes = [Node(1, 'a'), Node(2, 'b')]
    capture = [event('cpu_op', 'op "1"\\\n', 0, 30), event('cuda_runtime', 'cudaLaunchKernel', 5, 2, correlation=90),
               event('cuda_runtime', 'cudaLaunchKernel', 8, 2, correlation=91)]
    mains = [kineto(tmp_path, list(replayed(nodes, 1000 * n, n + 1, maker='cuda')), n, 2, f'replay{n}.json') for n in range(2)]
    file = kineto(tmp_path, capture, name='capture.json')
    out = tmp_path / 'out.json'
    analyze('export', 'chrome', '--graph-capture', file, '--output', out, *mains, format=None)
    kernels = [e for e in json.loads(out.read_text())['traceEvents'] if e.get('cat') == 'kernel']
    assert [(e['args']['captured op'], e['args']['captured via']) for e in kernels] == 4 * [('op "1"\\\n', 'capture order')]
    packed = tmp_path / 'out.pftrace'
    analyze('export', 'pftrace', '--graph-capture', file, '--output', packed, *mains, format=None)
    assert b'captured op' in packed.read_bytes() and b'capture order' in packed.read_bytes()


def test_stages_are_those_of_the_replay(analyze, tmp_path):
    """The stage of a capture is none of the replay's; stages and exports of the replay keep theirs, with the counts."""
    nodes = [Node(1, 'a'), Node(2, 'b')]
    capture = [event('user_annotation', 'capture_8_FULL', 0, 90), *captured(nodes, at=1, named=False)]
    replay = [e for n, stage in enumerate(['prefill', 'decode'])
              for e in [event('user_annotation', stage, 1000 * n, 500), *replayed(nodes, 1000 * n + 1, n + 1, graph=5)]]
    main = kineto(tmp_path, replay, name='replay.json')
    file = kineto(tmp_path, capture, name='capture.json')
    answer = analyze('stages', '--graph-capture', file, main)
    assert {r['stage']: r['device_us'] for r in answer['rows']} == {'prefill': 3, 'decode': 3}
    assert counts(answer) == (4, 0, 4)
    assert 'replayed' not in analyze('stages', main)['totals']
    rows = analyze('breakdown', '--group-by', 'op', '--graph-capture', file, main)['rows']
    assert {(r['stage'], r['name']) for r in rows} == {(s, o) for s in ('prefill', 'decode') for o in ('op1', 'op2')}
    folder = tmp_path / 'report'
    analyze('report', '--graph-capture', file, '--output', folder, main, format=None)
    with gzip.open(folder / 'decode_rank0.trace.json.gz') as out:
        kernels = [e for e in json.load(out)['traceEvents'] if e.get('cat') == 'kernel']
    assert [e['args']['captured op'] for e in kernels] == ['op1', 'op2']
