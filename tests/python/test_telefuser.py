"""test_telefuser - TeleFuser with and without the library: the same files, console lines, return values, setters.

TeleFuser refuses the CPU, so both runs use the simulated GPU. The times of each run are compared with the program's own
clocks in that run. The run without the library enables TeleFuser's own profiler. torch would find its own libraries before those of
LD_LIBRARY_PATH, so the simulated ones are preloaded. Each run is made once for all tests of this file.
"""

import gzip
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from conftest import BUILD, built, clean_environment, execute

GPU = BUILD / 'simgpu'
OURS = {'writer', 'calls', 'device', 'stride', 'target', 'rank', 'signatures', 'output', 'object', 'recorded'}  # keys beyond TeleFuser's
TIMES = {'duration_ms', 'total_stages_ms', 'wall_clock_ms'}
BY_TIME = {'timestamp', 'percentage'}

PIPELINE = """
import asyncio, json, os, time
import torch
from telefuser.utils import profiler as p

clocks = {}  # of each name's last call: the time inside the context, and the time around it


def timed(name, context, work):
    outside = time.perf_counter()
    with context:
        inside = time.perf_counter()
        work()
        inside = time.perf_counter() - inside
    clocks[name] = [inside * 1000, (time.perf_counter() - outside) * 1000]


os.environ['ENABLE_PROFILER_NAMES'] = 'traced'  # TeleFuser reads it for each context; the library read it at start
with p.ProfilingContext('traced'):  # initialises the device
    torch.zeros(1000, device='cuda') * 2
del os.environ['ENABLE_PROFILER_NAMES']
with p.ProfilingContext('before the reset'):
    torch.zeros(1000, device='cuda') * 2
torch.cuda.empty_cache()
began = time.perf_counter()
p.reset_timing_registry('req_42', {'seed': 7})
reset = time.perf_counter()
p.set_timing_metadata('prompt', 'a "cat" \\u00fc')

class Stage:
    @p.ProfilingContext4Debug('denoise')
    def process(self, latents, ids, parts, scale=1.5, name='n', mask=None):
        inside = time.perf_counter()
        time.sleep(0.5)
        result = latents * scale
        self.inside = time.perf_counter() - inside
        return result

@p.ProfilingContext('fetch_it')
async def fetch(number):
    global waited
    waited = time.perf_counter()
    await asyncio.sleep(0.5)
    result = torch.ones(3)
    waited = time.perf_counter() - waited
    return result

def load():
    time.sleep(0.5)
    big = torch.zeros(40 << 20, dtype=torch.uint8, device='cuda')
    del big

def keep():
    global small
    time.sleep(0.5)
    small = torch.zeros(1 << 20, dtype=torch.uint8, device='cuda')

def outer():
    time.sleep(0.3)
    timed('step', p.ProfilingContext('step'), lambda: time.sleep(0.5))

timed('load', p.ProfilingContext('load', capture_memory=True), load)
timed('keep', kept := p.ProfilingContext('keep', reset_peak_memory=False), keep)
x, stage = torch.ones(2, 3).to('cuda'), Stage()
for i in range(2):
    outside = time.perf_counter()
    stage.process(x, torch.tensor([1, 2]), [torch.ones(2), torch.ones(3)], scale=2.0, name='call')
    clocks['denoise'] = [stage.inside * 1000, (time.perf_counter() - outside) * 1000]
timed('outer', p.ProfilingContext('outer'), outer)
outside = time.perf_counter()
asyncio.run(fetch(number=3))
clocks['fetch_it'] = [waited * 1000, (time.perf_counter() - outside) * 1000]
p.set_memory_baseline()
p.record_memory_snapshot('at the end')
before = time.perf_counter()
report = p.get_timing_report()
clocks['wall'] = [(before - reset) * 1000, (time.perf_counter() - began) * 1000]
p.print_timing_summary()
p.logger.complete()
print('clocks', json.dumps(clocks))
print('report', json.dumps(report))
print('signatures', json.dumps({n: s.to_dict() for n, s in p.get_io_signatures().items()}))
print('peak', torch.cuda.max_memory_allocated())

# The script prints all that a program may read of TeleFuser's names.
import inspect
from telefuser.utils import memory_snapshot
def show(name, thing):
    shown = [getattr(thing, key, None) for key in ('__module__', '__qualname__', '__doc__', '__annotations__', '__defaults__')]
    print('name', json.dumps([name, type(thing).__name__, *map(str, shown), str(inspect.signature(thing)), inspect.getsource(thing)[:100]]))
for module in p, memory_snapshot:
    print('name', json.dumps(sorted(name for name in vars(module) if name[:2] != '__')))
    for name, thing in sorted(vars(module).items()):
        if getattr(thing, '__module__', None) == module.__name__ and inspect.isfunction(thing): show(name, thing)
        if getattr(thing, '__module__', None) == module.__name__ and inspect.isclass(thing):
            print('name', json.dumps([name, [str(c) for c in thing.__mro__], sorted(vars(thing))]))
            for key, value in sorted(vars(thing).items()):
                value = getattr(value, '__func__', value)
                if inspect.isfunction(value) and inspect.unwrap(value).__code__.co_filename[-3:] == '.py': show(f'{name}.{key}', value)
for context in p._ProfilingContext('a'), p._NullContext('b'), kept:
    print('name', type(context), [(key, str(value) if isinstance(value, (str, bool, dict)) else type(value)) for key, value in sorted(vars(context).items())])
for thing in Stage.process, fetch: print('name', thing.__qualname__, inspect.signature(thing), inspect.iscoroutinefunction(thing), sorted(vars(thing)))
for act in (lambda: p.ProfilingContext(), lambda: p._NullContext(), lambda: p.set_pipeline_name(), lambda: p.set_profiler_output_dir(p=3)):
    try: act()
    except TypeError as error: print('name', error, error.__traceback__.tb_next.tb_next)
print('name', *sorted(key for key in os.environ if 'PROFILER' in key or 'TELEFUSER' in key))
"""


