"""test_dftracer_python - dftracer's Python interface makes stages here, with the names, counts and arguments of dftracer's events.

The real pydftracer runs each script twice: without the library its events go to a module in the place of dftracer's native
one (NATIVE), with the library they are read from the trace; what dftracer itself records, and all that a program can read of
it, is the same in both. OLD has the interface of pydftracer 1.0 in a few lines. If dftracer's native package is installed,
its own .pfw is the second opinion.
"""

import json
import os
import re
from collections import Counter

import pytest

import scripted
from conftest import BUILD, execute

DFTRACER = 0x40000
STAGE = 2

NATIVE = '''
import json, os, time
file = None
def initialize(log_file, data_dirs, process_id):
    global file
    file = open(os.environ['EVENTS'], 'w')
def finalize(): file.flush()
def get_time(): return time.time_ns() // 1000
def get_config(key): return 'US'
def enter_event(): pass
def exit_event(): pass
def mark_used(name): pass
def put(*event): print(json.dumps(event), file=file)
def log_event(name, cat, start_time, duration, int_args, string_args, float_args):
    put('event', name, cat, {k: v[1] for k, v in {**string_args, **float_args, **int_args}.items()})
def log_metadata_event(key, value): put('fact', key, value)
set_app_metadata_int = set_app_metadata_string = log_metadata_event
'''

# dftracer.python imports torch if it is there, which takes seconds and changes nothing here.
WITHOUT_TORCH = 'import sys; sys.modules["torch"] = None\n'

SCRIPT = WITHOUT_TORCH + '''
import threading
from dftracer.python import dftracer, dft_fn, ai, TagValue
log = dftracer.initialize_log(logfile=sys.argv[1] + "/logs/x.pfw", data_dir="/data", process_id=3)
fn = dft_fn("io")

class Loader:
    step = 7
    @fn.log_init
    def __init__(self, image_size=2.5): self.items = [1, 2, 3]
    @fn.log
    def read(self, image_idx, step=1): return image_idx * 2
    @fn.log(name="other")
    def named(self): return self.read(4)
    @staticmethod
    @fn.log_static
    def fixed(x): return x + 1

@fn.log
def fails(): raise KeyError("as the pipeline meant it")

def unnamed():
    with dft_fn("app") as part:
        part.update(epoch=1, args={"text": 'a "b" \\u00e9', "size": 1.5, "flag": True, "tagged": TagValue("t")})

loader = Loader()
print(loader.read(1), loader.read(image_idx=2, step=9), loader.named(), Loader.fixed(1))
unnamed()
unnamed()
try:
    with dft_fn("app", name="left", step=5): fails()
except KeyError as error:
    print(error, error.__traceback__.tb_next.tb_frame.f_code.co_filename.rpartition("/")[2])
with dft_fn("app", name="parts") as parts:
    for i in range(3):
        parts.update(step=i)
        parts.flush()
        parts.reset()
single = dft_fn("app", name="single", epoch=2)
single.flush()
single.reset().flush()
print([x for x in fn.iter(range(3), name="load", iter_name="turn")], list(fn.iter(iter("ab"))))
with dft_fn("app", name="off", enable=False) as off: off.update(epoch=1)
@dft_fn("app", enable=False).log
def not_recorded(): return 5
print(not_recorded())
log.enter_event()
log.log_event("direct", "raw", log.get_time() - 100, 100, int_args={"n": (0, 1)}, string_args={"s": (1, "x")})
log.exit_event()
fn.log_metadata("model", "small")
log.set_app_metadata_int("nodes", 2)

@ai
def whole(x): return x
@ai.compute.forward(args={"layer": 1})
def forward(x): return x
print(whole(3), forward(4))
with ai.dataloader.fetch(epoch=2, step=3): pass
ai.update(epoch=9)
with ai.compute.backward: pass
ai.comm.all_reduce.start(); ai.comm.all_reduce.stop()
ai.checkpoint.start(metadata=True)
print(list(ai.dataloader.fetch.iter([5, 6])), list(ai.pipeline.epoch.iter([1], include_iter=False, block_name="own")))
with ai.compute.derive("loss"): pass
ai.compute.disable()
with ai.compute: pass
quiet = dft_fn("threads")  # an object with arguments shares them between threads
@quiet.log
def turn(): pass
work = [threading.Thread(target=lambda: [turn() for i in range(20)]) for _ in range(4)]
[w.start() for w in work]; [w.join() for w in work]
print(type(log.get_time()).__name__, dftracer.get_instance() is log, fn.update(step=1) is fn, fn.flush() is fn, log.finalize())
'''


