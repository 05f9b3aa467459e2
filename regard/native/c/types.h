/* C structs shared with `native/ctypes_structs.py`, field by field, and functions that several files use. */
#ifndef REGARD_TYPES_H
#define REGARD_TYPES_H

#include "activation.h"

/* One linear layer: weights packed in panels, float32 or int8. */
typedef struct {
    long outputs, inputs;
    const void *packed;
    const float *scale; /* per output channel; NULL: the panels are float32 */
    const float *bias;  /* or NULL */
    int activation;
} PackedMatrix;

typedef struct {
    const float *weight; /* NULL: there is no such norm */
    const float *bias;   /* or NULL */
    float epsilon;
    int is_layer_norm; /* otherwise RMSNorm */
} Norm;

/* Keys and values are packed, sequence after sequence, or are in a KV cache [rows, heads, capacity, head_dim]. */
typedef struct {
    long sequences, heads, heads_per_kv_head; /* grouped-query attention: query heads that share one key-value head */
    long head_dim;
    float scale;
    int causal; /* the last query of a sequence attends to all its keys, each other one to one key less than the next */
    const float *query;
    long query_stride;         /* from one query to the next */
    const long *query_lengths; /* per sequence */
    const long *query_offsets; /* per sequence: its first query */
    const void *key, *value;
    int bf16;                /* otherwise keys and values are float32 */
    const long *key_offsets; /* per sequence: its first key; NULL: KV cache */
    long batch_stride, head_stride, key_stride; /* of keys and values, in elements */
    const long *key_lengths;                    /* per sequence */
    const float *bias;                          /* added to the attention scores, or NULL */
    long bias_batch_stride, bias_head_stride, bias_query_stride;
    float *output; /* queries × heads × head_dim */
} AttentionArguments;

/* The KV cache of one layer; it owns nothing. The lengths of its sequences are the same in all layers. */
typedef struct {
    char *key, *value; /* NULL: there is no cache */
    int bf16;          /* otherwise float32 */
    long heads, batch_stride, head_stride, key_stride;
} KVCacheView;

typedef struct {
    long dim, vocabulary;
    const void *table;       /* vocabulary × dim; float32, or int8 if there are row_scales */
    const float *row_scales; /* per token, or NULL */
    float scale;             /* multiplies the embedding */
    const Norm *norm;        /* or NULL */
} Embedding;

PUBLIC long embed(const Embedding *embedding, long count, const long *tokens, const float *position_table,
                  const long *position_ids, float *output);
PUBLIC void packed_linear(const PackedMatrix *b, long rows, const float *a, long stride, float *c);
void gemm_int8(const PackedMatrix *b, long rows, const float *a, long stride, float *c);
PUBLIC void add_norm(long rows, long dim, const float *x, const float *sublayer_output, const Norm *norm, float *out);
PUBLIC void gated_activation(long rows, long dim, const float *x, int activation, float *out);
PUBLIC void attend(const AttentionArguments *args);
PUBLIC void append_to_cache(long sequences, long heads, long head_dim, const long *lengths, const long *past_lengths,
                            const float *states, long stride, void *cache, long batch_stride, long head_stride,
                            int bf16);
PUBLIC void round_to_bf16(long rows, long count, float *x, long stride);

#endif
