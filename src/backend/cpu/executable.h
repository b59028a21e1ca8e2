// Runs a plan on the CPU: kernels bound to steps, steps cut into chunks for the thread pool.
#pragma once

#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "backend/cpu/attention.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kv_buffer.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/packed_weights.h"
#include "backend/cpu/row_kernels.h"
#include "coreai/base/thread_pool.h"
#include "coreai/compiler/op_evaluator.h"
#include "coreai/compiler/plan.h"

namespace coreai::cpu {

// A plan with its weights. Immutable and thread-safe.
struct Executable {
  compiler::Plan plan;
  PackedWeights weights;
  const compiler::OpEvaluator* evaluator = nullptr;  // outlives every executable
  Digits digits = Digits::kFaithful;
  Isa isa = Isa::kPortable;
  int threads = 1;
};

// Arrays of one call. Extents and dtypes are checked by the caller; every guard of the plan holds.
struct CallArrays {
  std::span<const NDArray> inputs;
  std::span<KvBuffer* const> states;
  std::span<NDArray> outputs;
  std::int64_t last_rows = -1;  // of the output with a row axis; -1 = all
};

// The workspace of one caller: arena, arguments of every kernel, chunk counts. Allocates nothing once it has seen the
// largest extents. Not thread-safe.
class Call final : public StepProgram {
 public:
  Call(std::shared_ptr<const Executable> executable, std::shared_ptr<ThreadPool> pool);
  ~Call() override;

  // `values` are the plan's expressions, evaluated. Throws CancelledError, InvalidArgumentError (an id outside the
  // vocabulary) and what an operation without a fused kernel throws.
  void run(std::span<const std::int64_t> values, const CallArrays& arrays, std::stop_token stop);

  int step_count() const override { return static_cast<int>(phases_.size()); }
  StepInfo step_info(int step) const override;
  std::size_t scratch_bytes() const override { return scratch_bytes_; }
  void compute(int step, int chunk, const Worker& worker) override;
  void publish(int step, int chunk, const Worker& worker) override;

 private:
  enum class PhaseKind : std::uint8_t {
    kEmbedding,
    kNorm,
    kRopeTable,
    kQuantize,
    kLinear,
    kHeads,
    kAttention,
    kAttentionJoin,
    kCopy,
    kGeneric,
  };
  struct Phase {
    PhaseKind kind;
    int step;
    int chunks = 0;
    bool redoable = false;
    std::int64_t per_chunk = 1;  // rows or units
  };
  // Arguments of one plan step in this call.
  struct StepCall {
    std::int64_t row_begin = 0, rows = 0;  // rows computed
    LinearArgs linear;
    RmsNormArgs norm;
    RopeTableArgs table;
    std::vector<QkvArgs> heads;
    AttentionArgs attention;
    AttentionPlan attention_plan;
    const std::byte* ids = nullptr;
    float* out = nullptr;  // embedding
  };

  void build_phases();
  void place_buffers();
  std::byte* address(int buffer) const { return addresses_[static_cast<std::size_t>(buffer)]; }
  float* row_address(const compiler::Rows& rows, std::int64_t row) const;
  std::int64_t value(compiler::Expr e) const { return values_[static_cast<std::size_t>(e)]; }
  bool to_output(int buffer) const;

  void bind(int step_index);
  void bind_embedding(StepCall& call, const compiler::EmbeddingStep& step);
  void bind_norm(StepCall& call, const compiler::NormStep& step);
  void bind_linear(StepCall& call, const compiler::LinearStep& step);
  void bind_table(StepCall& call, const compiler::RopeTableStep& step);
  void bind_heads(StepCall& call, const compiler::HeadsStep& step);
  void bind_attention(StepCall& call, const compiler::AttentionStep& step);
  void cut(Phase& phase);

  void embed(const StepCall& call, const compiler::EmbeddingStep& step, std::int64_t begin, std::int64_t end,
             float* out, std::int64_t stride) const;
  void copy(const compiler::CopyStep& step, const StepCall& call);
  void generic(const compiler::GenericStep& step);

  std::shared_ptr<const Executable> executable_;
  std::shared_ptr<ThreadPool> pool_;
  std::vector<Phase> phases_;
  std::vector<StepCall> calls_;
  std::vector<std::byte*> addresses_;
  std::vector<std::size_t> slot_bytes_;
  std::shared_ptr<Storage> arena_, digits_, partials_;
  std::span<const std::int64_t> values_;
  const CallArrays* arrays_ = nullptr;
  std::int64_t last_rows_ = -1;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace coreai::cpu
