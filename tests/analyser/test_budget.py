"""test_budget - `launches --budget` and `--write-budget`: verdicts, exit status, bad budgets, traces that cannot be judged.

tests/kineto.py and tests/tfr.py write the traces, whose calls the tests count. tests/gpu/test_gpu_budget.py and
tests/python/test_budget_torchfx.py do the same with programs.
"""

import csv
import io
import json
import os

import pytest

import kineto
from conftest import clean_environment, execute
from test_device_records import US, Trace, ticks
from tfr import rec

COUNTS = {'encode': {'launches': 2, 'copies': 1, 'dispatches': 1}, 'step': {'launches': 3, 'graph_launches': 1, 'syncs': 2, 'memsets': 1}}
NAMES = {'launches': 'cudaLaunchKernel', 'graph_launches': 'cudaGraphLaunch', 'copies': 'cudaMemcpyAsync', 'memsets': 'cudaMemsetAsync',
         'syncs': 'cudaStreamSynchronize'}
KEYS = (*NAMES, 'dispatches')


def whole(counts):
    return {stage: {key: of_stage.get(key, 0) for key in KEYS} for stage, of_stage in counts.items()}


def trace(path, counts=COUNTS, rank=0, **job):
    """A Kineto trace with one entry of each stage, and calls as counted."""
    t = kineto.Trace(distributedInfo={'rank': rank, **job})
    at, id = 1000, 1
    for stage, of_stage in counts.items():
        t.stage(stage, at, 900)
        t.operator('aten::mm', at + 1, 2)
        for key, count in of_stage.items():
            for _ in range(count):
                at, id = at + 5, id + 1
                if key == 'dispatches':
                    t.operator('torchfx::biquad', at, 2)
                else:
                    t.call(at, id, name=NAMES[key])
        at += 1000
    t.write(path)
    return path


@pytest.fixture
def budget(tmp_path):
    def write(stages, **top):
        path = tmp_path / 'budget.json'
        path.write_text(json.dumps({'version': 1, 'stages': stages, **top}))
        return path
    return write


def judged(analyze, budget, *inputs, rc=4, **options):
    """{(rank, stage, counter): (allowed, found, verdict)} and the totals."""
    answer = analyze('launches', '--budget', budget, *inputs, rc=rc, **options)
    rows = {(r['rank'], r['stage'], r['counter']): (r['allowed'], r['found'], r['verdict']) for r in answer['rows']}
    assert len(rows) == len(answer['rows'])
    return rows, answer['totals']


def test_within(analyze, tmp_path, budget):
    path = trace(tmp_path / 'a.json')
    rows, totals = judged(analyze, budget(whole(COUNTS), note='all of it'), path, rc=0)
    assert rows == {(0, stage, key): (n, n, 'within') for stage, of_stage in whole(COUNTS).items() for key, n in of_stage.items()}
    assert totals == {'passed': True, 'counts': 12, 'exceeded': 0, 'not_judged': 0}


@pytest.mark.parametrize('stage, key', [(s, k) for s, of_stage in COUNTS.items() for k in of_stage])
def test_one_too_many(analyze, tmp_path, budget, stage, key):
    path, stages = trace(tmp_path / 'a.json'), whole(COUNTS)
    stages[stage][key] -= 1
    rows, totals = judged(analyze, budget(stages), path)
    most, found = COUNTS[stage][key] - 1, COUNTS[stage][key]
    assert {k: v for k, v in rows.items() if v[2] != 'within'} == {(0, stage, key): (most, found, 'exceeded')}
    assert totals == {'passed': False, 'counts': 12, 'exceeded': 1, 'not_judged': 0}
    text = analyze('launches', '--budget', budget(stages), path, rc=4, format='text')
    assert [line.split() for line in text.out.splitlines() if 'exceeded' in line][0] == ['0', stage, key, str(most), str(found), 'exceeded']
    assert f'budget.json: 1 of 12 counts exceed the budget; the first: stage {stage}, rank 0, {key}, {most} allowed, {found} found' in text.err
    table = list(csv.DictReader(io.StringIO(analyze('launches', '--budget', budget(stages), path, rc=4, format='csv').out)))
    assert [list(r.values()) for r in table if r['verdict'] != 'within'] == [['0', stage, key, str(most), str(found), 'exceeded']]


