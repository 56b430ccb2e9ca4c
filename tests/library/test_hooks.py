"""test_hooks - intercepted calls: the content of a record, and a program that behaves as without the library."""

import json
import re
import signal
import subprocess
import time

import pytest

import scripted
from conftest import COMMAND_TIMEOUT, ROOT, clean_environment, execute
from scripted import called, calls, only

SIGNED = 1 << 64


@pytest.fixture
def rows(run, victim):
    """The run of hooks_rows, its trace, and its output: {function: (result, errno, before, after)}."""
    result = run([victim('hooks_rows')], preload='test')
    assert (result.rc, result.err) == (0, '')
    said = {}
    for line in result.out.splitlines():
        name, *numbers = line.split()
        said[name] = tuple(map(int, numbers))
    return result, only(scripted.traces(result.dir)), said


# ---- every row ----

EXPECTED = {  # class, arguments, values, result, errno; None is any value
    'dummy_add': ('TEST', 'x:INT', [SIGNED - 9000000000], -8999999999, 77),
    'dummy_fail': ('TEST', 'error:INT,result:INT', [23, SIGNED - 5], -5, 23),
    'dummy_store': ('TEST', 'stored:UINT,x:UINT', [SIGNED - 1, SIGNED - 1], 0, 77),
    'dummy_nested': ('TEST', 'x:INT,depth:INT', [40, 2], 42, 77),
    'dummy_sleep': ('TEST', 'ms:UINT', [30], 0, 77),
    'dummy_many': ('TEST', 'a:INT,b:INT,c:ADDRESS,d:ADDRESS,e:BYTES,f:HEX',
                   [SIGNED - 1, 1 << 63, 0x7f0123456789, None, SIGNED - 1, 255], 0x7f0123456789, 77),
    'dummy_call': ('TEST', 'f:ADDRESS,x:INT', [None, 10], 6, 77),
}


def table():
    return re.findall(r'^HOOK(?:_VOID)?\(\w+, [^,]+, (\w+),', (ROOT / 'tests/dummy.def').read_text(), re.M)


def outermost(trace):
    """{function: its outermost call}, without the first call, which only wakes the process."""
    found = {}
    for call in sorted(calls(trace), key=lambda c: c.time)[1:]:
        if not any(o.time <= call.time and o.time + o.duration >= call.time + call.duration for o in found.values()):
            assert call.name not in found
            found[call.name] = call
    return found


def test_the_victim_calls_every_row():
    assert set(table()) == set(EXPECTED)


@pytest.mark.parametrize('name', EXPECTED)
def test_content_of_a_record(rows, name):
    _, trace, _ = rows
    kind, arguments, values, result, error = EXPECTED[name]
    call = outermost(trace)[name]
    assert (call.library, call.kind, call.arguments) == ('dummy', kind, arguments)
    assert [v for v, w in zip(call.args, values) if w is not None] == [w for w in values if w is not None]
    assert len(call.args) == len(values)
    assert (call.result, call.error, call.stack) == (result, error, 0)


def test_results_and_errno_are_passed_through(rows, run, victim):
    bare = run([victim('hooks_rows')], preload=False)
    wanted = [line.split()[:3] for line in bare.out.splitlines()]
    assert [line.split()[:3] for line in rows[0].out.splitlines()] == wanted
    assert [int(w[1]) for w in wanted] == [-8999999999, -5, 1, 42, 0, 0x7f0123456789, 6]


def test_durations(rows):
    """Each record lies between the caller's clock readings, and the sleeping call lasts as long as its sleep."""
    _, trace, said = rows
    clock = [r.values for r in trace.records if r.kind == 'clock' and r.values['clock'] == 2]
    a, b = min(clock, key=lambda c: c['ticks']), max(clock, key=lambda c: c['ticks'])
    rate = (b['value'] - a['value']) / (b['ticks'] - a['ticks'])
    found, slack = outermost(trace), 20000
    assert set(found) == set(said)
    for name, (_, _, before, after) in said.items():
        start = a['value'] + (found[name].time - a['ticks']) * rate
        assert before - slack <= start and start + found[name].duration * rate <= after + slack, name
    assert found['dummy_sleep'].duration * rate >= 30e6


