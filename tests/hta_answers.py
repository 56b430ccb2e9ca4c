"""hta_answers - asks HTA itself: jobs as JSON on stdin ({name: [file, ...]}), its answers as JSON on stdout.

It runs in its own process, because importing HTA changes the logging of the whole program. An answer is a list of rows,
or the name of the exception that HTA raised; NaN becomes null.
"""

import json
import logging
import math
import sys
import warnings


def plain(value):
    if hasattr(value, 'item'):
        value = value.item()
    return None if isinstance(value, float) and math.isnan(value) else value


def answers(files):
    from hta.trace_analysis import TraceAnalysis
    logging.disable(logging.CRITICAL)
    whole = {'duration_ratio': 1.0, 'num_kernels': 10 ** 9}
    try:
        job = TraceAnalysis(trace_files=files)
    except Exception as e:
        return {'load': type(e).__name__}
    questions = {
        'temporal': lambda: job.get_temporal_breakdown(visualize=False),
        'kinds': lambda: job.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=True, **whole)[0],
        'kernels': lambda: job.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=True, **whole)[1],
        'folded': lambda: job.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=True)[1],
        'overlap': lambda: job.get_comm_comp_overlap(visualize=False),
    }
    given = {}
    for name, question in questions.items():
        try:
            given[name] = [{k: plain(v) for k, v in row.items()} for row in question().to_dict('records')]
        except Exception as e:
            given[name] = type(e).__name__
    return given


def main():
    warnings.simplefilter('ignore')
    out, sys.stdout = sys.stdout, sys.stderr
    json.dump({name: answers(files) for name, files in json.load(sys.stdin).items()}, out, allow_nan=False)


if __name__ == '__main__':
    main()
