/* Dropout, and the connection around a sublayer in training: dropout and sum in one pass, and the way back. */
#include "chance.h"

#define GROUP 16

/* Some of the values, scaled; the others 0. The gradient goes back in the same way. */
PUBLIC void drop(long count, const float *x, const Chance *chance, float *to) {
#pragma omp parallel for num_threads(threads_for(4.0 * count))
    for (long i = 0; i < count; i += GROUP) drop_group(chance, (uint32_t)(i / GROUP), x + i, count - i, to + i);
}

/* sum = x + dropout(said) */
INLINE void connect(const Chance *chance, long row, long dim, const float *x, const float *said, float *sum) {
    long groups = steps(dim, GROUP);
    for (long d = 0; d < dim; d += GROUP) {
        drop_group(chance, (uint32_t)(row * groups + d / GROUP), said + d, dim - d, sum + d);
        for (long e = d; e < at_most(dim, d + GROUP); e++) sum[e] += x[e];
    }
}

PUBLIC void add_dropped(long rows, long dim, const float *x, const float *said, const Chance *chance, float *sum) {
#pragma omp parallel for num_threads(threads_for(4.0 * rows * dim))
    for (long row = 0; row < rows; row++)
        connect(chance, row, dim, x + row * dim, said + row * dim, sum + row * dim);
}

/* The gradient of `said`, from that of the sum. */
PUBLIC void add_dropped_back(long rows, long dim, const float *gradient, const Chance *chance, float *said) {
    long groups = steps(dim, GROUP);
#pragma omp parallel for num_threads(threads_for(4.0 * rows * dim))
    for (long row = 0; row < rows; row++)
        for (long d = 0; d < dim; d += GROUP)
            drop_group(chance, (uint32_t)(row * groups + d / GROUP), gradient + row * dim + d, dim - d, said + row * dim + d);
}
