"""test_gpu_pipeline - a C pipeline under the library on the simulated GPU: every answer equals the device model's log.

tests/victims_gpu/pipeline_stages.c runs on two devices with two threads, streams, copies and a graph. tests/simlog.py
reads the log. Names, streams, counts and durations are equal to the nanosecond, times up to the clocks' error.
"""

import json
import shlex
from collections import Counter, defaultdict
from itertools import accumulate

import pytest

import pftrace
import simlog
from conftest import BUILD, built, without_start
from test_export_kineto import ask_loaders, in_hta, in_tensorboard

SCRIPT = ('latency 2us\n*encode* 30us + 100ns*blocks\ndenoise_step 20us + 50ns*blocks\nnccl* 45us\n'
          'memcpy_* 5us + 0.1ns*bytes\n')
CLOCK = 5  # us
DEMANGLED = {'_Z11text_encodePfi': 'text_encode(float*, int)'}


class Run:
    def __init__(self, truth, directory):
        self.truth, self.directory = truth, directory

    def works(self, *categories):
        return [w for w in self.truth.works if w.category in categories]


@pytest.fixture(params=['tfi', 'nvtx'])
def pipeline(request, run, tmp_path):
    return play(run, tmp_path, request.param)


def play(run, tmp_path, marks, **env):
    (tmp_path / 'script').write_text(SCRIPT)
    result = run([built(BUILD / 'victims_gpu' / 'pipeline_stages'), marks], {
        'LD_LIBRARY_PATH': BUILD / 'simgpu', 'SIMGPU_LOG': tmp_path / 'log',
        'SIMGPU_SCRIPT': tmp_path / 'script', **env})
    assert result.rc == 0 and '"ok"' in result.out, (result.out, result.err)
    truth = simlog.read(tmp_path / 'log', result.out)
    for w in truth.works:
        w.name = DEMANGLED.get(w.name, w.name)
    assert len(truth.works) > 30 and len(truth.devices) == 2 and {w.device for w in truth.works} == {0, 1}
    return Run(truth, result.dir)


def us(ns):
    return ns / 1000


def near(value):
    return pytest.approx(value, abs=CLOCK)


def innermost(work):
    return work.stages[-1] if work.stages else '(none)'


def exported(run, analyze):
    return json.loads(analyze('export', 'chrome', run.directory, format=None).out)


# ---- single kernels, copies and sets ----

def test_every_kernel_copy_and_set(pipeline, analyze):
    document = exported(pipeline, analyze)
    found = {}
    for e in document['traceEvents']:
        if e.get('cat') in ('kernel', 'gpu_memcpy', 'gpu_memset'):
            a = e['args']
            found[a['correlation'], a.get('graph node id', 0)] = e
    assert len(found) == len(pipeline.truth.works)
    for w in pipeline.truth.works:
        e = found[w.correlation, w.node if w.graph else 0]
        a = e['args']
        assert (e['cat'], e['name'], e['pid'], e['tid'], a['device'], a['stream'], a['context']) == \
            (w.category, w.name, w.device, w.stream, w.device, w.stream, w.context)
        assert round(e['dur'] * 1000) == w.duration
        assert e['ts'] + us(document['baseTimeNanoseconds']) == near(us(w.real))
        if w.t == 'kernel':
            assert (a['grid'], a['block'], a['registers per thread'], a['shared memory']) == \
                (w.grid, w.block, w.registers, sum(w.shared))
        else:
            assert a['bytes'] == w.bytes


