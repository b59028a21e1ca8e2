// Weights as they are stored: dtypes and bytes of the constants, and what of them only serves to dequantise others.
#include <unordered_set>

#include "bundle/audit_parts.h"

namespace coreai {
namespace audit {
namespace {

using ir::Op;
using ir::OpCode;

constexpr int kMaxViews = 8;             // between a constant and the operation that takes it as a scale
constexpr int kMaxQuantisedBits = 8;     // wider integers are positions and shapes
constexpr std::uint64_t kMinWeight = 8;  // elements; smaller integers are axes and extents

bool dequantises(OpCode code) {
  switch (code) {
    case OpCode::kBlockwiseShiftScale:
    case OpCode::kBlockwiseShiftScaleV1:
    case OpCode::kDequantize:
    case OpCode::kDequantizeV1:
    case OpCode::kLutToDense:
    case OpCode::kLutToSparseWithBitmask:
    case OpCode::kSparseWithBitmaskBlockwiseShiftScale:
      return true;
    default:
      return false;
  }
}

bool is_view(OpCode code) {
  return code == OpCode::kReshape || code == OpCode::kTranspose || code == OpCode::kCast ||
         code == OpCode::kExpandDims || code == OpCode::kShrinkDims;
}

std::uint64_t stored_bytes(const Op& constant) {
  const ir::AttrRef value = constant.attribute("value");
  if (value == nullptr) return 0;
  if (value->is(ir::AttrCode::kSerializationDenseResource)) return value->field<ir::ResourceRef>(0)->size;
  if (value->is(ir::AttrCode::kSerializationDenseElements)) return value->field<std::vector<std::byte>>(1).size();
  return 0;
}

class Measurer {
 public:
  WeightMeasure measure(const ir::Block& block) {
    find_scales(block);
    count(block);
    return std::move(measure_);
  }

 private:
  // Constants that reach a dequantising operation as anything but its data.
  void find_scales(const ir::Block& block) {
    for (const auto& op : block.ops) {
      if (dequantises(op->code))
        for (std::size_t i = 1; i < op->operands.size(); ++i) mark(op->operands[i]);
      for_inner(*op, [&](const ir::Block& inner) { find_scales(inner); });
    }
  }
  void mark(const ir::Value* value) {
    for (int i = 0; i < kMaxViews && value != nullptr && value->op != nullptr; ++i) {
      const Op& op = *value->op;
      if (op.code == OpCode::kConstant) scales_.insert(op.attribute("value"));
      if (!is_view(op.code) || op.operands.empty()) return;
      value = op.operands[0];
    }
  }

  void count(const ir::Block& block) {
    for (const auto& op : block.ops) {
      if (op->code == OpCode::kConstant) add(*op);
      for_inner(*op, [&](const ir::Block& inner) { count(inner); });
    }
  }
  void add(const Op& op) {
    const ir::AttrRef value = op.attribute("value");
    if (!seen_.insert(value).second) return;  // a blob that several constants share
    if (op.results.size() != 1 || !op.results[0]->type->is_tensor()) return;
    const DType dtype = op.results[0]->type->dtype();
    const int bits = dtype_bits(dtype);
    const std::uint64_t bytes = stored_bytes(op);
    const std::uint64_t elements = bytes * 8 / static_cast<std::uint64_t>(bits);  // one for a splat
    StoredShare& share = measure_.by_dtype[std::string(dtype_name(dtype))];
    share.elements += elements;
    share.bytes += bytes;
    const bool number = is_float(dtype) || is_complex(dtype);
    const bool quantised = !number && dtype != DType::kI1 && bits <= kMaxQuantisedBits;
    if (scales_.contains(value)) {
      measure_.bytes += bytes;
    } else if ((number || quantised) && elements >= kMinWeight) {
      measure_.bytes += bytes;
      measure_.elements += elements;
      measure_.elements_by_bits[bits] += elements;
    }
  }

  // The spelled-out form of an operation holds no weights.
  template <typename Visit>
  static void for_inner(const Op& op, const Visit& visit) {
    if (op.info().decomposable) return;
    for (const ir::Region& region : op.regions)
      for (const auto& inner : region.blocks) visit(*inner);
  }

  WeightMeasure measure_;
  std::unordered_set<ir::AttrRef> scales_, seen_;
};

}  // namespace

WeightMeasure measure_weights(const ir::Module& module) {
  return Measurer().measure(module.body());
}

}  // namespace audit

double WeightMeasure::bits_per_weight() const {
  return elements == 0 ? 0 : static_cast<double>(bytes) * 8 / static_cast<double>(elements);
}

std::uint64_t WeightMeasure::elements_of_at_most(int bits) const {
  std::uint64_t sum = 0;
  for (const auto& [width, count] : elements_by_bits) sum += width <= bits ? count : 0;
  return sum;
}

void WeightMeasure::add(const WeightMeasure& other) {
  for (const auto& [name, share] : other.by_dtype) {
    by_dtype[name].elements += share.elements;
    by_dtype[name].bytes += share.bytes;
  }
  for (const auto& [bits, count] : other.elements_by_bits) elements_by_bits[bits] += count;
  elements += other.elements;
  bytes += other.bytes;
}

}  // namespace coreai
