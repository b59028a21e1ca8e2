// Hyper-parameters of a decoder, read from a GGUF file and checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "coreai/exporter/gguf.h"

namespace coreai {

enum class DecoderFamily { kLlama, kGemma3 };

struct DecoderConfig {
  DecoderFamily family = DecoderFamily::kLlama;
  std::string architecture;
  std::int64_t layers = 0, hidden = 0, ffn = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0, context = 0;
  float norm_eps = 0;
  double rope_base = 10000.0;
  double rope_scale = 1.0;               // of the positions of unwindowed layers
  double window_rope_base = 10000.0;     // of windowed layers
  std::int64_t window = 0;               // 0: no layer is windowed
  std::int64_t window_period = 0;        // every so many layers one sees everything
  std::optional<float> attention_scale;  // absent: 1/sqrt(head_dim)
  float embedding_scale = 1.0f;
  bool tied_head = false;  // no `output.weight`: the embedding is the head

  bool is_gemma() const { return family == DecoderFamily::kGemma3; }
  bool windowed(std::int64_t layer) const { return window > 0 && (layer + 1) % window_period != 0; }
};

// Throws UnsupportedError that names the architecture, key or tensor that cannot be expressed; NotFoundError and
// MalformedError as the reader does.
DecoderConfig read_decoder_config(const GgufFile& file);

}  // namespace coreai
