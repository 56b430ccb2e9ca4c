"""faults - small pipelines on the CPU, each with one fault that can be planted: faults.py NAME bad|good.

Each prints the seconds of its work. The names are those of the rules of `tfanalyze advise` that see the fault. `bad` and
`good` do the same useful work.
"""

import asyncio
import os
import sys
import time

import numpy as np

import torch
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(0)
BAD = sys.argv[2] == 'bad'


class Mlp(torch.nn.Sequential):
    def __init__(self, width=256, depth=4):
        super().__init__(*[torch.nn.Linear(width, width) for _ in range(depth)])


def python_loop():
    scores, total = torch.rand(100, 400), 0.0
    for row in scores:
        total += sum(v.item() for v in row if v > 0.5) if BAD else row[row > 0.5].sum().item()
    work(200)
    return total


def work(times, width=256):
    model, x = Mlp(width), torch.randn(64, width)
    with torch.inference_mode():
        for _ in range(times):
            x = torch.tanh(model(x))
    return x


def float64():
    x = torch.from_numpy(np.random.default_rng(0).random((256, 512)).astype('float64' if BAD else 'float32'))
    model = Mlp(512).to(x.dtype)
    with torch.inference_mode():
        for _ in range(60):
            model(x)


def dtype_conversions():
    model, x = Mlp(512), torch.randn(512, 512)
    big = torch.randn(2048, 2048)
    with torch.inference_mode():
        for _ in range(40):
            y = big.half().float() if BAD else big
            y = y[:512, :512].contiguous()
            model(x + y)


def unfused_attention():
    q, k, v = (torch.randn(4, 8, 512, 32) for _ in range(3))
    model = Mlp(256)
    with torch.inference_mode():
        for _ in range(12):
            if BAD:
                scores = q @ k.transpose(-1, -2) / 32 ** 0.5
                y = torch.softmax(scores, -1) @ v
            else:
                y = F.scaled_dot_product_attention(q, k, v)
            model(y.transpose(1, 2).reshape(4, 512, 256))


def layout_copies():
    blocks = [torch.nn.Conv2d(32, 32, 3, padding=1) for _ in range(4)]
    x = torch.randn(4, 32, 96, 96)
    with torch.inference_mode():
        for _ in range(8):
            for block in blocks:
                y = block(x)
                if BAD:
                    y = y.permute(0, 2, 3, 1).contiguous().clone()
                    y = y.permute(0, 3, 1, 2).contiguous().clone()
                x = torch.relu(y)


def unfused_elementwise():
    x, model = torch.randn(1024, 1024), Mlp(512)
    h = torch.randn(256, 512)
    with torch.inference_mode():
        for _ in range(40):
            if BAD:
                y = x * 0.5 * (1 + torch.tanh(0.79788 * (x + 0.044715 * x * x * x)))
            else:
                y = F.gelu(x[:256], approximate='tanh')
            model(h)
    return y


def needless_autograd():
    from contextlib import nullcontext
    model, x = Mlp(256, 8).eval(), torch.randn(64, 256)
    with nullcontext() if BAD else torch.inference_mode():
        for _ in range(150):
            model(x)


def kept_memory():
    from torch.profiler import record_function
    model, kept = Mlp(256), []
    for _ in range(40):
        with record_function('encode'), torch.inference_mode():
            y = model(torch.randn(2048, 256))
            kept.append(y if BAD else y.mean().item())
    work(100)


class Samples(torch.utils.data.Dataset):
    def __init__(self, slow):
        self.slow = slow

    def __len__(self):
        return 64

    def __getitem__(self, i):
        if self.slow == 'all':
            sum(k * k for k in range(30_000))
        if self.slow == 'one' and i == 37:
            sum(k * k for k in range(8_000_000))
        return torch.full((1024,), float(i))


def data_loader():
    for batch in torch.utils.data.DataLoader(Samples('all' if BAD else 'none'), batch_size=8):
        work(12)


