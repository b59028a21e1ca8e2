#include "coreai/ir/refusal.h"

#include <fmt/format.h>

#include "coreai/ir/unknown_op.h"

namespace coreai::ir {
namespace {

std::string text_of(const Op& op, std::string_view attribute) {
  const AttrRef value = op.attribute(attribute);
  return value && value->is(AttrCode::kSerializationString) ? std::string(value->as_string()) : std::string("?");
}

}  // namespace

std::optional<Refusal> refusal_of(const Op& op) {
  const std::string_view name = op.info().disk_name;
  switch (op.code) {
    case OpCode::kExecutionDelegate:
    case OpCode::kExecutionDelegateV1:
      return Refusal{fmt::format("{} hands a part of the program to the back-end \"{}\", compiled for a device", name,
                                 text_of(op, "delegate_id")),
                     "Give the source asset, from before it was compiled for the device"};
    case OpCode::kMetal4Kernel:
      return Refusal{
          fmt::format("{} runs the Metal kernel \"{}\", which needs a Metal device", name, text_of(op, "kernel_name")),
          "Export the model without custom Metal kernels, so that the operations they replace stay in the program"};
    case OpCode::kUdmlCall:
      return Refusal{fmt::format("{} calls the user-defined kernel @{}, which is not part of the program", name,
                                 Module::callee_symbol(op)),
                     "Export the model with a graph of operations in place of the kernel"};
    case OpCode::kUdmlPlaceholder:
      return Refusal{fmt::format("{} stands for the operation \"{}\" of another dialect", name, text_of(op, "opname")),
                     "Convert that operation before the asset is saved"};
    case OpCode::kSparseWithBitmaskBlockwiseShiftScale:
      return Refusal{fmt::format("{} has no definition outside the file format", name),
                     "Write sparse_with_bitmask_to_dense and blockwise_shift_scale in its place"};
    case OpCode::kSerializationOpaque:
      if (stand_in_body(op) != nullptr) return std::nullopt;
      [[fallthrough]];
    case OpCode::kSerializationTerminator:
      return Refusal{fmt::format("the operation {} is unknown and carries no decomposition that could run in its place",
                                 text_of(op, "opname")),
                     "Update this program, or save the asset again for coreai-core 1.0"};
    default:
      return std::nullopt;
  }
}

Refusal missing_kernel(const Op& op) {
  return refusal_of(op).value_or(Refusal{fmt::format("there is no kernel for {}", op.info().disk_name),
                                         "Export the model without this operation"});
}

}  // namespace coreai::ir
