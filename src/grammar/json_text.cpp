#include "grammar/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "grammar/json_number.h"

namespace coreai::grammar {
namespace {

struct ShortEscape {
  std::uint32_t point;
  char letter;
};
constexpr std::array<ShortEscape, 8> kShortEscapes{
    {{'"', '"'}, {'\\', '\\'}, {'/', '/'}, {8, 'b'}, {12, 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}}};

std::vector<std::uint32_t> code_points(std::string_view text) {
  std::vector<std::uint32_t> out;
  for (std::size_t at = 0; at < text.size();) {
    const auto point = next_code_point(text, at);
    if (!point) break;  // callers checked it
    out.push_back(*point);
  }
  return out;
}

bool contains(const CodePointSet& set, std::uint32_t point) {
  for (const CodePointRange& range : set.ranges())
    if (point >= range.first && point <= range.last) return true;
  return false;
}

ByteSet hex_digits(std::uint32_t first, std::uint32_t last) {
  ByteSet set;
  for (std::uint32_t digit = first; digit <= last; ++digit) {
    const auto letter = static_cast<std::uint8_t>(digit < 10 ? '0' + digit : 'a' + digit - 10);
    set.insert(letter);
    if (digit >= 10) set.insert(static_cast<std::uint8_t>(letter - 'a' + 'A'));
  }
  return set;
}

// `digits` hexadecimal digits from first to last, cut until each digit runs through one range of its own.
ExprId hex_range(ExpressionPool& pool, std::uint32_t first, std::uint32_t last, int digits) {
  if (digits == 0) return kEmptyString;
  const int shift = 4 * (digits - 1);
  const std::uint32_t mask = (std::uint32_t{1} << shift) - 1;
  const std::uint32_t low = first >> shift, high = last >> shift;
  const auto from = [&](std::uint32_t lead_first, std::uint32_t lead_last, std::uint32_t a, std::uint32_t b) {
    return pool.concat(pool.bytes(hex_digits(lead_first, lead_last)), hex_range(pool, a, b, digits - 1));
  };
  if (low == high) return from(low, low, first & mask, last & mask);
  std::vector<ExprId> choices{from(low, low, first & mask, mask), from(high, high, 0, last & mask)};
  if (low + 1 < high) choices.push_back(from(low + 1, high - 1, 0, mask));
  return pool.any_of(choices);
}

// Code points above U+FFFF as two surrogates of ten bits each.
void append_pairs(ExpressionPool& pool, std::uint32_t first, std::uint32_t last, std::vector<ExprId>& out) {
  const auto pair = [&](std::uint32_t high_first, std::uint32_t high_last, std::uint32_t low_first,
                        std::uint32_t low_last) {
    if (high_first > high_last) return;
    out.push_back(pool.concat({pool.literal("\\u"), hex_range(pool, 0xd800 + high_first, 0xd800 + high_last, 4),
                               pool.literal("\\u"), hex_range(pool, 0xdc00 + low_first, 0xdc00 + low_last, 4)}));
  };
  first -= 0x10000;
  last -= 0x10000;
  const std::uint32_t low = first >> 10, high = last >> 10;
  if (low == high) return pair(low, low, first & 0x3ff, last & 0x3ff);
  pair(low, low, first & 0x3ff, 0x3ff);
  pair(low + 1, high - 1, 0, 0x3ff);
  pair(high, high, 0, last & 0x3ff);
}

ExprId encode_ranges(ExpressionPool& pool, const CodePointSet& set) {
  std::vector<ExprId> choices{utf8_expression(pool, set.without({{0, 0x1f}, {'"', '"'}, {'\\', '\\'}}))};
  ByteSet letters;
  for (const ShortEscape& escape : kShortEscapes)
    if (contains(set, escape.point)) letters.insert(static_cast<std::uint8_t>(escape.letter));
  choices.push_back(pool.concat(pool.literal("\\"), pool.bytes(letters)));
  for (const CodePointRange& range : set.ranges()) {
    if (range.first <= 0xffff)
      choices.push_back(
          pool.concat(pool.literal("\\u"), hex_range(pool, range.first, std::min(range.last, 0xffffu), 4)));
    if (range.last > 0xffff) append_pairs(pool, std::max(range.first, 0x10000u), range.last, choices);
  }
  return pool.any_of(choices);
}

constexpr std::uint64_t kOneCharacter = std::uint64_t{1} << 32, kAllCharacters = std::uint64_t{2} << 32;

ExprId encode_one(ExpressionPool& pool, std::uint32_t point) {
  return pool.once(kOneCharacter | point, [&] { return encode_ranges(pool, {{point, point}}); });
}

}  // namespace

ExprId JsonStringEncoder::encode(ExpressionPool& pool, const CodePointSet& set) const {
  const auto& ranges = set.ranges();
  if (ranges.size() == 1 && ranges[0].first == ranges[0].last) return encode_one(pool, ranges[0].first);
  if (set == CodePointSet::all()) return pool.once(kAllCharacters, [&] { return encode_ranges(pool, set); });
  return encode_ranges(pool, set);
}

ExprId json_string(ExpressionPool& pool, ExprId body) {
  const ExprId quote = pool.literal("\"");
  return pool.concat({quote, body, quote});
}

std::string json_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const auto known = std::ranges::find(kShortEscapes, byte, &ShortEscape::point);
    if (known != kShortEscapes.end() && c != '/')
      out += {'\\', known->letter};
    else if (byte < 0x20)
      out += fmt::format("\\u{:04x}", byte);
    else
      out += c;
  }
  return out;
}

