"""test_hta - `--rules hta` against the recorded answers of HTA 0.5.0, on every trace of ../shared/traces and on random traces.

tests/data/hta_pairs.txt lists the pairs. `agree ANALYSIS JOB` is a pair with equal answers. `fails ANALYSIS JOB EXCEPTION`
is a pair HTA cannot answer. `differs ANALYSIS JOB` is a pair known to differ, for the reason given there. Every pair
must be in the list and behave as listed, so fewer agreeing pairs are a failure.
"""

import json
import math
import re
from collections import defaultdict

import pytest

from conftest import ROOT, execute
from hta_answers import OPERATORS
from hta_recording import DEEP, HOSTS, SEEDS, ask, checksum, jobs, questions, recorded, written_at_random

ANALYSES = ('temporal', 'kinds', 'kernels', 'folded', 'overlap', 'idle', 'queue', 'launches', 'bandwidth',
            'annotated', 'annotations', 'counters', 'patterns')
CLOSE = 1e-9  # relative: sums of doubles in another order
ROUNDED = 0.00051  # microseconds: we print means and deviations as whole nanoseconds


def listed():
    """{(analysis, job): "agree", "differs" or the exception's name}"""
    pairs = {}
    for line in (ROOT / 'tests' / 'data' / 'hta_pairs.txt').read_text().splitlines():
        if line and not line.startswith('#'):
            word, analysis, job, *reason = line.split()
            assert (analysis, job) not in pairs, line
            assert (word, len(reason)) in (('agree', 0), ('differs', 0), ('fails', 1)), line
            pairs[analysis, job] = reason[0] if reason else word
    return pairs


JOBS = sorted({job for _, job in listed()})


@pytest.fixture(scope='session')
def answers(tmp_path_factory):
    """{name: (files, HTA's answers)} of all questions."""
    known, given = recorded(), {}
    for name, files in questions(tmp_path_factory.mktemp('hta')).items():
        assert known[name][0] == checksum(files), f'{name} has changed: tests/hta_recording.py asks HTA again'
        given[name] = files, known[name][1]
    return given


@pytest.fixture(scope='session')
def hta(answers, shared_traces):
    """HTA's answers to all jobs."""
    return {name: answer for name, (_, answer) in answers.items()}


def by_rank(rows):
    """The rows by rank; HTA takes a trace without a rank for rank 0."""
    return {row['rank'] or 0: row for row in rows}


# ---- our answers in HTA's terms; None if there is no answer ----

def temporal(analyze, files):
    rows = by_rank(analyze('timeline', '--rules', 'hta', *files, rc=None)['rows'])
    if any(row['kernel_time_us'] is None for row in rows.values()):
        return None
    keys = [(f'{key}_us', f'{key}_time(us)') for key in ('idle', 'compute', 'non_compute', 'kernel_time')]
    keys = [(ours, theirs.replace('kernel_time_time', 'kernel_time')) for ours, theirs in keys]
    keys += [(f'{key}_pct', f'{key}_time_pctg') for key in ('idle', 'compute', 'non_compute')]
    return {rank: {theirs: row[ours] for ours, theirs in keys} for rank, row in rows.items()}


def kinds(analyze, files):
    return {row['kind']: (row['total_us'], row['pct']) for row in analyze('kinds', '--rules', 'hta', *files, rc=None)['rows']}


def kernels(analyze, files):
    rows = analyze('breakdown', '--rules', 'hta', *files, rc=None)['rows']
    return {(row['rank'] or 0, row['kind'], row['name']): row for row in rows}


def overlap(analyze, files):
    rows = by_rank(analyze('overlap', '--rules', 'hta', *files, rc=None)['rows'])
    return {rank: row['overlap_pct'] for rank, row in rows.items()}


CAUSES = ('host_wait', 'kernel_wait', 'other')


def idle(analyze, files):
    rows = analyze('idle', '--rules', 'hta', *files, rc=None)['rows']
    ranks = {row['rank'] for row in rows}
    if not rows or (len(files) > 1 and len(ranks) < len(files)):
        return None  # HTA raises an exception if a rank has no work
    return {(row['rank'] or 0, row['stream'], cause): (row[f'{cause}_us'], row[f'{cause}_pct'])
            for row in rows for cause in CAUSES}


