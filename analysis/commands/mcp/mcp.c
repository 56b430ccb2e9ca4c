/* mcp.c - serves every question as a tool of the Model Context Protocol: JSON-RPC 2.0 on stdin and stdout, a message a line.
 *
 * One thread waits for messages and for the processes that answer questions (question.h): several questions run at a
 * time, and further ones wait. A client that does not read is waited for, so that it cannot make this program grow. When
 * stdin ends, the questions that were asked are still answered, unless nobody reads stdout any more.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/command.h"
#include "base/progress.h"
#include "commands/help.h"
#include "commands/mcp/question.h"
#include "commands/session.h"

enum {
    AT_ONCE = 4,          /* questions that run */
    WAITING = 64,         /* calls that are not answered */
    BATCH = 64,           /* messages in a batch */
    LONGEST = 1 << 20,    /* bytes of a message */
    PARSE_ERROR = -32700, /* the codes of JSON-RPC */
    INVALID_REQUEST = -32600,
    METHOD_NOT_FOUND = -32601,
    INVALID_PARAMS = -32602,
    BUSY = -32000,
    UNSUPPORTED_VERSION = -32022,
};

/* The newest one first. */
static const char *const versions[] = {"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"};
#define WITH_BATCHES "2025-03-26" /* the only one */
#define STATELESS "2026-07-28"    /* without a beginning: each request names the version */
#define META "io.modelcontextprotocol/"

/* Answers that are sent together. */
struct batch {
    json_t *answers;
    size_t pending; /* holds it: calls, and the reading of the batch itself */
};

struct call {
    json_t *id;
    struct batch *batch; /* NULL: it is answered by itself */
    struct question question;
    bool begun, cancelled, stateless;
};

struct mcp {
    const struct command *commands;
    struct served served;
    json_t *tools;
    const char *version; /* negotiated, or the newest one */
    struct call *call[WAITING];
    size_t calls;
    struct text input; /* what came of messages that are not whole */
    bool skips;        /* the rest of a message that is too long */
    bool ended;        /* there is no more input */
    bool over;         /* nobody reads */
};

/* ---- answers ---- */

static void send_message(struct mcp *mcp, const json_t *message)
{
    char *text = json_dumps(message, JSON_COMPACT);
    size_t length = text ? strlen(text) : 0, done = 0;
    if (text) text[length++] = '\n'; /* in place of the zero */
    while (done < length && !mcp->over) {
        ssize_t n = write(STDOUT_FILENO, text + done, length - done);
        if (n > 0) done += (size_t)n;
        else mcp->over = errno != EINTR;
    }
    free(text);
}

/* Answers by itself or in its batch. Takes `body` over, which is a result or an error by `kind`. */
static void answer_with(struct mcp *mcp, struct batch *batch, const json_t *id, const char *kind, json_t *body)
{
    json_t *message = json_pack("{s:s, s:O?, s:o}", "jsonrpc", "2.0", "id", id, kind, body);
    if (batch) json_array_append(batch->answers, message);
    else send_message(mcp, message);
    json_decref(message);
}

static void answer_result(struct mcp *mcp, struct batch *batch, const json_t *id, json_t *result)
{
    answer_with(mcp, batch, id, "result", result);
}

static void answer_error(struct mcp *mcp, struct batch *batch, const json_t *id, int code, const char *message)
{
    answer_with(mcp, batch, id, "error", json_pack("{s:i, s:s}", "code", code, "message", message));
}

/* Adds what a result has in the stateless version; `kept_ms`: how long a client may keep it, -1: it is no list. */
static json_t *stateless_result(json_t *result, bool stateless, int kept_ms)
{
    if (!stateless) return result;
    json_object_set_new(result, "resultType", json_string("complete"));
    if (kept_ms < 0) return result;
    json_object_set_new(result, "ttlMs", json_integer(kept_ms));
    json_object_set_new(result, "cacheScope", json_string("private"));
    return result;
}

static void batch_release(struct mcp *mcp, struct batch *batch)
{
    if (!batch || --batch->pending) return;
    if (json_array_size(batch->answers)) send_message(mcp, batch->answers);
    json_decref(batch->answers);
    free(batch);
}

