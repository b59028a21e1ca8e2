// A program as MLIR bytecode. Small parts are bytes, blobs stay where they are: a writer streams them.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "coreai/asset/asset.h"

namespace coreai::asset {

// The parts of a file in their order. Spans point into `owned` or into the module's resources.
class BytecodeImage {
 public:
  // Throws VerificationError when the module cannot be stored: a value used outside its region, a required attribute
  // that is missing, two blobs of one name.
  BytecodeImage(const ir::Module& module, const WriteOptions& options);

  void for_each_part(const std::function<void(std::span<const std::byte>)>& visit) const;
  std::uint64_t size() const;

 private:
  struct Blob {
    std::vector<std::byte> header;  // alignment, length, padding
    ir::ResourceRef resource;
  };
  std::vector<std::byte> head_;
  std::vector<Blob> blobs_;
  std::vector<std::byte> tail_;
};

}  // namespace coreai::asset
