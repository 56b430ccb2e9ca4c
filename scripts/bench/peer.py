"""peer - runs another tool on one trace in a separate process, for scripts/bench/kineto.

    peer.py hta TRACE            HTA reads the trace and answers the questions of timeline, breakdown and kinds,
                                       overlap, idle
    peer.py tensorboard TRACE    the TensorBoard plugin's parser reads the trace
    peer.py deflate DIRECTORY    zlib compresses the contents of the directory's STAGE_rankN.trace.json.gz again,
                                       at its default level; inflating them is not counted

It prints one JSON object: the wall and CPU seconds without Python's start and imports, and the number of events, rows or
bytes, so that a run that reads nothing does not pass for a fast one.
"""

import glob
import gzip
import json
import logging
import os
import sys
import time
import warnings
import zlib


def cpu_seconds():
    """Returns the CPU time of this process and of its finished children, which HTA may use to load."""
    return sum(os.times()[:4])


def hta(path):
    from hta.trace_analysis import TraceAnalysis
    cpu, clock = cpu_seconds(), [time.monotonic()]
    trace = TraceAnalysis(trace_files={0: path})
    clock.append(time.monotonic())
    temporal = trace.get_temporal_breakdown(visualize=False)
    clock.append(time.monotonic())
    kinds, kernels = trace.get_gpu_kernel_breakdown(visualize=False)
    clock.append(time.monotonic())
    overlap = trace.get_comm_comp_overlap(visualize=False)
    clock.append(time.monotonic())
    idle, _ = trace.get_idle_time_breakdown(visualize=False)
    clock.append(time.monotonic())
    took = dict(zip(('load', 'timeline', 'breakdown', 'overlap', 'idle'), (b - a for a, b in zip(clock, clock[1:]))))
    return {'seconds': clock[-1] - clock[0], 'cpu': cpu_seconds() - cpu, **took, 'kinds': took['breakdown'], 'events': len(trace.t.get_trace(0)),
            'rows': [len(temporal), len(kinds), len(kernels), len(overlap), len(idle)]}


def tensorboard(path):
    from torch_tb_profiler.profiler.data import RunProfileData
    start, cpu = time.monotonic(), cpu_seconds()
    profile = RunProfileData.parse('worker0', 1, path, None)
    return {'seconds': time.monotonic() - start, 'cpu': cpu_seconds() - cpu, 'events': len(profile.events)}


def deflate(directory):
    seconds = cpu = taken = packed = 0
    for path in sorted(glob.glob(f'{glob.escape(directory)}/*_rank*.trace.json.gz')):
        with gzip.open(path) as file:
            packer = zlib.compressobj()
            while piece := file.read(1 << 20):
                start, before = time.monotonic(), time.process_time()
                packed += len(packer.compress(piece))
                seconds, cpu = seconds + time.monotonic() - start, cpu + time.process_time() - before
                taken += len(piece)
            packed += len(packer.flush())
    if not taken:
        sys.exit(f'peer: {directory} has no trace of a stage')
    return {'seconds': seconds, 'cpu': cpu, 'bytes': taken, 'packed': packed}


def main():
    what, path = sys.argv[1:]
    logging.disable(logging.CRITICAL)
    warnings.simplefilter('ignore')
    json.dump({'hta': hta, 'tensorboard': tensorboard, 'deflate': deflate}[what](path), sys.stdout)


if __name__ == '__main__':
    main()
