"""test_flight - TFI_MODE=flight: a trace of constant size with all that happened last, the seconds before slow steps and sums of
the whole run, also of a process that was killed."""

import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
import time

import pytest

import scripted
import tfr
from conftest import COMMAND_TIMEOUT, SOAK_SEED, clean_environment, short_form
from scripted import calls, drops, only

FLIGHT = {'TFI_MODE': 'flight', 'TFI_FLIGHT_MB': '1'}


def numbers(trace, since=0):
    """{thread: the numbers of its calls that ended after that moment, sorted}"""
    out = {}
    for c in calls(trace):
        if c.name == 'dummy_many' and c.time + c.duration > since:
            out.setdefault(c.args[0], []).append(c.args[1])
    return {thread: sorted(found) for thread, found in out.items()}


def check_last(trace, counts):
    """The trace has every call since the moment that it names, each once; what is missing was counted: a thread that waits
    long for room, on a loaded machine, drops its records. `counts`: how many calls each thread made, and the most that
    it may have made. Returns how many are missing."""
    missing = 0
    for thread, found in numbers(trace, int(trace.info.get('flight.since', 0))).items():
        least, most = counts[thread]
        assert found[-1] + 1 <= most and len(set(found)) == len(found)
        missing += max(least, found[-1] + 1) - found[0] - len(found)
    lost = lost_by_ring(trace)
    assert missing <= lost
    assert lost or set(numbers(trace)) == set(counts)
    return missing


def lost_by_ring(trace):
    cause, _ = tfr.DROPS['ring']
    return max(drops(trace).get('ring', 0), trace.live.drops[cause] if trace.live else 0)


def left_out(trace):
    return int(trace.info.get('flight.chunks', 0))


@pytest.mark.parametrize('threads, count', [(1, 60000), (4, 20000)])
def test_the_last_calls_of_a_whole_run(run, victim, analyze, tmp_path, threads, count):
    result = run([victim('flight'), tmp_path / 'counts', threads, count, 1000], FLIGHT, preload='test')
    assert (result.rc, result.err) == (0, '')
    trace = only(scripted.traces(result.dir))
    check_last(trace, dict.fromkeys(range(threads), (count, count)))
    assert left_out(trace) > 0 and trace.path.stat().st_size <= 17 << 20 and trace.complete
    assert sorted(p.suffix for p in result.dir.iterdir() if p.name != '.said') == ['.json', '.tfr']
    assert int(trace.footer['records']) == int(trace.info['flight.records']) + len(trace.records)
    names = {r.values['serial'] for r in trace.records if r.kind == 'thread'}
    assert {r.thread for r in trace.records if r.kind == 'call'} <= names
    answer = analyze('info', result.dir, rc=None)
    row = only(answer['rows'])
    assert (row['complete'], row['lost'].get('ring', 0), row['ended']) == (False, lost_by_ring(trace), 'exit')
    assert row['flight']['left_out'] == int(trace.info['flight.records'])
    assert 0 < row['flight']['kept_us'] <= row['duration_us']
    assert row['events']['call'] == len(calls(trace)) and row['own_cost_us'] is None
    judged = [r['what'] for r in analyze('advise', result.dir, rc=None)['totals']['not_judged']]
    assert 'all before the last seconds' in judged and (lost_by_ring(trace) or 'the whole run' not in judged)


def test_the_seconds_that_are_asked_for(run, victim, analyze, tmp_path):
    """A run that fits has all records, and says so."""
    result = run([victim('flight'), tmp_path / 'counts', 2, 5000, 0], {**FLIGHT, 'TFI_FLIGHT_MB': '64'}, preload='test')
    trace = only(scripted.traces(result.dir))
    assert numbers(trace) == dict.fromkeys((0, 1), list(range(5000)))
    row = only(analyze('info', result.dir)['rows'])
    assert row['complete'] and row['flight'] is None


AGGREGATES = {1: 'stage', 2: 'kernel', 3: 'collective', 4: 'line'}
COUNT_BITS = 38


def newest(trace, kind):
    """The rows of the last moment at which what is known of the whole run was written."""
    rows = [r.values for r in trace.records if r.kind == kind]
    return [row for row in rows if row['time'] == max(r['time'] for r in rows)]


def sums(trace):
    """{(what, name): the row} of the whole run; the name None has what found no room."""
    return {(AGGREGATES[row['what']], scripted.text(trace, row['name'])): row for row in newest(trace, 'aggregate')}


