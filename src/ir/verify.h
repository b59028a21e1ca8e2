// The parts of the verifier. verifier.cpp walks module and blocks; verify_op.cpp holds an operation against the table;
// verify_graph.cpp checks graphs and calls; verify_tokens.cpp the order of state accesses.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "coreai/ir/module.h"

namespace coreai::ir {

// Where the verifier is; every error names it.
struct VerifyScope {
  const Module* module = nullptr;
  const Op* graph = nullptr;  // null outside of graphs
};

// Throws VerificationError: "graph @main, `%3 = coreai.add`: [rule] what".
[[noreturn]] void refuse(const VerifyScope& scope, const Op& op, std::string_view rule, const std::string& what);
// "operand 1 `other` (%3: tensor<4xf32>)"
std::string describe_value(const VerifyScope& scope, std::string_view role, std::size_t index, std::string_view name,
                           const Value* value);

// Counts, attributes, regions, dtypes and ranks as the table says.
void verify_shape_of_op(const VerifyScope& scope, const Op& op);
void verify_attributes(const VerifyScope& scope, const Op& op);
void verify_operand_types(const VerifyScope& scope, const Op& op);
// What the table cannot say: constants, control flow, handles, equal dtypes.
void verify_op_rules(const VerifyScope& scope, const Op& op);

// One block's reads and writes of states: each is ordered behind the last write of its state, and a write behind every
// read, by tokens.
void verify_token_order(const VerifyScope& scope, const Block& block);

// All graphs and functions of a module by symbol ("ns::name"), and who calls whom.
class SymbolTable {
 public:
  explicit SymbolTable(const Module& module);  // checks names and uniqueness
  const Op* find(const std::string& symbol) const;
  void verify_graph(const VerifyScope& scope, const Op& graph) const;
  void verify_call(const VerifyScope& scope, const Op& call) const;
  // No graph calls itself, directly or through others.
  void verify_acyclic(const Module& module) const;

 private:
  void collect(const VerifyScope& scope, const Block& block, const std::string& prefix);
  std::unordered_map<std::string, const Op*> symbols_;
};

}  // namespace coreai::ir
