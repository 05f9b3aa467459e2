/* Activation and dropout of a feed-forward layer in one pass, forward and backward. */
#include "activation.h"
#include "dropout_rng.h"

PUBLIC void activation_dropout(long count, const float *x, int activation, const DropoutRng *rng, float *out) {
#pragma omp parallel for num_threads(threads_for(16.0 * count))
    for (long i = 0; i < count; i += DROPOUT_GROUP) {
        long end = min_long(count, i + DROPOUT_GROUP);
        for (long j = i; j < end; j += LANES8)
            store_partial_f32x8(out + j, activate(activation, load_partial_f32x8(x + j, end - j)), end - j);
        if (rng->drop_threshold) dropout_group(rng, (uint32_t)(i / DROPOUT_GROUP), out + i, end - i, out + i);
    }
}

/* The gradient of x from that of the output. */
PUBLIC void activation_dropout_backward(long count, const float *x, int activation, const DropoutRng *rng,
                                        const float *gradient, float *out) {
#pragma omp parallel for num_threads(threads_for(16.0 * count))
    for (long i = 0; i < count; i += DROPOUT_GROUP) {
        long end = min_long(count, i + DROPOUT_GROUP);
        const float *src = gradient + i;
        if (rng->drop_threshold)
            dropout_group(rng, (uint32_t)(i / DROPOUT_GROUP), src, end - i, out + i), src = out + i;
        for (long j = i; j < end; j += LANES8) {
            f32x8 derivative = activation_gradient(activation, load_partial_f32x8(x + j, end - j));
            f32x8 output_gradient = load_partial_f32x8(src + j - i, end - j);
            store_partial_f32x8(out + j, _mm256_mul_ps(derivative, output_gradient), end - j);
        }
    }
}
