"""test_memory_cuda - `memory` on the simulated GPU: CUDA's allocators call by call, and torch's allocator of a device.

The scripts journal each call themselves, and ask the simulated device after it how much is in use. The tests
count the expected answers from that journal.
"""

import json
from collections import defaultdict

import pytest

from conftest import BUILD, built

GPU = BUILD / 'simgpu'

CALLS = '''
import ctypes, json, random, sys
rt, cu, us = ctypes.CDLL('libcudart.so.13'), ctypes.CDLL('libcuda.so.1'), ctypes.CDLL(None)
choose, journal, live, open_ = random.Random(int(sys.argv[1])), [], [], []
P = ctypes.c_void_p
for name in ('cudaFree', 'cudaFreeHost'): getattr(rt, name).argtypes = [P]
rt.cudaFreeAsync.argtypes, cu.cuMemFree_v2.argtypes = [P, P], [P]
rt.cudaMalloc.argtypes = rt.cudaMallocHost.argtypes = cu.cuMemAlloc_v2.argtypes = [P, ctypes.c_size_t]
rt.cudaMallocAsync.argtypes, rt.cudaMallocManaged.argtypes = [P, ctypes.c_size_t, P], [P, ctypes.c_size_t, ctypes.c_uint]
rt.cudaMallocPitch.argtypes = [P, P, ctypes.c_size_t, ctypes.c_size_t]
def in_use():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert rt.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
    return total.value - free.value
rt.cudaSetDevice(0)
base = in_use()
def note(what, **more): journal.append(dict(what=what, stages=list(open_), in_use=in_use() - base, **more))
def small(how, size):
    a, pitch = P(), ctypes.c_size_t()
    if how == 'pitch': rc = rt.cudaMallocPitch(ctypes.byref(a), ctypes.byref(pitch), 512, size // 512)
    elif how == 'async': rc = rt.cudaMallocAsync(ctypes.byref(a), size, None)
    elif how == 'managed': rc = rt.cudaMallocManaged(ctypes.byref(a), size, 1)
    elif how == 'driver': rc = cu.cuMemAlloc_v2(ctypes.byref(a), size)
    elif how == 'host': rc = rt.cudaMallocHost(ctypes.byref(a), size)
    else: rc = rt.cudaMalloc(ctypes.byref(a), size)
    return rc, a.value
def large(how, size): return small(how, size)
def alloc(maker, how, size):
    rc, at = maker(how, size)
    if rc == 0: live.append((at, how, size))
    note('alloc' if rc == 0 else 'refused', rc=rc, at=at, size=size, host=how == 'host', maker=maker.__name__)
def free(block):
    at, how, size = block
    live.remove(block)
    rc = (rt.cudaFreeHost(at) if how == 'host' else rt.cudaFreeAsync(at, None) if how == 'async' else
          cu.cuMemFree_v2(at) if how == 'driver' else rt.cudaFree(at))
    assert rc == 0
    note('free', at=at, size=size, host=how == 'host')
def push(name):
    us.tfi_range_push(name.encode()); open_.append(f'{name}:{len(journal)}.{len(open_)}')
def pop():
    open_.pop(); us.tfi_range_pop(); note('end')
for i in range(400):
    x = choose.random()
    if x < .1 and len(open_) < 4: push(choose.choice(['load', 'denoise', 'decode']))
    elif x < .2 and open_: pop()
    elif x < .6 or not live:
        alloc(choose.choice([small, large]), choose.choice(['malloc', 'async', 'managed', 'driver', 'host', 'pitch']), 4096 * choose.randrange(1, 50))
    elif x < .62: alloc(large, 'malloc', 1 << 44)
    else: free(choose.choice(live))
while open_: pop()
for at, how, _ in live:  # work of the device makes the library record it
    if how == 'malloc': assert rt.cudaMemset(P(at), 0, 4096) == 0
rt.cudaDeviceSynchronize()
json.dump(journal, open('journal.json', 'w'))
'''


@pytest.fixture
def played(run, python, tmp_path):
    def played(seed):
        (tmp_path / 'calls.py').write_text(CALLS)
        result = run([python, 'calls.py', str(seed)], {'LD_LIBRARY_PATH': GPU, 'TFI_ACTIVITIES': 'cpu,gpu,mem,stack', 'SIMGPU_DEVICES': 1})
        assert result.rc == 0, result.err[-3000:]
        return result.dir, json.loads((tmp_path / 'journal.json').read_text())
    built(GPU / 'libcudart.so.13')
    return played


def innermost(entry):
    return entry['stages'][-1].partition(':')[0] if entry['stages'] else '(none)'


def device_of(entry):
    return -1 if entry['host'] else 0


def maker_of(stack):
    """The function among the frames that `alloc` called."""
    names = [f.rpartition(': ')[2] for f in stack]
    return names[names.index('alloc') - 1]


