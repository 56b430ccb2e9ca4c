"""test_aarch64 - tfanalyze for 64-bit ARM: Debian's cross compiler builds it, and under qemu-user it answers as on x86-64.

The library is for x86-64 only, and its compilation says so in its first error.
"""

import os
import shutil
import subprocess

import pytest

from conftest import BUILD, ROOT, built, clean_environment, execute

pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]
COMPILER, EMULATOR, PREFIX = 'aarch64-linux-gnu-gcc', 'qemu-aarch64', '/usr/aarch64-linux-gnu'
COMMANDS = ['screen', 'info', 'stages', 'steps', 'breakdown', 'overlap', 'timeline', 'launches', 'memory', 'comm', 'stragglers', 'budget',
            'critical-path', 'ops', 'stacks', 'kinds', 'io', 'queue', 'patterns', 'annotations']


def packages(folder):
    """The libraries that tfanalyze is linked with, from Debian's packages for ARM; nothing is installed."""
    for name in ('lists/partial', 'cache/archives/partial', 'root'):
        (folder / name).mkdir(parents=True)
    apt = ['apt-get', '-q', '-o', 'APT::Architecture=arm64', '-o', 'APT::Architectures=arm64', '-o', f'Dir::State::lists={folder}/lists',
           '-o', f'Dir::Cache={folder}/cache', '-o', 'Dir::State::status=/dev/null', '-o', 'APT::Sandbox::User=root']
    for words in (['update'], ['download', 'zlib1g-dev', 'libjansson-dev']):
        if subprocess.run(apt + words, cwd=folder, capture_output=True).returncode:
            pytest.skip("Debian's packages for ARM can't be had")
    for package in folder.glob('*.deb'):
        subprocess.run(['dpkg-deb', '-x', package, folder / 'root'], check=True)
    return folder / 'root/usr'


def make(folder, compiler, target):
    (folder / 'build').mkdir(exist_ok=True)
    shutil.copy(BUILD / 'headers.mk', folder / 'build')
    return execute(['make', f'BUILD={folder}/build', 'WERROR=1', f'CC={compiler}', f'{folder}/build/{target}'], clean_environment(), ROOT, timeout=1800)


@pytest.fixture(scope='module')
def compiler(tmp_path_factory):
    if not shutil.which(COMPILER) or not shutil.which(EMULATOR):
        pytest.skip('no cross compiler and emulator for aarch64 are installed')
    usr = packages(tmp_path_factory.mktemp('packages'))
    return f'{COMPILER} -isystem {usr}/include -isystem {usr}/include/aarch64-linux-gnu -L{usr}/lib/aarch64-linux-gnu'


@pytest.fixture(scope='module')
def analyser(compiler, tmp_path_factory):
    folder = tmp_path_factory.mktemp('aarch64')
    result = make(folder, compiler, 'tfanalyze')
    assert result.rc == 0, result.err
    return folder / 'build/tfanalyze'


def test_the_library_says_so(compiler, tmp_path):
    result = make(tmp_path, compiler, 'obj/lib/preload/record/clock.o')
    assert result.rc and 'libtfinject.so is for x86-64 only' in result.err


@pytest.mark.parametrize('command', COMMANDS)
def test_the_same_answers(command, analyser, shared_traces):
    """Each question about every folder of shared traces has the same answer, messages and exit status."""
    here = {'env': {**clean_environment(), 'QEMU_LD_PREFIX': PREFIX, 'TZ': 'UTC'}, 'timeout': 600}
    folders = sorted({os.path.dirname(p) for p in shared_traces.rglob('*') if p.name.endswith(('.json', '.json.gz', '.tfr', '.pfw', '.pfw.gz'))})
    answered = 0
    for folder in folders:
        asked = [command, folder, '--format', 'json']
        ours, theirs = execute([built(BUILD / 'tfanalyze'), *asked], **here), execute([EMULATOR, analyser, *asked], **here)
        assert (ours.rc, ours.out, ours.err.replace(str(BUILD), '')) == (theirs.rc, theirs.out, theirs.err.replace(str(analyser.parent), '')), folder
        answered += ours.rc == 0
    assert answered or command in ('io',), command
