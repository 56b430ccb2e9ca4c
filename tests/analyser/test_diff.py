"""test_diff - `diff`: two runs by kernel, operator and stage, and two timing.json as TeleFuser compares them.

Python counts the events of the traces.
"""

import csv
import io
import json
import random
import re
from collections import defaultdict

import pytest

import kineto
from test_device_records import US, Trace

BY = {'kernel': ('kernel', 'gpu_memcpy', 'gpu_memset'), 'op': ('cpu_op',), 'stage': ('user_annotation',)}
CATEGORIES = {'kernel': 'COMPUTATION', 'gpu_memcpy': 'MEMORY', 'gpu_memset': 'MEMORY', 'cpu_op': 'operator', 'user_annotation': 'stage'}


def random_trace(seed, path, rank=0):
    """Work, operators and stages of few names, one after the other; returns {by: {name: (kind, calls, total)}}."""
    rng, t, at = random.Random(seed), kineto.Trace(distributedInfo={'rank': rank}), 100
    truth = {by: defaultdict(lambda: [None, 0, 0]) for by in BY}
    for i in range(120):
        category = rng.choice([c for of in BY.values() for c in of])
        name, dur = f'{category} {rng.randrange(7)}', rng.choice([1, 5, 40]) + seed % 3
        at += 100
        if category == 'user_annotation':
            t.stage(name, at, dur)
        elif category == 'cpu_op':
            t.operator(name, at, dur)
        else:
            t.call(at, i + 1)
            t.kernel(name, at + 3, dur, i + 1, cat=category)
        by = next(b for b, of in BY.items() if category in of)
        sums = truth[by][name]
        sums[0], sums[1], sums[2] = CATEGORIES[category], sums[1] + 1, sums[2] + dur
    t.write(path)
    return truth


def state(a, b):
    if not a[1] or not b[1]:
        return 'removed' if a[1] else 'added'
    change = 100 * (b[2] - a[2]) / a[2]
    return 'increased' if change > 5 else 'decreased' if change < -5 else 'same'


def expected(a, b):
    none = [None, 0, 0]
    return {name: (a.get(name, b.get(name))[0], a.get(name, none)[1], b.get(name, none)[1], a.get(name, none)[2], b.get(name, none)[2],
                   state(a.get(name, none), b.get(name, none))) for name in {*a, *b}}


def rows(answer):
    found = {r['name']: (r['kind'], r['calls_a'], r['calls_b'], r['total_a_us'], r['total_b_us'], r['state']) for r in answer['rows']}
    assert len(found) == len(answer['rows'])
    for r in answer['rows']:
        assert r['change_us'] == pytest.approx(r['total_b_us'] - r['total_a_us'])
        assert r['change_pct'] == (pytest.approx(100 * r['change_us'] / r['total_a_us'], abs=1e-4) if r['total_a_us'] else None)
    sizes = [abs(r['change_us']) for r in answer['rows']]
    assert sizes == sorted(sizes, reverse=True)
    counted = [r['state'] for r in answer['rows']]
    for name in ('added', 'removed', 'increased', 'decreased', 'same'):
        assert answer['totals'][name] == counted.count(name)
    return found


@pytest.mark.parametrize('by', BY)
def test_random_traces(analyze, tmp_path, by):
    truths = [random_trace(seed, tmp_path / f'{seed}.json') for seed in range(6)]
    seen = set()
    for i, a in enumerate(truths):
        for k, b in enumerate(truths):
            answer = analyze('diff', tmp_path / f'{i}.json', tmp_path / f'{k}.json', '--by', by)
            assert rows(answer) == expected(a[by], b[by])
            seen |= {r['state'] for r in answer['rows']}
            assert [p['path'] for p in answer['inputs']] == [str(tmp_path / f'{i}.json'), str(tmp_path / f'{k}.json')]
            total = [sum(s[2] for s in side[by].values()) for side in (a, b)]
            assert [answer['totals'][key] for key in ('total_a_us', 'total_b_us')] == (total if by == 'kernel' else [None, None])
    assert {'increased', 'decreased', 'same'} <= seen


