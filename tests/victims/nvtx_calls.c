/* nvtx_calls.c - calls every function of NVTX's core once, with the real header, and prints each result.
 *
 * A line is "function value", or "function errno N" if the call changed errno. The test knows the records of each call.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <nvtx3/nvToolsExt.h>

#define MARKER 77 /* a value that no function sets */

static void said(const char *function, int64_t value)
{
    if (errno != MARKER) printf("%s errno %d\n", function, errno);
    printf("%s %" PRId64 "\n", function, value);
    errno = MARKER;
}

#define DO(function, ...)                                                                                              \
    do {                                                                                                               \
        nvtx##function(__VA_ARGS__);                                                                                   \
        said(#function, 0);                                                                                            \
    } while (0)

static nvtxEventAttributes_t event(const char *text)
{
    nvtxEventAttributes_t a = {0};
    a.version = NVTX_VERSION;
    a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    a.messageType = NVTX_MESSAGE_TYPE_ASCII;
    a.message.ascii = text;
    return a;
}

/* Returns the same event with all attributes set. */
static nvtxEventAttributes_t full_event(const char *text)
{
    nvtxEventAttributes_t a = event(text);
    a.category = 5;
    a.colorType = NVTX_COLOR_ARGB;
    a.color = 0xff102030;
    a.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    a.payload.llValue = -9;
    return a;
}

static void core(void)
{
    nvtxEventAttributes_t a = full_event("mark ex");
    DO(MarkEx, &a);
    DO(MarkA, "mark a");
    DO(MarkW, L"mark w \u00e4\u20ac\U0001f600");
    a = full_event("start ex");
    nvtxRangeId_t ids[3] = {nvtxRangeStartEx(&a), nvtxRangeStartA("start a"), nvtxRangeStartW(L"start w")};
    said("RangeStart", ids[0] && ids[1] && ids[2] && ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
    for (int i = 0; i < 3; i++) DO(RangeEnd, ids[i]);
    a = full_event("push ex");
    said("RangePushEx", nvtxRangePushEx(&a));
    said("RangePushA", nvtxRangePushA("push a"));
    said("RangePushW", nvtxRangePushW(L"push w"));
    for (int i = 0; i < 3; i++) said("RangePop", nvtxRangePop());
    said("RangePop", nvtxRangePop());
    DO(NameCategoryA, 5, "category a");
    DO(NameCategoryW, 6, L"category w");
    DO(NameOsThreadA, (uint32_t)syscall(SYS_gettid), "thread a");
    DO(NameOsThreadW, 4711, L"thread w");
}

static void resources(nvtxDomainHandle_t domain)
{
    nvtxResourceAttributes_t r = {0};
    r.version = NVTX_VERSION;
    r.size = NVTX_RESOURCE_ATTRIB_STRUCT_SIZE;
    r.identifierType = NVTX_RESOURCE_TYPE_GENERIC_POINTER;
    r.identifier.pValue = &r;
    r.messageType = NVTX_MESSAGE_TYPE_ASCII;
    r.message.ascii = "a lock";
    nvtxResourceHandle_t handle = nvtxDomainResourceCreate(domain, &r);
    said("DomainResourceCreate", handle != NULL);
    DO(DomainResourceDestroy, handle);
    r.identifierType = NVTX_RESOURCE_TYPE_GENERIC_THREAD_NATIVE;
    r.identifier.ullValue = 4712;
    r.message.ascii = "thread resource";
    said("DomainResourceCreate", nvtxDomainResourceCreate(domain, &r) != NULL);
}

static void core2(void)
{
    nvtxDomainHandle_t a = nvtxDomainCreateA("domain a"), w = nvtxDomainCreateW(L"domain w");
    said("DomainCreate", a != NULL && w != NULL && a != w);
    nvtxStringHandle_t text = nvtxDomainRegisterStringA(a, "registered a");
    nvtxStringHandle_t wide = nvtxDomainRegisterStringW(w, L"registered w \u00e4");
    said("DomainRegisterString", text != NULL && wide != NULL && text != wide);
    nvtxEventAttributes_t registered = event(NULL);
    registered.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    registered.message.registered = text;
    nvtxEventAttributes_t unicode = event(NULL);
    unicode.messageType = NVTX_MESSAGE_TYPE_UNICODE;
    unicode.message.unicode = L"unicode";
    nvtxEventAttributes_t plain = event("plain");

    DO(DomainMarkEx, a, &registered);
    said("DomainRangePushEx", nvtxDomainRangePushEx(a, &registered));
    said("DomainRangePushEx", nvtxDomainRangePushEx(w, &unicode));
    said("DomainRangePushEx", nvtxDomainRangePushEx(a, &plain));
    registered.message.registered = wide;
    said("DomainRangePushEx", nvtxDomainRangePushEx(NULL, &registered));
    said("DomainRangePop", nvtxDomainRangePop(a));
    said("DomainRangePop", nvtxDomainRangePop(w));
    said("DomainRangePop", nvtxDomainRangePop(a));
    said("RangePop", nvtxRangePop());
    nvtxRangeId_t id = nvtxDomainRangeStartEx(w, &plain);
    said("DomainRangeStartEx", id != 0);
    DO(DomainRangeEnd, w, id);
    DO(DomainNameCategoryA, a, 5, "category of a");
    DO(DomainNameCategoryW, w, 5, L"category of w");
    resources(a);
    DO(DomainDestroy, a);
    DO(DomainDestroy, w);
}

int main(void)
{
    errno = MARKER;
    DO(Initialize, NULL);
    core();
    core2();
    return 0;
}
