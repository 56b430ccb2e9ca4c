"""torchparts - the parts of gpu-check about torch beside torch.profiler: sessions, CUDA graphs in stages, pairs, a pipeline.

The parts compare device work by name and count with torch.profiler in the same run, with a run without the library, and
with the launches that the program reports.
"""

import gzip
import json
import os
import shutil

import basics
import operators
import traces
from common import EVERYTHING, HERE, PLAIN, RAW, STAGES_ONLY, last_json, tfanalyze, trace_figures

CATEGORIES = ('kernel', 'gpu_memcpy', 'gpu_memset', 'cuda_runtime', 'cuda_driver')
PAIRS = ('elementwise', 'autograd', 'replay', 'copies', 'transformer')


def work(part, name, program, how, seconds):
    """Runs a program of torchwork.py; returns its answer and the directories of its files and of the trace."""
    run = part.run
    directory, out = run.directory(f'{part.name}-{name}'), run.directory(f'{part.name}-{name}-out')
    result = run.execute([run.python, f'{HERE}/torchwork.py', program, out], run.torch_environment(how, directory), seconds)
    told = {'exit': result.rc, 'seconds': round(result.seconds, 2), 'told': last_json(result.out) if not result.rc else None,
            'said': result.said[:10]}
    if result.rc:
        told['error'] = result.err[-1500:]
    if how is not PLAIN:
        told['trace'] = trace_figures(directory)
    return told, directory, out


def packed(path):
    with open(path, 'rb') as source, gzip.open(path + '.gz', 'wb') as target:
        shutil.copyfileobj(source, target)
    return path + '.gz'


# ---- sessions ----

def sessions_with(part):
    told, directory, _ = work(part, 'everything', 'sessions', EVERYTHING, 120)
    ours, _, told['trace_error'] = traces.our_work(directory)
    told['ours'] = {kind: sum(w.kind == kind for w in ours) for kind in traces.KINDS}
    told['impossible'] = traces.impossible(directory)
    return told


def sessions(part):
    """Runs five sessions of torch.profiler in one process: each is as without the library, and our trace has all their work."""
    plain = part.way('plain', lambda: work(part, 'plain', 'sessions', PLAIN, 120)[0])
    part.figures['plain'] = plain
    ours = part.figures['everything'] = part.way('everything', lambda: sessions_with(part))
    for name, told in part.figures.items():
        if not told['told']:
            part.wrong(f'{name}: failed', exit=told['exit'], error=told.get('error'))
            return
    for number, (a, b) in enumerate(zip(plain['told']['sessions'], ours['told']['sessions'])):
        for category in CATEGORIES:
            if a['counts'][category] != b['counts'][category]:
                part.wrong(f'session {number}: {category}', with_us=b['counts'][category], without=a['counts'][category],
                           calls={k: [a['calls'].get(k, 0), b['calls'].get(k, 0)] for k in {*a['calls'], *b['calls']}
                                  if a['calls'].get(k, 0) != b['calls'].get(k, 0)})
        for fault in ('before_their_launch', 'without_launch', 'zero_times'):
            if b[fault] > a[fault]:
                part.wrong(f'session {number}: {fault}', with_us=b[fault], without=a[fault])
    for kind, launched in (('kernel', 'kernels_launched'), ('copy', 'copies')):
        if ours['ours'][kind] < ours['told'][launched]:
            part.wrong(f'our {kind} records', ours=ours['ours'][kind], launched=ours['told'][launched])
    for fault in ('before_their_call', 'outside_the_run', 'longer_than_the_run'):
        if ours['impossible'].get(fault) and not part.run.simulated:  # its device runs ahead of the host
            part.wrong(f'our records: {fault}', ours=ours['impossible'])
    part.not_whole('everything', ours['trace'])


# ---- graphs ----

def stage_rows(directory, *arguments):
    """Returns {stage: {name: calls}} of the two stages that replay."""
    found = {}
    for stage in ('stage_add', 'stage_mul'):
        answer, error = tfanalyze('breakdown', '--stage', stage, *arguments, directory)
        found[stage] = {row['name'] or '(none)': row['calls'] for row in answer['rows']} if answer else {'error': error}
    return found


def graphs_with(part):
    told, directory, _ = work(part, 'everything', 'graphs', EVERYTHING, 120)
    return {**told, 'stages': stage_rows(directory), 'operators': stage_rows(directory, '--group-by', 'op')}


def graph_attribution(part):
    """Checks that each replayed kernel is in the stage of its replay, also after a second session, and has its operator."""
    plain = part.way('plain', lambda: work(part, 'plain', 'graphs', PLAIN, 120)[0])
    ours = part.way('everything', lambda: graphs_with(part))
    part.figures.update(plain=plain, everything=ours)
    if not plain['told'] or not ours['told']:
        part.wrong('failed', exits=[plain['exit'], ours['exit']], error=ours.get('error'), plain_error=plain.get('error'))
        return
    if ours['told']['profiled'] != plain['told']['profiled']:
        part.wrong('what torch.profiler has of replays', with_us=ours['told']['profiled'], without=plain['told']['profiled'])
    add, mul = (ours['stages'][stage] for stage in ('stage_add', 'stage_mul'))
    for stage, rows in ours['stages'].items():
        if sum(n for n in rows.values() if isinstance(n, int)) != ours['told']['replayed'][stage]:
            part.wrong(f'kernels in {stage}', ours=rows, replayed=ours['told']['replayed'][stage])
    if set(add) & set(mul):
        part.wrong('kernels of one graph in the stage of the other', both=sorted(set(add) & set(mul)))
    for stage, operator in (('stage_add', 'aten::add_'), ('stage_mul', 'aten::mul_')):
        named = ours['operators'][stage]
        if set(named) == {'(none)'}:
            part.missed.append({'what': f'operators of replayed kernels in {stage}: not known', 'ours': named})
        elif set(named) != {operator}:
            part.wrong(f'operators of replayed kernels in {stage}', ours=named, captured=operator)
    part.not_whole('everything', ours['trace'])


