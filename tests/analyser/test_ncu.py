"""test_ncu - ncu plan and ncu report: the launches that Nsight Compute is to measure, and what it measured.

Expected numbers come from Python: the CSV is written here in every form that ncu has, launches are counted over the trace
that the test makes, and the command lines run against a stand-in for ncu.
"""

import ast
import csv
import io
import json
import os
import random
import shlex
import subprocess
import sys

import pytest

from conftest import ROOT, clean_environment, execute
from growth_shapes import event, kineto, launch
from optrace import OpTrace
from test_device_records import US

HEAD = ['ID', 'Process ID', 'Process Name', 'Host Name', 'Kernel Name', 'Context', 'Stream', 'Block Size', 'Grid Size', 'Device', 'CC']
DETAILS = [*HEAD, 'Section Name', 'Metric Name', 'Metric Unit', 'Metric Value', 'Rule Name', 'Rule Type', 'Rule Description',
           'Estimated Speedup Type', 'Estimated Speedup']
# Our key: label of --page details, name of --page raw, (unit, factor to our unit) in base units and as a person reads it.
METRICS = {
    'duration_us': ('Duration', 'gpu__time_duration.sum', ('nsecond', 1e-3), ('us', 1)),
    'compute_pct': ('Compute (SM) Throughput', 'sm__throughput.avg.pct_of_peak_sustained_elapsed', ('%', 1), ('%', 1)),
    'memory_pct': ('Memory Throughput', 'gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed', ('%', 1), ('%', 1)),
    'dram_pct': ('DRAM Throughput', 'gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed', ('%', 1), ('%', 1)),
    'l2_pct': ('L2 Cache Throughput', 'lts__throughput.avg.pct_of_peak_sustained_elapsed', ('%', 1), ('%', 1)),
    'l1_pct': ('L1/TEX Cache Throughput', 'l1tex__throughput.avg.pct_of_peak_sustained_active', ('%', 1), ('%', 1)),
    'dram_gbs': ('Memory Throughput', 'dram__bytes.sum.per_second', ('byte/second', 1e-9), ('Mbyte/s', 1e-3)),
    'issuing_pct': ('One or More Eligible', 'smsp__issue_active.avg.pct_of_peak_sustained_active', ('%', 1), ('%', 1)),
    'occupancy_pct': ('Achieved Occupancy', 'sm__warps_active.avg.pct_of_peak_sustained_active', ('%', 1), ('%', 1)),
    'possible_occupancy_pct': ('Theoretical Occupancy', 'sm__maximum_warps_per_active_cycle_pct', ('%', 1), ('%', 1)),
    'waves': ('Waves Per SM', 'launch__waves_per_multiprocessor', ('', 1), ('', 1)),
    'registers': ('Registers Per Thread', 'launch__registers_per_thread', ('register/thread', 1), ('register/thread', 1)),
}
VALUES = dict(zip(METRICS, (12345.25, 9.5, 20.25, 20.25, 9, 12.5, 1360.5, 12.5, 11.75, 16.75, 0.75, 1024)))
PLAIN, GERMAN = (',', '.'), ('.', ',')


def number(value, signs):
    return f'{value:,.2f}'.translate(str.maketrans(',.', ''.join(signs)))


def table(rows):
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator='\n').writerows(rows)
    return out.getvalue()


def launch_cells(i, kernel, grid='(224, 1, 1)', block='(32, 4, 1)', process=1702327):
    return [i, process, 'python3.12', '127.0.0.1', kernel, 1, 7, block, grid, 0, '12.0']


def details(launches, form=3, signs=PLAIN, head=DETAILS):
    """`ncu --page details --csv`; launches: [(cells, {our key: value})]; form 2: base units, 3: as a person reads them"""
    rows = [head]
    for cells, values in launches:
        rows += [[*cells, 'A Section', METRICS[key][0], METRICS[key][form][0], number(value / METRICS[key][form][1], signs), '']
                 for key, value in values.items()]
    return table(rows)


