"""test_device_calls - library calls: the wrapper's record and the device library's are one call; `api` and `launches`.

tests/tfr.py writes the traces. `launches` is also compared with HTA's launch statistics, on PyTorch traces.
"""

import json

import pytest

import kineto
from conftest import execute
from test_device_records import US, Trace, ticks
from test_export_kineto import FILTER, NCCL
from tfr import rec


def save(trace, tmp_path):
    return trace.save(tmp_path / 'rank2.elsewhere.4242.tfr')


def counts(answer):
    return {r['name']: r['calls'] for r in answer['rows']}


# ---- one call, two records ----

def test_a_call_and_its_id_are_one_call(tmp_path, analyze):
    t = Trace()
    for i in range(5):  # back to back, like a loop of launches
        t.call('cudaLaunchKernel', (100 + 6 * i) * US, 5 * US)
        t.correlation(10 + i, 'cudaLaunchKernel', (101 + 6 * i) * US, 3 * US)
    t.call('cudaMalloc', 90 * US, 2 * US, kind='ALLOC', result=2)
    t.call('cudaEventQuery', 95 * US, 2 * US, kind='SYNC', result=600)  # not ready yet, which is no failure
    answer = analyze('api', save(t, tmp_path))
    assert counts(answer) == {'cudaLaunchKernel': 5, 'cudaMalloc': 1, 'cudaEventQuery': 1}
    rows = {r['name']: r for r in answer['rows']}
    launch = rows['cudaLaunchKernel']
    assert (launch['total_us'], launch['errors'], rows['cudaMalloc']['errors'], rows['cudaEventQuery']['errors']) == (25, 0, 1, 0)


@pytest.mark.parametrize('error', [-9, -4, 0, 4, 9])
def test_clocks_that_differ(tmp_path, analyze, error):
    """Clocks that differ by microseconds still match the n-th id to the n-th call, and no call appears twice."""
    t = Trace()
    t.stage('s', 98 * US, 1000 * US)
    for i in range(4):
        t.call('cudaLaunchKernel', (100 + 30 * i) * US, 5 * US)
        t.correlation(10 + i, 'cudaLaunchKernel', (101 + 30 * i + error) * US, 3 * US)
        t.work('kernel', None, (500 + 10 * i) * US, US, number=10 + i, name=f'k{i}')
    path = save(t, tmp_path)
    assert counts(analyze('api', path)) == {'cudaLaunchKernel': 4}
    exported = json.loads(analyze('export', 'chrome', path, format=None).out)['traceEvents']
    calls = {e['args']['correlation']: e['ts'] for e in exported if e.get('cat') == 'cuda_runtime'}
    assert [round(calls[10 + i] - calls[10], 3) for i in range(4)] == [0, 30, 60, 90]
    totals = analyze('breakdown', path)['totals']  # even the first, which begins before the stage on the device's clock
    assert (totals['via_thread'], totals['via_none']) == (4, 0)


def test_ids_without_a_call_are_calls(tmp_path, analyze):
    """A statically linked runtime has no wrapper: the trace sees its ids, and the driver calls it makes."""
    t = Trace()
    t.stage('s', 90 * US, 200 * US)
    for i in range(3):
        t.correlation(10 + i, 'cudaLaunchKernel', (100 + 20 * i) * US, 9 * US)
        t.call('cuLaunchKernel', (102 + 20 * i) * US, 4 * US)
        t.work('kernel', None, (300 + 20 * i) * US, US, number=10 + i, name='k')
    path = save(t, tmp_path)
    assert counts(analyze('api', path)) == {'cudaLaunchKernel': 3, 'cuLaunchKernel': 3}
    assert analyze('breakdown', path)['totals']['via_thread'] == 3


def test_missing_ids_shift_nothing(tmp_path, analyze):
    """The second call has no id; the third keeps its own."""
    t = Trace()
    for i in range(4):
        t.call('cudaLaunchKernel', (100 + 6 * i) * US, 5 * US)
        if i != 1:
            t.correlation(10 + i, 'cudaLaunchKernel', (101 + 6 * i) * US, 3 * US)
    path = save(t, tmp_path)
    exported = json.loads(analyze('export', 'chrome', path, format=None).out)['traceEvents']
    found = [e['args'].get('correlation') for e in exported if e.get('cat') == 'cuda_runtime']
    assert found == [10, None, 12, 13]


