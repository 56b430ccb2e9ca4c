"""common - what the parts of gpu-check share: running programs in the time left, variables, the analyser's answers."""

import glob
import json
import os
import re
import signal
import statistics
import subprocess
import sysconfig
import time
from types import SimpleNamespace

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = f'{ROOT}/build'
LIBRARY = f'{BUILD}/libtfinject.so'
TFANALYZE = f'{BUILD}/tfanalyze'
HERE = os.path.dirname(os.path.abspath(__file__))
SCRUBBED = re.compile(r'TFI_|ENABLE_PROFILER_NAMES$|TELEFUSER_|PROFILER_OUTPUT_DIR$|LD_PRELOAD$|(NVTX|CUDA)_INJECTION')

# How a program is run: the variables beside the library's, None for a run without it.
PLAIN, EVERYTHING, STAGES_ONLY = None, {}, {'ENABLE_PROFILER_NAMES': ''}


class TimeIsUp(Exception):
    """No time is left for what was to be run; what is done already is kept."""


class Deadline:
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return self.end - time.monotonic()

    def within(self, seconds):
        """At most that many, and no more than are left."""
        if self.left() < 3:
            raise TimeIsUp
        return min(seconds, self.left() - 1)


def find_cupti():
    """For a program that has no CUDA runtime beside which the library would find CUPTI: PyTorch's, or a toolkit's."""
    site = sysconfig.get_paths()['purelib']
    for pattern in (f'{site}/nvidia/cu1[23]/lib/libcupti.so.1[23]', f'{site}/nvidia/cuda_cupti/lib/libcupti.so.12',
                    '/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.1[23]', '/usr/local/cuda/lib64/libcupti.so.1[23]'):
        found = sorted(glob.glob(pattern))
        if found:
            return found[-1]
    return None


def environment(how, directory=None, more=None):
    env = {k: v for k, v in os.environ.items() if not SCRUBBED.match(k)}
    env.update(PYTHONDONTWRITEBYTECODE='1', PYTHONUNBUFFERED='1', **(more or {}))
    if how is not None:
        env.update(LD_PRELOAD=LIBRARY, TFI_OUTPUT_DIR=directory, **how)
    return env


def execute(command, env, seconds, cwd=None):
    """Runs it in a process group of its own, which does not outlive its time."""
    begin = time.monotonic()
    process = subprocess.Popen(command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, errors='replace', start_new_session=True)
    try:
        out, err = process.communicate(timeout=seconds)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        err += f'\ngpu-check: stopped after {seconds:.0f} s'
    return SimpleNamespace(rc=process.returncode, out=out, err=err, seconds=time.monotonic() - begin,
                           said=[line for line in err.splitlines() if line.startswith('tfinject:')])


def last_json(text):
    """The last line of a program's output, which is an object; None: there is none."""
    for line in reversed(text.splitlines()):
        if line.startswith('{'):
            return json.loads(line)
    return None


def tfanalyze(command, *arguments, seconds=120):
    """(answer, what it said on stderr); the answer is None where there is none."""
    result = execute([TFANALYZE, command, '--format', 'json', *arguments], environment(PLAIN), seconds)
    try:
        return json.loads(result.out), result.err.strip()
    except ValueError:
        return None, result.err.strip() or f'exit {result.rc}'


def tfanalyze_text(command, *arguments, seconds=120):
    """(what it printed, what it said on stderr)."""
    result = execute([TFANALYZE, command, *arguments], environment(PLAIN), seconds)
    return result.out, result.err.strip()


def trace_figures(directory):
    """Size, records and losses of a run directory."""
    traces = glob.glob(f'{directory}/*.tfr')
    figures = {'traces': len(traces), 'trace_bytes': sum(map(os.path.getsize, traces))}
    answer, error = tfanalyze('info', directory) if traces else (None, 'no trace was written')
    if answer is None:
        return {**figures, 'error': error}
    events = {}
    for row in answer['rows']:
        for kind, count in row['events'].items():
            events[kind] = events.get(kind, 0) + count
    lost = {cause: count for row in answer['rows'] for cause, count in (row['lost'] or {}).items()}
    return {**figures, 'records': sum(events.values()), 'events': events, 'lost': lost,
            'counted': {k: v for row in answer['rows'] for k, v in (row.get('counted') or {}).items()},
            'complete': all(row['complete'] for row in answer['rows']),
            'bytes_per_record': round(figures['trace_bytes'] / max(sum(events.values()), 1), 2),
            'own_cost_us': sum(row['own_cost_us'] or 0 for row in answer['rows']),
            'messages': [m for row in answer['rows'] for m in row['messages']][:20]}


def spread(values):
    """Median, least, greatest, and the range of the middle half."""
    if not values:
        return None
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return {'median': statistics.median(ordered), 'min': ordered[0], 'max': ordered[-1],
            'middle_half': [ordered[quarter], ordered[-1 - quarter]], 'n': len(ordered)}
