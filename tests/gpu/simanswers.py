"""simanswers - what each command answers about a run on the simulated GPU, computed from the device model's log.

It shares no code with the analyser. Durations, streams, sizes and stages are those of the log (tests/simlog.py). Calls
and starts of work have the times that the library recorded, in ns since the run's first record; read() checks them
against the log, so that everything that follows from them is exact.
"""

import json
from collections import Counter, defaultdict
from decimal import Decimal
from fnmatch import fnmatchcase
from types import SimpleNamespace

import simlog

CLOCK = 20_000      # ns: how much earlier than the driver, and later, the library sees half of the calls
DEVICE_CLOCK = 100  # ns: how far both clocks of the device may differ during a run
SM = 132            # multiprocessors of a simulated device


def ns(us):
    return int((us if isinstance(us, Decimal) else Decimal(repr(us))) * 1000)


def exact(text):
    return json.loads(text, parse_float=Decimal)


def read(directory, log, program, analyze, demangled=()):
    """The truth of simlog.read, with .calls[].at/.until and .works[].at/.until/.launch on the run's own axis, and .stages likewise."""
    truth = simlog.read(log, program)
    document = exact(analyze('export', 'chrome', directory, format=None).out)
    dump = exact(analyze('dump', directory, '--format', 'json', format=None).out)
    events = [e for e in document['traceEvents'] if e.get('ph') == 'X']
    first = next(r for r in dump['rows'] if r['kind'] == 'call')
    seen = next(e for e in events if e['cat'] == 'cuda_driver' and e['tid'] == first['tid'])
    truth.origin = ns(seen['ts']) - ns(first['time_us'])
    truth.directory, truth.device_units = directory, SM
    take_calls(truth, [e for e in events if e['cat'] == 'cuda_driver'])
    take_stages(truth, [e for e in events if e['cat'] == 'user_annotation'])
    take_works(truth, [e for e in events if e['cat'] in simlog.CATEGORIES.values()], dict(demangled))
    return truth


def pairs(ours, theirs, key_of_ours, key_of_theirs):
    """Pairs the n-th of each key with the n-th of the same key."""
    groups = defaultdict(list)
    for x in ours:
        groups[key_of_ours(x)].append(x)
    for y in theirs:
        yield groups[key_of_theirs(y)].pop(0), y
    assert not any(groups.values()), [(k, len(v)) for k, v in groups.items() if v]


def called(event):
    """The record of an awaited event has the runtime's name, and the driver's own beside it."""
    return event['args'].get('function', event['name']) if event['name'].startswith('cudaEventRecord') else event['name']


def take_calls(truth, events):
    events.sort(key=lambda e: e['ts'])
    names = {called(e) for e in events}
    recorded = sorted((c for c in truth.calls.values() if c.symbol in names), key=lambda c: c.start)
    truth.recorded = recorded
    for c, e in pairs(recorded, events, lambda c: (c.tid, c.symbol), lambda e: (e['tid'], called(e))):
        c.at, c.until = ns(e['ts']) - truth.origin, ns(e['ts']) + ns(e['dur']) - truth.origin
        c.result_seen = e['args']['result']
    lead = min(c.start - c.at for c in recorded)  # both axes run alike
    assert all(c.until - c.end + lead >= 0 for c in recorded)
    assert quantile([c.start - c.at - lead for c in recorded], .5) < CLOCK > quantile([c.until - c.end + lead for c in recorded], .5)
    assert all(c.result_seen == c.result for c in recorded)


def take_stages(truth, events):
    events.sort(key=lambda e: e['ts'])
    for s, e in pairs(sorted(truth.stages, key=lambda s: s.begin), events, lambda s: (s.tid, s.stage), lambda e: (e['tid'], e['name'])):
        s.at, s.until = ns(e['ts']) - truth.origin, ns(e['ts']) + ns(e['dur']) - truth.origin
        assert s.until - s.at <= s.end - s.begin


