"""test_io_weather - recorded calls on files under bad circumstances: the program's result is unchanged, counts are exact or the loss is stated."""

import errno
import os

import pytest

import iotrace
import scripted
from conftest import clean_environment, execute
from scripted import only

ENVIRONMENT = {**iotrace.ON, 'TFI_IO_PATHS': '+pipes'}


@pytest.fixture
def play(run, victim, tmp_path):
    """play(case) -> its records as (function, result, errno, last part of the path), and the counts of losses."""
    def play(case):
        for name in ('bare', 'files'):
            (tmp_path / name).mkdir()
        bare = execute([victim('io_weather'), case, tmp_path / 'bare'], clean_environment(), tmp_path)
        result = run([victim('io_weather'), case, tmp_path / 'files'], ENVIRONMENT)
        assert (result.rc, result.out, result.err) == (bare.rc, bare.out, bare.err)
        trace = only(scripted.traces(result.dir))
        rows = [(r.name, r.result, r.error, r.path and r.path.rsplit('/', 1)[-1]) for r in iotrace.records(trace)]
        return rows, {cause: count for cause, count in scripted.drops(trace).items() if count}
    return play


def test_interrupted_by_a_signal(play):
    rows, lost = play('interrupted')
    assert [row[:3] for row in rows] == [('read', -1, errno.EINTR)] and not lost


def test_call_of_a_signal_handler_inside_a_call(play):
    rows, lost = play('handled')
    assert [row[:3] for row in rows] == [('open', rows[0][1], 0), ('read', -1, errno.EINTR), ('write', 1, 0)] and not lost


def test_jumps_out_of_a_call_are_counted(play):
    rows, lost = play('jumped')
    assert rows[1:] == [('pread', 4, 0, 'data')] * 3 and lost == {'left': 3}


def test_cancelled_in_a_call(play):
    rows, lost = play('cancelled')
    assert [row[0] for row in rows] == ['open', 'write'] and lost == {'left': 1}


def test_descriptors_closed_behind_our_back(play):
    """A number has the file of its latest open, also after closes that no wrapper saw."""
    rows, lost = play('behind')
    assert [(size, error, path) for name, size, error, path in rows if name == 'read'] == [
        (1, 0, 'one'), (2, 0, 'two'), (-1, errno.EBADF, 'two'), (4, 0, 'three')] and not lost


def test_child_of_vfork_changes_nothing(play):
    rows, lost = play('vforked')
    assert [(name, path) for name, _, _, path in rows] == [('open', 'kept'), ('pread', 'kept')] and not lost


@pytest.mark.skipif(os.getuid() != 0, reason='needs root: chroot')
def test_root_directory_without_proc(play):
    rows, lost = play('rooted')
    assert [(name, path) for name, _, _, path in rows] == [('chroot', 'files'), ('open', 'seen'), ('read', None)] and not lost


def test_full_disk(play):
    rows, lost = play('full')
    assert [row[:1] + row[2:] for row in rows] == [
        ('open', 0, 'full'), ('fdopen', 0, 'full'), ('write', errno.ENOSPC, 'full'), ('fputs', 0, 'full'),
        ('fflush', errno.ENOSPC, 'full'), ('fclose', 0, 'full')] and not lost


@pytest.mark.slow
def test_ten_thousand_threads_that_each_write_once(play):
    rows, lost = play('threads')
    assert [row[1:] for row in rows if row[0] == 'write'] == [(1, 0, 'shared')] * 10000
    assert not {cause: n for cause, n in lost.items() if cause != 'no_slot'}


def test_invalid_arguments(play):
    """Invalid pointers and descriptors fail as without the library; each call has its record."""
    rows, lost = play('invalid')
    assert [(name, error) for name, result, error, _ in rows if result == -1] == [
        ('open', errno.EFAULT), ('access', errno.EFAULT), ('rename', errno.EFAULT), ('read', errno.EBADF), ('write', errno.EBADF),
        ('read', errno.EFAULT), ('close', errno.EBADF), ('dup2', errno.EBADF)] and not lost
