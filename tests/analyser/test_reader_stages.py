"""test_reader_stages - `tfanalyze stages` on random traces, against the slow answers of tests/random_traces.py."""

import csv
import io
import re
from fractions import Fraction

import pytest

import kineto
import random_traces
import tfr
from small_traces import clock_chunk, simple, staged_trace
from tfr import NESTED, STAGE, Writer, rec

NS = 0.0011  # microseconds: rounding of two nanoseconds at most, plus the error of a double


def oracle_rows(traces, window=None):
    """{(rank, stage): [calls, host, self, hosts, selves]} and {rank: (first, last)} of (writer, clock) pairs."""
    rows, spans = {}, {}
    for w, clock in traces:
        first, last = random_traces.span(w.records, clock)
        rank = w.info['rank']
        old = spans.get(rank, (first, last))
        spans[rank] = min(old[0], first), max(old[1], last)
        for name, values in random_traces.stages(random_traces.ranges(w.records, clock, last), window).items():
            row = rows.setdefault((rank, tfr.name_of(w.strings, name)), [0, 0, 0, [], []])
            for i, value in enumerate(values):
                row[i] += value
    return rows, spans


def check_stages(answer, rows, spans, exclusive=False):
    got = {(r['rank'], r['stage']): r for r in answer['rows']}
    assert len(got) == len(answer['rows']) and set(got) == set(rows)
    for key, (calls, host, own, each, own_each) in rows.items():
        r, tolerance = got[key], NS * (2 * calls + 1)
        assert r['calls'] == calls
        assert abs(r['self_us'] - float(own) / 1000) <= tolerance, key
        one = sorted(own_each if exclusive else each)
        for share, name in ((0, 'min_us'), (0.5, 'median_us'), (0.95, 'p95_us'), (1, 'max_us')):
            assert abs(r[name] - float(kineto.quantile(one, Fraction(share).limit_denominator(100))) / 1000) <= tolerance, (key, name)
        wanted = own if exclusive else host
        assert abs(r['host_us'] - float(wanted) / 1000) <= tolerance, key
        assert r['wall_us'] == r['host_us'] and r['device_us'] is None and r['peak_allocated_bytes'] is None
        first, last = spans[key[0]]
        assert abs(r['pct'] - 100 * float(wanted) / float(last - first)) < 0.01
    for a, b in zip(answer['rows'], answer['rows'][1:]):
        assert (a['rank'], -a['host_us']) <= (b['rank'], -b['host_us'])


@pytest.mark.parametrize('seed', range(25))
def test_stages_equal_the_oracle(tmp_path, analyze, seed):
    """Nesting, recursion, crossing and unfinished ranges, and several processes of a rank give the oracle's answer."""
    traces = [staged_trace(tmp_path / f'rank{r}.h.{i}.tfr', seed * 10 + i, r) for i, r in enumerate([0, 1, 1])]
    rows, spans = oracle_rows(traces)
    check_stages(analyze('stages', tmp_path, '-j', 1 + seed % 3), rows, spans)
    check_stages(analyze('stages', '--exclusive', tmp_path), rows, spans, exclusive=True)


@pytest.mark.parametrize('seed', range(8))
def test_stages_in_a_window(tmp_path, analyze, seed):
    trace = staged_trace(tmp_path / 'rank0.h.1.tfr', seed, 0)
    first, last = random_traces.span(trace[0].records, trace[1])
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
    """Recursion counts once, self time excludes children, and a started range that outlives its parent is clipped."""
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
    assert {r['stage']: r['parent'] for r in analyze('stages', tmp_path)['rows']} == {'outer': None, 'inner': 'outer', 'upload': 'outer'}
    alone = analyze('stages', '--stage', 'in*', tmp_path)['rows'][0]
    assert (alone['stage'], alone['parent']) == ('inner', None)  # the stage around it is not among the chosen ones
    assert len(analyze('stages', '--top', 1, tmp_path)['rows']) == 1


def test_stages_text_and_csv(tmp_path, analyze):
    simple(tmp_path / 'a.tfr', rank=4)
    text = analyze('stages', tmp_path, format='text').out.splitlines()
    assert re.split(r'  +', text[0]) == ['stage', 'rank', 'calls', 'median', 'p95', 'min', 'max', 'host', 'wall', 'self', 'done', 'pct']
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
    """The stage's end may be among the lost records, so the stage must not last as long as the process."""
    w = Writer()
    clock_chunk(w, [(0, 0, 10 ** 18)])
    w.chunk([rec('range_begin', name=w.string('open'), time=1000, id=1, flags=NESTED | STAGE),
             rec('mark', name=w.string('last'), time=5000)], thread=1)
    w.chunk([rec('mark', name=w.string('other'), time=90000)], thread=2)
    w.footer(**{'drop.CAP': 3})
    answer = analyze('stages', w.save(tmp_path / 'a.tfr'), rc=3)
    assert answer['rows'][0]['host_us'] == 4.0 and answer['totals']['unfinished'] == 1


def test_a_stage_whose_end_is_lost_has_no_time_if_a_later_one_shows_that_it_ended(tmp_path, analyze):
    """As in a trace whose details end in the middle of a step and go on much later."""
    w = Writer()
    clock_chunk(w, [(0, 0, 10 ** 18)])
    request, step, load = (w.string(name) for name in ('request', 'step', 'load'))
    begins = [rec('range_begin', name=name, time=time, id=number, flags=NESTED | STAGE, depth=depth)
              for number, (name, time, depth) in enumerate([(request, 1000, 0), (step, 2000, 1), (step, 11000, 1), (load, 12000, 2),
                                                            (step, 90000, 1)])]
    w.chunk([*begins[:2], tfr.end_of(begins[1], 10000, 1), *begins[2:], tfr.end_of(begins[4], 96000, 1),
             rec('mark', name=w.string('last'), time=99000)], thread=1)
    w.footer(**{'drop.CAP': 3})
    answer = analyze('stages', w.save(tmp_path / 'a.tfr'), rc=3)
    rows = {r['stage']: (r['calls'], r['host_us'], r['max_us']) for r in answer['rows']}
    assert rows == {'request': (1, 98.0, 98.0), 'step': (2, 14.0, 8.0)}
    assert answer['totals']['unfinished'] == 3  # request, which is open, and a step and its load
    assert analyze('stages', tmp_path, '--stage', 'step', rc=3)['totals']['unfinished'] == 1
    assert analyze('stages', tmp_path, '--to', 0.000005, rc=3)['totals']['unfinished'] == 1


def test_a_rank_learnt_later_wins_and_a_given_one_wins_over_all(tmp_path, analyze):
    w = simple(tmp_path / 'a.tfr', rank=0, footer=False)
    w.chunk([rec('rank', rank=5, world=8, source=w.string('c10d'), time=9)], thread=1)
    w.footer()
    path = w.save(tmp_path / 'a.tfr')
    assert analyze('info', path)['rows'][0]['rank'] == 5
    assert analyze('info', f'rank=7:{path}')['rows'][0]['rank'] == 7
    assert {r['rank'] for r in analyze('stages', f'rank=7:{tmp_path}')['rows']} == {7}
