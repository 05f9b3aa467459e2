/* Activation and dropout of a feed-forward layer in one pass, forward and backward. */
#include "activation.h"
#include "dropout_rng.h"

/* Up to 16 values. */
INLINE void activate_group(long count, const float *x, int activation, const DropoutRng *rng, uint32_t group,
                           float *out) {
    for (long j = 0; j < min_long(count, DROPOUT_GROUP); j += LANES8)
        store_partial_f32x8(out + j, activate(activation, load_partial_f32x8(x + j, count - j)), count - j);
    if (rng->drop_threshold) dropout_group(rng, group, out, count, out);
}

INLINE void activation_gradient_group(long count, const float *x, int activation, const DropoutRng *rng, uint32_t group,
                                      const float *gradient, float *out) {
    if (rng->drop_threshold) dropout_group(rng, group, gradient, count, out), gradient = out;
    for (long j = 0; j < min_long(count, DROPOUT_GROUP); j += LANES8) {
        f32x8 derivative = activation_gradient(activation, load_partial_f32x8(x + j, count - j));
        f32x8 output_gradient = load_partial_f32x8(gradient + j, count - j);
        store_partial_f32x8(out + j, _mm256_mul_ps(derivative, output_gradient), count - j);
    }
}

/* Without keys, groups continue across the ends of rows. */
PUBLIC void activation_dropout(long rows, long dim, const float *x, int activation, const DropoutRng *rng, float *out) {
    long count = rows * dim;
    if (!rng->row_keys) {
#pragma omp parallel for num_threads(threads_for(16.0 * count))
        for (long i = 0; i < count; i += DROPOUT_GROUP)
            activate_group(count - i, x + i, activation, rng, (uint32_t)(i / DROPOUT_GROUP), out + i);
        return;
    }
#pragma omp parallel for num_threads(threads_for(16.0 * count))
    for (long row = 0; row < rows; row++) {
        uint32_t group;
        DropoutRng of_row = row_rng(rng, row, 0, &group);
        for (long i = row * dim, end = i + dim; i < end; i += DROPOUT_GROUP, group++)
            activate_group(end - i, x + i, activation, &of_row, group, out + i);
    }
}

/* The gradient of x from that of the output. */
PUBLIC void activation_dropout_backward(long rows, long dim, const float *x, int activation, const DropoutRng *rng,
                                        const float *gradient, float *out) {
    long count = rows * dim;
    if (!rng->row_keys) {
#pragma omp parallel for num_threads(threads_for(16.0 * count))
        for (long i = 0; i < count; i += DROPOUT_GROUP)
            activation_gradient_group(count - i, x + i, activation, rng, (uint32_t)(i / DROPOUT_GROUP), gradient + i,
                                      out + i);
        return;
    }
#pragma omp parallel for num_threads(threads_for(16.0 * count))
    for (long row = 0; row < rows; row++) {
        uint32_t group;
        DropoutRng of_row = row_rng(rng, row, 0, &group);
        for (long i = row * dim, end = i + dim; i < end; i += DROPOUT_GROUP, group++)
            activation_gradient_group(end - i, x + i, activation, &of_row, group, gradient + i, out + i);
    }
}
