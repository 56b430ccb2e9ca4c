"""test_build - the build itself: the library's exports and needs, install, bootstrap; scripts/lint has further checks of it."""

import re
import subprocess
import sys

import pytest

from conftest import BUILD, ROOT, built, clean_environment, execute

OLDEST = (2, 28)


def make(*arguments, timeout=600, **env):
    result = execute(['make', *arguments], dict(clean_environment(), **env), ROOT, timeout)
    assert result.rc == 0, f'make {arguments}:\n{result.out[-3000:]}\n{result.err[-3000:]}'
    return result.out


def exported(path):
    out = subprocess.run(['nm', '-D', '--defined-only', path], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in out.splitlines()}


def in_tables(*options):
    out = subprocess.run([ROOT / 'scripts/gen-tables', 'exports', '--list', *options], capture_output=True, text=True, check=True)
    return set(out.stdout.split())


def test_exports(lib, testlib):
    """The library exports the names of the tables and nothing else: no symbol of zlib, no helper."""
    assert in_tables() and in_tables('--test') > in_tables()
    assert exported(lib) == in_tables()
    assert exported(testlib) == in_tables('--test')


def test_exports_of_the_second_library(lib):
    """It stands before malloc's family and nothing else."""
    assert exported(lib.with_name('libtfinject-alloc.so')) == {
        'malloc', 'calloc', 'realloc', 'reallocarray', 'free', 'posix_memalign', 'aligned_alloc', 'memalign', 'valloc', 'pvalloc'}


def test_needed(lib, testlib):
    """The libraries need nothing of CUDA, NCCL, Python or C++; a process whose loader lacked these would not start."""
    for path in (lib, testlib, lib.with_name('libtfinject-alloc.so')):
        out = subprocess.run(['readelf', '-d', path], capture_output=True, text=True, check=True).stdout
        needed = set(re.findall(r'\(NEEDED\).*\[(.*)\]', out))
        assert needed and needed <= {'libc.so.6', 'libdl.so.2', 'libpthread.so.0', 'libm.so.6', 'ld-linux-x86-64.so.2'}


@pytest.mark.parametrize('program', ['libtfinject.so', 'test/libtfinject.so', 'libtfinject-alloc.so', 'tfanalyze'])
def test_versions_of_libc(program):
    """No program needs a glibc symbol above 2.28, and each names the libraries of older systems."""
    path = built(BUILD / program)
    said = subprocess.run(['readelf', '--wide', '-V', path], capture_output=True, text=True, check=True).stdout
    needs = {tuple(map(int, v.split('.'))) for v in re.findall(r'GLIBC_(2\.\d+)', said)}
    assert needs and max(needs) <= OLDEST, sorted(needs)
    dynamic = subprocess.run(['readelf', '--wide', '-d', path], capture_output=True, text=True, check=True).stdout
    named = set(re.findall(r'NEEDED.*\[(.*)\]', dynamic)) | {'libpthread.so.0'}
    assert named - {'libm.so.6'} == {'libc.so.6', 'libdl.so.2', 'libpthread.so.0'}


def test_tls_is_initial_exec(lib):
    """The library needs at most 96 of the 512 bytes of static TLS that glibc keeps for a late dlopen, and never calls __tls_get_addr."""
    out = subprocess.run(['readelf', '-lW', '--dyn-syms', lib], capture_output=True, text=True, check=True).stdout
    assert '__tls_get_addr' not in out
    sizes = [int(size, 16) for size in re.findall(r'^\s+TLS\s+\S+\s+\S+\s+\S+\s+\S+\s+(\S+)', out, re.M)]
    assert sizes and sum(sizes) <= 96


def test_install(tmp_path):
    make('install', f'DESTDIR={tmp_path}', 'PREFIX=/opt/tfi')
    files = {str(p.relative_to(tmp_path / 'opt/tfi')) for p in tmp_path.rglob('*') if p.is_file()}
    pages = {f'share/man/man{p.name[-1]}/{p.name}' for p in (BUILD / 'man').iterdir()}
    harness = {f'lib/tfinject/{path.relative_to(ROOT / "scripts")}' for path in (ROOT / 'scripts').rglob('*.py') if 'tfharness' in str(path)}
    assert 'share/man/man1/tfanalyze.1' in pages and len(harness) == 5
    assert files == pages | {'lib/libtfinject.so', 'lib/libtfinject-alloc.so', 'bin/tfanalyze', 'bin/tfrun', 'bin/tfharness.py', 'include/tfinject.h'} | harness
    usage = execute([sys.executable, tmp_path / 'opt/tfi/bin/tfharness.py', '--help'], clean_environment(), tmp_path)
    assert usage.rc == 0 and usage.out.startswith('usage: tfharness.py')
    result = execute([tmp_path / 'opt/tfi/bin/tfanalyze', '--help'], clean_environment(), tmp_path)
    assert result.rc == 0 and 'stages' in result.out


@pytest.mark.slow
def test_bootstrap_again():
    """A second bootstrap changes nothing. It waits for one that another test runs."""
    stamp = BUILD / 'venv' / '.stamp'
    before = stamp.stat().st_mtime_ns
    result = execute([ROOT / 'scripts/bootstrap'], clean_environment(), ROOT)
    assert result.rc == 0, result.err
    assert stamp.stat().st_mtime_ns == before
    assert len(re.findall(r'missing: none', result.out)) >= 3
    assert 'torch is a wheel' not in result.out


def test_bootstrap_usage():
    result = execute([ROOT / 'scripts/bootstrap', 'biuld'], clean_environment(), ROOT)
    assert result.rc == 2 and 'usage' in result.err
    result = execute([ROOT / 'scripts/bootstrap', 'build'], dict(clean_environment(), TFI_HEADERS='nowhere'), ROOT)
    assert result.rc == 1 and "'nowhere'" in result.err


def test_lint_usage():
    result = execute([ROOT / 'scripts/lint', 'words'], clean_environment(), ROOT)
    assert result.rc == 2 and result.err == 'lint: takes no arguments, and makes all checks\n' and not result.out
