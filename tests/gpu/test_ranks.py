"""test_ranks - comm, stragglers and timeline of 1,024 ranks in one command: right answers, bounded memory, few descriptors.

The ranks are made from four ranks that the simulated NCCL recorded (rank_traces.py). The memory of the command may grow
with its summaries, and not with the events of the ranks.
"""

import json
import sys
import time
from collections import Counter

import pytest

import rank_traces
import scripted
import test_nccl
import tfr
from conftest import COMMAND_TIMEOUT, clean_environment, execute, short_form

MANY, FEW = 1024, 128
RECORDED, LATE, TIMES = 4, 2, 12  # rank LATE came last to TIMES collectives
DESCRIPTORS = 64
PART, INPUT = 200, 3 * 4608  # bytes of a collective in the summary of a rank, and of an input's description: it stands twice, in lists with room to grow
HOLES = 2 << 20  # bytes: each thread has a heap of its own, with holes that no other thread fills
# Runs a command with few descriptors, and prints its peak of resident memory. A small process starts the command, because
# the peak of a command is never below that of the process that started it.
PEAK = ('import resource, subprocess, sys\n'
        'resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]),) * 2)\n'
        'status = subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL).returncode\n'
        'print(1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n'
        'sys.exit(status)')


@pytest.fixture(scope='module')
def jobs(tmp_path_factory, lib):
    """{number of ranks: (run directory, truth)}"""
    directory = tmp_path_factory.mktemp('recorded')
    test_nccl.finish(test_nccl.start(directory, lib, RECORDED, 'late', LATE, 20, TIMES))
    recorded = scripted.traces(directory / 'run')
    found = {}
    for world in (FEW, MANY):
        place = tmp_path_factory.mktemp(f'job{world}')
        found[world] = place, rank_traces.make(recorded, place, world, world - RECORDED + LATE)
    return found


def ask(tfanalyze, tmp_path, *arguments, descriptors=DESCRIPTORS):
    """The JSON answers, and the peak of resident memory in bytes."""
    result = execute([sys.executable, '-S', '-c', PEAK, descriptors, tfanalyze, *arguments, '--format', 'json', '--output', tmp_path / 'answer'],
                     clean_environment())
    assert result.rc == 0, result.err
    return json.loads((tmp_path / 'answer').read_text()), int(result.out)


def ns(us):
    return round(us * 1000)


