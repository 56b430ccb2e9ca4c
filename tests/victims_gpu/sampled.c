/* sampled.c - does what its input says, one word per line, and answers each line with `done`: for tests of NVML.
 *
 *   use N       retains the primary context of device N
 *   create N    creates a context of device N
 *   stage NAME  opens and closes a stage
 *   fork        forks a child that opens a stage and exits, and waits for it
 *   opened      prints the NVML libraries that are mapped, before `done`
 *   exec        becomes /bin/true
 *   failing     tries to become a program that does not exist
 *   kill        kills itself by SIGKILL
 *   leave N     ends its only thread by the bare system call exit
 *
 * It exits at the end of its input.
 */
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda.h>

#include "../../include/tfinject.h"
#include "check.h"

static void stage(const char *name)
{
    tfi_range_push(name);
    tfi_range_pop();
}

static void fork_once(void)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        stage("child");
        exit(0);
    }
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void print_opened(void)
{
    char line[4096];
    FILE *f = fopen("/proc/self/maps", "r");
    EXPECT(f);
    while (fgets(line, sizeof line, f))
        if (strstr(line, "libnvidia-ml")) fputs(strchr(line, '/'), stdout);
    fclose(f);
}

static void obey(const char *word, const char *rest)
{
    CUcontext context;
    if (strcmp(word, "use") == 0) CHECK(cuDevicePrimaryCtxRetain(&context, atoi(rest)));
    else if (strcmp(word, "create") == 0) CHECK(cuCtxCreate(&context, NULL, 0, atoi(rest)));
    else if (strcmp(word, "stage") == 0) stage(rest);
    else if (strcmp(word, "fork") == 0) fork_once();
    else if (strcmp(word, "opened") == 0) print_opened();
    else if (strcmp(word, "exec") == 0) execl("/bin/true", "true", NULL);
    else if (strcmp(word, "failing") == 0) execl("/nonexistent", "nonexistent", NULL);
    else if (strcmp(word, "kill") == 0) kill(getpid(), SIGKILL);
    else if (strcmp(word, "leave") == 0) syscall(SYS_exit, atoi(rest));
    else EXPECT(!"a known word");
}

int main(void)
{
    char line[256], word[32], rest[128];
    CHECK(cuInit(0));
    while (fgets(line, sizeof line, stdin)) {
        *rest = 0;
        EXPECT(sscanf(line, "%31s %127s", word, rest) >= 1);
        obey(word, rest);
        printf("done\n");
        fflush(stdout);
    }
    return 0;
}
