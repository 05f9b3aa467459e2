/* Products of vectors with the matrix of a layer, in float32.

   C = activation(A·B + bias). B is packed first, into panels of p columns (16, or 32 where registers are wide), so that
   the innermost loop reads it in one go:

       panel j, row k:   B[k][pj] … B[k][pj + p - 1]

   The innermost loop makes a tile of some rows and p columns of C in registers (`sixteen.h`). A panel stays in the first
   cache while it meets all rows of A. Each element of C is added up in the same order, whatever rows stand beside it and
   however many threads there are: so a text gives the same numbers in any batch. */
#include "parts.h"
#include "sixteen.h"

#define AHEAD 1024   /* floats of a panel that are asked for before they are needed */
#define DEPTH 256    /* so much of the inner dimension at a time: a panel of that depth has 16 or 32 KB */
#define CHUNK 96     /* at most so many rows of A meet a panel before the next one is fetched, */
#define CACHED 65536 /* and so many floats of A, which leave room for panels in the second cache */
#define FEW 4        /* rows that find room in the first cache wherever they stand */

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
    long columns, depth;
    const float *a;
    long stride; /* from one row of A to the next */
    const Matrix *b;
    float *c;
} Product;

/* Up to eight elements of a sum, the first of them at row i and column j of C, for the depth up to `done`. */
INLINE void put(const Product *p, vec sum, long i, long j, long before, long done) {
    float *c = p->c + i * p->columns + j;
    long count = p->columns - j;
    if (before) sum = _mm256_add_ps(sum, load(c, count));
    if (done == p->depth) {
        if (p->b->bias) sum = _mm256_add_ps(sum, load(p->b->bias + j, count));
        sum = activate(p->b->activation, sum);
    }
    store(c, sum, count);
}

/* A tile of C at row i and column j, the depth from `before` to `done`. */
INLINE void tile(const int rows, const int sixteens, const Product *p, long i, long j, long before, long done) {
    Floats sum[ROWS][SIXTEENS], b[SIXTEENS];
    const float *panel = (const float *)p->b->packed + j * p->depth, *a = p->a + i * p->stride;
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
        for (int n = 0; n < sixteens; n++) sum[r][n] = no_floats();
    for (long k = before; k < done; k++) {
#pragma GCC unroll 2
        for (int n = 0; n < sixteens; n++) {
            const float *place = panel + k * PANEL + n * COLUMNS;
            _mm_prefetch((const char *)(place + AHEAD), _MM_HINT_T0);
            b[n] = load_floats(place);
        }
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            __auto_type x = all_floats(a[r * p->stride + k]);
#pragma GCC unroll 2
            for (int n = 0; n < sixteens; n++) sum[r][n] = add_product(sum[r][n], x, b[n]);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int n = 0; n < sixteens; n++) {
            long column = j + n * COLUMNS;
            put(p, left_of(sum[r][n]), i + r, column, before, done);
            if (column + WIDE < p->columns) put(p, right_of(sum[r][n]), i + r, column + WIDE, before, done);
        }
}

static void tiles(long rows, const Product *p, long i, long j, long before, long done) {
#define TILE(count) tile(count, SIXTEENS, p, i, j, before, done)
#define NARROW_TILE(count) tile(count, 1, p, i, j, before, done)
    if (SIXTEENS == 1 || p->columns - j > COLUMNS)
        FOR_EACH_COUNT(rows, TILE)
    else
        FOR_EACH_COUNT(rows, NARROW_TILE)
}

/* Rows of A side by side, but not quite: were they a multiple of 4 KB apart, as rows often are, few of them would fit into
   the first cache, which keeps a line by the last digits of its address. */
static Product near(const Product *p, long begin, long end) {
    Product found = *p;
    found.stride = p->depth + 64 / sizeof(float);
    float *copy = scratch(ROWS_OF_A, (end - begin) * found.stride * sizeof(float));
    for (long i = begin; i < end; i++)
        memcpy(copy + (i - begin) * found.stride, p->a + i * p->stride, p->depth * sizeof(float));
    found.a = copy - begin * found.stride;
    return found;
}

static void multiply_part(const Product *p, Part part) {
    long chunk = at_least(ROWS, at_most(CHUNK, CACHED / p->depth / ROWS * ROWS));
    for (long i0 = part.rows.begin; i0 < part.rows.end; i0 += chunk) {
        long i1 = at_most(part.rows.end, i0 + chunk);
        Product some = i1 - i0 > FEW ? near(p, i0, i1) : *p;
        for (long j = part.columns.begin; j < part.columns.end; j += PANEL)
            for (long k = 0; k < p->depth; k += DEPTH)
                for (long i = i0, rows; i < i1; i += rows)
                    tiles(rows = height_of_tile(i1 - i), &some, i, j, k, at_most(p->depth, k + DEPTH));
    }
}

static void multiply(const Matrix *b, long rows, const float *a, long stride, float *c) {
    Product p = {b->outputs, b->inputs, a, stride, b, c};
#pragma omp parallel num_threads(threads_for((double)rows *b->outputs *b->inputs))
    multiply_part(&p, part_of(rows, ROWS, b->outputs, PANEL));
}

void multiply_bytes(const Matrix *b, long rows, const float *a, long stride, float *c); /* bytes.c */

/* C = activation(A·B + bias), B in floats or in bytes. */
PUBLIC void apply(const Matrix *b, long rows, const float *a, long stride, float *c) {
    (b->scale ? multiply_bytes : multiply)(b, rows, a, stride, c);
}
