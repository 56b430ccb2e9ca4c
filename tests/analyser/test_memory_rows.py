"""test_memory_rows - the raw rows of torch's memory timeline, against HTA and torch themselves, and damaged files.

HTA's MemoryAnalysis and torch's MemoryProfileTimeline run in the test. Moments and sizes by category are theirs.
"""

import gzip
import json
import random
import shutil

import pytest

from conftest import clean_environment, execute
from test_hostile_memory import packed

ROWS = 'hta/memory_analysis/memory_timeline.raw.gz'
ACTIONS = {1: 'preexisting', 2: 'create', 3: 'increment_version', 4: 'destroy'}
CATEGORIES = ['parameter', 'optimizer_state', 'input', 'temporary', 'activation', 'gradient', 'autograd_detail', 'unknown']

HTA = '''
import json, sys
from hta.memory_analysis import MemoryAnalysis
print(json.dumps(MemoryAnalysis(sys.argv[1])._process_raw_events()))
'''

# Makes torch's own object of the rows, then has torch export it again, as rows and as the points that its html draws.
TORCH = '''
import gzip, json, sys, torch
from torch.profiler import _memory_profiler as m
rows = json.load(gzip.open(sys.argv[1]))
order = {index: category for category, index in m._CATEGORY_TO_INDEX.items()}
actions = {index: action for action, index in m._ACTION_TO_INDEX.items()}
device, timeline, categories, at = torch.device('cuda:0'), [], {}, 0
class Made: pass
while at < len(rows):
    t, action, size, category = rows[at]
    key = m.TensorKey(device, at, None)
    categories[key, 0] = order[category]
    if actions[action] == m.Action.INCREMENT_VERSION:
        at += 1
        assert rows[at][:3] == [t, action, -size]
        categories[key, 1], size = order[rows[at][3]], -size
    elif actions[action] == m.Action.DESTROY:
        size = -size
    timeline.append((t, actions[action], (key, 0), size))
    at += 1
made = Made()
made.timeline, made._categories = timeline, Made()
made._categories.get = lambda key, version: categories[key, version]
found = m.MemoryProfileTimeline(made)
found.export_memory_timeline_raw(sys.argv[2], 'cuda:0')
print(json.dumps(found._coalesce_timeline('cuda:0')))
'''


def ask(forked, script, *arguments):
    result = forked(['python', '-c', script, *arguments])
    assert result.rc == 0, result.err[-2000:]
    return json.loads(result.out)


def write(path, rows):
    text = rows if isinstance(rows, str) else json.dumps(rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == '.gz' else text.encode())
    return path


def sizes_of(rows):
    return [[r['categories'][c] for c in CATEGORIES] for r in rows]


def text_of(path):
    return (gzip.decompress(path.read_bytes()) if path.suffix == '.gz' else path.read_bytes()).decode()


def torchs_file(analyze, path, output, *options):
    analyze('memory', path, '--layout', 'torch', '--output', output, *options, format=None)
    return text_of(output)


@pytest.fixture
def path(shared_traces):
    return shared_traces / ROWS


def test_rows_are_those_of_the_file(analyze, path):
    rows = json.loads(gzip.decompress(path.read_bytes()))
    answer = analyze('memory', '--layout', 'raw', path)
    assert len(rows) == len(answer['rows']) == answer['totals']['rows'] == 16845 and rows[0] == [-1, 1, 37888, 7]
    first, total = min(r[0] for r in rows if r[0] > 0), 0
    for row, (time, action, size, category) in zip(answer['rows'], rows):
        total += size
        assert (row['action'], row['bytes'], row['category']) == (ACTIONS[action], size, CATEGORIES[category])
        assert row['time_us'] == (None if time < 0 else pytest.approx((time - first) / 1000, abs=1e-6))
        assert row['allocated_bytes'] == total and row['device'] is row['reserved_bytes'] is row['stage'] is None


def test_the_suffix_chooses_torchs_file(analyze, path, tmp_path):
    """Rows are torch's to the byte, a time of them is a part of them, and .html is the page."""
    rows = text_of(path)
    assert torchs_file(analyze, path, tmp_path / 'again.raw.json.gz') == rows
    part = json.loads(torchs_file(analyze, path, tmp_path / 'part.raw.json.gz', '--from', '0.01', '--to', '0.02'))
    first = min(r[0] for r in json.loads(rows) if r[0] > 0)
    assert part == [r for r in json.loads(rows) if 10_000_000 <= r[0] - first < 20_000_000] and len(part) > 50
    page = torchs_file(analyze, path, tmp_path / 'page.html')
    assert page == analyze('memory', path, '--layout', 'html', format=None).out
    refused = {('--stage', 's'): 'has no stages', ('--format', 'json'): 'has no --format', (): 'needs --output FILE'}
    for options, why in refused.items():
        assert why in analyze('memory', path, '--layout', 'torch', *options, format=None, rc=2).err
    shutil.copy(path, tmp_path / 'other.raw.gz')
    twice = analyze('memory', path, tmp_path / 'other.raw.gz', '--layout', 'torch', '--output', tmp_path / 'two.json', format=None, rc=2).err
    assert 'writes one process' in twice and not (tmp_path / 'two.json').exists()


