// Ownership and errors of the Rust bridge's C ABI in C++ terms.
#pragma once

#include <coreai_bridge.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace coreai::text {

// Takes the bytes and frees them.
std::string take(coreai_bridge_bytes bytes);
std::vector<std::uint32_t> take(coreai_bridge_ids ids);

// Throws the error that `status` stands for, `error` being what the bridge filled in. `subject` says what was read or
// done ("tokenizer.json"), `where` names the file.
void check(std::int32_t status, coreai_bridge_bytes error, std::string_view subject, std::string_view where);

}  // namespace coreai::text
