/* sources.c - keeps the sources of the modules that torch's compiler makes, for every trace of this process and its
 * forked children.
 *
 * torch's ExecutionTraceObserver copies these files beside its execution trace, because replaying a Triton kernel needs
 * its source. A source is read when the program loads the module, as the file may be gone later. The process may still
 * be asleep then. Only TFI_TENSOR_ADDRESSES=1 asks for sources, and TFI_RECORD_VALUES=0 leaves them out, as they have
 * constants of the program.
 *
 * Kept sources form a list that only grows, so it is read without the lock; the lock guards additions. A source that
 * could not be kept has a record without a text.
 */
#include "torch/sources.h"

#include <string.h>
#include <sys/stat.h>

#include "base/files.h"
#include "base/sys.h"
#include "base/tfi.h"
#include "record/clock.h"
#include "record/enter.h"
#include "record/strings.h"

struct source {
    struct source *next; /* the one kept before it */
    const char *text;    /* behind the name */
    uint64_t bytes;
    uint32_t name_length;
    char name[];
};

static struct tfi_lock lock;
static struct source *kept; /* the newest */
static uint64_t kept_bytes;
static uint32_t kept_count;

/* ---- records ---- */

static void write_piece(struct tfi_thread *t, uint32_t name, uint32_t text, uint64_t offset, uint64_t bytes)
{
    TFI_WRITE(t, source, .name = name, .text = text, .time = tfi_ticks(), .offset = offset, .bytes = bytes);
}

static void write_source(struct tfi_thread *t, const struct source *source)
{
    uint32_t name = tfi_string(source->name, source->name_length);
    uint64_t at = 0;
    do {
        uint64_t left = source->bytes - at, length = left < TFI_STRING_MAX ? left : TFI_STRING_MAX;
        write_piece(t, name, tfi_string(source->text + at, length), at, source->bytes);
        at += length;
    } while (at < source->bytes);
}

void tfi_sources_awake(struct tfi_thread *t)
{
    for (const struct source *s = __atomic_load_n(&kept, __ATOMIC_ACQUIRE); s; s = s->next) write_source(t, s);
}

/* ---- keeping ---- */

/* Reads the file whole; NULL if that fails. */
static struct source *read_source(const char *path, const char *name, uint64_t bytes)
{
    size_t length = strlen(name), head = sizeof(struct source) + length, size = head + bytes + 1;
    struct source *source = tfi_map(size);
    if (!source) return NULL;
    ssize_t read = tfi_read_file(path, (char *)source + head, bytes + 1);
    if (read < 0 || (uint64_t)read != bytes) {
        tfi_unmap(source, size);
        return NULL;
    }
    memcpy(source->name, name, length);
    source->name_length = (uint32_t)length;
    source->text = (const char *)source + head;
    source->bytes = bytes;
    return source;
}

/* Keeps one more source; NULL if its file cannot be read or too much is kept already. */
static const struct source *keep(const char *path, const char *name, uint64_t bytes)
{
    if (!tfi_lock(&lock)) return NULL;
    bool fits = kept_count < TFI_SOURCES && bytes <= TFI_SOURCES_BYTES - kept_bytes;
    struct source *source = fits ? read_source(path, name, bytes) : NULL;
    if (source) {
        kept_count++;
        kept_bytes += bytes;
        source->next = kept;
        __atomic_store_n(&kept, source, __ATOMIC_RELEASE);
    }
    tfi_unlock(&lock);
    return source;
}

void tfi_source_loaded(const char *path)
{
    struct stat status;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    bool is_file = tfi_stat(path, &status) == 0 && S_ISREG(status.st_mode);
    uint64_t bytes = is_file ? (uint64_t)status.st_size : 0;
    const struct source *source = is_file ? keep(path, name, bytes) : NULL;
    struct tfi_thread *t = tfi_enter(TFI_WHY_NONE);
    if (!t) return;
    if (source) write_source(t, source);
    else write_piece(t, tfi_string(name, strlen(name)), TFI_STRING_LOST, 0, bytes);
    tfi_leave(t);
}
