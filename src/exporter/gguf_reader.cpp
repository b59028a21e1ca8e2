#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "coreai/base/byte_cursor.h"
#include "coreai/base/error.h"
#include "coreai/exporter/gguf.h"

namespace coreai {
namespace {

constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr std::uint32_t kMaxDims = 4;         // ggml's GGML_MAX_DIMS
constexpr int kMaxNesting = 4;                // arrays in arrays; files in use nest once at most
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kMaxAlignment = std::uint64_t{1} << 30;

struct NamedType {
  std::uint32_t id;
  std::string_view name;
};
// Types that files hold and that nothing here reads, for messages. Source: ggml.h, enum ggml_type.
constexpr NamedType kOtherTypes[] = {
    {9, "Q8_1"},   {10, "Q2_K"},   {11, "Q3_K"},  {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
    {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"}, {23, "IQ4_XS"},  {24, "I8"},     {25, "I16"},
    {26, "I32"},   {27, "I64"},    {28, "F64"},   {29, "IQ1_M"}, {34, "TQ1_0"},   {35, "TQ2_0"},  {39, "MXFP4"},
};

// Bytes of a number in a metadata array; 0 for texts and arrays.
std::uint64_t number_bytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
    case GgufValueType::kI8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kU16:
    case GgufValueType::kI16:
      return 2;
    case GgufValueType::kU32:
    case GgufValueType::kI32:
    case GgufValueType::kF32:
      return 4;
    case GgufValueType::kU64:
    case GgufValueType::kI64:
    case GgufValueType::kF64:
      return 8;
    case GgufValueType::kString:
    case GgufValueType::kArray:
      break;
  }
  return 0;
}

// One number as the widest type of its kind.
GgufValue read_number(ByteCursor& in, GgufValueType type) {
  const auto value = [&](auto wide) { return GgufValue{type, wide}; };
  switch (type) {
    case GgufValueType::kU8:
      return value(std::uint64_t{in.u8()});
    case GgufValueType::kI8:
      return value(std::int64_t{in.scalar<std::int8_t>()});
    case GgufValueType::kU16:
      return value(std::uint64_t{in.scalar<std::uint16_t>()});
    case GgufValueType::kI16:
      return value(std::int64_t{in.scalar<std::int16_t>()});
    case GgufValueType::kU32:
      return value(std::uint64_t{in.scalar<std::uint32_t>()});
    case GgufValueType::kI32:
      return value(std::int64_t{in.scalar<std::int32_t>()});
    case GgufValueType::kF32:
      return value(double{in.scalar<float>()});
    case GgufValueType::kBool:
      return value(in.u8() != 0);
    case GgufValueType::kU64:
      return value(in.scalar<std::uint64_t>());
    case GgufValueType::kI64:
      return value(in.scalar<std::int64_t>());
    case GgufValueType::kF64:
      return value(in.scalar<double>());
    case GgufValueType::kString:
    case GgufValueType::kArray:
      break;
  }
  in.fail(fmt::format("metadata value type {} is not a number", static_cast<std::uint32_t>(type)));
}

std::optional<std::uint64_t> as_unsigned(const GgufValue& value) {
  if (const auto* u = std::get_if<std::uint64_t>(&value.value)) return *u;
  if (const auto* i = std::get_if<std::int64_t>(&value.value); i && *i >= 0) return static_cast<std::uint64_t>(*i);
  return std::nullopt;
}

[[noreturn]] void wrong_kind(std::string_view key, std::string_view wanted, const std::string& where) {
  throw MalformedError(fmt::format("metadata key '{}' does not hold {}", key, wanted), where, 0);
}

}  // namespace

std::optional<GgmlTypeInfo> ggml_type_info(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
      return GgmlTypeInfo{"F32", 1, 4};
    case GgmlType::kF16:
      return GgmlTypeInfo{"F16", 1, 2};
    case GgmlType::kBF16:
      return GgmlTypeInfo{"BF16", 1, 2};
    case GgmlType::kQ4_0:
      return GgmlTypeInfo{"Q4_0", 32, 18};
    case GgmlType::kQ4_1:
      return GgmlTypeInfo{"Q4_1", 32, 20};
    case GgmlType::kQ5_0:
      return GgmlTypeInfo{"Q5_0", 32, 22};
    case GgmlType::kQ5_1:
      return GgmlTypeInfo{"Q5_1", 32, 24};
    case GgmlType::kQ8_0:
      return GgmlTypeInfo{"Q8_0", 32, 34};
    case GgmlType::kQ4_K:
      return GgmlTypeInfo{"Q4_K", 256, 144};
    case GgmlType::kQ5_K:
      return GgmlTypeInfo{"Q5_K", 256, 176};
    case GgmlType::kQ6_K:
      return GgmlTypeInfo{"Q6_K", 256, 210};
  }
  return std::nullopt;
}

