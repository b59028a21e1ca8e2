// Any path as the type of its kind; segmenters and bare assets by their functions.
#include "coreai/bundle/open_bundle.h"

#include "bundle/bundle_folder.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

ValueDescriptor value(const std::string& name, const Shape& shape = {}) {
  return {.name = name, .type_name = "tensor<" + shape.to_string() + ">", .dtype = DType::kF32, .shape = shape};
}
FunctionDescriptor function(const std::string& name, std::vector<ValueDescriptor> inputs = {},
                            std::vector<ValueDescriptor> outputs = {}) {
  return {.name = name, .inputs = std::move(inputs), .states = {}, .outputs = std::move(outputs)};
}

class AnyBundles : public test::BundleFolder {};

TEST_F(AnyBundles, VideoSegmentersKeepTheirBlocks) {
  const std::string text = R"({"metadata_version": "0.2", "kind": "video_segmenter", "name": "v",
    "assets": {"main": "v.aimodel"}, "runtime": {"slots": 16, "grid": [24, 24]}, "tracking": {"threshold": 0.5}})";
  metadata(text);
  folder("v.aimodel");
  const AnyBundle opened = open_bundle(dir_);
  const auto& bundle = std::get<SegmenterBundle>(opened);
  EXPECT_THAT(bundle.runtime(), ElementsAre(Pair("grid", "[24,24]"), Pair("slots", "16")));
  EXPECT_THAT(bundle.tracking(), ElementsAre(Pair("threshold", "0.5")));
  const auto description = describe(opened);
  EXPECT_EQ(description.kind, "video_segmenter");
  EXPECT_THAT(description.facts, Contains(Pair("tracking threshold", "0.5")));
  EXPECT_THAT(description.assets, ElementsAre(Pair("main", dir_ / "v.aimodel")));
  EXPECT_THAT(problems(opened), IsEmpty());
  metadata(replaced(text, "\"tracking\"", "\"trackers\""));
  expect_fault(BundleFault::kMissingField, "tracking", "'tracking' is missing", [&] { open_bundle(dir_); });
  metadata(replaced(text, R"({"threshold": 0.5})", "[]"));
  expect_fault(BundleFault::kMalformedMetadata, "tracking", "'tracking' is [], not an object",
               [&] { open_bundle(dir_); });
  metadata(replaced(text, "\"main\"", "\"model\""));
  expect_fault(BundleFault::kMissingField, "assets.main", "is missing", [&] { open_bundle(dir_); });
}

TEST_F(AnyBundles, AFolderWithoutMetadataIsWhatItsFilesSay) {
  folder("encoder.aimodel");
  folder("decoder.aimodel");
  EXPECT_EQ(describe(open_bundle(dir_)).kind, "speech_recognizer");
  EXPECT_EQ(model_bundle(open_bundle(dir_)), nullptr);
  fs::remove_all(dir_);
  folder("Unet.aimodel");
  expect_fault(BundleFault::kMissingMetadata, "", "metadata.json not found", [&] { open_bundle(dir_); });
  folder("VAEDecoder.aimodel");
  const auto description = describe(open_bundle(dir_));
  EXPECT_EQ(description.kind, "diffusion");
  EXPECT_EQ(description.name, "ä bundle");
  EXPECT_THAT(description.facts, Contains(Pair("modes", "full")));
  write(dir_ / "pipeline.json", "{}");
  expect_fault(BundleFault::kLegacyFormat, "", "pipeline.json", [&] { open_bundle(dir_); });
  fs::remove_all(dir_);
  folder("nothing");
  expect_fault(BundleFault::kMissingMetadata, "", "metadata.json not found", [&] { open_bundle(dir_); });
}

TEST_F(AnyBundles, TheAssetOfABareFolderIsNamed) {
  folder("some model.aimodel");
  try {
    open_bundle(dir_);
    ADD_FAILURE() << "accepted";
  } catch (const BundleError& e) {
    EXPECT_EQ(e.fault(), BundleFault::kMissingMetadata);
    EXPECT_THAT(e.next_step(), testing::HasSubstr("some model.aimodel"));
  }
}

TEST_F(AnyBundles, PathsThatAreNoAssets) {
  expect_fault(BundleFault::kMissingAsset, "", "does not exist", [&] { open_bundle(dir_ / "x.aimodel"); });
  write(dir_ / "x.aimodel", "bytes");
  expect_fault(BundleFault::kNotAFolder, "", "a file, not the folder", [&] { open_bundle(dir_ / "x.aimodel/"); });
  folder("x.aimodelc");
  expect_fault(BundleFault::kCompiledAsset, "", "compiled for an Apple device",
               [&] { open_bundle(dir_ / "x.aimodelc"); });
  folder("empty.aimodel");
  EXPECT_THROW(open_bundle(dir_ / "empty.aimodel"), Error);
}

