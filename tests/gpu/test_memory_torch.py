"""test_memory_torch - memory of real torch on the simulated GPU, with each of its allocators.

The caching allocator, with segments of a fixed size and expandable ones, that of cudaMallocAsync, and one of the program's
own. torch's statistics, the program's own counts and the log of the simulated device are the expected answers.
"""

import json
import pickle
import subprocess

import pytest

import cachedit_alone
from conftest import BUILD, COMMAND_TIMEOUT, built, clean_environment, short_form
from test_memory_allocators import ALLOCATORS
from test_report_memory import READ

GPU = BUILD / 'simgpu'
MIB = 1 << 20
pytestmark = [pytest.mark.slow, pytest.mark.torch, pytest.mark.xdist_group('torch-memory')]

OWN = '''
#include <stddef.h>
#include <sys/types.h>
int cudaMalloc(void **p, size_t size);
int cudaFree(void *p);
long used, peak;
void *give(ssize_t size, int device, void *stream)
{
    void *p = NULL;
    if (cudaMalloc(&p, (size_t)size) != 0) return NULL;
    used += size;
    if (used > peak) peak = used;
    return p;
}
void take(void *p, ssize_t size, int device, void *stream)
{
    if (cudaFree(p) == 0) used -= size;
}
'''

PROGRAM = '''
import ctypes, json, random, sys, torch
from torch.cuda import nvtx
backend, choose, live, say, device = sys.argv[1], random.Random(int(sys.argv[2])), [], {}, torch.device('cuda')
if backend == 'own':
    torch.cuda.memory.change_current_allocator(torch.cuda.memory.CUDAPluggableAllocator(sys.argv[3], 'give', 'take'))
    own = ctypes.CDLL(sys.argv[3])
    used, peak = (ctypes.c_long.in_dll(own, n) for n in ('used', 'peak'))
    def reset(): peak.value = used.value
    def peaks(): return peak.value, None
else:
    reset = torch.cuda.reset_peak_memory_stats
    def peaks(): return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
def give(most=30):
    with torch.cuda.stream(choose.choice(streams)):
        return torch.empty(4096 * choose.choice([choose.randrange(1, 200), choose.randrange(1, 256 * most)]), dtype=torch.uint8, device=device)
def work():
    if choose.random() < .5 and backend != 'own': torch.cuda.empty_cache()
    live.append(give())
    for i in range(25):
        if choose.random() < .6 or not live: live.append(give())
        else: live.pop(choose.randrange(len(live)))
def plant():
    for i in range(3): ctypes.pythonapi.Py_IncRef(ctypes.py_object(give(2)))
    live.clear()
def stage(name, work):
    if backend != 'own' and choose.random() < .5: torch.cuda.empty_cache()  # no report until the stage's first block
    reset()
    nvtx.range_push(name)
    work()
    nvtx.range_pop()
    say[name] = peaks()
for i in range(4): stage(f'work {i}', work)
stage('planted', plant)
if backend != 'own': torch.cuda.empty_cache()
stage('quiet', lambda: None)
say['left'] = used.value if backend == 'own' else torch.cuda.memory_allocated()
say['name'] = torch.cuda.get_allocator_backend() if backend != 'own' else None
print(json.dumps(say))
'''

SETTINGS = {'native': '', 'expandable': 'expandable_segments:True', 'async': 'backend:cudaMallocAsync', 'own': ''}
LIBRARIES = ('libcudart.so.13', 'libcupti.so.13')


@pytest.fixture(scope='module')
def light(python, tmp_path_factory):
    """The environment with cache-dit's profiler without the rest of cache-dit."""
    return cachedit_alone.environment(python, tmp_path_factory.mktemp('light'))


@pytest.fixture(scope='module')
def recorded(tmp_path_factory, python, lib):
    """recorded(backend) -> the run directory, what the program said, the memory lines of the device's log."""
    directory, known = tmp_path_factory.mktemp('torch'), {}
    (directory / 'own.c').write_text(OWN)
    subprocess.run(['gcc', '-shared', '-fPIC', '-w', '-o', 'own.so', 'own.c'], cwd=directory, check=True, env=clean_environment())

    def recorded(backend, seed=1, program=PROGRAM, **more):
        key = backend, seed, program, *more.items()
        if key in known:
            return known[key]
        to = directory / str(len(known))
        to.mkdir()
        libraries = [lib, *(built(GPU / name) for name in LIBRARIES)]
        env = {**clean_environment(), 'LD_LIBRARY_PATH': str(built(GPU / 'libcuda.so.1').parent), 'KINETO_LOG_LEVEL': '5',
               'LD_PRELOAD': ':'.join(map(str, libraries)), 'SIMGPU_LOG': str(to / 'truth-%p.jsonl'),
               'TFI_OUTPUT_DIR': str(to / 'run'), 'TFI_WITH_STACK': '1', 'PYTORCH_CUDA_ALLOC_CONF': SETTINGS[backend], **more}
        result = subprocess.run([python, '-W', 'ignore', '-c', program, backend, str(seed), str(directory / 'own.so')], env=env,
                                cwd=to, capture_output=True, text=True, timeout=COMMAND_TIMEOUT)
        assert result.returncode == 0, result.stderr[-3000:]
        log = [json.loads(line) for path in to.glob('truth-*.jsonl') for line in path.read_text().splitlines()]
        known[key] = to / 'run', json.loads(result.stdout.splitlines()[-1]), [e for e in log if e['t'] == 'memory']
        return known[key]
    return recorded


