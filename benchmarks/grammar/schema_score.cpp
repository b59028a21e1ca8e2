// Judges the texts of JSON Schema cases: schema_score CASES.jsonl... [--quiet] [--ignore-formats]
// [--documents DOCUMENTS.jsonl]
#include <fmt/format.h>

#include <chrono>
#include <iostream>

#include "../../tests/grammar/schema_cases.h"

int main(int argc, char** argv) {
  using namespace coreai::grammar;
  bool quiet = false;
  JsonSchemaOptions options;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--quiet")
      quiet = true;
    else if (std::string_view(argv[i]) == "--ignore-formats")
      options.assert_formats = false;
    else if (std::string_view(argv[i]) == "--documents" && i + 1 < argc)
      options.documents = read_documents(argv[++i]);
    else
      files.emplace_back(argv[i]);
  }
  for (const std::string& file : files) {
    GrammarCompiler compiler(bytes_only());
    const auto cases = read_schema_cases(file);
    const auto start = std::chrono::steady_clock::now();
    const SchemaScore score = judge(compiler, cases, options, [&](const std::string& line) {
      if (!quiet) std::cout << line << "\n";
    });
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    fmt::print(
        R"({{"file": "{}", "right": {}, "refused": {}, "valid_rejected": {}, "invalid_accepted": {}, "schemas": {}, "passing": {}, "schemas_refused": {}, "ms": {:.0f}}})"
        "\n",
        file, score.right, score.refused, score.valid_rejected, score.invalid_accepted, score.schemas, score.passing,
        score.schemas_refused, took.count());
  }
}