TEST_F(AnyBundles, LinksAndWarningsAreDescribed) {
  metadata(R"({"metadata_version": "0.2", "kind": "llm", "name": "l", "assets": {"main": "l.aimodel"}, "vision": {},
    "language": {"tokenizer": "t", "vocab_size": 8, "max_context_length": 8, "states": {"k": "fixed"}}})");
  fs::create_symlink("gone", dir_ / "link");
  const AnyBundle opened = open_bundle(dir_);
  const auto description = describe(opened);
  EXPECT_THAT(description.symlinks, SizeIs(1));
  EXPECT_THAT(description.warnings, SizeIs(1));
  EXPECT_THAT(description.facts, Contains(Pair("state k", "fixed")));
  ASSERT_THAT(problems(opened), SizeIs(1));
  EXPECT_EQ(problems(opened)[0].fault(), BundleFault::kMissingAsset);
}

TEST(SegmenterForms, FollowFromTheFunctions) {
  using enum SegmenterForm;
  const auto form = [](const std::vector<FunctionDescriptor>& functions) { return segmenter_form(functions); };
  EXPECT_EQ(form({function("main", {value("pixel_values"), value("input_ids")})}), kText);
  EXPECT_EQ(form({function("main", {value("batched_images"), value("batched_points"), value("batched_point_labels")})}),
            kPoints);
  std::vector<FunctionDescriptor> split{function("image_encode"), function("text_encode"), function("detect")};
  EXPECT_EQ(form(split), kSplit);
  split.push_back(function("tracker_step"));
  EXPECT_EQ(form(split), kVideo);
  EXPECT_EQ(form({function("main", {value("input_ids")})}), kUnknown);
  EXPECT_EQ(form({function("main", {value("pixel_values"), value("text_features")})}), kUnknown);
  EXPECT_EQ(form({function("detect")}), kUnknown);
}

TEST(BareAssets, ADetectorGivesBoxesAndClassesForOneImage) {
  const auto kind = [](std::vector<ValueDescriptor> inputs, std::vector<ValueDescriptor> outputs) {
    const std::vector<FunctionDescriptor> functions{function("main", std::move(inputs), std::move(outputs))};
    return bare_asset_kind_name(bare_asset_kind(functions));
  };
  const auto image = value("pixel_values", {1, 3, kDynamic, kDynamic});
  const auto logits = value("logits", {1, 100, 92}), boxes = value("pred_boxes", {1, 100, 4});
  EXPECT_EQ(kind({image}, {logits, boxes}), "detector");
  EXPECT_EQ(kind({value("Image", {1, 3, 8, 8})}, {boxes, value("x"), logits}), "detector");
  EXPECT_EQ(kind({image}, {logits}), "unknown");
  EXPECT_EQ(kind({image}, {boxes}), "unknown");
  EXPECT_EQ(kind({image, value("input_ids")}, {logits, boxes}), "unknown");
  EXPECT_EQ(kind({image}, {value("presence_logits", {1, 100, 1}), boxes}), "unknown");
  EXPECT_EQ(kind({image}, {logits, boxes, value("pred_masks", {1, 100, 8, 8})}), "unknown");
  EXPECT_EQ(kind({image}, {logits, value("pred_boxes", {1, 99, 4})}), "unknown");
  EXPECT_EQ(kind({image}, {logits, value("pred_boxes", {1, 100, 5})}), "unknown");
  EXPECT_EQ(kind({value("pixel_values", {1, 1, 8, 8})}, {logits, boxes}), "unknown");
  EXPECT_EQ(kind({value("x", {1, 3, 8, 8})}, {logits, boxes}), "unknown");
}

TEST(BareAssets, ASignatureIsOneLine) {
  FunctionDescriptor f = function("main", {value("a", {1}), value("b", {2})}, {value("c", {3})});
  EXPECT_EQ(signature_text(f), "main(a: tensor<1>, b: tensor<2>) -> (c: tensor<3>)");
  f.states.push_back(value("s", {4}));
  EXPECT_EQ(signature_text(f), "main(a: tensor<1>, b: tensor<2>) [s: tensor<4>] -> (c: tensor<3>)");
}

}  // namespace
}  // namespace coreai
