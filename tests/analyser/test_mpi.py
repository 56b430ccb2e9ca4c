"""test_mpi - `tfanalyze-mpi` under mpirun: the answers are those of one process and of an array of jobs, or there is none."""

import gzip
import json
import shutil
import subprocess

import pytest

import comm_traces
from conftest import BUILD, built, clean_environment, execute

pytestmark = pytest.mark.skipif(not shutil.which('mpirun') or not shutil.which('mpicc'), reason='OpenMPI is not installed')

DIES = '''
#include <signal.h>
#include <unistd.h>
/* Stands before MPI's function: a process is killed when it has its summary. */
int MPI_Send(void) { return kill(getpid(), SIGKILL); }
'''


@pytest.fixture
def mpi(tmp_path):
    """mpi(processes, *arguments, preload=None) -> the result of mpirun."""
    program = built(BUILD / 'tfanalyze-mpi')

    def mpi(processes, *arguments, preload=None):
        variables = {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1', 'OMPI_MCA_btl_vader_single_copy_mechanism': 'none'}
        line = ['mpirun', '--oversubscribe', '-n', str(processes), *(['-x', f'LD_PRELOAD={preload}'] if preload else []), program, *arguments]
        return execute(line, clean_environment() | variables, tmp_path)
    return mpi


def copies(directory, source, ranks):
    """A job of many ranks, made of a real one of few."""
    directory.mkdir()
    traces = [json.loads(gzip.open(p).read()) for p in sorted(source.glob('*.gz'))]
    for rank in range(ranks):
        trace = traces[rank % len(traces)]
        trace['distributedInfo'] |= {'rank': rank, 'world_size': ranks}
        with gzip.open(directory / f'rank{rank}.json.gz', 'wb', compresslevel=1) as out:
            out.write(json.dumps(trace).encode())
    return directory


def same(analyze, mpi, processes, *inputs):
    for command in ('comm', 'stragglers', 'comm,stragglers'):
        for format in ('json', 'text'):
            said = mpi(processes, command, *inputs, '--format', format)
            assert (said.rc, said.out) == (0, analyze(command, *inputs, '--format', format, format=None).out), (command, said.err)


@pytest.mark.slow
def test_equal_answers(analyze, mpi, shared_traces, tmp_path):
    """One process, mpirun, and an array with a merge write equal bytes."""
    job = copies(tmp_path / 'job', shared_traces / 'dlrm8', 16)
    analyze('reduce', job, '-o', tmp_path / 'one.tfs', format=None)
    whole = (tmp_path / 'one.tfs').read_bytes()
    for processes in (1, 2, 4):
        said = mpi(processes, 'reduce', job, '-o', tmp_path / 'many.tfs')
        assert said.rc == 0 and (tmp_path / 'many.tfs').read_bytes() == whole, said.err
    parts = [tmp_path / f'part{i}.tfs' for i in range(3)]
    for i, part in enumerate(parts):
        analyze('reduce', *sorted(job.iterdir())[i::3], '-o', part, format=None)
    analyze('reduce', *parts, '-o', tmp_path / 'merged.tfs', format=None)
    assert (tmp_path / 'merged.tfs').read_bytes() == whole
    same(analyze, mpi, 3, job)


def test_more_processes_than_files(analyze, mpi, tmp_path):
    paths, _ = comm_traces.job(tmp_path, sequences=True, world=2)
    same(analyze, mpi, 4, *paths)


@pytest.mark.slow
def test_what_it_refuses(mpi, tmp_path):
    """One process speaks."""
    paths, _ = comm_traces.job(tmp_path)
    for arguments in (['stages'], ['comm', '--step', '1'], ['comm,timeline']):
        said = mpi(2, *arguments, *paths)
        assert said.rc == 2 and said.err.count('needs events') == 1 and not said.out, said.err
    assert mpi(2, 'nonsense', *paths).rc == 2
    assert mpi(2, 'comm', tmp_path / 'absent').rc == 1


def test_a_part_is_said_to_be_one(analyze, mpi, tmp_path):
    paths, _ = comm_traces.job(tmp_path, sequences=True)
    text = paths[1].read_text()
    paths[1].write_text(text[:len(text) * 2 // 3])
    (tmp_path / 'bad.json').write_text('no trace')
    for inputs in (paths, [*paths, tmp_path / 'bad.json']):
        said = mpi(2, 'comm', *inputs)
        assert said.rc == 3 and str(paths[1]) in said.err


def test_a_process_dies(mpi, tmp_path):
    """mpirun says so, and there is no answer and no file."""
    paths, _ = comm_traces.job(tmp_path, sequences=True)
    (tmp_path / 'dies.c').write_text(DIES)
    subprocess.run(['cc', '-shared', '-fPIC', '-o', tmp_path / 'dies.so', tmp_path / 'dies.c'], check=True)
    said = mpi(3, 'reduce', *paths, '-o', tmp_path / 'job.tfs', preload=tmp_path / 'dies.so')
    assert said.rc not in (0, 3) and 'signal 9' in said.err and not (tmp_path / 'job.tfs').exists()
    said = mpi(3, 'comm', *paths, preload=tmp_path / 'dies.so')
    assert said.rc not in (0, 3) and not said.out