def waits_in(log):
    """How often the program waited for the whole device, by the device's log."""
    return sum(json.loads(line)['t'] == 'sync' for line in log.read_text().splitlines())


@pytest.fixture(scope='module')
def both(tmp_path_factory, lib, tfanalyze, python):
    """The runs `theirs` and `ours`: out, err, dir; ours has a report."""
    def make(name, preload):
        place = tmp_path_factory.mktemp(name)
        libraries = [built(GPU / 'libcudart.so.13'), built(GPU / 'libcupti.so.13')]
        env = {**clean_environment(), 'LD_LIBRARY_PATH': str(GPU), 'KINETO_LOG_LEVEL': '5', 'TELEFUSER_PROFILE_DEBUG': 'true',
               'SIMGPU_LOG': str(place / 'log'),
               'TELEFUSER_PROFILER_OUTPUT_DIR': str(place / 'run'), 'LD_PRELOAD': ':'.join(map(str, filter(None, [preload, *libraries])))}
        (place / 'pipeline.py').write_text(PIPELINE)
        result = execute([python, '-W', 'ignore', 'pipeline.py'], env, place)
        assert result.rc == 0, result.err[-3000:]
        return SimpleNamespace(out=result.out, err=result.err, dir=place / 'run', waits=waits_in(place / 'log'),
                               at_exit={p.name: p.read_text() for p in (place / 'run').glob('*.json')})

    theirs, ours = make('theirs', None), make('ours', lib)
    screen = execute([tfanalyze, 'report', ours.dir], clean_environment(), ours.dir)
    assert screen.rc == 0, screen.err
    return SimpleNamespace(theirs=theirs, ours=ours, screen=screen)


