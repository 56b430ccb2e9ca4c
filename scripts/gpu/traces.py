"""traces - reads device work from our trace and from a Kineto trace, and compares them.

Python reads the Kineto trace itself, so that the analyser's reader takes no part. Our side gives raw records (tfanalyze
dump) and the rows of breakdown. Names are compared after demangling by the C++ ABI library, as Kineto demangles them.
"""

import collections
import ctypes
import glob
import gzip
import json
import os
from decimal import Decimal
from types import SimpleNamespace

from common import tfanalyze

KINDS = {'kernel': 'kernel', 'copy': 'gpu_memcpy', 'set': 'gpu_memset'}
LISTED = 40  # listed disagreements of one kind; the rest are counted


def demangler():
    try:
        library = ctypes.CDLL('libstdc++.so.6')
    except OSError:
        return lambda name: name
    function = library.__cxa_demangle
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]

    def demangle(name):
        text = function(name.encode(), None, None, None) if name.startswith('_Z') else None
        if not text:
            return name
        out = ctypes.string_at(text).decode(errors='replace')
        free(text)
        return out
    return demangle


def our_work(directory, window=None):
    """Returns (work, ranges, error) of a run directory; with `window` only work that began inside a range of that name."""
    answer, error = tfanalyze('dump', directory)
    if answer is None:
        return [], {}, error
    demangle, work, ranges, offset = demangler(), [], {}, 0
    for row in answer['rows']:
        v = row['values']
        if row['kind'] == 'clock' and v['clock'] == 'realtime':
            offset = v['value'] - round(row['time_us'] * 1000)
        elif row['kind'] == 'range_end' and v['name']:
            ranges.setdefault(v['name'], (row['time_us'] - v['duration_us'], row['time_us']))
        elif row['kind'] in KINDS:
            name = demangle(v['name'] or '') if row['kind'] == 'kernel' else row['kind']
            work.append(SimpleNamespace(kind=row['kind'], name=name, start=v['start_ns'], duration=v['duration'],
                                        correlation=v['correlation'], stream=v['stream'], device=v['device'],
                                        bytes=v.get('bytes')))
    if window and window in ranges:
        begin, end = (offset + round(us * 1000) for us in ranges[window])
        work = [w for w in work if begin <= w.start <= end]
    elif window:
        error = f'no range {window} in the trace'
    return sorted(work, key=lambda w: w.start), ranges, error


def impossible(directory):
    """Counts device records of ours that cannot be: before their call, outside the run, longer than the run. Clocks differ by
    microseconds, so only what is a millisecond off is impossible; `worst_us` is the earliest start."""
    answer, error = tfanalyze('dump', directory)
    if answer is None:
        return {'error': error}
    rows = answer['rows']
    clocks = [(row['values']['value'], row['time_us']) for row in rows if row['kind'] == 'clock' and row['values']['clock'] == 'device']
    calls = {row['values']['correlation']: row['time_us'] for row in rows if row['kind'] == 'correlation'}
    times = [row['time_us'] for row in rows if row['time_us'] is not None]
    found = {'work': 0, 'before_their_call': 0, 'outside_the_run': 0, 'longer_than_the_run': 0, 'worst_us': 0.0}
    for row in (row for row in rows if row['kind'] in KINDS and clocks):
        v = row['values']
        ns, us = min(clocks, key=lambda pair: abs(pair[0] - v['start_ns']))
        start = us + (v['start_ns'] - ns) / 1000
        early = calls.get(v['correlation'], start) - start
        found['work'] += 1
        found['before_their_call'] += early > 1000
        found['outside_the_run'] += not min(times) - 1000 <= start <= max(times) + 1000
        found['longer_than_the_run'] += v['duration'] / 1000 > max(times) - min(times)
        found['worst_us'] = round(max(found['worst_us'], early), 3)
    return found


def kineto(path):
    """A Kineto trace: .work as above, .launches by correlation, .annotations by thread."""
    with (gzip.open if path.endswith('.gz') else open)(path, 'rt', encoding='utf-8', errors='replace') as file:
        trace = json.load(file, parse_float=Decimal)
    base, demangle = int(trace.get('baseTimeNanoseconds', 0)), demangler()
    found = SimpleNamespace(work=[], launches={}, annotations=collections.defaultdict(list))
    by_category = {category: kind for kind, category in KINDS.items()}
    for e in trace['traceEvents']:
        if e.get('ph') != 'X':
            continue
        args, category = e.get('args', {}), e.get('cat')
        start, duration = base + int(e['ts'] * 1000), int(e['dur'] * 1000)
        if category in by_category:
            kind = by_category[category]
            name = demangle(e['name']) if kind == 'kernel' else kind
            also = {key: args.get(key) for key in ('correlation', 'stream', 'device', 'bytes')}
            found.work.append(SimpleNamespace(kind=kind, name=name, start=start, duration=duration, **also))
        elif category in ('cuda_runtime', 'cuda_driver') and 'correlation' in args:
            found.launches[args['correlation']] = (e['tid'], start)
        elif category == 'user_annotation':
            found.annotations[e['tid']].append((start, start + duration, e['name']))
    found.work.sort(key=lambda w: w.start)
    return found


