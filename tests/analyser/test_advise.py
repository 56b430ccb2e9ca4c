"""test_advise - `tfanalyze advise`: each rule fires on a trace with its fault and is silent on one without it.

The traces are those of public projects, whose faults are known: the name of the sample says num_workers 0, HTA's pair of
ranks waits in its collectives, TraceLens planted the weak operators. tests/python/test_advise_pipelines.py has faults in
pipelines that are recorded here.
"""

import gzip
import json
from collections import Counter

import pytest

from pipelines import planted
from conftest import ROOT, clean_environment, execute

LOADER = 'kineto_tb/resnet50_num_workers_0__worker0.1623143566756.pt.trace.json.gz'
RANKS = 'hta/trace_filter/sampled_rank-0.json.gz'
QWEN = 'tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz'
RESNET = 'hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz'
CAPTURE = 'replay/vllm_prefilldecode_piecewise/capture_traces/graph_capture_rank_0.1773709679453551615.pt.trace.json.gz'
GEMM = 'planted/gemm_03_compute_misaligned.json.gz'
TILES = 'planted/gemm_01_compute_few_tiles.json.gz'
FAULTS = {  # rule: (a trace with the fault, the place of the finding, the operator; a trace without the fault)
    'data-loader': (LOADER, 0, None, RESNET),
    'exposed-communication': (RANKS, 0, None, QWEN),
    'launch-bound': (RANKS, 1, None, RESNET),
    'unfused-elementwise': (QWEN, 1, 'aten::mul', RESNET),
    'layout-copies': (QWEN, 0, 'aten::copy_', LOADER),
    'weak-operator': (TILES, 0, 'aten::mm', QWEN),
    'misaligned-shapes': (GEMM, 0, 'aten::mm', TILES),
    'synchronisation': (CAPTURE, 0, None, RESNET),
}
RULES = {line.split('"')[1] for line in (ROOT / 'analysis/advise/advise.def').read_text().splitlines() if line.startswith('RULE("')}
LEAF_OF = {'data-loader': 'idle/data loader', 'exposed-communication': 'communicating', 'launch-bound': 'idle/launching',
           'unfused-elementwise': 'computing/elementwise', 'layout-copies': 'computing/layout', 'weak-operator': 'computing/matrix',
           'misaligned-shapes': 'computing/matrix', 'synchronisation': None}
PLANTED = {  # the weak operator of each trace; the mixtures of experts whose shapes move more than the device can are left out
    'conv_01_large_spatial_small_ch': 'aten::convolution', 'conv_03_asymmetric_kernel': 'aten::convolution',
    'conv_05_pointwise_1x1': 'aten::convolution', 'conv_07_transposed': 'aten::convolution', 'gemm_01_compute_few_tiles': 'aten::mm',
    'gemm_03_compute_misaligned': 'aten::mm', 'moe_05_large_capacity': 'vllm::rocm_aiter_fused_moe',
    'sdpa_01_long_seq_low_eff': 'aten::_flash_attention_forward', 'sdpa_03_short_seq_overhead': 'aten::_flash_attention_forward',
}


def ask(tfanalyze, command, *words, rc=(0,)):
    result = execute([tfanalyze, command, *words, '--format', 'json'], clean_environment(), ROOT)
    assert result.rc in rc, result.err
    return json.loads(result.out)


def options(name):
    return ['--gpu', 'MI300X'] if name.startswith('planted') else []


@pytest.mark.parametrize('rule', FAULTS)
def test_a_rule_fires_and_is_silent(tfanalyze, shared_traces, rule):
    fault, place, operator, clean = FAULTS[rule]
    row = ask(tfanalyze, 'advise', shared_traces / fault, *options(fault))['rows'][place]
    assert (row['id'], row['where']['operator'], row['rank']) == (rule, operator, 0)
    leaves = {r['leaf']: r['us'] for r in ask(tfanalyze, 'budget', shared_traces / fault)['rows']}
    assert 0 < row['headroom_us'] <= leaves.get(LEAF_OF[rule], sum(leaves.values())) and row['evidence'] and row['fix'] and row['confirm']
    assert rule not in {r['id'] for r in ask(tfanalyze, 'advise', shared_traces / clean, *options(clean), '--all')['rows']}