def raw(launches, form=2, signs=PLAIN):
    """`ncu --page raw --csv`: a row of units, and a column for each metric"""
    keys = list(launches[0][1])
    rows = [[*HEAD, 'sm__cycles_elapsed.avg', *(METRICS[key][1] for key in keys)],
            [*[''] * len(HEAD), 'cycle', *(METRICS[key][form][0] for key in keys)]]
    rows += [[*cells, '12', *(number(values[key] / METRICS[key][form][1], signs) for key in keys)] for cells, values in launches]
    return table(rows)


def named(launches):
    """`ncu --metrics ... --csv`: a row for each metric, with the names of --page raw"""
    return table([DETAILS] + [[*cells, 'Command line profiler metrics', METRICS[key][1], METRICS[key][2][0],
                               number(value / METRICS[key][2][1], PLAIN), ''] for cells, values in launches for key, value in values.items()])


ONE = [(launch_cells(0, 'gemm(float *)'), VALUES)]
FORMS = {
    'details': details(ONE),
    'base units': details(ONE, 2),
    'German': details(ONE, 2, GERMAN),
    'raw': raw(ONE),
    'raw, German': raw(ONE, 3, GERMAN),
    'names': named(ONE),
    'without sizes': details([([*cells[:7]], values) for cells, values in ONE], head=HEAD[:7] + DETAILS[11:]),
    'between lines': '==PROF== Connected to process 7\nstep 1, loss 0.5\n"quoted", said the program\n' + details(ONE) + 'done\n==WARNING== x\n',
    'line ends of DOS': details(ONE).replace('\n', '\r\n'),
    'twice': raw(ONE) + raw(ONE),
    'no last line end': raw(ONE).rstrip('\n'),
}


@pytest.fixture
def report(analyze, tmp_path):
    def report(*texts, trace=(), rc=0, options=()):
        paths = []
        for i, text in enumerate(texts):
            paths.append(tmp_path / f'ncu{i}.csv')
            paths[-1].write_bytes(text if isinstance(text, bytes) else text.encode())
        result = analyze('ncu', 'report', *options, *paths, *trace, '--format', 'json', rc=rc, format=None)
        return result if rc == 1 else {**json.loads(result.out), 'said': result.err}
    return report


# ---- reading ----

@pytest.mark.parametrize('form', FORMS)
def test_every_form_has_the_same_numbers(report, form):
    """The two pages, units of any prefix, the separators of another locale, lines of the program around the table."""
    row, = report(FORMS[form])['rows']
    assert row['kernel'] == 'gemm(float *)' and row['launches'] == 1 and row['bound'] == 'latency'
    assert (row['grid'], row['block']) == ((None, None) if form == 'without sizes' else ('(224, 1, 1)', '(32, 4, 1)'))
    assert row['metrics'] == pytest.approx(VALUES)


def test_old_labels_and_summaries(report):
    """Labels of releases of 2020 and 2021, and --print-summary per-kernel, which has averages and counts."""
    older = [('Memory Frequency', 'cycle/second', '768683274.02'), ('SOL FB', '%', '46.47'), ('Memory [%]', '%', '46.47'), ('Duration', 'nsecond', '8992'),
             ('SOL L2', '%', '13.61'), ('SM [%]', '%', '22.48'), ('SOL TEX', '%', '11.33'), ('Block Size', '', '192'), ('Waves Per SM', '', '0.63'),
             ('Theoretical Active Warps per SM', 'warp/cycle', '60'), ('Achieved Occupancy', '%', '48.00')]
    head = ['ID', 'Process ID', 'Process Name', 'Host Name', 'Kernel Name', 'Kernel Time', 'Context', 'Stream', 'Section Name', 'Metric Name', 'Metric Unit', 'Metric Value']
    row, = report(table([head, *(['0', '28439', 'cfd', '127.0.0.1', 'k(int)', '2020-May-29 12:02:46', '1', '7', 'GPU Speed Of Light', *line] for line in older)]))['rows']
    assert row['bound'] == 'latency' and row['metrics'] == pytest.approx({'duration_us': 8.992, 'compute_pct': 22.48, 'memory_pct': 46.47, 'dram_pct': 46.47,
                                                                          'l2_pct': 13.61, 'l1_pct': 11.33, 'occupancy_pct': 48, 'waves': 0.63})
    old = table([DETAILS, *([*launch_cells(0, 'k'), 'GPU Speed Of Light', label, unit, value, ''] for label, unit, value in (
        ('SOL SM', '%', '70.5'), ('SOL Memory', '%', '20.5'), ('SOL L2 Cache', '%', '3'), ('Duration', 'usecond', '5.5')))])
    row, = report(old)['rows']
    assert row['bound'] == 'compute' and row['metrics'] == pytest.approx({'compute_pct': 70.5, 'memory_pct': 20.5, 'l2_pct': 3, 'duration_us': 5.5})
    head = ['Process ID', 'Process Name', 'Host Name', 'Kernel Name', 'Context', 'Stream', 'Block Size', 'Grid Size', 'Device', 'CC',
            'Invocations', 'Section Name', 'Metric Name', 'Metric Unit', 'Minimum', 'Maximum', 'Average']
    rows = [[*launch_cells(0, name)[1:], count, 'S', label, '%', 1, 99, value] for name, count, shares in (('a', 30, (80, 5)), ('b', 2, (3, 90)))
            for label, value in zip(('Compute (SM) Throughput', 'Memory Throughput'), shares)]
    found = {row['kernel']: (row['launches'], row['bound']) for row in report(table([head, *rows]))['rows']}
    assert found == {'a': (30, 'compute'), 'b': (2, 'memory')}


