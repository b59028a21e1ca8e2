#include "coreai/ir/builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "coreai/base/error.h"

namespace coreai::ir {
namespace {

using ::testing::ElementsAre;

TEST(Builder, GraphWithCallAndState) {
  Module module;
  Builder builder(module);
  Context& context = module.context();
  const TypeRef tensor = context.tensor_type(DType::kF32, {2, 3});
  CompositeDecl declaration{"rms_norm", {"input"}, {"output"}, {{"eps", context.float_attr(1e-6)}}};
  const Graph callee =
      builder.begin_graph({"norm", {{"input", tensor, ""}}, {{"output", tensor, ""}}, true, true, declaration});
  Value* argument = callee.body().arguments[0];
  builder.end_graph({builder.op1(OpCode::kSilu, {argument}, tensor)});

  const Graph main = builder.begin_graph({"main",
                                          {{"x", tensor, ""}, {"cache", context.handle_type(tensor), "cache"}},
                                          {{"cache", context.token_type(), ""}, {"y", tensor, ""}},
                                          false,
                                          false,
                                          std::nullopt});
  Value* token = builder.op1(OpCode::kCreateToken, {}, context.token_type());
  Value* written = builder.op1(OpCode::kWriteHandle, {main.body().arguments[1], main.body().arguments[0], token},
                               context.token_type());
  const std::vector<Value*> results = builder.invoke(callee, {main.body().arguments[0]});
  EXPECT_THROW(builder.end_graph({results[0]}), VerificationError);
  builder.end_graph({written, results[0]});

  ASSERT_EQ(module.functions().size(), 1u);
  EXPECT_EQ(module.functions()[0].name(), "main");
  EXPECT_THAT(main.input_names(), ElementsAre("x", "cache"));
  EXPECT_THAT(main.output_names(), ElementsAre("cache", "y"));
  EXPECT_EQ(main.argument_attribute(1, "MutableBuffers.buffer_mutation")->as_string(), "cache");
  EXPECT_EQ(main.argument_attribute(0, "MutableBuffers.buffer_mutation"), nullptr);
  EXPECT_EQ(module.callee(*results[0]->op).name(), "norm");
  ASSERT_TRUE(callee.composite());
  EXPECT_EQ(callee.composite()->name, "rms_norm");
  EXPECT_NEAR(callee.composite()->attribute("eps")->as_float(), 1e-6, 1e-12);
  // A decomposable operation has a legal body.
  const Op& silu = *callee.body().ops[0];
  EXPECT_EQ(silu.regions.at(0).block().arguments.size(), 1u);
  EXPECT_EQ(silu.regions.at(0).block().terminator().code, OpCode::kYield);
}

TEST(Builder, UnknownCalleeIsNamed) {
  Module module;
  Builder builder(module);
  const TypeRef tensor = module.context().tensor_type(DType::kF32, {1});
  builder.begin_graph({"main", {{"x", tensor, ""}}, {}, false, false, std::nullopt});
  Op& call = builder.create(OpCode::kInvoke, {}, {}, {{"callee", module.context().callee_attr("ns::gone")}});
  try {
    static_cast<void>(module.callee(call));
    FAIL();
  } catch (const VerificationError& error) {
    EXPECT_NE(std::string(error.what()).find("ns::gone"), std::string::npos);
  }
}

class BuilderConstant : public ::testing::Test {
 protected:
  void SetUp() override { builder_.begin_graph({"main", {}, {}, false, false, std::nullopt}); }
  AttrCode form(const Value* value) { return value->op->required("value").code(); }