DEPTHS = {'count': 'count', 'mean': 'mean', 'std': 'std', 'min': 'min', 'q1': '25%', 'median': '50%', 'q3': '75%', 'max': 'max'}


def queue(analyze, files):
    rows = analyze('queue', '--rules', 'hta', *files, rc=None)['rows']
    if any(row['count'] is None for row in rows):
        return None
    return {(row['rank'] or 0, row['stream']): {theirs: row[ours] for ours, theirs in DEPTHS.items()} for row in rows}


LAUNCH = {'correlation': 'correlation', 'cpu_us': 'cpu_duration', 'gpu_us': 'gpu_duration', 'delay_us': 'launch_delay'}


def launches(analyze, files):
    rows = analyze('launches', '--rules', 'hta', *files, rc=None)['rows']
    return sorted((row['rank'] or 0, *(row[ours] for ours in LAUNCH)) for row in rows)


def bandwidth(analyze, files):
    rows = analyze('bandwidth', '--rules', 'hta', *files, rc=None)['rows']
    return {(row['rank'] or 0, row['kind']): {theirs: row[ours if ours == 'count' else f'{ours}_gbs'] for ours, theirs in DEPTHS.items()}
            for row in rows}


def annotated(analyze, files):
    rows = [row for row in analyze('annotations', '--rules', 'hta', *files, rc=None)['rows']]
    if any(row['kernels'] is None for row in rows):
        return None
    return {(row['rank'] or 0, row['annotation'].replace('(none)', '')): (row['kernels'], row['total_us']) for row in rows if row['kernels']}


def annotations(analyze, files):
    rows = analyze('annotations', '--rules', 'hta', *files, rc=None)['rows']
    return {(row['rank'] or 0, row['annotation']): row for row in rows if row['calls']}


def asked(analyze, command, *words):
    """The rows of an answer; none with exit status 1, which says that nothing matches."""
    result = analyze(command, *words, '--format', 'json', rc=any, format=None)
    return json.loads(result.out)['rows'] if result.rc != 1 else []


def counters(analyze, files):
    rows = asked(analyze, 'counters', '--rules', 'hta', *files)
    return None if any(row['top_op'] is None for row in rows) else rows


def patterns(analyze, files):
    found = {}
    for operator in OPERATORS:
        result = analyze('patterns', '--rules', 'hta', '--operator', operator, *files, '--format', 'json', rc=any, format=None)
        if 'HTA has no answer' in result.err:
            return None
        for row in json.loads(result.out)['rows'] if result.rc != 1 else []:
            found[row['rank'] or 0, operator, '|'.join(row['pattern'])] = (row['count'], row['gpu_us'], row['cpu_us'])
    return found


# ---- comparing ----

def same_temporal(ours, theirs):
    assert ours == {row['rank']: {k: v for k, v in row.items() if k != 'rank'} for row in theirs}


def same_kinds(ours, theirs):
    """Combinations of 0 us are left out: HTA's sort decides at random whether it lists them."""
    assert ours == {row['kernel_type']: (row['sum'], row['percentage']) for row in theirs if row['sum']}


def same_kernels(ours, theirs):
    theirs = {(row['rank'], row['kernel_type'], row['name']): row for row in theirs}
    assert set(ours) == set(theirs)
    for key, row in ours.items():
        other = theirs[key]
        assert [row[f'{k}_us'] for k in ('total', 'max', 'min')] == \
            [other[f'{k} (us)'] for k in ('sum', 'max', 'min')], key
        assert row['mean_us'] == pytest.approx(other['mean (us)'], abs=ROUNDED), key
        assert row['std_us'] == pytest.approx(other['stddev'], abs=ROUNDED), key


def folded(rows, kernels=10, ratio=0.8):
    """HTA's _aggr_gpu_kernel_time for one rank and kind: {name: sum}, with "others" for the tail."""
    rows = sorted(rows, key=lambda row: -row['total_us'])
    sums = [row['total_us'] for row in rows]
    if len(rows) <= kernels:
        return sums, None
    cumulative = [sum(sums[:i + 1]) for i in range(len(sums))]
    place = ratio * (len(sums) - 1)
    low = int(place)
    limit = cumulative[low] + (place - low) * (cumulative[min(low + 1, len(sums) - 1)] - cumulative[low])
    kept = [s for i, s in enumerate(sums) if i < kernels and cumulative[i] <= limit]
    return kept, sum(sums) - sum(kept)


