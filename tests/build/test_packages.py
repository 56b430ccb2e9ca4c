"""test_packages - the wheel and the Debian package: made, judged by auditwheel and lintian, installed, used, removed."""

import os
import subprocess
import sys
import zipfile

import pytest

from conftest import BUILD, ROOT, clean_environment, execute


def said(command, folder, **env):
    result = execute([str(word) for word in command], dict(clean_environment(), **env), folder)
    assert result.rc == 0, f'{command}: {result.rc}\n{result.out}\n{result.err}'
    return result.out


def files_below(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob('*') if not path.is_dir()}


@pytest.fixture(scope='module')
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp('wheel')
    return said([ROOT / 'scripts/package/wheel', BUILD, '1.2.3-4-gabc', folder], folder).strip()


@pytest.fixture(scope='module')
def environment(tmp_path_factory):
    """An environment without pip in it, and the command that installs into it."""
    folder = tmp_path_factory.mktemp('environment') / 'venv'
    said([BUILD / 'venv/bin/python', '-m', 'venv', '--without-pip', folder], folder.parent)
    return folder, [BUILD / 'venv/bin/python', '-m', 'pip', '--disable-pip-version-check', '--python', folder / 'bin/python']


def profile_files(run, analyze, folder, **env):
    """Records a program that reads a file, and asks about it."""
    plain = said(['cat', '/etc/passwd'], folder)
    assert said([*run, '--activities', 'io', '--output', 'run', '--', 'cat', '/etc/passwd'], folder, **env) == plain
    assert f',{len(plain)},' in said([*analyze, 'io', 'run', '--format', 'csv'], folder, **env)


def test_the_wheel_is_small_and_for_all(wheel):
    """It stays below 1.5 MB, for glibc 2.28 and every Python, and auditwheel finds no need of a newer system."""
    assert os.path.basename(wheel) == 'tfinject-1.2.3.post4+gabc-py3-none-manylinux_2_28_x86_64.whl'
    assert os.path.getsize(wheel) < 1_500_000
    shown = said([BUILD / 'venv/bin/python', '-m', 'auditwheel', 'show', wheel], BUILD).replace('\n', ' ')
    tag = shown.split('the following platform tag: "manylinux_2_')[1].split('_')[0]
    assert int(tag) <= 28
    with zipfile.ZipFile(wheel) as z:
        assert {'tfinject-1.2.3.post4+gabc.dist-info/licenses/libjansson-dev.txt', 'tfharness.py'} <= set(z.namelist())


def test_the_same_build_gives_the_same_wheel(wheel, tmp_path):
    again = said([ROOT / 'scripts/package/wheel', BUILD, '1.2.3-4-gabc', tmp_path], tmp_path).strip()
    with open(wheel, 'rb') as a, open(again, 'rb') as b:
        assert a.read() == b.read()


def test_in_an_environment(wheel, environment, tmp_path):
    """Installed into a venv, each way in works from another directory; removed, nothing is left."""
    venv, pip = environment
    before = files_below(venv)
    said([*pip, 'install', '-q', '--no-index', wheel], tmp_path)
    python = venv / 'bin/python'
    library = said([python, '-m', 'tfinject'], tmp_path).strip()
    assert library.startswith(str(venv)) and os.path.samefile(library, said([python, '-c', 'import tfinject; print(tfinject.library())'], tmp_path).strip())
    profile_files([venv / 'bin/tfrun'], [venv / 'bin/tfanalyze'], tmp_path)
    (tmp_path / 'again').mkdir()
    profile_files([python, '-m', 'tfinject', 'run'], [python, '-m', 'tfinject', 'analyze'], tmp_path / 'again')
    assert 'TFI_SAMPLE_HZ' in said([python, '-m', 'tfinject', 'help', 'variables'], tmp_path)
    said([python, '-c', 'import tfharness'], tmp_path)
    assert execute([python, '-m', 'tfinject', 'rnu'], clean_environment(), tmp_path).rc == 2
    # The import of the package changes neither the environment nor what is loaded beside it.
    change = 'import os, sys; e, m = dict(os.environ), set(sys.modules); import tfinject; print(dict(os.environ) == e, sorted(set(sys.modules) - m))'
    assert said([python, '-c', change], tmp_path) == "True ['tfinject']\n"
    said([*pip, 'uninstall', '-q', '-y', 'tfinject'], tmp_path)
    left = {name for name in files_below(venv) - before if '__pycache__' not in name}
    assert not left and not (venv / f'lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages/tfinject').exists()


def test_in_a_folder(wheel, environment, tmp_path):
    """pip --target works too: with PYTHONPATH for Python, and without it for the programs."""
    target = tmp_path / 'target'
    said([*environment[1], 'install', '-q', '--no-index', '--target', target, wheel], tmp_path)
    profile_files([target / 'bin/tfrun'], [target / 'bin/tfanalyze'], tmp_path)
    (tmp_path / 'again').mkdir()
    python = environment[0] / 'bin/python'
    profile_files([python, '-m', 'tfinject', 'run'], [python, '-m', 'tfinject', 'analyze'], tmp_path / 'again', PYTHONPATH=target)


@pytest.mark.slow
def test_the_debian_package(tmp_path):
    """lintian finds nothing, and the unpacked programs find each other."""
    package = said([ROOT / 'scripts/package/deb', BUILD, '1.2.3-4-gabc', tmp_path], tmp_path).strip()
    assert os.path.basename(package) == 'tfinject_1.2.3+4+gabc_amd64.deb'
    assert said(['lintian', *(['--allow-root'] if os.getuid() == 0 else []), package], tmp_path) == ''
    subprocess.run(['dpkg-deb', '-x', package, tmp_path / 'tree'], check=True)
    profile_files([tmp_path / 'tree/usr/bin/tfrun'], [tmp_path / 'tree/usr/bin/tfanalyze'], tmp_path)
