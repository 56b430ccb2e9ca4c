"""test_replaced - all that the library replaces in a Python process, found by looking: nothing of it is taken from the script.

A script imports the modules that shim.py waits for, with everything switched on, and describes each attribute of each module
and class in the process: names, texts, signatures, sources, kinds, what an impossible call raises and where. It runs with and
without the library. Code of ours shows what is replaced: each such name has a row here, with the test of what it does when it
is called. Everything else must be described the same, but for what EXPECTED lists with its reason.
"""

import ast
import json
import pickle
import re
import sys
from fnmatch import fnmatch
from types import SimpleNamespace

import pytest

from conftest import BUILD, ROOT, built, clean_environment, execute

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(900)]
SIMULATED = BUILD / 'simgpu'  # TeleFuser and cache-dit refuse a CPU
ABSENT = {'uvloop', 'dftracer.logger', 'dftracer.dbg.logger', 'dftracer_dbg.logger'}  # of the modules that shim.py waits for
SWITCHES = {'TFI_ACTIVITIES': 'cpu,gpu,mem,nccl,ops,io,stack', 'TFI_MODULE_DEPTH': '2', 'TFI_TENSOR_ADDRESSES': '1', 'TFI_NATIVE': '_bisect'}

# what is replaced: the test of what a call gives, prints and writes
REPLACED = {
    'asyncio.*': 'python/test_functions.py::test_asyncio',
    'cache_dit.*ProfilerContext.*': 'gpu/test_cache_dit_gpu.py::test_what_a_program_finds_afterwards',
    'cache_dit.*profile_function': 'python/test_cache_dit.py::test_one_decorator_for_two_functions',
    'cache_dit.*create_profiler_from_args': 'python/test_cache_dit.py::test_the_documented_example_with_default_flags',
    'dftracer.python.*': 'python/test_dftracer_python.py::test_files_like_dftracers_own',
    'telefuser.utils.memory_snapshot._MemorySnapshotRegistry.*': 'python/test_signature_files.py::test_memory_in_timing_json',
    'telefuser.utils.profiler.*': 'python/test_telefuser.py::test_return_values',
    'torch.distributed.*init_process_group': 'python/test_torch_ops.py::test_metadata_of_the_job',
    'torch.distributed.*new_group': 'python/test_torch_ops.py::test_metadata_of_the_job',
    'torch.profiler._KinetoProfile.add_metadata*': 'python/test_torch_ops.py::test_metadata_of_the_job',
    '*unpatched_nn_module_call': 'python/test_torch_ops.py::test_modules_as_stages',
    '*.Module.__call__': 'python/test_torch_ops.py::test_modules_as_stages',
    'torch.utils.data.*': 'gpu/test_io_loader.py::test_workers',
    '*.DiffusionPipeline.__setattr__': 'python/test_pipelines.py::test_parts_of_diffusers_pipelines',
    '*.GenerationMixin.generate': 'python/test_pipelines.py::test_generate',
    **({'torch.distributed.*barrier': 'python/test_auto_calls.py::test_steps_of_a_trainer'} if sys.version_info[:2] == (3, 11) else {}),
}
# what is described in another way, and why
EXPECTED = {
    'asyncio.*Handle._run': (None, 'a method in C, which no profiler of the program sees'),
    '*bisect*': ({'__qualname__', 'repr'}, 'TFI_NATIVE: a builtin whose calls are recorded keeps its record in __self__'),
    '*insort*': ({'__qualname__', 'repr'}, 'TFI_NATIVE'),
    '*.Module.__call__': ({'source'}, 'TFI_MODULE_DEPTH: torch.compile follows __wrapped__'),
    '*unpatched_nn_module_call': ({'source'}, 'TFI_MODULE_DEPTH: torch.compile follows __wrapped__'),
    '*.__aenter__': ({'call'}, 'arguments that do not fit are refused when it is awaited'),
    '*.__aexit__': ({'call'}, 'arguments that do not fit are refused when it is awaited'),
    'dftracer.python.*.iter': ({'kind'}, "it gives the generator of dftracer's own"),
    'dftracer.python.*_dftracer__instance': ({'type'}, "dftracer's object is made when the library asks for it"),
}

