"""test_device_records - kernels, copies, sets and correlation ids in .tfr traces written by tests/tfr.py.

The counter runs at half a nanosecond a tick. The device's clock starts 5 seconds ahead of the axis and drifts. The
tests compute what each stage has from the numbers that they write.
"""

import gzip
import json

import pytest

from tfr import DEVICE, MONOTONIC, NESTED, REALTIME, STAGE, Writer, rec

START = 10 ** 9  # start of the trace on the axis, ns
AHEAD = 5 * 10 ** 9  # device clock minus axis
US = 1000


def ticks(ns):
    return 2 * ns


def device_ns(ns, drift):
    """The device's clock when the axis shows START + ns: it loses `drift` nanoseconds evenly over the first second."""
    return START + ns + AHEAD - drift * ns // 10 ** 9


class Trace:
    def __init__(self, drift=0, device_clock=True, rank=2, world=4, **header):
        self.w, self.drift = Writer(rank=rank, world=world, clock='tsc', **header), drift
        self.records, self.number, self.ranges, self.later = [], 0, 0, {}
        self.launch = self.function('cudaLaunchKernel')
        clock = []
        for ns in (0, 10 ** 9):
            clock += [rec('clock', clock=MONOTONIC, ticks=ticks(ns), value=77 + ns, error=10),
                      rec('clock', clock=REALTIME, ticks=ticks(ns), value=START + ns, error=10)]
            if device_clock:
                clock.append(rec('clock', clock=DEVICE, ticks=ticks(ns), value=device_ns(ns, drift), error=10))
        self.records += clock
        for serial in (1, 2):
            self.records.append(rec('thread', serial=serial, tid=100 + serial, time=ticks(1),
                                    name=self.w.string(f't{serial}'),
                                    pthread=0x7f00000000 + serial * 0x10000))

    def function(self, name, kind='LAUNCH', arguments=''):
        library = 'cudart' if name.startswith('cuda') else 'cuda'
        return self.w.string(f'{library}\x1f{kind}\x1f{name}\x1f{arguments}')

    def call(self, name, start, duration, thread=1, kind='LAUNCH', result=0, arguments='', args=()):
        """Adds a call as its wrapper records it."""
        self.later.setdefault(thread, []).append(rec(
            'call', func=self.function(name, kind, arguments), time=ticks(start), duration=ticks(duration),
            result=result, args=list(args)))

    def correlation(self, number, name, start, duration, thread=1, kind='LAUNCH', pthread=None):
        """Adds a call as the device library records it."""
        half = thread * 0x10000 if pthread is None else pthread
        self.records.append(rec('correlation', correlation=number, func=self.function(name, kind), thread=half,
                                time=ticks(start), duration=ticks(duration)))

    def device(self, number, name, simulated=0, units=100):
        self.records.append(rec('device', device=number, name=self.w.string(name), simulated=simulated, units=units,
                                memory=80 << 30, capability=900, uuid_high=0x0123456789abcdef, uuid_low=number))

    def stage(self, name, start, end, thread=1):
        self.ranges += 1
        self.records.append(rec('range_end', name=self.w.string(name), time=ticks(end), duration=ticks(end - start),
                                id=self.ranges, flags=NESTED | STAGE, thread=thread))

    def work(self, kind, launched, start, duration, thread=1, stream=7, device=0, number=None, **values):
        """Adds work launched at `launched` on a thread; with None no call, or only the one with `number`, exists."""
        self.number += 1
        number = self.number if number is None else number
        if launched is not None:
            self.records.append(rec('correlation', correlation=number, func=self.launch, thread=thread * 0x10000,
                                    time=ticks(launched), duration=ticks(2 * US)))
        if 'name' in values:
            values['name'] = self.w.string(values['name'])
        where = {} if kind == 'sync' else {'device': device}
        self.records.append(rec(kind, correlation=number, start=device_ns(start, self.drift), duration=duration,
                                stream=stream, **where, **values))

    def save(self, path):
        self.w.chunk(self.records, thread=1, tid=101)
        for thread, records in self.later.items():
            self.w.chunk(records, thread=thread, tid=100 + thread)
        self.w.footer()
        return self.w.save(path)


