// Kinds llm and vlm: the order of the checks, vision, functions of roles, declared states, tokenizers.
#include "coreai/bundle/language_bundle.h"

#include "bundle/bundle_folder.h"
#include "coreai/text/chat_template.h"
#include "coreai/text/tokenizer.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr const char* kVlm = R"({"metadata_version": "0.2", "kind": "vlm", "name": "v",
  "assets": {"main": "v.aimodel", "embedding": "e.aimodel", "vision": "i.aimodel"},
  "language": {"tokenizer": "org/v", "vocab_size": 384, "max_context_length": 160},
  "vision": {"image_size": 64, "patch_size": 16, "image_token_count": 4, "image_token_id": 381}})";

class Language : public test::BundleFolder {
 protected:
  void SetUp() override {
    BundleFolder::SetUp();
    for (const char* name : {"v.aimodel", "e.aimodel", "i.aimodel"}) folder(name);
    write(dir_ / "tokenizer/tokenizer.json", "{}");
    metadata(kVlm);
  }
  // The bundle of kind llm with more members in its language block.
  LanguageBundle llm(const std::string& members) {
    metadata(R"({"metadata_version": "0.2", "kind": "llm", "name": "l", "assets": {"main": "v.aimodel"},
      "language": {"tokenizer": "t", "vocab_size": 8, "max_context_length": 8)" +
             members + "}}");
    return LanguageBundle::open(dir_);
  }
  void expect(const std::string& from, const std::string& to, BundleFault fault, const std::string& field,
              const std::string& part) {
    metadata(replaced(kVlm, from, to));
    expect_fault(fault, field, part, [&] { LanguageBundle::open(dir_).verify(); });
  }
};

TEST_F(Language, ReadsTheVisionBlockWithItsDefaults) {
  const auto bundle = LanguageBundle::open(dir_);
  EXPECT_EQ(bundle.kind(), BundleKind::kVlm);
  ASSERT_TRUE(bundle.vision());
  EXPECT_EQ(bundle.vision()->image_size, 64);
  EXPECT_EQ(bundle.vision()->image_token_id, 381);
  EXPECT_EQ(bundle.vision()->image_mean, VisionConfig::kClipMean);
  EXPECT_EQ(bundle.vision()->rescale_factor, 1.0);
  EXPECT_EQ(bundle.vision()->image_strategy, ImageStrategy::kStretch);
  EXPECT_FALSE(bundle.vision()->include_image_info);
  EXPECT_FALSE(bundle.vision()->video);
  EXPECT_THAT(bundle.warnings(), IsEmpty());
  bundle.verify();
}

TEST_F(Language, ReadsEveryFieldOfTheVisionBlock) {
  metadata(replaced(kVlm, "381", R"(381, "image_mean": [0.5, 0.25, 0], "image_std": [1, 2, 3.5],
      "rescale_factor": 2, "image_strategy": "center_crop", "include_image_info": true, "max_video_frames": 8,
      "tokens_per_frame": 4, "temporal_patch_size": 2)"));
  const auto bundle = LanguageBundle::open(dir_);
  const VisionConfig& vision = *bundle.vision();
  EXPECT_THAT(vision.image_mean, ElementsAre(0.5, 0.25, 0.0));
  EXPECT_THAT(vision.image_std, ElementsAre(1.0, 2.0, 3.5));
  EXPECT_EQ(vision.rescale_factor, 2.0);
  EXPECT_EQ(vision.image_strategy, ImageStrategy::kCenterCrop);
  EXPECT_TRUE(vision.include_image_info);
  ASSERT_TRUE(vision.video);
  EXPECT_EQ(vision.video->max_frames, 8);
  EXPECT_EQ(vision.video->tokens_per_frame, 4);
  EXPECT_EQ(vision.video->temporal_patch_size, 2);
}

TEST_F(Language, TheChecksComeInTheReferencesOrder) {
  constexpr auto kMissing = BundleFault::kMissingField;
  const auto open = [&] { LanguageBundle::open(dir_); };
  std::string text = R"({"metadata_version": "0.2", "kind": "segmenter", "name": "v"})";
  metadata(text);
  expect_fault(BundleFault::kKindMismatch, "kind", "expected bundle kind llm or vlm, got segmenter", open);
  metadata(text = replaced(text, "segmenter", "vlm"));
  expect_fault(kMissing, "assets.main", "required field 'assets.main' is missing", open);
  metadata(text = replaced(text, "}", R"(, "assets": {"main": "v.aimodel", "vision": "i.aimodel"}})"));
  expect_fault(kMissing, "language", "required field 'language' is missing", open);
  metadata(text = replaced(text, "}}", R"(}, "language": {}})"));
  expect_fault(kMissing, "language.tokenizer", "required field 'language.tokenizer' is missing", open);
  metadata(text = replaced(text, "{}}", R"({"tokenizer": "t", "vocab_size": 8, "max_context_length": 8}})"));
  expect_fault(kMissing, "vision", "required field 'vision' is missing", open);
  metadata(replaced(text, "8}}", R"(8}, "vision": {}})"));
  expect_fault(kMissing, "vision.image_size", "required field 'vision.image_size' is missing", open);
}

TEST_F(Language, AVisionBlockInsideLanguageIsReadWithAWarning) {
  std::string text = replaced(kVlm, "160}", R"(160, "vision": {"image_size": 32, "patch_size": 16,
      "image_token_count": 4, "image_token_id": 7}})");
  metadata(text);
  const auto both = LanguageBundle::open(dir_);
  EXPECT_EQ(both.vision()->image_size, 64);
  ASSERT_THAT(both.warnings(), SizeIs(1));
  EXPECT_THAT(both.warnings()[0], HasSubstr("'language.vision' is not read"));
  metadata(replaced(text, "\"vision\": {\"image_size\": 64", "\"other\": {\"image_size\": 64"));
  const auto nested = LanguageBundle::open(dir_);
  EXPECT_EQ(nested.vision()->image_size, 32);
  ASSERT_THAT(nested.warnings(), SizeIs(1));
  EXPECT_THAT(nested.warnings()[0], HasSubstr("belongs beside it, at the top level"));
  EXPECT_THAT(llm(R"(, "vision": {})").warnings(), ElementsAre(HasSubstr("kind vlm has one")));
}