def same_folded(ours, theirs):
    """Compares sums only: HTA's sort decides at random which kernels of equal time it cuts."""
    groups, expected = defaultdict(list), defaultdict(lambda: ([], None))
    for (rank, kind, _), row in ours.items():
        groups[rank, kind].append(row)
    for row in theirs:
        kept, others = expected[row['rank'], row['kernel_type']]
        expected[row['rank'], row['kernel_type']] = (kept, row['sum (us)']) if row['name'] == 'others' else \
            (kept + [row['sum (us)']], others)
    assert {k: (sorted(kept), others) for k, (kept, others) in ((k, folded(v)) for k, v in groups.items())} == \
        {k: (sorted(kept), others) for k, (kept, others) in expected.items()}


def same_overlap(ours, theirs):
    assert ours == {row['rank']: row['comp_comm_overlap_pctg'] for row in theirs}


def same_idle(ours, theirs):
    """HTA leaves out a cause without a gap; a share is unknown if all gaps of a stream add up to nothing."""
    theirs = {(row['rank'], row['stream'], row['idle_category']): (row['idle_time'], row['idle_time_ratio']) for row in theirs}
    assert {key[:2] for key in ours} == {key[:2] for key in theirs}
    for key, (time, share) in ours.items():
        other_time, other_share = theirs.get(key, (0, None if share is None else 0))
        assert time == other_time, key
        assert share == (other_share if other_share is None else pytest.approx(100 * other_share)), key


def same_queue(ours, theirs):
    assert set(ours) == {(row['rank'], row['stream']) for row in theirs}
    for row in theirs:
        for key, value in ours[row['rank'], row['stream']].items():
            assert value == (None if row[key] is None else pytest.approx(row[key], rel=CLOSE)), (row, key)


def same_bandwidth(ours, theirs):
    assert set(ours) == {(row['rank'], row['name']) for row in theirs}
    for row in theirs:
        for key, value in ours[row['rank'], row['name']].items():
            assert value == (None if row[key] is None else pytest.approx(row[key], rel=CLOSE)), (row, key)


def same_launches(ours, theirs):
    assert ours == [(row['rank'], *(row[theirs] for theirs in LAUNCH.values())) for row in theirs]


def same_annotated(ours, theirs):
    assert ours == {(row['rank'], row['s_user_annotation']): (row['count'], row['sum']) for row in theirs}


def same_annotations(ours, theirs):
    assert set(ours) == {(row['rank'], row['name']) for row in theirs}
    for other in theirs:
        row = ours[other['rank'], other['name']]
        assert [row[f'{k}_us'] for k in ('sum', 'max', 'min')] == [other[f'{k} (us)'] for k in ('sum', 'max', 'min')]
        assert row['mean_us'] == pytest.approx(other['mean (us)'], abs=ROUNDED)
        assert row['std_us'] == pytest.approx(other['stddev'], abs=ROUNDED)


def same_counters(ours, theirs):
    """HTA has the counters in columns of its frame, with -1 in a row that lacks one."""
    assert len(ours) == len(theirs)
    for row, other in zip(ours, theirs):
        assert [row[k] for k in ('kernel', 'duration_us', 'top_op', 'bottom_op', 'op_stack')] == \
            [other[k] for k in ('name', 'dur', 'top_level_op', 'bottom_level_op', 'op_stack')]
        for name, value in row['counters'].items():
            assert value == other[name], name


def same_patterns(ours, theirs):
    assert ours == {(row['rank'], row['operator'], row['pattern']):
                    (row['count'], row['GPU kernel duration (us)'], row['CPU op duration (us)']) for row in theirs}


OURS = {'temporal': temporal, 'kinds': kinds, 'kernels': kernels, 'folded': kernels, 'overlap': overlap,
        'idle': idle, 'queue': queue, 'launches': launches,
        'bandwidth': bandwidth, 'annotated': annotated, 'annotations': annotations, 'counters': counters, 'patterns': patterns}
SAME = {'temporal': same_temporal, 'kinds': same_kinds, 'kernels': same_kernels, 'folded': same_folded,
        'overlap': same_overlap, 'idle': same_idle, 'queue': same_queue, 'launches': same_launches,
        'bandwidth': same_bandwidth, 'annotated': same_annotated, 'annotations': same_annotations, 'counters': same_counters, 'patterns': same_patterns}


# ---- tests ----

