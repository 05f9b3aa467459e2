/* What a search asks of the scores of a vocabulary. */
#include "common.h"

#define STRETCH 4096 /* scores that are looked at twice while they are in the first cache */

/* log Σ e^score of each row: stretch by stretch, each added up by its own largest score. */
PUBLIC void log_sum(long rows, long size, const float *scores, float *to) {
#pragma omp parallel for num_threads(threads_for(8.0 * rows * size))
    for (long row = 0; row < rows; row++) {
        const float *s = scores + row * size;
        float top = -INFINITY, whole = 0;
        for (long begin = 0; begin < size && !(top == INFINITY); begin += STRETCH) {
            long end = at_most(size, begin + STRETCH), j;
            vec most = _mm256_set1_ps(top), sum = _mm256_setzero_ps();
            for (j = begin; j + WIDE <= end; j += WIDE) most = _mm256_max_ps(most, _mm256_loadu_ps(s + j));
            float before = top;
            top = most_of(most);
            for (; j < end; j++) top = fmaxf(top, s[j]);
            if (isinf(top)) continue; /* nothing is possible yet, or something is infinite */
            vec by = _mm256_set1_ps(top);
            for (j = begin; j + WIDE <= end; j += WIDE)
                sum = _mm256_add_ps(sum, exponential(_mm256_sub_ps(_mm256_loadu_ps(s + j), by)));
            whole = whole * expf(before - top) + sum_of(sum);
            for (; j < end; j++) whole += expf(s[j] - top);
        }
        to[row] = isinf(top) ? top : top + logf(whole);
    }
}

/* Put a score among the best so far, which are in order; of equal ones, the earlier comes first. */
static void insert(float score, long at, long count, float *values, long *places) {
    long i = count - 1;
    for (; i > 0 && values[i - 1] < score; i--) values[i] = values[i - 1], places[i] = places[i - 1];
    values[i] = score, places[i] = at;
}

/* The `count` best of each row, the best first, and where they stand. */
PUBLIC void best(long rows, long size, const float *scores, long count, float *values, long *places) {
#pragma omp parallel for num_threads(threads_for(1.0 * rows * size))
    for (long row = 0; row < rows; row++) {
        const float *s = scores + row * size;
        float *v = values + row * count;
        long *p = places + row * count, j = 0;
        for (; j < count; j++) {
            v[j] = -INFINITY, p[j] = j;
            insert(s[j], j, j + 1, v, p);
        }
        for (; j + 4 * WIDE <= size; j += 4 * WIDE) { /* most stretches have nothing that is better than the last */
            vec most = _mm256_max_ps(_mm256_max_ps(_mm256_loadu_ps(s + j), _mm256_loadu_ps(s + j + 8)),
                                     _mm256_max_ps(_mm256_loadu_ps(s + j + 16), _mm256_loadu_ps(s + j + 24)));
            if (!_mm256_movemask_ps(_mm256_cmp_ps(most, _mm256_set1_ps(v[count - 1]), _CMP_GT_OQ))) continue;
            for (long i = j; i < j + 4 * WIDE; i++)
                if (s[i] > v[count - 1]) insert(s[i], i, count, v, p);
        }
        for (; j < size; j++)
            if (s[j] > v[count - 1]) insert(s[j], j, count, v, p);
    }
}
