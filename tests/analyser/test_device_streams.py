"""test_device_streams - questions about streams by our own rules: the same answers from the JSON of real traces.

tests/kineto.py reads the JSON and finds launches and stages. tests/analyser/test_hta.py asks the same with HTA's rules.
"""

import csv
import io
import re
from bisect import bisect_right
from collections import defaultdict
from fractions import Fraction
from itertools import accumulate
from statistics import mean, stdev

import pytest

import kineto
from kineto import Trace as Written
from test_filters import TRACES, Trace, document_of
from test_kineto import exact, ns

CAUSES = ('host_wait', 'kernel_wait', 'other')
SHORT = 30_000  # ns


@pytest.fixture(params=TRACES, ids=['sampled', 'nccl', 'resnet'])
def trace(request, shared_traces):
    return Trace(shared_traces / request.param)


def by_stream(trace):
    """{(device, stream): [(work, its stages)] by start}"""
    found = defaultdict(list)
    for work, chain, _ in trace.works:
        found[work.device, work.stream].append((work, chain))
    return {key: sorted(works, key=lambda pair: pair[0].start) for key, works in found.items()}


# ---- idle ----

def idle(trace, wanted, since=None, until=None):
    """{(device, stream): [number of works, ns of each cause]} of the gaps before the works that are wanted, between two times."""
    answer = {}
    for key, works in by_stream(trace).items():
        row, end = [0, 0, 0, 0], None
        for work, chain in works:
            if wanted(work, chain):
                row[0] += (until is None or work.start < until) and (since is None or work.end > since)
                if end is not None:
                    call = trace.launched[id(work)]
                    host = call is not None and kineto.CLASS_OF.get(call.kind) == 'api' and call.start > end
                    low, high = end if since is None else max(end, since), work.start if until is None else min(work.start, until)
                    row[1 if host else 2 if work.start - end < SHORT else 3] += max(high - low, 0)
            end = work.end if end is None else max(end, work.end)
        if any(row):
            answer[key] = row
    return answer


def answered(answer):
    return {(r['device'], r['stream']): [r['works'], *(ns(r[f'{cause}_us']) for cause in CAUSES)] for r in answer['rows']}


def test_idle(analyze, trace):
    for options, wanted, _ in [([], lambda w, chain: True, None), *trace.choices()]:
        if wanted is None:
            continue
        expected = idle(trace, wanted)
        if not expected:
            analyze('idle', *options, trace.path, format='text', rc=1)
            continue
        answer = exact(analyze, 'idle', *options, trace.path)
        assert answered(answer) == expected, options
        for row in answer['rows']:
            all_idle = sum(row[f'{cause}_us'] for cause in CAUSES)
            for cause in CAUSES:
                share = row[f'{cause}_pct']
                assert (share is None) == (not all_idle)
                assert not all_idle or float(share) == pytest.approx(100 * float(row[f'{cause}_us'] / all_idle), abs=0.0001)
        totals = answer['totals']
        assert [totals['works'], *(ns(totals[f'{c}_us']) for c in CAUSES)] == [sum(r[i] for r in expected.values()) for i in range(4)]


def test_idle_of_a_window(analyze, trace):
    """A gap that the window cuts counts with its part inside, and has the cause of the whole gap."""
    first, last = kineto.span(trace.document)
    low, high = first + (last - first) // 3, first + 2 * (last - first) // 3
    answer = exact(analyze, 'idle', '--from', (low - first) / 1e9, '--to', (high - first) / 1e9, trace.path)
    expected = idle(trace, lambda w, chain: True, low, high)
    assert set(answered(answer)) == set(expected)
    for key, row in answered(answer).items():
        assert row == pytest.approx(expected[key], abs=2), key  # seconds as a float are not exact to the nanosecond


def test_idle_times_of_windows_add_up(analyze, tmp_path):
    """A gap of three windows: each has its part, the middle one without any work. Their cause is that of the whole gap."""
    trace = Written()
    for correlation, at in enumerate((100, 1000), 1):
        trace.call(at - 50, correlation, dur=1).kernel('k', at, 100, correlation)
    path = trace.write(tmp_path / 'trace.json')
    found = [[(r['works'], *(r[f'{c}_us'] for c in CAUSES)) for r in analyze('idle', *window, path)['rows']] for window in (
        [], ['--to', '0.00025'], ['--from', '0.00025', '--to', '0.00055'], ['--from', '0.00055'], ['--from', '0.00055', '--stage', '(run)'])]
    assert found == [[(2, 800, 0, 0)], [(1, 100, 0, 0)], [(0, 300, 0, 0)], [(1, 400, 0, 0)], [(1, 400, 0, 0)]]
    assert 'nothing matches' in analyze('idle', '--from', '0.00025', '--to', '0.00055', '--stage', 'x', path, format=None, rc=1).err


