// Tensor objects of recorded calls: to arrays and back, and their comparison.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "coreai/base/mapped_file.h"
#include "coreai/base/ndarray.h"

namespace coreai::detail {

using Json = nlohmann::ordered_json;

// Reads tensor objects of one file; side files are mapped once.
class TensorReader {
 public:
  explicit TensorReader(std::filesystem::path file) : file_(std::move(file)) {}

  // Throws MalformedError that names the tensor.
  NDArray read(const Json& tensor);
  // The member `key` of an object as a string, or `fallback` when it is absent or null. Throws MalformedError.
  std::string text(const Json& object, const char* key, const std::string& fallback) const;
  double number(const Json& object, const char* key) const;  // 0 when absent
  // The member as a list; an empty one when it is absent. Throws MalformedError.
  const Json& list(const Json& object, const char* key) const;
  [[noreturn]] void fail(const std::string& problem, const std::string& where = {}) const;
  const std::filesystem::path& file() const { return file_; }

 private:
  NDArray from_bytes(DType dtype, const Shape& shape, std::span<const std::byte> bytes, const std::string& name) const;
  std::span<const std::byte> side_file(const std::string& name);

  std::filesystem::path file_;
  std::map<std::string, std::shared_ptr<const MappedFile>> side_files_;
};

struct Tolerance {
  double rtol = 0, atol = 0;
  bool zero_sign = false;
};

struct Difference {
  double error = 0, share = 0;  // see CaseResult
  std::string problem;          // empty when within the tolerance
};

// Compares elements; dtype and shape first. `compare_as` converts `got` before.
Difference compare_arrays(const NDArray& got, const NDArray& want, std::optional<DType> compare_as,
                          const Tolerance& tolerance);

}  // namespace coreai::detail
