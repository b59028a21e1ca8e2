// coreai-build inspect --plan: the steps that a function is compiled to.
#include "coreai-build/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "coreai/base/error.h"

namespace coreai::tools {
namespace {

// A dimension that is only known at run time, "input_ids.1".
struct DynamicDimension {
  std::string name;
  bool of_state = false;
  std::optional<std::int64_t> extent;
};

std::vector<DynamicDimension> dynamic_dimensions(const ir::Graph& graph) {
  std::vector<DynamicDimension> dimensions;
  const std::vector<std::string> names = graph.input_names();
  for (std::size_t i = 0; i < graph.body().arguments.size(); ++i) {
    const ir::TypeRef type = graph.body().arguments[i]->type;
    if (!type->is_tensor() && !type->is_handle()) continue;
    for (std::size_t axis = 0; axis < type->shape().rank(); ++axis) {
      if (type->shape()[axis] != kDynamic) continue;
      dimensions.push_back({fmt::format("{}.{}", names[i], axis), type->is_handle(), std::nullopt});
    }
  }
  return dimensions;
}

std::string names_of(const std::vector<DynamicDimension>& dimensions) {
  std::string text;
  for (const DynamicDimension& dimension : dimensions) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", dimension.name);
  }
  return text.empty() ? "none" : text;
}

// The dimension that `label` names, else the next one without an extent, inputs before states.
DynamicDimension* find(std::vector<DynamicDimension>& dimensions, const std::string& label) {
  for (DynamicDimension& dimension : dimensions) {
    if (dimension.name == label) return &dimension;
  }
  for (const bool of_state : {false, true}) {
    for (DynamicDimension& dimension : dimensions) {
      if (!dimension.extent && dimension.of_state == of_state) return &dimension;
    }
  }
  return nullptr;
}

}  // namespace

std::vector<std::pair<std::string, std::int64_t>> parse_extents(const std::string& text) {
  std::vector<std::pair<std::string, std::int64_t>> extents;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, comma - at);
    const std::size_t equals = part.find('=');
    std::int64_t value = 0;
    const char* end = part.data() + part.size();
    const char* number = equals == std::string::npos ? end : part.data() + equals + 1;
    const auto [stop, error] = std::from_chars(number, end, value);
    if (equals == 0 || number == end || error != std::errc{} || stop != end || value < 1) {
      throw CLI::ValidationError("--plan", fmt::format("'{}' is not NAME=EXTENT with an extent of at least 1", part));
    }
    extents.emplace_back(part.substr(0, equals), value);
    at = comma + 1;
  }
  return extents;
}

std::vector<std::int64_t> plan_extents(const ir::Graph& graph, const std::string& text) {
  std::vector<DynamicDimension> dimensions = dynamic_dimensions(graph);
  std::int64_t largest = 1;
  for (const auto& [label, value] : parse_extents(text)) {
    DynamicDimension* dimension = find(dimensions, label);
    if (dimension == nullptr) {
      throw InvalidArgumentError(fmt::format("there is no dimension left for {}={}", label, value), "--plan",
                                 fmt::format("Dynamic dimensions of @{}: {}", graph.name(), names_of(dimensions)));
    }
    dimension->extent = value;
    largest = std::max(largest, value);
  }
  std::vector<std::int64_t> extents;
  for (const DynamicDimension& dimension : dimensions) {
    if (!dimension.extent && !dimension.of_state) {
      throw InvalidArgumentError(fmt::format("no extent is given for {}", dimension.name), "--plan",
                                 fmt::format("Give one for each of: {}", names_of(dimensions)));
    }
    extents.push_back(dimension.extent.value_or(largest));  // a state holds at least what the inputs speak of
  }
  return extents;
}

}  // namespace coreai::tools
