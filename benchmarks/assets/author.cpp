// Writes the f32 programs of the benchmark: realistic sizes, random weights, operations as the exporters write them.
//   benchmark_assets OUTPUT_DIR
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <random>

#include "coreai/asset/asset.h"
#include "coreai/base/mapped_file.h"
#include "coreai/base/npy.h"
#include "exporter/graph_ops.h"

namespace {

using namespace coreai;
using ir::OpCode;
using V = ir::Value*;

// Extents of a call to attention: graphs must be written before the function that calls them.
struct AttentionShape {
  std::int64_t heads, rows, keys, dim;
  auto operator<=>(const AttentionShape&) const = default;
};

// Of products of each row's chosen experts: `shared` when the choices of a row multiply the same row.
struct ExpertShape {
  std::int64_t rows, choices, experts, in, out;
  bool shared;
  auto operator<=>(const ExpertShape&) const = default;
};

class Author {
 public:
  Author(std::string name, const std::vector<std::pair<std::string, Shape>>& inputs, const Shape& output,
         const std::vector<AttentionShape>& attentions, const std::vector<ExpertShape>& experts = {})
      : name_(std::move(name)), builder_(module_), ops_(builder_) {
    for (const AttentionShape& a : attentions) declare_attention(a);
    for (const ExpertShape& e : experts) declare_experts(e);
    ir::GraphSpec spec;
    spec.name = "main";
    for (const auto& [input, shape] : inputs) {
      spec.inputs.push_back({input, builder_.context().tensor_type(DType::kF32, shape), ""});
      inputs_.push_back({input, random(shape, 1.0)});
    }
    spec.outputs.push_back({"y", builder_.context().tensor_type(DType::kF32, output), ""});
    const auto& arguments = builder_.begin_graph(spec).body().arguments;
    arguments_.assign(arguments.begin(), arguments.end());
  }

  V input(std::size_t i) const { return arguments_[i]; }
  GraphOps& ops() { return ops_; }
  ir::Builder& builder() { return builder_; }

  NDArray random(const Shape& shape, double scale) {
    NDArray out(DType::kF32, shape);
    std::normal_distribution<float> normal(0.0f, static_cast<float>(scale));
    for (float& v : out.mutable_values<float>()) v = normal(random_);
    return out;
  }
  V weight(const Shape& shape, double scale) {
    const NDArray array = random(shape, scale);
    const auto values = array.values<float>();
    weights_.insert(weights_.end(), values.begin(), values.end());
    return builder_.constant(array);
  }
  V scalar(double value) { return ops_.scalar(DType::kF32, value); }
  V typed(OpCode code, std::vector<V> operands, const Shape& shape) {
    return builder_.op1(code, std::move(operands), builder_.context().tensor_type(DType::kF32, shape));
  }
  V reshape(V x, const Shape& shape) {
    std::vector<std::int32_t> dims;
    for (std::int64_t d : shape.dims()) dims.push_back(static_cast<std::int32_t>(d));
    return ops_.reshape(x, ops_.i32(dims), shape);
  }
  static std::int64_t last(V x) { return x->type->shape()[x->type->shape().rank() - 1]; }

