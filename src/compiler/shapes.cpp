#include "compiler/shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>

namespace coreai::compiler {
namespace {

using ir::OpCode;

[[noreturn]] void give_up(const Node& node, const std::string& why) {
  throw NotPlannable{fmt::format("{}: {}", ir::op_info(node.code).text_name, why)};
}

const std::vector<Expr>& host_elements(const Graph& g, const Node& node, std::size_t i) {
  const auto& host = g.value(node.inputs.at(i)).host;
  if (!host) {
    throw NotPlannable{
        fmt::format("{}: operand {} is not known when shapes are computed", ir::op_info(node.code).text_name, i),
        {},
        NotPlannable::Remedy::kValueInputs};
  }
  return *host;
}

std::int64_t constant_element(const Graph& g, const Node& node, std::size_t i, std::size_t k = 0) {
  const auto& elements = host_elements(g, node, i);
  if (k >= elements.size()) give_up(node, fmt::format("operand {} is too short", i));
  const auto c = g.exprs.as_constant(elements[k]);
  if (!c) give_up(node, fmt::format("operand {} is not constant", i));
  return *c;
}

std::size_t normalize_axis(const Node& node, std::int64_t axis, std::size_t rank) {
  const std::int64_t a = axis < 0 ? axis + static_cast<std::int64_t>(rank) : axis;
  if (a < 0 || a >= static_cast<std::int64_t>(rank)) give_up(node, fmt::format("axis {} of rank {}", axis, rank));
  return static_cast<std::size_t>(a);
}

Expr broadcast_extent(Graph& g, const Node& node, Expr a, Expr b) {
  if (a == b) return a;
  if (g.exprs.is_constant(a, 1)) return b;
  if (g.exprs.is_constant(b, 1)) return a;
  // Two different expressions: the plan holds when they are equal.
  if (!require_equal(g, a, b, "operands of one extent"))
    give_up(node, fmt::format("extents {} and {} do not broadcast", g.exprs.text(a), g.exprs.text(b)));
  return g.exprs.as_constant(b) ? b : a;
}

std::vector<Expr> broadcast(Graph& g, const Node& node, const std::vector<Expr>& a, const std::vector<Expr>& b) {
  const std::size_t rank = std::max(a.size(), b.size());
  std::vector<Expr> out(rank);
  const Expr one = g.exprs.constant(1);
  for (std::size_t i = 0; i < rank; ++i) {
    const Expr da = i < rank - a.size() ? one : a[i - (rank - a.size())];
    const Expr db = i < rank - b.size() ? one : b[i - (rank - b.size())];
    out[i] = broadcast_extent(g, node, da, db);
  }
  return out;
}

// ---- host arithmetic ----

using Binary = Expr (ExprPool::*)(Expr, Expr);

std::optional<Binary> host_binary(OpCode code) {
  switch (code) {
    case OpCode::kAdd:
    case OpCode::kBroadcastingAdd:
      return &ExprPool::add;
    case OpCode::kSub:
    case OpCode::kBroadcastingSub:
      return &ExprPool::sub;
    case OpCode::kMul:
    case OpCode::kBroadcastingMul:
      return &ExprPool::mul;
    case OpCode::kFloorDivide:
    case OpCode::kBroadcastingFloorDivide:
      return &ExprPool::floor_div;
    case OpCode::kModulo:
    case OpCode::kBroadcastingModulo:
      return &ExprPool::mod;
    case OpCode::kMaximum:
    case OpCode::kBroadcastingMaximum:
      return &ExprPool::max;
    case OpCode::kMinimum:
    case OpCode::kBroadcastingMinimum:
      return &ExprPool::min;
    default:
      return std::nullopt;
  }
}

bool host_integer(DType dtype) {
  return is_integer(dtype) && dtype_bits(dtype) >= 16;
}

// Elements of the result when every operand is shape arithmetic of rank 0 or 1; nothing when it is not.
std::optional<std::vector<Expr>> host_result(Graph& g, const Node& node, const std::vector<Expr>& out_shape) {
  const Value& out = g.value(node.outputs[0]);
  if (!host_integer(out.dtype) || out_shape.size() > 1) return std::nullopt;
  if (node.code == OpCode::kGetShape) return g.value(node.inputs[0]).shape;
  if (node.inputs.empty()) return std::nullopt;
  for (ValueId in : node.inputs) {
    if (!g.value(in).host) return std::nullopt;
  }
  const auto& first = *g.value(node.inputs[0]).host;
  if (const auto op = host_binary(node.code)) {
    const auto& second = *g.value(node.inputs[1]).host;
    const std::size_t n = std::max(first.size(), second.size());
    if ((first.size() != n && first.size() != 1) || (second.size() != n && second.size() != 1)) return std::nullopt;
    std::vector<Expr> result;
    for (std::size_t i = 0; i < n; ++i) {
      const Expr a = first[first.size() == 1 ? 0 : i], b = second[second.size() == 1 ? 0 : i];
      const Expr r = (g.exprs.*(*op))(a, b);
      if (dtype_class(out.dtype) == DTypeClass::kUnsigned) g.require_nonnegative(r, "an unsigned extent");
      result.push_back(r);
    }
    return result;
  }
  switch (node.code) {
    case OpCode::kCast:
      if (!host_integer(g.value(node.inputs[0]).dtype)) return std::nullopt;
      return first;
    case OpCode::kReshape:
    case OpCode::kExpandDims:
    case OpCode::kShrinkDims:
      return first;
    case OpCode::kSlice: {
      if (g.value(node.inputs[0]).shape.size() != 1) return std::nullopt;
      const auto ranges = slice_ranges(g, node);
      const auto start = g.exprs.as_constant(ranges[0].start), extent = g.exprs.as_constant(ranges[0].extent);
      if (!start || !extent) return std::nullopt;
      std::vector<Expr> result;
      result.reserve(first.size());
      for (std::int64_t i = 0; i < *extent; ++i) {
        result.push_back(first.at(static_cast<std::size_t>(*start + i * ranges[0].stride)));
      }
      return result;
    }
    case OpCode::kConcat: {
      std::vector<Expr> result;
      for (std::size_t i = 1; i < node.inputs.size(); ++i) {
        const auto& part = *g.value(node.inputs[i]).host;
        result.insert(result.end(), part.begin(), part.end());
      }
      return result;
    }
    case OpCode::kReduceProduct:
      return std::vector<Expr>{g.exprs.product(first)};
    default:
      return std::nullopt;
  }
}

// ---- shapes ----

std::vector<Expr> reshape_shape(Graph& g, const Node& node) {
  const auto& wanted = host_elements(g, node, 1);
  const std::vector<Expr>& in = g.value(node.inputs[0]).shape;
  std::vector<Expr> out(wanted);
  std::optional<std::size_t> inferred;
  Expr known = g.exprs.constant(1);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (g.exprs.is_constant(out[i], -1)) {
      if (inferred) give_up(node, "two extents of -1");
      inferred = i;
    } else {
      const auto extent = g.exprs.as_constant(out[i]);
      if (extent && *extent < 0) give_up(node, "a negative extent");
      g.require_nonnegative(out[i], "a reshape has no negative extent");
      known = g.exprs.mul(known, out[i]);
    }
  }
  const Expr total = g.exprs.product(in);
  if (inferred) {
    const auto exact = g.exprs.exact_quotient(total, known);
    const Expr q = exact ? *exact : g.exprs.floor_div(total, known);
    if (!exact && !require_equal(g, g.exprs.mul(q, known), total, "a reshape keeps its elements"))
      give_up(node, "element counts differ");
    out[*inferred] = q;
  } else if (known != total) {
    if (!require_equal(g, known, total, "a reshape keeps its elements")) give_up(node, "element counts differ");
  }
  return out;
}

std::vector<Expr> concat_shape(Graph& g, const Node& node) {
  std::vector<Expr> out;
  bool vector_of_scalars = true;
  for (std::size_t i = 1; i < node.inputs.size(); ++i) {
    vector_of_scalars = vector_of_scalars && g.value(node.inputs[i]).shape.size() <= 1;
  }
  std::size_t axis = 0;
  for (std::size_t i = 1; i < node.inputs.size(); ++i) {
    std::vector<Expr> shape = g.value(node.inputs[i]).shape;
    if (vector_of_scalars && shape.empty()) shape = {g.exprs.constant(1)};  // converters join scalars to vectors
    if (i == 1) {
      axis = normalize_axis(node, constant_element(g, node, 0), shape.size());
      out = shape;
      continue;
    }
    if (shape.size() != out.size()) give_up(node, "operands of different ranks");
    for (std::size_t d = 0; d < out.size(); ++d) {
      out[d] = d == axis ? g.exprs.add(out[d], shape[d]) : broadcast_extent(g, node, out[d], shape[d]);
    }
  }
  return out;
}

std::vector<std::int64_t> constant_list(const Graph& g, const Node& node, std::size_t i) {
  std::vector<std::int64_t> out;
  out.reserve(host_elements(g, node, i).size());
  for (std::size_t k = 0; k < host_elements(g, node, i).size(); ++k) out.push_back(constant_element(g, node, i, k));
  return out;
}

std::vector<Expr> expand_shape(Graph& g, const Node& node) {
  const auto& in = g.value(node.inputs[0]).shape;
  const auto axes = constant_list(g, node, 1);
  const std::size_t rank = in.size() + axes.size();
  std::vector<bool> inserted(rank, false);
  for (std::int64_t a : axes) inserted[normalize_axis(node, a, rank)] = true;
  std::vector<Expr> out;
  std::size_t next = 0;
  for (std::size_t i = 0; i < rank; ++i) {
    if (!inserted[i] && next >= in.size()) give_up(node, "an axis is named twice");
    out.push_back(inserted[i] ? g.exprs.constant(1) : in[next++]);
  }
  return out;
}

std::vector<Expr> shrink_shape(Graph& g, const Node& node) {
  const auto& in = g.value(node.inputs[0]).shape;
  std::vector<bool> removed(in.size(), false);
  for (std::int64_t a : constant_list(g, node, 1)) removed[normalize_axis(node, a, in.size())] = true;
  std::vector<Expr> out;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (!removed[i]) {
      out.push_back(in[i]);
    } else if (!g.exprs.is_constant(in[i], 1)) {
      give_up(node, "a removed axis is not 1");
    }
  }
  return out;
}

