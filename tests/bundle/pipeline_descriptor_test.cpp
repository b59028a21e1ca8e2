// Kinds diffusion and video-diffusion: three ways to find a part, modes by the files, NumPy sidecars.
#include "coreai/bundle/pipeline_descriptor.h"

#include "bundle/bundle_folder.h"
#include "coreai/base/npy.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kPipeline = R"({"metadata_version": "0.2", "kind": "diffusion", "name": "d",
  "assets": {"transformer": "Transformer.aimodel", "text_encoder": "TextEncoder.aimodel",
             "vae_decoder": "VAEDecoder.aimodel"},
  "diffusion": {"type": "flux2", "prediction_type": "flow_matching", "image_size": 256, "decoder_shift_factor": 0.5,
                "guidance_embeds": false, "default_steps": 4, "rope_axes_dims": [4, 4], "rope_theta": 2000}})";

class Pipeline : public test::BundleFolder {
 protected:
  void SetUp() override {
    BundleFolder::SetUp();
    metadata(kPipeline);
    for (const char* name : {"Transformer.aimodel", "TextEncoder.aimodel", "VAEDecoder.aimodel"}) folder(name);
  }
  void expect(const std::string& from, const std::string& to, BundleFault fault, const std::string& field,
              const std::string& part) {
    metadata(replaced(kPipeline, from, to));
    expect_fault(fault, field, part, [&] { PipelineDescriptor::open(dir_).verify(); });
  }
  // The folder without metadata, with these entries.
  PipelineDescriptor detected(const std::vector<std::string>& names) {
    fs::remove_all(dir_);
    for (const auto& name : names) folder(name);
    return PipelineDescriptor::open(dir_);
  }
  static NDArray row(std::initializer_list<float> values) {
    NDArray array(DType::kF32, {static_cast<std::int64_t>(values.size())});
    std::copy(values.begin(), values.end(), array.mutable_values<float>().begin());
    return array;
  }
};

TEST_F(Pipeline, ReadsTheDiffusionBlock) {
  const auto pipeline = PipelineDescriptor::open(dir_);
  const auto& c = pipeline.configuration();
  EXPECT_EQ(c.type, DiffusionType::kFlux2);
  EXPECT_EQ(c.prediction_type, PredictionType::kFlowMatching);
  EXPECT_EQ(c.image_size, 256);
  EXPECT_EQ(c.decoder_shift_factor, 0.5);
  EXPECT_EQ(c.guidance_embeds, false);
  EXPECT_EQ(c.default_steps, 4);
  EXPECT_THAT(c.rope_axes_dims, ElementsAre(4, 4));
  EXPECT_FALSE(c.scheduler);
  EXPECT_FALSE(c.batch_norm_eps);
  EXPECT_THAT(pipeline.warnings(), IsEmpty());
  pipeline.verify();
  metadata(replaced(kPipeline, "256", R"(256, "scheduler": {"training_steps": 500, "beta_schedule": "linear"})"));
  const auto scheduler = PipelineDescriptor::open(dir_).configuration().scheduler;
  ASSERT_TRUE(scheduler);
  EXPECT_EQ(scheduler->training_steps, 500);
  EXPECT_EQ(scheduler->beta_end, 0.012);
  EXPECT_EQ(scheduler->beta_schedule, "linear");
}

TEST_F(Pipeline, ReadsVideoDiffusion) {
  metadata(replaced(replaced(kPipeline, "\"diffusion\",", "\"video-diffusion\","), "256",
                    R"(256, "text_dim": 4096, "z_dim": 16, "default_shift": 3.0, "default_num_frames": 81)"));
  const auto pipeline = PipelineDescriptor::open(dir_);
  EXPECT_EQ(pipeline.bundle()->kind(), BundleKind::kVideoDiffusion);
  EXPECT_EQ(pipeline.configuration().default_num_frames, 81);
  EXPECT_EQ(pipeline.configuration().z_dim, 16);
  EXPECT_EQ(pipeline.configuration().default_shift, 3.0);
  pipeline.verify();
  metadata(R"({"metadata_version": "0.2", "kind": "video-diffusion", "name": "v", "assets": {"text": "T.aimodel"},
    "diffusion": {}})");
  folder("T.aimodel");
  PipelineDescriptor::open(dir_).verify();  // Transformer.aimodel is found by its name
  fs::remove(dir_ / "Transformer.aimodel");
  expect_fault(BundleFault::kMissingAsset, "assets.transformer", "required component 'transformer' not found",
               [&] { PipelineDescriptor::open(dir_).verify(); });
}

