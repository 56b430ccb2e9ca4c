"""test_hostile_scripts - scripts made from hostile traces run no code that the trace chooses.

The tests run every script of tfanalyze and tfharness.py itself, in a directory that must not change. An attack whose
code runs leaves a file named PWNED there or on its way.
"""

import json
import os
import shutil

import pytest

from conftest import ROOT, clean_environment, execute
from forked import PIPELINES
from test_signature_files import FUNCTION, Run, tensor

HARNESS = ROOT / 'scripts' / 'tfharness.py'
in_diffusers = pytest.mark.xdist_group('diffusers')

# Modules that leave a mark when imported. A trace can name them; they lie outside the current directory.
EVIL = '''
import os
open(os.environ['MARK'], 'a').write('imported ' + __name__)
class Reduced:
    def __init__(self, **fields):
        open(os.environ['MARK'], 'a').write('made')
    def __reduce__(self):
        return os.system, ('touch ' + os.environ['MARK'],)
def run(**inputs):
    open(os.environ['MARK'], 'a').write('run')
'''
# The reader's own pipeline, which passes on its arguments.
OWN = '''
import json, os, subprocess
from os import system
from subprocess import run
import functools
half = functools.partial(os.system, 'touch $MARK')
def stage(x=None, callback=None, **more):
    if callable(callback):
        callback('touch $MARK')
    return x
'''
TOUCH = {'command': {'text': 'touch $MARK', 'length': 11}}
TARGETS = {
    'os.system': ('os:system', TOUCH),
    'exec': ('builtins:exec', {'source': "open(__import__('os').environ['MARK'], 'w')"}),
    'eval': ('builtins:eval', {'source': "open(__import__('os').environ['MARK'], 'w')"}),
    'a module that is imported': ('evil:run', {}),
    'a module in a package': ('evil.below:run', {}),
    'a file elsewhere': ('{away}/evil.py:run', {}),
    'a file above': ('../away/evil.py:run', {}),
    'subprocess': ('subprocess:run', {'args': ['sh', '-c', 'touch $MARK']}),
    'through the own module': ('own:os.system', TOUCH),
    'imported by the own module': ('own:system', TOUCH),
    'imported from the library': ('own:run', {'args': ['sh', '-c', 'touch $MARK']}),
    'bound by the own module': ('own:half', {}),
    'torch.load': ('torch.serialization:load', {'f': '{away}/evil.pt', 'weights_only': False}),
    'the script itself': ('__main__:os.system', TOUCH),
    'quotes': ("x');__import__('os').system('touch $MARK');('", {}),
    'a newline': ('x\n__import__("os").system("touch $MARK")\n:y', {}),
    'dots': ('...os:system', TOUCH),
    'the harness': ('tfharness:find_target', {'text': '{away}/evil.py:run'}),
    'the harness in its folder': ('tools.tfharness:find_target', {'text': '{away}/evil.py:run'}),
    'the file of the harness': ('tools/tfharness.py:find_target', {'text': '{away}/evil.py:run'}),
    'a part of the harness': ('tools.tfharness_parts.targets:find_target', {'text': '{away}/evil.py:run'}),
    'the file of a part': ('tools/tfharness_parts/targets.py:find_target', {'text': '{away}/evil.py:run'}),
    'no target': ('', {}),
    'an escape': ('\x1b]0;owned\x07os:\u202esystem', TOUCH),
    'a dunder': ('own:stage.__globals__', {}),
}
VALUES = {
    'a function': {'callback': {'type': 'function', 'value': 'os.system'}},
    'a builtin': {'callback': {'type': 'function', 'value': 'exec'}},
    'a function of the own module': {'callback': {'type': 'function', 'value': 'own.os.system'}},
    'a class': {'x': {'type': 'evil.Reduced', 'fields': {'a': 1}}},
    'a process': {'x': {'type': 'subprocess.Popen', 'fields': {'args': 'touch $MARK', 'shell': True}}},
    'a process through torch': {'x': {'type': 'torch.utils.cpp_extension.subprocess.Popen', 'fields': {'args': 'touch $MARK', 'shell': True}}},
    'a writer of files': {'x': {'type': 'logging.FileHandler', 'fields': {'filename': 'PWNED'}}},
    'an enumeration': {'x': {'type': 'evil.Kind', 'value': 'A'}},
    'settings': {'x': {'type': 'evil.Reduced', 'config': {}}},
    'a cache': {'x': {'type': 'evil.Reduced', 'layers': []}},
    'caches': {'x': {'type': 'subprocess.Popen', 'caches': [{'tuple': ['touch', 'PWNED']}]}},
    'rooms': {'x': {'type': 'transformers.cache_utils.StaticCache', 'layers': [[None, None]], 'rooms': [['logging.FileHandler', 'PWNED']]}},
}
OBJECTS = {
    'a process': ('m:C.__call__', {'class': 'subprocess:Popen', 'components': {'args': None}, 'config': {'args': 'touch $MARK', 'shell': True}}),
    'from_config of a module': ('m:C.__call__', {'class': 'evil:Reduced', 'config': {}}),
    'another method': ('m:C.save_pretrained', {'class': 'diffusers.schedulers:DDIMScheduler', 'config': {}}),
    'code of a hub': ('m:C.generate', {'class': 'transformers:GPT2LMHeadModel', 'attention': 'some/kernels', 'config': {}}),
    'a library\'s other class': ('m:C.__call__', {'class': 'transformers:TrainingArguments', 'config': {'output_dir': 'PWNED'}}),
    'a part': ('m:C.__call__', {'class': 'diffusers:DiffusionPipeline', 'components': {'vae': {'class': 'evil:Reduced', 'config': {}}}, 'config': {}}),
}


