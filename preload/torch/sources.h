/* sources.h - keeps the sources of the modules that torch's compiler makes. */
#ifndef TFI_SOURCES_H
#define TFI_SOURCES_H

struct tfi_thread;

/* Reads the file and keeps its text for every trace of this process and of its forked children. Any thread, also while
 * the process is asleep. Changes errno. */
void tfi_source_loaded(const char *path);

/* Writes all sources kept so far. Called at wake. */
void tfi_sources_awake(struct tfi_thread *thread);

#endif
