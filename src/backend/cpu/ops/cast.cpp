// cast among f32 and integers of 8 to 32 bits: integers clamp, floats truncate and saturate, NaN gives 0. (Casts among
// floats are element-wise chains.)
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "backend/cpu/ops/op_arguments.h"

namespace coreai::cpu {
namespace {

// f(std::type_identity<T>{}); nothing for other types.
template <typename F>
void with_type(DType d, F&& f) {
  switch (d) {
    case DType::kUI8:
      return f(std::type_identity<std::uint8_t>{});
    case DType::kSI8:
      return f(std::type_identity<std::int8_t>{});
    case DType::kUI16:
      return f(std::type_identity<std::uint16_t>{});
    case DType::kSI16:
      return f(std::type_identity<std::int16_t>{});
    case DType::kUI32:
      return f(std::type_identity<std::uint32_t>{});
    case DType::kSI32:
      return f(std::type_identity<std::int32_t>{});
    case DType::kF32:
      return f(std::type_identity<float>{});
    default:
      return;
  }
}

bool is_cast_type(DType d) {
  bool known = false;
  with_type(d, [&](auto) { known = true; });
  return known;
}

// Every value of the types is exact in f64.
template <typename To>
To converted(double value) {
  if constexpr (std::is_same_v<To, float>) {
    return static_cast<float>(value);
  } else {
    using Limits = std::numeric_limits<To>;
    if (std::isnan(value)) return 0;
    return static_cast<To>(std::clamp(value, static_cast<double>(Limits::min()), static_cast<double>(Limits::max())));
  }
}

class CastKernel final : public OpKernel {
 public:
  explicit CastKernel(const compiler::GenericStep& step) : where_(step.op->info().text_name) {}

  Cut bind(std::span<const OpArray> in, std::span<const OpArray> out, int threads) override {
    x_ = in[0], y_ = out[0];
    check_result(y_, x_.shape, where_);
    items_ = cut_items(x_.count(), 2, threads);
    return {items_.chunks(), 0};
  }

  void compute(int chunk, const Worker&) const override {
    with_type(x_.dtype, [&]<typename From>(std::type_identity<From>) {
      with_type(y_.dtype, [&]<typename To>(std::type_identity<To>) {
        const auto* from = reinterpret_cast<const From*>(x_.data);
        auto* to = reinterpret_cast<To*>(y_.data);
        for (std::int64_t i = items_.begin(chunk); i < items_.end(chunk); ++i)
          to[i] = converted<To>(static_cast<double>(from[i]));
      });
    });
  }

 private:
  std::string_view where_;
  OpArray x_, y_;
  ItemCut items_;
};

}  // namespace

std::unique_ptr<OpKernel> make_cast(const compiler::GenericStep& step, Isa) {
  if (step.op->code != ir::OpCode::kCast || !is_cast_type(step.inputs[0].dtype) ||
      !is_cast_type(step.outputs[0].dtype)) {
    return nullptr;
  }
  return std::make_unique<CastKernel>(step);
}

}  // namespace coreai::cpu
