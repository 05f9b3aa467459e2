/* Sixteen columns of a product at a time: in one register where there is AVX-512, else in two. */
#ifndef REGARD_SIXTEEN_H
#define REGARD_SIXTEEN_H

#include "activation.h"

#define COLUMNS 16
#define PANEL (SIXTEENS * COLUMNS) /* columns that are packed together */

typedef int32_t __attribute__((may_alias)) Group; /* so many levels of a vector as one instruction multiplies: 32 bits */

#ifdef REGARD_WIDE

static const char WIDTH[] __attribute__((used)) = "regard: 512 bits"; /* so that a file tells what it is */

#define ROWS 12    /* of a tile, and */
#define SIXTEENS 2 /* sixteens of columns: as many sums as there are registers for */
#define TOGETHER 4 /* levels in a group */
typedef int8_t Level;

typedef __m512 Floats;
typedef __m512i Levels; /* sixteen groups of four levels */
typedef __m512i Sums;   /* sixteen sums of 32 bits */

INLINE Floats no_floats(void) { return _mm512_setzero_ps(); }
INLINE Floats load_floats(const float *x) { return _mm512_loadu_ps(x); }
INLINE __mmask16 some(long count) { return count >= 16 ? 0xffff : count <= 0 ? 0 : (__mmask16)((1u << count) - 1); }
INLINE Floats load_some(const float *x, long count) { return _mm512_maskz_loadu_ps(some(count), x); }
INLINE void store_some(float *to, Floats x, long count) { _mm512_mask_storeu_ps(to, some(count), x); }
INLINE Floats all_floats(float x) { return _mm512_set1_ps(x); }
INLINE Floats numbers(float x) { return _mm512_set1_ps(x); }
INLINE Floats add_product(Floats sum, Floats x, Floats b) { return _mm512_fmadd_ps(x, b, sum); }
INLINE Floats add_times(Floats sum, Floats a, Floats b) { return _mm512_fmadd_ps(a, b, sum); }
INLINE Floats plus(Floats a, Floats b) { return _mm512_add_ps(a, b); }
INLINE Floats times(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
INLINE Floats scaled(Floats x, float by) { return _mm512_mul_ps(x, _mm512_set1_ps(by)); }
INLINE Floats larger(Floats a, Floats b) { return _mm512_max_ps(a, b); } /* b, where a is no number */
INLINE Floats sizes(Floats x) { return _mm512_abs_ps(x); }
INLINE float largest_of(Floats x) { return _mm512_reduce_max_ps(x); }
INLINE float sum_of_all(Floats x) { return _mm512_reduce_add_ps(x); }
INLINE Floats widened(const uint16_t *upper) { /* numbers of which the upper sixteen bits are given (bfloat16) */
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)upper)), 16));
}
INLINE vec folded(Floats x) { /* the first eight and the last, added */
    __m256 last = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1));
    return _mm256_add_ps(_mm512_castps512_ps256(x), last);
}
/* e^x of what is at most 0, to 1e-7 of what is added up: 2^f by a polynomial, whose error is the least for f up to a half.
   What is below 2^-126 stays there; what is no number stays none. */
