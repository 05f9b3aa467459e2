/* Sixteen columns of a product at a time: in one register where there is AVX-512, else in two. */
#ifndef REGARD_SIXTEEN_H
#define REGARD_SIXTEEN_H

#include "common.h"

#define COLUMNS 16

typedef int32_t __attribute__((may_alias)) Pair; /* two numbers of sixteen bits */

#ifdef REGARD_WIDE

static const char WIDTH[] __attribute__((used)) = "regard: 512 bits"; /* so that a file tells what it is */

#define ROWS 12 /* of a tile: as many sums as keep the multipliers busy */

typedef __m512 Floats;
typedef __m512i Pairs; /* sixteen pairs of sixteen bits */
typedef __m512i Sums;  /* sixteen sums of 32 bits */

INLINE Floats no_floats(void) { return _mm512_setzero_ps(); }
INLINE Floats load_floats(const float *x) { return _mm512_loadu_ps(x); }
INLINE Floats add_product(Floats sum, const float *x, Floats b) { return _mm512_fmadd_ps(_mm512_set1_ps(*x), b, sum); }
INLINE vec left_of(Floats x) { return _mm512_castps512_ps256(x); }
INLINE vec right_of(Floats x) { return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1)); }

INLINE Sums no_sums(void) { return _mm512_setzero_si512(); }
INLINE Pairs load_pairs(const int8_t *x) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)x)); }
INLINE Sums add_products(Sums sum, const Pair *x, Pairs b) {
    return _mm512_dpwssd_epi32(sum, _mm512_set1_epi32(*x), b);
}
INLINE Floats floats_of(Sums x) { return _mm512_cvtepi32_ps(x); }

#else

#define ROWS 6

typedef struct {
    vec left, right;
} Floats;
typedef struct {
    __m256i left, right;
} Pairs;
typedef Pairs Sums;

INLINE Floats no_floats(void) { return (Floats){_mm256_setzero_ps(), _mm256_setzero_ps()}; }
INLINE Floats load_floats(const float *x) { return (Floats){_mm256_loadu_ps(x), _mm256_loadu_ps(x + WIDE)}; }
INLINE Floats add_product(Floats sum, const float *x, Floats b) {
    vec by = _mm256_broadcast_ss(x);
    return (Floats){_mm256_fmadd_ps(by, b.left, sum.left), _mm256_fmadd_ps(by, b.right, sum.right)};
}
INLINE vec left_of(Floats x) { return x.left; }
INLINE vec right_of(Floats x) { return x.right; }

INLINE Sums no_sums(void) { return (Sums){_mm256_setzero_si256(), _mm256_setzero_si256()}; }
INLINE Pairs load_pairs(const int8_t *x) {
    return (Pairs){_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)x)),
                   _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(x + COLUMNS)))};
}
/* sum + a·b, written so because gcc, left to itself, runs out of registers. */
INLINE __m256i add_eight(__m256i sum, __m256i a, __m256i b) {
    __m256i products;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(products) : "x"(a), "x"(b));
    return sum;
}
INLINE Sums add_products(Sums sum, const Pair *x, Pairs b) {
    __m256i by = _mm256_set1_epi32(*x);
    return (Sums){add_eight(sum.left, by, b.left), add_eight(sum.right, by, b.right)};
}
INLINE Floats floats_of(Sums x) { return (Floats){_mm256_cvtepi32_ps(x.left), _mm256_cvtepi32_ps(x.right)}; }

#endif

/* tile(rows, …) with a number of rows that is known when it is compiled, so that its loops are unrolled. */
#define FOR_EACH_COUNT(rows, call) \
    switch (rows) {                \
        case 1: call(1); break;    \
        case 2: call(2); break;    \
        case 3: call(3); break;    \
        case 4: call(4); break;    \
        case 5: call(5); break;    \
        case 6: call(6); break;    \
        FOR_MORE_COUNTS(call)      \
    }
#if ROWS > 6
#define FOR_MORE_COUNTS(call)  \
    case 7: call(7); break;    \
    case 8: call(8); break;    \
    case 9: call(9); break;    \
    case 10: call(10); break;  \
    case 11: call(11); break;  \
    case 12: call(12); break;
#else
#define FOR_MORE_COUNTS(call)
#endif

#endif
