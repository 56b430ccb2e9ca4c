"""test_harness - scripts/tfharness.py and profile_{stage}.py: a stage run alone, results, the command line.

Importing torch takes seconds, so an interpreter that has it forks for each case and for each generated script.
"""

import gzip
import json
from collections import Counter

import pytest

import scripted
from conftest import ROOT, clean_environment, execute
from test_signature_files import FUNCTION, Run, tensor

pytest_plugins = ['asking_harness']
HARNESS = ROOT / 'scripts' / 'tfharness.py'


def signatures(path, **stages):
    """Writes a signature file: stage=(target, {argument: description})."""
    path.write_text(json.dumps({'request_id': None, 'timestamp': None, 'stages': {
        name: {'stage_name': name, 'input_signatures': inputs, 'output_signature': None, 'metadata': {}, 'target': target}
        for name, (target, inputs) in stages.items()}}))
    return path


# ---- running a stage ----

STAGES = '''
import asyncio, torch
log = []
def plain(x, /, y, *rest, scale=1, **more):
    log.append(('plain', x, y, rest, scale, more)); return x
async def later(x):
    await asyncio.sleep(0); log.append(('later', x)); return x
def parts(x):
    yield x
    log.append(('parts', x)); yield x + 1
async def stream(x):
    yield x
    log.append(('stream', x)); yield x + 2
class Stage:
    def process(self, x): log.append(('process', x)); return x
    def method(self, x): log.append(('method', x)); return x
    @classmethod
    def of(cls, x): log.append(('of', x)); return x
    @staticmethod
    def fixed(x): log.append(('fixed', x)); return x
    def __call__(self, x): raise AssertionError
class Called:
    def __call__(self, x): log.append(('called', x)); return x
stage, called, text = Stage(), Called(), 'text'
class Scheduler:
    timesteps = None
    def set_timesteps(self, n, shift=None):
        log.append(('set_timesteps', n, shift)); self.timesteps = torch.tensor([999., 500.])[:n]
    def step(self, noise, t, latents): log.append(('step', list(noise.shape), float(t))); return latents - noise
class Dit:
    sparse_attention_state = True
    def create_sparse_state(self, numeral_timestep, layer_idx): return 'sparse'
class DitStage:
    dit, scheduler, device, device_type, torch_dtype = Dit(), Scheduler(), 'cpu', 'cpu', torch.bfloat16
    def predict_noise_with_cfg(self, latents, timestep, prompt_emb_posi, prompt_emb_nega, clip_feature, cfg_scale, sparse_state):
        log.append(('predict', str(latents.dtype), list(latents.shape), timestep.tolist(), cfg_scale, sparse_state))
        return latents[:, :4].float()
class Transformer(torch.nn.Module):
    def forward(self, hidden_states, timestep, encoder_hidden_states=None):
        log.append(('forward', list(hidden_states.shape), timestep.tolist(), encoder_hidden_states is not None))
        return (torch.cat([hidden_states, hidden_states], 1),)
class Plain:
    def set_timesteps(self, n): self.timesteps = torch.tensor([7, 3])
    step = Scheduler.step
class Pipeline:
    transformer, scheduler = Transformer(), Plain()
    def __call__(self, prompt): log.append(('pipeline', prompt)); return 'called'
class Plan:
    def set_timesteps(self, n): log.append(('planned', n)); self.timesteps = torch.tensor([7, 3])
    def step(self, noise, timestep, latents): return Scheduler.step(self, noise, timestep, latents)
class Scaled:
    _step_index, is_scale_input_called, num_inference_steps, timesteps = 3, False, 3, torch.tensor([7, 3, 1])
    def set_timesteps(self, n): raise AssertionError
    def step(self, noise, timestep, latents):
        log.append(('scaled', self._step_index, self.is_scale_input_called, int(timestep))); self._step_index += 1; return latents
class Painter:
    unet, scheduler = None, Plain()
    def __call__(self, prompt, strength=0.8, num_inference_steps=50, timesteps=None, latents=None):
        log.append(('paint', prompt, strength, num_inference_steps, timesteps, latents is not None)); return 'painted'
class Whole(Painter):
    transformer = Transformer()
class Flux:
    transformer, scheduler = Transformer(), Plain()
    def process(self, latents, num_inference_steps=4): log.append(('flux', num_inference_steps)); return 'flux'
    def paint(self, latents): log.append(('own', True)); return 'own'
flux = Flux()
class Other(DitStage):
    def process(self, latents=None, prompt=None): log.append(('whole', prompt)); return 'whole'
class Without(Other):
    predict_noise_with_cfg = property()
other, without = Other(), Without()
def make(): return type('Pipe', (), {'stage': flux})()
plan, scaled = Plan(), Scaled()
dit, pipeline, painter, whole = DitStage(), Pipeline(), Painter(), Whole()
'''


