"""test_check_abi - scripts/check-abi: the tables against this machine's headers and libraries, and its findings."""

import re
import subprocess

import pytest

from conftest import BUILD, ROOT
from test_cuda_tables import compile_c


def check(*arguments):
    done = subprocess.run([ROOT / 'scripts/check-abi', *map(str, arguments)], capture_output=True, text=True)
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout.splitlines()


def test_the_tables_are_whole():
    """The tables fit every release of headers and every library on this machine."""
    code, lines = check()
    assert code == 0 and len(lines) == 1, lines[:20]
    rows, releases = re.match(r'(\d+) rows, \d+ names of cuGetProcAddress; \d+ releases of headers \((.*?)\)', lines[0]).groups()
    assert int(rows) > 600 and {r.partition('.')[0] for r in releases.split(', ')} >= {'11', '12', '13'}


@pytest.fixture
def headers(tmp_path):
    """A directory with copies of this tree's headers, which a test may spoil."""
    found = dict(re.findall(r'^(\w+) = (.*)$', (BUILD / 'headers.mk').read_text(), re.M))
    directory = tmp_path / 'include'
    directory.mkdir()
    for path in (ROOT / found['CUDA_INC']).glob('*.h'):
        (directory / path.name).symlink_to(path)
    for name in ('cuda.h', 'cudaTypedefs.h'):
        text = (directory / name).read_text(errors='replace')
        (directory / name).unlink()
        (directory / name).write_text(text)
    return directory


SPOILED = {
    'missing': ('cuda.h', 'CUresult CUDAAPI cuMemAllocHost(', 'CUresult CUDAAPI cuMemMoveAway(void *p);\nCUresult CUDAAPI cuMemAllocHost(',
                'cuMemMoveAway'),
    'changed': ('cuda.h', 'CUresult CUDAAPI cuMemFreeHost(void *p)', 'CUresult CUDAAPI cuMemFreeHost(void *p, int how)', 'cuMemFreeHost'),
    'version': ('cudaTypedefs.h', 'PFN_cuMemFreeHost_v2000)', 'PFN_cuMemFreeHost_v99000)',
                'cuMemFreeHost: from 99000 on it is another function'),
    'macro': ('cuda.h', '#define CUDA_VERSION', '#define cuMemHostAlloc cuMemHostAlloc_v9\n#define CUDA_VERSION', 'cuMemHostAlloc'),
}


def test_spoiled_headers_are_findings(headers):
    """One run finds every fault."""
    for name, old, new, _ in SPOILED.values():
        text = (headers / name).read_text()
        assert old in text
        (headers / name).write_text(text.replace(old, new))
    code, lines = check('--headers', headers)
    assert code == 1
    for kind, (*_, finding) in SPOILED.items():
        assert any(line.startswith(kind) and line.endswith(': ' + finding) for line in lines), (kind, lines)


def test_a_function_that_a_library_has(headers, tmp_path):
    """A declared function of a library without a row is a finding; an undeclared one is not."""
    library = compile_c(tmp_path / 'libcuda.so.1', 'int cuMemMoveAway(void) { return 0; } int cuSecret(void) { return 0; }', '-shared', '-fPIC')
    text = (headers / 'cuda.h').read_text()
    (headers / 'cuda.h').write_text(text.replace(*SPOILED['missing'][1:3]))
    code, lines = check('--headers', headers, '--library', library)
    assert code == 1
    assert [line.split(': ')[1] for line in lines if str(library) in line] == ['cuMemMoveAway']
