// runtime.cu - a program of the runtime API, compiled by nvcc: kernels, streams, events, copies, a captured graph, a
// constant.
//
// No kernel has to compute anything: the program checks the effects of copies, sets, host functions and calls. Prints a
// line for each part and "ok" at the end; exits 1 at the first difference.
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        cudaError_t e_ = (call);                                                                                       \
        if (e_ != cudaSuccess) {                                                                                       \
            printf("%d: %s: %s\n", __LINE__, #call, cudaGetErrorName(e_));                                             \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("%d: not so: %s\n", __LINE__, #condition);                                                          \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

__constant__ float coefficients[16];
__device__ int counter;
__managed__ int shared_with_host;

__global__ void scale(float *out, const float *in, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] * coefficients[0];
}
template <typename T> __global__ void fill(T *out, T value)
{
    out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}
extern "C" __global__ void plain_name(int *p)
{
    *p = 1;
}

static const int N = 1 << 16;

static void CUDART_CB note(void *user)
{
    ++*static_cast<int *>(user);
}

static void copies(cudaStream_t stream, float *a, float *b)
{
    float *host, *back;
    CHECK(cudaMallocHost(&host, N * sizeof *host));
    CHECK(cudaHostAlloc(&back, N * sizeof *back, cudaHostAllocDefault));
    for (int i = 0; i < N; i++) host[i] = float(i);
    CHECK(cudaMemcpyAsync(a, host, N * sizeof *host, cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemcpyAsync(b, a, N * sizeof *host, cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaMemcpyAsync(back, b, N * sizeof *host, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(memcmp(host, back, N * sizeof *host) == 0);
    CHECK(cudaMemset(b, 0x3f, N * sizeof *host));
    CHECK(cudaMemcpy(back, b, N * sizeof *host, cudaMemcpyDefault));
    EXPECT(reinterpret_cast<unsigned char *>(back)[4 * N - 1] == 0x3f);
    CHECK(cudaMemcpy2D(back, 128, host, 256, 64, 16, cudaMemcpyHostToHost));
    EXPECT(back[32] == host[64]);
    CHECK(cudaFreeHost(host));
    CHECK(cudaFreeHost(back));
    puts("copies");
}

static void constants()
{
    float in[16], out[16];
    for (int i = 0; i < 16; i++) in[i] = 1.5f * i;
    CHECK(cudaMemcpyToSymbol(coefficients, in, sizeof in));
    CHECK(cudaMemcpyFromSymbol(out, coefficients, sizeof out));
    EXPECT(memcmp(in, out, sizeof in) == 0);
    int seven = 7, got = 0;
    CHECK(cudaMemcpyToSymbol(counter, &seven, sizeof seven));
    CHECK(cudaMemcpyFromSymbol(&got, counter, sizeof got));
    EXPECT(got == 7);
    shared_with_host = 5;
    void *address;
    CHECK(cudaGetSymbolAddress(&address, shared_with_host));
    EXPECT(address == &shared_with_host);
    puts("constants");
}

static void launches(cudaStream_t stream, float *a, float *b)
{
    cudaEvent_t start, end;
    float ms = -1;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaEventRecord(start, stream));
    for (int i = 0; i < 5; i++) scale<<<N / 256, 256, 0, stream>>>(b, a, N);
    fill<double><<<4, 128, 1024, stream>>>(reinterpret_cast<double *>(a), 1.0);
    plain_name<<<dim3(2, 3, 4), dim3(8, 4, 2)>>>(reinterpret_cast<int *>(a));
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&ms, start, end));
    EXPECT(ms > 0);
    scale<<<0, 256, 0, stream>>>(b, a, N);
    EXPECT(cudaPeekAtLastError() == cudaErrorInvalidConfiguration);
    EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
    EXPECT(cudaGetLastError() == cudaSuccess);
    int blocks = 0, called = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, scale, 256, 0));
    EXPECT(blocks > 0);
    CHECK(cudaLaunchHostFunc(stream, note, &called));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(called == 1);
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(end));
    puts("launches");
}

