"""test_simcupti - the simulated CUPTI: its records equal the device model's log, and each nasty switch does its job.

The client runs its steps in order and prints its records. The log is the device model's own, not CUPTI's.
"""

import json
import re
import signal
import subprocess
from collections import Counter
from types import SimpleNamespace

import pytest

from conftest import BUILD, built, clean_environment, execute

ALL = 'enable=CONCURRENT_KERNEL,MEMCPY,MEMCPY2,MEMSET,DRIVER,SYNCHRONIZATION'
KERNELS = 'enable=CONCURRENT_KERNEL'
KERNEL, MEMCPY, MEMSET, DRIVER, RUNTIME, SYNC, EXTERNAL, OVERHEAD, GRAPH, PEER = 10, 1, 2, 4, 5, 38, 39, 17, 51, 22
SLOW = 'alpha 10s\nbeta 20s\n'


@pytest.fixture
def environment(tmp_path):
    def environment(**env):
        full = clean_environment()
        full.update(LD_LIBRARY_PATH=str(BUILD / 'simgpu'), SIMGPU_LOG=str(tmp_path / 'log'),
                    SIMCUPTI_STATS=str(tmp_path / 'stats'))
        if script := env.pop('script', None):
            (tmp_path / 'script').write_text(script)
            full['SIMGPU_SCRIPT'] = str(tmp_path / 'script')
        full.update({('SIMCUPTI_' + k.upper()): str(v) for k, v in env.items()})
        return full
    return environment


@pytest.fixture
def client(environment, tmp_path):
    """client(*steps, nasty=…, version=…) -> messages, records, buffers, requests; and log, stats, anchors."""
    built(BUILD / 'simgpu' / 'libcuda.so.1'), built(BUILD / 'simgpu' / 'libcupti.so.13')
    program = built(BUILD / 'victims_gpu' / 'cupti_client')

    def client(*steps, rc=0, **env):
        for name in ('log', 'stats'):
            (tmp_path / name).unlink(missing_ok=True)
        result = execute([program, *steps], environment(**env), tmp_path)
        assert result.rc == rc, result.out[-2000:] + result.err
        lines = [json.loads(line) for line in result.out.splitlines()]
        got = SimpleNamespace(lines=lines, err=result.err, records=[], buffers=[], requests=[], steps={})
        for line in lines:
            if 'kind' in line:
                got.records.append(line)
                got.buffers[-1]['list'].append(line)
            elif 'buffer' in line:
                got.buffers.append(line | {'list': []})
            elif 'request' in line:
                got.requests.append(line)
            elif 'step' in line:
                got.steps.setdefault(line['step'], []).append(line['result'])
        log = tmp_path / 'log'
        got.log = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        got.anchors = {d['device']: d for d in got.log if d['t'] == 'device'}
        stats = tmp_path / 'stats'
        got.stats = json.loads(stats.read_text()) if stats.exists() else None
        return got
    return client


def value(got, name):
    return next(line[name] for line in got.lines if name in line)


def of(got, kind):
    return sorted((r for r in got.records if r['kind'] == kind), key=lambda r: (r['correlation'], r['start']))


def logged(got, kind):
    """The log's work of one kind, with times in CUPTI's clock: nanoseconds of CLOCK_REALTIME."""
    work = [dict(w) for w in got.log if w['t'] == kind]
    for w in work:
        for edge in ('start', 'end'):
            w[edge] += got.anchors[w['device']]['realtime']
    return sorted(work, key=lambda w: (w['correlation'], w['start']))


def calls(got, wanted=lambda symbol: True):
    shift = got.anchors[0]['realtime'] - got.anchors[0]['monotonic']
    found = [dict(c, start=c['start'] + shift, end=c['end'] + shift) for c in got.log if c['t'] == 'call' and wanted(c['symbol'])]
    return sorted(found, key=lambda c: (c['correlation'], c['start']))


def pick(things, *names):
    return [tuple(json.dumps(t[n]) for n in names) for t in things]


