"""test_foreign_suites - the tests of other packages end case by case as without the library, with their functions as stages.

joblib's come with build/picklers and numpy's with build/venv. `make soak` gets the other packages into build/suites, of
cloudpickle the last source archive that setuptools can read. A case that ends in two ways without the library is not
compared.
"""

import os
import subprocess
import sys
import tarfile
from xml.etree import ElementTree

import pytest

import scripted
from conftest import BUILD, built

PICKLERS, SUITES = BUILD / 'picklers', BUILD / 'suites'
WHEELS = '''gevent==25.9.1 greenlet==3.2.4 zope.event==5.1.1 zope.interface==8.0.1 objgraph==3.6.2 psutil==7.2.2 scikit-learn==1.7.2
            scipy==1.16.3 joblib==1.5.3 threadpoolctl==3.6.0 hypothesis==6.148.7 sortedcontainers==2.4.0'''.split()
CLOUDPICKLE = '2.2.1'
SOURCE = SUITES / f'cloudpickle-{CLOUDPICKLE}'

# name: (stages, what pytest is given)
SUITE = {
    'joblib': ('joblib.hashing:hash,joblib.memory:MemorizedFunc.call,joblib.func_inspect:get_func_code,joblib.parallel:Parallel.__call__',
               ['joblib.test.test_hashing', 'joblib.test.test_func_inspect']),
    'joblib workers': ('joblib.parallel:Parallel.__call__,joblib.parallel:BatchedCalls.__call__,joblib.memory:MemorizedFunc.call',
                       [f'joblib.test.test_{name}' for name in 'memory parallel memmapping cloudpickle_wrapper'.split()]),
    'cloudpickle': ('cloudpickle.cloudpickle_fast:dumps,cloudpickle.cloudpickle_fast:_function_getstate,cloudpickle.cloudpickle_fast:CloudPickler.dump',
                    [f'{SOURCE}/tests/{name}_test.py' for name in ('cloudpickle', 'cloudpickle_file')]),
    'gevent': ('gevent.pool:Pool.spawn,gevent._socket3:socket.recv,gevent.subprocess:Popen.__init__',
               [f'gevent.tests.test__{name}' for name in 'pool queue event threadpool local subprocess hub pywsgi'.split()] + ['-k', 'not timeout']),
    'numpy': ('numpy.testing:assert_array_equal,numpy.testing:assert_equal,numpy.lib._index_tricks_impl:ix_',
              [f'numpy._core.tests.test_{name}' for name in 'numeric indexing nditer overrides shape_base'.split()]
              + ['numpy.lib.tests.test_io', 'numpy.random.tests.test_generator_mt19937']),
    'scikit-learn': ('sklearn.base:clone,sklearn.utils.parallel:_FuncWrapper.__call__,sklearn.pipeline:Pipeline.fit,sklearn.tree:BaseDecisionTree.fit',
                     ['sklearn.tests.test_base', 'sklearn.tests.test_pipeline', 'sklearn.utils.tests.test_parallel',
                      'sklearn.ensemble.tests.test_forest', 'sklearn.model_selection.tests.test_search']),
}
LEAST = {'joblib': 50, 'joblib workers': 200, 'cloudpickle': 200, 'gevent': 200, 'numpy': 1000, 'scikit-learn': 500}


@pytest.fixture(scope='session')
def suites():
    """build/suites, with what it lacks from PyPI."""
    pip = [sys.executable, '-m', 'pip', '-q', '--disable-pip-version-check']
    if not (SUITES / '.done').exists():
        subprocess.run([*pip, 'install', '--no-deps', '--upgrade', '--target', SUITES, *WHEELS], check=True)
        subprocess.run([*pip, 'download', '--no-deps', '--no-binary', ':all:', '-d', SUITES, f'cloudpickle=={CLOUDPICKLE}'], check=True)
        with tarfile.open(SOURCE.with_name(SOURCE.name + '.tar.gz')) as archive:
            archive.extractall(SUITES, filter='data')
        (SUITES / '.done').touch()
    return SUITES


