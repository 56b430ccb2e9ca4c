"""test_graphs - CUDA graphs on the simulated GPU: replayed work belongs to the stage that replays it.

Each node also keeps the operator and the stage that captured it. tests/victims_gpu/graphs.c makes graphs in all ways
and names each kernel after the stage it was captured in. The torch script captures fifty operators, replays them in two
stages and updates the graph in between. The device model's log has the durations of its kernels, and a kernel's name
shows its operator.
"""

import json
from collections import Counter, defaultdict

import pytest

import scripted
import tfr
from conftest import BUILD, built, short_form

GPU = BUILD / 'simgpu'
NODES, REPLAYS = 50, 200  # of each stage
SCRIPT = '*dd_f* 3us\n*AUnaryFunctor* 5us\n'

# One graph alternates additions and products; the graph that updates it alternates absolute values and negations.
PIPELINE = """
import ctypes, torch
nvtx = torch.cuda.nvtx
x = torch.ones(1000, device='cuda')


def captured(stage, *operators):
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with nvtx.range(stage), torch.cuda.graph(graph):
        y = x
        for i in range(%(nodes)d):
            with nvtx.range('even' if i %% 2 == 0 else 'odd'):
                y = operators[i %% 2](y)
    return graph


def replay(stage):
    with nvtx.range(stage):
        for _ in range(%(replays)d // 2):
            graph.replay()
        torch.cuda.synchronize()


graph = captured('prepare', lambda y: y + 1, lambda y: y * 2)
graph.instantiate()
replay('denoise')
replay('decode')
other = captured('again', torch.abs, torch.neg)
info = (ctypes.c_char * 64)()
update = ctypes.CDLL('libcudart.so.13').cudaGraphExecUpdate
assert update(ctypes.c_void_p(graph.raw_cuda_graph_exec()), ctypes.c_void_p(other.raw_cuda_graph()), info) == 0
replay('denoise')
replay('decode')
""" % {'nodes': NODES, 'replays': REPLAYS}
OPERATORS = {'add': 'aten::add', 'mul': 'aten::mul', 'abs': 'aten::abs', 'neg': 'aten::neg'}
STAGES = {'add': ('even', 'prepare'), 'mul': ('odd', 'prepare'), 'abs': ('even', 'again'), 'neg': ('odd', 'again')}


def operator(kernel):
    """The operator of a kernel, by the kernel's mangled or plain name."""
    found = [o for o in OPERATORS if o in kernel.lower() or o == 'mul' and 'MulFunctor' in kernel]
    return scripted.only(found)


def play_torch(run, python, tmp_path, lib, name, **env):
    (tmp_path / 'pipeline.py').write_text(PIPELINE)
    (tmp_path / 'script').write_text(SCRIPT)
    log = tmp_path / f'log-{name}'
    libraries = [lib, built(GPU / 'libcudart.so.13'), built(GPU / 'libcupti.so.13')]
    result = run([python, 'pipeline.py'], {
        'LD_LIBRARY_PATH': GPU, 'SIMGPU_LOG': log, 'SIMGPU_SCRIPT': tmp_path / 'script', 'TFI_OUTPUT_DIR': tmp_path / name,
        'TFI_ACTIVITIES': 'gpu,ops', **env}, preload=':'.join(map(str, libraries)))
    assert result.rc == 0, result.err[-3000:]
    return tmp_path / name, [json.loads(line) for line in log.read_text().splitlines()]


def by_row(answer):
    return {(r['stage'], r['name']): (r['calls'], r['total_us']) for r in answer['rows']}


def expected(log):
    """{(stage, operator): (calls, time)} of the replays. Graph launches come in four rounds, each of half of REPLAYS."""
    rows = defaultdict(lambda: [0, 0])
    launches = {}
    for w in log:
        if w['t'] == 'kernel' and w['graph']:
            place = launches.setdefault(w['correlation'], len(launches)) // (REPLAYS // 2)
            row = rows['denoise' if place % 2 == 0 else 'decode', OPERATORS[operator(w['name'])]]
            row[0] += 1
            row[1] += w['end'] - w['start']
    assert len(launches) == 2 * REPLAYS
    return {key: (calls, pytest.approx(ns / 1000, abs=0.01)) for key, (calls, ns) in rows.items()}


