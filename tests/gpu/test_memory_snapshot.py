"""test_memory_snapshot - memory snapshots of real torch on the simulated GPU, read by `memory`.

torch's own statistics, its viewer's functions (torch.cuda._memory_viz) and the pickle in Python are the expected answers.
"""

import json
import pickle
import re
import subprocess

import pytest

from conftest import BUILD, COMMAND_TIMEOUT, built, clean_environment, short_form

GPU = BUILD / 'simgpu'
pytestmark = [pytest.mark.slow, pytest.mark.torch, pytest.mark.xdist_group('torch-memory')]

PROGRAM = '''
import ctypes, json, random, sys, torch
how, choose, live, say = sys.argv[1], random.Random(7), [], {}
device = torch.device('cuda', 1 if how == 'second' else 0)
torch.cuda.set_device(device)
def give(most=30):
    with torch.cuda.stream(choose.choice(streams)):
        size = choose.choice([choose.randrange(1, 5000), choose.randrange(1, most << 18)])
        block = torch.empty(size, dtype=torch.uint8, device=device)
    if choose.random() < .2: block.record_stream(choose.choice(streams))
    return block
def work(n):
    for i in range(n):
        if choose.random() < .55 or not live: live.append(give())
        else: live.pop(choose.randrange(len(live)))
        if choose.random() < .02: torch.cuda.empty_cache()
torch.empty(1, device=device)
streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
if how == 'late': work(50)
torch.cuda.reset_peak_memory_stats()
torch.cuda.memory._record_memory_history('state' if how == 'state' else 'all', max_entries=300 if how == 'ring' else 10 ** 6,
                                         stacks='all' if how == 'frames' else 'python', global_record_annotations=True,
                                         record_pinned_host_memory=how == 'second')
with torch.profiler.record_function('first half'): work(150)
with torch.profiler.record_function('second half'): work(150)
if how == 'second': pinned = torch.empty(5000, dtype=torch.uint8, pin_memory=True)
if how != 'state':
    try: torch.empty(1 << 45, dtype=torch.uint8, device=device)
    except torch.cuda.OutOfMemoryError: pass
torch.cuda.synchronize()
say = {k: v for k, v in torch.cuda.memory_stats().items() if k.startswith(('requested_bytes.all', 'allocated_bytes.all', 'active_bytes.all',
       'reserved_bytes.all', 'inactive_split_bytes.all', 'num_ooms', 'segment.all'))}
if how == 'cpp':  # what C++ programs dump: another pickler, another protocol
    text = ctypes.create_string_buffer(32)
    lib = ctypes.CDLL(torch.__path__[0] + '/lib/libtorch_cuda.so')
    lib._ZN5torch4cuda23_memory_snapshot_pickledB5cxx11Ev.restype = None
    lib._ZN5torch4cuda23_memory_snapshot_pickledB5cxx11Ev(text)
    start, length = (ctypes.cast(ctypes.byref(text, 8 * i), ctypes.POINTER(ctypes.c_uint64))[0] for i in range(2))
    open('snapshot.pickle', 'wb').write(ctypes.string_at(start, length))
else:
    torch.cuda.memory._dump_snapshot('snapshot.pickle')
print(json.dumps(say))
'''
# The way of recording -> PYTORCH_CUDA_ALLOC_CONF. `late`, `ring` and `state` begin with blocks from before the first event.
WAYS = {'all': '', 'expandable': 'expandable_segments:True', 'ring': '', 'late': '', 'frames': '', 'cpp': '', 'second': '', 'state': ''}


@pytest.fixture(scope='module')
def taken(tmp_path_factory, python):
    """taken(how) -> the snapshot's path, torch's statistics at that moment."""
    known = {}

    def taken(how):
        if how not in known:
            to = tmp_path_factory.mktemp(how)
            libraries = [built(GPU / name) for name in ('libcudart.so.13', 'libcupti.so.13')]
            env = {**clean_environment(), 'LD_LIBRARY_PATH': str(built(GPU / 'libcuda.so.1').parent), 'KINETO_LOG_LEVEL': '5',
                   'LD_PRELOAD': ':'.join(map(str, libraries)), 'PYTORCH_CUDA_ALLOC_CONF': WAYS[how]}
            result = subprocess.run([python, '-W', 'ignore', '-c', PROGRAM, how], env=env, cwd=to, capture_output=True, text=True, timeout=200)
            assert result.returncode == 0, result.stderr[-3000:]
            known[how] = to / 'snapshot.pickle', json.loads(result.stdout.splitlines()[-1])
        return known[how]
    return taken


def blocks(data, device):
    """(state, size, requested, frames) of each block in the segments of a device."""
    return [(b['state'], b['size'], b['requested_size'], b['frames']) for s in data['segments'] if s['device'] == device for b in s['blocks']]


