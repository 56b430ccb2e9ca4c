"""test_advise_gpu - `tfanalyze advise` on the simulated GPU, with a fault planted into a pipeline and mended."""

import json

import pytest

from pipelines import planted
from conftest import clean_environment, execute, short_form

PLACES = {  # the row of `diff --by tree` from the mended run to the one with the fault: its place and what changed there
    'pageable-copies': ('(run)', 'Memcpy HtoD (Pinned -> Device) -> Memcpy HtoD (Pageable -> Device)'),
    'small-copies': ('Memcpy HtoD (Pinned -> Device)', None), 'small-grids': ('scale', 'blocks of a launch: 528 -> 40'),
    'allocator-churn': ('(run)', 'added: cuMemFree_v2; other calls: cuMemAlloc_v2'), 'low-clocks': ('(run)', 'SM clock in MHz: 1980 -> 900'),
}


def judge(tfanalyze, runs, rule, *options):
    """The findings of the rule with the fault and without it, and the first one that promises time."""
    found = {form: planted.advice(tfanalyze, run, *options)[1]['rows'] for form, run in runs.items()}
    timed = [row['id'] for row in found['bad'] if row['headroom_us']]
    planted.check_mended(tfanalyze, runs, rule, *options)
    return *([row for row in found[form] if row['id'] == rule] for form in ('bad', 'good')), timed


def changes(tfanalyze, a, b):
    result = execute([tfanalyze, 'diff', a, b, '--by', 'tree', '--format', 'json'], clean_environment(), a, 120)
    assert result.rc == 0, result.err
    return [(row['name'], row['what']) for row in json.loads(result.out)['rows']]


@pytest.mark.parametrize('rule', planted.ON_DRIVER)
def test_a_fault_of_the_driver(tfanalyze, lib, python, tmp_path, rule):
    runs = {}
    for form in ('bad', 'good'):
        env = planted.on_driver(tmp_path / form, rule, form)
        result, runs[form] = planted.record(python, lib, [planted.program('faults_gpu'), rule, form], tmp_path / form, env)
        assert result.rc == 0, result.err
    bad, good, timed = judge(tfanalyze, runs, rule)
    assert bad and timed[0] == rule and not good
    assert changes(tfanalyze, runs['good'], runs['bad']) == [PLACES[rule]]
    assert changes(tfanalyze, runs['good'], runs['good']) == []


@pytest.mark.slow
@pytest.mark.torch
@short_form(1, 'rule', planted.ON_DEVICE)
def test_a_fault_of_torch(tfanalyze, lib, python, tmp_path, rule):
    runs = {}
    for form in ('bad', 'good'):
        env = planted.on_device(tmp_path / form, lib)
        result, runs[form] = planted.record(python, lib, [planted.program('faults_gpu_torch'), rule, form], tmp_path / form, env)
        assert result.rc == 0, result.err
    bad, good, timed = judge(tfanalyze, runs, rule, '--gpu', 'A100')
    assert bad and not good and (timed[:1] == [rule] or rule == 'memory-limit')
