"""test_no_mixing - inputs that must not mix in one answer: unread formats, one process twice, records after the cap."""

import gzip
import shutil

import pytest

import kineto
from conftest import without_start
from small_traces import simple

CAP = '''
import os, threading
import torch
told = os.open('told', os.O_RDONLY)
with torch.profiler.record_function('open'):
    a = torch.ones(10)
    while b'TFI_MAX_MB' not in os.pread(told, 4096, 0):
        for i in range(1000):
            a.add(i)
def later(i):
    with torch.profiler.record_function(f'later {i}'):
        pass
for i in range(40):
    thread = threading.Thread(target=later, args=(i,))
    thread.start()
    thread.join()
'''


# ---- dftracer ----

@pytest.mark.parametrize('path', ['test.pfw', 'test-trace.pfw.gz', 'cm1', '.'])
@pytest.mark.parametrize('command', ['breakdown', 'timeline', 'report', 'stages,api'])
def test_questions_on_devices_refuse_traces_of_dftracer(analyze, shared_traces, tmp_path, path, command):
    """Questions on devices and operators refuse dftracer traces, and directories of them, with one message."""
    more = ['--output', tmp_path / 'out'] if command == 'report' else []
    result = analyze(command, shared_traces / 'dftracer' / path, *more, format='text', rc=1)
    assert result.out == '' and len(result.err.splitlines()) == 1
    assert 'a dftracer trace has stages and file I/O' in result.err and 'info, dump, stages' in result.err


@pytest.mark.parametrize('name', ['io.json', 'io.json.gz', 'io.log', 'io'])
@pytest.mark.parametrize('of', ['test.pfw', 'new', 'unfinished', 'one'])
def test_traces_of_dftracer_are_known_by_their_content(analyze, shared_traces, tmp_path, of, name):
    """dftracer traces are recognised under any name: packed, old, without brackets, truncated, of one event."""
    lines = (shared_traces / 'dftracer' / 'test.pfw').read_bytes().splitlines()
    new = [b'{"type":4,"ph":4,"id":0,"name":"HH","cat":"dftracer","pid":7,"tid":7,"args":{"name":"n"}}',
           b'{"type":3,"ph":1,"id":1,"name":"read","cat":"POSIX","pid":7,"tid":7,"ts":17,"dur":1}']
    content, events = {'test.pfw': (b'\n'.join(lines), 1012), 'new': (b'\n'.join(new), 2), 'one': (new[0], 1),
                       'unfinished': (b'\n'.join(lines[:3])[:-9], 1)}[of]
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith('.gz') else content)
    rc = 3 if of == 'unfinished' else 0
    row, = analyze('info', path, rc=rc)['rows']
    assert (row['kind'], sum(row['events'].values())) == ('dftracer', events)
    if '.json' in name:
        kineto.Trace().stage('s', 0, 10).write(tmp_path / 'one.json')
        assert sorted(row['kind'] for row in analyze('info', tmp_path, rc=rc)['rows']) == ['dftracer', 'kineto']
        assert 'not traces' not in analyze('info', tmp_path, format='text', rc=rc).err


@pytest.mark.parametrize('text', ['{"traceEvents":[{"ph":"X","name":"a","cat":"dftracer","pid":1,"tid":1,"ts":1,"dur":2}]}',
                                  '[{"ph":"X","name":"a","cat":"user_annotation","pid":1,"tid":1,"ts":1,"dur":2},\n'
                                  '{"ph":"X","name":"a","cat":"user_annotation","pid":1,"tid":1,"ts":1,"dur":2}]'])
def test_other_traces_are_no_traces_of_dftracer(analyze, tmp_path, text):
    (tmp_path / 'a.json').write_text(text)
    assert 'dftracer' not in analyze('stages', tmp_path / 'a.json', format='text').err


def test_traces_of_dftracer_beside_others_are_named(analyze, shared_traces, tmp_path):
    """A question on devices takes the other traces of a directory; a dftracer trace that was named is reported."""
    kineto.Trace().stage('s', 0, 10).kernel('k', 0, 5).write(tmp_path / 'one.json')
    shutil.copy(shared_traces / 'dftracer' / 'test.pfw', tmp_path)
    result = analyze('breakdown', tmp_path, format='text')
    assert 'k  ' in result.out and 'test.pfw: is left out: a dftracer trace has' in result.err
    result = analyze('breakdown', tmp_path / 'one.json', tmp_path / 'test.pfw', format='text', rc=3)
    assert 'k  ' in result.out and 'test.pfw: is left out: a dftracer trace has' in result.err


