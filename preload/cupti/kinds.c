/* kinds.c - enables CUPTI's records for us: kinds of device work, and single calls of the two APIs.
 *
 * Calls. Only the calls of an API that device records can belong to are requested. Their ids differ between releases,
 * and no header says that an id is checked, so an id beyond those of a release is never used. cuptiGetCallbackName
 * knows them. If it does not, or if single calls cannot be requested, the whole kind is enabled.
 *
 * Graphs are recorded node by node or launch by launch. After some 25 million nodes in a process CUPTI's pools are
 * exhausted: times of kernels are zero or reversed from then on, and CUPTI takes more and more of the device's
 * memory. The sign is a buffer in which more than one record in a hundred has no times. From then on launches are
 * recorded instead, which need no pools. The pools' limit is never lowered: the effect would be the same, only
 * earlier. While another client records it gets its nodes, whatever our setting is.
 *
 * Any thread, without a lock: CUPTI has its own, and all of this may be done twice.
 */
#include "control/config.h"
#include "cupti/client.h"
#include "record/log.h"

#define MOST_IDS 4096u /* releases have some 850 */
#define FEWEST 100u    /* fewest records of device work in a buffer that is judged */
#define SINGLE 23u     /* the version of CUDA 12.5, the first that records single calls */

enum { NODES = 0, SWITCH_TO_LAUNCHES = 1, LAUNCHES = 2 };
static uint32_t graphs;    /* the present recording of graphs */
static uint32_t suspended; /* GRAPH_TRACE, while another client records */

static bool enable(uint32_t kind)
{
    int result = tfi_cupti_api.ActivityEnable(kind);
    if (result == 0) __atomic_or_fetch(&tfi_cupti->kinds, 1ull << kind, __ATOMIC_RELAXED);
    else tfi_log(TFI_LOG_INFO, "CUPTI cannot record activity kind %u: %s", kind, tfi_cupti_error(result));
    return result == 0;
}

/* Returns the first callback id of an API that this release lacks; 1 if that cannot be known. */
static uint32_t first_unknown(uint32_t domain)
{
    enum { DRIVER_CALLBACKS = 1, RUNTIME_CALLBACKS = 2 };
    static uint32_t known[2];
    uint32_t *end = &known[domain == TFI_CUPTI_RUNTIME], before = __atomic_load_n(end, __ATOMIC_RELAXED);
    uint32_t id = before ? before : 1;
    int callbacks = domain == TFI_CUPTI_RUNTIME ? RUNTIME_CALLBACKS : DRIVER_CALLBACKS;
    const char *name;
    while (!before && tfi_cupti_api.GetCallbackName && id < MOST_IDS &&
           tfi_cupti_api.GetCallbackName(callbacks, id, &name) == 0)
        id++;
    __atomic_store_n(end, id, __ATOMIC_RELAXED);
    return id;
}

static unsigned enable_single(uint32_t domain)
{
    int (*one)(uint32_t, uint8_t) =
        domain == TFI_CUPTI_RUNTIME ? tfi_cupti_api.ActivityEnableRuntimeApi : tfi_cupti_api.ActivityEnableDriverApi;
    uint32_t end = one ? first_unknown(domain) : 1;
    unsigned enabled = 0;
    for (unsigned i = 0; i < tfi_cupti_nr_calls; i++)
        if (tfi_cupti_calls[i].domain == domain && tfi_cupti_calls[i].number < end)
            enabled += one(tfi_cupti_calls[i].number, 1) == 0;
    return enabled;
}

void tfi_kinds_enable_calls(uint32_t domain)
{
    static uint32_t said;
    if (enable_single(domain)) return;
    enable(domain);
    if (tfi_cupti_api.version < SINGLE && !__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED))
        tfi_log(TFI_LOG_WARN,
                "CUPTI before CUDA 12.5 records every call of CUDA, not only those that start or await work: recording "
                "costs the program more than with later releases");
}