def test_idle_by_hand(analyze, tmp_path):
    """Each cause once. A work inside a longer one makes no gap; the last row has only one work and no idle time."""
    trace = Written(distributedInfo={'rank': 3})
    for correlation, (launched, start, dur) in enumerate(((0, 10, 90), (1, 20, 10), (2, 129, 1), (3, 160, 40), (300, 305, 5)), 1):
        trace.call(launched, correlation, dur=1)
        trace.kernel('k', start, dur, correlation=correlation, stream=7)
    trace.call(400, 9, dur=1)
    trace.kernel('k', 410, 5, correlation=9, stream=8)
    path = tmp_path / 'trace.json'
    trace.write(path)
    rows = analyze('idle', path)['rows']
    assert [[r['rank'], r['stream'], r['works'], *(r[f'{c}_us'] for c in CAUSES)] for r in rows] == \
        [[3, 7, 5, 105, 29, 30], [3, 8, 1, 0, 0, 0]]
    assert analyze('idle', '--top', '1', path)['rows'] == rows[:1]


# ---- queue ----

def depths(trace, wanted, since=float('-inf'), until=float('inf')):
    """{(device, stream): the depths after each change by a work that is wanted}, between two times. All works of the stream
    wait in its queue, wanted or not; launches come first at equal times."""
    answer = {}
    for key, works in by_stream(trace).items():
        changes = []
        for work, chain in works:
            call = trace.launched[id(work)]
            if call is not None and kineto.CLASS_OF.get(call.kind) == 'api':
                counts = wanted(work, chain)
                changes += [(min(call.start, work.start), -1, counts), (work.start, 1, counts)]
        changes.sort(key=lambda change: change[:2])
        after = accumulate(-by for _, by, _ in changes)
        found = [depth for (time, _, counts), depth in zip(changes, after) if counts and since <= time < until]
        if found:
            answer[key] = found
    return answer


def check_queue(analyze, trace, options, expected):
    answer = analyze('queue', *options, trace.path)
    assert [(r['device'], r['stream']) for r in answer['rows']] == sorted(expected), options
    for row in answer['rows']:
        found = expected[row['device'], row['stream']]
        quartiles = [float(kineto.quantile(sorted(found), Fraction(i, 4))) for i in range(5)]
        assert [row[k] for k in ('min', 'q1', 'median', 'q3', 'max')] == quartiles, options
        assert row['count'] == len(found) and row['blocked_us'] == 0
        assert (row['mean'], row['std']) == pytest.approx((mean(found), stdev(found) if len(found) > 1 else None))
    return answer


def test_queue(analyze, trace):
    for options, wanted, _ in [([], lambda w, chain: True, None), *trace.choices()]:
        if wanted is None:
            continue
        expected = depths(trace, wanted)
        if not expected:
            analyze('queue', *options, trace.path, format='text', rc=1)
            continue
        answer = check_queue(analyze, trace, options, expected)
        assert answer['totals']['works'] == sum(map(len, expected.values())) / 2


def test_queue_of_a_window(analyze, trace):
    """Work that was launched before the window is in the queue, and so is work that starts behind it."""
    first, last = kineto.span(trace.document)
    low, high = (last - first) // 3000 * 1000, 2 * (last - first) // 3000 * 1000
    expected = depths(trace, lambda w, chain: True, first + low, first + high)
    check_queue(analyze, trace, ['--from', low / 1e9, '--to', high / 1e9], expected)


