/* ncu.c - reads what Nsight Compute's command line writes with --csv.
 *
 * The bytes are read twice: first all numbers together tell the sign of the decimals, then each is read. A head may come
 * again, where files were put together. Files that name the same process, launch and kernel are about one launch: ncu
 * writes a file for each section, or measures other metrics in another pass. A row that is no launch of the table above it (a line that the program printed)
 * is skipped; what may have been a row, because it begins as one, is counted as damage.
 */
#include "read/ncu/ncu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/escape.h"
#include "base/file_in.h"
#include "base/hash.h"
#include "read/ncu/ncu_number.h"
#include "read/ncu/program_in.h"

enum { LOOKED_AT = 1 << 16, MOST_BYTES = 1 << 29, LONGEST_SAID = 400 };

const char *const ncu_keys[NR_NCU_METRICS] = {
#define METRIC(id, key, kind) [NCU_##id] = key,
#include "read/ncu/metrics.def"
};

static const enum ncu_kind kinds[NR_NCU_METRICS] = {
#define METRIC(id, key, kind) [NCU_##id] = NCU_##kind,
#include "read/ncu/metrics.def"
};

static const struct {
    enum ncu_metric metric;
    const char *name;
} names[] = {
#define NAMED(id, name) {NCU_##id, name},
#include "read/ncu/metrics.def"
};

/* The columns that a table may have; NO_COLUMN: it lacks one. */
enum ncu_column {
    ID,
    PROCESS,
    KERNEL,
    BLOCK,
    GRID,
    METRIC_NAME,
    METRIC_UNIT,
    METRIC_VALUE,
    AVERAGE,
    INVOCATIONS,
    RULE,
    RULE_TEXT,
    NR_COLUMNS
};
#define NO_COLUMN SIZE_MAX
static const char *const columns[NR_COLUMNS] = {
    [ID] = "ID",
    [PROCESS] = "Process ID",
    [KERNEL] = "Kernel Name",
    [BLOCK] = "Block Size",
    [GRID] = "Grid Size",
    [METRIC_NAME] = "Metric Name",
    [METRIC_UNIT] = "Metric Unit",
    [METRIC_VALUE] = "Metric Value",
    [AVERAGE] = "Average",
    [INVOCATIONS] = "Invocations",
    [RULE] = "Rule Name",
    [RULE_TEXT] = "Rule Description",
};

/* A column of --page raw that is read. */
struct raw_column {
    size_t place;
    char *name;
    enum ncu_kind kind;
    double factor;
};

struct table_reader {
    struct csv csv;
    struct ncu_locale locale;
    bool has_head, is_raw, has_units;
    size_t at[NR_COLUMNS], width; /* width: cells of the head */
    struct raw_column *raw;
    size_t raws, raw_capacity;
    struct ncu_launches *launches;
    uint64_t rows, bad;
};

/* ---- the head ---- */

static void forget_raw(struct table_reader *r)
{
    for (size_t i = 0; i < r->raws; i++) free(r->raw[i].name);
    r->raws = 0;
}

static bool is_read(const struct csv_cell *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (csv_is(name, names[i].name)) return true;
    return csv_has(name, "issue_stalled_");
}

/* Takes a row that is the head of a table. Returns false for any other row. */
static bool take_head(struct table_reader *r)
{
    const struct csv *csv = &r->csv;
    size_t at[NR_COLUMNS];
    for (int i = 0; i < NR_COLUMNS; i++) at[i] = NO_COLUMN;
    for (size_t k = csv->cells; k-- > 0;)
        for (int i = 0; i < NR_COLUMNS; i++)
            if (csv_is(&csv->cell[k], columns[i])) at[i] = k;
    if (at[KERNEL] == NO_COLUMN) return false;
    forget_raw(r);
    memcpy(r->at, at, sizeof at);
    r->has_head = true;
    r->has_units = false;
    r->width = csv->cells;
    r->is_raw = at[METRIC_NAME] == NO_COLUMN;
    for (size_t k = 0; k < csv->cells && r->is_raw; k++) {
        if (!is_read(&csv->cell[k])) continue;
        r->raw = mem_grow(r->raw, &r->raw_capacity, r->raws + 1, sizeof *r->raw);
        r->raw[r->raws++] = (struct raw_column){k, csv_text(&csv->cell[k]), NCU_NUMBER, 1};
    }
    return true;
}

