// What the op table says for readers of documentation.
#pragma once

#include <string_view>
#include <vector>

#include "coreai/base/dtype.h"
#include "coreai/ir/op_code.h"

namespace coreai::ir {

// What the operation computes, in a line.
std::string_view op_summary(OpCode code);

// A name for several dtypes in the signatures of the op table, such as "F".
struct DTypeSetName {
  std::string_view name;
  std::vector<DType> dtypes;
};
const std::vector<DTypeSetName>& dtype_set_names();

}  // namespace coreai::ir
