#!/usr/bin/env python3
"""tfharness - runs one stage of a pipeline alone, with inputs like the recorded ones, and profiles it.

    tfharness.py --signature DIR/timing_io_signature.json --stage denoise --target pipelines.dit:stage

    import tfharness
    harness = tfharness.from_signature_file('timing_io_signature.json', 'denoise', stage_instance=stage)
    harness.setup()
    harness.profile(warmup=2, profile_steps=5)

The stage's signature gives the shapes, dtypes, strides and devices of the inputs; a fixed seed gives the values. The
harness writes {stage}_trace.json.gz, {stage}_breakdown.json, and profile_{stage}.py unless it exists, as after `tfanalyze
report`. The harness, and these scripts, which import it, need torch and the modules of the stage.
"""

import argparse
import contextlib
import dataclasses
import importlib.util
import json
import os
import pprint
import statistics
import sys
import time


def load_parts():
    """Loads the folder tfharness_parts beside this file as a package; the path for imports may lead to another one."""
    folder = os.path.join(os.path.dirname(os.path.realpath(__file__)), 'tfharness_parts')
    spec = importlib.util.spec_from_file_location('tfharness_parts', os.path.join(folder, '__init__.py'), submodule_search_locations=[folder])
    if 'tfharness_parts' not in sys.modules:
        sys.modules['tfharness_parts'] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules['tfharness_parts'])


load_parts()
from tfharness_parts.inputs import Inputs, tensor  # noqa: E402
from tfharness_parts.targets import check_takes, find_target, step_of, target_of  # noqa: E402
from tfharness_parts.trust import Problem, plain, say  # noqa: E402

__all__ = ['HarnessConfig', 'Problem', 'Script', 'StageBenchHarness', 'find_target', 'from_signature_file', 'step_of', 'target_of', 'tensor']
ALLOWED = frozenset('abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._ #*()-')


def file_name(stage):
    """Returns the stage's name as a part of a file name."""
    name = ''.join(c if c in ALLOWED else '_' for c in stage)[:120] or '_'
    return '_' + name[1:] if name[0] == '.' else name


# ---- the profile ----

def device_module():
    """Returns the module of the device in use, such as torch.cuda, else None."""
    import torch
    for name in ('cuda', 'xpu', 'npu', 'mps'):
        module = getattr(torch, name, None)
        if hasattr(module, 'is_available') and module.is_available():
            return module
    return None


def breakdown_of(profiler, stage):
    """Returns the device's kernels by name; without a device the operators by self time. The total is the sum of the rows."""
    from torch.autograd import DeviceType
    rows, events = {}, profiler.events()
    kernels = [e for e in events if e.device_type != DeviceType.CPU and not getattr(e, 'is_user_annotation', False)
               and not e.name.startswith(('Memcpy', 'Memset'))]
    operators = [e for e in events if e.device_type == DeviceType.CPU and e.name != '[memory]'
                 and not getattr(e, 'is_python_function', False)]
    launches = {e.id: e.time_range.elapsed_us() / 1000 for e in events if e.device_type == DeviceType.CPU
                and e.name.startswith(('cuda', 'cu', 'hip')) and hasattr(e, 'id')}
    for e in kernels or operators:
        row = rows.setdefault(e.name, {'name': e.name, 'ms': 0.0, 'cuda_ms': 0.0, 'cpu_ms': None if kernels else 0.0, 'calls': 0})
        ms = (e.time_range.elapsed_us() if kernels else e.self_cpu_time_total) / 1000
        row['ms'] += ms
        row['cuda_ms' if kernels else 'cpu_ms'] += ms
        row['calls'] += 1
        launch = launches.get(getattr(e, 'id', None)) if kernels else None  # a kernel has the id of its launch
        if launch is not None:
            row['cpu_ms'] = (row['cpu_ms'] or 0.0) + launch
    top = sorted(rows.values(), key=lambda r: -r['ms'])
    return {'name': stage, 'of': 'device kernels' if kernels else 'operators',
            'total_kernel_time_ms': sum(r['ms'] for r in top), 'num_kernels': len(top),
            'launches': sum(r['calls'] for r in top), 'top_kernels': top[:50]}


