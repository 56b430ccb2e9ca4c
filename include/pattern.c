/* pattern.c - reads lists of names and whole numbers, matches globs and computes the distance between words.
 *
 * Both programs compile this file. It runs inside the profiled process: it allocates nothing, keeps no state, needs
 * little stack, and takes time proportional to the product of the two lengths (pattern and text).
 */
#include "pattern.h"

#include <stdint.h>
#include <string.h>

bool tfi_next_name(const char **list, char *entry, size_t size)
{
    const char *p = *list;
    while (*p == ',' || *p == ' ' || *p == '\t') p++;
    if (!*p) return false;
    size_t length = strcspn(p, ",");
    *list = p + length;
    while (length && (p[length - 1] == ' ' || p[length - 1] == '\t')) length--;
    if (length >= size) length = size - 1;
    memcpy(entry, p, length);
    entry[length] = 0;
    return true;
}

bool tfi_whole_number(const char *text, uint64_t low, uint64_t high, uint64_t *number)
{
    uint64_t n = 0;
    if (!*text) return false;
    for (; *text; text++) {
        uint64_t digit = (uint64_t)(unsigned char)*text - '0';
        if (digit > 9 || digit > high || n > (high - digit) / 10) return false;
        n = n * 10 + digit;
    }
    if (n < low) return false;
    *number = n;
    return true;
}

static char fold(char c, bool fold_case)
{
    return fold_case && c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

/* Matches c against the set that begins after '['. *end is set to the byte after its ']'. A '[' without a ']' matches
 * itself. */
static bool glob_set(const char *set, char c, bool fold_case, const char **end)
{
    bool negated = *set == '!' || *set == '^', found = false;
    const char *p = set + negated;
    if (!strchr(*p ? p + 1 : p, ']')) {
        *end = set;
        return c == '[';
    }
    for (const char *first = p; *p && (*p != ']' || p == first); p++) {
        char low = fold(*p, fold_case), high = low;
        if (p[1] == '-' && p[2] && p[2] != ']') {
            high = fold(p[2], fold_case);
            p += 2;
        }
        if (c >= low && c <= high) found = true;
    }
    *end = p + 1;
    return found != negated;
}

bool tfi_glob(const char *pattern, const char *text, size_t length, bool fold_case)
{
    const char *star = NULL, *after = NULL, *end;
    size_t i = 0, from = 0;
    while (i < length || *pattern) {
        char c = i < length ? fold(text[i], fold_case) : 0;
        if (*pattern == '*') {
            star = ++pattern;
            from = i;
            continue;
        }
        bool one = i < length && *pattern;
        after = pattern + 1;
        if (one && *pattern == '[') {
            one = glob_set(pattern + 1, c, fold_case, &end);
            after = end;
        } else if (one && *pattern != '?') {
            one = fold(*pattern, fold_case) == c;
        }
        if (one) {
            pattern = after;
            i++;
        } else if (star && from < length) {
            pattern = star;
            i = ++from;
        } else {
            return false;
        }
    }
    return true;
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Row i of the table needs the two rows before it. */
unsigned tfi_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    uint8_t rows[3][TFI_DISTANCE_LONGEST + 1];
    if (a_length > TFI_DISTANCE_LONGEST || b_length > TFI_DISTANCE_LONGEST) return TFI_FAR;
    for (size_t j = 0; j <= b_length; j++) rows[0][j] = (uint8_t)j;
    for (size_t i = 1; i <= a_length; i++) {
        uint8_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        unsigned cost = a[i - 1] != '*';
        row[0] = (uint8_t)(above[0] + cost);
        for (size_t j = 1; j <= b_length; j++) {
            unsigned best = above[j - 1] + (cost && a[i - 1] != b[j - 1]);
            best = least(best, least(above[j], row[j - 1]) + cost);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) best = least(best, before[j - 2] + 1u);
            row[j] = (uint8_t)best;
        }
    }
    return rows[a_length % 3][b_length];
}