def test_each_work_has_an_arrow_from_its_call(pipeline, analyze):
    found = exported(pipeline, analyze)['traceEvents']
    calls = {(e['pid'], e['tid'], e['ts']): e for e in found
             if e.get('cat') == 'cuda_driver' and 'correlation' in e['args']}
    works = {(e['pid'], e['tid'], e['ts']): e for e in found if e.get('cat') in ('kernel', 'gpu_memcpy', 'gpu_memset')}
    tails = {e['id']: (e['pid'], e['tid'], e['ts']) for e in found if e['ph'] == 's'}
    linked = Counter()
    for e in found:
        work = works.get((e['pid'], e['tid'], e['ts'])) if e['ph'] == 'f' else None
        if work:
            call = calls[tails[e['id']]]
            known = pipeline.truth.calls[work['args']['correlation']]
            assert (call['args']['correlation'], call['tid'], call['name'].removesuffix('_v2')) == \
                (known.correlation, known.tid, known.symbol.removesuffix('_v2'))
            linked[work['args']['correlation']] += 1
    assert linked == Counter(w.correlation for w in pipeline.truth.works)


def test_pftrace(pipeline, analyze, tmp_path):
    """The same in Perfetto's format: each work on its stream, a flow from its call, and the depth of each launch queue."""
    analyze('export', 'pftrace', pipeline.directory, '--output', tmp_path / 'out', format=None)
    found = pftrace.read(tmp_path / 'out')
    works = {(s.args['correlation'], s.args.get('graph node id', 0)): s for s in found.slices if s.category in simlog.CATEGORIES.values()}
    callers = {id(b): a for a, b in found.flows if b.category != 'cuda_sync'}
    assert len(works) == len(pipeline.truth.works) == len(callers)
    changes = defaultdict(list)
    for w in pipeline.truth.works:
        s = works[w.correlation, w.node if w.graph else 0]
        call, known = callers[id(s)], pipeline.truth.calls[w.correlation]
        _, device, row = pftrace.row(found, s.track)
        assert (s.category, s.name, s.end - s.start, s.args['stream']) == (w.category, w.name, w.duration, w.stream)
        assert device.startswith(f'GPU {w.device}: ') and device.endswith(', simulated') and row.split(',')[0] == f'stream {w.stream}'
        assert us(s.start) == near(us(w.real))
        assert (call.args['correlation'], call.track.thread.tid, call.name.removesuffix('_v2')) == \
            (known.correlation, known.tid, known.symbol.removesuffix('_v2'))
        changes[w.device, w.stream] += [(call.start, 1), (s.start, -1)]
    for (device, stream), steps in changes.items():
        depths = {time: sum(change for at, change in steps if at <= time) for time, _ in steps}
        assert found.counters[f'launch queue, GPU {device}, stream {stream}'] == sorted(depths.items())
    stages = Counter(s.name for s in found.slices if s.category == 'user_annotation')
    assert stages == Counter(s.stage for s in pipeline.truth.stages)


# ---- streams ----

def streams(pipeline, analyze):
    """{(device, stream): (entry, launch, start, end) of its works by start}, all on the host's clock.

    A launch begins in the library's wrapper, the entry of the trace, and only then in the driver, on a busy machine much later."""
    document = exported(pipeline, analyze)
    entries = {e['args']['correlation']: round(1000 * e['ts']) + document['baseTimeNanoseconds'] for e in document['traceEvents']
               if e.get('cat') == 'cuda_driver' and 'correlation' in e['args']}
    found = defaultdict(list)
    for w in sorted(pipeline.truth.works, key=lambda w: w.start):
        device = pipeline.truth.devices[w.device]
        begin, shift = device['monotonic'], device['realtime'] - device['monotonic']
        found[w.device, w.stream].append((min(entries[w.correlation] - shift, w.call.start), w.call.start, begin + w.start, begin + w.end))
    return found


