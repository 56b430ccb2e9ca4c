"""parts - the parts of gpu-check: each runs programs in several ways, compares, measures, and returns what it found.

A part is a function of a Run; it returns {'figures': …, 'disagreements': […], 'not_run': […], 'files': {name: path}}.
A disagreement is anything that is not as it should be; figures are never judged except against the goals named here.
"""

import gzip
import json
import os
import shutil
import subprocess
import sys

import operators
import traces
from common import (BUILD, EVERYTHING, HERE, PLAIN, STAGES_ONLY, TimeIsUp, environment, execute, find_cupti, last_json,
                    spread, tfanalyze, trace_figures)

GOAL_EVERYTHING, GOAL_STAGES = 1.05, 1.01
PAIRS = 10
C_STAGES = {'text_encode': 'text_encode', 'denoise': 'denoise', 'step': 'denoise', 'vae_decode': 'vae_decode'}


class Run:
    """What the parts are told: the kind of device, the Python with torch, where to work, the time that is left."""

    def __init__(self, device, python, work, deadline):
        self.device, self.python, self.work, self.deadline = device, python, work, deadline

    def directory(self, name):
        path = f'{self.work}/{name}'
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        return path


# ---- the C pipeline ----

def c_environment(run):
    """For a program of the driver API alone: where the simulated libraries are, or which CUPTI to load."""
    if run.device == 'simulated':
        return {'LD_LIBRARY_PATH': f'{BUILD}/simgpu'}
    cupti = find_cupti()
    return {'TFI_CUPTI_PATH': cupti} if cupti else {}


def run_c(run, name, how):
    more, directory = c_environment(run), run.directory(f'c-{name}')
    if how is PLAIN:
        more.pop('TFI_CUPTI_PATH', None)
    result = execute([f'{BUILD}/demo/diffusion', '--json'], environment(how, directory, more), run.deadline.within(60))
    return result, last_json(result.out), directory


def compare_c_counts(what, directory, counts, disagreements):
    """Kernels by stage and name, copies and sets, beside what the program counted itself when it asked for them."""
    answer, error = tfanalyze('breakdown', directory)
    if answer is None:
        disagreements.append({'what': what, 'error': error})
        return {}
    found = {}
    for row in answer['rows']:
        key = C_STAGES.get(row['stage'], row['stage']), row['name']
        found[key] = found.get(key, 0) + row['calls']
    wanted = {(s, k): n for s, kinds in counts.items() for k, n in kinds.items() if n and k not in ('copies', 'sets')}
    for key in sorted(set(found) | set(wanted)):
        if found.get(key, 0) != wanted.get(key, 0):
            disagreements.append({'what': what, 'stage': key[0], 'name': key[1], 'ours': found.get(key, 0),
                                  'asked_for': wanted.get(key, 0)})
    work, _, error = traces.our_work(directory)
    for kind, word in (('copy', 'copies'), ('set', 'sets')):
        have, want = sum(w.kind == kind for w in work), sum(kinds[word] for kinds in counts.values())
        if have != want:
            disagreements.append({'what': what, 'kind': kind, 'ours': have, 'asked_for': want, 'error': error})
    empty = [w.name for w in work if w.duration <= 0]
    if empty:
        disagreements.append({'what': f'{what}: records without a duration', 'names': empty[:10]})
    return {'kernels': sum(found.values()), 'kernels_asked_for': sum(wanted.values()),
            'kernel_ns': sum(w.duration for w in work if w.kind == 'kernel')}


def trace_file(directory, name):
    """{name: the trace in the directory}, or nothing."""
    return {name: f'{directory}/{f}' for f in os.listdir(directory) if f.endswith('.tfr')}


def not_whole(what, figures):
    """What is to be said of a trace that is missing, cut, or has lost records."""
    if figures.get('complete') and not figures.get('lost'):
        return []
    said = {key: figures.get(key) for key in ('traces', 'error', 'complete', 'lost')}
    return [{'what': f'{what}: the trace is not whole', **said}]


