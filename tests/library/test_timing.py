"""test_timing - the library's own timing.json: the signatures of each stage's inputs and outputs."""

import json
import re

import pytest

import tfr

PIPELINE = '''
import sys

class Latents:
    shape = (1, 4, 8, 8)
    dtype = 'float16'

def encode(prompt, steps):
    return [prompt, steps]

def fails(value):
    raise ValueError(value)

def inner(x):
    return x

def outer(x):
    return inner(x + 1) if x < 3 else x

def nothing():
    pass

def wide(%s):
    return 7

encode('first', 1)
encode('second', steps=2.5)
encode(['third "quoted"'], {'n': 3})
try:
    fails('é')
except ValueError:
    pass
outer(1)
outer(2.5)
nothing()
wide(*range(30))
'''
STAGES = ','.join(f'__main__:{name}' for name in ('encode', 'fails', 'inner', 'outer', 'nothing', 'wide'))


@pytest.fixture
def recorded(run, python, tmp_path):
    """recorded(width=10, **env): stages of the timing.json, and the trace; `wide` has 30 parameters of `width` letters."""
    def recorded(width=10, **env):
        names = ', '.join(f'p{i:02}'.ljust(width, 'x') for i in range(30))
        (tmp_path / 'pipe.py').write_text(PIPELINE % names)
        result = run([python, tmp_path / 'pipe.py'], {'TFI_STAGES': STAGES, **env})
        assert (result.rc, result.err) == (0, '')
        path, = result.dir.glob('*.timing.json')
        return json.loads(path.read_text())['stages'], tfr.read(next(result.dir.glob('*.tfr')))
    return recorded


def last_of(trace):
    """{stage: {inputs or outputs: the JSON of its last signature record}}"""
    found = {}
    for r in trace.records:
        if r.kind == 'signature':
            stage, text = (trace.strings[r.values[key]] for key in ('name', 'text'))
            found.setdefault(stage.decode(), {})[('inputs', 'outputs')[r.values['direction']]] = text
    return found


def test_signatures(recorded):
    """Each stage has the last signature of the trace, as JSON, not as a string with JSON."""
    stages, trace = recorded()
    said = {name: stage['signature'] for name, stage in stages.items() if 'signature' in stage}
    assert said == {name: {k: json.loads(v) for k, v in d.items()} for name, d in last_of(trace).items()}
    assert said['encode']['inputs']['prompt'] == ['third "quoted"'] and said['encode']['outputs'][1] == {'dict': {'n': 3}}
    assert set(said['fails']) == {'inputs'} and said['fails']['inputs']['value'] == 'é'
    assert said['outer']['inputs']['x'] == 2.5 and said['outer']['outputs'] == 3.5


def test_stages_without_a_signature(run, victim, tmp_path):
    """Ranges of the C interface are no function calls, so they have no signature."""
    result = run([victim('fixture'), tmp_path / 'log', 'whole'], preload='test')
    path, = result.dir.glob('*.timing.json')
    stages = json.loads(path.read_text())['stages']
    assert stages and not any('signature' in stage for stage in stages.values())


@pytest.mark.parametrize('width, whole', [(2100, True), (3000, False)])
def test_long_signatures(recorded, width, whole):
    """A signature of nearly 64 KiB is kept; one that the name table cut is left out; the file stays valid JSON."""
    stages, trace = recorded(width)
    assert len(last_of(trace)['wide']['inputs']) == 65536 or whole
    inputs = stages['wide']['signature'].get('inputs')
    assert (inputs is not None) == whole and stages['wide']['signature']['outputs'] == 7
    assert not whole or sum(map(len, inputs)) > 60000


def test_signatures_without_values(recorded):
    """TFI_RECORD_VALUES=0 keeps types and leaves out all values."""
    stages, _ = recorded(TFI_RECORD_VALUES='0')
    assert stages['encode']['signature']['inputs']['prompt'] == [{'type': 'str'}]
    assert 'quoted' not in json.dumps(stages)


def test_console_lines_of_names_of_every_length(run, victim):
    """TELEFUSER_PROFILE_DEBUG prints names of every length whole, even if the name table has no byte between them."""
    names = [('step' * 10)[:n] for n in range(1, 41)]
    steps = [step for name in names for step in (f'push={name}', 'pop')]
    result = run([victim('script'), *steps], {'TELEFUSER_PROFILE_DEBUG': 'true'}, preload='test')
    assert result.rc == 0
    found = [re.fullmatch(r'\[Rank 0\] \[Timing\] (\w+): \d+\.\d\d ms', line) for line in result.err.splitlines()]
    assert all(found) and [m[1] for m in found] == names
