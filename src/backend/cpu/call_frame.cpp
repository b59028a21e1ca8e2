#include "backend/cpu/call_frame.h"

#include <algorithm>
#include <cstring>

#include "coreai/base/error.h"

namespace coreai::cpu {
namespace {

using compiler::Buffer;
using compiler::Step;

// Up to this many rows a step is cheap to do again: its chunks go through private memory, and a thread that waits
// redoes a missing one.
constexpr std::int64_t kRedoableRows = 4;
// Rows of one chunk of a row-wise step when there are many.
constexpr std::int64_t kRowsPerChunk = 8;
constexpr std::int64_t kNormElementsPerChunk = 4096;
// Units (kEwBlock elements at most) of one chunk of an element-wise chain.
constexpr std::int64_t kUnitsPerChunk = 16;
constexpr std::int64_t kDeltaChunksPerThread = 4;
// A chunk of a linear layer reads at least this many bytes of weights.
constexpr std::size_t kMinChunkBytes = 16 << 10;

Activation kernel_activation(compiler::Activation a) {
  switch (a) {
    case compiler::Activation::kNone:
      return Activation::kIdentity;
    case compiler::Activation::kSilu:
      return Activation::kSilu;
    case compiler::Activation::kGeluTanh:
      return Activation::kGeluTanh;
    case compiler::Activation::kGeluErf:
      return Activation::kGeluErf;
    case compiler::Activation::kGeluSigmoid:
      break;
  }
  throw InternalError("an activation without a kernel was planned");
}

void reserve(std::shared_ptr<Storage>& storage, std::size_t bytes) {
  // An eighth more than what has grown: a growing context then reallocates rarely.
  if (!storage || storage->size() < bytes) storage = Storage::allocate(storage ? bytes + bytes / 8 : bytes);
}

std::vector<Lifetime> arena_lifetimes(const compiler::Plan& plan) {
  std::vector<Lifetime> lifetimes(plan.buffers.size());
  for (std::size_t i = 0; i < lifetimes.size(); ++i) {
    const Buffer& b = plan.buffers[i];
    if (b.kind == Buffer::Kind::kArena) lifetimes[i] = {b.first_step, b.last_step};
  }
  return lifetimes;
}

}  // namespace

CallFrame::CallFrame(const Executable& executable)
    : executable_(executable), arena_layout_(arena_lifetimes(executable.plan)) {
  calls_.resize(executable_.plan.steps.size());
  addresses_.resize(executable_.plan.buffers.size());
  buffer_bytes_.resize(executable_.plan.buffers.size());
  build_phases();
}

void CallFrame::build_phases() {
  const auto& plan = executable_.plan;
  const compiler::Rows* quantized = nullptr;  // rows whose digits are at hand
  bool quantized_last_rows = false;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    const auto add = [&](PhaseKind kind) { phases_.push_back({kind, static_cast<int>(i)}); };
    if (std::holds_alternative<compiler::EmbeddingStep>(step.body)) add(PhaseKind::kEmbedding);
    if (std::holds_alternative<compiler::NormStep>(step.body)) add(PhaseKind::kNorm);
    if (std::holds_alternative<compiler::LayerNormStep>(step.body)) add(PhaseKind::kLayerNorm);
    if (std::holds_alternative<compiler::RowwiseStep>(step.body)) add(PhaseKind::kRowwise);
    if (std::holds_alternative<compiler::RopeTableStep>(step.body)) add(PhaseKind::kRopeTable);
    if (const auto* heads = std::get_if<compiler::HeadsStep>(&step.body)) {
      calls_[i].heads.resize(heads->tasks.size());
      add(PhaseKind::kHeads);
    }
    if (std::holds_alternative<compiler::AttentionStep>(step.body)) {
      add(PhaseKind::kAttention);
      add(PhaseKind::kAttentionJoin);
    }
    if (std::holds_alternative<compiler::DeltaRuleStep>(step.body)) add(PhaseKind::kDeltaRule);
    if (std::holds_alternative<compiler::CopyStep>(step.body)) add(PhaseKind::kCopy);
    if (const auto* chain = std::get_if<compiler::ElementwiseStep>(&step.body)) {
      calls_[i].program = ew_program(*chain);
      add(PhaseKind::kElementwise);
    }
    if (const auto* generic = std::get_if<compiler::GenericStep>(&step.body)) {
      calls_[i].op = make_op_kernel(*generic, executable_.isa);
      add(PhaseKind::kGeneric);
    }
    if (const auto* pool = std::get_if<compiler::AveragePoolStep>(&step.body)) {
      calls_[i].op = make_average_pool(*pool, executable_.isa);
      add(PhaseKind::kGeneric);
    }
    if (const auto* gather = std::get_if<compiler::GatherRowsStep>(&step.body)) {
      calls_[i].op = make_gather_rows(*gather, executable_.isa);
      add(PhaseKind::kGeneric);
    }
    if (const auto* linear = std::get_if<compiler::LinearStep>(&step.body)) {
      if (executable_.weights.matrix(linear->weight).takes_digits()) {
        const bool at_hand = quantized && quantized->buffer == linear->in.buffer &&
                             quantized->offset == linear->in.offset && quantized->width == linear->in.width &&
                             quantized_last_rows == step.last_rows;
        if (!at_hand) add(PhaseKind::kQuantize);
        quantized = &linear->in;
        quantized_last_rows = step.last_rows;
      }
      add(PhaseKind::kLinear);
    }
    if (std::holds_alternative<compiler::ExpertStep>(step.body)) {
      add(PhaseKind::kRoute);
      add(PhaseKind::kGather);
      add(PhaseKind::kExperts);
    }
    // Digits are stale once their rows are written again.
    for (int w : compiler::buffers_of(step).writes) {
      if (quantized && quantized->buffer == w) quantized = nullptr;
    }
  }
}

