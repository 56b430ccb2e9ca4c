/* analysis_kineto.c - events of Kineto traces: any order of keys, any cut, errors in them, and the model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "model/load/load_kineto.h"
#include "tfi_trace.h"
#include "unit.h"

static struct names names;
static struct process process;
static struct notes notes;

static void setup(void)
{
    names_init(&names);
    process_init(&process, "test", "kineto");
    notes = (struct notes){0};
}

static void teardown(void)
{
    process_free(&process);
    names_free(&names);
    notes_free(&notes);
}

static bool load_bytes(const void *bytes, size_t length)
{
    const struct kineto_bytes whole = {bytes, length, 64, 1 << 16};
    struct needs all;
    memset(&all, 0xff, sizeof all);
    return load_kineto_bytes(&whole, &names, all, &process, &notes);
}

static bool load(const char *text)
{
    return load_bytes(text, strlen(text));
}

static const char *name_at(uint32_t name)
{
    return names_get(&names, name)->text;
}

static uint64_t lost(const char *cause)
{
    for (size_t i = 0; i < process.loss_count; i++)
        if (strcmp(process.losses[i].cause, cause) == 0) return process.losses[i].count;
    return 0;
}

static uint64_t counted(const char *category)
{
    for (size_t i = 0; i < process.kind_count; i++)
        if (strcmp(process.kinds[i].name, category) == 0) return process.kinds[i].count;
    return 0;
}

static bool said(enum note_level level, const char *words)
{
    for (size_t i = 0; i < notes.count; i++)
        if (notes.note[i].level == level && strstr(notes.note[i].text, words)) return true;
    return false;
}

/* ---- reading ---- */

struct seen {
    size_t count;
    struct kineto_event event[16];
    char *name[16];
};

static void on_event(void *context, const struct kineto_event *event)
{
    struct seen *seen = context;
    if (seen->count < ARRAY_SIZE(seen->event)) {
        seen->name[seen->count] = mem_text(event->name.at ? event->name.at : "", event->name.length);
        seen->event[seen->count] = *event;
    }
    seen->count++;
}

static void forget(struct seen *seen)
{
    for (size_t i = 0; i < MIN(seen->count, ARRAY_SIZE(seen->event)); i++) free(seen->name[i]);
    *seen = (struct seen){0};
}

static bool read_bytes(struct seen *seen, const char *text, size_t length, size_t piece, struct kineto_damage *damage)
{
    const struct kineto_bytes bytes = {text, length, piece, 1 << 16};
    const struct kineto_sink sink = {.context = seen, .event = on_event};
    return kineto_read_bytes(&bytes, &sink, damage, &notes);
}

static const char sample[] =
    "{\"schemaVersion\": 1, \"traceEvents\": [\n"
    "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"a\\\"}, {\\\"ph\\\": \", \"pid\": 1, \"tid\": 2, \"ts\": 3.5, "
    "\"dur\": 1e1, \"args\": {\"External id\": 4, \"x\": [{\"ph\": 1}]}},\n"
    "{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 1, \"tid\": 2, \"args\": {\"name\": \"t\"}},\n"
    "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"k\", \"pid\": 0, \"tid\": 7, \"ts\": 5, \"dur\": 2, \"args\": "
    "{\"device\": 0, \"stream\": 7, \"correlation\": 12}}\n"
    "], \"traceName\": \"n\"}";

/* Sizes of a read. Their multiples put the end of a read at each byte of the sample. */
static const int read_sizes[] = {1, 2, 3, 5, 7, 11, 13, 17, 23, 31, 43, 61};

