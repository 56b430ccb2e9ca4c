"""test_critical_path - `critical-path` against networkx, and against the simulated GPU's log."""

import gzip
import json
from collections import Counter
from random import Random

import pytest

import scripted
import simlog
from conftest import BUILD, TRACES, built

SIMPLE_ADD = TRACES / 'hta/critical_path/simple_add/benchmark_result_493459_1694039959_trace.json.gz'
JOBS = ['hta/call_stack/backward_thread.json', 'hta/triton_example/triton_example.json.gz', 'hta/trace_compare/base/base.json.gz',
        'hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz', 'hta/trace_filter/sampled_rank-0.json.gz',
        'hta/cupti_profiler/benchmark_result_924719_1679055439_trace.json.gz', 'hta/rank_non_gpu/rank_non_gpu.json.gz',
        'hta/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz', 'kineto_tb/resnet50_num_workers_0__worker0.1623143089861.pt.trace.json.gz',
        'tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz',
        'tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz']


def check_chain(analyze, file):
    """The nodes are a chain whose edges add up to the kinds and to the whole. Returns the totals."""
    kinds, nodes = analyze('critical-path', file), analyze('critical-path', '--nodes', file)
    totals, rows, sums = kinds['totals'], nodes['rows'], Counter()
    assert nodes['totals'] == totals and len(rows) == totals['path_nodes']
    for row in rows[1:]:
        sums[row['kind']] += row['weight_us']
    assert {row['kind']: row['total_us'] for row in kinds['rows']} == pytest.approx({kind: time for kind, time in sums.items() if kind and time})
    assert sum(sums.values()) == pytest.approx(totals['path_us'])
    assert sum(row['pct'] for row in kinds['rows']) == pytest.approx(100, abs=0.01)
    return totals


@pytest.mark.parametrize('job', JOBS)
def test_real_traces(analyze, shared_traces, job):
    """Also without launches and with the categories of old traces."""
    totals = check_chain(analyze, shared_traces / job)
    assert 0 < totals['path_us'] <= totals['span_us']


# ---- random traces ----

SEEDS = 60
LAUNCHES = ('cudaLaunchKernel', 'cudaLaunchKernel', 'cuLaunchKernel', 'cudaMemcpyAsync')
WAITS = {'cudaStreamSynchronize': 'Stream Sync', 'cudaDeviceSynchronize': 'Context Sync', 'cudaEventSynchronize': 'Event Sync',
         'cudaStreamWaitEvent': 'Stream Wait Event'}
KERNELS = ('gemm', 'void f<int>(float)', 'ncclDevKernel_AllReduce(Args<4>)', 'void nccl<a>::Kernel(b)', 'ncclOther', 'void ncclKernel_X<1>(int)')


