"""test_cuda_tables - every row of cuda.def and cudart.def, called once in a program made from the tables.

The made-up libraries keep their arguments, store given values through pointers and return given results. The program
compares these with its own values. Every parameter has a unique value, so a recorded value names the parameter it comes
from: a number is 11 times the parameter's place, a pointer points to the parameter's own memory, and each word of that
memory holds its own place.
"""

import importlib.machinery
import importlib.util
import re
import subprocess
from types import SimpleNamespace

import pytest

import scripted
from conftest import BUILD, ROOT
from scripted import calls, only

pytestmark = pytest.mark.xdist_group('tables')  # its fixtures take seconds to compile
SIGNED = 1 << 64
WORD = 0x66000000  # WORD | place << 16 | offset: the words of a parameter's memory
STORED = 0x550000  # STORED | place: the value a library stores through a pointer
RESULT, ERRNO = 700, 33
SILENT = {'NAME', 'ROUTE'}  # unrecorded classes
LIBRARIES = {'cuda': 'libcuda.so.1', 'cudart': 'libcudart.so.13'}


def load_gen_tables():
    loader = importlib.machinery.SourceFileLoader('gen_tables', str(ROOT / 'scripts/gen-tables'))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader('gen_tables', loader))
    loader.exec_module(module)
    return module


def split(text):
    """The parameters of a list in parentheses, as (type, name)."""
    inner = re.sub(r'\s+', ' ', text.strip()[1:-1]).strip()
    if inner in ('', 'void'):
        return []
    return [(m.group(1).strip(), m.group(2)) for m in (re.match(r'(.*?)(\w+)$', p.strip()) for p in inner.split(','))]


def table(api):
    out = []
    for kind, a in load_gen_tables().rows(f'preload/cuda/{api}.def'):
        if kind.startswith('HOOK'):
            custom = 'CUSTOM' in kind
            names = a[4 if custom else 5]
            out.append(SimpleNamespace(api=api, kind=a[0], ret=a[1], symbol=a[2], decl=re.sub(r'\s+', ' ', a[3]), params=split(a[3]),
                                       names=names.split(',') if names else [], values='' if custom else a[6], custom=custom))
    return out


ROWS = {api: table(api) for api in LIBRARIES}
RECORDED = [r for api in LIBRARIES for r in ROWS[api] if r.kind not in SILENT]


def includes():
    found = dict(re.findall(r'^(\w+) = (.*)$', (BUILD / 'headers.mk').read_text(), re.M))
    return [f'-isystem{ROOT / found[k]}' for k in ('CUDA_INC', 'CUDART_INC')] + [f'-I{ROOT}/preload']


def compile_c(target, source, *options):
    target.with_suffix('.c').write_text(source)
    done = subprocess.run(['gcc', '-std=gnu11', '-D_GNU_SOURCE', '-g', '-o', target, target.with_suffix('.c'), *includes(), *options],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:3000]
    return target


HEAD = '''#define __CUDA_API_VERSION_INTERNAL
#include "cuda/cuda_compat.h"
#include "cuda/cudart_compat.h"
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
static uint64_t fold(const void *p, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum = sum * 257 + ((const unsigned char *)p)[i];
    return sum;
}
'''


def opaque(type):
    """True for pointers through which a callee stores a handle, an address or a number."""
    return type.endswith('*') and not type.startswith('const') and not re.match(r'(void|char) ?\*$', type)


def fake_function(row):
    ret = 'void' if row.ret == 'void' else 'int'
    lines = [f'{ret} fake_{row.symbol} {row.decl} __asm__("{row.symbol}");', f'{ret} fake_{row.symbol} {row.decl}', '{']
    lines += [f'    got[{i}] = fold(&{n}, sizeof {n});' for i, (_, n) in enumerate(row.params)]
    lines += [f'    if (!to_return) memcpy((void *){n}, &(uint64_t){{{STORED} | {i}}}, 8);' for i, (t, n) in enumerate(row.params)
              if opaque(t) and row.kind not in SILENT]
    lines += [f'    calls_made++; last = "{row.symbol}";', '    if (to_errno) errno = to_errno;', '    return;' if ret == 'void' else '    return to_return;', '}']
    return '\n'.join(lines) + '\n'