WHERE = ('device', 'context', 'stream', 'correlation', 'graph', 'node', 'start', 'end')


def assert_equals_log(got):
    kernel = ('name', 'grid', 'block', 'shared', 'registers', *WHERE)
    assert pick(of(got, KERNEL), *kernel) == pick(logged(got, 'kernel'), *kernel)
    assert pick(of(got, MEMCPY), 'bytes', *WHERE) == pick(logged(got, 'memcpy'), 'bytes', *WHERE)
    assert pick(of(got, MEMSET), 'bytes', 'value', *WHERE) == pick(logged(got, 'memset'), 'bytes', 'value', *WHERE)


# ---- without nasty switches ----

def test_every_record_equals_the_log(client):
    got = client('register', ALL, 'init', 'kernel=5', 'copy=3', 'graph=2', 'streamsync', 'sync', 'flush')
    assert_equals_log(got)
    assert len(of(got, KERNEL)) == 5 + 2 * 3 and len(of(got, MEMCPY)) == 9 and len(of(got, MEMSET)) == 3 + 2
    api = ('name', 'start', 'end', 'correlation', 'value', 'thread', 'process')
    expected = [c | {'name': c['symbol'], 'value': c['result'], 'thread': c['thread'] & 0xffffffff, 'process': c['pid']}
                for c in calls(got)]
    assert pick(of(got, DRIVER), *api) == pick(expected, *api)
    types = {'context': 4, 'stream': 3}
    sync = [s | {'type': types[s['name']], 'stream': s['stream'] or 0xffffffff} for s in logged(got, 'sync')]
    fields = ('type', 'context', 'stream', 'correlation', 'start', 'end')
    assert pick(of(got, SYNC), *fields) == pick(sync, *fields)
    assert Counter(r['kind'] for r in got.records).total() == got.stats['written']
    assert got.stats['kept'] == got.stats['unwritten'] == got.stats['running'] == got.stats['dropped'] == 0
    assert 'a simulated CUPTI 13.0' in got.err


def test_copies_have_source_and_target(client):
    got = client('register', 'enable=MEMCPY', 'init', 'copy=1', 'sync', 'flush')
    assert pick(of(got, MEMCPY), 'copy', 'from', 'to', 'flags') == [('1', '1', '3', '1'), ('2', '3', '1', '1'), ('8', '3', '3', '0')]


def test_copies_between_devices_are_a_kind_of_their_own(client):
    got = client('register', 'enable=MEMCPY,MEMCPY2', 'init', 'peer=512', 'copy=1', 'sync', 'flush')
    peers = [w | {'devices': [w['from'][1], w['to'][1]]} for w in logged(got, 'memcpy') if w['name'] == 'memcpy_ptop']
    fields = ('bytes', 'devices', 'device', 'context', 'stream', 'correlation', 'start', 'end')
    assert len(peers) == 1 and peers[0]['devices'] == [0, 1]
    assert pick(of(got, PEER), *fields) == pick(peers, *fields) and len(of(got, MEMCPY)) == 3


SIZES = {  # of kernel, memcpy, memset, synchronisation, overhead, graph trace; then the version's number
    '12.0': (208, 88, 88, 40, 40, 48, 18), '12.2': (208, 88, 88, 40, 40, 48, 20), '12.3': (208, 88, 88, 40, 48, 56, 21),
    '12.6': (208, 88, 88, 40, 56, 56, 24), '12.8': (208, 96, 88, 56, 56, 56, 26), '13.0': (216, 96, 88, 56, 56, 56, 130001),
    '13.1': (224, 96, 88, 56, 56, 56, 130101), '13.2': (224, 96, 88, 56, 56, 56, 130202),
    '13.3': (232, 96, 88, 56, 56, 56, 130301), '13.4': (248, 112, 104, 56, 56, 56, 130401)}