def named(python):
    result = execute([python, '-c', WITHOUT_TORCH + 'import dftracer.python.common'], {**os.environ, 'LD_PRELOAD': ''})
    assert result.rc == 0, f'pydftracer of tests/requirements.txt is missing; scripts/bootstrap installs it:\n{result.err[-300:]}'


@pytest.fixture
def original(python, run, tmp_path):
    """original(script) -> output, events and facts of dftracer's own Python code."""
    def original(script):
        named(python)
        (tmp_path / 'native' / 'dftracer').mkdir(parents=True)
        (tmp_path / 'native' / 'dftracer' / 'dftracer.py').write_text(NATIVE)
        paths = f'{tmp_path}/native:{os.environ.get("PYTHONPATH", "")}'
        result = run([python, '-c', script, tmp_path], {'DFTRACER_ENABLE': '1', 'PYTHONPATH': paths, 'EVENTS': tmp_path / 'events'},
                     preload=False)
        assert result.rc == 0, result.err
        lines = [json.loads(line) for line in (tmp_path / 'events').read_text().splitlines()]
        return result.out, Counter(event(*e[1:]) for e in lines if e[0] == 'event'), Counter(e[1] for e in lines if e[0] == 'fact')
    return original


def event(name, cat, args):
    return name, cat, json.dumps(args, sort_keys=True)


def details(trace):
    """{id of a range: what the pipeline said of it}"""
    return {r.values['id']: json.loads(scripted.text(trace, r.values['text'])) for r in trace.records
            if r.kind == 'signature' and r.values['direction'] == 3}


def recorded(directory):
    """The trace, and the events of dftracer's interface: ranges that ended with their arguments."""
    trace = scripted.only(scripted.traces(directory))
    said, found, bare = details(trace), Counter(), Counter()
    for r in trace.records:
        if r.kind == 'range_end' and r.values['flags'] & DFTRACER:
            name, given = scripted.text(trace, r.values['name']), said.get(r.values['id'])
            if given: found[event(name, given['cat'], given['args'])] += 1
            else: bare[name] += 1
    assert sum(found.values()) == len(said)
    return trace, found, bare


def facts(trace):
    return {scripted.text(trace, r.values['key']): scripted.text(trace, r.values['value']) for r in trace.records
            if r.kind == 'metadata'}


@pytest.mark.parametrize('env', [{}, {'DFTRACER_ENABLE': '1'}], ids=['off', 'on'])
def test_equal_to_dftracers_own(original, run, python, tmp_path, env):
    """Names, counts, arguments and the program's output equal dftracer's, whether the user has switched it on or not."""
    out, events, told = original(SCRIPT)
    result = run([python, '-c', SCRIPT, tmp_path], env)
    assert (result.rc, result.out, result.err) == (0, out, '')
    trace, found, bare = recorded(result.dir)
    assert found == events and len(events) > 30
    # dftracer drops an event that an exception leaves; here it is a stage without arguments.
    assert bare == {'fails': 1}
    assert {name for name in facts(trace) if name.startswith('dftracer.')} == {'dftracer.' + name for name in told} | {
        'dftracer.logfile', 'dftracer.data_dir', 'dftracer.process_id'}
    assert facts(trace)['dftracer.model'] == 'small' and facts(trace)['dftracer.process_id'] == '3'


# The script prints all that a program may read of dftracer's names, before it initializes it and after.
AFTER = SCRIPT + '''
import inspect
import dftracer.python as everything
from dftracer.python import common, ai_common, env
print(common.DFTRACER_ENABLE, ai_common.DFTRACER_ENABLE, env.DFTRACER_ENABLE, everything.DFTRACER_ENABLE, type(log.logger), type(common.profiler))
print(sorted(vars(log)), log.start_time > 0, log.get_time() > 0, log.get_config("DFTRACER_TIME_METRIC"), log.declare_entity("file", "x"))
for cls in (dftracer, dft_fn, ai_common._DFTracerAI):
    print(cls, cls.__mro__, sorted(vars(cls)))
    for name, thing in sorted(vars(cls).items()):
        if callable(getattr(thing, "__func__", thing)) and isinstance(getattr(cls, name), type(named)):
            thing = getattr(cls, name)
            print(type(vars(cls)[name]), thing.__name__, thing.__qualname__, thing.__module__, thing.__doc__, inspect.signature(thing),
                  thing.__defaults__, thing.__annotations__, hash(inspect.getsource(thing)))
for thing in (Loader.read, Loader.named, Loader.fixed, fails, whole, forward, dft_fn("app").log(named)):
    print(thing.__qualname__, thing.__wrapped__, inspect.signature(thing), inspect.iscoroutinefunction(thing))
try: fails()
except KeyError as error:
    frame, names = error.__traceback__, []
    while frame: names.append((frame.tb_frame.f_code.co_name, frame.tb_frame.f_code.co_filename.rpartition("/")[2])); frame = frame.tb_next
    print(error, names)
'''.replace('named)):', 'forward)):').replace('type(named))', 'type(forward))')


