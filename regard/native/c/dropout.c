/* Dropout, and the residual connection in training: dropout and sum in one pass, forward and backward. */
#include "dropout_rng.h"

/* Dropout row by row. It is also the gradient of `sublayer_output` from that of the sum below. */
PUBLIC void dropout_add_backward(long rows, long dim, const float *gradient, const DropoutRng *rng,
                                 float *sublayer_gradient) {
    long groups = ceil_div(dim, DROPOUT_GROUP);
#pragma omp parallel for num_threads(threads_for(4.0 * rows * dim))
    for (long row = 0; row < rows; row++) {
        uint32_t first_group;
        DropoutRng of_row = row_rng(rng, row, groups, &first_group);
        for (long d = 0; d < dim; d += DROPOUT_GROUP)
            dropout_group(&of_row, first_group + (uint32_t)(d / DROPOUT_GROUP), gradient + row * dim + d, dim - d,
                          sublayer_gradient + row * dim + d);
    }
}

/* The backward pass is the same function of the gradient. Without keys, groups continue across the ends of rows. */
PUBLIC void dropout(long rows, long dim, const float *x, const DropoutRng *rng, float *out) {
    long count = rows * dim;
    if (rng->row_keys) {
        dropout_add_backward(rows, dim, x, rng, out);
        return;
    }
#pragma omp parallel for num_threads(threads_for(4.0 * count))
    for (long i = 0; i < count; i += DROPOUT_GROUP)
        dropout_group(rng, (uint32_t)(i / DROPOUT_GROUP), x + i, count - i, out + i);
}

/* sum = x + dropout(sublayer_output) */
INLINE void dropout_add_row(const DropoutRng *rng, long row, long dim, const float *x, const float *sublayer_output,
                            float *sum) {
    uint32_t first_group;
    DropoutRng of_row = row_rng(rng, row, ceil_div(dim, DROPOUT_GROUP), &first_group);
    for (long d = 0; d < dim; d += DROPOUT_GROUP) {
        dropout_group(&of_row, first_group + (uint32_t)(d / DROPOUT_GROUP), sublayer_output + d, dim - d, sum + d);
        for (long e = d; e < min_long(dim, d + DROPOUT_GROUP); e++) sum[e] += x[e];
    }
}

PUBLIC void dropout_add(long rows, long dim, const float *x, const float *sublayer_output, const DropoutRng *rng,
                        float *sum) {
#pragma omp parallel for num_threads(threads_for(4.0 * rows * dim))
    for (long row = 0; row < rows; row++)
        dropout_add_row(rng, row, dim, x + row * dim, sublayer_output + row * dim, sum + row * dim);
}
