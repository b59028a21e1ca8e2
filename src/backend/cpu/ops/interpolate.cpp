// Linear and nearest resampling over all axes: the rows around a row of the result are mixed, then their columns.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "backend/cpu/ops/op_arguments.h"
#include "backend/cpu/row_kernels.h"

namespace coreai::cpu {
namespace {

constexpr std::size_t kMostRank = 6;

// Two neighbours along one axis and the weight of the upper one; nearest has one neighbour.
struct Sample {
  std::int64_t low = 0, high = 0;
  float weight = 0;
};

Sample sample_at(float coordinate, std::int64_t extent, bool linear) {
  const double last = static_cast<double>(extent - 1);
  const double c = std::isnan(coordinate) ? 0.0 : std::clamp(static_cast<double>(coordinate), 0.0, last);
  if (!linear) {
    const auto index = static_cast<std::int64_t>(std::nearbyint(c));
    return {index, index, 0.0f};
  }
  const auto low = static_cast<std::int64_t>(std::floor(c));
  return {low, std::min(low + 1, extent - 1), static_cast<float>(c - static_cast<double>(low))};
}

class InterpolateKernel final : public OpKernel {
 public:
  InterpolateKernel(const compiler::GenericStep& step, bool linear, Isa isa)
      : where_(step.op->info().text_name), rows_(row_kernels(isa)), linear_(linear) {}

  Cut bind(std::span<const OpArray> in, std::span<const OpArray> out, int threads) override {
    x_ = in[0], y_ = out[0];
    const std::size_t rank = x_.shape.rank();
    const Ints dims = read_ints(in[1], where_);
    if (dims.size() != rank || in[2].count() != static_cast<std::int64_t>(rank) || in[3].count() != in[2].count())
      shape_error(where_, "output shape, scale and offset need one element per axis");
    for (std::size_t d = 0; d < rank; ++d) {
      if (x_.shape[d] == 0) shape_error(where_, "an empty dimension cannot be interpolated");
      if (dims[d] < 0) shape_error(where_, fmt::format("an extent of {}", dims[d]));
    }
    check_result(y_, Shape(dims.span()), where_);
    samples_.clear();
    const bool none = y_.count() == 0;
    for (std::size_t d = 0; d < rank && !none; ++d) {
      first_[d] = samples_.size();
      const float scale = real(in[2], d), offset = real(in[3], d);
      for (std::int64_t i = 0; i < dims[d]; ++i) {
        const float position = static_cast<float>(i) + 0.5f - offset;
        samples_.push_back(sample_at(position / scale - 0.5f, x_.shape[d], linear_));
      }
    }
    row_ = dims[rank - 1], columns_ = x_.shape[rank - 1];
    items_ = cut_items(none ? 0 : y_.count() / row_, 4 * (row_ + columns_), threads);
    return {items_.chunks(), static_cast<std::size_t>(2 * columns_ + row_) * sizeof(float)};
  }

  void compute(int chunk, const Worker& worker) const override {
    auto* line = reinterpret_cast<float*>(worker.scratch);
    float *wide = line + columns_, *result = wide + columns_;
    const Sample* columns = samples_.data() + first_[x_.shape.rank() - 1];
    for (std::int64_t i = items_.begin(chunk); i < items_.end(chunk); ++i) {
      mix_rows(i, line, wide);
      for (std::int64_t c = 0; c < row_; ++c) {
        const Sample& s = columns[c];
        const float low = line[s.low];
        result[c] = s.weight == 0.0f ? low : (1.0f - s.weight) * low + s.weight * line[s.high];
      }
      rows_.from_f32(y_.dtype, result, y_.data + i * row_ * element_bytes(y_.dtype), row_);
    }
  }

 private:
  static float real(const OpArray& array, std::size_t i) {
    float value;
    std::memcpy(&value, array.data + i * sizeof value, sizeof value);
    return value;
  }

  // The input's rows around row `index` of the result, each by its weight.
  void mix_rows(std::int64_t index, float* line, float* wide) const {
    struct Corner {
      std::int64_t row = 0;
      float weight = 1.0f;
    };
    std::array<Corner, std::size_t{1} << (kMostRank - 1)> corners;
    std::size_t count = 1;
    corners[0] = {};
    std::int64_t stride = 1;
    for (std::size_t d = x_.shape.rank() - 1; d-- > 0; index /= y_.shape[d], stride *= x_.shape[d]) {
      const Sample& s = samples_[first_[d] + static_cast<std::size_t>(index % y_.shape[d])];
      const std::size_t before = count;
      for (std::size_t k = 0; k < before; ++k) {
        const Corner corner = corners[k];
        if (s.weight != 0.0f) corners[count++] = {corner.row + s.high * stride, corner.weight * s.weight};
        corners[k] = {corner.row + s.low * stride, corner.weight * (1.0f - s.weight)};
      }
    }
    for (std::size_t k = 0; k < count; ++k) {
      const std::byte* from = x_.data + corners[k].row * columns_ * element_bytes(x_.dtype);
      rows_.to_f32(x_.dtype, from, k == 0 ? line : wide, columns_);
      const float weight = corners[k].weight;
      if (k == 0 && weight == 1.0f) continue;
      for (std::int64_t c = 0; c < columns_; ++c) line[c] = k == 0 ? weight * line[c] : line[c] + weight * wide[c];
    }
  }

  std::string_view where_;
  const RowKernels& rows_;
  bool linear_;
  OpArray x_, y_;
  std::vector<Sample> samples_;  // of axis d from first_[d] on
  std::array<std::size_t, kMostRank> first_{};
  std::int64_t row_ = 0, columns_ = 0;
  ItemCut items_;
};

}  // namespace

std::unique_ptr<OpKernel> make_interpolate(const compiler::GenericStep& step, Isa isa) {
  if (step.op->code != ir::OpCode::kInterpolate || !known_operands(step, 1, 4)) return nullptr;
  const DType type = step.outputs[0].dtype;
  const std::size_t rank = operand_rank(step, 0);
  const ir::AttrRef attribute = step.op->attribute("interpolation_mode");
  const std::uint64_t mode = attribute ? attribute->as_enum() : 0;
  if (!is_wide_float(type) || step.inputs[0].dtype != type || step.inputs[2].dtype != DType::kF32 ||
      step.inputs[3].dtype != DType::kF32 || rank == 0 || rank > kMostRank || mode > 1) {
    return nullptr;
  }
  return std::make_unique<InterpolateKernel>(step, mode == 0, isa);
}

}  // namespace coreai::cpu
