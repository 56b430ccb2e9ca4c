"""test_operators_export - operators, memory, metadata and stages in pieces of .tfr traces: answers and Chrome exports.

tests/tfr.py writes the traces. The tests compute the expected answers from the numbers that they write, and let HTA and
the TensorBoard plugin load the exported files and find the same operators.
"""

import gzip
import json
import re

import pytest

from optrace import BACKWARD, NATIVE, OpTrace
from test_device_export import at, events
from test_device_records import US, ticks
from test_export_kineto import ask_loaders, in_hta, in_tensorboard
from tfr import rec


def training(path):
    """A forward pass on one thread, and its backward pass on another thread without stages."""
    t = OpTrace()
    t.stage('forward', 100 * US, 200 * US)
    t.stage('other', 390 * US, 500 * US)
    t.op('aten::linear', 110 * US, 150 * US, sequence=5, shapes=[[8, 16], [32, 16], [32]],
         types=['float', 'float', 'float'], concrete=['', '', ''], strides=[[16, 1], [16, 1], [1]])
    t.op('aten::addmm', 120 * US, 140 * US, sequence=5, shapes=[[8, 16], [[2], [3]]], flops=1024,
         frames=[('forward', 'm.py', 3), ('<module>', 'main.py', 10)])
    t.op('aten::relu', 155 * US, 160 * US, sequence=6)
    t.op('lib.filter', 171 * US, 175 * US, scope=NATIVE)
    t.op('autograd::engine::evaluate_function: AddmmBackward0', 400 * US, 450 * US, 2, 5, 1)
    t.op('AddmmBackward0', 410 * US, 445 * US, 2, 5, 1, BACKWARD)
    t.op('aten::mm', 420 * US, 440 * US, 2)
    t.op('torch::autograd::AccumulateGrad', 460 * US, 470 * US, 2)
    t.op('aten::add_', 461 * US, 469 * US, 2)
    t.work('kernel', 125 * US, 600 * US, 10 * US, name='gemm')
    t.work('kernel', 425 * US, 620 * US, 20 * US, thread=2, name='gemm')
    t.work('kernel', 462 * US, 650 * US, 5 * US, thread=2, name='add')
    t.work('kernel', 180 * US, 660 * US, 3 * US, name='alone')
    t.block(126 * US, 0x1000, 4096, 4096, 0)
    t.block(430 * US, 0x2000, 512, 1 << 20, 2 << 20, device=1, thread=2)
    t.block(600 * US, 0x1000, -4096, 0)
    t.said('k', 'v')
    t.said('j', '{"a": [1, 2]}')
    t.said('broken', '[1,')
    t.said('distributedInfo', '{"backend": "gloo", "rank": 7, "pg_config": [{"pg_name": "0"}]}')
    t.said('traceEvents', '[]')
    return t.save(path)


@pytest.fixture
def trace(tmp_path):
    return training(tmp_path / 'rank2.elsewhere.4242.tfr')


# ---- launches of work ----

def test_work_belongs_to_the_operator_that_launched_it(trace, analyze):
    rows = analyze('breakdown', '--group-by', 'op', trace)['rows']
    found = {(r['stage'], r['name']): (r['calls'], r['total_us']) for r in rows}
    assert found == {('forward', 'aten::addmm'): (1, 10), ('forward', 'aten::mm'): (1, 20),
                     ('other', 'aten::add_'): (1, 5), ('forward', '(none)'): (1, 3)}


def test_backward_work_belongs_to_the_stage_of_the_forward_operator(trace, analyze):
    """Another stage is open at 425 us, but the arrow leads to the last operator with that sequence number."""
    rows = {r['stage']: r for r in analyze('stages', trace)['rows']}
    assert rows['forward']['device_us'] == 33 and rows['other']['device_us'] == 5
    totals = analyze('breakdown', trace)['totals']
    assert [totals[f'via_{v}'] for v in ('thread', 'forward', 'only', 'none')] == [2, 1, 1, 0]