def fake_library(directory, api, version=None):
    source = HEAD + f'uint64_t got_{api}[16]; int to_return_{api}, to_errno_{api}, calls_made_{api}; const char *last_{api};\n'
    source += ''.join(f'#define {n} {n}_{api}\n' for n in ('got', 'to_return', 'to_errno', 'calls_made', 'last'))
    source += ''.join(map(fake_function, ROWS[api]))
    soname = LIBRARIES[api]
    script = directory / f'{api}.map'
    script.write_text(f'{soname} {{ global: *; }};\n')
    target = compile_c(directory / soname, source, '-shared', '-fPIC', f'-Wl,-soname,{soname}', f'-Wl,--version-script={script}', '-w')
    (directory / f'lib{api}.so').symlink_to(target.name)
    return target


def argument(type, i):
    """The initial value of a parameter of this type."""
    if type == 'dim3':
        return f'{{{200 + 10 * i}, {201 + 10 * i}, {202 + 10 * i}}}'
    if type == 'struct cudaExtent':
        return f'{{{200 + 10 * i}, {201 + 10 * i}, {202 + 10 * i}}}'
    if type == 'struct cudaPitchedPtr':
        return f'{{(void *)(uintptr_t){200 + 10 * i}, {201 + 10 * i}, 0, 0}}'
    if re.match(r'(struct cuda|CU)[mM]emLocation$', type):
        return f'{{{200 + 10 * i}, {{{201 + 10 * i}}}}}'
    if re.search(r'[iI]pc\w+Handle(_t)?$', type):
        return '{{0}}'
    if type in ('const char *', 'char *'):
        return f'names[{i}]'
    if type.endswith('*') or is_handle(type):
        return f'(void *)memory[{i}]'
    return f'({type}){11 * (i + 1)}'


def is_handle(type):
    return bool(re.match(r'(CU(stream|event|context|graph|graphExec|graphNode|module|library|kernel|function|array|mipmappedArray|memoryPool|greenCtx'
                         r'|linkState|externalMemory|externalSemaphore|devResourceDesc|graphicsResource|hostFn|streamCallback)'
                         r'|cuda(Stream|Event|Graph|GraphExec|GraphNode|Array|Array_const|MipmappedArray|MemPool|Kernel|Library|Function'
                         r'|ExecutionContext|DevResourceDesc|ExternalMemory|ExternalSemaphore|HostFn|StreamCallback|GraphicsResource)_t)$', type, re.I))


def program(rows):
    out = [HEAD, 'static uint32_t memory[16][1024]; static char names[16][16]; static int bad;\n']
    for api in LIBRARIES:
        out.append(f'extern uint64_t got_{api}[16]; extern int to_return_{api}, to_errno_{api}, calls_made_{api}; extern const char *last_{api};\n')
    out.append('''static void wrong(const char *symbol, const char *what) { printf("%s: %s\\n", symbol, what); bad = 1; }
static void fill(void)
{
    for (int i = 0; i < 16; i++)
        for (int w = 0; w < 1024; w++) memory[i][w] = 0x66000000 | i << 16 | w * 4;
    for (int i = 0; i < 16; i++) sprintf(names[i], "name%d", i);
}
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, uint3 *, uint3 *, dim3 *, dim3 *, int *);
''')
    for r in rows:
        out.append(f'int call_{r.symbol} {r.decl} __asm__("{r.symbol}");\nstatic void try_{r.symbol}(int result, int error)\n{{\n    fill();\n')
        out += [f'    {t} a{i} = {argument(t, i)};\n' for i, (t, _) in enumerate(r.params)]
        out.append(f'    int before = calls_made_{r.api};\n    to_return_{r.api} = result; to_errno_{r.api} = error; errno = 77;\n'
                   f'    int got = call_{r.symbol}({", ".join(f"a{i}" for i in range(len(r.params)))});\n    int after = errno;\n'
                   f'    if (got != result) wrong("{r.symbol}", "result");\n    if (after != (error ? error : 77)) wrong("{r.symbol}", "errno");\n'
                   f'    if (calls_made_{r.api} != before + 1 || strcmp(last_{r.api}, "{r.symbol}")) wrong("{r.symbol}", "not called");\n')
        out += [f'    if (fold(&a{i}, sizeof a{i}) != got_{r.api}[{i}]) wrong("{r.symbol}", "argument {i}");\n' for i in range(len(r.params))]
        out.append('}\n')
    out.append('int main(void)\n{\n    static char kernels[16][16];\n    printf("memory %p\\n", (void *)memory);\n    fill();\n'
               '    for (int i = 0; i < 16; i++) {\n        sprintf(kernels[i], "kernel%d", i);\n'
               '        __cudaRegisterFunction(NULL, (const char *)memory[i], NULL, kernels[i], -1, NULL, NULL, NULL, NULL, NULL);\n    }\n')
    out += [f'    try_{r.symbol}(0, 0);\n' for r in rows]
    out += [f'    try_{r.symbol}({RESULT}, {ERRNO});\n' for r in rows]
    out.append('    return bad;\n}\n')
    return ''.join(out)


