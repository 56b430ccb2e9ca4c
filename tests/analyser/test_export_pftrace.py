"""test_export_pftrace - `tfanalyze export pftrace`, decoded by Perfetto's own package, equals the records."""

import gzip
import json
import os
import subprocess
from collections import Counter, defaultdict
from decimal import Decimal

import pytest

import comm_traces
import growth_shapes
import kineto
import pftrace
import tfr
from conftest import clean_environment, execute
from growth_shapes import event
from small_traces import clock_chunk, simple
from test_device_records import START, US, Trace
from test_export_kineto import AMD, FILTER, QWEN, RESNET
from test_device_export import pipeline
from test_merge import ours
from tfr import NESTED, STAGE, Writer, rec

CLOCKS = 3  # TFI_SAMPLE_SM_CLOCK, TFI_SAMPLE_MEMORY_CLOCK
WORK = ('kernel', 'gpu_memcpy', 'gpu_memset', 'Kernel', 'Memcpy', 'Memset')


@pytest.fixture
def export(analyze, tmp_path):
    """export(*arguments) -> the decoded trace."""
    def export(*arguments, rc=0, name='out.pftrace'):
        out = tmp_path / 'exported' / name
        out.parent.mkdir(exist_ok=True)
        result = analyze('export', 'pftrace', *arguments, '--output', out, rc=rc, format=None)
        found = pftrace.read(out)
        found.err = result.err
        return found
    return export


