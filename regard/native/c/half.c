/* Products for training with numbers of sixteen bits (bfloat16), twice as many at a time; sums are kept in float32.

   C = A·B + bias, or C += A·B. What comes and goes is float32: A and B are rounded on the way. Either may stand turned
   round: what a layer says is x·Wᵀ, the gradient of what it read is y·W, that of its matrix yᵀ·x. B is packed first, into
   panels of 32 columns, of pairs of neighbouring rows:

       panel j, pair k:   B[2k][32j] B[2k+1][32j]   …   B[2k][32j+31] B[2k+1][32j+31]      (128 bytes)

   Each element of C is added up in the same order, whatever number of threads there are. */
#if defined(REGARD_WIDE) && defined(__AVX512BF16__)

#include "common.h"
#include "sixteen.h"

#define DEPTH 128 /* pairs at a time: a panel of that depth has 16 KB */
#define CHUNK 384 /* rows of A at a time, which stay in the second cache with a panel */
#define APART 16  /* pairs between rows of A: were they 4 KB apart, few of them would fit into the first cache */

typedef uint32_t __attribute__((may_alias)) Two; /* two numbers of sixteen bits, the earlier one in the lower half */

/* A matrix of float32 as it stands in memory. One of the steps is 1. */
typedef struct {
    const float *numbers;
    long down, right; /* from one row, or column, to the next */
} Given;

/* Sixteen numbers and the sixteen behind them in the other direction, as sixteen pairs. */
INLINE __m512i pairs_of(__m512 first_ones, __m512 second_ones) {
    __m512i both = (__m512i)_mm512_cvtne2ps_pbh(second_ones, first_ones); /* the first sixteen below the second */
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                           5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, both);
}

/* `count` pairs of neighbours in one line of numbers. */
static void pair_along(const float *x, long numbers, Two *to) {
    for (long k = 0; k < numbers; k += 16) {
        __m256i half = (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(some(numbers - k), x + k));
        if (numbers - k >= 16)
            _mm256_storeu_si256((__m256i *)(to + k / 2), half);
        else
            memcpy(to + k / 2, &half, steps(numbers - k, 2) * sizeof(Two));
    }
}

/* Pairs of two lines, number by number; the second line may be missing. */
INLINE void pair_across(const float *x, const float *next, long numbers, Two *to) {
    for (long j = 0; j < numbers; j += 16) {
        __mmask16 there = some(numbers - j);
        __m512 other = next ? _mm512_maskz_loadu_ps(there, next + j) : _mm512_setzero_ps();
        _mm512_mask_storeu_epi32(to + j, there, pairs_of(_mm512_maskz_loadu_ps(there, x + j), other));
    }
}

PUBLIC long packed_half_size(long columns, long depth) { return steps(columns, PANEL) * PANEL * steps(depth, 2); }

/* One panel: columns from j on. */
static void pack_panel(const Given *b, long columns, long depth, long j, Two *to) {
    long pairs = steps(depth, 2), count = at_most(PANEL, columns - j);
    if (count < PANEL) memset(to, 0, pairs * PANEL * sizeof(Two));
    if (b->right == 1) {
        for (long k = 0; k < pairs; k++) {
            const float *x = b->numbers + 2 * k * b->down + j;
            pair_across(x, 2 * k + 1 < depth ? x + b->down : NULL, count, to + k * PANEL);
        }
        return;
    }
    Two *turned = scratch(TURNED, PANEL * pairs * sizeof(Two));
    for (long n = 0; n < count; n++) pair_along(b->numbers + (j + n) * b->right, depth, turned + n * pairs);
    __m512i places = _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                        _mm512_set1_epi32((int)pairs));
    for (long n = 0; n < count; n += 16) {
        __mmask16 there = some(count - n);
        for (long k = 0; k < pairs; k++) {
            __m512i found = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), there, places, turned + n * pairs + k, 4);
            _mm512_mask_storeu_epi32(to + k * PANEL + n, there, found);
        }
    }
}

PUBLIC void pack_half(const Given *b, long columns, long depth, Two *to) {
#pragma omp parallel for num_threads(threads_for(1.0 * columns * depth))
    for (long j = 0; j < columns; j += PANEL) pack_panel(b, columns, depth, j, to + j * steps(depth, 2));
}

