"""test_comm_bad - collectives of traces that are damaged, empty, of several versions, or of clocks that jump."""

import copy

import pytest

import comm_traces
import tfr
from tfr import rec

EPOCH = 1_700_000_000_000_000_000
FUNC, KERNEL = b'nccl\x1fCOLLECTIVE\x1fncclAllReduce\x1f', 'ncclDevKernel_AllReduce_Sum_f32_RING_LL'


def trace(directory, rank, spans, jump=None, kinds=None, world=2, **info):
    """A trace of ours with an all_reduce for each (arrival, end), in nanoseconds of a counter that starts at EPOCH. The
    time of day jumps by jump[1] nanoseconds at jump[0]."""
    w = tfr.Writer(rank=rank, world=world, pid=100 + rank, host=info.pop('host', 'here'), kinds=kinds, **info)
    last = spans[-1][1] + 1000
    for at in range(0, last + 1, last // 10):
        set_by = jump[1] if jump and at > jump[0] else 0
        w.chunk([rec('clock', clock=tfr.MONOTONIC, ticks=at, value=at, error=10),
                 rec('clock', clock=tfr.REALTIME, ticks=at, value=EPOCH + at + set_by, error=10),
                 rec('clock', clock=tfr.DEVICE, ticks=at, value=at, error=10)])
    func, kernel, launch = w.string(FUNC), w.string(KERNEL), w.string('cuda\x1fLAUNCH\x1fcuLaunchKernelEx\x1f')
    records = [rec('thread', serial=1, tid=7, pthread=1, time=1)]
    for i, (start, end) in enumerate(spans):
        call = start - 5000
        records += [rec('collective', func=func, time=call, duration=900, communicator=9, sequence=i, bytes=4000, count=1000, type=7,
                        peer=-1, rank=rank, ranks=world),
                    rec('correlation', correlation=i + 1, func=launch, thread=1, time=call + 100, duration=200),
                    rec('kernel', name=kernel, start=start, duration=end - start, correlation=i + 1, stream=7)]
    records += [tfr.Record('novelty', {'time': 5})] if 'novelty' in w.kinds else []
    for r in records:
        r.values = {f.name: r.values.get(f.name, 0) for f in w.kinds[r.kind].fields}
    w.chunk(records, thread=1, tid=7)
    w.footer()
    return w.save(directory / f'rank{rank}.here.{100 + rank}.tfr')


def spans(rank, count=20):
    return [(1_000_000 * (i + 1) + 1000 * rank * i, 1_000_000 * (i + 1) + 500_000) for i in range(count)]


def check(rows, count=20):
    assert [(r['seq'], r['ranks'], r['bytes'], round(r['start_skew_us'] * 1000)) for r in rows] == [
        (i, 2, 4000, 1000 * i) for i in range(count)]
    assert all(round(r['transfer_us'] * 1000) == 500_000 - 1000 * i for i, r in enumerate(rows))


@pytest.mark.parametrize('host', ['here', 'there'], ids=['one-host', 'two-hosts'])
def test_a_clock_that_jumps(analyze, tmp_path, host):
    """Somebody sets the time of day of a rank by five seconds in the middle: no time in the answer moves, and a line says so."""
    trace(tmp_path, 0, spans(0))
    trace(tmp_path, 1, spans(1), jump=(10_000_000, 5_000_000_000), host=host)
    check(analyze('comm', tmp_path)['rows'])
    assert 'was set 1 time while it ran, first by 5.000 s' in analyze('comm', tmp_path, format=None).err
    assert analyze('stragglers', tmp_path)['totals']['rank'] == 1


def test_ranks_of_different_versions(analyze, tmp_path):
    """A rank of an older library lacks columns, one of a newer library has more of them and a new kind of record."""
    older, newer = copy.deepcopy(tfr.KINDS), copy.deepcopy(tfr.KINDS)
    older['collective'].fields = [f for f in older['collective'].fields if f.name not in ('stack', 'flags')]
    newer['collective'].fields.append(tfr.Field('later', 'uint64_t', 'UINT', 'PLAIN'))
    newer['novelty'] = tfr.Kind(999, 'novelty', [tfr.Field('time', 'uint64_t', 'TIME', 'DELTA')])
    trace(tmp_path, 0, spans(0), kinds=older, version='0.0.1')
    trace(tmp_path, 1, spans(1), kinds=newer, version='9.9.9')
    old, new = analyze('info', tmp_path)['rows']
    assert (old['version'], new['version']) == ('0.0.1', '9.9.9') and new['events']['novelty'] == 1
    check(analyze('comm', tmp_path)['rows'])


def test_numbers_that_wrap(analyze, tmp_path):
    """After the largest number of 32 bits the sequence goes on with 0: each collective is matched once."""
    say = comm_traces.description('allreduce', (10, 10), 'Float', 2, '0', [0, 1])
    numbers = [2 ** 32 - 2, 2 ** 32 - 1, 0, 1]
    for rank in (0, 1):
        events = []
        for place, number in enumerate(numbers):
            start = 1_000_000 * (place + 1) + 1000 * rank * place
            events += comm_traces.collective(say, place, start, 1_000_000 * (place + 1) + 50_000, rank, sequence=number)
        comm_traces.write(tmp_path / f'{rank}.json', rank, 2, events)
    rows = analyze('comm', tmp_path)['rows']
    assert [(r['seq'], r['ranks'], r['start_skew_us']) for r in rows] == [(n, 2, place) for place, n in enumerate(numbers)]
    assert 'sequence numbers restart 2 times' in analyze('comm', tmp_path, format=None).err


def test_a_communicator_that_is_split_twenty_times(analyze, tmp_path):
    """Each of twenty groups, some with the same ranks, counts from 1, and each collective has the ranks of its group alone."""
    world, truth = 8, {}
    events = {rank: [] for rank in range(world)}
    for place in range(60):
        group = place % 20
        ranks = [r for r in range(world) if (r >> group % 3) % 2 == group % 2]
        say = comm_traces.description('allreduce', (10, 10), 'Float', len(ranks), str(group), ranks)
        at = 1_000_000 * (place + 1)
        for rank in ranks:
            events[rank] += comm_traces.collective(say, place, at + 100 * rank, at + 50_000, rank, sequence=1 + place // 20)
        truth[str(group), 1 + place // 20] = {str(r): 0.1 * (max(ranks) - r) for r in ranks}
    for rank in events:
        comm_traces.write(tmp_path / f'{rank}.json', rank, world, events[rank])
    found = {(r['group'], r['seq']): r['wait_us'] for r in analyze('comm', tmp_path)['rows']}
    assert set(found) == set(truth)
    assert all(found[key] == pytest.approx(truth[key]) for key in truth)


# ---- nothing to show ----

@pytest.fixture
def empty(tmp_path):
    """Two ranks with a stage and an operator, without device work and collectives."""
    for rank in (0, 1):
        events = [comm_traces.event('user_annotation', 'stage', 1000, 9000, 1, 500), comm_traces.event('cpu_op', 'aten::op', 2000, 3000, 1, 500)]
        comm_traces.write(tmp_path / f'{rank}.json', rank, 2, events)
    return tmp_path


@pytest.mark.parametrize('command, said', [('comm', 'no collectives;'), ('stragglers', 'no collectives;'), ('timeline', 'no device work in 2 of 2 ranks;')])
def test_nothing_to_show(analyze, empty, command, said):
    """An answer without content is complete and says so; a filter that matches nothing is status 1; a missing file is 3."""
    for jobs in ('1', '4'):
        result = analyze(command, '-j', jobs, empty, format=None)
        assert said in result.err and result.err.count('\n') == 1
        assert 'nothing matches --stage stage' in analyze(command, '-j', jobs, '--stage', 'stage', empty, rc=1, format=None).err
        analyze(command, '-j', jobs, '--rank', '7', empty, rc=1, format=None)
        assert said in analyze(command, '-j', jobs, empty, empty / 'missing.json', rc=3, format=None).err
    assert analyze(command, empty)['totals']['ranks'] == (2 if command == 'timeline' else 0)


def test_waits_in_text(analyze, tmp_path):
    """The text has the wait of each rank by name; of many ranks the longest, and how many others there are."""
    for rank in range(12):
        say = comm_traces.description('allreduce', (10, 10), 'Float', 12, '0', list(range(12)))
        comm_traces.write(tmp_path / f'{rank}.json', rank, 12, comm_traces.collective(say, 0, 1_000_000 + 1000 * rank, 2_000_000, rank))
    few = analyze('comm', '--rank', '0-2', tmp_path, format='text').out
    assert 'rank 0: 2.000 us, rank 1: 1.000 us, rank 2: 0.000 us' in few and 'others' not in few
    many = analyze('comm', tmp_path, format='text').out
    assert ', '.join(f'rank {rank}: {11 - rank}.000 us' for rank in range(8)) + ', others: 4' in many
