// strings.cpp - functions with strings as libtorch has them; built once for each layout of std::string in libstdc++.
#include <string>
#include <vector>

namespace at
{
struct RecordFunction;
}
namespace torch
{
namespace profiler
{
namespace impl
{
// The name of this function in libtorch tells which layout it has.
std::vector<std::string> inputTypes(const at::RecordFunction &function);
std::vector<std::string> inputTypes(const at::RecordFunction &)
{
    return {"float", "", "a type whose name is longer than the room in the string"};
}
} // namespace impl
} // namespace profiler
} // namespace torch

// Copies the string, keeps one of the copies, and says what it holds.
extern "C" const char *kept_copy(const std::string &text);
extern "C" const char *kept_copy(const std::string &text)
{
    static std::string kept;
    std::string another = text;
    kept = another + "!";
    return kept.c_str();
}
