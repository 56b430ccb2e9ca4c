/* facts.c - keeps what a program says about its run, for every trace of this process and its forked children.
 *
 * Facts may become known before the first stage, and so before there is a trace. Key, value and source of each fact lie
 * one behind the other in one piece of memory, each zero-terminated.
 */
#include "record/facts.h"

#include <string.h>

#include "base/fmt.h"
#include "base/sys.h"
#include "record/clock.h"
#include "record/strings.h"
#include "record/thread.h"

static char room[32768];
static struct {
    struct tfi_lock lock;
    struct tfi_text text;
} facts = {.text = {room, sizeof room, 0, 0}};

void tfi_fact_write(struct tfi_thread *t, const struct tfi_fact *fact)
{
    uint32_t key = tfi_string(fact->key, strlen(fact->key));
    uint32_t value = tfi_string(fact->value, strlen(fact->value));
    uint32_t source = tfi_string(fact->source, strlen(fact->source));
    struct tfi_rec_metadata *rec = TFI_RESERVE(t, metadata);
    if (!rec) return;
    rec->key = key;
    rec->value = value;
    rec->source = source;
    rec->time = tfi_ticks();
    tfi_commit(t, sizeof *rec);
}

/* Reads the fact at `at`; returns the address of the next one. */
static char *read_fact(char *at, struct tfi_fact *fact)
{
    fact->key = at;
    fact->value = fact->key + strlen(fact->key) + 1;
    fact->source = fact->value + strlen(fact->value) + 1;
    return at + (fact->source - at) + strlen(fact->source) + 1;
}

/* Returns the address of the fact with this key, NULL if there is none; sets `next` to the fact behind it. */
static char *find_fact(const char *key, struct tfi_fact *fact, char **next)
{
    for (char *p = room; p < room + facts.text.used; p = *next) {
        *next = read_fact(p, fact);
        if (strcmp(p, key) == 0) return p;
    }
    return NULL;
}

void tfi_fact_keep(const struct tfi_fact *fact)
{
    struct tfi_fact kept;
    size_t size = strlen(fact->key) + strlen(fact->value) + strlen(fact->source) + 3;
    char *next;
    if (!tfi_lock(&facts.lock)) return;
    char *old = find_fact(fact->key, &kept, &next);
    if (old) {
        memmove(old, next, (size_t)(room + facts.text.used - next));
        facts.text.used -= (size_t)(next - old);
    }
    if (size <= facts.text.size - facts.text.used) {
        tfi_text_bytes(&facts.text, fact->key, strlen(fact->key) + 1);
        tfi_text_bytes(&facts.text, fact->value, strlen(fact->value) + 1);
        tfi_text_bytes(&facts.text, fact->source, strlen(fact->source) + 1);
    }
    tfi_unlock(&facts.lock);
}

bool tfi_fact(const char *key, char *value, size_t size)
{
    struct tfi_fact found;
    char *next;
    if (!tfi_lock(&facts.lock)) return false;
    bool known = find_fact(key, &found, &next) != NULL;
    size_t length = known ? strlen(found.value) : 0;
    if (known && length < size) memcpy(value, found.value, length + 1);
    tfi_unlock(&facts.lock);
    return known && length && length < size;
}

void tfi_facts_awake(struct tfi_thread *t)
{
    struct tfi_fact fact;
    if (!tfi_lock(&facts.lock)) return;
    for (char *p = room; p < room + facts.text.used;) {
        p = read_fact(p, &fact);
        tfi_fact_write(t, &fact);
    }
    tfi_unlock(&facts.lock);
}