/* ---- calls ---- */

static void call_end(struct mcp *mcp, size_t at)
{
    struct call *call = mcp->call[at];
    memmove(&mcp->call[at], &mcp->call[at + 1], (--mcp->calls - at) * sizeof *mcp->call);
    batch_release(mcp, call->batch);
    question_free(&call->question);
    json_decref(call->id);
    free(call);
}

/* Begins the questions that may run. */
static void begin_calls(struct mcp *mcp)
{
    for (size_t i = 0; i < MIN(mcp->calls, (size_t)AT_ONCE);) {
        struct call *call = mcp->call[i];
        bool fails = !call->begun && !question_begin(&call->question, mcp->commands, &mcp->served);
        call->begun = true;
        if (fails) {
            answer_result(mcp, call->batch, call->id,
                          question_refusal("no process for the question is to be had; ask again"));
            call_end(mcp, i);
        } else {
            i++;
        }
    }
}

/* Answers the questions whose processes have ended. */
static void answer_calls(struct mcp *mcp)
{
    for (size_t i = 0; i < mcp->calls;) {
        struct call *call = mcp->call[i];
        if (!call->begun || call->question.answer_fd >= 0 || call->question.said_fd >= 0) {
            i++;
            continue;
        }
        json_t *result = question_result(&call->question);
        if (call->cancelled) json_decref(result);
        else answer_result(mcp, call->batch, call->id, stateless_result(result, call->stateless, -1));
        call_end(mcp, i);
    }
}

/* A cancelled call gets no answer. One that runs ends with its process. */
static void cancel(struct mcp *mcp, const json_t *id)
{
    for (size_t i = 0; i < mcp->calls; i++) {
        struct call *call = mcp->call[i];
        if (!json_equal(call->id, id) || call->cancelled) continue;
        call->cancelled = true;
        if (call->begun) question_kill(&call->question);
        else call_end(mcp, i);
        return;
    }
}

static void take_call(struct mcp *mcp, struct batch *batch, json_t *id, const json_t *params, bool stateless)
{
    const char *tool = json_string_value(json_object_get(params, "name"));
    const json_t *arguments = json_object_get(params, "arguments");
    if (!tool || !tools_have(mcp->commands, tool)) {
        answer_error(mcp, batch, id, INVALID_PARAMS, tool ? "there is no such tool" : "params has no name of a tool");
        return;
    }
    if (arguments && !json_is_object(arguments)) {
        answer_error(mcp, batch, id, INVALID_PARAMS, "arguments is no object");
        return;
    }
    if (mcp->calls == WAITING) {
        answer_error(mcp, batch, id, BUSY, "too many calls wait for their answers");
        return;
    }
    struct call *call = mem_zero(1, sizeof *call);
    struct text why = {0};
    call->question.answer_fd = call->question.said_fd = -1;
    if (tools_words(mcp->commands, &mcp->served, tool, arguments, &call->question.words, &call->question.answer.from,
                    &why)) {
        call->id = json_incref(id);
        call->stateless = stateless;
        call->batch = batch;
        if (batch) batch->pending++;
        mcp->call[mcp->calls++] = call;
    } else {
        answer_result(mcp, batch, id, stateless_result(question_refusal(why.data), stateless, -1));
        question_free(&call->question);
        free(call);
    }
    text_free(&why);
}

/* ---- messages ---- */

static json_t *self(void)
{
    return json_pack("{s:s, s:s}", "name", "tfanalyze", "version", TFI_VERSION);
}

static void initialize(struct mcp *mcp, struct batch *batch, const json_t *id, const json_t *params)
{
    const char *wanted = json_string_value(json_object_get(params, "protocolVersion"));
    if (!wanted) {
        answer_error(mcp, batch, id, INVALID_PARAMS, "params has no protocolVersion");
        return;
    }
    mcp->version = versions[0];
    for (size_t i = 0; i < ARRAY_SIZE(versions); i++)
        if (strcmp(versions[i], wanted) == 0) mcp->version = versions[i];
    answer_result(mcp, batch, id,
                  json_pack("{s:s, s:{s:{}}, s:o, s:s}", "protocolVersion", mcp->version, "capabilities", "tools",
                            "serverInfo", self(), "instructions", help_topic("agents")));
}