def verdicts(run, name, report, path, cwd, preload):
    """{case: its outcome} of a suite, by pytest's own report."""
    stages, asked = SUITE[name]
    command = [sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider', '-p', 'no:xdist', f'--junit-xml={report}', '--pyargs', *asked]
    result = run(command, {'TFI_STAGES': stages, 'PYTHONPATH': os.pathsep.join(map(str, path)), 'TFI_LOG': 'error'}, preload=preload,
                 timeout=1500, cwd=cwd)
    assert report.exists(), result.err[-3000:]
    found = {}
    for case in ElementTree.parse(report).getroot().iter('testcase'):
        outcome = sorted(child.tag for child in case if child.tag in ('failure', 'error', 'skipped'))
        found.setdefault((case.get('classname'), case.get('name')), []).append(outcome)
    return found


def differences(first, second):
    return {case for case in first.keys() | second.keys() if first.get(case) != second.get(case)}


def same(run, tmp_path, name, path):
    """Runs a suite without the library and with it; where they differ, once more without it, for cases that are unsteady."""
    def once(number, preload):
        place = tmp_path / f'{number}'
        place.mkdir()
        return verdicts(run, name, tmp_path / f'{number}.xml', path, place, preload)
    bare, watched = once(1, False), once(2, True)
    assert len(bare) >= LEAST[name]
    differ = differences(bare, watched)
    unsteady = differences(bare, once(3, False)) if differ else set()
    assert not differ - unsteady, {case: (bare.get(case), watched.get(case)) for case in differ - unsteady}


@pytest.mark.slow
def test_tests_of_joblib(run, tmp_path):
    """Hashing and the inspection of functions, which see our stages as anybody's functions."""
    built(PICKLERS / '.stamp')
    same(run, tmp_path, 'joblib', [PICKLERS])


@pytest.mark.soak
@pytest.mark.timeout(5000)
@pytest.mark.parametrize('name', [name for name in SUITE if name != 'joblib'])
def test_tests_of_others(run, tmp_path, suites, name):
    """Pools of workers, pickles by value, greenlets, event loops, arrays and estimators."""
    same(run, tmp_path, name, [SOURCE, SOURCE / 'tests' / 'cloudpickle_testpkg', suites])


GREENLETS = '''
import ctypes, gc, greenlet
ours = ctypes.CDLL(None)
ours.tfi_range_push(b"all")
class Late:
    def __del__(self):
        self.kept = bytearray(5000)
def work(depth, others):
    block = bytearray(3000 + depth)
    if depth: return work(depth - 1, others)
    for _ in range(3):
        late, block = Late(), bytearray(9000)
        ours.tfi_range_push(b"here")
        ours.tfi_range_pop()
        others[0].switch() if others else None
    return len(block)
total = 0
for i in range(300):
    main = greenlet.getcurrent()
    each = [greenlet.greenlet(lambda: work(20, [main])) for _ in range(10)]
    while any(not g.dead for g in each):
        for g in each: g.dead or g.switch()
    left = greenlet.greenlet(lambda: work(30, [main]))
    left.switch()
    del left  # killed while it is suspended
    total += len(each)
print(total, gc.collect() >= 0)
'''


@pytest.mark.soak
def test_call_stacks_of_greenlets(run, lib, suites, tmp_path):
    """Greenlets switch while blocks are allocated and freed and stages have call stacks.

    Blocks of the host had them too, and a free() in the midst of a switch read frames that were not there."""
    (tmp_path / 'greenlets.py').write_text(GREENLETS)
    environment = {'PYTHONPATH': suites, 'PYTHONMALLOC': 'malloc', 'TFI_ACTIVITIES': 'mem,stack', 'TFI_HOST_ALLOC_KB': '1', 'TFI_WITH_STACK': '1'}
    result = run([sys.executable, 'greenlets.py'], environment, preload=f'{lib.with_name("libtfinject-alloc.so")} {lib}', timeout=300)
    assert (result.rc, result.out) == (0, '3000 True\n'), result.err
    found = scripted.traces(result.dir)[0].records
    assert sum(record.kind == 'memory' for record in found) > 10000
    assert sum(record.kind == 'range_begin' and record.values['stack'] > 0 for record in found) > 9000
