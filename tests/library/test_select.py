"""test_select - ENABLE_PROFILER_NAMES selects the recorded calls; stages are timed in every case.

A script (tests/victims/script.c) makes calls with different numbers; the tests compare the list of recorded numbers.
"""

from functools import partial

import pytest

import scripted
from scripted import called, only, stages


@pytest.fixture
def script(run, victim):
    return partial(scripted.play, run, victim('script'))


@pytest.fixture
def recorded(script):
    """recorded(names, steps) -> the numbers of the recorded calls, in the one process that woke."""
    def recorded(names, steps):
        return called(only(script(steps, {'ENABLE_PROFILER_NAMES': names}).traces))
    return recorded


# ---- names ----

STEPS = ['call=1', 'push=vae_decode', 'call=2', 'pop', 'push=step_1', 'call=3', 'pop', 'push=step_12', 'call=4', 'pop',
         'push=ax', 'call=5', 'pop', 'push=text encode', 'call=6', 'pop', 'push=Vae_decode', 'call=7', 'pop', 'call=8']


@pytest.mark.parametrize('names, numbers', [
    (None, [1, 2, 3, 4, 5, 6, 7, 8]), ('', []), (' , ,', []), ('*', [2, 3, 4, 5, 6, 7]),
    ('vae_decode', [2]), ('vae_', []), ('decode', []), ('vae_*', [2]), ('*_decode', [2, 7]), ('vae*code', [2]),
    ('step_?', [3]), ('step_??', [4]), ('step_*', [3, 4]), ('[ab]x', [5]), ('[!ab]x', []), ('[a-c]x', [5]), ('[Vv]ae*', [2, 7]),
    ('text encode', [6]), (' text encode ,ax', [5, 6]), ('vae_decode,,  ax\t,', [2, 5]), ('nothing,step_1', [3]),
    ('text*', [6]), ('* *', [6]), ('**', [2, 3, 4, 5, 6, 7]), ('[', []), ('?', [])])
def test_names(script, names, numbers):
    result = script(STEPS, {'ENABLE_PROFILER_NAMES': names})
    trace = only(result.traces)
    assert called(trace) == numbers
    assert stages(trace) == ['vae_decode', 'step_1', 'step_12', 'ax', 'text encode', 'Vae_decode']


@pytest.mark.parametrize('pattern, name', [('[]]', ']'), ('[a-]', '-'), ('a[', 'a['), ('[^b]', 'a'), ('*a*b*', 'xaxxbx'),
                                           ('a\\*', 'a\\*'), ('[[:alpha:]]', ':]')])
def test_unusual_globs(script, analyze, pattern, name):
    trace = only(script([f'push={name}', 'call=1', 'pop', 'push=bb', 'call=2', 'pop'], {'ENABLE_PROFILER_NAMES': pattern}).traces)
    assert called(trace) == [1]
    assert [row['stage'] for row in analyze('stages', trace.path, '--stage', pattern)['rows']] == [name]


def test_a_glob_that_backtracks_a_lot_takes_no_time(recorded):
    assert recorded('*a*a*a*a*a*a*a*a*a*a*b', ['push=' + 'a' * 5000, 'call=1', 'pop']) == []


def test_long_names(recorded):
    name = 'n' * 250
    assert recorded(name, [f'push={name}', 'call=1', 'pop', f'push={name}n', 'call=2', 'pop']) == [1]


def test_glob_on_the_end_of_a_very_long_name(recorded):
    assert recorded('*end', ['push=' + 'n' * 5000 + 'end', 'call=1', 'pop']) == [1]


def test_a_long_list(recorded):
    names = ','.join(f'stage_{i}' for i in range(500))
    assert recorded(names, 'push=stage_499 call=1 pop push=stage_500 call=2 pop') == [1]


# ---- nesting ----

def test_stages_inside_a_selected_one(recorded):
    steps = 'push=outer call=1 push=in call=2 push=deep call=3 pop call=4 pop call=5 push=other call=6 pop call=7 pop call=8'
    assert recorded('in', steps) == [2, 3, 4]


def test_a_selected_stage_inside_itself(recorded):
    assert recorded('a', 'push=a push=a call=1 pop call=2 pop call=3') == [1, 2]


def test_nvtx_and_api_stages_select_alike(recorded):
    assert recorded('n*', 'nvtx_push=n call=1 push=x call=2 pop nvtx_pop call=3 push=n call=4 pop') == [1, 2, 4]


def test_ranges_that_overlap(recorded):
    """Started ranges end in any order; detail lasts until the last selected one ends."""
    steps = 'start=a start=other call=1 start=b end=0 call=2 end=2 call=3 end=1 call=4'
    assert recorded('a,b', steps) == [1, 2]


