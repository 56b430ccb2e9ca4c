"""test_tracelens - the reports that TraceLens publishes with its traces, and the device questions by brute force.

TraceLens adds ts and dur as doubles of microseconds, so each of its durations is off by up to half a last place, 2^-12
us in these traces. `timeline --rules tracelens` does the same and must agree to 1e-3 us. The exact sums of `breakdown`
may differ by 2^-12 us more for each piece of work.
"""

import csv
import gzip
import json
import re
from collections import Counter, defaultdict
from decimal import Decimal

import pytest

from conftest import TRACES

DOUBLE = 2 ** -12
EPSILON = 1e-3
MODELS = sorted(p.name.removesuffix('.json.gz') for p in (TRACES / 'tracelens' / 'h100').glob('*.json.gz')) or ['none']
ALL = sorted(str(p.relative_to(TRACES)) for folder in ('hta', 'tracelens', 'kineto_tb')
             for p in (TRACES / folder).rglob('*') if p.name.endswith(('.json', '.json.gz'))) or ['none']


@pytest.fixture
def traces(shared_traces):
    return shared_traces / 'tracelens' / 'h100'


def published(traces, model, name):
    with open(traces / f'{model}_csvs' / f'{name}.csv', newline='') as f:
        return list(csv.DictReader(f))


# ---- TraceLens ----

def test_there_are_reports(traces):
    assert len(MODELS) == len(list(traces.glob('*_csvs/gpu_timeline.csv'))) == 4


@pytest.mark.parametrize('model', MODELS)
def test_gpu_timeline(analyze, traces, model):
    [row] = analyze('timeline', '--rules', 'tracelens', traces / f'{model}.json.gz')['rows']
    keys = {'computation_time': 'computation', 'exposed_comm_time': 'exposed_communication',
            'exposed_memcpy_time': 'exposed_memcpy', 'busy_time': 'busy', 'idle_time': 'idle', 'total_time': 'total',
            'total_comm_time': 'communication', 'total_memcpy_time': 'memcpy'}
    reports = published(traces, model, 'gpu_timeline')
    assert {r['type'] for r in reports} == set(keys)
    for report in reports:
        key = keys[report['type']]
        assert row[f'{key}_us'] == pytest.approx(1000 * float(report['time ms']), abs=EPSILON), key
        if key != 'total':
            assert row[f'{key}_pct'] == pytest.approx(float(report['percent']), abs=6e-5), key


@pytest.mark.parametrize('model', MODELS)
def test_kernel_summary(analyze, traces, model):
    expected = defaultdict(lambda: [0, 0.0])
    for report in published(traces, model, 'kernel_summary'):
        kernel = expected[report['Kernel name']]
        kernel[0] += int(report['Kernel duration (µs)_count'])
        kernel[1] += float(report['Kernel duration (µs)_sum'])
    found = defaultdict(lambda: [0, 0.0])
    for row in analyze('breakdown', traces / f'{model}.json.gz')['rows']:
        found[row['name']][0] += row['calls']
        found[row['name']][1] += row['total_us']
    assert {name: count for name, (count, _) in found.items()} == {name: count for name, (count, _) in expected.items()}
    for name, (_, total) in expected.items():
        assert found[name][1] == pytest.approx(total, abs=EPSILON), name


@pytest.mark.parametrize('model', MODELS)
def test_ops_summary(analyze, traces, model):
    expected = {r['name']: (int(r['Count']), float(r['total_direct_kernel_time_sum']))
                for r in published(traces, model, 'ops_summary')}
    rows = analyze('breakdown', '--group-by', 'op', '--rules', 'tracelens', traces / f'{model}.json.gz')['rows']
    calls, total = Counter(), Counter()
    for row in rows:
        calls[row['name']] += row['calls']
        total[row['name']] += row['total_us']
    assert calls == {name: count for name, (count, _) in expected.items()}
    works = analyze('timeline', '--rules', 'tracelens', traces / f'{model}.json.gz')['totals']['works']
    for name, (count, time) in expected.items():  # an operator's call launches only a few pieces
        assert total[name] == pytest.approx(time, abs=EPSILON + DOUBLE * min(works, 4 * count)), name
    assert sum(total.values()) == pytest.approx(sum(t for _, t in expected.values()), abs=EPSILON + DOUBLE * works)


# ---- brute force, without the analyser's code ----

