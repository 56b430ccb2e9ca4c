"""test_collectives - collectives of real torch over gloo: groups, bytes and late ranks equal the job's own journal.

One job of four ranks, tests/pipelines/collectives.py, is recorded for all tests of `make test`. Its ranks check the result of each
collective, and compare their models with one that is trained by itself, so a library that changes a result fails here.
"""

import importlib.util
import json
from collections import Counter
from types import SimpleNamespace

import pytest

import tfr
from conftest import AT_REST, ROOT, clean_environment, execute, free_port

pytestmark = pytest.mark.slow
RANKS = 4
IN_ORDER = ['plain', 'subgroups', 'late', 'profiled']


@pytest.fixture(scope='module')
def job(tmp_path_factory, lib, python):
    return play(tmp_path_factory, lib, python)


# DistributedDataParallel asks torch._dynamo for a setting. The ranks are forks, so both are imported once; test_python has torchrun.
FORK = """
import os, runpy, sys, torch, torch._dynamo
ranks = []
for rank in range(int(os.environ['WORLD_SIZE'])):
    ranks.append(os.fork())
    if not ranks[-1]:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
        sys.argv[:1] = []
        sys.path.insert(0, os.path.dirname(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name='__main__')
        sys.exit()
sys.exit(max(os.waitpid(rank, 0)[1] for rank in ranks) != 0)
"""


def play(tmp_path_factory, lib, python, *arguments):
    """The run directory, each rank's journal, and each rank's trace of torch.profiler."""
    directory = tmp_path_factory.mktemp('collectives')
    env = {**clean_environment(), 'LD_PRELOAD': str(lib), 'TFI_OUTPUT_DIR': str(directory / 'run'), 'OMP_NUM_THREADS': '1',
           'TFI_SAMPLE_HZ': '0',  # the parent of the ranks, which only waits, would have a trace too
           'WORLD_SIZE': str(RANKS), 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(free_port())}
    program = ROOT / 'tests' / 'pipelines' / 'collectives.py'
    result = execute([python, '-c', FORK, program, directory / 'journal', *arguments], env, directory, timeout=400)
    assert result.rc == 0 and 'tfinject' not in result.err, result.err[-4000:]
    return SimpleNamespace(run=directory / 'run', kineto=[directory / f'journal.{r}.kineto.json' for r in range(RANKS)],
                           journal=[json.loads((directory / f'journal.{r}.json').read_text()) for r in range(RANKS)])


def logged(job, stage):
    """{(group, its ranks): its collectives in order} as the journals of all ranks have them; all agree."""
    found = {}
    for rank, journal in enumerate(job.journal):
        of_rank = {}
        for entry in journal[stage]:
            of_rank.setdefault((entry['group'], tuple(entry['ranks'])), []).append((entry['name'], entry['bytes']))
        for key, entries in of_rank.items():
            assert rank in key[1] and found.setdefault(key, entries) == entries
    return found


def ranks_of(row):
    return tuple(sorted(map(int, row['wait_us'])))


def answered(answer):
    """The same of the rows of comm."""
    found = {}
    for row in sorted(answer['rows'], key=lambda row: row['seq']):
        assert row['ranks'] == row['size'] == len(ranks_of(row))
        found.setdefault((row['group'], ranks_of(row)), []).append((row['name'], row['bytes']))
    return found


def test_the_job_is_whole(job, analyze):
    answer = analyze('comm', job.run)
    assert (answer['totals']['ranks'], answer['totals']['incomplete'], answer['totals']['mismatched']) == (RANKS, 0, 0)
    assert all(row['duration_us'] is not None for row in answer['rows'])  # the work of each call was found


@pytest.mark.parametrize('stage', IN_ORDER)
def test_rows_equal_the_journal(job, analyze, stage):
    """Groups, their ranks, the order of their collectives, and bytes."""
    assert answered(analyze('comm', job.run, '--stage', stage)) == logged(job, stage)


def test_times_of_a_row(job, analyze):
    """Each rank waits for the last one; the transfer and the bandwidths follow from the definitions."""
    factors = {'all_reduce': 2 * 3 / 4, 'all_gather': 3 / 4, 'reduce_scatter': 3 / 4, 'all_to_all': 3 / 4}
    rows = analyze('comm', job.run, '--stage', 'plain')['rows']
    for row in rows:
        assert min(row['wait_us'].values()) == 0 and max(row['wait_us'].values()) == row['start_skew_us']
        assert row['wait_us'][str(row['last_rank'])] == 0 and row['duration_us'] >= row['transfer_us'] > 0
        if row['name'] in factors:
            assert row['algbw_gbs'] == pytest.approx(row['bytes'] / row['transfer_us'] / 1000, rel=1e-3)
            assert row['busbw_gbs'] == pytest.approx(row['algbw_gbs'] * factors[row['name']])
    assert set(factors) < {row['name'] for row in rows}


