"""test_steps - `tfanalyze steps`, and the tables of operators and kernels, against the TensorBoard plugin itself.

torch_tb_profiler reads both runs that the plugin has as its samples, and every row must be equal. Newer traces have
categories that the plugin does not know: it reads them under the old names. A second oracle here cuts time at every
edge of an event and looks which parts run in each piece; it reads traces with communication too.
"""

import gzip
import json
import logging
from collections import defaultdict

import pytest

import kineto
from optrace import OpTrace
from test_device_records import US

PARTS = ('kernel_us', 'memcpy_us', 'memset_us', 'communication_us', 'runtime_us', 'dataloader_us', 'cpu_exec_us', 'other_us')
RUNS = sorted(['kineto_tb/resnet50_num_workers_0__worker0.1623143089861.pt.trace.json.gz',
               'kineto_tb/resnet50_num_workers_0__worker0.1623143566756.pt.trace.json.gz'])
WITHOUT_COMMUNICATION = ['tracelens/h100/Falconsai_nsfw_image_detection__1016002.json.gz',
                         'tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz',
                         'tracelens/h100/facebook_timesformer-base-finetuned-k400__1016002.json.gz',
                         'tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz',
                         'hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz',
                         'hta/cupti_profiler/benchmark_result_924719_1679055439_trace.json.gz',
                         'hta/triton_example/triton_example.json.gz',
                         'hta/call_stack/backward_thread.json']
OTHERS = ['hta/df_index_resolver/df_index_resolver.json.gz', 'hta/nccl_parser_config/nccl_data.json.gz',
          'hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz',
          'hta/trace_filter/sampled_rank-0.json.gz', 'hta/trace_filter/sampled_rank-1.json.gz',
          'hta/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz', 'hta/rank_non_gpu/rank_non_gpu.json.gz']


# ---- the plugin ----

OLD = {'cuda_runtime': 'runtime', 'cuda_driver': 'runtime', 'hip_runtime': 'runtime'}


def plugin(path):
    """The plugin's data of a trace, which it gets in its own words: calls are `runtime`, only the host has annotations."""
    from torch_tb_profiler.profiler.data import RunProfileData
    logging.disable(logging.CRITICAL)
    try:
        trace = json.loads((gzip.open if path.name.endswith('.gz') else open)(path, 'rb').read())
        kept = [e for e in trace['traceEvents']
                if e.get('cat') not in ('gpu_user_annotation', 'python_function', 'fwdbwd') and 'name' in e]
        trace['traceEvents'] = [{**e, 'cat': OLD.get(e.get('cat'), e.get('cat', 'none'))} for e in kept]
        return RunProfileData.from_json('worker', 'span', trace)
    finally:
        logging.disable(logging.NOTSET)


def near(share):
    """A share in percent, of four decimals; the plugin adds times as doubles."""
    return None if share is None else pytest.approx(share, abs=2e-4)


def tensor_share(data, start, end):
    """The share of tensor cores in the time of the kernels between two times (us), by the plugin's names."""
    from torch_tb_profiler.profiler.tensor_core import TC_Allowlist
    times = [(max(0, min(k.ts + k.duration, end) - max(k.ts, start)), k.name in TC_Allowlist)
             for k in data.events if k.type == 'Kernel']
    return 100 * sum(t for t, tensor in times if tensor) / sum(t for t, _ in times)


def check_shares(totals, data, document):
    keys = ('gpu_utilization_pct', 'sm_efficiency_pct', 'occupancy_pct', 'tensor_core_plugin_pct')
    metrics, rows = data.gpu_metrics_parser, extended(kineto.tables(document))
    if not metrics.gpu_ids:
        assert [totals[k] for k in keys] == [None] * 4 and totals['devices'] == []
        return
    device, = metrics.gpu_ids
    efficiency = metrics.avg_approximated_sm_efficiency_per_device[device]
    assert [totals[k] for k in keys] == [
        near(100 * metrics.gpu_utilization[device]), near(None if efficiency is None else 100 * efficiency),
        near(metrics.avg_occupancy_per_device[device]), near(tensor_share(data, rows[0][1] / 1000, rows[-1][2] / 1000))]
    assert [{k: d[k] for k in ('device', *keys)} for d in totals['devices']] == [{'device': device, **{k: totals[k] for k in keys}}]


def check_rows(rows, data, close=0):
    assert [str(r['step']) for r in rows] == data.steps_names
    for row, costs in zip(rows, data.steps_costs):
        found = [row[part] or 0 for part in PARTS] + [row['total_us']]
        assert found == [pytest.approx(c, abs=close, rel=0) for c in costs.costs], row


