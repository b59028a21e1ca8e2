#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "coreai/exporter/gguf.h"

namespace coreai {

// Builds a GGUF file by hand, little-endian.
class GgufBytes {
 public:
  template <typename T>
  GgufBytes& put(T value) {
    const auto* p = reinterpret_cast<const std::byte*>(&value);
    data.insert(data.end(), p, p + sizeof value);
    return *this;
  }
  GgufBytes& text(std::string_view t) {
    put<std::uint64_t>(t.size());
    const auto* p = reinterpret_cast<const std::byte*>(t.data());
    data.insert(data.end(), p, p + t.size());
    return *this;
  }
  GgufBytes& header(std::uint64_t tensors, std::uint64_t pairs, std::uint32_t version = 3) {
    return put<std::uint32_t>(0x46554747).put(version).put(tensors).put(pairs);
  }
  GgufBytes& tensor(std::string_view name, std::vector<std::uint64_t> dims, std::uint32_t type, std::uint64_t offset) {
    text(name).put(static_cast<std::uint32_t>(dims.size()));
    for (const auto d : dims) put(d);
    return put(type).put(offset);
  }
  GgufBytes& pair(std::string_view key, std::string_view value) { return text(key).put<std::uint32_t>(8).text(value); }
  GgufBytes& pair(std::string_view key, std::uint32_t value) { return text(key).put<std::uint32_t>(4).put(value); }
  GgufBytes& pair(std::string_view key, bool value) {
    return text(key).put<std::uint32_t>(7).put(static_cast<std::uint8_t>(value));
  }
  GgufBytes& pair(std::string_view key, const std::vector<std::string>& values) {
    text(key).put<std::uint32_t>(9).put<std::uint32_t>(8).put<std::uint64_t>(values.size());
    for (const auto& v : values) text(v);
    return *this;
  }
  GgufBytes& pair(std::string_view key, const std::vector<float>& values) {
    text(key).put<std::uint32_t>(9).put<std::uint32_t>(6).put<std::uint64_t>(values.size());
    for (const auto v : values) put(v);
    return *this;
  }
  GgufBytes& pair(std::string_view key, const std::vector<std::int32_t>& values) {
    text(key).put<std::uint32_t>(9).put<std::uint32_t>(5).put<std::uint64_t>(values.size());
    for (const auto v : values) put(v);
    return *this;
  }
  GgufBytes& zeros(std::size_t n) {
    data.resize(data.size() + n);
    return *this;
  }
  GgufFile parse() const { return GgufFile::parse(data, "test.gguf"); }
  std::vector<std::byte> data;
};

}  // namespace coreai