std::string ggml_type_name(GgmlType type) {
  if (const auto info = ggml_type_info(type)) return std::string(info->name);
  for (const NamedType& other : kOtherTypes)
    if (other.id == static_cast<std::uint32_t>(type)) return std::string(other.name);
  return fmt::format("type {}", static_cast<std::uint32_t>(type));
}

Shape GgufTensor::shape() const {
  std::vector<std::int64_t> extents(dims.rbegin(), dims.rend());
  return Shape(extents);
}

std::uint64_t GgufTensor::rows() const {
  std::uint64_t product = 1;
  for (std::size_t i = 1; i < dims.size(); ++i) product *= dims[i];  // the parser checked the whole product
  return product;
}

// Reads the header, the metadata, the tensor list, in the order of the file.
class GgufParser {
 public:
  GgufParser(std::span<const std::byte> bytes, const std::string& where) : bytes_(bytes), in_(bytes, where) {
    file_.where_ = where;
    file_.file_bytes_ = bytes.size();
  }

  GgufFile run() {
    read_header();
    for (std::uint64_t i = 0; i < metadata_count_; ++i) read_pair();
    for (std::uint64_t i = 0; i < tensor_count_; ++i) read_tensor();
    place_tensors();
    return std::move(file_);
  }

 private:
  void read_header() {
    if (in_.scalar<std::uint32_t>() != kMagic)
      throw MalformedError("not a GGUF file: the first four bytes are not 'GGUF'", file_.where_, 0,
                           "Give a .gguf checkpoint");
    file_.version_ = in_.scalar<std::uint32_t>();
    const std::uint32_t swapped = __builtin_bswap32(file_.version_);
    if (file_.version_ > 0xffff && swapped <= 0xff)
      throw UnsupportedError("a big-endian GGUF file", file_.where_, "Convert it for little-endian machines");
    if (file_.version_ != 2 && file_.version_ != 3)
      throw UnsupportedError(fmt::format("GGUF version {}", file_.version_), file_.where_,
                             "Versions 2 and 3 are read; convert the file with a current tool");
    tensor_count_ = read_count("tensors", 8 + 4 + 4 + 8);
    metadata_count_ = read_count("metadata pairs", 8 + 4 + 1);
  }

  // A number of things of at least `bytes_each` bytes: more than the file can hold is refused before memory is asked
  // for.
  std::uint64_t read_count(std::string_view what, std::uint64_t bytes_each) {
    const auto count = in_.scalar<std::uint64_t>();
    if (count > in_.remaining() / bytes_each)
      in_.fail(fmt::format("{} {} do not fit into the {} bytes that follow", count, what, in_.remaining()));
    return count;
  }

  std::string_view read_string() {
    const auto length = in_.scalar<std::uint64_t>();
    const auto text = in_.take(length);
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }

  GgufValueType read_type() {
    const auto type = in_.scalar<std::uint32_t>();
    if (type > static_cast<std::uint32_t>(GgufValueType::kF64))
      in_.fail(fmt::format("metadata value type {} does not exist", type));
    return static_cast<GgufValueType>(type);
  }

  GgufValue read_value(GgufValueType type, int depth) {
    if (type == GgufValueType::kString) return {type, read_string()};
    if (type == GgufValueType::kArray) return {type, read_array(depth)};
    return read_number(in_, type);
  }

