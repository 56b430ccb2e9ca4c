"""test_plain_scripts - Python programs that never call anything that is recorded: after a second outside imports they are sampled."""

import signal
import subprocess
import time

import pytest

import pythons
import tfr
from conftest import clean_environment

pytestmark = pytest.mark.slow  # the programs must run for a second
by_version = pythons.by_version()

SPIN = 'import time\ndef spin(s):\n    end = time.monotonic() + s\n    while time.monotonic() < end: pass\n'
IMPORT = 'import time\nend = time.monotonic() + 1.5\nwhile time.monotonic() < end: pass\n'
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


@by_version
def test_a_plain_script(play, analyze, python):
    """What was found before the process woke is there too."""
    done = play(python, SPIN + 'spin(.6)\ntime.sleep(.7)\nspin(.3)\n')
    path, = traces(done.dir)
    assert tfr.read(path).complete
    answer = analyze('hotspots', done.dir)
    rows = {(row['name'], row['waits_in'] in ('clock_nanosleep', 'select', 'pselect6', 'pselect')): row for row in answer['rows']}
    assert 7e5 < rows['spin', False]['wall_us'] < 1.3e6 and 5e5 < rows['<module>', True]['waiting_us'] < 1e6
    info, = analyze('info', done.dir)['rows']
    assert 1.3e6 < info['duration_us'] < 4e6


@by_version
def test_scripts_that_leave_no_file(play, python):
    """What runs for less than a second leaves no file, however long it imports; nor does one that is not to be sampled."""
    assert not traces(play(python, SPIN + 'spin(.4)\n').dir)
    assert not traces(play(python, 'import slow\n').dir)
    for env in ({'TFI_SAMPLE_HZ': 0}, {'ENABLE_PROFILER_NAMES': ''}, {'ENABLE_PROFILER_NAMES': 's', 'TFI_LOG': 'error'}):
        assert not traces(play(python, SPIN + 'spin(1.3)\n', env=env).dir)


@by_version
def test_imports_before_a_script_ran(play, analyze, python):
    """They are kept in memory and written with the rest."""
    done = play(python, 'import slow\n' + SPIN + 'spin(1.3)\n')
    totals = analyze('hotspots', done.dir)['totals']
    assert 1e6 < totals['imports_us'] < 3e6


@by_version
@pytest.mark.parametrize('way', ['fork', 'spawn', 'forkserver'])
def test_processes_of_multiprocessing(play, analyze, python, way):
    """The parent that waits and the child that works are recorded; the server of forks and the tracker are not."""
    done = play(python, PROCESSES, way)
    assert done.out == '0\n'
    found = [{row['name']: row for row in analyze('hotspots', path)['rows']} for path in traces(done.dir)]
    assert len(found) == 2
    assert sorted(rows.get('spin', {}).get('wall_us', 0) > 1e6 for rows in found) == [False, True]


@by_version
def test_a_plain_script_that_is_killed(analyze, lib, tmp_path, python):
    environment = {**clean_environment(), 'LD_PRELOAD': str(lib), 'TFI_OUTPUT_DIR': str(tmp_path / 'out')}
    process = subprocess.Popen([python.path, '-c', SPIN + 'spin(600)'], env=environment)
    end = time.monotonic() + 30
    while not traces(tmp_path / 'out') and time.monotonic() < end:
        time.sleep(.1)
    time.sleep(1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    rows = {row['name']: row for row in analyze('hotspots', tmp_path / 'out', rc=None)['rows']}
    assert rows['spin']['wall_us'] > 9e5


def test_a_schedule_decides_what_is_sampled(play, analyze, python):
    """Before the delay of TFI_CAPTURE nothing was recorded, so no sample from there is."""
    done = play(pythons.SEEN[-1], SPIN + 'def late(): spin(.8)\nspin(2.2)\nlate()\n', env={'TFI_CAPTURE': 'delay=2'})
    trace = tfr.read(traces(done.dir)[0])
    looks = sum(r.values['looks'] for r in trace.records if r.kind == 'sample')
    assert 5 < looks < 60