  V linear(V x, std::int64_t out, bool bias = true) {
    const std::int64_t in = last(x);
    V y = ops_.matmul(x, ops_.transpose(weight(Shape{out, in}, 1.0 / std::sqrt(static_cast<double>(in))), {1, 0}));
    return bias ? ops_.add(y, weight(Shape{out}, 0.1)) : y;
  }
  V mean(V x, std::int32_t axis) {
    std::vector<std::int64_t> dims(x->type->shape().begin(), x->type->shape().end());
    dims[static_cast<std::size_t>(axis)] = 1;
    return typed(OpCode::kReduceMean, {x, ops_.i32({axis})}, Shape(dims));
  }
  V normalised(V x, std::int32_t axis, double eps) {
    V centred = ops_.sub(x, mean(x, axis));
    V variance = mean(ops_.mul(centred, centred), axis);
    return ops_.mul(centred, ops_.same(OpCode::kRsqrt, ops_.add(variance, scalar(eps))));
  }
  V layer_norm(V x) {
    const auto axis = static_cast<std::int32_t>(x->type->shape().rank()) - 1;
    const Shape width{last(x)};
    V scale = weight(width, 1.0), shift = weight(width, 0.1);
    return ops_.add(ops_.mul(normalised(x, axis, 1e-5), scale), shift);
  }
  V rms_norm(V x) {
    const auto axis = static_cast<std::int32_t>(x->type->shape().rank()) - 1;
    V factor = ops_.same(OpCode::kRsqrt, ops_.add(mean(ops_.mul(x, x), axis), scalar(1e-5)));
    return ops_.mul(ops_.mul(x, factor), weight(Shape{last(x)}, 1.0));
  }
  V group_norm(V x, std::int64_t groups) {
    const Shape shape = x->type->shape();
    const std::int64_t channels = shape[1];
    V flat = reshape(x, Shape{shape[0], groups, channels / groups * shape[2] * shape[3]});
    V y = reshape(normalised(flat, 2, 1e-6), shape);
    const Shape per_channel{1, channels, 1, 1};
    V scale = weight(per_channel, 1.0), shift = weight(per_channel, 0.1);
    return ops_.add(ops_.mul(y, scale), shift);
  }
  V gelu(V x) {
    return builder_.op1(OpCode::kGelu, {x}, x->type,
                        {{"approximate", builder_.context().enum_attr(ir::AttrCode::kApproximate, 0)}});
  }
  V silu(V x) { return ops_.same(OpCode::kSilu, x); }

  // [1, rows, width] to [1, heads, rows, width / heads].
  V split_heads(V x, std::int64_t heads) {
    const Shape& s = x->type->shape();
    return ops_.transpose(reshape(x, Shape{1, s[1], heads, s[2] / heads}), {0, 2, 1, 3});
  }
  V scores_of(V q, V k) {
    V scaled = ops_.mul(q, scalar(1.0 / std::sqrt(static_cast<double>(last(q)))));
    return ops_.matmul(scaled, ops_.transpose(k, {0, 1, 3, 2}));
  }
  void declare_attention(const AttentionShape& a) {
    ir::Context& context = builder_.context();
    const ir::TypeRef query = context.tensor_type(DType::kF32, Shape{1, a.heads, a.rows, a.dim}),
                      key = context.tensor_type(DType::kF32, Shape{1, a.heads, a.keys, a.dim});
    ir::GraphSpec spec;
    spec.name = fmt::format("sdpa_{}_{}_{}_{}", a.heads, a.rows, a.keys, a.dim);
    spec.inputs = {{"query", query, ""}, {"key", key, ""}, {"value", key, ""}};
    spec.outputs = {{"output", query, ""}};
    spec.is_private = spec.no_inline = true;
    spec.composite = ir::CompositeDecl{"scaled_dot_product_attention",
                                       {"query", "key", "value"},
                                       {"output"},
                                       {{"is_causal", context.bool_attr(false)},
                                        {"version", context.integer_attr(1)},
                                        {"window_size", context.integer_attr(0)}}};
    const auto graph = attentions_.emplace(a, builder_.begin_graph(spec)).first->second;
    const auto& x = graph.body().arguments;
    builder_.end_graph({ops_.matmul(ops_.softmax_last(scores_of(x[0], x[1])), x[2])});
  }

  // Full attention of [1, rows, width] over [1, keys, width]; `mask` is added to the scores.
  V attention(V query, V source, std::int64_t heads, V mask = nullptr) {
    const std::int64_t rows = query->type->shape()[1], width = last(query);
    V q = split_heads(linear(query, width), heads), k = split_heads(linear(source, width, false), heads),
      v = split_heads(linear(source, width), heads);
    V mixed = nullptr;
    if (mask) {
      V scores = ops_.add(scores_of(q, k), mask);
      mixed = ops_.matmul(ops_.softmax_last(scores), v);
    } else {
      const AttentionShape shape{heads, rows, source->type->shape()[1], width / heads};
      mixed = builder_.invoke(attentions_.at(shape), {q, k, v})[0];
    }
    return linear(reshape(ops_.transpose(mixed, {0, 2, 1, 3}), Shape{1, rows, width}), width);
  }
  V encoder_layer(V x, std::int64_t heads, std::int64_t ffn) {
    V norm = layer_norm(x);
    x = ops_.add(x, attention(norm, norm, heads));
    return ops_.add(x, linear(gelu(linear(layer_norm(x), ffn)), last(x)));
  }

