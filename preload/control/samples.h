/* samples.h - samples the process over time: its threads, its memory and that of its cgroup. */
#ifndef TFI_SAMPLES_H
#define TFI_SAMPLES_H

#include <stdbool.h>

struct tfi_thread;
struct tfi_job;

/* A job of the background thread: a sample each second. */
extern const struct tfi_job tfi_samples_job;

/* Opens what is read, and takes the first sample. Called at wake. */
void tfi_samples_awake(struct tfi_thread *thread);

/* Takes the last sample and closes what was opened; false if the background thread hangs in one. Called at the end. */
bool tfi_samples_finish(void);

/* Forgets the state of a parent process or of an earlier trace. Called at wake. */
void tfi_samples_restart(void);

#endif