def test_globs_and_exact_names(analyze, tmp_path, budget):
    """A name of a stage is that stage, whatever else it matches; other names are globs, and each stage is judged."""
    path = trace(tmp_path / 'a.json', {'s*': {'launches': 1}, 'sa': {'launches': 2}, 'sb': {'launches': 3}, 'other': {'launches': 4}})
    rows, _ = judged(analyze, budget({'s*': {'launches': 1}}), path, rc=0)
    assert rows == {(0, 's*', 'launches'): (1, 1, 'within')}
    rows, _ = judged(analyze, budget({'s[ab]': {'launches': 2}, '?ther': {'launches': 4}}), path)
    assert rows == {(0, 'sa', 'launches'): (2, 2, 'within'), (0, 'sb', 'launches'): (2, 3, 'exceeded'), (0, 'other', 'launches'): (4, 4, 'within')}


def test_absent_stages(analyze, tmp_path, budget):
    path = trace(tmp_path / 'a.json')
    rows, totals = judged(analyze, budget({'encode': {'launches': 9}, 'decode': {'launches': 9, 'syncs': 0}, 'vae_*': {'copies': 0}}), path)
    assert rows == {(0, 'encode', 'launches'): (9, 2, 'within'), (None, 'decode', 'launches'): (9, None, 'stage absent'),
                    (None, 'decode', 'syncs'): (0, None, 'stage absent'), (None, 'vae_*', 'copies'): (0, None, 'stage absent')}
    assert totals == {'passed': False, 'counts': 4, 'exceeded': 0, 'not_judged': 3}
    rows, _ = judged(analyze, budget({'encode': {'launches': 9}}), path, '--stage', 'step')
    assert rows == {(None, 'encode', 'launches'): (9, None, 'stage absent')}


def test_each_rank_by_itself(analyze, tmp_path, budget):
    more = {**COUNTS, 'step': {**COUNTS['step'], 'launches': 7}, 'only here': {'syncs': 1}}
    paths = [trace(tmp_path / 'a.json'), trace(tmp_path / 'b.json', more, rank=1)]
    rows, _ = judged(analyze, budget({'step': {'launches': 4}, 'only here': {'syncs': 1}}), *paths)
    assert rows == {(0, 'step', 'launches'): (4, 3, 'within'), (1, 'step', 'launches'): (4, 7, 'exceeded'), (1, 'only here', 'syncs'): (1, 1, 'within')}
    judged(analyze, budget({'step': {'launches': 4}}), *paths, '--rank', '0', rc=0)
    made = tmp_path / 'made.json'
    analyze('launches', *paths, '--write-budget', made)
    assert json.loads(made.read_text())['stages'] == {'(none)': whole({'(none)': {}})['(none)'], **whole(more)}
    judged(analyze, made, *paths, rc=0)


ABSENT = [  # ranks with a trace, options, the ranks that lack one
    ((0, 1, 3), (), '2'), ((1,), (), '0, 2, 3'), ((0, 1, 3), ('--rank', '0-2'), '2'), ((0, 1, 2, 3), (), ''), ((0, 1, 3), ('--rank', '0,1,3'), ''),
    ((0, 1, 3), ('--rank', '3-99'), '')]


@pytest.mark.parametrize('ranks, options, absent', ABSENT)
@pytest.mark.parametrize('kind', ['ours', 'kineto'])
def test_a_rank_without_a_trace_never_passes(analyze, tmp_path, budget, kind, ranks, options, absent):
    """A job states its size, so a rank whose file is missing is known; --rank chooses those that are judged."""
    paths = [tmp_path / f'{rank}.{"tfr" if kind == "ours" else "json"}' for rank in ranks]
    for rank, path in zip(ranks, paths):
        ours(path, rank=rank, world=4) if kind == 'ours' else trace(path, {'inside': {'launches': 1}}, rank, world_size=4)
    limits = budget({'inside': {'launches': 1, 'syncs': 0}, **({'nowhere': {'launches': 1}} if absent else {})})
    rows, totals = judged(analyze, limits, *paths, *options, rc=4 if absent else 0)
    lacking = {key for key, (_, found, verdict) in rows.items() if verdict == 'rank absent' and found is None}
    assert lacking == ({(None, 'inside', 'launches'), (None, 'inside', 'syncs'), (None, 'nowhere', 'launches')} if absent else set())
    assert totals['passed'] == (not absent) and totals['not_judged'] == len(lacking)
    assert {verdict for key, (_, _, verdict) in rows.items() if key not in lacking} == {'within'}
    said = f'rank{"s" if "," in absent else ""} {absent} of 4 ranks ha'
    written = analyze('launches', *paths, *options, '--write-budget', tmp_path / 'made.json', rc=3 if absent else 0, format='text')
    assert (said in written.err) == bool(absent) != (tmp_path / 'made.json').exists()
    assert (said in analyze('launches', '--budget', limits, *paths, *options, rc=4 if absent else 0, format='text').err) == bool(absent)