@short_form(3, 'how', WAYS)
def test_sums_are_torchs(taken, analyze, how):
    path, stats = taken(how)
    data, device = pickle.loads(path.read_bytes()), 1 if how == 'second' else 0
    of_device = [b for b in blocks(data, device) if b[0] == 'active_allocated']
    in_use = sum(b[2] for b in of_device)
    assert in_use == stats['requested_bytes.all.current'] > 0
    answer = analyze('memory', path)
    assert [(i['kind'], i['complete']) for i in answer['inputs']] == [('snapshot', True)]
    rows = [r for r in answer['rows'] if r['allocator'] == 'c10' and r['device'] == device]
    assert (rows[-1]['allocated_bytes'], rows[-1]['reserved_bytes']) == (in_use, stats['reserved_bytes.all.current'])
    if how in ('all', 'expandable', 'frames', 'second', 'cpp', 'late'):  # from the first event on: so are the peaks
        peak, = [r for r in analyze('memory', '--layout', 'peaks', path)['rows'] if r['stage'] == '(run)' and r['allocator'] == 'c10' and r['device'] == device]
        assert peak['peak_allocated_bytes'] == stats['requested_bytes.all.peak']
        assert peak['peak_reserved_bytes'] == stats['reserved_bytes.all.peak']
    leaks = [r for r in analyze('memory', '--layout', 'leaks', path)['rows'] if r['allocator'] == 'c10' and r['device'] == device]
    assert sum(r['leaked_bytes'] for r in leaks) == in_use and sum(r['leaked_blocks'] for r in leaks) == len(of_device)


@short_form(1, 'how', ['all', 'expandable', 'state'])
def test_fragmentation_is_torchs(taken, analyze, how):
    path, stats = taken(how)
    rows = analyze('memory', '--layout', 'fragmentation', path)['rows']
    sums = {key: sum(r[key] for r in rows) for key in rows[0] if key.endswith('_bytes') or key == 'segments'}
    assert {key: sums[key] for key in ('reserved_bytes', 'allocated_bytes', 'active_bytes', 'requested_bytes', 'inactive_split_bytes')} == {
        key: stats[f'{key}.all.current'] for key in ('reserved_bytes', 'allocated_bytes', 'active_bytes', 'requested_bytes', 'inactive_split_bytes')}
    free = [b[1] for b in blocks(pickle.loads(path.read_bytes()), 0) if b[0] == 'inactive']
    assert sums['free_bytes'] == sum(free) and max(r['largest_free_bytes'] for r in rows) == max(free) and sums['segments'] == stats['segment.all.current']


def as_torch(frame):
    """A frame as torch's viewer writes it."""
    file, line, name = re.fullmatch(r'(.*)\((\d+)\): (.*)', frame).groups()
    return f'{file.split("/")[-1]}:{line}:{name}'


@short_form(1, 'how', ['all', 'ring', 'late', 'expandable'])
def test_holders_are_those_of_the_viewer(taken, analyze, python, how):
    """The flame graph of torch.cuda._memory_viz.memory(), summed by stack, and segsum()'s total."""
    path, _ = taken(how)
    script = ('import json, pickle, sys\nfrom torch.cuda import _memory_viz as viz\ndata = pickle.load(open(sys.argv[1], "rb"))\nlines = []\n'
              'text = viz.segsum(data)\nviz.memory(data, format_flamegraph=lines.append)\nprint(json.dumps([lines, text]))')
    result = subprocess.run([python, '-W', 'ignore', '-c', script, path], env=clean_environment(), capture_output=True, text=True, timeout=COMMAND_TIMEOUT)
    (lines,), text = json.loads(result.stdout)
    expected = {}
    for line in lines.splitlines():
        stack, size = line.rsplit(' ', 1)
        if stack.split(';')[1] == 'active_allocated' and not stack.endswith('<gaps>'):
            frames = tuple(f for f in stack.split(';')[2:] if f != '<non-python>')
            expected[frames] = expected.get(frames, 0) + int(size)
    ours = {}
    for r in analyze('memory', '--layout', 'leaks', path)['rows']:
        frames = tuple(as_torch(f) for f in reversed(r['stack'] or []))
        ours[frames] = ours.get(frames, 0) + r['leaked_bytes']
    assert ours == expected and len(ours) > 1
    assert 'total_allocated: ' in text


def test_a_refused_request(taken, analyze):
    path, stats = taken('all')
    event, = [e for e in pickle.loads(path.read_bytes())['device_traces'][0] if e['action'] == 'oom']
    rows = analyze('memory', '--layout', 'oom', path)['rows']
    assert stats['num_ooms'] == 1 and len(rows) > 1
    assert {(r['requested_bytes'], r['device_free_bytes']) for r in rows} == {(1 << 45, event['device_free'])}
    assert {r['allocated_bytes'] for r in rows} == {stats['requested_bytes.all.current']} == {sum(r['bytes'] for r in rows)}


def test_frames_of_cpp_come_last(taken, analyze):
    """As in torch's viewer the unwinder's own frames are left out."""
    path, _ = taken('frames')
    stacks = [r['stack'] for r in analyze('memory', '--layout', 'leaks', path)['rows'] if r['stack']]
    assert stacks and all(s[0].endswith(': give') or s[0].endswith(': <module>') for s in stacks)
    assert any('at::' in f for s in stacks for f in s) and not any('unwind' in f for s in stacks for f in s)


def test_pinned_memory(taken, analyze):
    path, _ = taken('second')
    segments = pickle.loads(path.read_bytes())['host_segments']
    row, = [r for r in analyze('memory', '--layout', 'leaks', path)['rows'] if r['allocator'] == 'c10 pinned']
    assert (row['device'], row['leaked_bytes']) == (-1, sum(s['active_size'] for s in segments)) and row['leaked_bytes'] == 8192
