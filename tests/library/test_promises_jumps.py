"""test_promises_jumps - signal handlers that jump out of the recorder, and the cost of many open stages."""

import json

import pytest


@pytest.mark.parametrize('mode', ['ranges', 'started', 'calls', 'stack'])
def test_jumps_out_of_the_recorder(run, victim, tfanalyze, mode):
    """A thread that jumps out of the recorder three thousand times continues recording, and counts its losses.

    Everything after the last jump is recorded. The guard used to stay set after the first jump."""
    result = run([victim('jumps'), mode], preload='test')
    assert (result.rc, result.out) == (5, 'done\n'), result.err
    info = run([tfanalyze, 'info', '--format', 'json', result.dir], preload=False)
    assert info.rc in (0, 3)
    row, = json.loads(info.out)['rows']
    assert set(row['lost']) <= {'jumped', 'reentrant'} and row['ended'] == 'exit'
    assert row['lost'].get('reentrant', 0) < 10000
    stages = run([tfanalyze, 'stages', '--stage', 'after', '--format', 'json', result.dir], preload=False)
    after, = json.loads(stages.out)['rows']
    # The first calls may be refused until the frame of the last jump is overwritten.
    assert after['calls'] >= (60 if mode == 'stack' else 99)


def test_jumps_out_of_waking(run, victim):
    """A jump out of the opening of the trace, at any place, does not stop the process or delay other threads' stages.

    Each stage of another thread used to wait a second."""
    result = run([victim('jumps'), 'wake'])
    assert (result.rc, result.out) == (5, 'good 60 of 60\n'), result.err


@pytest.mark.parametrize('mode', ['', 'domain', 'outer', 'queue'])
def test_many_open_stages_cost_nothing(run, victim, mode):
    """Ten thousand stages take the same CPU above 60,000 open stages as above few.

    This holds too if the open stages are of another domain, and if the oldest one ends. Each stage used to search all
    open ones."""
    flat, deep = (min(float(run([victim('leaked'), n, mode]).out) for _ in range(3)) for n in ('10', '60000'))
    assert deep < 8 * max(flat, 0.004), (flat, deep)
