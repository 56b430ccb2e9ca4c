"""torchfx_chain - a chain of torchfx filters, one by one and fused into one cascade, in stages of record_function.

If COUNTS names a file, the script counts the calls into torchfx's extension itself: {stage: {function: calls}}. It ends
with status 77 and a reason if the extension does not work with this torch.
"""

import json
import sys
import threading
from collections import Counter, defaultdict

import torch
import torchfx._ops
from torchfx import Wave
from torchfx.effect import Reverb
from torchfx.filter.biquad import BiquadHPF, BiquadLPF
from torchfx.filter.iir import HiButterworth, LoButterworth

import journal

DEPTHS = (2, 5, 10)
KINDS = {'butterworth': (lambda i: HiButterworth(200 * (i + 1), order=2), lambda i: LoButterworth(200 * (i + 1), order=2)),
         'biquad': (lambda i: BiquadHPF(200 * (i + 1), 0.7), lambda i: BiquadLPF(200 * (i + 1), 0.7))}
RATE = 48000
local = threading.local()


class stage:
    def __init__(self, name):
        self.name, self.range, self.entry = name, torch.profiler.record_function(name), journal.entry(name)

    def __enter__(self):
        self.range.__enter__(), self.entry.__enter__()
        local.stage = self.name

    def __exit__(self, *error):
        self.entry.__exit__(*error), self.range.__exit__(*error)
        local.stage = 'outside'


class Counting:
    """Wraps the extension inside torchfx's own module that calls it."""

    def __init__(self, extension, counts):
        self.extension, self.counts = extension, counts

    def __getattr__(self, name):
        function = getattr(self.extension, name)

        def counted(*args, **given):
            self.counts[local.stage][name] += 1
            return function(*args, **given)
        return counted


def filters(kind, depth):
    return [KINDS[kind][i % 2](i) for i in range(depth)]


def unfused(sound, kind, depth):
    with stage(f'unfused {kind} {depth}'):
        for one in filters(kind, depth):
            one.fs = RATE
            one.compute_coefficients()
            sound = one(sound)
    return sound


def fused(sound, kind, depth):
    with stage(f'fused {kind} {depth}'):
        chain = Wave(sound, RATE)
        for one in filters(kind, depth):
            chain = chain | one
        return chain.ys


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    local.stage = 'outside'
    counts, path = defaultdict(Counter), journal.path_of('COUNTS')
    sound = torch.randn(2, 4800, dtype=torch.float64)
    with torch.no_grad():
        try:
            (Wave(sound, RATE) | LoButterworth(1000, order=2)).ys
        except (ImportError, RuntimeError) as error:
            print('the extension of torchfx does not work with this torch:', str(error).splitlines()[0])
            return 77
        if path:  # from the first stage on; calls before it do not matter
            torchfx._ops._ext = Counting(torchfx._ops._ext, counts)
        for kind in KINDS:
            for depth in DEPTHS:
                one, other = unfused(sound, kind, depth), fused(sound, kind, depth)
                print(f'{kind} {depth} same {torch.allclose(one, other)} checksum {other.sum().item():.6f}')
        with stage('effect'):
            for _ in range(3):
                loud = (Wave(sound, RATE) | Reverb()).ys
        low = (Wave(loud, RATE) | LoButterworth(500, order=4)).ys  # in no stage
        print(f'reverb {loud.sum().item():.6f} {low.sum().item():.6f}')

    def on_a_thread(depth):
        with torch.no_grad():
            fused(sound, 'butterworth', depth)
            unfused(sound, 'butterworth', depth)
    threads = [threading.Thread(target=on_a_thread, args=(depth,)) for depth in (3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if path:
        with open(path, 'w') as out:
            json.dump(counts, out)
    return 0


if __name__ == '__main__':
    sys.exit(main())
