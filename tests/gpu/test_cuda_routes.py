"""test_cuda_routes - look-ups of CUDA functions that bypass their symbols; processes without CUDA stay unchanged.

The libraries here are made up for the tests and only print the names of their called functions.
"""

import re
import subprocess

import pytest

import scripted
from conftest import BUILD, ROOT, built
from scripted import calls, only
from test_cuda_tables import HEAD, compile_c, includes, load_gen_tables

NO_DEVICE = 2**64 - 2  # these drivers do not tell where a block is
ROUTES = [(kind == 'ROUTE_PER_THREAD', *a) for kind, a in load_gen_tables().rows('preload/cuda/routes.def') if kind.startswith('ROUTE')]

DRIVER = HEAD + r'''
#define SAY(name) CUresult name(void) __asm__(#name); CUresult name(void) { puts("driver: " #name); return 0; }
%s
static CUresult future(void) { puts("driver: future"); return 0; }
static const struct { const char *name; int version, per_thread; void *function; } known[] = {
%s
};
extern CUresult get_v1(const char *, void **, int, cuuint64_t) __asm__("cuGetProcAddress");
extern CUresult get_v2(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *) __asm__("cuGetProcAddress_v2");
static void *find(const char *name, int version, int per_thread)
{
    void *found = NULL;
    int best = 0;
    if (version == 99000) return future;
    if (!strcmp(name, "cuGetProcAddress")) return version < 12000 ? (void *)get_v1 : (void *)get_v2;
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].name, name) && known[i].per_thread == per_thread && known[i].version <= version && known[i].version >= best)
            best = known[i].version, found = known[i].function;
    return found || !per_thread ? found : find(name, version, 0);
}
CUresult get_v1(const char *name, void **pfn, int version, cuuint64_t flags)
{
    *pfn = find(name, version, flags == 2);
    return *pfn ? 0 : 500;
}
CUresult get_v2(const char *name, void **pfn, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
    if (status) *status = 0;
    return get_v1(name, pfn, version, flags);
}
'''

RUNTIME = r'''
#include <dlfcn.h>
#include <stdio.h>
static int driver_call(const char *name)
{
    int (*f)(void *, unsigned long) = (int (*)(void *, unsigned long))dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
    return f ? f(NULL, 5) : -1;
}
int cudaMalloc(void **p, unsigned long n) { (void)n; puts("runtime " RELEASE ": cudaMalloc"); *p = (void *)77; return driver_call("cuMemAlloc_v2"); }
int cudaMemGetInfo(void *a, void *b) { (void)a; (void)b; return driver_call("cuDevicePrimaryCtxRetain"); }
int cudaRuntimeGetVersion(int *v) { *v = VERSION; return 0; }
int cudaGetDeviceCount(int *n) { *n = 0; return 100; }
void __cudaRegisterFunction(void **h, const char *f, char *d, const char *n, int t, void *a, void *b, void *c, void *e, void *w) { (void)h; (void)f; (void)d; (void)n; (void)t; (void)a; (void)b; (void)c; (void)e; (void)w; }
int cudaLaunchKernel(const void *f) { (void)f; puts("runtime " RELEASE ": cudaLaunchKernel"); return 0; }
int cudaMemPrefetchAsync(unsigned long a, unsigned long b, unsigned long c, unsigned long d, unsigned long e) { printf("runtime " RELEASE ": %lu %lu %lx %lu %lu\n", a, b, c, d, e); return 0; }
int cudaMemcpyBatchAsync(void *a, void *b, void *c, unsigned long d, void *e, void *f, unsigned long g, unsigned long h, unsigned long i)
{
    (void)a; (void)b; (void)c; (void)e; (void)f;
#if VERSION < 13000
    printf("runtime " RELEASE ": %lu %lu %lu %lu\n", d, g, h, i);
#else
    (void)i; printf("runtime " RELEASE ": %lu %lu %lu\n", d, g, h);
#endif
    return 0;
}
static int entry(const char *name, void **f, unsigned version, unsigned long long flags)
{
    int (*get)(const char *, void **, int, unsigned long long, void *) =
        (int (*)(const char *, void **, int, unsigned long long, void *))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGetProcAddress_v2");
    if (RAW) get = (int (*)(const char *, void **, int, unsigned long long, void *))dlvsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGetProcAddress_v2", "libcuda.so.1");
    return get(name, f, (int)version, flags, 0);
}
int cudaGetDriverEntryPoint(const char *name, void **f, unsigned long long flags, void *s) { (void)s; return entry(name, f, VERSION, flags); }
int cudaGetDriverEntryPointByVersion(const char *name, void **f, unsigned v, unsigned long long flags, void *s) { (void)s; return entry(name, f, v, flags); }
'''

PLAIN = '#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <errno.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n'


