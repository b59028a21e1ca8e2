#include "coreai/runtime/recorded_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "coreai/base/error.h"
#include "runtime/recorded_tensor.h"

namespace coreai {
namespace {

using detail::Json;
using detail::TensorReader;

// Functions by asset and name, loaded once per file.
class Functions {
 public:
  explicit Functions(SpecializationOptions options) : options_(std::move(options)) {}

  InferenceFunction get(const std::filesystem::path& asset, const std::string& name) {
    auto found = models_.find(asset.string());
    if (found == models_.end()) found = models_.emplace(asset.string(), AIModel::load(asset, options_)).first;
    return found->second.load_function(name);
  }

 private:
  SpecializationOptions options_;
  std::map<std::string, AIModel> models_;
};

// A state of the case, held by the function that used it last.
struct LiveState {
  State state;
  std::string owner;
};

// One case while it runs.
class CaseRun {
 public:
  CaseRun(TensorReader& reader, Functions& functions, const Json& item, std::filesystem::path asset)
      : reader_(reader), functions_(functions), case_(item), asset_(std::move(asset)) {
    result_.name = reader.text(item, "case", "unnamed");
    const std::string strength = reader.text(item, "strength", "must");
    if (strength != "must" && strength != "advisory")
      reader.fail("unknown strength \"" + strength + "\"", result_.name);
    result_.must = strength == "must";
    tolerance_ = {reader.number(item, "rtol"), reader.number(item, "atol"),
                  item.value("zero_sign", Json(false)) == true};
    for (const Json& state : reader.list(item, "states")) initial_[reader.text(state, "name", "")] = reader.read(state);
  }

  CaseResult run() {
    result_.passed = true;
    std::size_t number = 0;
    for (const Json& call : reader_.list(case_, "calls")) {
      label_ = fmt::format("call {}", ++number);
      run_call(call);
    }
    if (number == 0) reader_.fail("a case has no calls", result_.name);
    return std::move(result_);
  }

 private:
  void run_call(const Json& call);
  NamedArrays read_inputs(const Json& call);
  std::vector<State*> bind_states(const InferenceFunction& function, const std::string& owner);
  void compare(const Json& expected, const NDArray& got, const std::string& name);
  void fail(const std::string& problem);

