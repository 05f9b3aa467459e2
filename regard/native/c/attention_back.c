/* Attention in training: softmax(Q·Kᵀ·scale)·V with dropout of the weights, and its gradients, row by row and head by head.

   Rows are short, so all of a head's weights are held at once, and computed again on the way back. */
#include "chance.h"
#include "sixteen.h"

typedef struct {
    long rows, heads, dim;
    float scale;
    int causal;
    const float *query, *key, *value;
    long query_stride, key_stride, value_stride; /* from one token to the next */
    const long *queries, *first_query, *keys, *first_key; /* of each row: how many, and where they begin */
    Chance chance; /* dropped: 0 for none */
    long longest;  /* of the rows of keys */
    float *answer; /* queries × heads × dim; on the way back, its gradient */
    float *query_gradient, *key_gradient, *value_gradient; /* tokens × heads × dim, all of them contiguous */
} Training;

/* C = A·B for small matrices: a[i * down + k * right], rows of B and C in order. A tile has up to sixteen columns. */
INLINE void tile(const int rows, long columns, long depth, const float *a, long down, long right, const float *b,
                 long b_stride, float *c, long c_stride) {
    Floats sum[ROWS];
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) sum[i] = no_floats();
    for (long k = 0; k < depth; k++) {
        Floats row = load_some(b + k * b_stride, columns);
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++) sum[i] = add_product(sum[i], all_floats(a[i * down + k * right]), row);
    }
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) store_some(c + i * c_stride, sum[i], columns);
}

static void small_product(long rows, long columns, long depth, const float *a, long down, long right, const float *b,
                          long b_stride, float *c, long c_stride) {
    for (long j = 0; j < columns; j += COLUMNS)
        for (long i = 0, height; i < rows; i += height) {
            height = at_most(ROWS, rows - i);
#define TILE(count) tile(count, columns - j, depth, a + i * down, down, right, b + j, b_stride, c + i * c_stride + j, c_stride)
            FOR_EACH_COUNT(height, TILE)
        }
}

/* One head of one row, and where its numbers are. */
typedef struct {
    long queries, keys, room; /* room: the keys, up to the next multiple of 16 */
    const float *query, *key, *value;
    long groups; /* of chance, for each query */
    uint32_t first_group;
} Head;

static Head head_of(const Training *t, long row, long head) {
    Head h = {t->queries[row], t->keys[row], steps(t->keys[row], COLUMNS) * COLUMNS, NULL, NULL, NULL, 0, 0};
    h.query = t->query + t->first_query[row] * t->query_stride + head * t->dim;
    h.key = t->key + t->first_key[row] * t->key_stride + head * t->dim;
    h.value = t->value + t->first_key[row] * t->value_stride + head * t->dim;
    h.groups = steps(t->longest, COLUMNS);
    h.first_group = (uint32_t)((t->first_query[row] * t->heads + head * h.queries) * h.groups);
    return h;
}

/* Queries go in blocks, and a block has nothing to do with keys that none of it sees. Within its room, weights of keys that
   a query does not see are 0. */
#define BLOCK 12

INLINE long seen_by(const Training *t, const Head *h, long query) {
    return t->causal ? h->keys - h->queries + query + 1 : h->keys;
}

INLINE long seen_by_block(const Training *t, const Head *h, long begin) {
    return seen_by(t, h, at_most(h->queries, begin + BLOCK) - 1);
}

INLINE long room_of(const Training *t, const Head *h, long query) {
    return steps(seen_by_block(t, h, query / BLOCK * BLOCK), COLUMNS) * COLUMNS;
}

/* The products of each query with each key: x is queries × dim, `turned` dim × keys. */
static void products(const Training *t, const Head *h, const float *x, long stride, const float *turned, float *to) {
    for (long i = 0; i < h->queries; i += BLOCK)
        small_product(at_most(BLOCK, h->queries - i), room_of(t, h, i), t->dim, x + i * stride, stride, 1, turned, h->room,
                      to + i * h->room, h->room);
}

/* For each query the sum of some vector of each key, with weights. */
static void sum_for_queries(const Training *t, const Head *h, const float *weights, const float *x, long stride, float *to) {
    long across = t->heads * t->dim;
    for (long i = 0; i < h->queries; i += BLOCK)
        small_product(at_most(BLOCK, h->queries - i), t->dim, seen_by_block(t, h, i), weights + i * h->room, h->room, 1, x,
                      stride, to + i * across, across);
}

/* For each key the sum of some vector of each query that sees it, with weights. */
static void sum_for_keys(const Training *t, const Head *h, const float *weights, const float *x, long stride, float *to) {
    long across = t->heads * t->dim;
    for (long j = 0; j < h->keys; j += COLUMNS) {
        long from = t->causal ? at_least(0, j - (h->keys - h->queries)) : 0;
        small_product(at_most(COLUMNS, h->keys - j), t->dim, h->queries - from, weights + from * h->room + j, 1, h->room,
                      x + from * stride, stride, to + j * across, across);
    }
}

/* keys × dim becomes dim × keys. */
static void turn(const Training *t, const Head *h, const float *x, long stride, float *turned) {
    for (long j = 0; j < h->room; j += WIDE)
        for (long d = 0; d < t->dim; d += WIDE) {
            vec block[WIDE];
            for (int n = 0; n < WIDE; n++)
                block[n] = j + n < h->keys ? _mm256_loadu_ps(x + (j + n) * stride + d) : _mm256_setzero_ps();
            turn_block(block);
            for (int n = 0; n < WIDE; n++) _mm256_storeu_ps(turned + (d + n) * h->room + j, block[n]);
        }
}