def test_messages(job, analyze):
    """Each message is one row of its two ranks."""
    expected = Counter((tuple(e['ranks']), e['bytes']) for e in job.journal[0]['messages'] + job.journal[2]['messages'])
    rows = analyze('comm', job.run, '--stage', 'messages')['rows']
    assert {row['name'] for row in rows} <= {'send', 'recv'} and len(rows) == 2 * RANKS
    assert Counter((ranks_of(row), row['bytes']) for row in rows) == expected


def test_gradients_of_a_model(job, analyze, stage='ddp'):
    """DDP reduces each gradient once a step; its other collectives are its own, and small."""
    (_, steps), = logged(job, stage).items()
    rows = analyze('comm', job.run, '--stage', stage)['rows']
    assert all(row['group'] == '0' and ranks_of(row) == tuple(range(RANKS)) for row in rows)
    assert [('all_reduce', row['bytes']) for row in rows if row['bytes'] > 100] == steps


@pytest.mark.soak
def test_gradients_of_a_compiled_model(tmp_path_factory, lib, python, analyze):
    test_gradients_of_a_model(play(tmp_path_factory, lib, python, 'compiled'), analyze, 'compiled')


def test_late_rank(job, analyze):
    """The rank that sleeps in a stage is named with that stage."""
    turns, delay = 4, 100_000
    answer = analyze('stragglers', job.run, '--stage', 'late')
    first = answer['rows'][0]
    assert (first['rank'], first['stage'], first['collectives']) == (2, 'late', turns)
    assert first['late_us'] > 0.5 * turns * delay and answer['totals']['rank'] == 2


def test_the_path_of_those_that_wait(job, analyze):
    """The ranks that wait for a late one are bound by communication for that long, and the late rank is not."""
    delay, turns = 100_000, 4
    waits = {}
    for rank in range(RANKS):
        rows = analyze('critical-path', job.run, '--rank', rank, '--stage', 'late')['rows']
        waits[rank] = next((row['total_us'] for row in rows if row['kind'] == 'cpu_communication_bound'), 0)
    assert all(waits[r] > 0.5 * (turns - 1) * delay > waits[2] for r in (0, 1, 3)), waits