@pytest.mark.parametrize('version', SIZES)
def test_layouts_of_each_version(client, version):
    got = client('version', 'register', ALL, 'enable=OVERHEAD', 'enable=GRAPH_TRACE', 'init', 'kernel=2', 'copy=2', 'graph=2',
                 'sync', 'flush', 'flush', version=version)
    *sizes, number = SIZES[version]
    assert value(got, 'version') == number
    for kind, size in zip((KERNEL, MEMCPY, MEMSET, SYNC, OVERHEAD, GRAPH), sizes):
        assert {r['size'] for r in got.records if r['kind'] == kind} == {size}, kind
    assert pick(of(got, KERNEL), 'start', 'end') == pick([k for k in logged(got, 'kernel') if not k['graph']], 'start', 'end')


def test_functions_that_a_version_lacks(client):
    names = ('cuptiActivityEnableRuntimeApi', 'cuptiActivityEnableHWTrace', 'cuptiActivityEnableCudaEventDeviceTimestamps')
    steps = [f'has={n}' for n in (*names, 'cuptiActivityEnable')]
    for version, expected in (('12.4', [0, 0, 0, 1]), ('12.5', [1, 0, 0, 1]), ('12.8', [1, 1, 0, 1]), ('13.0', [1, 1, 1, 1])):
        assert [line['found'] for line in client(*steps, version=version).lines] == expected


def test_missing_functions(client):
    got = client('has=cuptiActivityFlushAll', 'has=cuptiSubscribe', 'has=cuptiFinalize', lack='cuptiFinalize,cuptiSubscribe')
    assert [line['found'] for line in got.lines] == [1, 0, 0]


def test_the_runtime_and_the_driver_below_it(client):
    """A driver call inside a call of the runtime has no record: torch 2.6's profiler takes each for the program's."""
    got = client('register', 'enable=RUNTIME,DRIVER,MEMSET', 'init', 'kernel=2', 'runtime=3', 'flush')
    api = ('correlation', 'name', 'start', 'end', 'value')
    assert any(c['depth'] and c['domain'] == 'driver' for c in calls(got))
    expected = [c | {'name': c['symbol'], 'value': c['result']} for c in calls(got) if not c['depth'] or c['domain'] == 'runtime']
    for domain, kind in (('driver', DRIVER), ('runtime', RUNTIME)):
        found = [dict(r, name=re.sub(r'_v\d{4,5}$', '', r['name'])) for r in of(got, kind)]
        assert pick(found, *api) == pick([c for c in expected if c['domain'] == domain], *api) and found
    sets = [r['correlation'] for r in of(got, RUNTIME) if r['name'].startswith('cudaMemset')]
    assert sets == [r['correlation'] for r in of(got, MEMSET)] and len(sets) == 3
    assert not set(sets) & {r['correlation'] for r in of(got, DRIVER)}
    got = client('register', 'enable=RUNTIME,MEMSET', 'runtime=2', 'flush')
    assert {r['kind'] for r in got.records} == {RUNTIME, MEMSET}


def test_only_enabled_kinds_are_recorded(client):
    got = client('register', 'enable=MEMSET', 'driverapi=307', 'init', 'kernel=2', 'copy=2', 'disable=MEMSET', 'copy=1', 'sync', 'flush')
    assert Counter(r['kind'] for r in got.records) == {MEMSET: 2, DRIVER: 2}
    assert {r['name'] for r in of(got, DRIVER)} == {'cuLaunchKernel'}
    got = client('register', 'enable=DRIVER', 'nodriverapi=307', 'init', 'kernel=2', 'sync', 'flush')
    expected = Counter(c['symbol'] for c in calls(got, lambda s: s != 'cuLaunchKernel'))
    assert Counter(r['name'] for r in got.records) == expected and expected
    assert client('enable=63', 'enable=0').steps['enable'] == ['CUPTI_ERROR_INVALID_KIND'] * 2


def test_a_context_of_its_own(client):
    got = client('register', 'init', 'kernel=1', 'incontext=CONCURRENT_KERNEL', 'kernel=2', 'sync', 'flush')
    assert pick(got.records, 'start') == pick(logged(got, 'kernel')[1:], 'start')