def plain(value):
    """A JSON value as an annotation keeps it; empty lists and objects have no form there."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()} or None
    if isinstance(value, list):
        return [plain(v) for v in value] or None
    return float(value) if isinstance(value, Decimal) else value


def frozen(value):
    return repr(sorted(value.items(), key=lambda item: item[0])) if isinstance(value, dict) else repr(value)


def as_row(s):
    return s.category, s.name, s.start, s.end, frozen(s.args)


def nested(slices):
    """Checks that the slices of each track nest, and that none that works on a device lies inside another one."""
    for s in slices:
        around = s.around
        assert around is None or around.start <= s.start <= s.end <= around.end
        assert around is None or not (s.category in WORK and around.category in WORK)


# ---- traces of PyTorch ----

@pytest.mark.parametrize('name', [QWEN, AMD, FILTER.format(0), RESNET])
def test_a_trace_of_pytorch(export, shared_traces, name):
    """Every event with its times and arguments, on its thread or stream; memory totals; each arrow between two events."""
    document = kineto.read(shared_traces / name)
    base = document.get('baseTimeNanoseconds', 0)
    found = export(shared_traces / name)
    nested(found.slices)
    expected, instants, places = Counter(), Counter(), Counter()
    for e in document['traceEvents']:
        if e['ph'] not in 'Xi':
            continue
        start = base + kineto.nanoseconds(e['ts'])
        row = (e.get('cat', ''), e['name'], start, start + kineto.nanoseconds(e.get('dur', 0)), frozen(plain(e.get('args')) or {}))
        (expected if e['ph'] == 'X' else instants)[row] += 1
        if e['ph'] == 'X' and str(e['tid']).isdigit() and e['cat'] not in WORK:
            places[e['name'], start, int(e['tid'])] += 1
    assert len(expected) > 100 and Counter(map(as_row, found.slices)) == expected
    assert Counter((s.category, s.name, s.start, s.start, frozen(s.args)) for s in found.instants) == instants
    on_threads = Counter((s.name, s.start, s.track.thread.tid) for s in found.slices if s.track.HasField('thread'))
    assert on_threads and not on_threads - places
    assert check_flows(found, document, base) or name not in (QWEN, AMD)


def check_flows(found, document, base):
    """Flows are the arrows whose ends are both at the start of an event; an end belongs to the last beginning before it."""
    begun = Counter((e['pid'], e['tid'], kineto.nanoseconds(e['ts'])) for e in document['traceEvents'] if e['ph'] == 'X')
    arrows = defaultdict(lambda: ([], []))
    for e in document['traceEvents']:
        if e['ph'] in 'sf':
            arrows[e['cat'], e['id']][e['ph'] == 'f'].append((kineto.nanoseconds(e['ts']), e['pid'], e['tid']))
    expected = Counter()
    for starts, ends in arrows.values():
        for end, *row in ends if starts else ():
            start = max((s for s in starts if s[0] <= end), default=min(starts))
            if begun[(*row, end)] and begun[(*start[1:], start[0])]:
                expected[base + start[0], base + end] += 1
    flows = Counter((a.start, b.start) for a, b in found.flows)
    assert not expected - flows
    for a, b in found.flows:
        assert b.category not in WORK or a.args['correlation'] == b.args['correlation']
    return expected


def traces(tmp_path):
    """Two ranks with the same pid, thread and ids."""
    for rank in range(2):
        t = kineto.Trace(distributedInfo={'rank': rank, 'world_size': 2})
        t.operator('op', 10, 20, external=1).launch('k', 12, 21, delay=5 + rank).arrow(7, (100, 10), (100, 10))
        t.write(tmp_path / f'{rank}.json')
    return [tmp_path / f'{rank}.json' for rank in range(2)]


def rows_of(found, category):
    """{rank: the times of its slices of a category, in order}"""
    times = defaultdict(list)
    for s in sorted(found.slices, key=lambda s: s.start):
        if s.category == category:
            times[pftrace.row(found, s.track)[0].partition(':')[0]].append((s.start, s.end))
    return times


def test_hosts_share_one_clock(export, tmp_path):
    """Clocks 3 ms apart from host to host are aligned by the ends of collectives."""
    for r in range(4):
        ours(tmp_path / f'rank{r}.node{r}.4000.tfr', r, 3_000_000 * r * (-1) ** r, 2e-6 * r, world=4)
    found = export(tmp_path)
    assert '3 clocks are aligned' in found.err
    times = rows_of(found, 'kernel')
    assert sorted(times) == [f'rank {r}' for r in range(4)] and len({len(t) for t in times.values()}) == 1
    for at in zip(*times.values()):
        ends = [end for _, end in at]
        assert max(ends) - min(ends) < 3000


def test_hosts_of_pytorch_share_one_clock(export, tmp_path):
    """Clocks that drift: durations follow them."""
    paths, _ = comm_traces.job(tmp_path, count=60, sequences=True)
    truth = {}
    for rank, path in enumerate(paths):
        kernels = [e for e in kineto.read(path)['traceEvents'] if e.get('cat') == 'kernel']
        truth[f'rank {rank}'] = sorted((kineto.nanoseconds(e['ts']), kineto.nanoseconds(e['dur'])) for e in kernels)
        comm_traces.skewed(path, rank * 3_000_000, rank * 1e-4, f'node{rank}')
    found = export(*paths)
    assert '3 clocks are aligned' in found.err
    times = rows_of(found, 'kernel')
    assert {rank: len(t) for rank, t in times.items()} == {rank: len(t) for rank, t in truth.items()}
    first, zero = times['rank 0'][0][0], truth['rank 0'][0][0]
    for rank, pairs in times.items():
        for (start, end), (ts, dur) in zip(pairs, truth[rank]):
            assert abs((start - first) - (ts - zero)) < 4000 and abs((end - start) - dur) < 300


def test_ranks_of_pytorch_keep_apart(tmp_path, export):
    found = export(*traces(tmp_path))
    rows = {pftrace.row(found, s.track) for s in found.slices if s.name == 'k'}
    assert rows == {(f'rank {rank}: process 100', 'GPU 0', 'stream 7') for rank in range(2)}
    processes = [t for t in found.tracks.values() if t.HasField('process')]
    assert len({t.process.pid for t in processes}) == len(processes) == 2
    assert sorted(t.description.split('\n')[0] for t in processes) == ['rank 0 of 2, pid 100', 'rank 1 of 2, pid 100']
    for a, b in found.flows:
        assert pftrace.row(found, a.track)[0] == pftrace.row(found, b.track)[0]
    assert len(found.flows) == 2


def test_counters_of_pytorch(tmp_path, export):
    """Totals of allocators, and any counter of the trace; each launch is in the queue until its work starts."""
    t = kineto.Trace()
    for ts, device, total in ((10, 0, 100), (12, 0, 50), (11, -1, 7)):
        t.add('cpu_instant_event', '[memory]', ts, ph='i', s='t', args={
            'Device Type': int(device >= 0), 'Device Id': device, 'Bytes': 1, 'Total Allocated': total, 'Total Reserved': 2 * total})
    t.add('c', 'power', 13, ph='C', args={'W': Decimal('7.5'), 'cap': 2 ** 62})
    t.launch('a', 20, 1, delay=10).launch('b', 22, 2, delay=20).launch('c', 22, 3, delay=20, stream=9)
    for number, (call, work, stream) in enumerate([(20, 30, 7), (22, 42, 7), (22, 42, 9)], 1):
        t.add('ac2g', 'ac2g', call, ph='s', id=number).add('ac2g', 'ac2g', work, ph='f', id=number, bp='e', pid=0, tid=stream)
    us = 1000
    assert export(t.write(tmp_path / 'a.json'), rc=0).counters == {
        'memory allocated, GPU 0': [(10 * us, 100), (12 * us, 50)], 'memory reserved, GPU 0': [(10 * us, 200), (12 * us, 100)],
        'memory allocated, CPU': [(11 * us, 7)], 'memory reserved, CPU': [(11 * us, 14)],
        'power W': [(13 * us, 7.5)], 'power cap': [(13 * us, 2 ** 62)],
        'launch queue, GPU 0, stream 7': [(20 * us, 1), (22 * us, 2), (30 * us, 1), (42 * us, 0)],
        'launch queue, GPU 0, stream 9': [(22 * us, 1), (42 * us, 0)]}


# ---- overlapping work ----

OVERLAPS = [('a', 0, 100), ('b', 50, 100), ('c', 60, 10), ('d', 60, 200), ('e', 150, 10), ('f', 150, 0), ('g', 300, 5)]


def check_lanes(found, stream='stream 7'):
    """No two kernels of a lane overlap, and there are as many lanes as kernels at once."""
    lanes = defaultdict(list)
    for s in found.slices:
        if s.category in WORK:
            process, device, name = pftrace.row(found, s.track)
            assert device.startswith('GPU 0') and (s.around is None or s.around.category == 'gpu_user_annotation')
            lanes[name].append((s.start, s.end))
    assert set(lanes) == {stream, *(f'{stream}, lane {n}' for n in (2, 3, 4))}
    for lane in lanes.values():
        for (_, end), (start, _) in zip(sorted(lane), sorted(lane)[1:]):
            assert end <= start
    assert Counter((s.name, s.end - s.start) for s in found.slices if s.category in WORK) == \
        Counter((name, 1000 * duration) for name, _, duration in OVERLAPS)


def overlapping_of_pytorch(path):
    t = kineto.Trace().stage('s', 0, 50)
    for number, (name, start, duration) in enumerate(OVERLAPS):
        t.call(10 + number, number).kernel(name, 100 + start, duration, correlation=number)
        t.add('ac2g', 'ac2g', 10 + number, ph='s', id=number)
        t.add('ac2g', 'ac2g', 100 + start, ph='f', id=number, bp='e', pid=0, tid=7)
    return t.write(path)


def overlapping_of_ours(path):
    t = Trace()
    t.stage('s', 0, 90 * US)
    for number, (name, start, duration) in enumerate(OVERLAPS):
        t.work('kernel', (10 + 5 * number) * US, (500 + start) * US, duration * US, name=name)
    return t.save(path)


@pytest.mark.parametrize('write, name', [(overlapping_of_pytorch, 'a.json'), (overlapping_of_ours, 'rank2.h.1.tfr')])
def test_overlapping_kernels(tmp_path, export, write, name):
    found = export(write(tmp_path / name))
    check_lanes(found)
    correlations = [(a.args['correlation'], b.args['correlation']) for a, b in found.flows]
    assert len(correlations) == len(set(correlations)) == len(OVERLAPS) and all(a == b for a, b in correlations)


def graph_rows(found):
    """The intervals of work by the name of the row."""
    rows = defaultdict(list)
    for s in found.slices:
        if s.category == 'kernel':
            rows[s.track.name].append((s.start, s.end, s.args['stream']))
    return rows


@pytest.mark.parametrize('streams', [8, 9, 300])
def test_many_streams_of_graphs(export, tmp_path, streams):
    """Three kernels at once on hundreds of streams need three rows; few streams keep theirs, and so does one with other work."""
    events = [event('cuda_runtime', 'cudaGraphLaunch', 0, 5, correlation=1)]
    events += [event('kernel', 'node', 10 * i + 10, 25, i + 20, 0, correlation=1, device=0, stream=i + 20,
                     **{'graph id': 4, 'graph node id': 4 << 32 | i}) for i in range(streams)]
    events += [event('cuda_runtime', 'cudaLaunchKernel', 6, 1, correlation=2),
               event('kernel', 'node', 10, 30, 7, 0, correlation=3, device=0, stream=7, **{'graph id': 4, 'graph node id': 4 << 32}),
               event('kernel', 'plain', 50, 10, 7, 0, correlation=2, device=0, stream=7)]
    for at, correlation in ((0, 1), (6, 2)):
        events.append(json.dumps({'ph': 's', 'cat': 'ac2g', 'name': 'ac2g', 'id': correlation, 'pid': 1, 'tid': 1, 'ts': at}))
    events += [json.dumps({'ph': 'f', 'cat': 'ac2g', 'name': 'ac2g', 'id': 1, 'pid': 0, 'tid': i + 20, 'ts': 10 * i + 10,
                           'bp': 'e'}) for i in range(streams)]
    found = export(growth_shapes.kineto(tmp_path, events))
    nested(found.slices)
    rows = graph_rows(found)
    assert len(rows.pop('stream 7')) == 2
    assert sorted(w[2] for row in rows.values() for w in row) == [i + 20 for i in range(streams)]
    if streams <= 8:
        assert set(rows) == {f'stream {i + 20}' for i in range(streams)}
    else:
        assert set(rows) == {'graphs', 'graphs, lane 2', 'graphs, lane 3'}
    for row in rows.values():
        assert all(end <= start for (_, end, _), (start, _, _) in zip(sorted(row), sorted(row)[1:]))
    names = [t.name for t in found.tracks.values()]
    assert len([n for n in names if n.startswith(('stream', 'graphs'))]) == len(rows) + 1
    assert sum(1 for a, b in found.flows if b.name == 'node') == streams
    assert {n for n in names if n.startswith('launch queue')} == (
        {f'launch queue, GPU 0, stream {i + 20}' for i in range(streams)} if streams <= 8 else {'launch queue, GPU 0, graphs'})


def test_many_streams_of_graphs_of_ours(export, tmp_path):
    """The same in a trace of ours: 300 streams, three kernels at once."""
    t = Trace()
    for i in range(300):
        t.work('kernel', 10 * US if i == 0 else None, (500 + 10 * i) * US, 25 * US, stream=i + 20, number=1, name='node',
               graph=4, node=4 << 32 | i)
    rows = graph_rows(export(t.save(tmp_path / 'rank2.h.1.tfr')))
    assert set(rows) == {'graphs', 'graphs, lane 2', 'graphs, lane 3'}
    assert sorted(w[2] for row in rows.values() for w in row) == list(range(20, 320))
    for row in rows.values():
        assert all(end <= start for (_, end, _), (start, _, _) in zip(sorted(row), sorted(row)[1:]))


def check_chrome_lanes(document):
    """The same lanes in a Chrome trace: boxes of a row do not overlap, arguments keep the stream, arrows meet boxes."""
    events = document['traceEvents']
    names = {e['tid']: e['args']['name'] for e in events if e['ph'] == 'M' and e['name'] == 'thread_name' and e['pid'] == 0}
    rows, boxes = defaultdict(list), {}
    for e in events:
        if e.get('cat') in WORK and e['ph'] == 'X':
            assert e['args']['stream'] == 7 and e['pid'] == 0
            rows[e['tid']].append((e['ts'], e['ts'] + e['dur']))
            boxes[e['tid'], e['ts']] = e['name']
    for row in rows.values():
        for (_, end), (start, _) in zip(sorted(row), sorted(row)[1:]):
            assert end <= start
    assert {names.get(row, 'stream 7') for row in rows} == {'stream 7', *(f'stream 7, lane {n}' for n in (2, 3, 4))}
    assert sorted(boxes[e['tid'], e['ts']] for e in events if e['ph'] == 'f') == sorted(name for name, _, _ in OVERLAPS)


def test_overlapping_kernels_in_chrome_traces(tmp_path, analyze):
    """Ours and PyTorch's, the latter in one file of the whole and in one of a stage."""
    overlapping_of_ours(tmp_path / 'rank2.h.1.tfr')
    overlapping_of_pytorch(tmp_path / 'a.json')
    for arguments in ((tmp_path / 'rank2.h.1.tfr',), (tmp_path / 'a.json',), ('--stage', 's', tmp_path / 'a.json')):
        result = analyze('export', 'chrome', *arguments, format=None)
        check_chrome_lanes(json.loads(result.out))


