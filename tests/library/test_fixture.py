"""test_fixture - traces of the format's first version still give the right answers, and so do traces made today.

tests/victims/fixture.c logs everything it does, each action between two clock readings. tests/data/v1 holds such logs
and their traces by the library's first version; the tests ask the same of a run of today.
"""

import json
import lzma
import os
import shutil
from collections import Counter, defaultdict
from types import SimpleNamespace

import pytest

from conftest import ROOT
from tfr import BLOCK, CHUNK, DEFLATED, NESTED, ROWS, STAGE, read

V1 = ROOT / 'tests' / 'data' / 'v1'
SLACK_NS = 2000  # the reader's interpolation between two clock readings
ENDS = ['whole', 'killed']
BOTH = [f'{made}-{end}' for made in ('v1', 'now') for end in ENDS]


def read_log(path):
    log = SimpleNamespace(entries=json.loads(path.read_text()))
    log.of = lambda *kinds: [e for e in log.entries if e['kind'] in kinds]
    log.pid = log.of('process')[0]['pid']
    log.killed = log.of('end')[0]['reason'] == 'killed'
    log.last = max(e['between'][1] for e in log.entries if 'between' in e)
    return log


@pytest.fixture
def traces(run, victim, tmp_path):
    """traces('v1-killed') or ('now-whole'): the .tfr, a killed process's .live beside it, the program's log."""
    def traces(which):
        made, end = which.split('-')
        if made == 'now':
            result = run([victim('fixture'), tmp_path / 'log', end], {'TFI_METADATA': 'made=now'}, preload='test')
            assert (result.rc, result.err) == (-9 if end == 'killed' else 0, '')
            trace, = result.dir.glob('*.tfr')
            return trace, read_log(tmp_path / 'log')
        trace = tmp_path / 'kept.tfr'
        shutil.copy(V1 / f'{end}.tfr', trace)
        os.utime(trace, (1, 1))
        if end == 'killed':
            live = tmp_path / 'kept.tfr.live'
            live.write_bytes(lzma.decompress((V1 / 'killed.tfr.live.xz').read_bytes()))
            os.utime(live, (1, 1))  # unchanged for a long time, so its process is gone
        return trace, read_log(V1 / f'{end}.json')
    return traces


def by_thread(rows, kind):
    found = defaultdict(list)
    for row in rows:
        if row['kind'] == kind:
            found[row['tid']].append(row)
    return found


def inside(ns, between):
    assert between[0] - SLACK_NS <= ns <= between[1] + SLACK_NS, (ns, between)


def lasts(us, begun, ended):
    assert ended[0] - begun[1] - SLACK_NS <= us * 1000 <= ended[1] - begun[0] + SLACK_NS, (us, begun, ended)


def plain(values):
    """Arguments in the log's form: without units, hexadecimal ones as numbers, addresses left out."""
    numbers = {k.removesuffix('_bytes'): int(v, 0) if isinstance(v, str) else v for k, v in values.items()}
    return {k: v for k, v in numbers.items() if k not in ('c', 'd')}


def check_record(row, entry, start, tid_of):
    values, ns = row['values'], start + row['time_us'] * 1000
    inside(ns, entry['between'])
    if row['kind'] == 'call':
        assert (values['func'], values['result'], values['error']) == (entry['name'], entry['result'], entry['error'])
        assert plain(values['args']) == entry['args']
        inside(ns + values['duration_us'] * 1000, entry['between'])
        return
    assert (values['name'], values['domain'] or '') == (entry['name'], entry['domain'])
    if row['kind'] != 'mark':
        nested = entry['depth'] >= 0
        assert int(values['flags'], 0) & 0xff == STAGE + NESTED * nested and values['depth'] == max(entry['depth'], 0)
    if row['kind'] == 'range_end':
        lasts(values['duration_us'], entry['begun'], entry['between'])
        assert tid_of[values['thread']] == entry['opener']
    else:
        assert (values['category'], int(values['color'], 0)) == (entry['category'], entry['color'])
        assert (values['payload'] or 0) == entry['payload']


