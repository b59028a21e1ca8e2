// The `.aimodel` folder: metadata.json, main.mlirb, main.hash. docs/aimodel-format.md describes it to the last byte.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coreai/base/mapped_file.h"
#include "coreai/ir/module.h"

namespace coreai {

struct AIModelAssetMetadata {
  std::string asset_version = "2.0";
  std::string author, license, description, producer, creation_date;  // empty when absent
  std::string raw_json;                                               // the file as it is
};

struct ValueDescriptor {
  std::string name;
  std::string type_name;  // text form, such as "tensor<1x?xsi32>"
  DType dtype = DType::kF32;
  Shape shape;  // kDynamic where unknown
};

struct FunctionDescriptor {
  std::string name;
  std::vector<ValueDescriptor> inputs, states, outputs;  // declaration order; a state is neither input nor output
};

// What an asset holds, without touching its weights.
struct AIModelAssetSummary {
  std::vector<FunctionDescriptor> functions;
  std::map<std::string, std::int64_t> operation_distribution;  // decompositions counted too, as the reference does
  std::map<std::string, std::int64_t> top_level_operations;    // without decompositions
  std::map<std::string, std::uint64_t> storage_bytes;          // dtype name -> bytes of constants
  std::uint64_t program_bytes = 0;
  std::vector<std::string> composites;
};

enum class HashCheck { kVerify, kSkip };
enum class ProgramCheck { kVerify, kSkip };

// An asset on disk, mapped. Immutable and thread-safe once opened.
class AIModelAsset {
 public:
  // Throws NotFoundError, IoError, MalformedError, UnsupportedError (version, compiled .aimodelc, a bundle given in its
  // place), HashMismatchError. kSkip leaves the hash to the caller (a specialisation that vouches for the file).
  static AIModelAsset open(const std::filesystem::path& path, HashCheck check = HashCheck::kVerify);
  static bool is_valid(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const AIModelAssetMetadata& metadata() const { return metadata_; }
  const std::string& hash_hex() const { return hash_hex_; }  // content of main.hash
  std::span<const std::byte> program_bytes() const { return program_->bytes(); }

  // The program; weights stay mapped. Older op versions are upgraded and the result is verified, so that whatever runs
  // it may rely on the rules of the dialect. Throws MalformedError, UnsupportedError, VerificationError.
  std::unique_ptr<ir::Module> load_module(ProgramCheck check = ProgramCheck::kVerify) const;
  AIModelAssetSummary summary() const;

 private:
  std::filesystem::path path_;
  AIModelAssetMetadata metadata_;
  std::string hash_hex_;
  std::shared_ptr<const MappedFile> program_;
};

FunctionDescriptor describe(const ir::Graph& graph);
AIModelAssetSummary summarize(const ir::Module& module);

// Reads MLIR bytecode with the `aicode` dialect, without verifying the program. `storage` keeps the bytes alive:
// constants point into it. Throws MalformedError (offset), UnsupportedError (unknown op, type or version).
struct ReadOptions {
  bool upgrade = true;  // older op versions become current ones
};
std::unique_ptr<ir::Module> read_bytecode(const std::shared_ptr<Storage>& storage, const std::string& where,
                                          const ReadOptions& options = {});

struct WriteOptions {
  bool strip_locations = false;
};
// Deterministic: equal modules give equal bytes. Throws UnsupportedError for a program with operations of a newer
// dialect whose attributes could not be read.
std::vector<std::byte> write_bytecode(const ir::Module& module, const WriteOptions& options = {});

// Writes the three files into a temporary folder beside `path` and renames it into place.
// Throws IoError (existing path, no space), VerificationError (the module is verified first), UnsupportedError.
void save_asset(const ir::Module& module, const std::filesystem::path& path, const AIModelAssetMetadata& metadata,
                const WriteOptions& options = {});

}  // namespace coreai
