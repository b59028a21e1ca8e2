#include "backend/cpu/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "backend/cpu/linear_test_support.h"
#include "coreai/base/error.h"
#include "coreai/base/float_types.h"

namespace coreai::cpu {
namespace {

using test::AlignedBytes;
using test::Weight;
using test::WeightSpec;

// Relative L2 errors that the precisions promise, for activations with outliers of 12x.
double promised_error(Digits digits) {
  switch (digits) {
    case Digits::kFast:
      return 3e-2;
    case Digits::kFaithful:
      return 1e-4;
    case Digits::kExact:
      break;
  }
  return 4e-7;
}

std::vector<Isa> levels() {
  std::vector<Isa> result;
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (isa_supported(isa)) result.push_back(isa);
  }
  return result;
}

struct Case {
  std::string name;
  WeightSpec spec;
};

void PrintTo(const Case& c, std::ostream* os) {
  *os << c.name;
}

class LinearCases : public ::testing::TestWithParam<Case> {};

TEST_P(LinearCases, MatchesADoubleLoop) {
  const Weight weight(GetParam().spec, 1);
  const AlignedBytes packed = test::pack_all({weight.source()}, {});
  const PackedMatrix matrix = PackedMatrix::view(packed.span(), "test");
  const auto x = test::random_activations(3, weight.k(), 2);
  const std::vector<double> expected = test::reference(weight.dense(), x, 3, weight.n(), weight.k());
  for (const Digits digits : {Digits::kFast, Digits::kFaithful, Digits::kExact}) {
    const double limit = matrix.takes_digits() ? promised_error(digits) : 7e-7;
    for (const Isa isa : levels()) {
      const auto y = test::run(matrix, x, 3, digits, isa);
      EXPECT_LT(test::relative_error(y, expected), limit) << isa_name(isa) << " digits " << static_cast<int>(digits);
    }
  }
}

TEST_P(LinearCases, GivesTheSameBitsForAnyRowsChunksAndLevel) {
  constexpr std::int64_t kRows = 130;
  const Weight weight(GetParam().spec, 3);
  const AlignedBytes packed = test::pack_all({weight.source()}, {});
  const PackedMatrix matrix = PackedMatrix::view(packed.span(), "test");
  const auto x = test::random_activations(kRows, weight.k(), 4);
  for (const Digits digits : {Digits::kFast, Digits::kFaithful, Digits::kExact}) {
    // The portable level row by row is the definition.
    std::vector<float> expected;
    for (std::int64_t r = 0; r < kRows; ++r) {
      if (r >= 9 && r < kRows - 3) {  // enough rows of the slowest level; the others are compared among themselves
        expected.insert(expected.end(), static_cast<std::size_t>(weight.n()), 0.0f);
        continue;
      }
      const auto row = test::run(matrix, std::span(x).subspan(r * weight.k(), weight.k()), 1, digits, Isa::kPortable);
      expected.insert(expected.end(), row.begin(), row.end());
    }
    for (const Isa isa : levels()) {
      if (isa == Isa::kPortable) continue;
      const auto all = test::run(matrix, x, kRows, digits, isa);
      for (std::int64_t r = 0; r < kRows; ++r) {
        if (r >= 9 && r < kRows - 3) continue;
        ASSERT_EQ(std::memcmp(&all[r * weight.n()], &expected[r * weight.n()], 4 * weight.n()), 0)
            << isa_name(isa) << " row " << r << " digits " << static_cast<int>(digits);
      }
      for (const std::int64_t m : {1, 2, 3, 7, 65}) {
        const std::int64_t first = kRows - m;
        const auto some = test::run(matrix, std::span(x).subspan(first * weight.k()), m, digits, isa);
        ASSERT_EQ(std::memcmp(some.data(), &all[first * weight.n()], 4 * some.size()), 0)
            << isa_name(isa) << " m " << m;
      }
    }
    if (!matrix.takes_digits()) break;
  }
}

std::vector<Case> cases() {
  std::vector<Case> result;
  const auto add = [&](std::string name, WeightSpec spec) { result.push_back({std::move(name), spec}); };
  using enum DType;
  add("ui4_q4_1", {.dtype = kUI4, .n = 96, .k = 576, .block = 32, .scale = kF16, .offset2 = kF16});
  add("ui4_q4_1_ragged", {.dtype = kUI4, .n = 45, .k = 1536, .block = 32, .scale = kF16, .offset2 = kF16});
  add("si4_block32", {.dtype = kSI4, .n = 33, .k = 224, .block = 32, .scale = kF16});
  add("si4_f32_scales", {.dtype = kSI4, .n = 64, .k = 128, .block = 32, .scale = kF32});
  add("si4_bf16_scales", {.dtype = kSI4, .n = 64, .k = 128, .block = 64, .scale = kBF16});
  add("ui4_zero_points", {.dtype = kUI4, .n = 70, .k = 256, .block = 128, .scale = kF16, .offset1 = true});
  add("ui4_f32_offsets", {.dtype = kUI4, .n = 32, .k = 96, .block = 32, .scale = kF32, .offset2 = kF32});
  add("si4_per_row_odd_k", {.dtype = kSI4, .n = 37, .k = 101, .block = 101, .scale = kF16});
  add("si4_per_tensor", {.dtype = kSI4, .n = 40, .k = 64, .block = 64, .rows_per_scale = 40, .scale = kF16});
  add("si4_row_groups", {.dtype = kSI4, .n = 48, .k = 64, .block = 32, .rows_per_scale = 8, .scale = kF16});
  add("ui4_block16", {.dtype = kUI4, .n = 50, .k = 208, .block = 16, .scale = kF16, .offset2 = kF16});
  add("si4_block48", {.dtype = kSI4, .n = 34, .k = 240, .block = 48, .scale = kF16});
  add("si8_block32", {.dtype = kSI8, .n = 96, .k = 576, .block = 32, .scale = kF16});
  add("si8_block16_q6_k", {.dtype = kSI8, .n = 47, .k = 272, .block = 16, .scale = kF32});
  add("si8_per_row", {.dtype = kSI8, .n = 31, .k = 75, .block = 75, .scale = kF32});
  add("ui8_zero_points", {.dtype = kUI8, .n = 33, .k = 320, .block = 64, .scale = kF16, .offset1 = true});
  add("ui8_offsets", {.dtype = kUI8, .n = 33, .k = 128, .block = 32, .scale = kBF16, .offset1 = true, .offset2 = kF16});
  add("si8_plain", {.dtype = kSI8, .n = 35, .k = 70, .block = 0});
  add("si2", {.dtype = kSI2, .n = 40, .k = 96, .block = 32, .scale = kF16});
  add("ui1", {.dtype = kUI1, .n = 32, .k = 65, .block = 65, .scale = kF16, .offset2 = kF16});
  add("ui2", {.dtype = kUI2, .n = 33, .k = 64, .block = 32, .scale = kF16, .offset1 = true});
  add("ui3", {.dtype = kUI3, .n = 33, .k = 160, .block = 32, .scale = kF16, .offset1 = true});
  add("ui6", {.dtype = kUI6, .n = 33, .k = 160, .block = 32, .scale = kF16, .offset1 = true});
  add("si4_block24_as_float", {.dtype = kSI4, .n = 33, .k = 120, .block = 24, .scale = kF16});
  add("f16", {.dtype = kF16, .n = 70, .k = 576});
  add("f16_ragged", {.dtype = kF16, .n = 5, .k = 131});
  add("f16_transposed", {.dtype = kF16, .n = 33, .k = 130, .transposed = true});
  add("bf16", {.dtype = kBF16, .n = 64, .k = 300});
  add("f32", {.dtype = kF32, .n = 67, .k = 257});
  add("f32_transposed", {.dtype = kF32, .n = 32, .k = 64, .transposed = true});
  add("one_by_one", {.dtype = kSI8, .n = 1, .k = 1, .block = 1, .scale = kF32});
  return result;
}

INSTANTIATE_TEST_SUITE_P(All, LinearCases, ::testing::ValuesIn(cases()),
                         [](const auto& param_info) { return param_info.param.name; });

TEST(Linear, ConcatenatedSourcesAreTheirRowsInOrder) {
  const Weight q({.dtype = DType::kSI4, .n = 48, .k = 64, .block = 32, .scale = DType::kF16}, 5);
  const Weight k({.dtype = DType::kSI8, .n = 20, .k = 64, .block = 64, .scale = DType::kF32}, 6);
  const Weight v({.dtype = DType::kUI4, .n = 40, .k = 64, .block = 16, .scale = DType::kF16, .offset2 = DType::kF16},
                 7);
  MatrixSource part = v.source();
  part.row_begin = 3;
  part.row_end = 30;
  const AlignedBytes packed = test::pack_all({q.source(), k.source(), part}, {});
  const PackedMatrix matrix = PackedMatrix::view(packed.span(), "test");
  ASSERT_EQ(matrix.n(), 48 + 20 + 27);
  ASSERT_EQ(matrix.kind(), WeightKind::kU8);
  std::vector<float> dense = q.dense();
  const std::vector<float> k_dense = k.dense();
  const std::vector<float> v_dense = v.dense();
  dense.insert(dense.end(), k_dense.begin(), k_dense.end());
  dense.insert(dense.end(), v_dense.begin() + 3 * 64, v_dense.begin() + 30 * 64);
  const auto x = test::random_activations(5, 64, 8);
  const auto expected = test::reference(dense, x, 5, matrix.n(), 64);
  for (const Isa isa : levels()) {
    EXPECT_LT(test::relative_error(test::run(matrix, x, 5, Digits::kExact, isa), expected), 4e-7);
  }
}

TEST(Linear, StoresBiasActivationAndResidual) {
  constexpr std::int64_t kM = 4;
  constexpr std::int64_t kN = 50;
  constexpr std::int64_t kK = 96;
  const Weight gate({.dtype = DType::kSI4, .n = kN, .k = kK, .block = 32, .scale = DType::kF16}, 9);
  const Weight up({.dtype = DType::kSI4, .n = kN, .k = kK, .block = 32, .scale = DType::kF16}, 10);
  const AlignedBytes pair = test::pack_all({gate.source(), up.source()}, {.gate_up = true});
  const AlignedBytes alone = test::pack_all({gate.source()}, {});
  const PackedMatrix pair_matrix = PackedMatrix::view(pair.span(), "test");
  const PackedMatrix alone_matrix = PackedMatrix::view(alone.span(), "test");
  ASSERT_EQ(pair_matrix.outputs(), kN);
  const auto x = test::random_activations(kM, kK, 11);
  const auto bias = test::random_activations(1, 2 * kN, 12);
  const auto residual = test::random_activations(kM, kN + 6, 13);
  const auto gates = test::reference(gate.dense(), x, kM, kN, kK);
  const auto ups = test::reference(up.dense(), x, kM, kN, kK);
  for (const Activation activation :
       {Activation::kIdentity, Activation::kSilu, Activation::kGeluTanh, Activation::kGeluErf}) {
    std::vector<double> expected_pair(kM * kN);
    std::vector<double> expected_alone(kM * kN);
    for (std::int64_t i = 0; i < kM * kN; ++i) {
      const double g = test::activation_of(activation, gates[i] + bias[i % kN]);
      const double r = residual[i / kN * (kN + 6) + i % kN];
      expected_pair[i] = g * (ups[i] + bias[kN + i % kN]) + r;
      expected_alone[i] = g + r;
    }
    std::vector<float> portable;
    for (const Isa isa : levels()) {
      LinearArgs args{.bias = bias.data(),
                      .residual = residual.data(),
                      .residual_stride = kN + 6,
                      .activation = activation,
                      .precision = Digits::kExact,
                      .isa = isa};
      const auto y = test::run(pair_matrix, x, kM, args);
      EXPECT_LT(test::relative_error(y, expected_pair), 1e-6) << isa_name(isa);
      EXPECT_LT(test::relative_error(test::run(alone_matrix, x, kM, args), expected_alone), 1e-6) << isa_name(isa);
      if (portable.empty()) portable = y;
      EXPECT_EQ(std::memcmp(portable.data(), y.data(), 4 * y.size()), 0) << isa_name(isa);
    }
  }
}

TEST(Linear, ActivationsHoldAtExtremes) {
  // y = act(x) by an identity matrix, over values where exponentials overflow or vanish.
  const std::vector<float> values = {0.0f,   -0.0f, 1e-30f, -1e-3f, 3.0f,  -3.0f, 12.0f,
                                     -12.0f, 88.0f, -88.0f, 1e4f,   -1e4f, 3e38f, -3e38f};
  const std::vector<float> one = {1.0f};
  const MatrixSource source{.dtype = DType::kF32, .data = std::as_bytes(std::span(one)), .n = 1, .k = 1};
  const AlignedBytes packed = test::pack_all({source}, {});
  const PackedMatrix matrix = PackedMatrix::view(packed.span(), "test");
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh, Activation::kGeluErf}) {
    for (const Isa isa : levels()) {
      const auto y = test::run(matrix, values, static_cast<std::int64_t>(values.size()),
                               LinearArgs{.activation = activation, .isa = isa});
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double expected = test::activation_of(activation, values[i]);
        EXPECT_NEAR(y[i], expected, 4e-7 * std::abs(expected) + 1e-7) << values[i] << " " << isa_name(isa);
      }
    }
  }
}