def options(parser):
    """Parses the command line into a HarnessConfig, which has the defaults."""
    parser.add_argument('--target', help='the stage: module:obj, file.py:obj, or module:make().obj')
    parser.add_argument('--warmup', type=int, help='iterations before the profile, 0 for none (default: 1)')
    parser.add_argument('--profile-steps', '--profile_steps', type=int, help='profiled iterations (default: 1)')
    parser.add_argument('--output-dir', '--output_dir', help='directory of the files (default: the current one)')
    parser.add_argument('--device', help='device of all inputs, instead of the recorded ones')
    parser.add_argument('--no-grad', action='store_true', help='run the stage under torch.no_grad()')
    parser.add_argument('--trust', action='store_true', help='the trace is your own: run and make everything that it names')
    return parser.parse_args(namespace=HarnessConfig(output_dir='.'))


SCRIPT = '''#!/usr/bin/env python3
"""profile_{name}.py - runs the stage {name} of a pipeline alone and profiles it; --help lists the options."""
import sys

sys.path[:__name__ == '__main__'] = [{folder!r}]  # no file beside the script is imported
import tfharness

SIGNATURE = {signature}


def build(device=None, trust=False):
    return tfharness.target_of(SIGNATURE, device, trust)


def values(inputs):
    return inputs


script = tfharness.Script(SIGNATURE, build, values)
create_inputs, run_single_step, profile_stage = script.create_inputs, script.run_single_step, script.profile_stage

if __name__ == '__main__':
    script.main()
'''


@dataclasses.dataclass
class HarnessConfig:
    """Settings of a run. output_dir None becomes the run directory, as TeleFuser and tfinject choose it."""

    warmup: int = 1
    profile_steps: int = 1
    output_dir: str = None
    device: str = None
    no_grad: bool = False
    trust: bool = False  # run and make everything that the signature names
    capture_output: bool = False  # keep the result of the last step in `output`

    def __post_init__(self):
        if self.output_dir is None:
            set_one = [os.environ[n] for n in ('TFI_OUTPUT_DIR', 'TELEFUSER_PROFILER_OUTPUT_DIR') if os.environ.get(n)]
            pipeline = os.environ.get('TFI_PIPELINE_NAME') or os.environ.get('TELEFUSER_PIPELINE_NAME') or 'default'
            self.output_dir = set_one[0] if set_one else os.path.join('work_dirs', 'profiler_output', pipeline, time.strftime('%Y%m%d_%H%M'))