/* Takes the row of units below the head of a raw table: its kernel has no name. */
static bool take_units(struct table_reader *r)
{
    const struct csv *csv = &r->csv;
    if (!r->is_raw || r->has_units || csv->cells <= r->at[KERNEL] || csv->cell[r->at[KERNEL]].length) return false;
    for (size_t i = 0; i < r->raws; i++)
        if (r->raw[i].place < csv->cells) r->raw[i].kind = ncu_unit(&csv->cell[r->raw[i].place], &r->raw[i].factor);
    r->has_units = true;
    return true;
}

/* ---- a launch ---- */

static const struct csv_cell *cell_of(const struct table_reader *r, enum ncu_column column)
{
    return r->at[column] < r->csv.cells ? &r->csv.cell[r->at[column]] : NULL;
}

static uint64_t whole_of(const struct table_reader *r, enum ncu_column column, uint64_t otherwise)
{
    const struct csv_cell *cell = cell_of(r, column);
    double value = cell ? ncu_number(&r->locale, cell) : NAN;
    return value >= 0 && value < 9e15 ? (uint64_t)value : otherwise;
}

static char *text_of(const struct table_reader *r, enum ncu_column column)
{
    const struct csv_cell *cell = cell_of(r, column);
    return cell && cell->length ? csv_text(cell) : NULL;
}

static bool same_text(const char *text, const struct csv_cell *cell)
{
    return text && cell && strlen(text) <= cell->length && (csv_is(cell, text) || csv_has(cell, "\"\""));
}

/* Returns the launch that the row is about. A raw table has each in one row, the other one in many, one after the other or
 * not. A summary has no IDs: its kernels are told apart by their names. */
static struct ncu_launch *launch_of(struct table_reader *r)
{
    struct ncu_launches *l = r->launches;
    const struct csv_cell *kernel = cell_of(r, KERNEL);
    uint64_t process = whole_of(r, PROCESS, 0), number = whole_of(r, ID, UINT64_MAX);
    uint64_t key = hash_numbers(hash_numbers(process, number), hash_text(kernel->at, kernel->length));
    uint32_t place = map_get(&l->of, key);
    if (place != MAP_NONE && same_text(l->launch[place].kernel, kernel)) return &l->launch[place];
    l->launch = mem_grow(l->launch, &l->capacity, l->count + 1, sizeof *l->launch);
    struct ncu_launch *launch = &l->launch[l->count];
    *launch =
        (struct ncu_launch){csv_text(kernel), text_of(r, GRID), text_of(r, BLOCK), process, number, .launches = 1};
    for (int i = 0; i < NR_NCU_METRICS; i++) launch->metric[i] = NAN;
    map_put(&l->of, key, (uint32_t)l->count++);
    return launch;
}

/* Keeps the largest of the reasons for which warps waited. All have the same unit in one file. */
static void add_stall(struct ncu_launch *launch, const char *name, double value)
{
    const char *from = strstr(name, "issue_stalled_");
    if (!from || isnan(value) || (launch->stall && value <= launch->stall_value)) return;
    from += strlen("issue_stalled_");
    size_t length = strcspn(from, ".");
    const char *per = memmem(from, length, "_per_", 5);
    bool is_none = strncmp(from, "selected", 8) == 0 || strncmp(from, "not_selected", 12) == 0; /* no wait */
    if (is_none || memmem(from, length, "_not_issued", 11)) return;
    free(launch->stall);
    launch->stall = mem_text(from, per ? (size_t)(per - from) : length);
    launch->stall_value = value;
}