TEST(Linear, ZeroTinyAndNonFiniteActivations) {
  const Weight weight({.dtype = DType::kSI8, .n = 32, .k = 64, .block = 32, .scale = DType::kF16}, 14);
  const AlignedBytes packed = test::pack_all({weight.source()}, {});
  const PackedMatrix matrix = PackedMatrix::view(packed.span(), "test");
  std::vector<float> x(4 * 64, 0.0f);
  x[64] = 1e-38f;  // below the smallest scale: counts as zero
  x[2 * 64 + 5] = std::numeric_limits<float>::infinity();
  x[3 * 64 + 40] = std::numeric_limits<float>::quiet_NaN();
  for (const Isa isa : levels()) {
    const auto y = test::run(matrix, x, 4, Digits::kFaithful, isa);
    for (int i = 0; i < 64; ++i) EXPECT_EQ(y[i], 0.0f);
    for (int i = 64; i < 128; ++i) EXPECT_TRUE(std::isnan(y[i]));
  }
}

TEST(Linear, DequantisesRowsAsWritten) {
  const Weight weight({.dtype = DType::kUI4,
                       .n = 7,
                       .k = 48,
                       .block = 16,
                       .scale = DType::kF16,
                       .offset1 = true,
                       .offset2 = DType::kF16},
                      15);
  std::vector<float> row(48);
  for (std::int64_t r = 0; r < 7; ++r) {
    dequantize_row(weight.source(), r, row.data());
    for (std::int64_t c = 0; c < 48; ++c) EXPECT_FLOAT_EQ(row[c], weight.dense()[r * 48 + c]);
  }
  EXPECT_THROW(dequantize_row(weight.source(), 7, row.data()), InvalidArgumentError);
}