def test_every_kind_of_target(ask):
    answers = ask('''
import stages
def run(target, **inputs):
    stages.log.clear()
    with contextlib.redirect_stdout(io.StringIO()) as said:
        result = tfharness.step_of(tfharness.find_target(target))(inputs)
    return [str(result) if not torch.is_tensor(result) else list(result.shape), json.loads(json.dumps(stages.log)), said.getvalue().strip()]
answers.append(run('stages:plain', x=1, y=2, rest=(3, 4), scale=5, other=6))
for name in ('later', 'parts', 'stream', 'stage', 'stage.method', 'Stage.of', 'Stage.fixed', 'called'):
    answers.append(run('stages:' + name, x=1))
answers.append(run('stages.py:plain', x=1, y=2)[0])
latents = torch.zeros(1, 4, 2, 2)
answers.append(run('stages:dit', latents=latents, ref_latent=torch.zeros(1, 2, 2, 2), sigma_shift=3.0, cfg_scale=2.0))
for name in ('plan', 'plan.step'):
    answers.append(run('stages:' + name, noise=latents, timestep=5, latents=latents))
answers.append(run('stages:pipeline', prompt='none')[:2])
''', stages=STAGES)
    assert answers[0] == ['1', [['plain', 1, 2, [3, 4], 5, {'other': 6}]], '']
    assert [a[1][0] for a in answers[1:9]] == [[n, 1] for n in ('later', 'parts', 'stream', 'process', 'method', 'of', 'fixed', 'called')]
    assert [a[0] for a in answers[1:4]] == ['1', '2', '3']
    assert answers[4][2] == '[Harness] Using stage.process() as single-step function'
    assert answers[9] == '1'
    assert answers[10][2] == '[Harness] Created DiT single-step function' and answers[10][0] == [1, 4, 2, 2]
    assert answers[10][1] == [['set_timesteps', 2, 3.0], ['predict', 'torch.bfloat16', [1, 6, 2, 2], [1000.0], 2.0, 'sparse'],
                              ['step', [1, 4, 2, 2], 999.0]]
    for answer in answers[11:13]:
        assert answer[1] == [['planned', 2], ['step', [1, 4, 2, 2], 7.0]] and answer[2] == '[Harness] Created scheduler single-step function'
    assert answers[13] == ['called', [['pipeline', 'none']]]


