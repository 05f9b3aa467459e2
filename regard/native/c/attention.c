/* Attention: softmax(Q·Kᵀ·scale + bias)·V, sequence by sequence and head by head, without padding.

   Queries are packed. Keys and values are packed too, or are in a KV cache: offsets and strides describe either. They
   are float32 or bf16. The last query of a sequence attends to all its keys; if `causal`, each query attends to one key
   less than the query after it. */
#define _DEFAULT_SOURCE /* for madvise */
#include <sys/mman.h>

#include "simd.h"
#include "types.h"

#define MIN_QUERIES_TO_TRANSPOSE 12 /* with fewer queries, transposing the keys costs more than it saves */
#define ATTENTION_TILE 4            /* queries that use a key or a value while it is in registers */
#define MAX_PREFETCH_KEYS 64
#ifdef REGARD_AVX512
#define SCORE_QUERIES ATTENTION_TILE /* queries whose scores with four keys fit into the registers */
#else
#define SCORE_QUERIES 1
#endif

typedef uint32_t __attribute__((may_alias)) FloatBits;

/* Make `count`, 1 to 4, a compile-time constant of the call. */
#define DISPATCH_UP_TO_4(count, call)  \
    switch (count) {                   \
        case 1: call(1); break;        \
        case 2: call(2); break;        \
        case 3: call(3); break;        \
        default: call(ATTENTION_TILE); \
    }

/* Advance a pointer to keys or values by `count` elements. */
INLINE const char *kv_offset(const int bf16, const char *x, long count) { return x + count * (bf16 ? 2 : 4); }

/* min(count, 8) elements of a key or value. */
INLINE f32x8 load_kv_f32x8(const int bf16, const char *x, long count) {
    if (!bf16) return load_partial_f32x8((const float *)x, count);
    __m128i packed = _mm_setzero_si128();
    if (count >= LANES8)
        packed = _mm_loadu_si128((const __m128i *)x);
    else
        memcpy(&packed, x, count * 2);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(packed), 16));
}

INLINE f32x16 load_kv_f32x16(const int bf16, const char *x, long count) {
    if (!bf16) return count >= LANES16 ? load_f32x16((const float *)x) : load_partial_f32x16((const float *)x, count);
    uint16_t packed[LANES16] = {0};
    if (count < LANES16) memcpy(packed, x, count * 2);
    return bf16_to_f32x16(count < LANES16 ? packed : (const uint16_t *)x);
}

/* Accumulate the products of up to 16 elements of each query with each key. */
INLINE void accumulate_scores(const int bf16, const int queries, const int keys, const AttentionArguments *args,
                              const float *query, const char *key, long count,
                              f32x16 sum[ATTENTION_TILE][ATTENTION_TILE]) {
    f32x16 k[ATTENTION_TILE];
#pragma GCC unroll 4
    for (int j = 0; j < keys; j++) k[j] = load_kv_f32x16(bf16, kv_offset(bf16, key, j * args->key_stride), count);
#pragma GCC unroll 4
    for (int q = 0; q < queries; q++) {
        const float *src = query + q * args->query_stride;
        f32x16 x = count >= LANES16 ? load_f32x16(src) : load_partial_f32x16(src, count);
#pragma GCC unroll 4
        for (int j = 0; j < keys; j++) sum[q][j] = fma_f32x16(sum[q][j], x, k[j]);
    }
}

/* The scores of a tile of queries and keys: products, then horizontal sums. It writes four scores for each query, even
   if there are fewer keys. */
INLINE void score_tile(const int bf16, const int queries, const int keys, const AttentionArguments *args,
                       const float *query, const char *key, long padded_keys, float *scores) {
    f32x16 sum[ATTENTION_TILE][ATTENTION_TILE];
#pragma GCC unroll 4
    for (int q = 0; q < queries; q++) sum[q][0] = sum[q][1] = sum[q][2] = sum[q][3] = zero_f32x16();
    long d = 0;
    for (; d + LANES16 <= args->head_dim; d += LANES16)
        accumulate_scores(bf16, queries, keys, args, query + d, kv_offset(bf16, key, d), LANES16, sum);
    if (d < args->head_dim)
        accumulate_scores(bf16, queries, keys, args, query + d, kv_offset(bf16, key, d), args->head_dim - d, sum);
#pragma GCC unroll 4
    for (int q = 0; q < queries; q++)
        _mm_storeu_ps(scores + q * padded_keys, _mm_mul_ps(hsum4_f32x16(sum[q]), _mm_set1_ps(args->scale)));
}

