/* Attention for training, forward and backward: softmax(Q·Kᵀ·scale)·V with dropout of the weights, sequence by sequence
   and head by head.

   Sequences are short, so all weights of a head are held at once; they are recomputed in the backward pass. */
#include "dropout_rng.h"
#include "simd.h"

typedef struct {
    long sequences, heads, head_dim;
    float scale;
    int causal;
    const float *query, *key, *value;
    long query_stride, key_stride, value_stride;                           /* from one token to the next */
    const long *query_lengths, *query_offsets, *key_lengths, *key_offsets; /* per sequence */
    DropoutRng rng;
    long max_key_length;
    float *output; /* queries × heads × head_dim; in the backward pass, its gradient */
    float *query_gradient, *key_gradient, *value_gradient; /* tokens × heads × head_dim, contiguous */
} TrainingAttentionArguments;

/* C = A·B for small matrices. A is a[i * row_stride + k * column_stride]; B and C are row-major. Up to 16 columns. */
INLINE void small_gemm_tile(const int rows, long columns, long depth, const float *a, long row_stride,
                            long column_stride, const float *b, long b_stride, float *c, long c_stride) {
    f32x16 sum[MR];
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) sum[i] = zero_f32x16();
    for (long k = 0; k < depth; k++) {
        f32x16 b_row = load_partial_f32x16(b + k * b_stride, columns);
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++)
            sum[i] = fma_operand(sum[i], broadcast_operand(a[i * row_stride + k * column_stride]), b_row);
    }
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) store_partial_f32x16(c + i * c_stride, sum[i], columns);
}

static void small_gemm(long rows, long columns, long depth, const float *a, long row_stride, long column_stride,
                       const float *b, long b_stride, float *c, long c_stride) {
    for (long j = 0; j < columns; j += LANES16)
        for (long i = 0, height; i < rows; i += height) {
            height = min_long(MR, rows - i);
#define TILE(count)                                                                                            \
    small_gemm_tile(count, columns - j, depth, a + i * row_stride, row_stride, column_stride, b + j, b_stride, \
                    c + i * c_stride + j, c_stride)
            DISPATCH_ROWS(height, TILE)
        }
}

/* One head of one sequence. */
typedef struct {
    long queries, keys, padded_keys; /* padded to a multiple of 16 */
    const float *query, *key, *value;
    long head, first_query; /* index of the first query in the batch */
    long dropout_groups;    /* per query, without keys */
    uint32_t first_dropout_group;
} HeadView;

/* With keys, the groups of a head begin here: more than any sequence has keys / 16. */
#define DROPOUT_GROUPS_PER_HEAD (1 << 16)

static HeadView head_view(const TrainingAttentionArguments *args, long sequence, long head) {
    long queries = args->query_lengths[sequence], keys = args->key_lengths[sequence];
    HeadView h = {queries, keys, ceil_div(keys, LANES16) * LANES16, NULL, NULL, NULL, head, args->query_offsets[sequence], 0, 0};
    h.query = args->query + args->query_offsets[sequence] * args->query_stride + head * args->head_dim;
    h.key = args->key + args->key_offsets[sequence] * args->key_stride + head * args->head_dim;
    h.value = args->value + args->key_offsets[sequence] * args->value_stride + head * args->head_dim;
    h.dropout_groups = ceil_div(args->max_key_length, DROPOUT_GROUP);
    h.first_dropout_group =
        (uint32_t)((args->query_offsets[sequence] * args->heads + head * h.queries) * h.dropout_groups);
    return h;
}

/* Queries are processed in blocks. A block skips keys that none of its queries can attend to; within the padded keys of
   a block, the weights of masked keys are 0. */
#define QUERY_BLOCK 12

INLINE long visible_keys(const TrainingAttentionArguments *args, const HeadView *h, long query) {
    return args->causal ? h->keys - h->queries + query + 1 : h->keys;
}

INLINE long visible_keys_of_block(const TrainingAttentionArguments *args, const HeadView *h, long begin) {
    return visible_keys(args, h, min_long(h->queries, begin + QUERY_BLOCK) - 1);
}

INLINE long padded_visible_keys(const TrainingAttentionArguments *args, const HeadView *h, long query) {
    return ceil_div(visible_keys_of_block(args, h, query / QUERY_BLOCK * QUERY_BLOCK), LANES16) * LANES16;
}

/* The dot products of queries and keys: x is queries × head_dim, `transposed` head_dim × keys. */
static void query_key_products(const TrainingAttentionArguments *args, const HeadView *h, const float *x, long stride,
                               const float *transposed, float *out) {
    for (long i = 0; i < h->queries; i += QUERY_BLOCK)
        small_gemm(min_long(QUERY_BLOCK, h->queries - i), padded_visible_keys(args, h, i), args->head_dim,
                   x + i * stride, stride, 1, transposed, h->padded_keys, out + i * h->padded_keys, h->padded_keys);
}

