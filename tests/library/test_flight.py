"""test_flight - TFI_MODE=flight: a trace of constant size with all that happened last, also of a process that was killed."""

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
    assert (row['flight'] or {'left_out': 0})['left_out'] == int(trace.info.get('flight.records', 0))


def test_no_other_file_can_be_made(run, victim, testlib, tmp_path):
    """What finds no room is dropped and counted, and the trace has its end: the background thread does not try for ever."""
    taken = 'for n in 1 2 3 4 5 6 7 8 9; do : > "$TFI_OUTPUT_DIR/rank0.$(uname -n).$$.tfr.new$n"; done; '
    (tmp_path / 'run').mkdir()
    result = run(['sh', '-c', taken + 'LD_PRELOAD="$0" exec "$@"', testlib, victim('flight'), tmp_path / 'counts', 2, 200000, 0],
                 FLIGHT, preload=False)
    assert result.rc == 0 and 'the oldest part of the trace cannot be left out (already exists)' in only(result.err.splitlines())
    trace = only(scripted.traces(result.dir))
    missing = check_last(trace, dict.fromkeys(range(2), (200000, 200000)))
    assert missing and left_out(trace) == 0 and trace.footer and not list(result.dir.glob('*.live'))


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
    assert len(result.err.splitlines()) == (not enough) and (lost_by_ring(trace) == 0) == enough and trace.footer
    events = only(analyze('info', result.dir, rc=None)['rows'])['events']['io']
    assert events + lost_by_ring(trace) + int(trace.info.get('flight.records', 0)) >= 2 * count
