/* What a search asks of the scores of a vocabulary. */
#include "sixteen.h"

#define STRETCH 4096 /* scores that are looked at twice while they are in the first cache */
#define BLOCK 1024   /* scores whose largest is noted: where it is too small, none of them need be looked at again */

/* How many blocks a row of scores has. */
PUBLIC long blocks_size(long size) { return steps(size, BLOCK); }

/* The largest of some scores, of those that are numbers. */
INLINE float largest_from(const float *s, long count) {
    Floats most[2] = {numbers(-INFINITY), numbers(-INFINITY)}; /* two, for each waits for the one before */
    float top;
    long j = 0;
    for (; j + 2 * COLUMNS <= count; j += 2 * COLUMNS)
        most[0] = larger(load_floats(s + j), most[0]), most[1] = larger(load_floats(s + j + COLUMNS), most[1]);
    top = largest_of(larger(most[0], most[1]));
    for (; j < count; j++) top = s[j] > top ? s[j] : top;
    return top;
}

/* log Σ e^score of each row and, if `peaks` are asked for, the largest score of each of its blocks (those of a row that has
   +∞ are not all noted). Stretch by stretch, each added up by the largest score so far. What is no number is not larger
   than any, and makes the sum none. Returns how many of them are numbers. */
PUBLIC long log_sum(long rows, long size, const float *scores, float *to, float *peaks) {
    long good = 0;
#pragma omp parallel for num_threads(threads_for(8.0 * rows * size)) reduction(+ : good)
    for (long row = 0; row < rows; row++) {
        const float *s = scores + row * size;
        float top = -INFINITY, whole = 0, *peak = peaks ? peaks + row * blocks_size(size) : NULL;
        for (long begin = 0; begin < size && !(top == INFINITY); begin += STRETCH) {
            long end = at_most(size, begin + STRETCH), j;
            float before = top;
            for (j = begin; j < end; j += BLOCK) {
                float most = largest_from(s + j, at_most(BLOCK, end - j));
                if (peak) *peak++ = most;
                top = most > top ? most : top;
            }
            float by = top == -INFINITY ? 0 : top; /* -∞: nothing is possible yet */
            Floats sum[2] = {no_floats(), no_floats()};
            for (j = begin; j + 2 * COLUMNS <= end; j += 2 * COLUMNS) {
                sum[0] = plus(sum[0], shares(plus(load_floats(s + j), numbers(-by))));
                sum[1] = plus(sum[1], shares(plus(load_floats(s + j + COLUMNS), numbers(-by))));
            }
            whole = (before == top ? whole : whole * expf(before - top)) + sum_of_all(plus(sum[0], sum[1]));
            for (; j < end; j++) whole += expf(s[j] - by);
        }
        to[row] = top == INFINITY ? top : top + logf(whole);
        good += isfinite(to[row]) != 0;
    }
    return good;
}

/* Put a score among the best so far, which are in order, behind those that are equal or, if `by_place`, behind those of them
   that stand before it. */
INLINE void insert(const int by_place, float score, long at, long count, float *values, long *places) {
    long i = count - 1;
    for (; i > 0 && (values[i - 1] < score || (by_place && values[i - 1] == score && places[i - 1] > at)); i--)
        values[i] = values[i - 1], places[i] = places[i - 1];
    values[i] = score, places[i] = at;
}

INLINE void look_at(const float *s, long at, long count, float *values, long *places) {
    float last = values[count - 1];
    if (s[at] > last || (s[at] == last && at < places[count - 1])) insert(1, s[at], at, count, values, places);
}