def differences(theirs, ours, path='', key=None, one_run=False):
    """Values of theirs that ours lacks or changes, and keys of ours that nobody knows. Times of one run agree within 10 %, or
    `one_run`, a number of milliseconds."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        named = path.endswith(('/stages', '/input_signatures', '/snapshots', '/metadata'))
        extra = [] if path.endswith('/metadata') else sorted(set(ours) - set(theirs) - (set() if named else OURS))
        return [f'{path}/{k}: not theirs' for k in extra] + [
            d for k in theirs for d in (differences(theirs[k], ours[k], f'{path}/{k}', k, one_run) if k in ours else [f'{path}/{k}: missing'])]
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        return [d for i, (a, b) in enumerate(zip(theirs, ours)) for d in differences(a, b, f'{path}[{i}]', None, one_run)]
    if key in TIMES:
        return [] if not one_run or abs(ours - theirs) <= max(0.1 * theirs, one_run) else [f'{path}: {theirs} and {ours}']
    return [] if key in BY_TIME or (theirs == ours and type(theirs) is type(ours) or isinstance(theirs, float) and theirs == ours) else [
        f'{path}: {theirs!r} and {ours!r}']


def printed(run, word):
    return json.loads(re.search(rf'^{word} (.*)$', run.out, re.M)[1])


def lines(run):
    """(rank, place in TeleFuser, text) of each line of its logger, without times and paths."""
    found = re.findall(r'^[-\d]+ [:.\d]+ \| INFO +\| \[pid:\d+ (rank:\d+)\] (\S+) \| (.*)$', run.out, re.M)
    return [(rank, place, re.sub(r'[\d.]+ ms', 'N ms', re.sub(r' /\S+', ' PATH', text))) for rank, place, text in found]


@pytest.mark.parametrize('name', ['timing.json', 'timing_io_signature.json'])
def test_files_equal_telefusers(both, name):
    """The files at exit and those of a report, which takes their place, have equal keys and values, apart from times:
    request, metadata, memory, async wall time, kept peaks."""
    theirs, ours = (json.loads((run.dir / name).read_text()) for run in (both.theirs, both.ours))
    at_exit = json.loads(both.ours.at_exit[name])
    assert differences(theirs, ours, name) == [] and differences(theirs, at_exit, name) == []
    assert (at_exit['writer'], ours['writer'].split()[0]) == ('tfinject', 'tfanalyze') and not list(both.ours.dir.glob('*~2*'))
    assert len(theirs['stages']) == (6 if name == 'timing.json' else 2)


def test_the_file_at_exit_has_the_same(both):
    theirs = json.loads((both.theirs.dir / 'timing.json').read_text())
    path, = both.ours.dir.glob('rank0.*.timing.json')
    ours = json.loads(path.read_text())
    ours = {k: v for k, v in ours.items() if k in theirs}
    ours['stages'] = {n: {k: v for k, v in s.items() if k in ('duration_ms', 'percentage', 'memory')} for n, s in ours['stages'].items()
                      if n not in ('traced', 'before the reset')}
    assert differences(theirs, ours) == []


def test_return_values(both):
    """get_timing_report(), get_io_signatures() and the peak after its contexts' resets are the same in the process."""
    for word in ('report', 'signatures', 'peak'):
        assert differences(printed(both.theirs, word), printed(both.ours, word), word) == []


def test_nothing_is_taken_from_the_program(both):
    """TeleFuser's classes, functions and variables, their attributes, sources and messages are what they are without the library."""
    theirs, ours = ([line.replace(str(run.dir.parent), '') for line in run.out.splitlines() if line.startswith('name ')] for run in (both.theirs, both.ours))
    assert len(theirs) > 60 and ours == theirs


def test_the_files_have_the_times_that_it_returned(both):
    """The files and return values of one run agree within 10 %, for an async stage too, which mostly waits; or within what a
    busy machine adds between the program's clock readings inside and around the contexts."""
    report, timing = printed(both.ours, 'report'), json.loads((both.ours.dir / 'timing.json').read_text())
    around = sum(outside - inside for inside, outside in printed(both.ours, 'clocks').values())
    assert differences(report, timing, one_run=0.1 + around) == []


@pytest.mark.parametrize('whose', ['theirs', 'ours'])
def test_times_lie_between_two_clocks(both, whose):
    """A stage's time, in the file and on the console, lies between the program's clock readings inside and around the context."""
    run = getattr(both, whose)
    clocks, timing = printed(run, 'clocks'), json.loads((run.dir / 'timing.json').read_text())
    times = {'wall': timing['wall_clock_ms'], **{name: s['duration_ms'] for name, s in timing['stages'].items()}}
    assert set(times) == set(clocks) and len(times) == 7
    shown = [(name, float(ms)) for name, ms in re.findall(r'\[Timing\] (.*?): ([\d.]+) ms', run.out) if name in clocks]
    assert len(shown) == 7 and timing['total_stages_ms'] == pytest.approx(sum(ms for _, ms in shown), rel=0.1)
    # TeleFuser rounds to hundredths of a millisecond. Of two calls of a stage the clocks are those of the last.
    assert [(n, t, clocks[n]) for n, t in [*times.items(), *dict(shown).items()] if not clocks[n][0] - 0.01 <= t <= clocks[n][1] + 0.01] == []
    assert all(inside >= 490 for inside, _ in clocks.values())


def test_contexts_wait_as_theirs(both):
    """Each of nine contexts waits at both edges, as TeleFuser's do; only the wait of TeleFuser's torch.profiler is gone."""
    assert both.ours.waits == both.theirs.waits - 1 >= 18