// A palettised matrix gives the bits of the float matrix that it stands for.
TEST(Linear, PalettesAreTheirEntries) {
  constexpr std::int64_t kN = 40, kK = 96;
  for (const DType table_dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
    for (const DType dtype : {DType::kUI1, DType::kUI2, DType::kUI4, DType::kUI6, DType::kUI8}) {
      const int bits = dtype_bits(dtype);
      std::mt19937 random(7);
      MatrixSource palettised{.dtype = dtype, .n = kN, .k = kK};
      palettised.table_dtype = table_dtype;
      palettised.table_rows = 8;
      palettised.table_columns = 48;
      const std::size_t width = dtype_bits(table_dtype) / 8, entries = std::size_t{5 * 2} << bits;
      std::vector<std::byte> data(dtype_bytes(dtype, kN * kK)), table(entries * width), dense(kN * kK * width);
      for (std::byte& b : data) b = static_cast<std::byte>(random());
      for (std::size_t i = 0; i < entries; ++i) {
        const float value = std::uniform_real_distribution<float>(-1, 1)(random);
        const std::uint16_t half = table_dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
        std::memcpy(table.data() + i * width, width == 4 ? static_cast<const void*>(&value) : &half, width);
      }
      palettised.data = data;
      palettised.table = table;
      for (std::int64_t i = 0; i < kN * kK; ++i) {
        std::size_t code = 0;
        for (std::int64_t b = 0; b < bits; ++b) {
          const std::int64_t at = i * bits + b;
          code |= (std::to_integer<std::size_t>(data[at / 8]) >> (at % 8) & 1) << b;
        }
        const std::size_t entry = (static_cast<std::size_t>(i / kK / 8 * 2 + i % kK / 48) << bits) + code;
        std::memcpy(dense.data() + static_cast<std::size_t>(i) * width, table.data() + entry * width, width);
      }
      const MatrixSource plain{.dtype = table_dtype, .data = dense, .n = kN, .k = kK};
      const AlignedBytes a = test::pack_all({palettised}, {}), b = test::pack_all({plain}, {});
      EXPECT_TRUE(std::ranges::equal(a.span(), b.span())) << dtype_name(dtype) << " " << dtype_name(table_dtype);
      std::vector<float> x(kK), y(kK);
      dequantize_row(palettised, 17, x.data());
      dequantize_row(plain, 17, y.data());
      EXPECT_EQ(x, y);
      palettised.table = std::span(table).first(table.size() - 1);
      EXPECT_THROW(dequantize_row(palettised, 0, x.data()), Error);
      palettised.table = table;
      palettised.table_rows = 7;
      EXPECT_THROW(dequantize_row(palettised, 0, x.data()), Error);
    }
  }
}

