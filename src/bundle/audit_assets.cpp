// The three files of each asset: are they there, do they belong together, does the program load.
#include <fmt/format.h>

#include <future>
#include <map>

#include "bundle/audit_parts.h"
#include "bundle/places.h"
#include "coreai/base/error.h"
#include "coreai/base/mapped_file.h"
#include "coreai/bundle/pipeline_descriptor.h"
#include "coreai/ir/refusal.h"
#include "coreai/ir/verifier.h"

namespace coreai::audit {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kHashDigits = 64;

std::uint64_t bytes_of_files(const fs::path& folder) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::uintmax_t size = entry.is_regular_file(error) ? entry.file_size(error) : 0;
    if (!error) bytes += size;
  }
  return bytes;
}

bool is_compiled(const fs::path& folder) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const fs::path name = entry.path().filename();
    if (name.extension() == ".mlirb" && name.string().starts_with("main-")) return true;
  }
  return false;
}

// Folder and program file, before anything is opened.
bool files_are_there(const fs::path& path, Findings& findings) {
  std::error_code ignored;
  if (path.extension() == ".aimodelc") {
    findings.add(AuditRule::kAssetCompiled, path, "the asset is compiled for one kind of Apple device");
    return false;
  }
  if (!fs::is_directory(path, ignored)) {
    findings.add(AuditRule::kAssetNotFolder, path, "an .aimodel asset is a folder, this is a file");
    return false;
  }
  const fs::path program = path / "main.mlirb";
  if (!fs::exists(program, ignored)) {
    if (is_compiled(path)) {
      findings.add(AuditRule::kAssetCompiled, path, "the asset is compiled for one kind of Apple device");
    } else if (fs::is_symlink(program, ignored)) {
      findings.add(AuditRule::kSymlinkBroken, program, "the link to the program leads nowhere");
    } else {
      findings.add(AuditRule::kProgramMissing, path, "the asset holds no main.mlirb");
    }
    return false;
  }
  for (const char* name : {"main.mlirb", "main.hash", "metadata.json"}) {
    if (!fs::exists(path / name, ignored) || fs::is_regular_file(path / name, ignored)) continue;
    findings.add(AuditRule::kAssetUnreadable, path / name, fmt::format("{} is not a regular file", name));
    return false;
  }
  return true;
}

std::optional<AIModelAsset> open_asset(const fs::path& path, Findings& findings) {
  const auto about_metadata = [](const Error& error) { return error.where().ends_with("metadata.json"); };
  try {
    return AIModelAsset::open(path, HashCheck::kSkip);
  } catch (const UnsupportedError& error) {
    findings.add(about_metadata(error) ? AuditRule::kAssetVersion : AuditRule::kProgramUnsupported,
                 error.where().empty() ? path : fs::path(error.where()), error.problem());
  } catch (const MalformedError& error) {
    findings.add(about_metadata(error) ? AuditRule::kAssetMetadataMalformed : AuditRule::kProgramMalformed,
                 fs::path(error.where()), error.problem());
  } catch (const Error& error) {
    findings.add(AuditRule::kAssetUnreadable, error.where().empty() ? path : fs::path(error.where()), error.problem());
  }
  return std::nullopt;
}

// Whether main.hash belongs to the program; false when it certainly does not.
bool check_hash(const AIModelAsset& asset, Findings& findings) {
  const fs::path file = asset.path() / "main.hash";
  const std::string& declared = asset.hash_hex();
  std::error_code ignored;
  if (!fs::exists(file, ignored)) {
    findings.add(AuditRule::kHashMissing, asset.path(), "the asset has no main.hash");
    return true;
  }
  if (declared.size() != kHashDigits) {
    findings.add(AuditRule::kHashMalformed, file, fmt::format("main.hash has {} bytes, not 32", declared.size() / 2));
    return true;
  }
  const std::string actual = to_hex(sha256(asset.program_bytes()));
  if (actual == declared) return true;
  findings.add(AuditRule::kHashMismatch, asset.path() / "main.mlirb",
               fmt::format("main.mlirb has the SHA-256 {}..., main.hash says {}...", actual.substr(0, 16),
                           declared.substr(0, 16)));
  return false;
}

// What the runtime will say of the first operation that it can never run; nothing where there is none.
std::optional<ir::Refusal> refused_operation(const ir::Block& block) {
  for (const auto& op : block.ops) {
    if (op->code == ir::OpCode::kUdmlFunc) continue;  // the operation that would call it is refused
    if (auto refusal = ir::refusal_of(*op)) return refusal;
    if (op->info().decomposable) continue;  // known: what spells it out is not run
    for (const ir::Region& region : op->regions)
      for (const auto& inner : region.blocks)
        if (auto refusal = refused_operation(*inner)) return refusal;
  }
  return std::nullopt;
}