def test_idle(pipeline, analyze):
    """The idle time of each stream is that of the device model, and only a launch after the gap's start is the host's."""
    rows = {(r['device'], r['stream']): r for r in analyze('idle', pipeline.directory)['rows']}
    found = streams(pipeline, analyze)
    assert set(rows) == set(found)
    for key, works in found.items():
        idle, late, unsure, until = 0, 0, 0, works[0][3]
        for entry, launch, start, end in works[1:]:
            gap = max(start - until, 0)
            idle += gap
            late += gap if launch > until else 0
            unsure += gap if entry - 1000 * CLOCK < until < launch + 1000 * CLOCK else 0
            until = max(until, end)
        row, error = rows[key], CLOCK * len(works)
        assert row['works'] == len(works)
        assert sum(row[f'{c}_us'] for c in ('host_wait', 'kernel_wait', 'other')) == pytest.approx(us(idle), abs=error)
        assert row['host_wait_us'] == pytest.approx(us(late), abs=error + us(unsure))


def test_queue(pipeline, analyze):
    """Each work is in its queue from its launch on; the clocks' error may swap two changes that are close. So may the time
    between a launch's entry and its beginning in the driver."""
    rows = {(r['device'], r['stream']): r for r in analyze('queue', pipeline.directory)['rows']}
    found = streams(pipeline, analyze)
    assert set(rows) == set(found)
    for key, works in found.items():
        points = sorted([(launch, 1) for _, launch, _, _ in works] + [(start, -1) for _, _, start, _ in works])
        close = sum(b - a < 1000 * CLOCK for (a, _), (b, _) in zip(points, points[1:]))
        close += sum(entry - 1000 * CLOCK < at < launch for entry, launch, _, _ in works for at, _ in points)
        row = rows[key]
        assert (row['count'], row['min'], row['blocked_us']) == (2 * len(works), 0, 0)
        assert abs(row['max'] - max(accumulate(by for _, by in points))) <= close


def test_bandwidth(pipeline, analyze):
    expected = defaultdict(list)
    for w in pipeline.works('gpu_memcpy', 'gpu_memset'):
        expected[w.name.split(' (')[0]].append((w.bytes, w.duration))
    rows = {r['kind']: r for r in analyze('bandwidth', pipeline.directory)['rows']}
    assert len(rows) > 1 and set(rows) == set(expected)
    for kind, copies in expected.items():
        size, time = (sum(column) for column in zip(*copies))
        row = rows[kind]
        assert (row['count'], row['bytes'], row['total_us']) == (len(copies), size, us(time))
        assert (row['mean_gbs'], row['max_gbs']) == pytest.approx((size / time, max(b / t for b, t in copies)))


@pytest.mark.parametrize('name', ['e', 'text_encode', 'denoise'])
def test_patterns(pipeline, analyze, name):
    """The sequences of the outermost stages with `name` in theirs, by the launches on the stage's own thread."""
    outer = []
    for s in sorted(pipeline.truth.stages, key=lambda s: s.begin):
        if name in s.stage and not any(o.tid == s.tid and s.begin < o.end for o in outer):
            outer.append(s)
    expected = defaultdict(lambda: [0, 0])
    for s in outer:
        works = sorted((w for w in pipeline.truth.works if w.call.tid == s.tid and s.begin <= w.call.start < s.end),
                       key=lambda w: (w.call.start, w.start))
        if works:
            row = expected[(s.stage, *(w.name for w in works))]
            row[0] += 1
            row[1] += sum(w.duration for w in works)
    assert expected
    rows = analyze('patterns', '--operator', name, pipeline.directory)['rows']
    assert {tuple(r['pattern']): [r['count'], r['gpu_us']] for r in rows} == {k: [n, us(time)] for k, (n, time) in expected.items()}
    analyze('patterns', '--rules', 'hta', '--operator', name, pipeline.directory, rc=any, format=None)


# ---- launches by stage ----

def test_annotations(pipeline, analyze):
    expected = defaultdict(lambda: [0, 0, 0, 0])
    for w in pipeline.truth.works:
        row, first = expected[tuple(w.stages)], 0 if w.category == 'kernel' else 2
        row[first] += 1
        row[first + 1] += w.duration
    answer = analyze('annotations', pipeline.directory)
    assert len(expected) > 4 and max(map(len, expected)) > 1
    assert {tuple(r['stack']): [r['kernels'], r['total_us'], r['copies'], r['copies_us']] for r in answer['rows']} == {
        stack: [kernels, us(time), copies, us(copying)] for stack, (kernels, time, copies, copying) in expected.items()}