@pytest.fixture(scope='module')
def built(tmp_path_factory):
    directory = tmp_path_factory.mktemp('tables')
    for api in LIBRARIES:
        fake_library(directory, api)
    return compile_c(directory / 'rows', program(RECORDED), '-w', f'-L{directory}', '-lcuda', '-lcudart', f'-Wl,-rpath,{directory}')


@pytest.fixture(scope='module')
def played(built, tmp_path_factory, lib):
    """The run of all rows: its trace, and the address of the parameters' memory."""
    from conftest import clean_environment, execute
    directory = tmp_path_factory.mktemp('played')
    env = dict(clean_environment(), LD_PRELOAD=str(lib), TFI_OUTPUT_DIR=str(directory / 'run'), TFI_ACTIVITIES='cpu')
    result = execute([built], env, directory)
    assert (result.rc, result.err) == (0, ''), result.out[:3000]
    lines = result.out.split('\n')
    assert len(lines) == 2
    return only(scripted.traces(directory / 'run')), int(lines[0].split()[1], 16)


@pytest.fixture(scope='module')
def found(played):
    """{symbol: [its successful call, its failed call]} in the order of the calls."""
    trace, _ = played
    made = sorted(calls(trace), key=lambda c: c.time)
    assert [c.name for c in made] == [r.symbol for r in RECORDED] * 2
    return {r.symbol: (made[i], made[i + len(RECORDED)]) for i, r in enumerate(RECORDED)}


# ---- the tables' content ----

def test_no_row_is_a_macro():
    """No row's symbol is a macro in its header: a macro would turn it into another function's row."""
    out = subprocess.run(['gcc', '-E', '-dM', '-xc', '-', *includes(), '-D__CUDA_API_VERSION_INTERNAL'],
                         input='#include "cuda/cuda_compat.h"\n#include "cuda/cudart_compat.h"\n', capture_output=True, text=True, check=True).stdout
    macros = set(re.findall(r'^#define (\w+)', out, re.M))
    assert 'CUDA_VERSION' in macros
    assert not {r.symbol for api in ROWS for r in ROWS[api]} & macros