def test_a_full_queue_of_two_stages(analyze, tmp_path):
    """Two stages fill a queue together: each has the time after its own launches and starts, a window the part inside."""
    trace, each = Written(), 600
    for place, name in enumerate(('one', 'two')):
        trace.stage(name, 10_000 * place, 9_000)
        for i in range(each):
            trace.call(10_000 * place + 10 * i + 1, place * each + i + 1, dur=1)
            trace.kernel('k', 30_000 + 100 * (place * each + i), 50, correlation=place * each + i + 1)
    path = trace.write(tmp_path / 'trace.json')
    blocked = 30_000 + 100 * (2 * each - 1024) - (10_000 + 10 * (1023 - each) + 1)  # from launch 1024 to the start that leaves 1023
    [whole] = analyze('queue', path)['rows']
    assert (whole['count'], whole['max'], whole['blocked_us']) == (4 * each, 2 * each, blocked)
    rows = {name: analyze('queue', '--stage', name, path)['rows'][0] for name in ('one', 'two')}
    assert {n: (r['count'], r['max']) for n, r in rows.items()} == {'one': (2 * each, 2 * each - 1), 'two': (2 * each, 2 * each)}
    assert rows['one']['blocked_us'] + rows['two']['blocked_us'] == blocked
    assert rows['one']['blocked_us'] == 100 * (2 * each - 1024)
    [row] = analyze('queue', '--from', '0.02', '--to', '0.0301', path)['rows']
    assert (row['count'], row['max'], row['blocked_us']) == (1, 2 * each - 1, 10_100)


# ---- bandwidth ----

def copies(trace, wanted):
    """{kind: (copies, bytes, ns, the greatest speed)} from the arguments in the JSON"""
    sizes = {}
    for event in trace.document['traceEvents']:
        if kineto.class_of(event) in ('memcpy', 'memset'):
            args = event['args']
            sizes[event['name'], kineto.nanoseconds(event['ts']), args['stream'], args['device']] = args.get('bytes')
    found = defaultdict(list)
    for work, chain, _ in trace.works:
        if kineto.CLASS_OF[work.kind] != 'kernel' and wanted(work, chain):
            size = sizes[work.name, work.start, work.stream, work.device]
            found[work.name.split(' (')[0]].append((size, work.end - work.start))
    answer = {}
    for kind, rows in found.items():
        sized = [(size, time) for size, time in rows if size is not None]
        answer[kind] = (len(rows), sum(size for size, _ in sized) if sized else None, sum(time for _, time in rows),
                        sum(size for size, _ in sized) / sum(time for _, time in sized) if any(t for _, t in sized) else None,
                        max((size / time for size, time in sized if time), default=None))
    return answer


def test_bandwidth(analyze, trace):
    for options, wanted, _ in [([], lambda w, chain: True, None), *trace.choices()]:
        if wanted is None:
            continue
        expected = copies(trace, wanted)
        if not expected:
            analyze('bandwidth', *options, trace.path, format='text', rc=1)
            continue
        answer = analyze('bandwidth', *options, trace.path)
        assert {r['kind'] for r in answer['rows']} == set(expected), options
        for row in answer['rows']:
            count, size, time, mean_speed, most = expected[row['kind']]
            assert (row['count'], row['bytes'], round(row['total_us'] * 1000)) == (count, size, time)
            assert (row['mean_gbs'], row['max_gbs']) == tuple(v if v is None else pytest.approx(v) for v in (mean_speed, most))
        assert answer['totals']['count'] == sum(row[0] for row in expected.values())
        times = [row['total_us'] for row in answer['rows']]
        assert times == sorted(times, reverse=True)


# ---- annotations ----

def stacks(trace, wanted):
    """{stack of annotations: [kernels, ns, copies, ns]}, the stack from the outermost to the innermost"""
    found = defaultdict(lambda: [0, 0, 0, 0])
    for work, chain, _ in trace.works:
        if wanted(work, chain):
            row = found[tuple(kineto.collapsed(s.name) for s in chain)]
            first = 0 if kineto.CLASS_OF[work.kind] == 'kernel' else 2
            row[first] += 1
            row[first + 1] += work.end - work.start
    return found


def annotated(answer):
    return {tuple(r['stack']): [r['kernels'], ns(r['total_us']), r['copies'], ns(r['copies_us'])] for r in answer['rows']}


def test_annotations(analyze, trace):
    for options, wanted, _ in [([], lambda w, chain: True, None), *trace.choices()]:
        if wanted is None:
            continue
        expected = stacks(trace, wanted)
        if not expected:
            analyze('annotations', *options, trace.path, format='text', rc=1)
            continue
        answer = exact(analyze, 'annotations', *options, trace.path)
        assert annotated(answer) == expected, options
        for row in answer['rows']:
            assert row['annotation'] == (row['stack'][-1] if row['stack'] else '(none)')
        totals = answer['totals']
        assert [totals['kernels'], ns(totals['total_us']), totals['copies'], ns(totals['copies_us'])] == \
            [sum(row[i] for row in expected.values()) for i in range(4)]
        times = [row['total_us'] for row in answer['rows']]
        assert times == sorted(times, reverse=True)


