// Recorded calls: "this asset, these inputs, these outputs", as a JSON file that is replayed or written.
// Format: docs/recorded-calls.md.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "coreai/runtime/ai_model.h"

namespace coreai {

struct CaseResult {
  std::string name;
  bool must = true;     // false: advisory, reported without failing
  bool passed = false;  // every call as expected
  std::string problem;  // empty when passed: which call and value, and how it differs
  // The largest |got - want| over all float values compared, the largest share of its tolerance that a value used
  // (above 1 fails; infinite for a difference where none is allowed), and where.
  double worst_error = 0, worst_share = 0;
  std::string worst_value;  // "call 2: logits"; empty when nothing differed
};

struct CheckReport {
  std::vector<CaseResult> cases;
  std::size_t passed = 0, failed = 0;  // failed counts `must` cases only
  std::size_t advisory_failed = 0;
};

struct CheckOptions {
  SpecializationOptions specialization;  // precision: kStrict unless the caller names another
  std::filesystem::path asset;           // stands for the file's own asset; empty = the file's
  std::string case_name;                 // only this case; empty = all
  CheckOptions() { specialization.precision = Precision::kStrict; }
};

// Replays a file. A case that fails is a result, not an exception. Throws NotFoundError (the file, one of its assets,
// the named case), MalformedError (the file breaks the format): nothing could be looked at.
CheckReport check_recorded_calls(const std::filesystem::path& file, const CheckOptions& options = {});

struct RecordedCall {
  std::string case_name;  // empty = "<function>_<n>"
  std::filesystem::path asset;
  std::string function;
  NamedArrays inputs, initial_states, outputs, states_after;
  double rtol = 0, atol = 0;  // written into the case; both 0 = exact
};

// Adds a case to a file, which is made when there is none. Arrays above 4 KiB go into a side file beside it
// ("cases.json" -> "cases.bin"). Throws IoError, MalformedError (what is there is no such file), InvalidArgumentError
// (the case exists already).
void record_call(const std::filesystem::path& file, const RecordedCall& call);

}  // namespace coreai
