"""test_reader - tfanalyze against tests/tfr.py: correct answers on traces at random, and sane ones on damaged traces."""

import csv
import gzip
import io
import json
import os
import re
import resource
import subprocess
import time
from pathlib import Path

import pytest

import tfr
from tfr import MONOTONIC, NESTED, REALTIME, STAGE, Writer, rec

NS = 0.0011  # microseconds: two nanoseconds' rounding at most, and what a double adds


# ---- helpers ----

def notes(result):
    """Lines on stderr that are not only good to know."""
    return [line for line in result.err.splitlines() if line]


def clock_chunk(w, points, **chunk):
    return w.chunk([c for p in points for c in tfr.clocks(*p)], **chunk)


def simple(path, stages=3, rank=0, footer=True, **writer):
    """A whole trace with a few stages of 1 ms each, one after the other, 10 ms after its first record."""
    w = Writer(rank=rank, **writer)
    clock_chunk(w, [(0, 1_000_000_000, 1_700_000_000_000_000_000)])
    records = [rec('thread', serial=1, tid=100, name=w.string('main'), time=5_000_000)]
    for i in range(stages):
        begin = rec('range_begin', name=w.string(f'stage {i}'), time=10_000_000 + i * 2_000_000, id=i + 1, flags=NESTED | STAGE)
        records += [begin, tfr.end_of(begin, begin.values['time'] + 1_000_000, 1)]
    w.chunk(records, thread=1, tid=100)
    if footer:
        w.footer()
    w.save(path)
    return w


def truth_of_dump(w, clock, start):
    """What dump has to say of a writer's records, in their order."""
    out = []
    for r in w.records:
        kind = w.kinds[r.kind]
        moment = next((f.name for f in kind.fields if f.type == 'TICKS'), None)
        time_us = None if moment is None else float(clock(r.values[moment]) - start) / 1000
        values = {}
        for f in kind.fields:
            v = r.values[f.name]
            if (f.name == 'reserved' and f.type == 'UINT') or (f.name == moment and f.name == 'time'):
                continue
            if f.codec == 'LIST':
                values[f.name] = arguments(w, r)
            else:
                key, value = typed(w, f, v, r, clock, moment)
                values[key] = value
        out.append((r.kind, r.tid, time_us, values))
    return out


def arguments(w, r):
    """A list: with the names of its function's arguments, where its record is of a function."""
    if 'func' not in r.values:
        return [hex(v) for v in next(v for v in r.values.values() if isinstance(v, list))]
    description = w.strings[r.values['func']].decode().split('\x1f')
    named = [a.split(':') for a in description[3].split(',')]
    out = {}
    for i, v in enumerate(r.values['args']):
        name, type = named[i] if i < len(named) else (f'arg{i}', 'HEX')
        if type == 'BYTES':
            out[name if name.endswith('bytes') else f'{name}_bytes'] = v
        elif type in ('HEX', 'ADDRESS'):
            out[name] = hex(v)
        else:
            out[name] = tfr.signed64(v) if type == 'INT' else v
    return out


def typed(w, f, v, r, clock, moment):
    if f.type in ('HEX', 'ADDRESS'):
        return f.name, hex(v)
    if f.type == 'BYTES':
        return (f.name if f.name.endswith('bytes') else f'{f.name}_bytes'), v
    if f.type == 'DEVICE_NS':
        return f'{f.name}_ns', v
    if f.type == 'DURATION':
        t = r.values[moment]
        ends = (t - v, t) if r.kind == 'range_end' else (t, t + v)
        return f'{f.name}_us', float(clock(ends[1]) - clock(ends[0])) / 1000
    if f.type == 'STRING':
        return f.name, tfr.name_of(w.strings, v) if v else None
    if f.type == 'STACK':
        return f.name, '\n'.join('\t'.join(frame) for frame in tfr.stack_of(w.strings, v)) or None
    if f.type == 'FUNC':
        return f.name, tfr.name_of(w.strings, v).split('\x1f')[2]
    if f.type == 'PAYLOAD':
        return f.name, payload(v, r.values['payload_type'])
    if f.type == 'CLOCK':
        return f.name, {MONOTONIC: 'monotonic', REALTIME: 'realtime'}[v]
    return f.name, v


def payload(bits, type):
    import struct
    if type == 0:
        return None
    pick = {1: '<Q', 2: '<q', 3: '<d', 4: '<I', 5: '<i', 6: '<f'}.get(type)
    if not pick:
        return hex(bits)
    return struct.unpack(pick, struct.pack('<Q', bits)[:struct.calcsize(pick)])[0]


def same(a, b):
    if isinstance(a, float) and isinstance(b, (float, int)):
        return abs(a - b) <= NS + abs(b) * 1e-12
    if isinstance(a, dict):
        return set(a) == set(b) and all(same(a[k], b[k]) for k in a)
    return a == b


# ---- dump ----

@pytest.mark.parametrize('form', ['rows', 'columns', 'mixed'])
@pytest.mark.parametrize('seed', range(4))
def test_dump_has_every_value(tmp_path, analyze, form, seed):
    """All kinds of record, all codecs, rows and columns, packed and not: every value comes out as it went in."""
    rng = tfr.generator(seed)
    w = Writer(rank=2, clock='tsc')
    clock_chunk(w, [(500_000, 10 ** 12, 10 ** 18), (9 * 10 ** 6, 10 ** 12 + 4_100_000, 10 ** 18 + 4_100_000)], thread=1)
    for i in range(6):
        def pick(f, values):
            if f.codec == 'LIST' or rng.random() < 0.3:
                return None
            first = w.kinds[records[0].kind].fields[0].name
            return rng.choice([tfr.PLAIN, tfr.DELTA, tfr.RUNS] + [tfr.KEYED] * (f.name != first and f is not None))
        records = tfr.random_records(rng, 150, w)
        one_kind = [r for r in records if r.kind == records[0].kind]
        shape = form if form != 'mixed' else rng.choice(['rows', 'columns'])
        if shape == 'columns' and i % 2:
            w.chunk(one_kind, thread=i, tid=i + 1000, form=shape, deflate=bool(i % 3), pick=pick)
        else:
            w.chunk(records, thread=i, tid=i + 1000, form=shape, deflate=bool(i % 3))
    w.footer()
    path = w.save(tmp_path / 'rank2.a.1.tfr')
    clock = tfr.Clock(w.records)
    start = tfr.span(w.records, clock)[0]
    expected = truth_of_dump(w, clock, start)
    rows = analyze('dump', path)['rows']
    assert len(rows) == len(expected)
    for row, (kind, tid, time_us, values) in zip(rows, expected):
        assert (row['rank'], row['kind'], row['tid'], row['live']) == (2, kind, tid, False)
        assert same(row['time_us'], time_us), (row, time_us)
        assert same(row['values'], values), (row['values'], values)


