#include "coreai/text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "coreai/base/error.h"
#include "text/fixtures.h"

namespace coreai {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

Json cases() {
  std::ifstream file(std::filesystem::path(COREAI_FIXTURE_DIR) / "chat_templates" / "cases.json");
  return Json::parse(file);
}

std::string render_case(const Json& test_case, const Json& all) {
  Json variables = all["variables"][test_case["variables"].get<std::size_t>()];
  ChatTemplateOptions options;
  options.add_generation_prompt = variables["add_generation_prompt"].get<bool>();
  if (variables["tools"].is_array()) options.tools_json = variables["tools"].dump();
  if (variables.contains("enable_thinking")) options.enable_thinking = variables["enable_thinking"].get<bool>();
  const auto chat = ChatTemplate::from_source(test_case["template"].get<std::string>(),
                                              {{"bos_token", variables["bos_token"].get<std::string>()},
                                               {"eos_token", variables["eos_token"].get<std::string>()}});
  return chat.render_json(variables["messages"].dump(), options);
}

TEST(ChatTemplate, RendersLikeJinja) {
  const Json all = cases();
  ASSERT_GT(all["cases"].size(), 30u);
  for (const auto& c : all["cases"]) {
    SCOPED_TRACE(c["name"].get<std::string>());
    if (c.contains("expected")) {
      try {
        EXPECT_EQ(render_case(c, all), c["expected"].get<std::string>());
      } catch (const Error& e) {
        ADD_FAILURE() << e.what();
      }
    } else {
      try {
        ADD_FAILURE() << "rendered: " << render_case(c, all);
      } catch (const InvalidArgumentError& e) {
        EXPECT_THAT(e.what(), HasSubstr(c["error"].get<std::string>()));
      }
    }
  }
}

TEST(ChatTemplate, OfTheTinyBundle) {
  const auto chat = ChatTemplate::from_directory(test::tiny_tokenizer());
  ASSERT_TRUE(chat);
  EXPECT_EQ(chat->render({{"user", "Hi"}}),
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  ChatTemplateOptions options;
  options.add_generation_prompt = false;
  EXPECT_EQ(chat->render({{"system", "S"}, {"user", "Hi"}}, options),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n");
}

TEST(ChatTemplate, TheFileWinsOverTheConfig) {
  test::ScratchFolder folder;
  EXPECT_FALSE(ChatTemplate::from_directory(folder.path()));
  folder.write("tokenizer_config.json", R"({"bos_token": {"content": "<s>"}})");
  EXPECT_FALSE(ChatTemplate::from_directory(folder.path()));
  folder.write("tokenizer_config.json", R"({"bos_token": {"content": "<s>"}, "chat_template": "config"})");
  EXPECT_EQ(ChatTemplate::from_directory(folder.path())->render({}), "config");
  folder.write("chat_template.jinja", "file {{ bos_token }}\n");
  EXPECT_EQ(ChatTemplate::from_directory(folder.path())->render({}), "file <s>");
}

TEST(ChatTemplate, NamedTemplatesAreChosenByToolsAndByName) {
  test::ScratchFolder folder;
  folder.write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "plain"},
    {"name": "tool_use", "template": "tools {{ tools | length }}"}, {"name": "rag", "template": "rag"}]})");
  const auto chat = ChatTemplate::from_directory(folder.path()).value();
  EXPECT_EQ(chat.render({}), "plain");
  EXPECT_EQ(chat.render({}, {.tools_json = "[{}, {}]"}), "tools 2");
  EXPECT_EQ(chat.render({}, {.tools_json = "[]"}), "plain");
  EXPECT_EQ(chat.render({}, {.name = "rag"}), "rag");
  try {
    chat.render({}, {.name = "none"});
    FAIL() << "an unknown name was accepted";
  } catch (const NotFoundError& e) {
    EXPECT_THAT(e.next_step(), HasSubstr("rag"));
  }
  for (const char* bad : {R"([1])", R"([{"name": "x"}])", "3", R"([{"name": 1, "template": "a"}])"}) {
    folder.write("tokenizer_config.json", std::string(R"({"chat_template": )") + bad + "}");
    EXPECT_THROW(ChatTemplate::from_directory(folder.path()), MalformedError) << bad;
  }
}