TEST_F(Language, BadVisionBlocksAreNamed) {
  constexpr auto kMalformed = BundleFault::kMalformedMetadata;
  expect("64,", "0,", kMalformed, "vision.image_size", "'vision.image_size' is 0, not an integer from 1 to 2^31-1");
  expect("64,", "64.5,", kMalformed, "vision.image_size", "is 64.5");
  expect("64,", "8,", BundleFault::kInconsistent, "vision.patch_size", "is 16, larger than the image of 8 pixels");
  expect("381", "-1", kMalformed, "vision.image_token_id", "not an integer from 0");
  expect("381", R"(381, "image_mean": [0.5, 0.5])", kMalformed, "vision.image_mean", "not a list of 3 numbers");
  expect("381", R"(381, "image_mean": [0.5, 0.5, "x"])", kMalformed, "vision.image_mean", "not a list of 3 numbers");
  expect("381", R"(381, "image_std": [1, 0, 1])", kMalformed, "vision.image_std", "pixels are divided by it");
  expect("381", R"(381, "image_strategy": "fill")", kMalformed, "vision.image_strategy", "stretch, center_crop, pad");
  expect("381", R"(381, "include_image_info": 1)", kMalformed, "vision.include_image_info", "not true or false");
  expect("381", R"(381, "max_video_frames": 8)", BundleFault::kMissingField, "vision.tokens_per_frame", "is missing");
}

TEST_F(Language, AVlmWithoutItsVisionPartIsAnExportInProgress) {
  const std::string asset = R"(, "vision": "i.aimodel")";
  expect(asset, "", BundleFault::kExportInProgress, "assets.vision", "the bundle has no vision part yet");
  LanguageBundle::open(dir_);  // what is there can be read
  metadata(replaced(replaced(kVlm, asset, ""), "\"vision\": {", "\"other\": {"));
  expect_fault(BundleFault::kExportInProgress, "vision", "the bundle has no vision part yet",
               [&] { LanguageBundle::open(dir_); });
  expect(R"("embedding": "e.aimodel", )", "", BundleFault::kMissingField, "assets.embedding", "is missing");
}

TEST_F(Language, TheFunctionMapHoldsForEveryRole) {
  const std::vector<std::string> usual{"main"};
  const std::vector<std::string> ios{"load_embeddings", "gather_embeddings_8", "extend_256_8", "extend_512_8",
                                     "prompt_opt_256_64"};
  const auto by_default = llm(R"(, "function_map": {"main": ["main"]})");
  EXPECT_THAT(by_default.functions("main", usual), ElementsAre("main"));
  EXPECT_THAT(by_default.functions("main", ios), IsEmpty());  // exporters write that entry for these, too
  EXPECT_THAT(by_default.functions("extend", ios), ElementsAre("extend_256_8", "extend_512_8"));
  EXPECT_THAT(by_default.functions("load_embeddings", ios), ElementsAre("load_embeddings"));
  EXPECT_THAT(by_default.functions("prefill", usual), IsEmpty());

  const std::vector<std::string> renamed{"decode", "grow_a", "grow_b", "table", "extend_1_1"};
  const auto mapped =
      llm(R"(, "function_map": {"main": ["decode"], "extend": ["grow_b", "grow_a"], "load_embeddings": ["table"]})");
  EXPECT_THAT(mapped.functions("main", renamed), ElementsAre("decode"));
  EXPECT_THAT(mapped.functions("extend", renamed), ElementsAre("grow_b", "grow_a"));
  EXPECT_THAT(mapped.functions("load_embeddings", renamed), ElementsAre("table"));
  EXPECT_EQ(mapped.function("load_embeddings"), "table");
  expect_fault(BundleFault::kMissingFunction, "language.function_map.extend",
               "names the function \"grow_b\", which the asset does not have",
               [&] { mapped.functions("extend", ios); });
}