def test_console_lines(both):
    """TeleFuser's lines appear in order, from its functions, and name files that are there."""
    theirs, ours = lines(both.theirs), lines(both.ours)
    assert ours == theirs and len(ours) == 15 and '[Timing]' not in both.ours.err
    assert [text for _, _, text in ours[-2:]] == ['[Profiler] Layer 1 timing report saved to: PATH', '[Profiler] Stage I/O signatures saved to: PATH']
    paths = re.findall(r' saved to: (.*)$', both.ours.out, re.M)
    assert paths == [str(both.ours.dir / name) for name in ('timing.json', 'timing_io_signature.json')]
    said = [line for line in both.screen.out.splitlines() if line.startswith('[Profiler] ')]
    assert said == [f'[Profiler] Layer 1 timing report saved to: {both.ours.dir}/timing.json',
                    f'[Profiler] Stage I/O signatures saved to: {both.ours.dir}/timing_io_signature.json']
    assert any(line.startswith('  timing_io_signature.json ') for line in both.screen.out.splitlines())


def test_lines_of_its_profiler(both):
    """For a stage of ENABLE_PROFILER_NAMES the same lines name its profiler and its two files.

    After a report both files are there, with the stage's kernel."""
    for run in (both.theirs, both.ours):
        texts = [text for _, _, text in lines(run)]
        assert texts[0] == "[Rank 0] [Profiler] Started torch.profiler for 'traced'" and sum('[Profiler]' in t for t in texts[:-2]) == 3
        paths = [re.search(rf'\[Profiler\] {what}: (.*)$', run.err + run.out, re.M)[1] for what in ('Chrome trace', 'Kernel breakdown')]
        assert paths == [str(run.dir / f'traced_rank0.{name}') for name in ('trace.json.gz', 'breakdown.json')]
        events = json.loads(gzip.decompress(Path(paths[0]).read_bytes()))['traceEvents']
        assert any(e.get('cat') == 'kernel' for e in events) and json.loads(Path(paths[1]).read_text())['name'] == 'traced'


READ = """
import json, sys
from telefuser.utils.profiler import compare_timing_reports
from telefuser.utils.stage_bench_harness import StageBenchHarness
theirs, ours = sys.argv[1:]
print(json.dumps([compare_timing_reports(f'{a}/timing.json', f'{b}/timing.json') for a, b in ((theirs, ours), (theirs, theirs))]))
for place in sys.argv[1:]:
    harness = StageBenchHarness.from_signature_file(f'{place}/timing_io_signature.json', 'denoise')
    print(json.dumps(harness.io_signature.to_dict()))
"""


def test_telefusers_readers_read_our_files(both, forked):
    """TeleFuser's compare_timing_reports and its harness read our files."""
    env = {**clean_environment(), 'TELEFUSER_LOG_LEVEL': 'ERROR'}
    result = forked(['python', '-W', 'ignore', '-c', READ, both.theirs.dir, both.ours.dir], env)
    assert result.rc == 0, result.err[-2000:]
    reports, theirs, ours = map(json.loads, [line for line in result.out.splitlines() if line[:1] in '[{'][-3:])
    rows = [[row.split('|')[1:3] for row in report.splitlines() if row.startswith('| ')] for report in reports]
    assert [name for name, _ in rows[0]] == [name for name, _ in rows[1]] and len(rows[0]) == 10
    assert differences(theirs, ours) == []


SETTERS = """
import os, sys
import torch
from telefuser.utils import profiler as p
p.set_pipeline_name('wan21')
print(p.get_profiler_output_dir())
p.set_profiler_output_dir('named/here')
p.enable_profiler_for_names('denoi*')
print(p.get_profiler_output_dir())
with p.ProfilingContext('denoise'):
    torch.ones(3) + 1
with p.ProfilingContext('decode'):
    torch.ones(3) * 2
print(p.get_profiler_output_dir())
p.set_profiler_output_dir('later/place')
print(p.get_profiler_output_dir())
p.enable_profiler_for_names('*')
with p.ProfilingContext('decode'):
    torch.ones(3) / 2
"""


LATE = """
import torch
from telefuser.utils import profiler as p
torch.ones(3) + 1
p.set_pipeline_name('wan21')
p.reset_timing_registry('r')
p.ProfilingContext('decode')(lambda x: x + 1)(torch.ones(2))
p.set_pipeline_name('wan22')
print(p.get_profiler_output_dir())
"""


