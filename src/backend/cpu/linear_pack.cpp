#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>

#include "backend/cpu/linear.h"
#include "backend/cpu/linear_source.h"
#include "backend/cpu/packed_format.h"
#include "coreai/base/error.h"
#include "coreai/base/float_types.h"

namespace coreai::cpu {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

bool is_integer_kind(WeightKind kind) {
  return kind == WeightKind::kU4 || kind == WeightKind::kU8;
}

// The bits of a value that is exactly an f16, else nothing (NaN included, which costs only space).
std::optional<std::uint16_t> exact_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t exponent = (bits >> 23) & 0xffu;
  if (exponent > 112 && exponent < 143) {  // a normal f16 by its exponent
    if ((bits & 0x1fffu) != 0) return std::nullopt;
    return static_cast<std::uint16_t>(((bits >> 16) & 0x8000u) | ((exponent - 112) << 10) | ((bits >> 13) & 0x3ffu));
  }
  const std::uint16_t half = f32_to_f16(value);
  return f16_to_f32(half) == value ? std::optional(half) : std::nullopt;
}

void store_float(std::byte* out, bool as_f16, std::int64_t i, float value) {
  if (as_f16) {
    const std::uint16_t bits = *exact_f16(value);
    std::memcpy(out + 2 * i, &bits, 2);
  } else {
    std::memcpy(out + 4 * i, &value, 4);
  }
}

// The zero point of a source's unsigned integers at its first taken scale.
std::int32_t first_zero(const MatrixSource& s) {
  const std::int32_t bias = unsigned_bias(s.dtype);
  if (s.offset1.empty()) return bias;
  return integer_element(s.dtype, s.offset1.data(), scale_index(s, s.row_begin, 0)) + bias;
}

// True if all scales of the taken rows have this zero point.
bool has_one_zero(const MatrixSource& s, std::int32_t zero) {
  const std::int32_t bias = unsigned_bias(s.dtype);
  if (s.offset1.empty()) return zero == bias;
  const std::int64_t end = scale_index(s, s.row_begin + s.rows() - 1, s.k - 1) + 1;
  for (std::int64_t i = scale_index(s, s.row_begin, 0); i < end; ++i) {
    if (integer_element(s.dtype, s.offset1.data(), i) + bias != zero) return false;
  }
  return true;
}

// The type of a source's values.
DType value_dtype(const MatrixSource& s) {
  if (s.block != 0) return s.rounded;
  return s.table.empty() ? s.dtype : s.table_dtype;
}

float rounded_to(DType dtype, float value) {
  if (dtype == DType::kF16) return f16_to_f32(f32_to_f16(value));
  if (dtype == DType::kBF16) return bf16_to_f32(f32_to_bf16(value));
  return value;
}

struct ScaleOffset {
  float scale, offset;
};

// value = scale * (q - zero) + offset for the unsigned integer q of a source.
ScaleOffset scale_offset(const MatrixSource& s, std::int64_t row, std::int64_t column, std::int32_t zero) {
  const std::int32_t bias = unsigned_bias(s.dtype);
  if (s.block == 0) return {1.0f, static_cast<float>(zero - bias)};
  const std::int64_t i = scale_index(s, row, column);
  const float scale = float_element(s.scale_dtype, s.scale.data(), i);
  const std::int32_t offset1 = s.offset1.empty() ? 0 : integer_element(s.dtype, s.offset1.data(), i);
  const float offset2 = s.offset2.empty() ? 0.0f : float_element(s.offset2_dtype, s.offset2.data(), i);
  const std::int32_t shift = zero - bias - offset1;
  return {scale, shift == 0 ? offset2 : std::fma(scale, static_cast<float>(shift), offset2)};
}

}  // namespace

PackPlan::PackPlan(std::vector<MatrixSource> sources, PackOptions options)
    : sources_(std::move(sources)), options_(options) {
  if (sources_.empty()) throw InvalidArgumentError("no sources to pack", "PackPlan", "pass at least one matrix");
  k_ = sources_.front().k;
  for (const MatrixSource& s : sources_) {
    check_source(s);
    if (s.k != k_) {
      throw InvalidArgumentError(fmt::format("sources of {} and {} columns cannot be one layer", k_, s.k), "PackPlan",
                                 "pack them apart");
    }
    first_row_.push_back(n_);
    n_ += options_.whole_panels ? round_up(s.rows(), kPanelRows) : s.rows();
  }
  if (options_.gate_up && n_ % 2 != 0) {
    throw InvalidArgumentError(fmt::format("{} rows are not gate and up rows of equal number", n_), "PackPlan",
                               "pass as many gate rows as up rows");
  }
  const std::int64_t outputs = options_.gate_up ? n_ / 2 : n_;
  panels_ = round_up(outputs, kPanelRows) / kPanelRows * (options_.gate_up ? 2 : 1);
  choose_kind();
  choose_layout();
}

