"""test_stage_scripts - profile_{stage}.py of real pipelines runs alone and does the same as the stage in the pipeline.

The pipelines are tests/pipelines/diffusion.py and generate.py. Operators and shapes of a script's run come from
torch.profiler, which the script runs; those of the stage's calls come from our traces that `tfanalyze report` wrote.
"""

import functools
import gzip
import json
from collections import namedtuple

import pytest

from conftest import ROOT, clean_environment, execute, short_form
from forked import PIPELINES

pytestmark = pytest.mark.xdist_group('diffusers')
Pipelines = namedtuple('Pipelines', 'dir scripts')

# Runs all scripts in one process, because a script spends most of its time importing torch and diffusers.
RUN_ALL = '''
import os, runpy, sys, traceback
_, out, *scripts = sys.argv
for script in scripts:
    sys.argv = [script, '--warmup', '0', '--output-dir', out]
    try:
        runpy.run_path(script, run_name='__main__')
    except BaseException:
        traceback.print_exc()
        print('FAILED', os.path.basename(script))
'''


@pytest.fixture(scope='session')
def run_scripts(tmp_path_factory, lib, python, forked, tfanalyze):
    """run_scripts(pipeline, …): the run directory of a pipeline with `report`'s artefacts, and `out/`, the scripts' own."""
    @functools.cache
    def run_scripts(pipeline, *arguments):
        base = tmp_path_factory.mktemp(f'stage-scripts-{pipeline}')
        env = {**clean_environment(), 'LD_PRELOAD': str(lib), 'TFI_STAGES': 'auto', 'TFI_OUTPUT_DIR': str(base / 'run')}
        got = execute([python, ROOT / f'tests/pipelines/{pipeline}.py', *arguments], env=env, cwd=base, timeout=300)
        assert got.rc == 0 and got.err == '', got.err
        got = execute([tfanalyze, 'report', base / 'run'])
        assert got.rc == 0, got.err
        scripts = sorted((base / 'run').glob('profile_*.py'))
        got = forked(['python', '-c', RUN_ALL, base / 'out', *scripts], {**clean_environment(), 'PYTHONPATH': ROOT / 'scripts'}, base, PIPELINES)
        assert got.rc == 0 and 'FAILED' not in got.out, got.out + got.err
        return Pipelines(base, scripts)
    return run_scripts


def events(path):
    with gzip.open(path, 'rt', encoding='utf-8') as f:
        return [e for e in json.load(f)['traceEvents'] if e.get('ph') == 'X']


def operators(found):
    """(name, input shapes) of operators in the order of their calls."""
    ops = sorted((e for e in found if e.get('cat') == 'cpu_op'), key=lambda e: (e['ts'], -e['dur']))
    return [(e['name'], e['args'].get('Input Dims', [])) for e in ops]


def calls(found, stage):
    """The operators of each call of a stage."""
    for call in (e for e in found if e.get('cat') == 'user_annotation' and e['name'] == stage):
        yield operators(e for e in found if e.get('tid') == call['tid'] and
                        call['ts'] <= e['ts'] and e['ts'] + e['dur'] <= call['ts'] + call['dur'])


@pytest.mark.soak
def test_every_stage_has_a_script_that_runs(run_scripts):
    pipelines = run_scripts('diffusion')
    stages = {p.name[len('profile_'):-len('.py')] for p in pipelines.scripts}
    assert stages >= {'DiTPipeline', 'FluxPipeline', 'WanPipeline', 'transformer', 'text_encoder', 'text_encoder_2',
                      'scheduler', 'vae.encode', 'vae.decode', 'image_processor.postprocess'}
    for stage in stages:
        assert (pipelines.dir / 'out' / f'{stage}_trace.json.gz').stat().st_size > 1000, stage


def compare(pipelines, left_out=lambda stage: False):
    """Asserts that each script ran the operators of one call of its stage; returns their number."""
    compared = 0
    for script in pipelines.scripts:
        stage = script.name[len('profile_'):-len('.py')]
        if left_out(stage):
            continue
        alone = operators(events(pipelines.dir / 'out' / f'{stage}_trace.json.gz'))
        together = list(calls(events(pipelines.dir / 'run' / f'{stage}_rank0.trace.json.gz'), stage))
        assert alone and any(alone == call for call in together), (stage, difference(alone, together))
        compared += len(alone)
    return compared


@short_form(1, 'arguments, least', [(['dit'], 100), ([], 500)])
def test_scripts_repeat_their_stage(run_scripts, arguments, least):
    """Every script repeats its stage, except one-step scripts of whole pipelines and code that reads pixels."""
    assert compare(run_scripts('diffusion', *arguments), lambda stage: stage.endswith('Pipeline') or stage == 'image_processor.preprocess') > least


@pytest.mark.soak
def test_a_decoder_gets_its_cache(run_scripts):
    """A language model's decoder script has the keys and values of the steps before."""
    generation = run_scripts('generate')
    assert {p.name for p in generation.scripts} == {'profile_generate.py', 'profile_prefill.py', 'profile_decode.py'}
    assert compare(generation) > 1000


def difference(alone, together):
    """The first operator that differs from the call that agrees longest."""
    def agree(call):
        return next((i for i, (a, b) in enumerate(zip(alone, call)) if a != b), min(len(alone), len(call)))
    if not together:
        return 'no call'
    best = max(together, key=agree)
    at = agree(best)
    return f'{len(alone)} operators alone, {len(best)} together; at {at}: {alone[at:at + 2]}, {best[at:at + 2]}'


@short_form(1, 'arguments, count', [(['dit'], 1), ([], 5)])
def test_whole_pipelines_run_one_step(run_scripts, arguments, count):
    """A whole pipeline's script runs one of its two or three steps: at least a third of the operators, and not all."""
    pipelines = run_scripts('diffusion', *arguments)
    found = [script.name[len('profile_'):-len('.py')] for script in pipelines.scripts if script.name.endswith('Pipeline.py')]
    assert len(found) == count
    for stage in found:
        alone = operators(events(pipelines.dir / 'out' / f'{stage}_trace.json.gz'))
        together, = calls(events(pipelines.dir / 'run' / f'{stage}_rank0.trace.json.gz'), stage)
        assert len(together) / 3 <= len(alone) < len(together), (stage, len(alone), len(together))