def library(directory, name, source, soname, *options, versioned=True):
    script = directory / f'{name}.map'
    script.write_text(f'{soname if versioned is True else versioned} {{ global: *; }};\n')
    return compile_c(directory / name, source, '-shared', '-fPIC', '-w', f'-Wl,-soname,{soname}', f'-Wl,--version-script={script}', *options)


def runtime(directory, release, name=None, raw=0):
    soname = name or f'libcudart.so.{release}'
    return library(directory, soname, RUNTIME, soname, f'-DRELEASE="{release}"', f'-DVERSION={release}000', f'-DRAW={raw}',
                   versioned=f'libcudart.so.{release}')


@pytest.fixture(scope='module')
def driver(tmp_path_factory):
    directory = tmp_path_factory.mktemp('routes')
    symbols = sorted({r[3] for r in ROUTES} - {'cuGetProcAddress', 'cuGetProcAddress_v2'})
    known = [f'{{"{n}", {v}, {int(p)}, (void *){s}}},' for p, n, v, s in ROUTES if s in symbols]
    # The header's prototypes would not allow functions without parameters.
    source = DRIVER % ('\n'.join(f'#define {s} fake_{s}\nCUresult {s}(void) __asm__("{s}"); CUresult {s}(void) {{ puts("driver: " "{s}"); return 0; }}' for s in symbols),
                       '\n'.join(known))
    library(directory, 'libcuda.so.1', source, 'libcuda.so.1')
    return directory


@pytest.fixture
def play(driver, run, tmp_path):
    """play(source, *options) -> the run of that program with the made-up libraries, its records and their names."""
    def play(source, *options):
        program = compile_c(tmp_path / 'program', PLAIN + source, '-w', '-Wl,--allow-shlib-undefined', *options)
        directories = ':'.join(map(str, [tmp_path, driver]))
        result = run([program], {'LD_LIBRARY_PATH': directories, 'TFI_ACTIVITIES': 'cpu'})
        assert (result.rc, result.err) == (0, ''), (result.out, result.err)
        found = scripted.traces(result.dir) if result.dir.exists() else []
        result.trace = only(found) if found else None
        result.calls = sorted(calls(result.trace), key=lambda c: c.time) if found else []
        result.names = [c.name for c in result.calls]
        return result
    return play


# ---- the table ----

def test_routes_are_the_headers_types():
    """Each row of the table names a symbol of the type that cudaTypedefs.h has for that name and version."""
    text = subprocess.run(['gcc', '-E', '-P', '-xc', '-', '-DCUDA_ENABLE_DEPRECATED', '-D__CUDA_API_VERSION_INTERNAL', *includes()],
                          input='#include <cudaTypedefs.h>\n', capture_output=True, text=True).stdout
    types = set(re.findall(r'\bPFN_\w+', text))
    lines, missing = [], []
    here = int(re.search(r'^CUDA_VERSION = (\d+)', (BUILD / 'headers.mk').read_text(), re.M).group(1))
    for per_thread, name, version, symbol in ROUTES:
        suffix = (re.search(r'_pt[sd][sz]$', symbol) or [''])[0] if per_thread else ''
        type = f'PFN_{name}_v{version}{suffix}'
        if type in types and re.search(rf'\b{symbol} ?\(', text):
            lines.append(f'_Static_assert(__builtin_types_compatible_p({type}, __typeof__(&{symbol})), "{type} {symbol}");')
        elif int(version) <= here:
            missing.append(type)
    assert len(lines) > 300 and len(missing) < 5, missing
    source = '#define __CUDA_API_VERSION_INTERNAL\n#include <cudaTypedefs.h>\n' + '\n'.join(lines)
    done = subprocess.run(['gcc', '-fsyntax-only', '-xc', '-', *includes()], input=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:3000]


def test_every_version_of_a_recorded_function_is_a_route():
    """The table has the latest variant that cudaTypedefs.h has of each name."""
    header = next(p for p in (ROOT / i.removeprefix('-isystem') / 'cudaTypedefs.h' for i in includes()) if p.exists()).read_text()
    newest = {}
    for name, version in re.findall(r'\*PFN_(cu\w+?)_v(\d+)\)', header):
        newest[name] = max(newest.get(name, 0), int(version))
    table = {}
    for _, name, version, _ in ROUTES:
        table[name] = max(table.get(name, 0), int(version))
    assert {n: v for n, v in table.items() if newest.get(n, v) > v} == {}


# ---- dlsym ----