def test_crossing_events_of_a_thread(tmp_path, export):
    """Two annotations that cross are both whole; the later one lies beside the thread."""
    t = kineto.Trace().stage('a', 10, 20).stage('b', 20, 20).stage('c', 25, 5)
    found = export(t.write(tmp_path / 'a.json'))
    assert {(s.name, s.start, s.end) for s in found.slices} == {('a', 10000, 30000), ('b', 20000, 40000), ('c', 25000, 30000)}
    assert {s.name: pftrace.row(found, s.track)[2] for s in found.slices} == {'a': 100, 'b': 'thread 100, crossing 1', 'c': 100}


# ---- traces of ours ----

def test_a_trace_of_ours(tmp_path, export):
    """The numbers are those that test_device_export.pipeline writes."""
    found = export(pipeline(tmp_path / 'rank2.elsewhere.4242.tfr'))
    slices = {(s.category, s.name): (s.start - START, s.end - START) for s in found.slices}
    assert slices['user_annotation', 'denoise'] == (100 * US, 500 * US)
    assert slices['user_annotation', 'step'] == (200 * US, 300 * US)
    assert slices['gpu_memset', 'Memset (Device)'] == (620 * US, 625 * US)
    assert slices['cuda_runtime', 'cudaMalloc'] == (110 * US, 115 * US)
    gemm, = [s for s in found.slices if s.name == 'void fill<int>(int*, int)']
    assert (gemm.args['grid'], gemm.args['block'], gemm.args['correlation'], gemm.args['stream']) == ([200, 2, 1], [32, 4, 1], 41, 7)
    copy, = [s for s in found.slices if s.category == 'gpu_memcpy']
    assert (copy.args['bytes'], pftrace.row(found, copy.track)[1:]) == (250000, ('GPU 0: Simulated GPU 0, simulated', 'stream 9'))
    nodes = [s for s in found.slices if s.name == 'node']
    assert [n.args['graph node id'] for n in nodes] == [60, 61, 62]
    launched = Counter((a.name, b.name, b.args['correlation']) for a, b in found.flows)
    assert launched['cuGraphLaunch', 'node', 42] == 3 and launched['cudaMemcpyAsync', copy.name, 43] == 1
    assert sum(launched.values()) == 8
    queue = found.counters['launch queue, GPU 0, stream 7']
    assert [(time - START, depth) for time, depth in queue if time < START + 500 * US] == [
        (210 * US, 1), (230 * US, 4), (400 * US, 3), (460 * US, 2), (480 * US, 1)]
    process, = [t for t in found.tracks.values() if t.HasField('process')]
    assert process.process.process_name.startswith('rank 2: ')
    assert process.description.split('\n')[0] == 'rank 2 of 4 on elsewhere, pid 4242'
    assert process.process.process_labels == ['pid 4242 on elsewhere']


