/* slow_links.c - finds the pairs and rings of ranks that take longer than others for the same transfer.
 *
 * A transfer takes as long as it took the rank that came last, on that rank's clock. Transfers are alike if operation,
 * bytes and number of ranks agree, if they span as many hosts and racks, and if their ranks have alike places on their
 * hosts. A ring is not named if one of its pairs is.
 */
#include <stdlib.h>

#include "ask/causes/judging.h"
#include "ask/causes/norm.h"
#include "base/hash.h"

enum { LEAST_REPEATS = 5 };
/* Share by which a link has to be slower. */
static const double LEAST_OF_LINKS = 0.25;

struct transfer {
    uint64_t alike, link; /* hashes: of what makes transfers comparable, and of the ranks */
    const struct comm_row *row;
    int64_t time;
};

struct transfers {
    struct transfer *transfer;
    size_t count, capacity;
    bool no_host; /* a transfer has a rank whose host is unknown */
};

/* A link in the transfers of one kind, and later in all. */
struct link {
    uint64_t link;
    const struct comm_row *row; /* one of its transfers */
    double time, ratio, weight;
    bool is_slow;
    size_t compared;
};

struct links {
    struct link *link;
    size_t count, capacity;
};

/* ---- transfers ---- */

static bool is_message(const struct comm_row *row)
{
    return row->part->op == COLLECTIVE_SEND || row->part->op == COLLECTIVE_RECV;
}

static bool tells_of_link(const struct comm_row *row)
{
    bool whole = row->parts >= 2 && row->ranks == row->parts && row->size == (int64_t)row->parts && !row->mismatch;
    bool known = row->has_work && row->bytes != UNKNOWN_COUNT && row->bytes && row->shortest > 0;
    return whole && known && (is_message(row) || collective_kinds[row->part->op].meets);
}

/* How the ranks of a transfer lie. */
struct layout_of_ranks {
    size_t hosts, racks;
    uint64_t locals; /* hash of the places on the host, or if there are several hosts: whether they are the same */
    bool is_known;
};

static int by_number_of_place(const void *a, const void *b)
{
    return by_number(*(const uint32_t *)a, *(const uint32_t *)b);
}

static size_t distinct(uint32_t *number, size_t count)
{
    size_t kinds = 0;
    qsort(number, count, sizeof *number, by_number_of_place);
    for (size_t i = 0; i < count; i++) kinds += !i || number[i] != number[i - 1];
    return kinds;
}

static struct layout_of_ranks layout_of(const struct comm_row *row, const struct places *places)
{
    struct layout_of_ranks layout = {.is_known = true};
    uint32_t *host = mem_zero(row->parts, sizeof *host), *rack = mem_zero(row->parts, sizeof *rack);
    uint32_t *local = mem_zero(row->parts, sizeof *local);
    for (size_t i = 0; i < row->parts; i++) {
        const struct place_of_rank *place = places_find(places, row->part[i].rank);
        host[i] = place ? place->host : PLACE_UNKNOWN;
        rack[i] = place ? place->rack : PLACE_UNKNOWN;
        local[i] = place ? place->local : PLACE_UNKNOWN;
        layout.is_known &= host[i] != PLACE_UNKNOWN;
    }
    layout.hosts = distinct(host, row->parts);
    layout.racks = distinct(rack, row->parts);
    size_t locals = distinct(local, row->parts);
    layout.locals = locals == 1;
    for (size_t i = 0; i < row->parts && layout.hosts == 1; i++) layout.locals = hash_numbers(layout.locals, local[i]);
    free(host);
    free(rack);
    free(local);
    return layout;
}

static void take_transfer(struct transfers *to, const struct comm_row *row, const struct places *places)
{
    struct layout_of_ranks layout = layout_of(row, places);
    struct transfer transfer = {.row = row, .time = row->shortest};
    transfer.alike = hash_numbers(is_message(row) ? COLLECTIVE_SEND : row->part->op, row->bytes);
    transfer.alike = hash_numbers(hash_numbers(transfer.alike, row->parts), layout.hosts);
    transfer.alike = hash_numbers(hash_numbers(transfer.alike, layout.racks), layout.locals);
    for (size_t i = 0; i < row->parts; i++) transfer.link = hash_numbers(transfer.link, (uint64_t)row->part[i].rank);
    to->no_host |= !layout.is_known;
    if (!layout.is_known) return;
    to->transfer = mem_grow(to->transfer, &to->capacity, to->count + 1, sizeof *to->transfer);
    to->transfer[to->count++] = transfer;
}

static int by_kind_link_and_time(const void *a, const void *b)
{
    const struct transfer *x = a, *y = b;
    if (x->alike != y->alike) return x->alike < y->alike ? -1 : 1;
    if (x->link != y->link) return x->link < y->link ? -1 : 1;
    return by_number(x->time, y->time);
}

/* ---- links ---- */