def test_a_stage_runs_by_its_own_call(ask):
    """No step is made up for an object with a transformer and a scheduler. A part of what a function returns is named as in
    Python, and the method that was recorded runs also if the object is given."""
    answers = ask('''
import stages
def run(target, signature=None, **inputs):
    stages.log.clear()
    harness = tfharness.StageBenchHarness('s', {'input_signatures': {}, **(signature or {})}, tfharness.find_target(target))
    harness.values = lambda made: inputs
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            harness.setup()
        return [harness.run_single_step(), *stages.log]
    except tfharness.Problem as e:
        return str(e)
latents = torch.zeros(1, 4, 2, 2)
for target in ('stages:flux', 'stages:flux.process', 'stages:make().stage', 'stages:make().stage.process'):
    answers.append(run(target, latents=latents))
for method in ('stages:Flux.paint', '__main__:Flux.paint', 'stages:Other.paint'):
    answers.append(run('stages:make().stage', {'target': method}, latents=latents)[0])
answers.append(run('stages:make', latents=latents))
answers.append(run('stages:other', {'input_signatures': {'prompt': 'a'}}, prompt='a'))
answers.append(run('stages:without', {'input_signatures': {'latents': 1}}, latents=latents))
answers.append(list(run('stages:other', {'input_signatures': {'latents': 1}}, latents=latents)[0].shape))
try:
    tfharness.find_target('stages:make().stage', trust=False)
except tfharness.Problem as e:
    answers.append('refused')
''', stages=STAGES)
    assert answers[:4] == [['flux', ['flux', 4]]] * 4
    assert answers[4:7] == ['own', 'own', 'flux']
    assert answers[7] == "make takes none of the inputs ['latents']; if it returns the pipeline, name the stage as make().stage"
    assert answers[8:11] == [['whole', ['whole', 'a']], ['whole', ['whole', None]], [1, 4, 2, 2]]  # a step that lacks its inputs
    assert answers[11] == 'refused'


def test_one_step_of_a_whole_pipeline(ask):
    """One step of a pipeline runs for any model name, with or without latents, with at least one step of strength.

    Given timesteps are shortened too. A scheduler that has found its place gets it back before each step."""
    answers = ask('''
import stages
def run(target, **inputs):
    stages.log.clear()
    with contextlib.redirect_stdout(io.StringIO()) as said:
        step = tfharness.step_of(tfharness.find_target(target))
        results = step(inputs), step(inputs)
    assert stages.log[0] == stages.log[len(stages.log) // 2]
    return [*stages.log[0], said.getvalue().strip()]
latents = torch.zeros(1, 4, 2, 2)
for inputs in ({'prompt': 'a', 'num_inference_steps': 9}, {'prompt': 'a', 'strength': 0.3}, {'prompt': 'a', 'strength': 1.0, 'latents': latents},
               {'prompt': 'a', 'timesteps': [7, 5, 3, 1]}):
    answers.append(run('stages:painter', **inputs))
answers.append(run('stages:whole', prompt='a', latents=latents))
answers.append(run('stages:scaled.step', noise=latents, timestep=5, latents=latents))
''', stages=STAGES)
    pipeline = '[Harness] Created pipeline single-step function'
    assert answers[0] == ['paint', 'a', 0.8, 2, None, False, pipeline] and answers[1] == ['paint', 'a', 0.3, 4, None, False, pipeline]
    assert answers[2] == ['paint', 'a', 1.0, 1, None, True, pipeline] and answers[3] == ['paint', 'a', 0.8, 2, [7, 5], False, pipeline]
    assert answers[4][:6] == ['paint', 'a', 0.8, 2, None, True]
    assert answers[5] == ['scaled', 0, True, 7, '[Harness] Created scheduler single-step function']


def test_targets_that_can_not_be_run(ask):
    answers = ask('''
for target in (None, 'stages', ':x', 'stages:', 'gone:x', 'gone.py:x', 'stages:gone', 'stages:Stage.gone', 'stages:Transformer.forward', 'stages:Stage',
               'stages:text', 'broken:x'):
    try:
        tfharness.step_of(tfharness.find_target(target))
        answers.append('ran')
    except tfharness.Problem as e:
        answers.append(str(e))
''', stages=STAGES, broken='import no_such_module')
    wanted = ['does not name the object of the stage; name it by --target', 'the form is module:obj', 'the form is module:obj', 'the form is module:obj', 'gone cannot be imported (',
              'gone.py cannot be imported (', 'stages has no gone', 'Stage has no gone', 'stages:Transformer.forward is a method and needs its object',
              'cannot be called', 'cannot be called', 'broken cannot be imported (No module named']
    assert len(answers) == len(wanted)
    for answer, part in zip(answers, wanted):
        assert part in answer, answers


