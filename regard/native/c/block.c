/* The blocks of a stack in one call: what `transformer/block.py` says, for vectors that stand side by side. */
#include "parts.h"

#define AT_A_TIME 384 /* tokens: a multiple of the rows of any tile */
#define ENOUGH 8      /* tokens for each thread that are worth the way of all weights to it */

enum Order { POST, PRE, BOTH };

typedef struct {
    int order;
    Norm norm, output_norm;
} Residual;

typedef struct {
    Matrix project; /* to query, key and value; across to a source, to the query alone */
    Matrix output;
    long heads, key_heads, dim;
    float scale;
    int half; /* whether keys and values are rounded to bfloat16 */
    Residual residual;
} Asking;

typedef struct {
    int gated; /* whether `up` gives gates and ups, side by side */
    int activation;
    Matrix up, down;
    Residual residual;
} Feedforward;

typedef struct {
    long model;
    Asking own, across; /* across.project.packed is NULL where there is no source to look at */
    Feedforward feedforward;
} Block;

/* What a batch is: the same for all blocks, but for their caches, which each is given when its turn comes. */
typedef struct {
    long tokens, rows;
    const long *lengths, *first; /* of the rows */
    int causal;
    const float *cosine, *sine; /* tokens × half a head, by which queries and keys are turned, or NULL */
    const float *bias;          /* added to the scores of the row's own attention, or NULL */
    long bias_row, bias_head, bias_query;
    const long *before, *keys; /* of the rows: how many keys their caches held, and how many with the new ones */
    long texts; /* rows of the source; several rows of the batch may look at one */
    const long *source_keys; /* of these: how many */
    const long *asking, *first_asking; /* of the rows, put together if they look at one row of the source */
    long begin, row, text; /* of a share: the numbers of its first token, row and text in the whole */
    Kept own, source;      /* of a block */
} Batch;

/* Each pair (x_i, x_i+half) turned like a point in the plane. */
static void turn(const Batch *b, float *x, long stride, long heads, long dim) {
    long half = dim / 2;
    for (long token = 0; token < b->tokens; token++)
        for (long head = 0; head < heads; head++) {
            float *left = x + token * stride + head * dim, *right = left + half;
            const float *cosine = b->cosine + token * half, *sine = b->sine + token * half;
            for (long d = 0; d < half; d++) {
                float l = left[d], r = right[d];
                left[d] = l * cosine[d] - r * sine[d];
                right[d] = r * cosine[d] + l * sine[d];
            }
        }
}

static void ask_own(const Asking *part, const Batch *b, const float *x, float *answer) {
    long queries = part->heads * part->dim, keys = part->key_heads * part->dim, stride = queries + 2 * keys;
    float *query = scratch(PROJECTED, b->tokens * stride * sizeof(float)), *key = query + queries, *value = key + keys;
    apply(&part->project, b->tokens, x, part->project.inputs, query);
    if (b->cosine) {
        turn(b, query, stride, part->heads, part->dim);
        turn(b, key, stride, part->key_heads, part->dim);
    }
    if (part->half && (b->causal || b->own.key)) round_to_half(b->tokens, 2 * keys, key, stride); /* an encoder keeps none */
    Attention a = {.rows = b->rows, .heads = part->heads, .sharing = part->heads / part->key_heads, .dim = part->dim,
                   .scale = part->scale, .causal = b->causal, .query = query - b->begin * stride,
                   .query_stride = stride, .queries = b->lengths, .first_query = b->first,
                   .key = key - b->begin * stride, .value = value - b->begin * stride, .first_key = b->first,
                   .head_stride = part->dim, .key_stride = stride, .keys = b->lengths, .bias = b->bias,
                   .bias_row = b->bias_row, .bias_head = b->bias_head, .bias_query = b->bias_query,
                   .answer = answer - b->begin * queries};
    const Kept *kept = &b->own;
    if (kept->key) {
        keep(b->rows, part->key_heads, part->dim, b->lengths, b->before, key, stride, kept->key, kept->row_stride,
             kept->head_stride, kept->half);
        keep(b->rows, part->key_heads, part->dim, b->lengths, b->before, value, stride, kept->value, kept->row_stride,
             kept->head_stride, kept->half);
        a.key = kept->key, a.value = kept->value, a.half = kept->half, a.first_key = NULL, a.keys = b->keys;
        a.row_stride = kept->row_stride, a.head_stride = kept->head_stride, a.key_stride = kept->key_stride;
    }
    attend(&a);
}