/* The weights of all queries: softmax of the scores, 0 where nothing is seen. */
static void weigh(const Training *t, const Head *h, const float *turned, float *weights) {
    products(t, h, h->query, t->query_stride, turned, weights);
    for (long i = 0; i < h->queries; i++) {
        float *w = weights + i * h->room;
        long seen = seen_by(t, h, i), room = room_of(t, h, i);
        float top = largest(seen, w);
        vec by = _mm256_set1_ps(t->scale), most = _mm256_set1_ps(top * t->scale), whole = _mm256_setzero_ps();
        for (long j = 0; j < room; j += WIDE) {
            vec e = exponential(_mm256_fmsub_ps(_mm256_loadu_ps(w + j), by, most));
            if (seen - j < WIDE) e = j < seen ? _mm256_and_ps(e, _mm256_castsi256_ps(first(seen - j))) : _mm256_setzero_ps();
            whole = _mm256_add_ps(whole, e);
            _mm256_storeu_ps(w + j, e);
        }
        vec factor = _mm256_set1_ps(1.0f / sum_of(whole));
        for (long j = 0; j < room; j += WIDE) _mm256_storeu_ps(w + j, _mm256_mul_ps(_mm256_loadu_ps(w + j), factor));
    }
}

/* Dropout of weights, or of their gradients. */
static void drop_weights(const Training *t, const Head *h, const float *weights, float *to) {
    for (long i = 0; i < h->queries; i++)
        for (long j = 0; j < room_of(t, h, i); j += 16)
            drop_group(&t->chance, h->first_group + (uint32_t)(i * h->groups + j / 16), weights + i * h->room + j, 16,
                       to + i * h->room + j);
}

static void forward_one(const Training *t, long row, long head) {
    Head h = head_of(t, row, head);
    float *turned = scratch(TURNED, t->dim * h.room * sizeof(float));
    float *weights = scratch(WEIGHTS, h.queries * h.room * sizeof(float));
    turn(t, &h, h.key, t->key_stride, turned);
    weigh(t, &h, turned, weights);
    if (t->chance.dropped) drop_weights(t, &h, weights, weights);
    long at = t->first_query[row] * t->heads * t->dim + head * t->dim;
    sum_for_queries(t, &h, weights, h.value, t->value_stride, t->answer + at);
}

static void back_one(const Training *t, long row, long head) {
    Head h = head_of(t, row, head);
    long size = h.queries * h.room, stride = t->heads * t->dim;
    float *turned = scratch(TURNED, t->dim * h.room * sizeof(float));
    float *weights = scratch(WEIGHTS, 3 * size * sizeof(float)), *used = weights, *slope = weights + 2 * size;
    const float *gradient = t->answer + t->first_query[row] * stride + head * t->dim;
    long at_query = t->first_query[row] * stride + head * t->dim, at_key = t->first_key[row] * stride + head * t->dim;
    turn(t, &h, h.key, t->key_stride, turned);
    weigh(t, &h, turned, weights);
    if (t->chance.dropped) drop_weights(t, &h, weights, used = weights + size);
    sum_for_keys(t, &h, used, gradient, stride, t->value_gradient + at_key);
    turn(t, &h, h.value, t->value_stride, turned);
    products(t, &h, gradient, stride, turned, slope);
    if (t->chance.dropped) drop_weights(t, &h, slope, slope);
    for (long i = 0; i < h.queries; i++) { /* of the scores: weight · (slope - mean slope) · scale */
        float *w = weights + i * h.room, *s = slope + i * h.room;
        long room = room_of(t, &h, i);
        vec mean = _mm256_setzero_ps(), by = _mm256_set1_ps(t->scale);
        for (long j = 0; j < room; j += WIDE) mean = _mm256_fmadd_ps(_mm256_loadu_ps(w + j), _mm256_loadu_ps(s + j), mean);
        mean = _mm256_set1_ps(sum_of(mean));
        for (long j = 0; j < room; j += WIDE) {
            vec off = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(s + j), mean), by);
            _mm256_storeu_ps(s + j, _mm256_mul_ps(_mm256_loadu_ps(w + j), off));
        }
    }
    sum_for_queries(t, &h, slope, h.key, t->key_stride, t->query_gradient + at_query);
    sum_for_keys(t, &h, slope, h.query, t->query_stride, t->key_gradient + at_key);
}

static double work(const Training *t) {
    double sum = 0;
    for (long row = 0; row < t->rows; row++) sum += 4.0 * t->queries[row] * t->keys[row] * t->dim * t->heads;
    return sum;
}

/* The answers to all queries. */
PUBLIC void attend_in_training(const Training *t) {
#pragma omp parallel for schedule(dynamic, 8) num_threads(threads_for(work(t)))
    for (long both = 0; both < t->rows * t->heads; both++) forward_one(t, both / t->heads, both % t->heads);
}

/* The gradients of queries, keys and values, from that of the answers. */
PUBLIC void attend_back(const Training *t) {
#pragma omp parallel for schedule(dynamic, 8) num_threads(threads_for(work(t)))
    for (long both = 0; both < t->rows * t->heads; both++) back_one(t, both / t->heads, both % t->heads);
}
