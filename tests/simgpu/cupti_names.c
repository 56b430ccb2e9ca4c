/* cupti_names.c - a simulated CUPTI: callback ids by name, from the lists of the public headers.
 *
 * The lists have a driver function under its ABI name, cuMemAlloc_v2. A runtime function has the version that
 * introduced it behind its name, cudaMalloc_v3020, and may appear twice: the newest entry counts. An id that the
 * simulated release lacks does not count. Release 13 dropped the _v2 from some runtime names, because it dropped their
 * first versions.
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

/* The names of release 12 that release 13's headers changed. */
static const struct {
    uint32_t id;
    const char *name;
} before_13[] = {{393, "cudaSignalExternalSemaphoresAsync_v2_v11020"},
                 {394, "cudaSignalExternalSemaphoresAsync_v2_ptsz_v11020"},
                 {395, "cudaWaitExternalSemaphoresAsync_v2_v11020"},
                 {396, "cudaWaitExternalSemaphoresAsync_v2_ptsz_v11020"},
                 {440, "cudaGetDeviceProperties_v2_v12000"},
                 {448, "cudaMemAdvise_v2_v12020"},
                 {449, "cudaMemPrefetchAsync_v2_v12020"},
                 {450, "cudaMemPrefetchAsync_v2_ptsz_v12020"},
                 {455, "cudaGraphGetEdges_v2_v12030"},
                 {456, "cudaGraphNodeGetDependencies_v2_v12030"},
                 {457, "cudaGraphNodeGetDependentNodes_v2_v12030"},
                 {458, "cudaGraphAddDependencies_v2_v12030"},
                 {459, "cudaGraphRemoveDependencies_v2_v12030"},
                 {460, "cudaGraphAddNode_v2_v12030"},
                 {461, "cudaStreamGetCaptureInfo_v3_v12030"},
                 {462, "cudaStreamGetCaptureInfo_v3_ptsz_v12030"},
                 {463, "cudaStreamUpdateCaptureDependencies_v2_v12030"},
                 {464, "cudaStreamUpdateCaptureDependencies_v2_ptsz_v12030"},
                 {486, "cudaEventElapsedTime_v2_v12080"}};

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
    if (n->id >= sim_config()->cbids[domain]) return;
    uint32_t at = hash(n->name, n->length) % BUCKETS;
    while (buckets[domain][at] && !same(&names[buckets[domain][at] - 1], n->name, n->length)) at = (at + 1) % BUCKETS;
    buckets[domain][at] = (uint16_t)(i + 1);
}

static void build(void)
{
    for (size_t i = 0; i < NR(driver); i++) insert(SIMGPU_DRIVER, driver, i);
    for (size_t i = 0; i < NR(runtime); i++) {
        for (size_t k = 0; sim_config()->version < 1300 && k < NR(before_13); k++)
            if (before_13[k].id == runtime[i].id) runtime[i].name = before_13[k].name;
        const char *v = strrchr(runtime[i].name, '_');
        if (v && v[1] == 'v' && strlen(v) >= 6) runtime[i].length = (size_t)(v - runtime[i].name);
        insert(SIMGPU_RUNTIME, runtime, i);
    }
}

static void ready(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, build);
}

uint32_t sim_cbid(uint32_t domain, const char *symbol)
{
    ready();
    const struct name *names = domain == SIMGPU_DRIVER ? driver : runtime;
    size_t length = strlen(symbol);
    for (uint32_t at = hash(symbol, length) % BUCKETS; buckets[domain][at]; at = (at + 1) % BUCKETS) {
        const struct name *n = &names[buckets[domain][at] - 1];
        if (same(n, symbol, length)) return n->id;
    }
    return 0;
}

uint32_t sim_cbid_limit(uint32_t domain)
{
    uint32_t limit = sim_config()->cbids[domain], less = sim_nasty(NASTY_cbids);
    return less && less < limit ? less : limit;
}

/* An id within the release's limit always has a name, even if the installed headers lack it. */
const char *sim_cbid_name(uint32_t domain, uint32_t cbid)
{
    ready();
    if (!cbid || cbid >= sim_cbid_limit(domain)) return NULL;
    const struct name *names = domain == SIMGPU_DRIVER ? driver : runtime;
    for (size_t i = 0; i < (domain == SIMGPU_DRIVER ? NR(driver) : NR(runtime)); i++)
        if (names[i].id == cbid) return names[i].name;
    return "reserved";
}
