"""test_cache_dit_gpu - on a device cache-dit's own contexts run, and what a program finds afterwards is what it is without us.

The real package runs a script on the simulated GPU without the library and with it.
"""

import json
import re

import pytest

import cachedit_alone
from conftest import BUILD, built

GPU = BUILD / 'simgpu'
pytestmark = [pytest.mark.slow, pytest.mark.torch]

# The script prints all that a program may read, call and open after each of cache-dit's names.
SCRIPT = '''
import gzip, inspect, json, logging, os, sys, warnings
warnings.filterwarnings('ignore')
import torch
import cache_dit.profiler as module
from cache_dit._utils.utils import create_profiler_from_args
logging.basicConfig(level=logging.INFO, format='%(levelname)s %(name)s %(filename)s %(funcName)s: %(message)s', stream=sys.stdout)
x = torch.arange(1000, dtype=torch.float32).to('cuda')

def say(context):
    print(type(context), {k: v if isinstance(v, (str, bool, list)) else str(v).partition(' ')[0] for k, v in vars(context).items()})

def events(path):
    with gzip.open(path) as file: found = json.load(file)['traceEvents']
    kinds = ('cpu_op', 'kernel', 'user_annotation', 'gpu_memcpy', 'python_function')
    found = [(e['cat'], e['name'].replace(os.getcwd(), '')) for e in found if e.get('cat') in kinds]
    print('frames of others:', sum('<tfinject>' in name for _, name in found) < 10)  # the methods in the place of cache-dit's
    return sorted({(kind, name) for kind, name in found if '<built-in' not in name and '<tfinject>' not in name})

with module.ProfilerContext(activities=['CPU', 'GPU'], output_dir='one', profile_name='both') as context:
    y = x * 2
say(context)
print(context.trace_path, events(context.trace_path))
averages = context.profiler.key_averages()
print(sorted(e.key for e in averages if e.key[:4] == 'aten'), 'aten::mul' in averages.table(row_limit=9), len(context.profiler.events()) > 3)
with module.ProfilerContext(activities=['CPU', 'MEM'], output_dir='two', profile_name='memory', with_stack=False) as context:
    y = x + 2
say(context)
decorate = module.profile_function(activities=['GPU'], output_dir='three')
@decorate
def plain(x, factor=2): return x * factor
@decorate
async def waits(x): return x
@decorate
def fails(x): raise KeyError('as the program meant it')
print(plain(x, factor=3).sum().item(), plain.__name__, inspect.signature(plain), inspect.iscoroutinefunction(waits))
waits(x).close()
try: fails(x)
except KeyError as error:
    frame, names = error.__traceback__, []
    while frame: names.append((frame.tb_frame.f_code.co_name, os.path.basename(frame.tb_frame.f_code.co_filename))); frame = frame.tb_next
    print(error, names)
with module.create_profiler_context(enabled=False) as context: y = x * 2
say(context)
try: module.ProfilerContext('too', 'many', 3, 4, 5, 6, 7)
except TypeError as error: print(error, error.__traceback__.tb_next)
cls = module.ProfilerContext
for thing in (cls, cls.__init__, cls.__enter__, cls.__exit__, module.profile_function, create_profiler_from_args):
    print(type(thing), thing.__module__, thing.__qualname__, thing.__doc__, inspect.signature(thing), inspect.getsource(thing),
          getattr(thing, '__annotations__', None), getattr(thing, '__defaults__', None))
print(cls.__mro__, sorted(vars(cls)), sorted(name for name in vars(module) if name[:2] != '__'))
for folder in ('one', 'two', 'three'): print(sorted(os.listdir(folder)))
'''


def timeless(text):
    return re.sub(r'(?<=-memory-)\d+|(?<=profile_)\d{9,}|(?<= at 0x)\w+|USDT.*', '#', text)


def test_what_a_program_finds_afterwards(run, python, lib, analyze, tmp_path):
    """cache-dit's profiler object, trace, snapshot, lines, attributes and functions are there. Each context is a stage that has its
    work, a decorated function's stage has its arguments and result, and `report` leaves the files to cache-dit."""
    (tmp_path / 'script.txt').write_text('* 5ms\n')
    both = []
    for preload in ([], [lib]):
        place = tmp_path / f'place{len(preload)}'
        place.mkdir()
        (place / 'after.py').write_text(SCRIPT)
        env = {**cachedit_alone.environment(python, place), 'LD_LIBRARY_PATH': GPU, 'SIMGPU_REAL': '1',
               'SIMGPU_SCRIPT': tmp_path / 'script.txt', 'KINETO_LOG_LEVEL': '5', 'TFI_STAGES': ''}
        both.append(run([python, 'after.py'], env, cwd=place, preload=':'.join(
            str(built(p)) for p in (*preload, GPU / 'libcudart.so.13', GPU / 'libcupti.so.13'))))
    bare, result = both
    assert bare.rc == result.rc == 0, (bare.err[-2000:], result.err[-2000:])
    assert timeless(result.out).splitlines() == timeless(bare.out).splitlines() and "('kernel', '" in bare.out and 'python_function' in bare.out
    assert 'tfinject' not in result.err

    stages = {row['stage']: row for row in analyze('stages', result.dir)['rows']}
    assert {name: row['calls'] for name, row in stages.items() if name not in ('(none)', '(start-up)')} == {
        'both': 1, 'memory': 1, 'plain': 1, 'waits': 1, 'fails': 1}
    assert all(stages[name]['done_us'] > 5000 and abs(stages[name]['device_us'] - 5000) < 1 for name in ('both', 'memory', 'plain'))
    before = {p.relative_to(tmp_path): p.stat().st_mtime_ns for p in (tmp_path / 'place1').rglob('*')}
    analyze('report', result.dir, format=None)
    assert {p.relative_to(tmp_path): p.stat().st_mtime_ns for p in (tmp_path / 'place1').rglob('*')} == before
    assert not list(result.dir.glob('*.pickle')) and (result.dir / 'both_rank0.trace.json.gz').exists()
    said = json.loads((result.dir / 'timing_io_signature.json').read_text())['stages']['plain']
    assert said['input_signatures']['x']['shape'] == [1000] and said['metadata'] == {'factor': 3} and said['output_signature']
