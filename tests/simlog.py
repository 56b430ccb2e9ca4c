"""simlog - the truth about a run on the simulated GPU, from the device model's log and the program's own lines.

It shares no code with the analyser. Device work is that of SIMGPU_LOG, calls are its outermost ones. A call belongs to
the innermost stage open on its thread, or else to that of the only thread with an open stage.
"""

import json
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

MEMORY = ('Pageable', 'Pinned', 'Device', 'Array', 'Managed')
LETTERS = {'Pageable': 'H', 'Pinned': 'H', 'Device': 'D', 'Array': 'A', 'Managed': 'D'}
CATEGORIES = {'kernel': 'kernel', 'memcpy': 'gpu_memcpy', 'memset': 'gpu_memset'}


def read(path, program=''):
    """calls, works and syncs of a log; stages from the program's output.

    Times are ns: those of calls and stages CLOCK_MONOTONIC, those of works (`real`) CLOCK_REALTIME."""
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    truth = SimpleNamespace(devices={d['device']: d for d in lines if d['t'] == 'device'})
    truth.calls = {c['correlation']: SimpleNamespace(**c) for c in lines if c['t'] == 'call' and c['depth'] == 0}
    truth.works = [work(w, truth.devices[w['device']]) for w in lines if w['t'] in CATEGORIES]
    truth.syncs = [SimpleNamespace(**s) for s in lines if s['t'] == 'sync']
    printed = [json.loads(line) for line in program.splitlines()]
    truth.stages = [SimpleNamespace(**s) for s in printed if 'stage' in s]
    for w in truth.works:
        w.call = truth.calls[w.correlation]
        w.stages = stages_of(truth.stages, w.call)
    return truth


def work(line, device):
    """A piece of work with its name and times as in a trace."""
    w = SimpleNamespace(**line)
    w.category, w.duration = CATEGORIES[w.t], w.end - w.start
    w.real = w.start + device['realtime']
    if w.t == 'memcpy':
        source, target = MEMORY[w.__dict__['from'][0]], MEMORY[w.to[0]]
        peer = w.__dict__['from'][1] != w.to[1] and 'H' not in (LETTERS[source], LETTERS[target])
        w.name = f'Memcpy {"PtoP" if peer else LETTERS[source] + "to" + LETTERS[target]} ({source} -> {target})'
    elif w.t == 'memset':
        w.name = 'Memset (Device)'
    return w


def stages_of(stages, call):
    """The stages in which the call was made, outermost first."""
    open_ = defaultdict(list)
    for s in stages:
        if s.begin <= call.start and call.end <= s.end:
            open_[s.tid].append(s)
    mine = open_.get(call.tid) or (next(iter(open_.values())) if len(open_) == 1 else [])
    return [s.stage for s in sorted(mine, key=lambda s: s.begin)]


def union(intervals):
    """The time that at least one of the intervals covers."""
    total, until = 0, None
    for start, end in sorted(intervals):
        start = start if until is None else max(start, until)
        total += max(end - start, 0)
        until = end if until is None else max(end, until)
    return total