@pytest.mark.slow
def test_moments_are_those_of_hta(analyze, forked, path):
    """Every moment has HTA's time and HTA's sizes of the eight categories."""
    answer = analyze('memory', path)
    times, sizes = ask(forked, HTA, path)
    assert sizes[744] == [102440608, 102228128, 19395584, 0, 2618160128, 58417152, 41811968, 25494440]
    assert sizes_of(answer['rows']) == sizes
    assert [r['time_us'] for r in answer['rows']] == pytest.approx([(t - min(times)) / 1000 for t in times], abs=1e-6)
    assert [r['allocated_bytes'] for r in answer['rows']] == [sum(s) for s in sizes]
    assert answer['totals']['peak_allocated_bytes'] == max(map(sum, sizes))
    peak, = analyze('memory', '--layout', 'peaks', path)['rows']
    assert (peak['stage'], peak['peak_allocated_bytes']) == ('(run)', max(map(sum, sizes)))


@pytest.mark.slow
@pytest.mark.torch
def test_totals_are_those_that_torch_draws(analyze, forked, path, tmp_path):
    """torch cuts times to microseconds before it adds up; the last of our moments in one is torch's point."""
    times, sizes = ask(forked, TORCH, path, tmp_path / 'again.json')
    rows = json.loads(gzip.decompress(path.read_bytes()))
    assert json.loads((tmp_path / 'again.json').read_text()) == rows, 'torch exports other rows than it was given'
    first = min(r[0] for r in rows if r[0] > 0)
    before = sum(r[0] < 0 for r in rows) > 0
    ours, kept = analyze('memory', path)['rows'], {}
    for number, row in enumerate(ours):
        kept[-1 if before and not number else int((round(row['time_us'] * 1000) + first) / 1000)] = row
    assert len(kept) == len(times) and list(kept)[1:] == times[1:]
    assert sizes_of(kept.values()) == [s[1:] for s in sizes] and not any(s[0] for s in sizes)
    for name in ('points.json', 'points.json.gz'):
        assert json.loads(torchs_file(analyze, path, tmp_path / name)) == [times, sizes]


@pytest.mark.slow
@pytest.mark.torch
def test_a_profile_of_this_torch(analyze, forked, tmp_path):
    """The rows that torch exports of a training step on the CPU, and its own points of them."""
    forked(['python', '-W', 'ignore', '-c', '''
import sys, torch
from torch.profiler import profile, ProfilerActivity
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
optimizer = torch.optim.Adam(model.parameters())
with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True, with_stack=True) as p:
    for i in range(2):
        optimizer.zero_grad()
        model(torch.randn(32, 64)).square().mean().backward()
        optimizer.step()
p.export_memory_timeline('rows.raw.json.gz', device='cpu')
p.export_memory_timeline('points.json', device='cpu')
'''], cwd=tmp_path)
    times, sizes = json.loads((tmp_path / 'points.json').read_text())
    row, = analyze('info', tmp_path / 'rows.raw.json.gz')['rows']
    assert row['kind'] == 'memory' and row['complete'] and set(row['events']) <= set(ACTIONS.values())
    ours = analyze('memory', tmp_path / 'rows.raw.json.gz')['rows']
    assert len(times) > 50 and sizes_of(ours)[-1] == sizes[-1][1:]
    assert max(r['allocated_bytes'] for r in ours) >= max(map(sum, sizes))
    for name in ('points.json', 'rows.raw.json.gz'):
        assert torchs_file(analyze, tmp_path / 'rows.raw.json.gz', tmp_path / f'our_{name}') == text_of(tmp_path / name), name
    points = {tuple(s[1:]) for s in sizes}
    assert points <= {tuple(s) for s in sizes_of(ours)}


def test_random_rows(analyze, tmp_path):
    """Of random rows each moment, plain and packed, with the filters by time."""
    choose = random.Random(5)
    rows = [[-1, 1, choose.randrange(1 << 40), choose.randrange(8)] for _ in range(5)]
    time = 1_700_000_000_000_000_000
    for _ in range(300):
        time += choose.choice([0, 1, 999, 10 ** 9])
        rows.append([time, choose.randrange(2, 5), choose.randrange(-(1 << 40), 1 << 40), choose.randrange(8)])
    first, sizes, moments = rows[5][0], [0] * 8, {}
    for t, _, size, category in rows:
        sizes[category] += size
        moments[t] = list(sizes)
    for name in ('a.raw.json', 'b.raw.json.gz', 'c.raw.gz', 'd.json'):
        path = write(tmp_path / name, json.dumps(rows, indent=1) if name == 'd.json' else rows)
        assert sizes_of(analyze('memory', path)['rows']) == list(moments.values()), name
    late = [s for t, s in moments.items() if t - first >= 30 * 10 ** 9]
    assert late and sizes_of(analyze('memory', '--from', '30', path)['rows']) == late
    assert len(analyze('memory', '--top', '7', path)['rows']) == 7
    for wanted in (['--from', '1e9'], ['--stage', 'x'], ['--device', '0']):
        assert 'nothing matches' in analyze('memory', *wanted, path, rc=1, format=None).err


