"""test_hta - `--rules hta` against HTA 0.5.0 itself, on every trace of ../shared/traces and on random traces.

tests/hta_pairs.txt lists the pairs. `agree ANALYSIS JOB` is a pair with equal answers. `fails ANALYSIS JOB EXCEPTION`
is a pair HTA cannot answer. `differs ANALYSIS JOB` is a pair known to differ, for the reason given there. Every pair
must be in the list and behave as listed, so fewer agreeing pairs are a failure.
"""

import json
import re
from collections import defaultdict
from random import Random

import pytest

from conftest import ROOT, TRACES, clean_environment, execute

pytestmark = [pytest.mark.xdist_group('hta'), pytest.mark.timeout(400)]  # HTA takes half a minute, once
ANALYSES = ('temporal', 'kinds', 'kernels', 'folded', 'overlap')
ROUNDED = 0.00051  # microseconds: we print means and deviations as whole nanoseconds


def jobs():
    """The inputs for HTA: each trace, and each directory with several ranks of one run."""
    files = sorted(p for folder in ('hta', 'tracelens', 'kineto_tb') for p in (TRACES / folder).rglob('*')
                   if p.name.endswith(('.json', '.json.gz')))
    found = {str(p.relative_to(TRACES)): [p] for p in files}
    found['hta/trace_filter'] = [p for p in files if p.parent.name == 'trace_filter']
    return found


def listed():
    """{(analysis, job): "agree", "differs" or the exception's name}"""
    pairs = {}
    for line in (ROOT / 'tests' / 'hta_pairs.txt').read_text().splitlines():
        if line and not line.startswith('#'):
            word, analysis, job, *reason = line.split()
            assert (analysis, job) not in pairs, line
            assert (word, len(reason)) in (('agree', 0), ('differs', 0), ('fails', 1)), line
            pairs[analysis, job] = reason[0] if reason else word
    return pairs


JOBS = sorted({job for _, job in listed()})


def ask(python, question):
    env = {k: v for k, v in clean_environment().items() if not k.startswith('HTA_')}
    question = {name: [str(p) for p in files] for name, files in question.items()}
    result = execute([python, ROOT / 'tests' / 'hta_answers.py'], env, timeout=300, stdin=json.dumps(question))
    assert result.rc == 0, result.err[-2000:]
    return json.loads(result.out)


@pytest.fixture(scope='session')
def answers(python, tmp_path_factory):
    """{job or seed: (files, HTA's answers)} of all jobs and random traces, in one process because HTA starts slowly."""
    files = {**jobs(), **written_at_random(tmp_path_factory.mktemp('random'))}
    return {name: (files[name], answer) for name, answer in ask(python, files).items()}


@pytest.fixture(scope='session')
def hta(answers, shared_traces):
    """HTA's answers to all jobs."""
    return {name: answer for name, (_, answer) in answers.items()}


def by_rank(rows):
    """The rows by rank; HTA takes a trace without a rank for rank 0."""
    return {row['rank'] or 0: row for row in rows}


# ---- our answers in HTA's terms; None if there is no answer ----

def temporal(analyze, files):
    rows = by_rank(analyze('timeline', '--rules', 'hta', *files)['rows'])
    if any(row['kernel_time_us'] is None for row in rows.values()):
        return None
    keys = [(f'{key}_us', f'{key}_time(us)') for key in ('idle', 'compute', 'non_compute', 'kernel_time')]
    keys = [(ours, theirs.replace('kernel_time_time', 'kernel_time')) for ours, theirs in keys]
    keys += [(f'{key}_pct', f'{key}_time_pctg') for key in ('idle', 'compute', 'non_compute')]
    return {rank: {theirs: row[ours] for ours, theirs in keys} for rank, row in rows.items()}


def kinds(analyze, files):
    return {row['kind']: (row['total_us'], row['pct']) for row in analyze('kinds', '--rules', 'hta', *files)['rows']}


def kernels(analyze, files):
    rows = analyze('breakdown', '--rules', 'hta', *files)['rows']
    return {(row['rank'] or 0, row['kind'], row['name']): row for row in rows}


def overlap(analyze, files):
    rows = by_rank(analyze('overlap', '--rules', 'hta', *files)['rows'])
    return {rank: row['overlap_pct'] for rank, row in rows.items()}


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


OURS = {'temporal': temporal, 'kinds': kinds, 'kernels': kernels, 'folded': kernels, 'overlap': overlap}
SAME = {'temporal': same_temporal, 'kinds': same_kinds, 'kernels': same_kernels, 'folded': same_folded,
        'overlap': same_overlap}


# ---- tests ----

def test_every_pair_is_in_the_list(shared_traces):
    assert set(listed()) == {(analysis, job) for analysis in ANALYSES for job in jobs()}


def test_the_installed_hta_is_the_one_the_rules_are_of(python):
    code = 'from importlib.metadata import version; print(version("HolisticTraceAnalysis"))'
    assert execute([python, '-c', code]).out.strip() == '0.5.0'


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

