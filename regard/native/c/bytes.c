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

/* Sixteen numbers in levels, or as many as there are, in groups so far apart; with their sum. */
INLINE Sums round_sixteen(Floats x, float by, Group *to, long count, long apart) {
    union {
        Level levels[COLUMNS];
        Group groups[COLUMNS / TOGETHER];
    } stored;
    Sums level = nearest(scaled(x, by));
    store_levels(stored.levels, level);
#pragma GCC unroll 8
    for (int g = 0; g < COLUMNS / TOGETHER; g++)
        if (g * TOGETHER < count) to[g * apart] = stored.groups[g];
    return level;
}

/* The largest of the numbers, by size; 0, or no number if one of them is none or infinite, is put to `strange`. Two sixteens
   at a time: each waits for the one before. */
static float largest_size(long depth, const float *x, float *strange) {
    Floats most[2] = {no_floats(), no_floats()}, wrong[2] = {no_floats(), no_floats()};
    long k = 0;
    for (; k + 2 * COLUMNS <= depth; k += 2 * COLUMNS)
#pragma GCC unroll 2
        for (int n = 0; n < 2; n++) {
            Floats size = sizes(load_floats(x + k + n * COLUMNS));
            most[n] = larger(most[n], size), wrong[n] = add_times(wrong[n], size, no_floats());
        }
    for (; k < depth; k += COLUMNS) {
        Floats size = sizes(load_some(x + k, depth - k));
        most[0] = larger(most[0], size), wrong[0] = add_times(wrong[0], size, no_floats());
    }
    *strange = sum_of_all(plus(wrong[0], wrong[1]));
    return largest_of(larger(most[0], most[1]));
}

/* One vector in levels, and their sum. What a level is worth is returned: no number, if the vector has one that is none. */
static float round_row(long depth, const float *x, Group *to, long apart, int32_t *sum) {
    float strange, top = largest_size(depth, x, &strange), factor = top > 0 ? LARGEST / top : 0;
    Sums all = no_sums();
    long k = 0, step = COLUMNS / TOGETHER * apart;
    for (; k + COLUMNS <= depth; k += COLUMNS, to += step)
        all = add_sums(all, round_sixteen(load_floats(x + k), factor, to, COLUMNS, apart));
    if (k < depth) all = add_sums(all, round_sixteen(load_some(x + k, depth - k), factor, to, depth - k, apart));
    *sum = sum_of_sums(all);
    return top / LARGEST + strange;
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

static void multiply_part(const void *product, Part part) {
    const Product *p = product;
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
    Taken taken = {{0}};
#pragma omp parallel num_threads(threads_for((double)rows *b->outputs *b->inputs))
    {
        Share mine = share(rows, 1, omp_get_thread_num(), omp_get_num_threads());
        for (long t = 0; t < tiles_of(rows); t++) {
            long first = first_of_tile(rows, t), end = first_of_tile(rows, t + 1);
            for (long i = at_least(first, mine.begin); i < at_most(end, mine.end); i++)
                worth[i] = round_row(b->inputs, a + i * stride, levels + first * groups + i - first, end - first, sum + i);
        }
#pragma omp barrier
        multiply_parts(&taken, tiles_of(rows), b->outputs, PANEL, &p, multiply_part);
    }
}
