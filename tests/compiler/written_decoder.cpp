#include "compiler/written_decoder.h"

#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>

#include "exporter/graph_ops.h"

namespace coreai::testing_support {
namespace {

using ir::OpCode;
using V = GraphOps::V;

constexpr std::int32_t kEnd = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kVocabulary = 48, kHidden = 32, kHeads = 4, kKeyHeads = 2, kDim = 8;

Shape with_last(const Shape& shape, std::int64_t last) {
  Shape out = shape;
  out[out.rank() - 1] = last;
  return out;
}

class Author {
 public:
  explicit Author(std::string form)
      : form_(std::move(form)), module_(std::make_unique<ir::Module>()), builder_(*module_), ops_(builder_) {}

  std::unique_ptr<ir::Module> run() {
    begin();
    V x = builder_.op1(OpCode::kGatherNd, {matrix(kVocabulary, kHidden), ops_.expand(ids_, 2)}, rows(kHidden));
    x = ops_.add(x, attention_layer(norm(x)));
    V logits = ops_.matmul(norm(x), ops_.transpose(matrix(kVocabulary, kHidden), {1, 0}));
    builder_.end_graph({key_token_, value_token_, logits});
    if (!form_.empty() && !asked_) throw std::invalid_argument("no form is called " + form_);
    return std::move(module_);
  }

 private:
  bool is(const std::string& name) {
    asked_ = asked_ || form_ == name;
    return form_ == name;
  }
  ir::TypeRef type(DType dtype, const Shape& shape) { return builder_.context().tensor_type(dtype, shape); }
  ir::TypeRef rows(std::int64_t width) { return type(DType::kF32, Shape{1, kDynamic, width}); }
  V op(OpCode code, std::vector<V> operands, DType dtype, const Shape& shape) {
    return builder_.op1(code, std::move(operands), type(dtype, shape));
  }
  V f32(double value) { return ops_.scalar(DType::kF32, value); }
  V vector(const std::vector<float>& values) {
    return builder_.constant(
        NDArray::from<float>(DType::kF32, Shape{static_cast<std::int64_t>(values.size())}, values));
  }

  V matrix(std::int64_t out, std::int64_t in) {
    std::vector<float> values(static_cast<std::size_t>(out * in));
    std::normal_distribution<float> normal(0, 1.5f / std::sqrt(static_cast<float>(in)));
    for (float& v : values) v = normal(random_);
    return builder_.constant(NDArray::from<float>(DType::kF32, Shape{out, in}, values));
  }

  void begin() {
    const ir::TypeRef tokens = type(DType::kSI32, Shape{1, kDynamic});
    cache_ = type(DType::kF32, Shape{1, 1, kKeyHeads, kDynamic, kDim});
    const ir::TypeRef handle = builder_.context().handle_type(cache_), token = builder_.context().token_type();
    ir::GraphSpec spec;
    spec.name = "main";
    spec.inputs = {{"input_ids", tokens, ""},
                   {"position_ids", tokens, ""},
                   {"keyCache", handle, "keyCache"},
                   {"valueCache", handle, "valueCache"}};
    spec.outputs = {{"keyCache", token, ""}, {"valueCache", token, ""}, {"logits", rows(kVocabulary), ""}};
    const auto arguments = builder_.begin_graph(spec).body().arguments;
    ids_ = arguments[0];
    positions_ = arguments[1];
    key_handle_ = arguments[2];
    value_handle_ = arguments[3];
    key_token_ = value_token_ = builder_.op1(OpCode::kCreateToken, {}, token);
    new_ = length_of(ids_, 1);
    all_ = length_of(positions_, 1);
    old_ = ops_.sub(all_, new_);
    new_positions_ = ops_.slice(positions_, ops_.concat({ops_.i32({0}), old_}, Shape{2}),
                                ops_.concat({ops_.i32({kEnd}), all_}, Shape{2}), Shape{1, kDynamic});
  }
  V length_of(V x, std::int32_t axis) { return ops_.extent(ops_.cast(ops_.shape_of(x), DType::kSI32), axis); }

  // ---- norm ----

