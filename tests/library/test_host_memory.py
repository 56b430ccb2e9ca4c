"""test_host_memory - malloc, mmap and their relatives with TFI_HOST_ALLOC_KB, against libc's and the kernel's own counts."""

import subprocess

import pytest

from conftest import BUILD, built, clean_environment
from scripted import traces

LARGE = 64 << 10


@pytest.fixture
def victim():
    return built(BUILD / 'victims' / 'host_memory')


def chunk(bytes):
    """Returns what glibc maps for a block beyond its threshold: 8 bytes and up to 16, the header, whole pages."""
    return -(-((bytes + 8 + 15) // 16 * 16 + 8) // 4096) * 4096


def said(out):
    lines = [line.split() for line in out.splitlines()]
    totals = {a: int(b) for a, b in (line for line in lines if len(line) == 2)}
    blocks = {(kind, int(at), int(size)) for kind, at, size in (line for line in lines if len(line) == 3)}
    return totals, blocks


@pytest.mark.parametrize('seed, threads', [(1, 1), (2, 4)])
def test_blocks_in_use(run, analyze, victim, seed, threads):
    """Blocks never freed are those that libc and the kernel say are in use; each block has its address and size."""
    result = run([victim, seed, 4000, threads], {'TFI_HOST_ALLOC_KB': 64, 'TFI_ACTIVITIES': 'mem'})
    assert result.rc == 0 and not result.err
    totals, blocks = said(result.out)
    rows = analyze('memory', '--layout', 'raw', result.dir)['rows']
    live = {}
    for r in rows:
        key = r['allocator'], int(r['address'], 0)
        if r['bytes'] > 0:
            assert key not in live or threads > 1
            live[key] = r['bytes']
        else:
            assert live.pop(key) == -r['bytes']
    assert {(at, size) for kind, at, size in blocks if kind != 'map' and size >= LARGE} == \
        {(at, size) for (allocator, at), size in live.items() if allocator == 'malloc'}
    mapped = {at for kind, at, _ in blocks if kind == 'mapped'}
    assert sum(chunk(size) for (allocator, at), size in live.items() if allocator == 'malloc' and at in mapped) == totals['heap'] > 0
    small = sum(size for kind, _, size in blocks if kind == 'map' and size < LARGE)
    assert sum(size for (allocator, _), size in live.items() if allocator == 'mmap') + small == totals['maps'] > 0
    assert {r['device'] for r in rows} == {-1} and {r['stage'] for r in rows} == {'work'} and len(rows) > 2000


@pytest.mark.parametrize('seed', [3])
def test_totals_peaks_and_leaks(run, analyze, victim, seed):
    """The library's running totals are the sums of the changes; peaks and leaks follow from them."""
    result = run([victim, seed, 3000, 1], {'TFI_HOST_ALLOC_KB': 64, 'TFI_ACTIVITIES': 'mem'})
    rows = analyze('memory', '--layout', 'raw', result.dir)['rows']
    for allocator in ('malloc', 'mmap'):
        total, peak = 0, 0
        for r in (r for r in rows if r['allocator'] == allocator):
            total += r['bytes']
            peak = max(peak, total)
            assert r['allocated_bytes'] == total and r['reserved_bytes'] is None
        peaks = {r['stage']: r for r in analyze('memory', '--layout', 'peaks', result.dir)['rows'] if r['allocator'] == allocator}
        leaks = [r for r in analyze('memory', '--layout', 'leaks', result.dir)['rows'] if r['allocator'] == allocator]
        assert peaks['(run)']['peak_allocated_bytes'] == peaks['work']['peak_allocated_bytes'] == peak
        assert sum(r['leaked_bytes'] for r in leaks) == total


@pytest.mark.parametrize('env', [{}, {'TFI_HOST_ALLOC_KB': 0}, {'TFI_HOST_ALLOC_KB': 64, 'TFI_ACTIVITIES': 'cpu,ops'}])
def test_not_asked_for(run, victim, env):
    result = run([victim, 1, 500, 2], env)
    assert result.rc == 0 and 'memory' not in {r.kind for t in traces(result.dir) for r in t.records}


LATER = '''
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    void *(*give)(size_t) = (void *(*)(size_t))dlsym(dlopen(argv[1], RTLD_NOW), "give");
    void (*take)(void *) = (void (*)(void *))dlsym(dlopen(argv[1], RTLD_NOW), "take");
    void *a = give(100000);
    void *volatile kept = give(200000);
    if (fork() == 0) {
        take(a); /* of the parent: its size is known in the child too */
        give(300000);
        return 0;
    }
    wait(NULL);
    if (vfork() == 0) _exit(0);
    wait(NULL);
    take(a);
    return kept == NULL || argc == 0;
}
'''


def test_libraries_loaded_later_and_children(run, analyze, tmp_path):
    (tmp_path / 'lib.c').write_text('#include <stdlib.h>\nvoid *give(size_t n) { return malloc(n); }\nvoid take(void *p) { free(p); }\n')
    (tmp_path / 'main.c').write_text(LATER)
    for source, *options in (('lib.c', '-shared', '-fPIC', '-o', 'lib.so'), ('main.c', '-o', 'main', '-ldl')):
        subprocess.run(['gcc', '-O0', source, *options], cwd=tmp_path, check=True, env=clean_environment())
    result = run([tmp_path / 'main', tmp_path / 'lib.so'], {'TFI_HOST_ALLOC_KB': 64})
    assert result.rc == 0 and not result.err
    by_process = {}
    for r in analyze('memory', '--layout', 'raw', result.dir)['rows']:
        by_process.setdefault(r['pid'], []).append((r['bytes'], r['allocated_bytes']))
    assert sorted(by_process.values()) == [[(-100000, 200000), (300000, 500000)], [(100000, 100000), (200000, 300000), (-100000, 200000)]]


MOVED = '''
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
enum { SIZE = 1 << 20 };
static _Atomic(char *) place, taken;
static atomic_int moved;
static void *other(void *unused)
{
    for (;;) {
        char *at = atomic_load(&place), *got;
        int is_last;
        if (at == MAP_FAILED) return unused;
        if (!at) continue;
        do { /* once it is free, somebody else may have taken it */
            is_last = atomic_load(&moved);
            got = mmap(at, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        } while (got == MAP_FAILED && !is_last);
        atomic_store(&place, NULL);
        atomic_store(&moved, 0);
        atomic_store(&taken, got);
    }
}
int main(int argc, char **argv)
{
    pthread_t thread;
    char *far = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *got;
    pthread_create(&thread, NULL, other, NULL);
    for (int took = 0, i = 0; took < atoi(argv[1]) && i < 100000; i++) {
        char *near = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        atomic_store(&place, near);
        if (mremap(near, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, far) != far) return 3;
        atomic_store(&moved, 1);
        while (!(got = atomic_exchange(&taken, NULL))) continue;
        if (got == MAP_FAILED) continue;
        if (mremap(got, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)4095) != MAP_FAILED) return 4; /* odd address */
        if (++took % 2) munmap(got, SIZE);
        else printf("%lu %d\\n", (unsigned long)got, SIZE);
    }
    atomic_store(&place, (char *)MAP_FAILED);
    pthread_join(thread, NULL);
    printf("%lu %d\\n", (unsigned long)far, SIZE);
    return argc == 0;
}
'''


def test_a_place_taken_at_once(run, analyze, tmp_path):
    """Another thread maps where mremap has just moved a mapping away: that one stays known. A failed mremap changes nothing."""
    (tmp_path / 'moved.c').write_text(MOVED)
    subprocess.run(['gcc', '-O1', '-o', 'moved', 'moved.c', '-pthread'], cwd=tmp_path, check=True, env=clean_environment())
    result = run([tmp_path / 'moved', 100], {'TFI_HOST_ALLOC_KB': 1024, 'TFI_ACTIVITIES': 'mem'})
    assert result.rc == 0 and not result.err
    live = {}
    for r in analyze('memory', '--layout', 'raw', result.dir)['rows']:
        if r['allocator'] == 'mmap' and r['bytes'] > 0:
            live[int(r['address'], 0)] = r['bytes']
        elif r['allocator'] == 'mmap':
            del live[int(r['address'], 0)]
    known = {int(at): int(size) for at, size in map(str.split, result.out.splitlines())}
    assert len(known) == 51 and {at: size for at, size in live.items() if at in known} == known
    assert sum(live.values()) - sum(known.values()) <= 8 << 20  # stacks and arenas are libc's own


FUNCTIONS = 3000

BINDING = '''
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
static atomic_int stop;
static void *look_up(void *unused)
{
    while (!atomic_load(&stop)) dlsym(RTLD_DEFAULT, "getenv");
    return unused;
}
int main(int argc, char **argv)
{
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, look_up, NULL);
    for (int i = 0; i < atoi(argv[2]); i++) {
        void *library = dlopen(argv[1], RTLD_NOW);
        if (!library) return puts(dlerror());
        ((void (*)(void))dlsym(library, "use"))();
        dlclose(library);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    return argc == 0;
}
'''


def compiled(folder, **sources):
    """Compiles NAME.c, and a shared library if the name begins so; all are linked with those before."""
    libraries = []
    for name, source in sources.items():
        shared = name.startswith('lib')
        (folder / f'{name}.c').write_text(source)
        options = ['-shared', '-fPIC', '-Wl,-z,now,-z,relro', '-o', f'{name}.so', *libraries, '-Wl,-rpath,' + str(folder)] if shared else ['-o', name, '-ldl']
        subprocess.run(['gcc', '-O0', f'{name}.c', *options], cwd=folder, check=True, env=clean_environment())
        libraries += [f'./{name}.so'] if shared else []


def test_libraries_bound_while_symbols_are_looked_up(run, analyze, tmp_path):
    """Other threads look symbols up while the loader binds a library with many read-only references: its references are
    changed only afterwards, and each time that it is loaded."""
    cycles, runs = 300, 3
    declared = ''.join(f'void helper_{i}(void);\n' for i in range(FUNCTIONS))
    table = ', '.join(f'helper_{i}' for i in range(FUNCTIONS))
    compiled(tmp_path, libhelper=''.join(f'void helper_{i}(void) {{}}\n' for i in range(FUNCTIONS)),
             libuser='#include <stdlib.h>\n' + declared + f'void (*const table[])(void) = {{{table}}};\n'
             'void use(void) { void *volatile block = malloc(100000); free(block); '
             + ''.join(f'helper_{i}(); ' for i in range(FUNCTIONS)) + '}\n', main=BINDING)
    for _ in range(runs):
        result = run([tmp_path / 'main', tmp_path / 'libuser.so', cycles], {'TFI_HOST_ALLOC_KB': 64, 'TFI_ACTIVITIES': 'mem'})
        assert result.rc == 0 and not result.err and not result.out
    rows = analyze('memory', '--layout', 'raw', result.dir)['rows']
    assert sum(r['bytes'] == 100000 for r in rows) == sum(r['bytes'] == -100000 for r in rows) == cycles * runs


RELOADING = '''
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
int main(int argc, char **argv)
{
    struct rusage before, after;
    if (!dlopen(argv[1], RTLD_NOW)) return puts(dlerror());
    getrusage(RUSAGE_SELF, &before);
    for (int i = 0; i < 1000; i++) {
        void *library = dlopen(argv[2], RTLD_NOW);
        void *block = ((void *(*)(size_t))dlsym(library, "give"))(100000);
        dlclose(library);
        free(block);
    }
    getrusage(RUSAGE_SELF, &after);
    printf("%.6f", after.ru_utime.tv_sec - before.ru_utime.tv_sec + (after.ru_utime.tv_usec - before.ru_utime.tv_usec) * 1e-6);
    return argc == 0;
}
'''


def test_reloading_costs_nothing_of_other_libraries(run, analyze, tmp_path):
    """A library that is loaded again and again is patched each time, and a large one beside it only once."""
    compiled(tmp_path, liblarge='__asm__(".data\\n.balign 8\\nhere: .rept 1000000\\n.quad here\\n.endr\\n.text\\n");\n',
             libsmall='#include <stdlib.h>\nvoid *give(size_t n) { return malloc(n); }\n', main=RELOADING)
    result = run([tmp_path / 'main', tmp_path / 'liblarge.so', tmp_path / 'libsmall.so'], {'TFI_HOST_ALLOC_KB': 64, 'TFI_ACTIVITIES': 'mem'})
    assert result.rc == 0 and not result.err
    assert float(result.out) < 0.2  # a look at a million references takes 1 ms
    rows = analyze('memory', '--layout', 'raw', result.dir)['rows']
    assert sum(r['bytes'] == 100000 for r in rows) == sum(r['bytes'] == -100000 for r in rows) == 1000


LOCKED = '''
#include <stdlib.h>
static void nothing(void) {}
int main(void)
{
    for (int i = 0; i < 40; i++) atexit(nothing); /* libc allocates another list of them with its lock held */
    void *volatile block = malloc(100000);
    free(block);
    return 0;
}
'''


def test_first_block_is_of_libc_with_a_lock_held(run, analyze, tmp_path):
    """The block does not wake the process, which would need that lock; the program's next one does."""
    compiled(tmp_path, main=LOCKED)
    result = run([tmp_path / 'main'], {'TFI_HOST_ALLOC_KB': 1, 'TFI_ACTIVITIES': 'mem', 'LD_BIND_NOW': 1}, timeout=20)
    assert result.rc == 0 and not result.err
    assert [r['bytes'] for r in analyze('memory', '--layout', 'raw', result.dir)['rows']][:2] == [100000, -100000]  # exit() frees libc's
