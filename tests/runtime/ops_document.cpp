#include "runtime/ops_document.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "backend/cpu/reference/evaluator.h"
#include "backend/cpu/reference/plan.h"
#include "coreai/asset/asset.h"
#include "coreai/base/error.h"
#include "coreai/base/mapped_file.h"
#include "coreai/base/ndarray.h"
#include "coreai/ir/op_code.h"
#include "coreai/ir/op_doc.h"
#include "coreai/runtime/op_usage.h"
#include "runtime/op_table.h"

namespace coreai::test {
namespace {

namespace fs = std::filesystem;
namespace testing_support = coreai::testing_support;
using ir::OpCode;

const fs::path kFixtures = COREAI_FIXTURE_DIR;

// What the fixtures show of one operation, or of one composite.
struct Evidence {
  std::set<OpPath> paths;
  std::set<std::string> reasons;        // of refusals
  std::map<std::string, int> recorded;  // files of recorded calls of single operations -> cases about this one
  std::set<std::string> models;         // recorded models whose programs hold it
  std::set<std::string> assets;         // assets that are read, printed and written
  std::set<DType> dtypes;               // of first operands in recorded programs
  bool upgraded = false;                // an older form: never in a program that was read
};

struct Fixtures {
  std::map<OpCode, Evidence> operations;
  std::map<std::string, Evidence> composites;
};

std::vector<fs::path> sorted_files(const fs::path& folder, std::string_view extension) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == extension) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

template <typename Visit>
void for_each_op(const ir::Block& block, const Visit& visit) {
  for (const auto& op : block.ops) {
    visit(*op);
    for (const ir::Region& region : op->regions) {
      for (const auto& inner : region.blocks) for_each_op(*inner, visit);
    }
  }
}

void add_usages(const ir::Module& module, const ir::Graph& function, Fixtures& out) {
  for (const OpUsage& usage : op_usage(module, function).usages) {
    out.operations[usage.code].paths.insert(usage.path);
    if (!usage.reason.empty()) out.operations[usage.code].reasons.insert(usage.reason);
    if (!usage.composite.empty()) out.composites[usage.composite].paths.insert(usage.path);
  }
}

// Operations of the program by what they are called with; composites by their name.
template <typename Add>
void add_program(const ir::Module& module, Fixtures& out, const Add& add) {
  for_each_op(module.body(), [&](const ir::Op& op) {
    Evidence& evidence = out.operations[op.code];
    if (!op.operands.empty() && op.operand_type(0)->is_tensor()) evidence.dtypes.insert(op.operand_type(0)->dtype());
    add(evidence);
  });
  add(out.operations[OpCode::kSerializationAsset]);
  for (const ir::Graph& graph : module.graphs()) {
    if (const auto composite = graph.composite()) add(out.composites[composite->name]);
  }
}

// Recorded calls of single operations: each case names what it is about.
void add_recorded_operations(const fs::path& file, const fs::path& asset, Fixtures& out) {
  const auto json = nlohmann::json::parse(read_text_file(file));
  const auto module = AIModelAsset::open(asset).load_module();
  add_program(*module, out, [](Evidence&) {});
  const std::string name = fs::relative(file, kFixtures);
  for (const auto& recorded : json.at("cases")) {
    const auto function = module->find_graph(recorded.at("function").get<std::string>());
    if (!function) continue;  // a case that asks for a function which is not there
    add_usages(*module, *function, out);
    for (const auto& op : recorded.at("ops")) {
      const auto text = op.get<std::string>();
      auto code = ir::op_from_disk_name(text);
      if (!code) code = ir::op_from_text_name("coreai." + text);
      if (code) ++out.operations[*code].recorded[name];
    }
  }
}

void add_model(const fs::path& asset, const std::string& name, Fixtures& out) {
  const auto module = AIModelAsset::open(asset).load_module();
  add_program(*module, out, [&](Evidence& evidence) { evidence.models.insert(name); });
  for (const ir::Graph& function : module->functions()) add_usages(*module, function, out);
}

// Single assets: what they hold before older forms are upgraded, too.
void add_asset(const fs::path& path, Fixtures& out) {
  const auto asset = AIModelAsset::open(path);
  const std::string name = path.stem();
  const auto bytes =
      NDArray::from(DType::kUI8, Shape{static_cast<std::int64_t>(asset.program_bytes().size())}, asset.program_bytes());
  std::unique_ptr<ir::Module> stored;
  try {
    stored = read_bytecode(bytes.storage(), name, {.upgrade = false});
  } catch (const UnsupportedError&) {
    return;  // one of them is of a later encoding
  }
  add_program(*stored, out, [&](Evidence& evidence) { evidence.assets.insert(fs::relative(path, kFixtures)); });
  // One of the assets breaks the rules on purpose: a reduction at the top level.
  const auto module = asset.load_module(ProgramCheck::kSkip);
  std::set<OpCode> kept;
  for_each_op(module->body(), [&](const ir::Op& op) { kept.insert(op.code); });
  for_each_op(stored->body(), [&](const ir::Op& op) {
    if (!kept.contains(op.code)) out.operations[op.code].upgraded = true;
  });
  for (const ir::Graph& function : module->functions()) add_usages(*module, function, out);
}

Fixtures read_fixtures() {
  Fixtures out;
  for (const fs::path& file : sorted_files(kFixtures / "op_goldens", ".json"))
    add_recorded_operations(file, fs::path(file).replace_extension(".aimodel"), out);
  const fs::path made = fs::temp_directory_path() / fmt::format("ops_document_{}", getpid());
  fs::create_directories(made);
  for (const fs::path& table : sorted_files(kFixtures / "op_table", ".json")) {
    const fs::path asset = made / table.stem() += ".aimodel";
    testing_support::write_table_asset(table, asset);
    add_recorded_operations(table, asset, out);
  }
  fs::remove_all(made);
  for (const char* folder : {"op_assets", "format_fixtures"}) {
    for (const fs::path& asset : sorted_files(kFixtures / folder, ".aimodel")) add_asset(asset, out);
  }
  for (const auto& bundle : fs::directory_iterator(kFixtures / "genuine")) {
    for (const fs::path& asset : sorted_files(bundle.path(), ".aimodel"))
      add_model(asset, bundle.path().filename(), out);
  }
  return out;
}

// ---- text ----

// The dtype sets of the table's operands, each once; of the results where there is no operand. A signature reads
// "x[1:3D, static]:F+I, axes...:SX".
std::string dtype_sets(const ir::OpInfo& info) {
  std::vector<std::string> sets;
  const std::string_view signature = info.operands.empty() ? info.results : info.operands;
  int depth = 0;
  bool in_set = false;
  std::string set;
  for (const char c : std::string(signature) + ",") {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (depth > 0) continue;
    if (c == ',') {
      if (!set.empty() && std::ranges::find(sets, set) == sets.end()) sets.push_back(set);
      set.clear();
      in_set = false;
    } else if (in_set) {
      set += c;
    }
    if (c == ':') in_set = true;
  }
  return sets.empty() ? "no values" : fmt::format("{}", fmt::join(sets, ", "));
}

// Of operations that no function holds (graphs, terminators) or no fixture has.
OpPath path_without_fixture(const ir::OpInfo& info) {
  if (cpu::step_kind(info.code) != cpu::StepKind::kCompute) return OpPath::kStructure;
  for (const std::string_view structure : {"dataflow.", "controlflow.", "serialization.asset"}) {
    if (info.disk_name.starts_with(structure)) return OpPath::kStructure;
  }
  return cpu::reference_evaluator().supports(info.code) ? OpPath::kReference : OpPath::kRefused;
}

std::string runs(OpCode code, const Evidence& evidence) {
  if (code == OpCode::kSerializationOpaque) return "body; refused where it carries none";
  if (evidence.upgraded) return "its newer form, made when it is read";
  if (evidence.paths.empty()) return std::string(op_path_name(path_without_fixture(ir::op_info(code))));
  std::vector<std::string_view> names;
  for (const OpPath path : evidence.paths) {
    if (path != OpPath::kUnused && path != OpPath::kFolded) names.push_back(op_path_name(path));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

// Tests that write their own programs, for what no recorded asset holds.
std::string own_tests(OpCode code) {
  if (code == OpCode::kSerializationOpaque) return "`unknown_op_test.cpp`, `rare_operations_test.cpp`";
  constexpr OpCode kRare[] = {OpCode::kDebuginfoValue, OpCode::kSparseWithBitmaskBlockwiseShiftScale,
                              OpCode::kSerializationTerminator, OpCode::kSerializationUnrealizedConversion};
  return std::ranges::find(kRare, code) == std::end(kRare) ? "" : "`rare_operations_test.cpp`";
}

std::string count_of(std::size_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

std::string tests(const Evidence& evidence) {
  std::vector<std::string> parts;
  parts.reserve(evidence.recorded.size() + 2);
  for (const auto& [file, cases] : evidence.recorded) parts.push_back(fmt::format("`{}` ({})", file, cases));
  if (!evidence.models.empty()) parts.push_back(count_of(evidence.models.size(), "model"));
  if (parts.empty()) {
    for (const std::string& asset : evidence.assets) {
      if (parts.size() < 2) parts.push_back(fmt::format("`{}`", asset));
    }
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string tested_dtypes(const Evidence& evidence) {
  std::vector<std::string_view> names;
  names.reserve(evidence.dtypes.size());
  for (const DType dtype : evidence.dtypes) names.push_back(dtype_name(dtype));
  return names.empty() ? "-" : fmt::format("{}", fmt::join(names, " "));
}

constexpr std::string_view kIntroduction = R"(# Operations

Every operation of the dialect, what runs it, and what tests it. This page is generated: `scripts/update_docs` writes it from the operation
table, the compiler, the kernel tables and the fixtures in `tests/fixtures`, and a test fails when it is stale. What each operation computes is in
[aimodel-format.md](aimodel-format.md).

**dtypes**: the sets that the operands may have, each set once; the last table spells them out. **tested with**: dtypes of the first operand in the recorded
programs. **runs as**, in precision `faithful`, over all fixtures (in `strict` everything runs by its reference kernel):

- `fused`: inside a step of a fused kernel, or as a view of memory; `kernel`: a threaded kernel of its own; `reference`: the reference
  kernel, where a dtype, a dynamic shape or the operation itself has nothing faster;
- `body`: a composite by the operations of its body; `shapes`: arithmetic on shapes, done once per call; `structure`: constants, calls, control flow, states, debug information;
- `refused`: the function is not loaded, and the error says why and what to do instead.

**tests**: files of recorded calls with the number of cases about the operation (`op_goldens`: recorded values, `op_table`: expected
values by NumPy; both in `strict` and in `faithful`, `op_table` with every level of the CPU kernels), whole models that hold it
(`genuine`: PyTorch's outputs), or the asset with which its reading, printing, writing and refusal are tested.

)";

}  // namespace

std::string ops_document() {
  const Fixtures fixtures = read_fixtures();
  std::string text(kIntroduction);
  text += "| operation | dtypes | tested with | runs as | tests |\n| --- | --- | --- | --- | --- |\n";
  for (const OpCode code : ir::all_ops()) {
    const ir::OpInfo& info = ir::op_info(code);
    const auto found = fixtures.operations.find(code);
    const Evidence evidence = found == fixtures.operations.end() ? Evidence{} : found->second;
    const std::string recorded = tests(evidence);
    text += fmt::format("| `{}` | {} | {} | {} | {} |\n", info.disk_name, dtype_sets(info), tested_dtypes(evidence),
                        runs(code, evidence), recorded.empty() ? own_tests(code) : recorded);
  }
  text += "\nComposites that the fixtures declare:\n\n| composite | runs as | tests |\n| --- | --- | --- |\n";
  for (const auto& [name, evidence] : fixtures.composites)
    text += fmt::format("| `{}` | {} | {} |\n", name, runs(OpCode::kInvoke, evidence), tests(evidence));
  text += "\n| set | dtypes |\n| --- | --- |\n";
  for (const ir::DTypeSetName& set : ir::dtype_set_names()) {
    std::vector<std::string_view> names;
    names.reserve(set.dtypes.size());
    for (const DType dtype : set.dtypes) names.push_back(dtype_name(dtype));
    text += fmt::format("| {} | {} |\n", set.name, fmt::join(names, " "));
  }
  return text;
}

}  // namespace coreai::test