def test_every_pair_is_in_the_list(shared_traces):
    assert set(listed()) == {(analysis, job) for analysis in ANALYSES for job in jobs()}


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_recorded_answers_are_those_of_hta(python, answers):
    """HTA 0.5.0, asked again, gives the recorded answers, but for the order in which a processor adds up doubles."""
    code = 'from importlib.metadata import version; print(version("HolisticTraceAnalysis"))'
    assert execute([python, '-c', code]).out.strip() == '0.5.0'

    def same(a, b):
        if type(a) is not type(b):
            return False
        if isinstance(a, dict):
            return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
        if isinstance(a, list):
            return len(a) == len(b) and all(map(same, a, b))
        return math.isclose(a, b, rel_tol=CLOSE) if isinstance(a, float) else a == b
    given = ask(python, {name: files for name, (files, _) in answers.items()})
    assert [name for name, (_, known) in answers.items() if not same(known, given[name])] == []


@pytest.mark.parametrize('job', JOBS)
def test_pairs(analyze, hta, job):
    files = jobs()[job]
    for analysis in ANALYSES:
        ours, theirs = OURS[analysis](analyze, files), hta[job].get(analysis, hta[job].get('load'))
        expected = listed()[analysis, job]
        if expected in ('agree', 'differs'):
            assert isinstance(theirs, list), f'HTA has no answer: {theirs}'
        if expected == 'agree':
            SAME[analysis](ours, theirs)
        elif expected == 'differs':
            with pytest.raises(AssertionError):
                SAME[analysis](ours, theirs)
        else:
            assert (theirs, ours) == (expected, None)


# ---- random traces ----

def test_a_full_queue(analyze, answers):
    deep, theirs = answers['deep']
    [row] = theirs['blocked']
    for rules in ('hta', 'exact'):
        [ours] = analyze('queue', '--rules', rules, *deep)['rows']
        assert (ours['stream'], ours['max']) == (row['stream'], DEEP)
        assert ours['blocked_us'] == row['duration_at_max_queue_length'] > 0


@pytest.mark.slow
def test_traces_at_random(analyze, answers):
    answered = 0
    for seed in SEEDS:
        files, theirs = answers[seed]
        for analysis in ANALYSES:
            ours, answer = OURS[analysis](analyze, files), theirs.get(analysis, theirs.get('load'))
            try:
                if isinstance(answer, list):
                    SAME[analysis](ours, answer)
                    answered += 1
                else:
                    assert analysis in ('temporal', 'idle', 'queue', 'annotated', 'patterns') and ours is None, answer
            except AssertionError as e:
                raise AssertionError(f'{seed}, {analysis}: {files}') from e
    assert answered >= len(SEEDS) * 4


@pytest.mark.parametrize('analysis', ['counters', 'patterns'])
def test_hosts_at_random(analyze, answers, analysis):
    answered = 0
    for seed in range(HOSTS):
        files, theirs = answers[f'{analysis} {seed}']
        ours, answer = OURS[analysis](analyze, files), theirs.get(analysis, theirs.get('load'))
        assert isinstance(answer, list), (seed, answer)
        SAME[analysis](ours, answer)
        answered += len(answer) > 1
    assert answered >= 10


# Figures from ../shared/traces/README.md.
@pytest.mark.parametrize('job,idle,compute,non_compute,total', [
    ('ns_resolution_trace', 10113, 372150, 2371, 384634),
    ('nccl_parser_config', 338781, 75169, 21636, 435586),
    ('df_index_resolver', 643612, 496485, 256572, 1396669)])
def test_published_temporal_breakdowns(analyze, shared_traces, job, idle, compute, non_compute, total):
    [row] = analyze('timeline', '--rules', 'hta', *(shared_traces / 'hta' / job).iterdir())['rows']
    assert [row[k] for k in ('idle_us', 'compute_us', 'non_compute_us', 'kernel_time_us')] == \
        [idle, compute, non_compute, total]


def test_published_figures_of_two_ranks(analyze, shared_traces):
    rows = by_rank(analyze('timeline', '--rules', 'hta', shared_traces / 'hta' / 'trace_filter')['rows'])
    assert {rank: [row[k] for k in ('idle_us', 'compute_us', 'non_compute_us', 'kernel_time_us')]
            for rank, row in rows.items()} == {0: [321378, 106252, 172428, 600058], 1: [328671, 135548, 136455, 600674]}
    rows = by_rank(analyze('overlap', '--rules', 'hta', shared_traces / 'hta' / 'trace_filter')['rows'])
    assert {rank: row['overlap_pct'] for rank, row in rows.items()} == {0: 11.81, 1: 20.05}


