/* The activation of a feed-forward layer in training, with the dropout behind it in the same pass, and the way back. */
#include "activation.h"
#include "chance.h"

#define GROUP 16

PUBLIC void bend(long count, const float *x, int activation, const Chance *chance, float *to) {
#pragma omp parallel for num_threads(threads_for(16.0 * count))
    for (long i = 0; i < count; i += GROUP) {
        long end = at_most(count, i + GROUP);
        for (long j = i; j < end; j += WIDE) store(to + j, activate(activation, load(x + j, end - j)), end - j);
        if (chance->dropped) drop_group(chance, (uint32_t)(i / GROUP), to + i, end - i, to + i);
    }
}

/* The gradient of x, from that of what came out. */
PUBLIC void bend_back(long count, const float *x, int activation, const Chance *chance, const float *gradient, float *to) {
#pragma omp parallel for num_threads(threads_for(16.0 * count))
    for (long i = 0; i < count; i += GROUP) {
        long end = at_most(count, i + GROUP);
        const float *from = gradient + i;
        if (chance->dropped) drop_group(chance, (uint32_t)(i / GROUP), from, end - i, to + i), from = to + i;
        for (long j = i; j < end; j += WIDE) {
            vec slope = slope_of(activation, load(x + j, end - j));
            store(to + j, _mm256_mul_ps(slope, load(from + j - i, end - j)), end - j);
        }
    }
}