DEVICE_NAMES = ('gemm', 'gemm', 'void softmax<float>(int)', 'ncclDevKernel_AllReduce', 'ncclKernel_SendRecv',
                'nccl_other', 'Memcpy DtoH (Device -> Pinned)', 'Memset (Device)', 'dma_copy', 'myMemcpyKernel',
                'gridSync', 'aMemset')
SYNCS = ('Event Sync', 'Context Sync', 'Stream Sync', 'Stream Wait Event')
CATEGORIES = {'Memcpy DtoH (Device -> Pinned)': 'gpu_memcpy', 'Memset (Device)': 'gpu_memset'}


class RandomTrace:
    """Device work of all kinds, with and without launches, in up to three steps.

    No two pieces of work start at the same time, since HTA's sort does not define their order.
    """

    def __init__(self, random, rank):
        self.random, self.events = random, []
        self.fractions = random.random() < 0.6
        self.base = random.choice([0, 4_734_567_890_123, 1_711_964_646_000_000])
        self.old = random.random() < 0.3
        for step in range(random.choice([0, 1, 2, 3])):
            self.add('Operator' if self.old else 'user_annotation', f'ProfilerStep#{7 + step}', step * 500, 499)
        for correlation, at in enumerate(random.sample(range(10, 1500), random.randrange(1, 60)), 1):
            self.piece(correlation, at)
        random.shuffle(self.events)
        self.document = {'distributedInfo': {'rank': rank}, 'traceEvents': self.events}

    def add(self, category, name, at, dur, **args):
        if self.fractions:
            at, dur = at + self.random.randrange(1000) / 1000, round(self.random.random() * dur, 3)
        self.events.append({'ph': 'X', 'cat': category, 'name': name, 'pid': 1, 'tid': 1, 'ts': self.base + at,
                            'dur': dur, 'args': {k: v for k, v in args.items() if v is not None}})

    def piece(self, correlation, at):
        random = self.random
        for _ in range(random.choice([0, 1, 1, 1, 2])):
            self.add('cuda_runtime', 'cudaLaunchKernel', max(at - random.randrange(40), 0), 3, correlation=correlation)
        stream = random.choice([7, 7, 20, None if random.random() < 0.2 else 7])
        kind = random.random()
        if kind < 0.8:
            name = random.choice(DEVICE_NAMES)
            self.add(CATEGORIES.get(name, 'kernel'), name, at, random.choice([1, 20, 150]), stream=stream,
                     correlation=correlation if random.random() < 0.95 else None, device=0)
        elif kind < 0.9:
            self.add('cuda_sync', random.choice(SYNCS), at, 9, stream=random.choice([stream, -1]),
                     correlation=correlation if random.random() < 0.8 else None, device=0)
        elif kind < 0.93:  # an operator of a Triton launch names the stream
            self.add('cpu_op', 'triton_poi_fused', at, 30, stream=random.choice([0, 7, -1]))
        else:
            self.add('gpu_user_annotation', 'ProfilerStep#7' if kind < 0.95 else 'forward', at, 60, stream=stream)


SEEDS = [f'seed {n}' for n in range(40)]


def written_at_random(directory):
    """{seed: files}"""
    question = {}
    for seed in range(len(SEEDS)):
        random = Random(seed)
        for rank in range(1 + (seed % 3 == 0)):
            path = directory / f'{seed}-{rank}.json'
            path.write_text(json.dumps(RandomTrace(random, rank).document, indent=1))
            question.setdefault(SEEDS[seed], []).append(path)
    return question


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
                    assert analysis == 'temporal' and ours is None, answer
            except AssertionError as e:
                raise AssertionError(f'{seed}, {analysis}: {files}') from e
    assert answered >= len(SEEDS) * 4


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


@pytest.mark.parametrize('command', ['timeline', 'kinds', 'overlap', 'breakdown'])
def test_filters_that_hta_does_not_have_are_refused(analyze, shared_traces, command):
    files = [*(shared_traces / 'hta' / 'triton_example').iterdir()]
    for option in (['--step', '1'], ['--from', '0'], ['--to', '9']):
        result = analyze(command, '--rules', 'hta', *option, *files, rc=2, format=None)
        assert option[0] in result.err and not result.out
    result = analyze('breakdown', '--rules', 'hta', '--group-by', 'op', *files, rc=2, format=None)
    assert '--group-by' in result.err


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


def test_csv_has_the_keys_of_these_rules(analyze, shared_traces):
    files = [*(shared_traces / 'hta' / 'triton_example').iterdir()]
    out = analyze('timeline', '--rules', 'hta', *files, format='csv').out
    assert out.splitlines()[0] == \
        'rank,idle_us,idle_pct,compute_us,compute_pct,non_compute_us,non_compute_pct,kernel_time_us'
    assert analyze('timeline', '--rules', 'hta', *files)['rules'] == 'hta'
    assert analyze('timeline', *files)['rules'] == 'exact'