def test_a_wrong_size_of_the_job_costs_no_time(analyze, tmp_path, budget):
    path = trace(tmp_path / 'a.json', world_size=2_000_000_000)
    text = analyze('launches', '--budget', budget(whole(COUNTS)), path, rc=4, format='text')
    assert 'ranks 1, 2, 3, 4, 5, 6, 7, 8 and more of 2000000000 ranks have no trace' in text.err


def test_a_written_budget_is_kept(analyze, tmp_path):
    """Also with names that JSON has to escape. It fails as soon as one number is smaller."""
    counts = {'a "b"\\': {'launches': 1}, 'tab\tand\x1b[0m': {'syncs': 1}, 'ü\U0001f600': {'copies': 2}, '[x]*?': {'memsets': 1}, 'x': {'launches': 1}}
    path, made = trace(tmp_path / 'a.json', counts), tmp_path / 'made.json'
    answer = analyze('launches', path, '--write-budget', made)
    assert answer['rows'] == analyze('launches', path)['rows']
    file = json.loads(made.read_text())
    assert file['version'] == 1 and file['stages'] == {'(none)': whole({'': {}})[''], **whole(counts)}
    rows, totals = judged(analyze, made, path, rc=0)
    assert totals['passed'] and len(rows) == 6 * 6
    for stage, of_stage in file['stages'].items():
        for key, most in of_stage.items():
            if most:
                smaller = {**file, 'stages': {**file['stages'], stage: {**of_stage, key: most - 1}}}
                (tmp_path / 'smaller.json').write_text(json.dumps(smaller))
                rows, _ = judged(analyze, tmp_path / 'smaller.json', path)
                assert {k: v for k, v in rows.items() if v[2] != 'within'} == {(0, stage, key): (most - 1, most, 'exceeded')}


# ---- what cannot be judged ----

def test_an_incomplete_trace_never_passes(analyze, tmp_path, budget):
    path = trace(tmp_path / 'a.json')
    cut = tmp_path / 'cut.json'
    cut.write_text(path.read_text()[:-40])
    rows, totals = judged(analyze, budget({'encode': {'launches': 9}, 'step': {'launches': 2}}), cut)
    assert rows == {(0, 'encode', 'launches'): (9, 2, 'trace incomplete'), (0, 'step', 'launches'): (2, 3, 'exceeded')}
    assert totals == {'passed': False, 'counts': 2, 'exceeded': 1, 'not_judged': 1}
    made = tmp_path / 'made.json'
    result = analyze('launches', cut, '--write-budget', made, rc=3, format='text')
    assert not made.exists() and 'made.json: is not written: a trace is not whole' in result.err and result.out
    (tmp_path / 'noise.json').write_text('no trace')
    rows, _ = judged(analyze, budget({'encode': {'launches': 9}}), path, tmp_path / 'noise.json')
    assert rows == {(0, 'encode', 'launches'): (9, 2, 'trace incomplete')}


