/* The activations of feed-forward layers, eight floats at a time. The enumerators match `ACTIVATIONS` in `ops.py`. */
#ifndef REGARD_ACTIVATION_H
#define REGARD_ACTIVATION_H

#include "common.h"

enum Activation { IDENTITY, RELU, GELU, GELU_TANH, SILU, TANH, QUICK_GELU };

/* 1 / (1 + e^-x). x is clamped to -87, because each denormal costs a hundred cycles. */
INLINE f32x8 sigmoid_f32x8(f32x8 x) {
    f32x8 one = _mm256_set1_ps(1.0f), clamped = _mm256_max_ps(_mm256_set1_ps(-87.0f), x);
    return _mm256_div_ps(one, _mm256_add_ps(one, exp_f32x8(_mm256_sub_ps(_mm256_setzero_ps(), clamped))));
}

/* tanh x = 2·sigmoid(2x) - 1 */
INLINE f32x8 tanh_f32x8(f32x8 x) {
    f32x8 two = _mm256_set1_ps(2.0f);
    return _mm256_fmsub_ps(two, sigmoid_f32x8(_mm256_mul_ps(two, x)), _mm256_set1_ps(1.0f));
}

/* erf x to 3e-7: x·N(x²)/D(x²), a least-squares fit for |x| < 3.96; 1 from there on. */
INLINE f32x8 erf_f32x8(f32x8 x) {
    const f32x8 max = _mm256_set1_ps(3.96f), min = _mm256_set1_ps(-3.96f);
    x = _mm256_min_ps(max, _mm256_max_ps(min, x)); /* x is the second operand, so that NaN propagates */
    f32x8 t = _mm256_mul_ps(x, x);
    f32x8 numerator = _mm256_set1_ps(2.004241921e-6f), denominator = _mm256_set1_ps(3.776547343e-5f);
    numerator = _mm256_fmadd_ps(numerator, t, _mm256_set1_ps(2.876629696e-4f));
    denominator = _mm256_fmadd_ps(denominator, t, _mm256_set1_ps(1.201673383e-3f));
    numerator = _mm256_fmadd_ps(numerator, t, _mm256_set1_ps(3.934011671e-3f));
    denominator = _mm256_fmadd_ps(denominator, t, _mm256_set1_ps(1.530426371e-2f));
    numerator = _mm256_fmadd_ps(numerator, t, _mm256_set1_ps(5.325720476e-2f));
    denominator = _mm256_fmadd_ps(denominator, t, _mm256_set1_ps(1.157626520e-1f));
    numerator = _mm256_fmadd_ps(numerator, t, _mm256_set1_ps(1.944664772e-1f));
    denominator = _mm256_fmadd_ps(denominator, t, _mm256_set1_ps(5.056728536e-1f));
    numerator = _mm256_fmadd_ps(numerator, t, _mm256_set1_ps(1.128379001f));
    denominator = _mm256_fmadd_ps(denominator, t, _mm256_set1_ps(1.0f));
    f32x8 sign = _mm256_and_ps(_mm256_set1_ps(-0.0f), x), signed_one = _mm256_or_ps(sign, _mm256_set1_ps(1.0f));
    f32x8 saturated = _mm256_cmp_ps(_mm256_xor_ps(sign, x), max, _CMP_GE_OQ);
    return _mm256_blendv_ps(_mm256_div_ps(_mm256_mul_ps(x, numerator), denominator), signed_one, saturated);
}

INLINE f32x8 activate(int activation, f32x8 x) {
    const f32x8 half = _mm256_set1_ps(0.5f), one = _mm256_set1_ps(1.0f);
    switch (activation) {
        case RELU: return _mm256_max_ps(_mm256_setzero_ps(), x);
        case GELU: {
            f32x8 one_plus_erf = _mm256_add_ps(one, erf_f32x8(_mm256_mul_ps(x, _mm256_set1_ps(0.70710678f))));
            return _mm256_mul_ps(_mm256_mul_ps(half, x), one_plus_erf);
        }
        case GELU_TANH: { /* √(2/π)·(x + 0.044715·x³) */
            f32x8 cube = _mm256_mul_ps(_mm256_mul_ps(x, x), x);
            f32x8 inner = _mm256_fmadd_ps(_mm256_set1_ps(0.044715f), cube, x);
            f32x8 one_plus_tanh = _mm256_add_ps(one, tanh_f32x8(_mm256_mul_ps(_mm256_set1_ps(0.79788456f), inner)));
            return _mm256_mul_ps(_mm256_mul_ps(half, x), one_plus_tanh);
        }
        case SILU: return _mm256_mul_ps(x, sigmoid_f32x8(x));
        case TANH: return tanh_f32x8(x);
        case QUICK_GELU: return _mm256_mul_ps(x, sigmoid_f32x8(_mm256_mul_ps(_mm256_set1_ps(1.702f), x)));
        default: return x;
    }
}

/* The derivative of an activation at x. */
INLINE f32x8 activation_gradient(int activation, f32x8 x) {
    const f32x8 half = _mm256_set1_ps(0.5f), one = _mm256_set1_ps(1.0f);
    switch (activation) {
        case RELU: return _mm256_and_ps(one, _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_GT_OQ));
        case GELU: { /* Φ(x) + x·φ(x) */
            f32x8 one_plus_erf = _mm256_add_ps(one, erf_f32x8(_mm256_mul_ps(x, _mm256_set1_ps(0.70710678f))));
            f32x8 cdf = _mm256_mul_ps(half, one_plus_erf);
            f32x8 density = exp_f32x8(_mm256_mul_ps(_mm256_mul_ps(x, x), _mm256_set1_ps(-0.5f)));
            return _mm256_fmadd_ps(_mm256_mul_ps(x, _mm256_set1_ps(0.39894228f)), density, cdf);
        }
        case GELU_TANH: { /* t = tanh u: (1 + t)/2 + x/2·(1 - t²)·du/dx */
            f32x8 square = _mm256_mul_ps(x, x);
            f32x8 inner = _mm256_fmadd_ps(_mm256_set1_ps(0.044715f), _mm256_mul_ps(square, x), x);
            f32x8 t = tanh_f32x8(_mm256_mul_ps(_mm256_set1_ps(0.79788456f), inner));
            f32x8 du_dx = _mm256_fmadd_ps(_mm256_set1_ps(0.10703222f), square, _mm256_set1_ps(0.79788456f));
            f32x8 second_term =
                _mm256_mul_ps(_mm256_mul_ps(_mm256_mul_ps(half, x), _mm256_fnmadd_ps(t, t, one)), du_dx);
            return _mm256_fmadd_ps(half, _mm256_add_ps(one, t), second_term);
        }
        case SILU: { /* s + x·s·(1 - s) */
            f32x8 s = sigmoid_f32x8(x);
            return _mm256_fmadd_ps(_mm256_mul_ps(x, s), _mm256_sub_ps(one, s), s);
        }
        case TANH: {
            f32x8 t = tanh_f32x8(x);
            return _mm256_fnmadd_ps(t, t, one);
        }
        case QUICK_GELU: {
            f32x8 scale = _mm256_set1_ps(1.702f), s = sigmoid_f32x8(_mm256_mul_ps(scale, x));
            return _mm256_fmadd_ps(_mm256_mul_ps(_mm256_mul_ps(scale, x), s), _mm256_sub_ps(one, s), s);
        }
        default: return one;
    }
}

#endif
