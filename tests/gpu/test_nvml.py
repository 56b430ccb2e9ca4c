"""test_nvml - clocks, power, temperature and throttle reasons by NVML: samples equal the simulated NVML's own log.

tests/victims_gpu/sampled.c obeys the test line by line, so that no test depends on the speed of the machine: the test
waits until the simulated NVML (tests/simgpu/nvml_sim.c) has logged what it needs.
"""

import json
import os
import signal
import subprocess
import time
from types import SimpleNamespace

import pytest

import scripted
import tfr
from conftest import BUILD, CLOSING, COMMAND_TIMEOUT, built, without_unmatched
from scripted import drops, only
from simgpu import truth

GPU = BUILD / 'simgpu'
SM, MEMORY, POWER, TEMPERATURE, BUSY, REASONS = 1, 2, 4, 8, 16, 32
ALL = SM | MEMORY | POWER | TEMPERATURE | BUSY | REASONS
LAST = 'nvmlDeviceGetCurrentClocksEventReasons'
# The column of each function, with its bit.
COLUMNS = {'nvmlDeviceGetClockInfo': ('sm_mhz', SM), 'nvmlDeviceGetClockInfo/memory': ('memory_mhz', MEMORY),
           'nvmlDeviceGetPowerUsage': ('power_mw', POWER), 'nvmlDeviceGetTemperature': ('temperature', TEMPERATURE),
           'nvmlDeviceGetUtilizationRates': ('busy', BUSY), LAST: ('reasons', REASONS),
           'nvmlDeviceGetCurrentClocksThrottleReasons': ('reasons', REASONS)}
NOT_SUPPORTED, NOT_FOUND, LOST = 3, 6, 15
SLACK = 20000  # ns: the allowed difference between the clocks of a trace and of the log


class Victim:
    """The program, told what to do."""

    def __init__(self, directory, lib, hz, script, first, **more):
        self.directory = directory
        (directory / 'nvml-script').write_text('\n'.join(script) + '\n')
        ours = {'LD_PRELOAD': lib, 'TFI_OUTPUT_DIR': directory / 'run'} | ({'TFI_NVML_HZ': hz} if hz is not None else {})
        env = truth.environment(directory, SIMNVML_LOG=directory / 'nvml-%p.jsonl', SIMNVML_SCRIPT=directory / 'nvml-script', **ours)
        env |= {k: str(v) for k, v in more.items()}
        if first:
            env['LD_LIBRARY_PATH'] = f'{first}:{env["LD_LIBRARY_PATH"]}'
        built(GPU / 'libnvidia-ml.so.1')
        self.process = subprocess.Popen([built(BUILD / 'victims_gpu' / 'sampled')], env=env, cwd=directory, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __call__(self, line):
        """Gives it a line; returns what it printed before `done`."""
        self.process.stdin.write(line + '\n')
        self.process.stdin.flush()
        return list(iter(lambda: self.process.stdout.readline().strip(), 'done'))

    def log(self):
        path = self.directory / f'nvml-{self.process.pid}.jsonl'
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith('\n')]

    def wait(self, enough, meanwhile=None):
        """Waits until `enough(log)` is true, and gives it the line `meanwhile` again and again."""
        end = time.monotonic() + COMMAND_TIMEOUT
        while not enough(self.log()):
            if meanwhile:
                self(meanwhile)
            assert time.monotonic() < end, self.log()[-10:]
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.005)

    def wait_samples(self, count, gpu=None, func=LAST, meanwhile=None):
        """Waits for `count` more samples of the GPU."""
        def taken():
            return sum(c['func'] == func and gpu in (None, c['gpu']) for c in self.log())
        want = taken() + count
        self.wait(lambda log: taken() >= want, meanwhile)

    def end(self, rc=0):
        _, err = self.process.communicate(timeout=COMMAND_TIMEOUT)
        assert self.process.returncode == rc, err
        run = SimpleNamespace(log=self.log(), traces=[], said=[])
        run.said = [line for line in without_unmatched(CLOSING.sub('', err)).splitlines() if line.startswith('tfinject')]
        if (self.directory / 'run').exists():
            run.traces = [t for t in scripted.traces(self.directory / 'run') if f'.{self.process.pid}.' in t.path.name]
        return run