def test_counts_that_were_not_recorded(analyze, tmp_path, budget):
    """A trace of PyTorch's profiler without calls or without operators says nothing about them."""
    t = kineto.Trace().stage('a', 0, 100).operator('aten::mm', 1, 2)
    t.write(tmp_path / 'cpu.json')
    limits = budget({'a': {'launches': 0, 'dispatches': 0}})
    rows, _ = judged(analyze, limits, tmp_path / 'cpu.json')
    assert rows == {(0, 'a', 'launches'): (0, None, 'not recorded'), (0, 'a', 'dispatches'): (0, 0, 'within')}
    t = kineto.Trace().stage('a', 0, 100).call(3, 1, name='cudaDeviceSynchronize')
    t.write(tmp_path / 'gpu.json')
    rows, _ = judged(analyze, limits, tmp_path / 'gpu.json')
    assert rows == {(0, 'a', 'launches'): (0, 0, 'within'), (0, 'a', 'dispatches'): (0, None, 'not recorded')}
    analyze('launches', tmp_path / 'gpu.json', '--write-budget', tmp_path / 'made.json')
    assert json.loads((tmp_path / 'made.json').read_text())['stages']['a'] == {'launches': 0, 'graph_launches': 0, 'copies': 0, 'memsets': 0, 'syncs': 1}


CPU, OPS = 1, 16  # bits of activities


def ours(path, switches=(), footer=True, rank=0, world=1, cause='file', **header):
    """A trace of ours: three stages with a call in each, two of them nested, and one call outside."""
    t = Trace(rank=rank, world=world, **header)
    t.stage('inside', 120 * US, 150 * US)
    t.stage('chosen', 100 * US, 200 * US)
    t.stage('left out', 300 * US, 400 * US)
    for at in (110, 130, 310, 500):
        t.call('cudaLaunchKernel', at * US, 5 * US)
    for at, state, activities in switches:
        t.records.append(rec('recording', state=state, time=ticks(at * US), activities=activities, cause=t.w.string(cause)))
    t.save(path)
    if not footer:
        path.write_bytes(path.read_bytes()[:t.w.blocks[-1].offset])
    return path


def verdicts(analyze, path, limits, rc=0):
    rows, _ = judged(analyze, limits, path, rc=rc)
    return {stage: verdict for (_, stage, _), (_, _, verdict) in rows.items()}


OFF, ON = 0, 2
CASES = {  # header, switches, the stages that cannot be judged
    'everything': ({}, (), ''),
    'names': ({'env.ENABLE_PROFILER_NAMES': 'chos*,x'}, (), 'left out,(none)'),
    'inner': ({'env.ENABLE_PROFILER_NAMES': 'inside'}, (), 'chosen,left out,(none)'),
    'all stages': ({'env.ENABLE_PROFILER_NAMES': '*'}, (), '(none)'),
    'only times': ({'env.ENABLE_PROFILER_NAMES': ''}, (), 'inside,chosen,left out,(none)'),
    'off during one': ({}, ((250, OFF, 0), (450, ON, 0xff)), 'left out,(none)'),
    'off during a part': ({}, ((350, OFF, 0),), 'left out,(none)'),
    'off by a signal': ({'cause': 'signal'}, ((140, OFF, 0), (145, ON, 0xff)), 'inside,chosen,(none)'),
    'delay': ({'cause': 'delay'}, ((10, OFF, 0), (250, ON, 0xff)), 'inside,chosen,(none)'),
    'duration': ({'cause': 'duration'}, ((10, ON, 0xff), (250, OFF, 0)), 'left out,(none)'),
    'steps left one out': ({'cause': 'schedule'}, ((250, OFF, 0), (450, ON, 0xff)), 'left out'),
    'steps left a part out': ({'cause': 'schedule'}, ((350, OFF, 0),), ''),
    'the program left a part out': ({'cause': 'capture'}, ((350, OFF, 0),), ''),
    'no calls, by the header': ({'activities': 'gpu,ops,'}, (), 'inside,chosen,left out,(none)'),
    'the header first': ({'activities': 'cpu,', 'env.TFI_ACTIVITIES': 'gpu'}, (), ''),
    'injected': ({'preloaded': 'no'}, (), ''),
    'no calls': ({'env.TFI_ACTIVITIES': 'gpu, ops'}, (), 'inside,chosen,left out,(none)'),
    'calls': ({'env.TFI_ACTIVITIES': 'gpu, cpu'}, (), ''),
    'calls switched off': ({}, ((350, ON, 0xff & ~CPU),), 'inside,chosen,left out,(none)'),
}


