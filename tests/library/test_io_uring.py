"""test_io_uring - records of io_uring operations: one for each operation on a file, with its result where it is seen."""

import shutil
from collections import Counter

import pytest

import iotrace
import scripted
from conftest import ROOT, clean_environment, execute
from scripted import only

UNKNOWN = -2**63  # TFI_IO_RESULT_UNKNOWN
EFAULT, EBADF = 14, 9


@pytest.fixture(params=['stand-in', 'stand-in-ffi', 'liburing'])
def ring(request, run, victim, lib, tmp_path):
    """ring(env, *arguments) -> (lines that the program prints, result of the run), with the stand-in or the installed liburing."""
    work, libraries = tmp_path / 'files', tmp_path / 'libraries'
    work.mkdir()
    libraries.mkdir()
    if request.param == 'stand-in':
        shutil.copy(victim('liburing_standin.so'), libraries / 'liburing.so.2')
    if request.param == 'stand-in-ffi':  # the library that the program is linked with is empty
        for name, source in ('liburing.so.2', '/dev/null'), ('liburing-ffi.so.2', ROOT / 'tests/victims/liburing_standin.c'):
            made = execute(['gcc', '-shared', '-fPIC', '-D_GNU_SOURCE', f'-I{ROOT}/tests', f'-Wl,-soname,{name}', '-o', name, '-xc', source],
                           clean_environment(), libraries)
            assert made.rc == 0, made.err

    def ring(env, *arguments, preload=True):
        if request.param == 'stand-in-ffi':
            preload = f"{lib if preload else ''} {libraries / 'liburing-ffi.so.2'}"
        result = run([victim('io_uring'), work, *arguments], {**env, 'LD_LIBRARY_PATH': libraries}, preload=preload)
        if request.param == 'liburing' and (result.rc == 77 or 'liburing.so.2: cannot open' in result.err):
            pytest.skip('io_uring is not allowed here' if result.rc == 77 else 'liburing is not installed')
        assert (result.rc, result.err) == (0, '')
        return [line.split(' ') for line in result.out.splitlines()], result
    return ring


PLUGIN = """
    #include <stdio.h>
    int io_uring_submit(void *ring);
    unsigned io_uring_peek_batch_cqe(void *ring, void **cqes, unsigned n);
    int io_uring_wait_cqes(void *ring, void **cqe, unsigned n, void *limit, void *mask);
    void io_uring_queue_exit(void *ring);
    void use_uring(int n)
    {
        void *ring = (void *)16; /* of another layout: only its own library may look at it */
        printf("%d %u %d\\n", io_uring_submit(ring), io_uring_peek_batch_cqe(ring, NULL, 7), io_uring_wait_cqes(ring, NULL, n, NULL, NULL));
        io_uring_queue_exit(ring);
    }
"""
LIBURING = """
    #include <stdio.h>
    int io_uring_submit(void *ring) { return (int)(long)ring; }
    unsigned io_uring_peek_batch_cqe(void *ring, void **cqes, unsigned n) { return n; }
    int io_uring_wait_cqes(void *ring, void **cqe, unsigned n, void *limit, void *mask) { return (int)n + 100; }
    void io_uring_queue_exit(void *ring) { puts("closed"); }
"""


@pytest.mark.parametrize('env', [{}, iotrace.ON], ids=['off', 'on'])
@pytest.mark.parametrize('name', ['liburing.so.1', 'liburing-1a2b3c4d.so.2.4', None], ids=['older', 'renamed', 'static'])
def test_another_liburing_gets_its_calls(run, victim, tmp_path, name, env):
    """A plugin's own liburing is called as without the library, nothing looks into its rings, and the plugin is unmapped."""
    (tmp_path / 'plugin.c').write_text(PLUGIN)
    (tmp_path / 'liburing.c').write_text(LIBURING)
    build = ['gcc', '-shared', '-fPIC', '-o']
    if name:
        execute([*build, name, f'-Wl,-soname,{name}', 'liburing.c'], clean_environment(), tmp_path)
    result = execute([*build, 'plugin.so', 'plugin.c', *([f'./{name}', '-Wl,-rpath,$ORIGIN'] if name else ['liburing.c'])],
                     clean_environment(), tmp_path)
    assert result.rc == 0, result.err
    result = run([victim('plugins'), tmp_path / 'plugin.so', 3, 1, 'use_uring'], env, preload=True)
    assert result.rc == 0
    assert result.out.splitlines() == ['16 7 101', 'closed'] * 3 + ['opened 3 times, kept 0 times']