/* out[query] = Σ over keys of weight · x[key] */
static void weighted_sum_over_keys(const TrainingAttentionArguments *args, const HeadView *h, const float *weights,
                                   const float *x, long stride, float *out) {
    long out_stride = args->heads * args->head_dim;
    for (long i = 0; i < h->queries; i += QUERY_BLOCK)
        small_gemm(min_long(QUERY_BLOCK, h->queries - i), args->head_dim, visible_keys_of_block(args, h, i),
                   weights + i * h->padded_keys, h->padded_keys, 1, x, stride, out + i * out_stride, out_stride);
}

/* out[key] = Σ over queries that can attend to the key of weight · x[query] */
static void weighted_sum_over_queries(const TrainingAttentionArguments *args, const HeadView *h, const float *weights,
                                      const float *x, long stride, float *out) {
    long out_stride = args->heads * args->head_dim;
    for (long j = 0; j < h->keys; j += LANES16) {
        long first_query = args->causal ? max_long(0, j - (h->keys - h->queries)) : 0;
        small_gemm(min_long(LANES16, h->keys - j), args->head_dim, h->queries - first_query,
                   weights + first_query * h->padded_keys + j, 1, h->padded_keys, x + first_query * stride, stride,
                   out + j * out_stride, out_stride);
    }
}

/* keys × head_dim to head_dim × keys. */
static void transpose_keys(const TrainingAttentionArguments *args, const HeadView *h, const float *x, long stride,
                           float *transposed) {
    for (long j = 0; j < h->padded_keys; j += LANES8)
        for (long d = 0; d < args->head_dim; d += LANES8) {
            f32x8 block[LANES8];
            for (int n = 0; n < LANES8; n++)
                block[n] = j + n < h->keys ? _mm256_loadu_ps(x + (j + n) * stride + d) : _mm256_setzero_ps();
            transpose_8x8(block);
            for (int n = 0; n < LANES8; n++) _mm256_storeu_ps(transposed + (d + n) * h->padded_keys + j, block[n]);
        }
}

/* Softmax of the scores of all queries; masked keys get weight 0. */
static void attention_weights(const TrainingAttentionArguments *args, const HeadView *h, const float *transposed,
                              float *weights) {
    query_key_products(args, h, h->query, args->query_stride, transposed, weights);
    for (long i = 0; i < h->queries; i++) {
        float *w = weights + i * h->padded_keys;
        long visible = visible_keys(args, h, i), padded = padded_visible_keys(args, h, i);
        float row_max = max_f32(visible, w);
        f32x8 scale = _mm256_set1_ps(args->scale), scaled_max = _mm256_set1_ps(row_max * args->scale);
        f32x8 sum = _mm256_setzero_ps();
        for (long j = 0; j < padded; j += LANES8) {
            f32x8 e = exp_f32x8(_mm256_fmsub_ps(_mm256_loadu_ps(w + j), scale, scaled_max));
            if (visible - j < LANES8)
                e = j < visible ? _mm256_and_ps(e, _mm256_castsi256_ps(lane_mask8(visible - j))) : _mm256_setzero_ps();
            sum = _mm256_add_ps(sum, e);
            _mm256_storeu_ps(w + j, e);
        }
        f32x8 inverse_sum = _mm256_set1_ps(1.0f / hsum_f32x8(sum));
        for (long j = 0; j < padded; j += LANES8)
            _mm256_storeu_ps(w + j, _mm256_mul_ps(_mm256_loadu_ps(w + j), inverse_sum));
    }
}

/* Dropout of weights, or of their gradients. */
static void dropout_weights(const TrainingAttentionArguments *args, const HeadView *h, const float *weights,
                            float *out) {
    for (long i = 0; i < h->queries; i++) {
        uint32_t first_group;
        DropoutRng of_query = row_rng(&args->rng, h->first_query + i, 0, &first_group);
        first_group = args->rng.row_keys ? (uint32_t)(h->head * DROPOUT_GROUPS_PER_HEAD)
                                         : h->first_dropout_group + (uint32_t)(i * h->dropout_groups);
        for (long j = 0; j < padded_visible_keys(args, h, i); j += DROPOUT_GROUP)
            dropout_group(&of_query, first_group + (uint32_t)(j / DROPOUT_GROUP), weights + i * h->padded_keys + j,
                          DROPOUT_GROUP, out + i * h->padded_keys + j);
    }
}

static void forward_head(const TrainingAttentionArguments *args, long sequence, long head) {
    HeadView h = head_view(args, sequence, head);
    float *transposed = scratch(SCRATCH_TRANSPOSED, args->head_dim * h.padded_keys * sizeof(float));
    float *weights = scratch(SCRATCH_ATTENTION_WEIGHTS, h.queries * h.padded_keys * sizeof(float));
    transpose_keys(args, &h, h.key, args->key_stride, transposed);
    attention_weights(args, &h, transposed, weights);
    if (args->rng.drop_threshold) dropout_weights(args, &h, weights, weights);
    long offset = args->query_offsets[sequence] * args->heads * args->head_dim + head * args->head_dim;
    weighted_sum_over_keys(args, &h, weights, h.value, args->value_stride, args->output + offset);
}