def test_dump_as_text_and_csv(tmp_path, analyze):
    w = Writer(rank=1, pid=9)
    clock_chunk(w, [(0, 5, 10 ** 18)])
    w.chunk([rec('mark', name=w.string('a "b"\n\x00é'), time=2000, category=3),
             rec('call', func=w.string('lib\x1fALLOC\x1fcudaMalloc\x1fsize:BYTES,where:ADDRESS'), time=3000, duration=500,
                 result=-1, args=[7, 255, 16])], thread=1, tid=10)
    w.footer()
    path = w.save(tmp_path / 'a.tfr')
    lines = analyze('dump', path, format='text').out.splitlines()
    assert len(lines) == 4
    assert lines[2] == ('1 9 10 mark 0.000 false name="a \\"b\\"\\x0a\\x00é" flags=0x0 domain=- category=3 color=0x0 '
                        'payload=- payload_type=0')
    assert lines[3] == ('1 9 10 call 1.000 false func="cudaMalloc" duration_us=0.500 result=-1 error=0 stack=- '
                        'args=(size_bytes=7 where=0xff arg2=0x10)')
    rows = list(csv.DictReader(io.StringIO(analyze('dump', path, format='csv').out)))
    assert [r['kind'] for r in rows] == ['clock', 'clock', 'mark', 'call']
    assert rows[3]['time_us'] == '1.000' and 'where=0xff' in rows[3]['values']
    assert analyze('dump', path, '--top', 3, format='text').out.splitlines() == lines[:3]


def test_dump_json_of_any_bytes(tmp_path, analyze):
    """Names are any bytes: JSON stays JSON, and what is UTF-8 comes through as it is."""
    rng = tfr.generator(5)
    names = [bytes([b]) for b in range(256)] + [rng.randbytes(rng.randrange(40)) for _ in range(300)]
    names += ['ünï→𝄞'.encode(), b'\xed\xa0\x80', b'\xf4\x90\x80\x80', b'\xc0\xaf', b'']
    w = Writer()
    w.chunk([rec('mark', name=w.string(n), time=i) for i, n in enumerate(names)], thread=1)
    w.footer()
    rows = analyze('dump', w.save(tmp_path / 'a.tfr'))['rows']
    assert len(rows) == len(names)
    for row, name in zip(rows, names):
        try:
            assert row['values']['name'] == name.decode()
        except UnicodeDecodeError:
            assert '\ufffd' in row['values']['name']


# ---- stages ----

def staged_trace(path, seed, rank, **options):
    """A trace of random stages with a counter of its own rate and start; returns it with its clock."""
    rng = tfr.generator(seed)
    w = Writer(rank=rank, pid=1000 + seed, clock='tsc', **options)
    rate = rng.choice([0.31, 0.5, 1.0, 2.7])
    real, mono = 1_700_000_000_000_000_000 + rng.randrange(10 ** 7), rng.randrange(10 ** 14)
    points = [(t, mono + int(t * rate), real + int(t * rate)) for t in (9_000_000, 9_500_000, 11_000_000, 60_000_000)]
    clock_chunk(w, points[:2], thread=1, form='rows')
    for thread, records in tfr.random_stages(rng, w, threads=rng.choice([1, 3])).items():
        half = len(records) // 2
        w.chunk(records[:half], thread=thread, tid=thread + 50, form=rng.choice(['rows', 'columns']))
        w.chunk(records[half:], thread=thread, tid=thread + 50)
    clock_chunk(w, points[2:], deflate=False)
    w.footer()
    w.save(path)
    return w, tfr.Clock(w.records)


def oracle_rows(traces, window=None):
    """{(rank, stage): [calls, host, self]} and {rank: (first, last)} over (writer, clock) pairs."""
    rows, spans = {}, {}
    for w, clock in traces:
        first, last = tfr.span(w.records, clock)
        rank = w.info['rank']
        old = spans.get(rank, (first, last))
        spans[rank] = min(old[0], first), max(old[1], last)
        for name, values in tfr.stages(tfr.ranges(w.records, clock, last), window).items():
            row = rows.setdefault((rank, tfr.name_of(w.strings, name)), [0, 0, 0])
            for i in range(3):
                row[i] += values[i]
    return rows, spans


def check_stages(answer, rows, spans, exclusive=False):
    got = {(r['rank'], r['stage']): r for r in answer['rows']}
    assert len(got) == len(answer['rows']) and set(got) == set(rows)
    for key, (calls, host, own) in rows.items():
        r, tolerance = got[key], NS * (2 * calls + 1)
        assert r['calls'] == calls
        assert abs(r['self_us'] - float(own) / 1000) <= tolerance, key
        wanted = own if exclusive else host
        assert abs(r['host_us'] - float(wanted) / 1000) <= tolerance, key
        assert r['wall_us'] == r['host_us'] and r['device_us'] is None and r['peak_allocated_bytes'] is None
        first, last = spans[key[0]]
        assert abs(r['pct'] - 100 * float(wanted) / float(last - first)) < 0.01
    for a, b in zip(answer['rows'], answer['rows'][1:]):
        assert (a['rank'], -a['host_us']) <= (b['rank'], -b['host_us'])


@pytest.mark.parametrize('seed', range(25))
def test_stages_equal_the_oracle(tmp_path, analyze, seed):
    """Nesting, recursion, started ranges that cross others, unfinished ones, several processes of one rank."""
    traces = [staged_trace(tmp_path / f'rank{r}.h.{i}.tfr', seed * 10 + i, r) for i, r in enumerate([0, 1, 1])]
    rows, spans = oracle_rows(traces)
    check_stages(analyze('stages', tmp_path, '-j', 1 + seed % 3), rows, spans)
    check_stages(analyze('stages', '--exclusive', tmp_path), rows, spans, exclusive=True)


@pytest.mark.parametrize('seed', range(8))
def test_stages_in_a_window(tmp_path, analyze, seed):
    trace = staged_trace(tmp_path / 'rank0.h.1.tfr', seed, 0)
    first, last = tfr.span(trace[0].records, trace[1])
    start, length = round(first), float(last - first) / 1e9
    for a, b in ((0, 0.5), (0.3, 0.6), (0.5, 1.1)):
        from_s, to_s = round(length * a, 6), round(length * b, 6)
        window = start + int(from_s * 1e9 + 0.5), start + int(to_s * 1e9 + 0.5)
        rows, _ = oracle_rows([trace], window)
        answer = analyze('stages', '--from', from_s, '--to', to_s, tmp_path, rc=0 if rows else 1) if rows else None
        if answer:
            inner = max(window[0], first), min(window[1], last)
            check_stages(answer, rows, {0: inner})


