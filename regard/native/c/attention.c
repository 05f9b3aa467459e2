/* Attention: softmax(Q·Kᵀ·scale + bias)·V, row by row and head by head, without padding.

   Queries stand side by side. Keys and values stand side by side too, or in the rectangles of a cache: where those of a
   row begin, and how far it is from one place to the next, is given. They are float32 or, if `half`, the upper sixteen
   bits of it (bfloat16). The last query of a row sees all keys of its row; if `causal`, each one before it sees one less. */
#define _DEFAULT_SOURCE /* for madvise */
#include <sys/mman.h>

#include "parts.h"
#include "sixteen.h"

#define FEW 12       /* below so many queries it does not pay to turn the keys round */
#define AT_ONCE 4    /* queries that meet a key or a value when it is fetched */
#define ASKED_FOR 64 /* vectors at most */
#ifdef REGARD_WIDE
#define SCORED AT_ONCE /* queries whose scores with four keys there are registers for */
#else
#define SCORED 1
#endif

typedef uint32_t __attribute__((may_alias)) Bits; /* of a number */

/* A call with a number of queries that is known when it is compiled. */
#define FOR_SOME(queries, call)     \
    switch (queries) {              \
        case 1: call(1); break;     \
        case 2: call(2); break;     \
        case 3: call(3); break;     \
        default: call(AT_ONCE);     \
    }

/* Where a key or value is, so many numbers on. */
INLINE const char *further(const int half, const char *x, long count) { return x + count * (half ? 2 : 4); }

/* Eight numbers of a key or value, or as many as there are. */
INLINE vec load_kept(const int half, const char *x, long count) {
    if (!half) return load((const float *)x, count);
    __m128i upper = _mm_setzero_si128();
    if (count >= WIDE)
        upper = _mm_loadu_si128((const __m128i *)x);
    else
        memcpy(&upper, x, count * 2);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(upper), 16));
}

/* The same for sixteen numbers. */
INLINE Floats load_sixteen(const int half, const char *x, long count) {
    if (!half) return count >= COLUMNS ? load_floats((const float *)x) : load_some((const float *)x, count);
    uint16_t upper[COLUMNS] = {0};
    if (count < COLUMNS) memcpy(upper, x, count * 2);
    return widened(count < COLUMNS ? upper : (const uint16_t *)x);
}

/* Up to sixteen numbers of some queries and keys, added to what their products come to. */
INLINE void add_score(const int half, const int queries, const int keys, const Attention *a, const float *query,
                      const char *key, long count, Floats sum[AT_ONCE][AT_ONCE]) {
    Floats k[AT_ONCE];
#pragma GCC unroll 4
    for (int j = 0; j < keys; j++) k[j] = load_sixteen(half, further(half, key, j * a->key_stride), count);
#pragma GCC unroll 4
    for (int q = 0; q < queries; q++) {
        const float *from = query + q * a->query_stride;
        Floats x = count >= COLUMNS ? load_floats(from) : load_some(from, count);
#pragma GCC unroll 4
        for (int j = 0; j < keys; j++) sum[q][j] = add_times(sum[q][j], x, k[j]);
    }
}

/* The scores of some queries with some keys: products, and sums across the registers. There is room for four scores of
   each query. */
INLINE void score_few(const int half, const int queries, const int keys, const Attention *a, const float *query,
                      const char *key, long room, float *scores) {
    Floats sum[AT_ONCE][AT_ONCE];
#pragma GCC unroll 4
    for (int q = 0; q < queries; q++) sum[q][0] = sum[q][1] = sum[q][2] = sum[q][3] = no_floats();
    long d = 0;
    for (; d + COLUMNS <= a->dim; d += COLUMNS)
        add_score(half, queries, keys, a, query + d, further(half, key, d), COLUMNS, sum);
    if (d < a->dim) add_score(half, queries, keys, a, query + d, further(half, key, d), a->dim - d, sum);
#pragma GCC unroll 4
    for (int q = 0; q < queries; q++)
        _mm_storeu_ps(scores + q * room, _mm_mul_ps(four_sums(sum[q]), _mm_set1_ps(a->scale)));
}

