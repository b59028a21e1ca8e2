// Constants as arrays: inline and resource forms pack elements below eight bits differently.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>

#include "coreai/base/error.h"
#include "coreai/ir/module.h"

namespace coreai::ir {
namespace {

// A splat may declare any extent: expanding one is refused above this many bytes.
constexpr std::uint64_t kMaxExpandedSplat = std::uint64_t{4} << 30;

[[noreturn]] void wrong_size(DType dtype, const Shape& shape, std::string_view form, std::size_t have,
                             std::uint64_t need) {
  throw VerificationError(fmt::format("a constant tensor<{}> of {} has {} bytes {}, {} are needed", shape.to_string(),
                                      dtype_name(dtype), have, form, need));
}

TypeRef constant_type(const Op& constant) {
  if (constant.results.size() != 1 || !constant.results[0]->type->is_tensor()) {
    throw VerificationError("a constant has no tensor result");
  }
  const TypeRef type = constant.results[0]->type;
  if (!type->shape().is_static()) throw VerificationError("a constant has a dynamic shape", type->shape().to_string());
  // Byte counts of up to 128 bits per element must stay far below 2^64.
  if (type->shape().element_count() > std::numeric_limits<std::int64_t>::max() / 32) {
    throw VerificationError("a constant is larger than any memory", type->shape().to_string());
  }
  return type;
}

// Bytes of one element as the inline form stores it: below eight bits each takes a byte of its own.
std::size_t inline_element_bytes(DType dtype) {
  return static_cast<std::size_t>(is_subbyte(dtype) ? 1 : dtype_bits(dtype) / 8);
}

void pack_bits(std::span<const std::byte> elements, int bits, std::span<std::byte> out) {
  const std::uint32_t mask = (1u << bits) - 1;
  std::uint64_t window = 0;
  int filled = 0;
  std::size_t at = 0;
  for (const std::byte element : elements) {
    window |= static_cast<std::uint64_t>(static_cast<std::uint32_t>(element) & mask) << filled;
    for (filled += bits; filled >= 8; filled -= 8, window >>= 8) out[at++] = static_cast<std::byte>(window & 0xff);
  }
  if (filled > 0) out[at] = static_cast<std::byte>(window & 0xff);
}

// One element as an array of rank 0, from the first bytes of a splat.
NDArray splat_element(DType dtype, const Shape& shape, std::span<const std::byte> bytes) {
  if (bytes.size() < inline_element_bytes(dtype)) {
    wrong_size(dtype, shape, "inline as a splat", bytes.size(), inline_element_bytes(dtype));
  }
  NDArray element(dtype, Shape{});
  if (is_subbyte(dtype)) {
    // A splat byte of ui1 is 0x00 or 0xff; only the low bits count.
    pack_bits(bytes.first(1), dtype_bits(dtype), element.mutable_bytes());
  } else {
    element.assign(bytes.first(inline_element_bytes(dtype)));
  }
  return element;
}

NDArray expand_splat(DType dtype, const Shape& shape, const NDArray& element) {
  const auto count = static_cast<std::uint64_t>(shape.element_count());
  if (count / 8 > kMaxExpandedSplat || dtype_bytes(dtype, count) > kMaxExpandedSplat) {
    throw VerificationError(fmt::format("a splat constant of {} elements is too large to expand", count),
                            shape.to_string());
  }
  NDArray array(dtype, shape);  // filled with zeros
  const auto out = array.mutable_bytes();
  auto one = element.bytes();
  if (out.empty() || std::all_of(one.begin(), one.end(), [](std::byte b) { return b == std::byte{0}; })) return array;
  std::array<std::byte, 3> period;  // the shortest whole bytes that elements of 1, 2, 3, 4 or 6 bits repeat in
  if (is_subbyte(dtype)) {
    std::array<std::byte, 8> elements;
    elements.fill(one[0]);
    const int bits = dtype_bits(dtype);
    pack_bits(std::span(elements).first(static_cast<std::size_t>(std::lcm(bits, 8) / bits)), bits, period);
    one = std::span(period).first(static_cast<std::size_t>(std::lcm(bits, 8) / 8));
  }
  // Doubles what is written already.
  std::size_t done = std::min(one.size(), out.size());
  std::memcpy(out.data(), one.data(), done);
  for (std::size_t n; done < out.size(); done += n) {
    n = std::min(done, out.size() - done);
    std::memcpy(out.data() + done, out.data(), n);
  }
  if (const auto rest = dtype_bits(dtype) * count % 8; is_subbyte(dtype) && rest)  // no bits behind the last element
    out.back() &= static_cast<std::byte>((1u << rest) - 1);
  return array;
}

NDArray inline_value(DType dtype, const Shape& shape, std::span<const std::byte> bytes) {
  const auto count = static_cast<std::uint64_t>(shape.element_count());
  // ui1 alone is bit-packed in both forms.
  const std::uint64_t need = dtype == DType::kUI1
                                 ? dtype_bytes(dtype, count)
                                 : checked_mul(count, inline_element_bytes(dtype)).value_or(~std::uint64_t{0});
  if (bytes.size() != need) wrong_size(dtype, shape, "inline", bytes.size(), need);
  NDArray array(dtype, shape);
  if (is_subbyte(dtype) && dtype != DType::kUI1) {
    pack_bits(bytes, dtype_bits(dtype), array.mutable_bytes());
  } else {
    array.assign(bytes);
  }
  return array;
}

}  // namespace

std::optional<NDArray> constant_splat(const Op& constant) {
  const TypeRef type = constant_type(constant);
  const Attribute& value = constant.required("value");
  const std::int64_t count = type->shape().element_count();
  if (value.is(AttrCode::kSerializationDenseResource)) {
    // One element stored for a whole tensor: the resource form of a splat.
    const ResourceRef& resource = value.field<ResourceRef>(0);
    if (count <= 1 || is_subbyte(type->dtype()) || resource->size != dtype_bytes(type->dtype(), 1)) return std::nullopt;
    return splat_element(type->dtype(), type->shape(), resource->bytes());
  }
  if (!value.is(AttrCode::kSerializationDenseElements)) throw VerificationError("the value of a constant is no tensor");
  const auto& bytes = value.field<std::vector<std::byte>>(1);
  const bool one_for_all = count > 1 && !is_subbyte(type->dtype()) && bytes.size() == dtype_bytes(type->dtype(), 1);
  if (value.field<std::uint64_t>(0) == 0 && !one_for_all) return std::nullopt;
  return splat_element(type->dtype(), type->shape(), bytes);
}

NDArray constant_value(const Op& constant) {
  const TypeRef type = constant_type(constant);
  const DType dtype = type->dtype();
  const Shape& shape = type->shape();
  if (const auto element = constant_splat(constant)) return expand_splat(dtype, shape, *element);
  const Attribute& value = constant.required("value");
  if (value.is(AttrCode::kSerializationDenseElements)) {
    return inline_value(dtype, shape, value.field<std::vector<std::byte>>(1));
  }
  const ResourceRef& resource = value.field<ResourceRef>(0);
  const std::uint64_t need = dtype_bytes(dtype, static_cast<std::uint64_t>(shape.element_count()));
  if (resource->size < need) {
    wrong_size(dtype, shape, fmt::format("in the resource `{}`", resource->name), resource->size, need);
  }
  return {dtype, shape, resource->storage, resource->offset};
}

}  // namespace coreai::ir
