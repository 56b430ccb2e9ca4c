"""test_execution_trace - `export et` against the file of torch's ExecutionTraceObserver, which ran in the same process.

Nodes are found in both files by rf_id and compared field by field, numbers of objects included: the observer begins
before the first operator. et_replay, which torch's users replay such files with, reads ours.
"""

import json

import pytest

from conftest import clean_environment, execute

pytestmark = pytest.mark.torch

RUN = '''
import sys, threading, torch
from torch import nn
from torch.profiler import ExecutionTraceObserver, profile, record_function
observer = ExecutionTraceObserver()
observer.register_callback('torch.json')
observer.start()
torch.manual_seed(0)
torch.set_num_threads(1)
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.layer = nn.Embedding(50, 32), nn.TransformerEncoderLayer(32, 4, 64, dropout=.1)
        self.images = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2))
    def forward(self, words, images):
        return self.layer(self.table(words)).mean() + self.images(images).square().mean()
model = Block()
optimizer = torch.optim.Adam(model.parameters(), foreach=True)
for step in range(3):
    with record_function('step %d é' % step):
        optimizer.zero_grad()
        model(torch.randint(0, 50, (8, 4)), torch.randn(4, 3, 16, 16)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
x = torch.randn(4, 6)
torch.einsum('ij,kj->ik', x, x), torch.linalg.svd(x), x.split(2), torch.cat([x, x]).chunk(3, 1), x.t()[1:3].contiguous()
torch.full((2,), float('inf')).add_(float('nan')), torch.stft(x.flatten(), 8, return_complex=True), x.to('meta'), x.div(x, rounding_mode='floor')
torch.nn.LSTM(6, 5)(x[None]), torch.tensor([[1, 2], [3, 4]])[torch.tensor([True, False])], torch.empty(0)
torch.quantize_per_tensor(x, .1, 3, torch.qint8).dequantize(), torch.broadcast_tensors(x, x[0])
for kind in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16, torch.float64, torch.complex64,
             torch.complex128, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32, torch.uint64, torch.bits8):
    torch.empty(3, dtype=kind).view(1, 3)
def work():
    for _ in range(20):
        (torch.ones(5, requires_grad=True) * 2).sum().backward()
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
    thread.join()
with profile():
    for backend in ({'kernel_backend': 'triton', 'kernel_file': '/somewhere/cabc.py', 'grid': 'grid(8,)', 'stream': 7}, {'kernel_backend': 'none'}):
        with torch._C._profiler._RecordFunctionFast('kernel', [x, 3, True], backend):
            pass
observer.stop()
observer.unregister_callback()
'''


def nodes(path):
    """The nodes by rf_id, and those of threads and the process by thread."""
    trace = json.loads(path.read_text())
    assert trace['schema'] == '1.1.1-chakra.0.0.4'
    attrs = [{a['name']: a['value'] for a in n['attrs']} for n in trace['nodes']]
    return trace, {(a['rf_id'], a['tid'] if not a['rf_id'] else 0): n for n, a in zip(trace['nodes'], attrs)}


@pytest.fixture(scope='module')
def run(lib, python, tfanalyze, tmp_path_factory):
    place = tmp_path_factory.mktemp('execution')
    env = {**clean_environment(), 'LD_PRELOAD': str(lib), 'TFI_TENSOR_ADDRESSES': '1', 'TFI_OUTPUT_DIR': str(place / 'run')}
    result = execute([python, '-W', 'ignore', '-c', RUN], env, place)
    assert result.rc == 0 and 'tfinject:' not in result.err, result.err[-2000:]
    result = execute([tfanalyze, 'export', 'et', place / 'run', '--output', place / 'ours.json'], clean_environment(), place)
    assert result.rc == 0, result.err
    return place


def test_every_field_of_every_node(run):
    (theirs, by_rf), (ours, own) = nodes(run / 'torch.json'), nodes(run / 'ours.json')
    assert len(by_rf) == len(theirs['nodes']) > 2000 and own.keys() == by_rf.keys()
    for key, node in by_rf.items():
        assert own[key] == node
    assert [n['id'] for n in ours['nodes']] == [n['id'] for n in theirs['nodes']]
    assert ours['pid'] == theirs['pid'] and ours['time'][:10] == theirs['time'][:10]