TEST(Linear, RefusesInconsistentSources) {
  const Weight weight({.dtype = DType::kSI4, .n = 8, .k = 64, .block = 32, .scale = DType::kF16}, 16);
  const auto refused = [&](auto change) {
    MatrixSource source = weight.source();
    change(source);
    EXPECT_THROW(PackPlan({source}), Error);
  };
  refused([](MatrixSource& s) { s.data = s.data.first(s.data.size() - 1); });
  refused([](MatrixSource& s) { s.scale = s.scale.first(3); });
  refused([](MatrixSource& s) { s.block = 48; });
  refused([](MatrixSource& s) { s.rows_per_scale = 3; });
  refused([](MatrixSource& s) { s.dtype = DType::kSI16; });
  refused([](MatrixSource& s) { s.scale_dtype = DType::kSI8; });
  refused([](MatrixSource& s) { s.transposed = true; });
  refused([](MatrixSource& s) { s.n = std::int64_t{1} << 40; });
  refused([](MatrixSource& s) { s.row_end = 9; });
  refused([](MatrixSource& s) { s.k = 0; });
  MatrixSource odd = weight.source();
  odd.row_end = 7;
  EXPECT_THROW(PackPlan({odd}, {.gate_up = true}), InvalidArgumentError);
  EXPECT_THROW(PackPlan({}), InvalidArgumentError);
}