@pytest.mark.parametrize('case', CASES)
def test_stages_that_were_not_recorded(analyze, tmp_path, budget, case):
    """A count of 0 passes only if calls would have been recorded."""
    header, switches, unknown = CASES[case]
    path = ours(tmp_path / 'rank0.elsewhere.1.tfr', switches, **header)
    stages = ('inside', 'chosen', 'left out', '(none)')
    found = verdicts(analyze, path, budget({stage: {'launches': 9} for stage in stages}), rc=4 if unknown else 0)
    assert found == {stage: 'not recorded' if stage in unknown.split(',') else 'within' for stage in stages}
    result = analyze('launches', path, '--write-budget', tmp_path / 'made.json', rc=any)
    known = {stage for stage in stages if stage not in unknown.split(',')}
    if known:
        assert set(json.loads((tmp_path / 'made.json').read_text())['stages']) == known
    else:
        assert not (tmp_path / 'made.json').exists() and result['rows']


def stages_of(path, calls, entries, **header):
    """Stages (name, start, end) and launches, in microseconds."""
    t = Trace(rank=0, world=1, **header)
    for name, start, end in entries:
        t.stage(name, start * US, end * US)
    for at in calls:
        t.call('cudaLaunchKernel', at * US, 5 * US)
    t.save(path)
    return path


def test_a_stage_that_is_selected_in_places(analyze, tmp_path, budget):
    """`step` is recorded inside `chosen` only, so its count lacks the calls of its other entry."""
    entries = [('chosen', 100, 200), ('step', 120, 150), ('step', 320, 350)]
    path = stages_of(tmp_path / 'a.tfr', (130,), entries, **{'env.ENABLE_PROFILER_NAMES': 'chosen'})
    assert verdicts(analyze, path, budget({'step': {'launches': 1}}), rc=4) == {'step': 'not recorded'}
    assert verdicts(analyze, path, budget({'chosen': {'launches': 0}})) == {'chosen': 'within'}
    analyze('launches', path, '--write-budget', tmp_path / 'made.json')
    assert set(json.loads((tmp_path / 'made.json').read_text())['stages']) == {'chosen'}


def test_a_library_that_was_not_preloaded(analyze, tmp_path, budget):
    """It gets calls from CUPTI alone: a trace without any knows nothing about them."""
    limits = budget({'a': {'launches': 0}})
    late = stages_of(tmp_path / 'a.tfr', (), [('a', 100, 200)], preloaded='no')
    assert verdicts(analyze, late, limits, rc=4) == {'a': 'not recorded'}
    assert verdicts(analyze, stages_of(tmp_path / 'b.tfr', (300,), [('a', 100, 200)], preloaded='no'), limits) == {'a': 'within'}
    assert verdicts(analyze, stages_of(tmp_path / 'c.tfr', (), [('a', 100, 200)], preloaded='yes'), limits) == {'a': 'within'}


@pytest.mark.parametrize('kind', ['ours', 'kineto'])
def test_an_empty_trace_is_no_trace_of_its_rank(analyze, tmp_path, budget, kind):
    """The rank may have run elsewhere, and a helper of it left the file."""
    paths = [tmp_path / f'{rank}.{"tfr" if kind == "ours" else "json"}' for rank in range(2)]
    if kind == 'ours':
        ours(paths[0], rank=0, world=2)
        Trace(rank=1, world=2).save(paths[1])
    else:
        trace(paths[0], {'inside': {'launches': 1}}, 0, world_size=2)
        kineto.Trace(distributedInfo={'rank': 1, 'world_size': 2}).write(paths[1])
    limits = budget({'inside': {'launches': 1}})
    rows, _ = judged(analyze, limits, *paths)
    assert rows == {(0, 'inside', 'launches'): (1, 1, 'within'), (None, 'inside', 'launches'): (1, None, 'rank absent')}
    judged(analyze, limits, *paths, '--rank', '0', rc=0)
    result = analyze('launches', *paths, '--write-budget', tmp_path / 'made.json', rc=3, format='text')
    assert 'rank 1 of 2 ranks has no trace with stages or calls' in result.err and not (tmp_path / 'made.json').exists()


def test_losses_and_ends(analyze, tmp_path, budget):
    limits = budget({'chosen': {'launches': 9}})
    path = ours(tmp_path / 'rank0.elsewhere.1.tfr')
    assert verdicts(analyze, path, limits) == {'chosen': 'within'}
    path.write_bytes(path.read_bytes()[:-30])
    rows, _ = judged(analyze, limits, path)
    assert [v for _, _, v in rows.values()] == ['trace incomplete']


