#include "ir/value_names.h"

#include <fmt/format.h>

#include "coreai/base/error.h"
#include "ir/signature.h"

namespace coreai::ir {
namespace {

constexpr int kMaxRegionDepth = 200;

// Ops with several fixed results print each under its own name.
bool has_named_results(const Op& op) {
  const auto& rules = op_signature(op.code).results;
  if (rules.size() < 2 || rules.size() != op.results.size()) return false;
  for (const OperandRule& rule : rules)
    if (rule.variadic) return false;
  return true;
}

}  // namespace

std::string ValueNames::operator()(const Value* value) const {
  const auto found = names_.find(value);
  if (found == names_.end()) return "<<unknown value>>";
  const Name& name = found->second;
  return name.in_group ? fmt::format("{}#{}", name.text, value->index) : name.text;
}

std::string ValueNames::results(const Op& op) const {
  if (op.results.empty()) return {};
  const Name& first = names_.at(op.results[0]);
  if (first.in_group) return fmt::format("{}:{}", first.text, op.results.size());
  std::string text = first.text;
  for (std::size_t i = 1; i < op.results.size(); ++i) text += ", " + names_.at(op.results[i]).text;
  return text;
}

void ValueNames::number_results(const Op& op, Counters& counters, std::unordered_set<std::string>& local) {
  if (op.results.empty()) return;
  if (!has_named_results(op)) {
    const std::string text = fmt::format("%{}", counters.results++);
    for (const Value* value : op.results) names_[value] = {text, op.results.size() > 1};
    return;
  }
  const auto& rules = op_signature(op.code).results;
  for (std::size_t i = 0; i < op.results.size(); ++i) {
    std::string name = fmt::format("%{}", rules[i].name);
    while (taken(name)) name = fmt::format("%{}_{}", rules[i].name, counters.conflicts++);
    used_.insert(name);
    local.insert(name);
    names_[op.results[i]] = {std::move(name), false};
  }
}

void ValueNames::number_regions(const Op& op, const Counters& start) {
  if (++depth_ > kMaxRegionDepth) {
    throw VerificationError(
        fmt::format("regions nest deeper than {} levels", kMaxRegionDepth),
        op.info().text_name.empty() ? std::string(op.info().disk_name) : std::string(op.info().text_name));
  }
  for (const Region& region : op.regions) {
    Counters counters = start;
    std::unordered_set<std::string> local;
    for (const auto& block : region.blocks) {
      for (const Value* argument : block->arguments) {
        names_[argument] = {fmt::format("%arg{}", counters.arguments++), false};
      }
      for (const auto& inner : block->ops) number_results(*inner, counters, local);
    }
    for (const auto& block : region.blocks) {
      for (const auto& inner : block->ops) {
        if (enter_decompositions_ || !inner->info().decomposable) number_regions(*inner, counters);
      }
    }
    for (const std::string& name : local) used_.erase(used_.find(name));
  }
  --depth_;
}

}  // namespace coreai::ir
