"""test_promises_driverless - no driver, the toolkit's stub driver, an unfit CUPTI."""

import re
import shutil
from pathlib import Path

import pytest

from conftest import BUILD, ROOT, built

@pytest.fixture
def wheels(python):
    """The directory of PyPI's CUDA 13 libraries, which torch's wheel brings."""
    found = sorted((python.parent.parent / 'lib').glob('python3*/site-packages/nvidia/cu13/lib'))
    assert found, 'no CUDA 13 libraries in build/venv; `make test` installs them with torch'
    return found[0]


@pytest.fixture
def stub(tmp_path):
    """A directory with the toolkit's stub as libcuda.so.1; None without a toolkit."""
    for path in [*Path('/usr/local').glob('cuda*/lib*/stubs/libcuda.so'), *Path('/usr/local').glob('cuda*/targets/*/lib/stubs/libcuda.so')]:
        (tmp_path / 'stub').mkdir(exist_ok=True)
        shutil.copy(path, tmp_path / 'stub' / 'libcuda.so.1')
        return tmp_path / 'stub'
    return None


@pytest.mark.parametrize('driver', ['none', 'stub', 'simulated'])
@pytest.mark.parametrize('beside', [False, True])
def test_the_vendors_runtime_without_a_driver(run, victim, wheels, stub, driver, beside):
    """A program with PyPI's runtime is undisturbed if the driver is missing, a stub, or simulated.

    The runtime is loaded alone or beside torch's CUPTI. CUPTI used to crash here (status 139)."""
    path = {'none': None, 'stub': stub, 'simulated': built(BUILD / 'simgpu' / 'libcuda.so.1').parent}[driver]
    env = {'LD_LIBRARY_PATH': path}
    command = [victim('driverless'), wheels / 'libcudart.so.13', *([wheels / 'libcupti.so.13'] if beside else [])]
    plain = run(command, env, preload=False)
    result = run(command, env)
    assert plain.rc not in (2, 139) and plain.out.count('\n') == 3
    assert (result.rc, result.out) == (plain.rc, plain.out)
    said = result.err.replace(plain.err, '')
    assert said == '' or (driver == 'simulated' and 'does not fit the driver, which is simulated' in said)


def test_tfrun_tries_the_library_first(run, tmp_path):
    """tfrun tries to load the library first: if that fails, it prints why and does not start the program."""
    (tmp_path / 'bin').mkdir()
    (tmp_path / 'lib').mkdir()
    shutil.copy(ROOT / 'scripts' / 'tfrun', tmp_path / 'bin' / 'tfrun')
    (tmp_path / 'lib' / 'libtfinject.so').write_text('not a library')
    result = run([tmp_path / 'bin' / 'tfrun', '--', 'echo', 'ran'], preload=False)
    assert (result.rc, result.out) == (1, '')
    assert re.search(r"tfrun: .*libtfinject.so cannot be loaded on this system: .+", result.err)