def test_launches_of_a_kernel_are_one_row_with_medians(report):
    """Launches with another grid are another kernel; passes and files that name the same launch are one."""
    rng = random.Random(3)
    values = [{key: round(rng.uniform(1, 50), 2) for key in VALUES} for _ in range(5)]
    launches = [(launch_cells(i, 'k'), v) for i, v in enumerate(values)] + [(launch_cells(9, 'k', grid='(1, 1, 1)'), VALUES)]
    first = [(cells, {key: v[key] for key in list(v)[:4]}) for cells, v in launches]
    rest = [(cells, {key: v[key] for key in list(v)[4:]}) for cells, v in launches]
    for texts in ([details(launches)], [raw(launches)], [details(first), details(rest)], [raw(first), details(rest)]):
        rows = {row['grid']: row for row in report(*texts)['rows']}
        assert {grid: row['launches'] for grid, row in rows.items()} == {'(224, 1, 1)': 5, '(1, 1, 1)': 1}
        middle = {key: sorted(v[key] for v in values)[2] for key in VALUES}
        assert rows['(224, 1, 1)']['metrics'] == pytest.approx(middle, abs=0.01)


def test_reasons_to_wait(report):
    """--page raw has why warps wait; issuing itself is no reason."""
    names = [f'smsp__average_warps_issue_stalled_{why}_per_issue_active.ratio' for why in ('long_scoreboard', 'selected', 'barrier', 'not_selected')]
    text = table([[*HEAD, *names, METRICS['compute_pct'][1], METRICS['memory_pct'][1]], [*[''] * len(HEAD), *['inst'] * 4, '%', '%'],
                  [*launch_cells(0, 'k'), '7.25', '99', '1.5', '88', '10', '12']])
    row, = report(text)['rows']
    assert row['bound'] == 'latency' and 'warps wait most for long_scoreboard (7.25)' in row['evidence']


def test_damage_is_said(report, tmp_path, analyze):
    """A cut file, rows of another width, no table, nothing in it: an answer with exit status 3, or none with 1."""
    whole = details(ONE)
    cut = report(whole[:whole.rindex('024')], rc=3)  # in the middle of a number
    assert cut['rows'][0]['metrics'] == pytest.approx({key: value for key, value in VALUES.items() if key != 'registers'})
    assert 'ends inside a row' in cut['said']
    answer = report(raw(ONE) + '"0","1","python"' + ',"x"' * 20 + '\n', rc=3)
    assert len(answer['rows']) == 1 and '1 rows have another number of cells' in answer['said'] and not answer['inputs'][0]['complete']
    assert 'no table of Nsight Compute: no row' in report('a,b\n1,2\n', rc=1).err
    failed = '==PROF== x\n==ERROR== Option did not match any section.\n==ERROR== Use --list-sections\n'
    assert 'which said: Option did not match any section.\n' in report(failed, rc=1).err
    assert 'without a kernel' in report(table([DETAILS]), rc=1).err
    answer = report('nothing\n', whole, rc=3)
    assert [i['complete'] for i in answer['inputs']] == [False, True] and answer['inputs'][0]['kind'] == 'ncu'
    assert 'needs a file of Nsight Compute' in analyze('ncu', 'report', kineto(tmp_path, launch(0, 5)), rc=1, format=None).err


