"""test_machine - the machine and the process as the kernel counts them: processors, limits, threads and memory over time."""

import os
import sys
from pathlib import Path

import pytest

import iotrace

# Wakes the library, then takes 96 MiB and starts three threads; both are there when the process ends.
GROWS = '''import os, threading
os.close(os.open("/dev/null", os.O_RDONLY))
held = b"x" * (96 << 20)
forever = threading.Event()
for i in range(3): threading.Thread(target=forever.wait, daemon=True).start()
'''
END = 'os._exit(0)'


@pytest.fixture
def one_processor():
    all_of_them = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(all_of_them)})
    yield str(min(all_of_them))
    os.sched_setaffinity(0, all_of_them)


def test_facts(run, analyze, one_processor):
    result = run([sys.executable, '-S', '-c', GROWS + END], {**iotrace.ON, 'OMP_NUM_THREADS': 32, 'MKL_NUM_THREADS': 5})
    row, = analyze('info', result.dir)['rows']
    machine = row['machine']
    assert machine['processors'] == os.cpu_count()
    assert machine['usable_processors'] == 1 and machine['affinity'] == one_processor
    assert machine['memory_bytes'] == os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
    assert machine['gpus'] == len([p for p in Path('/dev').glob('nvidia[0-9]*')])
    assert machine['settings']['OMP_NUM_THREADS'] == '32' and machine['settings']['MKL_NUM_THREADS'] == '5'
    assert machine['operator_threads'] == []
    assert 'OMP_NUM_THREADS' in row['reveals']['environment']
    assert machine['most_threads'] == 4 and machine['peak_resident_bytes'] >= 96 << 20


def test_samples(run, analyze):
    """The first sample is taken when recording begins, the last one at the end."""
    result = run([sys.executable, '-S', '-c', GROWS + END], iotrace.ON)
    answer = analyze('memory', '--layout', 'process', result.dir)
    first, last = answer['rows'][0], answer['rows'][-1]
    assert (first['threads'], last['threads']) == (1, 4)
    assert first['resident_bytes'] + (96 << 20) <= last['resident_bytes'] == answer['totals']['peak_resident_bytes']
    assert [r['time_us'] for r in answer['rows']] == sorted(r['time_us'] for r in answer['rows'])
    assert answer['totals']['most_threads'] == 4 and answer['totals']['rows'] == len(answer['rows'])


def limits(controller, name, nothing):
    """The limits in a cgroup of version 1 and those above it, as the kernel has them."""
    line = next((line for line in Path('/proc/self/cgroup').read_text().splitlines() if controller in line.split(':')[1].split(',')), None)
    if line is None:
        return []
    group, root = Path('/sys/fs/cgroup') / controller / line.split(':')[2].strip('/'), Path('/sys/fs/cgroup') / controller
    files = [place / name for place in (group, *group.parents) if place.is_relative_to(root)]
    return [value for value in (int(file.read_text()) for file in files if file.exists()) if value not in nothing and value < 1 << 62]


def test_limits(run, analyze):
    result = run([sys.executable, '-S', '-c', GROWS + END], iotrace.ON)
    machine = analyze('info', result.dir)['rows'][0]['machine']
    if Path('/sys/fs/cgroup/cgroup.controllers').exists():
        relative = Path('/proc/self/cgroup').read_text().strip().split('::')[1].strip('/')
        group = Path('/sys/fs/cgroup') / relative
        texts = [p / 'memory.max' for p in (group, *group.parents)]
        found = [int(p.read_text()) for p in texts if p.exists() and p.read_text().strip() != 'max']
    else:
        found = limits('memory', 'memory.limit_in_bytes', ())
    assert machine['memory_limit_bytes'] == min(found, default=None)


def test_closed_by_the_program(run, analyze):
    """A program that closes all descriptors loses no record and no sample."""
    closes = GROWS.replace('held =', 'os.closerange(3, 4096); held =') + END
    result = run([sys.executable, '-S', '-c', closes], iotrace.ON)
    assert result.rc == 0 and not result.err
    rows = analyze('memory', '--layout', 'process', result.dir)['rows']
    assert (rows[0]['threads'], rows[-1]['threads']) == (1, 4)
    assert analyze('info', result.dir)['rows'][0]['complete']


def test_child_has_its_own(run, analyze):
    """The samples of a forked child are its own, not those of the process whose descriptors it has."""
    child = GROWS + '''
if os.fork() == 0:
    del held
    os.close(os.open("/dev/null", os.O_RDONLY))
    os._exit(0)
os.wait()
''' + END
    result = run([sys.executable, '-S', '-W', 'ignore', '-c', child], iotrace.ON)
    rows = analyze('memory', '--layout', 'process', result.dir)['rows']
    threads = {}
    for row in rows:
        threads.setdefault(row['pid'], []).append(row['threads'])
    assert sorted(t[-1] for t in threads.values()) == [1, 4]


def test_small_limit_of_descriptors(run, analyze):
    """Samples need no descriptor that stays open."""
    result = run(['sh', '-c', 'ulimit -n 8; exec "$@"', 'sh', sys.executable, '-S', '-c', GROWS + END], iotrace.ON)
    rows = [row for row in analyze('memory', '--layout', 'process', result.dir)['rows'] if row['threads'] == 4]
    assert result.rc == 0 and rows
