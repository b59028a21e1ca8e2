#pragma once

#include <ostream>
#include <string>

#include "coreai/ir/module.h"

namespace coreai::ir {

struct PrintOptions {
  std::int64_t element_limit = 64;  // constants with more elements are elided; negative prints all
  bool locations = false;
};

// The program as text, as close to the reference's text form as the dialect allows.
void print(const Module& module, std::ostream& out, const PrintOptions& options = {});
std::string to_text(const Module& module, const PrintOptions& options = {});
std::string to_text(TypeRef type);
std::string to_text(AttrRef attribute);

}  // namespace coreai::ir