/* The first name that a launch has for a metric counts. */
static void add_metric(struct ncu_launch *launch, const char *name, enum ncu_kind kind, double factor, double value)
{
    add_stall(launch, name, value);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        double *metric = &launch->metric[names[i].metric];
        if (strcmp(names[i].name, name) != 0 || !isnan(*metric) || kinds[names[i].metric] != kind) continue;
        *metric = value * factor;
    }
}

/* Keeps the first two sentences of the rule on the bottleneck, in ncu's words. */
static void add_rule(struct table_reader *r, struct ncu_launch *launch)
{
    const struct csv_cell *rule = cell_of(r, RULE), *text = cell_of(r, RULE_TEXT);
    if (launch->says || !rule || !text || !text->length || !csv_is(rule, "SOLBottleneck")) return;
    struct csv_cell part = {text->at, MIN(text->length, LONGEST_SAID)};
    const char *look = memmem(part.at, part.length, ". Look", 6);
    if (look) part.length = (size_t)(look + 1 - part.at);
    launch->says = csv_text(&part);
}

static void take_details(struct table_reader *r, struct ncu_launch *launch)
{
    static const struct csv_cell none = {"", 0};
    const struct csv_cell *name = cell_of(r, METRIC_NAME), *unit = cell_of(r, METRIC_UNIT),
                          *value = cell_of(r, METRIC_VALUE);
    value = value ? value : cell_of(r, AVERAGE);
    launch->launches = MAX(launch->launches, whole_of(r, INVOCATIONS, 1));
    add_rule(r, launch);
    if (!name || !value || !is_read(name)) return;
    double factor;
    enum ncu_kind kind = ncu_unit(unit ? unit : &none, &factor);
    char *text = csv_text(name);
    add_metric(launch, text, kind, factor, ncu_number(&r->locale, value));
    free(text);
}

static void take_raw(struct table_reader *r, struct ncu_launch *launch)
{
    for (size_t i = 0; i < r->raws; i++) {
        const struct raw_column *c = &r->raw[i];
        if (c->place < r->csv.cells)
            add_metric(launch, c->name, c->kind, c->factor, ncu_number(&r->locale, &r->csv.cell[c->place]));
    }
}

/* ---- the file ---- */

/* A row that may end earlier than the head does (ncu leaves the cells of rules away), but has its kernel. */
static bool is_row(const struct table_reader *r)
{
    size_t least = r->is_raw ? r->width : MAX(r->at[METRIC_NAME], r->at[KERNEL]) + 1;
    return r->csv.cells >= least && r->csv.cells <= r->width && r->csv.cell[r->at[KERNEL]].length;
}

static void take_row(struct table_reader *r)
{
    if (!r->csv.overfull && (take_head(r) || !r->has_head || take_units(r))) return;
    if (!r->csv.overfull && is_row(r)) {
        struct ncu_launch *launch = launch_of(r);
        r->rows++;
        if (r->is_raw) take_raw(r, launch);
        else take_details(r, launch);
    } else if (r->csv.overfull || r->csv.cells > r->width / 2) {
        r->bad++;
    }
}

static void find_locale(struct table_reader *r, const char *bytes, size_t length)
{
    r->csv = (struct csv){.at = bytes, .end = bytes + length, .cell = r->csv.cell, .capacity = r->csv.capacity};
    while (csv_row(&r->csv)) {
        if (r->csv.overfull || take_head(r) || !r->has_head || !is_row(r)) continue;
        const struct csv_cell *value = cell_of(r, METRIC_VALUE);
        value = value ? value : cell_of(r, AVERAGE);
        for (size_t i = 0; i < r->raws; i++) ncu_locale_add(&r->locale, &r->csv.cell[r->raw[i].place]);
        if (value && !r->is_raw) ncu_locale_add(&r->locale, value);
    }
}

