/* Operations of decoding on logits: logsumexp, top-k, top-k over beams. */
#include "simd.h"

#define LSE_CHUNK 4096 /* logits that are read twice (maximum, then sum) while they are in the L1 cache */
#define MAX_BLOCK 1024 /* logits per stored maximum: top-k skips blocks whose maximum is too small */

/* The number of blocks in a row of logits. */
PUBLIC long block_count(long vocabulary_size) { return ceil_div(vocabulary_size, MAX_BLOCK); }

INLINE float max_ignoring_nan(const float *x, long count) {
    /* Two accumulators, because each maximum waits for the one before it. */
    f32x16 max_vec[2] = {broadcast_f32x16(-INFINITY), broadcast_f32x16(-INFINITY)};
    float max;
    long j = 0;
    for (; j + 2 * LANES16 <= count; j += 2 * LANES16) {
        max_vec[0] = max_f32x16(load_f32x16(x + j), max_vec[0]);
        max_vec[1] = max_f32x16(load_f32x16(x + j + LANES16), max_vec[1]);
    }
    max = hmax_f32x16(max_f32x16(max_vec[0], max_vec[1]));
    for (; j < count; j++) max = x[j] > max ? x[j] : max;
    return max;
}

/* logsumexp of each row and, if `block_maxima` is not NULL, the largest logit of each block (incomplete for a row that
   has +∞). Computed online: chunk by chunk, relative to the maximum so far. The maximum ignores NaN; the sum propagates
   it. Returns the number of rows with a finite result. */
PUBLIC long logsumexp(long rows, long vocabulary_size, const float *logits, float *out, float *block_maxima) {
    long finite_rows = 0;
#pragma omp parallel for num_threads(threads_for(8.0 * rows * vocabulary_size)) reduction(+ : finite_rows)
    for (long row = 0; row < rows; row++) {
        const float *x = logits + row * vocabulary_size;
        float row_max = -INFINITY, exp_sum = 0;
        float *block_max_out = block_maxima ? block_maxima + row * block_count(vocabulary_size) : NULL;
        for (long begin = 0; begin < vocabulary_size && !(row_max == INFINITY); begin += LSE_CHUNK) {
            long end = min_long(vocabulary_size, begin + LSE_CHUNK), j;
            float previous_max = row_max;
            for (j = begin; j < end; j += MAX_BLOCK) {
                float block_max = max_ignoring_nan(x + j, min_long(MAX_BLOCK, end - j));
                if (block_max_out) *block_max_out++ = block_max;
                row_max = block_max > row_max ? block_max : row_max;
            }
            float max = row_max == -INFINITY ? 0 : row_max; /* all logits so far are -∞ */
            f32x16 sum[2] = {zero_f32x16(), zero_f32x16()};
            for (j = begin; j + 2 * LANES16 <= end; j += 2 * LANES16) {
                sum[0] = add_f32x16(sum[0], exp_nonpositive(add_f32x16(load_f32x16(x + j), broadcast_f32x16(-max))));
                sum[1] = add_f32x16(
                    sum[1], exp_nonpositive(add_f32x16(load_f32x16(x + j + LANES16), broadcast_f32x16(-max))));
            }
            exp_sum = (previous_max == row_max ? exp_sum : exp_sum * expf(previous_max - row_max)) +
                      hsum_f32x16(add_f32x16(sum[0], sum[1]));
            for (; j < end; j++) exp_sum += expf(x[j] - max);
        }
        out[row] = row_max == INFINITY ? row_max : row_max + logf(exp_sum);
        finite_rows += isfinite(out[row]) != 0;
    }
    return finite_rows;
}

/* Insert a value into a descending list, after values that are equal; if `by_index`, only after equal values of lower
   index. */
INLINE void insert_sorted(const int by_index, float value, long idx, long count, float *values, long *indices) {
    long i = count - 1;
    for (; i > 0 && (values[i - 1] < value || (by_index && values[i - 1] == value && indices[i - 1] > idx)); i--)
        values[i] = values[i - 1], indices[i] = indices[i - 1];
    values[i] = value, indices[i] = idx;
}

INLINE void try_insert(const float *x, long idx, long count, float *values, long *indices) {
    float last = values[count - 1];
    if (x[idx] > last || (x[idx] == last && idx < indices[count - 1]))
        insert_sorted(1, x[idx], idx, count, values, indices);
}