def test_calls_of_other_threads_and_functions_are_others(tmp_path, analyze):
    t = Trace()
    t.call('cudaLaunchKernel', 100 * US, 5 * US, thread=1)
    t.correlation(10, 'cudaLaunchKernel', 101 * US, 3 * US, thread=2)
    t.correlation(11, 'cudaLaunchKernelExC', 101 * US, 3 * US, thread=1)
    assert counts(analyze('api', save(t, tmp_path))) == {'cudaLaunchKernel': 2, 'cudaLaunchKernelExC': 1}


def test_other_libraries_calls_stay_out(tmp_path, analyze):
    t = Trace()
    other = t.w.string('libc\x1fALLOC\x1fcudaLaunchKernel\x1f')
    t.records.append(rec('call', func=other, time=ticks(100 * US), duration=ticks(5 * US)))
    t.correlation(10, 'cudaLaunchKernel', 101 * US, 3 * US)
    assert counts(analyze('api', save(t, tmp_path))) == {'cudaLaunchKernel': 1}


# ---- threads ----

def test_threads_with_the_same_pthread_self(tmp_path, analyze):
    """Threads 3, 4 and 5 have the same pthread_self() one after the other; each has its own stage."""
    t = Trace()
    for i, (start, end) in enumerate(((100, 200), (220, 300), (310, 400))):
        serial = 3 + i
        t.records.append(rec('thread', serial=serial, tid=100 + serial, time=ticks(start * US), name=t.w.string('w'),
                             pthread=0x7f55_1234_5000))
        if i != 2:
            t.records.append(rec('thread_end', serial=serial, time=ticks(end * US)))
        t.stage(f'stage {serial}', (start + 5) * US, (end - 5) * US, thread=serial)
    t.stage('main', 50 * US, 500 * US)
    for number, launched in ((1, 150), (2, 250), (3, 350)):
        t.correlation(number, 'cudaLaunchKernel', launched * US, US, pthread=0x1234_5000)
        t.work('kernel', None, 600 * US + number * 10 * US, number * US, number=number, name='k')
    rows = {r['stage']: r['total_us'] for r in analyze('breakdown', save(t, tmp_path))['rows']}
    assert rows == {'stage 3': 1, 'stage 4': 2, 'stage 5': 3}


def test_threads_that_are_not_known_at_that_moment(tmp_path, analyze):
    """An id before a thread's first record or just after its end belongs to the thread; a later one to none."""
    t = Trace()
    t.records.append(rec('thread', serial=3, tid=103, time=ticks(1000 * US), pthread=0x1_0000_5000))
    t.records.append(rec('thread_end', serial=3, time=ticks(2000 * US)))
    t.stage('three', 1000 * US, 2100 * US, thread=3)
    t.correlation(1, 'cudaLaunchKernel', 500 * US, US, pthread=0x5000)
    t.correlation(2, 'cudaLaunchKernel', 2001 * US, US, pthread=0x5000)
    t.correlation(3, 'cudaLaunchKernel', 9000 * US, US, pthread=0x5000)
    exported = json.loads(analyze('export', 'chrome', save(t, tmp_path), format=None).out)['traceEvents']
    found = {e['args']['correlation']: e['tid'] for e in exported if e.get('cat') == 'cuda_runtime'}
    assert found == {1: 103, 2: 103, 3: 0}


def test_ids_that_wrap(tmp_path, analyze):
    """An id is used twice: work belongs to the last call with that id that began before the work."""
    t = Trace()
    t.stage('early', 100 * US, 200 * US)
    t.stage('late', 1000 * US, 1100 * US)
    for launched in (150, 1050):
        t.correlation(7, 'cudaLaunchKernel', launched * US, US)
    t.work('kernel', None, 180 * US, 3 * US, number=7, name='k')
    t.work('kernel', None, 1200 * US, 5 * US, number=7, name='k')
    rows = {r['stage']: r['total_us'] for r in analyze('breakdown', save(t, tmp_path))['rows']}
    assert rows == {'early': 3, 'late': 5}