def test_et_replay_reads_it(run, forked):
    code = '''
import importlib.util, json, os, sys
sys.path.insert(0, os.path.dirname(importlib.util.find_spec('param_bench').origin or next(iter(importlib.util.find_spec('param_bench').submodule_search_locations)) + '/x'))
from et_replay.execution_trace import ExecutionTrace
out = []
for path in sys.argv[1:]:
    trace = ExecutionTrace(json.load(open(path)))
    tree = [[n.id, n.parent.id if n.parent else 0, str(n.type), sorted(c.id for c in n.children)] for _, n in sorted(trace.nodes.items())]
    out.append([len(trace.nodes), sorted(trace.tensors), tree])
print(json.dumps(out))
'''
    result = forked(['python', '-W', 'ignore', '-c', code, run / 'torch.json', run / 'ours.json'])
    assert result.rc == 0, result.err[-2000:]
    theirs, ours = json.loads(result.out)
    assert theirs == ours and ours[0] > 2000


def test_without_the_variable(lib, python, tfanalyze, tmp_path):
    env = {**clean_environment(), 'LD_PRELOAD': str(lib), 'TFI_OUTPUT_DIR': str(tmp_path / 'run')}
    assert execute([python, '-W', 'ignore', '-c', 'import torch; torch.ones(3) + 1'], env, tmp_path).rc == 0
    result = execute([tfanalyze, 'export', 'et', tmp_path / 'run', '--output', tmp_path / 'et.json'], clean_environment(), tmp_path)
    assert result.rc == 1 and 'TFI_TENSOR_ADDRESSES=1' in result.err and not (tmp_path / 'et.json').exists()


def test_values_are_left_out(lib, python, tfanalyze, tmp_path):
    env = {**clean_environment(), 'LD_PRELOAD': str(lib), 'TFI_TENSOR_ADDRESSES': '1', 'TFI_RECORD_VALUES': '0', 'TFI_OUTPUT_DIR': str(tmp_path / 'run')}
    code = "import torch; torch.einsum('ij,qz->i', torch.ones(3, 4), torch.full((2, 2), 78125.0))"
    assert execute([python, '-W', 'ignore', '-c', code], env, tmp_path).rc == 0
    result = execute([tfanalyze, 'export', 'et', tmp_path / 'run'], clean_environment(), tmp_path)
    full, = (n for n in json.loads(result.out)['nodes'] if n['name'] == 'aten::full')
    assert result.rc == 0 and '78125' not in result.out and 'qz' not in result.out
    assert full['inputs']['values'][:2] == [[None, None], None] and full['inputs']['types'][1] == 'Double'


REDEFINED = '''
import torch
from torch.profiler import ExecutionTraceObserver
observer = ExecutionTraceObserver()
observer.register_callback('torch.json')
observer.start()
for schema in ('f(Tensor x) -> Tensor', 'f(Tensor x, int y=1) -> Tensor', 'f(Tensor x, float y=1.) -> Tensor', 'g(Tensor x, int y=2) -> Tensor') * 3:
    library = torch.library.Library('again', 'DEF')
    library.define(schema)
    library.impl(schema[0], lambda x, *y: x + 1, 'CPU')
    getattr(torch.ops.again, schema[0])(torch.ones(1))
    library._destroy()
    del torch.ops.again
observer.stop()
observer.unregister_callback()
'''


def test_schemas_of_operators_that_are_defined_again(lib, python, tfanalyze, tmp_path):
    """The schema of a removed operator gives its memory to that of the next one."""
    env = {**clean_environment(), 'LD_PRELOAD': str(lib), 'TFI_TENSOR_ADDRESSES': '1', 'TFI_OUTPUT_DIR': str(tmp_path / 'run')}
    result = execute([python, '-W', 'ignore', '-c', REDEFINED], env, tmp_path)
    assert result.rc == 0, result.err[-2000:]
    result = execute([tfanalyze, 'export', 'et', tmp_path / 'run'], clean_environment(), tmp_path)
    assert result.rc == 0, result.err
    files = [json.loads((tmp_path / 'torch.json').read_text()), json.loads(result.out)]
    theirs, ours = ([a['value'] for n in file['nodes'] if n['name'].startswith('again::') for a in n['attrs'] if a['name'] == 'op_schema']
                    for file in files)
    assert ours == theirs and len(ours) == 12 and len(set(ours)) == 4