void PackPlan::choose_kind() {
  bool all_integer = true;
  int bits = 0;
  std::int64_t block = 0;  // 0 is the neutral element of gcd
  for (const MatrixSource& s : sources_) {
    all_integer = all_integer && is_integer(s.dtype) && s.table.empty();
    bits = std::max(bits, dtype_bits(s.dtype));
    // One scale for all columns: the padding may belong to it too.
    block = std::gcd(block, s.block == 0 || s.block == s.k ? round_up(k_, kDigitBlock) : s.block);
  }
  if (all_integer && block % kLeastIntegerBlock == 0) {
    kind_ = bits <= 4 ? WeightKind::kU4 : WeightKind::kU8;
    block_ = block % kDigitBlock == 0 ? kDigitBlock : kLeastIntegerBlock;
    group_ = block / block_;
    return;
  }
  const DType dtype = value_dtype(sources_.front());
  const bool same = std::ranges::all_of(sources_, [&](const MatrixSource& s) { return value_dtype(s) == dtype; });
  kind_ = WeightKind::kF32;
  if (same && dtype == DType::kF16) kind_ = WeightKind::kF16;
  if (same && dtype == DType::kBF16) kind_ = WeightKind::kBF16;
}

void PackPlan::choose_layout() {
  std::size_t panel = 0;
  if (!is_integer_kind(kind_)) {
    panel = static_cast<std::size_t>(kPanelRows * k_) * (kind_ == WeightKind::kF32 ? 4 : 2);
  } else {
    const std::int32_t zero = first_zero(sources_.front());
    const std::int32_t bias = unsigned_bias(sources_.front().dtype);
    bool same_zero = true;
    bool same_bias = true;
    for (const MatrixSource& s : sources_) {
      same_zero = same_zero && has_one_zero(s, zero);
      same_bias = same_bias && unsigned_bias(s.dtype) == bias;
    }
    zero_ = same_zero ? zero : (same_bias ? bias : 0);
    bool scale_f16 = true;
    bool offset_f16 = true;
    for (const MatrixSource& s : sources_) {
      const std::int64_t columns = s.block == 0 ? k_ : s.block;
      for (std::int64_t r = s.row_begin; r < s.row_begin + s.rows(); ++r) {
        for (std::int64_t c = 0; c < k_; c += columns) {
          const ScaleOffset value = scale_offset(s, r, c, zero_);
          scale_f16 = scale_f16 && exact_f16(value.scale).has_value();
          offset_f16 = offset_f16 && exact_f16(value.offset).has_value();
          has_offset_ = has_offset_ || !(value.offset == 0.0f);
        }
      }
    }
    scale_dtype_ = scale_f16 ? DType::kF16 : DType::kF32;
    offset_dtype_ = offset_f16 ? DType::kF16 : DType::kF32;
    const std::int64_t blocks = round_up(k_, kDigitBlock) / block_;
    const std::int64_t groups = (blocks + group_ - 1) / group_;
    const std::int64_t block_bytes = kPanelRows * block_ / (kind_ == WeightKind::kU4 ? 2 : 1);
    const std::int64_t head = kPanelRows * ((scale_f16 ? 2 : 4) + (has_offset_ ? (offset_f16 ? 2 : 4) : 0));
    panel = static_cast<std::size_t>(blocks * block_bytes + groups * head);
  }
  panel_bytes_ = panel;
  size_ = sizeof(PackedHeader) + panel_bytes_ * static_cast<std::size_t>(panels_);
}

void PackPlan::write_header(std::byte* out) const {
  PackedHeader header{};
  header.magic = kPackedMagic;
  header.version = kPackedVersion;
  header.kind = static_cast<std::uint32_t>(kind_);
  header.flags = (options_.gate_up ? kPackedGateUp : 0u) | (scale_dtype_ == DType::kF16 ? kPackedScaleF16 : 0u) |
                 (has_offset_ ? kPackedHasOffset : 0u) | (offset_dtype_ == DType::kF16 ? kPackedOffsetF16 : 0u);
  header.n = n_;
  header.k = k_;
  header.block = static_cast<std::int32_t>(block_);
  header.zero = zero_;
  header.group = group_;
  header.panel_bytes = panel_bytes_;
  std::memcpy(out, &header, sizeof(header));
}

// The concatenated row that a panel's row holds; -1 for padding.
std::int64_t PackPlan::source_row(std::int64_t panel, std::int64_t row) const {
  if (!options_.gate_up) {
    const std::int64_t r = panel * kPanelRows + row;
    return r < n_ ? r : -1;
  }
  const std::int64_t r = panel / 2 * kPanelRows + row;
  return r < n_ / 2 ? r + panel % 2 * (n_ / 2) : -1;
}

