/* facts.h - keeps what a program says about its run: pairs of key and value, each with its source. */
#ifndef TFI_FACTS_H
#define TFI_FACTS_H

#include <stdbool.h>
#include <stddef.h>

struct tfi_thread;

struct tfi_fact {
    const char *key, *value, *source;
};

/* Keeps a fact for every trace of this process and of its forked children; the latest value of a key replaces earlier
 * ones. Any thread, also while the process is asleep. */
void tfi_fact_keep(const struct tfi_fact *fact);

/* Writes a fact's record. The thread's guard is set. */
void tfi_fact_write(struct tfi_thread *thread, const struct tfi_fact *fact);

/* Copies the latest value of a key; false if there is none, it is "", or `size` is too small. */
bool tfi_fact(const char *key, char *value, size_t size);

/* Writes all facts known so far. Called at wake. */
void tfi_facts_awake(struct tfi_thread *thread);

#endif