def test_whole_graphs_instead_of_their_nodes(client):
    got = client('register', KERNELS, 'enable=GRAPH_TRACE', 'init', 'kernel=1', 'graph=3', 'sync', 'flush')
    assert len(of(got, KERNEL)) == 1
    launches = {}
    for w in logged(got, 'kernel') + logged(got, 'memset'):
        if w['graph']:
            g = launches.setdefault(w['correlation'], dict(w))
            g['start'], g['end'] = min(g['start'], w['start']), max(g['end'], w['end'])
    fields = ('graph', 'device', 'context', 'stream', 'correlation', 'start', 'end')
    assert len(launches) == 3 and pick(of(got, GRAPH), *fields) == pick([launches[c] for c in sorted(launches)], *fields)


def test_external_ids_stand_before_the_call(client):
    got = client('register', 'enable=DRIVER,EXTERNAL_CORRELATION', 'init', 'push=7', 'kernel=1', 'push=8', 'sync', 'pop', 'pop',
                 'pop', 'flush')
    pairs = [(a['id'], b['name']) for a, b in zip(got.records, got.records[1:])
             if a['kind'] == EXTERNAL and b['kind'] == DRIVER and a['correlation'] == b['correlation']]
    assert pairs == [(7, 'cuModuleGetFunction'), (7, 'cuLaunchKernel'), (8, 'cuCtxSynchronize')]
    assert len([r for r in got.records if r['kind'] == EXTERNAL]) == 3
    assert got.steps['pop'] == ['CUPTI_SUCCESS', 'CUPTI_SUCCESS', 'CUPTI_ERROR_QUEUE_EMPTY']
    assert [line['popped'] for line in got.lines if 'popped' in line][:2] == [8, 7]


def test_buffers_come_back_full_or_flushed(client):
    got = client('register', 'buffers=4096', KERNELS, 'init', 'kernel=40', 'sync', 'flush')
    per = 4096 // 216
    assert [len(b['list']) for b in got.buffers] == [per, per, 40 - 2 * per]
    assert [b['requests'] for b in got.buffers] == [1, 2, 3]
    got = client('register', 'buffers=65536:7', KERNELS, 'init', 'kernel=16', 'sync')
    assert [len(b['list']) for b in got.buffers] == [7, 7] and got.stats['kept'] == 2


def test_buffers_of_threads(client):
    steps = ('register', ALL, 'init', 'threads=4:5', 'sync', 'flush')
    got = client(*steps)
    origins = [{r.get('thread') for r in b['list']} for b in got.buffers]
    assert len(got.buffers) == 6 and all(len(o) == 1 or None in o for o in origins)
    assert_equals_log(got)
    got = client(*steps, version='12.9')
    assert len(got.buffers) == 1 and len(of(got, KERNEL)) == 20
    assert_equals_log(got)
    got = client('systemtid', *steps)
    assert {r['thread'] for r in of(got, DRIVER)} == {c['tid'] for c in calls(got)}


def test_refused_buffers_drop_records(client):
    got = client('register', 'refuse=0:4', KERNELS, 'init', 'subscribe', 'domain=6', 'kernel=8', 'sync', 'flush', 'dropped', 'dropped')
    assert len(got.records) == 3 and [line['dropped'] for line in got.lines if 'dropped' in line] == [5, 0]
    assert sum('state' in line for line in got.lines) == 5 and got.stats['dropped'] == 5
    got = client('register', 'refuse=0:4', KERNELS, 'init', 'subscribe', 'domain=6', 'kernel=8', 'sync', 'flush', version='12.8')
    assert not any('state' in line for line in got.lines) and len(got.records) == 3


