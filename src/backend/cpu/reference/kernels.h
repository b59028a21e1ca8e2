// The kernels of the reference executor by family. Each evaluates one operation; which operations share a kernel is
// said in evaluator.cpp.
#pragma once

#include "backend/cpu/reference/kernel.h"

namespace coreai::cpu::reference {

// region.cpp
Results reduce_index_kernel(const Call& call);
Results reduce_kernel(const Call& call);

// elementwise_unary.cpp
Results abs_kernel(const Call& call);
Results acos_kernel(const Call& call);
Results acosh_kernel(const Call& call);
Results asin_kernel(const Call& call);
Results asinh_kernel(const Call& call);
Results atan_kernel(const Call& call);
Results atanh_kernel(const Call& call);
Results cos_kernel(const Call& call);
Results cosh_kernel(const Call& call);
Results create_complex_kernel(const Call& call);
Results erf_kernel(const Call& call);
Results exp_kernel(const Call& call);
Results gelu_kernel(const Call& call);
Results imaginary_part_kernel(const Call& call);
Results log_kernel(const Call& call);
Results not_kernel(const Call& call);
Results real_part_kernel(const Call& call);
Results relu_kernel(const Call& call);
Results round_kernel(const Call& call);
Results rsqrt_kernel(const Call& call);
Results sigmoid_kernel(const Call& call);
Results silu_kernel(const Call& call);
Results sin_kernel(const Call& call);
Results sinh_kernel(const Call& call);
Results sqrt_kernel(const Call& call);
Results tan_kernel(const Call& call);
Results tanh_kernel(const Call& call);

// elementwise_binary.cpp
Results add_kernel(const Call& call);
Results bitwise_and_kernel(const Call& call);
Results bitwise_or_kernel(const Call& call);
Results bitwise_xor_kernel(const Call& call);
Results divide_kernel(const Call& call);
Results equal_kernel(const Call& call);
Results floor_divide_kernel(const Call& call);
Results greater_kernel(const Call& call);
Results maximum_kernel(const Call& call);
Results minimum_kernel(const Call& call);
Results modulo_kernel(const Call& call);
Results mul_kernel(const Call& call);
Results not_equal_kernel(const Call& call);
Results pow_kernel(const Call& call);
Results sub_kernel(const Call& call);
Results where_kernel(const Call& call);

// cast.cpp
NDArray cast_array(const Call& call, const NDArray& x, DType to);
Results cast_kernel(const Call& call);
Results identity_kernel(const Call& call);

// reduce.cpp
Results all_kernel(const Call& call);
Results any_kernel(const Call& call);
Results argmax_kernel(const Call& call);
Results reduce_max_kernel(const Call& call);
Results reduce_mean_kernel(const Call& call);
Results reduce_min_kernel(const Call& call);
Results reduce_product_kernel(const Call& call);
Results reduce_sum_kernel(const Call& call);
Results softmax_kernel(const Call& call);

// order.cpp
Results argsort_kernel(const Call& call);
Results scan_kernel(const Call& call);
Results sort_kernel(const Call& call);

// movement.cpp
Results broadcast_in_dims_kernel(const Call& call);
Results broadcast_shapes_kernel(const Call& call);
Results broadcast_to_kernel(const Call& call);
Results concat_kernel(const Call& call);
Results expand_dims_kernel(const Call& call);
Results get_shape_kernel(const Call& call);
Results non_zero_kernel(const Call& call);
Results pad_kernel(const Call& call);
Results range_kernel(const Call& call);
Results reshape_kernel(const Call& call);
Results reverse_kernel(const Call& call);
Results shrink_dims_kernel(const Call& call);
Results slice_kernel(const Call& call);
Results slice_update_kernel(const Call& call);
Results split_kernel(const Call& call);
Results tile_kernel(const Call& call);
Results transpose_kernel(const Call& call);

// gather_scatter.cpp
Results gather_along_axis_kernel(const Call& call);
Results gather_nd_kernel(const Call& call);
Results scatter_along_axis_kernel(const Call& call);
Results scatter_nd_kernel(const Call& call);

// matmul.cpp
Results batch_matmul_kernel(const Call& call);

// quantize.cpp
Results asymmetric_statistics_kernel(const Call& call);
Results blockwise_shift_scale_kernel(const Call& call);
Results blockwise_shift_scale_v1_kernel(const Call& call);
Results dequantize_kernel(const Call& call);
Results dequantize_v1_kernel(const Call& call);
Results quantize_kernel(const Call& call);
Results quantize_v1_kernel(const Call& call);
Results symmetric_statistics_kernel(const Call& call);

// compress.cpp
Results build_sparse_kernel(const Call& call);
Results lut_to_dense_kernel(const Call& call);
Results lut_to_sparse_kernel(const Call& call);
Results sparse_to_dense_kernel(const Call& call);

// conv.cpp, pool.cpp, resample.cpp
Results conv_kernel(const Call& call);
Results conv_transpose_kernel(const Call& call);
Results image_kernel(const Call& call);
Results interpolate_coordinates_kernel(const Call& call);
Results interpolate_kernel(const Call& call);
Results max_pool_kernel(const Call& call);
Results sum_pool_kernel(const Call& call);

}  // namespace coreai::cpu::reference