TEST(ChatTemplate, ExtraVariablesAndThinking) {
  const auto chat = ChatTemplate::from_source("{{ enable_thinking is defined }} {{ enable_thinking }} {{ effort }}");
  EXPECT_EQ(chat.render({}), "False  ");
  EXPECT_EQ(chat.render({}, {.enable_thinking = true, .extra_json = R"({"effort": "low"})"}), "True True low");
  EXPECT_THROW(chat.render({}, {.extra_json = "[1]"}), InvalidArgumentError);
  EXPECT_THROW(chat.render({}, {.tools_json = "{"}), InvalidArgumentError);
  EXPECT_THROW(chat.render_json("{}"), InvalidArgumentError);
  EXPECT_THROW(chat.render({{"user", "\xFF"}}), InvalidArgumentError);
}

TEST(ChatTemplate, StrftimeNow) {
  const auto chat = ChatTemplate::from_source("{{ strftime_now('%Y-%m-%d') }}");
  const auto today = [] {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    localtime_r(&now, &parts);
    std::array<char, 32> text{};
    return std::string(text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d", &parts));
  };
  const std::string before = today();
  const std::string rendered = chat.render({});
  EXPECT_TRUE(rendered == before || rendered == today()) << rendered;
}

TEST(ChatTemplate, RaisedMessagesAreTheTemplatesOwn) {
  const auto chat = ChatTemplate::from_source("{{ raise_exception('Only user and assistant roles!') }}");
  try {
    chat.render({});
    FAIL() << "nothing was raised";
  } catch (const InvalidArgumentError& e) {
    EXPECT_THAT(e.what(), HasSubstr("Only user and assistant roles!"));
  }
}

TEST(ChatTemplate, SyntaxErrorsNameLineAndColumn) {
  try {
    ChatTemplate::from_source("line one\n{% for m in %}");
    FAIL() << "a broken template compiled";
  } catch (const MalformedError& e) {
    EXPECT_THAT(e.what(), HasSubstr("line 2"));
    EXPECT_THAT(e.what(), HasSubstr("column"));
  }
  EXPECT_THROW(ChatTemplate::from_source("{% for m in messages %}"), MalformedError);
  EXPECT_THROW(ChatTemplate::from_source("{{ " + std::string(100000, '(')), UnsupportedError);
}

class Hostile : public testing::TestWithParam<const char*> {};

TEST_P(Hostile, EndsInATypedError) {
  try {
    const auto chat = ChatTemplate::from_source(GetParam());
    const std::string text = chat.render({{"user", "x"}});
    EXPECT_LT(text.size(), std::size_t{200} << 20);
  } catch (const Error& e) {
    EXPECT_NE(e.code(), ErrorCode::kInternal) << e.what();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Templates, Hostile,
    testing::Values(
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(x='xxxxxxxx') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x "
        "}}",
        "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}done",
        "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(50000) %}{% set ns.x = {'a': ns.x} %}{% endfor %}{{ ns.x | "
        "tojson }}",
        "{{ ('x' * 100000000) * 100 }}", "{{ 'x' * 99999999999 }}", "{{ range(99999999999) | list }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ 'a' | center(1000000000) }}",
        "{{ '%1000000000d' | format(1) }}", "{{ '{:1000000000}'.format(1) }}", "{{ strftime_now('%999999999d') }}",
        "{{ 'x' | indent(1000000000) }}", "{{ messages | tojson(indent=1000000000) }}",
        "{{ ('a' * 1000000).replace('', 'b' * 1000) | length }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ 9 ** 99999 }}",
        "{{ self.x }}", "{% include 'x' %}", "{% extends 'chat_template' %}", "{% include 'chat_template' %}"));

}  // namespace
}  // namespace coreai