def test_kernels_are_the_default_and_formats_agree(analyze, tmp_path):
    random_trace(1, tmp_path / 'a.json'), random_trace(2, tmp_path / 'b.json')
    pair = tmp_path / 'a.json', tmp_path / 'b.json'
    answer = analyze('diff', *pair)
    assert answer['rows'] == analyze('diff', *pair, '--by', 'kernel')['rows']
    table = list(csv.DictReader(io.StringIO(analyze('diff', *pair, format='csv').out)))
    assert [(r['name'], float(r['total_b_us']), r['state']) for r in table] == [(r['name'], r['total_b_us'], r['state']) for r in answer['rows']]
    text = analyze('diff', *pair, '--top', '2', format='text').out.splitlines()
    assert len(text) == 4 and text[1].startswith(answer['rows'][0]['name']) and text[-1].startswith('total: ')


def test_names_on_one_side_only(analyze, tmp_path):
    for name, kernels in (('a', ('both', 'old')), ('b', ('both', 'new'))):
        t = kineto.Trace()
        for i, kernel in enumerate(kernels):
            t.launch(kernel, 100 * i, i + 1, dur=10)
        t.write(tmp_path / f'{name}.json')
    found = rows(analyze('diff', tmp_path / 'a.json', tmp_path / 'b.json'))
    assert found == {'both': ('COMPUTATION', 1, 1, 10, 10, 'same'), 'old': ('COMPUTATION', 1, 0, 10, 0, 'removed'),
                     'new': ('COMPUTATION', 0, 1, 0, 10, 'added')}


def test_a_run_and_itself_and_its_copy(analyze, tmp_path):
    random_trace(3, tmp_path / 'a.json')
    (tmp_path / 'copy.json').write_bytes((tmp_path / 'a.json').read_bytes())
    for other in ('a.json', 'copy.json'):
        answer = analyze('diff', tmp_path / 'a.json', tmp_path / other)
        assert answer['rows'] and {(r['change_us'], r['state']) for r in answer['rows']} == {(0, 'same')}


def test_the_tolerance(analyze, tmp_path):
    """Up to 5 percent is the same; beyond, it is not."""
    for name, durations in (('a', (1000, 1000, 1000, 1000)), ('b', (1050, 1051, 950, 949))):
        t = kineto.Trace()
        for i, dur in enumerate(durations):
            t.launch(f'k{i}', 10000 * i, i + 1, dur=dur)
        t.write(tmp_path / f'{name}.json')
    found = rows(analyze('diff', tmp_path / 'a.json', tmp_path / 'b.json'))
    assert [found[f'k{i}'][-1] for i in range(4)] == ['same', 'increased', 'same', 'decreased']


def test_traces_of_ours_beside_kinetos(analyze, tmp_path):
    t = Trace(rank=0)
    t.stage('s', 90 * US, 400 * US)
    t.work('kernel', 100 * US, 200 * US, 30 * US, name='gemm')
    t.work('kernel', 110 * US, 300 * US, 40 * US, name='gemm')
    t.save(tmp_path / 'rank0.elsewhere.1.tfr')
    k = kineto.Trace()
    k.stage('s', 0, 155)
    k.launch('gemm', 10, 1, dur=35)
    k.write(tmp_path / 'k.json')
    pair = tmp_path / 'rank0.elsewhere.1.tfr', tmp_path / 'k.json'
    assert rows(analyze('diff', *pair)) == {'gemm': ('COMPUTATION', 2, 1, 70, 35, 'decreased')}
    assert rows(analyze('diff', *pair, '--by', 'stage')) == {'s': ('stage', 1, 1, 310, 155, 'decreased')}
    assert rows(analyze('diff', *pair, '--stage', 's')) == rows(analyze('diff', *pair))
    assert 'nothing matches --stage x' in analyze('diff', *pair, '--stage', 'x', rc=1, format='text').err


# ---- ranks ----

def ranks(directory, seeds):
    directory.mkdir()
    return {rank: random_trace(seed, directory / f'r{rank}.json', rank) for rank, seed in seeds.items()}


def added_up(truths, by='kernel'):
    sums = {}
    for truth in truths:
        for name, (kind, calls, total) in truth[by].items():
            old = sums.get(name, [kind, 0, 0])
            sums[name] = [kind, old[1] + calls, old[2] + total]
    return sums