def test_dlsym_in_the_driver(play):
    """dlsym on the driver's handle, as in cuFFT and Triton, returns the wrapper."""
    result = play(r'''
int main(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void *, void *) = dlsym(handle, "cuLaunchKernel");
    errno = 5;
    printf("%d %d %d\n", launch((void *)1, 2, 3, 4, 5, 6, 7, 8, (void *)9, 0, 0), errno, launch == dlsym(handle, "cuLaunchKernel"));
    int (*version)(void) = dlsym(handle, "cuProfilerStart");
    return version();
}''')
    assert result.out == 'driver: cuLaunchKernel\n0 5 1\ndriver: cuProfilerStart\n'
    assert result.names == ['cuLaunchKernel', 'cuProfilerStart']
    assert result.calls[0].args == [0, 9, 2, 3, 4, 5, 6, 7, 8, 1]


SEMANTICS = r'''
int main(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    printf("%d\n", dlsym(handle, "cuNothing") == NULL);
    const char *error = dlerror();
    printf("%s\n", error ? strrchr(error, '/') : "no error");
    printf("%d %d\n", dlsym(RTLD_DEFAULT, "puts") == (void *)puts, dlsym(RTLD_NEXT, "puts") == (void *)puts);
    printf("%d\n", dlsym(dlopen("./plugin.so", RTLD_NOW | RTLD_LOCAL), "cuNotOurs") != NULL);
    int (*mine)(void) = dlsym(dlopen("./plugin.so", RTLD_NOW | RTLD_LOCAL), "cuMemFree_v2");
    int (*own)(void) = dlsym(dlopen("./plugin.so", RTLD_NOW | RTLD_LOCAL), "find_own");
    printf("%d %d\n", mine(), own());
    return 0;
}'''


@pytest.mark.parametrize('preload', [True, False])
def test_dlsym_is_otherwise_as_it_was(driver, run, tmp_path, preload):
    """dlsym is otherwise unchanged: errors, RTLD_DEFAULT, RTLD_NEXT, and other libraries' functions of CUDA names."""
    compile_c(tmp_path / 'plugin.so', PLAIN + r'''
int cuNotOurs(void) { return 1; }
int cuMemFree_v2(void) { return 42; }
int only_here(void) { return 43; }
int find_own(void) { int (*f)(void) = dlsym(RTLD_DEFAULT, "only_here"); return f ? f() : -1; }''', '-shared', '-fPIC', '-w')
    program = compile_c(tmp_path / 'program', PLAIN + SEMANTICS, '-w')
    result = run([program], {'LD_LIBRARY_PATH': driver, 'TFI_ACTIVITIES': 'cpu'}, preload=preload)
    assert (result.rc, result.err) == (0, '')
    assert result.out == '1\n/libcuda.so.1: undefined symbol: cuNothing\n1 1\n1\n42 43\n'
    assert not result.dir.exists()


def test_dlsym_next_to_another_preload(driver, run, lib, tmp_path):
    """RTLD_NEXT from another preloaded library finds the definition behind it, in either order of preloading."""
    other = compile_c(tmp_path / 'other.so', PLAIN + r'''
int puts(const char *s) { int (*next)(const char *) = dlsym(RTLD_NEXT, "puts"); return next(s) < 0 ? -1 : next("behind"); }''', '-shared', '-fPIC', '-w')
    program = compile_c(tmp_path / 'program', PLAIN + 'int main(void) { return puts("x") < 0; }', '-w', '-fno-builtin')
    for order in (f'{lib}:{other}', f'{other}:{lib}'):
        result = run([program], {'TFI_ACTIVITIES': 'cpu'}, preload=order)
        assert (result.rc, result.out, result.err) == (0, 'x\nbehind\n', '')


# ---- cuGetProcAddress ----

LOOKUPS = r'''
typedef int get1(const char *, void **, int, unsigned long long);
typedef int get2(const char *, void **, int, unsigned long long, void *);
static void call(get2 *get, const char *name, int version, unsigned long long flags)
{
    int (*f)(void *, void *, void *, void *, void *) = 0;
    int rc = get(name, (void **)&f, version, flags, 0);
    if (rc || !f) { printf("%s %d: %d\n", name, version, rc); return; }
    f(0, 0, 0, 0, 0);
}
'''