# ---- profiles ----

def test_api(ask, tmp_path):
    """tfharness works like TeleFuser's harness; warm-up may be 0, and profile()'s number overrides the config's."""
    signatures(tmp_path / 'sig.json', **{'vae decode': ('stages:plain', {'x': tensor([2, 3]), 'y': 1})})
    answers = ask('''
import os, stages
config = tfharness.HarnessConfig(warmup=3, profile_steps=2, output_dir='out', capture_output=True)
calls = []
def stage(x, y):
    calls.append(tuple(x.shape)); return x + y
harness = tfharness.from_signature_file('sig.json', 'vae decode', stage_instance=stage, config=config)
with contextlib.redirect_stdout(io.StringIO()) as said:
    harness.setup()
    first = harness.profile()
    count = len(calls)
    second = harness.profile(warmup=0, profile_steps=1, output_suffix='_b')
    answers.append([count, len(calls), first['warmup'], first['profile_steps'], len(first['timing_ms']), second['warmup']])
answers.append(said.getvalue().splitlines())
answers.append(sorted(os.listdir('out')))
answers.append([first['stage_name'], first['median_ms'] == sum(sorted(first['timing_ms'])) / 2, first['spread_ms'] == [min(first['timing_ms']), max(first['timing_ms'])]])
answers.append([list(harness.output.shape), harness.run_single_step({'x': torch.ones(1), 'y': 2}).tolist()])
for wrong in ((lambda: tfharness.from_signature_file('sig.json', 'gone')), (lambda: tfharness.from_signature_file('gone.json', 'a')),
              (lambda: harness.profile(profile_steps=0))):
    try:
        wrong()
    except ValueError as e:
        answers.append(str(e))
try:
    tfharness.from_signature_file('sig.json', 'vae decode').run_single_step()
except RuntimeError as e:
    answers.append(str(e))
''', stages=STAGES)
    assert answers[0] == [5, 6, 3, 2, 2, 0]
    said = answers[1]
    assert said[:2] == ["[Harness] Setup complete for stage 'vae decode'", "[Harness] Mock inputs: ['x', 'y']"]
    assert said[2:4] == ['[Harness] Running 3 warmup iteration(s)...', '[Harness] Running 2 profile iteration(s)...']
    assert said[4:6] == ['[Harness] Chrome trace saved to: out/vae decode_trace.json.gz', '[Harness] Kernel breakdown saved to: out/vae decode_breakdown.json']
    assert said[6].startswith('[Harness] Average iteration time: ') and said[6].endswith(' ms')
    assert said[8] == '[Harness] Test script saved to: out/profile_vae decode.py'
    assert said[-1] == '[Harness] Test script out/profile_vae decode.py exists, so it is not overwritten'
    assert set(answers[2]) == {'profile_vae decode.py', 'vae decode_breakdown.json', 'vae decode_b_breakdown.json',
                               'vae decode_trace.json.gz', 'vae decode_b_trace.json.gz'}
    assert answers[3] == ['vae decode', True, True] and answers[4] == [[2, 3], [3.0]]
    assert answers[5] == "sig.json: Stage 'gone' not found in signature file. Available: ['vae decode']"
    assert answers[6].startswith('gone.json: No such file or directory; `tfanalyze report DIR` writes')
    assert 'profile_steps=0: warmup must be' in answers[7] and answers[8] == 'No single-step function available. Call setup() first.'
    trace = json.loads(gzip.decompress((tmp_path / 'out' / 'vae decode_trace.json.gz').read_bytes()))
    assert sum(e.get('name') == 'aten::add' for e in trace['traceEvents']) == 2
    breakdown = json.loads((tmp_path / 'out' / 'vae decode_breakdown.json').read_text())
    rows = {r['name']: r for r in breakdown['top_kernels']}
    assert breakdown['of'] == 'operators' and rows['aten::add']['calls'] == 2
    assert all(name.startswith('aten::') for name in rows)
    assert breakdown['total_kernel_time_ms'] == pytest.approx(sum(r['ms'] for r in rows.values()))


