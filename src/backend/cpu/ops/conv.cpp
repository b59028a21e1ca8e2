// Convolutions as dense products: A = weights [output channels, input channels and taps], B = the taps of output
// pixels, packed on the way. A transposed convolution is one such product per residue of the output position by the
// stride: those pixels share their taps. One input channel per group with stride 1 goes the direct way.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cpu/gemm.h"
#include "backend/cpu/kernel_tables.h"
#include "backend/cpu/ops/conv_shape.h"
#include "coreai/base/error.h"

namespace coreai::cpu {
namespace {

using ir::OpCode;

constexpr std::int64_t kWidestPanel = 32;
constexpr std::int64_t kLeastFlops = 1 << 18;  // of a chunk, about 10 us

// Output pixels that share their taps: position = first + step * index.
struct Part {
  Triple first{}, step{}, count{};
  std::size_t tap_begin = 0, tap_count = 0;
  std::int64_t weight_at = 0;  // of group 0 in the repacked weights
  bool inside = true;
  GemmCut cut;
  std::int64_t item_begin = 0, items = 0;
};

class PixelPanels final : public PanelSource {
 public:
  PixelPanels(const TapKernels& kernels, const TapInput& in, const Triple& count, const Triple& window)
      : kernels_(kernels), in_(in), count_(count), window_(window) {}

  void pack(std::int64_t k_begin, std::int64_t depth, std::int64_t n_begin, std::int64_t n, std::int64_t panel,
            float* panels) const override {
    for (std::int64_t j = 0; j < n; j += panel, panels += depth * panel) {
      TapRun runs[kWidestPanel];
      const std::int64_t count = runs_of(n_begin + j, std::min(panel, n - j), runs);
      kernels_.pack(in_, runs, count, k_begin, depth, panel, panels);
    }
  }

 private:
  std::int64_t runs_of(std::int64_t pixel, std::int64_t n, TapRun* runs) const {
    std::int64_t count = 0;
    for (std::int64_t lane = 0; lane < n;) {
      const std::int64_t w = pixel % count_[2], line = pixel / count_[2];
      TapRun& run = runs[count++];
      run.lane = lane;
      run.count = std::min(n - lane, count_[2] - w);
      run.at = {line / count_[1] * window_[0], line % count_[1] * window_[1], w * window_[2]};
      run.offset = (run.at[0] * in_.extents[1] + run.at[1]) * in_.extents[2] + run.at[2];
      lane += run.count, pixel += run.count;
    }
    return count;
  }

  const TapKernels& kernels_;
  const TapInput& in_;
  Triple count_, window_;
};

class ConvKernel final : public OpKernel {
 public:
  ConvKernel(const compiler::GenericStep& step, Isa isa)
      : where_(step.op->info().text_name),
        rows_(row_kernels(isa)),
        gemm_(gemm_kernels(isa)),
        taps_kernels_(kernel_tables(isa).taps),
        transposed_(step.op->code == OpCode::kConvTranspose2d || step.op->code == OpCode::kConvTranspose3d),
        constant_(step.inputs[1].constant.has_value()) {}

  Cut bind(std::span<const OpArray> in, std::span<const OpArray> out, int threads) override {
    x_ = in[0], w_ = in[1], y_ = out[0];
    const ConvShape shape = conv_shape(in, y_, transposed_, where_);
    if (!bound_ || !(shape == shape_)) {
      shape_ = shape;
      plan();
    }
    take_weights();
    bound_ = true;
    return direct_ ? cut_direct(threads) : cut_products(threads);
  }

  void compute(int chunk, const Worker& worker) const override {
    for (std::int64_t i = items_.begin(chunk); i < items_.end(chunk); ++i) {
      if (direct_) {
        convolve(i, worker.scratch);
      } else {
        const auto part = std::ranges::find_if(parts_, [&](const Part& p) { return i < p.item_begin + p.items; });
        multiply(*part, i - part->item_begin, worker.scratch);
      }
    }
  }

