// Kind speech_recognizer: Whisper and Parakeet, the streaming geometry, the older folder without metadata.
#include "coreai/bundle/speech_bundle.h"

#include "bundle/bundle_folder.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// 126 + 12 + 12 encoder frames of eight mel frames each: the reference's own window of 12 seconds.
constexpr const char* kParakeet = R"({"metadata_version": "0.2", "kind": "speech_recognizer", "name": "p",
  "assets": {"encoder": "e.aimodel", "decoder_step": "d.aimodel", "joint": "j.aimodel"},
  "config": {"architecture": "parakeet_tdt", "vocab_size": 64, "blank_token_id": 63, "decoder_hidden_size": 24,
             "num_decoder_layers": 2, "max_symbols_per_step": 10, "durations": [0, 1, 2, 3, 4],
             "encoder": {"num_mel_bins": 16, "subsampling_factor": 8}},
  "streaming": {"left_context_encoder_frames": 126, "chunk_encoder_frames": 12, "right_context_encoder_frames": 12,
                "window_mel_frames": 1200, "sample_rate": 16000, "hop_length": 160, "subsampling_factor": 8}})";

class Speech : public test::BundleFolder {
 protected:
  void SetUp() override {
    BundleFolder::SetUp();
    for (const char* name : {"e.aimodel", "d.aimodel", "j.aimodel"}) folder(name);
    metadata(kParakeet);
  }
  void expect(const std::string& from, const std::string& to, BundleFault fault, const std::string& field,
              const std::string& part) {
    metadata(replaced(kParakeet, from, to));
    expect_fault(fault, field, part, [&] { SpeechBundle::open(dir_).verify(); });
  }
};

TEST_F(Speech, ReadsParakeet) {
  const auto bundle = SpeechBundle::open(dir_);
  EXPECT_EQ(bundle.architecture(), SpeechArchitecture::kParakeetTdt);
  EXPECT_THAT(bundle.roles(), ElementsAre("encoder", "decoder_step", "joint"));
  ASSERT_TRUE(bundle.parakeet());
  EXPECT_EQ(bundle.parakeet()->blank_token_id, 63);
  EXPECT_THAT(bundle.parakeet()->durations, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(bundle.parakeet()->subsampling_factor, 8);
  ASSERT_TRUE(bundle.streaming());
  EXPECT_EQ(bundle.streaming()->window_encoder_frames(), 150);
  EXPECT_EQ(bundle.require_model("joint"), dir_ / "j.aimodel");
  bundle.verify();
}

TEST_F(Speech, EncoderFramesFollowTheSubsampling) {
  EXPECT_EQ(encoder_frame_count(2101, 8), 263);
  EXPECT_EQ(encoder_frame_count(1200, 8), 150);
  EXPECT_EQ(encoder_frame_count(1201, 8), 151);
  EXPECT_EQ(encoder_frame_count(7, 1), 7);
  EXPECT_EQ(encoder_frame_count(1, 8), 1);
}

TEST_F(Speech, AStreamingBlockWhosePiecesDisagreeIsRefused) {
  constexpr auto kBad = BundleFault::kInconsistent;
  expect("126", "11", kBad, "streaming.left_context_encoder_frames", "11 encoder frames is shorter than a chunk of 12");
  expect("\"right_context_encoder_frames\": 12", "\"right_context_encoder_frames\": 3", kBad,
         "streaming.right_context_encoder_frames", "shorter than the longest duration, 4");
  expect("1200", "1208", kBad, "streaming.window_mel_frames", "1208 mel frames gives 151 encoder frames");
  expect("\"hop_length\": 160, \"subsampling_factor\": 8", "\"hop_length\": 160, \"subsampling_factor\": 4", kBad,
         "streaming.subsampling_factor", "'streaming.subsampling_factor' is 4");
  expect("1200", "0", BundleFault::kMalformedMetadata, "streaming.window_mel_frames", "is 0, not an integer");
  expect("16000", "null", BundleFault::kMissingField, "streaming.sample_rate", "is missing");
  expect("\"hop_length\": 160, \"subsampling_factor\": 8", "\"hop_length\": 160, \"subsampling_factor\": 6",
         BundleFault::kMalformedMetadata, "streaming.subsampling_factor", "is 6, not a power of two");
  metadata(replaced(kParakeet, "\"streaming\"", "\"unused\""));
  EXPECT_FALSE(SpeechBundle::open(dir_).streaming());
}

TEST_F(Speech, BadConfigurationsAreNamed) {
  constexpr auto kMalformed = BundleFault::kMalformedMetadata;
  expect("parakeet_tdt", "conformer", kMalformed, "config.architecture", "(known: whisper, parakeet_tdt)");
  expect("\"joint\": \"j.aimodel\"", "\"j\": \"j.aimodel\"", BundleFault::kMissingField, "assets.joint", "is missing");
  expect("\"blank_token_id\": 63", "\"blank_token_id\": 64", BundleFault::kInconsistent, "config.blank_token_id",
         "the vocabulary has 64 tokens");
  expect("[0, 1, 2, 3, 4]", "[0]", BundleFault::kInconsistent, "config.durations", "no step forward");
  expect("[0, 1, 2, 3, 4]", "[]", BundleFault::kInconsistent, "config.durations", "no step forward");
  expect("[0, 1, 2, 3, 4]", "[-1]", kMalformed, "config.durations", "not a list of numbers");
  expect("[0, 1, 2, 3, 4]", "null", BundleFault::kMissingField, "config.durations", "is missing");
  expect("\"num_mel_bins\": 16", "\"bins\": 16", BundleFault::kMissingField, "config.encoder.num_mel_bins", "missing");
  expect("\"speech_recognizer\"", "\"llm\"", BundleFault::kKindMismatch, "kind",
         "expected bundle kind speech_recognizer, got llm");
  expect("j.aimodel", "gone.aimodel", BundleFault::kMissingAsset, "assets.joint", "asset \"joint\" not found");
}

TEST_F(Speech, WhisperIsTheArchitectureWithoutAnother) {
  const std::string whisper = R"({"metadata_version": "0.2", "kind": "speech_recognizer", "name": "w",
    "assets": {"encoder": "e.aimodel", "decoder": "d.aimodel"}, "streaming": {}})";
  metadata(whisper);
  const auto split = SpeechBundle::open(dir_);
  EXPECT_EQ(split.architecture(), SpeechArchitecture::kWhisper);
  EXPECT_THAT(split.roles(), ElementsAre("encoder", "decoder"));
  EXPECT_THAT(split.warnings(), ElementsAre(HasSubstr("whisper does not stream")));
  split.verify();
  metadata(replaced(whisper, R"("encoder": "e.aimodel", "decoder": "d.aimodel")", R"("main": "e.aimodel")"));
  EXPECT_THAT(SpeechBundle::open(dir_).roles(), ElementsAre("main"));
  metadata(replaced(whisper, R"(, "decoder": "d.aimodel")", ""));
  expect_fault(BundleFault::kMissingField, "assets.decoder", "is missing", [&] { SpeechBundle::open(dir_); });
}

