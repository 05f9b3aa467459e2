/* Attention: softmax(Q·Kᵀ·scale + bias)·V, row by row and head by head, without padding.

   Queries stand side by side. Keys and values stand side by side too, or in the rectangles of a cache: where those of a
   row begin, and how far it is from one place to the next, is given. The last query of a row sees all keys of its row;
   if `causal`, each one before it sees one key less. */
#include "parts.h"

#define FEW 12       /* below so many queries it does not pay to turn the keys round */
#define AT_ONCE 4    /* queries that meet a key or a value when it is fetched */
#define ASKED_FOR 64 /* vectors at most, which the first cache has room for */

/* A call with a number of queries that is known when it is compiled. */
#define FOR_SOME(queries, call)     \
    switch (queries) {              \
        case 1: call(1); break;     \
        case 2: call(2); break;     \
        case 3: call(3); break;     \
        default: call(AT_ONCE);     \
    }

/* The score of a query with some keys: products, and sums across the registers. */
INLINE void score_few(const int keys, const Attention *a, const float *query, const float *key, float *scores) {
    vec sum[AT_ONCE];
#pragma GCC unroll 4
    for (int j = 0; j < keys; j++) sum[j] = _mm256_setzero_ps();
    for (long d = 0; d < a->dim; d += WIDE) {
        vec x = load(query + d, a->dim - d);
#pragma GCC unroll 4
        for (int j = 0; j < keys; j++) sum[j] = _mm256_fmadd_ps(x, load(key + j * a->key_stride + d, a->dim - d), sum[j]);
    }
#pragma GCC unroll 4
    for (int j = 0; j < keys; j++) scores[j] = sum_of(sum[j]) * a->scale;
}

static void scores_of_few(const Attention *a, const float *query, const float *key, long keys, float *scores) {
    for (long j = 0; j < keys; j += AT_ONCE, key += AT_ONCE * a->key_stride) {
#define SCORE(count) score_few(count, a, query, key, scores + j)
        FOR_SOME(keys - j, SCORE)
    }
}

/* The same for some queries at once and so many registers of keys, which are turned round: `turned[d * room + j]`. */
INLINE void score(const int queries, const int vectors, const Attention *a, const float *query, const float *turned,
                  long room, float *scores) {
    vec sum[AT_ONCE][2], by = _mm256_set1_ps(a->scale);
#pragma GCC unroll 4
    for (int q = 0; q < queries; q++) sum[q][0] = sum[q][1] = _mm256_setzero_ps();
    for (long d = 0; d < a->dim; d++, turned += room) {
        vec left = _mm256_loadu_ps(turned), right = vectors > 1 ? _mm256_loadu_ps(turned + WIDE) : left;
#pragma GCC unroll 4
        for (int q = 0; q < queries; q++) {
            vec x = _mm256_broadcast_ss(query + q * a->query_stride + d);
            sum[q][0] = _mm256_fmadd_ps(x, left, sum[q][0]);
            if (vectors > 1) sum[q][1] = _mm256_fmadd_ps(x, right, sum[q][1]);
        }
    }
#pragma GCC unroll 4
    for (int q = 0; q < queries; q++)
        for (int v = 0; v < vectors; v++) _mm256_storeu_ps(scores + q * room + v * WIDE, _mm256_mul_ps(sum[q][v], by));
}

INLINE void scores_of_many(const int queries, const Attention *a, const float *query, const float *turned, long room,
                           float *scores) {
    long j = 0;
    for (; j + 2 * WIDE <= room; j += 2 * WIDE) score(queries, 2, a, query, turned + j, room, scores + j);
    if (j < room) score(queries, 1, a, query, turned + j, room, scores + j);
}

static void turn(const Attention *a, const float *key, long keys, long room, float *turned) {
    for (long j = 0; j < room; j++)
        for (long d = 0; d < a->dim; d++) turned[d * room + j] = j < keys ? key[j * a->key_stride + d] : 0.0f;
}

/* Scores to weights, in place; what is behind the last of them becomes 0. */
static void soften(float *scores, long keys, long room, const float *bias) {
    vec most = _mm256_set1_ps(-INFINITY);
    for (long j = 0; j < keys; j += WIDE) {
        vec s = load(scores + j, keys - j);
        if (bias) s = _mm256_add_ps(s, load(bias + j, keys - j));
        if (keys - j < WIDE) s = _mm256_blendv_ps(most, s, _mm256_castsi256_ps(first(keys - j)));
        most = _mm256_max_ps(most, s);
        if (bias) store(scores + j, s, keys - j);
    }
    vec top = _mm256_set1_ps(most_of(most)), sum = _mm256_setzero_ps();
    for (long j = 0; j < keys; j += WIDE) {
        vec e = exponential(_mm256_sub_ps(load(scores + j, keys - j), top));
        if (keys - j < WIDE) e = _mm256_and_ps(e, _mm256_castsi256_ps(first(keys - j)));
        sum = _mm256_add_ps(sum, e);
        _mm256_storeu_ps(scores + j, e);
    }
    vec whole = _mm256_set1_ps(1.0f / sum_of(sum));
    for (long j = 0; j < room; j += WIDE)
        _mm256_storeu_ps(scores + j, j < keys ? _mm256_mul_ps(_mm256_loadu_ps(scores + j), whole) : _mm256_setzero_ps());
}

