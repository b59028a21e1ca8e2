// A decoder of one layer with random weights whose norm, rotation and attention are written out op by op, each in the
// plain form or in one other that a test names.
#pragma once

#include <memory>
#include <string>

#include "coreai/ir/module.h"

namespace coreai::testing_support {

// Throws std::invalid_argument for a name that is no form; the empty name is the plain form.
std::unique_ptr<ir::Module> written_decoder(const std::string& form);

}  // namespace coreai::testing_support