def test_the_tables_name_functions_of_the_libraries():
    """Every wrapped runtime function is exported by the vendor's runtime of this release, or was by an earlier one."""
    library = next((p for p in (BUILD / 'venv').glob('lib/python*/site-packages/nvidia/cu13/lib/libcudart.so.13')), None)
    assert library, "torch's own runtime is missing"
    out = subprocess.run(['nm', '-D', '--defined-only', library], capture_output=True, text=True, check=True).stdout
    there = {line.split()[-1].split('@')[0] for line in out.splitlines()}
    gone = {'cudaLaunchCooperativeKernelMultiDevice', 'cudaThreadExit', 'cudaThreadSynchronize', 'cudaEventElapsedTime_v2', 'cudaGraphAddNode_v2',
            'cudaGraphAddDependencies_v2', 'cudaGraphRemoveDependencies_v2', 'cudaMemAdvise_v2', 'cudaMemPrefetchAsync_v2', 'cudaMemPrefetchAsync_v2_ptsz',
            'cudaSignalExternalSemaphoresAsync_v2', 'cudaSignalExternalSemaphoresAsync_v2_ptsz', 'cudaWaitExternalSemaphoresAsync_v2',
            'cudaWaitExternalSemaphoresAsync_v2_ptsz', 'cudaStreamUpdateCaptureDependencies_v2', 'cudaStreamUpdateCaptureDependencies_v2_ptsz'}
    later = {'cudaStreamBeginRecaptureToGraph', 'cudaStreamBeginRecaptureToGraph_ptsz'}  # 13.3
    assert {r.symbol for r in ROWS['cudart']} - there - later == gone


# Words in the names of functions that start work or that make and end objects; LEFT_OUT are the exceptions.
VERBS = re.compile(r'Launch|Memcpy|Memset|Malloc|MemAlloc|Free|Synchronize|StreamWait|EventRecord|BeginCapture|EndCapture|'
                   r'(Stream|Event|Graph|Ctx|Context)(Create|Destroy)|GraphExecDestroy|GraphInstantiate|ModuleLoad|ModuleUnload|Library(Load|Unload)')
LEFT_OUT = re.compile(r'Get|NodeSet|Attribute')


def test_nothing_is_forgotten():
    """Every function of the headers that launches, copies, sets, allocates, frees, waits or makes objects has a row."""
    declared = set()
    for header in ('cuda.h', 'cuda_runtime_api.h'):
        out = subprocess.run(['gcc', '-E', '-P', '-xc', '-', '-D__CUDA_API_VERSION_INTERNAL', *includes()], input=f'#include <{header}>\n',
                             capture_output=True, text=True, check=True).stdout
        for m in re.finditer(r'\b(cu\w+) ?\(([^;{}()]*)\)(?: __attribute__[^;]*)?;', out):
            if not re.search(r'CUdeviceptr_v1|CUDA_\w+_v1(?!\w)|CUipcMemHandle_v1', m.group(2)) or 'NODE_PARAMS_v1' in m.group(2):
                declared.add(m.group(1))
    wanted = {d for d in declared if VERBS.search(d) and not LEFT_OUT.search(d)}
    assert len(wanted) > 200
    missing = wanted - {r.symbol for api in ROWS for r in ROWS[api]}
    assert missing == {'cuMemAllocHost'}  # has 32-bit sizes, from before CUDA 3.2


# ---- the content of a record ----

def test_one_record_each(found):
    """Each row has one record per call; the program itself checks that results, errno and arguments pass through."""
    for r in RECORDED:
        good, failed = found[r.symbol]
        assert (good.library, good.kind, good.arguments) == (r.api, r.kind, ','.join(r.names)), r.symbol
        assert (good.result, good.error, failed.result, failed.error) == (0, 77, RESULT, ERRNO), r.symbol
        assert len(good.args) == len(failed.args) == len(r.names), r.symbol


def origin(value, name, row, memory, trace):
    """(place of the parameter, part of it) that a recorded value comes from; None for the name of an unknown kernel."""
    if name.endswith(':STRING'):
        text = scripted.text(trace, value)
        if text is None:
            return None
        m = re.fullmatch(r'(?:name|kernel)(\d+)', text)
        return int(m.group(1)), 0
    if row.kind == 'ALLOC' and (name, value) == ('device:INT', SIGNED - 2) or 'rray' in row.symbol and (name, value) == ('bytes:BYTES', 0):
        return None  # computed: the library asks the driver for the device, and the structure of the array describes none
    if name == 'captured:INT':
        assert value == 0
        return None  # computed: the library asks the driver about the stream
    if memory <= value < memory + 16 * 4096:
        return (value - memory) // 4096, 0
    low = value & 0xffffffff
    if low >> 24 == WORD >> 24:
        return low >> 16 & 0xff, (low & 0xffff) + 1
    if value >> 16 == STORED >> 16:
        return value & 0xff, 0
    if 200 <= value < 400:
        return (value - 200) // 10, value % 10
    if name.startswith('bytes:') and 'sizes' in [n for _, n in row.params]:
        return [n for _, n in row.params].index('sizes'), 0
    assert value % 11 == 0 and value, (row.symbol, name, value)
    return value // 11 - 1, 0