INLINE Floats shares(Floats x) {
    Floats t = _mm512_max_ps(_mm512_set1_ps(-126.0f), _mm512_mul_ps(x, _mm512_set1_ps(PER_TWO)));
    Floats n = _mm512_roundscale_ps(t, NEAREST), f = _mm512_sub_ps(t, n), y = _mm512_set1_ps(1.327647199e-3f);
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(9.675541334e-3f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(5.550713273e-2f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(2.402211972e-1f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(6.931469671e-1f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(1.000000072f));
    return _mm512_scalef_ps(y, n);
}

/* VNNI multiplies bytes without a sign by bytes with one: the matrix is packed with 128 added to each of its levels, and
   128 times the levels of the vector come off in the end. */
#define ADDED 128
INLINE Sums no_sums(void) { return _mm512_setzero_si512(); }
INLINE Levels load_levels(const int8_t *x) { return _mm512_loadu_si512(x); }
INLINE Levels all_levels(Group x) { return _mm512_set1_epi32(x); }
INLINE Sums add_products(Sums sum, Levels x, Levels b) { return _mm512_dpbusd_epi32(sum, b, x); }
INLINE Sums nearest(Floats x) { return _mm512_cvtps_epi32(x); }
INLINE Sums add_sums(Sums a, Sums b) { return _mm512_add_epi32(a, b); }
INLINE int32_t sum_of_sums(Sums x) { return _mm512_reduce_add_epi32(x); }
INLINE void store_levels(Level to[COLUMNS], Sums x) { _mm_storeu_si128((__m128i *)to, _mm512_cvtsepi32_epi8(x)); }
INLINE Floats floats_of(Sums x, int32_t levels) {
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(x, _mm512_set1_epi32(ADDED * levels)));
}

#else

#define ROWS 6
#define SIXTEENS 1
#define TOGETHER 2
#define ADDED 0
typedef int16_t Level;

typedef struct {
    vec left, right;
} Floats;
typedef struct {
    __m256i left, right;
} Levels;
typedef Levels Sums;

INLINE Floats no_floats(void) { return (Floats){_mm256_setzero_ps(), _mm256_setzero_ps()}; }
INLINE Floats load_floats(const float *x) { return (Floats){_mm256_loadu_ps(x), _mm256_loadu_ps(x + WIDE)}; }
INLINE Floats load_some(const float *x, long count) {
    return (Floats){load(x, count), count > WIDE ? load(x + WIDE, count - WIDE) : _mm256_setzero_ps()};
}
INLINE void store_some(float *to, Floats x, long count) {
    store(to, x.left, count);
    if (count > WIDE) store(to + WIDE, x.right, count - WIDE);
}
INLINE vec all_floats(float x) { return _mm256_set1_ps(x); }
INLINE Floats numbers(float x) { return (Floats){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
INLINE Floats add_product(Floats sum, vec x, Floats b) {
    return (Floats){_mm256_fmadd_ps(x, b.left, sum.left), _mm256_fmadd_ps(x, b.right, sum.right)};
}
INLINE Floats add_times(Floats sum, Floats a, Floats b) {
    return (Floats){_mm256_fmadd_ps(a.left, b.left, sum.left), _mm256_fmadd_ps(a.right, b.right, sum.right)};
}
INLINE Floats plus(Floats a, Floats b) { return (Floats){_mm256_add_ps(a.left, b.left), _mm256_add_ps(a.right, b.right)}; }
INLINE Floats times(Floats a, Floats b) { return (Floats){_mm256_mul_ps(a.left, b.left), _mm256_mul_ps(a.right, b.right)}; }
INLINE Floats scaled(Floats x, float by) { return times(x, (Floats){_mm256_set1_ps(by), _mm256_set1_ps(by)}); }

INLINE Floats larger(Floats a, Floats b) { return (Floats){_mm256_max_ps(a.left, b.left), _mm256_max_ps(a.right, b.right)}; }
INLINE Floats sizes(Floats x) {
    vec sign = _mm256_set1_ps(-0.0f);
    return (Floats){_mm256_andnot_ps(sign, x.left), _mm256_andnot_ps(sign, x.right)};
}
INLINE float largest_of(Floats x) { return most_of(_mm256_max_ps(x.left, x.right)); }
INLINE float sum_of_all(Floats x) { return sum_of(_mm256_add_ps(x.left, x.right)); }
INLINE vec widened_eight(const uint16_t *upper) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)upper)), 16));
}
INLINE Floats widened(const uint16_t *upper) { return (Floats){widened_eight(upper), widened_eight(upper + WIDE)}; }
INLINE vec folded(Floats x) { return _mm256_add_ps(x.left, x.right); }
INLINE Floats shares(Floats x) { return (Floats){exponential(x.left), exponential(x.right)}; }

