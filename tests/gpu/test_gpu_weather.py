"""test_gpu_weather - bad weather on the device: output, exit status, errno and CUDA errors of the program never change.

tests/victims_gpu/weather.c prints each call's result and errno. Each mode runs bare and under the library, on the same
simulated GPU. Both outputs must be equal, and the library prints at most one message. The tests compare its trace with
the program's output and with the device model's log.
"""

import ctypes.util
import itertools
import json
import re
import shutil
from collections import Counter
from types import SimpleNamespace

import pytest

import scripted
from conftest import BUILD, ROOT, built
from scripted import drops
from test_cuda_tables import compile_c

GPU = BUILD / 'simgpu'
KINDS = {'kernel': 'kernel', 'copy': 'memcpy', 'set': 'memset'}  # {kind of our records: kind in the log}
OURS, SIMULATORS = 'tfinject: ', ('simgpu: ', 'simcupti: ')


@pytest.fixture
def weather(run, tmp_path, lib):
    """weather(mode, env={}, says=None, …): compares bare and watched run -> .trace, .traces, .log, .results.

    says: a pattern for the one message; None for no message. before, after: other preloads.
    """
    runs = itertools.count()

    def weather(*arguments, env=None, says=None, program='weather', libraries=GPU, before=(), after=(), command=(),
                **sim):
        number = next(runs)
        log = tmp_path / f'log-{number}'
        full = {'LD_LIBRARY_PATH': libraries, 'CUDA_HOME': '/nowhere', 'SIMGPU_LOG': log, 'TFI_OUTPUT_DIR': tmp_path / f'run-{number}'}
        full.update(env or {})
        full.update({f'SIMCUPTI_{k.upper()}': v for k, v in sim.items()})
        line = [*command, built(BUILD / 'victims_gpu' / program), *arguments]
        others = ':'.join(map(str, [*before, *after]))
        bare = run(line, {**full, 'SIMGPU_LOG': tmp_path / 'bare-log'}, preload=others or False)
        watched = run(line, full, preload=':'.join(map(str, [*before, lib, *after])))
        assert bare.out and watched.out == bare.out
        assert watched.rc == bare.rc
        said = [x for x in watched.err.splitlines() if x.startswith(OURS)]
        rest = [[x for x in r.err.splitlines() if not x.startswith((OURS, *SIMULATORS))] for r in (bare, watched)]
        assert rest[1] == rest[0]
        assert len(said) == (says is not None) and re.search(says or '', ''.join(said)), watched.err
        got = SimpleNamespace(out=watched.out, rc=watched.rc, dir=watched.dir, said=said, err=watched.err)
        got.traces = scripted.traces(watched.dir) if watched.dir.exists() else []
        got.trace = max(got.traces, key=lambda t: len(t.records), default=None)
        got.log = [json.loads(x) for x in log.read_text().splitlines()] if log.exists() else []
        got.results = [x.split() for x in got.out.splitlines() if re.fullmatch(r'cu\w+ -?\d+ \d+', x)]
        return got
    return weather


# ---- the trace ----

def records(trace, kind):
    return [SimpleNamespace(**r.values) for r in trace.records if r.kind == kind]


def device_work(trace):
    kernels = records(trace, 'kernel')
    found = Counter(('kernel', scripted.text(trace, r.name), r.correlation, r.duration) for r in kernels)
    copies = [(kind, r) for kind in ('copy', 'set') for r in records(trace, kind)]
    return found + Counter((kind, r.bytes, r.correlation, r.duration) for kind, r in copies)


def logged(log):
    what, kinds = {'kernel': 'name', 'memcpy': 'bytes', 'memset': 'bytes'}, {t: kind for kind, t in KINDS.items()}
    work = [w for w in log if w['t'] in kinds]
    return Counter((kinds[w['t']], w[what[w['t']]], w['correlation'], w['end'] - w['start']) for w in work)


