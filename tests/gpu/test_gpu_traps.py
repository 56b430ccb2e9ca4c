"""test_gpu_traps - surprises of real CUPTI releases, each as a switch of the simulated CUPTI.

Each trap was found in a header, in a vendor's library or in another project's issues, and caught this library once:
before its fix the library crashed, or lost or spoiled records. Each check says what would be wrong.
"""

import re
import threading
import time
from collections import Counter

import pytest

import scripted
import test_cuda_routes
import test_cupti
import test_injection
from conftest import BUILD, ROOT, built, clean_environment, execute
from scripted import drops
from test_cupti import (CLIENTS, DEVICE_KINDS, START, STOP, assert_equals_log, assert_times_of_its_clock, client_s, correlations,
                        kernels_between, logged, nr_logged, nr_ours, numbered, ours, records)

play = test_cupti.play
TRAPS = {}


def trap(name, what):
    """Enters a check into the table: the switch's name, and a client's answer to it."""
    def enter(check):
        TRAPS[name] = (what, check)
        return check
    return enter


SET_DEVICE = 'import ctypes; print(ctypes.CDLL("libcudart.so.13").cudaSetDevice(0))'


@trap('driverless', 'CUPTI is not called before there is a driver that works')
def without_driver(play, run, python, tmp_path):
    env = {'LD_LIBRARY_PATH': scripted.libraries(tmp_path / 'cuda', 'libcudart.so.13', 'libcupti.so.13'), 'SIMCUPTI_NASTY': 'driverless'}
    plain, got = (run([python, '-c', SET_DEVICE], env, preload=preload) for preload in (False, True))
    assert plain.rc == got.rc == 0 and plain.out == got.out == '35\n'


@trap('cbids', 'no callback id is used that the release does not have')
def callback_ids(play, run, python, tmp_path):
    """With the installed headers' ids, and with a release that has fewer: 307 is cuLaunchKernel."""
    for nasty, launches in (('cbids', 10), ('cbids=300', 5)):
        got = play(f'init kernel=5 copy=1 sync {START} kernel=5 sync {STOP}', {'TFI_OUTPUT_DIR': tmp_path / nasty}, nasty=nasty)
        assert_equals_log(got)
        assert list(correlations(got).values()).count('cuLaunchKernel') == launches  # five for the profiler
        assert client_s(got) == kernels_between(got, 5, 10)


@trap('sticky', 'the whole kind of an API is disabled, so that enabling it again does something')
def sessions_have_calls(play, run, python, tmp_path):
    steps = 'init ' + f'{START} kernel=3 copy=1 sync {STOP} ' * 5
    alone, got = play(steps, nasty='sticky', preload=False), play(steps, nasty='sticky')
    assert numbered(got) == numbered(alone) and len([x for x in got.seen if x['kind'] == 4]) > 5 * 8
    assert_equals_log(got)


@trap('reregister', 'a timestamp callback that CUPTI has is not registered again')
def sessions_have_times(play, run, python, tmp_path):
    got = play('init kernel=3 sync ' + f'clock {START} kernel=8 sync {STOP} kernel=3 sync ' * 5, nasty='reregister')
    assert [x['result'] for x in got.lines if x.get('step') == 'clock'] == ['CUPTI_SUCCESS'] * 5
    assert got.stats['damaged'] == 0
    assert_times_of_its_clock(got)
    assert sum(client_s(got).values()) == 40 and nr_ours(got) == nr_logged(got) and not drops(got.trace)


@trap('misdate', 'work that cannot have run when its record says is counted, and left out')
def kernels_of_another_day(play, run, python, tmp_path):
    """A day too early: before their own call, and before the process. The stages' device time has none of them either."""
    got = play(f'init stage=one kernel=5 sync clock {START} kernel=5 sync {STOP} kernel=5 sync endstage', nasty='misdate=2')
    assert got.stats['damaged'] == 2 and drops(got.trace) == {'device_timeless': 2}
    assert nr_ours(got) == nr_logged(got) - 2 == 13
    begins = [r.start for kind in DEVICE_KINDS for r in records(got.trace, kind)]
    assert max(begins) - min(begins) < 60 * 10**9
    assert sum(client_s(got).values()) == 5