class RandomTrace:
    """Two threads with nested operators, two streams, and waits of every kind for the device and for events."""

    def __init__(self, random):
        self.random, self.events, self.correlation = random, [], 0
        self.free = {7: 0, 20: 0}  # by stream: when its work has ended
        self.records = []
        for tid in random.sample((1, 2), random.choice((1, 2))):
            at = random.randrange(50)
            for _ in range(random.randrange(1, 9)):
                at = self.operator(tid, at, 0) + random.randrange(6)
        if random.random() < 0.5:
            self.add('user_annotation', 'step', 1, 0, 10_000)
        random.shuffle(self.events)
        self.events.insert(0, {'ph': 'M', 'name': 'process_name', 'pid': 1, 'args': {'name': 'python'}})
        self.document = {'distributedInfo': {'rank': 0}, 'traceEvents': self.events}

    def add(self, category, name, tid, at, dur, pid=1, **args):
        self.events.append({'ph': 'X', 'cat': category, 'name': name, 'pid': pid, 'tid': tid, 'ts': 5000 + at, 'dur': dur, 'args': args})

    def operator(self, tid, at, depth):
        """An operator with operators and calls inside. Returns its end."""
        random, start = self.random, at
        at += random.randrange(3)
        for _ in range(random.randrange(4)):
            at = self.operator(tid, at, depth + 1) if depth < 3 and random.random() < 0.4 else self.call(tid, at)
            at += random.randrange(4)
        at += random.randrange(1, 4)
        self.add(random.choice(['cpu_op'] * 5 + ['python_function', 'user_annotation']), f'op{depth}', tid, start, at - start)
        return at

    def call(self, tid, at):
        random = self.random
        self.correlation += 1
        dur, kind, stream = random.randrange(1, 8), random.random(), random.choice((7, 20))
        here = {'correlation': self.correlation}
        if kind < 0.6:
            self.add(random.choice(('cuda_runtime', 'cuda_runtime', 'cuda_driver')), random.choice(LAUNCHES), tid, at, dur, **here)
            start = max(self.free[stream], at + random.randrange(1, 12))
            self.free[stream] = start + random.choice((1, 5, 30))
            self.add('kernel', random.choice(KERNELS), stream, start, self.free[stream] - start, pid=0, stream=stream, device=0, **here)
        elif kind < 0.7:
            self.add('cuda_runtime', 'cudaEventRecord', tid, at, dur, **here)
            self.records.append((self.correlation, stream))
        elif kind < 0.75:
            self.add('cuda_runtime', 'cudaMalloc', tid, at, dur, **(here if random.random() < 0.5 else {}))
        else:
            name = random.choice(list(WAITS))
            self.wait(name, tid, at, dur, stream, here)
        return at + dur

    def wait(self, name, tid, at, dur, stream, here):
        """A call that waits, with the profiler's record of the wait."""
        until = at + dur
        args = {'device': 0, 'stream': -1 if name == 'cudaDeviceSynchronize' else stream, **here}
        if 'Event' in name:
            record, of = self.random.choice(self.records) if self.records else (99_999, 7)
            args.update(wait_on_stream=of, wait_on_cuda_event_record_corr_id=record)
            if name == 'cudaEventSynchronize':
                args['stream'] = -1
        else:
            until = max(until, *(self.free.values() if args['stream'] < 0 else [self.free[stream]]))
        self.add('cuda_runtime', name, tid, at, dur, **here)
        if self.random.random() < 0.95:
            self.add('cuda_sync', WAITS[name], args['stream'], at, until - at, pid=0, **args)


@pytest.mark.slow
def test_traces_at_random(analyze, tmp_path):
    for seed in range(SEEDS):
        file = tmp_path / f'{seed}.json'
        file.write_text(json.dumps(RandomTrace(Random(seed)).document, indent=1))
        assert check_chain(analyze, file)['path_us'] > 0, seed


# ---- made traces ----

def event(category, name, start, end, **args):
    on_device = 'stream' in args
    return {'ph': 'X', 'cat': category, 'name': name, 'pid': 0 if on_device else 1, 'tid': args.pop('tid', args.get('stream', 1)),
            'ts': start, 'dur': end - start, 'args': {**args, **({'device': 0} if on_device else {})}}


THREADS = [
    event('cpu_op', 'A', 0, 100), event('cuda_runtime', 'cudaLaunchKernel', 20, 30, correlation=1),
    event('cuda_runtime', 'cudaLaunchKernel', 40, 50, correlation=2), event('cpu_op', 'B', 150, 400),
    event('cuda_runtime', 'cudaStreamSynchronize', 200, 390, correlation=4),
    event('cpu_op', 'T', 110, 140, tid=2), event('cuda_runtime', 'cudaLaunchKernelExC', 115, 120, tid=2, correlation=3),
    event('kernel', 'first', 35, 135, stream=7, correlation=1), event('kernel', 'second', 140, 300, stream=7, correlation=2),
    event('kernel', 'ncclDevKernel_AllReduce', 125, 380, stream=20, correlation=3),
    event('cuda_sync', 'Stream Sync', 200, 389, stream=7, correlation=4)]
EDGES_OF_THREADS = [  # nodes by time, from, to, weight, kind
    (0, 20, 20, 'cpu'), (20, 30, 10, 'cpu'), (30, 40, 10, 'cpu'), (40, 50, 10, 'cpu'), (50, 100, 50, 'cpu'), (100, 150, 50, 'cpu'),
    (150, 200, 50, 'cpu'), (200, 390, 0, 'cpu'), (390, 400, 10, 'cpu'), (100, 110, 10, 'cpu'), (110, 115, 5, 'cpu'),
    (115, 120, 5, 'cpu'), (120, 140, 20, 'cpu'), (140, 150, 10, 'cpu'), (20, 35, 15, 'launch'), (35, 135, 100, 'compute'),
    (135, '140 second', 5, 'gap'), ('140 second', 300, 160, 'compute'), (300, 390, 90, 'cpu'), (115, 125, 10, 'launch'),
    (125, 380, 255, 'communication')]