def test_get_proc_address_and_the_pointer_it_returns_for_itself(play):
    """A copy of the runtime gets cuGetProcAddress by dlsym, looks it up through itself, and then uses the result."""
    result = play(LOOKUPS + r'''
int main(void)
{
    get2 *get = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGetProcAddress_v2"), *own = 0;
    get1 *old = 0;
    if (get("cuGetProcAddress", (void **)&own, 12000, 0, 0) || get("cuGetProcAddress", (void **)&old, 11030, 0, 0)) return 1;
    call(own, "cuMemAlloc", 12000, 0);
    call(own, "cuEventElapsedTime", 2000, 0);
    call(own, "cuEventElapsedTime", 12080, 0);
    call(own, "cuStreamBeginCapture", 10000, 0);
    call(own, "cuStreamBeginCapture", 12000, 0);
    call(own, "cuMemcpyHtoDAsync", 12000, 0);
    call(own, "cuMemcpyHtoDAsync", 12000, 1);
    call(own, "cuMemcpyHtoDAsync", 12000, 2);
    call(own, "cuMemFree", 12000, 2);
    call(own, "cuMemcpyBatchAsync", 12080, 0);
    call(own, "cuMemcpyBatchAsync", 13000, 0);
    call(own, "cuMemAlloc", 1000, 0);
    call(own, "cuMemcpyHtoDAsync", 4000, 2);
    int (*f)(void *, void *) = 0;
    if (old("cuGraphLaunch", (void **)&f, 12000, 0)) return 2;
    return f(0, 0);
}''')
    want = ['cuMemAlloc_v2', 'cuEventElapsedTime', 'cuEventElapsedTime_v2', 'cuStreamBeginCapture', 'cuStreamBeginCapture_v2', 'cuMemcpyHtoDAsync_v2',
            'cuMemcpyHtoDAsync_v2', 'cuMemcpyHtoDAsync_v2_ptsz', 'cuMemFree_v2', 'cuMemcpyBatchAsync', 'cuMemcpyBatchAsync_v2', 'cuMemcpyHtoDAsync_v2', 'cuGraphLaunch']
    assert result.names == want
    assert result.out.split('\n')[:-1] == [*(f'driver: {n}' for n in want[:-2]), 'cuMemAlloc 1000: 500', *(f'driver: {n}' for n in want[-2:])]


def test_every_route(play):
    """A look-up by each row's name and version returns the symbol's function, recorded if it has a hook."""
    table = [(p, n, v, s) for p, n, v, s in ROUTES if not s.startswith('cuGetProcAddress')]
    lines = ''.join(f'    call(get, "{n}", {v}, {2 if p else 0});\n' for p, n, v, s in table)
    result = play(LOOKUPS.replace('f(0, 0, 0, 0, 0)', '((int (*)(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *))f)'
                                  '(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)')
                  + 'int main(void)\n{\n    get2 *get = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGetProcAddress_v2");\n' + lines + '    return 0;\n}')
    assert result.out.split() == [w for _, _, _, s in table for w in ('driver:', s)]
    assert result.names == [s for _, _, _, s in table]


def test_a_version_newer_than_the_table_is_not_wrapped(play):
    """A version that is newer than the table is not wrapped, because its parameters are unknown."""
    result = play(LOOKUPS + r'''
int main(void)
{
    get2 *get = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGetProcAddress_v2");
    call(get, "cuMemAlloc", 99000, 0);
    call(get, "cuMemAlloc", 98000, 0);
    return 0;
}''')
    assert result.out == 'driver: future\ndriver: cuMemAlloc_v2\n'
    assert result.names == ['cuMemAlloc_v2']


@pytest.mark.parametrize('raw', [0, 1])
def test_entry_points_of_the_runtime(play, tmp_path, raw):
    """One wrapper makes one record, whether the runtime asks our wrapper or finds the driver's own function."""
    runtime(tmp_path, 13, raw=raw)
    result = play(r'''
int cudaGetDriverEntryPoint(const char *, void **, unsigned long long, void *);
int cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, unsigned long long, void *);
int main(void)
{
    int (*f)(void *, void *, void *) = 0;
    if (cudaGetDriverEntryPoint("cuEventElapsedTime", (void **)&f, 0, 0)) return 1;
    f(0, 0, 0);
    if (cudaGetDriverEntryPointByVersion("cuEventElapsedTime", (void **)&f, 12000, 0, 0)) return 1;
    f(0, 0, 0);
    return 0;
}''', tmp_path / 'libcudart.so.13')
    assert result.out == 'driver: cuEventElapsedTime_v2\ndriver: cuEventElapsedTime\n'
    assert result.names == ['cuEventElapsedTime_v2', 'cuEventElapsedTime']


# ---- the runtime and the driver below it ----

def test_a_driver_call_inside_a_runtime_call_counts_once(play, tmp_path):
    """A driver call counts only if the program makes it, or an unrecorded runtime call."""
    runtime(tmp_path, 13)
    result = play(r'''
int cudaMalloc(void **, unsigned long), cudaMemGetInfo(void *, void *);
int main(void)
{
    void *p;
    int (*f)(void *, unsigned long) = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemAlloc_v2");
    f(0, 1);
    cudaMalloc(&p, 2);
    cudaMemGetInfo(0, 0);
    return f(0, 3);
}''', tmp_path / 'libcudart.so.13')
    assert result.names == ['cuMemAlloc_v2', 'cudaMalloc', 'cuDevicePrimaryCtxRetain', 'cuMemAlloc_v2']
    assert result.calls[1].args == [77, 2, NO_DEVICE]
    assert result.out.count('driver: cuMemAlloc_v2') == 3


