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

/* What is found on the way through the scores s and t of two answers: e^(s - top), e^(t - top) in their places, s - t in
   `difference`, and for each of the two the sum of the scores, of the exponentials, and of those times the difference. */
typedef struct {
    double plain, sum, leaning;
} Found;

static void exponentials_of_two(long size, float *s, float *t, const float top[2], float *difference, Found found[2]) {
    vec by[2] = {_mm256_set1_ps(top[0]), _mm256_set1_ps(top[1])};
    for (long j0 = 0; j0 < size; j0 += 1024) {
        vec plain[2], sum[2], leaning[2];
        for (int i = 0; i < 2; i++) plain[i] = sum[i] = leaning[i] = _mm256_setzero_ps();
        for (long j = j0; j < at_most(size, j0 + 1024); j += WIDE) {
            vec x[2] = {load(s + j, size - j), load(t + j, size - j)}, e[2], d = _mm256_sub_ps(x[0], x[1]);
#pragma GCC unroll 2
            for (int i = 0; i < 2; i++) {
                e[i] = exponential(_mm256_sub_ps(x[i], by[i]));
                if (size - j < WIDE) e[i] = _mm256_and_ps(e[i], _mm256_castsi256_ps(first(size - j)));
                plain[i] = _mm256_add_ps(plain[i], x[i]);
                sum[i] = _mm256_add_ps(sum[i], e[i]);
                leaning[i] = _mm256_fmadd_ps(e[i], d, leaning[i]);
            }
            store(s + j, e[0], size - j), store(t + j, e[1], size - j), store(difference + j, d, size - j);
        }
        for (int i = 0; i < 2; i++) {
            found[i].plain += sum_of(plain[i]), found[i].sum += sum_of(sum[i]);
            found[i].leaning += sum_of(leaning[i]);
        }
    }
}

/* The same for two answers p and q to one question, which are to agree (R-Drop): both losses, and w/2 · (KL(p‖q) + KL(q‖p)).
   With d = log p - log q, the last term gives p the gradient w/2 · (p·(d - KL(p‖q)) + p - q), and q likewise.
   The scores of q stand behind those of p. */
PUBLIC void lose_twice(long rows, long size, float *scores, const long *targets, double smoothing, double weight,
                       double *losses) {
#pragma omp parallel for num_threads(threads_for(16.0 * rows * size))
    for (long row = 0; row < rows; row++) {
        float *s = scores + 2 * row * size, *t = s + size;
        long target = targets[row];
        float *difference = scratch(DIFFERENCE, size * sizeof(float)); /* of the logarithms, but for a constant: `more` */
        float top[2] = {largest(size, s), largest(size, t)}, right = s[target] + t[target];
        Found found[2] = {{0}, {0}};
        exponentials_of_two(size, s, t, top, difference, found);
        double whole[2], total = -(1 - smoothing) * right, more, apart[2];
        for (int i = 0; i < 2; i++) {
            whole[i] = top[i] + log(found[i].sum);
            total += whole[i] - smoothing * found[i].plain / (double)size;
        }
        more = whole[1] - whole[0];
        apart[0] = found[0].leaning / found[0].sum + more; /* KL(p‖q), KL(q‖p) */
        apart[1] = -(found[1].leaning / found[1].sum + more);
        losses[row] = total + weight / 2 * (apart[0] + apart[1]);
        vec half = _mm256_set1_ps((float)(weight / 2)), less = _mm256_set1_ps((float)(smoothing / (double)size));
        vec by[2] = {_mm256_set1_ps((float)(1 / found[0].sum)), _mm256_set1_ps((float)(1 / found[1].sum))};
        vec off[2] = {_mm256_set1_ps((float)(more - apart[0])), _mm256_set1_ps((float)(more + apart[1]))};
        for (long j = 0; j < size; j += WIDE) {
            vec d = load(difference + j, size - j), p = _mm256_mul_ps(load(s + j, size - j), by[0]);
            vec q = _mm256_mul_ps(load(t + j, size - j), by[1]), between = _mm256_sub_ps(p, q);
            vec one = _mm256_fmadd_ps(p, _mm256_add_ps(d, off[0]), between);
            vec two = _mm256_fnmsub_ps(q, _mm256_add_ps(d, off[1]), between);
            store(s + j, _mm256_sub_ps(_mm256_fmadd_ps(half, one, p), less), size - j);
            store(t + j, _mm256_sub_ps(_mm256_fmadd_ps(half, two, q), less), size - j);
        }
        s[target] -= (float)(1 - smoothing), t[target] -= (float)(1 - smoothing);
    }
}
