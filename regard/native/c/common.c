#include "common.h"

static __thread struct {
    void *memory;
    size_t bytes;
} pieces[PURPOSES];

void *scratch(enum Purpose purpose, size_t bytes) {
    if (pieces[purpose].bytes < bytes) {
        free(pieces[purpose].memory);
        pieces[purpose].bytes = (bytes + bytes / 4 + 4095) / 4096 * 4096;
        pieces[purpose].memory = aligned_alloc(4096, pieces[purpose].bytes);
        if (!pieces[purpose].memory) abort();
    }
    return pieces[purpose].memory;
}
