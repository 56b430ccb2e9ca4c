"""test_reader - `tfanalyze dump` and `info` against tests/tfr.py, other format versions, files that are no traces."""

import csv
import io
import os
import re
import struct

import pytest

import random_traces
import tfr
from conftest import ROOT
from small_traces import clock_chunk, export, simple
from tfr import MONOTONIC, NESTED, REALTIME, STAGE, Writer, rec

NS = 0.0011  # microseconds: rounding of two nanoseconds at most, plus the error of a double


# ---- dump ----

def truth_of_dump(w, clock, start):
    """The rows that dump must print for a writer's records, in order."""
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
    """The argument list of a record, with the function's argument names if the record has a function."""
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


@pytest.mark.parametrize('form', ['rows', 'columns', 'mixed'])
@pytest.mark.parametrize('seed', range(4))
def test_dump_has_every_value(tmp_path, analyze, form, seed):
    """All kinds of records and codecs, as rows and columns, packed and not: every value comes out unchanged."""
    rng = random_traces.generator(seed)
    w = Writer(rank=2, clock='tsc')
    clock_chunk(w, [(500_000, 10 ** 12, 10 ** 18), (9 * 10 ** 6, 10 ** 12 + 4_100_000, 10 ** 18 + 4_100_000)], thread=1)
    for i in range(6):
        def pick(f, values):
            if f.codec == 'LIST' or rng.random() < 0.3:
                return None
            first = w.kinds[records[0].kind].fields[0].name
            return rng.choice([tfr.PLAIN, tfr.DELTA, tfr.RUNS] + [tfr.KEYED] * (f.name != first and f is not None))
        records = random_traces.random_records(rng, 150, w)
        one_kind = [r for r in records if r.kind == records[0].kind]
        shape = form if form != 'mixed' else rng.choice(['rows', 'columns'])
        if shape == 'columns' and i % 2:
            w.chunk(one_kind, thread=i, tid=i + 1000, form=shape, deflate=bool(i % 3), pick=pick)
        else:
            w.chunk(records, thread=i, tid=i + 1000, form=shape, deflate=bool(i % 3))
    w.footer()
    path = w.save(tmp_path / 'rank2.a.1.tfr')
    clock = tfr.Clock(w.records)
    start = random_traces.span(w.records, clock)[0]
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
    """Names may be any bytes: JSON stays valid, and UTF-8 names stay as they are."""
    rng = random_traces.generator(5)
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
        'version': '0.0.1', 'unmatched_names': [], 'device_elsewhere': [], 'metadata': {'model': 'wan 2.1', 'note': 'ü'}, 'messages': ['disk is slow'], 'recording': [], 'health': [], 'machine': None, 'flight': None,
        'reveals': {'command_line': 'whole', 'left_out': 0, 'values': True, 'texts': 3, 'source_lines': 0, 'paths': 'directory', 'environment': None}}
    text = analyze('info', tmp_path, format='text').out
    assert 'message 1, mark 2' in text and 'duration          2.999 ms' in text
    assert next(csv.DictReader(io.StringIO(analyze('info', tmp_path, format='csv').out)))['events'] == 'clock=2;message=1;mark=2'


def test_a_step_of_the_clock_is_found(tmp_path, analyze):
    """Realtime jumps forward by two seconds: durations ignore the jump, and info reports it."""
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


# ---- unknown content ----

def test_versions(tmp_path, analyze):
    ours = '.'.join(re.findall(r'^#define TFI_M[AI][JN]OR (\d+)', (ROOT / 'include/tfi_trace.h').read_text(), re.M))
    simple(tmp_path / 'new.tfr', minor=77)
    result = analyze('info', tmp_path / 'new.tfr', format='text')
    assert f'has format 1.77, newer than this tfanalyze\'s {ours}' in result.err
    simple(tmp_path / 'next.tfr', major=2)
    result = analyze('info', tmp_path / 'next.tfr', format='text', rc=1)
    assert result.out == '' and f'has format 2.0, and this tfanalyze reads {ours}' in result.err
    assert analyze('info', tmp_path / 'next.tfr', tmp_path / 'new.tfr', rc=3)['totals']['processes'] == 1


def test_files_that_are_no_traces(tmp_path, analyze):
    (tmp_path / 'empty.tfr').write_bytes(b'')
    (tmp_path / 'text.tfr').write_text('hello\n' * 1000)
    (tmp_path / 'image.png').write_bytes(b'\x89PNG\r\n' + os.urandom(100000))
    (tmp_path / 'dir').mkdir()
    (tmp_path / 'runs' / '20260101').mkdir(parents=True)
    simple(tmp_path / 'runs' / '20260101' / 'a.tfr')
    os.utime(tmp_path / 'empty.tfr', (1, 1))  # one that was made a moment ago is still to get its head
    for name, words in (('empty.tfr', 'is empty'), ('text.tfr', 'does not begin with TFITRACE'),
                        ('image.png', 'does not begin with TFITRACE'), ('dir', 'contains no .tfr and no .json; give another directory, or record'),
                        ('runs', 'there are some in'), ('missing', 'No such file or directory'), ('/dev/null', 'is a device')):
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
    assert analyze('info', tmp_path)['totals'] == {'processes': 1, 'complete': 1, 'events': 9, 'lost': 0, 'unreadable': 0}
    names = [f'rank{i}.a.1.tfr' for i in (10, 2)]
    for name in names:
        simple(tmp_path / name, rank=int(re.search(r'\d+', name).group()))
    assert [r['rank'] for r in analyze('info', tmp_path)['rows']] == [0, 2, 10]


def test_kinds_and_columns_from_the_future(tmp_path, analyze):
    """An unknown kind, column and block type, and the absence of a known column, do not stop the reader."""
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
        w.kinds = dict(kinds, secret=secret)  # missing in the SCHEMA block
        clock_chunk(w, [(0, 0, 10 ** 18)])
        values = {f.name: 1 for f in kinds['mark'].fields}
        w.chunk([tfr.Record('future', dict(time=50 + i, shade=3, more=-i)) for i in range(3)]
                + [tfr.Record('mark', dict(values, name=w.string('m'), extra=9, time=60))] + [tfr.Record('secret', {'a': 4})] * 5,
                thread=1, form=form)
        w.block(77, b'something new')
        w.footer()
        path = w.save(tmp_path / 'a.tfr')
        result = analyze('dump', path, format='text')
        assert '5 records of kinds that its schema lacks' in result.err and '1 blocks of unknown kinds' in result.err
        rows = analyze('dump', path)['rows']
        assert rows[3]['kind'] == 'future' and rows[3]['values'] == {'shade': 3, 'more': -1} or rows[2]['values'] == {'shade': 3, 'more': 0}
        assert [r['values'].get('extra') for r in rows if r['kind'] == 'mark'] == [9]
        assert [r['kind'] for r in rows[-5:]] == ['kind901'] * 5
        assert analyze('info', path)['rows'][0]['events'] == {'clock': 2, 'mark': 1, 'future': 3, 'kind901': 5}
        assert len([e for e in export(analyze, path)['traceEvents'] if e['ph'] == 'i']) == 1
