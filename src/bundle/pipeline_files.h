// File names and sidecars of diffusion bundles.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coreai/bundle/pipeline_descriptor.h"

namespace coreai::pipeline {

// Role to the name that exporters give its file.
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kProbedNames{{
    {"transformer", "Transformer"},
    {"transformer_512", "Transformer_512"},
    {"vae_decoder", "VAEDecoder"},
    {"vae_decoder_half", "VAEDecoder_half"},
    {"vae_encoder", "VAEEncoder"},
    {"vae_encoder_half", "VAEEncoder_half"},
}};

// *.aimodel of a folder, then *.aimodelc, each sorted.
std::vector<std::string> asset_names(const std::filesystem::path& folder);
// The role a file name means, in snake_case or CamelCase; empty for none. Half-size parts have roles of their own.
std::string role_of_file(std::string_view name);
// Throws BundleError (kMalformedSidecar).
BatchNormStatistics read_statistics(const std::filesystem::path& mean, const std::filesystem::path& variance);

}  // namespace coreai::pipeline