def middle(bucket):
    if bucket < 128:
        return bucket
    shift = (bucket >> 6) - 1
    return (64 + (bucket & 63) << shift) + (1 << shift >> 1)


def check_sketch(row, values):
    """The row is the sum of these values, and its buckets have each of them."""
    assert (row['count'], row['sum'], row['least'], row['most']) == (len(values), sum(values), min(values), max(values))
    buckets = [(b >> COUNT_BITS, b & (1 << COUNT_BITS) - 1) for b in row['buckets']]
    assert buckets == sorted(buckets) and row['unplaced'] == 0
    found = [middle(number) for number, count in buckets for _ in range(count)]
    assert all(abs(a - b) <= b / 128 for a, b in zip(found, sorted(values), strict=True))


def ends(trace, name):
    return [r.values for r in trace.records if r.kind == 'range_end' and scripted.text(trace, r.values['name']) == name]


def test_sums_of_the_whole_run(run, victim, analyze, tmp_path):
    """Of a run whose records are all there they are the sums of the records; of another one those of timing.json."""
    whole = run([victim('flight'), tmp_path / 'counts', 2, 5000, 0], {**FLIGHT, 'TFI_FLIGHT_MB': '64'}, preload='test')
    trace = only(scripted.traces(whole.dir))
    assert set(sums(trace)) == {('stage', 'step')}
    check_sketch(sums(trace)['stage', 'step'], [r['duration'] for r in ends(trace, 'step')])
    cut = run([victim('flight'), tmp_path / 'counts', 1, 60000, 1000], {**FLIGHT, 'TFI_OUTPUT_DIR': tmp_path / 'cut'}, preload='test')
    stage = json.loads(next(cut.dir.glob('*.timing.json')).read_text())['stages']['step']
    row = only(analyze('stages', cut.dir, rc=None)['rows'])
    assert row['calls'] == stage['calls'] > len(ends(only(scripted.traces(cut.dir)), 'step'))
    assert row['wall_us'] == pytest.approx(stage['wall_ms'] * 1000, abs=1)
    assert row['max_us'] == pytest.approx(stage['max_ms'] * 1000, abs=1)
    assert 0 < row['min_us'] <= row['median_us'] <= row['p95_us'] <= row['max_us']
    assert {row[key] for key in ('host_us', 'self_us', 'done_us', 'cpu_us', 'device_us', 'pct', 'parent')} == {None}
    last = only(analyze('stages', cut.dir, '--from', '0', rc=None)['rows'])
    assert 0 < last['calls'] < row['calls'] and last['host_us'] is not None


def test_a_slow_step_is_kept_with_what_was_before(run, victim, analyze, tmp_path):
    """A step that sleeps for 3 s is far slower than any that a loaded machine makes slow. Its records are in the trace long
    after it has left the last seconds."""
    result = run([victim('flight'), tmp_path / 'counts', 1, 100000, 300, 30000, 3000], {**FLIGHT, 'TFI_FLIGHT_MB': '4'}, preload='test')
    trace = only(scripted.traces(result.dir))
    kept = max((row for row in newest(trace, 'kept') if row['cause'] == 1), key=lambda row: row['end'] - row['start'])
    step = max(ends(trace, 'step'), key=lambda r: r['duration'])
    assert (kept['start'], kept['end'], scripted.text(trace, kept['name'])) == (step['time'] - step['duration'], step['time'], 'step')
    assert kept['usual'] * 10 < kept['end'] - kept['start'] and kept['flags'] == 0
    assert kept['end'] < int(trace.info['flight.since'])
    found = {c.args[1] for c in calls(trace) if c.name == 'dummy_many'}
    assert set(range(29500, 30101)) <= found or lost_by_ring(trace)
    since = [c.args[1] for c in calls(trace) if c.name == 'dummy_many' and kept['from'] <= c.time + c.duration <= kept['end']]
    assert since and max(since) - min(since) + 1 - len(since) <= lost_by_ring(trace)
    assert trace.path.stat().st_size <= 4 << 20
    flight = only(analyze('info', result.dir, rc=None)['rows'])['flight']
    shown = max(flight['moments'], key=lambda m: m['took_us'])
    assert (shown['cause'], shown['name'], shown['whole']) == ('slow', 'step', True)
    assert shown['took_us'] >= 3e6 > shown['usual_us'] and shown['end_us'] < 0
    assert len([m for m in flight['moments'] if m['cause'] == 'slow']) <= 5
    window = [f'{shown["end_us"] / 1e6 - 3.1:.6f}', f'{shown["end_us"] / 1e6 + 0.001:.6f}']
    row = only(analyze('stages', result.dir, '--from', window[0], '--to', window[1], rc=None)['rows'])
    assert row['max_us'] >= 3e6 and row['max_us'] == pytest.approx(shown['took_us'], abs=1)