def test_annotations_by_hand(analyze, tmp_path):
    """Equal stacks are one row, also of two calls; another parent makes another row; a trace without annotations is one stage."""
    trace = Written(distributedInfo={'rank': 3})
    for start, dur, name in ((0, 100, 'forward'), (10, 20, 'layer'), (40, 20, 'layer'), (200, 50, 'layer')):
        trace.stage(name, start, dur)
    for correlation, at in enumerate((5, 12, 45, 210, 300), 1):
        trace.call(at, correlation, dur=1)
        trace.kernel('k', at + 1000, correlation, correlation=correlation)
    path = tmp_path / 'trace.json'
    trace.write(path)
    rows = analyze('annotations', path)['rows']
    assert [[r['rank'], r['annotation'], r['kernels'], r['total_us'], r['copies'], r['stack']] for r in rows] == \
        [[3, 'layer', 2, 5, 0, ['forward', 'layer']], [3, '(none)', 1, 5, 0, []], [3, 'layer', 1, 4, 0, ['layer']],
         [3, 'forward', 1, 1, 0, ['forward']]]
    bare = Written()
    bare.call(1, 1)
    bare.kernel('k', 5, 2, correlation=1)
    bare.write(path)
    [row] = analyze('annotations', path)['rows']
    assert (row['annotation'], row['kernels'], row['stack']) == ('(run)', 1, [])


def test_annotations_in_csv_and_text(analyze, tmp_path):
    """Names have blanks, so semicolons separate the items of a list in csv. No two columns of a table have the same head."""
    trace = Written()
    trace.stage('outer one', 0, 100)
    trace.stage('inner one', 10, 50)
    trace.call(20, 1, dur=1)
    trace.kernel('k', 200, 5, correlation=1)
    path = tmp_path / 'trace.json'
    trace.write(path)
    head, row = csv.reader(io.StringIO(analyze('annotations', path, format='csv').out))
    assert dict(zip(head, row))['stack'] == 'outer one;inner one'
    lines = analyze('annotations', path, format='text').out.splitlines()
    assert re.split(' {2,}', lines[0]) == ['rank', 'annotation', 'kernels', 'total', 'copies', 'copies_us', 'stack']
    assert lines[-1] == 'total: kernels 1, total 5.000 us, copies 0, copies_us 0.000 us'


def test_annotations_nested_deep(analyze, tmp_path):
    """A stack of more than 64 annotations shows the innermost 64."""
    trace = Written()
    for i in range(100):
        trace.stage(f's{i}', i, 1000 - 2 * i)
    trace.call(500, 1)
    trace.kernel('k', 600, 2, correlation=1)
    path = tmp_path / 'trace.json'
    trace.write(path)
    [row] = analyze('annotations', path)['rows']
    assert row['stack'] == ['...', *(f's{i}' for i in range(36, 100))]


# ---- counters ----

COUNTED = 'hta/cupti_profiler/benchmark_result_924719_1679055439_trace.json.gz'
FADD = 'smsp__sass_thread_inst_executed_op_fadd_pred_on.sum'


def test_counters(analyze, shared_traces):
    """Values and operators from the JSON; 77 rows and 86114304 in the sixth are those that HTA's own tests expect."""
    document = document_of(shared_traces / COUNTED)
    ranges = sorted((e for e in document['traceEvents'] if e.get('cat') == 'cuda_profiler_range'), key=lambda e: e['ts'])
    found = kineto.tables(document)
    launched = sorted((c for c in found['api'] if c.name == 'cudaLaunchKernel'), key=lambda c: c.start)
    around = kineto.opened(found['operator'], {(c.thread, c.start) for c in launched})
    rows = analyze('counters', shared_traces / COUNTED)['rows']
    assert len(rows) == len(ranges) == len(launched) == 77 and rows[5]['counters'][FADD] == 86114304
    for number, (row, event, call) in enumerate(zip(rows, ranges, launched)):
        ops = [op.name for op in around[call.thread, call.start]]
        assert (row['range'], row['kernel'], row['duration_us'], row['counters']) == (number, event['name'], event['dur'], event['args'])
        assert (row['top_op'], row['bottom_op'], row['op_stack']) == (ops[0], ops[-1], ops)
        assert row['flops'] == sum(value * (2 if 'fma' in name else 1) for name, value in event['args'].items())
    assert analyze('counters', '--top', '3', shared_traces / COUNTED)['rows'] == rows[:3]
    short = analyze('counters', '--names', 'short', shared_traces / COUNTED)['rows']
    assert max(len(r['kernel']) for r in short) < 120 < max(len(r['kernel']) for r in rows)
    assert len({r['kernel'] for r in short}) == len({r['kernel'] for r in rows})
    assert [{**r, 'kernel': ''} for r in short] == [{**r, 'kernel': ''} for r in rows]


