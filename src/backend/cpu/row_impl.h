// Row kernels; included once per level after simd_*.h and simd_math.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backend/cpu/row_kernels.h"

namespace coreai::cpu {
namespace {

// fn(part, offset, lanes) over n elements: element i belongs to lane i % 16 of a V16.
template <typename Fn>
inline void each_part(std::int64_t n, Fn fn) {
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int k = 0; k < V16::kParts; ++k) fn(k, i + k * V::kLanes, V::kLanes);
  }
  for (int k = 0; k < V16::kParts && i < n; ++k, i += V::kLanes) {
    fn(k, i, static_cast<int>(n - i < V::kLanes ? n - i : V::kLanes));
  }
}
inline V16 splat16(float x) {
  V16 a;
  for (int k = 0; k < V16::kParts; ++k) a.part[k] = splat(x);
  return a;
}
// Reads as if the row went on with `fill`.
inline V load_filled(const float* p, int n, float fill) {
  if (n == V::kLanes) return load(p);
  float lanes[V::kLanes];
  for (int i = 0; i < V::kLanes; ++i) lanes[i] = i < n ? p[i] : fill;
  return load(lanes);
}
inline float square_root(float x) {
  return first_lane(sqrt(splat(x)));
}

inline float sum_of_squares(const float* x, std::int64_t dim) {
  V16 squares = splat16(0.0f);
  each_part(dim, [&](int k, std::int64_t i, int n) {
    const V s = load_part(x + i, n);
    squares.part[k] = fma(s, s, squares.part[k]);
  });
  return sum16(squares);
}

struct NormRow {
  const float *x, *add, *weight, *residual;
  float *sum_out, *out;
};

void norm_row(const NormRow& row, std::int64_t dim, float eps, float weight_offset) {
  V16 squares = splat16(0.0f);
  each_part(dim, [&](int k, std::int64_t i, int n) {
    V s = load_part(row.x + i, n);
    if (row.add != nullptr) s = s + load_part(row.add + i, n);
    if (row.sum_out != nullptr) store_part(row.sum_out + i, s, n);
    squares.part[k] = fma(s, s, squares.part[k]);
  });
  const float mean = sum16(squares) / static_cast<float>(dim);
  const V factor = splat(1.0f / square_root(mean + eps));
  const V offset = splat(weight_offset);
  const bool again = row.add != nullptr && row.sum_out == nullptr;
  const float* from = row.sum_out != nullptr ? row.sum_out : row.x;
  each_part(dim, [&](int, std::int64_t i, int n) {
    V s = load_part(from + i, n);
    if (again) s = s + load_part(row.add + i, n);
    V y = s * factor;
    if (row.weight != nullptr) y = y * (load_part(row.weight + i, n) + offset);
    if (row.residual != nullptr) y = y + load_part(row.residual + i, n);
    store_part(row.out + i, y, n);
  });
}

template <typename T>
inline T* shifted(T* p, std::int64_t offset) {
  return p == nullptr ? nullptr : p + offset;
}

void rms_norm_kernel(const RmsNormArgs& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    for (std::int64_t g = 0; g < a.groups; ++g) {
      NormRow row;
      row.x = a.x + r * a.x_row_stride + g * a.x_group_stride;
      row.add = shifted(a.add, r * a.add_row_stride + g * a.add_group_stride);
      row.weight = shifted(a.weight, g * a.weight_group_stride);
      row.residual = shifted(a.residual, r * a.residual_row_stride + g * a.residual_group_stride);
      row.sum_out = shifted(a.sum_out, r * a.sum_row_stride + g * a.sum_group_stride);
      row.out = a.out + r * a.out_row_stride + g * a.out_group_stride;
      norm_row(row, a.dim, a.eps, a.weight_offset);
    }
  }
}

void layer_norm_kernel(const LayerNormArgs& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    const float* x = a.x + r * a.x_row_stride;
    float* out = a.out + r * a.out_row_stride;
    V16 total = splat16(0.0f);
    each_part(a.dim, [&](int k, std::int64_t i, int n) { total.part[k] = total.part[k] + load_part(x + i, n); });
    const float mean = sum16(total) / static_cast<float>(a.dim);
    V16 squares = splat16(0.0f);
    each_part(a.dim, [&](int k, std::int64_t i, int n) {
      const V d = load_filled(x + i, n, mean) - splat(mean);
      squares.part[k] = fma(d, d, squares.part[k]);
    });
    const float variance = sum16(squares) / static_cast<float>(a.dim);
    const V factor = splat(1.0f / square_root(variance + a.eps));
    const std::int64_t weights = a.dim / a.spread, first = r % a.period * weights;
    const float *weight = shifted(a.weight, first), *bias = shifted(a.bias, first);
    if (a.spread > 1) {
      for (std::int64_t w = 0; w < weights; ++w) {
        const float *from = x + w * a.spread, scale = weight == nullptr ? 1.0f : weight[w];
        const float shift = bias == nullptr ? 0.0f : bias[w];
        float* to = out + w * a.spread;
        each_part(a.spread, [&](int, std::int64_t i, int n) {
          store_part(to + i, (load_part(from + i, n) - splat(mean)) * factor * splat(scale) + splat(shift), n);
        });
      }
      continue;
    }
    each_part(a.dim, [&](int, std::int64_t i, int n) {
      V y = (load_part(x + i, n) - splat(mean)) * factor;
      if (weight != nullptr) y = y * load_part(weight + i, n);
      if (bias != nullptr) y = y + load_part(bias + i, n);
      store_part(out + i, y, n);
    });
  }
}

