/* fmt.h - formats text without stdio: a bounded formatter, and a bounded buffer that takes JSON strings. */
#ifndef TFI_FMT_H
#define TFI_FMT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

/* Understands %s %c %d %u %x %% and l before d, u, x. Always terminates the text, cuts it to fit and returns its
 * length. */
size_t tfi_fmt(char *buf, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
size_t tfi_vfmt(char *buf, size_t size, const char *format, va_list args) __attribute__((format(printf, 3, 0)));

/* A buffer that stops growing when it is full and remembers that it did. */
struct tfi_text {
    char *data;
    size_t size;
    size_t used;
    int full;
};

void tfi_text_bytes(struct tfi_text *text, const void *bytes, size_t count);
void tfi_text_add(struct tfi_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD. */
void tfi_text_json(struct tfi_text *text, const char *bytes, size_t count);
/* Replaces what would act on a terminal by question marks. */
void tfi_text_plain(char *text, size_t count);
/* Adds nanoseconds as milliseconds with six decimals. */
void tfi_text_ms(struct tfi_text *text, uint64_t ns);

#endif
