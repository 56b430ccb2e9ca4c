"""test_memory_allocators - every allocator of CUDA on two simulated devices: kinds, devices, peaks and leaks.

The program calls them at random, and the log of the simulated GPU says what each call did to the device. Stages are noted
as lines of that log. The tests count the expected answers from the log.
"""

import json
from collections import defaultdict

import pytest

from conftest import BUILD, built

GPU = BUILD / 'simgpu'
DEVICES = 2

PROGRAM = '''
import ctypes, json, mmap, os, random, sys
rt, cu, us = ctypes.CDLL('libcudart.so.13'), ctypes.CDLL('libcuda.so.1'), ctypes.CDLL(None)
choose, live, open_, stages, log = random.Random(int(sys.argv[1])), [], [], [], os.environ['SIMGPU_LOG']
P, Z, N, U64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint, ctypes.c_uint64
class Extent(ctypes.Structure): _fields_ = [(n, Z) for n in ('width', 'height', 'depth')]
class Pitched(ctypes.Structure): _fields_ = [('ptr', P), ('pitch', Z), ('x', Z), ('y', Z)]
class Channels(ctypes.Structure): _fields_ = [(n, ctypes.c_int) for n in 'xyzwf']
class Plane(ctypes.Structure): _fields_ = [('w', Z), ('h', Z), ('format', N), ('channels', N)]
class Property(ctypes.Structure): _fields_ = [(n, N) for n in ('type', 'handles', 'where', 'device')] + [('rest', U64 * 2)]
class Access(ctypes.Structure): _fields_ = [(n, N) for n in ('where', 'device', 'flags')]
class PoolProperty(ctypes.Structure): _fields_ = [(n, N) for n in ('type', 'handles', 'where', 'device')] + [('rest', U64 * 9)]
ref = ctypes.byref
def call(library, name, *arguments):
    f = getattr(library, name)
    return f(*arguments)
def done(library, name, *arguments): 
    rc = call(library, name, *arguments)
    assert rc == 0, (name, rc)
def lines():
    with open(log) as f: return sum(1 for _ in f)
GRANULE, device = 2 << 20, 0
def pages(most=40): return 4096 * choose.randrange(1, most)
def use(n):
    global device
    done(rt, 'cudaSetDevice', n); device = n
pools = []
for n in range(2):
    pool = P()
    done(rt, 'cudaMemPoolCreate', ref(pool), ref(PoolProperty(1, 0, 1, n)))
    pools.append(pool)

def plain(library, name, *more):
    def make():
        a = P()
        done(library, name, ref(a), Z(pages()), *more)
        return a
    return make
def pitch_rt():
    a, pitch = P(), Z()
    done(rt, 'cudaMallocPitch', ref(a), ref(pitch), Z(1000), Z(4 * choose.randrange(1, 9)))
    return a
def pitch_cu():
    a, pitch = P(), Z()
    done(cu, 'cuMemAllocPitch_v2', ref(a), ref(pitch), Z(3000), Z(4 * choose.randrange(1, 9)), N(4))
    return a
def box():
    p = Pitched()
    done(rt, 'cudaMalloc3D', ref(p), Extent(500, 8, choose.randrange(1, 5)))
    return P(p.ptr)
def array():
    a = P()
    done(rt, 'cudaMallocArray', ref(a), ref(Channels(32, 32, 0, 0, 2)), Z(512), Z(choose.randrange(1, 9)), N(0))
    return a
def array3():
    a = P()
    done(rt, 'cudaMalloc3DArray', ref(a), ref(Channels(8, 8, 8, 8, 1)), Extent(1024, 3, choose.randrange(1, 5)), N(0))
    return a
def array_cu():
    a = P()
    done(cu, 'cuArrayCreate_v2', ref(a), ref(Plane(2048, choose.randrange(1, 9), 0x10, 2)))
    return a
def from_pool(library, name):
    def make():
        a = P()
        done(library, name, ref(a), Z(pages()), choose.choice(pools), P(0))
        return a
    return make
kept = []
def registered(library, name):
    def make():
        kept.append(mmap.mmap(-1, pages()))
        a = P(ctypes.addressof(ctypes.c_char.from_buffer(kept[-1])))
        done(library, name, a, Z(len(kept[-1])), N(0))
        return a
    return make
def freer(library, name, *more):
    return lambda a: done(library, name, a, *more)
def virtual():
    """Physical memory of one or two handles in a range; some handles go at once, some are taken a second time."""
    parts = [choose.randrange(1, 3) * GRANULE for _ in range(choose.randrange(1, 3))]
    base, granularity, keep, n = P(), Z(), [], choose.randrange(2)
    what = Property(1, 0, 1, n)
    done(cu, 'cuMemGetAllocationGranularity', ref(granularity), ref(what), N(0))
    assert granularity.value == GRANULE
    done(cu, 'cuMemAddressReserve', ref(base), Z(sum(parts)), Z(0), U64(0), U64(0))
    at = base.value
    for size in parts:
        handle, again = U64(), U64()
        done(cu, 'cuMemCreate', ref(handle), Z(size), ref(what), U64(0))
        done(cu, 'cuMemMap', U64(at), Z(size), Z(0), handle, U64(0))
        how = choose.random()
        if how < .3: done(cu, 'cuMemRelease', handle)
        elif how < .6:
            done(cu, 'cuMemRetainAllocationHandle', ref(again), P(at + 5))
            done(cu, 'cuMemRelease', handle)
            keep.append(again)
        else: keep.append(handle)
        at += size
    done(cu, 'cuMemSetAccess', base, Z(sum(parts)), ref(Access(1, n, 3)), Z(1))
    ctypes.memset(base.value, 7, 4096)
    return base, sum(parts), keep
def end_virtual(block):
    base, size, keep = block
    if choose.random() < .5:
        while keep: done(cu, 'cuMemRelease', keep.pop())
    done(cu, 'cuMemUnmap', base, Z(size))
    if choose.random() < .8:
        while keep: done(cu, 'cuMemRelease', keep.pop())
    if choose.random() < .8: done(cu, 'cuMemAddressFree', base, Z(size))

any_free = [freer(rt, 'cudaFree'), freer(cu, 'cuMemFree_v2')]
pool_free = any_free + [freer(rt, 'cudaFreeAsync', P(0)), freer(cu, 'cuMemFreeAsync', P(0)), freer(rt, 'cudaFreeAsync_ptsz', P(0))]
host_free = [freer(rt, 'cudaFreeHost'), freer(cu, 'cuMemFreeHost')]
array_free = [freer(rt, 'cudaFreeArray'), freer(cu, 'cuArrayDestroy')]
unpin = [freer(rt, 'cudaHostUnregister'), freer(cu, 'cuMemHostUnregister')]
ways = [(plain(rt, 'cudaMalloc'), any_free), (plain(cu, 'cuMemAlloc_v2'), any_free), (plain(rt, 'cudaMallocManaged', N(1)), any_free),
        (plain(cu, 'cuMemAllocManaged', N(1)), any_free), (pitch_rt, any_free), (pitch_cu, any_free), (box, any_free),
        (plain(rt, 'cudaMallocAsync', P(0)), pool_free), (plain(rt, 'cudaMallocAsync_ptsz', P(0)), pool_free),
        (plain(cu, 'cuMemAllocAsync', P(0)), pool_free), (from_pool(rt, 'cudaMallocFromPoolAsync'), pool_free),
        (from_pool(cu, 'cuMemAllocFromPoolAsync'), pool_free), (array, array_free), (array3, array_free), (array_cu, array_free),
        (plain(rt, 'cudaMallocHost'), host_free), (plain(rt, 'cudaHostAlloc', N(0)), host_free), (plain(cu, 'cuMemAllocHost_v2'), host_free),
        (plain(cu, 'cuMemHostAlloc', N(0)), host_free), (registered(rt, 'cudaHostRegister'), unpin),
        (registered(cu, 'cuMemHostRegister_v2'), unpin), (virtual, [end_virtual]), (virtual, [end_virtual])]
def push(name):
    us.tfi_range_push(name.encode()); open_.append([name, lines(), None]); stages.append(open_[-1])
def pop():
    us.tfi_range_pop(); open_.pop()[2] = lines()
for i in range(int(sys.argv[2])):
    x = choose.random()
    if x < .1: use(choose.randrange(2))
    if x < .15 and len(open_) < 3: push(choose.choice(['load', 'denoise', 'decode']))
    elif x < .25 and open_: pop()
    elif x < .7 or not live:
        make, frees = choose.choice(ways) if i >= len(ways) else ways[i]
        live.append((make(), frees))
    else:
        block, frees = live.pop(choose.randrange(len(live)))
        choose.choice(frees)(block)
while open_: pop()
for pool in pools: done(rt, 'cudaMemPoolTrimTo', pool, Z(0))
json.dump(stages, open('stages.json', 'w'))
'''

