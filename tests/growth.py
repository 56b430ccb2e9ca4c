"""growth.py - traces of hostile shapes of any size, and the growth of a command's time with them.

A shape is a function of a number N that writes a trace (or a directory of traces) and returns its path. `exponent`
compares the user CPU of a command at two sizes: the least of several runs, minus the time of starting the program.
Linear growth gives 1, quadratic 2. scripts/bench/growth prints the table of all shapes and commands; test_growth.py
checks small ones.
"""

import json
import math
import os
import re
import resource
import shutil
import subprocess
from pathlib import Path

from growth_shapes import SHAPES, event, kineto, launch, shape

TOGETHER, MOST_RUNS = 0.1, 20  # seconds and runs for one mean of short times
LEAST = 0.2  # seconds; a command that takes less at the larger size says nothing about growth


# ---- Kineto traces ----

def events(size):
    """Registers a shape whose function yields the events of one Kineto trace."""
    def add(function):
        SHAPES[function.__name__] = (lambda directory, n: kineto(directory, function(n)), size)
        return function
    return add


@events(40000)
def nested_operators(n):
    """N nested operators in one stage, each with a launch."""
    yield event('user_annotation', 'stage0', 0, 10 * n)
    for i in range(n):
        yield event('cpu_op', f'aten::op{i % 50}', 1 + 2 * i, 10 * n - 4 * i - 2)
        yield from launch(i, 2 + 2 * i, time=1)


@events(10000)
def nested_stages(n):
    """N nested stages of different names, each with a launch, and a second row of launches in the innermost."""
    for i in range(n):
        yield event('user_annotation', f'stage{i}', 2 * i, 12 * n - 4 * i)
        yield from launch(i, 2 * i + 1, kernel=f'kernel{i % 97}', wait=2, time=1)
    for i in range(n):
        yield event('cpu_op', 'aten::op', 2 * n + 2 * i, 1)
        yield from launch(n + i, 2 * n + 2 * i, wait=2 * n)


@events(10000)
def nested_few_names(n):
    """N nested stages of 50 names, with launches and operators in the innermost."""
    for i in range(n):
        yield event('user_annotation', f'stage{i % 50}', i, 12 * n - 2 * i)
    for i in range(n):
        yield event('cpu_op', 'aten::op', 2 * n + 2 * i, 1)
        yield from launch(i, 2 * n + 2 * i)


