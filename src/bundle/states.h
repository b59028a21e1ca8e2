// `language.states`: what it says, and whether a function agrees.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bundle/metadata.h"
#include "coreai/bundle/language_bundle.h"

namespace coreai::metadata {

// Empty without the block. Throws BundleError (kMalformedMetadata).
std::vector<DeclaredState> read_states(const Fields& language);
// kMissingFunction for a state that the function does not have, kInconsistent for one that is not declared (field
// "language.states") or cannot be what it is declared as (field "language.states.<name>"). Empty without declarations.
std::vector<BundleError> state_problems(std::span<const DeclaredState> declared, const FunctionDescriptor& function,
                                        const std::string& where);

}  // namespace coreai::metadata