class StageBenchHarness:
    """A stage, the signature of its inputs, and the object that runs it."""

    def __init__(self, stage_name, io_signature, stage_instance=None, config=None, values=None):
        """`values`, a function of a script, may change the inputs."""
        self.stage_name, self.io_signature, self.values = stage_name, io_signature, values
        self.stage_instance, self.config = stage_instance, config or HarnessConfig()
        self.inputs, self.notes, self.output, self._step = None, [], None, None

    @classmethod
    def from_signature_file(cls, signature_path, stage_name, stage_instance=None, config=None):
        """Raises Problem, a ValueError, if the file or the stage does not exist."""
        stages = read_signatures(signature_path)
        if stage_name not in stages:
            raise Problem(f"{signature_path}: Stage '{stage_name}' not found in signature file. Available: {list(stages)}")
        return cls(stage_name, stages[stage_name], stage_instance, config)

    def make_inputs(self):
        maker = Inputs(self.config.device, self.config.trust)
        made = maker.all_of(self.io_signature)
        self.inputs, self.notes = self.values(made) if self.values else made, maker.notes
        return self.inputs

    def setup(self):
        """Makes the inputs and chooses the step function. Without an instance, the signature names the target."""
        self.make_inputs()
        target = self.stage_instance
        if target is None:
            target = target_of(self.io_signature, self.config.device, self.config.trust)
        self._step = step_of(target, signature=self.io_signature)
        check_takes(target, self.inputs)
        say(f"Setup complete for stage '{self.stage_name}'")
        say(f'Mock inputs: {list(self.inputs)}')
        for note in self.notes:
            say(note)

    def run_single_step(self, inputs=None):
        if self._step is None:
            raise RuntimeError('No single-step function available. Call setup() first.')
        result = self._step(self.inputs if inputs is None else inputs)
        if self.config.capture_output:
            self.output = result
        return result

    def profile(self, warmup=None, profile_steps=None, output_suffix=''):
        """Returns stage_name, warmup, profile_steps, timing_ms, median_ms, spread_ms, kernel_breakdown."""
        if self._step is None:
            self.setup()
        import torch
        had_none = (self.io_signature.get('object') or {}).get('grad') is False  # the pipeline had no gradients
        try:
            with torch.no_grad() if self.config.no_grad or had_none else contextlib.nullcontext():
                results = self.measure(self.config.warmup if warmup is None else warmup,
                                       self.config.profile_steps if profile_steps is None else profile_steps, output_suffix)
        except Problem:
            raise
        except Exception:
            say('The stage failed. The values of its inputs are random: if the values matter, edit values() in the script')
            raise
        if not self.values:
            self.save_test_script(self.config.output_dir)
        return results

    def inputs_of_steps(self, count):
        """Returns the inputs of each step: the same ones, unless a step adds to its inputs, as decoders do."""
        first = self.make_inputs()
        grows = any(hasattr(value, 'get_seq_length') for value in first.values())
        return [first if i == 0 or not grows else self.make_inputs() for i in range(count)]

    def measure(self, warmup, profile_steps, suffix):
        """Runs the steps with warm-up and under torch.profiler, and writes {stage}{suffix}_trace.json.gz and the breakdown."""
        import torch
        recorded = self.io_signature.get('recorded') or {}
        if warmup < 0 or profile_steps < 1:
            raise Problem(f'warmup={warmup}, profile_steps={profile_steps}: warmup must be at least 0, profile_steps at least 1')
        os.makedirs(self.config.output_dir, exist_ok=True)
        stem = os.path.join(self.config.output_dir, file_name(self.stage_name) + suffix)
        module, activities = device_module(), torch.profiler.ProfilerActivity
        name = module.__name__.rpartition('.')[2].upper() if module else 'CPU'
        activities = {activities.CPU, getattr(activities, name, activities.CPU)}
        synchronize = module.synchronize if module else lambda: None
        threads = recorded.get('threads')
        if type(threads) is int and 0 < threads <= (os.cpu_count() or 1) and threads != torch.get_num_threads():
            say(f'torch uses {threads} thread(s), as in the pipeline')
            torch.set_num_threads(threads)
        say(f'Running {warmup} warmup iteration(s)...')
        for inputs in self.inputs_of_steps(warmup):
            self.run_single_step(inputs)
            synchronize()
        given = self.inputs_of_steps(profile_steps)
        if hasattr(module, 'empty_cache'):
            module.empty_cache()
        say(f'Running {profile_steps} profile iteration(s)...')
        times = []
        with torch.profiler.profile(activities=activities, record_shapes=True, profile_memory=True, with_stack=True) as profiler:
            for inputs in given:
                start = time.perf_counter()
                self.run_single_step(inputs)
                synchronize()
                times.append((time.perf_counter() - start) * 1000)
        profiler.export_chrome_trace(f'{stem}_trace.json.gz')
        say(f'Chrome trace saved to: {stem}_trace.json.gz')
        breakdown = breakdown_of(profiler, self.stage_name)
        with open(f'{stem}_breakdown.json', 'w', encoding='utf-8') as f:
            json.dump(breakdown, f, indent=2)
        say(f'Kernel breakdown saved to: {stem}_breakdown.json')
        median, least, most = statistics.median(times), min(times), max(times)
        say(f'Average iteration time: {statistics.fmean(times):.2f} ms')
        say(f'Median iteration time: {median:.2f} ms (from {least:.2f} to {most:.2f})')
        if recorded.get('median_ms') is not None:
            done = recorded.get('done_ms')
            say(f'In the pipeline: median {recorded["median_ms"]:.2f} ms of {recorded["calls"]} call(s)' +
                ('' if done is None else f', on average {done:.2f} ms until the device was done'))
        return {'stage_name': self.stage_name, 'warmup': warmup, 'profile_steps': profile_steps, 'timing_ms': times,
                'median_ms': median, 'spread_ms': [least, most], 'kernel_breakdown': breakdown}

    def save_test_script(self, directory):
        path = os.path.join(directory, f'profile_{file_name(self.stage_name)}.py')
        if os.path.exists(path):
            say(f'Test script {path} exists, so it is not overwritten')
            return
        signature = pprint.pformat({**self.io_signature, 'stage_name': self.stage_name}, width=120, sort_dicts=False)
        with open(path, 'w', encoding='utf-8') as f:
            f.write(SCRIPT.format(name=file_name(self.stage_name), folder=os.path.dirname(os.path.abspath(__file__)), signature=signature))
        say(f'Test script saved to: {path}')


