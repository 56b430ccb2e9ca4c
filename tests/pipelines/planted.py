"""planted - faults that are planted one at a time into real pipelines, by the rule of `tfanalyze advise` that sees them.

tests/pipelines/faults.py runs on the CPU, faults_ranks.py as two ranks of gloo, faults_gpu.py and faults_gpu_torch.py on the
simulated GPU. Each has the form `bad`, with the fault, and `good`, which does the same work without it.
"""

import json
import os

from conftest import BUILD, COMMAND_TIMEOUT, ROOT, built, clean_environment, execute, free_port

# Without samples: python-code would come first, with the line that makes the small calls.
FILES = {'TFI_ACTIVITIES': 'cpu,gpu,mem,nccl,ops,io', 'TFI_SAMPLE_HZ': '0'}
# {rule: variables of the recording}. What only some need stands first: a test runs the first ones in `make test`.
ON_CPU = {
    'python-loop': {}, 'float64': {}, 'kept-memory': {}, 'small-writes': FILES, 'blocked-loop': {}, 'repeated-part': {},
    'dtype-conversions': {}, 'unfused-attention': {}, 'layout-copies': {}, 'unfused-elementwise': {}, 'needless-autograd': {},
    'data-loader': {}, 'slow-batch': {}, 'recompilations': {}, 'graph-breaks': {}, 'too-many-threads': {}, 'first-call': {},
    'small-reads': FILES, 'repeated-reads': FILES, 'file-waits': FILES, 'python-code': {}, 'waiting-call': {},
    'unfused-filters': {},
}
ON_RANKS = ('late-rank-work', 'late-rank-host', 'late-rank-slow', 'small-collectives')
ON_DRIVER = ('pageable-copies', 'small-copies', 'small-grids', 'allocator-churn', 'low-clocks')
ON_DEVICE = ('cpu-operators', 'no-matrix-engines', 'memory-limit')
IN_ALL = ('start-up', 'recording-cost')  # what every short run has, with many operators: tests of their own
NOTES = ('needless-autograd', 'first-call')  # their finding promises no time
CLEAN = {'numpy_work': 10, 'hashing': 30, 'read_ahead': 24, 'gelu': 60}  # {pipeline of clean.py: how often it does its work}
GPU = BUILD / 'simgpu'


def program(name):
    return ROOT / f'tests/pipelines/{name}.py'


def advice(tfanalyze, run, *options):
    """The leaves of the budget by rank, and all findings, of a run."""
    result = execute([tfanalyze, 'budget,advise', run, '--all', '--format', 'json', *options], clean_environment(), run)
    assert result.rc == 0, result.err
    budget, found = json.loads(result.out)
    leaves = {}
    for row in budget['rows']:
        leaves.setdefault(row['rank'], {})[row['leaf']] = row['us']
    return leaves, found


def check_mended(tfanalyze, runs, rule, *options):
    """`diff` of the run with the fault and the mended one: the finding is gone, its gain is predicted and measured.

    Some rules promise no time, and then there is nothing to measure.
    """
    result = execute([tfanalyze, 'diff', runs['bad'], runs['good'], '--by', 'finding', '--format', 'json', *options], clean_environment(), runs['bad'])
    assert result.rc == 0, result.err
    rows = [row for row in json.loads(result.out)['rows'] if row['id'] == rule]
    assert rows and {row['state'] for row in rows} == {'gone'}
    leaves, found = {}, {}
    for form in ('bad', 'good'):
        leaves[form], found[form] = advice(tfanalyze, runs[form], *options)
    for row in rows:
        assert row['headroom_b_us'] is None and (row['measured_us'] is None) == (row['predicted_us'] is None)
        before = [one for one in found['bad']['rows'] if (one['id'], one['rank'], one['stage']) == (rule, row['rank'], row['stage'])]
        assert (row['predicted_us'] or 0) == before[0]['headroom_us']
        if row['measured_us'] is None:
            assert before[0]['headroom_us'] == 0
            continue
        gains = 1 - row['rank'] if rule.startswith('late-rank') else row['rank']  # of two ranks the one that waits
        sums = [sum(leaves[form][gains].get(leaf, 0) for leaf in row['leaves'].split(', ')) for form in ('bad', 'good')]
        assert abs(row['measured_us'] - (sums[0] - sums[1])) < .1


def record(python, lib, words, directory, env, timeout=COMMAND_TIMEOUT):
    """Runs a pipeline under the library; returns its run directory and output."""
    directory.mkdir(parents=True, exist_ok=True)
    result = execute([python, *words], clean_environment() | {'LD_PRELOAD': str(lib), 'TFI_OUTPUT_DIR': str(directory / 'run'), **env},
                     directory, timeout)
    return result, directory / 'run'


def record_ranks(start, python, lib, name, form, directory):
    """Runs two ranks side by side; `start` is subprocess.Popen."""
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    ranks = [start([python, program('faults_ranks'), name, form], cwd=directory, env=clean_environment() | {
        'LD_PRELOAD': str(lib), 'TFI_OUTPUT_DIR': str(directory / 'run'), 'RANK': str(rank), 'LOCAL_RANK': str(rank), 'WORLD_SIZE': '2',
        'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(port)}) for rank in range(2)]
    assert [rank.wait(COMMAND_TIMEOUT) for rank in ranks] == [0, 0]
    return directory / 'run'


def on_driver(directory, name, form):
    """The environment of faults_gpu.py."""
    directory.mkdir(parents=True, exist_ok=True)
    kernel, copy = {'allocator-churn': ('10us', '20us'), 'small-copies': ('100us', '20us')}.get(name, ('500us', '20us + 20ns*bytes'))
    (directory / 'script').write_text(f'latency 2us\n*scale* {kernel}\nmemcpy_* {copy}\n')
    slowed = '* 60 sm=900 reasons=0x4\n' if form == 'bad' else ''
    (directory / 'nvml').write_text(f'* 0 sm=1980 reasons=0x0\n{slowed}')
    # without samples: the pauses in which the clocks are read would be the larger finding
    more = {'TFI_NVML_HZ': '200', 'SIMNVML_SCRIPT': str(directory / 'nvml'), 'TFI_SAMPLE_HZ': '0'} if name == 'low-clocks' else {}
    return {'LD_LIBRARY_PATH': str(GPU), 'SIMGPU_SCRIPT': str(directory / 'script'), **more}


def on_device(directory, lib):
    """The environment of faults_gpu_torch.py; torch would find its own libraries first, so those of the simulator are preloaded."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / 'script').write_text('latency 2us\n*simblas* 8ms\n*elementwise* 200us\nmemcpy_* 20us\n* 10us\n')
    libraries = [lib, *(built(GPU / n) for n in ('libcudart.so.13', 'libcupti.so.13', 'libsimblas.so'))]
    return {'LD_LIBRARY_PATH': str(GPU), 'SIMGPU_SCRIPT': str(directory / 'script'), 'LD_PRELOAD': os.pathsep.join(map(str, libraries))}
