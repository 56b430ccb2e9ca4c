"""test_plain_scripts - Python programs that never call anything that is recorded: after a second outside imports they are sampled.

The programs tell what their own clocks said, because a busy machine makes each part longer.
"""

import json
import signal
import subprocess
import time

import pytest

import pythons
import tfr
from conftest import COMMAND_TIMEOUT, clean_environment

pytestmark = pytest.mark.slow  # the programs must run for a second
by_version = pythons.by_version()

SPIN = 'import time\ndef spin(s):\n    end = time.monotonic() + s\n    while time.monotonic() < end: pass\n'
IMPORT = 'import time\nbegin = time.monotonic()\nwhile time.monotonic() < begin + 1.5: pass\ntook = time.monotonic() - begin\n'
AGE = """
import os, time
def age():  # of the process, in seconds
    with open('/proc/self/stat') as file: started = int(file.read().rpartition(')')[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf('SC_CLK_TCK')
"""
PROCESSES = '''import multiprocessing, sys, time
from spinning import spin
if __name__ == '__main__':
    context = multiprocessing.get_context(sys.argv[1])
    child = context.Process(target=spin, args=(1.5,))
    child.start()
    child.join()
    print(child.exitcode)
'''


@pytest.fixture
def play(run, tmp_path):
    """play(python, program, ...): runs it beside the modules `spinning` and `slow`, and returns the result."""
    (tmp_path / 'spinning.py').write_text(SPIN)
    (tmp_path / 'slow.py').write_text(IMPORT)

    def play_program(python, program, *arguments, env=None):
        script = tmp_path / 'program.py'
        script.write_text(program)
        result = run([python.path, script, *arguments], env={'PYTHONDONTWRITEBYTECODE': 1, **(env or {})})
        assert result.rc == 0 and not result.err, result.err
        return result
    return play_program


def traces(directory):
    return sorted(directory.glob('*.tfr')) if directory.exists() else []


def main_samples(trace):
    """The samples of the main thread as (begin and duration in seconds of time.monotonic(), looks)."""
    clock = tfr.Clock(trace.records)

    def seconds(ticks):
        return float(clock.monotonic(ticks)) / 1e9
    found = [r.values for r in trace.records if r.kind == 'sample' and r.values['tid'] == int(trace.info['pid'])]
    return sorted((seconds(v['time']), seconds(v['time'] + v['duration']) - seconds(v['time']), v['looks']) for v in found)


@by_version
def test_a_plain_script(play, analyze, python):
    """What was found before the process woke is there too. At each change of the function a period may count for the wrong one."""
    done = play(python, SPIN + "at = [time.monotonic()]\nfor what, s in (spin, .6), (time.sleep, .7), (spin, .3): what(s), at.append(time.monotonic())\nprint(at)")
    path, = traces(done.dir)
    trace, at = tfr.read(path), json.loads(done.out)
    samples = main_samples(trace)
    assert trace.complete and samples[0][0] < at[1] and max(begin for begin, *_ in samples) > at[2]
    unsure = 4 * max(duration for _, duration, looks in samples if looks == 1) + max(0, samples[0][0] - at[0])
    rows = {(row['name'], row['waits_in'] in ('clock_nanosleep', 'select', 'pselect6', 'pselect')): row for row in analyze('hotspots', done.dir)['rows']}
    assert abs(rows['spin', False]['wall_us'] / 1e6 - (at[1] - at[0] + at[3] - at[2])) <= unsure
    assert abs(rows['<module>', True]['waiting_us'] / 1e6 - (at[2] - at[1])) <= unsure


@by_version
def test_scripts_that_leave_no_file(play, python, tmp_path):
    """What runs for less than a second leaves no file, however long it imports; nor does one that is not to be sampled."""
    for i, program in enumerate((SPIN + AGE + 'spin(.3)\nprint(age())', 'import slow\n' + AGE + 'print(age() - slow.took)')):
        done = play(python, program, env={'TFI_OUTPUT_DIR': tmp_path / f'short{i}'})
        assert not traces(done.dir) or float(done.out) > .6  # a busy machine may take that long
    for i, env in enumerate(({'TFI_SAMPLE_HZ': 0}, {'ENABLE_PROFILER_NAMES': ''}, {'ENABLE_PROFILER_NAMES': 's', 'TFI_LOG': 'error'})):
        assert not traces(play(python, SPIN + 'spin(1.3)\n', env={**env, 'TFI_OUTPUT_DIR': tmp_path / f'never{i}'}).dir)


@by_version
def test_imports_before_a_script_ran(play, analyze, python):
    """They are kept in memory and written with the rest."""
    done = play(python, 'import slow\n' + SPIN + AGE + 'spin(1.3)\nprint([slow.took, age()])')
    took, age = json.loads(done.out)
    totals = analyze('hotspots', done.dir)['totals']
    assert took - age / 10 < totals['imports_us'] / 1e6 < age


@by_version
@pytest.mark.parametrize('way', ['fork', 'spawn', 'forkserver'])
def test_processes_of_multiprocessing(play, analyze, python, way):
    """The parent that waits and the child that works are recorded; the server of forks and the tracker are not."""
    done = play(python, PROCESSES, way)
    assert done.out == '0\n'
    found = [{row['name']: row for row in analyze('hotspots', path)['rows']} for path in traces(done.dir)]
    assert len(found) == 2
    assert sorted(rows.get('spin', {}).get('wall_us', 0) > 5e5 for rows in found) == [False, True]


@by_version
def test_a_plain_script_that_is_killed(analyze, lib, tmp_path, python):
    environment = {**clean_environment(), 'LD_PRELOAD': str(lib), 'TFI_OUTPUT_DIR': str(tmp_path / 'out')}
    process = subprocess.Popen([python.path, '-c', SPIN + 'spin(600)'], env=environment)
    end, written = time.monotonic() + COMMAND_TIMEOUT, 0

    def spun():
        answer = analyze('hotspots', tmp_path / 'out', rc=any, format='json') if traces(tmp_path / 'out') else {'rows': []}
        return max((row['wall_us'] for row in answer['rows'] if row['name'] == 'spin'), default=0)
    try:
        while written < 1e6 and time.monotonic() < end:
            time.sleep(.1)
            written = spun()
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert 1e6 <= written <= spun()


def test_a_schedule_decides_what_is_sampled(play, analyze, python):
    """Before the delay of TFI_CAPTURE nothing was recorded, so no sample from there is."""
    done = play(pythons.SEEN[-1], SPIN + AGE + 'begin = time.monotonic() - age()\nspin(2.2)\nspin(.8)\nprint(begin)', env={'TFI_CAPTURE': 'delay=2'})
    samples = main_samples(tfr.read(traces(done.dir)[0]))
    first, *_ = [begin for begin, *_ in samples]
    assert first > float(done.out) + 1.5  # a period may have begun before the delay's end
