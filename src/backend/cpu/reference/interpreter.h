// Runs a graph operation by operation, with the arithmetic that the file declares. Nothing is fused or reordered.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "coreai/base/ndarray.h"
#include "coreai/ir/module.h"

namespace coreai::cpu {

struct GraphPlan;

// What a graph argument is bound to: an array, or the array of a state that the graph reads and replaces.
struct Argument {
  NDArray array;
  NDArray* state = nullptr;
};

// Time spent in one kind of operation, calls of graphs and control flow not counted.
struct OpTime {
  std::int64_t calls = 0;
  double ms = 0;
};
using OpTimes = std::map<ir::OpCode, OpTime>;

// A graph prepared for running. Immutable and thread-safe: everything a run changes lives in the run and in the states.
class Interpreter {
 public:
  // `module` is kept alive. Constants stay mapped. Throws UnsupportedError for an operation that cannot run here,
  // VerificationError for a program that breaks the dialect's rules.
  Interpreter(std::shared_ptr<const ir::Module> module, const ir::Graph& graph);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Arguments and results follow the graph; the result of a token is an empty array. `stop` is looked at between
  // operations. A state's array is only replaced or written when nobody else holds its memory.
  // Throws ShapeError, UnsupportedError, CancelledError; states may then hold part of the writes.
  std::vector<NDArray> run(std::span<const Argument> arguments, std::stop_token stop, OpTimes* times = nullptr) const;

 private:
  std::shared_ptr<const ir::Module> module_;
  std::vector<std::unique_ptr<GraphPlan>> plans_;  // callees included; the first is the graph itself
};

}  // namespace coreai::cpu
