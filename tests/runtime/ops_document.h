// docs/ops.md: every operation of the dialect with its dtypes, what runs it, and what tests it.
#pragma once

#include <string>

namespace coreai::test {

// The whole document, from the operation table, the compiler, the kernel tables and the fixtures of this folder's
// parent. The same on every machine. Throws Error when a fixture cannot be read.
std::string ops_document();

}  // namespace coreai::test
