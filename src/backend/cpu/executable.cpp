#include "backend/cpu/executable.h"

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

std::size_t aligned64(std::size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

void reserve(std::shared_ptr<Storage>& storage, std::size_t bytes) {
  // A quarter more: a growing context then reallocates rarely.
  if (!storage || storage->size() < bytes) storage = Storage::allocate(bytes + bytes / 4);
}

void copy_rows(const float* from, std::int64_t from_stride, float* to, std::int64_t to_stride, std::int64_t rows,
               std::int64_t width) {
  for (std::int64_t r = 0; r < rows; ++r) {
    std::memcpy(to + r * to_stride, from + r * from_stride, static_cast<std::size_t>(width) * sizeof(float));
  }
}

}  // namespace

Call::Call(std::shared_ptr<const Executable> executable, std::shared_ptr<ThreadPool> pool)
    : executable_(std::move(executable)), pool_(std::move(pool)) {
  calls_.resize(executable_->plan.steps.size());
  addresses_.resize(executable_->plan.buffers.size());
  build_phases();
}

Call::~Call() {
  pool_->drain(*this);
}

void Call::build_phases() {
  const auto& plan = executable_->plan;
  const compiler::Rows* quantized = nullptr;  // rows whose digits are at hand
  bool quantized_last_rows = false;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    const auto add = [&](PhaseKind kind) { phases_.push_back({kind, static_cast<int>(i)}); };
    if (std::holds_alternative<compiler::EmbeddingStep>(step.body)) add(PhaseKind::kEmbedding);
    if (std::holds_alternative<compiler::NormStep>(step.body)) add(PhaseKind::kNorm);
    if (std::holds_alternative<compiler::RopeTableStep>(step.body)) add(PhaseKind::kRopeTable);
    if (const auto* heads = std::get_if<compiler::HeadsStep>(&step.body)) {
      calls_[i].heads.resize(heads->tasks.size());
      add(PhaseKind::kHeads);
    }
    if (std::holds_alternative<compiler::AttentionStep>(step.body)) {
      add(PhaseKind::kAttention);
      add(PhaseKind::kAttentionJoin);
    }
    if (std::holds_alternative<compiler::CopyStep>(step.body)) add(PhaseKind::kCopy);
    if (std::holds_alternative<compiler::GenericStep>(step.body)) add(PhaseKind::kGeneric);
    if (const auto* linear = std::get_if<compiler::LinearStep>(&step.body)) {
      if (executable_->weights.matrix(linear->weight).takes_digits()) {
        const bool at_hand = quantized && quantized->buffer == linear->in.buffer &&
                             quantized->offset == linear->in.offset && quantized->width == linear->in.width &&
                             quantized_last_rows == step.last_rows;
        if (!at_hand) add(PhaseKind::kQuantize);
        quantized = &linear->in;
        quantized_last_rows = step.last_rows;
      }
      add(PhaseKind::kLinear);
    }
    // Digits are stale once their rows are written again.
    for (int w : compiler::buffers_of(step).writes) {
      if (quantized && quantized->buffer == w) quantized = nullptr;
    }
  }
}

bool Call::to_output(int buffer) const {
  return executable_->plan.buffers[static_cast<std::size_t>(buffer)].kind == Buffer::Kind::kOutput;
}

float* Call::row_address(const compiler::Rows& rows, std::int64_t row) const {
  return reinterpret_cast<float*>(address(rows.buffer)) + value(rows.offset) + row * rows.row_stride;
}

void Call::place_buffers() {
  const auto& plan = executable_->plan;
  std::vector<std::size_t>& sizes = slot_bytes_;
  sizes.assign(plan.slot_count, 0);
  const auto bytes_of = [&](const Buffer& b) {
    return dtype_bytes(b.dtype, static_cast<std::uint64_t>(std::max<std::int64_t>(value(b.elements), 0)));
  };
  for (const Buffer& b : plan.buffers) {
    if (b.kind != Buffer::Kind::kArena || b.slot < 0) continue;
    auto& size = sizes[static_cast<std::size_t>(b.slot)];
    size = std::max(size, aligned64(bytes_of(b)));
  }
  std::size_t total = 0;
  for (std::size_t& s : sizes) total += std::exchange(s, total);  // sizes become offsets
  reserve(arena_, total);
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer& b = plan.buffers[i];
    switch (b.kind) {
      case Buffer::Kind::kArena:
        addresses_[i] = b.slot < 0 ? nullptr : arena_->data() + sizes[static_cast<std::size_t>(b.slot)];
        break;
      case Buffer::Kind::kInput:
        // Steps never write inputs.
        addresses_[i] = const_cast<std::byte*>(arrays_->inputs[b.index].bytes().data());
        break;
      case Buffer::Kind::kOutput:
        addresses_[i] = arrays_->outputs[b.index].mutable_bytes().data();
        break;
    }
  }
}