ALLOCATORS = {'physical': 'cuda physical memory', 'mapped': 'cuda mapped memory', 'reserved': 'cuda reserved addresses',
              'registered': 'cuda registered memory'}


def changes_of(log, stages):
    """The changes in the log: kind, device (None for ranges of addresses), bytes with their sign, stages outermost first."""
    changes, live = [], {}
    for number, line in enumerate(log):
        if line['t'] != 'memory':
            continue
        kind, key = line['kind'], (line['kind'] in ALLOCATORS and line['kind'], line['address'])
        e = {'kind': kind, 'device': None if kind == 'reserved' else line['device'], 'address': line['address'], 'line': number,
             'allocator': ALLOCATORS.get(kind, 'cuda'), 'used': line['used'], 'end': None,
             'stages': [i for i, s in enumerate(stages) if s[1] <= number < s[2]],
             'bytes': line['bytes'] if line['what'] == 'alloc' else -line['bytes']}
        changes.append(e)
        if line['what'] == 'alloc':
            live[key] = e
        else:
            live.pop(key)['end'] = number
    return changes


@pytest.fixture(scope='module')
def played(request, tmp_path_factory):
    """Runs the program with a seed, once for all tests: the run directory, the changes, the stages."""
    from conftest import clean_environment, execute
    built(GPU / 'libcudart.so.13')
    known = {}

    def play(seed, calls=400):
        if seed in known:
            return known[seed]
        directory = tmp_path_factory.mktemp(f'allocators{seed}')
        (directory / 'program.py').write_text(PROGRAM)
        env = {**clean_environment(), 'LD_LIBRARY_PATH': str(GPU), 'LD_PRELOAD': str(built(BUILD / 'libtfinject.so')),
               'TFI_OUTPUT_DIR': str(directory / 'run'), 'TFI_ACTIVITIES': 'cpu,mem', 'SIMGPU_DEVICES': str(DEVICES),
               'SIMGPU_LOG': str(directory / 'truth.jsonl')}
        result = execute([request.getfixturevalue('python'), 'program.py', str(seed), str(calls)], env, directory)
        assert result.rc == 0, result.err[-3000:]
        stages = json.loads((directory / 'stages.json').read_text())
        log = [json.loads(line) for line in (directory / 'truth.jsonl').read_text().splitlines()]
        known[seed] = directory / 'run', changes_of(log, stages), stages
        return known[seed]
    return play


