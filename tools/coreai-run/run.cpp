#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "coreai-run/options.h"
#include "coreai/base/error.h"
#include "coreai/base/npy.h"
#include "coreai/runtime/recorded_calls.h"

namespace coreai::tools {
namespace {

using Json = nlohmann::ordered_json;

struct NamedText {
  std::string name, text;
};

NamedText parse_named(const std::string& argument, const char* option) {
  const std::size_t equals = argument.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == argument.size()) {
    throw CLI::ValidationError(fmt::format("{}: '{}' is not name=file.npy", option, argument));
  }
  return {argument.substr(0, equals), argument.substr(equals + 1)};
}

const ValueDescriptor& find(const std::vector<ValueDescriptor>& values, const std::string& name, const char* what,
                            const std::string& function) {
  std::string names;
  for (const ValueDescriptor& value : values) {
    if (value.name == name) return value;
    names += (names.empty() ? "" : ", ") + value.name;
  }
  throw NotFoundError(fmt::format("there is no {} \"{}\"", what, name), function, "There are: " + names);
}

// A dtype that .npy files lack arrives as f32, i1 or u1 and is converted; any other must be exact.
NDArray in_dtype(const NDArray& array, DType dtype) {
  const bool foreign = is_subbyte(dtype) || dtype == DType::kBF16 || (is_float(dtype) && dtype_bits(dtype) == 8);
  const DType carrier =
      is_integer(dtype) ? (dtype_class(dtype) == DTypeClass::kSigned ? DType::kSI8 : DType::kUI8) : DType::kF32;
  if (!foreign || array.dtype() != carrier) return array;
  std::vector<double> values(static_cast<std::size_t>(array.element_count()));
  read_as_f64(array, values);
  NDArray converted(dtype, array.shape());
  write_from_f64(converted, values);
  return converted;
}

Shape parse_shape(std::string_view text, const std::string& where) {
  std::vector<std::int64_t> dims;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('x'), text.size());
    std::int64_t value = 0;
    const std::string_view extent = text.substr(0, end);
    const auto [stop, error] = std::from_chars(extent.data(), extent.data() + extent.size(), value);
    if (error != std::errc{} || stop != extent.data() + extent.size() || value < 0) {
      throw InvalidArgumentError(fmt::format("\"{}\" is no shape", text), where, "Write it as 1x2x3");
    }
    dims.push_back(value);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return Shape(dims);
}

std::vector<State> make_states(const InferenceFunction& function, const std::vector<std::string>& arguments) {
  const FunctionDescriptor& descriptor = function.descriptor();
  std::vector<State> states;
  for (const std::string& argument : arguments) {
    const NamedText given = parse_named(argument, "--state");
    const ValueDescriptor& declared = find(descriptor.states, given.name, "state", descriptor.name);
    constexpr std::string_view kZeros = "zeros:";
    if (given.text.starts_with(kZeros)) {
      states.push_back(function.make_state(given.name, parse_shape(given.text.substr(kZeros.size()), given.name)));
      continue;
    }
    const NDArray value = in_dtype(read_npy(given.text), declared.dtype);
    states.push_back(function.make_state(given.name, value.shape()));
    states.back().write(value);
  }
  for (const ValueDescriptor& declared : descriptor.states) {
    const bool given =
        std::any_of(states.begin(), states.end(), [&](const State& state) { return state.name() == declared.name; });
    if (given) continue;
    if (!declared.shape.is_static()) {
      throw InvalidArgumentError(
          fmt::format("state \"{}\" [{}] has no size", declared.name, declared.shape.to_string()), descriptor.name,
          fmt::format("Give --state {}=zeros:SHAPE", declared.name));
    }
    states.push_back(function.make_state(declared.name, declared.shape));
  }
  return states;
}

// A file name from a value's name, which comes from the asset.
std::string file_name(const std::string& name) {
  std::string safe = name;
  for (char& c : safe) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    if (!plain) c = '_';
  }
  return safe.empty() ? "_" : safe;
}

void report_arrays(const CoreaiRunOptions& options, const NamedArrays& arrays, const char* suffix, Json& list) {
  for (const auto& [name, array] : arrays) {
    std::string file;
    if (!options.output_directory.empty()) {
      file = (std::filesystem::path(options.output_directory) / (file_name(name) + suffix)).string();
      write_npy(file, array);
    }
    Json shape = Json::array();
    for (const std::int64_t dim : array.shape()) shape.push_back(dim);
    list.push_back({{"name", name}, {"dtype", dtype_name(array.dtype())}, {"shape", shape}});
    if (!file.empty()) list.back()["file"] = file;
    if (!options.json) {
      print(fmt::format("{} [{}]{}{}\n", printable(name), array.shape().to_string(), dtype_name(array.dtype()),
                        file.empty() ? "" : "  " + printable(file)));
    }
  }
}

}  // namespace

int run_asset(const CoreaiRunOptions& options) {
  SpecializationOptions specialization;
  if (!options.precision.empty()) specialization.precision = precision_from_name(options.precision);
  specialization.threads = thread_count(options.common);
  specialization.kernels = options.kernels;
  specialization.disabled_passes = options.disabled_passes;
  const InferenceFunction function = AIModel::load(options.asset, specialization).load_function(options.function);
  const FunctionDescriptor& descriptor = function.descriptor();
  RecordedCall call;
  call.case_name = options.case_name;
  call.asset = options.asset;
  call.function = descriptor.name;
  call.rtol = options.rtol;
  call.atol = options.atol;
  for (const std::string& argument : options.inputs) {
    const NamedText given = parse_named(argument, "--input");
    const ValueDescriptor& declared = find(descriptor.inputs, given.name, "input", descriptor.name);
    call.inputs.emplace_back(given.name, in_dtype(read_npy(given.text), declared.dtype));
  }
  for (const ValueDescriptor& declared : descriptor.inputs) {
    const bool given =
        std::any_of(call.inputs.begin(), call.inputs.end(), [&](const auto& i) { return i.first == declared.name; });
    if (given) continue;
    throw InvalidArgumentError(fmt::format("input \"{}\" [{}]{} is missing", declared.name, declared.shape.to_string(),
                                           dtype_name(declared.dtype)),
                               descriptor.name, fmt::format("Give --input {}=file.npy", declared.name));
  }
  std::vector<State> states = make_states(function, options.states);
  std::vector<State*> pointers;
  for (State& state : states) {
    pointers.push_back(&state);
    if (!options.record.empty()) call.initial_states.emplace_back(state.name(), state.read());
  }
  if (options.profile) return profile_function(options, function, call.inputs, pointers);
  call.outputs = function.run(call.inputs, pointers);
  for (const State& state : states) call.states_after.emplace_back(state.name(), state.read());
  if (!options.output_directory.empty()) std::filesystem::create_directories(options.output_directory);
  Json report = {{"function", descriptor.name}, {"execution", function.execution_kind()}};
  report["outputs"] = Json::array();
  report["states"] = Json::array();
  report_arrays(options, call.outputs, ".npy", report["outputs"]);
  report_arrays(options, call.states_after, ".state.npy", report["states"]);
  if (!options.record.empty()) record_call(options.record, call);
  if (options.json) print(report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  return kDone;
}

}  // namespace coreai::tools
