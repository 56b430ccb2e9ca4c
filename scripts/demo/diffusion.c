/* diffusion.c - a C pipeline like a text-to-image one on a GPU: text_encode, denoise, vae_decode.
 *
 *     diffusion            runs; --json prints one line of JSON instead of text; --probe prints the GPU's name and ends
 *
 * The last steps of denoise are launches of one CUDA graph. The program is compiled without CUDA's libraries: it finds
 * the driver by dlopen, and its kernels are PTX text that any driver compiles. The numbers are small, but real: the CPU
 * computes each result too, by the same operations in the same order, and both must be equal bit by bit. On a simulated
 * GPU kernels compute nothing, so the program claims no result there. NVTX marks the stages; LOCAL_RANK chooses the
 * device. Exit status: 0, 1 something failed or differs, 77 no GPU.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>
#include <nvtx3/nvToolsExt.h>

#define N 64 /* latents, texts and weights are N by N */
#define CELLS (N * N)
#define BYTES (CELLS * sizeof(float))
#define STEPS 8       /* in denoise */
#define GRAPH_STEPS 4 /* the last of them, launched as one graph */

/* ---- the kernels: out[i] = (i % 16 - 7) * scale; y[i] += a * x[i]; c = alpha * a × b, a thread for each cell ---- */

// clang-format off
#define CELL /* the number of the thread's cell in r1, its offset in a4 */ \
    " .reg .pred %p<3>; .reg .b32 %r<8>; .reg .b64 %a<8>; .reg .f32 %f<6>;\n" \
    " mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r1, %r1, %r2, %r3;\n" \
    " setp.ge.u32 %p1, %r1, 4096; @%p1 bra DONE; mul.wide.u32 %a4, %r1, 4;\n"