@pytest.mark.parametrize('seed', [1, 2])
def test_every_call_of_an_allocator(played, analyze, seed):
    """Each block with its size, stage and caller; the totals are what the simulated device has in use."""
    directory, journal = played(seed)
    done = [e for e in journal if e['what'] in ('alloc', 'free')]
    raw = analyze('memory', '--layout', 'raw', directory)['rows']
    assert [(int(r['address'], 0), r['bytes'], r['device'], r['action'], r['stage']) for r in raw] == \
        [(e['at'], e['size'] if e['what'] == 'alloc' else -e['size'], device_of(e),
          {'alloc': 'create', 'free': 'destroy'}[e['what']], innermost(e)) for e in done]
    assert len(done) > 200 and all(maker_of(r['stack']) == e['maker'] for r, e in zip(raw, done) if e['what'] == 'alloc')
    pinned, totals = 0, []
    for e in done:
        pinned += (e['size'] if e['what'] == 'alloc' else -e['size']) if e['host'] else 0
        totals.append(pinned if e['host'] else e['in_use'])
    rows = analyze('memory', directory)['rows']
    assert [r['allocated_bytes'] for r in rows] == [r['allocated_bytes'] for r in raw] == totals
    assert {r['reserved_bytes'] for r in rows} == {None} == {r['categories'] for r in rows}
    assert {r['allocator'] for r in rows} == {'cuda'}
    chosen = analyze('memory', '--layout', 'raw', '--stage', 'denoise', '--device', '0', directory)['rows']
    assert chosen == [r for r, e in zip(raw, done) if not e['host'] and any(s.startswith('denoise:') for s in e['stages'])]


@pytest.mark.parametrize('seed', [1, 3])
def test_peaks(played, analyze, seed):
    """Of each stage: the largest total from its opening to its end."""
    directory, journal = played(seed)
    now, peaks, sums = {-1: 0, 0: 0}, defaultdict(int), defaultdict(lambda: [set(), 0, 0])
    for e in journal:
        if e['what'] not in ('alloc', 'free'):
            continue
        device, size = device_of(e), e['size'] if e['what'] == 'alloc' else -e['size']
        for stage in {*e['stages'], '(run):'}:  # a call of a stage in which nothing changes on a device is no call there
            name = stage.partition(':')[0]
            peaks[name, device] = max(peaks[name, device], now[device], now[device] + size)
            sums[name, device][0].add(stage)
        for name in {s.partition(':')[0] for s in e['stages']} | {'(run)'}:
            times = sum(s.partition(':')[0] == name for s in e['stages']) or 1
            sums[name, device][1 if size > 0 else 2] += times * abs(size)
        now[device] += size
    rows = [r for r in analyze('memory', '--layout', 'peaks', directory)['rows'] if r['kind'] is None]
    assert {(r['stage'], r['device']): r['peak_allocated_bytes'] for r in rows} == peaks and len(peaks) == len(rows) > 6
    assert {(r['stage'], r['device']): (r['calls'], r['allocated_bytes'], r['freed_bytes']) for r in rows} == \
        {k: (len(calls), made, freed) for k, (calls, made, freed) in sums.items()}


@pytest.mark.parametrize('seed', [1, 4])
def test_leaks(played, analyze, seed):
    """Blocks by stage and caller: those in use at the end of their call of the stage, and at the end of all."""
    directory, journal = played(seed)
    found = defaultdict(lambda: [0] * 6)
    for i, e in enumerate(journal):
        if e['what'] != 'alloc':
            continue
        freed = next((k for k in range(i + 1, len(journal)) if journal[k]['what'] == 'free' and journal[k]['at'] == e['at']), None)
        inside = next((k for k in range(i + 1, len(journal)) if e['stages'] and journal[k]['what'] == 'end'
                       and e['stages'][-1] not in journal[k]['stages']), None)
        counts = found[innermost(e), device_of(e), e['maker']]
        for at, is_so in enumerate((True, bool(e['stages']) and (freed is None or freed > inside), freed is None)):
            counts[2 * at] += is_so
            counts[2 * at + 1] += is_so * e['size']
    ours = defaultdict(lambda: [0] * 6)
    answer = analyze('memory', '--layout', 'leaks', directory)
    for r in answer['rows']:  # a caller has several lines
        keys = ('blocks', 'bytes', 'outliving_blocks', 'outliving_bytes', 'leaked_blocks', 'leaked_bytes')
        key = r['stage'], r['device'], maker_of(r['stack'])
        ours[key] = [a + r[k] for a, k in zip(ours[key], keys)]
        assert r['outliving_blocks'] or r['leaked_blocks']
    assert {k: v[2:] for k, v in ours.items()} == {k: v[2:] for k, v in found.items() if v[2] or v[4]}
    assert answer['totals']['leaked_bytes'] == sum(v[5] for v in found.values()) > 0
    leaked = [r['leaked_bytes'] for r in answer['rows']]
    assert leaked == sorted(leaked, reverse=True)


