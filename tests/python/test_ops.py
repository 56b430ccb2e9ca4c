"""test_ops - operators as in torch's key_averages: PyTorch traces against torch itself, and .tfr traces.

tests/profiled.py runs torch and prints its key_averages; the trace it exported must give the same rows and the same
table. tests/tfr.py writes the .tfr traces, and the tests compute the expected answers from the numbers they write.
"""

import json
import re

import pytest

import kineto
from conftest import ROOT, clean_environment, execute, short_form
from optrace import BACKWARD, NATIVE, OpTrace
from test_device_records import US

# The region marks the part of our own trace that torch's profile covers; with a schedule its active steps do.
RUNS = [('training', 'shapes,memory,stack,python,flops,region'), ('threads', 'shapes,memory,region'), ('loose', 'memory,stack,python,schedule'),
        ('training', 'shapes,memory,region'), ('training', 'shapes,memory,stack,region'), ('training', 'none,region'),
        ('loose', 'memory,region'), ('convolutions', 'shapes,flops,region')]
FEW = RUNS[:3]  # those of `make test`


@pytest.fixture(scope='module')
def profiled(python, lib, tmp_path_factory):
    """(torch's trace, torch's own answers) of a run under the library, beside its run directory; runs once."""
    known = {}

    def profiled(work, options):
        if (work, options) not in known:
            path = tmp_path_factory.mktemp('profiled') / 'trace.json'
            script = ROOT / 'tests' / 'profiled.py'
            env = {**clean_environment(), 'LD_PRELOAD': lib, 'TFI_OUTPUT_DIR': path.parent / 'run', 'TFI_PROFILE_MEMORY': 1}
            result = execute([python, script, work, options, path], {k: str(v) for k, v in env.items()})
            assert result.rc == 0 and 'tfinject: ' not in result.err, result.err[-2000:]
            known[work, options] = path, json.loads(result.out)
        return known[work, options]
    return profiled


# ---- against torch ----

@pytest.mark.parametrize('grouping', ['name', 'name,shapes'])
@short_form(len(FEW), 'run', RUNS, ids=lambda r: '-'.join(r).replace(',', '+'))
def test_rows_are_those_of_key_averages(profiled, analyze, run, grouping):
    path, torch = profiled(*run)
    rows = analyze('ops', '--group-by', grouping, path)['rows']
    expected = torch[grouping]['rows']
    found = [{'name': r['name'], 'shapes': r['shapes'] or '', 'self_cpu': round(r['self_cpu_us'] * 1000),
              'cpu': round(r['cpu_total_us'] * 1000), 'mem': r['cpu_mem_bytes'] or 0, 'self_mem': r['self_cpu_mem_bytes'] or 0,
              'calls': r['calls'], 'flops': r['flops'] or 0} for r in rows]
    assert found == expected
    assert len(rows) > 2 and {r['self_device_us'] for r in rows} == {None}
    assert ({r['cpu_mem_bytes'] is None for r in rows} == {'memory' not in run[1]})


GROUPINGS = [(run, grouping) for run in RUNS for grouping in ('name', 'name,shapes', 'name,stack=4')
             if grouping != 'name,stack=4' or ('stack' in run[1]) == ('python' in run[1])]


def in_groups(cases):
    return short_form(sum(run in FEW for run, _ in cases), 'run, grouping', cases, ids=lambda r: '-'.join(r).replace(',', '+') if type(r) is tuple else r)


@in_groups(GROUPINGS)
def test_the_table_is_torchs(profiled, analyze, run, grouping):
    """Our table equals torch's to the character for every sort key: we compute in doubles of microseconds, like torch.

    A profile with stacks whose trace has no `Call stack` has stacks in our table, from its Python functions, and none
    in torch's.
    """
    path, torch = profiled(*run)
    for key, table in torch[grouping]['tables'].items():
        sort = ['--sort-by', key] if key else []
        ours = analyze('ops', '--group-by', grouping, *sort, '--row-limit', '-1', path, format=None).out
        assert ours.splitlines() == table.splitlines(), key
    short = analyze('ops', '--group-by', grouping, '--sort-by', 'count', '--row-limit', '3', path, format=None).out
    assert short.splitlines() == torch[grouping]['short'].splitlines()