  TensorReader& reader_;
  Functions& functions_;
  const Json& case_;
  std::filesystem::path asset_;
  detail::Tolerance tolerance_;
  std::map<std::string, NDArray> initial_;
  std::map<std::string, LiveState> states_;
  std::map<std::string, NDArray> latest_;  // "<function>.<output>"
  CaseResult result_;
  std::string label_;
};

void CaseRun::fail(const std::string& problem) {
  if (result_.passed) result_.problem = fmt::format("{}: {}", label_, problem);
  result_.passed = false;
}

NamedArrays CaseRun::read_inputs(const Json& call) {
  NamedArrays inputs;
  for (const Json& input : reader_.list(call, "inputs")) {
    const std::string name = reader_.text(input, "name", "");
    const std::string from = reader_.text(input, "from", "");
    if (from.empty()) {
      inputs.emplace_back(name, reader_.read(input));
      continue;
    }
    const auto found = latest_.find(from);
    if (found == latest_.end()) {
      throw NotFoundError(fmt::format("no earlier call gave \"{}\"", from), name);
    }
    inputs.emplace_back(name, found->second);
  }
  return inputs;
}

std::vector<State*> CaseRun::bind_states(const InferenceFunction& function, const std::string& owner) {
  std::vector<State*> bound;
  for (const ValueDescriptor& declared : function.descriptor().states) {
    auto found = states_.find(declared.name);
    if (found == states_.end()) {
      const auto initial = initial_.find(declared.name);
      if (initial == initial_.end()) continue;  // the call reports it as missing
      LiveState live{function.make_state(declared.name, initial->second.shape()), owner};
      live.state.write(initial->second);
      found = states_.emplace(declared.name, std::move(live)).first;
    } else if (found->second.owner != owner) {
      const NDArray contents = found->second.state.read();
      found->second = {function.make_state(declared.name, contents.shape()), owner};
      found->second.state.write(contents);
    }
    bound.push_back(&found->second.state);
  }
  return bound;
}

void CaseRun::compare(const Json& expected, const NDArray& got, const std::string& name) {
  std::optional<DType> compare_as;
  const std::string as = reader_.text(expected, "compare_as", "");
  if (!as.empty()) {
    compare_as = dtype_from_name(as);
    if (!compare_as) reader_.fail("unknown dtype \"" + as + "\"", name);
  }
  const detail::Difference difference = detail::compare_arrays(got, reader_.read(expected), compare_as, tolerance_);
  if (difference.share > result_.worst_share || (result_.worst_value.empty() && difference.share > 0)) {
    result_.worst_share = difference.share;
    result_.worst_value = fmt::format("{}: {}", label_, name);
  }
  result_.worst_error = std::max(result_.worst_error, difference.error);
  if (!difference.problem.empty()) fail(fmt::format("{}: {}", name, difference.problem));
}

void CaseRun::run_call(const Json& call) {
  const std::string expect = reader_.text(call, "expect", "ok");
  if (expect != "ok" && expect != "error") reader_.fail("unknown expectation \"" + expect + "\"", result_.name);
  const std::string own_asset = reader_.text(call, "asset", "");
  const std::filesystem::path asset = own_asset.empty() ? asset_ : reader_.file().parent_path() / own_asset;
  if (asset.empty()) reader_.fail("no asset is named", result_.name);
  if (!std::filesystem::exists(asset)) throw NotFoundError("there is no asset", asset.string());
  const std::string name = reader_.text(call, "function", reader_.text(case_, "function", "main"));
  NamedArrays outputs;
  try {
    const InferenceFunction function = functions_.get(asset, name);
    const NamedArrays inputs = read_inputs(call);
    std::vector<State*> states = bind_states(function, asset.string() + "\n" + name);
    outputs = function.run(inputs, states);
  } catch (const MalformedError&) {
    throw;  // of the recorded file: the check itself cannot go on
  } catch (const Error& error) {
    if (expect != "error") fail(error.what());
    return;
  }
  if (expect == "error") return fail("the call succeeded, an error was expected");
  for (auto& [output, value] : outputs) latest_[name + "." + output] = value;
  for (const Json& expected : reader_.list(call, "outputs")) {
    const std::string output = reader_.text(expected, "name", "");
    const auto found =
        std::find_if(outputs.begin(), outputs.end(), [&output](const auto& pair) { return pair.first == output; });
    if (found == outputs.end()) {
      fail(fmt::format("there is no output \"{}\"", output));
    } else {
      compare(expected, found->second, output);
    }
  }
  for (const Json& expected : reader_.list(call, "states_after")) {
    const std::string state = reader_.text(expected, "name", "");
    const auto found = states_.find(state);
    if (found == states_.end()) {
      fail(fmt::format("there is no state \"{}\"", state));
    } else {
      compare(expected, found->second.state.read(), state);
    }
  }
}

Json parse_file(const std::filesystem::path& file) {
  const std::shared_ptr<const MappedFile> mapped = MappedFile::open(file);
  const auto* text = reinterpret_cast<const char*>(mapped->bytes().data());
  Json json;
  try {
    json = Json::parse(text, text + mapped->bytes().size());
  } catch (const Json::parse_error& error) {
    throw MalformedError("this is no JSON", file.string(), error.byte);
  }
  if (!json.is_object() || !json.contains("cases") || json.value("format", Json(0)) != 1) {
    throw MalformedError("this is no file of recorded calls, format 1", file.string(), 0,
                         "docs/recorded-calls.md describes the format");
  }
  return json;
}

}  // namespace

CheckReport check_recorded_calls(const std::filesystem::path& file, const CheckOptions& options) {
  const Json json = parse_file(file);
  TensorReader reader(file);
  Functions functions(options.specialization);
  const std::string own_asset = reader.text(json, "asset", "");
  std::filesystem::path asset = options.asset;
  if (asset.empty() && !own_asset.empty()) asset = file.parent_path() / own_asset;
  CheckReport report;
  for (const Json& item : reader.list(json, "cases")) {
    if (!options.case_name.empty() && reader.text(item, "case", "unnamed") != options.case_name) continue;
    CaseResult result = CaseRun(reader, functions, item, asset).run();
    if (result.passed) {
      ++report.passed;
    } else {
      ++(result.must ? report.failed : report.advisory_failed);
    }
    report.cases.push_back(std::move(result));
  }
  if (report.cases.empty()) {
    throw NotFoundError(options.case_name.empty() ? "the file holds no cases"
                                                  : fmt::format("there is no case \"{}\"", options.case_name),
                        file.string());
  }
  return report;
}

namespace {

constexpr std::size_t kMaxInline = 4096;  // bytes of an array written as hex

class TensorWriter {
 public:
  TensorWriter(std::vector<std::byte>& side, std::string side_name) : side_(side), side_name_(std::move(side_name)) {}

