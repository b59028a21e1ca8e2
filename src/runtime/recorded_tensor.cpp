#include "runtime/recorded_tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "coreai/base/error.h"

namespace coreai::detail {
namespace {

constexpr std::uint64_t kMaxZeros = std::uint64_t{1} << 36;  // bytes that "init" may ask for

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

void TensorReader::fail(const std::string& problem, const std::string& where) const {
  throw MalformedError(problem, where.empty() ? file_.string() : fmt::format("{}: {}", file_.string(), where), 0,
                       "docs/recorded-calls.md describes the format");
}

std::string TensorReader::text(const Json& object, const char* key, const std::string& fallback) const {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return fallback;
  if (!found->is_string()) fail(fmt::format("\"{}\" is no string", key));
  return found->get<std::string>();
}

double TensorReader::number(const Json& object, const char* key) const {
  const auto found = object.find(key);
  if (found == object.end()) return 0;
  if (!found->is_number()) fail(fmt::format("\"{}\" is no number", key));
  const double value = found->get<double>();
  if (!(value >= 0)) fail(fmt::format("\"{}\" is {}, it must not be negative", key, value));
  return value;
}

const Json& TensorReader::list(const Json& object, const char* key) const {
  static const Json kEmpty = Json::array();
  const auto found = object.find(key);
  if (found == object.end()) return kEmpty;
  if (!found->is_array()) fail(fmt::format("\"{}\" is no list", key));
  for (const Json& item : *found) {
    if (!item.is_object()) fail(fmt::format("an element of \"{}\" is no object", key));
  }
  return *found;
}

std::span<const std::byte> TensorReader::side_file(const std::string& name) {
  auto& mapped = side_files_[name];
  if (!mapped) {
    const std::filesystem::path path(name);
    if (path.is_absolute() || std::find(path.begin(), path.end(), "..") != path.end()) {
      fail(fmt::format("the side file \"{}\" lies outside the folder", name));
    }
    mapped = MappedFile::open(file_.parent_path() / path);
  }
  return mapped->bytes();
}

NDArray TensorReader::from_bytes(DType dtype, const Shape& shape, std::span<const std::byte> bytes,
                                 const std::string& name) const {
  const std::uint64_t wanted = dtype_bytes(dtype, static_cast<std::uint64_t>(shape.element_count()));
  if (bytes.size() != wanted) {
    fail(fmt::format("{} bytes of data for [{}]{}, which takes {}", bytes.size(), shape.to_string(), dtype_name(dtype),
                     wanted),
         name);
  }
  if (dtype == DType::kI1 && std::any_of(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; })) {
    fail("a boolean is neither 0 nor 1", name);
  }
  NDArray array(dtype, shape);
  array.assign(bytes);
  return array;
}

NDArray TensorReader::read(const Json& tensor) {
  const std::string name = text(tensor, "name", "unnamed tensor");
  const std::string dtype_text = text(tensor, "dtype", "");
  const std::optional<DType> dtype = dtype_from_name(dtype_text);
  if (!dtype) fail(fmt::format("unknown dtype \"{}\"", dtype_text), name);
  const auto shape_json = tensor.find("shape");
  if (shape_json == tensor.end() || !shape_json->is_array()) fail("the shape is missing", name);
  std::vector<std::int64_t> dims;
  for (const Json& dim : *shape_json) {
    if (!dim.is_number_integer() || dim.get<std::int64_t>() < 0) fail("an extent is no number", name);
    dims.push_back(dim.get<std::int64_t>());
  }
  const Shape shape(dims);
  const auto count = static_cast<std::uint64_t>(shape.element_count());
  if (count > std::numeric_limits<std::uint64_t>::max() / 256) fail("the shape is too large", name);
  if (tensor.contains("data")) {
    const std::string hex = text(tensor, "data", "");
    if (hex.size() % 2 != 0) fail("the hex data has an odd number of digits", name);
    std::vector<std::byte> bytes(hex.size() / 2);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const int high = hex_digit(hex[2 * i]);
      const int low = hex_digit(hex[2 * i + 1]);
      if (high < 0 || low < 0) fail("the data is not lower-case hex", name);
      bytes[i] = static_cast<std::byte>(high * 16 + low);
    }
    return from_bytes(*dtype, shape, bytes, name);
  }
  if (tensor.contains("file")) {
    const std::span<const std::byte> all = side_file(text(tensor, "file", ""));
    const double offset = number(tensor, "offset");
    const double size = number(tensor, "bytes");
    const auto available = static_cast<double>(all.size());
    if (offset > available || size > available - offset) {
      fail(fmt::format("bytes {} to {} of a side file of {}", offset, offset + size, all.size()), name);
    }
    return from_bytes(*dtype, shape, all.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(size)),
                      name);
  }
  if (text(tensor, "init", "") != "zeros") fail("there is neither data, file, init nor from", name);
  if (dtype_bytes(*dtype, count) > kMaxZeros) fail("the shape is too large", name);
  return NDArray(*dtype, shape);
}

