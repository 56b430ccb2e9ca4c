"""test_device_export - device records of .tfr traces, exported as Chrome traces: content, loaders, equal answers.

tests/tfr.py writes the traces. The tests compute the expected content from the numbers that they write, load the
export in HTA and the TensorBoard plugin, and compare every answer with that of the .tfr itself.
"""

import gzip
import json

import pytest

from test_device_records import START, US, Trace
from test_export_kineto import ask_loaders, in_hta, in_tensorboard
from tfr import rec

MANGLED, FULL, SHORT = '_Z4fillIiEvPT_S0_', 'void fill<int>(int*, int)', 'fill'
PERIOD = 7889238 * 10 ** 9


def pipeline(path, rank=2):
    """Two devices, a graph launch, a wait, calls with and without a wrapper's record, and a call without work."""
    t = Trace(rank=rank)
    t.device(0, 'Simulated GPU 0', simulated=1)
    t.device(1, 'NVIDIA H200')
    t.stage('denoise', 100 * US, 500 * US)
    t.stage('step', 200 * US, 300 * US)
    t.call('cudaMalloc', 110 * US, 5 * US, kind='ALLOC', arguments='bytes:BYTES', args=[4096])
    t.call('cudaLaunchKernel', 210 * US, 10 * US, arguments='grid_x:UINT', args=[7])
    t.correlation(41, 'cudaLaunchKernel', 212 * US, 6 * US)
    t.work('kernel', None, 400 * US, 50 * US, number=41, name=MANGLED, context=1, grid_x=200, grid_y=2, grid_z=1,
           block_x=32, block_y=4, block_z=1, registers=40, static_shared=100, dynamic_shared=28)
    t.call('cuGraphLaunch', 230 * US, 20 * US)
    t.correlation(42, 'cuGraphLaunch', 231 * US, 17 * US)
    for i in range(3):
        t.work('kernel', None, (460 + 20 * i) * US, 10 * US, number=42, name='node', context=1, graph=5, node=60 + i)
    t.correlation(43, 'cudaMemcpyAsync', 320 * US, 4 * US, kind='COPY')  # no wrapper saw this one
    t.work('copy', None, 600 * US, 10 * US, number=43, direction=1, source_kind=1, destination_kind=3, bytes=250000,
           context=1, stream=9)
    t.correlation(44, 'cudaMemsetAsync', 330 * US, 3 * US, kind='SET')
    t.work('set', None, 620 * US, 5 * US, number=44, bytes=4096, device=1, context=2)
    t.call('cudaStreamSynchronize', 340 * US, 100 * US, kind='SYNC')
    t.correlation(45, 'cudaStreamSynchronize', 341 * US, 98 * US, kind='SYNC')
    t.work('sync', None, 341 * US, 90 * US, number=45, type=3, context=2, stream=7)
    t.work('kernel', 800 * US, 900 * US, 20 * US, thread=2, number=46, name='ncclDevKernel_AllReduce_Sum_f32',
           context=1)
    return t.save(path)


@pytest.fixture
def trace(tmp_path):
    return pipeline(tmp_path / 'rank2.elsewhere.4242.tfr')


def events(document, category, phase='X'):
    return [e for e in document['traceEvents'] if e.get('cat') == category and e['ph'] == phase]