TEST_F(Language, DeclaredStatesAreReadAndChecked) {
  const auto bundle = llm(R"(, "states": {"keyCache": "kv_cache", "window": "sliding_cache", "conv": "fixed"})");
  const auto& states = bundle.language().states;
  ASSERT_THAT(states, SizeIs(3));
  EXPECT_EQ(states[0].name, "keyCache");
  EXPECT_EQ(states[0].kind, StateKind::kKvCache);
  EXPECT_EQ(states[1].kind, StateKind::kSlidingCache);
  EXPECT_EQ(states[2].kind, StateKind::kFixed);

  FunctionDescriptor function;
  function.name = "main";
  for (const char* name : {"conv", "keyCache", "window"})
    function.states.push_back({.name = name, .type_name = "tensor", .shape = {1, 2, 8, 4}});
  bundle.check_states(function);
  function.states[1].shape = {8, 4};
  expect_fault(BundleFault::kInconsistent, "language.states.keyCache", "has no axis of positions",
               [&] { bundle.check_states(function); });
  function.states[1].shape = {1, 2, kDynamic, 4};
  function.states[2].shape = {1, 2, kDynamic, 4};
  expect_fault(BundleFault::kInconsistent, "language.states.window", "has an unknown extent",
               [&] { bundle.check_states(function); });
  function.states[2].shape = {1, 2, 8, 4};
  function.states.push_back({.name = "other", .type_name = "", .shape = {}});
  expect_fault(BundleFault::kInconsistent, "language.states", "leaves out \"other\" of function 'main'",
               [&] { bundle.check_states(function); });
  function.states.erase(function.states.begin());
  expect_fault(BundleFault::kMissingFunction, "language.states.conv",
               "declares \"conv\", which function 'main' does not have", [&] { bundle.check_states(function); });
  llm("").check_states(function);  // nothing declared, nothing to check

  expect_fault(BundleFault::kMalformedMetadata, "language.states.a", "(known: kv_cache, sliding_cache, fixed)",
               [&] { llm(R"(, "states": {"a": "cache"})"); });
  expect_fault(BundleFault::kMalformedMetadata, "language.states", "not an object",
               [&] { llm(R"(, "states": ["a"])"); });
}

TEST_F(Language, TheTokenizerIsFoundWhateverEmbeddedTokenizerSays) {
  EXPECT_EQ(llm(R"(, "embedded_tokenizer": false)").tokenizer_directory(), dir_ / "tokenizer");
  EXPECT_EQ(llm(R"(, "embedded_tokenizer": true)").tokenizer_directory(), dir_ / "tokenizer");
  fs::remove_all(dir_ / "tokenizer");
  expect_fault(BundleFault::kMissingTokenizer, "language.tokenizer", "nothing is ever downloaded at run time",
               [&] { llm(R"(, "embedded_tokenizer": false)").tokenizer_directory(); });
  write(dir_ / "tokenizer", "a file");
  expect_fault(BundleFault::kNotAFolder, "tokenizer", "'tokenizer' is a file, not a folder",
               [&] { llm("").tokenizer_directory(); });
}

TEST_F(Language, BrokenTokenizersAreTypedErrors) {
  const fs::path tokenizer = LanguageBundle::open(dir_).tokenizer_directory();
  const std::string whole = test::text_of(fs::path(COREAI_FIXTURE_DIR) / "tiny_llm/q4/tokenizer/tokenizer.json");
  ASSERT_GT(whole.size(), 1000U);
  write(tokenizer / "tokenizer.json", whole);
  EXPECT_EQ(Tokenizer::from_directory(tokenizer).vocab_size(), 512U);
  for (const std::size_t kept : {std::size_t{0}, std::size_t{1}, whole.size() / 2, whole.size() - 2}) {
    write(tokenizer / "tokenizer.json", whole.substr(0, kept));
    EXPECT_THROW(Tokenizer::from_directory(tokenizer), MalformedError) << kept;
  }
  fs::remove(tokenizer / "tokenizer.json");  // an empty folder
  expect_fault(BundleFault::kMissingTokenizer, "language.tokenizer", "has no tokenizer",
               [&] { LanguageBundle::open(dir_).tokenizer_directory(); });
}

TEST_F(Language, TheTemplateFileBesideTheTokenizerWins) {
  const fs::path tokenizer = LanguageBundle::open(dir_).tokenizer_directory();
  const auto rendered = [&] { return ChatTemplate::from_directory(tokenizer)->render({{"user", "x"}}); };
  EXPECT_FALSE(ChatTemplate::from_directory(tokenizer));
  write(tokenizer / "tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "named"}, {"name": "tool_use", "template": "tools"}]})");
  EXPECT_EQ(rendered(), "named");
  write(tokenizer / "tokenizer_config.json", R"({"chat_template": "text"})");
  EXPECT_EQ(rendered(), "text");
  write(tokenizer / "chat_template.jinja", "file");
  EXPECT_EQ(rendered(), "file");
}

}  // namespace
}  // namespace coreai
