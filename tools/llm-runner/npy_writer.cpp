#include "llm-runner/npy_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "coreai/base/error.h"

namespace coreai::tools {
namespace {

constexpr std::size_t kAlignment = 64;  // the header ends at a multiple of it
constexpr std::size_t kPreamble = 10;   // magic, version, header length

}  // namespace

NpyRowWriter::NpyRowWriter(const std::filesystem::path& path, std::size_t rows, std::size_t columns)
    : path_(path),
      temporary_(fmt::format("{}.{}.tmp", path.string(), ::getpid())),
      file_(temporary_, std::ios::binary) {
  std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, columns);
  header.resize((kPreamble + header.size() + kAlignment) / kAlignment * kAlignment - kPreamble, ' ');
  header.back() = '\n';
  file_ << "\x93NUMPY" << '\x01' << '\0' << static_cast<char>(header.size() & 0xff)
        << static_cast<char>(header.size() >> 8) << header;
  check();
}

NpyRowWriter::~NpyRowWriter() {
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove(temporary_, ignored);
}

void NpyRowWriter::write(std::span<const float> row) {
  file_.write(reinterpret_cast<const char*>(row.data()), static_cast<std::streamsize>(row.size_bytes()));
  check();
}

void NpyRowWriter::finish() {
  file_.close();
  check();
  std::error_code error;
  std::filesystem::rename(temporary_, path_, error);
  if (error) throw IoError("the file cannot be put in place", path_.string(), error.value());
  temporary_.clear();
}

void NpyRowWriter::check() {
  if (!file_) throw IoError("the logits cannot be written", path_.string(), errno, "Choose a folder with room");
}

}  // namespace coreai::tools
