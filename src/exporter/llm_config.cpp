#include "exporter/llm_config.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>

#include "coreai/base/error.h"

namespace coreai {
namespace {

constexpr std::int64_t kMaxLayers = 4096;
constexpr double kGemmaWindowBase = 10000.0;    // Gemma 3 report, section 2: local layers keep 10k
constexpr std::int64_t kGemmaWindowPeriod = 6;  // five local layers, one global
constexpr std::int64_t kGemma27BLayers = 62;    // the one size whose scale is 1/sqrt(hidden / heads)

// Keys of variants whose arithmetic the graph would leave out, with the value that means "not used".
struct RefusedKey {
  std::string_view suffix, meaning;
};
constexpr std::array<RefusedKey, 8> kRefusedKeys = {{
    {"expert_count", "a mixture of experts"},
    {"attn_logit_softcapping", "soft-capped attention"},
    {"final_logit_softcapping", "soft-capped logits"},
    {"logit_scale", "scaled logits"},
    {"residual_scale", "scaled residuals"},
    {"attention.clamp_kqv", "clamped projections"},
    {"pooling_type", "an embedding model"},
    {"rope.scaling.yarn_log_multiplier", "YaRN positions"},
}};

class ConfigReader {
 public:
  explicit ConfigReader(const GgufFile& file) : file_(file) {}

  DecoderConfig run() {
    read_family();
    refuse_variants();
    read_sizes();
    read_rope();
    if (out_.is_gemma()) read_gemma();
    out_.tied_head = file_.find_tensor("output.weight") == nullptr;
    return out_;
  }

 private:
  std::string key(std::string_view suffix) const { return fmt::format("{}.{}", out_.architecture, suffix); }

  [[noreturn]] void unsupported(const std::string& what) const {
    throw UnsupportedError(what, file_.where(), "Architectures llama and gemma3 in their plain form can be exported");
  }

  void read_family() {
    out_.architecture = file_.require_string("general.architecture");
    if (out_.architecture == "llama") {
      out_.family = DecoderFamily::kLlama;
    } else if (out_.architecture == "gemma3") {
      out_.family = DecoderFamily::kGemma3;
    } else {
      unsupported(fmt::format("the architecture '{}'", out_.architecture));
    }
    const std::string_view kind = file_.find_string("general.type").value_or("model");
    if (kind != "model") unsupported(fmt::format("a file of general.type '{}'", kind));
    if (file_.find_unsigned("split.count").value_or(1) > 1)
      throw UnsupportedError("a checkpoint split into several files", file_.where(), "Join the parts first");
  }

  bool is_zero(const std::string& name) const {
    const GgufValue& value = *file_.find(name);
    if (const auto* u = std::get_if<std::uint64_t>(&value.value)) return *u == 0;
    if (const auto* i = std::get_if<std::int64_t>(&value.value)) return *i == 0;
    if (const auto* d = std::get_if<double>(&value.value)) return *d == 0;
    return false;
  }

  void refuse_variants() const {
    for (const RefusedKey& refused : kRefusedKeys)
      if (const std::string name = key(refused.suffix); file_.find(name) && !is_zero(name))
        unsupported(fmt::format("{} ('{}')", refused.meaning, name));
    if (!file_.find_bool(key("attention.causal")).value_or(true)) unsupported("attention that is not causal");
    if (file_.find_tensor("rope_freqs.weight")) unsupported("rotary frequencies as a tensor ('rope_freqs.weight')");
  }

  std::int64_t size(std::string_view suffix, std::optional<std::uint64_t> fallback = std::nullopt) const {
    const std::string name = key(suffix);
    const std::uint64_t value = fallback ? file_.find_unsigned(name).value_or(*fallback) : file_.require_unsigned(name);
    if (value == 0 || value > std::numeric_limits<std::int32_t>::max())
      throw MalformedError(fmt::format("metadata key '{}' is {}", name, value), file_.where(), 0);
    return static_cast<std::int64_t>(value);
  }

