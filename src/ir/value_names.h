// Names of values in the text form.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>

#include "coreai/ir/module.h"

namespace coreai::ir {

// Numbers as MLIR's printer does: results %0, %1, ... and block arguments %arg0, ... in order; the regions of a block
// start where the whole block ended, siblings at the same numbers. Results with names of their own ("%output") get a
// suffix when the name is taken.
class ValueNames {
 public:
  ValueNames(const Op& root, bool enter_decompositions) : enter_decompositions_(enter_decompositions) {
    number_regions(root, Counters{});
  }

  // "%3", "%2#1", "%output_0", "%arg1"; "<<unknown value>>" for a value that no numbered op or block defines.
  std::string operator()(const Value* value) const;
  // What stands left of "=": "%0", "%1:2", "%output, %out_token".
  std::string results(const Op& op) const;

 private:
  struct Counters {
    std::size_t results = 0, arguments = 0, conflicts = 0;
  };
  struct Name {
    std::string text;
    bool in_group = false;  // one of several results that share a number
  };
  void number_regions(const Op& op, const Counters& start);
  void number_results(const Op& op, Counters& counters, std::unordered_set<std::string>& local);
  bool taken(const std::string& name) const { return used_.contains(name); }

  bool enter_decompositions_;
  std::unordered_map<const Value*, Name> names_;
  std::unordered_multiset<std::string> used_;  // in the regions that enclose the current one, and in it
  int depth_ = 0;
};

}  // namespace coreai::ir