def test_callbacks_and_the_one_slot(client):
    got = client('subscribe', 'subscribe2', 'drivercallback=307', 'init', 'kernel=2', 'unsubscribe', 'kernel=1', 'subscribe2', 'sync')
    assert got.steps['subscribe'] == ['CUPTI_SUCCESS']
    assert got.steps['subscribe2'] == ['CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED', 'CUPTI_SUCCESS']
    seen = [(line['callback'], line['exit'], line['data']) for line in got.lines if 'callback' in line]
    assert seen == [('cuLaunchKernel', 0, 5), ('cuLaunchKernel', 1, 10)] * 2
    expected = [c['correlation'] for c in calls(got, lambda s: s == 'cuLaunchKernel')][:2]
    assert [line['correlation'] for line in got.lines if line.get('exit') == 1] == expected
    got = client('init', 'subscribe', 'domain=1', 'sync', 'nodomain=1', 'sync', 'unsubscribe')
    assert sum('callback' in line for line in got.lines) == 2


def test_a_timestamp_callback_changes_every_unit(client):
    got = client('register', ALL, 'init', 'clock', 'sleep=20', 'kernel=3', 'sync', 'timestamp', 'flush')
    launches = [c for c in got.log if c['t'] == 'call' and c['symbol'] == 'cuLaunchKernel']
    records = [r['start'] for r in of(got, DRIVER) if r['name'] == 'cuLaunchKernel']
    assert len(records) == len(launches) and all(2 * c['start'] <= r <= 2 * c['end'] for r, c in zip(records, launches))
    anchor = got.anchors[0]['monotonic']
    work = [w for w in got.log if w['t'] == 'kernel']
    assert all(abs(k['start'] - 2 * (w['start'] + anchor)) < 20_000 for k, w in zip(of(got, KERNEL), work))
    assert value(got, 'timestamp') > records[-1]


def test_queued_and_submitted_on_request(client):
    got = client('latency', 'register', KERNELS, 'init', 'kernel=2', 'sync', 'flush')
    base = got.anchors[0]['realtime']
    assert [k['queued'] for k in of(got, KERNEL)] == [w['submitted'] + base for w in got.log if w['t'] == 'kernel']


def test_correlation_ids_wrap(client):
    got = client('register', ALL, 'init', 'kernel=8', 'sync', 'flush', first_correlation=0xfffffff0)
    shift = 0xfffffff0 - 1
    apis = {r['correlation'] for r in of(got, DRIVER)}
    assert apis == {(c['correlation'] + shift) % 2**32 for c in calls(got)} and 0 in apis and 2**32 - 1 in apis
    assert {r['correlation'] for r in of(got, KERNEL)} == {(w['correlation'] + shift) % 2**32 for w in logged(got, 'kernel')}


def test_ids_and_devices(client):
    got = client('register', 'enable=CONTEXT', 'init', 'dump=DEVICE', 'kernel=1', 'ids', 'sync', 'flush')
    kernel = logged(got, 'kernel')[0]
    assert value(got, 'context') == kernel['context'] and {'context': kernel['context'], 'stream': kernel['stream'], 'device': 0} in got.lines
    assert sorted(r['id'] for r in got.records if r['kind'] == 8) == [0, 1]
    assert [(r['context'], r['device']) for r in got.records if r['kind'] == 9] == [(kernel['context'], 0)]


def test_finalize_forgets_everything(client):
    got = client('register', ALL, 'init', 'kernel=2', 'sync', 'finalize', 'kernel=2', 'flush', 'register', KERNELS, 'kernel=3', 'sync', 'flush')
    assert got.steps['flush'] == ['CUPTI_ERROR_INVALID_OPERATION', 'CUPTI_SUCCESS']
    assert pick(of(got, KERNEL), 'start') == pick(logged(got, 'kernel')[-3:], 'start')


