"""test_io_hostile - programs that use files in odd ways, with every call on files recorded: they do not notice.

Each case runs twice, in directories of the same depth. Its output, which says what every call returned, is the same.
"""

import os

import pytest

import iotrace
import scripted
from conftest import clean_environment, execute

CASES = ['forks', 'children', 'closed', 'numerous', 'special', 'nameless', 'devices', 'pointers', 'names', 'tables', 'once',
         'strangers', 'signals', 'cancelled', 'streams', 'deep', 'limits', 'jailed', 'unprivileged']
ROOT_ONLY = {'jailed', 'unprivileged'}
# The library has no room for its own file, may not remove it, or finds it closed by the program: it says so.
SAYS = {'limits': 'cannot be created', 'unprivileged': 'cannot be removed', 'strangers': 'cannot be written'}


@pytest.fixture
def play(run, victim, tmp_path):
    """play(case) -> the recorded calls, and the counts of losses, of the process that the case begins in."""
    def play(case):
        if case in ROOT_ONLY and os.geteuid():
            pytest.skip('chroot needs root' if case == 'jailed' else 'needs root to become another user')
        for name in 'ab':
            (tmp_path / name).mkdir(mode=0o755)
        bare = execute([victim('io_hostile'), case], clean_environment(), tmp_path / 'a')
        result = run([victim('io_hostile'), case], iotrace.ON, cwd=tmp_path / 'b')
        assert (result.rc, result.out) == (bare.rc, bare.out) and bare.rc == 0 and bare.out
        said = result.err.replace(bare.err, '', 1).splitlines()
        for line in said:
            assert line.startswith('tfinject: ') and SAYS.get(case, 'no message is expected') in line
        traces = scripted.traces(result.dir)
        trace = max(traces, key=lambda t: len(t.records))
        if said:
            return trace.records, {}  # parts of the trace may be missing
        return iotrace.records(trace), {cause: count for cause, count in scripted.drops(trace).items() if count}
    return play


@pytest.mark.slow
@pytest.mark.parametrize('case', CASES)
def test_program_does_not_notice(play, case):
    records, _ = play(case)
    assert records


def test_counts_of_many_threads(play):
    """500 threads write once each: each call is there."""
    records, lost = play('once')
    once = sum(r.name.startswith('pwrite') and (r.path or '').endswith('/once') for r in records)
    assert once == 500 and not lost


def test_paths_of_many_descriptors(play):
    """Beyond 1,024 open files each descriptor still has its own path."""
    records, lost = play('numerous')
    written = [r for r in records if r.name.startswith('pwrite')]
    assert len(written) == 3000 and not lost
    assert [r.path.rsplit('/many', 1)[1] for r in written] == [str(i % 50) for i in range(3000)]


def test_bad_names_have_no_path(play):
    """A name that the kernel could not read is recorded without a path, and with the error of the call."""
    records, _ = play('names')
    failed = [r for r in records if r.error == 14]
    assert failed and not any(r.path for r in failed if r.name in ('stat', 'unlink', 'fopen'))