TEST_F(Speech, TheOlderFolderNeedsBothAssets) {
  fs::remove(dir_ / "metadata.json");
  expect_fault(BundleFault::kMissingMetadata, "", "metadata.json not found", [&] { SpeechBundle::open(dir_); });
  folder("encoder.aimodel");
  expect_fault(BundleFault::kMissingAsset, "assets.decoder", "asset \"decoder\" not found",
               [&] { SpeechBundle::open(dir_); });
  folder("decoder.aimodel");
  const auto bundle = SpeechBundle::open(dir_ / "");
  EXPECT_FALSE(bundle.bundle());
  EXPECT_EQ(bundle.name(), "ä bundle");
  EXPECT_THAT(bundle.roles(), ElementsAre("encoder", "decoder"));
  EXPECT_EQ(bundle.require_model("encoder").filename(), "encoder.aimodel");
  bundle.verify();
  expect_fault(BundleFault::kMissingTokenizer, "tokenizer", "nothing is ever downloaded",
               [&] { bundle.tokenizer_directory(); });
  write(dir_ / "tokenizer.json", "{}");
  EXPECT_EQ(bundle.tokenizer_directory(), dir_ / "");
  fs::remove(dir_ / "decoder.aimodel");
  fs::create_directories(root_ / "elsewhere");
  fs::create_directory_symlink(root_ / "elsewhere", dir_ / "decoder.aimodel");
  expect_fault(BundleFault::kOutsideBundle, "assets.decoder", "outside the bundle",
               [&] { SpeechBundle::open(dir_).verify(); });
  fs::remove(dir_ / "decoder.aimodel");
  write(dir_ / "decoder.aimodel", "a file");
  expect_fault(BundleFault::kNotAFolder, "assets.decoder", "is a file, not a folder",
               [&] { SpeechBundle::open(dir_).verify(); });
}

TEST_F(Speech, TheTokenizerLiesInTheProcessorFolder) {
  write(dir_ / "tokenizer.json", "{}");
  write(dir_ / "processor/tokenizer.json", "{}");
  EXPECT_EQ(SpeechBundle::open(dir_).tokenizer_directory(), dir_ / "processor");
}

TEST_F(Speech, TheDecodersPrefixComesFromTheGenerationConfig) {
  const WhisperGeneration usual;
  const auto read = [&] { return SpeechBundle::open(dir_).whisper_generation(); };
  EXPECT_THAT(read().prefix, ElementsAre(50258, 50259, 50360, 50364));
  EXPECT_EQ(read().end_token, 50257);
  const fs::path file = dir_ / "generation_config.json";
  write(file, R"({"forced_decoder_ids": [[2, 9], [1, 8], [3, null], [0, 7]], "eos_token_id": 5})");
  EXPECT_THAT(read().prefix, ElementsAre(7, 8, 9));
  EXPECT_EQ(read().end_token, 5);
  for (const char* list : {"[[1]]", "[[\"a\", 1]]", "[[1, -2]]", "{}", "null", "[]", "[1, 2]", "[[1, 1e3]]"}) {
    write(file, std::string(R"({"forced_decoder_ids": )") + list + "}");
    EXPECT_EQ(read().prefix, usual.prefix) << list;
  }
  write(file, "{");
  expect_fault(BundleFault::kMalformedSidecar, "", "generation_config.json is not JSON", read);
}

}  // namespace
}  // namespace coreai