  V norm(V x) {
    const Shape mean_shape{1, kDynamic, 1};
    V squares = is("squares by power") ? ops_.binary(OpCode::kBroadcastingPow, x, f32(2)) : ops_.mul(x, x);
    if (is("squares of another value")) squares = ops_.mul(x, ops_.add(x, f32(1)));
    V mean = nullptr;
    if (is("sum of squares")) {
      mean = op(OpCode::kReduceSum, {squares, ops_.i32({2})}, DType::kF32, mean_shape);
    } else if (is("mean over rows")) {
      mean = op(OpCode::kReduceMean, {squares, ops_.i32({1})}, DType::kF32, Shape{1, 1, kHidden});
    } else {
      mean = op(OpCode::kReduceMean, {squares, ops_.i32({is("negative axis") ? -1 : 2})}, DType::kF32, mean_shape);
    }
    V eps = f32(0.25);
    V normed = nullptr;
    if (is("quotient by the root")) {
      normed = ops_.binary(OpCode::kBroadcastingDivide, x, ops_.same(OpCode::kSqrt, ops_.add(mean, eps)));
    } else if (is("quotient by the mean square")) {
      normed = ops_.binary(OpCode::kBroadcastingDivide, x, ops_.add(mean, eps));
    } else if (is("normed value in 8 bits")) {
      normed = ops_.mul(ops_.cast(ops_.cast(x, DType::kF8E4M3FN), DType::kF32), factor(mean, eps));
    } else if (is("factor first")) {
      normed = ops_.mul(factor(mean, eps), x);
    } else {
      normed = ops_.mul(x, factor(mean, eps));
    }
    if (is("one scale")) return ops_.mul(normed, builder_.splat(DType::kF32, Shape{1}, 0.5));
    V scale = vector(std::vector<float>(kHidden, 0.8f));
    return is("scale first") ? ops_.mul(scale, normed) : ops_.mul(normed, scale);
  }

  V factor(V mean, V eps) {
    if (is("eps after the root")) return ops_.add(ops_.same(OpCode::kRsqrt, mean), eps);
    if (is("eps inside the mean twice")) eps = ops_.add(mean, eps);
    V inside = is("eps first") ? ops_.add(eps, mean) : ops_.add(mean, eps);
    if (is("reciprocal by power")) return ops_.binary(OpCode::kBroadcastingPow, inside, f32(-0.5));
    if (is("reciprocal by quotient"))
      return ops_.binary(OpCode::kBroadcastingDivide, f32(1), ops_.same(OpCode::kSqrt, inside));
    return ops_.same(OpCode::kRsqrt, inside);
  }

  // ---- rotation ----

  V part(V x, std::int64_t from, std::int64_t to) {
    const Shape shape = with_last(x->type->shape(), to - from);
    const auto at = [](std::int64_t last, std::int32_t other) {
      return std::vector<std::int32_t>{other, other, other, static_cast<std::int32_t>(last)};
    };
    return ops_.slice(x, ops_.i32(at(from, 0)), ops_.i32(at(to, kEnd)), shape);
  }

  V rope(V x) {
    of_query_ = x->type->shape()[1] == kHeads;  // what shifts or permutes both sides alike changes no score
    if (is("rotation of a part, nested")) return joined(rotated(part(x, 0, 6), 3), part(x, 6, kDim));
    if (is("rotation of a part")) return rotated(x, 3, part(x, 6, kDim));
    if (is("rotation with the wrong rest")) return rotated(x, 3, part(x, 5, kDim - 1));
    return rotated(x, kDim / 2);
  }
  V joined(V a, V b) {
    const std::int64_t width = a->type->shape()[3] + b->type->shape()[3];
    return ops_.concat({a, b}, with_last(a->type->shape(), width), 3);
  }

  V angles(std::int64_t half) {
    std::vector<float> frequencies;
    for (std::int64_t i = 0; i < half; ++i) frequencies.push_back(1.0f / static_cast<float>(1 + 3 * i));
    V position = ops_.cast(ops_.expand(ops_.expand(new_positions_, 1), 3), DType::kF32);
    if (is("scaled positions")) position = ops_.mul(position, f32(0.125));
    if (is("positions in 8 bits")) position = ops_.cast(ops_.cast(position, DType::kF8E4M3FN), DType::kF32);
    if (is("shifted positions") && of_query_) position = ops_.add(position, f32(1.5));
    if (is("angles in bf16"))
      return ops_.mul(ops_.cast(position, DType::kBF16), ops_.cast(vector(frequencies), DType::kBF16));
    return ops_.mul(position, vector(frequencies));
  }