@pytest.mark.parametrize('api', LIBRARIES)
def test_arguments_come_from_their_parameters(found, played, api):
    """Recorded values are in the order of the parameters; kernel calls have the name first, then the stream."""
    trace, memory = played
    for r in (r for r in RECORDED if r.api == api):
        got = [origin(v, n, r, memory, trace) for v, n in zip(found[r.symbol][0].args, r.names)]
        places = [n for _, n in r.params]
        for name, where in zip(r.names, got):
            name = name.split(':')[0]
            if where and where[1] == 0 and name in places and name not in ('kernel', 'resources', 'dependencies'):
                assert places.index(name) == where[0], (r.symbol, name)
        if 'kernel:STRING' in r.names and r.kind == 'LAUNCH':
            assert got[0][0] == got[-1][0] and r.names[-1] == 'function:ADDRESS', r.symbol
            first = 1 + ('stream' in places or 'hStream' in places or 'config' in places)
            assert first == 1 or r.names[1] == 'stream:ADDRESS', r.symbol
            got = got[first:-1]
        if '3DPeer' in r.symbol:  # the structures have the devices before the extent
            got = got[3:5] + got[:3] + got[5:]
        got = [g for g in got if g]
        assert got == sorted(got), (r.symbol, r.names, got)


W = lambda place, offset: WORD | place << 16 | offset  # noqa: E731
GRID = ['grid_x:UINT', 'grid_y:UINT', 'grid_z:UINT', 'block_x:UINT', 'block_y:UINT', 'block_z:UINT']
M = 'memory'  # (M, place): the address of a parameter's memory