def test_breakdown(pipeline, analyze):
    expected = defaultdict(list)
    for w in pipeline.works('kernel'):
        expected[innermost(w), w.name].append(w.duration)
    assert {'text_encode', 'denoise', 'step', 'upscale', 'vae_decode', '(none)'} == {stage for stage, _ in expected}
    answer = analyze('breakdown', pipeline.directory)
    assert {(r['stage'], r['name']): (r['calls'], r['total_us'], r['min_us'], r['max_us']) for r in answer['rows']} == {
        key: (len(d), us(sum(d)), us(min(d)), us(max(d))) for key, d in expected.items()}
    totals = answer['totals']
    kernels = pipeline.works('kernel')
    assert (totals['total_kernel_time_us'], totals['launches'], totals['num_kernels']) == \
        (us(sum(w.duration for w in kernels)), len(kernels), len({w.name for w in kernels}))
    assert (totals['via_only'], totals['via_none'], totals['without_launch']) == (3, 1, 0)
    mangled = {r['name'] for r in analyze('breakdown', pipeline.directory, '--names', 'mangled')['rows']}
    assert '_Z11text_encodePfi' in mangled and not any('(' in name for name in mangled)


def test_ncu_plan(pipeline, analyze):
    """The launches that ncu would count with each printed filter, skip and count, by the log, are of the row's stage and kernel."""
    rows = json.loads(analyze('ncu', 'plan', pipeline.directory, '--top', '99', '--format', 'json', format=None).out)['rows']
    launched = sorted(pipeline.works('kernel'), key=lambda w: (w.call.start, w.start))
    assert {(r['stage'], r['kernel']) for r in rows} == {(innermost(w), w.name) for w in launched if 'nccl' not in w.name}
    mangled = {name: symbol for symbol, name in DEMANGLED.items()}
    for row in rows:
        words = shlex.split(row['command'])
        value = dict(zip(words, words[1:]))
        name = value['--kernel-name']
        assert value['--kernel-name-base'] == ('mangled' if name.startswith('_Z') else 'function')
        counted = [w for w in launched if mangled.get(w.name, w.name) == name]
        skip, count = int(value['--launch-skip']), int(value['--launch-count'])
        measured = counted[skip:skip + count]
        assert len(measured) == count and {(innermost(w), w.name) for w in measured} == {(row['stage'], row['kernel'])} and row['doubt'] is None


def test_stages(pipeline, analyze):
    total, spans, devices = Counter(), defaultdict(list), defaultdict(list)
    for w in pipeline.truth.works:
        for stage in w.stages or ['(none)']:
            total[stage] += w.duration
            devices[stage, w.device].append((w.real, w.real + w.duration))
    for s in pipeline.truth.stages:
        spans[s.stage].append(s)
    rows = {r['stage']: r for r in analyze('stages', pipeline.directory)['rows']}
    assert set(rows) == set(total)
    for stage, row in rows.items():
        assert row['device_us'] == us(total[stage])
        mine = [d for (name, _), d in devices.items() if name == stage]
        assert row['device_busy_us'] == near(us(sum(map(simlog.union, mine))))
        if stage != '(none)':
            assert row['calls'] == len(spans[stage])
            assert 0 < row['host_us'] <= us(sum(s.end - s.begin for s in spans[stage]))


def device_sums(directory):
    """{stage: device_sum_ms} of the timing.json that the library wrote, and its whole content."""
    path, = directory.glob('rank*.timing.json')
    said = json.loads(path.read_text())
    return {name: s['device_sum_ms'] for name, s in said['stages'].items()}, said


