/* work_kinds.c - classifies device work as computation, communication or memory, by one of three sets of rules.
 *
 * exact: copies and sets are memory whatever their names. A kernel of a known communication library is communication.
 * Any other kernel is computation.
 * tracelens: the rules of TraceLens's GPUEventAnalyser. A set is computation too.
 * hta: the rules of get_kernel_type in utils.py of HTA 0.5.0, which look at the name alone. The `.` of its patterns
 * does not match a newline.
 */
#include "ask/work_kinds.h"

#include <string.h>

#include "model/collective.h"

const char *const work_kind_names[NR_WORK_KINDS] = {[WORK_COMPUTATION] = "COMPUTATION",
                                                    [WORK_COMMUNICATION] = "COMMUNICATION",
                                                    [WORK_MEMORY] = "MEMORY",
                                                    [WORK_OTHER] = "OTHER"};

static bool starts(const struct name *name, const char *word)
{
    return name->length >= strlen(word) && memcmp(name->text, word, strlen(word)) == 0;
}

static bool in_first_line(const struct name *name, const char *word)
{
    const char *end = memchr(name->text, '\n', name->length);
    size_t length = end ? (size_t)(end - name->text) : name->length;
    return memmem(name->text, length, word, strlen(word)) != NULL;
}

/* HTA's patterns: is_comm_kernel matches ^nccl.*Kernel, is_memory_kernel matches (^Memcpy)|(^Memset)|(^dma), and
 * is_compute_kernel does not match (^nccl.*Kernel)|(.*(Memcpy)|(Memset))|(.*Sync). */
static enum work_kind hta_kind(const struct name *name)
{
    if (starts(name, "nccl") && in_first_line(name, "Kernel")) return WORK_COMMUNICATION;
    if (starts(name, "Memcpy") || starts(name, "Memset") || starts(name, "dma")) return WORK_MEMORY;
    return in_first_line(name, "Memcpy") || in_first_line(name, "Sync") ? WORK_OTHER : WORK_COMPUTATION;
}

static enum work_kind look(const struct work_kinds *kinds, enum event_class event_class, const struct name *name)
{
    if (kinds->rules == RULES_HTA) return hta_kind(name);
    if (!IS_WORK(event_class)) return WORK_OTHER;
    if (event_class == CLASS_MEMCPY || (event_class == CLASS_MEMSET && kinds->rules == RULES_EXACT)) return WORK_MEMORY;
    bool communicates = is_communication(name->text, name->length, kinds->rules == RULES_TRACELENS);
    return communicates ? WORK_COMMUNICATION : WORK_COMPUTATION;
}

void work_kinds_init(struct work_kinds *kinds, enum rules rules, const struct names *names)
{
    *kinds = (struct work_kinds){.rules = rules, .names = names};
}

enum work_kind work_kind(struct work_kinds *kinds, enum event_class event_class, uint32_t name)
{
    uint64_t key = (uint64_t)name * NR_CLASSES + event_class;
    uint32_t known = map_get(&kinds->known, key);
    if (known == MAP_NONE) {
        known = look(kinds, event_class, names_get(kinds->names, name));
        map_put(&kinds->known, key, known);
    }
    return (enum work_kind)known;
}

enum work_kind work_kind_of(struct work_kinds *kinds, const struct process *process, size_t work)
{
    const struct works *w = &process->works;
    bool described = kinds->rules == RULES_EXACT && map_get(&process->described, work) != MAP_NONE;
    return described ? WORK_COMMUNICATION : work_kind(kinds, (enum event_class)w->event_class[work], w->name[work]);
}

void work_kinds_free(struct work_kinds *kinds)
{
    map_free(&kinds->known);
    *kinds = (struct work_kinds){0};
}