def test_clocks_of_devices(tmp_path, export):
    t = Trace()
    for i, (device, mhz) in enumerate([(0, 1980), (1, 1500), (0, 1200)]):
        t.records.append(rec('device_sample', device=device, time=2 * (100 + i) * US, sm_mhz=mhz, memory_mhz=2619, known=CLOCKS))
    counters = export(t.save(tmp_path / 'rank2.h.1.tfr')).counters
    assert counters['GPU 0: clocks SM MHz'] == [(START + 100 * US, 1980), (START + 102 * US, 1200)]
    assert counters['GPU 1: clocks SM MHz'] == [(START + 101 * US, 1500)]


def test_a_stage_and_a_window(tmp_path, export):
    path = pipeline(tmp_path / 'rank2.elsewhere.4242.tfr')
    names = {s.name for s in export('--stage', 'step', path).slices if s.category in WORK}
    assert names == {'void fill<int>(int*, int)', 'node'}
    assert {s.name for s in export('--from', '0.00085', path).slices} == {'ncclDevKernel_AllReduce_Sum_f32'}


def test_the_same_bytes_each_time(tmp_path, analyze, shared_traces):
    """The order of flows and tracks follows from the trace, not from the seeds of the hash tables."""
    for name in 'ab':
        analyze('export', 'pftrace', shared_traces / AMD, '--output', tmp_path / name, format=None)
    assert (tmp_path / 'a').read_bytes() == (tmp_path / 'b').read_bytes()