std::vector<Expr> matmul_shape(Graph& g, const Node& node) {
  const auto& a = g.value(node.inputs[0]).shape;
  const auto& b = g.value(node.inputs[1]).shape;
  if (a.size() < 2 || b.size() < 2) give_up(node, "a rank below 2");
  std::vector<Expr> out = broadcast(g, node, {a.begin(), a.end() - 2}, {b.begin(), b.end() - 2});
  broadcast_extent(g, node, a.back(), b[b.size() - 2]);
  out.push_back(a[a.size() - 2]);
  out.push_back(b.back());
  return out;
}

std::vector<Expr> transpose_shape(Graph& g, const Node& node) {
  const auto& in = g.value(node.inputs[0]).shape;
  const auto perm = constant_list(g, node, 1);
  if (perm.size() != in.size()) give_up(node, "the permutation has another rank");
  std::vector<Expr> out;
  out.reserve(perm.size());
  for (std::int64_t p : perm) out.push_back(in[normalize_axis(node, p, in.size())]);
  return out;
}

std::vector<Expr> gather_nd_shape(Graph& g, const Node& node) {
  const auto& data = g.value(node.inputs[0]).shape;
  const auto& ids = g.value(node.inputs[1]).shape;
  const auto depth = ids.empty() ? std::nullopt : g.exprs.as_constant(ids.back());
  if (!depth || *depth < 0 || *depth > static_cast<std::int64_t>(data.size())) give_up(node, "the depth is not known");
  std::vector<Expr> out(ids.begin(), ids.end() - 1);
  out.insert(out.end(), data.begin() + *depth, data.end());
  return out;
}

