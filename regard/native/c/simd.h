/* SIMD types and micro-kernel helpers: 16 floats in one AVX-512 or two AVX2 registers.

   The GEMM files use the names of BLIS. A micro-kernel computes a register tile of MR rows × NR columns of C; KC and MC
   (MC_TILES: in tiles) are the sizes of cache blocks. For int8, QGROUP_SIZE consecutive k are interleaved into a QGroup
   of 32 bits (ROW_INTERLEAVE in FBGEMM). LANES8 and LANES16 are the lanes of f32x8, and of f32x16 and i32x16. hsum_ and
   hmax_ are horizontal reductions. */
#ifndef REGARD_SIMD_H
#define REGARD_SIMD_H

#include "activation.h"

#define LANES16 16
#define NR (NR_VECTORS * LANES16) /* also the columns of a packed panel */

typedef int32_t __attribute__((may_alias)) QGroup; /* the quantized values that one instruction multiplies per lane */

#ifdef REGARD_AVX512

static const char REGISTER_WIDTH[] __attribute__((used)) = "regard: 512 bits"; /* identifies AVX-512 builds */

#define MR 12        /* MR × NR_VECTORS accumulators: as many as there are registers for */
#define NR_VECTORS 2 /* f32x16 in a row of the register tile */
#define QGROUP_SIZE 4
typedef int8_t QInt;

typedef __m512 f32x16;
typedef __m512i QIntVec; /* 16 QGroups */
typedef __m512i i32x16;

INLINE f32x16 zero_f32x16(void) { return _mm512_setzero_ps(); }
INLINE f32x16 load_f32x16(const float *x) { return _mm512_loadu_ps(x); }
INLINE __mmask16 lane_mask16(long count) {
    return count >= 16 ? 0xffff : count <= 0 ? 0 : (__mmask16)((1u << count) - 1);
}
INLINE f32x16 load_partial_f32x16(const float *x, long count) { return _mm512_maskz_loadu_ps(lane_mask16(count), x); }
INLINE void store_partial_f32x16(float *out, f32x16 x, long count) {
    _mm512_mask_storeu_ps(out, lane_mask16(count), x);
}
INLINE f32x16 broadcast_operand(float x) { return _mm512_set1_ps(x); }
INLINE f32x16 broadcast_f32x16(float x) { return _mm512_set1_ps(x); }
INLINE f32x16 fma_operand(f32x16 sum, f32x16 x, f32x16 b) { return _mm512_fmadd_ps(x, b, sum); }
INLINE f32x16 fma_f32x16(f32x16 sum, f32x16 a, f32x16 b) { return _mm512_fmadd_ps(a, b, sum); }
INLINE f32x16 add_f32x16(f32x16 a, f32x16 b) { return _mm512_add_ps(a, b); }
INLINE f32x16 mul_f32x16(f32x16 a, f32x16 b) { return _mm512_mul_ps(a, b); }
INLINE f32x16 scale_f32x16(f32x16 x, float scale) { return _mm512_mul_ps(x, _mm512_set1_ps(scale)); }
INLINE f32x16 max_f32x16(f32x16 a, f32x16 b) { return _mm512_max_ps(a, b); } /* b where a is NaN */
INLINE f32x16 abs_f32x16(f32x16 x) { return _mm512_abs_ps(x); }
INLINE float hmax_f32x16(f32x16 x) { return _mm512_reduce_max_ps(x); }
INLINE float hsum_f32x16(f32x16 x) { return _mm512_reduce_add_ps(x); }
INLINE f32x16 bf16_to_f32x16(const uint16_t *x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)x)), 16));
}
INLINE f32x8 add_halves(f32x16 x) {
    __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1));
    return _mm256_add_ps(_mm512_castps512_ps256(x), high);
}
/* e^x for x <= 0, with an error of 1e-7 of the sum it is added to: 2^f by a polynomial that is fitted for the least
   error at |f| <= 1/2. Results are never below 2^-126. NaN propagates. */
