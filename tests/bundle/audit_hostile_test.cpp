// Any value in any place of a bundle's JSON files: the audit ends with findings, or says that there is no bundle.
#include "bundle/broken_bundle.h"
#include "coreai/base/error.h"

namespace coreai::test {
namespace {

// Pointers to every member and element of a value.
void collect(const Json& value, const Json::json_pointer& at, std::vector<Json::json_pointer>& places) {
  if (!at.empty()) places.push_back(at);
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) collect(member, at / key, places);
  } else if (value.is_array() && !value.empty()) {
    collect(value[0], at / std::size_t{0}, places);
  }
}

const std::vector<Json>& hostile_values() {
  static const std::vector<Json> kValues = {nullptr,
                                            -1,
                                            0,
                                            1e300,
                                            std::numeric_limits<std::int64_t>::min(),
                                            std::numeric_limits<std::int64_t>::max(),
                                            std::numeric_limits<std::uint64_t>::max(),
                                            2147483647,
                                            "",
                                            "../../etc",
                                            ".",
                                            std::string("a\0b", 3),
                                            std::string(5000, 'x'),
                                            Json::array({nullptr, 1, "x"}),
                                            Json{{"", Json::array({Json::object()})}}};
  return kValues;
}

// Puts every hostile value into every place of `file`.
void audit_with_every_value(const std::string& source, const std::string& file) {
  const Scratch scratch;
  const fs::path bundle = copy_bundle(scratch, source);
  const Json original = Json::parse(read_text_file(bundle / file));
  std::vector<Json::json_pointer> places;
  collect(original, Json::json_pointer(), places);
  ASSERT_FALSE(places.empty());
  for (const Json::json_pointer& place : places) {
    for (const Json& value : hostile_values()) {
      Json changed = original;
      changed[place] = value;
      write_file(bundle / file, changed.dump());
      try {
        const AuditReport report = audit_bundle(bundle);
        for (const Finding& finding : report.findings) {
          EXPECT_FALSE(finding.sentence.empty());
          EXPECT_LT(finding.sentence.size(), 2000u) << finding.id();
        }
      } catch (const std::exception& error) {
        ADD_FAILURE() << source << "/" << file << place.to_string() << " = " << value.dump().substr(0, 40) << ": "
                      << error.what();
      }
    }
  }
}

TEST(AuditHostile, MetadataOfALanguageModel) {
  audit_with_every_value("tiny_llm/q4", "metadata.json");
}
TEST(AuditHostile, MetadataOfAStaticExport) {
  audit_with_every_value("genuine/mistral_ios_none_b3", "metadata.json");
}
TEST(AuditHostile, MetadataOfAVisionModel) {
  audit_with_every_value("genuine/qwen3_vl_b3", "metadata.json");
}
TEST(AuditHostile, MetadataOfASpeechModel) {
  audit_with_every_value("genuine/parakeet_dyn", "metadata.json");
}
TEST(AuditHostile, TheTokenizersConfiguration) {
  audit_with_every_value("genuine/qwen3_4bit_b3", "tokenizer/tokenizer_config.json");
}
TEST(AuditHostile, TheAssetsMetadata) {
  audit_with_every_value("tiny_llm/q4", "tiny-llama-random-q4.aimodel/metadata.json");
}

// A file cut at any place.
TEST(AuditHostile, FilesCutOff) {
  const Scratch scratch;
  const fs::path bundle = copy_bundle(scratch, "tiny_llm/q4");
  for (const char* name : {"metadata.json", "tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json",
                           "tiny-llama-random-q4.aimodel/main.mlirb", "tiny-llama-random-q4.aimodel/main.hash"}) {
    const std::string bytes = read_text_file(bundle / name);
    for (std::size_t size = 0; size < bytes.size(); size += 1 + bytes.size() / 23) {
      write_file(bundle / name, std::string_view(bytes).substr(0, size));
      EXPECT_FALSE(audit_bundle(bundle).clean()) << name << " cut to " << size;
    }
    write_file(bundle / name, bytes);
  }
  EXPECT_TRUE(audit_bundle(bundle).clean());
}

}  // namespace
}  // namespace coreai::test
