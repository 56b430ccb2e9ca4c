"""measure - the parts that measure the cost of recording: loops in several processes, in turn, pair by pair.

Each round is saved as soon as it is complete. Every measurement is divided by the plain one of its own round, so rounds of
several runs of gpu-check can be combined. Missed goals are listed apart from disagreements. If one part follows the other,
both use the same processes, one for each way; the second part also reads their traces.
"""

import json
import subprocess

from common import (EVERYTHING, GRAPHS_WHOLE, HERE, PLAIN, RAW, STAGES_ONLY, STAGES_WITHOUT_SUMS, TimeIsUp, die_with_parent, spread,
                    trace_figures)

GOAL_EVERYTHING, GOAL_STAGES, GOAL_SUMS = 1.05, 1.01, 1.01
# The ways that are compared, in pairs of one round, and the goal. Sums: those of device work by stage, with an empty list of stages.
GOALS = {'everything': ('everything', 'plain', GOAL_EVERYTHING), 'stages-only': ('stages-only', 'plain', GOAL_STAGES),
         'sums': ('stages-only', 'stages-without-sums', GOAL_SUMS)}
# Kinds of records that the library requests from CUPTI: copies, sets, kernels, overhead, copies between devices, waits.
# The floor is their cost for a client that discards them.
FLOOR_KINDS = '1,2,10,17,22,38'
# Name, variables of the library, use of torch.profiler, kinds for a bare client of CUPTI.
WAYS = {'plain': (PLAIN, False, None), 'everything': (EVERYTHING, False, None), 'stages-only': (STAGES_ONLY, False, None),
        'stages-without-sums': (STAGES_WITHOUT_SUMS, False, None),
        'graphs-whole': (GRAPHS_WHOLE, False, None), 'gpu-alone': ({'TFI_ACTIVITIES': 'gpu'}, False, None),
        'host-alone': ({'TFI_ACTIVITIES': 'cpu,ops,mem'}, False, None), 'cupti-alone': (PLAIN, False, FLOOR_KINDS),
        'profiler': (PLAIN, True, None), 'both': (EVERYTHING, True, None), 'plain-again': (PLAIN, False, None)}
LOOPS = {'graph-replay': ['graph-replay'], 'floor': ['launch-bound', 'transformer', 'training']}
LAST = 'floor'


class Worker:
    """A process that runs loops on request."""

    def __init__(self, run, name):
        how, profile, kinds = WAYS[name]
        self.directory, self.run, self.how = run.directory(f'loops-{name}'), run, how
        self.log = open(f'{self.directory}.log', 'w+')
        more = {'CUPTI_RAW_LIBRARY': run.cupti() or '', 'CUPTI_RAW_KINDS': kinds} if kinds else {}
        env = run.torch_environment(how, self.directory, more, [RAW] if kinds else [])
        self.process = subprocess.Popen([run.python, f'{HERE}/loops.py'] + ['--profile'] * profile, env=env, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
                                        start_new_session=True, preexec_fn=die_with_parent)

    def answer(self):
        while True:
            line = self.process.stdout.readline()
            if line.startswith('{'):
                return json.loads(line)
            if not line:
                self.log.seek(0)
                raise RuntimeError(f'the process ended: {self.log.read()[-800:]}')

    def ask(self, command):
        self.process.stdin.write(command + '\n')
        self.process.stdin.flush()
        return self.answer()

    def end(self):
        """Ends the process after its input was closed; returns the library's messages."""
        try:
            self.process.wait(self.run.deadline.within(60))
        except (OSError, subprocess.TimeoutExpired, TimeIsUp):
            self.process.kill()
            self.process.wait()
        self.log.seek(0)
        said = [line.rstrip() for line in self.log if line.startswith('tfinject:')]
        self.log.close()
        return said[:20]


def turns(part, workers, loop, rounds, number):
    """Measures all ways once; the first way changes from round to round."""
    names, found = list(workers), {}
    for name in names[number % len(names):] + names[:number % len(names)]:
        part.run.deadline.within(1)
        found[name] = workers[name].ask(f'run {loop} {rounds}')
    return found


def times(other):
    return f'times_{other.replace("-", "_")}'