/* Update the top k with the values from begin to end, 32 at a time: most groups of 32 have no value to insert. */
static void scan_range(const float *x, long begin, long end, long count, float *values, long *indices) {
    long j = begin;
    for (; j + 4 * LANES8 <= end; j += 4 * LANES8) {
        f32x8 max = _mm256_max_ps(_mm256_max_ps(_mm256_loadu_ps(x + j), _mm256_loadu_ps(x + j + 8)),
                                  _mm256_max_ps(_mm256_loadu_ps(x + j + 16), _mm256_loadu_ps(x + j + 24)));
        if (!_mm256_movemask_ps(_mm256_cmp_ps(max, _mm256_set1_ps(values[count - 1]), _CMP_GE_OQ))) continue;
        for (long i = j; i < j + 4 * LANES8; i++) try_insert(x, i, count, values, indices);
    }
    for (; j < end; j++) try_insert(x, j, count, values, indices);
}

/* The top k of a row whose block maxima (or upper bounds of them) are known: scan blocks in descending order of their
   maximum, until no block left can contain one of the top k. */
static void scan_blocks(long vocabulary_size, const float *x, const float *block_maxima, long count, float *values,
                        long *indices) {
    long blocks = block_count(vocabulary_size);
    float remaining[blocks];
    memcpy(remaining, block_maxima, sizeof(remaining));
    for (;;) {
        long best = 0;
        for (long b = 1; b < blocks; b++) best = remaining[b] > remaining[best] ? b : best;
        if (remaining[best] == -INFINITY || remaining[best] < values[count - 1]) return;
        scan_range(x, best * MAX_BLOCK, min_long(vocabulary_size, (best + 1) * MAX_BLOCK), count, values, indices);
        remaining[best] = -INFINITY;
    }
}

/* The top k of a row in descending order, and their indices; of equal values, the lower index comes first. */
static void topk_row(long vocabulary_size, const float *x, const float *block_maxima, long count, float *values,
                     long *indices) {
    for (const float *maxima = block_maxima;; maxima = NULL) {
        /* Placeholders have larger indices than all values. */
        for (long j = 0; j < count; j++) values[j] = -INFINITY, indices[j] = vocabulary_size + j;
        if (maxima)
            scan_blocks(vocabulary_size, x, maxima, count, values, indices);
        else
            scan_range(x, 0, vocabulary_size, count, values, indices);
        if (!maxima || values[count - 1] > -INFINITY) break; /* otherwise fewer than k values are above -∞ */
    }
    /* Placeholders that remain, because there are NaN, get a valid index. */
    for (long j = 0; j < count; j++) indices[j] = min_long(indices[j], vocabulary_size - 1);
}

PUBLIC void topk(long rows, long vocabulary_size, const float *logits, const float *block_maxima, long count,
                 float *values, long *indices) {
#pragma omp parallel for num_threads(threads_for((block_maxima ? 0.1 : 1.0) * rows * vocabulary_size))
    for (long row = 0; row < rows; row++)
        topk_row(vocabulary_size, logits + row * vocabulary_size,
                 block_maxima ? block_maxima + row * block_count(vocabulary_size) : NULL, count, values + row * count,
                 indices + row * count);
}

/* The top `count` candidates over all beams of each source sequence, in descending order. The score of a candidate is
   the beam score plus the logit of a token after the logits processors, minus the normalizer of the row if there is
   one. There must be at least `count` candidates. If block maxima are given, no processed logit of a block is larger
   than its maximum. */
PUBLIC void beam_topk(long batch_size, long beams, long vocabulary_size, const float *processed_logits,
                      const float *normalizer, const float *beam_scores, const float *logits, const float *lse,
                      const float *block_maxima, long count, float *candidate_scores, long *beam_indices, long *tokens,
                      float *log_probs) {
#pragma omp parallel for num_threads(threads_for(1.0 * batch_size * beams * vocabulary_size))
    for (long source = 0; source < batch_size; source++) {
        long per_beam = min_long(count, vocabulary_size), indices[per_beam], order[count], found = 0;
        long first_row = source * beams;
        float values[per_beam], *scores = candidate_scores + source * count;
        for (long beam = 0; beam < beams; beam++) {
            long row = first_row + beam;
            const float *maxima = block_maxima ? block_maxima + row * block_count(vocabulary_size) : NULL;
            topk_row(vocabulary_size, processed_logits + row * vocabulary_size, maxima, per_beam, values, indices);
            for (long i = 0; i < per_beam; i++) {
                float score = values[i] - (normalizer ? normalizer[row] : 0) + beam_scores[row];
                if (found == count && !(score > scores[count - 1])) break;
                if (found < count) scores[found++] = -INFINITY;
                insert_sorted(0, score, beam * vocabulary_size + indices[i], found, scores, order);
            }
        }
        for (long i = 0, n = source * count; i < count; i++, n++) {
            beam_indices[n] = order[i] / vocabulary_size, tokens[n] = order[i] % vocabulary_size;
            log_probs[n] = logits[first_row * vocabulary_size + order[i]] - lse[first_row + beam_indices[n]];
        }
    }
}
