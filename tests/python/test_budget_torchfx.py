"""test_budget_torchfx - a budget for chains of torchfx filters: the fused chain keeps it, the unfused one does not."""

import json

import pytest

# The same stages with and without fusion, as a change of the pipeline would leave them.
CHAIN = '''
import sys, torch, torchfx
from torchfx import Wave
from torchfx.filter.iir import HiButterworth, LoButterworth
fuse, sound = sys.argv[1] == 'fused', torch.randn(2, 4800, dtype=torch.float64)
def filters(depth):
    return [(HiButterworth if i % 2 else LoButterworth)(200 * (i + 1), order=2) for i in range(depth)]
def chain(depth):
    out = sound
    if fuse:
        wave = Wave(sound, 48000)
        for one in filters(depth):
            wave = wave | one
        return wave.ys
    for one in filters(depth):
        one.fs = 48000
        one.compute_coefficients()
        out = one(out)
    return out
with torch.no_grad():
    try:
        chain(1)
    except (ImportError, RuntimeError) as error:
        print('the extension of torchfx does not work with this torch:', str(error).splitlines()[0])
        sys.exit(77)
    for depth in (2, 5, 10):
        with torch.profiler.record_function(f'chain {depth}'):
            chain(depth)
'''


@pytest.fixture
def play(run, python, tmp_path):
    def play(how, name):
        result = run([python, '-c', CHAIN, how], {'TFI_OUTPUT_DIR': tmp_path / name, 'OMP_NUM_THREADS': '1'}, timeout=300)
        if result.rc == 77:
            pytest.skip(result.out.splitlines()[-1])
        assert result.rc == 0, result.err[-2000:]
        return result.dir
    return play


@pytest.mark.slow
def test_fused_passes_and_unfused_fails(play, analyze, tmp_path):
    path = tmp_path / 'budget.json'
    fused, unfused = play('fused', 'a'), play('unfused', 'b')
    analyze('launches', fused, '--write-budget', path)
    assert {stage: counts['dispatches'] for stage, counts in json.loads(path.read_text())['stages'].items() if stage != '(none)'} == {
        'chain 2': 1, 'chain 5': 1, 'chain 10': 1}
    assert analyze('launches', fused, '--budget', path)['totals']['passed']
    answer = analyze('launches', unfused, '--budget', path, rc=4)
    assert [r for r in answer['rows'] if r['verdict'] != 'within'] == [
        {'rank': 0, 'stage': f'chain {n}', 'counter': 'dispatches', 'allowed': 1, 'found': n, 'verdict': 'exceeded'} for n in (2, 5, 10)]
    text = analyze('launches', unfused, '--budget', path, rc=4, format='text')
    assert 'budget.json: 3 of ' in text.err and 'the first: stage chain 2, rank 0, dispatches, 1 allowed, 2 found' in text.err


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_same_counts_in_40_runs(play, analyze, tmp_path):
    """20 of each chain."""
    made = set()
    for i in range(40):
        analyze('launches', play(('fused', 'unfused')[i % 2], f'run{i}'), '--write-budget', tmp_path / 'budget.json')
        made.add((i % 2, (tmp_path / 'budget.json').read_text()))
    assert len(made) == 2
