"""comm_traces - jobs of several ranks as Kineto traces with known collectives, made from a seed.

`job` makes a job of synthetic events, `derived` makes the ranks of a job from one real trace. Both depend only on their
arguments, so tests/data can hold other tools' figures of the same job.
"""

import copy
import gzip
import json
import random
import re

BASE = 1711964646000000000
# Name in the trace, words in the kernel's name, and elements in and out of rank `r` of `n` ranks with `e` elements
# each.
KINDS = [
    ('allreduce', 'AllReduce_Sum_f32_RING_LL', lambda n, e, r: (e, e)),
    ('_allgather_base', 'AllGather_RING_LL', lambda n, e, r: (e, e * n)),
    ('_reduce_scatter_base', 'ReduceScatter_Sum_bf16_RING_LL', lambda n, e, r: (e * n, e)),
    ('all_to_all', 'SendRecv', lambda n, e, r: (e * n, e * n)),
    ('broadcast', 'Broadcast_RING_LL', lambda n, e, r: (e, e)),
    ('allreduce_coalesced', 'AllReduce_Sum_f32_TREE_LL', lambda n, e, r: (e, e)),
    ('_reduce_oop', 'Reduce_Sum_f32_RING_LL', lambda n, e, r: (e, e)),
    ('all_to_allv', 'SendRecv', lambda n, e, r: (e * n + 13 * r, e * n + 7 * r)),
    ('all_gather_into_tensor_coalesced', 'AllGather_RING_LL', lambda n, e, r: (e, e * n)),
]
TYPES = [('Float', 4), ('BFloat16', 2), ('Long', 8), ('Byte', 1)]


def us(ns):
    """A time in Kineto's form: a number with three decimals."""
    return ns / 1000


def event(category, name, start, end, tid, pid, **args):
    return {'ph': 'X', 'cat': category, 'name': name, 'pid': pid, 'tid': tid, 'ts': us(start), 'dur': us(end - start),
            'args': args}


def write(path, rank, world, events, base=BASE, **more):
    """Writes a trace; with `base` None its times have no base."""
    trace = {'schemaVersion': 1, 'deviceProperties': [], **more}
    trace['distributedInfo'] = {'backend': 'nccl', 'rank': rank, 'world_size': world}
    if base is not None:
        trace['baseTimeNanoseconds'] = base
    path.write_text(json.dumps({**trace, 'traceEvents': events}))
    return path


def collective(description, number, arrive, end, rank, stream=20, kernel='AllReduce', sequence=None):
    """The operator, the call and the kernel of one collective on one rank."""
    external, described = 100 + 10 * number, dict(description)
    if sequence is not None:
        described['Seq'] = sequence
    call = arrive - 30_000
    return [event('cpu_op', 'record_param_comms', call, call + 9_000, 1, 500 + rank, **{'External id': external}, **described),
            event('cuda_runtime', 'cudaLaunchKernelExC', call + 2_000, call + 5_000, 1, 500 + rank, correlation=number + 1,
                  **{'External id': external}),
            event('kernel', f'ncclDevKernel_{kernel}(ncclDevKernelArgsStorage<4096ul>)', arrive, end, stream, rank,
                  correlation=number + 1, stream=stream, device=rank, **{'External id': external}, **described)]


def description(name, elements, dtype, size, group, ranks):
    return {'Collective name': name, 'In msg nelems': elements[0], 'Out msg nelems': elements[1], 'Group size': size,
            'dtype': dtype, 'In split size': '[]', 'Out split size': '[]', 'Process Group Name': group,
            'Process Group Description': f'group {group}', 'Process Group Ranks': str(ranks)}


def skewed(path, offset, drift, host):
    """The trace as it would be on a host whose clock is `offset` nanoseconds ahead at its time zero, and gains `drift`."""
    trace = json.loads(path.read_text())
    trace['host_name'] = host
    for e in trace['traceEvents']:
        start, end = (round(1000 * t) for t in (e['ts'], e['ts'] + e['dur']))
        start, end = (t + offset + round(drift * t) for t in (start, end))
        e['ts'], e['dur'] = us(start), us(end - start)
    path.write_text(json.dumps(trace))


def job(directory, world=4, count=40, seed=7, sequences=False, skip=None, base=BASE):
    """Writes traces of `world` ranks into `directory`: `count` collectives of all ranks and of each half of them.

    Returns the paths and the truth: each collective's description and its (start, end) by rank. `skip(rank, number)`
    leaves a collective out of a rank's trace."""
    rng = random.Random(seed)
    halves = [list(range(world // 2)), list(range(world // 2, world))]
    events, truth = {rank: [] for rank in range(world)}, []
    at, issued = 1_000_000_000, {}
    for number in range(count):
        name, kernel, elements = rng.choice(KINDS)
        which = rng.choice(['0', '0', '1'])
        dtype, bytes_ = rng.choice(TYPES)
        size = rng.randrange(1, 1 << 20)
        for group, ranks in [('0', list(range(world)))] if which == '0' else [('1', halves[0]), ('2', halves[1])]:
            sequence = issued[group] = issued.get(group, 0) + 1
            say = {r: description(name, elements(len(ranks), size, r), dtype, len(ranks), group, ranks) for r in ranks}
            came = {rank: at + rng.randrange(200_000) for rank in ranks}
            over = max(came.values()) + rng.randrange(50_000, 400_000)
            ends = {rank: over + rng.randrange(2_000) for rank in ranks}
            for rank in ranks:
                if not skip or not skip(rank, number):
                    events[rank] += collective(say[rank], number, came[rank], ends[rank], rank, 20 + int(group), kernel,
                                               sequence if sequences else None)
            truth.append({'say': say, 'bytes': bytes_, 'seq': sequence, 'spans': {r: (came[r], ends[r]) for r in ranks}})
        at += 1_000_000
    paths = [write(directory / f'rank{rank}.json', rank, world, events[rank], base) for rank in range(world)]
    return paths, truth


def derived(source, directory, world=3):
    """Writes ranks of one real trace, with only its collectives.

    In rank r each NCCL kernel starts later, by a number that follows from its place, and ends at the same time or a
    little later."""
    data = source.read_bytes()
    trace = json.loads(gzip.decompress(data) if data[:2] == b'\x1f\x8b' else data)
    trace['traceEvents'] = [e for e in trace['traceEvents'] if re.match('nccl|record_param_comms', str(e.get('name')))]
    paths = []
    for rank in range(world):
        other, place = copy.deepcopy(trace), 0
        other['distributedInfo'] = {**(other.get('distributedInfo') or {}), 'rank': rank, 'world_size': world}
        for e in other['traceEvents']:
            if e.get('cat') == 'kernel' and 'nccl' in e['name']:
                later = min((place * 7 + rank * 5) % 11 * rank, e['dur'] / 2)
                e['ts'], e['dur'] = e['ts'] + later, round(e['dur'] - later + (place + rank) % 3, 3)
                if isinstance(e['ts'], float):
                    e['ts'] = round(e['ts'], 3)
                place += 1
        paths.append(directory / f'rank{rank}.json')
        paths[-1].write_text(json.dumps(other))
    return paths
