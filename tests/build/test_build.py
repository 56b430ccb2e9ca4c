"""test_build - the build itself: both sources of headers, the library's exports and needs, install, lint."""

import os
import re
import shutil
import subprocess

import pytest

from conftest import BUILD, ROOT, clean_environment, execute

HEADERS = {'CUDA_INC': 'cuda.h', 'CUDART_INC': 'cuda_runtime_api.h', 'CUPTI_INC': 'cupti.h',
           'NVTX_INC': 'nvtx3/nvToolsExt.h', 'NCCL_INC': 'nccl.h'}


def make(*arguments, timeout=600, **env):
    result = execute(['make', *arguments], dict(clean_environment(), **env), ROOT, timeout)
    assert result.rc == 0, f'make {arguments}:\n{result.out[-3000:]}\n{result.err[-3000:]}'
    return result.out


def found_headers(build):
    return dict(re.findall(r'^(\w+) = (.*)$', (build / 'headers.mk').read_text(), re.M))


def exported(path):
    out = subprocess.run(['nm', '-D', '--defined-only', path], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in out.splitlines()}


def in_tables(*options):
    out = subprocess.run([ROOT / 'scripts/gen-tables', 'exports', '--list', *options], capture_output=True, text=True, check=True)
    return set(out.stdout.split())


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize('source', ['toolkit', 'pypi'])
def test_headers(tmp_path, source):
    """Both programs build, and every header and nvcc compile a test program, with a toolkit's headers and with PyPI's.

    The toolkit may lack some headers, such as NCCL's; these come from PyPI. build/ itself was built in one of the two
    ways."""
    toolkit = os.environ.get('CUDA_HOME') or os.path.isdir('/usr/local/cuda') or shutil.which('nvcc')
    if source == 'toolkit' and not toolkit:
        pytest.skip('no CUDA toolkit is installed')
    build = BUILD if found_headers(BUILD)['HEADERS_FROM'].split('+')[-1] == source else tmp_path
    if build == tmp_path:
        make(f'BUILD={tmp_path}', 'OPT=-O0', 'all', timeout=800, TFI_HEADERS='pypi' if source == 'pypi' else '')
    found = found_headers(build)
    assert found['HEADERS_FROM'] == 'pypi' if source == 'pypi' else 'toolkit' in found['HEADERS_FROM']
    assert exported(build / 'libtfinject.so') == in_tables()
    program = tmp_path / 'all.c'
    program.write_text(''.join(f'#include <{h}>\n' for h in HEADERS.values()) + 'int v = CUDA_VERSION + NCCL_VERSION_CODE;\n')
    compiled = execute(['gcc', '-Wall', '-Werror', '-fsyntax-only', *(f'-isystem{found[k]}' for k in HEADERS), program],
                       clean_environment(), ROOT)
    assert compiled.rc == 0, compiled.err
    kernel = tmp_path / 'kernel.cu'
    kernel.write_text('__global__ void twice(float *x) { x[threadIdx.x] *= 2; }\n'
                      'void go(float *x) { twice<<<1, 32>>>(x); }\n')
    compiled = execute([ROOT / found['NVCC'], '-c', '-o', tmp_path / 'kernel.o', kernel], clean_environment(), tmp_path, 120)
    assert compiled.rc == 0, compiled.err
    symbols = subprocess.run(['nm', tmp_path / 'kernel.o'], capture_output=True, text=True, check=True).stdout
    assert '_Z5twicePf' in symbols


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


def test_tls_is_initial_exec(lib):
    """The library needs at most 64 bytes of static TLS, since a late dlopen has little, and never calls __tls_get_addr."""
    out = subprocess.run(['readelf', '-lW', '--dyn-syms', lib], capture_output=True, text=True, check=True).stdout
    assert '__tls_get_addr' not in out
    sizes = [int(size, 16) for size in re.findall(r'^\s+TLS\s+\S+\s+\S+\s+\S+\s+\S+\s+(\S+)', out, re.M)]
    assert sizes and sum(sizes) <= 64


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nothing_left_to_build(tmp_path):
    """A second make builds nothing, and a changed header rebuilds the files that include it."""
    copy = tmp_path / 'tree'
    (copy / 'build' / 'obj').mkdir(parents=True)
    for source, names, target in ((ROOT, ('Makefile', 'preload', 'analysis', 'include', 'scripts', 'tests'), copy),
                                  (BUILD, ('headers.mk', 'flags', 'exports.map', 'shims.c', 'help_pages.c', 'libtfinject.so', 'libtfinject-alloc.so', 'tfanalyze'), copy / 'build'),
                                  (BUILD / 'obj', ('lib', 'tool'), copy / 'build' / 'obj')):
        subprocess.run(['cp', '-a', *(source / n for n in names), target], check=True)
    (copy / 'build' / 'nvidia').symlink_to(BUILD / 'nvidia')  # headers.mk may name it
    as_built = re.match(r'(\S+) (\S+) .*TFI_VERSION=\'"(.*?)"\'', (BUILD / 'flags').read_text())
    same = [f'{k}={v}' for k, v in zip(('CC', 'CXX', 'VERSION'), as_built.groups())]

    def build():
        result = execute(['make', '-j2', 'all', *same], clean_environment(), copy, 300)
        assert result.rc == 0, result.err
        return set(re.findall(r'^  CC +(\S+)', result.out, re.M))
    assert build() == set()
    header = copy / 'include' / 'crc.h'
    header.write_text(header.read_text() + '/* changed */\n')
    again = build()
    assert any(s.startswith('preload/') for s in again) and any(s.startswith('analysis/') for s in again)
    assert {'preload/tfinject.c', 'analysis/main.c'} - again, 'everything was built again'
    assert build() == set()


def test_install(tmp_path):
    make('install', f'DESTDIR={tmp_path}', 'PREFIX=/opt/tfi')
    files = {str(p.relative_to(tmp_path / 'opt/tfi')) for p in tmp_path.rglob('*') if p.is_file()}
    pages = {f'share/man/man{p.name[-1]}/{p.name}' for p in (BUILD / 'man').iterdir()}
    assert 'share/man/man1/tfanalyze.1' in pages
    assert files == pages | {'lib/libtfinject.so', 'lib/libtfinject-alloc.so', 'bin/tfanalyze', 'bin/tfrun', 'bin/tfharness.py', 'include/tfinject.h'}
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


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_lint():
    result = execute([ROOT / 'scripts/lint'], clean_environment(), ROOT, timeout=800)
    assert result.rc == 0, result.out[-6000:] + result.err[-3000:]