 private:
  // ---- parts and taps ----

  void plan() {
    parts_.clear(), taps_.clear();
    plane_ = shape_.in;
    direct_ = !transposed_ && shape_.in_per_group() == 1 && shape_.stride[2] == 1 && shape_.out[2] >= 4;
    if (transposed_) return plan_residues();
    Part part;
    part.step = {1, 1, 1};
    part.count = shape_.out;
    window_ = shape_.stride;
    const Triple one{1, 1, 1};
    if (shape_.kernel == one && shape_.stride == one) {  // the planes are the matrix
      plane_ = {1, 1, product(shape_.in)};
      part.count = plane_;
    }
    for (std::int64_t d = 0; d < shape_.kernel[0]; ++d)
      for (std::int64_t h = 0; h < shape_.kernel[1]; ++h)
        for (std::int64_t w = 0; w < shape_.kernel[2]; ++w)
          add_tap({d * shape_.dilation[0], h * shape_.dilation[1], w * shape_.dilation[2]});
    part.tap_count = taps_.size();
    parts_.push_back(part);
  }

  void add_tap(const Triple& at) { taps_.push_back({at, (at[0] * plane_[1] + at[1]) * plane_[2] + at[2]}); }

  // Output p of an axis reads input (p + padding - k * dilation) / stride for every k that divides.
  void plan_residues() {
    window_ = {1, 1, 1};
    tap_kernel_index_.clear();
    std::int64_t weight_at = 0;
    const Triple residues = {std::min(shape_.stride[0], shape_.out[0]), std::min(shape_.stride[1], shape_.out[1]),
                             std::min(shape_.stride[2], shape_.out[2])};
    for (std::int64_t d = 0; d < residues[0]; ++d)
      for (std::int64_t h = 0; h < residues[1]; ++h)
        for (std::int64_t w = 0; w < residues[2]; ++w) {
          Part part;
          part.first = {d, h, w};
          part.step = shape_.stride;
          part.inside = false;
          part.tap_begin = taps_.size();
          for (std::size_t i = 0; i < 3; ++i)
            part.count[i] = (shape_.out[i] - part.first[i] + shape_.stride[i] - 1) / shape_.stride[i];
          add_residue_taps(part.first);
          part.tap_count = taps_.size() - part.tap_begin;
          part.weight_at = weight_at;
          weight_at += static_cast<std::int64_t>(part.tap_count) * shape_.in_channels * shape_.out_per_group();
          parts_.push_back(part);
        }
  }

  void add_residue_taps(const Triple& first) {
    const auto reads = [&](std::size_t i, std::int64_t k) {
      return first[i] + shape_.padding[i] - k * shape_.dilation[i];
    };
    const auto divides = [&](std::size_t i, std::int64_t k) { return reads(i, k) % shape_.stride[i] == 0; };
    for (std::int64_t d = 0; d < shape_.kernel[0]; ++d) {
      for (std::int64_t h = 0; divides(0, d) && h < shape_.kernel[1]; ++h) {
        for (std::int64_t w = 0; divides(1, h) && w < shape_.kernel[2]; ++w) {
          if (!divides(2, w)) continue;
          add_tap({reads(0, d) / shape_.stride[0], reads(1, h) / shape_.stride[1], reads(2, w) / shape_.stride[2]});
          tap_kernel_index_.push_back((d * shape_.kernel[1] + h) * shape_.kernel[2] + w);
        }
      }
    }
  }

  // ---- weights ----

  // Constant weights are widened (and rearranged) once; others are read where they lie.
  void take_weights() {
    weights_ = nullptr;
    if (transposed_) {
      if (!repacked_for_ || !(*repacked_for_ == shape_)) repack();
      weights_ = own_weights_.data();
      return;
    }
    const bool aligned = reinterpret_cast<std::uintptr_t>(w_.data) % alignof(float) == 0;
    if (w_.dtype == DType::kF32 && aligned) {
      weights_ = reinterpret_cast<const float*>(w_.data);
    } else if (constant_) {
      if (own_weights_.empty()) widen_weights();
      weights_ = own_weights_.data();
    }
  }

