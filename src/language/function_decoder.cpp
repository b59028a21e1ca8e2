// The dynamic contract: input_ids [1,q], position_ids [1,s] holding 0..s-1 with s = cached + q, caches as states,
// logits [1,q,vocab]. Names, dtypes and lengths come from the descriptor.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "coreai/base/ascii.h"
#include "coreai/base/error.h"
#include "language/decoder.h"

namespace coreai {
namespace {

constexpr std::size_t kMaxStates = 4;

[[noreturn]] void refuse(const FunctionDescriptor& function, std::string what) {
  throw UnsupportedError(
      std::move(what), fmt::format("function '{}'", function.name),
      "The sequential engine runs models of the dynamic export: input_ids [1,?], position_ids [1,?], "
      "one to four states, logits [1,?,vocab]");
}

std::size_t find_by_name(const FunctionDescriptor& function, const std::vector<ValueDescriptor>& values,
                         std::string_view part, const char* what) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (contains_ignoring_case(values[i].name, part)) return i;
  refuse(function, fmt::format("no {} is called '{}'", what, part));
}

void require_row_of_integers(const FunctionDescriptor& function, const ValueDescriptor& value) {
  const bool row =
      value.shape.rank() == 2 && (value.shape[0] == 1 || value.shape[0] == kDynamic) && value.shape[1] == kDynamic;
  if (row && value.dtype == DType::kSI32) return;
  refuse(function, fmt::format("input '{}' is {}, not tensor<1x?xsi32>", value.name, value.type_name));
}

// What a state is: a cache with a row per position, growing or of fixed length, or recurrent.
struct StateRole {
  std::optional<std::size_t> growing_axis;
  std::optional<std::int64_t> fixed_capacity;
  // Recurrent states and windows hold what cannot be recomputed from a shorter run.
  bool recurrent() const { return !growing_axis && !fixed_capacity; }
};

// What the bundle declares decides; the shape has to allow it.
StateRole classify_declared(const FunctionDescriptor& function, const ValueDescriptor& state, StateKind kind,
                            StateRole role) {
  if (auto conflict = state_kind_conflict(state, kind); !conflict.empty()) refuse(function, std::move(conflict));
  if (kind == StateKind::kKvCache && !role.growing_axis) role.fixed_capacity = cache_positions(state);
  return role;
}

StateRole classify(const FunctionDescriptor& function, const ValueDescriptor& state,
                   std::span<const DeclaredState> declared) {
  StateRole role;
  for (std::size_t axis = 0; axis < state.shape.rank(); ++axis) {
    if (state.shape[axis] != kDynamic) continue;
    if (role.growing_axis)
      refuse(function, fmt::format("state '{}' ({}) has more than one unknown extent", state.name, state.type_name));
    role.growing_axis = axis;
  }
  for (const auto& known : declared)
    if (known.name == state.name) return classify_declared(function, state, known.kind, role);
  if (role.growing_axis) return role;
  const bool named = contains_ignoring_case(state.name, "cache") || contains_ignoring_case(state.name, "kv");
  if (named) role.fixed_capacity = cache_positions(state);
  return role;
}

class FunctionDecoder final : public Decoder {
 public:
  FunctionDecoder(const InferenceFunction& function, const EngineConfiguration& configuration)
      : function_(function), invocation_(function.make_invocation()), max_positions_(configuration.max_context_length) {
    const FunctionDescriptor& d = function_.descriptor();
    read_signature(d);
    if (d.states.empty() || d.states.size() > kMaxStates) refuse(d, fmt::format("it has {} states", d.states.size()));
    for (const auto& state : d.states) {
      roles_.push_back(classify(d, state, configuration.states));
      if (roles_.back().fixed_capacity) max_positions_ = std::min(max_positions_, *roles_.back().fixed_capacity);
      rewindable_ = rewindable_ && !roles_.back().recurrent();
    }
    capacity_ = std::min(configuration.initial_capacity, max_positions_);
    for (std::size_t i = 0; i < d.states.size(); ++i)
      states_.push_back(function_.make_state(d.states[i].name, state_shape(i)));
    for (std::size_t i = 0; i < states_.size(); ++i) invocation_.set_state(i, states_[i]);
    make_positions();
  }

