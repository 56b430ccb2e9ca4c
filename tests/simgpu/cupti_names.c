/* cupti_names.c - a simulated CUPTI: callback ids by name, from the lists of the public headers.
 *
 * A driver function has its ABI name there, cuMemAlloc_v2; a runtime function has the version it appeared in behind its
 * name, cudaMalloc_v3020, and may stand there twice: the newest entry counts.
 */
#include <stdlib.h>
#include <string.h>

#include "cupti_sim.h"

struct name {
    const char *name;
    size_t length; /* without the version */
    uint32_t id;
};
#define DRIVER_CBID(name, value) {#name, sizeof #name - 1, value},
#define RUNTIME_CBID(name, value)
#define RESULT(name, value)
static struct name driver[] = {
#include "cupti_cbids.h"
};
#undef DRIVER_CBID
#undef RUNTIME_CBID
#define DRIVER_CBID(name, value)
#define RUNTIME_CBID(name, value) {#name, sizeof #name - 1, value},
static struct name runtime[] = {
#include "cupti_cbids.h"
};
#define NR(array) (sizeof(array) / sizeof *(array))

#define BUCKETS 2048
static uint16_t buckets[2][BUCKETS]; /* index + 1; open addressing */

static uint32_t hash(const char *text, size_t length)
{
    uint32_t h = 5381;
    for (size_t i = 0; i < length; i++) h = h * 33 + (unsigned char)text[i];
    return h;
}

static bool same(const struct name *n, const char *text, size_t length)
{
    return n->length == length && memcmp(n->name, text, length) == 0;
}

static void insert(uint32_t domain, struct name *names, size_t i)
{
    struct name *n = &names[i];
    uint32_t at = hash(n->name, n->length) % BUCKETS;
    while (buckets[domain][at] && !same(&names[buckets[domain][at] - 1], n->name, n->length)) at = (at + 1) % BUCKETS;
    buckets[domain][at] = (uint16_t)(i + 1);
}

static void build(void)
{
    for (size_t i = 0; i < NR(driver); i++) insert(SIMGPU_DRIVER, driver, i);
    for (size_t i = 0; i < NR(runtime); i++) {
        const char *v = strrchr(runtime[i].name, '_');
        if (v && v[1] == 'v' && strlen(v) >= 6) runtime[i].length = (size_t)(v - runtime[i].name);
        insert(SIMGPU_RUNTIME, runtime, i);
    }
}

uint32_t sim_cbid(uint32_t domain, const char *symbol)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, build);
    const struct name *names = domain == SIMGPU_DRIVER ? driver : runtime;
    size_t length = strlen(symbol);
    for (uint32_t at = hash(symbol, length) % BUCKETS; buckets[domain][at]; at = (at + 1) % BUCKETS) {
        const struct name *n = &names[buckets[domain][at] - 1];
        if (same(n, symbol, length)) return n->id;
    }
    return 0;
}

/* The headers' enumerations have no holes: the number behind the last one is their size. */
uint32_t sim_cbid_limit(uint32_t domain)
{
    const struct name *names = domain == SIMGPU_DRIVER ? driver : runtime;
    size_t n = domain == SIMGPU_DRIVER ? NR(driver) : NR(runtime);
    uint32_t limit = sim_nasty(NASTY_cbids) ? sim_nasty(NASTY_cbids) : SIM_CBIDS;
    return names[n - 1].id + 1 < limit ? names[n - 1].id + 1 : limit;
}

const char *sim_cbid_name(uint32_t domain, uint32_t cbid)
{
    const struct name *names = domain == SIMGPU_DRIVER ? driver : runtime;
    for (size_t i = 0; i < (domain == SIMGPU_DRIVER ? NR(driver) : NR(runtime)); i++)
        if (names[i].id == cbid && cbid < sim_cbid_limit(domain)) return names[i].name;
    return NULL;
}