@pytest.mark.parametrize('change', ['thread', 'sequence', 'none'])
def test_without_its_forward_operator_it_does_not(tmp_path, analyze, change):
    t = OpTrace()
    t.stage('forward', 100 * US, 200 * US)
    t.stage('one', 390 * US, 500 * US)
    t.stage('two', 390 * US, 500 * US, thread=3)
    t.op('aten::addmm', 120 * US, 140 * US, sequence=5)
    t.op('AddmmBackward0', 410 * US, 445 * US, 2, *{'thread': (5, 2), 'sequence': (6, 1), 'none': (-1, 0)}[change])
    t.work('kernel', 425 * US, 620 * US, 20 * US, thread=2, name='gemm')
    rows = {r['stage']: r for r in analyze('stages', t.save(tmp_path / 'rank2.h.1.tfr'))['rows']}
    assert rows['forward']['device_us'] == 0 and rows['(none)']['device_us'] == 20


# ---- stages in pieces ----

def pieces(path, **header):
    """Two tasks of one event loop, one ending on another thread, with launches in each piece and in between."""
    t = OpTrace(**header)
    t.coroutine('serve', 1000 * US, [(1000 * US, 1100 * US, 1), (1500 * US, 1600 * US, 2), (1700 * US, None, 2)], 1800 * US)
    t.coroutine('serve', 1100 * US, [(1100 * US, 1400 * US, 1), (1450 * US, None, 1)], 1500 * US)
    t.stage('inner', 1120 * US, 1150 * US)
    t.coroutine('never', 1900 * US, [(1900 * US, 1910 * US, 1)], None)
    for i, time in enumerate((1050, 1130, 1300, 1420, 1460, 1650, 1750)):
        t.work('kernel', time * US, 3000 * US + i * 100 * US, (i + 1) * US, thread=2 if time > 1500 else 1, name=f'k{i}')
    return t.save(path)


def test_a_coroutine_has_the_time_it_ran_and_the_time_from_entry_to_exit(tmp_path, analyze):
    trace = pieces(tmp_path / 'rank2.h.1.tfr')
    answer = analyze('stages', trace)
    rows = {r['stage']: r for r in answer['rows']}
    serve = rows['serve']
    assert (serve['calls'], serve['host_us'], serve['wall_us'], serve['self_us']) == (2, 650, 1200, 620)
    assert (rows['never']['calls'], rows['never']['host_us']) == (1, 10) and answer['totals']['unfinished'] == 1
    assert (rows['inner']['host_us'], rows['inner']['device_us']) == (30, 2)
    # A suspended stage gets nothing: at 1420 and 1650 no stage is open.
    assert serve['done_us'] == (3607 - 1000) + (3405 - 1100)  # each call until its last kernel ended, also if pieces overlap
    assert serve['device_us'] == 1 + 2 + 3 + 5 + 7 and rows['(none)']['device_us'] == 4 + 6
    part = {r['stage']: r for r in analyze('stages', '--from', '0.00155', trace)['rows']}['serve']
    assert (part['calls'], part['host_us'], part['wall_us']) == (1, pytest.approx(150, abs=0.01), pytest.approx(250, abs=0.01))
    # One call lasts from entry to exit; with --exclusive it counts its own pieces.
    assert serve['min_us'] + serve['max_us'] == serve['wall_us'] and serve['median_us'] == 600
    own = {r['stage']: r for r in analyze('stages', '--exclusive', trace)['rows']}['serve']
    assert own['min_us'] + own['max_us'] == own['self_us'] == 620
    assert part['min_us'] == part['max_us'] == part['wall_us']


def test_recursion_of_a_coroutine_counts_once(tmp_path, analyze):
    t = OpTrace()
    t.coroutine('again', 100 * US, [(100 * US, 200 * US, 1), (300 * US, None, 1)], 400 * US)
    t.coroutine('again', 150 * US, [(150 * US, 200 * US, 1), (300 * US, None, 1)], 350 * US)
    row, = analyze('stages', t.save(tmp_path / 'rank2.h.1.tfr'))['rows']
    assert (row['calls'], row['host_us'], row['wall_us'], row['self_us']) == (2, 200, 300, 200)


