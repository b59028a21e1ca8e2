// A GGUF checkpoint to a language bundle: one `.aimodel` with function `main`, `tokenizer/`, `metadata.json`.
//
// `main` follows the contract of the reference's dynamic language-model export: inputs `input_ids` si32 [1, q] and
// `position_ids` si32 [1, s] (s = cached + q); states `keyCache` and `valueCache` [layers, 1, kv heads, capacity, head
// dimension]; output `logits` [1, q, vocabulary]. The capacity is the caller's, at least s.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "coreai/base/dtype.h"
#include "coreai/exporter/gguf.h"
#include "coreai/ir/module.h"

namespace coreai {

struct LlmExportOptions {
  DType compute_precision = DType::kF32;    // f32, f16 or bf16: of activations; bf16 gives f16 logits
  std::optional<DType> kv_precision;        // of the states: f16, f32 or bf16; absent: f16, bf16 in a bf16 model
  std::optional<std::int64_t> max_context;  // at most the checkpoint's; absent: the checkpoint's
  bool composites = true;                   // false: rms_norm, rope and attention written out op by op
  std::string name;                         // of the bundle; empty: the checkpoint's file name without extension
  bool overwrite = false;                   // replace an existing output folder
  int threads = 1;                          // that re-express weights

  // Throws InvalidArgumentError, one message per rule.
  void validate() const;
};

// What happens, and how far: `done` of `total` bytes of weights.
using ExportProgress = std::function<void(std::string_view phase, std::uint64_t done, std::uint64_t total)>;

// The program alone. Weights that need no change stay views of `file`'s bytes: keep its mapping.
// Throws UnsupportedError (architecture, variant, tensor that the graph would leave out), NotFoundError,
// MalformedError, CancelledError.
std::unique_ptr<ir::Module> author_decoder(const GgufFile& file, const LlmExportOptions& options,
                                           const ExportProgress& progress = {}, std::stop_token stop = {});

// Writes the bundle into a temporary folder beside `output` and renames it into place: after an error or a
// cancellation nothing is left, and an overwritten bundle is as it was. Throws as author_decoder does, and
// InvalidArgumentError (options, output exists), IoError.
void export_llm(const std::filesystem::path& checkpoint, const std::filesystem::path& output,
                const LlmExportOptions& options, const ExportProgress& progress = {}, std::stop_token stop = {});

}  // namespace coreai
