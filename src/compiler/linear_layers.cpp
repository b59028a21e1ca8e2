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

// All of rank 2.
std::optional<WeightSource> dequantised(NDArray data, NDArray scale, NDArray zero, NDArray offset) {
  if (!packable_integer(data.dtype()) || !is_working_float(scale.dtype()) || !is_working_float(offset.dtype()))
    return std::nullopt;
  const std::int64_t rows = data.shape()[0], columns = data.shape()[1];
  if (scale.shape()[0] <= 0 || scale.shape()[1] <= 0 || rows % scale.shape()[0] || columns % scale.shape()[1]) {
    return std::nullopt;
  }
  if (zero.shape() != scale.shape() || offset.shape() != scale.shape()) return std::nullopt;
  WeightSource w;
  w.data = std::move(data);
  w.scale = std::move(scale);
  w.zero = unless_zero(std::move(zero));
  w.offset = unless_zero(std::move(offset));
  w.rows = rows;
  w.columns = columns;
  return w;
}

// lut_to_dense of constants [rows, columns (, 1..)] whose tables hold single values.
std::optional<WeightSource> palettised(const Graph& g, const Node& node) {
  const auto data = stored_constant(g, node.inputs[0]);
  const auto table = stored_constant(g, node.inputs[1]);
  if (!data || !table || dtype_class(data->dtype()) != DTypeClass::kUnsigned || !packable_integer(data->dtype()) ||
      !is_working_float(table->dtype())) {
    return std::nullopt;
  }
  const Shape &s = data->shape(), &t = table->shape();
  if (s.rank() < 2 || t.rank() != s.rank() + 2) return std::nullopt;
  for (std::size_t i = 2; i < s.rank(); ++i) {
    if (s[i] != 1 || t[i] != 1) return std::nullopt;
  }
  const std::int64_t entries = t[s.rank()], vector = t[s.rank() + 1];
  const bool divides = s[0] > 0 && s[1] > 0 && t[0] > 0 && t[1] > 0 && s[0] % t[0] == 0 && s[1] % t[1] == 0;
  if (!divides || vector != 1 || entries != std::int64_t{1} << dtype_bits(data->dtype())) return std::nullopt;
  WeightSource w;
  w.data = data->reshaped(Shape{s[0], s[1]});
  w.table = table->reshaped(Shape{t[0], t[1], entries});
  w.rows = s[0];
  w.columns = s[1];
  return w;
}