def test_setters(run, python, analyze, tmp_path):
    """The setters choose the directory until something is written, and the activities; the getter returns it. A later setter
    chooses where TeleFuser's own files go. A directory in use stays."""
    result = run([python, '-W', 'ignore', '-c', SETTERS], {'TFI_OUTPUT_DIR': None, 'TELEFUSER_LOG_LEVEL': 'ERROR'})
    assert result.rc == 0, result.err[-2000:]
    first, *rest = result.out.splitlines()
    there, later = tmp_path / 'named' / 'here', tmp_path / 'later' / 'place'
    assert re.fullmatch(r'work_dirs/profiler_output/wan21/\d{8}_\d{4}', first) and rest == ['named/here', 'named/here', 'later/place']
    assert list(there.glob('*.tfr')) and not (tmp_path / 'work_dirs').exists() and not (there / 'timing.json').exists()
    assert json.loads((later / 'timing.json').read_text())['stages'].keys() == {'denoise', 'decode'}
    line, = [line for line in result.err.splitlines() if line.startswith('tfinject: ')]
    assert "set_profiler_output_dir('later/place')" in line and str(there) in line and str(later) in line
    calls = {row['name']: row['calls'] for row in analyze('ops', there)['rows']}
    assert {name: calls.get(f'aten::{name}', 0) for name in ('add', 'mul', 'div')} == {'add': 1, 'mul': 0, 'div': 1}


def test_a_late_name(run, python, tmp_path):
    """set_pipeline_name after the first operator names the directory of what TeleFuser writes afterwards; the trace stays."""
    result = run([python, '-W', 'ignore', '-c', LATE], {'TFI_OUTPUT_DIR': None, 'TELEFUSER_LOG_LEVEL': 'ERROR'})
    assert result.rc == 0, result.err[-2000:]
    base = tmp_path / 'work_dirs' / 'profiler_output'
    minute, = (p.name for p in (base / 'default').iterdir())
    assert result.out == f'work_dirs/profiler_output/wan22/{minute}\n' and sorted(p.name for p in base.iterdir()) == ['default', 'wan22']
    assert sorted(p.name for p in (base / 'wan22' / minute).iterdir()) == ['timing.json', 'timing_io_signature.json']
    assert [p.suffix for p in (base / 'default' / minute).glob('*') if p.suffix in ('.tfr', '.live')] == ['.tfr']
    assert result.err.count('tfinject: ') == 2


def test_a_users_directory_goes_first(run, python, tmp_path):
    result = run([python, '-W', 'ignore', '-c', SETTERS], {'TELEFUSER_LOG_LEVEL': 'ERROR'})
    assert result.rc == 0 and set(line for line in result.out.splitlines() if line.startswith('/')) == {str(tmp_path / 'run')}
    assert list((tmp_path / 'run').glob('*.tfr')) and not (tmp_path / 'named').exists()


QUIET = """
import asyncio, functools, inspect, traceback
import torch
from telefuser.utils.profiler import ProfilingContext4Debug
def plain(a, b=2): return a + b
def failing(): raise ValueError('told')
def generator(n): yield from range(n)
async def coroutine(x): return x
async def later(n):
    for i in range(n): yield i
class Thing:
    def __init__(self, x=1): self.x = x
    def __call__(self, x): return self.x + x
things = dict(plain=plain, failing=failing, generator=generator, coroutine=coroutine, later=later, type=Thing, object=Thing(2), module=torch.nn.Linear(2, 3), static=staticmethod(plain),
              cls=classmethod(lambda cls: cls.__name__), prop=property(lambda self: 5), builtin=len, partial=functools.partial(plain, 1), bound=Thing(3).__init__, inference=torch.inference_mode()(plain))
made = {name: ProfilingContext4Debug(name)(thing) for name, thing in things.items()}
for name, thing in made.items():
    kinds = inspect.iscoroutinefunction(thing), inspect.isgeneratorfunction(thing), inspect.isasyncgenfunction(thing)
    print(name, type(thing), kinds, getattr(thing, '__name__', None), inspect.signature(thing) if callable(thing) and name != 'cls' else '')
class Holder:
    static, cls, prop = made['static'], made['cls'], made['prop']
    @ProfilingContext4Debug('method')
    def method(self): return type(self).__name__
async def all_of(n): return [i async for i in made['later'](n)]
print(made['plain'](1), made['plain'](b=3, a=4), list(made['generator'](3)), asyncio.run(made['coroutine'](7)), asyncio.run(all_of(2)), isinstance(made['type'](), Thing),
      made['object'](8), made['module'].weight.shape, made['builtin']([1]), made['partial'](), made['inference'](2), Holder.static(1), Holder.cls(), Holder().prop, Holder().method())
for act in made['failing'], lambda: made['plain'](), lambda: made['plain'](1, 2, 3):
    try: act()
    except Exception as error: print(*((frame.name, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)), error)
with ProfilingContext4Debug('ctx') as context: print(vars(context))
"""


