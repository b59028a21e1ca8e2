#include "upgrade.h"

#include <fmt/format.h>

#include "coreai/base/error.h"
#include "coreai/ir/builder.h"

namespace coreai::asset {
namespace {

using ir::Block;
using ir::Op;
using ir::OpCode;
using ir::TypeRef;
using ir::Value;

class Upgrader {
 public:
  explicit Upgrader(ir::Module& module) : module_(module) {}

  void run(Block& block) {
    for (std::size_t i = 0; i < block.ops.size(); ++i) {
      for (ir::Region& region : block.ops[i]->regions) {
        for (auto& inner : region.blocks) run(*inner);
      }
      block_ = &block;
      at_ = i;
      upgrade(*block.ops[i]);
      i = at_;
    }
  }

 private:
  // `at_` stays the index of the operation that is upgraded, whatever is inserted before it.
  void upgrade(Op& op) {
    switch (op.code) {
      case OpCode::kGetShapeV1:
        return upgrade_get_shape(op);
      case OpCode::kReshapeV1:
        op.code = OpCode::kReshape;
        return;
      case OpCode::kTileV1:
        return upgrade_tile(op);
      case OpCode::kQuantizeV1:
        require_operands(op, 4);
        op.code = OpCode::kQuantize;
        return add_zero_offset(op, op.operand_type(0)->dtype());
      case OpCode::kDequantizeV1:
        require_operands(op, 4);
        op.code = OpCode::kDequantize;
        return add_zero_offset(op, op.results[0]->type->dtype());
      case OpCode::kBlockwiseShiftScaleV1:
        require_operands(op, 3);
        op.code = OpCode::kBlockwiseShiftScale;
        return add_zero_offset(op, op.results[0]->type->dtype());
      case OpCode::kExecutionDelegateV1:
        return upgrade_delegate(op);
      default:
        return;
    }
  }

  static void require_operands(const Op& op, std::size_t count) {
    if (op.operands.size() != count || op.results.size() != 1) {
      throw VerificationError(fmt::format("{} has {} operands and {} results, {} and 1 are legal", op.info().disk_name,
                                          op.operands.size(), op.results.size(), count));
    }
  }

  // The new version gives ui32: a cast keeps the old result and its type.
  void upgrade_get_shape(Op& op) {
    require_operands(op, 1);
    op.code = OpCode::kGetShape;
    Value* old_result = op.results[0];
    Value* shape = module_.new_value(module_.context().tensor_type(DType::kUI32, old_result->type->shape()));
    shape->op = &op;
    op.results[0] = shape;
    Op& cast = insert(at_ + 1, OpCode::kCast, op);
    cast.operands = {shape};
    cast.results = {old_result};
    old_result->op = &cast;
    ++at_;
  }

  // The new version wants unsigned repetitions. Its decomposition would need them too, so it becomes the minimal one.
  void upgrade_tile(Op& op) {
    require_operands(op, 2);
    op.code = OpCode::kTile;
    const TypeRef old_type = op.operand_type(1);
    const DType dtype = old_type->dtype() == DType::kSI16 ? DType::kUI16 : DType::kUI32;
    if (old_type->dtype() != dtype) {
      op.operands[1] =
          insert_before(OpCode::kCast, op, {op.operands[1]}, module_.context().tensor_type(dtype, old_type->shape()));
    }
    ir::add_minimal_body(module_, op);
  }

  // `offset2`, a splat of zeros shaped like the scale, stands behind `offset1`. The decomposition gets a block argument
  // for it that it does not use, which adds nothing as zero does.
  void add_zero_offset(Op& op, DType dtype) {
    constexpr std::size_t kOffset2 = 3;
    const Shape& shape = op.operand_type(1)->shape();
    if (!shape.is_static()) {
      throw VerificationError(fmt::format("{} has a scale of dynamic shape", op.info().disk_name), shape.to_string());
    }
    const TypeRef type = module_.context().tensor_type(dtype, shape);
    const std::size_t element_bytes = static_cast<std::size_t>(std::max(dtype_bits(dtype), 8) / 8);
    std::vector<std::byte> zero(shape.element_count() == 0 ? 0 : element_bytes);
    const ir::AttrRef value = module_.context().dense_attr(std::move(zero), shape.element_count() != 0);
    Value* offset = insert_before(OpCode::kConstant, op, {}, type);
    offset->op->attributes = {value};
    op.operands.insert(op.operands.begin() + kOffset2, offset);
    if (!op.info().decomposable) return;
    Block& body = op.regions.at(0).block();
    if (body.arguments.size() + 1 != op.operands.size()) return ir::add_minimal_body(module_, op);
    Value* argument = module_.new_value(type);
    argument->block = &body;
    argument->location = op.location;
    body.arguments.insert(body.arguments.begin() + kOffset2, argument);
    for (std::size_t i = 0; i < body.arguments.size(); ++i) body.arguments[i]->index = static_cast<std::uint32_t>(i);
  }

  void upgrade_delegate(Op& op) {
    const auto& old_rows = op.info().attributes;
    const std::vector<ir::AttrRef> old_values = op.attributes;
    op.code = OpCode::kExecutionDelegate;
    op.attributes.assign(op.info().attributes.size(), nullptr);
    for (std::size_t i = 0; i < old_rows.size(); ++i) op.set_attribute(old_rows[i].name, old_values[i]);
  }

  Op& insert(std::size_t index, OpCode code, const Op& location_of) {
    auto op = std::make_unique<Op>();
    op->code = code;
    op->location = location_of.location;
    op->attributes.assign(op->info().attributes.size(), nullptr);
    Op& stored = *op;
    block_->ops.insert(block_->ops.begin() + static_cast<std::ptrdiff_t>(index), std::move(op));
    return stored;
  }

  Value* insert_before(OpCode code, const Op& next, std::vector<Value*> operands, TypeRef result) {
    Op& op = insert(at_, code, next);
    ++at_;
    op.operands = std::move(operands);
    Value* value = module_.new_value(result);
    value->op = &op;
    op.results = {value};
    return value;
  }

  ir::Module& module_;
  Block* block_ = nullptr;
  std::size_t at_ = 0;
};

}  // namespace

void upgrade_old_versions(ir::Module& module) {
  Upgrader(module).run(module.body());
}

}  // namespace coreai::asset
