"""pipeline - the PyTorch program that gpu-check runs plain, under the library, under torch.profiler and under both.

    pipeline.py --out DIRECTORY [--profile]

Each scene runs twice in a range of its own name: once to warm up and once inside the range `measured`. The program hashes
the bytes of the results, because the same work must give the same bytes under every profiler. A scene that cannot run here
reports the reason.
"""

import argparse
import contextlib
import hashlib
import json
import os
import shutil

import torch
import torch.nn.functional as F
from torch import nn

SCENES = ('elementwise', 'matmul', 'attention', 'convolution', 'graph', 'compiled', 'collectives', 'autograd')
SIMULATED = 'GPU_CHECK_SIMULATED' in os.environ  # no cuBLAS, cuDNN or NCCL, and kernels compute nothing


class NotHere(Exception):
    """Raised with the reason if a scene does not run on this machine."""


def random(device, *shape, dtype=torch.float32, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def elementwise(device):
    a, b = random(device, 512, 512), random(device, 512, 512, seed=2)
    return lambda: [torch.relu(a + b) * 0.5, torch.tanh(a).sum(0), torch.where(a > 0, a, b), a.to(torch.bfloat16)]


def matmul(device):
    a, b = random(device, 512, 512), random(device, 512, 512, seed=2)
    half = torch.bfloat16
    return lambda: [a @ b, a.to(half) @ b.to(half), torch.baddbmm(a[None], a[None], b[None]), F.softmax(a @ b.T, -1)]


def attention(device):
    dtype = torch.float16
    q, k, v = (random(device, 2, 8, 256, 64, dtype=dtype, seed=s) for s in (1, 2, 3))
    return lambda: [F.scaled_dot_product_attention(q, k, v), F.scaled_dot_product_attention(q, k, v, is_causal=True)]


def convolution(device):
    dtype = torch.float16
    x = random(device, 4, 64, 64, 64, dtype=dtype).to(memory_format=torch.channels_last)
    w = random(device, 128, 64, 3, 3, dtype=dtype, seed=2)
    norm = nn.GroupNorm(8, 128).to(device, dtype)

    def run():
        with torch.no_grad():
            y = F.silu(norm(F.conv2d(x, w, padding=1)))
            return [y, F.interpolate(y, scale_factor=2), F.conv2d(y, w.transpose(0, 1), padding=1, stride=2)]
    return run


def graph(device):
    x, w = random(device, 256, 256), random(device, 256, 256, seed=2) / 16

    def body():
        return torch.relu(x * w if SIMULATED else x @ w) + torch.tanh(x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        body()
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        out = body()

    def run():
        for _ in range(3):
            captured.replay()
        return [out.clone()]
    return run


def compiled(device):
    compiler = os.environ.get('CC') or next(filter(None, map(shutil.which, ('gcc', 'cc', 'clang'))), None)
    if not compiler:
        raise NotHere('torch.compile needs a C compiler, and this machine has none')
    x = random(device, 1024, 1024)
    function = torch.compile(lambda t: (F.gelu(t) * torch.sigmoid(t) + t.mean(-1, keepdim=True)).sum(0))
    return lambda: [function(x)]


def collectives(device):
    import torch.distributed as dist
    backend = 'nccl'
    if not dist.is_backend_available(backend):
        raise NotHere(f'this torch has no {backend}')
    if not dist.is_initialized():
        os.environ.setdefault('NCCL_SOCKET_IFNAME', 'lo')
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    x = random(device, 1 << 16)

    def run():
        total, gathered = x.clone(), torch.empty_like(x)
        dist.all_reduce(total)
        dist.all_gather([gathered], x)
        dist.broadcast(total, 0)
        return [total, gathered]
    return run


def autograd(device):
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 64)).to(device)
    x, target = random(device, 128, 256), random(device, 128, 64, seed=2)

    def run():
        model.zero_grad()
        loss = F.mse_loss(model(x), target)
        loss.backward()
        return [loss, *(p.grad for p in model.parameters())]
    return run


@contextlib.contextmanager
def stage(name):
    """Marks a stage for both profilers: with an NVTX range and a record_function."""
    with torch.profiler.record_function(name):
        torch.cuda.nvtx.range_push(name)
        try:
            yield
        finally:
            torch.cuda.nvtx.range_pop()


def digest(tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().contiguous().cpu().flatten().view(torch.uint8).numpy().tobytes())
    return h.hexdigest()


def profiler(options):
    if not options.profile:
        return contextlib.nullcontext()
    from torch.profiler import ProfilerActivity, profile
    return profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])


def prepare(device, results):
    """Returns {scene: function}; the results get the reason for each scene that cannot run."""
    scenes = {}
    for name in SCENES:
        try:
            if SIMULATED and name not in ('elementwise', 'graph'):
                raise NotHere('simulated: it needs NVIDIA libraries that do not run there')
            with stage(f'prepare {name}'):
                scenes[name] = globals()[name](device)
                scenes[name]()
        except NotHere as why:
            results[name] = {'not_run': str(why)}
        except Exception as error:  # the other scenes still run
            results[name] = {'failed': f'{type(error).__name__}: {str(error)[:500]}'}
            scenes.pop(name, None)
    torch.cuda.synchronize()
    return scenes


def main():
    parser = argparse.ArgumentParser(prog='pipeline')
    parser.add_argument('--out', required=True)
    parser.add_argument('--profile', action='store_true')
    options = parser.parse_args()
    device, results = 'cuda', {}
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    scenes, outputs = prepare(device, results), {}
    with profiler(options) as running:
        with stage('measured'):
            for name, run in scenes.items():
                with stage(name):
                    outputs[name] = run()
                    torch.cuda.synchronize()
    results.update({name: {'sha256': digest(tensors)} for name, tensors in outputs.items()})
    os.makedirs(options.out, exist_ok=True)
    if running is not None:
        running.export_chrome_trace(f'{options.out}/kineto.json')
    with open(f'{options.out}/outputs.json', 'w') as file:
        json.dump(results, file)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == '__main__':
    main()
