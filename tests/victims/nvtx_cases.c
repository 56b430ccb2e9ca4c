/* nvtx_cases.c - unusual uses of NVTX: `nvtx_cases CASE` runs one. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nvtx3/nvToolsExt.h>

static nvtxEventAttributes_t event(const char *text)
{
    nvtxEventAttributes_t a = {0};
    a.version = NVTX_VERSION;
    a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    a.messageType = NVTX_MESSAGE_TYPE_ASCII;
    a.message.ascii = text;
    return a;
}

static int push(nvtxDomainHandle_t domain, const char *text)
{
    nvtxEventAttributes_t a = event(text);
    return nvtxDomainRangePushEx(domain, &a);
}

/* Makes only names and handles: the process must stay asleep. */
static void names(void)
{
    nvtxDomainHandle_t domain = nvtxDomainCreateA("mine");
    nvtxDomainRegisterStringA(domain, "text");
    nvtxDomainNameCategoryA(domain, 3, "early category");
    nvtxNameCategoryA(4, "replaced");
    nvtxNameCategoryA(4, "early default category");
    nvtxNameOsThreadA(4713, "early thread");
}

/* Makes names, then a range that wakes the process. */
static void names_first(void)
{
    names();
    nvtxRangePushA("first");
    nvtxRangePop();
}

/* A library's own domain neither wakes the process nor makes stages. */
static void library_only(void)
{
    nvtxDomainHandle_t nccl = nvtxDomainCreateA("NCCL");
    nvtxEventAttributes_t a = event("ncclAllReduce");
    a.payloadType = (int32_t)0xDFBD0009;
    a.payload.ullValue = 0x1234;
    printf("%d ", nvtxDomainRangePushEx(nccl, &a));
    printf("%d ", nvtxDomainRangePop(nccl));
    nvtxRangeId_t id = nvtxDomainRangeStartEx(nccl, &a);
    printf("%" PRIu64 "\n", id);
    nvtxDomainRangeEnd(nccl, id);
    nvtxDomainMarkEx(nccl, &a);
}

static void library(void)
{
    library_only();
    nvtxRangePushA("stage");
    library_only();
    push(nvtxDomainCreateA("cublas"), "gemm");
    push(nvtxDomainCreateW(L"CaskEnhanced_x"), "cask");
    nvtxDomainHandle_t own = nvtxDomainCreateA("ncclish");
    push(own, "of the program");
    nvtxDomainRangePop(own);
    nvtxRangePop();
}

static void *end_it(void *id)
{
    nvtxRangeEnd(*(nvtxRangeId_t *)id);
    return NULL;
}

/* One thread starts a range and another ends it; two ranges overlap; one is never ended. */
static void across(void)
{
    pthread_t thread;
    nvtxRangeId_t id = nvtxRangeStartA("across"), other = nvtxRangeStartA("overlapping");
    nvtxRangeStartA("never ended");
    pthread_create(&thread, NULL, end_it, &id);
    pthread_join(thread, NULL);
    nvtxRangeEnd(other);
}

static void unmatched(void)
{
    nvtxRangePushA("one");
    printf("%d ", nvtxRangePop());
    printf("%d ", nvtxRangePop());
    nvtxRangeEnd(12345678);
    printf("%d\n", nvtxRangePop());
}

/* The first call is a pop, which must not wake the process. */
static void pop_only(void)
{
    printf("%d\n", nvtxRangePop());
}

static void deep(void)
{
    char name[32];
    int wrong = 0;
    for (int i = 0; i < 10000; i++) {
        snprintf(name, sizeof name, "level %d", i);
        wrong += nvtxRangePushA(name) != i;
    }
    for (int i = 10000; i-- > 0;) wrong += nvtxRangePop() != i;
    printf("%d wrong\n", wrong);
}

/* Both sides of a fork use handles made before it; the child numbers its strings itself. */
static void forked(void)
{
    char name[32];
    nvtxDomainHandle_t domain = nvtxDomainCreateA("before fork");
    nvtxEventAttributes_t a = event(NULL);
    a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    a.message.registered = nvtxDomainRegisterStringA(domain, "registered before fork");
    nvtxDomainNameCategoryA(domain, 9, "category before fork");
    for (int i = 0; i < 20; i++) { /* makes the parent's numbers differ from the child's */
        snprintf(name, sizeof name, "parent %d", i);
        nvtxMarkA(name);
    }
    nvtxDomainRangePushEx(domain, &a);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        nvtxDomainRangePushEx(domain, &a);
        nvtxDomainRangePop(domain);
        exit(0);
    }
    waitpid(child, NULL, 0);
    nvtxDomainRangePop(domain);
}

static void payload(const char *name, int32_t type, const void *value, size_t bytes)
{
    nvtxEventAttributes_t a = event(name);
    memset(&a.payload, 0xee, sizeof a.payload);
    memcpy(&a.payload, value, bytes);
    a.payloadType = type;
    nvtxMarkEx(&a);
}

