"""test_weather - bad weather: the program's output and exit status never change, and every record is read back.

tests/victims/weather.c does to itself what programs do to themselves, and logs the number of calls of each process.
Each mode runs bare and under the test build of the library; the tests then count the call records of each process.
"""

import collections
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from conftest import COMMAND_TIMEOUT

pytestmark = pytest.mark.slow

SAYS_NOTHING, SAYS_ONE_LINE = 0, 1


@pytest.fixture
def weather(run, victim, analyze, tmp_path):
    """weather(mode, ...): runs the mode bare and watched; returns the watched run with .calls and .wanted by pid."""
    def weather(mode, *arguments, env=None, lines=SAYS_NOTHING, rc=0, exact=True, read=True):
        log = tmp_path / 'log'
        bare = run([victim('weather'), mode, *arguments], {'WEATHER_LOG': tmp_path / 'bare', **(env or {})}, preload=False)
        assert bare.rc != 125 and bare.out
        watched = run([victim('weather'), mode, *arguments], {'WEATHER_LOG': log, **(env or {})}, preload='test')
        assert sorted(watched.out.splitlines()) == sorted(bare.out.splitlines())
        assert watched.rc == bare.rc
        said = watched.err.splitlines()
        assert len(said) == lines and all(line.startswith('tfinject: ') for line in said), watched.err
        watched.wanted = collections.Counter()
        for line in log.read_text().splitlines() if log.exists() else []:
            pid, count = map(int, line.split())
            watched.wanted[pid] += count
        watched.info = None
        watched.calls = collections.Counter()
        if read and (any(watched.wanted.values()) or not exact):
            answer = analyze('info', watched.dir, '--format', 'json', rc=None, format=None)
            watched.info, held_up = json.loads(answer.out), collections.Counter()
            for row in watched.info['rows']:
                watched.calls[row['pid']] += row['events'].get('call', 0)
                held_up[row['pid']] += row['lost'].get('locked', 0)  # a thread that writes may stand still for more than a second
            assert answer.rc == (3 if +held_up else rc), answer.err
            if exact:
                assert +watched.calls <= +watched.wanted <= watched.calls + held_up
        return watched
    return weather


def all_there(row, calls):
    """Every call is in the trace or counted as lost; some records of other kinds may be lost too."""
    others = 60
    assert calls <= row['events'].get('call', 0) + sum(row['lost'].values()) <= calls + others


@pytest.mark.parametrize('mode', ['return', '_exit', '_Exit', 'quick_exit'])
def test_ordinary_ends(weather, mode):
    result = weather(mode)
    assert [row['complete'] for row in result.info['rows']] == [True]
    assert not list(result.dir.glob('*.live'))


@pytest.mark.parametrize('mode, number', [('abort', signal.SIGABRT), ('sigterm', signal.SIGTERM), ('segv', signal.SIGSEGV),
                                          ('raw_exit', None)])
def test_sudden_ends(weather, mode, number):
    result = weather(mode)
    assert result.rc == (-number if number else 6)
    assert [row['complete'] for row in result.info['rows']] == [mode == 'sigterm']  # a process may end itself so


LAST = {'last_raw': 7, 'last_zero': 0, 'last_strict': 7, 'last_strict_killed': -signal.SIGKILL, 'last_raw_thread': 7,
        'last_quiet': 0, 'last_quiet_thread': 0}


@pytest.mark.slow
@pytest.mark.parametrize('mode', LAST)
def test_ends_of_the_last_thread(weather, mode):
    """The process ends when the program's last thread does, though it tells nobody, and the trace is complete.

    The library's own thread used to keep such a process for ever. A thread that works on is recorded to its end. The
    exit handlers run, as without the library, if every thread has ended by pthread_exit."""
    result = weather(mode)
    assert result.rc == LAST[mode]
    assert ('exit handler 1' in result.out) == ('quiet' in mode)
    assert [row['complete'] for row in result.info['rows']] == [True]


def test_exit_in_a_thread(weather):
    assert weather('exit_in_thread').rc == 4


def test_threads_that_never_end(weather):
    weather('never_ending')


