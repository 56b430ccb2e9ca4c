/* encode.h - turns rows into columns, as specified in tfi_trace.h. */
#ifndef TFI_ENCODE_H
#define TFI_ENCODE_H

#include <stddef.h>
#include <stdint.h>

/* Scratch memory of an encoder: one caller at a time. */
struct tfi_encoder;

/* Makes an encoder for chunks of at most `rows` bytes; NULL if there is no memory. It is never freed. */
struct tfi_encoder *tfi_encoder_new(size_t rows);

/* Packs rows into a payload and returns its size in bytes, 0 if a row is unknown or malformed. Sets *payload to memory of
 * the encoder, *raw to the size before deflation, which is the same if the payload is not deflated, and *records to the
 * number of rows. */
size_t tfi_encode(struct tfi_encoder *encoder, const void *rows, size_t bytes, const uint8_t **payload, uint32_t *raw,
                  uint32_t *records);

/* Number of rows. */
uint32_t tfi_count_rows(const void *rows, size_t bytes);

#endif
