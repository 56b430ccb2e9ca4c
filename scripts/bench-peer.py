"""bench-peer - runs another tool on one trace in a separate process, for bench-kineto.

    bench-peer.py hta TRACE            HTA reads the trace and answers the questions of timeline, breakdown, kinds, overlap
    bench-peer.py tensorboard TRACE    the TensorBoard plugin's parser reads the trace

It prints one JSON object: the seconds without Python's start and imports, and the number of events and rows, so that a
run that reads nothing does not pass for a fast one.
"""

import json
import logging
import sys
import time
import warnings


def hta(path):
    from hta.trace_analysis import TraceAnalysis
    clock = [time.monotonic()]
    trace = TraceAnalysis(trace_files={0: path})
    clock.append(time.monotonic())
    temporal = trace.get_temporal_breakdown(visualize=False)
    clock.append(time.monotonic())
    kinds, kernels = trace.get_gpu_kernel_breakdown(visualize=False)
    clock.append(time.monotonic())
    overlap = trace.get_comm_comp_overlap(visualize=False)
    clock.append(time.monotonic())
    took = dict(zip(('load', 'timeline', 'breakdown', 'overlap'), (b - a for a, b in zip(clock, clock[1:]))))
    return {'seconds': clock[-1] - clock[0], **took, 'kinds': took['breakdown'], 'events': len(trace.t.get_trace(0)),
            'rows': [len(temporal), len(kinds), len(kernels), len(overlap)]}


def tensorboard(path):
    from torch_tb_profiler.profiler.data import RunProfileData
    start = time.monotonic()
    profile = RunProfileData.parse('worker0', 1, path, None)
    return {'seconds': time.monotonic() - start, 'events': len(profile.events)}


def main():
    what, path = sys.argv[1:]
    logging.disable(logging.CRITICAL)
    warnings.simplefilter('ignore')
    json.dump({'hta': hta, 'tensorboard': tensorboard}[what](path), sys.stdout)


if __name__ == '__main__':
    main()