/* Answers a client that asks in the stateless version what is served. */
static void discover(struct mcp *mcp, struct batch *batch, const json_t *id)
{
    json_t *result = json_pack("{s:[s], s:{s:{}}, s:s, s:{s:o}}", "supportedVersions", STATELESS, "capabilities",
                               "tools", "instructions", help_topic("agents"), "_meta", META "serverInfo", self());
    answer_result(mcp, batch, id, stateless_result(result, true, 0));
}

/* Answers a request that names a version which needs no handshake, and is not known. */
static void refuse_version(struct mcp *mcp, struct batch *batch, const json_t *id, const char *wanted)
{
    json_t *error =
        json_pack("{s:i, s:s, s:{s:[s], s:s}}", "code", UNSUPPORTED_VERSION, "message",
                  "this version of the protocol is not known", "data", "supported", STATELESS, "requested", wanted);
    for (size_t i = 0; i < ARRAY_SIZE(versions); i++)
        json_array_append_new(json_object_get(json_object_get(error, "data"), "supported"), json_string(versions[i]));
    answer_with(mcp, batch, id, "error", error);
}

static void take_request(struct mcp *mcp, struct batch *batch, json_t *id, const char *method, const json_t *params)
{
    const char *named = json_string_value(json_object_get(json_object_get(params, "_meta"), META "protocolVersion"));
    bool stateless = named && strcmp(named, STATELESS) == 0;
    if (params && !json_is_object(params)) answer_error(mcp, batch, id, INVALID_PARAMS, "params is no object");
    else if (named && !stateless) refuse_version(mcp, batch, id, named);
    else if (stateless && strcmp(method, "server/discover") == 0) discover(mcp, batch, id);
    else if (strcmp(method, "initialize") == 0) initialize(mcp, batch, id, params);
    else if (strcmp(method, "ping") == 0) answer_result(mcp, batch, id, stateless_result(json_object(), stateless, -1));
    else if (strcmp(method, "tools/call") == 0) take_call(mcp, batch, id, params, stateless);
    else if (strcmp(method, "tools/list") != 0)
        answer_error(mcp, batch, id, METHOD_NOT_FOUND, "there is no such method");
    else if (json_object_get(params, "cursor")) answer_error(mcp, batch, id, INVALID_PARAMS, "the list has one page");
    else answer_result(mcp, batch, id, stateless_result(json_pack("{s:O}", "tools", mcp->tools), stateless, 0));
}

static void take_message(struct mcp *mcp, struct batch *batch, const json_t *message)
{
    json_t *id = json_object_get(message, "id");
    const char *method = json_string_value(json_object_get(message, "method"));
    const char *version = json_string_value(json_object_get(message, "jsonrpc"));
    const json_t *params = json_object_get(message, "params");
    bool has_id = json_is_string(id) || json_is_integer(id);
    if (!method && (json_object_get(message, "result") || json_object_get(message, "error")))
        return; /* nothing was asked */
    if (!version || strcmp(version, "2.0") != 0 || !method || (id && !has_id))
        answer_error(mcp, batch, has_id ? id : NULL, INVALID_REQUEST, "this is no request of JSON-RPC 2.0");
    else if (id) take_request(mcp, batch, id, method, params);
    else if (strcmp(method, "notifications/cancelled") == 0) cancel(mcp, json_object_get(params, "requestId"));
}

static void take_batch(struct mcp *mcp, const json_t *messages)
{
    size_t count = json_array_size(messages);
    if (strcmp(mcp->version, WITH_BATCHES) != 0 || !count || count > BATCH) {
        answer_error(mcp, NULL, NULL, INVALID_REQUEST,
                     !count || count > BATCH ? "a batch has 1 to 64 messages"
                                             : "this version of the protocol has no batches");
        return;
    }
    struct batch *batch = mem_zero(1, sizeof *batch);
    batch->answers = json_array();
    batch->pending = 1;
    for (size_t i = 0; i < count; i++) take_message(mcp, batch, json_array_get(messages, i));
    batch_release(mcp, batch);
}

