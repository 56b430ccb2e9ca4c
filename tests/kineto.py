"""kineto - a second model of PyTorch (Kineto) traces: writes small ones in many spellings, and answers from the JSON.

It shares no code with the analyser. Python's json reads the events, times are exact (Decimal, then whole nanoseconds),
and each answer follows the rules in the plainest way, however slow.
"""

import gzip
import json
import random
import re
from collections import Counter, defaultdict
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from types import SimpleNamespace

DEVICE_CLASSES = {
    'kernel': {'kernel', 'Kernel', 'mtia_ccp_events', 'mtia_workloadd', 'glow_runtime_event'},
    'memcpy': {'gpu_memcpy', 'Memcpy'},
    'memset': {'gpu_memset', 'Memset'},
}
CLASS_OF = {category: name for name, categories in DEVICE_CLASSES.items() for category in categories}
CLASS_OF.update({c: 'api' for c in ('cuda_runtime', 'cuda_driver', 'xpu_runtime', 'xpu_driver', 'privateuse1_runtime',
                                    'privateuse1_driver', 'mtia_runtime', 'glow_runtime', 'Runtime')})
CLASS_OF.update({'cpu_op': 'operator', 'Operator': 'operator', 'user_annotation': 'annotation'})
NONE = '(none)'
RUN = '(run)'


# ---- reading ----

class Document(dict):
    """The outermost object, hashed by identity: lru_cache keeps the answers about the latest one."""
    __hash__ = object.__hash__
    __eq__ = object.__eq__


def read(path):
    """The document with Decimals for floats; the content decides whether it is unpacked."""
    data = path.read_bytes()
    if data[:2] == b'\x1f\x8b':
        data = gzip.decompress(data)
    document = json.loads(data, parse_float=Decimal)
    return Document({'traceEvents': document} if isinstance(document, list) else document)


def nanoseconds(us):
    """Whole nanoseconds; a time with a fraction of a nanosecond fails."""
    if type(us) is int:
        return us * 1000
    ns = Decimal(us).scaleb(3)
    assert ns == int(ns), us
    return int(ns)


def collapsed(name):
    return re.sub(r'^ProfilerStep#\d+$', 'ProfilerStep*', name)


def class_of(event):
    """The class of an event; old traces have their annotations among the operators."""
    category = event.get('cat')
    if category == 'Operator' and re.match(r'ProfilerStep#\d+$', event['name']):
        return 'annotation'
    return CLASS_OF.get(category)


def number(args, *keys):
    for key in keys:
        value = args.get(key)
        if value is not None and (type(value) is int or value.isdigit()):  # ROCm's calls have a pointer as their stream
            return int(value)
    return None


@lru_cache(maxsize=1)
def tables(document):
    """The events by class, as namespaces in the order of the file, and the arrows from forward to backward operators."""
    found = defaultdict(list)
    for event in document['traceEvents']:
        kind, args = class_of(event), event.get('args', {})
        if event.get('ph') == 'X' and kind and 'dur' in event:
            start = nanoseconds(event['ts'])
            found[kind].append(SimpleNamespace(
                start=start, end=start + nanoseconds(event['dur']), name=event['name'], kind=event['cat'],
                thread=(str(event['pid']), str(event['tid'])), correlation=number(args, 'correlation'),
                external=number(args, 'External id', 'external id'), device=number(args, 'device'),
                stream=number(args, 'stream')))
        elif event.get('cat') == 'fwdbwd':
            found[event['ph']].append(SimpleNamespace(
                start=nanoseconds(event['ts']), thread=(str(event['pid']), str(event['tid'])), id=event['id']))
    return found


# ---- open stages ----

def opened(stretches, points):
    """{(thread, time): the stretches open there, the outer ones first}."""
    by_thread, found = defaultdict(list), {}
    for place, s in enumerate(stretches):
        by_thread[s.thread].append((s.start, -s.end, place, s))
    for thread in {thread for thread, _ in points}:
        waiting = sorted(by_thread[thread], key=lambda row: row[:3], reverse=True)
        active = []
        for time in sorted({t for where, t in points if where == thread}):
            begun = []
            while waiting and waiting[-1][0] <= time:
                begun.append(waiting.pop()[3])
            active = [s for s in active + begun if s.end > time]
            found[thread, time] = active
    return found