def counts_of(path, threads):
    data = path.read_bytes() if path.exists() else b''
    return struct.unpack_from(f'<{threads}Q', data) if len(data) >= 8 * threads else (0,) * threads


@pytest.fixture
def killed(victim, testlib, tmp_path):
    """killed(threads, calls) -> the trace of a process that was killed after so many calls, and how many it made."""
    def killed(threads, after):
        counts = tmp_path / 'counts'
        env = {**clean_environment(), **FLIGHT, 'LD_PRELOAD': str(testlib), 'TFI_OUTPUT_DIR': str(tmp_path / 'run')}
        with subprocess.Popen([victim('flight'), counts, str(threads), '0', '100'], env=env) as process:
            try:
                end = time.monotonic() + COMMAND_TIMEOUT
                while min(counts_of(counts, threads)) < after and process.poll() is None and time.monotonic() < end:
                    time.sleep(0.001)
            finally:
                process.kill()
            assert process.wait() == -signal.SIGKILL
        made = counts_of(counts, threads)
        assert min(made) >= after
        return only(scripted.traces(tmp_path / 'run')), {t: (n, n + 1) for t, n in enumerate(made)}
    return killed


def test_a_signal_keeps_what_was_before(victim, testlib, analyze, tmp_path):
    """With TFI_TRIGGER=signal:10 recording is on, and the seconds before the signal stay while the ring goes on."""
    counts, run = tmp_path / 'counts', tmp_path / 'run'
    env = {**clean_environment(), **FLIGHT, 'TFI_FLIGHT_MB': '4', 'TFI_TRIGGER': 'signal:10', 'LD_PRELOAD': str(testlib), 'TFI_OUTPUT_DIR': str(run)}

    def wait(calls):
        end = time.monotonic() + COMMAND_TIMEOUT
        while counts_of(counts, 1)[0] < calls and time.monotonic() < end:
            assert process.poll() is None
            time.sleep(0.001)
    with subprocess.Popen([victim('flight'), counts, '1', '0', '300'], env=env) as process:
        try:
            wait(20000)
            before = counts_of(counts, 1)[0]
            process.send_signal(signal.SIGUSR1)
            wait(150000)
        finally:
            process.kill()
    trace = only(scripted.traces(run))
    kept = only([row for row in newest(trace, 'kept') if row['cause'] == 3])
    assert kept['end'] < int(trace.info['flight.since']) and (kept['name'], kept['start']) == (0, kept['end'])
    found = {c.args[1] for c in calls(trace) if c.name == 'dummy_many' and c.time <= kept['end']}
    if not kept['flags'] and not lost_by_ring(trace):
        assert max(found) >= before - 1 and set(range(before - 300, before - 1)) <= found
    moment = only([m for m in only(analyze('info', run, rc=None)['rows'])['flight']['moments'] if m['cause'] == 'trigger'])
    assert (moment['took_us'], moment['usual_us'], moment['name'], moment['whole']) == (0, None, None, not kept['flags'])


MOMENTS = random.Random(SOAK_SEED)
KILLS = [(1 + n % 3, MOMENTS.randrange(1, 60000)) for n in range(200)]


@short_form(10, 'threads, after', KILLS)
def test_killed_at_any_moment(killed, analyze, tmp_path, threads, after):
    trace, counts = killed(threads, after)
    check_last(trace, counts)
    files = list((tmp_path / 'run').iterdir())
    assert sum(p.stat().st_size for p in files if not p.name.endswith('.live')) <= 1 << 20
    assert all(re.search(r'\.tfr(\.live|\.new1)?$|^\.said$', p.name) for p in files), files
    row = only(analyze('info', tmp_path / 'run', rc=None)['rows'])
    assert (row['complete'], sum(row['lost'].values()), row['ended']) == (False, lost_by_ring(trace), 'killed')
    assert row['events']['call'] == len(calls(trace))
    flight = row['flight'] or {'left_out': 0}
    assert flight['left_out'] == int(trace.info.get('flight.records', 0))
    if flight['left_out']:
        stage, made = sums(trace)['stage', 'step'], len(ends(trace, 'step'))
        answer = only(analyze('stages', tmp_path / 'run', rc=None)['rows'])
        assert flight['sums'] == 1 and answer['calls'] == stage['count'] > 0 and made


