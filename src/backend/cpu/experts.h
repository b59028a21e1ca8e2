// Products of rows with matrices that the rows name (mixtures of experts): y[r] = x[r / choices] W^T with W the matrix
// of index r. Rows are sorted by expert, so that a matrix is read once; a row's result is what linear.h gives for it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/linear.h"

namespace coreai::cpu {

struct ExpertArgs {
  const PackedMatrix* weights = nullptr;  // the experts' matrices, each from a whole panel on
  std::int64_t experts = 0;
  std::int64_t outputs = 0;  // columns of y
  std::int64_t rows = 0;     // of y
  std::int64_t choices = 1;  // rows of y that share one of x
  const std::byte* indices = nullptr;
  DType index_dtype = DType::kSI32;  // ui8, si8, ui16, si16 or si32
  const float* x = nullptr;
  std::int64_t x_stride = 0;  // in floats
  float* y = nullptr;
  std::int64_t y_stride = 0;
  Activation activation = Activation::kIdentity;  // with gated pairs: y = activation(gate) * up
  Digits precision = Digits::kFaithful;
  Isa isa = Isa::kPortable;
};

// One call: bind(), then route() once, every chunk of gather(), every chunk of compute(), each stage after the one
// before; chunks in any order on any threads. Memory is kept from call to call.
class ExpertProduct {
 public:
  void bind(const ExpertArgs& args, int threads);

  // Memory for the sorted rows, aligned to kPackAlignment; may be given when its size is known.
  std::size_t gathered_bytes() const;
  void set_gathered(std::byte* gathered) { gathered_ = gathered; }
  // Private memory of a thread inside compute().
  std::size_t scratch_bytes() const;
  int gather_chunks() const;
  int chunks() const { return chunks_; }

  // Reads the indices. Throws InvalidArgumentError for one outside [-experts, experts).
  void route();
  void gather(int chunk) const;
  void compute(int chunk, std::byte* scratch) const;

 private:
  // An expert with rows, and where it begins on the line of work that chunks are pieces of.
  struct Active {
    std::int64_t expert, first, rows, begin;
  };
  std::int64_t index(std::int64_t row) const;
  std::int64_t unit_work(const Active& a) const;
  void multiply(const Active& a, std::int64_t unit_begin, std::int64_t unit_end, float* scratch) const;

  ExpertArgs args_;
  std::byte* gathered_ = nullptr;
  std::size_t row_bytes_ = 0;  // of a sorted row
  std::int64_t units_ = 0;     // of one expert
  std::int64_t work_ = 0;      // of all
  int chunks_ = 0;
  std::vector<std::int64_t> order_;  // sorted row -> row of y
  std::vector<std::int64_t> first_;  // expert -> its first sorted row
  std::vector<Active> active_;
};

}  // namespace coreai::cpu
