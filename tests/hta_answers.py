"""hta_answers - asks HTA itself: jobs as JSON on stdin ({name: [file, ...]}), its answers as JSON on stdout.

It runs in its own process, because importing HTA changes the logging of the whole program. An answer is a list of rows,
or the name of the exception that HTA raised; NaN becomes null.
"""

import json
import logging
import math
import sys
import tempfile
import warnings


def plain(value):
    if hasattr(value, 'item'):
        value = value.item()
    return None if isinstance(value, float) and math.isnan(value) else value


def keep_order():
    """Makes pandas keep the order of rows with equal keys. Its default order of such rows depends on the processor."""
    import pandas
    sort = pandas.DataFrame.sort_values
    pandas.DataFrame.sort_values = lambda *args, **more: sort(*args, **{'kind': 'stable', **more})


def records(frame):
    return frame if isinstance(frame, list) else frame.to_dict('records')


def of_ranks(job, ask):
    """The rows of a question that HTA answers for one rank at a time."""
    return [{'rank': rank, **row} for rank in sorted(job.t.traces) for row in records(ask(rank))]


def described(frame):
    """The rows of a frame that describe() made of one column; none for no frame."""
    if frame is None:
        return []
    frame = frame.copy()
    frame.columns = [name for _, name in frame.columns]
    return records(frame.reset_index())


def launches(job):
    """Sorted: HTA puts the rows of a trace with steps into another order."""
    rows = of_ranks(job, lambda rank: job.get_cuda_kernel_launch_stats([rank], visualize=False)[rank])
    return sorted(rows, key=lambda row: [row[key] for key in ('rank', 'correlation', 'cpu_duration', 'gpu_duration', 'launch_delay')])


def annotated(job):
    """Of each rank and annotation, "" outside of all, the number and the time of the rows that HTA puts in it."""
    rows = []
    for rank in sorted(job.t.traces):
        frame = job.get_gpu_kernels_with_user_annotations(rank, shortern_names=False)
        if frame is not None:
            sums = frame.groupby('s_user_annotation')['dur'].agg(['count', 'sum']).reset_index()
            rows += [{'rank': rank, **row} for row in records(sums)]
    return rows


def annotations(job, **whole):
    frame = job.get_gpu_user_annotation_breakdown(visualize=False, **whole)
    return [] if frame is None else frame


def counters(job):
    frames = job.get_cupti_counter_data_with_operators(sorted(job.t.traces))
    return [{key: value for key, value in row.items() if key in ('ts', 'dur', 'name', 'op_stack', 'top_level_op', 'bottom_level_op') or '_' in key}
            for frame in frames for row in records(frame)]


OPERATORS = ('aten::', 'aten::linear', 'forward', 'Optimizer', 'ProfilerStep', 'autograd')


def patterns(job):
    """The sequences of each of OPERATORS. HTA then writes a trace with the sequences in it; this leaves that out."""
    from hta.analyzers.cuda_kernel_analysis import CudaKernelAnalysis
    from hta.common.trace import Trace
    CudaKernelAnalysis._overlay_frequent_patterns_with_trace = classmethod(lambda *args, **more: {})
    Trace.write_raw_trace = lambda *args, **more: None
    return [{'rank': rank, 'operator': name, **row} for rank in sorted(job.t.traces) for name in OPERATORS
            for row in records(job.get_frequent_cuda_kernel_sequences(name, tempfile.gettempdir(), rank=rank, visualize=False))]


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
        'idle': lambda: of_ranks(job, lambda rank: job.get_idle_time_breakdown(ranks=[rank], visualize=False)[0]),
        'queue': lambda: of_ranks(job, lambda rank: described(job.get_queue_length_summary([rank]))),
        'annotated': lambda: annotated(job),
        'annotations': lambda: annotations(job, **whole),
        'counters': lambda: counters(job),
        'patterns': lambda: patterns(job),
        'blocked': lambda: job.get_time_spent_blocked_on_full_queue(job.get_queue_length_time_series(sorted(job.t.traces))),
        'bandwidth': lambda: of_ranks(job, lambda rank: described(job.get_memory_bw_summary([rank]))),
        'launches': lambda: launches(job),
    }
    given = {}
    for name, question in questions.items():
        try:
            given[name] = [{k: plain(v) for k, v in row.items()} for row in records(question())]
        except Exception as e:
            given[name] = type(e).__name__
    return given


def main():
    warnings.simplefilter('ignore')
    keep_order()
    out, sys.stdout = sys.stdout, sys.stderr
    json.dump({name: answers(files) for name, files in json.load(sys.stdin).items()}, out, allow_nan=False)


if __name__ == '__main__':
    main()
