#include "exporter/blocks.h"

namespace coreai::blocks {
namespace {
constexpr int kKScalesAt = 4;  // behind d and dmin
constexpr int kQ4KNibblesAt = 16;
constexpr int kQ5KHighAt = 16;
constexpr int kQ5KNibblesAt = 48;
constexpr int kQ6KHighAt = 128;
constexpr int kQ6KScalesAt = 192;
constexpr int kQ6KScaleAt = 208;
}  // namespace

void unpack_q4(const std::byte* nibbles, std::uint8_t* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = byte_at(nibbles, i) & 15;
    q[i + 16] = byte_at(nibbles, i) >> 4;
  }
}

void unpack_q5(const std::byte* bits, std::uint8_t* q) {
  std::uint32_t high;
  std::memcpy(&high, bits, 4);
  unpack_q4(bits + 4, q);
  for (int i = 0; i < 32; ++i) q[i] = static_cast<std::uint8_t>(q[i] | (((high >> i) & 1u) << 4));
}

KScales k_scales(const std::byte* block) {
  const float d = half_at(block, 0);
  const float dmin = half_at(block, 2);
  const std::byte* packed = block + kKScalesAt;
  KScales out;
  for (int j = 0; j < 8; ++j) {
    int scale, minimum;
    if (j < 4) {  // six low bits of bytes j and j+4
      scale = byte_at(packed, j) & 63;
      minimum = byte_at(packed, j + 4) & 63;
    } else {  // a nibble of byte j+4, topped by the two high bits of bytes j-4 and j
      scale = (byte_at(packed, j + 4) & 15) | ((byte_at(packed, j - 4) >> 6) << 4);
      minimum = (byte_at(packed, j + 4) >> 4) | ((byte_at(packed, j) >> 6) << 4);
    }
    out.scale[j] = d * static_cast<float>(scale);
    out.minimum[j] = dmin * static_cast<float>(minimum);
  }
  return out;
}

// Each 32 bytes hold two groups: low nibbles, then high nibbles.
void unpack_q4_k(const std::byte* block, std::uint8_t* q) {
  for (int pair = 0; pair < 4; ++pair)
    for (int i = 0; i < 32; ++i) {
      const std::uint8_t both = byte_at(block, kQ4KNibblesAt + 32 * pair + i);
      q[64 * pair + i] = both & 15;
      q[64 * pair + 32 + i] = both >> 4;
    }
}

// As Q4_K; bit g of high byte i is the fifth bit of element i of group g.
void unpack_q5_k(const std::byte* block, std::uint8_t* q) {
  for (int group = 0; group < 8; ++group)
    for (int i = 0; i < 32; ++i) {
      const int both = byte_at(block, kQ5KNibblesAt + 32 * (group / 2) + i);
      const int low = group % 2 == 0 ? both & 15 : both >> 4;
      const int high = (byte_at(block, kQ5KHighAt + i) >> group) & 1;
      q[32 * group + i] = static_cast<std::uint8_t>(low | (high << 4));
    }
}

void q6_k_scales(const std::byte* block, float* scale) {
  const float d = half_at(block, kQ6KScaleAt);
  for (int i = 0; i < 16; ++i)
    scale[i] = d * static_cast<float>(static_cast<std::int8_t>(byte_at(block, kQ6KScalesAt + i)));
}

// Two halves of 128: 64 bytes of nibbles and 32 bytes of pairs each; quarter k of a half takes pair k.
void unpack_q6_k(const std::byte* block, std::int8_t* q) {
  for (int half = 0; half < 2; ++half)
    for (int quarter = 0; quarter < 4; ++quarter)
      for (int i = 0; i < 32; ++i) {
        const int both = byte_at(block, 64 * half + 32 * (quarter % 2) + i);
        const int low = quarter < 2 ? both & 15 : both >> 4;
        const int high = (byte_at(block, kQ6KHighAt + 32 * half + i) >> (2 * quarter)) & 3;
        q[128 * half + 32 * quarter + i] = static_cast<std::int8_t>((low | (high << 4)) - 32);
      }
}

}  // namespace coreai::blocks
