/* torch_names.c - torch's names for the columns of its table of operators. */
#include "base/words/torch_names.h"

#include <string.h>

/* The orders of `ops`: torch's name and the key of a row. */
static const struct {
    const char *torchs, *key;
} sorts[] = {[SORT_NONE] = {"", ""},
             [SORT_CPU_TIME] = {"cpu_time", ""},
             [SORT_DEVICE_TIME] = {"device_time", ""},
             [SORT_CPU_TIME_TOTAL] = {"cpu_time_total", "cpu_total_us"},
             [SORT_DEVICE_TIME_TOTAL] = {"device_time_total", "device_total_us"},
             [SORT_SELF_CPU_TIME_TOTAL] = {"self_cpu_time_total", "self_cpu_us"},
             [SORT_SELF_DEVICE_TIME_TOTAL] = {"self_device_time_total", "self_device_us"},
             [SORT_CPU_MEMORY] = {"cpu_memory_usage", "cpu_mem_bytes"},
             [SORT_DEVICE_MEMORY] = {"device_memory_usage", "device_mem_bytes"},
             [SORT_SELF_CPU_MEMORY] = {"self_cpu_memory_usage", "self_cpu_mem_bytes"},
             [SORT_SELF_DEVICE_MEMORY] = {"self_device_memory_usage", "self_device_mem_bytes"},
             [SORT_COUNT] = {"count", "calls"},
             [SORT_FLOPS] = {"flops", "flops"}};

void text_of_any_device(struct text *plain, const char *value)
{
    static const char *const devices[] = {"cuda", "xpu", "npu", "mtia", "hpu", "privateuse1"};
    const char *found = NULL;
    size_t length = 0;
    for (size_t i = 0; i < ARRAY_SIZE(devices) && !found; i++) {
        found = strstr(value, devices[i]);
        length = strlen(devices[i]);
    }
    if (found) text_format(plain, "%.*sdevice%s", (int)(found - value), value, found + length);
    else text_puts(plain, value);
}

bool torchs_order(const char *value, enum sort_key *order)
{
    const char *known[NR_SORT_KEYS - 1];
    struct text plain = {0};
    text_of_any_device(&plain, value);
    const char *torchs = plain.data ? plain.data : "";
    size_t i = 1;
    while (i < NR_SORT_KEYS && strcmp(torchs, sorts[i].torchs) != 0 && strcmp(value, sorts[i].key) != 0) i++;
    if (i == NR_SORT_KEYS) {
        for (size_t k = 1; k < NR_SORT_KEYS; k++) known[k - 1] = sorts[k].torchs;
        const char *meant = nearest(torchs, known, ARRAY_SIZE(known));
        complain(NULL,
                 "--sort-by takes the keys of numbers, or torch's names (cuda_, xpu_ and device_ mean the same), not "
                 "%s%s%s%s",
                 value, meant ? "; did you mean " : "", meant ? meant : "", meant ? "?" : "");
    }
    text_free(&plain);
    *order = (enum sort_key)i;
    return i < NR_SORT_KEYS;
}