namespace {

// The parts of complex numbers as an array of reals with one axis more; other arrays as they are.
NDArray real_view(const NDArray& array) {
  DType part = DType::kF32;
  if (array.dtype() == DType::kComplexF64) part = DType::kF64;
  if (array.dtype() != DType::kComplexF32 && array.dtype() != DType::kComplexF64) return array;
  std::vector<std::int64_t> dims(array.shape().begin(), array.shape().end());
  dims.push_back(2);
  NDArray view(part, Shape(dims));
  view.assign(array.bytes());
  return view;
}

std::vector<double> as_doubles(const NDArray& array) {
  std::vector<double> values(static_cast<std::size_t>(array.element_count()));
  read_as_f64(array, values);
  return values;
}

NDArray converted(const NDArray& array, DType dtype) {
  if (array.dtype() == dtype) return array;
  NDArray out(dtype, array.shape());
  write_from_f64(out, as_doubles(array));
  return out;
}

Difference compare_floats(const std::vector<double>& got, const std::vector<double>& want, const Tolerance& tolerance) {
  Difference result;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double a = got[i], b = want[i];
    if (std::isnan(a) && std::isnan(b)) continue;
    if (a == b && (!tolerance.zero_sign || a != 0 || std::signbit(a) == std::signbit(b))) continue;
    const double error = a == b ? 0.0 : std::fabs(a - b);
    const double allowed = tolerance.atol + tolerance.rtol * std::fabs(b);
    double share = std::numeric_limits<double>::infinity();
    if (a != b && std::isfinite(error) && std::isfinite(allowed) && allowed > 0) share = error / allowed;
    if (share > 1 && (result.problem.empty() || share > result.share)) {
      result.problem = fmt::format("element {} is {:.9g}, expected {:.9g}", i, a, b);
    }
    result.error = std::max(result.error, std::isnan(error) ? std::numeric_limits<double>::infinity() : error);
    result.share = std::max(result.share, share);
  }
  return result;
}

}  // namespace

Difference compare_arrays(const NDArray& got, const NDArray& want, std::optional<DType> compare_as,
                          const Tolerance& tolerance) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (!compare_as && got.dtype() != want.dtype()) {
    return {kInfinity, kInfinity,
            fmt::format("the dtype is {}, expected {}", dtype_name(got.dtype()), dtype_name(want.dtype()))};
  }
  if (!(got.shape() == want.shape())) {
    return {kInfinity, kInfinity,
            fmt::format("the shape is [{}], expected [{}]", got.shape().to_string(), want.shape().to_string())};
  }
  const NDArray a = real_view(compare_as ? converted(got, *compare_as) : got);
  const NDArray b = real_view(want);
  if (is_float(b.dtype())) return compare_floats(as_doubles(a), as_doubles(b), tolerance);
  const std::span<const std::byte> x = a.bytes(), y = b.bytes();
  if (std::equal(x.begin(), x.end(), y.begin(), y.end())) return {};
  const std::vector<double> p = as_doubles(a), q = as_doubles(b);
  const auto at = static_cast<std::size_t>(std::mismatch(p.begin(), p.end(), q.begin()).first - p.begin());
  if (at == p.size()) return {0, kInfinity, "the bytes differ"};
  return {std::fabs(p[at] - q[at]), kInfinity, fmt::format("element {} is {}, expected {}", at, p[at], q[at])};
}

}  // namespace coreai::detail
