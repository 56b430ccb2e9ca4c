/* question.c - a question that `tfanalyze mcp` asks in a process of its own, and the part of its answer that fits.
 *
 * The process runs the command line as a user's shell would, without another program: the answers are the same, and its
 * memory, its crash or its end by the kernel are its own. The server has one thread, so that a fork is safe. All of an
 * output is read, and little of it kept: the notes and the status come at the end.
 */
#include "commands/mcp/question.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/escape.h"
#include "base/file_in.h"
#include "commands/command_line.h"
#include "commands/session.h"

enum {
    FITS = ANSWER_FITS, /* bytes of an answer; and of its messages */
    LONGEST_S = 600,    /* of processor time */
    LONGEST_WAIT_S = 1800,
};

/* ---- the part that fits ---- */

static void extract_add(struct extract *extract, const char *bytes, size_t length)
{
    while (length) {
        const char *end = memchr(bytes, '\n', length);
        size_t part = end ? (size_t)(end - bytes) + 1 : length;
        bool wanted = extract->line >= extract->from && !extract->next;
        size_t room = FITS - MIN(FITS, extract->kept.length);
        if (wanted && part <= room) {
            text_add(&extract->kept, bytes, part);
        } else if (wanted && extract->begin) {
            extract->kept.length = extract->begin;
            extract->next = extract->line;
        } else if (wanted) { /* a line that is too long by itself is cut */
            text_add(&extract->kept, bytes, room);
            extract->next = extract->line + 1;
        }
        extract->ends_open = !end;
        if (end) {
            extract->line++;
            extract->begin = extract->kept.length;
        }
        bytes += part;
        length -= part;
    }
}

void question_read(int *fd, struct extract *extract, struct pieces *pieces)
{
    char bytes[1 << 14];
    ssize_t got = read(*fd, bytes, sizeof bytes);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got > 0) {
        extract_add(extract, bytes, (size_t)got);
        if (pieces) pieces_add(pieces, bytes, (size_t)got);
        return;
    }
    close(*fd);
    *fd = -1;
}

/* ---- the process ---- */

/* Gives the process an input that is at its end: what a client sends is not for it. */
static void end_input(void)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) _exit(STATUS_NOTHING);
    dup2(ends[0], STDIN_FILENO);
    close(ends[0]);
    close(ends[1]);
}

/* Becomes the process of the question, which ends with the server. */
static _Noreturn void answer(const struct question *question, const struct command *commands,
                             const struct served *served, pid_t server, const int *ends)
{
    const struct rlimit time = {LONGEST_S, LONGEST_S};
    const char **real = mem_zero(served->count + 1, sizeof *real);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGALRM, SIG_DFL);
    alarm(LONGEST_WAIT_S);
    if (getppid() != server) _exit(STATUS_NOTHING);
    setpgid(0, 0);
    end_input();
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[3], STDERR_FILENO);
    setrlimit(RLIMIT_CPU, &time);
    for (size_t i = 0; i < served->count; i++) real[i] = served->directory[i].real;
    file_confine(real, served->count);
    free(real);
    exit(command_line_run(commands, (int)question->words.count, question->words.word));
}

bool question_begin(struct question *question, const struct command *commands, const struct served *served)
{
    int ends[4];
    pid_t server = getpid();
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    if (pipe2(ends + 2, O_CLOEXEC) != 0) {
        close(ends[0]);
        close(ends[1]);
        return false;
    }
    question->pieces.from = question->answer.from;
    question->process = fork();
    if (question->process == 0) answer(question, commands, served, server, ends);
    close(ends[1]);
    close(ends[3]);
    question->answer_fd = ends[0];
    question->said_fd = ends[2];
    if (question->process > 0) {
        setpgid(question->process, question->process);
        return true;
    }
    close(ends[0]);
    close(ends[2]);
    question->answer_fd = question->said_fd = -1;
    return false;
}

