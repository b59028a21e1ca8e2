#include "coreai/bundle/speech_bundle.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "bundle/generation_config.h"
#include "bundle/metadata.h"
#include "bundle/places.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using metadata::Fields;
using metadata::Json;

constexpr std::int64_t kMaxSubsampling = 1024;

BundleError inconsistent(std::string field, std::string what, const std::string& where) {
  return BundleError(BundleFault::kInconsistent, std::move(field), std::move(what), where,
                     "Export the bundle again, or correct the file");
}

SpeechArchitecture read_architecture(const std::optional<Fields>& config, const std::string& where) {
  const auto name = config ? config->optional_text("architecture") : std::nullopt;
  if (!name) return SpeechArchitecture::kWhisper;
  for (const auto known : {SpeechArchitecture::kWhisper, SpeechArchitecture::kParakeetTdt})
    if (*name == speech_architecture_name(known)) return known;
  throw metadata::malformed(
      "config.architecture",
      fmt::format("unknown speech architecture {} (known: whisper, parakeet_tdt)", metadata::quote(*name)), where);
}

std::int64_t read_subsampling(const Fields& fields) {
  const std::int64_t factor = fields.integer("subsampling_factor", 1, kMaxSubsampling);
  if (std::has_single_bit(static_cast<std::uint64_t>(factor))) return factor;
  throw metadata::malformed(fields.path("subsampling_factor"),
                            fmt::format("'{}' is {}, not a power of two", fields.path("subsampling_factor"), factor),
                            fields.where());
}

ParakeetConfiguration read_parakeet(const Fields& config) {
  ParakeetConfiguration parakeet;
  parakeet.vocab_size = config.integer("vocab_size");
  parakeet.blank_token_id = config.integer("blank_token_id", 0);
  parakeet.decoder_hidden_size = config.integer("decoder_hidden_size");
  parakeet.num_decoder_layers = config.integer("num_decoder_layers");
  parakeet.max_symbols_per_step = config.integer("max_symbols_per_step");
  config.require("durations");
  parakeet.durations = config.optional_integers("durations", 0);
  const Fields encoder = config.object("encoder");
  parakeet.num_mel_bins = encoder.integer("num_mel_bins");
  parakeet.subsampling_factor = read_subsampling(encoder);
  if (parakeet.blank_token_id >= parakeet.vocab_size)
    throw inconsistent("config.blank_token_id",
                       fmt::format("'config.blank_token_id' is {}, the vocabulary has {} tokens",
                                   parakeet.blank_token_id, parakeet.vocab_size),
                       config.where());
  if (parakeet.durations.empty() || std::ranges::max(parakeet.durations) == 0)
    throw inconsistent("config.durations", "'config.durations' holds no step forward", config.where());
  return parakeet;
}

// The rules of the reference: the left context covers a chunk, the right one the longest step, and the window of mel
// frames is what the encoder turns into exactly that many frames.
void check_streaming(const StreamingGeometry& s, const ParakeetConfiguration& parakeet, const std::string& where) {
  if (s.left_context_encoder_frames < s.chunk_encoder_frames)
    throw inconsistent("streaming.left_context_encoder_frames",
                       fmt::format("the left context of {} encoder frames is shorter than a chunk of {}",
                                   s.left_context_encoder_frames, s.chunk_encoder_frames),
                       where);
  const std::int64_t longest = std::ranges::max(parakeet.durations);
  if (s.right_context_encoder_frames < longest)
    throw inconsistent("streaming.right_context_encoder_frames",
                       fmt::format("the right context of {} encoder frames is shorter than the longest duration, {}",
                                   s.right_context_encoder_frames, longest),
                       where);
  if (s.subsampling_factor != parakeet.subsampling_factor)
    throw inconsistent("streaming.subsampling_factor",
                       fmt::format("'streaming.subsampling_factor' is {}, 'config.encoder.subsampling_factor' {}",
                                   s.subsampling_factor, parakeet.subsampling_factor),
                       where);
  const std::int64_t frames = encoder_frame_count(s.window_mel_frames, s.subsampling_factor);
  if (frames != s.window_encoder_frames())
    throw inconsistent("streaming.window_mel_frames",
                       fmt::format("a window of {} mel frames gives {} encoder frames, left + chunk + right are {}",
                                   s.window_mel_frames, frames, s.window_encoder_frames()),
                       where);
}

StreamingGeometry read_streaming(const Fields& fields) {
  StreamingGeometry streaming;
  streaming.left_context_encoder_frames = fields.integer("left_context_encoder_frames", 0);
  streaming.chunk_encoder_frames = fields.integer("chunk_encoder_frames");
  streaming.right_context_encoder_frames = fields.integer("right_context_encoder_frames", 0);
  streaming.window_mel_frames = fields.integer("window_mel_frames");
  streaming.sample_rate = fields.integer("sample_rate");
  streaming.hop_length = fields.integer("hop_length");
  streaming.subsampling_factor = read_subsampling(fields);
  return streaming;
}

