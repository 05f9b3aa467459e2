/* Products with matrices in bytes.

   Each output of the matrix has a scale of its own. Each vector that comes is rounded to bytes too, by its largest
   element, so what becomes of it does not depend on the vectors beside it. Products of a few neighbouring levels are
   added by one instruction (VNNI's vpdpbusd, or pmaddwd after the bytes were widened) into 32 bits, where nothing
   overflows: the sum is exact, and the same on every machine.

       panel j, group k:   B[gk … gk+g-1][pj]   …   B[gk … gk+g-1][pj+p-1]      (p columns, g levels together) */
#include "parts.h"
#include "sixteen.h"

#define CHUNK 8       /* tiles, as in product.c */
#define CACHED 262144 /* bytes of A that leave room for panels in the second cache */
#define LARGEST 127.0f /* level */

/* How many levels of a column stand together. */
PUBLIC long together_size(void) { return TOGETHER; }

/* What is added to each of them. */
PUBLIC long added_size(void) { return ADDED; }

PUBLIC long packed_bytes_size(long columns, long depth) {
    return steps(columns, PANEL) * PANEL * steps(depth, TOGETHER) * TOGETHER;
}

/* The matrix as files have it: one row for each output, `depth` bytes each. */
PUBLIC void pack_bytes(long columns, long depth, const int8_t *levels, int8_t *to) {
    for (long j0 = 0; j0 < columns; j0 += PANEL)
        for (long k = 0; k < depth; k += TOGETHER)
            for (long j = j0; j < j0 + PANEL; j++)
                for (long g = k; g < k + TOGETHER; g++)
                    *to++ = (int8_t)((j < columns && g < depth ? levels[j * depth + g] : 0) + ADDED);
}

/* Eight levels as they are stored, or as many as there is room for: groups so far apart. */
INLINE void put_levels(__m256i levels, long count, Group *to, long apart) {
    __m128i sixteen = _mm_packs_epi32(_mm256_castsi256_si128(levels), _mm256_extracti128_si256(levels, 1));
    __m128i stored = sizeof(Level) == 2 ? sixteen : _mm_packs_epi16(sixteen, sixteen);
    Group groups[4];
    memcpy(groups, &stored, sizeof groups);
#pragma GCC unroll 4
    for (int g = 0; g < WIDE / TOGETHER; g++)
        if (g * TOGETHER < count) to[g * apart] = groups[g];
}

/* One vector in levels, and their sum. What a level is worth is returned: no number, if the vector has one that is none. */
static float round_row(long depth, const float *x, Group *to, long apart, int32_t *sum) {
    const vec sign = _mm256_set1_ps(-0.0f), none = _mm256_setzero_ps();
    vec largest = none, strange = none; /* 0 times what is no number, or is infinite, is no number */
    for (long k = 0; k < depth; k += WIDE) {
        vec size = _mm256_andnot_ps(sign, load(x + k, depth - k));
        largest = _mm256_max_ps(largest, size);
        strange = _mm256_fmadd_ps(size, none, strange);
    }
    float top = most_of(largest), factor = top > 0 ? LARGEST / top : 0;
    vec by = _mm256_set1_ps(factor);
    __m256i all = _mm256_setzero_si256();
    long room = steps(depth, TOGETHER) * TOGETHER;
    for (long k = 0; k < room; k += WIDE) {
        __m256i level = _mm256_cvtps_epi32(_mm256_mul_ps(load(x + k, depth - k), by));
        all = _mm256_add_epi32(all, level);
        put_levels(level, room - k, to + k / TOGETHER * apart, apart);
    }
    *sum = whole_sum_of(all);
    return top / LARGEST + sum_of(strange);
}

typedef struct {
    long rows, columns, groups;
    const Group *a;     /* tile by tile (`sixteen.h`) */
    const int32_t *sum; /* of the levels of each row */
    const float *worth; /* of one level, for each row */
    const Matrix *b;
    float *c;
} Product;

