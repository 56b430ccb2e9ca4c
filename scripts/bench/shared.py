"""shared.py - what the benches have in common: options, environments, the cost of a program, rounds in turn, lines of a table.

Times depend on the machine and the moment. All ways of a table therefore run in turn, and differences and ratios count.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = f'{ROOT}/build'
WORK = f'{BUILD}/bench'  # compiled programs and long traces stay here
LIBRARY, TFANALYZE, PYTHON = f'{BUILD}/libtfinject.so', f'{BUILD}/tfanalyze', f'{BUILD}/venv/bin/python'
SCRUBBED = re.compile('TFI_|ENABLE_PROFILER|LD_PRELOAD|TELEFUSER_|DFTRACER_|SIM(GPU|CUPTI)_')


def options(doc, rounds, *more):
    """Returns the options of the command line; `more` are pairs of arguments of add_argument."""
    name, _, says = doc.splitlines()[0].partition(' - ')
    parser = argparse.ArgumentParser(prog=name, description=says)
    parser.add_argument('--rounds', type=int, help=f'({rounds}, with --quick 1)')
    parser.add_argument('--quick', action='store_true', help='small counts, to see that the bench runs to its end')
    for names, how in more:
        parser.add_argument(*names, **how)
    asked = parser.parse_args()
    asked.rounds = asked.rounds or (1 if asked.quick else rounds)
    return asked


def preloaded(variables, directory, library=LIBRARY):
    """Returns the variables of a recorded program, none if `variables` is None."""
    return {} if variables is None else {'LD_PRELOAD': library, 'TFI_OUTPUT_DIR': directory, **variables}


def headers():
    """Returns {name: folder} of the vendors' headers."""
    with open(f'{BUILD}/headers.mk') as file:
        return dict(re.findall(r'^(\w+) = (.*)$', file.read(), re.M))


def compiled(target, source, *flags):
    """Builds build/bench/TARGET from a source of this folder; returns its path."""
    path = f'{WORK}/{target}'
    os.makedirs(os.path.dirname(path), exist_ok=True)
    subprocess.run([os.environ.get('CC', 'gcc'), '-O2', '-D_GNU_SOURCE', '-o', path, f'{ROOT}/scripts/bench/{source}', *flags], check=True)
    return path


def launcher():
    """Builds the program that launches kernels, and a driver whose calls do nothing; returns it and the driver's folder."""
    where = ['-isystem', headers()['CUDA_INC'], f'-I{ROOT}/include']
    driver = compiled('empty-driver/libcuda.so.1', 'cuda_driver.c', *where, '-shared', '-fPIC', '-Wl,-soname,libcuda.so.1')
    return compiled('cuda', 'cuda.c', *where, driver, '-pthread', '-ldl'), os.path.dirname(driver)


class Cost:
    """What a command cost: wall, user and CPU seconds, peak bytes; with its stdout and stderr, and what failed or None."""
    program = None

    def __init__(self, command, variables=None, good=(0,), discard=False):
        """Runs the command under run.c, because a process begins with the peak of the one that forks it."""
        Cost.program = Cost.program or compiled('run', 'run.c')
        settings = [f'{name}={value}' for name, value in (variables or {}).items()]
        with tempfile.NamedTemporaryFile('r') as figures:
            done = subprocess.run([Cost.program, figures.name, *settings, *map(str, command)], text=True, errors='replace',
                                  env={k: v for k, v in os.environ.items() if not SCRUBBED.match(k)}, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL if discard else subprocess.PIPE, stderr=subprocess.PIPE)
            self.wall, self.user, self.cpu, self.peak = map(float, figures.read().split() or '0000')
        self.out, self.err = done.stdout, done.stderr
        self.failed = None if done.returncode in good else f'{" ".join(map(str, command))}: exit {done.returncode}: {self.err[-500:]}'


def cost(*arguments, **more):
    """Returns the cost of a command that may not fail."""
    found = Cost(*arguments, **more)
    if found.failed:
        sys.exit(f'bench: {found.failed}')
    return found


def in_turn(ways, rounds):
    """Returns {title: values} of {title: function}, which run in turn."""
    found = {title: [] for title in ways}
    for _ in range(rounds):
        for title, measure in ways.items():
            found[title].append(measure())
    return found


def added(values, plain):
    """Returns the median of what a way adds to the plain one of the same round."""
    return statistics.median(a - b for a, b in zip(values, plain))


def show(title, values, plain=None, more=''):
    """Prints the median in ns, what it adds to the plain way, and the range."""
    adds = '' if plain in (None, values) else f'{added(values, plain):+9.1f} ns'
    print(f'  {title:42}{statistics.median(values):9.1f} ns {adds:>13}{more}   ({min(values):.1f} to {max(values):.1f})', flush=True)


def show_all(found, plain):
    for title, values in found.items():
        show(title, values, found[plain])


def verdict(good):
    return 'reached' if good else 'MISSED'


def aim(title, value, most):
    print(f'  aim: {title} adds at most {most} ns: {verdict(value <= most)}', flush=True)
