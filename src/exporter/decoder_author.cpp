// The decoder graph of llama and gemma3, in the form of the reference's exports: see docs/aimodel-format.md.
#include <fmt/format.h>

#include <limits>

#include "coreai/base/error.h"
#include "coreai/exporter/llm_exporter.h"
#include "exporter/composites.h"
#include "exporter/llm_config.h"
#include "exporter/weights.h"

namespace coreai {
namespace {

using ir::OpCode;
using V = GraphOps::V;

constexpr std::int32_t kToTheEnd = std::numeric_limits<std::int32_t>::max();

std::int32_t i32(std::int64_t value) {
  return static_cast<std::int32_t>(value);
}

// A state: its handle, its token and the value that was read last.
struct Cache {
  V handle = nullptr, token = nullptr, value = nullptr;
};

class DecoderAuthor {
 public:
  DecoderAuthor(const GgufFile& file, const LlmExportOptions& options, const ExportProgress& progress,
                std::stop_token stop)
      : config_(read_decoder_config(file)),
        compute_(options.compute_precision),
        kv_(options.kv_precision.value_or(compute_ == DType::kBF16 ? DType::kBF16 : DType::kF16)),
        module_(std::make_unique<ir::Module>()),
        builder_(*module_),
        ops_(builder_),
        composites_(ops_, options.composites ? CompositeForm::kGraphs : CompositeForm::kWrittenOut),
        weights_(file, ops_, options, progress, std::move(stop)) {}

  std::unique_ptr<ir::Module> run() {
    declare_composites();
    begin_main();
    V x = embed();
    for (std::int64_t layer = 0; layer < config_.layers; ++layer) x = decoder_layer(x, layer);
    x = norm(x, "output_norm");
    V head = config_.tied_head ? embedding_ : weights_.matrix("output.weight", config_.vocab, config_.hidden);
    V logits = ops_.matmul(x, ops_.transpose(head, {1, 0}));
    if (compute_ == DType::kBF16) logits = ops_.cast(logits, DType::kF16);
    weights_.expect_all_used();
    builder_.end_graph({key_.token, value_.token, logits});
    return std::move(module_);
  }

 private:
  Shape heads_shape(std::int64_t heads) const { return Shape{1, heads, kDynamic, config_.head_dim}; }
  Shape rows_shape(std::int64_t width) const { return Shape{1, kDynamic, width}; }

  RopeKind rope_kind(std::int64_t layer) const {
    if (config_.windowed(layer)) return {config_.window_rope_base, 1.0};
    return {config_.rope_base, config_.rope_scale};
  }
  AttentionKind attention_kind(std::int64_t layer) const {
    return {config_.attention_scale, config_.windowed(layer) ? config_.window : 0};
  }

  void declare_composites() {
    const Shape query = heads_shape(config_.heads), key = heads_shape(config_.kv_heads);
    composites_.declare_rms_norm(compute_, rows_shape(config_.hidden), config_.norm_eps);
    if (config_.is_gemma()) {
      composites_.declare_rms_norm(compute_, query, config_.norm_eps);
      composites_.declare_rms_norm(compute_, key, config_.norm_eps);
    }
    for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
      composites_.declare_rope(compute_, query, rope_kind(layer));
      composites_.declare_rope(compute_, key, rope_kind(layer));
      composites_.declare_attention(compute_, query, key, attention_kind(layer));
    }
  }

