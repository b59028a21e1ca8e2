#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "coreai/base/error.h"
#include "coreai/compiler/plan.h"

namespace coreai::compiler {
namespace {

using Cost = StepCost;

class Costs {
 public:
  Costs(const Plan& plan, std::span<const std::int64_t> extents) : plan_(plan), values_(plan.exprs.size()) {
    plan.exprs.evaluate(extents, values_);
  }

  std::int64_t value(Expr e) const { return values_[static_cast<std::size_t>(e)]; }

  Cost of(const Step& step) const {
    Cost c;
    const std::int64_t rows = value(step.rows);
    c.rows = rows;
    std::visit([&](const auto& s) { add(c, s, rows); }, step.body);
    return c;
  }

 private:
  static std::int64_t bytes(const NDArray& a) { return static_cast<std::int64_t>(a.byte_size()); }

  static std::int64_t bytes(const WeightSource& w) {
    // The selected rows' share of data, scales and offsets.
    std::int64_t all = bytes(w.data);
    for (const auto& part : {w.scale, w.zero, w.offset, w.table}) {
      if (part) all += bytes(*part);
    }
    const std::int64_t total_rows = w.transposed ? w.data.shape()[1] : w.data.shape()[0];
    return total_rows ? all / total_rows * w.rows : 0;
  }

  std::int64_t state_bytes(int state) const {  // of an element
    return static_cast<std::int64_t>(dtype_bits(plan_.states[static_cast<std::size_t>(state)].dtype)) / 8;
  }

