#include "bundle/static_names.h"

#include <charconv>
#include <system_error>

namespace coreai {

constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;

std::vector<std::int64_t> sizes_behind(std::string_view name, std::string_view prefix) {
  std::vector<std::int64_t> sizes;
  if (!name.starts_with(prefix)) return sizes;
  name.remove_prefix(prefix.size());
  while (!name.empty()) {
    std::int64_t value = 0;
    if (name[0] != '_') return {};
    const auto [end, error] = std::from_chars(name.data() + 1, name.data() + name.size(), value);
    if (error != std::errc{} || value <= 0 || value > kMaxSize) return {};
    name.remove_prefix(static_cast<std::size_t>(end - name.data()));
    sizes.push_back(value);
  }
  return sizes;
}

}  // namespace coreai
