/* Cross-entropy and R-Drop losses of a language model, with their gradients. The logits are overwritten by their
   gradient. */
#include "common.h"

#define SUM_CHUNK 1024 /* values summed in float32; the sums of the chunks are added in double, which keeps precision */

/* Replace the logits of a row by e^(logit - row_max). Returns their sum; `logit_sum` becomes the sum of the logits. */
static double exp_and_sum(long vocabulary_size, float *logits, float row_max, double *logit_sum) {
    f32x8 max = _mm256_set1_ps(row_max);
    double exp_total = 0, logit_total = 0;
    for (long j0 = 0; j0 < vocabulary_size; j0 += SUM_CHUNK) {
        f32x8 exp_part = _mm256_setzero_ps(), logit_part = _mm256_setzero_ps();
        for (long j = j0; j < min_long(vocabulary_size, j0 + SUM_CHUNK); j += LANES8) {
            long count = vocabulary_size - j;
            f32x8 x = load_partial_f32x8(logits + j, count), e = exp_f32x8(_mm256_sub_ps(x, max));
            if (count < LANES8) e = _mm256_and_ps(e, _mm256_castsi256_ps(lane_mask8(count)));
            exp_part = _mm256_add_ps(exp_part, e);
            logit_part = _mm256_add_ps(logit_part, x);
            store_partial_f32x8(logits + j, e, count);
        }
        exp_total += hsum_f32x8(exp_part);
        logit_total += hsum_f32x8(logit_part);
    }
    *logit_sum = logit_total;
    return exp_total;
}

/* x = x · scale - offset, for one row */
INLINE void scale_and_subtract(long vocabulary_size, float *x, float scale, float offset) {
    f32x8 factor = _mm256_set1_ps(scale), subtrahend = _mm256_set1_ps(offset);
    for (long j = 0; j < vocabulary_size; j += LANES8) {
        long count = vocabulary_size - j;
        store_partial_f32x8(x + j, _mm256_fmsub_ps(load_partial_f32x8(x + j, count), factor, subtrahend), count);
    }
}

/* Cross-entropy with label smoothing ε, of each row: (1-ε)·-log p(target) + ε·mean of -log p.
   The logits are overwritten by their gradient: p - (1-ε)·[target] - ε/vocabulary_size. */
PUBLIC void cross_entropy_forward_backward(long rows, long vocabulary_size, float *logits, const long *targets,
                                           double label_smoothing, double *losses) {
#pragma omp parallel for num_threads(threads_for(8.0 * rows * vocabulary_size))
    for (long row = 0; row < rows; row++) {
        float *x = logits + row * vocabulary_size;
        float row_max = max_f32(vocabulary_size, x), target_logit = x[targets[row]];
        double logit_sum, exp_sum = exp_and_sum(vocabulary_size, x, row_max, &logit_sum), lse = row_max + log(exp_sum);
        losses[row] =
            lse - (1 - label_smoothing) * target_logit - label_smoothing * logit_sum / (double)vocabulary_size;
        float uniform_grad = (float)(label_smoothing / (double)vocabulary_size);
        scale_and_subtract(vocabulary_size, x, (float)(1 / exp_sum), uniform_grad);
        x[targets[row]] -= (float)(1 - label_smoothing);
    }
}

/* Sums over the logits s of p, or of q: Σ s, Σ e^(s - max), Σ e^(s - max)·(logit of p - logit of q). */
typedef struct {
    double logit_sum, exp_sum, exp_difference_sum;
} SoftmaxSums;

/* Replace the logits of p and q by e^(logit - row_max); `difference` becomes the logits of p minus those of q. */
static void exp_and_sum_pair(long vocabulary_size, float *p_logits, float *q_logits, const float row_max[2],
                             float *difference, SoftmaxSums sums[2]) {
    f32x8 max[2] = {_mm256_set1_ps(row_max[0]), _mm256_set1_ps(row_max[1])};
    for (long j0 = 0; j0 < vocabulary_size; j0 += SUM_CHUNK) {
        f32x8 logit_sum[2], exp_sum[2], exp_difference_sum[2];
        for (int i = 0; i < 2; i++) logit_sum[i] = exp_sum[i] = exp_difference_sum[i] = _mm256_setzero_ps();
        for (long j = j0; j < min_long(vocabulary_size, j0 + SUM_CHUNK); j += LANES8) {
            long count = vocabulary_size - j;
            f32x8 x[2] = {load_partial_f32x8(p_logits + j, count), load_partial_f32x8(q_logits + j, count)}, e[2];
            f32x8 d = _mm256_sub_ps(x[0], x[1]);
#pragma GCC unroll 2
            for (int i = 0; i < 2; i++) {
                e[i] = exp_f32x8(_mm256_sub_ps(x[i], max[i]));
                if (count < LANES8) e[i] = _mm256_and_ps(e[i], _mm256_castsi256_ps(lane_mask8(count)));
                logit_sum[i] = _mm256_add_ps(logit_sum[i], x[i]);
                exp_sum[i] = _mm256_add_ps(exp_sum[i], e[i]);
                exp_difference_sum[i] = _mm256_fmadd_ps(e[i], d, exp_difference_sum[i]);
            }
            store_partial_f32x8(p_logits + j, e[0], count), store_partial_f32x8(q_logits + j, e[1], count);
            store_partial_f32x8(difference + j, d, count);
        }
        for (int i = 0; i < 2; i++) {
            sums[i].logit_sum += hsum_f32x8(logit_sum[i]), sums[i].exp_sum += hsum_f32x8(exp_sum[i]);
            sums[i].exp_difference_sum += hsum_f32x8(exp_difference_sum[i]);
        }
    }
}

