"""test_waking - the processes of a job that are recorded, and the moment at which recording starts.

Without ENABLE_PROFILER_NAMES a process is recorded from its first operator, block of torch's memory, device call or
stage. An import of torch and the helpers of preload/control/helper.def leave no file.
"""

import signal
import sys

import pytest

import tfr
from conftest import ROOT

# No operator of the first loop calls another one.
OPERATORS = 'import torch\nfor _ in range(20):\n    torch.empty(7)\nfor _ in range(1000):\n    torch.ones(3).add(1)\n'

# Runs operators and prints its arguments.
PROGRAM = 'import sys, torch\ntorch.ones(3).add(1)\nprint("ran", *sys.argv[1:])\n'


def traces(directory):
    return sorted(directory.rglob('*.tfr'))


def only(directory):
    path, = traces(directory)
    return tfr.read(path)


def test_every_operator_is_recorded(run, python, analyze):
    """Without a stage the first operators are in the trace (the first release needed a hundred to wake), all of them in the table."""
    result = run([python, '-c', OPERATORS])
    trace = only(result.dir)
    first = sorted((r.values for r in trace.records if r.kind == 'op'), key=lambda v: v['time'])[:21]
    assert [tfr.name_of(trace.strings, v['name']) for v in first] == ['aten::empty'] * 20 + ['aten::ones']
    out = analyze('dump', result.dir, format=None).out
    assert sum('"aten::empty"' in line and line.split()[1:2] != [] for line in out.splitlines()) == 1020
    calls = {row['name']: row['calls'] for row in analyze('ops', result.dir)['rows']}
    assert {name: calls[name] for name in ('aten::ones', 'aten::empty', 'aten::fill_', 'aten::add')} == {
        'aten::ones': 1000, 'aten::empty': 1020, 'aten::fill_': 1000, 'aten::add': 1000}


def test_an_import_of_torch_alone_leaves_no_file(run, python):
    result = run([python, '-c', 'import torch, torch.nn, torch.distributed'])
    assert result.rc == 0 and not result.err, result.err
    assert not result.dir.exists()


def test_the_first_block_of_memory_wakes_a_process_that_records_no_operators(run, python):
    result = run([python, '-c', 'import torch\nx = torch.empty(1000)\ndel x\ny = torch.empty(10)\n'],
                 env={'TFI_ACTIVITIES': 'mem'})
    assert [r.values['bytes'] for r in only(result.dir).records if r.kind == 'memory'][:3] == [4000, -4000, 40]


def test_the_agent_of_torchrun_leaves_no_file(run, python, tmp_path):
    (tmp_path / 'ranks.py').write_text(PROGRAM)
    result = run([python, '-m', 'torch.distributed.run', '--nproc-per-node', '2', tmp_path / 'ranks.py'])
    assert result.rc == 0 and result.out.count('ran') == 2, result.err
    assert [path.name.split('.')[0] for path in traces(result.dir)] == ['rank0', 'rank1']


@pytest.mark.soak
def test_compile_workers_leave_no_file(run, python, tmp_path):
    """inductor's compile workers leave no file; the parent counts them, so a release without them fails the test."""
    (tmp_path / 'compiled.py').write_text('''
import subprocess, torch
@torch.compile
def f(x):
    return (x * 2 + 1).relu().sum()
if __name__ == '__main__':
    from torch._inductor.async_compile import AsyncCompile
    AsyncCompile.warm_pool()
    print(float(f(torch.ones(100))))
    def workers():
        return subprocess.run(['pgrep', '-f', 'inductor/compile_worker'], stdout=subprocess.PIPE).stdout.split()
    print('workers:', len(workers()))
''')
    result = run([python, tmp_path / 'compiled.py'], env={'TORCHINDUCTOR_COMPILE_THREADS': 2}, timeout=300)
    assert result.rc == 0 and '300.0' in result.out, result.err
    assert 'workers: 0' not in result.out, 'inductor started no compile workers, so this test checked nothing'
    assert len(traces(result.dir)) == 1


HELPERS = [('script', 'torch/_inductor/compile_worker/__main__.py', []), ('script', 'bin/torchrun', ['--nproc-per-node=1']),
           ('script', 'bin/accelerate', ['launch', 'x.py']), ('script', 'torch/distributed/run.py', []),
           ('module', 'torch.distributed.run', []), ('module', 'torch._inductor.compile_worker', [])]
OTHERS = [('script', 'mytorchrun', []), ('script', 'pipeline.py', ['torchrun', '-m', 'torch.distributed.run']),
          ('script', 'worker.py', ['torch/_inductor/compile_worker/__main__.py'])]


@pytest.fixture(scope='module')
def stages():
    """A program that opens a stage, which wakes any process, and needs no torch."""
    return 'import ctypes, sys\nlib = ctypes.CDLL(None)\nlib.tfi_range_push(b"s")\nlib.tfi_range_pop()\nprint("ran")\n'


@pytest.mark.parametrize('how, path, arguments', HELPERS + OTHERS)
@pytest.mark.parametrize('options', [[], ['-u', '-X', 'dev', '-Wignore']], ids=['plain', 'options'])
def test_helpers_are_known_by_their_command_line(run, python, tmp_path, stages, how, path, arguments, options):
    """Only the interpreter's part of the command line counts; a script's arguments may be anything."""
    place = tmp_path / ('top/' + path if how == 'script' else 'top/' + path.replace('.', '/') + '.py')
    place.parent.mkdir(parents=True)
    for package in list(place.relative_to(tmp_path / 'top').parents)[:-1]:
        (tmp_path / 'top' / package / '__init__.py').touch()
    place.write_text(stages)
    start = [place] if how == 'script' else ['-m', path]
    result = run([python, *options, *start, *arguments], cwd=tmp_path / 'top', env={'PYTHONPATH': tmp_path / 'top'})
    assert (result.rc, result.out) == (0, 'ran\n'), result.err
    assert len(traces(result.dir)) == ((how, path, arguments) in OTHERS)


def test_the_resource_tracker_leaves_no_file(run, python):
    code = 'from multiprocessing.resource_tracker import main; import ctypes; ctypes.CDLL(None).tfi_range_push(b"s")'
    result = run([python, '-c', code])
    assert result.rc == 0 and not result.dir.exists()
    assert 'resource_tracker' in (ROOT / 'preload/control/helper.def').read_text()


@pytest.mark.parametrize('way', ['os.kill(os.getpid(), signal.SIGTERM)', 'signal.raise_signal(signal.SIGTERM)'])
def test_a_process_that_ends_itself_by_a_signal(run, way):
    """A server that was stopped cleans up and raises the signal again: its trace is complete, and the run has its line."""
    script = f'import os, signal, ctypes; ctypes.CDLL(None).tfi_range_push(b"a"); {way}'
    result = run([sys.executable, '-S', '-c', script])
    trace = only(result.dir)
    assert (result.rc, result.err, len(result.closing)) == (-signal.SIGTERM, '', 1)
    assert trace.complete and not list(result.dir.glob('*.live'))
