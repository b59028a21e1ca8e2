#include "exporter/graph_ops.h"

#include <algorithm>

#include "coreai/base/error.h"

namespace coreai {
namespace {

using ir::OpCode;
using V = GraphOps::V;

std::vector<std::int64_t> extents(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

Shape broadcast(const Shape& a, const Shape& b) {
  const std::size_t rank = std::max(a.rank(), b.rank());
  std::vector<std::int64_t> out(rank);
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t x = i + a.rank() < rank ? 1 : a[i + a.rank() - rank];
    const std::int64_t y = i + b.rank() < rank ? 1 : b[i + b.rank() - rank];
    COREAI_INVARIANT(x == y || x == 1 || y == 1 || x == kDynamic || y == kDynamic);
    out[i] = x == 1 || (x == kDynamic && y != 1) ? y : x;
  }
  return Shape(out);
}

bool compares(OpCode code) {
  return code == OpCode::kBroadcastingGreater || code == OpCode::kBroadcastingEqual;
}

}  // namespace

V GraphOps::typed(OpCode code, std::vector<V> operands, DType dtype, const Shape& shape) {
  return builder_.op1(code, std::move(operands), builder_.context().tensor_type(dtype, shape));
}

V GraphOps::scalar(DType dtype, double value) {
  NDArray element(dtype, Shape{});
  write_from_f64(element, std::span(&value, 1));
  return builder_.constant(element);
}

V GraphOps::cast(V x, DType dtype) {
  return x->type->dtype() == dtype ? x : typed(OpCode::kCast, {x}, dtype, x->type->shape());
}

V GraphOps::binary(OpCode code, V a, V b) {
  COREAI_INVARIANT(a->type->dtype() == b->type->dtype());
  const DType dtype = compares(code) ? DType::kI1 : a->type->dtype();
  return typed(code, {a, b}, dtype, broadcast(a->type->shape(), b->type->shape()));
}

V GraphOps::matmul(V a, V b) {
  COREAI_INVARIANT(a->type->dtype() == b->type->dtype());
  std::vector<std::int64_t> left = extents(a->type->shape()), right = extents(b->type->shape());
  const std::int64_t rows = left[left.size() - 2], columns = right.back();
  left.resize(left.size() - 2);
  right.resize(right.size() - 2);
  std::vector<std::int64_t> out = extents(broadcast(Shape(left), Shape(right)));
  out.insert(out.end(), {rows, columns});
  return typed(OpCode::kBroadcastingBatchMatmul, {a, b}, a->type->dtype(), Shape(out));
}

V GraphOps::reshape(V x, V shape, const Shape& result) {
  return typed(OpCode::kReshape, {x, shape}, x->type->dtype(), result);
}

V GraphOps::broadcast_to(V x, V shape, const Shape& result) {
  return typed(OpCode::kBroadcastTo, {x, shape}, x->type->dtype(), result);
}

V GraphOps::transpose(V x, const std::vector<std::uint32_t>& permutation) {
  std::vector<std::int64_t> out;
  for (const std::uint32_t axis : permutation) out.push_back(x->type->shape()[axis]);
  return typed(OpCode::kTranspose, {x, builder_.constant_u32(permutation)}, x->type->dtype(), Shape(out));
}

V GraphOps::expand(V x, std::int32_t axis) {
  std::vector<std::int64_t> out = extents(x->type->shape());
  out.insert(axis < 0 ? out.end() : out.begin() + axis, 1);
  return typed(OpCode::kExpandDims, {x, i32({axis})}, x->type->dtype(), Shape(out));
}

V GraphOps::shrink(V x, std::int32_t axis) {
  std::vector<std::int64_t> out = extents(x->type->shape());
  out.erase(out.begin() + axis);
  return typed(OpCode::kShrinkDims, {x, i32({axis})}, x->type->dtype(), Shape(out));
}

V GraphOps::slice(V x, V start, V end, const Shape& result) {
  return typed(OpCode::kSlice, {x, start, end, ones(x->type->shape().rank())}, x->type->dtype(), result);
}

V GraphOps::concat(const std::vector<V>& parts, const Shape& result, std::int32_t axis) {
  std::vector<V> operands = {builder_.scalar_i32(axis)};
  operands.insert(operands.end(), parts.begin(), parts.end());
  return typed(OpCode::kConcat, std::move(operands), parts.front()->type->dtype(), result);
}

V GraphOps::shape_of(V x) {
  return typed(OpCode::kGetShape, {x}, DType::kUI32, Shape{static_cast<std::int64_t>(x->type->shape().rank())});
}

V GraphOps::extent(V shape, std::int32_t axis) {
  return slice(shape, i32({axis}), i32({axis + 1}), Shape{1});
}

V GraphOps::softmax_last(V x) {
  const auto last = static_cast<std::int32_t>(x->type->shape().rank()) - 1;
  return builder_.op1(OpCode::kSoftmax, {x, builder_.scalar_i32(last)}, x->type);
}

}  // namespace coreai