def test_device_sums(pipeline, analyze):
    """The sums that the library made while it ran equal those of its trace."""
    rows = {r['stage']: r['device_us'] / 1000 for r in analyze('stages', pipeline.directory)['rows']}
    found, said = device_sums(pipeline.directory)
    assert rows.pop('(none)') and found == pytest.approx(rows, abs=1e-9) and 'device_records_left_out' not in said
    assert found['step'] > 0 < found['upscale']


@pytest.mark.parametrize('waits', ['1', None])
def test_calls_that_waited(run, tmp_path, waits):
    """The times of a stage are those of the host. The file says in how many calls the work was done by then."""
    play(run, tmp_path, 'tfi', TFI_OUTPUT_DIR=tmp_path / 'run', TFI_SYNC_STAGES=waits)
    stages = device_sums(tmp_path / 'run')[1]['stages']
    assert len(stages) > 3 and {n: s['waited_calls'] for n, s in stages.items()} == {n: s['calls'] if waits else 0 for n, s in stages.items()}


@pytest.mark.parametrize('activities', ['cpu,gpu', 'gpu'])
def test_device_sums_at_edges(run, tmp_path, analyze, activities):
    """Launches just before and after a stage's edge count on the right side, from threads with and without stages.

    The trace has the times for that; the library's own sums have none."""
    (tmp_path / 'script').write_text('k 10us\n')
    result = run([built(BUILD / 'victims_gpu' / 'stage_edges')], {
        'LD_LIBRARY_PATH': BUILD / 'simgpu', 'SIMGPU_SCRIPT': tmp_path / 'script', 'TFI_ACTIVITIES': activities,
        'TFI_FLUSH_MS': '5'})
    assert result.rc == 0, (result.out, result.err)
    launched = json.loads(result.out)
    assert launched['outer'] == 2700
    found, said = device_sums(result.dir)
    assert found == {stage: pytest.approx(count / 100) for stage, count in launched.items()}
    assert 'device_records_left_out' not in said
    rows = {r['stage']: r['device_us'] / 10 for r in analyze('stages', result.dir)['rows'] if r['stage'] != '(none)'}
    if 'cpu' in activities:
        assert rows == pytest.approx(launched)


def test_timeline(pipeline, analyze):
    def time(kind):
        return [(w.real, w.real + w.duration) for w in pipeline.truth.works if kind(w)]
    row, = analyze('timeline', pipeline.directory)['rows']
    every = time(lambda w: True)
    communication = time(lambda w: w.name.startswith('nccl'))
    assert row['total_us'] == near(us(max(end for _, end in every) - min(start for start, _ in every)))
    assert row['busy_us'] == near(us(simlog.union(every)))
    assert row['communication_us'] == near(us(simlog.union(communication))) and communication
    assert row['computation_us'] == near(us(simlog.union(
        time(lambda w: w.category == 'kernel' and not w.name.startswith('nccl')))))
    assert row['memcpy_us'] == near(us(simlog.union(time(lambda w: w.category != 'kernel'))))


# ---- calls ----

def counted(truth, *words):
    return Counter(c.symbol.removesuffix('_v2') for c in truth.calls.values() if any(w in c.symbol for w in words))


def test_api_counts_each_call_once(pipeline, analyze):
    rows = analyze('api', pipeline.directory)['rows']
    found = {r['name'].removesuffix('_v2'): (r['calls'], r['errors']) for r in rows}
    expected = counted(pipeline.truth, '')
    wanted = counted(pipeline.truth, 'Launch', 'Memcpy', 'Memset', 'Synchronize')
    assert wanted['cuLaunchKernel'] == 16 and set(wanted) <= set(found)
    assert found == {name: (expected[name], 0) for name in found}


