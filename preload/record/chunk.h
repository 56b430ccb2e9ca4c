/* chunk.h - closes the chunk of a thread; the functions that write into it are inline in thread.h. */
#ifndef TFI_CHUNK_H
#define TFI_CHUNK_H

struct tfi_thread;

/* Gives the thread's chunk to the writer and leaves the thread without one. */
void tfi_chunk_close(struct tfi_thread *thread);

/* The same for a thread that goes on: it gets the next chunk. Between two records of the calling thread. */
void tfi_chunk_hand_over(struct tfi_thread *thread);

#endif
