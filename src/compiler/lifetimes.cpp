#include <algorithm>

#include "compiler/schedule.h"

namespace coreai::compiler {

void find_lifetimes(Plan& plan, bool share) {
  const int last = static_cast<int>(plan.steps.size()) - 1;
  for (int step = 0; step <= last; ++step) {
    const StepBuffers touched = buffers_of(plan.steps[static_cast<std::size_t>(step)]);
    for (const auto* list : {&touched.reads, &touched.writes}) {
      for (int id : *list) {
        Buffer& buffer = plan.buffers[static_cast<std::size_t>(id)];
        if (buffer.first_step < 0) buffer.first_step = share ? step : 0;
        buffer.last_step = share ? step : last;
      }
    }
  }
}

}  // namespace coreai::compiler