def test_common_ranks(analyze, tmp_path):
    a, b = ranks(tmp_path / 'a', {0: 1, 1: 2, 2: 3}), ranks(tmp_path / 'b', {1: 4, 2: 5, 5: 6})
    result = analyze('diff', tmp_path / 'a', tmp_path / 'b', format='text')
    assert '1 of 3 ranks of A are not in B and are left out: 0' in result.err
    assert '1 of 3 ranks of B are not in A and are left out: 5' in result.err
    answer = analyze('diff', tmp_path / 'a', tmp_path / 'b')
    assert rows(answer) == expected(added_up([a[1], a[2]]), added_up([b[1], b[2]]))
    assert rows(analyze('diff', tmp_path / 'a', tmp_path / 'b', '--rank', '2')) == expected(a[2]['kernel'], b[2]['kernel'])


def test_no_common_rank(analyze, tmp_path):
    a, b = ranks(tmp_path / 'a', {0: 1}), ranks(tmp_path / 'b', {3: 2})
    result = analyze('diff', tmp_path / 'a', tmp_path / 'b', format='text')
    assert 'A is of rank 0 and B of rank 3: they are compared' in result.err
    assert rows(analyze('diff', tmp_path / 'a', tmp_path / 'b')) == expected(a[0]['kernel'], b[3]['kernel'])
    ranks(tmp_path / 'c', {4: 1, 5: 2})
    result = analyze('diff', tmp_path / 'a', tmp_path / 'c', rc=1, format='text')
    assert 'A and B have no rank in common' in result.err and not result.out


# ---- findings ----

def test_findings_gone_new_and_staying(analyze, shared_traces):
    """What A was told to change was changed, and what B has instead is new; a run beside itself keeps all and gains nothing."""
    a, b = (shared_traces / f'planted/gemm_0{name}.json.gz' for name in ('3_compute_misaligned', '1_compute_few_tiles'))
    advice = {path: {r['id']: r for r in analyze('advise', path, '--all', '--gpu', 'MI300X')['rows']} for path in (a, b)}
    matrix = [next(r['us'] for r in analyze('budget', path)['rows'] if r['leaf'] == 'computing/matrix') for path in (a, b)]
    answer = analyze('diff', a, b, '--by', 'finding', '--gpu', 'MI300X')
    gone, new = answer['rows']
    assert (gone['state'], gone['id'], gone['predicted_us'], gone['leaves']) == ('gone', 'misaligned-shapes', advice[a]['misaligned-shapes']['headroom_us'], 'computing/matrix')
    assert gone['measured_us'] == pytest.approx(matrix[0] - matrix[1], abs=.01) and gone['headroom_b_us'] is None
    assert (new['state'], new['id'], new['headroom_b_us'], new['predicted_us']) == ('new', 'weak-operator', advice[b]['weak-operator']['headroom_us'], None)
    walls = [sum(r['us'] for r in analyze('budget', path)['rows']) for path in (a, b)]
    assert [answer['totals'][k] for k in ('total_a_us', 'total_b_us', 'gone', 'new', 'stays')] == [pytest.approx(walls[0], abs=.1), pytest.approx(walls[1], abs=.1), 1, 1, 0]
    same, = analyze('diff', a, a, '--by', 'finding', '--gpu', 'MI300X')['rows']
    assert (same['state'], same['measured_us']) == ('stays', 0) and same['headroom_b_us'] == same['predicted_us']


def test_what_b_cannot_judge_is_not_gone(analyze, shared_traces):
    """Without the device's name nothing is known of its peaks."""
    a, b = shared_traces / 'tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz', shared_traces / 'planted/gemm_03_compute_misaligned.json.gz'
    unjudged = [{one['what'] for one in analyze('advise', path)['totals']['not_judged']} for path in (a, b)]
    answer = analyze('diff', a, b, '--by', 'finding')
    assert set(answer['totals']['not_judged_in_b']) == unjudged[1] - unjudged[0] != set()
    assert 'What is gone may be unknown' in analyze('diff', a, b, '--by', 'finding', format=None).err


# ---- damage and usage ----

