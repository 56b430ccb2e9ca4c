"""test_schedule - recording switched while the program runs: TFI_SCHEDULE, TFI_CAPTURE, TFI_TRIGGER.

torch.profiler.schedule itself says which steps must be recorded. Calls with different numbers show which steps were.
"""

import itertools
import json
import shutil
import signal
import time
from functools import partial

import pytest

import cachedit_alone
import scripted
import tfr
from conftest import BUILD, CLOSING, built
from scripted import called, only, stages

OFF, WARMUP, ON = 0, 1, 2
STEPS = 14
GRID = [dict(zip(('skip_first', 'wait', 'warmup', 'active', 'repeat'), v)) for v in
        itertools.product((0, 2), (0, 1, 3), (0, 1, 2), (1, 3), (0, 1, 2))][::3]
GRID += [{**g, 'skip_first_wait': 1} for g in GRID[::4]] + [{'active': 1, 'wait': 0, 'warmup': 0, 'repeat': 0}]
ORACLE = '''
import json, sys, warnings
warnings.simplefilter('ignore')
from torch.profiler import ProfilerAction, schedule
states = {ProfilerAction.NONE: 0, ProfilerAction.WARMUP: 1, ProfilerAction.RECORD: 2, ProfilerAction.RECORD_AND_SAVE: 2}
grid, steps = json.loads(sys.argv[1])
print(json.dumps([[states[schedule(**g)(i)] for i in range(steps)] for g in grid]))
'''


@pytest.fixture
def script(run, victim):
    return partial(scripted.play, run, victim('script'))


@pytest.fixture
def play(script, tmp_path):
    """play(steps, env) -> the trace of the one process."""
    def play(steps, env=None, **options):
        shutil.rmtree(tmp_path / 'run', ignore_errors=True)
        return only(script(steps, env, **options).traces)
    return play


@pytest.fixture(scope='session')
def table(forked):
    """The states that torch.profiler.schedule gives for each row of GRID."""
    result = forked(['python', '-c', ORACLE, json.dumps([GRID, STEPS])])
    assert result.rc == 0, result.err
    return json.loads(result.out)


def text_of(parameters):
    return ','.join(f'{k}={v}' for k, v in parameters.items())


def switches(trace):
    """(state, cycle, step, cause) of each `recording` record, in the order of time."""
    found = sorted((r for r in trace.records if r.kind == 'recording'), key=lambda r: r.values['time'])
    return [(r.values['state'], r.values['cycle'], r.values['step'], scripted.text(trace, r.values['cause'])) for r in found]


def states(trace, name='ProfilerStep'):
    """The state and cycle in which each stage of that name began, by the `recording` records before it."""
    changes = sorted((r.values['time'], r.values['state'], r.values['cycle']) for r in trace.records if r.kind == 'recording')
    begins = sorted(r.values['time'] for r in trace.records
                    if r.kind == 'range_begin' and scripted.text(trace, r.values['name']).startswith(name))
    return [[c[1:] for c in changes if c[0] <= b][-1] for b in begins]


def steps(count, name='ProfilerStep#{}'):
    return [s for i in range(count) for s in (f'push={name.format(i)}', f'call={i}', 'pop')]


# ---- the schedule ----

@pytest.mark.parametrize('index', range(len(GRID)), ids=[text_of(g) for g in GRID])
def test_torchs_table(play, table, index):
    trace = play(['call=900', *steps(STEPS)], {'TFI_SCHEDULE': text_of(GRID[index])})
    want = table[index]
    assert len(want) == STEPS
    assert [s for s, _ in states(trace)] == want
    assert called(trace) == [i for i in range(STEPS) if want[i] != OFF]
    assert stages(trace) == [f'ProfilerStep#{i}' for i in range(STEPS)]


