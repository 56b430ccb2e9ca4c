"""test_dftracer - reading dftracer's traces: every generation of the format, against an independent reader, and damage."""

import gzip
import json
import re
from collections import Counter

import pytest

TRACES = ['test.pfw', 'test-trace.pfw.gz', *(f'cm1/cm1-DEFAULT-353778{i}-preload.pfw.gz' for i in range(8))]
UNITS = {'NS': 1, 'US': 1000, 'MS': 10 ** 6, 'SEC': 10 ** 9}
T0 = 1700000000000000


def read_pfw(path):
    """The events of a trace, with python's json alone."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if data[:2] == b'\x1f\x8b' else data).decode()
    return [json.loads(line) for line in (line.strip() for line in text.splitlines()) if line not in ('', '[', ']')]


def event(name='read', cat='POSIX', ts=T0, dur=7, pid=10, tid=11, ph='X', **members):
    return {'id': 1, 'name': name, 'cat': cat, 'pid': pid, 'tid': tid, 'ts': ts, 'dur': dur, 'ph': ph, **members}


def meta(name, key, value, **members):
    return {'name': name, 'cat': 'dftracer', 'pid': 10, 'tid': 11, 'ph': 'M', 'args': {'name': key, 'value': value}, **members}


def write(path, *events, head='', foot=''):
    text = head + ''.join((e if isinstance(e, str) else json.dumps(e, separators=(',', ':'))) + '\n' for e in events) + foot
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == '.gz' else text.encode())
    return path


@pytest.mark.parametrize('name', TRACES)
def test_shared_traces_have_the_events_of_an_independent_reader(analyze, shared_traces, name):
    """Events by category, processes, threads, hosts and times equal those that python's json finds."""
    events = read_pfw(shared_traces / 'dftracer' / name)
    row, = analyze('info', shared_traces / 'dftracer' / name)['rows']
    timed = [e for e in events if e['ph'] == 'X']
    assert row['events'] == Counter('metadata' if e['ph'] == 'M' else e['cat'] for e in events)
    assert row['kind'] == 'dftracer' and row['complete'] and not row['lost']
    assert str(row['pid']) == Counter(str(e['pid']) for e in timed).most_common(1)[0][0]
    assert row['threads'] == len({(e['pid'], e['tid']) for e in timed})
    start, end = min(int(e['ts']) for e in timed), max(int(e['ts']) + int(e['dur']) for e in timed)
    assert row['duration_us'] == end - start
    hosts = {e['args']['hostname'] for e in timed if 'hostname' in e['args']} or \
            {e['args']['name'] for e in events if e['name'] == 'HH'}
    assert {row['host']} == hosts
    ranks = [e['args']['value'] for e in events if e['name'] == 'PR' and e['args']['name'] == 'rank']
    assert row['rank'] == int(ranks[0] if ranks else 0)


@pytest.mark.slow
def test_application_level_events_are_stages(analyze, shared_traces):
    """Each name outside of POSIX, STDIO and dftracer is a stage with its calls and times."""
    path = shared_traces / 'dftracer' / 'test-trace.pfw.gz'
    rows = analyze('stages', path)['rows']
    calls, longest = Counter(), Counter()
    for e in read_pfw(path):
        if e['cat'] not in ('POSIX', 'STDIO', 'dftracer'):
            calls[e['name']] += 1
            longest[e['name']] = max(longest[e['name']], int(e['dur']))
    assert {r['stage']: r['calls'] for r in rows if r['stage'] != '(none)'} == calls
    assert {r['stage']: r['max_us'] for r in rows if r['stage'] != '(none)'} == longest


def one_of_each():
    return [meta('FH', '/data/a', 17), event(args={'fhash': 17, 'ret': 4, 'count': 4}),
            event('step', 'my app', T0 + 10, 20, args={'level': 1}),
            event('fwrite', 'STDIO', T0 + 40, 2, args={'fname': '/b', 'ret': 3, 'size': 2})]


FORMS = {
    'brackets': dict(head='[\n', foot=']\n'),
    'no end': dict(head='[\n'),
    'no brackets': {},
    'byte order mark': dict(head='\ufeff[\n'),
    'empty lines': dict(head='[\n\n  \n', foot='\n\n]\n\n'),
    'bracket before the first event': dict(head='[ '),
}