std::optional<WeightSource> dequantised(const Graph& g, const Node& node) {
  const auto data = stored_constant(g, node.inputs[0]);
  const auto scale = stored_constant(g, node.inputs[1]);
  const auto zero = stored_constant(g, node.inputs[2]);
  const auto offset = stored_constant(g, node.inputs[3]);
  if (!data || !scale || !zero || !offset || data->shape().rank() != 2 || scale->shape().rank() != 2 ||
      !is_working_float(g.value(node.outputs[0]).dtype))
    return std::nullopt;
  auto w = dequantised(*data, *scale, *zero, *offset);
  if (w) w->rounded = g.value(node.outputs[0]).dtype;
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
  if (!w || w->scale || w->table || w->transposed) return std::nullopt;
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

// A constant [1, e, a, b] as e matrices: by rows [e * a, b], or transposed, each a part of the stored bytes.
std::vector<WeightSource> float_stack(const NDArray& stack, bool transposed) {
  const Shape& s = stack.shape();
  std::vector<WeightSource> out;
  const Shape each{s[2], s[3]};
  const std::size_t bytes = stack.byte_size() / static_cast<std::size_t>(s[1]);
  const auto base = static_cast<std::size_t>(stack.bytes().data() - stack.storage()->data());
  for (std::int64_t e = 0; e < s[1]; ++e) {
    WeightSource w;
    w.data = NDArray(stack.dtype(), each, stack.storage(), base + bytes * static_cast<std::size_t>(e));
    w.transposed = transposed;
    w.rows = transposed ? s[3] : s[2];
    w.columns = transposed ? s[2] : s[3];
    out.push_back(std::move(w));
  }
  return out;
}

// Whether scales have the data's axes before the last two: each matrix has its own.
bool same_leading_axes(const Shape& data, const Shape& scale) {
  if (scale.rank() != data.rank()) return false;
  for (std::size_t i = 0; i + 2 < data.rank(); ++i) {
    if (scale[i] != data[i]) return false;
  }
  return true;
}

// Dequantised constants [1, e, out, in] with scales per expert: e parts of one matrix [e * out, in].
std::vector<WeightSource> quantised_stack(const Graph& g, const Node& node) {
  const auto data = stored_constant(g, node.inputs[0]), scale = stored_constant(g, node.inputs[1]);
  const auto zero = stored_constant(g, node.inputs[2]), offset = stored_constant(g, node.inputs[3]);
  if (!data || !scale || !zero || !offset || data->shape().rank() != 4 ||
      !same_leading_axes(data->shape(), scale->shape()) || zero->shape() != scale->shape() ||
      offset->shape() != scale->shape()) {
    return {};
  }
  const auto flat = [](const NDArray& a) {
    return a.reshaped(Shape{a.shape()[0] * a.shape()[1] * a.shape()[2], a.shape()[3]});
  };
  const std::int64_t experts = data->shape()[1];
  auto whole = dequantised(flat(*data), flat(*scale), flat(*zero), flat(*offset));
  if (!whole || data->shape()[0] != 1 || data->shape()[2] % scale->shape()[2] ||
      !is_working_float(g.value(node.outputs[0]).dtype))
    return {};
  whole->rounded = g.value(node.outputs[0]).dtype;
  std::vector<WeightSource> out(static_cast<std::size_t>(experts), *whole);
  for (std::int64_t e = 0; e < experts; ++e) {
    WeightSource& w = out[static_cast<std::size_t>(e)];
    w.rows = data->shape()[2];
    w.first_row = e * w.rows;
  }
  return out;
}

// The matrices [1, e, in, out] of a product y = x B; nothing when no kernel packs them.
std::vector<WeightSource> stack_of(const Graph& g, ValueId id) {
  id = strip_casts(g, id);
  const Node* p = g.producer(id);
  bool transposed = true;
  if (p && p->kind == NodeKind::kOp && p->code == OpCode::kTranspose) {
    const auto perm = constant_elements(g, p->inputs[1]);
    if (!perm || *perm != std::vector<std::int64_t>{0, 1, 3, 2}) return {};
    transposed = false;
    id = strip_casts(g, p->inputs[0]);
    p = g.producer(id);
  }
  if (p) {
    const bool quantised = p->kind == NodeKind::kOp && p->code == OpCode::kBlockwiseShiftScale && !transposed;
    return quantised ? quantised_stack(g, *p) : std::vector<WeightSource>{};
  }
  const auto& constant = g.value(id).constant;
  if (!constant || constant->shape().rank() != 4 || constant->shape()[0] != 1 || !is_working_float(constant->dtype()))
    return {};
  return float_stack(*constant, transposed);
}

void find_experts(Graph& g, Node& node) {
  auto& params = std::get<ExpertsParams>(node.params);
  params.weights = stack_of(g, node.inputs[1]);
  if (!params.weights.empty()) node.inputs.erase(node.inputs.begin() + 1);
}

// gather_nd(W, ids[..., 1]): rows of a weight.
void form_embedding(Graph& g, Node& node) {
  const auto w = weight_of(g, node.inputs[0]);
  const auto& ids = g.value(node.inputs[1]);
  const bool rows = w && !w->transposed && g.value(node.inputs[0]).shape.size() == 2;
  if (!rows || ids.shape.empty() || !g.exprs.is_constant(ids.shape.back(), 1)) return;
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
    if (p->kind == NodeKind::kOp && p->code == OpCode::kLutToDense) return palettised(g, *p);
    return std::nullopt;
  }
  const auto& constant = g.value(id).constant;
  if (!constant || !is_working_float(constant->dtype()) || constant->shape().rank() < 2) return std::nullopt;
  for (std::size_t i = 2; i < constant->shape().rank(); ++i) {
    if (constant->shape()[i] != 1) return std::nullopt;
  }
  WeightSource w;
  w.data = constant->reshaped(Shape{constant->shape()[0], constant->shape()[1]});
  w.rows = constant->shape()[0];
  w.columns = constant->shape()[1];
  return w;
}

void form_linear_layers(Graph& g) {
  for (const NodeId id : g.order()) {
    Node& node = g.node(id);
    if (node.kind == NodeKind::kExperts) find_experts(g, node);
    if (node.kind != NodeKind::kOp) continue;
    if (node.code == OpCode::kBroadcastingBatchMatmul || node.code == OpCode::kBatchMatmul) form_linear(g, node);
    if (node.code == OpCode::kGatherNd) form_embedding(g, node);
  }
  g.sweep();
  form_pointwise_layers(g);
}

}  // namespace coreai::compiler