static void ask_source(const Asking *part, const Batch *b, const float *x, float *answer) {
    long stride = part->heads * part->dim;
    float *query = scratch(PROJECTED, b->tokens * stride * sizeof(float));
    apply(&part->project, b->tokens, x, part->project.inputs, query);
    const Kept *kept = &b->source;
    Attention a = {.rows = b->texts, .heads = part->heads, .sharing = part->heads / part->key_heads, .dim = part->dim,
                   .scale = part->scale, .query = query - b->begin * stride, .query_stride = stride,
                   .queries = b->asking, .first_query = b->first_asking, .key = kept->key, .value = kept->value, .half = kept->half,
                   .row_stride = kept->row_stride, .head_stride = kept->head_stride, .key_stride = kept->key_stride,
                   .keys = b->source_keys, .answer = answer - b->begin * stride};
    attend(&a);
}

/* What a sublayer reads: x, or, where the norm comes first, norm(x). */
static const float *before(const Residual *residual, const Block *block, long tokens, const float *x) {
    if (residual->order == POST) return x;
    float *normal = scratch(NORMAL, tokens * block->model * sizeof(float));
    add_and_normalise(tokens, block->model, x, NULL, &residual->norm, normal);
    return normal;
}

/* x and what a sublayer said of it, connected, in the place of x. */
static void after(const Residual *residual, const Block *block, long tokens, float *x, float *said) {
    if (residual->order == POST) {
        add_and_normalise(tokens, block->model, x, said, &residual->norm, x);
        return;
    }
    if (residual->order == BOTH) add_and_normalise(tokens, block->model, said, NULL, &residual->output_norm, said);
    for (long i = 0; i < tokens * block->model; i++) x[i] += said[i];
}

static void attention(const Asking *part, const Block *block, const Batch *b, float *x, float *said,
                      void (*ask)(const Asking *, const Batch *, const float *, float *)) {
    long size = part->heads * part->dim;
    float *answer = scratch(ANSWERED, b->tokens * size * sizeof(float));
    ask(part, b, before(&part->residual, block, b->tokens, x), answer);
    apply(&part->output, b->tokens, answer, size, said);
    after(&part->residual, block, b->tokens, x, said);
}

static void feedforward(const Feedforward *part, const Block *block, long tokens, float *x, float *said) {
    long inner = part->up.outputs;
    float *up = scratch(PROJECTED, tokens * inner * sizeof(float));
    apply(&part->up, tokens, before(&part->residual, block, tokens, x), block->model, up);
    if (part->gated) {
        float *open = scratch(ANSWERED, tokens * inner / 2 * sizeof(float));
        gate(tokens, inner / 2, up, part->activation, open);
        up = open, inner /= 2;
    }
    apply(&part->down, tokens, up, inner, said);
    after(&part->residual, block, tokens, x, said);
}

/* The vectors of a batch, passed through the block, in their places. The feed-forward layer, which knows no neighbours,
   takes some of them at a time: what it works with, several times as large as they are, stays small and in the caches. */
static void run_share(const Block *block, const Batch *b, float *x) {
    float *said = scratch(SAID, b->tokens * block->model * sizeof(float));
    attention(&block->own, block, b, x, said, ask_own);
    if (block->across.project.packed) attention(&block->across, block, b, x, said, ask_source);
    for (long begin = 0; begin < b->tokens; begin += AT_A_TIME)
        feedforward(&block->feedforward, block, at_most(AT_A_TIME, b->tokens - begin), x + begin * block->model, said);
}

