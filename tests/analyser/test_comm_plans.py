"""test_comm_plans - what describes collectives beside their calls and names: NCCL's plugin, also by an enemy, and torch's arguments.

The recording itself is tested in tests/gpu/test_nccl_plugin.py.
"""

import random

import kineto
import tfr
from tfr import rec

FUNC = 'nccl\x1fCOLLECTIVE\x1fncclAllReduce\x1f'
GROUP = 'nccl\x1fGROUP\x1fncclGroup%s\x1f'


def collective(w, time, communicator, sequence, count, **more):
    return rec('collective', **{**dict(func=w.string(FUNC), time=time, duration=900, communicator=communicator, sequence=sequence,
                                       bytes=4 * count, count=count, type=7, reduction=0, peer=-1, rank=0, ranks=1, error=0, flags=0,
                                       stack=0, stream=0), **more})


def plan(w, time, communicator, count, channels, **more):
    return rec('nccl_plan', **{**dict(function=w.string('AllReduce'), time=time, communicator=communicator, sequence=0, bytes=4 * count,
                                      algorithm=w.string('TREE'), protocol=w.string('LL'), peer=0, rank=0, ranks=1, channels=channels,
                                      warps=16), **more})


def call(w, name, time, duration):
    return rec('call', func=w.string(GROUP % name), time=time, duration=duration, args=[])


def trace(path, *threads, **more):
    """A trace of the writer's records; `threads` are functions that make them."""
    w = tfr.Writer(**more)
    for serial, make in enumerate(threads, 1):
        made = make(w)
        if serial == 1:
            made += [rec('clock', clock=tfr.MONOTONIC, ticks=t, value=t) for t in (0, 10 ** 9)]
        made.insert(0, rec('thread', serial=serial, tid=4242 + serial, time=0, name=w.string('main')))
        for r in made:
            r.values = {f.name: r.values.get(f.name, 0) for f in w.kinds[r.kind].fields}
        w.chunk(made, thread=serial, tid=4242 + serial)
    w.footer()
    return w.save(path)


def rows(analyze, path):
    return {(r['group'], r['seq']): (r['algorithm'], r['protocol'], r['channels']) for r in analyze('comm', path)['rows']}


