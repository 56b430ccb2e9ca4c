"""test_promises_stack - the library wakes, records and finishes with less than 4 KiB of stack.

Its first event may lie in a signal handler or on a thread of the smallest size, and so may its end: a crash handler on an
alternative stack that calls _exit is an ordinary program. tests/victims/stack.c measures on a painted stack how deep each
step goes, and runs on small stacks.
"""

import pytest

import scripted
from scripted import only

LIMIT = 4096
SETTINGS = {
    'plain': {}, 'complaints': {'TFI_NO_SUCH': '1', 'TFI_MAX_MB': 'much', 'TFI_LOG': 'debug'},
    'console': {'TELEFUSER_PROFILE_DEBUG': 'true'},
    'metadata': {'TFI_METADATA': 'a=b,c=d', 'TFI_PIPELINE_NAME': 'p' * 400},
    'no live directory': {'TFI_LIVE_DIR': '/proc/no'}, 'no directory': {'TFI_OUTPUT_DIR': '/proc/no'},
    'full': {'TFI_MAX_MB': '1'}, 'trigger': {'TFI_TRIGGER': 'file:/'}, 'signal': {'TFI_TRIGGER': 'signal:10'},
    'schedule': {'TFI_SCHEDULE': 'wait=1,active=1'}, 'names': {'ENABLE_PROFILER_NAMES': 'n1*,m*'},
    'job': {'TFI_OUTPUT_DIR': None, 'SLURM_JOB_ID': '1'},
    'long directory': {'TFI_OUTPUT_DIR': '/proc' + '/.' * 1500 + '/no'}}
SMALL = [('thread', 16384, 0), ('thread exit', 16384, 7), ('awake exit', 16384, 7), ('handler', 8192, 0),
         ('handler exit', 8192, 7), ('coroutine', 8192, 0)]
ROOMY = [('thread', 1 << 18, True), ('handler', 1 << 16, True), ('awake exit', 1 << 18, True), ('coroutine', 1 << 18, False)]


@pytest.mark.parametrize('setting', SETTINGS)
def test_depth(run, victim, setting):
    """No step reaches 4 KiB below the caller's frame. LD_BIND_NOW: what the program's own linking takes is not ours."""
    result = run([victim('stack')], {**SETTINGS[setting], 'LD_BIND_NOW': '1'})
    *lines, last = result.out.splitlines()
    depths = {step: int(depth) for step, depth in (line.split(': ') for line in lines)}
    assert (result.rc, last, len(depths)) == (0, 'done', 5)
    assert max(depths.values()) < LIMIT, depths
    assert setting == 'no directory' or depths['wake'] > 500  # it did wake


@pytest.mark.parametrize('mode, size, status', SMALL)
def test_small_stacks(run, victim, mode, size, status):
    """The first event, or the end, on the smallest stacks programs have: status and output as without the library."""
    words = [victim('stack'), mode, size]
    bare, watched = run(words, preload=False), run(words)
    assert bare.rc == status
    assert (watched.rc, watched.out, watched.err) == (bare.rc, bare.out, bare.err)
    assert len(list(watched.dir.glob('*.timing.json'))) == 1


def taken(result):
    """Tells of a run's trace whether each stage has a call stack, and how often none was taken."""
    trace = only(scripted.traces(result.dir))
    drops = {r.values['cause']: r.values['count'] for r in trace.records if r.kind == 'drop'}
    return [bool(r.values['stack']) for r in trace.records if r.kind == 'range_begin'], drops.get(20, 0)


@pytest.mark.parametrize('mode, size, status', SMALL)
def test_no_call_stacks_of_small_stacks(run, victim, mode, size, status):
    """With `stack` among the activities too: a stage there is recorded without one, which is counted."""
    words = [victim('stack'), mode, size]
    bare, watched = run(words, preload=False), run(words, {'TFI_ACTIVITIES': 'cpu,stack'})
    assert (watched.rc, watched.out, watched.err) == (status, bare.out, bare.err)
    stacks, without = taken(watched)
    assert without == 1 == stacks.count(False)


@pytest.mark.parametrize('mode, size, known', ROOMY)
def test_call_stacks_of_larger_stacks(run, victim, mode, size, known):
    """Stacks are taken where there is room, also in a handler; not in a coroutine, the end of whose stack nobody knows."""
    stacks, without = taken(run([victim('stack'), mode, size], {'TFI_ACTIVITIES': 'cpu,stack'}))
    assert set(stacks) == {known} and without == (0 if known else 1)
