/* groups.c - describes the process groups of torch.distributed from the metadata distributedInfo.
 *
 * The metadata has torch.profiler's words for a group, and an execution trace has others. As torch writes it, `ranks` is
 * empty for a group of all ranks, and each group has the number of groups that the process made.
 */
#include "write/execution/groups.h"

#include <jansson.h>

/* `all` is the number of ranks of the job, `made` the number of groups. */
static json_t *described(const json_t *group, size_t all, json_t *made)
{
    static const char *const kept[] = {"pg_name", "pg_desc", "backend_config"};
    json_t *to = json_object(), *ranks = json_object_get(group, "ranks");
    size_t size = json_array_size(ranks);
    for (size_t i = 0; i < ARRAY_SIZE(kept); i++) json_object_set(to, kept[i], json_object_get(group, kept[i]));
    if (size == all) json_object_set_new(to, "ranks", json_array());
    else json_object_set(to, "ranks", ranks);
    json_object_set_new(to, "group_size", json_integer((json_int_t)size));
    json_object_set(to, "group_count", made);
    return to;
}

char *groups_text(const struct process *process)
{
    const char *given = pairs_get(process->metadata, "distributedInfo");
    json_t *info = given ? json_loads(given, JSON_REJECT_DUPLICATES, NULL) : NULL;
    json_t *groups = json_object_get(info, "pg_config"), *made = json_object_get(info, "pg_count"),
           *list = json_array();
    size_t all = (size_t)json_integer_value(json_object_get(info, "world_size"));
    char *text = NULL;
    for (size_t i = 0; i < json_array_size(groups); i++) {
        const json_t *group = json_array_get(groups, i);
        if (json_is_array(json_object_get(group, "ranks"))) json_array_append_new(list, described(group, all, made));
    }
    if (json_array_size(list)) text = json_dumps(list, JSON_ENSURE_ASCII);
    json_decref(list);
    json_decref(info);
    return text;
}