def test_a_replayed_graph_belongs_to_its_launch(tmp_path, analyze):
    """A graph is captured in one stage and launched in two others."""
    t = Trace()
    for i, name in enumerate(('capture', 'first', 'second')):
        t.stage(name, (100 + 100 * i) * US, (190 + 100 * i) * US)
    t.call('cudaLaunchKernel', 120 * US, 2 * US)  # becomes a node
    for number, launched in ((5, 220), (6, 320)):
        t.call('cudaGraphLaunch', launched * US, 9 * US)
        t.correlation(number, 'cudaGraphLaunch', (launched + 1) * US, 7 * US)
        for k in range(4):
            t.work('kernel', None, (1000 * number + 10 * k) * US, 2 * US, number=number, name='node', graph=1, node=k)
    path = save(t, tmp_path)
    assert {(r['stage'], r['calls'], r['total_us']) for r in analyze('breakdown', path)['rows']} == {
        ('first', 4, 8), ('second', 4, 8)}
    rows = {(r['stage'], r['name']): r for r in analyze('launches', path)['rows']}
    assert set(rows) == {('capture', 'cudaLaunchKernel'), ('first', 'cudaGraphLaunch'), ('second', 'cudaGraphLaunch')}
    first = rows['first', 'cudaGraphLaunch']
    assert (first['graph_launches'], first['launches'], first['gpu_us'], first['cpu_us']) == (1, 0, 8, 9)
    assert first['delay_us'] == pytest.approx(5000 - 229, abs=0.01)  # to the first kernel of the graph
    assert (first['short_kernels'], first['slow_launches'], first['delayed']) == (4, 0, 1)


# ---- launches ----

def test_launches(tmp_path, analyze):
    t = Trace()
    t.stage('s', 90 * US, 2000 * US)
    calls = [('cudaLaunchKernel', 'kernel', 10, 20, 5), ('cudaLaunchKernel', 'kernel', 10, 130, 50),
             ('cudaLaunchKernel', 'kernel', 60, 5, 20), ('cudaLaunchKernel', 'kernel', 50, 100, 50),
             ('cudaMemcpyAsync', 'copy', 8, -3, 100), ('cudaMemsetAsync', 'set', 4, 0, 3)]
    for i, (name, kind, host, delay, device) in enumerate(calls):
        start = 100 + 300 * i
        t.call(name, start * US, host * US)
        t.correlation(1 + i, name, start * US, host * US)
        more = {'name': 'k'} if kind == 'kernel' else {}
        t.work(kind, None, (start + host + delay) * US, device * US, number=1 + i, **more)
    t.call('cudaDeviceSynchronize', 2100 * US, 700 * US, kind='SYNC')
    t.call('cudaMalloc', 2900 * US, 7 * US, kind='ALLOC')
    answer = analyze('launches', save(t, tmp_path))
    assert [(r['stage'], r['name']) for r in answer['rows']] == [
        ('(none)', 'cudaDeviceSynchronize'), ('s', 'cudaLaunchKernel'), ('s', 'cudaMemcpyAsync'),
        ('s', 'cudaMemsetAsync')]
    wait, launch, copy, made = answer['rows']
    keys = ('launches', 'graph_launches', 'copies', 'memsets', 'syncs', 'dispatches', 'cpu_us', 'gpu_us')
    assert [launch[k] for k in ('rank', *keys)] == [2, 4, 0, 0, 0, 0, None, 130, 125]
    assert launch['delay_us'] == pytest.approx(20 + 130 + 5 + 100, abs=0.01)
    assert [launch[k] for k in ('short_kernels', 'slow_launches', 'delayed')] == [1, 1, 1]
    assert [copy[k] for k in (*keys, 'delay_us')] == [0, 0, 1, 0, 0, None, 8, 100, 0]
    assert [made[k] for k in (*keys, 'short_kernels')] == [0, 0, 0, 1, 0, None, 4, 3, 1]
    assert [wait[k] for k in (*keys, 'slow_launches')] == [0, 0, 0, 0, 1, None, 700, 0, 0]
    assert [answer['totals'][k] for k in keys] == [4, 0, 1, 1, 1, None, 842, 228]


def test_launches_without_device_records(tmp_path, analyze):
    """Device columns are null, not 0, in a trace without device records."""
    t = Trace()
    t.stage('a', 90 * US, 200 * US)
    t.call('cudaLaunchKernel', 100 * US, 5 * US)
    t.call('cudaGraphAddMemcpyNode', 110 * US, 5 * US, kind='GRAPH')
    t.call('cudaLaunchHostFunc', 120 * US, 5 * US, kind='HOST')
    t.call('cuMemcpyHtoDAsync_v2', 300 * US, 5 * US, kind='COPY')
    path = save(t, tmp_path)
    rows = analyze('launches', path)['rows']
    assert [(r['stage'], r['name'], r['launches'], r['copies']) for r in rows] == [
        ('(none)', 'cuMemcpyHtoDAsync_v2', 0, 1), ('a', 'cudaLaunchKernel', 1, 0)]
    assert all(r[k] is None for r in rows for k in ('gpu_us', 'delay_us', 'short_kernels', 'slow_launches', 'delayed'))
    assert [r['stage'] for r in analyze('launches', '--stage', 'a', path)['rows']] == ['a']
    assert analyze('launches', '--from', '0.000205', path)['rows'][0]['name'] == 'cuMemcpyHtoDAsync_v2'
    assert 'nothing matches --stage x' in analyze('launches', '--stage', 'x', path, rc=1, format=None).err