def test_numbers_that_are_none(report):
    """n/a, inf, nan, words and numbers without end are unknown, and no number is made of them."""
    bad = ['n/a', 'inf', 'nan', '-', '', '1e999', '9' * 500, '0x10', '12 apples', '1.2.3,4,5', '--5']
    rows = [[*launch_cells(i, f'k{i}'), 'S', 'Compute (SM) Throughput', '%', value, ''] for i, value in enumerate(bad)]
    rows += [[*launch_cells(99, 'good'), 'S', 'Compute (SM) Throughput', '%', '1,234.50 (1; 2; 3)', '']]
    metrics = {row['kernel']: row['metrics'] for row in report(table([DETAILS, *rows]))['rows']}
    assert metrics.pop('good') == {'compute_pct': 1234.5} and set(map(str, metrics.values())) == {'{}'}


def test_hostile_names_do_not_reach_the_terminal(tmp_path, tfanalyze):
    (tmp_path / 'x.csv').write_text(details([(launch_cells(0, 'k\x1b[2J\u202e""x', grid='\x1b]0;t\x07'), VALUES)]))
    for form in ('text', 'json', 'csv'):
        out = execute([tfanalyze, 'ncu', 'report', tmp_path / 'x.csv', '--format', form], clean_environment())
        assert out.rc == 0 and '\x1b' not in out.out and '\u202e' not in out.out, form


# ---- judging ----

FACT = {'occupancy_pct': 40}


@pytest.mark.parametrize('values, bound, nearer', [
    ({'compute_pct': 90}, None, None),  # one percentage is not enough, however high
    ({'dram_pct': 95}, None, None),
    ({'memory_pct': 5}, None, None),
    ({'compute_pct': 12, 'memory_pct': 94, 'dram_pct': 10, 'l2_pct': 94}, 'memory', 'memory'),
    ({'compute_pct': 60, 'memory_pct': 70}, 'memory', 'memory'),
    ({'compute_pct': 61, 'memory_pct': 70}, 'memory and compute', 'memory'),
    ({'compute_pct': 85, 'memory_pct': 83}, 'memory and compute', None),
    ({'compute_pct': 60, 'memory_pct': 50}, 'compute', 'compute'),
    ({'compute_pct': 59.9, 'memory_pct': 20}, None, 'compute'),  # neither is busy, and nothing tells of waiting
    ({'compute_pct': 59.9, 'memory_pct': 20, **FACT}, 'latency', 'compute'),
    ({'compute_pct': 3, 'memory_pct': 4, 'waves': 0.1}, 'latency', None),
    ({'compute_pct': 10, 'dram_pct': 85, 'l1_pct': 20}, 'memory', 'memory'),  # without ncu's own figure: the busiest part
])
def test_what_bounds_a_kernel(report, values, bound, nearer):
    row, = report(details([(launch_cells(0, 'k'), values)]))['rows']
    assert (row['bound'], row['nearer']) == (bound, nearer)
    assert bound is not None or any('not judged' in line for line in row['evidence'])
    assert not bound or ' '.join(row['evidence']).count('%') >= 2