PackPlan::Located PackPlan::locate(std::int64_t row) const {
  const auto after = std::ranges::upper_bound(first_row_, row);
  const auto index = static_cast<std::size_t>(after - first_row_.begin()) - 1;
  if (row - first_row_[index] >= sources_[index].rows()) return {nullptr, 0};
  return {&sources_[index], row - first_row_[index] + sources_[index].row_begin};
}

void PackPlan::pack_panels(std::byte* out, std::int64_t panel_begin, std::int64_t panel_end) const {
  const std::int64_t columns = round_up(k_, kDigitBlock);
  std::vector<std::byte> scratch(static_cast<std::size_t>(kPanelRows * columns) * (is_integer_kind(kind_) ? 1 : 4));
  for (std::int64_t p = panel_begin; p < panel_end; ++p) {
    std::byte* panel = out + sizeof(PackedHeader) + static_cast<std::size_t>(p) * panel_bytes_;
    if (is_integer_kind(kind_)) {
      pack_integer_panel(panel, p, scratch);
    } else {
      pack_float_panel(panel, p, scratch);
    }
  }
}

void PackPlan::pack_integer_panel(std::byte* out, std::int64_t panel, std::span<std::byte> scratch) const {
  const std::int64_t columns = round_up(k_, kDigitBlock);
  auto* q = reinterpret_cast<std::uint8_t*>(scratch.data());  // [32][columns]
  std::memset(q, 0, scratch.size());
  Located rows[kPanelRows];
  for (std::int64_t r = 0; r < kPanelRows; ++r) {
    const std::int64_t row = source_row(panel, r);
    rows[r] = row < 0 ? Located{nullptr, 0} : locate(row);
    if (rows[r].source != nullptr) unsigned_row(*rows[r].source, rows[r].row, q + r * columns);
  }
  const std::int64_t blocks = columns / block_;
  for (std::int64_t b = 0; b < blocks; ++b) {
    if (b % group_ == 0) out = write_scales(out, rows, b * block_);
    const std::uint8_t* first = q + b * block_;
    if (kind_ == WeightKind::kU8) {
      for (std::int64_t c = 0; c < block_; c += 4) {
        for (std::int64_t r = 0; r < kPanelRows; ++r, out += 4) std::memcpy(out, first + r * columns + c, 4);
      }
    } else {
      for (std::int64_t c = 0; c < block_; c += 8) {
        for (std::int64_t r = 0; r < kPanelRows; ++r, out += 4) {
          const std::uint8_t* in = first + r * columns + c;
          for (int j = 0; j < 4; ++j) out[j] = static_cast<std::byte>(in[j] | (in[j + 4] << 4));
        }
      }
    }
  }
}

// Scales and offsets of the 32 rows for the group that begins at `column`; returns the end.
std::byte* PackPlan::write_scales(std::byte* out, const Located* rows, std::int64_t column) const {
  const bool scale_f16 = scale_dtype_ == DType::kF16;
  const bool offset_f16 = offset_dtype_ == DType::kF16;
  std::byte* offsets = out + kPanelRows * (scale_f16 ? 2 : 4);
  for (std::int64_t r = 0; r < kPanelRows; ++r) {
    ScaleOffset value{0.0f, 0.0f};
    if (rows[r].source != nullptr && column < k_) value = scale_offset(*rows[r].source, rows[r].row, column, zero_);
    store_float(out, scale_f16, r, value.scale);
    if (has_offset_) store_float(offsets, offset_f16, r, value.offset);
  }
  return offsets + (has_offset_ ? kPanelRows * (offset_f16 ? 2 : 4) : 0);
}

void PackPlan::pack_float_panel(std::byte* out, std::int64_t panel, std::span<std::byte> scratch) const {
  const bool wide = kind_ == WeightKind::kF32;
  auto* values = reinterpret_cast<float*>(scratch.data());
  for (std::int64_t r = 0; r < kPanelRows; ++r) {
    const std::int64_t row = source_row(panel, r);
    const Located at = row < 0 ? Located{nullptr, 0} : locate(row);
    const bool computed = at.source != nullptr && (wide || at.source->block != 0);
    if (computed) dequantize_row(*at.source, at.row, values);
    for (std::int64_t c = 0; computed && c < k_; ++c) values[c] = rounded_to(at.source->rounded, values[c]);
    for (std::int64_t c = 0; c < k_; ++c) {
      if (wide) {
        store_float(out, false, c * kPanelRows + r, at.source == nullptr ? 0.0f : values[c]);
        continue;
      }
      std::uint16_t bits = 0;
      if (computed) {
        bits = kind_ == WeightKind::kF16 ? f32_to_f16(values[c]) : f32_to_bf16(values[c]);
      } else if (at.source != nullptr) {
        const MatrixSource& s = *at.source;
        const std::int64_t i = s.transposed ? c * s.n + at.row : at.row * s.k + c;
        const std::byte* from =
            s.table.empty() ? s.data.data() + 2 * i : s.table.data() + 2 * table_index(s, at.row, c);
        std::memcpy(&bits, from, 2);
      }
      std::memcpy(out + 2 * (c * kPanelRows + r), &bits, 2);
    }
  }
}

