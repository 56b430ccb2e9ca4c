"""traces.py - the long inputs of the benches: one trace of torch.profiler many times over, and a run of millions of operators."""

import gzip
import json
import os
import re
import sys

import shared
from shared import WORK

SOURCE = f'{shared.ROOT}/../shared/traces/hta/df_index_resolver/df_index_resolver.json.gz'
STEP = 6000  # operators of a step of the loop
LOOP = '''
import json, sys, time, torch
torch.set_num_threads(1)
a, steps, resident, start = torch.ones(4), int(sys.argv[1]), {}, time.monotonic()
def sample(step):
    with open('/proc/self/status') as status:
        lines = [line.split() for line in status if line.startswith(('VmRSS', 'RssAnon'))]
    resident[step] = {line[0].rstrip(':'): int(line[1]) / 1024 for line in lines}
def run(step):
    with torch.profiler.record_function('step'):
        for _ in range(1000):
            b = (a + a) * a
            b.sum()
run(0)
sample('first')
for step in range(1, steps + 1):
    run(step)
    if step == steps // 10: sample('tenth')
    if step == steps // 2: sample('half')
sample('end')
print(json.dumps({'seconds': time.monotonic() - start, 'resident': resident}))
'''


def long_run(directory, millions, library=shared.LIBRARY):
    """Records a run of so many million operators; returns its seconds, and its memory after parts of it."""
    command = [shared.PYTHON, '-c', LOOP, max(1, round(millions * 1e6 / STEP))]
    return json.loads(shared.cost(command, shared.preloaded({}, directory, library)).out)


def numbers_of(text):
    """Splits the events into [text, kind, number, text, kind, number, ..., text]; a copy shifts the numbers."""
    pattern = re.compile(r'("ts": |"correlation": |"External id": ?|"Ev Idx": ?|"id": |ProfilerStep#)(\d+)')
    return pattern.split(text)


def shifted(pieces, copy, steps):
    out = pieces[:]
    for i in range(2, len(pieces), 3):
        out[i] = str(int(pieces[i]) + copy * steps[pieces[i - 1].strip()])
    return ''.join(out)


def make_long(source, target, copies, level):
    """Writes copies of the trace into one document with the metadata once; the result is deterministic."""
    text = gzip.open(source, 'rt', encoding='utf-8', newline='').read()
    head, rest = text.split('"traceEvents": [\n', 1)
    at = rest.rindex('\n  ]')
    events, tail = rest[:at], rest[at:]
    between = ',\n  {\n'
    again = numbers_of(between.join(e for e in events.removeprefix(between[2:]).split(between) if '"ph": "M"' not in e))
    steps = {}
    for kind in {again[i].strip() for i in range(1, len(again), 3)}:
        values = [int(again[i + 1]) for i in range(1, len(again), 3) if again[i].strip() == kind]
        steps[kind] = max(values) - (min(values) if kind == '"ts":' else 0) + 1
    steps['"ts":'] += 10000
    with gzip.GzipFile(target + '.new', 'wb', compresslevel=level, mtime=0) as out:
        out.write((head + '"traceEvents": [\n' + events).encode())
        for copy in range(1, copies):
            out.write((between + shifted(again, copy, steps)).encode())
        out.write(tail.encode())
    os.rename(target + '.new', target)


def long_trace(copies, level):
    if not os.path.exists(SOURCE):
        sys.exit(f'bench: {os.path.relpath(SOURCE)} is missing; the traces belong beside the repository')
    target = f'{WORK}/x{copies}.json.gz'
    if not os.path.exists(target):
        print(f'making {target}, {copies} times the trace', file=sys.stderr)
        os.makedirs(WORK, exist_ok=True)
        make_long(SOURCE, target, copies, level)
    return target
