/* needs.c - unites and compares needs, bit by bit. */
#include "model/needs/needs.h"

struct needs needs_union(struct needs a, struct needs b)
{
#define NEED(name, meaning) a.name |= b.name;
#include "model/needs/needs.def"
#undef NEED
    a.stream = a.stream > b.stream ? a.stream : b.stream;
    return a;
}

bool needs_meet(struct needs of, struct needs asked)
{
    bool any = false, meet = false;
#define NEED(name, meaning) any |= of.name, meet |= of.name && asked.name;
#include "model/needs/needs.def"
#undef NEED
    return meet || !any;
}