def assert_all_work(got):
    assert device_work(got.trace) == logged(got.log) and logged(got.log)
    assert got.trace.complete and not drops(got.trace)


# Calls without a row in the tables that every mode makes.
UNRECORDED = {'cuInit', 'cuDeviceGetCount', 'cuCtxSetCurrent', 'cudaGetLastError', 'cudaPeekAtLastError'}


def assert_calls(got):
    """The trace has every printed call with its result and errno, and no other call."""
    recorded = Counter((c.name, c.result, c.error) for t in got.traces for c in scripted.calls(t))
    results = [r for r in got.results if r[0] not in UNRECORDED]
    printed = Counter((name, int(result), int(error)) for name, result, error in results)
    assert recorded == printed and printed


# ---- fair weather, the basis of the other tests ----

def test_fair_weather(weather):
    got = weather('work', '5')
    assert got.rc == 5 and all(result == '0' and error == '77' for _, result, error in got.results)
    assert_all_work(got)
    assert_calls(got)


# ---- CUDA missing, wholly or in part ----

@pytest.fixture
def only(tmp_path):
    """only(name, ...): a directory with just these libraries."""
    return lambda *names: scripted.libraries(tmp_path / 'libraries', *names)


def test_no_cuda_at_all(weather, only):
    got = weather('cuInit', program='weather_dl', libraries=only())
    assert got.rc == 3 and got.out == 'driver missing, runtime missing, CUPTI not mapped\n0 0\n'
    assert not got.dir.exists()


def test_a_program_linked_to_missing_cuda(run, only):
    """The loader prints the same message and the status is the same."""
    program, env = built(BUILD / 'victims_gpu' / 'weather'), {'LD_LIBRARY_PATH': only()}
    bare, watched = run([program, 'work'], env, preload=False), run([program, 'work'], env)
    assert bare.rc == watched.rc != 0 and watched.err == bare.err != '' and watched.out == bare.out


def test_no_device(weather):
    got = weather('work', env={'SIMGPU_DEVICES': '0'})
    assert ['cuInit', '100', '77'] in got.results


LACKING = ['cuInit', 'cuMemAlloc_v2', 'cuLaunchKernel', 'cuLaunchKernelEx', 'cuGetProcAddress_v2', 'cuNothing',
           'cuMemAlloc']


@pytest.mark.parametrize('lack', ['', 'cuLaunchKernelEx', 'cuMemAlloc_v2,cuInit', 'cuGetProcAddress_v2'])
def test_symbols_missing(weather, lack):
    """A function that the driver lacks is missing under the library too, for every way of looking it up."""
    got = weather(*LACKING, program='weather_dl', env={'SIMGPU_LACK': lack})
    gone = [line.split(':')[0] for line in got.out.splitlines() if ': - ' in line]
    assert set(gone) == {'cuNothing', 'cuMemAlloc', *lack.split(',')} - {''}


ASKED = ['cuCtxGetDevice', 'cuDeviceGetAttribute', 'cuDeviceGetName', 'cuDeviceTotalMem_v2', 'cuDeviceGetUuid_v2',
         'cuDeviceGetCount', 'cuDriverGetVersion', 'cuDeviceGetPCIBusId']


@pytest.mark.parametrize('function', ASKED)
def test_driver_answers_nothing_about_devices(weather, function):
    """A driver that cannot answer our questions about devices costs only that answer."""
    for way in ({'SIMGPU_LACK': function}, {'SIMGPU_FAIL': f'{function}=999'}):
        if function == 'cuDeviceGetCount' and 'SIMGPU_LACK' in way:
            continue  # the program is linked to it
        got = weather('work', env=way)
        assert device_work(got.trace) == logged(got.log)


# ---- CUPTI ----

def test_cupti_missing(weather, only):
    got = weather('work', libraries=only('libcuda.so.1'), says='no device records: libcupti.so was not found')
    assert_calls(got)