CLIENT = r'''
int cudaMalloc(void **, unsigned long), cudaMemPrefetchAsync(), cudaLaunchKernel(const void *, ...);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, void *);
int cudaMemcpyBatchAsync();
static char here;
__attribute__((constructor)) static void load(void)
{
    __cudaRegisterFunction((void **)&here, &here, 0, "kernel" NAME, -1, 0, 0, 0, 0, 0);
}
int client(void)
{
    void *p;
    unsigned long sizes[3] = {100, 20, 3};
    cudaMalloc(&p, 2);
    cudaMemPrefetchAsync(1UL, 2UL, LOCATION, 4UL, 5UL);
    cudaMemcpyBatchAsync((void *)0, (void *)0, sizes, 3UL, (void *)0, (void *)0, 7UL, 8UL, 9UL);
    return cudaLaunchKernel(&here);
}
'''


def client(directory, name, libcudart, location):
    return compile_c(directory / f'{name}.so', PLAIN + CLIENT, '-shared', '-fPIC', '-w', f'-DNAME="{name}"', f'-DLOCATION={location}',
                     libcudart, f'-Wl,-soname,{name}.so', '-fno-optimize-sibling-calls')


SAID = {'12': ['cudaMalloc', '1 2 ffffffffffffffff 4 5', '3 7 8 9', 'cudaLaunchKernel'], '13': ['cudaMalloc', '1 2 300000001 4 5', '3 7 8', 'cudaLaunchKernel']}
RECORDED = {'12': [[77, 2, NO_DEVICE], [1, 2, 2, 2**64 - 1, 0, 4], [123, 3, 9], 'kernel'], '13': [[77, 2, NO_DEVICE], [1, 2, 1, 3, 4, 5], [123, 3, 8], 'kernel']}
LOCATION = {'12': '-1L', '13': '0x300000001UL'}


def check_clients(result, releases):
    lines = [line for line in result.out.split('\n') if line.startswith('runtime')]
    assert lines == [f'runtime {r}: {s}' for r in releases for s in SAID[r]]
    assert result.names == ['cudaMalloc', 'cudaMemPrefetchAsync', 'cudaMemcpyBatchAsync', 'cudaLaunchKernel'] * len(releases)
    for i, release in enumerate(releases):
        mine = result.calls[4 * i:4 * i + 4]
        assert [c.args for c in mine[:3]] == RECORDED[release][:3]
        assert scripted.text(result.trace, mine[3].args[0]) == f'kernelclient{release}'


@pytest.mark.parametrize('release', ['12', '13'])
def test_functions_that_changed(play, tmp_path, release):
    """A function with other parameters in 12 and 13 passes them on whole and describes them by the client's release."""
    libcudart = runtime(tmp_path, int(release))
    one = client(tmp_path, f'client{release}', libcudart, LOCATION[release])
    check_clients(play('int client(void);\nint main(void) { return client(); }', one), [release])


RUNTIME_11 = r'''
int cudaGraphInstantiate(void **exec, void *graph, void **error, char *log, unsigned long size)
{
    *exec = (void *)77, *error = graph;
    return !strncpy(log, "no error", size);
}
int cudaGraphExecUpdate(void *exec, void *graph, void **error, int *result) { *error = exec, *result = 5; return 0; }
'''
PROGRAM_11 = r'''
int cudaGraphInstantiate(), cudaGraphExecUpdate();
int main(void)
{
    char log[64] = "untouched";
    void *exec = 0, *error = 0;
    int result = -1;
    printf("%d", cudaGraphInstantiate(&exec, (void *)2, &error, log, sizeof log));
    printf(" %p %p %s", exec, error, log);
    printf(" %d", cudaGraphExecUpdate(exec, (void *)3, &error, &result));
    printf(" %p %d", error, result);
    return 0;
}'''


def test_functions_that_changed_in_12(play, tmp_path):
    """A program of CUDA 11 gets all of its results: two functions had more parameters then."""
    library(tmp_path, 'libcudart.so.11.8.89', PLAIN + RUNTIME_11, 'libcudart.so.11.0')
    (tmp_path / 'libcudart.so.11.0').symlink_to('libcudart.so.11.8.89')
    result = play(PROGRAM_11, tmp_path / 'libcudart.so.11.0')
    assert result.out == '0 0x4d 0x2 no error 0 0x4d 5'
    assert [(c.name, c.args) for c in result.calls] == [('cudaGraphInstantiate', [77, 2, 0]), ('cudaGraphExecUpdate', [77, 3])]