def test_pieces_are_drawn_where_they_ran(tmp_path, analyze):
    trace = pieces(tmp_path / 'rank2.h.1.tfr')
    exported = json.loads(analyze('export', 'chrome', trace, format=None).out)
    drawn = [(e['tid'], e['dur'], e['args'].get('continued', False)) for e in events(exported, 'user_annotation')
             if e['name'] == 'serve']
    assert sorted(drawn) == sorted([(101, 100, False), (102, 100, True), (102, 100, True), (101, 300, False), (101, 50, True)])
    begun, ended = ({e['id']: e for e in exported['traceEvents'] if e.get('cat') == 'coroutine' and e['ph'] == p}
                    for p in 'be')
    assert sorted((ended[k]['ts'] - begun[k]['ts'], begun[k]['name'], begun[k]['args']['pieces']) for k in begun) == [
        (400, 'serve', 2), (800, 'serve', 3), (pytest.approx(10 ** 6 - 1900), 'never', 1)]


def test_odd_pauses_change_nothing(tmp_path, analyze):
    """Pauses of no range, twice or outside it change nothing; a resume alone moves the range to its thread."""
    t = OpTrace()
    number = t.coroutine('s', 100 * US, [(100 * US, None, 1)], 400 * US)
    name = t.w.string('s')
    for thread, kind, time, of in ((1, 'range_pause', 150, 99), (1, 'range_pause', 50, number), (2, 'range_resume', 200, number),
                                   (2, 'range_pause', 300, number), (2, 'range_pause', 350, number),
                                   (2, 'range_resume', 900, number)):
        t.later_on(thread, rec(kind, name=name, time=ticks(time * US), id=of))
    t.work('kernel', 160 * US, 1000 * US, 1 * US, name='a')
    t.work('kernel', 250 * US, 1100 * US, 2 * US, thread=2, name='b')
    t.work('kernel', 320 * US, 1200 * US, 4 * US, name='c')
    rows = {r['stage']: r for r in analyze('stages', t.save(tmp_path / 'rank2.h.1.tfr'))['rows']}
    assert (rows['s']['calls'], rows['s']['host_us'], rows['s']['wall_us'], rows['s']['device_us']) == (1, 200, 300, 3)


# ---- call stacks ----

FRAME = 'm.py(3): forward'
DAMAGED = {  # the string of a stack, and its frames as far as they make sense; N stands for a frame's number
    'empty': ('', '(lost)'),
    'no number': ('zz', '(lost)'),
    'upper case': ('AB', '(lost)'),
    'a space too many': ('N ', '(lost)'),
    'two spaces': ('N  N', '(lost)'),
    'too large': ('100000001', '(lost)'),
    'too long': (' '.join(['N'] * 257), '(lost)'),
    'longest': (' '.join(['N'] * 256), ';'.join([FRAME] * 256)),
    'not there': ('N ff N', f'{FRAME};(lost);{FRAME}'),
    'zero': ('0 N', f'(lost);{FRAME}'),
    'was lost': ('N ffffffff', f'{FRAME};(lost)'),
    'itself': ('ITSELF N', f'(lost);{FRAME}'),
    'another stack': ('STACK', '(lost)'),
    'a name': ('NAME', '(lost)'),
}


@pytest.mark.parametrize('case', DAMAGED)
def test_damaged_stacks(tmp_path, analyze, case):
    """Damaged frames become (lost), with a message and status 3; frames that the library lost change neither."""
    t = OpTrace()
    frame, name = t.w.string('forward\tm.py\t3'), t.w.string('aten::add')
    given, wanted = DAMAGED[case]
    for key, number in (('ITSELF', len(t.w.numbers) + 1), ('STACK', t.w.stack(('forward', 'm.py', 3))), ('NAME', name), ('N', frame)):
        given = given.replace(key, f'{number:x}') if case != 'no number' else given
    stack = t.w.string(given)
    for i in range(2):
        t.later_on(1, rec('op', name=name, time=ticks((100 + i) * US), duration=ticks(US), sequence=-1, stack=stack))
    path = t.save(tmp_path / 'rank2.h.1.tfr')
    good = case in ('longest', 'was lost')
    exported = analyze('export', 'chrome', path, format=None, rc=0 if good else 3)
    assert [e['args']['Call stack'] for e in events(json.loads(exported.out), 'cpu_op')] == [wanted] * 2
    assert ('1 call stacks contain missing or invalid frames' in exported.err) is not good
    dump = analyze('dump', path, format='csv', rc=0 if good else 3)
    assert ('2 call stacks contain missing or invalid frames' in dump.err) is not good
    texts = [r['values']['stack'] for r in analyze('dump', path, rc=0 if good else 3)['rows'] if r['kind'] == 'op']
    assert texts == [wanted.replace(FRAME, 'forward\tm.py\t3').replace(';', '\n')] * 2
    rows = analyze('ops', '--group-by', 'name,stack=300', path, rc=0 if good else 3)['rows']
    assert [r['stack'] for r in rows] == [wanted.split(';')]


