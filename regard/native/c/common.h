/* What all files share: vectors of eight floats, shares of the work, and memory to work in. */
#ifndef REGARD_COMMON_H
#define REGARD_COMMON_H

#include <immintrin.h>
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if !defined(__AVX2__) || !defined(__FMA__)
#error "regard's compiled parts need a CPU with AVX2 and FMA"
#endif

#define PUBLIC __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline))

typedef __m256 vec; /* eight floats */
#define WIDE 8

INLINE long at_most(long a, long b) { return a < b ? a : b; }
INLINE long at_least(long a, long b) { return a > b ? a : b; }
INLINE long steps(long whole, long step) { return (whole + step - 1) / step; }

/* The part of `whole` that falls to one of `of` threads, in multiples of `step`. */
typedef struct {
    long begin, end;
} Share;

INLINE Share share(long whole, long step, int number, int of) {
    long parts = steps(whole, step);
    Share mine = {at_most(whole, parts * number / of * step), at_most(whole, parts * (number + 1) / of * step)};
    return mine;
}

/* A part of a product: some of its tiles of rows and some of its columns. */
typedef struct {
    Share rows, columns;
} Part;

/* Which strips of a product's columns are taken. */
#define STRIPS 256
#define STRIP 8 /* panels, at least */
typedef struct {
    _Alignas(64) char taken[STRIPS]; /* apart from what the threads only read */
} Taken;

/* Multiply the parts of a product that fall to this thread: some of its tiles of rows or, where they are few, strips of
   columns. A strip falls to whoever takes it first: each thread takes those of its own share, whose weights it may have met
   before, and then, from behind, those that others have not come to. So none waits for one whose core is slower or busy. */
INLINE void multiply_parts(Taken *all, long tiles, long columns, long panel, const void *product,
                           void (*multiply_part)(const void *, Part)) {
    int number = omp_get_thread_num(), of = omp_get_num_threads();
    if (of == 1 || tiles >= 4 * of || columns < panel * of) {
        multiply_part(product, (Part){share(tiles, 1, number, of), {0, columns}});
        return;
    }
    long strips = at_most(STRIPS, at_least(of, steps(columns, STRIP * panel)));
    Share mine = share(strips, 1, number, of);
    long own = mine.end - mine.begin;
    for (long turn = 0; turn < own + strips; turn++) {
        long strip = turn < own ? mine.begin + turn : own + strips - 1 - turn;
        char *taken = all->taken + strip; /* looked at first: to write to it is dear where threads are many */
        if (!__atomic_load_n(taken, __ATOMIC_RELAXED) && !__atomic_exchange_n(taken, 1, __ATOMIC_RELAXED))
            multiply_part(product, (Part){{0, tiles}, share(columns, panel, (int)strip, (int)strips)});
    }
}

/* How many threads are worth waking for so many operations: torch's number, or one, as inside a share of the work. */
INLINE int threads_for(double operations) { return operations < 1e5 || omp_in_parallel() ? 1 : omp_get_max_threads(); }

/* Memory that stays with the thread that asks, one piece for each purpose; it is not cleared. */
enum Purpose {
    LEVELS_OF_ROWS, SUMS_OF_ROWS, SCALES_OF_ROWS, ROWS_OF_A, WEIGHTS, TURNED, PROJECTED, ANSWERED, NORMAL, SAID, DIFFERENCE, PURPOSES
};
void *scratch(enum Purpose purpose, size_t bytes);

INLINE float sum_of(vec x) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_shuffle_ps(half, half, 1)));
}

INLINE int32_t whole_sum_of(__m256i x) {
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
}

INLINE float most_of(vec x) {
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_shuffle_ps(half, half, 1)));
}

/* The first `count` of the eight lanes. */
INLINE __m256i first(long count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* Eight numbers, or as many as there are; the others are 0. (Stores with a mask take forty cycles on some CPUs.) */
INLINE vec load(const float *x, long count) {
    return count >= WIDE ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, first(count));
}

INLINE void store(float *to, vec x, long count) {
    if (count >= WIDE)
        _mm256_storeu_ps(to, x);
    else
        _mm256_maskstore_ps(to, first(count), x);
}

