#include "exporter/composites.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "coreai/base/error.h"
#include "coreai/base/mapped_file.h"

namespace coreai {
namespace {

using ir::OpCode;
using V = GraphOps::V;

constexpr std::int32_t kToTheEnd = std::numeric_limits<std::int32_t>::max();
constexpr double kMasked = -1e4;  // what the reference adds where a key must not be seen

std::string rms_norm_key(DType dtype, const Shape& shape, float eps) {
  return fmt::format("rms_norm {} {} {}", dtype_name(dtype), shape.to_string(), eps);
}
std::string rope_key(DType dtype, const Shape& shape, const RopeKind& kind) {
  return fmt::format("rope {} {} {} {}", dtype_name(dtype), shape.to_string(), kind.base, kind.scale);
}
std::string attention_key(DType dtype, const Shape& query, const Shape& key, const AttentionKind& kind) {
  return fmt::format("sdpa {} {} {} {} {}", dtype_name(dtype), query.to_string(), key.to_string(),
                     kind.scale ? fmt::format("{}", *kind.scale) : "default", kind.window);
}

// Four extents with `value` at `axis` and `fill` elsewhere.
std::vector<std::int32_t> four(std::size_t axis, std::int64_t value, std::int32_t fill) {
  std::vector<std::int32_t> out(4, fill);
  out[axis] = static_cast<std::int32_t>(value);
  return out;
}

Shape with_last(const Shape& shape, std::int64_t last) {
  Shape out = shape;
  out[out.rank() - 1] = last;
  return out;
}

}  // namespace

V Composites::call(const std::string& key, const std::vector<V>& operands) {
  return ops_.builder().invoke(graphs_.at(key), operands).front();
}

// The name ends in a digest of what makes the graph distinct: equal exports give equal files.
void Composites::declare(const std::string& key, const ir::CompositeDecl& decl, const std::vector<ir::TypeRef>& inputs,
                         ir::TypeRef output) {
  const auto digest = sha256(std::as_bytes(std::span(key.data(), key.size())));
  ir::GraphSpec spec;
  spec.name = fmt::format("{}_{}", decl.name, to_hex(std::span(digest).first(4)));
  for (std::size_t i = 0; i < inputs.size(); ++i) spec.inputs.push_back({decl.input_names[i], inputs[i], ""});
  spec.outputs = {{decl.output_names.front(), output, ""}};
  spec.is_private = true;
  spec.no_inline = true;
  spec.composite = decl;
  graphs_.emplace(key, ops_.builder().begin_graph(spec));
}

void Composites::declare_rms_norm(DType dtype, const Shape& shape, float eps) {
  const std::string key = rms_norm_key(dtype, shape, eps);
  if (form_ == CompositeForm::kWrittenOut || graphs_.contains(key)) return;
  ir::Context& context = ops_.builder().context();
  const ir::TypeRef type = context.tensor_type(dtype, shape);
  const ir::CompositeDecl decl = {
      "rms_norm",
      {"input", "scale"},
      {"output"},
      {{"axes", context.integer_attr(-1)}, {"eps", context.float_attr(eps)}, {"version", context.integer_attr(1)}}};
  declare(key, decl, {type, context.tensor_type(DType::kF32, Shape{shape[shape.rank() - 1]})}, type);
  const auto& args = graphs_.at(key).body().arguments;
  ops_.builder().end_graph({rms_norm_body(args[0], args[1], eps)});
}

void Composites::declare_rope(DType dtype, const Shape& shape, const RopeKind& kind) {
  const std::string key = rope_key(dtype, shape, kind);
  if (form_ == CompositeForm::kWrittenOut || graphs_.contains(key)) return;
  ir::Context& context = ops_.builder().context();
  const ir::TypeRef type = context.tensor_type(dtype, shape);
  const ir::CompositeDecl decl = {"rope",
                                  {"input", "position_ids"},
                                  {"output"},
                                  {{"base", context.float_attr(kind.base)},
                                   {"interleaved", context.bool_attr(false)},
                                   {"scale", context.float_attr(kind.scale)},
                                   {"version", context.integer_attr(1)}}};
  declare(key, decl, {type, context.tensor_type(DType::kSI32, Shape{1, shape[2]})}, type);
  const auto& args = graphs_.at(key).body().arguments;
  ops_.builder().end_graph({rope_body(args[0], args[1], kind)});
}

void Composites::declare_attention(DType dtype, const Shape& query, const Shape& key, const AttentionKind& kind) {
  const std::string name = attention_key(dtype, query, key, kind);
  if (form_ == CompositeForm::kWrittenOut || graphs_.contains(name)) return;
  ir::Context& context = ops_.builder().context();
  ir::CompositeDecl decl = {"scaled_dot_product_attention",
                            {"query", "key", "value"},
                            {"output"},
                            {{"is_causal", context.bool_attr(true)},
                             {"version", context.integer_attr(1)},
                             {"window_size", context.integer_attr(kind.window)}}};
  if (kind.scale) decl.attributes.emplace_back("scale", context.float_attr(*kind.scale));
  const ir::TypeRef query_type = context.tensor_type(dtype, query), key_type = context.tensor_type(dtype, key);
  declare(name, decl, {query_type, key_type, key_type}, query_type);
  const auto& args = graphs_.at(name).body().arguments;
  ops_.builder().end_graph({attention_body(args[0], args[1], args[2], kind)});
}

V Composites::rms_norm(V x, V scale, float eps) {
  if (form_ == CompositeForm::kWrittenOut) return rms_norm_body(x, scale, eps);
  return call(rms_norm_key(x->type->dtype(), x->type->shape(), eps), {x, scale});
}

V Composites::rope(V x, V positions, const RopeKind& kind) {
  if (form_ == CompositeForm::kWrittenOut) return rope_body(x, positions, kind);
  return call(rope_key(x->type->dtype(), x->type->shape(), kind), {x, positions});
}

V Composites::attention(V query, V key, V value, const AttentionKind& kind) {
  if (form_ == CompositeForm::kWrittenOut) return attention_body(query, key, value, kind);
  return call(attention_key(query->type->dtype(), query->type->shape(), key->type->shape(), kind), {query, key, value});
}

V Composites::rms_norm_body(V x, V scale, float eps) {
  const Shape& shape = x->type->shape();
  V wide = ops_.cast(x, DType::kF32);
  const auto last = static_cast<std::int32_t>(shape.rank()) - 1;
  V mean = ops_.builder().op1(OpCode::kReduceMean, {ops_.mul(wide, wide), ops_.i32({last})},
                              ops_.builder().context().tensor_type(DType::kF32, with_last(shape, 1)));
  V factor = ops_.same(OpCode::kRsqrt, ops_.add(mean, ops_.scalar(DType::kF32, eps)));
  return ops_.cast(ops_.mul(ops_.mul(wide, factor), scale), x->type->dtype());
}

V Composites::rope_body(V x, V positions, const RopeKind& kind) {
  const Shape shape = x->type->shape();
  const DType dtype = x->type->dtype();
  const std::int64_t d = shape[3], half = d / 2;
  std::vector<float> frequencies(static_cast<std::size_t>(half));
  for (std::int64_t i = 0; i < half; ++i)
    frequencies[static_cast<std::size_t>(i)] =
        static_cast<float>(std::pow(kind.base, -static_cast<double>(i) / static_cast<double>(half)));
  V frequency = ops_.builder().constant(NDArray::from<float>(DType::kF32, Shape{half}, frequencies));
  V position = ops_.expand(ops_.cast(ops_.expand(positions, 1), DType::kF32), -1);
  if (kind.scale != 1.0) position = ops_.mul(position, ops_.scalar(DType::kF32, kind.scale));
  V angle = ops_.mul(position, frequency);
  V cosine = ops_.cast(ops_.same(OpCode::kCos, angle), dtype);
  V sine = ops_.cast(ops_.same(OpCode::kSin, angle), dtype);
  const Shape half_shape = with_last(shape, half);
  V a = ops_.slice(x, ops_.zeros(4), ops_.i32(four(3, half, kToTheEnd)), half_shape);
  V b = ops_.slice(x, ops_.i32(four(3, half, 0)), ops_.i32(four(3, d, kToTheEnd)), half_shape);
  V first = ops_.sub(ops_.mul(cosine, a), ops_.mul(sine, b));
  V second = ops_.add(ops_.mul(sine, a), ops_.mul(cosine, b));
  return ops_.concat({first, second}, shape, 3);
}

// [1, KV, s, d] to [1, heads, s, d]: head h reads group h / (heads / KV).
V Composites::repeat_heads(V kv, std::int64_t heads) {
  const Shape shape = kv->type->shape();
  std::vector<std::int32_t> group(static_cast<std::size_t>(heads));
  for (std::int64_t h = 0; h < heads; ++h)
    group[static_cast<std::size_t>(h)] = static_cast<std::int32_t>(h / (heads / shape[1]));
  V index = ops_.builder().constant(NDArray::from<std::int32_t>(DType::kSI32, Shape{1, heads, 1, 1}, group));
  V extents = ops_.shape_of(kv);
  V sizes = ops_.concat({ops_.extent(extents, 0), ops_.extent(extents, 2), ops_.extent(extents, 3)}, Shape{3});
  const Shape result{1, heads, shape[2], shape[3]};
  ir::Context& context = ops_.builder().context();
  V indices = ops_.builder().op1(OpCode::kBroadcastInDims, {index, sizes, ops_.i32({0, 2, 3})},
                                 context.tensor_type(DType::kSI32, result));
  return ops_.builder().op1(OpCode::kGatherAlongAxis, {kv, indices, ops_.builder().scalar_i32(1)},
                            context.tensor_type(kv->type->dtype(), result));
}

// i1 [q, s], true where key position <= query position; the queries are the last q of s positions.
V Composites::future_mask(V query_length, V key_length) {
  ir::Builder& builder = ops_.builder();
  const ir::TypeRef vector = builder.context().tensor_type(DType::kSI32, Shape{kDynamic});
  V empty = builder.constant_u32({});
  V start = ops_.reshape(ops_.sub(key_length, query_length), empty, Shape{});
  V end = ops_.reshape(key_length, empty, Shape{});
  V one = builder.scalar_i32(1);
  V queries = builder.op1(OpCode::kRange, {start, end, one}, vector);
  V keys = builder.op1(OpCode::kRange, {builder.scalar_i32(0), end, one}, vector);
  queries = ops_.expand(ops_.slice(queries, ops_.i32({0}), ops_.i32({kToTheEnd}), Shape{kDynamic}), 1);
  keys = ops_.slice(ops_.expand(keys, 0), ops_.zeros(2), ops_.i32({kToTheEnd, kToTheEnd}), Shape{1, kDynamic});
  return ops_.same(OpCode::kNot, ops_.greater(keys, queries));
}

// The same, and false where the key is `window` or more positions behind the query. The reference's exporter subtracts
// from the offset instead; its interpreter fails on that form from the fourth windowed layer on, not on this one.
V Composites::window_mask(V query_length, V key_length, std::int64_t window) {
  ir::Builder& builder = ops_.builder();
  const ir::TypeRef vector = builder.context().tensor_type(DType::kSI32, Shape{kDynamic});
  V empty = builder.constant_u32({});
  V start = ops_.reshape(ops_.sub(key_length, query_length), empty, Shape{});
  V end = ops_.reshape(key_length, empty, Shape{});
  V one = builder.scalar_i32(1);
  V queries = ops_.expand(builder.op1(OpCode::kRange, {start, end, one}, vector), 1);
  V keys = ops_.expand(builder.op1(OpCode::kRange, {builder.scalar_i32(0), end, one}, vector), 0);
  V seen = ops_.same(OpCode::kNot, ops_.greater(keys, queries));
  V shifted = ops_.add(keys, builder.scalar_i32(static_cast<std::int32_t>(window)));
  V behind = ops_.same(OpCode::kNot, ops_.greater(shifted, queries));
  return ops_.binary(OpCode::kBroadcastingLogicalXor, seen, behind);
}

V Composites::attention_body(V query, V key, V value, const AttentionKind& kind) {
  ir::Builder& builder = ops_.builder();
  const Shape shape = query->type->shape();
  const DType dtype = query->type->dtype();
  const std::int64_t heads = shape[1], d = shape[3], q = shape[2], s = key->type->shape()[2];
  V query_length = ops_.extent(ops_.cast(ops_.shape_of(query), DType::kSI32), 2);
  V key_length = ops_.extent(ops_.cast(ops_.shape_of(key), DType::kSI32), 2);
  V seen = kind.window > 0 ? window_mask(query_length, key_length, kind.window) : future_mask(query_length, key_length);
  V keys = repeat_heads(key, heads), values = repeat_heads(value, heads);
  const double scale = kind.scale ? static_cast<double>(*kind.scale) : 1.0 / std::sqrt(static_cast<double>(d));
  V scaled = ops_.cast(ops_.mul(ops_.cast(query, DType::kF32), ops_.scalar(DType::kF32, scale)), dtype);
  V heads_u = builder.constant_u32({static_cast<std::uint32_t>(heads)}),
    d_u = builder.constant_u32({static_cast<std::uint32_t>(d)});
  V one_u = builder.constant_u32({1});
  V q_u = ops_.cast(query_length, DType::kUI32), s_u = ops_.cast(key_length, DType::kUI32);
  const auto wide = [&](V x, V rows, V columns) {
    return ops_.broadcast_to(x, ops_.concat({one_u, heads_u, rows, columns}, Shape{4}), x->type->shape());
  };
  V scores = ops_.matmul(wide(scaled, q_u, d_u), wide(ops_.transpose(keys, {0, 1, 3, 2}), d_u, s_u));
  V hidden = ops_.cast(ops_.same(OpCode::kNot, seen), DType::kF32);
  V bias = ops_.cast(ops_.mul(hidden, ops_.scalar(DType::kF32, kMasked)), dtype);
  V one = ops_.i32({1}), heads_i = ops_.i32({static_cast<std::int32_t>(heads)}),
    d_i = ops_.i32({static_cast<std::int32_t>(d)});
  scores = ops_.add(scores, bias);
  scores = ops_.reshape(scores, ops_.concat({one, heads_i, query_length, key_length}, Shape{4}), Shape{1, heads, q, s});
  V weights = wide(ops_.softmax_last(scores), q_u, s_u);
  weights = ops_.reshape(weights, ops_.concat({heads_i, query_length, key_length}, Shape{3}), Shape{heads, q, s});
  V flat = ops_.reshape(wide(values, s_u, d_u), ops_.concat({heads_i, key_length, d_i}, Shape{3}), Shape{heads, s, d});
  V out = ops_.matmul(weights, flat);
  return ops_.reshape(out, ops_.concat({one, heads_i, query_length, d_i}, Shape{4}), shape);
}

}  // namespace coreai
