"""test_simgpu - the simulated GPU alone: programs run to their end, and its log has exactly what they did."""

import os
import re
import subprocess
from collections import Counter, defaultdict

import pytest

from conftest import BUILD, ROOT, built
from simgpu import truth
from test_cuda_tables import ROWS

SCRIPT = ['latency 3us', '*scale* 20us + 7ns*blocks', 'long 1s', 'timed 123456ns', 'barrier_* 1ms', 'here 50ms',
          '*fill* 2.5us + 0.25ns*threads', 'memcpy_htod 900ns + 0.031ns*bytes']
KINDS = ['shared', 'static', 'per_thread']


def program(name):
    if not name.startswith(('driver', 'lookup', 'order')) and not os.path.exists(nvcc()):
        pytest.skip('no CUDA toolkit is installed')
    return built(BUILD / 'victims_gpu' / name)


def nvcc():
    lines = (BUILD / 'headers.mk').read_text().splitlines()
    return next((line.split('=')[1].strip() for line in lines if line.startswith('NVCC')), '') or '/nonexistent'


def check_times(log, script, latency):
    """Durations follow the script, work starts after the latency, and streams run one piece of work at a time."""
    last = defaultdict(int)
    for w in log.work:
        if w['t'] != 'host':
            assert w['end'] - w['start'] == truth.cost(w, script), w
        assert w['start'] >= w['submitted'] + latency, w
        if not w['graph']:
            key = w['device'], w['context'], w['stream']
            assert w['start'] >= last[key], w
            last[key] = w['end']
    assert [w['sequence'] for w in log.work] == sorted(w['sequence'] for w in log.work)


def check_calls(log):
    """Nested calls have the id and lie within the time of the outermost one; a call submits work while it runs."""
    outer = {c['correlation']: c for c in log.calls if c['depth'] == 0}
    assert len(outer) == sum(c['depth'] == 0 for c in log.calls)
    for c in log.calls:
        o = outer[c['correlation']]
        assert o['start'] <= c['start'] <= c['end'] <= o['end'] and o['tid'] == c['tid']
    for w in log.work:
        o = outer[w['correlation']]
        assert w['host_submitted'] >= o['start'], w
        assert w['host_start'] >= o['start'], w


@pytest.mark.parametrize('name', ['driver', 'lookup', 'order', *(f'runtime_{kind}' for kind in KINDS)])
@pytest.mark.parametrize('script', [None, SCRIPT], ids=['standard', 'script'])
def test_programs_run_and_the_log_is_right(tmp_path, name, script):
    if name == 'order' and not script:
        script = SCRIPT[1:]
    result = truth.run(tmp_path, [program(name)], script)
    assert (result.rc, result.out.splitlines()[-1:]) == (0, ['ok']), result.out + result.err
    assert result.err.startswith('simgpu: a simulated GPU: 2 device(s)') and result.err.count('\n') == 1
    log = result.logs[0]
    check_times(log, script or (), 3000 if script is SCRIPT else truth.LATENCY)
    check_calls(log)


@pytest.mark.parametrize('kind', KINDS)
def test_an_nvcc_program_counted(tmp_path, kind):
    log = truth.run(tmp_path, [program('runtime_' + kind)], SIMGPU_DEVICES=3).logs[0]
    before_reset = next(i for i, c in enumerate(log.calls) if c['symbol'] == 'cudaDeviceReset')
    last = log.calls[before_reset]['correlation']
    after = [w for w in log.work if w['correlation'] > last]
    assert Counter(w['name'] for w in after if w['t'] == 'kernel') == {'plain_name': 1, '_Z4fillIiEvPT_S0_': 200}
    log.calls = log.calls[:before_reset]
    log.work = [w for w in log.work if w['correlation'] <= last]
    work = Counter((w['device'], w['name'], bool(w['graph'])) for w in log.work)
    for device in range(3):
        assert {k[1:]: n for k, n in work.items() if k[0] == device and not (k[1].startswith('memcpy'))} == {
            ('_Z5scalePfPKfi', False): 5, ('_Z4fillIdEvPT_S0_', False): 1, ('plain_name', False): 1, ('host', False): 1,
            ('memset', False): 1, ('memset', True): 3, ('_Z5scalePfPKfi', True): 3, ('_Z4fillIfEvPT_S0_', True): 3,
            ('host', True): 3}
    plain = next(w for w in log.work if w['name'] == 'plain_name')
    assert (plain['grid'], plain['block']) == ([2, 3, 4], [8, 4, 2])
    double = next(w for w in log.work if w['name'] == '_Z4fillIdEvPT_S0_')
    assert double['shared'] == [0, 1024]
    symbols = Counter(c['symbol'] for c in log.calls if c['domain'] == 'runtime')
    suffix = '_ptsz' if kind == 'per_thread' else ''
    assert symbols['__cudaLaunchKernel' + suffix] == 3 * (8 + 2)
    assert symbols['cudaGraphLaunch'] == 9  # nvcc 13.0 calls the plain function even in this mode
    failed = [c for c in log.calls if c['result'] and c['domain'] == 'runtime' and c['symbol'].startswith('__')]
    assert [c['result'] for c in failed] == [9, 9, 9]
    copy = next(w for w in log.work if w['name'] == 'memcpy_htod' and w['bytes'] == 1 << 18)
    assert (copy['from'], copy['to'], copy['async']) == ([1, 0], [2, 0], 1)
    for launch in (c for c in log.calls if c['symbol'] == 'cudaGraphLaunch'):
        nodes = [w for w in log.work if w['correlation'] == launch['correlation']]
        assert len(nodes) == 5 and len({w['node'] for w in nodes}) == 5 and len({w['graph'] for w in nodes}) == 1