def test_dump_reports_rows_it_leaves_out(tmp_path, analyze):
    """dump reports rows that it leaves out, even for columns that only dump reads."""
    t = OpTrace()
    t.stage('s', 100 * US, 200 * US)
    t.w.chunk([rec('io', path=t.w.string('x'), time=ticks(i * US)) for i in range(3)], thread=1,
              pick=lambda f, _: 99 if f.name == 'path' else None)  # an unknown codec
    path = t.save(tmp_path / 'rank2.h.1.tfr')
    result = analyze('dump', path, format='csv', rc=3)
    assert '3 more records are complete but not valid' in result.err
    assert [line for line in result.out.splitlines() if ' io ' in line or ',io,' in line] == []


# ---- memory of stages ----

def test_peaks(tmp_path, analyze):
    t = OpTrace()
    for i, name in enumerate(('both', 'host', 'both', 'without'), 1):
        t.stage(name, i * 100 * US, i * 100 * US + 50 * US)
    t.stage_memory(1, 150 * US, 500, 0, device=-1)
    t.stage_memory(1, 150 * US, 100, 200, device=0)
    t.stage_memory(1, 150 * US, 300, 400, device=1)
    t.stage_memory(3, 350 * US, 250, 450, device=0)
    t.stage_memory(2, 250 * US, 70, 0, device=-1)
    t.stage_memory(77, 250 * US, 9999, 9999)
    rows = analyze('stages', t.save(tmp_path / 'rank2.h.1.tfr'))['rows']
    found = {r['stage']: (r['peak_allocated_bytes'], r['peak_reserved_bytes']) for r in rows}
    assert found == {'both': (300, 450), 'host': (70, None), 'without': (None, None)}


# ---- the exported trace ----

def test_operators(exported):
    found = {e['name']: e for e in events(exported, 'cpu_op')}
    assert len(events(exported, 'cpu_op')) == len(found) == 9
    linear = found['aten::linear']
    assert (linear['pid'], linear['tid'], linear['ts'], linear['dur']) == (4242, 101, at(110), 40)
    assert list(linear['args']) == ['External id', 'Sequence number', 'Fwd thread id', 'Record function id', 'Concrete Inputs',
                                    'Input type', 'Input Strides', 'Input Dims', 'Ev Idx']
    args = {k: v for k, v in linear['args'].items() if k not in ('External id', 'Ev Idx')}
    assert args == {'Sequence number': 5, 'Fwd thread id': 0, 'Record function id': 0, 'Concrete Inputs': ['', '', ''],
                    'Input type': ['float', 'float', 'float'], 'Input Strides': [[16, 1], [16, 1], [1]],
                    'Input Dims': [[8, 16], [32, 16], [32]]}
    addmm = found['aten::addmm']['args']
    assert addmm['Input Dims'] == [[8, 16], [[2], [3]]] and addmm['FLOPs'] == 1024
    assert addmm['Call stack'] == 'm.py(3): forward;main.py(10): <module>'
    assert set(found['aten::mm']['args']) == {'External id', 'Record function id', 'Ev Idx'}
    assert found['AddmmBackward0']['args']['Fwd thread id'] == 1 and found['lib.filter']['args']['native'] is True