def test_published_overlap(analyze, shared_traces):
    [row] = analyze('overlap', '--rules', 'hta', *(shared_traces / 'hta' / 'nccl_parser_config').iterdir())['rows']
    assert (row['overlap_us'], row['communication_us'], row['overlap_pct']) == (3473, 24278, 14.31)


def test_one_rank_of_two(analyze, shared_traces):
    """A job of one rank ignores the other: HTA's step filter looks at the names of all ranks of a job."""
    whole = by_rank(analyze('timeline', '--rules', 'hta', shared_traces / 'hta' / 'trace_filter')['rows'])
    one = analyze('timeline', '--rules', 'hta', '--rank', '1', shared_traces / 'hta' / 'trace_filter')['rows']
    assert one == [whole[1]]


@pytest.mark.parametrize('command', ['timeline', 'kinds', 'overlap', 'breakdown', 'idle', 'queue', 'launches', 'bandwidth', 'annotations', 'counters'])
def test_filters_that_hta_does_not_have_are_refused(analyze, shared_traces, command):
    files = [*(shared_traces / 'hta' / 'triton_example').iterdir()]
    for option in (['--step', '1'], ['--from', '0'], ['--to', '9']):
        result = analyze(command, '--rules', 'hta', *option, *files, rc=2, format=None)
        assert option[0] in result.err and not result.out
    result = analyze('breakdown', '--rules', 'hta', '--group-by', 'op', *files, rc=2, format=None)
    assert '--group-by' in result.err
    result = analyze('patterns', '--rules', 'hta', '--operator', 'x', '--step', '1', *files, rc=2, format=None)
    assert '--step' in result.err


def test_filters_by_row(analyze, shared_traces):
    """Each row is of one stream: the kernels of all streams add up to those of the whole."""
    file = next((shared_traces / 'hta' / 'nccl_parser_config').iterdir())
    streams = sorted(set(re.findall(r'"stream": (\d+)', execute(['gzip', '-dc', file]).out)), key=int)
    assert len(streams) == 2
    whole = analyze('breakdown', '--rules', 'hta', file)['rows']
    total = defaultdict(int)
    for stream in streams:
        for row in analyze('breakdown', '--rules', 'hta', '--stream', stream, file)['rows']:
            total[row['name']] += row['calls']
    assert total == {row['name']: row['calls'] for row in whole} and total
    analyze('breakdown', '--rules', 'hta', '--stream', '987654', file, rc=1, format=None)


@pytest.mark.slow
def test_a_stream_keeps_its_row(analyze, tmp_path):
    """HTA has no filter: a row of one stream is that row of the whole answer, and where HTA fails it fails for each stream."""
    seen = set()
    for files in written_at_random(tmp_path).values():
        for command in ('idle', 'queue'):
            whole = analyze(command, '--rules', 'hta', *files, rc=None)
            failed = any(row.get('count', 0) is None for row in whole['rows'])
            assert not failed or (whole['totals']['works'] is whole['totals']['blocked_us'] is None)
            for stream in (0, 7, 20):
                rows = [r for r in whole['rows'] if r['stream'] in (stream, None)]
                result = analyze(command, '--rules', 'hta', '--stream', stream, *files, '--format', 'json', rc=any, format=None)
                assert (json.loads(result.out)['rows'] if result.rc != 1 else []) == rows, (command, stream, files)
                seen.add((command, failed, bool(rows)))
    assert seen >= {('idle', False, True), ('queue', False, True), ('queue', True, True)}


def test_csv_has_the_keys_of_these_rules(analyze, shared_traces):
    files = [*(shared_traces / 'hta' / 'triton_example').iterdir()]
    out = analyze('timeline', '--rules', 'hta', *files, format='csv').out
    assert out.splitlines()[0] == \
        'rank,idle_us,idle_pct,compute_us,compute_pct,non_compute_us,non_compute_pct,kernel_time_us'
    assert analyze('timeline', '--rules', 'hta', *files)['rules'] == 'hta'
    assert analyze('timeline', *files)['rules'] == 'exact'
