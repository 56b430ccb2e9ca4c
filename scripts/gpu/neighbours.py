"""neighbours - the parts of gpu-check about other software of the device: tools, libraries without a shared runtime, ways to
start processes, samplers of our own, and SIGKILL amid launches.

What a machine does not have is named as not run. No part says more than: the program ends as it does without the library,
and the trace has its work.
"""

import glob
import json
import shutil
import time

import basics
import torchparts
from common import DIFFUSION, EVERYTHING, HERE, PLAIN, execute, last_json, tfanalyze, trace_figures

# ---- debuggers and profilers ----

TOOLS = {'ncu': ['--target-processes', 'application-only'], 'compute-sanitizer': [], 'cuda-gdb': ['-batch', '-ex', 'run', '--args']}
PLACES = ('/usr/local/cuda*/bin', '/opt/nvidia/nsight-compute/*', '/usr/local/cuda*/nsight-compute*')


def tool(name):
    found = shutil.which(name)
    places = sorted(path for place in PLACES for path in glob.glob(f'{place}/{name}'))
    return found or (places[-1] if places else None)


def under(part, name, path, how):
    run = part.run
    directory = run.directory(f'tools-{name}')
    result = run.execute([path, *TOOLS[name], DIFFUSION, '--json'], run.c_environment(how, directory), 60)
    answer = next((json.loads(line) for line in result.out.splitlines() if line.startswith('{"counts"')), last_json(result.out))
    told = {'exit': result.rc, 'seconds': round(result.seconds, 2), 'answer': answer, 'said': result.said[:5]}
    if result.rc:
        told['error'] = (result.err or result.out)[-500:]
    return told


def tools(part):
    """ncu, compute-sanitizer and cuda-gdb end as without the library, and the program says the same."""
    for name in TOOLS:
        path = tool(name)
        if not path:
            part.not_run.append(f'{name}: it is not installed')
            continue
        plain, ours = (part.way(f'{name}, {way}', lambda how=how: under(part, name, path, how))
                       for way, how in (('plain', PLAIN), ('everything', EVERYTHING)))
        part.figures[name] = {'plain': plain, 'everything': ours}
        if any(plain[k] != ours[k] for k in ('exit', 'answer')):
            part.wrong(name, ours=ours, plain=plain)


# ---- libraries with a runtime of their own ----

LIBRARIES = {
    'jax': '''import json, sys, jax, jax.numpy as jnp
f = jax.jit(lambda x: (x * 2 + 1).sum())
x = jnp.arange(1000.0)
f(x).block_until_ready()
with jax.profiler.trace(sys.argv[1]):
    f(x).block_until_ready()
f(x).block_until_ready()
print(json.dumps({"answer": float(f(x)), "kernels": 4, "device": jax.devices()[0].platform}))''',
    'cupy': '''import json, cupy
x = cupy.arange(1000, dtype="f4")
for _ in range(10): x = x * 2 + 1
print(json.dumps({"answer": float(x[1]), "kernels": 20}))''',
    'numba': '''import json, numpy
from numba import cuda
@cuda.jit
def inc(x):
    i = cuda.grid(1)
    if i < x.size: x[i] += 1
a = cuda.to_device(numpy.zeros(1000, numpy.float32))
for _ in range(10): inc[8, 128](a)
print(json.dumps({"answer": float(a.copy_to_host()[1]), "kernels": 10}))'''}


def library(part, name, how):
    """CUPTI has to be found without TFI_CUPTI_PATH."""
    run = part.run
    directory, out = run.directory(f'libraries-{name}'), run.directory(f'libraries-{name}-out')
    env = run.torch_environment(how, directory)
    env.pop('TFI_CUPTI_PATH', None)
    result = run.execute([run.python, '-c', LIBRARIES[name], out], env, 90)
    told = {'exit': result.rc, 'told': last_json(result.out), 'said': result.said[:5], 'error': result.err[-300:] if result.rc else None}
    if how is not PLAIN:
        told['trace'] = trace_figures(directory)
    return told