@pytest.fixture
def pipeline(tmp_path):
    """Two nested stages, a kernel that runs after its stage has ended, a copy beside it, and work of another thread."""
    t = Trace(drift=4000)
    t.stage('denoise', 100 * US, 500 * US)
    t.stage('step', 200 * US, 300 * US)
    t.work('kernel', 210 * US, 400 * US, 300 * US, name='gemm')
    t.work('kernel', 350 * US, 700 * US, 50 * US, name='softmax')
    t.work('copy', 360 * US, 720 * US, 100 * US, direction=1, stream=9)
    t.work('set', 370 * US, 900 * US, 10 * US, device=1)
    t.work('kernel', 250 * US, 1000 * US, 30 * US, thread=2, name='gemm')  # only the other thread has stages
    t.work('kernel', 800 * US, 1100 * US, 20 * US, name='ncclDevKernel_AllReduce_Sum_f32')
    t.work('kernel', None, 1200 * US, 5 * US, name='lost launch')
    return t.save(tmp_path / 'rank2.elsewhere.4242.tfr')


def test_a_clock_that_drifts(tmp_path, analyze):
    """Between two readings of the device's clock a kernel is as far from its launch as at them, though the clock lost 2 ms."""
    t = Trace(drift=4_000_000)
    t.stage('s', 499_900 * US, 500_100 * US)
    t.work('kernel', 500_000 * US, 500_010 * US, 20 * US, name='k')
    path = t.save(tmp_path / 'rank2.elsewhere.4242.tfr')
    events = json.loads(analyze('export', 'chrome', path, format=None).out)['traceEvents']
    at = {e['cat']: e['ts'] for e in events if e.get('cat') in ('kernel', 'cuda_runtime')}
    assert at['kernel'] - at['cuda_runtime'] == pytest.approx(10, abs=0.1)


def test_stages_have_their_device_time(pipeline, analyze):
    rows = {r['stage']: r for r in analyze('stages', pipeline)['rows']}
    assert set(rows) == {'denoise', 'step', '(none)'}
    denoise, step = rows['denoise'], rows['step']
    assert (denoise['host_us'], denoise['calls'], step['host_us'], step['self_us']) == (400, 1, 100, 100)
    assert (step['device_us'], step['device_busy_us']) == (330, 330)
    assert step['idle_us'] == pytest.approx(1030 - 400 - 330, abs=0.01)
    assert denoise['device_us'] == 330 + 50 + 100 + 10
    assert denoise['device_busy_us'] == pytest.approx(300 + 120 + 10 + 30, abs=0.01)  # the copy overlaps softmax by 30
    assert denoise['idle_us'] == pytest.approx((1030 - 400) - (300 + 120 + 30), abs=0.01)  # device 1 has no gap
    assert rows['(none)']['device_us'] == 25 and rows['(none)']['host_us'] is None and rows['(none)']['calls'] is None
    rows = {r['stage']: r for r in analyze('stages', pipeline, '--exclusive')['rows']}
    assert rows['denoise']['device_us'] == 160 and rows['step']['device_us'] == 330
    rows = {r['stage']: r for r in analyze('stages', pipeline, '--device', '1')['rows']}
    assert rows['denoise']['device_us'] == 10 and rows['step']['device_us'] == 0 and rows['step']['idle_us'] is None


def test_breakdown(pipeline, analyze):
    answer = analyze('breakdown', pipeline)
    rows = {(r['stage'], r['name']): r for r in answer['rows']}
    assert set(rows) == {('step', 'gemm'), ('denoise', 'softmax'), ('(none)', 'ncclDevKernel_AllReduce_Sum_f32'),
                         ('(none)', 'lost launch')}
    gemm = rows['step', 'gemm']
    assert [gemm[k] for k in ('rank', 'calls', 'total_us', 'mean_us', 'min_us', 'max_us', 'kind')] == \
        [2, 2, 330, 165, 30, 300, 'COMPUTATION']
    assert gemm['std_us'] == pytest.approx(190.919, abs=0.001) and gemm['p95_us'] == pytest.approx(286.5, abs=0.001)
    assert rows['(none)', 'lost launch']['std_us'] is None
    assert rows['(none)', 'ncclDevKernel_AllReduce_Sum_f32']['kind'] == 'COMMUNICATION'
    totals = answer['totals']
    assert (totals['total_kernel_time_us'], totals['num_kernels'], totals['launches']) == (405, 4, 5)
    assert (totals['via_thread'], totals['via_only'], totals['via_none'], totals['without_launch']) == (2, 1, 2, 1)
    rows = analyze('breakdown', pipeline, '--stage', 'denoise')['rows']
    assert {(r['stage'], r['name'], r['calls']) for r in rows} == {('denoise', 'gemm', 2), ('denoise', 'softmax', 1)}
    rows = analyze('breakdown', pipeline, '--group-by', 'category')['rows']
    assert {(r['stage'], r['name'], r['total_us']) for r in rows} == {
        ('step', 'kernel', 330), ('denoise', 'kernel', 50), ('denoise', 'gpu_memcpy', 100),
        ('denoise', 'gpu_memset', 10), ('(none)', 'kernel', 25)}


