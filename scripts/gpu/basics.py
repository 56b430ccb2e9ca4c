"""basics - the parts of gpu-check that need no torch, or only try to import it: facts of the machine, and bad ends.

The programs of driver.py use the CUDA driver alone. Each runs plain and under the library. The parts compare its answer,
its end and its number of kernels with the plain run and with the trace.
"""

import collections
import json
import os
import platform
import re
import shutil

import driver
import raw
import traces
from common import (DIFFUSION, EVERYTHING, HERE, LIBRARY, PLAIN, RAW, environment, execute, last_json, tfanalyze,
                    trace_figures)

# ---- facts ----

# Queries one CUPTI in a separate process, because it may crash. The ids end where cuptiGetCallbackName first fails.
ASK_CUPTI = '''
import ctypes, json, sys
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
cupti = ctypes.CDLL(sys.argv[1])
version, sizes, name = ctypes.c_uint32(), {}, ctypes.c_char_p()
cupti.cuptiGetVersion(ctypes.byref(version))
for title, domain in (("driver", 1), ("runtime", 2)):
    cbid = 1
    while cupti.cuptiGetCallbackName(domain, cbid, ctypes.byref(name)) == 0:
        cbid += 1
    sizes[title] = cbid
told = {"version": version.value, "sizes": sizes}
if len(sys.argv) > 2:
    which = {"driver": cupti.cuptiActivityEnableDriverApi, "runtime": cupti.cuptiActivityEnableRuntimeApi}[sys.argv[2]]
    told["result"] = which(ctypes.c_uint32(int(sys.argv[3])), ctypes.c_uint8(1))
print(json.dumps(told))
'''
BEYOND = 1023


def first_line(path):
    try:
        with open(path) as file:
            return file.readline().strip()
    except OSError:
        return 'unknown'


def ask_cupti(part, path, *arguments):
    result = part.run.execute([part.run.python, '-c', ASK_CUPTI, path, *arguments], part.run.c_environment(PLAIN), 20)
    return {**(last_json(result.out) or {'error': result.err[-300:]}), 'exit': result.rc}


def own_calls():
    """Returns the driver's functions that it calls through its own table, where a preloaded library would see them."""
    found = [line.split()[-1] for line in execute(['ldconfig', '-p'], environment(PLAIN), 10).out.splitlines() if 'libcuda.so.1 ' in line]
    if not found or not shutil.which('readelf'):
        return 'unknown'
    rows = execute(['readelf', '-rW', found[0]], environment(PLAIN), 20).out.splitlines()
    names = {row.split()[4].split('@')[0] for row in rows if 'JUMP_SLO' in row and len(row.split()) > 4}
    return sorted(name for name in names if re.match(r'cu[A-Z]', name))[:40]


def facts(part):
    """Collects the facts of this machine that decide how the library behaves."""
    run = part.run
    path = run.cupti()
    said = part.figures['cupti'] = {'path': path and os.path.realpath(path)}
    part.figures.update(glibc=platform.libc_ver()[1], cpus=os.cpu_count(), kernel=os.uname().release,
                        clocksource=first_line('/sys/devices/system/clocksource/clocksource0/current_clocksource'))
    part.figures['driver calls itself'] = part.way('own calls', own_calls)
    if not path:
        part.wrong('no CUPTI is found')
        return
    said.update(part.way('cupti', lambda: ask_cupti(part, path)))
    if 'sizes' not in said:
        part.wrong('CUPTI does not answer', said=said)
        return
    for api, size in said['sizes'].items():
        for number in (size, BEYOND):
            said[f'enable {api} {"SIZE" if number == size else number}'] = part.way(
                f'{api} {number}', lambda: ask_cupti(part, path, api, str(number)))
    part.figures['the library'] = part.way('library', lambda: with_library(part))


def with_library(part):
    """Returns the library's messages about the CUPTI that it found."""
    directory = part.run.directory('facts')
    env = part.run.c_environment({**EVERYTHING, 'TFI_LOG': 'debug'}, directory)
    result = part.run.execute([DIFFUSION, '--json'], env, 30)
    return {'exit': result.rc, 'said': [line for line in result.said if 'upti' in line.lower()][:10]}


# ---- no device ----

DRIVERLESS = {
    'cudart': 'import ctypes, sys; r = ctypes.CDLL(sys.argv[1]); print(r.cudaSetDevice(0), r.cudaFree(None), r.cudaGetLastError())',
    'cuda': 'import ctypes\ntry: print(ctypes.CDLL("libcuda.so.1").cuInit(0))\nexcept OSError: print("no driver")',
    'torch': 'import torch; print(torch.cuda.is_available(), torch.cuda.device_count()); print(torch.ones(3).sum().item())'}