START_TEST(a_cut_at_any_byte_leaves_the_events_before_it)
{
    struct seen whole = {0}, part = {0};
    struct kineto_damage damage;
    ck_assert(read_bytes(&whole, sample, sizeof sample - 1, 1 << 20, &damage));
    ck_assert_uint_eq(whole.count, 3);
    ck_assert(!damage.cut && !damage.bad);
    for (size_t length = 0; length < sizeof sample - 1; length++) {
        char *copy = mem_text(sample, length);
        bool usable = read_bytes(&part, copy, length, (size_t)read_sizes[_i], &damage);
        ck_assert_uint_le(part.count, whole.count);
        ck_assert_uint_eq(damage.bad, 0);
        ck_assert(!usable || damage.cut);
        for (size_t i = 0; i < part.count; i++) {
            ck_assert_str_eq(part.name[i], whole.name[i]);
            ck_assert_uint_eq(part.event[i].has, whole.event[i].has);
            if (whole.event[i].has & HAS_TS) ck_assert_int_eq(part.event[i].ts, whole.event[i].ts);
        }
        forget(&part);
        free(copy);
    }
    forget(&whole);
}
END_TEST

/* Members that resemble each other, so that a guess from the event before would be wrong. */
static const char *const resembling[] = {"\"pid\": 12, \"tid\": 7, \"ts\": 1",
                                         "\"pid\": 1, \"tid\": 71, \"ts\": 2",
                                         "\"pid\": 123, \"tid\": 7.5, \"ts\":1",
                                         "\"pid\":12, \"tid\":-7, \"ts\" : 3",
                                         "\"pid\": 1e1, \"tid\": 7 , \"ts\":1",
                                         "\"pid\": \"12\", \"tid\": \"7\", \"ts\": 1",
                                         "\"pid\":\n   12, \"tid\": 7, \"t\": 9",
                                         "\"pid\": 12, \"tids\": 7, \"ts\":1",
                                         "\"pid\" 12, \"tid\": 7, \"ts\":1",
                                         "\"pid\"::12, \"tid\": 7, \"ts\":1",
                                         "\"pid\": 12., \"tid\": 7, \"ts\":1",
                                         "\"p\\u0069d\": 13, \"tid\": 7, \"ts\":1",
                                         "\"pid\": 12, \"tid\": 9223372036854775808, \"ts\":1",
                                         "\"pid\"            :12, \"tid\": 7, \"ts\":\n              1"};

static void ck_same_event(const struct kineto_event *a, const struct kineto_event *b)
{
    ck_assert_uint_eq(a->has, b->has);
    if (a->has & HAS_PID) ck_assert_int_eq(a->pid, b->pid);
    if (a->has & HAS_TID) ck_assert_int_eq(a->tid, b->tid);
    if (a->has & HAS_TS) ck_assert_int_eq(a->ts, b->ts);
    ck_assert_uint_eq(a->pid_text.length, b->pid_text.length);
}

START_TEST(no_event_depends_on_the_one_before)
{
    struct seen pair = {0}, alone = {0};
    struct kineto_damage damage;
    char text[512];
    for (size_t i = 0; i < ARRAY_SIZE(resembling); i++) {
        int length = snprintf(text, sizeof text, "{\"traceEvents\": [{\"ph\": \"X\", %s}]}", resembling[i]);
        read_bytes(&alone, text, (size_t)length, sizeof text, &damage);
        for (size_t before = 0; before < ARRAY_SIZE(resembling); before++) {
            length = snprintf(text, sizeof text, "{\"traceEvents\": [{\"ph\": \"X\", %s}, {\"ph\": \"X\", %s}]}",
                              resembling[before], resembling[i]);
            read_bytes(&pair, text, (size_t)length, sizeof text, &damage);
            if (alone.count && pair.count) ck_same_event(&pair.event[pair.count - 1], &alone.event[0]);
            ck_assert(alone.count ? pair.count : pair.count < 2);
            forget(&pair);
        }
        forget(&alone);
    }
}
END_TEST

