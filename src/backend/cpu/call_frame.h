// One run of a plan: the arguments of every kernel, and the steps cut into chunks for the thread pool.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/cpu/arena_layout.h"
#include "backend/cpu/attention.h"
#include "backend/cpu/delta_rule.h"
#include "backend/cpu/elementwise.h"
#include "backend/cpu/executable.h"
#include "backend/cpu/experts.h"
#include "backend/cpu/move.h"
#include "backend/cpu/ops/op_arguments.h"
#include "backend/cpu/ops/op_kernel.h"
#include "backend/cpu/row_kernels.h"
#include "coreai/base/thread_pool.h"

namespace coreai::cpu {

// Parts of a worker's scratch begin at whole lines.
inline std::size_t aligned64(std::size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

// What frames of one call share. A frame holds on to what it uses, so a larger block may replace one at any time.
struct CallMemory {
  std::shared_ptr<Storage> arena, digits, partials, sorted;
};

// A thread may still be inside a frame when its run has ended (RunEnd::kLeaveLate): bind() and the destructor need it
// drained. What such a thread reads may be overwritten by then, but it is the frame's own or kept alive by it.
class CallFrame final : public StepProgram {
 public:
  explicit CallFrame(const Executable& executable);

  // Binds every kernel to the arrays of a call; `values` are the plan's expressions, evaluated. Both must live until
  // the run ends.
  void bind(std::span<const std::int64_t> values, const CallArrays& arrays, CallMemory& memory);
  // Lets go of states and memory that others may want to free; no thread may be inside.
  void release();

  // The plan's step that a step of this program is a phase of.
  int plan_step(int phase) const { return phases_[static_cast<std::size_t>(phase)].step; }
  const ArenaLayout& arena_layout() const { return arena_layout_; }

  int step_count() const override { return static_cast<int>(phases_.size()); }
  StepInfo step_info(int step) const override;
  std::size_t scratch_bytes() const override { return scratch_bytes_; }
  void compute(int step, int chunk, const Worker& worker) override;
  void publish(int step, int chunk, const Worker& worker) override;

 private:
  enum class PhaseKind : std::uint8_t {
    kEmbedding,
    kNorm,
    kLayerNorm,
    kRowwise,
    kRopeTable,
    kQuantize,
    kLinear,
    kRoute,
    kGather,
    kExperts,
    kHeads,
    kAttention,
    kAttentionJoin,
    kDeltaRule,
    kCopy,
    kElementwise,
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
    LayerNormArgs layer_norm;
    SoftmaxArgs softmax;
    VectorNormArgs vector_norm;
    RopeTableArgs table;
    std::vector<QkvArgs> heads;
    AttentionArgs attention;
    AttentionPlan attention_plan;
    DeltaRuleArgs delta;
    ExpertProduct experts;
    const std::int32_t* ids = nullptr;
    std::vector<std::int32_t> own_ids;
    float* out = nullptr;  // embedding
    EwProgram program;
    EwBinding binding;
    // A copy within one element type.
    struct {
      Move move;
      const std::byte* in = nullptr;
      std::byte* out = nullptr;
      ItemCut cut;
    } copy;
    // A generic step with a kernel of its own, and its arrays.
    std::unique_ptr<OpKernel> op;
    std::vector<OpArray> op_in, op_out;
    std::vector<NDArray> op_host;  // operands that are shape arithmetic, by operand
    OpKernel::Cut op_cut;
  };

  void build_phases();
  void place_buffers(CallMemory& memory);
  void look_at_states();
  void reserve_shared(CallMemory& memory);
  std::byte* address(int buffer) const { return addresses_[static_cast<std::size_t>(buffer)]; }
  float* row_address(const compiler::Rows& rows, std::int64_t row) const;
  std::int64_t value(compiler::Expr e) const { return values_[static_cast<std::size_t>(e)]; }
  bool to_output(int buffer) const;

  void bind_step(int index);
  void bind_embedding(StepCall& call, const compiler::EmbeddingStep& step);
  void bind_norm(StepCall& call, const compiler::NormStep& step);
  void bind_layer_norm(StepCall& call, const compiler::LayerNormStep& step);
  void bind_rowwise(StepCall& call, const compiler::RowwiseStep& step);
  void bind_linear(StepCall& call, const compiler::LinearStep& step);
  void bind_experts(StepCall& call, const compiler::ExpertStep& step);
  void bind_table(StepCall& call, const compiler::RopeTableStep& step);
  void bind_heads(StepCall& call, const compiler::HeadsStep& step);
  void bind_attention(StepCall& call, const compiler::AttentionStep& step);
  void bind_delta_rule(StepCall& call, const compiler::DeltaRuleStep& step);
  void bind_elementwise(StepCall& call, const compiler::ElementwiseStep& step);
  void bind_copy(StepCall& call, const compiler::CopyStep& step);
  // A step by an OpKernel, which is called `where`.
  void bind_op(StepCall& call, std::span<const compiler::GenericOperand> inputs,
               std::span<const compiler::GenericOperand> outputs, std::string_view where);
  static std::int64_t rows_per_chunk(const Phase& phase, const StepCall& call);
  static bool cut_by_rows(PhaseKind kind);
  void cut(Phase& phase);
  std::size_t cut_linear(Phase& phase) const;
  std::size_t cut_attention(Phase& phase) const;
  std::size_t cut_delta_rule(Phase& phase) const;

  void embed(const StepCall& call, const compiler::EmbeddingStep& step, std::int64_t begin, std::int64_t end,
             float* out, std::int64_t stride) const;
  struct CopyAxes;
  CopyAxes copy_axes(const StepCall& call, const compiler::CopyStep& step) const;
  void copy(const compiler::CopyStep& step, const StepCall& call, int chunk);
  void generic(const compiler::GenericStep& step);
  Shape shape_of(const compiler::GenericOperand& operand) const;
  NDArray host_array(const compiler::GenericOperand& operand) const;

  const Executable& executable_;
  std::vector<Phase> phases_;
  std::vector<StepCall> calls_;
  std::vector<std::byte*> addresses_;
  std::vector<std::size_t> buffer_bytes_;
  ArenaLayout arena_layout_;
  CallMemory memory_;
  std::vector<KvBuffer> states_;  // looks at the caller's, which may change or go while a late chunk reads
  std::vector<std::shared_ptr<Storage>> plain_states_;  // as states_
  std::span<const std::int64_t> values_;
  const CallArrays* arrays_ = nullptr;
  std::int64_t last_rows_ = -1;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace coreai::cpu
