"""pythons - the interpreters of this machine: the newest patch of each version, with a shared library and without."""

import glob
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from conftest import SOAK_SEED


def _asked(path):
    """(version, whether the interpreter has a shared library mapped, path), as the interpreter itself reports them."""
    try:
        script = 'import sys; print("%d.%d.%d" % sys.version_info[:3]); print("libpython" in open("/proc/self/maps").read()); print(sys.executable)'
        out = subprocess.run([path, '-c', script],
                             capture_output=True, text=True, timeout=120, check=True).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return None
    return (tuple(int(n) for n in out[0].split('.')), out[1] == 'True', out[2]) if len(out) == 3 else None


def _found():
    paths = glob.glob(os.path.expanduser('~/.pyenv/versions/*/bin/python')) + [sys.executable]
    for folder in dict.fromkeys(os.environ.get('PATH', '').split(os.pathsep)):
        if 'shims' not in folder:
            paths += [p for p in glob.glob(os.path.join(folder, 'python[23]*')) if re.fullmatch(r'python[23](\.\d+)?', os.path.basename(p))]
    return paths


def every():
    best = {}
    for path in dict.fromkeys(map(os.path.realpath, _found())):
        asked = _asked(path)
        if asked:
            key = (asked[0][:2], asked[1])
            best[key] = max(asked, best.get(key, asked))
    return [SimpleNamespace(version=version, path=path, shared=shared, name='%d.%d' % version[:2] + ('' if shared else '-static'))
            for version, shared, path in sorted(best.values())]


ALL = every()
SEEN = [p for p in ALL if p.version >= (3, 9)]
UNSEEN = [p for p in ALL if p.version < (3, 9)]
OLDER = SEEN[:-1][SOAK_SEED % max(1, len(SEEN) - 1):][:1]  # changes every day


def label(python):
    """The interpreter's version, or 'newest' for the newest one, because other files name the tests that run with it."""
    return 'newest' if python is SEEN[-1] else python.name


def by_version(least=(3, 0)):
    """Runs a test with the newest interpreter and one older one; `make soak` runs it with the others."""
    return pytest.mark.parametrize('python', [
        pytest.param(p, id=label(p), marks=[] if p in (*OLDER, SEEN[-1]) else pytest.mark.soak) for p in SEEN if p.version >= least]
        or [pytest.param(None, id='none')])
