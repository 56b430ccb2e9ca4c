"""test_kineto - PyTorch (Kineto) traces, real ones and small ones in many spellings, against tests/kineto.py.

The real traces are those of ../shared/traces. tests/kineto.py shares no code with the analyser and computes the
expected answers from the JSON in every run. Exact times are equal to the nanosecond, rounded ones may differ by one.
"""

import gzip
import json
import re
import zlib
from decimal import Decimal
from functools import lru_cache

import pytest

import kineto
from conftest import TRACES
from kineto import Style, Trace

PATTERNS = ('hta/**/*.json', 'hta/**/*.json.gz', 'kineto_tb/*.json.gz', 'tracelens/**/*.json.gz')
FILES = sorted(str(p.relative_to(TRACES)) for pattern in PATTERNS for p in TRACES.glob(pattern))
NUMBER_OF_FILES = 22


@lru_cache(maxsize=1)
def document_of(path):
    return kineto.read(path)


def each_file(function):
    """One test per file. The tests of one file run on one worker, one after the other, so the file is parsed once."""
    rows = [pytest.param(f, marks=pytest.mark.xdist_group(f'kineto-{i}'), id=f'{i}-{f.split("/")[-1].split(".")[0]}')
            for i, f in enumerate(FILES)] or [pytest.param(None, id='none')]
    return pytest.mark.parametrize('name', rows)(function)


def ns(us):
    """A printed time in nanoseconds; None stays None."""
    return None if us is None else kineto.nanoseconds(us)


def exact(analyze, command, *arguments, **options):
    """The answer with times as Decimals, because doubles would round them."""
    out = analyze(command, *arguments, '--format', 'json', format=None, **options)
    return json.loads(out.out, parse_float=Decimal)


def stage_rows(answer):
    return {r['stage']: (r['calls'], ns(r['host_us']), ns(r['device_us']), ns(r['device_busy_us']), ns(r['idle_us']))
            for r in answer['rows'] if r['stage'] != kineto.NONE}


def expected_stages(document):
    """Rows in the form of stage_rows(); device times are None if the trace has no device."""
    found = kineto.tables(document)
    has_device = any(found[c] for c in kineto.DEVICE_CLASSES)
    return {name: (s.calls, s.host, *((s.device, s.busy, s.idle if s.works else None) if has_device else (None,) * 3))
            for name, s in kineto.stages(document).items()}


def check_one_call(rows, document):
    """Checks done_us, and median, p95, min and max of a stage's single calls, and that rows are sorted by done_us."""
    expected = kineto.stages(document)
    launches = {r.name for r in kineto.tables(document)['api'] if 'Launch' in r.name}
    known = any(kineto.tables(document)[c] for c in kineto.DEVICE_CLASSES) or not launches
    for r in rows:
        if r['stage'] in (kineto.RUN, kineto.NONE):
            continue
        each = expected[r['stage']].each
        assert (ns(r['min_us']), ns(r['max_us'])) == (each.min, each.max), r
        assert ns(r['done_us']) == (expected[r['stage']].done if known else None), r
        for key in ('median', 'p95'):
            assert abs(ns(r[f'{key}_us']) - getattr(each, key)) <= 1, (key, r)
    times = [(ns(r['done_us'] or r['wall_us']) or 0, ns(r['device_us']) or 0) for r in rows]
    assert times == sorted(times, reverse=True)


def check_breakdown(rows, document, **which):
    """Checks each kernel's row: counts and sums exactly, quantiles and deviations to one nanosecond."""
    expected = kineto.breakdown(document, **which)
    assert {(r['stage'], r['name']) for r in rows} == set(expected)
    assert len(rows) == len(expected)
    total = sum(s.total for s in expected.values())
    for r in rows:
        s = expected[r['stage'], r['name']]
        assert (r['calls'], ns(r['total_us']), ns(r['min_us']), ns(r['max_us'])) == (s.calls, s.total, s.min, s.max), r
        for key in ('mean', 'median', 'p95'):
            assert abs(ns(r[f'{key}_us']) - getattr(s, key)) <= 1, (key, r)
        assert (r['std_us'] is None) == (s.std is None), r
        assert s.std is None or abs(ns(r['std_us']) - s.std) <= 1, r
        assert total == 0 or abs(float(r['pct']) - 100 * s.total / total) < 0.01, r


# ---- real traces ----

def test_all_files_are_here(shared_traces):
    assert len(FILES) == NUMBER_OF_FILES


