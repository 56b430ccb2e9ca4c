/* nvtx.c - turns the calls of every NVTX copy in the process into stages and marks.
 *
 * Each library that uses NVTX carries a copy of its own. A copy's first call loads the library that
 * NVTX_INJECTION64_PATH names and calls InitializeInjectionNvtx2(), which thus runs once for each copy, in any
 * thread. The callbacks of all copies are the same functions, so a handle or a range from one copy is good in every
 * other.
 *
 * A stage or a mark of the program's own wakes a sleeping process. A range of a library's own domain
 * (include/domains.def) and a call that only names something do not. Programs see a tool's return values: depths, ids
 * and handles while something is recorded, else NVTX's own answers for "no tool".
 */
#include "nvtx/nvtx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>

#include "base/tfi.h"
#include "control/config.h"
#include "nvtx/names.h"
#include "record/enter.h"
#include "record/strings.h"
#include "stage/stage.h"

/* All resources share this handle: only names of threads are taken from them. */
static char resource;

/* ---- ranges and marks ---- */

/* Arguments of a call as they came: nothing is copied or looked up before it is known that the call is recorded. */
struct said {
    struct tfi_handle *domain; /* NULL: the default domain */
    const nvtxEventAttributes_t *attributes;
    int32_t type; /* nvtxMessageType_t */
    nvtxMessageValue_t message;
};

#define SAID_A(text) (&(struct said){.type = NVTX_MESSAGE_TYPE_ASCII, .message.ascii = (text)})
#define SAID_W(text) (&(struct said){.type = NVTX_MESSAGE_TYPE_UNICODE, .message.unicode = (text)})

/* True if the attributes are large enough to hold a field. Versions only ever add fields at the end, so the size
 * alone tells which fields may be read. */
#define HOLDS(attributes, field)                                                                                       \
    ((attributes)->size >= offsetof(nvtxEventAttributes_t, field) + sizeof((attributes)->field))

static struct said said_in(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes)
{
    struct said said = {.domain = tfi_handle_of(domain, TFI_HANDLE_DOMAIN), .attributes = attributes};
    if (attributes && HOLDS(attributes, message)) {
        said.type = attributes->messageType;
        said.message = attributes->message;
    }
    return said;
}

static uint32_t narrow_number(const char *text)
{
    return text ? tfi_string(text, strnlen(text, TFI_STRING_MAX)) : 0;
}

static uint32_t message_number(const struct said *said)
{
    switch (said->type) {
    case NVTX_MESSAGE_TYPE_ASCII: return narrow_number(said->message.ascii);
    case NVTX_MESSAGE_TYPE_UNICODE: return tfi_wide_number(said->message.unicode);
    case NVTX_MESSAGE_TYPE_REGISTERED:
        return tfi_handle_number(tfi_handle_of(said->message.registered, TFI_HANDLE_STRING));
    default: return 0;
    }
}

/* The payload's bits; 32-bit integers are widened by their sign. Schemas of the payload extension hold no value. */
static uint64_t payload_bits(const nvtxEventAttributes_t *a)
{
    uint32_t bits;
    memcpy(&bits, &a->payload, sizeof bits);
    switch (a->payloadType) {
    case NVTX_PAYLOAD_TYPE_UNSIGNED_INT64:
    case NVTX_PAYLOAD_TYPE_INT64:
    case NVTX_PAYLOAD_TYPE_DOUBLE: return a->payload.ullValue;
    case NVTX_PAYLOAD_TYPE_INT32: return (uint64_t)(int64_t)(int32_t)bits;
    case NVTX_PAYLOAD_TYPE_UNSIGNED_INT32:
    case NVTX_PAYLOAD_TYPE_FLOAT: return bits;
    default: return 0;
    }
}

static struct tfi_range range_of(const struct said *said)
{
    const nvtxEventAttributes_t *a = said->attributes;
    bool stage = !said->domain || said->domain->stage;
    struct tfi_range range = {.name = message_number(said),
                              .domain = tfi_handle_number(said->domain),
                              .flags = TFI_RANGE_NVTX | (stage ? TFI_RANGE_STAGE : 0)};
    if (!a) return range;
    if (HOLDS(a, category)) range.category = a->category;
    if (HOLDS(a, color) && a->colorType == NVTX_COLOR_ARGB) range.color = a->color;
    if (HOLDS(a, payload) && tfi_config.record_values) {
        range.payload_type = (uint32_t)a->payloadType;
        range.payload = payload_bits(a);
    }
    return range;
}

