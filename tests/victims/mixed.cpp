// mixed.cpp - threads, tasks, streams, exceptions, stages and children of a program of C++; the argument is its size.
//
// The output does not depend on the order in which threads run.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <future>
#include <iostream>
#include <map>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tfinject.h"

static std::mutex lock;
static std::map<std::string, long> counts;
static bool is_child; // whose lock a thread of the parent may hold for ever

static void count(const std::string &name, long n)
{
    if (is_child) return;
    std::lock_guard<std::mutex> held(lock);
    counts[name] += n;
}

// Writes a file of its own and reads it again.
static void use_files(int number)
{
    tfi::range stage("files");
    std::string name = "mixed-" + std::to_string(getpid()) + "-" + std::to_string(number);
    std::ofstream(name) << std::string(static_cast<size_t>(number % 7) * 1000 + 1, 'x') << '\n';
    std::ifstream file(name);
    std::stringstream text;
    text << file.rdbuf();
    count("bytes", static_cast<long>(text.str().size()));
    unlink(name.c_str());
}

static int throws(int number)
{
    tfi::range stage("throws");
    if (number % 2) throw std::runtime_error("odd");
    return number;
}

static void work(int number)
{
    thread_local std::vector<std::string> kept;
    for (int i = 0; i < 20; i++) {
        kept.emplace_back(static_cast<size_t>(i) * 100, 'y');
        try {
            count("even", throws(number + i) >= 0);
        } catch (const std::exception &) {
            count("odd", 1);
        }
    }
    use_files(number);
}

// Each child uses files and threads of its own, and prints nothing.
static int in_a_child(int number)
{
    pid_t child = fork();
    if (child == 0) {
        is_child = true;
        std::thread(work, number).join();
        if (number % 3 == 0) _exit(3);
        exit(number % 3);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0) continue;
    return WIFSIGNALED(status) ? 1000 * WTERMSIG(status) : WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
    int size = argc > 1 ? atoi(argv[1]) : 8;
    std::vector<std::thread> threads;
    std::vector<std::future<int>> tasks;
    long ends = 0;
    {
        tfi::range stage("ProfilerStep#1");
        for (int i = 0; i < size; i++) threads.emplace_back(work, i);
        for (int i = 0; i < size / 4; i++) ends += in_a_child(i); // while threads run
        for (int i = 0; i < size; i++) tasks.push_back(std::async(std::launch::async, throws, 2 * i));
        for (auto &thread : threads) thread.join();
    }
    for (auto &task : tasks) count("tasks", task.get());
    count("ends", ends);
    for (const auto &each : counts) std::cout << each.first << ' ' << each.second << std::endl;
    std::cerr << "to stderr" << std::endl;
    return size % 5;
}
