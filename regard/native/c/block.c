/* A stack of transformer blocks in one call: the same computation as `transformer/block.py`, on a packed batch. */
#include "types.h"

#define FEEDFORWARD_CHUNK 384   /* tokens: a multiple of MR */
#define MIN_TOKENS_PER_THREAD 8 /* with fewer, it does not pay that each thread reads all weights */

enum NormOrder { POST, PRE, BOTH };

typedef struct {
    int order;
    Norm norm, output_norm;
} Residual;

typedef struct {
    PackedMatrix project; /* to query, key and value; in cross-attention, to the query alone */
    PackedMatrix output;
    long heads, key_value_heads, head_dim;
    float scale;
    int bf16; /* round keys and values to bf16 */
    Residual residual;
} AttentionLayer;

typedef struct {
    int gated; /* each output of `up` holds the gates, then the ups */
    int activation;
    PackedMatrix up, down;
    Residual residual;
} Feedforward;

typedef struct {
    long model_dim;
    AttentionLayer self_attention, cross_attention; /* cross_attention.project.packed is NULL if there is no source */
    Feedforward feedforward;
} Block;

/* A packed batch. It is the same for all blocks, except for the caches, which are set before each block. */
typedef struct {
    long tokens, sequences;
    const long *lengths, *offsets; /* per sequence */
    int causal;
    const float *cosine, *sine; /* rotary embedding, tokens × head_dim / 2, or NULL */
    const float *bias;          /* added to the self-attention scores, or NULL */
    long bias_batch_stride, bias_head_stride, bias_query_stride;
    const long *past_lengths, *key_lengths; /* per sequence: keys in the cache before, and with the new ones */
    long source_sequences;                  /* several sequences of the batch (beams) may share one */
    const long *source_lengths;             /* per source sequence */
    const long *cross_query_lengths, *cross_query_offsets; /* per source sequence: the queries that attend to it */
    long first_token, first_sequence, first_source;        /* of a thread's part: its indices in the whole batch */
    KVCacheView self_cache, cross_cache;                   /* of the current block */
} Batch;

/* Rotate each pair (x_i, x_i+half). */
static void apply_rotary(const Batch *batch, float *x, long stride, long heads, long head_dim) {
    long half_dim = head_dim / 2;
    for (long token = 0; token < batch->tokens; token++)
        for (long head = 0; head < heads; head++) {
            float *low = x + token * stride + head * head_dim, *high = low + half_dim;
            const float *cosine = batch->cosine + token * half_dim, *sine = batch->sine + token * half_dim;
            for (long d = 0; d < half_dim; d++) {
                float l = low[d], h = high[d];
                low[d] = l * cosine[d] - h * sine[d];
                high[d] = h * cosine[d] + l * sine[d];
            }
        }
}

static void self_attention(const AttentionLayer *layer, const Batch *batch, const float *x, float *output) {
    long query_dim = layer->heads * layer->head_dim, key_dim = layer->key_value_heads * layer->head_dim;
    long stride = query_dim + 2 * key_dim;
    float *query = scratch(SCRATCH_PROJECTION, batch->tokens * stride * sizeof(float));
    float *key = query + query_dim, *value = key + key_dim;
    packed_linear(&layer->project, batch->tokens, x, layer->project.inputs, query);
    if (batch->cosine) {
        apply_rotary(batch, query, stride, layer->heads, layer->head_dim);
        apply_rotary(batch, key, stride, layer->key_value_heads, layer->head_dim);
    }
    if (layer->bf16 && (batch->causal || batch->self_cache.key)) /* an encoder has no cache */
        round_to_bf16(batch->tokens, 2 * key_dim, key, stride);
    AttentionArguments args = {.sequences = batch->sequences,
                               .heads = layer->heads,
                               .heads_per_kv_head = layer->heads / layer->key_value_heads,
                               .head_dim = layer->head_dim,
                               .scale = layer->scale,
                               .causal = batch->causal,
                               .query = query - batch->first_token * stride,
                               .query_stride = stride,
                               .query_lengths = batch->lengths,
                               .query_offsets = batch->offsets,
                               .key = key - batch->first_token * stride,
                               .value = value - batch->first_token * stride,
                               .key_offsets = batch->offsets,
                               .head_stride = layer->head_dim,
                               .key_stride = stride,
                               .key_lengths = batch->lengths,
                               .bias = batch->bias,
                               .bias_batch_stride = batch->bias_batch_stride,
                               .bias_head_stride = batch->bias_head_stride,
                               .bias_query_stride = batch->bias_query_stride,
                               .output = output - batch->first_token * query_dim};
    const KVCacheView *cache = &batch->self_cache;
    if (cache->key) {
        append_to_cache(batch->sequences, layer->key_value_heads, layer->head_dim, batch->lengths, batch->past_lengths,
                        key, stride, cache->key, cache->batch_stride, cache->head_stride, cache->bf16);
        append_to_cache(batch->sequences, layer->key_value_heads, layer->head_dim, batch->lengths, batch->past_lengths,
                        value, stride, cache->value, cache->batch_stride, cache->head_stride, cache->bf16);
        args.key = cache->key, args.value = cache->value, args.bf16 = cache->bf16;
        args.key_offsets = NULL, args.key_lengths = batch->key_lengths;
        args.batch_stride = cache->batch_stride, args.head_stride = cache->head_stride;
        args.key_stride = cache->key_stride;
    }
    attend(&args);
}

