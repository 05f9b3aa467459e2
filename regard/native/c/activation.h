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

/* erf x to 3e-7: x·N(x²)/D(x²), fitted to it by least squares up to 3.96, from where on it is 1. */
INLINE vec error_function(vec x) {
    const vec most = _mm256_set1_ps(3.96f), least = _mm256_set1_ps(-3.96f);
    x = _mm256_min_ps(most, _mm256_max_ps(least, x)); /* in this order, what is no number stays none */
    vec t = _mm256_mul_ps(x, x), above = _mm256_set1_ps(2.004241921e-6f), below = _mm256_set1_ps(3.776547343e-5f);
    above = _mm256_fmadd_ps(above, t, _mm256_set1_ps(2.876629696e-4f));
    below = _mm256_fmadd_ps(below, t, _mm256_set1_ps(1.201673383e-3f));
    above = _mm256_fmadd_ps(above, t, _mm256_set1_ps(3.934011671e-3f));
    below = _mm256_fmadd_ps(below, t, _mm256_set1_ps(1.530426371e-2f));
    above = _mm256_fmadd_ps(above, t, _mm256_set1_ps(5.325720476e-2f));
    below = _mm256_fmadd_ps(below, t, _mm256_set1_ps(1.157626520e-1f));
    above = _mm256_fmadd_ps(above, t, _mm256_set1_ps(1.944664772e-1f));
    below = _mm256_fmadd_ps(below, t, _mm256_set1_ps(5.056728536e-1f));
    above = _mm256_fmadd_ps(above, t, _mm256_set1_ps(1.128379001f));
    below = _mm256_fmadd_ps(below, t, _mm256_set1_ps(1.0f));
    vec sign = _mm256_and_ps(_mm256_set1_ps(-0.0f), x), one = _mm256_or_ps(sign, _mm256_set1_ps(1.0f));
    vec far = _mm256_cmp_ps(_mm256_xor_ps(sign, x), most, _CMP_GE_OQ);
    return _mm256_blendv_ps(_mm256_div_ps(_mm256_mul_ps(x, above), below), one, far);
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