  // gather_mm with the body of the exporters: the experts' matrices gathered per row, then a batched product.
  void declare_experts(const ExpertShape& e) {
    ir::Context& context = builder_.context();
    const std::int64_t products = e.rows * e.choices;
    const Shape left = e.shared ? Shape{e.rows, 1, 1, e.in} : Shape{1, e.rows, e.choices, 1, e.in};
    const Shape each{1, products, e.in, e.out}, result{1, e.rows, e.choices, 1, e.out};
    ir::GraphSpec spec;
    spec.name = fmt::format("gather_mm_{}_{}", e.in, e.out);
    spec.inputs = {{"lhs", context.tensor_type(DType::kF32, left), ""},
                   {"rhs", context.tensor_type(DType::kF32, Shape{1, e.experts, e.in, e.out}), ""},
                   {"rhs_indices", context.tensor_type(DType::kUI16, Shape{e.rows, e.choices}), ""}};
    spec.outputs = {{"output", context.tensor_type(DType::kF32, result), ""}};
    spec.is_private = spec.no_inline = true;
    spec.composite =
        ir::CompositeDecl{"gather_mm",
                          {"lhs", "rhs", "rhs_indices"},
                          {"output"},
                          {{"num_batch_axes", context.integer_attr(1)}, {"version", context.integer_attr(1)}}};
    const auto graph = experts_.emplace(e, builder_.begin_graph(spec)).first->second;
    const auto& x = graph.body().arguments;
    V index = reshape(ops_.cast(x[2], DType::kSI32), Shape{1, products, 1, 1});
    index = ops_.broadcast_to(index, dims(each), each);
    V matrices = typed(OpCode::kGatherAlongAxis, {x[1], index, builder_.scalar_i32(1)}, each);
    V rows = x[0];
    if (e.shared) {
      const Shape wide{1, e.rows, e.choices, 1, e.in};
      rows = ops_.broadcast_to(ops_.expand(rows, 0), dims(wide), wide);
    }
    rows = reshape(rows, Shape{products, 1, e.in});
    builder_.end_graph({reshape(ops_.matmul(rows, reshape(matrices, Shape{products, e.in, e.out})), result)});
  }

  // Each row of [1, rows, width] by the `choices` experts that a router scores highest, gated, weighted by the scores.
  V mixture(V x, std::int64_t experts, std::int64_t choices, std::int64_t ffn) {
    ir::Context& context = builder_.context();
    const std::int64_t rows = x->type->shape()[1], width = last(x);
    V scores = linear(x, experts, false), axis = builder_.scalar_i32(-1);
    V yes = builder_.constant(NDArray::from<std::uint8_t>(DType::kI1, Shape{}, std::vector<std::uint8_t>{1}));
    const Shape sorted{1, rows, experts}, chosen{1, rows, choices};
    V best = typed(OpCode::kSort, {scores, axis, yes, yes}, sorted);
    V order = builder_.op1(OpCode::kArgsort, {scores, axis, yes, yes}, context.tensor_type(DType::kSI32, sorted));
    V end = ops_.i32({1, static_cast<std::int32_t>(rows), static_cast<std::int32_t>(choices)});
    V share = ops_.softmax_last(ops_.slice(best, ops_.zeros(3), end, chosen));
    V index = reshape(ops_.cast(ops_.slice(order, ops_.zeros(3), end, chosen), DType::kUI16), Shape{rows, choices});
    const ExpertShape up{rows, choices, experts, width, ffn, true}, down{rows, choices, experts, ffn, width, false};
    const auto product = [&](V lhs, const ExpertShape& e) {
      V stack = weight(Shape{1, experts, e.in, e.out}, 1.0 / std::sqrt(static_cast<double>(e.in)));
      return builder_.invoke(experts_.at(e), {lhs, stack, index})[0];
    };
    V row = reshape(x, Shape{rows, 1, 1, width});
    V gate = silu(product(row, up));
    V y = reshape(product(ops_.mul(gate, product(row, up)), down), Shape{1, rows, choices, width});
    y = typed(OpCode::kReduceSum, {ops_.mul(y, ops_.expand(share, -1)), ops_.i32({2})}, Shape{1, rows, 1, width});
    return ops_.shrink(y, 2);
  }