def test_kernels_only_where_there_is_a_device(ask):
    """Copies, runtime calls and operators do not count as kernels, in events as torch's profiler has them on a GPU."""
    answers = ask('''
from types import SimpleNamespace
from torch.autograd import DeviceType
def event(name, where, us, **more):
    return SimpleNamespace(name=name, device_type=where, time_range=SimpleNamespace(elapsed_us=lambda: us), self_cpu_time_total=us, **more)
events = [event('aten::mm', DeviceType.CPU, 500, id=7), event('cudaLaunchKernel', DeviceType.CPU, 50, id=8), event('gemm', DeviceType.CUDA, 3000, id=8),
          event('cudaLaunchKernel', DeviceType.CPU, 200, id=9), event('gemm', DeviceType.CUDA, 1000, id=9), event('relu', DeviceType.CUDA, 500), event('Memcpy HtoD', DeviceType.CUDA, 9000),
          event('denoise', DeviceType.CUDA, 9000, is_user_annotation=True)]
answers.append(tfharness.breakdown_of(SimpleNamespace(events=lambda: events), 'a'))
''')
    assert answers == [{'name': 'a', 'of': 'device kernels', 'total_kernel_time_ms': 4.5, 'num_kernels': 2, 'launches': 3, 'top_kernels': [
        {'name': 'gemm', 'ms': 4.0, 'cuda_ms': 4.0, 'cpu_ms': 0.25, 'calls': 2}, {'name': 'relu', 'ms': 0.5, 'cuda_ms': 0.5, 'cpu_ms': None, 'calls': 1}]}]


@pytest.fixture
def script_of(analyze, tmp_path):
    """script_of(stage, target, inputs) -> the script that `report` writes for a stage that was described so."""
    def script_of(stage, target, inputs):
        Run(tmp_path).rank().stage(stage, {'': target, **inputs}, flags=FUNCTION).save()
        analyze('report', tmp_path, format=None)
        return tmp_path / f'profile_{stage}.py'
    return script_of


@pytest.fixture
def run_script(interpreter, tmp_path):
    return lambda path, *arguments, **env: interpreter([path, *arguments], tmp_path, env)


@pytest.mark.parametrize('writer', ['report', 'harness'])
def test_a_script_is_a_module(ask, script_of, tmp_path, writer):
    """profile_{stage}.py has TeleFuser's functions create_inputs, run_single_step and profile_stage."""
    path = script_of('vae decode', 'stages:plain', {'x': tensor([2, 3]), 'y': 1})
    if writer == 'harness':
        path.unlink()
    answers = ask('''
import importlib.util, os
if not os.path.exists('profile_vae decode.py'):
    with contextlib.redirect_stdout(io.StringIO()):
        tfharness.from_signature_file('timing_io_signature.json', 'vae decode').save_test_script('.')
spec = importlib.util.spec_from_file_location('profile_vae_decode', 'profile_vae decode.py')
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)
inputs = script.create_inputs()
answers.append(list(inputs))
class Stage:
    def process(self, x, y):
        return x + y
answers.append(list(script.run_single_step(Stage(), inputs).shape))
results = script.profile_stage(Stage(), warmup=0, profile_steps=2, output_dir='made')
answers.append([results['stage_name'], len(results['timing_ms']), sorted(os.listdir('made'))])
answers.append(tfharness.HarnessConfig().output_dir)
os.environ['TELEFUSER_PROFILER_OUTPUT_DIR'] = 'mine'
answers.append(tfharness.HarnessConfig().output_dir)
''', stages=STAGES)
    assert answers[0] == ['x', 'y'] and answers[1] == [2, 3]
    assert answers[2] == ['vae decode', 2, ['vae decode_breakdown.json', 'vae decode_trace.json.gz']]
    assert answers[3].startswith('work_dirs/profiler_output/default/2') and answers[4] == 'mine'


