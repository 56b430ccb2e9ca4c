/* nvml.h - declares the sampler of device clocks, and the few functions of NVML that it calls. */
#ifndef TFI_NVML_H
#define TFI_NVML_H

#include "base/tfi.h"

/* ---- for the rest of the library: sampler.c ---- */

/* Called when the process has woken. */
void tfi_nvml_awake(void);

/* Job of the background thread: finds the devices that the process uses, and starts the sampler. */
extern const struct tfi_job tfi_nvml_job;

/* Called before and after a fork: the sampler's thread ends; the background thread starts it again. */
void tfi_nvml_before_fork(void);
void tfi_nvml_after_fork(void);

/* Called at the end, before the footer: ends the sampler and closes its chunk. False if samples may be missing. */
bool tfi_nvml_finish(void);

/* Forgets the trace of a parent process, or an earlier trace of this one. */
void tfi_nvml_restart(void);

/* ---- the library: library.c ---- */

enum { TFI_NVML_NOT_SUPPORTED = 3, TFI_NVML_NOT_FOUND = 6, TFI_NVML_NO_FUNCTION = 13 };
enum { TFI_NVML_SM_CLOCK = 1, TFI_NVML_MEMORY_CLOCK = 2 }; /* nvmlClockType_t */
enum { TFI_NVML_GPU_SENSOR = 0 };                          /* nvmlTemperatureSensors_t */

struct tfi_nvml_utilization {
    unsigned gpu, memory;
};

/* NVML's functions: API(field, "name", "name in older drivers", parameters). The header is not needed: these types and
 * numbers are those of NVIDIA's public API reference, and they never changed. A function that the driver lacks is NULL;
 * `init` and one of the next two are always there. */
#define TFI_NVML_FUNCTIONS                                                                                             \
    API(init, "nvmlInit_v2", "nvmlInit", (void))                                                                       \
    API(by_uuid, "nvmlDeviceGetHandleByUUID", NULL, (const char *, void **))                                           \
    API(by_pci, "nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetHandleByPciBusId", (const char *, void **))          \
    API(clock, "nvmlDeviceGetClockInfo", NULL, (void *, int, unsigned *))                                              \
    API(power, "nvmlDeviceGetPowerUsage", NULL, (void *, unsigned *))                                                  \
    API(temperature, "nvmlDeviceGetTemperature", NULL, (void *, int, unsigned *))                                      \
    API(utilization, "nvmlDeviceGetUtilizationRates", NULL, (void *, struct tfi_nvml_utilization *))                   \
    API(reasons, "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons",                \
        (void *, unsigned long long *))

struct tfi_nvml_api {
#define API(field, name, older, params) int(*field) params;
    TFI_NVML_FUNCTIONS
#undef API
    const char *(*error)(int);
};
extern struct tfi_nvml_api tfi_nvml_api;

/* Loads the library and finds its functions. False, after a message, if that is not possible. */
bool tfi_nvml_open(void);

/* NVML's text for an error. */
const char *tfi_nvml_error(int code);

/* The handle of a device, by its UUID, else by its PCI id, as in device records. Returns NVML's code; `*whole` is set if
 * only the PCI id matches: the device is a part of that GPU. */
struct tfi_rec_device;
int tfi_nvml_find(const struct tfi_rec_device *device, void **handle, bool *whole);

#endif