static enum tfi_why why(const struct tfi_handle *domain)
{
    return !domain || domain->stage ? TFI_WHY_STAGE : TFI_WHY_NONE;
}

static int push(const struct said *said)
{
    struct tfi_thread *thread = tfi_enter(why(said->domain));
    if (!thread) return NVTX_NO_PUSH_POP_TRACKING;
    struct tfi_range range = range_of(said);
    int depth = tfi_stage_push(thread, &range);
    tfi_leave(thread);
    return depth;
}

/* Never wakes the process: the beginning of the range has done so if the range is recorded. */
static int pop(struct tfi_handle *domain)
{
    struct tfi_thread *thread = tfi_enter(TFI_WHY_NONE);
    if (!thread) return NVTX_NO_PUSH_POP_TRACKING;
    int depth = tfi_stage_pop(thread, tfi_handle_number(domain));
    tfi_leave(thread);
    return depth;
}

static nvtxRangeId_t start(const struct said *said)
{
    struct tfi_thread *thread = tfi_enter(why(said->domain));
    if (!thread) return 0;
    struct tfi_range range = range_of(said);
    uint64_t id = tfi_stage_start(thread, &range);
    tfi_leave(thread);
    return id;
}

/* Ids are unique in the process, whatever their domain. start() returns 0 while nothing is recorded. */
static void end(nvtxRangeId_t id)
{
    struct tfi_thread *thread = id ? tfi_enter(TFI_WHY_NONE) : NULL;
    if (!thread) return;
    tfi_stage_end(thread, id);
    tfi_leave(thread);
}

static void mark(const struct said *said)
{
    struct tfi_thread *thread = tfi_enter(why(said->domain));
    if (!thread) return;
    struct tfi_range range = range_of(said);
    range.flags &= ~(uint32_t)TFI_RANGE_STAGE;
    tfi_stage_mark(thread, &range);
    tfi_leave(thread);
}

/* ---- the callbacks, named as in NVTX ---- */

static void on_MarkEx(const nvtxEventAttributes_t *attributes)
{
    struct said said = said_in(NULL, attributes);
    mark(&said);
}

static void on_MarkA(const char *message)
{
    mark(SAID_A(message));
}

static void on_MarkW(const wchar_t *message)
{
    mark(SAID_W(message));
}

static nvtxRangeId_t on_RangeStartEx(const nvtxEventAttributes_t *attributes)
{
    struct said said = said_in(NULL, attributes);
    return start(&said);
}

static nvtxRangeId_t on_RangeStartA(const char *message)
{
    return start(SAID_A(message));
}

static nvtxRangeId_t on_RangeStartW(const wchar_t *message)
{
    return start(SAID_W(message));
}

static void on_RangeEnd(nvtxRangeId_t id)
{
    end(id);
}

static int on_RangePushEx(const nvtxEventAttributes_t *attributes)
{
    struct said said = said_in(NULL, attributes);
    return push(&said);
}

static int on_RangePushA(const char *message)
{
    return push(SAID_A(message));
}

static int on_RangePushW(const wchar_t *message)
{
    return push(SAID_W(message));
}

static int on_RangePop(void)
{
    return pop(NULL);
}

static void on_NameCategoryA(uint32_t category, const char *name)
{
    tfi_name_category(NULL, category, tfi_handle_a(TFI_HANDLE_STRING, name));
}

static void on_NameCategoryW(uint32_t category, const wchar_t *name)
{
    tfi_name_category(NULL, category, tfi_handle_w(TFI_HANDLE_STRING, name));
}

static void on_NameOsThreadA(uint32_t thread, const char *name)
{
    tfi_name_thread(thread, tfi_handle_a(TFI_HANDLE_STRING, name));
}

static void on_NameOsThreadW(uint32_t thread, const wchar_t *name)
{
    tfi_name_thread(thread, tfi_handle_w(TFI_HANDLE_STRING, name));
}

static void on_DomainMarkEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes)
{
    struct said said = said_in(domain, attributes);
    mark(&said);
}