def test_the_calls_of_kineto(client):
    """kineto's sequence of calls works twice: before a session, the session, its end."""
    session = ('register', 'enable=MEMCPY,MEMSET,CONCURRENT_KERNEL,EXTERNAL_CORRELATION,SYNCHRONIZATION,DRIVER,OVERHEAD', 'nodriverapi=31',
               'push=1', 'kernel=3', 'pop', 'copy=1', 'sync', 'flush',
               'disable=MEMCPY,MEMSET,CONCURRENT_KERNEL,EXTERNAL_CORRELATION,SYNCHRONIZATION,DRIVER,OVERHEAD', 'force', 'dropped')
    got = client('subscribe', 'drivercallback=1', 'init', 'kernel=2', *session, 'kernel=2', *session, 'unsubscribe', 'kernel=1', 'sync')
    assert set(sum(got.steps.values(), [])) == {'CUPTI_SUCCESS'}
    recorded = logged(got, 'kernel')[2:5] + logged(got, 'kernel')[7:10]
    assert pick(of(got, KERNEL), 'name', 'start', 'end') == pick(recorded, 'name', 'start', 'end')


def test_a_child_has_no_cupti(client):
    got = client('register', ALL, 'init', 'kernel=2', 'fork', 'kernel=1', 'sync', 'flush')
    assert value(got, 'child') == 1 and got.steps['child'] == ['CUPTI_ERROR_NOT_INITIALIZED'] and len(of(got, KERNEL)) == 3
    assert len({r['process'] for r in of(got, DRIVER)}) == 1


def test_exported_symbols():
    symbols = subprocess.run(['nm', '-D', '--defined-only', built(BUILD / 'simgpu' / 'libcupti.so.13')], check=True, text=True,
                             capture_output=True).stdout
    assert '@@libcupti.so.13' in symbols and re.findall(r' T (?!cupti)', symbols) == []


# ---- errors ----

@pytest.mark.parametrize('step, function', {
    'version': 'cuptiGetVersion', 'register': 'cuptiActivityRegisterCallbacks', 'enable=MEMSET': 'cuptiActivityEnable',
    'disable=MEMSET': 'cuptiActivityDisable', 'flush': 'cuptiActivityFlushAll', 'period=5': 'cuptiActivityFlushPeriod',
    'dropped': 'cuptiActivityGetNumDroppedRecords', 'push=1': 'cuptiActivityPushExternalCorrelationId',
    'pop': 'cuptiActivityPopExternalCorrelationId', 'clock': 'cuptiActivityRegisterTimestampCallback',
    'timestamp': 'cuptiGetTimestamp', 'subscribe': 'cuptiSubscribe', 'driverapi=307': 'cuptiActivityEnableDriverApi',
    'dump=DEVICE': 'cuptiActivityEnableAndDump', 'systemtid': 'cuptiSetThreadIdType', 'finalize': 'cuptiFinalize'}.items())
def test_injected_errors(client, step, function):
    word = step.split('=')[0]
    got = client(step, step, step, fail=f'{function}=CUPTI_ERROR_HARDWARE_BUSY:after 1:times 1,cuptiNothing=999')
    assert got.steps[word][1] == 'CUPTI_ERROR_HARDWARE_BUSY'
    assert 'CUPTI_ERROR_HARDWARE_BUSY' not in (got.steps[word][0], got.steps[word][2])


def test_without_a_driver(environment, tmp_path):
    """A CUPTI without a driver finds none (the client is linked to a driver, so Python asks)."""
    (tmp_path / 'only').mkdir()
    (tmp_path / 'only' / 'libcupti.so.13').symlink_to(built(BUILD / 'simgpu' / 'libcupti.so.13'))
    (tmp_path / 'only' / 'libcuda.so.1').symlink_to('/lib/x86_64-linux-gnu/libm.so.6')
    program = ('import ctypes; c = ctypes.CDLL("libcupti.so.13"); print(c.cuptiActivityEnable(10), c.cuptiGetTimestamp(ctypes.byref(ctypes.c_uint64())))')
    result = execute(['python3', '-c', program], environment() | {'LD_LIBRARY_PATH': str(tmp_path / 'only')}, tmp_path)
    assert result.out.split() == ['15', '15']


# ---- nasty switches ----