@pytest.mark.parametrize('form', FORMS)
@pytest.mark.parametrize('suffix', ['.pfw', '.pfw.gz'])
def test_brackets_are_optional(analyze, tmp_path, form, suffix):
    path = write(tmp_path / f'a{suffix}', *one_of_each(), **FORMS[form])
    row, = analyze('info', path)['rows']
    assert row['events'] == {'metadata': 1, 'POSIX': 1, 'my app': 1, 'STDIO': 1} and row['complete']


@pytest.mark.parametrize('change', ['commas', 'strings', 'spaces', 'carriage returns', 'two in a line', 'no last newline'])
def test_events_are_read_in_every_spelling(analyze, tmp_path, change):
    events = one_of_each()
    path = tmp_path / 'a.pfw'
    write(path, *([{k: str(v) if isinstance(v, int) else v for k, v in e.items()} for e in events] if change == 'strings' else events))
    text = path.read_text()
    text = {'commas': '[\n' + text.replace('}\n', '},\n'), 'spaces': text.replace(',"', ' , "').replace('":', '" : '),
            'carriage returns': text.replace('\n', '\r\n'), 'two in a line': text.replace('}\n', '}'),
            'no last newline': text.rstrip('\n')}.get(change, text)
    path.write_text(text, newline='')
    row, = analyze('info', path)['rows']
    assert row['events'] == {'metadata': 1, 'POSIX': 1, 'my app': 1, 'STDIO': 1} and row['duration_us'] == 42 and row['complete']
    stage, = (r for r in analyze('stages', path)['rows'] if r['calls'])
    assert (stage['stage'], stage['max_us']) == ('step', 20)


def test_several_gzip_members_are_one_trace(analyze, tmp_path):
    whole = write(tmp_path / 'a.pfw', *one_of_each()).read_bytes().splitlines(keepends=True)
    path = tmp_path / 'b.pfw.gz'
    path.write_bytes(b''.join(gzip.compress(line[:20]) + gzip.compress(line[20:]) for line in whole))
    assert sum(analyze('info', path)['rows'][0]['events'].values()) == 4


@pytest.mark.parametrize('metric, ns, place', [(metric, ns, place) for metric, ns in UNITS.items()
                                               for place in ('fact first', 'end last', 'not said')
                                               if place != 'not said' or metric in ('NS', 'US')])
def test_times_are_nanoseconds_in_every_unit(analyze, tmp_path, metric, ns, place):
    """A file names the unit of its times before or behind its events, or not; nanoseconds are then known by their size."""
    base = 1700000000 * 10 ** 9 // ns
    events = [event('s', 'app', base, 3), event('s', 'app', base + 7, 5)]
    end = event('end', 'dftracer', base + 20, 0, args={'cfg': {'time_metric': metric}})
    said = {'fact first': [meta('CM', 'time_metric', metric), *events], 'end last': [*events, end], 'not said': events}[place]
    path = write(tmp_path / 'a.pfw', *said)
    row, = analyze('info', path)['rows']
    assert row['start'] == '2023-11-14T22:13:20.000000Z'
    assert row['duration_us'] == (20 if place == 'end last' else 12) * ns / 1000
    stage, = (r for r in analyze('stages', path)['rows'] if r['calls'])
    assert (stage['min_us'], stage['max_us']) == (3 * ns / 1000, 5 * ns / 1000)