std::vector<Expr> range_shape(Graph& g, const Node& node) {
  const std::int64_t step = constant_element(g, node, 2);
  constexpr std::int64_t kMaxStep = std::numeric_limits<std::int32_t>::max();  // products of two stay in 64 bits
  if (step == 0 || step < -kMaxStep || step > kMaxStep) give_up(node, "a step of 0 or out of range");
  const Expr first = host_elements(g, node, 0)[0], end = host_elements(g, node, 1)[0];
  const Expr span = step > 0 ? g.exprs.sub(end, first) : g.exprs.sub(first, end);
  g.require_nonnegative(span, "a range runs in the direction of its step");
  const std::int64_t size = step > 0 ? step : -step;
  if (size == 1) return {span};
  return {g.exprs.floor_div(g.exprs.add(span, g.exprs.constant(size - 1)), g.exprs.constant(size))};
}

void split_shapes(Graph& g, const Node& node) {
  const std::vector<Expr> in = g.value(node.inputs[0]).shape;
  const std::size_t axis = normalize_axis(node, constant_element(g, node, 2), in.size());
  std::vector<std::int64_t> sizes = constant_list(g, node, 1);
  if (g.value(node.inputs[1]).shape.empty()) {
    const auto n = g.exprs.as_constant(in[axis]);
    if (!n || sizes[0] <= 0) give_up(node, "a split of an unknown extent");
    std::int64_t rest = *n;
    const std::int64_t size = sizes[0];
    sizes.clear();
    for (; rest > 0; rest -= size) sizes.push_back(std::min(rest, size));
  }
  if (sizes.size() != node.outputs.size()) give_up(node, "the number of parts differs");
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::vector<Expr> shape = in;
    shape[axis] = g.exprs.constant(sizes[i]);
    g.value(node.outputs[i]).shape = shape;
  }
}

