"""test_auto_calls - functions of frameworks that TFI_STAGES=auto makes stages of, called in every way Python has.

The framework is a module with the name of a real one. A Python that begins a call without looking at the function's
pointer (3.11) must see these calls too, and the program must not see that it does.
"""

import pythons
import tfr
from conftest import clean_environment, execute

by_version = pythons.by_version()
TRAINER = '''class Trainer:
    def training_step(self, model, inputs, *, scale=1):
        """Does a step."""
        if model is None:
            raise ValueError('no model')
        return scale * inputs

    def prediction_step(self, inputs):
        return self.training_step(1, inputs)
'''
SCRIPT = '''import inspect, traceback
from transformers.trainer import Trainer
t = Trainer()
def steps():
    return [t.training_step(1, n, scale=2) for n in range(20)]
print(sum(steps()), Trainer.training_step(t, 1, 5), t.prediction_step(3), t.training_step(*[1, 2]))
try:
    t.training_step(None, 1)
except ValueError:
    print(traceback.format_exc())
try:
    t.training_step()
except TypeError as error:
    print(error)
print(inspect.signature(t.training_step), t.training_step.__doc__, Trainer.training_step.__qualname__, Trainer.training_step.__module__)
'''


@by_version
def test_steps_of_a_trainer(python, lib, tmp_path):
    (tmp_path / 'transformers').mkdir()
    (tmp_path / 'transformers/__init__.py').write_text('')
    (tmp_path / 'transformers/trainer.py').write_text(TRAINER)
    (tmp_path / 'script.py').write_text(SCRIPT)
    env = {**clean_environment(), 'PYTHONDONTWRITEBYTECODE': '1'}
    plain = execute([python.path, 'script.py'], env, tmp_path)
    result = execute([python.path, 'script.py'], {**env, 'LD_PRELOAD': str(lib), 'TFI_OUTPUT_DIR': str(tmp_path / 'run')}, tmp_path)
    assert (result.rc, result.out, result.err) == (plain.rc, plain.out, plain.err) and plain.rc == 0
    path, = (tmp_path / 'run').glob('*.tfr')
    trace = tfr.read(path)
    named = [tfr.name_of(trace.strings, r.values['name']) for r in trace.records if r.kind == 'range_end']
    assert (named.count('training_step'), named.count('prediction_step')) == (25, 1)
