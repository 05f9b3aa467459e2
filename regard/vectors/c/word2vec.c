/* The loop of word2vec over a part of a corpus; regard/vectors/skipgram_cbow.py is its definition in numpy.

   Rows have a length that is a multiple of 16 floats, padded with zeros, and are aligned to 64 bytes. Several threads
   may call `train` with the same matrices: they change the same rows without locks (Hogwild). */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LANES 16
#define PREDICTIONS_AT_ONCE 6
#define LINE_END (-1)
#define LOSS_EVERY 64

typedef float vec __attribute__((vector_size(64), may_alias));

struct word2vec_job {
    const int32_t *tokens; /* word indices of the whole corpus; LINE_END after each line */
    int64_t start, end, num_tokens;
    float *input, *output;
    int64_t stride, window, negative, is_cbow;
    const uint32_t *keep;            /* by word: probability to be kept, as a fraction of 2^32 */
    const uint32_t *alias_threshold; /* negative sampling by the alias method */
    const int32_t *alias;
    int64_t vocabulary;
    const int64_t *path_starts; /* hierarchical softmax, otherwise NULL: the path of word w begins at path_starts[w] */
    const int32_t *path_nodes;
    const float *path_labels;
    const int64_t *bag_starts; /* character n-grams, otherwise NULL: the rows of word w begin at bag_starts[w] */
    const int32_t *bag_rows;
    uint64_t key; /* of seed and epoch */
    double lr, min_lr, first_step, total_steps;
    double loss; /* the sum over a sample of the predictions, and their number */
    int64_t loss_count, num_kept;
};

static inline uint64_t mix(uint64_t state) { /* splitmix64 */
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
    state = (state ^ (state >> 27)) * 0x94d049bb133111ebu;
    return state ^ (state >> 31);
}

static inline uint64_t next_random(uint64_t *state) { return mix(*state += 0x9e3779b97f4a7c15u); }

/* The random numbers of a position depend on nothing but the key and the position: a result does not depend on how the
   corpus is divided among calls. */
static inline uint64_t position_state(const struct word2vec_job *job, int64_t position) {
    return mix(job->key + (uint64_t)position * 0xd1342543de82ef95u);
}

static inline int is_kept(const struct word2vec_job *job, int64_t position) {
    const uint32_t limit = job->keep[job->tokens[position]];
    if (limit == UINT32_MAX) return 1;
    uint64_t state = ~position_state(job, position);
    return (uint32_t)(next_random(&state) >> 32) < limit;
}

static inline int32_t draw_negative(const struct word2vec_job *job, uint64_t *state) {
    const uint64_t random = next_random(state);
    const int32_t word = (int32_t)(((random >> 32) * (uint64_t)job->vocabulary) >> 32);
    return (uint32_t)random < job->alias_threshold[word] ? word : job->alias[word];
}

