"""test_memory_categories - categories of memory from our records, against torch's memory profiler on the same run.

A small training loop on the CPU runs under both at once. torch's profiler needs record_shapes, profile_memory and
with_stack; the library needs TFI_TENSOR_ADDRESSES. Each allocation and free is found in both by address and size.
"""

import gzip
import json
from collections import Counter, defaultdict

import pytest

from conftest import clean_environment, execute

pytestmark = [pytest.mark.torch, pytest.mark.slow]
CATEGORIES = ['parameter', 'optimizer_state', 'input', 'temporary', 'activation', 'gradient', 'autograd_detail', 'unknown']
PREEXISTING, CREATE, INCREMENT, DESTROY = 1, 2, 3, 4
MORE = [('adam', 0), ('images', 0), ('in place', 0), ('images', 1)]

LOOP = '''
import json, sys, torch
from torch import nn
from torch.profiler import profile, ProfilerActivity
from torch.profiler._memory_profiler import _CATEGORY_TO_INDEX
kind = sys.argv[1]
torch.manual_seed(0)
torch.set_num_threads(1)

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.layer = nn.Embedding(50, 32), nn.TransformerEncoderLayer(32, 4, 64, dropout=.1)
        self.out = nn.Linear(32, 50)
    def forward(self, x):
        return self.out(self.layer(self.table(x)))

models = {
    'adam': lambda: nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8)),
    'images': lambda: nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
                                    nn.Flatten(), nn.Linear(512, 10)),
    'in place': lambda: nn.Sequential(nn.Linear(64, 256), nn.ReLU(inplace=True), nn.Linear(256, 8), nn.LayerNorm(8)),
    'words': Words}
batches = {'images': lambda: torch.randn(4, 3, 16, 16), 'words': lambda: torch.randint(0, 50, (8, 4))}

def build():
    model = models[kind]()
    if kind == 'in place':
        return model, torch.optim.SGD(model.parameters(), lr=.1, momentum=.9)
    return model, torch.optim.Adam(model.parameters(), foreach=kind == 'words')

def steps(model, optimizer, count):
    for _ in range(count):
        optimizer.zero_grad(set_to_none=kind != 'in place')
        y = model(batches.get(kind, lambda: torch.randn(32, 64))())
        if kind == 'words':
            nn.functional.cross_entropy(y.flatten(0, 1), torch.randint(0, 50, (32,))).backward()
        else:
            y.square().mean().backward()
        if kind == 'images':
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True, with_stack=True) as p:
    steps(*build(), 3)
found = p._memory_profile()
json.dump([[t, action.value, size, _CATEGORY_TO_INDEX[found._categories.get(key, version)],
            _CATEGORY_TO_INDEX[found._categories.get(key, version + 1)], key.storage.ptr if hasattr(key, 'storage') else None]
           for t, action, (key, version), size in found.timeline], open('torch.json', 'w'))
'''


@pytest.fixture(params=[('words', 0), ('adam', 1), *(pytest.param(p, marks=pytest.mark.soak) for p in MORE)],
                ids=lambda param: f'{param[0]}, malloc' if param[1] else param[0])
def run(request, lib, python, analyze, tmp_path):
    """torch's timeline, and our rows: each change with its category, and with the sums after it."""
    model, least = request.param
    libraries = [lib.with_name('libtfinject-alloc.so')] * least + [lib]
    env = {**clean_environment(), 'LD_PRELOAD': ' '.join(map(str, libraries)), 'TFI_TENSOR_ADDRESSES': '1', 'TFI_ACTIVITIES': 'ops,mem',
           'TFI_HOST_ALLOC_KB': str(least), 'TFI_OUTPUT_DIR': str(tmp_path / 'run')}
    result = execute([python, '-W', 'ignore', '-c', LOOP, model], env, tmp_path)
    assert result.rc == 0 and 'tfinject:' not in result.err, result.err[-2000:]
    raw, sums = analyze('memory', '--layout', 'raw', tmp_path / 'run')['rows'], analyze('memory', tmp_path / 'run')['rows']
    assert len(raw) == len(sums)
    libc = [(r, s) for r, s in zip(raw, sums) if r['allocator'] == 'malloc']
    assert {r[k] for r, _ in libc for k in ('category', 'kind')} | {s['categories'] for _, s in libc} <= {None}
    tensors = {r['address'] for r in raw if r['allocator'] == 'c10'}
    assert (len({r['address'] for r, _ in libc} & tensors) > 20) == bool(least) == bool(libc)
    ours = [(int(r['address'], 0) & (1 << 64) - 1, r['bytes'], r['category'], s['categories'], s['allocated_bytes'])
            for r, s in zip(raw, sums) if r['allocator'] == 'c10']
    analyze('memory', '--layout', 'torch', '--output', tmp_path / 'ours.raw.json.gz', tmp_path / 'run', format=None)
    rows = json.loads(gzip.decompress((tmp_path / 'ours.raw.json.gz').read_bytes()))
    return json.loads((tmp_path / 'torch.json').read_text()), ours, rows


