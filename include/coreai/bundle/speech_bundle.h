// Bundles of kind "speech_recognizer" (Whisper, Parakeet TDT), and the older folder of Whisper without metadata.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coreai/bundle/model_bundle.h"

namespace coreai {

enum class SpeechArchitecture { kWhisper, kParakeetTdt };
std::string_view speech_architecture_name(SpeechArchitecture architecture);  // as metadata.json spells it

// The `config` block of "parakeet_tdt".
struct ParakeetConfiguration {
  std::int64_t vocab_size = 0;  // the blank token included
  std::int64_t blank_token_id = 0;
  std::int64_t decoder_hidden_size = 0, num_decoder_layers = 0;
  std::int64_t max_symbols_per_step = 0;
  std::vector<std::int64_t> durations;  // encoder frames that a step may advance
  std::int64_t num_mel_bins = 0;
  std::int64_t subsampling_factor = 0;  // mel frames per encoder frame: a power of two
};

// The `streaming` block: a window of encoder frames slides over the sound, chunk by chunk.
struct StreamingGeometry {
  std::int64_t left_context_encoder_frames = 0, chunk_encoder_frames = 0, right_context_encoder_frames = 0;
  std::int64_t window_mel_frames = 0;
  std::int64_t sample_rate = 0;  // Hz
  std::int64_t hop_length = 0;   // samples per mel frame
  std::int64_t subsampling_factor = 0;

  std::int64_t window_encoder_frames() const {
    return left_context_encoder_frames + chunk_encoder_frames + right_context_encoder_frames;
  }
};
// Encoder frames of so many mel frames: (n - 1) / 2 + 1 for every factor of two.
std::int64_t encoder_frame_count(std::int64_t mel_frames, std::int64_t subsampling_factor);

// How Whisper's decoder starts and ends.
struct WhisperGeneration {
  std::vector<std::int32_t> prefix{50258, 50259, 50360, 50364};
  std::int32_t end_token = 50257;
};

// Immutable.
class SpeechBundle {
 public:
  // A bundle, else the older folder: encoder.aimodel and decoder.aimodel without metadata.json. Throws BundleError,
  // IoError.
  static SpeechBundle open(const std::filesystem::path& directory);
  // Checks: kind, config.architecture (absent: whisper), its assets, its config, the streaming block.
  static SpeechBundle from(ModelBundle bundle);

  const std::filesystem::path& path() const { return path_; }
  const std::string& name() const { return name_; }
  // Nothing for the older folder.
  const std::optional<ModelBundle>& bundle() const { return bundle_; }
  SpeechArchitecture architecture() const { return architecture_; }
  const std::optional<ParakeetConfiguration>& parakeet() const { return parakeet_; }
  const std::optional<StreamingGeometry>& streaming() const { return streaming_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Roles with an asset: "encoder", "decoder" or "main" of Whisper; "encoder", "decoder_step", "joint" of Parakeet.
  const std::vector<std::string>& roles() const { return roles_; }
  // Throws BundleError as ModelBundle::require_model.
  std::filesystem::path require_model(std::string_view role) const;
  void verify() const;
  std::vector<BundleError> problems() const;

  // The folder with tokenizer.json: processor/, tokenizer/ or the bundle itself. Never a cache, never fetched. Throws
  // BundleError (kMissingTokenizer).
  std::filesystem::path tokenizer_directory() const;
  // generation_config.json where there is one: forced_decoder_ids sorted by position without empty ids, eos_token_id.
  // A list of another form counts as absent. Throws BundleError (kMalformedSidecar) when the file is not JSON.
  WhisperGeneration whisper_generation() const;

 private:
  SpeechBundle() = default;
  std::filesystem::path path_;
  std::string name_;
  std::optional<ModelBundle> bundle_;
  SpeechArchitecture architecture_ = SpeechArchitecture::kWhisper;
  std::optional<ParakeetConfiguration> parakeet_;
  std::optional<StreamingGeometry> streaming_;
  std::vector<std::string> roles_, warnings_;
};

}  // namespace coreai
