#include "backend/cpu/reference/matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "backend/cpu/reference/kernels.h"

namespace coreai::cpu::reference {
namespace {

constexpr std::int64_t kRows = 4;      // rows of a tile: their accumulators and one row of b stay in registers
constexpr std::int64_t kColumns = 8;   // columns of a tile: two SSE vectors
constexpr std::int64_t kPanel = 256;   // depth of a packed block of b, 8 KiB
constexpr std::int64_t kStrip = 2048;  // columns of c that one row keeps in the first cache

// A tile of c, summed on top of what it holds; `panel` is [depth, kColumns].
template <std::int64_t R>
void tile(const float* a, const float* panel, float* c, std::int64_t depth, std::int64_t k, std::int64_t n) {
  std::array<std::array<float, kColumns>, R> acc;
  for (std::int64_t r = 0; r < R; ++r) {
    for (std::int64_t j = 0; j < kColumns; ++j) acc[r][j] = c[r * n + j];
  }
  for (std::int64_t p = 0; p < depth; ++p) {
    const float* row = panel + p * kColumns;
    for (std::int64_t r = 0; r < R; ++r) {
      const float x = a[r * k + p];
      for (std::int64_t j = 0; j < kColumns; ++j) acc[r][j] += x * row[j];
    }
  }
  for (std::int64_t r = 0; r < R; ++r) {
    for (std::int64_t j = 0; j < kColumns; ++j) c[r * n + j] = acc[r][j];
  }
}

// Rows one by one: b is read once per row, in order.
void by_rows(const float* a, const float* b, float* c, std::int64_t rows, std::int64_t columns, std::int64_t k,
             std::int64_t n) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t j0 = 0; j0 < columns; j0 += kStrip) {
      const std::int64_t width = std::min(kStrip, columns - j0);
      float* to = c + r * n + j0;
      for (std::int64_t p = 0; p < k; ++p) {
        const float x = a[r * k + p];
        const float* row = b + p * n + j0;
        for (std::int64_t j = 0; j < width; ++j) to[j] += x * row[j];
      }
    }
  }
}

}  // namespace

void matmul_f32(const float* a, const float* b, float* c, std::int64_t m, std::int64_t k, std::int64_t n) {
  std::fill(c, c + m * n, 0.0f);
  if (m == 0 || k == 0 || n == 0) return;  // empty arrays have no address to count from
  const std::int64_t tiled_rows = m / kRows * kRows;
  const std::int64_t tiled_columns = tiled_rows > 0 ? n / kColumns * kColumns : 0;
  std::array<float, kPanel * kColumns> panel;
  for (std::int64_t j = 0; j < tiled_columns; j += kColumns) {
    for (std::int64_t p0 = 0; p0 < k; p0 += kPanel) {
      const std::int64_t depth = std::min(kPanel, k - p0);
      for (std::int64_t p = 0; p < depth; ++p) {
        std::copy_n(b + (p0 + p) * n + j, kColumns, panel.data() + p * kColumns);
      }
      for (std::int64_t i = 0; i < tiled_rows; i += kRows) {
        tile<kRows>(a + i * k + p0, panel.data(), c + i * n + j, depth, k, n);
      }
    }
  }
  by_rows(a, b + tiled_columns, c + tiled_columns, tiled_rows, n - tiled_columns, k, n);
  by_rows(a + tiled_rows * k, b, c + tiled_rows * n, m - tiled_rows, n, k, n);
}

namespace {

template <typename T, typename Madd>
void plain_matmul(const T* a, const T* b, T* c, std::int64_t m, std::int64_t k, std::int64_t n, Madd madd) {
  std::fill(c, c + m * n, T{});
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t p = 0; p < k; ++p) {
      const T x = a[i * k + p];
      for (std::int64_t j = 0; j < n; ++j) c[i * n + j] = madd(c[i * n + j], x, b[p * n + j]);
    }
  }
}

struct Product {
  Shape out;
  std::int64_t m, k, n;
  std::array<std::vector<std::int64_t>, 3> strides;  // of out, x and y over the batch axes
  Shape batch;
};