inline void rotate(V a, V b, V c, V s, V& first, V& second) {
  first = fma(a, c, -(b * s));
  second = fma(b, c, a * s);
}

// x and out may be the same row.
void rope_row(const float* x, float* out, std::int64_t dim, const float* cos, const float* sin, std::int64_t pairs,
              RopeForm form) {
  for (std::int64_t i = 0; i < pairs; i += V::kLanes) {
    const int n = static_cast<int>(pairs - i < V::kLanes ? pairs - i : V::kLanes);
    const V c = load_part(cos + i, n), s = load_part(sin + i, n);
    V first, second;
    if (form == RopeForm::kHalfSplit) {
      rotate(load_part(x + i, n), load_part(x + pairs + i, n), c, s, first, second);
      store_part(out + i, first, n);
      store_part(out + pairs + i, second, n);
      continue;
    }
    float even[V::kLanes] = {}, odd[V::kLanes] = {};
    for (int k = 0; k < n; ++k) {
      even[k] = x[2 * (i + k)];
      odd[k] = x[2 * (i + k) + 1];
    }
    rotate(load(even), load(odd), c, s, first, second);
    store(even, first);
    store(odd, second);
    for (int k = 0; k < n; ++k) {
      out[2 * (i + k)] = even[k];
      out[2 * (i + k) + 1] = odd[k];
    }
  }
  if (out != x && dim > 2 * pairs) {
    std::memcpy(out + 2 * pairs, x + 2 * pairs, static_cast<std::size_t>(dim - 2 * pairs) * sizeof(float));
  }
}

void rope_kernel(const RopeArgs& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    for (std::int64_t h = 0; h < a.heads; ++h) {
      rope_row(a.x + r * a.x_row_stride + h * a.x_head_stride, a.out + r * a.out_row_stride + h * a.out_head_stride,
               a.head_dim, a.cos + r * a.rope_row_stride, a.sin + r * a.rope_row_stride, a.pairs, a.form);
    }
  }
}

// One head of one row, normed and rotated, to out.
void qkv_head(const QkvArgs& a, std::int64_t row, std::int64_t head, float* out) {
  const float* x = a.x + row * a.x_row_stride + head * a.head_dim;
  const bool query = head < a.q_heads;
  if (!query && head >= a.q_heads + a.k_heads) {
    std::memcpy(out, x, static_cast<std::size_t>(a.head_dim) * sizeof(float));
    return;
  }
  const float* weight = query ? shifted(a.q_norm, head * a.q_norm_head_stride)
                              : shifted(a.k_norm, (head - a.q_heads) * a.k_norm_head_stride);
  if (weight != nullptr) {
    norm_row({x, nullptr, weight, nullptr, nullptr, out}, a.head_dim, a.eps, a.norm_weight_offset);
    x = out;
  }
  if (a.cos != nullptr) {
    rope_row(x, out, a.head_dim, a.cos + row * a.rope_row_stride, a.sin + row * a.rope_row_stride, a.pairs, a.form);
  } else if (x != out) {
    std::memcpy(out, x, static_cast<std::size_t>(a.head_dim) * sizeof(float));
  }
}

// `rows` rows of one head, `stride` apart, to where they belong.
void qkv_put(const QkvArgs& a, std::int64_t row, std::int64_t rows, std::int64_t head, const float* from,
             std::int64_t stride) {
  if (head < a.q_heads) {
    for (std::int64_t r = 0; r < rows; ++r) {
      std::memcpy(a.q_out + (row + r) * a.q_row_stride + head * a.q_head_stride, from + r * stride,
                  static_cast<std::size_t>(a.head_dim) * sizeof(float));
    }
    return;
  }
  const bool key = head < a.q_heads + a.k_heads;
  KvBuffer* to = key ? a.keys : a.values;
  to->store_rows(a.layer, head - a.q_heads - (key ? 0 : a.k_heads), a.first_position + row, rows, from, stride);
}

void qkv_compute_kernel(const QkvArgs& a, std::int64_t begin, std::int64_t end, std::int64_t head_begin,
                        std::int64_t head_end, float* scratch) {
  for (std::int64_t r = begin; r < end; ++r) {
    for (std::int64_t h = head_begin; h < head_end; ++h, scratch += a.head_dim) qkv_head(a, r, h, scratch);
  }
}

void qkv_publish_kernel(const QkvArgs& a, std::int64_t begin, std::int64_t end, std::int64_t head_begin,
                        std::int64_t head_end, const float* scratch) {
  const std::int64_t stride = (head_end - head_begin) * a.head_dim;
  for (std::int64_t h = head_begin; h < head_end; ++h) {
    qkv_put(a, begin, end - begin, h, scratch + (h - head_begin) * a.head_dim, stride);
  }
}