EVENTS = [
    event('user_annotation', 'enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__', 0, 60),
    event('cuda_runtime', 'cudaMemcpyAsync', 70, 75, correlation=1), event('cuda_runtime', 'cudaEventRecord', 76, 78, correlation=2),
    event('cuda_runtime', 'cudaStreamWaitEvent', 80, 82, correlation=3),
    event('cuda_sync', 'Stream Wait Event', 80, 81, stream=20, correlation=3, wait_on_stream=7, wait_on_cuda_event_record_corr_id=2),
    event('cuda_driver', 'cuLaunchKernelEx', 84, 90, correlation=4), event('cuda_runtime', 'cudaDeviceSynchronize', 95, 400, correlation=5),
    event('gpu_memcpy', 'Memcpy HtoD (Pinned -> Device)', 85, 180, stream=7, correlation=1),
    event('kernel', 'after_the_copy', 182, 382, stream=20, correlation=4)]
EDGES_OF_EVENTS = [
    (0, 60, 60, 'loading'), (60, 70, 10, 'cpu'), (70, 75, 5, 'cpu'), (75, 76, 1, 'cpu'), (76, 78, 2, 'cpu'), (78, 80, 2, 'cpu'),
    (80, 82, 2, 'cpu'), (82, 84, 2, 'cpu'), (84, 90, 6, 'cpu'), (90, 95, 5, 'cpu'), (95, 400, 0, 'cpu'), (70, 85, 15, 'launch'),
    (85, 180, 95, 'copy'), (180, 182, 2, 'gap'), (182, 382, 200, 'compute'), (382, 400, 18, 'cpu')]
KINDS = {'cpu': 'cpu_bound', 'loading': 'data_loading', 'compute': 'gpu_compute_bound', 'communication': 'gpu_communication_bound',
         'copy': 'gpu_copy_bound', 'gap': 'gpu_kernel_kernel_overhead', 'launch': 'gpu_kernel_launch_overhead'}


@pytest.mark.parametrize('events,edges', [(THREADS, EDGES_OF_THREADS), (EVENTS, EDGES_OF_EVENTS)], ids=['threads', 'events'])
def test_made_traces_against_networkx(analyze, tmp_path, events, edges):
    """The graph that the help page describes, written down by hand; networkx finds its longest path."""
    networkx = pytest.importorskip('networkx')
    graph = networkx.DiGraph()
    for start, end, weight, kind in edges:
        graph.add_edge(start, end, weight=weight, kind=KINDS[kind])
    path = networkx.dag_longest_path(graph)
    expected = Counter()
    for pair in zip(path, path[1:]):
        expected[graph.edges[pair]['kind']] += graph.edges[pair]['weight']
    (tmp_path / 'trace.json').write_text(json.dumps({'traceEvents': events}))
    answer = analyze('critical-path', tmp_path / 'trace.json')
    assert {row['kind']: row['total_us'] for row in answer['rows']} == {kind: time for kind, time in expected.items() if time}
    assert answer['totals']['path_us'] == networkx.dag_longest_path_length(graph) == 400
    assert (answer['totals']['nodes'], answer['totals']['edges']) == (2 * sum(e['cat'] != 'cuda_sync' for e in events), len(edges))


