// One sequence of a decoder: its states and its invocation, as tests use them.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "coreai/runtime/ai_model.h"

namespace coreai::testing_support {

class Sequence {
 public:
  explicit Sequence(const InferenceFunction& function, std::int64_t capacity = 128)
      : call_(function.make_invocation()) {
    for (const ValueDescriptor& state : function.descriptor().states) {
      Shape shape = state.shape;
      for (std::size_t d = 0; d < shape.rank(); ++d) {
        if (shape[d] == kDynamic) shape[d] = capacity;
      }
      states_.push_back(function.make_state(state.name, shape));
    }
    for (std::size_t i = 0; i < states_.size(); ++i) call_.set_state(i, states_[i]);
  }

  // Appends tokens; the logits of the last `rows` of them (-1: all), row by row.
  std::vector<float> step(const std::vector<std::int32_t>& ids, std::int64_t rows = -1) {
    length_ += ids.size();
    std::vector<std::int32_t> positions(length_);
    std::iota(positions.begin(), positions.end(), 0);
    return step_at(ids, positions, rows);
  }
  std::vector<float> step_at(const std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& positions,
                             std::int64_t rows = -1) {
    const auto row = [](const std::vector<std::int32_t>& values) {
      return NDArray::from<std::int32_t>(DType::kSI32, {1, static_cast<std::int64_t>(values.size())}, values);
    };
    call_.set_input(0, row(ids));
    call_.set_input(1, row(positions));
    call_.set_last_rows(0, rows);
    call_.run();
    const NDArray& logits = call_.output(0);
    std::vector<double> wide(static_cast<std::size_t>(logits.element_count()));
    read_as_f64(logits, wide);
    return {wide.begin(), wide.end()};
  }

  Invocation& call() { return call_; }
  std::vector<State>& states() { return states_; }

 private:
  Invocation call_;
  std::vector<State> states_;
  std::size_t length_ = 0;
};

// The largest magnitude of logits.
inline float largest(const std::vector<float>& v) {
  float m = 0;
  for (float x : v) m = std::max(m, std::fabs(x));
  return m;
}

// The largest difference; infinite when the counts differ.
inline float distance(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  float m = 0;
  for (std::size_t i = 0; i < a.size(); ++i) m = std::max(m, std::fabs(a[i] - b[i]));
  return m;
}

// Decoders of tests/fixtures that a plan serves, by their path below it.
inline std::vector<std::string> planned_decoders() {
  return {"tiny_llm/f32/tiny-llama-random-f32.aimodel",
          "tiny_llm/q4/tiny-llama-random-q4.aimodel",
          "tiny_llm/f16/tiny-llama-random-f16.aimodel",
          "tiny_llm/f32_composites/tiny-llama-random-f32.aimodel",
          "genuine/qwen2_4bit_b2/qwen2_4bit_b2.aimodel",
          "genuine/qwen2_4bit_b3/qwen2_4bit_b3.aimodel",
          "genuine/qwen2_bf16_b3/qwen2_bf16_b3.aimodel",
          "genuine/qwen3_4bit_b3/qwen3_4bit_b3.aimodel",
          "genuine/qwen3_4bit_debuginfo_b3/qwen3_4bit_debuginfo_b3.aimodel",
          "genuine/qwen3_4bit_staticcache_b2/qwen3_4bit_staticcache_b2.aimodel",
          "genuine/qwen3_5l_f32_b3/qwen3_5l_f32_b3.aimodel",
          "genuine/qwen3_f16/qwen3_f16.aimodel",
          "genuine/qwen3_f32_b3/qwen3_f32_b3.aimodel",
          "genuine/mistral_4bit_b3/mistral_4bit_b3.aimodel",
          "genuine/phi3_f16_b3/phi3_f16_b3.aimodel",
          "genuine/gemma3_2l_f32_b3/gemma3_2l_f32_b3.aimodel",
          "genuine/gemma3_f32_b3/gemma3_f32_b3.aimodel",
          "genuine/gemma3_4bit_bf16_b3/gemma3_4bit_bf16_b3.aimodel"};
}

// Decoders with mixtures of experts, also planned: their routers sort by operations that keep steps of their own.
inline std::vector<std::string> planned_mixtures() {
  return {"genuine/qwen3_moe_f32_b2/qwen3_moe_f32_b2.aimodel", "genuine/qwen3_moe_4bit_b3/qwen3_moe_4bit_b3.aimodel",
          "genuine/mixtral_4bit_b3/mixtral_4bit_b3.aimodel"};
}

inline std::filesystem::path fixture(const std::string& below) {
  return std::filesystem::path(COREAI_FIXTURE_DIR) / below;
}

// "genuine/a/b.aimodel" as a test name.
inline std::string test_name(const std::string& below) {
  std::string name = std::filesystem::path(below).parent_path().string();
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

}  // namespace coreai::testing_support