@trap('pool', 'whole launches of graphs are recorded once the times of their nodes are not valid')
def graphs_without_times(play, run, python, tmp_path):
    """Every node is in the trace: as itself, counted as timeless, or in its launch; one message says so, and the last launches
    come after it."""
    def wait_for_message():
        while 'TFI_GRAPHS=graph' not in execute([built(BUILD / 'tfanalyze'), 'dump', tmp_path / 'run'], clean_environment()).out:
            time.sleep(0.05)
        (tmp_path / 'said').touch()
    threading.Thread(target=wait_for_message, daemon=True).start()
    got = play(f'init graph=160 sync file={tmp_path / "said"} graph=10 sync', {'TFI_FLUSH_MS': '20'}, nasty='pool=100')
    line = scripted.only(got.said)
    assert re.search(r'\d+ of \d+ device records .* no valid times; .*TFI_GRAPHS=graph', line), line
    launches, lost = records(got.trace, 'graph_launch'), drops(got.trace)
    assert len(launches) >= 10 and all(r.duration for r in launches)
    assert lost == {'device_timeless': got.stats['damaged']} and got.stats['damaged'] >= 80
    assert len(records(got.trace, 'kernel')) + got.stats['damaged'] + 3 * len(launches) == len(logged(got, 'kernel')) == 510
    assert len(records(got.trace, 'set')) + len(launches) == len(logged(got, 'set')) == 170


@trap('ended', "the last records are fetched before the driver's own end, by us and by gpu-check's client")
def before_the_drivers_end(play, run, python, tmp_path):
    got = play('init kernel=5 copy=1 sync', nasty='ended')
    assert_equals_log(got)
    env = {'LD_LIBRARY_PATH': test_cupti.GPU, 'SIMCUPTI_NASTY': 'ended', 'CUPTI_RAW_LIBRARY': built(test_cupti.GPU / 'libcupti.so.13'),
           'CUPTI_RAW_KINDS': '10', 'CUPTI_RAW_OUT': tmp_path / 'raw'}
    result = run([built(BUILD / 'victims_gpu/cupti_client'), 'init', 'kernel=5', 'sync'], env, preload=built(BUILD / 'gpu/libcupti_raw.so'))
    assert result.rc == 0 and b'alpha' in (tmp_path / 'raw').read_bytes()


@trap('twice', 'no buffer is given for two requests')
def buffers_that_are_out(play, run, python, tmp_path):
    got = play('init kernel=75000 sync', nasty='twice,exit')
    assert drops(got.trace) == {'device_kept': got.stats['requested']} and got.stats['requested'] > 8


RELEASES = {'13.0.0': 'without its first update', '13.2': 'the hardware traces by itself'}


@trap('midway', 'nothing is flushed in the background where that is known to do harm')
def flushes(play, run, python, tmp_path):
    for version, reason in RELEASES.items():
        steps = 'init kernel=1 sync sleep=60 kernel=1 sleep=10 kernel=1 sleep=10 kernel=1 sync'
        if version != '13.0.0':
            steps = 'hwtrace ' + steps
        got = play(steps, {'TFI_FLUSH_MS': '5', 'TFI_OUTPUT_DIR': tmp_path / version}, nasty='midway=30,hes', version=version)
        assert_equals_log(got)
        assert got.stats['blocked'] == 0 and reason in scripted.only(got.said)
        assert got.trace.complete and not drops(got.trace)


@trap('internal', "CUPTI's own calls of the driver get no wrapper, so they are nobody's and wait for nothing")
def calls_of_its_own(play, run, python, tmp_path):
    """A CUPTI thread that waits for the end of our start, while a kind is enabled, would wait two seconds each time."""
    begin = time.monotonic()
    got = play(f'init kernel=5 copy=1 graph=2 {START} kernel=3 sync {STOP} kernel=2 sync', nasty='internal,thread')
    took = time.monotonic() - begin
    internal = [x for x in got.log if x['t'] == 'call' and x['symbol'] == 'cuEventQuery']
    assert len(internal) > 6 and {x['result'] for x in internal} == {400} and took < 2 * len(internal)
    assert 'cuEventQuery' not in [c.name for c in scripted.calls(got.trace)]
    assert_equals_log(got)
    assert sum(client_s(got).values()) == 3


KINDS2 = 'CONCURRENT_KERNEL,MEMCPY,MEMSET,RUNTIME,DRIVER'
BEGIN2 = f'v2=cuspy enable2={KINDS2}'
END2 = f'disable2={KINDS2} flush unsubscribe'


def not_ours(got, first, last):
    """Takes the kernels number `first` to `last`, which we do not have, out of the log; returns their ids."""
    theirs = kernels_between(got, first, last)
    got.log = [w for w in got.log if w['t'] != 'kernel' or w['correlation'] not in theirs]
    return theirs


@trap('v2', 'the device is given to a client of the second interface, and taken back')
def second_interface(play, run, python, tmp_path):
    for program in CLIENTS:
        got = play(f'init kernel=5 sync {BEGIN2} kernel=6 sync {END2} kernel=7 sync', {'TFI_OUTPUT_DIR': tmp_path / program},
                   program=program, nasty='v2', version='13.3')
        assert {x['result'] for x in got.lines if 'step' in x} == {'CUPTI_SUCCESS'}
        assert client_s(got) == not_ours(got, 5, 11)
        assert_equals_log(got)
        assert got.trace.complete and not drops(got.trace)


