#include "text/bridge_call.h"

#include <fmt/format.h>

#include "coreai/base/error.h"

namespace coreai::text {

std::string take(coreai_bridge_bytes bytes) {
  std::string text(bytes.data, bytes.size);
  coreai_bridge_free_bytes(bytes);
  return text;
}

std::vector<std::uint32_t> take(coreai_bridge_ids ids) {
  std::vector<std::uint32_t> out(ids.data, ids.data + ids.size);
  coreai_bridge_free_ids(ids);
  return out;
}

void check(std::int32_t status, coreai_bridge_bytes error, std::string_view subject, std::string_view where) {
  if (status == COREAI_BRIDGE_OK) return;
  const std::string reason = take(error);
  const std::string place(where);
  switch (status) {
    case COREAI_BRIDGE_MALFORMED:
      throw MalformedError(fmt::format("{} is malformed: {}", subject, reason), place, 0,
                           "write it again with the exporter");
    case COREAI_BRIDGE_INVALID_ARGUMENT:
      throw InvalidArgumentError(fmt::format("{}: {}", subject, reason), place);
    case COREAI_BRIDGE_LIMIT:
      throw UnsupportedError(fmt::format("{} is beyond a safety limit: {}", subject, reason), place,
                             "check that it comes from a trusted model");
    default:
      throw InternalError(fmt::format("{}: {}", subject, reason), place);
  }
}

}  // namespace coreai::text