def test_nested_calls_have_a_record_each(rows):
    trace = rows[1]
    outer = outermost(trace)['dummy_nested']
    within = [c for c in calls(trace) if outer.time <= c.time and c.time + c.duration <= outer.time + outer.duration]
    adds = [c.args[0] for c in within if c.name == 'dummy_add']
    assert adds == [40, 41]
    assert len(calls(trace)) == 1 + len(EXPECTED) + len(within) - 1
    assert sum(c.duration for c in within if c is not outer and c.name == 'dummy_add') <= outer.duration


# ---- originals ----

@pytest.mark.parametrize('end', ['exit', 'kill'])
@pytest.mark.parametrize('count', [40, 9000])
def test_calls_like_earlier_ones(run, victim, tfanalyze, count, end):
    """Repeated calls, recorded as differences, read back whole: packed, after SIGKILL, in chunks of both sizes."""
    result = run([victim('hooks_again'), count, 5, end], preload='test')
    assert (result.rc, result.err) == (-9 if end == 'kill' else 0, '')
    wanted = [line.split() for line in result.out.splitlines()]
    trace = only(scripted.traces(result.dir))
    made = calls(trace)[1:]
    assert len(made) == len(wanted) == count
    assert sorted(c.time for c in made) == [c.time for c in made]
    for call, (name, value, error, *arguments) in zip(made, wanted):
        assert (call.name, call.result, call.error) == (name, int(value), int(error))
        assert call.args == [int(a) % SIGNED for a in arguments]
    shown = execute([tfanalyze, 'dump', result.dir, '--format', 'json'])
    assert shown.rc == 0
    rows = json.loads(shown.out)['rows']
    rows = [r for r in rows if r['kind'] == 'call'][1:]
    assert [r['values']['error'] for r in rows] == [int(w[2]) for w in wanted]
    assert [r['values']['result'] for r in rows] == [int(w[1]) for w in wanted]
    many = [r['values']['args']['b'] for r in rows if r['values']['func'] == 'dummy_many']
    assert many == [int(w[4]) for w in wanted if w[0] == 'dummy_many']


def test_missing_original(run, victim, tmp_path):
    """A hook without an original returns 0, keeps errno, stores nothing and records nothing."""
    result = run([victim('hooks_late')], preload='test')
    assert (result.rc, result.out, result.err) == (0, 'missing 0 5 77\n', '')
    assert not (tmp_path / 'run').exists()


def test_libraries_opened_local(run, victim):
    """RTLD_LOCAL hides a library from RTLD_NEXT; a failed look-up is repeated at the next call."""
    result = run([victim('hooks_late'), victim('libdummy.so').parent], preload='test')
    assert (result.rc, result.err) == (0, '')
    assert result.out.split('\n')[:4] == ['missing 0 5 77', 'constructor', 'local 2', 'found again 3']
    assert called(only(scripted.traces(result.dir)))[:3] == [1, 2, 1001]


@pytest.mark.parametrize('names', [None, '', 'x'])
def test_calls_before_our_constructor_and_after_our_end(run, victim, names):
    """Calls of a library's constructor are recorded; calls after the end of the trace are only forwarded."""
    result = run([victim('hooks_early')], {'ENABLE_PROFILER_NAMES': names}, preload='test')
    assert (result.rc, result.out, result.err) == (0, 'constructor\nmain\ndestructor\n', '')
    traces = scripted.traces(result.dir) if result.dir.exists() else []
    assert [called(t) for t in traces] == ([[1, 2, 1001]] if names is None else [])
    assert all(t.complete for t in traces)


PLUGIN = """
    #include <stdint.h>
    #include <stdio.h>
    long dummy_add(long x);
    void dummy_store(uint64_t *out, uint64_t x);
    const char *dummy_many(int a, int64_t b, const char *c, double *d, size_t e, uint8_t f);
    void use_dummy(int n)
    {
        uint64_t stored = 0;
        dummy_store(&stored, 7);
        printf("%ld %d %s\\n", dummy_add(n), (int)stored, dummy_many(1, 2, "three", NULL, 5, 6));
    }
"""
OWN_DUMMY = """
    #include <stdint.h>
    #include <stdlib.h>
    long dummy_add(long x) { return x + 100; }
    void dummy_store(uint64_t *out, uint64_t x) { *out = x + 200; }
    const char *dummy_many(int a, int64_t b, const char *c, double *d, size_t e, uint8_t f) { return c; }
"""


