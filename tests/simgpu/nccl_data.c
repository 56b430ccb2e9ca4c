/* nccl_data.c - moves and combines the data of collectives, sends and receives.
 *
 * A collective uses the windows in steps. Each rank writes some elements that the others need, all ranks meet at a
 * barrier, each reads the elements it needs, and all meet again. Sends and receives of one kernel progress in turns,
 * one mailbox at a time, so that two ranks that send to each other do not deadlock.
 */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "nccl_sim.h"

size_t simnccl_type_bytes(ncclDataType_t type)
{
    static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return (size_t)type < sizeof bytes / sizeof *bytes ? bytes[type] : 0;
}

/* ---- numbers ---- */

static double bfloat(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
}

/* Converts half-precision numbers; subnormal ones become zero. */
static double half(uint16_t bits)
{
    double value = bits & 0x7c00 ? ldexp(1024 + (bits & 0x3ff), (bits >> 10 & 31) - 25) : 0;
    return bits & 0x8000 ? -value : value;
}

static uint16_t half_of(double value)
{
    int exponent;
    double part = frexp(fabs(value), &exponent);
    uint16_t sign = value < 0 ? 0x8000 : 0;
    if (exponent < -13) return sign;
    if (exponent > 16) return sign | 0x7c00;
    return (uint16_t)(sign + ((exponent + 13) << 10) + (int)lrint(part * 2048));
}

static double get(const void *from, ncclDataType_t type)
{
    switch (type) {
    case ncclInt8: return *(const int8_t *)from;
    case ncclInt32: return *(const int32_t *)from;
    case ncclUint32: return *(const uint32_t *)from;
    case ncclFloat16: return half(*(const uint16_t *)from);
    case ncclFloat32: return *(const float *)from;
    case ncclFloat64: return *(const double *)from;
    case ncclBfloat16: return bfloat(*(const uint16_t *)from);
    default: return *(const uint8_t *)from;
    }
}

static void put(void *to, ncclDataType_t type, double value)
{
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, 4);
    switch (type) {
    case ncclInt8: *(int8_t *)to = (int8_t)value; break;
    case ncclInt32: *(int32_t *)to = (int32_t)value; break;
    case ncclUint32: *(uint32_t *)to = (uint32_t)value; break;
    case ncclFloat16: *(uint16_t *)to = half_of(value); break;
    case ncclFloat32: *(float *)to = single; break;
    case ncclFloat64: *(double *)to = value; break;
    case ncclBfloat16: *(uint16_t *)to = (uint16_t)(bits >> 16); break;
    default: *(uint8_t *)to = (uint8_t)value; break;
    }
}

static double combine(double a, double b, int reduction)
{
    switch (reduction) {
    case ncclProd: return a * b;
    case ncclMax: return a > b ? a : b;
    case ncclMin: return a < b ? a : b;
    default: return a + b;
    }
}

/* A double cannot hold every number of 64 bits. */
static uint64_t combine_whole(uint64_t a, uint64_t b, int reduction, bool with_sign)
{
    bool less = with_sign ? (int64_t)a < (int64_t)b : a < b;
    switch (reduction) {
    case ncclProd: return a * b;
    case ncclMax: return less ? b : a;
    case ncclMin: return less ? a : b;
    default: return a + b;
    }
}

/* Combines one element of all ranks; the ranks' elements lie `stride` bytes apart. */
static void reduce_one(void *to, const char *from, const struct task *t)
{
    int ranks = t->comm->ranks;
    if (t->type == ncclInt64 || t->type == ncclUint64) {
        uint64_t sum = *(const uint64_t *)from;
        for (int r = 1; r < ranks; r++)
            sum =
                combine_whole(sum, *(const uint64_t *)(from + (size_t)r * WINDOW), t->reduction, t->type == ncclInt64);
        if (t->reduction == ncclAvg)
            sum = t->type == ncclInt64 ? (uint64_t)((int64_t)sum / ranks) : sum / (uint64_t)ranks;
        *(uint64_t *)to = sum;
        return;
    }
    double scale = t->reduction > ncclAvg ? t->comm->scale[t->reduction - ncclAvg - 1] : 1, sum = 0;
    for (int r = 0; r < ranks; r++) {
        double one = get(from + (size_t)r * WINDOW, t->type) * scale;
        sum = r ? combine(sum, one, t->reduction) : one;
    }
    put(to, t->type, t->reduction == ncclAvg ? sum / ranks : sum);
}

