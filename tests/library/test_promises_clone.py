"""test_promises_clone - children that share the process's memory, and system call filters."""

import pytest


@pytest.mark.parametrize('how, said', [('return', 'child 7 0'), ('_exit', 'child 7 0'), ('exec', 'child 7 0'),
                                       ('signal', 'child -1 9'), ('many', 'child 7 0')])
def test_children_that_share_memory(run, victim, analyze, how, said):
    """A child by clone(CLONE_VM) ends for its parent as without the library, and the parent continues recording.

    The background thread used to start in the child, so waitpid() did not return."""
    plain = run([victim('clone_vm'), how], preload=False)
    assert (plain.rc, plain.out) == (5, said + '\n')
    result = run([victim('clone_vm'), how])
    assert (result.rc, result.out, result.err) == (5, said + '\n', '')
    rows = {row['stage']: row['calls'] for row in analyze('stages', result.dir)['rows']}
    assert rows['parent'] == 20010


def test_a_filter_for_the_program_alone(run, victim):
    """A sleeping process makes no call at its end, or in hooks of kill and close, that the program does not make."""
    ends = [run([victim('filtered'), 'itself'], env, preload=preload) for env, preload in (({}, False), ({}, True), ({'TFI_MODE': 'flight'}, True))]
    assert [(end.rc, end.out, end.err) for end in ends] == [(5, 'done\n', '')] * 3


def test_a_filter_that_kills(run, victim, lib):
    """A sleeping process survives a filter that kills at unusual system calls.

    The constructor used to call madvise and membarrier."""
    program = victim('filtered')
    plain = run([program, program], preload=False)
    assert (plain.rc, plain.out) == (5, 'done\n')
    result = run([program, program])
    assert (result.rc, result.out, result.err) == (5, 'done\n', '')
