/* float32 GEMM.

   C = activation(A·B + bias). B is packed once, into panels of p = NR columns (16, or 32 with AVX-512), so that the
   micro-kernel reads it sequentially:

       panel j, row k:   B[k][pj] … B[k][pj + p - 1]

   The micro-kernel computes a register tile of up to MR rows and NR columns of C (`simd.h`). A panel stays in the L1
   cache while it is multiplied by all rows of A. Each element of C is summed in the same order, whatever the other rows
   and the number of threads: so a sequence gives the same numbers in any batch. */
#include "simd.h"
#include "types.h"

#define KC 256               /* depth of a cache block: a panel of this depth has 16 or 32 KB */
#define MC_TILES 8           /* at most this many row tiles use a panel before the next one is fetched, */
#define A_CACHE_FLOATS 65536 /* and at most this many floats of A, which leaves space for panels in the L2 cache */

/* The size of a packed matrix, in floats. */
PUBLIC long packed_f32_size(long columns, long depth) { return ceil_div(columns, NR) * NR * depth; }

/* Pack the weight of a linear layer, outputs × inputs: B[k][j] is weight[j * stride + k]. */
PUBLIC void pack_f32(long columns, long depth, const float *weight, long stride, float *out) {
    for (long j0 = 0; j0 < columns; j0 += NR)
        for (long k = 0; k < depth; k++)
            for (long j = j0; j < j0 + NR; j++) *out++ = j < columns ? weight[j * stride + k] : 0.0f;
}

typedef struct {
    long rows, columns, depth;
    const float *a; /* packed tile by tile (`simd.h`) */
    const PackedMatrix *b;
    float *c;
} Gemm;

/* Add up to 16 sums over the depth from k_begin to k_end to C, from row i and column j on. */
INLINE void store_output(const Gemm *gemm, f32x16 sum, long i, long j, long k_begin, long k_end) {
    float *c = gemm->c + i * gemm->columns + j;
    long count = gemm->columns - j;
    if (k_begin) sum = add_f32x16(sum, load_partial_f32x16(c, count));
    if (k_end == gemm->depth && gemm->b->bias) sum = add_f32x16(sum, load_partial_f32x16(gemm->b->bias + j, count));
    store_partial_f32x16(c, sum, count);
}

/* The register tile of C at row i and column j, over the depth from k_begin to k_end. */
INLINE void micro_kernel(const int rows, const int vectors, const Gemm *gemm, long i, long j, long k_begin, long k_end,
                         enum PrefetchPart prefetch_part) {
    f32x16 sum[MR][NR_VECTORS], b[NR_VECTORS];
    const float *panel = (const float *)gemm->b->packed + j * gemm->depth, *next = panel + k_end * NR;
    const float *a = gemm->a + i * gemm->depth;
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
        for (int n = 0; n < vectors; n++) sum[r][n] = zero_f32x16();
    for (long k = k_begin; k < k_end; k++) {
        prefetch((const char *)next, NR * sizeof(float), k - k_begin, k_end - k_begin, prefetch_part);
#pragma GCC unroll 2
        for (int n = 0; n < vectors; n++) b[n] = load_f32x16(panel + k * NR + n * LANES16);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            __auto_type x = broadcast_operand(a[k * rows + r]);
#pragma GCC unroll 2
            for (int n = 0; n < vectors; n++) sum[r][n] = fma_operand(sum[r][n], x, b[n]);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int n = 0; n < vectors; n++) store_output(gemm, sum[r][n], i + r, j + n * LANES16, k_begin, k_end);
}

static void run_tile(long rows, const Gemm *gemm, long i, long j, long k_begin, long k_end,
                     enum PrefetchPart prefetch_part) {
#define TILE(count) micro_kernel(count, NR_VECTORS, gemm, i, j, k_begin, k_end, prefetch_part)
#define NARROW_TILE(count) micro_kernel(count, 1, gemm, i, j, k_begin, k_end, prefetch_part)
    if (NR_VECTORS == 1 || gemm->columns - j > LANES16)
        DISPATCH_ROWS(rows, TILE)
    else
        DISPATCH_ROWS(rows, NARROW_TILE)
    if (gemm->b->activation && k_end == gemm->depth)
        activate_tile(gemm->b->activation, rows, min_long(NR, gemm->columns - j), gemm->c + i * gemm->columns + j,
                      gemm->columns);
}

static void gemm_slice(const void *context, GemmSlice slice) {
    const Gemm *gemm = context;
    long block = max_long(1, min_long(MC_TILES, A_CACHE_FLOATS / gemm->depth / MR));
    for (long t0 = slice.row_tiles.begin; t0 < slice.row_tiles.end; t0 += block) {
        long t1 = min_long(slice.row_tiles.end, t0 + block);
        for (long j = slice.columns.begin; j < slice.columns.end; j += NR)
            for (long k = 0; k < gemm->depth; k += KC)
                for (long t = t0; t < t1; t++) {
                    long i = tile_first_row(gemm->rows, t), rows = tile_first_row(gemm->rows, t + 1) - i;
                    run_tile(rows, gemm, i, j, k, min_long(gemm->depth, k + KC), prefetch_part_of(t0, t, t1));
                }
    }
}

static void pack_a_tile(const Gemm *gemm, long tile, const float *a, long stride, float *out) {
    long i = tile_first_row(gemm->rows, tile), rows = tile_first_row(gemm->rows, tile + 1) - i;
    out += i * gemm->depth, a += i * stride;
    for (long r = 0; r < rows; r++)
        for (long k = 0; k < gemm->depth; k++) out[k * rows + r] = a[r * stride + k];
}

static void gemm_f32(const PackedMatrix *b, long rows, const float *a, long stride, float *c) {
    float *packed_a = scratch(SCRATCH_PACKED_A, rows * b->inputs * sizeof(float));
    Gemm gemm = {rows, b->outputs, b->inputs, packed_a, b, c};
    StripClaims claims = {{0}};
#pragma omp parallel num_threads(threads_for((double)rows *b->outputs *b->inputs))
    {
        Range local_range = split_range(num_row_tiles(rows), 1, omp_get_thread_num(), omp_get_num_threads());
        for (long tile = local_range.begin; tile < local_range.end; tile++)
            pack_a_tile(&gemm, tile, a, stride, packed_a);
#pragma omp barrier
        gemm_parallel(&claims, num_row_tiles(rows), b->outputs, NR, &gemm, gemm_slice);
    }
}

/* C = activation(A·B + bias), B in float32 or int8. */
PUBLIC void packed_linear(const PackedMatrix *b, long rows, const float *a, long stride, float *c) {
    (b->scale ? gemm_int8 : gemm_f32)(b, rows, a, stride, c);
}