  V rotated(V x, std::int64_t half, V rest = nullptr) {
    V angle = angles(half);
    V sine = ops_.cast(ops_.same(OpCode::kSin, angle), DType::kF32);
    if (is("cosine of other angles")) angle = ops_.mul(angle, f32(2));
    V cosine = ops_.cast(ops_.same(OpCode::kCos, angle), DType::kF32);
    V a = part(x, 0, half), b = part(x, half, 2 * half);
    V first = ops_.sub(ops_.mul(a, cosine), ops_.mul(b, sine));
    V second = ops_.add(ops_.mul(b, cosine), ops_.mul(a, sine));
    if (is("rotation factors exchanged")) {
      first = ops_.sub(ops_.mul(cosine, a), ops_.mul(sine, b));
      second = ops_.add(ops_.mul(sine, a), ops_.mul(cosine, b));
    }
    if (is("rotation backwards")) {
      first = ops_.add(ops_.mul(a, cosine), ops_.mul(b, sine));
      second = ops_.sub(ops_.mul(b, cosine), ops_.mul(a, sine));
    }
    if (is("halves exchanged") && of_query_) std::swap(first, second);
    std::vector<V> parts = {first, second};
    if (rest) parts.push_back(rest);
    return ops_.concat(parts, x->type->shape(), 3);
  }

  // ---- attention ----

  V heads(V x, std::int64_t count) {
    V projected = ops_.matmul(x, ops_.transpose(matrix(count * kDim, kHidden), {1, 0}));
    V shape = ops_.i32({1, -1, static_cast<std::int32_t>(count), static_cast<std::int32_t>(kDim)});
    return ops_.transpose(ops_.reshape(projected, shape, Shape{1, kDynamic, count, kDim}), {0, 2, 1, 3});
  }

  V cached(V handle, V& token, V fresh) {
    const ir::TypeRef token_type = builder_.context().token_type();
    const auto content = [&] { return builder_.op(OpCode::kReadHandle, {handle, token}, {cache_, token_type}); };
    V zero = ops_.i32({0}), one = ops_.i32({1}), heads = ops_.i32({kKeyHeads}), dim = ops_.i32({kDim});
    V start = ops_.concat({zero, zero, zero, old_, zero}, Shape{5});
    V end = ops_.concat({one, one, heads, all_, dim}, Shape{5});
    auto before = content();
    V written =
        builder_.op1(OpCode::kSliceUpdate, {before[0], start, end, ops_.ones(5), ops_.expand(fresh, 0)}, cache_);
    token = builder_.op1(OpCode::kWriteHandle, {handle, written, before[1]}, token_type);
    auto after = content();
    token = after[1];
    const std::int32_t first = is("first key left out") ? 1 : 0;
    V part = ops_.slice(after[0], ops_.i32({0, 0, 0, first, 0}), end, Shape{1, 1, kKeyHeads, kDynamic, kDim});
    return ops_.shrink(part, 0);
  }

  V attention_layer(V x) {
    V query = rope(heads(x, kHeads)), key = rope(heads(x, kKeyHeads)), value = heads(x, kKeyHeads);
    if (is("without a cache") || is("without a cache, heads in rank 3")) return output_of(plain_attention(x));
    V keys = cached(key_handle_, key_token_, key), values = cached(value_handle_, value_token_, value);
    if (is("values are keys")) values = keys;
    return output_of(attention(query, keys, values));
  }

  // Neither rotated nor stored: nothing of it is heads of a state.
  V plain_attention(V x) { return attention(heads(x, kHeads), heads(x, kKeyHeads), heads(x, kKeyHeads)); }

  V output_of(V heads_of_rows) {
    V mixed = ops_.transpose(heads_of_rows, {0, 2, 1, 3});
    V flat = ops_.reshape(mixed, ops_.i32({1, -1, kHeads * kDim}), Shape{1, kDynamic, kHeads * kDim});
    return ops_.matmul(flat, ops_.transpose(matrix(kHidden, kHeads * kDim), {1, 0}));
  }

  V range(V start, V end) {
    V empty = builder_.constant_u32({});
    return op(OpCode::kRange,
              {ops_.reshape(start, empty, Shape{}), ops_.reshape(end, empty, Shape{}), builder_.scalar_i32(1)},
              DType::kSI32, Shape{kDynamic});
  }