@pytest.mark.parametrize('seed', [1, 5])
def test_refused_requests(played, analyze, seed):
    """Each of the last 16 refusals has all that was in use then, by stage and caller."""
    directory, journal = played(seed)
    refused = [i for i, e in enumerate(journal) if e['what'] == 'refused']
    answer = analyze('memory', '--layout', 'oom', directory)
    assert refused and answer['totals'] == {'refused': len(refused), 'shown': min(len(refused), 16)}
    by_time = defaultdict(list)
    for r in answer['rows']:
        by_time[r['time_us']].append(r)
    assert len(by_time) == min(len(refused), 16)
    for rows, i in zip(by_time.values(), refused[-16:]):
        live = {}
        for e in journal[:i]:
            if e['what'] == 'alloc' and not e['host']:
                live[e['at']] = e
            elif e['what'] == 'free':
                live.pop(e['at'], None)
        expected = defaultdict(lambda: [0, 0])
        for e in live.values():
            expected[innermost(e), e['maker']][0] += 1
            expected[innermost(e), e['maker']][1] += e['size']
        ours = defaultdict(lambda: [0, 0])
        for r in rows:
            if r['stage'] is None:
                assert not live and r['bytes'] == 0
                continue
            key = r['stage'], maker_of(r['stack'])
            ours[key] = [ours[key][0] + r['blocks'], ours[key][1] + r['bytes']]
            assert r['pct'] == pytest.approx(100 * r['bytes'] / journal[i]['in_use'], abs=1e-3)
        assert ours == expected
        assert {(r['requested_bytes'], r['allocated_bytes'], r['requesting_stage'], r['allocator']) for r in rows} == \
            {(1 << 44, journal[i]['in_use'], innermost(journal[i]), 'cuda')}


TORCH = '''
import json, torch
from torch.cuda import nvtx
say, kept, device = {}, [], torch.device('cuda')
def stage(name, work):
    torch.cuda.reset_peak_memory_stats()
    nvtx.range_push(name)
    work()
    nvtx.range_pop()
    say[name] = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
def load(): kept.append(torch.empty(40 << 20, dtype=torch.uint8, device=device))
def plant():
    for i in range(3): kept.append(torch.empty(100 << 20, dtype=torch.uint8, device=device))
def spike():
    a = torch.empty(30 << 20, dtype=torch.uint8, device=device)
    del a
    kept.append(torch.empty(1 << 20, dtype=torch.uint8, device=device))
def fail():
    say['before'] = torch.cuda.memory_reserved()
    try: torch.empty(300 << 20, dtype=torch.uint8, device=device)
    except RuntimeError: pass  # of the driver, too: the simulated one has less than torch asks after a refusal
stage('load', load)
stage('planted', plant)
stage('spike', spike)
nvtx.range_push('asks'); fail(); nvtx.range_pop()
print(json.dumps(say))
'''


@pytest.mark.slow
@pytest.mark.torch
def test_torch_out_of_memory(run, python, lib, analyze):
    """torch's own peaks by stage, and a planted holder named by a request that torch's allocator refuses."""
    libraries = [lib, built(GPU / 'libcudart.so.13'), built(GPU / 'libcupti.so.13')]
    result = run([python, '-W', 'ignore', '-c', TORCH],
                 {'LD_LIBRARY_PATH': GPU, 'KINETO_LOG_LEVEL': 5, 'SIMGPU_MEMORY': 512 << 20, 'TFI_WITH_STACK': 1},
                 preload=':'.join(map(str, libraries)))
    assert result.rc == 0, result.err[-2000:]
    said = json.loads(result.out)
    rows = analyze('memory', '--layout', 'peaks', result.dir)['rows']
    ours = {r['stage']: (r['peak_allocated_bytes'], r['peak_reserved_bytes']) for r in rows
            if r['allocator'] == 'c10' and r['device'] == 0}
    assert {s: ours[s] for s in ('load', 'planted', 'spike')} == {s: tuple(said[s]) for s in ('load', 'planted', 'spike')}
    rows = analyze('memory', '--layout', 'oom', result.dir)['rows']
    first = rows[0]
    assert (first['allocator'], first['requested_bytes'], first['requesting_stage'], first['device']) == ('cuda', 300 << 20, 'asks', 0)
    assert (first['stage'], first['blocks'], first['bytes']) == ('planted', 3, 300 << 20)
    assert any(f.endswith(': plant') for f in first['stack'])
    assert sum(r['bytes'] for r in rows if r['time_us'] == first['time_us']) == first['allocated_bytes'] == said['before']
    leaks = {r['stage']: r for r in analyze('memory', '--layout', 'leaks', result.dir)['rows'] if r['allocator'] == 'c10' and r['device'] == 0}
    assert leaks['planted']['outliving_blocks'] == 3 and leaks['spike']['outliving_bytes'] == 1 << 20
