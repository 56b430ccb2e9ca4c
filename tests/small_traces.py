"""small_traces - small .tfr traces, written by tests/tfr.py, that several tests of the reader share."""

import json
import os

import random_traces
import tfr
from tfr import NESTED, STAGE, Writer, rec


def clock_chunk(w, points, **chunk):
    return w.chunk([c for p in points for c in tfr.clocks(*p)], **chunk)


def simple(path, stages=3, rank=0, footer=True, **writer):
    """A whole trace with a few stages of 1 ms each, one after the other, the first 10 ms after the first record."""
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


def staged_trace(path, seed, rank, **options):
    """A trace of random stages with its own counter rate and start; returns the writer and the clock."""
    rng = random_traces.generator(seed)
    w = Writer(rank=rank, pid=1000 + seed, clock='tsc', **options)
    rate = rng.choice([0.31, 0.5, 1.0, 2.7])
    real, mono = 1_700_000_000_000_000_000 + rng.randrange(10 ** 7), rng.randrange(10 ** 14)
    points = [(t, mono + int(t * rate), real + int(t * rate)) for t in (9_000_000, 9_500_000, 11_000_000, 60_000_000)]
    clock_chunk(w, points[:2], thread=1, form='rows')
    for thread, records in random_traces.random_stages(rng, w, threads=rng.choice([1, 3])).items():
        half = len(records) // 2
        w.chunk(records[:half], thread=thread, tid=thread + 50, form=rng.choice(['rows', 'columns']))
        w.chunk(records[half:], thread=thread, tid=thread + 50)
    clock_chunk(w, points[2:], deflate=False)
    w.footer()
    w.save(path)
    return w, tfr.Clock(w.records)


def live_pair(directory, dead=True, boot='00000000-0000-0000-0000-000000000000', quiet=True, host='elsewhere', **options):
    """A trace of four chunks, the last two still in the live file; returns writer, live chunks and both paths."""
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


def export(analyze, *arguments, rc=0):
    result = analyze('export', 'chrome', *arguments, rc=rc, format=None)
    return json.loads(result.out) if rc != 1 else result