@pytest.fixture
def start(tmp_path, lib):
    running = []

    def start(hz=100, script=(), first=None, **more):
        running.append(Victim(tmp_path, lib, hz, script, first, **more))
        return running[-1]
    yield start
    for victim in running:
        victim.process.kill()
        victim.process.wait()


def samples(trace):
    return sorted((SimpleNamespace(**r.values) for r in trace.records if r.kind == 'device_sample'), key=lambda s: s.time)


def uuids(trace):
    """{device number: last byte of its UUID}: the GPU's number in the simulated machine."""
    return {r.values['device']: r.values['uuid_low'] & 0xff for r in trace.records if r.kind == 'device'}


def nanoseconds(trace):
    """A function from a trace's ticks to nanoseconds of CLOCK_MONOTONIC."""
    clock = [r.values for r in trace.records if r.kind == 'clock' and r.values['clock'] == tfr.MONOTONIC]
    a, b = min(clock, key=lambda c: c['ticks']), max(clock, key=lambda c: c['ticks'])
    rate = (b['value'] - a['value']) / (b['ticks'] - a['ticks'])
    return lambda ticks: a['value'] + (ticks - a['ticks']) * rate


def check_equal(run):
    """Each sample has the values of the log's calls within its time, and each complete round of calls is a sample.
    Returns the samples."""
    trace = only(run.traces)
    at, gpu_of, made = nanoseconds(trace), uuids(trace), samples(trace)
    calls = [c for c in run.log if c['func'] in COLUMNS]
    assert made
    for s in made:
        begin, end = at(s.time) - SLACK, at(s.time + s.duration) + SLACK
        inside = [c for c in calls if c['gpu'] == gpu_of[s.device] and begin <= c['start'] and c['end'] <= end]
        assert len({c['func'] for c in inside}) == len(inside)
        known = 0
        for c in inside:
            column, bit = COLUMNS[c['func']]
            assert getattr(s, column) == c['value'], c
            known |= bit if c['result'] == 0 else 0
        assert s.known == known
    last = [c for c in calls if c['func'] in (LAST, 'nvmlDeviceGetCurrentClocksThrottleReasons')]
    assert len(last) - 1 <= len(made) <= len(last)  # the end may come between the last call and its record
    assert {c['tid'] for c in calls}.isdisjoint({c['pid'] for c in calls})
    return made


# ---- what is recorded ----

SCRIPT = ['0 0 sm=1980 memory=2619 power=650123 temperature=61 busy=97 memory_busy=44 reasons=0x0',
          '1 0 sm=1200 memory=2600 power=90000 temperature=33 busy=5 memory_busy=1 reasons=0x1',
          '0 60 sm=345 power=700000 temperature=88 reasons=0x44']


def test_samples_equal_the_log(start):
    """Two devices, one of which changes its clock, its power, its temperature and its reasons."""
    v = start(script=SCRIPT)
    v('use 0')
    v('use 1')
    v.wait(lambda log: any(c['value'] == 345 for c in log))
    v.wait_samples(3, gpu=0)
    v.wait_samples(3, gpu=1)
    run = v.end()
    made = check_equal(run)
    assert all(s.known == ALL and s.flags == 0 for s in made)
    assert {(s.device, s.sm_mhz, s.power_mw, s.temperature, s.busy, s.memory_busy, s.reasons) for s in made} >= {
        (0, 345, 700000, 88, 97, 44, 0x44), (1, 1200, 90000, 33, 5, 1, 1)}
    assert uuids(run.traces[0]) == {0: 0, 1: 1} and run.said == []
    assert all(r.values['simulated'] for r in run.traces[0].records if r.kind == 'device')


def test_the_rate_is_an_upper_limit(start):
    """No machine takes more samples than the variable says: one in each interval, late in the first one if it is busy."""
    v = start(hz=20)
    v('use 0')
    v.wait_samples(6)
    begins = [c['start'] for c in v.end().log if c['func'] == 'nvmlDeviceGetClockInfo']
    assert len(begins) < (begins[-1] - begins[0]) / 50e6 + 2


