"""test_recipes - recipes of `tfanalyze help recipes`: launchers, containers, ranks and hosts, each run as the page says.

The programs are victims without torch. Scripts in front of a program are taken from the page itself.
"""

import re
import shutil
import subprocess
import sys

import pytest

import scripted
from conftest import BUILD, COMMAND_TIMEOUT, ROOT, clean_environment

PAGE = (ROOT / 'analysis/help/recipes.txt').read_text()
TFRUN = ROOT / 'scripts/tfrun'
STEPS = ['push=a', 'pop']


@pytest.fixture
def program(victim):
    return [victim('script'), *STEPS]


@pytest.fixture
def plain(run):
    """plain(command, **env): runs it without the library and without a run directory."""
    return lambda command, **env: run(command, {'TFI_OUTPUT_DIR': None, **env}, preload=False)


def ranks(directory):
    return sorted(int(re.match(r'rank(\d+)\.', t.path.name)[1]) for t in scripted.traces(directory))


def script_of_the_page(place, holds, **values):
    """The script of the page whose text holds these words, with other values for some of its words."""
    block, = [b for b in re.findall(r'(?:^    .*\n)+', PAGE, re.M) if b.startswith('    #!/bin/sh') and holds in b]
    text = re.sub(r'^    ', '', block, flags=re.M)
    for word, value in {'tfrun': TFRUN, **values}.items():
        text = text.replace(word, str(value))
    (place / 'wrapper').write_text(text)
    (place / 'wrapper').chmod(0o755)
    return place / 'wrapper'


# ---- launchers that clear the environment ----

def test_variables_before_a_cleared_environment_are_lost(plain, program, tmp_path):
    result = plain([TFRUN, '--output', 'run', '--', 'env', '-i', *program])
    assert result.rc == 0 and not (tmp_path / 'run').exists() and 'no process recorded anything' in result.err


def test_variables_behind_env_i(plain, program, lib, tmp_path):
    assert plain(['env', '-i', 'PATH=/usr/bin:/bin', TFRUN, '--output', tmp_path / 'a', '--', *program]).rc == 0
    assert plain(['env', '-i', f'LD_PRELOAD={lib}', f'TFI_OUTPUT_DIR={tmp_path}/b', *program]).rc == 0
    assert ranks(tmp_path / 'a') == ranks(tmp_path / 'b') == [0]


def test_a_script_in_the_place_of_the_program(plain, victim, tmp_path):
    """The launcher starts a fixed program with an environment of its own."""
    script = script_of_the_page(tmp_path, '/path/of/program', **{'/tmp/run': tmp_path / 'run', '/path/of/program': victim('script')})
    code = 'import subprocess, sys; subprocess.run(sys.argv[1:], env={"PATH": "/usr/bin:/bin"}, check=True)'
    assert plain([sys.executable, '-c', code, script, *STEPS]).rc == 0
    assert ranks(tmp_path / 'run') == [0]


# ---- ranks and hosts ----

def test_one_rank_of_many(plain, program, tmp_path):
    script = script_of_the_page(tmp_path, 'RANK')
    for rank in '012':
        assert plain([script, *program], RANK=rank).rc == 0
    assert ranks(tmp_path) == [0]


@pytest.mark.parametrize('names', [('OMPI_COMM_WORLD_RANK', 'PMIX_NAMESPACE'), ('PMIX_RANK', 'PMIX_NAMESPACE'), ('SLURM_PROCID', 'SLURM_JOB_ID')])
def test_ranks_of_a_launcher_share_the_default_directory(lib, program, tmp_path, names):
    """The ranks start at once, as mpirun -x LD_PRELOAD and srun start them."""
    env = {**clean_environment(), 'LD_PRELOAD': str(lib), names[1]: '17'}
    ranks_running = [subprocess.Popen(list(map(str, program)), env={**env, names[0]: str(rank)}, cwd=tmp_path) for rank in range(4)]
    assert [process.wait(COMMAND_TIMEOUT) for process in ranks_running] == [0] * 4
    assert len({t.path.parent for t in scripted.traces(tmp_path)}) == 1 and ranks(tmp_path) == [0, 1, 2, 3]


def test_hosts_without_a_shared_file_system(plain, program, lib, analyze, tmp_path):
    """Files of both hosts in one directory, and both directories, give the same answer."""
    for rank in '01':
        plain(program, RANK=rank, WORLD_SIZE='2', LD_PRELOAD=lib, TFI_OUTPUT_DIR=tmp_path / f'host{rank}')
    hosts = [tmp_path / 'host0', tmp_path / 'host1']
    for host in hosts:
        shutil.copytree(host, tmp_path / 'all', dirs_exist_ok=True)
    collected, apart = analyze('stages', tmp_path / 'all'), analyze('stages', *hosts)
    assert [row['rank'] for row in collected['rows']] == [0, 1] and collected['rows'] == apart['rows']


# ---- containers ----

def test_a_read_only_place_and_a_writable_directory(plain, lib, victim, tmp_path):
    (tmp_path / 'root').mkdir(mode=0o555)
    result = plain([victim('script'), f'chdir={tmp_path}/root', *STEPS], LD_PRELOAD=lib, TFI_OUTPUT_DIR=tmp_path / 'volume')
    assert (result.rc, result.err) == (0, '') and ranks(tmp_path / 'volume') == [0] and not any((tmp_path / 'root').iterdir())


def test_the_open_part_in_a_directory_of_its_own(plain, lib, victim, analyze, tmp_path):
    """A killed run is whole with its live directory, and with both files copied together."""
    env = {'LD_PRELOAD': lib, 'TFI_OUTPUT_DIR': tmp_path / 'run', 'TFI_LIVE_DIR': tmp_path / 'live'}
    plain([victim('script'), *STEPS, 'kill'], **env)
    live, = (tmp_path / 'live').iterdir()
    trace, = (tmp_path / 'run').glob('*.tfr')
    assert live.name == trace.name + '.live'
    before = analyze('stages', tmp_path / 'run')['rows']
    shutil.copytree(tmp_path / 'run', tmp_path / 'both')
    shutil.move(live, tmp_path / 'both')
    assert before == analyze('stages', tmp_path / 'both')['rows'] and before[0]['calls'] == 1


# ---- workers ----

WORKERS = '''
import multiprocessing, os, sys

def decode(rank):
    return rank

def work(rank):
    os.environ['RANK'] = str(rank)
    decode(rank)

if __name__ == '__main__':
    workers = [multiprocessing.get_context(sys.argv[1]).Process(target=work, args=(rank,)) for rank in (1, 2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
'''


@pytest.mark.parametrize('way', ['spawn', 'fork'])
def test_workers_of_a_server(plain, lib, tmp_path, way):
    (tmp_path / 'serve.py').write_text(WORKERS)
    result = plain([TFRUN, '--functions', '__main__:decode', '--sample-hz', '0', '--output', 'run', '--', sys.executable, 'serve.py', way])
    assert result.rc == 0 and ranks(tmp_path / 'run') == [1, 2], result.err


# ---- without a preload ----

def test_injection_by_the_driver(plain, lib, tmp_path, analyze):
    result = plain(['env', '-i', f'LD_LIBRARY_PATH={BUILD}/simgpu', f'CUDA_INJECTION64_PATH={lib}', f'TFI_OUTPUT_DIR={tmp_path}/run',
                    BUILD / 'victims_gpu/driver'])
    assert result.rc == 0, result.err
    assert analyze('breakdown', tmp_path / 'run')['totals']['num_kernels'] > 0
