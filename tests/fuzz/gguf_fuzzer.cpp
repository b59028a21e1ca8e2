// Any bytes: parse, dequantise what is small, rebuild the tokenizer, author the graph. Only typed errors may come out.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "coreai/exporter/llm_exporter.h"
#include "coreai/exporter/tokenizer_export.h"
#include "typed_errors.h"

namespace {

using coreai::fuzz::expect_typed_errors;

void examine(const coreai::GgufFile& file) {
  for (const coreai::GgufTensor& tensor : file.tensors()) {
    const auto info = coreai::ggml_type_info(tensor.type);
    if (!info || tensor.bytes.size() > (1u << 16)) continue;
    std::vector<float> values(tensor.bytes.size() / info->block_bytes * info->block_elements);
    coreai::dequantize(tensor.type, tensor.bytes, values);
  }
  for (const auto& [key, value] : file.metadata()) expect_typed_errors([&] { file.find_integers(key); });
  expect_typed_errors([&] { coreai::rebuild_tokenizer(file); });
  expect_typed_errors([&] { coreai::author_decoder(file, {}); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  expect_typed_errors(
      [&] { examine(coreai::GgufFile::parse({reinterpret_cast<const std::byte*>(data), size}, "fuzz.gguf")); });
  return 0;
}