def test_cupti_path_that_is_wrong(weather):
    got = weather('work', env={'TFI_CUPTI_PATH': '/nowhere/libcupti.so'}, says='/nowhere/libcupti.so.*elsewhere')
    assert_all_work(got)
    assert_calls(got)


FUNCTIONS = ['GetVersion', 'ActivityRegisterCallbacks', 'ActivityEnable', 'ActivityFlushAll', 'GetTimestamp',
             'ActivityGetNextRecord', 'ActivitySetAttribute', 'ActivityGetNumDroppedRecords',
             'ActivityEnableRuntimeApi', 'ActivityEnableDriverApi', 'ActivityDisable', 'GetResultString']
NEEDED = FUNCTIONS[:3]


@pytest.mark.parametrize('version, soname, file', [
    (17, 'libcupti.so.13', 'libcupti.so.13'), (18, 'libcupti.so.11.8', 'libcupti.so.13'), (18, 'libcupti.so.11.8', 'libcupti-53e25bed.so.11.8')])
def test_cupti_too_old(weather, only, tmp_path, version, soname, file):
    """A CUPTI of CUDA 11 is asked only for its version, though the call changes errno. 11.8 and 12.0 have the same version."""
    table = (ROOT / 'preload/cupti/client.h').read_text()
    names = re.findall(r'^    API\((\w+),', table, re.M)
    assert set(FUNCTIONS) <= set(names)
    source = ('#include <errno.h>\n#include <stdlib.h>\n'
              'const char simgpu_cupti = 1; /* one for the simulated driver */\n'
              f'int cuptiGetVersion(unsigned *v) {{ errno = EIO; *v = {version}; return 0; }}\n'
              'int cuptiGetResultString(int r, const char **t) { *t = "old"; return 0; }\n')
    others = set(names) - {'GetVersion', 'GetResultString'}
    source += ''.join(f'int cupti{n}(void) {{ abort(); }}\n' for n in others)
    old = compile_c(tmp_path / file, source, '-shared', '-fPIC', '-w', f'-Wl,-soname,{soname}')
    libraries = only('libcuda.so.1')
    (libraries / 'libcupti.so.13').unlink()
    shutil.copy(old, libraries / 'libcupti.so.13')
    mapped = [old] if file != 'libcupti.so.13' else []
    got = weather('work', libraries=libraries, says='no device records.*too old, CUDA 12', after=mapped)
    assert_calls(got)


def errors():
    """Every error of the installed header."""
    makefile = (BUILD / 'headers.mk').read_text()
    header = f'{re.search("^CUPTI_INC = (.*)", makefile, re.M)[1]}/cupti_result.h'
    with open(header) as file:
        return sorted(set(re.findall(r'^\s*(CUPTI_ERROR_(?!FORCE)\w+)\s*=\s*\d+', file.read(), re.M)))


@pytest.mark.parametrize('function', FUNCTIONS)
def test_cupti_returns_an_error(weather, function):
    says = 'no device records.*stages are still recorded' if function in NEEDED else None
    for error in ('CUPTI_ERROR_NOT_INITIALIZED', 'CUPTI_ERROR_INSUFFICIENT_PRIVILEGES'):
        got = weather('work', fail=f'cupti{function}={error}', says=says)
        assert_calls(got)
        assert not device_work(got.trace) - logged(got.log)
        assert bool(device_work(got.trace)) == (function not in (*NEEDED, 'ActivityFlushAll', 'ActivityGetNextRecord'))


def test_cupti_returns_each_error(weather):
    names = errors()
    assert len(names) > 30
    for error in names:
        got = weather('work', fail=f'cuptiActivityRegisterCallbacks={error}', says=f'no device records.*{error}')
        assert not device_work(got.trace)
    assert_calls(got)


@pytest.mark.parametrize('function', FUNCTIONS)
def test_cupti_lacks_a_function(weather, function):
    needed = not function.endswith('Api') and function != 'GetResultString'
    got = weather('work', lack=f'cupti{function}', says=f'no device records.*cupti{function}' if needed else None)
    assert_calls(got)
    if not needed:
        assert_all_work(got)


