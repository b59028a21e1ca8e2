#include "coreai/runtime/ai_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "coreai/base/error.h"
#include "coreai/ir/verifier.h"
#include "runtime/impl.h"
#include "runtime/specialization_cache.h"

namespace coreai {
namespace {

std::shared_ptr<detail::ModelImpl> specialise(std::unique_ptr<ir::Module> module, std::string asset_hash,
                                              const SpecializationOptions& options) {
  options.validate();
  if (options.compute_unit != ComputeUnitKind::kCpu) {
    throw UnsupportedError("no back-end for this compute unit is built in", "SpecializationOptions::compute_unit",
                           "Use ComputeUnitKind::kCpu");
  }
  if (!module) throw InvalidArgumentError("there is no program", "AIModel::from_module");
  auto model = std::make_shared<detail::ModelImpl>();
  model->resources.module = std::move(module);
  model->resources.asset_hash = std::move(asset_hash);
  model->options = options;
  for (const ir::Graph& graph : model->resources.module->functions()) model->functions.push_back(describe(graph));
  return model;
}

// Hash and rules of the dialect are checked when an asset is opened for the first time; later its inode, size and time
// of change vouch for it.
std::shared_ptr<detail::ModelImpl> open_and_specialise(const std::filesystem::path& path,
                                                       const SpecializationOptions& options) {
  options.validate();
  const SpecializationCache cache = SpecializationCache::of(options);
  AIModelAsset asset = AIModelAsset::open(path, HashCheck::kSkip);
  const std::filesystem::path program = path / "main.mlirb";
  const bool known = options.use_cache && !asset.hash_hex().empty() && cache.hash_is_known(program, asset.hash_hex());
  if (!known) asset = AIModelAsset::open(path, HashCheck::kVerify);
  std::unique_ptr<ir::Module> module = asset.load_module(known ? ProgramCheck::kSkip : ProgramCheck::kVerify);
  if (!known && options.use_cache) cache.remember_hash(program, asset.hash_hex());
  return specialise(std::move(module), asset.hash_hex(), options);
}

}  // namespace

AIModel AIModel::load(const std::filesystem::path& asset, const SpecializationOptions& options) {
  AIModel model;
  model.impl_ = open_and_specialise(asset, options);
  return model;
}

AIModel AIModel::from_module(std::unique_ptr<ir::Module> module, const SpecializationOptions& options) {
  if (module) ir::verify(*module);
  AIModel model;
  model.impl_ = specialise(std::move(module), {}, options);
  return model;
}

std::vector<std::string> AIModel::function_names() const {
  std::vector<std::string> names;
  for (const FunctionDescriptor& function : impl_->functions) names.push_back(function.name);
  return names;
}

const FunctionDescriptor* AIModel::function_descriptor(std::string_view name) const {
  for (const FunctionDescriptor& function : impl_->functions) {
    if (function.name == name) return &function;
  }
  return nullptr;
}

InferenceFunction AIModel::load_function(std::string_view name) const {
  const FunctionDescriptor* descriptor = function_descriptor(name);
  if (!descriptor) {
    throw NotFoundError(fmt::format("there is no function \"{}\"", name), {},
                        fmt::format("There are: {}", fmt::join(function_names(), ", ")));
  }
  InferenceFunction function;
  const std::lock_guard lock(impl_->mutex);
  auto& loaded = impl_->loaded[descriptor->name];
  if (!loaded) {
    auto made = std::make_shared<detail::FunctionImpl>();
    made->descriptor = *descriptor;
    for (const ir::Graph& graph : impl_->resources.module->functions()) {
      if (graph.symbol() != name) continue;
      made->executor = detail::make_executor(impl_->resources, graph, *descriptor, impl_->options);
    }
    COREAI_INVARIANT(made->executor != nullptr);
    loaded = std::move(made);
  }
  function.impl_ = loaded;
  return function;
}

const SpecializationOptions& AIModel::options() const {
  return impl_->options;
}

}  // namespace coreai
