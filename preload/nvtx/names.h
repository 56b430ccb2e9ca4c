/* names.h - keeps the names that NVTX programs give: registered strings, domains, categories and threads. */
#ifndef TFI_NVTX_NAMES_H
#define TFI_NVTX_NAMES_H

#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

enum tfi_handle_type { TFI_HANDLE_STRING, TFI_HANDLE_DOMAIN };

/* Object behind a program's handle of a domain or a registered string. */
struct tfi_handle {
    struct tfi_handle *next;
    uint64_t number; /* generation of a trace << 32 | number of the text in it */
    uint32_t magic;
    uint32_t hash;
    uint32_t length;
    uint8_t type;  /* enum tfi_handle_type */
    uint8_t stage; /* a domain: its ranges are stages */
    uint8_t reserved[2];
    char text[];
};

/* Returns the handle of a text, made at its first use and valid for ever, in forked children too. Never NULL; NULL
 * is "". */
struct tfi_handle *tfi_handle_a(enum tfi_handle_type type, const char *text);
struct tfi_handle *tfi_handle_w(enum tfi_handle_type type, const wchar_t *text);

/* Checks a handle that the program passed: NULL for NULL, the handle for lost texts if it is not one of that type. */
struct tfi_handle *tfi_handle_of(const void *pointer, enum tfi_handle_type type);

/* String number of a handle's text or of a wide text in this trace; 0 for NULL. Only between tfi_enter() and
 * tfi_leave(). */
uint32_t tfi_handle_number(struct tfi_handle *handle);
uint32_t tfi_wide_number(const wchar_t *text);

/* Record the name of a category of a domain (NULL: the default one) or of a thread, later if the process is
 * asleep. */
void tfi_name_category(struct tfi_handle *domain, uint32_t category, struct tfi_handle *name);
void tfi_name_thread(uint32_t tid, struct tfi_handle *name);

#endif