  void begin_main() {
    ir::Context& context = builder_.context();
    const Shape cache{config_.layers, 1, config_.kv_heads, kDynamic, config_.head_dim};
    const ir::TypeRef tokens = context.tensor_type(DType::kSI32, Shape{1, kDynamic});
    cache_type_ = context.tensor_type(kv_, cache);
    const ir::TypeRef handle = context.handle_type(cache_type_);
    const DType logits = compute_ == DType::kF32 ? DType::kF32 : DType::kF16;
    ir::GraphSpec spec;
    spec.name = "main";
    spec.inputs = {{"input_ids", tokens, ""},
                   {"position_ids", tokens, ""},
                   {"keyCache", handle, "keyCache"},
                   {"valueCache", handle, "valueCache"}};
    spec.outputs = {{"keyCache", context.token_type(), ""},
                    {"valueCache", context.token_type(), ""},
                    {"logits", context.tensor_type(logits, rows_shape(config_.vocab)), ""}};
    const auto arguments = builder_.begin_graph(spec).body().arguments;
    ids_ = arguments[0];
    V positions = arguments[1];
    V token = builder_.op1(OpCode::kCreateToken, {}, context.token_type());
    value_ = read(arguments[3], token);
    key_ = read(arguments[2], token);
    new_length_ = ops_.extent(ops_.cast(ops_.shape_of(ids_), DType::kSI32), 1);
    all_length_ = ops_.extent(ops_.cast(ops_.shape_of(positions), DType::kSI32), 1);
    offset_ = ops_.sub(all_length_, new_length_);
    V start = ops_.concat({ops_.i32({0}), offset_}, Shape{2});
    V end = ops_.concat({ops_.i32({kToTheEnd}), all_length_}, Shape{2});
    new_positions_ = ops_.slice(positions, start, end, Shape{1, kDynamic});
  }

  Cache read(V handle, V token) {
    const auto results =
        builder_.op(OpCode::kReadHandle, {handle, token}, {cache_type_, builder_.context().token_type()});
    return {handle, results[1], results[0]};
  }

  V embed() {
    embedding_ = weights_.matrix("token_embd.weight", config_.vocab, config_.hidden);
    V x = builder_.op1(OpCode::kGatherNd, {embedding_, ops_.expand(ids_, 2)},
                       builder_.context().tensor_type(compute_, rows_shape(config_.hidden)));
    if (!config_.is_gemma()) return x;
    return ops_.mul(x, ops_.scalar(compute_, static_cast<double>(config_.embedding_scale)));
  }

  V norm(V x, const std::string& name) {
    const Shape& shape = x->type->shape();
    return composites_.rms_norm(x, weights_.vector(name + ".weight", shape[shape.rank() - 1]), config_.norm_eps);
  }

  V linear(V x, const std::string& name, std::int64_t out, std::int64_t in, const RowOrder& order = {}) {
    return ops_.matmul(x, ops_.transpose(weights_.matrix(name + ".weight", out, in, order), {1, 0}));
  }

  // [1, q, heads * d] to [1, heads, q, d].
  V split_heads(V x, std::int64_t heads) {
    V shape =
        ops_.concat({ops_.i32({1}), new_length_, ops_.i32({i32(heads)}), ops_.i32({i32(config_.head_dim)})}, Shape{4});
    return ops_.transpose(ops_.reshape(x, shape, Shape{1, kDynamic, heads, config_.head_dim}), {0, 2, 1, 3});
  }

  // Stores [1, kv, q, d] at positions s-q..s of the layer and gives back positions 0..s as [1, kv, s, d].
  V cached(Cache& cache, V fresh, std::int64_t layer) {
    V zero = ops_.i32({0}), one = ops_.i32({1});
    V start = ops_.concat({ops_.i32({i32(layer)}), zero, zero, offset_, zero}, Shape{5});
    V end = ops_.concat({ops_.i32({i32(layer + 1)}), one, ops_.i32({i32(config_.kv_heads)}), all_length_,
                         ops_.i32({i32(config_.head_dim)})},
                        Shape{5});
    V update = ops_.expand(ops_.cast(fresh, kv_), 0);
    V written = builder_.op1(OpCode::kSliceUpdate, {cache.value, start, end, ops_.ones(5), update}, cache_type_);
    V token = builder_.op1(OpCode::kWriteHandle, {cache.handle, written, cache.token}, builder_.context().token_type());
    cache = read(cache.handle, token);
    std::vector<std::int32_t> from(5, 0), to(5, kToTheEnd);
    from[0] = i32(layer);
    to[0] = i32(layer + 1);
    const Shape row{1, 1, config_.kv_heads, kDynamic, config_.head_dim};
    V slice = ops_.slice(cache.value, ops_.i32(from), ops_.i32(to), row);
    V length = ops_.concat({ops_.i32({kToTheEnd, kToTheEnd, kToTheEnd}), all_length_, ops_.i32({kToTheEnd})}, Shape{5});
    return ops_.cast(ops_.shrink(ops_.slice(slice, ops_.zeros(5), length, row), 0), compute_);
  }