bool CallFrame::to_output(int buffer) const {
  return executable_.plan.buffers[static_cast<std::size_t>(buffer)].kind == Buffer::Kind::kOutput;
}

float* CallFrame::row_address(const compiler::Rows& rows, std::int64_t row) const {
  return reinterpret_cast<float*>(address(rows.buffer)) + value(rows.offset) + row * rows.row_stride;
}

void CallFrame::place_buffers(CallMemory& memory) {
  const auto& plan = executable_.plan;
  plain_states_.resize(plan.states.size());
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer& b = plan.buffers[i];
    buffer_bytes_[i] = dtype_bytes(b.dtype, static_cast<std::uint64_t>(std::max<std::int64_t>(value(b.elements), 0)));
  }
  arena_layout_.place(buffer_bytes_);
  reserve(memory.arena, arena_layout_.bytes());
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer& b = plan.buffers[i];
    switch (b.kind) {
      case Buffer::Kind::kArena:
        addresses_[i] = b.first_step < 0 ? nullptr : memory.arena->data() + arena_layout_.offset(i);
        break;
      case Buffer::Kind::kInput:
        // Steps never write inputs.
        addresses_[i] = const_cast<std::byte*>(arrays_->inputs[b.index].bytes().data());
        break;
      case Buffer::Kind::kOutput:
        addresses_[i] = arrays_->outputs[b.index].mutable_bytes().data();
        break;
      case Buffer::Kind::kState:
        addresses_[i] = arrays_->plain_states[b.index]->mutable_bytes().data();
        plain_states_[b.index] = arrays_->plain_states[b.index]->storage();
        break;
      case Buffer::Kind::kConstant:
        // Steps never write constants.
        addresses_[i] = const_cast<std::byte*>(b.constant->bytes().data());
        break;
    }
  }
}