def test_order_between_streams_and_devices(tmp_path):
    result = truth.run(tmp_path, [program('order')], SCRIPT)
    log, out = result.logs[0], result.out
    by_name = {w['name']: w for w in reversed(log.work)}
    assert 'elapsed 0.370368\n' in out
    host, after, copy = by_name['host'], by_name['after_gate'], by_name['memcpy_dtoh']
    assert host['end'] <= after['start'] and after['end'] <= copy['start']
    assert by_name['beside']['sequence'] < host['sequence']
    one, two, three, free = (by_name[f'barrier_{x}'] for x in ('1', '2', '3', 'free'))
    assert two['start'] >= one['end'] and three['start'] >= two['end'] and free['start'] < one['end']
    assert by_name['there']['host_start'] >= by_name['here']['host_end']
    assert by_name['there']['device'] == 1 != by_name['here']['device']
    threads = [w for w in log.work if w['name'] == 'threads']
    assert len(threads) == 1600 and sorted(Counter(w['stream'] for w in threads).values()) == [200] * 8
    launches = [c for c in log.calls if c['symbol'] == 'cuLaunchKernel_ptsz']
    assert {c['correlation'] for c in launches} == {w['correlation'] for w in threads}
    child = result.logs[-1] if len(result.logs) > 1 else None
    assert child and [(c['symbol'], c['result']) for c in child.calls] == [('cuCtxSynchronize', 3)]


def test_real_waiting(tmp_path):
    script = ['long 200ms', *SCRIPT[3:]]
    log = truth.run(tmp_path, [program('order')], script, SIMGPU_REAL=1).logs[0]
    wait = next(c for c in log.calls if c['symbol'] == 'cuEventSynchronize')
    assert wait['end'] - wait['start'] > 150e6
    last_timed = [w for w in log.work if w['name'] == 'timed'][-1]
    assert wait['end'] >= last_timed['host_end']


def test_injected_errors(tmp_path):
    fail = 'cuLaunchKernel=719:after 2:times 1'
    result = truth.run(tmp_path, [program('lookup'), 'cufft'], SIMGPU_FAIL=fail)
    assert result.rc == 1 and result.out.endswith(': 719\n')
    assert [c['result'] for c in result.logs[0].calls if c['symbol'] == 'cuLaunchKernel'] == [0, 0, 719]
    result = truth.run(tmp_path, [program('driver')], SIMGPU_FAIL='cuMemAlloc_v2=2')
    assert result.rc == 1 and 'cuMemAlloc' in result.out and result.out.endswith(': 2\n')


def test_lacking_symbols(tmp_path):
    result = truth.run(tmp_path, [program('lookup'), 'triton'], SIMGPU_LACK='cuLaunchKernelEx')
    assert (result.rc, result.out) == (1, 'no cuLaunchKernelEx\n')
    result = truth.run(tmp_path, [program('lookup'), 'runtime'], SIMGPU_LACK='cuEventElapsedTime_v2,cuNothing')
    assert result.rc == 1 and result.out.endswith(': 500\n')


def test_no_device(tmp_path):
    result = truth.run(tmp_path, [program('driver')], SIMGPU_DEVICES=0)
    assert result.rc == 1 and 'cuInit(0): 100' in result.out


@pytest.mark.parametrize('table,library', [('cuda', 'libcuda.so.1'), ('cudart', 'libcudart.so.*')])
def test_every_row_of_the_tables_is_there(table, library):
    path = next((BUILD / 'simgpu').glob(library))
    names = subprocess.run(['nm', '-D', '--defined-only', path], capture_output=True, text=True, check=True).stdout
    there = {line.split()[-1].split('@')[0] for line in names.splitlines()}
    wanted = {row.symbol for row in ROWS[table]}
    assert len(wanted) > 250 and wanted <= there, sorted(wanted - there)


def test_needs_of_the_simulated_cupti():
    path = BUILD / 'simgpu' / 'libcuda.so.1'
    names = subprocess.run(['nm', '-D', '--defined-only', path], capture_output=True, text=True, check=True).stdout
    own = {line.split()[-1] for line in names.splitlines() if ' simgpu_' in line}
    header = (ROOT / 'tests' / 'simgpu' / 'simgpu.h').read_text()
    assert own == set(re.findall(r'\b(simgpu_\w+)\(', header)) - {'simgpu_subscribe()'}


def test_the_runtime_has_its_version_node():
    path = next((BUILD / 'simgpu').glob('libcudart.so.*'))
    names = subprocess.run(['nm', '-D', '--defined-only', path], capture_output=True, text=True, check=True).stdout
    functions = [line.split()[-1] for line in names.splitlines() if ' A ' not in line]
    assert functions and all(f.endswith('@@' + path.name) for f in functions)