PLUGIN = [pytest.mark.slow, pytest.mark.xdist_group('plugin'), pytest.mark.filterwarnings('ignore::FutureWarning')]


@pytest.fixture(scope='module')
def run_of(shared_traces_module):
    known = {}

    def run(name):
        known[name] = known.get(name) or plugin(shared_traces_module / name)
        return known[name]
    return run


@pytest.fixture(scope='module')
def shared_traces_module():
    from conftest import TRACES
    if not TRACES.is_dir():
        pytest.skip('no ../shared/traces beside the repository')
    return TRACES


@pytest.mark.parametrize('name', [pytest.param(name, marks=PLUGIN) for name in RUNS])
def test_both_runs(analyze, shared_traces, run_of, name):
    data = run_of(name)
    answer = analyze('steps', shared_traces / name)
    check_rows(answer['rows'], data)
    check_shares(answer['totals'], data, kineto.read(shared_traces / name))
    assert answer['totals']['tensor_core_plugin_pct'] == near(100 * data.tc_used_ratio)
    assert len(answer['rows']) == 6 and answer['totals']['steps'] == 6


def test_known_values(analyze, shared_traces):
    """The numbers on the plugin's screen for its first sample."""
    answer = analyze('steps', shared_traces / RUNS[0])
    parts = [p for p in PARTS if p != 'communication_us']
    assert [[r[p] for p in parts] for r in answer['rows']] == [
        [98598, 1941, 90, 2796, 69317, 14091, 1115], [98570, 1947, 89, 2762, 57669, 12968, 1148],
        [98596, 1931, 91, 2877, 61257, 13768, 1213], [98623, 1938, 89, 2841, 56453, 13420, 1200],
        [98504, 1937, 87, 2788, 62690, 15025, 1141], [98641, 1798, 88, 3381, 48185, 12773, 1117]]
    assert [round(answer['totals'][k], 2) for k in ('gpu_utilization_pct', 'sm_efficiency_pct', 'occupancy_pct')] == [
        55.51, 54.68, 49.13]


@pytest.mark.parametrize('name', [pytest.param(name, marks=PLUGIN) for name in RUNS])
def test_operators_of_both_runs(analyze, shared_traces, run_of, name):
    """The plugin's table of operators has no calls and no kernels, which are rows of torch's."""
    rows = {r['name']: r for r in analyze('ops', '--row-limit', '-1', shared_traces / name)['rows']}
    theirs = run_of(name).op_list_groupby_name
    assert len(theirs) == 76
    for operator in theirs:
        row = rows[operator.name]
        assert (row['calls'], row['cpu_total_us'], row['self_cpu_us'], row['device_total_us'], row['self_device_us']) == (
            operator.calls, operator.host_duration, operator.self_host_duration, operator.device_duration,
            operator.self_device_duration), operator.name


@pytest.mark.parametrize('name', [pytest.param(name, marks=PLUGIN) for name in RUNS])
def test_kernels_of_both_runs(analyze, shared_traces, run_of, name):
    found = defaultdict(lambda: [0, 0, float('inf'), 0])
    for r in analyze('breakdown', shared_traces / name)['rows']:
        calls, total, least, most = found[r['name']]
        found[r['name']] = [calls + r['calls'], total + r['total_us'], min(least, r['min_us']), max(most, r['max_us'])]
    kernels = run_of(name).kernel_stat
    assert len(kernels) == 67
    assert found == {n: [k['count'], k['sum'], k['min'], k['max']] for n, k in kernels.iterrows()}


@pytest.mark.parametrize('name', [pytest.param(name, marks=PLUGIN) for name in WITHOUT_COMMUNICATION])
def test_newer_traces(analyze, shared_traces, name):
    data = plugin(shared_traces / name)
    answer = analyze('steps', shared_traces / name)
    if data.steps_names == ['0']:
        assert [r['step'] for r in answer['rows']] == [None]
        answer['rows'][0]['step'] = 0
    check_rows(answer['rows'], data, close=0.5 if name.startswith('hta/amd') else 0.01)
    check_shares(answer['totals'], data, kineto.read(shared_traces / name))


# ---- the slow oracle ----

def part_of(event, kind):
    name = event.name
    if kind in ('kernel', 'memcpy', 'memset'):
        return 'communication_us' if kind == 'kernel' and name.startswith('nccl') else kind + '_us'
    if kind == 'api':
        return 'runtime_us'
    if name.startswith('enumerate(DataLoader)#') and name.endswith('.__next__') or name.startswith('enumerate(DataPipe)#'):
        return 'dataloader_us'
    if name.startswith(('nccl:', 'gloo:')):
        return 'communication_us'
    return 'cpu_exec_us' if kind == 'operator' else None


