// What the exporter authors, run by our runtime and held against an independent NumPy forward pass (recorded calls).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <ostream>

#include "coreai/base/mapped_file.h"
#include "coreai/exporter/llm_exporter.h"
#include "coreai/runtime/ai_model.h"

namespace coreai {
namespace {

using Json = nlohmann::ordered_json;

const std::filesystem::path kFolder = std::filesystem::path(COREAI_FIXTURE_DIR) / "gguf";

struct Export {
  std::string model;
  Precision precision = Precision::kStrict;
  DType compute = DType::kF32;
  bool composites = true;
  double tolerance = 2e-3;  // of logits that reach +-9: a key or value near a rounding edge of the f16 cache
};
std::ostream& operator<<(std::ostream& out, const Export& run) {
  return out << run.model << " " << precision_name(run.precision) << " " << dtype_name(run.compute)
             << (run.composites ? "" : " written out");
}

AIModel export_and_load(const Export& run) {
  const GgufFile file = GgufFile::open(kFolder / (run.model + ".gguf"));
  LlmExportOptions options;
  options.compute_precision = run.compute;
  options.composites = run.composites;
  SpecializationOptions specialization;
  specialization.precision = run.precision;
  specialization.threads = 2;
  specialization.use_cache = false;
  return AIModel::from_module(author_decoder(file, options), specialization);
}

NDArray integers(const Json& tensor) {
  const std::string hex = tensor["data"];
  std::vector<std::int32_t> values(hex.size() / 8);
  auto* bytes = reinterpret_cast<unsigned char*>(values.data());
  for (std::size_t i = 0; i < hex.size() / 2; ++i)
    bytes[i] = static_cast<unsigned char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  return NDArray::from<std::int32_t>(DType::kSI32, Shape{1, static_cast<std::int64_t>(values.size())}, values);
}

class ExportedRun : public testing::TestWithParam<Export> {};

TEST_P(ExportedRun, GivesTheRecordedLogits) {
  const Export& run = GetParam();
  const AIModel model = export_and_load(run);
  const InferenceFunction function = model.load_function();
  const Json document = Json::parse(read_text_file(kFolder / (run.model + ".cases.json")));
  const auto blob = MappedFile::open(kFolder / (run.model + ".cases.bin"));
  const Json& test = document["cases"][0];
  const Shape shape(test["states"][0]["shape"].get<std::vector<std::int64_t>>());
  State keys = function.make_state("keyCache", shape), values = function.make_state("valueCache", shape);
  State* states[] = {&keys, &values};
  double worst = 0;
  for (const Json& call : test["calls"]) {
    const NamedArrays outputs = function.run(
        {{"input_ids", integers(call["inputs"][0])}, {"position_ids", integers(call["inputs"][1])}}, states);
    ASSERT_EQ(outputs.size(), 1u);
    const Json& expected = call["outputs"][0];
    const NDArray& logits = outputs[0].second;
    ASSERT_EQ(logits.shape(), Shape(expected["shape"].get<std::vector<std::int64_t>>()));
    std::vector<double> got(static_cast<std::size_t>(logits.element_count()));
    read_as_f64(logits, got);
    const std::byte* want = blob->bytes().data() + expected["offset"].get<std::size_t>();
    for (std::size_t i = 0; i < got.size(); ++i) {
      float value;
      std::memcpy(&value, want + 4 * i, 4);
      worst = std::max(worst, std::isfinite(got[i]) ? std::abs(got[i] - static_cast<double>(value)) : INFINITY);
    }
  }
  RecordProperty("worst_error", std::to_string(worst));
  EXPECT_LE(worst, run.tolerance) << function.execution_kind();
  std::printf("  worst error %.2g (%s)\n", worst, function.execution_kind().c_str());
}

// Faithful: activations as two digits of 8 bits. f16 keeps 11 bits of every activation, bf16 eight.
INSTANTIATE_TEST_SUITE_P(All, ExportedRun,
                         testing::Values(Export{"tiny_llama"}, Export{"tiny_gemma3"},
                                         Export{"tiny_llama", Precision::kStrict, DType::kF32, false},
                                         Export{"tiny_gemma3", Precision::kStrict, DType::kF32, false},
                                         Export{"tiny_llama", Precision::kFaithful, DType::kF32, true, 5e-3},
                                         Export{"tiny_gemma3", Precision::kFaithful, DType::kF32, true, 5e-3},
                                         Export{"tiny_llama", Precision::kFaithful, DType::kF32, false, 5e-3},
                                         Export{"tiny_gemma3", Precision::kFaithful, DType::kF32, false, 5e-3},
                                         Export{"tiny_llama", Precision::kFaithful, DType::kF16, true, 0.02},
                                         Export{"tiny_gemma3", Precision::kFaithful, DType::kF16, true, 0.02},
                                         Export{"tiny_llama", Precision::kFaithful, DType::kBF16, true, 0.15},
                                         Export{"tiny_gemma3", Precision::kFaithful, DType::kBF16, true, 0.15}),
                         [](const auto& instance) {
                           std::string name;
                           for (const char c : testing::PrintToString(instance.param)) name += c == ' ' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace coreai