def check_comm(answer, truth, world):
    assert len(answer['rows']) == len(truth.ends) == TIMES + 2
    for row, collective, starts, end in zip(answer['rows'], truth.collectives, truth.starts, truth.ends):
        latest = max(starts.values())
        assert (row['name'], row['seq'], row['bytes']) == ('all_reduce', collective['sequence'], collective['bytes'])
        assert row['group'] == f'0x{collective["communicator"]:016x}' and row['ranks'] == row['size'] == world
        assert ns(row['start_skew_us']) == latest - min(starts.values())
        assert {int(rank): ns(wait) for rank, wait in row['wait_us'].items()} == {rank: latest - start for rank, start in starts.items()}
        assert ns(row['transfer_us']) == end - latest and ns(row['duration_us']) == end - min(starts.values())
        assert row['last_rank'] == min(rank for rank in starts if starts[rank] == latest)
        assert row['algbw_gbs'] == pytest.approx(row['bytes'] / (end - latest))
    totals = answer['totals']
    assert (totals['ranks'], totals['incomplete'], totals['mismatched'], totals['clock_residual_us']) == (world, 0, 0, 0)
    ahead = {rank: -ns(offset) for rank, offset in totals['clock_offset_us'].items()}
    assert ahead == {str(rank): rank_traces.AHEAD * (rank // rank_traces.PER_HOST) for rank in range(rank_traces.PER_HOST, world, rank_traces.PER_HOST)}


def check_stragglers(answer, truth, world):
    late, calls = Counter(), Counter()
    for collective, starts in zip(truth.collectives, truth.starts):
        second, latest = sorted(starts.values())[-2:]
        key = max(starts, key=starts.get), '(none)' if collective['sequence'] < 2 else 'step'
        late[key] += latest - second
        calls[key] += 1
    assert {(r['rank'], r['stage']): (ns(r['late_us']), r['collectives']) for r in answer['rows']} == {k: (late[k], calls[k]) for k in late}
    of_rank = Counter()
    for (rank, _), lateness in late.items():
        of_rank[rank] += lateness
    assert [(answer['totals']['rank'], ns(answer['totals']['late_us']))] == of_rank.most_common(1)
    assert answer['totals']['rank'] == world - RECORDED + LATE


def covered(spans):
    total, until = 0, None
    for start, end in sorted(spans):
        total += end - (start if until is None else max(start, min(until, end)))
        until = end if until is None else max(until, end)
    return total


def check_timeline(answer, truth, world):
    assert [row['rank'] for row in answer['rows']] == list(range(world)) and answer['totals']['ranks'] == world
    assert answer['totals']['works'] == world * (rank_traces.FILL + len(truth.ends))
    for row in answer['rows']:
        fill = truth.fill[row['rank'] % RECORDED]
        talk = [(starts[row['rank']], end) for starts, end in zip(truth.starts, truth.ends)]
        times = {'total': max(e for _, e in fill + talk) - min(s for s, _ in fill + talk), 'busy': covered(fill + talk),
                 'computation': covered(fill), 'communication': covered(talk), 'memcpy': 0}
        times['idle'] = times['total'] - times['busy']
        times['exposed_communication'] = times['busy'] - times['computation']
        assert {name: ns(row[f'{name}_us']) for name in times} == times


@pytest.mark.slow
def test_a_thousand_ranks_in_one_command(tfanalyze, jobs, tmp_path):
    place, truth = jobs[MANY]
    comm, stragglers, timeline = ask(tfanalyze, tmp_path, 'comm,stragglers,timeline', '-j', 8, place)[0]
    check_comm(comm, truth, MANY)
    check_stragglers(stragglers, truth, MANY)
    check_timeline(timeline, truth, MANY)


@pytest.mark.slow
@short_form(1, 'jobs_at_once', [4, 1])
def test_memory_grows_with_the_summaries_only(tfanalyze, jobs, tmp_path, jobs_at_once):
    """From 128 to 1,024 ranks the memory grows by the summaries of comm and stragglers, twice while they are united,
    and by the holes in the heaps of the threads.

    A command that needs the events of all ranks grows by several times as much."""
    def growth(*arguments):
        few, many = (ask(tfanalyze, tmp_path, *arguments, '-j', jobs_at_once, jobs[world][0])[1] for world in (FEW, MANY))
        return many - few
    limit = (MANY - FEW) * (2 * 2 * (TIMES + 2) * PART + INPUT) + jobs_at_once * HOLES
    assert growth('comm,stragglers,timeline') < limit < growth('stages,comm,stragglers,timeline') / 4


def are_inside(directory):
    """True once rank 0 is in a collective, and the call of rank 1 is recorded."""
    live = next(directory.glob('rank0.*.tfr.live'), None)  # a trace appears a moment before its live file
    second = next(directory.glob('rank1.*.tfr'), None)
    return bool(live and second and test_nccl.slot_of(live)
                and any(r.kind == 'collective' for r in tfr.read(second).records))


def test_ranks_killed_inside_a_collective(analyze, tmp_path, lib):
    """SIGKILL while rank 0 does not return from an all_reduce: the other rank's part is shown, with what it lacks."""
    processes = test_nccl.start(tmp_path, lib, 2, 'once', script=['0 AllReduce 0 delay 100000'])
    try:
        deadline = time.monotonic() + COMMAND_TIMEOUT
        while time.monotonic() < deadline and not are_inside(tmp_path / 'run'):
            time.sleep(0.05)
    finally:
        for p in processes:
            p.kill()
            p.communicate()
    answer = analyze('comm', tmp_path / 'run', rc=3)
    [row] = answer['rows']
    assert (row['name'], row['ranks'], row['size'], row['bytes']) == ('all_reduce', 1, 2, 4000)
    assert row['start_skew_us'] is row['wait_us'] is None and answer['totals']['incomplete'] == 1
    assert 'with 1 of 2 ranks' in analyze('comm', tmp_path / 'run', rc=3, format=None).err
    assert analyze('stragglers', tmp_path / 'run', rc=3)['totals']['rank'] is None