def take_works(truth, events, demangled):
    found = {(e['args']['correlation'], e['args'].get('graph node id', 0)): e for e in events}
    assert len(found) == len(events) == len(truth.works)
    for w in truth.works:
        e = found[w.correlation, w.node if w.graph else 0]
        w.name = demangled.get(w.name, w.name)
        w.kind = 'MEMORY' if w.t != 'kernel' else 'COMMUNICATION' if w.name.startswith('nccl') else 'COMPUTATION'
        w.launch, w.at = w.call.at, ns(e['ts']) - truth.origin
        w.until = w.at + w.duration
        assert (e['name'], ns(e['dur']), e['args']['stream'], e['args']['device']) == (w.name, w.duration, w.stream, w.device)
    lead = min(w.real - w.at for w in truth.works)
    assert all(w.real - w.at - lead < DEVICE_CLOCK for w in truth.works)
    truth.works.sort(key=lambda w: (w.at, w.until))


# ---- choosing ----

def choose(truth, stage=None, device=None, stream=None, window=None, step=None):
    """The works that the filters choose, each with .row, its stage in rows, and .time, the (start, end) that counts."""
    steps = [(s.at, s.until) for s in truth.stages if step is not None and s.stage == f'ProfilerStep#{step}']
    for w in truth.works:
        mine = [rename(s) for s in w.stages]
        if stage:
            mine = [s for s in mine if fnmatchcase(s, stage)]
        if device is not None and w.device != device or stream is not None and w.stream != stream or stage and not mine:
            continue
        if step is not None and not any(a <= w.launch < b for a, b in steps):
            continue
        begin, end = (max(w.at, window[0]), min(w.until, window[1])) if window else (w.at, w.until)
        if begin < end:
            yield SimpleNamespace(**{**w.__dict__, 'row': mine[-1] if mine else '(none)', 'time': (begin, end), 'took': end - begin})


def options(stage=None, device=None, stream=None, window=None, step=None):
    found = []
    for name, value in (('--stage', stage), ('--device', device), ('--stream', stream), ('--step', step)):
        found += [name, value] if value is not None else []
    return [*found, *(['--from', window[0] / 1e9, '--to', window[1] / 1e9] if window else [])]


def rename(stage):
    return 'ProfilerStep*' if stage.startswith('ProfilerStep#') else stage


# ---- sets of times ----

def sweep(sets):
    """{names of the sets that cover a moment: the time of all such moments}"""
    points = sorted((t, change, name) for name, spans in sets.items() for a, b in spans for t, change in ((a, 1), (b, -1)))
    depth, total, before = Counter(), Counter(), None
    for t, change, name in points:
        if before is not None and t > before:
            total[frozenset(n for n, d in depth.items() if d)] += t - before
        depth[name] += change
        before = t
    total.pop(frozenset(), None)
    return total


def union(spans):
    return sweep({'': spans})[frozenset({''})]


def by_kind(works):
    kinds = defaultdict(list)
    for w in works:
        kinds[w.kind].append(w.time)
    return kinds


# ---- statistics ----

def quantile(values, share):
    values = sorted(values)
    place = share * (len(values) - 1)
    low = int(place)
    return values[low] + (values[min(low + 1, len(values) - 1)] - values[low]) * (place - low)


def deviation(values):
    mean = sum(values) / len(values)
    return (sum((v - mean) ** 2 for v in values) / (len(values) - 1)) ** .5 if len(values) > 1 else None


# ---- answers ----

def breakdown(works, key):
    rows = defaultdict(list)
    for w in works:
        rows[key(w)].append(w)
    total = sum(w.took for w in works)
    return {k: {'kind': kind_of(mine), 'calls': len(mine), **statistics([w.took / 1000 for w in mine]),
                'pct': 100 * sum(w.took for w in mine) / total} for k, mine in rows.items()}


def kind_of(works):
    kinds = {w.kind for w in works}
    return kinds.pop() if len(kinds) == 1 else None


def statistics(values):
    return {'total_us': sum(values), 'mean_us': sum(values) / len(values), 'median_us': quantile(values, .5), 'p95_us': quantile(values, .95),
            'min_us': min(values), 'max_us': max(values), 'std_us': deviation(values)}