@pytest.mark.parametrize('which', BOTH)
def test_dump(traces, analyze, which):
    """Every record of a thread is there in order, with every column whose value the program knows."""
    trace, log = traces(which)
    rows = analyze('dump', trace)['rows']
    start = next(r['values']['value'] - r['time_us'] * 1000 for r in rows
                 if r['kind'] == 'clock' and r['values']['clock'] == 'realtime')
    tid_of = {r['values']['serial']: r['tid'] for r in rows if r['kind'] == 'thread'}
    assert set(tid_of.values()) == {e['tid'] for e in log.of('thread')}
    for kind in ('range_begin', 'range_end', 'mark', 'call'):
        found, expected = by_thread(rows, kind), by_thread(log.entries, kind)
        assert {t: len(r) for t, r in found.items()} == {t: len(r) for t, r in expected.items()}
        for tid in expected:
            for row, entry in zip(found[tid], expected[tid]):
                check_record(row, entry, start, tid_of)
    assert [(r['values']['domain'] or '', r['values']['category'], r['values']['name']) for r in rows
            if r['kind'] == 'category'] == [(e['domain'], e['category'], e['name']) for e in log.of('category')]
    assert any(r['live'] for r in rows) == log.killed


@pytest.mark.parametrize('which', BOTH)
def test_info(traces, analyze, which):
    trace, log = traces(which)
    row, = analyze('info', trace)['rows']
    assert (row['pid'], row['ended'], row['complete']) == (log.pid, 'killed' if log.killed else 'exit', not log.killed)
    counts = Counter(e['kind'] for e in log.entries)
    kinds = ('range_begin', 'range_end', 'mark', 'call', 'category', 'thread')
    assert {k: row['events'][k] for k in kinds} == {k: counts[k] for k in kinds}
    assert (row['lost'], row['counted'], row['events']['thread_name']) == ({}, {'unmatched': counts['unmatched']}, 1)
    assert row['metadata'] == {'made': which.split('-')[0]}
    if which.startswith('v1'):
        known = {'rank': 3, 'world': 8, 'host': 'demo', 'directory': '/srv/demo', 'version': '0.1.0', 'clock': 'tsc',
                 'command': f'./fixture {which[3:]}.json {which[3:]}'}
        assert {k: row[k] for k in known} == known


def host_times(log):
    """{stage: [least, most] host time of its calls}, in ns, with recursion counted once."""
    ends = [(e['opener'], e['name'], e['begun'], e['between']) for e in log.of('range_end')]
    met = Counter((e['opener'], e['name']) for e in log.of('range_end'))
    times = defaultdict(lambda: [0, 0])
    for begin in log.of('range_begin'):
        key = begin['tid'], begin['name']
        if met[key] == 0:  # open when the process was killed: up to the last record
            times[begin['name']][1] += log.last - begin['between'][0]
    until = {}
    for tid, name, begun, ended in sorted(ends, key=lambda e: e[2]):
        if begun[0] < until.get((tid, name), 0):
            continue
        until[tid, name] = ended[0]
        times[name][0] += ended[0] - begun[1]
        times[name][1] += ended[1] - begun[0]
    return times


@pytest.mark.parametrize('which', BOTH)
def test_stages(traces, analyze, which):
    trace, log = traces(which)
    answer = analyze('stages', trace)
    rows = {r['stage']: r for r in answer['rows']}
    assert {n: r['calls'] for n, r in rows.items()} == Counter(e['name'] for e in log.of('range_begin'))
    for name, (least, most) in host_times(log).items():
        assert least - SLACK_NS <= rows[name]['host_us'] * 1000 <= most + SLACK_NS, name
    assert answer['totals']['unfinished'] == len(log.of('range_begin')) - len(log.of('range_end'))


