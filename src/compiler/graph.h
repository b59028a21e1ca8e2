// One function, flattened: calls inlined or kept as composite nodes, tokens and handles turned into plain values.
// Passes rewrite it in place; the scheduler turns it into a Plan.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "coreai/compiler/compiler.h"
#include "coreai/compiler/expr.h"
#include "coreai/compiler/plan.h"
#include "coreai/ir/module.h"

namespace coreai::compiler {

using ValueId = std::int32_t;
using NodeId = std::int32_t;
inline constexpr ValueId kNoValue = -1;
inline constexpr NodeId kNoNode = -1;

struct Value {
  DType dtype = DType::kF32;
  std::vector<Expr> shape;
  // Elements of a small integer tensor that is shape arithmetic (row-major); it costs no step.
  std::optional<std::vector<Expr>> host;
  std::optional<NDArray> constant;  // mapped from the file, or folded
  NodeId producer = kNoNode;
  int result = 0;  // which output of the producer
  int input = -1;  // index of the function input, for inputs
  int state = -1;  // index of the state whose content this is at some point of its token order
  bool is_tensor() const { return true; }
};

enum class NodeKind : std::uint8_t {
  kOp,
  kRmsNorm,
  kLayerNorm,
  kRowwise,
  kAveragePool,
  kGatherRows,
  kRope,
  kAttention,
  kLinear,
  kExperts,
  kDeltaRule,
  kEmbedding,
  kStore,
  kHeads,
  kElementwise,
  kDead
};

// x * rsqrt(mean(x^2 over the last axis) + eps) * scale. Inputs: x, scale (constant) [, residual].
struct NormParams {
  float eps = 0;
  bool add_residual = false;  // output = residual + norm(x)
};

// (x - mean) / sqrt(variance + eps) * scale + bias over the last axis, or, with groups, over that many groups of axis 1
// and all axes behind it. Inputs: x, scale, bias (constants).
struct LayerNormParams {
  float eps = 0;
  std::int64_t groups = 0;  // 0: the last axis
};

// A function of the elements along axes (ascending). Inputs: x.
struct RowwiseParams {
  Rowwise kind = Rowwise::kLogSoftmax;
  std::vector<std::int64_t> axes;
};

// Of [n, c, ..] over two or three axes with zeros around them. Inputs: x.
struct AveragePoolParams {
  std::array<std::int64_t, 3> window{1, 1, 1}, stride{1, 1, 1}, padding{};
  double divisor = 1;
};

// Rows of a table that is no weight; inputs: table, ids.
struct GatherRowsParams {
  std::optional<float> scale;
};

// Rotation of the last axis. Inputs: x [.., q, d], positions [1, q]. Angle = position * inverse_frequencies[i].
struct RopeParams {
  std::vector<float> inverse_frequencies;
  bool interleaved = false;
};

// Of attention over plain values.
inline constexpr std::int64_t kMaxPlainHeadDim = 512;

// Inputs: query [.., q, d], key, value (slices of states); axes before the last two are heads. A mask is added to the
// scaled scores and broadcasts to [b, heads, q, keys]; sinks are a logit per head.
struct AttentionParams {
  float scale = 0;
  bool causal = false;
  std::int64_t window = 0;
  int mask = -1, sinks = -1;  // indices of inputs
  bool of_states = true;      // else keys [b, kv, s, d] and values [b, kv, s, e] are plain values
};

// y = x W^T, once per weight; inputs: x [, residual]. Outputs: one per weight, or one for a gated pair.
struct LinearParams {
  std::vector<WeightSource> weights;
  std::vector<std::optional<NDArray>> biases;
  Activation activation = Activation::kNone;  // gated: output = activation(x W0^T) * (x W1^T)
  bool gated = false;
  bool add_residual = false;
};

// One matrix of several per row, named by an index. Inputs: x, indices [.., choices] (before the weights are known x,
// the stack of matrices, indices). Output: one row per index, [1, n, choices, 1, outputs].
struct ExpertsParams {
  std::int64_t experts = 0;
  std::int64_t choices = 1;           // rows of the output per row of x
  std::vector<WeightSource> weights;  // one per expert; when gated then as many of the other factor
  Activation activation = Activation::kNone;
  bool gated = false;
};

// The gated delta rule. Inputs: query, key [b, h, t, d], value [b, h, t, e], decay, beta [b, h, t], state [b, h, d, e].
// Outputs: rows [b, t, h, e], the new state.
struct DeltaRuleParams {
  std::optional<float> norm_eps;
  float scale = 1;  // of the query
};

// Rows of a weight by index; inputs: ids. Output scaled by `scale`.
struct EmbeddingParams {
  WeightSource weight;
  float scale = 1;
};

// One slice_update of a state; inputs: old content, update. Output: new content.
struct StoreParams {
  int state = -1;
  std::vector<Expr> start, extent;
};

// Several heads of projections on their way into a buffer or a state: what a HeadsStep does. Inputs: per task the
// projection [1, h, q, d]; then positions per rotated task. Outputs: per task the rotated heads [1, h, q, d] or the new
// content of the state.
struct HeadsParams {
  struct Task {
    std::size_t input = 0;
    std::int64_t first_head = 0, heads = 0, head_dim = 0;
    std::vector<float> norm_scale;  // [heads * head_dim]
    float eps = 0;
    std::optional<std::size_t> positions;  // index of the input
    RopeParams rope;
    int state = -1;  // -1: to a buffer
    std::int64_t layer = 0;
    Expr position = 0;
  };
  std::vector<Task> tasks;
};

// A chain of scalar operations; inputs: its operands. See ElementwiseStep.
struct ElementwiseParams {
  std::vector<ScalarInstruction> code;
};

struct Node {
  NodeKind kind = NodeKind::kOp;
  ir::OpCode code{};
  const ir::Op* source = nullptr;
  std::vector<ValueId> inputs, outputs;
  std::variant<std::monostate, NormParams, LayerNormParams, RowwiseParams, AveragePoolParams, GatherRowsParams,
               RopeParams, AttentionParams, LinearParams, ExpertsParams, DeltaRuleParams, EmbeddingParams, StoreParams,
               HeadsParams, ElementwiseParams>
      params;
  double position = 0;           // where it stands in program order: a new node takes the place of the one it replaces
  std::string composite_symbol;  // of nodes made from a composite call: what to disable when no kernel takes it
};

struct GraphOutput {
  std::string name;
  ValueId value = kNoValue;
  std::size_t index = 0;      // among the function's outputs (tokens not counted)
  DType dtype = DType::kF32;  // declared
};

// An operation that lower() met: its fate there, and the node that it became.
struct Origin {
  TracedOp traced;
  NodeId node = kNoNode;
};

class Graph {
 public:
  ExprPool exprs;
  std::vector<Origin> origins;  // when traced
  std::vector<Guard> guards;
  std::vector<IncreasingGuard> increasing;
  std::vector<SymbolBinding> symbols;
  std::vector<Value> values;
  std::vector<Node> nodes;             // sorted() after every pass: each follows what it reads
  std::vector<ValueId> inputs;         // by input index
  std::vector<ValueId> state_initial;  // by state index
  std::vector<ValueId> state_final;
  std::vector<GraphOutput> outputs;
  bool plain_states = false;  // states are arrays in their declared layout, not caches in that of the attention kernels