def hide_driver(part):
    """Makes a directory whose libcuda.so.1 is not a library, to hide the driver from a program."""
    directory = part.run.directory('no-driver')
    with open(f'{directory}/libcuda.so.1', 'w') as file:
        file.write('This is no library.\n')
    return directory


def driverless(part, program, hidden, how):
    run = part.run
    env = run.torch_environment(how, run.directory(f'no-device-{program}'))
    before = env.get('LD_LIBRARY_PATH')
    env.update({'LD_LIBRARY_PATH': ':'.join(filter(None, [hide_driver(part), before]))} if hidden
               else {'CUDA_VISIBLE_DEVICES': ''})
    result = run.execute([run.python, '-c', DRIVERLESS[program], run.cudart()], env, 90)
    return {'exit': result.rc, 'out': result.out, 'seconds': round(result.seconds, 2), 'said': result.said[:5]}


def no_device(part):
    """Without a driver or a visible device, a program ends as it does without the library."""
    for program in DRIVERLESS:
        for hidden in (True, False):
            title = f'{program}, {"libcuda hidden" if hidden else "no device visible"}'
            plain, ours = (part.way(f'{title}, {name}', lambda: driverless(part, program, hidden, how))
                           for name, how in (('plain', PLAIN), ('everything', EVERYTHING)))
            part.figures[title] = {'plain': plain, 'everything': ours}
            if any(plain[k] != ours[k] for k in ('exit', 'out')):
                part.wrong(title, ours=ours, plain=plain)


# ---- programs of driver.py ----

def play(part, name, arguments, how, seconds, more=None, asked=True):
    """Runs a program and, unless that is done later, reads its trace."""
    run = part.run
    directory = run.directory(f'{part.name}-{name}')
    more = {**(more or {}), **simulated_times(run)}
    result = run.execute([run.python, f'{HERE}/driver.py', *arguments], run.c_environment(how, directory, more), seconds)
    told = {'exit': result.rc, 'seconds': round(result.seconds, 3), 'told': last_json(result.out), 'said': result.said[:5]}
    if result.rc in (1, driver.FAILED):
        told['error'] = result.err[-500:]
    if how is not PLAIN and asked:
        told['trace'] = trace_figures(directory)
    return told, result, directory


def simulated_times(run):
    if not run.simulated:
        return {}
    path = f'{run.work}/simulated-times'
    with open(path, 'w') as file:
        file.write('spin 300ms\ntiny* 1us\n')
    return {'SIMGPU_SCRIPT': path}


def rows_of(directory, *kinds):
    answer, error = tfanalyze('dump', directory)
    return [row for row in answer['rows'] if row['kind'] in kinds] if answer else [], error


# ---- threads ----

def many_threads(part):
    told, _, directory = play(part, 'everything', ['threads'], EVERYTHING, 60)
    rows, told['error'] = rows_of(directory, 'kernel', 'call')
    streams = collections.Counter(str(row['values']['stream']) for row in rows if row['kind'] == 'kernel')
    launches = collections.Counter(str(row['tid']) for row in rows if row['values'].get('func') == 'cuLaunchKernel')
    told.update(kernels_by_stream=streams, launches_by_thread=launches)
    return told


def threads(part):
    """Counts each thread's kernels on its own stream against its launches."""
    plain = part.way('plain', lambda: play(part, 'plain', ['threads'], PLAIN, 60)[0])
    ours = part.way('everything', lambda: many_threads(part))
    part.figures.update(plain=plain, everything=ours)
    asked = (ours['told'] or {}).get('asked_for', {})
    part.figures['asked_for'] = sum(asked.values())
    if ours['exit'] != plain['exit'] or not asked:
        part.wrong('it ends in another way', ours=ours['exit'], plain=plain['exit'], error=ours.get('error'))
    if sorted(ours['kernels_by_stream'].values()) != sorted(asked.values()):
        part.wrong('kernels by stream', ours=ours['kernels_by_stream'], asked_for=sorted(asked.values()))
    if ours['launches_by_thread'] != asked:
        part.wrong('launches by thread', ours=ours['launches_by_thread'], asked_for=asked)
    part.not_whole('everything', ours['trace'])


# ---- ends ----

def ended(part, case, how):
    """Fetches device records often, so that the trace has all work done before any kind of end."""
    how = how if how is PLAIN else {**how, 'TFI_FLUSH_MS': '10' if case == 'capture' else '100'}
    told = play(part, case, ['end', case], how, 60)[0]
    told['kernels'] = (told.get('trace') or {}).get('events', {}).get('kernel', 0)
    return told