def counting(calls):
    trace = Written(distributedInfo={'rank': 1})
    trace.stage('forward', 0, 100)
    for at in calls:
        trace.operator('aten::mm', at - 1, 5)
        trace.call(at, at)
    for at, args in ((1000, {'flops.sum': 3, 'note': 'no number'}), (2000, {'flops.sum': 1.5})):
        trace.add('cuda_profiler_range', f'k{at}', at, 10, pid=0, tid=0, args=args)
    return trace


def test_counters_by_hand(analyze, tmp_path):
    """A range belongs to the stage of its launch; with another number of launches the operators are unknown."""
    path = tmp_path / 'trace.json'
    counting([10, 200]).write(path)
    answer = analyze('counters', path)
    assert [(r['rank'], r['kernel'], r['counters'], r['flops'], r['top_op']) for r in answer['rows']] == \
        [(1, 'k1000', {'flops.sum': 3}, None, 'aten::mm'), (1, 'k2000', {'flops.sum': 1.5}, None, 'aten::mm')]
    assert answer['totals'] == {'ranges': 2, 'duration_us': 20, 'counters': {'flops.sum': 4.5}, 'flops': None}
    assert [r['kernel'] for r in analyze('counters', '--stage', 'forward', path)['rows']] == ['k1000']
    assert 'k1000' in analyze('counters', path, format='csv').out and 'k1000' in analyze('counters', path, format=None).out
    trace = counting([10, 200])
    trace.events[-2]['args']['nothing.sum'] = 0
    trace.write(path)
    assert analyze('counters', path)['rows'][0]['counters'] == {'flops.sum': 3, 'nothing.sum': 0}
    text = analyze('counters', path, format='text').out
    assert 'flops.sum 3 ' in text and 'nothing' not in text
    counting([10, 20, 200]).write(path)
    assert [(r['kernel'], r['top_op'], r['op_stack']) for r in analyze('counters', path)['rows']] == [('k1000', None, []), ('k2000', None, [])]
    assert '2 ranges with counters, but 3 launches' in analyze('counters', path, format=None).err
    assert analyze('counters', '--rules', 'hta', path, rc=1, format=None).out == ''


def test_no_counters(analyze, tmp_path):
    path = tmp_path / 'trace.json'
    Written().launch('k', 1, 1).write(path)
    for options in ([], ['--rules', 'hta'], ['--stage', 'x']):
        result = analyze('counters', *options, path, rc=1, format=None)
        assert not result.out and result.err.count('\n') == 1 and 'profiler_metrics' in result.err


# ---- an empty answer and its reason ----

@pytest.mark.parametrize('command, reason', [
    (['bandwidth', '--rules', 'hta'], 'the argument `memory bandwidth (GB/s)`'),
    (['launches', '--rules', 'hta'], 'HTA finds no launch that it knows'),
    (['memory'], 'no memory was recorded; torch.profiler records it with profile_memory=True'),
    (['stacks'], 'no operator has a call stack'),
    (['stacks', '--stage', 'x'], 'nothing matches --stage x'),
    (['steps'], '1 trace has no steps')])
def test_one_message_says_why_an_answer_is_empty(analyze, tmp_path, command, reason):
    """The message fits the kind of the trace, and no second one contradicts it."""
    path = tmp_path / 'trace.json'
    trace = Written()
    trace.operator('aten::mm', 0, 50)
    trace.call(10, 1, name='cuLaunchKernelEx', cat='cuda_driver')
    trace.kernel('k', 100, 5, correlation=1)
    trace.kernel('Memcpy HtoD (Pinned -> Device)', 110, 5, cat='gpu_memcpy')
    trace.write(path)
    result = analyze(*command, path, rc=1 if 'x' in command else 0, format=None)
    assert result.err.count('\n') == 1 and reason in result.err


# ---- patterns ----