static void cross_attention(const AttentionLayer *layer, const Batch *batch, const float *x, float *output) {
    long stride = layer->heads * layer->head_dim;
    float *query = scratch(SCRATCH_PROJECTION, batch->tokens * stride * sizeof(float));
    packed_linear(&layer->project, batch->tokens, x, layer->project.inputs, query);
    const KVCacheView *cache = &batch->cross_cache;
    AttentionArguments args = {.sequences = batch->source_sequences,
                               .heads = layer->heads,
                               .heads_per_kv_head = layer->heads / layer->key_value_heads,
                               .head_dim = layer->head_dim,
                               .scale = layer->scale,
                               .query = query - batch->first_token * stride,
                               .query_stride = stride,
                               .query_lengths = batch->cross_query_lengths,
                               .query_offsets = batch->cross_query_offsets,
                               .key = cache->key,
                               .value = cache->value,
                               .bf16 = cache->bf16,
                               .batch_stride = cache->batch_stride,
                               .head_stride = cache->head_stride,
                               .key_stride = cache->key_stride,
                               .key_lengths = batch->source_lengths,
                               .output = output - batch->first_token * stride};
    attend(&args);
}

/* The input of a sublayer: x or, with pre-norm, norm(x). */
static const float *sublayer_input(const Residual *residual, const Block *block, long tokens, const float *x) {
    if (residual->order == POST) return x;
    float *normed = scratch(SCRATCH_NORMED, tokens * block->model_dim * sizeof(float));
    add_norm(tokens, block->model_dim, x, NULL, &residual->norm, normed);
    return normed;
}

/* The residual connection, in place of x. */
static void residual_add(const Residual *residual, const Block *block, long tokens, float *x, float *sublayer_output) {
    if (residual->order == POST) {
        add_norm(tokens, block->model_dim, x, sublayer_output, &residual->norm, x);
        return;
    }
    if (residual->order == BOTH)
        add_norm(tokens, block->model_dim, sublayer_output, NULL, &residual->output_norm, sublayer_output);
    for (long i = 0; i < tokens * block->model_dim; i++) x[i] += sublayer_output[i];
}

static void attention_sublayer(const AttentionLayer *layer, const Block *block, const Batch *batch, float *x,
                               float *sublayer_output,
                               void (*attend_fn)(const AttentionLayer *, const Batch *, const float *, float *)) {
    long size = layer->heads * layer->head_dim;
    float *output = scratch(SCRATCH_INNER, batch->tokens * size * sizeof(float));
    attend_fn(layer, batch, sublayer_input(&layer->residual, block, batch->tokens, x), output);
    packed_linear(&layer->output, batch->tokens, output, size, sublayer_output);
    residual_add(&layer->residual, block, batch->tokens, x, sublayer_output);
}

static void feedforward_sublayer(const Feedforward *layer, const Block *block, long tokens, float *x,
                                 float *sublayer_output) {
    long inner = layer->up.outputs;
    float *up = scratch(SCRATCH_PROJECTION, tokens * inner * sizeof(float));
    packed_linear(&layer->up, tokens, sublayer_input(&layer->residual, block, tokens, x), block->model_dim, up);
    if (layer->gated) {
        float *gated = scratch(SCRATCH_INNER, tokens * inner / 2 * sizeof(float));
        gated_activation(tokens, inner / 2, up, layer->activation, gated);
        up = gated, inner /= 2;
    }
    packed_linear(&layer->down, tokens, up, inner, sublayer_output);
    residual_add(&layer->residual, block, tokens, x, sublayer_output);
}

/* One block, in place. The feed-forward layer treats tokens independently, so it runs in chunks: its activations,
   several times as large as x, stay small enough for the caches. */
static void run_block(const Block *block, const Batch *batch, float *x) {
    float *sublayer_output = scratch(SCRATCH_SUBLAYER_OUTPUT, batch->tokens * block->model_dim * sizeof(float));
    attention_sublayer(&block->self_attention, block, batch, x, sublayer_output, self_attention);
    if (block->cross_attention.project.packed)
        attention_sublayer(&block->cross_attention, block, batch, x, sublayer_output, cross_attention);
    for (long begin = 0; begin < batch->tokens; begin += FEEDFORWARD_CHUNK)
        feedforward_sublayer(&block->feedforward, block, min_long(FEEDFORWARD_CHUNK, batch->tokens - begin),
                             x + begin * block->model_dim, sublayer_output);
}

