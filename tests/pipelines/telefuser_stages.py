"""telefuser_stages - a pipeline of TeleFuser's stages: plain, nested, in a class, async, and by `with`.

Under torchrun every rank denoises alone, and the ranks add up their results. With `all` it also uses ProfilingContext,
which TeleFuser itself refuses without a device.
"""

import asyncio
import os
import sys

import torch
from telefuser.utils.logging import logger
from telefuser.utils.profiler import (ProfilingContext, ProfilingContext4Debug, get_timing_report, print_timing_summary,
                                      reset_timing_registry, set_timing_metadata)

import at_rest
import journal

STEPS = 4


class TextEncoder:
    def __init__(self):
        self.table = torch.nn.Embedding(32, 16)

    @ProfilingContext4Debug('text encoding')
    def process(self, words, scale=1.0):
        with journal.entry('text encoding'):
            return self.table(words) * scale


class Denoiser(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 16)

    @ProfilingContext4Debug('denoise', reset_peak_memory=True)
    @torch.no_grad()
    def process(self, latents, context, steps):
        with journal.entry('denoise'):
            for step in range(steps):
                latents = latents - 0.1 * self.predict(latents, context, step=step)
            return latents

    @ProfilingContext4Debug('predict')
    def predict(self, latents, context, *, step):
        with journal.entry('predict'):
            return torch.tanh(self.layer(latents + context.mean(0))) * (step + 1)


@ProfilingContext4Debug('decode')
def decode(latents):
    with journal.entry('decode'):
        return latents.sigmoid()


@ProfilingContext4Debug('fetch')
async def fetch(number):
    with journal.entry('fetch'):
        await asyncio.sleep(0.01 * (3 - number))
        with ProfilingContext4Debug('parse'), journal.entry('parse'):
            value = torch.full((16,), float(number))
        await asyncio.sleep(0.01)
        return value


@ProfilingContext4Debug('never')
async def never():
    with journal.entry('never'):
        await asyncio.sleep(60)


@ProfilingContext4Debug('broken')
def broken():
    with journal.entry('broken'):
        raise ValueError('as it should')


def refine(picture):
    @ProfilingContext('refine', capture_memory=True)
    def once(picture, times):
        with journal.entry('refine'):
            return picture.clamp(0.1, 0.9) if not times else once(picture, times - 1)

    with ProfilingContext('blend', reset_peak_memory=False), journal.entry('blend'):
        return once(picture, 2).mean(0)


async def gather():
    async with ProfilingContext4Debug('gather'):
        with journal.entry('gather'):
            values = await asyncio.gather(*(fetch(n) for n in range(3)))
    cancelled = asyncio.create_task(never())
    await asyncio.sleep(0)
    cancelled.cancel()
    try:
        await cancelled
    except asyncio.CancelledError:
        return torch.stack(values)


def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    ranks = 'RANK' in os.environ
    if ranks:
        torch.distributed.init_process_group('gloo')
    reset_timing_registry('request')
    set_timing_metadata('width', 16)
    context = TextEncoder().process(torch.arange(8), scale=0.5)
    latents = asyncio.run(gather())
    if ranks:
        latents = latents * (torch.distributed.get_rank() + 1)
    latents = Denoiser().process(latents, context, steps=STEPS)
    picture = decode(latents)
    problem = None
    try:
        broken()
    except ValueError as error:
        problem = error
    if 'all' in sys.argv:
        picture = refine(picture)
    total = picture.double().sum()
    if ranks:
        torch.distributed.all_reduce(total)
        torch.distributed.destroy_process_group()
    report = get_timing_report()
    print_timing_summary()
    logger.complete()  # it writes to the same stream from its own thread
    print(f"results: request {report['request_id']}, metadata {report['metadata']}, stages {sorted(report['stages'])}\n"
          f'{problem!r}, {decode.__name__} {fetch.__name__} {asyncio.iscoroutinefunction(fetch)} {total.item():.9f}')
    if ranks:
        at_rest.wait_for_threads()


if __name__ == '__main__':
    main()