# ---- one process, two profilers ----

@pytest.fixture
def both(tmp_path):
    """A .tfr and a torch trace of the same process, number 100, rank 0."""
    simple(tmp_path / 'rank0.a.100.tfr', rank=0, pid=100, host='here')
    kineto.Trace(pid=100).stage('theirs', 0, 10).write(tmp_path / 'torch.json')
    return tmp_path / 'rank0.a.100.tfr', tmp_path / 'torch.json'


@pytest.mark.parametrize('order', [1, -1])
def test_the_tfr_of_a_process_goes_before_its_pytorch_trace(analyze, both, order):
    result = analyze('stages', *both[::order], format='text', rc=3)
    assert 'stage 0' in result.out and 'theirs' not in result.out
    line, = result.err.splitlines()
    assert str(both[1]) in line and str(both[0]) in line and 'process 100' in line
    assert analyze('stages', *both, rc=3)['rows'] == analyze('stages', both[0])['rows']


@pytest.mark.parametrize('other', [dict(pid=101), dict(pid=100, distributedInfo={'rank': 1, 'world_size': 2}),
                                   dict(pid=100, host_name='elsewhere'), dict(pid=100, baseTimeNanoseconds=1)],
                         ids=['pid', 'rank', 'host', 'time'])
def test_traces_of_other_processes_stand_side_by_side(analyze, both, other):
    kineto.Trace(**other).stage('theirs', 0, 10).write(both[1])
    assert {r['stage'] for r in analyze('stages', *both)['rows']} == {'stage 0', 'stage 1', 'stage 2', 'theirs'}


# ---- the cap ----

def test_nothing_follows_the_cap(run, python, analyze, tmp_path):
    """A stage that is open when the trace reaches TFI_MAX_MB ends there, even if later small chunks still fit."""
    (tmp_path / 'cap.py').write_text(CAP)
    result = run(['sh', '-c', 'exec "$0" cap.py 2>told', python], env={'TFI_MAX_MB': '1'})
    assert result.rc == 0 and 'has reached TFI_MAX_MB' in (tmp_path / 'told').read_text()
    answer = analyze('stages', result.dir, rc=3)
    row, = without_start(answer['rows'])
    assert (row['stage'], row['calls'], answer['totals']['unfinished']) == ('open', 1, 1)
    records = analyze('dump', result.dir, rc=3)['rows']
    times = [r['time_us'] for r in records if r['kind'] in ('op', 'memory')]
    begin, = (r['time_us'] for r in records if r['kind'] == 'range_begin')
    assert row['host_us'] <= max(times) - begin + 1000 and row['host_us'] > 0


def test_traces_of_one_rank(analyze, tmp_path):
    """A second PyTorch trace of a rank is left out if it overlaps an earlier one that stays; each gets one note."""
    times = {'a': 100, 'b': 300, 'c': 105, 'd': 310, 'e': 200, 'f': 190}
    paths = []
    for name, at in times.items():
        trace = kineto.Trace(distributedInfo={'rank': 3, 'world_size': 4}).stage(name, at, 20)
        paths.append(tmp_path / f'{name}.json')
        trace.write(paths[-1])
    result = analyze('stages', *paths, rc=3, format=None)
    assert {line.split()[0] for line in result.out.splitlines()} & set(times) == {'a', 'b', 'e'}
    for name, other in ('ca', 'db', 'fe'):
        assert f'{name}.json: is left out: {tmp_path}/{other}.json is a trace of the same rank 3' in result.err
    for name in 'be':
        assert f'{name}.json: is a second trace of rank 3, from another time than {tmp_path}/a.json' in result.err
    assert result.err.count('second trace of rank') == 2


def test_many_traces_of_one_rank(analyze, tmp_path):
    """The work grows with the number of files, not with its square. The notes are one line."""
    paths = [tmp_path / f'{i}.json' for i in range(300)]
    for i, path in enumerate(paths):
        kineto.Trace(distributedInfo={'rank': 0, 'world_size': 1}).stage('s', i * 100, 50).write(path)
    result = analyze('stages', *paths, format=None)
    assert [line.split()[:3] for line in result.out.splitlines() if line.startswith('s ')] == [['s', '0', '300']]
    assert result.err.count('is a second trace') == 1 and result.err.rstrip().endswith('the same holds for 298 other inputs')
