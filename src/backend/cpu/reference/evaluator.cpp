#include "backend/cpu/reference/evaluator.h"

#include <fmt/format.h>

#include "backend/cpu/reference/kernels.h"
#include "coreai/base/error.h"

namespace coreai::cpu {
namespace {

using ir::OpCode;
using reference::Kernel;

Kernel unary_kernel(OpCode code) {
  using namespace reference;
  switch (code) {
    case OpCode::kAbs:
      return abs_kernel;
    case OpCode::kAcos:
      return acos_kernel;
    case OpCode::kAcosh:
      return acosh_kernel;
    case OpCode::kAsin:
      return asin_kernel;
    case OpCode::kAsinh:
      return asinh_kernel;
    case OpCode::kAtan:
      return atan_kernel;
    case OpCode::kAtanh:
      return atanh_kernel;
    case OpCode::kCast:
      return cast_kernel;
    case OpCode::kCopyDiscardingConstraints:
      return identity_kernel;
    case OpCode::kCopyWithConstraints:
      return identity_kernel;
    case OpCode::kCos:
      return cos_kernel;
    case OpCode::kCosh:
      return cosh_kernel;
    case OpCode::kCreateComplex:
      return create_complex_kernel;
    case OpCode::kErf:
      return erf_kernel;
    case OpCode::kExp:
      return exp_kernel;
    case OpCode::kGelu:
      return gelu_kernel;
    case OpCode::kImaginaryPart:
      return imaginary_part_kernel;
    case OpCode::kLog:
      return log_kernel;
    case OpCode::kNot:
      return not_kernel;
    case OpCode::kRealPart:
      return real_part_kernel;
    case OpCode::kRelu:
      return relu_kernel;
    case OpCode::kRound:
      return round_kernel;
    case OpCode::kRsqrt:
      return rsqrt_kernel;
    case OpCode::kSigmoid:
      return sigmoid_kernel;
    case OpCode::kSilu:
      return silu_kernel;
    case OpCode::kSin:
      return sin_kernel;
    case OpCode::kSinh:
      return sinh_kernel;
    case OpCode::kSqrt:
      return sqrt_kernel;
    case OpCode::kTan:
      return tan_kernel;
    case OpCode::kTanh:
      return tanh_kernel;
    case OpCode::kSerializationUnrealizedConversion:
      return identity_kernel;
    default:
      return nullptr;
  }
}

Kernel binary_kernel(OpCode code) {
  using namespace reference;
  switch (code) {
    case OpCode::kAdd:
    case OpCode::kBroadcastingAdd:
      return add_kernel;
    case OpCode::kSub:
    case OpCode::kBroadcastingSub:
      return sub_kernel;
    case OpCode::kMul:
    case OpCode::kBroadcastingMul:
      return mul_kernel;
    case OpCode::kDivide:
    case OpCode::kBroadcastingDivide:
      return divide_kernel;
    case OpCode::kFloorDivide:
    case OpCode::kBroadcastingFloorDivide:
      return floor_divide_kernel;
    case OpCode::kModulo:
    case OpCode::kBroadcastingModulo:
      return modulo_kernel;
    case OpCode::kPow:
    case OpCode::kBroadcastingPow:
      return pow_kernel;
    case OpCode::kMaximum:
    case OpCode::kBroadcastingMaximum:
      return maximum_kernel;
    case OpCode::kMinimum:
    case OpCode::kBroadcastingMinimum:
      return minimum_kernel;
    case OpCode::kEqual:
    case OpCode::kBroadcastingEqual:
      return equal_kernel;
    case OpCode::kNotEqual:
    case OpCode::kBroadcastingNotEqual:
      return not_equal_kernel;
    case OpCode::kGreater:
    case OpCode::kBroadcastingGreater:
      return greater_kernel;
    case OpCode::kLogicalAnd:
    case OpCode::kBroadcastingLogicalAnd:
    case OpCode::kBitwiseAnd:
    case OpCode::kBroadcastingBitwiseAnd:
      return bitwise_and_kernel;
    case OpCode::kLogicalOr:
    case OpCode::kBroadcastingLogicalOr:
    case OpCode::kBitwiseOr:
    case OpCode::kBroadcastingBitwiseOr:
      return bitwise_or_kernel;
    case OpCode::kLogicalXor:
    case OpCode::kBroadcastingLogicalXor:
    case OpCode::kBitwiseXor:
    case OpCode::kBroadcastingBitwiseXor:
      return bitwise_xor_kernel;
    case OpCode::kWhere:
    case OpCode::kBroadcastingWhere:
      return where_kernel;
    case OpCode::kBatchMatmul:
    case OpCode::kBroadcastingBatchMatmul:
      return batch_matmul_kernel;
    default:
      return nullptr;
  }
}

Kernel movement_kernel(OpCode code) {
  using namespace reference;
  switch (code) {
    case OpCode::kBroadcastInDims:
      return broadcast_in_dims_kernel;
    case OpCode::kBroadcastShapes:
      return broadcast_shapes_kernel;
    case OpCode::kBroadcastTo:
      return broadcast_to_kernel;
    case OpCode::kConcat:
      return concat_kernel;
    case OpCode::kExpandDims:
      return expand_dims_kernel;
    case OpCode::kGatherAlongAxis:
      return gather_along_axis_kernel;
    case OpCode::kGatherNd:
      return gather_nd_kernel;
    case OpCode::kGetShape:
    case OpCode::kGetShapeV1:
      return get_shape_kernel;
    case OpCode::kNonZero:
      return non_zero_kernel;
    case OpCode::kPad:
      return pad_kernel;
    case OpCode::kRange:
      return range_kernel;
    case OpCode::kReshape:
    case OpCode::kReshapeV1:
      return reshape_kernel;
    case OpCode::kReverse:
      return reverse_kernel;
    case OpCode::kScatterAlongAxis:
      return scatter_along_axis_kernel;
    case OpCode::kScatterNd:
      return scatter_nd_kernel;
    case OpCode::kShrinkDims:
      return shrink_dims_kernel;
    case OpCode::kSlice:
      return slice_kernel;
    case OpCode::kSliceUpdate:
      return slice_update_kernel;
    case OpCode::kSplit:
      return split_kernel;
    case OpCode::kTile:
    case OpCode::kTileV1:
      return tile_kernel;
    case OpCode::kTranspose:
      return transpose_kernel;
    default:
      return nullptr;
  }
}

Kernel other_kernel(OpCode code) {
  using namespace reference;
  switch (code) {
    case OpCode::kAll:
      return all_kernel;
    case OpCode::kAny:
      return any_kernel;
    case OpCode::kArgmax:
      return argmax_kernel;
    case OpCode::kArgsort:
      return argsort_kernel;
    case OpCode::kReduceMax:
      return reduce_max_kernel;
    case OpCode::kReduceMean:
      return reduce_mean_kernel;
    case OpCode::kReduceMin:
      return reduce_min_kernel;
    case OpCode::kReduceProduct:
      return reduce_product_kernel;
    case OpCode::kReduceSum:
      return reduce_sum_kernel;
    case OpCode::kScan:
      return scan_kernel;
    case OpCode::kReduce:
      return reduce_kernel;
    case OpCode::kReduceIndex:
      return reduce_index_kernel;
    case OpCode::kSoftmax:
      return softmax_kernel;
    case OpCode::kSort:
      return sort_kernel;
    case OpCode::kAsymmetricQuantizationStatistics:
      return asymmetric_statistics_kernel;
    case OpCode::kSymmetricQuantizationStatistics:
      return symmetric_statistics_kernel;
    case OpCode::kBlockwiseShiftScale:
      return blockwise_shift_scale_kernel;
    case OpCode::kBlockwiseShiftScaleV1:
      return blockwise_shift_scale_v1_kernel;
    case OpCode::kDequantize:
      return dequantize_kernel;
    case OpCode::kDequantizeV1:
      return dequantize_v1_kernel;
    case OpCode::kQuantize:
      return quantize_kernel;
    case OpCode::kQuantizeV1:
      return quantize_v1_kernel;
    case OpCode::kBuildSparseWithBitmask:
      return build_sparse_kernel;
    case OpCode::kLutToDense:
      return lut_to_dense_kernel;
    case OpCode::kLutToSparseWithBitmask:
      return lut_to_sparse_kernel;
    case OpCode::kSparseWithBitmaskToDense:
      return sparse_to_dense_kernel;
    case OpCode::kConv2d:
    case OpCode::kConv3d:
      return conv_kernel;
    case OpCode::kConvTranspose2d:
    case OpCode::kConvTranspose3d:
      return conv_transpose_kernel;
    case OpCode::kMaxPool2d:
    case OpCode::kMaxPool3d:
      return max_pool_kernel;
    case OpCode::kSumPool2d:
    case OpCode::kSumPool3d:
      return sum_pool_kernel;
    case OpCode::kInterpolate:
      return interpolate_kernel;
    case OpCode::kInterpolateCoordinates:
      return interpolate_coordinates_kernel;
    case OpCode::kImageToTensor:
    case OpCode::kTensorToImage:
      return image_kernel;
    default:
      return nullptr;
  }
}

Kernel kernel_of(OpCode code) {
  for (const auto find : {unary_kernel, binary_kernel, movement_kernel, other_kernel}) {
    if (const Kernel kernel = find(code)) return kernel;
  }
  return nullptr;
}

// Operands that every kernel may index without a check: those of the signature that are not variadic.
std::size_t least_operands(const ir::OpInfo& info) {
  std::size_t count = 0;
  bool variadic = false;
  int depth = 0;
  for (std::size_t i = 0; i < info.operands.size(); ++i) {
    const char c = info.operands[i];
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (info.operands.substr(i, 3) == "...") variadic = true;
    const bool ends = i + 1 == info.operands.size() || (depth == 0 && info.operands[i + 1] == ',');
    if (!ends) continue;
    count += variadic ? 0 : 1;
    variadic = false;
  }
  return count;
}

}  // namespace

bool is_elementwise(ir::OpCode code) {
  if (code == OpCode::kBatchMatmul || code == OpCode::kBroadcastingBatchMatmul) return false;
  return unary_kernel(code) != nullptr || binary_kernel(code) != nullptr;
}

bool ReferenceEvaluator::supports(ir::OpCode code) const {
  return kernel_of(code) != nullptr;
}

std::vector<NDArray> ReferenceEvaluator::evaluate(const ir::Op& op, std::span<const NDArray> inputs) const {
  const reference::Call call{op, inputs};
  const Kernel kernel = kernel_of(op.code);
  if (!kernel) call.unsupported("the operation cannot be evaluated on its own");
  if (inputs.size() < least_operands(op.info()) || op.results.empty()) {
    throw VerificationError("an operand is missing", call.where());
  }
  return kernel(call);
}

const ReferenceEvaluator& reference_evaluator() {
  static const ReferenceEvaluator evaluator;
  return evaluator;
}

}  // namespace coreai::cpu