def newest():
    """A trace as dftracer 2.2 writes it: no brackets, numbers for type and phase, hexadecimal hashes."""
    def row(name, cat, type_, ph, **members):
        return {'name': name, 'cat': cat, 'type': type_, 'pid': 10, 'tid': 11, 'ph': ph, **members}
    host = {'hhash': '68a0'}
    return [row('HH', 'dftracer', 1, 4, args={**host, 'name': 'node7', 'value': '68a0'}),
            row('CM', 'dftracer', 1, 4, args={**host, 'name': 'time_metric', 'value': 'NS'}),
            row('SH', 'dftracer', 1, 4, args={**host, 'name': 'train.py', 'value': '33f'}),
            row('FH', 'dftracer', 1, 4, args={**host, 'name': '/work', 'value': '50d'}),
            row('thread_name', 'dftracer', 1, 4, args={**host, 'name': '11', 'value': 'thread_name'}),
            row('PR', 'dftracer', 1, 4, args={**host, 'name': 'rank', 'value': '3'}),
            row('start', 'dftracer', 1, 1, id=1, ts=T0 * 1000, dur=0, args={**host, 'cmd_hash': '33f', 'cwd': '50d', 'version': 20003}),
            row('train', 'epoch', 6, 1, id=2, ts=T0 * 1000 + 5, dur=100, args=host),
            row('work', 'CPP_APP', 9, 1, id=3, ts=T0 * 1000 + 9, dur=10, args=host),
            row('read', 'POSIX', 3, 1, id=4, ts=T0 * 1000 + 11, dur=4, args={**host, 'ret': 4, 'count': 8, 'fhash': 'a6e'}),
            row('FH', 'dftracer', 1, 4, args={**host, 'name': '/data/late', 'value': 'a6e'}),
            row('MPI_Send', 'MPI', 10, 1, id=5, ts=T0 * 1000 + 20, dur=1, args=host),
            row('cpu', 'sys', 7, 2, ts=T0 * 1000 + 30, args={**host, 'user_pct': 12.5}),
            row('write', 'POSIX', 3, 3, ts=T0 * 1000, args={**host, 'dft_cnt': 3, 'dur_min': 1, 'dur_max': 5, 'dur_sum': 9, 'ret_min': 1,
                                                           'ret_max': 10, 'ret_sum': 16}),
            row('loop', 'app', 6, 3, ts=T0 * 1000, args={**host, 'dft_cnt': 30, 'dur_sum': 9}),
            row('end', 'dftracer', 1, 1, id=6, ts=T0 * 1000 + 200, dur=0, args={**host, 'num_events': 5, 'cfg': {'time_metric': 'NS'}})]


def test_the_newest_format_is_read(analyze, tmp_path):
    path = write(tmp_path / 'a.pfw.gz', *newest())
    result = analyze('info', path, format='text')
    assert 'add up several calls of application-level functions' in result.err
    row, = analyze('info', path)['rows']
    assert row['events'] == {'metadata': 7, 'dftracer': 2, 'epoch': 1, 'CPP_APP': 1, 'POSIX': 2, 'MPI': 1, 'sys': 1, 'app': 1}
    assert (row['rank'], row['host'], row['command'], row['directory']) == (3, 'node7', 'train.py', '/work')
    assert row['complete'] and row['duration_us'] == 0.2 and row['counted'] == {'aggregated_stage': 1} and not row['lost']
    assert {r['stage'] for r in analyze('stages', path)['rows'] if r['calls']} == {'train', 'work'}


def test_a_trace_without_its_end_is_not_complete(analyze, tmp_path):
    path = write(tmp_path / 'a.pfw', *newest()[:-1])
    result = analyze('info', path, format='text')
    assert 'has no end event' in result.err
    assert not analyze('info', path)['rows'][0]['complete']


BAD = {
    'cut in a line': (lambda lines: b'\n'.join(lines)[:-9], 3, 3, r'ends early, in line 4: the first 3 events were read'),
    'torn line': (lambda lines: b'\n'.join([lines[0], lines[1][:40], *lines[2:]]), 3, 3, r'1 lines are not valid.*line 2$'),
    'two torn lines': (lambda lines: b'\n'.join([lines[0][:9], lines[1], lines[2][:-1], lines[3]]), 2, 3, r'2 lines.*line 1$'),
    'open string': (lambda lines: b'\n'.join([lines[0], b'{"name":"a', *lines[2:]]), 3, 3, r'1 lines'),
    'open brackets': (lambda lines: b'\n'.join([lines[0], b'{"name":[[[[{', *lines[2:]]), 3, 3, r'1 lines'),
    'text between': (lambda lines: b'\n'.join([lines[0], b'I/O error', *lines[1:]]), 4, 3, r'1 lines.*line 2$'),
    'no events': (lambda lines: b'[\n]\n', 0, 0, r'contains no events'),
    'no dur': (lambda lines: b'\n'.join(lines).replace(b'"dur":20,', b''), 3, 3, r'1 events have no duration'),
    'no ts': (lambda lines: b'\n'.join(lines).replace(b'"ts"', b'"tx"', 1), 3, 3, r'1 events have no time'),
    'negative dur': (lambda lines: b'\n'.join(lines).replace(b'"dur":20,', b'"dur":-20,'), 3, 3, r'1 events have a negative duration'),
    'huge ts': (lambda lines: b'\n'.join(lines).replace(b'"ts":1700000000000010', b'"ts":9200000000000000000'), 3, 3, r'outside the range'),
    'nothing but text': (lambda lines: b'hello\nworld\n', None, 1, r'is not a dftracer trace: none of its lines is an event'),
    'empty': (lambda lines: b'', None, 1, r'is not a dftracer trace: it is empty'),
}


