#include "common.h"

#include <pthread.h>
#include <stdio.h>

typedef struct {
    void *memory;
    size_t bytes;
} Piece;

static __thread Piece pieces[PURPOSES];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t ending;

static void let_go(void *mine) {
    for (int purpose = 0; purpose < PURPOSES; purpose++) free(((Piece *)mine)[purpose].memory);
}

static void prepare_ending(void) { pthread_key_create(&ending, let_go); }

void *scratch(enum Purpose purpose, size_t bytes) {
    Piece *piece = &pieces[purpose];
    if (piece->bytes < bytes) {
        pthread_once(&once, prepare_ending);
        pthread_setspecific(ending, pieces); /* so that they are given back when the thread ends */
        free(piece->memory);
        piece->bytes = (bytes + bytes / 4 + 4095) / 4096 * 4096;
        piece->memory = aligned_alloc(4096, piece->bytes);
        if (!piece->memory) {
            fprintf(stderr, "regard: no memory for %zu bytes\n", piece->bytes);
            abort();
        }
    }
    return piece->memory;
}
