"""test_long_runs - long runs of a CPU: `ops` reads its records in order of time instead of holding them, with equal answers.

A node of a CUDA graph does not change the answer, but makes tfanalyze hold the records. So each trace is written twice, with
such a node and without one, and both answers must be the same, byte for byte.
"""

import json
import random
import re
import subprocess

import pytest

from optrace import BACKWARD, FUNCTION, OpTrace
from test_device_records import ticks
from tfr import NESTED, STAGE, rec

ASYNC = 0x20000

NAMES = ['aten::add', 'aten::add', 'aten::mul', 'aten::linear', 'aten::is_leaf', 'mylib::op', 'load']
SHAPES = [None, [[2, 3], []], [[4], [4]], []]
FRAMES = [(), (('f', 'a.py', 1), ('main', 'a.py', 9)), (('g', 'b.py', 2),)]


class LongTrace(OpTrace):
    """A trace of three threads, whose chunks are written as they fill."""

    def __init__(self, rng, grid, backward, names):
        super().__init__()
        self.rng, self.grid, self.backward, self.names, self.sequence = rng, grid, backward, names, 0

    def operators(self, thread, start, end, depth):
        """Writes operators that nest, follow each other, or now and then overlap."""
        rng, at = self.rng, start
        while at < end:
            stop = min(end, at + self.grid * rng.choice([0, 1, 1, 2, 5, 30, 200]))
            if depth < 6 and stop > at and rng.random() < 0.7:
                self.operators(thread, at, rng.choice([stop, max(at, stop - self.grid)]), depth + 1)
            late = self.grid if rng.random() < 0.05 else 0
            links = {}
            if self.backward and rng.random() < 0.3:
                self.sequence += rng.random() < 0.5
                back = rng.random() < 0.4
                links = {'sequence': max(0, self.sequence - back * rng.randrange(3)), 'scope': BACKWARD if back else FUNCTION,
                         'forward': rng.choice([1, 2]) if back else 0}
            self.op(rng.choice(self.names), at, stop + late, thread, shapes=rng.choice(SHAPES), flops=rng.choice([0, 0, 48]),
                    frames=rng.choice(FRAMES), **links)
            at = stop + self.grid * rng.choice([0, 0, 1, 3])
            if stop == at:
                at += self.grid

    def memory(self, last, count):
        rng, live, total = self.rng, {}, {}
        for _ in range(count):
            time, thread, device = self.grid * rng.randrange(last // self.grid + 1), rng.choice([1, 2, 3]), rng.choice([-1, -1, 0])
            address = 4096 * rng.randrange(12)
            size = live.pop((device, address), 0)
            size = -size if size and rng.random() < 0.9 else rng.choice([64, 512, 4096])
            if size > 0:
                live[device, address] = size
            total[device] = max(0, total.get(device, 0) + size)
            self.block(time, address, size, total[device], total[device] + 8192, device, thread, rng.choice(FRAMES))

    def refused(self, time, size, device):
        self.later_on(1, rec('oom', allocator=self.w.string('c10'), time=ticks(time), bytes=size, allocated=100, reserved=200,
                             device=device))

    def stages(self, last):
        rng = self.rng
        for _ in range(12):
            start = self.grid * rng.randrange(last // self.grid)
            self.ranges += 1
            end = start + self.grid * rng.choice([1, 10, 100])
            flags = STAGE | (NESTED if rng.random() < 0.8 else ASYNC)
            self.later_on(rng.choice([1, 2]), rec('range_end', name=self.w.string(rng.choice(['load', 'run', 'step'])), time=ticks(end),
                                                  duration=ticks(end - start), id=self.ranges, flags=flags, thread=rng.choice([1, 2])))

    def save(self, path, held, order, hurt=False):
        """Writes the threads' chunks between each other; `order` shuffles some, and chooses what is damaged and cut."""
        if held:
            self.records.append(rec('graph_node', time=ticks(5), node=1 << 32))
        self.w.chunk(self.records, thread=1, tid=101)
        chunks = []
        for thread, records in sorted(self.later.items()):
            records = sorted(records, key=lambda r: r.values['time'] + (r.values['duration'] if r.kind == 'op' else 0))
            at = 0
            while at < len(records):
                count = order.choice([1, 5, 40, 40, 90])
                chunks.append((records[at:at + count], thread))
                at += count
        chunks.sort(key=lambda chunk: chunk[0][-1].values['time'] + order.choice([0, 0, 0, 10 ** 6]))
        for records, thread in chunks:
            self.w.chunk(records, thread=thread, tid=100 + thread, form=order.choice(['columns', 'columns', 'rows']))
        self.w.footer()
        if hurt:
            blocks = self.w.blocks[8:]
            for block in order.sample(blocks, 3):
                self.w.data[(block.offset + block.end) // 2] ^= 0xff
            del self.w.data[order.choice(blocks[len(blocks) // 2:]).end - 9:]
        return self.w.save(path)


def written(path, seed, held, backward=False, grid=1000, last=3_000_000, hurt=False, names=NAMES):
    rng = random.Random(seed)
    t = LongTrace(rng, grid, backward, names)
    for thread in (1, 2, 3):
        t.operators(thread, grid * rng.randrange(5), last * 9 // 10, 0)
    t.memory(last, rng.choice([0, 30, 300]))
    t.stages(last)
    for _ in range(rng.choice([0, 3, 20])):
        t.refused(grid * rng.randrange(last // grid), 512, rng.choice([-1, 0]))
    t.call('cudaGetDevice', 3 * grid, 2 * grid, thread=2, kind='CONTEXT')
    return t.save(path, held, random.Random(seed + 1), hurt)


def answers(program, path, words):
    done = subprocess.run([program, *words, path], capture_output=True, text=True, check=False)
    out = done.stdout.replace(str(path), '')
    if '--format' in words and out:
        answer = json.loads(out)
        del answer['inputs']
        out = json.dumps(answer, indent=1)
    return done.returncode, out, re.sub(r'\d+', 'N', done.stderr.replace(str(path), ''))


OPS = [['ops'], ['ops', '--format', 'json'], ['ops', '--group-by', 'name,shapes,stack=2', '--format', 'json'],
       ['ops', '--sort-by', 'self_cpu_time_total', '--row-limit', '3'],
       ['ops', '--sort-by', 'cpu_memory_usage', '--group-by', 'name,shapes', '--format', 'json'],
       ['ops', '--stage', 'run', '--format', 'json'], ['ops', '--stage', '(none)', '--format', 'json'],
       ['ops', '--from', '0.0005', '--to', '0.0015', '--format', 'json'], ['ops', '--top', '2']]


def compare(directory, program, seed, questions, names=NAMES):
    """Asks all questions of a random trace; every fourth is damaged and cut."""
    shape = {'names': names, 'backward': seed % 3 == 2, 'grid': 1000 if seed % 2 else 997, 'hurt': seed % 4 == 3}
    swept = written(directory / 'swept.tfr', seed, held=False, **shape)
    held = written(directory / 'held.tfr', seed, held=True, **shape)
    for words in questions:
        got = answers(program, swept, words)
        assert got == answers(program, held, words), words
        assert got[0] in ((3, 1) if shape['hurt'] else (0, 1)), (words, got)
        assert got[1] or got[0] == 1


@pytest.mark.parametrize('seed', range(12))
def test_operators(tmp_path, tfanalyze, seed):
    compare(tmp_path, tfanalyze, seed, OPS)
