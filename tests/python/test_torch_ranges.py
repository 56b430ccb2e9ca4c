"""test_torch_ranges - record_function's ranges as stages: across threads, in tasks of asyncio and uvloop, without memory each."""

from collections import Counter

import pytest

import tfr
from conftest import clean_environment, execute
from test_torch_ops import kind, named, read, text

TORCH, PAUSES = 0x400, 0x10000

RANGES = '''
import asyncio, os, threading, time, torch, uvloop
from torch.profiler import profile, record_function, schedule, ProfilerActivity
w = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([w], lr=0.1)
with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=1, active=2)) as p:
    for _ in range(3):
        w.sum().backward()
        optimizer.step()
        p.step()
for _ in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(4)), batch_size=2):
    pass
with record_function('outer'):
    try:
        with record_function('inner'):
            raise ValueError
    except ValueError:
        pass
future = torch.futures.Future()
with record_function('future') as r:
    future = r._call_end_callbacks_on_future(future) or future
first = torch.futures.Future()
range_ = record_function('elsewhere')
range_.__enter__()
done = range_._call_end_callbacks_on_future(first)
with record_function('beside'):
    pass
def finish():
    torch.ones(2) + 1
    first.set_result(1)
thread = threading.Thread(target=finish)
thread.start(), thread.join()
assert done.wait() == 1

async def task(name, seconds):
    with record_function(name):
        await asyncio.sleep(seconds)
        time.sleep(0.02)
        torch.ones(3) + 1
async def both(loop):
    await asyncio.gather(task(loop + 'one', 0.1), task(loop + 'two', 0.15))
asyncio.run(both(''))
uvloop.run(both('uvloop '))
'''


@pytest.fixture(scope='module')
def ranges(tmp_path_factory, lib, python):
    directory = tmp_path_factory.mktemp('ranges')
    env = {**clean_environment(), 'TFI_OUTPUT_DIR': str(directory / 'run'), 'LD_PRELOAD': str(lib)}
    result = execute([python, '-c', RANGES], env, directory)
    assert result.rc == 0 and 'tfinject:' not in result.err, result.err
    return read(directory / 'run')


def test_ranges_are_stages(ranges):
    ends = Counter(text(ranges, r.values['name']) for r in kind(ranges, 'range_end') if r.values['flags'] & TORCH)
    begins = Counter(text(ranges, r.values['name']) for r in kind(ranges, 'range_begin') if r.values['flags'] & TORCH)
    expected = {'ProfilerStep#0': 1, 'ProfilerStep#1': 1, 'ProfilerStep#2': 1, 'Optimizer.step#SGD.step': 3, 'outer': 1,
                'inner': 1, 'elsewhere': 1, 'beside': 1, 'one': 1, 'two': 1}
    assert {n: ends[n] for n in expected} == expected == {n: begins[n] for n in expected}
    assert ends['enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__'] == 3
    assert all(r.values['flags'] & tfr.STAGE for r in kind(ranges, 'range_end'))


def test_a_range_that_another_thread_ends(ranges):
    begin, = named(ranges, 'range_begin', name='elsewhere')
    end, = named(ranges, 'range_end', name='elsewhere')
    assert end.thread != begin.thread == end.values['thread']
    assert end.values['id'] == begin.values['id']
    beside, = named(ranges, 'range_end', name='beside')
    assert beside.values['time'] < end.values['time']


@pytest.mark.parametrize('loop', ['', 'uvloop '], ids=['asyncio', 'uvloop'])
def test_a_range_in_a_task_rests_while_the_task_waits(ranges, loop):
    for name in (loop + 'one', loop + 'two'):
        begin, = named(ranges, 'range_begin', name=name)
        pauses, resumes = named(ranges, 'range_pause', name=name), named(ranges, 'range_resume', name=name)
        assert len(pauses) == len(resumes) == 1
        assert {r.values['id'] for r in pauses + resumes} == {begin.values['id']}
        end, = named(ranges, 'range_end', name=name)
        assert end.values['flags'] & PAUSES
    # `two` is paused while `one` runs, so the operator lies in `one` alone.
    one, two = (named(ranges, 'range_resume', name=loop + n)[0].values['time'] for n in ('one', 'two'))
    assert named(ranges, 'range_pause', name=loop + 'two')[0].values['time'] < one < two


MANY_ENDED_ELSEWHERE = '''
import sys, torch
from concurrent.futures import ThreadPoolExecutor
from torch.profiler import record_function
one, other = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
def begin():
    ranges = [record_function('r') for _ in range(1000)]
    for r in ranges: r.__enter__()
    return ranges
def end(ranges):
    for r in ranges: r.__exit__(None, None, None)
def resident():  # without shared pages, which hold chunks that wait for the background thread
    _, pages, shared, *_ = map(int, open('/proc/self/statm').read().split())
    return (pages - shared) * 4096
for batch in range(120):
    if batch == 20: before = resident()
    other.submit(end, one.submit(begin).result()).result()
print(resident() - before)
'''


def test_ranges_ended_elsewhere_are_reused(run, python):
    """100,000 ranges that one thread begins and another one ends take no memory each."""
    result = run([python, '-c', MANY_ENDED_ELSEWHERE], {'TFI_ACTIVITIES': 'ops', 'TFI_MAX_MB': '1'})
    assert result.rc == 0, result.err[-2000:]
    assert int(result.out) < 6 << 20
