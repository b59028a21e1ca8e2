// The levels of x86-64 for which kernels are compiled. Each level's kernels stand in translation units with their own
// compiler flags and are reached through tables of function pointers only.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace coreai::cpu {

enum class Isa : std::uint8_t {
  kPortable,  // plain C++, any CPU
  kAvx2,      // AVX2, FMA and F16C
  kAvx512,    // AVX-512 F, BW, DQ, VL and VNNI
};

// The highest level that this CPU and its operating system support; found once.
Isa detect_isa();
// True when kernels of the level can run here; kPortable always can.
bool isa_supported(Isa isa);
// "portable", "avx2", "avx512".
std::string_view isa_name(Isa isa);
// Inverse of isa_name; nothing for an unknown name.
std::optional<Isa> isa_from_name(std::string_view name);

}  // namespace coreai::cpu