START_TEST(keys_stand_in_any_order)
{
    static const char *const members[] = {"\"ph\":\"X\"", "\"ts\":\"1.5\"", "\"dur\":2", "\"name\":\"n\"",
                                          "\"args\":{\"stream\":3,\"correlation\":18446744073709551614}"};
    struct seen seen = {0};
    struct kineto_damage damage;
    char text[512];
    int order[5] = {_i % 5, _i / 5 % 5, _i / 25 % 5, 0, 0};
    bool used[5] = {false};
    int filled = 3;
    for (int i = 0; i < 3; i++) {
        if (used[order[i]]) return; /* the indices repeat: another turn has this order */
        used[order[i]] = true;
    }
    for (int i = 0; i < 5; i++)
        if (!used[i]) order[filled++] = i;
    snprintf(text, sizeof text, "[{%s , %s,\n\"other\":[{}],%s,%s,%s}]", members[order[0]], members[order[1]],
             members[order[2]], members[order[3]], members[order[4]]);
    ck_assert(read_bytes(&seen, text, strlen(text), 1000, &damage));
    ck_assert_uint_eq(seen.count, 1);
    const struct kineto_event *event = &seen.event[0];
    ck_assert_int_eq(event->phase, 'X');
    ck_assert_int_eq(event->ts, 1500);
    ck_assert_int_eq(event->dur, 2000);
    ck_assert_int_eq(event->stream, 3);
    ck_assert_uint_eq(event->correlation, UINT64_MAX - 1);
    ck_assert_uint_eq(event->has, HAS_TS | HAS_DUR | HAS_STREAM | HAS_CORRELATION | HAS_FLOAT_TS);
    ck_assert_str_eq(seen.name[0], "n");
    forget(&seen);
}
END_TEST

/* Keys that begin alike, at the same place of like events: each is known by all its bytes, whatever was there before. */
static const struct {
    const char *text;
    unsigned flag;
} alike[] = {
    {"stream", HAS_STREAM},
    {"strea", 0},
    {"streams", 0},
    {"stream\\\"", 0},
    {"str\\u0065am", HAS_STREAM},
    {"", 0},
    {"correlation", HAS_CORRELATION},
    {"correlation\\\\", 0},
    {"correlation1234", 0},
    {"correlation12345", 0},
    {"correlation123456", 0},
    {"External id", HAS_EXTERNAL},
    {"External ie", 0},
};

START_TEST(a_key_is_known_by_all_its_bytes)
{
    for (size_t other = 0; other < ARRAY_SIZE(alike); other++) {
        const size_t order[] = {(size_t)_i, other, (size_t)_i, (size_t)_i, other, other};
        struct seen seen = {0};
        struct kineto_damage damage;
        char text[2048];
        int length = snprintf(text, sizeof text, "[");
        for (size_t i = 0; i < ARRAY_SIZE(order); i++)
            length += snprintf(text + length, sizeof text - (size_t)length,
                               "%s{\"ph\":\"X\",\"cat\":\"kernel\",\"ts\":%zu,\"args\":{\"%s\":7}}", i ? "," : "", i,
                               alike[order[i]].text);
        snprintf(text + length, sizeof text - (size_t)length, "]");
        ck_assert(read_bytes(&seen, text, strlen(text), 1000, &damage));
        ck_assert_uint_eq(seen.count, ARRAY_SIZE(order));
        for (size_t i = 0; i < seen.count; i++) ck_assert_uint_eq(seen.event[i].has, HAS_TS | alike[order[i]].flag);
        forget(&seen);
    }
}
END_TEST

/* One invalid event between two valid ones. */
static const char *const broken[] = {
    "{\"ph\":\"X\",\"ts\":,\"dur\":1}",
    "{\"ph\" \"X\"}",
    "{\"ph\":\"X\",\"name\":\"lost, \"ts\":2}",
    "{\"ph\":\"X\",\"args\":{\"a\":[1,2}}",
    "{\"ph\":\"X\",\"args\":{\"a\":1}",
    "{\"ph\":\"X\",\"args\":{\"x\":tru\"e\"}}",
    "{\"ph\":\"X\",\"ts\":12x}",
    "{\"ph\":\"X\",\"args\":{\"lost: 1}}",
    "{\"ph\":\"X\",\"ts\":1e30,\"dur\":1}",
    "{ph:\"X\"}",
    "7",
    "\"text\"",
    "[{}]",
};

