// Every way in which a bundle can be broken has a finding of its own. The bundles are copies of the small decoder.
#include <sys/stat.h>

#include "bundle/broken_bundle.h"
#include "coreai/base/error.h"
#include "coreai/bundle/model_bundle.h"

namespace coreai::test {
namespace {

constexpr const char* kDecoder = "tiny_llm/f16";
constexpr const char* kAsset = "tiny-llama-random-f16.aimodel";

using Break = void (*)(const fs::path& bundle);

struct Broken {
  const char* name;
  const char* id;  // of the finding; when it is an error there is no other error
  Break make;
};

void set(const fs::path& bundle, const char* key, const Json& value) {
  edit_json(bundle / "metadata.json", [&](Json& root) { root[key] = value; });
}

void set_language(const fs::path& bundle, const char* key, const Json& value) {
  edit_json(bundle / "metadata.json", [&](Json& root) { root["language"][key] = value; });
}

void set_main(const fs::path& bundle, const Json& value) {
  edit_json(bundle / "metadata.json", [&](Json& root) { root["assets"]["main"] = value; });
}

void set_tokenizer_config(const fs::path& bundle, const char* key, const Json& value) {
  edit_json(bundle / "tokenizer" / "tokenizer_config.json", [&](Json& root) { root[key] = value; });
}

void add_token(const fs::path& bundle, const char* text, int id, bool special) {
  edit_json(bundle / "tokenizer" / "tokenizer.json", [&](Json& root) {
    root["added_tokens"].push_back({{"id", id},
                                    {"content", text},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", special}});
  });
}

std::string text_of(const fs::path& file) {
  return read_text_file(file);
}

void replace_text(const fs::path& file, const std::string& from, const std::string& to) {
  std::string text = text_of(file);
  text.replace(text.find(from), from.size(), to);
  write_file(file, text);
}

// A decoder without a cache.
void stateless(const fs::path& bundle) {
  ir::Module module;
  ir::Builder builder(module);
  const ir::TypeRef row = module.context().tensor_type(DType::kSI32, {1, kDynamic});
  const ir::TypeRef logits = module.context().tensor_type(DType::kF16, {1, 1, 512});
  builder.begin_graph(
      {"main", {{"input_ids", row, ""}, {"position_ids", row, ""}}, {{"logits", logits, ""}}, false, false, {}});
  builder.end_graph({builder.splat(DType::kF16, {1, 1, 512}, 0.0)});
  replace_program(bundle / kAsset, module);
}

// A decoder with one state of that shape.
void with_state(const fs::path& bundle, const Shape& shape) {
  ir::Module module;
  ir::Builder builder(module);
  const ir::TypeRef row = module.context().tensor_type(DType::kSI32, {1, kDynamic});
  const ir::TypeRef logits = module.context().tensor_type(DType::kF16, {1, 1, 512});
  ir::Context& context = module.context();
  const ir::TypeRef cache = context.tensor_type(DType::kF16, shape);
  const ir::Graph main = builder.begin_graph(
      {"main",
       {{"input_ids", row, ""}, {"position_ids", row, ""}, {"keyCache", context.handle_type(cache), "kept"}},
       {{"kept", context.token_type(), ""}, {"logits", logits, ""}},
       false,
       false,
       {}});
  ir::Value* token = builder.op1(ir::OpCode::kCreateToken, {}, context.token_type());
  ir::Value* written =
      builder.op1(ir::OpCode::kWriteHandle, {main.body().arguments[2], builder.splat(DType::kF16, shape, 0.0), token},
                  context.token_type());
  builder.end_graph({written, builder.splat(DType::kF16, {1, 1, 512}, 0.0)});
  replace_program(bundle / kAsset, module);
}

// An operation that needs an operand and has none.
void invalid_program(const fs::path& bundle) {
  ir::Module module;
  ir::Builder builder(module);
  const ir::TypeRef tensor = module.context().tensor_type(DType::kF32, {4});
  builder.begin_graph({"main", {{"x", tensor, ""}}, {{"y", tensor, ""}}, false, false, {}});
  builder.end_graph({builder.op1(ir::OpCode::kSin, {}, tensor)});
  replace_program(bundle / kAsset, module);
}

const Broken kMetadata[] = {
    {"NoJson", "metadata-not-json", [](const fs::path& b) { write_file(b / "metadata.json", "{ \"kind\": "); }},
    {"DuplicateKey", "metadata-duplicate-key",
     [](const fs::path& b) { replace_text(b / "metadata.json", "\"kind\"", "\"name\": \"x\", \"kind\""); }},
    {"EmptyMetadata", "metadata-not-json", [](const fs::path& b) { write_file(b / "metadata.json", ""); }},
    {"AList", "metadata-not-json", [](const fs::path& b) { write_file(b / "metadata.json", "[1, 2]"); }},
    {"NotUtf8", "metadata-not-json",
     [](const fs::path& b) { replace_text(b / "metadata.json", "tiny-llama-random", "tiny\xff\xfe"); }},
    {"DeepBrackets", "metadata-not-json",
     [](const fs::path& b) { write_file(b / "metadata.json", std::string(300000, '[')); }},
    {"HundredMegabytes", "metadata-unreadable",
     [](const fs::path& b) { fs::resize_file(b / "metadata.json", 100'000'000); }},
    {"MetadataIsAFolder", "metadata-unreadable",
     [](const fs::path& b) {
       fs::remove(b / "metadata.json");
       fs::create_directory(b / "metadata.json");
     }},
    {"OlderVersion", "metadata-version-unsupported", [](const fs::path& b) { set(b, "metadata_version", "0.1"); }},
    {"NewerVersion", "metadata-version-unsupported", [](const fs::path& b) { set(b, "metadata_version", "0.3"); }},
    {"VersionIsANumber", "metadata-version-unsupported", [](const fs::path& b) { set(b, "metadata_version", 0.2); }},
    {"NoVersion", "metadata-version-unsupported",
     [](const fs::path& b) { edit_json(b / "metadata.json", [](Json& root) { root.erase("metadata_version"); }); }},
    {"UnknownKind", "kind-unknown", [](const fs::path& b) { set(b, "kind", "chat"); }},
    {"NoName", "metadata-field-missing", [](const fs::path& b) { set(b, "name", nullptr); }},
    {"NameIsANumber", "metadata-field-invalid", [](const fs::path& b) { set(b, "name", 7); }},
    {"NoLanguageBlock", "metadata-block-missing", [](const fs::path& b) { set(b, "language", nullptr); }},
    {"NoVocabSize", "metadata-field-missing", [](const fs::path& b) { set_language(b, "vocab_size", nullptr); }},
    {"ContextIsText", "metadata-field-invalid",
     [](const fs::path& b) { set_language(b, "max_context_length", "long"); }},
    {"NegativeVocabSize", "metadata-field-invalid", [](const fs::path& b) { set_language(b, "vocab_size", -1); }},
    {"FunctionMapOfStrings", "metadata-field-invalid",
     [](const fs::path& b) { set_language(b, "function_map", {{"main", "main"}}); }},
    {"TargetIsNotThere", "compilation-target-missing",
     [](const fs::path& b) { set(b, "compilation", {{"targets", {"tiny.h18p.aimodelc"}}}); }},
};

const Broken kAssets[] = {
    {"NoAssets", "assets-empty", [](const fs::path& b) { set(b, "assets", Json::object()); }},
    {"NoMainRole", "role-missing", [](const fs::path& b) { set(b, "assets", {{"decoder", kAsset}}); }},
    {"UnknownRole", "role-unknown", [](const fs::path& b) { set(b, "assets", {{"main", kAsset}, {"mian", kAsset}}); }},
    {"TwoRolesOneAsset", "roles-share-asset",
     [](const fs::path& b) { set(b, "assets", {{"main", kAsset}, {"mian", kAsset}}); }},
    {"TwoSpellingsOfOneAsset", "roles-share-asset",
     [](const fs::path& b) { set(b, "assets", {{"main", kAsset}, {"mian", std::string("./") + kAsset + "/"}}); }},
    {"AssetAbove", "path-outside-bundle", [](const fs::path& b) { set_main(b, "../tiny.aimodel"); }},
    {"AbsoluteAsset", "path-outside-bundle", [](const fs::path& b) { set_main(b, "/etc/tiny.aimodel"); }},
    {"AssetLinkedFromOutside", "path-outside-bundle",
     [](const fs::path& b) {
       fs::rename(b / kAsset, b.parent_path() / kAsset);
       fs::create_directory_symlink(b.parent_path() / kAsset, b / kAsset);
     }},
    {"AssetMissing", "asset-missing", [](const fs::path& b) { fs::remove_all(b / kAsset); }},
    {"AssetIsAFile", "asset-not-folder",
     [](const fs::path& b) {
       fs::remove_all(b / kAsset);
       write_file(b / kAsset, "weights");
     }},
    {"AssetCompiled", "asset-compiled",
     [](const fs::path& b) { fs::rename(b / kAsset, b / (std::string(kAsset) + "c")); }},
    {"AssetCompiledInside", "asset-compiled",
     [](const fs::path& b) { fs::rename(b / kAsset / "main.mlirb", b / kAsset / "main-h18p.mlirb"); }},
    {"AssetOfAnotherName", "asset-name",
     [](const fs::path& b) {
       fs::rename(b / kAsset, b / "weights");
       set_main(b, "weights");
     }},
    {"NoProgram", "asset-program-missing", [](const fs::path& b) { fs::remove(b / kAsset / "main.mlirb"); }},
    {"ProgramIsAFolder", "asset-unreadable",
     [](const fs::path& b) {
       fs::remove(b / kAsset / "main.mlirb");
       fs::create_directory(b / kAsset / "main.mlirb");
     }},
    {"ProgramIsAPipe", "asset-unreadable",
     [](const fs::path& b) {
       fs::remove(b / kAsset / "main.mlirb");
       ASSERT_EQ(::mkfifo((b / kAsset / "main.mlirb").c_str(), 0600), 0);
     }},
    {"NoAssetMetadata", "asset-metadata-missing", [](const fs::path& b) { fs::remove(b / kAsset / "metadata.json"); }},
    {"AssetMetadataIsText", "asset-metadata-malformed",
     [](const fs::path& b) { write_file(b / kAsset / "metadata.json", "version 2"); }},
    {"AssetOfVersionThree", "asset-version-unsupported",
     [](const fs::path& b) { set(b / kAsset, "assetVersion", "3.0"); }},
    {"NobodyMadeIt", "asset-producer-missing",
     [](const fs::path& b) { write_file(b / kAsset / "metadata.json", R"({"assetVersion": "2.0"})"); }},
    {"NoHash", "asset-hash-missing", [](const fs::path& b) { fs::remove(b / kAsset / "main.hash"); }},
    {"HashInHex", "asset-hash-malformed",
     [](const fs::path& b) { write_file(b / kAsset / "main.hash", std::string(64, 'a')); }},
    {"OneByteOfTheWeights", "asset-hash-mismatch",
     [](const fs::path& b) {
       std::string bytes = text_of(b / kAsset / "main.mlirb");
       bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
       write_file(b / kAsset / "main.mlirb", bytes);
     }},
    {"DownloadCutOff", "asset-hash-mismatch",
     [](const fs::path& b) { fs::resize_file(b / kAsset / "main.mlirb", 100'000); }},
    {"CutOffWithoutAHash", "asset-program-malformed",
     [](const fs::path& b) {
       fs::resize_file(b / kAsset / "main.mlirb", 1000);
       fs::remove(b / kAsset / "main.hash");
     }},
    {"Garbage", "asset-program-malformed",
     [](const fs::path& b) {
       write_file(b / kAsset / "main.mlirb", std::string(5000, 'x'));
       renew_hash(b / kAsset);
     }},
    {"OperationOfNobody", "asset-program-unsupported",
     [](const fs::path& b) { rename_in_program(b / kAsset, "primitive.rsqrt", "primitive.rsqrx"); }},
    {"InvalidProgram", "asset-program-invalid", invalid_program},
    {"NoFunctions", "asset-no-functions", [](const fs::path& b) { replace_program(b / kAsset, ir::Module()); }},
};

const Broken kFunctions[] = {
    {"MapNamesNoFunction", "function-missing",
     [](const fs::path& b) { set_language(b, "function_map", {{"main", {"decode"}}}); }},
    {"NoMainFunction", "function-missing",
     [](const fs::path& b) {
       set_language(b, "function_map", nullptr);
       rename_in_program(b / kAsset, std::string("main\0", 5), std::string("mayn\0", 5));
     }},
    {"NoTokens", "decoder-input-missing",
     [](const fs::path& b) { rename_in_program(b / kAsset, "input_ids", "input_idx"); }},
    {"NoPositions", "decoder-input-missing",
     [](const fs::path& b) { rename_in_program(b / kAsset, "position_ids", "pozition_ids"); }},
    {"NoLogits", "decoder-logits-missing",
     [](const fs::path& b) { rename_in_program(b / kAsset, "logits", "scores"); }},
    {"VocabSizeOfAnother", "logits-vocabulary-mismatch", [](const fs::path& b) { set_language(b, "vocab_size", 600); }},
    {"NoCache", "decoder-state-missing", stateless},
    {"StateOfAnotherName", "state-unknown",
     [](const fs::path& b) {
       set_language(b, "states", {{"keyCache", "kv_cache"}, {"valueCache", "kv_cache"}, {"ssm", "fixed"}});
     }},
    {"StateLeftOut", "state-undeclared",
     [](const fs::path& b) { set_language(b, "states", {{"keyCache", "kv_cache"}}); }},
    {"GrowingStateAsAWindow", "state-kind-impossible",
     [](const fs::path& b) { set_language(b, "states", {{"keyCache", "sliding_cache"}, {"valueCache", "kv_cache"}}); }},
    {"CacheWithoutPositions", "state-kind-impossible",
     [](const fs::path& b) {
       with_state(b, {2, 3, 8});
       set_language(b, "states", {{"keyCache", "kv_cache"}});
     }},
};

const Broken kTokenizers[] = {
    {"NoTokenizer", "tokenizer-missing", [](const fs::path& b) { fs::remove_all(b / "tokenizer"); }},
    {"NoTokenizerJson", "tokenizer-missing", [](const fs::path& b) { fs::remove(b / "tokenizer" / "tokenizer.json"); }},
    {"TokenizerIsAFile", "tokenizer-missing",
     [](const fs::path& b) {
       fs::remove_all(b / "tokenizer");
       write_file(b / "tokenizer", "{}");
     }},
    {"TokenizerLinkedFromOutside", "path-outside-bundle",
     [](const fs::path& b) {
       fs::rename(b / "tokenizer", b.parent_path() / "tokenizer");
       fs::create_directory_symlink(b.parent_path() / "tokenizer", b / "tokenizer");
     }},
    {"EmptyTokenizer", "tokenizer-empty",
     [](const fs::path& b) { write_file(b / "tokenizer" / "tokenizer.json", ""); }},
    {"TruncatedTokenizer", "tokenizer-malformed",
     [](const fs::path& b) { fs::resize_file(b / "tokenizer" / "tokenizer.json", 5000); }},
    {"TokenizerIsAPipe", "tokenizer-malformed",
     [](const fs::path& b) {
       fs::remove(b / "tokenizer" / "tokenizer.json");
       ASSERT_EQ(::mkfifo((b / "tokenizer" / "tokenizer.json").c_str(), 0600), 0);
     }},
    {"TokenizerOfASmallerModel", "tokenizer-vocabulary-small",
     [](const fs::path& b) {
       edit_json(b / "tokenizer" / "tokenizer.json", [](Json& root) {
         Json& model = root["model"];
         model["merges"] = Json::array();
         Json kept = Json::object();
         for (const auto& [token, id] : model["vocab"].items())
           if (id < 200) kept[token] = id;
         model["vocab"] = kept;
       });
     }},
    {"TokenizerNamedOutside", "path-outside-bundle",
     [](const fs::path& b) {
       fs::remove_all(b / "tokenizer");
       set_language(b, "tokenizer", "../tokenizer");
     }},
    {"NoTokenizerConfig", "tokenizer-config-missing",
     [](const fs::path& b) { fs::remove(b / "tokenizer" / "tokenizer_config.json"); }},
    {"TokenizerConfigIsText", "tokenizer-config-malformed",
     [](const fs::path& b) { write_file(b / "tokenizer" / "tokenizer_config.json", "eos"); }},
    {"TokenizerNotEmbedded", "tokenizer-not-embedded",
     [](const fs::path& b) { set_language(b, "embedded_tokenizer", false); }},
    {"TokenBeyondTheModel", "tokenizer-vocabulary-outside",
     [](const fs::path& b) { add_token(b, "beyond", 512, false); }},
    {"SpecialTokenBeyondTheModel", "special-token-outside",
     [](const fs::path& b) { add_token(b, "<|image|>", 512, true); }},
    {"UnknownEndToken", "end-token-unknown", [](const fs::path& b) { set_tokenizer_config(b, "eos_token", "</s>"); }},
    {"UnknownBeginToken", "special-token-unknown",
     [](const fs::path& b) { set_tokenizer_config(b, "bos_token", "<s>"); }},
    {"EndTokenBeyondTheModel", "end-token-unknown",
     [](const fs::path& b) { write_file(b / "generation_config.json", R"({"eos_token_id": [2, 600]})"); }},
    {"EndTokenIsText", "generation-config-malformed",
     [](const fs::path& b) { write_file(b / "generation_config.json", R"({"eos_token_id": "<|im_end|>"})"); }},
    {"GenerationConfigIsText", "generation-config-malformed",
     [](const fs::path& b) { write_file(b / "tokenizer" / "generation_config.json", "eos: 2"); }},
    {"EndTokenTwice", "generation-config-malformed",
     [](const fs::path& b) { write_file(b / "generation_config.json", R"({"eos_token_id": 2, "eos_token_id": 2})"); }},
    {"EndTokenTwiceInTheTokenizersFolder", "generation-config-malformed",
     [](const fs::path& b) {
       write_file(b / "tokenizer" / "generation_config.json", R"({"eos_token_id": 2, "eos_token_id": 2})");
     }},
    {"GenerationConfigOfFiveMegabytes", "generation-config-malformed",
     [](const fs::path& b) {
       write_file(b / "generation_config.json", R"({"eos_token_id": 2})" + std::string(5'000'000, ' '));
     }},
    {"GenerationConfigNotUtf8", "generation-config-malformed",
     [](const fs::path& b) { write_file(b / "generation_config.json", "{\"eos_token_id\": 2, \"by\": \"\xff\"}"); }},
    {"NothingEnds", "end-token-missing",
     [](const fs::path& b) {
       set_tokenizer_config(b, "eos_token", nullptr);
       std::string text = text_of(b / "tokenizer" / "tokenizer.json");
       for (const char* part : {"im_end", "endoftext"})
         for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part)) text[at] = 'x';
       write_file(b / "tokenizer" / "tokenizer.json", text);
     }},
    {"NoTemplate", "chat-template-missing",
     [](const fs::path& b) { set_tokenizer_config(b, "chat_template", nullptr); }},
    {"TemplateDoesNotCompile", "chat-template-malformed",
     [](const fs::path& b) { set_tokenizer_config(b, "chat_template", "{% for m in messages %}{{ m.content }}"); }},
    {"TemplateIsANumber", "chat-template-malformed",
     [](const fs::path& b) { set_tokenizer_config(b, "chat_template", 3); }},
    {"TemplateRaises", "chat-template-fails",
     [](const fs::path& b) { set_tokenizer_config(b, "chat_template", "{{ raise_exception('no users here') }}"); }},
    {"TemplateRunsAway", "chat-template-fails",
     [](const fs::path& b) {
       set_tokenizer_config(b, "chat_template",
                            "{% for i in range(99999) %}{% for j in range(99999) %}{{ i }}{% endfor %}{% endfor %}");
     }},
    {"TemplateDropsTheMessage", "chat-template-drops-message",
     [](const fs::path& b) { write_file(b / "tokenizer" / "chat_template.jinja", "<|im_start|>assistant\n"); }},
    {"TemplateOfAnotherModel", "chat-template-token-unknown",
     [](const fs::path& b) {
       set_tokenizer_config(b, "chat_template", "{% for m in messages %}<|user|>{{ m['content'] }}<|eot|>{% endfor %}");
     }},
};

const Broken kRest[] = {
    {"NothingWasQuantised", "compression-not-achieved", [](const fs::path& b) { set(b, "compression", "4bit"); }},
    {"CompressionIsANumber", "compression-invalid", [](const fs::path& b) { set(b, "compression", 4); }},
    {"CompressionOfNoBits", "compression-unknown", [](const fs::path& b) { set(b, "compression", "tight"); }},
    {"TemporaryFile", "leftover-temporary",
     [](const fs::path& b) { write_file(b / kAsset / "main.mlirb.tmp.Xa12Qz", "half"); }},
    {"TemporaryAsset", "leftover-temporary",
     [](const fs::path& b) { fs::create_directory(b / "tiny.aimodel.tmp.AbCdEf"); }},
    {"PartialDownload", "leftover-temporary",
     [](const fs::path& b) { write_file(b / "tokenizer" / "tokenizer.json.incomplete", "{"); }},
    {"AssetWithoutProgram", "leftover-partial-asset",
     [](const fs::path& b) { fs::create_directory(b / "other.aimodel"); }},
    {"AssetOfNobody", "asset-undeclared",
     [](const fs::path& b) { fs::copy(b / kAsset, b / "other.aimodel", fs::copy_options::recursive); }},
    {"FoldersInFolders", "too-many-files",
     [](const fs::path& b) {
       fs::path folder = b / "tokenizer";
       for (int level = 0; level < 33; ++level) folder /= "deep";
       fs::create_directories(folder);
     }},
    {"FileOfNobody", "file-undeclared", [](const fs::path& b) { write_file(b / "notes.txt", "remember"); }},
    {"LinkedTokenizer", "symlink",
     [](const fs::path& b) {
       fs::rename(b / "tokenizer" / "tokenizer.json", b.parent_path() / "blob");
       fs::create_symlink(b.parent_path() / "blob", b / "tokenizer" / "tokenizer.json");
     }},
    {"LinkInACircle", "symlink", [](const fs::path& b) { fs::create_directory_symlink(b, b / "tokenizer" / "up"); }},
    {"LinkToNowhere", "symlink-broken", [](const fs::path& b) { fs::create_symlink("nowhere", b / "LICENSE"); }},
    {"NameInLatin1", "name-not-utf8", [](const fs::path& b) { write_file(b / "tokenizer" / "t\xf6ken.txt", "x"); }},
    {"APipe", "special-file", [](const fs::path& b) { ASSERT_EQ(::mkfifo((b / "README").c_str(), 0600), 0); }},
};

class BrokenBundle : public testing::TestWithParam<Broken> {};

TEST_P(BrokenBundle, HasItsOwnFinding) {
  const Scratch scratch;
  const fs::path bundle = copy_bundle(scratch, kDecoder);
  GetParam().make(bundle);
  const AuditReport report = audit_bundle(bundle);
  const std::string id = GetParam().id;
  const Finding* found = nullptr;
  std::set<std::string> errors = ids(report, Severity::kError);
  for (const Finding& finding : report.findings) {
    EXPECT_FALSE(finding.path.empty()) << finding.id();
    EXPECT_FALSE(finding.sentence.empty()) << finding.id();
    EXPECT_FALSE(finding.fix.empty()) << finding.id();
    EXPECT_FALSE(finding.path.starts_with("/")) << finding.path;
    if (finding.id() == id && found == nullptr) found = &finding;
  }
  ASSERT_NE(found, nullptr) << "errors: " << testing::PrintToString(errors)
                            << " warnings: " << testing::PrintToString(ids(report, Severity::kWarning));
  if (found->severity() == Severity::kError) errors.erase(id);
  EXPECT_THAT(errors, testing::IsEmpty());
  EXPECT_EQ(report.clean(), found->severity() == Severity::kNote);
}

std::string name_of(const testing::TestParamInfo<Broken>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Metadata, BrokenBundle, testing::ValuesIn(kMetadata), name_of);
INSTANTIATE_TEST_SUITE_P(Assets, BrokenBundle, testing::ValuesIn(kAssets), name_of);
INSTANTIATE_TEST_SUITE_P(Functions, BrokenBundle, testing::ValuesIn(kFunctions), name_of);
INSTANTIATE_TEST_SUITE_P(Tokenizers, BrokenBundle, testing::ValuesIn(kTokenizers), name_of);
INSTANTIATE_TEST_SUITE_P(Rest, BrokenBundle, testing::ValuesIn(kRest), name_of);

TEST(Audit, AnotherSpellingOfAPathIsTheSamePath) {
  const Scratch scratch;
  const fs::path bundle = copy_bundle(scratch, kDecoder);
  set_main(bundle, std::string("./") + kAsset + "/");
  EXPECT_TRUE(audit_bundle(bundle).findings.empty());
}

// What a file says stays one line of the report.
TEST(Audit, SentencesAreOneLine) {
  const Scratch scratch;
  const fs::path bundle = copy_bundle(scratch, kDecoder);
  set(bundle, "assets", {{"main", kAsset}, {"x\nclean: 0 errors", "gone\n.aimodel"}});
  set_language(bundle, "function_map", {{"a\nb", {"c\nd"}}});
  const AuditReport report = audit_bundle(bundle);
  EXPECT_EQ(report.count(Severity::kError), 2u);
  for (const Finding& finding : report.findings)
    EXPECT_EQ((finding.sentence + finding.fix).find('\n'), std::string::npos) << finding.sentence;
}

TEST(Audit, TheDecodersAreClean) {
  for (const char* name : {"f16", "f32", "f32_composites", "q4"}) {
    const AuditReport report = audit_bundle(fixture("tiny_llm") / name);
    EXPECT_TRUE(report.findings.empty()) << name << ": " << report.findings.front().sentence;
    EXPECT_EQ(report.kind, "llm");
    ASSERT_EQ(report.assets.size(), 1u);
    EXPECT_TRUE(report.assets[0].loaded);
    EXPECT_EQ(report.assets[0].functions, std::vector<std::string>{"main"});
    EXPECT_EQ(report.assets[0].hash.size(), 64u);
  }
}

TEST(Audit, MeasuresBitsOfTheWeights) {
  const WeightMeasure half = audit_bundle(fixture("tiny_llm/f16")).assets.at(0).weights;
  EXPECT_NEAR(half.bits_per_weight(), 16.0, 0.01);
  EXPECT_EQ(half.elements_of_at_most(8), 0u);
  const WeightMeasure quarter = audit_bundle(fixture("tiny_llm/q4")).assets.at(0).weights;
  EXPECT_EQ(quarter.elements, half.elements);  // scales and offsets are no weights
  EXPECT_GT(quarter.elements_of_at_most(4), quarter.elements / 2);
  EXPECT_GT(quarter.bits_per_weight(), 4.0);
  EXPECT_LT(quarter.bits_per_weight(), 8.0);
}

TEST(Audit, RequestsAreComparedWithTheWeights) {
  struct Request {
    const char* bundle;
    const char* text;
    const char* id;  // null: as asked for
  };
  for (const Request& request : {Request{"q4", "4bit", nullptr},
                                 {"q4", "int8", nullptr},
                                 {"q4", "Q4_K_M", nullptr},
                                 {"q4", "mixed_4bit_8bit", nullptr},
                                 {"q4", "4bit_weights_8bit_kv_cache", nullptr},
                                 {"q4", "2bit", "compression-not-achieved"},
                                 {"q4", "none", "compression-unrequested"},
                                 {"f16", "float16", nullptr},
                                 {"f16", "F16", nullptr},
                                 {"f16", "none", nullptr},
                                 {"f16", "Q8_0", "compression-not-achieved"},
                                 {"f16", "fp8_weights_fp8_activations", "compression-not-achieved"},
                                 {"f16", "8bit_kv_cache", "compression-unknown"},
                                 {"f32", "F16", "compression-not-achieved"}}) {
    const Scratch scratch;
    const fs::path bundle = copy_bundle(scratch, std::string("tiny_llm/") + request.bundle);
    set(bundle, "compression", request.text);
    const AuditReport report = audit_bundle(bundle);
    ASSERT_EQ(report.findings.size(), request.id == nullptr ? 0u : 1u) << request.bundle << " " << request.text;
    EXPECT_EQ(report.findings.empty() ? "" : report.findings[0].id(), request.id == nullptr ? "" : request.id);
  }
}

TEST(Audit, SizesAgainstALimit) {
  const fs::path bundle = fixture(kDecoder);
  const AuditReport report = audit_bundle(bundle);
  EXPECT_GT(report.bytes, 200'000u);
  EXPECT_TRUE(audit_bundle(bundle, {.max_bytes = report.bytes}).clean());
  const AuditReport small = audit_bundle(bundle, {.max_bytes = report.bytes - 1});
  EXPECT_THAT(ids(small, Severity::kError), testing::ElementsAre("size-exceeds-limit"));
}

TEST(Audit, ASingleAsset) {
  const AuditReport report = audit_bundle(fixture(kDecoder) / kAsset / "");
  EXPECT_EQ(report.kind, "unknown");  // no detector
  EXPECT_TRUE(report.findings.empty());
  EXPECT_EQ(report.assets.at(0).file, kAsset);
}

TEST(Audit, WhatIsNoBundleIsRefused) {
  const Scratch scratch;
  EXPECT_THROW(audit_bundle(scratch.path() / "none"), BundleError);
  EXPECT_THROW(audit_bundle(scratch.path()), BundleError);  // no metadata.json
  EXPECT_THROW(audit_bundle(fixture(kDecoder) / "metadata.json"), BundleError);
  EXPECT_THROW(audit_bundle(scratch.path() / "x.aimodelc"), BundleError);
  EXPECT_THROW(audit_bundle(scratch.path() / "x.aimodel"), BundleError);
}

TEST(Audit, RulesHaveStableUniqueIds) {
  std::set<std::string_view> seen;
  for (const AuditRuleInfo& rule : audit_rules()) {
    EXPECT_TRUE(seen.insert(rule.id).second) << rule.id;
    EXPECT_EQ(rule.id.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"), std::string_view::npos) << rule.id;
    EXPECT_EQ(audit_rule(rule.rule).id, rule.id);
    EXPECT_FALSE(rule.meaning.empty() || rule.fix.empty()) << rule.id;
  }
  EXPECT_GE(seen.size(), 80u);
}

}  // namespace
}  // namespace coreai::test