def launches(found):
    """[(work, the call or operator that launched it, or None)]"""
    calls, operators = defaultdict(list), {}
    for call in found['api']:
        calls[call.correlation].append(call)
    for operator in found['operator']:
        operators[operator.external] = operator
    answer = []
    for work in found['kernel'] + found['memcpy'] + found['memset']:
        same = calls[work.correlation] if work.correlation is not None else []
        before = [c for c in same if c.start <= work.start]
        call = max(before, key=lambda c: c.start) if before else min(same, key=lambda c: c.start, default=None)
        if call is None and work.external is not None:
            call = operators.get(work.external)
            if call is None:
                call = max((c for c in calls[None] if c.external == work.external), key=lambda c: c.start, default=None)
        answer.append((work, call))
    return answer


def forward_points(found, points):
    """{point: start of the forward operator that belongs to the backward operator at this point}."""
    starts = {arrow.id: arrow for arrow in found['s']}
    ends = defaultdict(list)
    for arrow in found['f']:
        ends[arrow.thread].append(arrow)
    answer = {}
    for (thread, time), around in opened(found['operator'], points).items():
        inside = [a for a in ends[thread] if around and around[0].start <= a.start < around[0].end]
        up_to_now = [a for a in inside if a.start <= time]
        arrow = max(up_to_now, key=lambda a: a.start) if up_to_now else min(inside, key=lambda a: a.start, default=None)
        if arrow is not None and arrow.id in starts:
            answer[thread, time] = (starts[arrow.id].thread, starts[arrow.id].start)
    return answer


@lru_cache(maxsize=1)
def belongings(document):
    """[(work, the stages it belongs to, the outer ones first, the rule)], by the rules of analysis/help/stages.txt."""
    found = tables(document)
    stages = found['annotation']
    launched = launches(found)
    points = {(call.thread, call.start) for _, call in launched if call}
    answers = {p: (s, 'thread') for p, s in opened(stages, points).items() if s}
    forward = forward_points(found, points - answers.keys())
    at_forward = opened(stages, set(forward.values()))
    answers.update({p: (at_forward[q], 'forward') for p, q in forward.items() if at_forward[q]})
    rest = points - answers.keys()
    threads = {s.thread for s in stages}
    everywhere = opened(stages, {(thread, time) for _, time in rest for thread in threads})
    for point in rest:
        busy = [everywhere[t, point[1]] for t in threads if everywhere[t, point[1]]]
        answers[point] = (busy[0], 'only') if len(busy) == 1 else ([], 'none')
    return [(work, *(answers[call.thread, call.start] if call else ([], 'none'))) for work, call in launched]


# ---- answers ----

def union(intervals):
    """Nanoseconds that at least one of the intervals covers."""
    total, until = 0, None
    for start, end in sorted(intervals):
        if until is None or start > until:
            total, until = total + end - start, end
        elif end > until:
            total, until = total + end - until, end
    return total


def device_times(works):
    """(sum of durations, busy time, idle time) in ns; busy is each device's union, idle the gaps in it, summed."""
    by_device = defaultdict(list)
    for work in works:
        by_device[work.device].append((work.start, work.end))
    busy = {d: union(i) for d, i in by_device.items()}
    idle = sum(max(e for _, e in i) - min(s for s, _ in i) - busy[d] for d, i in by_device.items())
    return sum(w.end - w.start for w in works), sum(busy.values()), idle


def stages(document):
    """{stage: calls, host, done, each call, last, all, device, busy, idle} in nanoseconds; inclusive.

    `done` is the time in which some call of a thread was open or had work to come; `last` are the times of the calls that
    ended last, `all` the sum of all, each until its work was done."""
    found = tables(document)
    by_name, works = defaultdict(list), defaultdict(list)
    for s in found['annotation']:
        by_name[collapsed(s.name)].append(s)
    done = {id(s): s.end for s in found['annotation']}
    for work, chain, _ in belongings(document):
        for name in {collapsed(s.name) for s in chain}:
            works[name].append(work)
        for s in chain:
            done[id(s)] = max(done[id(s)], work.end)
    answer = {}
    for name, same in by_name.items():
        threads, until_done = defaultdict(list), defaultdict(list)
        for s in same:
            threads[s.thread].append((s.start, s.end))
            until_done[s.thread].append((s.start, done[id(s)]))
        device, busy, idle = device_times(works[name])
        answer[name] = SimpleNamespace(calls=len(same), host=sum(map(union, threads.values())),
                                       done=sum(map(union, until_done.values())),
                                       each=statistics([s.end - s.start for s in same]),
                                       last={done[id(s)] - s.start for s in same if s.end == max(t.end for t in same)},
                                       all=sum(done[id(s)] - s.start for s in same),
                                       device=device, busy=busy, idle=idle, works=len(works[name]))
    return answer


