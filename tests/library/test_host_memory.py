"""test_host_memory - the blocks of malloc's family with libtfinject-alloc.so, against journals of the programs."""

import ctypes.util
import struct
import subprocess
import sys
from collections import Counter, defaultdict

import pytest

from conftest import BUILD, built, clean_environment
from scripted import traces

pytestmark = pytest.mark.slow

LARGE = 64 << 10
MEM = {'TFI_ACTIVITIES': 'mem'}


@pytest.fixture
def victim():
    return built(BUILD / 'victims' / 'host_memory')


@pytest.fixture
def preload(lib):
    """The value of LD_PRELOAD, with other libraries behind ours."""
    return lambda *behind: ' '.join(map(str, (lib.with_name('libtfinject-alloc.so'), lib, *behind)))


def compiled(folder, **sources):
    """Compiles NAME.c, and a shared library if the name begins so."""
    for name, source in sources.items():
        shared = name.startswith('lib')
        (folder / f'{name}.c').write_text(source)
        options = ['-shared', '-fPIC', '-o', f'{name}.so'] if shared else ['-o', name]
        subprocess.run(['gcc', '-O0', '-D_GNU_SOURCE', f'{name}.c', *options, '-pthread', '-ldl'], cwd=folder, check=True,
                       env=clean_environment())


# An allocator without malloc_usable_size, whose functions call each other by name.
SIMPLE = '''
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
struct head { char *base; size_t all, bytes; };
void *memalign(size_t alignment, size_t bytes)
{
    size_t all = bytes + alignment + 64;
    char *base = bytes >> 40 ? MAP_FAILED : mmap(0, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return errno = ENOMEM, NULL;
    struct head *block = (struct head *)(((uintptr_t)base + 48 + alignment) & ~(alignment - 1));
    block[-1] = (struct head){base, all, bytes};
    return block;
}
void *malloc(size_t bytes) { return memalign(16, bytes); }
void *calloc(size_t items, size_t size)
{
    size_t bytes;
    return __builtin_mul_overflow(items, size, &bytes) ? errno = ENOMEM, NULL : malloc(bytes);
}
void free(void *block)
{
    struct head *h = block;
    if (h) munmap(h[-1].base, h[-1].all);
}
void *realloc(void *block, size_t bytes)
{
    struct head *h = block;
    char *moved = malloc(bytes);
    if (!h || !moved) return moved;
    memcpy(moved, block, h[-1].bytes < bytes ? h[-1].bytes : bytes);
    free(block);
    return moved;
}
int posix_memalign(void **to, size_t alignment, size_t bytes) { return *to = memalign(alignment, bytes), 0; }
void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
void *valloc(size_t bytes) { return memalign(4096, bytes); }
'''


@pytest.fixture(params=['libc', 'jemalloc', 'tcmalloc', 'simple'])
def allocator(request, tmp_path):
    """The library of an allocator, as a list."""
    if request.param == 'libc':
        return []
    if request.param == 'simple':
        compiled(tmp_path, libsimple=SIMPLE)
        return [tmp_path / 'libsimple.so']
    name = ctypes.util.find_library({'tcmalloc': 'tcmalloc_minimal'}.get(request.param, request.param))
    if not name:
        pytest.skip(f'{request.param} is not installed')
    return [name]


def journal_of(path, threads):
    """The changes that each thread has noted: (address, bytes)."""
    data = path.read_bytes()
    entries = [entry for entry in struct.iter_unpack('=Qq', data)]
    part = len(entries) // threads
    return [[entry for entry in entries[i * part:(i + 1) * part] if entry[1]] for i in range(threads)]


def rows_of(analyze, directory):
    rows = analyze('memory', '--layout', 'raw', directory)['rows']
    assert {r['allocator'] for r in rows} <= {'malloc'} and {r['device'] for r in rows} <= {-1}
    return rows


def changes(rows):
    return [(int(r['address'], 0) & (1 << 64) - 1, r['bytes']) for r in rows]


@pytest.mark.parametrize('threads, kill', [(1, []), (6, []), (3, ['kill'])], ids=['1', '6', 'kill'])
def test_every_block(run, analyze, victim, preload, tmp_path, allocator, threads, kill):
    """All large blocks of all threads are there with address and size, each in the order of its thread, also after SIGKILL."""
    if allocator:
        bare = run([victim, 5, 2000, threads, tmp_path / 'bare'], preload=' '.join(map(str, allocator)))
        assert bare.rc == 0, bare.err
    result = run([victim, 5, 2000, threads, tmp_path / 'journal', *kill], MEM, preload=preload(*allocator))
    assert result.rc == (-9 if kill else 0) and not result.err
    rows = rows_of(analyze, result.dir)
    known = journal_of(tmp_path / 'journal', threads)
    assert Counter(changes(rows)) == Counter(entry for part in known for entry in part) and len(rows) > 1500 * threads
    if threads == 1:
        assert changes(rows) == known[0]
    assert {r['stage'] for r in rows} == {'work'} and {r['reserved_bytes'] for r in rows} == {None}
    assert max(r['allocated_bytes'] for r in rows) < 1 << 32
    assert sum(r['bytes'] for r in rows) in {r['allocated_bytes'] for r in rows[-threads:]}
    assert [r['lost'] for r in analyze('info', result.dir)['rows']] == [{}]


