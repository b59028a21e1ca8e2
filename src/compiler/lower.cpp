#include "compiler/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "compiler/composite_bodies.h"
#include "compiler/composites.h"
#include "compiler/matchers.h"
#include "compiler/shapes.h"
#include "coreai/asset/asset.h"
#include "coreai/base/error.h"
#include "coreai/ir/unknown_op.h"

namespace coreai::compiler {
namespace {

using ir::OpCode;

// Content of every state at a point of token order.
using StateVersions = std::vector<ValueId>;

class Lowering {
 public:
  Lowering(const ir::Module& module, const LowerOptions& options) : module_(module), options_(options) {}

  Graph run(const ir::Graph& function) {
    bind_inputs(function);
    const std::vector<const ir::Value*> results = lower_block(function.body(), 0);
    bind_outputs(function, results);
    return std::move(g_);
  }

 private:
  // What an ir::Value is bound to: a value of the graph, a token or a handle.
  struct Binding {
    ValueId value = kNoValue;
    int handle = -1;
    std::optional<StateVersions> token;
  };

  void bind_inputs(const ir::Graph& function) {
    const auto names = function.input_names();
    const auto& arguments = function.body().arguments;
    std::size_t input_index = 0;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const ir::TypeRef type = arguments[i]->type;
      if (type->is_handle()) {
        const int state = static_cast<int>(g_.state_initial.size());
        const ValueId v = declared_value(type, names[i], true, static_cast<std::size_t>(state));
        g_.value(v).state = state;
        g_.state_initial.push_back(v);
        state_names_.push_back(names[i]);
        bindings_[arguments[i]].handle = state;
      } else if (type->is_tensor()) {
        const ValueId v = declared_value(type, names[i], false, input_index);
        if (options_.value_inputs) make_elements_symbols(v, names[i], input_index);
        g_.value(v).input = static_cast<int>(input_index++);
        g_.inputs.push_back(v);
        bindings_[arguments[i]].value = v;
      } else {
        throw NotPlannable{"an input is neither a tensor nor a state"};
      }
    }
    g_.state_final = g_.state_initial;
  }

  // A position or a length that a program is given as a value: arithmetic on it is shape arithmetic.
  void make_elements_symbols(ValueId v, const std::string& name, std::size_t index) {
    constexpr std::int64_t kMaxElements = 16;
    const Shape shape = g_.declared_shape(v);
    const DType dtype = g_.value(v).dtype;
    if (!is_integer(dtype) || dtype_bits(dtype) < 16 || shape.rank() > 1 || !shape.is_static() ||
        shape.element_count() > kMaxElements) {
      return;
    }
    std::vector<Expr> elements;
    for (std::int64_t i = 0; i < shape.element_count(); ++i) {
      const Expr plus_one = g_.exprs.symbol(fmt::format("{}[{}]+1", name, i));
      g_.symbols.push_back({false, index, static_cast<std::size_t>(i), true});
      elements.push_back(g_.exprs.sub(plus_one, g_.exprs.constant(1)));
    }
    g_.value(v).host = std::move(elements);
  }

  ValueId declared_value(ir::TypeRef type, const std::string& name, bool of_state, std::size_t index) {
    std::vector<Expr> shape;
    for (std::size_t axis = 0; axis < type->shape().rank(); ++axis) {
      const std::int64_t d = type->shape()[axis];
      if (d == kDynamic) {
        shape.push_back(g_.exprs.symbol(fmt::format("{}.{}", name, axis)));
        g_.symbols.push_back({of_state, index, axis});
      } else {
        shape.push_back(g_.exprs.constant(d));
      }
    }
    return g_.new_value(type->dtype(), std::move(shape));
  }

