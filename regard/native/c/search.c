/* What a search asks of the scores of a vocabulary. */
#include "sixteen.h"

#define STRETCH 4096 /* scores that are looked at twice while they are in the first cache */

/* log Σ e^score of each row: stretch by stretch, each added up by the largest score so far. What is no number is not larger
   than any, and makes the sum none. Returns how many of them are numbers. */
PUBLIC long log_sum(long rows, long size, const float *scores, float *to) {
    long good = 0;
#pragma omp parallel for num_threads(threads_for(8.0 * rows * size)) reduction(+ : good)
    for (long row = 0; row < rows; row++) {
        const float *s = scores + row * size;
        float top = -INFINITY, whole = 0;
        for (long begin = 0; begin < size && !(top == INFINITY); begin += STRETCH) {
            long end = at_most(size, begin + STRETCH), j;
            Floats most[2] = {numbers(top), numbers(top)}, sum = no_floats(); /* two, for each waits for the one before */
            for (j = begin; j + 2 * COLUMNS <= end; j += 2 * COLUMNS)
                most[0] = larger(load_floats(s + j), most[0]), most[1] = larger(load_floats(s + j + COLUMNS), most[1]);
            if (j + COLUMNS <= end) most[0] = larger(load_floats(s + j), most[0]), j += COLUMNS;
            float before = top;
            top = largest_of(larger(most[0], most[1]));
            for (; j < end; j++) top = s[j] > top ? s[j] : top;
            float by = top == -INFINITY ? 0 : top; /* -∞: nothing is possible yet */
            for (j = begin; j + COLUMNS <= end; j += COLUMNS)
                sum = plus(sum, shares(plus(load_floats(s + j), numbers(-by))));
            whole = (before == top ? whole : whole * expf(before - top)) + sum_of_all(sum);
            for (; j < end; j++) whole += expf(s[j] - by);
        }
        to[row] = top == INFINITY ? top : top + logf(whole);
        good += isfinite(to[row]) != 0;
    }
    return good;
}

/* Put a score among the best so far, which are in order; of equal ones, the earlier comes first. */
static void insert(float score, long at, long count, float *values, long *places) {
    long i = count - 1;
    for (; i > 0 && values[i - 1] < score; i--) values[i] = values[i - 1], places[i] = places[i - 1];
    values[i] = score, places[i] = at;
}

/* The `count` best of a row, the best first, and where they stand. */
static void best_of_row(long size, const float *s, long count, float *values, long *places) {
    long j = 0;
    for (; j < count; j++) {
        values[j] = -INFINITY, places[j] = j;
        insert(s[j], j, j + 1, values, places);
    }
    for (; j + 4 * WIDE <= size; j += 4 * WIDE) { /* most stretches have nothing that is better than the last */
        vec most = _mm256_max_ps(_mm256_max_ps(_mm256_loadu_ps(s + j), _mm256_loadu_ps(s + j + 8)),
                                 _mm256_max_ps(_mm256_loadu_ps(s + j + 16), _mm256_loadu_ps(s + j + 24)));
        if (!_mm256_movemask_ps(_mm256_cmp_ps(most, _mm256_set1_ps(values[count - 1]), _CMP_GT_OQ))) continue;
        for (long i = j; i < j + 4 * WIDE; i++)
            if (s[i] > values[count - 1]) insert(s[i], i, count, values, places);
    }
    for (; j < size; j++)
        if (s[j] > values[count - 1]) insert(s[j], j, count, values, places);
}

PUBLIC void best(long rows, long size, const float *scores, long count, float *values, long *places) {
#pragma omp parallel for num_threads(threads_for(1.0 * rows * size))
    for (long row = 0; row < rows; row++)
        best_of_row(size, scores + row * size, count, values + row * count, places + row * count);
}

/* The `count` best continuations of each text, the best first: what one of its `each` rows had `before`, and the score of
   one of `size` tokens there as the rules have it, less `less`, if anything. Of all that are, `count` are there at least. */
PUBLIC void continuations(long texts, long each, long size, const float *ruled, const float *less, const float *before,
                          const float *scores, const float *whole, long count, float *totals, long *parents, long *tokens,
                          float *said) {
#pragma omp parallel for num_threads(threads_for(1.0 * texts * each * size))
    for (long text = 0; text < texts; text++) {
        long some = at_most(count, size), places[some], order[count], found = 0, first_row = text * each;
        float values[some], *t = totals + text * count;
        for (long row = 0; row < each; row++) {
            best_of_row(size, ruled + (first_row + row) * size, some, values, places);
            for (long i = 0; i < some; i++) {
                float total = values[i] - (less ? less[first_row + row] : 0) + before[first_row + row];
                if (found == count && !(total > t[count - 1])) break;
                if (found < count) t[found++] = -INFINITY;
                insert(total, row * size + places[i], found, t, order);
            }
        }
        for (long i = 0, at = text * count; i < count; i++, at++) {
            parents[at] = order[i] / size, tokens[at] = order[i] % size;
            said[at] = scores[first_row * size + order[i]] - whole[first_row + parents[at]];
        }
    }
}