def c_pipeline(run):
    ways = {'plain': PLAIN, 'everything': EVERYTHING, 'stages-only': STAGES_ONLY,
            'graphs-whole': {'TFI_GRAPHS': 'graph'}}
    figures, disagreements, reference = {}, [], None
    if run.device == 'none':
        return {'figures': {}, 'disagreements': [], 'not_run': ['all of it: there is no GPU'], 'files': {}}
    for name, how in ways.items():
        result, answer, directory = run_c(run, name, how)
        figures[name] = {'exit': result.rc, 'seconds': round(result.seconds, 3), 'answer': answer, 'said': result.said}
        if result.rc or not answer:
            disagreements.append({'what': f'c-pipeline, {name}', 'exit': result.rc, 'error': result.err[-500:]})
            continue
        reference = reference or answer
        if answer != reference:
            disagreements.append({'what': f'c-pipeline, {name}: other output than {next(iter(ways))}', 'ours': answer})
        if how is PLAIN:
            continue
        figures[name]['trace'] = trace_figures(directory)
        disagreements += not_whole(f'c-pipeline, {name}', figures[name]['trace'])
        if name == 'everything':
            figures[name].update(compare_c_counts('c-pipeline', directory, answer['counts'], disagreements))
        if name == 'stages-only' and any(figures[name]['trace'].get('events', {}).get(k) for k in traces.KINDS):
            disagreements.append({'what': 'c-pipeline, stages-only: device records where none were asked for'})
    not_run = ['results of the kernels (the simulated device computes nothing)'] if run.device == 'simulated' else []
    return {'figures': figures, 'disagreements': disagreements, 'not_run': not_run,
            'files': trace_file(f'{run.work}/c-everything', 'c-pipeline.tfr')}


# ---- the torch pipeline ----

def torch_device(run):
    return 'cuda' if run.device == 'real' else 'cpu'


def torch_environment(run):
    return {'CUBLAS_WORKSPACE_CONFIG': ':4096:8', 'TORCHINDUCTOR_CACHE_DIR': f'{run.work}/inductor',
            'TRITON_CACHE_DIR': f'{run.work}/triton'}


def run_torch(run, name, how, profile):
    directory, out = run.directory(f'torch-{name}'), run.directory(f'torch-{name}-out')
    command = [run.python, f'{HERE}/pipeline.py', '--out', out, '--device', torch_device(run)]
    result = execute(command + ['--profile'] * profile, environment(how, directory, torch_environment(run)),
                     run.deadline.within(150))
    answer = None
    if os.path.exists(f'{out}/outputs.json'):
        with open(f'{out}/outputs.json') as file:
            answer = json.load(file)
    figures = {'exit': result.rc, 'seconds': round(result.seconds, 2), 'said': result.said[:20], 'outputs': answer}
    if result.rc or answer is None:
        figures['error'] = result.err[-1500:]
    if how is not PLAIN:
        figures['trace'] = trace_figures(directory)
    if profile and os.path.exists(f'{out}/kineto.json'):
        figures['kineto_bytes'] = os.path.getsize(f'{out}/kineto.json')
    return figures, directory, f'{out}/kineto.json'


def compare_outputs(ways, disagreements):
    """Each scene's bytes beside the plain run's; where two plain runs differ, the scene itself is not repeatable."""
    plain, again = (ways[name]['outputs'] or {} for name in ('plain', 'plain-again'))
    unstable = sorted(s for s in plain if plain[s] != again.get(s))
    for name, figures in ways.items():
        for scene, output in (figures['outputs'] or {}).items():
            if scene not in unstable and output != plain.get(scene):
                disagreements.append({'what': f'torch, {name}: output of {scene}', 'ours': output,
                                      'plain': plain.get(scene)})
        if figures.get('error') is not None:
            disagreements.append({'what': f'torch, {name}: failed', 'exit': figures['exit'],
                                  'error': figures['error'][-500:]})
    failed = {s: o['failed'] for s, o in plain.items() if 'failed' in o}
    not_run = [f'{s}: {o["not_run"]}' for s, o in plain.items() if 'not_run' in o]
    not_run += [f'{s}: failed in the plain run too: {why}' for s, why in failed.items()]
    return not_run + [f'{s}: two plain runs differ, so outputs prove nothing' for s in unstable]


