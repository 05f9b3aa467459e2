/* The loss of a language model and its gradient, from the scores of a vocabulary, in their place. */
#include "common.h"

/* e^(s - top), in the place of s; their sum is returned, and that of all s in `plain`. */
static double exponentials(long size, float *s, float top, double *plain) {
    vec by = _mm256_set1_ps(top);
    double sum = 0, all = 0;
    for (long j0 = 0; j0 < size; j0 += 1024) { /* sums of some hundred numbers, then a sum of these: many digits are kept */
        vec part = _mm256_setzero_ps(), whole = _mm256_setzero_ps();
        for (long j = j0; j < at_most(size, j0 + 1024); j += WIDE) {
            vec x = load(s + j, size - j), e = exponential(_mm256_sub_ps(x, by));
            if (size - j < WIDE) e = _mm256_and_ps(e, _mm256_castsi256_ps(first(size - j)));
            part = _mm256_add_ps(part, e);
            whole = _mm256_add_ps(whole, x);
            store(s + j, e, size - j);
        }
        sum += sum_of(part);
        all += sum_of(whole);
    }
    *plain = all;
    return sum;
}

/* s = s · factor - less, for a whole row */
INLINE void spread(long size, float *s, float factor, float less) {
    vec by = _mm256_set1_ps(factor), minus = _mm256_set1_ps(less);
    for (long j = 0; j < size; j += WIDE)
        store(s + j, _mm256_fmsub_ps(load(s + j, size - j), by, minus), size - j);
}

/* Cross-entropy with smoothing ε, of each row: (1-ε)·-log p(target) + ε·mean of -log p.
   The scores become the gradient: p - (1-ε)·[target] - ε/size. */
PUBLIC void lose(long rows, long size, float *scores, const long *targets, double smoothing, double *losses) {
#pragma omp parallel for num_threads(threads_for(8.0 * rows * size))
    for (long row = 0; row < rows; row++) {
        float *s = scores + row * size, top = largest(size, s), right = s[targets[row]];
        double plain, sum = exponentials(size, s, top, &plain), whole = top + log(sum);
        losses[row] = whole - (1 - smoothing) * right - smoothing * plain / (double)size;
        spread(size, s, (float)(1 / sum), (float)(smoothing / (double)size));
        s[targets[row]] -= (float)(1 - smoothing);
    }
}

/* The same for two answers p and q to one question, which are to agree (R-Drop): both losses, and w/2 · (KL(p‖q) + KL(q‖p)).
   With d = log p - log q, the last term gives p the gradient w/2 · (p·(d - KL(p‖q)) + p - q), and q likewise. */
PUBLIC void lose_twice(long rows, long size, float *first_scores, float *second_scores, const long *targets,
                       double smoothing, double weight, double *losses) {
#pragma omp parallel for num_threads(threads_for(16.0 * rows * size))
    for (long row = 0; row < rows; row++) {
        float *s[2] = {first_scores + row * size, second_scores + row * size};
        long target = targets[row];
        double whole[2], plain, apart[2], total = 0;
        float factor[2];
        float *difference = scratch(DIFFERENCE, size * sizeof(float)); /* of the scores: of the logarithms, but for a constant */
        for (long j = 0; j < size; j++) difference[j] = s[0][j] - s[1][j];
        for (int i = 0; i < 2; i++) {
            float top = largest(size, s[i]), right = s[i][target];
            double sum = exponentials(size, s[i], top, &plain);
            whole[i] = top + log(sum), factor[i] = (float)(1 / sum);
            total += whole[i] - (1 - smoothing) * right - smoothing * plain / (double)size;
        }
        vec more = _mm256_set1_ps((float)(whole[1] - whole[0])), by[2] = {_mm256_set1_ps(factor[0]), _mm256_set1_ps(factor[1])};
        vec sums[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
        for (long j = 0; j < size; j += WIDE) {
            vec d = _mm256_add_ps(load(difference + j, size - j), more);
            for (int i = 0; i < 2; i++) {
                vec chance = _mm256_mul_ps(load(s[i] + j, size - j), by[i]);
                sums[i] = _mm256_fmadd_ps(chance, d, sums[i]);
                store(s[i] + j, chance, size - j);
            }
        }
        apart[0] = sum_of(sums[0]), apart[1] = -sum_of(sums[1]); /* KL(p‖q), KL(q‖p) */
        total += weight / 2 * (apart[0] + apart[1]);
        vec half = _mm256_set1_ps((float)(weight / 2)), less = _mm256_set1_ps((float)(smoothing / (double)size));
        vec off[2] = {_mm256_set1_ps((float)apart[0]), _mm256_set1_ps((float)apart[1])};
        for (long j = 0; j < size; j += WIDE) {
            vec d = _mm256_add_ps(load(difference + j, size - j), more);
            vec p = load(s[0] + j, size - j), q = load(s[1] + j, size - j), between = _mm256_sub_ps(p, q);
            vec one = _mm256_fmadd_ps(p, _mm256_sub_ps(d, off[0]), between);
            vec two = _mm256_fnmsub_ps(q, _mm256_add_ps(d, off[1]), between);
            store(s[0] + j, _mm256_sub_ps(_mm256_fmadd_ps(half, one, p), less), size - j);
            store(s[1] + j, _mm256_sub_ps(_mm256_fmadd_ps(half, two, q), less), size - j);
        }
        s[0][target] -= (float)(1 - smoothing);
        s[1][target] -= (float)(1 - smoothing);
        losses[row] = total;
    }
}
