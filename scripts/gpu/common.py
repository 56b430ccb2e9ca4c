"""common - functions shared by the parts of gpu-check: runs programs in the time left, sets variables, calls tfanalyze."""

import ctypes
import glob
import json
import os
import re
import shutil
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
DIFFUSION = f'{BUILD}/demo/diffusion'
RAW = f'{BUILD}/gpu/libcupti_raw.so'
SIMGPU = f'{BUILD}/simgpu'
HERE = os.path.dirname(os.path.abspath(__file__))
SCRUBBED = re.compile(r'TFI_|ENABLE_PROFILER_NAMES$|TELEFUSER_|PROFILER_OUTPUT_DIR$|LD_PRELOAD$|(NVTX|CUDA)_INJECTION')

LIBC = ctypes.CDLL(None)

# Ways to run a program: the additional variables, or None for a run without the library.
PLAIN, EVERYTHING, STAGES_ONLY = None, {}, {'ENABLE_PROFILER_NAMES': ''}
STAGES_WITHOUT_SUMS = {**STAGES_ONLY, 'TFI_ACTIVITIES': 'cpu,mem,nccl,ops'}  # nothing is asked of CUPTI
GRAPHS_WHOLE = {'TFI_GRAPHS': 'graph'}


class TimeIsUp(Exception):
    """Raised if no time is left for the next program; finished work is kept."""


class Deadline:
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return self.end - time.monotonic()

    def within(self, seconds):
        """Returns that many seconds, or fewer if fewer are left."""
        if self.left() < 3:
            raise TimeIsUp
        return min(seconds, self.left() - 1)


def find_cupti():
    """Returns the CUPTI of PyTorch or of a toolkit, for a program without a CUDA runtime next to it."""
    site = sysconfig.get_paths()['purelib']
    for pattern in (f'{site}/nvidia/cu1[23]/lib/libcupti.so.1[23]', f'{site}/nvidia/cuda_cupti/lib/libcupti.so.12',
                    '/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.1[23]', '/usr/local/cuda/lib64/libcupti.so.1[23]'):
        found = sorted(glob.glob(pattern))
        if found:
            return found[-1]
    return None


def environment(how, directory=None, more=None, preload=()):
    """Returns the variables of a program; `preload` lists libraries that it needs in every case."""
    env = {k: v for k, v in os.environ.items() if not SCRUBBED.match(k)}
    env.update(PYTHONDONTWRITEBYTECODE='1', PYTHONUNBUFFERED='1', **(more or {}))
    if how is not None:
        env.update(TFI_OUTPUT_DIR=directory, **how)
    libraries = [LIBRARY] * (how is not None) + list(preload)
    return {**env, 'LD_PRELOAD': ':'.join(libraries)} if libraries else env


def die_with_parent():
    """Runs between fork and exec: no program outlives a killed gpu-check."""
    LIBC.prctl(1, signal.SIGKILL)


def execute(command, env, seconds, cwd=None):
    """Runs a command in its own process group and kills the group when its time is up; `.stopped` is then true."""
    begin, stopped = time.monotonic(), False
    process = subprocess.Popen(command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, errors='replace', start_new_session=True,
                               preexec_fn=die_with_parent)
    try:
        out, err = process.communicate(timeout=seconds)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        stopped = True
        err += f'\ngpu-check: stopped after {seconds:.0f} s'
    return SimpleNamespace(rc=process.returncode, out=out, err=err, seconds=time.monotonic() - begin, stopped=stopped,
                           said=[line for line in err.splitlines() if line.startswith('tfinject:')])


