/* bf16 GEMM for training, accumulated in float32: twice as many values per instruction as float32.

   C = A·B + bias, or C += A·B. Inputs and output are float32; A and B are rounded to bf16 when they are packed. Either
   may be transposed: the forward pass of a linear layer is x·Wᵀ, the gradient of its input y·W, the gradient of its
   weight yᵀ·x. B is packed first, into panels of 32 columns, in pairs of neighbouring rows:

       panel j, pair k:   B[2k][32j] B[2k+1][32j]   …   B[2k][32j+31] B[2k+1][32j+31]      (128 bytes)

   Each element of C is summed in the same order, whatever the number of threads. */
#if defined(REGARD_AVX512) && defined(__AVX512BF16__)

#include "common.h"
#include "simd.h"

#define KC_PAIRS 128     /* pairs in a cache block: a panel of this depth has 16 KB */
#define MC 384           /* rows of A in a cache block, which stay in the L2 cache together with a panel */
#define A_ROW_PADDING 16 /* pairs: if rows of A were 4 KB apart, few of them would fit into the L1 cache */

typedef uint32_t __attribute__((may_alias)) bf16x2; /* the value of the lower k in the lower half */

/* A float32 matrix in memory. One of the strides is 1. */
typedef struct {
    const float *data;
    long row_stride, column_stride;
} StridedMatrix;

/* 16 pairs (first[n], second[n]). */
INLINE __m512i interleave_bf16(__m512 first, __m512 second) {
    __m512i both = (__m512i)_mm512_cvtne2ps_pbh(second, first); /* `first` in the lower half */
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, both);
}

/* Pairs of values that are contiguous along k. */
static void pack_pairs_contiguous(const float *x, long count, bf16x2 *out) {
    for (long k = 0; k < count; k += 16) {
        __m256i rounded = (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(lane_mask16(count - k), x + k));
        if (count - k >= 16)
            _mm256_storeu_si256((__m256i *)(out + k / 2), rounded);
        else
            memcpy(out + k / 2, &rounded, ceil_div(count - k, 2) * sizeof(bf16x2));
    }
}

/* Pairs (x[j], next[j]), where `next` is the row of the following k, or NULL at the end of an odd depth. */
INLINE void pack_pairs_strided(const float *x, const float *next, long count, bf16x2 *out) {
    for (long j = 0; j < count; j += 16) {
        __mmask16 mask = lane_mask16(count - j);
        __m512 second = next ? _mm512_maskz_loadu_ps(mask, next + j) : _mm512_setzero_ps();
        _mm512_mask_storeu_epi32(out + j, mask, interleave_bf16(_mm512_maskz_loadu_ps(mask, x + j), second));
    }
}

PUBLIC long packed_bf16_size(long columns, long depth) { return ceil_div(columns, NR) * NR * ceil_div(depth, 2); }

/* Pack the panel that begins at column j. */
static void pack_panel(const StridedMatrix *b, long columns, long depth, long j, bf16x2 *out) {
    long pairs = ceil_div(depth, 2), count = min_long(NR, columns - j);
    if (count < NR) memset(out, 0, pairs * NR * sizeof(bf16x2));
    if (b->column_stride == 1) {
        for (long k = 0; k < pairs; k++) {
            const float *x = b->data + 2 * k * b->row_stride + j;
            pack_pairs_strided(x, 2 * k + 1 < depth ? x + b->row_stride : NULL, count, out + k * NR);
        }
        return;
    }
    bf16x2 *column_pairs = scratch(SCRATCH_TRANSPOSED, NR * pairs * sizeof(bf16x2));
    for (long n = 0; n < count; n++)
        pack_pairs_contiguous(b->data + (j + n) * b->column_stride, depth, column_pairs + n * pairs);
    __m512i offsets = _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                         _mm512_set1_epi32((int)pairs));
    for (long n = 0; n < count; n += 16) {
        __mmask16 mask = lane_mask16(count - n);
        for (long k = 0; k < pairs; k++) {
            const bf16x2 *src = column_pairs + n * pairs + k;
            __m512i gathered = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), mask, offsets, src, 4);
            _mm512_mask_storeu_epi32(out + k * NR + n, mask, gathered);
        }
    }
}

PUBLIC void pack_bf16(const StridedMatrix *b, long columns, long depth, bf16x2 *out) {
#pragma omp parallel for num_threads(threads_for(1.0 * columns * depth))
    for (long j = 0; j < columns; j += NR) pack_panel(b, columns, depth, j, out + j * ceil_div(depth, 2));
}

typedef struct {
    long rows, columns, pairs;
    StridedMatrix a;
    long depth;
    const bf16x2 *packed;
    const float *bias; /* or NULL */
    float *c;          /* rows × columns */
    int accumulate;    /* C += A·B */
} Gemm;