def test_ours_and_pytorchs_together(tmp_path, export):
    simple(tmp_path / 'rank0.h.1.tfr')
    found = export(tmp_path / 'rank0.h.1.tfr', *traces(tmp_path))
    assert len(found.sequences) == 3 and {'stage 0', 'op'} <= {s.name for s in found.slices}


# ---- bad input ----

ODD = ['', 'a\x1b[31m', '\u202e', '\0', 'x' * 70000, '\U0001F600', '"\\', '\ud800']


def test_enemy_names(tmp_path, export):
    """Names stay whole; a lone surrogate is not a character."""
    t = kineto.Trace()
    for i, name in enumerate(ODD):
        t.add('c' + name, name, 10 * i, 5, args={name: name, 'deep': [[[[[[[[[[name]]]]]]]]]]})
    t.events.append({'ph': 'M', 'name': 'process_name', 'pid': 100, 'args': {'name': '\x1b]0;x\x07'}})
    path = tmp_path / 'a.json'
    path.write_text(json.dumps(t.document))
    names = [s.name for s in sorted(export(path).slices, key=lambda s: s.start)]
    assert names[:-1] == ODD[:-1] and set(names[-1]) == {'\ufffd'}


def test_numbers_above_2_to_the_53(tmp_path, export):
    numbers = {'a': 2 ** 53 + 1, 'b': 2 ** 64 - 1, 'c': -2 ** 63, 'd': 2 ** 63, 'correlation': 2 ** 64 - 2}
    t = kineto.Trace(pid=2 ** 40).add('cuda_runtime', 'call', 10, 5, args=numbers, tid=2 ** 62 - 1)
    t.kernel('k', 20, 5, correlation=2 ** 64 - 2)
    t.add('ac2g', 'ac2g', 10, ph='s', id=2 ** 64 - 2, tid=2 ** 62 - 1)
    t.add('ac2g', 'ac2g', 20, ph='f', id=2 ** 64 - 2, pid=0, tid=7)
    found = export(t.write(tmp_path / 'a.json'))
    call, = [s for s in found.slices if s.name == 'call']
    assert call.args == numbers and [(a.name, b.name) for a, b in found.flows] == [('call', 'k')]


