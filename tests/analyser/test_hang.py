"""test_hang - unmatched collectives, missing ranks and mismatches, on traces of ranks that were killed (tests/hang_traces.py).

The jobs are small, and the expected answer is written beside each. A random job computes it from the calls alone.
"""

import random

import pytest

import kineto
from hang_traces import DOUBLE, STEP, call, write_rank

WORLD = 8


def row_of(answer, rank):
    [row] = [r for r in answer['rows'] if r['rank'] == rank]
    return row


def only_fault(answer):
    [fault] = answer['totals']['unmatched']
    return fault


def matched(number, **more):
    return [call('all_reduce', seq, **more) for seq in range(number)]


# ---- a rank that never came ----

@pytest.mark.parametrize('waits', ['slot', 'sync'])
def test_a_rank_that_never_came(analyze, tmp_path, waits):
    """The others wait in the call itself, or in a wait for the device after it."""
    for rank in range(WORLD):
        calls = matched(5)
        if rank != 3:
            calls.append(call('all_reduce', 5, open=waits == 'slot'))
        inside = ('cudaDeviceSynchronize', 7 * STEP) if rank != 3 and waits == 'sync' else None
        frames = [('asleep', '/job/train.py', 21), ('train', '/job/train.py', 40)] if rank == 3 else None
        write_rank(tmp_path, rank, calls, inside=inside, frames=frames, stage='step' if rank == 3 else None)
    answer = analyze('hang', tmp_path)
    fault = only_fault(answer)
    assert (fault['collective'], fault['seq'], fault['size'], fault['fault']) == ('all_reduce', 5, WORLD, 'missing')
    assert fault['missing_ranks'] == fault['blamed_ranks'] == [3] and fault['unknown_ranks'] is None
    assert fault['waiting_ranks'] == [r for r in range(WORLD) if r != 3]
    for rank in fault['waiting_ranks']:
        row = row_of(answer, rank)
        assert (row['state'], row['call']) == (('in collective', 'ncclAllReduce') if waits == 'slot' else
                                               ('in call', 'cudaDeviceSynchronize'))
        assert (row['collective'], row['seq'], row['missing_ranks'], row['process']) == ('all_reduce', 5, [3], 'unknown')
        assert row['since_us'] > 6e6
    row = row_of(answer, 3)
    assert (row['state'], row['stage'], row['call'], row['missing_ranks']) == ('in Python', 'step', None, None)
    assert row['stack'] == ['asleep /job/train.py:21', 'train /job/train.py:40']
    said = analyze('hang', tmp_path, format=None).out
    assert 'never came: rank 3; unknown, in Python asleep /job/train.py:21, in stage step' in said
    assert 'waiting in it: ranks 0-2, 4-7' in said


def test_ranks_that_left(analyze, tmp_path):
    """A rank whose process has ended is missing too."""
    for rank in range(4):
        write_rank(tmp_path, rank, matched(3) if rank == 1 else matched(3) + [call('broadcast', 3, open=True)], world=4,
                   footer='exit' if rank == 1 else None)
    answer = analyze('hang', tmp_path)
    assert only_fault(answer)['blamed_ranks'] == [1]
    assert (row_of(answer, 1)['process'], row_of(answer, 1)['state']) == ('ended', 'ended')
    assert 'rank 1; its process has ended' in analyze('hang', tmp_path, format=None).out


@pytest.mark.parametrize('footer', ['exit', None], ids=['ended', 'killed'])
def test_a_rank_that_raised(analyze, tmp_path, footer):
    """The traceback says where a rank left, also if it was killed in its clean-up, in which it fell silent."""
    for rank in range(4):
        calls = matched(3) if rank == 1 else matched(3) + [call('broadcast', 3, open=True)]
        here = dict(footer=footer, raised=('OwnError', [('fail', '/job/train.py', 7), ('train', '/job/train.py', 40)]),
                    frames=[('clean_up', '/job/train.py', 90)]) if rank == 1 else {}
        write_rank(tmp_path, rank, calls, world=4, **here)
    answer = analyze('hang', tmp_path)
    row = row_of(answer, 1)
    assert only_fault(answer)['blamed_ranks'] == [1]
    assert (row['state'], row['exception'], row['stack']) == ('left by exception', 'OwnError', ['fail /job/train.py:7', 'train /job/train.py:40'])
    assert [row_of(answer, rank)['exception'] for rank in (0, 2, 3)] == [None] * 3
    assert 'left by the exception OwnError, in Python fail /job/train.py:7\n' in analyze('hang', tmp_path, format=None).out