  void widen_weights() {
    own_weights_.resize(static_cast<std::size_t>(w_.count()));
    rows_.to_f32(w_.dtype, w_.data, own_weights_.data(), w_.count());
  }

  // [input channel, output channel of the group, taps] to [part][output channel][input channel of the group, taps].
  void repack() {
    widen_weights();
    const std::vector<float> file = std::move(own_weights_);
    own_weights_.clear();
    own_weights_.reserve(file.size());
    const std::int64_t taps = product(shape_.kernel), per_group = shape_.in_per_group();
    for (const Part& part : parts_) {
      for (std::int64_t o = 0; o < shape_.out_channels; ++o) {
        const std::int64_t group = o / shape_.out_per_group(), in_group = o % shape_.out_per_group();
        for (std::int64_t i = 0; i < per_group; ++i) {
          const std::int64_t from = ((group * per_group + i) * shape_.out_per_group() + in_group) * taps;
          for (std::size_t t = part.tap_begin; t < part.tap_begin + part.tap_count; ++t)
            own_weights_.push_back(file[static_cast<std::size_t>(from + tap_kernel_index_[t])]);
        }
      }
    }
    finite_weights_ = std::ranges::all_of(own_weights_, [](float w) { return std::isfinite(w); });
    repacked_for_ = shape_;
  }

  // ---- products ----

  Cut cut_products(int threads) {
    const std::int64_t matrices = shape_.batch * shape_.groups, per_group = shape_.in_per_group();
    std::int64_t items = 0, work = 0, rows = 0, columns = 0, depth = 0;
    std::size_t gemm_scratch = 0;
    for (Part& part : parts_) {
      const std::int64_t k = per_group * static_cast<std::int64_t>(part.tap_count);
      part.cut = cut_gemm(shape_.out_per_group(), k, product(part.count), matrices >= 2 * threads ? 1 : threads);
      part.item_begin = items;
      part.items = matrices * part.cut.chunks();
      items += part.items;
      work = std::max(work, 2 * part.cut.rows_per_chunk * part.cut.columns_per_chunk * k);
      rows = std::max(rows, part.cut.rows_per_chunk);
      columns = std::max(columns, part.cut.columns_per_chunk);
      depth = std::max(depth, k);
      gemm_scratch = std::max(gemm_scratch, part.cut.scratch_bytes());
    }
    items_ = spread(items, work, threads);
    a_floats_ = weights_ ? 0 : line(rows * depth);
    c_floats_ = y_.dtype == DType::kF32 && contiguous() ? 0 : line(rows * columns);
    narrow_floats_ = y_.dtype == DType::kF32 ? 0 : line(columns);
    gemm_scratch = (gemm_scratch + 63) / 64 * 64;
    const auto floats = static_cast<std::size_t>(a_floats_ + c_floats_ + narrow_floats_);
    return {items_.chunks(), gemm_scratch + floats * sizeof(float)};
  }

  static std::int64_t line(std::int64_t floats) { return (floats + 15) / 16 * 16; }
  // Whether neighbouring columns of a product are neighbours in the result.
  bool contiguous() const { return parts_.size() == 1 && parts_[0].step == Triple{1, 1, 1}; }

  static ItemCut spread(std::int64_t items, std::int64_t flops, int threads) {
    ItemCut cut{items, 1};
    const std::int64_t most = ThreadPool::kMaxChunks;
    cut.each = std::max<std::int64_t>((items + most - 1) / most, 1);
    cut.each = std::max(cut.each, std::min(kLeastFlops / std::max<std::int64_t>(flops, 1), items / (4 * threads)));
    return cut;
  }

