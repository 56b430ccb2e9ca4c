"""test_promises_jumps - signal handlers that jump out of the recorder (hostile.md M4), and what many open stages cost."""

import json

import pytest


@pytest.mark.parametrize('mode', ['ranges', 'started', 'calls', 'stack'])
def test_jumps_out_of_the_recorder(run, victim, tfanalyze, mode):
    """A thread that was jumped out of the recorder three thousand times goes on recording: all that comes after the last
    jump is there, and what was lost is counted as such. Red on 9e7425a: the guard stays set after the first jump."""
    result = run([victim('jumps'), mode], preload='test')
    assert (result.rc, result.out) == (5, 'done\n'), result.err
    info = run([tfanalyze, 'info', '--format', 'json', result.dir], preload=False)
    assert info.rc in (0, 3)
    row, = json.loads(info.out)['rows']
    assert set(row['lost']) <= {'jumped', 'reentrant'} and row['ended'] == 'exit'
    assert row['lost'].get('reentrant', 0) < 10000
    stages = run([tfanalyze, 'stages', '--stage', 'after', '--format', 'json', result.dir], preload=False)
    after, = json.loads(stages.out)['rows']
    # Until the last jump's frame is overwritten the first ones may be refused.
    assert after['calls'] >= (60 if mode == 'stack' else 99)


def test_jumps_out_of_waking(run, victim):
    """Wherever the opening of the trace is interrupted by a jump, the process goes on, and its other threads' stages do
    not wait for it. Red on 9e7425a: each stage of another thread waits a second."""
    result = run([victim('jumps'), 'wake'])
    assert (result.rc, result.out) == (5, 'good 60 of 60\n'), result.err


@pytest.mark.parametrize('mode', ['', 'domain', 'outer', 'queue'])
def test_many_open_stages_cost_nothing(run, victim, mode):
    """Ten thousand stages take about the same CPU above 60,000 that nobody has ended as above few, also where those are of
    another domain, and where it is the oldest one that ends. Red on 9e7425a: each looks through all that are open."""
    flat, deep = (min(float(run([victim('leaked'), n, mode]).out) for _ in range(3)) for n in ('10', '60000'))
    assert deep < 8 * max(flat, 0.004), (flat, deep)
