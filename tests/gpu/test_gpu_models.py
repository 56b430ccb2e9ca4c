"""test_gpu_models - a small transformer on the simulated GPU, trained eagerly and compiled, beside torch.profiler.

cuBLAS is a stand-in (tests/simgpu/blas.c), so that layers run whose products the vendor's library would compute. The
device model's log has all work; the sessions of torch.profiler have theirs. Both are compared with our records by
correlation id.
"""

import json
from collections import Counter
from types import SimpleNamespace

import pytest

import scripted
from conftest import AT_REST, BUILD, built
from scripted import drops

GPU = BUILD / 'simgpu'
KINDS = {'kernel': 'kernel', 'copy': 'memcpy', 'set': 'memset'}  # {kind of our records: kind in the log}
CATEGORIES = {'kernel': 'kernel', 'gpu_memcpy': 'copy', 'gpu_memset': 'set'}
MODEL = """
import torch, torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.before, self.after = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.before(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.after(x))))


def session():
    return profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])


torch.manual_seed(0)
"""
EAGER = MODEL + """
model = nn.Sequential(nn.Embedding(100, 64), *[Block(64, 4) for _ in range(2)], nn.LayerNorm(64), nn.Linear(64, 100)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
words = torch.zeros(2, 32, dtype=torch.long, device='cuda')


def step():
    with record_function('forward'):
        loss = F.cross_entropy(model(words).view(-1, 100), words.view(-1))
    with record_function('backward'):
        loss.backward()
    with record_function('optimizer'):
        optimizer.step(), optimizer.zero_grad()


step()
torch.cuda.synchronize()
for n in range(2):
    with session() as p:
        step(), step()
        torch.cuda.synchronize()
    p.export_chrome_trace(f'session{n}.json')
step()
torch.cuda.synchronize()
""" + AT_REST
COMPILED = MODEL + """
import torch._inductor.config as config
config.compile_threads, config.triton.cudagraphs, config.fx_graph_cache = 1, True, False
model = Block(64, 4).cuda()
compiled = torch.compile(model, dynamic=False)
x = torch.ones(2, 32, 64, device='cuda')
with torch.no_grad():
    for _ in range(3):
        with record_function('warm'):
            compiled(x)
    torch.cuda.synchronize()
    with session() as p:
        for _ in range(3):
            with record_function('replayed'):
                compiled(x)
        torch.cuda.synchronize()
    p.export_chrome_trace('session0.json')
""" + AT_REST


@pytest.fixture(scope='module')
def play(tmp_path_factory, python, lib):
    """play(source) -> the log, the sessions' device work, our trace; each program runs once."""
    from conftest import clean_environment, execute
    made = {}

    def play(name, source, sessions):
        if name in made:
            return made[name]
        directory = tmp_path_factory.mktemp(name)
        (directory / 'model.py').write_text(source)
        libraries = [lib, *(built(GPU / n) for n in ('libcudart.so.13', 'libcupti.so.13', 'libsimblas.so'))]
        env = {**clean_environment(), 'LD_LIBRARY_PATH': str(GPU), 'SIMGPU_LOG': str(directory / 'log-%p'), 'KINETO_LOG_LEVEL': '5',
               'TFI_OUTPUT_DIR': str(directory / 'run'), 'LD_PRELOAD': ':'.join(map(str, libraries)), 'SIMGPU_DEVICES': '1',
               'TORCHINDUCTOR_CACHE_DIR': str(directory / 'inductor'), 'TRITON_CACHE_DIR': str(directory / 'triton')}
        result = execute([python, '-W', 'ignore', 'model.py'], env, directory, 400)
        assert result.rc == 0, result.err[-3000:]
        trace = max(scripted.traces(directory / 'run'), key=lambda t: len(t.records))
        log, = [lines for lines in ([json.loads(line) for line in p.read_text().splitlines()] for p in directory.glob('log-*'))
                if any(x['t'] == 'kernel' for x in lines)]
        found = []
        for n in range(sessions):
            events = json.loads((directory / f'session{n}.json').read_text())['traceEvents']
            found.append(Counter((CATEGORIES[e['cat']], e['args']['correlation']) for e in events if e.get('cat') in CATEGORIES))
        made[name] = SimpleNamespace(trace=trace, log=log, sessions=found)
        return made[name]
    return play


def ours(trace):
    return Counter((r.kind, r.values['correlation']) for r in trace.records if r.kind in KINDS)


def kernels(trace):
    return Counter(scripted.text(trace, r.values['name']) for r in trace.records if r.kind == 'kernel')


def assert_equal(got):
    """All work of the log is ours, and each session of torch.profiler has the same work under the same ids."""
    logged = Counter((kind, w['correlation']) for kind, name in KINDS.items() for w in got.log if w['t'] == name)
    assert ours(got.trace) == logged
    assert kernels(got.trace) == Counter(w['name'] for w in got.log if w['t'] == 'kernel')
    for session in got.sessions:
        assert session and not session - logged
        first, last = min(i for _, i in session), max(i for _, i in session)
        assert session == Counter({key: n for key, n in ours(got.trace).items() if first <= key[1] <= last})
    lost = drops(got.trace)
    assert lost.pop('device_timeless', 0) <= len(got.sessions) and not lost  # overheads with times of two clocks


@pytest.mark.slow
def test_training(play):
    got = play('eager', EAGER, 2)
    assert_equal(got)
    names = kernels(got.trace)
    assert sum(n for name, n in names.items() if name.startswith('simblas_')) >= 6 * (2 * 4 + 1) * 3
    assert sum(map(len, got.sessions)) > 300


@pytest.mark.soak
def test_compiled(play):
    """Graphs of Inductor, which Triton's kernels and products of cuBLAS are captured in, are replayed in the session."""
    got = play('compiled', COMPILED, 1)
    assert_equal(got)
    names = kernels(got.trace)
    assert any(name.startswith('triton_') for name in names) and any(name.startswith('simblas_') for name in names)
    assert len({r.values['node'] for r in got.trace.records if r.kind == 'kernel' and r.values['node']}) > 5
