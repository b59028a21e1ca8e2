#include <algorithm>

#include "compiler/schedule.h"

namespace coreai::compiler {

StepBuffers buffers_of(const Step& step) {
  StepBuffers b;
  const auto read = [&](const std::optional<Rows>& r) {
    if (r) b.reads.push_back(r->buffer);
  };
  std::visit(
      [&](const auto& s) {
        using T = std::decay_t<decltype(s)>;
        if constexpr (std::is_same_v<T, EmbeddingStep>) {
          b.reads.push_back(s.ids);
          b.writes.push_back(s.out.buffer);
        } else if constexpr (std::is_same_v<T, LayerNormStep> || std::is_same_v<T, RowwiseStep>) {
          b.reads.push_back(s.in.buffer);
          b.writes.push_back(s.out.buffer);
        } else if constexpr (std::is_same_v<T, NormStep> || std::is_same_v<T, LinearStep>) {
          b.reads.push_back(s.in.buffer);
          read(s.residual);
          b.writes.push_back(s.out.buffer);
        } else if constexpr (std::is_same_v<T, ExpertStep>) {
          b.reads = {s.in.buffer, s.indices};
          b.writes.push_back(s.out.buffer);
        } else if constexpr (std::is_same_v<T, RopeTableStep>) {
          b.reads.push_back(s.positions);
          b.writes.push_back(s.table);
        } else if constexpr (std::is_same_v<T, HeadsStep>) {
          for (const HeadTask& t : s.tasks) {
            b.reads.push_back(t.in.buffer);
            if (t.rope_table >= 0) b.reads.push_back(t.rope_table);
            if (t.out) b.writes.push_back(t.out->buffer);
          }
        } else if constexpr (std::is_same_v<T, AttentionStep>) {
          b.reads.push_back(s.query.buffer);
          read(s.keys);
          read(s.values);
          if (s.mask) b.reads.push_back(s.mask->buffer);
          b.writes.push_back(s.out.buffer);
        } else if constexpr (std::is_same_v<T, DeltaRuleStep>) {
          for (const View* v : {&s.query, &s.key, &s.value, &s.decay, &s.beta, &s.state_in})
            b.reads.push_back(v->buffer);
          b.writes = {s.out.buffer, s.state_out.buffer};
        } else if constexpr (std::is_same_v<T, CopyStep>) {
          b.reads.push_back(s.in.buffer);
          b.writes.push_back(s.out.buffer);
        } else if constexpr (std::is_same_v<T, ElementwiseStep>) {
          for (const ElementwiseOperand& o : s.operands) {
            if (!o.constant) b.reads.push_back(o.view.buffer);
          }
          b.writes.push_back(s.out.buffer);
        } else {
          for (const GenericOperand& o : s.inputs) {
            if (o.buffer >= 0) b.reads.push_back(o.buffer);
          }
          for (const GenericOperand& o : s.outputs) b.writes.push_back(o.buffer);
        }
      },
      step.body);
  return b;
}

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
