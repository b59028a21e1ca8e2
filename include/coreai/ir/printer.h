#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "coreai/ir/module.h"

namespace coreai::ir {

enum class TextForm : std::uint8_t {
  kProgram,  // the `coreai` spelling of the reference's `str(program)`: no decompositions
  kDisk,     // the operations, attributes and types as the file holds them, decompositions included
};

struct PrintOptions {
  // Constants with more elements are elided, blobs of resources left out; negative prints all of both.
  std::int64_t element_limit = 64;
  bool locations = false;  // file and line of each operation
  TextForm form = TextForm::kProgram;
};

// The program as text, as close to the reference's text form as the dialect allows. Throws VerificationError when a
// constant's type and bytes do not fit or the text of one attribute grows beyond 16 MiB.
void print(const Module& module, std::ostream& out, const PrintOptions& options = {});
std::string to_text(const Module& module, const PrintOptions& options = {});
std::string to_text(TypeRef type, TextForm form = TextForm::kProgram);
std::string to_text(AttrRef attribute, TextForm form = TextForm::kProgram);

}  // namespace coreai::ir