@pytest.mark.xdist_group('graphs-torch')
def test_operators_inside_replays(run, python, tmp_path, lib, analyze):
    """Fifty nodes, four hundred replays, one update: each kernel has its operator, and totals equal the log's."""
    directory, log = play_torch(run, python, tmp_path, lib, 'all')
    answer = analyze('breakdown', directory, '--group-by', 'op')
    want = expected(log)
    assert {k: v for k, v in by_row(answer).items() if k[0] in ('denoise', 'decode')} == want
    assert sum(calls for calls, _ in want.values()) == 2 * REPLAYS * NODES
    assert sorted({name for _, name in want}) == sorted(OPERATORS.values())
    total = sum(w['end'] - w['start'] for w in log if w['t'] == 'kernel')
    assert answer['totals']['total_kernel_time_us'] == pytest.approx(total / 1000, abs=0.01)
    assert (answer['totals']['replayed'], answer['totals']['replayed_unknown']) == (2 * REPLAYS * NODES, 0)
    by_kernel = analyze('breakdown', directory)
    assert by_kernel['totals']['total_kernel_time_us'] == answer['totals']['total_kernel_time_us']
    tracelens = analyze('breakdown', directory, '--group-by', 'op', '--rules', 'tracelens')
    assert not [r for r in tracelens['rows'] if r['stage'] in ('denoise', 'decode')]
    events = analyze('export', 'chrome', directory, '--stage', 'decode', format=None).out
    kernels = [e for e in json.loads(events)['traceEvents'] if e.get('cat') == 'kernel']
    assert len(kernels) == REPLAYS * NODES
    for e in kernels[::97]:
        kind = operator(e['name'])
        assert e['args']['captured op'] == OPERATORS[kind]
        assert e['args']['captured stage'] == STAGES[kind][0]


