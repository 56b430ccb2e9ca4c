"""test_left_out - every command under a selection of stages, a schedule and a capture: what is not in the trace is null.

One program on the simulated GPU is recorded whole, and with each of these. Of every row that the whole recordings have
too, every number is null, or the one of the whole run, or, where recording was on for some steps only, the one of these
steps (`--step`). Numbers that differ between whole recordings depend on the host; of them none is 0 that is not 0 there.
A kernel takes many seconds of the simulated device's time, for which nobody waits: the device never waits for a host that stands
still, and no time of the host is as long. The commands are those of commands.def.
"""

import gzip
import json
import re
from collections import Counter

import pytest

import pftrace
import scripted
from conftest import BUILD, ROOT, clean_environment, execute

STEPS = 6
PROGRAM = """
import ctypes, os
cuda, library = ctypes.CDLL('libcuda.so.1'), ctypes.CDLL(None)
context, memory, stream, module = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_void_p()
function = {b'gemm': ctypes.c_void_p(), b'ncclDevKernel_AllReduce_Sum_f32': ctypes.c_void_p()}

def good(result):
    assert result == 0, result

def read(times):
    for i in range(times):
        file = os.open(os.environ['SIMGPU_SCRIPT'], os.O_RDONLY)
        assert os.read(file, 10)
        os.close(file)

def launch(name, blocks):
    count = ctypes.c_uint(blocks)
    values = (ctypes.c_void_p * 2)(*(ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in (memory, count)))
    good(cuda.cuLaunchKernel(function[name], blocks, 1, 1, 128, 1, 1, 0, stream, values, None))

good(cuda.cuInit(0))
good(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
good(cuda.cuCtxSetCurrent(context))
good(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 16)))
good(cuda.cuStreamCreate(ctypes.byref(stream), 1))
head = b'.version 8.0\\n.target sm_75\\n.address_size 64\\n'
good(cuda.cuModuleLoadData(ctypes.byref(module), head + b''.join(
    b'.visible .entry %s(.param .u64 out, .param .u32 n) { ret; }\\n' % name for name in function)))
for name, of in function.items():
    good(cuda.cuModuleGetFunction(ctypes.byref(of), module, name))
cuda.cuProfilerStart()
for step in range(6):
    library.tfi_range_push(b'ProfilerStep#%d' % step)
    library.tfi_range_push(b'encode')
    read(3)
    launch(b'gemm', 7)
    launch(b'gemm', 8)
    library.tfi_range_pop()
    library.tfi_range_push(b'denoise')
    read(2)
    for i in range(3):
        launch(b'gemm', 20 + i)
    good(cuda.cuMemcpyDtoDAsync_v2(memory, ctypes.c_uint64(memory.value + 4096), ctypes.c_size_t(1000), stream))
    good(cuda.cuMemsetD8Async(memory, ctypes.c_ubyte(1), ctypes.c_size_t(512), stream))
    library.tfi_range_pop()
    launch(b'ncclDevKernel_AllReduce_Sum_f32', 9)
    good(cuda.cuStreamSynchronize(stream))
    if step == 2:
        cuda.cuProfilerStop()
    library.tfi_range_pop()
"""
SCRIPT = 'latency 2s\n*gemm* 20s + 50ms*blocks\nnccl* 45s\nmem* 5s + 100us*bytes\n'
OF_THE_DEVICE = 10**6  # microseconds: times from here on are the device's
WHOLE = ('whole', 'whole2', 'whole3')
RECORDINGS = {  # what sets it up, and the steps that it holds
    'list': ({'ENABLE_PROFILER_NAMES': 'denoise'}, None),
    'empty': ({'ENABLE_PROFILER_NAMES': ''}, None),
    'schedule': ({'TFI_SCHEDULE': 'skip_first=1,wait=0,warmup=1,active=2,repeat=1'}, '2,3'),
    'capture': ({'TFI_CAPTURE': 'cudaProfilerApi'}, '0,1,2'),
}
PLACES = ('rank', 'pid', 'tid', 'device', 'stream', 'step')  # numbers that say whose row it is
# They depend on the machine's load. A launch is short or slow by the host time of its call; done_us begins where the host enters a stage.
OF_THE_HOST = ('short_kernels', 'slow_launches', 'delayed', 'done_us')
ROWS = {name: takes for name, takes in re.findall(r'^COMMAND\("([^"]+)"((?:(?!^COMMAND).)*)', (ROOT / 'analysis/commands.def').read_text(), re.M | re.S)
        if re.search(r'\bROWS\b', takes)}
COMMANDS = [name for name in ROWS if name not in ('info', 'dump')]  # these describe what is recorded
COMMANDS += [f'{name} --rules {rules.lower()}' for name, takes in ROWS.items() for rules in re.findall(r'RULE\((\w+),', takes)
             if rules != 'DFANALYZER']  # it counts the events of the files