START_TEST(an_event_that_makes_no_sense_costs_only_itself)
{
    char text[512];
    for (size_t piece = 1; piece < 300; piece = 3 * piece + 1) {
        struct seen seen = {0};
        struct kineto_damage damage;
        snprintf(text, sizeof text,
                 "{\"traceEvents\":[{\"ph\":\"X\",\"name\":\"before\"}, %s,\n{\"ph\":\"X\",\"name\":\"after\"}]}",
                 broken[_i]);
        ck_assert(read_bytes(&seen, text, strlen(text), piece, &damage));
        ck_assert_msg(seen.count == 2, "%s: %zu in pieces of %zu", broken[_i], seen.count, piece);
        ck_assert_str_eq(seen.name[0], "before");
        ck_assert_str_eq(seen.name[1], "after");
        ck_assert_uint_eq(damage.bad, 1);
        ck_assert(!damage.cut);
        forget(&seen);
    }
}
END_TEST

START_TEST(an_event_that_is_too_large_is_left_out)
{
    struct text text = {0};
    struct seen seen = {0};
    struct kineto_damage damage;
    text_puts(&text, "[{\"ph\":\"X\",\"name\":\"before\"},{\"ph\":\"X\",\"name\":\"");
    for (int i = 0; i < 200000; i++) text_puts(&text, "{");
    text_puts(&text, "\"},{\"ph\":\"X\",\"name\":\"after\"}]");
    ck_assert(read_bytes(&seen, text.data, text.length, 4096, &damage));
    ck_assert_uint_eq(seen.count, 2);
    ck_assert_uint_eq(damage.bad, 1);
    ck_assert_str_eq(seen.name[1], "after");
    forget(&seen);
    text_free(&text);
}
END_TEST

/* ---- gzip ---- */