def test_cycles_are_numbered(play):
    trace = play(steps(9), {'TFI_SCHEDULE': 'skip_first=1,wait=1,warmup=1,active=2,repeat=2'})
    assert switches(trace) == [(OFF, 0, 0, 'schedule'), (WARMUP, 0, 2, 'schedule'), (ON, 0, 3, 'schedule'),
                               (OFF, 1, 5, 'schedule'), (WARMUP, 1, 6, 'schedule'), (ON, 1, 7, 'schedule')]
    trace = play(steps(4), {'TFI_SCHEDULE': 'wait=0,warmup=0,active=1,repeat=3'})
    assert [s[:3] for s in switches(trace)] == [(OFF, 0, 0), (ON, 0, 0), (ON, 1, 1), (ON, 2, 2), (OFF, 3, 3)]


def test_schedule_defaults(play):
    trace = play(steps(6), {'TFI_SCHEDULE': 'active=3'})
    assert [s for s, _ in states(trace)] == [WARMUP, ON, ON, ON, OFF, OFF]


@pytest.mark.parametrize('pattern, recorded', [('step_*', [1, 2]), ('step_1', [2, 3]), ('x,step_?', [1, 2])])
def test_another_step_stage(play, pattern, recorded):
    order = 'call=0 push=step_0 call=1 pop push=step_1 call=2 pop push=step_2 call=3 pop'
    if pattern == 'step_1':
        order = 'call=0 push=step_0 call=1 pop push=step_1 call=2 pop call=3 push=step_1 call=4 pop'
    trace = play(order, {'TFI_SCHEDULE': f'warmup=0,active={2 if pattern != "step_1" else 1}', 'TFI_STEP': pattern})
    assert called(trace) == recorded


@pytest.mark.parametrize('env', [{}, {'TFI_STEP': 'ProfilerStep#*'}])
def test_a_stage_without_a_name_is_no_step(play, env):
    trace = play(['push=ProfilerStep#0', 'call=0', 'push=', 'call=1', 'pop', 'pop', 'nvtx_push=', 'call=2', 'nvtx_pop', 'push=ProfilerStep#1', 'call=3', 'pop'],
                 {'TFI_SCHEDULE': 'warmup=0,active=1', **env})
    assert stages(trace).count('ProfilerStep#0') == 1 and called(trace) == [0, 1, 2]


def test_between_steps_the_last_one_holds(play):
    trace = play('push=ProfilerStep#0 pop call=1 push=other call=2 pop push=ProfilerStep#1 pop call=3',
                 {'TFI_SCHEDULE': 'warmup=0,active=1'})
    assert called(trace) == [1, 2]


def test_steps_of_started_ranges_and_of_any_thread(play):
    trace = play('start=ProfilerStep#0 b.call=1 end=0 b.push=ProfilerStep#1 call=2 b.pop',
                 {'TFI_SCHEDULE': 'warmup=0,active=1'})
    assert called(trace) == [1]


def test_selection_and_schedule(play):
    """A call is recorded only if both the selection and the schedule allow it."""
    trace = play('push=ProfilerStep#0 call=0 push=a call=1 pop pop push=ProfilerStep#1 push=a call=2 pop pop',
                 {'TFI_SCHEDULE': 'warmup=0,active=1', 'ENABLE_PROFILER_NAMES': 'a'})
    assert called(trace) == [1]


def test_marks_are_no_steps(play):
    assert called(play('mark=ProfilerStep#0 call=1', {'TFI_SCHEDULE': 'warmup=0,active=1'})) == []


def test_a_forked_process_counts_its_own_steps(script):
    result = script('push=ProfilerStep#0 call=0 child push=x call=1 pop push=ProfilerStep#0 call=2 pop parent pop '
                    'push=ProfilerStep#1 call=3 pop', {'TFI_SCHEDULE': 'warmup=0,active=1'})
    assert sorted(called(t) for t in result.traces) == [[0], [2]]


def test_without_switches_there_are_no_recording_records(play):
    assert switches(play(steps(3))) == []


# ---- wrong values ----