def compare_torch(directories, kineto_paths, figures, disagreements):
    """Library alone beside torch.profiler alone: names and counts. Both in one run: every record."""
    alone = traces.kineto(kineto_paths['profiler'])
    ours, _, error = traces.our_work(directories['everything'], 'measured')
    counts, found = traces.compare_counts('torch: library alone / torch.profiler alone', ours, alone.work)
    figures['alone'] = {'counts': counts, 'durations': traces.compare_durations(ours, alone.work), 'error': error}
    disagreements += found
    beside = traces.kineto(kineto_paths['both'])
    counts, found = traces.compare_counts('torch: torch.profiler with the library / without', beside.work, alone.work)
    figures['profiler_beside_it'] = {'counts': counts}
    disagreements += found
    ours, _, error = traces.our_work(directories['both'], 'measured')
    counts, found = traces.compare_counts('torch: both in one run', ours, beside.work)
    records, more = traces.compare_records('torch: records of one run', ours, beside.work)
    scenes = sorted(scene for scene, output in figures['ways']['both']['outputs'].items() if 'sha256' in output)
    stages, other = traces.compare_stages('torch: kernels by stage', directories['both'], beside, scenes)
    figures['both'] = {'counts': counts, 'records': records, 'stages': stages, 'error': error}
    disagreements += found + more + other
    whole = [traces.our_work(directories[name])[0] for name in ('both', 'everything')]
    counts, found = traces.compare_counts('torch: the whole run, library beside torch.profiler / alone', *whole)
    figures['library_beside_it'] = {'counts': counts}
    disagreements += found


def torch_pipeline(run):
    ways = {'plain': (PLAIN, False), 'everything': (EVERYTHING, False), 'profiler': (PLAIN, True),
            'both': (EVERYTHING, True), 'stages-only': (STAGES_ONLY, False), 'plain-again': (PLAIN, False)}
    figures, disagreements, directories, kineto_paths = {'ways': {}}, [], {}, {}
    for name, (how, profile) in ways.items():
        figures['ways'][name], directories[name], kineto_paths[name] = run_torch(run, name, how, profile)
    not_run = compare_outputs(figures['ways'], disagreements)
    files = {}
    if not os.path.exists(kineto_paths['profiler']) or not os.path.exists(kineto_paths['both']):
        not_run.append('comparison with torch.profiler: it left no trace')
        return {'figures': figures, 'disagreements': disagreements, 'not_run': not_run, 'files': files}
    if run.device == 'real':
        for name in ('everything', 'both', 'stages-only'):
            disagreements += not_whole(f'torch, {name}', figures['ways'][name]['trace'])
        compare_torch(directories, kineto_paths, figures, disagreements)
    else:
        figures['kineto_work'] = len(traces.kineto(kineto_paths['both']).work)
        not_run.append('kernels, names, durations: there is no GPU')
    packed = kineto_paths['both'] + '.gz'
    with open(kineto_paths['both'], 'rb') as source, gzip.open(packed, 'wb') as target:
        shutil.copyfileobj(source, target)
    files['torch-both.kineto.json.gz'] = packed
    files.update(trace_file(directories['both'], 'torch-both.tfr'))
    return {'figures': figures, 'disagreements': disagreements, 'not_run': not_run, 'files': files}


# ---- the measurements ----

class Worker:
    """A process that runs the loop when told to."""

    def __init__(self, run, loop, name, how, profile):
        self.directory, self.run, self.profile, self.error = run.directory(f'{loop}-{name}'), run, profile, None
        self.log = open(f'{self.directory}.log', 'w+')
        command = [run.python, f'{HERE}/loops.py', loop, torch_device(run)] + ['--profile'] * profile
        env = environment(how, self.directory, torch_environment(run))
        self.process = subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.log, start_new_session=True)

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
        try:
            self.process.stdin.close()
            self.process.wait(self.run.deadline.within(60))
        except (OSError, subprocess.TimeoutExpired, TimeIsUp):
            self.process.kill()
            self.process.wait()
        self.log.seek(0)
        said = [line.rstrip() for line in self.log if line.startswith('tfinject:')]
        self.log.close()
        return said[:20]


