#include "bundle/states.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace coreai {
namespace {

constexpr std::array kStateKinds{StateKind::kKvCache, StateKind::kSlidingCache, StateKind::kFixed};

std::string listed(const std::vector<ValueDescriptor>& states) {
  std::string text;
  for (const auto& state : states) text += (text.empty() ? "" : ", ") + metadata::quote(state.name);
  return text.empty() ? "none" : text;
}

}  // namespace

std::string_view state_kind_name(StateKind kind) {
  switch (kind) {
    case StateKind::kKvCache:
      return "kv_cache";
    case StateKind::kSlidingCache:
      return "sliding_cache";
    case StateKind::kFixed:
      return "fixed";
  }
  return "unknown";
}

std::optional<std::int64_t> cache_positions(const ValueDescriptor& state) {
  if (state.shape.rank() != 4 && state.shape.rank() != 5) return std::nullopt;
  return state.shape[state.shape.rank() - 2];
}

std::string state_kind_conflict(const ValueDescriptor& state, StateKind kind) {
  const auto unknown = std::count(state.shape.begin(), state.shape.end(), kDynamic);
  const auto impossible = [&](const char* why) {
    return fmt::format("state '{}' ({}) is declared as {}, but {}", state.name, state.type_name, state_kind_name(kind),
                       why);
  };
  if (unknown > 1) return impossible("has more than one unknown extent");
  if (kind != StateKind::kKvCache) return unknown == 0 ? "" : impossible("has an unknown extent");
  return unknown == 1 || cache_positions(state)
             ? ""
             : impossible("has no axis of positions: four or five extents are needed");
}

namespace metadata {

std::vector<DeclaredState> read_states(const Fields& language) {
  std::vector<DeclaredState> states;
  const auto block = language.optional_object("states");
  if (!block) return states;
  for (const auto& [name, value] : block->json().items()) {
    const auto kind = std::find_if(kStateKinds.begin(), kStateKinds.end(), [&value](StateKind known) {
      return value.is_string() && value.get<std::string>() == state_kind_name(known);
    });
    if (kind == kStateKinds.end())
      throw malformed(block->path(name),
                      fmt::format("'{}' is {}, not a kind of state (known: kv_cache, sliding_cache, fixed)",
                                  block->path(name), shown(value)),
                      language.where());
    states.push_back({name, *kind});
  }
  return states;
}

std::vector<BundleError> state_problems(std::span<const DeclaredState> declared, const FunctionDescriptor& function,
                                        const std::string& where) {
  std::vector<BundleError> found;
  if (declared.empty()) return found;
  for (const DeclaredState& one : declared) {
    const std::string field = "language.states." + one.name;
    const auto state = std::ranges::find(function.states, one.name, &ValueDescriptor::name);
    if (state == function.states.end()) {
      found.emplace_back(BundleFault::kMissingFunction, field,
                         fmt::format("'language.states' declares {}, which function '{}' does not have",
                                     quote(one.name), function.name),
                         where, fmt::format("Name the states of the function: {}", listed(function.states)));
    } else if (auto conflict = state_kind_conflict(*state, one.kind); !conflict.empty()) {
      found.emplace_back(BundleFault::kInconsistent, field, std::move(conflict), where,
                         "Correct the kind of the state, or leave the block 'states' out");
    }
  }
  for (const ValueDescriptor& state : function.states) {
    if (std::ranges::find(declared, state.name, &DeclaredState::name) != declared.end()) continue;
    found.emplace_back(
        BundleFault::kInconsistent, "language.states",
        fmt::format("'language.states' leaves out {} of function '{}'", quote(state.name), function.name), where,
        "Declare every state of the function, or none");
  }
  return found;
}

}  // namespace metadata
}  // namespace coreai
