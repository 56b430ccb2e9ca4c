"""test_export_samples - sampled stacks are a row of each export: each frame has the time of the samples that it was in."""

import gzip
import json
import random
from collections import Counter

import pytest

import pftrace
from small_traces import clock_chunk
from tfr import NESTED, STAGE, Writer, end_of, rec

MS, FUTEX = 10 ** 6, 202 + 1
ROW = 1 << 24  # the row of samples of thread N is ROW + N


def traced(path, seed):
    """Looks of two threads, with a hole. Returns {(stage, thread, text of a frame): [ns, samples]}."""
    w, chance, truth = Writer(pid=7), random.Random(seed), Counter()
    clock_chunk(w, [(0, 0, 10 ** 18)])
    records = [rec('thread', serial=i, tid=tid, name=w.string(f'thread {tid}'), time=0) for i, tid in ((1, 7), (2, 8))]
    for i, stage in enumerate(('load', 'decode')):
        begin = rec('range_begin', name=w.string(stage), time=(100 * i + 1) * MS, id=i + 1, flags=NESTED | STAGE)
        records += [begin, end_of(begin, (100 * i + 101) * MS, 1)]
    for i in range(40):
        tid, number = (7, 8)[i % 2], i // 2
        frames = [(f'f{depth}_{chance.randrange(2)}', '/job/run.py', 10 + depth) for depth in range(chance.randrange(1, 5))]
        call, looks = chance.choice(((0, 1), (FUTEX, 3)))
        if number == 13:
            continue
        records.append(rec('sample', tid=tid, time=(10 * number + 1) * MS, duration=10 * MS, cpu=MS, call=call, looks=looks,
                           stack=w.stack(*reversed(frames))))
        for name, file, line in frames:
            for stage in (None, ('load', 'decode')[number >= 10]):  # a thread without stages is in those of others
                truth[stage, tid, f'{file}({line}): {name}', 'ns'] += 10 * MS
                truth[stage, tid, f'{file}({line}): {name}', 'samples'] += looks
    w.chunk(sorted(records, key=lambda r: r.values['time']), thread=1, tid=7)
    w.footer()
    w.save(path / 'rank0.h.7.tfr')
    return truth


def chosen(truth, stage):
    return {key[1:]: value for key, value in truth.items() if key[0] == stage}


def summed(events):
    """{(thread, text, 'ns' or 'samples'): sum} of (row, text, start, duration, samples); the boxes of a row nest."""
    found, ends = Counter(), {}
    for row, text, start, duration, samples in sorted(events, key=lambda e: (e[0], e[2], -e[3])):
        stack = ends.setdefault(row, [])
        while stack and stack[-1] <= start:
            stack.pop()
        assert not stack or start + duration <= stack[-1]
        stack.append(start + duration)
        found[row - ROW, text, 'ns'] += duration
        found[row - ROW, text, 'samples'] += samples
    return dict(found)


def of_json(events):
    return summed([(e['tid'], e['name'], round(e['ts'] * 1000), round(e['dur'] * 1000), e['args']['samples'])
                   for e in events if e.get('cat') == 'python_sample'])


@pytest.mark.parametrize('seed', range(3))
@pytest.mark.parametrize('stage', [None, 'decode'])
def test_the_row_of_samples(analyze, tmp_path, seed, stage):
    truth = chosen(traced(tmp_path, seed), stage)
    assert truth
    filters = ['--stage', stage] if stage else []
    analyze('export', 'chrome', tmp_path, *filters, '--output', tmp_path / 'out.json', format=None)
    events = json.loads((tmp_path / 'out.json').read_text())['traceEvents']
    assert of_json(events) == truth
    assert {e['args']['name'] for e in events if e['name'] == 'thread_name' and e['tid'] >= ROW} == {f'samples of thread {key[0]}' for key in truth}
    waits = {e['args'].get('waits in') for e in events if e.get('cat') == 'python_sample'}
    assert waits == {None, 'futex'}
    analyze('export', 'tensorboard', tmp_path, *filters, '--output', tmp_path / 'board', format=None)
    board, = (tmp_path / 'board').rglob('*.pt.trace.json.gz')
    assert of_json(json.loads(gzip.decompress(board.read_bytes()))['traceEvents']) == truth
    analyze('export', 'pfw', tmp_path, *filters, '--output', tmp_path / 'out.pfw', format=None)
    lines = [json.loads(line) for line in (tmp_path / 'out.pfw').read_text().split('\n')[1:-2]]
    found = Counter()
    for e in lines:
        if e['cat'] == 'python_sample':
            found[e['tid'] - ROW, e['name']] += e['args']['samples']
    assert found == {key[:2]: value for key, value in truth.items() if key[2] == 'samples'}


@pytest.mark.parametrize('stage', [None, 'decode'])
def test_the_track_of_perfetto(analyze, tmp_path, stage):
    truth = chosen(traced(tmp_path, 5), stage)
    analyze('export', 'pftrace', tmp_path, *(['--stage', stage] if stage else []), '--output', tmp_path / 'out.pftrace', format=None)
    slices = [s for s in pftrace.read(tmp_path / 'out.pftrace').slices if s.category == 'python_sample']
    assert summed([(s.track.thread.tid, s.name, s.start, s.end - s.start, s.args['samples']) for s in slices]) == truth
