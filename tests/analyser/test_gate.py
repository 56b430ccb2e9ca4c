"""test_gate - `diff --gate`: repeated runs of two sides, judged as scipy's Welch test judges them; exit statuses.

The error rates of the mathematics are in tests/unit/analysis_gate.c.
"""

import json
import math
import random
import statistics

import pytest

import kineto

GATE, ERROR = 5, .04  # percent; the error rate that the help page states


def timing(path, **stages):
    """A timing.json whose total is that of its stages, in milliseconds."""
    path.write_text(json.dumps({'total_stages_ms': sum(stages.values()), 'stages': {name: {'duration_ms': ms} for name, ms in stages.items()}}))
    return path


def sides(tmp_path, seed, factor, runs=(7, 7), noise=.015, names=('encode', 'decode')):
    """Files of both sides, and {stage: ([ms of A], [ms of B])}."""
    rng, files, truth = random.Random(seed), ([], []), {name: ([], []) for name in names}
    for side, count in enumerate(runs):
        for i in range(count):
            times = {name: 100 * (factor if side else 1) * (1 + rng.gauss(0, noise)) for name in names}
            files[side].append(timing(tmp_path / f'{"ab"[side]}{i}.json', **times))
            for name, ms in times.items():
                truth[name][side].append(ms)
    return files, truth


def gate(analyze, files, *words, rc=0, **more):
    return analyze('diff', '--gate', GATE, *words, *files[0], '--', *files[1], rc=rc, **more)


def bounds(stats, a, b, rows):
    """The one-sided bounds of the change in percent, by scipy's Welch test on logarithms."""
    a, b = [math.log(x) for x in a], [math.log(x) for x in b]
    lowest = stats.ttest_ind(b, a, equal_var=False, alternative='greater').confidence_interval(1 - ERROR / rows).low
    highest = stats.ttest_ind(b, a, equal_var=False, alternative='less').confidence_interval(1 - ERROR).high
    return 100 * math.expm1(lowest), 100 * math.expm1(highest)


@pytest.mark.parametrize('runs', [(3, 3), (7, 7), (4, 12)])
def test_as_scipy_judges(analyze, tmp_path, runs):
    stats = pytest.importorskip('scipy.stats')
    seen = set()
    for seed, factor in enumerate((.9, 1, 1.05, 1.2)):
        files, truth = sides(tmp_path, seed, factor, runs)
        verdicts = {}
        for name, (a, b) in truth.items():
            lowest, highest = bounds(stats, a, b, len(truth))
            verdicts[name] = lowest, highest, 'regressed' if lowest > GATE else 'passed' if highest < GATE else 'inconclusive'
        passed = all(verdict == 'passed' for *_, verdict in verdicts.values())
        answer = gate(analyze, files, '--by', 'stage', rc=0 if passed else 4)
        assert {r['name'] for r in answer['rows']} == set(truth) and answer['totals']['passed'] == passed
        for row in answer['rows']:
            (a, b), (lowest, highest, verdict) = truth[row['name']], verdicts[row['name']]
            assert row['mean_a_us'] == pytest.approx(1000 * statistics.geometric_mean(a), abs=.01)
            assert row['mean_b_us'] == pytest.approx(1000 * statistics.geometric_mean(b), abs=.01)
            assert (row['lowest_pct'], row['highest_pct']) == (pytest.approx(lowest, abs=1e-3), pytest.approx(highest, abs=1e-3))
            assert row['verdict'] == verdict and (row['more_runs'] is None or (row['more_runs'] > 0) == (verdict == 'inconclusive'))
            seen.add(verdict)
    assert seen == {'regressed', 'inconclusive', 'passed'}


def test_the_runs_it_names_are_what_scipy_says(analyze, tmp_path):
    """With that many runs the test decides nine times of ten, if the change and the noise are those measured; with one less it does not."""
    stats = pytest.importorskip('scipy.stats')
    files, truth = sides(tmp_path, 3, 1.065, names=['encode'])
    row, = gate(analyze, files, rc=4)['rows']
    a, b = ([math.log(x) for x in side] for side in truth['encode'])
    distance, noise = statistics.mean(b) - statistics.mean(a) - math.log1p(GATE / 100), statistics.variance(a) + statistics.variance(b)

    def decides(runs):
        t = stats.t(2 * runs - 2)
        return (t.isf(ERROR) + t.isf(.1)) * math.sqrt(noise / runs) <= abs(distance)
    assert row['verdict'] == 'inconclusive' and decides(7 + row['more_runs']) and not decides(6 + row['more_runs'])


