/* Shared helpers: AVX2 vectors, splitting work over threads, scratch memory. */
#ifndef REGARD_COMMON_H
#define REGARD_COMMON_H

#include <immintrin.h>
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if !defined(__AVX2__) || !defined(__FMA__)
#error "regard's C kernels need a CPU with AVX2 and FMA"
#endif

#define PUBLIC __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline))

typedef __m256 f32x8;
#define LANES8 8

INLINE long min_long(long a, long b) { return a < b ? a : b; }
INLINE long max_long(long a, long b) { return a > b ? a : b; }
INLINE long ceil_div(long total, long step) { return (total + step - 1) / step; }

typedef struct {
    long begin, end;
} Range;

/* Range `index` of `parts` nearly equal ones. Its bounds are multiples of `step`, or `total`. */
INLINE Range split_range(long total, long step, int index, int parts) {
    long num_steps = ceil_div(total, step);
    Range range = {min_long(total, num_steps * index / parts * step),
                   min_long(total, num_steps * (index + 1) / parts * step)};
    return range;
}

/* The part of a GEMM that one call computes. */
typedef struct {
    Range row_tiles, columns;
} GemmSlice;

/* One flag for each strip of columns, set by the thread that claims the strip. */
#define MAX_STRIPS 256
#define MIN_STRIP_PANELS 8
typedef struct {
    _Alignas(64) char claimed[MAX_STRIPS]; /* own cache lines: the threads only read what lies next to it */
} StripClaims;

/* Compute this thread's slices of a GEMM. If there are many row tiles, each thread takes a range of them. If there are
   few, the columns are cut into strips, with work stealing: a thread first claims the strips of its own range, whose
   weights may still be in its cache, and then, from the last strip backwards, the strips that are still unclaimed. So
   no thread waits for one whose core is slower or busy. */
INLINE void gemm_parallel(StripClaims *claims, long tiles, long columns, long panel, const void *gemm,
                          void (*gemm_slice)(const void *, GemmSlice)) {
    int thread = omp_get_thread_num(), threads = omp_get_num_threads();
    if (threads == 1 || tiles >= 4 * threads || columns < panel * threads) {
        gemm_slice(gemm, (GemmSlice){split_range(tiles, 1, thread, threads), {0, columns}});
        return;
    }
    long strips = min_long(MAX_STRIPS, max_long(threads, ceil_div(columns, MIN_STRIP_PANELS * panel)));
    Range local_range = split_range(strips, 1, thread, threads);
    long own_strips = local_range.end - local_range.begin;
    for (long i = 0; i < own_strips + strips; i++) {
        long strip = i < own_strips ? local_range.begin + i : own_strips + strips - 1 - i;
        char *claimed = claims->claimed + strip; /* load before exchange: writes are expensive with many threads */
        if (!__atomic_load_n(claimed, __ATOMIC_RELAXED) && !__atomic_exchange_n(claimed, 1, __ATOMIC_RELAXED))
            gemm_slice(gemm, (GemmSlice){{0, tiles}, split_range(columns, panel, (int)strip, (int)strips)});
    }
}

/* Number of threads for this many operations: torch's number, or one if the operations are too few to be worth waking
   threads, or if the caller is already inside a parallel region. */
INLINE int threads_for(double operations) { return operations < 1e5 || omp_in_parallel() ? 1 : omp_get_max_threads(); }

/* Per-thread scratch buffers, one for each slot. They are not cleared. */
enum ScratchSlot {
    SCRATCH_QUANTIZED_A,
    SCRATCH_ROW_SUMS,
    SCRATCH_ROW_SCALES,
    SCRATCH_PACKED_A,
    SCRATCH_ATTENTION_WEIGHTS,
    SCRATCH_TRANSPOSED,
    SCRATCH_PROJECTION, /* query, key and value, or the up-projection of a feed-forward layer */
    SCRATCH_INNER,      /* attention output, or gated activation */
    SCRATCH_NORMED,
    SCRATCH_SUBLAYER_OUTPUT,
    SCRATCH_LOGIT_DIFFERENCE,
    SCRATCH_SLOTS
};
void *scratch(enum ScratchSlot slot, size_t bytes);

INLINE float hsum_f32x8(f32x8 x) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_shuffle_ps(half, half, 1)));
}

INLINE int32_t hsum_i32x8(__m256i x) {
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
}

INLINE float hmax_f32x8(f32x8 x) {
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_shuffle_ps(half, half, 1)));
}

/* Mask of the first `count` lanes. */
INLINE __m256i lane_mask8(long count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* min(count, 8) floats; the other lanes are 0. Full vectors need no mask: masked stores take 40 cycles on some CPUs. */
INLINE f32x8 load_partial_f32x8(const float *x, long count) {
    return count >= LANES8 ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, lane_mask8(count));
}