def stage_of(trace, work, stages):
    """Returns the innermost of these stages open at the launch on its thread, else on the only thread with an open stage."""
    launch = trace.launches.get(work.correlation)
    if launch is None:
        return '(none)'
    tid, at = launch

    def innermost(thread):
        inside = [a for a in trace.annotations[thread] if a[0] <= at < a[1] and a[2] in stages]
        return max(inside)[2] if inside else None
    own = innermost(tid)
    if own:
        return own
    others = [stage for stage in map(innermost, list(trace.annotations)) if stage]
    return others[0] if len(others) == 1 else '(none)'


def files_of(directory, name):
    """Returns {name: trace in the directory}, or {} if there is none."""
    found = sorted(glob.glob(f'{directory}/*.tfr'), key=os.path.getsize)
    return {name: found[-1]} if found else {}


# ---- comparing ----

def listed(items, what):
    """Returns at most LISTED items, and the number of the items left out."""
    left = len(items) - LISTED
    return items[:LISTED] + ([{'what': what, 'more': left}] if left > 0 else [])


def compare_counts(what, ours, theirs):
    """Compares names and counts; each name that differs is a disagreement."""
    a, b = (collections.Counter((w.kind, w.name) for w in work) for work in (ours, theirs))
    different = [{'what': what, 'kind': k[0], 'name': k[1][:300], 'ours': a[k], 'theirs': b[k]}
                 for k in sorted(set(a) | set(b)) if a[k] != b[k]]
    figures = {'ours': sum(a.values()), 'theirs': sum(b.values()), 'names_ours': len(a), 'names_theirs': len(b),
               'names_that_differ': len(different)}
    return figures, listed(different, what)


def compare_records(what, ours, theirs, tolerance=100):
    """Compares two recordings of one run, joined by kind, correlation and order; durations may differ by `tolerance` ns."""
    def keyed(work):
        seen, out = collections.Counter(), {}
        for w in work:
            key = w.kind, w.correlation, w.stream
            out[(*key, seen[key])] = w
            seen[key] += 1
        return out
    a, b = keyed(ours), keyed(theirs)
    both = a.keys() & b.keys()
    durations = [abs(a[k].duration - b[k].duration) for k in both]
    starts = [a[k].start - b[k].start for k in both]
    wrong = [{'what': what, 'name': a[k].name[:300], 'their_name': b[k].name[:300],
              'duration_ns': [a[k].duration, b[k].duration], 'start_difference_ns': a[k].start - b[k].start}
             for k in sorted(both, key=str)
             if a[k].name != b[k].name or abs(a[k].duration - b[k].duration) > tolerance or a[k].bytes != b[k].bytes]
    alone = [{'what': what, 'only': side, 'kind': w.kind, 'name': w.name[:300], 'correlation': w.correlation}
             for side, have, other in (('ours', a, b), ('theirs', b, a)) for key, w in have.items() if key not in other]
    figures = {'joined': len(both), 'only_ours': len(a.keys() - b.keys()), 'only_theirs': len(b.keys() - a.keys()),
               'equal_durations': durations.count(0), 'largest_duration_difference_ns': max(durations, default=None),
               'start_difference_ns': [min(starts), max(starts)] if starts else None, 'tolerance_ns': tolerance}
    return figures, listed(wrong, what) + listed(alone, what)


def compare_durations(ours, theirs):
    """Returns the total time by name of two different runs, for the names that took longest."""
    totals = {}
    for side, work in enumerate((ours, theirs)):
        for w in work:
            if w.kind == 'kernel':
                totals.setdefault(w.name, [0, 0])[side] += w.duration
    top = sorted(totals.items(), key=lambda item: -max(item[1]))[:20]
    a, b = (sum(t[side] for t in totals.values()) for side in (0, 1))
    return {'total_ns': [a, b], 'ratio': a / b if b else None,
            'longest': [{'name': n[:200], 'total_ns': t} for n, t in top]}


def compare_stages(what, directory, trace, stages):
    """Compares kernels by stage and name: tfanalyze's breakdown with a computation from the Kineto trace. The stages must
    not be nested."""
    demangle, ours, theirs, via, errors = demangler(), collections.Counter(), collections.Counter(), {}, {}
    for stage in stages:  # includes nested ranges: PyTorch's own ranges may be stages too
        answer, error = tfanalyze('breakdown', '--stage', stage, directory)
        if answer is None:
            errors[stage] = error
            continue
        via[stage] = {k: v for k, v in answer['totals'].items() if k.startswith('via_')}
        for row in answer['rows']:
            ours[stage, demangle(row['name'])] += row['calls']
    for w in trace.work:
        stage = stage_of(trace, w, stages) if w.kind == 'kernel' else None
        if stage in stages:
            theirs[stage, w.name] += 1
    different = [{'what': what, 'stage': k[0], 'name': k[1][:300], 'ours': ours[k], 'theirs': theirs[k]}
                 for k in sorted(set(ours) | set(theirs)) if ours[k] != theirs[k]]
    return {'stages': {s: [sum(n for k, n in side.items() if k[0] == s) for side in (ours, theirs)] for s in stages},
            'via': via, 'errors': errors}, listed(different, what)
