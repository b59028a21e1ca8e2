// Broken bundles of the other kinds: copies of what the public exporters wrote, each with a finding of its own.
#include "bundle/broken_bundle.h"
#include "coreai/base/error.h"
#include "coreai/base/npy.h"
#include "coreai/bundle/open_bundle.h"

namespace coreai::test {
namespace {

using Break = void (*)(const fs::path& bundle);

struct Broken {
  const char* name;
  const char* source;  // below tests/fixtures/genuine
  const char* id;      // of the finding; when it is an error there is no other error
  Break make;
};

void edit(const fs::path& bundle, const std::function<void(Json&)>& change) {
  edit_json(bundle / "metadata.json", change);
}

void set_vision(const fs::path& bundle, const char* key, const Json& value) {
  edit(bundle, [&](Json& root) { root["vision"][key] = value; });
}

void set_context(const fs::path& bundle, int length) {
  edit(bundle, [&](Json& root) { root["language"]["max_context_length"] = length; });
}

fs::path only_asset(const fs::path& bundle) {
  for (const auto& entry : fs::directory_iterator(bundle))
    if (entry.path().extension() == ".aimodel") return entry.path();
  return {};
}

// A decoder whose embeddings have another length than those of the other parts.
void other_hidden_size(const fs::path& bundle) {
  ir::Module module;
  ir::Builder builder(module);
  const ir::TypeRef row = module.context().tensor_type(DType::kSI32, {1, kDynamic});
  const ir::TypeRef embeddings = module.context().tensor_type(DType::kF16, {1, 1, 32});
  builder.begin_graph({"main", {{"input_ids", row, ""}}, {{"embeddings", embeddings, ""}}, false, false, {}});
  builder.end_graph({builder.splat(DType::kF16, {1, 1, 32}, 0.0)});
  replace_program(bundle / "embed.aimodel", module);
}

void as_flux2(const fs::path& bundle) {
  edit(bundle, [](Json& root) { root["diffusion"]["type"] = "flux2"; });
}

void write_statistics(const fs::path& bundle) {
  const std::vector<float> values = {0.5F, 1.0F};
  for (const char* name : {"vae_bn_mean.npy", "vae_bn_var.npy"})
    write_npy(bundle / name, NDArray::from<float>(DType::kF32, {2}, values));
}

const Broken kVlm[] = {
    {"NoVisionYet", "qwen3_vl_b3", "export-in-progress",
     [](const fs::path& b) {
       fs::remove_all(b / "vision.aimodel");
       edit(b, [](Json& root) { root["assets"].erase("vision"); });
     }},
    {"NoVisionAtAll", "qwen3_vl_b3", "export-in-progress",
     [](const fs::path& b) {
       fs::remove_all(b / "vision.aimodel");
       edit(b, [](Json& root) {
         root["assets"].erase("vision");
         root.erase("vision");
       });
     }},
    {"NoVisionBlock", "qwen3_vl_b3", "metadata-block-missing",
     [](const fs::path& b) { edit(b, [](Json& root) { root.erase("vision"); }); }},
    {"VisionInsideLanguage", "qwen3_vl_b3", "vision-block-misplaced",
     [](const fs::path& b) {
       edit(b, [](Json& root) {
         root["language"]["vision"] = root["vision"];
         root.erase("vision");
       });
     }},
    {"NoEmbedding", "qwen3_vl_b3", "role-missing",
     [](const fs::path& b) { edit(b, [](Json& root) { root["assets"].erase("embedding"); }); }},
    {"VisionAssetMissing", "qwen3_vl_b3", "asset-missing",
     [](const fs::path& b) { fs::remove_all(b / "vision.aimodel"); }},
    {"ImageTokenBeyond", "qwen3_vl_b3", "image-token-outside",
     [](const fs::path& b) { set_vision(b, "image_token_id", 384); }},
    {"OtherImageSize", "qwen3_vl_b3", "vision-signature-mismatch",
     [](const fs::path& b) { set_vision(b, "image_size", 448); }},
    {"OtherTokenCount", "qwen3_vl_b3", "vision-signature-mismatch",
     [](const fs::path& b) { set_vision(b, "image_token_count", 196); }},
    {"ImageSizeIsText", "qwen3_vl_b3", "metadata-field-invalid",
     [](const fs::path& b) { set_vision(b, "image_size", "large"); }},
    {"UnknownStrategy", "qwen3_vl_b3", "metadata-field-invalid",
     [](const fs::path& b) { set_vision(b, "image_strategy", "squeeze"); }},
    {"OtherHiddenSize", "qwen3_vl_b3", "hidden-size-mismatch", other_hidden_size},
    {"VlmContextBeyondItsCaches", "qwen3_vl_b3", "context-exceeds-states",
     [](const fs::path& b) { set_context(b, 4096); }},
};

const Broken kDiffusion[] = {
    {"NoDenoiser", "sd15_f16_b3", "role-missing",
     [](const fs::path& b) { edit(b, [](Json& root) { root["assets"].erase("unet"); }); }},
    {"NoModeHasItsParts", "sd15_f16_b3", "role-missing",
     [](const fs::path& b) {
       fs::rename(b / "VAEDecoder.aimodel", b / "Decoder.aimodel");  // exporters' names are looked for
       edit(b, [](Json& root) {
         root["assets"] = {{"transformer_512", "Unet.aimodel"},
                           {"text_encoder", "TextEncoder.aimodel"},
                           {"vae_encoder", "VAEEncoder.aimodel"},
                           {"vae_decoder", "Decoder.aimodel"}};
       });
     }},
    {"NoDiffusionBlock", "sd15_f16_b3", "metadata-block-missing",
     [](const fs::path& b) { edit(b, [](Json& root) { root.erase("diffusion"); }); }},
    {"UnknownPrediction", "sd15_f16_b3", "metadata-field-invalid",
     [](const fs::path& b) { edit(b, [](Json& root) { root["diffusion"]["prediction_type"] = "guess"; }); }},
    {"NoTokenizer", "sd15_f16_b3", "tokenizer-missing", [](const fs::path& b) { fs::remove_all(b / "tokenizer"); }},
    {"BrokenSecondTokenizer", "sd15_f16_b3", "tokenizer-malformed",
     [](const fs::path& b) {
       fs::copy(b / "tokenizer", b / "tokenizer_2");
       fs::resize_file(b / "tokenizer_2/tokenizer.json", 777);
     }},
    {"LegacyPipeline", "sd15_f16_b3", "legacy-pipeline",
     [](const fs::path& b) { write_file(b / "pipeline.json", "{}"); }},
    {"NoStatistics", "sd15_f16_b3", "sidecar-missing", as_flux2},
    {"OneStatisticMissing", "sd15_f16_b3", "sidecar-missing",
     [](const fs::path& b) {
       write_statistics(b);
       fs::remove(b / "vae_bn_var.npy");
     }},
    {"StatisticsCutOff", "sd15_f16_b3", "sidecar-malformed",
     [](const fs::path& b) {
       as_flux2(b);
       write_statistics(b);
       fs::resize_file(b / "vae_bn_var.npy", 100);
     }},
    {"NoTextEncoder", "sd15_f16_b3", "role-missing",
     [](const fs::path& b) { edit(b, [](Json& root) { root["assets"].erase("text_encoder"); }); }},
    {"StatisticsAreAFolder", "sd15_f16_b3", "sidecar-malformed",
     [](const fs::path& b) {
       write_statistics(b);
       fs::remove(b / "vae_bn_var.npy");
       fs::create_directory(b / "vae_bn_var.npy");
     }},
    {"ProbedPartBroken", "sd15_f16_b3", "asset-program-missing",
     [](const fs::path& b) { fs::create_directory(b / "VAEDecoder_half.aimodel"); }},
    {"ProbedPartLinkedFromOutside", "sd15_f16_b3", "path-outside-bundle",
     [](const fs::path& b) {
       fs::create_directory(b.parent_path() / "elsewhere");
       fs::create_directory_symlink(b.parent_path() / "elsewhere", b / "VAEDecoder_half.aimodel");
     }},
    {"FourBitsThatAreSixteen", "sd15_f16_b3", "compression-not-achieved",
     [](const fs::path& b) { edit(b, [](Json& root) { root["compression"] = "4bit"; }); }},
};

const Broken kSpeech[] = {
    {"NoJoint", "parakeet_dyn", "role-missing",
     [](const fs::path& b) { edit(b, [](Json& root) { root["assets"].erase("joint"); }); }},
    {"UnknownArchitecture", "parakeet_dyn", "metadata-field-invalid",
     [](const fs::path& b) { edit(b, [](Json& root) { root["config"]["architecture"] = "conformer"; }); }},
    {"NoDurations", "parakeet_dyn", "metadata-field-missing",
     [](const fs::path& b) { edit(b, [](Json& root) { root["config"].erase("durations"); }); }},
    {"BlankBeyondTheVocabulary", "parakeet_dyn", "metadata-inconsistent",
     [](const fs::path& b) { edit(b, [](Json& root) { root["config"]["blank_token_id"] = 64; }); }},
    {"NoProcessor", "parakeet_dyn", "tokenizer-missing", [](const fs::path& b) { fs::remove_all(b / "processor"); }},
    {"WhisperWithoutADecoder", "parakeet_dyn", "role-missing",
     [](const fs::path& b) {
       edit(b, [](Json& root) {
         root["config"]["architecture"] = "whisper";
         root["assets"].erase("decoder_step");
         root["assets"].erase("joint");
       });
     }},
};

const Broken kStatic[] = {
    {"ContextBeyondTheFunctions", "qwen3_ios_mixed_b3", "context-exceeds-functions",
     [](const fs::path& b) { set_context(b, 4096); }},
    {"ContextBelowTheFunctions", "qwen3_ios_mixed_b3", "context-below-functions",
     [](const fs::path& b) { set_context(b, 256); }},
    {"NoGather", "qwen3_ios_mixed_b3", "static-function-missing",
     [](const fs::path& b) { rename_in_program(only_asset(b), "gather_embeddings_16", "gather_embeddingz_16"); }},
    {"NoTable", "mistral_ios_none_b3", "static-function-missing",
     [](const fs::path& b) { rename_in_program(only_asset(b), "load_embeddings", "lose_embeddings"); }},
    {"CachesOfAnotherLength", "mistral_ios_none_b3", "static-state-mismatch",
     [](const fs::path& b) {
       for (const char* size : {"8", "16", "64"}) {
         rename_in_program(only_asset(b), std::string("extend_256_") + size, std::string("extend_255_") + size);
         rename_in_program(only_asset(b), std::string("prompt_opt_256_") + size, std::string("prompt_opt_255_") + size);
       }
       set_context(b, 255);
     }},
    {"RoleMapsToNothing", "qwen3_ios_mixed_b3", "function-missing",
     [](const fs::path& b) {
       edit(b, [](Json& root) { root["language"]["function_map"]["extend"] = {"extend_1024_8"}; });
     }},
    {"StaticStateOfAnotherName", "qwen3_ios_mixed_b3", "state-unknown",
     [](const fs::path& b) {
       edit(b, [](Json& root) {
         root["language"]["states"] = {{"key_cache", "kv_cache"}, {"value_cache", "kv_cache"}, {"ssm", "fixed"}};
       });
     }},
    {"MainOfAStaticExport", "qwen3_ios_mixed_b3", "function-map-unmatched", [](const fs::path&) {}},
    {"ContextBeyondTheCaches", "qwen3_4bit_staticcache_b2", "context-exceeds-states",
     [](const fs::path& b) { set_context(b, 4096); }},
    {"ContextBelowTheCaches", "qwen3_4bit_staticcache_b2", "context-below-states",
     [](const fs::path& b) { set_context(b, 64); }},
    {"NothingBelowTwoBits", "qwen3_4bit_b3", "compression-not-achieved",
     [](const fs::path& b) { edit(b, [](Json& root) { root["compression"] = "2bit"; }); }},
    {"FewerThanHalf", "qwen3_ios_mixed_b3", "compression-partial",
     [](const fs::path& b) { edit(b, [](Json& root) { root["compression"] = "4bit"; }); }},
};

class BrokenKind : public testing::TestWithParam<Broken> {};

TEST_P(BrokenKind, HasItsOwnFinding) {
  const Scratch scratch;
  const fs::path bundle = copy_bundle(scratch, std::string("genuine/") + GetParam().source);
  GetParam().make(bundle);
  const AuditReport report = audit_bundle(bundle);
  std::set<std::string> errors = ids(report, Severity::kError);
  std::set<std::string> all = errors;
  all.merge(ids(report, Severity::kWarning));
  all.merge(ids(report, Severity::kNote));
  EXPECT_TRUE(all.contains(GetParam().id)) << testing::PrintToString(all);
  errors.erase(GetParam().id);
  EXPECT_THAT(errors, testing::IsEmpty());
}

std::string name_of(const testing::TestParamInfo<Broken>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Vlm, BrokenKind, testing::ValuesIn(kVlm), name_of);
INSTANTIATE_TEST_SUITE_P(Diffusion, BrokenKind, testing::ValuesIn(kDiffusion), name_of);
INSTANTIATE_TEST_SUITE_P(Speech, BrokenKind, testing::ValuesIn(kSpeech), name_of);
INSTANTIATE_TEST_SUITE_P(Static, BrokenKind, testing::ValuesIn(kStatic), name_of);

// A program of one function with inputs of these names.
void write_asset(const fs::path& folder, const std::vector<std::string>& inputs) {
  ir::Module module;
  ir::Builder builder(module);
  const ir::TypeRef tensor = module.context().tensor_type(DType::kF32, {4});
  ir::GraphSpec spec{"main", {}, {{"y", tensor, ""}}, false, false, {}};
  for (const std::string& input : inputs) spec.inputs.push_back({input, tensor, ""});
  builder.begin_graph(spec);
  builder.end_graph({builder.splat(DType::kF32, {4}, 0.0)});
  AIModelAssetMetadata metadata;
  metadata.producer = "test";
  save_asset(module, folder, metadata);
}

// A bundle of another kind around that asset; `block` are further members of metadata.json.
void write_bundle(const fs::path& folder, const std::string& kind, const Json& assets, const Json& blocks) {
  Json root = {{"metadata_version", "0.2"}, {"kind", kind}, {"name", "made"}, {"assets", assets}};
  root.update(blocks);
  fs::create_directories(folder);
  write_file(folder / "metadata.json", root.dump());
}

TEST(AuditKinds, Segmenters) {
  const Scratch scratch;
  const fs::path bundle = scratch.path() / "seg";
  write_bundle(bundle, "segmenter", {{"main", "a.aimodel"}}, Json::object());
  write_asset(bundle / "a.aimodel", {"pixel_values", "input_ids"});
  EXPECT_TRUE(audit_bundle(bundle).findings.empty());
  fs::remove_all(bundle / "a.aimodel");
  write_asset(bundle / "a.aimodel", {"waveform"});
  EXPECT_THAT(ids(audit_bundle(bundle), Severity::kError), testing::ElementsAre("segmenter-functions-unknown"));
}

TEST(AuditKinds, VideoSegmenters) {
  const Scratch scratch;
  const fs::path bundle = scratch.path() / "seg";
  const Json blocks = {{"runtime", {{"slots", 4}}}, {"tracking", {{"threshold", 0.5}}}};
  write_bundle(bundle, "video_segmenter", {{"main", "a.aimodel"}}, blocks);
  write_asset(bundle / "a.aimodel", {"pixel_values", "input_ids"});
  EXPECT_TRUE(audit_bundle(bundle).findings.empty());
  write_bundle(bundle, "video_segmenter", {{"main", "a.aimodel"}}, {{"runtime", Json::object()}});
  EXPECT_THAT(ids(audit_bundle(bundle), Severity::kError), testing::ElementsAre("metadata-block-missing"));
}

TEST(AuditKinds, VideoDiffusion) {
  const Scratch scratch;
  const fs::path bundle = scratch.path() / "video";
  const Json assets = {{"transformer", "t.aimodel"}, {"text_encoder", "e.aimodel"}, {"vae_decoder", "d.aimodel"}};
  write_bundle(bundle, "video-diffusion", assets, {{"diffusion", {{"z_dim", 16}}}});
  for (const char* name : {"t.aimodel", "e.aimodel", "d.aimodel"}) write_asset(bundle / name, {"sample"});
  fs::copy(fixture("tiny_llm/tokenizer"), bundle / "tokenizer");
  EXPECT_TRUE(audit_bundle(bundle).findings.empty());
  fs::remove_all(bundle / "d.aimodel");
  EXPECT_THAT(ids(audit_bundle(bundle), Severity::kError), testing::ElementsAre("asset-missing"));
  // Names of the other parts are not fixed; as verify() has it, only a denoiser is needed.
  const Json others = {{"transformer", "t.aimodel"}, {"text", "e.aimodel"}};
  write_bundle(bundle, "video-diffusion", others, {{"diffusion", {{"z_dim", 16}}}});
  EXPECT_TRUE(audit_bundle(bundle).clean());
  EXPECT_TRUE(problems(open_bundle(bundle)).empty());
  write_bundle(bundle, "video-diffusion", {{"text", "e.aimodel"}}, {{"diffusion", {{"z_dim", 16}}}});
  EXPECT_THAT(ids(audit_bundle(bundle), Severity::kError), testing::ElementsAre("role-missing"));
}

TEST(AuditKinds, WhisperWithMetadata) {
  const Scratch scratch;
  const fs::path bundle = scratch.path() / "whisper";
  write_bundle(bundle, "speech_recognizer", {{"encoder", "e.aimodel"}, {"decoder", "d.aimodel"}},
               {{"config", {{"architecture", "whisper"}}}});
  for (const char* name : {"e.aimodel", "d.aimodel"}) write_asset(bundle / name, {"input_features"});
  fs::copy(fixture("tiny_llm/tokenizer"), bundle / "processor");
  EXPECT_TRUE(audit_bundle(bundle).findings.empty());
}

TEST(AuditKinds, FoldersWithoutMetadata) {
  const Scratch scratch;
  const fs::path speech = scratch.path() / "speech";
  fs::create_directory(speech);
  for (const char* name : {"encoder.aimodel", "decoder.aimodel"}) write_asset(speech / name, {"x"});
  fs::copy_file(fixture("tiny_llm/tokenizer/tokenizer.json"), speech / "tokenizer.json");
  fs::copy_file(fixture("tiny_llm/tokenizer/tokenizer_config.json"), speech / "tokenizer_config.json");
  const AuditReport report = audit_bundle(speech);
  EXPECT_EQ(report.kind, "speech_recognizer");
  EXPECT_EQ(report.assets.size(), 2u);
  EXPECT_THAT(ids(report, Severity::kWarning), testing::ElementsAre("metadata-missing"));
  EXPECT_THAT(ids(report, Severity::kError), testing::IsEmpty());
  fs::rename(speech / "decoder.aimodel", scratch.path() / "decoder.aimodel");
  fs::create_directory_symlink(scratch.path() / "decoder.aimodel", speech / "decoder.aimodel");
  EXPECT_THAT(ids(audit_bundle(speech), Severity::kError), testing::ElementsAre("path-outside-bundle"));
  const fs::path pipeline = scratch.path() / "pipeline";
  fs::create_directory(pipeline);
  for (const char* name : {"Unet.aimodel", "VAEDecoder.aimodel"}) write_asset(pipeline / name, {"x"});
  EXPECT_THAT(ids(audit_bundle(pipeline), Severity::kError),
              testing::UnorderedElementsAre("role-missing", "tokenizer-missing"));
  write_asset(pipeline / "TextEncoder.aimodel", {"x"});
  EXPECT_THAT(ids(audit_bundle(pipeline), Severity::kError), testing::ElementsAre("tokenizer-missing"));
}

// function_map speaks of the role's own asset, and decides which of its functions counts.
TEST(AuditKinds, FunctionsOfEveryRole) {
  const Scratch scratch;
  const fs::path bundle = copy_bundle(scratch, "genuine/qwen3_vl_b3");
  const auto map_vision = [&](const char* function) {
    edit(bundle, [&](Json& root) { root["language"]["function_map"] = {{"main", {"main"}}, {"vision", {function}}}; });
  };
  const Json vision = Json::parse(read_text_file(bundle / "metadata.json"))["vision"];
  const auto size = vision["image_size"].get<std::int64_t>(), count = vision["image_token_count"].get<std::int64_t>();
  ir::Module module;
  ir::Builder builder(module);
  for (const auto& [name, extent] : {std::pair{"preview", size / 2}, {"encode", size}}) {
    const ir::TypeRef pixels = module.context().tensor_type(DType::kF16, {1, 3, extent, extent});
    const ir::TypeRef features = module.context().tensor_type(DType::kF16, {1, count, 64});
    builder.begin_graph({name, {{"pixel_values", pixels, ""}}, {{"features", features, ""}}, false, false, {}});
    builder.end_graph({builder.splat(DType::kF16, {1, count, 64}, 0.0)});
  }
  replace_program(bundle / "vision.aimodel", module);
  map_vision("encode");
  EXPECT_THAT(ids(audit_bundle(bundle), Severity::kError), testing::IsEmpty());
  map_vision("preview");
  EXPECT_THAT(ids(audit_bundle(bundle), Severity::kError), testing::ElementsAre("vision-signature-mismatch"));
  map_vision("main");  // of the decoder
  EXPECT_THAT(ids(audit_bundle(bundle), Severity::kError), testing::Contains("function-missing"));
}

// What the runtime refuses by name is no clean asset.
TEST(AuditKinds, OperationsThatCannotRunHere) {
  for (const auto& [asset, named] : {std::pair{"delegate", "back-end"},
                                     {"delegate_v1", "back-end"},
                                     {"metal4_kernel", "Metal"},
                                     {"udml_call", "user-defined kernel"},
                                     {"udml_placeholder", "another dialect"}}) {
    const AuditReport report = audit_bundle(fixture(std::string("op_assets/") + asset + ".aimodel"));
    EXPECT_THAT(ids(report, Severity::kError), testing::ElementsAre("asset-program-unsupported")) << asset;
    ASSERT_FALSE(report.findings.empty());
    EXPECT_THAT(report.findings[0].sentence, testing::HasSubstr(named));
  }
}

TEST(AuditKinds, ADetectorWithoutABundle) {
  const AuditReport report = audit_bundle(fixture("genuine/yolos/yolos_float32_static.aimodel"));
  EXPECT_EQ(report.kind, "detector");
  EXPECT_TRUE(report.findings.empty());
}

}  // namespace
}  // namespace coreai::test