INLINE void scores_of_few(const int half, const int queries, const Attention *a, const float *query, const char *key,
                          long keys, long room, float *scores) {
    for (long j = 0; j < keys; j += AT_ONCE, key = further(half, key, AT_ONCE * a->key_stride)) {
#define SCORE(count) score_few(half, queries, count, a, query, key, room, scores + j)
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

/* keys × dim becomes dim × keys; `turned` has room for so many dims as eight divides. */
INLINE void turn(const int half, const Attention *a, const char *key, long keys, long room, float *turned) {
    for (long j = 0; j < room; j += WIDE)
        for (long d = 0; d < a->dim; d += WIDE) {
            vec block[WIDE];
            for (int n = 0; n < WIDE; n++)
                block[n] = j + n < keys ? load_kept(half, further(half, key, (j + n) * a->key_stride + d), a->dim - d)
                                        : _mm256_setzero_ps();
            turn_block(block);
            for (int n = 0; n < WIDE; n++) _mm256_storeu_ps(turned + (d + n) * room + j, block[n]);
        }
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

/* So many times sixteen numbers of the mean of the values, for some queries at once; `count`, where they are fewer. */
INLINE void mean_part(const int half, const int queries, const int sixteens, const Attention *a, const float *weights,
                      long room, const char *value, long keys, float *answer, long count) {
    Floats sum[AT_ONCE] = {no_floats(), no_floats(), no_floats(), no_floats()};
    for (long j = 0; j < keys; j++, value = further(half, value, a->key_stride))
#pragma GCC unroll 4
        for (int n = 0; n < sixteens; n++) {
            Floats v = load_sixteen(half, further(half, value, n * COLUMNS), count);
#pragma GCC unroll 4
            for (int q = 0; q < queries; q++)
                sum[q * sixteens + n] = add_product(sum[q * sixteens + n], all_floats(weights[q * room + j]), v);
        }
#pragma GCC unroll 4
    for (int q = 0; q < queries; q++)
#pragma GCC unroll 4
        for (int n = 0; n < sixteens; n++)
            store_some(answer + q * a->heads * a->dim + n * COLUMNS, sum[q * sixteens + n], count);
}

INLINE void mean(const int half, const int queries, const Attention *a, const float *weights, long room,
                 const char *value, long keys, float *answer) {
    const int sixteens = AT_ONCE / queries; /* as many sums as there are registers for, so that none waits for another */
    long d = 0;
    for (; d + sixteens * COLUMNS <= a->dim; d += sixteens * COLUMNS)
        mean_part(half, queries, sixteens, a, weights, room, further(half, value, d), keys, answer + d, COLUMNS);
    for (; d + COLUMNS <= a->dim; d += COLUMNS)
        mean_part(half, queries, 1, a, weights, room, further(half, value, d), keys, answer + d, COLUMNS);
    if (d < a->dim) mean_part(half, queries, 1, a, weights, room, further(half, value, d), keys, answer + d, a->dim - d);
}

/* Where the keys (and values) of a head begin, in numbers from the first of all. */
INLINE long begin_of(const Attention *a, long row, long head) {
    return (a->first_key ? a->first_key[row] * a->key_stride : row * a->row_stride) + head / a->sharing * a->head_stride;
}

/* Ask for the keys and values of a head before they are needed: they stand apart, and nothing else foresees where. */
INLINE void ask_for(const int half, const Attention *a, long row, long head) {
    long begin = begin_of(a, row, head), bytes = a->dim * (half ? 2 : 4), apart = a->key_stride * (half ? 2 : 4);
    const char *key = further(half, a->key, begin), *value = further(half, a->value, begin);
    for (long j = 0; j < at_most(a->keys[row], ASKED_FOR); j++)
        for (long d = 0; d < bytes; d += 64) {
            _mm_prefetch(key + j * apart + d, _MM_HINT_T1); /* the second cache: the first waits for fewer at a time */
            _mm_prefetch(value + j * apart + d, _MM_HINT_T1);
        }
}

INLINE void attend_as(const int half, const Attention *a, long row, long head) {
    long queries = a->queries[row], keys = a->keys[row], room = steps(keys, WIDE) * WIDE;
    long begin = begin_of(a, row, head);
    const char *key = further(half, a->key, begin), *value = further(half, a->value, begin);
    const float *asking = a->query + a->first_query[row] * a->query_stride + head * a->dim;
    float *weights = scratch(WEIGHTS, AT_ONCE * room * sizeof(float));
    float *turned = queries < FEW ? NULL : scratch(TURNED, steps(a->dim, WIDE) * WIDE * room * sizeof(float));
    if (head + 1 < a->heads) {
        if ((head + 1) % a->sharing == 0) ask_for(half, a, row, head + 1);
    } else if (row + 1 < a->rows) {
        ask_for(half, a, row + 1, 0);
    }
    if (turned) turn(half, a, key, keys, room, turned);
    for (long q0 = 0; q0 < queries; q0 += AT_ONCE) {
        long some = at_most(AT_ONCE, queries - q0), at = a->first_query[row] + q0;
        const float *query = asking + q0 * a->query_stride;
#define SCORES(count) scores_of_many(count, a, query, turned, room, weights)
        if (turned)
            FOR_SOME(some, SCORES)
        else
            for (long q = 0; q < some; q += SCORED) {
#define FEW_SCORES(count) scores_of_few(half, count, a, query + q * a->query_stride, key, keys, room, weights + q * room)
                FOR_SOME(at_most(SCORED, some - q), FEW_SCORES)
            }
        for (long q = q0; q < q0 + some; q++) {
            const float *bias = a->bias ? a->bias + row * a->bias_row + head * a->bias_head + q * a->bias_query : NULL;
            soften(weights + (q - q0) * room, a->causal ? keys - queries + q + 1 : keys, room, bias);
        }
#define MEAN(count) mean(half, count, a, weights, room, value, keys, a->answer + (at * a->heads + head) * a->dim)
        FOR_SOME(some, MEAN)
    }
}

static void attend_one(const Attention *a, long row, long head) {
    if (a->half)
        attend_as(1, a, row, head);
    else
        attend_as(0, a, row, head);
}

PUBLIC void attend(const Attention *a) {
    double work = 0;
    for (long row = 0; row < a->rows; row++) work += 2.0 * a->queries[row] * a->keys[row] * a->dim * a->heads;
#pragma omp parallel for schedule(static) num_threads(threads_for(work))
    for (long both = 0; both < a->rows * a->heads; both++) attend_one(a, both / a->heads, both % a->heads);
}

/* Numbers that bfloat16 has too, in the places of others: to the nearest, of two equally near ones the even one. */
PUBLIC void round_to_half(long rows, long count, float *x, long stride) {
    for (long row = 0; row < rows; row++, x += stride)
        for (long d = 0; d < count; d += WIDE) {
            vec old = load(x + d, count - d);
            __m256i bits = _mm256_castps_si256(old), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
            __m256i near = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
            vec found = _mm256_castsi256_ps(_mm256_and_si256(near, _mm256_set1_epi32((int)0xffff0000)));
            vec strange = _mm256_cmp_ps(old, old, _CMP_UNORD_Q); /* what is no number stays none */
            store(x + d, _mm256_blendv_ps(found, _mm256_set1_ps(NAN), strange), count - d);
        }
}

/* Put new keys (or values) into the rectangle of a cache: `new` are tokens × heads × dim, row by row. A cache that is
   `half` takes their upper sixteen bits: all that numbers have that were rounded to it. */
PUBLIC void keep(long rows, long heads, long dim, const long *lengths, const long *before, const float *new, long stride,
                 void *kept, long row_stride, long head_stride, int half) {
    for (long row = 0; row < rows; row++)
        for (long i = 0; i < lengths[row]; i++, new += stride)
            for (long head = 0; head < heads; head++) {
                const float *from = new + head * dim;
                long at = row * row_stride + head * head_stride + (before[row] + i) * dim;
                if (!half) {
                    memcpy((float *)kept + at, from, dim * sizeof(float));
                    continue;
                }
                uint16_t *to = (uint16_t *)kept + at;
                const Bits *bits = (const Bits *)from;
                for (long d = 0; d < dim; d++) to[d] = (uint16_t)(bits[d] >> 16);
            }
}

/* Give back the memory of whole lines, whose numbers nobody needs any more, as far as it is in pages of their own. */
PUBLIC void clear(long layers, const Kept *kept, long count, const long *lines, long page) {
    for (long n = 0; n < layers * count; n++) {
        const Kept *one = kept + n / count;
        if (!one->key) continue;
        long bytes = one->row_stride * (one->half ? 2 : 4), at = lines[n % count] * bytes;
        for (int which = 0; which < 2; which++) {
            uintptr_t begin = (uintptr_t)((which ? one->value : one->key) + at), end = begin + bytes;
            begin = (begin + page - 1) / page * page, end = end / page * page;
            if (begin < end) madvise((void *)begin, end - begin, MADV_DONTNEED);
        }
    }
}

static void move_row(const Kept *from, const Kept *into, long row, long to, long begin, long end) {
    long size = from->half ? 2 : 4, first = begin * from->key_stride, bytes = (end - begin) * from->key_stride * size;
    for (long head = 0; head < from->heads; head++) {
        long old = (row * from->row_stride + head * from->head_stride + first) * size;
        long new = (to * into->row_stride + head * into->head_stride + first) * size;
        memcpy(into->key + new, from->key + old, bytes);
        memcpy(into->value + new, from->value + old, bytes);
    }
}

/* How far rows of one text are alike, which stand side by side, `each` of them: those in `order` were put there, and all of
   a text come from one text. Copies of a row are alike as far as it goes, others as they were. */
PUBLIC void inherit(long each, const long *alike, const long *lengths, long count, const long *order, long *found) {
    for (long a = 0; a < count; a++)
        for (long b = a - a % each; b < a - a % each + each; b++)
            *found++ = order[a] == order[b] ? lengths[order[a]] : alike[order[a] * each + order[b] % each];
}

/* Copy some rows of keys and values, in all layers, to rows of others, or of the same if none of those is copied itself: as
   many places of each as `lengths` has for the row it becomes, but for the first ones, `alike` of them, that are there
   already (NULL: none are). Places stand side by side. */
PUBLIC void move(long layers, const Kept *from, const Kept *into, long moves, const long *rows, const long *to,
                 const long *lengths, const long *alike) {
    double work = 0, place = 0;
    for (long n = 0; n < layers; n++) place += 32.0 * from[n].heads * from[n].key_stride;
    for (long n = 0; n < moves; n++) work += place * (lengths[to[n]] - (alike ? alike[n] : 0));
#pragma omp parallel for num_threads(threads_for(work))
    for (long n = 0; n < layers * moves; n++) {
        long layer = n / moves, move = n % moves, begin = alike ? alike[move] : 0;
        if (from[layer].key) move_row(from + layer, into + layer, rows[move], to[move], begin, lengths[to[move]]);
    }
}
