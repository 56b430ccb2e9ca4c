"""trace_loaders - asks HTA and TensorBoard's plugin how many events they find in files.

The question is {"hta": [file], "tensorboard": [file]} on stdin. The answer has a count for each file, or the name of an
exception. It runs in its own process, because importing HTA changes the logging of the whole program.
"""

import json
import logging
import sys
import tempfile
import warnings


def in_hta(files):
    from hta.common.trace_parser import parse_trace_dataframe
    from hta.configs.parser_config import ParserConfig
    logging.disable(logging.CRITICAL)
    return [len(parse_trace_dataframe(f, ParserConfig.get_default_cfg())[1]) for f in files]


def in_hta_job(files):
    """The events that HTA keeps of each file, as a job of one rank with all its steps."""
    from hta.trace_analysis import TraceAnalysis
    logging.disable(logging.CRITICAL)
    return [len(TraceAnalysis(trace_files={0: f}, include_last_profiler_step=True).t.get_trace(0)) for f in files]


def in_tensorboard(files):
    from torch_tb_profiler.profiler.data import RunProfileData
    from torch_tb_profiler.profiler.run_generator import RunGenerator
    logging.disable(logging.CRITICAL)
    counts = []
    for f in files:
        with tempfile.TemporaryDirectory() as cache:
            data = RunProfileData.parse('worker', None, f, cache)
        counts.append(len(data.events))
        RunGenerator('worker', None, data).generate_run_profile()
    return counts


def operators(files):
    """For each file two counts of operators by name: HTA's and the plugin's."""
    from collections import Counter

    from hta.common.trace_parser import parse_trace_dataframe
    from hta.configs.parser_config import ParserConfig
    from torch_tb_profiler.profiler.data import RunProfileData
    logging.disable(logging.CRITICAL)
    found = []
    for f in files:
        _, table, symbols = parse_trace_dataframe(f, ParserConfig.get_default_cfg())
        names = symbols.get_sym_table()
        mine = table[table['cat'].map(lambda c: names[c] == 'cpu_op')]
        with tempfile.TemporaryDirectory() as cache:
            data = RunProfileData.parse('worker', None, f, cache)
        found.append([Counter(names[n] for n in mine['name']),
                      Counter(e.name for e in data.events if e.type == 'Operator')])
    return found


LOADERS = {'hta': in_hta, 'hta_job': in_hta_job, 'tensorboard': in_tensorboard, 'operators': operators}


def main():
    warnings.simplefilter('ignore')
    out, sys.stdout = sys.stdout, sys.stderr
    answer = {}
    for tool, files in json.load(sys.stdin).items():
        answer[tool] = []
        for f in files:
            try:
                answer[tool] += LOADERS[tool]([f])
            except Exception as e:
                answer[tool].append(f'{type(e).__name__}: {e}')
    json.dump(answer, out)


if __name__ == '__main__':
    main()
