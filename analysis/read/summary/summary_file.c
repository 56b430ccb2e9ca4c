/* summary_file.c - reads and writes the blocks of a summary. */
#include "read/summary/summary_file.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/varint.h"
#include "crc.h"

enum { MAGIC = sizeof SUMMARY_MAGIC - 1, HEAD = 12 };
/* More than any file that this program writes: 1,024 ranks of a megabyte. */
static const size_t LARGEST_FILE = (size_t)4 << 30;

bool is_summary_file(const char *path, enum file_how how)
{
    char head[MAGIC];
    struct stat status;
    const char *why;
    int fd = file_open(path, how, &status, &why);
    ssize_t length = fd < 0 ? -1 : file_read(fd, head, sizeof head);
    if (fd >= 0) close(fd);
    return length == MAGIC && memcmp(head, SUMMARY_MAGIC, MAGIC) == 0;
}

bool summary_open(struct summary_file *file, const char *path, enum file_how how, struct notes *notes)
{
    (void)how; /* is_summary_file has opened it in that way */
    char *why = NULL;
    *file = (struct summary_file){.at = MAGIC};
    file->bytes = file_whole(path, LARGEST_FILE, &file->length, &why);
    bool good = file->bytes && file->length >= MAGIC && memcmp(file->bytes, SUMMARY_MAGIC, MAGIC) == 0;
    if (!good) notes_add(notes, UNUSABLE, "cannot be read as a summary (%s)", why ? why : "it changed meanwhile");
    free(why);
    return good;
}

static void note_end(struct summary_file *file, struct notes *notes, const char *what)
{
    notes_add(notes, file->blocks ? LOSS : UNUSABLE, "%s behind the summaries of %zu processes; make it again", what,
              file->blocks);
    file->at = file->length;
}

uint8_t *summary_next(struct summary_file *file, size_t *length, struct notes *notes)
{
    const uint8_t *head = (const uint8_t *)file->bytes + file->at;
    size_t left = file->length - file->at;
    *length = 0;
    if (file->is_whole || (!left && file->blocks)) return NULL;
    if (left >= 8 && !get32(head)) {
        file->is_whole = left == 8 && get32(head + 4) == file->blocks && file->blocks;
        if (!file->is_whole) note_end(file, notes, "is damaged");
        return NULL;
    }
    size_t packed = left >= HEAD ? get32(head) : 0, whole = packed ? get32(head + 4) : 0;
    if (left < HEAD || packed > left - HEAD) {
        note_end(file, notes, "is cut");
        return NULL;
    }
    if (!whole || whole > SUMMARY_LARGEST || whole / 1100 > packed) {
        note_end(file, notes, "is damaged");
        return NULL;
    }
    uint8_t *block = mem_zero(whole, 1);
    uLongf got = whole;
    bool good = uncompress(block, &got, head + HEAD, packed) == Z_OK && got == whole &&
                tfi_crc(0, block, whole) == get32(head + 8);
    if (!good) {
        free(block);
        note_end(file, notes, "is damaged");
        return NULL;
    }
    file->at += HEAD + packed;
    file->blocks++;
    *length = whole;
    return block;
}

void summary_close(struct summary_file *file)
{
    free(file->bytes);
    *file = (struct summary_file){0};
}

static void add_word(struct text *file, size_t number)
{
    uint32_t word = htole32((uint32_t)number);
    text_add(file, (const char *)&word, sizeof word);
}

bool summary_add(struct text *file, const struct text *block)
{
    uLongf packed = compressBound(block->length);
    if (!block->length || block->length > SUMMARY_LARGEST) return false;
    uint8_t *bytes = mem_zero(packed, 1);
    bool good = compress2(bytes, &packed, (const uint8_t *)block->data, block->length, 6) == Z_OK;
    if (!file->length) text_puts(file, SUMMARY_MAGIC);
    if (good) {
        add_word(file, packed);
        add_word(file, block->length);
        add_word(file, tfi_crc(0, block->data, block->length));
        text_add(file, (const char *)bytes, packed);
    }
    free(bytes);
    return good;
}

void summary_end(struct text *file, size_t blocks)
{
    add_word(file, 0);
    add_word(file, blocks);
}
