// What a fuzz target may throw.
#pragma once

#include "coreai/base/error.h"

namespace coreai::fuzz {

// Runs `body`; only typed errors may come out of it, and none that tells of a broken invariant of ours.
template <typename Body>
void expect_typed_errors(Body&& body) {
  try {
    body();
  } catch (const InternalError&) {
    throw;
  } catch (const Error&) {
  }
}

}  // namespace coreai::fuzz