def test_collectives_of_the_host(analyze, tmp_path):
    """Microsecond by microsecond: a collective of gloo is under way, and no operator without another inside is open."""
    for seed in range(40):
        random, events, leaves, at = Random(seed), [], [], 0
        for _ in range(random.randrange(2, 8)):
            start, at = at, at + random.randrange(1, 40)
            name = random.choice(['aten::mm', 'aten::mm', 'c10d::allreduce_', 'record_param_comms'])
            inside = at - start > 12 and random.random() < 0.5
            events.append(event('cpu_op', name, start, at))
            if inside:
                events.append(event('cpu_op', 'aten::inner', start + 3, start + 9))
            leaves += [(start + 3, start + 9)] if inside else [(start, at)] if name == 'aten::mm' else []
            last, at = at, at + random.randrange(30)
        for _ in range(random.randrange(3)):  # operators of another thread
            start = random.randrange(last)
            end = random.randint(start + 1, last)
            if not any(e['tid'] == 2 and e['ts'] < end and start < e['ts'] + e['dur'] for e in events):
                events.append(event('cpu_op', 'aten::add', start, end, tid=2))
                leaves.append((start, end))
        works = [(s, s + random.randrange(1, 60)) for s in random.sample(range(last), min(last, random.randrange(1, 5)))]
        events += [event('user_annotation', 'gloo:all_reduce', s, e, tid=3) for s, e in works]
        events += [event('user_annotation', 'nccl:all_reduce', 0, last, tid=4)]
        waiting = sum(any(s <= t < e for s, e in works) and not any(s <= t < e for s, e in leaves) for t in range(last))
        (tmp_path / 'trace.json').write_text(json.dumps({'traceEvents': events}))
        check_chain(analyze, tmp_path / 'trace.json')
        rows = {row['kind']: row['total_us'] for row in analyze('critical-path', tmp_path / 'trace.json')['rows']}
        expected = {'cpu_communication_bound': waiting, 'cpu_bound': last - waiting}
        assert rows == {kind: time for kind, time in expected.items() if time}, seed
    said = analyze('critical-path', tmp_path / 'trace.json', format=None).err
    assert 'no device work in 1 of 1 ranks' in said


def test_a_start_before_the_end_that_it_waited_for(analyze, tmp_path):
    """Lines between readings of a device's clock put a start 50 ns too early. What the work waited for is on the path all the same."""
    events = [*EVENTS[:-1], event('kernel', 'after_the_copy', 179.95, 382, stream=20, correlation=4)]
    (tmp_path / 'trace.json').write_text(json.dumps({'traceEvents': events}))
    rows = analyze('critical-path', '--nodes', tmp_path / 'trace.json')['rows']
    assert [row['name'] for row in rows if row['stream'] is not None] == [e['name'] for e in events[-2:] for _ in range(2)]


def test_filters(analyze, tmp_path):
    """A span begins with the first thing that a filter names and ends with the last one. The time between two steps that are
    chosen does not count."""
    steps = [event('user_annotation', f'ProfilerStep#{n}', 1000 * n, 1000 * n + 900) for n in range(3)]
    ops = [event('cpu_op', 'op', 1000 * n + 100 * k, 1000 * n + 100 * k + 50) for n in range(3) for k in range(5)]
    (tmp_path / 'trace.json').write_text(json.dumps({'traceEvents': steps + ops}))
    for options, span in (([], 2450), (['--step', '1'], 450), (['--stage', 'Profiler*'], 2450), (['--stage', 'Profiler*', '--step', '0'], 450),
                          (['--from', '0.001'], 1450), (['--to', '0.001'], 450)):
        totals = analyze('critical-path', *options, tmp_path / 'trace.json')['totals']
        assert totals['span_us'] == totals['path_us'] == span, options
    totals = analyze('critical-path', '--step', '0,2', tmp_path / 'trace.json')['totals']
    assert (totals['span_us'], totals['path_us'], totals['nodes']) == (2450, 2450 - 1100, 20)
    for options in (['--step', '7'], ['--stage', 'none']):
        analyze('critical-path', *options, tmp_path / 'trace.json', rc=1, format=None)
    (tmp_path / 'plain.json').write_text(json.dumps({'traceEvents': ops}))  # its only stage is `(run)`
    whole = analyze('critical-path', tmp_path / 'plain.json')
    assert whole['totals']['span_us'] == 2450
    for stage in ('(run)', '*'):
        assert analyze('critical-path', '--stage', stage, tmp_path / 'plain.json')['totals'] == whole['totals']
    for options in (['--device', '0'], ['--stream', '7'], ['--rules', 'hta']):
        analyze('critical-path', *options, tmp_path / 'trace.json', rc=2, format=None)


def test_ranks_are_added_up(analyze, tmp_path):
    for rank in range(2):
        document = {'distributedInfo': {'rank': rank}, 'traceEvents': [event('cpu_op', 'op', 0, 100 + rank)]}
        (tmp_path / f'{rank}.json').write_text(json.dumps(document))
    files = [tmp_path / '0.json', tmp_path / '1.json']
    assert analyze('critical-path', *files)['totals']['path_us'] == 201
    assert analyze('critical-path', '--rank', '1', *files)['totals']['path_us'] == 101
    assert [r['rank'] for r in analyze('critical-path', '--nodes', *files)['rows']] == [0, 0, 1, 1]
    assert 'one process' in analyze('critical-path', '--overlay', tmp_path / 'o.json', *files, rc=2, format=None).err
    assert not (tmp_path / 'o.json').exists()


