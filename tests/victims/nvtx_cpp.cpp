/* nvtx_cpp.cpp - uses NVTX through NVIDIA's C++ API: scoped and movable ranges, domains, categories, payloads. */
#include <thread>
#include <utility>

#include <nvtx3/nvtx3.hpp>

namespace
{

struct my_domain {
    static constexpr char const *name{"cpp domain"};
};

struct my_category {
    static constexpr char const *name{"cpp category"};
    static constexpr uint32_t id{11};
};

struct my_message {
    static constexpr char const *message{"cpp registered"};
};

void function()
{
    NVTX3_FUNC_RANGE();
}

void function_in_domain()
{
    NVTX3_FUNC_RANGE_IN(my_domain);
}

} // namespace

int main()
{
    {
        nvtx3::scoped_range outer{"cpp outer"};
        nvtx3::scoped_range inner{"cpp inner", nvtx3::payload{2.5}, nvtx3::rgb{1, 2, 3}};
        function();
    }
    {
        auto const &category = nvtx3::named_category_in<my_domain>::get<my_category>();
        auto const &message = nvtx3::registered_string_in<my_domain>::get<my_message>();
        nvtx3::scoped_range_in<my_domain> range{message, category, nvtx3::payload{int32_t{-3}}};
        function_in_domain();
    }
    nvtx3::unique_range moved{"cpp unique"};
    std::thread([range = std::move(moved)]() mutable { auto ends_here = std::move(range); }).join();
    nvtx3::mark("cpp mark");
    nvtx3::mark_in<my_domain>("cpp mark in domain", nvtx3::payload{uint64_t{7}});
    return 0;
}