def test_stages_of_known_numbers(tmp_path, analyze):
    """Recursion counts once, self time is less children, a started range that outlives its parent is clipped."""
    w = Writer()
    clock_chunk(w, [(0, 0, 10 ** 18), (10 ** 7, 10 ** 7, 10 ** 18 + 10 ** 7)])
    records, number = [], 0

    def stage(name, start, end, flags=NESTED | STAGE, depth=0, thread=1):
        nonlocal number
        number += 1
        b = rec('range_begin', name=w.string(name), time=start, id=number, flags=flags, depth=depth)
        records.extend([b, tfr.end_of(b, end, thread)])
    stage('outer', 1000, 101000)
    stage('inner', 11000, 31000, depth=1)
    stage('outer', 41000, 61000, depth=1)
    stage('inner', 51000, 56000, depth=2)
    stage('upload', 91000, 141000, flags=STAGE)
    stage('library', 2000, 3000, flags=NESTED, depth=1)
    w.chunk(records, thread=1, tid=7)
    w.footer()
    w.save(tmp_path / 'a.tfr')
    rows = {r['stage']: (r['calls'], r['host_us'], r['self_us']) for r in analyze('stages', tmp_path)['rows']}
    assert rows == {'outer': (2, 100.0, 100 - 20 - 20 - 10 + 20 - 5), 'inner': (2, 25.0, 25.0), 'upload': (1, 50.0, 50.0)}
    assert analyze('stages', '--stage', 'in*', tmp_path)['rows'][0]['stage'] == 'inner'
    assert len(analyze('stages', '--top', 1, tmp_path)['rows']) == 1


def test_stages_text_and_csv(tmp_path, analyze):
    simple(tmp_path / 'a.tfr', rank=4)
    text = analyze('stages', tmp_path, format='text').out.splitlines()
    assert re.split(r'  +', text[0]) == ['stage', 'rank', 'calls', 'host', 'wall', 'self', 'pct']
    assert re.split(r'  +', text[1])[:4] == ['stage 0', '4', '1', '1.000 ms']
    rows = list(csv.DictReader(io.StringIO(analyze('stages', tmp_path, format='csv').out)))
    assert [r['host_us'] for r in rows] == ['1000.000'] * 3 and rows[0]['device_us'] == ''
    assert list(rows[0]) == list(analyze('stages', tmp_path)['rows'][0])


def test_an_unfinished_stage_lasts_to_the_end(tmp_path, analyze):
    w = Writer()
    clock_chunk(w, [(0, 0, 10 ** 18)])
    w.chunk([rec('range_begin', name=w.string('open'), time=1000, id=1, flags=NESTED | STAGE),
             rec('mark', name=w.string('last'), time=9000)], thread=1)
    w.footer()
    answer = analyze('stages', w.save(tmp_path / 'a.tfr'))
    assert answer['rows'][0]['host_us'] == 8.0 and answer['totals']['unfinished'] == 1


def test_an_unfinished_stage_of_a_trace_with_losses_lasts_to_its_threads_last_record(tmp_path, analyze):
    """Its end may be among what is lost: to let it last as long as the process would be an invention."""
    w = Writer()
    clock_chunk(w, [(0, 0, 10 ** 18)])
    w.chunk([rec('range_begin', name=w.string('open'), time=1000, id=1, flags=NESTED | STAGE),
             rec('mark', name=w.string('last'), time=5000)], thread=1)
    w.chunk([rec('mark', name=w.string('other'), time=90000)], thread=2)
    w.footer(**{'drop.CAP': 3})
    answer = analyze('stages', w.save(tmp_path / 'a.tfr'), rc=3)
    assert answer['rows'][0]['host_us'] == 4.0 and answer['totals']['unfinished'] == 1


def test_a_rank_learnt_later_wins_and_a_given_one_wins_over_all(tmp_path, analyze):
    w = simple(tmp_path / 'a.tfr', rank=0, footer=False)
    w.chunk([rec('rank', rank=5, world=8, source=w.string('c10d'), time=9)], thread=1)
    w.footer()
    path = w.save(tmp_path / 'a.tfr')
    assert analyze('info', path)['rows'][0]['rank'] == 5
    assert analyze('info', f'rank=7:{path}')['rows'][0]['rank'] == 7
    assert {r['rank'] for r in analyze('stages', f'rank=7:{tmp_path}')['rows']} == {7}


# ---- info ----

def test_info(tmp_path, analyze):
    w = Writer(rank=3, world=4, pid=77, host='node7', **{'meta.model': 'wan 2.1', 'meta.note': 'ü'})
    clock_chunk(w, [(1000, 5000, 1_700_000_000_123_456_789)])
    w.chunk([rec('message', text=w.string('disk is slow'), level=1, time=2000),
             rec('mark', name=w.string('x'), time=3_001_000), rec('mark', name=w.string('y'), time=2500)], thread=1, tid=77)
    w.footer(reason='_exit', **{'drop.UNMATCHED': 3})
    row = analyze('info', w.save(tmp_path / 'rank3.node7.77.tfr'))['rows'][0]
    assert row == {
        'path': str(tmp_path / 'rank3.node7.77.tfr'), 'kind': 'tfr', 'rank': 3, 'world': 4, 'host': 'node7', 'pid': 77,
        'start': '2023-11-14T22:13:20.123457Z', 'duration_us': 2999.0, 'ended': '_exit', 'complete': True,
        'events': {'clock': 2, 'message': 1, 'mark': 2}, 'lost': {}, 'counted': {'unmatched': 3}, 'own_cost_us': 1234.567,
        'clock': 'monotonic', 'clock_steps': [], 'threads': 1, 'devices': [], 'command': 'python pipeline.py', 'directory': '/somewhere',
        'version': '0.0.1', 'metadata': {'model': 'wan 2.1', 'note': 'ü'}, 'messages': ['disk is slow'], 'recording': []}
    text = analyze('info', tmp_path, format='text').out
    assert 'message 1, mark 2' in text and 'duration      2.999 ms' in text
    assert next(csv.DictReader(io.StringIO(analyze('info', tmp_path, format='csv').out)))['events'] == 'clock=2 message=1 mark=2'


def test_a_step_of_the_clock_is_found(tmp_path, analyze):
    """Realtime was set forward by two seconds: durations do not show it, and info says so."""
    w = Writer(clock='tsc')
    clock_chunk(w, [(0, 0, 10 ** 18), (2 * 10 ** 9, 10 ** 9, 10 ** 18 + 10 ** 9)])
    b = rec('range_begin', name=w.string('s'), time=10 ** 9, id=1, flags=NESTED | STAGE)
    w.chunk([b, tfr.end_of(b, 5 * 10 ** 9, 1)], thread=1)
    clock_chunk(w, [(6 * 10 ** 9, 3 * 10 ** 9, 10 ** 18 + 5 * 10 ** 9)])
    w.footer()
    path = w.save(tmp_path / 'a.tfr')
    row = analyze('info', path)['rows'][0]
    assert len(row['clock_steps']) == 1 and abs(row['clock_steps'][0]['by_us'] - 2e6) < 1
    assert abs(row['clock_steps'][0]['at_us'] - 2.5e6) < 1
    assert abs(analyze('stages', path)['rows'][0]['host_us'] - 2e6) < 1


def test_a_trace_without_clock_records_says_so(tmp_path, analyze):
    w = Writer(clock='tsc')
    w.chunk([rec('mark', name=w.string('x'), time=3)], thread=1)
    w.footer()
    path = w.save(tmp_path / 'a.tfr')
    row = analyze('info', path, rc=3)['rows'][0]
    assert row['start'] is None and row['duration_us'] is None
    assert 'clock' in analyze('info', path, rc=3, format='text').err


# ---- export chrome ----

