// What the recognisers ask of values: each answers nothing where the value has another form.
#pragma once

#include <array>
#include <optional>

#include "compiler/graph.h"

namespace coreai::compiler {

// f32, f16 or bf16: casts between them are rounding that a plan may leave out; narrower types are quantisation.
bool is_working_float(DType dtype);

// Operands of a binary operation under either of its names.
std::optional<std::array<ValueId, 2>> match_binary(const Graph& g, ValueId id, ir::OpCode plain,
                                                   ir::OpCode broadcasting);
std::optional<std::array<ValueId, 2>> match_product(const Graph& g, ValueId id);
std::optional<std::array<ValueId, 2>> match_sum(const Graph& g, ValueId id);
std::optional<std::array<ValueId, 2>> match_difference(const Graph& g, ValueId id);

// The one element of a float constant of any rank.
std::optional<float> scalar_constant(const Graph& g, ValueId id);

// The first operand of an operation of that code.
std::optional<ValueId> operand_of(const Graph& g, ValueId id, ir::OpCode code);

// Whether operand `operand` of a node is a constant that names the last axis of its first operand, and only that.
bool names_last_axis(const Graph& g, const Node& node, std::size_t operand);

// Whether a value's axes are those of another up to axes of extent 1: the same elements in the same order.
bool only_moves_unit_axes(const Graph& g, ValueId from, ValueId to);

}  // namespace coreai::compiler
