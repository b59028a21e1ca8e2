// tokenizer.json from bytes: loads and works, or is a typed error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "coreai/text/tokenizer.h"
#include "typed_errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  coreai::fuzz::expect_typed_errors([&] {
    const auto tokenizer = coreai::Tokenizer::from_json(json);
    const auto ids = tokenizer.encode("Hello,  wörld 42 <s> €\n");
    tokenizer.decode(ids);
    coreai::StreamingDetokenizer detokenizer(tokenizer);
    for (const auto id : ids) detokenizer.push(id);
    detokenizer.finish();
  });
  return 0;
}