def export(analyze, *arguments, rc=0):
    result = analyze('export', 'chrome', *arguments, rc=rc, format=None)
    return json.loads(result.out) if rc != 1 else result


def check_chrome(trace):
    """The rules of the format, and that the boxes of a thread lie within each other."""
    tracks, open_pairs = {}, {}
    for e in trace['traceEvents']:
        assert e['ph'] in 'XibeM' and isinstance(e['name'], str)
        assert isinstance(e['pid'], int) and isinstance(e['tid'], int)
        if e['ph'] == 'M':
            continue
        assert isinstance(e['ts'], float) and e['cat']
        if e['ph'] == 'X':
            assert isinstance(e['dur'], float) and e['dur'] >= 0
            start = round(e['ts'] * 1000)
            tracks.setdefault((e['pid'], e['tid']), []).append((start, start + round(e['dur'] * 1000)))
        elif e['ph'] == 'b':
            open_pairs[e['id'], e['cat'], e['pid']] = e
        elif e['ph'] == 'e':
            assert open_pairs.pop((e['id'], e['cat'], e['pid']))['ts'] <= e['ts']
        else:
            assert e['s'] == 't'
    assert not open_pairs
    for boxes in tracks.values():
        stack = []
        for start, end in sorted(boxes, key=lambda b: (b[0], -b[1])):
            while stack and stack[-1] <= start:
                stack.pop()
            assert not stack or end <= stack[-1], (start, end, stack)
            stack.append(end)


@pytest.mark.parametrize('seed', range(25))
def test_export_chrome(tmp_path, analyze, seed):
    traces = [staged_trace(tmp_path / f'rank{r}.h.{i}.tfr', seed * 10 + i, r) for i, r in enumerate([0, 1])]
    trace = export(analyze, tmp_path)
    check_chrome(trace)
    events = [e for e in trace['traceEvents'] if e['ph'] in 'Xb' and e['cat'] == 'user_annotation']
    expected = []
    for w, clock in traces:
        last = tfr.span(w.records, clock)[1]
        expected += [(tfr.name_of(w.strings, r['name']), float(r['start'] - trace['baseTimeNanoseconds']) / 1000,
                      r['unfinished']) for r in tfr.ranges(w.records, clock, last) if r['flags'] & STAGE]
    assert len(events) == len(expected)
    for (name, ts, unfinished), e in zip(sorted(expected), sorted(events, key=lambda e: (e['name'], e['ts']))):
        assert e['name'] == name and abs(e['ts'] - ts) < 0.01


def test_export_details(tmp_path, analyze):
    w = Writer(rank=2, world=8, pid=50, **{'meta.run': 'x'})
    clock_chunk(w, [(0, 0, 1_700_000_000_000_000_000)])
    b = rec('range_begin', name=w.string('denoise'), time=1000, id=1, flags=NESTED | STAGE, domain=w.string('dom'),
            category=4, color=0xff00ff00, payload=0x4000000000000000, payload_type=3)
    end = tfr.end_of(b, 5000, 1)
    end.values['domain'] = w.string('dom')
    w.chunk([rec('thread', serial=1, tid=51, name=w.string('comm'), time=1), rec('thread_name', tid=51, name=w.string('worker'), time=2),
             rec('category', domain=w.string('dom'), category=4, name=w.string('compute')), b,
             rec('mark', name=w.string('hello'), time=2000, payload=7, payload_type=1),
             rec('call', func=w.string('libcudart\x1fLAUNCH\x1fcudaLaunchKernel\x1fgrid:UINT,stream:ADDRESS'), time=2000,
                 duration=1000, result=2, error=5, args=[9, 0]), end], thread=1, tid=51)
    w.footer()
    trace = export(analyze, w.save(tmp_path / 'a.tfr'))
    check_chrome(trace)
    assert trace['schemaVersion'] == 1 and trace['displayTimeUnit'] == 'ms' and trace['metadata']['run'] == 'x'
    assert trace['distributedInfo'] == {'rank': 2, 'world_size': 8}
    by_name = {e['name']: e for e in trace['traceEvents']}
    assert by_name['denoise']['args'] == {'domain': 'dom', 'category': 'compute', 'color': '#ff00ff00', 'payload': 2.0}
    assert by_name['denoise']['dur'] == 4.0 and by_name['denoise']['tid'] == 51
    assert by_name['hello']['args'] == {'payload': 7} and by_name['hello']['ph'] == 'i'
    call = by_name['cudaLaunchKernel']
    assert (call['cat'], call['args'], call['dur']) == ('launch', {'grid': 9, 'stream': '0x0', 'result': 2, 'errno': 5}, 1.0)
    assert by_name['thread_name']['args']['name'] == 'worker'
    assert trace['baseTimeNanoseconds'] + round(by_name['denoise']['ts'] * 1000) == 1_700_000_000_000_001_000


def test_export_gives_each_process_a_number_of_its_own(tmp_path, analyze):
    """Two hosts have a process 77 each; several ranks are in one file, so it has no single rank."""
    simple(tmp_path / 'rank0.a.77.tfr', rank=0, pid=77, host='a')
    simple(tmp_path / 'rank1.b.77.tfr', rank=1, pid=77, host='b')
    trace = export(analyze, tmp_path)
    names = {e['pid']: e['args']['name'] for e in trace['traceEvents'] if e['name'] == 'process_name'}
    assert len(names) == 2 and 77 in names and 'distributedInfo' not in trace
    assert sorted(n[:7] for n in names.values()) == ['rank 0:', 'rank 1:']


def test_export_of_a_stage_and_a_window(tmp_path, analyze):
    simple(tmp_path / 'a.tfr', stages=5)
    kept = [e['name'] for e in export(analyze, '--stage', 'stage 2', tmp_path)['traceEvents'] if e['ph'] == 'X']
    assert kept == ['stage 2']
    kept = [e['name'] for e in export(analyze, '--from', 0.0082, '--to', 0.0095, tmp_path)['traceEvents'] if e['ph'] == 'X']
    assert kept == ['stage 2']
    assert 'nothing matches --stage nope' in export(analyze, '--stage', 'nope', tmp_path, rc=1).err


def test_output_is_whole_or_not_there(tmp_path, analyze):
    simple(tmp_path / 'in.tfr')
    out = tmp_path / 'out.json.gz'
    analyze('export', 'chrome', tmp_path / 'in.tfr', '--output', out, format=None)
    check_chrome(json.loads(gzip.decompress(out.read_bytes())))
    assert re.search(rb'"rank":\s+(\d+)', gzip.decompress(out.read_bytes()))
    before = out.read_bytes()
    assert analyze('export', 'chrome', tmp_path / 'in.tfr', '--stage', 'no', '--output', out, format=None, rc=1).out == ''
    assert out.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ['in.tfr', 'out.json.gz']
    result = analyze('stages', tmp_path / 'in.tfr', '--output', tmp_path / 'no' / 'x', format='text', rc=1)
    assert "can't be written" in result.err
    (tmp_path / 'link').symlink_to(tmp_path / 'target')
    analyze('stages', tmp_path / 'in.tfr', '--output', tmp_path / 'link', format='text')
    assert (tmp_path / 'link').is_symlink() and 'stage 1' in (tmp_path / 'target').read_text()
    assert analyze('stages', tmp_path / 'in.tfr', '--output', '/dev/stdout', format='text').out.startswith('stage')
    result = analyze('stages', tmp_path / 'in.tfr', '--output', '/dev/full', format='text', rc=1)
    assert 'No space left' in result.err


