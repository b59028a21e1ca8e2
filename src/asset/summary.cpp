#include <algorithm>
#include <unordered_set>

#include "coreai/asset/asset.h"
#include "coreai/ir/printer.h"

namespace coreai {
namespace {

using ir::Block;
using ir::Op;
using ir::OpCode;

ValueDescriptor describe_value(std::string name, ir::TypeRef type) {
  ValueDescriptor value;
  value.name = std::move(name);
  value.type_name = ir::to_text(type);
  if (type->is_tensor() || type->is_handle()) {
    value.dtype = type->dtype();
    value.shape = type->shape();
  }
  return value;
}

// Bytes that a constant takes in the file, by its declared dtype.
std::uint64_t stored_bytes(const Op& constant) {
  const ir::Attribute& value = constant.required("value");
  if (value.is(ir::AttrCode::kSerializationDenseResource)) return value.field<ir::ResourceRef>(0)->size;
  if (value.is(ir::AttrCode::kSerializationDenseElements)) return value.field<std::vector<std::byte>>(1).size();
  return 0;
}

// "primitive.reshape_v2" counts as "reshape", as the reference's summary names it.
std::string counted_name(std::string_view disk_name) {
  disk_name.remove_prefix(disk_name.rfind('.') + 1);
  return std::string(disk_name.substr(0, disk_name.rfind("_v")));
}

// What holds or ends other operations is not counted.
bool is_counted(OpCode code) {
  return code != OpCode::kGraph && code != OpCode::kNamespace && code != OpCode::kOutput && code != OpCode::kYield;
}

class Counter {
 public:
  explicit Counter(AIModelAssetSummary& summary) : summary_(summary) {}

  void count(const Block& block, bool in_decomposition) {
    for (const auto& op : block.ops) {
      if (is_counted(op->code)) {
        const std::string name = counted_name(op->info().disk_name);
        ++summary_.operation_distribution[name];
        if (!in_decomposition) ++summary_.top_level_operations[name];
      }
      if (op->code == OpCode::kConstant) add_constant(*op);
      for (const ir::Region& region : op->regions) {
        for (const auto& inner : region.blocks) count(*inner, in_decomposition || op->info().decomposable);
      }
    }
  }

 private:
  // A blob that several constants share counts once.
  void add_constant(const Op& op) {
    const ir::AttrRef value = op.attribute("value");
    if (!seen_.insert(value).second) return;
    if (op.results.size() != 1 || !op.results[0]->type->is_tensor()) return;
    summary_.storage_bytes[std::string(dtype_name(op.results[0]->type->dtype()))] += stored_bytes(op);
  }

  AIModelAssetSummary& summary_;
  std::unordered_set<ir::AttrRef> seen_;
};

}  // namespace

FunctionDescriptor describe(const ir::Graph& graph) {
  FunctionDescriptor function;
  function.name = graph.symbol();
  const std::vector<std::string> inputs = graph.input_names();
  const auto& arguments = graph.body().arguments;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    auto& list = arguments[i]->type->is_handle() ? function.states : function.inputs;
    list.push_back(describe_value(inputs[i], arguments[i]->type));
  }
  const std::vector<std::string> outputs = graph.output_names();
  const std::vector<ir::TypeRef> results = graph.result_types();
  for (std::size_t i = 0; i < results.size(); ++i) {
    // A token stands for the new value of a state.
    if (!results[i]->is_token()) function.outputs.push_back(describe_value(outputs[i], results[i]));
  }
  return function;
}

AIModelAssetSummary summarize(const ir::Module& module) {
  AIModelAssetSummary summary;
  for (const ir::Graph& graph : module.functions()) summary.functions.push_back(describe(graph));
  for (const ir::Graph& graph : module.graphs()) {
    if (const auto composite = graph.composite()) summary.composites.push_back(composite->name);
  }
  std::sort(summary.composites.begin(), summary.composites.end());
  summary.composites.erase(std::unique(summary.composites.begin(), summary.composites.end()), summary.composites.end());
  Counter(summary).count(module.body(), false);
  return summary;
}

AIModelAssetSummary AIModelAsset::summary() const {
  AIModelAssetSummary summary = summarize(*load_module());
  summary.program_bytes = program_->bytes().size();
  return summary;
}

}  // namespace coreai
