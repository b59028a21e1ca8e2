// Any bytes as a program: read, look at everything, write, read again. Only typed errors may come out, and what was
// written must be readable.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "coreai/asset/asset.h"
#include "coreai/base/error.h"
#include "coreai/ir/printer.h"
#include "coreai/ir/verifier.h"

namespace {

constexpr std::int64_t kMaxElements = 1 << 16;  // splats may declare any extent

void look_at_constants(const coreai::ir::Block& block) {
  for (const auto& op : block.ops) {
    if (op->code == coreai::ir::OpCode::kConstant) {
      try {
        const auto& shape = op->results.at(0)->type->shape();
        coreai::ir::constant_splat(*op);
        if (shape.is_static() && shape.element_count() <= kMaxElements) coreai::ir::constant_value(*op);
      } catch (const coreai::Error&) {
      } catch (const std::out_of_range&) {  // a constant without a result
      }
    }
    for (const coreai::ir::Region& region : op->regions) {
      for (const auto& inner : region.blocks) look_at_constants(*inner);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto storage = coreai::Storage::allocate(size);
  if (size > 0) std::memcpy(storage->data(), data, size);
  std::unique_ptr<coreai::ir::Module> module;
  try {
    module = coreai::read_bytecode(storage, "fuzz.mlirb");
  } catch (const coreai::Error&) {
    return 0;
  }
  look_at_constants(module->body());
  for (const auto& look :
       {+[](const coreai::ir::Module& m) { coreai::summarize(m); },
        +[](const coreai::ir::Module& m) { coreai::ir::verify(m); },
        +[](const coreai::ir::Module& m) { coreai::ir::to_text(m); },
        +[](const coreai::ir::Module& m) { coreai::ir::to_text(m, {-1, true, coreai::ir::TextForm::kDisk}); }}) {
    try {
      look(*module);
    } catch (const coreai::Error&) {
    }
  }
  if (!module->unreadable_ops.empty()) return 0;  // refused by the writer
  const std::vector<std::byte> written = coreai::write_bytecode(*module);
  auto again = coreai::Storage::allocate(written.size());
  std::memcpy(again->data(), written.data(), written.size());
  try {
    coreai::read_bytecode(again, "written.mlirb");
  } catch (const coreai::Error&) {
    std::abort();
  }
  return 0;
}
