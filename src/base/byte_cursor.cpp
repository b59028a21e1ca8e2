#include "coreai/base/byte_cursor.h"

#include <fmt/format.h>

#include "coreai/base/error.h"

namespace coreai {

std::string_view ByteCursor::c_string() {
  const auto rest = bytes_.subspan(position_);
  const void* end = rest.empty() ? nullptr : std::memchr(rest.data(), 0, rest.size());
  if (!end) fail("a text has no terminating NUL");
  const auto length = static_cast<std::size_t>(static_cast<const std::byte*>(end) - rest.data());
  position_ += length + 1;
  return {reinterpret_cast<const char*>(rest.data()), length};
}

void ByteCursor::fail(const std::string& problem) const {
  throw MalformedError(problem, where_, offset());
}

void ByteCursor::fail_short(std::uint64_t wanted) const {
  fail(fmt::format("{} bytes wanted, {} left", wanted, remaining()));
}

}  // namespace coreai
