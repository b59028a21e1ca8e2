// Any bytes: parse, then dequantise what is small. Only typed errors may come out.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "coreai/base/error.h"
#include "coreai/exporter/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto file = coreai::GgufFile::parse({reinterpret_cast<const std::byte*>(data), size}, "fuzz.gguf");
    for (const coreai::GgufTensor& tensor : file.tensors()) {
      const auto info = coreai::ggml_type_info(tensor.type);
      if (!info || tensor.bytes.size() > (1u << 16)) continue;
      std::vector<float> values(tensor.bytes.size() / info->block_bytes * info->block_elements);
      coreai::dequantize(tensor.type, tensor.bytes, values);
    }
    for (const auto& [key, value] : file.metadata()) {
      try {
        file.find_integers(key);
      } catch (const coreai::Error&) {
      }
    }
  } catch (const coreai::Error&) {
  }
  return 0;
}