def test_stacks_come_from_python_functions_too(profiled, tmp_path, tfanalyze):
    """A trace without its `Call stack` arguments gives the same table."""
    path, _ = profiled(*RUNS[0])
    bare = tmp_path / 'bare.json'
    text = re.sub(r'"Call stack": "(\\\\.|[^"\\\\])*",? ?', '', path.read_text())
    assert 'Call stack' not in text
    bare.write_text(text)
    tables = [execute([tfanalyze, 'ops', '--group-by', 'name,stack=5', '--row-limit', '-1', p]).out for p in (path, bare)]
    operators = [[line for line in table.splitlines() if 'aten::' in line or '.py(' in line] for table in tables]
    assert len(operators[0]) > 50 and len(operators[1]) >= 0.9 * len(operators[0])


def test_keys_of_torch(profiled, analyze):
    path, _ = profiled(*RUNS[0])
    by = {key: [r['name'] for r in analyze('ops', '--sort-by', key, path)['rows']]
          for key in ('self_cuda_time_total', 'self_xpu_time_total', 'self_device_time_total', 'cpu_time_total')}
    assert by['self_cuda_time_total'] == by['self_xpu_time_total'] == by['self_device_time_total'] != by['cpu_time_total']
    wrong = analyze('ops', '--sort-by', 'self_cpu_time_totl', path, format=None, rc=2)
    assert "did you mean self_cpu_time_total?" in wrong.err
    for group in ('names', 'stack', 'stack=0', 'stack=1001', 'name,,shapes', ''):
        assert analyze('ops', '--group-by', group, path, format=None, rc=2).out == ''
    for limit in ('0', '-2', 'x'):
        assert analyze('ops', '--row-limit', limit, path, format=None, rc=2).out == ''
    assert len(analyze('ops', '--top', '2', path)['rows']) == len(analyze('ops', '--row-limit', '2', path)['rows']) == 2


def seen_by_torch(options):
    return ['--step', '2-3'] if 'schedule' in options else ['--stage', 'region']


def has_in_common(work, options, name):
    """The columns that both torch, by its options, and the library recorded: (key of our row, key of profiled.py's).

    With stacks, torch gives a range's own memory to its Python functions. In one work torch also misses the frees, in
    ranges, of blocks older than the profile."""
    is_range = '::' not in name
    memory = [('cpu_mem_bytes', 'mem'), *([] if 'stack' in options and is_range else [('self_cpu_mem_bytes', 'self_mem')])]
    return [('calls', 'calls'), *([('flops', 'flops')] if 'flops' in options else []),
            *(memory if 'memory' in options and not (is_range and work == 'loose') else [])]


SEEN_BY_BOTH = [(run, grouping) for run in RUNS for grouping in ('name', 'name,shapes') if grouping == 'name' or 'shapes' in run[1]]


@in_groups(SEEN_BY_BOTH)
def test_the_library_and_torch_record_the_same(profiled, analyze, run, grouping):
    """One run recorded by both gives the same rows, calls, shapes, operations and memory; only times differ.

    Both leave out allocations of threads with their own stages: torch.profiler does not see these threads, and they are
    outside the region."""
    path, torch = profiled(*run)
    rows = analyze('ops', '--group-by', grouping, *seen_by_torch(run[1]), path.parent / 'run')['rows']
    found = {(r['name'], r['shapes'] or ''): tuple(r[k] or 0 for k, _ in has_in_common(*run, r['name'])) for r in rows}
    assert found == {(r['name'], r['shapes']): tuple(r[k] for _, k in has_in_common(*run, r['name']))
                     for r in torch[grouping]['rows']} and len(found) > 2


def without_times(table, work, options):
    """A table's lines as lists of printed cells, without times and without the columns that torch was not asked for.

    has_in_common() says why memory may differ."""
    lines = table.splitlines()
    rule, = {line for line in lines if line and not line.strip('- ')}
    ends = [m.end() for m in re.finditer('-+', rule)]
    starts = [0, *(end for end in ends[:-1])]
    head = lines[lines.index(rule) + 1]
    names = [head[a:b].strip() for a, b in zip(starts, ends)]
    left_out = {n for n in names if 'CPU' in n and 'Mem' not in n} | ({n for n in names if 'FLOPs' in n} if 'flops' not in options else set())
    left_out |= {n for n in names if 'Mem' in n} if 'memory' not in options else set()
    cells = []
    for line in lines:
        if len(line) >= ends[-1]:
            row = line[:ends[0]].strip()
            known = {k for k, _ in has_in_common(work, options, row)} if row.strip('-') and row != 'Name' else {'cpu_mem_bytes', 'self_cpu_mem_bytes'}
            cells.append([line[a:b] for a, b, n in zip(starts, ends, names) if n not in left_out and (
                'Mem' not in n or ('self_cpu_mem_bytes' if 'Self' in n else 'cpu_mem_bytes') in known)])
    return cells