def expected(said):
    """The records that the program's lines demand, as (name, result, error, bytes, offset, descriptor, path)."""
    for name, result, size, offset, fd, path in said:
        result = UNKNOWN if result == 'unknown' else int(result)
        error = -result if UNKNOWN < result < 0 else 0
        yield name, -1 if error else result, error, int(size), int(offset), int(fd), None if path == '-' else path


def found(trace):
    return [(r.name, r.result, r.error, r.bytes, r.offset, r.fd, r.path) for r in iotrace.records(trace) if r.library == 'uring']


def test_each_operation_once(ring):
    """Each operation on a file gives one record with result, bytes, offset and path; sockets, pipes and NOPs give none."""
    said, result = ring(iotrace.ON)
    trace = only(scripted.traces(result.dir))
    assert len(said) == 215
    assert Counter(found(trace)) == Counter(expected(said))
    records = [r for r in iotrace.records(trace) if r.library == 'uring']
    assert {r.name: r.kind for r in records}['io_uring_fsync'] == 'FLUSH'
    assert only([r for r in records if r.name == 'io_uring_renameat']).other.endswith('/files/b')
    assert all((r.duration == 0) == (r.result == UNKNOWN) for r in records)
    assert {r.error for r in records} == {0, EFAULT, EBADF}
    assert not any(scripted.drops(trace).values())


def test_program_behaves_as_without_the_library(ring):
    said, _ = ring(iotrace.ON)
    assert ring({}, preload=False)[0] == said


def test_selection_by_path(ring, tmp_path):
    """Operations on files that TFI_IO_PATHS leaves out have no record."""
    _, result = ring({**iotrace.ON, 'TFI_IO_PATHS': '/nowhere'})
    assert not any(found(trace) for trace in scripted.traces(result.dir))


def test_in_flight_at_the_end(ring):
    """A process that ends before an operation completes leaves its record, without a result."""
    _, result = ring({**iotrace.ON, 'TFI_IO_PATHS': '+pipes'}, 'leave')
    left = only([r for r in iotrace.all_records(result.dir) if r.library == 'uring'])
    assert (left.name, left.result, left.error, left.bytes, left.duration) == ('io_uring_read', UNKNOWN, 0, 6, 0)
    assert left.path.startswith('pipe:')


def test_sums(ring):
    """TFI_IO_AGGREGATE_MS adds operations up like calls: none is lost, and an unknown result moves no bytes."""
    said, result = ring({**iotrace.ON, 'TFI_IO_AGGREGATE_MS': '60000'})
    sums = [r for r in iotrace.all_records(result.dir, 'io_sum') if r.library == 'uring']
    assert sum(r.calls for r in sums) == len(said)
    assert sum(r.requested for r in sums) == sum(int(line[2]) for line in said)
    assert sum(r.errors for r in sums) == 3
    moved = {'io_uring_read', 'io_uring_readv', 'io_uring_write'}
    assert sum(r.bytes for r in sums if r.name in moved) == sum(
        max(int(line[1]), 0) for line in said if line[0] in moved and line[1] != 'unknown')


def test_off_without_io(ring):
    _, result = ring({'TFI_ACTIVITIES': 'cuda'})
    assert not any(found(trace) for trace in scripted.traces(result.dir))


def test_analysis_counts_bytes(ring, analyze):
    """The answer about files counts an operation without a seen result as a call, and adds no bytes for it."""
    said, result = ring(iotrace.ON)
    reads = [line for line in said if line[0].startswith('io_uring_read')]
    rows = [r for r in analyze('io', result.dir)['rows'] if r['function'].startswith('io_uring_read')]
    assert sum(r['calls'] for r in rows) == len(reads)
    assert sum(r['bytes'] for r in rows) == sum(max(int(line[1]), 0) for line in reads if line[1] != 'unknown')
    assert sum(r['errors'] for r in rows) == 2
