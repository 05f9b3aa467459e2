/* Row-wise operations: LayerNorm/RMSNorm, gated activation, embedding lookup. */
#include "types.h"

/* LayerNorm: (x - mean) / √(variance + ε) · weight + bias. RMSNorm: x / √(mean of squares + ε) · weight. */
static void norm_row(long dim, const float *x, const Norm *norm, float *out) {
    f32x8 sum = _mm256_setzero_ps(), squares = _mm256_setzero_ps();
    if (norm->is_layer_norm)
        for (long d = 0; d < dim; d += LANES8) sum = _mm256_add_ps(sum, load_partial_f32x8(x + d, dim - d));
    f32x8 mean = _mm256_set1_ps(hsum_f32x8(sum) / (float)dim);
    for (long d = 0; d < dim; d += LANES8) {
        f32x8 centered = _mm256_sub_ps(load_partial_f32x8(x + d, dim - d), mean);
        if (dim - d < LANES8) centered = _mm256_and_ps(centered, _mm256_castsi256_ps(lane_mask8(dim - d)));
        squares = _mm256_fmadd_ps(centered, centered, squares);
    }
    f32x8 scale = _mm256_set1_ps(1.0f / sqrtf(hsum_f32x8(squares) / (float)dim + norm->epsilon));
    for (long d = 0; d < dim; d += LANES8) {
        long count = dim - d;
        f32x8 y = _mm256_mul_ps(_mm256_sub_ps(load_partial_f32x8(x + d, count), mean), scale);
        y = _mm256_mul_ps(y, load_partial_f32x8(norm->weight + d, count));
        if (norm->bias) y = _mm256_add_ps(y, load_partial_f32x8(norm->bias + d, count));
        store_partial_f32x8(out + d, y, count);
    }
}

/* norm(x + sublayer_output). `sublayer_output` may be NULL; `out` may be x. */
PUBLIC void add_norm(long rows, long dim, const float *x, const float *sublayer_output, const Norm *norm, float *out) {
#pragma omp parallel for num_threads(threads_for(4.0 * rows * dim))
    for (long row = 0; row < rows; row++) {
        const float *src = x + row * dim;
        float *out_row = out + row * dim;
        if (sublayer_output) {
            for (long d = 0; d < dim; d++) out_row[d] = src[d] + sublayer_output[row * dim + d];
            src = out_row;
        }
        norm_row(dim, src, norm, out_row);
    }
}

/* activation(gate) · up. Each row of x holds the gates, then the ups. */
PUBLIC void gated_activation(long rows, long dim, const float *x, int activation, float *out) {
#pragma omp parallel for num_threads(threads_for(8.0 * rows * dim))
    for (long row = 0; row < rows; row++)
        for (long d = 0; d < dim; d += LANES8) {
            f32x8 gate = activate(activation, load_partial_f32x8(x + 2 * row * dim + d, dim - d));
            f32x8 up = load_partial_f32x8(x + (2 * row + 1) * dim + d, dim - d);
            store_partial_f32x8(out + row * dim + d, _mm256_mul_ps(gate, up), dim - d);
        }
}

/* Token embeddings, plus position embeddings if there is a table of them, then the norm if there is one. Returns
   `count`, or the index of the first token whose id is out of range. */
PUBLIC long embed(const Embedding *e, long count, const long *tokens, const float *position_table,
                  const long *position_ids, float *output) {
    float *out = output;
    for (long n = 0; n < count; n++, out += e->dim) {
        if (tokens[n] < 0 || tokens[n] >= e->vocabulary) return n;
        const int8_t *qrow = (const int8_t *)e->table + tokens[n] * e->dim;
        const float *row = (const float *)e->table + tokens[n] * e->dim;
        const float *position = position_table ? position_table + position_ids[n] * e->dim : NULL;
        float token_scale = e->row_scales ? e->row_scales[tokens[n]] : 0;
        for (long d = 0; d < e->dim; d++)
            out[d] = (e->row_scales ? (float)qrow[d] * token_scale : row[d]) * e->scale;
        for (long d = 0; position && d < e->dim; d++) out[d] += position[d];
    }
    if (e->norm) add_norm(count, e->dim, output, NULL, e->norm, output);
    return count;
}