# ---- the .tfr and its .live ----

def live_pair(directory, dead=True, boot='00000000-0000-0000-0000-000000000000', quiet=True, host='elsewhere', **options):
    """A trace of four chunks, whose last two are still in the live file; returns the writer and the chunks there."""
    w = Writer(clock='monotonic', host=host, boot=boot, **options)
    clock_chunk(w, [(0, 0, 10 ** 18)], thread=1)
    w.chunk([rec('mark', name=w.string(f'm{i}'), time=i) for i in range(20)], thread=1, tid=5)
    open_ = [rec('mark', name=w.string(f'open{i}'), time=100 + i) for i in range(7)]
    closed = [rec('mark', name=w.string(f'closed{i}'), time=200 + i) for i in range(30)]
    chunks = [dict(records=open_, serial=4, thread=1, tid=5, state=tfr.OPEN),
              dict(records=closed, serial=3, thread=2, tid=6, state=tfr.CLOSED, large=True)]
    path = w.save(directory / 'rank0.h.1.tfr')
    live = directory / 'rank0.h.1.tfr.live'
    live.write_bytes(tfr.pack_live(w, chunks))
    if quiet:
        os.utime(live, (1, 1))
        os.utime(path, (1, 1))
    return w, chunks, path, live


def test_live_chunks_complete_the_trace(tmp_path, analyze):
    w, chunks, path, live = live_pair(tmp_path)
    for given in (path, live, tmp_path):
        answer = analyze('dump', given)
        names = [r['values']['name'] for r in answer['rows'] if r['kind'] == 'mark']
        assert names == [f'm{i}' for i in range(20)] + [f'closed{i}' for i in range(30)] + [f'open{i}' for i in range(7)]
        assert [r['live'] for r in answer['rows'] if r['kind'] == 'mark'] == [False] * 20 + [True] * 37
    result = analyze('info', path, format='text')
    assert 'ended         killed' in result.out and 'was killed; all it had recorded up to then was read' in result.err
    row = analyze('info', path)['rows'][0]
    assert row['ended'] == 'killed' and not row['complete'] and row['lost'] == {}
    assert analyze('info', path, live, tmp_path)['totals']['processes'] == 1


def test_a_chunk_in_both_files_counts_once(tmp_path, analyze):
    w, chunks, path, live = live_pair(tmp_path)
    w.chunk(chunks[1]['records'], thread=2, tid=6, serial=3)
    w.save(path)
    assert len([r for r in analyze('dump', path)['rows'] if r['kind'] == 'mark']) == 57
    # A thread was still in the recorder when its chunk was appended: the live one has more.
    short = tfr.Writer(host='elsewhere')
    short.numbers, short.strings = dict(w.numbers), dict(w.strings)
    clock_chunk(short, [(0, 0, 10 ** 18)], thread=1)
    short.pending = sorted(w.strings.items())
    short.chunk(chunks[0]['records'][:3], thread=1, tid=5, serial=4)
    short.footer()
    short.save(path)
    assert len([r for r in analyze('dump', path)['rows'] if r['kind'] == 'mark']) == 37


def test_a_torn_block_whose_chunk_is_live_is_no_loss(tmp_path, analyze):
    w, chunks, path, live = live_pair(tmp_path)
    w.chunk(chunks[1]['records'], thread=2, tid=6, serial=3)
    whole = bytes(w.data)
    start = w.blocks[-1].offset
    for cut in (start + 1, start + 20, start + 48, start + 49, len(whole) - 9):
        path.write_bytes(whole[:cut])
        answer = analyze('dump', path)
        assert len([r for r in answer['rows'] if r['kind'] == 'mark']) == 57, cut
    damaged = bytearray(whole)
    damaged[start + 60] ^= 4
    path.write_bytes(damaged)
    assert len([r for r in analyze('dump', path)['rows'] if r['kind'] == 'mark']) == 57
    live.unlink()
    os.utime(path, (1, 1))
    result = analyze('dump', path, format='text', rc=3)
    assert '30 records lost' in result.err and str(start) in result.err


def test_a_lone_live_file(tmp_path, analyze):
    w, chunks, path, live = live_pair(tmp_path)
    path.unlink()
    for given in (live, tmp_path):
        answer = analyze('dump', given, rc=3)  # chunks 1 and 2 were in the .tfr
        assert answer['inputs'][0]['kind'] == 'live' and len(answer['rows']) == 37
        assert answer['inputs'][0]['lost'] == 2  # chunks, so at least as many records
    path.write_bytes(b'')  # the disk was full when it was made
    os.utime(path, (1, 1))
    assert len(analyze('dump', path, rc=3)['rows']) == 37


def test_a_live_file_elsewhere(tmp_path, analyze):
    """The header says where it lies; it is used only if it is of the same process."""
    away = tmp_path / 'shm' / 'tfinject.0.rank0.h.1.tfr.live'
    away.parent.mkdir()
    run = tmp_path / 'run'
    run.mkdir()
    w, chunks, path, live = live_pair(run, live=away)
    live.rename(away)
    assert len(analyze('dump', run)['rows']) == 2 + 57
    other = bytearray(away.read_bytes())
    other[other.index(b'start_time\x007'):][:1]
    away.write_bytes(bytes(other).replace(b'start_time\x007', b'start_time\x008'))
    assert len(analyze('dump', run, rc=3)['rows']) == 2 + 20


def own_process():
    stat = Path('/proc/self/stat').read_text()
    return dict(pid=os.getpid(), start_time=int(stat[stat.rindex(')') + 2:].split()[19]), host=os.uname().nodename,
                boot=Path('/proc/sys/kernel/random/boot_id').read_text().strip())


def test_a_running_process_is_a_snapshot(tmp_path, analyze):
    w, chunks, path, live = live_pair(tmp_path, **own_process())
    result = analyze('info', path, format='text')
    assert 'ended         running' in result.out and 'still running' in result.err
    torn = w.data + tfr.pack_block(tfr.CHUNK, b'x' * 500, serial=9, records=10)[:100]  # it is being appended to
    path.write_bytes(torn)
    assert analyze('info', path)['rows'][0]['lost'] == {}
    process = own_process()
    live_pair(tmp_path, **dict(process, start_time=process['start_time'] + 1))
    assert analyze('info', path)['rows'][0]['ended'] == 'killed'


def test_on_another_host_a_live_file_is_dead_when_it_is_quiet(tmp_path, analyze):
    live_pair(tmp_path, quiet=False)
    assert analyze('info', tmp_path)['rows'][0]['ended'] == 'running'
    for p in tmp_path.iterdir():
        os.utime(p, (time.time() - 90,) * 2)
    assert analyze('info', tmp_path)['rows'][0]['ended'] == 'killed'