  void multiply(const Part& part, std::int64_t item, std::byte* scratch) const {
    const GemmCut& cut = part.cut;
    const std::int64_t matrix = item / cut.chunks(), chunk = item % cut.chunks();
    const std::int64_t group = matrix % shape_.groups, plane = product(shape_.in);
    const std::int64_t first_channel = matrix / shape_.groups * shape_.in_channels + group * shape_.in_per_group();
    TapInput input;
    input.dtype = x_.dtype;
    input.data = x_.data + first_channel * plane * element_bytes(x_.dtype);
    input.available = x_.count() - first_channel * plane;
    input.plane = plane;
    input.extents = plane_;
    input.taps = taps_.data() + part.tap_begin;
    input.tap_count = std::max<std::int64_t>(static_cast<std::int64_t>(part.tap_count), 1);
    input.step = window_[2];
    input.inside = part.inside;
    const PixelPanels panels(taps_kernels_, input, part.count, window_);

    auto* a_copy = reinterpret_cast<float*>(scratch);
    float* c_copy = a_copy + a_floats_;
    float* narrow = c_copy + c_floats_;
    auto* rest = reinterpret_cast<std::byte*>(narrow + narrow_floats_);
    const std::int64_t row = chunk % cut.row_chunks * cut.rows_per_chunk;
    const std::int64_t column = chunk / cut.row_chunks * cut.columns_per_chunk;
    const std::int64_t rows = std::min(cut.rows_per_chunk, cut.m - row);
    const std::int64_t columns = std::min(cut.columns_per_chunk, cut.n - column);
    const float* a = a_copy - row * cut.k;
    if (weights_) {
      a = weights_ + part.weight_at + group * cut.m * cut.k;
    } else {
      rows_.to_f32(w_.dtype, w_.data + (group * cut.m + row) * cut.k * element_bytes(w_.dtype), a_copy, rows * cut.k);
    }
    const std::int64_t out_plane = product(shape_.out);
    std::byte* y = y_.data + matrix * cut.m * out_plane * element_bytes(y_.dtype);
    const bool border = !part.inside && !finite_weights_;
    if (c_floats_ == 0) {
      gemm_chunk(gemm_, cut, chunk, a, cut.k, panels, reinterpret_cast<float*>(y), out_plane, rest);
      if (border) {
        float* c = reinterpret_cast<float*>(y) + row * out_plane + column;
        sum_border(part, input, a + row * cut.k, c, out_plane, {rows, column, columns});
      }
      return;
    }
    gemm_chunk(gemm_, cut, chunk, a, cut.k, panels, c_copy - row * columns - column, columns, rest);
    if (border) sum_border(part, input, a + row * cut.k, c_copy, columns, {rows, column, columns});
    for (std::int64_t r = 0; r < rows; ++r) {
      store_row(part, c_copy + r * columns, column, columns, y + (row + r) * out_plane * element_bytes(y_.dtype),
                narrow);
    }
  }

  // The product reads zeros outside a plane, and a weight that is infinite or NaN makes NaN of them: pixels with such a
  // tap are summed again without it. `block`: rows, first pixel, pixels.
  void sum_border(const Part& part, const TapInput& in, const float* a, float* c, std::int64_t c_stride,
                  const Triple& block) const {
    std::vector<const Tap*> inside;
    for (std::int64_t i = 0; i < block[2]; ++i) {
      const std::int64_t pixel = block[1] + i, line = pixel / part.count[2];
      const Triple at{line / part.count[1], line % part.count[1], pixel % part.count[2]};
      inside.clear();
      for (std::size_t t = 0; t < part.tap_count; ++t) {
        const auto reads = [&](std::size_t axis) {
          const std::int64_t from = at[axis] + in.taps[t].at[axis];
          return from >= 0 && from < in.extents[axis];
        };
        if (reads(0) && reads(1) && reads(2)) inside.push_back(in.taps + t);
      }
      if (inside.size() == part.tap_count) continue;
      const std::int64_t first = (at[0] * in.extents[1] + at[1]) * in.extents[2] + at[2];
      for (std::int64_t r = 0; r < block[0]; ++r) {
        float sum = 0;
        for (std::int64_t channel = 0; channel < shape_.in_per_group(); ++channel) {
          for (const Tap* tap : inside) {
            float x = 0;
            const std::int64_t from = channel * in.plane + first + tap->offset;
            rows_.to_f32(in.dtype, in.data + from * element_bytes(in.dtype), &x, 1);
            sum = std::fma(a[r * part.cut.k + channel * in.tap_count + (tap - in.taps)], x, sum);
          }
        }
        c[r * c_stride + i] = sum;
      }
    }
  }

