/* patterns.c - reports repeated sequences of kernels of an operator: one row per rank and sequence. */
#include "commands/device/answers.h"

enum { MOST_SHOWN = 10000 }; /* MOST_SHOWN: kernels of one sequence */

static void emit_sequence(struct session *session, const struct patterns *patterns, const struct pattern *row,
                          const struct short_names *shorts)
{
    struct emit *e = &session->emit;
    const uint32_t *item = &patterns->item[row->first]; /* the first one is the operator */
    emit_open(e, "pattern", true);
    for (size_t i = 0; i < row->length && i <= MOST_SHOWN; i++) {
        const struct name *name = names_get(&session->model.names, i ? short_names_get(shorts, item[i]) : item[i]);
        emit_bytes_text(e, NULL, name->text, name->length);
    }
    if (row->length > MOST_SHOWN + 1) emit_text(e, NULL, "...");
    emit_close(e);
}

void patterns_print(struct session *session, const struct patterns *patterns, struct pattern_sums *sums)
{
    struct emit *e = &session->emit;
    uint64_t top = session->options.top;
    struct short_names shorts = {0};
    short_names_init(&shorts, &session->model.names, patterns->item,
                     session->options.names == NAMES_SHORT ? patterns->items : 0);
    sums->matches += patterns->matches;
    sums->patterns += patterns->count;
    sums->unknown |= patterns->left.any;
    for (size_t i = 0; i < patterns->count; i++) {
        const struct pattern *row = &patterns->row[i];
        sums->count += row->count;
        sums->device = add_ns(sums->device, row->device);
        sums->host = add_ns(sums->host, row->host);
        if (top && sums->shown++ >= top) continue;
        emit_row(e);
        emit_known(e, "rank", row->rank);
        emit_hide(e, left_rows_rank(&patterns->left, row->rank));
        emit_count(e, "count", row->count);
        emit_count(e, "kernels", row->length - 1);
        emit_us(e, "gpu_us", row->device);
        emit_us(e, "cpu_us", row->host);
        emit_sequence(session, patterns, row, &shorts);
        emit_row_end(e);
    }
    short_names_free(&shorts);
}

bool patterns_have_name(struct session *session)
{
    if (session->options.operator_name && *session->options.operator_name) return true;
    complain(NULL, "patterns needs --operator NAME: a part of the name of the operators whose kernels to compare");
    session->status = STATUS_USAGE;
    return false;
}

void patterns_end(struct session *session, const struct pattern_sums *sums)
{
    emit_totals(&session->emit);
    emit_hide(&session->emit, sums->unknown);
    emit_count(&session->emit, "patterns", sums->patterns);
    emit_count(&session->emit, "count", sums->count);
    emit_us(&session->emit, "gpu_us", sums->device);
    emit_us(&session->emit, "cpu_us", sums->host);
    emit_end(&session->emit);
    session_end(session, sums->count != 0);
}

/* Without a row a message of its own says why, if no filter is to blame. */
static void say_nothing(const struct session *session, const struct pattern_sums *sums)
{
    const char *name = session->options.operator_name;
    if (is_filtered(&session->options)) return;
    if (sums->matches)
        complain(NULL, "%llu operators match --operator %s, and none launched a kernel",
                 (unsigned long long)sums->matches, name);
    else complain(NULL, "no operator or stage has `%s` in its name; `tfanalyze ops` lists the operators", name);
}

void cmd_patterns(struct session *session)
{
    struct pattern_sums sums = {0};
    struct patterns patterns;
    if (!patterns_have_name(session) || !session_load(session)) return;
    if (!session_begin(session, STYLE_TABLE)) return;
    patterns_of(&patterns, &session->chosen, session->options.operator_name);
    patterns_print(session, &patterns, &sums);
    patterns_free(&patterns);
    if (!sums.count) say_nothing(session, &sums);
    patterns_end(session, &sums);
}