def test_more_pops_than_pushes(recorded):
    """Extra pops make no later stage look unselected, and no later call selected."""
    assert recorded('a', 'push=a pop pop pop call=1 push=a call=2 pop call=3') == [2]


# ---- threads ----

def test_thread_without_stages_follows_the_only_one_that_has_some(recorded):
    steps = 'push=a b.call=1 pop b.call=2 push=other b.call=3 pop'
    assert recorded('a', steps) == [1]


def test_thread_without_stages_follows_a_stage_of_another_thread_than_main(recorded):
    assert recorded('a', 'b.push=a call=1 c.call=2 b.call=3 b.pop call=4') == [1, 2, 3]


@pytest.mark.parametrize('steps', ['push=a b.push=other', 'b.push=other push=a', 'push=a b.push=a', 'b.push=a c.push=a'])
def test_thread_without_stages_follows_nobody_if_several_have_some(recorded, steps):
    assert recorded('a', [*steps.split(), 'd.call=1']) == []


def test_thread_follows_again_when_only_one_is_left(recorded):
    assert recorded('a', 'push=a b.push=other d.call=1 b.pop d.call=2 pop d.call=3') == [2]


def test_thread_with_stages_of_its_own_follows_nobody(recorded):
    assert recorded('a', 'push=a b.push=other b.call=1 call=2 b.pop b.call=3') == [2, 3]


def test_two_threads_with_selected_stages(recorded):
    assert recorded('a', 'push=a b.push=a call=1 b.call=2 pop call=3 b.call=4 b.pop call=5') == [1, 2, 3, 4]


def test_library_ranges_are_not_stages(recorded):
    """A mark opens no stage, so its thread still follows the other one."""
    assert recorded('*', 'push=a b.mark=m b.call=1 pop b.call=2') == [1]


def test_range_ended_by_another_thread(recorded):
    """A range counts for the thread that started it until the other thread ends it."""
    steps = 'start=a call=1 b.end=0 call=2 b.call=3 push=other call=4 pop'
    assert recorded('a', steps) == [1]


def test_range_of_a_thread_that_has_ended(recorded):
    """A thread's stages end with it: no other or new thread is in detail, and ending the range later does no harm."""
    assert recorded('a', 'b.start=a b.call=1 call=2 b.exit call=3 c.call=4 end=0 call=5 push=a call=6 pop call=7') == [1, 2, 6]


def test_thread_that_ended_with_stages_open(recorded):
    assert recorded('a', 'push=a b.push=other c.call=1 b.exit c.call=2 b.call=3 pop c.call=4') == [2, 3]


# ---- waking and forks ----

@pytest.mark.parametrize('names', ['', 'a', '*'])
def test_calls_alone_do_not_wake(script, names, tmp_path):
    result = script('call=1 call=2 b.call=3 b.exit call=4 child call=5 parent', {'ENABLE_PROFILER_NAMES': names})
    assert result.traces == [] and not (tmp_path / 'run').exists()


def test_calls_before_the_first_stage(script):
    """Without names, calls before the first stage are recorded from the first one; with names the process was asleep."""
    steps = 'call=1 b.call=2 push=a call=3 pop'
    assert called(only(script(steps).traces)) == [1, 2, 3]


def test_an_unselected_stage_wakes_for_its_times_only(script):
    trace = only(script('call=1 push=other call=2 pop', {'ENABLE_PROFILER_NAMES': 'a'}).traces)
    assert (called(trace), stages(trace)) == ([], ['other'])


def test_forked_child_in_a_selected_stage(script):
    """A forked child has none of its parent's stages: it sleeps through calls and records those of its own stage."""
    steps = 'push=a call=1 child call=2 push=a call=3 pop call=4 parent call=5 pop call=6'
    parent, child = sorted(script(steps, {'ENABLE_PROFILER_NAMES': 'a'}).traces, key=lambda t: 5 not in called(t))
    assert (called(parent), called(child)) == ([1, 5], [3])
    assert (stages(parent), stages(child)) == (['a'], ['a'])


def test_forked_child_that_opens_no_stage_sleeps(script):
    trace = only(script('push=a call=1 child call=2 pop call=3 parent pop', {'ENABLE_PROFILER_NAMES': 'a'}).traces)
    assert called(trace) == [1]


def test_names_changed_by_the_program_change_nothing(recorded):
    assert recorded('a', 'set=ENABLE_PROFILER_NAMES=b push=b call=1 pop push=a call=2 pop') == [2]