@in_groups(SEEN_BY_BOTH)
def test_the_table_of_our_own_trace_is_torchs_but_for_times(profiled, analyze, run, grouping):
    """The table of our own trace equals torch's to the character in everything but times."""
    path, torch = profiled(*run)
    same_memory = 'memory' in run[1] and 'stack' not in run[1] and run[0] != 'loose'
    for key in ['', 'count', *(['cpu_memory_usage', 'self_cpu_memory_usage'] if same_memory else []), *(['flops'] if 'flops' in run[1] else [])]:
        sort = ['--sort-by', key] if key else []
        ours = analyze('ops', '--group-by', grouping, *sort, '--row-limit', '-1', *seen_by_torch(run[1]), path.parent / 'run', format=None).out
        found, expected = (without_times(t, *run) for t in (ours, torch[grouping]['tables'][key]))
        assert found == expected and len(found) > 5, key


# ---- device work ----

def gpu_trace():
    """A step, nested operators, launches, a launch by no operator, a device annotation, overhead."""
    t = kineto.Trace(distributedInfo={'rank': 0, 'world_size': 1}, profile_memory=1)
    t.events = []

    def event(cat, name, ts, dur, tid=1, pid=1, **args):
        t.events.append({'ph': 'X', 'cat': cat, 'name': name, 'pid': pid, 'tid': tid, 'ts': ts, 'dur': dur, 'args': args})

    event('user_annotation', 'ProfilerStep#7', 0, 1000, **{'External id': 1})
    event('cpu_op', 'aten::linear', 100, 200, **{'External id': 2, 'Input Dims': [[4, 4], [[1], [2]]]})
    event('cpu_op', 'aten::mm', 120, 100, **{'External id': 3, 'Input Dims': [[4, 4]]})
    event('cpu_op', 'aten::mm', 130, 50, **{'External id': 4, 'Input Dims': [[4, 4]]})
    event('cuda_runtime', 'cudaLaunchKernel', 140, 10, **{'External id': 4, 'correlation': 50})
    event('cuda_runtime', 'cudaLaunchKernel', 250, 10, **{'External id': 2, 'correlation': 51})
    event('cuda_runtime', 'cudaDeviceSynchronize', 900, 50, tid=9, correlation=52)
    event('overhead', 'Activity Buffer Request', 145, 2, tid=0, pid=-1)
    event('kernel', 'gemm', 500, 40, pid=0, tid=7, **{'External id': 4, 'correlation': 50, 'device': 0, 'stream': 7})
    event('kernel', 'bias', 550, 30, pid=0, tid=7, **{'External id': 2, 'correlation': 51, 'device': 0, 'stream': 7})
    event('gpu_memcpy', 'Memcpy', 600, 7, pid=0, tid=7, **{'External id': 1, 'correlation': 53, 'device': 0, 'stream': 7})
    event('gpu_user_annotation', 'ProfilerStep#7', 500, 107, pid=0, tid=7, **{'External id': 1})
    for ts, size, kind in ((125, 1000, 1), (130, 64, 0), (220, 8, 0), (180, -600, 1), (2000, 50, 1), (2000, -4, 0), (190, 9, 9)):
        t.events.append({'ph': 'i', 's': 't', 'cat': 'cpu_instant_event', 'name': '[memory]', 'pid': 1, 'tid': 1, 'ts': ts,
                         'args': {'Bytes': size, 'Device Type': kind, 'Device Id': 0}})
    return {'schemaVersion': 1, 'traceEvents': t.events}


@pytest.fixture
def gpu(tmp_path):
    path = tmp_path / 'gpu.json'
    path.write_text(json.dumps(gpu_trace()))
    return path


