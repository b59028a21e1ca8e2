// A program that a test wrote, loaded for the CPU without the cache on disk.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coreai/ir/module.h"
#include "coreai/runtime/ai_model.h"

namespace coreai::test {

inline InferenceFunction load_program(std::unique_ptr<ir::Module> module, std::vector<std::string> disabled_passes,
                                      int threads, Precision precision) {
  SpecializationOptions options;
  options.precision = precision;
  options.threads = threads;
  options.use_cache = false;
  options.disabled_passes = std::move(disabled_passes);
  return AIModel::from_module(std::move(module), options).load_function("main");
}

}  // namespace coreai::test