void Call::run(std::span<const std::int64_t> values, const CallArrays& arrays, std::stop_token stop) {
  pool_->drain(*this);
  values_ = values;
  arrays_ = &arrays;
  last_rows_ = arrays.last_rows;
  scratch_bytes_ = 0;
  place_buffers();
  for (std::size_t i = 0; i < calls_.size(); ++i) bind(static_cast<int>(i));
  // Memory that several steps share, by the largest of them.
  std::size_t digits = 0, partials = 0;
  for (Phase& phase : phases_) {
    const StepCall& call = calls_[static_cast<std::size_t>(phase.step)];
    if (phase.kind == PhaseKind::kQuantize) {
      digits =
          std::max(digits, static_cast<std::size_t>(call.rows) *
                               activation_row_bytes(call.linear.weights->k(), executable_->digits, executable_->isa));
    }
    if (phase.kind == PhaseKind::kAttention)
      partials = std::max(partials, call.attention_plan.partial_floats * sizeof(float));
    cut(phase);
  }
  reserve(digits_, digits);
  reserve(partials_, partials);
  for (StepCall& call : calls_) call.linear.digits = digits_->data();
  pool_->run(*this, std::move(stop), RunEnd::kDrain);
}

// ---- arguments ----

void Call::bind(int index) {
  const Step& step = executable_->plan.steps[static_cast<std::size_t>(index)];
  StepCall& call = calls_[static_cast<std::size_t>(index)];
  const std::int64_t rows = value(step.rows);
  call.rows = step.last_rows && last_rows_ >= 0 ? std::min(rows, last_rows_) : rows;
  call.row_begin = rows - call.rows;
  if (const auto* s = std::get_if<compiler::EmbeddingStep>(&step.body)) bind_embedding(call, *s);
  if (const auto* s = std::get_if<compiler::NormStep>(&step.body)) bind_norm(call, *s);
  if (const auto* s = std::get_if<compiler::LinearStep>(&step.body)) bind_linear(call, *s);
  if (const auto* s = std::get_if<compiler::RopeTableStep>(&step.body)) bind_table(call, *s);
  if (const auto* s = std::get_if<compiler::HeadsStep>(&step.body)) bind_heads(call, *s);
  if (const auto* s = std::get_if<compiler::AttentionStep>(&step.body)) bind_attention(call, *s);
}

void Call::bind_embedding(StepCall& call, const compiler::EmbeddingStep& step) {
  call.ids = address(step.ids) + value(step.ids_offset) * static_cast<std::int64_t>(sizeof(std::int32_t));
  call.out = row_address(step.out, 0);
  const std::int64_t vocabulary = executable_->plan.weights[static_cast<std::size_t>(step.weight)][0].rows;
  const auto* ids = reinterpret_cast<const std::int32_t*>(call.ids);
  for (std::int64_t r = 0; r < call.rows; ++r) {
    if (ids[r] >= vocabulary || ids[r] < -vocabulary) {
      throw InvalidArgumentError(
          "an id outside the table of " + std::to_string(vocabulary) + " rows: " + std::to_string(ids[r]), "gather_nd",
          "Ids count from 0; a negative one counts from the end");
    }
  }
}

