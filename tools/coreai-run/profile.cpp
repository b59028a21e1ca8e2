// Where the time of a call goes: steps of one kind together, the slowest first.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "coreai-run/options.h"

namespace coreai::tools {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Sets inputs and states by name; run() checks what is missing.
Invocation prepared(const InferenceFunction& function, const NamedArrays& inputs, std::span<State*> states) {
  const FunctionDescriptor& descriptor = function.descriptor();
  Invocation call = function.make_invocation();
  for (std::size_t i = 0; i < descriptor.inputs.size(); ++i) {
    for (const auto& [name, array] : inputs) {
      if (name == descriptor.inputs[i].name) call.set_input(i, array);
    }
  }
  for (std::size_t i = 0; i < descriptor.states.size(); ++i) {
    for (State* state : states) {
      if (state->name() == descriptor.states[i].name) call.set_state(i, *state);
    }
  }
  return call;
}

struct Profile {
  double call_ms = 0;              // whole calls, not step by step
  std::vector<StepProfile> steps;  // each with its median
  WorkspaceUse workspace;
};

Profile measure(Invocation& call, int repeat) {
  std::vector<double> whole;
  std::vector<std::vector<double>> times;
  Profile profile;
  call.run();  // memory is allocated and weights are read for the first time
  for (int i = 0; i < repeat; ++i) {
    const auto start = Clock::now();
    call.run();
    whole.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    profile.steps = call.profile();
    times.resize(profile.steps.size());
    for (std::size_t s = 0; s < times.size(); ++s) times[s].push_back(profile.steps[s].ms);
  }
  profile.call_ms = median(whole);
  profile.workspace = call.workspace_use();
  for (std::size_t s = 0; s < times.size(); ++s) profile.steps[s].ms = median(times[s]);
  return profile;
}

std::vector<StepProfile> grouped(const std::vector<StepProfile>& steps) {
  std::map<std::pair<std::string, std::string>, StepProfile> groups;
  for (const StepProfile& s : steps) {
    StepProfile& group = groups.try_emplace({s.kernel, s.detail}, StepProfile{s.kernel, s.detail, 0}).first->second;
    group.calls += s.calls, group.ms += s.ms, group.multiply_adds += s.multiply_adds;
    group.weight_bytes += s.weight_bytes, group.read_bytes += s.read_bytes, group.written_bytes += s.written_bytes;
  }
  std::vector<StepProfile> sorted;
  sorted.reserve(groups.size());
  for (auto& [key, group] : groups) sorted.push_back(std::move(group));
  std::sort(sorted.begin(), sorted.end(), [](const StepProfile& a, const StepProfile& b) { return a.ms > b.ms; });
  return sorted;
}

double per_second(std::int64_t count, double ms) {
  return ms > 0 ? static_cast<double>(count) / ms * 1e3 : 0.0;
}

std::int64_t bytes_of(const StepProfile& s) {
  return s.weight_bytes + s.read_bytes + s.written_bytes;
}

std::string rate(double value) {
  return value > 0 ? fmt::format("{:.1f}", value / 1e9) : "";
}

}  // namespace

int profile_function(const CoreaiRunOptions& options, const InferenceFunction& function, const NamedArrays& inputs,
                     std::span<State*> states) {
  Invocation call = prepared(function, inputs, states);
  const Profile profile = measure(call, options.repeat);
  if (options.json) {
    Json steps = Json::array();
    for (const StepProfile& s : profile.steps) {
      steps.push_back({{"kernel", s.kernel},
                       {"detail", s.detail},
                       {"calls", s.calls},
                       {"ms", s.ms},
                       {"weight_bytes", s.weight_bytes},
                       {"read_bytes", s.read_bytes},
                       {"written_bytes", s.written_bytes},
                       {"multiply_adds", s.multiply_adds},
                       {"bytes_per_second", per_second(bytes_of(s), s.ms)}});
    }
    const Json report = {{"function", function.name()},
                         {"execution", function.execution_kind()},
                         {"calls", options.repeat},
                         {"call_ms", profile.call_ms},
                         {"workspace_bytes", profile.workspace.bytes},
                         {"largest_live_bytes", profile.workspace.largest_live_bytes},
                         {"steps", steps}};
    print(report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    return kDone;
  }
  using Align = Table::Align;
  Table table({{"kernel"},
               {""},
               {"steps", Align::kRight},
               {"ms", Align::kRight},
               {"share", Align::kRight},
               {"GB/s", Align::kRight},
               {"GFLOP/s", Align::kRight}});
  double total = 0;
  for (const StepProfile& s : profile.steps) total += s.ms;
  for (const StepProfile& s : grouped(profile.steps)) {
    table.add_row({s.kernel, s.detail, format_count(static_cast<std::uint64_t>(s.calls)), fmt::format("{:.3f}", s.ms),
                   fmt::format("{:.1f} %", total > 0 ? 100 * s.ms / total : 0.0), rate(per_second(bytes_of(s), s.ms)),
                   rate(per_second(2 * s.multiply_adds, s.ms))});
  }
  print(fmt::format("{}: {}, {:.3f} ms a call (median of {}), {:.3f} ms step by step\n", printable(function.name()),
                    function.execution_kind(), profile.call_ms, options.repeat, total));
  print(table.to_string());
  if (profile.workspace.bytes > 0) {
    print(fmt::format("workspace {}, of which {} live at one time\n", format_bytes(profile.workspace.bytes),
                      format_bytes(profile.workspace.largest_live_bytes)));
  }
  return kDone;
}

}  // namespace coreai::tools