@pytest.mark.parametrize('name, value', [
    ('TFI_SCHEDULE', v) for v in ('', 'yes', 'active=0', 'wait=-1', 'wait=1.5', 'active=3,wiat=1', 'active', 'active=', '=1', 'active=1000000001')] + [
    ('TFI_CAPTURE', v) for v in ('', 'cudaprofilerapi', 'delay', 'delay=x', 'delay=-1', 'duration=0', 'delay=1.5.5', 'delay=999999999', 'cudaProfilerApi,until=3')] + [
    ('TFI_TRIGGER', v) for v in ('', 'signal', 'signal:', 'signal:9', 'signal:11', 'signal:19', 'signal:0', 'signal:65', 'signal:x', 'file:', '/tmp/x')])
def test_bad_value(script, name, value):
    result = script('push=a call=1 pop call=2', {name: value}, err=None)
    line, = result.err.splitlines()
    assert line.startswith(f'tfinject: {name}={value} is not valid, and the default is used. Valid: ')
    trace = only(result.traces)
    assert called(trace) == [1, 2] and not switches(trace)


# ---- capture ----

@pytest.mark.slow
def test_delay(play):
    """Calls alone notice the end of the delay. A machine that stands still may keep the first calls beyond it."""
    begun = time.monotonic_ns()
    trace = play('call=1 push=a call=2 pop wait=3300 call=3', {'TFI_CAPTURE': 'delay=3'})
    assert called(trace) in ([3], [2, 3], [1, 2, 3]) and stages(trace) == ['a']
    assert [(s, c) for s, _, _, c in switches(trace)] == [(OFF, 'delay'), (ON, 'delay')]
    on = max(r.values['time'] for r in trace.records if r.kind == 'recording')
    assert tfr.Clock(trace.records).monotonic(on) > begun + 2.99e9


@pytest.mark.slow
def test_delay_and_duration(play):
    trace = play('call=1 until=on call=2 until=off call=3 push=a call=4 pop', {'TFI_CAPTURE': 'delay=2,duration=3'})
    assert called(trace) == [2] and stages(trace) == ['a']
    changes = sorted((r for r in trace.records if r.kind == 'recording'), key=lambda r: r.values['time'])
    assert [r.values['state'] for r in changes] == [OFF, ON, OFF]
    assert [scripted.text(trace, r.values['cause']) for r in changes] == ['delay', 'delay', 'duration']


@pytest.mark.slow
def test_the_same_delay_in_a_forked_process(script):
    result = script('push=a call=1 pop wait=3300 child push=a call=2 pop parent call=3', {'TFI_CAPTURE': 'delay=3'})
    assert sorted(called(t) for t in result.traces) == [[2], [3]]


@pytest.fixture
def device(run, tmp_path):
    """device(steps, env) -> the trace of the CUPTI client on the simulated GPU."""
    def device(words, env, preload=True):
        shutil.rmtree(tmp_path / 'run', ignore_errors=True)
        full = {'LD_LIBRARY_PATH': BUILD / 'simgpu', **env}
        result = run([built(BUILD / 'victims_gpu' / 'cupti_client'), *words.split()], full, preload=preload)
        assert result.rc == 0 and 'tfinject:' not in result.err, result.err
        return only(scripted.traces(result.dir))
    return device


def launches(trace):
    """The numbers of host launches, of kernels, and of launches that the device library reported."""
    host = [c for c in scripted.calls(trace) if c.name == 'cuLaunchKernel']
    kernels = [r for r in trace.records if r.kind == 'kernel']
    told = [r for r in trace.records if r.kind == 'correlation' and 'cuLaunchKernel' in scripted.text(trace, r.values['func'])]
    return len(host), len(kernels), len(told)


