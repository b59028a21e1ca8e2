#include "ir/number_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "coreai/base/error.h"
#include "coreai/base/float_types.h"

namespace coreai::ir {
namespace {

// What decimal formatting needs to know of a float format.
struct FloatFormat {
  int precision;  // bits of the significand, the implied one included
  double (*widen)(std::uint64_t bits);
  std::uint64_t (*parse)(const char* text);  // nearest value's bits
};

double widen_f32(std::uint64_t bits) {
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
}
template <float (*Convert)(std::uint8_t)>
double widen_byte(std::uint64_t bits) {
  return static_cast<double>(Convert(static_cast<std::uint8_t>(bits)));
}
template <std::uint8_t (*Convert)(float)>
std::uint64_t parse_byte(const char* text) {
  return Convert(std::strtof(text, nullptr));
}
double widen_e8m0(std::uint64_t bits) {
  return bits == 0xff ? std::nan("") : std::ldexp(1.0, static_cast<int>(bits) - 127);
}

FloatFormat float_format(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return {53, [](std::uint64_t b) { return std::bit_cast<double>(b); },
              [](const char* t) { return std::bit_cast<std::uint64_t>(std::strtod(t, nullptr)); }};
    case DType::kF32:
      return {24, widen_f32, [](const char* t) {
                return static_cast<std::uint64_t>(std::bit_cast<std::uint32_t>(std::strtof(t, nullptr)));
              }};
    case DType::kTF32:
      return {11, widen_f32, [](const char* t) {
                return static_cast<std::uint64_t>(std::bit_cast<std::uint32_t>(std::strtof(t, nullptr)));
              }};
    case DType::kF16:
      return {11, [](std::uint64_t b) { return static_cast<double>(f16_to_f32(static_cast<std::uint16_t>(b))); },
              [](const char* t) { return static_cast<std::uint64_t>(f64_to_f16(std::strtod(t, nullptr))); }};
    case DType::kBF16:
      return {8, [](std::uint64_t b) { return static_cast<double>(bf16_to_f32(static_cast<std::uint16_t>(b))); },
              [](const char* t) { return static_cast<std::uint64_t>(f64_to_bf16(std::strtod(t, nullptr))); }};
    case DType::kF8E5M2:
      return {3, widen_byte<f8e5m2_to_f32>, parse_byte<f32_to_f8e5m2>};
    case DType::kF8E4M3FN:
      return {4, widen_byte<f8e4m3fn_to_f32>, parse_byte<f32_to_f8e4m3fn>};
    case DType::kF4E2M1FN:
      return {2, widen_byte<f4e2m1fn_to_f32>, parse_byte<f32_to_f4e2m1fn>};
    case DType::kF8E8M0FNU:
      return {1, widen_e8m0, parse_byte<f32_to_f8e8m0fnu>};
    default:
      throw InternalError(fmt::format("{} is no float format", dtype_name(dtype)));
  }
}

// An unsigned integer of any size, lowest 32 bits first.
class BigUint {
 public:
  explicit BigUint(std::uint64_t value) {
    for (; value != 0; value >>= 32) limbs_.push_back(static_cast<std::uint32_t>(value));
  }
  void multiply(std::uint32_t factor) {
    std::uint64_t carry = 0;
    for (std::uint32_t& limb : limbs_) {
      carry += std::uint64_t{limb} * factor;
      limb = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0) limbs_.push_back(static_cast<std::uint32_t>(carry));
  }
  int bit_length() const {
    return limbs_.empty() ? 0 : static_cast<int>(32 * (limbs_.size() - 1)) + std::bit_width(limbs_.back());
  }
  // Decimal digits, highest first.
  std::string digits() const {
    std::vector<std::uint32_t> rest = limbs_;
    std::string reversed;
    while (!rest.empty()) {
      std::uint64_t remainder = 0;
      for (std::size_t i = rest.size(); i-- > 0;) {
        remainder = remainder << 32 | rest[i];
        rest[i] = static_cast<std::uint32_t>(remainder / kChunk);
        remainder %= kChunk;
      }
      while (!rest.empty() && rest.back() == 0) rest.pop_back();
      for (int i = 0; i < 9 && (remainder != 0 || !rest.empty()); ++i, remainder /= 10) {
        reversed += static_cast<char>('0' + remainder % 10);
      }
    }
    return {reversed.rbegin(), reversed.rend()};
  }

