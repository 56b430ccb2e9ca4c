/* outside.c - reads objects of an interpreter from outside, while its threads are free to change them.
 *
 * Every address may be stale: a thread calls and returns, frees frames and code, or ends. Memory is therefore read with
 * process_vm_readv on our own process, which returns an error for an address that is not mapped.
 */
#include "sample/outside.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fmt.h"
#include "base/raw_dlsym.h"
#include "base/sys.h"
#include "base/tfi.h"
#include "python/frames.h"

struct tfi_outside tfi_outside;

bool tfi_outside_prepare(void)
{
    struct tfi_outside *o = &tfi_outside;
    if (o->layout) return true;
    if (!tfi_python_find()) return false;
    o->code = (uintptr_t)tfi_dlsym(RTLD_DEFAULT, "PyCode_Type");
    o->str = (uintptr_t)tfi_dlsym(RTLD_DEFAULT, "PyUnicode_Type");
    o->bytes = (uintptr_t)tfi_dlsym(RTLD_DEFAULT, "PyBytes_Type");
    o->frame = (uintptr_t)tfi_dlsym(RTLD_DEFAULT, "PyFrame_Type");
    o->runtime = (uintptr_t)tfi_dlsym(RTLD_DEFAULT, "_PyRuntime");
    *(void **)&o->first = tfi_dlsym(RTLD_DEFAULT, "PyInterpreterState_Head");
    *(void **)&o->main = tfi_dlsym(RTLD_DEFAULT, "PyInterpreterState_Main");
    if (!o->code || !o->str || !o->bytes || !o->frame || !o->first || !o->main) return false;
    __atomic_store_n(&o->layout, tfi_python_layout(), __ATOMIC_RELEASE);
    return o->layout != NULL;
}

bool tfi_outside_pull_all(const struct iovec *to, const struct iovec *from, unsigned count)
{
    ssize_t want = 0;
    for (unsigned i = 0; i < count; i++) want += (ssize_t)to[i].iov_len;
    ssize_t got = process_vm_readv(tfi_getpid(), to, count, from, count, 0);
    if (got >= 0 && got < want) errno = EFAULT;
    return got == want;
}

bool tfi_outside_pull(void *to, uint64_t from, size_t bytes)
{
    struct iovec here = {to, bytes}, there = {(void *)(uintptr_t)from, bytes};
    return tfi_outside_pull_all(&here, &there, 1);
}

unsigned tfi_outside_interpreters(uint64_t found[TFI_INTERPRETERS])
{
    const struct tfi_python_layout *o = tfi_outside.layout;
    unsigned count = 0;
    uint64_t at = (uintptr_t)(o->minor < 12 ? tfi_outside.main() : tfi_outside.first());
    while (at && count < TFI_INTERPRETERS) {
        found[count++] = at;
        if (o->minor < 12 || !tfi_outside_pull(&at, at + (uint64_t)o->interpreter, sizeof at)) break;
    }
    return count;
}

bool tfi_outside_name(struct tfi_text *text, uint64_t str, char *room)
{
    const struct tfi_python_layout *o = tfi_outside.layout;
    struct tfi_python_characters characters;
    if (!tfi_outside_pull(room, str, (size_t)o->ascii) || tfi_pointer_in(room, TFI_OBJECT_TYPE) != tfi_outside.str)
        return false;
    if (!tfi_python_characters(o, room, &characters)) return false;
    size_t bytes = characters.offset + characters.length * characters.width;
    if (bytes > TFI_OUTSIDE_STR || !tfi_outside_pull(room, str, bytes)) return false;
    tfi_python_add_characters(text, room, &characters);
    return true;
}

int tfi_outside_line(uint64_t table, int64_t at, int first, char *room, size_t size)
{
    char head[TFI_BYTES_DATA];
    if (!tfi_outside_pull(head, table, sizeof head) || tfi_pointer_in(head, TFI_OBJECT_TYPE) != tfi_outside.bytes)
        return 0;
    uint64_t bytes = tfi_pointer_in(head, TFI_OBJECT_LENGTH);
    if (bytes > size || !tfi_outside_pull(room, table + TFI_BYTES_DATA, bytes)) return 0;
    return tfi_python_line(tfi_outside.layout, room, bytes, at, first);
}

bool tfi_outside_cpu(uint32_t tid, uint64_t *ns)
{
    *ns = tfi_thread_cpu_ns(tid);
    return *ns != 0;
}
