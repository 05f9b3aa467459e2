/* Chance for dropout: sixteen bits for each value, from a seed and the value's number alone, so that the way back draws
   the same again instead of remembering it. */
#ifndef REGARD_CHANCE_H
#define REGARD_CHANCE_H

#include "common.h"

typedef struct {
    uint32_t low, high; /* the seed */
    int dropped;        /* of 65536 values */
    float scale;        /* of those that stay */
} Chance;

/* Every bit of x moves every bit of the result (the last step of MurmurHash3, Appleby 2011). */
INLINE __m256i mixed(__m256i x) {
    x = _mm256_mullo_epi32(_mm256_xor_si256(x, _mm256_srli_epi32(x, 16)), _mm256_set1_epi32((int)0x85ebca6b));
    x = _mm256_mullo_epi32(_mm256_xor_si256(x, _mm256_srli_epi32(x, 13)), _mm256_set1_epi32((int)0xc2b2ae35));
    return _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
}

/* Which of sixteen values stay, the `number`-th such group: all bits of the two vectors' lanes, or none. */
INLINE void stay(const Chance *chance, uint32_t number, __m256i *left, __m256i *right) {
    __m256i count = _mm256_add_epi32(_mm256_set1_epi32((int)(number * 8)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256i drawn = mixed(_mm256_xor_si256(count, _mm256_set1_epi32((int)chance->low)));
    drawn = mixed(_mm256_add_epi32(drawn, _mm256_set1_epi32((int)chance->high)));
    __m256i least = _mm256_set1_epi16((short)chance->dropped);
    __m256i kept = _mm256_cmpeq_epi16(_mm256_max_epu16(drawn, least), drawn);
    *left = _mm256_cvtepi16_epi32(_mm256_castsi256_si128(kept));
    *right = _mm256_cvtepi16_epi32(_mm256_extracti128_si256(kept, 1));
}

/* Sixteen values, or as many as there are, dropped or scaled. */
INLINE void drop_group(const Chance *chance, uint32_t number, const float *x, long count, float *to) {
    __m256i left, right;
    vec scale = _mm256_set1_ps(chance->scale);
    stay(chance, number, &left, &right);
    store(to, _mm256_and_ps(_mm256_mul_ps(load(x, count), scale), _mm256_castsi256_ps(left)), count);
    if (count > WIDE) {
        vec other = _mm256_mul_ps(load(x + WIDE, count - WIDE), scale);
        store(to + WIDE, _mm256_and_ps(other, _mm256_castsi256_ps(right)), count - WIDE);
    }
}

#endif
