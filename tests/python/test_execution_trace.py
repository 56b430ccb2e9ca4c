"""test_execution_trace - `export et` against the file of torch's ExecutionTraceObserver, which ran in the same process.

Nodes are found in both files by rf_id and compared field by field, numbers of objects included: the observer begins
before the first operator. et_replay, which torch's users replay such files with, reads ours. `--et` joins torch's file with
the trace of torch.profiler and with ours.
"""

import gzip
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
    result = execute([python, '-W', 'ignore', '-c', RUN], env, place, timeout=200)
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


def test_et_replay_reads_it(run, python):
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
    result = execute([python, '-W', 'ignore', '-c', code, run / 'torch.json', run / 'ours.json'], clean_environment(), run)
    assert result.rc == 0, result.err[-2000:]
    theirs, ours = json.loads(result.out)
    assert theirs == ours and ours[0] > 2000


JOINED = '''
import torch
from torch import nn
from torch.profiler import ExecutionTraceObserver, profile, record_function
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), .1)
observer = ExecutionTraceObserver().register_callback('torch.json.gz')
with profile(execution_trace_observer=observer, record_shapes=True) as p:
    for i in range(4):
        with record_function('step %d é' % i):
            optimizer.zero_grad()
            model(torch.randn(32, 64)).square().mean().backward()
            optimizer.step()
        p.step()
p.export_chrome_trace('kineto.json')
'''


def test_join_by_rf_id(lib, python, tfanalyze, tmp_path):
    """torch's own two files of one run: the times of the events in the one come to the nodes in the other, and ours are near."""
    env = {**clean_environment(), 'LD_PRELOAD': str(lib), 'TFI_TENSOR_ADDRESSES': '1', 'TFI_OUTPUT_DIR': str(tmp_path / 'run')}
    result = execute([python, '-W', 'ignore', '-c', JOINED], env, tmp_path, timeout=200)
    assert result.rc == 0, result.err[-2000:]
    joined = {}
    for source in 'kineto.json', 'run':
        result = execute([tfanalyze, 'export', 'et', '--et', 'torch.json.gz', source], clean_environment(), tmp_path)
        assert result.rc == 0 and not result.err, result.err
        joined[source] = json.loads(result.out)['nodes']
    events = {e['args']['Record function id']: e for e in json.loads((tmp_path / 'kineto.json').read_text())['traceEvents']
              if e.get('cat') in ('cpu_op', 'user_annotation') and e.get('args', {}).get('Record function id')}
    given = json.loads(gzip.decompress((tmp_path / 'torch.json.gz').read_bytes()))['nodes']
    timed = 0
    for node, kineto, ours in zip(given, joined['kineto.json'], joined['run'], strict=True):
        number = node['attrs'][0]['value']
        times = {k: kineto.pop(k) for k in ('ts', 'inclusive_dur', 'exclusive_dur') if number}
        own = {k: ours.pop(k) for k in times}
        assert node == kineto == ours
        if number:
            event, timed = events[number], timed + 1
            assert times['ts'] == pytest.approx(event['ts'], abs=.002) and times['inclusive_dur'] == pytest.approx(event['dur'], abs=.002)
            assert abs(own['ts'] - times['ts']) < 50e3 and 0 <= own['exclusive_dur'] <= own['inclusive_dur']
    assert timed == len(events) > 400


def test_without_the_variable(lib, python, tfanalyze, tmp_path):
    env = {**clean_environment(), 'LD_PRELOAD': str(lib), 'TFI_OUTPUT_DIR': str(tmp_path / 'run')}
    assert execute([python, '-W', 'ignore', '-c', 'import torch; torch.ones(3) + 1'], env, tmp_path, timeout=100).rc == 0
    result = execute([tfanalyze, 'export', 'et', tmp_path / 'run', '--output', tmp_path / 'et.json'], clean_environment(), tmp_path)
    assert result.rc == 1 and 'TFI_TENSOR_ADDRESSES=1' in result.err and not (tmp_path / 'et.json').exists()


def test_values_are_left_out(lib, python, tfanalyze, tmp_path):
    env = {**clean_environment(), 'LD_PRELOAD': str(lib), 'TFI_TENSOR_ADDRESSES': '1', 'TFI_RECORD_VALUES': '0', 'TFI_OUTPUT_DIR': str(tmp_path / 'run')}
    code = "import torch; torch.einsum('ij,qz->i', torch.ones(3, 4), torch.full((2, 2), 78125.0))"
    assert execute([python, '-W', 'ignore', '-c', code], env, tmp_path, timeout=100).rc == 0
    result = execute([tfanalyze, 'export', 'et', tmp_path / 'run'], clean_environment(), tmp_path)
    full, = (n for n in json.loads(result.out)['nodes'] if n['name'] == 'aten::full')
    assert result.rc == 0 and '78125' not in result.out and 'qz' not in result.out
    assert full['inputs']['values'][:2] == [[None, None], None] and full['inputs']['types'][1] == 'Double'


# ---- sources of compiled modules ----