def test_a_large_group(analyze, tmp_path):
    """20,000 collectives of two communicators in one group get their own plans, in whatever order NCCL made them."""
    def make(w):
        members = [(7 + i % 2, 1 + i // 2, 1 + i) for i in range(20_000)]
        made = []
        for c in (7, 8):  # one call of each shows which communicator is which
            made += [collective(w, 10_000 * c, c, 0, 5), plan(w, 10_000 * c + 100, 100 + c, 5, 1)]
        made.append(call(w, 'Start', 100_000, 10))
        made += [collective(w, 200_000 + 1000 * i, c, s, n) for i, (c, s, n) in enumerate(members)]
        made.append(call(w, 'End', 30_000_000, 900_000))
        shuffled = random.Random(5).sample(members, len(members))
        return made + [plan(w, 30_000_001 + i, 100 + c, n, 1 + n % 200) for i, (c, s, n) in enumerate(shuffled)]

    found = rows(analyze, trace(tmp_path / 'rank0.tfr', make))
    assert len(found) == 20_002
    for i in range(20_000):
        assert found[f'0x{7 + i % 2:016x}', 1 + i // 2] == ('TREE', 'LL', 1 + (1 + i) % 200)


def test_unknown_communicators_get_nothing(analyze, tmp_path):
    """In a group of two communicators that no other call tells apart, no plan is guessed; in one of a single one it is."""
    def make(w):
        return [call(w, 'Start', 100, 10), collective(w, 2000, 7, 0, 5), collective(w, 4000, 8, 0, 5), call(w, 'End', 9000, 900),
                plan(w, 9100, 107, 5, 3), plan(w, 9200, 108, 5, 4),
                call(w, 'Start', 20_000, 10), collective(w, 22_000, 9, 0, 5), call(w, 'End', 29_000, 900), plan(w, 29_100, 109, 5, 6)]

    found = rows(analyze, trace(tmp_path / 'rank0.tfr', make))
    assert [found[f'0x{c:016x}', 0] for c in (7, 8, 9)] == [(None,) * 3, (None,) * 3, ('TREE', 'LL', 6)]


def test_records_of_an_enemy(analyze, tmp_path):
    """Impossible numbers are unknown; plans of other operations, threads and times belong to nothing."""
    def make(w):
        made = [collective(w, 10_000 * i, 7, i, 5) for i in range(1, 7)]
        return made + [plan(w, 10_100, 107, 5, 0xffffffff), plan(w, 20_100, 107, 5, 0, algorithm=0, protocol=0),
                       plan(w, 30_100, 107, 5, 3, function=w.string('Broadcast')), plan(w, 41_000, 107, 5, 3),
                       plan(w, 2 ** 64 - 1, 107, 5, 3), plan(w, 50_100, 107, 2 ** 60, 9, peer=-2 ** 31, rank=-1, ranks=2 ** 32 - 1)]

    def other(w):
        return [plan(w, 60_100, 107, 5, 3)]

    found = rows(analyze, trace(tmp_path / 'rank0.tfr', make, other))
    want = [('TREE', 'LL', None), (None,) * 3, (None,) * 3, (None,) * 3, ('TREE', 'LL', 9), (None,) * 3]
    assert [found[f'0x{7:016x}', i] for i in range(1, 7)] == want


# ---- kernels that only their descriptions tell from others ----

def test_a_kernel_that_the_trace_describes_as_a_collective_communicates(analyze, tmp_path):
    """Whatever its name is, by our rules; TraceLens and HTA go by names. A description of no operation says nothing."""
    trace = kineto.Trace(distributedInfo={'rank': 0, 'world_size': 2}).operator('record_param_comms', 10, 70, external=1)
    for correlation, (name, collective, dur) in enumerate((('oneshot<float>', 'allreduce', 10), ('oneshot<float>', 'all_reduce', 30),
                                                           ('setup', 'init', 100), ('gemm', None, 1000)), 1):
        trace.call(10 * correlation, correlation, dur=1).kernel(name, 2000 * correlation, dur, correlation)
        if collective:
            trace.events[-1]['args'].update({'Collective name': collective, 'In msg nelems': 8, 'Out msg nelems': 8, 'Group size': 2,
                                             'dtype': 'Float', 'Process Group Name': '0', 'Process Group Ranks': '[0, 1]'})
    path = trace.write(tmp_path / 'trace.json')
    [row] = analyze('timeline', path)['rows']
    assert (row['communication_us'], row['computation_us']) == (40, 1100)
    for rules, keys in (('tracelens', ('communication_us', 'computation_us')), ('hta', ('non_compute_us', 'compute_us'))):
        [row] = analyze('timeline', '--rules', rules, path)['rows']
        assert [row[k] for k in keys] == [0, 1140]
    assert {r['kind']: r['total_us'] for r in analyze('kinds', path)['rows']} == {'COMPUTATION': 1100, 'COMMUNICATION': 40}
    for command, more in (('breakdown', []), ('diff', [path])):
        assert {r['name']: r['kind'] for r in analyze(command, path, *more)['rows']} == \
            {'oneshot<float>': 'COMMUNICATION', 'setup': 'COMPUTATION', 'gemm': 'COMPUTATION'}
    assert analyze('steps', path)['rows'][0]['communication_us'] == 40
    bare = kineto.Trace().call(1, 1).kernel('oneshot<float>', 10, 50, 1).write(tmp_path / 'bare.json')
    for pair in ((path, bare), (bare, path)):  # one row, although only one run has descriptions
        [row] = [r for r in analyze('diff', *pair)['rows'] if r['name'] == 'oneshot<float>']
        assert (row['kind'], sorted((row['calls_a'], row['calls_b']))) == ('COMMUNICATION', [1, 2])
    assert [(r['name'], r['bytes'], r['duration_us']) for r in analyze('comm', path, rc=3)['rows']] == [('all_reduce', 32, 10), ('all_reduce', 32, 30)]
    trace.events = [e for e in trace.events if e['ts'] < 3000 and e['name'] not in ('setup', 'gemm')]
    bounds = {r['kind']: r['total_us'] for r in analyze('critical-path', trace.write(path), rc=None)['rows']}
    assert bounds['gpu_communication_bound'] == 10 and 'gpu_compute_bound' not in bounds
