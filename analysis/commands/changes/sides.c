/* sides.c - reads the two runs that `diff` compares, and finds the ranks that both have. */
#include "commands/changes/sides.h"

static const char *const side_names[SIDES] = {"A", "B"};

bool side_load(struct session *session, struct session *own, int side, const struct command **question)
{
    const struct options *options = &session->options;
    own->options = *options;
    own->borrows_options = true;
    own->options.inputs = (struct strings_list){&options->inputs.text[side], 1};
    if (question) {
        own->options.command = *question;
        own->options.question = question;
        own->options.questions = 1;
    }
    bool good = session_load(own);
    if (!good) complain(NULL, "%s: there is nothing to compare in %s", side_names[side], options->inputs.text[side]);
    if (own->status) session->status = own->status;
    return good;
}

static void say_ranks(const struct diff_ranks *ranks, int side)
{
    struct text list = {0};
    size_t missing = 0;
    for (size_t i = 0; i < ranks->count[side]; i++) {
        int64_t rank = ranks->rank[side][i];
        if (diff_ranks_has(ranks, side, rank)) continue;
        missing++;
        if (missing <= 16) text_format(&list, "%s%lld", missing > 1 ? ", " : "", (long long)rank);
    }
    if (missing)
        complain(NULL, "%zu of %zu ranks of %s are not in %s and are left out: %s%s", missing, ranks->count[side],
                 side_names[side], side_names[1 - side], list.data, missing > 16 ? ", ..." : "");
    text_free(&list);
}

bool sides_ranks(struct diff_ranks *ranks, const struct session side[SIDES])
{
    diff_ranks_init(ranks, &side[SIDE_A].chosen, &side[SIDE_B].chosen);
    bool good = ranks->common || ranks->one_each;
    if (!good) complain(NULL, "A and B have no rank in common; `rank=N:INPUT` gives an input the rank N");
    if (ranks->one_each)
        complain(NULL, "A is of rank %lld and B of rank %lld: they are compared", (long long)ranks->rank[SIDE_A][0],
                 (long long)ranks->rank[SIDE_B][0]);
    for (int i = 0; i < SIDES && good; i++) say_ranks(ranks, i);
    return good;
}