def test_exec(weather):
    """A failed exec and then a successful one leave three traces of one pid, none overwritten."""
    result = weather('exec')
    names = sorted(p.name for p in result.dir.glob('*.tfr'))
    assert len(names) == 3 and names[0].endswith('.2.tfr') and names[1].endswith('.3.tfr'), names
    assert all(row['complete'] for row in result.info['rows'])


def test_every_exec(weather):
    """Each function of the exec family closes the trace before the new program begins."""
    result = weather('execs')
    assert all(row['complete'] for row in result.info['rows']) and len(result.info['rows']) == 17


def test_fork_without_exec(weather):
    weather('forks')


@pytest.mark.slow
def test_fork_from_busy_threads(weather):
    weather('fork_busy')


def test_vfork_and_posix_spawn(weather):
    weather('spawns')


def test_daemon(run, victim, analyze, tmp_path):
    """A daemon forks twice, closes every descriptor and outlives the program, so the test waits for it."""
    log = tmp_path / 'log'
    result = run([victim('weather'), 'daemon'], {'WEATHER_LOG': log}, preload='test')
    assert (result.rc, result.err) == (0, '')
    end = time.monotonic() + COMMAND_TIMEOUT
    while (log.read_text().count('\n') < 2 or list(result.dir.glob('*.live'))) and time.monotonic() < end:
        time.sleep(0.05)
    found = {row['pid']: row['events']['call'] for row in analyze('info', result.dir)['rows']}
    assert found == dict(map(int, line.split()) for line in log.read_text().splitlines())


def test_cancelled_threads(weather):
    """A cancelled thread has made an unknown number of calls; the trace has at least the known ones."""
    result = weather('cancel', exact=False)
    (pid, wanted), = result.wanted.items()
    assert result.calls[pid] >= wanted


def test_a_cancelled_thread_forks(weather):
    """fork() is no cancellation point, although it waits for the end of the background thread."""
    weather('fork_cancelled')


@pytest.mark.slow
def test_ten_thousand_threads(weather):
    weather('threads')


def test_more_threads_than_slots(weather):
    weather('many')


def test_descriptors_closed(weather):
    result = weather('close_all')
    assert "program's file 0" in result.out


def test_no_descriptors_left(weather):
    assert 'too many open files' in weather('no_descriptors', lines=SAYS_ONE_LINE).err


def test_descriptors_exhausted_later(weather):
    weather('descriptors_later')


def test_size_limit_from_the_start(weather, analyze):
    """Under 16 MB the live file has no room either; the records that do not fit are counted."""
    result = weather('size_limit_before', str(1 << 17), lines=2, exact=False, rc=3)
    row, = result.info['rows']
    all_there(row, 500000)


def test_size_limit_later(weather):
    result = weather('size_limit', str(1 << 17), lines=SAYS_ONE_LINE, exact=False, rc=3)
    row, = result.info['rows']
    all_there(row, 500010)


def test_cap(weather):
    result = weather('million', env={'TFI_MAX_MB': '1'}, lines=SAYS_ONE_LINE, exact=False, rc=3)
    row, = result.info['rows']
    assert row['lost']['cap'] > 0
    all_there(row, 1500000)
    assert sum(p.stat().st_size for p in result.dir.glob('*.tfr')) <= (1 << 20) + 8192


def test_chroot(weather):
    """The directory was opened before chroot, so files outside the new root are closed and cleaned up as usual."""
    if os.geteuid() != 0:
        pytest.skip('chroot needs root')
    weather('change_root')


def test_no_message_in_a_file_that_took_descriptor_2(weather):
    assert "program's file 0" in weather('reuse_stderr', exact=False, rc=3).out


def test_errno_and_results(weather):
    assert weather('plain').out.split() == 'errno 0 errno 11 result -5 errno 23'.split()


# ---- the output directory ----

def test_directory_not_writable(weather, tmp_path):
    blocked = tmp_path / 'file'
    blocked.write_text('not a directory')
    result = weather('plain', env={'TFI_OUTPUT_DIR': blocked / 'run'}, lines=SAYS_ONE_LINE, read=False)
    assert 'not a directory' in result.err and 'TFI_OUTPUT_DIR' in result.err