/* The part of the batch that one thread runs. Sequences that share a source stay together. A part begins with the first
   source that has at least thread / threads of all tokens before it. */
static Batch thread_batch(const Batch *batch, int thread, int threads) {
    long sources = batch->source_sequences ? batch->source_sequences : batch->sequences;
    long sequences_per_source = batch->sequences / sources;
    long begin = 0, end = 0;
    while (begin < sources && batch->offsets[begin * sequences_per_source] * threads < batch->tokens * thread) begin++;
    while (end < sources && batch->offsets[end * sequences_per_source] * threads < batch->tokens * (thread + 1)) end++;
    long end_sequence = end * sequences_per_source;
    Batch local = *batch;
    local.first_sequence = begin * sequences_per_source, local.first_source = begin;
    local.first_token =
        local.first_sequence < batch->sequences ? batch->offsets[local.first_sequence] : batch->tokens;
    local.tokens =
        (end_sequence < batch->sequences ? batch->offsets[end_sequence] : batch->tokens) - local.first_token;
    local.sequences = end_sequence - local.first_sequence;
    local.lengths += local.first_sequence, local.offsets += local.first_sequence;
    if (batch->bias) local.bias += local.first_sequence * batch->bias_batch_stride;
    if (batch->key_lengths) local.past_lengths += local.first_sequence, local.key_lengths += local.first_sequence;
    if (batch->source_sequences)
        local.source_sequences = end - begin, local.cross_query_lengths += begin, local.cross_query_offsets += begin;
    if (batch->source_lengths) local.source_lengths += begin;
    return local;
}

/* Whether the sequences can be split so that no thread waits long for another. */
static int is_balanced(const Batch *batch, int threads) {
    for (int thread = 0; thread < threads; thread++) {
        long tokens = thread_batch(batch, thread, threads).tokens;
        if (tokens < MIN_TOKENS_PER_THREAD || 4 * tokens * threads > 5 * batch->tokens) return 0;
    }
    return threads > 1;
}

static KVCacheView cache_from_row(const KVCacheView *cache, long row) {
    KVCacheView view = *cache;
    long bytes = row * view.batch_stride * (view.bf16 ? 2 : 4);
    if (view.key) view.key += bytes, view.value += bytes;
    return view;
}

static void run_blocks(long count, const Block *const *blocks, Batch batch, const KVCacheView *self_caches,
                       const KVCacheView *cross_caches, const Norm *final_norm, float *x) {
    x += batch.first_token * blocks[0]->model_dim;
    for (long n = 0; n < count; n++) {
        batch.self_cache = cache_from_row(self_caches + n, batch.first_sequence);
        batch.cross_cache = cache_from_row(cross_caches + n, batch.first_source);
        run_block(blocks[n], &batch, x);
    }
    if (final_norm) add_norm(batch.tokens, blocks[0]->model_dim, x, NULL, final_norm, x);
}

/* Run a batch through a stack of blocks, and through the final norm if there is one. If every thread gets enough
   tokens, each runs its sequences through all blocks: it waits for no other thread in between, and reads only what it
   wrote itself. Otherwise the threads share every GEMM. */
PUBLIC void run_stack(long count, const Block *const *blocks, const Batch *batch, const KVCacheView *self_caches,
                      const KVCacheView *cross_caches, const Norm *final_norm, const float *input, float *x) {
    int threads = omp_get_max_threads();
    if (x != input) memcpy(x, input, batch->tokens * blocks[0]->model_dim * sizeof(float));
    if (!is_balanced(batch, threads)) {
        run_blocks(count, blocks, *batch, self_caches, cross_caches, final_norm, x);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        Batch local = thread_batch(batch, omp_get_thread_num(), omp_get_num_threads());
        long half_dim = blocks[0]->self_attention.head_dim / 2;
        if (batch->cosine) local.cosine += local.first_token * half_dim, local.sine += local.first_token * half_dim;
        run_blocks(count, blocks, local, self_caches, cross_caches, final_norm, x);
    }
}

/* One decode step: embedding, all blocks (to `x`), logits. Returns the number of tokens. If a token id is out of range,
   it returns the index of that token and computes nothing else. */
PUBLIC long decode_step(const Embedding *embedding, const long *tokens, const float *position_table,
                        const long *position_ids, long count, const Block *const *blocks, const Batch *batch,
                        const KVCacheView *self_caches, const KVCacheView *cross_caches, const Norm *final_norm,
                        const PackedMatrix *lm_head, float *x, float *logits) {
    long valid_tokens = embed(embedding, batch->tokens, tokens, position_table, position_ids, x);
    if (valid_tokens < batch->tokens) return valid_tokens;
    run_stack(count, blocks, batch, self_caches, cross_caches, final_norm, x, x);
    packed_linear(lm_head, batch->tokens, x, lm_head->inputs, logits);
    return valid_tokens;
}
