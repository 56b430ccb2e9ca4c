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