def test_callbacks_in_a_thread_we_never_saw(weather):
    assert_all_work(weather('work', nasty='thread'))


def test_buffers_that_come_back_after_the_exit_began(weather):
    """Records in late buffers are lost, but the buffers are counted."""
    got = weather('work', '5', nasty='exit')
    assert got.rc == 5 and not device_work(got.trace) and drops(got.trace)['device_kept'] > 0
    assert_calls(got)


@pytest.mark.parametrize('nasty', ['late', 'order', 'running', 'held', 'names', 'lock', 'block', 'crash', 'slot',
                                   'uncorrelated', 'stolen', 'zero'])
def test_cupti_at_its_worst(weather, nasty):
    got = weather('work', '3', nasty=nasty)
    assert not device_work(got.trace) - logged(got.log)
    assert_calls(got)


# ---- CUDA errors ----

FAILURES = ['cuInit=100', 'cuInit=999', 'cuDevicePrimaryCtxRetain=2', 'cuCtxSetCurrent=201', 'cuModuleLoadData=218',
            'cuModuleGetFunction=500', 'cuStreamCreate=2', 'cuMemAlloc_v2=2', 'cuLaunchKernel=719:after 2:times 1',
            'cuLaunchKernel=701', 'cuMemcpyHtoD_v2=700', 'cuMemsetD8Async=1:times 1', 'cuEventRecord=400',
            'cuStreamSynchronize=719', 'cuEventQuery=600', 'cuMemcpyDtoH_v2=700', 'cuCtxSynchronize=700',
            'cuMemFree_v2=1', 'cuStreamDestroy_v2=709', 'cuModuleUnload=4', 'cuDevicePrimaryCtxRelease_v2=4']


@pytest.mark.parametrize('failure', FAILURES)
def test_calls_that_return_errors(weather, failure):
    got = weather('work', env={'SIMGPU_FAIL': failure})
    name, code = re.match(r'(\w+)=(\d+)', failure).groups()
    assert [name, code, '77'] in got.results
    if got.traces:
        assert_calls(got)
        assert device_work(got.trace) == logged(got.log)


@pytest.mark.parametrize('failure', ['cudaNothing=1', 'cudaMalloc=2:times 1', 'cudaMemset=700:times 1',
                                     'cudaDeviceSynchronize=719', 'cudaDeviceReset=46'])
def test_errors_that_the_runtime_keeps(weather, failure):
    got = weather('errors', env={'SIMGPU_FAIL': failure})
    results = [tuple(r[:2]) for r in got.results]
    assert {('cudaSetDevice', '101'), ('cudaPeekAtLastError', '101'), ('cudaGetLastError', '0')} <= set(results)
    assert device_work(got.trace) == logged(got.log)
    assert_calls(got)


def test_flight_mode_keeps_errors_and_sums_kernels(weather):
    """The seconds before the first error with each number are kept, once; that an event is not ready is none. The sums of
    kernels are those of their records."""
    got = weather('work', env={'SIMGPU_FAIL': 'cuLaunchKernel=719:after 2:times 2,cuEventQuery=600', 'TFI_MODE': 'flight'})
    rows = [r.values for r in got.trace.records if r.kind == 'kept']
    kept = [(r['start'], r['end'], scripted.text(got.trace, r['name']).split('\x1f')[2]) for r in rows
            if r['cause'] == 2 and r['time'] == max(x['time'] for x in rows)]
    first = {}
    for c in sorted(scripted.calls(got.trace), key=lambda c: c.time + c.duration):
        if c.result not in (0, 600):
            first.setdefault(c.result, (c.time, c.time + c.duration, c.name))
    assert 719 in first and sorted(kept) == sorted(sorted(first.values(), key=lambda f: f[1])[-2:])
    took = {}
    for r in got.trace.records:
        if r.kind == 'kernel':
            took.setdefault(r.values['name'], []).append(r.values['duration'])
    sums = [r.values for r in got.trace.records if r.kind == 'aggregate']
    last = {r['name']: r for r in sums if r['what'] == 2 and r['time'] == max(x['time'] for x in sums)}
    assert took and {n: (r['count'], r['sum'], r['least'], r['most']) for n, r in last.items()} == \
        {n: (len(t), sum(t), min(t), max(t)) for n, t in took.items()}