# Names and values that readers of traces rely on, written by hand.
EXACT = {
    'cudaMalloc': (['address:ADDRESS', 'bytes:BYTES', 'device:INT'], [STORED, 22, SIGNED - 2]),
    'cudaMallocAsync': (['address:ADDRESS', 'bytes:BYTES', 'stream:ADDRESS', 'device:INT', 'captured:INT'], [STORED, 22, (M, 2), SIGNED - 2, 0]),
    'cudaFree': (['address:ADDRESS'], [(M, 0)]),
    'cudaMemcpyAsync': (['dst:ADDRESS', 'src:ADDRESS', 'bytes:BYTES', 'kind:UINT', 'stream:ADDRESS'], [(M, 0), (M, 1), 33, 44, (M, 4)]),
    'cudaMemcpy2D': (['dst:ADDRESS', 'dst_pitch:BYTES', 'src:ADDRESS', 'src_pitch:BYTES', 'width:BYTES', 'height:UINT', 'kind:UINT'],
                     [(M, 0), 22, (M, 2), 44, 55, 66, 77]),
    'cudaMemsetAsync': (['address:ADDRESS', 'value:INT', 'bytes:BYTES', 'stream:ADDRESS'], [(M, 0), 22, 33, (M, 3)]),
    'cudaMemPrefetchAsync': (['address:ADDRESS', 'bytes:BYTES', 'location:UINT', 'device:INT', 'flags:HEX', 'stream:ADDRESS'],
                             [(M, 0), 22, 220, 221, 44, (M, 4)]),
    'cudaLaunchKernel': (['kernel:STRING', 'stream:ADDRESS', *GRID, 'shared:BYTES', 'function:ADDRESS'],
                         ['kernel0', (M, 5), 210, 211, 212, 220, 221, 222, 55, (M, 0)]),
    '__cudaLaunchKernel': (['kernel:STRING', 'stream:ADDRESS', *GRID, 'shared:BYTES', 'function:ADDRESS'],
                           ['kernel0', (M, 5), 210, 211, 212, 220, 221, 222, 55, (M, 0)]),
    'cudaLaunchKernelExC': (['kernel:STRING', 'stream:ADDRESS', *GRID, 'shared:BYTES', 'function:ADDRESS'],
                            ['kernel1', W(0, 36) << 32 | W(0, 32), W(0, 0), W(0, 4), W(0, 8), W(0, 12), W(0, 16), W(0, 20),
                             W(0, 28) << 32 | W(0, 24), (M, 1)]),
    'cuLaunchKernel': (['kernel:STRING', 'stream:ADDRESS', *GRID, 'shared:BYTES', 'function:ADDRESS'],
                       ['kernel0', (M, 8), 22, 33, 44, 55, 66, 77, 88, (M, 0)]),
    'cuLaunchKernelEx': (['kernel:STRING', 'stream:ADDRESS', *GRID, 'shared:BYTES', 'function:ADDRESS'],
                         ['kernel1', W(0, 36) << 32 | W(0, 32), W(0, 0), W(0, 4), W(0, 8), W(0, 12), W(0, 16), W(0, 20), W(0, 24), (M, 1)]),
    'cudaGraphLaunch': (['graph_exec:ADDRESS', 'stream:ADDRESS'], [(M, 0), (M, 1)]),
    'cuGraphLaunch': (['graph_exec:ADDRESS', 'stream:ADDRESS'], [(M, 0), (M, 1)]),
    'cuMemAlloc_v2': (['address:ADDRESS', 'bytes:BYTES', 'device:INT'], [STORED, 22, SIGNED - 2]),
    'cuMemFree_v2': (['address:ADDRESS'], [11]),
    'cuMemcpyHtoDAsync_v2': (['dst:ADDRESS', 'src:ADDRESS', 'bytes:BYTES', 'stream:ADDRESS'], [11, (M, 1), 33, (M, 3)]),
    'cuMemcpyDtoDAsync_v2': (['dst:ADDRESS', 'src:ADDRESS', 'bytes:BYTES', 'stream:ADDRESS'], [11, 22, 33, (M, 3)]),
    'cuMemsetD32Async': (['dst:ADDRESS', 'value:HEX', 'count:UINT', 'stream:ADDRESS'], [11, 22, 33, (M, 3)]),
    'cudaStreamSynchronize': (['stream:ADDRESS'], [(M, 0)]),
    'cuStreamWaitEvent': (['stream:ADDRESS', 'event:ADDRESS', 'flags:HEX'], [(M, 0), (M, 1), 33]),
    'cudaEventRecord': (['event:ADDRESS', 'stream:ADDRESS'], [(M, 0), (M, 1)]),
    'cudaStreamEndCapture': (['stream:ADDRESS', 'graph:ADDRESS'], [(M, 0), STORED | 1]),
    'cuModuleGetFunction': (['function:ADDRESS', 'module:ADDRESS', 'name:STRING'], [STORED, (M, 1), 'name2']),
    'cudaDeviceSynchronize': ([], []),
}


@pytest.mark.parametrize('symbol', EXACT)
def test_records_of_the_important_functions(found, played, symbol):
    trace, memory = played
    names, values = EXACT[symbol]
    good = found[symbol][0]
    assert good.arguments == ','.join(names)
    want = [memory + 4096 * v[1] if isinstance(v, tuple) else v for v in values]
    got = [scripted.text(trace, v) if n.endswith(':STRING') else v for n, v in zip(names, good.args)]
    assert got == want


def test_stored_values_count_only_on_success(found):
    failed = found['cudaMalloc'][1]
    assert failed.args == [0, 22, SIGNED - 2]


def test_nothing_without_the_library(built, run):
    """The program passes without the library."""
    result = run([built], preload=False)
    assert (result.rc, result.err) == (0, '')


def test_stage_timing_only_forwards(built, run):
    result = run([built], {'ENABLE_PROFILER_NAMES': ''})
    assert (result.rc, result.err) == (0, '') and not result.dir.exists()


# ---- the same rows on the simulated GPU ----

