"""test_hta_stragglers - `stragglers --rules hta` against get_potential_stragglers of HTA 0.5.0 itself.

HTA runs once, on the jobs of ../shared/traces with several ranks and on random jobs whose ranks start the same collectives at
different times. The answers are the ranks in HTA's order, and the kernel, stream and mean step that they come from.
"""

import json
import random

import pytest

from conftest import TRACES, clean_environment, execute

pytestmark = [pytest.mark.xdist_group('hta'), pytest.mark.timeout(400)]
SEEDS = range(100)
CANDIDATES = (None, 1, 3)

HTA = '''
import json, logging, sys, warnings
warnings.simplefilter('ignore')
import pandas
sort = pandas.Series.sort_values
pandas.Series.sort_values = lambda *args, **more: sort(*args, **{'kind': 'stable', **more})
from hta.analyzers import straggler
from hta.trace_analysis import TraceAnalysis
logging.disable(logging.CRITICAL)
of_kernels, seen = straggler._compute_normalized_start_time_of_significant_comm_kernels, {}

def watched(df, symbols, *args, **more):
    found = of_kernels(df, symbols, *args, **more)
    row = found[0].iloc[0]
    span, steps = float((df['ts'] + df['dur']).max() - df['ts'].min()), int(df['iteration'].nunique())
    seen.update(kernel=symbols.get_sym_table()[int(row['name'])], stream=int(row['stream']), steps=steps, mean=span / steps)
    return found
straggler._compute_normalized_start_time_of_significant_comm_kernels = watched
answers = {}
for name, files in json.load(sys.stdin).items():
    answers[name] = []
    for candidates in (2, 1, 3):
        seen.clear()
        try:
            ranks = [int(r) for r in TraceAnalysis(trace_files=files).get_potential_stragglers(num_candidates=candidates)]
            answers[name].append({'ranks': ranks, **seen})
        except Exception as e:
            answers[name].append(type(e).__name__)
print(json.dumps(answers))
'''


class Rank:
    """One rank of a random job. Kernels of collectives are launched in steps, beside other work and rows of the host."""

    def __init__(self, choose, rank, plan, fractions):
        self.choose, self.events, self.correlation, self.fractions = choose, [], 100 * rank, fractions
        self.base = choose.choice([0, 0, 50])
        for number, begin in plan['steps']:
            self.add('user_annotation', f'ProfilerStep#{number}', begin, plan['step'] - 1)
            if choose.random() < plan['annotated']:
                self.add('gpu_user_annotation', f'ProfilerStep#{number}', begin + choose.randrange(60), plan['step'], stream=7)
            for name, stream, at in plan['kernels']:
                if choose.random() < .9:
                    self.kernel(name, stream, begin + at, choose.randrange(1, 40), late=choose.randrange(60))
            for _ in range(choose.randrange(4)):
                self.add('cpu_op', 'aten::mm', begin + choose.randrange(plan['step']), choose.randrange(1, 150))
                self.kernel('gemm', 7, begin + choose.randrange(plan['step']), 9, late=5)
        self.add('cpu_op', 'outside', 0, 3)
        if choose.random() < .5:
            choose.shuffle(self.events)
        self.document = {'distributedInfo': {'rank': rank}, 'traceEvents': self.events}

    def add(self, category, name, at, dur, **args):
        if self.fractions:
            at, dur = at + self.choose.randrange(1000) / 1000, dur + self.choose.randrange(1000) / 1000
        on_device = category not in ('cuda_runtime', 'cpu_op', 'user_annotation')
        place = {'pid': 0, 'tid': args.get('stream', 7)} if on_device else {'pid': 1, 'tid': 1}
        self.events.append({'ph': 'X', 'cat': category, 'name': name, **place, 'ts': self.base + at, 'dur': dur, 'args': args})

    def kernel(self, name, stream, at, dur, late):
        self.correlation += 1
        launches = self.choose.choice([1, 1, 1, 1, 1, 1, 0, 2])
        for _ in range(launches):
            self.add('cuda_runtime', 'cudaLaunchKernel', at, 2, correlation=self.correlation)
        given = {} if self.choose.random() < .05 else {'correlation': self.correlation}
        self.add('kernel', name, at + late, dur, stream=stream, device=0, **given)


