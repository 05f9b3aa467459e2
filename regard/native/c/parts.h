/* The parts of a block, as `engine/block.py` describes them. */
#ifndef REGARD_PARTS_H
#define REGARD_PARTS_H

#include "activation.h"

/* A matrix in panels, of floats or of bytes. */
typedef struct {
    long outputs, inputs;
    const void *packed;
    const float *scale; /* of one level, for each output; NULL if the panels are floats */
    const float *bias;  /* or NULL */
    int activation;
} Matrix;

typedef struct {
    const float *weight; /* NULL: there is no such norm */
    const float *bias;   /* or NULL */
    float epsilon;
    int centred; /* LayerNorm; if not, RMSNorm */
} Norm;

/* Attention of rows of queries to keys and values that stand side by side or in the rectangles of a cache. */
typedef struct {
    long rows, heads, sharing; /* so many heads of queries share one of keys */
    long dim;                  /* of a head */
    float scale;
    int causal; /* the last query of a row sees all its keys, each one before it one key less */
    const float *query;
    long query_stride;       /* from one query to the next */
    const long *queries;     /* of each row: how many */
    const long *first_query; /* of each row: where its queries begin */
    const void *key, *value;
    int half; /* whether they are bfloat16; if not, float32 */
    const long *first_key; /* of each row: where its keys and values begin; NULL if they stand in rectangles */
    long row_stride, head_stride, key_stride; /* of keys and values: from one row, head, place to the next */
    const long *keys;                         /* of each row: how many */
    const float *bias;                        /* added to the scores, or NULL: a matrix for each row and head */
    long bias_row, bias_head, bias_query;
    float *answer; /* queries × heads × dim */
} Attention;

/* Keys and values that a layer's cache holds, in rectangles. How far its rows are filled is the same for all layers. */
typedef struct {
    char *key, *value; /* NULL: there is no cache */
    int half;          /* whether they are bfloat16; if not, float32 */
    long heads, row_stride, head_stride, key_stride;
} Kept;

/* What tokens are before the first block. */
typedef struct {
    long dim, vocabulary;
    const void *table;   /* lines of numbers or, if there are scales, of levels */
    const float *scales; /* of a level, for each token, or NULL */
    float by;            /* what numbers are multiplied by */
    const Norm *norm;    /* or NULL */
} Embedding;

PUBLIC long embed(const Embedding *embedding, long count, const long *tokens, const float *positions, const long *at,
                  float *found);
PUBLIC void apply(const Matrix *matrix, long rows, const float *x, long stride, float *to);
PUBLIC void add_and_normalise(long rows, long dim, const float *x, const float *said, const Norm *norm, float *to);
PUBLIC void gate(long rows, long dim, const float *x, int activation, float *to);
PUBLIC void attend(const Attention *a);
PUBLIC void keep(long rows, long heads, long dim, const long *lengths, const long *before, const float *new, long stride,
          void *kept, long row_stride, long head_stride, int half);
PUBLIC void round_to_half(long rows, long count, float *x, long stride);

#endif
