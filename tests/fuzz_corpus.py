"""fuzz_corpus - the seeds of tests/fuzz/tfr.c: small traces of every shape, written into a directory.

A seed is a .tfr, a .live, or a .tfr followed by a .live at a multiple of eight bytes. None is committed: they are made
of tests/data/v1 and written by tests/tfr.py. By hand:

    python tests/fuzz_corpus.py DIRECTORY                  writes the seeds
    python tests/fuzz_corpus.py --split INPUT DIRECTORY    turns an input that libFuzzer found into files for tfanalyze
"""

import lzma
import sys
import tempfile
from pathlib import Path

from conftest import ROOT

import random_traces
import small_traces
import tfr
from optrace import NATIVE, OpTrace
from test_execution_bad import INT, KEYWORD, KNOWN, LIST, SIZES, STORAGE, STRIDES, STRING, TENSOR, pair, trace
from test_signature_files import Run, tensor
from tfr import STAGE, rec

DATA = ROOT / 'tests' / 'data' / 'v1'
MS = 1_000_000


def both(trace, live=b''):
    return trace + bytes(-len(trace) % 8) + live


def tight(data):
    """The .live without slots and with no gaps between its regions."""
    head = list(tfr.LIVE_HEAD.unpack_from(data))
    size, used = tfr.LIVE_HEAD.size + 8 * 64, 21
    regions, place = [], size
    for i in range(6):
        offset, length = head[5 + 2 * i], head[6 + 2 * i]
        length = 0 if i == 2 else min(length, head[used]) if i == 3 else length
        regions.append(data[offset:offset + length] + bytes(-length % 8))
        head[5 + 2 * i], head[6 + 2 * i] = place, length
        place += len(regions[-1])
    head[4] = place
    return tfr.LIVE_HEAD.pack(*head) + data[tfr.LIVE_HEAD.size:size] + b''.join(regions)


def small_live(data):
    """The .live without its free chunks, because 16 MB of zeros are no seed."""
    live = tfr.read_live(data)
    w = tfr.Writer(head=False, kinds=live.kinds)
    w.info = live.info
    chunks = [dict(rows=c.rows, serial=c.serial, thread=c.thread, tid=c.tid) for c in live.chunks]
    room = max(len(c.rows) for c in live.chunks) + 64 + 7 & ~7
    return tight(tfr.pack_live(w, chunks, small=room, large=room, slots=1, strings=sorted(live.strings.items()), serial=live.serial))


def tiny_live(w, chunks):
    return tight(tfr.pack_live(w, chunks, small=1024, large=4096, slots=1))


def operators():
    """Operators with shapes, stacks and kernels, backward operators, allocations, coroutines, metadata, a schedule."""
    t = OpTrace()
    t.device(0, 'A', simulated=1)
    t.said('model', 'wan')
    t.recording(0, 1), t.recording(2 * MS, 2, cycle=1, step=1)
    t.stage('denoise', MS, 30 * MS)
    t.stage('ProfilerStep#1', MS, 20 * MS)
    t.op('aten::mm', 2 * MS, 4 * MS, sequence=1, shapes=[[2, 3], [3, 4]], types=['float', 'float'], concrete=['', ''],
         strides=[[3, 1], [4, 1]], flops=48, frames=[('f', 'a.py', 1), ('main', 'b.py', 2)])
    t.op('MmBackward0', 5 * MS, 7 * MS, thread=2, sequence=1, forward=1, scope=1)
    t.op('torchfx_ext.filter', 8 * MS, 9 * MS, scope=NATIVE)
    t.work('kernel', 3 * MS, 4 * MS, MS, name='gemm')
    t.work('copy', 3 * MS, 6 * MS, MS, bytes=4096, direction=1)
    t.work('set', 3 * MS, 8 * MS, MS, bytes=4096)
    t.work('sync', 3 * MS, 9 * MS, MS)
    t.call('cudaLaunchKernel', 3 * MS, 1000)
    t.correlation(1, 'cudaLaunchKernel', 3 * MS, 900)
    t.block(3 * MS, 4096, 512, 512, 2048)
    t.block(10 * MS, 4096, -512, 0, 2048, frames=[('f', 'a.py', 1)])
    t.coroutine('agen', 11 * MS, [(11 * MS, 12 * MS, 1), (13 * MS, 14 * MS, 2)], 14 * MS)
    t.stage_memory(1, 20 * MS, 4096, 8192)
    for thread, records in t.later.items():
        t.w.chunk(records, thread=thread, tid=100 + thread)
    t.w.chunk(t.records, form='rows')
    t.w.footer()
    return bytes(t.w.data)