 private:
  static constexpr std::uint64_t kChunk = 1'000'000'000;
  std::vector<std::uint32_t> limbs_;
};

// value = 0.d1d2d3... x 10^(exponent + number of digits): an integer of these digits, times 10^exponent.
struct Decimal {
  std::string digits;  // no trailing zeros
  int exponent = 0;
};

void strip_zeros(Decimal& value) {
  while (value.digits.size() > 1 && value.digits.back() == '0') {
    value.digits.pop_back();
    ++value.exponent;
  }
}

// A positive finite double, rounded to `precision` digits the way LLVM's APFloat::toString does: the exact integer is
// first cut (not rounded) to about as many bits as the digits need, then rounded half up.
Decimal to_decimal(double value, int precision) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  auto significand = static_cast<std::uint64_t>(std::ldexp(fraction, 53));
  exponent -= 53;
  const int zeros = std::countr_zero(significand);
  significand >>= zeros;
  exponent += zeros;
  BigUint integer(significand);
  Decimal result;
  for (; exponent > 0; --exponent) integer.multiply(2);
  if (exponent < 0) {
    result.exponent = exponent;  // N / 2^e = N * 5^e / 10^e
    for (; exponent < 0; ++exponent) integer.multiply(5);
  }
  result.digits = integer.digits();
  const int needed_bits = (precision * 196 + 58) / 59;  // 196/59 is just above log2(10)
  const int cut = std::max(0, integer.bit_length() - needed_bits) * 59 / 196;
  result.digits.resize(result.digits.size() - static_cast<std::size_t>(cut));
  result.exponent += cut;
  strip_zeros(result);
  const auto keep = static_cast<std::size_t>(precision);
  if (result.digits.size() <= keep) return result;
  const bool up = result.digits[keep] >= '5';
  result.exponent += static_cast<int>(result.digits.size() - keep);
  result.digits.resize(keep);
  if (up) {
    std::size_t at = keep;
    while (at > 0 && result.digits[at - 1] == '9') result.digits[--at] = '0';
    if (at > 0) {
      ++result.digits[at - 1];
    } else {
      result.digits.insert(0, 1, '1');
    }
  }
  strip_zeros(result);
  return result;
}

// "d.dddddde+XX", six digits behind the point.
std::string short_scientific(double magnitude) {
  if (magnitude == 0) return "0.000000e+00";
  const Decimal value = to_decimal(magnitude, 6);
  std::string text = value.digits.substr(0, 1) + "." + value.digits.substr(1);
  text.resize(8, '0');
  const int exponent = value.exponent + static_cast<int>(value.digits.size()) - 1;
  return text + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
}

// As many digits as the format can need; plain where at most three zeros of padding do, else scientific.
std::string long_decimal(double magnitude, int format_precision) {
  const int precision = 2 + format_precision * 59 / 196;
  const Decimal value = to_decimal(magnitude, precision);
  const int count = static_cast<int>(value.digits.size());
  const int leading = value.exponent + count - 1;  // power of ten of the first digit
  constexpr int kMaxPadding = 3;
  const bool scientific = value.exponent >= 0 ? value.exponent > kMaxPadding || count + value.exponent > precision
                                              : leading < 0 && -leading > kMaxPadding;
  if (scientific) {
    const std::string fraction = count == 1 ? "0" : value.digits.substr(1);
    return fmt::format("{}.{}E{}{}", value.digits[0], fraction, leading < 0 ? '-' : '+', std::abs(leading));
  }
  if (value.exponent >= 0) return value.digits + std::string(static_cast<std::size_t>(value.exponent), '0');
  if (leading < 0) return "0." + std::string(static_cast<std::size_t>(-leading - 1), '0') + value.digits;
  const auto whole = static_cast<std::size_t>(leading + 1);
  return value.digits.substr(0, whole) + "." + value.digits.substr(whole);
}

std::uint64_t element_bits(std::span<const std::byte> bytes, int width, std::uint64_t index) {
  std::uint64_t value = 0;
  const std::uint64_t first = index * static_cast<std::uint64_t>(width);
  if (width >= 8) {
    for (int i = 0; i < width / 8; ++i) {
      value |= std::to_integer<std::uint64_t>(bytes[first / 8 + static_cast<std::uint64_t>(i)]) << (8 * i);
    }
    return value;
  }
  for (int i = 0; i < width; ++i) {
    const std::uint64_t at = first + static_cast<std::uint64_t>(i);
    value |= (std::to_integer<std::uint64_t>(bytes[at / 8]) >> (at % 8) & 1u) << i;
  }
  return value;
}

