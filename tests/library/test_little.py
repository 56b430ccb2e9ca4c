"""test_little - a process that does little costs little: few pages of the live file, a small trace; a full disk costs no process its life."""

import os
import signal
import subprocess
import sys

import pytest

import iotrace
import scripted
from conftest import clean_environment, execute
from scripted import only

KIB = 1024
# Opens a file and is killed: its live file stays. Then a child of fork does the same.
KILLED = 'import os, signal; {}os.close(os.open("/dev/null", os.O_RDONLY)); os.kill(os.getpid(), signal.SIGKILL)'


def test_small_trace(run):
    """All of a small trace fits into one block of a disk, although it describes every kind of record."""
    result = run(['cat', '/dev/null'], iotrace.ON)
    trace = only(scripted.traces(result.dir))
    assert trace.complete and 'open' in [r.name for r in iotrace.records(trace)]
    assert trace.path.stat().st_size <= 4 * KIB


@pytest.mark.parametrize('fork', ['', 'os.fork() and (os.wait(), os._exit(0)); '], ids=['process', 'child'])
def test_few_pages(run, fork):
    """The live file has the size of the pool, but only the pages that the process used: a file system in memory would clear all."""
    result = run([sys.executable, '-S', '-c', KILLED.format(fork)], iotrace.ON)
    assert result.rc == (0 if fork else -signal.SIGKILL)
    live = only(list(result.dir.glob('*.live'))).stat()
    assert live.st_size == 16 * KIB * KIB and live.st_blocks * 512 <= 160 * KIB
    assert any(not t.complete and iotrace.records(t) for t in scripted.traces(result.dir))


@pytest.mark.parametrize('moment', ['live', 'size', 'map'])
def test_killed_while_it_opens_its_trace(lib, victim, analyze, tmp_path, moment):
    """A process that is killed before it recorded anything is no error of the disk, and no answer is incomplete for it."""
    environment = {**clean_environment(), **iotrace.ON, 'TFI_OUTPUT_DIR': str(tmp_path / 'run')}
    killed = {'LD_PRELOAD': f'{victim("libkill_opening.so")} {lib}', 'KILL_AT': moment}
    assert execute(['cat', '/dev/null'], {**environment, 'LD_PRELOAD': str(lib)}).rc == 0
    assert execute(['cat', '/dev/null'], {**environment, **killed}).rc == -signal.SIGKILL
    assert len(list((tmp_path / 'run').glob('*.tfr'))) == 2
    result = analyze('info', tmp_path / 'run', format='text')
    assert [line.split(': ', 2)[2] for line in result.err.splitlines()] == ['its process was killed before it recorded anything']


# Wakes the library, takes all room, and goes on for more chunks than the live file has pages for.
FULL = '''import os, sys
os.close(os.open("/dev/null", os.O_RDONLY))
fill = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
try:
    while os.write(fill, bytes(1 << 16)): pass
except OSError: pass
for i in range(20000): os.access("/dev/null", i % 7)
'''


@pytest.mark.skipif(os.geteuid() != 0, reason='needs root to mount a small tmpfs')
def test_full_disk_while_the_pool_grows(run, analyze, tmp_path):
    """The live file cannot get the pages of its next chunks: the program ends as without the library, and every call is there or counted."""
    mount = tmp_path / 'small'
    mount.mkdir()
    if subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=20m', 'tmpfs', mount], capture_output=True).returncode != 0:
        pytest.skip('mounting a tmpfs is not allowed here')
    try:
        result = run([sys.executable, '-S', '-c', FULL, mount / 'fill'], {**iotrace.ON, 'TFI_OUTPUT_DIR': mount / 'run'})
        lines = result.err.splitlines()
        assert result.rc == 0 and 1 <= len(lines) <= 2 and all('no space left' in line for line in lines), result.err
        row, = analyze('info', mount / 'run', rc=3)['rows']
        assert row['events']['io'] + sum(row['lost'].values()) >= 20000
    finally:
        subprocess.run(['umount', '-l', mount], check=False)


def test_no_room_for_the_pool(run, analyze, tmp_path):
    """A nearly full disk keeps its last bytes for the trace: the pool lies in /dev/shm, or in memory with a message."""
    mount = tmp_path / 'small'
    mount.mkdir()
    if subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=8m', 'tmpfs', mount], capture_output=True).returncode != 0:
        pytest.skip('mounting a tmpfs is not allowed here')
    try:
        result = run(['cat', '/dev/null'], {**iotrace.ON, 'TFI_OUTPUT_DIR': mount / 'run'})
        assert result.rc == 0 and not list((mount / 'run').glob('*.live'))
        row, = analyze('info', mount / 'run')['rows']
        assert row['complete'] and row['events']['io'] > 0
    finally:
        subprocess.run(['umount', '-l', mount], check=False)