def timeline(works):
    time = sweep(by_kind(works))
    whole = max(w.time[1] for w in works) - min(w.time[0] for w in works)
    busy = sum(time.values())

    def of(*kinds, exposed_to=()):
        return sum(t for covering, t in time.items() if covering & set(kinds) and not covering & set(exposed_to))
    ran = {'busy': busy, 'idle': whole - busy, 'computation': of('COMPUTATION'), 'communication': of('COMMUNICATION'), 'memcpy': of('MEMORY'),
           'exposed_communication': of('COMMUNICATION', exposed_to=['COMPUTATION']),
           'exposed_memcpy': of('MEMORY', exposed_to=['COMPUTATION', 'COMMUNICATION'])}
    return {'rank': 0, 'total_us': whole / 1000, **{f'{k}_us': t / 1000 for k, t in ran.items()}, **{f'{k}_pct': 100 * t / whole for k, t in ran.items()}}


def kinds(works):
    time = sweep(by_kind(works))
    return {' overlapping '.join(k for k in ('COMPUTATION', 'COMMUNICATION', 'MEMORY') if k in covering): (t / 1000, 100 * t / sum(time.values())) for covering, t in time.items()}


def overlap(works):
    time = sweep(by_kind(works))
    both = sum(t for k, t in time.items() if {'COMPUTATION', 'COMMUNICATION'} <= k)
    communication = sum(t for k, t in time.items() if 'COMMUNICATION' in k)
    return both / 1000, communication / 1000, 100 * both / communication if communication else None


def lanes(truth):
    found = defaultdict(list)
    for w in sorted(truth.works, key=lambda w: w.at):
        found[w.device, w.stream].append(w)
    return found


def idle(truth, works, window=None):
    """{(device, stream): works, host_wait, kernel_wait, other in ns}: the gaps before chosen works, after all works of the stream,
    in a window of time."""
    chosen = {id_of(w): w for w in works}
    low, high = window or (float('-inf'), float('inf'))
    rows = {}
    for lane, mine in lanes(truth).items():
        until, row = None, [0, 0, 0, 0]
        for w in mine:
            picked = chosen.get(id_of(w))
            if picked:
                row[0] += max(w.at, low) < min(w.until, high)
                if until is not None:
                    inside = max(0, min(w.at, high) - max(until, low))
                    row[1 if w.launch > until else 2 if w.at - until < 30_000 else 3] += inside
            until = max(w.until, until or 0)
        if any(row):
            rows[lane] = tuple(row)
    return rows


def id_of(w):
    return w.correlation, w.node if w.graph else 0


def queue(truth, works, window=None):
    """{(device, stream): count, mean, std, min, quartiles, max} of the depths after each change by a chosen work, in a window of
    time. All works of the stream wait in its queue."""
    chosen, rows = {id_of(w) for w in works}, {}
    for lane, mine in lanes(truth).items():
        changes = [(time, order, id_of(w) in chosen) for w in mine for time, order in ((w.launch, -1), (w.at, 1))]  # launches come first
        depth, depths = 0, []
        for time, order, counts in sorted(changes, key=lambda change: change[:2]):
            depth -= order
            if counts and (not window or window[0] <= time < window[1]):
                depths.append(depth)
        if not depths:
            continue
        rows[lane] = {'count': len(depths), 'mean': sum(depths) / len(depths), 'std': deviation(depths), 'min': min(depths), 'q1': quantile(depths, .25),
                      'median': quantile(depths, .5), 'q3': quantile(depths, .75), 'max': max(depths)}
    return rows


def bandwidth(works):
    rows = defaultdict(list)
    for w in works:
        if w.t != 'kernel':
            rows[w.name.split(' (')[0]].append(w)
    return {k: {'count': len(c), 'bytes': sum(w.bytes for w in c), 'total_us': sum(w.duration for w in c) / 1000,
                'mean_gbs': sum(w.bytes for w in c) / sum(w.duration for w in c), 'max_gbs': max(w.bytes / w.duration for w in c)}
            for k, c in rows.items()}


def annotations(works):
    rows = defaultdict(lambda: [0, 0, 0, 0])
    for w in works:
        row, first = rows[tuple(map(rename, w.stages))], 0 if w.t == 'kernel' else 2
        row[first] += 1
        row[first + 1] += w.took
    return {k: tuple(v) for k, v in rows.items()}