def test_launches(pipeline, analyze):
    answer = analyze('launches', pipeline.directory)
    stages = {c.correlation: simlog.stages_of(pipeline.truth.stages, c) for c in pipeline.truth.calls.values()}
    device = Counter()
    for w in pipeline.truth.works:
        device[innermost(w), w.call.symbol.removesuffix('_v2')] += w.duration
    expected = Counter((stages[c.correlation][-1] if stages[c.correlation] else '(none)', c.symbol.removesuffix('_v2'))
                       for c in pipeline.truth.calls.values()
                       if any(w in c.symbol for w in ('Launch', 'Memcpy', 'Memset', 'Synchronize')))
    kinds = {'cuLaunchKernel': 'launches', 'cuGraphLaunch': 'graph_launches', 'cuMemcpyHtoDAsync': 'copies',
             'cuMemcpyDtoHAsync': 'copies', 'cuMemcpyDtoDAsync': 'copies', 'cuMemsetD8Async': 'memsets',
             'cuMemsetD32Async': 'memsets', 'cuCtxSynchronize': 'syncs', 'cuStreamSynchronize': 'syncs'}
    assert len(answer['rows']) == len(expected) > 10
    for r in answer['rows']:
        key = r['stage'], r['name'].removesuffix('_v2')
        counts = {k: r[k] for k in set(kinds.values()) if r[k]}
        assert counts == {kinds[key[1]]: expected[key]} and r['gpu_us'] == us(device[key])


# ---- other tools ----

def test_other_tools_read_it(run, tmp_path, analyze, python):
    """HTA and the TensorBoard plugin load the export, and every question has the answer of the .tfr."""
    it = play(run, tmp_path, 'tfi')
    analyze('export', 'chrome', it.directory, '--output', tmp_path / 'x.json', format=None)
    there = json.loads((tmp_path / 'x.json').read_text())['traceEvents']
    found = ask_loaders(python, {'hta': [tmp_path / 'x.json'], 'tensorboard': [tmp_path / 'x.json']})
    assert found == {'hta': [in_hta(there)], 'tensorboard': [in_tensorboard(there)]} and in_hta(there) > 60
    for command in ('stages', 'breakdown', 'timeline', 'launches', 'api'):
        ours, theirs = (analyze(command, path)['rows'] for path in (it.directory, tmp_path / 'x.json'))
        ours = without_start(ours) if command == 'stages' else ours
        for row in ours + theirs:
            for key in {'stages': ('pct', 'cpu_us'), 'api': ('errors',)}.get(command, ()):
                row.pop(key)
        assert ours == theirs, command


def test_simulated_devices_are_labelled(run, tmp_path, analyze):
    it = play(run, tmp_path, 'tfi')
    devices = analyze('info', it.directory)['rows'][0]['devices']
    assert [(d['device'], d['simulated']) for d in sorted(devices, key=lambda d: d['device'])] == [(0, True), (1, True)]
    assert len({d['uuid'] for d in devices}) == 2
    screen = analyze('report', it.directory, '--output', tmp_path / 'out', format=None).out
    assert 'devices: simulated: Simulated GPU' in screen
    for command in ('stages', 'breakdown', 'timeline', 'api', 'ops'):
        assert analyze(command, it.directory)['inputs'][0]['simulated'] is True
        line = analyze(command, it.directory, format='text').err
        assert 'the devices of 1 of 1 processes are simulated: their times are not those of a GPU' in line, command


def test_graphs_as_one_piece_of_work(run, tmp_path, analyze):
    """TFI_GRAPHS=graph makes one record of a graph launch; it belongs to its step and lasts as long as its nodes."""
    it = play(run, tmp_path, 'tfi', TFI_GRAPHS='graph')
    nodes = defaultdict(list)
    for w in it.truth.works:
        if w.graph:
            nodes[w.correlation].append(w)
    rows = [r for r in analyze('breakdown', it.directory)['rows'] if r['name'].startswith('graph ')]
    assert [(r['stage'], r['calls']) for r in rows] == [('step', len(nodes))] and len(nodes) == 4
    spans = [max(w.end for w in n) - min(w.start for w in n) for n in nodes.values()]
    assert rows[0]['total_us'] == near(us(sum(spans)))