void qkv_kernel(const QkvArgs& a, std::int64_t begin, std::int64_t end, std::int64_t head_begin,
                std::int64_t head_end) {
  alignas(64) float row[kQkvMaxDim];
  for (std::int64_t r = begin; r < end; ++r) {
    for (std::int64_t h = head_begin; h < head_end; ++h) {
      if (h < a.q_heads) {
        qkv_head(a, r, h, a.q_out + r * a.q_row_stride + h * a.q_head_stride);
        continue;
      }
      if (h >= a.q_heads + a.k_heads) {  // values are stored as they come
        qkv_put(a, r, 1, h, a.x + r * a.x_row_stride + h * a.head_dim, 0);
        continue;
      }
      qkv_head(a, r, h, row);
      qkv_put(a, r, 1, h, row, 0);
    }
  }
}

void softmax_kernel(const SoftmaxArgs& a, std::int64_t begin, std::int64_t end) {
  const V scale = splat(a.scale);
  for (std::int64_t r = begin; r < end; ++r) {
    const float* x = a.x + r * a.x_row_stride;
    float* out = a.out + r * a.out_row_stride;
    V16 most = splat16(-kInfinity);
    each_part(a.dim, [&](int k, std::int64_t i, int n) {
      V s = load_part(x + i, n) * scale;
      if (n < V::kLanes) {  // what lies behind the row does not count
        float lanes[V::kLanes];
        store(lanes, s);
        s = load_filled(lanes, n, -kInfinity);
      }
      most.part[k] = max(most.part[k], s);
    });
    const float maximum = max16(most);
    const V shift = splat(maximum == -kInfinity ? 0.0f : maximum);
    V16 total = splat16(0.0f);
    each_part(a.dim, [&](int k, std::int64_t i, int n) {
      const V s = load_part(x + i, n) * scale - shift;
      V e = exp_nonpositive(s);
      store_part(out + i, a.log ? s : e, n);
      if (n < V::kLanes) {
        float lanes[V::kLanes];
        store(lanes, e);
        e = load_filled(lanes, n, 0.0f);
      }
      total.part[k] = total.part[k] + e;
    });
    const float sum = sum16(total);
    const V last = a.log ? log(splat(sum)) : splat(sum == 0.0f ? 1.0f : sum);
    each_part(a.dim, [&](int, std::int64_t i, int n) {
      const V y = load_part(out + i, n);
      store_part(out + i, a.log ? y - last : y / last, n);
    });
  }
}

void vector_norm_kernel(const VectorNormArgs& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    a.out[r * a.out_row_stride] = square_root(sum_of_squares(a.x + r * a.x_row_stride, a.dim));
  }
}

std::int64_t argmax_kernel(const float* x, std::int64_t n) {
  V16 most = splat16(-kInfinity);
  each_part(n, [&](int k, std::int64_t i, int lanes) {
    most.part[k] = max(load_filled(x + i, lanes, -kInfinity), most.part[k]);  // NaN leaves the old value
  });
  const float maximum = max16(most);
  for (std::int64_t i = 0; i < n; ++i) {
    if (x[i] == maximum) return i;
  }
  return 0;
}

void to_f32_kernel(DType dtype, const void* in, float* out, std::int64_t count) {
  if (dtype == DType::kF32) {
    std::memmove(out, in, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  const auto* from = static_cast<const std::uint16_t*>(in);
  const bool half = dtype == DType::kF16;
  std::int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) store(out + i, half ? load_f16(from + i) : load_bf16(from + i));
  if (i == count) return;
  std::uint16_t rest[V::kLanes] = {};
  std::memcpy(rest, from + i, static_cast<std::size_t>(count - i) * sizeof(std::uint16_t));
  store_n(out + i, half ? load_f16(rest) : load_bf16(rest), static_cast<int>(count - i));
}

void from_f32_kernel(DType dtype, const float* in, void* out, std::int64_t count) {
  if (dtype == DType::kF32) {
    std::memmove(out, in, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  auto* to = static_cast<std::uint16_t*>(out);
  const bool half = dtype == DType::kF16;
  const auto put = [half](std::uint16_t* p, V a) {
    if (half) {
      store_f16(p, a);
    } else {
      store_bf16(p, a);
    }
  };
  std::int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) put(to + i, load(in + i));
  if (i == count) return;
  std::uint16_t rest[V::kLanes];
  put(rest, load_n(in + i, static_cast<int>(count - i)));
  std::memcpy(to + i, rest, static_cast<std::size_t>(count - i) * sizeof(std::uint16_t));
}

constexpr RowKernels kRowKernels = {rms_norm_kernel,    layer_norm_kernel,  rope_kernel,    qkv_kernel,
                                    qkv_compute_kernel, qkv_publish_kernel, softmax_kernel, vector_norm_kernel,
                                    argmax_kernel,      to_f32_kernel,      from_f32_kernel};

}  // namespace
}  // namespace coreai::cpu