  void bind_outputs(const ir::Graph& function, const std::vector<const ir::Value*>& results) {
    const auto names = function.output_names();
    std::size_t output_index = 0;
    int token_index = 0;
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Binding& b = bindings_.at(results[i]);
      if (b.token) {
        // A token result ends the chain of the state of its name, else of the state in its order.
        const auto named = std::find(state_names_.begin(), state_names_.end(), names[i]);
        const int state = named != state_names_.end() ? static_cast<int>(named - state_names_.begin()) : token_index;
        if (state >= static_cast<int>(g_.state_final.size())) throw NotPlannable{"more tokens than states"};
        g_.state_final[static_cast<std::size_t>(state)] = (*b.token)[static_cast<std::size_t>(state)];
        ++token_index;
      } else {
        g_.outputs.push_back({names[i], b.value, output_index++, g_.value(b.value).dtype});
      }
    }
  }

  // Lowers a block and returns what its terminator yields.
  std::vector<const ir::Value*> lower_block(const ir::Block& block, int depth) {
    if (depth > 64) throw NotPlannable{"calls are nested too deeply"};
    std::vector<const ir::Value*> results;
    for (const auto& op : block.ops) {
      if (op->code == OpCode::kOutput || op->code == OpCode::kYield) {
        results.assign(op->operands.begin(), op->operands.end());
        break;
      }
      if (!options_.trace) {
        lower_op(*op, depth);
        continue;
      }
      const std::size_t origin = g_.origins.size(), nodes = g_.nodes.size();
      g_.origins.push_back({{op.get(), OpFate::kStructure}, kNoNode});
      lower_op(*op, depth);
      trace(g_.origins[origin], nodes);
    }
    return results;
  }

  // What lower_op() made of an operation when there were `nodes` nodes before it.
  void trace(Origin& origin, std::size_t nodes) const {
    const ir::Op& op = *origin.traced.op;
    if (g_.nodes.size() > nodes && g_.nodes.back().source == &op) {
      origin.node = static_cast<NodeId>(g_.nodes.size() - 1);
      origin.traced.fate = OpFate::kStep;
    } else if (op.code == OpCode::kInvoke) {
      if (module_.callee(op).composite()) origin.traced.fate = kept_.contains(&op) ? OpFate::kStep : OpFate::kInlined;
    } else if (op.code == OpCode::kSerializationOpaque) {
      origin.traced.fate = OpFate::kInlined;
    } else if (op.code != OpCode::kConstant && op.results.size() == 1) {
      const auto bound = bindings_.find(op.results[0]);
      const bool arithmetic = bound != bindings_.end() && bound->second.value != kNoValue &&
                              g_.value(bound->second.value).host && op.code != OpCode::kIsolatedGroup;
      if (arithmetic) origin.traced.fate = OpFate::kShapes;
    }
  }

  void lower_op(const ir::Op& op, int depth) {
    switch (op.code) {
      case OpCode::kConstant:
        return lower_constant(op);
      case OpCode::kInvoke:
        return lower_invoke(op, depth);
      case OpCode::kCreateToken:
        bindings_[op.results[0]].token = g_.state_initial;
        return;
      case OpCode::kJoinToken:
        return join_tokens(op);
      case OpCode::kReadHandle:
        return read_handle(op);
      case OpCode::kWriteHandle:
        return write_handle(op);
      case OpCode::kIsolatedGroup:
        return inline_region(op, op.regions.at(0).block(), depth);
      case OpCode::kSerializationOpaque:
        if (const ir::Block* body = ir::stand_in_body(op)) return inline_region(op, *body, depth);
        break;
      case OpCode::kSerializationUnrealizedConversion:
      case OpCode::kCopyWithConstraints:
      case OpCode::kCopyDiscardingConstraints:
        bindings_[op.results[0]] = bindings_.at(op.operands[0]);
        return;
      case OpCode::kDebuginfoRecord:
      case OpCode::kDebuginfoValue:
      case OpCode::kExecutionTargetSpec:
        return;
      default:
        break;
    }
    const bool has_body = !op.regions.empty() && !op.info().decomposable;
    if (has_body) throw NotPlannable{fmt::format("{} has regions", op.info().text_name)};
    Node node;
    node.code = op.code;
    node.source = &op;
    for (const ir::Value* v : op.operands) node.inputs.push_back(tensor(v));
    for (ir::Value* v : op.results) {
      if (!v->type->is_tensor()) throw NotPlannable{fmt::format("{} gives no tensor", op.info().text_name)};
      node.outputs.push_back(g_.new_value(v->type->dtype(), {}));
      bindings_[v].value = node.outputs.back();
    }
    infer_shapes(g_, node);
    append_op(std::move(node));
  }