def test_a_thread_that_ran_on_while_its_process_aborted(analyze, tmp_path):
    """The frames that abort() read of another thread say where it was, also if that thread called once more before the end."""
    for rank in range(4):
        calls = matched(3) + [call('all_reduce', 3, time=10 ** 12)]
        here = dict(aborted=[('step', '/job/train.py', 30)]) if rank == 1 else {}
        write_rank(tmp_path, rank, calls if rank == 1 else calls + [call('broadcast', 4, open=True, time=10 ** 12 + 10 ** 6)], world=4, **here)
    row = row_of(analyze('hang', tmp_path), 1)
    assert (row['process'], row['stack']) == ('aborted', ['step /job/train.py:30'])


def test_an_exception_before_further_collectives(analyze, tmp_path):
    """A rank that calls collectives after an uncaught exception has not left, as in an interactive session."""
    for rank in range(4):
        calls = matched(3) + [call('broadcast', 3, open=True, time=10 ** 10)]
        write_rank(tmp_path, rank, calls, world=4, raised=('OwnError', [('fail', '/job/train.py', 7)]) if rank == 1 else None)
    row = row_of(analyze('hang', tmp_path), 1)
    assert (row['state'], row['exception'], row['stack']) == ('in collective', None, None)


def test_nothing_is_unmatched(analyze, tmp_path):
    for rank in range(4):
        write_rank(tmp_path, rank, matched(5), world=4)
    answer = analyze('hang', tmp_path)
    assert answer['totals']['unmatched'] == [] and answer['totals']['verdict'][0].startswith('no collective is unmatched')


def test_a_first_collective_that_a_rank_never_called(analyze, tmp_path):
    """A rank without any collective is a member of a group as large as the world."""
    for rank in range(4):
        write_rank(tmp_path, rank, [call('all_reduce', 0, open=True)] if rank else [], world=4)
    assert only_fault(analyze('hang', tmp_path))['blamed_ranks'] == [0]


# ---- different calls ----

OTHER = {'operation': dict(op='all_gather'), 'count': dict(count=999), 'datatype': dict(type=DOUBLE)}


@pytest.mark.parametrize('kind', OTHER)
def test_a_rank_that_calls_something_else(analyze, tmp_path, kind):
    for rank in range(WORLD):
        other = OTHER[kind] if rank == 6 else {}
        write_rank(tmp_path, rank, matched(4) + [call(**{'op': 'all_reduce', 'seq': 4, 'open': True, **other})])
    answer = analyze('hang', tmp_path)
    fault = only_fault(answer)
    assert (fault['fault'], fault['seq'], fault['blamed_ranks'], fault['missing_ranks']) == ('mismatch', 4, [6], None)
    assert row_of(answer, 6)['mismatch'].startswith(kind + ': ')
    assert all(row_of(answer, rank)['mismatch'] is None for rank in range(WORLD) if rank != 6)


@pytest.mark.parametrize('op', ['broadcast', 'reduce'])
def test_a_rank_with_another_root(analyze, tmp_path, op):
    """The root is named by its number in the group; a rank whose root is unknown is not blamed."""
    for rank in range(WORLD):
        write_rank(tmp_path, rank, matched(4) + [call(op, 4, open=True, peer={6: 6, 3: -1}.get(rank, 2))])
    answer = analyze('hang', tmp_path)
    fault = only_fault(answer)
    assert (fault['fault'], fault['seq'], fault['blamed_ranks'], fault['missing_ranks']) == ('mismatch', 4, [6], None)
    assert [row_of(answer, rank)['mismatch'] for rank in range(WORLD)] == ['root: 6, not 2' if rank == 6 else None for rank in range(WORLD)]


def test_collectives_in_another_order(analyze, tmp_path):
    """Enqueued collectives do not block, so that the rest of the order is known."""
    for rank in range(WORLD):
        ops = ['all_gather', 'all_reduce'] if rank == 2 else ['all_reduce', 'all_gather']
        write_rank(tmp_path, rank, matched(4) + [call(op, 4 + i) for i, op in enumerate(ops)], inside=('cudaDeviceSynchronize', 9 * STEP))
    answer = analyze('hang', tmp_path)
    assert (only_fault(answer)['blamed_ranks'], only_fault(answer)['seq']) == ([2], 4)
    assert row_of(answer, 2)['collective'] == 'all_reduce'  # its last call
    assert any('rank 2: all_gather of 1000 Float (order: all_gather, not all_reduce)' in line for line in answer['totals']['verdict'])


def test_two_ranks_that_differ_blame_nobody(analyze, tmp_path):
    for rank in range(2):
        write_rank(tmp_path, rank, [call('all_reduce' if rank else 'broadcast', 0, open=True)], world=2)
    answer = analyze('hang', tmp_path)
    assert (only_fault(answer)['fault'], only_fault(answer)['blamed_ranks']) == ('mismatch', None)
    assert any('cannot tell which one' in line for line in answer['totals']['verdict'])