def test_a_runtime_under_another_name(play, tmp_path):
    """A wheel's runtime has a hash in its name; the library that needs it gives its release."""
    libcudart = runtime(tmp_path, 12, name='libcudart-9335f6a2.so.12.4.127')
    one = client(tmp_path, 'client12', libcudart, LOCATION['12'])
    check_clients(play('int client(void);\nint main(void) { return client(); }', one), ['12'])


def test_two_runtimes_in_one_process(play, tmp_path):
    """Each library's calls go to the release it was built for, even calls made before the other release was loaded."""
    for release in ('12', '13'):
        client(tmp_path, f'client{release}', runtime(tmp_path, int(release)), LOCATION[release])
    result = play(r'''
static int use(const char *name)
{
    int (*f)(void) = dlsym(dlopen(name, RTLD_NOW | RTLD_LOCAL), "client");
    return f();
}
int main(void) { return use("client13.so") || use("client12.so") || use("client13.so") || use("client12.so"); }''')
    check_clients(result, ['13', '12', '13', '12'])


USE = r"""
static int use(const char *name)
{
    int (*f)(void) = dlsym(dlopen(name, RTLD_NOW | RTLD_LOCAL), "client");
    return f();
}
"""
PLAIN_CLIENT = r"""
int cudaMemPrefetchAsync();
int client(void) { return cudaMemPrefetchAsync(1UL, 2UL, LOCATION, 4UL, 5UL) || cudaMemPrefetchAsync(1UL, 2UL, LOCATION, 4UL, 6UL); }
"""


def plain_client(directory, name, libcudart, release, source=PLAIN_CLIENT):
    """A library without kernels, which registers nothing."""
    return compile_c(directory / f'{name}.so', PLAIN + source, '-shared', '-fPIC', '-w', f'-DLOCATION={LOCATION[release]}', libcudart,
                     f'-Wl,-soname,{name}.so', '-fno-optimize-sibling-calls')


@pytest.mark.parametrize('hashed', [False, True])
def test_a_second_runtime_for_a_library_without_kernels(play, tmp_path, hashed):
    """Only its first call announces a library without kernels; a renamed copy of the runtime works too."""
    plain_client(tmp_path, 'client13', runtime(tmp_path, 13), '13')
    plain_client(tmp_path, 'client12', runtime(tmp_path, 12, name='libcudart-9335f6a2.so.12.4.127' if hashed else None), '12')
    result = play(USE + 'int main(void) { return use("client13.so") || use("client12.so") || use("client13.so"); }')
    said = {'13': 'runtime 13: 1 2 300000001 4 {}', '12': 'runtime 12: 1 2 ffffffffffffffff 4 {}'}
    assert result.out.splitlines() == [said[r].format(last) for r in ('13', '12', '13') for last in (5, 6)]
    assert [c.args[2] for c in result.calls] == [1, 1, 2, 2, 1, 1]


def test_a_library_that_takes_the_place_of_another(play, tmp_path):
    """Addresses of an unloaded client may belong to the client of another runtime afterwards."""
    for release in ('12', '13'):
        plain_client(tmp_path, f'client{release}', runtime(tmp_path, int(release)), release)
    result = play(r"""
static int use(const char *name)
{
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    int (*f)(void) = dlsym(handle, "client");
    static void *before;
    if (before) puts(before == (void *)f ? "same place" : "elsewhere");
    before = (void *)f;
    int result = f();
    dlclose(handle);
    return result;
}
int main(void)
{
    dlopen("libcudart.so.13", RTLD_NOW), dlopen("libcudart.so.12", RTLD_NOW);
    for (int i = 0; i < 3; i++) if (use("client13.so") || use("client12.so")) return 1;
    return 0;
}""")
    runtimes = [line[8:10] for line in result.out.splitlines() if line.startswith('runtime')]
    assert runtimes == (['13'] * 2 + ['12'] * 2) * 3
    assert 'same place' in result.out


def test_pointers_from_before_the_second_runtime_stay(play, tmp_path):
    """A program linked with neither runtime keeps the older one it asked for, even after the newer one is loaded."""
    runtime(tmp_path, 12)
    plain_client(tmp_path, 'client13', runtime(tmp_path, 13), '13')
    result = play(USE + r"""
int main(void)
{
    int (*asked)() = dlsym(dlopen("libcudart.so.12", RTLD_NOW | RTLD_LOCAL), "cudaMemPrefetchAsync");
    asked(1UL, 2UL, -1L, 4UL, 0UL);
    if (use("client13.so")) return 1;
    asked(1UL, 2UL, -1L, 4UL, 0UL);
    return use("client13.so");
}""")
    assert [line[8:10] for line in result.out.splitlines()] == ['12', '13', '13', '12', '13', '13']
    assert [c.args[2] for c in result.calls] == [2, 1, 1, 2, 1, 1]