@pytest.mark.parametrize('which', BOTH)
def test_export_chrome(traces, analyze, which):
    trace, log = traces(which)
    chrome = json.loads(analyze('export', 'chrome', trace, format=None).out)
    events = [e for e in chrome['traceEvents'] if e['ph'] in 'Xbi']
    names = {e['tid']: e['args']['name'] for e in chrome['traceEvents'] if e['name'] == 'thread_name'}
    assert {e['tid']: e['name'] for e in log.of('thread')}.items() <= names.items()
    category = {(e['domain'], e['category']): e['name'] for e in log.of('category')}
    waiting = defaultdict(list)
    for event in sorted(events, key=lambda e: -e['ts']):
        waiting[event['name'], event['tid']].append(event)
    entries = log.of('range_begin', 'mark', 'call')
    assert len(events) == len(entries)
    for entry in entries:
        event = waiting[entry['name'], entry['tid']].pop()
        args = event['args']
        inside(chrome['baseTimeNanoseconds'] + event['ts'] * 1000, entry['between'])
        if entry['kind'] == 'call':
            errno = {'errno': entry['error']} if entry['error'] else {}
            assert plain(args) == {'result': entry['result'], **errno, **entry['args']}
            continue
        assert (event['ph'] == 'i') == (entry['kind'] == 'mark')
        assert args.get('domain', '') == entry['domain'] and args.get('payload', 0) == entry['payload']
        assert args.get('category') == category.get((entry['domain'], entry['category']))
        assert int(args.get('color', '#0')[1:], 16) == entry['color']


def test_timing_json(traces):
    """The library's own timing.json equals the program's log."""
    trace, log = traces('now-whole')
    timing = json.loads(trace.with_suffix('.timing.json').read_text())
    assert (timing['pid'], set(timing['stages'])) == (log.pid, {e['name'] for e in log.of('range_begin')})
    counts = Counter(e['name'] for e in log.of('range_begin'))
    for name, (least, most) in host_times(log).items():
        assert timing['stages'][name]['calls'] == counts[name]
        assert least - SLACK_NS <= timing['stages'][name]['host_ms'] * 1e6 <= most + SLACK_NS, name


@pytest.mark.parametrize('which', ['v1-killed', 'now-killed'])
def test_a_trace_without_its_live_file(traces, analyze, which):
    """The .tfr of a killed process is complete in itself: names and functions stand before their first use."""
    trace, log = traces(which)
    trace.with_suffix('.tfr.live').unlink()
    rows = analyze('dump', trace, rc=3)['rows']
    worker, = (e['tid'] for e in log.of('thread') if e['name'] == 'worker')
    for kind in ('range_begin', 'range_end', 'call'):
        found, expected = by_thread(rows, kind), by_thread(log.entries, kind)
        key = 'func' if kind == 'call' else 'name'
        assert [r['values'][key] for r in found[worker]] == [e['name'] for e in expected[worker]]
    assert analyze('info', trace, rc=3)['rows'][0]['complete'] is False


def test_no_room_for_a_live_file(run, victim, analyze, tmp_path):
    """A file size limit with room for the trace only gives one message, and no record is lost."""
    limited = ['bash', '-c', 'ulimit -f 1024; exec "$0" "$@"', victim('fixture'), tmp_path / 'log', 'whole']
    result = run(limited, preload='test')
    assert result.rc == 0 and len(result.err.splitlines()) == 1 and 'SIGKILL would lose' in result.err
    row, = analyze('info', result.dir)['rows']
    assert row['complete'] and row['events']['call'] == len(read_log(tmp_path / 'log').of('call'))


@pytest.mark.parametrize('end', ENDS)
def test_the_kept_traces_are_of_both_forms(end):
    """The kept traces have rows and packed columns, by the format's reader in Python, and version 1.0."""
    data = (V1 / f'{end}.tfr').read_bytes()
    assert data[:12] == b'TFITRACE\x01\x00\x00\x00'
    live = lzma.decompress((V1 / 'killed.tfr.live.xz').read_bytes()) if end == 'killed' else None
    kept, log = read(data, live), read_log(V1 / f'{end}.json')
    assert (kept.bad, kept.complete) == ([], not log.killed)
    assert sum(r.kind == 'call' for r in kept.records) == len(log.of('call'))
    forms, at = set(), 16
    while at < len(data):
        _, type, flags, _, _, _, stored, *_ = BLOCK.unpack_from(data, at)
        forms.update({flags} if type == CHUNK else ())
        at += 48 + (stored + 7) // 8 * 8
    assert forms == ({DEFLATED, ROWS} if end == 'whole' else {DEFLATED})
