"""test_raised - the record of an exception that nothing caught, for every CPython on this machine.

Each script runs with the library and without, and prints the same both times.
"""

import subprocess

import pytest

import pythons
from conftest import CLOSING, COMMAND_TIMEOUT, clean_environment
from test_silence import frames_of

by_version = pythons.by_version()
RAISED = 10
CUT = 1
KEPT = 256  # frames of a stack

HEAD = '''import asyncio, ctypes, os, sys, threading
t = ctypes.CDLL(None)
def record():
    if hasattr(t, 'tfi_range_push'): t.tfi_range_push(b'recorded'), t.tfi_range_pop()
class OwnError(ValueError):
    pass
class Trainer:
    def fail(self):
        raise OwnError('the secret')  # here
record()
'''
METHOD = 'Trainer.fail'

# name: (script, functions of the traceback with a part of their lines, the innermost first; None: no record)
CASES = {
    'main': ('def run():\n    Trainer().fail()  # run\nrun()  # outer\n', [(METHOD, '# here'), ('run', '# run'), ('<module>', '# outer')]),
    'hook': ('sys.excepthook = lambda kind, value, tb: print("own hook", kind.__name__, value, tb.tb_lineno)\nTrainer().fail()  # outer\n',
             [(METHOD, '# here'), ('<module>', '# outer')]),
    'failing hook': ('def own(*args):\n    raise KeyError("in the hook")\nsys.excepthook = own\nTrainer().fail()  # outer\n',
                     [(METHOD, '# here'), ('<module>', '# outer')]),
    'chained': ('try:\n    1 / 0\nexcept ZeroDivisionError:\n    Trainer().fail()  # outer\n', [(METHOD, '# here'), ('<module>', '# outer')]),
    'clean-up': ('import atexit\natexit.register(record)\nTrainer().fail()  # outer\n', [(METHOD, '# here'), ('<module>', '# outer')]),
    'deep': ('def deep(n):\n    return deep(n - 1) if n else Trainer().fail()  # deep\ndeep(500)  # outer\n',
             [(METHOD, '# here'), *[('deep', '# deep')] * (KEPT - 1)]),
    'exit': ('sys.exit(3)\n', None),
    'exit with a text': ('sys.exit("the end")\n', None),
    'caught': ('try:\n    Trainer().fail()\nexcept OwnError as e:\n    print("caught", e)\n', None),
    'thread': ('def run():\n    Trainer().fail()\nworker = threading.Thread(target=run)\nworker.start()\nworker.join()\n', None),
    'forged': ('sys.audit("sys.excepthook")\nsys.audit("sys.excepthook", 1, 2, 3, 4)\nsys.audit("sys.excepthook", None, 5, None, sys)\n', None),
    'watched': ('seen = []\nsys.addaudithook(lambda event, args: seen.append(event))\n'
                'sys.excepthook = lambda *args: print(sorted({e for e in seen if "attr" in e or "hook" in e}))\nTrainer().fail()  # outer\n',
                [(METHOD, '# here'), ('<module>', '# outer')]),
}
TASK = '''
async def work():
    Trainer().fail()  # work
async def main():
    await asyncio.gather(work(), asyncio.sleep(0))
(asyncio.run(main()))  # outer
'''


def run(python, script, **env):
    result = subprocess.run([python.path, script.name], cwd=script.parent, capture_output=True, text=True,
                            env={**clean_environment(), 'PYTHONDONTWRITEBYTECODE': '1', **env}, timeout=COMMAND_TIMEOUT)
    return result.returncode, result.stdout, CLOSING.sub('', result.stderr)


def record_of(analyze, directory):
    """The values of the one record of an exception, None if there is none."""
    rows = [row['values'] for row in analyze('dump', directory)['rows'] if row['kind'] == 'silence' and row['values']['reading'] == RAISED]
    assert len(rows) <= 1
    return rows[0] if rows else None


def check(analyze, tmp_path, lib, python, text):
    """Runs the script with the library and without; returns the record and the script's lines."""
    script = tmp_path / 'script.py'
    script.write_text(HEAD + text)
    plain = run(python, script)
    assert run(python, script, LD_PRELOAD=str(lib), TFI_OUTPUT_DIR=str(tmp_path / 'run')) == plain
    return record_of(analyze, tmp_path / 'run'), (HEAD + text).split('\n')


@pytest.mark.parametrize('case', CASES)
@by_version
def test_uncaught(analyze, tmp_path, lib, python, case):
    """The program prints what it prints without the library; the record has the lines of the traceback, and the type
    of the exception without its message."""
    text, expected = CASES[case]
    record, lines = check(analyze, tmp_path, lib, python, text)
    if not expected:
        assert record is None
        return
    numbers = [(function if python.version >= (3, 11) else function.split('.')[-1],
                str(next(i for i, line in enumerate(lines, 1) if mark in line))) for function, mark in expected]
    assert [(frame[0], frame[2]) for frame in frames_of(record['stack'])] == numbers
    assert {frame[1].rsplit('/')[-1] for frame in frames_of(record['stack'])} == {'script.py'}
    assert record['exception'] == 'OwnError' and int(record['flags'], 16) == (CUT if len(expected) == KEPT else 0)
    assert all(b'secret' not in path.read_bytes() for path in (tmp_path / 'run').iterdir())


@by_version
def test_a_task(analyze, tmp_path, lib, python):
    """An exception of a task reaches the caller of asyncio.run: the innermost frames are those of the task."""
    record, lines = check(analyze, tmp_path, lib, python, TASK)
    frames = frames_of(record['stack'])
    method, line = (METHOD if python.version >= (3, 11) else 'fail'), {mark: str(next(i for i, t in enumerate(lines, 1) if mark in t))
                                                                      for mark in ('# here', '# work', '# outer')}
    assert [(f[0], f[2]) for f in frames[:2]] == [(method, line['# here']), ('work', line['# work'])]
    assert (frames[-1][0], frames[-1][2]) == ('<module>', line['# outer'])


def test_off(analyze, tmp_path, lib):
    """With TFI_HANG_S=0 there is no record."""
    script = tmp_path / 'script.py'
    script.write_text(HEAD + 'Trainer().fail()\n')
    run(pythons.SEEN[-1], script, LD_PRELOAD=str(lib), TFI_OUTPUT_DIR=str(tmp_path / 'run'), TFI_HANG_S='0')
    assert record_of(analyze, tmp_path / 'run') is None