@pytest.mark.parametrize('name', ['libdummy.so.1', 'libdummy-1a2b3c4d.so', None], ids=['older', 'renamed', 'static'])
def test_a_plugins_own_library_gets_its_calls(run, victim, tmp_path, name):
    """Calls of a plugin reach its own copy of a library of a table as without tfinject, and the plugin is unmapped."""
    (tmp_path / 'plugin.c').write_text(PLUGIN)
    (tmp_path / 'own.c').write_text(OWN_DUMMY)
    build = ['gcc', '-shared', '-fPIC', '-o']
    if name:
        made = execute([*build, name, f'-Wl,-soname,{name}', 'own.c'], clean_environment(), tmp_path)
        assert made.rc == 0, made.err
    made = execute([*build, 'plugin.so', 'plugin.c', *([f'./{name}', '-Wl,-rpath,$ORIGIN'] if name else ['own.c'])],
                   clean_environment(), tmp_path)
    assert made.rc == 0, made.err
    result = run([victim('plugins'), tmp_path / 'plugin.so', 3, 1, 'use_dummy'], preload='test')
    assert result.rc == 0
    assert result.out.splitlines() == ['101 207 three'] * 3 + ['opened 3 times, kept 0 times']


# ---- signals ----

@pytest.mark.parametrize('mode', ['main', 'threads'])
@pytest.mark.slow
def test_calls_from_a_signal_handler(run, victim, tfanalyze, mode):
    """Every call from a signal handler is recorded, or counted as made inside the recorder."""
    result = run([victim('hooks_storm'), mode], preload='test')
    assert (result.rc, result.err) == (0, '')
    made = int(re.match(r'made (\d+)\ncan be cancelled 1\n$', result.out).group(1))
    info = run([tfanalyze, 'info', '--format', 'json', result.dir], preload=False)
    row = only(json.loads(info.out)['rows'])
    assert set(row['lost']) <= {'reentrant'} and row['ended'] == 'exit'
    assert row['events']['call'] == made - row['lost'].get('reentrant', 0)
    assert row['lost'] or mode == 'threads'


# ---- the live slot ----

@pytest.fixture
def hanging(victim, testlib, tmp_path):
    """Starts a script that hangs in its last step; returns its slots once `ready` accepts them, then kills it."""
    processes = []

    def hanging(steps, ready):
        env = dict(clean_environment(), LD_PRELOAD=str(testlib), TFI_OUTPUT_DIR=str(tmp_path / 'run'))
        process = subprocess.Popen([victim('script'), *steps], env=env, cwd=tmp_path)
        processes.append(process)
        end = time.monotonic() + COMMAND_TIMEOUT
        while time.monotonic() < end:
            for path in (tmp_path / 'run').glob('*.live'):
                found = scripted.slots(path) if path.read_bytes()[:7] == b'TFILIVE' else {}
                if process.pid in found and ready(found[process.pid]):
                    return process.pid, found
            time.sleep(0.02)
        pytest.fail(f'no slot has the expected content: {list((tmp_path / "run").glob("*"))}')
    yield hanging
    for process in processes:
        process.send_signal(signal.SIGKILL)
        process.wait()


def test_slot_of_a_thread_that_hangs(hanging):
    steps = ['push=outer', 'push=text encode', 'push=closed', 'pop', 'a.push=of a', 'a.call=1', 'start=across', 'sleep=100000']
    pid, found = hanging(steps, lambda slot: slot.calls)
    main = found.pop(pid)
    assert (main.calls, main.stages, main.name) == (['dummy_sleep'], ['outer', 'text encode', 'across'], 'script')
    assert main.since[0] > 0
    other = only(list(found.values()))
    assert (other.calls, other.stages) == ([], ['of a'])


def test_slot_shows_no_more_stages_than_it_holds(hanging):
    pid, found = hanging([f'push={i}' for i in range(50)] + ['sleep=100000'], lambda slot: slot.calls)
    assert found[pid].nr_stages == 50
    assert found[pid].stages == [str(i) for i in range(36)]


def test_slot_without_a_call(hanging):
    pid, found = hanging(['push=x', 'call=1', 'wait=100000'], lambda slot: slot.nr_stages and not slot.nr_calls)
    assert (found[pid].calls, found[pid].stages) == ([], ['x'])


def test_slot_after_a_stage_was_ended_elsewhere(hanging):
    """The slot names the stages that are still open, wherever the ended one was in the list."""
    pid, found = hanging(['start=first', 'push=second', 'a.end=0', 'sleep=100000'], lambda slot: slot.calls)
    assert (found[pid].nr_stages, found[pid].stages) == (1, ['second'])