# ---- the overlay ----

def read_json(path):
    with (gzip.open if str(path).endswith('.gz') else open)(path) as f:
        return json.load(f)


def added(events, original):
    """The arrows that an overlay adds, without their ids, and the indices of the events marked as critical."""
    arrows = [e for e in events if e.get('name') == 'critical_path']
    ends = {}
    for e in arrows:
        ends.setdefault(e['id'], {})[e['ph']] = e
    pairs = Counter()
    for pair in ends.values():
        assert set(pair) == {'s', 'f'} and pair['f']['bp'] == 'e'
        pairs[tuple((e['pid'], e['tid'], e['ts'], e['cat'], e['args']['weight'], e['args']['critical']) for e in (pair['s'], pair['f']))] += 1
    assert len(events) - len(arrows) == original
    return pairs, [i for i, e in enumerate(events) if isinstance(e.get('args'), dict) and e['args'].get('critical') == 1 and e['ph'] == 'X']


DRAWN = ('critical_path_kernel_launch_delay', 'critical_path_sync_dependency', 'critical_path_dependency')


@pytest.mark.parametrize('options', [[], ['--stage', '*measure|forward*']])
def test_overlay_of_a_pytorch_trace(analyze, shared_traces, tmp_path, options):
    """The trace, with marks on the events of the path, and the arrows in HTA's form: to an end on a device 1 us early."""
    rows = analyze('critical-path', '--nodes', *options, SIMPLE_ADD)['rows']
    analyze('critical-path', *options, '--overlay', tmp_path / 'o.json.gz', SIMPLE_ADD)
    trace, ours = read_json(SIMPLE_ADD), read_json(tmp_path / 'o.json.gz')
    events, expected = trace['traceEvents'], Counter()

    def end(row):
        e = events[row['event']]
        at = e['ts'] + (row['node'] == 'end') * (e['dur'] - ('stream' in e['args'] and min(1, e['dur'])))
        return e['pid'], e['tid'], at

    for before, row in zip(rows, rows[1:]):
        if row['edge'] in DRAWN:
            expected[tuple((*end(node), row['edge'], row['weight_us'], True) for node in (before, row))] += 1
    pairs, critical = added(ours['traceEvents'], len(events))
    assert pairs == expected and (options or len(expected) > 3)
    assert critical == sorted({row['event'] for row in rows})
    for before, after in zip(events, ours['traceEvents']):
        after.get('args', {}).pop('critical', None)
        assert before == after
    assert {k: v for k, v in ours.items() if k not in ('traceEvents', 'tfinject')} == {k: v for k, v in trace.items() if k != 'traceEvents'}


def test_an_overlay_is_whole_or_absent(analyze, tmp_path):
    (tmp_path / 'trace.json').write_text(json.dumps({'traceEvents': THREADS}))
    analyze('critical-path', '--overlay', tmp_path / 'absent/o.json', tmp_path / 'trace.json', rc=1, format=None)
    analyze('critical-path', '--step', '9', '--overlay', tmp_path / 'o.json', tmp_path / 'trace.json', rc=1, format=None)
    assert {p.name for p in tmp_path.iterdir()} == {'trace.json'}


# ---- traces of ours ----

GPU = BUILD / 'simgpu'


@pytest.fixture
def record(run, tmp_path):
    """record(steps, script) -> the trace of tests/victims_gpu/events.c on the simulated GPU, and the log of its device."""
    libraries = scripted.libraries(tmp_path / 'cuda', 'libcuda.so.1', *(p.name for p in [*GPU.glob('libcudart.so.1?'), *GPU.glob('libcupti.so.1?')]))

    def record(steps, script):
        (tmp_path / 'script').write_text(script)
        env = {'LD_LIBRARY_PATH': libraries, 'SIMGPU_LOG': tmp_path / 'log', 'SIMGPU_SCRIPT': tmp_path / 'script', 'SIMGPU_REAL': '1'}
        result = run([built(BUILD / 'victims_gpu/events'), *steps.split()], env)
        assert result.rc == 0, (result.out, result.err)
        [trace] = result.dir.rglob('*.tfr')
        return trace, simlog.read(tmp_path / 'log')
    return record


