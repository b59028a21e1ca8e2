// Every recorded asset is accepted; modules that break one rule are refused with that rule's name.
#include "coreai/ir/verifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "../asset/fixtures.h"
#include "coreai/base/error.h"
#include "coreai/ir/builder.h"
#include "genuine_text.h"

namespace coreai::ir {
namespace {

namespace fs = std::filesystem;

// Refusals of the assets below a folder that can be read at all.
std::string refusals(const fs::path& root, int& accepted) {
  std::string text;
  for (const fs::path& asset : test::assets_below(root)) {
    std::unique_ptr<Module> module;
    try {
      module = AIModelAsset::open(asset).load_module();
    } catch (const Error&) {
      continue;  // reading has its own tests
    }
    try {
      verify(*module);
      ++accepted;
    } catch (const VerificationError& error) {
      text += asset.filename().string() + ": " + error.what() + "\n";
    }
  }
  return text;
}

TEST(Verifier, AcceptsTheRecordedAssets) {
  int accepted = 0;
  EXPECT_EQ(refusals(test::fixture("op_assets"), accepted), "");
  EXPECT_EQ(refusals(test::fixture("format_fixtures"), accepted), "");
  EXPECT_GE(accepted, 178);
}

TEST(Verifier, AcceptsWhatTheExportersWrite) {
  const fs::path root = test::shared_data();
  if (!fs::exists(root)) GTEST_SKIP() << "the exporters' models are not on this machine (" << root << ")";
  int accepted = 0;
  EXPECT_EQ(refusals(root / "genuine", accepted), "");
  EXPECT_EQ(refusals(root / "tiny_llm", accepted), "");
  EXPECT_EQ(refusals(root / "op_goldens", accepted), "");
  EXPECT_GE(accepted, 191);
}

// A module with one function, a state, a callee and an `if`, which each test breaks in one way.
class BrokenModule : public testing::Test {
 protected:
  void SetUp() override {
    const Graph helper = builder_.begin_graph({"helper", {{"a", tensor_, ""}}, {{"b", tensor_, ""}}, true, true, {}});
    builder_.end_graph({builder_.op1(OpCode::kSin, {helper.body().arguments[0]}, tensor_)});
    const Graph main = builder_.begin_graph(
        {"main",
         {{"x", tensor_, ""}, {"cache", context_.handle_type(tensor_), "cache"}, {"flag", flag_, ""}},
         {{"cache", context_.token_type(), ""}, {"y", tensor_, ""}},
         false,
         false,
         {}});
    arguments_ = main.body().arguments;
    token_ = builder_.op1(OpCode::kCreateToken, {}, context_.token_type());
    read_ = builder_.op(OpCode::kReadHandle, {arguments_[1], token_}, {tensor_, context_.token_type()});
    sum_ = builder_.op1(OpCode::kAdd, {arguments_[0], read_[0]}, tensor_);
    written_ = builder_.op1(OpCode::kWriteHandle, {arguments_[1], sum_, read_[1]}, context_.token_type());
    called_ = builder_.invoke(helper, {sum_})[0];
    choice_ = &builder_.create(OpCode::kIf, {arguments_[2]}, {tensor_});
    Block* outer = builder_.block();
    for (Region& region : choice_->regions) {
      builder_.set_block(&region.block());
      builder_.create(OpCode::kYield, {called_}, {});
    }
    builder_.set_block(outer);
    softmax_ = builder_.op1(OpCode::kSoftmax, {choice_->results[0], builder_.scalar_i32(1)}, tensor_);
    builder_.end_graph({written_, softmax_});
    main_ = &main.op();
    helper_ = &helper.op();
  }