def test_other_commands_leave_rows_out(analyze, path, tmp_path):
    for command in ('stages', 'breakdown', 'dump', 'timeline'):
        err = analyze(command, path, rc=1, format=None).err
        assert 'these commands read it: info, memory' in err
    for layout in ('leaks', 'oom'):
        assert 'need traces of libtfinject.so' in analyze('memory', '--layout', layout, path, rc=1, format=None).err
    assert 'takes timeline|raw|peaks|leaks|oom' in analyze('memory', '--layout', 'plot', path, rc=2, format=None).err


def test_in_a_directory(analyze, tmp_path):
    """A directory's rows are an input beside its traces, and questions that cannot use them say so without failing."""
    write(tmp_path / 'rank0.raw.json.gz', [[-1, 1, 8, 0], [5, 2, 16, 3]])
    write(tmp_path / 'rank1.raw.json', [[7, 2, 32, 3]])
    assert [(r['rank'], r['allocated_bytes']) for r in analyze('memory', tmp_path)['rows']] == [(0, 8), (0, 24), (1, 32)]
    write(tmp_path / 'rank0.json', {'traceEvents': [
        {'ph': 'X', 'cat': 'user_annotation', 'name': 's', 'pid': 1, 'tid': 1, 'ts': 1, 'dur': 5}]})
    result = analyze('stages', tmp_path, format=None)
    assert 'rank0.raw.json.gz: is left out' in result.err and '\ns   ' in result.out


# ---- damage ----

@pytest.mark.parametrize('text, good, loss', [
    ('[[1,2,3,4],[1,2,3', 1, 'ends early'),
    ('[[1,2,3,4],', 1, 'ends early'),
    ('[[1,2,3,4],[1,2,3,4', 1, 'ends early'),
    ('[[1,2,3,4],7,{"a":[1]},[1,2],"x",[2,2,3,4],[[[]]],[1,2,3.0,4],[1,9,3,4],[1,2,3,8],[-2,2,3,4],["1",2,3,4],null]', 2, '11 items'),
    ('[[1,2,99999999999999999999999,4],[3,2,5,1]]', 1, '1 items'),
    ('[[1,2,3,4]' + ' ' * 100000 + ',[3,2,5,1]', 2, 'ends early'),
])
def test_damaged_rows(analyze, tmp_path, text, good, loss):
    path = write(tmp_path / 'x.raw.json', text)
    answer = analyze('memory', '--layout', 'raw', path, rc=3)
    assert len(answer['rows']) == good and not answer['inputs'][0]['complete']
    assert loss in analyze('memory', path, rc=3, format=None).err


def test_cut_gzip(analyze, path, tmp_path):
    data = path.read_bytes()
    (tmp_path / 'x.raw.json.gz').write_bytes(data[:len(data) // 2])
    rows = analyze('memory', '--layout', 'raw', tmp_path / 'x.raw.json.gz', rc=3)['rows']
    assert 5000 < len(rows) < 16845
    whole = analyze('memory', '--layout', 'raw', path)['rows']
    assert rows == whole[:len(rows)]
    (tmp_path / 'y.raw.json.gz').write_bytes(data[:5000] + b'\xff' * 100 + data[5100:])
    assert analyze('memory', tmp_path / 'y.raw.json.gz', rc=3, format=None).err.count('damaged') == 1


def test_empty(analyze, tmp_path):
    assert analyze('memory', write(tmp_path / 'x.raw.json.gz', []))['rows'] == []
    for text in ('', '[', '[7]', '{}', '[[1,2]]', '[[[1,2,3,4]]]'):
        assert analyze('memory', write(tmp_path / 'y.raw.json', text), rc=1, format=None).err


@pytest.mark.slow
@pytest.mark.parametrize('text', ['[', '[[1,2,3,4],[', '[[1,2,3,4],{"', '[[1,2,3,4], ', '[[1,2,3,4],1', '[[1,2,3,4],,,,'])
def test_more_nonsense_than_memory(tfanalyze, tmp_path, text):
    """Memory stays bounded, and the one good row is kept."""
    path, limit = tmp_path / 'x.raw.json.gz', 300 << 20
    packed(path, text.encode(), text[-1].encode() * (1 << 20), (limit >> 20) + 40, b'')
    result = execute(['prlimit', f'--as={limit}', tfanalyze, 'memory', '--layout', 'raw', '--format', 'json', path],
                     clean_environment())
    assert result.rc == (3 if '4' in text else 1), result.err
    if result.rc == 3:
        assert len(json.loads(result.out)['rows']) == 1