def test_totals_peaks_and_leaks(run, analyze, victim, preload, tmp_path):
    """The library's running totals are the sums of the changes; peaks and leaks follow from them."""
    result = run([victim, 3, 3000, 1, tmp_path / 'journal'], MEM, preload=preload())
    total, peak = 0, 0
    for r in rows_of(analyze, result.dir):
        total += r['bytes']
        peak = max(peak, total)
        assert r['allocated_bytes'] == total
    peaks = {r['stage']: r for r in analyze('memory', '--layout', 'peaks', result.dir)['rows']}
    leaks = analyze('memory', '--layout', 'leaks', result.dir)['rows']
    assert peaks['(run)']['peak_allocated_bytes'] == peaks['work']['peak_allocated_bytes'] == peak
    assert sum(r['leaked_bytes'] for r in leaks) == total


@pytest.mark.parametrize('kb', [1, 64, 200])
def test_the_smallest_block(run, analyze, preload, tmp_path, kb):
    compiled(tmp_path, main=f'''
#include <malloc.h>
#include <stdlib.h>
extern int tfi_range_push(const char *) __attribute__((weak));
int main(void)
{{
    static char *volatile block[3];
    if (tfi_range_push) tfi_range_push("work");
    for (int i = 0; i < 3; i++) block[i] = i == 2 ? pvalloc({kb << 10} + 1) : malloc({kb << 10} - 1 + i);
    for (int i = 0; i < 3; i++) free(block[i]);
    return 0;
}}''')
    result = run([tmp_path / 'main'], {**MEM, 'TFI_HOST_ALLOC_KB': kb}, preload=preload())
    least = kb << 10
    assert [r['bytes'] for r in rows_of(analyze, result.dir) if r['stage'] == 'work'][:4] == [least, least + 1, -least, -least - 1]


@pytest.mark.parametrize('env', [{'TFI_HOST_ALLOC_KB': 0}, {'TFI_ACTIVITIES': 'cpu,ops'}, {'ENABLE_PROFILER_NAMES': ''}])
def test_not_asked_for(run, victim, preload, tmp_path, env):
    result = run([victim, 1, 500, 2, tmp_path / 'journal'], env, preload=preload())
    assert result.rc == 0 and not result.err
    assert 'memory' not in {r.kind for t in traces(result.dir) for r in t.records}


@pytest.mark.parametrize('env, says', [({'TFI_HOST_ALLOC_KB': 64}, True), ({'TFI_HOST_ALLOC_KB': 0}, False), ({}, False),
                                       ({'TFI_HOST_ALLOC_KB': 64, 'TFI_ACTIVITIES': 'cpu'}, False)])
def test_without_the_second_library(run, victim, tmp_path, env, says):
    """The variable alone records nothing, and one line a run says so."""
    for _ in range(2):
        result = run([victim, 1, 500, 2, tmp_path / 'journal'], env)
        assert result.rc == 0 and 'memory' not in {r.kind for t in traces(result.dir) for r in t.records}
        assert result.err.count('\n') == says and ('tfrun --host-memory' in result.err) == says


@pytest.mark.parametrize('alone', [True, False])
def test_a_process_that_sleeps(run, victim, lib, preload, tmp_path, alone):
    """Blocks wake no process, and the second library works without the first one."""
    compiled(tmp_path, main='#include <stdlib.h>\nint main(void) { char *volatile b = calloc(3, 100000); return b[299999]; }')
    result = run([tmp_path / 'main'], preload=str(lib.with_name('libtfinject-alloc.so')) if alone else preload())
    assert (result.rc, result.out, result.err) == (0, '', '') and not result.dir.exists()


def test_the_executable_has_an_allocator(run, preload, tmp_path):
    """Its blocks are its own: nothing is seen of them, and no function of ours gives it a block of libc's."""
    compiled(tmp_path, main=SIMPLE + '''
#include <stdlib.h>
extern int tfi_range_push(const char *) __attribute__((weak));
int main(void)
{
    if (tfi_range_push) tfi_range_push("work");
    struct head *block = reallocarray(malloc(100000), 200, 1000);
    return block[-1].bytes != 200000;
}''')
    result = run([tmp_path / 'main'], MEM, preload=preload())
    assert result.rc == 0 and 'memory' not in {r.kind for t in traces(result.dir) for r in t.records}


FAMILY = '''
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    void *(*give)(size_t) = (void *(*)(size_t))dlsym(dlopen(argv[1], RTLD_NOW), "give");
    void (*take)(void *) = (void (*)(void *))dlsym(dlopen(argv[1], RTLD_NOW), "take");
    int (*push)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "tfi_range_push");
    void *early = give(70000); /* the process sleeps */
    push("work");
    void *a = give(100000);
    void *volatile kept = give(200000);
    if (fork() == 0) {
        push("child");
        take(a); /* of the parent: its size is known in the child too */
        give(300000);
        return 0;
    }
    wait(NULL);
    if (vfork() == 0) _exit(0);
    wait(NULL);
    take(early);
    take(a);
    return kept == NULL || argc == 0;
}
'''