void CallFrame::look_at_states() {
  for (const Step& step : executable_.plan.steps) {
    const auto* heads = std::get_if<compiler::HeadsStep>(&step.body);
    if (!heads) continue;
    for (const compiler::HeadTask& t : heads->tasks) {
      if (t.state >= 0)
        arrays_->states[static_cast<std::size_t>(t.state)]->make_writable(value(t.position), value(step.rows));
    }
  }
  states_.resize(arrays_->states.size());
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (arrays_->states[i]) states_[i].look_at(*arrays_->states[i]);
  }
}

// Memory that several steps share, by the largest of them.
void CallFrame::reserve_shared(CallMemory& memory) {
  std::size_t digits = 0, partials = 0, sorted = 0;
  for (Phase& phase : phases_) {
    const StepCall& call = calls_[static_cast<std::size_t>(phase.step)];
    if (phase.kind == PhaseKind::kQuantize) {
      digits =
          std::max(digits, static_cast<std::size_t>(call.rows) *
                               activation_row_bytes(call.linear.weights->k(), executable_.digits, executable_.isa));
    }
    if (phase.kind == PhaseKind::kAttention)
      partials = std::max(partials, call.attention_plan.partial_floats * sizeof(float));
    if (phase.kind == PhaseKind::kExperts) sorted = std::max(sorted, call.experts.gathered_bytes());
    cut(phase);
  }
  reserve(memory.digits, digits);
  reserve(memory.partials, partials);
  reserve(memory.sorted, sorted);
}

void CallFrame::bind(std::span<const std::int64_t> values, const CallArrays& arrays, CallMemory& memory) {
  values_ = values;
  arrays_ = &arrays;
  last_rows_ = arrays.last_rows;
  scratch_bytes_ = 0;
  place_buffers(memory);
  look_at_states();
  for (std::size_t i = 0; i < calls_.size(); ++i) bind_step(static_cast<int>(i));
  reserve_shared(memory);
  memory_ = memory;
  for (StepCall& call : calls_) {
    call.linear.digits = memory_.digits->data();
    call.experts.set_gathered(memory_.sorted->data());
  }
}

void CallFrame::release() {
  for (KvBuffer& state : states_) state.look_away();
  for (std::shared_ptr<Storage>& state : plain_states_) state.reset();
}

// ---- arguments ----

void CallFrame::bind_step(int index) {
  const Step& step = executable_.plan.steps[static_cast<std::size_t>(index)];
  StepCall& call = calls_[static_cast<std::size_t>(index)];
  const std::int64_t rows = value(step.rows);
  call.rows = step.last_rows && last_rows_ >= 0 ? std::min(rows, last_rows_) : rows;
  call.row_begin = rows - call.rows;
  if (const auto* s = std::get_if<compiler::EmbeddingStep>(&step.body)) bind_embedding(call, *s);
  if (const auto* s = std::get_if<compiler::NormStep>(&step.body)) bind_norm(call, *s);
  if (const auto* s = std::get_if<compiler::LayerNormStep>(&step.body)) bind_layer_norm(call, *s);
  if (const auto* s = std::get_if<compiler::RowwiseStep>(&step.body)) bind_rowwise(call, *s);
  if (const auto* s = std::get_if<compiler::LinearStep>(&step.body)) bind_linear(call, *s);
  if (const auto* s = std::get_if<compiler::ExpertStep>(&step.body)) bind_experts(call, *s);
  if (const auto* s = std::get_if<compiler::RopeTableStep>(&step.body)) bind_table(call, *s);
  if (const auto* s = std::get_if<compiler::HeadsStep>(&step.body)) bind_heads(call, *s);
  if (const auto* s = std::get_if<compiler::AttentionStep>(&step.body)) bind_attention(call, *s);
  if (const auto* s = std::get_if<compiler::DeltaRuleStep>(&step.body)) bind_delta_rule(call, *s);
  if (const auto* s = std::get_if<compiler::ElementwiseStep>(&step.body)) bind_elementwise(call, *s);
  if (const auto* s = std::get_if<compiler::GenericStep>(&step.body); s && call.op)
    bind_op(call, s->inputs, s->outputs, s->op->info().text_name);
  if (const auto* s = std::get_if<compiler::AveragePoolStep>(&step.body))
    bind_op(call, s->inputs, s->outputs, step.name);
  if (const auto* s = std::get_if<compiler::GatherRowsStep>(&step.body))
    bind_op(call, s->inputs, s->outputs, step.name);
  if (const auto* s = std::get_if<compiler::CopyStep>(&step.body)) bind_copy(call, *s);
}