@pytest.mark.parametrize('env', [{}, {'DFTRACER_ENABLE': '1'}, {'DFTRACER_ENABLE': '1', 'PYTHONPATH': 'native'}], ids=['off', 'alone', 'on'])
def test_nothing_is_taken_from_the_program(original, run, python, tmp_path, env):
    """dftracer's variables, objects, functions, files and lines are what they are without the library, off and on; its native
    module gets the same events, also with TFI_KEEP_ORIGINALS=1."""
    original(SCRIPT)
    seen = []
    for preload in (False, True):
        place = tmp_path / f'place{preload}'
        place.mkdir()
        (place / 'script.py').write_text(AFTER)
        more = {**env, 'EVENTS': place / 'events', 'PYTHONHASHSEED': '0', 'TFI_KEEP_ORIGINALS': str(int(len(env) > 1))}
        if 'PYTHONPATH' in env:
            more['PYTHONPATH'] = f'{tmp_path}/native:{os.environ.get("PYTHONPATH", "")}'
        result = run([python, 'script.py', '.'], more, preload=preload, cwd=place)
        assert (result.rc, result.err) == (0, '')
        events = [json.loads(line) for line in (place / 'events').read_text().splitlines()] if 'PYTHONPATH' in env else []
        assert bool(events) == ('PYTHONPATH' in env)
        seen.append((re.sub(r'0x[0-9a-f]+', '0x', result.out), sorted(str(p.relative_to(place)) for p in place.rglob('*')),
                     [e if 'epoch' not in e[1] and '.start' not in e[1] else e[1] for e in events]))
    assert seen[1][1] == seen[0][1] and seen[1][2] == seen[0][2]
    assert seen[1][0].splitlines() == seen[0][0].splitlines()
    _, found, _ = recorded(tmp_path / 'run')
    assert len(found) > 30


# The stages of `with`, of a decorated function and of a loop's body hold what runs inside them.
NESTED = WITHOUT_TORCH + '''
import asyncio
from dftracer.python import dft_fn
fn = dft_fn("io")
@fn.log
def inner(): pass
@fn.log
def outer(): inner()
@fn.log
async def waits(name):
    await asyncio.sleep(0)
    with dft_fn("app", name="in_" + name): await asyncio.sleep(0)
async def both(): await asyncio.gather(waits("a"), waits("b"))
outer()
for item in fn.iter([1], name="loop"): inner()
with dft_fn("app", name="around"): inner()
asyncio.run(both())
for item in fn.iter([1, 2], name="broken"): break
'''


def test_nesting(run, python):
    named(python)
    result = run([python, '-c', NESTED])
    assert (result.rc, result.err) == (0, '')
    trace, found, bare = recorded(result.dir)
    spans = {}
    for r in trace.records:
        if r.kind == 'range_end' and r.values['flags'] & STAGE:
            spans.setdefault(scripted.text(trace, r.values['name']), []).append((r.values['time'] - r.values['duration'], r.values['time']))

    def inside(name, i, around):
        (start, end), (first, last) = spans[name][i], spans[around][0]
        return first <= start and end <= last
    assert inside('inner', 0, 'outer') and inside('inner', 1, 'loop.yield') and inside('inner', 2, 'around')
    assert not inside('inner', 1, 'outer') and len(spans['waits']) == 2
    assert bare == {'broken.yield': 1}  # a loop that is left in its body: dftracer drops that event