  GgufArray read_array(int depth) {
    if (depth >= kMaxNesting) in_.fail(fmt::format("arrays nested deeper than {}", kMaxNesting));
    GgufArray array;
    array.element_type = read_type();
    const std::uint64_t each = number_bytes(array.element_type);
    if (each > 0) {
      array.count = read_count("array elements", each);
      array.numbers = in_.take(array.count * each);
      return array;
    }
    const bool texts = array.element_type == GgufValueType::kString;
    array.count = read_count("array elements", texts ? 8 : 12);
    if (texts) {
      array.strings.reserve(array.count);
      for (std::uint64_t i = 0; i < array.count; ++i) array.strings.push_back(read_string());
      return array;
    }
    for (std::uint64_t i = 0; i < array.count; ++i)
      array.nested.push_back({GgufValueType::kArray, read_array(depth + 1)});
    return array;
  }

  void read_pair() {
    const std::string key(read_string());
    const GgufValueType type = read_type();
    if (!file_.metadata_.emplace(key, read_value(type, 0)).second)
      in_.fail(fmt::format("metadata key '{}' appears twice", key));
  }

  void read_tensor() {
    GgufTensor tensor;
    tensor.name = read_string();
    const auto rank = in_.scalar<std::uint32_t>();
    if (rank > kMaxDims) in_.fail(fmt::format("tensor '{}' has {} dimensions", tensor.name, rank));
    for (std::uint32_t i = 0; i < rank; ++i) tensor.dims.push_back(in_.scalar<std::uint64_t>());
    tensor.type = static_cast<GgmlType>(in_.scalar<std::uint32_t>());
    tensor.offset = in_.scalar<std::uint64_t>();
    if (!file_.tensor_index_.emplace(tensor.name, file_.tensors_.size()).second)
      in_.fail(fmt::format("tensor '{}' appears twice", tensor.name));
    file_.tensors_.push_back(std::move(tensor));
  }

  std::uint64_t alignment() const {
    const auto value = file_.find_unsigned("general.alignment").value_or(kDefaultAlignment);
    if (!std::has_single_bit(value) || value > kMaxAlignment)
      throw MalformedError(fmt::format("general.alignment is {}, not a power of two", value), file_.where_, 0);
    return value;
  }

  // Turns offsets in the data section into spans of the file.
  void place_tensors() {
    const std::uint64_t align = alignment();
    const std::uint64_t start = (in_.offset() + align - 1) / align * align;
    for (GgufTensor& tensor : file_.tensors_) {
      if (tensor.offset % align != 0)
        fail(tensor, fmt::format("starts at {}, not a multiple of {}", tensor.offset, align));
      const auto begin = checked_add(start, tensor.offset);
      const std::uint64_t size = byte_size(tensor);
      const auto end = begin ? checked_add(*begin, size) : std::nullopt;
      if (!end || *end > bytes_.size())
        fail(tensor,
             fmt::format(
                 "needs {} bytes from {} of the data section on, the file has {} in all: it is damaged or incomplete",
                 size, tensor.offset, bytes_.size()));
      tensor.offset = *begin;
      tensor.bytes = bytes_.subspan(*begin, size);
    }
  }

  // 0 for a type that cannot be read: such a tensor may be in the file as long as nobody needs it.
  std::uint64_t byte_size(const GgufTensor& tensor) const {
    std::uint64_t elements = 1;
    for (const std::uint64_t dim : tensor.dims) {
      const auto product = checked_mul(elements, dim);
      if (!product || *product > std::numeric_limits<std::int64_t>::max())
        fail(tensor, "has more elements than 63 bits can count");
      elements = *product;
    }
    const auto info = ggml_type_info(tensor.type);
    if (!info) return 0;
    if (tensor.row_elements() % info->block_elements != 0)
      fail(tensor, fmt::format("has rows of {} elements, not whole {} blocks of {}", tensor.row_elements(), info->name,
                               info->block_elements));
    const auto size = checked_mul(elements / info->block_elements, info->block_bytes);
    if (!size) fail(tensor, "has more bytes than 64 bits can count");
    return *size;
  }

  [[noreturn]] void fail(const GgufTensor& tensor, const std::string& problem) const {
    throw MalformedError(fmt::format("tensor '{}' {}", tensor.name, problem), file_.where_, in_.offset());
  }

  std::span<const std::byte> bytes_;
  ByteCursor in_;
  GgufFile file_;
  std::uint64_t tensor_count_ = 0, metadata_count_ = 0;
};