ExprId json_string_body(ExpressionPool& pool, std::string_view text) {
  return json_string_bodies(pool, {text});
}

ExprId json_string_bodies(ExpressionPool& pool, const std::vector<std::string_view>& texts) {
  std::vector<std::vector<std::uint32_t>> points;
  points.reserve(texts.size());
  for (const std::string_view text : texts) points.push_back(code_points(text));
  return pool.any_sequence(std::move(points), [&](std::uint32_t point) { return encode_one(pool, point); });
}

std::unique_ptr<ExpressionPool> new_json_pool(std::size_t max_nodes, std::size_t max_search) {
  static const ExpressionPool prototype = [] {
    ExpressionPool pool;
    pool.repeat(JsonStringEncoder().encode(pool, CodePointSet::all()), 0);
    number_expression(pool, any_number(pool));
    for (std::uint32_t point = ' '; point < 0x7f; ++point) encode_one(pool, point);
    return pool;
  }();
  return std::make_unique<ExpressionPool>(prototype, max_nodes, max_search);
}

ExprId json_blank(ExpressionPool& pool) {
  return pool.any_literal({" ", "\t", "\n", "\r"});
}

ExprId json_value(ExpressionPool& pool, JsonRoot root, ExprId space) {
  const ExprId value = pool.rule(false);
  const ExprId string = json_string(pool, pool.repeat(JsonStringEncoder().encode(pool, CodePointSet::all()), 0));
  const auto literal = [&](std::string_view text) { return pool.literal(text); };
  // Empty, or items with commas; white space before the closing bracket comes once, whether there are items or not.
  const auto bracketed = [&](std::string_view open, ExprId item, std::string_view close) {
    const ExprId more = pool.repeat(pool.concat({space, literal(","), space, item}), 0);
    const ExprId items = pool.concat({item, more, space, literal(close)});
    return pool.concat({literal(open), space, pool.any_of({literal(close), items})});
  };
  const ExprId object = bracketed("{", pool.concat({string, space, literal(":"), space, value}), "}");
  const ExprId array = bracketed("[", value, "]");
  pool.define(value, pool.any_of({object, array, string, number_expression(pool, any_number(pool)), literal("true"),
                                  literal("false"), literal("null")}));
  return root == JsonRoot::kAny ? value : root == JsonRoot::kObject ? object : array;
}

}  // namespace coreai::grammar
