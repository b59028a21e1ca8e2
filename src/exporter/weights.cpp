#include "exporter/weights.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>

#include "coreai/base/error.h"
#include "coreai/base/float_types.h"

namespace coreai {
namespace {

using V = WeightSource::V;

// The pages of a repacked tensor are not needed again: without this the whole checkpoint would stay resident.
void release_pages(std::span<const std::byte> bytes) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(bytes.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(bytes.data() + bytes.size()) / page * page;
  // Advice only: a failure costs memory, not correctness.
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

bool is_dense(GgmlType type) {
  return type == GgmlType::kF32 || type == GgmlType::kF16 || type == GgmlType::kBF16;
}

}  // namespace

WeightSource::WeightSource(const GgufFile& file, GraphOps& ops, const LlmExportOptions& options,
                           const ExportProgress& progress, std::stop_token stop)
    : file_(file),
      ops_(ops),
      compute_(options.compute_precision),
      progress_(progress),
      stop_(std::move(stop)),
      pool_(options.threads) {
  for (const GgufTensor& tensor : file.tensors()) total_ += tensor.bytes.size();
}

const GgufTensor& WeightSource::take(const std::string& name, const Shape& shape) {
  if (stop_.stop_requested()) throw CancelledError("the export was stopped", file_.where());
  const GgufTensor& tensor = file_.tensor(name);
  if (!(tensor.shape() == shape))
    throw MalformedError(fmt::format("tensor '{}' has shape {}, the metadata asks for {}", name,
                                     tensor.shape().to_string(), shape.to_string()),
                         file_.where(), tensor.offset);
  used_.insert(name);
  done_ += tensor.bytes.size();
  if (progress_) progress_("converting", done_, total_);
  return tensor;
}

V WeightSource::matrix(const std::string& name, std::int64_t out, std::int64_t in, const RowOrder& order) {
  const GgufTensor& tensor = take(name, Shape{out, in});
  return is_dense(tensor.type) ? dense(tensor, order) : blockwise(tensor, order);
}

V WeightSource::vector(const std::string& name, std::int64_t size) {
  const GgufTensor& tensor = take(name, Shape{size});
  if (!is_dense(tensor.type)) {
    NDArray values(DType::kF32, Shape{size});
    dequantize(tensor.type, tensor.bytes, values.mutable_values<float>());
    return ops_.builder().constant(values);
  }
  return ops_.cast(ops_.builder().constant(dense_rows(tensor, {}, file_.mapping())), DType::kF32);
}

V WeightSource::blockwise(const GgufTensor& tensor, const RowOrder& order) {
  const BlockwiseWeight weight = repack(tensor, order, pool_, file_.mapping() ? release_pages : ConsumedBytes());
  ir::Builder& builder = ops_.builder();
  // f16 scales serve an f16 graph as they are; else everything is done in f32, which holds the products exactly.
  const DType wide = compute_ == DType::kF16 && weight.scale.dtype() == DType::kF16 ? DType::kF16 : DType::kF32;
  const Shape& blocks = weight.scale.shape();
  V scale = ops_.cast(builder.constant(weight.scale), wide);
  V offset = weight.offset ? ops_.cast(builder.constant(*weight.offset), wide) : builder.splat(wide, blocks, 0);
  V zero = builder.splat(weight.data.dtype(), blocks, 0);
  V value = builder.op1(ir::OpCode::kBlockwiseShiftScale, {builder.constant(weight.data), scale, zero, offset},
                        builder.context().tensor_type(wide, weight.data.shape()));
  return ops_.cast(value, compute_);
}

// f32 becomes the compute dtype here, half the bytes; f16 and bf16 stay and are cast in the graph.
V WeightSource::dense(const GgufTensor& tensor, const RowOrder& order) {
  const NDArray stored = dense_rows(tensor, order, file_.mapping());
  const bool narrow = stored.dtype() == DType::kF32 && compute_ != DType::kF32;
  return ops_.cast(ops_.builder().constant(narrow ? narrowed(stored, tensor.name) : stored), compute_);
}

NDArray WeightSource::narrowed(const NDArray& wide, const std::string& name) const {
  NDArray out(compute_, wide.shape());
  const auto from = wide.values<float>();
  const auto to = out.mutable_values<std::uint16_t>();
  for (std::size_t i = 0; i < from.size(); ++i) {
    to[i] = compute_ == DType::kF16 ? f32_to_f16(from[i]) : f32_to_bf16(from[i]);
    if (compute_ == DType::kF16 && std::isfinite(from[i]) && !std::isfinite(f16_to_f32(to[i])))
      throw UnsupportedError(fmt::format("tensor '{}' holds {}, too large for float16", name, from[i]), file_.where(),
                             "Export with --compute-precision float32 or bfloat16");
  }
  return out;
}

void WeightSource::expect_all_used() const {
  for (const GgufTensor& tensor : file_.tensors())
    if (!used_.contains(tensor.name))
      throw UnsupportedError(fmt::format("the graph has no place for tensor '{}'", tensor.name), file_.where(),
                             "The checkpoint is a variant of its architecture that cannot be exported");
}

}  // namespace coreai