Product product_of(const Call& call) {
  const Shape& x = call.input(0).shape();
  const Shape& y = call.input(1).shape();
  if (call.input(0).dtype() != call.input(1).dtype()) call.unsupported("the operands differ in element type");
  if (x.rank() < 2 || y.rank() < 2) call.shape_error("a matrix product needs two axes per operand");
  Product p;
  p.m = x[x.rank() - 2];
  p.k = x[x.rank() - 1];
  p.n = y[y.rank() - 1];
  if (y[y.rank() - 2] != p.k) {
    call.shape_error(fmt::format("the inner extents are {} and {}", p.k, y[y.rank() - 2]));
  }
  const Shape batch_x(std::vector<std::int64_t>(x.begin(), x.end() - 2));
  const Shape batch_y(std::vector<std::int64_t>(y.begin(), y.end() - 2));
  p.batch = broadcast(call, batch_x, batch_y);
  std::vector<std::int64_t> dims(p.batch.begin(), p.batch.end());
  dims.push_back(p.m);
  dims.push_back(p.n);
  p.out = Shape(dims);
  p.strides = {broadcast_strides(p.batch, p.batch), broadcast_strides(batch_x, p.batch),
               broadcast_strides(batch_y, p.batch)};
  return p;
}

// f(index of the result matrix, of x's, of y's) for every matrix of the batch.
template <typename F>
void for_each_matrix(const Product& p, F&& f) {
  std::array<std::int64_t, 3> step{};
  for (std::size_t i = 0; i < 3 && p.batch.rank() > 0; ++i) step[i] = p.strides[i].back();
  walk<3>(p.batch, p.strides, [&](const std::array<std::int64_t, 3>& at, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) f(at[0] + i * step[0], at[1] + i * step[1], at[2] + i * step[2]);
  });
}

template <typename T, typename F>
Results multiply(const Call& call, F matmul) {
  const Product p = product_of(call);
  const Elements<T> a(call.input(0)), b(call.input(1));
  std::vector<T> out(static_cast<std::size_t>(p.out.element_count()));
  for_each_matrix(p, [&](std::int64_t o, std::int64_t i, std::int64_t j) {
    matmul(a.data() + i * p.m * p.k, b.data() + j * p.k * p.n, out.data() + o * p.m * p.n, p.m, p.k, p.n);
  });
  return {stored(call.input(0).dtype(), p.out, out)};
}

Results multiply_complex(const Call& call) {
  if (call.input(0).dtype() != DType::kComplexF32) call.unsupported("of the complex types only complex<f32> is used");
  const Product p = product_of(call);
  const NDArray x = call.input(0).clone();
  const NDArray y = call.input(1).clone();
  const auto* a = reinterpret_cast<const float*>(x.bytes().data());
  const auto* b = reinterpret_cast<const float*>(y.bytes().data());
  NDArray result(DType::kComplexF32, p.out);
  auto* out = reinterpret_cast<float*>(result.mutable_bytes().data());
  for_each_matrix(p, [&](std::int64_t o, std::int64_t i, std::int64_t j) {
    for (std::int64_t r = 0; r < p.m; ++r) {
      for (std::int64_t c = 0; c < p.n; ++c) {
        float re = 0, im = 0;
        for (std::int64_t q = 0; q < p.k; ++q) {
          const float* u = a + 2 * ((i * p.m + r) * p.k + q);
          const float* v = b + 2 * ((j * p.k + q) * p.n + c);
          re += u[0] * v[0] - u[1] * v[1];
          im += u[0] * v[1] + u[1] * v[0];
        }
        float* to = out + 2 * ((o * p.m + r) * p.n + c);
        to[0] = re;
        to[1] = im;
      }
    }
  });
  return {std::move(result)};
}

}  // namespace

Results batch_matmul_kernel(const Call& call) {
  const DType dtype = call.input(0).dtype();
  if (is_complex(dtype)) return multiply_complex(call);
  return with_compute_type(call, dtype, [&]<typename T>(std::type_identity<T>) -> Results {
    if constexpr (std::is_same_v<T, float>) {
      return multiply<float>(call, matmul_f32);
    } else if constexpr (std::is_same_v<T, double>) {
      return multiply<double>(call, [](auto... args) {
        plain_matmul(args..., [](double acc, double x, double y) { return acc + x * y; });
      });
    } else {
      return multiply<T>(call, [](auto... args) {
        plain_matmul(args..., [](T acc, T x, T y) {
          return static_cast<T>(static_cast<std::uint64_t>(acc) +
                                static_cast<std::uint64_t>(x) * static_cast<std::uint64_t>(y));
        });
      });
    }
  });
}

}  // namespace coreai::cpu::reference