@pytest.mark.parametrize('name', PLANTED)
def test_the_planted_operator(tfanalyze, shared_traces, name):
    """The first finding names it with its bound; without the device's name nothing is said of it, and that is said."""
    path = shared_traces / f'planted/{name}.json.gz'
    row = ask(tfanalyze, 'advise', path, '--gpu', 'MI300X')['rows'][0]
    assert row['id'] in ('weak-operator', 'misaligned-shapes') and row['where']['operator'] == PLANTED[name]
    assert row['severity'] == ('note' if name.startswith('sdpa_03') else 'problem')
    if name.startswith('sdpa'):  # these name their device
        return
    blind = ask(tfanalyze, 'advise', path)
    assert 'what bounds operators' in {row['what'] for row in blind['totals']['not_judged']}
    assert not [row for row in blind['rows'] if row['id'] == 'weak-operator']


def test_every_rule_has_a_fault():
    assert RULES == set(FAULTS) | {*planted.ON_CPU, *planted.ON_RANKS, *planted.ON_DRIVER, *planted.ON_DEVICE, *planted.IN_ALL}


@pytest.mark.parametrize('name', [LOADER, RANKS, QWEN, RESNET, GEMM])
def test_headrooms_fit_into_the_leaves(tfanalyze, shared_traces, name):
    """Together they promise no more than each leaf has, and the rows stay short."""
    answer = ask(tfanalyze, 'advise', shared_traces / name, *options(name), '--all')
    leaves = {r['leaf']: r['us'] for r in ask(tfanalyze, 'budget', shared_traces / name)['rows']}
    promised = Counter()
    for row in answer['rows']:
        promised[LEAF_OF.get(row['id'])] += row['headroom_us']
    assert all(us <= leaves[leaf] + 0.001 for leaf, us in promised.items() if leaf)
    assert sum(promised.values()) <= sum(leaves.values())
    first = ask(tfanalyze, 'advise', shared_traces / name, *options(name))['rows']
    assert answer['schema'] == 1 and len(first) <= 5 and len(json.dumps(first)) <= 4096
    assert [r['headroom_us'] for r in first] == sorted((r['headroom_us'] for r in first), reverse=True)


def test_the_stage_of_a_late_rank(tfanalyze, shared_traces):
    """It is where the rank was late by the longest time, whichever rank was read first."""
    ranks = sorted((shared_traces / 'hta/trace_filter').iterdir())
    rows, late = ask(tfanalyze, 'stragglers', *ranks)['rows'], {}
    for row in rows:
        if row['rank'] == 1:
            late[row['stage']] = late.get(row['stage'], 0) + row['late_us']
    for inputs in (ranks, ranks[::-1]):
        found, = [row for row in ask(tfanalyze, 'advise', *inputs, '--jobs', '1')['rows'] if row['id'] == 'late-rank-host']
        assert (found['rank'], found['stage']) == (1, max(late, key=late.get))


def test_what_is_missing_is_not_healthy(tfanalyze, shared_traces, tmp_path):
    """A trace that is cut, and a rank of a larger job, are named among what was not judged."""
    assert {'other ranks', 'files', 'time that nothing explains'} <= {row['what'] for row in ask(tfanalyze, 'advise', shared_traces / RANKS)['totals']['not_judged']}
    cut = tmp_path / 'cut.json'
    cut.write_bytes(gzip.decompress((shared_traces / RESNET).read_bytes())[:4000000])
    found = {row['what']: row for row in ask(tfanalyze, 'advise', cut, rc=(3,))['totals']['not_judged']}
    assert '1 of 1 traces are incomplete' in found['the whole run']['why'] and found['the whole run']['how']