TAKEN = 'for n in 1 2 3 4 5 6 7 8 9; do : > "$TFI_OUTPUT_DIR/rank0.$(uname -n).$$.tfr.new$n"; done; '


def test_no_other_file_can_be_made(run, victim, testlib, tmp_path):
    """What finds no room is dropped and counted, and the trace has its end: the background thread does not try for ever."""
    (tmp_path / 'run').mkdir()
    result = run(['sh', '-c', TAKEN + 'LD_PRELOAD="$0" exec "$@"', testlib, victim('flight'), tmp_path / 'counts', 2, 200000, 0],
                 FLIGHT, preload=False)
    assert result.rc == 0 and 'the oldest part of the trace cannot be left out (already exists)' in only(result.err.splitlines())
    trace = only(scripted.traces(result.dir))
    missing = check_last(trace, dict.fromkeys(range(2), (200000, 200000)))
    assert missing and left_out(trace) == 0 and trace.footer and not list(result.dir.glob('*.live'))


NO_MEMORY = '''import os, resource, signal
os.close(os.open("/dev/null", os.O_RDONLY))
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (4 << 20),) * 2)
if not (child := os.fork()):
    os.close(os.open("/dev/null", os.O_RDONLY))
    signal.raise_signal(signal.SIGUSR1)
    os._exit(0)
print(os.waitpid(child, 0)[1])
'''


def test_a_signal_to_a_process_without_a_trace(run):
    """The child of a fork has the trigger's handler, but no memory for a trace."""
    result = run([sys.executable, '-S', '-c', NO_MEMORY], {**FLIGHT, 'TFI_TRIGGER': 'signal:10', 'TFI_ACTIVITIES': 'io'})
    assert (result.rc, result.out) == (0, '0\n') and 'out of memory' in result.err


SUMS_AGAIN = '''import ctypes, signal, time
library = ctypes.CDLL(None)
for n in range(100):
    for k in range(30):
        library.tfi_range_push(b"stage%d" % n)
        sum(range(k * k))
        library.tfi_range_pop()
for _ in range(300):
    signal.raise_signal(signal.SIGUSR1)
    time.sleep(0.005)
'''


def test_sums_that_find_no_room(run, testlib, tmp_path):
    """Each moment writes them again, also where the trace cannot be rewritten: its size stays within TFI_FLIGHT_MB."""
    (tmp_path / 'run').mkdir()
    result = run(['sh', '-c', TAKEN + 'LD_PRELOAD="$0" exec "$@"', testlib, sys.executable, '-S', '-c', SUMS_AGAIN],
                 {**FLIGHT, 'TFI_TRIGGER': 'signal:10'}, preload=False)
    assert result.rc == 0
    trace = only(scripted.traces(result.dir))
    assert trace.footer and trace.path.stat().st_size <= 1 << 20
    assert {('stage', 'stage0'), ('stage', 'stage99')} <= set(sums(trace))


CHANGES = '''import os, sys
null = os.open("/dev/null", os.O_RDONLY)
def reads():
    for i in range(int(sys.argv[1])): os.read(null, i % 1000)
reads()
os.setgid(65534)
os.setuid(65534)
reads()
'''


@pytest.mark.skipif(os.geteuid() != 0, reason='needs root to change its user')
@pytest.mark.parametrize('count', [1000, 300000])
def test_the_user_changes(run, analyze, count):
    """A process that gives up its user can make no other file: it keeps its oldest records, and says so when there is no room for
    newer ones, which are counted."""
    result = run([sys.executable, '-S', '-c', CHANGES, count], {**FLIGHT, 'TFI_ACTIVITIES': 'io'})
    trace, enough = only(scripted.traces(result.dir)), count == 1000
    assert result.rc == 0 and result.err.count('the oldest part of the trace cannot be left out (') == (not enough)
    assert len(result.err.splitlines()) == (not enough) and trace.footer
    assert not enough or lost_by_ring(trace) == 0  # after the last leaving out there may be just enough room
    events = only(analyze('info', result.dir, rc=None)['rows'])['events']['io']
    assert events + lost_by_ring(trace) + int(trace.info.get('flight.records', 0)) >= 2 * count