def test_device_rows(gpu, analyze):
    """An aten::mm alone in an aten::mm is one; unlinked call and overhead are on the first thread, as in torch."""
    answer = analyze('ops', gpu)
    keys = ('calls', 'cpu_total_us', 'self_cpu_us', 'device_total_us', 'self_device_us')
    found = [(r['name'], *(r[k] for k in keys)) for r in answer['rows']]
    assert found == [('ProfilerStep*', 1, 1000, 750, 77, 7),
                     ('aten::linear', 1, 200, 90, 70, 30),
                     ('aten::mm', 1, 100, 90, 40, 40),
                     ('cudaLaunchKernel', 2, 20, 18, 0, 0),
                     ('Activity Buffer Request', 1, 2, 2, 0, 0),
                     ('ProfilerStep*', 1, 0, 0, 107, 107),
                     ('gemm', 1, 0, 0, 40, 40), ('bias', 1, 0, 0, 30, 30), ('Memcpy', 1, 0, 0, 7, 7),
                     ('cudaDeviceSynchronize', 1, 50, 50, 0, 0),
                     ('[memory]', 2, 0, 0, 0, 0)]
    memory = {r['name']: (r['cpu_mem_bytes'], r['self_cpu_mem_bytes'], r['device_mem_bytes'], r['self_device_mem_bytes'])
              for r in answer['rows'][:3] + answer['rows'][-1:]}
    assert memory == {'ProfilerStep*': (72, 0, 400, 0), 'aten::linear': (72, 0, 400, 0), 'aten::mm': (72, 72, 400, 400),
                      '[memory]': (-4, -4, 50, 50)}
    assert answer['totals'] == {'events': 13, 'rows': 11, 'self_cpu_us': 1000, 'self_device_us': 77,
                                'replayed': None, 'replayed_unknown': None, 'replayed_by_order': None}


def test_device_columns(gpu, analyze):
    table = analyze('ops', '--sort-by', 'self_cuda_time_total', '--group-by', 'shapes', gpu, format=None).out.splitlines()
    assert re.split(r'\s{2,}', table[1].strip()) == [
        'Name', 'Self CPU %', 'Self CPU', 'CPU total %', 'CPU total', 'CPU time avg', 'Self CUDA', 'Self CUDA %',
        'CUDA total', 'CUDA time avg', 'CPU Mem', 'Self CPU Mem', 'CUDA Mem', 'Self CUDA Mem', '# of Calls', 'Input Shapes']
    cells = [re.split(r'\s{2,}', line.strip()) for line in table[3:-3]]
    assert cells[0] == ['ProfilerStep*', '0.00%', '0.000us', '0.00%', '0.000us', '0.000us', '107.000us', '138.96%',
                        '107.000us', '107.000us', '0 B', '0 B', '0 B', '0 B', '1', '[]']
    assert cells[1][6:8] == ['40.000us', '51.95%'] and cells[1][0] == 'aten::mm' and cells[1][-1] == '[[4, 4]]'
    assert [c[-1] for c in cells if c[0] == 'aten::linear'] == ['[[4, 4], []]']
    assert table[-2:] == ['Self CPU time total: 1.000ms', 'Self CUDA time total: 77.000us']


def test_filters(gpu, analyze):
    def names(*options):
        return [r['name'] for r in analyze('ops', *options, gpu)['rows']]
    assert names('--step', '7', '--device', '0') == [
        'ProfilerStep*', 'aten::linear', 'aten::mm', 'cudaLaunchKernel', 'Activity Buffer Request', 'ProfilerStep*', 'gemm', 'bias']
    assert analyze('ops', '--device', '1', gpu, format=None, rc=1).out == ''
    assert names('--from', '0.0001', '--to', '0.00013') == ['aten::linear', 'aten::mm']
    assert names('--stage', 'Prof*')[:2] == ['ProfilerStep*', 'aten::linear']
    assert analyze('ops', '--stage', 'nothing', gpu, format=None, rc=1).out == ''


# ---- .tfr traces ----