static void graphs(cudaStream_t stream, float *a, float *b)
{
    cudaStream_t side;
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    int called = 0;
    size_t n = 0;
    CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaMemsetAsync(b, 0, N * sizeof *b, stream));
    CHECK(cudaEventRecord(fork, stream));
    CHECK(cudaStreamWaitEvent(side, fork, 0));
    scale<<<N / 256, 256, 0, stream>>>(b, a, N);
    fill<float><<<8, 64, 0, side>>>(a, 2.0f);
    CHECK(cudaLaunchHostFunc(side, note, &called));
    CHECK(cudaEventRecord(join, side));
    CHECK(cudaStreamWaitEvent(stream, join, 0));
    CHECK(cudaMemcpyAsync(b, a, 64, cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    EXPECT(called == 0);
    CHECK(cudaGraphGetNodes(graph, nullptr, &n));
    EXPECT(n == 5);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(called == 3);
    cudaGraphExecUpdateResultInfo info;
    CHECK(cudaGraphExecUpdate(exec, graph, &info));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(side));
    CHECK(cudaEventDestroy(fork));
    CHECK(cudaEventDestroy(join));
    puts("graphs");
}

// A reset destroys the context's contents, and the next call makes a new context.
static void reset()
{
    cudaStream_t old;
    int *p, value = 3, got = 0;
    CHECK(cudaSetDevice(0));
    CHECK(cudaStreamCreate(&old));
    CHECK(cudaMalloc(&p, sizeof *p));
    CHECK(cudaDeviceReset());
    EXPECT(cudaStreamQuery(old) == cudaErrorInvalidResourceHandle);
    EXPECT(cudaGetLastError() == cudaErrorInvalidResourceHandle);
    EXPECT(cudaFree(p) == cudaErrorInvalidValue);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    CHECK(cudaMalloc(&p, sizeof *p));
    plain_name<<<1, 1>>>(p);
    CHECK(cudaMemcpy(p, &value, sizeof value, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyFromSymbol(&got, counter, sizeof got));
    CHECK(cudaMemcpyToSymbol(counter, &value, sizeof value));
    CHECK(cudaFree(p));
    puts("reset");
}

static void threads()
{
    std::vector<std::thread> all;
    for (int i = 0; i < 4; i++)
        all.emplace_back([] {
            cudaStream_t stream;
            CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
            for (int j = 0; j < 50; j++) fill<int><<<1, 32, 0, stream>>>(nullptr, j);
            CHECK(cudaGetLastError());
            CHECK(cudaStreamSynchronize(stream));
            CHECK(cudaStreamDestroy(stream));
        });
    for (auto &t : all) t.join();
    puts("threads");
}

// Gets the driver's own function through the runtime.
static void entry_point()
{
    size_t available = 1, total = 0;
    void *f = nullptr;
    cudaDriverEntryPointQueryResult found;
    CHECK(cudaGetDriverEntryPointByVersion("cuMemGetInfo", &f, 12000, cudaEnableDefault, &found));
    EXPECT(found == cudaDriverEntryPointSuccess);
    EXPECT(reinterpret_cast<int (*)(size_t *, size_t *)>(f)(&available, &total) == 0 && available <= total);
    CHECK(cudaGetDriverEntryPointByVersion("cuNothing", &f, 12000, cudaEnableDefault, &found));
    EXPECT(found == cudaDriverEntryPointSymbolNotFound);
    puts("entry point");
}

int main()
{
    int devices = 0;
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceCount(&devices));
    CHECK(cudaGetDeviceProperties(&properties, 0));
    printf("%s, %d device(s)\n", properties.name, devices);
    constants();
    for (int device = 0; device < devices; device++) {
        cudaStream_t stream;
        float *a, *b;
        CHECK(cudaSetDevice(device));
        CHECK(cudaStreamCreate(&stream));
        CHECK(cudaMalloc(&a, N * sizeof *a));
        CHECK(cudaMallocAsync(reinterpret_cast<void **>(&b), N * sizeof *b, stream));
        copies(stream, a, b);
        launches(stream, a, b);
        graphs(stream, a, b);
        CHECK(cudaFreeAsync(b, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaFree(a));
        CHECK(cudaStreamDestroy(stream));
    }
    CHECK(cudaDeviceSynchronize());
    entry_point();
    reset();
    threads();
    puts("ok");
    return 0;
}