KINDS = {'kernel': 'COMPUTATION', 'gpu_memcpy': 'MEMORY', 'gpu_memset': 'MEMORY'}
KINDS.update({'Kernel': 'COMPUTATION', 'Memcpy': 'MEMORY', 'Memset': 'MEMORY'})
ORDER = ('COMPUTATION', 'COMMUNICATION', 'MEMORY')


def load(path):
    data = path.read_bytes()
    events = json.loads(gzip.decompress(data) if path.suffix == '.gz' else data, parse_float=Decimal)['traceEvents']
    return [e for e in events if e.get('ph') == 'X' and 'dur' in e and 'ts' in e]


def nanoseconds(us):
    ns = Decimal(us) * 1000
    assert ns == int(ns)
    return int(ns)


def works(events):
    """(kind, start, end, event) of each piece of device work."""
    found = []
    for e in events:
        kind = KINDS.get(e.get('cat'))
        if kind == 'COMPUTATION' and re.search('nccl', e['name'], re.I):
            kind = 'COMMUNICATION'
        if kind:
            start = nanoseconds(e['ts'])
            found.append((kind, start, start + nanoseconds(e['dur']), e))
    return found


def combinations(pieces):
    """The time, in ns, that each set of kinds ran together, summed over all intervals between two borders."""
    borders = [(start, 1, kind) for kind, start, _, _ in pieces] + [(end, -1, kind) for kind, _, end, _ in pieces]
    borders.sort(key=lambda border: border[0])
    running, time = Counter(), Counter()
    for (at, step, kind), (following, *_) in zip(borders, borders[1:]):
        running[kind] += step
        time[frozenset(k for k in ORDER if running[k])] += following - at
    del time[frozenset()]
    return {kinds: ns for kinds, ns in time.items() if ns}


def expected_timeline(pieces):
    if not pieces:
        return None
    time = combinations(pieces)

    def when(wanted, without=()):
        return sum(ns for kinds, ns in time.items() if wanted in kinds and not kinds & set(without))
    total = max(end for _, _, end, _ in pieces) - min(start for _, start, _, _ in pieces)
    return {'total': total, 'busy': sum(time.values()), 'idle': total - sum(time.values()),
            'computation': when('COMPUTATION'), 'communication': when('COMMUNICATION'), 'memcpy': when('MEMORY'),
            'exposed_communication': when('COMMUNICATION', ['COMPUTATION']),
            'exposed_memcpy': when('MEMORY', ['COMPUTATION', 'COMMUNICATION'])}


def check_timeline(row, pieces):
    expected = expected_timeline(pieces)
    times = {k.removesuffix('_us'): v for k, v in row.items() if k.endswith('_us')}
    shares = {k.removesuffix('_pct'): v for k, v in row.items() if k.endswith('_pct')}
    if expected is None:
        assert set(times.values()) == set(shares.values()) == {None}
        return
    assert {k: round(v * 1000) for k, v in times.items()} == expected
    for key, share in shares.items():
        assert share == pytest.approx(100 * expected[key] / expected['total'], abs=6e-5), key


@pytest.mark.parametrize('trace', ALL)
def test_timeline_kinds_and_overlap(analyze, shared_traces, trace):
    pieces = works(load(shared_traces / trace))
    [row] = analyze('timeline', shared_traces / trace)['rows']
    check_timeline(row, pieces)
    time = combinations(pieces)
    names = {' overlapping '.join(k for k in ORDER if k in kinds): ns for kinds, ns in time.items()}
    answer = analyze('kinds', shared_traces / trace)
    assert {row['kind']: round(row['total_us'] * 1000) for row in answer['rows']} == names
    assert round(answer['totals']['total_us'] * 1000) == sum(names.values())
    for row in answer['rows']:
        assert row['pct'] == pytest.approx(100 * names[row['kind']] / sum(names.values()), abs=6e-5)
    [row] = analyze('overlap', shared_traces / trace)['rows']
    hidden = sum(ns for kinds, ns in time.items() if {'COMMUNICATION', 'COMPUTATION'} <= kinds)
    communication = sum(ns for kinds, ns in time.items() if 'COMMUNICATION' in kinds)
    if not pieces:
        assert row['overlap_us'] is row['communication_us'] is row['overlap_pct'] is None
        return
    assert (round(row['overlap_us'] * 1000), round(row['communication_us'] * 1000)) == (hidden, communication)
    if communication:
        assert row['overlap_pct'] == pytest.approx(100 * hidden / communication, abs=6e-5)
    else:
        assert row['overlap_pct'] is None