HTA = '''import json, logging, sys
from hta.trace_analysis import TraceAnalysis
logging.disable(logging.CRITICAL)
job = TraceAnalysis(trace_files={0: sys.argv[1]}, include_last_profiler_step=True)
frame = job.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)[0]
short = (frame.cpu_duration <= 50) & (frame.gpu_duration < frame.cpu_duration)
print(json.dumps([len(frame), float(frame.cpu_duration.sum()), float(frame.gpu_duration.sum()),
                  float(frame.launch_delay.sum()),
                  int(short.sum()), int((frame.cpu_duration > 50).sum()), int((frame.launch_delay > 100).sum())]))
'''


def as_hta(python, path):
    result = execute([python, '-c', HTA, path])
    assert result.rc == 0, result.err[-2000:]
    return json.loads(result.out.splitlines()[-1])


@pytest.mark.parametrize('name', [FILTER.format(0), NCCL])
def test_launches_as_hta_counts_them(tmp_path, analyze, shared_traces, python, name):
    """The comparison covers the functions that HTA counts, each call with one piece of work. HTA rounds times to 1 us."""
    counted = {'cudaLaunchKernel', 'cudaLaunchKernelExC', 'cudaMemcpyAsync', 'cudaMemsetAsync'}
    there = kineto.read(shared_traces / name)
    works = {e['args']['correlation'] for e in there['traceEvents']
             if e.get('cat') in ('kernel', 'gpu_memcpy', 'gpu_memset') and 'correlation' in e['args']}
    kept = [e for e in there['traceEvents'] if not (e.get('cat') == 'cuda_runtime' and (
        e['name'] not in counted or e['args'].get('correlation') not in works))]
    path = tmp_path / 'in.json'
    path.write_text(json.dumps({**there, 'traceEvents': kept}, default=float))
    number, host, device, delay, short, slow, delayed = as_hta(python, path)
    totals = analyze('launches', path)['totals']
    ours = sum(totals[k] for k in ('launches', 'copies', 'memsets'))
    assert ours == number > 100 and (totals['graph_launches'], totals['syncs']) == (0, 0)
    assert totals['cpu_us'] == pytest.approx(host, abs=2 * number)
    assert totals['gpu_us'] == pytest.approx(device, abs=2 * number)
    assert totals['delay_us'] == pytest.approx(delay, abs=3 * number)
    assert totals['slow_launches'] == pytest.approx(slow, abs=0.01 * number + 1)
    assert totals['delayed'] == pytest.approx(delayed, abs=0.02 * number + 1)
    assert totals['short_kernels'] == pytest.approx(short, abs=0.05 * number + 1)


def test_launches_of_our_own_as_hta_counts_them(tmp_path, analyze, python):
    """All times are whole microseconds, so every number must be equal."""
    t = Trace(rank=0)
    for i in range(40):
        name, kind = ('cudaLaunchKernel', 'kernel') if i % 4 else ('cudaMemcpyAsync', 'copy')
        host, device, delay = 3 + 7 * (i % 9), 1 + 11 * (i % 13), 29 * (i % 6)
        t.call(name, (1000 + 300 * i) * US, host * US)
        t.correlation(1 + i, name, (1000 + 300 * i) * US, host * US)
        more = {'name': f'k{i % 3}'} if kind == 'kernel' else {'bytes': 9}
        t.work(kind, None, (1000 + 300 * i + host + delay) * US, device * US, number=1 + i, **more)
    path = save(t, tmp_path)
    analyze('export', 'chrome', path, '--output', tmp_path / 'x.json', format=None)
    totals = analyze('launches', path)['totals']
    keys = ('cpu_us', 'gpu_us', 'delay_us', 'short_kernels', 'slow_launches', 'delayed')
    ours = [totals['launches'] + totals['copies'], *(totals[k] for k in keys)]
    assert ours == as_hta(python, tmp_path / 'x.json')
    assert totals['short_kernels'] and totals['slow_launches'] and totals['delayed']