def test_libraries_loaded_later_and_children(run, analyze, preload, tmp_path):
    compiled(tmp_path, main=FAMILY, libuser='#include <stdlib.h>\nvoid *give(size_t n) { return malloc(n); }\nvoid take(void *p) { free(p); }\n')
    result = run([tmp_path / 'main', tmp_path / 'libuser.so'], preload=preload())
    assert result.rc == 0 and not result.err
    by_process = defaultdict(list)
    for r in rows_of(analyze, result.dir):
        by_process[r['pid']].append((r['bytes'], r['allocated_bytes']))
    assert sorted(by_process.values()) == [[(-100000, 270000), (300000, 570000)],
                                           [(100000, 170000), (200000, 370000), (-70000, 300000), (-100000, 200000)]]


BESIDE = '''
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
extern int tfi_range_push(const char *) __attribute__((weak));
static atomic_int stop;
static atomic_long blocks;
static void *allocate(void *unused)
{
    while (!atomic_load(&stop)) {
        char *volatile block = malloc(100000);
        free(block);
        atomic_fetch_add(&blocks, 1);
        usleep(100);
    }
    return unused;
}
int main(int argc, char **argv)
{
    pthread_t thread[3];
    if (tfi_range_push) tfi_range_push("work");
    for (int i = 0; i < 3; i++) pthread_create(&thread[i], NULL, allocate, NULL);
    for (int i = 0; i < atoi(argv[2]); i++) {
        void *library = dlopen(argv[1], RTLD_NOW);
        if (!library) return puts(dlerror());
        ((void (*)(void))dlsym(library, "use"))();
        dlclose(library);
        int status;
        if (i % 4) continue;
        pid_t child = fork();
        if (child == 0) {
            if (tfi_range_push) tfi_range_push("child");
            char *volatile block = malloc(200000);
            free(block);
            _exit(5);
        }
        if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 5) return 3;
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < 3; i++) pthread_join(thread[i], NULL);
    printf("%ld", atomic_load(&blocks));
    return argc == 0;
}
'''


def test_beside_dlopen_and_fork(run, analyze, preload, tmp_path, allocator):
    """Threads allocate while another one loads libraries and forks: every block is there, and no child hangs."""
    cycles = 120
    compiled(tmp_path, main=BESIDE, libuser='#include <stdlib.h>\nvoid use(void) { void *volatile b = malloc(150000); free(b); }\n')
    result = run([tmp_path / 'main', tmp_path / 'libuser.so', cycles], MEM, preload=preload(*allocator))
    assert result.rc == 0 and not result.err
    count = Counter(r['bytes'] for r in rows_of(analyze, result.dir))
    assert count == {sign * size: n for sign in (1, -1) for size, n in
                     ((100000, int(result.out)), (150000, cycles), (200000, cycles // 4))}


LOCKED = '''
#include <stdlib.h>
extern int tfi_range_push(const char *) __attribute__((weak));
static void nothing(void) {}
int main(void)
{
    if (tfi_range_push) tfi_range_push("work");
    for (int i = 0; i < 3000; i++) atexit(nothing); /* libc allocates lists of them with its lock held */
    return 0;
}
'''


def test_blocks_of_libc_with_a_lock_held(run, analyze, preload, tmp_path):
    compiled(tmp_path, main=LOCKED)
    result = run([tmp_path / 'main'], {**MEM, 'TFI_HOST_ALLOC_KB': 1}, preload=preload())
    assert result.rc == 0 and not result.err
    assert len([r for r in rows_of(analyze, result.dir) if r['stage'] == 'work']) > 80


ARRAYS = '''
import ctypes, gc, sys
import numpy as np

def work():
    random = np.random.default_rng(1)
    arrays = {}
    for i in range(400):
        at = int(random.integers(20))
        if at in arrays:
            array = arrays.pop(at)
            print(-array.nbytes, array.ctypes.data)
            del array
        else:
            make = (np.empty, np.zeros, np.ones)[i % 3]
            array = arrays[at] = make(int(random.integers(10000, 100000)))
            print(array.nbytes, array.ctypes.data)
            del array
work()
'''


def test_numpy(run, analyze, preload, tmp_path):
    """A program in Python: each large array appears with its address, when it is made and when it goes."""
    (tmp_path / 'arrays.py').write_text(ARRAYS)
    result = run([sys.executable, tmp_path / 'arrays.py'], {**MEM, 'TFI_STAGES': '__main__:work'}, preload=preload())
    assert result.rc == 0 and not result.err
    known = [(int(at), int(size)) for size, at in map(str.split, result.out.splitlines()) if abs(int(size)) >= LARGE]
    rows = changes(r for r in rows_of(analyze, result.dir) if r['stage'] == 'work')
    remaining = iter(rows)
    assert len(known) > 300 and all(change in remaining for change in known)
