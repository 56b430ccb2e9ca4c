"""test_progress - the line of progress on a terminal: when it appears, what it says, and that it leaves nothing behind.

A FIFO without a reader holds a command up, so no test depends on how long a command takes.
"""

import gzip
import json
import os
import pty
import subprocess

import pytest

from conftest import clean_environment

CLEAR = b'\r\x1b[K'


class Terminal:
    """A command whose stderr, and stdout if asked for, is a terminal."""

    def __init__(self, *words, stdout=False):
        self.fd, inner = pty.openpty()
        self.shown = b''
        self.process = subprocess.Popen(list(words), stdin=subprocess.DEVNULL, stdout=inner if stdout else subprocess.DEVNULL, stderr=inner, env=clean_environment())
        os.close(inner)

    def until(self, word):
        while word not in self.shown:
            self.shown += os.read(self.fd, 65536)

    def end(self):
        while True:
            try:
                part = os.read(self.fd, 65536)
            except OSError:  # the terminal has no writer any more
                break
            self.shown += part
        os.close(self.fd)
        return self.process.wait()

    def left(self):
        """What a reader sees in the end."""
        return b'\n'.join(line.split(CLEAR)[-1] for line in self.shown.replace(b'\r\n', b'\n').split(b'\n'))


@pytest.fixture
def fifo(tmp_path):
    os.mkfifo(tmp_path / 'fifo')
    return tmp_path / 'fifo'


def test_the_line_of_a_command_that_takes_long(tfanalyze, shared_traces, fifo):
    terminal = Terminal(tfanalyze, 'breakdown', '--format', 'json', '--output', fifo, shared_traces / 'hta/amd_trace')
    terminal.until(b'tfanalyze: breakdown: computing for 1 s')
    answer = json.loads(fifo.read_text())
    assert terminal.end() == 0 and answer['rows'] and terminal.left() == b''


def test_a_message_stands_alone(tfanalyze, shared_traces, fifo, tmp_path):
    """The line is cleared before a message, and drawn again behind it."""
    cut = tmp_path / 'cut.json'
    cut.write_bytes(gzip.decompress(next((shared_traces / 'hta/amd_trace').iterdir()).read_bytes())[:100_000])
    terminal = Terminal(tfanalyze, 'breakdown', '--output', fifo, shared_traces / 'hta/amd_trace', cut)
    terminal.until(b'computing for')
    fifo.read_text()
    terminal.end()
    lines = terminal.left().split(b'\n')
    assert lines[-1] == b'' and len(lines) > 1 and all(line.startswith(b'tfanalyze: ') and b'computing' not in line for line in lines[:-1])


def test_the_answer_on_the_terminal_is_whole(tfanalyze, shared_traces):
    terminal = Terminal(tfanalyze, 'breakdown', '--format', 'json', shared_traces / 'hta/amd_trace', stdout=True)
    assert terminal.end() == 0 and json.loads(terminal.left())['rows']
