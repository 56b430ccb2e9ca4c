"""test_hostile_memory - small files that unpack to gigabytes: memory stays bounded, and good inputs are answered.

A gzip file may have many members, so repeating one packed part makes a file of any size quickly.
"""

import gzip
import json
import struct
import subprocess

import pytest

import growth_shapes
import kineto
import tfr
from conftest import clean_environment
from test_signature_files import Run
from tfr import rec

GOOD = 'a good stage'
LIMITED = 'ulimit -d %d; exec "$0" "$@"'  # KiB of data
# /usr/bin/time is not everywhere. The measuring process has only one child, so RUSAGE_CHILDREN has that child's peak.
PEAK = 'import resource, subprocess, sys; r = subprocess.run(sys.argv[1:]).returncode; print("PEAK", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr); sys.exit(r)'


@pytest.fixture
def good(tmp_path):
    return kineto.Trace(rank=1).stage(GOOD, 0, 9).write(tmp_path / 'good.json')


def packed(path, head, part, times, tail):
    path.write_bytes(gzip.compress(head, 1) + gzip.compress(part, 1) * times + gzip.compress(tail, 1))
    return path


def ask(python, tfanalyze, *arguments, data=None):
    """stdout, stderr, status and the peak of resident memory in MiB."""
    command = ['sh', '-c', LIMITED % data, str(tfanalyze)] if data else [str(tfanalyze)]
    done = subprocess.run([python, '-c', PEAK, *command, *map(str, arguments)], env=clean_environment(), capture_output=True, text=True, timeout=240)
    return done.stdout, done.stderr, done.returncode, int(done.stderr.rpartition('PEAK ')[2]) / 1024


WORDS = {'a name': (b'{"traceEvents": [{"ph": "X", "cat": "user_annotation", "name": "', b'x', b'", "ts": 1, "dur": 1, "pid": 1, "tid": 1},\n'),
         'an argument': (b'{"traceEvents": [{"ph": "X", "cat": "user_annotation", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1, "args": {"x": "', b'x', b'"}},\n'),
         'a member': (b'{"other": "', b'x', b'", "traceEvents": [\n'),
         'a list': (b'{"traceEvents": [{"ph": "X", "args": {"x": [', b'1,', b'1]}},\n')}


