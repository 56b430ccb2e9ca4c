"""truth - runs programs on the simulated GPU and reads its log; computes the cost of work by a script.

It shares no code with the analyser or with the device model, whose results are compared with it.
"""

import fnmatch
import json
import re
from pathlib import Path
from types import SimpleNamespace

from conftest import BUILD, COMMAND_TIMEOUT, built, clean_environment, execute

STANDARD = ['memcpy_dtod 1us + 0.001ns*bytes', 'memcpy_* 1us + 0.04ns*bytes', 'memset 1us + 0.001ns*bytes', '* 2us + 10ns*blocks']
PICOSECONDS = {'ns': 10 ** 3, 'us': 10 ** 6, 'ms': 10 ** 9, 's': 10 ** 12}
LATENCY = 1000


def environment(directory, script=None, **more):
    """The variables for a program on the simulated GPU with its log and its script in that directory."""
    env = {**clean_environment(), 'LD_LIBRARY_PATH': str(built(BUILD / 'simgpu' / 'libcuda.so.1').parent),
           'SIMGPU_LOG': str(Path(directory) / 'truth-%p.jsonl')}
    if script:
        (Path(directory) / 'script').write_text('\n'.join(script) + '\n')
        env['SIMGPU_SCRIPT'] = str(Path(directory) / 'script')
    return {**env, **{k: str(v) for k, v in more.items()}}


def run(directory, command, script=None, timeout=COMMAND_TIMEOUT, **more):
    """Runs the command; the result has rc, out, err, and the logs of its processes (see read)."""
    result = execute(command, environment(directory, script, **more), directory, timeout)
    logs = [read(p) for p in Path(directory).glob('truth-*.jsonl')]
    result.logs = sorted(logs, key=lambda log: log.calls[0]['start'] if log.calls else 0)
    return result


def read(path):
    """calls, work (kernels, copies, sets, host functions, in the order of the log), syncs, devices."""
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    kinds = ('kernel', 'memcpy', 'memset', 'host')
    log = SimpleNamespace(devices={x['device']: x for x in lines if x['t'] == 'device'},
                          calls=[x for x in lines if x['t'] == 'call'], work=[x for x in lines if x['t'] in kinds],
                          syncs=[x for x in lines if x['t'] == 'sync'])
    for x in log.work + log.syncs:
        anchor = log.devices[x['device']]['monotonic']
        x['host_start'], x['host_end'], x['host_submitted'] = (x[k] + anchor for k in ('start', 'end', 'submitted'))
    return log


def cost(work, script=()):
    """The cost of work in nanoseconds, by the first line of the script that matches."""
    blocks = work['grid'][0] * work['grid'][1] * work['grid'][2]
    threads = blocks * work['block'][0] * work['block'][1] * work['block'][2]
    amounts = {'': 1, 'blocks': blocks, 'threads': threads, 'bytes': work['bytes']}
    for line in [*script, *STANDARD]:
        glob, _, terms = line.partition(' ')
        if glob == 'latency' or not fnmatch.fnmatchcase(work['name'], glob):
            continue
        total = 0
        for whole, part, unit, amount in re.findall(r'(\d+)(?:\.(\d+))?(ns|us|ms|s)(?:\s*\*\s*(\w+))?', terms):
            ps = int(whole) * PICOSECONDS[unit] + int(part or 0) * PICOSECONDS[unit] // 10 ** len(part)
            total += ps * amounts[amount]
        return total // 1000
    raise AssertionError(work)