/* Look for the `count` best among some scores, with those that were found before. Most stretches have none. */
static void look_through(const float *s, long begin, long end, long count, float *values, long *places) {
    long j = begin;
    for (; j + 4 * WIDE <= end; j += 4 * WIDE) {
        vec most = _mm256_max_ps(_mm256_max_ps(_mm256_loadu_ps(s + j), _mm256_loadu_ps(s + j + 8)),
                                 _mm256_max_ps(_mm256_loadu_ps(s + j + 16), _mm256_loadu_ps(s + j + 24)));
        if (!_mm256_movemask_ps(_mm256_cmp_ps(most, _mm256_set1_ps(values[count - 1]), _CMP_GE_OQ))) continue;
        for (long i = j; i < j + 4 * WIDE; i++) look_at(s, i, count, values, places);
    }
    for (; j < end; j++) look_at(s, j, count, values, places);
}

/* The same among the scores of a row, of which it is known what those of each block are not larger than: the most promising
   blocks are looked through, until none is left that could have one. */
static void look_by_blocks(long size, const float *s, const float *peaks, long count, float *values, long *places) {
    long blocks = blocks_size(size);
    float left[blocks];
    memcpy(left, peaks, sizeof(left));
    for (;;) {
        long at = 0;
        for (long b = 1; b < blocks; b++) at = left[b] > left[at] ? b : at;
        if (left[at] == -INFINITY || left[at] < values[count - 1]) return;
        look_through(s, at * BLOCK, at_most(size, (at + 1) * BLOCK), count, values, places);
        left[at] = -INFINITY;
    }
}

/* The `count` best of a row, the best first, and where they stand; of equal ones, the earlier comes first. */
static void best_of_row(long size, const float *s, const float *peaks, long count, float *values, long *places) {
    for (const float *known = peaks;; known = NULL) {
        for (long j = 0; j < count; j++) values[j] = -INFINITY, places[j] = size + j; /* behind all that are there */
        if (known)
            look_by_blocks(size, s, known, count, values, places);
        else
            look_through(s, 0, size, count, values, places);
        if (!known || values[count - 1] > -INFINITY) break; /* else fewer are possible than are asked for */
    }
    for (long j = 0; j < count; j++) places[j] = at_most(places[j], size - 1); /* of what is no number, some place */
}

PUBLIC void best(long rows, long size, const float *scores, const float *peaks, long count, float *values, long *places) {
#pragma omp parallel for num_threads(threads_for((peaks ? 0.1 : 1.0) * rows * size))
    for (long row = 0; row < rows; row++)
        best_of_row(size, scores + row * size, peaks ? peaks + row * blocks_size(size) : NULL, count, values + row * count,
                    places + row * count);
}

/* The `count` best continuations of each text, the best first: what one of its `each` rows had `before`, and the score of
   one of `size` tokens there as the rules have it, less `less`, if anything. Of all that are, `count` are there at least.
   The scores of a block are no larger than its peak, if peaks are given. */
PUBLIC void continuations(long texts, long each, long size, const float *ruled, const float *less, const float *before,
                          const float *scores, const float *whole, const float *peaks, long count, float *totals,
                          long *parents, long *tokens, float *said) {
#pragma omp parallel for num_threads(threads_for(1.0 * texts * each * size))
    for (long text = 0; text < texts; text++) {
        long some = at_most(count, size), places[some], order[count], found = 0, first_row = text * each;
        float values[some], *t = totals + text * count;
        for (long row = 0; row < each; row++) {
            const float *peak = peaks ? peaks + (first_row + row) * blocks_size(size) : NULL;
            best_of_row(size, ruled + (first_row + row) * size, peak, some, values, places);
            for (long i = 0; i < some; i++) {
                float total = values[i] - (less ? less[first_row + row] : 0) + before[first_row + row];
                if (found == count && !(total > t[count - 1])) break;
                if (found < count) t[found++] = -INFINITY;
                insert(0, total, row * size + places[i], found, t, order);
            }
        }
        for (long i = 0, at = text * count; i < count; i++, at++) {
            parents[at] = order[i] / size, tokens[at] = order[i] % size;
            said[at] = scores[first_row * size + order[i]] - whole[first_row + parents[at]];
        }
    }
}