@pytest.fixture
def place(tmp_path):
    """Directories: here/ with the reader's module and the harness, where scripts run; away/, the attacker's; run/, the run's."""
    for name in ('here', 'here/tools', 'away', 'run', 'out'):
        (tmp_path / name).mkdir()
    shutil.copy(HARNESS, tmp_path / 'here' / 'tools')
    shutil.copytree(HARNESS.with_name('tfharness_parts'), tmp_path / 'here' / 'tools' / 'tfharness_parts')
    (tmp_path / 'here' / 'own.py').write_text(OWN)
    (tmp_path / 'away' / 'evil').mkdir()
    for path in ('evil.py', 'evil/__init__.py', 'evil/below.py'):
        (tmp_path / 'away' / path).write_text(EVIL)
    for name in ('json', 'shutil', 'tfharness', 'tfharness_parts', 'torch'):
        (tmp_path / 'run' / f'{name}.py').write_text(EVIL)
    return tmp_path


def everything(directory):
    return {str(p.relative_to(directory)): p.read_bytes() if p.is_file() else None for p in directory.rglob('*') if '__pycache__' not in p.parts}


def environment(place):
    return {**clean_environment(), 'PYTHONPATH': f'{place}/here/tools:{place}/away', 'MARK': str(place / 'PWNED'), 'PYTHONDONTWRITEBYTECODE': '1'}


# Runs all attacks of a kind in one process that has torch; each script has its own name, so none is missed.
RUN_ALL = '''
import os, runpy, sys
_, out, *scripts = sys.argv
for script in scripts:
    sys.argv = [script, '--warmup', '0', '--output-dir', out]
    print('SCRIPT', os.path.basename(script), flush=True)
    try:
        runpy.run_path(script, run_name='__main__')
        print('ENDED', flush=True)
    except SystemExit as e:
        print('REFUSED', ascii(e.code), flush=True)
    except Exception as e:
        print('FAILED', type(e).__name__, ascii(str(e)), flush=True)
'''


def scripts_of(analyze, place, stages):
    """stages: {name: (target, arguments, object)}, written as a trace. Returns the scripts of its report, in order."""
    run = Run(place / 'run').rank()
    for i, (target, arguments, made) in enumerate(stages.values()):
        run.stage(f's{i:02}', {'': target, **arguments, **({'.': made} if made else {})}, flags=FUNCTION)
    run.save()
    analyze('report', place / 'run', format=None)
    return sorted((place / 'run').glob('profile_*.py'))


