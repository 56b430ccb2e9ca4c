"""test_execution_comm - collectives and process groups in `export et`, against torch's ExecutionTraceObserver in the same run.

The description of a collective comes from RECORD_PARAM_COMMS, as NCCL's backend calls it. gloo has no descriptions.
"""

import importlib.util
import json
import subprocess

import pytest
from conftest import clean_environment, execute, free_port

pytestmark = pytest.mark.torch

DESCRIBER = r'''
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
extern "C" void describe(const char *name, const char *group, const char *about, long in, long out, int type, int splits, int start, int stride, int ranks, int async)
{
    std::vector<at::Tensor> tensors;
    std::vector<int64_t> sizes(splits, 3), others(splits / 2, -1);
    RECORD_PARAM_COMMS_DATA_WITH_ASYNC_OP(std::make_tuple((int64_t)7, false), std::make_tuple(std::string(group), std::string(about)),
                            tensors, tensors, 1, std::string(name), in, out, (at::ScalarType)type, sizes, others, start, stride, ranks, (bool)async);
}
'''
DESCRIBED = '''
import ctypes, torch
from torch.profiler import ExecutionTraceObserver
library = ctypes.CDLL('./libdescriber.so')
observer = ExecutionTraceObserver().register_callback('torch0.json')
observer.start()
for name, group, about, *numbers in [(b'allreduce', b'7', b'data parallel', 12, 12, 15, 0, 0, 2, 4), (b'all_to_allv', b'8', b'', 3, 1 << 40, 6, 6, 4, 1, 4),
                                     (b'barrier', b'', b'x', 0, 0, 0, 0, -1, 0, 4), (b'send', b'9', b'y', 5, 5, 12, 1, -1, -1, 2)] + [(b'a', b'b', b'c', 1, 2, t, 0, 0, 1, 2) for t in range(47)]:
    library.describe(name, group, about, ctypes.c_long(numbers[0]), ctypes.c_long(numbers[1]), *numbers[2:], numbers[2] % 2)
observer.stop()
observer.unregister_callback()
'''
GLOO = '''
import os, torch, torch.distributed as dist
from torch.profiler import ExecutionTraceObserver
rank = int(os.environ['RANK'])
torch.set_num_threads(1)
observer = ExecutionTraceObserver().register_callback(f'torch{rank}.json')
dist.init_process_group('gloo')
second = dist.new_group([0, 1], group_desc='second "group"')
observer.start()
x = torch.ones(6)
dist.all_reduce(x), dist.all_reduce(x, group=second), dist.all_gather_into_tensor(torch.empty(12), x), dist.barrier()
(dist.send(x, 1) if rank == 0 else dist.recv(x, 0))
observer.stop()
observer.unregister_callback()
dist.destroy_process_group()
'''


def compare(tfanalyze, place, rank):
    """The nodes of both files, which are equal but for their numbers and the order in which threads write them."""
    result = execute([tfanalyze, 'export', 'et', '--rank', str(rank), place / 'run'], clean_environment(), place)
    assert result.rc in (0, 3), result.err  # CUPTI may keep a last buffer
    theirs, ours = ({n['attrs'][0]['value']: n for n in trace['nodes'] if n['attrs'][0]['value']}
                    for trace in (json.loads((place / f'torch{rank}.json').read_text()), json.loads(result.out)))
    assert theirs.keys() <= ours.keys()
    for number, node in theirs.items():
        assert [node['name'], node['attrs'], node['inputs']['types'], node['outputs']['types']] == [
            ours[number]['name'], ours[number]['attrs'], ours[number]['inputs']['types'], ours[number]['outputs']['types']]
    return [n for _, n in sorted(ours.items()) if n['attrs'][0]['value'] in theirs]


