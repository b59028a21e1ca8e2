// Writes a two-dimensional f32 array to a NumPy file (format version 1.0) row by row.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <span>

namespace coreai::tools {

// The file appears under its name when finish() has been called; without it nothing stays behind.
class NpyRowWriter {
 public:
  // Throws IoError when the file cannot be written.
  NpyRowWriter(const std::filesystem::path& path, std::size_t rows, std::size_t columns);
  ~NpyRowWriter();
  NpyRowWriter(const NpyRowWriter&) = delete;
  NpyRowWriter& operator=(const NpyRowWriter&) = delete;

  void write(std::span<const float> row);
  void finish();

 private:
  void check();
  std::filesystem::path path_, temporary_;
  std::ofstream file_;
};

}  // namespace coreai::tools
