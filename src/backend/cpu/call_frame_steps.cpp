// The chunks of a frame: which kernel computes one, and where its result goes.
#include <algorithm>
#include <cstring>

#include "backend/cpu/call_frame.h"
#include "backend/cpu/kernel_tables.h"
#include "coreai/base/error.h"

namespace coreai::cpu {
namespace {

using compiler::Step;

void copy_rows(const float* from, std::int64_t from_stride, float* to, std::int64_t to_stride, std::int64_t rows,
               std::int64_t width) {
  for (std::int64_t r = 0; r < rows; ++r) {
    std::memcpy(to + r * to_stride, from + r * from_stride, static_cast<std::size_t>(width) * sizeof(float));
  }
}

}  // namespace

StepInfo CallFrame::step_info(int step) const {
  const Phase& phase = phases_[static_cast<std::size_t>(step)];
  return {phase.chunks, phase.redoable};
}

void CallFrame::embed(const StepCall& call, const compiler::EmbeddingStep& step, std::int64_t begin, std::int64_t end,
                      float* out, std::int64_t stride) const {
  const compiler::WeightSource& weight = executable_.plan.weights[static_cast<std::size_t>(step.weight)][0];
  const MatrixSource source = matrix_source(weight);
  for (std::int64_t r = begin; r < end; ++r, out += stride) {
    const std::int64_t id = call.ids[r] < 0 ? call.ids[r] + weight.rows : call.ids[r];
    if (id < 0 || id >= weight.rows) {
      throw InvalidArgumentError(
          "an id outside the table of " + std::to_string(weight.rows) + " rows: " + std::to_string(call.ids[r]),
          "gather_nd", "Ids count from 0; a negative one counts from the end");
    }
    dequantize_row(source, id, out);
    for (std::int64_t i = 0; step.scale != 1.0f && i < step.out.width; ++i) out[i] *= step.scale;
  }
}

void CallFrame::compute(int step_index, int chunk, const Worker& worker) {
  const Phase& phase = phases_[static_cast<std::size_t>(step_index)];
  StepCall& call = calls_[static_cast<std::size_t>(phase.step)];
  const Step& step = executable_.plan.steps[static_cast<std::size_t>(phase.step)];
  const std::int64_t begin = chunk * phase.per_chunk;
  const std::int64_t end = std::min(begin + phase.per_chunk, call.rows);
  auto* scratch = reinterpret_cast<float*>(worker.scratch);
  const RowKernels& rows = row_kernels(executable_.isa);
  switch (phase.kind) {
    case PhaseKind::kEmbedding: {
      const auto& s = std::get<compiler::EmbeddingStep>(step.body);
      if (phase.redoable) return embed(call, s, begin, end, scratch, s.out.width);
      return embed(call, s, begin, end, call.out + begin * s.out.row_stride, s.out.row_stride);
    }
    case PhaseKind::kNorm: {
      RmsNormArgs a = call.norm;
      if (phase.redoable) a.out = scratch, a.out_row_stride = a.dim;
      return rows.rms_norm(a, begin, end);
    }
    case PhaseKind::kLayerNorm:
      return rows.layer_norm(call.layer_norm, begin, end);
    case PhaseKind::kRowwise:
      if (std::get<compiler::RowwiseStep>(step.body).kind == compiler::Rowwise::kLogSoftmax)
        return rows.softmax(call.softmax, begin, end);
      return rows.vector_norm(call.vector_norm, begin, end);
    case PhaseKind::kRopeTable:
      return rope_table(call.table, begin, end);
    case PhaseKind::kQuantize:
      return quantize_rows(call.linear.x, call.linear.x_stride, call.linear.weights->k(), begin, end,
                           executable_.digits, executable_.isa,
                           phase.redoable ? worker.scratch : memory_.digits->data());
    case PhaseKind::kLinear: {
      const std::int64_t last = std::min(begin + phase.per_chunk, call.linear.weights->units());
      LinearArgs a = call.linear;
      if (phase.redoable) {
        a.y_stride = phase.per_chunk * kPanelRows;
        a.y = scratch - begin * kPanelRows;  // columns of the chunk start at the scratch
      }
      return linear_chunk(a, begin, last);
    }
    case PhaseKind::kRoute:
      return call.experts.route();
    case PhaseKind::kGather:
      return call.experts.gather(chunk);
    case PhaseKind::kExperts:
      return call.experts.compute(chunk, worker.scratch);
    case PhaseKind::kHeads: {
      for (const QkvArgs& a : call.heads) {
        const std::int64_t heads = a.q_heads + a.k_heads + a.v_heads;
        if (phase.redoable) {
          rows.qkv_compute(a, begin, end, 0, heads, scratch);
          scratch += (end - begin) * heads * a.head_dim;
        } else {
          rows.qkv(a, begin, end, 0, heads);
        }
      }
      return;
    }
    case PhaseKind::kAttention: {
      const AttentionArgs& a = call.attention;
      const AttentionPlan& plan = call.attention_plan;
      const AttentionKernels& kernels = attention_kernels(executable_.isa);
      if (plan.split) {
        auto* partial = reinterpret_cast<float*>(worker.scratch + aligned64(plan.scratch_bytes));
        return kernels.partial(a, plan, chunk, partial, worker.scratch);
      }
      const std::int64_t last = std::min(begin + phase.per_chunk, plan.chunks * a.batches);
      for (std::int64_t i = begin; i < last; ++i) {
        const AttentionArgs one = attention_batch(a, i / plan.chunks);
        const int part = static_cast<int>(i % plan.chunks);
        const AttentionRows r = attention_rows_of(one, plan, part);
        float* out = one.out + r.first_query * a.out_row_stride + r.first_head * a.out_head_stride;
        kernels.rows(one, plan, part, out, a.out_row_stride, a.out_head_stride, worker.scratch);
      }
      return;
    }
    case PhaseKind::kAttentionJoin: {
      const AttentionRows r = attention_rows_of(call.attention, call.attention_plan, chunk);
      return attention_kernels(executable_.isa)
          .join(call.attention, call.attention_plan, chunk, reinterpret_cast<const float*>(memory_.partials->data()),
                scratch, r.heads * call.attention.value_dim, call.attention.value_dim);
    }
    case PhaseKind::kDeltaRule:
      return kernel_tables(executable_.isa)
          .delta_rule(call.delta, begin, std::min(begin + phase.per_chunk, delta_units(call.delta)), scratch);
    case PhaseKind::kCopy:
      return copy(std::get<compiler::CopyStep>(step.body), call, chunk);
    case PhaseKind::kElementwise:
      return elementwise_kernel(executable_.isa)(call.program, call.binding, begin,
                                                 std::min(begin + phase.per_chunk, ew_units(call.binding)));
    case PhaseKind::kGeneric:
      if (call.op) return call.op->compute(chunk, worker);
      return generic(std::get<compiler::GenericStep>(step.body));
  }
}

void CallFrame::publish(int step_index, int chunk, const Worker& worker) {
  const Phase& phase = phases_[static_cast<std::size_t>(step_index)];
  const StepCall& call = calls_[static_cast<std::size_t>(phase.step)];
  const Step& step = executable_.plan.steps[static_cast<std::size_t>(phase.step)];
  const std::int64_t begin = chunk * phase.per_chunk;
  const std::int64_t end = std::min(begin + phase.per_chunk, call.rows);
  const auto* scratch = reinterpret_cast<const float*>(worker.scratch);
  switch (phase.kind) {
    case PhaseKind::kEmbedding: {
      const auto& out = std::get<compiler::EmbeddingStep>(step.body).out;
      return copy_rows(scratch, out.width, call.out + begin * out.row_stride, out.row_stride, end - begin, out.width);
    }
    case PhaseKind::kNorm:
      return copy_rows(scratch, call.norm.dim, call.norm.out + begin * call.norm.out_row_stride,
                       call.norm.out_row_stride, end - begin, call.norm.dim);
    case PhaseKind::kQuantize: {
      const std::size_t row = activation_row_bytes(call.linear.weights->k(), executable_.digits, executable_.isa);
      std::memcpy(memory_.digits->data() + static_cast<std::size_t>(begin) * row, worker.scratch,
                  static_cast<std::size_t>(end - begin) * row);
      return;
    }
    case PhaseKind::kLinear: {
      const std::int64_t first = begin * kPanelRows;
      const std::int64_t width =
          std::min((begin + phase.per_chunk) * kPanelRows, call.linear.weights->outputs()) - first;
      return copy_rows(scratch, phase.per_chunk * kPanelRows, call.linear.y + first, call.linear.y_stride, call.rows,
                       width);
    }
    case PhaseKind::kHeads: {
      const RowKernels& rows = row_kernels(executable_.isa);
      for (const QkvArgs& a : call.heads) {
        const std::int64_t heads = a.q_heads + a.k_heads + a.v_heads;
        rows.qkv_publish(a, begin, end, 0, heads, scratch);
        scratch += (end - begin) * heads * a.head_dim;
      }
      return;
    }
    case PhaseKind::kAttention: {
      const auto range = attention_partial_of(call.attention, call.attention_plan, chunk);
      std::memcpy(memory_.partials->data() + range.offset * sizeof(float),
                  worker.scratch + aligned64(call.attention_plan.scratch_bytes), range.count * sizeof(float));
      return;
    }
    case PhaseKind::kAttentionJoin: {
      const AttentionArgs& a = call.attention;
      const AttentionRows r = attention_rows_of(a, call.attention_plan, chunk);
      for (std::int64_t q = 0; q < r.queries; ++q) {
        copy_rows(scratch + q * r.heads * a.value_dim, a.value_dim,
                  a.out + (r.first_query + q) * a.out_row_stride + r.first_head * a.out_head_stride, a.out_head_stride,
                  r.heads, a.value_dim);
      }
      return;
    }
    default:
      return;
  }
}

}  // namespace coreai::cpu