  void append_op(Node node) {
    // Shape arithmetic needs no node; a refinement of extents is the value itself.
    const bool host = node.outputs.size() == 1 && g_.value(node.outputs[0]).host;
    if (!host) g_.append(std::move(node));
  }

  ValueId tensor(const ir::Value* v) const {
    const auto it = bindings_.find(v);
    if (it == bindings_.end() || it->second.value == kNoValue)
      throw NotPlannable{"a value that is no tensor is used as one"};
    return it->second.value;
  }

  void lower_constant(const ir::Op& op) {
    const ir::TypeRef type = op.results[0]->type;
    std::vector<Expr> shape;
    for (std::int64_t d : type->shape().dims()) shape.push_back(g_.exprs.constant(d));
    const ValueId v = g_.new_value(type->dtype(), std::move(shape));
    NDArray value = ir::constant_value(op);
    if (is_integer(value.dtype()) && dtype_bits(value.dtype()) >= 16 && value.shape().rank() <= 1 &&
        value.element_count() <= 16) {
      std::vector<double> elements(static_cast<std::size_t>(value.element_count()));
      read_as_f64(value, elements);
      std::vector<Expr> host;
      host.reserve(elements.size());
      for (double e : elements) host.push_back(g_.exprs.constant(static_cast<std::int64_t>(e)));
      g_.value(v).host = std::move(host);
    }
    g_.value(v).constant = std::move(value);
    bindings_[op.results[0]].value = v;
  }

  void inline_region(const ir::Op& op, const ir::Block& block, int depth) {
    for (std::size_t i = 0; i < block.arguments.size(); ++i)
      bindings_[block.arguments[i]] = bindings_.at(op.operands.at(i));
    const auto results = lower_block(block, depth + 1);
    if (results.size() < op.results.size()) throw NotPlannable{"a body yields too little"};
    for (std::size_t i = 0; i < op.results.size(); ++i) {
      // Bindings are copied: a body that is inlined again overwrites its own.
      const Binding bound = bindings_.at(results[i]);
      bindings_[op.results[i]] = bound;
    }
  }

  void lower_invoke(const ir::Op& op, int depth) {
    const ir::Graph callee = module_.callee(op);
    const auto decl = callee.composite();
    if (decl && options_.keep_composites && !options_.inline_symbols.contains(callee.name()) &&
        composite(op, callee, *decl)) {
      kept_.insert(&op);
      return;
    }
    inline_region(op, callee.body(), depth);
  }

  // Makes a node of a call to a known composite; false when its form is not one that a kernel could take.
  bool composite(const ir::Op& op, const ir::Graph& callee, const ir::CompositeDecl& decl) {
    for (const ir::Value* result : op.results) {
      if (!result->type->is_tensor()) return false;
    }
    Node node;
    node.source = &op;
    node.code = op.code;
    node.composite_symbol = callee.name();
    for (const ir::Value* v : op.operands) node.inputs.push_back(tensor(v));
    if (decl.name == "gated_delta_update") return delta_rule(std::move(node), op, callee);
    const std::vector<ValueId> lowered = lower_composite(g_, decl, node.composite_symbol, op, node.inputs);
    for (std::size_t i = 0; i < lowered.size(); ++i) bindings_[op.results[i]].value = lowered[i];
    if (!lowered.empty()) return true;
    if (op.results.size() != 1) return false;
    bool known = false;
    if (decl.name == "rms_norm") known = rms_norm(node, decl);
    if (decl.name == "layer_norm" || decl.name == "group_norm" || decl.name == "instance_norm")
      known = layer_norm(node, decl);
    if (decl.name == "rope") known = rope(node, callee, decl);
    if (decl.name == "scaled_dot_product_attention") known = attention(node, decl);
    if (decl.name == "gather_mm") known = experts(node, decl);
    if (!known) return false;
    std::vector<Expr> shape = g_.value(node.inputs[0]).shape;
    if (node.kind == NodeKind::kExperts) shape = experts_shape(node);
    if (node.kind == NodeKind::kAttention) shape.back() = g_.value(node.inputs[2]).shape.back();
    if (!require_declared(g_, op.results[0]->type, shape)) return false;
    node.outputs = {g_.new_value(op.results[0]->type->dtype(), std::move(shape))};
    bindings_[op.results[0]].value = node.outputs[0];
    g_.append(std::move(node));
    return true;
  }

