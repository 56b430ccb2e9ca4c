/* gzip_out.c - compresses blocks of gzip files on several threads, and writes them in order.
 *
 * Blocks wait in one queue, in the order in which they were filled. Its head is a run of blocks that are ready or being
 * compressed; the untaken ones follow. The threads take the first untaken one. The caller's thread alone fills blocks,
 * removes the head, writes it, and so sees every error. While the queue is full it compresses untaken blocks too, so
 * the work ends even if the system refuses every thread.
 *
 * All blocks of a file but the last end with an empty stored block, which fills the last byte. So the blocks of a file,
 * one behind the other, are one stream. `lock` guards the queue, and the states of its blocks.
 *
 * The first full block starts a thread, so a small file needs none; the last file that is closed ends them.
 */
#include "base/gzip/gzip_out.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/gzip/deflater.h"
#include "base/jobs.h"
#include "base/util.h"
#include "crc.h"

enum { ROOM = GZIP_BLOCK + GZIP_BLOCK / 8 + DEFLATER_SPARE, MOST_THREADS = 64 };

struct block {
    struct block *next; /* in the queue or in the list of free blocks */
    struct gzip_out *file;
    size_t dictionary, length; /* bytes in `before` (its end is used), and in `data` */
    size_t packed;             /* bytes in `out` */
    uint32_t crc;
    bool last, taken, ready;
    int error;
    unsigned char before[DEFLATER_WINDOW], data[GZIP_BLOCK], out[ROOM];
};

struct gzip_out {
    int fd;
    int error; /* errno of the first failure; nothing more is written */
    struct block *filling;
    size_t waiting; /* blocks in the queue */
    uint32_t crc;
    uint32_t length; /* modulo 2^32, as the format has it */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t untaken_changed, ready_changed;
    struct block *head, *tail, *untaken;
    size_t waiting; /* blocks in the queue */
    bool ending;
    size_t jobs, threads, files;
    pthread_t thread[MOST_THREADS];
    struct block *unused;
    struct deflater *deflater; /* of the caller's thread */
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER,
          .untaken_changed = PTHREAD_COND_INITIALIZER,
          .ready_changed = PTHREAD_COND_INITIALIZER};

void gzip_out_jobs(size_t asked)
{
    pool.jobs = MIN(jobs_count(asked), (size_t)MOST_THREADS);
}

/* ---- compressing ---- */

static void compress_block(struct block *b, struct deflater *deflater)
{
    struct deflater_block of = {
        b->before + DEFLATER_WINDOW - b->dictionary, b->dictionary, b->data, b->length, b->last, b->out, ROOM};
    b->packed = deflater ? deflater_run(deflater, &of) : 0;
    b->error = b->packed ? 0 : deflater ? EIO : ENOMEM;
    b->crc = tfi_crc(0, b->data, b->length);
}

/* ---- the queue ---- */

/* Takes the first untaken block. The caller has the lock, which is free while the block is compressed. */
static void work_on_next(struct deflater *deflater)
{
    struct block *b = pool.untaken;
    pool.untaken = b->next;
    b->taken = true;
    pthread_mutex_unlock(&pool.lock);
    compress_block(b, deflater);
    pthread_mutex_lock(&pool.lock);
    b->ready = true;
    pthread_cond_signal(&pool.ready_changed); /* only the caller's thread waits for it */
}