def test_the_machines_numbers_are_not_the_programs(start):
    """CUDA_VISIBLE_DEVICES makes GPU 3 device 0: its clock is recorded, and no other GPU is asked."""
    v = start(script=['* 0 sm=1000', '3 0 sm=333'], SIMGPU_DEVICES=4, CUDA_VISIBLE_DEVICES='3,1')
    v('use 0')
    v.wait_samples(3)
    run = v.end()
    made = check_equal(run)
    assert {(s.device, s.sm_mhz) for s in made} == {(0, 333)} and uuids(run.traces[0]) == {0: 3}
    assert {c['gpu'] for c in run.log if c['func'] in COLUMNS} == {3}


def test_a_device_that_is_used_later(start):
    v = start()
    v('use 1')
    v.wait_samples(3, gpu=1)
    assert not any(c['gpu'] == 0 for c in v.log())
    v('use 0')
    v.wait_samples(3, gpu=0)
    assert {s.device for s in check_equal(v.end())} == {0, 1}


def test_stage_timing_only(start):
    """Without device records the clocks are recorded all the same, once the process records anything."""
    v = start(ENABLE_PROFILER_NAMES='')
    v('use 0')
    assert v('opened') == [] and v.log() == []
    v('stage one')
    v.wait_samples(3)
    assert {s.device for s in check_equal(v.end())} == {0}


# ---- when NVML is not called ----

def test_off_by_default(start):
    """Without the variable, and with 0, NVML is not even opened."""
    for hz in (None, 0):
        v = start(hz=hz)
        v('use 0')
        v('stage one')
        assert v('opened') == []
        run = v.end()
        assert run.log == [] and run.said == [] and not samples(only(run.traces))


def test_no_device_no_nvml(start):
    """A process that records stages and only initialises the driver does not open NVML."""
    v = start()
    for _ in range(3):
        v('stage one')
        time.sleep(0.1)  # longer than the interval at which the devices are looked for
    assert v('opened') == []
    assert v.end().log == []


def test_a_process_that_sleeps(start):
    """With a list of names and no such stage, a process that uses a device opens neither a file nor NVML."""
    v = start(ENABLE_PROFILER_NAMES='denoise')
    v('use 0')
    time.sleep(0.2)
    assert v('opened') == []
    run = v.end()
    assert run.log == [] and run.traces == []


@pytest.mark.parametrize('value', ['-1', '1001', '2.5', 'often'])
def test_a_bad_rate(start, value):
    v = start(hz=value)
    v('use 0')
    v('stage one')
    assert v('opened') == []
    said = only(v.end().said)
    assert 'TFI_NVML_HZ' in said and 'a whole number from 0 to 1000' in said


# ---- failures ----

def test_the_library_is_missing(start, tmp_path):
    """One warning names the library; the program and its records are as without the variable."""
    (tmp_path / 'empty').mkdir()
    (tmp_path / 'empty' / 'libnvidia-ml.so.1').touch()
    v = start(first=tmp_path / 'empty')
    v('use 0')
    for _ in range(3):
        v('stage one')
        time.sleep(0.1)
    run = v.end()
    assert 'libnvidia-ml.so.1' in only(run.said) and not samples(only(run.traces))
    assert scripted.stages(run.traces[0]) == ['one'] * 3


def test_nvml_does_not_start(start):
    v = start(SIMNVML_FAIL='nvmlInit_v2=4')
    v('use 0')
    v.wait(lambda log: log)
    v('stage one')
    run = v.end()
    assert 'Insufficient Permissions (simulated)' in only(run.said) and not samples(only(run.traces))
    assert [c['func'] for c in run.log] == ['nvmlInit_v2']


def test_an_older_driver(start):
    """The functions have their older names there."""
    v = start(first=built(GPU / 'old' / 'libnvidia-ml.so.1').parent, script=['0 0 reasons=0x8'])
    v('use 0')
    v.wait_samples(3, func='nvmlDeviceGetCurrentClocksThrottleReasons')
    run = v.end()
    assert {s.reasons for s in check_equal(run)} == {8} and run.said == []
    assert {'nvmlInit', 'nvmlDeviceGetCurrentClocksThrottleReasons'} <= {c['func'] for c in run.log}


def test_a_value_that_the_device_lacks(start):
    """An unsupported value is unknown, counted, and no warning; the other values are there."""
    v = start(SIMNVML_FAIL=f'nvmlDeviceGetPowerUsage={NOT_SUPPORTED}')
    v('use 0')
    v.wait_samples(4)
    run = v.end()
    made = check_equal(run)
    assert {s.known for s in made} == {ALL - POWER} and {s.power_mw for s in made} == {0}
    assert run.said == [] and drops(only(run.traces))['nvml'] in (len(made), len(made) + 1)