# Traps of the simulated driver or of the program, without a switch of CUPTI: the test, the event, the library's answer.
OTHERS = {
    'injection': (test_injection.test_alone, 'the driver loads what CUDA_INJECTION64_PATH names, in cuInit, and binds nothing to it',
                  'CUPTI is started there, and what it says is the whole trace'),
    'majors': (test_cuda_routes.test_launches_do_not_wait_for_a_dlopen_elsewhere,
               'two releases of libcudart in one process, and a dlopen elsewhere that takes long', 'no call asks the loader which is meant'),
    'client': (test_cuda_routes.test_a_second_runtime_for_a_library_without_kernels,
               'the client of a second libcudart registers no kernels', "its first call shows it: a page of code has its object's runtime"),
    'names': (test_cupti.test_cupti_of_the_runtimes_release, 'libcupti.so.2025.1.1 is of CUDA 12.8, 2025.3.1 of 13.0',
              'year and number are read, not the year alone'),
}


# ---- the table ----

@pytest.mark.parametrize('name', TRAPS)
def test_trap(name, play, run, python, tmp_path):
    TRAPS[name][1](play, run, python, tmp_path)


def test_list_of_traps(capsys):
    """Prints the list of traps; each is a switch of the simulated CUPTI."""
    switches = dict(re.findall(r'^NASTY\((\w+), [\w.]+, "(.*)"\)', (ROOT / 'tests/simgpu/cupti_nasty.def').read_text(), re.M))
    assert set(TRAPS) <= set(switches)
    with capsys.disabled():
        for name, (what, _) in TRAPS.items():
            print(f'\n{name:12} CUPTI: {switches[name]}\n{"":12} so:    {what}', end='')
        for name, (test, how, what) in OTHERS.items():
            print(f'\n{name:12} there: {how}\n{"":12} so:    {what} ({test.__module__}.{test.__name__})', end='')
        print()


# ---- further effects of the fixes ----

def test_graph_launches_do_not_hide_nodes_from_another_client(play):
    """TFI_GRAPHS=graph affects only our records: the program's own profiler still gets nodes."""
    steps = f'init graph=1 sync {START} graph=2 sync {STOP} graph=1 sync'
    alone, got = play(steps, preload=False), play(steps, {'TFI_GRAPHS': 'graph'})
    assert numbered(got) == numbered(alone) and sum(client_s(got).values()) == 6
    assert len(records(got.trace, 'graph_launch')) == 2 and len(ours(got.trace, 'kernel')) == 6


def test_callback_ids_are_asked_for(play):
    """Whole kinds are recorded if the range of callback ids is unknown."""
    got = play('init kernel=5 sync', fail='cuptiGetCallbackName=CUPTI_ERROR_UNKNOWN')
    assert_equals_log(got)
    names = Counter(scripted.text(got.trace, r.values['func']).split('\x1f')[2] for r in got.trace.records if r.kind == 'correlation')
    assert names['cuLaunchKernel'] == 5


def test_hardware_tracing_is_passed_on(play):
    got = play(f'hwtrace init {START} kernel=5 sync {STOP} kernel=5 sync', nasty='hes', version='13.2')
    assert got.lines[0] == {'step': 'hwtrace', 'result': 'CUPTI_SUCCESS'}
    assert client_s(got) == kernels_between(got, 0, 5)
    assert_equals_log(got)


# ---- clients of the second interface ----

V2 = {'nasty': 'v2', 'version': '13.3'}


def test_device_elsewhere(play, analyze):
    """`info` says when another profiler had the device, and `stages` says which one; unknown times are null, not 0."""
    got = play(f'stage=one init kernel=5 sync endstage stage=two {BEGIN2} kernel=6 sync {END2} endstage stage=three kernel=7 sync '
               f'endstage', **V2)
    row = scripted.only(analyze('info', got.trace.path)['rows'])
    stretch = scripted.only(row['device_elsewhere'])
    assert stretch['who'] == 'cuspy' and 0 < stretch['from_us'] < stretch['to_us'] < row['duration_us']
    stages = {r['stage']: r for r in analyze('stages', got.trace.path)['rows']}
    assert [stages[name]['device_elsewhere'] for name in ('one', 'two', 'three')] == [None, 'cuspy', None]
    assert stages['one']['device_us'] > 0 and stages['three']['device_us'] > 0 and stages['two']['device_us'] is None
    assert (stages['two']['device_busy_us'], stages['two']['idle_us']) == (None, None)
    text = analyze('stages', got.trace.path, format=None).out.splitlines()
    assert text[0].split()[-1] == 'device_elsewhere' and any(line.startswith('two ') and line.endswith(' cuspy') for line in text)