TEST_F(Pipeline, BadBlocksAreNamed) {
  constexpr auto kMalformed = BundleFault::kMalformedMetadata;
  expect("\"diffusion\": {", "\"other\": {", BundleFault::kMissingField, "diffusion", "'diffusion' is missing");
  expect("\"assets\"", "\"parts\"", BundleFault::kMissingField, "assets", "'assets' is missing");
  expect("flow_matching", "flux", kMalformed, "diffusion.prediction_type", "flow, flow_matching)");
  expect("256", "-256", kMalformed, "diffusion.image_size", "is -256");
  expect("[4, 4]", "[4, 0]", kMalformed, "diffusion.rope_axes_dims", "not a list of numbers");
  expect("2000", "\"big\"", kMalformed, "diffusion.rope_theta", "not a number");
  expect("false", "0", kMalformed, "diffusion.guidance_embeds", "not true or false");
  expect("\"diffusion\",", "\"segmenter\",", BundleFault::kKindMismatch, "kind",
         "expected bundle kind diffusion or video-diffusion");
  metadata(replaced(kPipeline, "flux2", "flux3"));
  const auto unknown = PipelineDescriptor::open(dir_);
  EXPECT_FALSE(unknown.configuration().type);
  EXPECT_THAT(unknown.warnings(), ElementsAre(HasSubstr("\"flux3\" is not known")));
}

// One rule for verify() and for an audit.
TEST_F(Pipeline, PartsThatTheKindCannotDoWithout) {
  const auto missing = [&](const std::string& from, const std::string& to) {
    metadata(replaced(kPipeline, from, to));
    std::vector<std::string> fields;
    for (const BundleError& error : PipelineDescriptor::open(dir_).missing_parts()) fields.push_back(error.field());
    return fields;
  };
  fs::remove(dir_ / "VAEDecoder.aimodel");  // else it is found by its name
  EXPECT_THAT(missing("\"text_encoder\"", "\"text_encoder_2\""), IsEmpty());
  EXPECT_THAT(missing("\"text_encoder\"", "\"encoder\""), ElementsAre("assets.text_encoder"));
  EXPECT_THAT(missing("\"vae_decoder\"", "\"vae\""), ElementsAre("assets"));
  EXPECT_THAT(missing("\"diffusion\",", "\"video-diffusion\","), IsEmpty());
}

TEST_F(Pipeline, EveryDeclaredPartIsChecked) {
  metadata(replaced(kPipeline, "\"vae_decoder\"", "\"unet\": \"gone.aimodel\", \"vae_decoder\""));
  expect_fault(BundleFault::kMissingAsset, "assets.unet", "asset \"unet\" not found",
               [&] { PipelineDescriptor::open(dir_).verify(); });
}

TEST_F(Pipeline, AProbedPartLinkedFromOutsideIsRefused) {
  fs::create_directories(root_ / "elsewhere");
  fs::create_directory_symlink(root_ / "elsewhere", dir_ / "VAEDecoder_half.aimodel");
  expect_fault(BundleFault::kOutsideBundle, "assets.vae_decoder_half", "outside the bundle",
               [&] { PipelineDescriptor::open(dir_).verify(); });
}

TEST_F(Pipeline, UnetAndTransformerAreOnePart) {
  metadata(replaced(kPipeline, "\"transformer\": \"T", "\"unet\": \"T"));
  const auto pipeline = PipelineDescriptor::open(dir_);
  EXPECT_EQ(pipeline.require("transformer"), dir_ / "Transformer.aimodel");
  EXPECT_EQ(pipeline.require("unet"), dir_ / "Transformer.aimodel");
  EXPECT_EQ(pipeline.choose_mode(), DiffusionMode::kFull);
}

