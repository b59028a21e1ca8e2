// Tensors of a checkpoint as values of a graph.
#pragma once

#include <set>
#include <stop_token>
#include <string>

#include "coreai/exporter/llm_exporter.h"
#include "exporter/graph_ops.h"
#include "exporter/repack.h"

namespace coreai {

class WeightSource {
 public:
  using V = GraphOps::V;
  WeightSource(const GgufFile& file, GraphOps& ops, const LlmExportOptions& options, const ExportProgress& progress,
               std::stop_token stop);

  // [out, in] in the compute dtype: dequantised in the graph where the checkpoint is quantised.
  V matrix(const std::string& name, std::int64_t out, std::int64_t in, const RowOrder& order = {});
  // A vector in f32 whatever the compute dtype is: norms lose nothing.
  V vector(const std::string& name, std::int64_t size);
  // Throws UnsupportedError when the file has a tensor that nobody asked for.
  void expect_all_used() const;

 private:
  const GgufTensor& take(const std::string& name, const Shape& shape);
  V blockwise(const GgufTensor& tensor, const RowOrder& order);
  V dense(const GgufTensor& tensor, const RowOrder& order);
  NDArray narrowed(const NDArray& wide, const std::string& name) const;

  const GgufFile& file_;
  GraphOps& ops_;
  DType compute_;
  const ExportProgress& progress_;
  std::stop_token stop_;
  std::set<std::string, std::less<>> used_;
  std::uint64_t done_ = 0, total_ = 0;
  ThreadPool pool_;
};

}  // namespace coreai
