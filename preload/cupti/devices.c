/* devices.c - writes one record for each device the process used, with the driver's description of it.
 *
 * CUPTI's records only have a number, and every rank calls its GPU 0; the UUID tells them apart. The driver is asked
 * directly, not through our wrappers. It is not asked in a callback of CUPTI, nor while another client records,
 * because that client would take these calls for the program's. In those cases the record comes later.
 */
#include <dlfcn.h>
#include <string.h>

#include "base/raw_dlsym.h"
#include "cupti/client.h"
#include "record/strings.h"

#define DEVICES 64u

static struct {
    bool written;
    uint32_t flags;
} devices[DEVICES];
static uint64_t met; /* one bit for each device seen; another thread reads it */

enum {
    ATTRIBUTE_UNITS = 16,
    ATTRIBUTE_BUS = 33,
    ATTRIBUTE_SLOT = 34,
    ATTRIBUTE_DOMAIN = 50,
    ATTRIBUTE_MAJOR = 75,
    ATTRIBUTE_MINOR = 76
};
#define RELAXED 2

struct driver {
    int (*get)(int *device, int ordinal);
    int (*count)(int *count);
    int (*primary)(int device, unsigned *flags, int *active);
    int (*name)(char *name, int length, int device);
    int (*uuid)(uint8_t uuid[16], int device);
    int (*memory)(size_t *bytes, int device);
    int (*attribute)(int *value, int attribute, int device);
    int (*capture)(int *mode);
};

static void *open_driver(void)
{
    return dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
}

int tfi_cupti_driver_version(void)
{
    void *handle = open_driver();
    int (*version)(int *) = handle ? (int (*)(int *))tfi_dlsym(handle, "cuDriverGetVersion") : NULL;
    int number = 0;
    return version && version(&number) == 0 ? number : 0;
}

static bool find_driver(struct driver *d)
{
    void *handle = open_driver();
    if (!handle) return false;
    d->get = (int (*)(int *, int))tfi_dlsym(handle, "cuDeviceGet");
    d->count = (int (*)(int *))tfi_dlsym(handle, "cuDeviceGetCount");
    d->primary = (int (*)(int, unsigned *, int *))tfi_dlsym(handle, "cuDevicePrimaryCtxGetState");
    d->name = (int (*)(char *, int, int))tfi_dlsym(handle, "cuDeviceGetName");
    d->uuid = (int (*)(uint8_t *, int))tfi_dlsym(handle, "cuDeviceGetUuid_v2");
    if (!d->uuid) d->uuid = (int (*)(uint8_t *, int))tfi_dlsym(handle, "cuDeviceGetUuid");
    d->memory = (int (*)(size_t *, int))tfi_dlsym(handle, "cuDeviceTotalMem_v2");
    d->attribute = (int (*)(int *, int, int))tfi_dlsym(handle, "cuDeviceGetAttribute");
    d->capture = (int (*)(int *))tfi_dlsym(handle, "cuThreadExchangeStreamCaptureMode");
    return d->get && d->name && d->uuid && d->memory && d->attribute;
}

static uint64_t attribute(const struct driver *d, int which, int device)
{
    int value = 0;
    return d->attribute(&value, which, device) == 0 && value > 0 ? (uint64_t)value : 0;
}

static uint64_t big_endian(const uint8_t *bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++) value = value << 8 | bytes[i];
    return value;
}

/* Fills all fields but the head; false if the driver does not answer. */
static bool describe(uint32_t number, struct tfi_rec_device *rec)
{
    struct driver d;
    char name[256] = "";
    uint8_t uuid[16] = {0};
    size_t memory = 0;
    int device;
    if (!find_driver(&d) || d.get(&device, (int)number) != 0) return false;
    d.name(name, sizeof name - 1, device);
    d.uuid(uuid, device);
    d.memory(&memory, device);
    rec->device = number;
    rec->uuid_high = big_endian(uuid);
    rec->uuid_low = big_endian(uuid + 8);
    rec->pci = attribute(&d, ATTRIBUTE_DOMAIN, device) << 32 | attribute(&d, ATTRIBUTE_BUS, device) << 16 |
               attribute(&d, ATTRIBUTE_SLOT, device) << 8;
    rec->memory = memory;
    rec->name = tfi_string(name, strlen(name));
    rec->units = (uint32_t)attribute(&d, ATTRIBUTE_UNITS, device);
    rec->capability = (uint32_t)(attribute(&d, ATTRIBUTE_MAJOR, device) * 100 + attribute(&d, ATTRIBUTE_MINOR, device));
    rec->simulated = strstr(name, "Simulated GPU") || strstr(name, "simulated GPU");
    return true;
}

/* Asks in this thread's relaxed capture mode, so that a capture of another thread in global mode is not spoilt. */
bool tfi_cupti_describe(uint32_t number, struct tfi_rec_device *rec)
{
    struct driver d = {0};
    int mode = RELAXED;
    bool exchanged = find_driver(&d) && d.capture && d.capture(&mode) == 0;
    bool ok = describe(number, rec);
    if (exchanged) d.capture(&mode);
    return ok;
}

static uint64_t with_primary_context(const struct driver *d)
{
    uint64_t used = 0;
    int count = 0, mode = RELAXED;
    if (!d->count || !d->primary) return 0;
    bool exchanged = d->capture && d->capture(&mode) == 0;
    if (d->count(&count) != 0) count = 0;
    for (int i = 0; i < count && i < (int)DEVICES; i++) {
        unsigned flags;
        int device, active = 0;
        if (d->get(&device, i) == 0 && d->primary(device, &flags, &active) == 0 && active) used |= 1ull << i;
    }
    if (exchanged) d->capture(&mode);
    return used;
}

uint64_t tfi_cupti_devices_used(void)
{
    struct driver d = {0};
    uint64_t used = __atomic_load_n(&met, __ATOMIC_RELAXED);
    return find_driver(&d) ? used | with_primary_context(&d) : used;
}

static void write_device(struct tfi_thread *lane, uint32_t number)
{
    struct tfi_rec_device found = {.device = number};
    devices[number].written = true;
    if (!tfi_cupti_describe(number, &found)) return;
    devices[number].flags = found.simulated ? TFI_DEVICE_SIMULATED : 0;
    struct tfi_rec_device *rec = TFI_RESERVE(lane, device);
    if (!rec) return;
    found.rec = rec->rec;
    *rec = found;
    tfi_commit(lane, sizeof *rec);
}

uint32_t tfi_cupti_device(struct tfi_thread *lane, uint32_t number, bool ask)
{
    if (number >= DEVICES) return 0;
    if (TFI_UNLIKELY(!devices[number].written)) {
        __atomic_or_fetch(&met, 1ull << number, __ATOMIC_RELAXED);
        if (ask) write_device(lane, number);
    }
    return devices[number].flags;
}

void tfi_cupti_devices(struct tfi_thread *lane)
{
    for (uint32_t i = 0; i < DEVICES; i++)
        if (met >> i & 1 && !devices[i].written) write_device(lane, i);
}

void tfi_cupti_devices_restart(void)
{
    memset(devices, 0, sizeof devices);
    met = 0;
}