void CallFrame::bind_embedding(StepCall& call, const compiler::EmbeddingStep& step) {
  call.out = row_address(step.out, 0);
  call.ids = reinterpret_cast<const std::int32_t*>(address(step.ids)) + value(step.ids_offset);
  if (executable_.plan.buffers[static_cast<std::size_t>(step.ids)].kind != Buffer::Kind::kInput) return;
  call.own_ids.assign(call.ids, call.ids + call.rows);  // the caller may free its array while a late chunk reads
  call.ids = call.own_ids.data();
}

void CallFrame::bind_norm(StepCall& call, const compiler::NormStep& step) {
  RmsNormArgs& a = call.norm;
  a = {};
  a.x = row_address(step.in, call.row_begin);
  a.x_row_stride = step.in.row_stride;
  a.weight = step.scale.data();
  a.eps = step.eps;
  a.dim = step.in.width;
  if (step.residual) {
    a.residual = row_address(*step.residual, call.row_begin);
    a.residual_row_stride = step.residual->row_stride;
  }
  a.out = row_address(step.out, to_output(step.out.buffer) ? 0 : call.row_begin);
  a.out_row_stride = step.out.row_stride;
}

void CallFrame::bind_layer_norm(StepCall& call, const compiler::LayerNormStep& step) {
  LayerNormArgs& a = call.layer_norm;
  a = {};
  a.x = row_address(step.in, call.row_begin);
  a.x_row_stride = step.in.row_stride;
  a.weight = step.scale.data();
  a.bias = step.bias.data();
  a.out = row_address(step.out, to_output(step.out.buffer) ? 0 : call.row_begin);
  a.out_row_stride = step.out.row_stride;
  a.dim = std::max<std::int64_t>(step.in.width, 1);
  a.eps = step.eps;
  a.period = step.period;
  a.spread = step.spread;
}

void CallFrame::bind_rowwise(StepCall& call, const compiler::RowwiseStep& step) {
  const float* x = row_address(step.in, call.row_begin);
  float* out = row_address(step.out, to_output(step.out.buffer) ? 0 : call.row_begin);
  call.softmax = {x, step.in.row_stride, out, step.out.row_stride, step.in.width, 1.0f, true};
  call.vector_norm = {x, step.in.row_stride, out, step.out.row_stride, step.in.width};
}

void CallFrame::bind_linear(StepCall& call, const compiler::LinearStep& step) {
  LinearArgs& a = call.linear;
  a = {};
  a.weights = &executable_.weights.matrix(step.weight);
  a.m = call.rows;
  a.x = row_address(step.in, call.row_begin);
  a.x_stride = step.in.row_stride;
  a.y = row_address(step.out, to_output(step.out.buffer) ? 0 : call.row_begin);
  a.y_stride = step.out.row_stride;
  a.bias = step.bias.empty() ? nullptr : step.bias.data();
  if (step.residual) {
    a.residual = row_address(*step.residual, call.row_begin);
    a.residual_stride = step.residual->row_stride;
  }
  a.activation = kernel_activation(step.activation);
  a.precision = executable_.digits;
  a.isa = executable_.isa;
}

