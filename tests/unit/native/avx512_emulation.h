/* AVX-512 for CPUs without it: the intrinsics that the sources use, emulated with pairs of AVX2 registers. */
#include <immintrin.h>
#include <stdint.h>

typedef union {
    __m256 floats[2];
    __m256i ints[2];
} Emulated512;

#define __m512 Emulated512
#define __m512i Emulated512
#define BOTH_HALVES(field, ...) \
    ((Emulated512){.field = {({ const int h = 0; __VA_ARGS__; }), ({ const int h = 1; __VA_ARGS__; })}})

#define _mm512_setzero_ps() BOTH_HALVES(floats, (void)h, _mm256_setzero_ps())
#define _mm512_loadu_ps(x) BOTH_HALVES(floats, _mm256_loadu_ps((x) + 8 * h))
#define __mmask16 uint32_t
/* One half of a bit mask as a lane mask: selected lanes have all bits set. */
static inline __m256i emulated_lanes(uint32_t mask, int h) {
    const __m256i lane_bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    __m256i bits = _mm256_and_si256(_mm256_set1_epi32((int)(mask >> 8 * h)), lane_bits);
    return _mm256_cmpgt_epi32(bits, _mm256_setzero_si256());
}
#define _mm512_maskz_loadu_ps(mask, x) BOTH_HALVES(floats, _mm256_maskload_ps((x) + 8 * h, emulated_lanes(mask, h)))
static inline void emulated_mask_storeu_ps(float *out, uint32_t mask, Emulated512 x) {
    for (int h = 0; h < 2; h++) _mm256_maskstore_ps(out + 8 * h, emulated_lanes(mask, h), x.floats[h]);
}
#define _mm512_mask_storeu_ps emulated_mask_storeu_ps
#define _mm512_set1_ps(x) BOTH_HALVES(floats, (void)h, _mm256_set1_ps(x))
#define _mm512_setzero_si512() BOTH_HALVES(ints, (void)h, _mm256_setzero_si256())
#define _mm512_set1_epi32(x) BOTH_HALVES(ints, (void)h, _mm256_set1_epi32(x))