def test_groups_in_the_records(job):
    """Names, descriptions, sizes and ranks as torch has them, in the records of each rank."""
    for path in job.run.glob('*.tfr'):
        trace = tfr.read(path)
        rank = int(path.name.split('.')[0].removeprefix('rank'))
        calls = [r.values for r in trace.records if r.kind == 'framework_collective' and not r.values['flags']]
        named = {(trace.strings[v['group']], trace.strings[v['description']], v['rank'], v['ranks']) for v in calls}
        half = rank % 2
        assert named == {(b'0', b'default_pg', rank, RANKS), (b'%d' % (half + 1), b'half %d' % half, rank // 2, RANKS // 2)}


def test_torch_profiler_sees_the_same(job, analyze):
    """The stage that torch.profiler records too: its traces of gloo have operations, bytes and ranks, but no groups."""
    theirs = Counter((row['name'], row['bytes'], ranks_of(row)) for row in analyze('comm', *job.kineto)['rows'])
    ours = Counter((row['name'], row['bytes'], ranks_of(row)) for row in analyze('comm', job.run, '--stage', 'profiled')['rows'])
    assert ours == theirs and len(ours) == 4


def test_a_missing_rank(job, analyze):
    """Without one trace the collectives of its groups lack a rank; those of other groups are whole."""
    some = [p for p in sorted(job.run.glob('*.tfr')) if not p.name.startswith('rank3.')]
    answer = analyze('comm', *some, '--stage', 'subgroups', rc=3)
    lacking = {row['group'] for row in answer['rows'] if row['ranks'] < row['size']}
    assert lacking == {'0', '2'} and answer['totals']['incomplete'] == sum(row['group'] in lacking for row in answer['rows'])


# ---- libtorch's descriptions, which backends of devices give ----

DESCRIBER = r'''
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
extern "C" void describe(const char *name, long number, long in, long out, int type, int start, int stride, int ranks)
{
    std::vector<at::Tensor> tensors;
    std::vector<int64_t> none;
    RECORD_PARAM_COMMS_DATA(std::make_tuple((int64_t)number, false), std::make_tuple(std::string("7"), std::string("data parallel")),
                            tensors, tensors, 1, std::string(name), in, out, (at::ScalarType)type, none, none, start, stride, ranks);
}
'''
DESCRIBED = '''
import ctypes, torch
library = ctypes.CDLL('./libdescriber.so')
for number, (name, *values) in enumerate([(b'allreduce', 12, 12, 15, 0, 2, 4), (b'_allgather_base', 3, 12, 6, 4, 1, 4), (b'barrier', 0, 0, 0, 0, 0, 4)]):
    library.describe(name, ctypes.c_long(40 + number), *map(ctypes.c_long, values[:2]), *values[2:])
'''


@pytest.mark.soak
def test_descriptions_of_libtorch(run, tmp_path, python, analyze):
    """record_param_comms without a profiler: all that libtorch says of a collective, as NCCL's backend says it."""
    (tmp_path / 'describer.cpp').write_text(DESCRIBER)
    (tmp_path / 'described.py').write_text(DESCRIBED)
    torch, = importlib.util.find_spec('torch').submodule_search_locations
    result = execute(['g++', '-std=c++20', '-w', '-O0', '-fPIC', '-shared', '-o', tmp_path / 'libdescriber.so', '-DUSE_DISTRIBUTED',
                      f'-I{torch}/include', tmp_path / 'describer.cpp', f'-L{torch}/lib', '-ltorch_cpu', '-lc10'], clean_environment(), timeout=400)
    assert result.rc == 0, result.err[-3000:]
    result = run([python, 'described.py'])
    assert (result.rc, result.err) == (0, '')
    trace = tfr.read(next(result.dir.glob('*.tfr')))
    found = [r.values for r in trace.records if r.kind == 'framework_collective']
    texts = [tuple(trace.strings[v[k]].decode() if v[k] else None for k in ('name', 'group', 'description', 'members')) for v in found]
    assert texts == [('allreduce', '7', 'data parallel', '[0, 2, 4, 6]'), ('_allgather_base', '7', 'data parallel', '[4, 5, 6, 7]'),
                     ('barrier', '7', 'data parallel', None)]
    numbers = [tuple(v[k] for k in ('sequence', 'in', 'out', 'type', 'rank', 'ranks', 'peer', 'flags')) for v in found]
    assert numbers == [(40, 12, 12, 15, 1, 4, -1, 2), (41, 3, 12, 6, 1, 4, -1, 2), (42, 0, 0, 0, 1, 4, -1, 2)]
    rows = analyze('comm', result.dir, rc=3)['rows']  # the other ranks have no traces
    assert [(r['name'], r['group'], r['seq'], r['size'], r['bytes']) for r in rows] == [
        ('all_reduce', '7', 40, 4, 24), ('all_gather', '7', 41, 4, 48), ('barrier', '7', 42, 4, 0)]


# ---- one process ----

ALONE = '''
import os, torch, torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch._subclasses import FakeTensorMode
stage = torch.profiler.record_function

class Own(dist.ProcessGroup):
    """A group that is a Python class."""
    def __init__(self):
        super().__init__(0, 1)
        self.calls = 0
    def allreduce(self, tensors, options=None):
        self.calls += 1
        future = torch.futures.Future()
        future.set_result(tensors)
        return torch._C._distributed_c10d._create_work_from_future(future)

for turn in range(2):
    dist.init_process_group('gloo', init_method=f'file://{os.getcwd()}/store{turn}', rank=0, world_size=1)
    with stage('out'):
        dist.all_reduce(torch.ones(3))
    with stage('in'):
        dist.all_reduce(torch.ones(5 + turn))
        dist.barrier()
    if turn:
        own = Own()
        with stage('in'):
            own.allreduce([torch.ones(2)]).wait()
        assert own.calls == 1
    dist.destroy_process_group()
dist.init_process_group('fake', store=FakeStore(), rank=0, world_size=8)
with stage('in'):
    dist.all_reduce(torch.ones(7))
    with FakeTensorMode():
        dist.all_gather_into_tensor(torch.empty(16), torch.empty(2))
dist.destroy_process_group()
''' + AT_REST


def test_stages_and_kinds_of_groups(run, tmp_path, python, analyze):
    """A selected stage has the work in gloo's threads too, and groups that are made anew, in Python, or without a backend."""
    (tmp_path / 'alone.py').write_text(ALONE)
    result = run([python, '-W', 'ignore', 'alone.py'], {'ENABLE_PROFILER_NAMES': 'in', 'OMP_NUM_THREADS': '1'})
    assert result.rc == 0 and 'tfinject' not in result.err, result.err
    rows = analyze('comm', result.dir, rc=3)['rows']
    found = [(row['name'], row['size'], row['bytes'], row['duration_us'] is not None) for row in rows]
    assert found == [('all_reduce', 1, 20, True), ('barrier', 1, None, True), ('all_reduce', 1, 24, True), ('barrier', 1, None, True),
                     ('all_reduce', 8, 28, False), ('all_gather', 8, 64, False)]
    assert {row['group'] for row in rows} == {'0'}