/* Scores of a few queries, with the keys as they are stored. */
INLINE void scores_plain(const int bf16, const int queries, const AttentionArguments *args, const float *query,
                         const char *key, long keys, long padded_keys, float *scores) {
    for (long j = 0; j < keys; j += ATTENTION_TILE, key = kv_offset(bf16, key, ATTENTION_TILE * args->key_stride)) {
#define SCORE(count) score_tile(bf16, queries, count, args, query, key, padded_keys, scores + j)
        DISPATCH_UP_TO_4(keys - j, SCORE)
    }
}

/* The scores of a tile of queries and one or two vectors of transposed keys: `transposed[d * padded_keys + j]`. */
INLINE void score_tile_transposed(const int queries, const int vectors, const AttentionArguments *args,
                                  const float *query, const float *transposed, long padded_keys, float *scores) {
    f32x8 sum[ATTENTION_TILE][2], scale = _mm256_set1_ps(args->scale);
#pragma GCC unroll 4
    for (int q = 0; q < queries; q++) sum[q][0] = sum[q][1] = _mm256_setzero_ps();
    for (long d = 0; d < args->head_dim; d++, transposed += padded_keys) {
        f32x8 low = _mm256_loadu_ps(transposed), high = vectors > 1 ? _mm256_loadu_ps(transposed + LANES8) : low;
#pragma GCC unroll 4
        for (int q = 0; q < queries; q++) {
            f32x8 x = _mm256_broadcast_ss(query + q * args->query_stride + d);
            sum[q][0] = _mm256_fmadd_ps(x, low, sum[q][0]);
            if (vectors > 1) sum[q][1] = _mm256_fmadd_ps(x, high, sum[q][1]);
        }
    }
#pragma GCC unroll 4
    for (int q = 0; q < queries; q++)
        for (int v = 0; v < vectors; v++)
            _mm256_storeu_ps(scores + q * padded_keys + v * LANES8, _mm256_mul_ps(sum[q][v], scale));
}

INLINE void scores_transposed(const int queries, const AttentionArguments *args, const float *query,
                              const float *transposed, long padded_keys, float *scores) {
    long j = 0;
    for (; j + 2 * LANES8 <= padded_keys; j += 2 * LANES8)
        score_tile_transposed(queries, 2, args, query, transposed + j, padded_keys, scores + j);
    if (j < padded_keys) score_tile_transposed(queries, 1, args, query, transposed + j, padded_keys, scores + j);
}

/* keys × head_dim to head_dim × keys. `transposed` has space for head_dim rounded up to a multiple of 8. */
INLINE void transpose_keys(const int bf16, const AttentionArguments *args, const char *key, long keys, long padded_keys,
                           float *transposed) {
    for (long j = 0; j < padded_keys; j += LANES8)
        for (long d = 0; d < args->head_dim; d += LANES8) {
            f32x8 block[LANES8];
            for (int n = 0; n < LANES8; n++)
                block[n] = j + n < keys ? load_kv_f32x8(bf16, kv_offset(bf16, key, (j + n) * args->key_stride + d),
                                                        args->head_dim - d)
                                        : _mm256_setzero_ps();
            transpose_8x8(block);
            for (int n = 0; n < LANES8; n++) _mm256_storeu_ps(transposed + (d + n) * padded_keys + j, block[n]);
        }
}

