#include "grammar/code_points.h"

#include <algorithm>

namespace coreai::grammar {
namespace {

constexpr std::uint32_t kFirstSurrogate = 0xd800, kLastSurrogate = 0xdfff;

int utf8_bytes(std::uint32_t point, std::array<std::uint8_t, 4>& out) {
  const auto tail = [&](int shift) { return static_cast<std::uint8_t>(0x80 | ((point >> shift) & 0x3f)); };
  if (point < 0x80) {
    out = {static_cast<std::uint8_t>(point)};
    return 1;
  }
  if (point < 0x800) {
    out = {static_cast<std::uint8_t>(0xc0 | (point >> 6)), tail(0)};
    return 2;
  }
  if (point < 0x10000) {
    out = {static_cast<std::uint8_t>(0xe0 | (point >> 12)), tail(6), tail(0)};
    return 3;
  }
  out = {static_cast<std::uint8_t>(0xf0 | (point >> 18)), tail(12), tail(6), tail(0)};
  return 4;
}

// A range whose members have equally many bytes, cut until each byte of a piece runs through one range of its own.
void append_range(ExpressionPool& pool, std::uint32_t first, std::uint32_t last, std::vector<ExprId>& out) {
  std::array<std::uint8_t, 4> low{}, high{};
  const int length = utf8_bytes(first, low);
  utf8_bytes(last, high);
  for (int tail = 1; tail < length; ++tail) {
    const std::uint32_t mask = (std::uint32_t{1} << (6 * tail)) - 1;
    if ((first & ~mask) == (last & ~mask)) continue;
    if ((first & mask) != 0) {
      append_range(pool, first, first | mask, out);
      append_range(pool, (first | mask) + 1, last, out);
      return;
    }
    if ((last & mask) != mask) {
      append_range(pool, first, (last & ~mask) - 1, out);
      append_range(pool, last & ~mask, last, out);
      return;
    }
  }
  ExprId sequence = kEmptyString;
  for (int i = length; i-- > 0;) sequence = pool.concat(pool.bytes(ByteSet::range(low[i], high[i])), sequence);
  out.push_back(sequence);
}

}  // namespace

// Unicode 15, table 3-7: no overlong forms, no surrogates.
std::optional<std::uint32_t> next_code_point(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (at >= text.size()) return std::nullopt;
  const std::uint32_t lead = byte(at);
  const std::size_t length = lead < 0x80   ? 1
                             : lead < 0xc2 ? 0
                             : lead < 0xe0 ? 2
                             : lead < 0xf0 ? 3
                             : lead < 0xf5 ? 4
                                           : 0;
  if (length == 0 || at + length > text.size()) return std::nullopt;
  std::uint32_t point = length == 1 ? lead : lead & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return std::nullopt;
    point = (point << 6) | (byte(at + i) & 0x3fu);
  }
  std::array<std::uint8_t, 4> shortest{};
  if (point > kMaxCodePoint || (point >= kFirstSurrogate && point <= kLastSurrogate) ||
      utf8_bytes(point, shortest) != static_cast<int>(length))
    return std::nullopt;
  at += length;
  return point;
}

void append_utf8(std::uint32_t point, std::string& out) {
  std::array<std::uint8_t, 4> bytes{};
  const int length = utf8_bytes(point, bytes);
  out.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(length));
}

void CodePointSet::insert(std::uint32_t first, std::uint32_t last) {
  last = std::min(last, kMaxCodePoint);
  if (first > last) return;
  if (first < kFirstSurrogate && last > kLastSurrogate) {
    insert(first, kFirstSurrogate - 1);
    insert(kLastSurrogate + 1, last);
    return;
  }
  if (first >= kFirstSurrogate && first <= kLastSurrogate) first = kLastSurrogate + 1;
  if (last >= kFirstSurrogate && last <= kLastSurrogate) last = kFirstSurrogate - 1;
  if (first > last) return;
  // Those that it overlaps or touches become one with it.
  auto from = std::ranges::lower_bound(ranges_, first == 0 ? 0 : first - 1, {}, &CodePointRange::last);
  auto to = from;
  for (; to != ranges_.end() && to->first <= last + 1; ++to) {
    first = std::min(first, to->first);
    last = std::max(last, to->last);
  }
  from = ranges_.erase(from, to);
  ranges_.insert(from, {first, last});
}

void CodePointSet::insert(const CodePointSet& other) {
  for (const CodePointRange& range : other.ranges_) insert(range.first, range.last);
}

CodePointSet CodePointSet::complement() const {
  CodePointSet out;
  std::uint32_t next = 0;
  for (const CodePointRange& range : ranges_) {
    if (range.first > next) out.insert(next, range.first - 1);
    next = range.last + 1;
  }
  out.insert(next, kMaxCodePoint);
  return out;
}

CodePointSet CodePointSet::without(const CodePointSet& other) const {
  CodePointSet outside = complement();
  outside.insert(other);
  return outside.complement();
}

ExprId utf8_expression(ExpressionPool& pool, const CodePointSet& set) {
  std::vector<ExprId> choices;
  for (const CodePointRange& range : set.ranges()) {
    std::uint32_t first = range.first;
    for (const std::uint32_t limit : {0x7fu, 0x7ffu, 0xffffu, kMaxCodePoint}) {
      if (first > limit || first > range.last) continue;
      append_range(pool, first, std::min(range.last, limit), choices);
      first = limit + 1;
    }
  }
  return pool.any_of(choices);
}

}  // namespace coreai::grammar