  Json write(const std::string& name, const NDArray& array) {
    Json tensor = {{"name", name}, {"dtype", dtype_name(array.dtype())}, {"shape", Json::array()}};
    for (const std::int64_t dim : array.shape()) tensor["shape"].push_back(dim);
    const std::span<const std::byte> bytes = array.bytes();
    if (bytes.size() <= kMaxInline) {
      tensor["data"] = to_hex(bytes);
    } else {
      tensor["file"] = side_name_;
      tensor["offset"] = side_.size();
      tensor["bytes"] = bytes.size();
      side_.insert(side_.end(), bytes.begin(), bytes.end());
    }
    return tensor;
  }
  Json write(const NamedArrays& arrays) {
    Json list = Json::array();
    for (const auto& [name, array] : arrays) list.push_back(write(name, array));
    return list;
  }

 private:
  std::vector<std::byte>& side_;
  std::string side_name_;
};

}  // namespace

void record_call(const std::filesystem::path& file, const RecordedCall& call) {
  const bool exists = std::filesystem::exists(file);
  const std::filesystem::path folder = std::filesystem::absolute(file).parent_path();
  const std::string asset = std::filesystem::proximate(std::filesystem::absolute(call.asset), folder).generic_string();
  Json json = exists ? parse_file(file) : Json{{"format", 1}, {"asset", asset}, {"cases", Json::array()}};
  TensorReader reader(file);
  std::string name = call.case_name;
  if (name.empty()) name = fmt::format("{}_{}", call.function, reader.list(json, "cases").size() + 1);
  for (const Json& item : reader.list(json, "cases")) {
    if (reader.text(item, "case", "") == name) {
      throw InvalidArgumentError(fmt::format("the file holds a case \"{}\" already", name), file.string());
    }
  }
  std::filesystem::path side_path = file;
  side_path.replace_extension(".bin");
  std::vector<std::byte> side;
  if (exists && std::filesystem::exists(side_path)) {
    const auto mapped = MappedFile::open(side_path);
    side.assign(mapped->bytes().begin(), mapped->bytes().end());
  }
  const std::size_t side_before = side.size();
  TensorWriter writer(side, side_path.filename().string());
  Json recorded = {{"inputs", writer.write(call.inputs)}, {"expect", "ok"}, {"outputs", writer.write(call.outputs)}};
  if (!call.states_after.empty()) recorded["states_after"] = writer.write(call.states_after);
  if (reader.text(json, "asset", "") != asset) recorded["asset"] = asset;
  Json item = {{"case", name}, {"function", call.function}, {"rtol", call.rtol}, {"atol", call.atol}};
  if (!call.initial_states.empty()) item["states"] = writer.write(call.initial_states);
  item["calls"] = Json::array({std::move(recorded)});
  json["cases"].push_back(std::move(item));
  if (side.size() > side_before) write_file_atomically(side_path, std::span<const std::byte>(side));
  write_file_atomically(file, json.dump(1) + "\n");
}

}  // namespace coreai