/* Softmax in place. The weights from `keys` to `padded_keys` become 0. */
static void softmax_row(float *scores, long keys, long padded_keys, const float *bias) {
    f32x8 max_vec = _mm256_set1_ps(-INFINITY);
    for (long j = 0; j < keys; j += LANES8) {
        f32x8 s = load_partial_f32x8(scores + j, keys - j);
        if (bias) s = _mm256_add_ps(s, load_partial_f32x8(bias + j, keys - j));
        if (keys - j < LANES8) s = _mm256_blendv_ps(max_vec, s, _mm256_castsi256_ps(lane_mask8(keys - j)));
        max_vec = _mm256_max_ps(max_vec, s);
        if (bias) store_partial_f32x8(scores + j, s, keys - j);
    }
    f32x8 row_max = _mm256_set1_ps(hmax_f32x8(max_vec)), sum = _mm256_setzero_ps();
    for (long j = 0; j < keys; j += LANES8) {
        f32x8 e = exp_f32x8(_mm256_sub_ps(load_partial_f32x8(scores + j, keys - j), row_max));
        if (keys - j < LANES8) e = _mm256_and_ps(e, _mm256_castsi256_ps(lane_mask8(keys - j)));
        sum = _mm256_add_ps(sum, e);
        _mm256_storeu_ps(scores + j, e);
    }
    f32x8 inverse_sum = _mm256_set1_ps(1.0f / hsum_f32x8(sum));
    for (long j = 0; j < padded_keys; j += LANES8)
        _mm256_storeu_ps(scores + j, j < keys ? _mm256_mul_ps(_mm256_loadu_ps(scores + j), inverse_sum)
                                              : _mm256_setzero_ps());
}

/* `vectors` × 16 elements of the weighted sum of the values; if `count` < 16, only `count` elements. */
INLINE void weighted_sum_part(const int bf16, const int queries, const int vectors, const AttentionArguments *args,
                              const float *weights, long padded_keys, const char *value, long keys, float *output,
                              long count) {
    f32x16 sum[ATTENTION_TILE] = {zero_f32x16(), zero_f32x16(), zero_f32x16(), zero_f32x16()};
    for (long j = 0; j < keys; j++, value = kv_offset(bf16, value, args->key_stride))
#pragma GCC unroll 4
        for (int n = 0; n < vectors; n++) {
            f32x16 v = load_kv_f32x16(bf16, kv_offset(bf16, value, n * LANES16), count);
#pragma GCC unroll 4
            for (int q = 0; q < queries; q++)
                sum[q * vectors + n] =
                    fma_operand(sum[q * vectors + n], broadcast_operand(weights[q * padded_keys + j]), v);
        }
#pragma GCC unroll 4
    for (int q = 0; q < queries; q++)
#pragma GCC unroll 4
        for (int n = 0; n < vectors; n++)
            store_partial_f32x16(output + q * args->heads * args->head_dim + n * LANES16, sum[q * vectors + n], count);
}

INLINE void weighted_sum(const int bf16, const int queries, const AttentionArguments *args, const float *weights,
                         long padded_keys, const char *value, long keys, float *output) {
    const int vectors = ATTENTION_TILE / queries; /* up to four accumulators, so that no FMA waits for another */
    long d = 0;
    for (; d + vectors * LANES16 <= args->head_dim; d += vectors * LANES16)
        weighted_sum_part(bf16, queries, vectors, args, weights, padded_keys, kv_offset(bf16, value, d), keys,
                          output + d, LANES16);
    for (; d + LANES16 <= args->head_dim; d += LANES16)
        weighted_sum_part(bf16, queries, 1, args, weights, padded_keys, kv_offset(bf16, value, d), keys, output + d,
                          LANES16);
    if (d < args->head_dim)
        weighted_sum_part(bf16, queries, 1, args, weights, padded_keys, kv_offset(bf16, value, d), keys, output + d,
                          args->head_dim - d);
}

/* Offset of the keys (and values) of a head, in elements. */
INLINE long kv_head_offset(const AttentionArguments *args, long sequence, long head) {
    return (args->key_offsets ? args->key_offsets[sequence] * args->key_stride : sequence * args->batch_stride) +
           head / args->heads_per_kv_head * args->head_stride;
}