@pytest.mark.parametrize('folder, summary, by_dram', [('kernel_1', 'memory_bound', None), ('kernel_3', 'compute_bound', 'compute')])
def test_real_kernels(report, shared_traces, folder, summary, by_dram):
    """Both shared kernels are bound by latency: neither unit reaches half of its peak. Their summary compares the SMs with DRAM
    alone, by 5 points: its class is `nearer`, or, where L2 is busier than both, what the evidence gives by DRAM alone."""
    where = shared_traces / 'ncu'
    classes = {row['kernel_id'][:11]: row['classification'] for row in csv.DictReader(open(where / 'classification_summary.csv'))}
    assert classes[f'kernel_000{folder[-1]}'] == summary
    texts = {p.name: p.read_text() for p in (where / folder).iterdir()}
    row, = report(texts['ncu.details.csv'])['rows']
    assert row['bound'] == 'latency' and any(line.startswith('ncu says: This kernel grid is too small') for line in row['evidence'])
    said = [line for line in row['evidence'] if line.startswith('by DRAM alone')]
    assert [line.split()[-1] for line in said] == ([by_dram] if by_dram else [])
    assert summary == f'{by_dram or row["nearer"]}_bound'
    together, = report(*(texts[name] for name in sorted(texts) if name.startswith('ncu.section')))['rows']
    assert {key: row[key] for key in ('bound', 'nearer', 'launches')} == {key: together[key] for key in ('bound', 'nearer', 'launches')}
    alone, = report(texts['ncu.metrics.csv'])['rows']
    assert alone['bound'] is None  # it has two percentages and nothing about waiting


def ancestor():
    """TeleFuser's function, taken from its source: importing its package imports torch."""
    source = next((ROOT / 'build' / 'venv').glob('lib/python*/site-packages/telefuser/utils/profiler.py')).read_text()
    wanted = [node for node in ast.parse(source).body if getattr(node, 'name', '') == 'analyze_ncu_report' or
              (isinstance(node, ast.Assign) and getattr(node.targets[0], 'id', '') == 'NCU_KEY_METRICS')]
    names = {}
    exec(compile('from typing import Any\n' + '\n'.join(map(ast.unparse, wanted)), 'telefuser', 'exec'), names)
    return names['analyze_ncu_report']


def test_what_the_ancestor_gets_wrong(report, stand_in, tmp_path, monkeypatch):
    """A kernel whose L2 is at its peak, and one whose SMs are: TeleFuser finds no metric by its label, and calls both bound by
    latency at 0 %."""
    monkeypatch.setenv('PATH', f'{stand_in}:{os.environ["PATH"]}')
    for values, bound in (({'compute_pct': 12, 'memory_pct': 94, 'dram_pct': 10, 'l2_pct': 94}, 'memory'),
                          ({'compute_pct': 92, 'memory_pct': 30, 'dram_pct': 10}, 'compute')):
        text = details([(launch_cells(0, 'k'), values)])
        (tmp_path / 'k.ncu-rep').write_text(text)
        theirs = ancestor()(str(tmp_path / 'k.ncu-rep'))
        assert theirs['bottleneck'] == 'latency_bound' and theirs['sm_throughput_pct'] == 0
        assert report(text)['rows'][0]['bound'] == bound


# ---- .ncu-rep ----

@pytest.fixture
def stand_in(tmp_path):
    """A folder with a program `ncu`: --import prints the file, anything else its own arguments as JSON; each run is noted."""
    folder = tmp_path / 'bin'
    folder.mkdir()
    (folder / 'ncu').write_text(f'''#!{sys.executable} -IS
import json, os, sys
open({str(tmp_path / "runs")!r}, 'a').write(json.dumps(sys.argv[1:]) + '\\n')
if '--import' in sys.argv:
    sys.stderr.write('==ERROR== x\\n' * ('fail' in sys.argv[2]))
    sys.stdout.write(open(sys.argv[2]).read())
    sys.exit(3 if 'fail' in sys.argv[2] else 0)
''')
    (folder / 'ncu').chmod(0o755)
    return folder