def patterns(truth, works, name):
    """{(stage, names of works): count, gpu, cpu}: of the outermost stages with `name` in theirs, by launches on their own thread."""
    chosen, rows, outer = {id_of(w) for w in works}, defaultdict(lambda: [0, 0, 0]), []
    for s in sorted(truth.stages, key=lambda s: s.at):
        if name in rename(s.stage) and not any(o.tid == s.tid and s.at < o.until for o in outer):
            outer.append(s)
            inside = [w for w in truth.works if id_of(w) in chosen and w.call.tid == s.tid and s.at <= w.launch < s.until]
            if inside:
                inside.sort(key=lambda w: (w.launch, w.at, ('kernel', 'memcpy', 'memset').index(w.t)))
                row = rows[(rename(s.stage), *(w.name for w in inside))]
                row[0] += 1
                row[1] += sum(w.duration for w in inside)
                row[2] += s.until - s.at
    return {k: tuple(v) for k, v in rows.items()}


def stages(truth, works):
    """{stage: the times of its calls, and its device time}; all stages around a launch have its work."""
    rows, host, own = {}, stage_totals(truth), defaultdict(list)
    for w in works:
        for stage in {rename(s) for s in w.stages} or {'(none)'}:
            own[stage].append(w)
    for stage in {*host, *own}:
        each = [(s.until - s.at) / 1000 for s in truth.stages if rename(s.stage) == stage]
        spans = [[w.time for w in own[stage] if w.device == d] for d in truth.devices]
        busy = sum(map(union, spans))
        whole = sum(max(b for _, b in mine) - min(a for a, _ in mine) for mine in spans if mine)
        rows[stage] = {'calls': len(each) or None, 'device_us': sum(w.took for w in own[stage]) / 1000, 'device_busy_us': busy / 1000,
                       'idle_us': (whole - busy) / 1000 if own[stage] else None}
        if each:
            rows[stage].update({'host_us': host[stage][1] / 1000, 'wall_us': host[stage][1] / 1000, 'min_us': min(each), 'max_us': max(each),
                                'median_us': quantile(each, .5), 'p95_us': quantile(each, .95)})
    return rows


def api(truth):
    """{function: its calls and their times}"""
    took, errors = defaultdict(list), Counter()
    for c in truth.recorded:
        took[c.symbol].append((c.until - c.at) / 1000)
        errors[c.symbol] += c.result != 0
    return {k: {'calls': len(v), 'errors': errors[k], **{n: x for n, x in statistics(v).items() if n not in ('min_us', 'std_us')}} for k, v in took.items()}


KINDS_OF_CALLS = (('GraphLaunch', 'graph_launches'), ('Synchronize', 'syncs'), ('Memcpy', 'copies'), ('Memset', 'memsets'), ('LaunchKernel', 'launches'))


def launches(truth):
    """{(stage, function): kind, calls, cpu, gpu, delay, short, slow, delayed}"""
    first, of_call, rows = {}, defaultdict(list), defaultdict(lambda: [None, 0, 0, 0, 0, 0, 0, 0])
    for w in truth.works:
        of_call[w.correlation].append(w)
        first[w.correlation] = min(w.at, first.get(w.correlation, w.at))
    for c in truth.recorded:
        kind = next((kind for word, kind in KINDS_OF_CALLS if word in c.symbol), None)
        if not kind:
            continue
        stages, took, mine = simlog.stages_of(truth.stages, c), c.until - c.at, of_call[c.correlation]
        row = rows[rename(stages[-1]) if stages else '(none)', c.symbol]
        delay = max(0, first[c.correlation] - c.until) if mine else 0
        row[0] = kind
        more = (1, took, sum(w.duration for w in mine), delay, took <= 50_000 and sum(w.duration < took for w in mine), bool(mine) and took > 50_000, delay > 100_000)
        row[1:] = [a + b for a, b in zip(row[1:], more)]
    return {k: tuple(v) for k, v in rows.items()}