static nvtxRangeId_t on_DomainRangeStartEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes)
{
    struct said said = said_in(domain, attributes);
    return start(&said);
}

static void on_DomainRangeEnd(nvtxDomainHandle_t domain, nvtxRangeId_t id)
{
    (void)domain;
    end(id);
}

static int on_DomainRangePushEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes)
{
    struct said said = said_in(domain, attributes);
    return push(&said);
}

static int on_DomainRangePop(nvtxDomainHandle_t domain)
{
    return pop(tfi_handle_of(domain, TFI_HANDLE_DOMAIN));
}

/* Names a thread if the resource is a thread of the system and has a text. */
static nvtxResourceHandle_t on_DomainResourceCreate(nvtxDomainHandle_t domain, nvtxResourceAttributes_t *a)
{
    (void)domain;
    if (a && a->size >= sizeof *a && a->identifierType == NVTX_RESOURCE_TYPE_GENERIC_THREAD_NATIVE) {
        uint32_t tid = (uint32_t)a->identifier.ullValue;
        if (a->messageType == NVTX_MESSAGE_TYPE_ASCII)
            tfi_name_thread(tid, tfi_handle_a(TFI_HANDLE_STRING, a->message.ascii));
        else if (a->messageType == NVTX_MESSAGE_TYPE_UNICODE)
            tfi_name_thread(tid, tfi_handle_w(TFI_HANDLE_STRING, a->message.unicode));
        else if (a->messageType == NVTX_MESSAGE_TYPE_REGISTERED && a->message.registered)
            tfi_name_thread(tid, tfi_handle_of(a->message.registered, TFI_HANDLE_STRING));
    }
    return (nvtxResourceHandle_t)(void *)&resource;
}

static void on_DomainResourceDestroy(nvtxResourceHandle_t handle)
{
    (void)handle;
}

static void on_DomainNameCategoryA(nvtxDomainHandle_t domain, uint32_t category, const char *name)
{
    tfi_name_category(tfi_handle_of(domain, TFI_HANDLE_DOMAIN), category, tfi_handle_a(TFI_HANDLE_STRING, name));
}

static void on_DomainNameCategoryW(nvtxDomainHandle_t domain, uint32_t category, const wchar_t *name)
{
    tfi_name_category(tfi_handle_of(domain, TFI_HANDLE_DOMAIN), category, tfi_handle_w(TFI_HANDLE_STRING, name));
}

/* NVTX assigns a string to a domain; only its text is used here. */
static nvtxStringHandle_t on_DomainRegisterStringA(nvtxDomainHandle_t domain, const char *text)
{
    (void)domain;
    return (nvtxStringHandle_t)(void *)tfi_handle_a(TFI_HANDLE_STRING, text);
}

static nvtxStringHandle_t on_DomainRegisterStringW(nvtxDomainHandle_t domain, const wchar_t *text)
{
    (void)domain;
    return (nvtxStringHandle_t)(void *)tfi_handle_w(TFI_HANDLE_STRING, text);
}

static nvtxDomainHandle_t on_DomainCreateA(const char *name)
{
    return (nvtxDomainHandle_t)(void *)tfi_handle_a(TFI_HANDLE_DOMAIN, name);
}

static nvtxDomainHandle_t on_DomainCreateW(const wchar_t *name)
{
    return (nvtxDomainHandle_t)(void *)tfi_handle_w(TFI_HANDLE_DOMAIN, name);
}

/* Does nothing: other parts of the program may use the same domain. */
static void on_DomainDestroy(nvtxDomainHandle_t domain)
{
    (void)domain;
}

static void on_Initialize(const void *reserved)
{
    (void)reserved;
}

/* ---- initialization ---- */