DType complex_part(DType dtype) {
  const std::string_view name = dtype_name(dtype);  // complex<f32>
  return dtype_from_name(name.substr(8, name.size() - 9)).value();
}

}  // namespace

std::string float_text(DType dtype, std::uint64_t bits) {
  const FloatFormat format = float_format(dtype);
  const double value = format.widen(bits);
  const std::string hex = fmt::format("0x{:X}", bits);
  if (!std::isfinite(value)) return hex;
  const std::string sign = std::signbit(value) ? "-" : "";
  const std::string short_form = sign + short_scientific(std::fabs(value));
  if (format.parse(short_form.c_str()) == bits) return short_form;
  const std::string long_form = sign + long_decimal(std::fabs(value), format.precision);
  return long_form.find('.') == std::string::npos ? hex : long_form;
}

std::string element_text(const NDArray& array, std::int64_t index) {
  const DType dtype = array.dtype();
  const auto at = static_cast<std::uint64_t>(index);
  if (is_complex(dtype)) {
    const DType part = complex_part(dtype);
    const int width = dtype_bits(part);
    return fmt::format("({},{})", float_text(part, element_bits(array.bytes(), width, 2 * at)),
                       float_text(part, element_bits(array.bytes(), width, 2 * at + 1)));
  }
  const int width = dtype_bits(dtype);
  const std::uint64_t bits = element_bits(array.bytes(), width, at);
  if (dtype == DType::kI1 || dtype == DType::kUI1) return (bits & 1u) != 0 ? "true" : "false";
  if (is_float(dtype)) return float_text(dtype, bits);
  return integer_text(std::span(&bits, 1), static_cast<std::uint64_t>(width),
                      dtype_class(dtype) == DTypeClass::kUnsigned);
}

std::string integer_text(std::span<const std::uint64_t> words, std::uint64_t width, bool is_unsigned) {
  std::vector<std::uint64_t> value(words.begin(), words.end());
  width = std::min<std::uint64_t>(width, 64 * value.size());
  value.resize((width + 63) / 64);
  if (value.empty()) return "0";
  constexpr std::size_t kMaxDecimalWords = 64;  // longer ones would take quadratic time
  if (value.size() > kMaxDecimalWords) return fmt::format("0x{:X}...", value.back());
  const std::uint64_t top_bits = width - 64 * (value.size() - 1);
  const std::uint64_t mask = top_bits >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << top_bits) - 1;
  value.back() &= mask;
  const bool negative = !is_unsigned && (value.back() >> (top_bits - 1) & 1u) != 0;
  if (negative) {
    bool carry = true;  // two's complement
    for (std::uint64_t& word : value) {
      word = ~word + (carry ? 1 : 0);
      carry = carry && word == 0;
    }
    value.back() &= mask;
  }
  std::string reversed;
  while (!value.empty()) {
    std::uint64_t remainder = 0;
    for (std::size_t i = value.size(); i-- > 0;) {
      for (const int half : {32, 0}) {
        const std::uint64_t part = remainder << 32 | (value[i] >> half & 0xffffffffu);
        remainder = part % 10;
        value[i] = (value[i] & ~(std::uint64_t{0xffffffffu} << half)) | (part / 10) << half;
      }
    }
    reversed += static_cast<char>('0' + remainder);
    while (!value.empty() && value.back() == 0) value.pop_back();
  }
  if (negative) reversed += '-';
  return {reversed.rbegin(), reversed.rend()};
}

std::string hex_text(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<std::size_t>(byte >> 4)];
    text += kDigits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
  return text;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c >= 0x20 && c < 0x7f && c != '"') {
      out += c;
    } else {
      out += fmt::format("\\{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::string identifier_text(std::string_view text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto is_part = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '$' || c == '.'; };
  bool bare = !text.empty() && is_letter(text[0]);
  for (const char c : text) bare = bare && is_part(c);
  return bare ? std::string(text) : fmt::format("\"{}\"", escaped(text));
}

}  // namespace coreai::ir