def test_values(run, python, tmp_path):
    """TFI_RECORD_VALUES=0 keeps the names of arguments and leaves out their values."""
    named(python)
    result = run([python, '-c', SCRIPT, tmp_path], {'TFI_RECORD_VALUES': '0'})
    assert result.rc == 0
    trace, found, _ = recorded(result.dir)
    values = {v for _, _, args in found for v in json.loads(args).values()}
    assert values == {'int', 'float', 'str'}
    assert b'small' not in b''.join(s for s in trace.strings.values() if s)


def test_exports(run, python, analyze, tmp_path):
    """The arguments are in the Chrome trace and in Perfetto's."""
    named(python)
    result = run([python, '-c', SCRIPT, tmp_path])
    _, found, _ = recorded(result.dir)
    analyze('export', 'chrome', result.dir, '--output', tmp_path / 'chrome.json', format=None)
    events = json.loads((tmp_path / 'chrome.json').read_text())['traceEvents']
    written = Counter(event(e['name'], e['args']['dftracer']['cat'], e['args']['dftracer']['args']) for e in events
                      if 'dftracer' in e.get('args', {}) and e['ph'] in 'Xb')
    assert written == found
    rows = analyze('stages', result.dir)['rows']
    counts = Counter()
    for (name, _, _), count in found.items(): counts[name] += count
    assert {r['stage']: r['calls'] for r in rows if r['stage'] != '(start-up)'} == {**counts, 'fails': 1}


# ---- older and newer packages ----

OLD = '''
import functools, inspect, logging, os, time
from functools import wraps
from pathlib import Path
DFTRACER_ENABLE = os.getenv("DFTRACER_ENABLE") == "1"
class dftracer:
    __instance = None
    def __init__(self):
        if DFTRACER_ENABLE:
            self.logger = None
        dftracer.__instance = self
    @classmethod
    def get_instance(cls):
        return dftracer.__instance or dftracer() or dftracer.__instance
    @staticmethod
    def initialize_log(logfile, data_dir, process_id):
        open("dft.log", "w")
        return dftracer.get_instance()
    def get_time(self):
        return self.logger.get_time() if DFTRACER_ENABLE and self.logger else 0
    def log_event(self, name, cat, start_time, duration, string_args=None):
        if DFTRACER_ENABLE and self.logger:
            self.logger.log_event(name=name, cat=cat, start_time=start_time, duration=duration, string_args=string_args or {})
class dft_fn(object):
    def __init__(self, cat, name=None):
        if DFTRACER_ENABLE:
            self._name, self._cat, self._arguments = name or inspect.stack()[1].function, cat, {}
            self.reset()
    def __enter__(self):
        if DFTRACER_ENABLE: self._t1 = dftracer.get_instance().get_time()
        return self
    def __exit__(self, exc_type, exc_val, exc_tb):
        if DFTRACER_ENABLE and not self._flush: self.flush()
    def update(self, epoch=None, args={}):
        if DFTRACER_ENABLE: self._arguments.update({k: str(v) for k, v in {"epoch": epoch, **args}.items()})
        return self
    def flush(self):
        if DFTRACER_ENABLE:
            now = dftracer.get_instance().get_time()
            dftracer.get_instance().log_event(name=self._name, cat=self._cat, start_time=self._t1, duration=now - self._t1,
                                              string_args=self._arguments)
            self._flush = True
        return self
    def reset(self):
        if DFTRACER_ENABLE: self._t1, self._flush = dftracer.get_instance().get_time(), False
        return self
    def log(self, func):
        @wraps(func)
        def wrapper(*args, **kwargs):
            if DFTRACER_ENABLE: start = dftracer.get_instance().get_time()
            x = func(*args, **kwargs)
            if DFTRACER_ENABLE: dftracer.get_instance().log_event(name=func.__qualname__, cat=self._cat, start_time=start, duration=0)
            return x
        return wrapper
    log_init = log_static = log
    def iter(self, func, iter_name="step"):
        for i, v in enumerate(func):
            if DFTRACER_ENABLE: start = dftracer.get_instance().get_time()
            yield v
            for kind in ("iter", "yield"):
                if DFTRACER_ENABLE:
                    dftracer.get_instance().log_event(name=self._name + "." + kind, cat=self._cat, start_time=start, duration=5,
                                                      string_args={iter_name: str(i + 1)})
'''
OLD_SCRIPT = '''
from dftracer.logger import dftracer, dft_fn
dftracer.initialize_log("log", "data", 0)
fn = dft_fn("io", name="old")
@fn.log
def read(n): return n
print(read(3), list(fn.iter([1, 2])))
with dft_fn("app", name="part") as part: part.update(epoch=4)
def unnamed():
    with dft_fn("app"): pass
unnamed()
try: fn.iter()
except TypeError as error: print(error, error.__traceback__.tb_next)
'''