SLOW = r"""
extern void (*begun)(void);
__attribute__((constructor)) static void load(void) { begun(); }
"""
LAUNCHES = r"""
int cudaLaunchKernel(const void *, ...);
int client(void) { for (int i = 0; i < 50; i++) cudaLaunchKernel(&client); return 0; }
"""


def test_launches_do_not_wait_for_a_dlopen_elsewhere(play, tmp_path):
    """A constructor holds the loader's lock, and clients of two runtimes still launch meanwhile: it waits for them."""
    for release in ('12', '13'):
        plain_client(tmp_path, f'client{release}', runtime(tmp_path, int(release)), release, LAUNCHES)
    compile_c(tmp_path / 'slow.so', PLAIN + SLOW, '-shared', '-fPIC', '-w')
    result = play(USE + r"""
#include <pthread.h>
#include <time.h>
#include <unistd.h>
static int loading, launched, done;
static void hold(void)
{
    __atomic_store_n(&loading, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 60000 && !__atomic_load_n(&launched, __ATOMIC_SEQ_CST); i++) usleep(1000);
}
void (*begun)(void) = hold;
static void *load(void *unused)
{
    dlopen("./slow.so", RTLD_NOW);
    __atomic_store_n(&done, 1, __ATOMIC_SEQ_CST);
    return unused;
}
int main(void)
{
    pthread_t thread;
    int (*old)(void) = dlsym(dlopen("client12.so", RTLD_NOW), "client"), (*new)(void) = dlsym(dlopen("client13.so", RTLD_NOW), "client");
    if (old() || new() || old()) return 1;
    pthread_create(&thread, 0, load, 0);
    while (!__atomic_load_n(&loading, __ATOMIC_SEQ_CST)) usleep(100);
    old(), new();
    int meanwhile = !__atomic_load_n(&done, __ATOMIC_SEQ_CST);
    __atomic_store_n(&launched, 1, __ATOMIC_SEQ_CST);
    pthread_join(thread, 0);
    fprintf(stdout, "%s\n", meanwhile ? "meanwhile" : "afterwards");
    return 0;
}""", '-rdynamic', '-pthread')
    assert len(result.calls) == 250
    assert result.out.splitlines()[-1] == 'meanwhile'


# ---- processes without CUDA ----

def test_without_cuda(play):
    """An RTLD_DEFAULT look-up without CUDA finds nothing; a wrapper called in spite of that returns an error."""
    result = play(r'''
int cudaMalloc(void **, unsigned long) __attribute__((weak));
int main(void)
{
    printf("%d\n", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == NULL);
    printf("%d\n", dlsym(RTLD_DEFAULT, "cudaMalloc") == NULL);
    printf("%s\n", strstr(dlerror(), "undefined symbol"));
    void *p = (void *)5;
    errno = 77;
    int rc = cudaMalloc(&p, 3);
    printf("%d %d %d\n", rc, (int)(long)p, errno);
    return 0;
}''', '-Wl,-z,dynamic-undefined-weak')
    assert result.out == '1\n1\nundefined symbol: cudaMalloc\n500 5 77\n' and result.trace is None


AT_LARGE = r'''
int main(void)
{
    if (MODE) dlopen("libcuda.so.1", RTLD_NOW | MODE);
    int (*f)(void *, unsigned long) = dlsym(ASKED, "cuMemAlloc_v2");
    if (!f) puts(strstr(dlerror(), "undefined symbol"));
    return f ? f(0, 7) : 0;
}'''


@pytest.mark.parametrize('asked', ['RTLD_DEFAULT', 'dlopen(0, RTLD_NOW)'])
def test_asking_at_large_with_cuda(play, asked):
    """An RTLD_DEFAULT look-up after an RTLD_GLOBAL open returns the wrapper, and the wrapper works."""
    result = play(AT_LARGE, '-DMODE=RTLD_GLOBAL', f'-DASKED={asked}')
    assert result.out == 'driver: cuMemAlloc_v2\n' and [c.args for c in result.calls] == [[0, 7, NO_DEVICE]]


@pytest.mark.parametrize('mode', ['RTLD_LOCAL|RTLD_NODELETE', '0'])
@pytest.mark.parametrize('asked', ['RTLD_DEFAULT', 'dlopen(0, RTLD_NOW)'])
def test_asking_at_large_for_a_local_library(play, asked, mode):
    """A library opened RTLD_LOCAL or not at all stays invisible to the program, as without us."""
    result = play(AT_LARGE, f'-DMODE={mode}', f'-DASKED={asked}')
    assert result.out == 'undefined symbol: cuMemAlloc_v2\n' and result.trace is None