void CallFrame::bind_experts(StepCall& call, const compiler::ExpertStep& step) {
  ExpertArgs a;
  a.weights = &executable_.weights.matrix(step.weight);
  a.experts = step.experts;
  a.outputs = step.out.width;
  a.rows = call.rows;
  a.choices = step.choices;
  a.indices = address(step.indices) + value(step.indices_offset) * element_bytes(step.indices_dtype);
  a.index_dtype = step.indices_dtype;
  a.x = row_address(step.in, 0);
  a.x_stride = step.in.row_stride;
  a.y = row_address(step.out, 0);
  a.y_stride = step.out.row_stride;
  a.activation = kernel_activation(step.activation);
  a.precision = executable_.digits;
  a.isa = executable_.isa;
  call.experts.bind(a, executable_.threads);
}

void CallFrame::bind_table(StepCall& call, const compiler::RopeTableStep& step) {
  RopeTableArgs& a = call.table;
  a = {};
  a.positions = address(step.positions) + value(step.position_offset) * (dtype_bits(step.positions_dtype) / 8);
  a.position_dtype = step.positions_dtype;
  a.inv_freq = step.inverse_frequencies.data();
  a.pairs = static_cast<std::int64_t>(step.inverse_frequencies.size());
  a.cos_out = reinterpret_cast<float*>(address(step.table));
  a.sin_out = a.cos_out + a.pairs;
  a.row_stride = 2 * a.pairs;
}

void CallFrame::bind_heads(StepCall& call, const compiler::HeadsStep& step) {
  for (std::size_t i = 0; i < step.tasks.size(); ++i) {
    const compiler::HeadTask& t = step.tasks[i];
    QkvArgs& a = call.heads[i];
    a = {};
    a.x = row_address(t.in, 0);
    a.x_row_stride = t.in.row_stride;
    a.head_dim = t.head_dim;
    a.eps = t.eps;
    a.form = t.interleaved ? RopeForm::kInterleaved : RopeForm::kHalfSplit;
    if (t.rope_table >= 0) {
      a.pairs = t.rope_dims / 2;
      a.cos = reinterpret_cast<const float*>(address(t.rope_table));
      a.sin = a.cos + a.pairs;
      a.rope_row_stride = 2 * a.pairs;
    }
    const float* norm = t.norm_scale.empty() ? nullptr : t.norm_scale.data();
    if (t.state < 0) {
      a.q_heads = t.heads;
      a.q_norm = norm;
      a.q_norm_head_stride = t.head_dim;
      a.q_out = row_address(*t.out, 0);
      a.q_row_stride = t.out->row_stride;
      a.q_head_stride = t.head_dim;
      continue;
    }
    KvBuffer* state = &states_[static_cast<std::size_t>(t.state)];
    a.layer = t.layer;
    a.first_position = value(t.position);
    const bool plain = !norm && t.rope_table < 0;
    if (plain && state->role() == KvRole::kValue) {
      a.v_heads = t.heads;
      a.values = state;
    } else {
      a.k_heads = t.heads;
      a.k_norm = norm;
      a.k_norm_head_stride = t.head_dim;
      a.keys = state;
    }
  }
}