std::vector<Expr> reduce_shape(Graph& g, const Node& node) {
  std::vector<Expr> out = g.value(node.inputs[0]).shape;
  for (std::int64_t a : constant_list(g, node, 1)) out[normalize_axis(node, a, out.size())] = g.exprs.constant(1);
  return out;
}

// How often a window of `taps` elements fits into `extent`.
Expr window_count(Graph& g, const Node& node, Expr extent, Expr taps, std::int64_t stride, std::int64_t dilation,
                  bool up = false) {
  ExprPool& x = g.exprs;
  if (stride < 1 || dilation < 1) give_up(node, "a stride or dilation below 1");
  const Expr one = x.constant(1), reach = x.add(x.mul(x.sub(taps, one), x.constant(dilation)), one);
  const auto count = windows_in(g, extent, reach, stride, up);
  if (!count) give_up(node, "a window larger than its input");
  return *count;
}

// One constant per spatial axis.
std::vector<std::int64_t> per_axis(const Graph& g, const Node& node, std::size_t operand, std::size_t axes) {
  std::vector<std::int64_t> values = constant_list(g, node, operand);
  if (values.size() != axes) give_up(node, "as many values as spatial axes are needed");
  return values;
}

std::vector<Expr> conv_shape(Graph& g, const Node& node, std::size_t axes) {
  std::vector<Expr> out = g.value(node.inputs.at(0)).shape;
  const std::vector<Expr> weight = g.value(node.inputs.at(1)).shape;
  if (out.size() != axes + 2 || weight.size() != out.size()) give_up(node, "operands of another rank");
  const auto stride = per_axis(g, node, 2, axes), dilation = per_axis(g, node, 3, axes);
  out[1] = weight[0];
  for (std::size_t i = 0; i < axes; ++i)
    out[2 + i] = window_count(g, node, out[2 + i], weight[2 + i], stride[i], dilation[i]);
  return out;
}

