// The bytes of a packed matrix, little-endian:
//
//   PackedHeader (64 bytes)
//   panel 0, panel 1, ...   of panel_bytes each; with gate_up gate and up panels alternate
//
// A panel of 32 rows of integer weights, all columns (padded to 32) in ascending order:
//   for each group of blocks:  scales[32] (f16 or f32)  offsets[32] (f16, f32 or absent)  block, block, ...
//   a kU4 block:  for each 8 columns c..c+7:  32 rows x 4 bytes, byte j = q[c+j] | q[c+4+j] << 4
//   a kU8 block:  for each 4 columns c..c+3:  32 rows x 4 bytes, byte j = q[c+j]
// so value = scale * (q - zero) + offset. A panel of float weights: for each column 32 values.
// A kernel reads one strictly ascending stream: any other order loses a third of the memory's rate and more.
#pragma once

#include <cstdint>

namespace coreai::cpu {

inline constexpr std::uint32_t kPackedMagic = 0x4c504143;  // "CAPL"
inline constexpr std::uint32_t kPackedVersion = 1;

enum PackedFlags : std::uint32_t {
  kPackedGateUp = 1,
  kPackedScaleF16 = 2,
  kPackedHasOffset = 4,
  kPackedOffsetF16 = 8,
};

struct PackedHeader {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t kind;
  std::uint32_t flags;
  std::int64_t n;
  std::int64_t k;
  std::int32_t block;
  std::int32_t zero;
  std::int64_t group;
  std::uint64_t panel_bytes;
  std::uint64_t reserved;
};
static_assert(sizeof(PackedHeader) == 64);

}  // namespace coreai::cpu