  void add(Cost& c, const EmbeddingStep& s, std::int64_t rows) const {
    const WeightSource& w = plan_.weights[static_cast<std::size_t>(s.weight)][0];
    c.weight_bytes = w.rows ? bytes(w) / w.rows * rows : 0;
    c.read_bytes = rows * 4;
    c.written_bytes = rows * s.out.width * 4;
  }
  void add(Cost& c, const NormStep& s, std::int64_t rows) const {
    c.read_bytes = rows * s.in.width * (s.residual ? 8 : 4);
    c.weight_bytes = static_cast<std::int64_t>(s.scale.size()) * 4;
    c.written_bytes = rows * s.out.width * 4;
  }
  void add(Cost& c, const LayerNormStep& s, std::int64_t rows) const {
    c.read_bytes = c.written_bytes = rows * s.in.width * 4;
    c.weight_bytes = std::ssize(s.scale) * 4 + std::ssize(s.bias) * 4;
  }
  static void add(Cost& c, const RowwiseStep& s, std::int64_t rows) {
    c.read_bytes = rows * s.in.width * 4;
    c.written_bytes = rows * s.out.width * 4;
  }
  void add(Cost& c, const LinearStep& s, std::int64_t rows) const {
    std::int64_t outputs = 0;
    for (const WeightSource& w : plan_.weights[static_cast<std::size_t>(s.weight)]) {
      c.weight_bytes += bytes(w);
      outputs += w.rows;
    }
    c.read_bytes = rows * s.in.width * 4 + (s.residual ? rows * s.out.width * 4 : 0);
    c.written_bytes = rows * s.out.width * 4;
    c.multiply_adds = rows * s.in.width * outputs;
  }
  // Bytes of as many experts as rows may name, at most all.
  void add(Cost& c, const ExpertStep& s, std::int64_t rows) const {
    const auto& weights = plan_.weights[static_cast<std::size_t>(s.weight)];
    for (const WeightSource& w : weights) c.weight_bytes += bytes(w);
    c.weight_bytes = c.weight_bytes / s.experts * std::min(s.experts, rows);
    const std::int64_t index_bytes = rows * dtype_bits(s.indices_dtype) / 8;
    c.read_bytes = rows / s.choices * s.in.width * 4 + index_bytes;
    c.written_bytes = rows * s.out.width * 4;
    c.multiply_adds = rows * s.in.width * s.out.width * (s.gated ? 2 : 1);
  }
  void add(Cost& c, const RopeTableStep& s, std::int64_t rows) const {
    c.read_bytes = rows * 4;
    c.written_bytes = rows * static_cast<std::int64_t>(s.inverse_frequencies.size()) * 8;
  }
  void add(Cost& c, const HeadsStep& s, std::int64_t rows) const {
    for (const HeadTask& t : s.tasks) {
      c.read_bytes += rows * t.in.width * 4;
      c.written_bytes += rows * t.heads * t.head_dim * (t.state < 0 ? 4 : state_bytes(t.state));
    }
  }
  void add(Cost& c, const AttentionStep& s, std::int64_t rows) const {
    const std::int64_t batches = s.batches ? value(s.batches->count) : 1;
    const std::int64_t each = batches > 0 ? rows / batches : 0;
    const std::int64_t length = s.window > 0 ? std::min(value(s.length), s.window + each) : value(s.length);
    const std::int64_t key_bytes = s.keys ? 4 : state_bytes(s.key_state);
    const std::int64_t value_bytes = s.values ? 4 : state_bytes(s.value_state);
    c.read_bytes =
        rows * s.query.width * 4 + batches * length * s.kv_heads * (s.head_dim * key_bytes + s.value_dim * value_bytes);
    if (s.mask) {
      const bool per_batch = s.batches && value(s.batches->mask);
      c.read_bytes += (per_batch ? rows : each) * length * 4 * (value(s.mask->head_stride) ? s.heads : 1);
    }
    c.written_bytes = rows * s.out.width * 4;
    c.multiply_adds = rows * s.heads * (s.head_dim + s.value_dim) * length;
  }
  void add(Cost& c, const DeltaRuleStep& s, std::int64_t) const {
    const auto count = [&](const View& view) {
      std::int64_t n = 1;
      for (Expr e : view.extents) n *= value(e);
      return n;
    };
    for (const View* v : {&s.query, &s.key, &s.value, &s.decay, &s.beta}) c.read_bytes += count(*v) * 4;
    c.read_bytes += count(s.state_in) * dtype_bits(dtype_of(s.state_in.buffer)) / 8;
    c.written_bytes = count(s.out) * 4 + count(s.state_out) * dtype_bits(dtype_of(s.state_out.buffer)) / 8;
    c.multiply_adds = 3 * count(s.query) * value(s.value.extents[3]);
  }
  void add(Cost& c, const CopyStep& s, std::int64_t) const {
    std::int64_t n = 1;
    for (Expr e : s.in.extents) n *= value(e);
    c.read_bytes = n * dtype_bits(dtype_of(s.in.buffer)) / 8;
    c.written_bytes = n * dtype_bits(dtype_of(s.out.buffer)) / 8;
  }
  void add(Cost& c, const ElementwiseStep& s, std::int64_t) const {
    const auto bytes = [&](const View& view, DType dtype) {
      std::int64_t n = 1;
      for (std::size_t i = 0; i < view.extents.size(); ++i)
        n *= value(view.strides[i]) == 0 ? 1 : value(view.extents[i]);
      return n * dtype_bits(dtype) / 8;
    };
    for (const ElementwiseOperand& o : s.operands) {
      c.read_bytes += bytes(o.view, o.constant ? o.constant->dtype() : dtype_of(o.view.buffer));
    }
    c.written_bytes = bytes(s.out, dtype_of(s.out.buffer));
  }
  std::int64_t bytes_of(const GenericOperand& o) const {
    std::int64_t n = 1;
    for (Expr e : o.shape) n *= value(e);
    return static_cast<std::int64_t>(dtype_bytes(o.dtype, static_cast<std::uint64_t>(n)));
  }
  void add(Cost& c, const GenericStep& s, std::int64_t) const {
    for (const GenericOperand& o : s.inputs) c.read_bytes += bytes_of(o);
    for (const GenericOperand& o : s.outputs) c.written_bytes += bytes_of(o);
    c.multiply_adds = multiply_adds(s);
  }
  void add(Cost& c, const AveragePoolStep& s, std::int64_t) const {
    c.read_bytes = bytes_of(s.inputs[0]), c.written_bytes = bytes_of(s.outputs[0]);
  }
  // Of the table the rows that are taken.
  void add(Cost& c, const GatherRowsStep& s, std::int64_t) const {
    c.written_bytes = bytes_of(s.outputs[0]);
    c.read_bytes =
        bytes_of(s.inputs[1]) + c.written_bytes * dtype_bits(s.inputs[0].dtype) / dtype_bits(s.outputs[0].dtype);
  }

  std::int64_t multiply_adds(const GenericStep& s) const {
    const auto count = [&](const std::vector<Expr>& shape, std::size_t from) {
      std::int64_t n = 1;
      for (std::size_t i = from; i < shape.size(); ++i) n *= value(shape[i]);
      return n;
    };
    switch (s.op->code) {
      case ir::OpCode::kBatchMatmul:
      case ir::OpCode::kBroadcastingBatchMatmul:
        return count(s.outputs[0].shape, 0) * value(s.inputs[0].shape.back());
      case ir::OpCode::kConv2d:
      case ir::OpCode::kConv3d:
        return count(s.outputs[0].shape, 0) * count(s.inputs[1].shape, 1);
      case ir::OpCode::kConvTranspose2d:
      case ir::OpCode::kConvTranspose3d:
        return count(s.inputs[0].shape, 0) * count(s.inputs[1].shape, 1);
      default:
        return 0;
    }
  }

  DType dtype_of(int buffer) const { return plan_.buffers[static_cast<std::size_t>(buffer)].dtype; }

