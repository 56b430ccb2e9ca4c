"""test_nccl_torch - real torch with its NCCL backend on the simulated GPU and NCCL: collectives under torch's group names.

Two ranks run plain collectives, a subgroup, messages and a step of DDP. The simulated NCCL's log has each call that torch
made. torch would find its own libraries before those of LD_LIBRARY_PATH, so the simulated ones are preloaded.
"""

import json
import subprocess
from collections import Counter, defaultdict

import pytest

from conftest import AT_REST, BUILD, COMMAND_TIMEOUT, built, clean_environment, execute, free_port
from simgpu import truth
from test_execution_comm import compare

GPU = BUILD / 'simgpu'
pytestmark = pytest.mark.xdist_group('torch-nccl')
NAMES = {'ncclAllReduce': 'all_reduce', 'ncclBroadcast': 'broadcast', 'ncclAllGather': 'all_gather',
         'ncclReduceScatter': 'reduce_scatter', 'ncclReduce': 'reduce', 'ncclSend': 'send', 'ncclRecv': 'recv'}
RANK = """
import os, torch, torch.distributed as dist
rank = int(os.environ['RANK'])
torch.cuda.set_device(rank)
dist.init_process_group('nccl')
x, y = torch.ones(1000, device='cuda'), torch.ones(2000, device='cuda')
observer = torch.profiler.ExecutionTraceObserver().register_callback(f'torch{rank}.json')
observer.start()
with torch.cuda.nvtx.range('train'):
    for step in range(3):
        dist.all_reduce(x)
    dist.all_gather_into_tensor(y, x)
    dist.reduce_scatter_tensor(x, y)
    pair = dist.new_group([0, 1], group_desc='pair')
    dist.broadcast(x, 0, group=pair)
    dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.PReLU(68).to('cuda'), device_ids=[rank])
    model(torch.ones(2, 68, device='cuda')).sum().backward()
torch.cuda.synchronize()
observer.stop(), observer.unregister_callback()
print(dist.group.WORLD.group_name, pair.group_name)
dist.destroy_process_group()
""" + AT_REST


@pytest.fixture(scope='module')
def job(tmp_path_factory, lib, python):
    """The directory of the job, and the names of its two process groups."""
    directory = tmp_path_factory.mktemp('job')
    libraries = [lib, *(built(GPU / name) for name in ('libcudart.so.13', 'libcupti.so.13', 'libnccl.so.2'))]
    env = truth.environment(directory, SIMGPU_DEVICES=2, SIMNCCL_LOG=directory / 'nccl-%p.jsonl', TFI_TENSOR_ADDRESSES=1, WORLD_SIZE=2, MASTER_ADDR='127.0.0.1',
                            MASTER_PORT=free_port(), TFI_OUTPUT_DIR=directory / 'run', LD_PRELOAD=':'.join(map(str, libraries)))
    ranks = [subprocess.Popen([python, '-c', RANK], env={**env, 'RANK': str(r), 'LOCAL_RANK': str(r)}, cwd=directory,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for r in range(2)]
    said = []
    try:
        for rank in ranks:
            out, err = rank.communicate(timeout=COMMAND_TIMEOUT)
            assert rank.returncode == 0, err[-3000:]
            said.append(out.split())
    finally:
        for rank in ranks:
            rank.kill()
    assert said[0] == said[1]
    return directory, said[0]


@pytest.fixture(scope='module')
def called(job):
    """{communicator of the log: the operations and bytes of its calls}, of rank 0."""
    found = defaultdict(Counter)
    for path in job[0].glob('nccl-*.jsonl'):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for call in lines:
            if call['t'] == 'call' and call['rank'] == 0 and call['result'] == 0:
                found[call['comm']][NAMES[call['func']]] += 1
    return found


@pytest.fixture(scope='module')
def rows(job, tfanalyze):
    """The rows of `comm`. torch's own threads call CUDA until the process ends, so CUPTI may keep a last buffer: exit 3."""
    result = execute([tfanalyze, 'comm', job[0] / 'run', '--format', 'json'], clean_environment())
    lost = [line for line in result.err.splitlines() if ' lost ' in line]
    assert result.rc == (3 if lost else 0) and all('never returned' in line for line in lost), result.err
    return json.loads(result.out)['rows']


def test_groups_have_torchs_names(job, called, rows):
    """Each process group's rows are the calls of one communicator of the log; both ranks are in each row."""
    everyone, pair = job[1]
    found = defaultdict(Counter)
    for row in rows:
        assert (row['ranks'], row['size']) == (2, 2), row
        found[row['group']][row['name']] += 1
    assert found[pair] == {'broadcast': 1} and found[everyone]['all_gather'] == found[everyone]['reduce_scatter'] == 1
    assert sorted(sorted(c.items()) for c in found.values()) == sorted(sorted(c.items()) for c in called.values())


def test_bytes_of_plain_collectives(job, rows):
    """The sizes follow from the tensors: 1,000 floats a rank, and the gradient of 68 parameters."""
    reduced = Counter(r['bytes'] for r in rows if r['name'] == 'all_reduce' and r['group'] == job[1][0])
    assert reduced[4000] == 3 and reduced[4 * 68] == 1
    assert {r['bytes'] for r in rows if r['name'] in ('all_gather', 'reduce_scatter')} == {8000}


@pytest.mark.parametrize('rank', [0, 1])
def test_descriptions_are_those_of_torchs_observer(job, tfanalyze, rank):
    """The nodes of all collectives in `export et`: group, elements, type, splits, ranks, as NCCL's backend says them."""
    described = [n for n in compare(tfanalyze, job[0], rank) if n['name'] == 'record_param_comms']
    names = Counter(a['value'] for n in described for a in n['attrs'] if a['name'] == 'collective_name')
    assert names['all_reduce'] == 4 and {'broadcast', 'allGatherSingleImpl', 'reduceScatterSingleImpl'} <= names.keys(), names


def test_the_description_of_the_job_names_nccl(job, tfanalyze):
    """distributedInfo, as torch.profiler writes it, with NCCL's version."""
    result = execute([tfanalyze, 'info', job[0] / 'run', '--format', 'json'], clean_environment())
    for row in json.loads(result.out)['rows']:
        said = row['metadata']['distributedInfo']
        said = json.loads(said) if isinstance(said, str) else said
        assert (said['backend'], said['world_size'], said['rank']) == ('nccl', 2, row['rank'])
        assert all(part.isdigit() for part in said['nccl_version'].split('.'))