  // The error names rule, graph and every part.
  void expect_refused(const std::string& rule, const std::vector<std::string>& parts = {}) {
    try {
      verify(module_);
      ADD_FAILURE() << "accepted, [" << rule << "] expected";
    } catch (const VerificationError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("[" + rule + "]"));
      for (const std::string& part : parts) EXPECT_THAT(error.what(), testing::HasSubstr(part));
    }
  }
  Block& body() { return *main_->regions[0].blocks[0]; }
  void insert_before_end(std::unique_ptr<Op> op) { body().ops.insert(body().ops.end() - 1, std::move(op)); }
  Op& end() { return *body().ops.back(); }

  Module module_;
  Builder builder_{module_};
  Context& context_ = module_.context();
  TypeRef tensor_ = context_.tensor_type(DType::kF32, {2, 3});
  TypeRef half_ = context_.tensor_type(DType::kF16, {2, 3});
  TypeRef flag_ = context_.tensor_type(DType::kI1, Shape{});
  Op* main_ = nullptr;
  Op* helper_ = nullptr;
  Op* choice_ = nullptr;
  std::vector<Value*> arguments_, read_;
  Value *token_ = nullptr, *sum_ = nullptr, *written_ = nullptr, *called_ = nullptr, *softmax_ = nullptr;
};

TEST_F(BrokenModule, IsLegalBeforeItIsBroken) {
  EXPECT_NO_THROW(verify(module_));
}

TEST_F(BrokenModule, OperandCount) {
  sum_->op->operands.pop_back();
  expect_refused("operand-count", {"graph @main", "coreai.add", "1 operands, 2 needed"});
}

TEST_F(BrokenModule, ResultCount) {
  end().results.push_back(module_.new_value(tensor_));
  expect_refused("result-count", {"graph @main", "coreai.output"});
}

TEST_F(BrokenModule, NullOperand) {
  sum_->op->operands[0] = nullptr;
  expect_refused("value", {"graph @main"});
}

TEST_F(BrokenModule, OperandDType) {
  softmax_->op->operands[1]->type = context_.tensor_type(DType::kUI32, Shape{});
  softmax_->op->operands[1]->op->set_attribute("value", context_.dense_attr(std::vector<std::byte>(4), true));
  expect_refused("operand-dtype", {"graph @main", "coreai.softmax", "operand 1 `axis`", "tensor<ui32>", "si16, si32"});
}

TEST_F(BrokenModule, OperandRank) {
  softmax_->op->operands[1]->type = context_.tensor_type(DType::kSI32, {1});
  expect_refused("operand-rank", {"coreai.softmax", "operand 1 `axis`", "must have rank 0"});
}

TEST_F(BrokenModule, OperandIsNoTensor) {
  sum_->op->operands[1] = token_;
  expect_refused("operand-type", {"coreai.add", "!coreai.token", "is not a tensor"});
}

TEST_F(BrokenModule, EqualDTypes) {
  sum_->type = half_;
  expect_refused("equal-dtypes", {"coreai.add", "result 0", "tensor<2x3xf16>", "f32"});
}

TEST_F(BrokenModule, AttributeMissing) {
  softmax_->op->operands[1]->op->attributes[0] = nullptr;
  expect_refused("attribute-missing", {"graph @main", "coreai.constant", "`value`"});
}

TEST_F(BrokenModule, AttributeCount) {
  sum_->op->attributes.push_back(context_.unit_attr());
  expect_refused("attribute-count", {"coreai.add"});
}

TEST_F(BrokenModule, AttributeKind) {
  main_->set_attribute("noInline", context_.string_attr("yes"));
  expect_refused("attribute-kind", {"`noInline`", "serialization.string", "serialization.integer"});
}

TEST_F(BrokenModule, AttributeValue) {
  builder_.set_block(&body());
  auto& gelu = builder_.create(OpCode::kGelu, {sum_}, {tensor_},
                               {{"approximate", context_.enum_attr(AttrCode::kApproximate, 9)}});
  static_cast<void>(gelu);
  std::swap(body().ops.back(), *(body().ops.end() - 2));  // the builder appends behind `output`
  expect_refused("attribute-value", {"coreai.gelu", "`approximate`", "9"});
}

TEST_F(BrokenModule, ConstantBytes) {
  Value* axis = softmax_->op->operands[1];
  axis->op->set_attribute("value", context_.dense_attr(std::vector<std::byte>(3), false));
  expect_refused("constant", {"graph @main", "coreai.constant", "3 bytes"});
}

TEST_F(BrokenModule, DecompositionIsMissing) {
  softmax_->op->regions.clear();
  expect_refused("region-count", {"coreai.softmax", "0 regions, 1 needed"});
}

TEST_F(BrokenModule, RegionWithoutBlock) {
  choice_->regions[1].blocks.clear();
  expect_refused("region-block", {"coreai.if", "region 1 has 0 blocks"});
}

TEST_F(BrokenModule, EmptyBlock) {
  choice_->regions[1].block().ops.clear();
  expect_refused("terminator", {"coreai.if", "region 1 is empty"});
}

TEST_F(BrokenModule, WrongTerminator) {
  choice_->regions[0].block().ops.back()->code = OpCode::kOutput;
  expect_refused("terminator", {"graph @main", "coreai.output"});
}

TEST_F(BrokenModule, TerminatorInTheMiddle) {
  std::swap(body().ops.back(), *(body().ops.end() - 2));
  expect_refused("terminator", {"graph @main"});
}

TEST_F(BrokenModule, RegionYieldsAnotherType) {
  choice_->results[0]->type = half_;
  softmax_->type = tensor_;
  expect_refused("region-types", {"coreai.if", "yield of region 0", "tensor<2x3xf32>", "tensor<2x3xf16>"});
}

TEST_F(BrokenModule, UseBeforeDefinition) {
  sum_->op->operands[1] = called_;
  expect_refused("dominance", {"graph @main", "coreai.add", "operand 1"});
}

TEST_F(BrokenModule, ValueOfAnotherGraph) {
  sum_->op->operands[1] = helper_->regions[0].block().arguments[0];
  expect_refused("dominance", {"graph @main", "coreai.add"});
}

TEST_F(BrokenModule, CaptureByAnIsolatedRegion) {
  Block& decomposition = softmax_->op->regions[0].block();
  decomposition.ops.back()->operands = {sum_};
  expect_refused("dominance", {"graph @main", "coreai.yield"});
}

TEST_F(BrokenModule, ResultOfAnotherOperation) {
  called_->op->results[0] = sum_;
  expect_refused("result-link", {"graph @main", "coreai.invoke"});
}

TEST_F(BrokenModule, FunctionTypeAgainstArguments) {
  helper_->regions[0].block().arguments[0]->type = half_;
  expect_refused("graph-type", {"graph @helper", "block argument 0", "tensor<2x3xf16>", "tensor<2x3xf32>"});
}

TEST_F(BrokenModule, FunctionTypeAgainstOutputs) {
  end().operands.pop_back();
  expect_refused("graph-type", {"graph @main", "coreai.output", "1 operands, the function type has 2"});
}

TEST_F(BrokenModule, PrivateAndExternalized) {
  helper_->set_attribute("externalize", context_.flag_attr(true));
  expect_refused("graph-flags", {"graph @helper"});
}

TEST_F(BrokenModule, PortAttributes) {
  main_->set_attribute("argAttrs", context_.array_attr({context_.array_attr({})}));
  expect_refused("port-attributes", {"`argAttrs` has 1 entries, 3 are needed"});
  main_->set_attribute("argAttrs",
                       context_.array_attr({context_.unit_attr(), context_.unit_attr(), context_.unit_attr()}));
  expect_refused("port-attributes", {"entry 0"});
}

TEST_F(BrokenModule, PortNames) {
  const AttrRef named = context_.array_attr({context_.named_attr("aicode.name", {context_.string_attr("x")})});
  main_->set_attribute("argAttrs", context_.array_attr({named, named, named}));
  expect_refused("port-names", {"graph @main", "two inputs are named `x`"});
}

TEST_F(BrokenModule, SymbolsAreUnique) {
  helper_->set_attribute("name", context_.string_attr("main"));
  expect_refused("symbol", {"@main"});
}

TEST_F(BrokenModule, CalleeExists) {
  called_->op->set_attribute("callee", context_.callee_attr("gone"));
  expect_refused("callee", {"graph @main", "coreai.invoke", "@gone"});
}

TEST_F(BrokenModule, CalleeTypes) {
  called_->op->operands[0] = arguments_[2];
  expect_refused("callee-type", {"graph @main", "operand 0", "tensor<i1>", "@helper"});
}

TEST_F(BrokenModule, Recursion) {
  auto call = std::make_unique<Op>();
  call->code = OpCode::kInvoke;
  call->attributes = called_->op->attributes;
  call->operands = {helper_->regions[0].block().arguments[0]};
  Value* result = module_.new_value(tensor_);
  result->op = call.get();
  call->results = {result};
  auto& ops = helper_->regions[0].block().ops;
  ops.insert(ops.begin(), std::move(call));
  expect_refused("recursion", {"graph @helper"});
}

TEST_F(BrokenModule, HandleTypes) {
  written_->op->operands[0] = sum_;
  expect_refused("handle", {"coreai.write_handle", "is not a handle"});
}

TEST_F(BrokenModule, HandleHoldsAnotherType) {
  read_[0]->type = half_;
  sum_->op->operands[1] = arguments_[0];
  expect_refused("handle", {"coreai.read_handle", "result 0", "tensor<2x3xf32>"});
}

TEST_F(BrokenModule, TokensPerState) {
  main_->set_attribute("functionType", context_.type_attr(context_.function_type(
                                           {tensor_, context_.handle_type(tensor_), flag_}, {tensor_})));
  main_->set_attribute("resAttrs", context_.array_attr({}));
  end().operands = {softmax_};
  expect_refused("state-tokens", {"graph @main", "1 states, but 0 tokens"});
}

TEST_F(BrokenModule, WriteDoesNotFollowTheRead) {
  written_->op->operands[2] = token_;
  expect_refused("token-order", {"graph @main", "coreai.write_handle", "other accesses"});
}

TEST_F(BrokenModule, ReadDoesNotFollowTheWrite) {
  auto read = std::make_unique<Op>();
  read->code = OpCode::kReadHandle;
  read->operands = {arguments_[1], read_[1]};
  for (const TypeRef type : {tensor_, context_.token_type()}) {
    Value* result = module_.new_value(type);
    result->op = read.get();
    result->index = static_cast<std::uint32_t>(read->results.size());
    read->results.push_back(result);
  }
  insert_before_end(std::move(read));
  expect_refused("token-order", {"coreai.read_handle", "last write"});
}

TEST_F(BrokenModule, UnknownOperationInTheModule) {
  auto op = std::make_unique<Op>();
  op->code = OpCode::kCreateToken;
  module_.body().ops.push_back(std::move(op));
  expect_refused("module-op", {"module"});
}

TEST(Verifier, TakesTimeLinearInTheProgram) {
  // A chain of 40,000 operations and one of 80,000: twice the time, with room for a busy machine.
  const auto seconds = [](int count) {
    Module module;
    Builder builder(module);
    const TypeRef tensor = module.context().tensor_type(DType::kF32, {2});
    const Graph graph = builder.begin_graph({"main", {{"x", tensor, ""}}, {{"y", tensor, ""}}, false, false, {}});
    Value* value = graph.body().arguments[0];
    for (int i = 0; i < count; ++i) value = builder.op1(OpCode::kSin, {value}, tensor);
    builder.end_graph({value});
    const auto start = std::chrono::steady_clock::now();
    verify(module);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  seconds(1000);
  double small = seconds(40'000), large = seconds(80'000);
  for (int i = 0; i < 2; ++i) {
    small = std::min(small, seconds(40'000));
    large = std::min(large, seconds(80'000));
  }
  EXPECT_LT(large, 8 * small);
}

}  // namespace
}  // namespace coreai::ir
