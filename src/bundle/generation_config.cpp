#include "bundle/generation_config.h"

#include <fmt/format.h>

#include "coreai/base/mapped_file.h"

namespace coreai::metadata {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "generation_config.json";
constexpr std::size_t kLimit = std::size_t{4} << 20;

}  // namespace

std::optional<Json> read_generation_config(const fs::path& folder) {
  const fs::path file = folder / kName;
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return std::nullopt;
  return parse(read_text_file(file, kLimit), kName, file.string());
}

std::vector<std::int32_t> read_end_tokens(const fs::path& folder) {
  std::vector<std::int32_t> ids;
  const auto config = read_generation_config(folder);
  if (!config) return ids;
  const auto found = config->find("eos_token_id");
  if (found == config->end() || found->is_null()) return ids;
  for (const auto& id : found->is_array() ? *found : Json::array({*found})) {
    if (!is_integer(id, 0, Fields::kMax))
      throw malformed("eos_token_id", fmt::format("'eos_token_id' holds {}, not a token id", shown(id)),
                      (folder / kName).string());
    ids.push_back(static_cast<std::int32_t>(id.get<std::int64_t>()));
  }
  return ids;
}

}  // namespace coreai::metadata