def test_a_gpu_that_is_lost(start):
    """From the third sample on every call fails: each value is reported once, and the device has no values."""
    v = start(SIMNVML_FAIL=','.join(f'{f}={LOST}:after 2' for f in COLUMNS))
    v('use 0')
    v.wait_samples(6)
    run = v.end()
    made = check_equal(run)
    assert [s.known for s in made] == [ALL] * 2 + [0] * (len(made) - 2)
    assert len(run.said) == 6 and all('GPU is lost (simulated)' in line for line in run.said)


def test_a_part_of_a_gpu(start):
    """The UUID of a MIG device is none of NVML's GPUs: the whole GPU is found by its PCI id, and the records say so."""
    v = start(SIMNVML_MIG=1, SIMNVML_FAIL=f'nvmlDeviceGetUtilizationRates={NOT_SUPPORTED}', script=['1 0 sm=777'])
    v('use 1')
    v.wait_samples(3)
    run = v.end()
    assert {(s.device, s.sm_mhz, s.known, s.flags) for s in check_equal(run)} == {(1, 777, ALL - BUSY, 1)} and run.said == []


def test_a_device_that_nvml_does_not_know(start):
    """It is reported once; another device is recorded."""
    v = start(SIMNVML_FAIL=f'nvmlDeviceGetHandleByUUID={NOT_FOUND}:after 1,nvmlDeviceGetHandleByPciBusId_v2={NOT_FOUND}')
    v('use 0')
    v.wait_samples(2)
    v('use 1')
    v.wait(lambda log: any('PciBusId' in c['func'] for c in log))
    v.wait_samples(2)
    run = v.end()
    assert {s.device for s in check_equal(run)} == {0}
    assert 'device 1' in only(run.said) and 'Not Found (simulated)' in run.said[0]


@pytest.mark.parametrize('symbol,asked', [('nvmlInit_v2', 'its start'), ('nvmlDeviceGetPowerUsage:after 3', 'the power')])
def test_a_call_that_never_returns(start, symbol, asked):
    """The program forks and ends, its records are whole, and one line says where NVML hangs."""
    v = start(SIMNVML_HANG=symbol)
    v('use 0')
    v.wait(lambda log: any(c['func'].startswith('hangs') for c in log))
    for _ in range(20):
        v('fork')
    v('stage one')
    run = v.end()
    line = only(run.said)
    assert f'NVML was asked for {asked}' in line and 'has not answered' in line
    trace = only(run.traces)
    assert scripted.stages(trace) == ['one'] and len(samples(trace)) == (0 if 'Init' in symbol else 3)


# ---- the life of a process ----

def test_fork(start, tmp_path):
    """A fork ends the sampler, which goes on afterwards; the child does not call NVML."""
    v = start()
    v('use 0')
    for _ in range(2):
        v.wait_samples(2)
        v('fork')
        v.wait_samples(1, meanwhile='stage again')  # a clock record starts the threads again, and stages cause one
    v.wait_samples(2)
    run = v.end()
    check_equal(run)
    assert len({c['tid'] for c in run.log if c['func'] == LAST}) >= 2
    assert {c['pid'] for path in tmp_path.glob('nvml-*.jsonl') for c in map(json.loads, path.read_text().splitlines())} == {v.process.pid}
    children = [t for t in scripted.traces(tmp_path / 'run') if t.path not in [x.path for x in run.traces]]
    assert len(children) == 2 and all(scripted.stages(t) == ['child'] and not samples(t) for t in children)


def test_exec(start):
    """The trace ends with the exec and has all samples."""
    v = start()
    v('use 0')
    v.wait_samples(3)
    v.process.stdin.write('exec\n')
    run = v.end()
    check_equal(run)


def test_an_exec_that_fails(start):
    """The next stage opens a second trace, with samples of its own."""
    v = start()
    v('use 0')
    v.wait_samples(3)
    v('failing')
    v('stage second')
    v.wait_samples(3)
    run = v.end()
    assert len(run.traces) == 2 and all(len(samples(t)) >= 2 for t in run.traces)
    assert sum(c['func'].startswith('nvmlInit') for c in run.log) == 1