def test_between_profiler_start_and_stop(device):
    """A device record counts by its call, whenever it ran and was delivered."""
    words = 'init kernel=3 profile=start kernel=5 profile=stop kernel=2 sync sleep=50 profile=start kernel=4 profile=stop kernel=1 sync'
    trace = device(words, {'TFI_CAPTURE': 'cudaProfilerApi', 'TFI_FLUSH_MS': '20'})
    assert launches(trace) == (9, 9, 9)
    assert [(s, c) for s, _, _, c in switches(trace)] == [(OFF, 'capture')] + [(ON, 'capture'), (OFF, 'capture')] * 2
    names = [c.name for c in scripted.calls(trace)]
    assert names.count('cuProfilerStart') == names.count('cuProfilerStop') == 2
    assert launches(device(words, {})) == (15, 15, 15)


@pytest.mark.slow
def test_duration_from_profiler_start(device):
    trace = device('init kernel=3 profile=start kernel=5 unrecorded kernel=2 profile=stop kernel=1 profile=start kernel=4 sync',
                   {'TFI_CAPTURE': 'cudaProfilerApi,duration=3'}, preload='test')
    assert launches(trace) == (9, 9, 9)


def test_profiler_start_while_the_process_still_sleeps(device):
    """With selected names only a stage wakes the process."""
    trace = device('init profile=start stage=a kernel=2 endstage profile=stop stage=a kernel=3 endstage sync',
                   {'TFI_CAPTURE': 'cudaProfilerApi', 'ENABLE_PROFILER_NAMES': 'a'})
    assert launches(trace) == (2, 2, 2) and stages(trace) == ['a', 'a']


def test_device_records_by_schedule(device):
    words = ' '.join(f'stage=ProfilerStep#{i} kernel={i + 1} endstage' for i in range(5))
    assert launches(device(f'init kernel=9 {words} sync', {'TFI_SCHEDULE': 'wait=1,warmup=1,active=1'})) == (5, 5, 5)


# ---- triggers ----

KILL = 'system=kill -10 $PPID'
ON_AGAIN, NOTICED = 'until=on', 'until=off'  # the background thread notices both; calls look only while recording is off


@pytest.mark.slow
def test_signal(play):
    trace = play(['push=a', 'call=1', KILL, ON_AGAIN, 'call=2', KILL, NOTICED, 'call=3', KILL, ON_AGAIN, 'call=4', 'pop'],
                 {'TFI_TRIGGER': 'signal:10'})
    assert called(trace) == [2, 4] and stages(trace) == ['a']
    assert [(s, c) for s, _, _, c in switches(trace)] == [(OFF, 'signal'), (ON, 'signal'), (OFF, 'signal'), (ON, 'signal')]


def test_without_a_trigger_a_signal_keeps_its_action(run, victim):
    result = run([victim('script'), 'push=a', KILL, 'wait=100'], {}, preload='test')
    assert result.rc == -signal.SIGUSR1


CHAINED = '''
import ctypes, os, signal, sys, time
tfi = ctypes.CDLL(None)
tfi.tfi_test_is_recording.restype = ctypes.c_bool
def stage(name):
    tfi.tfi_range_push(name.encode()); tfi.tfi_range_pop()
got = []
if sys.argv[1] == 'before': signal.signal(10, lambda number, frame: got.append(number))
stage('wake')
if sys.argv[1] == 'after': signal.signal(10, lambda number, frame: got.append(number))
for i in range(3):
    os.kill(os.getpid(), 10)
    while sys.argv[1] == 'before' and tfi.tfi_test_is_recording() != (i != 1): time.sleep(0.001)
    stage('after %d' % i)
print(got)
'''


def test_the_programs_own_handler_is_called_too(run, python):
    result = run([python, '-c', CHAINED, 'before'], {'TFI_TRIGGER': 'signal:10'}, preload='test')
    assert (result.rc, result.out, result.err) == (0, '[10, 10, 10]\n', '')
    trace = only(scripted.traces(result.dir))
    assert [s for s, *_ in switches(trace)] == [OFF, ON, OFF, ON]