@pytest.mark.parametrize('mode', ['reset', 'destroyed'])
def test_contexts_that_go(weather, mode):
    """Contexts go away in the middle of the run, with work before and after it, and the program uses dead handles."""
    got = weather(mode)
    assert Counter(result == '0' for name, result, _ in got.results if name == 'cuLaunchKernel')[False] >= 5
    assert_all_work(got)
    assert_calls(got)


# ---- threads, processes, captures ----

def test_fork_after_the_device_was_used(weather):
    """The child's calls fail as without the library, and it makes no CUPTI call; the parent continues."""
    got = weather('forked')
    assert 'child 7\n' in got.out and ['cuLaunchKernel', '3', '77'] in got.results
    assert device_work(got.trace) == logged(got.log)
    assert sum(map(bool, (records(t, 'kernel') for t in got.traces))) == 1
    assert_calls(got)


@pytest.mark.parametrize('nasty', ['', 'lock,thread,late'])
def test_eight_threads_that_launch(weather, nasty):
    got = weather('threads', nasty=nasty)
    assert got.out.count(': 0 failed') == 8
    assert_all_work(got)
    assert len(records(got.trace, 'kernel')) == 8 * 500
    launches = [c for c in scripted.calls(got.trace) if c.name == 'cuLaunchKernel']
    assert {(c.result, c.error) for c in launches} == {(0, 77)} and len(launches) == 8 * 500


def test_capture_in_global_mode_while_we_fetch(weather):
    """In global mode any thread's forbidden call ends the capture; our thread fetches all the while and makes none."""
    got = weather('capture', env={'TFI_FLUSH_MS': '5'})
    ends = [result for name, result, _ in got.results if name == 'cuStreamEndCapture']
    assert ends == ['0', '901']
    assert_all_work(got)
    assert len([r for r in records(got.trace, 'kernel') if r.graph]) == 3 * 4


# ---- other libraries in the process ----

EARLY = r'''
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
extern int cuMemAlloc_v2(unsigned long long *, size_t), cuMemsetD8_v2(unsigned long long, unsigned char, size_t);
extern int cuCtxSynchronize(void);
static unsigned long long memory;
static void say(const char *name, int result) { dprintf(1, "early: %s %d %d\n", name, result, errno); errno = 33; }
static void note(const char *text)
{
    FILE *f = getenv("NOTE") ? fopen(getenv("NOTE"), "a") : NULL;
    if (f) fprintf(f, "%s\n", text), fclose(f);
}
__attribute__((constructor)) static void first(void)
{
    void *context = NULL;
    note(getenv("TFI_RUN_DIR") ? "after" : "before");
    errno = 33;
    say("cuInit", cuInit(0));
    say("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&context, 0));
    say("cuCtxSetCurrent", cuCtxSetCurrent(context));
    say("cuMemAlloc", cuMemAlloc_v2(&memory, 256));
    say("cuMemsetD8", cuMemsetD8_v2(memory, 1, 256));
}
__attribute__((destructor)) static void last(void)
{
    DIR *d = getenv("TFI_OUTPUT_DIR") ? opendir(getenv("TFI_OUTPUT_DIR")) : NULL;
    struct dirent *e;
    int live = 0;
    while (d && (e = readdir(d))) live |= strstr(e->d_name, ".live") != NULL;
    if (d) closedir(d);
    note(live ? "open" : "closed");
    errno = 33;
    say("cuMemsetD8", cuMemsetD8_v2(memory, 2, 256));
    say("cuCtxSynchronize", cuCtxSynchronize());
}
'''