void CallFrame::bind_attention(StepCall& call, const compiler::AttentionStep& step) {
  AttentionArgs& a = call.attention;
  a = {};
  a.q = row_address(step.query, call.row_begin);
  a.q_row_stride = step.query.row_stride;
  a.q_head_stride = step.head_dim;
  a.out = row_address(step.out, to_output(step.out.buffer) ? 0 : call.row_begin);
  a.out_row_stride = step.out.row_stride;
  a.out_head_stride = step.value_dim;
  if (step.keys) {
    a.strided = {row_address(*step.keys, 0),   step.keys->row_stride,   step.head_dim,
                 row_address(*step.values, 0), step.values->row_stride, step.value_dim};
  } else {
    a.keys = &states_[static_cast<std::size_t>(step.key_state)];
    a.values = &states_[static_cast<std::size_t>(step.value_state)];
  }
  a.layer = step.layer;
  a.queries = call.rows;
  if (step.batches) {
    const compiler::AttentionBatches& b = *step.batches;
    a.batches = std::max<std::int64_t>(value(b.count), 1);
    a.batch_strides = {value(b.query), value(b.out), value(b.keys), value(b.values), value(b.mask)};
    a.queries /= a.batches;
  }
  a.heads = step.heads;
  a.kv_heads = step.kv_heads;
  a.head_dim = step.head_dim;
  a.value_dim = step.value_dim;
  a.length = value(step.length);
  a.scale = step.scale;
  a.causal = step.causal;
  a.window = step.window;
  a.sinks = step.sinks.empty() ? nullptr : step.sinks.data();
  if (step.mask) {
    a.mask_row_stride = value(step.mask->row_stride);
    a.mask_head_stride = value(step.mask->head_stride);
    a.mask = reinterpret_cast<const float*>(address(step.mask->buffer)) + value(step.mask->offset) +
             call.row_begin * a.mask_row_stride;
  }
  if (call.rows > 0) {
    check_attention(a);
    call.attention_plan = plan_attention(a, executable_.threads);
  } else {
    call.attention_plan = {};
  }
}

void CallFrame::bind_delta_rule(StepCall& call, const compiler::DeltaRuleStep& step) {
  DeltaRuleArgs& a = call.delta;
  a = {};
  const auto first = [&](const compiler::View& view) {
    const DType dtype = executable_.plan.buffers[static_cast<std::size_t>(view.buffer)].dtype;
    return address(view.buffer) + value(view.offset) * (dtype_bits(dtype) / 8);
  };
  const auto tokens = [&](const compiler::View& view, auto& array) {
    array = {reinterpret_cast<float*>(first(view)), value(view.strides[0]), value(view.strides[1]),
             value(view.strides[2])};
  };
  const auto states = [&](const compiler::View& view, auto& array) {
    array = {first(view), executable_.plan.buffers[static_cast<std::size_t>(view.buffer)].dtype, value(view.strides[0]),
             value(view.strides[1])};
  };
  tokens(step.query, a.query), tokens(step.key, a.key), tokens(step.value, a.value);
  tokens(step.decay, a.decay), tokens(step.beta, a.beta), tokens(step.out, a.out);
  states(step.state_in, a.state_in), states(step.state_out, a.state_out);
  a.batch = value(step.query.extents[0]), a.heads = value(step.query.extents[1]);
  a.tokens = value(step.query.extents[2]), a.key_dim = value(step.query.extents[3]);
  a.value_dim = value(step.value.extents[3]);
  a.normalise = step.norm_eps.has_value();
  a.eps = step.norm_eps.value_or(0.0f);
  a.scale = step.scale;
}

void CallFrame::bind_elementwise(StepCall& call, const compiler::ElementwiseStep& step) {
  EwBinding& b = call.binding;
  b = {};
  const auto array_of = [&](const compiler::View& view, const std::byte* data, DType dtype) {
    EwBinding::Array array{data + value(view.offset) * (dtype_bits(dtype) / 8), dtype, {}};
    for (std::size_t i = 0; i < view.strides.size(); ++i) array.strides[i] = value(view.strides[i]);
    return array;
  };
  b.rank = static_cast<int>(step.out.extents.size());
  for (std::size_t i = 0; i < step.out.extents.size(); ++i) b.extents[i] = value(step.out.extents[i]);
  for (std::size_t i = 0; i < step.operands.size(); ++i) {
    const compiler::ElementwiseOperand& o = step.operands[i];
    const std::byte* data = o.constant ? o.constant->bytes().data() : address(o.view.buffer);
    const DType dtype =
        o.constant ? o.constant->dtype() : executable_.plan.buffers[static_cast<std::size_t>(o.view.buffer)].dtype;
    b.inputs[i] = array_of(o.view, data, dtype);
  }
  b.outputs[0] = array_of(step.out, address(step.out.buffer),
                          executable_.plan.buffers[static_cast<std::size_t>(step.out.buffer)].dtype);
  ew_collapse(call.program, b);
}

