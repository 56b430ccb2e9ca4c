"""test_foreign_python - CPython's own tests end case by case as without the library, with each case as a stage.

Debian packages them as libpythonX.Y-testsuite; interpreters built from source bring them. The tests compare each case's
outcome, not its output. A case with several outcomes without the library is left out, and listed here with its reason.
"""

import json
import os
import subprocess

import pytest

import pythons
from conftest import COMMAND_TIMEOUT, ROOT, clean_environment, execute

RUNNER = ROOT / 'tests' / 'cpython_cases.py'
STAGE = 'unittest.case:TestCase.run'

# These modules fork, exec, catch signals, set audit hooks, crash on purpose, inspect frames and count references.
SHORT = 'test_os test_fork1 test_audit test_generators'.split()
LONG = '''test_sys test_faulthandler test_gc test_threadsignals test_threading test_subprocess test_thread test_signal
          test_asyncio test_coroutines test_asyncgen test_inspect test_ctypes test_weakref test_traceback
          test_sys_setprofile test_sys_settrace test_posix test_pty test_popen test_resource test_mmap
          test_contextlib test_context test_code test_frame test_bdb test_pdb test_import test_exceptions
          test_cmd_line test_runpy test_tempfile test_queue test_types test_dis test_warnings test_call
          test_functools test_dataclasses test_pickle test_copy test_ssl test_concurrent_futures
          test_multiprocessing_main_handling test_multiprocessing_fork test_multiprocessing_forkserver
          test_multiprocessing_spawn'''.split()

# {case with more than one outcome without the library: reason}
UNSTEADY = {}


def has_tests(path):
    """True if the interpreter brings the tests; Debian's without the package has only a stub of `test`."""
    script = 'import importlib.util as u; print(bool(u.find_spec("test.test_os") and u.find_spec("test.test_fork1")))'
    try:
        return subprocess.run([path, '-c', script], capture_output=True, text=True, timeout=COMMAND_TIMEOUT).stdout.strip() == 'True'
    except (OSError, subprocess.SubprocessError):
        return False


@pytest.fixture(scope='session')
def interpreter():
    """Debian's own interpreter if it has the tests, or else the newest one that has them."""
    for path in ['/usr/bin/python3', *(p.path for p in reversed(pythons.SEEN))]:
        if os.path.exists(path) and has_tests(path):
            return path
    pytest.skip("no Python with CPython's own tests is here")


@pytest.fixture
def cases(run, interpreter, tmp_path):
    """cases(module, watched, timeout) -> the JSON of cpython_cases.py, and the result of the run."""
    def cases(module, watched, timeout):
        place = tmp_path / ('watched' if watched else 'bare')
        place.mkdir(exist_ok=True)
        said = tmp_path / 'said.json'
        said.unlink(missing_ok=True)
        result = run([interpreter, RUNNER, f'test.{module}', said], {'TFI_STAGES': STAGE} if watched else {},
                     preload=watched, timeout=timeout, cwd=place)
        assert said.exists(), f'{module} ended with {result.rc} before its tests did: {result.err[-2000:]}'
        return json.loads(said.read_text()), result
    return cases


def same(cases, tfanalyze, module, timeout):
    """Runs the module bare and watched; compares the cases, and counts the stages of the process that ran them."""
    bare, _ = cases(module, False, timeout)
    watched, result = cases(module, True, timeout)
    assert bare['started'] and not [name for name in bare['cases'] if '_FailedTest' in name], bare
    differ = {name: (bare['cases'].get(name), watched['cases'].get(name)) for name in bare['cases'].keys() | watched['cases'].keys()
              if bare['cases'].get(name) != watched['cases'].get(name) and name not in UNSTEADY}
    assert not differ, f'{differ}\n{result.err[-4000:]}'
    assert watched['started'] == bare['started']
    info = execute([tfanalyze, 'info', result.dir, '--format', 'json'], clean_environment())
    assert info.rc in (0, 3), info.err  # 3: a case killed its own child
    # A process whose exec failed starts a second trace, so the counts are summed.
    begun = sum(row['events'].get('range_begin', 0) for row in json.loads(info.out)['rows'] if row['pid'] == watched['pid'])
    assert begun == watched['started']


@pytest.mark.slow
@pytest.mark.parametrize('module', SHORT)
def test_a_module_of_cpython(cases, tfanalyze, module):
    """The outcomes are the same, and each case is a stage."""
    same(cases, tfanalyze, module, timeout=300)


@pytest.mark.soak
@pytest.mark.sampled(13)
@pytest.mark.timeout(2400)
@pytest.mark.parametrize('module', LONG)
def test_more_modules_of_cpython(cases, tfanalyze, module):
    """The same for the modules that take minutes, and for those of other parts of the interpreter."""
    same(cases, tfanalyze, module, timeout=1100)