def test_timeline(pipeline, analyze):
    row, = analyze('timeline', pipeline)['rows']
    assert row['rank'] == 2
    assert row['total_us'] == pytest.approx(1205 - 400, abs=0.01)
    assert row['busy_us'] == pytest.approx(300 + 120 + 10 + 30 + 20 + 5, abs=0.01)
    assert row['communication_us'] == 20 and row['memcpy_us'] == 110
    assert row['exposed_memcpy_us'] == pytest.approx(70 + 10, abs=0.01)


def test_without_the_devices_clock(tmp_path, analyze):
    t = Trace(device_clock=False)
    t.stage('denoise', 100 * US, 500 * US)
    t.work('kernel', 210 * US, 400 * US, 300 * US, name='gemm')
    path = t.save(tmp_path / 'rank2.elsewhere.4242.tfr')
    row, = analyze('stages', path, rc=3)['rows']
    assert row['device_us'] == 300
    assert "no record of the device's clock" in analyze('stages', path, rc=3, format='text').err


def test_a_run_without_stages_is_one(tmp_path, analyze):
    """A run without stages is one stage, as in a PyTorch trace: its times, its trace and its kernels."""
    t = Trace()
    t.work('kernel', 210 * US, 400 * US, 300 * US, name='gemm')
    t.call('cudaFree', 900 * US, 100 * US, kind='FREE')
    path = t.save(tmp_path / 'rank2.elsewhere.4242.tfr')
    row, = analyze('stages', path)['rows']
    assert [row[k] for k in ('stage', 'calls', 'device_us')] == ['(run)', 1, 300] and row['host_us'] > 700
    analyze('report', path, '--output', tmp_path / 'out')
    for exported in (json.loads(gzip.decompress((tmp_path / 'out' / '(run)_rank2.trace.json.gz').read_bytes())),
                     json.loads(analyze('export', 'chrome', '--stage', '(run)', path, format=None).out)):
        assert {e['cat'] for e in exported['traceEvents'] if e['ph'] == 'X'} == {'kernel', 'cuda_runtime'}
    breakdown = json.loads((tmp_path / 'out' / '(run)_rank2.breakdown.json').read_text())
    assert (breakdown['launches'], breakdown['total_kernel_time_ms']) == (1, 0.3)


def test_stages_timed_by_events(tmp_path, analyze):
    """A trace without CUPTI still has each stage's busy time, over all streams; other device times are null."""
    t = Trace(drift=4000)
    t.stage('denoise', 100 * US, 500 * US)
    t.stage('text encode', 600 * US, 700 * US)
    for stream, start, duration in ((7, 150, 200), (9, 300, 100)):
        t.records.append(rec('stage_device', device=0, id=1, start=device_ns(start * US, 4000), duration=duration * US,
                             stream=stream, launches=3, flags=0))
    rows = {r['stage']: r for r in analyze('stages', t.save(tmp_path / 'rank2.elsewhere.4242.tfr'))['rows']}
    assert rows['denoise']['device_busy_us'] == pytest.approx(250, abs=0.01)
    assert rows['denoise']['device_us'] is None and rows['denoise']['idle_us'] is None
    assert rows['text encode']['device_busy_us'] is None


# ---- when a stage was done, and work whose records were left out ----

def stage_times(analyze, trace, *options):
    rows = analyze('stages', *options, trace, rc=None)['rows']
    return {r['stage']: tuple(r[key] and round(r[key], 2) for key in ('done_us', 'device_us', 'device_busy_us', 'idle_us')) for r in rows}


def test_when_stages_were_done(tmp_path, analyze):
    """A stage is done when it and the work launched in it are; calls that overlap so count once; what began in it but ended
    after it hands on only the work launched while it was open."""
    t = Trace()
    t.stage('waits', 100 * US, 500 * US)
    t.work('kernel', 110 * US, 200 * US, 50 * US, name='k')
    for start in (600, 610):
        t.stage('twice', start * US, (start + 5) * US)
        t.work('kernel', (start + 1) * US, (start + 100) * US, 50 * US, name='k')
    t.stage('early', 1000 * US, 1050 * US)
    t.stage('late', 1030 * US, 1080 * US)
    t.work('kernel', 1040 * US, 1100 * US, 10 * US, name='of both')
    t.work('kernel', 1060 * US, 1300 * US, 10 * US, name='of the late one')
    path = t.save(tmp_path / 'rank2.elsewhere.4242.tfr')
    found = stage_times(analyze, path)
    assert {name: times[0] for name, times in found.items()} == {'waits': 400, 'twice': 160, 'early': 110, 'late': 280}
    assert [r['stage'] for r in analyze('stages', path)['rows']] == ['waits', 'late', 'twice', 'early']
    assert stage_times(analyze, path, '--to', '0.00115')['late'][0] == pytest.approx(120, abs=1)
    assert stage_times(analyze, path, '--exclusive')['waits'][0] is None


