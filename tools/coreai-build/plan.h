#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/tool.h"
#include "coreai/ir/module.h"

namespace coreai::tools {

// "q=1,s=128". Throws CLI::ValidationError.
std::vector<std::pair<std::string, std::int64_t>> parse_extents(const std::string& text);

// An extent for each dynamic dimension of the graph's inputs and states, in order of declaration. A label of `text` is
// the name of a dimension ("input_ids.1"), or anything else and then stands for the next one, inputs before states.
// States that are not named hold as much as the largest extent given. Throws InvalidArgumentError.
std::vector<std::int64_t> plan_extents(const ir::Graph& graph, const std::string& text);

}  // namespace coreai::tools
