/* Counter-based random numbers for dropout: 16 bits per value from a seed and the value's index, so the backward pass
   regenerates the mask instead of storing it.

   With `row_keys` (`regard/data/random_keys.py`) the seed of a row is mixed from the key of its token and the seed of the
   module, and the index counts within the row: the mask of a token is the same in any batch. Without, the index counts
   through all rows, as in runs of earlier versions. */
#ifndef REGARD_DROPOUT_RNG_H
#define REGARD_DROPOUT_RNG_H

#include "common.h"

#define DROPOUT_GROUP 16 /* values per call */

typedef struct {
    uint32_t seed_low, seed_high;
    int drop_threshold; /* values whose 16 random bits are below it are dropped; 0: no dropout */
    float scale;        /* of the values that are kept */
    const uint64_t *row_keys; /* one per row, or NULL */
} DropoutRng;

/* The output function of SplitMix64 (Steele et al. 2014). */
INLINE uint64_t mix64(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The generator of one row. `first_group` is the index of its first group; without keys, that of all rows before it. */
INLINE DropoutRng row_rng(const DropoutRng *rng, long row, long groups_per_row, uint32_t *first_group) {
    DropoutRng of_row = *rng;
    *first_group = rng->row_keys ? 0 : (uint32_t)(row * groups_per_row);
    if (rng->row_keys) {
        uint64_t seed = mix64(rng->row_keys[row] ^ ((uint64_t)rng->seed_high << 32 | rng->seed_low));
        of_row.seed_low = (uint32_t)seed, of_row.seed_high = (uint32_t)(seed >> 32);
    }
    return of_row;
}

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
