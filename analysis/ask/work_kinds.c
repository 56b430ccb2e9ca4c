/* work_kinds.c - classifies device work as computation, communication or memory.
 *
 * Copies and sets are memory whatever their names. A kernel of a known communication library is communication. Any other
 * kernel is computation. compat/ has the rules of other tools.
 */
#include "ask/work_kinds.h"

#include "model/communication.h"

const char *const work_kind_names[NR_WORK_KINDS] = {[WORK_COMPUTATION] = "COMPUTATION",
                                                    [WORK_COMMUNICATION] = "COMMUNICATION",
                                                    [WORK_MEMORY] = "MEMORY",
                                                    [WORK_OTHER] = "OTHER"};

static enum work_kind exact_kind(enum event_class event_class, const struct name *name)
{
    if (!IS_WORK(event_class)) return WORK_OTHER;
    if (event_class == CLASS_MEMCPY || event_class == CLASS_MEMSET) return WORK_MEMORY;
    return is_communication(name->text, name->length, false) ? WORK_COMMUNICATION : WORK_COMPUTATION;
}

const struct kind_rules exact_kinds = {exact_kind, true};

void work_kinds_init(struct work_kinds *kinds, const struct kind_rules *rules, const struct names *names)
{
    *kinds = (struct work_kinds){.rules = rules, .names = names};
}

enum work_kind work_kind(struct work_kinds *kinds, enum event_class event_class, uint32_t name)
{
    uint64_t key = (uint64_t)name * NR_CLASSES + event_class;
    uint32_t known = map_get(&kinds->known, key);
    if (known == MAP_NONE) {
        const struct name *text = names_get(kinds->names, name);
        known = kinds->rules->kind(event_class, text);
        if (event_class == CLASS_KERNEL && user_communication(kinds->names, text->text, text->length))
            known = WORK_COMMUNICATION;
        map_put(&kinds->known, key, known);
    }
    return (enum work_kind)known;
}

enum work_kind work_kind_of(struct work_kinds *kinds, const struct process *process, size_t work)
{
    const struct works *w = &process->works;
    bool described = kinds->rules->by_description && map_get(&process->described, work) != MAP_NONE;
    return described ? WORK_COMMUNICATION : work_kind(kinds, (enum event_class)w->event_class[work], w->name[work]);
}

void work_kinds_free(struct work_kinds *kinds)
{
    map_free(&kinds->known);
    *kinds = (struct work_kinds){0};
}