TEST_F(Pipeline, ModeDependentPartsAreProbed) {
  for (const char* name :
       {"Transformer_512.aimodel", "VAEDecoder_half.aimodelc", "VAEEncoder_half.aimodelc", "VAEEncoder_half.aimodel"})
    folder(name);
  const auto pipeline = PipelineDescriptor::open(dir_);
  EXPECT_EQ(pipeline.find("transformer")->source, ComponentSource::kMetadata);
  EXPECT_EQ(pipeline.find("transformer_512")->source, ComponentSource::kProbed);
  EXPECT_EQ(pipeline.require("vae_encoder_half"), dir_ / "VAEEncoder_half.aimodel");
  EXPECT_EQ(pipeline.find("vae_decoder_half")->path, dir_ / "VAEDecoder_half.aimodelc");
  expect_fault(BundleFault::kCompiledAsset, "assets.vae_decoder_half", "is compiled for an Apple device",
               [&] { pipeline.require("vae_decoder_half"); });
  EXPECT_EQ(pipeline.find("vae_encoder"), nullptr);
  expect_fault(BundleFault::kMissingAsset, "assets.vae_encoder", "required component 'vae_encoder' not found",
               [&] { pipeline.require("vae_encoder"); });
}

TEST_F(Pipeline, TheModeFollowsFromTheFiles) {
  const auto modes = [&](const std::vector<std::string>& names) { return detected(names).modes(); };
  using enum DiffusionMode;
  EXPECT_THAT(modes({"Transformer.aimodel", "VAEDecoder.aimodel"}), ElementsAre(kFull));
  EXPECT_THAT(modes({"Transformer.aimodel", "VAEDecoder_half.aimodel"}), ElementsAre(kTiled));
  EXPECT_THAT(
      modes({"Transformer.aimodel", "VAEDecoder.aimodel", "VAEDecoder_half.aimodel", "Transformer_512.aimodel"}),
      ElementsAre(kFull, kTiled, kHalf));
  const auto all = PipelineDescriptor::open(dir_);
  EXPECT_EQ(all.choose_mode(), kFull);
  EXPECT_EQ(all.choose_mode(kHalf), kHalf);
  const auto half = detected({"Transformer.aimodel", "VAEDecoder.aimodel"});
  expect_fault(BundleFault::kMissingAsset, "assets", "the parts for mode 'half' are not all there",
               [&] { half.choose_mode(kHalf); });
  const auto none = detected({"Transformer.aimodel", "TextEncoder.aimodel"});
  expect_fault(BundleFault::kMissingAsset, "assets", "There are: text_encoder, transformer",
               [&] { none.choose_mode(); });
}

TEST_F(Pipeline, PartsAreDetectedByTheirFileNames) {
  const auto roles = [&](const std::vector<std::string>& names) {
    std::map<std::string, std::string> found;
    const auto pipeline = detected(names);
    for (const auto& component : pipeline.components()) {
      EXPECT_EQ(component.source, ComponentSource::kDetected);
      found[component.role] = component.path.filename();
    }
    return found;
  };
  using Roles = std::map<std::string, std::string>;
  EXPECT_EQ(roles({"text_encoder.aimodel", "text_encoder_2.aimodel", "mmdit.aimodel", "vae_decoder.aimodel"}),
            (Roles{{"text_encoder", "text_encoder.aimodel"},
                   {"text_encoder_2", "text_encoder_2.aimodel"},
                   {"transformer", "mmdit.aimodel"},
                   {"vae_decoder", "vae_decoder.aimodel"}}));
  EXPECT_EQ(roles({"TextEncoder2.aimodel", "Unet.aimodel", "VAEDecoder_half.aimodel", "notes.aimodel"}),
            (Roles{{"text_encoder_2", "TextEncoder2.aimodel"},
                   {"unet", "Unet.aimodel"},
                   {"vae_decoder_half", "VAEDecoder_half.aimodel"}}));
  EXPECT_EQ(roles({"Unet.aimodelc", "Unet.aimodel"}), (Roles{{"unet", "Unet.aimodel"}}));
  EXPECT_EQ(detected({"Unet.aimodel"}).name(), "ä bundle");
  expect_fault(BundleFault::kMissingMetadata, "", "no file is named like a denoiser",
               [&] { detected({"model.aimodel", "VAEDecoder.aimodel"}); });
}

