/* Registers of 512 bits on a CPU that has none: what `sixteen.h` uses of them, as two registers of 256. */
#include <immintrin.h>
#include <stdint.h>

typedef union {
    __m256 floats[2];
    __m256i whole[2];
} Wide;

#define __m512 Wide
#define __m512i Wide
#define BOTH(field, ...) ((Wide){.field = {({ const int h = 0; __VA_ARGS__; }), ({ const int h = 1; __VA_ARGS__; })}})

#define _mm512_setzero_ps() BOTH(floats, (void)h, _mm256_setzero_ps())
#define _mm512_loadu_ps(x) BOTH(floats, _mm256_loadu_ps((x) + 8 * h))
#define __mmask16 uint32_t
static inline __m256i emulated_lanes(uint32_t mask, int h) { /* all bits of the lanes that a mask names */
    __m256i bits = _mm256_and_si256(_mm256_set1_epi32((int)(mask >> 8 * h)), _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128));
    return _mm256_cmpgt_epi32(bits, _mm256_setzero_si256());
}
#define _mm512_maskz_loadu_ps(mask, x) BOTH(floats, _mm256_maskload_ps((x) + 8 * h, emulated_lanes(mask, h)))
static inline void emulated_mask_storeu_ps(float *to, uint32_t mask, Wide x) {
    for (int h = 0; h < 2; h++) _mm256_maskstore_ps(to + 8 * h, emulated_lanes(mask, h), x.floats[h]);
}
#define _mm512_mask_storeu_ps emulated_mask_storeu_ps
#define _mm512_set1_ps(x) BOTH(floats, (void)h, _mm256_set1_ps(x))
#define _mm512_setzero_si512() BOTH(whole, (void)h, _mm256_setzero_si256())
#define _mm512_set1_epi32(x) BOTH(whole, (void)h, _mm256_set1_epi32(x))

