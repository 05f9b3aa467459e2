/* The activations of feed-forward layers, eight numbers at a time. The numbers are those of `kernels.py`. */
#ifndef REGARD_ACTIVATION_H
#define REGARD_ACTIVATION_H

#include "common.h"

enum Activation { NOTHING, RELU, GELU, GELU_TANH, SILU, TANH, QUICK_GELU };

/* 1 / (1 + e^-x). Below -87 it stays as it is there: numbers with fewer digits than others cost a hundred cycles each. */
INLINE vec sigmoid(vec x) {
    vec one = _mm256_set1_ps(1.0f), least = _mm256_max_ps(_mm256_set1_ps(-87.0f), x);
    return _mm256_div_ps(one, _mm256_add_ps(one, exponential(_mm256_sub_ps(_mm256_setzero_ps(), least))));
}

/* tanh x = 2·sigmoid(2x) - 1 */
INLINE vec hyperbolic(vec x) {
    vec two = _mm256_set1_ps(2.0f);
    return _mm256_fmsub_ps(two, sigmoid(_mm256_mul_ps(two, x)), _mm256_set1_ps(1.0f));
}

/* erf x to 1.5e-7 (Abramowitz and Stegun 1964, 7.1.26). */
INLINE vec error_function(vec x) {
    const vec sign = _mm256_set1_ps(-0.0f), one = _mm256_set1_ps(1.0f);
    vec size = _mm256_andnot_ps(sign, x);
    vec t = _mm256_div_ps(one, _mm256_fmadd_ps(_mm256_set1_ps(0.3275911f), size, one));
    vec y = _mm256_set1_ps(1.061405429f);
    y = _mm256_fmadd_ps(y, t, _mm256_set1_ps(-1.453152027f));
    y = _mm256_fmadd_ps(y, t, _mm256_set1_ps(1.421413741f));
    y = _mm256_fmadd_ps(y, t, _mm256_set1_ps(-0.284496736f));
    y = _mm256_fmadd_ps(y, t, _mm256_set1_ps(0.254829592f));
    y = _mm256_mul_ps(_mm256_mul_ps(y, t), exponential(_mm256_sub_ps(_mm256_setzero_ps(), _mm256_mul_ps(size, size))));
    return _mm256_or_ps(_mm256_sub_ps(one, y), _mm256_and_ps(sign, x));
}

INLINE vec activate(int activation, vec x) {
    const vec half = _mm256_set1_ps(0.5f), one = _mm256_set1_ps(1.0f);
    switch (activation) {
        case RELU: return _mm256_max_ps(_mm256_setzero_ps(), x);
        case GELU: {
            vec both = _mm256_add_ps(one, error_function(_mm256_mul_ps(x, _mm256_set1_ps(0.70710678f))));
            return _mm256_mul_ps(_mm256_mul_ps(half, x), both);
        }
        case GELU_TANH: { /* √(2/π)·(x + 0.044715·x³) */
            vec cube = _mm256_mul_ps(_mm256_mul_ps(x, x), x);
            vec inner = _mm256_fmadd_ps(_mm256_set1_ps(0.044715f), cube, x);
            vec both = _mm256_add_ps(one, hyperbolic(_mm256_mul_ps(_mm256_set1_ps(0.79788456f), inner)));
            return _mm256_mul_ps(_mm256_mul_ps(half, x), both);
        }
        case SILU: return _mm256_mul_ps(x, sigmoid(x));
        case TANH: return hyperbolic(x);
        case QUICK_GELU: return _mm256_mul_ps(x, sigmoid(_mm256_mul_ps(_mm256_set1_ps(1.702f), x)));
        default: return x;
    }
}

/* How fast an activation rises at x. */
INLINE vec slope_of(int activation, vec x) {
    const vec half = _mm256_set1_ps(0.5f), one = _mm256_set1_ps(1.0f);
    switch (activation) {
        case RELU: return _mm256_and_ps(one, _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_GT_OQ));
        case GELU: { /* Φ(x) + x·φ(x) */
            vec below = _mm256_mul_ps(half, _mm256_add_ps(one, error_function(_mm256_mul_ps(x, _mm256_set1_ps(0.70710678f)))));
            vec density = exponential(_mm256_mul_ps(_mm256_mul_ps(x, x), _mm256_set1_ps(-0.5f)));
            return _mm256_fmadd_ps(_mm256_mul_ps(x, _mm256_set1_ps(0.39894228f)), density, below);
        }
        case GELU_TANH: { /* t = tanh u: (1 + t)/2 + x/2·(1 - t²)·du/dx */
            vec square = _mm256_mul_ps(x, x);
            vec inner = _mm256_fmadd_ps(_mm256_set1_ps(0.044715f), _mm256_mul_ps(square, x), x);
            vec t = hyperbolic(_mm256_mul_ps(_mm256_set1_ps(0.79788456f), inner));
            vec rise = _mm256_fmadd_ps(_mm256_set1_ps(0.10703222f), square, _mm256_set1_ps(0.79788456f));
            vec bent = _mm256_mul_ps(_mm256_mul_ps(_mm256_mul_ps(half, x), _mm256_fnmadd_ps(t, t, one)), rise);
            return _mm256_fmadd_ps(half, _mm256_add_ps(one, t), bent);
        }
        case SILU: { /* s + x·s·(1 - s) */
            vec s = sigmoid(x);
            return _mm256_fmadd_ps(_mm256_mul_ps(x, s), _mm256_sub_ps(one, s), s);
        }
        case TANH: {
            vec t = hyperbolic(x);
            return _mm256_fnmadd_ps(t, t, one);
        }
        case QUICK_GELU: {
            vec by = _mm256_set1_ps(1.702f), s = sigmoid(_mm256_mul_ps(by, x));
            return _mm256_fmadd_ps(_mm256_mul_ps(_mm256_mul_ps(by, x), s), _mm256_sub_ps(one, s), s);
        }
        default: return one;
    }
}

#endif
