"""torchfx_chain - a chain of torchfx filters, each on its own and fused into one cascade, in stages of record_function.

Ends with status 77 and the reason where torchfx's native extension does not work with this torch.
"""

import sys

import torch
from torchfx import Wave
from torchfx.filter.iir import HiButterworth, LoButterworth

import journal

DEPTHS = (2, 5)


def filters(depth):
    return [(LoButterworth if i % 2 else HiButterworth)(200 * (i + 1), order=2) for i in range(depth)]


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    sound = torch.randn(2, 4800, dtype=torch.float64)
    with torch.no_grad():
        try:
            (Wave(sound, 48000) | LoButterworth(1000, order=2)).ys
        except (ImportError, RuntimeError) as error:
            print('the extension of torchfx does not work with this torch:', str(error).splitlines()[0])
            return 77
        for depth in DEPTHS:
            with torch.profiler.record_function(f'unfused {depth}'), journal.entry(f'unfused {depth}'):
                single = sound
                for one in filters(depth):
                    one.fs = 48000
                    one.compute_coefficients()
                    single = one(single)
            with torch.profiler.record_function(f'fused {depth}'), journal.entry(f'fused {depth}'):
                chain = Wave(sound, 48000)
                for one in filters(depth):
                    chain = chain | one
                fused = chain.ys
            print(f'depth {depth} same {torch.allclose(single, fused)} checksum {fused.double().abs().sum().item():.6f}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