static void payloads(void)
{
    uint64_t u64 = UINT64_MAX - 1;
    int64_t i64 = INT64_MIN + 1;
    double d = -1.5;
    uint32_t u32 = UINT32_MAX - 1;
    int32_t i32 = -7;
    float f = 0.25f;
    payload("uint64", NVTX_PAYLOAD_TYPE_UNSIGNED_INT64, &u64, sizeof u64);
    payload("int64", NVTX_PAYLOAD_TYPE_INT64, &i64, sizeof i64);
    payload("double", NVTX_PAYLOAD_TYPE_DOUBLE, &d, sizeof d);
    payload("uint32", NVTX_PAYLOAD_TYPE_UNSIGNED_INT32, &u32, sizeof u32);
    payload("int32", NVTX_PAYLOAD_TYPE_INT32, &i32, sizeof i32);
    payload("float", NVTX_PAYLOAD_TYPE_FLOAT, &f, sizeof f);
    payload("none", NVTX_PAYLOAD_UNKNOWN, &u64, sizeof u64);
    payload("extended", (int32_t)0xDFBD0009, &u64, sizeof u64);
}

/* Attributes of other sizes than this header's, an unknown kind of colour, invalid messages. */
static void attributes(void)
{
    nvtxEventAttributes_t a = event("not read, as it lies outside the size");
    a.category = 8;
    a.color = 0xff00ff00;
    a.size = 8;
    nvtxMarkEx(&a);
    a = event("color without type");
    a.color = 0xff00ff00;
    nvtxMarkEx(&a);
    struct {
        nvtxEventAttributes_t known;
        char more[64];
    } larger = {.known = event("larger")};
    larger.known.size = sizeof larger;
    nvtxMarkEx(&larger.known);
    nvtxMarkEx(NULL);
    nvtxMarkA(NULL);
    nvtxMarkW(NULL);
    nvtxMarkA("");
    a = event("unknown message type");
    a.messageType = 99;
    nvtxMarkEx(&a);
    a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    a.message.registered = NULL;
    nvtxMarkEx(&a);
    a.message.registered = (nvtxStringHandle_t)(void *)&a; /* not a handle */
    nvtxMarkEx(&a);
    nvtxDomainMarkEx((nvtxDomainHandle_t)(void *)&a, &larger.known);
    wchar_t bad[] = {'b', 0xd800, 0x7fffffff, 'd', 0};
    nvtxMarkW(bad);
}

/* A repeated text gives one handle. Endless new texts give only as many handles as there is room for. */
static void handles(void)
{
    char name[512];
    nvtxStringHandle_t first = nvtxDomainRegisterStringA(NULL, "same"), last = NULL;
    int same = 1;
    for (int i = 0; i < 100000; i++) same &= nvtxDomainRegisterStringA(NULL, "same") == first;
    memset(name, 'x', sizeof name);
    for (int i = 0; i < 100000; i++) {
        snprintf(name, 16, "%014d", i);
        name[14] = 'x';
        name[sizeof name - 1] = 0;
        last = nvtxDomainRegisterStringA(NULL, name);
    }
    printf("%d %d\n", same, last != NULL);
    nvtxEventAttributes_t a = event(NULL);
    a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    a.message.registered = first;
    nvtxMarkEx(&a);
    a.message.registered = last;
    nvtxMarkEx(&a);
}

/* Names at the usual limits, and longer than the library keeps. */
static void lengths(void)
{
    static char text[70000];
    static wchar_t wide[5000];
    memset(text, 'n', sizeof text - 1);
    nvtxMarkA(text);
    text[60000] = 0;
    nvtxMarkA(text);
    for (size_t i = 0; i + 1 < sizeof wide / sizeof *wide; i++) wide[i] = 0x20ac;
    nvtxMarkW(wide);
}

static void *same_text(void *unused)
{
    nvtxEventAttributes_t a = event(NULL);
    char name[32];
    (void)unused;
    a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "shared %d", i);
        nvtxDomainHandle_t domain = nvtxDomainCreateA("shared");
        a.message.registered = nvtxDomainRegisterStringA(domain, name);
        nvtxDomainRangePushEx(domain, &a);
        nvtxDomainNameCategoryA(domain, (uint32_t)i % 4, "shared category");
        nvtxDomainRangePop(domain);
    }
    return NULL;
}

/* Eight threads make and use the same handles from the start. */
static void race(void)
{
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, same_text, NULL);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
}

#define CASE(name)                                                                                                     \
    {                                                                                                                  \
#name, name                                                                                                    \
    }
static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {CASE(names),      CASE(names_first), CASE(library_only), CASE(library), CASE(across),
             CASE(unmatched),  CASE(pop_only),    CASE(deep),         CASE(forked),  CASE(payloads),
             CASE(attributes), CASE(handles),     CASE(lengths),      CASE(race)};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, argv[1]) != 0) continue;
        cases[i].run();
        return 0;
    }
    fprintf(stderr, "nvtx_cases: no such case\n");
    return 2;
}
