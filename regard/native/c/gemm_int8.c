/* int8 GEMM.

   Weights have one scale per output channel. Activations are quantized per token with an absmax scale, so that the
   result of a token does not depend on the other tokens. One instruction multiplies QGROUP_SIZE neighbouring values and
   sums the products (vpdpbusd of VNNI, or vpmaddwd after int8 is widened to int16) into 32 bits, which cannot overflow:
   the sum is exact, and the same on every machine.

       panel j, group k:   B[gk … gk+g-1][pj]   …   B[gk … gk+g-1][pj+p-1]      (p = NR, g = QGROUP_SIZE) */
#include "simd.h"
#include "types.h"

#define MC_TILES 8           /* as in gemm_f32.c */
#define A_CACHE_BYTES 262144 /* bytes of A that leave space for panels in the L2 cache */
#define QMAX 127.0f

PUBLIC long packed_int8_size(long columns, long depth) {
    return ceil_div(columns, NR) * NR * ceil_div(depth, QGROUP_SIZE) * QGROUP_SIZE;
}

/* Pack a quantized weight, outputs × inputs, as checkpoints store it. */
PUBLIC void pack_int8(long columns, long depth, const int8_t *qweight, int8_t *out) {
    for (long j0 = 0; j0 < columns; j0 += NR)
        for (long k = 0; k < depth; k += QGROUP_SIZE)
            for (long j = j0; j < j0 + NR; j++)
                for (long g = k; g < k + QGROUP_SIZE; g++)
                    *out++ = (int8_t)((j < columns && g < depth ? qweight[j * depth + g] : 0) + INT8_OFFSET);
}

/* Quantize min(count, 16) floats and store them as groups, `stride` groups apart. */
INLINE i32x16 quantize_f32x16(f32x16 x, float inverse_scale, QGroup *out, long count, long stride) {
    union {
        QInt values[LANES16];
        QGroup groups[LANES16 / QGROUP_SIZE];
    } stored;
    i32x16 quantized = round_to_i32x16(scale_f32x16(x, inverse_scale));
    store_qint(stored.values, quantized);
#pragma GCC unroll 8
    for (int g = 0; g < LANES16 / QGROUP_SIZE; g++)
        if (g * QGROUP_SIZE < count) out[g * stride] = stored.groups[g];
    return quantized;
}

/* The largest absolute value. `non_finite` becomes NaN if a value is NaN or infinite, otherwise 0. Two accumulators,
   because each operation waits for the one before it. */
static float abs_max(long depth, const float *x, float *non_finite) {
    f32x16 max[2] = {zero_f32x16(), zero_f32x16()}, nan_sum[2] = {zero_f32x16(), zero_f32x16()};
    long k = 0;
    for (; k + 2 * LANES16 <= depth; k += 2 * LANES16)
#pragma GCC unroll 2
        for (int n = 0; n < 2; n++) {
            f32x16 v = abs_f32x16(load_f32x16(x + k + n * LANES16));
            max[n] = max_f32x16(max[n], v), nan_sum[n] = fma_f32x16(nan_sum[n], v, zero_f32x16());
        }
    for (; k < depth; k += LANES16) {
        f32x16 v = abs_f32x16(load_partial_f32x16(x + k, depth - k));
        max[0] = max_f32x16(max[0], v), nan_sum[0] = fma_f32x16(nan_sum[0], v, zero_f32x16());
    }
    *non_finite = hsum_f32x16(add_f32x16(nan_sum[0], nan_sum[1]));
    return hmax_f32x16(max_f32x16(max[0], max[1]));
}

/* Quantize one row; `sum` becomes the sum of its quantized values. Returns the scale: NaN if a value is not finite. */
static float quantize_row(long depth, const float *x, QGroup *out, long stride, int32_t *sum) {
    float non_finite, row_max = abs_max(depth, x, &non_finite), inverse_scale = row_max > 0 ? QMAX / row_max : 0;
    i32x16 total = zero_i32x16();
    long k = 0, step = LANES16 / QGROUP_SIZE * stride;
    for (; k + LANES16 <= depth; k += LANES16, out += step)
        total = add_i32x16(total, quantize_f32x16(load_f32x16(x + k), inverse_scale, out, LANES16, stride));
    if (k < depth) {
        f32x16 rest = load_partial_f32x16(x + k, depth - k);
        total = add_i32x16(total, quantize_f32x16(rest, inverse_scale, out, depth - k, stride));
    }
    *sum = hsum_i32x16(total);
    return row_max / QMAX + non_finite;
}

typedef struct {
    long rows, columns, k_groups;
    const QGroup *a;         /* packed tile by tile (`simd.h`) */
    const int32_t *row_sums; /* sums of the quantized values of A */
    const float *row_scales; /* per-token scales of A */
    const PackedMatrix *b;
    float *c;
} Gemm;

