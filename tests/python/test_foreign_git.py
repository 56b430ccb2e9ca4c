"""test_foreign_git - git's own tests end as without the library: asleep, and with a stage open in each process.

The tests are scripts that start tens of thousands of short processes: shells, git's commands and daemons, which fork,
exec, use pipes, kill each other and check each other's status and stderr. apt fetches Debian's source package into the
tests' own directory, from a private list of sources, and leaves the system's apt state untouched. The workers of a run share
one tree, which the first of them builds.
"""

import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import BUILD, built, clean_environment, execute

pytestmark = pytest.mark.soak

OPTIONS = 'NO_CURL=1 NO_GETTEXT=1 NO_TCLTK=1 NO_EXPAT=1 NO_OPENSSL=1 NO_PYTHON=1'.split()
SCRIPTS = '''t0000 t0001 t0005 t0008 t0012 t0021 t0040 t0050 t0060 t0061 t0062 t0066 t0070 t0090 t0300 t0410 t1000 t1006 t1050
             t1300 t1400 t1410 t1700 t3200 t3400 t4013 t5000 t5300 t5302 t5304 t5310 t5500 t5505 t5510 t5516 t5520 t5526 t5531
             t5601 t5604 t5616 t5700 t5701 t5702 t6500 t7400 t7406 t7501 t7600 t7900 t9300'''.split()


def sources(place):
    """A list of source packages made from the system's sources, and the apt options that use only this list."""
    text = ''
    for path in ('/etc/apt/sources.list', '/etc/apt/sources.list.d/debian.sources', '/etc/apt/sources.list.d/ubuntu.sources'):
        try:
            with open(path) as f:
                said = f.read()
        except OSError:
            continue
        deb822 = path.endswith('.sources')
        made = re.sub(r'^Types:.*$', 'Types: deb-src', said, flags=re.M) if deb822 else re.sub(r'^deb\b', 'deb-src', said, flags=re.M)
        if 'deb-src' in made:
            name = place / ('all.sources' if deb822 else 'all.list')
            text = made
            name.write_text(text)
    if not text:
        return None
    for folder in ('lists/partial', 'cache/archives/partial', 'parts'):
        (place / folder).mkdir(parents=True)
    for name in place.glob('all.*'):
        shutil.move(name, place / 'parts')
    settings = {'Dir::Etc::sourcelist': '/dev/null', 'Dir::Etc::sourceparts': place / 'parts',
                'Dir::State::lists': place / 'lists', 'Dir::Cache': place / 'cache', 'APT::Sandbox::User': 'root'}
    return [part for name, value in settings.items() for part in ('-o', f'{name}={value}')]


def build(place):
    """Fetches and builds git's sources; returns the tree, or None if apt gives no sources."""
    shutil.rmtree(place, ignore_errors=True)  # an earlier attempt
    place.mkdir()
    options = sources(place) if shutil.which('apt-get') else None
    for command in (['update'], ['source', '--download-only', 'git']):
        if not options or execute(['apt-get', *options, '-q', *command], clean_environment(), place, timeout=300).rc:
            return None
    archive, = place.glob('git_*.orig.tar.*')
    subprocess.run(['tar', 'xf', archive], cwd=place, check=True)
    tree, = (p for p in place.glob('git-*') if p.is_dir())
    result = execute(['make', '-s', '-j2', *OPTIONS, 'CFLAGS=-O1'], clean_environment(), tree, timeout=1200)
    assert result.rc == 0, result.err[-2000:]
    return tree


@pytest.fixture(scope='session')
def git(tmp_path_factory):
    """git's source tree, built; its tests are in t/."""
    shared = tmp_path_factory.getbasetemp()
    if 'PYTEST_XDIST_WORKER' in os.environ:
        shared = shared.parent
    done = shared / 'git-is-built'
    with open(shared / 'git-lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            done.write_text(str(build(shared / 'git') or ''))
    if not done.read_text():
        pytest.skip("git's source package can't be had")
    return Path(done.read_text())


@pytest.fixture
def script(run, lib, git, tmp_path):
    """script(name, kind) -> the result of one of git's test scripts; kind: bare, asleep or awake."""
    def script(name, kind):
        root = tmp_path / 'root'
        root.mkdir()
        preload = {'bare': False, 'asleep': lib, 'awake': f'{lib} {built(BUILD / "victims" / "libawake.so")}'}[kind]
        # git's own malloc check would replace the preloaded library.
        result = run(['sh', name, f'--root={root}'], {'TEST_NO_MALLOC_CHECK': '1', 'GIT_TEST_CHAIN_LINT': '0', 'HOME': tmp_path,
                                                      'TFI_OUTPUT_DIR': tmp_path / kind}, preload=preload, timeout=900, cwd=git / 't')
        shutil.rmtree(root)
        return result
    return script


@pytest.mark.sampled(13)
@pytest.mark.timeout(3000)
@pytest.mark.parametrize('number', SCRIPTS)
def test_a_script_of_git(script, git, analyze, number):
    """TAP output and status are the same; a sleeping library leaves no file, an awake one records the processes."""
    name, = (p.name for p in (git / 't').glob(f'{number}-*.sh'))
    bare = script(name, 'bare')
    assert '\n1..' in bare.out
    for kind in ('asleep', 'awake'):
        watched = script(name, kind)
        assert (watched.out, watched.rc, watched.err) == (bare.out, bare.rc, bare.err), kind
        traces = list(watched.dir.glob('*.tfr')) if watched.dir.is_dir() else []
        assert bool(traces) == (kind == 'awake')