// ---- chunks ----

// Scratch bytes.
std::size_t CallFrame::cut_linear(Phase& phase) const {
  const StepCall& call = calls_[static_cast<std::size_t>(phase.step)];
  const bool few = call.rows <= kRedoableRows;
  const std::int64_t units = call.rows > 0 ? call.linear.weights->units() : 0;
  const int threads = executable_.threads;
  // One thread takes a layer whole; several share it in pieces small enough that the last one is short.
  const std::int64_t wanted = threads == 1 ? 1 : threads * (few ? 4 : 8);
  const auto least =
      static_cast<std::int64_t>(kMinChunkBytes / std::max<std::size_t>(call.linear.weights->unit_bytes(), 1));
  phase.per_chunk = std::max<std::int64_t>({(units + wanted - 1) / wanted, least, 1});
  phase.chunks = static_cast<int>((units + phase.per_chunk - 1) / phase.per_chunk);
  phase.redoable = few && threads > 1;
  return phase.redoable ? static_cast<std::size_t>(call.rows * phase.per_chunk * kPanelRows) * sizeof(float) : 0;
}

// Scratch bytes.
std::size_t CallFrame::cut_attention(Phase& phase) const {
  const StepCall& call = calls_[static_cast<std::size_t>(phase.step)];
  const AttentionPlan& plan = call.attention_plan;
  // Chunk after chunk of a batch, batches in turn; as many at a time as the pool's limit asks for.
  const std::int64_t parts = plan.chunks * call.attention.batches;
  phase.per_chunk = std::max<std::int64_t>((parts + ThreadPool::kMaxChunks - 1) / ThreadPool::kMaxChunks, 1);
  phase.chunks = static_cast<int>((parts + phase.per_chunk - 1) / phase.per_chunk);
  phase.redoable = plan.split;
  std::size_t scratch = aligned64(plan.scratch_bytes);
  for (int c = 0; plan.split && c < plan.chunks; ++c) {
    scratch = std::max(
        scratch, aligned64(plan.scratch_bytes) + attention_partial_of(call.attention, plan, c).count * sizeof(float));
  }
  return scratch;
}

// Scratch bytes.
std::size_t CallFrame::cut_delta_rule(Phase& phase) const {
  const DeltaRuleArgs& a = calls_[static_cast<std::size_t>(phase.step)].delta;
  const std::int64_t units = delta_units(a);
  const std::int64_t wanted = executable_.threads == 1 ? 1 : executable_.threads * kDeltaChunksPerThread;
  const std::int64_t most = std::min<std::int64_t>(wanted, ThreadPool::kMaxChunks);
  phase.per_chunk = delta_units_per_chunk(a, most);
  phase.chunks = static_cast<int>((units + phase.per_chunk - 1) / phase.per_chunk);
  return delta_scratch_bytes(a);
}

std::int64_t CallFrame::rows_per_chunk(const Phase& phase, const StepCall& call) {
  if (phase.kind == PhaseKind::kLayerNorm)
    return std::max<std::int64_t>(kNormElementsPerChunk / call.layer_norm.dim, 1);
  if (phase.kind == PhaseKind::kRowwise) return std::max<std::int64_t>(kNormElementsPerChunk / call.softmax.dim, 1);
  return call.rows <= kRedoableRows ? std::max<std::int64_t>(call.rows, 1) : kRowsPerChunk;
}

bool CallFrame::cut_by_rows(PhaseKind kind) {
  return kind == PhaseKind::kEmbedding || kind == PhaseKind::kNorm || kind == PhaseKind::kLayerNorm ||
         kind == PhaseKind::kRowwise || kind == PhaseKind::kRopeTable || kind == PhaseKind::kQuantize ||
         kind == PhaseKind::kHeads;
}