def quantile(values, share):
    """numpy's percentile with linear interpolation, exact."""
    place = share * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (place - below)


def statistics(durations):
    values, n, total = sorted(durations), len(durations), sum(durations)
    squares = n * sum(v * v for v in values) - total * total  # whole numbers: n * n times the population variance
    return SimpleNamespace(calls=n, total=total, mean=Fraction(total, n), median=quantile(values, Fraction(1, 2)),
                           p95=quantile(values, Fraction(19, 20)), min=values[0], max=values[-1],
                           std=(squares / (n * (n - 1))) ** 0.5 if n > 1 else None)


def breakdown(document, wanted=lambda work, chain: True):
    """{(innermost stage, kernel): statistics of its durations}; a document without annotations has the one stage (run)."""
    has_stages = bool(tables(document)['annotation'])
    durations = defaultdict(list)
    for work, chain, _ in belongings(document):
        if CLASS_OF[work.kind] == 'kernel' and wanted(work, chain):
            stage = collapsed(chain[-1].name) if chain else NONE
            durations[stage if has_stages else RUN, work.name].append(work.end - work.start)
    return {key: statistics(values) for key, values in durations.items()}


def span(document):
    """The first and the last time in the document, without metadata and the profiler's own marks."""
    times = []
    for event in document['traceEvents']:
        if event.get('ph') == 'X' and 'dur' in event and event.get('cat') != 'Trace':
            start = nanoseconds(event['ts'])
            times += [start, start + nanoseconds(event['dur'])]
    return (min(times), max(times)) if times else None


def counts(document):
    """{(phase, category): number of events}"""
    return Counter((e.get('ph'), e.get('cat')) for e in document['traceEvents'])


# ---- writing ----

def quoted(text, escape=False):
    """A JSON string; with `escape` every character becomes \\uXXXX, with surrogate pairs where needed."""
    if not escape:
        return json.dumps(text, ensure_ascii=False)
    units = text.encode('utf-16-be')
    return '"' + ''.join(f'\\u{units[i]:02x}{units[i + 1]:02X}' for i in range(0, len(units), 2)) + '"'


def exponent(value):
    """The same number with the point after its first digit: 12.5 as 1.25e+1."""
    sign, digits, power = Decimal(str(value)).as_tuple()
    tail = ''.join(map(str, digits[1:])) or '0'
    return f'{"-" * sign}{digits[0]}.{tail}{random.Random(str(value)).choice("eE")}{power + len(digits) - 1:+d}'


NUMBERS = {
    'plain': str,
    'strings': lambda v: f'"{v}"',
    'floats': lambda v: f'{v}.000' if isinstance(v, int) else f'{v}00',
    'exponents': exponent,
}


class Style:
    """The spelling of a document; every style of a document must give the same answers."""

    def __init__(self, numbers='plain', escape=None, shuffle=None, unknown=False, space=''):
        """escape: 'names' for the names of events, 'all' for every key and text."""
        self.number, self.escape, self.unknown, self.space = NUMBERS[numbers], escape, unknown, space
        self.random = None if shuffle is None else random.Random(shuffle)

    def strange(self):
        """Unknown members that would mislead a reader which searches for words."""
        inner = {'ts': -5, 'dur': 7, 'ph': 'X', 'cat': 'kernel', 'args': {'correlation': 1, 'stream': 3}, '}': ']"\\'}
        return {'Extra': [inner, [[]], {}, None, True, False, '{"traceEvents":[', 1e-7], 'tsx': 9, 'du': 8, 'ph2': 'Z'}

    def text(self, value, key=None):
        space = self.space
        if isinstance(value, dict):
            rows = list(value.items())
            if self.unknown and 'name' in value and 'ts' in value:
                rows = rows[:2] + list(self.strange().items()) + rows[2:]
            if self.random:
                self.random.shuffle(rows)
            inside = f',{space}'.join(f'{self.text(k)}{space}:{space}{self.text(v, k)}' for k, v in rows)
            return f'{{{space}{inside}{space}}}'
        if isinstance(value, list):
            return f'[{space}' + f',{space}'.join(map(self.text, value)) + f'{space}]'
        if isinstance(value, str):
            return quoted(value, self.escape == 'all' or self.escape == 'names' and key == 'name')
        if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
            return self.number(value)
        return json.dumps(value)