  const NDArray& forward(std::span<const TokenId> tokens, std::int64_t start, std::int64_t rows,
                         std::stop_token stop) override {
    const auto count = static_cast<std::int64_t>(tokens.size());
    const std::int64_t length = start + count;
    COREAI_INVARIANT(count > 0 && start >= 0 && length <= max_positions_);
    if (length > capacity_) grow(length);
    if (ids_.empty() || ids_.element_count() < count) ids_ = NDArray(DType::kSI32, {1, count});
    std::copy(tokens.begin(), tokens.end(), ids_.mutable_values<TokenId>().begin());
    invocation_.set_input(ids_index_, NDArray(DType::kSI32, {1, count}, ids_.storage()));
    invocation_.set_input(positions_index_, NDArray(DType::kSI32, {1, length}, positions_.storage()));
    invocation_.set_last_rows(logits_index_, rows);
    invocation_.run(std::move(stop));
    return invocation_.output(logits_index_);
  }

  void clear() override {
    // Rows of a cache are written before they are read; only recurrent states carry something over.
    for (std::size_t i = 0; i < states_.size(); ++i)
      if (roles_[i].recurrent()) states_[i].reset();
  }
  bool supports_rewind() const override { return rewindable_; }
  std::int64_t max_positions() const override { return max_positions_; }
  std::int64_t vocab_size() const override { return vocab_size_; }

 private:
  void read_signature(const FunctionDescriptor& d) {
    if (d.inputs.size() != 2) refuse(d, fmt::format("it has {} inputs", d.inputs.size()));
    ids_index_ = find_by_name(d, d.inputs, "input_ids", "input");
    positions_index_ = find_by_name(d, d.inputs, "position", "input");
    for (const auto& input : d.inputs) require_row_of_integers(d, input);
    logits_index_ = find_by_name(d, d.outputs, "logit", "output");
    const ValueDescriptor& logits = d.outputs[logits_index_];
    if (logits.shape.rank() != 3 || logits.shape[2] <= 0)
      refuse(d, fmt::format("output '{}' is {}, not [1,?,vocab]", logits.name, logits.type_name));
    if (logits.dtype != DType::kF32 && logits.dtype != DType::kF16 && logits.dtype != DType::kBF16)
      refuse(d, fmt::format("output '{}' is {}, not f32, f16 or bf16", logits.name, logits.type_name));
    vocab_size_ = logits.shape[2];
  }

  Shape state_shape(std::size_t index) const {
    Shape shape = function_.descriptor().states[index].shape;
    if (roles_[index].growing_axis) shape[*roles_[index].growing_axis] = capacity_;
    return shape;
  }

  // 0, 1, 2, ... once per capacity: a step's position_ids are a prefix of it.
  void make_positions() {
    positions_ = NDArray(DType::kSI32, {1, capacity_});
    const auto values = positions_.mutable_values<std::int32_t>();
    std::iota(values.begin(), values.end(), 0);
  }

  void grow(std::int64_t length) {
    while (capacity_ < length) capacity_ = std::min(capacity_ * 2, max_positions_);
    for (std::size_t i = 0; i < states_.size(); ++i) {
      if (!roles_[i].growing_axis) continue;
      states_[i].grow(state_shape(i));
      invocation_.set_state(i, states_[i]);
    }
    make_positions();
  }

  InferenceFunction function_;
  Invocation invocation_;
  std::int64_t max_positions_, capacity_ = 0, vocab_size_ = 0;
  std::size_t ids_index_ = 0, positions_index_ = 0, logits_index_ = 0;
  bool rewindable_ = true;
  std::vector<StateRole> roles_;
  std::vector<State> states_;
  NDArray ids_, positions_;
};

}  // namespace

std::unique_ptr<Decoder> make_function_decoder(const InferenceFunction& function,
                                               const EngineConfiguration& configuration) {
  return std::make_unique<FunctionDecoder>(function, configuration);
}

std::unique_ptr<SequentialEngine> SequentialEngine::create(const InferenceFunction& function,
                                                           const EngineConfiguration& configuration) {
  const EngineConfiguration resolved = configuration.resolved();
  return std::make_unique<SequentialEngine>(make_function_decoder(function, resolved), resolved);
}

}  // namespace coreai