/* ---- collectives ---- */

static bool has_parts(enum function f)
{
    return f == REDUCE_SCATTER || f == ALL_TO_ALL || f == SCATTER;
}

static bool gives(const struct task *t)
{
    return (t->function != BROADCAST && t->function != SCATTER) || t->peer == t->comm->rank;
}

static bool takes(const struct task *t)
{
    return (t->function != REDUCE && t->function != GATHER) || t->peer == t->comm->rank;
}

/* Writes `n` elements, from `first` on, of each part that this rank contributes. */
static void give(const struct task *t, size_t first, size_t n)
{
    size_t size = simnccl_type_bytes(t->type), parts = has_parts(t->function) ? (size_t)t->comm->ranks : 1;
    char *window = simnccl_window(t->comm, t->comm->rank);
    for (size_t p = 0; p < parts; p++)
        memcpy(window + p * n * size, (const char *)t->send + (p * t->count + first) * size, n * size);
}

static void take(const struct task *t, size_t first, size_t n)
{
    size_t size = simnccl_type_bytes(t->type), bytes = n * size, rank = (size_t)t->comm->rank;
    size_t mine = has_parts(t->function) ? rank * bytes : 0;
    char *to = (char *)t->recv + first * size;
    const char *from = simnccl_window(t->comm, 0) + mine;
    switch (t->function) {
    case ALL_REDUCE:
    case REDUCE:
    case REDUCE_SCATTER:
        for (size_t i = 0; i < n; i++) reduce_one(to + i * size, from + i * size, t);
        break;
    case BROADCAST:
    case SCATTER: memcpy(to, from + (size_t)t->peer * WINDOW, bytes); break;
    default:
        for (int r = 0; r < t->comm->ranks; r++)
            memcpy(to + (size_t)r * t->count * size, from + (size_t)r * WINDOW, bytes);
    }
}

static uint64_t signature_of(const struct task *t)
{
    uint64_t words[] = {t->function, t->count + t->mismatched, (uint64_t)t->type, (uint64_t)t->reduction,
                        (uint64_t)t->peer};
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) hash = (hash ^ words[i]) * 1099511628211u;
    return hash;
}

/* Each rank publishes its operation and its time of arrival. */
static bool meet(const struct task *t, uint64_t start, uint64_t *latest, uint64_t *starts)
{
    struct shared_rank *all = t->comm->shared->rank, *mine = &all[t->comm->rank];
    static const uint32_t never;
    bool same = true;
    mine->start = start;
    mine->signature = signature_of(t);
    if (!simnccl_barrier(t->comm, ON_DEVICE)) return false;
    for (int r = 0; r < t->comm->ranks; r++) {
        starts[r] = all[r].start;
        if (starts[r] > *latest) *latest = starts[r];
        same = same && all[r].signature == mine->signature;
    }
    if (!simnccl_barrier(t->comm, ON_DEVICE)) return false;
    if (same) return true;
    simnccl_log(
        "{\"t\":\"mismatch\",\"comm\":\"%s\",\"rank\":%d,\"func\":\"nccl%s\",\"sequence\":%llu,\"signature\":%llu}",
        t->comm->id, t->comm->rank, simnccl_name(t->function), (unsigned long long)t->sequence,
        (unsigned long long)mine->signature);
    return simnccl_until(t->comm, &never, 1); /* real ranks wait for each other's data here */
}