def test_a_plugin_asks_at_large(play, driver, tmp_path):
    """A plugin finds a driver that only it depends on, though the program does not see that driver."""
    compile_c(tmp_path / 'plugin.so', PLAIN + r'''
int client(void) { int (*f)(void *, unsigned long) = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"); return f ? f(0, 7) : 9; }''',
              '-shared', '-fPIC', '-w', '-Wl,--no-as-needed', driver / 'libcuda.so.1')
    result = play(r'''
int main(void)
{
    int (*f)(void) = dlsym(dlopen("plugin.so", RTLD_NOW | RTLD_LOCAL), "client");
    return f();
}''')
    assert result.out == 'driver: cuMemAlloc_v2\n' and [c.args for c in result.calls] == [[0, 7, NO_DEVICE]]


def test_registering_kernels_and_counting_devices_is_nothing(play, tmp_path):
    """Loading a library with kernels, which only registers them and counts devices, leaves no trace."""
    runtime(tmp_path, 13)
    result = play(r'''
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, void *);
int cudaGetDeviceCount(int *), cudaRuntimeGetVersion(int *);
static char functions[100000];
int main(void)
{
    int n;
    for (int i = 0; i < 100000; i++) __cudaRegisterFunction(0, functions + i, 0, "kernel", -1, 0, 0, 0, 0, 0);
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
    dlsym(handle, "cuLaunchKernel");
    return cudaGetDeviceCount(&n) != 100 || cudaRuntimeGetVersion(&n) || n != 13000;
}''', tmp_path / 'libcudart.so.13')
    assert result.trace is None and result.out == ''


def test_a_kernels_name_may_change(play, tmp_path):
    """A reused handle stands for the new kernel; an unregistered host function has no name."""
    runtime(tmp_path, 13)
    result = play(r'''
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, void *);
int cudaLaunchKernel(const void *, ...);
static char function, unknown;
int main(void)
{
    __cudaRegisterFunction(0, &function, 0, "first", -1, 0, 0, 0, 0, 0);
    cudaLaunchKernel(&function);
    cudaLaunchKernel(&function);
    __cudaRegisterFunction(0, &function, 0, "second", -1, 0, 0, 0, 0, 0);
    cudaLaunchKernel(&function);
    return cudaLaunchKernel(&unknown);
}''', tmp_path / 'libcudart.so.13')
    assert [scripted.text(result.trace, c.args[0]) for c in result.calls] == ['first', 'first', 'second', None]


def test_importing_torch_leaves_nothing(run, python):
    """Importing torch, which registers 24,000 kernels, asks for versions and counts devices, leaves no run directory."""
    result = run([python, '-c', 'import torch; print(torch.cuda.is_available(), torch.cuda.device_count())'])
    assert (result.rc, result.err) == (0, '') and result.out in ('False 0\n', 'True 1\n')
    assert not result.dir.exists()


# ---- on the simulated GPU ----

def launched(result):
    """(kernel, grid and block) of each successful launch in the trace."""
    trace = only(scripted.traces(result.dir))
    made = [c for c in calls(trace) if c.kind == 'LAUNCH' and c.arguments.startswith('kernel:STRING') and c.result == 0]
    return sorted((scripted.text(trace, c.args[0]) or '', *c.args[2:8]) for c in made)


def test_shared_and_static_runtime_say_the_same(run, tmp_path):
    """nvcc's code gives the same launches on the shared and static runtime and with per-thread streams."""
    found = {}
    for program in ('runtime_shared', 'runtime_static', 'runtime_per_thread'):
        result = run([built(BUILD / 'victims_gpu' / program)], {'LD_LIBRARY_PATH': BUILD / 'simgpu', 'TFI_ACTIVITIES': 'cpu', 'TFI_OUTPUT_DIR': tmp_path / program})
        bare = run([built(BUILD / 'victims_gpu' / program)], {'LD_LIBRARY_PATH': BUILD / 'simgpu'}, preload=False)
        assert (result.rc, result.out) == (0, bare.out)
        found[program] = launched(result)
    assert found['runtime_shared'] == found['runtime_static'] == found['runtime_per_thread']
    assert len(found['runtime_shared']) >= 10 and all(name for name, *_ in found['runtime_shared'])


@pytest.mark.parametrize('program', ['driver', 'lookup'])
def test_programs_of_the_driver_api(run, program):
    """Each launch has the name of its handle, from a module or looked up as Triton does."""
    result = run([built(BUILD / 'victims_gpu' / program)], {'LD_LIBRARY_PATH': BUILD / 'simgpu', 'TFI_ACTIVITIES': 'cpu'})
    bare = run([built(BUILD / 'victims_gpu' / program)], {'LD_LIBRARY_PATH': BUILD / 'simgpu'}, preload=False)
    assert (result.rc, result.out) == (0, bare.out)
    assert len(launched(result)) >= 3 and all(name for name, *_ in launched(result))