SEEDS = [1, 2]


def innermost(change, stages):
    return stages[change['stages'][-1]][0] if change['stages'] else '(none)'


@pytest.mark.parametrize('seed', SEEDS)
def test_each_change(played, analyze, seed):
    """Kind, device, size, address and stage of each block, and the totals after it."""
    directory, changes, stages = played(seed)
    rows = analyze('memory', '--layout', 'raw', directory)['rows']
    assert [(r['kind'], r['device'], r['bytes'], r['allocator'], r['stage']) for r in rows] == \
        [(e['kind'], e['device'], e['bytes'], e['allocator'], innermost(e, stages)) for e in changes]
    assert [int(r['address'], 0) for r in rows if r['kind'] != 'array'] == [e['address'] for e in changes if e['kind'] != 'array']
    assert {e['kind'] for e in changes} == {'device', 'managed', 'pool', 'array', 'pinned', *ALLOCATORS}
    assert {e['device'] for e in changes} == {None, -1, 0, 1}
    now = defaultdict(int)
    for r, e in zip(rows, changes):
        now[e['allocator'], e['device']] += e['bytes']
        assert r['allocated_bytes'] == now[e['allocator'], e['device']]
        if e['device'] in (0, 1):  # the device counts whole pages, and so do the sizes here
            assert now['cuda', e['device']] + now['cuda physical memory', e['device']] == e['used']


@pytest.mark.parametrize('seed', SEEDS)
def test_peaks(played, analyze, seed):
    """Of each stage and of the run, by allocator and by kind."""
    directory, changes, stages = played(seed)
    peaks, calls = defaultdict(int), defaultdict(set)
    for kinds in (False, True):
        now = defaultdict(int)
        for e in changes:
            key = e['allocator'], e['device'], e['kind'] if kinds else None
            if kinds and e['allocator'] != 'cuda':
                continue
            for i in (*e['stages'], -1):
                name = stages[i][0] if i >= 0 else '(run)'
                peaks[name, key] = max(peaks[name, key], now[key], now[key] + e['bytes'])
                calls[name, key].add(i)
            now[key] += e['bytes']
    rows = analyze('memory', '--layout', 'peaks', directory)['rows']
    assert {(r['stage'], (r['allocator'], r['device'], r['kind'])): (r['peak_allocated_bytes'], r['calls']) for r in rows} == \
        {k: (peak, len(calls[k])) for k, peak in peaks.items()}
    assert len(rows) == len(peaks)