TEST_F(Pipeline, TheLegacyDescriptorIsRefusedWithAdvice) {
  write(dir_ / "pipeline.json", "{}");
  PipelineDescriptor::open(dir_).verify();  // metadata.json counts
  fs::remove(dir_ / "metadata.json");
  expect_fault(BundleFault::kLegacyFormat, "", "legacy pipeline.json format, which is no longer supported",
               [&] { PipelineDescriptor::open(dir_); });
}

TEST_F(Pipeline, ReadsBatchNormStatistics) {
  EXPECT_FALSE(PipelineDescriptor::open(dir_).batch_norm_statistics());
  write_npy(dir_ / "vae_bn_mean.npy", row({1, -2, 3}));
  const auto read = [&] { PipelineDescriptor::open(dir_).verify(); };
  expect_fault(BundleFault::kMissingAsset, "vae_bn_var.npy", "vae_bn_var.npy", read);
  write_npy(dir_ / "vae_bn_var.npy", row({1, 0, 4}));
  const auto statistics = PipelineDescriptor::open(dir_).batch_norm_statistics();
  ASSERT_TRUE(statistics);
  EXPECT_THAT(statistics->mean.values<float>(), ElementsAre(1, -2, 3));
  EXPECT_THAT(statistics->variance.values<float>(), ElementsAre(1, 0, 4));
  read();
  constexpr auto kBad = BundleFault::kMalformedSidecar;
  write_npy(dir_ / "vae_bn_var.npy", row({1, 2}));
  expect_fault(kBad, "vae_bn_var.npy", "the array has shape [2], not [3]", read);
  write_npy(dir_ / "vae_bn_var.npy", row({1, -1, 1}));
  expect_fault(kBad, "vae_bn_var.npy", "the value -1, no variance", read);
  fs::remove(dir_ / "vae_bn_var.npy");
  folder("vae_bn_var.npy");
  expect_fault(kBad, "vae_bn_var.npy", "no regular file", read);
  write_npy(dir_ / "vae_bn_mean.npy", row({}));
  expect_fault(kBad, "vae_bn_mean.npy", "the array has no values", read);
  write_npy(dir_ / "vae_bn_mean.npy", row({1, std::numeric_limits<float>::infinity(), 1}));
  fs::remove(dir_ / "vae_bn_var.npy");
  write_npy(dir_ / "vae_bn_var.npy", row({1, 1, 1}));
  expect_fault(kBad, "vae_bn_mean.npy", "no finite number",
               [&] { PipelineDescriptor::open(dir_).batch_norm_statistics(); });
}

TEST_F(Pipeline, EveryPartOfANumpyHeaderIsChecked) {
  const fs::path file = dir_ / "vae_bn_mean.npy";
  const auto npy = [&](const std::string& dictionary, std::size_t bytes, char version = 1) {
    std::string text = std::string("\x93NUMPY") + version + '\0';
    text += static_cast<char>(dictionary.size() + 1);
    text += std::string(1, '\0') + dictionary + "\n" + std::string(bytes, '\0');
    write(file, text);
    return [file] { read_sidecar(file, DType::kF32, {kDynamic}); };
  };
  constexpr auto kBad = BundleFault::kMalformedSidecar;
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";
  npy(good, 12)();
  const auto expect_bad = [&](const std::string& part, const std::function<void()>& read) {
    expect_fault(kBad, "vae_bn_mean.npy", part, read);
  };
  expect_bad("dtype f64, not f32", npy(replaced(good, "<f4", "<f8"), 24));
  expect_bad("'>f4'", npy(replaced(good, "<f4", ">f4"), 12));
  expect_bad("shape [1x3], not [?]", npy(replaced(good, "(3,)", "(1, 3)"), 12));
  expect_bad("Fortran", npy(replaced(replaced(good, "False", "True"), "(3,)", "(3, 2)"), 24));
  expect_bad("version", npy(good, 12, 9));
  expect_bad("", npy(good, 11));
  expect_bad("", npy(good, 13));
  expect_bad("", npy(replaced(good, "(3,)", "(9223372036854775807, 9223372036854775807)"), 12));
  write(file, "NUMPY");
  expect_bad("magic", [&] { read_sidecar(file, DType::kF32, {kDynamic}); });
}

}  // namespace
}  // namespace coreai
