#include "grammar/code_points.h"

#include <algorithm>

namespace coreai::grammar {
namespace {

// A range whose members have equally many bytes, cut until each byte of a piece runs through one range of its own.
void append_range(ExpressionPool& pool, std::uint32_t first, std::uint32_t last, std::vector<ExprId>& out) {
  std::string low, high;
  append_utf8(first, low);
  append_utf8(last, high);
  for (std::size_t tail = 1; tail < low.size(); ++tail) {
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
  for (std::size_t i = low.size(); i-- > 0;) {
    const ByteSet bytes = ByteSet::range(static_cast<std::uint8_t>(low[i]), static_cast<std::uint8_t>(high[i]));
    sequence = pool.concat(pool.bytes(bytes), sequence);
  }
  out.push_back(sequence);
}

}  // namespace

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