def executions(directory):
    """Records of functions with their inputs and outputs: tensors, lists, texts, numbers, a keyword, a backward operator."""
    tensor_words = [TENSOR | 1 << 8 | SIZES | STRIDES | STORAGE | 6 << 24, 64, 128, 2, 3, 2, 1]
    numbers = [LIST | 2 << 32, INT | KNOWN, 1, INT | KNOWN, 2]

    def records(w):
        text, named = [STRING | KNOWN, w.string('hello')], [KEYWORD | w.string('BLOCK') << 32, INT | KNOWN, 64]
        outer, outer_end = pair(w, 1, MS, tensor_words + numbers, tensor_words, name='aten::linear', end=9 * MS)
        inner, inner_end = pair(w, 2, 2 * MS, text + [INT], numbers, name='aten::mm', end=3 * MS)
        return [outer, inner, inner_end, outer_end, *pair(w, 3, 10 * MS, named, [], name='MmBackward0', thread=2, forward=1)]
    return trace(directory / 'executions.tfr', records).read_bytes()


def signatures(directory):
    run = Run(directory).rank()
    run.stage('denoise', {'': 'm:denoise', 'latents': tensor([1, 4, 8, 8]), 'prompt': 'a cat', 'kw': {'dict': {'a': [1, 2.5, None, True]}}},
              {'tuple': [tensor([1, 4, 8, 8]), {'type': 'm.N', 'fields': {'x': {'text': 'long', 'length': 5000}}}]},
              flags=0x800, memory=[(0, dict(allocated_peak=5, reserved_peak=6))])
    run.stage('flux', {'steps': 3}, [1], flags=0x8000)
    return run.save().path.read_bytes()


def causes(directory):
    """Faults found so far, each as the smallest trace that shows it."""
    for name, build in {'result-alone': lambda run: run.stage('denoise', None, [1], flags=0x800),
                        'zero-in-a-numbered-name': lambda run: run.stage('a\0long-name-that-is-allocated#12', None, '[1]'),
                        'zero-behind-arguments': lambda run: run.stage('denoise', '{"x": 1}\0', '[1]\0', flags=0x800, raw=True)}.items():
        build(run := Run(directory).rank())
        yield name, run.save().path.read_bytes()
    t = OpTrace()
    t.stage('denoise', MS, 30 * MS)
    for i in range(4):
        t.work('kernel', 3 * MS, 4 * MS + i, 4 * 10 ** 18, name='endless')
    t.w.chunk(t.records, form='rows')
    t.w.footer()
    yield 'endless-kernels', bytes(t.w.data)
    t = OpTrace()
    for i in range(3):  # the counter is past half of its range
        t.records.append(rec('range_end', name=t.w.string('a'), time=2 ** 63 + 10 ** 12 + i, duration=2 ** 63 - 1 + i, id=i + 1, flags=STAGE, thread=1))
    t.w.chunk(t.records, form='rows')
    t.w.footer()
    yield 'half-the-counter', bytes(t.w.data)
    t = OpTrace()
    t.coroutine('agen', MS, [(MS, 2 * MS, 1), (3 * MS, 4 * MS, 2), (5 * MS, 6 * MS, 1)], 6 * MS)
    for thread, records in t.later.items():
        for i, r in enumerate(records):  # every piece has another name
            r.values['name'] = t.w.string(f'piece {thread} {i}')
        t.w.chunk(records, thread=thread, tid=100 + thread)
    t.w.chunk(t.records, form='rows')
    t.w.footer()
    yield 'names-of-pieces', bytes(t.w.data)
    t = OpTrace()
    t.op('aten::mm', 2 * MS, 4 * MS, shapes='1\0', types='[1]\0', concrete='"a"\0\0', strides='\0')  # JSON up to a zero byte
    for thread, records in t.later.items():
        t.w.chunk(records, thread=thread, tid=100 + thread)
    t.w.footer()
    yield 'zero-behind-json', bytes(t.w.data)
    w = tfr.Writer(clock='tsc')
    records = [rec('clock', clock=tfr.MONOTONIC, ticks=2 ** 63, value=10 ** 9, error=10), rec('thread', serial=1, tid=100, time=1, name=w.string('main')),
               rec('range_begin', name=w.string('ages'), time=0, id=77, flags=STAGE),  # it ends with the process
               rec('kernel', start=39 * 10 ** 17, duration=4 * 10 ** 18, name=w.string('late'), stream=7, device=0, correlation=1)]
    w.chunk(records, thread=1, tid=100)
    w.footer()
    yield 'from-one-end-of-time-to-the-other', bytes(w.data)


