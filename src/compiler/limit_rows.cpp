#include <algorithm>

#include "compiler/schedule.h"

namespace coreai::compiler {
namespace {

// The axis of rows of an output [1, .., q, ..]: the first that is not 1, when it is not constant.
int row_axis(const Plan& plan, std::size_t output) {
  const auto& shape = plan.output_shapes[output];
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) {
    if (plan.exprs.is_constant(shape[i], 1)) continue;
    return plan.exprs.as_constant(shape[i]) ? -1 : static_cast<int>(i);
  }
  return -1;
}

// Whether a step computes each of its rows from the same row of its inputs (and from states).
bool row_wise(const Plan& plan, const Step& step, Expr rows) {
  if (step.rows != rows) return false;
  if (std::holds_alternative<NormStep>(step.body) || std::holds_alternative<LinearStep>(step.body) ||
      std::holds_alternative<RowwiseStep>(step.body)) {
    return true;
  }
  if (const auto* attention = std::get_if<AttentionStep>(&step.body)) return !attention->batches;
  if (const auto* norm = std::get_if<LayerNormStep>(&step.body)) return norm->period == 1;
  const auto* copy = std::get_if<CopyStep>(&step.body);
  // A copy into an output keeps its rows.
  return copy && plan.buffers[static_cast<std::size_t>(copy->out.buffer)].kind == Buffer::Kind::kOutput;
}

}  // namespace

void limit_rows(Plan& plan) {
  std::vector<std::size_t> with_rows;
  for (std::size_t i = 0; i < plan.output_shapes.size(); ++i) {
    if (row_axis(plan, i) >= 0) with_rows.push_back(i);
  }
  if (with_rows.size() != 1) return;
  const std::size_t output = with_rows[0];
  const int axis = row_axis(plan, output);
  const Expr rows = plan.output_shapes[output][static_cast<std::size_t>(axis)];
  std::vector<bool> needed_whole(plan.buffers.size(), false);
  bool any = false;
  for (std::size_t i = plan.steps.size(); i-- > 0;) {
    Step& step = plan.steps[i];
    const StepBuffers b = buffers_of(step);
    bool limited = row_wise(plan, step, rows);
    for (int w : b.writes) {
      const Buffer& buffer = plan.buffers[static_cast<std::size_t>(w)];
      const bool other_output = buffer.kind == Buffer::Kind::kOutput && buffer.index != output;
      limited = limited && !needed_whole[static_cast<std::size_t>(w)] && !other_output;
    }
    step.last_rows = limited;
    any = any || limited;
    if (const auto* attention = std::get_if<AttentionStep>(&step.body); attention && attention->keys) {
      // A query's row sees the keys of every row.
      needed_whole[static_cast<std::size_t>(attention->keys->buffer)] = true;
      needed_whole[static_cast<std::size_t>(attention->values->buffer)] = true;
    }
    if (const auto* attention = std::get_if<AttentionStep>(&step.body); attention && attention->mask)
      needed_whole[static_cast<std::size_t>(attention->mask->buffer)] = true;
    if (limited) continue;
    for (int r : b.reads) needed_whole[static_cast<std::size_t>(r)] = true;
  }
  if (any) plan.output_row_axis[output] = axis;
}

}  // namespace coreai::compiler
