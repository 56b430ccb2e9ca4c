"""test_interrupts - an exception of a signal handler reaches the program, whatever of ours runs at that moment.

The moments are counted in executed lines (tests/victims/libmoments.c): the same ones with and without the library.
"""

import json
import signal

import pytest

import pythons
from conftest import COMMAND_TIMEOUT

by_version = pythons.by_version()
ARRIVED, LOST, OTHER, ENDED = 10, 11, 12, 128 + signal.SIGVTALRM  # exit statuses of the interrupted children

SCRIPT = '''
import ctypes, json, os, signal, sys
class Stop(BaseException): pass
def stop(number, frame):
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.3)  # ends the process if the exception does not arrive meanwhile
    raise Stop
library, imported, first, step, most = sys.argv[1:]
moments = ctypes.PyDLL(library)
start, end = moments.moments_start, moments.moments_stop
signal.signal(signal.SIGUSR1, stop)
statuses = (ctypes.c_ubyte * 5000)()
parent = os.getpid()
try:
    start(int(first), int(step), int(most), int(signal.SIGUSR1))
    __import__(imported)
    for _ in range(3): pass
    status = 11
except Stop:
    status = 10
except BaseException as error:
    status = 12
if os.getpid() != parent:
    os._exit(status)
lines = end(statuses)
print(json.dumps([lines, bytes(statuses).split(b'\\xff')[0].decode('latin-1')]))
'''

# A package whose modules import it again while it is being imported, as torch's do.
PACKAGE = {
    '__init__.py': 'import torch\nfrom torch import a, b\nclass Tensor: pass\n',
    'a.py': 'import torch\nimport torch\nfor i in range(30):\n    import torch\n    import torch.b\nvalue = list(map(__import__, ["torch"] * 30))\n',
    'b.py': 'import torch\nfrom torch import a\ndef f():\n    import torch\nfor i in range(20):\n    f()\n    from torch import a\n',
}


@pytest.fixture
def interrupted(run, victim, tmp_path):
    """interrupted(python, name, moments, stages) -> the lines of the import, and the statuses of each interrupted child,
    without the library and with it."""
    def interrupted(python, name, moments, env=None, timeout=COMMAND_TIMEOUT):
        (tmp_path / 'script.py').write_text(SCRIPT)
        command = [python, '-B', 'script.py', victim('libmoments.so'), name]
        found = []
        for preload in (False, True):
            result = run([*command, 1, 1, 0], env, preload=preload, timeout=timeout)
            lines = json.loads(result.out)[0]
            first = found[0][0] if found else lines
            assert abs(lines - first) <= first // 500, 'not the same lines'
            step = max(1, first // moments)
            result = run([*command, step // 2 + 1, step, moments], env, preload=preload, timeout=timeout)
            assert result.rc == 0, result.err
            found.append((lines, list(json.loads(result.out)[1].encode('latin-1'))))
        return found
    return interrupted


def none_is_lost(found, moments):
    (_, bare), (_, watched) = found
    for who, statuses in (('alone', bare), ('with us', watched)):  # pytest -s shows it
        print(f'{who}: of {len(statuses)} interrupts {statuses.count(ARRIVED)} arrived, {statuses.count(LOST)} were lost, '
              f'{statuses.count(OTHER)} became another exception, {statuses.count(ENDED)} ended the process')
    assert len(bare) >= moments * 0.9 and abs(len(bare) - len(watched)) <= 1, (len(bare), len(watched))
    assert set(bare) | set(watched) <= {ARRIVED, LOST, OTHER, ENDED}
    wrong = [i for i, (alone, with_us) in enumerate(zip(bare, watched)) if with_us != ARRIVED == alone]
    assert not wrong, (wrong, [watched[i] for i in wrong])
    assert bare.count(ARRIVED) > len(bare) * 0.7  # those during the import of numpy are lost in torch itself


@by_version
def test_interrupts_of_an_import(interrupted, tmp_path, python):
    """A package that we wait for imports itself again and again while it is imported; every line of it is interrupted."""
    (tmp_path / 'torch').mkdir()
    for name, text in PACKAGE.items():
        (tmp_path / 'torch' / name).write_text(text)
    none_is_lost(interrupted(python.path, 'torch', 250, {'TFI_LOG': 'error'}), 150)


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_interrupts_of_the_import_of_torch(interrupted, python):
    none_is_lost(interrupted(python, 'torch', 1000, timeout=600), 1000)