std::vector<Expr> pool_shape(Graph& g, const Node& node, std::size_t axes, bool up) {
  std::vector<Expr> out = g.value(node.inputs.at(0)).shape;
  if (out.size() != axes + 2) give_up(node, "an operand of another rank");
  const auto window = per_axis(g, node, 1, axes), stride = per_axis(g, node, 2, axes),
             dilation = per_axis(g, node, 3, axes);
  for (std::size_t i = 0; i < axes; ++i) {
    if (window[i] < 1) give_up(node, "an empty window");
    out[2 + i] = window_count(g, node, out[2 + i], g.exprs.constant(window[i]), stride[i], dilation[i], up);
  }
  return out;
}

std::vector<Expr> pad_shape(Graph& g, const Node& node) {
  std::vector<Expr> out = g.value(node.inputs.at(0)).shape;
  const auto padding = host_elements(g, node, 1);
  if (padding.size() != 2 * out.size()) give_up(node, "the padding needs two elements per axis");
  for (std::size_t i = 0; i < padding.size(); ++i) {
    const auto known = g.exprs.as_constant(padding[i]);
    if (known && *known < 0) give_up(node, "a negative padding");
    g.require_nonnegative(padding[i], "a padding is not negative");
    out[i / 2] = g.exprs.add(out[i / 2], padding[i]);
  }
  return out;
}

std::vector<Expr> declared_or_give_up(Graph& g, const Node& node) {
  const ir::TypeRef type = node.source->results.at(0)->type;
  if (!type->is_tensor() || !type->shape().is_static()) give_up(node, "its extents cannot be computed");
  std::vector<Expr> out;
  for (std::int64_t d : type->shape().dims()) out.push_back(g.exprs.constant(d));
  return out;
}

// Convolutions, pooling and padding: as declared when that says all.
std::vector<Expr> windowed_shape(Graph& g, const Node& node) {
  const ir::TypeRef declared = node.source->results.at(0)->type;
  if (declared->is_tensor() && declared->shape().is_static()) return declared_or_give_up(g, node);
  switch (node.code) {
    case OpCode::kPad:
      return pad_shape(g, node);
    case OpCode::kConv2d:
      return conv_shape(g, node, 2);
    case OpCode::kConv3d:
      return conv_shape(g, node, 3);
    case OpCode::kSumPool2d:
    case OpCode::kSumPool3d:
      return pool_shape(g, node, node.code == OpCode::kSumPool2d ? 2 : 3, false);
    default:
      break;
  }
  const auto& up = g.value(node.inputs.at(4)).constant;
  if (!up || up->element_count() != 1) give_up(node, "whether windows reach over the edge is not known");
  std::array<double, 1> element{};
  read_as_f64(*up, element);
  return pool_shape(g, node, node.code == OpCode::kMaxPool2d ? 2 : 3, element[0] != 0);
}