def summary(found, rounds):
    """Returns for each way the microseconds per round, and the ratio of each measurement to the plain one of its pair; with
    those of GOALS."""
    out = {}
    for name, results in found.items():
        out[name] = {'us_a_round': spread([r['seconds'] / rounds * 1e6 for r in results])}
        for key in ('thread_cpu_seconds', 'process_cpu_seconds', 'start_seconds', 'stop_seconds'):
            if key in results[0]:
                out[name][key] = spread([r[key] for r in results])
        if name != 'plain':
            out[name]['times_plain'] = spread([r['seconds'] / p['seconds'] for r, p in zip(results, found['plain'])])
            out[name]['thread_cpu_times_plain'] = spread([r['thread_cpu_seconds'] / max(p['thread_cpu_seconds'], 1e-9)
                                                          for r, p in zip(results, found['plain'])])
    for way, other, _ in GOALS.values():
        out[way][times(other)] = spread([r['seconds'] / o['seconds'] for r, o in zip(found[way], found[other])])
    return out


def judge(loop, ways):
    """Compares the ratios with the goals; the difference of two plain processes is the noise."""
    noise = abs(ways['plain-again']['times_plain']['median'] - 1)
    verdicts = {}
    for name, (way, other, goal) in GOALS.items():
        key = times(other)
        ratio = ways[way][key]['median']
        verdict = 'met' if ratio < goal else 'not met' if ratio - noise >= goal else 'within the noise'
        verdicts[name] = {'goal': goal, key: ratio, 'plain_against_plain': noise, 'verdict': verdict}
    missed = [name for name, v in verdicts.items() if v['verdict'] == 'not met']
    return verdicts, [{'what': f'{loop}, {name}: goal not met', **verdicts[name]} for name in missed]


def rounds_of(part, worker, loop):
    """Returns the rounds of a loop in one measurement, so that all loops take about the same time."""
    seconds = 0.02 if part.run.simulated else 0.15
    return max(3, round(seconds / (worker.ask(f'run {loop} 20')['seconds'] / 20)))


def measure_loop(part, workers, loop, pairs):
    """Measures one loop; `workers` is empty if an earlier run kept all results."""
    rounds = part.way(f'{loop}, rounds', lambda: rounds_of(part, workers['plain'], loop))
    for worker in workers.values():
        part.run.deadline.within(1)
        worker.ask(f'run {loop} {max(2, rounds // 4)}')
    found = {name: [] for name in WAYS}
    for number in range(pairs):
        results = part.way(f'{loop}, round {number}', lambda: turns(part, workers, loop, rounds, number))
        for name in WAYS:
            found[name].append(results[name])
        part.figures[loop] = {'rounds': rounds, 'pairs': number + 1, 'ways': summary(found, rounds)}
    part.figures[loop]['goals'], missed = judge(loop, part.figures[loop]['ways'])
    part.missed += missed


class Pool:
    """Starts a worker for each way on first use. Every answer must be read: after an interruption an old answer would be
    taken for the next one."""

    def __init__(self, run):
        self.run, self.workers = run, {}

    def get(self):
        if not self.workers:
            self.run.deadline.within(1)
            self.workers = {way: Worker(self.run, way) for way in WAYS}
            for worker in self.workers.values():
                worker.answer()
        return self.workers

    def kill(self):
        for worker in self.workers.values():
            if worker.process.poll() is None:
                worker.process.kill()
                worker.process.wait()
        self.workers = {}

    def end(self):
        """Ends the workers; returns their messages and the figures of their traces."""
        traces, workers = {}, self.get()
        for worker in workers.values():
            worker.process.stdin.close()
        for name, worker in workers.items():
            said = worker.end()
            if worker.how is not PLAIN:
                traces[name] = {'said': said, **trace_figures(worker.directory)}
        self.workers = {}
        return traces


def measure(part, pairs):
    """Measures the loops of a part; starts no workers if an earlier run kept all results."""
    loops, pool = LOOPS[part.name], part.run.pool
    keys = [f'{loop}, round {n}' for loop in loops for n in range(pairs)]
    for loop in loops:
        measure_loop(part, {} if all(key in part.kept for key in keys) else pool.get(), loop, pairs)
    if part.name == LAST:
        part.figures['traces'] = part.way('traces', pool.end)
        for way, figures in part.figures['traces'].items():
            part.not_whole(way, figures)


def loops_part(part):
    """Measures the cost of each way of recording in a loop, beside torch.profiler and CUPTI alone."""
    if part.run.simulated:
        part.not_run.append('simulated: the figures are times of this machine, not of a GPU')
    try:
        measure(part, 2 if part.run.simulated else 4)
    except BaseException:
        part.run.pool.kill()
        raise


PARTS = {name: loops_part for name in LOOPS}