typedef struct {
    long rows, columns, pairs;
    Given a;
    long depth;
    const Two *packed;
    const float *bias; /* or NULL */
    float *c;          /* rows × columns */
    int add;           /* to what stands there */
} Product;

/* Some rows of A in pairs: of a row, one beside the other where rows stand in A, else one below the other. */
typedef struct {
    const Two *pairs;
    long down, right;
} Rounded;

static Rounded round_rows(const Product *p, Share rows, long begin, long end) {
    long count = rows.end - rows.begin, last = at_most(p->depth, 2 * end);
    const float *x = p->a.numbers + rows.begin * p->a.down + 2 * begin * p->a.right;
    if (p->a.right == 1) {
        Rounded found = {NULL, end - begin + APART, 1};
        Two *to = scratch(ROWS_OF_A, count * found.down * sizeof(Two));
        for (long i = 0; i < count; i++) pair_along(x + i * p->a.down, last - 2 * begin, to + i * found.down);
        found.pairs = to;
        return found;
    }
    Rounded found = {NULL, 1, count + APART};
    Two *to = scratch(ROWS_OF_A, (end - begin) * found.right * sizeof(Two));
    for (long k = begin; k < end; k++, x += 2 * p->a.right)
        pair_across(x, 2 * k + 1 < last ? x + p->a.right : NULL, count, to + (k - begin) * found.right);
    found.pairs = to;
    return found;
}

/* A tile of C at row i and column j, whose rows of A begin at `a`. */
INLINE void tile(const int rows, const Product *p, const Rounded *a, const Two *from, long i, long j, long begin, long end) {
    __m512 sum[ROWS][2];
    const Two *panel = p->packed + j * p->pairs + begin * PANEL;
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
    for (long k = 0; k < end - begin; k++, from += a->right, panel += PANEL) {
        __m512bh left = (__m512bh)_mm512_loadu_si512(panel), right = (__m512bh)_mm512_loadu_si512(panel + 16);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            __m512bh x = (__m512bh)_mm512_set1_epi32((int)from[r * a->down]);
            sum[r][0] = _mm512_dpbf16_ps(sum[r][0], x, left);
            sum[r][1] = _mm512_dpbf16_ps(sum[r][1], x, right);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int n = 0; n < 2; n++) {
            long column = j + 16 * n;
            __mmask16 there = some(p->columns - column);
            float *c = p->c + (i + r) * p->columns + column;
            if (begin || p->add)
                sum[r][n] = _mm512_add_ps(sum[r][n], _mm512_maskz_loadu_ps(there, c));
            else if (p->bias)
                sum[r][n] = _mm512_add_ps(sum[r][n], _mm512_maskz_loadu_ps(there, p->bias + column));
            _mm512_mask_storeu_ps(c, there, sum[r][n]);
        }
}

static void multiply_rows(const Product *p, Share rows) {
    for (long begin = 0; begin < p->pairs; begin += DEPTH) {
        long end = at_most(p->pairs, begin + DEPTH);
        Rounded a = round_rows(p, rows, begin, end);
        for (long j = 0; j < p->columns; j += PANEL)
            for (long i = rows.begin, height; i < rows.end; i += height) {
                const Two *from = a.pairs + (i - rows.begin) * a.down;
                height = steps(rows.end - i, tiles_of(rows.end - i));
#define TILE(count) tile(count, p, &a, from, i, j, begin, end)
                FOR_EACH_COUNT(height, TILE)
            }
    }
}

/* C = A·B + bias, or C += A·B; B is packed. */
PUBLIC void multiply_half(const Given *a, long rows, long columns, long depth, const Two *packed, const float *bias,
                          float *c, int add) {
    Product p = {rows, columns, steps(depth, 2), *a, depth, packed, bias, c, add};
    int threads = threads_for((double)rows * columns * depth);
#pragma omp parallel num_threads(threads)
    {
        Share mine = share(rows, ROWS, omp_get_thread_num(), omp_get_num_threads());
        for (long i = mine.begin; i < mine.end; i += CHUNK) {
            Share some_rows = {i, at_most(mine.end, i + CHUNK)};
            multiply_rows(&p, some_rows);
        }
    }
}

#endif
