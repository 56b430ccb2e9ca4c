"""test_stragglers - the rank that holds the others up: against made jobs in which a rank is late by a known time."""

import random
from collections import Counter

import pytest

import comm_traces

WORLD, STEPS, EACH = 5, 4, 6


def late_job(directory, late, base=comm_traces.BASE, seed=1):
    """Ranks of a job of STEPS steps with EACH all_reduces in the stages `first` and `second` of each. `late(rank, step,
    stage)` adds nanoseconds to an arrival. Returns the paths and [(step, stage, {rank: arrival})]."""
    rng = random.Random(seed)
    events, truth = {rank: [] for rank in range(WORLD)}, []
    for step in range(STEPS):
        for place in range(EACH):
            number, stage = step * EACH + place, ('first', 'second')[place % 2]
            at = 1_000_000_000 + 10_000_000 * number
            say = comm_traces.description('allreduce', (1000, 1000), 'Float', WORLD, '0', list(range(WORLD)))
            came = {rank: at + rng.randrange(100_000) + late(rank, step, stage) for rank in events}
            for rank, start in came.items():
                events[rank] += comm_traces.collective(say, number, start, max(came.values()) + 50_000, rank)
                events[rank].append(comm_traces.event('user_annotation', stage, at - 1_000_000, start - 15_000, 1, 500 + rank))
            truth.append((step, stage, came))
        for rank in events:
            begin = 1_000_000_000 + 10_000_000 * step * EACH - 2_000_000
            events[rank].append(comm_traces.event('user_annotation', f'ProfilerStep#{step}', begin, begin + 10_000_000 * EACH, 1, 500 + rank))
    return [comm_traces.write(directory / f'{rank}.json', rank, WORLD, events[rank], base) for rank in events], truth


def expected(truth):
    """{(rank, step, stage): (collectives, late, score)} and the same of each rank in all, in nanoseconds."""
    calls, late, skew, of_rank = Counter(), Counter(), Counter(), Counter()
    for step, stage, came in truth:
        second, latest = sorted(came.values())[-2:]
        rank = max(came, key=came.get)
        calls[rank, step, stage] += 1
        late[rank, step, stage] += latest - second
        of_rank[rank] += latest - second
        skew[step] += latest - min(came.values())
    return {key: (calls[key], late[key], late[key] / skew[key[1]]) for key in calls}, of_rank, sum(skew.values())


def check(answer, truth):
    rows, of_rank, skew = expected(truth)
    assert {(r['rank'], r['step'], r['stage']) for r in answer['rows']} == set(rows)
    for row in answer['rows']:
        collectives, late, score = rows[row['rank'], row['step'], row['stage']]
        assert (row['collectives'], round(row['late_us'] * 1000)) == (collectives, late)
        assert row['score'] == pytest.approx(score, rel=1e-12)
    times = [row['late_us'] for row in answer['rows']]
    assert times == sorted(times, reverse=True)
    [(most, time)] = of_rank.most_common(1)
    assert (answer['totals']['rank'], round(answer['totals']['late_us'] * 1000)) == (most, time)
    assert answer['totals']['score'] == pytest.approx(time / skew, rel=1e-12)
    assert answer['totals']['collectives'] == len(truth)


@pytest.mark.parametrize('base', [comm_traces.BASE, None], ids=['one-clock', 'durations'])
def test_a_rank_that_is_late_in_one_stage(analyze, tmp_path, base):
    """Rank 3 comes 2 ms late in the stage `second` of two steps: these rows lead, and their score is near 1."""
    paths, truth = late_job(tmp_path, lambda rank, step, stage: 2_000_000 * (rank == 3 and step > 1 and stage == 'second'), base)
    answer = analyze('stragglers', *paths)
    check(answer, truth)
    assert [(r['rank'], r['stage'], r['collectives']) for r in answer['rows'][:2]] == [(3, 'second', EACH // 2)] * 2
    assert {r['step'] for r in answer['rows'][:2]} == {2, 3}
    assert all(r['score'] > 0.9 for r in answer['rows'][:2]) and answer['totals']['rank'] == 3


def test_ranks_that_take_turns(analyze, tmp_path):
    """Nobody stands out: no score of a whole run is large."""
    paths, truth = late_job(tmp_path, lambda rank, step, stage: 0)
    answer = analyze('stragglers', *paths)
    check(answer, truth)
    assert answer['totals']['score'] < 0.5


def test_of_a_step_and_the_first_rows(analyze, tmp_path):
    paths, truth = late_job(tmp_path, lambda rank, step, stage: 1_000_000 * (rank == step))
    check(analyze('stragglers', '--step', '1-2', *paths), [t for t in truth if t[0] in (1, 2)])
    [row] = analyze('stragglers', '--top', '1', '--stage', 'first', *paths)['rows']
    assert row['rank'] == row['step'] and row['stage'] == 'first'


def test_one_rank_alone_is_nobody(analyze, tmp_path):
    paths, _ = late_job(tmp_path, lambda rank, step, stage: 0)
    answer = analyze('stragglers', paths[0], rc=3)
    assert answer['rows'] == [] and answer['totals']['rank'] is answer['totals']['score'] is None
    assert 'lateness is unknown' in analyze('stragglers', paths[0], rc=3, format=None).err


def test_order_of_inputs_and_threads_change_nothing(analyze, tmp_path):
    paths, _ = late_job(tmp_path, lambda rank, step, stage: 1000 * rank)
    answers = [analyze('stragglers', '-j', jobs, *order) for jobs in ('1', '3') for order in (paths, paths[::-1])]
    assert all((a['rows'], a['totals']) == (answers[0]['rows'], answers[0]['totals']) for a in answers)


def test_rules_have_no_meaning(analyze, tmp_path):
    paths, _ = late_job(tmp_path, lambda rank, step, stage: 0)
    analyze('stragglers', '--rules', 'tracelens', *paths, rc=2, format=None)
