// Lines of JSON with a schema and texts that it accepts or not, and how the engine judges them.
#pragma once

#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "byte_tokenizer.h"
#include "coreai/base/error.h"

namespace coreai::grammar {

struct SchemaCase {
  std::string name, schema;
  struct Text {
    bool valid;
    std::string text;
  };
  std::vector<Text> texts;
};

inline std::vector<SchemaCase> read_schema_cases(const std::string& path) {
  std::ifstream file(path);
  std::vector<SchemaCase> cases;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::ordered_json::parse(line);
    const auto& schema = json.at("schema");
    SchemaCase one{json.at("name"), schema.is_string() ? schema.get<std::string>() : schema.dump(), {}};
    for (const auto& test : json.at("tests")) one.texts.push_back({test.at("valid"), test.at("text")});
    cases.push_back(std::move(one));
  }
  return cases;
}

// Documents by their URI, one a line.
inline std::map<std::string, std::string> read_documents(const std::string& path) {
  std::ifstream file(path);
  std::map<std::string, std::string> documents;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::ordered_json::parse(line);
    documents.emplace(json.at("uri"), json.at("document").dump());
  }
  return documents;
}

struct SchemaScore {
  std::size_t right = 0, refused = 0, valid_rejected = 0, invalid_accepted = 0;  // texts
  std::size_t schemas = 0, passing = 0, schemas_refused = 0;
};

// Every text of every case; `report` gets each that is not right. A schema without any value is right to refuse.
inline SchemaScore judge(GrammarCompiler& compiler, const std::vector<SchemaCase>& cases,
                         const JsonSchemaOptions& options, const std::function<void(const std::string&)>& report) {
  SchemaScore score;
  for (const SchemaCase& one : cases) {
    ++score.schemas;
    bool good = true;
    std::string refusal;
    std::optional<CompiledGrammar> grammar;
    bool empty = false;
    try {
      grammar = compiler.compile_json_schema(one.schema, options);
    } catch (const InvalidArgumentError& error) {
      empty = std::string(error.problem()).starts_with("no value belongs");
      refusal = error.what();
    } catch (const Error& error) {
      refusal = error.what();
    }
    if (!grammar && !empty) {
      ++score.schemas_refused;
      score.refused += one.texts.size();
      report("refused " + one.name + ": " + refusal);
      continue;
    }
    for (const SchemaCase::Text& text : one.texts) {
      bool accepted = false;
      try {
        accepted = grammar && matches(*grammar, text.text);
      } catch (const UnsupportedError& error) {
        ++score.refused;
        good = false;
        report("budget " + one.name + ": " + error.what());
        continue;
      }
      if (accepted == text.valid) {
        ++score.right;
        continue;
      }
      good = false;
      ++(text.valid ? score.valid_rejected : score.invalid_accepted);
      report(std::string(text.valid ? "REJECTED " : "ACCEPTED ") + one.name + ": " + text.text.substr(0, 300));
    }
    score.passing += good;
  }
  return score;
}

}  // namespace coreai::grammar
