// What `compression` asks for against what the weights are. Exporters record the request even when nothing was done.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include "bundle/audit_parts.h"
#include "coreai/base/ascii.h"

namespace coreai::audit {
namespace {

constexpr double kNothing = 0.05;  // of the weights: below, the request was not carried out
constexpr double kHalf = 0.5;
constexpr double kSome = 0.01;  // for the narrowest of several widths

bool digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

bool letter(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0;
}

// The number that starts at `at`; 0 when it is none that could be a width.
int number_at(std::string_view text, std::size_t at) {
  int value = 0;
  for (; at < text.size() && digit(text[at]) && value < 100; ++at) value = value * 10 + (text[at] - '0');
  return value <= 64 ? value : 0;
}

// Widths that ggml's block formats are stored with: 5- and 6-bit blocks as 8-bit integers.
int stored_width_of_ggml(int bits) {
  return bits <= 4 ? 4 : 8;
}

// What stands behind a width tells whether it is about weights: "8bit_kv_cache", "fp8_activations" are not.
bool about_weights(std::string_view rest) {
  rest.remove_prefix(std::min(rest.find_first_of("_- "), rest.size()));
  while (!rest.empty() && !letter(rest[0])) rest.remove_prefix(1);
  return !rest.starts_with("kv") && !rest.starts_with("activation");
}

// Bits per weight that a request's name speaks of: "4bit", "qwen_mixed_4bit_8bit", "int8", "fp8_weights", "Q4_1",
// "F16".
std::set<int> requested_bits(std::string_view request) {
  const std::string text = lower_case(request);
  static constexpr std::array<std::string_view, 8> kPrefixes = {"uint", "int", "float", "bfloat", "bf", "fp", "w", "f"};
  std::set<int> bits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!digit(text[i]) || (i > 0 && digit(text[i - 1]))) continue;
    const int width = number_at(text, i);
    std::size_t end = i;
    while (end < text.size() && digit(text[end])) ++end;
    const std::string_view rest = std::string_view(text).substr(end);
    std::size_t word = i;
    while (word > 0 && letter(text[word - 1])) --word;
    const std::string_view prefix = std::string_view(text).substr(word, i - word);
    const std::size_t unit = rest.find_first_not_of("-_ ");
    const bool named = unit != std::string_view::npos && rest.substr(unit).starts_with("bit") && prefix.empty();
    const bool ggml = (prefix == "q" || prefix == "iq") && (rest.empty() || rest.starts_with("_"));
    if (width == 0 || !about_weights(rest)) continue;
    if (named || std::ranges::find(kPrefixes, prefix) != kPrefixes.end()) bits.insert(width);
    if (ggml) bits.insert(stored_width_of_ggml(width));
  }
  return bits;
}

std::string percent(std::uint64_t part, std::uint64_t whole) {
  return fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

// "4-bit 96.1 %, 16-bit 3.9 %".
std::string distribution(const WeightMeasure& weights) {
  std::string text;
  for (const auto& [bits, count] : weights.elements_by_bits)
    text += fmt::format("{}{}-bit {}", text.empty() ? "" : ", ", bits, percent(count, weights.elements));
  return text;
}

void compare(const std::string& request, const WeightMeasure& weights, Findings& findings) {
  const std::filesystem::path file = findings.root() / "metadata.json";
  const std::set<int> bits = requested_bits(request);
  if (bits.empty()) {
    findings.add(AuditRule::kCompressionUnknown, file,
                 fmt::format("compression '{}' names no number of bits", excerpt(request)));
    return;
  }
  const auto share = [&](int width) {
    return static_cast<double>(weights.elements_of_at_most(width)) / static_cast<double>(weights.elements);
  };
  const std::string measured =
      fmt::format("{:.2f} bits per weight: {}", weights.bits_per_weight(), distribution(weights));
  if (share(*bits.rbegin()) < kNothing || share(*bits.begin()) < kSome) {
    findings.add(AuditRule::kCompressionNotAchieved, file,
                 fmt::format("compression asks for '{}', the weights have {}", excerpt(request), measured));
  } else if (share(*bits.rbegin()) < kHalf) {
    findings.add(AuditRule::kCompressionPartial, file,
                 fmt::format("compression asks for '{}', of the weights only {} have that: {}", excerpt(request),
                             percent(weights.elements_of_at_most(*bits.rbegin()), weights.elements), measured));
  }
}

}  // namespace

void audit_compression(const Json& root, const std::vector<LoadedAsset>& assets, Findings& findings) {
  WeightMeasure weights;
  for (const LoadedAsset& asset : assets) {
    if (!asset.report.loaded) return;  // the weights are not all known
    weights.add(asset.report.weights);
  }
  const auto found = root.find("compression");
  if (found == root.end()) return;
  const std::filesystem::path file = findings.root() / "metadata.json";
  if (!found->is_null() && !found->is_string()) {
    findings.add(AuditRule::kCompressionInvalid, file,
                 fmt::format("compression is {}, neither a string nor null",
                             excerpt(found->dump(-1, ' ', false, Json::error_handler_t::replace))));
    return;
  }
  if (weights.elements == 0) return;
  if (found->is_string() && *found != "none") return compare(found->get<std::string>(), weights, findings);
  if (weights.elements_of_at_most(8) > 0)
    findings.add(AuditRule::kCompressionUnrequested, file,
                 fmt::format("compression asks for none, the weights have {:.2f} bits each: {}",
                             weights.bits_per_weight(), distribution(weights)));
}

}  // namespace coreai::audit