ARGUMENTS = {'patterns': lambda run: ['--operator', 'o', run], 'diff': lambda run: [run, run],
             'report': lambda run: ['--output', run.with_name(f'{run.name}.report'), run]}


@pytest.fixture(scope='module')
def recorded(tmp_path_factory, lib, python):
    """{name: its run directory}"""
    top = tmp_path_factory.mktemp('left_out')
    (top / 'program.py').write_text(PROGRAM)
    (top / 'script').write_text(SCRIPT)
    for name, env in {**dict.fromkeys(WHOLE, {}), **{name: env for name, (env, _) in RECORDINGS.items()}}.items():
        result = execute([python, top / 'program.py'], clean_environment() | {
            'LD_LIBRARY_PATH': str(BUILD / 'simgpu'), 'SIMGPU_SCRIPT': str(top / 'script'), 'LD_PRELOAD': str(lib),
            'TFI_ACTIVITIES': 'cpu,gpu,mem,nccl,ops,io', 'TFI_IO_PATHS': str(top), 'TFI_SAMPLE_HZ': '0', 'TFI_OUTPUT_DIR': str(top / name), **env}, top)
        assert result.rc == 0, result.err
        scripted.only(scripted.traces(top / name))
    return top


def ask(tfanalyze, top, command, recording, *options):
    """{what the row is about: its numbers}, with the totals; None if the command refuses, {} if nothing is there."""
    arguments = ARGUMENTS.get(command.partition(' ')[0], lambda run: [run])(top / recording)
    result = execute([tfanalyze, *command.split(), *arguments, *options, '--format', 'json'], clean_environment(), top)
    if not result.out.startswith('{'):
        return None if result.rc == 2 else {}
    answer, found = json.loads(result.out), {}
    for row in answer['rows']:
        about = tuple(sorted((k, json.dumps(v)) for k, v in row.items() if k != 'pid' and (k in PLACES or not isinstance(v, (int, float)) and v is not None)))
        found.setdefault(about, []).append({k: v for k, v in row.items() if isinstance(v, (int, float)) and k not in PLACES + OF_THE_HOST})
    found = {about: rows[0] for about, rows in found.items() if len(rows) == 1}
    of_rows = {k for k, v in answer['totals'].items() if v == len(answer['rows'])}  # these count rows
    found['totals'] = {k: v for k, v in answer['totals'].items() if isinstance(v, (int, float)) and k not in of_rows and k not in OF_THE_HOST}
    return found


def near(key, value):
    """What counts as the same value. A device's times lie on a line through two readings of both clocks, each up to half a microsecond off."""
    return pytest.approx(value, abs=1 if is_time(key) else 0.01)


def is_time(key):
    return key.split('_')[-1] == 'us'


def value_of(answers, about, key):
    """The value of whole recordings; None if it is not the same in all, or a time of the host, or a share of one."""
    values = [a.get(about, {}).get(key) for a in answers]
    if not values or None in values or (is_time(key) and max(values) < OF_THE_DEVICE):
        return None
    if key.endswith('pct') and not any(value_of(answers, about, k) for k in answers[0][about] if is_time(k)):
        return None
    return values[0] if all(v == near(key, values[0]) for v in values) else None


def wrong(found, whole, of_steps):
    """The numbers that are neither of the whole run nor of the steps, and the zeros of what is not 0."""
    for about, numbers in found.items():
        for key, value in numbers.items():
            known = [v for v in (value_of(whole, about, key), value_of(of_steps, about, key)) if v is not None]
            of_all = [a[about].get(key) for a in of_steps or whole if about in a]
            if about == 'totals' and value - 1 in known:  # cuProfilerStart is in no step
                continue
            if known and not any(value == near(key, v) for v in known):
                yield about, key, value, known
            if not value and len(of_all) == len(WHOLE) and all(of_all):
                yield about, key, value, of_all


@pytest.mark.parametrize('command', COMMANDS)
def test_no_part_counts_as_a_whole(tfanalyze, recorded, command):
    whole = [ask(tfanalyze, recorded, command, name) for name in WHOLE]
    for name, (_, steps) in RECORDINGS.items():
        of_steps = [a for a in (ask(tfanalyze, recorded, command, w, '--step', steps) for w in WHOLE) if a] if steps else []
        if steps and not of_steps and ('--rules' in command or command == 'hotspots'):
            continue  # HTA has no steps, and there is no sample in these: nothing says what these should be
        found = ask(tfanalyze, recorded, command, name)
        assert not list(wrong(found, whole, of_steps)), name