  Module module_;
  Builder builder_{module_};
};

TEST_F(BuilderConstant, SmallOnesAreInlineLargeOnesAreResources) {
  std::vector<float> values(300);
  std::iota(values.begin(), values.end(), 0.0f);
  const NDArray large = NDArray::from<float>(DType::kF32, {300}, values);
  const NDArray small = NDArray::from<float>(DType::kF32, {255}, std::span(values).first(255));
  EXPECT_EQ(form(builder_.constant(small)), AttrCode::kSerializationDenseElements);
  Value* stored = builder_.constant(large);
  EXPECT_EQ(form(stored), AttrCode::kSerializationDenseResource);
  EXPECT_EQ(builder_.constant(large.clone()), stored);  // equal constants are one
  EXPECT_EQ(module_.resources.size(), 1u);
  const NDArray back = constant_value(*stored->op);
  EXPECT_EQ(back.bytes().data(), large.bytes().data());  // not copied
}

TEST_F(BuilderConstant, SplatsOfEveryKind) {
  Value* ones = builder_.splat(DType::kF16, {1000, 1000}, 1.0);
  EXPECT_EQ(ones->op->required("value").field<std::vector<std::byte>>(1).size(), 2u);
  ASSERT_TRUE(constant_splat(*ones->op));
  EXPECT_EQ(constant_splat(*ones->op)->values<std::uint16_t>()[0], 0x3C00);
  EXPECT_EQ(constant_value(*ones->op).values<std::uint16_t>()[999999], 0x3C00);

  Value* truth = builder_.splat(DType::kI1, {5}, 1.0);
  EXPECT_EQ(truth->op->required("value").field<std::vector<std::byte>>(1).size(), 5u);
  EXPECT_EQ(constant_value(*truth->op).values<std::uint8_t>()[4], 1);

  Value* nibble = builder_.splat(DType::kSI4, {3}, -2.0);
  std::vector<double> elements(3);
  read_as_f64(constant_value(*nibble->op), elements);
  EXPECT_THAT(elements, ElementsAre(-2.0, -2.0, -2.0));

  Value* bit = builder_.splat(DType::kUI1, {1}, 1.0);
  EXPECT_EQ(bit->op->required("value").field<std::vector<std::byte>>(1)[0], std::byte{0xff});
  EXPECT_EQ(constant_value(*bit->op).bytes()[0], std::byte{1});
}

// Widths that do not divide a byte repeat over three; lengths that end inside a byte leave zero bits behind.
TEST_F(BuilderConstant, SplatsOfEveryWidthBelowAByte) {
  for (const DType dtype : {DType::kUI2, DType::kUI3, DType::kUI4, DType::kUI6, DType::kSI2, DType::kSI4}) {
    for (const std::int64_t count : {2, 3, 5, 8, 9, 33, 1000}) {
      const Value* splat = builder_.splat(dtype, {count}, 1.0);
      const NDArray value = constant_value(*splat->op);
      EXPECT_EQ(value.bytes().size(), dtype_bytes(dtype, static_cast<std::uint64_t>(count)));
      std::vector<double> elements(static_cast<std::size_t>(count));
      read_as_f64(value, elements);
      EXPECT_THAT(elements, ::testing::Each(1.0)) << dtype_name(dtype) << " x " << count;
      const auto used = static_cast<int>(count * dtype_bits(dtype) % 8);
      if (used) {
        EXPECT_EQ(static_cast<unsigned>(value.bytes().back()) >> used, 0u) << dtype_name(dtype);
      }
    }
  }
}

TEST_F(BuilderConstant, SubByteOnesArePackedResources) {
  NDArray value(DType::kSI4, {5});
  const std::vector<double> elements = {1, -8, 7, 0, -1};
  write_from_f64(value, elements);
  Value* stored = builder_.constant(value);
  EXPECT_EQ(form(stored), AttrCode::kSerializationDenseResource);
  std::vector<double> back(5);
  read_as_f64(constant_value(*stored->op), back);
  EXPECT_EQ(back, elements);
}

TEST_F(BuilderConstant, WrongSizesAreRefused) {
  Context& context = module_.context();
  const TypeRef type = context.tensor_type(DType::kF32, {4});
  Value* shorter =
      builder_.op1(OpCode::kConstant, {}, type, {{"value", context.dense_attr(std::vector<std::byte>(12), false)}});
  EXPECT_THROW(constant_value(*shorter->op), VerificationError);
  auto resource = std::make_shared<const Resource>(Resource{"r", 16, Storage::allocate(12), 0, 12});
  Value* blob = builder_.op1(OpCode::kConstant, {}, type, {{"value", context.resource_attr(resource)}});
  EXPECT_THROW(constant_value(*blob->op), VerificationError);
  const TypeRef huge = context.tensor_type(DType::kF32, {std::int64_t{1} << 40});
  Value* splat =
      builder_.op1(OpCode::kConstant, {}, huge, {{"value", context.dense_attr(std::vector<std::byte>(4), true)}});
  EXPECT_THROW(constant_value(*splat->op), VerificationError);
  EXPECT_TRUE(constant_splat(*splat->op));
  const TypeRef dynamic = context.tensor_type(DType::kF32, {kDynamic});
  Value* unknown = builder_.op1(OpCode::kConstant, {}, dynamic, {{"value", context.dense_attr({}, false)}});
  EXPECT_THROW(constant_value(*unknown->op), VerificationError);
}

}  // namespace
}  // namespace coreai::ir