def extended(found):
    """[[name, start, end]] of the steps that stay, with their device work; nanoseconds."""
    steps = sorted((a for a in found['annotation'] if a.name.startswith('ProfilerStep#')), key=lambda a: a.start)
    if not steps:
        return [[None, min(o.start for o in found['operator']), max(o.end for o in found['operator'])]]
    works = {i: [] for i in range(len(steps))}
    outside = []
    calls = {id(call) for call in found['api']}
    for work, call in kineto.launches(found):
        inside = [i for i, s in enumerate(steps) if call is not None and id(call) in calls and
                  s.start <= call.start < s.end and call.end <= s.end]
        (works[inside[0]] if inside else outside).append(work)
    before = steps[0].start
    if works[0]:
        first = min(w.start for w in works[0])
        before = max([before] + [w.end for w in outside if w.end < first])
    rows = []
    for i, step in enumerate(steps):
        start = max(before, step.start) if any(works.values()) else step.start
        before = max([start, step.end] + [w.end for w in works[i]])
        rows.append([int(step.name.split('#')[1]), start, before])
    while any(works.values()) and len(rows) > 1 and not works[len(rows) - 1]:
        rows.pop()
    if len(rows) > 1 and len(works[len(rows) - 2]) * 0.8 > len(works[len(rows) - 1]):
        rows.pop()
    return rows


def slow(document):
    """[(step, total, {part: time})], nanoseconds."""
    found = kineto.tables(document)
    edges = []
    for kind in ('kernel', 'memcpy', 'memset', 'api', 'operator', 'annotation'):
        for event in found[kind]:
            part = None if event.name.startswith('ProfilerStep#') else part_of(event, kind)
            if part and event.start < event.end:
                edges += [(event.start, 1, part), (event.end, -1, part)]
    rows = extended(found)
    for _, start, end in rows:
        edges += [(start, 0, PARTS[0]), (end, 0, PARTS[0])]
    edges.sort()
    running, before, pieces = dict.fromkeys(PARTS, 0), None, []
    for time, change, part in edges:
        if before is not None and time > before:
            pieces.append((before, time, next((p for p in PARTS if running[p]), 'other_us')))
        running[part] += change
        before = time
    answer = []
    for name, start, end in rows:
        sums = dict.fromkeys(PARTS, 0)
        for a, b, part in pieces:
            if start <= a and b <= end:
                sums[part] += b - a
        answer.append((name, end - start, sums))
    return answer


def check_slow(answer, document):
    expected = slow(document)
    assert [(r['step'], kineto.nanoseconds(str(r['total_us']))) for r in answer['rows']] == [e[:2] for e in expected]
    for row, (_, _, sums) in zip(answer['rows'], expected):
        assert {p: kineto.nanoseconds(str(row[p] or 0)) for p in PARTS} == sums


@pytest.mark.slow
@pytest.mark.parametrize('name', OTHERS + WITHOUT_COMMUNICATION + RUNS)
def test_every_moment(analyze, shared_traces, name):
    check_slow(analyze('steps', shared_traces / name), kineto.read(shared_traces / name))


# ---- small traces ----

def loop(rank=0):
    """Two steps: the first loads a batch and launches a kernel that ends in the second, which communicates."""
    t = kineto.Trace(distributedInfo={'backend': 'nccl', 'rank': rank, 'world_size': 2},
                     deviceProperties=[{'id': 0, 'numSms': 10}])
    t.kernel('warm up', 900, 150, 7)  # no step launched it: the first step begins when it is over
    t.stage('ProfilerStep#3', 1000, 500)
    t.stage('enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__', 1060, 100)
    t.operator('aten::to', 1100, 200).call(1280, 1).kernel('volta_h884gemm', 1400, 300, 1)
    t.stage('ProfilerStep#4', 1500, 500)
    t.stage('nccl:all_reduce', 1720, 20).call(1730, 2, dur=30).kernel('ncclKernel_AllReduce', 1750, 40, 2)
    t.call(1800, 3, dur=10, name='cudaMemsetAsync').kernel('Memset (Device)', 1805, 25, 3, cat='gpu_memset')
    return t