INLINE Sums no_sums(void) { return (Sums){_mm256_setzero_si256(), _mm256_setzero_si256()}; }
INLINE Levels load_levels(const int8_t *x) {
    return (Levels){_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)x)),
                    _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(x + COLUMNS)))};
}
/* sum + a·b, written so because gcc, left to itself, runs out of registers. */
INLINE __m256i add_eight(__m256i sum, __m256i a, __m256i b) {
    __m256i products;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(products) : "x"(a), "x"(b));
    return sum;
}
INLINE __m256i all_levels(Group x) { return _mm256_set1_epi32(x); }
INLINE Sums add_products(Sums sum, __m256i x, Levels b) {
    return (Sums){add_eight(sum.left, x, b.left), add_eight(sum.right, x, b.right)};
}
INLINE Sums nearest(Floats x) { return (Sums){_mm256_cvtps_epi32(x.left), _mm256_cvtps_epi32(x.right)}; }
INLINE Sums add_sums(Sums a, Sums b) {
    return (Sums){_mm256_add_epi32(a.left, b.left), _mm256_add_epi32(a.right, b.right)};
}
INLINE int32_t sum_of_sums(Sums x) { return whole_sum_of(_mm256_add_epi32(x.left, x.right)); }
INLINE void store_levels(Level to[COLUMNS], Sums x) {
    __m256i mixed = _mm256_packs_epi32(x.left, x.right); /* the second and the third quarter have changed places */
    _mm256_storeu_si256((__m256i *)to, _mm256_permute4x64_epi64(mixed, 0xd8));
}
INLINE Floats floats_of(Sums x, int32_t levels) {
    (void)levels;
    return (Floats){_mm256_cvtepi32_ps(x.left), _mm256_cvtepi32_ps(x.right)};
}

#endif

/* What each of four adds up to. */
INLINE __m128 four_sums(const Floats x[4]) {
    vec pairs = _mm256_hadd_ps(folded(x[0]), folded(x[1])), others = _mm256_hadd_ps(folded(x[2]), folded(x[3]));
    vec fours = _mm256_hadd_ps(pairs, others);
    return _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1));
}

INLINE void activate_all(const int activation, long rows, long columns, float *c, long stride) {
    for (long r = 0; r < rows; r++, c += stride) {
        long j = 0;
        for (; j + 2 * WIDE <= columns; j += 2 * WIDE) {
            _mm256_storeu_ps(c + j, activate(activation, _mm256_loadu_ps(c + j)));
            _mm256_storeu_ps(c + j + WIDE, activate(activation, _mm256_loadu_ps(c + j + WIDE)));
        }
        for (; j < columns; j += WIDE) store(c + j, activate(activation, load(c + j, columns - j)), columns - j);
    }
}

/* The activation of a tile that was just stored. (Written into each tile it would take the compiler half a minute.) */
__attribute__((unused, noinline)) static void activate_tile(int activation, long rows, long columns, float *c, long stride) {
    switch (activation) {
        case RELU: activate_all(RELU, rows, columns, c, stride); break;
        case GELU: activate_all(GELU, rows, columns, c, stride); break;
        case GELU_TANH: activate_all(GELU_TANH, rows, columns, c, stride); break;
        case SILU: activate_all(SILU, rows, columns, c, stride); break;
        case TANH: activate_all(TANH, rows, columns, c, stride); break;
        case QUICK_GELU: activate_all(QUICK_GELU, rows, columns, c, stride); break;
    }
}

/* Rows are cut into tiles of nearly the same height, none of them low. The numbers of a tile's rows stand side by side, one
   of each row, so that a tile finds them one after the other: its rows times the depth, from where its rows begin. */
INLINE long tiles_of(long rows) { return steps(rows, ROWS); }
INLINE long first_of_tile(long rows, long tile) { return rows * tile / tiles_of(rows); }

/* What a tile asks for while it meets a panel: all of the next one, if it is the only tile of its columns; half of it, if
   it is one of the first two. So weights come from memory all the while, and not only when the first tile waits. */
enum Ask { FOR_NONE, FOR_LEFT, FOR_RIGHT, FOR_ALL };
INLINE enum Ask what_to_ask(long begin, long tile, long end) {
    if (tile == begin) return end - begin == 1 ? FOR_ALL : FOR_LEFT;
    return tile == begin + 1 ? FOR_RIGHT : FOR_NONE;
}

/* At the k-th of `all` steps, each of which meets so many bytes of a panel. */
INLINE void ask_for_next(const char *next, long bytes, long k, long all, enum Ask ask) {
    if (ask == FOR_NONE) return;
    const char *place = next + (ask == FOR_ALL ? k * bytes : (k + (ask == FOR_RIGHT ? all : 0)) * bytes / 2);
    _mm_prefetch(place, _MM_HINT_T1);
    if (ask == FOR_ALL && bytes > 64) _mm_prefetch(place + 64, _MM_HINT_T1);
}

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
