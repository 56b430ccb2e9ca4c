"""test_terminal - tables fit the terminal they are printed on; a pipe gets them whole."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

import pytest

import kineto
from conftest import COMMAND_TIMEOUT, clean_environment

LONG = 'void ns::kernel_with_a_very_long_name<' + ', '.join(f'float{i}' for i in range(20)) + '>(int, the_end_of_it)'
STAGE = 'the stage of ' + 'äöü ' * 20 + 'its end'
MADE_UP = '## Call CompiledFxGraph fp5r5wknbxqz3xtzpn4yqb6uqdhgwhjrtejm5ckvf36zb3bhkw6q ##'


@pytest.fixture
def terminal(tfanalyze, tmp_path):
    """terminal(columns, *arguments, env={}) -> the lines that a terminal of that width receives."""
    def terminal(columns, *arguments, env=None):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack('HHHH', 24, columns, 0, 0))
        full = {k: v for k, v in clean_environment().items() if k != 'COLUMNS'} | (env or {})
        process = subprocess.Popen([tfanalyze, *map(str, arguments)], env=full, cwd=tmp_path, stdin=subprocess.DEVNULL,
                                   stdout=slave, stderr=subprocess.PIPE)
        os.close(slave)
        data = b''
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:
                break
            if not part:
                break
            data += part
        os.close(master)
        assert process.wait(COMMAND_TIMEOUT) == 0, process.stderr.read()
        process.stderr.close()
        return data.decode().split('\r\n')[:-1]
    return terminal


@pytest.fixture
def path(tmp_path):
    t = kineto.Trace().stage(STAGE, 0, 5000)
    t.launch(LONG, 10, 1, dur=1234).launch('short', 2010, 2, dur=12)
    return t.write(tmp_path / 'in.json')


def rows(lines):
    return [line for line in lines if not line.startswith('total:')]


def test_the_longest_text_is_cut_in_the_middle_and_numbers_are_whole(terminal, analyze, path):
    whole = rows(analyze('breakdown', path, format='text').out.splitlines())
    assert LONG in whole[1] and STAGE in whole[1] and len(whole[1]) > 300
    numbers = re.findall(r'\d+\.\d+ (?:us|ms|%)', whole[1])
    for width in (160, 200, 250, 300):
        lines = rows(terminal(width, 'breakdown', path))
        assert max(map(len, lines)) == width and len(lines) == len(whole)
        stage, _, name = re.match(r'(\S.*?)  +(\d)  +(\S.*?)  +COMPUTATION', lines[1]).groups()
        assert '…' in name and name.startswith('void ns') and name.endswith('of_it)')
        assert re.findall(r'\d+\.\d+ (?:us|ms|%)', lines[1]) == numbers
        assert lines[0].split() == whole[0].split()
        assert ('…' in stage or width == 300) and stage.startswith('the sta')
    assert rows(terminal(1000, 'breakdown', path)) == whole


def test_a_terminal_too_narrow_for_the_numbers_names_what_is_left_out(terminal, analyze, path):
    """The first columns stay, no number is cut, and a line names the others."""
    whole = rows(analyze('breakdown', path, format='text').out.splitlines())[0].split()
    for width in (40, 60, 100):
        lines = rows(terminal(width, 'breakdown', path))
        assert max(map(len, lines[:-1])) <= width
        left = lines[-1].removeprefix('not shown for lack of width: ').split(', ')
        assert lines[0].split() + left == whole and len(left) > 1


def test_columns_has_the_last_word_on_a_terminal(terminal, analyze, path):
    assert max(map(len, rows(terminal(200, 'breakdown', path, env={'COLUMNS': '170'})))) == 170
    assert max(map(len, rows(terminal(200, 'breakdown', path, env={'COLUMNS': 'x'})))) == 200


def test_pipes_and_files_are_whole(terminal, tfanalyze, tmp_path, path):
    whole = subprocess.run([tfanalyze, 'breakdown', path], env=clean_environment() | {'COLUMNS': '80'}, capture_output=True, text=True)
    assert LONG in whole.stdout
    terminal(80, 'breakdown', path, '--output', tmp_path / 'out.txt')
    assert (tmp_path / 'out.txt').read_text() == whole.stdout
    assert LONG in '\n'.join(terminal(80, 'breakdown', path, '--format', 'json'))
    assert LONG in '\n'.join(terminal(80, 'breakdown', path, '--format', 'csv'))


def test_a_report_takes_the_terminals_width(terminal, tmp_path, path):
    for width in (80, 140):
        lines = terminal(width, 'report', path, '--output', tmp_path / f'out{width}')
        stage, = (line for line in lines if 'the stage of' in line)
        assert len(stage) == min(width, 42 + len(STAGE))


def test_generated_stage_names_are_shortened_in_text(tmp_path, analyze):
    """Names that torch.compile generates for graphs are shortened; names of words and numbers stay."""
    others = ['denoise', 'step_000000000000000000000000001', 'a' * 40, 'deadbeefdeadbeef', 'ProfilerStep*']
    t = kineto.Trace().stage(MADE_UP, 0, 10000)
    for i, name in enumerate(others):
        t.stage(name, 100 + 1000 * i, 900 - i).launch('k', 110 + 1000 * i, i)
    path = t.write(tmp_path / 'in.json')
    for command in ('stages', 'breakdown', 'launches'):
        text = analyze(command, path, format='text').out
        assert all(name in text for name in others) and MADE_UP not in text
    assert '## Call CompiledFxGraph fp5r5… ##  ' in analyze('stages', path, format='text').out
    assert '## Call CompiledFxGraph fp5r5… ##\n' in analyze('report', path, '--output', tmp_path / 'out', format='text').out
    assert MADE_UP in analyze('stages', path, format='csv').out
    assert analyze('stages', path)['rows'][0]['stage'] == MADE_UP
