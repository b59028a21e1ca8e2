#include <algorithm>

#include "compiler/schedule.h"

namespace coreai::compiler {

void assign_slots(Plan& plan, bool share) {
  struct Life {
    int first = -1, last = -1;
  };
  std::vector<Life> lives(plan.buffers.size());
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const StepBuffers b = buffers_of(plan.steps[i]);
    for (const auto* list : {&b.reads, &b.writes}) {
      for (int id : *list) {
        Life& life = lives[static_cast<std::size_t>(id)];
        if (life.first < 0) life.first = static_cast<int>(i);
        life.last = static_cast<int>(i);
      }
    }
  }
  struct Slot {
    int free_after;
    Expr elements;
    DType dtype;
  };
  std::vector<Slot> slots;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    if (plan.buffers[i].kind == Buffer::Kind::kArena && lives[i].first >= 0) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return lives[a].first < lives[b].first; });
  for (std::size_t i : order) {
    Buffer& buffer = plan.buffers[i];
    int best = -1;
    for (std::size_t s = 0; share && s < slots.size(); ++s) {
      if (slots[s].free_after >= lives[i].first || slots[s].dtype != buffer.dtype) continue;
      // An equal size first: then the sizes of other calls fit too.
      if (best < 0 || slots[s].elements == buffer.elements) best = static_cast<int>(s);
      if (slots[s].elements == buffer.elements) break;
    }
    if (best < 0) {
      best = static_cast<int>(slots.size());
      slots.push_back({0, buffer.elements, buffer.dtype});
    }
    slots[static_cast<std::size_t>(best)].free_after = lives[i].last;
    buffer.slot = best;
  }
  plan.slot_count = slots.size();
}

}  // namespace coreai::compiler