def ends(part):
    """A program ends in every way as it does without the library, and the trace has the work done before."""
    for case in driver.CASES:
        plain = part.way(f'{case}, plain', lambda: ended(part, case, PLAIN))
        ours = part.way(f'{case}, everything', lambda: ended(part, case, EVERYTHING))
        part.figures[case] = {'plain': plain, 'everything': ours,
                              'later_seconds': round(ours['seconds'] - plain['seconds'], 3)}
        different = case != 'capture' and ours['told'] != plain['told']
        if ours['exit'] != plain['exit'] or different:
            part.wrong(case, ours={k: ours.get(k) for k in ('exit', 'told', 'error')}, plain=plain)
        launched = (ours['told'] or {}).get('launched', 0)
        if ours['kernels'] < launched:
            part.wrong(f'{case}: kernels that were done before the end', ours=ours['kernels'], launched=launched)


# ---- injection ----

def injected(part):
    """Lets the driver load the library, without LD_PRELOAD."""
    run = part.run
    directory = run.directory('injection')
    env = run.c_environment(PLAIN, more={'CUDA_INJECTION64_PATH': LIBRARY, 'TFI_OUTPUT_DIR': directory,
                                         **({} if run.simulated else {'TFI_CUPTI_PATH': run.cupti() or ''})})
    result = run.execute([DIFFUSION, '--json'], env, 60)
    told = {'exit': result.rc, 'answer': last_json(result.out), 'said': result.said[:10], 'trace': trace_figures(directory)}
    stages, _ = tfanalyze('stages', directory)
    told['stages'] = {row['stage']: row['calls'] for row in stages['rows']} if stages else {}
    return told


def injection(part):
    """CUDA_INJECTION64_PATH alone gives NVTX stages and device records."""
    directory = f'{part.run.work}/injection'
    told = part.way('injected', lambda: injected(part), [directory])
    part.figures.update(told)
    part.files.update(traces.files_of(directory, 'traces/injection.tfr'))
    counts = (told['answer'] or {}).get('counts', {})
    wanted = sum(n for kinds in counts.values() for k, n in kinds.items() if k in ('fill', 'axpy', 'matmul'))
    part.figures.update(kernels=told['trace'].get('events', {}).get('kernel', 0), kernels_asked_for=wanted)
    if told['exit']:
        part.wrong('the program failed', exit=told['exit'])
    if part.figures['kernels'] != wanted or not wanted:
        part.wrong('kernels', ours=part.figures['kernels'], asked_for=wanted)
    if told['stages'] != {'text_encode': 1, 'denoise': 1, 'step': 8, 'vae_decode': 1}:
        part.wrong('stages', ours=told['stages'])


# ---- api noise ----

def noisy(part):
    told, _, directory = play(part, 'everything', ['noise'], EVERYTHING, 60)
    rows, told['error'] = rows_of(directory, 'call')
    own = (told['told'] or {}).get('own', {})
    told['calls'] = collections.Counter(f'{"own" if str(row["tid"]) in own else row["tid"]} {row["values"]["func"]}'
                                        for row in rows)
    return told


def api_noise(part):
    """Finds driver calls in our trace by threads that are not the program's: those of CUPTI or of the driver."""
    told = part.way('everything', lambda: noisy(part))
    part.figures.update(told, foreign={k: n for k, n in told['calls'].items() if not k.startswith('own ')})
    if not told['calls']:
        part.wrong('no calls in the trace', exit=told['exit'], error=told['error'])
    if part.figures['foreign']:
        part.wrong('calls of threads that are not the program\'s', calls=part.figures['foreign'])


# ---- soak ----

def soaked(part):
    run = part.run
    seconds = 4 if run.simulated else max(20, min(60, run.deadline.left() - 25))
    more = {'SOAK_SECONDS': str(seconds), **({'SOAK_NODES': '300000'} if run.simulated else {})}
    told, result, _ = play(part, 'everything', ['soak'], EVERYTHING, seconds + 60, more, asked=False)
    told['seconds_of_it'] = [json.loads(line) for line in result.out.splitlines() if line.startswith('{')][:-1]
    return told


GROWTH = 256 << 20  # of the device's memory, in a loop that allocates nothing


def growth(told, series):
    """Returns the growth of a figure from the first second to the end."""
    last = told['told']
    if not series or not last:
        return {}
    return {'device_growth_bytes': last['device_bytes'] - series[0]['device_bytes'],
            'resident_growth_bytes': last['resident_bytes'] - series[0]['resident_bytes'],
            'own_cpu_seconds': sum(c[2] for c in last['cpu'] if c[0] != last['main'])}