BACKENDS = {'expandable': 'mapped', 'own': 'device', 'native': 'device', 'async': 'pool'}


@short_form(2, 'backend', BACKENDS)
def test_every_call_of_the_device(recorded, analyze, backend):
    """Each block that the device gave and took: kind, address, size; what is left at the end is what leaks."""
    directory, said, log = recorded(backend)
    rows = [r for r in analyze('memory', '--layout', 'raw', directory)['rows'] if r['kind']]
    expected = [(e['kind'], e['address'], e['bytes'] if e['what'] == 'alloc' else -e['bytes']) for e in log]
    assert [(r['kind'], int(r['address'], 0), r['bytes']) for r in rows] == expected and len(rows) > 10
    assert {r['allocator'] for r in rows} == {ALLOCATORS.get(e['kind'], 'cuda') for e in log}
    kind = BACKENDS[backend]
    left = sum(e['bytes'] if e['what'] == 'alloc' else -e['bytes'] for e in log if e['kind'] == kind)
    leaks = analyze('memory', '--layout', 'leaks', directory)['rows']
    assert sum(r['leaked_bytes'] for r in leaks if r['kind'] == kind) == left > 0
    assert said['name'] == {'async': 'cudaMallocAsync', 'own': None}.get(backend, 'native')


@short_form(2, 'backend, activities', [*((b, None) for b in BACKENDS), ('native', 'mem,stack'), ('expandable', 'mem,stack')])
def test_peaks_and_leaks_are_torchs(recorded, analyze, backend, activities):
    """The peaks of each stage and what stays allocated, by torch's statistics or the allocator's own counts.

    The cache is emptied before some stages, and the last one has no block at all: the allocator reports nothing of that.
    """
    directory, said, _ = recorded(backend, **({'TFI_ACTIVITIES': activities} if activities else {}))
    allocator = 'c10' if backend in ('native', 'expandable') else 'cuda'
    peaks = {r['stage']: (r['peak_allocated_bytes'], r['peak_reserved_bytes']) for r in analyze('memory', '--layout', 'peaks', directory)['rows']
             if r['allocator'] == allocator and r['device'] == 0 and r['kind'] is None}
    stages = [s for s in said if s.startswith(('work', 'planted', 'quiet'))]
    if allocator == 'c10':
        assert {s: peaks[s] for s in stages} == {s: tuple(said[s]) for s in stages}
    else:  # a stage without a call of CUDA has no row
        assert {s: peaks[s] for s in stages[:-1]} == {s: (said[s][0], None) for s in stages[:-1]}
    leaks = [r for r in analyze('memory', '--layout', 'leaks', directory)['rows'] if r['allocator'] == allocator and r['device'] == 0 and r['leaked_blocks']]
    assert [(r['stage'], r['leaked_blocks']) for r in leaks if r['stack']] and sum(r['leaked_blocks'] for r in leaks) == 3
    assert {r['stage'] for r in leaks} == {'planted'} and all(any(f.endswith(': plant') for f in r['stack']) for r in leaks)
    assert sum(r['leaked_bytes'] for r in leaks) == said['left'] > 0


REFUSED = '''
import json, sys, torch
from torch.cuda import nvtx
kept, device, say = [], torch.device('cuda'), []
def take(n): kept.append(torch.empty(n << 20, dtype=torch.uint8, device=device))
def plant():
    for i in range(3): take(100)
def ask(n):
    try: take(n)
    except torch.cuda.OutOfMemoryError as e: say.append(type(e).__name__)
with nvtx.range('load'): take(40)
with nvtx.range('planted'): plant()
with nvtx.range('asks'): ask(300)
torch.cuda.set_per_process_memory_fraction(400 / 512)
with nvtx.range('limited'): ask(100)
backend = torch.cuda.get_allocator_backend()
print(json.dumps([say, torch.cuda.memory_allocated(), torch.cuda.memory_reserved(),
                  torch.cuda.memory_stats()['num_ooms'] if backend == 'native' else None]))
'''