@pytest.mark.parametrize('command', ['timeline', 'kinds', 'overlap', 'breakdown', 'bandwidth', 'launches', 'api', 'annotations', 'ops', 'diff', 'io'])
def test_a_selected_stage_is_known_whole(tfanalyze, recorded, command):
    """What a selection leaves out hides nothing of the stages that it keeps."""
    whole = [ask(tfanalyze, recorded, command, name, '--stage', 'denoise') for name in WHOLE]
    found = ask(tfanalyze, recorded, command, 'list', '--stage', 'denoise')
    assert len(whole[0]) > 1 and found.keys() == whole[0].keys()
    assert all(numbers.keys() <= found[about].keys() for about, numbers in whole[0].items())
    assert not list(wrong(found, whole, []))


def test_a_stream_is_not_idle_while_others_may_run(tfanalyze, recorded):
    """The gaps between the works of a selected stage hold work of others, which is not in the trace."""
    for command in ('idle', 'queue'):
        assert not any(ask(tfanalyze, recorded, command, 'list', '--stage', 'denoise').values())


def test_steps_of_a_schedule_and_a_capture_are_known(tfanalyze, recorded):
    """The time in which recording was on is answered whole."""
    for name in ('schedule', 'capture'):
        steps = ask(tfanalyze, recorded, 'timeline', 'whole', '--step', RECORDINGS[name][1])
        timeline = ask(tfanalyze, recorded, 'timeline', name)
        assert timeline['totals'] == steps['totals'] and [set(numbers) for numbers in timeline.values()] == [set(numbers) for numbers in steps.values()]


# ---- files ----

EXPORTS = [name for name in re.findall(r'^COMMAND\("([^"]+)"', (ROOT / 'analysis/commands.def').read_text(), re.M) if name.startswith('export ') or name == 'merge']


def export(tfanalyze, top, command, recording):
    """The file that a command writes."""
    output = top / f'{recording}.{command.replace(" ", "_")}'
    result = execute([tfanalyze, *command.split(), '--output', output, top / recording], clean_environment(), top)
    assert result.rc == 0, result.err
    return next(output.iterdir()) if output.is_dir() else output


def text_of(path):
    return (gzip.decompress if path.suffix == '.gz' else bytes)(path.read_bytes()).decode('utf-8', 'replace')


@pytest.mark.parametrize('command', [name for name in EXPORTS if name != 'export et'])  # et has no work of devices
def test_a_file_says_what_it_lacks(tfanalyze, recorded, command):
    detail = {'list': 'stages denoise only', 'empty': 'no stage', 'schedule': 'a part of the time only', 'capture': 'a part of the time only'}
    assert 'left out' not in text_of(export(tfanalyze, recorded, command, 'whole'))
    for name, of in detail.items():
        assert re.search(rf'detail of {of}, \d+ device records left out', text_of(export(tfanalyze, recorded, command, name))), name


def test_no_path_through_a_part(tfanalyze, recorded):
    """A critical path needs all records: no overlay is written of a part of them."""
    for name in ('whole', 'list', 'empty', 'schedule', 'capture'):
        overlay = recorded / f'{name}.overlay.json'
        result = execute([tfanalyze, 'critical-path', '--overlay', overlay, recorded / name], clean_environment(), recorded)
        if not overlay.exists():
            assert result.rc == 3 and 'has no critical path: records of device work' in result.err and name != 'whole'
        assert name == 'whole' or not overlay.exists() or 'device records left out' in overlay.read_text()


def spans_of(path):
    """{(stage, milliseconds of its span on the device): how many}"""
    events = [e for e in json.loads(text_of(path))['traceEvents'] if e.get('cat') == 'gpu_user_annotation']
    begun = {e['id']: e['ts'] for e in events if e['ph'] == 'b'}
    return Counter((e['name'], round((e['dur'] if e['ph'] == 'X' else e['ts'] - begun[e['id']]) / 1000)) for e in events if e['ph'] in 'Xe')


def test_spans_on_the_device_are_whole(tfanalyze, recorded):
    """A stage whose records are left out has its span all the same, and so have the stages around it."""
    whole = spans_of(export(tfanalyze, recorded, 'export chrome', 'whole'))
    assert whole[('encode', 40750)] == whole[('denoise', 73301)] == STEPS and sum(whole.values()) == 3 * STEPS
    for name in RECORDINGS:
        assert spans_of(export(tfanalyze, recorded, 'export chrome', name)) == whole, name


def test_no_counter_counts_a_part(tfanalyze, recorded):
    """A launch queue, some of whose launches are left out, has no counter."""
    counters = {name: set(pftrace.read(export(tfanalyze, recorded, 'export pftrace', name)).counters) for name in ('whole', *RECORDINGS)}
    queues = {name for name in counters['whole'] if name.startswith('launch queue')}
    assert queues and all(found == counters['whole'] - queues for found in counters.values() if found is not counters['whole'])