def test_late(client):
    steps = ('register', 'buffers=4096', KERNELS, 'init', 'kernel=30', 'sync', 'flush')
    early = client(*steps, nasty='late=5000')
    assert early.steps['flush'] == ['CUPTI_SUCCESS'] and not early.records and early.stats['kept'] == 30
    got = client(*steps, 'received=30', nasty='late=30')
    assert len(got.records) == 30 and all(not b['main'] for b in got.buffers)
    assert_equals_log(got)
    got = client(*steps[:-1], 'force', nasty='late=10000')
    assert len(got.records) == 30 and all(b['main'] for b in got.buffers)


def test_order(client):
    got = client('register', 'buffers=4096:4', KERNELS, 'init', 'kernel=16', 'sync', 'flush', nasty='order=4')
    starts = [r['start'] for r in got.records]
    assert len(starts) == 16 and starts != sorted(starts)
    assert [b['list'][0]['start'] for b in got.buffers] == sorted((b['list'][0]['start'] for b in got.buffers), reverse=True)
    assert_equals_log(got)


def test_thread(client):
    got = client('register', ALL, 'init', 'kernel=4', 'graph=2', 'sync', 'flush', 'force', nasty='thread')
    assert got.requests and not any(r['main'] for r in got.requests) and not any(b['main'] for b in got.buffers)
    assert_equals_log(got)


def test_flush_period_returns_only_full_buffers(client):
    got = client('register', 'buffers=4096', KERNELS, 'init', 'period=5', 'kernel=20', 'sync', 'received=18', 'sleep=100')
    assert [len(b['list']) for b in got.buffers] == [18]


def test_zero(client):
    got = client('register', ALL, 'init', 'kernel=8', 'copy=4', 'sync', 'flush', nasty='zero=3')
    work = [r for r in got.records if r['kind'] in (KERNEL, MEMCPY, MEMSET)]
    zeroed = [r for r in work if r['start'] == r['end'] == 0]
    assert len(work) == 24 and len(zeroed) == got.stats['zeroed'] == 8
    assert all(r['start'] for r in got.records if r['kind'] in (DRIVER, SYNC))


def test_running(client):
    steps = ('register', KERNELS, 'init', 'kernel=4', 'force', 'sync', 'force')
    got = client(*steps, script=SLOW)
    assert len(got.records) == 4 and all(r['end'] for r in got.records)
    assert_equals_log(got)
    got = client(*steps, script=SLOW, nasty='running')
    assert len(got.records) == 4 and not any(r['end'] for r in got.records) and got.stats['cut'] == 4
    assert [bool(r['start']) for r in sorted(got.records, key=lambda r: r['correlation'])][1:] == [False] * 3


def test_held(client):
    steps = ('register', 'enable=CONCURRENT_KERNEL', 'init', 'copy=1', 'enable=MEMSET', 'copy=1', 'streamsync', 'kernel=1', 'flush')
    assert [r['kind'] for r in client(*steps, script=SLOW).records] == [MEMSET]
    got = client(*steps, script=SLOW, nasty='held')
    assert got.records == [] and got.stats['running'] == 1
    got = client(*steps, 'sync', 'flush', script=SLOW, nasty='held')
    assert [r['kind'] for r in got.records] == [MEMSET, KERNEL]


def test_names(client):
    steps = ('register', KERNELS, 'init', 'kernel=2', 'sync', 'flush', 'names')
    assert [line['kept'] for line in client(*steps).lines if 'kept' in line] == ['alpha', 'beta']
    got = client(*steps, nasty='names')
    assert [r['name'] for r in got.records] == ['alpha', 'beta']
    assert [line['kept'] for line in got.lines if 'kept' in line] == ['#####', '####']


def test_lock(client):
    steps = ('probe', 'register', 'buffers=4096:2', KERNELS, 'init', 'kernel=6', 'sync', 'flush')
    assert not any(r['locked'] for r in client(*steps).requests)
    got = client(*steps, nasty='lock')
    assert any(r['locked'] and r['in_call'] for r in got.requests)
    assert_equals_log(got)


