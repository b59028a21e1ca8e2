// Metadata of any kind, and NumPy files: reads, or is a typed error.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "coreai/base/npy.h"
#include "coreai/bundle/open_bundle.h"
#include "typed_errors.h"

namespace {

using coreai::fuzz::expect_typed_errors;

// No folder of that name: every lookup of a file meets nothing, as in a bundle that lacks its parts.
void examine(const std::string& metadata) {
  const coreai::AnyBundle bundle =
      coreai::open_bundle(coreai::ModelBundle::from_bytes(metadata, "/nonexistent/bundle"));
  coreai::describe(bundle);
  coreai::problems(bundle);
  if (const auto* language = std::get_if<coreai::LanguageBundle>(&bundle)) {
    for (const auto& [role, names] : language->language().function_map)
      expect_typed_errors([&] { language->functions(role, names); });
    expect_typed_errors([&] { language->check_states({}); });
    language->tokenizer_directory();
  }
  if (const auto* pipeline = std::get_if<coreai::PipelineDescriptor>(&bundle)) pipeline->choose_mode();
  if (const auto* speech = std::get_if<coreai::SpeechBundle>(&bundle)) speech->whisper_generation();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // The first letter of NumPy's magic chooses its reader; JSON never begins with it.
  if (size > 0 && data[0] == 0x93) {
    expect_typed_errors([&] { coreai::parse_npy({reinterpret_cast<const std::byte*>(data), size}, "fuzz.npy"); });
    return 0;
  }
  expect_typed_errors([&] { examine(std::string(reinterpret_cast<const char*>(data), size)); });
  return 0;
}