def test_stages_without_it_have_no_such_key(play, analyze):
    got = play('stage=one init kernel=5 sync endstage')
    assert scripted.only(analyze('info', got.trace.path)['rows'])['device_elsewhere'] == []
    assert 'device_elsewhere' not in analyze('stages', got.trace.path)['rows'][0]


@pytest.mark.parametrize('program', CLIENTS)
def test_second_interface_before_the_device_is_used(play, analyze, program):
    """The library starts its own records when the other client has gone."""
    got = play(f'{BEGIN2} init kernel=6 sync {END2} kernel=7 sync', program=program, **V2)
    assert client_s(got) == not_ours(got, 0, 6)
    assert_equals_log(got)
    stretch = scripted.only(scripted.only(analyze('info', got.trace.path)['rows'])['device_elsewhere'])
    assert stretch['who'] == 'cuspy' and stretch['to_us']


def test_second_interface_to_the_end(play, analyze):
    """The process ends while the other client has the device: we flush nothing of it, and the period has no end."""
    got = play(f'init kernel=5 sync {BEGIN2} kernel=6 sync', **V2)
    assert not_ours(got, 5, 11) and not client_s(got)
    assert_equals_log(got)
    assert got.trace.complete
    assert scripted.only(scripted.only(analyze('info', got.trace.path)['rows'])['device_elsewhere'])['to_us'] is None


@pytest.mark.parametrize('end', ['unsubscribe', 'finalize'])
def test_second_interface_again_and_again(play, end):
    one = f'{BEGIN2} kernel=2 sync ' + END2.replace('unsubscribe', end) + ' kernel=3 sync '
    got = play('init kernel=1 sync ' + one * 5, **V2)
    theirs = sum((kernels_between(got, 1 + 5 * i, 3 + 5 * i) for i in range(5)), Counter())
    assert client_s(got) == theirs and len(theirs) == 10
    got.log = [w for w in got.log if w['t'] != 'kernel' or w['correlation'] not in theirs]
    assert_equals_log(got)


@pytest.mark.parametrize('nasty', ['late', 'held', 'order', 'names', 'thread', 'lock', 'exit'])
def test_second_interface_with_other_nasty_switches(play, nasty):
    """Work that still runs when the device is given away is recorded later, or counted."""
    got = play(f'init kernel=5 {BEGIN2} kernel=6 sync {END2} kernel=7 sync', {'SIMGPU_REAL': '1'}, script='alpha 3ms\nbeta 2ms\n',
               nasty=f'v2,{nasty}', version='13.3')
    not_ours(got, 5, 11)
    assert got.trace.complete and nr_ours(got) <= nr_logged(got)
    assert nr_ours(got) == nr_logged(got) or drops(got.trace).get('device_kept')


def test_both_interfaces_exclude_each_other(play):
    """A session of one interface refuses the other one, in the same way as without us."""
    first = f'init {START} kernel=2 onlyv2 kernel=2 sync {STOP} kernel=1 sync'
    second = f'init {BEGIN2} kernel=2 register enable=CONCURRENT_KERNEL kernel=2 sync {END2} {START} kernel=1 sync {STOP}'
    for steps in (first, second):
        alone, got = play(steps, preload=False, **V2), play(steps, **V2)
        results = [[(x['step'], x['result']) for x in g.lines if 'step' in x] for g in (alone, got)]
        assert results[0] == results[1] and {r for _, r in results[0]} > {'CUPTI_SUCCESS'}
        assert numbered(alone) == numbered(got)


def test_one_interface(play, analyze):
    """Before 13.2 cuptiSubscribe_v2 is another name of cuptiSubscribe, so the device stays ours."""
    got = play('init kernel=5 sync onlyv2 kernel=6 sync unsubscribe kernel=7 sync', nasty='v2', version='13.1')
    assert_equals_log(got)
    assert scripted.only(analyze('info', got.trace.path)['rows'])['device_elsewhere'] == []


def test_refused_subscription(play):
    """The slot is taken, so the subscription fails; the trace shows that we let go of the device for a moment."""
    got = play('init kernel=5 sync onlyv2 kernel=7 sync', nasty='v2,slot', version='13.3')
    assert [x['result'] for x in got.lines if x.get('step') == 'onlyv2'] == ['CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED']
    assert_equals_log(got)
    assert [r.values['state'] for r in got.trace.records if r.kind == 'elsewhere'] == [1, 0]


@pytest.mark.parametrize('when', ['before', 'in'])
def test_fork_while_the_device_is_elsewhere(play, when):
    steps = {'before': f'{BEGIN2} init kernel=2 sync fork {END2} kernel=3 sync', 'in': f'init kernel=1 sync {BEGIN2} fork {END2} kernel=3 sync'}
    got = play(steps[when], **V2)
    assert sum(len(records(t, 'kernel')) for t in got.traces) == {'before': 3, 'in': 4}[when]