static void take_line(struct mcp *mcp, const char *line, size_t length)
{
    json_error_t error;
    if (strspn(line, " \t\r") >= length) return;
    json_t *message = json_loadb(line, length, 0, &error);
    if (!message) answer_error(mcp, NULL, NULL, PARSE_ERROR, error.text);
    else if (json_is_array(message)) take_batch(mcp, message);
    else take_message(mcp, NULL, message);
    json_decref(message);
}

/* ---- input ---- */

/* Handles the whole lines of the input; at its end, the last one without a line feed. */
static void take_lines(struct mcp *mcp)
{
    struct text *input = &mcp->input;
    size_t at = 0;
    const char *end;
    while (at < input->length && !mcp->over) {
        end = memchr(input->data + at, '\n', input->length - at);
        if (!end && !mcp->ended) break;
        size_t length = end ? (size_t)(end - input->data) - at : input->length - at;
        input->data[at + length] = 0;
        if (!mcp->skips) take_line(mcp, input->data + at, length);
        mcp->skips = false;
        at += length + (end != NULL);
    }
    memmove(input->data, input->data + at, input->length - at);
    input->length -= at;
    if (input->length > LONGEST || mcp->skips) {
        if (!mcp->skips) answer_error(mcp, NULL, NULL, INVALID_REQUEST, "a message has at most 1 MiB");
        mcp->skips = true;
        input->length = 0;
    }
}

static void read_input(struct mcp *mcp)
{
    char bytes[1 << 16];
    ssize_t got = read(STDIN_FILENO, bytes, sizeof bytes);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got > 0) text_add(&mcp->input, bytes, (size_t)got);
    else mcp->ended = true;
    if (mcp->input.data) take_lines(mcp);
}

/* Waits for input, for outputs of questions and for the end of the reader, and handles what is there. */
static void wait_for_events(struct mcp *mcp)
{
    struct pollfd polled[2 + 2 * AT_ONCE] = {{.fd = mcp->ended ? -1 : STDIN_FILENO, .events = POLLIN},
                                             {.fd = STDOUT_FILENO}};
    size_t running = MIN(mcp->calls, (size_t)AT_ONCE);
    for (size_t i = 0; i < running; i++) {
        polled[2 + 2 * i] = (struct pollfd){.fd = mcp->call[i]->question.answer_fd, .events = POLLIN};
        polled[3 + 2 * i] = (struct pollfd){.fd = mcp->call[i]->question.said_fd, .events = POLLIN};
    }
    if (poll(polled, 2 + 2 * running, -1) < 0) return;
    for (size_t i = 0; i < running; i++) {
        struct question *question = &mcp->call[i]->question;
        if (polled[2 + 2 * i].revents) question_read(&question->answer_fd, &question->answer, &question->pieces);
        if (polled[3 + 2 * i].revents) question_read(&question->said_fd, &question->said, NULL);
    }
    mcp->over |= (polled[1].revents & (POLLERR | POLLNVAL)) != 0;
    if (polled[0].revents) read_input(mcp);
}

void cmd_mcp(struct session *session)
{
    const struct strings_list *directories = &session->options.inputs;
    struct mcp mcp = {.commands = session->options.commands, .version = versions[0]};
    bool good = true;
    progress_end(); /* a question is a fork */
    for (size_t i = 0; i < directories->count && good; i++) good = served_add(&mcp.served, directories->text[i]);
    if (!good) session->status = STATUS_NOTHING;
    mcp.tools = tools_list(mcp.commands, &mcp.served);
    while (good && !mcp.over && (!mcp.ended || mcp.calls)) {
        wait_for_events(&mcp);
        answer_calls(&mcp);
        begin_calls(&mcp);
    }
    for (size_t i = 0; i < mcp.calls; i++) question_kill(&mcp.call[i]->question);
    while (mcp.calls) call_end(&mcp, mcp.calls - 1);
    json_decref(mcp.tools);
    text_free(&mcp.input);
    served_free(&mcp.served);
}