# ---- the command line ----

@pytest.fixture
def harness(forked, tmp_path):
    def harness(*arguments, rc=0):
        result = forked(['python', HARNESS, *arguments], cwd=tmp_path)
        assert result.rc == rc, (result.rc, result.out, result.err[-2000:])
        return result
    return harness


def test_list_of_stages(harness, tmp_path):
    path = signatures(tmp_path / 'sig.json', denoise=(None, {}), **{'vae decode': (None, {})})
    assert harness('--signature', path, '--list-stages').out == f'Available stages in {path}:\n  - denoise\n  - vae decode\n'
    assert harness('--signature', path, '--list_stages', '--stage', 'x').out.count('- ') == 2


@pytest.mark.parametrize('content', [None, '', '[]', '{}', '{"stages": []}', '{"stages": {"a": 1}}', '{"stages": {"a": {"input_signatures": 3}}}', '\x00', '[' * 9])
def test_bad_files(harness, tmp_path, content):
    path = tmp_path / 'sig.json'
    if content is not None:
        path.write_text(content)
    result = harness('--signature', path, '--stage', 'a', rc=1)
    line, = result.err.splitlines()
    assert line.startswith(f'tfharness: {path}: ') and line.endswith('`tfanalyze report DIR` writes DIR/timing_io_signature.json')
    assert ('No such file' if content is None else 'the file contains no signatures of stages') in line


def test_wrong_options(harness, tmp_path):
    path = signatures(tmp_path / 'sig.json', a=(None, {}))
    for arguments in (['--stage', 'a'], ['--signature', path], ['--signature', path, '--stage', 'a', '--warmup', '-1'],
                      ['--signature', path, '--stage', 'a', '--profile-steps', '0'], ['--signature', path, '--stage', 'a', '--fast']):
        assert 'usage: tfharness.py' in harness(*arguments, rc=2).err
    result = harness('--signature', path, '--stage', 'b', rc=1)
    assert result.err == f"tfharness: {path}: Stage 'b' not found in signature file. Available: ['a']\n"
    assert 'name it by --target' in harness('--signature', path, '--stage', 'a', rc=1).err


def test_one_run(harness, python, tmp_path):
    (tmp_path / 'stages.py').write_text(STAGES)
    path = signatures(tmp_path / 'sig.json', a=(None, {'x': tensor([2, 3], grad=True)}))
    result = harness('--signature', path, '--stage', 'a', '--target', 'stages:Stage.fixed', '--warmup', '0', '--output-dir', 'out')
    assert '[Harness] Running 0 warmup iteration(s)...\n' in result.out and '[Harness] Median iteration time: ' in result.out
    assert {p.name for p in (tmp_path / 'out').iterdir()} == {'a_trace.json.gz', 'a_breakdown.json', 'profile_a.py'}
    result = execute([python, tmp_path / 'out' / 'profile_a.py', '--help'], clean_environment(), tmp_path)
    assert result.rc == 0 and "Runs the stage 'a' alone" in result.out, result.err


# ---- from a pipeline's run to its stage alone ----

