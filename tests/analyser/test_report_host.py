"""test_report_host - the report's screen for a run without a device: operators, dispatches, memory, and (run)."""

import re

import pytest

import kineto
from conftest import without_start

SCRIPT = '''
import torch
a = torch.randn(60, 60)
for i in range(20):
    (a @ a).relu().softmax(-1).sum()
'''


def screen(analyze, *arguments):
    return analyze('report', *arguments, format='text').out


def operators(text):
    """{name: (calls, self in us, total in us)}, in the order of the lines."""
    units = {'us': 1, 'ms': 1e3, 's': 1e6}
    rows = re.findall(r'^ +(\d+) +([\d.]+) (us|ms|s) +([\d.]+) (us|ms|s)  (\S+)$', text, re.M)
    return {name: (int(calls), float(own) * units[u], float(total) * units[v]) for calls, own, u, total, v, name in rows}


def check_operators(text, ops, shown=6):
    wanted = sorted((r for r in ops if r['name'] not in ('[memory]', 'stage')), key=lambda r: -r['self_cpu_us'])
    got = operators(text[text.index('\noperators, '):])
    assert [got[r['name']][0] for r in wanted[:shown]] == [r['calls'] for r in wanted[:shown]] and len(got) == min(shown, len(wanted))
    for r in wanted[:shown]:
        assert abs(got[r['name']][1] - r['self_cpu_us']) <= 1e-3 * max(1, r['self_cpu_us'])
        assert abs(got[r['name']][2] - r['cpu_total_us']) <= 1e-3 * max(1, r['cpu_total_us'])
    assert ('`tfanalyze ops` shows all' in text) == (len(wanted) > shown)


def test_operators_and_dispatches_of_a_pytorch_trace(tmp_path, analyze):
    """Dispatches count other libraries' operators, as `launches` does, and none of torch's."""
    t = kineto.Trace().stage('stage', 0, 10 ** 4)
    for i, name in enumerate(['aten::mm', 'vllm::rms_norm', 'aten::add', 'torchfx::biquad', 'aten::a', 'aten::b', 'aten::c']):
        t.operator(name, 100 + 1000 * i, 900 - 100 * i)
    t.operator('torchfx::biquad', 9000, 10).operator('aten::inner', 110, 50)
    path = t.write(tmp_path / 'in.json')
    text = screen(analyze, path, '--output', tmp_path / 'out')
    check_operators(text, analyze('ops', path)['rows'])
    assert re.search(r'^dispatches into other libraries: 3, 1.410 ms; most frequent: torchfx::biquad$', text, re.M)
    assert analyze('launches', path)['totals']['dispatches'] == 3
    top = screen(analyze, path, '--output', tmp_path / 'out', '--top', 2)
    check_operators(top, analyze('ops', path)['rows'], shown=2)


def test_a_device_has_the_screen_for_itself(tmp_path, analyze):
    t = kineto.Trace().stage('stage', 0, 10 ** 4).operator('aten::mm', 10, 50).launch('k', 20, 1)
    assert '\noperators, ' not in screen(analyze, t.write(tmp_path / 'in.json'), '--output', tmp_path / 'out')


def test_a_tfr_run_without_markers(run, python, analyze, tmp_path):
    """A run without markers is one stage (run) over all records, with its operators and its memory peak."""
    (tmp_path / 'script.py').write_text(SCRIPT)
    result = run([python, 'script.py'])
    assert result.rc == 0, result.err
    answer = analyze('stages', result.dir)
    row, = without_start(answer['rows'])
    info, = analyze('info', result.dir)['rows']
    assert (row['stage'], row['calls'], row['median_us']) == ('(run)', 1, info['duration_us'])
    assert row['pct'] == pytest.approx(row['wall_us'] / answer['totals']['run_us'] * 100, abs=1e-3)
    text = screen(analyze, result.dir)
    assert 'no stages were recorded' not in text and re.search(r'^ +1 +([\d.]+ m?s) +\1 +-  \(run\)$', text, re.M)
    check_operators(text, analyze('ops', result.dir)['rows'])
    blocks = [r['values'] for r in analyze('dump', result.dir)['rows'] if r['kind'] == 'memory']
    most = max(v['allocated_bytes'] for v in blocks)
    size = f'{most / 1024:.1f} KiB' if most < 1 << 20 else f'{most / (1 << 20):.1f} MiB'
    assert f'\nmemory peak: {size} in use by tensors on the host\n' in text
    assert len(text.splitlines()) <= 40 and max(map(len, text.splitlines())) <= 100