def test_a_process_that_has_not_ended(analyze, tmp_path, budget):
    """A trace without an end lost nothing that is known, but the stage may be entered again."""
    path = ours(tmp_path / 'rank0.elsewhere.1.tfr', footer=False)
    rows, totals = judged(analyze, budget({'chosen': {'launches': 9}}), path)
    assert rows == {(0, 'chosen', 'launches'): (9, 1, 'trace incomplete')} and totals['not_judged'] == 1
    made = tmp_path / 'made.json'
    assert 'a trace is not whole' in analyze('launches', path, '--write-budget', made, rc=3, format='text').err and not made.exists()


# ---- the command line ----

BAD = {
    '': 'line 1', '{': 'line 1', '{"version": 1, "stages": {"a": {"syncs": 1}}} x': 'line 1', '[]': 'a list', '7': 'a whole number',
    '{}': 'lacks "version": 1', '{"version": "1", "stages": {}}': 'lacks "version": 1', '{"version": 0}': 'lacks "version": 1',
    '{"version": 2, "stages": {"a": {"syncs": 1}}}': 'version 2',
    '{"version": 1}': '"stages" is missing', '{"version": 1, "stages": []}': '"stages" is a list',
    '{"version": 1, "stages": {}}': 'has 0 stages', '{"version": 1, "stages": {"a": 3}}': 'stage a: its counts are a whole number',
    '{"version": 1, "stages": {"a": {}}}': 'stage a: has no count',
    '{"version": 1, "stages": {"a": {"note": "x"}}}': 'stage a: has no count',
    '{"version": 1, "stages": {"a": {"note": 1, "syncs": 2}}}': 'stage a: the note is a whole number',
    '{"version": 1, "note": [], "stages": {"a": {"syncs": 2}}}': 'the note is a list',
    '{"version": 1, "stages": {"a": {"sync": 1}}}': 'stage a: there is no count sync, did you mean syncs; the counts are launches,',
    '{"version": 1, "stages": {"a": {"cpu_us": 1}}}': 'stage a: there is no count cpu_us',
    '{"version": 1, "stages": {"a": {"syncs": -1}}}': 'stage a: syncs is negative',
    '{"version": 1, "stages": {"a": {"syncs": 1.0}}}': 'stage a: syncs is a fraction',
    '{"version": 1, "stages": {"a": {"syncs": "1"}}}': 'stage a: syncs is a text',
    '{"version": 1, "stages": {"a": {"syncs": null}}}': 'stage a: syncs is null',
    '{"version": 1, "stages": {"a": {"syncs": true}}}': 'stage a: syncs is true or false',
    '{"version": 1, "stages": {"a": {"syncs": 9223372036854775808}}}': 'line 1, column 60: too big integer',
    '{"version": 1,\n "stages": {"a": {"syncs": 1},\n  "a": {"syncs": 2}}}': 'line 3, column 5: duplicate',
    '{"version": 1, "stages": {"a": {"syncs": 1, "syncs": 2}}}': 'line 1, column 51: duplicate',
    '{"version": 1, "stages": {"a\\u0000b": {"syncs": 1}}}': 'line 1',
    '{"version": 1, "stage": {"a": {"syncs": 1}}, "stages": {"a": {"syncs": 1}}}': 'there is no key stage',
    '[' * 100000: 'line 1',
}


@pytest.mark.parametrize('program', ['plain', 'asan'])
def test_bad_budgets(request, analyze, tmp_path, program):
    """A message tells what is wrong, where, and what to do; status 2 before a trace is read."""
    asan = request.getfixturevalue('tfanalyze_asan') if program == 'asan' else None
    path = tmp_path / 'bad.json'
    for text, said in BAD.items():
        path.write_text(text)
        result = analyze('launches', tmp_path / 'missing.json', '--budget', path, rc=2, format='text', program=asan)
        assert result.out == '' and said in result.err and 'missing' not in result.err.replace('is missing', ''), (text, result.err)
        assert result.err.startswith('tfanalyze: ') and 'bad.json: ' in result.err and result.err.count('\n') == 1
    path.write_text(json.dumps({'version': 1, 'stages': {f's{i}': {'syncs': 1} for i in range(10001)}}))
    assert 'has 10001 stages' in analyze('launches', tmp_path, '--budget', path, rc=2, format='text', program=asan).err
    path.write_text(json.dumps({'version': 1, 'stages': {f's{i}*': {'syncs': 1} for i in range(257)}}))
    assert 'has 257 names with' in analyze('launches', tmp_path, '--budget', path, rc=2, format='text', program=asan).err
    path.write_text(' ' * ((4 << 20) + 1))
    assert 'it has 4194305 bytes, and at most 4194304 are read' in analyze('launches', tmp_path, '--budget', path, rc=2, format='text', program=asan).err