static const char ptx[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry fill(.param .u64 out, .param .f32 scale) {\n"
    CELL
    " ld.param.u64 %a1, [out]; cvta.to.global.u64 %a1, %a1;\n"
    " ld.param.f32 %f1, [scale]; and.b32 %r4, %r1, 15; sub.s32 %r4, %r4, 7; cvt.rn.f32.s32 %f2, %r4;\n"
    " mul.rn.f32 %f2, %f2, %f1; add.u64 %a1, %a1, %a4; st.global.f32 [%a1], %f2;\n"
    "DONE: ret; }\n"
    ".visible .entry axpy(.param .u64 y, .param .u64 x, .param .f32 a) {\n"
    CELL
    " ld.param.u64 %a1, [y]; cvta.to.global.u64 %a1, %a1; ld.param.u64 %a2, [x]; cvta.to.global.u64 %a2, %a2;\n"
    " ld.param.f32 %f1, [a]; add.u64 %a1, %a1, %a4; add.u64 %a2, %a2, %a4;\n"
    " ld.global.f32 %f2, [%a1]; ld.global.f32 %f3, [%a2]; fma.rn.f32 %f2, %f1, %f3, %f2; st.global.f32 [%a1], %f2;\n"
    "DONE: ret; }\n"
    ".visible .entry matmul(.param .u64 c, .param .u64 a, .param .u64 b, .param .f32 alpha) {\n"
    CELL
    " ld.param.u64 %a1, [c]; cvta.to.global.u64 %a1, %a1; ld.param.u64 %a2, [a]; cvta.to.global.u64 %a2, %a2;\n"
    " ld.param.u64 %a3, [b]; cvta.to.global.u64 %a3, %a3;\n"
    " ld.param.f32 %f1, [alpha]; and.b32 %r4, %r1, 63; sub.u32 %r5, %r1, %r4; // column; the row times 64\n"
    " mul.wide.u32 %a5, %r5, 4; add.u64 %a2, %a2, %a5; mul.wide.u32 %a6, %r4, 4; add.u64 %a3, %a3, %a6;\n"
    " mov.f32 %f2, 0f00000000; mov.u32 %r6, 0;\n"
    "NEXT: ld.global.f32 %f3, [%a2]; ld.global.f32 %f4, [%a3]; fma.rn.f32 %f2, %f3, %f4, %f2;\n"
    " add.u64 %a2, %a2, 4; add.u64 %a3, %a3, 256; add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 64; @%p2 bra NEXT;\n"
    " mul.rn.f32 %f2, %f2, %f1; add.u64 %a1, %a1, %a4; st.global.f32 [%a1], %f2;\n"
    "DONE: ret; }\n";
// clang-format on

/* ---- the driver's functions, by the names in this header (cuMemAlloc is cuMemAlloc_v2) ---- */

// clang-format off
#define DRIVER(F) \
    F(cuInit) F(cuDriverGetVersion) F(cuDeviceGetCount) F(cuDeviceGet) F(cuDeviceGetName) \
    F(cuDevicePrimaryCtxRetain) F(cuDevicePrimaryCtxRelease) F(cuCtxSetCurrent) F(cuModuleLoadData) \
    F(cuModuleGetFunction) F(cuMemAlloc) F(cuMemFree) F(cuMemcpyHtoDAsync) F(cuMemcpyDtoH) F(cuMemsetD32Async) \
    F(cuLaunchKernel) F(cuStreamCreate) F(cuStreamDestroy) F(cuStreamSynchronize) F(cuStreamBeginCapture) \
    F(cuStreamEndCapture) F(cuGraphInstantiateWithFlags) F(cuGraphLaunch) F(cuGraphExecDestroy) \
    F(cuGraphDestroy) F(cuModuleUnload)
// clang-format on

#define MEMBER(name) __typeof__(name) *name;
#define TEXT(name) #name
#define NAME(name) TEXT(name)
static struct {
    DRIVER(MEMBER)
} driver;
#define CU(name) driver.name

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        CUresult result_ = (call);                                                                                     \
        if (result_ != CUDA_SUCCESS) fail(#call, (int)result_);                                                        \
    } while (0)

static bool simulated;
static char device_name[128];
static int driver_version;

static _Noreturn void fail(const char *what, int code)
{
    fprintf(stderr, "diffusion: %s: error %d\n", what, code);
    exit(1);
}

static int number_of(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    return text ? atoi(text) : otherwise;
}

/* Finds the driver and a device; false if there is none. */
static bool find_gpu(CUdevice *device)
{
    int count = 0;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library) return false;
#define FIND(name)                                                                                                     \
    *(void **)&CU(name) = dlsym(library, NAME(name));                                                                  \
    if (!CU(name)) fail("no " NAME(name) " in libcuda.so.1", 0);
    DRIVER(FIND)
    simulated = dlsym(library, "simgpu_now") != NULL;
    if (CU(cuInit)(0) != CUDA_SUCCESS || CU(cuDeviceGetCount)(&count) != CUDA_SUCCESS || count == 0) return false;
    CHECK(CU(cuDriverGetVersion)(&driver_version));
    CHECK(CU(cuDeviceGet)(device, number_of("LOCAL_RANK", 0) % count));
    CHECK(CU(cuDeviceGetName)(device_name, sizeof device_name, *device));
    return true;
}

/* ---- the pipeline ---- */

static CUstream stream;
static CUdeviceptr tokens, weights, text, latents, noise, image;
static float tokens_in[CELLS], image_out[CELLS];

/* Numbers of launches, for a test to compare: kernels by stage and name. A graph's kernels count when it runs. */
enum { TEXT_ENCODE, DENOISE, VAE_DECODE, STAGES };
enum { FILL, AXPY, MATMUL, COPY, SET, KINDS };
static const char *const stage_names[] = {"text_encode", "denoise", "vae_decode"};
static CUfunction kernels[COPY];
static const char *const kind_names[] = {"fill", "axpy", "matmul", "copies", "sets"};
static int counts[STAGES][KINDS];
static int stage_now, times = 1;

static void launch(int kind, void **parameters)
{
    CHECK(CU(cuLaunchKernel)(kernels[kind], CELLS / 256, 1, 1, 256, 1, 1, 0, stream, parameters, NULL));
    counts[stage_now][kind] += times;
}

static void matmul(CUdeviceptr c, CUdeviceptr a, CUdeviceptr b, float alpha)
{
    launch(MATMUL, (void *[]){&c, &a, &b, &alpha});
}

static void fill(CUdeviceptr out, float scale)
{
    launch(FILL, (void *[]){&out, &scale});
}

static void axpy(CUdeviceptr y, CUdeviceptr x, float a)
{
    launch(AXPY, (void *[]){&y, &x, &a});
}

static void text_encode(void)
{
    nvtxRangePushA("text_encode");
    stage_now = TEXT_ENCODE;
    CHECK(CU(cuMemcpyHtoDAsync)(tokens, tokens_in, BYTES, stream));
    counts[stage_now][COPY]++;
    fill(weights, 0.125f);
    matmul(text, tokens, weights, 1.0f / N);
    CHECK(CU(cuStreamSynchronize)(stream));
    nvtxRangePop();
}

/* latents -= (latents × text) / steps */
static void denoise_step(void)
{
    matmul(noise, latents, text, 1.0f / N);
    axpy(latents, noise, -1.0f / STEPS);
}

static void denoise(void)
{
    CUgraph graph;
    CUgraphExec exec;
    nvtxRangePushA("denoise");
    stage_now = DENOISE;
    CHECK(CU(cuMemsetD32Async)(noise, 0, CELLS, stream));
    counts[stage_now][SET]++;
    fill(latents, 0.5f);
    CHECK(CU(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    times = GRAPH_STEPS;
    denoise_step();
    times = 1;
    CHECK(CU(cuStreamEndCapture)(stream, &graph));
    CHECK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
    for (int step = 0; step < STEPS; step++) {
        nvtxRangePushA("step");
        if (step < STEPS - GRAPH_STEPS) denoise_step();
        else CHECK(CU(cuGraphLaunch)(exec, stream));
        nvtxRangePop();
    }
    CHECK(CU(cuStreamSynchronize)(stream));
    CHECK(CU(cuGraphExecDestroy)(exec));
    CHECK(CU(cuGraphDestroy)(graph));
    nvtxRangePop();
}

static void vae_decode(void)
{
    nvtxRangePushA("vae_decode");
    stage_now = VAE_DECODE;
    matmul(image, latents, weights, 1.0f);
    axpy(image, text, 0.5f);
    CHECK(CU(cuStreamSynchronize)(stream));
    CHECK(CU(cuMemcpyDtoH)(image_out, image, BYTES));
    counts[stage_now][COPY]++;
    nvtxRangePop();
}

static void run(CUdevice device)
{
    CUcontext context;
    CUmodule module;
    CUdeviceptr *buffers[] = {&tokens, &weights, &text, &latents, &noise, &image};
    CHECK(CU(cuDevicePrimaryCtxRetain)(&context, device));
    CHECK(CU(cuCtxSetCurrent)(context));
    CHECK(CU(cuModuleLoadData)(&module, ptx));
    for (int k = FILL; k < COPY; k++) CHECK(CU(cuModuleGetFunction)(&kernels[k], module, kind_names[k]));
    CHECK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) CHECK(CU(cuMemAlloc)(buffers[i], BYTES));
    text_encode();
    denoise();
    vae_decode();
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) CHECK(CU(cuMemFree)(*buffers[i]));
    CHECK(CU(cuStreamDestroy)(stream));
    CHECK(CU(cuModuleUnload)(module));
    CHECK(CU(cuDevicePrimaryCtxRelease)(device));
}

/* ---- the same computation on the CPU ---- */

static void host_fill(float *out, float scale)
{
    for (int i = 0; i < CELLS; i++) out[i] = (float)(i % 16 - 7) * scale;
}

static void host_axpy(float *y, const float *x, float a)
{
    for (int i = 0; i < CELLS; i++) y[i] = fmaf(a, x[i], y[i]);
}

static void host_matmul(float *c, const float *a, const float *b, float alpha)
{
    for (int i = 0; i < CELLS; i++) {
        float sum = 0;
        for (int k = 0; k < N; k++) sum = fmaf(a[i / N * N + k], b[k * N + i % N], sum);
        c[i] = sum * alpha;
    }
}

static void host_image(float *out)
{
    static float w[CELLS], t[CELLS], l[CELLS], n[CELLS];
    host_fill(w, 0.125f);
    host_matmul(t, tokens_in, w, 1.0f / N);
    host_fill(l, 0.5f);
    for (int step = 0; step < STEPS; step++) {
        host_matmul(n, l, t, 1.0f / N);
        host_axpy(l, n, -1.0f / STEPS);
    }
    host_matmul(out, l, w, 1.0f);
    host_axpy(out, t, 0.5f);
}

static uint64_t checksum(const void *data, size_t size)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < size; i++) hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    return hash;
}

