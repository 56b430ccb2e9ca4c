"""test_advise_pipelines - `tfanalyze advise` on pipelines that are recorded here, each with a fault planted and mended.

The finding is the first one where it promises time, and it is gone when the fault is mended. tests/pipelines/planted.py has the faults.
"""

import json
import subprocess

import pytest

from pipelines import planted
from conftest import clean_environment, execute, short_form

pytestmark = [pytest.mark.slow, pytest.mark.torch]


def ids(found, notes=True):
    return [row['id'] for row in found['rows'] if notes or row['severity'] != 'note']


@short_form(4, 'rule', planted.ON_CPU)
def test_a_fault_on_the_cpu(tfanalyze, lib, python, tmp_path, rule):
    found, runs = {}, {}
    for form in ('bad', 'good'):
        result, run = planted.record(python, lib, [planted.program('faults'), rule, form], tmp_path / form, planted.ON_CPU[rule])
        runs[form] = run
        if result.rc == 77:
            pytest.skip(result.out)
        assert result.rc == 0, result.err
        leaves, found[form] = planted.advice(tfanalyze, run)
        assert sum(row['headroom_us'] for row in found[form]['rows']) <= sum(leaves[0].values())
    bad = [row for row in found['bad']['rows'] if row['id'] == rule]
    timed = [row for row in found['bad']['rows'] if row['headroom_us']]
    assert bad, ids(found['bad'])
    assert bad[0]['evidence'] and bad[0]['fix'] and bad[0]['confirm']
    if bad[0]['headroom_us']:
        assert timed[0]['id'] == rule, ids(found['bad'])
    assert (bad[0]['severity'] == 'note') == (rule in planted.NOTES)
    assert rule not in ids(found['good'])
    planted.check_mended(tfanalyze, runs, rule)


def test_each_heavy_line_is_a_finding(tfanalyze, lib, python, tmp_path):
    """And `diff` tells the function that is gone from the one that stays."""
    runs, functions = {}, {}
    for form in ('two', 'one'):
        result, runs[form] = planted.record(python, lib, [planted.program('lines'), form], tmp_path / form, {})
        assert result.rc == 0, result.err
        result = execute([tfanalyze, 'advise', runs[form], '--format', 'json'], clean_environment(), tmp_path)
        functions[form] = {row['where']['function'] for row in json.loads(result.out)['rows'] if row['id'] == 'python-code' and row['headroom_us']}
    assert functions == {'two': {'first', 'second'}, 'one': {'first'}}
    result = execute([tfanalyze, 'diff', runs['two'], runs['one'], '--by', 'finding', '--format', 'json'], clean_environment(), tmp_path)
    states = {(row['state'], 'second' in row['finding']) for row in json.loads(result.out)['rows'] if row['id'] == 'python-code'}
    assert states == {('gone', True), ('stays', False)}


@pytest.mark.parametrize('name, count', planted.CLEAN.items())
def test_a_clean_pipeline(tfanalyze, lib, python, tmp_path, name, count):
    """Native code without the interpreter's lock, files that are read ahead and single operators are no findings."""
    result, run = planted.record(python, lib, [planted.program('clean'), name, str(count)], tmp_path, {'TFI_ACTIVITIES': 'cpu,ops,io'})
    assert result.rc == 0, result.err
    _, found = planted.advice(tfanalyze, run)
    assert ids(found, notes=False) == []


@pytest.fixture(scope='module')
def loop(tfanalyze, lib, python, tmp_path_factory):
    result, run = planted.record(python, lib, [planted.program('faults'), 'python-loop', 'bad'], tmp_path_factory.mktemp('loop'), {'TFI_WITH_STACK': '1'})
    assert result.rc == 0, result.err
    return run, planted.advice(tfanalyze, run)


def test_a_finding_names_its_line(loop):
    """With stacks the line is that of the loop, and the time without the start is what shares are shares of."""
    run, (leaves, found) = loop
    row = next(row for row in found['rows'] if row['id'] == 'python-loop')
    lines = planted.program('faults').read_text().splitlines()
    assert row['where']['file'] == str(planted.program('faults')) and 'v.item() for v in row' in lines[row['where']['line'] - 1]
    work = sum(leaves[0].values()) - leaves[0]['start-up']
    assert f'{row["headroom_us"] / 0.95 / work * 100:.1f} % of the work' in row['finding']


def test_what_every_short_run_has(loop):
    """Start-up under a minute is a note; so many operators cost their recording."""
    _, (leaves, found) = loop
    rows = {row['id']: row for row in found['rows']}
    assert 'recording-cost' in rows and rows['recording-cost']['headroom_us'] == 0
    long_start = leaves[0]['start-up'] > max(1e6, sum(leaves[0].values()) - leaves[0]['start-up'])
    assert ('start-up' in rows) == long_start and rows.get('start-up', {}).get('severity', 'note') == 'note'


@short_form(1, 'rule', planted.ON_RANKS)
def test_a_fault_of_ranks(tfanalyze, lib, python, tmp_path, rule):
    found, runs = {}, {}
    for form in ('bad', 'good'):
        run = runs[form] = planted.record_ranks(subprocess.Popen, python, lib, rule, form, tmp_path / form)
        _, found[form] = planted.advice(tfanalyze, run)
    first = found['bad']['rows'][0]
    assert first['id'] == rule and first['headroom_us'] > 0
    assert rule == 'small-collectives' or first['rank'] == 1
    assert rule not in ids(found['good']) or rule == 'late-rank-slow'  # on a busy machine a rank may be slower without a fault
    if rule != 'late-rank-slow':
        planted.check_mended(tfanalyze, runs, rule)
