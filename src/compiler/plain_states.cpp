// States in their declared layout: a store changes the one array in place, so each content has its time.
#include <map>

#include "compiler/matchers.h"
#include "compiler/passes.h"
#include "compiler/views.h"

namespace coreai::compiler {
ValueId content_of(const Graph& g, ValueId id) {
  while (g.value(id).state < 0) {
    const Node* p = g.producer(id);
    if (!p || p->kind != NodeKind::kOp || p->inputs.empty()) return kNoValue;
    if (!is_movement(*p) && p->code != ir::OpCode::kCast) return kNoValue;
    id = p->inputs[0];
  }
  return id;
}

void check_plain_states(const Graph& g) {
  const std::vector<NodeId> order = g.order();
  std::map<ValueId, std::size_t> replaced;  // content -> place of the store
  for (std::size_t at = 0; at < order.size(); ++at) {
    const Node& n = g.nodes[static_cast<std::size_t>(order[at])];
    if (n.kind != NodeKind::kStore) continue;
    if (!replaced.emplace(n.inputs[0], at).second) throw NotPlannable{"a content of a state is updated twice"};
    if (content_of(g, n.inputs[1]) != kNoValue) throw NotPlannable{"a state is updated with a part of a state"};
  }
  for (std::size_t at = 0; at < order.size(); ++at) {
    const Node& n = g.nodes[static_cast<std::size_t>(order[at])];
    for (const ValueId v : n.inputs) {
      const auto store = replaced.find(v < 0 ? kNoValue : content_of(g, v));
      if (store != replaced.end() && store->second < at)
        throw NotPlannable{"an old content of a state is read after its update"};
    }
  }
  // Outputs and what states keep are copied last.
  for (const GraphOutput& o : g.outputs) {
    if (replaced.contains(content_of(g, o.value))) throw NotPlannable{"an old content of a state is an output"};
  }
  for (const ValueId v : g.state_final) {
    const ValueId content = content_of(g, v);
    if (content != kNoValue && (content != v || replaced.contains(v)))
      throw NotPlannable{"a state ends with a part or an old content of a state"};
  }
}

}  // namespace coreai::compiler
