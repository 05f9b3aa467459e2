/* Attention in training: softmax(Q·Kᵀ·scale)·V with dropout of the weights, and its gradients, row by row and head by head.

   Rows are short, so all of a head's weights are held at once, and computed again on the way back. */
#include "chance.h"

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

/* C = A·B for small matrices: a[i * down + k * right], rows of B and C in order; columns are a multiple of 8, and there
   is room for them. */
INLINE void tile(const int rows, long depth, const float *a, long down, long right, const float *b, long b_stride,
                 float *c, long c_stride, const int vectors) {
    vec sum[4][2];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) sum[i][0] = sum[i][1] = _mm256_setzero_ps();
    for (long k = 0; k < depth; k++) {
        vec b0 = _mm256_loadu_ps(b + k * b_stride), b1 = vectors > 1 ? _mm256_loadu_ps(b + k * b_stride + WIDE) : b0;
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
            vec x = _mm256_broadcast_ss(a + i * down + k * right);
            sum[i][0] = _mm256_fmadd_ps(x, b0, sum[i][0]);
            if (vectors > 1) sum[i][1] = _mm256_fmadd_ps(x, b1, sum[i][1]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
        _mm256_storeu_ps(c + i * c_stride, sum[i][0]);
        if (vectors > 1) _mm256_storeu_ps(c + i * c_stride + WIDE, sum[i][1]);
    }
}

static void small_product(long rows, long columns, long depth, const float *a, long down, long right, const float *b,
                          long b_stride, float *c, long c_stride) {
    for (long j = 0; j < columns; j += 2 * WIDE)
        for (long i = 0; i < rows; i += 4) {
            const float *ai = a + i * down, *bj = b + j;
            float *cij = c + i * c_stride + j;
            int both = columns - j > WIDE;
            switch (at_most(4, rows - i) * 2 + both) {
                case 2: tile(1, depth, ai, down, right, bj, b_stride, cij, c_stride, 1); break;
                case 3: tile(1, depth, ai, down, right, bj, b_stride, cij, c_stride, 2); break;
                case 4: tile(2, depth, ai, down, right, bj, b_stride, cij, c_stride, 1); break;
                case 5: tile(2, depth, ai, down, right, bj, b_stride, cij, c_stride, 2); break;
                case 6: tile(3, depth, ai, down, right, bj, b_stride, cij, c_stride, 1); break;
                case 7: tile(3, depth, ai, down, right, bj, b_stride, cij, c_stride, 2); break;
                case 8: tile(4, depth, ai, down, right, bj, b_stride, cij, c_stride, 1); break;
                default: tile(4, depth, ai, down, right, bj, b_stride, cij, c_stride, 2);
            }
        }
}

/* One head of one row, and where its numbers are. */
typedef struct {
    long queries, keys, room; /* room: the keys, up to the next multiple of 8 */
    const float *query, *key, *value;
    long groups; /* of chance, for each query */
    uint32_t first_group;
} Head;

static Head head_of(const Training *t, long row, long head) {
    Head h = {t->queries[row], t->keys[row], steps(t->keys[row], WIDE) * WIDE, NULL, NULL, NULL, 0, 0};
    h.query = t->query + t->first_query[row] * t->query_stride + head * t->dim;
    h.key = t->key + t->first_key[row] * t->key_stride + head * t->dim;
    h.value = t->value + t->first_key[row] * t->value_stride + head * t->dim;
    h.groups = steps(t->longest, 16);
    h.first_group = (uint32_t)((t->first_query[row] * t->heads + head * h.queries) * h.groups);
    return h;
}

/* keys × dim becomes dim × keys. */
static void turn(const Training *t, const Head *h, const float *x, long stride, float *turned) {
    for (long d = 0; d < t->dim; d++)
        for (long j = 0; j < h->room; j++) turned[d * h->room + j] = j < h->keys ? x[j * stride + d] : 0.0f;
}