REFUSED = 801  # "not supported" leaves the context usable


def program_of_refusals(rows):
    """A program that calls every row once and prints the result, errno and the runtime's last error."""
    out = [HEAD, 'static uint32_t memory[16][1024]; static char names[16][16];\n'
           'static void fill(void)\n{\n    for (int i = 0; i < 16; i++)\n        for (int w = 0; w < 1024; w++) memory[i][w] = '
           '0x66000000 | i << 16 | w * 4;\n    for (int i = 0; i < 16; i++) sprintf(names[i], "name%d", i);\n}\n']
    for r in rows:
        out.append(f'int call_{r.symbol} {r.decl} __asm__("{r.symbol}");\nstatic void try_{r.symbol}(void)\n{{\n    fill();\n')
        out += [f'    {t} a{i} = {argument(t, i)};\n' for i, (t, _) in enumerate(r.params)]
        out.append(f'    errno = 77;\n    int got = call_{r.symbol}({", ".join(f"a{i}" for i in range(len(r.params)))});\n    int after = errno;\n'
                   f'    printf("{r.symbol} %d %d %d ", got, after, cudaPeekAtLastError());\n    printf("%d\\n", cudaGetLastError());\n}}\n')
    out.append('int main(void)\n{\n    cuInit(0);\n    fprintf(stderr, "%p\\n", (void *)memory);\n')
    out += [f'    try_{r.symbol}();\n' for r in rows]
    return ''.join(out + ['    return 0;\n}\n'])


def rows_of_12():
    """The rows that CUDA 12.8 has, with 12's parameters if they differ from 13's."""
    header, = (ROOT / 'build/nvidia/elsewhere').glob('nvidia-cuda-runtime-cu12==*/nvidia/cuda_runtime/include')
    declared = subprocess.run(['gcc', '-E', '-P', '-xc', '-', '-D__CUDA_API_VERSION_INTERNAL', f'-isystem{header}', *includes()],
                              input='#include <cuda_runtime_api.h>\n', capture_output=True, text=True, check=True).stdout
    there = {symbol for library in ('libcuda.so.1', 'libcudart.so.12') for symbol in exported(BUILD / 'simgpu12' / library)}
    changed = re.findall(r'^CHANGED(?:_LONG)?\((\w+),', (ROOT / 'preload/cuda/cudart_versions.c').read_text(), re.M)
    rows = []
    for row in (r for r in RECORDED if r.symbol in there):
        if row.symbol in changed:
            decl, = re.findall(rf'\b{row.symbol} ?(\([^;]*?\))(?: __attribute__[^;]*)?;', declared)
            row = SimpleNamespace(**{**vars(row), 'decl': decl, 'params': split(decl)})
        rows.append(row)
    return rows