void pack(const PackPlan& plan, std::byte* out, const std::function<void(double)>& progress) {
  plan.write_header(out);
  const std::int64_t step = std::max<std::int64_t>(1, plan.panels() / 64);
  for (std::int64_t p = 0; p < plan.panels(); p += step) {
    plan.pack_panels(out, p, std::min(plan.panels(), p + step));
    if (progress) progress(static_cast<double>(std::min(plan.panels(), p + step)) / static_cast<double>(plan.panels()));
  }
}

PackedMatrix PackedMatrix::view(std::span<const std::byte> bytes, std::string_view where) {
  const auto malformed = [&](std::string what, std::uint64_t offset) {
    throw MalformedError(std::move(what), std::string(where), offset, "delete the cache entry; it is packed again");
  };
  PackedHeader h{};
  if (bytes.size() < sizeof(h)) malformed(fmt::format("{} bytes hold no packed matrix", bytes.size()), 0);
  std::memcpy(&h, bytes.data(), sizeof(h));
  if (h.magic != kPackedMagic || h.version != kPackedVersion) {
    malformed(fmt::format("packed matrix has magic {:#x} version {}", h.magic, h.version), 0);
  }
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % kPackAlignment != 0)
    malformed("packed matrix is not aligned", 0);
  constexpr std::int64_t kMaxExtent = std::int64_t{1} << 32;
  if (h.kind > static_cast<std::uint32_t>(WeightKind::kF32) || h.flags > 15 || h.n <= 0 || h.n > kMaxExtent ||
      h.k <= 0 || h.k > kMaxExtent) {
    malformed(fmt::format("packed matrix of kind {}, flags {:#x}, extents [{}, {}]", h.kind, h.flags, h.n, h.k), 8);
  }
  PackedMatrix result;
  result.kind_ = static_cast<WeightKind>(h.kind);
  result.gate_up_ = (h.flags & kPackedGateUp) != 0;
  result.scale_is_f16_ = (h.flags & kPackedScaleF16) != 0;
  result.has_offset_ = (h.flags & kPackedHasOffset) != 0;
  result.offset_is_f16_ = (h.flags & kPackedOffsetF16) != 0;
  result.n_ = h.n;
  result.k_ = h.k;
  if (result.gate_up_ && h.n % 2 != 0) malformed(fmt::format("gate and up matrix of {} rows", h.n), 16);
  std::uint64_t expected = 0;
  if (is_integer_kind(result.kind_)) {
    if ((h.block != kLeastIntegerBlock && h.block != kDigitBlock) || h.group <= 0 || h.zero < 0 || h.zero > 255) {
      malformed(fmt::format("packed matrix with blocks of {}, groups of {}, zero {}", h.block, h.group, h.zero), 32);
    }
    const std::int64_t blocks = round_up(h.k, kDigitBlock) / h.block;
    const std::int64_t groups = (blocks - 1) / h.group + 1;
    const std::int64_t head =
        (result.scale_is_f16_ ? 2 : 4) + (result.has_offset_ ? (result.offset_is_f16_ ? 2 : 4) : 0);
    expected = static_cast<std::uint64_t>(
        kPanelRows * (blocks * h.block / (result.kind_ == WeightKind::kU4 ? 2 : 1) + groups * head));
  } else {
    expected = static_cast<std::uint64_t>(kPanelRows * h.k) * (result.kind_ == WeightKind::kF32 ? 4 : 2);
  }
  const std::int64_t panels = result.units() * (result.gate_up_ ? 2 : 1);
  if (h.panel_bytes != expected || (bytes.size() - sizeof(h)) / expected < static_cast<std::uint64_t>(panels)) {
    malformed(fmt::format("{} panels of {} bytes (expected {}) do not fit {} bytes", panels, h.panel_bytes, expected,
                          bytes.size()),
              48);
  }
  result.block_ = h.block;
  result.group_ = h.group;
  result.zero_ = h.zero;
  result.panel_bytes_ = h.panel_bytes;
  result.panels_ = bytes.data() + sizeof(h);
  return result;
}

}  // namespace coreai::cpu
