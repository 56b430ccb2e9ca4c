/* libc10.c - stands for torch's library of that name: its two functions, and allocators that report through them.
 *
 * The host's allocator counts a block only while memoryProfilingEnabled() says so, as torch's does; a device's reports
 * whatever it says, with totals of its own.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *block, int64_t bytes, size_t allocated,
                                                           size_t reserved, uint16_t device);
bool _ZN3c1022memoryProfilingEnabledEv(void);
void c10_enable(int enabled);
int64_t c10_seen(int what);
int c10_asked(void);
void c10_host(uint64_t block, int64_t bytes);
void c10_device(int index, uint64_t block, int64_t bytes, int64_t more_reserved);

#define DEVICES 4

static bool enabled;
static int64_t reports, last_bytes, last_device, last_total;
static int64_t host_allocated, allocated[DEVICES], reserved[DEVICES];

void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *block, int64_t bytes, size_t total, size_t more,
                                                           uint16_t device)
{
    (void)block;
    (void)more;
    reports++;
    last_bytes = bytes;
    last_device = device;
    last_total = (int64_t)total;
}

bool _ZN3c1022memoryProfilingEnabledEv(void)
{
    return enabled;
}

void c10_enable(int on)
{
    enabled = on;
}

int c10_asked(void)
{
    return _ZN3c1022memoryProfilingEnabledEv();
}

int64_t c10_seen(int what)
{
    return what == 0 ? reports : what == 1 ? last_bytes : what == 2 ? last_device : last_total;
}

void c10_host(uint64_t block, int64_t bytes)
{
    if (!_ZN3c1022memoryProfilingEnabledEv()) return;
    host_allocated += bytes;
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE((void *)(uintptr_t)block, bytes, (size_t)host_allocated, 0,
                                                          0xff00);
}

void c10_device(int index, uint64_t block, int64_t bytes, int64_t more_reserved)
{
    allocated[index] += bytes;
    reserved[index] += more_reserved;
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE((void *)(uintptr_t)block, bytes, (size_t)allocated[index],
                                                          (size_t)reserved[index], (uint16_t)(index << 8 | 1));
}
