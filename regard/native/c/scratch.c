#include "common.h"

#include <pthread.h>
#include <stdio.h>

typedef struct {
    void *data;
    size_t bytes;
} ScratchBuffer;

static __thread ScratchBuffer scratch_buffers[SCRATCH_SLOTS];
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_exit_key;

static void free_scratch(void *buffers) {
    for (int slot = 0; slot < SCRATCH_SLOTS; slot++) free(((ScratchBuffer *)buffers)[slot].data);
}

static void create_exit_key(void) { pthread_key_create(&thread_exit_key, free_scratch); }

void *scratch(enum ScratchSlot slot, size_t bytes) {
    ScratchBuffer *buffer = &scratch_buffers[slot];
    if (buffer->bytes < bytes) {
        pthread_once(&scratch_once, create_exit_key);
        pthread_setspecific(thread_exit_key, scratch_buffers); /* frees the buffers when the thread exits */
        free(buffer->data);
        buffer->bytes = (bytes + bytes / 4 + 4095) / 4096 * 4096;
        buffer->data = aligned_alloc(4096, buffer->bytes);
        if (!buffer->data) {
            fprintf(stderr, "regard: out of memory: cannot allocate %zu bytes of scratch memory\n", buffer->bytes);
            abort();
        }
    }
    return buffer->data;
}
