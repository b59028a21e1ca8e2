#include <algorithm>
#include <cstring>

#include "compiler/matchers.h"
#include "compiler/passes.h"
#include "compiler/shapes.h"
#include "coreai/base/error.h"

namespace coreai::compiler {
namespace {

using ir::OpCode;

// A constant through casts that lose nothing: f16 or bf16 widened stays as it is stored.
std::optional<NDArray> stored_constant(const Graph& g, ValueId id) {
  if (g.value(id).constant) return g.value(id).constant;
  const Node* p = g.producer(id);
  if (!p || p->kind != NodeKind::kOp || p->code != OpCode::kCast) return std::nullopt;
  const auto inner = stored_constant(g, p->inputs[0]);
  if (!inner || !is_float(inner->dtype()) || !is_float(g.value(id).dtype)) return std::nullopt;
  const bool widens =
      g.value(id).dtype == DType::kF32 && (inner->dtype() == DType::kF16 || inner->dtype() == DType::kBF16);
  return widens || inner->dtype() == g.value(id).dtype ? inner : std::nullopt;
}

bool all_zero(const NDArray& array) {
  const auto bytes = array.bytes();  // all equal to their neighbour and the first is zero
  return bytes.empty() || (bytes[0] == std::byte{0} && !std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1));
}

std::optional<NDArray> unless_zero(NDArray array) {
  if (all_zero(array)) return std::nullopt;
  return array;
}

bool packable_integer(DType d) {
  return is_integer(d) && dtype_bits(d) <= 8;
}

std::optional<WeightSource> dequantised(const Graph& g, const Node& node) {
  const auto data = stored_constant(g, node.inputs[0]);
  const auto scale = stored_constant(g, node.inputs[1]);
  const auto zero = stored_constant(g, node.inputs[2]);
  const auto offset = stored_constant(g, node.inputs[3]);
  if (!data || !scale || !zero || !offset || data->shape().rank() != 2 || scale->shape().rank() != 2)
    return std::nullopt;
  if (!packable_integer(data->dtype()) || !is_working_float(scale->dtype()) || !is_working_float(offset->dtype()))
    return std::nullopt;
  const std::int64_t rows = data->shape()[0], columns = data->shape()[1];
  if (scale->shape()[0] <= 0 || scale->shape()[1] <= 0 || rows % scale->shape()[0] || columns % scale->shape()[1]) {
    return std::nullopt;
  }
  if (zero->shape() != scale->shape() || offset->shape() != scale->shape()) return std::nullopt;
  WeightSource w;
  w.data = *data;
  w.scale = *scale;
  w.zero = unless_zero(*zero);
  w.offset = unless_zero(*offset);
  w.rows = rows;
  w.columns = columns;
  return w;
}

// Whether a value is transpose(input, [1, 0]); then its input.
std::optional<ValueId> transposed_input(const Graph& g, ValueId id) {
  const Node* p = g.producer(id);
  if (!p || p->kind != NodeKind::kOp || p->code != OpCode::kTranspose) return std::nullopt;
  const auto perm = constant_elements(g, p->inputs[1]);
  if (!perm || *perm != std::vector<std::int64_t>{1, 0}) return std::nullopt;
  return p->inputs[0];
}

// y = x B: the matrix whose rows are outputs.
std::optional<WeightSource> right_operand(const Graph& g, ValueId id) {
  if (const auto inner = transposed_input(g, id)) return weight_of(g, *inner);
  auto w = weight_of(g, id);  // stored [columns, rows]
  if (!w || w->scale || w->transposed) return std::nullopt;
  w->transposed = true;
  std::swap(w->rows, w->columns);
  return w;
}

void form_linear(Graph& g, Node& node) {
  const auto& x_shape = g.value(node.inputs[0]).shape;
  if (x_shape.size() < 2 || g.value(node.inputs[1]).shape.size() != 2) return;
  const auto w = right_operand(g, node.inputs[1]);
  if (!w || !g.exprs.is_constant(x_shape.back(), w->columns)) return;
  node.kind = NodeKind::kLinear;
  node.inputs.resize(1);
  LinearParams params;
  params.weights.push_back(*w);
  params.biases.emplace_back();
  node.params = std::move(params);
}

// gather_nd(W, ids[..., 1]): rows of a weight.
void form_embedding(Graph& g, Node& node) {
  const auto w = weight_of(g, node.inputs[0]);
  const auto& ids = g.value(node.inputs[1]);
  if (!w || w->transposed || ids.shape.empty() || !g.exprs.is_constant(ids.shape.back(), 1)) return;
  if (ids.dtype != DType::kSI32) return;
  node.kind = NodeKind::kEmbedding;
  node.inputs = {node.inputs[1]};
  node.params = EmbeddingParams{*w, 1.0f};
}

}  // namespace

ValueId strip_casts(const Graph& g, ValueId id) {
  while (const Node* p = g.producer(id)) {
    if (p->kind != NodeKind::kOp || p->code != OpCode::kCast) break;
    if (!is_working_float(g.value(id).dtype) || !is_working_float(g.value(p->inputs[0]).dtype)) break;
    id = p->inputs[0];
  }
  return id;
}

std::optional<std::vector<float>> float_elements(const Graph& g, ValueId id) {
  const auto array = constant_array(g, strip_casts(g, id));
  if (!array || !is_float(array->dtype()) || array->element_count() > (1 << 20)) return std::nullopt;
  std::vector<double> wide(static_cast<std::size_t>(array->element_count()));
  read_as_f64(*array, wide);
  return std::vector<float>(wide.begin(), wide.end());
}

std::optional<WeightSource> weight_of(const Graph& g, ValueId id) {
  id = strip_casts(g, id);
  if (const Node* p = g.producer(id)) {
    if (p->kind == NodeKind::kOp && p->code == OpCode::kBlockwiseShiftScale) return dequantised(g, *p);
    return std::nullopt;
  }
  const auto& constant = g.value(id).constant;
  if (!constant || constant->shape().rank() != 2 || !is_working_float(constant->dtype())) return std::nullopt;
  WeightSource w;
  w.data = *constant;
  w.rows = constant->shape()[0];
  w.columns = constant->shape()[1];
  return w;
}

void form_linear_layers(Graph& g) {
  for (const NodeId id : g.order()) {
    Node& node = g.node(id);
    if (node.kind != NodeKind::kOp) continue;
    if (node.code == OpCode::kBroadcastingBatchMatmul || node.code == OpCode::kBatchMatmul) form_linear(g, node);
    if (node.code == OpCode::kGatherNd) form_embedding(g, node);
  }
  g.sweep();
}

}  // namespace coreai::compiler