def soak(part):
    """Replays 26 million nodes, or until time is up: times stay valid, and memory does not grow."""
    directory = f'{part.run.work}/soak-everything'
    told = part.way('everything', lambda: soaked(part), [directory])
    trace, asked = part.way('trace', lambda: trace_figures(directory)), (told['told'] or {}).get('nodes', 0)
    lost, events = {**(trace.get('lost') or {}), **(trace.get('counted') or {})}, trace.get('events', {})
    kernels, launches = events.get('kernel', 0), events.get('graph_launch', 0)
    part.figures.update(told, trace=trace, nodes=asked, kernels=kernels, whole_launches=launches, lost=lost,
                        **growth(told, told['seconds_of_it']))
    if told['exit'] or not asked:
        part.wrong('it failed', exit=told['exit'], error=told.get('error'))
    elif kernels + sum(lost.values()) + launches * driver.NODES < asked:
        part.wrong('kernels', ours=kernels, asked_for=asked, lost=lost, whole_launches=launches)
    if lost or launches:
        part.missed.append({'what': 'soak: nodes without a record of their own', 'of': asked, 'lost': lost,
                            'whole_launches': launches, 'said': told['said']})
    if part.figures.get('device_growth_bytes', 0) > GROWTH:
        part.missed.append({'what': 'soak: the device\'s memory grew', 'bytes': part.figures['device_growth_bytes']})


# ---- raw buffers ----

RAW_WAYS = {'nodes': [1, 2, 4, 8, 9, 10, 11, 17, 22, 36, 37, 38, 45, 49, 50, 52], 'graphs': [1, 2, 10, 51],
            'serial': [3],  # CUPTI cannot record kernels serially (3) and concurrently (10) at once
            'serial after concurrent': [10, 3, 4], 'no calls': [1, 2, 10], 'clock before': [4, 10], 'clock after': [4, 10],
            'clock again': [4, 10], 'graphs late': [4, 10]}
RAW_MORE = {'clock before': {'CUPTI_RAW_CLOCK': 'before'}, 'clock after': {'CUPTI_RAW_CLOCK': 'after'},
            'clock again': {'CUPTI_RAW_CLOCK': 'again'}, 'graphs late': {'CUPTI_RAW_LATE': '51'}}
KEPT = ('nodes', 'graphs', 'serial')  # their buffers go into the archive


def raw_variables(run, path, kinds):
    return {'CUPTI_RAW_LIBRARY': run.cupti() or '', 'CUPTI_RAW_OUT': path, 'CUPTI_RAW_KINDS': ','.join(map(str, kinds))}


def raw_told(result, path):
    found = raw.summary(path) if os.path.exists(path) else {'error': f'no file; {result.err[-300:]}'}
    refused = [line for line in result.err.splitlines() if line.startswith('cupti_raw:')]
    return {'exit': result.rc, 'told': last_json(result.out), 'refused': refused[:20], **found}


def raw_buffers(part, name, path):
    run = part.run
    more = {**raw_variables(run, path, RAW_WAYS[name]), **RAW_MORE.get(name, {}), **simulated_times(run)}
    env = {**run.c_environment(PLAIN, more=more), 'LD_PRELOAD': RAW}
    return raw_told(run.execute([run.python, f'{HERE}/driver.py', 'noise' if name in RAW_MORE else 'kinds'], env, 60), path)


def raw_part(part):
    """Saves CUPTI's raw buffers of each kind of record, as a bare client gets them; counts their impossible times.

    The figures also say what a second kind of kernels, a clock of another client and graphs from now on do."""
    for name in RAW_WAYS:
        path = f'{part.run.work}/{name.replace(" ", "-")}.cupti-raw'
        told = part.figures[name] = part.way(name, lambda: raw_buffers(part, name, path), [path])
        if told['exit'] or told.get('error'):
            part.wrong(name, exit=told['exit'], error=told.get('error'), refused=told['refused'])
            continue
        if name in KEPT:
            part.files[f'raw-cupti/{name}.cupti-raw'] = path
        wanted = (told['told'] or {}).get('kernels')
        kernels = sum(told['records'].get(k, 0) for k in ('3', '10'))
        if name == 'nodes' and kernels != wanted:
            part.wrong('kernels of a bare client', theirs=kernels, asked_for=wanted)


PARTS = {'facts': facts, 'no-device': no_device, 'soak': soak, 'threads': threads, 'ends': ends, 'injection': injection,
         'api-noise': api_noise, 'raw-cupti': raw_part}