bool tfi_kinds_enable(void)
{
    static const uint8_t kinds[] = {TFI_CUPTI_MEMCPY, TFI_CUPTI_MEMCPY2, TFI_CUPTI_MEMSET, TFI_CUPTI_SYNCHRONIZATION,
                                    TFI_CUPTI_OVERHEAD};
    bool other = tfi_other_wants(TFI_CUPTI_KERNEL);
    if (other) tfi_cupti_api.ActivityDisable(TFI_CUPTI_KERNEL); /* other_clients.c gives that client ours */
    int result = tfi_cupti_api.ActivityEnable(TFI_CUPTI_CONCURRENT_KERNEL);
    if (result != 0) {
        if (other) tfi_cupti_api.ActivityEnable(TFI_CUPTI_KERNEL);
        tfi_log(TFI_LOG_WARN, "no device records: %s reports \"%s\"; stages are still recorded", tfi_cupti_api.path,
                tfi_cupti_error(result));
        return false;
    }
    __atomic_or_fetch(&tfi_cupti->kinds, 1ull << TFI_CUPTI_CONCURRENT_KERNEL, __ATOMIC_RELAXED);
    for (size_t i = 0; i < TFI_COUNT(kinds); i++) enable(kinds[i]);
    if (tfi_config.graphs == TFI_GRAPHS_GRAPH || graphs == LAUNCHES) enable(TFI_CUPTI_GRAPH_TRACE);
    tfi_kinds_enable_calls(TFI_CUPTI_RUNTIME);
    tfi_kinds_enable_calls(TFI_CUPTI_DRIVER);
    return true;
}

void tfi_kinds_disable(void)
{
    uint64_t kinds = __atomic_exchange_n(&tfi_cupti->kinds, 0, __ATOMIC_RELAXED) | 1ull << TFI_CUPTI_RUNTIME |
                     1ull << TFI_CUPTI_DRIVER;
    for (uint32_t kind = 1; kind < 64; kind++)
        if (kinds >> kind & 1) tfi_cupti_api.ActivityDisable(kind);
}

/* Switches the kinds in which our own actions leave records: a flush is an overhead, and asking the driver is a
 * driver call. Their records would stay behind in a new buffer after the last flush. */
void tfi_kinds_switch_own(bool on)
{
    static const uint8_t kinds[] = {TFI_CUPTI_OVERHEAD, TFI_CUPTI_DRIVER, TFI_CUPTI_RUNTIME};
    for (size_t i = 0; i < TFI_COUNT(kinds); i++) {
        if (!(tfi_cupti->kinds >> kinds[i] & 1) || tfi_other_wants(kinds[i])) continue;
        if (on) tfi_cupti_api.ActivityEnable(kinds[i]);
        else tfi_cupti_api.ActivityDisable(kinds[i]);
    }
}

/* ---- graphs ---- */

void tfi_kinds_judge(uint32_t timed, uint32_t timeless, bool of_graphs)
{
    static uint32_t said;
    uint32_t nodes = NODES;
    if (timed < FEWEST || (uint64_t)timeless * 100 <= timed) return;
    if (__atomic_load_n(&tfi_cupti->last, __ATOMIC_ACQUIRE)) return; /* work that runs at the end has no end time */
    if (of_graphs && tfi_config.graphs != TFI_GRAPHS_GRAPH)
        __atomic_compare_exchange_n(&graphs, &nodes, SWITCH_TO_LAUNCHES, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    if (__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED)) return;
    tfi_log(TFI_LOG_WARN, "%u of %u device records in one CUPTI buffer have no valid times; %s", timeless, timed,
            of_graphs ? "from now on each graph launch is one record, as with TFI_GRAPHS=graph"
                      : "set TFI_GRAPHS=graph to reduce CUPTI's work");
}

void tfi_kinds_adapt(void)
{
    if (TFI_LIKELY(__atomic_load_n(&graphs, __ATOMIC_RELAXED) != SWITCH_TO_LAUNCHES)) return;
    if (tfi_other_edges() & 1 || __atomic_load_n(&tfi_cupti_away, __ATOMIC_ACQUIRE)) return;
    graphs = LAUNCHES;
    enable(TFI_CUPTI_GRAPH_TRACE);
}

void tfi_kinds_window(bool begins)
{
    uint64_t bit = 1ull << TFI_CUPTI_GRAPH_TRACE;
    if (!tfi_cupti->on || __atomic_load_n(&tfi_cupti_away, __ATOMIC_ACQUIRE)) return;
    if (begins && tfi_cupti->kinds & bit && tfi_cupti_api.ActivityDisable(TFI_CUPTI_GRAPH_TRACE) == 0) {
        __atomic_and_fetch(&tfi_cupti->kinds, ~bit, __ATOMIC_RELAXED);
        __atomic_store_n(&suspended, 1, __ATOMIC_RELEASE);
    } else if (!begins && __atomic_exchange_n(&suspended, 0, __ATOMIC_ACQ_REL)) {
        enable(TFI_CUPTI_GRAPH_TRACE);
    }
}