SCRIPT = r'''
import asyncio, atexit, fnmatch, gc, importlib, inspect, json, os, pickle, re, signal, sys, threading, traceback, types, warnings
warnings.simplefilter('ignore')
modules, patterns = json.loads(sys.argv[1])
for name in modules:
    importlib.import_module(name)
FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodType, types.ClassMethodDescriptorType)
TEXTS = ('__module__', '__name__', '__qualname__', '__doc__', '__text_signature__', '__annotations__', '__defaults__', '__kwdefaults__')

is_replaced = re.compile('|'.join(map(fnmatch.translate, patterns))).match

def clean(text):
    text = str(text)
    return re.sub(r'0x[0-9a-f]+', '0x', text) if '0x' in text else text

def outcome(call):
    try:
        call(**{'no such argument': 1})
    except BaseException as error:
        places = [[os.path.basename(f.filename), f.name] for f in traceback.extract_tb(error.__traceback__)][1:]
        return [type(error).__name__, clean(error), places]

def described(name, thing):
    f = thing.__func__ if type(thing) in (staticmethod, classmethod, types.MethodType) else thing
    found = {'type': type(thing).__name__}
    if type(f) in FUNCTIONS:
        for key in TEXTS:
            value = getattr(f, key, None)
            if value is not None: found[key] = clean(value)
        may_be_replaced = bool(is_replaced(name))
        plain = inspect.unwrap(f)
        code = getattr(plain, '__code__', None)
        found['ours'] = getattr(getattr(f, '__code__', None), 'co_filename', None) == '<tfinject>'
        found['source'] = code and [code.co_filename, code.co_firstlineno, list(code.co_varnames[:code.co_argcount + code.co_kwonlyargcount + 2]), code.co_argcount, code.co_flags]
        found['vars'] = sorted(set(getattr(f, '__dict__', {})) - {'__wrapped__'})
        if may_be_replaced or plain is not f or hasattr(f, '__signature__'):  # the signature of others follows from the above
            try: found['signature'] = clean(inspect.signature(f))
            except Exception as error: found['signature'] = type(error).__name__
        found['kind'] = [inspect.iscoroutinefunction(f), inspect.isgeneratorfunction(f), inspect.isbuiltin(f), inspect.isroutine(f)]
        found['repr'] = clean(repr(f))
        if may_be_replaced: found['call'] = outcome(f)
    elif issubclass(type(thing), type):
        found['mro'] = [str(c) for c in type.mro(thing)] if type(thing) is type else []
    return found

found, seen = {}, set()
collects = gc.isenabled()
gc.disable()  # it would look through all that is found, again and again
for name, module in sorted(sys.modules.items()):
    if not issubclass(type(module), types.ModuleType) or name in ('__main__', '__mp_main__'): continue
    found[name] = {'names': sorted(vars(module))}
    for key, value in sorted(vars(module).items()):
        if issubclass(type(value), types.ModuleType): continue
        place = f'{name}.{key}'
        found[place] = described(place, value)
        if issubclass(type(value), type) and id(value) not in seen:
            seen.add(id(value))
            inside = {str(k): v for k, v in type.__dict__['__dict__'].__get__(value).items()}
            found[place]['names'] = sorted(inside)
            found.update({f'{place}.{k}': described(f'{place}.{k}', v) for k, v in inside.items()})
if collects: gc.enable()
state = {
    'trace': [str(sys.gettrace()), str(sys.getprofile()), str(threading.gettrace()), str(threading.getprofile())],
    'hooks': [clean(h) for h in (sys.excepthook, sys.displayhook, sys.unraisablehook, threading.excepthook)],
    'path_hooks': clean(sys.path_hooks), 'path': sys.path, 'threads': [t.name for t in threading.enumerate()],
    'signals': [clean(signal.getsignal(s)) for s in sorted(signal.valid_signals())], 'mask': clean(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    'gc': [clean(gc.callbacks), gc.isenabled(), gc.get_threshold()], 'files': sorted(os.listdir('.')), 'modules': sorted(sys.modules),
    'descriptors': sorted(int(n) for n in os.listdir('/proc/self/fd')), 'limits': [sys.getrecursionlimit(), sys.getswitchinterval()],
    'environment': {k: v for k, v in os.environ.items() if k[:4] not in ('TFI_', 'NVTX') and k != 'LD_PRELOAD'}, 'finders': [clean(f) for f in sys.meta_path if '<tfinject>' not in str(f)],
}
pickle.dump([found, state], open(sys.argv[2], 'wb'))
'''