def sequences(trace, name):
    """{(operator, kernels ...): [count, ns on the device, ns on the host]} of the outermost operators with `name` in theirs"""
    outer, found, answer = defaultdict(list), {}, defaultdict(lambda: [0, 0, 0])
    for op in sorted((o for o in trace.found['annotation'] + trace.found['operator'] if name in kineto.collapsed(o.name)),
                     key=lambda o: (o.start, -o.end)):
        if not outer[op.thread] or op.start >= outer[op.thread][-1].end:
            outer[op.thread].append(op)
    starts = {thread: [op.start for op in ops] for thread, ops in outer.items()}
    for work, call in kineto.launches(trace.found):
        at = bisect_right(starts.get(call.thread, []), call.start) if call else 0
        around = outer[call.thread][at - 1] if at else None
        if around and call.start < around.end:
            found.setdefault(id(around), (around, []))[1].append((call.start, work.start, work))
    for op, works in found.values():
        row = answer[(kineto.collapsed(op.name), *(w.name for *_, w in sorted(works, key=lambda item: item[:2])))]
        row[0] += 1
        row[1] += sum(w.end - w.start for *_, w in works)
        row[2] += op.end - op.start
    return answer


@pytest.mark.parametrize('name', ['aten::', 'conv', 'Optimizer', 'ProfilerStep', 'ccl'])
def test_patterns(analyze, trace, name):
    expected = sequences(trace, name)
    if not expected:
        result = analyze('patterns', '--operator', name, trace.path, format=None, rc=1)
        assert name in result.err and not result.out
        return
    answer = exact(analyze, 'patterns', '--operator', name, trace.path)
    found = {tuple(r['pattern']): [r['count'], ns(r['gpu_us']), ns(r['cpu_us'])] for r in answer['rows']}
    assert found == expected and len(found) == len(answer['rows'])
    assert all(r['kernels'] == len(r['pattern']) - 1 for r in answer['rows'])
    counts = [r['count'] for r in answer['rows']]
    assert counts == sorted(counts, reverse=True) and answer['totals']['count'] == sum(counts)


def test_patterns_by_hand(analyze, tmp_path):
    """Two equal sequences and another one; an operator inside one that matches does not count; kernels go by their launches."""
    trace = Written(distributedInfo={'rank': 2})
    correlation = 0
    for start, kernels in ((0, 'ab'), (100, 'ab'), (200, 'ba'), (300, '')):
        trace.operator('aten::linear', start, 50).operator('aten::linear_inner', start + 1, 40)
        for i, kernel in enumerate(kernels):
            correlation += 1
            trace.call(start + 2 + 5 * i, correlation)
            trace.kernel(kernel, start + 1000 - 20 * i, 3, correlation=correlation, stream=7 + i)
    path = tmp_path / 'trace.json'
    trace.write(path)
    answer = analyze('patterns', '--operator', 'linear', path)
    assert [(r['rank'], r['count'], r['kernels'], r['gpu_us'], r['cpu_us'], r['pattern']) for r in answer['rows']] == \
        [(2, 2, 2, 12, 100, ['aten::linear', 'a', 'b']), (2, 1, 2, 6, 50, ['aten::linear', 'b', 'a'])]
    assert [(r['count'], r['pattern']) for r in analyze('patterns', '--operator', 'linear', '--stream', '7', path)['rows']] == \
        [(2, ['aten::linear', 'a']), (1, ['aten::linear', 'b'])]
    assert 'aten::linear' in analyze('patterns', '--operator', 'linear', path, format='csv').out
    assert analyze('patterns', path, rc=2, format=None).err.startswith('tfanalyze: patterns needs --operator NAME')
    assert 'no operator or stage has `conv`' in analyze('patterns', '--operator', 'conv', path, rc=1, format=None).err


def test_work_without_a_call_belongs_to_the_operator_of_its_external_id(analyze, tmp_path):
    """Even if a child begins at the same moment, or if the operator has no duration. `ops` goes by the id too."""
    trace = Written().operator('outer', 10, 50, external=1).operator('inner', 10, 20, external=2)
    trace.operator('around', 70, 20, external=4).operator('empty', 75, 0, external=3)
    trace.call(72, 1, dur=1).kernel('of_around', 130, 16, correlation=1, external=4)
    for external, (name, dur) in enumerate((('of_outer', 1), ('of_inner', 2), ('of_empty', 4)), 1):
        trace.kernel(name, 100 + external, dur, external=external)
    path = trace.write(tmp_path / 'trace.json')
    expected = {'outer': 1, 'inner': 2, 'empty': 4, 'around': 16}
    assert {r['name']: r['total_us'] for r in analyze('breakdown', '--group-by', 'op', path)['rows']} == expected
    assert {r['name']: r['self_device_us'] for r in analyze('ops', path)['rows'] if r['name'] in expected} == expected
    [row] = analyze('patterns', '--operator', 'around', path)['rows']
    assert row['pattern'] == ['around', 'of_around', 'of_empty']