static inline Wide emulated_fmadd_ps(Wide a, Wide b, Wide c) {
    return BOTH(floats, _mm256_fmadd_ps(a.floats[h], b.floats[h], c.floats[h]));
}
static inline Wide emulated_add_ps(Wide a, Wide b) { return BOTH(floats, _mm256_add_ps(a.floats[h], b.floats[h])); }
static inline Wide emulated_mul_ps(Wide a, Wide b) { return BOTH(floats, _mm256_mul_ps(a.floats[h], b.floats[h])); }
static inline Wide emulated_cvtepi32_ps(Wide x) { return BOTH(floats, _mm256_cvtepi32_ps(x.whole[h])); }
static inline Wide emulated_sub_epi32(Wide a, Wide b) { return BOTH(whole, _mm256_sub_epi32(a.whole[h], b.whole[h])); }
/* Four bytes without a sign times four with one, as sixteen bits, in two halves. */
static inline __m256i emulated_four(__m256i a, __m256i b) {
    __m256i low = _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm256_castsi256_si128(a)),
                                    _mm256_cvtepi8_epi16(_mm256_castsi256_si128(b)));
    __m256i high = _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm256_extracti128_si256(a, 1)),
                                     _mm256_cvtepi8_epi16(_mm256_extracti128_si256(b, 1)));
    return _mm256_permute4x64_epi64(_mm256_hadd_epi32(low, high), 0xd8);
}
static inline Wide emulated_dpbusd_epi32(Wide sum, Wide a, Wide b) {
    return BOTH(whole, _mm256_add_epi32(sum.whole[h], emulated_four(a.whole[h], b.whole[h])));
}
static inline Wide emulated_max_ps(Wide a, Wide b) { return BOTH(floats, _mm256_max_ps(a.floats[h], b.floats[h])); }
static inline Wide emulated_slli_epi32(Wide x, int by) { return BOTH(whole, _mm256_slli_epi32(x.whole[h], by)); }
static inline float emulated_reduce(Wide x, int most) {
    float lanes[16], found;
    for (int h = 0; h < 2; h++) _mm256_storeu_ps(lanes + 8 * h, x.floats[h]);
    found = lanes[0];
    for (int n = 1; n < 16; n++) found = !most ? found + lanes[n] : found > lanes[n] ? found : lanes[n];
    return found;
}
static inline int32_t emulated_reduce_whole(Wide x) {
    int32_t lanes[16], found = 0;
    for (int h = 0; h < 2; h++) _mm256_storeu_si256((__m256i *)lanes + h, x.whole[h]);
    for (int n = 0; n < 16; n++) found += lanes[n];
    return found;
}
/* y·2^n, and 0 in lanes that the mask does not name. */
static inline __m256 emulated_eight_scaled(uint32_t mask, __m256 y, __m256 n) {
    float numbers[8], powers[8];
    _mm256_storeu_ps(numbers, y), _mm256_storeu_ps(powers, n);
    for (int i = 0; i < 8; i++) numbers[i] = mask >> i & 1 ? numbers[i] * __builtin_exp2f(powers[i]) : 0;
    return _mm256_loadu_ps(numbers);
}
static inline Wide emulated_scalef_ps(Wide y, Wide n) {
    return BOTH(floats, emulated_eight_scaled(255, y.floats[h], n.floats[h]));
}
static inline Wide emulated_sub_ps(Wide a, Wide b) { return BOTH(floats, _mm256_sub_ps(a.floats[h], b.floats[h])); }
static inline Wide emulated_abs_ps(Wide x) { return BOTH(floats, _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x.floats[h])); }
static inline Wide emulated_add_epi32(Wide a, Wide b) { return BOTH(whole, _mm256_add_epi32(a.whole[h], b.whole[h])); }
static inline Wide emulated_cvtps_epi32(Wide x) { return BOTH(whole, _mm256_cvtps_epi32(x.floats[h])); }
static inline __m128i emulated_cvtsepi32_epi8(Wide x) {
    __m256i mixed = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.whole[0], x.whole[1]), 0xd8);
    return _mm_packs_epi16(_mm256_castsi256_si128(mixed), _mm256_extracti128_si256(mixed, 1));
}
#define _mm512_roundscale_ps(x, how) ({ Wide given = x; BOTH(floats, _mm256_round_ps(given.floats[h], how)); })
#define _mm512_scalef_ps emulated_scalef_ps
#define _mm512_sub_ps emulated_sub_ps
#define _mm512_abs_ps emulated_abs_ps
#define _mm512_add_epi32 emulated_add_epi32
#define _mm512_cvtps_epi32 emulated_cvtps_epi32
#define _mm512_cvtsepi32_epi8 emulated_cvtsepi32_epi8
#define _mm512_reduce_add_epi32 emulated_reduce_whole
#define _mm256_cmp_ps_mask(x, y, how) ((uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(x, y, how)))
#define _mm256_roundscale_ps _mm256_round_ps
#define _mm256_maskz_scalef_ps emulated_eight_scaled
#define _mm512_max_ps emulated_max_ps
#define _mm512_reduce_max_ps(x) emulated_reduce(x, 1)
#define _mm512_reduce_add_ps(x) emulated_reduce(x, 0)
#define _mm512_slli_epi32 emulated_slli_epi32
#define _mm512_cvtepu16_epi32(x) BOTH(whole, _mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, h)))
#define _mm512_castsi512_ps(x) (x)
#define _mm512_castps_pd(x) (x)
#define _mm512_extractf64x4_pd(x, h) _mm256_castps_pd((x).floats[h])
#define _mm512_castps512_ps256(x) ((x).floats[0])
#define _mm512_sub_epi32 emulated_sub_epi32
#define _mm512_dpbusd_epi32 emulated_dpbusd_epi32
#define _mm512_loadu_si512(x) BOTH(whole, _mm256_loadu_si256((const __m256i *)(x) + h))
#define _mm512_fmadd_ps emulated_fmadd_ps
#define _mm512_add_ps emulated_add_ps
#define _mm512_mul_ps emulated_mul_ps
#define _mm512_cvtepi32_ps emulated_cvtepi32_ps
