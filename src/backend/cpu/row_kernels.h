// Row-wise kernels over f32 rows. Every reduction has a fixed order, and the same polynomials with explicit fma stand
// at every level: a row's bits depend neither on the other rows nor on the instruction set. Strides count elements; the
// last dimension is contiguous. In-place use (out == x) is allowed where noted.
#pragma once

#include <cstdint>

#include "backend/cpu/isa.h"
#include "backend/cpu/kv_buffer.h"
#include "coreai/base/dtype.h"

namespace coreai::cpu {

// y = n * (w + weight_offset), n = s / sqrt(mean(s^2) + eps), s = x + add; out = y + residual.
// x is [rows, groups, dim]; the norm is over dim. All but x and out may be null. In place allowed.
struct RmsNormArgs {
  const float* x = nullptr;
  std::int64_t x_row_stride = 0, x_group_stride = 0;
  const float* add = nullptr;  // strides of x's shape
  std::int64_t add_row_stride = 0, add_group_stride = 0;
  float* sum_out = nullptr;  // s, when wanted; a redoable step must not point it at shared memory
  std::int64_t sum_row_stride = 0, sum_group_stride = 0;
  const float* weight = nullptr;  // [dim], or [groups, dim] with a stride
  std::int64_t weight_group_stride = 0;
  float weight_offset = 0.0f;  // 1 for the (1 + w) form
  const float* residual = nullptr;
  std::int64_t residual_row_stride = 0, residual_group_stride = 0;
  float* out = nullptr;
  std::int64_t out_row_stride = 0, out_group_stride = 0;
  std::int64_t groups = 1, dim = 0;
  float eps = 0.0f;
};

// out = (x - mean) / sqrt(var + eps) * weight + bias over dim; weight and bias may be null. In place allowed. `spread`
// elements in a row share a weight, and row r takes those of row r % period.
struct LayerNormArgs {
  const float* x = nullptr;
  std::int64_t x_row_stride = 0;
  const float* weight = nullptr;
  const float* bias = nullptr;
  float* out = nullptr;
  std::int64_t out_row_stride = 0;
  std::int64_t dim = 0;
  float eps = 0.0f;
  std::int64_t period = 1, spread = 1;
};

// cos and sin of angle[r][i] = position[r] * position_scale * inv_freq[i] (f32 products, left to right), times
// `factor`. f32 error about 0.5 ulp for angles up to 1e8. Written once per call, read by every layer.
struct RopeTableArgs {
  const void* positions = nullptr;      // [rows]
  DType position_dtype = DType::kSI32;  // si32, si64, ui32 or f32
  float position_scale = 1.0f;
  const float* inv_freq = nullptr;  // [pairs]
  std::int64_t pairs = 0;
  float factor = 1.0f;       // attention scaling of the table (YaRN)
  float* cos_out = nullptr;  // [rows, pairs], row stride below
  float* sin_out = nullptr;
  std::int64_t row_stride = 0;
};

enum class RopeForm : std::uint8_t {
  kHalfSplit,    // pairs (i, i + pairs)
  kInterleaved,  // pairs (2i, 2i + 1)
};

// The packed projection output to rotated q rows and to cache rows, in one pass:
//   input row = [nq + nk + nv heads][head_dim]; q and k heads: norm (when a weight is given), then rotation of the
//   first 2 * pairs dimensions (when cos is given); v heads as they are.
inline constexpr std::int64_t kQkvMaxDim = 512;  // largest head_dim

struct QkvArgs {
  const float* x = nullptr;
  std::int64_t x_row_stride = 0;
  std::int64_t q_heads = 0, k_heads = 0, v_heads = 0, head_dim = 0;
  const float* q_norm = nullptr;  // [head_dim] or [heads, head_dim] with a stride; may be null
  const float* k_norm = nullptr;
  std::int64_t q_norm_head_stride = 0, k_norm_head_stride = 0;
  float norm_weight_offset = 0.0f;
  float eps = 0.0f;
  const float* cos = nullptr;  // [rows, pairs]; may be null: no rotation
  const float* sin = nullptr;
  std::int64_t rope_row_stride = 0, pairs = 0;
  RopeForm form = RopeForm::kHalfSplit;
  float* q_out = nullptr;  // [rows, q_heads, head_dim]
  std::int64_t q_row_stride = 0, q_head_stride = 0;
  KvBuffer* keys = nullptr;    // k_heads > 0: rows go to positions first_position + row of `layer`
  KvBuffer* values = nullptr;  // v_heads > 0
  std::int64_t layer = 0, first_position = 0;
};

// Rotation alone: x [rows, heads, head_dim] to out. In place allowed.
struct RopeArgs {
  const float* x = nullptr;
  std::int64_t x_row_stride = 0, x_head_stride = 0;
  float* out = nullptr;
  std::int64_t out_row_stride = 0, out_head_stride = 0;
  std::int64_t heads = 1, head_dim = 0;
  const float* cos = nullptr;
  const float* sin = nullptr;
  std::int64_t rope_row_stride = 0, pairs = 0;
  RopeForm form = RopeForm::kHalfSplit;
};

// Softmax over dim of scale * x. In place allowed. A row of -inf gives zeros.
struct SoftmaxArgs {
  const float* x = nullptr;
  std::int64_t x_row_stride = 0;
  float* out = nullptr;
  std::int64_t out_row_stride = 0;
  std::int64_t dim = 0;
  float scale = 1.0f;
  bool log = false;  // log-softmax
};

// out[r] = sqrt(sum of x[r]^2) over dim.
struct VectorNormArgs {
  const float* x = nullptr;
  std::int64_t x_row_stride = 0;
  float* out = nullptr;
  std::int64_t out_row_stride = 0;
  std::int64_t dim = 0;
};

// Rows [begin, end) of each.
struct RowKernels {
  void (*rms_norm)(const RmsNormArgs&, std::int64_t begin, std::int64_t end);
  void (*layer_norm)(const LayerNormArgs&, std::int64_t begin, std::int64_t end);
  void (*rope)(const RopeArgs&, std::int64_t begin, std::int64_t end);
  // Heads [head_begin, head_end) of q, k, v in that order, for rows [begin, end): written where they belong.
  void (*qkv)(const QkvArgs&, std::int64_t begin, std::int64_t end, std::int64_t head_begin, std::int64_t head_end);
  // The same in two halves for a redoable step: `scratch` is [rows][heads of the range][head_dim].
  void (*qkv_compute)(const QkvArgs&, std::int64_t begin, std::int64_t end, std::int64_t head_begin,
                      std::int64_t head_end, float* scratch);
  void (*qkv_publish)(const QkvArgs&, std::int64_t begin, std::int64_t end, std::int64_t head_begin,
                      std::int64_t head_end, const float* scratch);
  void (*softmax)(const SoftmaxArgs&, std::int64_t begin, std::int64_t end);
  void (*vector_norm)(const VectorNormArgs&, std::int64_t begin, std::int64_t end);
  // Index of the largest of n values, the first of ties; NaN is never chosen unless all are NaN (then 0). n >= 1.
  std::int64_t (*argmax)(const float* x, std::int64_t n);
  // f32 to and from f16, bf16 and f32, `count` contiguous elements; rounds to nearest even. Other dtypes: invariant.
  void (*to_f32)(DType dtype, const void* in, float* out, std::int64_t count);
  void (*from_f32)(DType dtype, const float* in, void* out, std::int64_t count);
};
const RowKernels& row_kernels(Isa isa);

// Both rounded from f64; any finite x.
void sin_cos(float x, float& sine, float& cosine);
void rope_table(const RopeTableArgs& args, std::int64_t begin, std::int64_t end);

// The k largest of n values with their indices, descending, the lower index first of ties; NaN counts as -inf.
// Writes min(k, n) entries and returns their number. `values` may be null.
std::int64_t top_k(const float* x, std::int64_t n, std::int64_t k, std::int32_t* indices, float* values);

// out[i...] = in[i...] for the index space `extents` (rank <= 6), strides in elements, outer index range [begin, end)
// of the first extent. For transposes and slices of f32.
struct StridedCopyArgs {
  static constexpr int kMaxRank = 6;
  const float* in = nullptr;
  float* out = nullptr;
  int rank = 0;
  std::int64_t extents[kMaxRank] = {};
  std::int64_t in_strides[kMaxRank] = {};
  std::int64_t out_strides[kMaxRank] = {};
};
void strided_copy(const StridedCopyArgs& args, std::int64_t begin, std::int64_t end);

}  // namespace coreai::cpu
