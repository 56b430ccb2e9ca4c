"""test_flight_sums - answers from the sums of a whole run that TFI_MODE=flight writes, in traces made by tests/tfr.py."""

import math

import pytest

import tfr
from scripted import only
from tfr import rec

STAGE, KERNEL, LINE = 1, 2, 4
SECOND = 10**9


def bucket_of(value):
    shift = max(value.bit_length() - 7, 0)
    return (shift << 6) + (value >> shift)


def sums(w, at, values, unplaced=0, again=0):
    """The rows of the moment `at`: values = {(what, name): durations}; the name None has what found no room."""
    rows = []
    for (what, name), took in values.items():
        counts = {}
        for value in took:
            counts[bucket_of(value)] = counts.get(bucket_of(value), 0) + 1
        rows.append(rec('aggregate', name=w.string(name) if name else 0, time=at, what=what, count=len(took), sum=sum(took), again=again,
                        least=min(took), most=max(took), unplaced=unplaced, buckets=[b << 38 | n for b, n in sorted(counts.items())]))
    return rows


@pytest.fixture
def trace(tmp_path):
    """trace(*chunks) saves a trace that lacks records of its run. A chunk is a function of the writer."""
    def trace(*chunks, name='rank0.host.1.tfr', **info):
        flight = {'flight.chunks': 9, 'flight.records': 1000, 'flight.since': 90 * SECOND}
        w = tfr.Writer(**{**flight, **info})
        clock = [rec('clock', clock=c, ticks=t, value=t, error=1) for t in (1, 100 * SECOND) for c in (tfr.MONOTONIC, tfr.REALTIME)]
        w.chunk(clock + [rec('range_end', name=w.string('step'), time=95 * SECOND, duration=SECOND, id=1, flags=tfr.NESTED | tfr.STAGE, thread=1)])
        for chunk in chunks:
            w.chunk(chunk(w), form='rows', deflate=False)
        w.footer()
        path = tmp_path / name
        w.save(path)
        return path
    return trace


TOOK = [1000 * n * n for n in range(1, 102)]


def near(values, share):
    """The value at that share, and 0.8 % around it."""
    return pytest.approx(sorted(values)[math.floor(share * (len(values) - 1))] / 1000, rel=1 / 128)


def test_the_last_sums_count(trace, analyze):
    path = trace(lambda w: sums(w, 50 * SECOND, {(STAGE, 'step'): [1, 2], (STAGE, 'gone'): [7]}),
                 lambda w: sums(w, 99 * SECOND, {(STAGE, 'step'): TOOK, (STAGE, 'small'): [5000], (KERNEL, 'gemm'): TOOK[:10],
                                                 (STAGE, None): [1, 1, 1]}),
                 lambda w: sums(w, 98 * SECOND, {(STAGE, 'late'): [3]}))
    answer = analyze('stages', path)
    rows = {r['stage']: r for r in answer['rows']}
    assert list(rows) == ['step', 'small'] and answer['totals']['calls_of_others'] == 3
    step = rows['step']
    assert (step['calls'], step['wall_us'], step['min_us'], step['max_us']) == (len(TOOK), sum(TOOK) / 1000, TOOK[0] / 1000, TOOK[-1] / 1000)
    assert step['median_us'] == near(TOOK, 0.5) and step['p95_us'] == near(TOOK, 0.95)
    assert [r['stage'] for r in analyze('stages', path, '--stage', 'sm*')['rows']] == ['small']
    assert only(analyze('stages', path, '--from', '0')['rows'])['calls'] == 1
    assert only(analyze('stages', path, '--exclusive')['rows'])['calls'] == 1
    kernels = analyze('breakdown', path)
    row = only(kernels['rows'])
    assert (row['name'], row['stage'], row['calls'], row['total_us'], row['std_us']) == ('gemm', None, 10, sum(TOOK[:10]) / 1000, None)
    assert row['median_us'] == near(TOOK[:10], 0.5) and row['pct'] == 100
    totals = kernels['totals']
    assert (totals['launches'], totals['num_kernels'], totals['without_launch'], totals['launches_of_others']) == (10, 1, None, 0)
    flight = only(analyze('info', path)['rows'])['flight']
    assert (flight['sums'], flight['values_of_others'], flight['left_out'], flight['moments']) == (4, 3, 1000, [])