def test_block(environment, tmp_path):
    program = built(BUILD / 'victims_gpu' / 'cupti_client')
    with subprocess.Popen([program, 'register', KERNELS, 'init', 'flush'], env=environment(nasty='block'), cwd=tmp_path,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.communicate(timeout=1)
        process.kill()


def test_block_stops_no_client_with_buffers(client):
    assert len(client('register', KERNELS, 'init', 'kernel=1', 'sync', 'flush', nasty='block').records) == 1
    assert client('register', KERNELS, 'init', 'flush').steps['flush'] == ['CUPTI_SUCCESS']


@pytest.mark.parametrize('nasty', ['exit', 'exit,thread'])
def test_exit(client, nasty):
    got = client('register', 'buffers=4096', ALL, 'init', 'kernel=30', 'sync', 'flush', 'force', nasty=nasty)
    assert got.buffers and all(b['exiting'] for b in got.buffers)
    assert all(b['main'] == ('thread' not in nasty) for b in got.buffers)
    assert_equals_log(got)


def test_clock(client):
    got = client('register', KERNELS, 'init', 'kernel=4', 'sync', 'flush', 'sleep=20', 'kernel=4', 'sync', 'flush', nasty='clock=4')
    work = logged(got, 'kernel')
    ordinary, ticks = got.records[:4], got.records[4:]
    assert pick(ordinary, 'start') == pick(work[:4], 'start') and len(ticks) == 4
    shift = got.anchors[0]['realtime'] - got.anchors[0]['monotonic']
    assert all(abs(r['start'] - 1_000_003 - 3 * (w['start'] - shift)) < 30_000 for r, w in zip(ticks, work[4:]))


def test_the_last_registration_wins(client):
    got = client('register', KERNELS, 'init', 'kernel=1', 'sync', 'register2', 'flush', 'kernel=1', 'sync', 'flush')
    assert [b['who'] for b in got.buffers] == [2, 2] and len(got.records) == 2


def test_stolen(client):
    got = client('register', 'buffers=4096:5', KERNELS, 'init', 'kernel=20', 'sync', 'flush', 'dropped', nasty='stolen=2')
    assert len(got.requests) == 2 and len(got.records) == 5 and value(got, 'dropped') == 0


def test_slot(client):
    got = client('subscribe', 'register', KERNELS, 'init', 'kernel=1', 'sync', 'flush', nasty='slot')
    assert got.steps['subscribe'] == ['CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED'] and len(got.records) == 1


def test_crash(client):
    client('register', 'refuse=0:0', KERNELS, 'init', 'kernel=1', 'sync', rc=-signal.SIGSEGV, nasty='crash')


def test_uncorrelated(client):
    got = client('register', KERNELS, 'init', 'kernel=2', 'driverapi=307', 'kernel=1', 'sync', 'flush', nasty='uncorrelated')
    assert [bool(r['correlation']) for r in got.records if r['kind'] == KERNEL] == [False, False, True]


def test_all_at_once(client):
    got = client('register', 'buffers=4096', ALL, 'init', 'threads=4:50', 'graph=5', 'copy=5', 'sync', 'flush', 'force',
                 nasty='late=5,order=2,thread,zero=9,names,held,exit', first_correlation=0xffffff00, version='13.1')
    stats = got.stats
    assert stats['written'] == len(got.records) and stats['dropped'] == stats['kept'] == stats['running'] == 0
    zeroed = sum(r['start'] == 0 for r in got.records)
    assert zeroed == stats['zeroed'] > 0
    assert len(of(got, KERNEL)) == len(logged(got, 'kernel')) and len(of(got, DRIVER)) == len(calls(got))
    truth = Counter(pick(logged(got, 'kernel'), 'name', 'start', 'end'))
    assert sum((Counter(pick(of(got, KERNEL), 'name', 'start', 'end')) - truth).values()) == sum(r['start'] == 0 for r in of(got, KERNEL))


def test_unknown_switches_are_reported(client):
    got = client('version', nasty='nice', version='11.0')
    assert 'unknown switch: nice' in got.err and 'SIMCUPTI_VERSION: 11.0 is not simulated' in got.err
