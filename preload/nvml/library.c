/* library.c - loads NVML, finds its functions, and finds its handle of a device.
 *
 * CUDA_VISIBLE_DEVICES renumbers the devices for CUDA, but not for NVML, so a device is found by its UUID. The UUID of a
 * MIG device names a part of a GPU that has no clocks of its own; the PCI id then finds the whole GPU.
 */
#include <dlfcn.h>
#include <string.h>

#include "base/fmt.h"
#include "base/raw_dlsym.h"
#include "nvml/nvml.h"
#include "record/log.h"

#define LIBRARY "libnvidia-ml.so.1"

struct tfi_nvml_api tfi_nvml_api;

static void *find_symbol(void *handle, const char *name, const char *older)
{
    void *found = tfi_dlsym(handle, name);
    return found || !older ? found : tfi_dlsym(handle, older);
}

bool tfi_nvml_open(void)
{
    struct tfi_nvml_api *api = &tfi_nvml_api;
    void *handle = dlopen(LIBRARY, RTLD_LAZY | RTLD_LOCAL);
    if (!handle) {
        tfi_log(TFI_LOG_WARN, "TFI_NVML_HZ: no clocks are recorded: " LIBRARY
                              ", a part of NVIDIA's driver, cannot be loaded; in a container, add the driver "
                              "capability `utility`");
        return false;
    }
#define API(field, name, older, params) api->field = (int(*) params)find_symbol(handle, name, older);
    TFI_NVML_FUNCTIONS
#undef API
    api->error = (const char *(*)(int))find_symbol(handle, "nvmlErrorString", NULL);
    if (api->init && (api->by_uuid || api->by_pci)) return true;
    tfi_log(TFI_LOG_WARN, "TFI_NVML_HZ: no clocks are recorded: " LIBRARY " lacks %s",
            api->init ? "nvmlDeviceGetHandleByUUID" : "nvmlInit_v2");
    return false;
}

const char *tfi_nvml_error(int code)
{
    const char *text = tfi_nvml_api.error ? tfi_nvml_api.error(code) : NULL;
    return text ? text : "an unknown error";
}

/* Adds the last `digits` hexadecimal digits of the value. */
static char *add_hex(char *to, uint64_t value, unsigned digits)
{
    for (unsigned i = digits; i-- > 0;) *to++ = "0123456789abcdef"[value >> 4 * i & 15];
    return to;
}

static void write_uuid(char *to, const struct tfi_rec_device *device)
{
    memcpy(to, "GPU-", 4);
    to = add_hex(to + 4, device->uuid_high >> 32, 8);
    *to++ = '-';
    to = add_hex(to, device->uuid_high >> 16, 4);
    *to++ = '-';
    to = add_hex(to, device->uuid_high, 4);
    *to++ = '-';
    to = add_hex(to, device->uuid_low >> 48, 4);
    *to++ = '-';
    *add_hex(to, device->uuid_low, 12) = 0;
}

/* Writes domain:bus:device.function. */
static void write_pci(char *to, uint64_t pci)
{
    to = add_hex(to, pci >> 32, 8);
    *to++ = ':';
    to = add_hex(to, pci >> 16, 2);
    *to++ = ':';
    to = add_hex(to, pci >> 8, 2);
    *to++ = '.';
    *add_hex(to, pci, 1) = 0;
}

int tfi_nvml_find(const struct tfi_rec_device *device, void **handle, bool *whole)
{
    char text[48];
    int code = TFI_NVML_NOT_FOUND;
    write_uuid(text, device);
    *whole = false;
    if (tfi_nvml_api.by_uuid) code = tfi_nvml_api.by_uuid(text, handle);
    if (code == 0 || !tfi_nvml_api.by_pci) return code;
    write_pci(text, device->pci);
    *whole = tfi_nvml_api.by_uuid && code == TFI_NVML_NOT_FOUND;
    return tfi_nvml_api.by_pci(text, handle);
}