TEST(Linear, RefusesDamagedPackedBytes) {
  const Weight weight({.dtype = DType::kSI4, .n = 40, .k = 64, .block = 32, .scale = DType::kF16}, 17);
  const AlignedBytes packed = test::pack_all({weight.source()}, {});
  EXPECT_THROW(PackedMatrix::view(packed.span().first(packed.span().size() - 1), "test"), MalformedError);
  EXPECT_THROW(PackedMatrix::view(packed.span().first(10), "test"), MalformedError);
  EXPECT_THROW(PackedMatrix::view({}, "test"), MalformedError);
  for (std::size_t byte = 0; byte < 56; ++byte) {
    AlignedBytes damaged = test::pack_all({weight.source()}, {});
    damaged.data()[byte] ^= std::byte{0x85};
    try {
      const PackedMatrix matrix = PackedMatrix::view(damaged.span(), "test");  // harmless changes pass: stay in bounds
      const auto x = test::random_activations(1, 64, 18);
      if (matrix.k() == 64) test::run(matrix, x, 1, Digits::kFaithful, Isa::kPortable);
    } catch (const MalformedError&) {
    }
  }
}

TEST(Linear, ChunksWriteOnlyTheirColumns) {
  const Weight weight({.dtype = DType::kSI4, .n = 100, .k = 64, .block = 32, .scale = DType::kF16}, 19);
  const AlignedBytes packed = test::pack_all({weight.source()}, {});
  const PackedMatrix matrix = PackedMatrix::view(packed.span(), "test");
  ASSERT_EQ(matrix.units(), 4);
  const auto x = test::random_activations(2, 64, 20);
  for (const Isa isa : levels()) {
    const auto whole = test::run(matrix, x, 2, Digits::kFaithful, isa);
    const AlignedBytes digits = test::quantize(x, 2, 64, Digits::kFaithful, isa);
    std::vector<float> y(2 * 100, -7.0f);
    const LinearArgs args{.weights = &matrix,
                          .m = 2,
                          .digits = digits.data(),
                          .y = y.data(),
                          .y_stride = 100,
                          .precision = Digits::kFaithful,
                          .isa = isa};
    linear_chunk(args, 3, 4);
    linear_chunk(args, 1, 2);
    for (int r = 0; r < 2; ++r) {
      for (int c = 0; c < 100; ++c) {
        const bool mine = (c >= 32 && c < 64) || c >= 96;
        EXPECT_EQ(y[r * 100 + c], mine ? whole[r * 100 + c] : -7.0f);
      }
    }
  }
}

}  // namespace
}  // namespace coreai::cpu