static inline float sum_lanes(vec x) {
    const float *f = (const float *)&x;
    float half[8], quarter[4];
    for (int i = 0; i < 8; i++) half[i] = f[i] + f[i + 8];
    for (int i = 0; i < 4; i++) quarter[i] = half[i] + half[i + 4];
    return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

/* gradients[t] = (labels[t] - 1 / (1 + exp(-scores[t]))) · lr, with a relative error of the sigmoid of about 1e-7. The
   loop is vectorized, which a call of expf would prevent. */
static inline void sigmoid_gradients(const float *scores, const float *labels, float lr, float *gradients, int count) {
    for (int t = 0; t < count; t++) {
        float x = scores[t] < -80.0f ? -80.0f : scores[t];
        x = x > 80.0f ? 80.0f : x;
        const float scaled = x * -1.44269504088896341f;
        const float shifted = scaled + 12582912.0f; /* adding 1.5 · 2^23 rounds to an integer */
        const float fraction = (scaled - (shifted - 12582912.0f)) * 0.693147180559945309f;
        float power = 1.0f / 720.0f;
        power = power * fraction + 1.0f / 120.0f;
        power = power * fraction + 1.0f / 24.0f;
        power = power * fraction + 1.0f / 6.0f;
        power = power * fraction + 0.5f;
        power = power * fraction + 1.0f;
        power = power * fraction + 1.0f;
        union {
            float value;
            int32_t bits;
        } exponential = {.value = power}, rounded = {.value = shifted};
        exponential.bits += (rounded.bits - 0x4b400000) * (1 << 23);
        gradients[t] = (labels[t] - 1.0f / (1.0f + exponential.value)) * lr;
    }
}

/* `count` predictions from one hidden vector: output row t has the label labels[t]. Adds to `error` and updates the
   output rows. All scores are computed before the first row changes. */
static inline __attribute__((always_inline)) void predict_some(
    const vec *hidden, vec *error, vec *const *rows, const float *labels, int count, int64_t vecs, float lr,
    double *loss) {
    vec sums[PREDICTIONS_AT_ONCE] = {};
    for (int64_t d = 0; d < vecs; d++) {
        const vec h = hidden[d];
        for (int t = 0; t < count; t++) sums[t] += h * rows[t][d];
    }
    float scores[8] = {}, padded_labels[8] = {}, g[8];
    for (int t = 0; t < count; t++) scores[t] = sum_lanes(sums[t]), padded_labels[t] = labels[t];
    if (loss)
        for (int t = 0; t < count; t++) {
            const double score = labels[t] > 0.5f ? -(double)scores[t] : (double)scores[t];
            *loss += score > 30 ? score : log1p(exp(score));
        }
    sigmoid_gradients(scores, padded_labels, lr, g, 8);
    for (int64_t d = 0; d < vecs; d++) {
        const vec h = hidden[d];
        vec e = error[d];
        for (int t = 0; t < count; t++) {
            const vec row = rows[t][d];
            e += row * g[t];
            rows[t][d] = row + h * g[t];
        }
        error[d] = e;
    }
}

static void predict(
    const vec *hidden, vec *error, vec *const *rows, const float *labels, int64_t count, int64_t vecs, float lr,
    double *loss) {
    for (; count >= PREDICTIONS_AT_ONCE; count -= PREDICTIONS_AT_ONCE) {
        predict_some(hidden, error, rows, labels, PREDICTIONS_AT_ONCE, vecs, lr, loss);
        rows += PREDICTIONS_AT_ONCE, labels += PREDICTIONS_AT_ONCE;
    }
    if (count) predict_some(hidden, error, rows, labels, (int)count, vecs, lr, loss);
}

struct scratch {
    vec *hidden, *error;
    vec **rows; /* of the output matrix */
    float *labels;
    int32_t *bag;
};

/* The output rows and labels of a word: its path, and the word itself with negative samples. */
static int64_t choose_rows(const struct word2vec_job *job, int32_t word, uint64_t *state, vec **rows, float *labels) {
    int64_t count = 0;
    float *output = job->output;
    if (job->path_starts) {
        for (int64_t i = job->path_starts[word]; i < job->path_starts[word + 1]; i++, count++) {
            rows[count] = (vec *)(output + job->path_nodes[i] * job->stride);
            labels[count] = job->path_labels[i];
        }
        output += job->vocabulary * job->stride; /* the rows of words follow those of nodes */
    }
    if (job->negative) {
        rows[count] = (vec *)(output + word * job->stride), labels[count++] = 1;
        for (int64_t n = 0; n < job->negative; n++) {
            const int32_t other = draw_negative(job, state);
            if (other == word) continue;
            rows[count] = (vec *)(output + other * job->stride), labels[count++] = 0;
        }
    }
    for (int64_t i = 0; i < count; i++)
        for (int64_t d = 0; d < job->stride / LANES; d++) __builtin_prefetch(rows[i] + d, 1);
    return count;
}

static int64_t add_bag(const struct word2vec_job *job, int32_t word, int32_t *bag) {
    if (!job->bag_starts) return bag[0] = word, 1;
    const int64_t size = job->bag_starts[word + 1] - job->bag_starts[word];
    memcpy(bag, job->bag_rows + job->bag_starts[word], size * sizeof *bag);
    return size;
}

/* One example: the mean of the input rows in the bag predicts the chosen output rows. */
static void train_example(
    const struct word2vec_job *job, const struct scratch *scratch, int64_t bag_size, vec *const *rows,
    const float *labels, int64_t count, float lr, double *loss) {
    const int64_t vecs = job->stride / LANES;
    vec *first = (vec *)(job->input + scratch->bag[0] * job->stride);
    const vec *hidden = first;
    if (bag_size > 1) {
        memcpy(scratch->hidden, first, vecs * sizeof(vec));
        for (int64_t i = 1; i < bag_size; i++) {
            const vec *row = (const vec *)(job->input + scratch->bag[i] * job->stride);
            for (int64_t d = 0; d < vecs; d++) scratch->hidden[d] += row[d];
        }
        for (int64_t d = 0; d < vecs; d++) scratch->hidden[d] *= 1.0f / (float)bag_size;
        hidden = scratch->hidden;
    }
    memset(scratch->error, 0, vecs * sizeof(vec));
    predict(hidden, scratch->error, rows, labels, count, vecs, lr, loss);
    for (int64_t i = 0; i < bag_size; i++) {
        vec *row = (vec *)(job->input + scratch->bag[i] * job->stride);
        for (int64_t d = 0; d < vecs; d++) row[d] += scratch->error[d];
    }
}

/* All examples of one word: `words[center]`, with its neighbours on the same line. */
static void train_center(
    struct word2vec_job *job, const struct scratch *scratch, const int32_t *words, int64_t center, int64_t position,
    int64_t max_rows) {
    uint64_t state = position_state(job, position);
    const int64_t window = job->window - (int64_t)(next_random(&state) % (uint64_t)job->window);
    int64_t from = center, to = center;
    while (center - from < window && words[from - 1] != LINE_END) from--;
    while (to - center < window && words[to + 1] != LINE_END) to++;
    if (from == to) return;
    const double step = (job->first_step + (double)(position & ~(int64_t)1023)) / job->total_steps;
    const float lr = (float)(job->lr - (job->lr - job->min_lr) * (step < 1 ? step : 1));
    double *loss = position % LOSS_EVERY ? NULL : &job->loss;
    if (job->is_cbow) {
        int64_t bag_size = 0;
        for (int64_t i = from; i <= to; i++)
            if (i != center) bag_size += add_bag(job, words[i], scratch->bag + bag_size);
        const int64_t count = choose_rows(job, words[center], &state, scratch->rows, scratch->labels);
        train_example(job, scratch, bag_size, scratch->rows, scratch->labels, count, lr, loss);
        job->loss_count += loss != NULL;
        return;
    }
    /* The rows of the next example are drawn first, so that they are in the cache when they are needed. */
    int64_t next_count = choose_rows(job, words[center], &state, scratch->rows, scratch->labels);
    int side = 0;
    for (int64_t i = from; i <= to; i++) {
        if (i == center) continue;
        const int64_t count = next_count;
        const int is_last = i == to || (i + 1 == center && center == to);
        if (!is_last)
            next_count = choose_rows(
                job, words[center], &state, scratch->rows + (1 - side) * max_rows,
                scratch->labels + (1 - side) * max_rows);
        const int64_t bag_size = add_bag(job, words[i], scratch->bag);
        train_example(
            job, scratch, bag_size, scratch->rows + side * max_rows, scratch->labels + side * max_rows, count, lr, loss);
        job->loss_count += loss != NULL;
        side = 1 - side;
    }
}

/* Collects the kept words from `start` to `end`, with `window` kept words of the same lines before and after. Returns
   the index of the first word that belongs to the part. */
static int64_t collect(
    const struct word2vec_job *job, int32_t *words, int64_t *positions, int64_t *first_of_part, int64_t *end_of_part) {
    int64_t count = 0, before = 0, position = job->start;
    for (int64_t p = job->start - 1; p >= 0 && job->tokens[p] != LINE_END && before < job->window; p--)
        if (is_kept(job, p)) before++, position = p;
    words[count++] = LINE_END;
    *first_of_part = -1;
    for (int64_t p = before ? position : job->start; p < job->end; p++) {
        if (p >= job->start && *first_of_part < 0) *first_of_part = count;
        if (job->tokens[p] == LINE_END) words[count] = LINE_END, positions[count++] = p;
        else if (is_kept(job, p)) words[count] = job->tokens[p], positions[count++] = p;
    }
    *end_of_part = count;
    int64_t after = 0;
    for (int64_t p = job->end; p < job->num_tokens && job->tokens[p] != LINE_END && after < job->window; p++)
        if (is_kept(job, p)) words[count++] = job->tokens[p], after++;
    words[count++] = LINE_END;
    return count;
}

static int64_t largest_bag(const struct word2vec_job *job) {
    int64_t largest = 1;
    if (job->bag_starts)
        for (int64_t w = 0; w < job->vocabulary; w++) {
            const int64_t size = job->bag_starts[w + 1] - job->bag_starts[w];
            if (size > largest) largest = size;
        }
    return largest;
}

/* Trains on tokens[start:end]. Returns 0, or 1 if there is not enough memory. */
__attribute__((visibility("default"))) int train_word2vec(struct word2vec_job *job) {
    const int64_t size = job->end - job->start + 2 * job->window + 2, vecs = job->stride / LANES;
    int64_t max_rows = 1 + job->negative;
    if (job->path_starts)
        for (int64_t w = 0, longest = 0; w < job->vocabulary; w++) {
            const int64_t length = job->path_starts[w + 1] - job->path_starts[w];
            if (length > longest) max_rows += length - longest, longest = length;
        }
    struct scratch scratch = {
        .hidden = aligned_alloc(64, vecs * sizeof(vec)),
        .error = aligned_alloc(64, vecs * sizeof(vec)),
        .rows = malloc(2 * max_rows * sizeof(vec *)),
        .labels = malloc(2 * max_rows * sizeof(float)),
        .bag = malloc(2 * job->window * largest_bag(job) * sizeof(int32_t)),
    };
    int32_t *words = malloc(size * sizeof *words);
    int64_t *positions = malloc(size * sizeof *positions), first, end;
    const int failed =
        !scratch.hidden || !scratch.error || !scratch.rows || !scratch.labels || !scratch.bag || !words || !positions;
    if (!failed && job->start < job->end) {
        collect(job, words, positions, &first, &end);
        for (int64_t i = first; i < end; i++)
            if (words[i] != LINE_END) {
                train_center(job, &scratch, words, i, positions[i], max_rows);
                job->num_kept++;
            }
    }
    free(scratch.hidden), free(scratch.error), free(scratch.rows), free(scratch.labels), free(scratch.bag);
    free(words), free(positions);
    return failed;
}