  bool delta_rule(Node node, const ir::Op& op, const ir::Graph& callee) {
    const auto params = read_delta_rule(callee);
    if (!params || node.inputs.size() != 6 || op.results.size() != 2) return false;
    const auto shape = [&](std::size_t i) { return g_.value(node.inputs[i]).shape; };
    const std::vector<Expr> query = shape(0), value = shape(2), state = shape(5);
    const bool four = query.size() == 4 && value.size() == 4 && state.size() == 4;
    if (!four || shape(1) != query || !std::equal(query.begin(), query.end() - 1, value.begin())) return false;
    const std::vector<Expr> tokens(query.begin(), query.end() - 1);
    if (shape(3) != tokens || shape(4) != tokens || state != std::vector{query[0], query[1], query[3], value[3]})
      return false;
    for (const ValueId v : node.inputs) {
      if (!is_working_float(g_.value(v).dtype)) return false;
    }
    const std::vector<Expr> out = {query[0], query[2], query[1], value[3]};
    if (!require_declared(g_, op.results[0]->type, out) || !require_declared(g_, op.results[1]->type, state))
      return false;
    node.kind = NodeKind::kDeltaRule;
    node.params = *params;
    node.outputs = {g_.new_value(op.results[0]->type->dtype(), out), g_.new_value(op.results[1]->type->dtype(), state)};
    for (std::size_t i = 0; i < 2; ++i) bindings_[op.results[i]].value = node.outputs[i];
    g_.append(std::move(node));
    return true;
  }

  // Whether `axes` of a norm, a number or a list, names the last axis of its first operand alone.
  bool over_last_axis(const Node& node, const ir::CompositeDecl& decl) const {
    ir::AttrRef axes = decl.attribute("axes");
    if (axes && axes->is(ir::AttrCode::kSerializationArray))
      axes = axes->as_array().size() == 1 ? axes->as_array()[0] : nullptr;
    if (!axes) return false;
    const std::int64_t axis = axes->as_int();
    return axis == -1 || axis == std::ssize(g_.value(node.inputs.at(0)).shape) - 1;
  }

  bool rms_norm(Node& node, const ir::CompositeDecl& decl) {
    const ir::AttrRef eps = decl.attribute("eps");
    if (node.inputs.size() != 2 || !eps || !over_last_axis(node, decl)) return false;
    node.kind = NodeKind::kRmsNorm;
    node.params = NormParams{static_cast<float>(eps->as_float()), false};
    return true;
  }

  // layer_norm over the last axis, group_norm, instance_norm. The emitter refuses extents and scales that it cannot
  // take.
  bool layer_norm(Node& node, const ir::CompositeDecl& decl) {
    const ir::AttrRef eps = decl.attribute("eps"), groups = decl.attribute("num_groups");
    const auto& shape = g_.value(node.inputs.at(0)).shape;
    if (node.inputs.size() != 3 || !eps || shape.empty()) return false;
    LayerNormParams params;
    params.eps = static_cast<float>(eps->as_float());
    if (decl.name == "layer_norm") {
      if (!over_last_axis(node, decl)) return false;
    } else {
      const auto channels = shape.size() > 2 ? g_.exprs.as_constant(shape[1]) : std::nullopt;
      if (!channels || (decl.name == "group_norm" && !groups)) return false;
      params.groups = decl.name == "group_norm" ? groups->as_int() : *channels;
      if (params.groups <= 0 || *channels <= 0 || *channels % params.groups) return false;
    }
    node.kind = NodeKind::kLayerNorm;
    node.params = params;
    return true;
  }