def seeds():
    """{name: bytes}"""
    out = {'whole': (DATA / 'whole.tfr').read_bytes()}
    live = small_live(lzma.open(DATA / 'killed.tfr.live.xz').read())
    out['killed'] = both((DATA / 'killed.tfr').read_bytes(), live)
    out['live'] = live
    out['operators'] = operators()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        out['signatures'] = signatures(path)
        out['executions'] = executions(path)
        out.update(causes(path))
        small_traces.simple(path / 'simple.tfr')
        out['simple'] = (path / 'simple.tfr').read_bytes()
        small_traces.staged_trace(path / 'staged.tfr', 5, 1)
        out['staged'] = (path / 'staged.tfr').read_bytes()
    for seed in (1, 2, 3):
        out[f'everything{seed}'] = bytes(random_traces.everything(seed, chunks=3, records=12).data)
    w = random_traces.everything(7, chunks=2, records=8, footer=False)
    rows = [dict(records=random_traces.random_records(random_traces.generator(9), 5, w), serial=w.serial + 1 + i, thread=1, tid=100,
                 state=tfr.OPEN, large=True) for i in range(2)]
    out['open'] = both(bytes(w.data), tiny_live(w, rows))
    for kind in tfr.KINDS:
        w = tfr.Writer(kinds={k: v for k, v in tfr.KINDS.items() if k in (kind, 'clock', 'thread', 'range_begin', 'range_end')})
        small_traces.clock_chunk(w, [(0, 1_000_000_000, 1_700_000_000_000_000_000)])
        records = random_traces.random_records(random_traces.generator(kind), 6, w, kinds=[kind] if kind not in (
            'clock', 'rank', 'drop', 'thread', 'thread_name') else ['range_begin'])
        w.chunk(records, thread=1, tid=100, deflate=False)
        w.footer()
        out[f'kind-{kind}'] = bytes(w.data)
    return out


def write(directory):
    for name, data in seeds().items():
        (directory / name).write_bytes(data)


def split(data):
    """(.tfr, .live) of an input; either may be empty."""
    at = next((i for i in range(0, len(data) - 7, 8) if data[i:i + 8] == b'TFILIVE\0'), len(data))
    return data[:at], data[at:]


if __name__ == '__main__':
    if sys.argv[1] == '--split':
        parts = split(Path(sys.argv[2]).read_bytes())
        for part, end in zip(parts, ('.tfr', '.tfr.live')):
            if part:
                (Path(sys.argv[3]) / f'rank0.host.1{end}').write_bytes(part)
    else:
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        write(Path(sys.argv[1]))