def libraries(part):
    """JAX in and out of its profiler, CuPy and numba: the answers are the same, and the trace has their kernels."""
    for name in LIBRARIES:
        have = part.run.execute([part.run.python, '-c', f'import {name}'], part.run.torch_environment(PLAIN), 60)
        if have.rc or part.run.simulated:
            part.not_run.append(f'{name}: it cannot be imported' if have.rc else f'{name}: not on the simulated GPU')
            continue
        plain, ours = (part.way(f'{name}, {way}', lambda how=how: library(part, name, how))
                       for way, how in (('plain', PLAIN), ('everything', EVERYTHING)))
        part.figures[name] = {'plain': plain, 'everything': ours}
        if any(plain[k] != ours[k] for k in ('exit', 'told')):
            part.wrong(name, ours=ours, plain=plain)
        kernels = ours['trace'].get('events', {}).get('kernel', 0)
        if plain['told'] and kernels < plain['told']['kernels']:
            part.wrong(f'{name}: kernels', ours=kernels, asked_for=plain['told']['kernels'], said=ours['said'])


# ---- processes ----

def processes(part):
    """Spawned and forked children and expandable segments do what they do without the library."""
    for program in ('spawned', 'forked', 'segments'):
        plain, ours = (part.way(f'{program}, {way}', lambda how=how, way=way: torchparts.work(part, f'{program}-{way}', program, how, 90)[0])
                       for way, how in (('plain', PLAIN), ('everything', EVERYTHING)))
        part.figures[program] = {'plain': plain, 'everything': ours}
        if any(plain[k] != ours[k] for k in ('exit', 'told')):
            part.wrong(program, ours={k: ours.get(k) for k in ('exit', 'told', 'error', 'said')}, plain=plain)


# ---- our own samplers ----

def sampled(part):
    return basics.play(part, 'nvml', ['noise'], {'TFI_NVML_HZ': '10'}, 60)[0]


def planned(part):
    return torchparts.work(part, 'plugin', 'one_rank', {'TFI_NCCL_PLUGIN': '1'}, 90)[0]


def samplers(part):
    """TFI_NVML_HZ=10 under load has ten samples a second, and TFI_NCCL_PLUGIN=1 the plans of one rank's collectives."""
    told = part.figures['nvml'] = part.way('nvml', lambda: sampled(part))
    samples = part.figures['samples'] = told['trace'].get('events', {}).get('device_sample', 0)
    if told['exit'] or samples < 8 * told['seconds'] / 2:
        part.wrong('samples of NVML', exit=told['exit'], ours=samples, seconds=told['seconds'], said=told['said'])
    if part.run.simulated:
        part.not_run.append('plugin: the simulated GPU of gpu-check has no NCCL')
        return
    told = part.figures['plugin'] = part.way('plugin', lambda: planned(part))
    if told['exit'] or not told['trace'].get('events', {}).get('collective'):
        part.wrong('collectives of one rank', exit=told['exit'], error=told.get('error'), events=told['trace'].get('events'))


# ---- SIGKILL ----

def shot(part):
    """Kills a program that launches without pause; returns the age of the last record of the device.

    The dump of all records would take a minute, so only the last seconds are read."""
    run = part.run
    directory = run.directory('killed-launching')
    more = basics.simulated_times(run)
    result = execute([run.python, f'{HERE}/driver.py', 'hurry'], run.c_environment(EVERYTHING, directory, more), run.deadline.within(4))
    now, told = time.time_ns(), {'killed': result.stopped, 'said': result.said[:5], 'error': result.err[-300:], 'kernels': 0}
    for back in (1, 2, 4):
        answer, told['error'] = tfanalyze('dump', '--from', str(max(result.seconds - back, 0)), directory)
        work = [row['values'] for row in (answer or {'rows': []})['rows'] if row['kind'] == 'kernel']
        if work:
            end = max(v['start_ns'] + v['duration'] for v in work)
            return {**told, 'kernels': len(work), 'age_ms': round((now - end) / 1e6, 1)}
    return told


def killed(part):
    """SIGKILL amid launches without pause: how old the last device record is."""
    told = part.way('shot', lambda: shot(part))
    part.figures.update(told)
    if not told['killed'] or not told['kernels']:
        part.wrong('no device record was there', **told)


PARTS = {'tools': tools, 'libraries': libraries, 'processes': processes, 'samplers': samplers, 'killed': killed}
