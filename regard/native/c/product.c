/* Products of vectors with the matrix of a layer, in float32.

   C = activation(A·B + bias). B is packed first, into panels of p columns (16, or 32 where registers are wide), so that
   the innermost loop reads it in one go:

       panel j, row k:   B[k][pj] … B[k][pj + p - 1]

   The innermost loop makes a tile of some rows and p columns of C in registers (`sixteen.h`). A panel stays in the first
   cache while it meets all rows of A. Each element of C is added up in the same order, whatever rows stand beside it and
   however many threads there are: so a text gives the same numbers in any batch. */
#include "parts.h"
#include "sixteen.h"

#define DEPTH 256    /* so much of the inner dimension at a time: a panel of that depth has 16 or 32 KB */
#define CHUNK 8      /* at most so many tiles meet a panel before the next one is fetched, */
#define CACHED 65536 /* and so many floats of A, which leave room for panels in the second cache */

/* How many floats a packed matrix takes. */
PUBLIC long packed_size(long columns, long depth) { return steps(columns, PANEL) * PANEL * depth; }
PUBLIC long panel_size(void) { return PANEL; }

/* Pack the matrix of a layer, which has one row for each output: the element of row k and column j of B is
   weight[j * stride + k]. */
PUBLIC void pack(long columns, long depth, const float *weight, long stride, float *to) {
    for (long j0 = 0; j0 < columns; j0 += PANEL)
        for (long k = 0; k < depth; k++)
            for (long j = j0; j < j0 + PANEL; j++) *to++ = j < columns ? weight[j * stride + k] : 0.0f;
}

typedef struct {
    long rows, columns, depth;
    const float *a; /* tile by tile (`sixteen.h`) */
    const Matrix *b;
    float *c;
} Product;

/* Up to sixteen elements of a sum, the first of them at row i and column j of C, for the depth up to `done`. */
INLINE void put(const Product *p, Floats sum, long i, long j, long before, long done) {
    float *c = p->c + i * p->columns + j;
    long count = p->columns - j;
    if (before) sum = plus(sum, load_some(c, count));
    if (done == p->depth && p->b->bias) sum = plus(sum, load_some(p->b->bias + j, count));
    store_some(c, sum, count);
}

/* A tile of C at row i and column j, the depth from `before` to `done`. On the way it asks for what comes next of B, or its
   half of it (`ask`, see `sixteen.h`). */
INLINE void tile(const int rows, const int sixteens, const Product *p, long i, long j, long before, long done,
                 enum Ask ask) {
    Floats sum[ROWS][SIXTEENS], b[SIXTEENS];
    const float *panel = (const float *)p->b->packed + j * p->depth, *next = panel + done * PANEL;
    const float *a = p->a + i * p->depth;
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
        for (int n = 0; n < sixteens; n++) sum[r][n] = no_floats();
    for (long k = before; k < done; k++) {
        ask_for_next((const char *)next, PANEL * sizeof(float), k - before, done - before, ask);
#pragma GCC unroll 2
        for (int n = 0; n < sixteens; n++) b[n] = load_floats(panel + k * PANEL + n * COLUMNS);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            __auto_type x = all_floats(a[k * rows + r]);
#pragma GCC unroll 2
            for (int n = 0; n < sixteens; n++) sum[r][n] = add_product(sum[r][n], x, b[n]);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int n = 0; n < sixteens; n++) put(p, sum[r][n], i + r, j + n * COLUMNS, before, done);
}

static void tiles(long rows, const Product *p, long i, long j, long before, long done, enum Ask ask) {
#define TILE(count) tile(count, SIXTEENS, p, i, j, before, done, ask)
#define NARROW_TILE(count) tile(count, 1, p, i, j, before, done, ask)
    if (SIXTEENS == 1 || p->columns - j > COLUMNS)
        FOR_EACH_COUNT(rows, TILE)
    else
        FOR_EACH_COUNT(rows, NARROW_TILE)
    if (p->b->activation && done == p->depth)
        activate_tile(p->b->activation, rows, at_most(PANEL, p->columns - j), p->c + i * p->columns + j, p->columns);
}

static void multiply_part(const void *product, Part part) {
    const Product *p = product;
    long chunk = at_least(1, at_most(CHUNK, CACHED / p->depth / ROWS));
    for (long t0 = part.rows.begin; t0 < part.rows.end; t0 += chunk) {
        long t1 = at_most(part.rows.end, t0 + chunk);
        for (long j = part.columns.begin; j < part.columns.end; j += PANEL)
            for (long k = 0; k < p->depth; k += DEPTH)
                for (long t = t0; t < t1; t++) {
                    long i = first_of_tile(p->rows, t), rows = first_of_tile(p->rows, t + 1) - i;
                    tiles(rows, p, i, j, k, at_most(p->depth, k + DEPTH), what_to_ask(t0, t, t1));
                }
    }
}

/* The rows of a tile, side by side. */
static void turn(const Product *p, long tile, const float *a, long stride, float *to) {
    long i = first_of_tile(p->rows, tile), rows = first_of_tile(p->rows, tile + 1) - i;
    to += i * p->depth, a += i * stride;
    for (long r = 0; r < rows; r++)
        for (long k = 0; k < p->depth; k++) to[k * rows + r] = a[r * stride + k];
}

static void multiply(const Matrix *b, long rows, const float *a, long stride, float *c) {
    float *turned = scratch(ROWS_OF_A, rows * b->inputs * sizeof(float));
    Product p = {rows, b->outputs, b->inputs, turned, b, c};
    Taken taken = {{0}};
#pragma omp parallel num_threads(threads_for((double)rows *b->outputs *b->inputs))
    {
        Share mine = share(tiles_of(rows), 1, omp_get_thread_num(), omp_get_num_threads());
        for (long tile = mine.begin; tile < mine.end; tile++) turn(&p, tile, a, stride, turned);
#pragma omp barrier
        multiply_parts(&taken, tiles_of(rows), b->outputs, PANEL, &p, multiply_part);
    }
}

void multiply_bytes(const Matrix *b, long rows, const float *a, long stride, float *c); /* bytes.c */

/* C = activation(A·B + bias), B in floats or in bytes. */
PUBLIC void apply(const Matrix *b, long rows, const float *a, long stride, float *c) {
    (b->scale ? multiply_bytes : multiply)(b, rows, a, stride, c);
}
