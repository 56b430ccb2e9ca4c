"""test_functions - TFI_STAGES on functions of every kind, in every Python version on this machine.

The scripts of tests/functions mark the stage that they expect to be innermost (probe.at). The tests compare these marks
with the ranges, pauses and resumes at the same place of the trace.
"""

import json
import re
from collections import Counter
from types import SimpleNamespace

import pytest

import pythons
import scripted
from conftest import ROOT

SCRIPTS = ROOT / 'tests' / 'functions'
NAMES = ['plain', 'decorated', 'hidden', 'twice', 'Base.method', 'Part.method', 'Part.made', 'Part.free', 'fails', 'numbers',
         'chain', 'countdown', 'section', 'waits', 'inner', 'items', 'deep', 'used']
STAGES = ','.join([f'parts:{n}' for n in NAMES] + ['__main__:local', '__main__:Local.method'])
by_version = pythons.by_version()


def marks_are_right(rows):
    """Compares each mark with the stage open on its thread; returns the number of marks."""
    open_, place, name, marks = {}, {}, {}, 0
    for row in rows:
        values, kind = row['values'], row['kind']
        stack = open_.setdefault((row['pid'], row['tid']), {})
        one = row['pid'], values.get('id')
        if kind in ('range_begin', 'range_resume'):
            assert one not in place, row
            name[values['id']] = values['name']
            place[one] = stack
            stack[values['id']] = True
        elif kind in ('range_pause', 'range_end') and one in place:
            del place.pop(one)[values['id']]
        elif kind == 'mark' and values['name'] != 'waiting':
            marks += 1
            assert (name[next(reversed(stack))] if stack else '-') == values['name'], row
    return marks


@pytest.fixture
def scenario(run, analyze):
    """scenario(python, name, ...) -> rows of the trace, times by stage; compares the output with a bare run's."""
    def scenario(python, name, rc=0, err='', complete=True, stages=STAGES, preload=True):
        command = [python.path, SCRIPTS / 'main.py', name]
        env = {'PYTHONDONTWRITEBYTECODE': '1'}
        bare = run(command, env, preload=False)
        assert (bare.rc, re.sub(r'0x\w+', '', bare.err)) == (rc, bare.err if err is None else err), bare.err
        watched = run(command, {**env, 'TFI_STAGES': stages}, preload=preload)
        assert (watched.rc, watched.out, watched.err) == (rc, bare.out, bare.err)
        rows = analyze('dump', watched.dir, rc=0 if complete else 3)['rows']
        times = {}
        for path in watched.dir.glob('*.timing.json'):
            for stage, found in json.loads(path.read_text())['stages'].items():
                kept = times.setdefault(stage, Counter())
                kept.update({k: v for k, v in found.items() if isinstance(v, (int, float))})
        return rows, times
    return scenario


def unmatched(rows):
    return sum(r['values']['count'] for r in rows if r['kind'] == 'drop')


@by_version
def test_kinds(scenario, python):
    rows, times = scenario(python, 'kinds')
    assert marks_are_right(rows) > 20 and not unmatched(rows)
    expected = {'plain': 3, 'decorated': 1, 'hidden': 1, 'twice': 1, 'Base.method': 2, 'Part.method': 1,
                'Part.made': 2, 'Part.free': 2, 'used': 1, 'local': 1, 'Local.method': 1}
    assert {k: v['calls'] for k, v in times.items()} == expected
    said = [(r['values']['name'], r['values']['direction'], json.loads(r['values']['text'])) for r in rows if r['kind'] == 'signature']
    assert ('plain', 0, {'': 'parts:plain', 'x': 1, 'y': 2, 'k': 1}) in said and ('Part.free', 1, 4) in said
    assert ('Part.method', 0, {'': 'parts:Part.method', 'z': 2}) in said and ('local', 0, {'': '__main__:local', 'x': 1}) in said


@by_version
def test_generators(scenario, python):
    rows, times = scenario(python, 'generators')
    assert marks_are_right(rows) > 50 and not unmatched(rows)
    assert times['numbers']['calls'] == 5 and times['countdown']['calls'] >= 7 and times['section']['calls'] == 1


@by_version
def test_unfinished_generators(scenario, python):
    rows, times = scenario(python, 'unfinished')
    assert marks_are_right(rows) > 6 and not unmatched(rows)
    assert times['plain']['calls'] == 1 and 3 <= times['numbers']['calls'] <= 6


def ran(rows, stage):
    """Milliseconds that the calls of a stage ran; asserts that no two ran at once."""
    pieces, since = [], {}
    for row in rows:
        values, kind = row['values'], row['kind']
        if values.get('name') != stage:
            continue
        if kind in ('range_begin', 'range_resume'):
            since[values['id']] = row['time_us']
        elif kind in ('range_pause', 'range_end') and values['id'] in since:
            pieces.append((since.pop(values['id']), row['time_us']))
    pieces.sort()
    assert all(end <= begin for (_, end), (begin, _) in zip(pieces, pieces[1:])), pieces
    return sum(end - begin for begin, end in pieces) / 1000


def tasks_took_turns(rows, times, calls=9, inner=7):
    """Tasks of one coroutine take turns, and each has just its own pieces of the loop's time."""
    assert marks_are_right(rows) > 50 and not unmatched(rows)
    assert times['waits']['calls'] == calls and times['inner']['calls'] == inner
    assert times['waits']['host_ms'] == pytest.approx(ran(rows, 'waits'), rel=0.01, abs=0.02)
    assert times['waits']['host_ms'] < times['waits']['wall_ms']
    pauses = [r for r in rows if r['kind'] == 'range_pause' and r['values']['name'] == 'waits']
    assert len(pauses) >= 9