def test_budgets_that_are_no_files(analyze, tmp_path):
    os.mkfifo(tmp_path / 'fifo')
    for path, said in ((tmp_path / 'none', 'No such file'), (tmp_path, 'it is a directory'), (tmp_path / 'fifo', 'it is a FIFO')):
        result = analyze('launches', trace(tmp_path / 'a.json'), '--budget', path, rc=2, format='text')
        assert said in result.err and 'as a budget' in result.err


@pytest.mark.parametrize('words', [('--write-budget', 'x'), ('--rules', 'hta'), ('--device', '0'), ('--stream', '7'), ('--from', '0'), ('--to', '1'), ('--top', '1')])
def test_filters_that_hide_calls_are_refused(analyze, tmp_path, budget, words):
    path = trace(tmp_path / 'a.json')
    result = analyze('launches', path, '--budget', budget({'step': {'launches': 9}}), *words, rc=2, format='text')
    assert f'--budget and {words[0]} exclude each other' in result.err and not (tmp_path / 'x').exists()


def test_where_a_budget_is_written(analyze, tmp_path):
    """Whole or not at all; a file is replaced, a link or a directory is not touched."""
    path, made = trace(tmp_path / 'a.json'), tmp_path / 'made.json'
    made.write_text('old and much longer ' * 1000)
    analyze('launches', path, '--write-budget', made)
    first = made.read_bytes()
    assert json.loads(first)['stages']['step']['launches'] == 3
    (tmp_path / 'link.json').symlink_to(tmp_path / 'target.json')
    (tmp_path / 'other.json').symlink_to(made)
    (tmp_path / 'folder').mkdir()
    for name, said in (('link.json', 'a symbolic link has that name'), ('other.json', 'a symbolic link has that name'),
                       ('folder', 'a directory has that name'), ('no/where.json', 'No such file or directory')):
        result = analyze('launches', path, '--write-budget', tmp_path / name, rc=1, format='text')
        assert said in result.err, (name, result.err)
    assert made.read_bytes() == first and not (tmp_path / 'target.json').exists() and (tmp_path / 'link.json').is_symlink()
    assert not [p for p in tmp_path.iterdir() if p.name.endswith('.tmp')]


def test_with_other_questions(tfanalyze, tmp_path, budget):
    path = trace(tmp_path / 'a.json')
    for most, rc in ((3, 0), (2, 4)):
        result = execute([tfanalyze, 'api,launches,stages', path, '--budget', budget({'step': {'launches': most}}), '--format', 'json'],
                         clean_environment(), tmp_path)
        answers = json.loads(result.out)
        assert result.rc == rc and [a['command'] for a in answers] == ['api', 'launches', 'stages']
        assert answers[1]['totals']['passed'] == (rc == 0) and answers[2]['rows']


def test_a_cut_trace_may_lack_the_calls(analyze, tmp_path, budget):
    """The same events without a call: whole, the profiler left the calls out; cut, they may have been in the rest."""
    limits, path = budget({'s': {'launches': 9}}), tmp_path / 'a.json'
    whole = kineto.Trace().stage('s', 0, 1000).operator('op', 10, 100, external=1).operator('op', 200, 100, external=2).write(path).read_text()
    assert judged(analyze, limits, path)[0] == {(0, 's', 'launches'): (9, None, 'not recorded')}
    path.write_text(whole[:whole.rindex('{"ph"') + 20])
    assert judged(analyze, limits, path)[0] == {(0, 's', 'launches'): (9, None, 'trace incomplete')}
    said = analyze('launches', '--budget', limits, path, rc=4, format=None).err
    assert 'a trace is not whole' in said and 'ENABLE_PROFILER_NAMES' not in said