/* ---- output ---- */

static void print_json(const char *result)
{
    printf("{\"rank\": %d, \"device\": \"%s\", \"simulated\": %s, \"driver_version\": %d, \"result\": \"%s\", "
           "\"checksum\": \"%016llx\", \"counts\": {",
           number_of("RANK", 0), device_name, simulated ? "true" : "false", driver_version, result,
           (unsigned long long)checksum(image_out, BYTES));
    for (int s = 0; s < STAGES; s++) {
        printf("%s\"%s\": {", s ? ", " : "", stage_names[s]);
        for (int k = 0; k < KINDS; k++) printf("%s\"%s\": %d", k ? ", " : "", kind_names[k], counts[s][k]);
        printf("}");
    }
    printf("}}\n");
}

int main(int argc, char **argv)
{
    static float expected[CELLS];
    const char *mode = argc > 1 ? argv[1] : "", *result = "not checked (simulated: its kernels compute nothing)";
    char gpu[256];
    CUdevice device;
    if (!find_gpu(&device)) {
        printf(strcmp(mode, "--json") == 0 ? "{\"device\": \"none\"}\n" : "no GPU\n");
        return 77;
    }
    snprintf(gpu, sizeof gpu, "%s %s, driver %d.%d", simulated ? "a simulated GPU," : "a real GPU,", device_name,
             driver_version / 1000, driver_version % 1000 / 10);
    if (strcmp(mode, "--probe") == 0) return printf("%s\n", gpu) < 0;
    for (int i = 0; i < CELLS; i++) tokens_in[i] = (float)((i * 7 + number_of("RANK", 0)) % 32 - 16) / 16;
    run(device);
    host_image(expected);
    bool equal = memcmp(expected, image_out, BYTES) == 0;
    if (!simulated) result = equal ? "equal to the CPU's, bit by bit" : "WRONG: differs from the CPU's";
    if (strcmp(mode, "--json") == 0) print_json(result);
    else printf("rank %d of %d on %s: image %s\n", number_of("RANK", 0), number_of("WORLD_SIZE", 1), gpu, result);
    return !simulated && !equal;
}
