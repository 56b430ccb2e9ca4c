"""random_traces - random traces, and slow answers about them, which tests compare with tfanalyze's.

Run as a program it writes the fixture of tests/unit/analysis_damage.c into the given directory.
"""

import random
import sys
from pathlib import Path

from tfr import KINDS, NESTED, STAGE, UNTRACKED, OPEN, CLOSED, CHUNK, Record, Writer, rec, clocks, end_of, pack_live, pack_rows


# ---- slow answers ----

def ended_later(number, begins):
    """True if a later nested range of the thread was opened at the same or a lower depth."""
    r, v = begins[number], begins[number].values
    return bool(v['flags'] & NESTED) and any(
        o.thread == r.thread and o.values['flags'] & NESTED and o.values['depth'] <= v['depth'] and
        (o.values['time'], n) > (v['time'], number) for n, o in begins.items())


def ranges(records, clock, last):
    """Finished and unfinished ranges, without those of an unknown end: dicts with name, thread, start, end, flags."""
    begins = {r.values['id']: r for r in records if r.kind == 'range_begin'}
    ended, out = set(), []
    for r in records:
        if r.kind == 'range_end':
            v = r.values
            start = clock(v['time'] - v['duration'])
            if v['flags'] & UNTRACKED:
                if v['id'] not in begins:
                    continue
                start = clock(begins[v['id']].values['time'])
            ended.add(v['id'])
            out.append(dict(name=v['name'], thread=v['thread'], start=start, end=clock(v['time']), flags=v['flags'],
                            depth=v['depth'], id=v['id'], unfinished=False))
    for number, r in begins.items():
        if number not in ended and not ended_later(number, begins):
            v = r.values
            out.append(dict(name=v['name'], thread=r.thread, start=clock(v['time']), end=max(last, clock(v['time'])),
                            flags=v['flags'], depth=v['depth'], id=number, unfinished=True))
    return out


AFTER = ('call', 'correlation', 'io', 'op', 'collective', 'framework_collective')  # kinds whose duration follows their time


def span(records, clock, kinds=None):
    """First and last time of a process. Readings of clocks, samples, its start and sums of the run extend only the end."""
    first = last = None
    for r in records:
        kind = (kinds or KINDS).get(r.kind)
        time = next((f.name for f in kind.fields if f.type == 'TICKS'), None) if kind else None
        if time is None:
            continue
        start = end = r.values[time]
        if r.kind in AFTER:
            end += r.values['duration']
        if r.kind == 'range_end':
            start -= r.values['duration']
        if r.kind not in ('clock', 'device_sample', 'process_sample', 'sample', 'startup', 'aggregate', 'kept'):
            first = start if first is None else min(first, start)
        last = end if last is None else max(last, end)
    return (clock(last if first is None else first), clock(last)) if last is not None else None


def stages(all_ranges, window=None):
    """{name: [calls, host, self, hosts, selves]} of one process, by comparing every pair of a thread's ranges."""
    low, high = window or (None, None)
    threads, out = {}, {}
    for r in all_ranges:
        if not r['flags'] & STAGE:
            continue
        start, end = r['start'], r['end']
        if window:
            if start >= high or end < low or (end == low and start < low):
                continue
            start, end = max(start, low), min(end, high)
        order = r['start'], -r['end'], r['depth'], r['id']  # the order of opening does not depend on the window
        threads.setdefault(r['thread'], []).append(dict(r, start=start, end=end, order=order))
    for members in threads.values():
        members.sort(key=lambda r: r['order'])
        children = {i: [] for i in range(len(members))}
        for i, r in enumerate(members):
            parents = [k for k in range(i) if members[k]['end'] > r['start']]
            if parents:
                children[parents[-1]].append(i)
        by_name = {}
        for i, r in enumerate(members):
            by_name.setdefault(r['name'], []).append((r['start'], r['end']))
            row = out.setdefault(r['name'], [0, 0, 0, [], []])
            own = (r['end'] - r['start']) - union([(members[c]['start'], min(members[c]['end'], r['end'])) for c in children[i]])
            row[0] += 1
            row[2] += own
            row[3].append(r['end'] - r['start'])
            row[4].append(own)
        for name, spans in by_name.items():
            out[name][1] += union(spans)
    return out


def union(spans):
    total, until = 0, None
    for start, end in sorted(spans):
        if until is None or start > until:
            until = start
        if end > until:
            total += end - until
            until = end
    return total


# ---- random traces ----

def random_value(rng, f, strings):
    if f.type in ('STRING', 'FUNC'):
        return rng.choice(strings)
    if f.name == 'flags':
        return rng.choice([1, 2, 3, 0x203, 0])
    bits = rng.choice([0, 1, 7, 13, 31, 8 * f.size - 1])
    value = rng.getrandbits(bits) if bits else 0
    return -value if f.signed and rng.random() < 0.4 else value


NOT_RANDOM = ('clock', 'rank', 'drop', 'thread', 'thread_name')