MODULES = '''
import sys
from torch._inductor.codecache import PyCodeCache
def load(*sources):
    for source in sources:
        PyCodeCache.load(source)
'''
COMPILED = MODULES + '''
import torch
from torch.profiler import ExecutionTraceObserver
observer = ExecutionTraceObserver().register_callback('torch.json')
observer.set_extra_resource_collection(True)
observer.start()
f = torch.compile(lambda x: (torch.sin(x) + 1).relu().sum(0))
f(torch.randn(16, 32))
load('x = 1', '', '# \u00e9\u4e16\\n' * 40000, 'y = 2\\n' * 10922 + 'z = 3', 'x = 1')
try:
    load('raise KeyError(7)')
except KeyError:
    pass
observer.stop()
observer.unregister_callback()
'''


def record(lib, python, place, code, expected=0, **env):
    env = {**clean_environment(), 'LD_PRELOAD': str(lib), 'TFI_TENSOR_ADDRESSES': '1', 'TFI_OUTPUT_DIR': str(place / 'run'),
           'TORCHINDUCTOR_CACHE_DIR': str(place / 'cache'), **env}
    result = execute([python, '-W', 'ignore', '-c', code], env, place, timeout=300)
    assert result.rc == expected and 'tfinject:' not in result.err, result.err[-2000:]
    return result.out


def export(tfanalyze, place, *more, rc=0):
    result = execute([tfanalyze, 'export', 'et', 'run', '--output', 'ours.json', *more], clean_environment(), place)
    assert result.rc == rc, result.err
    folder = place / 'ours_resources'
    return {p.name: p.read_bytes() for p in folder.iterdir()} if folder.exists() else None, result.err


def reveals_sources(tfanalyze, place):
    result = execute([tfanalyze, 'info', 'run', '--format', 'json'], clean_environment(), place)
    return json.loads(result.out)['rows'][0]['reveals']['compiled_sources']


def test_sources_equal_those_of_torch(lib, python, tfanalyze, tmp_path):
    record(lib, python, tmp_path, COMPILED)
    ours, err = export(tfanalyze, tmp_path)
    assert reveals_sources(tfanalyze, tmp_path)
    assert ours == {p.name: p.read_bytes() for p in (tmp_path / 'torch_resources').iterdir()} and not err
    assert len(ours) == 5 and {b'x = 1', b''} < set(ours.values()) and any(b'async_compile' in text for text in ours.values())
    for name in ours:
        (tmp_path / 'ours_resources' / name).unlink()
    assert export(tfanalyze, tmp_path, '--et', 'torch.json')[0] == ours


def test_sources_loaded_asleep_and_before_a_fork(lib, python, tfanalyze, tmp_path):
    """The files are gone and the process is asleep; both processes have all that was loaded, also after SIGKILL."""
    code = MODULES + '''
import os, shutil, signal, torch
load('a = 1', 'b = 2')
shutil.rmtree(os.environ['TORCHINDUCTOR_CACHE_DIR'])
child = os.fork()
with torch.profiler.record_function('s'):
    torch.ones(2) + 1
    load('parent = 1' if child else 'child = 1')
if child:
    print(os.waitpid(child, 0)[1], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
'''
    assert record(lib, python, tmp_path, code, -9, ENABLE_PROFILER_NAMES='s') == '9\n'
    pids = {int(p.name.split('.')[2]) for p in (tmp_path / 'run').glob('*.tfr*')}
    found = set()
    for pid in pids:
        ours, err = export(tfanalyze, tmp_path, '--pid', str(pid))
        assert 'was killed' in err
        found.add(frozenset(ours.values()))
        for path in (tmp_path / 'ours_resources').iterdir():
            path.unlink()
    assert found == {frozenset([b'a = 1', b'b = 2', b'parent = 1']), frozenset([b'a = 1', b'b = 2', b'child = 1'])}


def test_sources_beyond_the_limit_are_counted(lib, python, tfanalyze, tmp_path):
    code = MODULES + '''
import torch
torch.ones(2) + 1
load(*('#' + str(i) + 'x' * (6 << 20) for i in range(4)), 'last = 1')
'''
    record(lib, python, tmp_path, code)
    ours, err = export(tfanalyze, tmp_path, rc=3)
    assert sorted(len(text) for text in ours.values()) == [8, (6 << 20) + 2, (6 << 20) + 2]
    assert 'the sources of 2 compiled modules are not whole in the trace' in err


def test_sources_are_left_out_with_values(lib, python, tfanalyze, tmp_path):
    record(lib, python, tmp_path, MODULES + "import torch; torch.ones(2) + 1; load('secret = 78125')", TFI_RECORD_VALUES='0')
    assert export(tfanalyze, tmp_path) == (None, '') and not reveals_sources(tfanalyze, tmp_path)
    assert all(b'78125' not in p.read_bytes() for p in (tmp_path / 'run').iterdir())


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
    result = execute([python, '-W', 'ignore', '-c', REDEFINED], env, tmp_path, timeout=200)
    assert result.rc == 0, result.err[-2000:]
    result = execute([tfanalyze, 'export', 'et', tmp_path / 'run'], clean_environment(), tmp_path)
    assert result.rc == 0, result.err
    files = [json.loads((tmp_path / 'torch.json').read_text()), json.loads(result.out)]
    theirs, ours = ([a['value'] for n in file['nodes'] if n['name'].startswith('again::') for a in n['attrs'] if a['name'] == 'op_schema']
                    for file in files)
    assert ours == theirs and len(ours) == 12 and len(set(ours)) == 4
