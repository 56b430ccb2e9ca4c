"""test_module_view - modules and Python functions of an export, in TensorBoard's module view, beside torch's own trace.

A small model runs under torch.profiler (with_stack, with_modules) and the library at once. The plugin reads both traces, and
its module view must have the same tree: the same calls of each module and the same operators in them.
"""

import gzip
import json
from collections import Counter
from decimal import Decimal

import pytest

from conftest import clean_environment, execute

pytestmark = [pytest.mark.torch, pytest.mark.slow]
CALLS = 3

MODEL = f'''
import torch
from torch import nn
from torch.profiler import profile, record_function, ProfilerActivity
torch.set_num_threads(1)

def helper(x):
    return x.mul(2).add(3)

def around(x):
    y = x.add(1)
    with record_function('inside'):
        y = y.add(2)
    return y.add(3)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.ReLU()
    def forward(self, x):
        y = self.a(x) + 1
        return helper(self.b(y))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.out = nn.ModuleList(Block() for _ in range(2)), nn.Linear(8, 2)
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.out(x)

net, x = Net(), torch.ones(4, 8)
with profile(activities=[ProfilerActivity.CPU], with_stack=True, with_modules=True, record_shapes=True) as p:
    for i in range({CALLS}):
        net(x).sum().backward()
    around(x)
p.export_chrome_trace('torch.pt.trace.json')
'''
VIEW = '''
import json, logging, sys, tempfile
from torch_tb_profiler.profiler import module_op
from torch_tb_profiler.profiler.data import RunProfileData
logging.disable(logging.CRITICAL)

def tree(rows):
    return [[row.name, row.occurences, row.operators, tree(row.children)] for row in rows]

views = []
for path in sys.argv[1:]:
    with tempfile.TemporaryDirectory() as cache:
        data = RunProfileData.parse('worker', None, path, cache)
    views.append(tree(module_op.aggegate_module_view(data.tid2tree, data.events)))
print(json.dumps(views))
'''


@pytest.fixture(scope='module')
def run(tmp_path_factory, lib, python, tfanalyze):
    """The paths of torch's trace and of our export for TensorBoard."""
    top = tmp_path_factory.mktemp('modules')
    (top / 'model.py').write_text(MODEL)
    env = {**clean_environment(), 'LD_PRELOAD': str(lib), 'TFI_OUTPUT_DIR': str(top / 'run'), 'TFI_MODULE_DEPTH': '10', 'TFI_WITH_STACK': '1'}
    result = execute([python, '-W', 'ignore', 'model.py'], env, top)
    assert result.rc == 0 and 'tfinject:' not in result.err, result.err[-2000:]
    result = execute([tfanalyze, 'export', 'tensorboard', top / 'run', '--output', top / 'board'], clean_environment(), top)
    assert result.rc == 0, result.err
    ours, = (top / 'board').iterdir()
    return top / 'torch.pt.trace.json', ours


def events_of(path):
    return [e for e in json.loads((gzip.open if path.suffix == '.gz' else open)(path, 'rb').read(), parse_float=Decimal)['traceEvents'] if e['ph'] == 'X']


def without_names(tree):
    return [[calls, operators, without_names(inside)] for _, calls, operators, inside in tree]


def test_the_tree_is_torchs(run, python, tmp_path):
    result = execute([python, '-W', 'ignore', '-c', VIEW, *run], clean_environment(), tmp_path)
    theirs, ours = json.loads(result.out.splitlines()[-1])
    assert without_names(ours) == without_names(theirs)
    (net, calls, _, inside), = ours
    assert (net, calls) == ('Net', CALLS) and [name for name, *_ in inside] == ['Net.blocks.0', 'Net.blocks.1', 'Net.out']


def test_functions_have_their_operators(run):
    """Edges of stages divide the boxes of a function: `around` stands before, inside and behind its record_function."""
    boxes = [e for e in events_of(run[1]) if e['cat'] == 'python_function' and 'operators' in e['args']]
    of = {name: [b['args']['operators'] for b in boxes if b['name'].endswith(f'): {name}')] for name in ('helper', 'around')}
    assert of == {'helper': [2] * 2 * CALLS, 'around': [1, 1, 1]}
    theirs = Counter(e['name'].rpartition(' ')[2] for e in events_of(run[0]) if e['cat'] == 'python_function')
    assert theirs['helper'] == 2 * CALLS and theirs['around'] == 1


def test_functions_nest_and_know_their_parents(run):
    """Boxes of a thread lie inside each other, and the id of the parent is that of a box around."""
    events = events_of(run[1])
    thread = Counter(e['tid'] for e in events if e['cat'] == 'python_function').most_common(1)[0][0]
    boxes, stack = {e['args']['Python id']: e for e in events if e['cat'] == 'python_function'}, []
    assert len(boxes) == sum(e['cat'] == 'python_function' for e in events)
    for e in sorted((e for e in events if e['tid'] == thread), key=lambda e: (e['ts'], -e['dur'])):
        while stack and stack[-1]['ts'] + stack[-1]['dur'] <= e['ts']:
            stack.pop()
        assert not stack or e['ts'] + e['dur'] <= stack[-1]['ts'] + stack[-1]['dur'], (e, stack[-1])
        if e['cat'] == 'python_function':
            parent = e['args'].get('Python parent id')
            assert any(b is boxes.get(parent) for b in stack) or parent is None, e
        stack.append(e)
