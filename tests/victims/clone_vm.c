/* clone_vm.c - children that share the process's memory (CLONE_VM): clone_vm return|_exit|exec|signal|many.
 *
 * The child opens stages and ends in the named way. The parent waits for it, opens stages of its own, and prints the
 * child's status. With `many`, the child closes chunks before the parent has closed one.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tfinject.h"

#define STACK (1 << 18)

static void stages(const char *name, int count)
{
    for (int i = 0; i < count; i++) {
        tfi_range_push(name);
        tfi_range_pop();
    }
}

static int child(void *how)
{
    stages("child", strcmp(how, "many") ? 100 : 20000);
    if (!strcmp(how, "_exit")) _exit(7);
    if (!strcmp(how, "exec")) execl("/bin/sh", "sh", "-c", "exit 7", NULL);
    if (!strcmp(how, "signal")) kill(getpid(), SIGKILL);
    return 7;
}

int main(int argc, char **argv)
{
    static _Alignas(16) char stack[STACK];
    char *how = argc > 1 ? argv[1] : "return";
    int status = 0;
    stages("parent", 10);
    pid_t pid = clone(child, stack + STACK, CLONE_VM | SIGCHLD, how);
    if (waitpid(pid, &status, 0) != pid) return 1;
    stages("parent", 20000);
    printf("child %d %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    return 5;
}