def test_work_without_records_is_in_the_sums(tmp_path, analyze):
    """Sums count for their stage and those around it; where a filter would cut one, the stage's times are unknown."""
    t = Trace()
    t.stage('outer', 100 * US, 500 * US)
    t.stage('inner', 200 * US, 300 * US)
    t.work('kernel', 210 * US, 400 * US, 30 * US, name='k')
    for id, start, duration, busy, stream in ((1, 350, 200, 40, 7), (1, 520, 100, 20, 9), (2, 450, 200, 50, 7), (0, 700, 10, 10, 7)):
        t.records.append(rec('stage_work', device=0, id=id, start=device_ns(start * US, 0), duration=duration * US, busy=busy * US,
                             stream=stream, works=2))
    path = t.save(tmp_path / 'rank2.elsewhere.4242.tfr')
    assert stage_times(analyze, path) == {'outer': (550, 140, None, None), 'inner': (450, 80, None, None), '(none)': (None, 10, None, None)}
    assert stage_times(analyze, path, '--stream', '9')['outer'] == (520, 20, None, None)
    assert stage_times(analyze, path, '--to', '0.0005')['outer'][1:] == (None, None, None)
    assert stage_times(analyze, path, '--exclusive')['outer'][1] == 60
    screen = analyze('report', path, '--output', tmp_path / 'out', format=None).out
    assert [' '.join(line.split()) for line in screen.splitlines() if line.endswith(('outer', 'inner'))] == [
        '1 550.000 us 400.000 us 140.000 us outer', '1 450.000 us 100.000 us 80.000 us inner']
    timing = json.loads((tmp_path / 'out' / 'timing.json').read_text())['stages']
    assert {name: s['duration_ms'] for name, s in timing.items()} == {'outer': 0.55, 'inner': 0.45}
    assert not (tmp_path / 'out' / 'outer_rank2.breakdown.json').exists()  # its kernels are unknown
    row, = analyze('report', path, '--output', tmp_path / 'out')['rows']
    assert [row[key] for key in ('busy_us', 'busy_pct', 'idle_us', 'kernels', 'launches')] == [None] * 5
    cut = analyze('report', path, '--output', tmp_path / 'out', '--to', '0.0005', format=None).out
    assert [line.split()[-2] for line in cut.splitlines() if line.endswith(('outer', 'inner'))] == ['-', '-']


def test_a_context_that_waited_keeps_its_wall_time(tmp_path, analyze):
    """TeleFuser's contexts wait at their exit; timing.json has the time that TeleFuser logged."""
    t = Trace()
    t.stage('denoise', 100 * US, 500 * US)
    t.records[-1].values['flags'] |= 0x84000
    t.work('kernel', 110 * US, 450 * US, 60 * US, name='k')
    analyze('report', t.save(tmp_path / 'rank2.elsewhere.4242.tfr'), '--output', tmp_path / 'out', format=None)
    assert json.loads((tmp_path / 'out' / 'timing.json').read_text())['stages']['denoise']['duration_ms'] == 0.4

def test_a_start_long_before_the_device_was_first_read(tmp_path, analyze):
    """CUPTI gives such times after its timestamp callback was registered again: the kernel is left out, and counted."""
    now = 1_700_000_000 * 10 ** 9
    w = Writer()
    w.chunk([rec('clock', clock=clock, ticks=ns, value=now + ns, error=10) for ns in (0, 10 ** 9) for clock in (REALTIME, MONOTONIC, DEVICE)])
    kernels = [rec('kernel', name=w.string('k'), start=now + 1000 * US * i - (10 ** 14 if i == 3 else 0), duration=100 * US, correlation=i,
                   context=1, stream=7) for i in range(1, 6)]
    w.chunk([rec('thread', serial=1, tid=100, name=w.string('main'), time=1), *kernels], thread=1, tid=100)
    w.footer()
    w.save(tmp_path / 'rank0.h.1.tfr')
    result = analyze('idle', tmp_path, rc=3)
    assert result['inputs'][0]['lost'] == 1 and (result['totals']['works'], result['totals']['other_us']) == (4, 3700)
    assert 'at which they cannot have run' in analyze('idle', tmp_path, format='text', rc=3).err