void question_kill(const struct question *question)
{
    if (question->process > 0) kill(-question->process, SIGKILL);
}

void question_free(struct question *question)
{
    words_free(&question->words);
    text_free(&question->answer.kept);
    text_free(&question->said.kept);
    pieces_free(&question->pieces);
}

/* ---- the result ---- */

static void put_text(json_t *content, const char *bytes, size_t length)
{
    struct text text = {0};
    text_utf8(&text, bytes, length);
    json_array_append_new(content, json_pack("{s:s, s:o}", "type", "text", "text",
                                             json_stringn(text.data ? text.data : "", text.length)));
    text_free(&text);
}

static json_t *result_of(json_t *content, bool failed)
{
    return json_pack("{s:o, s:b}", "content", content, "isError", failed);
}

json_t *question_refusal(const char *why)
{
    json_t *content = json_array();
    put_text(content, why, strlen(why));
    return result_of(content, true);
}

/* Says which lines these are of how many, and how to get the others. */
static void tell_extract(struct text *notes, const struct extract *extract)
{
    size_t lines = extract->line + extract->ends_open;
    if (extract->from && extract->from >= lines)
        text_format(notes, "the answer has %zu lines: none from offset %zu on\n", lines, extract->from);
    else if (extract->next)
        text_format(notes, "lines %zu to %zu of %zu; go on with offset %zu, or ask for less (top, stage, rank)\n",
                    extract->from, extract->next - 1, lines, extract->next);
    else if (extract->from)
        text_format(notes, "lines %zu to %zu of %zu, the last ones\n", extract->from, lines - 1, lines);
}

static void tell_piece(struct text *notes, const struct pieces *pieces)
{
    size_t end = pieces->next ? pieces->next : pieces->row;
    if (pieces->from < end) text_format(notes, "rows %zu to %zu of %zu; ", pieces->from, end - 1, pieces->row);
    else text_format(notes, "none of %zu rows; ", pieces->row);
    if (pieces->next) text_format(notes, "go on with offset %zu, or ask for less (top, stage, rank)\n", pieces->next);
    else text_puts(notes, "the last ones\n");
}

static void tell_end(struct text *notes, int status)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)
        text_format(
            notes,
            "the question took %d s of processor time, the most that it may; ask for less (stage, rank, from, to)\n",
            LONGEST_S);
    else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        text_format(notes,
                    "the question took %d s, the most that it may: does it wait for a file that nobody writes?\n",
                    LONGEST_WAIT_S);
    else if (WIFSIGNALED(status))
        text_format(notes, "signal %d (%s) ended the question; the server goes on\n", WTERMSIG(status),
                    strsignal(WTERMSIG(status)));
    else if (code == STATUS_PARTIAL) text_puts(notes, "exit status 3: the answer is partial\n");
    else if (code) text_format(notes, "exit status %d\n", code);
}

json_t *question_result(struct question *question)
{
    struct text notes = {0};
    json_t *content = json_array();
    int status = 0;
    while (waitpid(question->process, &status, 0) < 0 && errno == EINTR) {
    }
    question->process = 0;
    struct text piece = {0};
    if (pieces_end(&question->pieces, &piece)) {
        put_text(content, piece.data, piece.length);
        tell_piece(&notes, &question->pieces);
    } else {
        if (question->answer.kept.length) put_text(content, question->answer.kept.data, question->answer.kept.length);
        tell_extract(&notes, &question->answer);
    }
    text_free(&piece);
    text_add(&notes, question->said.kept.data, question->said.kept.length);
    if (question->said.next)
        text_format(&notes, "and %zu more lines of messages\n", question->said.line - question->said.next);
    tell_end(&notes, status);
    if (notes.length) put_text(content, notes.data, notes.length - (notes.data[notes.length - 1] == '\n'));
    text_free(&notes);
    bool answered = WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == STATUS_PARTIAL ||
                                          WEXITSTATUS(status) == STATUS_GATE);
    return result_of(content, !answered);
}