from_signature_file = StageBenchHarness.from_signature_file


def read_signatures(path):
    """Returns {stage: signature} from a timing_io_signature.json."""
    try:
        with open(path, encoding='utf-8') as f:
            stages = json.load(f)['stages']
        if all(isinstance(s, dict) and isinstance(s.get('input_signatures', {}), dict) for s in stages.values()):
            return stages
        raise KeyError('input_signatures')
    except OSError as e:
        raise Problem(f'{path}: {e.strerror}; `tfanalyze report DIR` writes DIR/timing_io_signature.json') from e
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise Problem(f'{path}: the file contains no signatures of stages ({type(e).__name__}: {e}); '
                      '`tfanalyze report DIR` writes DIR/timing_io_signature.json') from e


class Script:
    """What profile_{stage}.py does with the signature that it holds, and with its functions build() and values()."""

    def __init__(self, signature, build, values):
        self.signature, self.build, self.values = signature, build, values

    def create_inputs(self, device=None):
        """Makes the stage's inputs by name."""
        return self.values(Inputs(device).all_of(self.signature))

    def run_single_step(self, stage, inputs):
        """Runs the stage once, or one step of it, and returns the result."""
        return step_of(stage, lambda line: None, self.signature)(inputs)

    def profile_stage(self, stage, warmup=1, profile_steps=1, output_dir='.'):
        """Runs the stage with warm-up and under torch.profiler; returns times in milliseconds and the breakdown."""
        return self.profile(stage, HarnessConfig(warmup, profile_steps, output_dir))

    def profile(self, stage, config):
        return StageBenchHarness(self.signature['stage_name'], self.signature, stage, config, self.values).profile()

    def main(self):
        parser = argparse.ArgumentParser(description=f'Runs the stage {self.signature["stage_name"]!r} alone and profiles it.')
        config = options(parser)
        sys.path.append(os.getcwd())
        try:
            self.profile(find_target(config.target) if config.target else self.build(config.device, config.trust), config)
        except Problem as e:
            sys.exit(f'{os.path.basename(sys.argv[0])}: {e}')


def main():
    parser = argparse.ArgumentParser(
        prog='tfharness.py', description=__doc__.split('\n\n')[0].partition(' - ')[2],
        epilog='Exit status: 0 done, 1 the file, the stage or the target cannot be used, 2 wrong options.')
    parser.add_argument('--signature', required=True, help='timing_io_signature.json of a run')
    parser.add_argument('--stage', help='the stage to run')
    parser.add_argument('--list-stages', '--list_stages', action='store_true', help='list the stages of the file and exit')
    config = options(parser)
    if not config.list_stages and not config.stage:
        parser.error('--stage is missing; --list-stages lists the stages of the file')
    if config.warmup < 0 or config.profile_steps < 1:
        parser.error('--warmup must be at least 0, --profile-steps at least 1')
    try:
        if config.list_stages:
            print(f'Available stages in {config.signature}:')
            for stage in read_signatures(config.signature):
                print(f'  - {plain(stage)}')
            return
        harness = from_signature_file(config.signature, config.stage, config=config)
        if config.target:
            harness.stage_instance = find_target(config.target)
        harness.profile()
    except Problem as e:
        sys.exit(f'tfharness: {e}')


if __name__ == '__main__':
    main()