/* A block of A in pairs. The pairs of a row are contiguous if A is row-major, otherwise the rows of a pair are. */
typedef struct {
    const bf16x2 *pairs;
    long row_stride, pair_stride;
} PackedRows;

static PackedRows pack_a_rows(const Gemm *gemm, Range rows, long begin, long end) {
    long count = rows.end - rows.begin, k_end = min_long(gemm->depth, 2 * end);
    const float *x = gemm->a.data + rows.begin * gemm->a.row_stride + 2 * begin * gemm->a.column_stride;
    if (gemm->a.column_stride == 1) {
        PackedRows packed = {NULL, end - begin + A_ROW_PADDING, 1};
        bf16x2 *out = scratch(SCRATCH_PACKED_A, count * packed.row_stride * sizeof(bf16x2));
        for (long i = 0; i < count; i++)
            pack_pairs_contiguous(x + i * gemm->a.row_stride, k_end - 2 * begin, out + i * packed.row_stride);
        packed.pairs = out;
        return packed;
    }
    PackedRows packed = {NULL, 1, count + A_ROW_PADDING};
    bf16x2 *out = scratch(SCRATCH_PACKED_A, (end - begin) * packed.pair_stride * sizeof(bf16x2));
    for (long k = begin; k < end; k++, x += 2 * gemm->a.column_stride)
        pack_pairs_strided(x, 2 * k + 1 < k_end ? x + gemm->a.column_stride : NULL, count,
                           out + (k - begin) * packed.pair_stride);
    packed.pairs = out;
    return packed;
}

/* The register tile of C at row i and column j; `pairs` points to its first row of A. */
INLINE void micro_kernel(const int rows, const Gemm *gemm, const PackedRows *a, const bf16x2 *pairs, long i, long j,
                         long begin, long end) {
    __m512 sum[MR][2];
    const bf16x2 *panel = gemm->packed + j * gemm->pairs + begin * NR;
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
    for (long k = 0; k < end - begin; k++, pairs += a->pair_stride, panel += NR) {
        __m512bh low = (__m512bh)_mm512_loadu_si512(panel), high = (__m512bh)_mm512_loadu_si512(panel + 16);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            __m512bh x = (__m512bh)_mm512_set1_epi32((int)pairs[r * a->row_stride]);
            sum[r][0] = _mm512_dpbf16_ps(sum[r][0], x, low);
            sum[r][1] = _mm512_dpbf16_ps(sum[r][1], x, high);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int n = 0; n < 2; n++) {
            long column = j + 16 * n;
            __mmask16 mask = lane_mask16(gemm->columns - column);
            float *c = gemm->c + (i + r) * gemm->columns + column;
            if (begin || gemm->accumulate)
                sum[r][n] = _mm512_add_ps(sum[r][n], _mm512_maskz_loadu_ps(mask, c));
            else if (gemm->bias)
                sum[r][n] = _mm512_add_ps(sum[r][n], _mm512_maskz_loadu_ps(mask, gemm->bias + column));
            _mm512_mask_storeu_ps(c, mask, sum[r][n]);
        }
}

static void gemm_rows(const Gemm *gemm, Range rows) {
    for (long begin = 0; begin < gemm->pairs; begin += KC_PAIRS) {
        long end = min_long(gemm->pairs, begin + KC_PAIRS);
        PackedRows a = pack_a_rows(gemm, rows, begin, end);
        for (long j = 0; j < gemm->columns; j += NR)
            for (long i = rows.begin, height; i < rows.end; i += height) {
                const bf16x2 *pairs = a.pairs + (i - rows.begin) * a.row_stride;
                height = ceil_div(rows.end - i, num_row_tiles(rows.end - i));
#define TILE(count) micro_kernel(count, gemm, &a, pairs, i, j, begin, end)
                DISPATCH_ROWS(height, TILE)
            }
    }
}

/* C = A·B + bias, or C += A·B, B packed. */
PUBLIC void gemm_bf16(const StridedMatrix *a, long rows, long columns, long depth, const bf16x2 *packed,
                      const float *bias, float *c, int accumulate) {
    Gemm gemm = {rows, columns, ceil_div(depth, 2), *a, depth, packed, bias, c, accumulate};
    int threads = threads_for((double)rows * columns * depth);
#pragma omp parallel num_threads(threads)
    {
        Range local_range = split_range(rows, MR, omp_get_thread_num(), omp_get_num_threads());
        for (long i = local_range.begin; i < local_range.end; i += MC) {
            Range block = {i, min_long(local_range.end, i + MC)};
            gemm_rows(&gemm, block);
        }
    }
}

#endif