@pytest.mark.parametrize('share', [0.3, 0.7, 0.97])
def test_a_cut_trace_of_pytorch(tmp_path, export, shared_traces, share):
    data = gzip.decompress((shared_traces / AMD).read_bytes())
    (tmp_path / 'cut.json').write_bytes(data[:int(len(data) * share)])
    found = export(tmp_path / 'cut.json', rc=3)
    whole = export(shared_traces / AMD, name='whole')
    got, there = [Counter((s.category, s.name, s.end - s.start, frozen(s.args)) for s in f.slices) for f in (found, whole)]
    assert got and not got - there  # the base of all times is at the file's end
    assert 'cut.json: ' in found.err


def test_a_cut_trace_of_ours(tmp_path, export):
    w = Writer(rank=2)
    clock_chunk(w, [(0, 0, START)])
    for i in range(2):
        begin = rec('range_begin', name=w.string(f's{i}'), time=1000 * i + 10, id=i + 1, flags=NESTED | STAGE)
        w.chunk([begin, tfr.end_of(begin, 1000 * i + 500, 1)], thread=1, tid=51)
    path = w.save(tmp_path / 'rank2.h.1.tfr')
    path.write_bytes(path.read_bytes()[:-20])
    assert [s.name for s in export(path, rc=3).slices] == ['s0']