  bool rope(Node& node, const ir::Graph& callee, const ir::CompositeDecl& decl) {
    if (decl.input_names.size() != node.inputs.size() || node.inputs.size() < 2 || node.inputs.size() > 3) return false;
    if (decl.input_names[0] != "input" || decl.input_names[1] != "position_ids") return false;
    if (node.inputs.size() == 3) return false;  // given frequencies: the body
    const auto head_dim = g_.static_extent(node.inputs[0], g_.value(node.inputs[0]).shape.size() - 1);
    const ir::AttrRef base = decl.attribute("base"), scale = decl.attribute("scale"), dims = decl.attribute("dims");
    const ir::AttrRef interleaved = decl.attribute("interleaved");
    if (!head_dim || !base) return false;
    const std::int64_t rotated = dims ? dims->as_int() : *head_dim;
    if (rotated <= 0 || rotated > *head_dim || rotated % 2) return false;
    RopeParams params;
    params.interleaved = interleaved && interleaved->as_bool();
    params.inverse_frequencies = body_frequencies(callee, rotated / 2);
    const double factor = scale ? scale->as_float() : 1.0;
    if (params.inverse_frequencies.empty()) {
      for (std::int64_t i = 0; i < rotated / 2; ++i) {
        const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(rotated);
        params.inverse_frequencies.push_back(static_cast<float>(factor * std::pow(base->as_float(), exponent)));
      }
    } else if (factor != 1.0) {
      return false;  // whether the body's constant holds the factor is not declared
    }
    node.kind = NodeKind::kRope;
    node.params = std::move(params);
    return true;
  }

  // The f32 constant of `half` elements that the body multiplies positions with: what the file computes with.
  static std::vector<float> body_frequencies(const ir::Graph& callee, std::int64_t half) {
    for (const auto& op : callee.body().ops) {
      if (op->code != OpCode::kConstant || op->results[0]->type->dtype() != DType::kF32) continue;
      const Shape& shape = op->results[0]->type->shape();
      if (!shape.is_static() || shape.rank() == 0 || shape[shape.rank() - 1] != half || shape.element_count() != half)
        continue;
      const NDArray value = ir::constant_value(*op);
      const auto span = value.values<float>();
      return {span.begin(), span.end()};
    }
    return {};
  }

  bool attention(Node& node, const ir::CompositeDecl& decl) {
    if (node.inputs.size() < 3 || node.inputs.size() > 5 || decl.input_names.size() != node.inputs.size()) return false;
    const auto head_dim = g_.static_extent(node.inputs[0], g_.value(node.inputs[0]).shape.size() - 1);
    if (!head_dim || g_.value(node.inputs[0]).shape.size() != 4) return false;
    AttentionParams params;
    for (std::size_t i = 3; i < node.inputs.size(); ++i) {
      int* const place = decl.input_names[i] == "sinks"       ? &params.sinks
                         : decl.input_names[i] == "attn_mask" ? &params.mask
                                                              : nullptr;
      if (!place || *place >= 0) return false;
      *place = static_cast<int>(i);
    }
    if (params.mask >= 0 && !mask_as_scores(node.inputs[static_cast<std::size_t>(params.mask)])) return false;
    const ir::AttrRef scale = decl.attribute("scale"), causal = decl.attribute("is_causal"),
                      window = decl.attribute("window_size");
    params.scale = scale ? static_cast<float>(scale->as_float()) : 1.0f / std::sqrt(static_cast<float>(*head_dim));
    params.causal = causal && causal->as_bool();
    params.window = window ? window->as_int() : 0;
    node.kind = NodeKind::kAttention;
    node.params = params;
    return true;
  }

  // A mask of truth values as the composite's body takes it: 0 where a key is seen, -10000 elsewhere.
  bool mask_as_scores(ValueId& mask) {
    if (g_.value(mask).shape.size() > 4) return false;
    if (g_.value(mask).dtype != DType::kI1) return is_working_float(g_.value(mask).dtype);
    Node node;
    node.kind = NodeKind::kElementwise;
    node.inputs = {mask};
    node.params = ElementwiseParams{{{ScalarOp::kConstant, -1, -1, -1, 0.0f},
                                     {ScalarOp::kConstant, -1, -1, -1, -1e4f},
                                     {ScalarOp::kSelect, 0, 1, 2}}};
    mask = g_.new_value(DType::kF32, g_.value(mask).shape);
    node.outputs = {mask};
    g_.append(std::move(node));
    return true;
  }