def ours(path):
    t = OpTrace()
    t.stage('forward', 100 * US, 200 * US)
    frames = [('forward', 'm.py', 3), ('<module>', 'main.py', 10)]
    t.op('aten::linear', 110 * US, 150 * US, sequence=5, shapes=[[8, 16], [[2], [3]], []], frames=frames)
    t.op('aten::addmm', 120 * US, 140 * US, sequence=5, shapes=[[8, 16]], flops=1000, frames=frames)
    t.op('aten::addmm', 160 * US, 165 * US, sequence=6, shapes=[[4, 4]], flops=24000)
    t.op('aten::is_leaf', 166 * US, 167 * US)
    t.op('lib.filter', 171 * US, 175 * US, scope=NATIVE)
    t.op('AddmmBackward0', 300 * US, 340 * US, 2, 5, 1, BACKWARD, frames=[('other', 'x.py', 1)])
    t.op('aten::mm', 310 * US, 330 * US, 2)
    t.coroutine('task', 400 * US, [(400 * US, 410 * US, 1), (450 * US, None, 1)], 470 * US)
    t.work('kernel', 125 * US, 600 * US, 10 * US, name='gemm')
    t.work('kernel', 180 * US, 620 * US, 3 * US, name='gemm')
    t.work('sync', 190 * US, 625 * US, 3 * US, type=3, stream=7)
    t.block(130 * US, 0x1000, 4096, 4096)
    t.block(315 * US, 0x2000, 512, 4608)
    t.block(320 * US, 0x3000, 2 << 20, 2 << 20, 4 << 20, device=0, thread=2)
    t.block(500 * US, 0x1000, -4096, 512)
    return t.save(path)


def test_rows_of_our_own_trace(tmp_path, analyze):
    rows = analyze('ops', ours(tmp_path / 'rank2.h.1.tfr'))['rows']
    keys = ('calls', 'cpu_total_us', 'self_cpu_us', 'device_total_us', 'self_device_us', 'cpu_mem_bytes',
            'self_cpu_mem_bytes', 'device_mem_bytes', 'flops')
    assert [(r['name'], *(r[k] for k in keys)) for r in rows] == [
        ('forward', 1, 100, 47, 13, 3, 4096, 0, 0, None),
        ('aten::linear', 1, 40, 20, 10, 0, 4096, 0, 0, None),
        ('aten::addmm', 2, 25, 23, 10, 10, 4096, 4096, 0, 25000),
        ('cudaLaunchKernel', 3, 6, 6, 0, 0, 0, 0, 0, None),
        ('lib.filter', 1, 4, 4, 0, 0, 0, 0, 0, None),
        ('AddmmBackward0', 1, 40, 20, 0, 0, 512, 0, 2 << 20, None),
        ('aten::mm', 1, 20, 20, 0, 0, 512, 512, 2 << 20, None),
        ('task', 1, 30, 30, 0, 0, 0, 0, 0, None),
        ('[memory]', 1, 0, 0, 0, 0, -4096, -4096, 0, None),
        ('gemm', 2, 0, 0, 13, 13, 0, 0, 0, None)]


def test_shapes_and_stacks_of_our_own_trace(tmp_path, analyze):
    trace = ours(tmp_path / 'rank2.h.1.tfr')
    shapes = [(r['name'], r['shapes']) for r in analyze('ops', '--group-by', 'shapes', trace)['rows'] if ':' in r['name']]
    assert shapes == [('aten::linear', '[[8, 16], [], []]'), ('aten::addmm', '[[8, 16]]'), ('aten::addmm', '[[4, 4]]'),
                      ('aten::mm', '[]')]
    rows = analyze('ops', '--group-by', 'name,stack=1', trace)['rows']
    stacks = [(r['name'], r['stack']) for r in rows if r['stack']]  # backward operators have their forward operators' stacks
    first = ['m.py(3): forward']
    assert stacks == [('aten::linear', first), ('aten::addmm', first), ('AddmmBackward0', first), ('aten::mm', first)]
    both = analyze('ops', '--group-by', 'name,stack=5', '--sort-by', 'flops', trace)['rows']
    assert [(r['name'], r['stack'], r['flops']) for r in both][:2] == [
        ('aten::addmm', [], 24000), ('aten::addmm', ['m.py(3): forward', 'main.py(10): <module>'], 1000)]


def test_stacks_and_operations_in_the_table(tmp_path, analyze):
    """The table prints stacks and operations like torch, with further frames in the last column."""
    trace = ours(tmp_path / 'rank2.h.1.tfr')
    table = analyze('ops', '--group-by', 'name,stack=2', trace, format=None).out.splitlines()
    assert re.split(r'\s{2,}', table[1].strip())[-2:] == ['Source Location', 'Total KFLOPs']
    row = next(i for i, line in enumerate(table) if line.lstrip().startswith('aten::addmm'))
    assert re.split(r'\s{2,}', table[row].strip())[-2:] == ['1.000', 'm.py(3): forward']
    assert table[row + 1].strip() == 'main.py(10): <module>'
    assert not table[row + 2].strip()