def kinds_of(analyze, trace):
    answer = analyze('critical-path', trace)
    assert answer['totals']['path_us'] == pytest.approx(sum(row['total_us'] for row in answer['rows']))
    return Counter({row['kind']: row['total_us'] for row in answer['rows']}), answer['totals']


def test_a_run_bound_by_the_host(analyze, record):
    trace, truth = record('kernel sleep=30 kernel sleep=30 kernel sync', 'alpha 10us\n')
    kinds, totals = kinds_of(analyze, trace)
    assert kinds['cpu_bound'] > 60_000 and kinds['cpu_bound'] / totals['path_us'] > 0.9
    assert kinds['gpu_compute_bound'] <= sum(w.duration for w in truth.works) / 1000


def test_a_run_bound_by_kernels(analyze, record):
    """All five kernels are on the path, with the times of the device."""
    trace, truth = record('kernel=5 sync', '* 40ms\n')
    kinds, totals = kinds_of(analyze, trace)
    assert kinds['gpu_compute_bound'] == sum(w.duration for w in truth.works) / 1000 == 200_000
    names = [row['name'] for row in analyze('critical-path', '--nodes', trace)['rows'] if row['stream'] is not None]
    assert names == [w.name for w in truth.works for _ in range(2)]


def test_a_run_bound_by_launches(analyze, record):
    """Each kernel begins 40 ms after its call and is waited for at once."""
    trace, truth = record('kernel sync kernel sync kernel sync', 'latency 40ms\n* 1us\n')
    kinds, totals = kinds_of(analyze, trace)
    assert kinds['gpu_kernel_launch_overhead'] == pytest.approx(120_000, abs=1000)
    assert kinds['gpu_compute_bound'] == sum(w.duration for w in truth.works) / 1000 == 3


def test_a_run_bound_by_copies(analyze, record):
    trace, truth = record('copy=64 copy=64 copy=64 kernel sync', 'memcpy_htod 1us*bytes\n* 1us\n')
    kinds, totals = kinds_of(analyze, trace)
    copies = [w for w in truth.works if w.t == 'memcpy']
    assert kinds['gpu_copy_bound'] == sum(w.duration for w in copies) / 1000 == 3 * 65_536


def test_two_streams_with_an_event(analyze, record, tmp_path):
    """The second stream waits for the first one: both are on the path. Without the wait only one of them is."""
    trace, truth = record('kernel=2 wait other sync', '* 50ms\n')
    kinds, totals = kinds_of(analyze, trace)
    assert kinds['gpu_compute_bound'] == 150_000
    rows = [row for row in analyze('critical-path', '--nodes', trace)['rows'] if row['stream'] is not None]
    streams = [w.stream for w in truth.works]
    assert [row['stream'] for row in rows] == [s for s in streams for _ in range(2)] and len(set(streams)) == 2
    assert [row['edge'] for row in rows if row['node'] == 'start'][-1] == 'critical_path_sync_dependency'
    trace.unlink()
    (tmp_path / 'log').unlink()
    trace, truth = record('kernel=2 other sync', '* 50ms\n')
    assert kinds_of(analyze, trace)[0]['gpu_compute_bound'] == 100_000


def test_overlay_of_a_trace_of_ours(analyze, record, tmp_path):
    """The export, with marks on the events of the path, and its arrows."""
    trace, truth = record('push=1 kernel=2 wait other pop sync', '* 50ms\n')
    analyze('critical-path', '--overlay', tmp_path / 'o.json', trace)
    export = json.loads(analyze('export', 'chrome', trace, format=None).out)
    ours = read_json(tmp_path / 'o.json')
    pairs, critical = added(ours['traceEvents'], len(export['traceEvents']))
    assert ours['baseTimeNanoseconds'] == export['baseTimeNanoseconds']
    assert sum(ours['traceEvents'][i]['cat'] == 'kernel' for i in critical) == 3
    assert {pair[0][3] for pair in pairs} == {'critical_path_kernel_launch_delay', 'critical_path_sync_dependency'}
    ends = {(e['pid'], e['tid'], e['ts']) for e in ours['traceEvents'] if e['ph'] == 'X' and e.get('cat') == 'kernel'}
    assert any((f[0], f[1], f[2]) in ends for _, f in pairs)