std::vector<Expr> output_shape(Graph& g, const Node& node) {
  const auto shape_of = [&](std::size_t i) { return g.value(node.inputs.at(i)).shape; };
  switch (node.code) {
    case OpCode::kGetShape:
      return {g.exprs.constant(static_cast<std::int64_t>(shape_of(0).size()))};
    case OpCode::kReshape:
      return reshape_shape(g, node);
    case OpCode::kTranspose:
      return transpose_shape(g, node);
    case OpCode::kExpandDims:
      return expand_shape(g, node);
    case OpCode::kShrinkDims:
      return shrink_shape(g, node);
    case OpCode::kConcat:
      return concat_shape(g, node);
    case OpCode::kSlice: {
      std::vector<Expr> out;
      for (const SliceRange& r : slice_ranges(g, node)) out.push_back(r.extent);
      return out;
    }
    case OpCode::kSliceUpdate:
      return shape_of(0);
    case OpCode::kBroadcastTo:
      return host_elements(g, node, 1);
    case OpCode::kBroadcastInDims: {
      std::vector<Expr> out = shape_of(0);
      const auto axes = constant_list(g, node, 2);
      const auto& sizes = host_elements(g, node, 1);
      if (axes.size() != sizes.size()) give_up(node, "axes and sizes differ");
      for (std::size_t i = 0; i < axes.size(); ++i) out[normalize_axis(node, axes[i], out.size())] = sizes[i];
      return out;
    }
    case OpCode::kBroadcastShapes: {
      const auto joined = broadcast(g, node, host_elements(g, node, 0), host_elements(g, node, 1));
      return {g.exprs.constant(static_cast<std::int64_t>(joined.size()))};
    }
    case OpCode::kBatchMatmul:
    case OpCode::kBroadcastingBatchMatmul:
      return matmul_shape(g, node);
    case OpCode::kGatherNd:
      return gather_nd_shape(g, node);
    case OpCode::kGatherAlongAxis:
      return shape_of(1);
    case OpCode::kRange:
      return range_shape(g, node);
    case OpCode::kWhere:
    case OpCode::kBroadcastingWhere:
      return broadcast(g, node, broadcast(g, node, shape_of(0), shape_of(1)), shape_of(2));
    case OpCode::kConv2d:
    case OpCode::kConv3d:
    case OpCode::kMaxPool2d:
    case OpCode::kMaxPool3d:
    case OpCode::kSumPool2d:
    case OpCode::kSumPool3d:
    case OpCode::kPad:
      return windowed_shape(g, node);
    case OpCode::kReduceSum:
    case OpCode::kReduceMean:
    case OpCode::kReduceMax:
    case OpCode::kReduceMin:
    case OpCode::kReduceProduct:
    case OpCode::kAll:
    case OpCode::kAny:
    case OpCode::kArgmax:
      return reduce_shape(g, node);
    default:
      break;
  }
  const std::string_view name = ir::op_info(node.code).disk_name;
  const bool elementwise_binary =
      node.inputs.size() == 2 && (name.starts_with("broadcasting_") || host_binary(node.code).has_value());
  if (elementwise_binary) return broadcast(g, node, shape_of(0), shape_of(1));
  switch (node.code) {
    case OpCode::kCast:
    case OpCode::kAbs:
    case OpCode::kCos:
    case OpCode::kSin:
    case OpCode::kExp:
    case OpCode::kLog:
    case OpCode::kErf:
    case OpCode::kRsqrt:
    case OpCode::kSqrt:
    case OpCode::kTanh:
    case OpCode::kSigmoid:
    case OpCode::kSilu:
    case OpCode::kGelu:
    case OpCode::kRelu:
    case OpCode::kNot:
    case OpCode::kRound:
    case OpCode::kSoftmax:
    case OpCode::kDivide:
    case OpCode::kGreater:
    case OpCode::kEqual:
    case OpCode::kNotEqual:
    case OpCode::kPow:
    case OpCode::kBlockwiseShiftScale:
    case OpCode::kQuantize:
    case OpCode::kDequantize:
    case OpCode::kSort:
    case OpCode::kArgsort:
    case OpCode::kScan:
    case OpCode::kReverse:
    case OpCode::kCopyWithConstraints:
    case OpCode::kCopyDiscardingConstraints:
      return shape_of(0);
    default:
      return declared_or_give_up(g, node);
  }
}

}  // namespace

std::optional<std::vector<std::int64_t>> constant_elements(const Graph& graph, ValueId value) {
  const auto& host = graph.value(value).host;
  if (!host) return std::nullopt;
  std::vector<std::int64_t> out;
  for (Expr e : *host) {
    const auto c = graph.exprs.as_constant(e);
    if (!c) return std::nullopt;
    out.push_back(*c);
  }
  return out;
}