/* Dequantize up to 16 sums and store them to C, from row i and column j on. */
INLINE void store_output(const Gemm *gemm, i32x16 sum, long i, long j) {
    long count = gemm->columns - j;
    f32x16 out = mul_f32x16(scale_f32x16(i32_to_f32x16(sum, gemm->row_sums[i]), gemm->row_scales[i]),
                            load_partial_f32x16(gemm->b->scale + j, count));
    if (gemm->b->bias) out = add_f32x16(out, load_partial_f32x16(gemm->b->bias + j, count));
    store_partial_f32x16(gemm->c + i * gemm->columns + j, out, count);
}

/* The register tile of C at row i and column j. */
INLINE void micro_kernel(const int rows, const int vectors, const Gemm *gemm, long i, long j,
                         enum PrefetchPart prefetch_part) {
    i32x16 sum[MR][NR_VECTORS];
    QIntVec b[NR_VECTORS];
    const int8_t *panel = (const int8_t *)gemm->b->packed + j * gemm->k_groups * QGROUP_SIZE;
    const QGroup *a = gemm->a + i * gemm->k_groups;
    const int8_t *next = panel + gemm->k_groups * QGROUP_SIZE * NR;
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
        for (int n = 0; n < vectors; n++) sum[r][n] = zero_i32x16();
    for (long k = 0; k < gemm->k_groups; k++, panel += QGROUP_SIZE * NR) {
        prefetch((const char *)next, QGROUP_SIZE * NR, k, gemm->k_groups, prefetch_part);
#pragma GCC unroll 2
        for (int n = 0; n < vectors; n++) b[n] = load_qint(panel + n * LANES16 * QGROUP_SIZE);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            __auto_type x = broadcast_qgroup(a[k * rows + r]);
#pragma GCC unroll 2
            for (int n = 0; n < vectors; n++) sum[r][n] = dot_accumulate(sum[r][n], x, b[n]);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int n = 0; n < vectors; n++) store_output(gemm, sum[r][n], i + r, j + n * LANES16);
}

static void run_tile(long rows, const Gemm *gemm, long i, long j, enum PrefetchPart prefetch_part) {
#define TILE(count) micro_kernel(count, NR_VECTORS, gemm, i, j, prefetch_part)
#define NARROW_TILE(count) micro_kernel(count, 1, gemm, i, j, prefetch_part)
    if (NR_VECTORS == 1 || gemm->columns - j > LANES16)
        DISPATCH_ROWS(rows, TILE)
    else
        DISPATCH_ROWS(rows, NARROW_TILE)
    if (gemm->b->activation)
        activate_tile(gemm->b->activation, rows, min_long(NR, gemm->columns - j), gemm->c + i * gemm->columns + j,
                      gemm->columns);
}

static void gemm_slice(const void *context, GemmSlice slice) {
    const Gemm *gemm = context;
    long block = max_long(1, min_long(MC_TILES, A_CACHE_BYTES / (gemm->k_groups * (long)sizeof(QGroup)) / MR));
    for (long t0 = slice.row_tiles.begin; t0 < slice.row_tiles.end; t0 += block) {
        long t1 = min_long(slice.row_tiles.end, t0 + block);
        for (long j = slice.columns.begin; j < slice.columns.end; j += NR)
            for (long t = t0; t < t1; t++) {
                long i = tile_first_row(gemm->rows, t), rows = tile_first_row(gemm->rows, t + 1) - i;
                run_tile(rows, gemm, i, j, prefetch_part_of(t0, t, t1));
            }
    }
}

/* C = activation(A·(qweight · scale) + bias). */
void gemm_int8(const PackedMatrix *b, long rows, const float *a, long stride, float *c) {
    long k_groups = ceil_div(b->inputs, QGROUP_SIZE);
    QGroup *quantized_a = scratch(SCRATCH_QUANTIZED_A, rows * k_groups * sizeof(QGroup));
    int32_t *row_sums = scratch(SCRATCH_ROW_SUMS, rows * sizeof(int32_t));
    float *row_scales = scratch(SCRATCH_ROW_SCALES, rows * sizeof(float));
    Gemm gemm = {rows, b->outputs, k_groups, quantized_a, row_sums, row_scales, b, c};
    StripClaims claims = {{0}};
#pragma omp parallel num_threads(threads_for((double)rows *b->outputs *b->inputs))
    {
        Range local_range = split_range(rows, 1, omp_get_thread_num(), omp_get_num_threads());
        for (long t = 0; t < num_row_tiles(rows); t++) {
            long first = tile_first_row(rows, t), end = tile_first_row(rows, t + 1);
            for (long i = max_long(first, local_range.begin); i < min_long(end, local_range.end); i++)
                row_scales[i] = quantize_row(b->inputs, a + i * stride, quantized_a + first * k_groups + i - first,
                                             end - first, row_sums + i);
        }
#pragma omp barrier
        gemm_parallel(&claims, num_row_tiles(rows), b->outputs, NR, &gemm, gemm_slice);
    }
}