def test_old_interface(run, python, tmp_path):
    """pydftracer 1.0 has dftracer.logger, texts as arguments, and no `enable`."""
    (tmp_path / 'dftracer').mkdir()
    (tmp_path / 'dftracer' / '__init__.py').touch()
    (tmp_path / 'dftracer' / 'logger.py').write_text(OLD)
    result = run([python, '-c', OLD_SCRIPT], {'PYTHONPATH': tmp_path}, cwd=tmp_path)
    assert (result.rc, result.err) == (0, '')
    assert result.out == "3 [1, 2]\ndft_fn.iter() missing 1 required positional argument: 'func' None\n"
    _, found, bare = recorded(result.dir)
    assert found == {event('read', 'io', {}): 1, event('part', 'app', {'epoch': '4'}): 1, event('unnamed', 'app', {}): 1,
                     **{event(f'old.{kind}', 'io', {'step': n}): 1 for kind in ('iter', 'yield') for n in '12'}}
    assert not bare and (tmp_path / 'dft.log').exists()


def test_without_dftracer(run, python):
    """The library adds no module: a pipeline that imports dftracer where it is missing fails as before."""
    script = 'import sys; sys.modules["dftracer"] = None\nfrom dftracer.logger import dft_fn'
    bare, result = (run([python, '-c', script], preload=preload) for preload in (False, True))
    assert (result.rc, result.err) == (bare.rc, bare.err) and 'dftracer' in bare.err


def test_a_failure_of_ours(run, python, tmp_path):
    """If the shim's part fails, the pipeline runs as without the library, with one warning."""
    named(python)
    bare = run([python, '-c', SCRIPT, tmp_path], preload=False)
    result = run([python, '-c', SCRIPT, tmp_path], {'SHIM_FAILS_AT': 'shim: watch_dftracer'}, preload='test')
    assert (result.rc, result.out) == (bare.rc, bare.out) and bare.rc == 0
    assert result.err.startswith('tfinject: dftracer has failed and is off: ') and result.err.count('\n') == 1


@pytest.fixture
def natively(python, run):
    """natively(script, theirs, ours, **env) -> result under the library: a script under dftracer's native package without it and with
    it, each with its folder."""
    packages = sorted((BUILD / 'dftracer').glob('*'))
    env = {'PYTHONPATH': packages[0]} if packages else {}
    if not packages or execute([python, '-c', 'import dftracer.dftracer'], {**os.environ, **env, 'LD_PRELOAD': ''}).rc:
        pytest.skip("dftracer's native package is not in build/dftracer; `scripts/bootstrap test` installs it where it has a wheel")

    def natively(script, theirs, ours, **more):
        on = {'DFTRACER_ENABLE': '1', 'DFTRACER_INC_METADATA': '1', 'DFTRACER_TRACE_COMPRESSION': '0'}
        bare = run([python, '-c', script, theirs], {**env, **on}, preload=False)
        result = run([python, '-c', script, ours], {**env, **on, **more})
        assert (result.rc, result.out) == (bare.rc, bare.out) and bare.rc == 0, bare.err
        assert said(ours) == said(theirs) and sum(said(theirs).values()) > 5
        return result
    return natively


def lines_of(folder):
    """The events of dftracer's files in a folder."""
    for path in folder.rglob('*.pfw'):
        for line in path.read_text(errors='replace').splitlines():
            line = line.strip().rstrip(',')
            if line.startswith('{'):
                yield json.loads(line)


def said(folder):
    """The pipeline's own events, recorded by dftracer's native package."""
    return Counter(event(e['name'], e['cat'], {k: v for k, v in e['args'].items() if k != 'hhash'})
                   for e in lines_of(folder) if e.get('ph') == 1 and e['type'] == 6)


def test_second_opinion(natively, tmp_path):
    """The same script under dftracer's native module: its .pfw has the same events, without the library and with it."""
    script = SCRIPT.replace('a "b" \\u00e9', 'plain')  # dftracer escapes no quotes in its files
    result = natively(script, tmp_path / 'theirs', tmp_path / 'ours')
    _, found, _ = recorded(result.dir)
    assert said(tmp_path / 'theirs') == found and len(found) > 30