@events(10000)
def nested_twice(n):
    """The same nest of N/2 stages twice, with work that overlaps on two streams."""
    for turn in range(2):
        at = 20 * n * turn
        for i in range(n // 2):
            yield event('user_annotation', f'stage{i}', at + i, 14 * n - 2 * i)
        for i in range(n // 2):
            yield from launch(turn * n + i, at + n + 2 * i, stream=7 + i % 2, time=5)


@events(10000)
def crossing_stages(n):
    """N stages that cross one another, with launches while all are open, and others after all but one have ended."""
    for i in range(n):
        yield event('user_annotation', f'stage{i}', i, 4 * n)
    for i in range(n):
        yield from launch(i, n + 2 * i)
    yield event('user_annotation', 'last', 20 * n, 8 * n)
    for i in range(n):
        yield from launch(n + i, 22 * n + 2 * i)


@events(10000)
def outlived_stages(n):
    """N nested stages that end while a stage opened in the innermost continues; the launches come after that."""
    for i in range(n):
        yield event('user_annotation', f'stage{i}', i, 3 * n - 2 * i)
    yield event('user_annotation', 'outlives', n + 1, 20 * n)
    for i in range(n):
        yield event('cpu_op', 'aten::op', 5 * n + 4 * i, 2)
        yield from launch(i, 5 * n + 4 * i)


@shape(10000)
def clashing_names(directory, n):
    """N stages whose names become the same file name."""
    def name(i):
        return ''.join(chr(0x4e00 + (i >> bits & 63)) for bits in (0, 6, 12))
    return kineto(directory, (event('user_annotation', name(i), 10 * i, 5) for i in range(n)))


@shape(10000)
def numbered_clashes(directory, n):
    """N stages with the names that clashing file names get."""
    def names():
        yield 'a'
        for i in range(n // 2):
            yield f'a~{i + 2}'
            yield f'a\u00e4{i}'[:2]
            yield f'a_~{i + 2}'
    return kineto(directory, (event('user_annotation', name, 10 * i, 5) for i, name in enumerate(names())))


@events(10000)
def many_stages(n):
    """N stages one after the other, each with a launch and an operator."""
    for i in range(n):
        yield event('user_annotation', f'stage{i}', 10 * i, 8)
        yield event('cpu_op', 'aten::op', 10 * i + 1, 5)
        yield from launch(i, 10 * i + 2)


@events(20000)
def distinct_names(n):
    """One stage with N operators, N functions and N kernels of different names."""
    yield event('user_annotation', 'stage', 0, 20 * n)
    for i in range(n):
        yield event('cpu_op', f'aten::op-{i}', 10 * i, 8, **{'Input Dims': [[i, i + 1]], 'Call stack': f'a.py(1): f{i}'})
        yield event('cuda_runtime', f'cudaLaunchKernel{i}', 10 * i + 1, 2, correlation=i + 1)
        yield event('kernel', f'void kernel{i}<int>(int)', 10 * i + 4, 5, 7, 0, correlation=i + 1, stream=7, device=0)


@events(10000)
def threads(n):
    """N threads at the same time, each with a stage, an operator and a launch."""
    for i in range(n):
        yield event('user_annotation', f's{i % 10}', i, 5 * n, 10 + i)
        yield event('cpu_op', 'aten::op', 2 * n + i, 3, 10 + i)
        yield from launch(i, 2 * n + i, tid=10 + i)


@events(10000)
def streams(n):
    """N streams whose kernels all overlap; a tenth of them are collectives."""
    yield event('user_annotation', 'stage', 0, 20 * n)
    for i in range(n):
        yield from launch(i, 2 * i, stream=i, wait=n, time=10 * n, kernel=f'nccl{i % 3}' if i % 10 == 0 else 'k')


@events(10000)
def devices(n):
    """N devices with one kernel each, all in one stage."""
    yield event('user_annotation', 'stage', 0, 20 * n)
    for i in range(n):
        yield from launch(i, 2 * i, device=i)


@events(10000)
def one_correlation(n):
    """N calls and N kernels with one correlation id."""
    yield event('user_annotation', 'stage', 0, 20 * n)
    for i in range(n):
        yield event('cuda_runtime', 'cudaLaunchKernel', 10 * i, 2, correlation=1)
        yield event('kernel', 'k', 10 * i + 3, 5, 7, 0, correlation=1, stream=7, device=0)


@events(10000)
def arrows(n):
    """N arrows from forward operators in a stage to one backward operator on another thread, which launches N kernels."""
    yield event('user_annotation', 'stage', 0, 4 * n)
    yield event('user_annotation', 'other', 0, 90 * n, tid=3)
    yield event('cpu_op', 'backward', 10 * n, 50 * n, tid=2)
    for i in range(n):
        yield event('cpu_op', 'aten::op', 2 * i + 1, 1)
        for phase, at, tid in (('s', 2 * i + 1, 1), ('f', 10 * n + 2 * i, 2)):
            yield json.dumps({'ph': phase, 'id': i, 'pid': 1, 'tid': tid, 'ts': at, 'cat': 'fwdbwd', 'name': 'fwdbwd'})
        yield from launch(i, 30 * n + 2 * i, tid=2)


@events(5000)
def arrows_at_once(n):
    """N arrows, calls and operators that all begin at the same time on one thread."""
    yield event('user_annotation', 'stage0', 0, 90 * n)
    for i in range(n):
        yield event('cpu_op', 'aten::op', 5, 0)
        yield event('cuda_runtime', 'cudaLaunchKernel', 5, 0, correlation=i + 1)
        yield event('kernel', 'k', 10 + 2 * i, 1, 7, 0, correlation=i + 1, stream=7, device=0)
        for phase, at, tid, pid in (('s', 5, 1, 1), ('f', 10 + 2 * i, 7, 0)):
            yield json.dumps({'ph': phase, 'id': i + 1, 'pid': pid, 'tid': tid, 'ts': at, 'cat': 'ac2g', 'name': 'ac2g'})


@events(10000)
def nested_functions(n):
    """N nested Python functions, each with an operator, and operators with launches in the innermost."""
    yield event('user_annotation', 'stage0', 0, 20 * n)
    for i in range(n):
        yield event('python_function', f'f{i}.py(1): f{i}', 4 * i, 20 * n - 8 * i, **{'Python id': i + 1, 'Python parent id': i or None})
        yield event('cpu_op', 'aten::op', 4 * i + 1, 1)
    for i in range(n):
        yield event('cpu_op', f'aten::op{i % 50}', 4 * n + 4 * i + 1, 2)
        yield from launch(i, 4 * n + 4 * i + 2)


@events(40000)
def shared_prefixes(n):
    """N kernels whose names differ only after a long common prefix, and only in parts that short names leave out."""
    yield event('user_annotation', 'stage0', 0, 20 * n)
    for i in range(n):
        yield from launch(i, 4 * i, kernel='void at::native::' + 'common_' * 8 + f'kernel{i // 2}<Functor<{i}>, {i % 7}>(int, float)')


@events(2000)
def names_and_threads(n):
    """N stages of N names on a hundred threads, with calls that launch nothing."""
    for i in range(n):
        yield event('user_annotation', f'stage{i}', 10 * i, 9, 10 + i % 100)
        for k in range(3):
            yield event('cuda_runtime', f'cudaCall{(i + k) % 50}', 10 * i + 2 * k + 1, 1, 10 + i % 100, correlation=3 * i + k)


@events(10000)
def annotations_on_device(n):
    """The device annotations of N nested stages, and kernels that begin at the same times."""
    for i in range(n):
        yield event('user_annotation', f'stage{i}', i, 12 * n - 2 * i)
    for i in range(n):
        yield from launch(i, 2 * n + 2 * i, wait=0)
        yield event('gpu_user_annotation', f'stage{i}', 2 * n + 2 * i, 5, 7, 0, stream=7, device=0)


@shape(10000)
def collectives(directory, n):
    """N collectives of N communicators, N of one whose numbers fall, and N that share an operator, their ends all at once."""
    def described(i, number, group):
        return {'Collective name': 'allreduce', 'In msg nelems': i, 'Out msg nelems': i, 'Group size': 2, 'dtype': 'Float',
                'Seq': number, 'Process Group Name': group, 'Process Group Ranks': '[0, 1]', 'External id': i + 1}

    def events():
        yield event('user_annotation', 's0e0', 0, 90 * n)
        for i in range(3 * n):
            args = described(i, i, f'group{i}') if i < n else described(i, 3 * n - i, '0') if i < 2 * n else described(n, 7, '1')
            yield event('cpu_op', 'record_param_comms', 2 * i, 1, **args)
            yield event('cuda_runtime', 'cudaLaunchKernel', 2 * i, 1, correlation=i + 1)
            yield event('kernel', 'ncclDevKernel_AllReduce', 10 * n, 80 * n - i, 7, 0, correlation=i + 1, stream=7, device=0, **args)
    return kineto(directory, events())


@events(10000)
def steps(n):
    """N profiler steps, each with an operator and a launch."""
    for i in range(n):
        yield event('user_annotation', f'ProfilerStep#{i}', 10 * i, 9)
        yield event('cpu_op', 'aten::op', 10 * i + 1, 5)
        yield from launch(i, 10 * i + 2)


@events(200000)
def long_names(n):
    """Twenty stages, operators and kernels with names of N bytes."""
    for i in range(20):
        yield event('user_annotation', f's{i}' + 'x' * n, 100 * i, 90)
        yield event('cpu_op', f'aten::o{i}' + '<' * n, 100 * i + 10, 50)
        yield from launch(i, 100 * i + 20, kernel=f'void k{i}' + '<' * n)


@events(10000)
def memory(n):
    """N memory events while all operators of a nest are open."""
    for i in range(n):
        yield event('cpu_op', f'op{i % 9}', i, 6 * n - 2 * i)
    for i in range(n):
        yield json.dumps({'ph': 'i', 's': 't', 'cat': 'cpu_instant_event', 'name': '[memory]', 'pid': 1, 'tid': 1,
                          'ts': n + i, 'args': {'Bytes': 512 if i % 2 else -512, 'Addr': i, 'Device Id': 0, 'Device Type': 1,
                                                'Total Allocated': 4096, 'Total Reserved': 8192}})


@shape(8000)
def other_members(directory, n):
    """N members beside the events, N named threads and N categories."""
    path = Path(directory) / 'trace.json'
    members = ','.join(f'"key{i}":"value {i}"' for i in range(n))
    named = ',\n'.join(json.dumps({'ph': 'M', 'name': 'thread_name', 'pid': i % 5, 'tid': i, 'ts': 0, 'args': {'name': f't{i}'}})
                       for i in range(n))
    kinds = ',\n'.join(event(f'category{i}', 'x', i, 1) for i in range(n))
    path.write_text('{%s,"traceEvents":[\n%s,\n%s]}' % (members, named, kinds))
    return path


@shape(40)
def ranks(directory, n):
    """N ranks, one file each, with three stages, operators and launches."""
    def events(rank):
        for i in range(3):
            yield event('user_annotation', f's{i}', 100 * i + rank, 90)
            yield event('cpu_op', 'aten::op', 100 * i + rank + 1, 5)
            yield from launch(i, 100 * i + rank + 2)
    for rank in range(n):
        kineto(directory, events(rank), rank, n, f'rank{rank}.json')
    return Path(directory)


# ---- commands ----

TABLE = (Path(__file__).parents[1] / 'analysis/commands.def').read_text()
# Each command of the table by itself, and with these options; `help` reads no trace, `mcp` asks the others.
COMMANDS = {
    **{name: [name] for name in re.findall(r'^COMMAND\("([^"]+)"', TABLE, re.M) if name not in ('help', 'mcp')},
    'stages --exclusive': ['stages', '--exclusive'],
    'stages --stage': ['stages', '--stage', 's*'],
    'breakdown --stage': ['breakdown', '--stage', 's*0'],
    'breakdown --group-by op': ['breakdown', '--group-by', 'op'],
    'breakdown --names short': ['breakdown', '--names', 'short'],
    'breakdown hta': ['breakdown', '--rules', 'hta'],
    'api --stage': ['api', '--stage', 's*e0'],
    'launches hta': ['launches', '--rules', 'hta'],
    'launches --write-budget': ['launches', '--write-budget', '@'],
    'launches --stage': ['launches', '--stage', 's*e0'],
    'io --group-by file --stage': ['io', '--group-by', 'file', '--stage', 's*'],
    'io --layout files': ['io', '--layout', 'files'],
    'io --layout batches': ['io', '--layout', 'batches'],
    'timeline --step': ['timeline', '--step', '0-1000000'],
    'timeline hta': ['timeline', '--rules', 'hta'],
    'timeline tracelens': ['timeline', '--rules', 'tracelens'],
    'kinds hta': ['kinds', '--rules', 'hta'],
    'idle --stage': ['idle', '--stage', 's*e0'],
    'idle hta': ['idle', '--rules', 'hta'],
    'memory raw': ['memory', '--layout', 'raw'],
    'memory peaks': ['memory', '--layout', 'peaks'],
    'memory leaks': ['memory', '--layout', 'leaks'],
    'memory oom': ['memory', '--layout', 'oom'],
    'memory html': ['memory', '--layout', 'html'],
    'queue hta': ['queue', '--rules', 'hta'],
    'steps --step': ['steps', '--step', '0-1000000'],
    'bandwidth hta': ['bandwidth', '--rules', 'hta'],
    'annotations --stage': ['annotations', '--stage', 's*e0'],
    'patterns': ['patterns', '--operator', 'op'],
    'patterns hta': ['patterns', '--rules', 'hta', '--operator', 'op'],
    'counters hta': ['counters', '--rules', 'hta'],
    'annotations hta': ['annotations', '--rules', 'hta'],
    'critical-path --nodes': ['critical-path', '--nodes', '--stage', 's*'],
    'comm tracelens': ['comm', '--rules', 'tracelens'],
    'diff': ['diff', '%'],
    'diff --by op': ['diff', '%', '--by', 'op'],
    'diff --by stage': ['diff', '%', '--by', 'stage'],
    'comm --stage': ['comm', '--stage', 's*e0'],
    'ops --stage': ['ops', '--stage', 's*e0'],
    'ops --group-by': ['ops', '--group-by', 'name,shapes,stack=3'],
    'ops by stacks': ['ops', '--group-by', 'name,stack=100'],
    'ops --group-by stack': ['ops', '--group-by', 'stack=2'],
    'stacks --stage': ['stacks', '--stage', 's*e0', '--layout', 'speedscope'],
    'merge --stage': ['merge', '--stage', 's*e0'],
    'export chrome --stage': ['export chrome', '--stage', 's*e0'],
    'export pftrace --stage': ['export pftrace', '--stage', 's*e0'],
    'export et': ['export et', '--rank', '0', '--pid', '1,4000'],  # it writes one process: the first of each shape
    'export tensorboard': ['export tensorboard', '--output', '@'],
    'export parquet': ['export parquet', '--output', '@'],
    'report': ['report', '--output', '@'],
    'report --stage': ['report', '--stage', '*1', '--output', '@'],
}


class Measure:
    """Runs commands; keeps the CPU of starting the program, by command."""

    def __init__(self, program, work, rounds=3, limit=300):
        self.program, self.work, self.rounds, self.limit = str(program), Path(work), rounds, limit
        self.empty = {}
        (self.work / 'empty').mkdir(exist_ok=True)
        self.nothing = kineto(self.work / 'empty', [event('user_annotation', 'stage0', 0, 5)])

    def once(self, command, path):
        """User CPU in seconds, peak memory in bytes, the exit status and stderr."""
        output = self.work / 'output'
        shutil.rmtree(output, ignore_errors=True)
        words = [{'@': str(output), '%': str(path)}.get(word, word) for word in COMMANDS[command]]
        words = words[0].split() + words[1:]
        with open(self.work / 'said', 'w+') as said:
            process = subprocess.Popen([self.program, *words, '-j', '1', str(path)], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=said,
                                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (self.limit, self.limit)))
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            said.seek(0)
            return usage.ru_utime, usage.ru_maxrss * 1024, process.returncode, said.read()

    def least(self, command, path, rounds=None):
        runs = [self.once(command, path) for _ in range(rounds or self.rounds)]
        for run in runs:
            assert run[2] in (0, 1, 3), f'{command} {path}: exit {run[2]}: {run[3][-500:]}'
        return min(run[0] for run in runs), max(run[1] for run in runs)

    def short(self, command, path):
        """User CPU of a command that may take only a few ticks of the kernel's 4 ms.

        It is the least of the rounds, or the mean of as many runs as take TOGETHER seconds."""
        least = self.least(command, path)[0]
        if least >= TOGETHER:
            return least
        runs = min(MOST_RUNS, math.ceil(TOGETHER / max(least, 0.001)))
        return sum(self.once(command, path)[0] for _ in range(runs)) / runs

    def growth(self, command, paths, factor, limit):
        """User CPU at both sizes, the peak memory, and the exponent.

        The small size is measured only if the large one takes time. Both are measured again while the exponent is over
        the limit: a machine that was faster for one of the two changes one round, not all."""
        memory, least = 0, (None, math.inf, math.inf)
        for _ in range(self.rounds):
            large, most = self.least(command, paths[1], 1)
            memory = max(memory, most)
            if large - self.start_up(command) < LEAST:
                return None, large, memory, None
            small = self.short(command, paths[0])
            least = min(least, (small, large, exponent(small, large, self.start_up(command), factor)), key=lambda found: found[2])
            if least[2] <= limit:
                break
        small, large, found = least
        return small, large, memory, found

    def start_up(self, command):
        if command not in self.empty:
            self.empty[command] = self.short(command, self.nothing)
        return self.empty[command]


def make(shape, n, directory):
    directory = Path(directory)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return SHAPES[shape][0](directory, n)


def exponent(small, large, start_up, factor):
    """The exponent of the growth, without the time of starting the program. A time below a millisecond counts as one."""
    return math.log((large - start_up) / max(small - start_up, 0.001)) / math.log(factor)
