/* GloVe's loop over co-occurrence entries; regard/vectors/glove.py is its definition in numpy. */
#include <math.h>
#include <stdint.h>

struct glove_job {
    const int32_t *words, *contexts;
    const float *counts;
    const int64_t *order;
    int64_t start, end, dim, stride;
    /* vectors (rows × stride): dim numbers, then the bias; the sums of squared gradients have the same layout */
    float *word_vectors, *context_vectors, *word_squares, *context_squares;
    double lr, x_max, alpha;
    double loss;
};

__attribute__((visibility("default"))) int train_glove(struct glove_job *job) {
    const int64_t dim = job->dim;
    const float lr = (float)job->lr;
    for (int64_t i = job->start; i < job->end; i++) {
        const int64_t entry = job->order[i];
        float *restrict w = job->word_vectors + job->words[entry] * job->stride;
        float *restrict c = job->context_vectors + job->contexts[entry] * job->stride;
        float *restrict w_squares = job->word_squares + job->words[entry] * job->stride;
        float *restrict c_squares = job->context_squares + job->contexts[entry] * job->stride;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t d = 0; d < dim; d++) sum += w[d] * c[d];
        const double count = job->counts[entry];
        const float difference = sum + w[dim] + c[dim] - (float)log(count);
        const float weight = count < job->x_max ? (float)pow(count / job->x_max, job->alpha) : 1.0f;
        const float g = weight * difference;
        if (!isfinite(g)) return 1;
        job->loss += 0.5 * (double)g * difference;
        for (int64_t d = 0; d < dim; d++) {
            const float w_gradient = g * c[d], c_gradient = g * w[d];
            w[d] -= lr * w_gradient / sqrtf(w_squares[d]);
            c[d] -= lr * c_gradient / sqrtf(c_squares[d]);
            w_squares[d] += w_gradient * w_gradient;
            c_squares[d] += c_gradient * c_gradient;
        }
        w[dim] -= lr * g / sqrtf(w_squares[dim]);
        c[dim] -= lr * g / sqrtf(c_squares[dim]);
        w_squares[dim] += g * g;
        c_squares[dim] += g * g;
    }
    return 0;
}