  // i1 [q, s], true where a key is hidden.
  V hidden(V key_length) {
    V start = is("mask from the upper left") ? ops_.i32({0}) : ops_.sub(key_length, new_);
    V queries = ops_.expand(range(start, ops_.add(start, new_)), 1),
      keys = ops_.expand(range(ops_.i32({0}), key_length), 0);
    const auto negate = [&](V mask) { return ops_.same(OpCode::kNot, mask); };
    const auto at_least = [&](V a, V b) { return negate(ops_.greater(b, a)); };
    if (is("mask of positions")) return of_positions(new_positions_);
    if (is("mask of the first positions")) {
      V end = ops_.concat({ops_.i32({kEnd}), new_}, Shape{2});
      return of_positions(ops_.slice(positions_, ops_.zeros(2), end, Shape{1, kDynamic}));
    }
    V later = ops_.greater(keys, queries);
    if (is("mask of a long chain")) {
      for (int i = 0; i < 50; ++i) later = ops_.binary(OpCode::kBroadcastingLogicalAnd, later, later);
    }
    if (is("mask of the past")) return ops_.greater(queries, keys);
    if (is("mask of the diagonal too")) return at_least(keys, queries);
    if (is("mask one too late")) return ops_.greater(keys, ops_.add(queries, builder_.scalar_i32(1)));
    if (is("mask by or")) {
      V seen = ops_.binary(OpCode::kBroadcastingLogicalOr, ops_.greater(queries, keys),
                           ops_.binary(OpCode::kBroadcastingEqual, queries, keys));
      return negate(seen);
    }
    const auto behind = [&](std::int32_t n) { return at_least(queries, ops_.add(keys, builder_.scalar_i32(n))); };
    if (is("window")) return ops_.binary(OpCode::kBroadcastingLogicalOr, later, behind(3));
    if (is("window by exclusive or"))
      return negate(ops_.binary(OpCode::kBroadcastingLogicalXor, negate(later), behind(3)));
    if (is("window with a hole")) {
      V hole = ops_.binary(OpCode::kBroadcastingLogicalAnd, behind(2), negate(behind(3)));
      return ops_.binary(OpCode::kBroadcastingLogicalOr, later, hole);
    }
    return later;
  }

  V of_positions(V queries) {
    return ops_.shrink(ops_.greater(ops_.expand(positions_, 1), ops_.expand(queries, 2)), 0);
  }

  V bias(V mask) {
    const double masked = is("weak mask") ? -3 : -1e4;
    if (is("bias by selection")) return select(mask, f32(-INFINITY), f32(0));
    if (is("bias by selection the other way")) return select(mask, f32(0), f32(-1e4));
    V as_float = ops_.cast(mask, DType::kF32);
    if (is("bias by difference")) {
      V seen = ops_.cast(ops_.same(OpCode::kNot, mask), DType::kF32);
      return ops_.mul(ops_.sub(f32(1), seen), f32(masked));
    }
    return ops_.mul(as_float, f32(masked));
  }
  V select(V mask, V a, V b) {
    const Shape& other = a->type->shape().rank() ? a->type->shape() : b->type->shape();
    const Shape& shape = other.rank() ? other : mask->type->shape();
    return op(OpCode::kBroadcastingWhere, {mask, a, b}, DType::kF32, shape);
  }

  // [1, kv, s, d] to [1, heads, s, d].
  V repeat(V kv) {
    V length = ops_.extent(ops_.shape_of(kv), 2);
    const auto u32 = [&](std::int64_t n) { return builder_.constant_u32({static_cast<std::uint32_t>(n)}); };
    const Shape result{1, kHeads, kDynamic, kDim};
    if (is("heads repeated by broadcast")) {
      const std::int64_t group = kHeads / kKeyHeads;
      V extents = ops_.concat({u32(1), u32(kKeyHeads), u32(group), length, u32(kDim)}, Shape{5});
      V wide = ops_.broadcast_to(ops_.expand(kv, 2), extents, Shape{1, kKeyHeads, group, kDynamic, kDim});
      return ops_.reshape(wide, ops_.i32({1, kHeads, -1, kDim}), result);
    }
    std::vector<std::int32_t> index;
    for (std::int32_t h = 0; h < kHeads; ++h)
      index.push_back(is("heads interleaved") ? h % kKeyHeads : h / (kHeads / kKeyHeads));
    V indices = builder_.constant(NDArray::from<std::int32_t>(DType::kSI32, Shape{1, kHeads, 1, 1}, index));
    V sizes = ops_.concat({u32(1), length, u32(kDim)}, Shape{3});
    indices = op(OpCode::kBroadcastInDims, {indices, sizes, ops_.i32({0, 2, 3})}, DType::kSI32, result);
    return op(OpCode::kGatherAlongAxis, {kv, indices, builder_.scalar_i32(1)}, DType::kF32, result);
  }

