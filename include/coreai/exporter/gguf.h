// GGUF checkpoints, versions 2 and 3, little-endian: metadata and tensors over mapped bytes, nothing copied.
// Source: ggml's docs/gguf.md. Every count, length and offset is checked against the file before it is used.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "coreai/base/mapped_file.h"
#include "coreai/base/ndarray.h"

namespace coreai {

// Element types of a tensor; the values are those of the file. Other numbers occur in files and are refused by name.
enum class GgmlType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

struct GgmlTypeInfo {
  std::string_view name;
  std::uint32_t block_elements;  // consecutive elements of a row that share a block
  std::uint32_t block_bytes;
};
// Nothing for a type that cannot be read here.
std::optional<GgmlTypeInfo> ggml_type_info(GgmlType type);
// A name for messages, of unreadable types too.
std::string ggml_type_name(GgmlType type);

enum class GgufValueType : std::uint32_t {
  kU8 = 0,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

struct GgufValue;
// Elements of one type. Numbers stay in the file's bytes; texts are views of it.
struct GgufArray {
  GgufValueType element_type = GgufValueType::kU8;
  std::uint64_t count = 0;
  std::span<const std::byte> numbers;     // little-endian, unaligned
  std::vector<std::string_view> strings;  // of kString
  std::vector<GgufValue> nested;          // of kArray
};
struct GgufValue {
  GgufValueType type = GgufValueType::kU8;
  std::variant<std::uint64_t, std::int64_t, double, bool, std::string_view, GgufArray> value;
};

struct GgufTensor {
  std::string name;
  GgmlType type = GgmlType::kF32;
  std::vector<std::uint64_t> dims;   // innermost first, as in the file
  std::uint64_t offset = 0;          // of the first byte in the file
  std::span<const std::byte> bytes;  // empty for a type that cannot be read here

  Shape shape() const;  // outermost first: [out, in] of a matrix
  std::uint64_t rows() const;
  std::uint64_t row_elements() const { return dims.empty() ? 1 : dims.front(); }
};

// A parsed file. Immutable and thread-safe.
class GgufFile {
 public:
  // Throws NotFoundError, IoError, MalformedError (with offset), UnsupportedError (version 1, big-endian).
  static GgufFile open(const std::filesystem::path& path);
  // Bytes that outlive the result; `where` names them in errors.
  static GgufFile parse(std::span<const std::byte> bytes, const std::string& where);

  const std::string& where() const { return where_; }
  std::uint32_t version() const { return version_; }
  std::uint64_t file_bytes() const { return file_bytes_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find_tensor(std::string_view name) const;
  // Throws NotFoundError, or UnsupportedError when its type cannot be read here.
  const GgufTensor& tensor(std::string_view name) const;

  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  const GgufValue* find(std::string_view key) const;
  // Nothing when the key is absent; MalformedError when its value is of another kind or out of range.
  std::optional<std::uint64_t> find_unsigned(std::string_view key) const;
  std::optional<double> find_float(std::string_view key) const;
  std::optional<bool> find_bool(std::string_view key) const;
  std::optional<std::string_view> find_string(std::string_view key) const;
  const std::vector<std::string_view>* find_strings(std::string_view key) const;
  std::optional<std::vector<std::int64_t>> find_integers(std::string_view key) const;
  std::optional<std::vector<float>> find_floats(std::string_view key) const;
  // As above, NotFoundError when absent.
  std::uint64_t require_unsigned(std::string_view key) const;
  double require_float(std::string_view key) const;
  std::string_view require_string(std::string_view key) const;
  // The mapping of `open`; null after `parse`. Whoever keeps views of the bytes keeps this.
  const std::shared_ptr<const MappedFile>& mapping() const { return mapping_; }

 private:
  friend class GgufParser;
  std::string where_;
  std::uint32_t version_ = 0;
  std::uint64_t file_bytes_ = 0;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> tensor_index_;
  std::shared_ptr<const MappedFile> mapping_;
};

// Blocks of `type` to f32: the value that the format defines, with the roundings of ggml's reference.
// `bytes` holds whole blocks. Throws ShapeError when `out` does not fit, UnsupportedError for a type not listed above.
void dequantize(GgmlType type, std::span<const std::byte> bytes, std::span<float> out);

}  // namespace coreai
