"""conftest - the test runner: paths of built programs, ways to run them, rules for skips, and the closing line.

Rules. Every test has a timeout. A skip is allowed only for a reason listed in tests/data/skips.txt; any other skip, and any
xfail, is a failure. The last line is always `N passed, N failed, N skipped`; an error, or a session that cannot run,
counts as failed. Tests marked `soak` run only with -m soak. All rules hold under pytest-xdist too.

The longest lists of cases are run by samples: SOAK_SEED shifts the samples, which are evenly spaced, by one case, so a
list of 40 cases of which 10 are sampled is complete after four seeds. SOAK_ALL=1, or naming tests, runs every case.
SOAK_SEED is the day unless it is given; it also chooses the older Python that runs beside the newest one. Of the cases of a
test that are about large real traces `make test` takes one, another one each day; `make soak` has the others.

A test gets the markers torch, gpu and sanitized from its folder and fixtures. The marker `slow` is written at the test,
or follows from its parameters: an older interpreter, a large trace. Tests that share a fixture which starts torch are
in one xdist group.
"""

import faulthandler
import gc
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / 'build'
# The last lines of a script that is a text, like at_rest.wait_for_threads() in a file.
AT_REST = (ROOT / 'tests' / 'pipelines' / 'at_rest.py').read_text() + '\n\nwait_for_threads()\n'
TRACES = ROOT.parent / 'shared' / 'traces'
# pytest rewrites the assertions of each test file, which takes seconds. This process caches the result in
# build/pycache; the processes it starts write no bytecode beside their sources.
sys.pycache_prefix, sys.dont_write_bytecode = str(BUILD / 'pycache'), False
# Test files import from each other, across folders.
sys.path += sorted(str(d) for d in (ROOT / 'tests').iterdir() if any(d.glob('test_*.py')))
from forked import Interpreter
DEFAULT_TIMEOUT = 600
COMMAND_TIMEOUT = 200  # for one command: a virtual machine whose host is busy may stand still for a minute
MARKERS = {
    'soak': 'long; runs only with -m soak (make soak)',
    'sampled': 'sampled(n): `make soak` runs n of the cases that SOAK_SEED chooses; SOAK_ALL=1 runs all',
    'rotating': 'rotating(n): a run takes n of the cases that SOAK_SEED chooses, and `make soak` n others; SOAK_ALL=1 runs all',
    'torch': 'may import torch: uses the fixture `python`, whose environment has it',
    'gpu': 'is about the device, here the simulated one: lies in tests/gpu',
    'sanitized': 'needs the ASAN=1 build',
    'slow': 'takes more than three seconds on an idle machine, alone or with the other tests of its file that are marked',
}
SOAK_SEED = int(os.environ.setdefault('SOAK_SEED', str(int(time.time()) // 86400)))  # xdist's workers inherit it
SOAK_ALL = bool(os.environ.get('SOAK_ALL'))
SLOW = 10  # seconds: `make check-fast` lists slower tests at its end

# Variables of the library, of launchers and of make that would change a test's result.
SCRUBBED = re.compile(r'TFI_|ENABLE_PROFILER_NAMES$|TELEFUSER_|PROFILER_OUTPUT_DIR$|CACHE_DIT_|LD_PRELOAD$|NVTX_INJECTION'
                      r'|CUDA_INJECTION|(RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_RANK|MASTER_ADDR|MASTER_PORT)$'
                      r'|(OMPI_COMM_|PMI|SLURM_|TORCHELASTIC_)|(MAKEFLAGS|MAKELEVEL|MFLAGS|BUILD|ASAN|V|T|CC|CXX)$')


# ---- built programs ----

def built(path):
    assert path.exists(), f'{path.relative_to(ROOT)} is not built; `make test` builds it'
    return path


@pytest.fixture(scope='session')
def lib():
    """The library as users load it."""
    return built(BUILD / 'libtfinject.so')


@pytest.fixture(scope='session')
def testlib():
    """The test build of the library: the hooks of tests/dummy.def and the other additions of TFI_TEST_HOOKS."""
    return built(BUILD / 'test' / 'libtfinject.so')


@pytest.fixture(scope='session')
def tfanalyze():
    return built(BUILD / 'tfanalyze')


@pytest.fixture(scope='session')
def tfanalyze_asan():
    return built(BUILD / 'asan' / 'tfanalyze')


@pytest.fixture(scope='session')
def python():
    """The interpreter of the environment with torch."""
    return built(BUILD / 'venv' / 'bin' / 'python')


@pytest.fixture(scope='session')
def victim():
    """victim(name): the program built from tests/victims/name.c or .cpp, or the library libNAME.so."""
    return lambda name: built(BUILD / 'victims' / name)


@pytest.fixture(scope='session')
def shared_traces():
    if not TRACES.is_dir():
        pytest.skip('no ../shared/traces beside the repository')
    return TRACES


# ---- running programs ----

def clean_environment():
    return {k: v for k, v in os.environ.items() if not SCRUBBED.match(k)}


HELD = []


def free_port():
    """A port for ranks to meet at. A socket on which nobody listens holds it to this process's end: the kernel gives it to no
    other program, and a rank that reuses addresses, as torch's store does, listens there."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(('', 0))
    HELD.append(held)
    return held.getsockname()[1]


CLOSING = re.compile(r'^tfinject: the traces are ready for: tfanalyze (.*)\n', re.MULTILINE)


def without_start(rows):
    """Rows of `stages` but that of the process's start, which Python processes have."""
    return [row for row in rows if row['stage'] != '(start-up)']


def rest_of(process):
    """What a killed process wrote, in part where another process, which had left its group, still holds the pipes."""
    try:
        return process.communicate(timeout=10)
    except subprocess.TimeoutExpired as e:
        for pipe in (process.stdout, process.stderr):
            pipe.close()
        return [text.decode(errors='replace') if isinstance(text, bytes) else text or '' for text in (e.stdout, e.stderr)]


def execute(command, env=None, cwd=None, timeout=COMMAND_TIMEOUT, stdin=None):
    """Runs a command in its own process group, which a timeout kills; returns rc, out and err (text).

    The library's line at the end of a run is taken out of err; `closing` has the directories of such lines.
    """
    process = subprocess.Popen([str(c) for c in command], env=env, cwd=cwd, text=True, errors='replace',
                               stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        out, err = process.communicate(stdin, timeout=timeout)
    except BaseException as e:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        out, err = rest_of(process)
        if isinstance(e, subprocess.TimeoutExpired):
            pytest.fail(f'{command} did not end within {timeout} s\nstdout: {out[-2000:]}\nstderr: {err[-2000:]}')
        raise
    return SimpleNamespace(rc=process.returncode, out=out, err=CLOSING.sub('', err), closing=CLOSING.findall(err))


def without_unmatched(err):
    """stderr without the lines about names that matched no stage; test_unmatched tests these."""
    return re.sub(r'tfinject: ENABLE_PROFILER_NAMES: .* matched no stage in process .*\n|tfinject: TFI_SCHEDULE: no stage of process .*\n', '', err)


@pytest.fixture
def run(tmp_path, lib, testlib):
    """run(command, env={}, preload=True, timeout=COMMAND_TIMEOUT, cwd=None, stdin=None) -> rc, out, err, dir.

    preload: True for the library, 'test' for its test build, False for none, or a path. The command runs in the test's
    own directory. The run directory is tmp_path/'run' (result.dir) unless env sets TFI_OUTPUT_DIR. A None in env
    removes a variable.
    """
    def run(command, env=None, preload=True, timeout=COMMAND_TIMEOUT, cwd=None, stdin=None):
        full = clean_environment()
        full['TFI_OUTPUT_DIR'] = str(tmp_path / 'run')
        if preload:
            full['LD_PRELOAD'] = str({True: lib, 'test': testlib}.get(preload, preload))
        full.update({k: str(v) for k, v in (env or {}).items() if v is not None})
        for name in (k for k, v in (env or {}).items() if v is None):
            full.pop(name, None)
        result = execute(command, full, cwd or tmp_path, timeout, stdin)
        result.dir = Path(full.get('TFI_OUTPUT_DIR') or tmp_path)
        return result
    return run


@pytest.fixture(scope='session')
def forked(python, tmp_path_factory):
    """forked(command, env=None, cwd=None, imports=()) is execute() for scripts that need torch and run without the library."""
    interpreter = Interpreter(python, tmp_path_factory.mktemp('forked'), clean_environment())
    yield interpreter.run
    interpreter.end()


@pytest.fixture
def analyze(tfanalyze, tmp_path):
    """analyze(command, *arguments, rc=0) -> the JSON object that `tfanalyze command --format json …` prints.

    With format=None the result of execute() is returned unchanged. The exit status is checked in both cases: rc=None allows a
    whole answer and one from a damaged trace (0, 3), and rc=any no usable input as well (0, 1, 3).
    """
    def analyze(command, *arguments, rc=0, format='json', timeout=COMMAND_TIMEOUT, program=None):
        line = [program or tfanalyze, command, *arguments, *(['--format', format] if format else [])]
        result = execute(line, clean_environment(), tmp_path, timeout)
        assert result.rc in ({None: (0, 3), any: (0, 1, 3)}.get(rc, (rc,))), f'{line}: exit {result.rc}, not {rc}\nstdout: {result.out[-2000:]}\nstderr: {result.err[-2000:]}'
        if format != 'json':
            return result
        parsed = json.loads(result.out)
        assert parsed['command'] == command
        return parsed
    return analyze


@pytest.fixture
def exported(trace, analyze):
    """The Chrome export, as JSON, of the trace that the test file's own fixture `trace` makes."""
    return json.loads(analyze('export', 'chrome', trace, format=None).out)


# ---- the rules ----

def pytest_configure(config):
    config._tfi_stderr = os.fdopen(os.dup(2), 'w')  # not captured
    for marker, meaning in MARKERS.items():
        config.addinivalue_line('markers', f'{marker}: {meaning}')
    # Under nohup and in a script's background these signals are ignored, and child processes would inherit that. A
    # handler is not inherited.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_ignore_collect(collection_path):
    """pytest by default enters no folder named build."""
    return False if collection_path == ROOT / 'tests' / 'build' else None


def check_that_all_was_found(config, items):
    if (ROOT / 'tests') in {Path(a).resolve() for a in config.args}:
        ignored = {Path(path).resolve() for path in config.option.ignore or ()}
        left_out = {path for path in (ROOT / 'tests').glob('*/test_*.py') if path.parent not in ignored} - {item.path for item in items}
        if left_out:
            raise pytest.UsageError(f'no test was found in {", ".join(sorted(str(p.relative_to(ROOT)) for p in left_out))}')


def shared_by(item):
    """The fixtures of the test's own file that start torch once for several tests; on two workers each would start it."""
    known = item._fixtureinfo.name2fixturedefs

    def uses_python(name):
        return name == 'python' or any(uses_python(n) for n in (known[name][-1].argnames if name in known else ()) if n != name)
    return [name for name, found in known.items() if found[-1].scope in ('session', 'module')
            and found[-1].baseid.startswith(item.nodeid.split('::')[0]) and uses_python(name)]


def group_of(item):
    return '_'.join(sorted({str(mark.args[0]) for mark in item.iter_markers('xdist_group')}))


@lru_cache
def is_large(name):
    """True for a real trace that the tests' Python takes a second or more to read."""
    if len(name) >= 200 or not TRACES.is_dir():
        return False
    paths = (folder / name for folder in (TRACES, *TRACES.iterdir()))
    return any(path.is_file() and path.stat().st_size > 300_000 for path in paths)


def is_about_a_large_trace(item):
    parameters = item.callspec.params.values() if hasattr(item, 'callspec') else ()
    return any(isinstance(p, str) and '.' in p and is_large(p) for p in parameters)


def markers_of(item):
    """The markers that follow from a test's folder and from its fixtures."""
    parameters = item.callspec.params if hasattr(item, 'callspec') else {}
    if item.path.parent.name == 'gpu':
        yield 'gpu'
    if 'python' in item.fixturenames and 'python' not in parameters:  # as a parameter, `python` is another interpreter
        yield 'torch'
    if 'tfanalyze_asan' in item.fixturenames or any(isinstance(p, str) and p == 'asan' for p in parameters.values()):
        yield 'sanitized'
    if 'python' in parameters and 'newest' not in item.callspec.id:
        yield 'slow'  # the newest interpreter runs every test
    if is_about_a_large_trace(item):
        yield 'slow'


def short_form(n, names, cases, **options):
    """parametrize() of which `make test` runs the first n cases, and `make soak` the others."""
    def in_soak(case):
        values = case.values if isinstance(case, type(pytest.param())) else case if ',' in names else (case,)
        return pytest.param(*values, id=getattr(case, 'id', None), marks=(*getattr(case, 'marks', ()), pytest.mark.soak))
    cases = list(cases)
    return pytest.mark.parametrize(names, [*cases[:n], *map(in_soak, cases[n:])], **options)


def sampled(things, n, shift=0):
    """n of the things, evenly spaced; the next seed gives their neighbours."""
    things = list(things)
    if SOAK_ALL or n >= len(things):
        return things
    return [things[(SOAK_SEED + shift + i * len(things) // n) % len(things)] for i in range(n)]


def lists_of(items, marker):
    """[n, cases] of each parametrized test with this marker."""
    lists = {}
    for item in items:
        mark = item.get_closest_marker(marker)
        if mark:
            lists.setdefault((item.path, item.originalname), (mark.args[0], []))[1].append(item)
    return lists.values()


def left_out_of_samples(config, items):
    """The cases that this run leaves out; none if the command line names tests."""
    if config.option.keyword or any('::' in str(a) for a in config.args):
        return set()
    left_out, large = set(), {}
    for item in filter(is_about_a_large_trace, items):
        large.setdefault((item.path, item.originalname), []).append(item)
    for cases in large.values():
        for item in set(cases) - set(sampled(cases, 1)):
            item.add_marker(pytest.mark.soak)
    for n, cases in lists_of(items, 'rotating'):
        for item in cases if SOAK_ALL else set(cases) - set(sampled(cases, n)):
            item.add_marker(pytest.mark.soak)
            item.add_marker(pytest.mark.sampled(n))
    if 'soak' in (config.option.markexpr or ''):
        for n, cases in lists_of(items, 'sampled'):
            left_out |= set(cases) - set(sampled(cases, n))
    return left_out


def deselect(config, items, unwanted):
    if unwanted:
        config.hook.pytest_deselected(items=[item for item in items if item in unwanted])
        items[:] = [item for item in items if item not in unwanted]


# Runs first, before -k and -m deselect tests.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    check_that_all_was_found(config, items)
    deselect(config, items, left_out_of_samples(config, items))
    for item in items:
        for marker in markers_of(item):
            item.add_marker(marker)
        if 'python' in item.fixturenames and not item.get_closest_marker('xdist_group'):
            for name in shared_by(item):
                item.add_marker(pytest.mark.xdist_group(f'{item.path.stem}-{name}'))
    # Slow tests go first and then those with torch, so no worker waits for another one's last test.
    items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in ('slow', 'torch')])
    # xdist recognises a group by a suffix of the test's id, but writes it to a place that pytest 9.2 does not read.
    for item in items if config.getoption('loadgroup', False) else []:
        if group_of(item) and not item.nodeid.endswith('@' + group_of(item)):
            item._id = item._id.parse(f'{item.nodeid}@{group_of(item)}')
    for item in items:
        if not item.get_closest_marker('timeout'):
            item.add_marker(pytest.mark.timeout(DEFAULT_TIMEOUT))
    if 'soak' not in (config.option.markexpr or ''):
        deselect(config, items, {item for item in items if item.get_closest_marker('soak')})


def pytest_collection_finish():
    """The collected tests stay until the end, so the garbage collector need not visit their million objects again and again."""
    gc.collect()
    gc.freeze()


@lru_cache
def allowed_reasons():
    lines = (ROOT / 'tests' / 'data' / 'skips.txt').read_text().splitlines()
    return [line for line in lines if line.strip() and not line.startswith('#')]


def refused(reason):
    """The reason why a skip with this reason is a failure, or None."""
    if not any(re.fullmatch(pattern, reason) for pattern in allowed_reasons()):
        return f'skipped for a reason that tests/data/skips.txt does not allow: {reason}'
    if 'shared/traces' in reason and TRACES.is_dir():
        return f'skipped though {TRACES} exists: {reason}'
    return None


def skip_reason(report):
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix('Skipped: ')


def judge(report):
    why = None
    if hasattr(report, 'wasxfail'):
        why = 'xfail is not used here: a test must be able to fail'
        del report.wasxfail
    elif report.skipped:
        why = refused(skip_reason(report))
    if why:
        report.outcome, report.longrepr = 'failed', why


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """pytest-timeout interrupts a test once. If what follows hangs too, this ends the worker, and xdist starts another one."""
    faulthandler.dump_traceback_later(item.get_closest_marker('timeout').args[0] + 120, exit=True, file=item.config._tfi_stderr)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    judge(outcome.get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector):
    outcome = yield
    judge(outcome.get_result())


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    session.config._tfi_exit = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    """Prints the closing lines in the process that reports (not in xdist's workers); pytest prints nothing after them."""
    reporter = config.pluginmanager.get_plugin('terminalreporter')
    if hasattr(config, 'workerinput') or reporter is None or config.option.collectonly or not hasattr(config, '_tfi_exit'):
        return
    stats = {k: reporter.stats.get(k, []) for k in ('passed', 'failed', 'error', 'skipped')}
    failed = {r.nodeid for r in stats['failed'] + stats['error']}
    passed = {r.nodeid for r in stats['passed']} - failed
    skipped = {r.nodeid: r for r in stats['skipped']}
    for nodeid, report in sorted(skipped.items()):
        reporter.write_line(f'skipped: {nodeid}: {skip_reason(report)}')
    if 'slow' in (config.option.markexpr or ''):
        for report in stats['passed']:
            if report.when == 'call' and report.duration > SLOW:
                reporter.write_line(f'took {report.duration:.0f} s and is not marked slow: {report.nodeid}')
    problems = len(failed)
    if config._tfi_exit not in (0, 1) and not problems:
        reporter.write_line(f'the session did not run as it should (pytest exit status {config._tfi_exit}): counted as failed')
        problems = 1
    reporter.write_line(f'SOAK_SEED={SOAK_SEED} chose what changes every day')
    reporter.write_line(f'{len(passed)} passed, {problems} failed, {len(skipped)} skipped')