def test_ranks_are_rows_of_their_own_and_kinds_their_sum(analyze, shared_traces):
    directory = shared_traces / 'hta' / 'trace_filter'
    pieces = {rank: works(load(directory / f'sampled_rank-{rank}.json.gz')) for rank in (0, 1)}
    rows = {row['rank']: row for row in analyze('timeline', directory)['rows']}
    assert sorted(rows) == [0, 1]
    for rank, row in rows.items():
        check_timeline(row, pieces[rank])
    total = Counter()
    for part in pieces.values():
        time = combinations(part)
        total.update({' overlapping '.join(k for k in ORDER if k in kinds): ns for kinds, ns in time.items()})
    assert {row['kind']: round(row['total_us'] * 1000) for row in analyze('kinds', directory)['rows']} == total


# ---- filters ----

@pytest.fixture
def nccl(shared_traces):
    [path] = (shared_traces / 'hta' / 'nccl_parser_config').iterdir()
    return path


@pytest.mark.parametrize('stream', ['7', '40'])
def test_of_a_stream(analyze, nccl, stream):
    pieces = [p for p in works(load(nccl)) if p[3]['args']['stream'] == int(stream)]
    assert pieces
    [row] = analyze('timeline', '--stream', stream, nccl)['rows']
    check_timeline(row, pieces)


def test_of_a_device(analyze, nccl):
    pieces = works(load(nccl))
    device = pieces[0][3]['args']['device']
    [row] = analyze('timeline', '--device', str(device), nccl)['rows']
    check_timeline(row, [p for p in pieces if p[3]['args']['device'] == device])
    for command in ('timeline', 'kinds', 'overlap'):
        result = analyze(command, '--device', str(device + 77), nccl, rc=1, format=None)
        assert f'--device {device + 77}' in result.err and not result.out