static void add_link(struct links *links, const struct link *link)
{
    links->link = mem_grow(links->link, &links->capacity, links->count + 1, sizeof *links->link);
    links->link[links->count++] = *link;
}

/* Compares the links that have transfers of one kind. */
static void compare_links(struct links *to, const struct transfer *transfer, size_t count)
{
    struct links alike = {0};
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first; end < count && transfer[end].link == transfer[first].link;) end++;
        double time = (double)transfer[(first + end) / 2].time;
        if (end - first < LEAST_REPEATS) continue;
        add_link(&alike, &(struct link){.link = transfer[first].link,
                                        .row = transfer[first].row,
                                        .time = time,
                                        .weight = (double)(end - first)});
    }
    if (alike.count >= LEAST_RANKS) {
        double *time = mem_zero(alike.count, sizeof *time);
        for (size_t i = 0; i < alike.count; i++) time[i] = alike.link[i].time;
        struct norm norm = norm_of(time, alike.count);
        for (size_t i = 0; i < alike.count; i++) {
            struct link *link = &alike.link[i];
            link->ratio = link->time / norm.middle;
            link->is_slow = link->time - norm.middle > norm_limit(&norm, LEAST_OF_LINKS * norm.middle);
            link->weight *= norm.middle;
            link->compared = alike.count;
            add_link(to, link);
        }
        free(time);
    }
    free(alike.link);
}

static int by_link_number(const void *a, const void *b)
{
    const struct link *x = a, *y = b;
    return (x->link > y->link) - (x->link < y->link);
}

/* Joins what is known of each link from all kinds of transfers. */
static void join_links(struct links *links)
{
    size_t kept = 0;
    struct link *l = links->link;
    if (links->count) qsort(l, links->count, sizeof *l, by_link_number);
    for (size_t first = 0, end; first < links->count; first = end) {
        for (end = first; end < links->count && l[end].link == l[first].link;) end++;
        struct weighted *ratio = mem_zero(end - first, sizeof *ratio);
        struct link whole = l[first];
        double all = 0, slow = 0;
        for (size_t i = first; i < end; i++) {
            ratio[i - first] = (struct weighted){l[i].ratio, l[i].weight};
            all += l[i].weight;
            slow += l[i].is_slow ? l[i].weight : 0;
            whole.compared = MAX(whole.compared, l[i].compared);
        }
        whole.ratio = weighted_median(ratio, end - first);
        whole.is_slow = slow > all / 2;
        l[kept++] = whole;
        free(ratio);
    }
    links->count = kept;
}

/* ---- the judge ---- */

static bool has_rank(const struct comm_row *row, int64_t rank)
{
    size_t at = 0;
    while (at < row->parts && row->part[at].rank != rank) at++;
    return at < row->parts;
}

/* True if a slow pair of the ring explains it. */
static bool is_explained(const struct links *links, const struct link *ring)
{
    if (ring->row->parts == 2) return false;
    for (size_t i = 0; i < links->count; i++) {
        const struct comm_row *pair = links->link[i].row;
        if (links->link[i].is_slow && pair->parts == 2 && has_rank(ring->row, pair->part[0].rank) &&
            has_rank(ring->row, pair->part[1].rank))
            return true;
    }
    return false;
}

static void name_links(struct causes *causes, const struct links *links)
{
    for (size_t i = 0; i < links->count; i++) {
        const struct link *link = &links->link[i];
        const struct comm_row *row = link->row;
        if (!link->is_slow || is_explained(links, link)) continue;
        int64_t *rank = mem_zero(row->parts, sizeof *rank);
        for (size_t k = 0; k < row->parts; k++) rank[k] = row->part[k].rank;
        cause_add(causes, CAUSE_SLOW_LINK, rank, row->parts, link->ratio - 1, link->compared);
        free(rank);
    }
}

void judge_links(struct causes *causes, const struct fleet *fleet)
{
    struct transfers all = {0};
    struct links links = {0};
    for (size_t i = 0; i < fleet->rows->count; i++)
        if (tells_of_link(&fleet->rows->row[i])) take_transfer(&all, &fleet->rows->row[i], fleet->places);
    if (all.count) qsort(all.transfer, all.count, sizeof *all.transfer, by_kind_link_and_time);
    for (size_t first = 0, end; first < all.count; first = end) {
        for (end = first; end < all.count && all.transfer[end].alike == all.transfer[first].alike;) end++;
        compare_links(&links, all.transfer + first, end - first);
    }
    join_links(&links);
    name_links(causes, &links);
    if (!links.count && all.no_host)
        cause_not_judged(causes, CAUSE_SLOW_LINK, "the hosts of ranks are unknown", "name them with --topology FILE");
    else if (!links.count)
        cause_not_judged(causes, CAUSE_SLOW_LINK,
                         "no 4 pairs or groups of ranks that lie alike made the same transfer 5 times each",
                         "a group of all ranks tells nothing of its links: measure pairs of ranks");
    free(all.transfer);
    free(links.link);
}