class Run:
    """Input of the parts: the kind of device, the Python with torch, the work directory, the time left."""

    def __init__(self, device, python, work, deadline):
        self.device, self.python, self.work, self.deadline = device, python, work, deadline

    @property
    def simulated(self):
        return self.device == 'simulated'

    def directory(self, name):
        path = f'{self.work}/{name}'
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        return path

    def execute(self, command, env, seconds, cwd=None):
        """Runs a program; raises TimeIsUp if time was up before these seconds, because such a run proves nothing."""
        result = execute(command, env, self.deadline.within(seconds), cwd)
        if result.stopped and self.deadline.left() < 3:
            raise TimeIsUp
        return result

    def c_environment(self, how, directory=None, more=None):
        """Returns variables for a program of the driver API: the simulated libraries, or the CUPTI to load."""
        more = dict(more or {})
        if self.simulated:
            more['LD_LIBRARY_PATH'] = SIMGPU
        elif how is not None and find_cupti():
            more.setdefault('TFI_CUPTI_PATH', find_cupti())
        return environment(how, directory, more)

    def torch_environment(self, how, directory=None, more=None, preload=()):
        """Returns variables for a program with torch. torch finds its own libraries before those of LD_LIBRARY_PATH, so the
        simulated runtime and CUPTI are preloaded. SIMGPU_REAL makes a synchronising call wait for the work as a real one
        does: torch.profiler drops the kernels that end after it stopped."""
        more = {'CUBLAS_WORKSPACE_CONFIG': ':4096:8', 'TORCHINDUCTOR_CACHE_DIR': f'{self.work}/inductor',
                'TRITON_CACHE_DIR': f'{self.work}/triton', **(more or {})}
        if self.simulated:
            more.update(LD_LIBRARY_PATH=SIMGPU, SIMGPU_REAL='1', GPU_CHECK_SIMULATED='1', KINETO_LOG_LEVEL='5')
            preload = [*preload, *(f'{SIMGPU}/{name}' for name in ('libcudart.so.13', 'libcupti.so.13'))]
        return environment(how, directory, more, preload)

    def cupti(self):
        """Returns the path of the CUPTI that torch uses."""
        return f'{SIMGPU}/libcupti.so.13' if self.simulated else find_cupti()

    def cudart(self):
        cupti = find_cupti()
        beside = sorted(glob.glob(f'{os.path.dirname(cupti)}/libcudart.so.1[23]')) if cupti else []
        return f'{SIMGPU}/libcudart.so.13' if self.simulated else beside[-1] if beside else 'libcudart.so.13'


class Part:
    """Results of a part of the check. A way of running a program is saved as soon as it is measured, so a part that is
    started again continues after it."""

    def __init__(self, name, run, kept, save):
        self.name, self.run, self.kept, self.save = name, run, kept, save
        self.figures, self.disagreements, self.missed, self.not_run, self.files = {}, [], [], [], {}

    def way(self, name, function, needs=()):
        """Returns the function's result, or that of an earlier run if the files in `needs`, which later steps read, still
        exist."""
        entry = self.kept.get(name)
        if entry and all(map(os.path.exists, needs)):
            return entry['result']
        self.run.deadline.within(1)
        begin = time.monotonic()
        result = json.loads(json.dumps(function(), default=str))  # the same form as a saved result
        self.kept[name] = {'result': result, 'seconds': round(time.monotonic() - begin, 2)}
        self.save(self)
        return result

    def wrong(self, what, **said):
        self.disagreements.append({'what': f'{self.name}: {what}', **said})

    def not_whole(self, what, figures):
        """Adds a disagreement if a trace is missing, cut, or has lost records."""
        if not figures.get('complete') or figures.get('lost'):
            self.wrong(f'{what}: the trace is not whole',
                       **{key: figures.get(key) for key in ('traces', 'error', 'complete', 'lost')})


def last_json(text):
    """Returns the last JSON object that is a line of the output, or None."""
    for line in reversed(text.splitlines()):
        if line.startswith('{'):
            return json.loads(line)
    return None


def tfanalyze(command, *arguments, seconds=120):
    """Returns (answer, stderr); the answer is None if tfanalyze printed none."""
    result = execute([TFANALYZE, command, '--format', 'json', *arguments], environment(PLAIN), seconds)
    try:
        return json.loads(result.out), result.err.strip()
    except ValueError:
        return None, result.err.strip() or f'exit {result.rc}'


def tfanalyze_text(command, *arguments, seconds=120):
    """Returns (stdout, stderr)."""
    result = execute([TFANALYZE, command, *arguments], environment(PLAIN), seconds)
    return result.out, result.err.strip()


def trace_figures(directory):
    """Returns the size, records and losses of a run directory."""
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
    """Returns median, minimum, maximum, and the range of the middle half."""
    if not values:
        return None
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return {'median': statistics.median(ordered), 'min': ordered[0], 'max': ordered[-1],
            'middle_half': [ordered[quarter], ordered[-1 - quarter]], 'n': len(ordered)}
