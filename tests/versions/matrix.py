"""matrix - what the library records with each release of torch, counted against torch.profiler of the same run.

    matrix.py [VERSION…]      prints a line of tests/data/torch_versions.csv for each release, all of them without VERSION

Each release is PyPI's wheel, installed for the time of its runs. The libraries of CUDA are those of stubs.py: there is no
device. A cell is FOUND/COUNTED: of the rows that torch.profiler counted in the range `measured`, those that the trace
has too, with the same values. tests/versions/test_matrix.py compares the lines with the recorded ones.
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import pythons  # noqa: E402
import stubs  # noqa: E402
import tfr  # noqa: E402

RECORDED = ROOT / 'tests/data/torch_versions.csv'
VERSIONS = ['2.0.1', '2.2.2', '2.4.1', '2.6.0', '2.8.0', '2.10.0', '2.12.1', '2.14.1', '2.15.0']
COLUMNS = ['torch', 'python', 'operators', 'shapes', 'values', 'flops', 'sequence', 'memory', 'collectives', 'stacks', 'modules', 'auto',
           'compile', 'beside', 'messages']
CELLS = COLUMNS[2:-1]
PURE = ['filelock', 'typing-extensions', 'sympy', 'networkx', 'jinja2', 'fsspec', 'setuptools']
MODULES = ('Net', 'Sequential', 'Linear', 'ReLU', 'TransformerEncoderLayer', 'MultiheadAttention', 'Dropout', 'LayerNorm')


def interpreter(version):
    """torch 2.0 compiles for Python 3.10 and older only; 2.15 has no wheel for it."""
    wanted = (3, 10) if tuple(map(int, version.split('.')[:2])) < (2, 15) else (3, 11)
    return next((p for p in pythons.SEEN if p.version[:2] == wanted), None)


def said(command, **env):
    plain = {k: v for k, v in os.environ.items() if not k.startswith(('TFI_', 'LD_', 'PYTHON'))}
    return subprocess.run([str(word) for word in command], env={**plain, **env}, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout


def install(version, folder):
    """Returns the environment's interpreter and the variables it needs."""
    python = folder / 'venv/bin/python'
    said([interpreter(version).path, '-m', 'venv', folder / 'venv'])
    pip = [python, '-m', 'pip', '--disable-pip-version-check', 'install', '-q', '--no-cache-dir', '--no-compile']
    said([*pip, '--no-deps', f'torch=={version}'])
    said([*pip, *PURE])
    libraries = next((folder / 'venv/lib').glob('python3.*/site-packages/torch/lib'))
    stubs.make(str(libraries), str(folder / 'stubs'))
    return python, {'LD_LIBRARY_PATH': str(folder / 'stubs'), 'GLOO_SOCKET_IFNAME': 'lo'}


def events(path, category):
    return [e for e in json.loads(path.read_text())['traceEvents'] if e.get('cat') == category]


def within(found, of):
    outer, = (e for e in of if e['name'] == 'measured')
    return [e for e in found if outer['ts'] <= e['ts'] <= outer['ts'] + outer.get('dur', 0)]


class Trace:
    """The records of a trace that lie in the stage `measured`."""

    def __init__(self, folder):
        path, = folder.glob('*.tfr')
        self.trace = tfr.read(path)
        end, = (r for r in self.trace.records if r.kind == 'range_end' and self.text(r.values['name']) == 'measured')
        self.window = end.values['time'] - end.values['duration'], end.values['time']

    def text(self, number):
        return self.trace.strings[number].decode() if number else None

    def of(self, kind):
        begin, end = self.window
        return [r for r in self.trace.records if r.kind == kind and begin <= r.values['time'] <= end]

    def texts(self, kind, *columns):
        return Counter(tuple(self.text(r.values[c]) for c in columns) for r in self.of(kind))


def share(ours, theirs):
    """Of what they counted, how many rows we have too."""
    ours, theirs = Counter(ours), Counter(theirs)
    return f'{sum((ours & theirs).values())}/{sum(theirs.values())}'


def text_of(args, name):
    return json.dumps(args[name]) if name in args else None


def without_lists(found):
    """Shapes and types without those of lists of numbers and of tensors, which torch 2.0's own profiler leaves empty."""
    out = Counter()
    for (name, shapes, types), n in found.items():
        kinds = [('' if t == 'ScalarList' else t) for t in json.loads(types or '[]')]
        out[name, json.dumps([[] if t == 'TensorList' else s for s, t in zip(json.loads(shapes or '[]'), kinds)]), json.dumps(kinds)] += n
    return out