def test_a_signal_that_is_given_back_is_not_spoken_of(run, python):
    """Python restores its handlers at exit, which may take long: a handler that is restored gives no message."""
    result = run([python, '-c', CHAINED.replace('for i in range(3):', 'signal.signal(10, signal.SIG_DFL)\nfor i in ():') +
                  "time.sleep(1)", 'before'], {'TFI_TRIGGER': 'signal:10'}, preload='test')
    assert (result.rc, result.out, result.err) == (0, '[]\n', '')


def test_a_handler_installed_later_stays(run, python, tmp_path):
    """The program waits until the library has noticed it."""
    waits = CHAINED + "while not open('said').read().endswith('\\n'): time.sleep(0.001)"
    result = run(['sh', '-c', 'exec "$@" 2>said', 'sh', python, '-c', waits, 'after'], {'TFI_TRIGGER': 'signal:10'}, preload='test')
    assert (result.rc, result.out) == (0, '[10, 10, 10]\n')
    line, = CLOSING.sub('', (tmp_path / 'said').read_text()).splitlines()
    assert line.startswith('tfinject: TFI_TRIGGER: the program now handles signal 10 itself, ') and 'choose another signal' in line
    assert [s for s, *_ in switches(only(scripted.traces(result.dir)))] == [OFF]


CALLS_OURS = '''
import ctypes, faulthandler, os
tfi = ctypes.CDLL(None)
tfi.tfi_range_push(b'wake')
faulthandler.register(12, file=open(os.devnull, 'w'), chain=True)
child = os.fork()
if not child:
    tfi.tfi_range_push(b'child')
    os.kill(os.getpid(), 12)
    os._exit(0)
print(os.waitpid(child, 0)[1])
'''


def test_a_later_handler_that_calls_ours_is_not_called_by_it(run, python):
    """Two handlers that call each other would fill the stack, also in a forked child, which wakes again."""
    result = run([python, '-c', CALLS_OURS], {'TFI_TRIGGER': 'signal:12'})
    assert (result.rc, result.out) == (0, '0\n')


def tell(path, text):
    return f'system=echo "{text}" >{path}'


@pytest.mark.slow
def test_file(play, tmp_path):
    path = tmp_path / 'switch'
    trace = play(['push=a', 'call=1', tell(path, 'on'), ON_AGAIN, 'call=2', tell(path, 'off'), NOTICED, 'call=3',
                  tell(path, '-ops'), ON_AGAIN, 'call=4', f'system=rm {path}', NOTICED, 'call=5', 'pop'],
                 {'TFI_TRIGGER': f'file:{path}'})
    assert called(trace) == [2, 4]
    assert [(s, c) for s, _, _, c in switches(trace)] == [(OFF, 'file'), (ON, 'file'), (OFF, 'file'), (ON, 'file'), (OFF, 'file')]


def test_activities_by_file(play, tmp_path):
    path = tmp_path / 'switch'
    path.write_text('-ops -mem +mem\n')
    trace = play(['push=a', 'call=1', 'pop', tell(path, '-cpu -nccl'), 'wait=400', 'push=a', 'pop'], {'TFI_TRIGGER': 'file:switch'})
    cpu, gpu, mem, nccl, ops = 1, 2, 4, 8, 16
    recorded = sorted((r.values['time'], r.values['activities']) for r in trace.records if r.kind == 'recording')
    assert [activities for _, activities in recorded] == [cpu | gpu | mem | nccl, gpu | mem | ops]


def test_calls_on_the_host_by_file(device, tmp_path):
    path = tmp_path / 'switch'
    path.write_text('-cpu')
    assert launches(device('init kernel=3 sync', {'TFI_TRIGGER': f'file:{path}'})) == (0, 3, 3)
    path.write_text('-gpu')
    assert launches(device('init kernel=3 sync', {'TFI_TRIGGER': f'file:{path}'})) == (3, 0, 0)


