"""test_gpu_budget - budgets of a C pipeline on the simulated GPU: the counts are those of its log, the same in 20 runs."""

import json
from collections import Counter

import pytest

from conftest import BUILD, built
from test_gpu_pipeline import play


def kept(analyze, run, path, rc=0):
    return analyze('launches', run.directory, '--budget', path, rc=rc)


@pytest.fixture
def plays(run, tmp_path):
    """plays(name, **env) runs the pipeline in a directory of its own."""
    def one(name, **env):
        (tmp_path / name).mkdir()
        return play(run, tmp_path / name, 'tfi', TFI_OUTPUT_DIR=tmp_path / name / 'run', **env)
    return one


def test_counts_of_the_log(plays, analyze, tmp_path):
    """Each count is what the simulated driver saw; one call fewer allowed, and the gate names stage and numbers."""
    pipeline, path = plays('a'), tmp_path / 'budget.json'
    analyze('launches', pipeline.directory, '--write-budget', path)
    stages = json.loads(path.read_text())['stages']
    seen = Counter()
    for w in pipeline.truth.works:
        if not w.graph and w.stages:  # outside of stages a graph is captured, whose calls start no work
            seen[w.stages[-1], {'kernel': 'launches', 'gpu_memcpy': 'copies', 'gpu_memset': 'memsets'}[w.category]] += 1
    wrote = {(stage, key): n for stage, counts in stages.items() for key, n in counts.items() if n and stage != '(none)' and key in ('launches', 'copies', 'memsets')}
    assert wrote == dict(seen) and len(wrote) > 8
    assert kept(analyze, pipeline, path)['totals']['passed']
    stages['denoise']['syncs'] -= 1
    path.write_text(json.dumps({'version': 1, 'stages': stages}))
    bad = [r for r in kept(analyze, pipeline, path, rc=4)['rows'] if r['verdict'] != 'within']
    assert bad == [{'rank': 0, 'stage': 'denoise', 'counter': 'syncs', 'allowed': 0, 'found': 1, 'verdict': 'exceeded'}]


@pytest.mark.slow
def test_the_same_counts_in_20_runs(plays, analyze, tmp_path):
    made = set()
    for i in range(20):
        analyze('launches', plays(f'run{i}').directory, '--write-budget', tmp_path / 'budget.json')
        made.add((tmp_path / 'budget.json').read_text())
    assert len(made) == 1


def test_a_selected_stage_only(plays, analyze, tmp_path):
    """Stages outside ENABLE_PROFILER_NAMES make no recorded call, and cannot be judged."""
    pipeline, path = plays('a', ENABLE_PROFILER_NAMES='denoise'), tmp_path / 'budget.json'
    path.write_text(json.dumps({'version': 1, 'stages': {'denoise': {'launches': 9}, 'step': {'launches': 9}, 'text_encode': {'launches': 9}}}))
    answer = kept(analyze, pipeline, path, rc=4)
    assert {r['stage']: r['verdict'] for r in answer['rows']} == {'denoise': 'within', 'step': 'within', 'text_encode': 'not recorded'}


@pytest.mark.parametrize('preload, activities, verdict', [
    (True, 'cpu', 'exceeded'), (False, 'cpu', 'not recorded'), (False, 'cpu,gpu', 'exceeded'), (True, 'ops', 'not recorded')])
def test_how_the_library_came_into_the_process(run, analyze, tmp_path, lib, preload, activities, verdict):
    """Without LD_PRELOAD only CUPTI tells of calls. A long environment leaves no room for TFI_ACTIVITIES in the header."""
    result = run([built(BUILD / 'victims_gpu' / 'pipeline_stages'), 'nvtx'], {
        'LD_LIBRARY_PATH': BUILD / 'simgpu', 'TFI_OUTPUT_DIR': tmp_path / 'run', 'CUDA_INJECTION64_PATH': lib, 'TFI_ACTIVITIES': activities,
        'TFI_METADATA': 'a=' + 'x' * 17000}, preload=preload)
    assert result.rc == 0, result.err
    (tmp_path / 'budget.json').write_text(json.dumps({'version': 1, 'stages': {'denoise': {'launches': 0}}}))
    rows = analyze('launches', tmp_path / 'run', '--budget', tmp_path / 'budget.json', rc=4)['rows']
    assert [r['verdict'] for r in rows] == [verdict]
