#include "coreai/base/utf8.h"

namespace coreai {

std::optional<std::uint32_t> next_code_point(std::string_view text, std::size_t& at) {
  if (at >= text.size()) return std::nullopt;
  const auto byte = [&](std::size_t i) -> std::uint32_t { return static_cast<unsigned char>(text[i]); };
  const std::uint32_t lead = byte(at);
  if (lead < 0x80) {
    ++at;
    return lead;
  }
  const std::size_t length = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  if (length == 0 || length > text.size() - at) return std::nullopt;
  std::uint32_t point = lead & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return std::nullopt;
    point = (point << 6) | (byte(at + i) & 0x3f);
  }
  const bool overlong = (length == 3 && point < 0x800) || (length == 4 && point < 0x10000);
  if (overlong || point > kMaxCodePoint || (point >= kFirstSurrogate && point <= kLastSurrogate)) return std::nullopt;
  at += length;
  return point;
}

std::optional<std::size_t> invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();)
    if (!next_code_point(text, at)) return at;
  return std::nullopt;
}

void append_utf8(std::uint32_t point, std::string& out) {
  const auto add = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
  const auto tail = [&](int shift) { add(0x80 | ((point >> shift) & 0x3f)); };
  if (point < 0x80) {
    add(point);
  } else if (point < 0x800) {
    add(0xc0 | (point >> 6));
    tail(0);
  } else if (point < 0x10000) {
    add(0xe0 | (point >> 12));
    tail(6);
    tail(0);
  } else {
    add(0xf0 | (point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace coreai