def test_ids_lead_from_work_and_its_launch_to_the_operator(exported):
    operators = {e['args']['External id']: e['name'] for e in events(exported, 'cpu_op')}
    assert len(operators) == 9
    launches = {e['args']['correlation']: operators.get(e['args'].get('External id'))
                for e in events(exported, 'cuda_runtime')}
    for kernel in events(exported, 'kernel'):
        assert operators.get(kernel['args'].get('External id')) == launches[kernel['args']['correlation']]
    assert sorted(map(str, launches.values())) == ['None', 'aten::add_', 'aten::addmm', 'aten::mm']


def test_arrows_lead_from_forward_to_backward(exported):
    tail, = (e for e in exported['traceEvents'] if e.get('cat') == 'fwdbwd' and e['ph'] == 's')
    head, = (e for e in exported['traceEvents'] if e.get('cat') == 'fwdbwd' and e['ph'] == 'f')
    assert tail['id'] == head['id'] and head['bp'] == 'e' and tail['name'] == 'fwdbwd'
    assert (tail['tid'], tail['ts'], head['tid'], head['ts']) == (101, at(120), 102, at(400))


def test_memory(exported):
    found = [e for e in exported['traceEvents'] if e['name'] == '[memory]']
    assert {(e['ph'], e['cat'], e['s'], e['pid']) for e in found} == {('i', 'cpu_instant_event', 't', 4242)}
    assert [(e['tid'], e['ts']) for e in found] == [(101, at(126)), (101, at(600)), (102, at(430))]
    args = [{k: v for k, v in e['args'].items() if k != 'Ev Idx'} for e in found]
    assert args[0] == {'Total Reserved': 0, 'Total Allocated': 4096, 'Bytes': 4096, 'Device Id': -1, 'Device Type': 0,
                       'Addr': 0x1000}
    assert args[1]['Bytes'] == -4096 and args[1]['Total Allocated'] == 0
    assert args[2] == {'Total Reserved': 2 << 20, 'Total Allocated': 1 << 20, 'Bytes': 512, 'Device Id': 1,
                       'Device Type': 1, 'Addr': 0x2000}
    every = [e['args']['Ev Idx'] for e in exported['traceEvents'] if 'Ev Idx' in e.get('args', {})]
    assert sorted(every) == list(range(len(every)))


def test_metadata_is_at_kinetos_place(exported, trace, analyze):
    assert exported['k'] == 'v' and exported['j'] == {'a': [1, 2]} and exported['broken'] == '[1,'
    assert exported['distributedInfo'] == {'backend': 'gloo', 'rank': 2, 'pg_config': [{'pg_name': '0'}], 'world_size': 4}
    assert len(exported['traceEvents']) > 20
    row, = analyze('info', trace)['rows']
    assert row['metadata']['k'] == 'v' and row['metadata']['j'] == '{"a": [1, 2]}'


def test_steps_have_their_numbers(tmp_path, analyze):
    t = OpTrace()
    for i in (3, 4):
        t.stage(f'ProfilerStep#{i}', i * 100 * US, i * 100 * US + 90 * US)
        t.work('kernel', i * 100 * US + 50 * US, i * 1000 * US, i * US, name='k')
    trace = t.save(tmp_path / 'rank2.h.1.tfr')
    row, = analyze('stages', trace)['rows']
    assert (row['stage'], row['calls'], row['host_us'], row['device_us']) == ('ProfilerStep*', 2, 180, 7)
    row, = analyze('stages', '--step', '4', trace)['rows']
    assert (row['calls'], row['device_us']) == (1, 4)
    exported = json.loads(analyze('export', 'chrome', trace, format=None).out)
    assert [e['name'] for e in events(exported, 'user_annotation')] == ['ProfilerStep#3', 'ProfilerStep#4']


def test_a_stage_takes_its_backward_operators_along(trace, analyze):
    exported = json.loads(analyze('export', 'chrome', '--stage', 'forward', trace, format=None).out)
    assert {e['name'] for e in events(exported, 'cpu_op')} == {
        'aten::linear', 'aten::addmm', 'aten::relu', 'lib.filter', 'AddmmBackward0', 'aten::mm',
        'autograd::engine::evaluate_function: AddmmBackward0'}
    assert len([e for e in exported['traceEvents'] if e['name'] == '[memory]']) == 1