def runs(tmp_path):
    path = tmp_path / 'runs'
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_report_of_ncu_is_printed_by_ncu(tmp_path, tfanalyze, stand_in):
    """Naming a .ncu-rep runs `ncu --import`, without a shell and with a path that is no option; a CSV runs nothing, nor does a
    directory that holds one. Without ncu, or if it fails, a line says so."""
    odd = '-i; touch x.ncu-rep'
    (tmp_path / odd).write_text(raw(ONE))
    (tmp_path / 'a.csv').write_text(raw(ONE))
    (tmp_path / 'fail.ncu-rep').write_text(raw(ONE))
    environment = {**clean_environment(), 'PATH': f'{stand_in}:{os.environ["PATH"]}'}

    def ask(*words, path=environment['PATH']):
        return execute([tfanalyze, 'ncu', 'report', '--format', 'json', '--', *words], {**environment, 'PATH': path}, tmp_path)
    assert ask('a.csv').rc == 0 and ask('.').rc == 1 and runs(tmp_path) == []
    result = ask(odd)
    assert result.rc == 0 and json.loads(result.out)['rows'][0]['metrics'] == pytest.approx(VALUES), result.err
    assert runs(tmp_path) == [['--import', f'./{odd}', '--csv', '--page', 'details']]
    failed = ask('fail.ncu-rep', 'a.csv')
    assert failed.rc == 3 and 'ncu ended with exit status 3' in failed.err and '==ERROR== x' in failed.err
    missing = ask(odd, path='/nowhere')
    assert missing.rc == 1 and 'ncu cannot be started: No such file' in missing.err and '--csv >FILE.csv' in missing.err


# ---- shares ----

TRACE = ['void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)',
         'void at::native::vectorized_elementwise_kernel<2, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)',
         'std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, float, false, true, cublasGemvParamsEx<int, cublasGemvTensorStridedBatched<__nv_bfloat16 const>, float> >(cublasGemvParamsEx<int>)',
         'void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8>(cutlass_80_wmma::Params)',
         'triton_poi_fused_0', 'void (anonymous namespace)::only_one<float>(float*)']
NCU = {0: 'void vectorized_elementwise_kernel<(int)4, FillFunctor<float>, array<char *, (unsigned long)1>>(int, T2, T3)',
       1: 'void vectorized_elementwise_kernel<2, FillFunctor<float>, array<char *, 1>>(int, T2, T3)',
       2: 'enable_if<!T7, void>::type kernel<int, int, __nv_bfloat16, float, 0, 1, cublasGemvParamsEx<int, cublasGemvTensorStridedBatched<const __nv_bfloat16>, float>>(T13)',
       3: 'void Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8>(Params)',
       4: 'triton_poi_fused_0', 5: 'void only_one<T1>(T1 *)'}


def test_kernels_have_their_share_of_the_stage(report, tmp_path):
    """ncu's names are found among those of the trace; rows are sorted by their time in it."""
    at, events, expected = 0, [event('user_annotation', 'denoise', 0, 1000), event('user_annotation', 'vae', 1000, 1000)], {}
    for i, name in enumerate(TRACE):
        for stage in (0, 1):
            for k in range(2 + stage):
                events += launch(at, 10 + 1000 * stage + 20 * (at % 40), name, time=i + 1)
                at += 1
        expected[NCU[i]] = (3, 3 * (i + 1))
    total = sum(time for _, time in expected.values())
    answer = report(raw([(launch_cells(i, name), VALUES) for i, name in NCU.items()]), trace=[kineto(tmp_path, events)])
    assert [row['kernel'] for row in answer['rows']] == [NCU[i] for i in reversed(NCU)]
    for row in answer['rows']:
        calls, time = expected[row['kernel']]
        assert (row['stage'], row['rank'], row['calls'], row['total_us']) == ('vae', 0, calls, time)
        assert row['pct'] == pytest.approx(100 * time / total, abs=1e-3)
        assert ('found in the trace by its function alone' in row['evidence']) == ('only_one' in row['kernel'])
        assert any('may be another launch' in line for line in row['evidence'])  # 12 ms in ncu
    first = report(raw([(launch_cells(0, NCU[5]), VALUES)]), trace=[tmp_path / 'trace.json'], options=['--stage', 'denoise'])['rows'][0]
    assert (first['stage'], first['calls'], first['total_us']) == ('denoise', 2, 12)
    unsure = 'void vectorized_elementwise_kernel<8, X>(int)'
    lost = report(raw([(launch_cells(0, unsure), VALUES), (launch_cells(1, 'elsewhere'), VALUES)]), trace=[tmp_path / 'trace.json'])
    assert {row['kernel']: row['pct'] for row in lost['rows']} == {unsure: None, 'elsewhere': None}
    assert any('several kernels of the trace have this function' in line for row in lost['rows'] for line in row['evidence'] if row['kernel'] == unsure)
    assert 'no kernel of ncu is among' in lost['said']


