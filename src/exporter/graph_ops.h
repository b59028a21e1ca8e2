// Operations with the result types that their operands imply: what a graph author writes in.
#pragma once

#include <cstdint>
#include <vector>

#include "coreai/ir/builder.h"

namespace coreai {

class GraphOps {
 public:
  using V = ir::Value*;
  explicit GraphOps(ir::Builder& builder) : builder_(builder) {}
  ir::Builder& builder() { return builder_; }

  V i32(std::vector<std::int32_t> values) { return builder_.constant_i32(std::move(values)); }
  V ones(std::size_t count) { return i32(std::vector<std::int32_t>(count, 1)); }
  V zeros(std::size_t count) { return i32(std::vector<std::int32_t>(count, 0)); }
  // One element of rank 0; floats are rounded to `dtype`.
  V scalar(DType dtype, double value);

  V same(ir::OpCode code, V x) { return builder_.op1(code, {x}, x->type); }
  V cast(V x, DType dtype);  // x itself when it has that dtype
  // Broadcasting arithmetic and comparison; an extent that is known on one side and not 1 wins.
  V binary(ir::OpCode code, V a, V b);
  V add(V a, V b) { return binary(ir::OpCode::kBroadcastingAdd, a, b); }
  V sub(V a, V b) { return binary(ir::OpCode::kBroadcastingSub, a, b); }
  V mul(V a, V b) { return binary(ir::OpCode::kBroadcastingMul, a, b); }
  V greater(V a, V b) { return binary(ir::OpCode::kBroadcastingGreater, a, b); }
  V matmul(V a, V b);

  V reshape(V x, V shape, const Shape& result);
  V broadcast_to(V x, V shape, const Shape& result);
  V transpose(V x, const std::vector<std::uint32_t>& permutation);
  V expand(V x, std::int32_t axis);  // one new extent of 1 at `axis` of the result; -1 is the last
  V shrink(V x, std::int32_t axis);
  V slice(V x, V start, V end, const Shape& result);  // strides 1
  // Along axis 0 unless said otherwise.
  V concat(const std::vector<V>& parts, const Shape& result, std::int32_t axis = 0);
  V shape_of(V x);                       // ui32 [rank]
  V extent(V shape, std::int32_t axis);  // [1] of a vector of extents
  V softmax_last(V x);

 private:
  V typed(ir::OpCode code, std::vector<V> operands, DType dtype, const Shape& shape);
  ir::Builder& builder_;
};

}  // namespace coreai