static void backward_head(const TrainingAttentionArguments *args, long sequence, long head) {
    HeadView h = head_view(args, sequence, head);
    long size = h.queries * h.padded_keys, stride = args->heads * args->head_dim;
    float *transposed = scratch(SCRATCH_TRANSPOSED, args->head_dim * h.padded_keys * sizeof(float));
    float *weights = scratch(SCRATCH_ATTENTION_WEIGHTS, 3 * size * sizeof(float));
    float *dropped_weights = weights, *weight_grad = weights + 2 * size;
    const float *gradient = args->output + args->query_offsets[sequence] * stride + head * args->head_dim;
    long query_offset = args->query_offsets[sequence] * stride + head * args->head_dim;
    long key_offset = args->key_offsets[sequence] * stride + head * args->head_dim;
    transpose_keys(args, &h, h.key, args->key_stride, transposed);
    attention_weights(args, &h, transposed, weights);
    if (args->rng.drop_threshold) dropout_weights(args, &h, weights, dropped_weights = weights + size);
    weighted_sum_over_queries(args, &h, dropped_weights, gradient, stride, args->value_gradient + key_offset);
    transpose_keys(args, &h, h.value, args->value_stride, transposed);
    query_key_products(args, &h, gradient, stride, transposed, weight_grad);
    if (args->rng.drop_threshold) dropout_weights(args, &h, weight_grad, weight_grad);
    for (long i = 0; i < h.queries; i++) { /* gradient of the scores: weight · (weight_grad - mean) · scale */
        float *w = weights + i * h.padded_keys, *g = weight_grad + i * h.padded_keys;
        long padded = padded_visible_keys(args, &h, i);
        f32x8 mean = _mm256_setzero_ps(), scale = _mm256_set1_ps(args->scale);
        for (long j = 0; j < padded; j += LANES8)
            mean = _mm256_fmadd_ps(_mm256_loadu_ps(w + j), _mm256_loadu_ps(g + j), mean);
        mean = _mm256_set1_ps(hsum_f32x8(mean));
        for (long j = 0; j < padded; j += LANES8) {
            f32x8 centered = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(g + j), mean), scale);
            _mm256_storeu_ps(g + j, _mm256_mul_ps(_mm256_loadu_ps(w + j), centered));
        }
    }
    weighted_sum_over_keys(args, &h, weight_grad, h.key, args->key_stride, args->query_gradient + query_offset);
    weighted_sum_over_queries(args, &h, weight_grad, h.query, args->query_stride, args->key_gradient + key_offset);
}

static double num_operations(const TrainingAttentionArguments *args) {
    double sum = 0;
    for (long sequence = 0; sequence < args->sequences; sequence++)
        sum += 4.0 * args->query_lengths[sequence] * args->key_lengths[sequence] * args->head_dim * args->heads;
    return sum;
}

PUBLIC void training_attention_forward(const TrainingAttentionArguments *args) {
#pragma omp parallel for schedule(dynamic, 8) num_threads(threads_for(num_operations(args)))
    for (long task = 0; task < args->sequences * args->heads; task++)
        forward_head(args, task / args->heads, task % args->heads);
}

/* The same dropout for weights that are sequences × heads × queries × keys in memory; `row_keys` has one key per query of
   all sequences. The backward pass is the same function of the gradient. */
PUBLIC void dropout_attention(long sequences, long heads, long queries, long keys, const float *weights,
                              const DropoutRng *rng, float *out) {
#pragma omp parallel for num_threads(threads_for(4.0 * sequences * heads * queries * keys))
    for (long row = 0; row < sequences * heads * queries; row++) {
        uint32_t first_group, head = (uint32_t)(row / queries % heads);
        DropoutRng of_query = row_rng(rng, row / queries / heads * queries + row % queries, 0, &first_group);
        for (long j = 0; j < keys; j += DROPOUT_GROUP)
            dropout_group(&of_query, head * DROPOUT_GROUPS_PER_HEAD + (uint32_t)(j / DROPOUT_GROUP),
                          weights + row * keys + j, keys - j, out + row * keys + j);
    }
}

/* The gradients of queries, keys and values from the gradient of the output. */
PUBLIC void training_attention_backward(const TrainingAttentionArguments *args) {
#pragma omp parallel for schedule(dynamic, 8) num_threads(threads_for(num_operations(args)))
    for (long task = 0; task < args->sequences * args->heads; task++)
        backward_head(args, task / args->heads, task % args->heads);
}