def rows(folder, lists=True):
    """The cells of a run with shapes, FLOPs and memory."""
    compared = (lambda found: found) if lists else without_lists
    ours, path = Trace(folder / 'run'), folder / 'rows.json'
    ranges = events(path, 'user_annotation')
    theirs = within(events(path, 'cpu_op'), ranges)
    works = [e['name'] for e in within(ranges, ranges) if e['name'].startswith('gloo:')]
    blocks = [e['args']['Bytes'] for e in within([e for e in json.loads(path.read_text())['traceEvents'] if e['name'] == '[memory]'], ranges)]
    named = [e for e in theirs if e['args'].get('Input Dims')]
    valued = [e for e in theirs if e['args'].get('Concrete Inputs')]
    flops = (folder / 'flops.txt').read_text().splitlines()
    return {
        'operators': share((n for n, in ours.texts('op', 'name').elements()), (e['name'] for e in theirs)),
        'shapes': share(compared(ours.texts('op', 'name', 'shapes', 'types')),
                        compared(Counter((e['name'], text_of(e['args'], 'Input Dims'), text_of(e['args'], 'Input type')) for e in named))),
        'values': share(ours.texts('op', 'name', 'concrete'), Counter((e['name'], text_of(e['args'], 'Concrete Inputs')) for e in valued)),
        'flops': share((f"{ours.text(r.values['name'])} {r.values['flops']}" for r in ours.of('op') if r.values['flops']), flops),
        'sequence': share(((ours.text(r.values['name']), r.values['sequence']) for r in ours.of('op')),
                          ((e['name'], e['args']['Sequence number']) for e in theirs if e['args'].get('Sequence number', -1) >= 0)),
        'memory': share((r.values['bytes'] for r in ours.of('memory')), blocks),
        'collectives': share((ours.text(r.values['name']) for r in ours.of('framework_collective') if r.values['flags'] & 1), works),
        'messages': ' | '.join(sorted({ours.text(r.values['text']) for r in ours.trace.records if r.kind == 'message' and r.values['level'] <= 1})),
    }


def python_function(name):
    """The function of an event such as `module.py(12): function`, None for builtins and modules."""
    return name.split('): ', 1)[1] if '): ' in name and not name.startswith(('<', 'nn.Module')) else None


def python_frame(stack):
    """The innermost Python function of a stack of the library, without its class."""
    return next((function.split('.')[-1] for function, file, _ in stack if file.endswith('.py')), None)


def innermost(path):
    """[(operator, innermost Python function around it)] of the range."""
    ranges = events(path, 'user_annotation')
    found = [(e['ts'], -e['dur'], python_function(e['name']), None) for e in events(path, 'python_function') if python_function(e['name'])]
    found += [(e['ts'], -e['dur'], None, e) for e in within(events(path, 'cpu_op'), ranges)]
    tid = next(e['tid'] for e in ranges if e['name'] == 'measured')
    open_, out = [], []
    for ts, minus, function, operator in sorted(found, key=lambda f: f[:2]):
        while open_ and open_[-1][0] < ts - minus:
            open_.pop()
        if function:
            open_.append((ts - minus, function))
        elif operator['tid'] == tid and open_:
            out.append((operator['name'], open_[-1][1]))
    return out


def stacks(folder):
    """The cells of a run with Python stacks and modules."""
    ours, path = Trace(folder / 'run'), folder / 'stacks.json'
    ranges = events(path, 'user_annotation')
    frames = ((ours.text(r.values['name']), python_frame(tfr.stack_of(ours.trace.strings, r.values['stack']))) for r in ours.of('op') if r.values['stack'])
    called = Counter(e['name'].split(': ')[1].rsplit('_', 1)[0] for e in within(events(path, 'python_function'), ranges) if e['name'].startswith('nn.Module: '))
    modules = sum(1 for r in ours.of('range_end') if (ours.text(r.values['name']) + '.').startswith('Net.'))
    compiled = [e['name'] for e in within(events(path, 'cpu_op') + ranges, ranges) if 'Compiled' in e['name']]
    opened = Counter(ours.text(r.values['name']) for kind in ('op', 'range_end') for r in ours.of(kind))
    return {
        'stacks': share(frames, innermost(path)),
        'modules': f"{modules}/{sum(called[m] for m in MODULES)}",
        'auto': f"{opened['barrier']}/3",
        'compile': share(opened, compiled),
    }


def names(path):
    return Counter(e['name'] for category in ('cpu_op', 'user_annotation') for e in events(path, category))


def line_of(version):
    """Records and compares one release."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python, env = install(version, folder)
        for what, activities, depth in ('rows', 'cpu,gpu,mem,nccl,ops', 0), ('stacks', 'cpu,gpu,mem,nccl,ops,stack', 9):
            (folder / what).mkdir()
            said([ROOT / 'scripts/tfrun', '--quiet', '--activities', activities, '--output', folder / what / 'run', '--',
                  python, HERE / 'workload.py', what, folder / what], TFI_MODULE_DEPTH=str(depth), **env)
        (folder / 'plain').mkdir()
        said([python, HERE / 'workload.py', 'rows', folder / 'plain'], **env)
        shown = '%d.%d' % interpreter(version).version[:2]
        return {'torch': version, 'python': shown, **rows(folder / 'rows', version[:4] != '2.0.'), **stacks(folder / 'stacks'),
                'beside': share(names(folder / 'rows/rows.json'), names(folder / 'plain/rows.json'))}


def main(versions):
    out = csv.DictWriter(sys.stdout, COLUMNS, lineterminator='\n')
    out.writeheader()
    for version in versions or VERSIONS:
        out.writerow(line_of(version))
        sys.stdout.flush()


if __name__ == '__main__':
    main(sys.argv[1:])
