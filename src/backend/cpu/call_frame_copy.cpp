// Steps without a kernel of their own: copies between views and operations by the reference kernels.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "backend/cpu/call_frame.h"
#include "coreai/base/error.h"

namespace coreai::cpu {
namespace {

using compiler::CopyStep;

// One run of `count` elements with strides, converting between dtypes through f32.
void copy_run(const RowKernels& kernels, DType from, const std::byte* in, std::int64_t in_stride, DType to,
              std::byte* out, std::int64_t out_stride, std::int64_t count) {
  const std::int64_t in_width = dtype_bits(from) / 8, out_width = dtype_bits(to) / 8;
  if (from == to) {
    if (in_stride == 1 && out_stride == 1) {
      std::memcpy(out, in, static_cast<std::size_t>(count * in_width));
      return;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      std::memcpy(out + i * out_stride * out_width, in + i * in_stride * in_width, static_cast<std::size_t>(in_width));
    }
    return;
  }
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

void CallFrame::copy(const CopyStep& step, const StepCall& call) {
  const auto& plan = executable_.plan;
  const DType from = plan.buffers[static_cast<std::size_t>(step.in.buffer)].dtype;
  const DType to = plan.buffers[static_cast<std::size_t>(step.out.buffer)].dtype;
  const std::int64_t in_width = dtype_bits(from) / 8, out_width = dtype_bits(to) / 8;
  const std::byte* in = address(step.in.buffer) + value(step.in.offset) * in_width;
  std::byte* out = address(step.out.buffer) + value(step.out.offset) * out_width;
  const std::size_t rank = step.in.extents.size();
  // On the stack: a decode step allocates nothing. The scheduler plans no copy of a higher rank.
  constexpr std::size_t kMaxRank = 16;
  COREAI_INVARIANT(rank <= kMaxRank);
  std::array<std::int64_t, kMaxRank> extents, in_strides, out_strides, index;
  extents.fill(1), in_strides.fill(1), out_strides.fill(1), index.fill(0);
  for (std::size_t i = 0; i < rank; ++i) {
    extents[i] = value(step.in.extents[i]);
    in_strides[i] = value(step.in.strides[i]);
    out_strides[i] = value(step.out.strides[i]);
  }
  if (to_output(step.out.buffer)) {
    // Only the rows that are wanted; the output holds just those.
    const int axis = plan.output_row_axis[plan.buffers[static_cast<std::size_t>(step.out.buffer)].index];
    if (axis >= 0 && call.row_begin > 0) {
      in += call.row_begin * in_strides[static_cast<std::size_t>(axis)] * in_width;
      extents[static_cast<std::size_t>(axis)] = call.rows;
    }
  }
  const RowKernels& kernels = row_kernels(executable_.isa);
  if (std::any_of(extents.begin(), extents.end(), [](std::int64_t e) { return e <= 0; })) return;
  const std::size_t inner = rank == 0 ? 0 : rank - 1;
  while (true) {
    std::int64_t from_offset = 0, to_offset = 0;
    for (std::size_t i = 0; i < inner; ++i)
      from_offset += index[i] * in_strides[i], to_offset += index[i] * out_strides[i];
    copy_run(kernels, from, in + from_offset * in_width, in_strides[inner], to, out + to_offset * out_width,
             out_strides[inner], extents[inner]);
    std::size_t axis = inner;
    while (axis > 0 && ++index[axis - 1] == extents[axis - 1]) index[--axis] = 0;
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
  std::vector<double> elements;
  for (compiler::Expr e : operand.host) elements.push_back(static_cast<double>(value(e)));
  write_from_f64(array, elements);
  return array;
}

void CallFrame::bind_op(StepCall& call, const compiler::GenericStep& step) {
  call.op_in.resize(step.inputs.size());
  call.op_out.resize(step.outputs.size());
  call.op_host.resize(step.inputs.size());
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    const compiler::GenericOperand& o = step.inputs[i];
    std::byte* data = o.buffer >= 0 ? address(o.buffer) : nullptr;
    if (o.constant) data = const_cast<std::byte*>(o.constant->bytes().data());  // kernels only read operands
    if (!data) {
      call.op_host[i] = host_array(o);
      data = call.op_host[i].mutable_bytes().data();
    }
    call.op_in[i] = {o.dtype, shape_of(o), data};
  }
  for (std::size_t i = 0; i < step.outputs.size(); ++i)
    call.op_out[i] = {step.outputs[i].dtype, shape_of(step.outputs[i]), address(step.outputs[i].buffer)};
  call.op_cut = call.op->bind(call.op_in, call.op_out, executable_.threads);
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