  V attention(V x, const std::string& prefix, std::int64_t layer) {
    const std::int64_t width = config_.heads * config_.head_dim, kv_width = config_.kv_heads * config_.head_dim;
    const RowOrder order{config_.is_gemma() ? 0 : config_.head_dim};
    V query = split_heads(linear(x, prefix + "attn_q", width, config_.hidden, order), config_.heads);
    V key = split_heads(linear(x, prefix + "attn_k", kv_width, config_.hidden, order), config_.kv_heads);
    V value = split_heads(linear(x, prefix + "attn_v", kv_width, config_.hidden), config_.kv_heads);
    if (config_.is_gemma()) {
      query = norm(query, prefix + "attn_q_norm");
      key = norm(key, prefix + "attn_k_norm");
    }
    query = composites_.rope(query, new_positions_, rope_kind(layer));
    key = composites_.rope(key, new_positions_, rope_kind(layer));
    V keys = cached(key_, key, layer);
    V values = cached(value_, value, layer);
    V mixed = ops_.transpose(composites_.attention(query, keys, values, attention_kind(layer)), {0, 2, 1, 3});
    V flat_shape = ops_.concat({new_length_, ops_.i32({i32(width)})}, Shape{2});
    V flat = ops_.reshape(mixed, flat_shape, Shape{kDynamic, width});
    return linear(flat, prefix + "attn_output", config_.hidden, width);
  }

  V feed_forward(V x, const std::string& prefix) {
    V up = linear(x, prefix + "ffn_up", config_.ffn, config_.hidden);
    V gate = linear(x, prefix + "ffn_gate", config_.ffn, config_.hidden);
    if (config_.is_gemma()) {
      const ir::AttrRef tanh = builder_.context().enum_attr(ir::AttrCode::kApproximate, 1);
      gate = builder_.op1(OpCode::kGelu, {gate}, gate->type, {{"approximate", tanh}});
    } else {
      gate = ops_.same(OpCode::kSilu, gate);
    }
    return linear(ops_.mul(up, gate), prefix + "ffn_down", config_.hidden, config_.ffn);
  }

  V decoder_layer(V x, std::int64_t layer) {
    const std::string prefix = fmt::format("blk.{}.", layer);
    V mixed = attention(norm(x, prefix + "attn_norm"), prefix, layer);
    if (config_.is_gemma()) {
      V shape = ops_.concat({ops_.i32({1}), new_length_, ops_.i32({i32(config_.hidden)})}, Shape{3});
      mixed = norm(ops_.reshape(mixed, shape, rows_shape(config_.hidden)), prefix + "post_attention_norm");
    }
    x = ops_.add(x, mixed);
    V fed = feed_forward(norm(x, prefix + "ffn_norm"), prefix);
    if (config_.is_gemma()) fed = norm(fed, prefix + "post_ffw_norm");
    return ops_.add(x, fed);
  }

  const DecoderConfig config_;
  const DType compute_, kv_;
  std::unique_ptr<ir::Module> module_;
  ir::Builder builder_;
  GraphOps ops_;
  Composites composites_;
  WeightSource weights_;
  ir::TypeRef cache_type_ = nullptr;
  V ids_ = nullptr, new_positions_ = nullptr, embedding_ = nullptr;
  V new_length_ = nullptr, all_length_ = nullptr, offset_ = nullptr;  // si32 [1]: q, s, s - q
  Cache key_, value_;
};

}  // namespace

std::unique_ptr<ir::Module> author_decoder(const GgufFile& file, const LlmExportOptions& options,
                                           const ExportProgress& progress, std::stop_token stop) {
  options.validate();
  return DecoderAuthor(file, options, progress, std::move(stop)).run();
}

}  // namespace coreai
