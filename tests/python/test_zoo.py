"""test_zoo - every kind of object that a module or a class can hold is named in TFI_STAGES, and nothing can tell.

tests/functions/zoo.py uses, pickles, copies, compares, inspects, disassembles, traces and profiles each of tests/functions/
animals.py, zoo_torch.py also compiles them. Their output is the same with the library and without. What cannot be a stage
is left alone, and one line says so.
"""

import ast
import re
import subprocess

import pytest

import pythons
from conftest import BUILD, COMMAND_TIMEOUT, ROOT, built
from test_python import calls

pytestmark = pytest.mark.slow
SCRIPTS = ROOT / 'tests' / 'functions'
PICKLERS = 'cloudpickle', 'dill', 'joblib'
by_version = pythons.by_version()


def names_in(body, place=''):
    """The names of everything that the body of a module or class defines."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield place + node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield place + node.targets[0].id
        elif isinstance(node, ast.ClassDef):
            yield place + node.name
            yield from names_in(node.body, place + node.name + '.')


def stages_of(module):
    names = dict.fromkeys(names_in(ast.parse((SCRIPTS / f'{module}.py').read_text()).body))
    return ','.join(f'{module}:{name}' for name in names if not name.endswith('.__secret'))


def environment(**more):
    built(BUILD / 'picklers' / '.stamp')
    return {'PYTHONPATH': f'{BUILD}/picklers:{SCRIPTS}', 'PYTHONHASHSEED': '0', 'PYTHONDONTWRITEBYTECODE': '1', **more}


def same(run, command, stages, timeout=COMMAND_TIMEOUT):
    """Runs the command with and without stages; returns their calls, and the names in the library's lines."""
    bare = run(command, environment(), preload=False, timeout=timeout)
    watched = run(command, environment(TFI_STAGES=stages), timeout=timeout)
    differ = [pair for pair in zip(bare.out.splitlines(), watched.out.splitlines()) if pair[0] != pair[1]]
    assert (watched.rc, differ, watched.out) == (bare.rc, [], bare.out), watched.err[-2000:]
    ours = re.findall(r'^tfinject: TFI_STAGES: (\S+) is an? .*, not a Python function, and is left alone\n', watched.err, re.M)
    assert re.sub(r'^tfinject: TFI_STAGES: .* is left alone\n', '', watched.err, flags=re.M) == bare.err and bare.rc == 0, bare.err
    return calls(watched), ours


LEFT_ALONE = '''Animal Animal.Descriptor Animal.Inner Animal.described Animal.half Animal.now Animal.shared Animal.single Animal.size Base Color
                Color.RED Meta OfMeta Point SCRIPTED Slotted Slotted.__slots__ animal bound_builtin builtin getter method_of_c of_c partial
                partial_of_lambda slot'''.split()


@by_version
def test_zoo(run, python):
    found, left = same(run, [python.path, SCRIPTS / 'zoo.py', *PICKLERS], stages_of('animals') + ',__main__:here,__main__:here_numbers,__main__:Here.method')
    assert sorted(left) == [f'animals:{name}' for name in LEFT_ALONE]
    missing = {'plain', 'raises', 'hidden', 'numbers', 'coroutine', 'asynchronous', 'cached', 'single', 'lam', 'added', 'Base.method', 'Animal.method',
               'Animal.made', 'Animal.free', 'Animal.costly', 'Animal.__eq__', 'OfMeta.method', 'Color.describe', 'here', 'Here.method'} - set(found)
    assert missing == {'OfMeta.method'}, found


@by_version
def test_functions_that_share_their_code(run, python):
    """A decorator's functions have one code; the stage is the one that was named. Copies by value count too."""
    found, _ = same(run, [python.path, SCRIPTS / 'zoo.py', *PICKLERS], 'animals:hidden,animals:added_too,__main__:here')
    assert (found['hidden'], found['added_too']) == (5, 4) and found['here'] == 4 + 4, found


WORKERS = '''
import joblib
def work(x):
    return x * 2
if __name__ == "__main__":
    print(joblib.Parallel(n_jobs=2)(joblib.delayed(work)(i) for i in range(40)))
'''


@by_version
def test_workers_that_get_functions_by_value(run, tmp_path, python):
    """joblib's workers get functions of the script by value, and count their calls."""
    (tmp_path / 'workers.py').write_text(WORKERS)
    found, _ = same(run, [python.path, 'workers.py'], '__main__:work')
    assert found == {'work': 40}


AT_THE_END = '''
class Late:
    def __del__(self):
        self.close()
    def close(self):
        os_write(1, b"closed\\\\n")
from os import write as os_write
import builtins
builtins.kept = late = Late()
late.itself = late
'''


@by_version
def test_destructors_at_the_interpreters_end(run, tmp_path, python):
    """A function that is called when the interpreter has already emptied its modules does its work."""
    (tmp_path / 'late.py').write_text(AT_THE_END.replace('\\\\', '\\'))
    same(run, [python.path, 'late.py'], '__main__:Late.__del__,__main__:Late.close')


TORCH_LEFT_ALONE = ['Model', 'Model.layer', 'Op', 'model', 'op', 'scripted', 'ufunc']  # and kernel, where triton is


