/* What is done to each vector alone: norms, sums, gates. */
#include "parts.h"

/* (x - mean) / √(variance + ε) · weight + bias, or, without a mean (RMSNorm), x / √(mean of squares + ε) · weight. */
static void normalise(long dim, const float *x, const Norm *norm, float *to) {
    vec sum = _mm256_setzero_ps(), squares = _mm256_setzero_ps();
    if (norm->centred)
        for (long d = 0; d < dim; d += WIDE) sum = _mm256_add_ps(sum, load(x + d, dim - d));
    vec mean = _mm256_set1_ps(sum_of(sum) / (float)dim);
    for (long d = 0; d < dim; d += WIDE) {
        vec off = _mm256_sub_ps(load(x + d, dim - d), mean);
        if (dim - d < WIDE) off = _mm256_and_ps(off, _mm256_castsi256_ps(first(dim - d)));
        squares = _mm256_fmadd_ps(off, off, squares);
    }
    vec by = _mm256_set1_ps(1.0f / sqrtf(sum_of(squares) / (float)dim + norm->epsilon));
    for (long d = 0; d < dim; d += WIDE) {
        long count = dim - d;
        vec y = _mm256_mul_ps(_mm256_sub_ps(load(x + d, count), mean), by);
        y = _mm256_mul_ps(y, load(norm->weight + d, count));
        if (norm->bias) y = _mm256_add_ps(y, load(norm->bias + d, count));
        store(to + d, y, count);
    }
}

/* norm(x + said); `said` may be NULL. The result may take the place of x. */
PUBLIC void add_and_normalise(long rows, long dim, const float *x, const float *said, const Norm *norm, float *to) {
#pragma omp parallel for num_threads(threads_for(4.0 * rows * dim))
    for (long row = 0; row < rows; row++) {
        const float *from = x + row * dim;
        float *there = to + row * dim;
        if (said) {
            for (long d = 0; d < dim; d++) there[d] = from[d] + said[row * dim + d];
            from = there;
        }
        normalise(dim, from, norm, there);
    }
}

/* activation(gate) · up, for rows of gates and ups side by side. */
PUBLIC void gate(long rows, long dim, const float *x, int activation, float *to) {
#pragma omp parallel for num_threads(threads_for(8.0 * rows * dim))
    for (long row = 0; row < rows; row++)
        for (long d = 0; d < dim; d += WIDE) {
            vec open = activate(activation, load(x + 2 * row * dim + d, dim - d));
            store(to + row * dim + d, _mm256_mul_ps(open, load(x + (2 * row + 1) * dim + d, dim - d)), dim - d);
        }
}

/* The vectors of tokens: lines of the table, and what is said of their positions, if anything is; then the norm, if there is
   one. Returns how many of them are in the table, up to the first that is not. */
PUBLIC long embed(const Embedding *e, long count, const long *tokens, const float *positions, const long *at, float *found) {
    float *to = found;
    for (long n = 0; n < count; n++, to += e->dim) {
        if (tokens[n] < 0 || tokens[n] >= e->vocabulary) return n;
        const int8_t *levels = (const int8_t *)e->table + tokens[n] * e->dim;
        const float *line = (const float *)e->table + tokens[n] * e->dim;
        const float *position = positions ? positions + at[n] * e->dim : NULL;
        float level = e->scales ? e->scales[tokens[n]] : 0;
        for (long d = 0; d < e->dim; d++) to[d] = (e->scales ? (float)levels[d] * level : line[d]) * e->by;
        for (long d = 0; position && d < e->dim; d++) to[d] += position[d];
    }
    if (e->norm) add_and_normalise(count, e->dim, found, NULL, e->norm, found);
    return count;
}