  // A row of x [n, 1, 1, in] or [1, n, k or 1, 1, in] times the matrices of [1, e, in, out] that indices [n, k] name.
  bool experts(Node& node, const ir::CompositeDecl& decl) {
    const ir::AttrRef axes = decl.attribute("num_batch_axes");
    if (node.inputs.size() != 3 || decl.input_names.size() != 3 || decl.input_names[2] != "rhs_indices" || !axes ||
        axes->as_int() != 1) {
      return false;
    }
    const ExprPool& x = g_.exprs;
    std::vector<Expr> left = g_.value(node.inputs[0]).shape;
    const auto &right = g_.value(node.inputs[1]).shape, &at = g_.value(node.inputs[2]).shape;
    if (left.size() == 4) left.insert(left.begin(), g_.exprs.constant(1));
    if (left.size() != 5 || right.size() != 4 || at.size() != 2 || left[1] != at[0]) return false;
    const auto choices = x.as_constant(at[1]), experts = x.as_constant(right[1]);
    const bool one_row = x.is_constant(left[0], 1) && x.is_constant(left[3], 1) && x.is_constant(right[0], 1);
    const bool known = choices && *choices >= 1 && experts && *experts >= 1 && x.as_constant(right[2]) &&
                       x.as_constant(right[3]) && left[4] == right[2];
    if (!one_row || !known || (left[2] != at[1] && !x.is_constant(left[2], 1))) return false;
    ExpertsParams params;
    params.experts = *experts;
    params.choices = left[2] == at[1] ? 1 : *choices;
    node.kind = NodeKind::kExperts;
    node.params = std::move(params);
    return true;
  }

  std::vector<Expr> experts_shape(const Node& node) {
    const auto &right = g_.value(node.inputs[1]).shape, &at = g_.value(node.inputs[2]).shape;
    const Expr one = g_.exprs.constant(1);
    return {one, at[0], at[1], one, right[3]};
  }

  void join_tokens(const ir::Op& op) {
    StateVersions joined = *bindings_.at(op.operands.at(0)).token;
    for (std::size_t i = 1; i < op.operands.size(); ++i) {
      const StateVersions& other = *bindings_.at(op.operands[i]).token;
      for (std::size_t s = 0; s < joined.size(); ++s) joined[s] = std::max(joined[s], other[s]);  // the later content
    }
    bindings_[op.results[0]].token = std::move(joined);
  }

  const StateVersions& token_of(const ir::Value* v) const {
    const auto it = bindings_.find(v);
    if (it == bindings_.end() || !it->second.token) throw NotPlannable{"a token is missing"};
    return *it->second.token;
  }

  void read_handle(const ir::Op& op) {
    const int state = bindings_.at(op.operands.at(0)).handle;
    if (state < 0) throw NotPlannable{"a read of something that is no state"};
    const StateVersions versions = token_of(op.operands.at(1));
    bindings_[op.results[0]].value = versions[static_cast<std::size_t>(state)];
    bindings_[op.results[1]].token = versions;
  }

  void write_handle(const ir::Op& op) {
    const int state = bindings_.at(op.operands.at(0)).handle;
    if (state < 0) throw NotPlannable{"a write to something that is no state"};
    StateVersions versions = token_of(op.operands.at(2));
    const ValueId content = tensor(op.operands.at(1));
    g_.value(content).state = state;
    versions[static_cast<std::size_t>(state)] = content;
    bindings_[op.results[0]].token = std::move(versions);
  }

  const ir::Module& module_;
  const LowerOptions& options_;
  Graph g_;
  std::unordered_map<const ir::Value*, Binding> bindings_;
  std::vector<std::string> state_names_;
  std::set<const ir::Op*> kept_;  // calls of composites that became nodes
};

}  // namespace

Graph lower(const ir::Module& module, const ir::Graph& function, const LowerOptions& options) {
  return Lowering(module, options).run(function);
}

}  // namespace coreai::compiler