/* Two registers of the mean of the values, for some queries at once; `count` numbers of them are there. */
INLINE void mean_part(const int queries, const int full, const Attention *a, const float *weights, long room,
                      const float *value, long keys, float *answer, long count) {
    vec left[AT_ONCE], right[AT_ONCE];
#pragma GCC unroll 4
    for (int q = 0; q < queries; q++) left[q] = right[q] = _mm256_setzero_ps();
    for (long j = 0; j < keys; j++, value += a->key_stride) {
        vec v0 = full ? _mm256_loadu_ps(value) : load(value, count);
        vec v1 = full ? _mm256_loadu_ps(value + WIDE) : count > WIDE ? load(value + WIDE, count - WIDE) : v0;
#pragma GCC unroll 4
        for (int q = 0; q < queries; q++) {
            vec w = _mm256_broadcast_ss(weights + q * room + j);
            left[q] = _mm256_fmadd_ps(w, v0, left[q]);
            right[q] = _mm256_fmadd_ps(w, v1, right[q]);
        }
    }
#pragma GCC unroll 4
    for (int q = 0; q < queries; q++) {
        float *to = answer + q * a->heads * a->dim;
        store(to, left[q], count);
        if (count > WIDE) store(to + WIDE, right[q], count - WIDE);
    }
}

INLINE void mean(const int queries, const Attention *a, const float *weights, long room, const float *value, long keys,
                 float *answer) {
    long d = 0;
    for (; d + 2 * WIDE <= a->dim; d += 2 * WIDE)
        mean_part(queries, 1, a, weights, room, value + d, keys, answer + d, 2 * WIDE);
    if (d < a->dim) mean_part(queries, 0, a, weights, room, value + d, keys, answer + d, a->dim - d);
}

/* Ask for vectors of a head before they are needed: they stand apart, and nothing else foresees where. */
static void ask_for(const Attention *a, const float *x, long count, long stride) {
    for (long j = 0; j < at_most(count, ASKED_FOR); j++)
        for (long d = 0; d < a->dim; d += 64 / sizeof(float))
            _mm_prefetch((const char *)(x + j * stride + d), _MM_HINT_T0);
}

static void attend_one(const Attention *a, long row, long head) {
    long queries = a->queries[row], keys = a->keys[row], room = steps(keys, WIDE) * WIDE;
    long begin = a->first_key ? a->first_key[row] * a->key_stride : row * a->row_stride;
    begin += head / a->sharing * a->head_stride;
    const float *key = a->key + begin, *value = a->value + begin;
    float *weights = scratch(WEIGHTS, AT_ONCE * room * sizeof(float));
    float *turned = queries < FEW ? NULL : scratch(TURNED, a->dim * room * sizeof(float));
    ask_for(a, value, keys, a->key_stride);
    if ((head + 1) % a->sharing == 0 && head + 1 < a->heads) ask_for(a, key + a->head_stride, keys, a->key_stride);
    ask_for(a, a->query + a->first_query[row] * a->query_stride + head * a->dim, queries, a->query_stride);
    if (turned) turn(a, key, keys, room, turned);
    for (long q0 = 0; q0 < queries; q0 += AT_ONCE) {
        long some = at_most(AT_ONCE, queries - q0), at = a->first_query[row] + q0;
        const float *query = a->query + at * a->query_stride + head * a->dim;
#define SCORES(count) scores_of_many(count, a, query, turned, room, weights)
        if (turned)
            FOR_SOME(some, SCORES)
        else
            for (long q = 0; q < some; q++)
                scores_of_few(a, query + q * a->query_stride, key, keys, weights + q * room);
        for (long q = q0; q < q0 + some; q++) {
            const float *bias = a->bias ? a->bias + row * a->bias_row + head * a->bias_head + q * a->bias_query : NULL;
            soften(weights + (q - q0) * room, a->causal ? keys - queries + q + 1 : keys, room, bias);
        }
#define MEAN(count) mean(count, a, weights, room, value, keys, a->answer + (at * a->heads + head) * a->dim)
        FOR_SOME(some, MEAN)
    }
}

PUBLIC void attend(const Attention *a) {
    double work = 0;
    for (long row = 0; row < a->rows; row++) work += 2.0 * a->queries[row] * a->keys[row] * a->dim * a->heads;
#pragma omp parallel for schedule(static) num_threads(threads_for(work))
    for (long both = 0; both < a->rows * a->heads; both++) attend_one(a, both / a->heads, both % a->heads);
}

/* Put new keys (or values) into the rectangle of a cache: `new` are tokens × heads × dim, row by row. */
PUBLIC void keep(long rows, long heads, long dim, const long *lengths, const long *before, const float *new, long stride,
                 float *kept, long row_stride, long head_stride) {
    for (long row = 0; row < rows; row++)
        for (long i = 0; i < lengths[row]; i++, new += stride)
            for (long head = 0; head < heads; head++)
                memcpy(kept + row * row_stride + head * head_stride + (before[row] + i) * dim, new + head * dim,
                       dim * sizeof(float));
}