# ---- runs, stages, operators ----

def trace(path, step, mm, rank=0, extra=None):
    """A step with two operators, in microseconds; the longer one may take longer."""
    t = kineto.Trace(distributedInfo={'rank': rank}).stage('step', 0, step)
    t.operator('aten::mm', 10, mm).operator('aten::relu', 20 + mm, 50)
    if extra:
        t.operator(extra, 100 + mm, 20)
    return t.write(path)


def slow_mm(tmp_path, **b):
    return ([trace(tmp_path / f'a{i}.json', 1000 + i % 3, 200 + i % 2) for i in range(6)],
            [trace(tmp_path / f'b{i}.json', 1004 + i % 3, 240 + i % 2, **b) for i in range(6)])


def test_by_run_stage_and_operator(analyze, tmp_path):
    """Operators tell what the whole run hides: one of them takes a fifth longer, the run does not."""
    files = slow_mm(tmp_path)
    for by in ('run', 'stage'):
        answer = gate(analyze, files, '--by', by)
        assert [(r['kind'], r['verdict'], r['runs_a'], r['runs_b']) for r in answer['rows']] == [(by, 'passed', 6, 6)]
        assert answer['rows'][0]['change_pct'] == pytest.approx(.4, abs=.01)
    assert gate(analyze, files) == gate(analyze, files, '--by', 'run')
    result = gate(analyze, files, '--by', 'op', rc=4)
    assert [(r['name'], r['kind'], r['verdict']) for r in result['rows']] == [('aten::mm', 'operator', 'regressed'), ('aten::relu', 'operator', 'passed')]
    assert result['totals'] | {'passed': False, 'gate_pct': 5, 'error_pct': 4, 'rows': 2, 'regressed': 1, 'inconclusive': 0, 'absent': 0} == result['totals']
    assert [p['path'] for p in result['inputs']] == [str(f) for side in files for f in side]
    said = gate(analyze, files, '--by', 'op', rc=4, format='text').err
    assert 'aten::mm, 20.0 %, at least' in said
    gate(analyze, files[::-1], '--by', 'op')  # it takes less


def test_noise_is_shared_by_the_rows(analyze, tmp_path):
    """With many rows each needs more evidence: the lowest bound of the same times is lower."""
    lowest = []
    for names in (['encode'], ['encode', *'abcdefghi']):
        rng = random.Random(4)
        files = [[timing(tmp_path / f'{side}{i}.json', **{n: factor * 100 * (1 + (rng.gauss(0, .02) if n == 'encode' else 0)) for n in names}) for i in range(5)]
                 for side, factor in (('a', 1), ('b', 1.3))]
        rows = {r['name']: r for r in gate(analyze, files, '--by', 'stage', rc=4)['rows']}
        lowest.append(rows['encode']['lowest_pct'])
    assert lowest[1] < lowest[0] - 2


def test_small_rows_are_counted_and_not_judged(analyze, tmp_path):
    files = [[timing(tmp_path / f'{side}{i}.json', encode=100 + i, tiny=tiny) for i in range(4)] for side, tiny in (('a', .5), ('b', .9))]
    answer = gate(analyze, files, '--by', 'stage')
    assert [r['name'] for r in answer['rows']] == ['encode'] and answer['totals']['small'] == 1


# ---- what cannot be judged ----

@pytest.mark.parametrize('runs, more', [((1, 1), 2), ((2, 9), 1), ((3, 2), 1)])
def test_too_few_runs(analyze, tmp_path, runs, more):
    files, _ = sides(tmp_path, 1, 3, runs)
    answer = gate(analyze, files, rc=4)
    assert [(r['verdict'], r['more_runs'], r['lowest_pct']) for r in answer['rows']] == [('inconclusive', more, None)]
    assert f'{more} more runs of each side may be judged' in gate(analyze, files, rc=4, format='text').err