GgufFile GgufFile::open(const std::filesystem::path& path) {
  auto mapping = MappedFile::open(path);
  GgufFile file = parse(mapping->bytes(), path.string());
  file.mapping_ = std::move(mapping);
  return file;
}

GgufFile GgufFile::parse(std::span<const std::byte> bytes, const std::string& where) {
  return GgufParser(bytes, where).run();
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

const GgufTensor& GgufFile::tensor(std::string_view name) const {
  const GgufTensor* found = find_tensor(name);
  if (!found)
    throw NotFoundError(fmt::format("the checkpoint has no tensor '{}'", name), where_,
                        "It may be incomplete, or of an architecture that is not supported");
  if (!ggml_type_info(found->type))
    throw UnsupportedError(fmt::format("tensor '{}' is stored as {}", name, ggml_type_name(found->type)), where_,
                           "Use a checkpoint of F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K or Q6_K");
  return *found;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto it = metadata_.find(key);
  return it == metadata_.end() ? nullptr : &it->second;
}

std::optional<std::uint64_t> GgufFile::find_unsigned(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return std::nullopt;
  const auto number = as_unsigned(*value);
  if (!number) wrong_kind(key, "a non-negative integer", where_);
  return number;
}

std::optional<double> GgufFile::find_float(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return std::nullopt;
  const auto* number = std::get_if<double>(&value->value);
  if (!number || !std::isfinite(*number)) wrong_kind(key, "a finite float", where_);
  return *number;
}

std::optional<bool> GgufFile::find_bool(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return std::nullopt;
  const auto* flag = std::get_if<bool>(&value->value);
  if (!flag) wrong_kind(key, "a bool", where_);
  return *flag;
}

std::optional<std::string_view> GgufFile::find_string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return std::nullopt;
  const auto* text = std::get_if<std::string_view>(&value->value);
  if (!text) wrong_kind(key, "a text", where_);
  return *text;
}

const std::vector<std::string_view>* GgufFile::find_strings(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return nullptr;
  const auto* array = std::get_if<GgufArray>(&value->value);
  if (!array || array->element_type != GgufValueType::kString) wrong_kind(key, "an array of texts", where_);
  return &array->strings;
}

std::optional<std::vector<std::int64_t>> GgufFile::find_integers(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return std::nullopt;
  const auto* array = std::get_if<GgufArray>(&value->value);
  if (!array || number_bytes(array->element_type) == 0) wrong_kind(key, "an array of integers", where_);
  std::vector<std::int64_t> out;
  out.reserve(array->count);
  ByteCursor in(array->numbers, where_);
  for (std::uint64_t i = 0; i < array->count; ++i) {
    const GgufValue element = read_number(in, array->element_type);
    if (const auto* s = std::get_if<std::int64_t>(&element.value)) {
      out.push_back(*s);
    } else if (const auto* b = std::get_if<bool>(&element.value)) {
      out.push_back(*b ? 1 : 0);
    } else if (const auto u = as_unsigned(element); u && *u <= std::numeric_limits<std::int64_t>::max()) {
      out.push_back(static_cast<std::int64_t>(*u));
    } else {
      wrong_kind(key, "an array of integers", where_);
    }
  }
  return out;
}

std::optional<std::vector<float>> GgufFile::find_floats(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return std::nullopt;
  const auto* array = std::get_if<GgufArray>(&value->value);
  if (!array || array->element_type != GgufValueType::kF32) wrong_kind(key, "an array of f32", where_);
  std::vector<float> out(array->count);
  if (!out.empty()) std::memcpy(out.data(), array->numbers.data(), array->numbers.size());
  return out;
}

namespace {
[[noreturn]] void missing_key(std::string_view key, const std::string& where) {
  throw NotFoundError(fmt::format("the checkpoint has no metadata key '{}'", key), where,
                      "Convert the model again with a current tool");
}
}  // namespace

std::uint64_t GgufFile::require_unsigned(std::string_view key) const {
  const auto value = find_unsigned(key);
  if (!value) missing_key(key, where_);
  return *value;
}

double GgufFile::require_float(std::string_view key) const {
  const auto value = find_float(key);
  if (!value) missing_key(key, where_);
  return *value;
}

std::string_view GgufFile::require_string(std::string_view key) const {
  const auto value = find_string(key);
  if (!value) missing_key(key, where_);
  return *value;
}

}  // namespace coreai
