#include "coreai/base/npy.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <string>

#include "coreai/base/error.h"
#include "coreai/base/mapped_file.h"

namespace coreai {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kAlignment = 64;  // the data starts at a multiple of it
constexpr std::size_t kMaxHeader = std::size_t{1} << 20;

struct TypeName {
  DType dtype;
  std::string_view name;
};
constexpr std::array<TypeName, 14> kTypes = {{{DType::kI1, "|b1"},
                                              {DType::kSI8, "|i1"},
                                              {DType::kUI8, "|u1"},
                                              {DType::kSI16, "<i2"},
                                              {DType::kUI16, "<u2"},
                                              {DType::kSI32, "<i4"},
                                              {DType::kUI32, "<u4"},
                                              {DType::kSI64, "<i8"},
                                              {DType::kUI64, "<u8"},
                                              {DType::kF16, "<f2"},
                                              {DType::kF32, "<f4"},
                                              {DType::kF64, "<f8"},
                                              {DType::kComplexF32, "<c8"},
                                              {DType::kComplexF64, "<c16"}}};

// Parses the header, a Python dictionary literal of three known keys.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& where, std::uint64_t offset)
      : text_(text), where_(where), offset_(offset) {}

  void parse() {
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr") {
        descr = quoted();
      } else if (key == "fortran_order") {
        fortran_order = boolean();
      } else if (key == "shape") {
        shape = tuple();
      } else {
        fail("unknown key '" + key + "'");
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    if (!descr || !fortran_order || !shape) fail("descr, fortran_order and shape are all needed");
  }

  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<std::int64_t>> shape;

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw MalformedError("the npy header is malformed: " + problem, where_, offset_ + at_);
  }
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool accept(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("'{}' is missing", c));
  }
  std::string quoted() {
    skip();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) fail("a string is missing");
    const std::size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) fail("a string does not end");
    std::string value(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return value;
  }
  bool boolean() {
    skip();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) == word) {
        at_ += word.size();
        return value;
      }
    }
    fail("True or False is missing");
  }
  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> values;
    expect('(');
    while (!accept(')')) {
      std::int64_t value = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
      if (error != std::errc{} || value < 0) fail("an extent is no number");
      if (values.size() >= 64) fail("more than 64 axes");
      at_ = static_cast<std::size_t>(end - text_.data());
      values.push_back(value);
      if (!accept(',')) {
        expect(')');
        break;
      }
      skip();
    }
    return values;
  }

  std::string_view text_;
  const std::string& where_;
  std::uint64_t offset_;
  std::size_t at_ = 0;
};

DType dtype_of(const std::string& descr, const std::string& where) {
  for (const TypeName& type : kTypes) {
    if (descr == type.name ||
        (descr.size() == 3 && descr[0] == '<' && type.name[0] == '|' && descr.substr(1) == type.name.substr(1))) {
      return type.dtype;
    }
  }
  throw UnsupportedError(fmt::format("npy data of type '{}' cannot be read", descr), where,
                         "Save it little-endian as bool, an integer, f2, f4, f8, c8 or c16");
}

}  // namespace

NDArray parse_npy(std::span<const std::byte> bytes, const std::string& where) {
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  if (bytes.size() < 10 || std::string_view(text, kMagic.size()) != kMagic) {
    throw MalformedError("this is no npy file: the magic bytes are missing", where, 0, "Save it with numpy.save");
  }
  const auto major = static_cast<unsigned>(bytes[6]);
  if (major < 1 || major > 3 || bytes[7] != std::byte{0}) {
    throw UnsupportedError(fmt::format("npy version {}.{} is unknown", major, static_cast<unsigned>(bytes[7])), where);
  }
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  if (bytes.size() < 8 + length_bytes) throw MalformedError("the npy header is cut off", where, bytes.size());
  std::size_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) length |= static_cast<std::size_t>(bytes[8 + i]) << (8 * i);
  const std::size_t begin = 8 + length_bytes;
  if (length > kMaxHeader || length > bytes.size() - begin) {
    throw MalformedError(fmt::format("the npy header of {} bytes is cut off", length), where, bytes.size());
  }
  HeaderParser header(std::string_view(text + begin, length), where, begin);
  header.parse();
  if (*header.fortran_order && header.shape->size() > 1) {
    throw UnsupportedError("the array is in Fortran order", where, "Save numpy.ascontiguousarray(x)");
  }
  const DType dtype = dtype_of(*header.descr, where);
  const Shape shape(*header.shape);
  const auto count = static_cast<std::uint64_t>(shape.element_count());
  const std::span<const std::byte> data = bytes.subspan(begin + length);
  const auto wanted = checked_mul(count, static_cast<std::uint64_t>(dtype_bits(dtype)) / 8);
  if (!wanted || *wanted != data.size()) {
    throw MalformedError(fmt::format("an array of [{}] does not fit {} bytes of data", shape.to_string(), data.size()),
                         where, begin + length);
  }
  NDArray array(dtype, shape);
  array.assign(data);
  if (dtype == DType::kI1) {
    for (std::byte& value : array.mutable_bytes()) value = value == std::byte{0} ? std::byte{0} : std::byte{1};
  }
  return array;
}

NDArray read_npy(const std::filesystem::path& path) {
  return parse_npy(MappedFile::open(path)->bytes(), path.string());
}

namespace {

// The same values in a dtype that NumPy has.
NDArray numpy_form(const NDArray& array) {
  for (const TypeName& type : kTypes) {
    if (type.dtype == array.dtype()) return array;
  }
  DType to = DType::kF32;
  if (is_integer(array.dtype())) to = dtype_class(array.dtype()) == DTypeClass::kSigned ? DType::kSI8 : DType::kUI8;
  std::vector<double> values(static_cast<std::size_t>(array.element_count()));
  read_as_f64(array, values);
  NDArray converted(to, array.shape());
  write_from_f64(converted, values);
  return converted;
}

}  // namespace

std::vector<std::byte> format_npy(const NDArray& array) {
  const NDArray data = numpy_form(array);
  std::string_view descr;
  for (const TypeName& type : kTypes) {
    if (type.dtype == data.dtype()) descr = type.name;
  }
  std::string shape = fmt::format("{}", fmt::join(data.shape().dims(), ", "));
  if (data.shape().rank() == 1) shape += ",";
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, shape);
  const std::size_t unpadded = 10 + header.size() + 1;
  header.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  header += '\n';
  std::vector<std::byte> out;
  const auto append = [&out](std::string_view text) {
    const auto* from = reinterpret_cast<const std::byte*>(text.data());
    out.insert(out.end(), from, from + text.size());
  };
  append(kMagic);
  append(std::string_view("\x01\x00", 2));
  out.push_back(static_cast<std::byte>(header.size() & 0xffu));
  out.push_back(static_cast<std::byte>(header.size() >> 8));
  append(header);
  out.insert(out.end(), data.bytes().begin(), data.bytes().end());
  return out;
}

void write_npy(const std::filesystem::path& path, const NDArray& array) {
  const std::vector<std::byte> bytes = format_npy(array);
  write_file_atomically(path, std::span<const std::byte>(bytes));
}

}  // namespace coreai