@pytest.mark.soak
def test_other_tools_find_the_same_operators(tmp_path, trace, analyze, python):
    path = tmp_path / 'out.json'
    analyze('export', 'chrome', trace, '--output', path, format=None)
    document = json.loads(path.read_text())
    found = ask_loaders(python, {'hta': [path], 'tensorboard': [path], 'operators': [path]})
    assert found['hta'] == [in_hta(document['traceEvents'])] and found['tensorboard'] == [in_tensorboard(document['traceEvents'])]
    names = {}
    for e in events(document, 'cpu_op'):
        names[e['name']] = names.get(e['name'], 0) + 1
    assert found['operators'] == [[names, names]]


def test_our_own_reader_reads_it_back(tmp_path, trace, analyze):
    path = tmp_path / 'out.json'
    analyze('export', 'chrome', trace, '--output', path, format=None)
    for question in (['stages'], ['breakdown', '--group-by', 'op'], ['breakdown']):
        rows = [[{k: v for k, v in r.items() if k not in ('pct', 'peak_allocated_bytes', 'peak_reserved_bytes')}
                 for r in analyze(*question, p)['rows']] for p in (trace, path)]
        assert rows[0] == rows[1]


# ---- dispatches, and `info` ----

def test_dispatches(tmp_path, analyze):
    """launches counts native builtins and operators outside torch, with the stage rules of operators."""
    t = OpTrace()
    t.stage('filter', 100 * US, 300 * US)
    for i, name in enumerate(('aten::add', 'torchvision::nms', 'prim::If', 'c10d::allreduce_', 'torchvision::nms',
                              'autograd::engine::evaluate_function: X', 'record_param_comms', 'my.lib::op')):
        t.op(name, (110 + 10 * i) * US, (115 + 10 * i) * US, sequence=i)
    t.op('ext.run', 200 * US, 203 * US, scope=NATIVE)
    t.op('lib::Backward', 400 * US, 420 * US, 2, 1, 1, BACKWARD)
    t.op('lib::inner', 405 * US, 410 * US, 2)
    t.work('kernel', 406 * US, 500 * US, 9 * US, thread=2, name='k')
    answer = analyze('launches', t.save(tmp_path / 'rank2.h.1.tfr'))
    found = {r['name']: (r['stage'], r['launches'], r['dispatches'], r['cpu_us'], r['gpu_us']) for r in answer['rows']}
    assert found == {'torchvision::nms': ('filter', 0, 2, 10, None), 'my.lib::op': ('filter', 0, 1, 5, None),
                     'ext.run': ('filter', 0, 1, 3, None), 'lib::inner': ('filter', 0, 1, 5, None),
                     'cudaLaunchKernel': ('filter', 1, 0, 2, 9)}
    totals = answer['totals']
    assert (totals['dispatches'], totals['launches'], totals['cpu_us'], totals['gpu_us']) == (5, 1, 2, 9)


def test_info_has_metadata_and_switchings(tmp_path, analyze):
    t = OpTrace()
    t.said('torch.operators', 'direct')
    t.recording(300 * US, 0, 1, 4, 'signal')
    t.recording(100 * US, 1, 1, 3)
    row, = analyze('info', t.save(tmp_path / 'rank2.h.1.tfr'))['rows']
    assert row['metadata'] == {'torch.operators': 'direct'}
    assert row['recording'] == [
        {'at_us': pytest.approx(100, abs=0.01), 'state': 'warm-up', 'cause': 'schedule', 'cycle': 1, 'step': 3},
        {'at_us': pytest.approx(300, abs=0.01), 'state': 'off', 'cause': 'signal', 'cycle': 1, 'step': 4}]


def test_report_counts_a_coroutine_once(tmp_path, analyze):
    text = analyze('report', pieces(tmp_path / 'rank2.h.1.tfr'), format=None).out
    assert re.search(r'^ +2 +4\.912 ms +650\.000 us +18\.000 us +serve$', text, re.MULTILINE)
    document = json.loads(gzip.decompress((tmp_path / 'serve_rank2.trace.json.gz').read_bytes()))
    assert [e['name'] for e in events(document, 'user_annotation')].count('serve') == 5