class Trace:
    """A trace under construction: int or Decimal microseconds; process and main thread are 100 by default."""

    def __init__(self, pid=100, **top):
        self.pid, self.events, self.top = pid, [], {'schemaVersion': 1, **top}

    def add(self, cat, name, ts, dur=None, tid=None, ph='X', pid=None, args=None, **more):
        event = {'ph': ph, 'cat': cat, 'name': name, 'pid': self.pid if pid is None else pid,
                 'tid': self.pid if tid is None else tid, 'ts': ts, 'dur': dur, 'args': args, **more}
        self.events.append({k: v for k, v in event.items() if v is not None})
        return self

    def stage(self, name, ts, dur, **more):
        return self.add('user_annotation', name, ts, dur, **more)

    def operator(self, name, ts, dur, external=None, cat='cpu_op', **more):
        return self.add(cat, name, ts, dur, args={} if external is None else {'External id': external}, **more)

    def call(self, ts, correlation, dur=2, name='cudaLaunchKernel', cat='cuda_runtime', **more):
        return self.add(cat, name, ts, dur, args={'cbid': 211, 'correlation': correlation}, **more)

    def kernel(self, name, ts, dur, correlation=None, external=None, stream=7, device=0, cat='kernel', **more):
        args = {'device': device, 'context': 1, 'stream': stream, 'correlation': correlation, 'External id': external}
        return self.add(cat, name, ts, dur, pid=device, tid=stream,
                        args={k: v for k, v in args.items() if v is not None}, **more)

    def launch(self, name, ts, correlation, dur=10, delay=5, stream=7, device=0, **where):
        """A call and the kernel that it launches."""
        self.call(ts, correlation, **where)
        return self.kernel(name, ts + delay, dur, correlation, stream=stream, device=device)

    def arrow(self, number, forward, backward):
        """An arrow from a forward operator, (thread, time), to a backward one."""
        for ph, (tid, ts) in (('s', forward), ('f', backward)):
            self.add('fwdbwd', 'fwdbwd', ts, tid=tid, ph=ph, id=number, **({'bp': 'e'} if ph == 'f' else {}))
        return self

    @property
    def document(self):
        return Document({**self.top, 'traceEvents': self.events})

    def text(self, style=None):
        return (style or Style()).text(self.document)

    def write(self, path, style=None):
        """Writes the trace, compressed if the name ends in .gz."""
        data = self.text(style).encode()
        path.write_bytes(gzip.compress(data, mtime=0) if path.name.endswith('.gz') else data)
        return path


def sample():
    """A trace with everything: three stages, one of them twice and nested, two threads, two streams, every rule."""
    t = Trace(distributedInfo={'backend': 'nccl', 'rank': 3, 'world_size': 8})
    t.stage('ProfilerStep#4', 1000, 500).stage('forward', 1010, 200)
    t.stage('inner "ü" \U0001F600', 1050, Decimal('60.125'))
    t.operator('aten::mm', 1060, 20, external=11).launch('gemm<float>', 1062, 21, dur=Decimal('12.001'))
    t.launch('gemm<float>', 1072, 22, dur=Decimal('14.5')).launch('relu', 1120, 23, dur=3, stream=9)
    t.operator('aten::sum', 1130, 20, external=12).launch('reduce', 1140, 24, dur=Decimal('7.25'))
    t.operator('SumBackward0', 1300, 30, external=13, tid=200).launch('reduce_backward', 1310, 25, dur=30, tid=200)
    t.arrow(1, (100, 1130), (200, 1300))
    t.launch('ncclKernel_AllReduce', 1400, 26, dur=40, stream=20, tid=300)
    t.stage('ProfilerStep#5', 1600, 300).stage('forward', 1610, 100).stage('forward', 1620, 20)
    t.launch('gemm<float>', 1625, 27, dur=11).launch('gemm<float>', 1720, 28, dur=13)
    t.call(1730, 29, name='cudaMemcpyAsync').kernel('Memcpy HtoD (Pinned -> Device)', 1740, 6, 29, cat='gpu_memcpy')
    t.call(1735, 30, name='cudaMemsetAsync').kernel('Memset (Device)', 1742, 2, 30, cat='gpu_memset')
    t.kernel('orphan', 1990, 5, 31)
    return t
