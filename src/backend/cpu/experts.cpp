#include "backend/cpu/experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "coreai/base/error.h"
#include "coreai/base/thread_pool.h"

namespace coreai::cpu {
namespace {

// Rows of one product: its result stays in the first cache.
constexpr std::int64_t kRowBlock = 64;
constexpr std::int64_t kRowsPerChunk = 8;
constexpr std::int64_t kChunksPerThread = 8;
// Reading a panel costs as much as multiplying it with about this many rows.
constexpr std::int64_t kReadWork = 8;

template <typename T>
std::int64_t element(const std::byte* data, std::int64_t i) {
  T value;
  std::memcpy(&value, data + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

std::int64_t parts(std::int64_t n, std::int64_t each) {
  return (n + each - 1) / each;
}

}  // namespace

void ExpertProduct::bind(const ExpertArgs& args, int threads) {
  args_ = args;
  const std::int64_t k = args.weights->k();
  row_bytes_ = args.weights->takes_digits() ? activation_row_bytes(k, args.precision, args.isa)
                                            : static_cast<std::size_t>(parts(k * 4, kPackAlignment)) * kPackAlignment;
  units_ = args.weights->units() / args.experts;
  COREAI_INVARIANT(units_ == parts(args.outputs, kPanelRows));
  const auto rows = static_cast<std::size_t>(args.rows);
  if (order_.size() < rows) order_.resize(rows);
  first_.resize(static_cast<std::size_t>(args.experts) + 1);
  active_.reserve(static_cast<std::size_t>(args.experts));
  const std::int64_t most = std::min(args.rows, args.experts) * units_;
  chunks_ = static_cast<int>(std::min(most, threads == 1 ? std::int64_t{1} : threads * kChunksPerThread));
}

std::size_t ExpertProduct::gathered_bytes() const {
  return static_cast<std::size_t>(args_.rows) * row_bytes_;
}

std::size_t ExpertProduct::scratch_bytes() const {
  return static_cast<std::size_t>(kRowBlock * kPanelRows) * sizeof(float);
}

int ExpertProduct::gather_chunks() const {
  return static_cast<int>(std::min<std::int64_t>(parts(args_.rows, kRowsPerChunk), ThreadPool::kMaxChunks));
}

std::int64_t ExpertProduct::index(std::int64_t row) const {
  switch (args_.index_dtype) {
    case DType::kUI8:
      return element<std::uint8_t>(args_.indices, row);
    case DType::kSI8:
      return element<std::int8_t>(args_.indices, row);
    case DType::kUI16:
      return element<std::uint16_t>(args_.indices, row);
    case DType::kSI16:
      return element<std::int16_t>(args_.indices, row);
    default:
      return element<std::int32_t>(args_.indices, row);
  }
}

std::int64_t ExpertProduct::unit_work(const Active& a) const {
  return a.rows + kReadWork;
}

void ExpertProduct::route() {
  const auto expert_of = [&](std::int64_t row) {
    const std::int64_t i = index(row);
    if (i < -args_.experts || i >= args_.experts) {
      throw InvalidArgumentError(fmt::format("expert {} of {} is named by row {}", i, args_.experts, row), "gather_mm",
                                 "Experts count from 0; a negative one counts from the end");
    }
    return static_cast<std::size_t>(i < 0 ? i + args_.experts : i);
  };
  std::fill(first_.begin(), first_.end(), 0);
  for (std::int64_t r = 0; r < args_.rows; ++r) ++first_[expert_of(r) + 1];
  for (std::size_t e = 1; e < first_.size(); ++e) first_[e] += first_[e - 1];
  active_.clear();
  work_ = 0;
  for (std::size_t e = 0; e + 1 < first_.size(); ++e) {
    const std::int64_t rows = first_[e + 1] - first_[e];
    if (rows == 0) continue;
    active_.push_back({static_cast<std::int64_t>(e), first_[e], rows, work_});
    work_ += units_ * unit_work(active_.back());
  }
  for (std::int64_t r = 0; r < args_.rows; ++r) order_[static_cast<std::size_t>(first_[expert_of(r)]++)] = r;
}

void ExpertProduct::gather(int chunk) const {
  const std::int64_t count = gather_chunks(), k = args_.weights->k();
  for (std::int64_t s = args_.rows * chunk / count; s < args_.rows * (chunk + 1) / count; ++s) {
    const float* x = args_.x + order_[static_cast<std::size_t>(s)] / args_.choices * args_.x_stride;
    std::byte* out = gathered_ + static_cast<std::size_t>(s) * row_bytes_;
    if (args_.weights->takes_digits()) {
      quantize_rows(x, 0, k, 0, 1, args_.precision, args_.isa, out);
    } else {
      std::memcpy(out, x, static_cast<std::size_t>(k) * sizeof(float));
    }
  }
}

void ExpertProduct::compute(int chunk, std::byte* scratch) const {
  const std::int64_t begin = work_ * chunk / chunks_, end = work_ * (chunk + 1) / chunks_;
  for (const Active& a : active_) {
    // A unit belongs to the chunk that holds its beginning.
    const std::int64_t work = unit_work(a);
    const auto unit = [&](std::int64_t at) {
      return std::clamp<std::int64_t>(at <= a.begin ? 0 : parts(at - a.begin, work), 0, units_);
    };
    if (unit(begin) < unit(end)) multiply(a, unit(begin), unit(end), reinterpret_cast<float*>(scratch));
  }
}

void ExpertProduct::multiply(const Active& a, std::int64_t unit_begin, std::int64_t unit_end, float* scratch) const {
  LinearArgs product;
  product.weights = args_.weights;
  product.activation = args_.activation;
  product.precision = args_.precision;
  product.isa = args_.isa;
  const std::int64_t at_once = std::max<std::int64_t>(kRowBlock / a.rows, 1);
  for (std::int64_t unit = unit_begin; unit < unit_end; unit += at_once) {
    const std::int64_t last = std::min(unit + at_once, unit_end), width = (last - unit) * kPanelRows;
    const std::int64_t first_column = unit * kPanelRows, columns = std::min(width, args_.outputs - first_column);
    for (std::int64_t row = 0; row < a.rows; row += kRowBlock) {
      const std::byte* sorted = gathered_ + static_cast<std::size_t>(a.first + row) * row_bytes_;
      product.m = std::min(kRowBlock, a.rows - row);
      product.digits = sorted;
      product.x = reinterpret_cast<const float*>(sorted);
      product.x_stride = static_cast<std::int64_t>(row_bytes_ / sizeof(float));
      product.y_stride = width;
      product.y = scratch - (a.expert * units_ + unit) * kPanelRows;  // the first column of the units is scratch[0]
      linear_chunk(product, a.expert * units_ + unit, a.expert * units_ + last);
      for (std::int64_t r = 0; r < product.m; ++r) {
        float* y = args_.y + order_[static_cast<std::size_t>(a.first + row + r)] * args_.y_stride + first_column;
        std::memcpy(y, scratch + r * width, static_cast<std::size_t>(columns) * sizeof(float));
      }
    }
  }
}

}  // namespace coreai::cpu