  // Columns of one output channel to where their pixels lie.
  void store_row(const Part& part, const float* from, std::int64_t column, std::int64_t columns, std::byte* plane,
                 float* narrow) const {
    const std::int64_t width = element_bytes(y_.dtype);
    if (contiguous()) return rows_.from_f32(y_.dtype, from, plane + column * width, columns);
    const void* values = from;
    if (y_.dtype != DType::kF32) rows_.from_f32(y_.dtype, from, narrow, columns), values = narrow;
    for (std::int64_t i = 0; i < columns;) {
      const std::int64_t pixel = column + i, w = pixel % part.count[2], at = pixel / part.count[2];
      const std::int64_t n = std::min(columns - i, part.count[2] - w);
      const std::int64_t d = part.first[0] + at / part.count[1] * part.step[0];
      const std::int64_t h = part.first[1] + at % part.count[1] * part.step[1];
      const std::int64_t to = (d * shape_.out[1] + h) * shape_.out[2] + part.first[2] + w * part.step[2];
      if (width == 4) {
        spread_out(static_cast<const float*>(values) + i, reinterpret_cast<float*>(plane) + to, part.step[2], n);
      } else {
        spread_out(static_cast<const std::uint16_t*>(values) + i, reinterpret_cast<std::uint16_t*>(plane) + to,
                   part.step[2], n);
      }
      i += n;
    }
  }
  template <typename T>
  static void spread_out(const T* from, T* to, std::int64_t step, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) to[i * step] = from[i];
  }

  // ---- one input channel per group ----

  Cut cut_direct(int threads) {
    const std::int64_t lines = shape_.out[1], work = 2 * product(shape_.kernel) * shape_.out[2];
    rows_each_ = std::clamp<std::int64_t>(kLeastFlops / work, 1, std::max<std::int64_t>(lines, 1));
    row_blocks_ = (lines + rows_each_ - 1) / rows_each_;
    const std::int64_t items = shape_.batch * shape_.out_channels * shape_.out[0] * row_blocks_;
    items_ = spread(items, work * rows_each_, threads);
    const bool narrow = x_.dtype != DType::kF32;
    in_rows_ = (rows_each_ - 1) * shape_.stride[1] + shape_.dilation[1] * (shape_.kernel[1] - 1) + 1;
    a_floats_ = weights_ ? 0 : line(product(shape_.kernel));
    c_floats_ = narrow ? line(rows_each_ * shape_.out[2]) : 0;
    const std::int64_t x_floats = narrow ? shape_.kernel[0] * in_rows_ * shape_.in[2] : 0;
    return {items_.chunks(), static_cast<std::size_t>(a_floats_ + c_floats_ + line(x_floats)) * sizeof(float)};
  }

