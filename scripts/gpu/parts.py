"""parts - the parts of gpu-check, most informative first: each runs programs in several ways and compares the results.

A part is a function that fills in a Part (common.py): its figures; its disagreements, which are wrong data; its missed
goals; the steps that could not run, with the reasons; and the files for the output.
"""

import os
import sys
from types import SimpleNamespace

import basics
import measure
import neighbours
import operators
import torchparts
import traces
from common import (DIFFUSION, EVERYTHING, GRAPHS_WHOLE, PLAIN, SIMGPU, STAGES_ONLY, environment, execute, last_json,
                    tfanalyze, trace_figures)

C_STAGES = {'text_encode': 'text_encode', 'denoise': 'denoise', 'step': 'denoise', 'vae_decode': 'vae_decode'}
C_WAYS = {'plain': PLAIN, 'everything': EVERYTHING, 'stages-only': STAGES_ONLY, 'graphs-whole': GRAPHS_WHOLE,
          'selected': {'ENABLE_PROFILER_NAMES': 'denoise'}, 'stacks': {'TFI_WITH_STACK': '1'},
          'events': EVERYTHING}


# ---- the C pipeline ----

def without_cupti(run, env):
    """Makes a directory with the driver but without CUPTI; if the loader's path has none either, events time the stages."""
    env.pop('TFI_CUPTI_PATH', None)
    if run.simulated:
        directory = run.directory('driver-alone')
        os.symlink(f'{SIMGPU}/libcuda.so.1', f'{directory}/libcuda.so.1')
        env['LD_LIBRARY_PATH'] = directory


def run_c(part, name, how):
    run = part.run
    directory = run.directory(f'c-{name}')
    env = run.c_environment(how, directory)
    if name == 'events':
        without_cupti(run, env)
    result = run.execute([DIFFUSION, '--json'], env, 60)
    told = {'exit': result.rc, 'seconds': round(result.seconds, 3), 'answer': last_json(result.out), 'said': result.said,
            'error': result.err[-500:] if result.rc else None, 'disagreements': []}
    if how is not PLAIN:
        told['trace'] = trace_figures(directory)
    if name == 'everything' and told['answer']:
        told.update(compare_c_counts('c-pipeline', directory, told['answer']['counts'], told['disagreements']))
    return told


def compare_c_counts(what, directory, counts, disagreements):
    """Compares kernels by stage and name, copies and sets with the program's own counts."""
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


def c_pipeline(part):
    """Runs a C program in each way of recording: the output is the same, and the trace has its counts."""
    reference = None
    for name, how in C_WAYS.items():
        directory = f'{part.run.work}/c-{name}'
        told = part.figures[name] = part.way(name, lambda: run_c(part, name, how), [directory] * (how is not PLAIN))
        part.disagreements += told.get('disagreements', [])
        if told['exit'] or not told['answer']:
            part.wrong(name, exit=told['exit'], error=told['error'])
            continue
        reference = reference or told['answer']
        if told['answer'] != reference:
            part.wrong(f'{name}: other output than the plain run', ours=told['answer'])
        if how is PLAIN:
            continue
        if name != 'events':  # events replace missing records
            part.not_whole(name, told['trace'])
        if name == 'stages-only' and any(told['trace'].get('events', {}).get(k) for k in traces.KINDS):
            part.wrong('stages-only: device records where none were asked for')
        part.files.update(traces.files_of(directory, f'traces/c-{name}.tfr'))
    if part.run.simulated:
        part.not_run.append('simulated: results of the kernels (the simulated device computes nothing)')


# ---- all of them ----

FUNCTIONS = {**basics.PARTS, **measure.PARTS, **torchparts.PARTS, **operators.PARTS, **neighbours.PARTS,
             'c-pipeline': c_pipeline}


def row(seconds, limit, simulated, *figures):
    """Returns a part's seconds on a GPU, its limit there, its seconds on the simulated GPU, and its required figures."""
    return SimpleNamespace(seconds=seconds, limit=limit, simulated=simulated, figures=figures)


def loop_figures(*loops):
    return [f'{loop}.{what}' for loop in loops for what in
            ('rounds', *(f'ways.{way}.us_a_round.median' for way in measure.WAYS),
             *(f'ways.{way}.times_plain.median' for way in measure.WAYS if way != 'plain'),
             'ways.profiler.stop_seconds.median', 'ways.both.start_seconds.median',
             *(f'goals.{goal}.verdict' for goal in measure.GOALS))]


def ends_figures():
    return [f'{case}.{what}' for case in basics.driver.CASES for what in
            ('plain.exit', 'everything.exit', 'everything.kernels', 'later_seconds')]