@pytest.mark.soak
def test_descriptions_of_collectives(lib, python, tfanalyze, tmp_path):
    """Every type and split, said by a library that is compiled against torch's headers. test_nccl_torch has the short form."""
    (tmp_path / 'describer.cpp').write_text(DESCRIBER)
    torch, = importlib.util.find_spec('torch').submodule_search_locations
    result = execute(['g++', '-std=c++20', '-w', '-O0', '-fPIC', '-shared', '-o', tmp_path / 'libdescriber.so', '-DUSE_DISTRIBUTED',
                      f'-I{torch}/include', tmp_path / 'describer.cpp', f'-L{torch}/lib', '-ltorch_cpu', '-lc10'], clean_environment(), timeout=400)
    assert result.rc == 0, result.err[-3000:]
    env = {**clean_environment(), 'LD_PRELOAD': str(lib), 'TFI_TENSOR_ADDRESSES': '1', 'TFI_OUTPUT_DIR': str(tmp_path / 'run')}
    result = execute([python, '-W', 'ignore', '-c', DESCRIBED], env, tmp_path)
    assert result.rc == 0 and 'tfinject:' not in result.err, result.err[-2000:]
    found = compare(tfanalyze, tmp_path, 0)
    attributes = [{a['name']: a['value'] for a in n['attrs']} for n in found]
    assert len(found) == 51 and {n['name'] for n in found} == {'record_param_comms'}
    assert {k: v for k, v in attributes[1].items() if 'split' in k or 'elems' in k or 'pg' in k or k == 'dtype'} == {
        'dtype': 'Float', 'in_msg_nelems': 3, 'out_msg_nelems': 1 << 40, 'in_split_size': '[3, 3, 3, 3, 3, 3]', 'out_split_size': '[-1, -1, -1]',
        'pg_name': '8', 'pg_size': 4}


def gloo(lib, python, tmp_path, script):
    """Runs two ranks, recorded in `run`."""
    with open(tmp_path / 'said', 'w+') as said:
        port = free_port()
        jobs = [subprocess.Popen([python, '-W', 'ignore', '-c', script], cwd=tmp_path, stderr=said, env={
            **clean_environment(), 'LD_PRELOAD': str(lib), 'TFI_TENSOR_ADDRESSES': '1', 'TFI_OUTPUT_DIR': str(tmp_path / 'run'), 'RANK': str(rank),
            'WORLD_SIZE': '2', 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(port)}) for rank in range(2)]
        assert [job.wait(200) for job in jobs] == [0, 0], (tmp_path / 'said').read_text()[-2000:]


def test_process_groups_under_gloo(lib, python, tfanalyze, tmp_path):
    gloo(lib, python, tmp_path, GLOO)
    for rank in range(2):
        found = compare(tfanalyze, tmp_path, rank)
        init, = (n for n in found if n['name'] == '## process_group:init ##')
        groups = json.loads(init['inputs']['values'][0])
        assert [(g['pg_name'], g['pg_desc'], g['group_size'], g['group_count']) for g in groups] == [('0', 'default_pg', 2, 2), ('1', 'second "group"', 2, 2)]
        assert {'gloo:all_reduce', 'c10d::allreduce_', 'gloo:barrier'} <= {n['name'] for n in found}


def test_process_groups_without_an_observer(lib, python, tfanalyze, tmp_path):
    """The node equals what torch's observer would write now; a group of one rank has a list of ranks."""
    said = "import json\nopen(f'said{rank}', 'w').write(json.dumps(dist.distributed_c10d._world.pg_config_info))\n"
    quiet = '\n'.join(line for line in GLOO.splitlines() if 'observer' not in line.lower()).replace(
        'x = torch', f'alone = dist.new_group([0])\n{said}x = torch', 1)
    gloo(lib, python, tmp_path, quiet)
    for rank in range(2):
        result = execute([tfanalyze, 'export', 'et', '--rank', str(rank), tmp_path / 'run'], clean_environment(), tmp_path)
        assert result.rc == 0, result.err
        nodes = json.loads(result.out)['nodes']
        thread, init = nodes[:2]
        assert [thread['name'], thread['id'], init['id'], init['ctrl_deps']] == ['[pytorch|profiler|execution_trace|thread]', 2, 3, 2]
        assert init['name'] == '## process_group:init ##' and [n['name'] for n in nodes].count(init['name']) == 1
        expected = (tmp_path / f'said{rank}').read_text()
        assert init['inputs'] == {'values': [expected], 'shapes': [[]], 'types': ['String'], 'strides': [[]]}
        assert [len(g['ranks']) for g in json.loads(expected)] == ([0, 0, 1] if rank == 0 else [0, 0])
