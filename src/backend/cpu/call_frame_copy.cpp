// Steps without a kernel of their own: copies between views and operations by the reference kernels.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "backend/cpu/call_frame.h"
#include "coreai/base/error.h"

namespace coreai::cpu {
namespace {

using compiler::CopyStep;

// One run of `count` elements with strides, converted through f32.
void convert_run(const RowKernels& kernels, DType from, const std::byte* in, std::int64_t in_stride, DType to,
                 std::byte* out, std::int64_t out_stride, std::int64_t count) {
  const std::int64_t in_width = dtype_bits(from) / 8, out_width = dtype_bits(to) / 8;
  float block[256];
  for (std::int64_t done = 0; done < count; done += 256) {
    const std::int64_t n = std::min<std::int64_t>(256, count - done);
    if (in_stride == 1) {
      kernels.to_f32(from, in + done * in_width, block, n);
    } else {
      for (std::int64_t i = 0; i < n; ++i) kernels.to_f32(from, in + (done + i) * in_stride * in_width, block + i, 1);
    }
    if (out_stride == 1) {
      kernels.from_f32(to, block, out + done * out_width, n);
    } else {
      for (std::int64_t i = 0; i < n; ++i)
        kernels.from_f32(to, block + i, out + (done + i) * out_stride * out_width, 1);
    }
  }
}

}  // namespace

struct CallFrame::CopyAxes {
  // On the stack: a decode step allocates nothing. The scheduler plans no copy of a higher rank.
  static constexpr std::size_t kMaxRank = Move::kMaxRank;
  DType from, to;
  const std::byte* in;
  std::byte* out;
  std::size_t rank;
  std::array<std::int64_t, kMaxRank> extents, in_strides, out_strides;
};

CallFrame::CopyAxes CallFrame::copy_axes(const StepCall& call, const CopyStep& step) const {
  const auto& plan = executable_.plan;
  CopyAxes a;
  a.from = plan.buffers[static_cast<std::size_t>(step.in.buffer)].dtype;
  a.to = plan.buffers[static_cast<std::size_t>(step.out.buffer)].dtype;
  const std::int64_t in_width = dtype_bits(a.from) / 8, out_width = dtype_bits(a.to) / 8;
  a.in = address(step.in.buffer) + value(step.in.offset) * in_width;
  a.out = address(step.out.buffer) + value(step.out.offset) * out_width;
  a.rank = step.in.extents.size();
  COREAI_INVARIANT(a.rank <= CopyAxes::kMaxRank);
  a.extents.fill(1), a.in_strides.fill(1), a.out_strides.fill(1);
  for (std::size_t i = 0; i < a.rank; ++i) {
    a.extents[i] = value(step.in.extents[i]);
    a.in_strides[i] = value(step.in.strides[i]);
    a.out_strides[i] = value(step.out.strides[i]);
  }
  if (to_output(step.out.buffer)) {
    // Only the rows that are wanted; the output holds just those.
    const int axis = plan.output_row_axis[plan.buffers[static_cast<std::size_t>(step.out.buffer)].index];
    if (axis >= 0 && call.row_begin > 0) {
      a.in += call.row_begin * a.in_strides[static_cast<std::size_t>(axis)] * in_width;
      a.extents[static_cast<std::size_t>(axis)] = call.rows;
    }
  }
  return a;
}

void CallFrame::bind_copy(StepCall& call, const CopyStep& step) {
  const CopyAxes a = copy_axes(call, step);
  call.copy = {};
  call.copy.cut = {1, 1};
  if (a.from != a.to) return;
  call.copy.move = Move(dtype_bits(a.from) / 8);
  for (std::size_t i = 0; i < a.rank; ++i) call.copy.move.add_axis(a.extents[i], a.in_strides[i], a.out_strides[i]);
  call.copy.move.finish();
  call.copy.in = a.in, call.copy.out = a.out;
  call.copy.cut = cut_items(call.copy.move.items(), call.copy.move.item_elements(), executable_.threads);
}

void CallFrame::copy(const CopyStep& step, const StepCall& call, int chunk) {
  if (call.copy.in) {
    const ItemCut& cut = call.copy.cut;
    for (std::int64_t i = cut.begin(chunk); i < cut.end(chunk); ++i) call.copy.move.run(call.copy.in, call.copy.out, i);
    return;
  }
  const CopyAxes a = copy_axes(call, step);
  const std::int64_t in_width = dtype_bits(a.from) / 8, out_width = dtype_bits(a.to) / 8;
  std::array<std::int64_t, CopyAxes::kMaxRank> index{};
  const RowKernels& kernels = row_kernels(executable_.isa);
  if (std::any_of(a.extents.begin(), a.extents.end(), [](std::int64_t e) { return e <= 0; })) return;
  const std::size_t inner = a.rank == 0 ? 0 : a.rank - 1;
  while (true) {
    std::int64_t from_offset = 0, to_offset = 0;
    for (std::size_t i = 0; i < inner; ++i)
      from_offset += index[i] * a.in_strides[i], to_offset += index[i] * a.out_strides[i];
    convert_run(kernels, a.from, a.in + from_offset * in_width, a.in_strides[inner], a.to,
                a.out + to_offset * out_width, a.out_strides[inner], a.extents[inner]);
    std::size_t axis = inner;
    while (axis > 0 && ++index[axis - 1] == a.extents[axis - 1]) index[--axis] = 0;
    if (axis == 0) return;
  }
}

Shape CallFrame::shape_of(const compiler::GenericOperand& operand) const {
  constexpr std::size_t kInline = Shape::kInlineRank;
  std::array<std::int64_t, kInline> few;
  std::vector<std::int64_t> many(operand.shape.size() > kInline ? operand.shape.size() : 0);
  const std::span<std::int64_t> dims = many.empty() ? std::span(few).first(operand.shape.size()) : std::span(many);
  for (std::size_t i = 0; i < dims.size(); ++i) dims[i] = value(operand.shape[i]);
  return Shape(std::span<const std::int64_t>(dims));
}

NDArray CallFrame::host_array(const compiler::GenericOperand& operand) const {
  NDArray array(operand.dtype, shape_of(operand));
  std::vector<double> elements(operand.host.size());
  for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<double>(value(operand.host[i]));
  write_from_f64(array, elements);
  return array;
}

void CallFrame::bind_op(StepCall& call, std::span<const compiler::GenericOperand> inputs,
                        std::span<const compiler::GenericOperand> outputs, std::string_view where) {
  call.op_in.resize(inputs.size());
  call.op_out.resize(outputs.size());
  call.op_host.resize(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const compiler::GenericOperand& o = inputs[i];
    std::byte* data = o.buffer >= 0 ? address(o.buffer) : nullptr;
    if (o.constant) data = const_cast<std::byte*>(o.constant->bytes().data());  // kernels only read operands
    if (!data) {
      call.op_host[i] = host_array(o);
      data = call.op_host[i].mutable_bytes().data();
    }
    call.op_in[i] = {o.dtype, shape_of(o), data};
  }
  for (std::size_t i = 0; i < outputs.size(); ++i)
    call.op_out[i] = {outputs[i].dtype, shape_of(outputs[i]), address(outputs[i].buffer)};
  try {
    call.op_cut = call.op->bind(call.op_in, call.op_out, executable_.threads);
  } catch (const ShapeError& error) {
    std::string operands;
    for (const OpArray& array : call.op_in) {
      operands +=
          fmt::format("{}[{}]{}", operands.empty() ? "" : ", ", array.shape.to_string(), dtype_name(array.dtype));
    }
    throw ShapeError(error.problem(), fmt::format("{} of ({})", where, operands), error.next_step());
  }
}

void CallFrame::generic(const compiler::GenericStep& step) {
  std::vector<NDArray> inputs;
  for (const compiler::GenericOperand& o : step.inputs) {
    if (o.constant) {
      inputs.push_back(*o.constant);
    } else if (o.buffer >= 0) {
      const Shape shape = shape_of(o);
      const std::size_t bytes = dtype_bytes(o.dtype, static_cast<std::uint64_t>(shape.element_count()));
      inputs.emplace_back(o.dtype, shape, Storage::borrow(address(o.buffer), bytes, false, nullptr));
    } else {
      inputs.push_back(host_array(o));
    }
  }
  const std::vector<NDArray> results = executable_.evaluator->evaluate(*step.op, inputs);
  COREAI_INVARIANT(results.size() == step.outputs.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Shape planned = shape_of(step.outputs[i]);
    if (results[i].shape() != planned || results[i].dtype() != step.outputs[i].dtype) {
      throw ShapeError(
          "an operation gave [" + results[i].shape().to_string() + "], planned was [" + planned.to_string() + "]",
          std::string(step.op->info().text_name), "Report this asset; --disable-pass resolve runs it op by op");
    }
    if (results[i].byte_size())
      std::memcpy(address(step.outputs[i].buffer), results[i].bytes().data(), results[i].byte_size());
  }
}

}  // namespace coreai::cpu