@pytest.mark.skipif(os.geteuid() != 0, reason='needs root to make a link of another user')
def test_directory_is_somebody_elses_link(run, victim, tmp_path):
    target = tmp_path / 'target'
    target.mkdir()
    link = tmp_path / 'link'
    link.symlink_to(target)
    os.chown(link, 65534, 65534, follow_symlinks=False)
    result = run([victim('weather'), 'plain'], {'TFI_OUTPUT_DIR': link, 'WEATHER_LOG': tmp_path / 'log'}, preload='test')
    assert result.rc == 0 and 'a symbolic link of another user' in result.err
    assert not list(target.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason='needs root to mount a small tmpfs')
def test_disk_full(run, victim, analyze, tmp_path):
    """The disk fills up: the program does not notice, and lost records are counted."""
    mount = tmp_path / 'small'
    mount.mkdir()
    if subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', mount], capture_output=True).returncode != 0:
        pytest.skip('mounting a tmpfs is not allowed here')
    try:
        command = [victim('weather'), 'million']
        env = {'TFI_OUTPUT_DIR': mount / 'run', 'WEATHER_LOG': tmp_path / 'log'}
        result = run(command, env, preload='test')
        assert result.rc == 0 and result.out == 'calls 1500000\n'
        lines = result.err.splitlines()
        assert 'no space left' in result.err and len(lines) <= 2 and all(x.startswith('tfinject: ') for x in lines)
        row, = analyze('info', mount / 'run', rc=3)['rows']
        all_there(row, 1500000)
    finally:
        subprocess.run(['umount', '-l', mount], check=False)


# ---- programs that must not notice ----

SILENT = {
    'true': ['/bin/true'],
    'bash': ['bash', '-c', 'echo hello; (exit 3); echo $?; ls / >/dev/null | cat; sh -c "exit 4"; echo $?'],
    'python': [sys.executable, '-c', 'import subprocess, os; print(subprocess.run(["true"]).returncode, os.system("exit 3"))'],
    'gcc': ['gcc', '-x', 'c', '-fsyntax-only', '/dev/null'],
    'git': ['git', '--version'],
}


@pytest.mark.parametrize('name', SILENT)
def test_dormant(run, name, tmp_path):
    """A process without stage and device leaves no file, no message and no thread."""
    bare = run(SILENT[name], preload=False)
    watched = run(SILENT[name], preload=True)
    assert (watched.out, watched.err, watched.rc) == (bare.out, bare.err, bare.rc)
    assert not watched.dir.exists() and not list(tmp_path.iterdir())


def test_dormant_has_one_thread(run):
    script = 'import os; print(len(os.listdir("/proc/self/task")))'
    assert run([sys.executable, '-c', script], {'TFI_SAMPLE_HZ': 0}, preload=True).out == '1\n'
    assert run(['sh', '-c', 'exec ls /proc/self/task'], preload=True).out.count('\n') == 1


def test_environment(run):
    """These variables are the only change that a child sees."""
    def seen(preload):
        out = run(['env', '-0'], preload=preload).out
        return dict(e.split('=', 1) for e in out.split('\0') if e)
    bare, watched = seen(False), seen(True)
    added = {k: v for k, v in watched.items() if bare.get(k) != v}
    assert set(added) == {'LD_PRELOAD', 'TFI_RUN_DIR', 'NVTX_INJECTION64_PATH'}, added


def test_subprocess_of_python(run, victim, analyze, tmp_path):
    """Python's subprocess calls vfork, close, dup2 and exec of ours in the parent's memory, from a recording process."""
    script = ('import ctypes, subprocess, sys\n'
              f'd = ctypes.CDLL("{victim("libdummy.so")}", mode=ctypes.RTLD_GLOBAL)\n'
              'add = ctypes.CDLL(None).dummy_add\n'
              'for i in range(50): add(i); r = subprocess.run(["true"], close_fds=True); assert r.returncode == 0\n'
              'print(subprocess.run(["sh", "-c", "exit 9"]).returncode)\n')
    result = run([sys.executable, '-c', script], preload='test')
    assert (result.rc, result.out, result.err) == (0, '9\n', '')
    row, = analyze('info', result.dir)['rows']
    assert row['events']['call'] == 50 and row['complete']