PARTS = ('kernel', 'memcpy', 'memset', 'communication', 'runtime')
TENSOR = ('xmma_gemm',)  # of the plugin's words those that occur here
NEWER = ('nvjet',)


def step_spans(truth):
    """[(number, from, to)] with the device work of each step, as the TensorBoard plugin extends them."""
    steps = sorted((s.at, s.until, int(s.stage.split('#')[1])) for s in truth.stages if s.stage.startswith('ProfilerStep#'))
    works = [[w for w in truth.works if a <= w.launch and w.call.until <= b] for a, b, _ in steps]
    mine = {id_of(w) for of_step in works for w in of_step}
    first = min(w.at for w in works[0])
    before = max([steps[0][0]] + [w.until for w in truth.works if id_of(w) not in mine and w.until < first])
    spans = []
    for (a, b, number), of_step in zip(steps, works):
        a = max(a, before)
        before = max([a, b] + [w.until for w in of_step])
        spans.append((number, a, before))
    return spans


def steps(truth):
    """{number: total and the exclusive parts in us}"""
    happens = {part: [] for part in PARTS}
    for w in truth.works:
        happens['communication' if w.kind == 'COMMUNICATION' else w.t].append((w.at, w.until))
    happens['runtime'] = [(c.at, c.until) for c in truth.recorded]
    rows = {}
    for number, a, b in step_spans(truth):
        covered, row = [], {'total_us': (b - a) / 1000}
        for part in PARTS:
            before = union(clip(covered, a, b))
            covered = covered + happens[part]
            row[f'{part}_us'] = (union(clip(covered, a, b)) - before) / 1000
        rows[number] = {**row, 'other_us': (b - a - union(clip(covered, a, b))) / 1000}
    return rows


def clip(spans, start, end):
    return [(max(a, start), min(b, end)) for a, b in spans if a < end and b > start]


def device_shares(truth, words):
    """{device: (utilisation, SM efficiency, share of tensor cores) in percent} over the time of all steps."""
    spans = step_spans(truth)
    start, end = spans[0][1], spans[-1][2]
    rows = {}
    for device in truth.devices:
        kernels = [w for w in truth.works if w.device == device and w.t == 'kernel' and clip([(w.at, w.until)], start, end)]
        inside = [(w, clip([(w.at, w.until)], start, end)[0]) for w in kernels]
        filled = 0
        for running, time in sweep({i: [span] for i, (_, span) in enumerate(inside)}).items():
            filled += time * min(1, sum(blocks(inside[i][0]) / SM for i in running))
        total = sum(b - a for _, (a, b) in inside)
        tensor = sum(b - a for w, (a, b) in inside if any(word in w.name for word in words))
        rows[device] = (100 * union([s for _, s in inside]) / (end - start), 100 * filled / (end - start), 100 * tensor / total)
    return rows


def blocks(w):
    return w.grid[0] * w.grid[1] * w.grid[2]


# ---- two runs ----

def totals(works):
    """{name: (calls, ns)}"""
    rows = defaultdict(lambda: (0, 0))
    for w in works:
        rows[w.name] = rows[w.name][0] + 1, rows[w.name][1] + w.took
    return rows


def stage_totals(truth):
    """{stage: (calls, ns)}; a call inside another one of the same stage adds no time."""
    calls, spans, rows = Counter(rename(s.stage) for s in truth.stages), defaultdict(list), Counter()
    for s in truth.stages:
        spans[rename(s.stage), s.tid].append((s.at, s.until))
    for (name, _), mine in spans.items():
        rows[name] += union(mine)
    return {name: (calls[name], time) for name, time in rows.items()}


def difference(a, b):
    """{name: calls, times and change in us, state}, by a tolerance of 5 percent."""
    rows = {}
    for name in {*a, *b}:
        (calls_a, from_), (calls_b, to) = a.get(name, (0, 0)), b.get(name, (0, 0))
        change = to - from_
        state = ('added' if not calls_a else 'removed' if not calls_b else
                 'same' if abs(change) * 20 <= from_ else 'increased' if change > 0 else 'decreased')
        rows[name] = calls_a, calls_b, from_ / 1000, to / 1000, change / 1000, state
    return rows