@pytest.mark.parametrize('kind', WORDS)
def test_a_token_of_gigabytes(python, tfanalyze, tmp_path, kind):
    """A token of 320 MiB is left out and counted; the events behind it are read, and memory stays bounded."""
    head, unit, tail = WORDS[kind]
    part = unit * ((16 << 20) // len(unit))
    after = b'{"ph": "X", "cat": "user_annotation", "name": "behind", "ts": 1, "dur": 5, "pid": 1, "tid": 1}]}'
    path = packed(tmp_path / 'bomb.json.gz', head, part, 20, tail + after)
    out, err, status, peak = ask(python, tfanalyze, 'stages', path)
    assert 'behind' in out and peak < 400, (status, err, peak)
    assert (status, 'too large' in err) == (0, True) if kind == 'a member' else status == 3 and '1 of 2 events are not valid' in err


def test_events_beyond_all_memory(python, tfanalyze, tmp_path, good):
    """Events that need more memory than there is: that file is left out with a message, the other is answered."""
    events = b''.join(b'{"ph":"X","cat":"user_annotation","name":"a","ts":%d,"dur":1,"pid":1,"tid":1},' % i for i in range(20000))
    path = packed(tmp_path / 'bomb.json.gz', b'{"traceEvents": [', events, 100, b'{}]}')
    for order in ([path, good], [good, path]):
        for jobs in ('1', '2'):
            out, err, status, _ = ask(python, tfanalyze, 'stages', *order, '-j', jobs, data=100000)
            assert status == 3 and GOOD in out and f'{path}: is left out: reading it needs more memory than is available' in err, (order, jobs, err)
    out, err, status, _ = ask(python, tfanalyze, 'stages', path, data=100000)
    assert status == 1 and out == '' and 'needs more memory than is available' in err


@pytest.mark.parametrize('words', [pytest.param(['stages'], id='one thread', marks=pytest.mark.soak),
                                   pytest.param(['ops', '-j', '4'], id='inflated ahead')])
def test_chunks_beyond_all_memory(python, tfanalyze, tmp_path, good, words):
    """Chunks of a .tfr that need more memory than there is: that file is left out, the other is answered."""
    run = Run(tmp_path).rank()
    rows = tfr.pack_columns([rec('range_end', name=1, time=i, duration=1, id=i, flags=3, thread=1) for i in range(20000)])
    for _ in range(60):
        run.w.block(tfr.CHUNK, rows, flags=tfr.DEFLATED, serial=run.w.next_serial(), thread=1, tid=7, records=20000)
    run.save()
    out, err, status, _ = ask(python, tfanalyze, *words, run.path, good, data=60000)
    assert status == 3 and f'{run.path}: is left out: reading it needs more memory' in err, err
    assert GOOD in out or words[0] == 'ops'


def repeated(path, kind, rows, chunks):
    """A .tfr of one chunk many times, whose columns say in a few bytes that all its rows are equal."""
    w = tfr.Writer(rank=0)
    values = {'name': w.string(GOOD), 'time': 9000, 'start': 9000, 'duration': 5000, 'thread': 1, 'flags': tfr.NESTED | tfr.STAGE}
    w.chunk(tfr.clocks(0, 0, 10 ** 18) + tfr.clocks(10 ** 9, 10 ** 9, 10 ** 18 + 10 ** 9))
    columns = [struct.pack('<HHI', i, tfr.RUNS, len(data)) + data for i, field in enumerate(tfr.KINDS[kind].fields) if field.codec != 'LIST'
               for data in [tfr.varint(tfr.zigzag(values.get(field.name, 1))) + tfr.varint(rows)]]
    order, body = tfr.varint(0) + tfr.varint(rows), b''.join(columns)
    payload = struct.pack('<II', 1, len(order)) + order + struct.pack('<HHII', tfr.KINDS[kind].number, len(columns), rows, len(body)) + body
    w.flush_strings()
    for _ in range(chunks):
        w.block(tfr.CHUNK, payload, flags=0, serial=w.next_serial(), thread=1, tid=7, records=rows)
    w.footer()
    return w.save(path)


def test_more_records_than_a_file_of_its_size_can_hold(python, tfanalyze, tmp_path):
    """The first million are read, the others are counted; a file just below the limit is read whole."""
    few, many = repeated(tmp_path / 'few.tfr', 'range_end', 50000, 20), repeated(tmp_path / 'many.tfr', 'range_end', 50000, 40)
    out, err, status, _ = ask(python, tfanalyze, 'stages', many, '--format', 'json')
    calls = json.loads(out)['rows'][0]['calls']
    assert status == 3 and f'{many}: {2000000 - calls} records are more than a file of its size can hold; they were left out' in err, err
    assert 1000000 <= calls <= 1000000 + 16 * many.stat().st_size
    out, err, status, _ = ask(python, tfanalyze, 'stages', few, '--format', 'json')
    assert status == 0 and json.loads(out)['rows'][0]['calls'] == 1000000, err


@pytest.mark.soak
@pytest.mark.parametrize('kind', ['range_end', 'op', 'call', 'memory'])
def test_a_crafted_file_of_64_mb(python, tfanalyze, tmp_path, kind):
    path = repeated(tmp_path / 'large.tfr', kind, 20000, 300000)
    for command in ('info', 'stages', 'ops', 'memory', 'budget'):
        _, err, status, peak = ask(python, tfanalyze, command, path)
        assert status in (1, 3) and peak < 4096 and ('more than a file of its size can hold' in err or 'more memory' in err), (command, err)


def test_inputs_with_enough_memory_are_answered(python, tfanalyze, tmp_path, good):
    """The memory limit alone leaves nothing out: both inputs are answered."""
    other = kineto.Trace(rank=2).stage('another', 0, 9).write(tmp_path / 'other.json')
    out, err, status, _ = ask(python, tfanalyze, 'stages', good, f'rank=2:{other}', '--format', 'json', data=100000)
    assert status == 0 and {row['stage'] for row in json.loads(out)['rows']} == {GOOD, 'another'}, err


def short_operators(directory, n):
    """N operators one after the other in one stage of a .tfr trace, without work of a device."""
    recording = growth_shapes.Recording(directory, pid=n, rows=2000)  # the few chunks that are read ahead fit many times
    recording.range('stage', 100, 1000 + 10 * n, 1)
    for i in range(n):
        recording.operator('aten::add', 1000 + 10 * i, 1005 + 10 * i, modules=recording.w.string(f'top.m{i % 7}.'))
    return recording.save()


@pytest.mark.slow
def test_operators_that_launched_nothing_are_not_held(python, tfanalyze, tmp_path):
    """Of 180,000 operators more, `critical-path` holds 40 bytes each; commands that sweep or need only those around launches none."""
    traces = [short_operators(tmp_path, n) for n in (60000, 240000)]
    def more(*command):
        few, many = (ask(python, tfanalyze, *command, trace)[3] for trace in traces)
        return many - few
    assert more('critical-path') > 6
    for command in (['ops'], ['ops', '--stage', 'stage', '--group-by', 'name,shapes,stack=3'], ['ops', '--group-by', 'name,modules'],
                    ['stacks'], ['launches'], ['diff', '--by', 'op', traces[0]], ['annotations'], ['patterns'], ['stages'], ['breakdown'], ['timeline', '--stage', 'stage'], ['idle']):
        assert more(*command) < 3, command


def short_blocks(directory, n):
    """N blocks of torch's allocator, each freed at once, in one stage of a .tfr trace; ten stay in use."""
    recording = growth_shapes.Recording(directory, pid=n, rows=2000)  # the few chunks that are read ahead fit many times
    recording.range('stage', 100, 1000 + 10 * n, 1)
    allocator = recording.w.string('c10')
    for i in range(n):
        for k, size in enumerate((64, -64) if i % (n // 10) else (64,)):
            recording.add(rec('memory', allocator=allocator, time=1000 + 10 * i + 5 * k, address=4096 * (i + 1), bytes=size, allocated=64,
                              reserved=0, device=-1))
    return recording.save()


@pytest.mark.slow
def test_blocks_of_a_long_run_are_not_held(python, tfanalyze, tmp_path):
    """No layout of `memory` holds the blocks of a long run of a CPU: 160,000 more of them take 150 bytes each if held. No
    other question reads them."""
    traces = [short_blocks(tmp_path, n) for n in (30000, 110000)]
    layouts = [['memory', '--layout', layout] for layout in ('timeline', 'raw', 'peaks', 'leaks', 'oom', 'html')]
    for command in [*layouts, ['ops', '--group-by', 'name,modules'], ['stages'], ['breakdown']]:
        for words in ([], ['--stage', 'stage']):
            few, many = (ask(python, tfanalyze, *command, '--output', tmp_path / 'answer', *words, trace)[3] for trace in traces)
            assert many - few < 8, (command, words)