static void *work(void *argument)
{
    struct deflater *deflater = deflater_open();
    pthread_mutex_lock(&pool.lock);
    while (deflater && !pool.ending)
        if (pool.untaken) work_on_next(deflater);
        else pthread_cond_wait(&pool.untaken_changed, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
    deflater_close(deflater);
    return argument;
}

static void start_thread(void)
{
    if (pool.threads + 1 < pool.jobs && pthread_create(&pool.thread[pool.threads], NULL, work, NULL) == 0)
        pool.threads++;
}

static void end_threads(void)
{
    pthread_mutex_lock(&pool.lock);
    pool.ending = true;
    pthread_cond_broadcast(&pool.untaken_changed);
    pthread_mutex_unlock(&pool.lock);
    while (pool.threads) pthread_join(pool.thread[--pool.threads], NULL);
    pool.ending = false;
    deflater_close(pool.deflater);
    pool.deflater = NULL;
    while (pool.unused) {
        struct block *b = pool.unused;
        pool.unused = b->next;
        free(b);
    }
}

static struct block *free_block(void)
{
    struct block *b = pool.unused;
    if (b) pool.unused = b->next;
    else b = mem_resize(NULL, 1, sizeof *b);
    b->next = NULL;
    b->dictionary = b->length = b->packed = 0;
    b->last = b->taken = b->ready = false;
    return b;
}

/* ---- writing ---- */

static void put(struct gzip_out *file, const unsigned char *bytes, size_t length)
{
    while (length && !file->error) {
        ssize_t n = write(file->fd, bytes, length);
        if (n > 0) {
            bytes += n;
            length -= (size_t)n;
        } else if (n == 0 || errno != EINTR) {
            file->error = n ? errno : EIO;
        }
    }
}

/* Removes the head of the queue and writes it. Compresses other blocks while the head is not ready. */
static void write_head(void)
{
    pthread_mutex_lock(&pool.lock);
    struct block *b = pool.head;
    if (pool.untaken && !pool.deflater) pool.deflater = deflater_open();
    while (!b->ready)
        if (pool.untaken) work_on_next(pool.deflater);
        else pthread_cond_wait(&pool.ready_changed, &pool.lock);
    pool.head = b->next;
    pool.waiting--;
    pthread_mutex_unlock(&pool.lock);
    struct gzip_out *file = b->file;
    file->waiting--;
    if (!file->error) file->error = b->error;
    put(file, b->out, b->packed);
    file->crc = (uint32_t)crc32_combine(file->crc, b->crc, (z_off_t)b->length);
    file->length += (uint32_t)b->length;
    b->next = pool.unused;
    pool.unused = b;
}

static bool head_is_ready(void)
{
    pthread_mutex_lock(&pool.lock);
    bool ready = pool.head && pool.head->ready;
    pthread_mutex_unlock(&pool.lock);
    return ready;
}

static void append(struct block *b)
{
    pthread_mutex_lock(&pool.lock);
    if (pool.head) pool.tail->next = b;
    else pool.head = b;
    pool.tail = b;
    if (!pool.untaken) pool.untaken = b;
    pool.waiting++;
    pthread_cond_signal(&pool.untaken_changed);
    pthread_mutex_unlock(&pool.lock);
    b->file->waiting++;
}

/* Hands the file's block to the threads, and makes room in the queue. */
static void submit(struct gzip_out *file)
{
    struct block *b = file->filling;
    size_t most = pool.jobs > 1 ? 2 * pool.jobs : 0;
    file->filling = NULL;
    append(b);
    if (!b->last) start_thread();
    while (pool.waiting > most || head_is_ready()) write_head();
}

/* Begins the block behind the one that is filled. */
static void fill_next(struct gzip_out *file)
{
    struct block *b = free_block(), *full = file->filling;
    b->file = file;
    if (full) {
        b->dictionary = DEFLATER_WINDOW;
        memcpy(b->before, full->data + full->length - DEFLATER_WINDOW, DEFLATER_WINDOW);
        submit(file);
    }
    file->filling = b;
}

/* ---- files ---- */

struct gzip_out *gzip_out_open(int fd)
{
    static const unsigned char head[10] = {0x1f, 0x8b, Z_DEFLATED, [8] = 4 /* fastest */, 3 /* Unix */};
    struct gzip_out *file = mem_zero(1, sizeof *file);
    if (!pool.jobs) gzip_out_jobs(0);
    pool.files++;
    file->fd = fd;
    put(file, head, sizeof head);
    return file;
}

int gzip_out_write(struct gzip_out *file, const char *bytes, size_t length)
{
    while (length && !file->error) {
        if (!file->filling || file->filling->length == GZIP_BLOCK) fill_next(file);
        struct block *b = file->filling;
        size_t part = MIN(length, GZIP_BLOCK - b->length);
        memcpy(b->data + b->length, bytes, part);
        b->length += part;
        bytes += part;
        length -= part;
    }
    return file->error;
}

static int end(struct gzip_out *file)
{
    while (file->waiting) write_head();
    if (close(file->fd) != 0 && !file->error) file->error = errno;
    int error = file->error;
    if (file->filling) {
        file->filling->next = pool.unused;
        pool.unused = file->filling;
    }
    free(file);
    if (--pool.files == 0) end_threads();
    return error;
}

int gzip_out_close(struct gzip_out *file)
{
    unsigned char tail[8];
    if (!file->error) {
        if (!file->filling) fill_next(file);
        file->filling->last = true;
        submit(file);
    }
    while (file->waiting) write_head();
    for (size_t i = 0; i < 4; i++) {
        tail[i] = (unsigned char)(file->crc >> 8 * i);
        tail[4 + i] = (unsigned char)(file->length >> 8 * i);
    }
    put(file, tail, sizeof tail);
    return end(file);
}

void gzip_out_discard(struct gzip_out *file)
{
    if (!file->error) file->error = ECANCELED; /* what waits is not written */
    end(file);
}