# ---- plan ----

MANGLED = ['_ZN3foo3barIfEEvT_', '_ZN3foo3barIiEEvT_', '_Z4fillIiEvPT_S0_', 'triton_poi_fused_0']
DEMANGLED = ['void foo::bar<float>(float)', 'void foo::bar<int>(int)', 'void fill<int>(int*, int)', 'triton_poi_fused_0']


def random_launches(rng, count=120):
    """[(stage, kernel, duration in us)] in the order of their launches."""
    return [(rng.choice(['warm', 'denoise', 'denoise', 'vae']), rng.randrange(4), rng.randrange(1, 400)) for _ in range(count)]


def of_ours(launches, path):
    t = OpTrace(rank=0, world=1)
    for i, (stage, kernel, duration) in enumerate(launches):
        t.stage(stage, (100 + 100 * i) * US, (190 + 100 * i) * US)
        t.work('kernel', (110 + 100 * i) * US, (200000 - 1000 * i) * US, duration * US, name=MANGLED[kernel])  # they end in another order
    return t.save(path)


def of_torch(launches, path):
    events = []
    for i, (stage, kernel, duration) in enumerate(launches):
        events.append(event('user_annotation', stage, 100 * i, 90))
        events += launch(i, 100 * i + 10, DEMANGLED[kernel], wait=200000 - 1000 * i, time=duration)
    return kineto(path.parent, events, name=path.name)


def passes(kernel, base, filtered):
    if base == 'mangled':
        return MANGLED[kernel] == filtered
    return DEMANGLED[kernel].split('(')[0].split('<')[0].split(' ')[-1].split('::')[-1] == filtered


