/* packet.c - writes one packet of a Perfetto trace. */
#include "write/pftrace/parts.h"

/* Writes a packet, to which this adds the sequence. */
void pf_write_packet(struct pf *pf, struct proto *packet)
{
    char head[2 * VARINT_MOST];
    proto_uint(packet, PACKET_SEQUENCE_ID, pf->file->sequences);
    char *end = varint_put(head, TRACE_PACKET << 3 | WIRE_BYTES);
    end = varint_put(end, packet->length);
    out_write(pf->file->out, head, (size_t)(end - head));
    out_write(pf->file->out, packet->data, packet->length);
}
