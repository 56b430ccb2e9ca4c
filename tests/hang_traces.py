"""hang_traces - traces of jobs of several ranks that were killed inside collectives, written by tests/tfr.py.

A rank is a list of calls. Each has a group, its number in the group, an operation, a count and a type, and is done,
enqueued, or still open in the slot. Nothing here uses code of the analyser.
"""

import os
from types import SimpleNamespace

import tfr
from tfr import Writer, rec

FUNCTIONS = {'all_reduce': 'ncclAllReduce', 'all_gather': 'ncclAllGather', 'broadcast': 'ncclBroadcast', 'reduce': 'ncclReduce', 'send': 'ncclSend',
             'recv': 'ncclRecv', 'reduce_scatter': 'ncclReduceScatter'}
FLOAT, DOUBLE = 7, 8
MAIN, TID = 1, 100
BASE = 10 ** 18
STEP = 1_000_000  # ns between two calls


def call(op, seq, group=0xabc, count=1000, type=FLOAT, open=False, peer=-1, time=None):
    return SimpleNamespace(op=op, seq=seq, group=group, count=count, type=type, open=open, peer=peer, time=time)


def func(w, name, arguments=''):
    return w.string(f'nccl\x1f{"COMMUNICATOR" if arguments else "COLLECTIVE"}\x1f{name}\x1f{arguments}')


def write_rank(directory, rank, calls, world=8, groups=None, realtime=BASE, host='elsewhere', inside=None, stage=None,
               frames=None, raised=None, aborted=None, footer=None, quiet=True, live=True, drops=None, info=None, end=None):
    """Writes the trace of a rank that was killed, or that ended for the reason `footer`.

    groups: {group: its ranks}, 0xabc of all ranks by default; inside: (function, time) of an open call; frames: [(function, file, line)] of the silent main thread;
    raised: (type, [(function, file, line)]) of an exception that left it; aborted: frames that abort() read, before its last call."""
    w = Writer(rank=rank, world=world, pid=1000 + rank, clock='monotonic', host=host, boot='00000000-0000-0000-0000-000000000000',
               **(info or {}))
    w.chunk([c for t in (0, 10 ** 12) for c in tfr.clocks(t, t, realtime + t)])
    records = [rec('thread', serial=MAIN, tid=TID, name=w.string('python'), pthread=1, time=1)]
    groups = groups or {group: list(range(world)) for group in {0xabc} | {c.group for c in calls}}
    made = func(w, 'ncclCommInitRank', arguments='comm:ADDRESS,communicator:HEX,rank:INT,ranks:INT')
    records += [rec('call', func=made, time=2, duration=1, args=[1, group, ranks.index(rank), len(ranks)])
                for group, ranks in groups.items() if rank in ranks]
    slot = {}
    for i, c in enumerate(calls):
        at = c.time if c.time is not None else STEP * (i + 1)
        if c.open:
            inside = (FUNCTIONS[c.op], at)
            slot = {'collective': (c.group, c.seq, c.count * 4, c.peer, 1, c.count, c.type, 0)}
            continue
        records.append(rec('collective', func=func(w, FUNCTIONS[c.op]), time=at, duration=1000, communicator=c.group,
                           sequence=c.seq, bytes=c.count * 4, count=c.count, type=c.type, reduction=0, peer=c.peer, rank=groups[c.group].index(rank),
                           ranks=len(groups[c.group]), error=0, flags=0))
    if frames:
        last = max((r.values['time'] for r in records), default=1) + 2000
        records.append(rec('silence', thread=MAIN, time=last + 6 * 10 ** 9, since=last, tid=TID, stack=w.stack(*frames), reading=1))
    if raised:
        last = max((r.values['time'] for r in records), default=1) + 1000
        records.append(rec('silence', thread=MAIN, time=last, since=last, tid=TID, stack=w.stack(*raised[1]), reading=10, exception=w.string(raised[0])))
    if aborted:
        last = max(r.values['time'] for r in records)
        records.append(rec('silence', thread=MAIN, time=last - 1000, since=last - 2000, tid=TID, stack=w.stack(*aborted), reading=1, flags=2))
    calls_in = [(inside[1], func(w, inside[0]))] if inside else []
    used = [tfr.pack_slot(MAIN, TID, calls_in, [(STEP, w.string(stage))] if stage else [], **slot)]
    w.chunk([r for r in records if r.kind != 'silence'], thread=MAIN, tid=TID)
    if frames or raised or aborted:
        w.chunk([r for r in records if r.kind == 'silence'])
    if end:
        w.chunk([c for c in tfr.clocks(end, end, realtime + end)])
    path = directory / f'rank{rank}.{host}.{1000 + rank}.tfr'
    if footer:
        w.footer(footer, **{f'drop.{k}': v for k, v in (drops or {}).items()})
    w.flush_strings()
    w.save(path)
    if live and not footer:
        beside = path.with_name(path.name + '.live')
        beside.write_bytes(tfr.pack_live(w, [], used=used, drops=drops))
        if quiet:
            os.utime(beside, (1, 1))
    if quiet:
        os.utime(path, (1, 1))
    return path