  V dims(const Shape& shape) { return u32(std::vector<std::uint32_t>(shape.begin(), shape.end())); }
  V u32(const std::vector<std::uint32_t>& values) { return builder_.constant_u32(values); }
  V scalar_u32(std::uint32_t value) {
    return builder_.constant(NDArray::from<std::uint32_t>(DType::kUI32, Shape{}, std::vector{value}));
  }
  // Padded by `pad` on both sides of both spatial axes.
  V conv(V x, std::int64_t out, std::uint32_t kernel_h, std::uint32_t kernel_w, std::uint32_t stride_h,
         std::uint32_t stride_w, std::uint32_t pad_h, std::uint32_t pad_w) {
    const Shape s = x->type->shape();
    V padded = x;
    std::int64_t h = s[2] + 2 * pad_h, w = s[3] + 2 * pad_w;
    if (pad_h || pad_w) {
      padded = builder_.op1(OpCode::kPad, {x, u32({0, 0, 0, 0, pad_h, pad_h, pad_w, pad_w}), scalar(0)},
                            builder_.context().tensor_type(DType::kF32, Shape{s[0], s[1], h, w}),
                            {{"padding_mode", builder_.context().enum_attr(ir::AttrCode::kPaddingMode, 1)}});
    }
    h = (h - kernel_h) / stride_h + 1, w = (w - kernel_w) / stride_w + 1;
    const double scale = 1.0 / std::sqrt(static_cast<double>(s[1] * kernel_h * kernel_w));
    V y = typed(OpCode::kConv2d,
                {padded, weight(Shape{out, s[1], kernel_h, kernel_w}, scale), u32({stride_h, stride_w}), u32({1, 1}),
                 scalar_u32(1)},
                Shape{s[0], out, h, w});
    return ops_.add(y, weight(Shape{1, out, 1, 1}, 0.1));
  }

  void save(V result, const std::filesystem::path& directory) {
    builder_.end_graph({result});
    AIModelAssetMetadata metadata;
    metadata.producer = "coreai.cpp benchmarks";
    save_asset(module_, directory / (name_ + ".aimodel"), metadata);
    for (const auto& [input, array] : inputs_) write_npy(directory / fmt::format("{}.{}.npy", name_, input), array);
    const auto bytes = std::as_bytes(std::span(weights_));
    write_file_atomically(directory / (name_ + ".weights"), bytes);  // in the order in which they were made
    fmt::print("{}\n", name_);
  }