  V scaled(V query) {
    if (is("a scale per dimension")) return ops_.mul(query, vector({1, .2f, .4f, .6f, .3f, .5f, .7f, .1f}));
    return ops_.mul(query, f32(is("another scale") ? 0.9 : 1 / std::sqrt(static_cast<double>(kDim))));
  }

  V attention(V query, V keys, V values) {
    if (is("grouped")) return grouped_attention(query, keys, values);
    V mask = hidden(length_of(keys, 2));
    V wide_keys = repeat(keys), wide_values = repeat(values);
    const bool late = is("scale on the scores"), on_keys = is("scale on the keys");
    if (on_keys) wide_keys = scaled(wide_keys);
    V scores = ops_.matmul(late || on_keys ? query : scaled(query), ops_.transpose(wide_keys, {0, 1, 3, 2}));
    if (late) scores = scaled(scores);
    if (is("scores selected")) {
      scores = select(mask, f32(-INFINITY), scores);
    } else {
      scores = is("bias first") ? ops_.add(bias(mask), scores) : ops_.add(scores, bias(mask));
    }
    if (is("temperature after the mask")) scores = ops_.mul(scores, f32(0.5));
    V weights = is("softmax over queries")
                    ? builder_.op1(OpCode::kSoftmax, {scores, builder_.scalar_i32(2)}, scores->type)
                    : ops_.softmax_last(scores);
    if (is("weights scaled")) weights = ops_.mul(weights, f32(0.5));
    if (!is("without a cache, heads in rank 3")) return ops_.matmul(weights, wide_values);
    V extents = ops_.concat({ops_.i32({kHeads}), new_, length_of(keys, 2)}, Shape{3});
    weights = ops_.reshape(weights, extents, Shape{kHeads, kDynamic, kDynamic});
    wide_values = ops_.reshape(wide_values, ops_.i32({kHeads, -1, kDim}), Shape{kHeads, kDynamic, kDim});
    V mixed = ops_.matmul(weights, wide_values);
    return ops_.reshape(mixed, ops_.i32({1, kHeads, -1, kDim}), Shape{1, kHeads, kDynamic, kDim});
  }

  V grouped_attention(V query, V keys, V values) {
    const std::int64_t group = kHeads / kKeyHeads;
    V five = ops_.i32({1, kKeyHeads, static_cast<std::int32_t>(group), -1, kDim});
    V q = ops_.reshape(scaled(query), five, Shape{1, kKeyHeads, group, kDynamic, kDim});
    V k = ops_.expand(keys, 2), v = ops_.expand(values, 2);
    V mask = ops_.expand(ops_.expand(ops_.expand(hidden(length_of(keys, 2)), 0), 0), 0);
    V scores = ops_.add(ops_.matmul(q, ops_.transpose(k, {0, 1, 2, 4, 3})), bias(mask));
    V mixed = ops_.matmul(ops_.softmax_last(scores), v);
    return ops_.reshape(mixed, ops_.i32({1, kHeads, -1, kDim}), Shape{1, kHeads, kDynamic, kDim});
  }

  const std::string form_;
  bool asked_ = false;
  bool of_query_ = false;  // of the rotation being written
  std::unique_ptr<ir::Module> module_;
  ir::Builder builder_;
  GraphOps ops_;
  std::mt19937 random_{7};
  ir::TypeRef cache_ = nullptr;
  V ids_ = nullptr, positions_ = nullptr, new_positions_ = nullptr;
  V key_handle_ = nullptr, value_handle_ = nullptr, key_token_ = nullptr, value_token_ = nullptr;
  V new_ = nullptr, all_ = nullptr, old_ = nullptr;  // si32 [1]: q, s, s - q
};

}  // namespace

std::unique_ptr<ir::Module> written_decoder(const std::string& form) {
  return Author(form).run();
}

}  // namespace coreai::testing_support