INLINE void store_partial_f32x8(float *out, f32x8 x, long count) {
    if (count >= LANES8)
        _mm256_storeu_ps(out, x);
    else
        _mm256_maskstore_ps(out, lane_mask8(count), x);
}

INLINE float max_f32(long size, const float *x) {
    f32x8 max = _mm256_set1_ps(-INFINITY);
    for (long j = 0; j < size; j += LANES8) {
        f32x8 v = load_partial_f32x8(x + j, size - j);
        if (size - j < LANES8) v = _mm256_blendv_ps(max, v, _mm256_castsi256_ps(lane_mask8(size - j)));
        max = _mm256_max_ps(max, v);
    }
    return hmax_f32x8(max);
}

INLINE void transpose_8x8(f32x8 x[LANES8]) {
    f32x8 pairs[LANES8], quads[LANES8];
    for (int n = 0; n < LANES8; n += 2) {
        pairs[n] = _mm256_unpacklo_ps(x[n], x[n + 1]);
        pairs[n + 1] = _mm256_unpackhi_ps(x[n], x[n + 1]);
    }
    for (int n = 0; n < LANES8; n += 4) {
        quads[n] = _mm256_shuffle_ps(pairs[n], pairs[n + 2], 0x44);
        quads[n + 1] = _mm256_shuffle_ps(pairs[n], pairs[n + 2], 0xee);
        quads[n + 2] = _mm256_shuffle_ps(pairs[n + 1], pairs[n + 3], 0x44);
        quads[n + 3] = _mm256_shuffle_ps(pairs[n + 1], pairs[n + 3], 0xee);
    }
    for (int n = 0; n < 4; n++) {
        x[n] = _mm256_permute2f128_ps(quads[n], quads[n + 4], 0x20);
        x[n + 4] = _mm256_permute2f128_ps(quads[n], quads[n + 4], 0x31);
    }
}

/* e^x, accurate to the last digit or the one before it. x = n·ln 2 + r; e^r by its Taylor series up to r^7, 2^n by the
   exponent bits. Below about e^-87, near the smallest normal float, the result is 0. NaN propagates. */
#define EXP_POLYNOMIAL(set1, fmadd, r)                                                                    \
    fmadd(fmadd(fmadd(fmadd(fmadd(fmadd(fmadd(                                                            \
        set1(1.98412698e-4f), r, set1(1.38888889e-3f)), r, set1(8.33333333e-3f)), r, set1(4.16666667e-2f)), r, \
        set1(1.66666667e-1f)), r, set1(0.5f)), r, set1(1.0f)), r, set1(1.0f))
#define ROUND_NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define EXP_MIN_INPUT -87.3365447f
#define EXP_MAX_INPUT 88.7228317f
#define LOG2_E 1.44269504f
#define LN2_HIGH 0.693359375f /* ln 2 in two parts; the first has few digits, so that n · LN2_HIGH is exact */
#define LN2_LOW -2.12194440e-4f

#ifdef REGARD_AVX512
INLINE f32x8 exp_f32x8(f32x8 x) {
    __mmask8 mask = _mm256_cmp_ps_mask(x, _mm256_set1_ps(EXP_MIN_INPUT), _CMP_NLT_UQ);
    x = _mm256_min_ps(_mm256_set1_ps(EXP_MAX_INPUT), x);
    f32x8 n = _mm256_roundscale_ps(_mm256_mul_ps(x, _mm256_set1_ps(LOG2_E)), ROUND_NEAREST);
    f32x8 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(LN2_HIGH), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(LN2_LOW), r);
    return _mm256_maskz_scalef_ps(mask, EXP_POLYNOMIAL(_mm256_set1_ps, _mm256_fmadd_ps, r), n);
}
#else
INLINE f32x8 exp_f32x8(f32x8 x) {
    f32x8 underflow = _mm256_cmp_ps(x, _mm256_set1_ps(EXP_MIN_INPUT), _CMP_LT_OQ);
    /* x is the second operand of min and max, so that NaN propagates. */
    x = _mm256_min_ps(_mm256_set1_ps(EXP_MAX_INPUT), _mm256_max_ps(_mm256_set1_ps(EXP_MIN_INPUT), x));
    f32x8 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(LOG2_E)), ROUND_NEAREST);
    f32x8 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(LN2_HIGH), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(LN2_LOW), r);
    f32x8 y = EXP_POLYNOMIAL(_mm256_set1_ps, _mm256_fmadd_ps, r);
    __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(126)), 23);
    y = _mm256_mul_ps(_mm256_add_ps(y, y), _mm256_castsi256_ps(power)); /* 2·2^(n-1): 2^128 is no float */
    return _mm256_andnot_ps(underflow, y);
}
#endif

#endif