def test_live_rows_that_make_no_sense_end_their_chunk(tmp_path, analyze):
    w, chunks, path, live = live_pair(tmp_path)
    rows = bytearray(tfr.pack_rows(chunks[0]['records']))
    size = len(rows) // 7
    rows[3 * size + 2:3 * size + 4] = b'\x05\x00'
    for broken in (b'\x05\x00', b'\x00\x00', b'\x02\x00', b'\xf8\xff'):
        rows[3 * size + 2:3 * size + 4] = broken
        live.write_bytes(tfr.pack_live(w, [dict(chunks[0], rows=bytes(rows)), chunks[1]]))
        os.utime(live, (1, 1))
        answer = analyze('dump', path, rc=3)
        assert len([r for r in answer['rows'] if r['kind'] == 'mark']) == 20 + 30 + 3
    assert f'{4 * size} bytes' in analyze('dump', path, rc=3, format='text').err


def test_a_chunk_that_is_being_given_out_is_no_loss(tmp_path, analyze):
    w, chunks, path, live = live_pair(tmp_path)
    live.write_bytes(tfr.pack_live(w, [*chunks, dict(records=[], serial=5, state=tfr.TAKEN)], serial=5))
    os.utime(live, (1, 1))
    assert analyze('info', path)['rows'][0]['lost'] == {}


# ---- what is lost ----

def test_drops_are_said_and_counted(tmp_path, analyze):
    w = simple(tmp_path / 'a.tfr', footer=False)
    w.chunk([rec('drop', cause=1, time=3, count=5), rec('drop', cause=1, time=4, count=9), rec('drop', cause=7, time=4, count=2)])
    w.footer(**{'drop.CAP': 30, 'drop.NO_CHUNK': 9})
    path = w.save(tmp_path / 'a.tfr')
    answer = analyze('info', path, rc=3)
    assert answer['rows'][0]['lost'] == {'no_chunk': 9, 'cap': 30} and answer['rows'][0]['counted'] == {'unmatched': 2}
    assert answer['inputs'][0]['lost'] == 39 and answer['inputs'][0]['complete'] is False
    assert 'TFI_MAX_MB' in analyze('stages', path, format='text', rc=3).err


def test_missing_chunks_are_counted(tmp_path, analyze):
    w = simple(tmp_path / 'a.tfr', footer=False)
    w.chunk([rec('mark', time=5)] * 4, thread=1)
    w.footer(records=30, chunks=4)
    answer = analyze('info', w.save(tmp_path / 'a.tfr'), rc=3)
    assert answer['rows'][0]['lost'] == {'missing': 30 - 2 - 7 - 4}


def test_serials_that_stand_twice_count_once(tmp_path, analyze):
    w = simple(tmp_path / 'a.tfr', footer=False)
    w.chunk([rec('mark', time=5)] * 4, thread=1, serial=9)
    w.chunk([rec('mark', time=5)] * 4, thread=1, serial=9)
    w.footer(chunks=3)
    assert analyze('info', w.save(tmp_path / 'a.tfr'))['rows'][0]['events']['mark'] == 4


# ---- damage ----

def test_a_file_cut_anywhere(tmp_path, analyze):
    """At every 997th byte: the chunks before the cut, a line that says where, exit 3 (1 where nothing is left)."""
    w = tfr.everything()
    path = tmp_path / 'cut.tfr'
    for cut in [*range(0, len(w.data), 997), *(b.offset for b in w.blocks), *(b.offset + 5 for b in w.blocks)]:
        path.write_bytes(w.data[:cut])
        os.utime(path, (1, 1))
        whole = sum(b.records for b in w.blocks if b.end <= cut)
        rc = 3 if cut >= 16 else 1
        result = analyze('info', path, rc=rc, format='json' if rc == 3 else 'text')
        if rc == 3:
            events = result['inputs'][0]['events']
            assert events >= whole and result['inputs'][0]['complete'] is False, cut
            assert events - whole <= 0
        else:
            assert 'cut.tfr' in result.err


def test_damage_is_said_with_its_place(tmp_path, analyze):
    """In rows that are not packed, so that only the checksum can tell."""
    w = tfr.everything(footer=False)
    w.chunk([rec('mark', name=w.string('here'), time=10 ** 8 + i, payload=i) for i in range(9)], thread=1, tid=101,
            form='rows', deflate=False)
    w.footer()
    path = tmp_path / 'a.tfr'
    chunks = [b for b in w.blocks if b.type == tfr.CHUNK]
    lost = chunks[-1]
    data = bytearray(w.data)
    data[lost.offset + 72] ^= 1
    path.write_bytes(data)
    result = analyze('info', path, format='text', rc=3)
    assert f'damaged in 1 place, the first at byte {lost.offset}: {lost.records} records lost' in result.err
    data[lost.offset + 2] ^= 1  # its head too: its number of records is not known, the footer's is
    path.write_bytes(data)
    answer = analyze('info', path, rc=3)
    assert answer['rows'][0]['lost'] == {'missing': lost.records}
    assert answer['inputs'][0]['events'] == len(w.records) - lost.records


def test_a_damaged_beginning_is_read_all_the_same(tmp_path, analyze):
    w = tfr.everything()
    data = bytearray(w.data)
    data[0:16] = bytes(16)
    (tmp_path / 'a.tfr').write_bytes(data)
    result = analyze('info', tmp_path / 'a.tfr', format='text', rc=3)
    assert 'the first 16 bytes are damaged (expected TFITRACE)' in result.err
    assert analyze('info', tmp_path / 'a.tfr', rc=3)['inputs'][0]['events'] == len(w.records)


def test_lost_descriptions(tmp_path, analyze):
    """HEADER, SCHEMA and STRINGS blocks damaged one by one: the records are still there."""
    w = tfr.everything()
    for block in [b for b in w.blocks if b.type in (tfr.HEADER, tfr.SCHEMA, tfr.STRINGS)][:6]:
        data = bytearray(w.data)
        data[block.offset + 50] ^= 255
        (tmp_path / 'rank5.x.1.tfr').write_bytes(data)
        answer = analyze('dump', tmp_path / 'rank5.x.1.tfr', rc=3)
        assert len(answer['rows']) == len(w.records)
        assert answer['rows'][0]['rank'] == (5 if block.type == tfr.HEADER else 0)
        if block.type == tfr.STRINGS and block is not [b for b in w.blocks if b.type == tfr.STRINGS][-1]:
            continue
    data = bytearray(w.data)
    for block in [b for b in w.blocks if b.type == tfr.STRINGS]:
        data[block.offset + 50] ^= 255
    (tmp_path / 'rank5.x.1.tfr').write_bytes(data)
    names = {r['values']['name'] for r in analyze('dump', tmp_path / 'rank5.x.1.tfr', rc=3)['rows'] if r['kind'] == 'mark'}
    assert '(lost)' in names and names <= {'(lost)', None}


