/* memory_process.h - `memory --layout process`: threads and memory of each process over time, as the kernel counts them. */
#ifndef TFA_MEMORY_PROCESS_H
#define TFA_MEMORY_PROCESS_H

struct session;

void memory_process(struct session *session);

#endif
