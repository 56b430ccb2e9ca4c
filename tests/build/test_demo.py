"""test_demo - `make demo` as a newcomer runs it: three programs, stages, kernels, the timeline, twice in a row."""

import gzip
import json
import re
from collections import Counter

import pytest

from conftest import BUILD, ROOT, built, clean_environment, execute, short_form

PYTHON_STAGES = {'load': 1, 'text_encode': 1, 'denoise': 1, 'step': 4, 'exchange': 4, 'vae_decode': 1}
GPU_STAGES = {'text_encode': 1, 'denoise': 1, 'step': 8, 'vae_decode': 1}
GPU_KERNELS = {('text_encode', 'fill'): 1, ('text_encode', 'matmul'): 1, ('denoise', 'fill'): 1, ('step', 'matmul'): 8,
               ('step', 'axpy'): 8, ('vae_decode', 'matmul'): 1, ('vae_decode', 'axpy'): 1}
CPP_STAGES = {'setup': 1, 'upload': 1, 'render': 1, 'tile': 9, 'finish': 1, 'sharpen': 1}


def calls_by_rank(analyze, directory):
    """{rank: {stage: calls}} of the stages the programs mark; torch's own collective ranges are left out."""
    found = {}
    for row in analyze('stages', directory)['rows']:
        if not row['stage'].startswith(('gloo:', '(start-up)')):
            found.setdefault(row['rank'], {})[row['stage']] = row['calls']
    return found


def check_chrome_trace(path):
    with gzip.open(path, 'rt', encoding='utf-8') as f:
        events = json.load(f)
    events = events['traceEvents'] if isinstance(events, dict) else events
    names = Counter(e.get('name') for e in events if e.get('ph') in ('X', 'B'))
    for stage, calls in PYTHON_STAGES.items():
        assert names[stage] == 2 * calls, stage


def check_the_simulated_gpu(analyze, directory, said):
    """Checks the C pipeline's kernels by rank, and that output, metadata and devices say that the GPU is simulated."""
    assert 'a simulated one runs the pipeline, and its times come from a model' in said and 'bit by bit' not in said
    for rank in (0, 1):
        assert f'rank {rank} of 2 on a simulated GPU, Simulated GPU {rank}' in said
        assert f'== The C pipeline on the simulated GPU: {("breakdown", "timeline")[rank]}' in said
    assert [row['metadata'] for row in analyze('info', directory)['rows']] == [{'gpu': 'simulated'}] * 2
    found = {}
    for row in analyze('breakdown', directory)['rows']:
        found.setdefault(row['rank'], {})[row['stage'], row['name']] = row['calls']
    assert found == {0: GPU_KERNELS, 1: GPU_KERNELS}
    assert all(row['busy_us'] for row in analyze('timeline', directory)['rows'])
    reports = {path.name for path in directory.glob('*.breakdown.json')}
    assert reports == {f'{stage}_rank{rank}.breakdown.json' for stage in GPU_STAGES for rank in (0, 1)}


@pytest.mark.slow
@short_form(1, 'times', [1, 2])
def test_demo(lib, tfanalyze, analyze, tmp_path, times):
    """The second run replaces what the first one, or another program, left in its place."""
    for needed in ('demo/pipeline', 'demo/diffusion', 'simgpu/libcuda.so.1', 'simgpu/libcupti.so.13'):
        built(BUILD / needed)
    out = tmp_path / 'demo run'
    (out / 'gpu').mkdir(parents=True)
    (out / 'gpu' / 'rank9.1.tfr').write_text('left by an earlier run')
    for _ in range(times):
        env = {**clean_environment(), 'DEMO_SIMULATED': '1'}
        result = execute([ROOT / 'scripts/demo/run', out], env, '/')
        assert result.rc == 0, result.err[-3000:] + result.out[-3000:]
    for said in ('rank 0 of 2', 'rank 1 of 2', 'sum of all pixels', '$ build/tfanalyze stages', '$ build/tfanalyze info'):
        assert said in result.out
    place = re.search(r'^The Chrome trace of the PyTorch run is (.+)$', result.out, re.M).group(1)
    assert 'ui.perfetto.dev' in result.out
    check_chrome_trace(place)
    assert calls_by_rank(analyze, out / 'python') == {0: PYTHON_STAGES, 1: PYTHON_STAGES}
    assert calls_by_rank(analyze, out / 'cpp') == {0: CPP_STAGES}
    assert calls_by_rank(analyze, out / 'gpu') == {0: GPU_STAGES, 1: GPU_STAGES}
    check_the_simulated_gpu(analyze, out / 'gpu', result.out)
    for run, traces in (('python', 2), ('cpp', 1), ('gpu', 2)):
        assert len(list((out / run).glob('*.tfr'))) == traces


@pytest.mark.parametrize('pipeline', ['pipeline.py', 'diffusion.c'])
def test_pipelines_know_no_profiler(pipeline):
    """The demo pipelines contain nothing of the profiler."""
    assert 'tfi' not in (ROOT / 'scripts/demo' / pipeline).read_text().lower()


def test_diffusion_claims_no_result_on_the_simulated_gpu(run):
    """The program claims no result on the simulated GPU, with and without the library; without a GPU it says so."""
    program = built(BUILD / 'demo' / 'diffusion')
    simulated = {'LD_LIBRARY_PATH': BUILD / 'simgpu'}
    plain, recorded = (run([program, '--json'], simulated, preload=preload) for preload in (False, True))
    assert (plain.rc, plain.out) == (recorded.rc, recorded.out) == (0, recorded.out)
    answer = json.loads(plain.out)
    assert answer['simulated'] and answer['result'].startswith('not checked')
    none = run([program, '--json'], {**simulated, 'SIMGPU_DEVICES': '0'}, preload=False)
    assert (none.rc, json.loads(none.out)) == (77, {'device': 'none'})
