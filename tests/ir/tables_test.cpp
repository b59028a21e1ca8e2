#include <gtest/gtest.h>

#include <set>

#include "coreai/base/error.h"
#include "coreai/ir/context.h"
#include "coreai/ir/op_code.h"

namespace coreai::ir {
namespace {

TEST(Tables, OpsByName) {
  EXPECT_EQ(all_ops().size(), 161u);
  std::set<std::string_view> names;
  for (const OpCode code : all_ops()) {
    const OpInfo& info = op_info(code);
    EXPECT_EQ(info.code, code);
    EXPECT_EQ(op_from_disk_name(info.disk_name), code);
    EXPECT_TRUE(names.insert(info.disk_name).second) << info.disk_name;
  }
  EXPECT_EQ(op_from_disk_name("primitive.add_v9"), std::nullopt);
  EXPECT_EQ(op_from_text_name("coreai.tile"), OpCode::kTile);  // the newest version
  EXPECT_EQ(op_from_text_name("coreai.delegate"), OpCode::kExecutionDelegate);
  const OpInfo& graph = op_info(OpCode::kGraph);
  EXPECT_EQ(graph.attribute_index("compositeDecl"), 1);
  EXPECT_TRUE(graph.attributes[1].optional);
  EXPECT_FALSE(graph.attributes[0].optional);
  EXPECT_EQ(graph.attribute_index("none"), -1);
}

TEST(Tables, CodesAndFields) {
  EXPECT_EQ(find_attr_info(8), nullptr);
  EXPECT_EQ(find_attr_info(48), nullptr);
  EXPECT_EQ(find_attr_info(~std::uint64_t{0}), nullptr);
  EXPECT_EQ(find_type_info(0), nullptr);
  const CodeInfo& integer = attr_info(AttrCode::kSerializationInteger);
  ASSERT_EQ(integer.fields.size(), 3u);
  EXPECT_EQ(integer.fields[2].kind, FieldKind::kApInt);
  EXPECT_EQ(attr_info(AttrCode::kSparseTensorEncoding).fields[3].kind, FieldKind::kOptionalVarint);
  EXPECT_EQ(attr_info(AttrCode::kFourcc).fields[0].enum_name, "FourCC");
  for (std::uint64_t code = 0; code < 64; ++code) {
    const CodeInfo* info = find_type_info(code);
    EXPECT_TRUE(!info || info->code == static_cast<int>(code));
  }
}

TEST(Tables, Enums) {
  EXPECT_EQ(enum_case_name("PaddingMode", 1), "constant");
  EXPECT_EQ(enum_case_name("AllocationType", 1), "IOSurface");
  EXPECT_EQ(enum_case_name("PaddingMode", 99), "");
  EXPECT_EQ(enum_case_name("LifecyclePhase", 5), "init_prepare");
  EXPECT_EQ(enum_case_name("DIFlags", 4 | 8), "FwdDecl|AppleBlock");
}

TEST(Tables, EveryDtypeIsAnElementType) {
  Context context;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const TypeRef element = context.element_type(dtype);
    EXPECT_TRUE(element->is_element());
    EXPECT_EQ(element->dtype(), dtype);
    EXPECT_EQ(context.tensor_type(dtype, {2, kDynamic})->dtype(), dtype);
  }
}

TEST(Tables, AttributesAreInterned) {
  Context context;
  EXPECT_EQ(context.string_attr("a"), context.string_attr("a"));
  EXPECT_NE(context.string_attr("a"), context.string_attr("b"));
  EXPECT_EQ(context.tensor_type(DType::kF32, {1, kDynamic}), context.tensor_type(DType::kF32, {1, kDynamic}));
  EXPECT_NE(context.integer_attr(1, 32), context.integer_attr(1, 64));
  EXPECT_EQ(context.integer_attr(-5, 16)->as_int(), -5);
  EXPECT_EQ(context.integer_attr(65535, 16, true)->as_int(), 65535);
  EXPECT_EQ(context.bool_attr(true)->as_int(), -1);
  EXPECT_EQ(context.float_attr(1.5, 16)->as_float(), 1.5);
  EXPECT_THROW(static_cast<void>(context.unit_attr()->as_int()), VerificationError);
  EXPECT_THROW(static_cast<void>(context.token_type()->shape()), VerificationError);
  EXPECT_EQ(context.handle_type(context.tensor_type(DType::kF16, {3}))->shape()[0], 3);
}

}  // namespace
}  // namespace coreai::ir