  ValueId new_value(DType dtype, std::vector<Expr> shape);
  NodeId append(Node node);
  Value& value(ValueId id) { return values[static_cast<std::size_t>(id)]; }
  const Value& value(ValueId id) const { return values[static_cast<std::size_t>(id)]; }
  Node& node(NodeId id) { return nodes[static_cast<std::size_t>(id)]; }
  // The node that makes a value, or null for inputs, constants and states.
  Node* producer(ValueId id);
  const Node* producer(ValueId id) const;
  bool is_op(ValueId id, ir::OpCode code) const;

  void require_nonnegative(Expr e, std::string reason, GuardKind kind = GuardKind::kShape);
  std::optional<std::int64_t> static_extent(ValueId id, std::size_t axis) const;
  // Extents as a Shape with kDynamic where they are not constant.
  Shape declared_shape(ValueId id) const;
  // How often each value is read by live nodes, outputs and final states.
  std::vector<int> use_counts() const;
  // Redirects every reader of `from` to `to`.
  void replace_uses(ValueId from, ValueId to);
  // Marks nodes without readers dead, and drops dead nodes.
  void sweep();
  // Ids of live nodes in program order; throws NotPlannable when they depend on each other in a circle.
  std::vector<NodeId> order() const;
  bool is_state_extent(Expr e) const;
  std::string text() const;
};

// A function that no plan can serve: the caller runs it op by op and shows the reason.
struct NotPlannable {
  std::string reason;
  // A composite call that stood in the way: its body may do. Initialised so that {reason} alone is complete.
  std::string composite_symbol = {};
  // What may do instead: states in their declared layout, or elements of small integer inputs as symbols.
  enum class Remedy : std::uint8_t { kNone, kPlainStates, kValueInputs } remedy = Remedy::kNone;
};

}  // namespace coreai::compiler