  void read_sizes() {
    out_.layers = size("block_count");
    out_.hidden = size("embedding_length");
    out_.ffn = size("feed_forward_length");
    out_.heads = size("attention.head_count");
    out_.kv_heads = size("attention.head_count_kv", static_cast<std::uint64_t>(out_.heads));
    out_.context = size("context_length");
    if (out_.layers > kMaxLayers) unsupported(fmt::format("{} layers", out_.layers));
    const auto share = static_cast<std::uint64_t>(out_.hidden / out_.heads);
    out_.head_dim = size("attention.key_length", share);
    const std::int64_t value_dim = size("attention.value_length", share);
    if (value_dim != out_.head_dim)
      unsupported(fmt::format("value heads of {} beside key heads of {}", value_dim, out_.head_dim));
    if (out_.heads % out_.kv_heads != 0 || out_.head_dim % 2 != 0)
      throw MalformedError(fmt::format("{} heads of {} over {} key heads", out_.heads, out_.head_dim, out_.kv_heads),
                           file_.where(), 0);
    // Bounds the sizes by the file before anything is built from them.
    const Shape query{out_.heads * out_.head_dim, out_.hidden};
    if (const GgufTensor& first = file_.tensor("blk.0.attn_q.weight"); !(first.shape() == query))
      throw MalformedError(fmt::format("tensor 'blk.0.attn_q.weight' has shape {}, the metadata asks for {}",
                                       first.shape().to_string(), query.to_string()),
                           file_.where(), first.offset);
    const GgufTensor& embedding = file_.tensor("token_embd.weight");
    if (embedding.dims.size() != 2)
      throw MalformedError("tensor 'token_embd.weight' is not a matrix", file_.where(), embedding.offset);
    out_.vocab = embedding.shape()[0];
    const std::int64_t named = size("vocab_size", static_cast<std::uint64_t>(out_.vocab));
    if (named != out_.vocab)
      throw MalformedError(fmt::format("'{}' is {}, the embedding has {} rows", key("vocab_size"), named, out_.vocab),
                           file_.where(), embedding.offset);
    out_.norm_eps = static_cast<float>(file_.require_float(key("attention.layer_norm_rms_epsilon")));
  }

  void read_rope() {
    out_.rope_base = file_.find_float(key("rope.freq_base")).value_or(10000.0);
    if (!(out_.rope_base > 0)) unsupported(fmt::format("a rotary base of {}", out_.rope_base));
    const std::int64_t rotated = size("rope.dimension_count", static_cast<std::uint64_t>(out_.head_dim));
    if (rotated != out_.head_dim) unsupported(fmt::format("rotation of {} of {} channels", rotated, out_.head_dim));
    const std::string_view scaling = file_.find_string(key("rope.scaling.type")).value_or("none");
    const double factor =
        file_.find_float(key("rope.scaling.factor")).value_or(file_.find_float(key("rope.scale_linear")).value_or(1.0));
    const bool linear = scaling == "linear" || (scaling == "none" && file_.find(key("rope.scale_linear")));
    if (scaling != "none" && scaling != "linear")
      unsupported(fmt::format("rotary scaling of type '{}' ('{}')", scaling, key("rope.scaling.type")));
    if (linear && !(factor > 0)) unsupported(fmt::format("a rotary scaling factor of {}", factor));
    if (linear) out_.rope_scale = 1.0 / factor;
  }

  void read_gemma() {
    out_.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(out_.hidden)));
    out_.window = size("attention.sliding_window");
    out_.window_period = size("attention.sliding_window_pattern", kGemmaWindowPeriod);
    out_.window_rope_base = file_.find_float(key("rope.freq_base_swa")).value_or(kGemmaWindowBase);
    const std::int64_t per_head = out_.layers == kGemma27BLayers ? out_.hidden / out_.heads : out_.head_dim;
    const double scale =
        file_.find_float(key("attention.scale")).value_or(1.0 / std::sqrt(static_cast<double>(per_head)));
    out_.attention_scale = static_cast<float>(scale);
  }

  const GgufFile& file_;
  DecoderConfig out_;
};

}  // namespace

DecoderConfig read_decoder_config(const GgufFile& file) {
  return ConfigReader(file).run();
}

}  // namespace coreai
