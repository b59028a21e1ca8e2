// From a graph to the steps of a plan: buffers and views for values, one emitter per kind of node.
#pragma once

#include <set>
#include <utility>

#include "compiler/passes.h"
#include "compiler/schedule.h"

namespace coreai::compiler {

inline constexpr std::size_t kMaxCopyRank = 16;

class Scheduler {
 public:
  Scheduler(Graph graph, const ScheduleOptions& options) : g_(std::move(graph)), options_(options) {}
  Plan run();

 private:
  struct BatchedMask {
    ScoreMask first;  // of batch 0
    Expr batch_stride = 0;
  };

  struct RopeTable {
    int buffer;
    Expr offset;
    std::vector<float> frequencies;
    int table;
  };

  // ---- states ----
  [[noreturn]] static void refuse_states(const char* reason);
  // A content must not be read after the store that replaces it, and the last content must be what the state keeps.
  void check_states();

  // ---- buffers and views ----
  Expr elements(ValueId v);
  int new_buffer(Buffer::Kind kind, DType dtype, Expr count, std::size_t index = 0);
  DType buffer_dtype(int buffer) const { return plan_.buffers[static_cast<std::size_t>(buffer)].dtype; }
  std::optional<View> find_view(ValueId v);
  View view(ValueId v);
  View constant_buffer(ValueId v);
  View contiguous_copy(const View& from, DType dtype);
  // The value as rows of its last axis, in f32.
  Rows rows_of(ValueId v);
  std::optional<Rows> as_rows(const View& view);
  Expr row_count(ValueId v);
  // A fresh f32 buffer for a value, row-major; its rows.
  Rows new_rows(ValueId v);
  void add_step(StepBody body, std::string name, Expr rows);
  // Layers share a packed matrix only when every part of it is the same.
  int add_weight(std::vector<WeightSource> sources, bool gated, bool stacked = false);

  // ---- nodes ----
  void emit(const Node& node);
  void emit_embedding(const Node& node);
  void emit_norm(const Node& node);
  void emit_layer_norm(const Node& node);
  void emit_rowwise(const Node& node);
  void emit_average_pool(const Node& node);
  void emit_gather_rows(const Node& node);
  void emit_linear(const Node& node);
  void emit_experts(const Node& node);
  void emit_delta_rule(const Node& node);
  // The value as f32 (or, when `any`, as it is stored) with the last `dense` axes without gaps.
  View dense_view(ValueId v, std::size_t dense, bool any = false);
  // The memory of `old`, a part of a state that `reader` reads, if all that becomes of its result `v` is that part's
  // next content and nothing else needs the old one.
  std::optional<View> state_in_place(const Node& reader, ValueId v, ValueId old);
  View stored_part(const Node& store);  // of the state
  bool read_later(const Node& node, const Node* but, ValueId content) const;
  // Whether two views are the same elements in the same order.
  bool is_same_memory(const View& a, const View& b);
  int rope_table(ValueId positions, const RopeParams& rope, Expr rows);
  // Heads of a projection [b, h, q, d] as rows of the first batch, in which its heads follow each other.
  struct HeadRows {
    Rows rows;
    Expr batch_stride;
  };
  HeadRows head_rows(View at, std::int64_t first_head, std::int64_t head_dim, std::int64_t heads);
  void emit_heads(const Node& node);
  // A buffer [q][h][d] for a value of any shape over (h, q, d).
  Rows head_buffer(ValueId v, std::int64_t heads, std::int64_t head_dim, Expr rows);
  std::vector<float> sinks_of(const Node& node, std::int64_t heads) const;
  // The mask of an attention as f32 rows without gaps.
  std::optional<BatchedMask> score_mask(const Node& node, Expr batch, Expr heads, Expr rows, Expr keys);
  // Layers share it.
  View mask_copy(const View& at);
  // Attention over plain values.
  void emit_plain_attention(const Node& node);
  void emit_attention(const Node& node);
  // The query is a buffer made by head_buffer.
  std::optional<Rows> as_head_rows(const View& q);
  void check_cache_slice(const Node& node, const StateSlice& s);

  // ---- chains of element-wise operations ----
  void emit_elementwise(const Node& node);
  ElementwiseOperand elementwise_operand(ValueId v, const std::vector<Expr>& extents);

  // ---- states in their declared layout ----
  void place_states();
  // In place: the new content is the old one's memory.
  void emit_store(const Node& node);
  // States that end with a value of their own, after everything that reads the old content.
  void write_whole_states();

  // ---- operations without a fused kernel ----
  void emit_op(const Node& node);
  // Elements in another grouping: in place where they have no gaps, else one copy.
  void reshape(const Node& node);
  GenericOperand generic_operand(ValueId v, DType declared);
  // The result `v` in a buffer of its own.
  GenericOperand generic_result(ValueId v);

  // ---- outputs ----
  void emit_outputs();
  Expr row_count_or_one(ValueId v) { return g_.value(v).shape.empty() ? g_.exprs.constant(1) : row_count(v); }
  int read_by_steps(int buffer) const;

  Graph g_;
  ScheduleOptions options_;
  Plan plan_;
  std::vector<std::optional<View>> views_;
  std::vector<RopeTable> tables_;
  std::vector<std::pair<View, View>> mask_copies_;
  std::set<int> keys_, values_;
  std::string composite_symbol_;  // of the node that is emitted
};

}  // namespace coreai::compiler