INLINE f32x16 exp_nonpositive(f32x16 x) {
    f32x16 t = _mm512_max_ps(_mm512_set1_ps(-126.0f), _mm512_mul_ps(x, _mm512_set1_ps(LOG2_E)));
    f32x16 n = _mm512_roundscale_ps(t, ROUND_NEAREST), f = _mm512_sub_ps(t, n), y = _mm512_set1_ps(1.327647199e-3f);
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(9.675541334e-3f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(5.550713273e-2f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(2.402211972e-1f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(6.931469671e-1f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(1.000000072f));
    return _mm512_scalef_ps(y, n);
}

/* VNNI multiplies u8 by s8. Weights are packed with an offset of 128, which makes them unsigned; 128 times the sum of
   the quantized activations of the row is subtracted at the end. */
#define INT8_OFFSET 128
INLINE i32x16 zero_i32x16(void) { return _mm512_setzero_si512(); }
INLINE QIntVec load_qint(const int8_t *x) { return _mm512_loadu_si512(x); }
INLINE QIntVec broadcast_qgroup(QGroup x) { return _mm512_set1_epi32(x); }
INLINE i32x16 dot_accumulate(i32x16 sum, QIntVec x, QIntVec b) { return _mm512_dpbusd_epi32(sum, b, x); }
INLINE i32x16 round_to_i32x16(f32x16 x) { return _mm512_cvtps_epi32(x); }
INLINE i32x16 add_i32x16(i32x16 a, i32x16 b) { return _mm512_add_epi32(a, b); }
INLINE int32_t hsum_i32x16(i32x16 x) { return _mm512_reduce_add_epi32(x); }
INLINE void store_qint(QInt out[LANES16], i32x16 x) { _mm_storeu_si128((__m128i *)out, _mm512_cvtsepi32_epi8(x)); }
INLINE f32x16 i32_to_f32x16(i32x16 x, int32_t row_sum) {
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(x, _mm512_set1_epi32(INT8_OFFSET * row_sum)));
}

#else

#define MR 6
#define NR_VECTORS 1
#define QGROUP_SIZE 2
#define INT8_OFFSET 0
typedef int16_t QInt;

typedef struct {
    f32x8 low, high;
} f32x16;
typedef struct {
    __m256i low, high;
} QIntVec;
typedef QIntVec i32x16;

INLINE f32x16 zero_f32x16(void) { return (f32x16){_mm256_setzero_ps(), _mm256_setzero_ps()}; }
INLINE f32x16 load_f32x16(const float *x) { return (f32x16){_mm256_loadu_ps(x), _mm256_loadu_ps(x + LANES8)}; }
INLINE f32x16 load_partial_f32x16(const float *x, long count) {
    return (f32x16){load_partial_f32x8(x, count),
                    count > LANES8 ? load_partial_f32x8(x + LANES8, count - LANES8) : _mm256_setzero_ps()};
}
INLINE void store_partial_f32x16(float *out, f32x16 x, long count) {
    store_partial_f32x8(out, x.low, count);
    if (count > LANES8) store_partial_f32x8(out + LANES8, x.high, count - LANES8);
}
INLINE f32x8 broadcast_operand(float x) { return _mm256_set1_ps(x); } /* one register serves both halves */
INLINE f32x16 broadcast_f32x16(float x) { return (f32x16){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
INLINE f32x16 fma_operand(f32x16 sum, f32x8 x, f32x16 b) {
    return (f32x16){_mm256_fmadd_ps(x, b.low, sum.low), _mm256_fmadd_ps(x, b.high, sum.high)};
}
INLINE f32x16 fma_f32x16(f32x16 sum, f32x16 a, f32x16 b) {
    return (f32x16){_mm256_fmadd_ps(a.low, b.low, sum.low), _mm256_fmadd_ps(a.high, b.high, sum.high)};
}
INLINE f32x16 add_f32x16(f32x16 a, f32x16 b) {
    return (f32x16){_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
INLINE f32x16 mul_f32x16(f32x16 a, f32x16 b) {
    return (f32x16){_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
INLINE f32x16 scale_f32x16(f32x16 x, float scale) {
    return mul_f32x16(x, (f32x16){_mm256_set1_ps(scale), _mm256_set1_ps(scale)});
}
INLINE f32x16 max_f32x16(f32x16 a, f32x16 b) {
    return (f32x16){_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
INLINE f32x16 abs_f32x16(f32x16 x) {
    f32x8 sign = _mm256_set1_ps(-0.0f);
    return (f32x16){_mm256_andnot_ps(sign, x.low), _mm256_andnot_ps(sign, x.high)};
}
INLINE float hmax_f32x16(f32x16 x) { return hmax_f32x8(_mm256_max_ps(x.low, x.high)); }
INLINE float hsum_f32x16(f32x16 x) { return hsum_f32x8(_mm256_add_ps(x.low, x.high)); }
INLINE f32x8 bf16_to_f32x8(const uint16_t *x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)x)), 16));
}
INLINE f32x16 bf16_to_f32x16(const uint16_t *x) { return (f32x16){bf16_to_f32x8(x), bf16_to_f32x8(x + LANES8)}; }
INLINE f32x8 add_halves(f32x16 x) { return _mm256_add_ps(x.low, x.high); }
INLINE f32x16 exp_nonpositive(f32x16 x) { return (f32x16){exp_f32x8(x.low), exp_f32x8(x.high)}; }

INLINE i32x16 zero_i32x16(void) { return (i32x16){_mm256_setzero_si256(), _mm256_setzero_si256()}; }
INLINE QIntVec load_qint(const int8_t *x) {
    return (QIntVec){_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)x)),
                     _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(x + LANES16)))};
}
/* sum + a·b. Inline assembly: gcc spills registers otherwise. */
INLINE __m256i madd_accumulate(__m256i sum, __m256i a, __m256i b) {
    __m256i products;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(products) : "x"(a), "x"(b));
    return sum;
}
INLINE __m256i broadcast_qgroup(QGroup x) { return _mm256_set1_epi32(x); }
INLINE i32x16 dot_accumulate(i32x16 sum, __m256i x, QIntVec b) {
    return (i32x16){madd_accumulate(sum.low, x, b.low), madd_accumulate(sum.high, x, b.high)};
}
INLINE i32x16 round_to_i32x16(f32x16 x) { return (i32x16){_mm256_cvtps_epi32(x.low), _mm256_cvtps_epi32(x.high)}; }
INLINE i32x16 add_i32x16(i32x16 a, i32x16 b) {
    return (i32x16){_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
INLINE int32_t hsum_i32x16(i32x16 x) { return hsum_i32x8(_mm256_add_epi32(x.low, x.high)); }
INLINE void store_qint(QInt out[LANES16], i32x16 x) {
    __m256i interleaved = _mm256_packs_epi32(x.low, x.high); /* per 128-bit lane: the middle quarters are swapped */
    _mm256_storeu_si256((__m256i *)out, _mm256_permute4x64_epi64(interleaved, 0xd8));
}
INLINE f32x16 i32_to_f32x16(i32x16 x, int32_t row_sum) {
    (void)row_sum;
    return (f32x16){_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)};
}

#endif

/* The horizontal sums of four vectors. */
INLINE __m128 hsum4_f32x16(const f32x16 x[4]) {
    f32x8 pairs01 = _mm256_hadd_ps(add_halves(x[0]), add_halves(x[1]));
    f32x8 pairs23 = _mm256_hadd_ps(add_halves(x[2]), add_halves(x[3]));
    f32x8 quads = _mm256_hadd_ps(pairs01, pairs23);
    return _mm_add_ps(_mm256_castps256_ps128(quads), _mm256_extractf128_ps(quads, 1));
}

INLINE void activate_rows(const int activation, long rows, long columns, float *c, long stride) {
    for (long r = 0; r < rows; r++, c += stride) {
        long j = 0;
        for (; j + 2 * LANES8 <= columns; j += 2 * LANES8) {
            _mm256_storeu_ps(c + j, activate(activation, _mm256_loadu_ps(c + j)));
            _mm256_storeu_ps(c + j + LANES8, activate(activation, _mm256_loadu_ps(c + j + LANES8)));
        }
        for (; j < columns; j += LANES8)
            store_partial_f32x8(c + j, activate(activation, load_partial_f32x8(c + j, columns - j)), columns - j);
    }
}

/* Apply the activation to a register tile that was just stored. Not inlined: inlining it into every micro-kernel adds
   half a minute to the compile time. */
__attribute__((unused, noinline)) static void activate_tile(int activation, long rows, long columns, float *c,
                                                            long stride) {
    switch (activation) {
        case RELU: activate_rows(RELU, rows, columns, c, stride); break;
        case GELU: activate_rows(GELU, rows, columns, c, stride); break;
        case GELU_TANH: activate_rows(GELU_TANH, rows, columns, c, stride); break;
        case SILU: activate_rows(SILU, rows, columns, c, stride); break;
        case TANH: activate_rows(TANH, rows, columns, c, stride); break;
        case QUICK_GELU: activate_rows(QUICK_GELU, rows, columns, c, stride); break;
    }
}

/* The rows of A are split into tiles of nearly equal height, so that no tile has few rows. A is packed tile by tile:
   for each k the values of all rows of the tile, so that the micro-kernel reads A sequentially. A tile of `height` rows
   takes height · depth values and begins at (its first row) · depth. */
INLINE long num_row_tiles(long rows) { return ceil_div(rows, MR); }
INLINE long tile_first_row(long rows, long tile) { return rows * tile / num_row_tiles(rows); }

/* How much of the next panel a tile prefetches while it multiplies the current one. The only tile of a row block
   prefetches all of it, otherwise the first two tiles prefetch one half each. So weights are read from memory all the
   time, not only when the first tile misses the cache. */
enum PrefetchPart { PREFETCH_NONE, PREFETCH_FIRST_HALF, PREFETCH_SECOND_HALF, PREFETCH_ALL };
INLINE enum PrefetchPart prefetch_part_of(long begin, long tile, long end) {
    if (tile == begin) return end - begin == 1 ? PREFETCH_ALL : PREFETCH_FIRST_HALF;
    return tile == begin + 1 ? PREFETCH_SECOND_HALF : PREFETCH_NONE;
}

/* Prefetch at step k of `steps`. Each step consumes `bytes` of a panel. */
INLINE void prefetch(const char *next, long bytes, long k, long steps, enum PrefetchPart part) {
    if (part == PREFETCH_NONE) return;
    const char *address =
        next + (part == PREFETCH_ALL ? k * bytes : (k + (part == PREFETCH_SECOND_HALF ? steps : 0)) * bytes / 2);
    _mm_prefetch(address, _MM_HINT_T1);
    if (part == PREFETCH_ALL && bytes > 64) _mm_prefetch(address + 64, _MM_HINT_T1);
}

/* Make `rows` a compile-time constant of the call, so that the loops of the micro-kernel are unrolled. */
#define DISPATCH_ROWS(rows, call)   \
    switch (rows) {                 \
        case 1: call(1); break;     \
        case 2: call(2); break;     \
        case 3: call(3); break;     \
        case 4: call(4); break;     \
        case 5: call(5); break;     \
        case 6: call(6); break;     \
        DISPATCH_ROWS_ABOVE_6(call) \
    }
#if MR > 6
#define DISPATCH_ROWS_ABOVE_6(call) \
    case 7: call(7); break;         \
    case 8: call(8); break;         \
    case 9: call(9); break;         \
    case 10: call(10); break;       \
    case 11: call(11); break;       \
    case 12: call(12); break;
#else
#define DISPATCH_ROWS_ABOVE_6(call)
#endif

#endif
