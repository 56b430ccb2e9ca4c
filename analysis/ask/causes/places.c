/* places.c - reads the places of ranks.
 *
 * A line of the file has the rank, its host and, if known, its rack, with commas or blanks between them. Empty lines and
 * lines that begin with `#` count for nothing, nor does a first line `rank,host,rack`.
 */
#include "ask/causes/places.h"

#include <stdlib.h>
#include <string.h>

#include "ask/selection.h"
#include "base/file_in.h"
#include "base/hash.h"

enum { LARGEST = 16 << 20 };

/* ---- names ---- */

struct named {
    struct places *places;
    struct map known; /* number by hash of the name */
};

static uint32_t number_of_name(struct named *named, const char *text, size_t length)
{
    struct places *p = named->places;
    if (!length) return PLACE_UNKNOWN;
    uint64_t hash = hash_text(text, length);
    uint32_t number = map_get(&named->known, hash);
    if (number != MAP_NONE) return number;
    p->name = mem_grow(p->name, &p->name_capacity, p->names + 1, sizeof *p->name);
    p->name[p->names] = mem_text(text, length);
    map_put(&named->known, hash, (uint32_t)p->names);
    return (uint32_t)p->names++;
}

static void add_place(struct places *places, struct place_of_rank place)
{
    places->rank = mem_grow(places->rank, &places->capacity, places->ranks + 1, sizeof *places->rank);
    places->rank[places->ranks++] = place;
}

static int by_rank_of_place(const void *a, const void *b)
{
    const struct place_of_rank *x = a, *y = b;
    return by_number(x->rank, y->rank);
}

static void sort_places(struct places *places)
{
    if (places->ranks) qsort(places->rank, places->ranks, sizeof *places->rank, by_rank_of_place);
}

/* ---- the file ---- */

static const char between[] = " \t\r,";

/* Returns the next word of a line and its length; 0: there is none. */
static const char *next_word(const char **at, size_t *length)
{
    const char *word = *at + strspn(*at, between);
    *length = strcspn(word, between);
    *at = word + *length;
    return word;
}

/* Takes a line. Returns false if it is neither a place nor without a meaning. */
static bool take_line(struct named *named, const char *line, bool is_first)
{
    size_t number, host, rack, more;
    const char *rank = next_word(&line, &number), *on = next_word(&line, &host), *in = next_word(&line, &rack);
    next_word(&line, &more);
    if (!number || *rank == '#') return true;
    if (is_first && number == 4 && memcmp(rank, "rank", 4) == 0) return true;
    if (strspn(rank, "0123456789") != number || number > 9 || !host || more) return false;
    add_place(named->places, (struct place_of_rank){.rank = strtol(rank, NULL, 10),
                                                    .host = number_of_name(named, on, host),
                                                    .rack = number_of_name(named, in, rack)});
    return true;
}

static bool take_lines(struct named *named, const char *path, char *bytes)
{
    size_t number = 0;
    for (char *line = bytes, *end; line; line = end) {
        end = strchr(line, '\n');
        if (end) *end++ = 0;
        if (take_line(named, line, !number++)) continue;
        complain(path, "line %zu is no place: write a rank, its host and, if known, its rack, as in `12,node3,rackA`",
                 number);
        return false;
    }
    return true;
}

bool places_read(struct places *places, const char *path)
{
    struct named named = {.places = places};
    char *why = NULL;
    size_t length = 0;
    *places = (struct places){0};
    if (!path) return true;
    char *bytes = file_whole(path, LARGEST, &length, &why);
    if (!bytes) {
        complain(path, "cannot be read as places of ranks (%s)", why);
        free(why);
        return false;
    }
    bool good = strlen(bytes) == length && take_lines(&named, path, bytes);
    if (strlen(bytes) != length) complain(path, "holds a zero byte: it is no list of ranks and hosts");
    sort_places(places);
    for (size_t i = 1; i < places->ranks && good; i++) {
        good = places->rank[i].rank != places->rank[i - 1].rank;
        if (!good) complain(path, "names rank %lld twice", (long long)places->rank[i].rank);
    }
    map_free(&named.known);
    free(bytes);
    return good;
}

/* ---- the traces ---- */

static int by_host_and_rank(const void *a, const void *b)
{
    const struct place_of_rank *x = *(struct place_of_rank *const *)a, *y = *(struct place_of_rank *const *)b;
    return x->host != y->host ? by_number(x->host, y->host) : by_number(x->rank, y->rank);
}

static void number_locals(struct places *places)
{
    struct place_of_rank **by_host = mem_zero(places->ranks, sizeof *by_host);
    for (size_t i = 0; i < places->ranks; i++) by_host[i] = &places->rank[i];
    if (places->ranks) qsort(by_host, places->ranks, sizeof *by_host, by_host_and_rank);
    for (size_t i = 0; i < places->ranks; i++)
        by_host[i]->local = i && by_host[i]->host == by_host[i - 1]->host ? by_host[i - 1]->local + 1 : 0;
    free(by_host);
}

void places_complete(struct places *places, const struct selection *chosen)
{
    struct named named = {.places = places};
    size_t given = places->ranks, kept = 0;
    for (size_t i = 0; i < places->names; i++)
        map_put(&named.known, hash_text(places->name[i], strlen(places->name[i])), (uint32_t)i);
    for (size_t i = 0; i < chosen->processes; i++) {
        const struct process *p = chosen->process[i];
        const struct place_of_rank wanted = {.rank = p->rank};
        if (given && bsearch(&wanted, places->rank, given, sizeof wanted, by_rank_of_place)) continue;
        uint32_t host = p->host ? number_of_name(&named, p->host, strlen(p->host)) : PLACE_UNKNOWN;
        add_place(places, (struct place_of_rank){.rank = p->rank, .host = host, .rack = PLACE_UNKNOWN});
    }
    sort_places(places);
    for (size_t i = 0; i < places->ranks; i++)
        if (!kept || places->rank[i].rank != places->rank[kept - 1].rank) places->rank[kept++] = places->rank[i];
        else if (places->rank[kept - 1].host != places->rank[i].host) places->rank[kept - 1].host = PLACE_UNKNOWN;
    places->ranks = kept;
    number_locals(places);
    map_free(&named.known);
}

const struct place_of_rank *places_find(const struct places *places, int64_t rank)
{
    const struct place_of_rank wanted = {.rank = rank};
    return places->ranks ? bsearch(&wanted, places->rank, places->ranks, sizeof wanted, by_rank_of_place) : NULL;
}

const char *places_name(const struct places *places, uint32_t number)
{
    return number < places->names ? places->name[number] : NULL;
}

void places_free(struct places *places)
{
    for (size_t i = 0; i < places->names; i++) free(places->name[i]);
    free(places->name);
    free(places->rank);
    *places = (struct places){0};
}