@pytest.mark.parametrize('seed', SEEDS)
def test_leaks(played, analyze, seed):
    """By stage and kind: blocks that outlive their stage, and blocks that are never freed."""
    directory, changes, stages = played(seed)
    found = defaultdict(lambda: [0] * 4)
    for e in (e for e in changes if e['bytes'] > 0):
        outlives = bool(e['stages']) and (e['end'] is None or e['end'] >= stages[e['stages'][-1]][2])
        counts = found[innermost(e, stages), e['kind'], e['device']]
        for at, is_so in enumerate((outlives, e['end'] is None)):
            counts[2 * at] += is_so
            counts[2 * at + 1] += is_so * e['bytes']
    keys = ('outliving_blocks', 'outliving_bytes', 'leaked_blocks', 'leaked_bytes')
    rows = analyze('memory', '--layout', 'leaks', directory)['rows']
    assert {(r['stage'], r['kind'], r['device']): [r[k] for k in keys] for r in rows} == {k: v for k, v in found.items() if any(v)}


CAPTURE = '''
import ctypes, json, sys
rt = ctypes.CDLL('libcudart.so.13')
P, Z = ctypes.c_void_p, ctypes.c_size_t
def done(name, *arguments):
    own = sys.argv[1:] == ['per_thread'] and name not in ('cudaStreamCreate', 'cudaGraphInstantiate')
    rc = getattr(rt, name + '_ptsz' * own)(*arguments)
    assert rc == 0, (name, rc)
def give(size):
    a = P()
    done('cudaMallocAsync', ctypes.byref(a), Z(size), stream)
    return a
stream, graph, run = P(), P(), P()
if not sys.argv[1:]: done('cudaStreamCreate', ctypes.byref(stream))
plain = [give(8192), give(12288)]
done('cudaStreamBeginCapture', stream, 0)
of_graph = [give(1 << 20), give(3 << 20)]
done('cudaFreeAsync', of_graph[0], stream)
done('cudaStreamEndCapture', stream, ctypes.byref(graph))
done('cudaGraphInstantiate', ctypes.byref(run), graph, ctypes.c_ulonglong(0))
for i in range(2):
    done('cudaGraphLaunch', run, stream)
    done('cudaStreamSynchronize', stream)
    done('cudaFreeAsync', of_graph[1], stream)
done('cudaFreeAsync', plain[0], stream)
done('cudaStreamSynchronize', stream)
'''


@pytest.mark.parametrize('stream', [[], ['per_thread']])
@pytest.mark.parametrize('activities', ['cpu,mem', 'cpu,gpu,mem'])
def test_captured_allocations_are_no_blocks(tmp_path, python, lib, analyze, activities, stream):
    """cudaMallocAsync and cudaFreeAsync on a stream that is being captured allocate nothing: the launches of the graph do.

    The stream is a new one, or stream 0 of the functions whose default stream is the thread's own.
    """
    from conftest import clean_environment, execute
    built(GPU / 'libcudart.so.13')
    env = {**clean_environment(), 'LD_LIBRARY_PATH': str(GPU), 'LD_PRELOAD': str(lib), 'TFI_OUTPUT_DIR': str(tmp_path / 'run'),
           'TFI_ACTIVITIES': activities, 'SIMGPU_LOG': str(tmp_path / 'truth.jsonl')}
    result = execute([python, '-c', CAPTURE, *stream], env, tmp_path)
    assert result.rc == 0, result.err[-3000:]
    log = [e for e in map(json.loads, (tmp_path / 'truth.jsonl').read_text().splitlines()) if e['t'] == 'memory']
    assert [(e['what'], e['bytes']) for e in log if e['kind'] == 'graph'] == \
        [(what, n << 20) for what, n in (('alloc', 1), ('alloc', 3), ('free', 1), ('free', 3))] * 2
    rows = analyze('memory', '--layout', 'raw', tmp_path / 'run')['rows']
    assert [(r['kind'], int(r['address'], 0), r['bytes']) for r in rows] == \
        [(e['kind'], e['address'], e['bytes'] if e['what'] == 'alloc' else -e['bytes']) for e in log if e['kind'] != 'graph']
    assert [r['bytes'] for r in rows] == [8192, 12288, -8192] and rows[-1]['allocated_bytes'] == 12288