/* Prefetch the keys and values of a head. The hardware prefetcher cannot predict where the next head begins. */
INLINE void prefetch_kv(const int bf16, const AttentionArguments *args, long sequence, long head) {
    long offset = kv_head_offset(args, sequence, head), bytes = args->head_dim * (bf16 ? 2 : 4);
    long stride_bytes = args->key_stride * (bf16 ? 2 : 4);
    const char *key = kv_offset(bf16, args->key, offset), *value = kv_offset(bf16, args->value, offset);
    for (long j = 0; j < min_long(args->key_lengths[sequence], MAX_PREFETCH_KEYS); j++)
        for (long d = 0; d < bytes; d += 64) {
            _mm_prefetch(key + j * stride_bytes + d, _MM_HINT_T1); /* into L2: L1 can have fewer misses in flight */
            _mm_prefetch(value + j * stride_bytes + d, _MM_HINT_T1);
        }
}

INLINE void attend_head(const int bf16, const AttentionArguments *args, long sequence, long head) {
    long queries = args->query_lengths[sequence], keys = args->key_lengths[sequence];
    long padded_keys = ceil_div(keys, LANES8) * LANES8;
    long offset = kv_head_offset(args, sequence, head);
    const char *key = kv_offset(bf16, args->key, offset), *value = kv_offset(bf16, args->value, offset);
    const float *query_head = args->query + args->query_offsets[sequence] * args->query_stride + head * args->head_dim;
    float *weights = scratch(SCRATCH_ATTENTION_WEIGHTS, ATTENTION_TILE * padded_keys * sizeof(float));
    float *transposed =
        queries < MIN_QUERIES_TO_TRANSPOSE
            ? NULL
            : scratch(SCRATCH_TRANSPOSED, ceil_div(args->head_dim, LANES8) * LANES8 * padded_keys * sizeof(float));
    if (head + 1 < args->heads) {
        if ((head + 1) % args->heads_per_kv_head == 0) prefetch_kv(bf16, args, sequence, head + 1);
    } else if (sequence + 1 < args->sequences) {
        prefetch_kv(bf16, args, sequence + 1, 0);
    }
    if (transposed) transpose_keys(bf16, args, key, keys, padded_keys, transposed);
    for (long q0 = 0; q0 < queries; q0 += ATTENTION_TILE) {
        long count = min_long(ATTENTION_TILE, queries - q0), token = args->query_offsets[sequence] + q0;
        const float *query = query_head + q0 * args->query_stride;
#define SCORES_TRANSPOSED(tile) scores_transposed(tile, args, query, transposed, padded_keys, weights)
        if (transposed)
            DISPATCH_UP_TO_4(count, SCORES_TRANSPOSED)
        else
            for (long q = 0; q < count; q += SCORE_QUERIES) {
#define SCORES_PLAIN(tile) \
    scores_plain(bf16, tile, args, query + q * args->query_stride, key, keys, padded_keys, weights + q * padded_keys)
                DISPATCH_UP_TO_4(min_long(SCORE_QUERIES, count - q), SCORES_PLAIN)
            }
        for (long q = q0; q < q0 + count; q++) {
            const float *bias = args->bias ? args->bias + sequence * args->bias_batch_stride +
                                                 head * args->bias_head_stride + q * args->bias_query_stride
                                           : NULL;
            softmax_row(weights + (q - q0) * padded_keys, args->causal ? keys - queries + q + 1 : keys, padded_keys,
                        bias);
        }
#define WEIGHTED_SUM(tile)                                            \
    weighted_sum(bf16, tile, args, weights, padded_keys, value, keys, \
                 args->output + (token * args->heads + head) * args->head_dim)
        DISPATCH_UP_TO_4(count, WEIGHTED_SUM)
    }
}

static void attend_head_dispatch(const AttentionArguments *args, long sequence, long head) {
    if (args->bf16)
        attend_head(1, args, sequence, head);
    else
        attend_head(0, args, sequence, head);
}

PUBLIC void attend(const AttentionArguments *args) {
    double num_operations = 0;
    for (long sequence = 0; sequence < args->sequences; sequence++)
        num_operations +=
            2.0 * args->query_lengths[sequence] * args->key_lengths[sequence] * args->head_dim * args->heads;
#pragma omp parallel for schedule(static) num_threads(threads_for(num_operations))
    for (long task = 0; task < args->sequences * args->heads; task++)
        attend_head_dispatch(args, task / args->heads, task % args->heads);
}

