/* proto.h - writes protobuf messages into memory.
 *
 * A nested message is written in place: its length gets one byte, and a longer message is moved when it ends.
 *
 * This table is the reason for a writer of our own. Each row writes a million packets of 111 bytes, a kernel with nine
 * arguments and a flow, on a virtual core: least and most CPU time a packet of three runs, and the library's code.
 *
 *   this file                         53 to 84 ns      3 KB with the program that calls it
 *   protobuf-c, structs filled      327 to 463 ns     28 KB
 *   nanopb, structs filled        3,918 to 4,918 ns    7 KB
 *
 * nanopb measures each nested message before it writes it, and an argument lies three deep. Both
 * libraries need a generated description of Perfetto's messages, of which a trace uses a few fields (parts.h).
 */
#ifndef TFA_PROTO_H
#define TFA_PROTO_H

#include <string.h>

#include "base/util.h"

struct proto {
    char *data;
    size_t length, capacity;
};

enum proto_wire { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2 };
enum { VARINT_MOST = 10 };

static inline char *proto_room(struct proto *p, size_t more)
{
    if (__builtin_expect(p->length + more > p->capacity, 0))
        p->data = mem_grow(p->data, &p->capacity, p->length + more, 1);
    return p->data + p->length;
}

static inline char *varint_put(char *to, uint64_t value)
{
    for (; value > 127; value >>= 7) *to++ = (char)(value | 128);
    *to++ = (char)value;
    return to;
}

static inline void proto_uint(struct proto *p, unsigned field, uint64_t value)
{
    char *to = proto_room(p, 2 * VARINT_MOST);
    to = varint_put(to, field << 3 | WIRE_VARINT);
    to = varint_put(to, value);
    p->length = (size_t)(to - p->data);
}

static inline void proto_fixed64(struct proto *p, unsigned field, uint64_t value)
{
    char *to = proto_room(p, VARINT_MOST + sizeof value);
    to = varint_put(to, field << 3 | WIRE_FIXED64);
    memcpy(to, &value, sizeof value);
    p->length = (size_t)(to - p->data) + sizeof value;
}

static inline void proto_double(struct proto *p, unsigned field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    proto_fixed64(p, field, bits);
}

static inline void proto_add(struct proto *p, const char *bytes, size_t length)
{
    char *to = proto_room(p, length);
    if (length) memcpy(to, bytes, length);
    p->length += length;
}

static inline void proto_bytes(struct proto *p, unsigned field, const char *bytes, size_t length)
{
    char *to = proto_room(p, 2 * VARINT_MOST);
    to = varint_put(to, field << 3 | WIRE_BYTES);
    to = varint_put(to, length);
    p->length = (size_t)(to - p->data);
    proto_add(p, bytes, length);
}

/* Begins a nested message. Returns the place for proto_close. */
static inline size_t proto_open(struct proto *p, unsigned field)
{
    char *to = proto_room(p, VARINT_MOST + 1);
    to = varint_put(to, field << 3 | WIRE_BYTES);
    *to++ = 0;
    p->length = (size_t)(to - p->data);
    return p->length;
}

static inline void proto_close(struct proto *p, size_t place)
{
    size_t length = p->length - place;
    char size[VARINT_MOST];
    size_t more = (size_t)(varint_put(size, length) - size) - 1;
    if (more) {
        proto_room(p, more);
        memmove(p->data + place + more, p->data + place, length);
    }
    memcpy(p->data + place - 1, size, more + 1);
    p->length += more;
}

#endif