def test_incomplete_inputs(analyze, tmp_path):
    random_trace(1, tmp_path / 'a.json')
    (tmp_path / 'cut.json').write_text((tmp_path / 'a.json').read_text()[:-300])
    for pair in (('a.json', 'cut.json'), ('cut.json', 'a.json')):
        answer = analyze('diff', *(tmp_path / p for p in pair), rc=3)
        assert answer['rows'] and [p['complete'] for p in answer['inputs']] == [p == 'a.json' for p in pair]
    (tmp_path / 'noise.json').write_text('noise')
    for pair, side in ((('a.json', 'noise.json'), 'B'), (('noise.json', 'a.json'), 'A'), (('a.json', 'missing'), 'B')):
        result = analyze('diff', *(tmp_path / p for p in pair), rc=1, format='text')
        assert not result.out and f'{side}: there is nothing to compare in' in result.err


@pytest.mark.parametrize('words, said', [
    (['--by', 'trees'], '--by takes kernel|op|stage|tree|finding|run, not trees'), (['--gate', '5'], '--gate needs repeated runs'),
    (['--rules', 'hta'], '--rules is not an option of diff'), (['--by', 'op', '--device', '0'], '--device chooses device work'),
    (['--by', 'stage', '--stream', '7'], '--stream chooses device work'), (['--names', 'short'], '--names has no meaning'),
    (['--gpu', 'H100'], '--gpu has a meaning for findings'), (['--by', 'finding', '--device', '0'], '--device has no meaning for findings'),
])
def test_wrong_usage(analyze, tmp_path, words, said):
    random_trace(1, tmp_path / 'a.json')
    result = analyze('diff', tmp_path / 'a.json', tmp_path / 'a.json', *words, rc=2, format='text')
    assert said in result.err and not result.out


def test_runs_without_a_device(analyze, tmp_path):
    """The message names what can be compared."""
    files = [kineto.Trace().stage('step', 0, 100).operator('aten::mm', 10, 20 + i).write(tmp_path / f'{i}.json') for i in range(2)]
    said = analyze('diff', *files, format=None).err
    assert '--by op' in said and '--by stage' in said
    assert analyze('diff', *files, '--by', 'op')['rows'][0]['change_us'] == 1


def test_two_inputs(analyze, tmp_path):
    random_trace(1, tmp_path / 'a.json')
    for count in (1, 3):
        result = analyze('diff', *[tmp_path / 'a.json'] * count, rc=2, format='text')
        assert f'diff compares two inputs, A and B, and {count} ' in result.err


# ---- timing.json ----

def timing(path, stages, **top):
    path.write_text(json.dumps({'request_id': 'r', 'total_stages_ms': sum(s.get('duration_ms', 0) for s in stages.values()),
                                'num_stages': len(stages), 'stages': stages, **top}))
    return path


def telefuser(python):
    """compare_timing_reports of the installed TeleFuser."""
    site = next((python.parent.parent / 'lib').glob('python*/site-packages/telefuser/utils/profiler.py'))
    source = site.read_text()
    code = source[source.index('def compare_timing_reports'):]
    space = {'json': json}
    exec(compile(code[:code.index('return "\\n".join(lines)') + len('return "\\n".join(lines)')], str(site), 'exec'), space)
    return space['compare_timing_reports']


MARKS = {'\U0001f534': 'increased', '\U0001f7e2': 'decreased', '⚪': 'same'}