def random_records(rng, count, writer, kinds=None, start=1_000_000):
    """Records of all kinds with increasing times, for tests that ignore their meaning."""
    names = [writer.string(f'name {i}') for i in range(5)]
    stacks = [0] + [writer.stack(*((f'f{k}', 'a.py', k) for k in range(i, i + 3))) for i in range(4)]  # as many as names, so a seed still gives the same trace
    funcs = [writer.string(f'libx\x1fCLASS\x1ffunction{i}\x1fsize:BYTES,where:ADDRESS,n:INT') for i in range(3)]
    time, out = start, []
    choices = [k for k in (kinds or writer.kinds) if k not in NOT_RANDOM]
    kind = rng.choice(choices)
    for _ in range(count):
        if rng.random() < 0.5:
            kind = rng.choice(choices)
        values = {}
        for f in writer.kinds[kind].fields:
            if f.codec == 'LIST':
                values[f.name] = [rng.getrandbits(rng.choice([3, 20, 64])) for _ in range(rng.choice([0, 1, 3, 11]))]
            elif f.type == 'TICKS':
                time += rng.randrange(1, 5000)
                values[f.name] = time
            elif f.type == 'DURATION':
                values[f.name] = rng.randrange(0, 900)
            elif f.type in ('FUNC', 'STACK'):
                values[f.name] = rng.choice(funcs if f.type == 'FUNC' else stacks)
            else:
                values[f.name] = random_value(rng, f, names)
        out.append(Record(kind, values))
    return out


def random_stages(rng, writer, threads=2, depth=4, per_thread=40, started=True, start=10_000_000, unfinished=0.05):
    """Push/pop and start/end ranges with their own times: {thread: [records]}."""
    names = [writer.string(n) for n in ('denoise', 'step', 'vae_decode', 'text encode', 'step')]
    number, out = 0, {}
    for thread in range(1, threads + 1):
        time, open_, records, pending = start + 10 * rng.randrange(100), [], [], []
        for _ in range(per_thread):
            time += rng.choice([0, 40, 50, 1000, 100000])  # no two within a nanosecond, except at the same tick
            number += 1
            dice = rng.random()
            if dice < 0.45 and len(open_) < depth:
                flags = NESTED | (STAGE if rng.random() < 0.9 else 0)
                b = rec('range_begin', name=rng.choice(names), time=time, id=thread << 40 | number, flags=flags, depth=len(open_))
                records.append(b)
                open_.append(b)
            elif dice < 0.55 and started:
                b = rec('range_begin', name=rng.choice(names), time=time, id=1 << 60 | number, flags=STAGE)
                records.append(b)
                pending.append(b)
            elif dice < 0.65 and pending:
                records.append(end_of(pending.pop(rng.randrange(len(pending))), time, thread))
            elif open_:
                b = open_.pop()
                if rng.random() >= unfinished:
                    records.append(end_of(b, time, thread))
        out[thread] = records
    return out


def generator(seed):
    return random.Random(seed)


# ---- the fixture of tests/unit/analysis_damage.c ----

def everything(seed=1, chunks=12, records=60, footer=True):
    """A trace of many chunks of all kinds and codecs, rows and columns, packed and not."""
    rng = generator(seed)
    w = Writer(clock='tsc')
    w.chunk(clocks(0, 1, 10 ** 18) + clocks(10 ** 9, 10 ** 9, 2 * 10 ** 18), form='rows')
    for i in range(chunks):
        w.chunk(random_records(rng, records, w), thread=i % 3 + 1, tid=i % 3 + 100, form=rng.choice(['rows', 'columns']),
                deflate=rng.random() < 0.7)
        w.string(f'another {i}')
        if i == chunks // 2:
            for thread, ranges_ in random_stages(rng, w).items():
                w.chunk(ranges_, thread=thread, tid=thread + 100)
    if footer:
        w.footer()
    return w


def write_fixture(directory):
    """Writes trace.tfr, trace.tfr.live and truth: `serial records from to` a chunk, `live` before live ones."""
    directory = Path(directory)
    w = everything(seed=3, chunks=8, records=40, footer=False)
    rng = generator(2)
    each = [random_records(rng, 1, w, [kind], 1_000_000 + 10_000 * i)[0] for i, kind in enumerate(KINDS) if kind not in NOT_RANDOM]
    w.chunk(each, thread=1, tid=100)
    assert {r.kind for r in w.records} >= set(KINDS) - {'rank', 'drop', 'thread', 'thread_name'}
    live = [dict(records=random_records(rng, 30, w), serial=w.serial + 1 + i, thread=i % 3 + 1, tid=i % 3 + 100,
                 state=CLOSED if i else OPEN, large=i % 2) for i in range(5)]
    w.save(directory / 'trace.tfr')
    data = pack_live(w, live, small=8192, large=16384)
    (directory / 'trace.tfr.live').write_bytes(data)
    lines = [f'{b.serial} {b.records} {b.offset} {b.end}' for b in w.blocks if b.type == CHUNK]
    for c in live:
        rows = pack_rows(c['records'])
        at = data.index(rows)
        lines.append(f'live {c["serial"]} {len(c["records"])} {at - 64} {at + len(rows)}')
    (directory / 'truth').write_text('\n'.join(lines) + '\n')


if __name__ == '__main__':
    write_fixture(sys.argv[1])