std::vector<SliceRange> slice_ranges(Graph& g, const Node& node) {
  constexpr std::int64_t kToTheEnd = std::numeric_limits<std::int32_t>::max();
  const std::vector<Expr> extents = g.value(node.inputs[0]).shape;
  const std::vector<Expr> begin = host_elements(g, node, 1), end = host_elements(g, node, 2);
  if (begin.size() != extents.size() || end.size() != extents.size()) give_up(node, "operands of another rank");
  std::vector<SliceRange> out;
  const auto within = [&](Expr value, Expr extent) {  // 0 <= value <= extent, wrapped once when negative
    const auto c = g.exprs.as_constant(value), n = g.exprs.as_constant(extent);
    if (c && *c >= kToTheEnd) return extent;
    if (c && n) return g.exprs.constant(std::clamp<std::int64_t>(*c < 0 ? *c + *n : *c, 0, *n));
    const Expr wrapped = c && *c < 0 ? g.exprs.add(extent, value) : value;
    const GuardKind kind = g.is_state_extent(extent) ? GuardKind::kStateCapacity : GuardKind::kShape;
    g.require_nonnegative(wrapped, "a slice starts inside its tensor");
    g.require_nonnegative(g.exprs.sub(extent, wrapped), "a slice ends inside its tensor", kind);
    return wrapped;
  };
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const std::int64_t stride = constant_element(g, node, 3, i);
    if (stride < 1) give_up(node, "a stride below 1");
    const Expr b = within(begin[i], extents[i]), e = within(end[i], extents[i]);
    Expr extent = g.exprs.sub(e, b);
    if (const auto c = g.exprs.as_constant(extent)) {
      extent = g.exprs.constant((std::max<std::int64_t>(*c, 0) + stride - 1) / stride);
    } else {
      g.require_nonnegative(extent, "a slice is not empty");
      if (stride != 1)
        extent = g.exprs.floor_div(g.exprs.add(extent, g.exprs.constant(stride - 1)), g.exprs.constant(stride));
    }
    out.push_back({b, extent, stride});
  }
  return out;
}

bool require_equal(Graph& g, Expr a, Expr b, const char* reason) {
  if (a == b) return true;
  if (g.exprs.as_constant(a) && g.exprs.as_constant(b)) return false;
  g.require_nonnegative(g.exprs.sub(a, b), reason);
  g.require_nonnegative(g.exprs.sub(b, a), reason);
  return true;
}

std::optional<Expr> windows_in(Graph& g, Expr extent, Expr reach, std::int64_t stride, bool up) {
  ExprPool& x = g.exprs;
  const Expr free = x.sub(extent, reach);
  const auto known = x.as_constant(free);
  if (known && *known < 0) return std::nullopt;
  g.require_nonnegative(free, "a window is not larger than its input");
  return x.add(x.floor_div(up ? x.add(free, x.constant(stride - 1)) : free, x.constant(stride)), x.constant(1));
}

bool require_declared(Graph& g, ir::TypeRef type, const std::vector<Expr>& shape) {
  if (!type->is_tensor() || type->shape().rank() != shape.size()) return false;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::int64_t declared = type->shape()[d];
    if (declared == kDynamic) continue;
    if (!require_equal(g, shape[d], g.exprs.constant(declared), "a result has the declared extents")) return false;
  }
  return true;
}

void infer_shapes(Graph& g, const Node& node) {
  if (node.code == OpCode::kSplit) return split_shapes(g, node);
  if (node.outputs.size() != 1) give_up(node, "several results");
  const std::vector<Expr> shape = output_shape(g, node);
  const ir::TypeRef type = node.source->results.at(0)->type;
  const bool ranked = type->is_tensor() && type->shape().rank() == shape.size();
  if (ranked && !require_declared(g, type, shape)) give_up(node, "its extents are not the declared ones");
  const auto host = host_result(g, node, shape);
  Value& out = g.value(node.outputs[0]);
  out.shape = shape;
  if (node.code == OpCode::kBroadcastShapes) {
    out.host = broadcast(g, node, host_elements(g, node, 0), host_elements(g, node, 1));
    return;
  }
  if (host &&
      (shape.empty() ? host->size() == 1 : g.exprs.is_constant(shape[0], static_cast<std::int64_t>(host->size())))) {
    out.host = host;
  }
}

}  // namespace coreai::compiler