def awaited():
    """The modules of shim.py's table."""
    text = (ROOT / 'preload/python/shim/shim.py').read_text()
    table, = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Assign) and getattr(node.targets[0], 'id', '') == '_PARTS')
    names = [element.elts[0].value for element in table.left.elts]
    assert ABSENT <= set(names)
    return [name for name in names if name not in ABSENT] + ['_bisect']


@pytest.fixture(scope='module')
def both(tmp_path_factory, lib, python):
    """What the script finds without and with the library: attributes and state."""
    top = tmp_path_factory.mktemp('replaced')
    (top / 'script.py').write_text(SCRIPT)
    (top / 'here').mkdir()

    def make(name, preload, env):
        libraries = [built(SIMULATED / 'libcudart.so.13'), built(SIMULATED / 'libcupti.so.13')]
        environment = {**clean_environment(), 'LD_LIBRARY_PATH': str(SIMULATED), 'KINETO_LOG_LEVEL': '5', 'PYTHONHASHSEED': '0', **env,
                       'LD_PRELOAD': ':'.join(map(str, [*preload, *libraries]))}
        result = execute([python, top / 'script.py', json.dumps([awaited(), list(REPLACED)]), top / name], environment, top / 'here', 600)
        assert result.rc == 0, result.err[-3000:]
        return SimpleNamespace(**dict(zip(('found', 'state'), pickle.loads((top / name).read_bytes()))))
    return make('theirs', [], {}), make('ours', [lib], {**SWITCHES, 'TFI_OUTPUT_DIR': str(top / 'run')})


def test_all_that_is_replaced_has_a_row(both):
    """A new replacement needs a row, and the test that the row names; a row without one is of the past."""
    replaced = {name for name, found in both[1].found.items() if found.get('ours')} | {n for n in both[1].found if n.endswith('Handle._run')}
    assert len(replaced) > 50 and not [name for name in replaced if not any(fnmatch(name, pattern) for pattern in REPLACED)]
    for pattern, test in REPLACED.items():
        assert any(fnmatch(name, pattern) for name in replaced), pattern
        path, _, function = test.partition('::')
        assert re.search(rf'^def {function}\(', (ROOT / 'tests' / path).read_text(), re.M), test


def test_everything_is_described_as_without_us(both):
    theirs, ours = (run.found for run in both)
    assert len(theirs) > 100_000 and theirs.keys() == ours.keys()
    wrong, used = [], set()
    for name, found in theirs.items():
        if found == ours[name]:
            continue
        differing = {key for key in found.keys() | ours[name].keys() if found.get(key) != ours[name].get(key)} - {'ours'}
        for pattern, (keys, _) in EXPECTED.items():
            if fnmatch(name, pattern) and differing & (differing if keys is None else keys):
                differing -= differing if keys is None else keys
                used.add(pattern)
        wrong += [(name, key, found.get(key), ours[name].get(key)) for key in sorted(differing)]
    assert not wrong and used == EXPECTED.keys(), (wrong[:20], EXPECTED.keys() - used)


def test_the_state_of_the_process_is_what_it_was(both):
    theirs, ours = (run.state for run in both)
    assert [(key, value, ours[key]) for key, value in theirs.items() if value != ours[key]] == []