def test_phases_without_a_form_are_counted(tmp_path, export):
    t = kineto.Trace().stage('a', 10, 20).add('c', 'odd', 12, ph='Q')
    found = export(t.write(tmp_path / 'a.json'), rc=3)
    assert [s.name for s in found.slices] == ['a'] and '1 events are left out' in found.err


def test_a_full_disk_and_stdout(tmp_path, analyze, tfanalyze):
    """A full disk leaves nothing behind; stdout takes the same bytes; a name in .gz is compressed."""
    simple(tmp_path / 'in.tfr')
    args = ('export', 'pftrace', tmp_path / 'in.tfr')
    assert 'No space left' in analyze(*args, '--output', '/dev/full', rc=1, format=None).err
    assert 'nothing matches' in analyze(*args, '--stage', 'no', '--output', tmp_path / 'x', rc=1, format=None).err
    analyze(*args, '--output', tmp_path / 'a.pftrace', format=None)
    analyze(*args, '--output', tmp_path / 'a.pftrace.gz', format=None)
    plain = (tmp_path / 'a.pftrace').read_bytes()
    assert gzip.decompress((tmp_path / 'a.pftrace.gz').read_bytes()) == plain
    assert sorted(p.name for p in tmp_path.iterdir()) == ['a.pftrace', 'a.pftrace.gz', 'in.tfr']
    with open(tmp_path / 'piped', 'wb') as piped:
        subprocess.run([tfanalyze, *args], stdout=piped, check=True)
    assert (tmp_path / 'piped').read_bytes() == plain


def test_a_terminal_gets_no_bytes(tmp_path, tfanalyze):
    simple(tmp_path / 'in.tfr')
    main, side = os.openpty()
    result = subprocess.run([tfanalyze, 'export', 'pftrace', tmp_path / 'in.tfr'], stdout=side, stderr=subprocess.PIPE)
    assert result.returncode == 2 and b'--output FILE' in result.stderr
    os.close(main), os.close(side)


def large(path):
    t = kineto.Trace()
    for i in range(3000):
        t.add('cpu_op', f'op{i}', 10 * i, 8, tid=100 + i % 7, args={'External id': i, 'text': [f'{i:04}' + 'x' * 400] * 2})
        t.events[-1]['args']['numbers'] = [i] * 200
    return t.write(path)


@pytest.mark.slow
def test_large_traces_use_a_temporary_file(tmp_path, export):
    """Events beyond a mebibyte wait in a file."""
    found = export(large(tmp_path / 'a.json'))
    assert {(s.name, s.args['External id'], s.args['text'][1][:4], *s.args['numbers'][:200:199]) for s in found.slices} == {
        (f'op{i}', i, f'{i:04}', i, i) for i in range(3000)}


def test_no_room_for_the_temporary_file(tmp_path, tfanalyze):
    """The export fails, says how to go on, and leaves no file."""
    large(tmp_path / 'a.json')
    env = {**clean_environment(), 'TMPDIR': str(tmp_path / 'none')}
    result = execute([tfanalyze, 'export', 'pftrace', tmp_path / 'a.json', '--output', tmp_path / 'out'], env)
    assert result.rc == 1 and 'set TMPDIR' in result.err
    assert [p.name for p in tmp_path.iterdir()] == ['a.json']