  const Plan& plan_;
  std::vector<std::int64_t> values_;
};

std::string detail(const Step& step) {
  if (const auto* s = std::get_if<LinearStep>(&step.body)) {
    return fmt::format("{} -> {}{}{}", s->in.width, s->out.width, s->bias.empty() ? "" : " + bias",
                       s->residual ? " + residual" : "");
  }
  if (const auto* s = std::get_if<ExpertStep>(&step.body))
    return fmt::format("{} -> {}, one of {} each", s->in.width, s->out.width, s->experts);
  if (const auto* s = std::get_if<LayerNormStep>(&step.body)) return fmt::format("{}", s->in.width);
  if (const auto* s = std::get_if<RowwiseStep>(&step.body)) return fmt::format("{}", s->in.width);
  if (const auto* s = std::get_if<NormStep>(&step.body))
    return fmt::format("{}{}", s->in.width, s->residual ? " + residual" : "");
  if (const auto* s = std::get_if<AttentionStep>(&step.body)) {
    return fmt::format("{}{}/{} heads of {}{}", s->keys ? "" : fmt::format("layer {}, ", s->layer), s->heads,
                       s->kv_heads, s->head_dim, s->window ? fmt::format(", window {}", s->window) : "");
  }
  if (const auto* s = std::get_if<DeltaRuleStep>(&step.body))
    return s->state_in == s->state_out ? "state in place" : "state copied";
  if (const auto* s = std::get_if<HeadsStep>(&step.body)) {
    std::string text;
    for (const HeadTask& t : s->tasks) {
      text += fmt::format("{}{}{}{}{}", text.empty() ? "" : "; ", t.heads, t.norm_scale.empty() ? "" : " norm",
                          t.rope_table < 0 ? "" : " rope", t.state < 0 ? "" : fmt::format(" -> state {}", t.state));
    }
    return text;
  }
  return {};
}

}  // namespace

std::vector<StepCost> step_costs(const Plan& plan, std::span<const std::int64_t> extents) {
  if (extents.size() != plan.exprs.symbol_count()) {
    std::string names;
    for (std::size_t i = 0; i < plan.exprs.symbol_count(); ++i) names += (i ? ", " : "") + plan.exprs.symbol_name(i);
    throw InvalidArgumentError(
        fmt::format("{} extents given, the plan has {}", extents.size(), plan.exprs.symbol_count()), "plan",
        "Give one for each of: " + names);
  }
  const Costs costs(plan, extents);
  std::vector<StepCost> all;
  for (const Step& step : plan.steps) {
    all.push_back(costs.of(step));
    all.back().kernel = step.name;
    all.back().detail = detail(step);
  }
  return all;
}

std::string to_text(const Plan& plan, std::span<const std::int64_t> extents, bool json) {
  const std::vector<StepCost> costs = step_costs(plan, extents);
  Cost total;
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  std::string text = fmt::format("{:>4}  {:<14} {:<34} {:>6} {:>12} {:>12} {:>12} {:>14}\n", "step", "kernel", "",
                                 "rows", "weights", "read", "written", "multiply-adds");
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Cost& c = costs[i];
    total.weight_bytes += c.weight_bytes, total.read_bytes += c.read_bytes, total.written_bytes += c.written_bytes,
        total.multiply_adds += c.multiply_adds;
    text += fmt::format("{:>4}  {:<14} {:<34} {:>6} {:>12} {:>12} {:>12} {:>14}\n", i, c.kernel, c.detail, c.rows,
                        c.weight_bytes, c.read_bytes, c.written_bytes, c.multiply_adds);
    steps.push_back({{"kernel", c.kernel},
                     {"detail", c.detail},
                     {"rows", c.rows},
                     {"last_rows", plan.steps[i].last_rows},
                     {"weight_bytes", c.weight_bytes},
                     {"read_bytes", c.read_bytes},
                     {"written_bytes", c.written_bytes},
                     {"multiply_adds", c.multiply_adds}});
  }
  text += fmt::format("{:>4}  {:<14} {:<34} {:>6} {:>12} {:>12} {:>12} {:>14}\n", "", "total", "", "",
                      total.weight_bytes, total.read_bytes, total.written_bytes, total.multiply_adds);
  if (!json) {
    for (const Guard& g : plan.guards)
      text += fmt::format("holds while {} >= 0 ({})\n", plan.exprs.text(g.nonnegative), g.reason);
    return text;
  }
  nlohmann::ordered_json guards = nlohmann::ordered_json::array();
  for (const Guard& g : plan.guards)
    guards.push_back({{"nonnegative", plan.exprs.text(g.nonnegative)}, {"reason", g.reason}});
  return nlohmann::ordered_json{{"steps", steps},
                                {"guards", guards},
                                {"total",
                                 {{"weight_bytes", total.weight_bytes},
                                  {"read_bytes", total.read_bytes},
                                  {"written_bytes", total.written_bytes},
                                  {"multiply_adds", total.multiply_adds}}}}
      .dump(2);
}

}  // namespace coreai::compiler