def test_the_exported_trace_has_the_same_rows(tmp_path, analyze):
    """The export has the same rows, but Kineto shows stream waits as work and pieces of coroutines as calls, and gives the
    frames of an operator to the calls inside."""
    trace, exported = ours(tmp_path / 'rank2.h.1.tfr'), tmp_path / 'out.json'
    analyze('export', 'chrome', trace, '--output', exported, format=None)
    for group in ('name', 'shapes', 'stack=2'):
        rows = [{r['name'] + str(r['shapes']) + str(r['stack']): r for r in analyze('ops', '--group-by', group, p, rc=None)['rows']
                 if r['name'] not in ('task', 'Stream Sync', 'forward', 'AddmmBackward0', 'aten::mm') and
                 (r['name'], group) != ('cudaLaunchKernel', 'stack=2')}
                for p in (trace, exported)]
        assert rows[0] == rows[1]


def test_several_ranks_are_summed(tmp_path, analyze):
    run = tmp_path / 'run'
    run.mkdir()
    for rank in range(2):
        t = OpTrace(rank=rank)
        t.op('aten::add', 100 * US, 120 * US)
        t.op(f'aten::only{rank}', 130 * US, 131 * US)
        t.save(run / f'rank{rank}.h.{rank}.tfr')
    rows = analyze('ops', run)['rows']
    assert [(r['name'], r['calls'], r['cpu_total_us']) for r in rows] == [('aten::add', 2, 40), ('aten::only0', 1, 1),
                                                                       ('aten::only1', 1, 1)]
    assert [r['name'] for r in analyze('ops', '--rank', '1', run)['rows']] == ['aten::add', 'aten::only1']


def test_a_trace_without_operators(tmp_path, analyze):
    t = OpTrace()
    result = analyze('ops', t.save(tmp_path / 'rank2.h.1.tfr'), format=None)
    assert result.out == '' and 'no operators were recorded' in result.err


# ---- the schedule ----

def scheduled(path):
    """Recording off, warm-up, and two cycles of one step each; every step has a kernel and an operator."""
    t = OpTrace()
    for i, (state, cycle) in enumerate(((0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (0, 1))):
        start = (i + 1) * 100 * US
        t.recording(start, state, cycle, i)
        t.stage(f'ProfilerStep#{i}', start + 1 * US, start + 99 * US)
        t.op(f'aten::op{i}', start + 10 * US, start + 50 * US)
        t.work('kernel', start + 20 * US, 1000 * US + start, (i + 1) * US, name=f'k{i}')
    return t.save(path)


def test_warm_up_is_left_out_and_cycles_can_be_chosen(tmp_path, analyze):
    trace = scheduled(tmp_path / 'rank2.h.1.tfr')

    def kernels(*options):
        return {r['name'] for r in analyze('breakdown', *options, trace)['rows']}

    def operators(*options):
        return {r['name'] for r in analyze('ops', *options, trace)['rows'] if r['name'].startswith('aten')}

    assert kernels() == {'k0', 'k2', 'k4', 'k5'} and operators() == {'aten::op2', 'aten::op4'}
    assert kernels('--cycle', '0') == {'k2'} and operators('--cycle', '0') == {'aten::op2'}
    assert kernels('--cycle', '0-1') == {'k2', 'k4'} and kernels('--step', '3') == {'k3'}
    assert operators('--step', '3') == {'aten::op3'}
    assert analyze('breakdown', '--cycle', '2', trace, format=None, rc=1).out == ''
    stage, = analyze('stages', trace)['rows']
    assert (stage['calls'], stage['device_us']) == (6, 1 + 2 + 3 + 4 + 5 + 6)  # of every call, also those of warm-up
    stage, = analyze('stages', '--cycle', '1', trace)['rows']
    assert (stage['calls'], stage['device_us']) == (1, 5)
    assert analyze('timeline', trace)['rows'][0]['computation_us'] == 15
    assert analyze('timeline', '--cycle', '1', trace)['rows'][0]['computation_us'] == 5
