#include "coreai/exporter/llm_exporter.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "coreai/asset/asset.h"
#include "coreai/base/error.h"
#include "coreai/base/staging_folder.h"
#include "coreai/exporter/tokenizer_export.h"
#include "exporter/llm_config.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Whether something is there to be replaced. Only a bundle or an empty folder ever is.
bool check_output(const fs::path& output, bool overwrite) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(output, ignored))) return false;
  if (!overwrite)
    throw InvalidArgumentError("the output exists already", output.string(),
                               "Choose another name, or allow overwriting (--overwrite)");
  const bool replaceable = fs::is_directory(fs::symlink_status(output, ignored)) &&
                           (fs::exists(output / "metadata.json", ignored) || fs::is_empty(output, ignored));
  if (!replaceable)
    throw InvalidArgumentError("the output exists and is not a model bundle", output.string(),
                               "Remove it yourself if it is not needed");
  return true;
}

std::chrono::sys_seconds now() {
  return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
}

// The quantised type that holds most bytes; null when there is none.
Json compression_name(const GgufFile& file) {
  std::map<std::string, std::uint64_t> bytes;
  for (const GgufTensor& tensor : file.tensors())
    if (const auto info = ggml_type_info(tensor.type);
        info && info->block_elements > 1 && tensor.name != "token_embd.weight")
      bytes[std::string(info->name)] += tensor.bytes.size();
  const auto largest =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return largest == bytes.end() ? Json(nullptr) : Json(largest->first);
}

std::string metadata_text(const GgufFile& file, const LlmExportOptions& options, const std::string& name,
                          const std::string& asset, std::uint64_t vocab_size, std::int64_t context) {
  Json source = {{"model_definition", "gguf"}, {"file", fs::path(file.where()).filename().string()}};
  source["architecture"] = file.require_string("general.architecture");
  if (const auto title = file.find_string("general.name")) source["name"] = *title;
  if (const auto license = file.find_string("general.license")) source["license"] = *license;
  const Json json = {
      {"metadata_version", "0.2"},
      {"kind", "llm"},
      {"name", name},
      {"assets", {{"main", asset}}},
      {"language",
       {{"tokenizer", "tokenizer"},
        {"vocab_size", vocab_size},
        {"max_context_length", options.max_context.value_or(context)},
        {"embedded_tokenizer", true},
        {"function_map", {{"main", Json::array({"main"})}}}}},
      {"source", source},
      {"compression", compression_name(file)},
      {"compilation", {{"date", fmt::format("{:%Y-%m-%dT%H:%M:%S}+00:00", now())}, {"targets", Json::array()}}}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

AIModelAssetMetadata asset_metadata(const GgufFile& file) {
  const auto text = [&](std::string_view key) { return std::string(file.find_string(key).value_or("")); };
  AIModelAssetMetadata out;
  out.author = text("general.author").empty() ? text("general.organization") : text("general.author");
  out.license = text("general.license");
  out.description = text("general.name");
  out.producer = "coreai.cpp exporter";
  out.creation_date = fmt::format("{:%Y%m%dT%H%M%SZ}", now());
  return out;
}

void write_tokenizer(const GgufFile& file, const DecoderConfig& config, const fs::path& folder) {
  const ExportedTokenizer tokenizer = rebuild_tokenizer(file);
  if (tokenizer.vocab_size > static_cast<std::uint64_t>(config.vocab))
    throw MalformedError(fmt::format("{} tokens, but the embedding has {} rows", tokenizer.vocab_size, config.vocab),
                         file.where(), 0);
  fs::create_directory(folder);
  write_file_atomically(folder / "tokenizer.json", tokenizer.tokenizer_json);
  write_file_atomically(folder / "tokenizer_config.json", tokenizer.tokenizer_config_json);
  if (!tokenizer.chat_template.empty()) write_file_atomically(folder / "chat_template.jinja", tokenizer.chat_template);
}

// A bundle's name is a file name too.
void check_name(const std::string& name) {
  if (name.empty() || name == "." || name == ".." || name.find_first_of("/\\") != std::string::npos ||
      name.find('\0') != std::string::npos)
    throw InvalidArgumentError(fmt::format("'{}' cannot be the name of a bundle", name), "name",
                               "Use a name without slashes");
}

}  // namespace

void LlmExportOptions::validate() const {
  const auto is_any = [](DType dtype) { return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16; };
  if (!is_any(compute_precision))
    throw InvalidArgumentError(fmt::format("{} is no compute precision", dtype_name(compute_precision)),
                               "compute_precision", "Use f32, f16 or bf16");
  if (kv_precision && !is_any(*kv_precision))
    throw InvalidArgumentError(fmt::format("{} is no precision of states", dtype_name(*kv_precision)), "kv_precision",
                               "Use f32, f16 or bf16");
  if (threads < 1) throw InvalidArgumentError(fmt::format("{} threads", threads), "threads", "Use at least 1");
  if (max_context && *max_context < 1)
    throw InvalidArgumentError(fmt::format("a context of {} tokens", *max_context), "max_context", "Use at least 1");
}

void export_llm(const fs::path& checkpoint, const fs::path& output, const LlmExportOptions& options,
                const ExportProgress& progress, std::stop_token stop) {
  options.validate();
  const fs::path target = output.filename().empty() ? output.parent_path() : output;
  const std::string name = options.name.empty() ? checkpoint.stem().string() : options.name;
  check_name(name);
  const bool replace = check_output(target, options.overwrite);
  const GgufFile file = GgufFile::open(checkpoint);
  const DecoderConfig config = read_decoder_config(file);
  if (options.max_context.value_or(1) > config.context)
    throw InvalidArgumentError(fmt::format("a context of {} tokens", *options.max_context), "max_context",
                               fmt::format("The checkpoint was made for at most {}", config.context));
  StagingFolder staging(target);
  if (progress) progress("tokenizer", 0, 0);
  write_tokenizer(file, config, staging.path() / "tokenizer");
  const std::string asset = name + ".aimodel";
  {
    const auto module = author_decoder(file, options, progress, stop);
    if (progress) progress("writing", 0, 0);
    save_asset(*module, staging.path() / asset, asset_metadata(file));
  }
  write_file_atomically(
      staging.path() / "metadata.json",
      metadata_text(file, options, name, asset, static_cast<std::uint64_t>(config.vocab), config.context));
  if (stop.stop_requested()) throw CancelledError("the export was stopped", file.where());
  staging.publish(replace ? StagingFolder::Existing::kReplace : StagingFolder::Existing::kKeep);
}

}  // namespace coreai
