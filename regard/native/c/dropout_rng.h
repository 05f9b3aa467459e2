/* Counter-based random numbers for dropout: 16 bits per value from a seed and the value's index, so the backward pass
   regenerates the mask instead of storing it. */
#ifndef REGARD_DROPOUT_RNG_H
#define REGARD_DROPOUT_RNG_H

#include "common.h"

#define DROPOUT_GROUP 16 /* values per call */

typedef struct {
    uint32_t seed_low, seed_high;
    int drop_threshold; /* values whose 16 random bits are below it are dropped; 0: no dropout */
    float scale;        /* of the values that are kept */
} DropoutRng;

/* Every bit of x affects every bit of the result (the finalizer of MurmurHash3, Appleby 2011). */
INLINE __m256i fmix32(__m256i x) {
    x = _mm256_mullo_epi32(_mm256_xor_si256(x, _mm256_srli_epi32(x, 16)), _mm256_set1_epi32((int)0x85ebca6b));
    x = _mm256_mullo_epi32(_mm256_xor_si256(x, _mm256_srli_epi32(x, 13)), _mm256_set1_epi32((int)0xc2b2ae35));
    return _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
}

/* The dropout mask of the 16 values of a group: lanes of kept values have all bits set, the others none. */
INLINE void keep_mask(const DropoutRng *rng, uint32_t group, __m256i *low, __m256i *high) {
    __m256i counter = _mm256_add_epi32(_mm256_set1_epi32((int)(group * 8)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256i random = fmix32(_mm256_xor_si256(counter, _mm256_set1_epi32((int)rng->seed_low)));
    random = fmix32(_mm256_add_epi32(random, _mm256_set1_epi32((int)rng->seed_high)));
    __m256i threshold = _mm256_set1_epi16((short)rng->drop_threshold);
    __m256i keep = _mm256_cmpeq_epi16(_mm256_max_epu16(random, threshold), random);
    *low = _mm256_cvtepi16_epi32(_mm256_castsi256_si128(keep));
    *high = _mm256_cvtepi16_epi32(_mm256_extracti128_si256(keep, 1));
}

/* Dropout of min(count, 16) values. */
INLINE void dropout_group(const DropoutRng *rng, uint32_t group, const float *x, long count, float *out) {
    __m256i low, high;
    f32x8 scale = _mm256_set1_ps(rng->scale);
    keep_mask(rng, group, &low, &high);
    f32x8 low_scaled = _mm256_mul_ps(load_partial_f32x8(x, count), scale);
    store_partial_f32x8(out, _mm256_and_ps(low_scaled, _mm256_castsi256_ps(low)), count);
    if (count > LANES8) {
        f32x8 high_scaled = _mm256_mul_ps(load_partial_f32x8(x + LANES8, count - LANES8), scale);
        store_partial_f32x8(out + LANES8, _mm256_and_ps(high_scaled, _mm256_castsi256_ps(high)), count - LANES8);
    }
}

#endif