@short_form(1, 'backend', ['native', 'expandable', 'async'])
def test_out_of_memory(recorded, analyze, backend):
    """torch raises OutOfMemoryError: of a full device, and of a limit of torch's own. The answer names who holds the memory."""
    directory, (said, allocated, reserved, refused), _ = recorded(backend, program=REFUSED, SIMGPU_MEMORY=str(512 * MIB))
    assert said == ['OutOfMemoryError', 'OutOfMemoryError']
    answer = analyze('memory', '--layout', 'oom', directory)['rows']
    own = 'cuda' if backend == 'async' else 'c10'
    rows = [r for r in answer if r['allocator'] == own and r['requesting_stage'] in ('asks', 'limited')]
    asked = {(r['requesting_stage'], r['requested_bytes']): r['allocated_bytes'] for r in rows}
    if backend == 'async':  # its limit is torch's own, and torch reports no refusal of it
        assert asked == {('asks', 300 * MIB): allocated} and refused is None
    else:
        assert asked == {('asks', 300 * MIB): allocated, ('limited', 100 * MIB): allocated} and refused == 2
        assert {r['reserved_bytes'] for r in rows} == {reserved}
    for stage in {stage for stage, _ in asked}:
        first, second = [r for r in rows if r['requesting_stage'] == stage][:2]
        assert (first['stage'], first['blocks'], first['bytes']) == ('planted', 3, 300 * MIB)
        assert any(f.endswith(': plant') for f in first['stack'])
        assert (second['stage'], second['bytes']) == ('load', 40 * MIB)


SNAPSHOT = '''
import json, random, sys, torch
import cache_dit.profiler
from cache_dit.profiler import ProfilerContext
cache_dit.profiler._supported_device = lambda: False  # as on an XPU: cache-dit's profiler does not run, and `report` writes its files
choose, live, device = random.Random(int(sys.argv[2])), [], torch.device('cuda')
torch.cuda.memory._record_memory_history(max_entries=1000000, stacks='python')
streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
def give():
    with torch.cuda.stream(choose.choice(streams)):
        live.append(torch.empty(4096 * choose.choice([choose.randrange(1, 200), choose.randrange(1, 5000)]), dtype=torch.uint8, device=device))
with ProfilerContext(activities=['CPU', 'MEM'], profile_name='the stage'):
    for i in range(60):
        if choose.random() < .6 or not live: give()
        else: live.pop(choose.randrange(len(live)))
        if choose.random() < .1: torch.cuda.empty_cache()
    live.pop(), torch.cuda.empty_cache()
data = torch.cuda.memory._snapshot()
segments = [[s['device'], s['stream'], s['address'], s['total_size'], s['segment_type'], s['is_expandable'], s['allocated_size'],
             [[b['address'], b['size'], b['state']] for b in s['blocks']]] for s in data['segments']]
events = [[e['action'], e['addr'], e['stream'], e['size']] for e in data['device_traces'][0] if e['action'] != 'snapshot']
print(json.dumps([segments, events, torch.cuda.memory_reserved()]))
'''


@short_form(1, 'seed', [1, 2])
@short_form(1, 'backend', ['expandable', 'native'])
def test_the_snapshot_is_torchs(recorded, light, analyze, forked, backend, seed):
    """The segments, the blocks in them and the events of the snapshot are those of torch's own, with their streams, and torch's viewer
    loads it.

    The cache is emptied now and then, and at the end, which the allocator reports to nobody: the calls underneath tell it.
    """
    directory, (segments, events, reserved), _ = recorded(backend, seed, program=SNAPSHOT, TFI_ACTIVITIES='cpu,mem,stack',
                                                          CACHE_DIT_TORCH_PROFILER_DIR='', **light)
    analyze('report', directory, format=None)
    path, = directory.parent.glob('the stage-rank0-memory-*.pickle')  # cache-dit's directory: the program's own
    data = pickle.loads(path.read_bytes())
    ours = [[s['device'], s['stream'], s['address'], s['total_size'], s['segment_type'], s['is_expandable'], s['allocated_size'],
             [[b['address'], b['size'], b['state']] for b in s['blocks']]] for s in data['segments'] if s['device'] == 0]
    assert sorted(ours) == sorted(segments) and sum(s[3] for s in ours) == reserved > 0
    assert any(len(s[7]) > 1 for s in segments) and {s[4] for s in segments} == {'small', 'large'}
    mine = [[e['action'], e['addr'], e['stream'], e['size']] for e in data['device_traces'][0]]
    assert [e[:3] for e in mine] == [e[:3] for e in events] and len({e[2] for e in events}) == 3
    for (action, _, _, size), (_, _, _, theirs) in zip(mine, events):  # torch writes what was requested, and reports the block's size
        assert size == theirs if action.startswith('segment') else 0 <= size - theirs <= MIB
    assert {e[0] for e in events} >= ({'segment_map', 'segment_unmap'} if backend == 'expandable' else {'segment_alloc', 'segment_free'})
    read = forked(['python', '-W', 'ignore', '-c', READ, path])
    assert read.rc == 0, read.err
    text, plots = json.loads(read.out)[2], json.loads(read.out)[4]
    assert min(plots) > 1000 and (backend == 'expandable' or 'MEM[' not in text)
