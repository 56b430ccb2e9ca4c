"""test_hta_diff - `diff --rules hta` against TraceDiff of HTA 0.5.0, on every pair of its traces and on random ones.

tests/hta_pairs.txt lists the pairs, as test_hta.py tells.
"""

import json

import pytest

from test_hta import ask, jobs, listed, written_at_random

pytestmark = [pytest.mark.xdist_group('hta_diff'), pytest.mark.timeout(1500)]
FEW = ('hta/amd', 'hta/call_stack', 'hta/critical_path', 'hta/ns_resolution', 'hta/trace_compare', 'hta/triton')
STATES = {'added': 'added', 'deleted': 'removed', 'increased': 'increased', 'decreased': 'decreased', 'unchanged': 'same'}
BY = {'ALL': [], 'CPU': ['--by', 'op'], 'GPU': ['--by', 'kernel']}
ROUNDED = 0.0011  # microseconds: HTA adds up doubles


def same(answer, theirs):
    """The rows of compare_traces: counts are equal, and times up to the rounding of doubles."""
    ours, theirs = {r['name']: r for r in answer['rows']}, {r['name']: r for r in theirs}
    assert set(ours) == set(theirs) and len(ours) == len(answer['rows'])
    for name, row in theirs.items():
        one = ours[name]
        assert (one['calls_a'], one['calls_b']) == (row['a_counts'], row['b_counts']), name
        times = (row['a_total_duration'], row['b_total_duration'], row['diff_duration'])
        assert (one['total_a_us'], one['total_b_us'], one['change_us']) == pytest.approx(times, rel=1e-9, abs=ROUNDED), name


def states(answer):
    found = {state: set() for state in STATES.values()}
    for row in answer['rows']:
        found[row['state']].add(row['name'])
    return found


def agree(analyze, a, b, theirs):
    for kind, by in BY.items():
        if kind in theirs:
            same(analyze('diff', a, b, '--rules', 'hta', *by), theirs[kind])
    answer = analyze('diff', a, b, '--rules', 'hta')
    assert states(answer) == {ours: set(theirs['ops'][word]) for word, ours in STATES.items()}
    for state, names in states(answer).items():
        assert answer['totals'][state] == len(names)


@pytest.fixture(scope='session')
def hta_diff(python, shared_traces):
    """HTA's answers on all pairs; it takes minutes."""
    return ask(python, jobs(), 'diff')


def check_pairs(analyze, answers, traces, wanted):
    """Compares the pairs of the list whose jobs are wanted; returns their number."""
    pairs = {pair: expected for (analysis, pair), expected in listed().items() if analysis == 'diff' and wanted(*pair.split('|'))}
    for pair, expected in pairs.items():
        a, b = (traces / name for name in pair.split('|'))
        if expected == 'agree':
            agree(analyze, a, b, answers[pair])
        else:
            assert answers[pair] == expected == 'ValueError'
            assert 'has no step (ProfilerStep#N)' in analyze('diff', a, b, '--rules', 'hta', rc=1, format='text').err
    return len(pairs)


@pytest.mark.soak
@pytest.mark.parametrize('job', jobs())
def test_pairs(analyze, hta_diff, shared_traces, job):
    assert check_pairs(analyze, hta_diff, shared_traces, lambda a, b: a == job)


@pytest.mark.slow
def test_pairs_of_small_traces(analyze, python, shared_traces):
    few = {name: files for name, files in jobs().items() if name.startswith(FEW)}
    assert check_pairs(analyze, ask(python, few, 'diff'), shared_traces, lambda a, b: a in few and b in few) == len(few) * (len(few) + 1) // 2 > 20


@pytest.mark.slow
def test_traces_at_random(analyze, python, tmp_path):
    """Steps and their shadows that overlap, calls without work, streams 0 and -1, several ranks."""
    files = dict(list(written_at_random(tmp_path).items())[:14])
    answered = 0
    for pair, theirs in ask(python, files, 'diff').items():
        a, b = pair.split('|')
        if len(files[a]) + len(files[b]) > 2 or theirs == 'ValueError':
            continue
        agree(analyze, files[a][0], files[b][0], theirs)
        answered += 1
    assert answered > 10


def test_steps_and_ranks(analyze, shared_traces):
    """--step and --rank choose as HTA's arguments do; the rows of two steps are those of each."""
    run = shared_traces / 'hta' / 'trace_compare' / 'base'
    steps = [json.loads(json.dumps({r['name']: r['calls_a'] for r in analyze('diff', run, run, '--rules', 'hta', '--step', s)['rows']}))
             for s in ('1009', '1010', '1009-1010')]
    assert steps[0] and steps[1] and steps[2] == {n: steps[0].get(n, 0) + steps[1].get(n, 0) for n in {*steps[0], *steps[1]}}