def test_timing_as_telefuser_compares_it(analyze, tmp_path, python):
    compare, rng, seen = telefuser(python), random.Random(5), set()
    for i in range(12):
        base = {f'stage {n}': rng.choice([10.0, 100.0, 1234.5]) for n in range(8) if rng.random() < 0.8}
        new = {n: ms * rng.choice([0.5, 0.949, 0.951, 1, 1.049, 1.051, 1.3]) for n, ms in base.items() if rng.random() < 0.8}
        new |= {f'new {n}': 5.0 for n in range(rng.randrange(3))}
        a, b = (timing(tmp_path / f'{name}{i}.json', {n: {'duration_ms': ms} for n, ms in of.items()}) for name, of in (('a', base), ('b', new)))
        answer = analyze('diff', a, b)
        found = {r['name']: r for r in answer['rows']}
        lines = re.findall(r'^\| (.+?) \| ([\d.]+) \| ([\d.]+) \| ([-+][\d.]+)% (.) \|$', compare(a, b), re.M)
        total, *stages = lines
        assert {name for name, *_ in stages} == set(found)
        for name, was, now, pct, mark in stages:
            r = found[name]
            assert [r[k] / 1000 for k in ('total_a_us', 'total_b_us')] == pytest.approx([float(was), float(now)], abs=0.0501)
            assert r['kind'] == 'stage' and r['calls_a'] in (None, 0)
            if name in base and name in new:
                assert (r['state'], f'{r["change_pct"]:+.1f}') == (MARKS[mark], pct)
            else:
                assert r['state'] == ('removed' if name in base else 'added')
            seen.add(r['state'])
        pct = answer['totals']['change_pct']
        assert answer['totals']['total_a_us'] / 1000 == pytest.approx(float(total[1]), abs=0.0501)
        assert (pct or 0) == pytest.approx(float(total[3]), abs=0.0501)
    assert seen == {'added', 'removed', 'increased', 'decreased', 'same'}


def test_timing_of_a_report(analyze, tmp_path):
    """The timing.json that `report` makes of a run has the times that `diff` takes from its trace."""
    t = Trace(rank=0)
    for i, (name, start, end) in enumerate((('a', 100, 200), ('b', 300, 350), ('a', 400, 620))):
        t.stage(name, start * US, end * US)
    (tmp_path / 'job').mkdir()
    t.save(tmp_path / 'job' / 'rank0.elsewhere.1.tfr')
    analyze('report', tmp_path / 'job', format='text')
    answer = analyze('diff', tmp_path / 'job', tmp_path / 'job' / 'timing.json')
    assert {r['name']: (r['total_a_us'], r['total_b_us'], r['calls_a'], r['calls_b'], r['state']) for r in answer['rows']} == {
        'a': (220, 220, None, 2, 'same'), 'b': (50, 50, None, 1, 'same')}
    assert [answer['totals'][k] for k in ('total_a_us', 'total_b_us')] == [370, 370]
    assert [i['kind'] for i in answer['inputs']] == ['tfr', 'timing']


@pytest.mark.parametrize('text, said', [
    ('{"total_stages_ms": 1, "stages": {"a": {"duration_ms": "x"}}}', 'duration_ms of stage a is not a time'),
    ('{"total_stages_ms": 1, "stages": {"a": {"duration_ms": -1}}}', 'duration_ms of stage a is not a time'),
    ('{"total_stages_ms": 1, "stages": {"a": {"duration_ms": 1e300}}}', 'duration_ms of stage a is not a time'),
    ('{"total_stages_ms": 1, "stages": {"a": 3}}', 'stage a is not a time'), ('{"total_stages_ms": [], "stages": {}}', 'the total is not a time'),
    ('{"total_stages_ms": 1, "stages": []}', '`stages` is not an object'), ('{"total_stages_ms": 1,', 'line 1'),
    ('{"total_stages_ms": 1, "stages": {"a": {"duration_ms": 1}, "a": {"duration_ms": 2}}}', 'duplicate object key'),
])
def test_bad_timing(analyze, tmp_path, text, said):
    (tmp_path / 'bad.json').write_text(text)
    good = timing(tmp_path / 'good.json', {'a': {'duration_ms': 1.0}})
    for pair in ((good, tmp_path / 'bad.json'), (tmp_path / 'bad.json', good)):
        result = analyze('diff', *pair, rc=1, format='text')
        assert said in result.err and 'bad.json' in result.err and not result.out


@pytest.mark.parametrize('words', [['--by', 'kernel'], ['--by', 'op'], ['--rank', '0'], ['--stage', 'a'], ['--device', '0']])
def test_timing_has_stages_only(analyze, tmp_path, words):
    good = timing(tmp_path / 'good.json', {'a': {'duration_ms': 1.0}})
    assert 'has no meaning for a timing.json' in analyze('diff', good, good, *words, rc=2, format='text').err
    assert analyze('diff', good, good, '--by', 'stage')['totals']['same'] == 1
