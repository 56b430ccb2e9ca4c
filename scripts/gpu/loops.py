"""loops - a process that runs loops on request, so that several processes can be measured in turn, pair by pair.

    loops.py [--profile]

Reads lines from stdin and answers each with a line of JSON: `run LOOP N` runs N rounds of launch-bound, transformer,
training or graph-replay and gives its time; `export PATH` writes torch.profiler's last trace; `quit` ends the process. With
--profile, torch.profiler records each run: the time is that of the loop alone, and the profiler's start and stop are separate
figures. With GPU_CHECK_SIMULATED only torch's own kernels run, because the simulated GPU has no cuBLAS.
"""

import json
import os
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

SMALL = 'GPU_CHECK_SIMULATED' in os.environ
DEVICE = 'cuda'
GRAPH_NODES = 500
range_push, range_pop = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop


def launch_bound():
    """Makes a hundred launches of tiny kernels per round, so that the host takes all of the time."""
    x = torch.zeros(64, device=DEVICE)

    def one():
        for _ in range(100):
            x.add_(1)
    return one


class Block(nn.Module):
    """A block of a diffusion transformer: attention and a wide layer, shifted and scaled by the time embedding."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.modulation = nn.Linear(width, 4 * width)

    def forward(self, x, when):
        shift1, scale1, shift2, scale2 = self.modulation(F.silu(when))[:, None].chunk(4, -1)
        batch, tokens, width = x.shape
        y = self.norm1(x) * (1 + scale1) + shift1
        q, k, v = self.qkv(y).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, width)
        x = x + self.out(y)
        y = self.norm2(x) * (1 + scale2) + shift2
        return x + self.down(F.gelu(self.up(y), approximate='tanh'))


def graph_replay():
    """Launches a graph of 500 tiny kernels."""
    x = torch.zeros(64, device=DEVICE)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x.add_(1)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(GRAPH_NODES):
            x.add_(1)
    return graph.replay


def elementwise_step(backward):
    """Replaces the two steps below without cuBLAS: as many launches, and a loss."""
    w, x = torch.ones(64, 64, device=DEVICE, requires_grad=backward), torch.ones(64, device=DEVICE)

    def one():
        range_push('step')
        y = w
        for _ in range(10):
            y = torch.relu(y * x)
        if backward:
            y.sum().backward()
        range_pop()
    return one


def transformer():
    """Runs a step of denoising: twelve blocks of width 1152 on 2 times 1024 tokens, and the update of the latents."""
    if SMALL:
        return elementwise_step(False)
    width, heads, tokens, depth, dtype = 1152, 16, 1024, 12, torch.bfloat16
    blocks = [Block(width, heads).to(DEVICE, dtype).eval() for _ in range(depth)]
    latents = torch.randn(2, tokens, width, device=DEVICE, dtype=dtype)
    when = torch.randn(2, width, device=DEVICE, dtype=dtype)

    def one():
        with torch.inference_mode():
            range_push('step')
            noise = latents
            for block in blocks:
                noise = block(noise, when)
            latents.mul_(0.9).add_(noise, alpha=1e-4)
            range_pop()
    return one


def training():
    """Runs a step of training: four encoder layers of width 512, loss, backward, AdamW."""
    if SMALL:
        return elementwise_step(True)
    width, tokens, depth, batch = 512, 128, 4, 16
    layers = (nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0, batch_first=True) for _ in range(depth))
    model = nn.Sequential(*layers).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x, target = (torch.randn(batch, tokens, width, device=DEVICE) for _ in range(2))

    def one():
        range_push('forward')
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), target)
        range_pop()
        range_push('backward')
        loss.backward()
        range_pop()
        range_push('optimizer')
        optimizer.step()
        range_pop()
    return one


def timed(one, rounds):
    torch.cuda.synchronize()
    range_push('loop')
    wall, thread, process = time.perf_counter(), time.thread_time(), time.process_time()
    for _ in range(rounds):
        one()
    torch.cuda.synchronize()
    figures = {'seconds': time.perf_counter() - wall, 'thread_cpu_seconds': time.thread_time() - thread,
               'process_cpu_seconds': time.process_time() - process}
    range_pop()
    return figures


def profiled(one, rounds):
    from torch.profiler import ProfilerActivity, profile
    recorder = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
    begin = time.perf_counter()
    recorder.start()
    one()
    started = time.perf_counter()
    figures = timed(one, rounds)
    stopping = time.perf_counter()
    recorder.stop()
    return {**figures, 'start_seconds': started - begin, 'stop_seconds': time.perf_counter() - stopping}, recorder


LOOPS = {'launch-bound': launch_bound, 'transformer': transformer, 'training': training, 'graph-replay': graph_replay}


def main():
    ready, recorder = {}, None
    torch.zeros(1, device=DEVICE).cpu()
    print(json.dumps({'ready': True}), flush=True)
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == 'run' and arguments[0] not in ready:
            ready[arguments[0]] = LOOPS[arguments[0]]()
            timed(ready[arguments[0]], 5)
        if command == 'run' and '--profile' in sys.argv:
            answer, recorder = profiled(ready[arguments[0]], int(arguments[1]))
        elif command == 'run':
            answer = timed(ready[arguments[0]], int(arguments[1]))
        elif command == 'export':
            recorder.export_chrome_trace(arguments[0])
            answer = {'bytes': os.path.getsize(arguments[0])}
        else:
            break
        print(json.dumps(answer), flush=True)


if __name__ == '__main__':
    main()
