/* tfanalyze_mpi.c - tfanalyze under MPI: each process summarises its share of the files, and the summaries meet in process 0.
 *
 * `make mpi` links it with the objects of tfanalyze, which has no MPI in it. It answers what summaries (.tfs) answer:
 *
 * 1. Each process finds all inputs and takes its share: the largest file first, to whom has the fewest bytes.
 * 2. It runs `reduce` on its share, in memory.
 * 3. The summaries unite in a tree of log2(processes) rounds. Uniting is that of `reduce`: associative, commutative and
 *    exact, so the bytes do not depend on the number of processes, nor on who had which file.
 * 4. Process 0 asks the questions of the united summary. The answer is that of one process, byte for byte, and so is that
 *    of an array of jobs with a `reduce` each and one more for their files.
 *
 * A process that dies ends the job by MPI's own rule. The answer is written after the last message, so that there is then
 * none. Inputs are read where they lie: all processes need to see the same files.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/command.h"
#include "base/gzip/gzip_out.h"
#include "commands/help.h"
#include "commands/session.h"

enum { TAG_LENGTH, TAG_BYTES, MESSAGE = 1 << 30 };

extern const struct command commands[];

struct job {
    int argc, rank, processes;
    char **argv;
    struct text bytes; /* the summary of this process, and of those that it has united with it */
    bool is_partial;   /* an input of this process was damaged or is missing */
};

/* ---- a session of its own ---- */

/* Parses the command line again: each session has its options. */
static void begin_session(struct job *job, struct session *session, const struct command *question)
{
    *session = (struct session){0};
    struct options *o = &session->options;
    options_parse(o, commands, job->argc, job->argv);
    o->jobs = o->jobs ? o->jobs : 1; /* the processes share the processors */
    gzip_out_jobs(o->jobs);
    if (!question) return;
    o->question[0] = question;
    o->questions = 1;
}

/* The inputs of the session are these, which it frees. */
static void set_inputs(struct session *session, char **text, size_t count)
{
    struct strings_list *inputs = &session->options.inputs;
    for (size_t i = 0; i < inputs->count; i++) free(inputs->text[i]);
    free(inputs->text);
    *inputs = (struct strings_list){text, count};
}

static void ask(struct session *session)
{
    for (size_t i = 0; i < session->options.questions; i++) {
        session->options.command = session->options.question[i];
        definition_of(session->options.command, &session->options)->answer(session);
    }
}

static const struct command *reduce_command(void)
{
    const struct command *c = commands;
    while (strcmp(c->name, "reduce") != 0) c++;
    return c;
}

/* Summarises inputs in memory. Returns the status. */
static int reduce(struct job *job, char **input, size_t count, struct text *to)
{
    struct session session;
    begin_session(job, &session, reduce_command());
    set_inputs(&session, input, count);
    session.collects = true;
    free(session.options.output);
    session.options.output = string_format("%s", "memory"); /* no terminal gets it */
    out_memory(&session.out);
    ask(&session);
    to->length = 0;
    text_add(to, session.out.buffer, session.out.used);
    int status = session.status;
    out_discard(&session.out);
    session_free(&session);
    return status;
}

/* ---- files in memory ---- */

/* Returns the path of a file without a name that holds the bytes. */
static char *file_of(const struct text *bytes, int *fd)
{
    *fd = memfd_create("tfanalyze", MFD_CLOEXEC);
    for (size_t done = 0; *fd >= 0 && done < bytes->length;) {
        ssize_t written = write(*fd, bytes->data + done, bytes->length - done);
        if (written <= 0) mem_lack();
        done += (size_t)written;
    }
    if (*fd < 0) mem_lack();
    return string_format("/proc/self/fd/%d", *fd);
}

/* ---- the share of a process ---- */

struct share {
    size_t input;
    int64_t bytes;
};

static int largest_first(const void *a, const void *b)
{
    const struct share *x = a, *y = b;
    return x->bytes != y->bytes ? by_number(y->bytes, x->bytes) : (x->input > y->input) - (x->input < y->input);
}

/* Gives each input to the process that has the fewest bytes. All processes find the same. */
static size_t choose_inputs(const struct job *job, const struct inputs *inputs, char **chosen)
{
    struct share *share = mem_zero(inputs->count, sizeof *share);
    int64_t *load = mem_zero((size_t)job->processes, sizeof *load);
    size_t count = 0;
    for (size_t i = 0; i < inputs->count; i++) {
        struct stat status;
        share[i] = (struct share){i, stat(inputs->input[i].path, &status) == 0 ? status.st_size : 0};
    }
    qsort(share, inputs->count, sizeof *share, largest_first);
    for (size_t i = 0; i < inputs->count; i++) {
        const struct input *input = &inputs->input[share[i].input];
        int least = 0;
        for (int p = 1; p < job->processes; p++) least = load[p] < load[least] ? p : least;
        load[least] += share[i].bytes + 1;
        if (least != job->rank) continue;
        chosen[count++] = input->rank < 0 ? string_format("%s", input->path)
                                          : string_format("rank=%lld:%s", (long long)input->rank, input->path);
    }
    free(share);
    free(load);
    return count;
}

static void summarise_share(struct job *job)
{
    struct session all;
    begin_session(job, &all, NULL);
    size_t inputs = session_inputs(&all);
    char **chosen = mem_zero(inputs, sizeof *chosen);
    size_t count = choose_inputs(job, &all.inputs, chosen);
    session_free(&all);
    if (count) job->is_partial = reduce(job, chosen, count, &job->bytes) != 0;
    else free(chosen);
}

