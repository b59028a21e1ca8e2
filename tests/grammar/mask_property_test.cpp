// Masks beside what the matcher takes token by token: on random walks, cold and warm, from several threads.
// COREAI_PROPERTY_ROUNDS: how many times as long as usual.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <random>
#include <regex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "coreai/base/error.h"
#include "coreai/grammar/grammar_matcher.h"
#include "coreai/grammar/token_bitmask.h"
#include "property_cases.h"
#include "property_vocabulary.h"

namespace coreai::grammar {
namespace {

using Words = std::vector<std::uint32_t>;

std::size_t rounds() {
  const char* const text = std::getenv("COREAI_PROPERTY_ROUNDS");
  return text == nullptr ? 1 : std::max<std::size_t>(1, std::strtoul(text, nullptr, 10));
}

std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte >= 0x20 && byte < 0x7f && c != '\\' ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return out;
}

bool has(const Words& mask, std::size_t id) {
  return ((mask[id / 32] >> (id % 32)) & 1u) != 0;
}

Words mask_of(const GrammarMatcher& matcher) {
  Words out(bitmask_words(matcher.grammar().tokenizer().vocab_size()), 0xa5a5a5a5u);
  matcher.fill_next_token_bitmask(out);
  return out;
}

// What the matcher takes; it must be of a grammar of which no mask was ever made.
Words naive_mask(const GrammarMatcher& oracle) {
  const std::size_t size = oracle.grammar().tokenizer().vocab_size();
  Words out(bitmask_words(size));
  std::array<bool, 256> begins{};
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const auto one = static_cast<char>(byte);
    begins[byte] = oracle.fork().accept_bytes({&one, 1});
  }
  for (std::size_t id = 0; id < size; ++id) {
    const std::string_view bytes = oracle.grammar().tokenizer().token_bytes(static_cast<std::int32_t>(id));
    if (!bytes.empty() && !begins[static_cast<unsigned char>(bytes[0])] && !oracle.can_terminate()) continue;
    if (oracle.fork().accept_token(static_cast<std::int32_t>(id))) out[id / 32] |= std::uint32_t{1} << (id % 32);
  }
  return out;
}

