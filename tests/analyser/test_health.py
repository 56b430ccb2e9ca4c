"""test_health - what is wrong with a trace of another program is found, left out or said, and never passes as healthy."""

import gzip
import json

import pytest

from kineto import Trace


def ask(analyze, command, *arguments, rc=0):
    """The answer as JSON, and stderr."""
    run = analyze(command, *arguments, '--format', 'json', rc=rc, format=None)
    return json.loads(run.out), run.err


def two_kernels(pid=100):
    return Trace(pid=pid).launch('gemm', 1000, 1).launch('relu', 1100, 2)


@pytest.mark.parametrize('behind', ['{}', '[]', '"more"', '\0', 'x'])
@pytest.mark.parametrize('packed', [False, True])
def test_what_follows_a_trace_is_said(analyze, tmp_path, behind, packed):
    """`cat a b`, and gzip files put together: the first trace is answered, and a line says that it is not all."""
    text, more = two_kernels().text(), two_kernels().text() if behind == '{}' else behind
    path = tmp_path / ('both.json.gz' if packed else 'both.json')
    path.write_bytes(gzip.compress(text.encode()) + gzip.compress(more.encode()) if packed else (text + more).encode())
    answer, err = ask(analyze, 'breakdown', path, rc=3)
    assert sum(row['calls'] for row in answer['rows']) == 2
    assert f'at byte {len(text)}' in err, err
    path.write_bytes(gzip.compress(text.encode() + b' \n') if packed else (text + ' \n').encode())
    assert not ask(analyze, 'breakdown', path)[1]


@pytest.mark.parametrize('line', [False, True])
@pytest.mark.parametrize('broken', ['"args": {,', '"args": {"a": {,', '"pid": 1 2,', '"name": ,'])
def test_a_broken_event_takes_no_neighbour(analyze, tmp_path, broken, line):
    """Every event is answered or counted as lost, and the message names the byte of the first one."""
    events = [f'{{"ph":"X","cat":"cpu_op","name":"op","pid":1,"tid":1,"ts":{i},"dur":1,"args":{{}}}}' for i in range(100)]
    events[50] = f'{{"ph":"X","cat":"cpu_op","ts":50,"dur":1,{broken}'
    text = '{"traceEvents":[' + (',\n' if line else ', ').join(events).replace(',,', ',') + ']}'
    path = tmp_path / 'trace.json'
    path.write_text(text)
    answer, err = ask(analyze, 'info', path, rc=3)
    row = answer['rows'][0]
    assert (sum(row['events'].values()), sum(row['lost'].values())) == (99, 1)
    assert f'the first at byte {text.index(events[50])}' in err, err


def lines_of(err):
    return [line.split(': ', 2)[2] for line in err.splitlines()]


def doubts(analyze, path, rc=None):
    rows = ask(analyze, 'info', path, rc=rc)[0]['rows']
    return {d['doubt']: (d['count'], d['of'], d['worst_us']) for row in rows for d in row['health']}


@pytest.mark.parametrize('base', [None, 1_711_964_646_000_000_000])
@pytest.mark.parametrize('bad', [{'ts': 0, 'dur': 0}, {'ts': -9 * 10 ** 14}, {'dur': 10 ** 12}])
@pytest.mark.parametrize('cat', ['kernel', 'gpu_memcpy'])
def test_impossible_times_are_left_out_and_counted(analyze, tmp_path, base, bad, cat):
    """A work at time zero, years before its trace or years long is no part of any answer, export or dump."""
    start = 10 ** 15
    t = Trace(**({'baseTimeNanoseconds': base} if base else {}))
    for i in range(6):
        t.operator('aten::mm', start + 100 * i, 50, external=i + 1).launch('gemm', start + 100 * i + 10, i + 1, dur=40, delay=20)
    t.kernel('lost', start + 300, 40, 7, stream=9, cat=cat)
    t.events[-1].update(bad)
    path = t.write(tmp_path / 'trace.json')
    answer, err = ask(analyze, 'timeline', path, rc=3)
    assert answer['rows'][0]['total_us'] == 540 and answer['rows'][0]['busy_us'] == 240
    assert '1 events have impossible times' in err
    info = ask(analyze, 'info', path, rc=3)[0]['rows'][0]
    assert (info['lost'], info['duration_us']) == ({'impossible_time': 1}, 570)
    assert 'lost' not in analyze('export', 'chrome', path, format=None, rc=3).out