/* The weights of all queries: softmax of the scores, 0 where nothing is seen. */
static void weigh(const Training *t, const Head *h, const float *turned, float *weights) {
    small_product(h->queries, h->room, t->dim, h->query, t->query_stride, 1, turned, h->room, weights, h->room);
    for (long i = 0; i < h->queries; i++) {
        float *w = weights + i * h->room;
        long seen = t->causal ? h->keys - h->queries + i + 1 : h->keys;
        float top = -INFINITY;
        for (long j = 0; j < seen; j++) top = fmaxf(top, w[j]);
        vec by = _mm256_set1_ps(t->scale), most = _mm256_set1_ps(top * t->scale), whole = _mm256_setzero_ps();
        for (long j = 0; j < h->room; j += WIDE) {
            vec e = exponential(_mm256_fmsub_ps(_mm256_loadu_ps(w + j), by, most));
            e = j < seen ? _mm256_and_ps(e, _mm256_castsi256_ps(first(seen - j))) : _mm256_setzero_ps();
            whole = _mm256_add_ps(whole, e);
            _mm256_storeu_ps(w + j, e);
        }
        vec factor = _mm256_set1_ps(1.0f / sum_of(whole));
        for (long j = 0; j < h->room; j += WIDE) _mm256_storeu_ps(w + j, _mm256_mul_ps(_mm256_loadu_ps(w + j), factor));
    }
}

/* Dropout of weights, or of their gradients. */
static void drop_weights(const Training *t, const Head *h, const float *weights, float *to) {
    for (long i = 0; i < h->queries; i++)
        for (long j = 0; j < h->room; j += 16)
            drop_group(&t->chance, h->first_group + (uint32_t)(i * h->groups + j / 16), weights + i * h->room + j,
                       h->room - j, to + i * h->room + j);
}

static void forward_one(const Training *t, long row, long head) {
    Head h = head_of(t, row, head);
    float *turned = scratch(TURNED, t->dim * h.room * sizeof(float));
    float *weights = scratch(WEIGHTS, h.queries * h.room * sizeof(float));
    turn(t, &h, h.key, t->key_stride, turned);
    weigh(t, &h, turned, weights);
    if (t->chance.dropped) drop_weights(t, &h, weights, weights);
    long stride = t->heads * t->dim;
    float *answer = t->answer + t->first_query[row] * stride + head * t->dim;
    small_product(h.queries, t->dim, h.keys, weights, h.room, 1, h.value, t->value_stride, answer, stride);
}

static void back_one(const Training *t, long row, long head) {
    Head h = head_of(t, row, head);
    long size = h.queries * h.room, stride = t->heads * t->dim;
    float *turned = scratch(TURNED, t->dim * h.room * sizeof(float));
    float *weights = scratch(WEIGHTS, 3 * size * sizeof(float)), *used = weights + size, *slope = used + size;
    const float *gradient = t->answer + t->first_query[row] * stride + head * t->dim;
    long at_query = t->first_query[row] * stride + head * t->dim, at_key = t->first_key[row] * stride + head * t->dim;
    turn(t, &h, h.key, t->key_stride, turned);
    weigh(t, &h, turned, weights);
    if (t->chance.dropped)
        drop_weights(t, &h, weights, used);
    else
        memcpy(used, weights, size * sizeof(float));
    small_product(h.keys, t->dim, h.queries, used, 1, h.room, gradient, stride, t->value_gradient + at_key, stride);
    turn(t, &h, h.value, t->value_stride, turned);
    small_product(h.queries, h.room, t->dim, gradient, stride, 1, turned, h.room, slope, h.room);
    if (t->chance.dropped) drop_weights(t, &h, slope, slope);
    for (long i = 0; i < h.queries; i++) { /* of the scores: weight · (slope - mean slope) · scale */
        float *w = weights + i * h.room, *s = slope + i * h.room;
        vec mean = _mm256_setzero_ps(), by = _mm256_set1_ps(t->scale);
        for (long j = 0; j < h.room; j += WIDE) mean = _mm256_fmadd_ps(_mm256_loadu_ps(w + j), _mm256_loadu_ps(s + j), mean);
        mean = _mm256_set1_ps(sum_of(mean));
        for (long j = 0; j < h.room; j += WIDE) {
            vec off = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(s + j), mean), by);
            _mm256_storeu_ps(s + j, _mm256_mul_ps(_mm256_loadu_ps(w + j), off));
        }
    }
    small_product(h.queries, t->dim, h.keys, slope, h.room, 1, h.key, t->key_stride, t->query_gradient + at_query, stride);
    small_product(h.keys, t->dim, h.queries, slope, 1, h.room, h.query, t->query_stride, t->key_gradient + at_key, stride);
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
