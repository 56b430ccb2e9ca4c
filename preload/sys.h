/* sys.h - the few system services the recorder uses, none of which allocates or is a cancellation point. */
#ifndef TFI_SYS_H
#define TFI_SYS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* A lock of three states on a futex: free, held, held and waited for. The upper bits say in which process: what a thread
 * of the parent held when it forked is free in the child. */
struct tfi_lock {
    uint32_t word;
};

void tfi_lock(struct tfi_lock *lock);
/* Waits at most `ms` milliseconds; false if it was not to be had. */
bool tfi_lock_within(struct tfi_lock *lock, unsigned ms);
void tfi_unlock(struct tfi_lock *lock);

/* Turns cancellation of the calling thread off and on again, round anything that holds a lock. The type is changed too:
 * in glibc up to 2.36 an asynchronous request that is already under way ignores the state. */
int tfi_cancel_off(void);
void tfi_cancel_on(int before);

void tfi_futex_wait(uint32_t *word, uint32_t value, unsigned ms);
void tfi_futex_wake(uint32_t *word);

/* The kernel's answers, not a cached one: they differ in a vfork child. */
pid_t tfi_getpid(void);
pid_t tfi_gettid(void);

uint64_t tfi_monotonic_ns(void);
uint64_t tfi_realtime_ns(void);

/* Zeroed private memory, NULL if there is none. */
void *tfi_map(size_t bytes);

/* A file of ours. Programs close descriptors that are not theirs: each use checks that the number still means this
 * file, and opens it again by its path if it does not. */
struct tfi_file {
    int fd;
    uint64_t device;
    uint64_t inode;
    char path[4096];
};

/* Creates a new file (never an existing one, never through a symbolic link); false with errno set. */
bool tfi_file_create(struct tfi_file *file, const char *path);
/* False, with errno set, if a file of this size would pass RLIMIT_FSIZE. */
bool tfi_file_has_room(uint64_t size);
/* Appends all parts or nothing at `*size`; looks at RLIMIT_FSIZE first, because passing it kills. False with errno set.
 * The parts are used up. */
bool tfi_file_append(struct tfi_file *file, uint64_t *size, struct iovec *parts, int count);
void tfi_file_close(struct tfi_file *file);

/* Reads a small file whole, zero-terminated; returns the length or -1. */
ssize_t tfi_read_file(const char *path, char *buf, size_t size);

/* Writes a complete new file under a temporary name, then renames it; false with errno set. */
bool tfi_replace_file(const char *path, const void *data, size_t bytes);

/* Makes a directory and its parents; refuses a last component that is somebody else's symbolic link. */
bool tfi_make_dirs(const char *path);

#endif