def exported(library):
    out = subprocess.run(['nm', '-D', '--defined-only', library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split('@')[0] for line in out.splitlines()}


# On 12, the arguments of rows whose parameters changed. 'sum' is the sum of a batch's sizes, the same as on 13.
EXACT_12 = {
    'cudaMemcpyBatchAsync': ['sum', 44, (M, 8)], 'cudaMemcpy3DBatchAsync': [11, 44, (M, 4)],
    'cudaMemPrefetchAsync': [(M, 0), 22, 1, 33, 0, (M, 3)], 'cudaMemAdvise': [(M, 0), 22, 33, 1, 44],
    'cudaSignalExternalSemaphoresAsync': [33, (M, 3)], 'cudaWaitExternalSemaphoresAsync': [33, (M, 3)],
    'cudaStreamUpdateCaptureDependencies': [(M, 0), 33, 44], 'cudaGraphAddDependencies': [(M, 0), 44], 'cudaGraphAddNode': [0, (M, 1), 44],
    'cudaGraphRemoveDependencies': [(M, 0), 44], 'cudaGraphInstantiate': [0, (M, 1), 33],
}


@pytest.fixture(scope='module', params=[13, 12])
def refused(tmp_path_factory, lib, request):
    """Runs on the simulated GPU, which refuses every row: without and with the library, trace, address, rows."""
    from simgpu import truth
    directory = tmp_path_factory.mktemp('refused')
    rows, folder = (rows_of_12(), BUILD / 'simgpu12') if request.param == 12 else (RECORDED, BUILD / 'simgpu')
    simulated = [folder / LIBRARIES['cuda'], next(folder.glob('libcudart.so.*'))]
    built = compile_c(directory / 'refusals', program_of_refusals(rows), '-w', *simulated)
    fail = ','.join(f'{r.symbol}={REFUSED}' for r in rows)
    assert len(rows) > 450
    (directory / 'bare').mkdir()
    env = {'SIMGPU_FAIL': fail, 'LD_LIBRARY_PATH': folder}
    bare = truth.run(directory / 'bare', [built], **env)
    ours = truth.run(directory, [built], LD_PRELOAD=lib, TFI_OUTPUT_DIR=directory / 'run', TFI_ACTIVITIES='cpu', **env)
    assert (bare.rc, ours.rc) == (0, 0), ours.err
    return bare, ours, only(scripted.traces(directory / 'run')), int(ours.err.splitlines()[-1], 16), rows


def test_refusals_are_passed_through(refused):
    """Result, errno and the runtime's last error are the same with and without the library, and as the device answered."""
    bare, ours, _, _, rows = refused
    assert ours.out == bare.out
    lines = [line.split() for line in ours.out.splitlines()]
    assert [line[:2] for line in lines] == [[r.symbol, str(REFUSED)] for r in rows]
    assert {r.api: {tuple(line[3:]) for line, q in zip(lines, rows) if q.api == r.api} for r in rows} == {
        'cuda': {('0', '0')}, 'cudart': {(str(REFUSED), str(REFUSED))}}


def test_one_record_for_each_call_of_the_devices_own_log(refused):
    """Records and the device's log have the same calls, order and results; each logged call lies inside its record."""
    _, ours, trace, _, rows = refused
    symbols = {r.symbol for r in rows}
    log = [c for c in ours.logs[0].calls if c['depth'] == 0 and c['symbol'] in symbols]
    made = sorted(calls(trace), key=lambda c: c.time)
    assert [c['symbol'] for c in log] == [c.name for c in made] == [r.symbol for r in rows]
    assert {c['result'] for c in log} == {c.result for c in made} == {REFUSED}
    clock = [r.values for r in trace.records if r.kind == 'clock' and r.values['clock'] == 2]
    a, b = min(clock, key=lambda c: c['ticks']), max(clock, key=lambda c: c['ticks'])
    rate, slack = (b['value'] - a['value']) / (b['ticks'] - a['ticks']), 20000
    for ours_, theirs in zip(made, log):
        start = a['value'] + (ours_.time - a['ticks']) * rate
        assert start - slack <= theirs['start'] and theirs['end'] <= start + ours_.duration * rate + slack, ours_.name


def test_arguments_of_refused_calls(refused, found, played):
    """Refused calls record the same arguments as on the made-up libraries."""
    _, _, trace, memory, rows = refused
    before, base = played

    def plain(value, name, t, start):
        if name.endswith(':STRING'):
            return scripted.text(t, value)
        return ('memory', value - start) if start <= value < start + 16 * 4096 else value
    old = {r.symbol for r in rows} - {r.symbol for r in RECORDED if r in rows}
    assert {s.removesuffix('_ptsz') for s in old} in (set(), set(EXACT_12))
    for r, call in zip(rows, sorted(calls(trace), key=lambda c: c.time)):
        assert call.arguments == ','.join(r.names) and len(call.args) == len(r.names)
        expected = found[r.symbol][1].args
        if r.symbol in old:
            values = EXACT_12[r.symbol.removesuffix('_ptsz')]
            expected = [expected[0] if v == 'sum' else base + 4096 * v[1] if isinstance(v, tuple) else v for v in values]
        for name, got, wanted in zip(r.names, call.args, expected):
            if name != 'kernel:STRING':  # this program registers no kernel
                assert plain(got, name, trace, memory) == plain(wanted, name, before, base), (r.symbol, name)