/* R-Drop loss of two predictions p and q of one target: both cross-entropies, and α/2 · (KL(p‖q) + KL(q‖p)).
   With d = log p - log q, the last term gives p the gradient α/2 · (p·(d - KL(p‖q)) + p - q), and q likewise.
   The logits of q follow those of p. */
PUBLIC void rdrop_forward_backward(long rows, long vocabulary_size, float *logits, const long *targets,
                                   double label_smoothing, double rdrop_alpha, double *losses) {
#pragma omp parallel for num_threads(threads_for(16.0 * rows * vocabulary_size))
    for (long row = 0; row < rows; row++) {
        float *p_logits = logits + 2 * row * vocabulary_size, *q_logits = p_logits + vocabulary_size;
        long target = targets[row];
        /* d = difference + lse_difference */
        float *difference = scratch(SCRATCH_LOGIT_DIFFERENCE, vocabulary_size * sizeof(float));
        float row_max[2] = {max_f32(vocabulary_size, p_logits), max_f32(vocabulary_size, q_logits)};
        float target_logits = p_logits[target] + q_logits[target];
        SoftmaxSums sums[2] = {{0}, {0}};
        exp_and_sum_pair(vocabulary_size, p_logits, q_logits, row_max, difference, sums);
        double lse[2], total = -(1 - label_smoothing) * target_logits, lse_difference, kl[2];
        for (int i = 0; i < 2; i++) {
            lse[i] = row_max[i] + log(sums[i].exp_sum);
            total += lse[i] - label_smoothing * sums[i].logit_sum / (double)vocabulary_size;
        }
        lse_difference = lse[1] - lse[0];
        kl[0] = sums[0].exp_difference_sum / sums[0].exp_sum + lse_difference; /* KL(p‖q), KL(q‖p) */
        kl[1] = -(sums[1].exp_difference_sum / sums[1].exp_sum + lse_difference);
        losses[row] = total + rdrop_alpha / 2 * (kl[0] + kl[1]);
        f32x8 half_alpha = _mm256_set1_ps((float)(rdrop_alpha / 2));
        f32x8 uniform_grad = _mm256_set1_ps((float)(label_smoothing / (double)vocabulary_size));
        f32x8 scale[2] = {_mm256_set1_ps((float)(1 / sums[0].exp_sum)), _mm256_set1_ps((float)(1 / sums[1].exp_sum))};
        f32x8 offset[2] = {_mm256_set1_ps((float)(lse_difference - kl[0])),
                           _mm256_set1_ps((float)(lse_difference + kl[1]))};
        for (long j = 0; j < vocabulary_size; j += LANES8) {
            long count = vocabulary_size - j;
            f32x8 d = load_partial_f32x8(difference + j, count);
            f32x8 p = _mm256_mul_ps(load_partial_f32x8(p_logits + j, count), scale[0]);
            f32x8 q = _mm256_mul_ps(load_partial_f32x8(q_logits + j, count), scale[1]);
            f32x8 p_minus_q = _mm256_sub_ps(p, q);
            f32x8 p_kl_grad = _mm256_fmadd_ps(p, _mm256_add_ps(d, offset[0]), p_minus_q);
            f32x8 q_kl_grad = _mm256_fnmsub_ps(q, _mm256_add_ps(d, offset[1]), p_minus_q);
            f32x8 p_grad = _mm256_sub_ps(_mm256_fmadd_ps(half_alpha, p_kl_grad, p), uniform_grad);
            store_partial_f32x8(p_logits + j, p_grad, count);
            f32x8 q_grad = _mm256_sub_ps(_mm256_fmadd_ps(half_alpha, q_kl_grad, q), uniform_grad);
            store_partial_f32x8(q_logits + j, q_grad, count);
        }
        p_logits[target] -= (float)(1 - label_smoothing), q_logits[target] -= (float)(1 - label_smoothing);
    }
}