def test_constructors_before_ours_and_destructors_after_ours(weather, tmp_path):
    """A preload that is constructed first and destroyed last uses the device at both ends."""
    early = compile_c(tmp_path / 'early.so', EARLY, '-shared', '-fPIC', '-w', '-Wl,--allow-shlib-undefined')
    got = weather('work', '5', env={'NOTE': tmp_path / 'note'}, after=[early])
    assert (tmp_path / 'note').read_text().split()[-2:] == ['before', 'closed']
    assert got.rc == 5 and got.out.count('early: ') == 7 and 'early: cuCtxSynchronize 0 33\n' in got.out
    assert not device_work(got.trace) - logged(got.log)
    assert (logged(got.log) - device_work(got.trace)).total() <= 2  # the preload's own sets at both ends


ALLOCATOR = r'''
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define ROOM (1ull << 32)
static char *arena;
static size_t used;
static void *take(size_t align, size_t size)
{
    if (align < 16) align = 16;
    if (!__atomic_load_n(&arena, __ATOMIC_ACQUIRE)) {
        char *none = NULL;
        char *p = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) _exit(111);
        if (!__atomic_compare_exchange_n(&arena, &none, p, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) munmap(p, ROOM);
    }
    size_t at = __atomic_fetch_add(&used, size + align + 32, __ATOMIC_RELAXED);
    if (at + size + align + 32 > ROOM) { errno = ENOMEM; return NULL; }
    char *p = (char *)(((uintptr_t)arena + at + 16 + align - 1) & ~(uintptr_t)(align - 1));
    ((size_t *)p)[-1] = size;
    return p;
}
void *malloc(size_t n) { return take(16, n); }
void free(void *p) { if (p) memset(p, 0xdb, ((size_t *)p)[-1]); }
void *calloc(size_t n, size_t m) { size_t s; return __builtin_mul_overflow(n, m, &s) ? NULL : take(16, s); }
void *realloc(void *p, size_t n)
{
    void *q = take(16, n);
    if (p && q) memcpy(q, p, ((size_t *)p)[-1] < n ? ((size_t *)p)[-1] : n), free(p);
    return q;
}
void *memalign(size_t a, size_t n) { return take(a, n); }
void *aligned_alloc(size_t a, size_t n) { return take(a, n); }
int posix_memalign(void **p, size_t a, size_t n) { return (*p = take(a, n)) ? 0 : ENOMEM; }
size_t malloc_usable_size(void *p) { return p ? ((size_t *)p)[-1] : 0; }
__attribute__((destructor)) static void end(void) { if (used) write(1, "allocator used\n", 15); }
'''


@pytest.fixture(params=['own', 'jemalloc'])
def allocator(request, tmp_path):
    """An allocator that overwrites freed memory and reports at the end that it was used, or jemalloc."""
    if request.param == 'jemalloc':
        name = ctypes.util.find_library('jemalloc')
        if not name:
            pytest.skip('jemalloc is not installed')
        return name
    return compile_c(tmp_path / 'allocator.so', ALLOCATOR, '-shared', '-fPIC', '-w', '-O1', '-fno-builtin')


@pytest.mark.parametrize('where', ['before', 'after'])
@pytest.mark.parametrize('mode', ['work', 'threads', 'forked'])
def test_another_preload(weather, allocator, where, mode):
    got = weather(mode, **{where: [allocator]})
    assert 'allocator used' in got.out or str(allocator).startswith('libjemalloc')
    assert device_work(got.trace) == logged(got.log) and logged(got.log)


@pytest.mark.parametrize('mode', ['work', 'reset'])
def test_valgrind(weather, mode):
    """valgrind finds no invalid access, in the program's threads or in ours."""
    if not shutil.which('valgrind'):
        pytest.skip('valgrind is not installed')
    got = weather(mode, '5', command=['valgrind', '-q', '--error-exitcode=99'])
    assert got.rc == 5
    assert_all_work(got)