/* The rows that fall to one of some threads, with all that belongs to them. Rows that look at one row of the source stay
   together; a share begins with the first of them that has its part of the tokens, or more, before it. */
static Batch share_of(const Batch *b, int number, int of) {
    long units = b->texts ? b->texts : b->rows, together = b->rows / units;
    long begin = 0, end = 0;
    while (begin < units && b->first[begin * together] * of < b->tokens * number) begin++;
    while (end < units && b->first[end * together] * of < b->tokens * (number + 1)) end++;
    long stop = end * together;
    Batch mine = *b;
    mine.row = begin * together, mine.text = begin;
    mine.begin = mine.row < b->rows ? b->first[mine.row] : b->tokens;
    mine.tokens = (stop < b->rows ? b->first[stop] : b->tokens) - mine.begin;
    mine.rows = stop - mine.row, mine.lengths += mine.row, mine.first += mine.row;
    if (b->bias) mine.bias += mine.row * b->bias_row;
    if (b->keys) mine.before += mine.row, mine.keys += mine.row;
    if (b->texts) mine.texts = end - begin, mine.asking += begin, mine.first_asking += begin;
    if (b->source_keys) mine.source_keys += begin;
    return mine;
}

/* Whether the rows can be shared out so that no thread waits long for another. */
static int is_shared_well(const Batch *b, int of) {
    for (int number = 0; number < of; number++) {
        long tokens = share_of(b, number, of).tokens;
        if (tokens < ENOUGH || 4 * tokens * of > 5 * b->tokens) return 0;
    }
    return of > 1;
}

/* What a cache holds from one of its lines on. */
static Kept from(const Kept *kept, long line) {
    Kept found = *kept;
    long bytes = line * found.row_stride * (found.half ? 2 : 4);
    if (found.key) found.key += bytes, found.value += bytes;
    return found;
}

static void run_blocks(long count, const Block *const *blocks, Batch b, const Kept *own, const Kept *source,
                       const Norm *last, float *x) {
    x += b.begin * blocks[0]->model;
    for (long n = 0; n < count; n++) {
        b.own = from(own + n, b.row), b.source = from(source + n, b.text);
        run_share(blocks[n], &b, x);
    }
    if (last) add_and_normalise(b.tokens, blocks[0]->model, x, NULL, last, x);
}

/* The vectors of a batch that are `given`, passed through some blocks, and through a norm after the last, if there is one.
   Each thread takes its rows through all of them, if it has enough: none waits for another on the way, and what a thread
   reads it has written itself. Else the threads share every product. */
PUBLIC void run_stack(long count, const Block *const *blocks, const Batch *b, const Kept *own, const Kept *source,
                      const Norm *last, const float *given, float *x) {
    int threads = omp_get_max_threads();
    if (x != given) memcpy(x, given, b->tokens * blocks[0]->model * sizeof(float));
    if (!is_shared_well(b, threads)) {
        run_blocks(count, blocks, *b, own, source, last, x);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        Batch mine = share_of(b, omp_get_thread_num(), omp_get_num_threads());
        long half = blocks[0]->own.dim / 2;
        if (b->cosine) mine.cosine += mine.begin * half, mine.sine += mine.begin * half;
        run_blocks(count, blocks, mine, own, source, last, x);
    }
}

/* The next token of some rows, whole: its vectors, passed through all blocks to `x`, and the scores of the vocabulary. Returns
   how many of the tokens there are, up to the first that is not; if that is not all, nothing was done. */
PUBLIC long read_next(const Embedding *embedding, const long *tokens, const float *positions, const long *at, long count,
                      const Block *const *blocks, const Batch *b, const Kept *own, const Kept *source, const Norm *last,
                      const Matrix *vocabulary, float *x, float *scores) {
    long good = embed(embedding, b->tokens, tokens, positions, at, x);
    if (good < b->tokens) return good;
    run_stack(count, blocks, b, own, source, last, x, x);
    apply(vocabulary, b->tokens, x, vocabulary->inputs, scores);
    return good;
}