# ---- several groups ----

def test_a_rank_that_is_held_up_is_not_blamed(analyze, tmp_path):
    """Ranks 2 and 3 are a pair. Rank 3 never comes to the pair's collective, so that rank 2 never comes to that of the world."""
    groups = {0xabc: [0, 1, 2, 3], 0x22: [2, 3]}
    for rank in range(4):
        calls = matched(2) + ([call('all_reduce', 0, group=0x22)] if rank >= 2 else [])
        if rank < 2:
            calls.append(call('all_gather', 2, open=True))
        elif rank == 2:
            calls.append(call('broadcast', 1, group=0x22, open=True))
        write_rank(tmp_path, rank, calls, world=4, groups=groups)
    first, second = analyze('hang', tmp_path)['totals']['unmatched']
    assert (first['fault'], first['size'], first['blamed_ranks'], first['waiting_ranks']) == ('missing', 2, [3], [2])
    assert (second['size'], second['missing_ranks'], second['blamed_ranks']) == (4, [2, 3], [3])


def test_ranks_that_wait_for_each_other(analyze, tmp_path):
    """Each rank waits in the group that the other one comes to later: nobody is blamed, and both collectives are shown."""
    for rank, group in enumerate((0x11, 0x22)):
        calls = [call('all_reduce', 0, group=0x11), call('all_reduce', 0, group=0x22), call('all_reduce', 1, group=group, open=True)]
        write_rank(tmp_path, rank, calls, world=2)
    faults = analyze('hang', tmp_path)['totals']['unmatched']
    assert [f['missing_ranks'] for f in faults] in ([[0], [1]], [[1], [0]]) and all(f['blamed_ranks'] is None for f in faults)


def test_a_message_without_a_receiver(analyze, tmp_path):
    for rank in range(2):
        calls = matched(2) + [call('send' if rank == 0 else 'recv', 0, group=0xabc, peer=1 - rank)]
        calls += [call('send', 1, peer=1, open=True)] if rank == 0 else []
        write_rank(tmp_path, rank, calls, world=2)
    fault = only_fault(analyze('hang', tmp_path))
    assert (fault['collective'], fault['waiting_ranks'], fault['missing_ranks']) == ('send', [0], [1])


# ---- evidence that is not sufficient ----

def stuck(tmp_path, at_fault, **more):
    """Four ranks of which one, written with other options, does not come to the last collective."""
    for rank in range(4):
        mine = more if rank == at_fault else {}
        write_rank(tmp_path, rank, matched(3) + ([] if rank == at_fault else [call('all_reduce', 3, open=True)]), world=4, **mine)


@pytest.mark.parametrize('why', [dict(drops={'no_chunk': 1}), dict(info={'env.ENABLE_PROFILER_NAMES': 'denoise'}), dict(live=False)],
                         ids=['losses', 'selection', 'no-live-file'])
def test_a_rank_with_an_incomplete_trace_is_not_named(analyze, tmp_path, why):
    stuck(tmp_path, 2, **why)
    answer = analyze('hang', tmp_path, rc=3)
    fault = only_fault(answer)
    assert (fault['missing_ranks'], fault['blamed_ranks'], fault['unknown_ranks']) == (None, None, [2])


def test_losses_of_the_device_do_not_matter(analyze, tmp_path):
    stuck(tmp_path, 2, drops={'device_kept': 1})
    assert only_fault(analyze('hang', tmp_path, rc=3))['blamed_ranks'] == [2]


def test_a_rank_without_a_trace_is_not_named(analyze, tmp_path):
    stuck(tmp_path, 2)
    next(tmp_path.glob('rank2.*.tfr')).unlink()
    next(tmp_path.glob('rank2.*.live')).unlink()
    answer = analyze('hang', tmp_path, rc=3)
    assert answer['totals']['unmatched'] == [] or only_fault(answer)['missing_ranks'] is None
    assert any('rank 2 of 4 ranks has no trace' in line for line in answer['totals']['not_known'])
    assert 'tfanalyze: not known: rank 2 of 4 ranks has no trace' in analyze('hang', tmp_path, rc=3, format='csv').err


def test_a_pytorch_trace(analyze, tmp_path):
    """The message says what the trace lacks and what hang needs; a .live file is nothing that it could have."""
    kineto.Trace(distributedInfo={'rank': 0, 'world_size': 1}).stage('forward', 0, 100).write(tmp_path / 'a.json')
    line = analyze('hang', tmp_path / 'a.json', rc=3)['totals']['not_known'][-1]
    assert line.startswith('1 process: a PyTorch trace, ') and 'hang needs the traces of libtfinject.so' in line
    assert '.live' not in analyze('hang', tmp_path / 'a.json', rc=3, format='text').out