def made(directory, seed):
    choose = random.Random(seed)
    step, first = choose.choice([100, 200, 3000]), choose.choice([0, 1, 550])
    names = [f'ncclKernel_{n}' for n in ('AllReduce', 'AllGather', 'SendRecv')] + ['ncclDevKernel_AllReduce']
    plan = {'step': step, 'steps': [(first + i, 20 + i * step) for i in range(choose.choice([1, 2, 3, 3, 4]))],
            'annotated': choose.choice([0, 0, .5]),
            'kernels': [(choose.choice(names), choose.choice([0, 7, 20, 20]), choose.randrange(step)) for _ in range(choose.randrange(1, 5))]}
    fractions, files = choose.random() < .4, []
    for rank in range(choose.choice([1, 2, 2, 3, 5])):
        files.append(directory / f'{seed}-{rank}.json')
        files[-1].write_text(json.dumps(Rank(choose, rank, plan, fractions).document, indent=1))
    return files


@pytest.fixture(scope='module')
def jobs(python, tmp_path_factory):
    """{job: (files, HTA's answers for 2, 1 and 3 candidates)}"""
    directory = tmp_path_factory.mktemp('stragglers')
    files = {f'seed {seed}': made(directory, seed) for seed in SEEDS}
    shared = TRACES / 'hta' / 'trace_filter'
    if shared.is_dir():
        files['trace_filter'] = sorted(shared.glob('*.json.gz'))
        files['one rank'] = files['trace_filter'][:1]
    env = {k: v for k, v in clean_environment().items() if not k.startswith('HTA_')}
    result = execute([python, '-c', HTA], env, timeout=390, stdin=json.dumps({n: [str(p) for p in f] for n, f in files.items()}))
    assert result.rc == 0, result.err[-2000:]
    return {name: (files[name], answers) for name, answers in json.loads(result.out).items()}


def ours(analyze, files, candidates):
    answer = analyze('stragglers', '--rules', 'hta', *(['--top', str(candidates)] if candidates else []), *files)
    totals = answer['totals']
    if not answer['rows']:
        assert totals == dict.fromkeys(totals)
        return None
    assert all(r['steps'] <= totals['steps'] for r in answer['rows'])
    return {'ranks': [r['rank'] for r in answer['rows']], 'kernel': totals['kernel'], 'stream': totals['stream'],
            'steps': totals['steps'], 'mean': pytest.approx(totals['mean_step_us'], abs=.001)}


def check(analyze, files, answers):
    for candidates, theirs in zip(CANDIDATES, answers):
        mine = ours(analyze, files, candidates)
        assert (mine is None) == isinstance(theirs, str), (theirs, mine)
        assert mine is None or theirs == mine


@pytest.mark.slow
def test_shared_traces(analyze, jobs, shared_traces):
    files, answers = jobs['trace_filter']
    assert answers[0]['ranks'] == [0, 1] and answers[1]['ranks'] == [1]
    check(analyze, files, answers)
    files, answers = jobs['one rank']
    assert all(isinstance(a, str) for a in answers)
    check(analyze, files, answers)
    assert 'HTA has no answer' in analyze('stragglers', '--rules', 'hta', *files, format=None).err


@pytest.mark.slow
def test_random_jobs(analyze, jobs):
    answered = 0
    for seed in SEEDS:
        files, answers = jobs[f'seed {seed}']
        try:
            check(analyze, files, answers)
        except AssertionError as e:
            raise AssertionError(f'seed {seed}: {e}') from None
        answered += sum(not isinstance(a, str) for a in answers)
    assert answered > 40


def test_what_hta_cannot_choose(analyze, tmp_path):
    files = made(tmp_path, 3)
    for words in (['--step', '1'], ['--stage', 'x'], ['--cycle', '0'], ['--from', '1']):
        assert 'HTA has no counterpart' in analyze('stragglers', '--rules', 'hta', *words, *files, rc=2, format=None).err
    for words in (['--device', '0'], ['--stream', '7']):
        assert 'exclude each other' in analyze('stragglers', '--rules', 'hta', *words, *files, rc=2, format=None).err
    assert 'run it alone' in analyze('idle,stragglers', '--rules', 'hta', *files, rc=2, format=None).err
