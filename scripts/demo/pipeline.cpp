/* pipeline.cpp - a C++ program that marks its stages with the NVTX headers (C and C++ API) and with tfinject.h.
 *
 * It is linked with neither of them: NVTX is headers only, the functions of tfinject.h are weak symbols. Two threads
 * compute tiles of an image, each with ranges of its own; an upload begins in one thread and ends in another.
 */
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include <sys/syscall.h>
#include <unistd.h>

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvtx3.hpp>

#include <tfinject.h>

namespace
{

struct renderer {
    static constexpr char const *name{"renderer"}; /* the NVTX domain */
};

struct sharpen_message {
    static constexpr char const *message{"sharpen"}; /* registered once, used by its handle */
};

std::vector<double> tile(int number)
{
    nvtx3::scoped_range_in<renderer> range{"tile", nvtx3::payload{number}, nvtx3::rgb{0, 128, 255}};
    std::vector<double> pixels(1 << 16);
    for (std::size_t i = 0; i < pixels.size(); i++) pixels[i] = std::sin(static_cast<double>(i) * number);
    return pixels;
}

double render(int threads)
{
    tfi::range stage("render");
    std::vector<std::thread> workers;
    std::vector<double> sums(static_cast<std::size_t>(threads));
    for (int t = 0; t < threads; t++)
        workers.emplace_back([t, &sums] {
            nvtxNameOsThreadA(static_cast<uint32_t>(syscall(SYS_gettid)), t ? "tiles, odd" : "tiles, even");
            for (int i = t; i < 8; i += 2)
                for (double pixel : tile(i)) sums[static_cast<std::size_t>(t)] += pixel;
        });
    for (std::thread &worker : workers) worker.join();
    double sum = 0;
    for (double s : sums) sum += s;
    return sum;
}

void sharpen(std::vector<double> &pixels)
{
    nvtx3::scoped_range_in<renderer> range{nvtx3::registered_string_in<renderer>::get<sharpen_message>()};
    for (std::size_t i = 1; i < pixels.size(); i++) pixels[i] -= pixels[i - 1] / 2;
}

} // namespace

int main()
{
    nvtxRangePushA("setup");
    std::vector<double> pixels = tile(1);
    nvtxRangePop();

    uint64_t upload = tfi_range_start("upload");
    double sum = render(2);
    std::thread([upload] { tfi_range_end(upload); }).join();

    tfi_range_push("finish");
    sharpen(pixels);
    tfi_mark("done");
    tfi_range_pop();

    std::printf("sum of all pixels: %.3f\n", sum + pixels.back());
    return 0;
}