def test_in_a_window(analyze, nccl):
    """Work outside the window is cut off; the window counts from the trace's first record."""
    events = load(nccl)
    first = min(nanoseconds(e['ts']) for e in events if e['cat'] != 'Trace')
    pieces = works(events)
    middle = sorted(start for _, start, _, _ in pieces)[len(pieces) // 2] + 500 - first
    begin, end = first + middle, first + middle + 20_000_000
    cut = [(kind, max(a, begin), min(b, end), e) for kind, a, b, e in pieces if max(a, begin) < min(b, end)]
    assert len(cut) > 10
    window = ['--from', f'{middle / 1e9:.9f}', '--to', f'{(middle + 20_000_000) / 1e9:.9f}']
    [row] = analyze('timeline', *window, nccl)['rows']
    check_timeline(row, cut)


def test_of_a_step(analyze, nccl):
    """A step has the work launched by its calls: calls made while ProfilerStep#5 was open."""
    events = load(nccl)
    [step] = [e for e in events if e['name'] == 'ProfilerStep#5' and e['cat'] == 'user_annotation']
    start = nanoseconds(step['ts'])
    inside = {e['args']['correlation'] for e in events if e['cat'] in ('cuda_runtime', 'cuda_driver')
              and start <= nanoseconds(e['ts']) < start + nanoseconds(step['dur'])}
    pieces = [p for p in works(events) if p[3]['args']['correlation'] in inside]
    assert 0 < len(pieces) < len(works(events))
    [row] = analyze('timeline', '--step', '5', nccl)['rows']
    check_timeline(row, pieces)
    analyze('timeline', '--step', '555', nccl, rc=1, format=None)


# ---- communication ----

@pytest.mark.parametrize('name,kind,tracelens', [
    ('ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)', 'COMMUNICATION', 'COMMUNICATION'),
    ('void RcclKernel_AllGather()', 'COMMUNICATION', 'COMMUNICATION'),
    ('void vllm::cross_device_reduce_1stage<c10::BFloat16, 8>(...)', 'COMMUNICATION', 'COMMUNICATION'),
    ('void deep_ep::intranode::dispatch<8, 768>(int4*)', 'COMMUNICATION', 'COMPUTATION'),
    ('void two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16>()', 'COMMUNICATION', 'COMPUTATION'),
    ('void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>()', 'COMMUNICATION',
     'COMPUTATION'),
    ('void nvshmemi_transfer_rma_p<float>()', 'COMMUNICATION', 'COMPUTATION'),
    ('void reduce_kernel<512, 1, WarpAllReduce>()', 'COMPUTATION', 'COMPUTATION'),
    ('Memcpy HtoD (Pageable -> Device) of nothing', 'COMPUTATION', 'COMPUTATION'),
])
def test_kinds_of_kernels(analyze, tmp_path, name, kind, tracelens):
    call = {'ph': 'X', 'cat': 'cuda_runtime', 'name': 'cudaLaunchKernel', 'pid': 1, 'tid': 1, 'ts': 1, 'dur': 1,
            'args': {'correlation': 1}}
    kernel = {'ph': 'X', 'cat': 'kernel', 'name': name, 'pid': 0, 'tid': 7, 'ts': 5, 'dur': 2,
              'args': {'correlation': 1, 'stream': 7, 'device': 0}}
    trace = tmp_path / 'one.json'
    trace.write_text(json.dumps({'traceEvents': [call, kernel]}))
    for rules, expected in (('exact', kind), ('tracelens', tracelens)):
        rows = analyze('kinds', '--rules', rules, trace)['rows']
        assert rows == [{'kind': expected, 'total_us': 2, 'pct': 100}], rules


def test_work_without_a_call_is_none_of_tracelens(analyze, tmp_path):
    kernels = [{'ph': 'X', 'cat': 'kernel', 'name': 'k', 'pid': 0, 'tid': 7, 'ts': 10 * i, 'dur': 2,
                'args': {'correlation': i, 'stream': 7, 'device': 0}} for i in (1, 2)]
    call = {'ph': 'X', 'cat': 'cuda_driver', 'name': 'cuLaunchKernel', 'pid': 1, 'tid': 1, 'ts': 1, 'dur': 1,
            'args': {'correlation': 2}}
    trace = tmp_path / 'two.json'
    trace.write_text(json.dumps({'traceEvents': [call, *kernels]}))
    [row] = analyze('timeline', trace)['rows']
    assert (row['total_us'], row['busy_us'], row['idle_us']) == (12, 4, 8)
    [row] = analyze('timeline', '--rules', 'tracelens', trace)['rows']
    assert (row['total_us'], row['busy_us'], row['idle_us']) == (2, 2, 0)


def test_devices_of_a_rank_count_once(analyze, tmp_path):
    kernels = [{'ph': 'X', 'cat': 'kernel', 'name': 'k', 'pid': d, 'tid': 7, 'ts': 10 + d, 'dur': 4,
                'args': {'correlation': d, 'stream': 7, 'device': d}} for d in (0, 1)]
    trace = tmp_path / 'devices.json'
    trace.write_text(json.dumps({'traceEvents': kernels}))
    [row] = analyze('timeline', trace)['rows']
    assert (row['total_us'], row['busy_us'], row['busy_pct']) == (5, 5, 100)


def test_work_counts_if_an_arrow_leads_to_it(analyze, tmp_path):
    """TraceLens links work by the arrow that begins at its call, and the work of graphs by the call's id. ROCm's trace has no
    arrow from hipMemset. Without arrows (a trace that lost them) what has a call counts."""
    events = []

    def work(call, cat, name, id, ts, arrow):
        events.append({'ph': 'X', 'cat': 'cuda_runtime', 'name': call, 'pid': 1, 'tid': 1, 'ts': ts, 'dur': 5, 'args': {'correlation': id}})
        events.append({'ph': 'X', 'cat': cat, 'name': name, 'pid': 0, 'tid': 3, 'ts': ts + 10, 'dur': 10,
                       'args': {'correlation': id, 'stream': 3, 'device': 0}})
        both = {'cat': 'ac2g', 'name': 'ac2g', 'id': id}
        events.extend([{'ph': 's', 'pid': 1, 'tid': 1, 'ts': ts, **both}] * arrow + [{'ph': 'f', 'bp': 'e', 'pid': 0, 'tid': 3, 'ts': ts + 10, **both}])
    work('hipLaunchKernel', 'kernel', 'k', 1, 1000, True)
    work('hipMemsetAsync', 'gpu_memset', 'Memset (Device)', 2, 1100, False)
    work('hipGraphLaunch', 'kernel', 'replayed', 3, 1200, False)
    path = tmp_path / 'rocm.json'
    for arrows, expected in ((True, 20), (False, 30)):
        path.write_text(json.dumps({'traceEvents': [e for e in events if arrows or e['cat'] != 'ac2g']}))
        for rules, us in (('tracelens', expected), ('exact', 20)):
            row, = analyze('timeline', '--rules', rules, path)['rows']
            assert (row['busy_us'], row['computation_us']) == (30 if rules == 'exact' else us, us)