 private:
  std::string name_;
  ir::Module module_;
  ir::Builder builder_;
  GraphOps ops_;
  std::mt19937 random_{11};
  std::vector<float> weights_;
  std::vector<std::pair<std::string, NDArray>> inputs_;
  std::vector<V> arguments_;
  std::map<AttentionShape, ir::Graph> attentions_;
  std::map<ExpertShape, ir::Graph> experts_;
};

// 4 layers of 1,024, 128 tokens, causal, gated.
void decoder(const std::filesystem::path& directory) {
  const std::int64_t rows = 128, width = 1024;
  Author a("decoder", {{"x", Shape{1, rows, width}}}, Shape{1, rows, width}, {});
  NDArray mask(DType::kF32, Shape{1, 1, rows, rows});
  for (std::int64_t q = 0; q < rows; ++q)
    for (std::int64_t k = q + 1; k < rows; ++k)
      mask.mutable_values<float>()[static_cast<std::size_t>(q * rows + k)] = -1e4f;
  V causal = a.builder().constant(mask);
  V x = a.input(0);
  for (int layer = 0; layer < 4; ++layer) {
    V norm = a.rms_norm(x);
    x = a.ops().add(x, a.attention(norm, norm, 16, causal));
    norm = a.rms_norm(x);
    V gated = a.ops().mul(a.silu(a.linear(norm, 2816, false)), a.linear(norm, 2816, false));
    x = a.ops().add(x, a.linear(gated, width, false));
  }
  a.save(x, directory);
}

// 2 mixtures of 16 experts, 4 of them per token, 32 tokens: no more, as the body copies 4 experts per token.
void experts(const std::filesystem::path& directory) {
  const std::int64_t rows = 32, width = 1024, count = 16, choices = 4, ffn = 768;
  Author a("experts", {{"x", Shape{1, rows, width}}}, Shape{1, rows, width}, {},
           {{rows, choices, count, width, ffn, true}, {rows, choices, count, ffn, width, false}});
  V x = a.input(0);
  for (int layer = 0; layer < 2; ++layer) x = a.ops().add(x, a.mixture(a.rms_norm(x), count, choices, ffn));
  a.save(x, directory);
}

// ViT-S/16, 6 of its 12 layers.
void vit(const std::filesystem::path& directory) {
  const std::int64_t width = 384, patches = 14 * 14;
  Author a("vit", {{"x", Shape{1, 3, 224, 224}}}, Shape{1, patches, width}, {{6, patches, patches, 64}});
  V x = a.conv(a.input(0), width, 16, 16, 16, 16, 0, 0);
  x = a.ops().transpose(a.reshape(x, Shape{1, width, patches}), {0, 2, 1});
  x = a.ops().add(x, a.weight(Shape{1, patches, width}, 0.1));
  for (int layer = 0; layer < 6; ++layer) x = a.encoder_layer(x, 6, 1536);
  a.save(a.layer_norm(x), directory);
}

// A residual block and a transformer block of Stable Diffusion's UNet at 320 channels, 32 x 32.
void unet(const std::filesystem::path& directory) {
  const std::int64_t channels = 320, side = 32;
  Author a("unet", {{"x", Shape{1, channels, side, side}}, {"context", Shape{1, 77, channels}}},
           Shape{1, channels, side, side}, {{8, side * side, side * side, 40}, {8, side * side, 77, 40}});
  V x = a.input(0);
  V y = a.conv(a.silu(a.group_norm(x, 32)), channels, 3, 3, 1, 1, 1, 1);
  x = a.ops().add(x, a.conv(a.silu(a.group_norm(y, 32)), channels, 3, 3, 1, 1, 1, 1));
  V t = a.conv(a.group_norm(x, 32), channels, 1, 1, 1, 1, 0, 0);
  t = a.ops().transpose(a.reshape(t, Shape{1, channels, side * side}), {0, 2, 1});
  V norm = a.layer_norm(t);
  t = a.ops().add(t, a.attention(norm, norm, 8));
  t = a.ops().add(t, a.attention(a.layer_norm(t), a.input(1), 8));
  t = a.ops().add(t, a.linear(a.gelu(a.linear(a.layer_norm(t), 4 * channels)), channels));
  t = a.reshape(a.ops().transpose(t, {0, 2, 1}), Shape{1, channels, side, side});
  a.save(a.ops().add(x, a.conv(t, channels, 1, 1, 1, 1, 0, 0)), directory);
}

// Whisper tiny's encoder, its 1,500 positions.
void whisper(const std::filesystem::path& directory) {
  const std::int64_t width = 384, positions = 1500;
  Author a("whisper", {{"x", Shape{1, 80, 1, 3000}}}, Shape{1, positions, width}, {{6, positions, positions, 64}});
  V x = a.gelu(a.conv(a.input(0), width, 1, 3, 1, 1, 0, 1));
  x = a.gelu(a.conv(x, width, 1, 3, 1, 2, 0, 1));
  x = a.ops().transpose(a.reshape(x, Shape{1, width, positions}), {0, 2, 1});
  x = a.ops().add(x, a.weight(Shape{1, positions, width}, 0.1));
  for (int layer = 0; layer < 4; ++layer) x = a.encoder_layer(x, 6, 1536);
  a.save(a.layer_norm(x), directory);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: benchmark_assets OUTPUT_DIR\n");
    return 64;
  }
  std::filesystem::create_directories(argv[1]);
  for (const auto& write : {decoder, experts, vit, unet, whisper}) write(argv[1]);
  return 0;
}