def slow_batch():
    for batch in torch.utils.data.DataLoader(Samples('one' if BAD else 'none'), batch_size=4, num_workers=1):
        work(10)


def recompilations():
    @torch.compile(backend='eager', dynamic=False)
    def scaled(x, n):
        return torch.tanh(x * n)
    for i in range(6):
        scaled(torch.randn(8, 64 + (i if BAD else 0)), 2)
    work(300)


def graph_breaks():
    @torch.compile(backend='eager')
    def scaled(x):
        x = x * 2
        if BAD:
            print('half way')
        return torch.tanh(x)
    for _ in range(5):
        scaled(torch.randn(8, 64))
    work(300)


def too_many_threads():
    torch.set_num_threads(32 if BAD else len(os.sched_getaffinity(0)))
    model, x = Mlp(256), torch.randn(256, 256)
    with torch.inference_mode():
        for _ in range(400):
            x = torch.tanh(model(x))


def small_writes():
    with open('lines.txt', 'w') as file:
        for i in range(40_000):
            file.write(f'{i}\n')
            if BAD:
                file.flush()
    work(60)


def small_reads():
    with open('bytes.bin', 'wb') as file:
        file.write(bytes(6_000_000))
    with open('bytes.bin', 'rb', buffering=0 if BAD else 1 << 16) as file:
        while file.read(64):
            pass
    work(60)


def repeated_reads():
    with open('table.csv', 'w') as file:
        file.writelines(f'{i},{i * i}\n' for i in range(150_000))
    table = None
    for i in range(20):
        if BAD or not table:
            with open('table.csv') as file:
                table = file.read().split('\n')
        work(5)


def file_waits():
    with open('rows.bin', 'wb', buffering=0) as file:
        for i in range(800 if BAD else 1):
            file.write(bytes(65536))
            if BAD:
                os.fsync(file.fileno())
    work(60)


def unfused_filters():
    from torchfx import Wave
    from torchfx.filter.iir import HiButterworth, LoButterworth
    sound = torch.randn(2, 4800)
    filters = [(HiButterworth if i % 2 else LoButterworth)(200 * (i + 1), order=2) for i in range(10)]
    for one in filters:
        one.fs = 48000
        one.compute_coefficients()
    with torch.no_grad():
        try:
            filters[0](sound)
        except (ImportError, RuntimeError) as error:
            print('the extension of torchfx does not work with this torch:', str(error).splitlines()[0])
            sys.exit(77)
        for _ in range(300):
            if BAD:
                out = sound
                for one in filters:
                    out = one(out)
            else:
                wave = Wave(sound, 48000)
                for one in filters:
                    wave = wave | one
                wave.ys


def blocked_loop():
    async def serve(i):
        if BAD:
            time.sleep(0.05)
        else:
            await asyncio.to_thread(time.sleep, 0.05)
        return i

    async def serve_all():
        return await asyncio.gather(*[serve(i) for i in range(20)])
    asyncio.run(serve_all())
    work(300)


def python_code():
    def parse(lines):
        return sum(len(line.split(',')) for line in lines)
    lines = ['a,b,c,d'] * 100_000
    for _ in range(20 if BAD else 1):
        parse(lines)
    work(300)


def waiting_call():
    for _ in range(10):
        time.sleep(0.1 if BAD else 0.001)
        work(30)


def repeated_part():
    from torch.profiler import record_function

    def decode(x):
        with record_function('vae.decode'):
            return work(20)
    for _ in range(3):
        with record_function('Pipeline'):
            for step in range(8):
                with record_function('denoise'):
                    x = work(30)
                if BAD:
                    decode(x)
            decode(x)


def first_call():
    from torch.profiler import record_function
    for i in range(8):
        with record_function('forward'):
            work(300 if BAD and not i else 10)


work(1)  # recording begins with the first operator
started = time.perf_counter()
globals()[sys.argv[1].replace('-', '_')]()
print(f'{time.perf_counter() - started:.4f}')
