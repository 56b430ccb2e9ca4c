"""test_report_memory - cache-dit's memory files: the snapshot, read by torch's own functions, and the table."""

import json

import cachedit_alone

# A cache-dit context around allocations of known sizes. Some blocks are older than the context, and some outlive it.
SCRIPT = '''
import warnings; warnings.filterwarnings('ignore')
import torch
from cache_dit.profiler import ProfilerContext
def allocate(n):
    return torch.empty(n, dtype=torch.int8)
with ProfilerContext(activities=['CPU', 'MEM'], profile_name='older'):
    older = allocate(111)
def inside():
    short = allocate(5000)
    del short
    return [allocate(1234), allocate(4 << 20)]
with ProfilerContext(activities=['CPU', 'MEM'], profile_name='the stage'):
    kept = inside()
del older
'''

# Reads a snapshot as torch does, and prints the output of torch's visualizer functions.
READ = '''
import io, json, pickle, sys
from torch.cuda import _memory_viz as viz
data = pickle.load(open(sys.argv[1], 'rb'))
flames = []
viz.memory(data, format_flamegraph=flames.append), viz.segments(data, format_flamegraph=flames.append)
plots = [viz.trace_plot(data), viz.segment_plot(data), viz.trace_plot(data, filter_freed=True)]
data = pickle.load(open(sys.argv[1], 'rb'))
print(json.dumps([data, viz.segsum(data), viz.trace(data), flames, [len(p) for p in plots]]))
'''


def test_cache_dits_files(run, python, forked, analyze, tmp_path):
    """torch.cuda.memory's own tools load, draw and sum up the snapshot: every block of the stage, with its frames."""
    result = run([python, '-c', SCRIPT], env={**cachedit_alone.environment(python, tmp_path), 'TFI_ACTIVITIES': 'mem,stack', 'CACHE_DIT_TORCH_PROFILER_DIR': tmp_path / 'run'})
    assert result.rc == 0, result.err
    analyze('report', result.dir, format=None)
    snapshot, = result.dir.glob('the stage-rank0-memory-*.pickle')
    read = forked(['python', '-W', 'ignore', '-c', READ, snapshot])
    assert read.rc == 0, read.err
    data, segments, trace, flames, plots = json.loads(read.out)
    events, = data['device_traces']
    assert [(e['action'], e['size']) for e in events if e['size'] in (5000, 1234, 4 << 20, 111)] == [
        ('alloc', 5000), ('free_requested', 5000), ('free_completed', 5000), ('alloc', 1234), ('alloc', 4 << 20)]
    block = next(e for e in events if e['size'] == 1234)
    assert [f['name'] for f in block['frames'] if f['filename'] == '<string>'] == ['allocate', 'inside', '<module>']
    assert [f['line'] for f in block['frames'] if f['filename'] == '<string>'] == [6, 12, 14]
    assert all(a['time_us'] <= b['time_us'] for a, b in zip(events, events[1:]))
    in_use = [b['size'] for s in data['segments'] for b in s['blocks'] if b['state'] == 'active_allocated']
    imported = sorted(size for size in in_use if size not in (111, 1234, 4 << 20))  # blocks of the imports
    assert sorted(set(in_use) - set(imported)) == [111, 1234, 4 << 20] and len(in_use) == 3 + len(imported)
    assert sum(imported) < 300, 'the snapshot must not have blocks older than the process'
    for s in data['segments']:
        assert sum(b['size'] for b in s['blocks']) == s['total_size']
    assert '4.0MiB' in segments and 'MEM' not in segments and len(trace.splitlines()) >= len(events)
    assert any('inside' in line and line.endswith(' 1234') for line in flames[0].splitlines())
    assert min(plots) > 1000 and plots[2] < plots[0]

    table = next(result.dir.glob('the stage-rank0-memory-*.txt')).read_text()
    rows = [[c.strip() for c in line.split('|')[1:-1]] for line in table.splitlines() if line.startswith('| ') and line.count('|') == 6]
    assert {len(line) for line in table.splitlines()} == {77}
    assert rows[1:] == [['Allocated memory', '4097 KiB', '4097 KiB', '4102 KiB', '5000 B'], ['Allocations', *(str(n + len(imported)) for n in (3, 3, 4)), '1']]


def test_a_second_report_replaces_its_files_only(run, python, analyze, tmp_path):
    result = run([python, '-c', SCRIPT], env={**cachedit_alone.environment(python, tmp_path), 'TFI_ACTIVITIES': 'mem,stack', 'CACHE_DIT_TORCH_PROFILER_DIR': tmp_path / 'run'})
    assert result.rc == 0, result.err
    analyze('report', result.dir, format=None)
    before = sorted(result.dir.glob('*-memory-*'))
    assert len(before) == 4
    before[0].write_text('somebody else\'s')
    analyze('report', result.dir, format=None)
    assert before[0].read_text() == 'somebody else\'s'
    assert len(list(result.dir.glob('*-memory-*'))) == 5