def test_unknown_words(script, tmp_path):
    """An unknown word gives one message, and the rest of the file is used."""
    path = tmp_path / 'switch'
    path.write_text('fast -ops +io please')
    result = script('push=a call=1 pop wait=300 call=2', {'TFI_TRIGGER': f'file:{path}'}, err=None)
    line, = result.err.splitlines()
    assert line.startswith(f'tfinject: {path}: `fast` is not valid and is ignored; valid are on, off, keep with TFI_MODE=flight, and + or - before any of: cpu gpu ')
    assert called(only(result.traces)) == [1, 2]


def test_a_file_that_can_not_be_read(play, tmp_path):
    err = f'tfinject: TFI_TRIGGER: {tmp_path} is not a regular file and is ignored until it is one\n'
    assert called(play('push=a call=1 pop wait=300 call=2', {'TFI_TRIGGER': f'file:{tmp_path}'}, err=err)) == []


# ---- a schedule of the pipeline's own ----

CACHE_DIT = '''
import sys, torch
from types import SimpleNamespace
from cache_dit._utils.utils import create_profiler_from_args
plan = dict(p.split('=') for p in sys.argv[1].split(','))
args = SimpleNamespace(profile=True, profile_name='flux', profile_dir=None, profile_activities=['CPU'], profile_with_stack=False,
                       profile_record_shapes=True, **{'profile_' + k: int(v) for k, v in plan.items()})
for i in range(3):
    with create_profiler_from_args(args):
        torch.ones(10 * i + 1) + 1
        for k in range(3):
            with torch.profiler.record_function('step'):
                torch.ones(10 * i + k + 2) * 2
    torch.ones(10 * i + 9) + 1
'''


def added(trace, names=('aten::add', 'aten::mul')):
    """The sizes of the added and multiplied tensors."""
    shapes = [(r.values['time'], scripted.text(trace, r.values['shapes'])) for r in trace.records
              if r.kind == 'op' and scripted.text(trace, r.values['name']) in names]
    return [json.loads(shape)[0][0] for _, shape in sorted(shapes)]


WHOLE = 'is recorded whole and its '
NO_STEP = 'its schedule counts entries of stage nosuch, and none was entered'


@pytest.mark.parametrize('plan, env, expected, line', [
    ('wait=0,warmup=1,active=3,repeat=1', {}, [*range(1, 5), *range(11, 15), *range(21, 25)], WHOLE),
    ('wait=1,warmup=0,active=1,repeat=1', {'TFI_STEP': 'step'}, [3, 13, 23], ''),
    ('wait=1,warmup=0,active=1,repeat=1', {'TFI_STEP': 'nosuch'}, [], NO_STEP),
    ('wait=5,repeat=1', {'TFI_SCHEDULE': 'wait=0,warmup=0,active=1,repeat=1', 'TFI_STEP': 'flux'}, None, ''),
], ids=['no-steps-to-be-seen', 'steps', 'no-step-entered', 'the-users-own'])
def test_cache_dits_arguments(run, python, tmp_path, plan, env, expected, line):
    """A schedule lasts as long as its context: later contexts, and the time between them, follow their own settings."""
    result = run([python, '-c', CACHE_DIT, plan], {**env, **cachedit_alone.environment(python, tmp_path)})
    assert result.rc == 0 and line in result.err, result.err[-2000:]
    assert len(result.err.splitlines()) == bool(line), 'at most one message'
    trace, = (t for t in scripted.traces(result.dir) if stages(t))
    between = [9, 19, 29]
    assert stages(trace).count('flux') == 3
    if expected is None:
        assert added(trace) == [1, 2, 3, 4, 9]  # up to the second entry of `flux`
        return
    assert sorted(added(trace)) == sorted(expected + between)
    changes = [(state, cause) for state, _, _, cause in switches(trace) if cause == 'schedule']
    assert bool(changes) == ('TFI_STEP' in env) and (not changes or changes[-1] == (ON, 'schedule'))