@each_file
def test_info(analyze, shared_traces, name):
    """info has the counts by category, the span to the nanosecond, the rank and the world size."""
    document = document_of(shared_traces / name)
    row = exact(analyze, 'info', shared_traces / name)['rows'][0]
    info = document.get('distributedInfo', {})
    assert (row['rank'], row['world']) == (info.get('rank', 0), info.get('world_size'))
    assert (row['kind'], row['complete'], row['lost']) == ('kineto', True, {})
    assert row['host'] == document.get('host_name')
    assert sum(row['events'].values()) == len(document['traceEvents'])
    for (phase, category), count in kineto.counts(document).items():
        if phase == 'X':
            assert row['events'][category] == count
    first, last = kineto.span(document)
    assert ns(row['duration_us']) == last - first


@each_file
def test_stages(analyze, shared_traces, name):
    document = document_of(shared_traces / name)
    answer = exact(analyze, 'stages', shared_traces / name)
    rows = stage_rows(answer)
    if kineto.tables(document)['annotation']:
        assert rows == expected_stages(document)
    else:
        assert set(rows) == {kineto.RUN}
        assert answer['rows'][0]['median_us'] == answer['rows'][0]['host_us']
    check_one_call(answer['rows'], document)


@each_file
def test_breakdown(analyze, shared_traces, name):
    document = document_of(shared_traces / name)
    rows = exact(analyze, 'breakdown', shared_traces / name)['rows']
    check_breakdown(rows, document)


@pytest.mark.parametrize('name', ['trace_filter/sampled_rank-0.json.gz', 'nccl_parser_config/nccl_data.json.gz'])
def test_filters(analyze, shared_traces, name):
    """--stream and --step select exactly the right work."""
    path = shared_traces / 'hta' / name
    document = document_of(path)
    works = [work for work, _, _ in kineto.belongings(document)]
    for stream in {work.stream for work in works}:
        if any(w.stream == stream and w.kind == 'kernel' for w in works):
            rows = exact(analyze, 'breakdown', '--stream', stream, path)['rows']
            check_breakdown(rows, document, wanted=lambda work, chain: work.stream == stream)
    steps = {s.name: s for s in kineto.tables(document)['annotation'] if s.name.startswith('ProfilerStep#')}
    launched = {id(work): call.start for work, call in kineto.launches(kineto.tables(document)) if call}
    for step in steps.values():
        rows = exact(analyze, 'breakdown', '--step', step.name.split('#')[1], path)['rows']
        check_breakdown(rows, document, wanted=lambda work, chain: step.start <= launched[id(work)] < step.end)


# ---- one trace in many spellings ----

STYLES = {
    'compact': Style(),
    'spaces': Style(space=' '),
    'lines': Style(space='\r\n\t '),
    'keys in any order': Style(shuffle=1),
    'other order': Style(shuffle=2, space='\n'),
    'unknown members': Style(unknown=True),
    'unknown members anywhere': Style(unknown=True, shuffle=3, space=' '),
    'strings': Style(numbers='strings'),
    'floats': Style(numbers='floats'),
    'exponents': Style(numbers='exponents'),
    'escaped names': Style(escape='names'),
    'escapes': Style(escape='all'),
    'all of it': Style(numbers='exponents', escape='names', shuffle=4, unknown=True, space='\n'),
}


@pytest.mark.parametrize('style', STYLES)
def test_spelling(analyze, tmp_path, style):
    """Every spelling of a trace gives the same answers and loses nothing."""
    trace = kineto.sample()
    path = trace.write(tmp_path / 'trace.json', STYLES[style])
    info = exact(analyze, 'info', path)['rows'][0]
    assert (info['rank'], info['world'], info['lost'], info['complete']) == (3, 8, {}, True)
    assert sum(info['events'].values()) == len(trace.events)
    first, last = kineto.span(trace.document)
    assert ns(info['duration_us']) == last - first
    answer = exact(analyze, 'stages', path)
    assert stage_rows(answer) == expected_stages(trace.document)
    rows = exact(analyze, 'breakdown', path)['rows']
    check_breakdown(rows, trace.document)
    assert {r['rank'] for r in rows} == {3}


