#include "runtime/op_table.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "coreai/asset/asset.h"
#include "coreai/base/error.h"
#include "coreai/base/mapped_file.h"
#include "coreai/ir/builder.h"

namespace coreai::testing_support {
namespace {

using Json = nlohmann::json;
using Values = std::vector<ir::Value*>;

ir::TypeRef tensor_type(ir::Context& context, const std::string& text, ir::AttrRef encoding = nullptr) {
  std::vector<std::int64_t> dims;
  std::size_t at = 0;
  while (at < text.size() && (text[at] == '?' || (text[at] >= '0' && text[at] <= '9'))) {
    const std::size_t end = text.find('x', at);
    const std::string dim = text.substr(at, end - at);
    dims.push_back(dim == "?" ? kDynamic : std::stoll(dim));
    at = end + 1;
  }
  const std::optional<DType> dtype = dtype_from_name(text.substr(at));
  if (!dtype) throw InvalidArgumentError("unknown type", text);
  return context.tensor_type(*dtype, Shape(dims), encoding);
}

ir::TypeRef type_of(ir::Context& context, const std::string& text) {
  std::istringstream words(text);
  std::string first, kind;
  words >> first >> kind;
  if (first == "image") {
    std::uint64_t height = 0, width = 0;
    words >> height >> width;
    const ir::AttrRef code = context.enum_attr(ir::AttrCode::kFourcc, std::stoull(kind));
    return context.type(ir::TypeCode::kImage, {code, height, width});
  }
  if (kind != "sparse") return tensor_type(context, first);
  std::uint64_t stored = 0;
  words >> stored;
  // Scheme 0 is the bitmask; positions and coordinates take one bit each.
  return tensor_type(
      context, first,
      context.attribute(ir::AttrCode::kSparseTensorEncoding,
                        {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1}, std::vector<std::uint64_t>{stored}}));
}

NDArray array_of(ir::TypeRef type, const std::string& hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  NDArray array(type->dtype(), type->shape());
  if (bytes.size() != array.byte_size()) throw InvalidArgumentError("a constant has the wrong size", hex);
  array.assign(bytes);
  return array;
}

class ProgramWriter {
 public:
  explicit ProgramWriter(ir::Module& module) : module_(module), builder_(module) {}

  void function(const std::string& name, const Json& program) {
    ir::GraphSpec spec;
    spec.name = name;
    for (const Json& type : program.at("inputs")) {
      spec.inputs.push_back({fmt::format("x{}", spec.inputs.size()), type_of(module_.context(), type), ""});
    }
    // Result types are known once the steps are there: a first pass over them gives the types by number.
    std::vector<std::string> types;
    for (const Json& type : program.at("inputs")) types.push_back(type);
    for (const Json& step : program.at("steps")) {
      if (step[0] == "const") {
        types.push_back(step[1]);
      } else {
        for (const Json& type : step[2]) types.push_back(type);
      }
    }
    for (const Json& value : program.at("outputs")) {
      const ir::TypeRef type = type_of(module_.context(), types.at(value.get<std::size_t>()));
      spec.outputs.push_back({fmt::format("y{}", spec.outputs.size()), type, ""});
    }
    const ir::Graph graph = builder_.begin_graph(spec);
    builder_.end_graph(steps(graph.body().arguments, program));
  }

 private:
  Values steps(Values values, const Json& program) {
    for (const Json& step : program.at("steps")) {
      if (step[0] == "const") {
        values.push_back(builder_.constant(array_of(type_of(module_.context(), step[1]), step[2])));
        continue;
      }
      const auto code = ir::op_from_disk_name(step[0].get<std::string>());
      if (!code) throw InvalidArgumentError("unknown operation", step[0].get<std::string>());
      Values operands;
      for (const Json& value : step[1]) operands.push_back(values.at(value.get<std::size_t>()));
      std::vector<ir::TypeRef> types;
      for (const Json& type : step[2]) types.push_back(type_of(module_.context(), type));
      std::vector<std::pair<std::string, ir::AttrRef>> attributes;
      for (const auto& [name, value] : step[3].items()) {
        attributes.emplace_back(name, module_.context().enum_attr(attribute_code(name), value.get<std::uint64_t>()));
      }
      ir::Op& op = builder_.create(*code, operands, types, attributes);
      if (step.size() > 4) region(op, step[4]);
      values.insert(values.end(), op.results.begin(), op.results.end());
    }
    Values results;
    for (const Json& value : program.at("outputs")) results.push_back(values.at(value.get<std::size_t>()));
    return results;
  }

  void region(ir::Op& op, const Json& program) {
    ir::Block* outside = builder_.block();
    op.regions.at(0).blocks.clear();
    op.regions[0].blocks.push_back(std::make_unique<ir::Block>());
    ir::Block& block = *op.regions[0].blocks[0];
    for (const Json& type : program.at("inputs")) builder_.add_argument(block, type_of(module_.context(), type));
    builder_.set_block(&block);
    builder_.create(ir::OpCode::kYield, steps(block.arguments, program), {});
    builder_.set_block(outside);
  }

  static ir::AttrCode attribute_code(const std::string& name) {
    static const std::map<std::string, ir::AttrCode> kCodes = {
        {"padding_mode", ir::AttrCode::kPaddingMode},
        {"approximate", ir::AttrCode::kApproximate},
        {"scatter_mode", ir::AttrCode::kScatterMode},
        {"combiner", ir::AttrCode::kScanCombiner},
        {"interpolation_mode", ir::AttrCode::kInterpolationMode}};
    return kCodes.at(name);
  }

  ir::Module& module_;
  ir::Builder builder_;
};

}  // namespace

void write_table_asset(const std::filesystem::path& table, const std::filesystem::path& asset) {
  write_programs(Json::parse(read_text_file(table)).at("cases"), asset);
}

void write_programs(const nlohmann::json& cases, const std::filesystem::path& asset) {
  ir::Module module;
  ProgramWriter writer(module);
  for (const Json& item : cases) writer.function(item.at("function"), item.at("program"));
  AIModelAssetMetadata metadata;
  metadata.producer = "coreai.cpp tests";
  save_asset(module, asset, metadata);
}

}  // namespace coreai::testing_support