EXPECTED = {3: dict(kernel_us=300, memset_us=0, communication_us=0, runtime_us=2, dataloader_us=100, cpu_exec_us=138, total_us=650),
            4: dict(kernel_us=0, memset_us=25, communication_us=60, runtime_us=15, dataloader_us=0, cpu_exec_us=0, total_us=300)}


def test_a_loop(analyze, tmp_path):
    answer = analyze('steps', loop().write(tmp_path / 'a.json'))
    for row in answer['rows']:
        assert {k: row[k] for k in EXPECTED[row['step']]} == EXPECTED[row['step']]
        assert sum(row[p] for p in PARTS) == row['total_us']
    check_slow(answer, loop().document)
    assert answer['totals']['gpu_utilization_pct'] == near(100 * 340 / 950)
    assert answer['totals']['tensor_core_pct'] == near(100 * 300 / 340)
    assert answer['totals']['sm_efficiency_pct'] is answer['totals']['occupancy_pct'] is None


def test_the_last_steps(analyze, tmp_path):
    """Steps at the end that launched nothing, and one that launched much less than the one before."""
    t = loop()
    t.stage('ProfilerStep#5', 2000, 100).call(2010, 8).kernel('few', 2020, 5, 8).stage('ProfilerStep#6', 2100, 100)
    path = t.write(tmp_path / 'a.json')
    check_slow(analyze('steps', path), t.document)
    assert [r['step'] for r in analyze('steps', path)['rows']] == [3, 4]
    assert '2 steps at the end are left out' in analyze('steps', path, format=None).err
    assert [r['step'] for r in analyze('steps', '--step', '4-6', path)['rows']] == [4, 5, 6]
    assert [r['step'] for r in analyze('steps', '--step', '5-6', path)['rows']] == [5, 6]
    assert analyze('steps', '--step', '5', path)['totals']['gpu_utilization_pct'] == 5


def test_a_trace_without_steps(analyze, tmp_path):
    t = kineto.Trace()
    t.operator('aten::mm', 100, 50).call(110, 1).kernel('gemm', 130, 40, 1).operator('aten::add', 180, 20)
    answer = analyze('steps', t.write(tmp_path / 'a.json'))
    assert [(r['step'], r['total_us'], r['kernel_us'], r['runtime_us'], r['cpu_exec_us'], r['other_us']) for r in answer['rows']] == [
        (None, 100, 40, 2, 48, 10)]
    assert '1 trace has no steps (ProfilerStep#N): the row of such a trace lasts from its first operator' in analyze('steps', tmp_path / 'a.json', format=None).err
    late = t.call(900, 2).kernel('late', 910, 50, 2).write(tmp_path / 'late.json')  # behind the last operator: not in the row
    assert analyze('steps', late)['rows'] == answer['rows']
    assert 'nothing matches --step 0' in analyze('steps', '--step', '0', tmp_path / 'a.json', format=None, rc=1).err


def test_unknown_parts(analyze, tmp_path):
    t = kineto.Trace().stage('ProfilerStep#1', 0, 100)
    row, = analyze('steps', t.write(tmp_path / 'a.json'))['rows']
    assert [row[p] for p in PARTS] == [None, None, None, None, None, 0, None, 100]


def test_ranks_and_filters(analyze, tmp_path):
    paths = [loop(rank).write(tmp_path / f'{rank}.json') for rank in (1, 0)]
    answer = analyze('steps', *paths)
    assert [(r['rank'], r['step']) for r in answer['rows']] == [(0, 3), (0, 4), (1, 3), (1, 4)]
    assert [d['rank'] for d in answer['totals']['devices']] == [0, 1]
    assert answer['totals']['gpu_utilization_pct'] == near(100 * 340 / 950)
    assert analyze('steps', '-j', '1', *paths)['rows'] == answer['rows']
    assert analyze('steps', '--rank', '1', *paths)['rows'] == answer['rows'][2:]
    assert analyze('steps', '--step', '4', *paths)['rows'] == answer['rows'][1::2]
    assert analyze('steps', '--step', '3,4', *paths)['totals'] == answer['totals']
    assert analyze('steps', '--top', '3', *paths)['rows'] == answer['rows'][:3]
    assert [r['step'] for r in analyze('steps', '--from', '0.0003', '--to', '0.001', paths[0])['rows']] == [4]
    assert analyze('steps', '--device', '0', paths[0])['rows'] == analyze('steps', paths[0])['rows']
    assert 'nothing matches --device 1' in analyze('steps', '--device', '1', paths[0], rc=1, format=None).err
    assert 'nothing matches --step 9' in analyze('steps', '--step', '9', *paths, format=None, rc=1).err
    for refused in ('--stage', '--names'):
        analyze('steps', refused, 'full', paths[0], rc=2, format=None)


