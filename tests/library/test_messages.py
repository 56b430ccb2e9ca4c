"""test_messages - what the library says: each kind of message once a run, the line at the end, no character that acts."""

import os
import re
import sys

import pytest

from conftest import ROOT

UNKNOWN = 'is not a known variable'
PARENT = '''
import os, shlex, subprocess, sys
way, *words = sys.argv[1:]
for i in range(3):
    if way == 'subprocess': subprocess.run(words)
    if way == 'system': os.system(shlex.join(words))
if way == 'popen':
    import ctypes
    libc = ctypes.CDLL(None)
    libc.popen.restype = ctypes.c_void_p
    read, write = os.pipe()
    os.set_inheritable(write, True)
    libc.popen(f'{shlex.join(words)}; echo >&{write}'.encode(), b'w')
    os.read(read, 1) # the traces are there, and nobody waits for the child
'''


@pytest.fixture
def shell(run, victim):
    """shell(line, env) runs the line, in which {it} is a program that opens a stage."""
    def shell(line, env=None, **options):
        return run(['bash', '-c', line.format(it=f'{victim("script")} push=a pop')], env, **{'preload': 'test', **options})
    return shell


@pytest.mark.parametrize('directory', ['chosen', 'default', 'impossible'])
def test_a_kind_of_message_is_said_once_a_run(shell, tmp_path, directory):
    """Processes have the same to say; the first says it, and the next run says it again."""
    place = {'chosen': 'run', 'default': None, 'impossible': '/proc/impossible'}[directory]
    said = 'nothing is recorded' if directory == 'impossible' else UNKNOWN
    for _ in range(2):
        result = shell('echo $$; {it}; {it}; {it}; true', {'TFI_OUTPUT_DIR': place, 'TFI_NO_SUCH': '1'})
        assert result.rc == 0
        assert [said in line for line in result.err.splitlines()] == [True], result.err
        assert len(result.closing) == (directory != 'impossible')
        assert not [name for name in os.listdir('/dev/shm') if name.startswith(f'tfinject.{os.geteuid()}.{result.out.strip()}-')]
    if directory != 'impossible':
        assert len(list(tmp_path.rglob('*.tfr'))) == 6


def test_ranks_that_were_started_one_by_one_say_it_once(shell, testlib):
    line = 'for r in 0 1 2; do RANK=$r WORLD_SIZE=3 LD_PRELOAD=$LIBRARY {it} & done; wait'
    result = shell(line, {'TFI_NO_SUCH': '1', 'LIBRARY': testlib}, preload=False)
    assert [UNKNOWN in line for line in result.err.splitlines()] == [True], result.err
    assert len(result.closing) == 1 and len(list(result.dir.glob('*.tfr'))) == 3


@pytest.mark.parametrize('way', ['itself', 'an exec', 'subprocess', 'system', 'popen', 'another preloaded program', 'a background'])
def test_the_end_of_a_run_is_said(run, shell, victim, tmp_path, way):
    """The process that began the run says it, even if another program is in it by then, or nothing of it was recorded."""
    words = [victim('script'), 'push=a', 'pop']
    (tmp_path / 'parent.py').write_text(PARENT)
    ways = {'itself': lambda: run(words), 'an exec': lambda: shell('exec {it}'), 'a background': lambda: shell('{it} & wait'),
            'another preloaded program': lambda: shell('bash -c "{it}; true"; true')}
    result = ways[way]() if way in ways else run([sys.executable, '-S', tmp_path / 'parent.py', way, *words])
    assert (result.rc, result.err, result.closing) == (0, '', [str(tmp_path / 'run')])


@pytest.mark.parametrize('why', ['nothing was recorded', 'TFI_LOG=error', 'tfrun', 'tfrun --output', 'an earlier run was recorded'])
def test_the_end_of_a_run_is_not_said(run, shell, victim, tmp_path, why):
    line = '{it}; true'
    if why.startswith('an earlier'):
        assert shell(line).closing
    if why.startswith('tfrun'):
        output = ['--output', 'own'] if 'output' in why else []
        result = run([ROOT / 'scripts' / 'tfrun', *output, '--', 'bash', '-c', line.format(it=f'{victim("script")} push=a pop')], preload=False)
    else:
        line = line.replace('{it}', '{it} >/dev/null') if why == 'TFI_LOG=error' else 'bash -c true & wait'
        result = shell(line, {'TFI_LOG': 'error'} if why == 'TFI_LOG=error' else None)
    assert result.rc == 0 and result.closing == []
    assert bool(list(tmp_path.rglob('*.tfr'))) == (why != 'nothing was recorded')


def test_a_directory_with_a_blank_is_quoted(shell, tmp_path):
    result = shell('{it}', {'TFI_OUTPUT_DIR': 'my run'})
    assert result.closing == [f"'{tmp_path}/my run'"]


def test_no_character_of_a_message_acts(shell):
    """Names come from others: an escape of a terminal, a line end, one that turns the text and bytes that are no UTF-8."""
    name = 'TFI_\x1b[31m\nx\u202ey\x9b\x7f'
    result = shell('{it}', {name: '1', b'TFI_\xff\xfe'.decode(errors='surrogateescape'): '1'})
    assert len(result.err.splitlines()) == 2 and not re.search(r'[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ufffd]', result.err), result.err
    assert 'TFI_?[31m?x???y???' in result.err