void Call::bind_norm(StepCall& call, const compiler::NormStep& step) {
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

void Call::bind_linear(StepCall& call, const compiler::LinearStep& step) {
  LinearArgs& a = call.linear;
  a = {};
  a.weights = &executable_->weights.matrix(step.weight);
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
  a.precision = executable_->digits;
  a.isa = executable_->isa;
}

void Call::bind_table(StepCall& call, const compiler::RopeTableStep& step) {
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

void Call::bind_heads(StepCall& call, const compiler::HeadsStep& step) {
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
    KvBuffer* state = arrays_->states[static_cast<std::size_t>(t.state)];
    a.layer = t.layer;
    a.first_position = value(t.position);
    state->make_writable(a.first_position, call.rows);
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

void Call::bind_attention(StepCall& call, const compiler::AttentionStep& step) {
  AttentionArgs& a = call.attention;
  a = {};
  a.q = row_address(step.query, call.row_begin);
  a.q_row_stride = step.query.row_stride;
  a.q_head_stride = step.head_dim;
  a.out = row_address(step.out, to_output(step.out.buffer) ? 0 : call.row_begin);
  a.out_row_stride = step.out.row_stride;
  a.out_head_stride = step.head_dim;
  a.keys = arrays_->states[static_cast<std::size_t>(step.key_state)];
  a.values = arrays_->states[static_cast<std::size_t>(step.value_state)];
  a.layer = step.layer;
  a.queries = call.rows;
  a.heads = step.heads;
  a.kv_heads = step.kv_heads;
  a.head_dim = step.head_dim;
  a.value_dim = step.head_dim;
  a.length = value(step.length);
  a.scale = step.scale;
  a.causal = step.causal;
  a.window = step.window;
  a.sinks = step.sinks.empty() ? nullptr : step.sinks.data();
  if (call.rows > 0) {
    check_attention(a);
    call.attention_plan = plan_attention(a, executable_->threads);
  } else {
    call.attention_plan = {};
  }
}

// ---- chunks ----

void Call::cut(Phase& phase) {
  const StepCall& call = calls_[static_cast<std::size_t>(phase.step)];
  const std::int64_t rows = call.rows;
  const bool few = rows <= kRedoableRows;
  std::size_t scratch = 0;
  phase.redoable = false;
  phase.per_chunk = few ? std::max<std::int64_t>(rows, 1) : kRowsPerChunk;
  phase.chunks = static_cast<int>((rows + phase.per_chunk - 1) / phase.per_chunk);
  const auto keep_within_limit = [&] {
    while (phase.chunks > ThreadPool::kMaxChunks) {
      phase.per_chunk *= 2;
      phase.chunks = static_cast<int>((rows + phase.per_chunk - 1) / phase.per_chunk);
    }
  };
  switch (phase.kind) {
    case PhaseKind::kEmbedding: {
      const auto& step =
          std::get<compiler::EmbeddingStep>(executable_->plan.steps[static_cast<std::size_t>(phase.step)].body);
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
                  activation_row_bytes(call.linear.weights->k(), executable_->digits, executable_->isa);
      break;
    case PhaseKind::kHeads: {
      phase.redoable = few;
      std::int64_t values = 0;
      for (const QkvArgs& a : call.heads) values += (a.q_heads + a.k_heads + a.v_heads) * a.head_dim;
      scratch = static_cast<std::size_t>(values * phase.per_chunk) * sizeof(float);
      break;
    }
    case PhaseKind::kLinear: {
      const std::int64_t units = rows > 0 ? call.linear.weights->units() : 0;
      const int threads = executable_->threads;
      // One thread takes a layer whole; several share it in pieces small enough that the last one is short.
      const std::int64_t wanted = threads == 1 ? 1 : threads * (few ? 4 : 8);
      const auto least =
          static_cast<std::int64_t>(kMinChunkBytes / std::max<std::size_t>(call.linear.weights->unit_bytes(), 1));
      phase.per_chunk = std::max<std::int64_t>({(units + wanted - 1) / wanted, least, 1});
      phase.chunks = static_cast<int>((units + phase.per_chunk - 1) / phase.per_chunk);
      phase.redoable = few && threads > 1;
      if (phase.redoable) scratch = static_cast<std::size_t>(rows * phase.per_chunk * kPanelRows) * sizeof(float);
      break;
    }
    case PhaseKind::kAttention: {
      const AttentionPlan& plan = call.attention_plan;
      phase.chunks = plan.chunks;
      phase.redoable = plan.split;
      scratch = aligned64(plan.scratch_bytes);
      for (int c = 0; plan.split && c < plan.chunks; ++c) {
        scratch = std::max(scratch, aligned64(plan.scratch_bytes) +
                                        attention_partial_of(call.attention, plan, c).count * sizeof(float));
      }
      break;
    }
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
    case PhaseKind::kRopeTable:
      break;
    case PhaseKind::kCopy:
    case PhaseKind::kGeneric:
      phase.chunks = 1;
      break;
  }
  if (phase.kind != PhaseKind::kLinear && phase.kind != PhaseKind::kAttention &&
      phase.kind != PhaseKind::kAttentionJoin && phase.kind != PhaseKind::kCopy && phase.kind != PhaseKind::kGeneric) {
    keep_within_limit();
  }
  scratch_bytes_ = std::max(scratch_bytes_, aligned64(scratch));
}

StepInfo Call::step_info(int step) const {
  const Phase& phase = phases_[static_cast<std::size_t>(step)];
  return {phase.chunks, phase.redoable};
}

void Call::embed(const StepCall& call, const compiler::EmbeddingStep& step, std::int64_t begin, std::int64_t end,
                 float* out, std::int64_t stride) const {
  const compiler::WeightSource& weight = executable_->plan.weights[static_cast<std::size_t>(step.weight)][0];
  const MatrixSource source = matrix_source(weight);
  const auto* ids = reinterpret_cast<const std::int32_t*>(call.ids);
  for (std::int64_t r = begin; r < end; ++r, out += stride) {
    const std::int64_t id = ids[r] < 0 ? ids[r] + weight.rows : ids[r];
    // The caller's array may change under a late chunk: stay inside the table.
    dequantize_row(source, std::clamp<std::int64_t>(id, 0, weight.rows - 1), out);
    for (std::int64_t i = 0; step.scale != 1.0f && i < step.out.width; ++i) out[i] *= step.scale;
  }
}

void Call::compute(int step_index, int chunk, const Worker& worker) {
  const Phase& phase = phases_[static_cast<std::size_t>(step_index)];
  StepCall& call = calls_[static_cast<std::size_t>(phase.step)];
  const Step& step = executable_->plan.steps[static_cast<std::size_t>(phase.step)];
  const std::int64_t begin = chunk * phase.per_chunk;
  const std::int64_t end = std::min(begin + phase.per_chunk, call.rows);
  auto* scratch = reinterpret_cast<float*>(worker.scratch);
  const RowKernels& rows = row_kernels(executable_->isa);
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
    case PhaseKind::kRopeTable:
      return rope_table(call.table, begin, end);
    case PhaseKind::kQuantize:
      return quantize_rows(call.linear.x, call.linear.x_stride, call.linear.weights->k(), begin, end,
                           executable_->digits, executable_->isa, phase.redoable ? worker.scratch : digits_->data());
    case PhaseKind::kLinear: {
      const std::int64_t last = std::min(begin + phase.per_chunk, call.linear.weights->units());
      LinearArgs a = call.linear;
      if (phase.redoable) {
        a.y_stride = phase.per_chunk * kPanelRows;
        a.y = scratch - begin * kPanelRows;  // columns of the chunk start at the scratch
      }
      return linear_chunk(a, begin, last);
    }
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
      const AttentionKernels& kernels = attention_kernels(executable_->isa);
      if (plan.split) {
        auto* partial = reinterpret_cast<float*>(worker.scratch + aligned64(plan.scratch_bytes));
        return kernels.partial(a, plan, chunk, partial, worker.scratch);
      }
      const AttentionRows r = attention_rows_of(a, plan, chunk);
      float* out = a.out + r.first_query * a.out_row_stride + r.first_head * a.out_head_stride;
      return kernels.rows(a, plan, chunk, out, a.out_row_stride, a.out_head_stride, worker.scratch);
    }
    case PhaseKind::kAttentionJoin: {
      const AttentionRows r = attention_rows_of(call.attention, call.attention_plan, chunk);
      return attention_kernels(executable_->isa)
          .join(call.attention, call.attention_plan, chunk, reinterpret_cast<const float*>(partials_->data()), scratch,
                r.heads * call.attention.value_dim, call.attention.value_dim);
    }
    case PhaseKind::kCopy:
      return copy(std::get<compiler::CopyStep>(step.body), call);
    case PhaseKind::kGeneric:
      return generic(std::get<compiler::GenericStep>(step.body));
  }
}

void Call::publish(int step_index, int chunk, const Worker& worker) {
  const Phase& phase = phases_[static_cast<std::size_t>(step_index)];
  const StepCall& call = calls_[static_cast<std::size_t>(phase.step)];
  const Step& step = executable_->plan.steps[static_cast<std::size_t>(phase.step)];
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
      const std::size_t row = activation_row_bytes(call.linear.weights->k(), executable_->digits, executable_->isa);
      std::memcpy(digits_->data() + static_cast<std::size_t>(begin) * row, worker.scratch,
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
      const RowKernels& rows = row_kernels(executable_->isa);
      for (const QkvArgs& a : call.heads) {
        const std::int64_t heads = a.q_heads + a.k_heads + a.v_heads;
        rows.qkv_publish(a, begin, end, 0, heads, scratch);
        scratch += (end - begin) * heads * a.head_dim;
      }
      return;
    }
    case PhaseKind::kAttention: {
      const auto range = attention_partial_of(call.attention, call.attention_plan, chunk);
      std::memcpy(partials_->data() + range.offset * sizeof(float),
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
