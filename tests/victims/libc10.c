/* libc10.c - stands for torch's libc10.so: its allocators' reports, and the counter of the host's blocks.
 *
 * As in torch, the counter knows a block only if a profiler was active when the block was given out, and only then
 * reports it. A device's allocator always reports, with totals of its own. So do tensors that are mapped files, with a
 * size in place of the reserved bytes.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *block, int64_t bytes, size_t allocated,
                                                           size_t reserved, uint16_t device);
void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(int64_t bytes, size_t total, size_t more, uint16_t device);
void _ZN3c1025ProfiledCPUMemoryReporter3NewEPvm(void *reporter, void *block, size_t bytes);
void _ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv(void *reporter, void *block);
void c10_enable(int enabled);
int64_t c10_seen(int what);
void c10_host(uint64_t block, int64_t bytes);
void c10_mapped(uint64_t block, int64_t bytes);
void c10_device(int index, uint64_t block, int64_t bytes, int64_t more_reserved);
void c10_oom(int index, int64_t bytes);

enum { DEVICES = 4, BLOCKS = 1 << 16, HOST = 0xff00 };

static bool enabled;
static int64_t reports, last_bytes, last_device, last_total, calls, ooms;
static int64_t allocated[DEVICES], reserved[DEVICES];
static struct reporter {
    int64_t size[BLOCKS];
    int64_t allocated;
} the_reporter;

void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *block, int64_t bytes, size_t total, size_t more,
                                                           uint16_t device)
{
    (void)block;
    (void)more;
    if (!enabled) return;
    reports++;
    last_bytes = bytes;
    last_device = device;
    last_total = (int64_t)total;
}

void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(int64_t bytes, size_t total, size_t more, uint16_t device)
{
    (void)more;
    if (!enabled) return;
    ooms++;
    last_bytes = bytes;
    last_device = device;
    last_total = (int64_t)total;
}

void _ZN3c1025ProfiledCPUMemoryReporter3NewEPvm(void *reporter, void *block, size_t bytes)
{
    struct reporter *r = reporter;
    calls++;
    if (bytes == 0 || !enabled) return;
    r->size[(uintptr_t)block % BLOCKS] = (int64_t)bytes;
    r->allocated += (int64_t)bytes;
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(block, (int64_t)bytes, (size_t)r->allocated, 0, HOST);
}

void _ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv(void *reporter, void *block)
{
    struct reporter *r = reporter;
    int64_t bytes = enabled ? r->size[(uintptr_t)block % BLOCKS] : 0;
    calls++;
    if (bytes == 0) return;
    r->size[(uintptr_t)block % BLOCKS] = 0;
    r->allocated -= bytes;
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(block, -bytes, (size_t)r->allocated, 0, HOST);
}

void c10_enable(int on)
{
    enabled = on;
}

int64_t c10_seen(int what)
{
    const int64_t seen[] = {reports, last_bytes, last_device, last_total, calls, ooms};
    return seen[what];
}

void c10_host(uint64_t block, int64_t bytes)
{
    void *address = (void *)(uintptr_t)block;
    if (bytes >= 0) _ZN3c1025ProfiledCPUMemoryReporter3NewEPvm(&the_reporter, address, (size_t)bytes);
    else _ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv(&the_reporter, address);
}

void c10_mapped(uint64_t block, int64_t bytes)
{
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE((void *)(uintptr_t)block, bytes, 0,
                                                          bytes > 0 ? (size_t)bytes : 0, HOST);
}

void c10_device(int index, uint64_t block, int64_t bytes, int64_t more_reserved)
{
    allocated[index] += bytes;
    reserved[index] += more_reserved;
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE((void *)(uintptr_t)block, bytes, (size_t)allocated[index],
                                                          (size_t)reserved[index], (uint16_t)(index << 8 | 1));
}

void c10_oom(int index, int64_t bytes)
{
    _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(bytes, (size_t)allocated[index], (size_t)reserved[index],
                                                        (uint16_t)(index << 8 | 1));
}