static size_t pack(char *to, size_t room, const char *text)
{
    z_stream z = {0};
    ck_assert_int_eq(deflateInit2(&z, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)text;
    z.avail_in = (uInt)strlen(text);
    z.next_out = (Bytef *)to;
    z.avail_out = (uInt)room;
    ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return room - z.avail_out;
}

START_TEST(members_of_gzip_are_one_text)
{
    char packed[1024];
    size_t length = pack(packed, sizeof packed, "{\"traceEvents\":[{\"ph\":\"X\",\"ts\":1,\"dur\":2,\"cat\":\"ke");
    length += pack(packed + length, sizeof packed - length, "rnel\"}],\"distributedInfo\":{\"rank\":2}}");
    memcpy(packed + length, "garbage", 7);
    ck_assert(load_bytes(packed, length + 7));
    ck_assert_uint_eq(process.works.table.count, 1);
    ck_assert_int_eq(process.rank, 2);
    ck_assert(process.complete);
    ck_assert(said(NOTE, "the data after its compressed part"));
    ck_assert(!notes_have(&notes, LOSS));
}
END_TEST

START_TEST(a_wrong_checksum_is_said)
{
    char packed[1024];
    size_t length = pack(packed, sizeof packed, "[{\"ph\":\"X\",\"ts\":1,\"dur\":2,\"cat\":\"kernel\"}]");
    packed[length - 8] ^= 1;
    ck_assert(load_bytes(packed, length));
    ck_assert_uint_eq(process.works.table.count, 1);
    ck_assert(!process.complete);
    ck_assert(said(LOSS, "checksum"));
}
END_TEST

START_TEST(a_cut_gzip_gives_what_it_has)
{
    char packed[2048];
    size_t length = pack(packed, sizeof packed, sample);
    ck_assert(load_bytes(packed, length - 40));
    ck_assert(!process.complete);
    ck_assert_uint_eq(lost("cut"), 1);
    ck_assert(said(LOSS, "ends early"));
}
END_TEST

/* ---- the model ---- */

START_TEST(events_go_where_they_belong)
{
    ck_assert(load(
        "{\"traceEvents\":["
        "{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#12\",\"pid\":5,\"tid\":6,\"ts\":10,\"dur\":"
        "90},"
        "{\"ph\":\"X\",\"cat\":\"Operator\",\"name\":\"ProfilerStep#13\",\"pid\":5,\"tid\":\"6\",\"ts\":100,\"dur\":9},"
        "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::add\",\"pid\":5,\"tid\":6,\"ts\":11,\"dur\":4,"
        "\"args\":{\"External id\":3}},"
        "{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"launch\",\"pid\":5,\"tid\":7,\"ts\":12.001,\"dur\":0.5,"
        "\"args\":{\"correlation\":9,\"External id\":3}},"
        "{\"ph\":\"X\",\"cat\":\"Kernel\",\"name\":\"k\",\"pid\":0,\"tid\":\"stream 7\",\"ts\":13,\"dur\":2,"
        "\"args\":{\"correlation\":9,\"external id\":3}},"
        "{\"ph\":\"X\",\"cat\":\"gpu_memcpy\",\"name\":\"m\",\"pid\":1,\"tid\":2,\"ts\":14,\"dur\":2,"
        "\"args\":{\"device\":4,\"stream\":4294967295}},"
        "{\"ph\":\"s\",\"cat\":\"fwdbwd\",\"id\":1,\"pid\":5,\"tid\":6,\"ts\":11},"
        "{\"ph\":\"f\",\"cat\":\"fwdbwd\",\"id\":1,\"pid\":5,\"tid\":7,\"ts\":12},"
        "{\"ph\":\"f\",\"cat\":\"ac2g\",\"id\":1,\"pid\":5,\"tid\":7,\"ts\":12},"
        "{\"ph\":\"X\",\"cat\":\"own\",\"name\":\"o\",\"pid\":5,\"tid\":6,\"ts\":11,\"dur\":4},"
        "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":5,\"tid\":7,\"args\":{\"name\":\"loader\"}}"
        "],\"baseTimeNanoseconds\":1700000000000000000,\"host_name\":\"h\",\"distributedInfo\":{\"rank\":3,"
        "\"world_size\":8,\"backend\":\"nccl\"},\"deviceProperties\":[{\"id\":0,\"name\":\"GPU\"}]}"));
    const int64_t base = 1700000000000000000;
    ck_assert_uint_eq(process.ranges.table.count, 2);
    ck_assert_str_eq(name_at(process.ranges.name[0]), "ProfilerStep*");
    ck_assert_uint_eq(process.ranges.id[0], 12);
    ck_assert_uint_eq(process.ranges.id[1], 13);
    ck_assert_uint_eq(process.ranges.thread[0], process.ranges.thread[1]);
    ck_assert_int_eq(process.ranges.start[0], base + 10000);
    ck_assert_int_eq(process.ranges.end[0], base + 100000);
    ck_assert_uint_eq(process.ranges.flags[0], TFI_RANGE_STAGE | TFI_RANGE_NESTED);
    ck_assert_uint_eq(process.spans.table.count, 2);
    ck_assert_uint_eq(process.spans.id[0], 3);
    ck_assert_uint_eq(process.spans.id[1], 9);
    ck_assert_int_eq(process.spans.start[1], base + 12001);
    ck_assert_int_eq(process.spans.end[1], base + 12501);
    ck_assert_uint_eq(process.works.table.count, 2);
    ck_assert_uint_eq(process.works.correlation[0], 9);
    ck_assert_uint_eq(process.works.external[0], 3);
    ck_assert_uint_eq(process.works.correlation[1], NO_ID);
    const struct lane *row = &process.lane[process.works.lane[0]], *lane = &process.lane[process.works.lane[1]];
    ck_assert(row->device == 0 && row->stream == 7 && !row->has_stream);
    ck_assert(lane->device == 4 && lane->stream == 4294967295 && lane->has_stream);
    ck_assert_uint_eq(process.forwards.table.count, 2);
    ck_assert(process.forwards.is_forward[0] && !process.forwards.is_forward[1]);
    ck_assert_uint_eq(process.threads, 2);
    ck_assert_str_eq(name_at(process.thread[1].name), "loader");
    ck_assert_int_eq(process.pid, 5);
    ck_assert_int_eq(process.rank, 3);
    ck_assert_int_eq(process.world, 8);
    ck_assert_str_eq(process.host, "h");
    ck_assert_str_eq(pairs_get(process.metadata, "device.0"), "GPU");
    ck_assert_str_eq(pairs_get(process.metadata, "distributedInfo.backend"), "nccl");
    ck_assert_int_eq(process.first, base + 10000);
    ck_assert_int_eq(process.last, base + 109000);
    ck_assert(process.clock.has_axis && process.clock.has_rate && process.complete);
    ck_assert(process.has_float_ts && process.has_float_dur);
    ck_assert_uint_eq(process.events, 11);
    ck_assert_uint_eq(process.lost, 0);
    ck_assert_uint_eq(counted("own"), 1);
    ck_assert_uint_eq(counted("metadata"), 1);
}
END_TEST

START_TEST(what_is_lost_has_a_cause)
{
    ck_assert(load("[{\"ph\":\"X\",\"cat\":\"kernel\",\"ts\":1},"
                   "{\"ph\":\"X\",\"cat\":\"kernel\",\"dur\":1},"
                   "{\"ph\":\"X\",\"cat\":\"kernel\",\"ts\":NaN,\"dur\":1},"
                   "{\"ph\":\"X\",\"cat\":\"kernel\",\"ts\":1,\"dur\":-1},"
                   "{\"ph\":\"X\",\"cat\":\"kernel\",\"ts\":9e15,\"dur\":1},"
                   "{\"ph\":\"B\",\"cat\":\"cpu_op\",\"ts\":1},"
                   "{\"ph\":\"X\",\"cat\":\"kernel\",\"ts\":1,\"dur\":0}]"));
    ck_assert_uint_eq(lost("no_duration"), 1);
    ck_assert_uint_eq(lost("no_time"), 2);
    ck_assert_uint_eq(lost("negative_duration"), 1);
    ck_assert_uint_eq(lost("bad_time"), 1);
    ck_assert_uint_eq(lost("other_phase"), 1);
    ck_assert_uint_eq(process.lost, 6);
    ck_assert_uint_eq(process.events, 2);
    ck_assert_uint_eq(process.works.table.count, 1);
    ck_assert(said(LOSS, "negative duration"));
}
END_TEST

START_TEST(what_is_no_trace_is_refused)
{
    static const char *const texts[] = {"",           "text",    "{\"timing_ms\":[1]}", "[1,2]", "{\"traceEv",
                                        "{\"a\":1}}", "\x1f\x8b"};
    ck_assert(!load(texts[_i]));
    ck_assert(notes_have(&notes, UNUSABLE));
}
END_TEST

START_TEST(a_trace_without_events_is_one)
{
    ck_assert(load("{\"traceEvents\": []}"));
    ck_assert(said(NOTE, "no events"));
    ck_assert_uint_eq(process.events, 0);
    ck_assert(!process.has_time && process.complete);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("kineto");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, a_cut_at_any_byte_leaves_the_events_before_it, 0, (int)ARRAY_SIZE(read_sizes));
    tcase_add_test(tcase, no_event_depends_on_the_one_before);
    tcase_add_loop_test(tcase, keys_stand_in_any_order, 0, 125);
    tcase_add_loop_test(tcase, a_key_is_known_by_all_its_bytes, 0, ARRAY_SIZE(alike));
    tcase_add_loop_test(tcase, an_event_that_makes_no_sense_costs_only_itself, 0, (int)ARRAY_SIZE(broken));
    tcase_add_test(tcase, an_event_that_is_too_large_is_left_out);
    tcase_add_test(tcase, members_of_gzip_are_one_text);
    tcase_add_test(tcase, a_wrong_checksum_is_said);
    tcase_add_test(tcase, a_cut_gzip_gives_what_it_has);
    tcase_add_test(tcase, events_go_where_they_belong);
    tcase_add_test(tcase, what_is_lost_has_a_cause);
    tcase_add_loop_test(tcase, what_is_no_trace_is_refused, 0, 7);
    tcase_add_test(tcase, a_trace_without_events_is_one);
    return unit_run(tcase);
}