def test_blocks_after_a_gap_are_found(tmp_path, analyze):
    """Bytes taken out of the middle, so that nothing stands on its place any more."""
    w = tfr.everything()
    chunks = [b for b in w.blocks if b.type == tfr.CHUNK]
    data = w.data[:chunks[3].offset + 30] + w.data[chunks[6].offset + 13:]
    (tmp_path / 'a.tfr').write_bytes(data)
    lost = sum(b.records for b in chunks[3:7])
    answer = analyze('info', tmp_path / 'a.tfr', rc=3)
    assert answer['inputs'][0]['events'] == len(w.records) - lost
    assert answer['rows'][0]['lost'] == {'missing': lost}


def test_a_torn_write_in_the_middle(tmp_path, analyze):
    """A block's head and part of its payload, then other blocks: what follows lies inside the size it claims."""
    w = simple(tmp_path / 'a.tfr', footer=False)
    torn = tfr.pack_block(tfr.CHUNK, os.urandom(5000), serial=50, records=17)
    before = bytes(w.data)
    w.data += torn[:700]
    w.chunk([rec('mark', time=5)] * 4, thread=1)
    w.footer(chunks=4)
    answer = analyze('info', w.save(tmp_path / 'a.tfr'), rc=3)
    assert answer['rows'][0]['events']['mark'] == 4 and answer['rows'][0]['lost'] == {'damaged': 17}
    w.data[len(before):] = torn[:700] + bytes(w.data[len(before) + 700:]) + bytes(8) * 1000
    answer = analyze('info', w.save(tmp_path / 'a.tfr'), rc=3)
    assert answer['rows'][0]['events']['mark'] == 4


def test_a_newer_trace_is_refused_with_its_live_file(tmp_path, analyze):
    w, chunks, path, live = live_pair(tmp_path)
    path.write_bytes(tfr.file_head(major=2) + bytes(w.data[16:]))
    result = analyze('info', path, format='text', rc=1)
    assert result.out == '' and 'has format 2.0' in result.err


# ---- what does not belong there ----

def test_versions(tmp_path, analyze):
    simple(tmp_path / 'new.tfr', minor=7)
    result = analyze('info', tmp_path / 'new.tfr', format='text')
    assert 'has format 1.7, newer than this program\'s 1.1' in result.err
    simple(tmp_path / 'next.tfr', major=2)
    result = analyze('info', tmp_path / 'next.tfr', format='text', rc=1)
    assert result.out == '' and 'has format 2.0, and this program reads 1.1' in result.err
    assert analyze('info', tmp_path / 'next.tfr', tmp_path / 'new.tfr', rc=3)['totals']['processes'] == 1


def test_what_is_not_a_trace(tmp_path, analyze):
    (tmp_path / 'empty.tfr').write_bytes(b'')
    (tmp_path / 'text.tfr').write_text('hello\n' * 1000)
    (tmp_path / 'image.png').write_bytes(os.urandom(100000))
    (tmp_path / 'dir').mkdir()
    (tmp_path / 'runs' / '20260101').mkdir(parents=True)
    simple(tmp_path / 'runs' / '20260101' / 'a.tfr')
    for name, words in (('empty.tfr', 'is empty'), ('text.tfr', 'does not begin with TFITRACE'),
                        ('image.png', 'does not begin with TFITRACE'), ('dir', 'holds no .tfr and no .json; run a program with LD_PRELOAD'),
                        ('runs', 'there are some in'), ('missing', 'No such file or directory'), ('/dev/null', 'is not a file')):
        result = analyze('stages', tmp_path / name, format='text', rc=1)
        assert result.out == '' and words in result.err and str(tmp_path / name) in result.err
    simple(tmp_path / 'good.tfr')
    answer = analyze('stages', tmp_path / 'good.tfr', tmp_path / 'empty.tfr', rc=3)
    assert len(answer['rows']) == 3
    assert answer['inputs'][0] == {'path': str(tmp_path / 'empty.tfr'), 'kind': None, 'rank': None, 'complete': False,
                                   'events': None, 'lost': None}


def test_a_run_directory_is_its_traces_only(tmp_path, analyze):
    simple(tmp_path / 'rank0.a.1.tfr')
    for name in ('timing.json', 'rank0.a.1.timing.json', 'x.trace.json.gz', '.hidden.tfr', 'y.tfr.tmp'):
        (tmp_path / name).write_text('{}')
    assert analyze('info', tmp_path)['totals'] == {'processes': 1, 'complete': 1, 'events': 9, 'lost': 0}
    names = [f'rank{i}.a.1.tfr' for i in (10, 2)]
    for name in names:
        simple(tmp_path / name, rank=int(re.search(r'\d+', name).group()))
    assert [r['rank'] for r in analyze('info', tmp_path)['rows']] == [0, 2, 10]


def test_kinds_and_columns_from_the_future(tmp_path, analyze):
    """A kind, a column and a block type this program does not know, and a column it knows that is not there."""
    kinds = dict(tfr.KINDS)
    kinds['future'] = tfr.Kind(900, 'future', [tfr.Field('time', 'uint64_t', 'TICKS', 'DELTA'),
                                               tfr.Field('shade', 'uint32_t', 'COLOUR', 'PLAIN'),
                                               tfr.Field('more', 'int32_t', 'INT', 'PLAIN')])
    mark = tfr.KINDS['mark']
    kinds['mark'] = tfr.Kind(mark.number, 'mark', [f for f in mark.fields if f.name not in ('color', 'category')]
                             + [tfr.Field('extra', 'uint64_t', 'UINT', 'KEYED')])
    secret = tfr.Kind(901, 'secret', [tfr.Field('a', 'uint32_t', 'UINT', 'PLAIN')])
    for form in ('rows', 'columns'):
        w = Writer(kinds=kinds)
        w.kinds = dict(kinds, secret=secret)  # not in the SCHEMA block
        clock_chunk(w, [(0, 0, 10 ** 18)])
        values = {f.name: 1 for f in kinds['mark'].fields}
        w.chunk([tfr.Record('future', dict(time=50 + i, shade=3, more=-i)) for i in range(3)]
                + [tfr.Record('mark', dict(values, name=w.string('m'), extra=9, time=60))] + [tfr.Record('secret', {'a': 4})] * 5,
                thread=1, form=form)
        w.block(77, b'something new')
        w.footer()
        path = w.save(tmp_path / 'a.tfr')
        result = analyze('dump', path, format='text')
        assert '5 records of kinds that the file does not describe' in result.err and '1 blocks of a kind' in result.err
        rows = analyze('dump', path)['rows']
        assert rows[3]['kind'] == 'future' and rows[3]['values'] == {'shade': 3, 'more': -1} or rows[2]['values'] == {'shade': 3, 'more': 0}
        assert [r['values'].get('extra') for r in rows if r['kind'] == 'mark'] == [9]
        assert [r['kind'] for r in rows[-5:]] == ['kind901'] * 5
        assert analyze('info', path)['rows'][0]['events'] == {'clock': 2, 'mark': 1, 'future': 3, 'kind901': 5}
        assert len([e for e in export(analyze, path)['traceEvents'] if e['ph'] == 'i']) == 1


# ---- hostile sizes ----