@pytest.mark.parametrize('make, doubted', [(of_ours, False), (of_torch, True)], ids=['ours', 'torch'])
def test_the_right_launch_is_measured(tmp_path, analyze, stand_in, make, doubted):
    """What ncu would measure with the printed filter, skip and count, counted over all launches, is of the row's kernel and stage,
    and the first one has the median duration."""
    launches = random_launches(random.Random(5))
    trace = make(launches, tmp_path / ('a.tfr' if make is of_ours else 'a.json'))
    command = ['python', 'my pipe.py', "it's", '$HOME', '--x=1']
    result = analyze('ncu', 'plan', '--stage', 'denoise', '--top', '9', trace, '--format', 'json', '--', *command, format=None)
    rows = json.loads(result.out)['rows']
    assert len(rows) == 4 and [row['total_us'] for row in rows] == sorted((row['total_us'] for row in rows), reverse=True)
    for row in rows:
        kernel = DEMANGLED.index(row['kernel'])
        words = shlex.split(row['command'])
        assert words[-len(command):] == command and words[words.index('-o') + 1].startswith('ncu.denoise.')
        value = dict(zip(words, words[1:]))
        counted = [l for l in launches if passes(l[1], value['--kernel-name-base'], value['--kernel-name'])]
        skip, count = int(value['--launch-skip']), int(value['--launch-count'])
        assert (skip, count) == (row['skip'], row['count']) and 1 <= count <= 3
        measured = counted[skip:skip + count]
        assert {l[:2] for l in measured} == {('denoise', kernel)}
        assert count == 3 or counted[skip + count:skip + count + 1] == [] or counted[skip + count][:2] != ('denoise', kernel)
        durations = [l[2] for l in launches if l[:2] == ('denoise', kernel)]
        assert measured[0][2] == sorted(durations)[(len(durations) - 1) // 2]
        assert (row['calls'], row['total_us']) == (len(durations), sum(durations))
        assert row['pct'] == pytest.approx(100 * sum(durations) / sum(l[2] for l in launches if l[0] == 'denoise'), abs=1e-3)
        assert (row['doubt'] is not None) == doubted


def test_the_text_is_a_script(tmp_path, analyze, stand_in):
    """It runs ncu once for each kernel, with the words that were typed, or those of the script where there are none."""
    trace = of_ours(random_launches(random.Random(6)), tmp_path / 'a.tfr')
    for words, typed in ((['--', 'python', "it's; $HOME"], []), ([], ['python', "it's; $HOME"])):
        script = analyze('ncu', 'plan', trace, *words, format=None).out
        assert script.rstrip().endswith('# then: tfanalyze ncu report ncu.*.ncu-rep TRACE')
        (tmp_path / 'runs').unlink(missing_ok=True)
        subprocess.run(['sh', '-c', script, 'sh', *typed], check=True, env={**clean_environment(), 'PATH': f'{stand_in}:{os.environ["PATH"]}'})
        assert len(runs(tmp_path)) == 5 and all(run[-2:] == ['python', "it's; $HOME"] and '--launch-skip' in run for run in runs(tmp_path))


def test_names_of_a_hostile_trace_are_no_commands(tmp_path, analyze, stand_in):
    """Quoted if they can be shown, else left out with a line."""
    names = ["x'; touch owned; '", '$(touch owned)', '`touch owned`', 'a\nb', '\x1b[2Jc', '-o']
    events = [event('user_annotation', '$(touch owned)\n#', 0, 10000)]
    for i, name in enumerate(names):
        events += launch(i, 10 + 20 * i, name)
    result = analyze('ncu', 'plan', '--top', '9', kineto(tmp_path, events), '--', 'true', format=None)
    assert '2 kernels have names with characters' in result.err and '\x1b' not in result.out
    subprocess.run(['sh', '-c', result.out], check=True, cwd=tmp_path, env={**clean_environment(), 'PATH': f'{stand_in}:{os.environ["PATH"]}'})
    assert not (tmp_path / 'owned').exists()
    assert len(runs(tmp_path)) == 4 and all(run[-1] == 'true' for run in runs(tmp_path))


@pytest.mark.parametrize('make, kernel', [(kineto, 'ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)'),
                                          (of_ours, '_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE')], ids=['torch', 'ours'])
def test_kernels_that_communicate_are_left_out(tmp_path, analyze, make, kernel, monkeypatch):
    """ncu would repeat them and wait for the other ranks for ever; their time still counts in the share of the others."""
    if make is kineto:
        trace = kineto(tmp_path, [*launch(0, 5, kernel, time=30), *launch(1, 50, 'gemm', time=10)])
    else:
        monkeypatch.setitem(globals(), 'MANGLED', ['gemm', kernel])
        trace = of_ours([('s', 1, 30), ('s', 0, 10)], tmp_path / 'a.tfr')
    result = analyze('ncu', 'plan', trace, '--top', '1', '--format', 'json', format=None)
    row, = json.loads(result.out)['rows']
    assert row['kernel'] == 'gemm' and row['pct'] == 25 and '1 kernels that communicate are left out' in result.err


def test_graphs_as_wholes_are_no_kernels(tmp_path, analyze):
    t = OpTrace(rank=0, world=1)
    t.work('graph_launch', 100 * US, 110 * US, 90 * US, graph=3)
    t.work('kernel', 300 * US, 310 * US, 10 * US, name='gemm')
    row, = json.loads(analyze('ncu', 'plan', t.save(tmp_path / 'a.tfr'), '--format', 'json', format=None).out)['rows']
    assert row['kernel'] == 'gemm' and row['skip'] == 0 and 'TFI_GRAPHS=node' in row['doubt']


def test_one_rank_is_planned_for(tmp_path, analyze):
    for rank in (0, 1):
        kineto(tmp_path, [*launch(0, 5, f'kernel{rank}')], rank, 2, f'r{rank}.json')
    result = analyze('ncu', 'plan', tmp_path, '--format', 'json', format=None)
    assert [row['kernel'] for row in json.loads(result.out)['rows']] == ['kernel0'] and 'planned for one process' in result.err
    assert [row['rank'] for row in json.loads(analyze('ncu', 'plan', '--rank', '0,1', tmp_path, '--format', 'json', format=None).out)['rows']] == [0, 1]
    assert 'nothing matches --stage x' in analyze('ncu', 'plan', '--stage', 'x', tmp_path, rc=1, format=None).err