@pytest.mark.slow
def test_what_a_quiet_context_decorates_stays_what_it_was(run, python, forked, analyze, tmp_path):
    """Outside debug mode TeleFuser returns what it decorates: a class, a module, a property, a generator stay what they were.
    A function does, raises and prints what it did, and is a stage."""
    theirs = forked(['python', '-W', 'ignore', '-c', QUIET], {**clean_environment(), 'TELEFUSER_LOG_LEVEL': 'ERROR'})
    ours = run([python, '-W', 'ignore', '-c', QUIET], {'TELEFUSER_LOG_LEVEL': 'ERROR'})
    assert theirs.rc == ours.rc == 0, ours.err[-2000:]
    assert len(theirs.out.splitlines()) == 20 and ours.out == theirs.out
    calls = {row['stage']: row['calls'] for row in analyze('stages', tmp_path / 'run')['rows']}
    assert {name: calls.get(name) for name in ('plain', 'coroutine', 'method', 'generator', 'module')} == {
        'plain': 4, 'coroutine': 1, 'method': 1, 'generator': None, 'module': None}


SYNC = """
import torch
x = torch.ones(1000, device='cuda')
for i in range(3):
    with torch.cuda.nvtx.range('stage'), torch.profiler.record_function('range'):
        x = x * 2
graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
with torch.cuda.stream(side):
    graph.capture_begin()
    with torch.cuda.nvtx.range('captured'):
        y = x * 3
    graph.capture_end()
graph.replay()
side.synchronize()
print('captured')
from telefuser.utils.profiler import ProfilingContext, logger
with ProfilingContext('context'):
    x * 2
logger.complete()
"""


def test_stages_wait_for_the_device(run, python, lib, analyze, tmp_path):
    """TFI_SYNC_STAGES=1 waits at both edges of each of seven stages, by the device's log, but not during a capture. One
    is a context of TeleFuser, which waits by TeleFuser's call as well. With 0 nothing waits, and the lines say so. With
    TFI_KEEP_ORIGINALS=1 that context is TeleFuser's own, and a stage. TeleFuser writes the report it was asked for."""
    waits, said = {}, {}
    for value in ('0', '1', 'kept'):
        log = tmp_path / f'log{value}'
        how = {'TFI_KEEP_ORIGINALS': '1'} if value == 'kept' else {'TFI_SYNC_STAGES': value}
        env = {**how, 'TELEFUSER_TIMING_REPORT': tmp_path / f'report{value}.json', 'TELEFUSER_PROFILE_DEBUG': 'true',
               'LD_LIBRARY_PATH': GPU, 'SIMGPU_LOG': log, 'KINETO_LOG_LEVEL': '5', 'TFI_OUTPUT_DIR': tmp_path / f'run{value}'}
        libraries = [lib, built(GPU / 'libcudart.so.13'), built(GPU / 'libcupti.so.13')]
        result = run([python, '-W', 'ignore', '-c', SYNC], env, preload=':'.join(map(str, libraries)))
        assert result.rc == 0 and result.out.startswith('captured\n') and 'tfinject: ' not in result.err, result.err[-2000:]
        waits[value] = waits_in(log)
        said[value] = re.findall(r'\[Timing\] (\w+): [\d.]+ (ms\w*(?: \w+)?)', result.err + result.out)
        assert list(json.loads((tmp_path / f'report{value}.json').read_text())['stages']) == ['context']
        assert not (tmp_path / f'run{value}' / 'timing.json').exists()
        rows = {row['stage'] for row in analyze('stages', tmp_path / f'run{value}')['rows']}
        assert rows >= {'context', 'stage', 'range', 'captured'}
    stages = [*['range', 'stage'] * 3, 'captured', 'context']
    assert waits['1'] == waits['0'] + 16 and waits['kept'] == waits['0'] + 2
    unit = {'0': ['ms launch'] * 8, '1': ['ms'] * 8, 'kept': [*['ms launch'] * 7, 'ms']}
    assert said == {value: list(zip(stages, unit[value])) for value in waits}