std::string difference(const TokenizerInfo& tokenizer, const Words& got, const Words& wanted) {
  std::string out;
  int count = 0;
  for (std::size_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (has(got, id) != has(wanted, id) && ++count <= 5)
      out += fmt::format(" {}'{}' (id {})", has(got, id) ? "+" : "-",
                         shown(tokenizer.token_bytes(static_cast<std::int32_t>(id))), id);
  return count == 0 ? out : fmt::format("{} tokens differ:{}", count, out);
}

// One vocabulary with a compiler that all walks share.
struct World {
  explicit World(VocabularyKind of)
      : kind(of),
        vocabulary(property_vocabulary(of, property_names())),
        tokenizer(fresh_tokenizer()),
        shared(tokenizer, {.max_expressions = 400'000, .max_search_steps = 20'000, .check_masks_every = 1}),
        never_filled(tokenizer, {.max_expressions = 400'000, .max_search_steps = 20'000}) {}
  TokenizerInfo fresh_tokenizer() const { return property_tokenizer(kind, vocabulary); }
  VocabularyKind kind;
  std::vector<std::string> vocabulary;
  TokenizerInfo tokenizer;
  GrammarCompiler shared, never_filled;
};

struct Difference : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// One text through one grammar. Throws Difference.
class Walk {
 public:
  Walk(World& world, const PropertyCase& of, std::mt19937& random)
      : world_(world),
        case_(of),
        random_(random),
        cold_(world.fresh_tokenizer()),
        fresh_(cold_),
        oracle_(of.compile(world.never_filled)),
        warm_(of.compile(world.shared)),
        fresh_matcher_(of.compile(fresh_)) {}

  // Along `text`, or anywhere where it is empty.
  void run(std::string_view text, int steps) {
    const bool guided = !text.empty();
    for (int step = 0; step < steps; ++step) {
      compare();
      if (warm_.is_terminated()) return;
      if (!guided && !accepted_.empty() && random_() % 11 == 0) {
        go_back();
        continue;
      }
      const Words mask = mask_of(warm_);
      const std::int32_t token = guided ? along(mask, text) : choose(mask);
      if (token < 0) {
        require(guided && text.empty(), "no token goes on");
        require(warm_.can_terminate(), "the instance may not end");
        break;
      }
      accept(token);
      if (guided) text.remove_prefix(world_.tokenizer.token_bytes(token).size());
    }
    compare_other_ways();
  }

 private:
  void require(bool holds, std::string_view what) const {
    if (holds) return;
    throw Difference(fmt::format("kind {} grammar {} (white space {}, order {}) after '{}': {}",
                                 static_cast<int>(world_.kind), case_.text, case_.options.whitespace.max,
                                 static_cast<int>(case_.options.property_order), shown(text_), what));
  }
  void require_same(const Words& got, const Words& wanted, std::string_view which) const {
    if (got != wanted) require(false, fmt::format("{}: {}", which, difference(world_.tokenizer, got, wanted)));
  }

  void compare() {
    const Words wanted = naive_mask(oracle_);
    require_same(mask_of(warm_), wanted, "shared compiler");
    require_same(mask_of(fresh_matcher_), wanted, "fresh compiler");
    if (random_() % 8 == 0) {
      const TokenizerInfo tokenizer = world_.fresh_tokenizer();
      GrammarCompiler compiler(tokenizer, {.mask_cache_bytes = 0});
      GrammarMatcher matcher(case_.compile(compiler));
      require(matcher.accept_bytes(text_), "the text in one piece");
      if (oracle_.is_terminated()) require(matcher.accept_token(2), "the end");
      for (int again = 0; again < 3; ++again)  // slices are made when they are asked for again
        require_same(mask_of(matcher), wanted, fmt::format("mask {} of a compiler", again));
    }
    const bool empty = std::ranges::all_of(wanted, [](std::uint32_t word) { return word == 0; });
    require(empty == oracle_.is_terminated(), "a dead end");
    for (const std::int32_t end : world_.tokenizer.end_ids())
      require(has(wanted, static_cast<std::size_t>(end)) == oracle_.can_terminate(), "the end");
    for (const std::size_t never : {std::size_t{0}, std::size_t{1}, std::size_t{3}, world_.tokenizer.vocab_size() - 1})
      require(!has(wanted, never), "a token that is special or has no text");
  }

  void accept(std::int32_t token) {
    for (GrammarMatcher* matcher : {&oracle_, &warm_, &fresh_matcher_})
      require(matcher->accept_token(token), fmt::format("token {} of the mask is refused", token));
    accepted_.push_back(token);
    if (!world_.tokenizer.is_end(token)) text_ += world_.tokenizer.token_bytes(token);
  }

  void go_back() {
    const std::size_t steps = 1 + random_() % accepted_.size();
    const GrammarMatcher fork = warm_.fork();
    const Words before = mask_of(warm_);
    for (GrammarMatcher* matcher : {&oracle_, &warm_, &fresh_matcher_}) matcher->rollback(steps);
    require_same(mask_of(fork), before, "a fork after a rollback");
    accepted_.resize(accepted_.size() - steps);
    text_.clear();
    for (const std::int32_t token : accepted_) text_ += world_.tokenizer.token_bytes(token);
  }

  // Any token, or more often one that leads out of a string; -1: none.
  std::int32_t choose(const Words& mask) {
    std::vector<std::int32_t> all, leaving;
    for (std::size_t id = 0; id < world_.tokenizer.vocab_size(); ++id) {
      if (!has(mask, id)) continue;
      const auto token = static_cast<std::int32_t>(id);
      if (world_.tokenizer.is_end(token) && random_() % 3 != 0) continue;
      all.push_back(token);
      if (world_.tokenizer.token_bytes(token).find_first_of("\"{}[],:") != std::string_view::npos)
        leaving.push_back(token);
    }
    const auto& from = leaving.empty() || random_() % 2 == 0 ? all : leaving;
    if (!from.empty()) return from[random_() % from.size()];
    return has(mask, 2) ? 2 : -1;
  }

  // Any token with which `text` begins; -1: none.
  std::int32_t along(const Words& mask, std::string_view text) {
    std::vector<std::int32_t> fitting;
    for (std::size_t id = 0; id < world_.tokenizer.vocab_size(); ++id) {
      const auto token = static_cast<std::int32_t>(id);
      const std::string_view bytes = world_.tokenizer.token_bytes(token);
      if (bytes.empty() || world_.tokenizer.is_special(token) || !text.starts_with(bytes)) continue;
      require(has(mask, id), fmt::format("'{}' of an instance is refused", shown(bytes)));
      fitting.push_back(token);
    }
    return fitting.empty() ? -1 : fitting[random_() % fitting.size()];
  }

  void compare_other_ways() {
    if (warm_.is_terminated()) return;
    const Words wanted = mask_of(warm_);
    GrammarMatcher bytes(warm_.grammar()), once(warm_.grammar());
    for (const char byte : text_) require(bytes.accept_bytes({&byte, 1}), "the text byte by byte");
    require(once.accept_bytes(text_), "the text in one piece");
    require_same(mask_of(bytes), wanted, "byte by byte");
    require_same(mask_of(once), wanted, "in one piece");
    GrammarMatcher jumped = oracle_.fork();
    for (const char byte : warm_.find_jump_forward_string(64)) {
      const Words mask = naive_mask(jumped);
      for (std::int32_t id = 4; id < 260; ++id)
        require(
            has(mask, static_cast<std::size_t>(id)) == (world_.tokenizer.token_bytes(id) == std::string_view(&byte, 1)),
            "forced text where there is a choice");
      require(!jumped.can_terminate() && jumped.accept_bytes({&byte, 1}), "forced text where the text may end");
    }
  }

  World& world_;
  const PropertyCase& case_;
  std::mt19937& random_;
  TokenizerInfo cold_;
  GrammarCompiler fresh_;
  GrammarMatcher oracle_, warm_, fresh_matcher_;
  std::string text_;
  std::vector<std::int32_t> accepted_;
};

class MaskProperty : public testing::TestWithParam<VocabularyKind> {
 protected:
  void walk(const PropertyCase& of, std::string_view text, int steps) {
    if (failures_ >= 40) return;
    try {
      Walk(world_, of, random_).run(text, steps);
    } catch (const Difference& difference) {
      ++failures_;
      ADD_FAILURE() << difference.what();
    } catch (const Error& error) {
      if (of.may_refuse && (error.code() == ErrorCode::kUnsupported || error.code() == ErrorCode::kInvalidArgument))
        return;
      ++failures_;
      ADD_FAILURE() << of.text << ": " << error.what();
    }
  }
  World world_{GetParam()};
  std::mt19937 random_{static_cast<unsigned>(GetParam()) + 77};
  int failures_ = 0;
};

TEST_P(MaskProperty, FixedGrammars) {
  const std::vector<PropertyCase> cases = fixed_cases();
  for (std::size_t round = 0; round < rounds(); ++round)
    for (std::size_t i = 0; i < cases.size(); ++i) {
      if (rounds() == 1 && i % 3 != static_cast<std::size_t>(GetParam())) continue;
      for (const std::string& instance : cases[i].instances) walk(cases[i], instance, 1000);
      walk(cases[i], "", 10);
    }
}

TEST_P(MaskProperty, RandomGrammars) {
  for (std::size_t i = 0; i < 50 * rounds(); ++i) walk(random_case(random_), "", 10);
}

// Every text over a small alphabet, judged by another regex engine: nothing of ours says what can be completed.
class Enumerated {
 public:
  static constexpr std::size_t kLongest = 5;
  Enumerated(const std::string& pattern, const std::string& alphabet) {
    const std::regex judge(pattern, std::regex::ECMAScript);
    std::vector<std::string> texts{""};
    for (std::size_t at = 0; at < texts.size(); ++at) {
      if (std::regex_match(texts[at], judge)) members_.insert(texts[at]);
      if (texts[at].size() < kLongest)
        for (const char c : alphabet) texts.push_back(texts[at] + c);
    }
  }
  bool empty() const { return members_.empty(); }
  // Whether a member, between `quotes`, begins with `text`.
  bool begins(std::string_view text, bool quotes) const {
    if (!quotes) {
      const auto at = members_.lower_bound(std::string(text));
      return at != members_.end() && at->starts_with(text);
    }
    if (text.empty()) return !empty();
    if (text.front() != '"') return false;
    const std::string_view inside = text.substr(1);
    const std::size_t end = inside.find('"');
    if (end == std::string_view::npos) return begins(inside, false);
    return end + 1 == inside.size() && members_.contains(std::string(inside.substr(0, end)));
  }
  bool ends(std::string_view text, bool quotes) const {
    if (!quotes) return members_.contains(std::string(text));
    return text.size() >= 2 && text.back() == '"' && text.find('"', 1) == text.size() - 1 && begins(text, true);
  }

 private:
  std::set<std::string> members_;
};

TEST_P(MaskProperty, CompletionsOfSmallLanguages) {
  const bool quotes = GetParam() == VocabularyKind::kByteLevel;  // as strings of JSON
  const std::string alphabet = "ab-";
  int walked = 0;
  for (std::size_t i = 0; i < 60 * rounds(); ++i) {
    std::string pattern = random_pattern(random_, 2, {"a", "b", "[ab]", "(ab|b)", "-", "[^a]", "(a|ab)", "(ba)"}, true);
    if (random_() % 3 == 0) pattern = "(?!" + random_pattern(random_, 1, {"a", "b", "[ab]", "-"}, true) + ")" + pattern;
    if (random_() % 3 == 0)
      pattern = "(?!.*" + random_pattern(random_, 0, {"aa", "b", "-", "ab"}, true) + ")" + pattern;
    const Enumerated language("(?=[ab-]{0,5}$)" + pattern, alphabet);
    PropertyCase of{PropertyCase::Front::kRegex, "(?=[ab-]{0,5}$)" + pattern};
    if (quotes)
      of = {PropertyCase::Front::kSchema,
            R"({"type":"string","maxLength":5,"allOf":[{"pattern":"^[ab-]*$"},{"pattern":"^)" + pattern + R"($"}]})"};
    if (quotes && pattern.find('|') != std::string::npos)
      of.text =
          R"({"type":"string","maxLength":5,"allOf":[{"pattern":"^[ab-]*$"},{"pattern":"^()" + pattern + R"()$"}]})";
    if (language.empty()) {
      EXPECT_THROW(of.compile(world_.shared), InvalidArgumentError) << of.text;
      continue;
    }
    ++walked;
    GrammarMatcher matcher(of.compile(world_.shared));
    std::string text;
    while (!HasFailure()) {
      const Words mask = mask_of(matcher);
      std::vector<std::int32_t> next;
      for (std::int32_t id = 4; id < static_cast<std::int32_t>(world_.tokenizer.vocab_size()); ++id) {
        const std::string_view bytes = world_.tokenizer.token_bytes(id);
        if (bytes.empty() || world_.tokenizer.is_special(id)) continue;
        if (quotes && bytes.find_first_not_of("ab-\"") != std::string_view::npos) continue;  // escapes
        const bool wanted = language.begins(text + std::string(bytes), quotes);
        ASSERT_EQ(has(mask, static_cast<std::size_t>(id)), wanted)
            << of.text << " '" << text << "' '" << shown(bytes) << "'";
        if (wanted) next.push_back(id);
      }
      ASSERT_EQ(has(mask, 2), language.ends(text, quotes)) << of.text << " '" << text << "'";
      if (next.empty()) break;
      const std::int32_t token = next[random_() % next.size()];
      ASSERT_TRUE(matcher.accept_token(token));
      text += world_.tokenizer.token_bytes(token);
    }
  }
  EXPECT_GT(walked, 20);
}

TEST_P(MaskProperty, ThreadsSeeTheSameMasks) {
  std::vector<PropertyCase> cases = fixed_cases();
  std::shuffle(cases.begin(), cases.end(), random_);
  cases.resize(8);
  struct Visit {
    std::size_t of;
    std::string text;
    Words mask;
  };
  std::vector<Visit> visits;
  for (std::size_t of = 0; of < cases.size(); ++of) {
    GrammarMatcher oracle(cases[of].compile(world_.never_filled));
    std::string text;
    for (int step = 0; step < 10; ++step) {
      visits.push_back({of, text, naive_mask(oracle)});
      std::vector<std::int32_t> next;
      for (std::int32_t id = 4; id < static_cast<std::int32_t>(world_.tokenizer.vocab_size()); ++id)
        if (has(visits.back().mask, static_cast<std::size_t>(id)) && !world_.tokenizer.is_end(id)) next.push_back(id);
      if (next.empty()) break;
      const std::int32_t token = next[random_() % next.size()];
      ASSERT_TRUE(oracle.accept_token(token));
      text += world_.tokenizer.token_bytes(token);
    }
  }
  const TokenizerInfo tokenizer = world_.fresh_tokenizer();
  GrammarCompiler compiler(tokenizer, {.mask_cache_bytes = 4096});
  std::array<std::string, 3> wrong;
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < wrong.size(); ++thread)
    threads.emplace_back([&, thread] {
      for (std::size_t i = 0; i < visits.size() * 2 && wrong[thread].empty(); ++i) {
        const Visit& visit = visits[(i * (thread + 1) * 7 + thread) % visits.size()];
        GrammarMatcher matcher(cases[visit.of].compile(compiler));
        if (!matcher.accept_bytes(visit.text)) wrong[thread] = "refused ";
        if (mask_of(matcher) != visit.mask)
          wrong[thread] += fmt::format("{} after '{}': {}", cases[visit.of].text, shown(visit.text),
                                       difference(tokenizer, mask_of(matcher), visit.mask));
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : wrong) EXPECT_EQ(text, "");
}

INSTANTIATE_TEST_SUITE_P(Kinds, MaskProperty,
                         testing::Values(VocabularyKind::kRaw, VocabularyKind::kByteFallback,
                                         VocabularyKind::kByteLevel));

}  // namespace
}  // namespace coreai::grammar