def test_a_trace_that_begins_at_zero_is_whole(analyze, tmp_path):
    path = Trace().operator('aten::mm', 0, 50).launch('gemm', 5, 1).launch('gemm', 70, 2).write(tmp_path / 'trace.json')
    assert ask(analyze, 'timeline', path) == (ask(analyze, 'timeline', path)[0], '')
    assert ask(analyze, 'info', path)[0]['rows'][0]['lost'] == {}


@pytest.mark.parametrize('launched, kept, said', [(40, 15, True), (40, 39, False), (100, 90, True)])
def test_launches_without_kernels(analyze, tmp_path, launched, kept, said):
    t = Trace()
    for i in range(launched):
        t.call(100 * i, i + 1)
        if i < kept:
            t.kernel('gemm', 100 * i + 10, 20, i + 1)
    path = t.write(tmp_path / 'trace.json')
    found = doubts(analyze, path)
    assert found == {'launches_without_work': (launched - kept, launched, None)}
    err = ask(analyze, 'breakdown', path, rc=3 if said else 0)[1]
    assert (f'{launched - kept} of {launched} launches of kernels have no kernel' in err) == said
    out = tmp_path / 'report'
    summary = analyze('report', path, '--output', out, format=None, rc=3 if said else 0).out
    assert ('nothing was lost' in summary) == (not said)


def test_works_before_their_launch(analyze, tmp_path):
    t = Trace()
    for i in range(10):
        t.launch('gemm', 1000 + 100 * i, i + 1, delay=-30 if i % 2 else 20)
    path = t.write(tmp_path / 'trace.json')
    assert doubts(analyze, path) == {'before_launch': (5, 10, 30)}
    assert lines_of(ask(analyze, 'launches', path)[1])[0].startswith(
        '5 of 10 works of the device begin before their launch, by up to 30.000 us')
    assert not ask(analyze, 'info', path)[1]


@pytest.mark.torch
def test_torch_judges_causality_alike(analyze, tmp_path):
    """torch's own validator finds the same works before their launches."""
    validator = pytest.importorskip('torch.profiler._trace_validator')
    for delay in (-30, 20):
        t = Trace()
        for i in range(4):
            t.add('cuda_runtime', 'cudaLaunchKernel', 1000 + 100 * i, 2, args={'correlation': i + 1, 'External id': i + 1})
            t.kernel('gemm', 1000 + 100 * i + delay, 10, i + 1, i + 1)
        path = t.write(tmp_path / f'{delay}.json')
        found = {v.rule_name for v in validator.validate_trace(str(path))[1]}
        assert ('_check_gpu_kernel_causality' in found) == ('before_launch' in doubts(analyze, path))


def test_other_phases_are_lost(analyze, tmp_path):
    """Pairs of B and E are not read: an answer without them is partial, and no budget passes on it."""
    t = two_kernels()
    for ts, ph in ((1200, 'B'), (1210, 'E'), (1220, 'b'), (1230, 'e')):
        t.add('cuda_runtime', 'cudaLaunchKernel', ts, ph=ph)
    path = t.write(tmp_path / 'trace.json')
    assert ask(analyze, 'info', path, rc=3)[0]['rows'][0]['lost'] == {'other_phase': 4}
    assert '4 of 8 events have another phase than X' in ask(analyze, 'launches', path, rc=3)[1]
    budget = tmp_path / 'budget.json'
    analyze('launches', two_kernels().write(tmp_path / 'whole.json'), '--write-budget', budget, format=None)
    assert analyze('launches', path, '--budget', budget, format=None, rc=4)