@pytest.mark.xdist_group('graphs-torch')
def test_captured_outside_the_selection(run, python, tmp_path, lib, analyze):
    """Only `decode` is selected: its kernels' operators are known, though the capturing stage is not recorded."""
    directory, log = play_torch(run, python, tmp_path, lib, 'selected', ENABLE_PROFILER_NAMES='decode')
    answer = analyze('breakdown', directory, '--group-by', 'op')
    want = {k: v for k, v in expected(log).items() if k[0] == 'decode'}
    assert {k: v for k, v in by_row(answer).items() if k[0] == 'decode'} == want
    trace = scripted.only(scripted.traces(directory))
    assert not [r for r in trace.records if r.kind == 'op']
    nodes = [r for r in trace.records if r.kind == 'graph_node']
    ops = Counter(scripted.text(trace, r.values['op']) for r in nodes)
    assert ops == dict.fromkeys(OPERATORS.values(), NODES // 2)
    assert Counter(scripted.text(trace, r.values['stage']) for r in nodes) == {'even': NODES, 'odd': NODES}


@pytest.mark.xdist_group('graphs-torch')
def test_whole_graphs(run, python, tmp_path, lib, analyze):
    """TFI_GRAPHS=graph makes one record of a launch, from the first node's start to the last node's end."""
    directory, log = play_torch(run, python, tmp_path, lib, 'whole', TFI_GRAPHS='graph')
    spans = defaultdict(list)
    for w in log:
        if w['t'] == 'kernel' and w['graph']:
            spans[w['correlation']] += [w['start'], w['end']]
    trace = scripted.only(scripted.traces(directory))
    launches = {r.values['correlation']: r.values['duration'] for r in trace.records if r.kind == 'graph_launch'}
    assert launches == {c: max(times) - min(times) for c, times in spans.items()}
    answer = analyze('breakdown', directory, '--group-by', 'op')
    rows = by_row(answer)
    assert sum(calls for (stage, name), (calls, _) in rows.items() if name == '(none)') == 2 * REPLAYS
    assert answer['totals']['replayed'] == 0


# ---- trees of graphs ----

TREES = """
import torch
x = torch.ones(64, 64, device='cuda')
compiled = torch.compile(lambda x, y: torch.mm(torch.relu(torch.mm(x, y)) + 1, y), mode='reduce-overhead')


def step():
    torch.compiler.cudagraph_mark_step_begin()
    compiled(x, x)
    torch.cuda.synchronize()


with torch.no_grad():
    for _ in range(3):  # compiles, warms up, captures
        step()
    with torch.cuda.nvtx.range('served'):
        for _ in range(4):
            step()
"""


@pytest.mark.slow
@pytest.mark.xdist_group('graphs-torch')
def test_trees_of_inductor(run, python, tmp_path, lib, analyze):
    """torch.compile(mode='reduce-overhead') replays the graphs of Inductor's own trees. Each product of matrices in the log
    has its operator, and each kernel of Triton the compiled region that captured it."""
    (tmp_path / 'trees.py').write_text(TREES)
    libraries = [lib, *(built(GPU / n) for n in ('libcudart.so.13', 'libcupti.so.13', 'libsimblas.so'))]
    result = run([python, 'trees.py'], {
        'LD_LIBRARY_PATH': GPU, 'SIMGPU_LOG': tmp_path / 'log-%p', 'SIMGPU_DEVICES': 1, 'TFI_OUTPUT_DIR': tmp_path / 'run',
        'TFI_ACTIVITIES': 'gpu,ops', 'TORCHINDUCTOR_CACHE_DIR': tmp_path / 'inductor', 'TRITON_CACHE_DIR': tmp_path / 'triton'},
        preload=':'.join(map(str, libraries)), timeout=900)
    assert result.rc == 0, result.err[-3000:]
    launches = defaultdict(list)
    for w in (json.loads(line) for log in tmp_path.glob('log-*') for line in log.read_text().splitlines()):
        if w['t'] == 'kernel' and w['graph']:  # only of the program itself, not of the processes that compile
            launches[w['correlation']].append(w['name'])
    names = Counter(name.split('_')[0] for c in sorted(launches)[-4:] for name in launches[c])
    assert set(names) == {'simblas', 'triton'} and names['simblas'] == 4 * 2
    answer = analyze('breakdown', tmp_path / 'run', '--group-by', 'op', '--stage', 'served')
    rows = {name: calls for (_, name), (calls, _) in by_row(answer).items()}
    region, = (name for name in rows if name.startswith('Torch-Compiled Region'))
    assert (rows['aten::mm'], rows[region]) == (names['simblas'], names['triton'])
    assert answer['totals']['replayed'] >= sum(map(len, launches.values())) and answer['totals']['replayed_unknown'] == 0


# ---- torch.profiler's traces ----

PROFILED = """
import ctypes, torch
from torch.profiler import ProfilerActivity, profile, record_function
x = torch.ones(1000, device='cuda')


def captured(*operators):
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        y = x
        for i in range(10):
            y = operators[i % 2](y)
    return graph


def replay(graph, stage, times):
    with record_function(stage):
        for _ in range(times):
            graph.replay()
        torch.cuda.synchronize()


with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as session:
    graph = captured(lambda y: y + 1, lambda y: y * 2)
    graph.instantiate()
    replay(graph, 'loop', 5)
    graph.instantiate()
    replay(graph, 'again', 3)
    other = captured(torch.abs, torch.neg)
    info = (ctypes.c_char * 64)()
    update = ctypes.CDLL('libcudart.so.13').cudaGraphExecUpdate
    assert update(ctypes.c_void_p(graph.raw_cuda_graph_exec()), ctypes.c_void_p(other.raw_cuda_graph()), info) == 0
    replay(graph, 'updated', 2)
session.export_chrome_trace('profiled.json')
"""


@pytest.mark.xdist_group('graphs-torch')
def test_replays_in_a_trace_of_torch(run, python, tmp_path, analyze):
    """A loop of launches, and a graph that is instantiated again: the operators are the log's. After an update the launch
    may be of either capture, since their calls are alike: it is unknown, not guessed. Products last longer than sums, and
    torch's clock is another one than the log's."""
    (tmp_path / 'profiled.py').write_text(PROFILED)
    (tmp_path / 'script').write_text(SCRIPT)
    libraries = [built(GPU / 'libcudart.so.13'), built(GPU / 'libcupti.so.13')]
    result = run([python, 'profiled.py'], {
        'LD_LIBRARY_PATH': GPU, 'SIMGPU_LOG': tmp_path / 'log', 'SIMGPU_SCRIPT': tmp_path / 'script'},
        preload=':'.join(map(str, libraries)))
    assert result.rc == 0, result.err[-3000:]
    want, launches, times = Counter(), {}, defaultdict(list)
    for w in (json.loads(line) for line in (tmp_path / 'log').read_text().splitlines()):
        if w['t'] == 'kernel' and w['graph']:
            place = launches.setdefault(w['correlation'], len(launches))
            stage = 'loop' if place < 5 else 'again' if place < 8 else 'updated'
            times[operator(w['name'])].append(w['end'] - w['start'])
            want[stage, '(none)' if stage == 'updated' else OPERATORS[operator(w['name'])]] += 1
    assert max(times['add']) < min(times['mul'])
    answer = analyze('breakdown', tmp_path / 'profiled.json', '--group-by', 'op')
    rows = by_row(answer)
    assert {key: calls for key, (calls, _) in rows.items()} == want
    assert all(rows[stage, 'aten::add'][1] < rows[stage, 'aten::mul'][1] for stage in ('loop', 'again'))
    totals = answer['totals']
    assert (totals['replayed'], totals['replayed_unknown'], totals['replayed_by_order']) == (100, 20, 80)


# ---- without torch ----

def play(run, tmp_path, *arguments, **env):
    log = tmp_path / 'log'
    result = run([built(BUILD / 'victims_gpu' / 'graphs'), *arguments],
                 {'LD_LIBRARY_PATH': GPU, 'SIMGPU_LOG': log, **env})
    assert result.rc == 0 and result.out.endswith('ok\n'), (result.out, result.err)
    result.log = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    result.trace = scripted.only(scripted.traces(result.dir))
    return result


BY_TOOLS, BY_CUPTI, OLD_INFO = '', 'cuGraphNodeGetToolsId,cuGraphGetId,cuGraphExecGetId', 'cuStreamGetCaptureInfo_v3'


@pytest.mark.parametrize('lack', [BY_TOOLS, BY_CUPTI, OLD_INFO], ids=['driver', 'cupti', 'old-info'])
def test_every_origin_of_a_node(run, tmp_path, analyze, lack):
    """Nodes captured, added, cloned, in a child, launched into a capture or updated keep their stage's name."""
    played = play(run, tmp_path, 'ways', SIMGPU_LACK=lack)
    events = json.loads(analyze('export', 'chrome', played.dir, format=None).out)['traceEvents']
    nodes = [e for e in events if e.get('cat') in ('kernel', 'gpu_memset', 'gpu_memcpy') and 'graph id' in e['args']]
    worked = [w for w in played.log if w['t'] in ('kernel', 'memset', 'memcpy') and w['graph']]
    assert len(nodes) == len(worked) == 66
    names = {'gpu_memset': 'setting', 'gpu_memcpy': 'copying'}
    for e in nodes:
        assert e['args']['captured stage'] == names.get(e['cat'], e['name']), e
    assert Counter(e['name'] for e in nodes if e['cat'] == 'kernel') == Counter(
        w['name'] for w in worked if w['t'] == 'kernel')
    answer = analyze('breakdown', played.dir)
    assert {r['stage'] for r in answer['rows']} == {'once', 'twice'}
    assert (answer['totals']['replayed'], answer['totals']['replayed_unknown']) == (66, 0)


@pytest.mark.parametrize('lack', [BY_TOOLS, BY_CUPTI], ids=['driver', 'cupti'])
def test_bodies_of_conditions(run, tmp_path, analyze, lack):
    """Kernels in the bodies of conditions keep the stage they were captured in, each round of a loop. A number that nodes of two
    bodies of a graph have is of unknown origin, never of a wrong one."""
    played = play(run, tmp_path, 'conditions', SIMGPU_LACK=lack)
    events = json.loads(analyze('export', 'chrome', played.dir, format=None).out)['traceEvents']
    nodes = [e for e in events if e.get('cat') == 'kernel']
    ran = Counter(w['name'] for w in played.log if w['t'] == 'kernel' and w['graph'])
    assert ran == {'before': 9, 'round': 9, 'round2': 9, 'taken': 3, 'outer': 6, 'inner0': 18, 'inner1': 18, 'inner2': 18}
    assert Counter(e['name'] for e in nodes) == ran
    found = Counter((e['name'], e['args'].get('captured stage')) for e in nodes)
    assert all(stage in (None, name) for name, stage in found)
    unknown = {name for name, stage in found if not stage}
    assert unknown == {'outer', 'inner0', 'inner1'}
    answer = analyze('breakdown', played.dir)
    stages = Counter()
    for r in answer['rows']:
        stages[r['stage']] += r['calls']
    assert stages == {'once': sum(ran.values()) // 3, 'twice': 2 * sum(ran.values()) // 3}
    lost = sum(ran[name] for name in unknown)
    assert (answer['totals']['replayed'], answer['totals']['replayed_unknown']) == (sum(ran.values()), lost)


def test_node_ids_are_unavailable(run, tmp_path, analyze):
    """Without node ids of the driver and of CUPTI everything but the nodes' origin is recorded, and that is counted."""
    played = play(run, tmp_path, 'ways', SIMGPU_LACK=BY_CUPTI,
                  SIMCUPTI_LACK='cuptiGetGraphNodeId,cuptiGetGraphId,cuptiGetGraphExecId')
    drops = {r.values['cause']: r.values['count'] for r in played.trace.records if r.kind == 'drop'}
    assert drops == {tfr.DROPS['graph_nodes'][0]: 10}
    answer = analyze('breakdown', played.dir)
    assert (answer['totals']['replayed'], answer['totals']['replayed_unknown']) == (0, 0)
    assert sum(r['calls'] for r in answer['rows']) == 36


def test_many_graphs_cost_no_memory(run, tmp_path):
    """A thousand graphs take no more memory than one, and every node is recorded."""
    most = {}
    for graphs in (1, 1000):
        (tmp_path / str(graphs)).mkdir()
        played = play(run, tmp_path, 'many', str(graphs), TFI_OUTPUT_DIR=tmp_path / str(graphs), SIMGPU_LOG='')
        most[graphs] = int(played.out.split()[0])
        trace = scripted.trace(scripted.only(list((tmp_path / str(graphs)).glob('*.tfr'))))
        kinds = Counter(r.kind for r in trace.records)
        assert (kinds['graph_node'], kinds['kernel'], kinds['graph_source']) == (10 * graphs, 10 * graphs, graphs)
    assert most[1000] < most[1] + 8192, most


@short_form(1, 'nodes', [30000, 100000])
def test_a_large_graph(run, tmp_path, analyze, nodes):
    """So many nodes, launched three times at once, take bounded memory; records without room are counted."""
    played = play(run, tmp_path, 'large', str(nodes), SIMGPU_LOG='')
    kinds = Counter(r.kind for r in played.trace.records)
    drops = {r.values['cause']: r.values['count'] for r in played.trace.records if r.kind == 'drop'}
    discarded = max((r.values['count'] for r in played.trace.records
                     if r.kind == 'drop' and r.values['cause'] == tfr.DROPS['device_discarded'][0]), default=0)
    assert set(drops) <= {tfr.DROPS['device_discarded'][0]}
    assert kinds['graph_node'] == nodes and kinds['kernel'] + discarded == 3 * nodes
    answer = analyze('breakdown', played.dir, rc=3 if discarded else 0)
    assert (answer['totals']['replayed'], answer['totals']['replayed_unknown']) == (kinds['kernel'], 0)
    assert int(played.out.split()[0]) < (100 + nodes // 500) * 1024


# ---- the cost of recording ----

COST = 200000  # ns per record


def spun(run, tmp_path, lib, **env):
    """The durations, in ns, of two hundred launches of graphs with ten kernels, on a CUPTI whose records have a cost."""
    result = run([built(BUILD / 'victims_gpu' / 'graphs'), 'many', '20'],
                 {'LD_LIBRARY_PATH': GPU, 'SIMGPU_LOG': tmp_path / 'log', 'SIMCUPTI_NASTY': f'cost={COST}', **env})
    assert result.rc == 0, result.err
    calls = [json.loads(line) for line in (tmp_path / 'log').read_text().splitlines()]
    (tmp_path / 'log').unlink()
    return [c['end'] - c['start'] for c in calls if c['t'] == 'call' and c['symbol'] == 'cuGraphLaunch']


def test_the_cost_of_records_is_cuptis(run, tmp_path, lib):
    """A launch takes the time of its records: one for each node, one for each graph, or none."""
    nodes, graphs, none = (spun(run, tmp_path, lib, **env) for env in (
        {}, {'TFI_GRAPHS': 'graph'}, {'TFI_ACTIVITIES': 'cpu'}))
    assert len(nodes) == len(graphs) == len(none) == 20
    assert min(nodes) >= 10 * COST > min(graphs) >= COST > min(none)
