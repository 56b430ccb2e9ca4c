/* sample_records.h - writes what the sampler found. */
#ifndef TFI_SAMPLE_RECORDS_H
#define TFI_SAMPLE_RECORDS_H

#include "record/background.h"

/* Job of the background thread. */
extern const struct tfi_job tfi_looks_job;

/* Called once the interpreter runs: starts the sampler if the process is to be sampled. */
void tfi_looks_started(void);

/* Called when the process has woken. */
void tfi_looks_awake(void);

/* Called at the end while records can still be written: ends the sampler and writes what is left. */
void tfi_looks_end(void);

/* Called at the end, before the footer: closes the chunk of the records. False if records may be missing. */
bool tfi_looks_finish(void);

/* Forgets the trace of a parent process, or an earlier trace of this one. */
void tfi_looks_restart(void);

#endif