/* Up to sixteen sums, the first of them of row i and column j of C. */
INLINE void put(const Product *p, Sums sum, long i, long j) {
    long count = p->columns - j;
    Floats found = times(scaled(floats_of(sum, p->sum[i]), p->worth[i]), load_some(p->b->scale + j, count));
    if (p->b->bias) found = plus(found, load_some(p->b->bias + j, count));
    store_some(p->c + i * p->columns + j, found, count);
}

/* A tile of C at row i and column j. On the way it asks for the next panel, or its half of it (`ask`, see `sixteen.h`). */
INLINE void tile(const int rows, const int sixteens, const Product *p, long i, long j, enum Ask ask) {
    Sums sum[ROWS][SIXTEENS];
    Levels b[SIXTEENS];
    const int8_t *panel = (const int8_t *)p->b->packed + j * p->groups * TOGETHER;
    const Group *a = p->a + i * p->groups;
    const int8_t *next = panel + p->groups * TOGETHER * PANEL;
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
        for (int n = 0; n < sixteens; n++) sum[r][n] = no_sums();
    for (long k = 0; k < p->groups; k++, panel += TOGETHER * PANEL) {
        ask_for_next((const char *)next, TOGETHER * PANEL, k, p->groups, ask);
#pragma GCC unroll 2
        for (int n = 0; n < sixteens; n++) b[n] = load_levels(panel + n * COLUMNS * TOGETHER);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            __auto_type x = all_levels(a[k * rows + r]);
#pragma GCC unroll 2
            for (int n = 0; n < sixteens; n++) sum[r][n] = add_products(sum[r][n], x, b[n]);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int n = 0; n < sixteens; n++) put(p, sum[r][n], i + r, j + n * COLUMNS);
}

static void tiles(long rows, const Product *p, long i, long j, enum Ask ask) {
#define TILE(count) tile(count, SIXTEENS, p, i, j, ask)
#define NARROW_TILE(count) tile(count, 1, p, i, j, ask)
    if (SIXTEENS == 1 || p->columns - j > COLUMNS)
        FOR_EACH_COUNT(rows, TILE)
    else
        FOR_EACH_COUNT(rows, NARROW_TILE)
    if (p->b->activation)
        activate_tile(p->b->activation, rows, at_most(PANEL, p->columns - j), p->c + i * p->columns + j, p->columns);
}

static void multiply_part(const Product *p, Part part) {
    long chunk = at_least(1, at_most(CHUNK, CACHED / (p->groups * (long)sizeof(Group)) / ROWS));
    for (long t0 = part.rows.begin; t0 < part.rows.end; t0 += chunk) {
        long t1 = at_most(part.rows.end, t0 + chunk);
        for (long j = part.columns.begin; j < part.columns.end; j += PANEL)
            for (long t = t0; t < t1; t++) {
                long i = first_of_tile(p->rows, t), rows = first_of_tile(p->rows, t + 1) - i;
                tiles(rows, p, i, j, what_to_ask(t0, t, t1));
            }
    }
}

/* C = activation(A·(levels · scale) + bias). */
void multiply_bytes(const Matrix *b, long rows, const float *a, long stride, float *c) {
    long groups = steps(b->inputs, TOGETHER);
    Group *levels = scratch(LEVELS_OF_ROWS, rows * groups * sizeof(Group));
    int32_t *sum = scratch(SUMS_OF_ROWS, rows * sizeof(int32_t));
    float *worth = scratch(SCALES_OF_ROWS, rows * sizeof(float));
    Product p = {rows, b->outputs, groups, levels, sum, worth, b, c};
#pragma omp parallel num_threads(threads_for((double)rows *b->outputs *b->inputs))
    {
        Share mine = share(rows, 1, omp_get_thread_num(), omp_get_num_threads());
        for (long t = 0; t < tiles_of(rows); t++) {
            long first = first_of_tile(rows, t), end = first_of_tile(rows, t + 1);
            for (long i = at_least(first, mine.begin); i < at_most(end, mine.end); i++)
                worth[i] = round_row(b->inputs, a + i * stride, levels + first * groups + i - first, end - first, sum + i);
        }
#pragma omp barrier
        multiply_part(&p, part_of(tiles_of(rows), b->outputs, PANEL));
    }
}