PARTS = {
    'facts': row(9, 40, 10, 'cupti.version', 'cupti.sizes.driver', 'cupti.sizes.runtime', 'glibc', 'driver calls itself', 'clocksource',
                 'cupti.enable driver SIZE.exit', 'cupti.enable runtime SIZE.exit', 'cupti.enable driver 1023.exit',
                 'cupti.enable runtime 1023.exit', 'the library.exit'),
    'no-device': row(20, 90, 40, *(f'{program}, {where}.{way}.exit' for program in basics.DRIVERLESS for way in
                                   ('plain', 'everything') for where in ('libcuda hidden', 'no device visible'))),
    'sessions': row(40, 120, 30, *(f'{way}.told.sessions.{n}.{what}' for way in ('plain', 'everything') for n in range(5)
                                   for what in ('counts.kernel', 'counts.cuda_runtime', 'counts.cuda_driver', 'zero_times',
                                                'before_their_launch', 'start_seconds', 'stop_seconds')),
                    'everything.ours.kernel', 'everything.impossible.before_their_call'),
    'raw-cupti': row(20, 60, 20, 'nodes.sizes', 'nodes.version', *(f'{way}.{what}' for way in basics.RAW_WAYS for what in ('records', 'judged'))),
    'ends': row(30, 90, 25, *ends_figures()),
    'threads': row(6, 40, 5, 'plain.exit', 'everything.exit', 'asked_for', 'everything.kernels_by_stream',
                   'everything.launches_by_thread'),
    'killed': row(8, 30, 8, 'kernels', 'age_ms'),
    'injection': row(3, 30, 2, 'kernels', 'kernels_asked_for', 'stages', 'exit'),
    'api-noise': row(5, 30, 4, 'calls', 'foreign', 'told.own'),
    'c-pipeline': row(8, 60, 5, 'everything.kernels', 'everything.kernels_asked_for', 'everything.kernel_ns',
                      *(f'{way}.{what}' for way in C_WAYS for what in ('exit', 'seconds'))),
    'graph-attribution': row(25, 90, 30, 'everything.stages.stage_add', 'everything.stages.stage_mul',
                             'everything.operators.stage_add', 'plain.told.profiled.1'),
    'graph-replay': row(50, 130, 66, *loop_figures('graph-replay')),
    'floor': row(66, 180, 55, *loop_figures('launch-bound', 'transformer', 'training'),
                 'traces.everything.records', 'traces.gpu-alone.bytes_per_record'),
    'torch-pipeline': row(115, 220, 100, *(f'ways.{way}.exit' for way in torchparts.PIPELINE_WAYS), 'alone.counts.ours',
                          'alone.durations.ratio', 'raw.records.5', 'both.records.joined', 'both.stages.stages',
                          'profiler_beside_it.counts.names_that_differ', 'library_beside_it.counts.names_that_differ'),
    'processes': row(35, 120, 60, *(f'{program}.{way}.exit' for program in ('spawned', 'forked', 'segments') for way in ('plain', 'everything'))),
    'pairs': row(25, 90, 20, 'profiles.exit', *(f'{name}.lines_that_differ' for name in torchparts.PAIRS[:4])),
    'samplers': row(15, 60, 5, 'samples', 'nvml.exit'),
    'tools': row(25, 120, 1),  # with ncu, compute-sanitizer and cuda-gdb
    'libraries': row(20, 120, 10),  # with JAX, CuPy and numba
    'soak': row(80, 120, 10, 'nodes', 'kernels', 'whole_launches', 'lost', 'device_growth_bytes', 'resident_growth_bytes',
                'own_cpu_seconds', 'trace.trace_bytes'),
    'train': row(60, 180, 60, 'exit', 'operators.compared', 'links.links', 'table.lines_that_differ'),
    'diffuse': row(1, 180, 1),  # a minute if diffusers is installed
}


def missing_figures(name, figures):
    """Returns the required figures that the part lacks."""
    def at(value, path):
        for key in path.split('.'):
            if isinstance(value, list) and key.isdigit() and int(key) < len(value):
                value = value[int(key)]
            elif isinstance(value, dict) and key in value:
                value = value[key]
            else:
                return False
        return value is not None
    return [path for path in PARTS[name].figures if not at(figures, path)]


def torch_facts(python, seconds, env=None):
    """Returns torch's facts about itself and its GPU, or the error of its import."""
    code = ('import json, sys, torch; c = torch.cuda.is_available(); n = torch.cuda.device_count() if c else 0; '
            'print(json.dumps({"python": sys.version.split()[0], "torch": torch.__version__, "available": c, '
            '"cuda": torch.version.cuda, "gpus": [torch.cuda.get_device_name(i) for i in range(n)], '
            '"cudnn": torch.backends.cudnn.version() if c else None, '
            '"nccl": ".".join(map(str, torch.cuda.nccl.version())) if c else None}))')
    result = execute([python, '-c', code], env or environment(PLAIN), seconds)
    facts = last_json(result.out)
    return facts if facts else {'error': result.err[-500:] or f'{python} failed'}


if __name__ == '__main__':
    sys.exit('parts: run scripts/gpu-check')
