"""cachedit_profile - a pipeline with cache-dit's profiler: profile_function, ProfilerContext, and its arguments.

    python cachedit_profile.py [--profile [--profile-name N] [--profile-dir D] [--profile-activities CPU GPU MEM]
                               [--profile-wait N --profile-warmup N --profile-active N --profile-repeat N]]

Only --profile makes the context, as in cache-dit's examples; cache-dit itself refuses it without a device.
"""

import argparse

import torch

import journal
from cache_dit._utils.utils import create_profiler_from_args
from cache_dit.profiler import create_profiler_context, profile_function

STEPS = 6


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument('--profile', action='store_true')
    parser.add_argument('--profile-name')
    parser.add_argument('--profile-dir')
    parser.add_argument('--profile-activities', nargs='+', default=['CPU', 'GPU'], choices=['CPU', 'GPU', 'MEM'])
    parser.add_argument('--profile-with-stack', action='store_true')
    parser.add_argument('--profile-record-shapes', action='store_true', default=True)
    for name in ('wait', 'warmup', 'active', 'repeat'):
        parser.add_argument(f'--profile-{name}', type=int)
    return parser.parse_args()


class Pipeline:
    def __init__(self):
        torch.manual_seed(5)
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(3))

    def __call__(self, latents, steps):
        for step in range(steps):
            with torch.profiler.record_function('step'), journal.entry('step'):
                for block in self.blocks:
                    latents = latents + 0.01 * torch.relu(block(latents))
        return latents


def upscale(latents, factor=2):
    with journal.entry('upscale'):
        return latents.repeat_interleave(factor)


def main():
    torch.set_num_threads(1)
    args = arguments()
    pipeline = Pipeline()
    with torch.no_grad():
        if args.profile:
            profiler = create_profiler_from_args(args, profile_name=args.profile_name or 'toy_inference')
            with profiler, journal.entry(profiler.profile_name):
                latents = pipeline(torch.randn(4, 32), STEPS)
            print(f'traces: {profiler.output_dir}/{profiler.trace_path.name}')
            enlarge = profile_function(profile_name='upscale')(upscale)
            latents = enlarge(latents, factor=3)
            with create_profiler_context(enabled=False):
                pass
        else:
            latents = upscale(pipeline(torch.randn(4, 32), STEPS), factor=3)
    print(f'checksum {latents.double().sum().item():.9f}')


if __name__ == '__main__':
    main()
