"""hta_recording - what test_hta.py asks HTA 0.5.0, and the answers that HTA gave.

HTA takes half a minute, so its answers are recorded: tests/data/hta_answers.xz.b64 is JSON in xz in base64, which is one line.
An answer is kept with a checksum of the files that were asked about. `make soak` asks HTA again. By hand:

    build/venv/bin/python tests/hta_recording.py    asks HTA and writes the recording again
"""

import base64
import hashlib
import json
import lzma
import sys
import tempfile
from pathlib import Path
from random import Random

from conftest import BUILD, ROOT, TRACES, clean_environment, execute

RECORDING = ROOT / 'tests' / 'data' / 'hta_answers.xz.b64'


def jobs():
    """The inputs for HTA: each trace, and each directory with several ranks of one run."""
    files = sorted(p for folder in ('hta', 'tracelens', 'kineto_tb') for p in (TRACES / folder).rglob('*')
                   if p.name.endswith(('.json', '.json.gz')))
    found = {str(p.relative_to(TRACES)): [p] for p in files}
    found['hta/trace_filter'] = [p for p in files if p.parent.name == 'trace_filter']
    return found


# ---- random traces ----

DEVICE_NAMES = ('gemm', 'gemm', 'void softmax<float>(int)', 'ncclDevKernel_AllReduce', 'ncclKernel_SendRecv',
                'nccl_other', 'Memcpy DtoH (Device -> Pinned)', 'Memset (Device)', 'dma_copy', 'myMemcpyKernel',
                'gridSync', 'aMemset')
SYNCS = ('Event Sync', 'Context Sync', 'Stream Sync', 'Stream Wait Event')
CATEGORIES = {'Memcpy DtoH (Device -> Pinned)': 'gpu_memcpy', 'Memset (Device)': 'gpu_memset'}


class RandomTrace:
    """Device work of all kinds, with and without launches, in up to three steps.

    No two pieces of work start at the same time, since HTA's sort does not define their order.
    """

    def __init__(self, random, rank):
        self.random, self.events = random, []
        self.fractions = random.random() < 0.6
        self.base = random.choice([0, 4_734_567_890_123, 1_711_964_646_000_000])
        self.old = random.random() < 0.3
        for step in range(random.choice([0, 1, 2, 3])):
            self.add('Operator' if self.old else 'user_annotation', f'ProfilerStep#{7 + step}', step * 500, 499)
        for correlation, at in enumerate(random.sample(range(10, 1500), random.randrange(1, 60)), 1):
            self.piece(correlation, at)
        random.shuffle(self.events)
        self.document = {'distributedInfo': {'rank': rank}, 'traceEvents': self.events}

    def add(self, category, name, at, dur, **args):
        if self.fractions:
            at, dur = at + self.random.randrange(1000) / 1000, round(self.random.random() * dur, 3)
        stream = args.get('stream')
        on_device = category not in ('cuda_runtime', 'cpu_op', 'user_annotation', 'Operator')
        place = {'pid': 0, 'tid': 7 if stream is None else stream} if on_device else {'pid': 1, 'tid': 1}
        self.events.append({'ph': 'X', 'cat': category, 'name': name, **place, 'ts': self.base + at, 'dur': dur,
                             'args': {k: v for k, v in args.items() if v is not None}})

    def piece(self, correlation, at):
        random = self.random
        for _ in range(random.choice([0, 1, 1, 1, 2])):
            self.add('cuda_runtime', 'cudaLaunchKernel', max(at - random.randrange(40), 0), 3, correlation=correlation)
        stream = random.choice([7, 7, 20, None if random.random() < 0.2 else 7])
        kind = random.random()
        if kind < 0.8:
            name = random.choice(DEVICE_NAMES)
            self.add(CATEGORIES.get(name, 'kernel'), name, at, random.choice([1, 20, 150]), stream=stream,
                     correlation=correlation if random.random() < 0.95 else None, device=0,
                     **({'memory bandwidth (GB/s)': (at % 70 + 1) / 7} if name in CATEGORIES else {}))
        elif kind < 0.9:
            self.add('cuda_sync', random.choice(SYNCS), at, 9, stream=random.choice([stream, -1]),
                     correlation=correlation if random.random() < 0.8 else None, device=0)
        elif kind < 0.92:  # an operator of a Triton launch names the stream
            self.add('cpu_op', 'triton_poi_fused', at, 30, stream=random.choice([0, 7, -1]))
        else:
            self.add('gpu_user_annotation', random.choice(['ProfilerStep#7', 'forward', 'backward']), at, random.choice([60, 60, 300]),
                     stream=stream, correlation=correlation if random.random() < 0.3 else None)


SEEDS = [f'seed {n}' for n in range(40)]


def written_at_random(directory):
    """{seed: files}"""
    question = {}
    for seed in range(len(SEEDS)):
        random = Random(seed)
        for rank in range(1 + (seed % 3 == 0)):
            path = directory / f'{seed}-{rank}.json'
            path.write_text(json.dumps(RandomTrace(random, rank).document, indent=1))
            question.setdefault(SEEDS[seed], []).append(path)
    return question


# ---- a full queue ----

DEEP = 1100


