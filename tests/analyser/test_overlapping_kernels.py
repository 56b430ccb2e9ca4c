"""test_overlapping_kernels - answers about kernels of one stream that overlap, as programmatic dependent launch makes them.

The expected answers are sums and unions of the numbers that the test writes, in traces of ours and of PyTorch.
"""

import pytest

import kineto
from test_device_records import US, Trace

# name, start and duration in us; all on one stream. Some are contained in others, some cross, two begin together.
KERNELS = [('gemm', 500, 100), ('relu', 550, 100), ('ncclDevKernel_AllReduce_Sum_f32', 560, 10),
           ('ncclDevKernel_AllReduce_Sum_f32', 560, 200), ('gemm', 900, 50), ('ncclDevKernel_AllGather', 940, 30)]


def ours(path):
    t = Trace(rank=0)
    t.stage('s', 0, 90 * US)
    for i, (name, start, duration) in enumerate(KERNELS):
        t.work('kernel', (10 + 5 * i) * US, start * US, duration * US, name=name)
    return t.save(path / 'rank0.h.1.tfr')


def pytorchs(path):
    t = kineto.Trace(distributedInfo={'rank': 0, 'world_size': 1}).stage('s', 0, 90)
    for i, (name, start, duration) in enumerate(KERNELS):
        t.call(10 + 5 * i, i).kernel(name, start, duration, correlation=i)
    return t.write(path / 'a.json')


@pytest.fixture(params=[ours, pytorchs])
def trace(request, tmp_path):
    return request.param(tmp_path)


def times(nccl=None):
    return [(start, start + duration) for name, start, duration in KERNELS if nccl is None or name.startswith('nccl') == nccl]


EVERY, COMPUTE, COMMUNICATION = (kineto.union(times(kind)) for kind in (None, False, True))
TOTAL = 970 - 500


def near(value):
    return pytest.approx(value, abs=0.01)


def test_breakdown_adds_durations(trace, analyze):
    answer = analyze('breakdown', trace)
    rows = {r['name']: (r['calls'], r['total_us'], r['max_us']) for r in answer['rows']}
    assert rows == {'gemm': (2, 150, 100), 'relu': (1, 100, 100), 'ncclDevKernel_AllReduce_Sum_f32': (2, 210, 200),
                    'ncclDevKernel_AllGather': (1, 30, 30)}
    assert answer['totals']['total_kernel_time_us'] == sum(d for _, _, d in KERNELS)


def test_stages_count_each_moment_once(trace, analyze):
    row, = analyze('stages', trace)['rows']
    assert (row['device_us'], row['device_busy_us'], row['idle_us']) == (sum(d for _, _, d in KERNELS), near(EVERY), near(TOTAL - EVERY))


@pytest.mark.parametrize('rules', ['exact', 'tracelens'])
def test_timeline(trace, analyze, rules):
    row, = analyze('timeline', '--rules', rules, trace)['rows']
    found = [row[f'{key}_us'] for key in ('total', 'busy', 'idle', 'computation', 'communication', 'exposed_communication')]
    assert found == [near(v) for v in (TOTAL, EVERY, TOTAL - EVERY, COMPUTE, COMMUNICATION, EVERY - COMPUTE)]


def test_timeline_by_htas_rules(trace, analyze):
    row, = analyze('timeline', '--rules', 'hta', trace)['rows']
    found = [row[f'{key}_us'] for key in ('kernel_time', 'idle', 'compute', 'non_compute')]
    assert found == [near(v) for v in (TOTAL, TOTAL - EVERY, COMPUTE, EVERY - COMPUTE)]


@pytest.mark.parametrize('rules', ['exact', 'hta'])
def test_overlap(trace, analyze, rules):
    row, = analyze('overlap', '--rules', rules, trace)['rows']
    assert (row['overlap_us'], row['communication_us']) == (near(COMPUTE + COMMUNICATION - EVERY), near(COMMUNICATION))


def test_kinds(trace, analyze):
    rows = {r['kind']: r['total_us'] for r in analyze('kinds', trace)['rows']}
    assert rows == {'COMPUTATION': near(EVERY - COMMUNICATION), 'COMMUNICATION': near(EVERY - COMPUTE),
                    'COMPUTATION overlapping COMMUNICATION': near(COMPUTE + COMMUNICATION - EVERY)}
