"""test_startup - the start of a process apart from its work: interpreter, imports, loading, first calls, against Python's own times."""

import re
import sys

import pytest

import iotrace
import scripted

# spin() takes milliseconds of a processor, whatever the machine does beside.
SPIN = '''def spin(n):
    for i in range(n * 20000): pass
'''


@pytest.fixture
def modules(tmp_path):
    """package imports package.inner, lazy is imported inside a function, broken raises, absent does not exist."""
    (tmp_path / 'spin.py').write_text(SPIN)
    (tmp_path / 'package').mkdir()
    (tmp_path / 'package' / '__init__.py').write_text('from spin import spin\nspin(5)\nfrom package import inner\nspin(3)\n')
    (tmp_path / 'package' / 'inner.py').write_text('from spin import spin\nspin(9)\n')
    (tmp_path / 'lazy.py').write_text('from spin import spin\nspin(4)\n')
    (tmp_path / 'broken.py').write_text('from spin import spin\nspin(4)\nraise ValueError("broken")\n')
    (tmp_path / 'main.py').write_text('''import os, sys
import package
try: import broken
except ValueError as error: print(error, len(list(iter(lambda: None, None))), error.__traceback__.tb_next.tb_frame.f_code.co_filename)
try: import absent
except ImportError as error: print(error)
from spin import spin
def work(i):
    import lazy
    spin(400 if i == 0 else 1)
for i in range(5): work(i)
os.close(os.open("/dev/null", os.O_RDONLY))
if "fork" in sys.argv and os.fork() == 0:
    os.close(os.open("/dev/null", os.O_RDONLY))
    os._exit(0)
''')
    return tmp_path


STAGES = {'TFI_STAGES': '__main__:work', 'TFI_ACTIVITIES': 'cpu'}


def pieces(trace):
    return {scripted.text(trace, r.values['name']): r.values for r in trace.records if r.kind == 'startup'}


def test_agrees_with_importtime(run, analyze, modules):
    """Both measure the same calls, ours inside Python's: none of ours is longer, and together they are nearly as long."""
    result = run([sys.executable, '-X', 'importtime', 'main.py'], STAGES, cwd=modules)
    assert result.rc == 0
    theirs = {m[3].strip(): (int(m[1]), int(m[2])) for m in re.finditer(r'^import time: +(\d+) \| +(\d+) \|( +\S+)$', result.err, re.M)}
    ours = {r['name']: r['total_us'] for r in analyze('startup', result.dir)['rows'] if r['what'] == 'import'}
    assert {'package', 'package.inner', 'lazy'} <= set(ours)
    both = [(ours[name], theirs[name][1]) for name in ours if name in theirs]
    assert all(mine <= its * 1.001 + 2 for mine, its in both)
    # A busy machine may hold the program up between the readings of the two clocks: that is one import each time.
    less = sorted(its - mine for mine, its in both)[:-3]
    assert sum(less) <= 0.1 * sum(its for _, its in both)


def test_pieces(run, analyze, modules):
    result = run([sys.executable, 'main.py'], STAGES, cwd=modules)
    plain = run([sys.executable, 'main.py'], {}, preload=False, cwd=modules)
    assert result.out == plain.out and result.err.count('\n') <= 1
    answer = analyze('startup', result.dir)
    rows = {r['name']: r for r in answer['rows'] if r['what'] == 'import'}
    assert {'package', 'package.inner', 'lazy', 'broken'} <= set(rows)
    inner, package = rows['package.inner'], rows['package']
    assert package['depth'] == 0 and inner['depth'] == 1 and inner['total_us'] < package['total_us']
    end = package['start_us'] + package['total_us']  # spin is there only if it took more than 200 us
    inside = [r['total_us'] for r in rows.values() if r['depth'] == 1 and package['start_us'] < r['start_us'] < end]
    assert abs(package['own_us'] + sum(inside) - package['total_us']) < 1
    first, = [r for r in answer['rows'] if r['what'] == 'first call']
    assert first['name'] == 'work' and first['own_us'] < first['total_us']
    assert [r['what'] for r in answer['rows']].count('interpreter') == 1
    order = [(r['depth'] > 0, -r['total_us']) for r in answer['rows']]
    assert order == sorted(order)


def test_start_up_and_work_sum_to_the_span(run, analyze, modules):
    result = run([sys.executable, 'main.py'], STAGES, cwd=modules)
    answer = analyze('stages', result.dir)
    rows = {r['stage']: r for r in answer['rows']}
    totals = answer['totals']
    assert set(rows) == {'(start-up)', 'work'}
    assert rows['(start-up)']['host_us'] == totals['start_up_us'] == analyze('startup', result.dir)['totals']['start_up_us']
    assert abs(totals['start_up_us'] + totals['work_us'] + totals['unexplained_us'] - totals['run_us']) < 0.01
    assert totals['pct_of'].startswith('run_us')
    assert abs(rows['(start-up)']['pct'] - 100 * totals['start_up_us'] / totals['run_us']) < 1e-3
    assert 0 < totals['work_us'] < rows['work']['host_us']  # its first call is start-up, but for a median


def test_child_has_no_start(run, modules):
    result = run([sys.executable, '-W', 'ignore', 'main.py', 'fork'], {**iotrace.ON}, cwd=modules)
    counts = sorted(len(pieces(t)) for t in scripted.traces(result.dir))
    assert counts[0] == 0 and counts[-1] > 3
