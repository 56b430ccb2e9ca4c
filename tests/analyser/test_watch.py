"""test_watch - `tfanalyze watch`: each step of a running job is in a drawing, and the watch ends with the job.

The job's steps wait for a line from the test, which sends it once a drawing has the step before.
"""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading

import pytest

import kineto
from conftest import COMMAND_TIMEOUT, clean_environment, execute


@pytest.fixture
def started():
    """started(command, **options) -> a process that is killed at the end of the test, or if it takes too long."""
    processes, timers = [], []

    def started(command, **options):
        process = subprocess.Popen([str(word) for word in command], **options)
        timer = threading.Timer(COMMAND_TIMEOUT, process.kill)
        timer.start()
        processes.append(process)
        timers.append(timer)
        return process
    yield started
    for timer in timers:
        timer.cancel()
    for process in processes:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()


def drawings(watch):
    """The drawings of a watch that writes to a pipe, as lists of lines."""
    lines = []
    for line in watch.stdout:
        if re.match(r'drawing \d+ at ', line) and lines:
            yield lines
            lines = []
        lines.append(line.rstrip('\n'))
        if re.match(r'figures are |no process of it runs', line):
            yield lines
            lines = []


def calls_of(drawing, stage):
    for line in drawing:
        found = re.fullmatch(r' *[\d.]+ +[\d.]+ +(\d+)  +(\S+)', line)
        if found and found[2] == stage:
            return int(found[1])
    return 0


@pytest.mark.slow
@pytest.mark.parametrize('end', ['whole', 'killed'])
def test_each_step_is_drawn_and_the_watch_ends_with_the_job(started, tfanalyze, lib, victim, tmp_path, end):
    directory = tmp_path / 'run'
    directory.mkdir()
    watch = started([tfanalyze, 'watch', directory], env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    drawn = drawings(watch)
    assert 'no trace yet' in next(drawn)[0]
    steps = ['push=step', 'pop', 'read'] * 2 + ['push=last', 'pop'] + ['kill'] * (end == 'killed')
    job = started([victim('script'), *steps], env=clean_environment() | {'LD_PRELOAD': str(lib), 'TFI_OUTPUT_DIR': str(directory)},
                  stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    last = []
    for step in (1, 2):
        last = next(drawing for drawing in drawn if calls_of(drawing, 'step') == step)
        assert ': 1 process runs, 0 ended' in last[0] and not calls_of(last, 'last')
        assert step == 1 or '; step 1 call ' in last[1], last[1]
        job.stdin.write(b'\n')
        job.stdin.flush()
    for last in drawn:
        pass
    assert last[0].endswith({'whole': '0 processes run, 1 ended', 'killed': '0 processes run, 0 ended, 1 was killed'}[end])
    assert calls_of(last, 'step') == 2 and calls_of(last, 'last') == 1
    assert 'last drawing' in last[-1] and watch.wait() == 0


def test_a_job_that_ended_is_drawn_once(tfanalyze, tmp_path):
    """What a drawing has between its first and its last line is the first screen."""
    path = kineto.Trace().stage('forward', 0, 100000).launch('gemm', 10, 1).write(tmp_path / 'in.json')
    screen = execute([tfanalyze, 'screen', path], clean_environment(), tmp_path)
    watch = execute([tfanalyze, 'watch', path], clean_environment(), tmp_path)
    first, *lines, last, empty = watch.out.splitlines()
    assert re.fullmatch(r'drawing 1 at \d\d:\d\d:\d\d: 0 processes run, 1 ended', first) and not empty
    assert lines == screen.out.splitlines() and 'this was the last drawing' in last
    assert (watch.rc, watch.err) == (screen.rc, screen.err)


def test_a_path_that_does_not_exist_is_a_mistake(tfanalyze, tmp_path):
    watch = execute([tfanalyze, 'watch', tmp_path / 'nothing'], clean_environment(), tmp_path)
    assert watch.rc == 1 and 'cannot be read' in watch.err


def own_terminal():
    """In the new process: its stdin becomes its controlling terminal, and Ctrl-C ends it, whatever the caller ignores."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def on_terminal(started, tfanalyze, path):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 90, 0, 0))
    before = termios.tcgetattr(slave)
    watch = started([tfanalyze, 'watch', path], env=clean_environment() | {'TERM': 'xterm'}, stdin=slave, stdout=slave, stderr=slave,
                    start_new_session=True, preexec_fn=own_terminal)
    return watch, master, slave, before


def until(master, text):
    data = b''
    while text not in data:
        part = os.read(master, 65536)
        assert part, data
        data += part
    return data


def test_ctrl_c_leaves_the_terminal_as_it_was(started, tfanalyze, tmp_path):
    watch, master, slave, before = on_terminal(started, tfanalyze, tmp_path)
    try:
        data = until(master, b'\033[J')
        assert b'no trace yet\033[K\r\n' in data and b'figures are 0 s old' in data
        os.write(master, b'\x03')
        assert watch.wait() == -signal.SIGINT
        assert termios.tcgetattr(slave) == before
        assert set(re.findall(rb'\033\[[?\d;]*[A-Za-z]', data)) == {b'\033[H', b'\033[K', b'\033[J'}
    finally:
        os.close(slave)
        os.close(master)


def test_the_last_drawing_stays_on_the_terminal(started, tfanalyze, tmp_path):
    path = kineto.Trace().stage('forward', 0, 100000).launch('gemm', 10, 1).write(tmp_path / 'in.json')
    watch, master, slave, _ = on_terminal(started, tfanalyze, path)
    os.close(slave)
    data = b''
    try:
        while True:
            data += os.read(master, 65536)
    except OSError:  # the watch has closed the terminal
        pass
    finally:
        os.close(master)
    assert watch.wait() == 0
    assert b'forward\033[K\r\n' in data and data.endswith(b'this was the last drawing\033[K\r\n\033[J')