void CallFrame::cut(Phase& phase) {
  const StepCall& call = calls_[static_cast<std::size_t>(phase.step)];
  const std::int64_t rows = call.rows;
  const bool few = rows <= kRedoableRows;
  std::size_t scratch = 0;
  phase.redoable = false;
  phase.per_chunk = rows_per_chunk(phase, call);
  phase.chunks = static_cast<int>((rows + phase.per_chunk - 1) / phase.per_chunk);
  switch (phase.kind) {
    case PhaseKind::kEmbedding: {
      const auto& step =
          std::get<compiler::EmbeddingStep>(executable_.plan.steps[static_cast<std::size_t>(phase.step)].body);
      phase.redoable = few;
      if (few) scratch = static_cast<std::size_t>(rows * step.out.width) * sizeof(float);
      break;
    }
    case PhaseKind::kNorm:
      phase.redoable = few;
      if (few) scratch = static_cast<std::size_t>(rows * call.norm.dim) * sizeof(float);
      break;
    case PhaseKind::kQuantize:
      phase.redoable = few;
      if (few)
        scratch = static_cast<std::size_t>(rows) *
                  activation_row_bytes(call.linear.weights->k(), executable_.digits, executable_.isa);
      break;
    case PhaseKind::kHeads: {
      phase.redoable = few;
      std::int64_t values = 0;
      for (const QkvArgs& a : call.heads) values += (a.q_heads + a.k_heads + a.v_heads) * a.head_dim;
      scratch = static_cast<std::size_t>(values * phase.per_chunk) * sizeof(float);
      break;
    }
    case PhaseKind::kLinear:
      scratch = cut_linear(phase);
      break;
    case PhaseKind::kRoute:
      phase.chunks = rows > 0 ? 1 : 0;
      break;
    case PhaseKind::kGather:
      phase.chunks = call.experts.gather_chunks();
      break;
    case PhaseKind::kExperts:
      phase.chunks = call.experts.chunks();
      scratch = call.experts.scratch_bytes();
      break;
    case PhaseKind::kAttention:
      scratch = cut_attention(phase);
      break;
    case PhaseKind::kAttentionJoin: {
      const AttentionPlan& plan = call.attention_plan;
      phase.chunks = plan.split ? plan.join_chunks : 0;
      phase.redoable = true;
      for (int c = 0; c < phase.chunks; ++c) {
        const AttentionRows r = attention_rows_of(call.attention, plan, c);
        scratch =
            std::max(scratch, static_cast<std::size_t>(r.queries * r.heads * call.attention.value_dim) * sizeof(float));
      }
      break;
    }
    case PhaseKind::kDeltaRule:
      scratch = cut_delta_rule(phase);
      break;
    case PhaseKind::kRopeTable:
      break;
    case PhaseKind::kElementwise: {
      const std::int64_t units = ew_units(call.binding);
      phase.per_chunk = std::max(kUnitsPerChunk, (units + ThreadPool::kMaxChunks - 1) / ThreadPool::kMaxChunks);
      phase.chunks = static_cast<int>((units + phase.per_chunk - 1) / phase.per_chunk);
      break;
    }
    case PhaseKind::kGeneric:
      phase.chunks = call.op ? call.op_cut.chunks : 1;
      scratch = call.op ? call.op_cut.scratch_bytes : 0;
      break;
    case PhaseKind::kCopy:
      phase.chunks = call.copy.cut.chunks();
      break;
    case PhaseKind::kLayerNorm:
    case PhaseKind::kRowwise:
      break;
  }
  if (cut_by_rows(phase.kind)) {
    while (phase.chunks > ThreadPool::kMaxChunks) {
      phase.per_chunk *= 2;
      phase.chunks = static_cast<int>((rows + phase.per_chunk - 1) / phase.per_chunk);
    }
  }
  scratch_bytes_ = std::max(scratch_bytes_, aligned64(scratch));
}

}  // namespace coreai::cpu