def test_each_block_and_all_sums(run):
    theirs, ours, rows = run
    found, seen = defaultdict(list), Counter()
    for i, (address, size, category, sums, allocated) in enumerate(ours):
        assert sum(sums.values()) == allocated and list(sums) == CATEGORIES
        found[address, size].append(i)
    sizes, compared = [0] * 8, Counter()
    for t, action, size, category, after, address in theirs:
        if action == INCREMENT:
            sizes[category] -= size
            sizes[after] += size
            continue
        signed = -size if action == DESTROY else size
        sizes[category] += signed
        if address is None or action not in (CREATE, DESTROY):
            continue
        places = found[address, signed]
        assert seen[address, signed] < len(places), 'a change that torch saw is missing'
        at = places[seen[address, signed]]
        seen[address, signed] += 1
        assert ours[at][2] == CATEGORIES[category], (address, signed)
        compared[ours[at][2]] += 1
        assert [ours[at][3][c] for c in CATEGORIES[:7]] == sizes[:7], (at, address, signed)
    assert set(compared) == set(CATEGORIES) and sum(compared.values()) > 150, compared
    moved = any(after != category for _, action, _, category, after, address in theirs if action == INCREMENT and address)
    check_torchs_rows(rows, ours, moved)


def check_torchs_rows(rows, ours, moves_expected):
    """--layout torch: the changes in order, what is older before them, and after each the sums of torch's file."""
    changes = [(size, CATEGORIES[category]) for _, action, size, category in rows if action in (CREATE, DESTROY)]
    assert changes == [(size, category) for _, size, category, _, _ in ours]
    times = [time for time, *_ in rows]
    assert times == sorted(times) and all((action == PREEXISTING) == (time == -1) for time, action, *_ in rows)
    moves = [row for row in rows if row[1] == INCREMENT]
    assert bool(moves) == moves_expected and all(a[0] == b[0] and a[2] == -b[2] < 0 for a, b in zip(moves[::2], moves[1::2]))
    sizes, at = [0] * 8, 0
    for _, action, size, category in rows:
        sizes[category] += size
        if action in (CREATE, DESTROY):
            assert [ours[at][3][c] for c in CATEGORIES[:7]] == sizes[:7], at
            at += 1


KINDS = '''
import json, torch, torch.distributed as dist
from torch._subclasses import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_tensor, Replicate
from torch.overrides import TorchFunctionMode

def parameter(data):
    made = torch.nn.Parameter(data)
    made.grad = data.clone()
    return made

class Counts(TorchFunctionMode):
    n = 0
    def __torch_function__(self, function, types, arguments=(), named=None):
        Counts.n += 1
        return function(*arguments, **(named or {}))

class Odd(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})
    def step(self):
        self.state[plain] = [1]

plain, last = parameter(torch.ones(3)), parameter(torch.ones(5))
with Counts():
    torch.optim.SGD([plain], lr=0.1).step()
Odd([plain]).step()
with FakeTensorMode():
    torch.optim.SGD([parameter(torch.ones(3))], lr=0.1).step()
dist.init_process_group('gloo', rank=0, world_size=1, store=dist.HashStore())
wrapped = parameter(distribute_tensor(torch.ones(4), init_device_mesh('cpu', (1,)), [Replicate()]))
torch.optim.Adam([wrapped, last], foreach=False).step()
print(json.dumps([Counts.n, wrapped.to_local().untyped_storage().data_ptr(), last.untyped_storage().data_ptr()]))
dist.destroy_process_group()
'''


def test_parameters_of_other_kinds(lib, python, forked, analyze, tmp_path):
    """The step of an optimizer with tensors that have no memory, or have it in their parts: the program notices nothing,
    and the memory of the others is recorded."""
    env = {**clean_environment(), 'LD_PRELOAD': str(lib), 'TFI_TENSOR_ADDRESSES': '1', 'TFI_OUTPUT_DIR': str(tmp_path / 'run')}
    alone = forked(['python', '-c', KINDS])
    result = execute([python, '-c', KINDS], env, tmp_path)
    assert (result.rc, alone.rc) == (0, 0) and result.err == alone.err, result.err[-2000:]
    counted, *addresses = json.loads(result.out)
    assert counted == json.loads(alone.out)[0] > 0
    rows = [r['values'] for r in analyze('dump', tmp_path / 'run')['rows'] if r['kind'] == 'tensors']
    blocks = {r['name']: [int(b, 16) for b in r['blocks'][::2]] for r in rows if r['role'] == 3}
    assert set(blocks) == {'SGD', 'Odd', 'Adam'} and blocks['Adam'] == addresses
    assert {r['name']: len(r['blocks']) for r in rows if r['role'] == 5}['exp_avg'] == 4
