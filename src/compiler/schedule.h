#pragma once

#include "compiler/graph.h"

namespace coreai::compiler {

struct ScheduleOptions {
  bool views = true;  // off: movement operations are copied by the reference kernels
};

// Turns the graph into steps over buffers. Throws NotPlannable.
Plan schedule(Graph graph, const ScheduleOptions& options);

// rows: marks the steps after the last one that every row needs, so that a call can compute only its last rows.
void limit_rows(Plan& plan);
// memory: finds the steps between which each buffer lives, so that others can have its place; without `share`, all.
void find_lifetimes(Plan& plan, bool share);

}  // namespace coreai::compiler