// Pairs [position, token]: sorted by position, tokens that are null left out. Nothing for another form.
std::vector<std::int32_t> forced_tokens(const Json& list) {
  std::vector<std::pair<std::int64_t, std::int32_t>> pairs;
  if (!list.is_array()) return {};
  for (const auto& pair : list) {
    if (!pair.is_array() || pair.size() != 2 || !metadata::is_integer(pair[0], 0, Fields::kMax)) return {};
    if (pair[1].is_null()) continue;
    if (!metadata::is_integer(pair[1], 0, Fields::kMax)) return {};
    pairs.emplace_back(pair[0].get<std::int64_t>(), static_cast<std::int32_t>(pair[1].get<std::int64_t>()));
  }
  std::ranges::sort(pairs);
  std::vector<std::int32_t> tokens;
  tokens.reserve(pairs.size());
  for (const auto& [position, token] : pairs) tokens.push_back(token);
  return tokens;
}

}  // namespace

std::string_view speech_architecture_name(SpeechArchitecture architecture) {
  return architecture == SpeechArchitecture::kParakeetTdt ? "parakeet_tdt" : "whisper";
}

std::int64_t encoder_frame_count(std::int64_t mel_frames, std::int64_t subsampling_factor) {
  std::int64_t frames = mel_frames;
  for (; subsampling_factor > 1; subsampling_factor /= 2) frames = frames > 0 ? (frames - 1) / 2 + 1 : 0;
  return frames;
}

SpeechBundle SpeechBundle::open(const fs::path& directory) {
  const fs::path path = expand_home(directory);
  std::error_code ignored;
  const bool older = fs::exists(path / "encoder.aimodel", ignored) || fs::exists(path / "decoder.aimodel", ignored);
  if (!older || fs::exists(path / "metadata.json", ignored)) return from(ModelBundle::open(path));
  SpeechBundle made;
  made.path_ = path;
  made.name_ = places::without_slash(path).filename().string();
  made.roles_ = {"encoder", "decoder"};
  for (const auto& role : made.roles_)
    if (!fs::exists(path / (role + ".aimodel"), ignored)) made.require_model(role);  // throws what is wrong
  return made;
}

SpeechBundle SpeechBundle::from(ModelBundle bundle) {
  bundle.require_kind({BundleKind::kSpeechRecognizer});
  const std::string where = metadata::where_of(bundle);
  const Json root = metadata::parse(bundle);
  const Fields fields(root, "", where);
  const auto config = fields.optional_object("config");
  SpeechBundle made;
  made.architecture_ = read_architecture(config, where);
  if (made.architecture_ == SpeechArchitecture::kParakeetTdt) {
    made.roles_ = {"encoder", "decoder_step", "joint"};
  } else if (bundle.assets().contains("main")) {
    made.roles_ = {"main"};
  } else {
    made.roles_ = {"encoder", "decoder"};
  }
  for (const auto& role : made.roles_) metadata::require_role(bundle, role, "its .aimodel");
  if (made.architecture_ == SpeechArchitecture::kParakeetTdt) made.parakeet_ = read_parakeet(*config);
  if (const auto streaming = fields.optional_object("streaming")) {
    if (made.parakeet_) {
      made.streaming_ = read_streaming(*streaming);
      check_streaming(*made.streaming_, *made.parakeet_, where);
    } else {
      made.warnings_.push_back("the block 'streaming' is not read: whisper does not stream");
    }
  }
  made.path_ = bundle.path();
  made.name_ = bundle.name();
  made.bundle_ = std::move(bundle);
  return made;
}

fs::path SpeechBundle::require_model(std::string_view role) const {
  if (bundle_) return bundle_->require_model(role);
  return places::require_asset(path_, fmt::format("{}.aimodel", role), std::string(role), path_.string());
}

std::vector<BundleError> SpeechBundle::problems() const {
  if (bundle_) return bundle_->problems();
  std::vector<BundleError> found;
  for (const auto& role : roles_) {
    try {
      require_model(role);
    } catch (const BundleError& e) {
      found.push_back(e);
    }
  }
  return found;
}

void SpeechBundle::verify() const {
  const auto found = problems();
  if (!found.empty()) throw BundleError(found.front());
}

fs::path SpeechBundle::tokenizer_directory() const {
  return places::speech_tokenizer(path_);
}

WhisperGeneration SpeechBundle::whisper_generation() const {
  WhisperGeneration generation;
  for (const fs::path& folder : {path_, path_ / "processor"}) {
    try {
      const auto root = metadata::read_generation_config(folder);
      if (!root) continue;
      if (const auto list = root->find("forced_decoder_ids"); list != root->end())
        if (auto tokens = forced_tokens(*list); !tokens.empty()) generation.prefix = std::move(tokens);
      const auto end = root->find("eos_token_id");
      if (end != root->end() && metadata::is_integer(*end, 0, Fields::kMax))
        generation.end_token = static_cast<std::int32_t>(end->get<std::int64_t>());
    } catch (const BundleError& e) {
      throw BundleError(BundleFault::kMalformedSidecar, e.field(), e.problem(), e.where(), e.next_step());
    }
    break;
  }
  return generation;
}

}  // namespace coreai