def test_kernels_that_found_no_room(trace, analyze):
    """They are in no row but in the totals, and of no share is the whole known."""
    path = trace(lambda w: sums(w, 99 * SECOND, {(KERNEL, 'gemm'): [3000], (KERNEL, None): [1000, 2000]}))
    kernels = analyze('breakdown', path)
    row, totals = only(kernels['rows']), kernels['totals']
    assert (row['calls'], row['total_us'], row['pct']) == (1, 3, None)
    assert [totals[key] for key in ('total_kernel_time_us', 'launches', 'num_kernels', 'launches_of_others')] == [6, 3, None, 2]


def test_what_the_sums_do_not_know_is_null(trace, analyze):
    """Quantiles where values are in no bucket; calls inside calls of the same stage count once for the time."""
    path = trace(lambda w: sums(w, 99 * SECOND, {(STAGE, 'step'): TOOK}, unplaced=1, again=1000))
    step = only(analyze('stages', path)['rows'])
    assert (step['calls'], step['median_us'], step['p95_us'], step['max_us']) == (len(TOOK), None, None, TOOK[-1] / 1000)
    assert step['wall_us'] == (sum(TOOK) - 1000) / 1000


def test_two_processes_of_a_rank(trace, analyze, tmp_path):
    """Their sums add up; what is known of single calls is not united."""
    for pid in (1, 2):
        trace(lambda w: sums(w, 99 * SECOND, {(STAGE, 'step'): TOOK, (KERNEL, 'gemm'): TOOK}), name=f'rank0.host.{pid}.tfr', pid=pid)
    step = only(analyze('stages', tmp_path)['rows'])
    assert (step['calls'], step['wall_us'], step['median_us'], step['max_us']) == (2 * len(TOOK), 2 * sum(TOOK) / 1000, None, None)
    row = only(analyze('breakdown', tmp_path)['rows'])
    assert (row['calls'], row['total_us'], row['median_us']) == (2 * len(TOOK), 2 * sum(TOOK) / 1000, None)


@pytest.mark.parametrize('pid', [1, 3])
def test_a_process_of_the_rank_that_has_all_its_records(trace, analyze, tmp_path, pid):
    """Its calls are in the row too, and so the times of single calls of the other process are not those of the row."""
    trace(lambda w: sums(w, 99 * SECOND, {(STAGE, 'step'): TOOK}), name='rank0.host.2.tfr', pid=2)
    trace(name=f'rank0.host.{pid}.tfr', pid=pid, **{'flight.chunks': 0})
    step = only(analyze('stages', tmp_path)['rows'])
    assert (step['calls'], step['wall_us']) == (len(TOOK) + 1, sum(TOOK) / 1000 + 1e6)
    assert {step[key] for key in ('median_us', 'p95_us', 'min_us', 'max_us', 'host_us')} == {None}


def test_moments(trace, analyze):
    def kept(w):
        common = {'time': 99 * SECOND}
        return [rec('kept', cause=1, name=w.string('step'), flags=0, start=20 * SECOND, end=25 * SECOND, usual=SECOND, **{'from': 10 * SECOND}, **common),
                rec('kept', cause=3, name=0, flags=1, start=9 * SECOND, end=9 * SECOND, usual=0, **{'from': 0}, **common),
                rec('kept', cause=0, name=0, flags=0, start=0, end=0, usual=17, **{'from': 0}, **common)]
    flight = only(analyze('info', trace(lambda w: [rec('kept', cause=2, name=0, flags=0, time=5, start=1, end=2, usual=0, **{'from': 0})], kept))['rows'])['flight']
    assert flight['moments_left_out'] == 17
    assert flight['moments'] == [
        {'cause': 'trigger', 'name': None, 'from_us': None, 'end_us': -85e6, 'took_us': 0, 'usual_us': None, 'whole': False},
        {'cause': 'slow', 'name': 'step', 'from_us': -84e6, 'end_us': -69e6, 'took_us': 5e6, 'usual_us': 1e6, 'whole': True}]


@pytest.mark.parametrize('bad', [
    {'buckets': [5 << 38 | 1, 5 << 38 | 1]}, {'buckets': [4000 << 38 | 1]}, {'buckets': []}, {'what': 77},
    {'sum': 2**64 - 1, 'again': 2**64 - 1, 'least': 2**64 - 1, 'most': 2**64 - 1}, {'count': 2**64 - 1}])
def test_hostile_sums(trace, analyze, bad):
    """They are answered, with null where nothing is known."""
    def chunk(w):
        rows = sums(w, 99 * SECOND, {(STAGE, 'step'): TOOK})
        rows[0].values.update(bad)
        return rows
    row = only(analyze('stages', trace(chunk), rc=None)['rows'])
    if 'buckets' in bad:
        assert row['median_us'] is None and row['calls'] == len(TOOK)