@by_version
def test_asyncio(scenario, python):
    tasks_took_turns(*scenario(python, 'asynchronous'))


def test_uvloop(scenario, python):
    tasks_took_turns(*scenario(SimpleNamespace(path=python), 'on_uvloop'))


@pythons.by_version((3, 12))
def test_eager_tasks(scenario, python):
    """A stage that a task opens in its eager first step belongs to the task, not to its creator."""
    if not python:
        pytest.skip('no Python with eager tasks is here')
    tasks_took_turns(*scenario(python, 'eager'), calls=10, inner=8)


@by_version
def test_coroutines_without_a_loop(scenario, python):
    rows, times = scenario(python, 'by_hand')
    assert marks_are_right(rows) == 4 and not unmatched(rows)
    assert times['waits']['calls'] == times['inner']['calls'] == 1


@by_version
def test_threads(scenario, python):
    rows, times = scenario(python, 'threads')
    assert marks_are_right(rows) > 30 and not unmatched(rows)
    assert times['plain']['calls'] == 8 and times['used']['calls'] == 8  # the daemon's is still open


@by_version
def test_recursion(scenario, python):
    rows, times = scenario(python, 'recursion')
    assert marks_are_right(rows) == 3 and not unmatched(rows)
    assert 10000 + 900 < times['deep']['calls'] < 10000 + 900 + 1010


@by_version
def test_exceptions(scenario, python):
    rows, times = scenario(python, 'raising', rc=1, err=None)
    assert marks_are_right(rows) > 10
    assert times['fails']['calls'] == 4 and times['used']['calls'] == 3


@by_version
@pytest.mark.parametrize('name,rc,calls', [('os_exit', 7, {'plain': 1}), ('thread_exit', 4, {'plain': 1, 'used': 2})])
def test_endings(scenario, python, name, rc, calls):
    rows, times = scenario(python, name, rc=rc)
    assert marks_are_right(rows) and {k: v['calls'] for k, v in times.items() if v['calls']} == calls


@by_version
def test_keyboard_interrupt(scenario, python):
    """Python ends by the signal, after its own clean-up, and the trace is whole."""
    rows, times = scenario(python, 'interrupt', rc=-2, err=None)
    assert marks_are_right(rows) == 1 and 'used' in times and times['used']['calls'] == 1


@by_version
def test_fork(scenario, python):
    """The child leaves stages that its parent entered; they are the parent's, and no loss is counted."""
    rows, times = scenario(python, 'forks')
    assert not unmatched(rows) and times['plain']['calls'] == 1 and times['used']['calls'] == 1
    assert len({r['pid'] for r in rows}) == 2


@by_version
def test_entries_that_cannot_be_stages(run, python):
    """Each entry that cannot be a stage gets one message: at once if no function, at the end if missing."""
    stages = 'parts:sqrt,parts:Base.size,parts:nothing,parts:COUNT.bits,parts,:x,parts:Part,__main__:absent,parts:plain,json:dumps'
    result = run([python.path, SCRIPTS / 'main.py', 'kinds'], {'TFI_STAGES': stages, 'PYTHONDONTWRITEBYTECODE': '1'})
    lines = result.err.splitlines()
    assert result.rc == 0 and all(line.startswith('tfinject: TFI_STAGES: ') for line in lines), result.err
    assert sorted(re.search(r'(?<!\S)([\w.]*:[\w.]+|parts)(?!\S)', line.partition('TFI_STAGES: ')[2])[1] for line in lines) == [
        ':x', '__main__:absent', 'json:dumps', 'parts', 'parts:Base.size', 'parts:COUNT.bits', 'parts:Part', 'parts:nothing', 'parts:sqrt'], result.err
    timing, = result.dir.glob('*.timing.json')
    assert list(json.loads(timing.read_text())['stages']) == ['plain']


LOADERS = '''
import resource, torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
torch.set_num_threads(1)
class Digits(Dataset):
    def __len__(self): return 20
    def __getitem__(self, i): return torch.full((4,), float(i))
class Stream(IterableDataset):
    def __iter__(self): return iter(range(20))
def collate(batch): return torch.stack([torch.as_tensor(b).float() for b in batch])
def total(data, **how): return sum(b.sum().item() for b in DataLoader(data, batch_size=3, collate_fn=collate, **how))
for i in range(4): print(total(Digits(), num_workers=2), total(Stream(), num_workers=1, persistent_workers=True), total(Digits()))
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print('cpu', sum(u.ru_utime + u.ru_stime for u in used))
'''


@pytest.mark.slow
def test_loaders(run, python, tmp_path):
    """Loaders with workers, whose functions are stages, give the same batches and take less than twice the processor's time."""
    (tmp_path / 'loaders.py').write_text(LOADERS)
    names = '__main__:collate,__main__:Digits.__getitem__,torch.utils.data:DataLoader.__iter__'
    alone, result = (run([python, 'loaders.py'], {'TFI_STAGES': names, 'TFI_MODULE_DEPTH': '3'}, preload=preload) for preload in (False, True))
    cpu = [float(r.out.splitlines()[-1].split()[1]) for r in (alone, result)]
    assert (result.rc, result.out.splitlines()[:-1]) == (0, alone.out.splitlines()[:-1]) and len(result.out.splitlines()) == 5
    assert cpu[1] < 2 * cpu[0], cpu
    workers = [r for trace in scripted.traces(result.dir) for r in trace.records if r.kind == 'range_begin']
    assert len(workers) > 100
