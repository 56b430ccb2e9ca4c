"""clean - pipelines without a fault: clean.py NAME COUNT. Each prints the seconds of its work.

Their work is native code that needs no lock of the interpreter, or products of matrices. Nothing is to be made better, so
`tfanalyze advise` has nothing above a note.
"""

import hashlib
import os
import queue
import sys
import threading
import time

COUNT = int(sys.argv[2])


def numpy_work():
    import numpy as np
    rows = np.random.default_rng(0).random(2_000_000)
    for _ in range(COUNT):
        np.sort(rows)


def hashing():
    block, digest = bytes(32 << 20), hashlib.sha256()
    for _ in range(COUNT):
        digest.update(block)


def read_ahead():
    """A thread reads the next blocks while this one works on the last one."""
    blocks = queue.Queue(2)
    with open('blocks.bin', 'wb') as file:
        os.truncate(file.fileno(), COUNT << 20)

    def read():
        with open('blocks.bin', 'rb') as file:
            while block := file.read(1 << 20):
                blocks.put(block)
        blocks.put(None)
    reader = threading.Thread(target=read)
    reader.start()
    while block := blocks.get():
        for _ in range(32):
            hashlib.sha256(block)
    reader.join()


def gelu():
    import torch
    torch.set_num_threads(1)
    torch.manual_seed(0)
    first, second, x = torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 256), torch.randn(1024, 256)
    with torch.inference_mode():
        for _ in range(COUNT):
            second(torch.nn.functional.gelu(first(x)))


started = time.perf_counter()
globals()[sys.argv[1]]()
print(f'{time.perf_counter() - started:.4f}')