bool simnccl_exchange(const struct task *t, uint64_t start, uint64_t *latest, uint64_t *starts)
{
    size_t parts = has_parts(t->function) ? (size_t)t->comm->ranks : 1;
    size_t most = WINDOW / (parts * simnccl_type_bytes(t->type));
    if (!meet(t, start, latest, starts)) return false;
    for (size_t first = 0; first < t->count; first += most) {
        size_t n = t->count - first < most ? t->count - first : most;
        if (gives(t)) give(t, first, n);
        if (!simnccl_barrier(t->comm, ON_DEVICE)) return false;
        if (takes(t)) take(t, first, n);
        if (!simnccl_barrier(t->comm, ON_DEVICE)) return false;
    }
    return true;
}

/* ---- sends and receives ---- */

struct mail {
    size_t done, total;
    bool met;
};

static bool send_some(const struct task *t, struct mail *m, uint64_t start, uint64_t *latest)
{
    struct mailbox *box = simnccl_mailbox(t->comm, t->comm->rank, t->peer);
    if (__atomic_load_n(&box->full, __ATOMIC_ACQUIRE)) return false;
    if (m->met && box->receiver_start > *latest) *latest = box->receiver_start;
    if (m->met && m->done == m->total) {
        m->done++; /* the receiver has taken the last part */
        return true;
    }
    size_t left = m->total - m->done;
    box->bytes = (uint32_t)(left < MAIL ? left : MAIL);
    box->sender_start = start;
    memcpy(box->data, (const char *)t->send + m->done, box->bytes);
    m->done += box->bytes;
    m->met = true;
    __atomic_store_n(&box->full, 1, __ATOMIC_RELEASE);
    return true;
}

static bool receive_some(const struct task *t, struct mail *m, uint64_t start, uint64_t *latest)
{
    struct mailbox *box = simnccl_mailbox(t->comm, t->peer, t->comm->rank);
    if (!__atomic_load_n(&box->full, __ATOMIC_ACQUIRE)) return false;
    size_t room = m->total - m->done;
    size_t n = box->bytes < room ? box->bytes : room;
    memcpy((char *)t->recv + m->done, box->data, n);
    if (box->sender_start > *latest) *latest = box->sender_start;
    m->done += n;
    if (m->done == m->total) m->done++;
    box->receiver_start = start;
    __atomic_store_n(&box->full, 0, __ATOMIC_RELEASE);
    return true;
}

/* Operations with the same peer and direction run in their order. */
static bool is_behind(struct task *const *tasks, const struct mail *mail, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (mail[j].done <= mail[j].total && tasks[j]->function == tasks[i]->function &&
            tasks[j]->peer == tasks[i]->peer)
            return true;
    return false;
}

bool simnccl_mail(struct task *const *tasks, size_t count, uint64_t start, uint64_t *latest)
{
    struct mail mail[MAX_RANKS * 4] = {0};
    ncclComm_t comm = count ? tasks[0]->comm : NULL;
    static const uint32_t never;
    size_t finished = 0;
    for (size_t i = 0; i < count; i++) mail[i].total = tasks[i]->count * simnccl_type_bytes(tasks[i]->type);
    for (uint64_t since = simnccl_clock(); finished < count;) {
        bool moved = false;
        finished = 0;
        for (size_t i = 0; i < count; i++) {
            bool sends = tasks[i]->function == SEND;
            finished += mail[i].done > mail[i].total;
            if (mail[i].done > mail[i].total || is_behind(tasks, mail, i)) continue;
            moved |=
                sends ? send_some(tasks[i], &mail[i], start, latest) : receive_some(tasks[i], &mail[i], start, latest);
        }
        if (moved) since = simnccl_clock();
        if (__atomic_load_n(&comm->aborted, __ATOMIC_RELAXED)) return false;
        if (!moved && finished < count) usleep(20);
        if (simnccl_clock() - since > 1000000000) return simnccl_until(comm, &never, 1); /* the peer never comes */
    }
    return true;
}