/* Repeats what ncu itself said, where it made no table. */
static void note_no_table(const char *bytes, size_t length, struct notes *notes)
{
    const char *error = memmem(bytes, length, "==ERROR== ", 10);
    if (error) {
        struct text said = {0};
        size_t left = (size_t)(bytes + length - error) - 10;
        const char *end = memchr(error + 10, '\n', left);
        text_visible(&said, error + 10, MIN(end ? (size_t)(end - error) - 10 : left, LONGEST_SAID));
        notes_add(notes, UNUSABLE, "has no table of Nsight Compute, which said: %s", said.data ? said.data : "");
        text_free(&said);
        return;
    }
    notes_add(notes, UNUSABLE,
              "has no table of Nsight Compute: no row has the column \"Kernel Name\"; write one with "
              "`ncu --csv`, or with `ncu --import REPORT --csv`");
}

bool ncu_read_bytes(const char *bytes, size_t length, struct ncu_launches *launches, struct notes *notes)
{
    struct table_reader r = {.launches = launches};
    find_locale(&r, bytes, length);
    bool found = r.has_head;
    r.has_head = false;
    r.csv = (struct csv){.at = bytes, .end = bytes + length, .cell = r.csv.cell, .capacity = r.csv.capacity};
    while (csv_row(&r.csv) && !r.csv.cut) take_row(&r);
    if (r.csv.cut)
        notes_add(notes, LOSS, "ends inside a row, which was left out: the file is cut, or still being written");
    if (r.bad)
        notes_add(notes, LOSS, "%llu rows have another number of cells than the table's head, and were left out",
                  (unsigned long long)r.bad);
    if (!found) note_no_table(bytes, length, notes);
    else if (!r.rows) notes_add(notes, UNUSABLE, "has a table of Nsight Compute without a kernel");
    forget_raw(&r);
    free(r.raw);
    free(r.csv.cell);
    return r.rows > 0;
}

static bool ends_in(const char *path, const char *end)
{
    size_t length = strlen(path), tail = strlen(end);
    return length > tail && strcmp(path + length - tail, end) == 0;
}

bool is_ncu_report(const char *path)
{
    return ends_in(path, ".ncu-rep");
}

/* Lets ncu print a report. The path cannot be taken for an option. */
static char *import(const char *path, size_t *length, char **why)
{
    char *named = string_format("%s%s", *path == '-' ? "./" : "", path);
    char *const argv[] = {"ncu", "--import", named, "--csv", "--page", "details", NULL};
    char *bytes = program_output(argv, MOST_BYTES, length, why);
    free(named);
    return bytes;
}

bool ncu_read_file(const char *path, struct ncu_launches *launches, struct notes *notes)
{
    size_t length;
    bool is_report = is_ncu_report(path);
    char *why = NULL, *bytes = is_report ? import(path, &length, &why) : file_whole(path, MOST_BYTES, &length, &why);
    if (!bytes) {
        if (is_report)
            notes_add(notes, UNUSABLE,
                      "cannot be read: %s; where ncu is, `ncu --import REPORT --csv >FILE.csv` writes what can be",
                      why);
        else notes_add(notes, UNUSABLE, "cannot be read: %s", why);
        free(why);
        return false;
    }
    bool good = ncu_read_bytes(bytes, length, launches, notes);
    free(bytes);
    return good;
}

bool is_ncu_csv(const char *path)
{
    struct stat status;
    const char *why;
    if (ends_in(path, ".csv")) return true;
    int fd = file_open(path, FILE_NAMED, &status, &why);
    if (fd < 0) return false;
    char *start = mem_zero(1, LOOKED_AT);
    ssize_t got = file_read(fd, start, LOOKED_AT);
    close(fd);
    bool is_csv = got > 0 && *start != '{' && *start != '[' && memmem(start, (size_t)got, "\"Kernel Name\",", 14);
    free(start);
    return is_csv;
}

void ncu_launches_free(struct ncu_launches *launches)
{
    for (size_t i = 0; i < launches->count; i++) {
        struct ncu_launch *launch = &launches->launch[i];
        free(launch->kernel);
        free(launch->grid);
        free(launch->block);
        free(launch->stall);
        free(launch->says);
    }
    free(launches->launch);
    map_free(&launches->of);
    *launches = (struct ncu_launches){0};
}
