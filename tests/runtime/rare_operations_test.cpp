// Operations that no recorded asset holds, in programs of our own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coreai/base/error.h"
#include "coreai/ir/builder.h"
#include "coreai/runtime/ai_model.h"

namespace coreai {
namespace {

using ir::OpCode;
using testing::HasSubstr;
using V = ir::Value*;

// A function "main" from x (f32, 4 elements) to y, which `body` makes of it.
template <typename Body>
std::unique_ptr<ir::Module> program(ir::TypeRef (*type_of_x)(ir::Context&), const Body& body) {
  auto module = std::make_unique<ir::Module>();
  ir::Builder builder(*module);
  ir::Context& context = module->context();
  ir::GraphSpec spec;
  spec.name = "main";
  spec.inputs = {{"x", type_of_x(context), ""}};
  spec.outputs = {{"y", context.tensor_type(DType::kF32, Shape{4}), ""}};
  const V x = builder.begin_graph(spec).body().arguments[0];
  builder.end_graph({body(builder, x)});
  return module;
}

ir::TypeRef four_floats(ir::Context& context) {
  return context.tensor_type(DType::kF32, Shape{4});
}

// Four elements, two of them stored.
ir::TypeRef four_sparse_bytes(ir::Context& context) {
  const std::vector<std::uint64_t> stored = {2};
  return context.tensor_type(DType::kSI8, Shape{4},
                             context.attribute(ir::AttrCode::kSparseTensorEncoding,
                                               {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1}, stored}));
}

SpecializationOptions with(Precision precision) {
  SpecializationOptions options;
  options.precision = precision;
  options.use_cache = false;
  return options;
}

std::vector<double> run(std::unique_ptr<ir::Module> module, Precision precision) {
  const InferenceFunction function = AIModel::from_module(std::move(module), with(precision)).load_function("main");
  Invocation call = function.make_invocation();
  const std::vector<float> x = {1, -2, 3, -4};
  call.set_input(0, NDArray::from(DType::kF32, Shape{4}, std::span(x)));
  call.run();
  std::vector<double> y(4);
  read_as_f64(call.output(0), y);
  return y;
}

std::string refusal(std::unique_ptr<ir::Module> module) {
  try {
    AIModel::from_module(std::move(module), with(Precision::kFaithful)).load_function("main");
  } catch (const UnsupportedError& e) {
    return e.what();
  }
  return "loaded";
}

ir::AttrRef local_variable(ir::Context& context, std::string name) {
  const ir::AttrRef none = context.unit_attr();
  const ir::TypeRef type = four_floats(context);
  return context.attribute(ir::AttrCode::kDebuginfoLocalVariable,
                           {type, std::move(name), none, none, std::uint64_t{0}, std::uint64_t{0}});
}

TEST(RareOperations, ADebugValueChangesNothing) {
  for (const Precision precision : {Precision::kStrict, Precision::kFaithful}) {
    auto module = program(four_floats, [](ir::Builder& builder, V x) {
      const V y = builder.op1(OpCode::kRelu, {x}, x->type);
      builder.create(OpCode::kDebuginfoValue, {y}, {}, {{"variable", local_variable(builder.context(), "y")}});
      return y;
    });
    EXPECT_EQ(run(std::move(module), precision), (std::vector<double>{1, 0, 3, 0}));
  }
}

TEST(RareOperations, AConversionOfTypesKeepsTheValue) {
  for (const Precision precision : {Precision::kStrict, Precision::kFaithful}) {
    auto module = program(four_floats, [](ir::Builder& builder, V x) {
      return builder.op1(OpCode::kSerializationUnrealizedConversion, {x}, x->type);
    });
    EXPECT_EQ(run(std::move(module), precision), (std::vector<double>{1, -2, 3, -4}));
  }
}

// An operation of a newer dialect whose body ends in a terminator of that dialect, too.
TEST(RareOperations, AnUnknownTerminatorIsRefused) {
  const std::string problem = refusal(program(four_floats, [](ir::Builder& builder, V x) {
    ir::Context& context = builder.context();
    const auto named = [&](const char* name) {
      return std::vector<std::pair<std::string, ir::AttrRef>>{{"opaqueAttrs", context.dictionary_attr({})},
                                                              {"opname", context.string_attr(name)}};
    };
    ir::Op& later = builder.create(OpCode::kSerializationOpaque, {x}, {x->type}, named("aicode.later_v1"));
    ir::Block* outside = builder.block();
    later.regions.resize(1);
    later.regions[0].blocks.push_back(std::make_unique<ir::Block>());
    ir::Block& body = *later.regions[0].blocks[0];
    const V inner = builder.add_argument(body, x->type);
    builder.set_block(&body);
    builder.create(OpCode::kSerializationTerminator, {inner}, {}, named("aicode.finish_v1"));
    builder.set_block(outside);
    return later.results[0];
  }));
  EXPECT_THAT(problem, HasSubstr("aicode.later_v1 is unknown"));
}

TEST(RareOperations, ASparseBlockScaleIsRefusedByName) {
  const std::string problem = refusal(program(four_sparse_bytes, [](ir::Builder& builder, V x) {
    const V scale = builder.splat(DType::kF32, Shape{4}, 1), offset = builder.splat(DType::kSI8, Shape{4}, 0);
    return builder.op1(OpCode::kSparseWithBitmaskBlockwiseShiftScale, {x, scale, offset},
                       four_floats(builder.context()));
  }));
  EXPECT_THAT(problem, HasSubstr("sparse_with_bitmask_blockwise_shift_scale"));
  EXPECT_THAT(problem, HasSubstr("sparse_with_bitmask_to_dense and blockwise_shift_scale"));
}

}  // namespace
}  // namespace coreai