def outcomes(forked, place, scripts):
    """The outcome of each script. Checks first that nothing changed in or around the scripts' directory."""
    before = everything(place)
    done = forked(['python', '-c', RUN_ALL, place / 'out', *scripts], environment(place), place / 'here', PIPELINES)
    after = {k: v for k, v in everything(place).items() if not k.startswith('out/')}
    assert after == {k: v for k, v in before.items() if not k.startswith('out/')}, (set(after) ^ set(before), done.out)
    assert not any('PWNED' in p.name for p in place.rglob('*')), done.out
    assert done.rc == 0 and '\x1b' not in done.out + done.err and '\u202e' not in done.out + done.err, done.err[-2000:]
    return [part.split('\n') for part in done.out.split('SCRIPT ')[1:]]


def filled(value, place):
    return json.loads(json.dumps(value).replace('{away}', str(place / 'away')))


@in_diffusers
def test_a_target_that_is_not_the_readers(analyze, forked, place):
    """Refused: os:system, builtins:exec, foreign modules and files, names leading away from the reader's module."""
    stages = {name: (*filled(attack, place), None) for name, attack in TARGETS.items()}
    scripts = scripts_of(analyze, place, stages)
    assert len(scripts) == len(TARGETS)
    for name, lines in zip(TARGETS, outcomes(forked, place, scripts)):
        refused = [line for line in lines if line.startswith('REFUSED')]
        assert len(refused) == 1 and ('--trust' in refused[0] or '--target' in refused[0]), (name, lines)


@in_diffusers
def test_values_that_would_do_something(analyze, forked, place):
    """The reader's own stage runs. A value that would act when made becomes None or a namespace, and a note says so."""
    scripts = scripts_of(analyze, place, {name: ('own:stage', arguments, None) for name, arguments in VALUES.items()})
    for name, lines in zip(VALUES, outcomes(forked, place, scripts)):
        assert 'ENDED' in lines, (name, lines)
        assert any('cannot be made' in line for line in lines), (name, lines)


@in_diffusers
def test_objects_that_would_do_something(analyze, forked, place):
    """Scripts make only configurable objects of diffusers and transformers, and run only pipelines' methods."""
    scripts = scripts_of(analyze, place, {name: (target, {}, made) for name, (target, made) in OBJECTS.items()})
    for name, lines in zip(OBJECTS, outcomes(forked, place, scripts)):
        refused = [line for line in lines if line.startswith('REFUSED')]
        assert len(refused) == 1 and '--trust' in refused[0], (name, lines)


def test_a_script_imports_nothing_that_lies_beside_it(analyze, python, place):
    """A script ignores modules json, shutil, tfharness and torch beside it, and prints the trace's target before running anything."""
    script, = scripts_of(analyze, place, {'own': ('own:stage', {'x': tensor([2])}, None)})
    done = execute([python, script, '--warmup', '0', '--output-dir', place / 'out'], environment(place), place / 'here')
    assert done.rc == 0 and not (place / 'PWNED').exists(), done.err[-2000:]
    assert done.out.index("The trace says that the stage is 'own:stage'") < done.out.index('Running')


def test_trust_runs_the_target(forked, place):
    """--trust runs the trace's target, in tfharness.py too; without it the message says what to do."""
    path = place / 'sig.json'
    path.write_text(json.dumps({'stages': {'s': {'stage_name': 's', 'target': 'evil:run', 'input_signatures': {}}}}))
    command = ['python', HARNESS, '--signature', path, '--stage', 's', '--warmup', '0', '--output-dir', place / 'out']
    refused = forked(command, environment(place), place / 'here')
    assert refused.rc == 1 and not (place / 'PWNED').exists()
    assert refused.err == ("tfharness: the stage is 'evil:run'; a trace can only run code under the current directory: "
                           'give --trust if the trace is your own, or name the stage by --target module:obj\n')
    assert forked([*command, '--trust'], environment(place), place / 'here').rc == 0
    assert 'run' in (place / 'PWNED').read_text()


def test_names_with_controls_are_shown_as_text(python, place):
    path = place / 'sig.json'
    path.write_text(json.dumps({'stages': {'\x1b[2J\u202es': {'stage_name': 's', 'input_signatures': {}}}}))
    done = execute([python, HARNESS, '--signature', path, '--list-stages'], environment(place), os.fspath(place / 'here'))
    assert done.rc == 0 and r'\x1b[2J\u202es' in done.out and '\x1b' not in done.out
