#include "coreai/grammar/constrained_generation_session.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "coreai/base/error.h"
#include "coreai/grammar/token_bitmask.h"

namespace coreai::grammar {
namespace {

constexpr std::int32_t kEnd = 256, kStop = 257, kWord = 258;  // kWord: the text "}"
constexpr const char* kSchema =
    R"({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false})";

class SessionTest : public testing::Test {
 protected:
  static TokenizerInfo tokenizer() {
    std::vector<std::string> vocabulary;
    vocabulary.reserve(259);
    for (int byte = 0; byte < 256; ++byte) vocabulary.emplace_back(1, static_cast<char>(byte));
    vocabulary.insert(vocabulary.end(), {"</s>", "<stop>", "}"});
    return {vocabulary, {.kind = VocabularyKind::kRaw, .end_ids = {kEnd}, .special_ids = {kStop}}};
  }
  ConstrainedGenerationSession session(std::vector<std::int32_t> stop_ids = {}) {
    return {compiler_, kSchema, {.whitespace = JsonWhitespace::none()}, std::move(stop_ids)};
  }
  static void accept(ConstrainedGenerationSession& session, std::string_view text) {
    for (const char c : text) ASSERT_TRUE(session.accept_token(static_cast<unsigned char>(c))) << c;
  }
  static bool allows(const ConstrainedGenerationSession& session, std::int32_t id) {
    const auto mask = session.next_token_bitmask();
    return mask && ((*mask)[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1u) != 0;
  }
  std::size_t words_ = bitmask_words(tokenizer().vocab_size());
  GrammarCompiler compiler_{tokenizer()};
};

TEST_F(SessionTest, WalksFromTheBraceToTheEndToken) {
  auto session = this->session();
  EXPECT_TRUE(allows(session, '{'));
  EXPECT_FALSE(allows(session, '['));
  EXPECT_EQ(session.find_jump_forward_string(), "{\"");  // the name may be written with an escape
  accept(session, R"({"a":12)");
  EXPECT_EQ(session.find_jump_forward_string(), std::nullopt);
  EXPECT_FALSE(session.accept_token('x'));
  EXPECT_EQ(session.accepted_tokens(), 7u);
  EXPECT_FALSE(allows(session, kEnd));
  accept(session, "}");
  EXPECT_TRUE(session.can_terminate());
  EXPECT_FALSE(session.is_terminated());
  EXPECT_TRUE(session.accept_token(kEnd));
  EXPECT_TRUE(session.is_terminated());
  EXPECT_EQ(session.next_token_bitmask(), std::nullopt);
  EXPECT_FALSE(session.accept_token('{'));
}

TEST_F(SessionTest, StopTokensEndTheTextWhereItMayEnd) {
  auto session = this->session({kStop, kWord, kEnd});
  EXPECT_FALSE(allows(session, kStop));
  EXPECT_FALSE(session.accept_token(kStop));
  accept(session, R"({"a":1)");
  EXPECT_FALSE(allows(session, kWord)) << "a stop token is not read as its text";
  EXPECT_TRUE(allows(session, '}'));
  accept(session, "}");
  for (const std::int32_t id : {kStop, kWord, kEnd}) {
    EXPECT_TRUE(allows(session, id)) << id;
    EXPECT_TRUE(session.accept_token(id)) << id;
    EXPECT_TRUE(session.is_terminated());
    EXPECT_FALSE(session.can_terminate());
    EXPECT_FALSE(session.accept_token(id));
    std::vector<std::uint32_t> mask(words_, ~0u);
    EXPECT_EQ(session.fill_next_token_bitmask(mask), MaskKind::kTerminated);
    EXPECT_EQ(mask, std::vector<std::uint32_t>(words_));
    EXPECT_EQ(session.accepted_tokens(), 8u);
    EXPECT_TRUE(session.rollback(1)) << "nothing sticks";
    EXPECT_FALSE(session.is_terminated());
  }
  EXPECT_TRUE(session.accept_token(kStop));
  EXPECT_FALSE(session.rollback(9));
  EXPECT_TRUE(session.is_terminated());
  EXPECT_TRUE(session.rollback(2));
  EXPECT_TRUE(allows(session, '}'));
  session.reset();
  EXPECT_TRUE(allows(session, '{'));
  EXPECT_EQ(session.accepted_tokens(), 0u);
}

TEST_F(SessionTest, FilledAndReturnedMasksAreEqual) {
  auto session = this->session({kStop});
  for (const char c : std::string(R"({"a":1})")) {
    std::vector<std::uint32_t> mask(words_ + 1, 0xabcdu);
    EXPECT_EQ(session.fill_next_token_bitmask(mask), MaskKind::kConstrained);
    const auto returned = session.next_token_bitmask();
    ASSERT_TRUE(returned);
    EXPECT_TRUE(std::equal(mask.begin(), mask.end() - 1, returned->get()));
    EXPECT_EQ(mask.back(), 0xabcdu);
    ASSERT_TRUE(session.accept_token(c));
  }
  std::vector<std::uint32_t> small(words_ - 1);
  EXPECT_THROW(session.fill_next_token_bitmask(small), InvalidArgumentError);
}

TEST_F(SessionTest, AppliesItsMask) {
  auto session = this->session({kStop});
  std::vector<float> logits(259, 1.0f);
  ASSERT_TRUE(session.apply_mask(logits));
  for (std::size_t id = 0; id < logits.size(); ++id) EXPECT_EQ(logits[id] == 1.0f, id == '{') << id;
  std::vector<std::uint16_t> halves(259, 0x3c00u);
  ASSERT_TRUE(session.apply_mask_f16(halves));
  EXPECT_EQ(halves['{'], 0x3c00u);
  EXPECT_EQ(halves['['], 0xfc00u);
  std::vector<std::uint16_t> brains(259, 0x3f80u);
  ASSERT_TRUE(session.apply_mask_bf16(brains));
  EXPECT_EQ(brains['['], 0xff80u);
  accept(session, R"({"a":1})");
  ASSERT_TRUE(session.accept_token(kStop));
  logits.assign(259, 1.0f);
  EXPECT_FALSE(session.apply_mask(logits));
  EXPECT_EQ(logits, std::vector<float>(259, 1.0f));
}

TEST_F(SessionTest, RefusesWhatItCannotHold) {
  EXPECT_THROW(session({300}), InvalidArgumentError);
  EXPECT_THROW(session({-1}), InvalidArgumentError);
  EXPECT_THROW(ConstrainedGenerationSession(compiler_, "{"), MalformedError);
  EXPECT_THROW(ConstrainedGenerationSession(compiler_, "false"), InvalidArgumentError);
  auto session = this->session();
  std::vector<float> logits(10);
  EXPECT_THROW(session.apply_mask(logits), InvalidArgumentError);
  EXPECT_THROW(session.accept_token(300), InvalidArgumentError);
}

}  // namespace
}  // namespace coreai::grammar