/* ---- the tree ---- */

static void send_bytes(struct job *job, int to)
{
    uint64_t length = job->bytes.length;
    MPI_Send(&length, 1, MPI_UINT64_T, to, TAG_LENGTH, MPI_COMM_WORLD);
    for (uint64_t done = 0; done < length; done += MESSAGE)
        MPI_Send(job->bytes.data + done, (int)MIN(length - done, MESSAGE), MPI_BYTE, to, TAG_BYTES, MPI_COMM_WORLD);
}

static void receive_bytes(struct text *bytes, int from)
{
    uint64_t length;
    MPI_Recv(&length, 1, MPI_UINT64_T, from, TAG_LENGTH, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    bytes->data = mem_grow(bytes->data, &bytes->capacity, length + 1, 1);
    bytes->length = length;
    for (uint64_t done = 0; done < length; done += MESSAGE)
        MPI_Recv(bytes->data + done, (int)MIN(length - done, MESSAGE), MPI_BYTE, from, TAG_BYTES, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

/* Unites another summary with that of this process. What they say of their inputs was said when these were read. */
static void unite(struct job *job, struct text *other)
{
    struct text said = {0};
    if (!other->length) return;
    if (!job->bytes.length) {
        text_add(&job->bytes, other->data, other->length);
        return;
    }
    int fd[2];
    char **both = mem_zero(2, sizeof *both);
    both[0] = file_of(&job->bytes, &fd[0]);
    both[1] = file_of(other, &fd[1]);
    complain_into(&said);
    reduce(job, both, 2, &job->bytes);
    complain_into(NULL);
    close(fd[0]);
    close(fd[1]);
    text_free(&said);
}

static void unite_all(struct job *job)
{
    for (int step = 1; step < job->processes; step *= 2) {
        if (job->rank & step) {
            send_bytes(job, job->rank - step);
            return;
        }
        if (job->rank + step >= job->processes) continue;
        struct text other = {0};
        receive_bytes(&other, job->rank + step);
        unite(job, &other);
        text_free(&other);
    }
}

/* ---- the answer ---- */

/* Prints the messages that are not about the united summary: those were said when the inputs were read. */
static void print_messages(const struct text *said, const char *path)
{
    for (const char *line = said->data; line && *line;) {
        const char *end = strchr(line, '\n');
        size_t length = end ? (size_t)(end - line) : strlen(line);
        if (strncmp(line, path, strlen(path)) != 0) complain(NULL, "%.*s", (int)length, line);
        line = end ? end + 1 : NULL;
    }
}

static int answer(struct job *job, bool is_partial)
{
    struct session session;
    struct text said = {0};
    int fd;
    if (!job->bytes.length) return STATUS_NOTHING;
    begin_session(job, &session, NULL);
    char **input = mem_zero(1, sizeof *input);
    input[0] = file_of(&job->bytes, &fd);
    char *path = string_format("%s", input[0]);
    set_inputs(&session, input, 1);
    complain_into(&said);
    ask(&session);
    session_close(&session);
    complain_into(NULL);
    int status = session.status ? session.status : is_partial ? STATUS_PARTIAL : 0;
    print_messages(&said, path);
    session_free(&session);
    close(fd);
    free(path);
    text_free(&said);
    return status;
}

/* Returns the first question that summaries do not answer; NULL if there is none. */
static const struct command *question_of_events(const struct options *options)
{
    for (size_t i = 0; i < options->questions; i++) {
        const struct reduction *r = definition_of(options->question[i], options)->reduction;
        if (!r || !r->restore || !r->stands_alone(options) || is_filtered(options)) return options->question[i];
    }
    return NULL;
}

/* Returns the status of a command line that asks nothing of traces, or -1. All processes decide the same; one speaks. */
static int refuse(struct job *job)
{
    struct options options = {0};
    struct text said = {0};
    int status = -1;
    if (job->rank) complain_into(&said);
    if (!options_parse(&options, commands, job->argc, job->argv)) {
        status = STATUS_USAGE;
    } else if (options.help || options.version) {
        if (!job->rank && options.version) printf("tfanalyze-mpi %s\n", TFI_VERSION);
        else if (!job->rank) help_print(options.command);
        status = 0;
    } else if (question_of_events(&options)) {
        complain(NULL,
                 "`%s`%s needs events: under MPI there are only summaries, as of `reduce`; `tfanalyze` reads traces",
                 question_of_events(&options)->name, is_filtered(&options) ? " with filters" : "");
        status = STATUS_USAGE;
    }
    complain_into(NULL);
    text_free(&said);
    options_free(&options);
    return status;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    setenv("COLUMNS", "1000000", 1); /* mpirun gives a process a terminal of any width, which is not the user's */
    struct job job = {.argc = argc, .argv = argv};
    MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &job.processes);
    int status = refuse(&job);
    if (status < 0) {
        summarise_share(&job);
        unite_all(&job);
        int partial = job.is_partial, any = 0;
        MPI_Reduce(&partial, &any, 1, MPI_INT, MPI_MAX, 0, MPI_COMM_WORLD);
        status = job.rank ? 0 : answer(&job, any);
    } else if (job.rank) {
        status = 0;
    }
    text_free(&job.bytes);
    MPI_Finalize();
    return status;
}
