"""test_advise - `tfanalyze advise`: each rule fires on a trace with its fault and is silent on one without it.

The traces are those of public projects, whose faults are known: the name of the sample says num_workers 0, HTA's pair of
ranks waits in its collectives, TraceLens planted the weak operators. tests/python/test_advise_pipelines.py has faults in
pipelines that are recorded here.
"""

import gzip
import json
from collections import Counter

import pytest

from conftest import ROOT, clean_environment, execute

LOADER = 'kineto_tb/resnet50_num_workers_0__worker0.1623143566756.pt.trace.json.gz'
RANKS = 'hta/trace_filter/sampled_rank-0.json.gz'
QWEN = 'tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz'
RESNET = 'hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz'
GEMM = 'planted/gemm_03_compute_misaligned.json.gz'
FAULTS = {  # rule: (a trace with the fault, the place of the finding, the operator; a trace without the fault)
    'data-loader': (LOADER, 0, None, RESNET),
    'exposed-communication': (RANKS, 0, None, QWEN),
    'launch-bound': (RANKS, 1, None, RESNET),
    'unfused-elementwise': (QWEN, 0, 'aten::mul', RESNET),
    'layout-copies': (QWEN, 1, 'aten::copy_', LOADER),
    'weak-operator': (GEMM, 0, 'aten::mm', QWEN),
}
RULES = {line.split('"')[1] for line in (ROOT / 'analysis/advise/advise.def').read_text().splitlines() if line.startswith(('RULE("', 'WEAK("'))}
LEAF_OF = {'data-loader': 'idle/data loader', 'exposed-communication': 'communicating', 'launch-bound': 'idle/launching',
           'unfused-elementwise': 'computing/elementwise', 'layout-copies': 'computing/layout', 'weak-operator': 'computing/matrix'}


def ask(tfanalyze, command, *words, rc=(0,)):
    result = execute([tfanalyze, command, *words, '--format', 'json'], clean_environment(), ROOT, 120)
    assert result.rc in rc, result.err
    return json.loads(result.out)


def options(name):
    return ['--gpu', 'MI300X'] if name.startswith('planted') else []


@pytest.mark.parametrize('rule', FAULTS)
def test_a_rule_fires_and_is_silent(tfanalyze, shared_traces, rule):
    fault, place, operator, clean = FAULTS[rule]
    row = ask(tfanalyze, 'advise', shared_traces / fault, *options(fault))['rows'][place]
    assert (row['id'], row['where']['operator'], row['rank']) == (rule, operator, 0)
    leaf = {r['leaf']: r['us'] for r in ask(tfanalyze, 'budget', shared_traces / fault)['rows']}[LEAF_OF[rule]]
    assert 0 < row['headroom_us'] <= leaf and row['evidence'] and row['fix'] and row['confirm']
    assert rule not in {r['id'] for r in ask(tfanalyze, 'advise', shared_traces / clean, *options(clean), '--all')['rows']}


def test_every_rule_has_a_fault():
    assert RULES == set(FAULTS) == set(LEAF_OF)


@pytest.mark.parametrize('name', [LOADER, RANKS, QWEN, RESNET, GEMM])
def test_headrooms_fit_into_the_leaves(tfanalyze, shared_traces, name):
    """Together they promise no more than each leaf has, and the rows stay short."""
    answer = ask(tfanalyze, 'advise', shared_traces / name, *options(name), '--all')
    leaves = {r['leaf']: r['us'] for r in ask(tfanalyze, 'budget', shared_traces / name)['rows']}
    promised = Counter()
    for row in answer['rows']:
        promised[LEAF_OF[row['id']]] += row['headroom_us']
    assert all(us <= leaves[leaf] + 0.001 for leaf, us in promised.items())
    assert answer['schema'] == 1 and len(answer['rows']) <= 5 and len(json.dumps(answer['rows'])) <= 4096
    assert [r['headroom_us'] for r in answer['rows']] == sorted((r['headroom_us'] for r in answer['rows']), reverse=True)


def test_what_is_missing_is_not_healthy(tfanalyze, shared_traces, tmp_path):
    """A trace that is cut, and a rank of a larger job, are named among what was not judged."""
    assert {'other ranks', 'files', 'time that nothing explains'} <= {row['what'] for row in ask(tfanalyze, 'advise', shared_traces / RANKS)['totals']['not_judged']}
    cut = tmp_path / 'cut.json'
    cut.write_bytes(gzip.decompress((shared_traces / RESNET).read_bytes())[:4000000])
    found = {row['what']: row for row in ask(tfanalyze, 'advise', cut, rc=(3,))['totals']['not_judged']}
    assert '1 of 1 traces are incomplete' in found['the whole run']['why'] and found['the whole run']['how']