PIPELINE = '''
import torch
from dataclasses import dataclass

emb = torch.nn.Embedding(16, 8)
proj = torch.nn.Linear(8, 8)

@dataclass
class Options:
    scale: float
    bias: torch.Tensor

def encode(ids, mask, options, *extra, weights=None):
    x = emb(ids) * options.scale + options.bias
    x = proj(x.transpose(1, 2).contiguous().transpose(1, 2))
    x = x.masked_fill(~mask.unsqueeze(-1), 0.0)
    for e in extra:
        x = x + e.transpose(1, 2)
    return torch.cat([x * w for w in weights['list']], dim=0)

if __name__ == '__main__':
    import json, sys
    torch.manual_seed(3)
    ids, mask = torch.randint(0, 16, (2, 5)), torch.ones(2, 5, dtype=torch.bool)
    extra = torch.randn(2, 5, 8).transpose(1, 2)
    options, weights = Options(2.0, torch.zeros(8)), {'list': [torch.ones(8), torch.ones(1)]}
    with torch.profiler.profile(record_shapes=True) as p:
        encode(ids, mask, options, extra, weights=weights)
    rows = [[e.name, e.input_shapes] for e in p.events() if e.name.startswith('aten::')]
    print(json.dumps(rows))
'''


def test_a_stage_alone_runs_the_same_operators(run, run_script, analyze, python, tmp_path):
    """The script that `report` writes runs the same operators and shapes as the call in the pipeline."""
    (tmp_path / 'pipe.py').write_text(PIPELINE)
    result = run([python, 'pipe.py'], {'TFI_STAGES': '__main__:encode'})
    assert result.rc == 0 and not [line for line in result.err.splitlines() if line.startswith('tfinject')], result.err[-2000:]
    there = json.loads(result.out.splitlines()[-1])
    analyze('report', result.dir)
    stage = json.loads((result.dir / 'timing_io_signature.json').read_text())['stages']['encode']
    assert stage['target'] == f'{tmp_path}/pipe.py:encode'
    assert list(stage['input_signatures']) == ['ids', 'mask', 'options', 'extra', 'weights']
    assert stage['output_signature']['shape'] == [4, 5, 8]
    done = run_script(result.dir / 'profile_encode.py', '--warmup', '1', '--output-dir', tmp_path / 'alone')
    assert done.rc == 0, done.err[-2000:]
    assert "Mock inputs: ['ids', 'mask', 'options', 'extra', 'weights']\n" in done.out
    events = json.loads(gzip.decompress((tmp_path / 'alone' / 'encode_trace.json.gz').read_bytes()))['traceEvents']
    here = sorted((e for e in events if e.get('cat') == 'cpu_op'), key=lambda e: (e['ts'], -e['dur']))
    alone = Counter((e['name'], json.dumps(e['args'].get('Input Dims', []))) for e in here)
    assert sum(alone.values()) > 20
    assert Counter(name for name, _ in there) == Counter(e['name'] for e in here)
    shapes = Counter((name, json.dumps(shape)) for name, shape in there if not any(isinstance(s, list) and s and isinstance(s[0], list) for s in shape))
    for (name, shape), count in shapes.items():
        if name != 'aten::cat':  # a list of tensors, which input_shapes and Input Dims write differently
            assert alone[name, shape] == count, (name, shape)


def test_a_method_needs_its_object(run, run_script, analyze, python, tmp_path):
    """The only object of its class in the class's module is found. The script has what was recorded: the median, torch's threads."""
    (tmp_path / 'model.py').write_text('import torch\nclass Model:\n    def process(self, x):\n        return x + 1\nmodel = Model()\n')
    (tmp_path / 'go.py').write_text('import torch, model\ntorch.set_num_threads(1)\n'
                                    'for _ in range(3):\n    model.model.process(torch.ones(3, dtype=torch.int16))\n')
    result = run([python, 'go.py'], {'TFI_STAGES': 'model:Model.process'})
    assert result.rc == 0, result.err[-2000:]
    analyze('report', result.dir)
    script = result.dir / 'profile_Model.process.py'
    row, = (r for r in analyze('stages', result.dir)['rows'] if r['stage'] == 'Model.process')
    recorded = json.loads((result.dir / 'timing_io_signature.json').read_text())['stages']['Model.process']['recorded']
    assert recorded == {'calls': 3, 'median_ms': pytest.approx(row['median_us'] / 1000, abs=1e-6), 'threads': 1}
    done = run_script(script)
    assert done.rc == 0 and '[Harness] The object of model:Model.process is model:model\n' in done.out, done.err[-2000:]
    assert f'[Harness] In the pipeline: median {recorded["median_ms"]:.2f} ms of 3 call(s)\n' in done.out
    with (tmp_path / 'model.py').open('a') as module:
        module.write('other = Model()\n')
    done = run_script(script)
    assert (done.rc, done.err) == (1, f'{script.name}: model:Model.process is a method and needs its object: name the object by '
                                      '--target module:obj, or edit build(); it has model:model, model:other\n')
    done = run_script(script, '--target', 'model:model.process', '--profile-steps', '2')
    assert done.rc == 0 and 'Median iteration time' in done.out, done.err[-2000:]
    text = script.read_text()
    (tmp_path / 'edited.py').write_text(text.replace('return tfharness.target_of(SIGNATURE, device, trust)', 'import model\n    return model.model'))
    done = run_script(tmp_path / 'edited.py')
    assert done.rc == 0 and 'Median iteration time' in done.out, done.err[-2000:]


