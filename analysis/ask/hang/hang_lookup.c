/* hang_lookup.c - finds the process and the thread of a rank, and the keys of calls and groups. */
#include "ask/hang/group.h"
#include "base/hash.h"

int64_t hang_moment(const struct hang *hang, size_t place, int64_t time)
{
    return time == UNKNOWN_TIME ? time : clock_shifted(&hang->clock.process[place].shift, time);
}

size_t hang_place(const struct hang *hang, int64_t rank)
{
    uint32_t place = rank < 0 ? MAP_NONE : map_get(&hang->place, (uint64_t)rank);
    return place == MAP_NONE ? SIZE_MAX : place;
}

const struct hang_thread *hang_main_thread(const struct hang_taken *taken)
{
    const struct hang_thread *best = NULL;
    for (size_t i = 0; i < taken->threads; i++) {
        const struct hang_thread *t = &taken->thread[i];
        bool later =
            best && t->entered != UNKNOWN_TIME && (best->entered == UNKNOWN_TIME || t->entered > best->entered);
        bool earlier =
            best && t->entered == UNKNOWN_TIME && best->entered == UNKNOWN_TIME && t->open.serial < best->open.serial;
        if (!best || later || earlier) best = t;
    }
    return best;
}

uint64_t hang_call_key(int64_t rank, int64_t start)
{
    return hash_numbers((uint64_t)rank, (uint64_t)start);
}

uint64_t hang_group_key(uint32_t group, uint32_t members)
{
    return hash_numbers(group, members);
}
