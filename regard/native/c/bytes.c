/* Products with matrices in bytes.

   Each output of the matrix has a scale of its own. Each vector that comes is rounded to whole numbers of about twelve
   bits, by its largest element, so what becomes of it does not depend on the vectors beside it; and what is lost is
   nearly all lost by the matrix. Pairs of products are added by one instruction (pmaddwd, or VNNI's vpdpwssd) into 32
   bits, where nothing overflows: the sum is exact, and the same on every machine.

       panel j, pair k:   B[2k][16j] B[2k+1][16j]   …   B[2k][16j+15] B[2k+1][16j+15]      (32 bytes) */
#include "parts.h"
#include "sixteen.h"

#define CHUNK 96
#define CACHED 131072 /* numbers of sixteen bits that leave room for panels in the second cache */
#define AHEAD 1024    /* bytes of a panel that are asked for before they are needed */
#define MOST 4095     /* the largest number that an element becomes, if the sums have room for it */

PUBLIC long packed_bytes_size(long columns, long depth) { return steps(columns, COLUMNS) * COLUMNS * steps(depth, 2) * 2; }

/* The matrix as files have it: one row for each output, `depth` bytes each. */
PUBLIC void pack_bytes(long columns, long depth, const int8_t *levels, int8_t *to) {
    long pairs = steps(depth, 2);
    for (long j0 = 0; j0 < columns; j0 += COLUMNS)
        for (long k = 0; k < pairs; k++)
            for (long j = 0; j < COLUMNS; j++)
                for (long p = 0; p < 2; p++) {
                    int there = j0 + j < columns && 2 * k + p < depth;
                    to[j0 * pairs * 2 + (k * COLUMNS + j) * 2 + p] = there ? levels[(j0 + j) * depth + 2 * k + p] : 0;
                }
}

/* The largest whole number for elements of vectors of this depth: 127 · it · depth must fit into 32 bits. */
INLINE float most_for(long depth) { return (float)at_most(MOST, 0x7fffffffL / 127 / depth); }

/* One vector in whole numbers; what one of them is worth is returned: no number, if the vector has one that is none. */
static float round_row(long depth, const float *x, int16_t *to, float most) {
    const vec sign = _mm256_set1_ps(-0.0f);
    vec largest = _mm256_setzero_ps(), strange = _mm256_setzero_ps();
    for (long k = 0; k < depth; k += WIDE) {
        vec size = _mm256_andnot_ps(sign, load(x + k, depth - k));
        largest = _mm256_max_ps(largest, size);
        strange = _mm256_or_ps(strange, _mm256_cmp_ps(size, _mm256_set1_ps(INFINITY), _CMP_NLT_UQ));
    }
    float top = most_of(largest), factor = top > 0 ? most / top : 0;
    vec by = _mm256_set1_ps(factor);
    long k = 0;
    for (; k + 2 * WIDE <= depth; k += 2 * WIDE) {
        __m256i one = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + k), by));
        __m256i two = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + k + WIDE), by));
        __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi32(one, two), 0xd8);
        _mm256_storeu_si256((__m256i *)(to + k), both);
    }
    for (; k < depth; k++) to[k] = (int16_t)lrintf(x[k] * factor);
    if (depth % 2) to[depth] = 0;
    return _mm256_movemask_ps(strange) ? NAN : top / most;
}

typedef struct {
    long columns, pairs;
    const int16_t *a;   /* rows of 2 · pairs numbers */
    const float *worth; /* of one whole number, for each row */
    const Matrix *b;
    float *c;
} Product;

/* Up to eight sums, the first of them of row i and column j of C. */
INLINE void put(const Product *p, vec sum, long i, long j) {
    long count = p->columns - j;
    vec found = _mm256_mul_ps(_mm256_mul_ps(sum, _mm256_set1_ps(p->worth[i])), load(p->b->scale + j, count));
    if (p->b->bias) found = _mm256_add_ps(found, load(p->b->bias + j, count));
    store(p->c + i * p->columns + j, activate(p->b->activation, found), count);
}

/* A tile of C at row i and column j. */
INLINE void tile(const int rows, const Product *p, long i, long j) {
    Sums sum[ROWS];
    const int8_t *panel = (const int8_t *)p->b->packed + j * p->pairs * 2;
    const Pair *a = (const Pair *)p->a + i * p->pairs;
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) sum[r] = no_sums();
    for (long k = 0; k < p->pairs; k++, panel += 2 * COLUMNS) {
        _mm_prefetch((const char *)(panel + AHEAD), _MM_HINT_T0);
        Pairs b = load_pairs(panel);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) sum[r] = add_products(sum[r], a + r * p->pairs + k, b);
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
        Floats found = floats_of(sum[r]);
        put(p, left_of(found), i + r, j);
        if (j + WIDE < p->columns) put(p, right_of(found), i + r, j + WIDE);
    }
}

static void tiles(long rows, const Product *p, long i, long j) {
#define TILE(count) tile(count, p, i, j)
    FOR_EACH_COUNT(rows, TILE)
#undef TILE
}

static void multiply_part(const Product *p, Part part) {
    long chunk = at_least(ROWS, at_most(CHUNK, CACHED / (2 * p->pairs) / ROWS * ROWS));
    for (long i0 = part.rows.begin; i0 < part.rows.end; i0 += chunk) {
        long i1 = at_most(part.rows.end, i0 + chunk);
        for (long j = part.columns.begin; j < part.columns.end; j += COLUMNS)
            for (long i = i0; i < i1; i += ROWS) tiles(at_most(ROWS, i1 - i), p, i, j);
    }
}

/* C = activation(A·(levels · scale) + bias). */
void multiply_bytes(const Matrix *b, long rows, const float *a, long stride, float *c) {
    long pairs = steps(b->inputs, 2);
    int16_t *whole = scratch(LEVELS_OF_ROWS, rows * pairs * 2 * sizeof(int16_t));
    float *worth = scratch(SCALES_OF_ROWS, rows * sizeof(float));
    Product p = {b->outputs, pairs, whole, worth, b, c};
    float most = most_for(b->inputs);
#pragma omp parallel num_threads(threads_for((double)rows *b->outputs *b->inputs))
    {
        Share mine = share(rows, 1, omp_get_thread_num(), omp_get_num_threads());
        for (long i = mine.begin; i < mine.end; i++)
            worth[i] = round_row(b->inputs, a + i * stride, whole + i * pairs * 2, most);
#pragma omp barrier
        multiply_part(&p, part_of(rows, ROWS, b->outputs, COLUMNS));
    }
}
