#include "compiler/views.h"

#include <algorithm>

#include "compiler/shapes.h"

namespace coreai::compiler {
namespace {

using ir::OpCode;

// Strides of the same elements under other extents: joins neighbouring axes that are contiguous and splits axes.
std::optional<std::vector<Expr>> reshaped_strides(ExprPool& x, const View& in, const std::vector<Expr>& extents) {
  std::vector<Expr> out(extents.size(), x.constant(0));
  std::size_t i = 0, o = 0;
  const Expr one = x.constant(1);
  while (i < in.extents.size() || o < extents.size()) {
    if (i < in.extents.size() && in.extents[i] == one) {
      ++i;
      continue;
    }
    if (o < extents.size() && extents[o] == one) {
      ++o;
      continue;
    }
    if (i == in.extents.size() || o == extents.size()) return std::nullopt;
    // A group: in[i..i2) and out[o..o2) of equal products.
    std::size_t i2 = i + 1, o2 = o + 1;
    Expr a = in.extents[i], b = extents[o];
    while (a != b) {
      const auto ca = x.as_constant(a), cb = x.as_constant(b);
      const bool grow_in = x.exact_quotient(b, a).has_value() && !(ca && cb && *ca >= *cb);
      if (grow_in && i2 < in.extents.size()) {
        a = x.mul(a, in.extents[i2++]);
      } else if (!grow_in && o2 < extents.size()) {
        b = x.mul(b, extents[o2++]);
      } else {
        return std::nullopt;
      }
    }
    for (std::size_t k = i; k + 1 < i2; ++k) {  // joined axes must follow each other without gaps
      if (in.extents[k + 1] != one && in.strides[k] != x.mul(in.strides[k + 1], in.extents[k + 1])) return std::nullopt;
    }
    Expr stride = in.strides[i2 - 1];
    for (std::size_t k = o2; k-- > o;) {
      out[k] = stride;
      stride = x.mul(stride, extents[k]);
    }
    i = i2;
    o = o2;
  }
  return out;
}

View sliced(Graph& g, const Node& node, View view) {
  const auto ranges = slice_ranges(g, node);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    view.offset = g.exprs.add(view.offset, g.exprs.mul(ranges[i].start, view.strides[i]));
    view.extents[i] = ranges[i].extent;
    view.strides[i] = g.exprs.mul(view.strides[i], g.exprs.constant(ranges[i].stride));
  }
  return view;
}

View split_part(Graph& g, const Node& node, std::size_t result, View view) {
  const auto dim = constant_elements(g, node.inputs[2]);
  const std::int64_t rank = static_cast<std::int64_t>(view.extents.size());
  const auto axis = static_cast<std::size_t>((*dim)[0] < 0 ? (*dim)[0] + rank : (*dim)[0]);
  for (std::size_t i = 0; i < result; ++i) {
    view.offset = g.exprs.add(view.offset, g.exprs.mul(g.value(node.outputs[i]).shape[axis], view.strides[axis]));
  }
  view.extents[axis] = g.value(node.outputs[result]).shape[axis];
  return view;
}

}  // namespace

View contiguous_view(ExprPool& exprs, int buffer, const std::vector<Expr>& extents) {
  View view{buffer, exprs.constant(0), extents, std::vector<Expr>(extents.size())};
  Expr stride = exprs.constant(1);
  for (std::size_t i = extents.size(); i-- > 0;) {
    view.strides[i] = stride;
    stride = exprs.mul(stride, extents[i]);
  }
  return view;
}

bool is_contiguous(ExprPool& exprs, const View& view) {
  Expr stride = exprs.constant(1);
  for (std::size_t i = view.extents.size(); i-- > 0;) {
    if (exprs.is_constant(view.extents[i], 1)) continue;
    if (view.strides[i] != stride) return false;
    stride = exprs.mul(stride, view.extents[i]);
  }
  return true;
}

bool is_movement(const Node& node) {
  switch (node.code) {
    case OpCode::kReshape:
    case OpCode::kExpandDims:
    case OpCode::kShrinkDims:
    case OpCode::kTranspose:
    case OpCode::kSlice:
    case OpCode::kSplit:
      return true;
    default:
      return false;
  }
}

std::optional<View> view_of_movement(Graph& g, const Node& node, std::size_t result, const View& input) {
  const std::vector<Expr> extents = g.value(node.outputs[result]).shape;
  View view = input;
  switch (node.code) {
    case OpCode::kCast: {
      const bool refines = g.value(node.inputs[0]).dtype == g.value(node.outputs[0]).dtype;
      return refines ? std::optional(view) : std::nullopt;
    }
    case OpCode::kReshape:
    case OpCode::kExpandDims:
    case OpCode::kShrinkDims: {
      const auto strides = reshaped_strides(g.exprs, input, extents);
      if (!strides) return std::nullopt;
      view.extents = extents;
      view.strides = *strides;
      return view;
    }
    case OpCode::kTranspose: {
      const auto perm = constant_elements(g, node.inputs[1]);
      if (!perm) return std::nullopt;
      for (std::size_t i = 0; i < perm->size(); ++i) {
        view.extents[i] = input.extents[static_cast<std::size_t>((*perm)[i])];
        view.strides[i] = input.strides[static_cast<std::size_t>((*perm)[i])];
      }
      return view;
    }
    case OpCode::kSlice:
      return sliced(g, node, view);
    case OpCode::kSplit:
      return split_part(g, node, result, view);
    default:
      return std::nullopt;
  }
}

}  // namespace coreai::compiler