HOSTILE = {
    'huge counts in runs': lambda w: tfr.pack_block(tfr.CHUNK, hostile_group(count=0xfffffff0), serial=9, records=9),
    'many columns': lambda w: tfr.pack_block(tfr.CHUNK, hostile_group(columns=65535), serial=9, records=9),
    'a group larger than the chunk': lambda w: tfr.pack_block(tfr.CHUNK, hostile_group(bytes_=0xffffffff), serial=9, records=9),
    'many kinds': lambda w: tfr.pack_block(tfr.CHUNK, b'\xff\xff\xff\xff\0\0\0\0', serial=9, records=9),
    'a deflated bomb': lambda w: tfr.pack_block(tfr.CHUNK, bytes(64 << 20), flags=tfr.DEFLATED, serial=9, raw=4 << 20),
    'more raw than a block may have': lambda w: tfr.pack_block(tfr.CHUNK, bytes(64 << 20), flags=tfr.DEFLATED, serial=9),
    'strings without end': lambda w: tfr.pack_block(tfr.STRINGS, b'\x01\0\0\0\xff\xff\xff\xff' * 1000),
    'ids far apart': lambda w: tfr.pack_block(tfr.STRINGS, b''.join(
        n.to_bytes(4, 'little') + bytes(4) for n in range(1, 2 ** 32 - 2, 2 ** 22))),
    'a schema of nonsense': lambda w: tfr.pack_block(tfr.SCHEMA, b'1 a b:c:d:e\n' * 1000 + b'99999 x\n7\n:::: \n5 x y:z\n'),
    'keys without values': lambda w: tfr.pack_block(tfr.HEADER, b'a\0b\0c'),
}


def hostile_group(count=1, columns=1, bytes_=None):
    import struct
    data = tfr.varint(tfr.zigzag(5)) + tfr.varint(count)
    column = struct.pack('<HHI', 0, tfr.RUNS, len(data)) + data
    order = tfr.varint(0) + tfr.varint(count)
    return (struct.pack('<II', 1, len(order)) + order
            + struct.pack('<HHII', 12, columns, count, len(column) if bytes_ is None else bytes_) + column)


@pytest.mark.parametrize('name', HOSTILE)
def test_hostile_sizes(tmp_path, tfanalyze, tfanalyze_asan, name):
    """What checksums bless and nobody wrote: no crash, and no more than 400 MB of addresses whatever it claims."""
    w = simple(tmp_path / 'a.tfr', footer=False)
    w.data += HOSTILE[name](w)
    w.chunk([rec('mark', time=5)] * 4, thread=1)
    path = w.save(tmp_path / 'a.tfr')

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))
    for command in (['info', '--format', 'json'], ['stages'], ['dump'], ['export', 'chrome']):
        result = subprocess.run([tfanalyze, *command, path], capture_output=True, preexec_fn=limit, timeout=30)
        assert result.returncode == 3, result.stderr
        checked = subprocess.run([tfanalyze_asan, *command, path], capture_output=True, timeout=60)
        assert (checked.returncode, checked.stdout, checked.stderr) == (3, result.stdout, result.stderr)
        if command[0] == 'info':
            assert json.loads(result.stdout)['rows'][0]['events']['mark'] == 4


# ---- the command line ----

@pytest.mark.parametrize('line, words', [
    (['stagse', '.'], 'did you mean stages'),
    (['exprt', 'chrome', '.'], 'did you mean export chrome'),
    (['export', '.'], 'did you mean export chrome'),
    (['stages', '--formt', 'json', '.'], 'did you mean --format'),
    (['stages', '--format', 'jsn', '.'], 'did you mean json'),
    (['stages', '--zebra', '.'], 'there is no option --zebra'),
    (['stages', '--top', '0', '.'], '--top wants N'),
    (['stages', '--top', 'x', '.'], '--top wants N'),
    (['stages', '--rank', '1-', '.'], '--rank wants LIST'),
    (['stages', '--rank', '3-1', '.'], '--rank wants LIST'),
    (['stages', '--from', 'nan', '.'], '--from wants S'),
    (['stages', '--from', '2', '--to', '1', '.'], 'is not before'),
    (['stages', '--output'], '--output wants FILE'),
    (['stages', '--exclusive=1', '.'], 'takes no value'),
    (['info', '--exclusive', '.'], 'is not an option of info'),
    (['info'], 'of which INPUT'),
    ([], 'which COMMAND'),
    (['--format', 'json'], 'which COMMAND'),
])
def test_wrong_usage(tfanalyze, line, words):
    result = subprocess.run([tfanalyze, *line], capture_output=True, text=True)
    assert result.returncode == 2 and result.stdout == ''
    assert words in result.stderr and len(result.stderr.splitlines()) == 1 and result.stderr.startswith('tfanalyze: ')


def test_help_and_version(tfanalyze):
    def out(*line):
        result = subprocess.run([tfanalyze, *line], capture_output=True, text=True)
        assert result.returncode == 0 and result.stderr == ''
        return result.stdout
    general = out('--help')
    for command in ('info', 'stages', 'dump', 'export chrome'):
        assert re.search(rf'^  {command}  +\w', general, re.M)
        text = out(*command.split(), '--help')
        assert f'usage: tfanalyze {command} [options] INPUT' in text
        assert ('--exclusive' in text) == (command == 'stages')
    assert re.fullmatch(r'tfanalyze \S+\n', out('--version'))


def test_filters(tmp_path, analyze):
    for rank in range(4):
        simple(tmp_path / f'rank{rank}.a.{rank + 100}.tfr', rank=rank, pid=rank + 100)
    assert [r['rank'] for r in analyze('info', '--rank', '0,2-3', tmp_path)['rows']] == [0, 2, 3]
    assert [r['rank'] for r in analyze('info', '--pid=101', tmp_path)['rows']] == [1]
    assert [r['rank'] for r in analyze('info', '-j1', '--rank', 3, tmp_path)['rows']] == [3]
    assert len(analyze('stages', '--top', 2, tmp_path)['rows']) == 8
    assert len(analyze('dump', '--from', 0.0045, '--to', 0.0065, tmp_path)['rows']) == 4 * 2
    for filters, words in ((['--rank', 9], 'rank 3 pid 103'), (['--pid', 9], 'no process matches --pid'),
                           (['--stage', 'x*'], 'nothing matches --stage x*'), (['--from', 100], 'nothing matches --from 100')):
        result = analyze('stages', *filters, tmp_path, format='text', rc=1)
        assert result.out == '' and words in result.err
    # A damaged rank does not spoil the answer about another.
    bad = tmp_path / 'rank1.a.101.tfr'
    bad.write_bytes(bad.read_bytes()[:-60])
    os.utime(bad, (1, 1))
    analyze('stages', tmp_path, rc=3)
    analyze('stages', '--rank', '0,2', tmp_path)


def test_a_closed_pipe_is_quiet(tmp_path, tfanalyze):
    w = Writer()
    w.chunk([rec('mark', time=i) for i in range(20000)], thread=1)
    w.footer()
    path = w.save(tmp_path / 'a.tfr')
    result = subprocess.run(['bash', '-c', f'{tfanalyze} dump {path} | head -1'], capture_output=True, text=True)
    assert result.stderr == '' and len(result.stdout.splitlines()) == 1