static inline Emulated512 emulated_fmadd_ps(Emulated512 a, Emulated512 b, Emulated512 c) {
    return BOTH_HALVES(floats, _mm256_fmadd_ps(a.floats[h], b.floats[h], c.floats[h]));
}
static inline Emulated512 emulated_add_ps(Emulated512 a, Emulated512 b) {
    return BOTH_HALVES(floats, _mm256_add_ps(a.floats[h], b.floats[h]));
}
static inline Emulated512 emulated_mul_ps(Emulated512 a, Emulated512 b) {
    return BOTH_HALVES(floats, _mm256_mul_ps(a.floats[h], b.floats[h]));
}
static inline Emulated512 emulated_cvtepi32_ps(Emulated512 x) {
    return BOTH_HALVES(floats, _mm256_cvtepi32_ps(x.ints[h]));
}
static inline Emulated512 emulated_sub_epi32(Emulated512 a, Emulated512 b) {
    return BOTH_HALVES(ints, _mm256_sub_epi32(a.ints[h], b.ints[h]));
}
/* u8·s8 dot products of four values, as vpdpbusd computes them: widened to 16 bits, in two halves. */
static inline __m256i emulated_dot4(__m256i a, __m256i b) {
    __m256i low = _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm256_castsi256_si128(a)),
                                    _mm256_cvtepi8_epi16(_mm256_castsi256_si128(b)));
    __m256i high = _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm256_extracti128_si256(a, 1)),
                                     _mm256_cvtepi8_epi16(_mm256_extracti128_si256(b, 1)));
    return _mm256_permute4x64_epi64(_mm256_hadd_epi32(low, high), 0xd8);
}
static inline Emulated512 emulated_dpbusd_epi32(Emulated512 sum, Emulated512 a, Emulated512 b) {
    return BOTH_HALVES(ints, _mm256_add_epi32(sum.ints[h], emulated_dot4(a.ints[h], b.ints[h])));
}
static inline Emulated512 emulated_max_ps(Emulated512 a, Emulated512 b) {
    return BOTH_HALVES(floats, _mm256_max_ps(a.floats[h], b.floats[h]));
}
static inline Emulated512 emulated_slli_epi32(Emulated512 x, int bits) {
    return BOTH_HALVES(ints, _mm256_slli_epi32(x.ints[h], bits));
}
static inline float emulated_reduce(Emulated512 x, int is_max) {
    float lanes[16], result;
    for (int h = 0; h < 2; h++) _mm256_storeu_ps(lanes + 8 * h, x.floats[h]);
    result = lanes[0];
    for (int n = 1; n < 16; n++) result = !is_max ? result + lanes[n] : result > lanes[n] ? result : lanes[n];
    return result;
}
static inline int32_t emulated_reduce_epi32(Emulated512 x) {
    int32_t lanes[16], result = 0;
    for (int h = 0; h < 2; h++) _mm256_storeu_si256((__m256i *)lanes + h, x.ints[h]);
    for (int n = 0; n < 16; n++) result += lanes[n];
    return result;
}
/* y·2^n; lanes that are not in the mask become 0. */
static inline __m256 emulated_scalef_ps256(uint32_t mask, __m256 y, __m256 n) {
    float values[8], powers[8];
    _mm256_storeu_ps(values, y), _mm256_storeu_ps(powers, n);
    for (int i = 0; i < 8; i++) values[i] = mask >> i & 1 ? values[i] * __builtin_exp2f(powers[i]) : 0;
    return _mm256_loadu_ps(values);
}
static inline Emulated512 emulated_scalef_ps(Emulated512 y, Emulated512 n) {
    return BOTH_HALVES(floats, emulated_scalef_ps256(255, y.floats[h], n.floats[h]));
}
static inline Emulated512 emulated_sub_ps(Emulated512 a, Emulated512 b) {
    return BOTH_HALVES(floats, _mm256_sub_ps(a.floats[h], b.floats[h]));
}
static inline Emulated512 emulated_abs_ps(Emulated512 x) {
    return BOTH_HALVES(floats, _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x.floats[h]));
}
static inline Emulated512 emulated_add_epi32(Emulated512 a, Emulated512 b) {
    return BOTH_HALVES(ints, _mm256_add_epi32(a.ints[h], b.ints[h]));
}
static inline Emulated512 emulated_cvtps_epi32(Emulated512 x) {
    return BOTH_HALVES(ints, _mm256_cvtps_epi32(x.floats[h]));
}
static inline __m128i emulated_cvtsepi32_epi8(Emulated512 x) {
    __m256i interleaved = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.ints[0], x.ints[1]), 0xd8);
    return _mm_packs_epi16(_mm256_castsi256_si128(interleaved), _mm256_extracti128_si256(interleaved, 1));
}
#define _mm512_roundscale_ps(x, mode) \
    ({ Emulated512 operand = x; BOTH_HALVES(floats, _mm256_round_ps(operand.floats[h], mode)); })
#define _mm512_scalef_ps emulated_scalef_ps
#define _mm512_sub_ps emulated_sub_ps
#define _mm512_abs_ps emulated_abs_ps
#define _mm512_add_epi32 emulated_add_epi32
#define _mm512_cvtps_epi32 emulated_cvtps_epi32
#define _mm512_cvtsepi32_epi8 emulated_cvtsepi32_epi8
#define _mm512_reduce_add_epi32 emulated_reduce_epi32
#define _mm256_cmp_ps_mask(x, y, mode) ((uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(x, y, mode)))
#define _mm256_roundscale_ps _mm256_round_ps
#define _mm256_maskz_scalef_ps emulated_scalef_ps256
#define _mm512_max_ps emulated_max_ps
#define _mm512_reduce_max_ps(x) emulated_reduce(x, 1)
#define _mm512_reduce_add_ps(x) emulated_reduce(x, 0)
#define _mm512_slli_epi32 emulated_slli_epi32
#define _mm512_cvtepu16_epi32(x) BOTH_HALVES(ints, _mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, h)))
#define _mm512_castsi512_ps(x) (x)
#define _mm512_castps_pd(x) (x)
#define _mm512_extractf64x4_pd(x, h) _mm256_castps_pd((x).floats[h])
#define _mm512_castps512_ps256(x) ((x).floats[0])
#define _mm512_sub_epi32 emulated_sub_epi32
#define _mm512_dpbusd_epi32 emulated_dpbusd_epi32
#define _mm512_loadu_si512(x) BOTH_HALVES(ints, _mm256_loadu_si256((const __m256i *)(x) + h))
#define _mm512_fmadd_ps emulated_fmadd_ps
#define _mm512_add_ps emulated_add_ps
#define _mm512_mul_ps emulated_mul_ps
#define _mm512_cvtepi32_ps emulated_cvtepi32_ps
