/* libmoments.c - interrupts a Python program at chosen lines: at each one a child of the process is sent a signal.
 *
 * Lines are counted by a tracing function in C, so that no Python code runs between the count and the signal, which the
 * interpreter handles when it next looks. Lines of script.py, the library and the import machinery do not count: the count
 * of a line is the same with the library and without. The child runs on, untraced, and says by its exit status whether the
 * exception of its handler arrived; the parent waits for it and runs on without a signal.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct object object;
typedef int tracer(object *self, object *frame, int what, object *arg);

enum { LINE = 2, MOST = 4096 };

long moments_start(long first, long step, long most, int number);
long moments_stop(unsigned char *statuses);

static struct {
    void (*set)(tracer *, object *);
    object *(*code)(object *);
    object *(*attribute)(object *, const char *);
    const char *(*utf8)(object *);
    void (*forget)(object *);
} python;
static long count, next, step_of, left, nr;
static int signal_number;
static unsigned char status_of[MOST];

static int is_counted(object *frame)
{
    object *code = python.code(frame), *file = code ? python.attribute(code, "co_filename") : NULL;
    const char *name = file ? python.utf8(file) : NULL;
    int counted = name && strncmp(name, "<tfinject", 9) != 0 && strncmp(name, "<frozen importlib", 17) != 0 &&
                  !strstr(name, "script.py");
    if (file) python.forget(file);
    if (code) python.forget(code);
    return counted;
}

static int trace(object *self, object *frame, int what, object *arg)
{
    int status;
    (void)self;
    (void)arg;
    if (what != LINE || !left || !is_counted(frame) || ++count < next) return 0;
    next += step_of;
    left--;
    pid_t child = fork();
    if (!child) {
        python.set(NULL, NULL);
        raise(signal_number);
        return 0;
    }
    waitpid(child, &status, 0);
    if (nr < MOST) status_of[nr++] = (unsigned char)(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return 0;
}

/* Counts lines from here on; most 0 only counts. */
long moments_start(long first, long step, long most, int number)
{
    *(void **)&python.set = dlsym(RTLD_DEFAULT, "PyEval_SetTrace");
    *(void **)&python.code = dlsym(RTLD_DEFAULT, "PyFrame_GetCode");
    *(void **)&python.attribute = dlsym(RTLD_DEFAULT, "PyObject_GetAttrString");
    *(void **)&python.utf8 = dlsym(RTLD_DEFAULT, "PyUnicode_AsUTF8");
    *(void **)&python.forget = dlsym(RTLD_DEFAULT, "Py_DecRef");
    count = nr = 0;
    next = most ? first : 1L << 60;
    step_of = step;
    left = most ? most : 1;
    signal_number = number;
    python.set(trace, NULL);
    return 0;
}

/* Returns the number of lines, and the children's statuses, up to a 255. */
long moments_stop(unsigned char *statuses)
{
    python.set(NULL, NULL);
    memcpy(statuses, status_of, (size_t)nr);
    statuses[nr] = 255;
    return count;
}