# ---- pairs ----

def pair(out, name):
    profile, table = f'{out}/{name}.json', f'{out}/{name}.table.txt'
    figures, wrong = operators.compare_table(f'pairs: printed table of {name}', profile, table)
    return {**figures, 'bytes': os.path.getsize(profile), 'disagreements': wrong, 'trace': packed(profile), 'table': table}


def pairs(part):
    """Compares the tables that torch printed of five profiles with those of tfanalyze."""
    out = f'{part.run.work}/{part.name}-plain-out'
    made = [f'{out}/{name}.json' for name in PAIRS if not (part.run.simulated and name == 'transformer')]
    told = part.way('profiles', lambda: work(part, 'plain', 'pairs', PLAIN, 180)[0], made)
    part.figures['profiles'] = told
    if not told['told']:
        part.wrong('failed', exit=told['exit'], error=told.get('error'))
        return
    for name in PAIRS:
        if 'not_run' in told['told'].get(name, {}):
            part.not_run.append(f'{name}: {told["told"][name]["not_run"]}')
            continue
        found = part.figures[name] = pair(out, name)
        part.disagreements += found.pop('disagreements')
        part.files[f'pairs/{name}.json.gz'], part.files[f'pairs/{name}.table.txt'] = found.pop('trace'), found.pop('table')


# ---- the pipeline ----

PIPELINE_WAYS = {'plain': (PLAIN, False), 'everything': (EVERYTHING, False), 'profiler': (PLAIN, True),
                 'both': (EVERYTHING, True), 'stages-only': (STAGES_ONLY, False), 'plain-again': (PLAIN, False)}


def run_pipeline(part, name, how, profile):
    run = part.run
    directory, out = run.directory(f'torch-{name}'), run.directory(f'torch-{name}-out')
    result = run.execute([run.python, f'{HERE}/pipeline.py', '--out', out] + ['--profile'] * profile,
                         run.torch_environment(how, directory), 150)
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
    return figures


def raw_pipeline(part, path):
    """Runs the pipeline with a bare client of CUPTI, which also gets runtime calls and NVIDIA's own kernels."""
    run = part.run
    more = basics.raw_variables(run, path, [1, 2, 4, 5, 10, 17, 22, 36, 37, 38, 49, 50])
    result = run.execute([run.python, f'{HERE}/pipeline.py', '--out', run.directory('torch-raw-out')],
                         run.torch_environment(PLAIN, more=more, preload=[RAW]), 150)
    return basics.raw_told(result, path)


def compare_outputs(ways, disagreements):
    """Compares each scene's output with the plain run's; a scene whose two plain runs differ is not repeatable."""
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
    """Compares the library alone with torch.profiler alone by names and counts, and both in one run by every record."""
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


def torch_pipeline(part):
    """Runs products, attention, convolutions, a graph, compiled code, collectives and gradients in six ways."""
    ways, run = part.figures.setdefault('ways', {}), part.run
    directories = {name: f'{run.work}/torch-{name}' for name in PIPELINE_WAYS}
    profiles = {name: f'{directories[name]}-out/kineto.json' for name in PIPELINE_WAYS}
    for name, (how, profile) in PIPELINE_WAYS.items():
        needs = [directories[name]] * (how is not PLAIN) + [profiles[name]] * profile
        ways[name] = part.way(name, lambda: run_pipeline(part, name, how, profile), needs)
    part.not_run += compare_outputs(ways, part.disagreements)
    if not os.path.exists(profiles['profiler']) or not os.path.exists(profiles['both']):
        part.not_run.append('comparison with torch.profiler: it left no trace')
        return
    for name in ('everything', 'both', 'stages-only'):
        part.not_whole(name, ways[name]['trace'])
    compare_torch(directories, profiles, part.figures, part.disagreements)
    path = f'{run.work}/torch.cupti-raw'
    told = part.figures['raw'] = part.way('raw', lambda: raw_pipeline(part, path), [path])
    if told['exit'] or told.get('error'):
        part.wrong('with a bare client of CUPTI', exit=told['exit'], error=told.get('error'))
    else:
        part.files['raw-cupti/torch.cupti-raw'] = path
    part.files['torch/both.kineto.json.gz'] = packed(profiles['both'])
    for name in ('both', 'everything'):
        part.files.update(traces.files_of(directories[name], f'traces/torch-{name}.tfr'))


PARTS = {'sessions': sessions, 'graph-attribution': graph_attribution, 'pairs': pairs, 'torch-pipeline': torch_pipeline}