def test_ranks_of_another_job(analyze, tmp_path):
    """Traces of another world are another run: then nobody is named."""
    stuck(tmp_path, 2)
    write_rank(tmp_path, 9, matched(1), world=16)
    answer = analyze('hang', tmp_path, rc=3)
    assert all(f['missing_ranks'] is None for f in answer['totals']['unmatched'])
    assert any('separate times or worlds' in line for line in answer['totals']['not_known'])


def test_a_rank_with_another_clock(analyze, tmp_path):
    """Ranks of another host whose clock is an hour ahead are matched by their numbers."""
    for rank in range(4):
        calls = matched(3) + ([] if rank == 1 else [call('all_reduce', 3, open=True)])
        write_rank(tmp_path, rank, calls, world=4, host=f'host{rank // 2}', realtime=10 ** 18 + (rank // 2) * 3600 * 10 ** 9)
    assert only_fault(analyze('hang', tmp_path))['blamed_ranks'] == [1]


def test_numbers_above_2_53(analyze, tmp_path):
    sequence, group = 2 ** 62 + 1, 2 ** 63 + 3
    for rank in range(2):
        calls = [call('all_reduce', sequence, group=group, count=2 ** 60 + 1)]
        calls += [call('all_reduce', sequence + 1, group=group, count=2 ** 60 + 3, open=True)] if rank else []
        write_rank(tmp_path, rank, calls, world=2)
    fault = only_fault(analyze('hang', tmp_path))
    assert (fault['seq'], fault['group'], fault['blamed_ranks']) == (sequence + 1, f'{group:#018x}', [0])


@pytest.mark.slow
def test_many_ranks(analyze, tmp_path):
    """One rank of a thousand is missing."""
    for rank in range(1000):
        write_rank(tmp_path, rank, matched(2) + ([] if rank == 617 else [call('all_reduce', 2, open=True)]), world=1000)
    fault = only_fault(analyze('hang', tmp_path))
    assert fault['blamed_ranks'] == [617] and len(fault['waiting_ranks']) == 999


# ---- random jobs ----

@pytest.mark.parametrize('seed', range(12))
def test_random_jobs(analyze, tmp_path, seed):
    """Ranks that were killed anywhere in one order of calls: only those that are behind are missing, and only one group's
    first unmatched collective is shown."""
    rng = random.Random(seed)
    world = rng.choice([2, 4, 8])
    groups = {0x100: list(range(world)), 0x200: list(range(0, world, 2)), 0x300: list(range(1, world, 2))}
    order, numbers = [], dict.fromkeys(groups, 0)
    for _ in range(rng.randrange(5, 40)):
        group = rng.choice(list(groups))
        order.append(call(rng.choice(['all_reduce', 'all_gather', 'broadcast']), numbers[group], group=group, count=rng.choice([10, 1000])))
        numbers[group] += 1
    done = {}
    for rank in range(world):
        mine = [c for c in order if rank in groups[c.group]]
        stop = rng.randrange(len(mine) + 1)
        calls = [call(c.op, c.seq, c.group, c.count, open=i == stop - 1 and rng.random() < 0.5) for i, c in enumerate(mine[:stop])]
        write_rank(tmp_path, rank, calls, world=world, groups=groups)
        for group in groups:
            done[rank, group] = sum(c.group == group for c in calls)
    answer = analyze('hang', tmp_path, rc=None)
    expected = {}
    for group, ranks in groups.items():
        least = min((done[r, group] for r in ranks), default=0)
        if any(done[r, group] > least for r in ranks):
            expected[f'{group:#018x}'] = (least, [r for r in ranks if done[r, group] == least])
    found = {f['group']: (f['seq'], f['missing_ranks'] or None) for f in answer['totals']['unmatched'] if f['fault'] != 'never_ends'}
    assert found == expected
    for f in answer['totals']['unmatched']:
        assert set(f['blamed_ranks'] or []) <= set(f['missing_ranks'] or [])


# ---- damage ----

def test_damaged_live_files(tfanalyze, tmp_path, analyze):
    """Any bytes in the slots: an answer or a refusal, never a crash."""
    stuck(tmp_path, 2)
    rng = random.Random(4)
    live = next(tmp_path.glob('rank1.*.live'))
    whole = live.read_bytes()
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 30)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        live.write_bytes(data[:rng.choice([len(data), rng.randrange(len(data))])])
        analyze('hang', tmp_path, rc=None)