def measure(workers, rounds, pairs):
    """Pairs in turn; who begins moves on from round to round, so that no way is always the first."""
    found = {name: [] for name in workers}
    names = list(workers)
    for i in range(pairs):
        for name in names[i % len(names):] + names[:i % len(names)]:
            workers[name].run.deadline.within(1)
            found[name].append(workers[name].ask(f'run {rounds}'))
    return found


def summary(found, rounds):
    """By way: microseconds a round, and each measurement divided by the plain one of its pair."""
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
    return out


def judge(loop, ways):
    """Against the goals; where two plain processes differ as much, nothing can be said."""
    noise = abs(ways['plain-again']['times_plain']['median'] - 1)
    verdicts = {}
    for name, goal in (('everything', GOAL_EVERYTHING), ('stages-only', GOAL_STAGES)):
        ratio = ways[name]['times_plain']['median']
        verdict = 'met' if ratio < goal else 'not met' if ratio - noise >= goal else 'within the noise'
        verdicts[name] = {'goal': goal, 'times_plain': ratio, 'plain_against_plain': noise, 'verdict': verdict}
    missed = [name for name, v in verdicts.items() if v['verdict'] == 'not met']
    return verdicts, [{'what': f'{loop}, {name}: goal not met', **verdicts[name]} for name in missed]


def loop_part(loop):
    def part(run):
        seconds, pairs = (0.25, PAIRS) if run.device == 'real' else (0.02, 2)
        ways = {'plain': (PLAIN, False), 'everything': (EVERYTHING, False), 'stages-only': (STAGES_ONLY, False),
                'profiler': (PLAIN, True), 'plain-again': (PLAIN, False)}
        workers, figures, ended = {}, {}, {}
        try:
            for name, (how, profile) in ways.items():
                workers[name] = Worker(run, loop, name, how, profile)
            for worker in workers.values():
                worker.answer()
            trial = workers['plain'].ask('run 20')['seconds'] / 20
            rounds = max(3, round(seconds / trial))
            for worker in workers.values():
                worker.ask(f'run {max(2, rounds // 4)}')
            figures = {'rounds': rounds, 'pairs': pairs, 'ways': summary(measure(workers, rounds, pairs), rounds)}
            export = f'{run.work}/{loop}.kineto.json'
            figures['ways']['profiler']['kineto'] = {'rounds': rounds, **workers['profiler'].ask(f'export {export}')}
        finally:
            for name, worker in workers.items():
                ended[name] = worker.end()
        for name in ('everything', 'stages-only'):
            figures['ways'][name].update(said=ended[name], trace=trace_figures(workers[name].directory))
        if run.device != 'real':
            return {'figures': figures, 'disagreements': [], 'files': {},
                    'not_run': ['the measurement: there is no GPU, the figures mean nothing']}
        figures['goals'], wrong = judge(loop, figures['ways'])
        for name in ('everything', 'stages-only'):
            wrong += not_whole(f'{loop}, {name}', figures['ways'][name]['trace'])
        return {'figures': figures, 'disagreements': wrong, 'not_run': [], 'files': {}}
    return part


PARTS = {'c-pipeline': c_pipeline, 'torch-pipeline': torch_pipeline, **operators.PARTS,
         **{loop: loop_part(loop) for loop in ('launch-bound', 'transformer', 'training')}}


def torch_facts(python, seconds):
    """What torch says of itself and of its GPU; {} where it can't be imported."""
    code = ('import json, sys, torch; c = torch.cuda.is_available(); n = torch.cuda.device_count() if c else 0; '
            'print(json.dumps({"python": sys.version.split()[0], "torch": torch.__version__, "available": c, '
            '"cuda": torch.version.cuda, "gpus": [torch.cuda.get_device_name(i) for i in range(n)], '
            '"cudnn": torch.backends.cudnn.version() if c else None, '
            '"nccl": ".".join(map(str, torch.cuda.nccl.version())) if c else None}))')
    result = execute([python, '-c', code], environment(PLAIN), seconds)
    facts = last_json(result.out)
    return facts if facts else {'error': result.err[-500:] or f'{python} failed'}


if __name__ == '__main__':
    sys.exit('parts: run scripts/gpu-check')