def test_a_row_that_a_run_lacks(analyze, tmp_path):
    files = slow_mm(tmp_path, extra='aten::new')
    answer = gate(analyze, files, '--by', 'op', rc=4)
    assert {r['name']: r['verdict'] for r in answer['rows']} == {'aten::mm': 'regressed', 'aten::new': 'absent', 'aten::relu': 'passed'}
    assert 'the first: aten::new' in gate(analyze, files, '--by', 'op', rc=4, format='text').err


def test_a_run_that_is_not_whole(analyze, tmp_path):
    a, b = slow_mm(tmp_path)
    b[2].write_text(b[2].read_text()[:-40])
    answer = gate(analyze, (a, b), rc=4)
    assert not answer['totals']['passed'] and [p['complete'] for p in answer['inputs']].count(False) == 1
    assert '1 of 12 runs are not whole' in gate(analyze, (a, b), rc=4, format='text').err
    b[2].write_text('noise')
    result = gate(analyze, (a, b), rc=1, format='text')
    assert not result.out and f'{b[2]} is a run without anything to judge' in result.err


def test_other_ranks(analyze, tmp_path):
    sides = [[], []]
    for side, ranks in enumerate(((0, 1), (0,))):
        for i in range(3):
            run = tmp_path / f'{side}{i}'
            run.mkdir()
            for rank in ranks:
                trace(run / f'{rank}.json', 1000 + i, 200, rank=rank)
            sides[side].append(run)
    assert 'not all runs have the same ranks' in gate(analyze, sides, rc=4, format='text').err
    gate(analyze, sides, '--rank', '0')


def test_the_slowest_rank_is_the_run(analyze, tmp_path):
    sides = [[], []]
    for side, slowest in enumerate((1000, 1200)):
        for i in range(3):
            run = tmp_path / f'{side}{i}'
            run.mkdir()
            for rank in range(3):
                trace(run / f'{rank}.json', slowest if rank == i else 900, 200, rank=rank)
            sides[side].append(run)
    row, = gate(analyze, sides, rc=4)['rows']
    assert (row['mean_a_us'], row['mean_b_us'], row['verdict']) == (1000, 1200, 'regressed')


@pytest.mark.parametrize('words, said', [
    (['--gate', '0'], "--gate needs PCT, not '0'"), (['--gate', '-1'], "--gate needs PCT, not '-1'"), (['--gate', 'nan'], "--gate needs PCT, not 'nan'"),
    (['--gate', '5'], 'diff --gate needs repeated runs of both sides'), (['--gate', '5', '--html', 'page.html', '--', 'b.json'], 'a gate judges more'),
    (['--by', 'run', 'b.json'], '--by run needs --gate'), (['--gate', '5', '--device', '0', '--', 'b.json'], '--device needs --by kernel'),
    (['--gate', '5', '--by', 'op', '--', 'b.json'], '--by has no meaning for a timing.json'),
])
def test_wrong_usage(analyze, tmp_path, words, said):
    timing(tmp_path / 'a.json', encode=1)
    timing(tmp_path / 'b.json', encode=1)
    result = analyze('diff', 'a.json', *words, rc=2, format=None)
    assert said in result.err and not result.out and not (tmp_path / 'page.html').exists()


def test_one_run_is_no_repeated_run(analyze, tmp_path):
    """Three times the same file would have no noise, and pass. Both sides may have it: nothing changed."""
    a, b = ([timing(tmp_path / f'{side}{i}.json', encode=100 + i) for i in range(3)] for side in 'ab')
    (tmp_path / 'link.json').symlink_to(b[0])
    for sides in ([a[0]] * 3, b), (a, [*b, tmp_path / 'link.json']):
        result = gate(analyze, sides, rc=2, format=None)
        assert 'needs runs that are independent of each other' in result.err and 'twice' in result.err and not result.out
    gate(analyze, (a, a), rc=None)


def test_without_a_gate_two_dashes_end_the_options(analyze, tmp_path):
    a, b = (timing(tmp_path / name, encode=1) for name in ('a.json', 'b.json'))
    assert analyze('diff', '--format', 'csv', a, '--', b, format=None).out == analyze('diff', a, b, format='csv').out