@pytest.mark.parametrize('more', [{}, {'SIMNVML_HANG': 'nvmlDeviceGetPowerUsage:after 3'}], ids=['answers', 'hangs'])
@pytest.mark.parametrize('status', [0, 7])
def test_the_last_thread_leaves(start, more, status):
    """The library's two threads do not keep the process for each other, even if one of them hangs in NVML."""
    v = start(**more)
    v('use 0')
    v.wait(lambda log: sum(c['func'] == 'nvmlDeviceGetClockInfo/memory' for c in log) >= 4)
    v.process.stdin.write(f'leave {status}\n')
    run = v.end(rc=status)
    assert only(run.traces).footer['reason'] == '_exit'


def test_sigkill(start):
    """The samples up to the kill are in the trace and its live file."""
    v = start()
    v('use 0')
    v.wait_samples(5)
    v.process.stdin.write('kill\n')
    run = v.end(rc=-signal.SIGKILL)
    check_equal(run)
    assert os.path.exists(f'{run.traces[0].path}.live')


# ---- beside a late rank ----

@pytest.mark.slow
def test_a_throttled_clock_beside_the_late_rank(tmp_path, lib, analyze):
    """Eight ranks, each on a GPU of its own, of which rank 2 is late and throttled: `stragglers` shows both in its row."""
    (tmp_path / 'nvml-script').write_text('* 0 sm=1980 reasons=0x0 temperature=55\n2 0 sm=600 power=250000 temperature=91 reasons=0x48\n')
    env = truth.environment(tmp_path, ['*nccl* 250us'], LD_PRELOAD=lib, TFI_OUTPUT_DIR=tmp_path / 'run', TFI_NVML_HZ=1000, SIMGPU_DEVICES=8,
                            SIMNVML_SCRIPT=tmp_path / 'nvml-script', SIMNVML_LOG=tmp_path / 'nvml-%p.jsonl')
    program = [built(BUILD / 'victims_gpu' / 'nccl_ranks')]
    ranks = [subprocess.Popen([*program, str(r), '8', tmp_path / 'id', 'late', '2', '200', '3'], cwd=tmp_path,
                              env={**env, 'RANK': str(r), 'WORLD_SIZE': '8', 'CUDA_VISIBLE_DEVICES': str(r)}) for r in range(8)]
    assert [p.wait(timeout=COMMAND_TIMEOUT) for p in ranks] == [0] * 8
    first = analyze('stragglers', tmp_path / 'run')['rows'][0]
    assert (first['rank'], first['stage']) == (2, 'step') and first['late_us'] > 400e3 and first['samples'] > 0
    assert {k: first[k] for k in ('sm_clock_mhz', 'sm_clock_min_mhz', 'power_w', 'temperature_c', 'throttle')} == {
        'sm_clock_mhz': 600, 'sm_clock_min_mhz': 600, 'power_w': 250, 'temperature_c': 91, 'throttle': ['hw_slowdown', 'hw_thermal_slowdown']}
    line = next(x for x in analyze('stragglers', tmp_path / 'run', format=None).out.splitlines() if x.split()[0] == '2')
    assert line.endswith('hw_slowdown, hw_thermal_slowdown')
    for row in analyze('info', tmp_path / 'run')['rows']:
        [device] = row['devices']
        assert device['samples'] == row['events']['device_sample'] > 0 and device['simulated']
    clocks = {row['rank']: row for row in analyze('clocks', tmp_path / 'run')['rows']}
    counted = {row['rank']: row['events']['device_sample'] for row in analyze('info', tmp_path / 'run')['rows']}
    assert {rank: row['samples'] for rank, row in clocks.items()} == counted
    assert {k: clocks[2][k] for k in ('sm_clock_mhz', 'sm_clock_max_mhz', 'power_max_w', 'temperature_c', 'limited_pct', 'throttle')} == {
        'sm_clock_mhz': 600, 'sm_clock_max_mhz': 600, 'power_max_w': 250, 'temperature_c': 91, 'limited_pct': 100,
        'throttle': ['hw_slowdown', 'hw_thermal_slowdown']}
    assert {(row['sm_clock_min_mhz'], row['limited_pct'], tuple(row['throttle'])) for rank, row in clocks.items() if rank != 2} == {(1980, 0, ())}
    assert not analyze('clocks', tmp_path / 'run', '--from', '1e6', rc=1, format=None).out