  // One block of rows of one plane of an output channel.
  void convolve(std::int64_t item, std::byte* scratch) const {
    const std::int64_t block = item % row_blocks_, line = item / row_blocks_;
    const std::int64_t d = line % shape_.out[0], channel = line / shape_.out[0];  // counted through the batch
    const std::int64_t first = block * rows_each_, taps = product(shape_.kernel);
    const std::int64_t o = channel % shape_.out_channels, n = channel / shape_.out_channels;
    const std::int64_t in_channel = n * shape_.in_channels + o / shape_.out_per_group();
    const std::int64_t slice = shape_.in[1] * shape_.in[2], in_row = first * shape_.stride[1];
    const std::int64_t x_at = in_channel * product(shape_.in) + d * shape_.stride[0] * slice + in_row * shape_.in[2];
    const std::int64_t y_at = (channel * shape_.out[0] + d) * shape_.out[1] * shape_.out[2] + first * shape_.out[2];
    DepthwiseArgs a;
    a.kernel = shape_.kernel;
    a.rows = std::min(rows_each_, shape_.out[1] - first);
    a.columns = a.y_stride = shape_.out[2];
    a.row = shape_.dilation[1] * shape_.in[2];
    a.step = shape_.stride[1] * shape_.in[2];
    a.tap = shape_.dilation[2];
    auto* a_copy = reinterpret_cast<float*>(scratch);
    a.w = weights_ ? weights_ + o * taps : a_copy;
    if (!weights_) rows_.to_f32(w_.dtype, w_.data + o * taps * element_bytes(w_.dtype), a_copy, taps);
    if (x_.dtype == DType::kF32) {
      a.slice = shape_.dilation[0] * slice;
      a.x = reinterpret_cast<const float*>(x_.data) + x_at;
      a.y = reinterpret_cast<float*>(y_.data) + y_at;
      return taps_kernels_.depthwise(a);
    }
    float* y = a_copy + a_floats_;
    float* x = y + c_floats_;
    a.slice = in_rows_ * shape_.in[2];
    const std::int64_t wanted = (a.rows - 1) * shape_.stride[1] + shape_.dilation[1] * (shape_.kernel[1] - 1) + 1;
    for (std::int64_t k = 0; k < shape_.kernel[0]; ++k) {
      const std::int64_t at = x_at + k * shape_.dilation[0] * slice;
      rows_.to_f32(x_.dtype, x_.data + at * element_bytes(x_.dtype), x + k * a.slice, wanted * shape_.in[2]);
    }
    a.x = x, a.y = y;
    taps_kernels_.depthwise(a);
    rows_.from_f32(y_.dtype, y, y_.data + y_at * element_bytes(y_.dtype), a.rows * shape_.out[2]);
  }

  std::string_view where_;
  const RowKernels& rows_;
  const GemmKernels& gemm_;
  const TapKernels& taps_kernels_;
  bool transposed_, constant_, bound_ = false, direct_ = false;
  bool finite_weights_ = true;  // transposed: all of them
  OpArray x_, w_, y_;
  ConvShape shape_;
  Triple plane_{}, window_{};  // extents of a plane as the product sees it; elements between windows
  std::vector<Part> parts_;
  std::vector<Tap> taps_;
  std::vector<std::int64_t> tap_kernel_index_;  // transposed: which element of the kernel a tap is
  const float* weights_ = nullptr;              // null: widened per chunk
  std::vector<float> own_weights_;
  std::optional<ConvShape> repacked_for_;
  ItemCut items_;
  std::int64_t a_floats_ = 0, c_floats_ = 0, narrow_floats_ = 0;
  std::int64_t rows_each_ = 1, row_blocks_ = 1, in_rows_ = 0;
};

}  // namespace

std::unique_ptr<OpKernel> make_conv(const compiler::GenericStep& step, Isa isa) {
  const OpCode code = step.op->code;
  const bool transposed = code == OpCode::kConvTranspose2d || code == OpCode::kConvTranspose3d;
  if (!transposed && code != OpCode::kConv2d && code != OpCode::kConv3d) return nullptr;
  if (!known_operands(step, 2, transposed ? 7 : 5)) return nullptr;
  const DType type = step.outputs[0].dtype;
  if (!is_wide_float(type) || step.inputs[0].dtype != type || step.inputs[1].dtype != type) return nullptr;
  if (transposed && !step.inputs[1].constant) return nullptr;  // rearranged weights must last
  return std::make_unique<ConvKernel>(step, isa);
}

}  // namespace coreai::cpu