def packed(text, members, level=6):
    """The text as this many gzip members, cut without regard to its content."""
    data = text.encode()
    size = -(-len(data) // members)
    return b''.join(gzip.compress(data[i:i + size], level, mtime=0) for i in range(0, len(data), size))


def labelled(text):
    """A gzip member with every optional header field: extra bytes, a name, a comment, a header checksum."""
    data, deflate = text.encode(), zlib.compressobj(6, zlib.DEFLATED, -15)
    head = b'\x1f\x8b\x08\x1e\x01\x02\x03\x04\x00\x03' + b'\x05\x00ex\x00tr' + b'trace.json\x00' + b'by hand\x00'
    tail = zlib.crc32(data).to_bytes(4, 'little') + len(data).to_bytes(4, 'little')
    whole = head + (zlib.crc32(head) & 0xffff).to_bytes(2, 'little') + deflate.compress(data) + deflate.flush() + tail
    assert gzip.decompress(whole) == data
    return whole


@pytest.mark.parametrize('data', [
    pytest.param(lambda text: packed(text, 1), id='one member'),
    pytest.param(labelled, id='a head with everything'),
    pytest.param(lambda text: labelled(text[:200]) + labelled(text[200:]), id='two heads with everything'),
    pytest.param(lambda text: packed(text, 2), id='two members'),
    pytest.param(lambda text: packed(text, 97), id='97 members'),
    pytest.param(lambda text: packed(text, 3, 0), id='stored'),
    pytest.param(lambda text: packed(text, 2) + gzip.compress(b''), id='an empty member at the end'),
    pytest.param(lambda text: packed(text, 1) + b'\0' * 512, id='padded with zeros'),
])
@pytest.mark.parametrize('name', ['trace.json.gz', 'trace.json'])
def test_gzip(analyze, tmp_path, data, name):
    """A gzip file is recognised by its first bytes, not by its name."""
    trace = kineto.sample()
    (tmp_path / name).write_bytes(data(trace.text()))
    assert exact(analyze, 'info', tmp_path / name)['rows'][0]['lost'] == {}
    assert stage_rows(exact(analyze, 'stages', tmp_path / name)) == expected_stages(trace.document)


@pytest.mark.parametrize('text', [
    pytest.param(lambda t: Style().text(t.events), id='array'),
    pytest.param(lambda t: '\ufeff' + t.text(), id='byte order mark'),
    pytest.param(lambda t: '\n \t' + Style(space=' ').text(t.events) + '\n\n', id='array with space around'),
    pytest.param(lambda t: Style().text({'traceEvents': t.events, **t.top}), id='events first'),
    pytest.param(lambda t: Style().text({'otherEvents': t.events[:5], **t.document}), id='another array'),
])
def test_document(analyze, tmp_path, text):
    """The outermost value may be an object with members in any order, or a bare array."""
    trace = kineto.sample()
    (tmp_path / 'trace.json').write_text(text(trace))
    answer = exact(analyze, 'stages', tmp_path / 'trace.json')
    assert stage_rows(answer) == expected_stages(trace.document)


# ---- numbers ----

@pytest.mark.parametrize('start, duration, expected', [
    ('1', '1', 1000), ('1.5', '0.001', 1), ('1712195495519689.047', '63.813', 63813), ('0.1', '0.2', 200),
    ('1e3', '12.345e3', 12345000), ('4.0E+0', '2500000e-3', 2500000), ('"7.25"', '"8"', 8000), ('-5.001', '0.002', 2),
    ('2305843009213.001', '9007199254.740993', 9007199254741),
    ('1712195495519689.047', '9007199254.740993', 9007199254741), ('1234567890123456789e-3', '1', 1000),
    ('0', '0.0019', 2), ('0', '1.0004', 1000), ('0', '1.0004999999999999999999999999999999', 1000),
])
def test_times_are_fixed_point(analyze, tmp_path, start, duration, expected):
    """No time passes through a double; digits below a nanosecond are rounded."""
    text = ('{"traceEvents":[{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":%s,"dur":%s,'
            '"args":{"device":0,"stream":7}}]}' % (start, duration))
    (tmp_path / 'trace.json').write_text(text)
    assert ns(exact(analyze, 'info', tmp_path / 'trace.json')['rows'][0]['duration_us']) == expected
    assert ns(exact(analyze, 'breakdown', tmp_path / 'trace.json')['rows'][0]['total_us']) == expected


@pytest.mark.parametrize('base', [0, 1711964646000000000, '1711964646000000000'], ids=['zero', 'number', 'text'])
def test_base_time(analyze, tmp_path, base):
    """Times count from baseTimeNanoseconds, at any place in the file."""
    trace = Trace(baseTimeNanoseconds=base).stage('a', Decimal('12.345'), 100)
    events_first = {'traceEvents': trace.events, **trace.top}
    (tmp_path / 'a.json').write_text(trace.text())
    (tmp_path / 'b.json').write_text(Style().text(events_first))
    starts = [exact(analyze, 'info', tmp_path / f)['rows'][0] for f in ('a.json', 'b.json')]
    assert [r['duration_us'] for r in starts] == [100, 100]
    assert starts[0]['start'] == starts[1]['start']
    if int(base):
        assert starts[0]['start'] == '2024-04-01T09:44:06.000012Z'


@pytest.mark.parametrize('correlation', [0, 1, 2**31, 2**32 + 5, 2**53 + 1, 2**63 - 1, 2**63 + 1, 2**64 - 2])
def test_ids_have_64_bits(analyze, tmp_path, correlation):
    """Ids that differ only in the last bit are different launches."""
    trace = Trace().stage('right', 0, 50).stage('wrong', 100, 50)
    trace.call(10, correlation).call(110, correlation ^ 1).kernel('k', 200, 5, correlation)
    answer = exact(analyze, 'breakdown', trace.write(tmp_path / 'trace.json'))
    assert [r['stage'] for r in answer['rows']] == ['right']


# ---- names and categories ----

NAMES = {
    'plain': 'plain', 'marks': 'quote " backslash \\ slash /',
    'controls': 'line\nfeed\ttab \x7f', 'nul': 'nul \x00 inside',
    'two bytes': 'ümläut', 'three bytes': '漢字', 'pair': '\U0001F600', 'object': '{"ph":"X"}', 'bracket': ']',
    'template': 'void f<a, b>(x*)', 'space': ' ', 'empty': '', 'long': 'a' * 5000,
}


@pytest.mark.parametrize('name', NAMES)
@pytest.mark.parametrize('escape', [None, 'names'], ids=['raw', 'escaped'])
def test_names(analyze, tmp_path, name, escape):
    """A name is the text that JSON defines, byte for byte."""
    trace = Trace().kernel(NAMES[name], 1, 2)
    rows = analyze('breakdown', trace.write(tmp_path / 'trace.json', Style(escape=escape)))['rows']
    assert [r['name'] for r in rows] == [NAMES[name]]


CATEGORIES = {
    'cuda': ('cuda_runtime', 'kernel', 'gpu_memcpy', 'gpu_memset', 'cpu_op'),
    'cuda driver': ('cuda_driver', 'kernel', 'gpu_memcpy', 'gpu_memset', 'cpu_op'),
    'old': ('Runtime', 'Kernel', 'Memcpy', 'Memset', 'Operator'),
    'xpu': ('xpu_runtime', 'kernel', 'gpu_memcpy', 'gpu_memset', 'cpu_op'),
    'mtia': ('mtia_runtime', 'mtia_ccp_events', 'gpu_memcpy', 'gpu_memset', 'cpu_op'),
    'private': ('privateuse1_runtime', 'kernel', 'gpu_memcpy', 'gpu_memset', 'cpu_op'),
}


@pytest.mark.parametrize('vendor', CATEGORIES)
def test_categories(analyze, tmp_path, vendor):
    """Old and new category names of every vendor have the same meaning."""
    api, kernel, copy, fill, op = CATEGORIES[vendor]
    trace = Trace().stage('s', 0, 100).operator('aten::mm', 5, 20, external=4, cat=op)
    trace.call(10, 1, cat=api).kernel('k', 200, 5, 1, cat=kernel)
    trace.call(20, 2, cat=api).kernel('Memcpy HtoD', 210, 6, 2, cat=copy)
    trace.call(30, 3, cat=api).kernel('Memset', 220, 7, 3, cat=fill)
    trace.kernel('by operator', 230, 8, external=4, cat=kernel)
    path = trace.write(tmp_path / 'trace.json')
    assert stage_rows(exact(analyze, 'stages', path))['s'] == (1, 100000, 26000, 26000, 12000)
    rows = analyze('breakdown', path)['rows']
    assert {(r['stage'], r['name'], r['total_us']) for r in rows} == {('s', 'k', 5), ('s', 'by operator', 8)}
    rows = analyze('breakdown', '--group-by', 'category', path)['rows']
    assert sum(r['total_us'] for r in rows) == 26 and len(rows) == 3


@pytest.mark.parametrize('api, word', [('cuda_runtime', 'CUDA'), ('hip_runtime', 'CUDA'), ('xpu_runtime', 'XPU'),
                                       ('mtia_runtime', 'MTIA'), ('privateuse1_runtime', 'PRIVATEUSE1')])
def test_the_table_of_operators_names_the_devices(analyze, tmp_path, api, word):
    """torch heads its columns by the device (use_device.upper()); ROCm's devices are `cuda` to torch. So does dftracer."""
    trace = Trace().operator('aten::mm', 5, 20, external=4).call(10, 1, cat=api, external=4).kernel('k', 200, 5, 1)
    trace.write(tmp_path / 'trace.json')
    lines = analyze('ops', tmp_path / 'trace.json', format=None).out.splitlines()
    head = [c for c in re.split('  +', lines[1]) if word in c]
    assert head == [f'Self {word}', f'Self {word} %', f'{word} total', f'{word} time avg']
    assert lines[-1].startswith(f'Self {word} time total: ')
    assert f'"{word}_KERNEL"' in analyze('export', 'pfw', tmp_path / 'trace.json', format=None).out


def xpu_trace():
    """A trace as Kineto's XPU plugin writes it: all work in row 0 of its device, the SYCL queue among the arguments, times as
    text there, the host's waits and the profiler's overhead in rows of a process -1."""
    events = []

    def add(cat, name, ts, dur, pid=7, tid=7, **more):
        events.append({'ph': 'X', 'cat': cat, 'name': name, 'pid': pid, 'tid': tid, 'ts': ts, 'dur': dur, 'args': more})

    def work(cat, name, call, id, ts, queue, device=0, **more):
        linked = {'External id': id, 'correlation': 4100 + id}
        add('cpu_op', f'aten::{name}', ts, 50, **{'External id': id})
        add('xpu_runtime', call, ts + 5, 10, **linked)
        add(cat, name, ts + 20, 30, device, 0, **linked, **{'appended': f'{ts}.001', 'submitted': f'{ts}.002', 'device': device, 'context': '0x55d08918fc78',
                                                            'sycl queue': queue, 'l0 queue': '0x55d08b8fc138'}, **more)
    work('kernel', 'gemm_kernel', 'urEnqueueKernelLaunch', 1, 1000, 64, kernel_id=1, sycl_node_id=0)
    work('kernel', 'add<float>', 'urEnqueueKernelLaunch', 2, 1100, 65, kernel_id=2, sycl_node_id=0)
    work('kernel', 'gemm_kernel', 'urEnqueueKernelLaunch', 3, 1200, 64, 1, kernel_id=1, sycl_node_id=1)
    work('gpu_memcpy', 'Memcpy M2D (Memory -> Device)', 'urEnqueueUSMMemcpy', 4, 1300, 64, bytes=4096)
    work('gpu_memset', 'Memset (0 -> Device)', 'urEnqueueUSMFill', 5, 1400, 65, bytes=4096)
    add('xpu_runtime', 'urQueueFinish', 1500, 100, correlation=4200)
    add('xpu_sync', 'zeEventHostSynchronize', 1505, 90, -1, 7, correlation=4201, Type='HOST_EVENT', Number_wait_events=1)
    add('overhead', 'Buffer Flush', 1600, 5, -1, 7, **{'overhead cost': 5000, 'overhead count': 1})
    add('collective_comm', 'xccl::allreduce', 1700, 40, Communicator_id=1)
    return {'schemaVersion': 1, 'deviceProperties': [], 'traceEvents': events}


def test_a_trace_of_an_xpu_has_its_queues_as_streams(analyze, tmp_path):
    """A queue is a stream, waits of the host are no work, and calls have kinds; torch's table has the devices' own work alone."""
    path = tmp_path / 'xpu.json'
    path.write_text(json.dumps(xpu_trace()))
    assert {(r['device'], r['stream'], r['works']) for r in analyze('idle', path)['rows']} == {(0, 64, 2), (0, 65, 2), (1, 64, 1)}
    assert {r['name'] for r in analyze('breakdown', path, '--stream', '65')['rows']} == {'add<float>'}
    assert analyze('ops', path, format=None).out.endswith('Self XPU time total: 150.000us\n')
    totals = analyze('launches', path)['totals']
    assert [totals[key] for key in ('launches', 'copies', 'memsets')] == [3, 1, 1]
    sync, = [r for r in analyze('launches', path)['rows'] if r['syncs']]
    assert (sync['name'], sync['syncs']) == ('urQueueFinish', 1)
    kinds = analyze('info', path)['rows'][0]['events']
    assert (kinds['xpu_sync'], kinds['collective_comm'], kinds['overhead']) == (1, 1, 1)
    exported = json.loads(analyze('export', 'chrome', path, format=None).out)['traceEvents']
    assert {e['args'].get('sycl queue') for e in exported if e.get('cat') == 'kernel'} == {64, 65}


def npu_trace(shift):
    """A trace as torch_npu writes it: a bare array, times as text, arrows instead of correlation ids, tasks of the device
    without a category; the device is the low five bits of a row's pid."""
    host, device, hccl = 2041, (2041 << 10) | (4 << 5) | 3, (2041 << 10) | (5 << 5) | 3
    events = [{'ph': 'M', 'name': 'process_name', 'pid': device, 'tid': 0, 'args': {'name': 'Ascend Hardware'}}]

    def add(name, ts, dur, pid=host, tid=host, **more):
        events.append({'ph': 'X', 'name': name, 'pid': pid, 'tid': tid, 'ts': f'{shift + ts}.120', 'dur': dur, **more})

    def launch(id, ts, start, pid=device, tid=2, name='torch_to_npu'):
        both = {'bp': 'e', 'name': name, 'id': id, 'cat': 'async_npu'}
        events.extend([{'ph': 's', 'pid': host, 'tid': host, 'ts': f'{shift + ts}.120', **both},
                       {'ph': 'f', 'pid': pid, 'tid': tid, 'ts': f'{shift + start}.120', **both}])
    add('ProfilerStep#0', 0, 400, cat='cpu_op')
    for i, (name, task) in enumerate((('MatMulV2', 'AI_CORE'), ('Add', 'KERNEL_AIVEC'), ('MEMCPY_ASYNC', 'MEMCPY_ASYNC'),
                                      ('EVENT_WAIT', 'EVENT_WAIT'), ('NOTIFY_RECORD', 'NOTIFY_RECORD_SQE'))):
        add('outer', 10 + 60 * i, 50, cat='cpu_op', args={'Sequence number': i})
        add(f'aten::{name}', 10 + 60 * i, 40, cat='cpu_op')
        launch(str(shift + i), 10 + 60 * i, 30 + 60 * i)
        add(name, 30 + 60 * i, 25.25, device, 2, args={'Model Id': 1, 'Task Type': task, 'Stream Id': 2})
    add('c10d::allreduce_', 350, 5, cat='cpu_op')
    launch(77, 350, 500, hccl, 0)
    add('hcom_allReduce__971_0_1', 500, 20, hccl, 0, args={'connection_id': 9})
    add('Notify_Wait', 500, 19, hccl, 3, args={'task type': 'Notify_Wait'})
    add('Computing', 30, 200, (2041 << 10) | 3, 7)  # of its overlap analysis: derived from the others
    return events


def test_a_trace_of_an_npu_has_its_kernels_and_who_launched_them(analyze, tmp_path):
    path = tmp_path / 'trace_view.json'
    path.write_text(json.dumps(npu_trace(1700000000000000)))
    rows = analyze('breakdown', path)['rows']
    assert {(r['stage'], r['name'], r['kind'], r['total_us']) for r in rows} == {
        ('ProfilerStep*', 'MatMulV2', 'COMPUTATION', 25.25), ('ProfilerStep*', 'Add', 'COMPUTATION', 25.25),
        ('ProfilerStep*', 'hcom_allReduce__971_0_1', 'COMMUNICATION', 20)}
    assert {r['name'] for r in analyze('breakdown', path, '--group-by', 'op')['rows']} == {
        'aten::MatMulV2', 'aten::Add', 'aten::MEMCPY_ASYNC', 'c10d::allreduce_'}  # the inner of two operators that begin together
    line, = analyze('timeline', path)['rows']
    assert (line['computation_us'], line['communication_us'], line['memcpy_us'], line['total_us']) == (50.5, 20, 25.25, 490)
    assert {(r['device'], r['stream']) for r in analyze('idle', path)['rows']} == {(3, 2), (3, 0)}
    kinds = analyze('info', path)['rows'][0]['events']
    assert {k: kinds[k] for k in kinds if k.startswith('npu_')} == {'npu_kernel': 3, 'npu_memcpy': 1, 'npu_sync': 1, 'npu_task': 1}
    assert 'Self NPU time total: 121.000us' in analyze('ops', path, format=None).out  # with the wait, as torch adds up waits


# ---- attribution to stages ----

def belonging(analyze, trace, tmp_path):
    """{kernel: stage}; tests/kineto.py must say the same."""
    rows = analyze('breakdown', trace.write(tmp_path / 'trace.json'))['rows']
    found = {r['name']: r['stage'] for r in rows}
    assert set(kineto.breakdown(trace.document)) == {(s, n) for n, s in found.items()}
    assert stage_rows(exact(analyze, 'stages', tmp_path / 'trace.json')) == expected_stages(trace.document)
    return found


def test_innermost_stage_at_the_launch(analyze, tmp_path):
    """Kernels belong to the stage of their launch, not of their run; stages are half-open intervals."""
    trace = Trace().stage('outer', 0, 100).stage('inner', 20, 30).stage('next', 100, 50)
    for i, ts in enumerate((0, 19, 20, 49, 50, 99, 100, 149)):
        trace.launch(f'at {ts}', ts, i + 1, delay=1000 + i * 20)
    assert belonging(analyze, trace, tmp_path) == {
        'at 0': 'outer', 'at 19': 'outer', 'at 20': 'inner', 'at 49': 'inner', 'at 50': 'outer', 'at 99': 'outer',
        'at 100': 'next', 'at 149': 'next'}


def test_stage_of_its_own_thread_first(analyze, tmp_path):
    trace = Trace().stage('main', 0, 100).stage('worker', 0, 100, tid=200)
    trace.launch('m', 10, 1).launch('w', 10, 2, tid=200).launch('none: two threads have one', 10, 3, tid=300)
    assert belonging(analyze, trace, tmp_path) == {'m': 'main', 'w': 'worker', 'none: two threads have one': '(none)'}


def test_backward_goes_to_its_forward_operators_stage(analyze, tmp_path):
    """Backward work keeps its forward operator's stage while other stages are open, and from nested operators."""
    trace = Trace().stage('forward', 0, 100).stage('layer', 10, 20).stage('backward', 200, 300)
    trace.stage('data', 0, 900, tid=400)
    trace.operator('aten::mul', 12, 5).operator('aten::sum', 50, 5)
    for start, forward, number in ((210, 12, 1), (310, 50, 2)):
        trace.operator(f'evaluate {number}', start, 50, tid=300).operator(f'Backward{number}', start + 5, 40, tid=300)
        trace.arrow(number, (100, forward), (300, start + 5))
        trace.operator('aten::inner', start + 10, 10, tid=300).launch(f'k{number}', start + 12, number, tid=300)
    trace.launch('no arrow', 420, 9, tid=300)
    assert belonging(analyze, trace, tmp_path) == {'k1': 'layer', 'k2': 'forward', 'no arrow': '(none)'}


def test_own_stage_comes_before_the_forward_one(analyze, tmp_path):
    trace = Trace().stage('forward', 0, 100).stage('hook', 200, 100, tid=300)
    trace.operator('aten::mul', 10, 5).operator('MulBackward0', 210, 20, tid=300).arrow(1, (100, 10), (300, 210))
    trace.launch('k', 215, 1, tid=300)
    assert belonging(analyze, trace, tmp_path) == {'k': 'hook'}


def test_any_other_thread_takes_the_one_open_stage(analyze, tmp_path):
    trace = Trace().stage('outer', 0, 100).stage('inner', 20, 30).stage('other', 60, 10, tid=200)
    for ts in (10, 30, 65, 80, 120):
        trace.launch(f'at {ts}', ts, ts, tid=300)
    assert belonging(analyze, trace, tmp_path) == {
        'at 10': 'outer', 'at 30': 'inner', 'at 65': '(none)', 'at 80': 'outer', 'at 120': '(none)'}


def test_stages_that_overlap_in_part(analyze, tmp_path):
    """The innermost of two overlapping stages is the one that began last; work launched in both counts in both."""
    trace = Trace().stage('a', 0, 50).stage('b', 30, 50).stage('c', 70, 50)
    for ts in (10, 40, 60, 75, 100):
        trace.launch(f'at {ts}', ts, ts)
    assert belonging(analyze, trace, tmp_path) == {
        'at 10': 'a', 'at 40': 'b', 'at 60': 'b', 'at 75': 'c', 'at 100': 'c'}


def test_without_annotations_all_is_one_run(analyze, tmp_path):
    trace = Trace().launch('k', 10, 1, dur=30).launch('k', 20, 2, dur=7)
    path = trace.write(tmp_path / 'trace.json')
    assert stage_rows(exact(analyze, 'stages', path)) == {'(run)': (1, 35000, 37000, 30000, 0)}
    assert [(r['stage'], r['name'], r['calls']) for r in analyze('breakdown', path)['rows']] == [('(run)', 'k', 2)]


def test_recursion_counts_once(analyze, tmp_path):
    trace = Trace().stage('f', 0, 100).stage('f', 10, 50).stage('f', 20, 10).launch('k', 25, 1)
    path = trace.write(tmp_path / 'trace.json')
    assert stage_rows(exact(analyze, 'stages', path)) == {'f': (3, 100000, 10000, 10000, 0)}


def test_two_devices(analyze, tmp_path):
    """Busy and idle times are summed over devices."""
    trace = Trace().stage('s', 0, 100)
    trace.launch('a', 10, 1, delay=0, dur=20)
    trace.launch('b', 20, 2, delay=0, dur=20, device=1).launch('c', 60, 3, delay=0, device=1)
    rows = stage_rows(exact(analyze, 'stages', trace.write(tmp_path / 'trace.json')))
    assert rows == {'s': (1, 100000, 50000, 50000, 20000)}


# ---- device timeline ----

def test_timeline(analyze, tmp_path):
    """Exposed time is time that nothing more useful hides: computation hides communication, and both hide copies."""
    trace = Trace().kernel('gemm', 0, 100).kernel('ncclKernel_AllReduce', 50, 100, stream=20).kernel('gemm', 200, 10)
    trace.kernel('Memcpy DtoH', 140, 30, cat='gpu_memcpy', stream=8).kernel('ncclKernel_AllReduce', 60, 20, stream=21)
    row, = analyze('timeline', trace.write(tmp_path / 'trace.json'))['rows']
    times = {k.removesuffix('_us'): v for k, v in row.items() if k.endswith('_us')}
    assert times == {'total': 210, 'busy': 180, 'idle': 30, 'computation': 110, 'communication': 100, 'memcpy': 30,
                     'exposed_communication': 50, 'exposed_memcpy': 20}
    assert row['idle_pct'] == pytest.approx(100 * 30 / 210, abs=0.01)


# ---- several inputs ----

def test_ranks_of_a_directory(analyze, tmp_path):
    """Each rank has one row; a rank given on the command line replaces the file's."""
    for rank in (0, 1, 5):
        trace = Trace(distributedInfo={'rank': rank, 'world_size': 8}).stage('s', 0, 10 + rank)
        trace.write(tmp_path / f'r{rank}.json.gz')
    rows = analyze('stages', tmp_path)['rows']
    assert {(r['rank'], r['host_us']) for r in rows} == {(0, 10), (1, 11), (5, 15)}
    rows = analyze('stages', f'rank=7:{tmp_path}/r0.json.gz', tmp_path / 'r5.json.gz')['rows']
    assert {(r['rank'], r['host_us']) for r in rows} == {(7, 10), (5, 15)}
    rows = analyze('stages', '--rank', '1', tmp_path)['rows']
    assert {(r['rank'], r['host_us']) for r in rows} == {(1, 11)}


def test_steps(analyze, tmp_path):
    """--step selects by launch: a step has all work it launched, however late it ran."""
    trace = Trace()
    for step in range(3):
        trace.stage(f'ProfilerStep#{step}', step * 100, 100).launch(f'k{step}', step * 100 + 50, step + 1, delay=400)
    path = trace.write(tmp_path / 'trace.json')
    assert [r['name'] for r in analyze('breakdown', '--step', '1', path)['rows']] == ['k1']
    rows = analyze('stages', path)['rows']
    assert [(r['stage'], r['calls'], r['host_us']) for r in rows] == [('ProfilerStep*', 3, 300)]


def test_time_between_two_traces_of_a_rank_is_not_idle(shared_traces, analyze):
    """The minutes between the two runs of kineto_tb are not idle time: together they are as idle as each alone."""
    both = shared_traces / 'kineto_tb'
    single = sorted(both.glob('*.json.gz'))
    assert len(single) == 2
    for command, keys in (('timeline', ('total_us', 'busy_us', 'idle_us')), ('stages', ('host_us', 'device_busy_us', 'idle_us'))):
        row, = analyze(command, both)['rows']
        parts = [analyze(command, path)['rows'][0] for path in single]
        for key in keys:
            assert row[key] == pytest.approx(sum(p[key] for p in parts), abs=0.001), (command, key)
    assert analyze('stages', both)['rows'][0]['pct'] > 90
