// The composite operations of a language model: `rms_norm`, `rope`, `scaled_dot_product_attention`. Each is a private
// graph with a complete body in primitives, shared by its calls; or, on request, the body written out at every call.
// Names, inputs, attributes and bodies follow what the reference's exporter writes (docs/aimodel-format.md).
#pragma once

#include <map>
#include <optional>
#include <string>

#include "exporter/graph_ops.h"

namespace coreai {

enum class CompositeForm { kGraphs, kWrittenOut };

struct RopeKind {
  double base = 10000.0;
  double scale = 1.0;  // of the positions: 1/factor of linear scaling
};
struct AttentionKind {
  std::optional<float> scale;  // absent: 1/sqrt(head dimension)
  std::int64_t window = 0;     // 0: none; else a query sees that many positions, itself included
};

class Composites {
 public:
  using V = GraphOps::V;
  Composites(GraphOps& ops, CompositeForm form) : ops_(ops), form_(form) {}

  // Graphs cannot be nested: what a later graph calls is declared before it begins. Idempotent.
  void declare_rms_norm(DType dtype, const Shape& shape, float eps);
  void declare_rope(DType dtype, const Shape& shape, const RopeKind& kind);
  void declare_attention(DType dtype, const Shape& query, const Shape& key, const AttentionKind& kind);

  // x times 1/sqrt(mean(x²) + eps) over the last axis, times `scale` (f32, last axis); computed in f32.
  V rms_norm(V x, V scale, float eps);
  // x [1, heads, q, d], positions si32 [1, q]: rotates the halves of d.
  V rope(V x, V positions, const RopeKind& kind);
  // query [1, H, q, d], key and value [1, KV, s, d], H a multiple of KV: causal, the last query sees all keys.
  V attention(V query, V key, V value, const AttentionKind& kind);

 private:
  V call(const std::string& key, const std::vector<V>& operands);
  void declare(const std::string& key, const ir::CompositeDecl& decl, const std::vector<ir::TypeRef>& inputs,
               ir::TypeRef output);
  V rms_norm_body(V x, V scale, float eps);
  V rope_body(V x, V positions, const RopeKind& kind);
  V attention_body(V query, V key, V value, const AttentionKind& kind);
  V repeat_heads(V kv, std::int64_t heads);
  V future_mask(V query_length, V key_length);
  V window_mask(V query_length, V key_length, std::int64_t window);

  GraphOps& ops_;
  CompositeForm form_;
  std::map<std::string, ir::Graph> graphs_;
};

}  // namespace coreai