def deep(directory):
    """A job in which the queue of a stream is full for a time: DEEP launches, then their kernels."""
    path = directory / 'deep.json'
    calls = [{'ph': 'X', 'cat': 'cuda_runtime', 'name': 'cudaLaunchKernel', 'pid': 1, 'tid': 1, 'ts': 3 * i, 'dur': 2,
              'args': {'correlation': i + 1}} for i in range(DEEP)]
    works = [{'ph': 'X', 'cat': 'kernel', 'name': 'k', 'pid': 0, 'tid': 7, 'ts': 5000 + 2 * i, 'dur': 1,
              'args': {'correlation': i + 1, 'stream': 7, 'device': 0}} for i in range(DEEP)]
    path.write_text(json.dumps({'distributedInfo': {'rank': 0}, 'traceEvents': calls + works}, indent=1))
    return {'deep': [path]}


# ---- random host threads: operators, launches, and kernels or counters ----

HOSTS = 20


class RandomHost:
    """Nested operators on two threads; each operator launches kernels, or CUPTI counts them. No two times are equal."""

    def __init__(self, random, counting):
        self.random, self.counting, self.events, self.starts = random, counting, [], []
        self.correlation, self.pid = 0, 4711
        for step in range(random.choice([0, 1, 3])):
            self.add('user_annotation', f'ProfilerStep#{step}', 100 + 4000 * step, 3990, self.pid)
        for tid in (self.pid, 5000):
            for place in range(3):
                self.operator(tid, 110 + 4000 * place + tid % 2, 3800, 0)
        for number, (start, correlation) in enumerate(sorted(self.starts)):
            self.device(number, start, correlation)
        if counting and random.random() < 0.2:
            self.events.pop()
        random.shuffle(self.events)
        self.document = {'distributedInfo': {'rank': 0}, 'traceEvents': [{'ph': 'M', 'name': 'first'}, *self.events]}

    def add(self, category, name, at, dur, tid, pid=None, **args):
        self.events.append({'ph': 'X', 'cat': category, 'name': name, 'pid': self.pid if pid is None else pid, 'tid': tid,
                            'ts': at, 'dur': dur, 'args': args})

    def operator(self, tid, at, dur, depth):
        random = self.random
        self.add('cpu_op', random.choice(['aten::a', 'aten::b', 'autograd::c', 'my::op']), at, dur, tid)
        children = random.randrange(4) if depth < 4 else 0
        share = (dur - 4) // (children + 2)
        for child in range(children):
            if share > 30:
                self.operator(tid, at + 2 + child * share, share - 4, depth + 1)
        for launch in range(random.choice([0, 1, 3])):
            if share > 12:
                self.correlation += 1
                start = at + 2 + children * share + 4 * launch
                self.add('cuda_runtime', random.choice(['cudaLaunchKernel', 'cudaLaunchKernelExC']), start, 2, tid,
                         correlation=self.correlation)
                self.starts.append((start, self.correlation))

    def device(self, number, start, correlation):
        name = self.random.choice(['k1', 'k2', 'k3'])
        if self.counting:
            self.add('cuda_profiler_range', name, 7 * start, 5, 0, 0, **{'a_counter.sum': number, 'b_counter.avg': number / 4})
        elif self.random.random() < 0.9:
            self.add('kernel', name, 7 * start, 5, 7, 0, stream=7, correlation=correlation, device=0)


def hosts_at_random(directory, analysis):
    """{host: [file]} for `counters` or `patterns`"""
    question = {}
    for seed in range(HOSTS):
        path = directory / f'{analysis}-{seed}.json'
        path.write_text(json.dumps(RandomHost(Random(seed), analysis == 'counters').document, indent=1))
        question[f'{analysis} {seed}'] = [path]
    return question


# ---- questions and answers ----

def questions(directory):
    """{name: files} of all that HTA is asked about."""
    found = {**jobs(), **written_at_random(directory), **deep(directory),
             **hosts_at_random(directory, 'counters'), **hosts_at_random(directory, 'patterns')}
    return {name: files for name, files in found.items() if files}


def checksum(files):
    return hashlib.sha256(b''.join(hashlib.sha256(path.read_bytes()).digest() for path in files)).hexdigest()


def ask(python, asked):
    """{name: HTA's answers}, in one process because HTA starts slowly."""
    env = {k: v for k, v in clean_environment().items() if not k.startswith('HTA_')}
    question = {name: [str(p) for p in files] for name, files in asked.items()}
    result = execute([python, ROOT / 'tests' / 'hta_answers.py'], env, timeout=3000, stdin=json.dumps(question))
    assert result.rc == 0, result.err[-2000:]
    return json.loads(result.out)


def columns(rows):
    """The rows of a table by column, which pack better; anything else as it is."""
    if not isinstance(rows, list) or not rows or any(row.keys() != rows[0].keys() for row in rows):
        return rows
    return {key: [row[key] for row in rows] for key in rows[0]}


def rows(columns):
    return [dict(zip(columns, row)) for row in zip(*columns.values())] if isinstance(columns, dict) else columns


def recorded():
    """{name: (checksum of the files, HTA's answers)}"""
    whole = json.loads(lzma.decompress(base64.b64decode(RECORDING.read_text())))
    return {name: (of, {question: rows(answer) for question, answer in answers.items()}) for name, (of, answers) in whole.items()}


def record(given, asked):
    whole = {name: (checksum(asked[name]), {question: columns(answer) for question, answer in answers.items()})
             for name, answers in given.items()}
    packed = lzma.compress(json.dumps(whole, separators=(',', ':')).encode(), preset=9 | lzma.PRESET_EXTREME)
    RECORDING.write_text(base64.b64encode(packed).decode() + '\n')


def main():
    with tempfile.TemporaryDirectory() as directory:
        asked = questions(Path(directory))
        record(ask(BUILD / 'venv' / 'bin' / 'python', asked), asked)


if __name__ == '__main__':
    sys.exit(main())
