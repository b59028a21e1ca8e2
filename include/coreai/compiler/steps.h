// The steps of a plan.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "coreai/base/ndarray.h"
#include "coreai/compiler/operands.h"
#include "coreai/compiler/scalar_op.h"
#include "coreai/ir/module.h"

namespace coreai::compiler {

enum class Activation : std::uint8_t { kNone, kSilu, kGeluTanh, kGeluErf, kGeluSigmoid };

struct EmbeddingStep {
  int weight = -1;
  int ids = -1;  // buffer of si32/ui32 ids
  Expr ids_offset = 0;
  DType ids_dtype = DType::kSI32;
  Rows out;
  float scale = 1;
};
struct NormStep {
  Rows in, out;
  std::vector<float> scale;
  float eps = 0;
  std::optional<Rows> residual;
};
// (x - mean) / sqrt(variance + eps) * scale + bias of each row. `spread` elements in a row share a scale; rows take
// the scales of `period` rows in turn: of a group norm, a row is a group of channels.
struct LayerNormStep {
  Rows in, out;
  std::vector<float> scale, bias;  // [period * width / spread], or empty
  std::int64_t period = 1, spread = 1;
  float eps = 0;
};
// A function of each row by itself.
enum class Rowwise : std::uint8_t {
  kLogSoftmax,
  kVectorNorm,  // square root of the sum of squares: `out` has width 1
};
struct RowwiseStep {
  Rowwise kind = Rowwise::kLogSoftmax;
  Rows in, out;
};
struct LinearStep {
  Rows in;
  int weight = -1;  // packed weight: all segments concatenated
  std::vector<float> bias;
  Activation activation = Activation::kNone;
  bool gated = false;
  std::optional<Rows> residual;
  Rows out;
};
// Products with one of several matrices of equal extents: out[r] = in[r / choices] W^T with W the matrix that index r
// names (from the end when negative). Each matrix is read once per call at most.
struct ExpertStep {
  Rows in;
  std::int64_t choices = 1;
  int indices = -1;  // buffer of integers, one per row of `out`
  Expr indices_offset = 0;
  DType indices_dtype = DType::kSI32;
  int weight = -1;  // packed weight: the matrices of all experts; when gated then as many of the other factor
  std::int64_t experts = 0;
  Activation activation = Activation::kNone;
  bool gated = false;
  Rows out;
};
// The gated delta rule over all tokens of a call, from one content of a state to the next: per head
// S = S exp(decay); d = (value - key S) beta; S = S + key d; out = query S.
struct DeltaRuleStep {
  View query, key;                // f32 [batch, heads, tokens, key dim], elements of a token without gaps
  View value, out;                // f32 [batch, heads, tokens, value dim], the same
  View decay, beta;               // f32 [batch, heads, tokens]
  View state_in, state_out;       // f32, f16 or bf16 [batch, heads, key dim, value dim], no gaps in a head; may be one
  std::optional<float> norm_eps;  // query and key are divided by sqrt(sum of squares + eps)
  float scale = 1;                // of the query
};
// cos and sin of positions, made once per call and shared by the layers: table [q, 2 * half].
struct RopeTableStep {
  int positions = -1;  // buffer of si32
  DType positions_dtype = DType::kSI32;
  Expr position_offset = 0;  // element of the first position used
  std::vector<float> inverse_frequencies;
  int table = -1;
};
// Heads of a projection: optional norm per head, optional rotation, then into a buffer or a state.
struct HeadTask {
  Rows in;  // width = heads * head_dim; row r, head h at offset + r * row_stride + h * head_dim
  std::int64_t heads = 0, head_dim = 0;
  std::vector<float> norm_scale;  // [heads * head_dim], empty = no norm
  float eps = 0;
  int rope_table = -1;  // buffer, -1 = none
  std::int64_t rope_dims = 0;
  bool interleaved = false;
  // Destination: rows, or a state at (layer, every head, position + row).
  std::optional<Rows> out;
  int state = -1;
  std::int64_t layer = 0;
  Expr position = 0;
};
struct HeadsStep {
  std::vector<HeadTask> tasks;
};
// Added to scaled scores: f32, of head h, row r and position k at offset + h * head_stride + r * row_stride + k.
struct ScoreMask {
  int buffer = -1;
  Expr offset = 0, row_stride = 0, head_stride = 0;
};
// Several batches of one attention over plain values: their number and the elements from one to the next.
struct AttentionBatches {
  Expr count = 0, query = 0, keys = 0, values = 0, mask = 0, out = 0;
};
struct AttentionStep {
  Rows query, out;
  int key_state = -1, value_state = -1;
  std::int64_t layer = 0, value_layer = 0;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::optional<Rows> keys, values;  // instead of states: row r, head h at r * row_stride + h * dim
  std::int64_t value_dim = 0;
  Expr length = 0;  // positions that are attended, the new ones included
  float scale = 1;
  bool causal = true;
  std::int64_t window = 0;
  std::vector<float> sinks;
  std::optional<ScoreMask> mask;
  std::optional<AttentionBatches> batches;
};
// Copies elements between two views of equal extents, converting the dtype of one buffer to that of the other.
struct CopyStep {
  View in, out;
};
// One operation of the file by the back-end's reference kernels: no fused kernel takes it.
struct GenericOperand {
  int buffer = -1;  // contiguous, in the declared dtype
  std::optional<NDArray> constant;
  std::vector<Expr> host;  // elements of shape arithmetic
  DType dtype = DType::kF32;
  std::vector<Expr> shape;
};
struct GenericStep {
  const ir::Op* op = nullptr;
  std::vector<GenericOperand> inputs, outputs;
};
// Sums over windows of the last two or three axes of f32, f16 or bf16, zeros around them, each divided by `divisor`.
struct AveragePoolStep {
  std::array<std::int64_t, 3> window{1, 1, 1}, stride{1, 1, 1}, padding{};  // depth, height, width; both sides padded
  double divisor = 1;
  std::vector<GenericOperand> inputs, outputs;  // of one dtype and of rank 4 or 5
};
// Rows of a table [rows, ..] by ids of any shape, which count from its end when negative. With a scale the table is
// si8 or ui8, the result f32, f16 or bf16.
struct GatherRowsStep {
  std::optional<float> scale;
  std::vector<GenericOperand> inputs, outputs;  // table, ids
};

// A chain of element-wise operations in f32, rounded once to the dtype of its result. Value i of the chain is operand
// i, behind the operands value i is the instruction before; the last one is the result.
struct ScalarInstruction {
  ScalarOp op = ScalarOp::kConstant;
  int a = -1, b = -1, c = -1;  // values of the chain
  float constant = 0;
};
struct ElementwiseOperand {
  View view;                        // over the extents of the result, stride 0 where it broadcasts
  std::optional<NDArray> constant;  // instead of a buffer
};
struct ElementwiseStep {
  static constexpr std::size_t kMaxOperands = 8, kMaxInstructions = 32, kMaxRank = 6;
  static constexpr int kMaxLive = 14;  // values that are still read, at any place of the chain
  std::vector<ElementwiseOperand> operands;
  std::vector<ScalarInstruction> code;
  View out;  // row-major
};

using StepBody =
    std::variant<EmbeddingStep, NormStep, LayerNormStep, RowwiseStep, LinearStep, ExpertStep, RopeTableStep, HeadsStep,
                 AttentionStep, DeltaRuleStep, CopyStep, ElementwiseStep, GenericStep, AveragePoolStep, GatherRowsStep>;

struct Step {
  StepBody body;
  std::string name;
  Expr rows = 0;           // rows of the call
  bool last_rows = false;  // only the rows that the caller wants of the output (Rows pass)
};

}  // namespace coreai::compiler