INLINE float largest(long size, const float *s) {
    vec most = _mm256_set1_ps(-INFINITY);
    for (long j = 0; j < size; j += WIDE) {
        vec x = load(s + j, size - j);
        if (size - j < WIDE) x = _mm256_blendv_ps(most, x, _mm256_castsi256_ps(first(size - j)));
        most = _mm256_max_ps(most, x);
    }
    return most_of(most);
}

/* Eight rows of eight numbers become eight columns. */
INLINE void turn_block(vec x[WIDE]) {
    vec pairs[WIDE], fours[WIDE];
    for (int n = 0; n < WIDE; n += 2) {
        pairs[n] = _mm256_unpacklo_ps(x[n], x[n + 1]);
        pairs[n + 1] = _mm256_unpackhi_ps(x[n], x[n + 1]);
    }
    for (int n = 0; n < WIDE; n += 4) {
        fours[n] = _mm256_shuffle_ps(pairs[n], pairs[n + 2], 0x44);
        fours[n + 1] = _mm256_shuffle_ps(pairs[n], pairs[n + 2], 0xee);
        fours[n + 2] = _mm256_shuffle_ps(pairs[n + 1], pairs[n + 3], 0x44);
        fours[n + 3] = _mm256_shuffle_ps(pairs[n + 1], pairs[n + 3], 0xee);
    }
    for (int n = 0; n < 4; n++) {
        x[n] = _mm256_permute2f128_ps(fours[n], fours[n + 4], 0x20);
        x[n + 4] = _mm256_permute2f128_ps(fours[n], fours[n + 4], 0x31);
    }
}

/* e^x to the last digit or the one before. x = n·ln 2 + r; e^r by its Taylor series up to r^7, n by the exponent.
   What is below about e^-87, near the smallest normal number, becomes 0; what is no number stays none. */
#define SERIES(number, times_add, r)                                        \
    times_add(times_add(times_add(times_add(times_add(times_add(times_add( \
        number(1.98412698e-4f), r, number(1.38888889e-3f)), r, number(8.33333333e-3f)), r, number(4.16666667e-2f)), r, \
        number(1.66666667e-1f)), r, number(0.5f)), r, number(1.0f)), r, number(1.0f))
#define NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define LEAST -87.3365447f
#define MOST 88.7228317f
#define PER_TWO 1.44269504f   /* 1 / ln 2, and ln 2 in two parts, the first with few digits */
#define TWO 0.693359375f
#define TWO_REST -2.12194440e-4f

#ifdef REGARD_WIDE
INLINE vec exponential(vec x) {
    __mmask8 there = _mm256_cmp_ps_mask(x, _mm256_set1_ps(LEAST), _CMP_NLT_UQ);
    x = _mm256_min_ps(_mm256_set1_ps(MOST), x);
    vec n = _mm256_roundscale_ps(_mm256_mul_ps(x, _mm256_set1_ps(PER_TWO)), NEAREST);
    vec r = _mm256_fnmadd_ps(n, _mm256_set1_ps(TWO), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(TWO_REST), r);
    return _mm256_maskz_scalef_ps(there, SERIES(_mm256_set1_ps, _mm256_fmadd_ps, r), n);
}
#else
INLINE vec exponential(vec x) {
    vec tiny = _mm256_cmp_ps(x, _mm256_set1_ps(LEAST), _CMP_LT_OQ);
    x = _mm256_min_ps(_mm256_set1_ps(MOST), _mm256_max_ps(_mm256_set1_ps(LEAST), x)); /* in this order, for NaN */
    vec n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(PER_TWO)), NEAREST);
    vec r = _mm256_fnmadd_ps(n, _mm256_set1_ps(TWO), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(TWO_REST), r);
    vec y = SERIES(_mm256_set1_ps, _mm256_fmadd_ps, r);
    __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(126)), 23);
    y = _mm256_mul_ps(_mm256_add_ps(y, y), _mm256_castsi256_ps(power)); /* 2·2^(n-1): 2^128 has no bits */
    return _mm256_andnot_ps(tiny, y);
}
#endif

#endif