// Reads and verifies the program.
void load_program(const AIModelAsset& asset, LoadedAsset& loaded, Findings& findings) {
  const fs::path file = asset.path() / "main.mlirb";
  try {
    const auto module = asset.load_module(ProgramCheck::kSkip);
    const AIModelAssetSummary summary = summarize(*module);
    loaded.report.weights = measure_weights(*module);
    try {
      ir::verify(*module);
    } catch (const Error& error) {
      findings.add(AuditRule::kProgramInvalid, file, error.what());
      return;
    }
    if (const auto refusal = refused_operation(module->body())) {
      findings.add(AuditRule::kProgramUnsupported, file, refusal->problem);
      return;
    }
    loaded.functions = summary.functions;
    loaded.report.loaded = true;
  } catch (const UnsupportedError& error) {
    findings.add(AuditRule::kProgramUnsupported, file, error.what());
  } catch (const VerificationError& error) {
    findings.add(AuditRule::kProgramInvalid, file, error.what());
  } catch (const Error& error) {
    findings.add(AuditRule::kProgramMalformed, file, error.what());
  }
  for (const FunctionDescriptor& function : loaded.functions) loaded.report.functions.push_back(function.name);
  if (loaded.report.loaded && loaded.functions.empty())
    findings.add(AuditRule::kNoFunctions, file, "the program has no function that could be called");
}

void audit_asset_metadata(const AIModelAsset& asset, Findings& findings) {
  const fs::path file = asset.path() / "metadata.json";
  if (asset.metadata().asset_version.empty()) {
    findings.add(AuditRule::kAssetMetadataMissing, asset.path(), "the asset has no metadata.json");
  } else if (asset.metadata().producer.empty()) {
    findings.add(AuditRule::kProducerMissing, file, "the asset does not say which program wrote it");
  }
}

}  // namespace

LoadedAsset audit_asset(const fs::path& path, const std::string& role, Findings& findings) {
  LoadedAsset loaded;
  loaded.path = path;
  loaded.report.role = role;
  loaded.report.file = path.filename().string();
  if (!files_are_there(path, findings)) return loaded;
  loaded.report.bytes = bytes_of_files(path);
  const std::optional<AIModelAsset> asset = open_asset(path, findings);
  if (!asset) return loaded;
  loaded.report.producer = asset->metadata().producer;
  loaded.report.asset_version = asset->metadata().asset_version;
  loaded.report.hash = asset->hash_hex();
  audit_asset_metadata(*asset, findings);
  Findings about_hash(findings.root()), about_program(findings.root());
  auto intact = std::async(std::launch::async, [&] { return check_hash(*asset, about_hash); });
  load_program(*asset, loaded, about_program);
  // A damaged file is one finding, not also what reading it trips over.
  const bool damaged = !intact.get();
  findings.append(std::move(about_hash));
  if (!damaged) findings.append(std::move(about_program));
  if (damaged) loaded.report.loaded = false;
  return loaded;
}

namespace {

// Parts of a pipeline that metadata.json does not name.
void audit_probed(const ModelBundle& bundle, std::vector<LoadedAsset>& assets, Findings& findings) {
  if (bundle.kind() != BundleKind::kDiffusion && bundle.kind() != BundleKind::kVideoDiffusion) return;
  std::optional<PipelineDescriptor> pipeline;
  try {
    pipeline = PipelineDescriptor::from(bundle);
  } catch (const Error&) {
    return;  // reported with the block
  }
  for (const DiffusionComponent& part : pipeline->components()) {
    if (part.source != ComponentSource::kProbed) continue;
    try {
      assets.push_back(audit_asset(pipeline->require(part.role), part.role, findings));
    } catch (const BundleError& error) {
      findings.add(error);
    }
  }
}

}  // namespace

std::vector<LoadedAsset> audit_assets(const ModelBundle& bundle, Findings& findings) {
  std::vector<LoadedAsset> assets;
  const fs::path metadata = bundle.path() / "metadata.json";
  if (bundle.assets().empty()) findings.add(AuditRule::kAssetsEmpty, metadata, "\"assets\" is empty or missing");
  std::map<fs::path, std::string> role_of_file;
  for (const auto& [role, file] : bundle.assets()) {
    const auto [first, fresh] = role_of_file.emplace(fs::path(file + "/").lexically_normal(), role);
    if (!fresh)
      findings.add(AuditRule::kRolesShareAsset, metadata,
                   fmt::format("the roles '{}' and '{}' both name '{}'", first->second, role, excerpt(file)));
    try {
      const fs::path path = places::without_slash(bundle.require_model(role));
      if (path.extension() != ".aimodel")
        findings.add(AuditRule::kAssetName, path, fmt::format("the asset '{}' is called '{}'", role, excerpt(file)));
      assets.push_back(audit_asset(path, role, findings));
    } catch (const BundleError& error) {
      findings.add(error);
    }
  }
  audit_probed(bundle, assets, findings);
  return assets;
}

}  // namespace coreai::audit