def test_values_of_inputs_can_be_edited(script_of, run_script, tmp_path):
    """Most stages accept any values; one that does not gets a message where its script takes values."""
    (tmp_path / 'model.py').write_text('import torch\ndef image_at(ids):\n    return (ids == 77).nonzero()[0]\n')
    path = script_of('s', 'model:image_at', {'ids': tensor([4], 'int64')})
    done = run_script(path)
    assert done.rc == 1 and 'edit values() in the script' in done.out and 'IndexError' in done.err, done.err[-2000:]
    path.write_text(path.read_text().replace('    return inputs\n\n\n', "    inputs['ids'][2] = 77\n    return inputs\n\n\n", 1))
    done = run_script(path)
    assert done.rc == 0 and 'edit values()' not in done.out, done.err[-2000:]


PARTS = """
import torch, diffusion
torch.manual_seed(1)
pipe, _ = diffusion.dit()
"""


@pytest.mark.soak
@pytest.mark.parametrize('stage', ['transformer', 'vae.decode', 'scheduler'])
def test_parts_of_a_diffusers_pipeline(run, run_script, analyze, python, tmp_path, stage):
    """A part that --target names runs the same operators alone as in a call of the pipeline. test_stage_scripts has the short form."""
    (tmp_path / 'parts.py').write_text(PARTS)
    path = {'PYTHONPATH': f'{ROOT}/tests/pipelines:{tmp_path}'}
    result = run([python, ROOT / 'tests' / 'pipelines' / 'diffusion.py', 'dit'], {'TFI_STAGES': 'auto', **path})
    assert result.rc == 0, result.err[-2000:]
    analyze('report', result.dir)
    trace, = (t for t in scripted.traces(result.dir) if scripted.stages(t))
    done = run_script(result.dir / f'profile_{stage}.py', '--target', f'parts:pipe.{stage}', '--no-grad', '--warmup', '0',
                      '--output-dir', tmp_path / 'alone', **path)
    assert done.rc == 0, done.err[-2000:]
    first = min((r.values['time'], r.values['duration']) for r in trace.records
                if r.kind == 'range_end' and scripted.text(trace, r.values['name']) == stage)
    begin, end = first[0] - first[1], first[0]
    there = Counter((scripted.text(trace, r.values['name']), scripted.text(trace, r.values['shapes']) or '[]') for r in trace.records
                    if r.kind == 'op' and begin <= r.values['time'] < end)
    events = json.loads(gzip.decompress((tmp_path / 'alone' / f'{stage}_trace.json.gz').read_bytes()))['traceEvents']
    here = Counter((e['name'], json.dumps(e['args'].get('Input Dims', []))) for e in events if e.get('cat') == 'cpu_op')
    if stage == 'scheduler':
        assert sum(here.values()) > 5
        return
    assert sum(there.values()) > 50 and there == here, (there - here, here - there)
