#include "backend/cpu/reference/refusal.h"

#include <fmt/format.h>

namespace coreai::cpu {
namespace {

using ir::OpCode;

std::string text_of(const ir::Op& op, std::string_view attribute) {
  const ir::AttrRef value = op.attribute(attribute);
  return value && value->is(ir::AttrCode::kSerializationString) ? std::string(value->as_string()) : std::string("?");
}

}  // namespace

Refusal refusal_of(const ir::Op& op) {
  const std::string_view name = op.info().disk_name;
  switch (op.code) {
    case OpCode::kExecutionDelegate:
    case OpCode::kExecutionDelegateV1:
      return {fmt::format("{} hands a part of the program to the back-end \"{}\", compiled for a device", name,
                          text_of(op, "delegate_id")),
              "Give the source asset, from before it was compiled for the device"};
    case OpCode::kMetal4Kernel:
      return {
          fmt::format("{} runs the Metal kernel \"{}\", which needs a Metal device", name, text_of(op, "kernel_name")),
          "Export the model without custom Metal kernels, so that the operations they replace stay in the program"};
    case OpCode::kUdmlCall:
      return {fmt::format("{} calls the user-defined kernel @{}, which is not part of the program", name,
                          ir::Module::callee_symbol(op)),
              "Export the model with a graph of operations in place of the kernel"};
    case OpCode::kUdmlPlaceholder:
      return {fmt::format("{} stands for the operation \"{}\" of another dialect", name, text_of(op, "opname")),
              "Convert that operation before the asset is saved"};
    case OpCode::kSparseWithBitmaskBlockwiseShiftScale:
      return {fmt::format("{} has no definition outside the file format", name),
              "Write sparse_with_bitmask_to_dense and blockwise_shift_scale in its place"};
    case OpCode::kSerializationOpaque:
    case OpCode::kSerializationTerminator:
      return {fmt::format("the operation {} is unknown and carries no decomposition that could run in its place",
                          text_of(op, "opname")),
              "Update this program, or save the asset again for coreai-core 1.0"};
    default:
      return {fmt::format("there is no kernel for {}", name), "Export the model without this operation"};
  }
}

}  // namespace coreai::cpu