def test_damage(analyze, tmp_path):
    data = loop().text().encode()
    (tmp_path / 'cut.json').write_bytes(data[:len(data) * 2 // 3])
    assert analyze('steps', tmp_path / 'cut.json', rc=3)['rows']


@pytest.mark.parametrize('seed', range(8))
def test_random_traces(analyze, tmp_path, seed):
    """Steps that touch or leave gaps; works that overlap on streams and devices, and some without a call."""
    import random
    rng = random.Random(seed)
    t, at, correlation = kineto.Trace(), 1000, 0
    for step in range(rng.randint(1, 6)):
        duration = rng.randint(50, 400)
        t.stage(f'ProfilerStep#{step}', at, duration)
        for _ in range(rng.randint(0, 12)):
            begin = at + rng.randint(-20, duration)
            kind = rng.choice(['kernel', 'kernel', 'gpu_memcpy', 'gpu_memset', 'operator', 'stage'])
            length = rng.choice([0, 1, rng.randint(1, 300)])
            if kind == 'operator':
                t.operator(rng.choice(['aten::mm', 'nccl:broadcast', 'enumerate(DataPipe)#x']), begin, length)
            elif kind == 'stage':
                t.stage(rng.choice(['forward', 'gloo:all_gather', 'enumerate(DataLoader)#a.__next__']), begin, length, tid=7)
            else:
                correlation += 1
                if rng.random() < 0.9:
                    t.call(begin, correlation, dur=rng.randint(0, 30))
                t.kernel(rng.choice(['ncclKernel', 'gemm', 'relu']) if kind == 'kernel' else kind, begin + rng.randint(0, 300),
                         length, correlation, stream=rng.choice([7, 9]), device=rng.choice([0, 1]), cat=kind)
        at += duration + rng.choice([0, 0, rng.randint(1, 100)])
    t.operator('aten::last', at, 1)
    check_slow(analyze('steps', t.write(tmp_path / 'a.json')), t.document)


# ---- traces of ours ----

def test_our_trace(analyze, tmp_path):
    """Blocks per SM come from the grid and the device; the profiler's occupancy is unknown; no step is left out."""
    t = OpTrace()
    t.device(0, 'H100', units=100)
    for step in range(2):
        begin = (1000 * step + 10) * US
        t.stage(f'ProfilerStep#{step}', begin, begin + 900 * US)
        t.op('aten::mm', begin + 10 * US, begin + 30 * US)
        for k, blocks in enumerate((50, 400) if step == 0 else (1,)):
            t.work('kernel', begin + 20 * US, begin + (100 + 200 * k) * US, 100 * US, name=f'k{k}', grid_x=blocks, grid_y=1, grid_z=1)
    path = t.save(tmp_path / 'rank2.h.1.tfr')
    answer = analyze('steps', path)
    assert [(r['rank'], r['step'], r['total_us'], r['kernel_us'], r['cpu_exec_us'], r['runtime_us']) for r in answer['rows']] == [
        (2, 0, 900, 200, 18, 2), (2, 1, 900, 100, 18, 2)]
    totals = answer['totals']
    assert totals['gpu_utilization_pct'] == near(100 * 300 / 1900) and totals['occupancy_pct'] is None
    assert totals['sm_efficiency_pct'] == near(100 * (50 + 100 + 1) / 1900) and totals['tensor_core_pct'] == 0


def test_other_processes_of_a_rank(analyze, tmp_path):
    """A process without steps, such as one that loads data, has no row beside one that has steps."""
    for pid, name in ((1, 'ProfilerStep#1'), (2, 'load')):
        t = OpTrace()
        t.stage(name, 10 * US, 100 * US)
        t.op('aten::stack', 20 * US, 30 * US)
        t.save(tmp_path / f'rank2.h.{pid}.tfr')
    assert [r['step'] for r in analyze('steps', tmp_path)['rows']] == [1]
    assert 'have no steps' not in analyze('steps', tmp_path, format=None).err


def test_processes_without_steps_have_rows_of_their_own(analyze, tmp_path):
    for pid in (7, 8):
        t = OpTrace(pid=pid)
        t.op('aten::stack', 20 * US, (20 + pid) * US)
        t.save(tmp_path / f'rank2.h.{pid}.tfr')
    assert [(r['rank'], r['pid'], r['cpu_exec_us']) for r in analyze('steps', tmp_path)['rows']] == [(2, 7, 7), (2, 8, 8)]