@pytest.mark.parametrize('damage', BAD)
def test_damage_is_counted_and_named(analyze, tmp_path, damage):
    """The valid part is read; stderr has the file, what is wrong and where."""
    change, events, rc, says = BAD[damage]
    path = tmp_path / 'a.pfw'
    path.write_bytes(change([json.dumps(e, separators=(',', ':')).encode() for e in one_of_each()]))
    result = analyze('info', path, format='text', rc=rc)
    assert re.search(says, result.err, re.M) and str(path) in result.err
    if events is not None:
        row, = analyze('info', path, rc=rc)['rows']
        assert sum(row['events'].values()) == events and row['complete'] == (rc == 0 or 'events have' in says or 'range' in says)


def test_a_damaged_gzip_file_gives_its_valid_part(analyze, shared_traces, tmp_path):
    data = (shared_traces / 'dftracer' / 'cm1' / 'cm1-DEFAULT-3537781-preload.pfw.gz').read_bytes()
    path = tmp_path / 'a.pfw.gz'
    path.write_bytes(data[:len(data) // 2])
    row, = analyze('info', path, rc=3)['rows']
    assert 0 < sum(row['events'].values()) < 6574 and not row['complete'] and row['lost'] == {'cut': 1}


def test_hostile_texts_stay_harmless(analyze, tmp_path):
    """Escapes, zeros and terminal codes in names, hosts and facts."""
    path = write(tmp_path / 'a.pfw', event('\x1b]0;x\x07\u0000"\n', 'app', args={'hostname': '\x1b[2J'}), meta('CM', '\x1b[1m', '\x1b[0m\u0000'),
                 event('\ud800', 'a\x1b', T0 + 1))
    for command in ('info', 'stages'):
        result = analyze(command, path, format='text')
        assert '\x1b' not in result.out + result.err and '\x07' not in result.out


# dftracer-utils 0.0.14 on cm1: dftracer_validate (lines), dftracer_stats (events by category, time span), dftracer_event_count
# (0.0.12 gives the same number), dftracer_view --group-by name --agg count,sum:dur, and --agg sum:ret. It reads neither
# test.pfw nor thread ids that are strings.
UTILS_LINES, UTILS_EVENTS, UTILS_SPAN_US = 54822, 49268, 145348226
UTILS_CATEGORIES = {'POSIX': 40492, 'STDIO': 8760, 'dftracer': 16}
UTILS_VIEW = {'open': (3883, 1970463), 'read': (2249, 57804), 'write': (19313, 994332), '__xstat': (8175, 1559081), 'fread': (64, 4555)}


def test_figures_equal_those_of_dftracer_utils(analyze, shared_traces):
    """Lines, events, time span, calls and times of functions of the eight ranks equal those that dftracer's tools give."""
    rows = analyze('info', shared_traces / 'dftracer' / 'cm1')['rows']
    total = sum((Counter(r['events']) for r in rows), Counter())
    assert total.total() == UTILS_LINES and total.total() - total['metadata'] == UTILS_EVENTS
    assert {k: total[k] for k in UTILS_CATEGORIES} == UTILS_CATEGORIES
    calls, times = Counter(), Counter()
    events = analyze('dump', shared_traces / 'dftracer' / 'cm1')['rows']
    for e in events:
        calls[e['values']['name']] += 1
        times[e['values']['name']] += e['values'].get('dur_us', 0)
    assert {name: (calls[name], times[name]) for name in UTILS_VIEW} == UTILS_VIEW
    timed = [e for e in events if e['time_us'] is not None]
    assert max(e['time_us'] + e['values']['dur_us'] for e in timed) == UTILS_SPAN_US
