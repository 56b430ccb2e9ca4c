"""asking_harness - fixtures that run code with tfharness in an interpreter that has torch already."""

import json

import pytest

from conftest import ROOT, clean_environment


@pytest.fixture
def interpreter(forked):
    """interpreter(command, directory, environment) runs a script and its arguments in a fork: rc, out and err."""
    def interpreter(command, directory, environment, **more):
        return forked(['python', *command], {**clean_environment(), 'PYTHONPATH': ROOT / 'scripts', **environment}, directory, **more)
    return interpreter


@pytest.fixture
def ask(interpreter, tmp_path):
    """ask(code) -> the JSON of `answers`, which the code fills; tfharness, torch and T (tensor descriptions) are imported."""
    def ask(code, imports=(), **files):
        for name, text in files.items():
            (tmp_path / f'{name}.py').write_text(text)
        head = f'''
import contextlib, io, json, sys, torch, tfharness
sys.path.insert(0, {str(tmp_path)!r})
def T(shape, dtype='float32', device='cpu', grad=False, stride=None, **more):
    return dict(more, shape=shape, dtype=dtype, device=device, requires_grad=grad, stride=stride)
def make(d, **options):
    maker = tfharness.Inputs(**options)
    return maker.value(d, 'x'), maker.notes
answers = []
'''
        path = tmp_path / 'asked.py'
        path.write_text(head + code + '\nprint("ANSWERS" + json.dumps(answers))\n')
        done = interpreter([path], tmp_path, {}, imports=imports)
        assert done.rc == 0, done.out[-3000:] + done.err[-3000:]
        return json.loads(done.out.rpartition('ANSWERS')[2])
    return ask