def at(us):
    """The ts of this moment of the trace."""
    return pytest.approx((START - START // PERIOD * PERIOD) / 1000 + us, abs=0.0011)


# ---- the content of the trace ----

def test_kernels(exported):
    kernels = events(exported, 'kernel')
    assert len(kernels) == 5 and {k['name'] for k in kernels} == {FULL, 'node', 'ncclDevKernel_AllReduce_Sum_f32'}
    k = kernels[0]
    assert (k['name'], k['pid'], k['tid'], k['ts'], k['dur']) == (FULL, 0, 7, at(400), 50)
    assert k['args'] == {'device': 0, 'context': 1, 'stream': 7, 'correlation': 41, 'queued': 0,
                         'registers per thread': 40, 'shared memory': 128, 'blocks per SM': 4, 'warps per SM': 16, 'est. achieved occupancy %': 25,
                         'grid': [200, 2, 1], 'block': [32, 4, 1]}
    nodes = [e['args'] for e in kernels if e['name'] == 'node']
    found = [(a['graph id'], a['graph node id'], a['correlation']) for a in nodes]
    assert found == [(5, 60, 42), (5, 61, 42), (5, 62, 42)]


def test_queued(tmp_path, analyze):
    t = Trace(drift=1000)
    t.work('kernel', 10 * US, 40 * US, 5 * US, name='k', queued=START + 5 * 10 ** 9 + 20 * US)
    exported = json.loads(analyze('export', 'chrome', t.save(tmp_path / 'rank2.h.1.tfr'), format=None).out)
    assert events(exported, 'kernel')[0]['args']['queued'] == at(20)


def test_copies_sets_and_waits(exported):
    copy, = events(exported, 'gpu_memcpy')
    assert (copy['name'], copy['pid'], copy['tid'], copy['dur']) == ('Memcpy HtoD (Pageable -> Device)', 0, 9, 10)
    assert copy['args'] == {'device': 0, 'context': 1, 'stream': 9, 'correlation': 43, 'bytes': 250000,
                            'memory bandwidth (GB/s)': 25}
    made, = events(exported, 'gpu_memset')
    assert (made['name'], made['pid'], made['tid'], made['ts']) == ('Memset (Device)', 1, 7, at(620))
    assert made['args'] == {'device': 1, 'context': 2, 'stream': 7, 'correlation': 44, 'bytes': 4096,
                            'memory bandwidth (GB/s)': pytest.approx(4096 / 5000)}
    wait, = events(exported, 'cuda_sync')  # the record has no device; the context is that of the set
    assert (wait['name'], wait['pid'], wait['tid'], wait['dur']) == ('Stream Sync', 1, 7, 90)
    assert wait['args'] == {'device': 1, 'context': 2, 'stream': 7, 'correlation': 45, 'cuda_sync_kind': 'Stream Sync'}


def test_calls_have_their_ids(exported):
    """A call and its id are one event with the wrapper's times; so is an id without a wrapper's call."""
    runtime = {(e['name'], e['dur'], e['args'].get('correlation'), e['tid']) for e in events(exported, 'cuda_runtime')}
    assert runtime == {('cudaMalloc', 5, None, 101), ('cudaLaunchKernel', 10, 41, 101), ('cudaMemcpyAsync', 4, 43, 101),
                       ('cudaMemsetAsync', 3, 44, 101), ('cudaStreamSynchronize', 100, 45, 101),
                       ('cudaLaunchKernel', 2, 46, 102)}
    driver, = events(exported, 'cuda_driver')
    assert (driver['name'], driver['dur'], driver['args']) == ('cuGraphLaunch', 20, {'correlation': 42, 'result': 0})
    launch = next(e for e in events(exported, 'cuda_runtime') if e['args'].get('correlation') == 41)
    assert launch['args'] == {'grid_x': 7, 'correlation': 41, 'result': 0} and launch['ts'] == at(210)


def test_arrows(exported):
    """Each launch has one arrow tail at its call, and one head at each piece of work it started."""
    tails, heads = ({} for _ in range(2))
    for e in events(exported, 'ac2g', 's'):
        assert e['id'] not in tails
        tails[e['id']] = e
    for e in events(exported, 'ac2g', 'f'):
        assert e['bp'] == 'e'
        heads.setdefault(e['id'], []).append(e)
    assert set(tails) == set(heads) and len(tails) == 6
    found = {}
    for number, tail in tails.items():
        call, = [e for c in ('cuda_runtime', 'cuda_driver') for e in events(exported, c)
                 if (e['pid'], e['tid'], e['ts']) == (tail['pid'], tail['tid'], tail['ts'])]
        works = [e for c in ('kernel', 'gpu_memcpy', 'gpu_memset', 'cuda_sync') for e in events(exported, c)
                 if any((e['pid'], e['tid'], e['ts']) == (h['pid'], h['tid'], h['ts']) for h in heads[number])]
        assert {w['args']['correlation'] for w in works} == {call['args']['correlation']}
        found[call['args']['correlation']] = len(works)
    assert found == {41: 1, 42: 3, 43: 1, 44: 1, 45: 1, 46: 1}


def test_rows_and_devices(exported):
    meta = {(e['name'], e['pid'], e['tid']): e['args'] for e in exported['traceEvents'] if e['ph'] == 'M'}
    assert meta['process_labels', 0, 0] == {'labels': 'GPU 0: Simulated GPU 0, simulated'}
    assert meta['process_labels', 1, 0] == {'labels': 'GPU 1: NVIDIA H200'}
    assert {k[2]: v['name'] for k, v in meta.items() if k[:2] == ('thread_name', 0)} == {7: 'stream 7', 9: 'stream 9'}
    assert meta['process_sort_index', 1, 0]['sort_index'] > meta['process_sort_index', 4242, 0]['sort_index']
    first, second = exported['deviceProperties']
    assert first == {'id': 0, 'name': 'Simulated GPU 0', 'totalGlobalMem': 80 << 30, 'computeMajor': 9,
                     'computeMinor': 0, 'warpSize': 32, 'numSms': 100, 'simulated': True,
                     'uuid': 'GPU-01234567-89ab-cdef-0000-000000000000'}
    assert (second['id'], second['uuid'][-1], second['simulated']) == (1, '1', False)


def test_a_program_whose_number_is_a_device_s(tmp_path, analyze):
    """A containerised program may have pid 1, like device 1: their rows stay apart."""
    t = Trace(pid=1)
    t.stage('s', 10 * US, 90 * US)
    t.work('kernel', 20 * US, 40 * US, 5 * US, name='k', device=1)
    exported = json.loads(analyze('export', 'chrome', t.save(tmp_path / 'rank2.h.1.tfr'), format=None).out)
    assert events(exported, 'kernel')[0]['pid'] == 1 and events(exported, 'user_annotation')[0]['pid'] != 1


def test_several_processes_in_one_file(tmp_path, analyze):
    """Two processes share no device row and no arrow id, though every rank calls its device 0."""
    for rank in range(2):
        pipeline(tmp_path / f'rank{rank}.h.{rank + 1}.tfr', rank=rank)
    exported = json.loads(analyze('export', 'chrome', tmp_path, format=None).out)
    kernels = events(exported, 'kernel')
    assert len(kernels) == 10 and {k['args']['device'] for k in kernels} == {0}
    assert len({k['pid'] for k in kernels}) == 2
    tails = [e['id'] for e in events(exported, 'ac2g', 's')]
    assert len(tails) == len(set(tails)) == 12
    pids = {e['pid'] for e in exported['traceEvents'] if e['ph'] == 'M' and e['name'] == 'process_labels'}
    assert len(pids) == 2 + 4


# ---- parts of a trace ----

def test_export_of_a_stage(trace, analyze):
    """Export keeps the work launched in the stage, whenever it ran, and its arrows."""
    exported = json.loads(analyze('export', 'chrome', '--stage', 'step', trace, format=None).out)
    assert [k['name'] for k in events(exported, 'kernel')] == [FULL, 'node', 'node', 'node']
    assert not events(exported, 'gpu_memcpy') and not events(exported, 'cuda_sync')
    assert [e['name'] for e in events(exported, 'cuda_runtime') + events(exported, 'cuda_driver')] == [
        'cudaLaunchKernel', 'cuGraphLaunch']
    assert (len(events(exported, 'ac2g', 's')), len(events(exported, 'ac2g', 'f'))) == (2, 4)


def test_report_writes_the_stages_work(trace, tmp_path, analyze):
    answer = analyze('report', trace, '--output', tmp_path / 'out')
    step = json.loads(gzip.decompress((tmp_path / 'out' / 'step_rank2.trace.json.gz').read_bytes()))
    assert len(events(step, 'kernel')) == 4 and not events(step, 'gpu_memset')
    outer = json.loads(gzip.decompress((tmp_path / 'out' / 'denoise_rank2.trace.json.gz').read_bytes()))
    assert [len(events(outer, c)) for c in ('kernel', 'gpu_memcpy', 'gpu_memset', 'cuda_sync')] == [4, 1, 1, 1]
    breakdown = json.loads((tmp_path / 'out' / 'step_rank2.breakdown.json').read_text())
    top = {k['name']: k for k in breakdown['top_kernels']}
    assert (breakdown['launches'], top[FULL]['ms'], top[FULL]['cpu_ms'], top['node']['cpu_ms']) == (4, 0.05, 0.01, 0.02)
    assert [(d['rank'], d['device'], d['name'], d['simulated']) for d in answer['totals']['devices']] == [
        (2, 0, 'Simulated GPU 0', True), (2, 1, 'NVIDIA H200', False)]
    screen = analyze('report', trace, '--output', tmp_path / 'out', format=None).out
    assert 'devices: simulated: Simulated GPU 0, NVIDIA H200\n' in screen


# ---- loaders ----

def test_loaders_of_kineto_traces_load_it(trace, tmp_path, analyze, python):
    analyze('export', 'chrome', trace, '--output', tmp_path / 'one.json', format=None)
    result = analyze('export', 'tensorboard', trace, '--output', tmp_path / 'tb', format=None)
    packed, plain = result.out.strip(), tmp_path / 'one.json'
    there = json.loads(plain.read_text())['traceEvents']
    assert json.loads(gzip.decompress(open(packed, 'rb').read()))['traceEvents'] == there
    assert in_hta(there) > 15 and in_tensorboard(there) >= 7
    found = ask_loaders(python, {'hta': [plain, packed], 'hta_job': [packed], 'tensorboard': [packed]})
    assert found == {'hta': [in_hta(there)] * 2, 'hta_job': [in_hta(there)], 'tensorboard': [in_tensorboard(there)]}


QUESTIONS = [('stages',), ('stages', '--exclusive'), ('breakdown',), ('breakdown', '--group-by', 'category'),
             ('breakdown', '--stage', 'denoise'), ('timeline',), ('kinds',), ('overlap',), ('idle',), ('queue',), ('launches',), ('api',),
             ('breakdown', '--device', '0', '--stream', '7'), ('breakdown', '--names', 'short'),
             ('timeline', '--stage', 'denoise'), ('kinds', '--stage', 'denoise', '--top', '1'), ('overlap', '--stage', 'denoise'),
             ('api', '--device', '0'), ('launches', '--stream', '7'), ('api', '--stage', 'denoise', '--device', '0')]


@pytest.mark.parametrize('question', QUESTIONS, ids=' '.join)
def test_it_gives_the_answers_of_the_trace(trace, tmp_path, analyze, question):
    analyze('export', 'chrome', trace, '--output', tmp_path / 'one.json', format=None)
    command, *options = question
    ours, theirs = (analyze(command, path, *options) for path in (trace, tmp_path / 'one.json'))
    unknown = {'stages': ('pct',), 'api': ('errors',)}.get(command, ())  # the export lacks these
    assert ours['rows']
    for row in ours['rows'] + theirs['rows']:
        for key in unknown:
            row.pop(key)
    assert ours['rows'] == theirs['rows']
    if command != 'stages':
        assert ours['totals'] == theirs['totals']


# ---- names ----

@pytest.mark.parametrize('style, name', [('full', FULL), ('short', SHORT), ('mangled', MANGLED)])
def test_names(trace, tmp_path, analyze, style, name):
    rows = analyze('breakdown', trace, '--names', style)['rows']
    assert {r['name'] for r in rows} == {name, 'node', 'ncclDevKernel_AllReduce_Sum_f32'}
    analyze('report', trace, '--names', style, '--output', tmp_path / 'out')
    breakdown = json.loads((tmp_path / 'out' / 'step_rank2.breakdown.json').read_text())
    assert {k['name'] for k in breakdown['top_kernels']} == {name, 'node'}


def test_names_that_are_no_mangled_ones(tmp_path, analyze):
    """Names that are no mangled names stay: Triton kernels, other characters, names too long for Kineto's demangler."""
    long = '_Z' + '1024' + 'x' * 1024 + 'v'
    names = ['triton_poi_fused_add_0', 'f', '_Z', '_Znonsense', '_Z4fillIiEvPT_S0_', long, '__nv_static_1__ZN1k', 'Zähler']
    t = Trace()
    for i, name in enumerate(names):
        t.work('kernel', None, (10 + 10 * i) * US, 5 * US, name=name)
    rows = analyze('breakdown', t.save(tmp_path / 'rank2.h.1.tfr'))['rows']
    assert {r['name'] for r in rows} == {FULL if n == MANGLED else n for n in names}


def test_info_names_the_devices(trace, analyze):
    first, second = analyze('info', trace)['rows'][0]['devices']
    assert first == {'device': 0, 'name': 'Simulated GPU 0', 'simulated': True, 'memory_bytes': 80 << 30, 'units': 100, 'samples': 0,
                     'uuid': 'GPU-01234567-89ab-cdef-0000-000000000000'}
    assert (second['name'], second['simulated']) == ('NVIDIA H200', False)
    assert 'Simulated GPU 0' in analyze('info', trace, format='text').out


def test_a_device_is_named_once(tmp_path, analyze):
    t = Trace()
    for _ in range(2):
        t.device(0, 'NVIDIA H200')
    t.records.append(rec('mark', name=t.w.string('m'), time=5))
    assert len(analyze('info', t.save(tmp_path / 'rank2.h.1.tfr'))['rows'][0]['devices']) == 1
