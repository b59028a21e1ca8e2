// Compressed constants: look-up tables and sparse tensors.
// A sparse value is a byte array: the mask (ui1, row-major, packed) followed by the stored elements, packed in the
// element type of its tensor type. Its dense shape comes from the operand's declared type.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/packing.h"

namespace coreai::cpu::reference {
namespace {

// For each element of the index tensor, the row of the table that serves it.
class LookUp {
 public:
  LookUp(const Call& call, const Shape& shape, const Shape& lut, int bits) : shape_(shape) {
    if (lut.rank() != shape.rank() + 2) call.shape_error("the table needs two axes more than the indices");
    entries_ = lut[lut.rank() - 2];
    vector_ = lut[lut.rank() - 1];
    if (entries_ != std::int64_t{1} << bits) {
      call.shape_error(fmt::format("a table of {} entries for indices of {} bits", entries_, bits));
    }
    const std::vector<std::int64_t> strides = shape.row_major_strides();
    std::int64_t table = 1;
    for (std::size_t d = shape.rank(); d-- > 0;) {
      if (lut[d] == 0 || shape[d] % lut[d] != 0) call.shape_error("the blocks of the table do not divide the indices");
      axes_.push_back({strides[d], shape[d], shape[d] / lut[d], table});
      table *= lut[d];
    }
  }
  std::int64_t vector() const { return vector_; }
  // Position in the table of the first element for the index `code` at `element`.
  std::int64_t entry(std::int64_t element, std::int64_t code) const {
    std::int64_t block = 0;
    for (const Axis& axis : axes_) block += element / axis.stride % axis.extent / axis.block * axis.table;
    return (block * entries_ + code) * vector_;
  }

 private:
  struct Axis {
    std::int64_t stride, extent, block, table;
  };
  Shape shape_;
  std::vector<Axis> axes_;
  std::int64_t entries_ = 0, vector_ = 0;
};

// The result's shape, and where element v of the vector of index `element` goes: vectors run along `axis`.
struct Expansion {
  Shape out;
  std::int64_t inner = 1;  // index elements behind the axis
  std::int64_t vector = 1;
  std::int64_t position(std::int64_t element, std::int64_t v) const {
    return (element / inner * vector + v) * inner + element % inner;
  }
};

Expansion expansion(const Call& call, const Shape& shape, std::int64_t vector, std::int64_t axis_value) {
  Expansion e{shape, 1, vector};
  if (vector == 1 && shape.rank() == 0) return e;
  const std::size_t axis = axis_index(call, axis_value, shape.rank());
  e.out[axis] *= vector;
  e.inner = extent_product(shape, axis + 1, shape.rank());
  return e;
}

std::vector<std::uint8_t> index_codes(const Call& call, const NDArray& indices) {
  const DType dtype = indices.dtype();
  if (dtype_class(dtype) != DTypeClass::kUnsigned || dtype_bits(dtype) > 8) {
    call.unsupported("table indices are ui1 to ui8");
  }
  return unpack_codes(indices);
}

}  // namespace

Results lut_to_dense_kernel(const Call& call) {
  const NDArray& indices = call.input(0);
  const NDArray& lut = call.input(1);
  const std::vector<std::uint8_t> codes = index_codes(call, indices);
  const LookUp table(call, indices.shape(), lut.shape(), dtype_bits(indices.dtype()));
  const Expansion expand = expansion(call, indices.shape(), table.vector(), int_scalar(call, 2));
  RawOutput out(lut.dtype(), expand.out);
  const RawElements from(lut);
  const auto width = static_cast<std::int64_t>(from.width);
  std::byte* to = out.data();
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const auto element = static_cast<std::int64_t>(i);
    const std::int64_t entry = table.entry(element, codes[i]);
    for (std::int64_t v = 0; v < expand.vector; ++v) {
      copy_element(to + expand.position(element, v) * width, from.data + (entry + v) * width, from.width);
    }
  }
  return {out.finish()};
}