#define CORE(CALLBACK)                                                                                                 \
    CALLBACK(CORE, MarkEx)                                                                                             \
    CALLBACK(CORE, MarkA)                                                                                              \
    CALLBACK(CORE, MarkW)                                                                                              \
    CALLBACK(CORE, RangeStartEx)                                                                                       \
    CALLBACK(CORE, RangeStartA)                                                                                        \
    CALLBACK(CORE, RangeStartW)                                                                                        \
    CALLBACK(CORE, RangeEnd)                                                                                           \
    CALLBACK(CORE, RangePushEx)                                                                                        \
    CALLBACK(CORE, RangePushA)                                                                                         \
    CALLBACK(CORE, RangePushW)                                                                                         \
    CALLBACK(CORE, RangePop)                                                                                           \
    CALLBACK(CORE, NameCategoryA)                                                                                      \
    CALLBACK(CORE, NameCategoryW)                                                                                      \
    CALLBACK(CORE, NameOsThreadA)                                                                                      \
    CALLBACK(CORE, NameOsThreadW)

#define CORE2(CALLBACK)                                                                                                \
    CALLBACK(CORE2, DomainMarkEx)                                                                                      \
    CALLBACK(CORE2, DomainRangeStartEx)                                                                                \
    CALLBACK(CORE2, DomainRangeEnd)                                                                                    \
    CALLBACK(CORE2, DomainRangePushEx)                                                                                 \
    CALLBACK(CORE2, DomainRangePop)                                                                                    \
    CALLBACK(CORE2, DomainResourceCreate)                                                                              \
    CALLBACK(CORE2, DomainResourceDestroy)                                                                             \
    CALLBACK(CORE2, DomainNameCategoryA)                                                                               \
    CALLBACK(CORE2, DomainNameCategoryW)                                                                               \
    CALLBACK(CORE2, DomainRegisterStringA)                                                                             \
    CALLBACK(CORE2, DomainRegisterStringW)                                                                             \
    CALLBACK(CORE2, DomainCreateA)                                                                                     \
    CALLBACK(CORE2, DomainCreateW)                                                                                     \
    CALLBACK(CORE2, DomainDestroy)                                                                                     \
    CALLBACK(CORE2, Initialize)

/* These checks refuse to compile a callback with a wrong signature, and a module with a missing callback. */
#define SIGNATURE(module, name)                                                                                        \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&on_##name), nvtx##name##_impl_fntype), #name);
CORE(SIGNATURE)
CORE2(SIGNATURE)
#define ONE(module, name) +1
_Static_assert(CORE(ONE) + 1 == NVTX_CBID_CORE_SIZE, "CORE");
_Static_assert(CORE2(ONE) + 1 == NVTX_CBID_CORE2_SIZE, "CORE2");

#define ENTRY(module, name) [NVTX_CBID_##module##_##name] = (NvtxFunctionPointer)on_##name,
static const NvtxFunctionPointer core[NVTX_CBID_CORE_SIZE] = {CORE(ENTRY)};
static const NvtxFunctionPointer core2[NVTX_CBID_CORE2_SIZE] = {CORE2(ENTRY)};

/* Puts our callbacks into the table of one NVTX copy. The copy may be older and have fewer callbacks than we do, or
 * newer and have more. Callbacks that we do not know stay unset, and NVTX never calls those. */
static bool attach(const NvtxExportTableCallbacks *callbacks, NvtxCallbackModule module,
                   const NvtxFunctionPointer *ours, unsigned nr_ours)
{
    NvtxFunctionTable table = NULL;
    unsigned count = 0;
    if (!callbacks->GetModuleFunctionTable(module, &table, &count) || !table) return false;
    for (unsigned i = 0; i < count && i < nr_ours; i++)
        if (ours[i] && table[i]) *table[i] = ours[i];
    return true;
}

TFI_EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get);
TFI_EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get)
{
    const NvtxExportTableCallbacks *callbacks = get(NVTX_ETID_CALLBACKS);
    const NvtxExportTableVersionInfo *version = get(NVTX_ETID_VERSIONINFO);
    if (!callbacks || callbacks->struct_size < sizeof *callbacks) return 0;
    /* Another library's constructor may be the caller, before ours has run: tfi_enter() initializes in that case. */
    struct tfi_thread *thread = tfi_enter(TFI_WHY_NONE);
    if (thread) tfi_leave(thread);
    if (version && version->struct_size >= sizeof *version) version->SetInjectionNvtxVersion(NVTX_VERSION);
    bool attached = attach(callbacks, NVTX_CB_MODULE_CORE, core, TFI_COUNT(core));
    attached |= attach(callbacks, NVTX_CB_MODULE_CORE2, core2, TFI_COUNT(core2));
    return attached;
}
