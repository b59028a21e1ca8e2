#include "backend/cpu/linear.h"

#include "backend/cpu/linear_kernels.h"

namespace coreai::cpu {
namespace {

static_assert(static_cast<int>(KernelKind::kF32) == static_cast<int>(WeightKind::kF32));
static_assert(static_cast<int>(KernelActivation::kGeluErf) == static_cast<int>(Activation::kGeluErf));

// The largest integers whose signed 8-bit digits do not overflow; at three digits with room for one rounding.
constexpr std::int32_t kLimits[] = {127, 127 * 256 + 127, 0x7f7e00};

const LinearKernels& kernels_of(Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
      return avx512_linear_kernels();
    case Isa::kAvx2:
      return avx2_linear_kernels();
    case Isa::kPortable:
      break;
  }
  return portable_linear_kernels();
}

ActivationLayout activation_layout(std::int64_t k, Digits digits, Isa isa) {
  ActivationLayout layout{};
  layout.k = k;
  layout.blocks = (k + kDigitBlock - 1) / kDigitBlock;
  layout.digits = static_cast<std::int32_t>(digits);
  layout.limit = kLimits[layout.digits - 1];
  layout.has_words = isa == Isa::kAvx2;
  const auto blocks = static_cast<std::size_t>(layout.blocks);
  std::size_t at = 0;
  const auto take = [&at](std::size_t bytes) {
    const std::size_t begin = at;
    at += (bytes + 31) / 32 * 32;
    return begin;
  };
  layout.scale = take(4 * blocks);
  layout.sum32 = take(4 * blocks);
  layout.sum16 = take(8 * blocks);
  layout.isum = take(8 * blocks);
  layout.isum_low = take(layout.digits == 3 ? 8 * blocks : 0);
  layout.digit_bytes = take(kDigitBlock * blocks * static_cast<std::size_t>(layout.digits));
  layout.words = take(layout.has_words ? 2 * kDigitBlock * blocks * (layout.digits == 3 ? 2 : 1) : 0);
  layout.row_bytes = (at + kPackAlignment - 1) / kPackAlignment * kPackAlignment;
  return layout;
}

}  // namespace

std::size_t activation_row_bytes(std::int64_t k, Digits digits, Isa isa) {
  return activation_layout(k, digits, isa).row_bytes;
}

void quantize_rows(const float* x, std::int64_t x_stride, std::int64_t k, std::int64_t row_begin, std::int64_t row_end,
                   Digits digits, Isa isa, std::byte* out) {
  const ActivationLayout layout = activation_layout(k, digits, isa);
  const LinearKernels& kernels = kernels_of(isa);
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    kernels.quantize_row(x + row * x_stride, layout, out + static_cast<std::size_t>(row) * layout.row_bytes);
  }
}

void linear_chunk(const LinearArgs& args, std::int64_t unit_begin, std::int64_t unit_end) {
  const PackedMatrix& w = *args.weights;
  LinearKernelArgs a{};
  a.panels = w.panel(0);
  a.panel_bytes = w.panel_bytes();
  a.kind = static_cast<KernelKind>(w.kind());
  a.gate_up = w.gate_up();
  a.scale_is_f16 = w.scale_is_f16();
  a.has_offset = w.has_offset();
  a.offset_is_f16 = w.offset_is_f16();
  a.k = w.k();
  a.outputs = w.outputs();
  a.block = w.block();
  a.group = w.group();
  a.zero = w.zero();
  a.m = args.m;
  a.rows = args.digits;
  a.layout = activation_layout(w.k(), args.precision, args.isa);
  a.x = args.x;
  a.x_stride = args.x_stride;
  a.y = args.y;
  a.y_stride = args.y_stride;
  a.bias = args.bias;
  a.residual = args.residual;
  a.residual_stride = args.residual_stride;
  a.activation = static_cast<KernelActivation>(args.activation);
  kernels_of(args.isa).linear(a, unit_begin, unit_end);
}

}  // namespace coreai::cpu
