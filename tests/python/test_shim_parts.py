"""test_shim_parts - the shim's parts for real libraries, broken one by one: the pipeline does not notice.

The test build breaks the shim at the step SHIM_FAILS_AT. Output and exit code equal those of the pipeline without the
library, one warning names the part that is off, and the other parts continue.
"""

from conftest import ROOT, short_form

PIPELINES = ROOT / 'tests' / 'pipelines'

TORCH = '''
import torch
torch.cuda.nvtx.range_push("marked")
layer = torch.nn.Linear(3, 3)
with torch.no_grad():
    layer.weight.fill_(0.5), layer.bias.zero_()
with torch.profiler.record_function("range"):
    print(layer(torch.ones(2, 3)).sum().item())
torch.cuda.nvtx.range_pop()
'''

# step, variables, stages that must be recorded, and stages that must not
TORCH_STEPS = [
    ('shim: attach', {}, {'marked'}, {'range'}),
    ('shim: watch_torch', {}, {'marked'}, {'range'}),
    ('shim: metadata', {}, {'marked', 'range'}, set()),
    ('shim: modules', {'TFI_MODULE_DEPTH': '1'}, {'marked', 'range'}, {'Linear'}),
]
PIPELINE_STEPS = [
    ('shim: mark_telefuser', 'telefuser_stages.py', [], {}),
    ('shim: mark_cache_dit', 'cachedit_profile.py', [], {}),
    ('shim: auto_diffusers', 'diffusion.py', ['dit'], {'TFI_STAGES': 'auto'}),
    ('shim: auto_transformers', 'generate.py', [], {'TFI_STAGES': 'auto'}),
    ('shim: watch_distributed', 'training.py', [], {}),
]


def said(text):
    """Output without the lines in which TeleFuser prints times."""
    return [line for line in text.splitlines() if '| INFO' not in line and ' ms' not in line]


def ours(text):
    return [line for line in text.splitlines() if line.startswith('tfinject: ')]


@short_form(1, 'step, env, there, missing', TORCH_STEPS, ids=[s[0] for s in TORCH_STEPS])
def test_torch(run, python, forked, analyze, step, env, there, missing):
    bare = forked(['python', '-c', TORCH])
    result = run([python, '-c', TORCH], {**env, 'SHIM_FAILS_AT': step}, preload='test')
    assert (result.rc, result.out) == (bare.rc, bare.out) and bare.rc == 0
    line, = ours(result.err)
    assert line.endswith('is off: RuntimeError: broken by a test'), line
    stages = {row['stage'] for row in analyze('stages', result.dir)['rows']}
    assert stages >= there and not stages & missing, stages


@short_form(1, 'step, script, arguments, env', PIPELINE_STEPS, ids=[s[0] for s in PIPELINE_STEPS])
def test_pipelines(run, python, forked, step, script, arguments, env):
    """In a pipeline with workers every process prints a warning about its broken part."""
    command = [python, PIPELINES / script, *arguments]
    bare = forked(command)
    result = run(command, {**env, 'SHIM_FAILS_AT': step}, preload='test', timeout=400)
    assert (result.rc, said(result.out)) == (bare.rc, said(bare.out)) and said(bare.out), result.err[-2000:]
    lines = ours(result.err)
    assert lines and all(line.endswith('is off: RuntimeError: broken by a test') for line in lines), lines
    assert len(lines) == 1 or script == 'training.py', lines
