// How a model is specialised for this machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coreai {

// Arithmetic of a specialisation. docs/precision.md has the measured errors.
enum class Precision : std::uint8_t {
  kFaithful,  // activations f32 between steps, integer weights by two exact 8-bit digits (16-bit activations)
  kExact,     // the same with three digits
  kStrict,    // op by op as the file says: rounds where its types say so, nothing fused
  kFast,      // one digit
};
std::string_view precision_name(Precision precision);
// Throws InvalidArgumentError that lists the valid names.
Precision precision_from_name(std::string_view name);

enum class ComputeUnitKind : std::uint8_t { kCpu, kGpu, kNeuralEngine };

struct SpecializationOptions {
  ComputeUnitKind compute_unit =
      ComputeUnitKind::kCpu;  // others throw UnsupportedError until their back-end is built in
  Precision precision = Precision::kFaithful;
  int threads = 0;                       // worker threads of a call; 0 = one per available core
  bool expect_frequent_reshapes = true;  // kept for the reference's contract: a dynamic plan serves every shape here
  std::vector<std::string> disabled_passes;  // by name, for tests and comparison
  std::string kernels;    // level by name, for tests and comparison: portable, avx2, avx512; empty = this CPU's best
  bool use_cache = true;  // packed weights and plan on disk
  std::filesystem::path cache_directory;  // empty = COREAI_CACHE_DIR, else the XDG cache folder
  // Told of long work (packing weights): fraction 0..1 and what is being done. Called from the loading thread.
  void (*progress)(double fraction, std::string_view what, void* user) = nullptr;
  void* progress_user = nullptr;

  // Throws InvalidArgumentError with one message per rule.
  void validate() const;
};

}  // namespace coreai