@pytest.mark.soak
def test_zoo_of_torch(run, python):
    """Functions, modules and kernels are compiled, traced, scripted, exported, compared, inspected, pickled and saved."""
    found, left = same(run, [python, SCRIPTS / 'zoo_torch.py', *PICKLERS], stages_of('torch_animals'))
    assert sorted({name.partition(':')[2] for name in left} - {'kernel'}) == TORCH_LEFT_ALONE
    assert {'helper', 'function', 'caller', 'decorated', 'nothing', 'Op.forward', 'Op.backward', 'Model.forward'} <= set(found), found


NUMBA = 'numba==0.68.1', 'llvmlite==0.50.0'
NUMBA_LEFT_ALONE = 'Counter calls_helper caller callback compiled generalized in_object_mode inlined numbers stencil vectorized'.split()


@pytest.mark.soak
def test_zoo_of_numba(run, python):
    """numba compiles functions that are stages, from their code, and what it has compiled is left alone."""
    place = BUILD / 'numba'
    if not (place / '.done').exists():
        subprocess.run([python, '-m', 'pip', '-q', '--disable-pip-version-check', 'install', '--no-deps', '--upgrade', '--target', place, *NUMBA], check=True)
        (place / '.done').touch()
    script = ['-c', f'import sys, runpy; sys.path[:0] = {[str(place)]}; runpy.run_path("{SCRIPTS / "zoo_numba.py"}", run_name="__main__")']
    found, left = same(run, [python, *script, 'cloudpickle', 'dill'], stages_of('numba_animals'), timeout=300)
    assert sorted(name.partition(':')[2] for name in left) == sorted(NUMBA_LEFT_ALONE)
    assert found['helper'] > 1 and found['later'] > 1, found


UVLOOP = '''
import asyncio, re, sys, time, traceback, uvloop, logging
logging.basicConfig(stream=sys.stdout, format='%(message)s')
class Once(logging.Filter):
    def filter(self, record):
        asyncio.get_running_loop().slow_callback_duration = 1e9
        return True
logging.getLogger('asyncio').addFilter(Once())
async def slow():
    await asyncio.sleep(0)
    asyncio.get_running_loop().slow_callback_duration = -1  # this callback is slow, whatever it takes; no other one is
async def main():
    loop = asyncio.get_running_loop()
    loop.slow_callback_duration = 1e9
    handle = loop.call_soon(print, 'called')
    print(re.sub('0x[0-9a-f]+', '', repr(handle)))
    await asyncio.create_task(slow(), name='the slow one')
    loop.call_soon(lambda: 1 / 0)
    await asyncio.sleep(0.01)
uvloop.run(main(), debug=True)
'''


def test_messages_of_uvloop(run, tmp_path, python):
    """In debug mode uvloop names the task that is slow, and the line that made a callback."""
    (tmp_path / 'loops.py').write_text(UVLOOP)
    bare, watched = (run([python, 'loops.py'], {'TFI_STAGES': '__main__:slow'}, preload=preload) for preload in (False, True))
    texts = [re.sub(r'0x[0-9a-f]+|took [0-9.]+', '', result.out) for result in (bare, watched)]
    assert texts[0] == texts[1] and 'the slow one' in texts[0] and watched.err == bare.err


TYPEGUARD = '''
import importlib.machinery, importlib.abc, sys
class Loader(importlib.machinery.SourceFileLoader):
    pass
class Finder(importlib.abc.MetaPathFinder):
    """As typeguard's: before all others, it asks the finder of paths itself."""
    def find_spec(self, name, path=None, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and name == "late":
            spec.loader = Loader(spec.loader.name, spec.loader.path)
        return spec
sys.meta_path.insert(0, Finder())
import late
print(type(late.__spec__.loader).__name__, late.work(1))
'''


@by_version
def test_a_finder_before_ours(run, tmp_path, python):
    """A module that another import hook loads is found all the same."""
    (tmp_path / 'late.py').write_text('def work(x):\n    return x\n')
    (tmp_path / 'script.py').write_text(TYPEGUARD)
    found, _ = same(run, [python.path, 'script.py'], 'late:work')
    assert found == {'work': 1}


PROFILED = '''
import asyncio, cProfile, pstats, sys
profile = cProfile.Profile()
profile.enable()
import work, json.tool
async def main():
    return work.work(1), await asyncio.sleep(0)
asyncio.run(main())
list(work.numbers())
profile.disable()
print(sorted({(of[0], of[2]) for of in pstats.Stats(profile).stats if "tfinject" in of[0]}))
'''


@by_version
def test_a_profile_has_no_functions_of_ours(run, tmp_path, python):
    """But for the wrapper of an event loop's steps."""
    (tmp_path / 'work.py').write_text('def work(x):\n    return x\ndef numbers():\n    yield 1\n    yield 2\n')
    (tmp_path / 'script.py').write_text(PROFILED)
    result = run([python.path, 'script.py'], environment(TFI_STAGES='work:work,work:numbers'))
    assert (result.rc, result.err) == (0, '') and calls(result) == {'work': 1, 'numbers': 1}
    named = {function for _, function in ast.literal_eval(result.out)}
    assert named <= {'_run', 'create_task', '_task_of', '_if_task', '__init__'}, named