FILES = WITHOUT_TORCH + '''
import os
from dftracer.python import dftracer, dft_fn
base = sys.argv[1]
os.makedirs(base + "/data")
log = dftracer.initialize_log(logfile=base + "/logs/x.pfw", data_dir=base + "/data", process_id=3)
fn = dft_fn("io")

@fn.log
def work(step):
    path = f"{base}/data/{step}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.write(fd, bytes(1000 * (step + 1)))
    os.lseek(fd, 0, os.SEEK_SET)
    os.read(fd, 777)
    os.read(fd, 100000)
    os.pread(fd, 64, 16 * step)
    os.pwrite(fd, b"x" * 50, 5000)
    os.fsync(fd)
    os.ftruncate(fd, 600)
    os.close(fd)
    with open(path, "rb") as f: return len(f.read())

print([work(step) for step in range(6)])
open(base + "/outside", "w").close()
os.mkdir(base + "/data/folder"); os.rmdir(base + "/data/folder")
os.rename(base + "/data/0", base + "/data/9")
os.unlink(base + "/data/9")
for act in (lambda: os.open(base + "/data/none", os.O_RDONLY), lambda: os.unlink(base + "/data/none")):
    try: act()
    except OSError as error: print(error.errno)
log.finalize()
'''
AT_A_PLACE = ('pread64', 'pwrite64')  # only these have their offset as an argument


def calls(folder, base):
    """{(function, category, path, arguments that both record): calls} on the files of a pipeline; paths are relative to `base`."""
    events, paths = list(lines_of(folder)), {}
    for e in events:
        if e['name'] == 'FH':
            paths[str(e['args']['value'])] = e['args']['name']
    found = Counter()
    for e in events:
        path = paths.get(str(e['args'].get('fhash')), '') if e.get('cat') == 'POSIX' else ''
        if path.startswith(f'{base}/data/'):
            keys = ('ret', 'count') + (('offset',) if e['name'] in AT_A_PLACE else ())
            args = {key: e['args'][key] for key in keys if key in e['args']} if 'count' in e['args'] else {}
            found[event(e['name'], path[len(f'{base}'):], args)] += 1
    return found


def test_files_like_dftracers_own(natively, tmp_path, tfanalyze):
    """dftracer's native package and the library record the same calls on files: functions, paths, counts, sizes asked for, offsets
    and bytes moved. The library also has fstat and ftruncate64, which dftracer does not intercept. dftracer records the same calls
    beside the library, and both leave the files outside data_dir out."""
    theirs, ours = tmp_path / 'theirs', tmp_path / 'ours'
    result = natively(FILES, theirs, ours, TFI_ACTIVITIES='io')
    assert calls(ours, ours) == calls(theirs, theirs)
    trace, found, _ = recorded(result.dir)
    assert said(theirs) == found and sum(found.values()) == 6
    paths = {scripted.text(trace, r.values['path']) for r in trace.records if r.kind == 'io'}
    assert f'{ours}/data/1' in paths and f'{ours}/outside' not in paths
    exported = tmp_path / 'exported'
    exported.mkdir()
    made = execute([tfanalyze, 'export', 'pfw', trace.path, '--output', exported / 'x.pfw'], {**os.environ, 'LD_PRELOAD': ''})
    assert made.rc == 0, made.err
    wanted, got = calls(theirs, theirs), calls(exported, ours)
    assert sum(wanted.values()) > 70
    more = got - wanted
    assert got - more == wanted and {name for name, *_ in more} <= {'fstat64', 'fstat', 'ftruncate64'}

    def moved(function, path):
        return sum(json.loads(args).get('ret', 0) * n for (name, at, args), n in wanted.items() if at == path and name in function)
    answer = execute([tfanalyze, 'io', '--format', 'json', '--layout', 'files', result.dir], {**os.environ, 'LD_PRELOAD': ''})
    rows = {row['path'][len(str(ours)):]: row for row in json.loads(answer.out)['rows'] if (row['path'] or '').startswith(f'{ours}/data/')}
    for step in range(1, 6):
        path = f'/data/{step}'
        assert rows[path]['read_bytes'] == moved(('read', 'pread64'), path) > 1000
        assert rows[path]['write_bytes'] == moved(('write', 'pwrite64'), path) == 1000 * (step + 1) + 50