namespace {

struct Sparse {
  Shape shape;
  std::vector<std::uint8_t> mask;  // one byte per element
  NDArray values;                  // rank 1
};

NDArray pack_sparse(const NDArray& mask, const NDArray& values) {
  NDArray packed(DType::kUI8, Shape{static_cast<std::int64_t>(mask.byte_size() + values.byte_size())});
  std::byte* to = packed.mutable_bytes().data();
  std::copy(mask.bytes().begin(), mask.bytes().end(), to);
  std::copy(values.bytes().begin(), values.bytes().end(), to + mask.byte_size());
  return packed;
}

Sparse unpack_sparse(const Call& call, std::size_t operand) {
  const ir::TypeRef type = call.op.operand_type(operand);
  const NDArray& packed = call.input(operand);
  Sparse sparse;
  sparse.shape = type->shape();
  NDArray mask(DType::kUI1, sparse.shape);
  if (packed.byte_size() < mask.byte_size()) call.shape_error("a sparse value is shorter than its mask");
  mask.assign(packed.bytes().first(mask.byte_size()));
  sparse.mask = unpack_codes(mask);
  const auto stored_count = std::count(sparse.mask.begin(), sparse.mask.end(), 1);
  sparse.values = NDArray(type->dtype(), Shape{static_cast<std::int64_t>(stored_count)});
  if (packed.byte_size() - mask.byte_size() != sparse.values.byte_size()) {
    call.shape_error("a sparse value does not hold what its mask says");
  }
  sparse.values.assign(packed.bytes().subspan(mask.byte_size()));
  return sparse;
}

}  // namespace

Results build_sparse_kernel(const Call& call) {
  const NDArray& values = call.input(0);
  const NDArray& mask = call.input(1);
  if (mask.dtype() != DType::kUI1) call.unsupported("a sparse mask is ui1");
  const std::vector<std::uint8_t> bits = unpack_codes(mask);
  const auto stored_count = std::count(bits.begin(), bits.end(), 1);
  if (values.element_count() != stored_count) {
    call.shape_error(fmt::format("{} values for a mask with {} bits", values.element_count(), stored_count));
  }
  // Bits behind the last element would differ between equal masks.
  NDArray clean(DType::kUI1, mask.shape());
  pack_codes(bits, clean);
  return {pack_sparse(clean, values)};
}

Results sparse_to_dense_kernel(const Call& call) {
  const Sparse sparse = unpack_sparse(call, 0);
  RawOutput out(sparse.values.dtype(), sparse.shape);
  const RawElements from(sparse.values);
  std::size_t next = 0;
  for (std::size_t i = 0; i < sparse.mask.size(); ++i) {
    if (!sparse.mask[i]) continue;
    copy_element(out.data() + i * from.width, from.data + next * from.width, from.width);
    ++next;
  }
  return {out.finish()};
}

Results lut_to_sparse_kernel(const Call& call) {
  const Sparse sparse = unpack_sparse(call, 0);
  const NDArray& lut = call.input(1);
  const std::vector<std::uint8_t> codes = index_codes(call, sparse.values);
  const LookUp table(call, sparse.shape, lut.shape(), dtype_bits(sparse.values.dtype()));
  const Expansion expand = expansion(call, sparse.shape, table.vector(), int_scalar(call, 2));
  const RawElements from(lut);
  const auto width = static_cast<std::int64_t>(from.width);
  const auto count = static_cast<std::size_t>(expand.out.element_count());
  std::vector<std::uint8_t> mask(count, 0);
  std::vector<std::byte> dense(count * from.width);
  std::size_t next = 0;
  for (std::size_t i = 0; i < sparse.mask.size(); ++i) {
    if (!sparse.mask[i]) continue;
    const auto element = static_cast<std::int64_t>(i);
    const std::int64_t entry = table.entry(element, codes[next++]);
    for (std::int64_t v = 0; v < expand.vector; ++v) {
      const std::int64_t to = expand.position(element, v);
      mask[static_cast<std::size_t>(to)] = 1;
      copy_element(dense.data() + to * width, from.data + (entry + v) * width, from.width);
    }
  }
  const auto stored_count = std::count(mask.begin(), mask.end(), 1);
  RawOutput values(lut.dtype(), Shape{static_cast<std::int64_t>(stored_count)});
  std::byte* to = values.data();
  for (std::size_t i = 0; i < count; ++i) {
    if (!mask[i]) continue;
    copy_element(to, dense.data() + i * from.width, from.width);
    to += width;
  }
  NDArray packed_mask(DType::kUI1, expand.out);
  pack_codes(mask, packed_mask);
  return {pack_sparse(packed_mask, values.finish())};
}

}  // namespace coreai::cpu::reference