/* Round float32 to the nearest bf16, ties to even, in place. */
PUBLIC void round_to_bf16(long rows, long count, float *x, long stride) {
    for (long row = 0; row < rows; row++, x += stride)
        for (long d = 0; d < count; d += LANES8) {
            f32x8 old = load_partial_f32x8(x + d, count - d);
            __m256i bits = _mm256_castps_si256(old);
            __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
            __m256i sum = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
            f32x8 rounded = _mm256_castsi256_ps(_mm256_and_si256(sum, _mm256_set1_epi32((int)0xffff0000)));
            f32x8 is_nan = _mm256_cmp_ps(old, old, _CMP_UNORD_Q);
            store_partial_f32x8(x + d, _mm256_blendv_ps(rounded, _mm256_set1_ps(NAN), is_nan), count - d);
        }
}

/* Append the keys (or values) of new tokens, tokens × heads × head_dim, to the KV cache. A bf16 cache stores the upper
   16 bits, which is exact for values that were rounded to bf16 before. */
PUBLIC void append_to_cache(long sequences, long heads, long head_dim, const long *lengths, const long *past_lengths,
                            const float *states, long stride, void *cache, long batch_stride, long head_stride,
                            int bf16) {
    for (long sequence = 0; sequence < sequences; sequence++)
        for (long i = 0; i < lengths[sequence]; i++, states += stride)
            for (long head = 0; head < heads; head++) {
                const float *src = states + head * head_dim;
                long offset = sequence * batch_stride + head * head_stride + (past_lengths[sequence] + i) * head_dim;
                if (!bf16) {
                    memcpy((float *)cache + offset, src, head_dim * sizeof(float));
                    continue;
                }
                uint16_t *out = (uint16_t *)cache + offset;
                const FloatBits *bits = (const FloatBits *)src;
                for (long d = 0; d < head_dim; d++) out[d] = (uint16_t)(bits[d] >> 16);
            }
}

/* Release the memory of cache rows that are no longer used, as far as it fills whole pages. */
PUBLIC void release_cache_rows(long layers, const KVCacheView *caches, long count, const long *slots, long page_size) {
    for (long n = 0; n < layers * count; n++) {
        const KVCacheView *cache = caches + n / count;
        if (!cache->key) continue;
        long bytes = cache->batch_stride * (cache->bf16 ? 2 : 4), offset = slots[n % count] * bytes;
        for (int is_value = 0; is_value < 2; is_value++) {
            uintptr_t begin = (uintptr_t)((is_value ? cache->value : cache->key) + offset), end = begin + bytes;
            begin = (begin + page_size - 1) / page_size * page_size, end = end / page_size * page_size;
            if (begin < end) madvise((void *)begin, end - begin, MADV_DONTNEED);
        }
    }
}

static void copy_cache_row(const KVCacheView *source, const KVCacheView *target, long source_row, long target_row,
                           long length) {
    long size = source->bf16 ? 2 : 4, bytes = length * source->key_stride * size;
    for (long head = 0; head < source->heads; head++) {
        long source_offset = (source_row * source->batch_stride + head * source->head_stride) * size;
        long target_offset = (target_row * target->batch_stride + head * target->head_stride) * size;
        memcpy(target->key + target_offset, source->key + source_offset, bytes);
        memcpy(target->value + target_offset, source->value + source_offset, bytes);
    }
}

/* Copy rows of the KV cache, in all layers. `target` may be the same cache if no target row is also a source row. A
   target row receives `lengths[row]` positions. The positions of a head are contiguous. */
PUBLIC void copy_cache_rows(long layers, const KVCacheView *source, const KVCacheView *target, long count,
                            const long *source_rows, const long *target_rows, const long *lengths) {
    double num_operations = 0, operations_per_position = 0;
    for (long n = 0; n < layers; n++) operations_per_position += 32.0 * source[n].heads * source[n].key_stride;
    for (long n = 0; n < count; n++) num_operations += operations_per_position * lengths[target_rows[n]];
#pragma omp parallel for num_threads(threads_for(num_operations))
    for (long n = 0; n < layers * count; n++) {
        long layer = n / count, copy = n % count;
        if (source[layer].key)
            copy_cache_row(source + layer, target + layer, source_rows[copy], target_rows[copy],
                           lengths[target_rows[copy]]);
    }
}
