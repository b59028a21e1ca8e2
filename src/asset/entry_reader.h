// Attributes and types of a file, decoded when they are first asked for.
#pragma once

#include "bytecode_container.h"
#include "coreai/ir/context.h"

namespace coreai::asset {

class EntryReader {
 public:
  EntryReader(const Container& container, ir::Context& context);

  // `at` names the place that asked, for errors. Throw MalformedError, UnsupportedError (unknown code, text payload).
  ir::AttrRef attribute(std::uint64_t index, const ByteCursor& at);
  ir::TypeRef type(std::uint64_t index, const ByteCursor& at);
  // A location: the dialect's own attribute, or one of MLIR's built-in locations turned into it.
  ir::AttrRef location(std::uint64_t index, const ByteCursor& at);

 private:
  // Entries refer to each other in any order, so a file can nest them without end, in a circle, or share parts so that
  // their text would be larger than any memory. Genuine files stay below depth 20.
  static constexpr int kMaxDepth = 200;
  static constexpr std::uint64_t kMaxNodes = std::uint64_t{1} << 22;
  struct Visit;  // marks an entry as being decoded

  ByteCursor payload(const Entry& entry) const;
  void require_decodable(const Entry& entry, const ByteCursor& at, const char* what) const;
  template <typename Ref>
  Ref accept(Ref entry, const ByteCursor& at) const;
  std::vector<ir::Field> fields(const ir::CodeInfo& info, ByteCursor& cursor);
  ir::Field field(ir::FieldKind kind, const std::vector<ir::Field>& before, ByteCursor& cursor);
  std::vector<std::uint64_t> ap_words(std::uint64_t width, ByteCursor& cursor) const;
  ir::ResourceRef resource(ByteCursor& cursor) const;
  ir::AttrRef builtin_location(std::uint64_t index, const ByteCursor& at);
  std::string builtin_string(std::uint64_t index, const ByteCursor& at);

  const Container& container_;
  ir::Context& context_;
  std::vector<ir::AttrRef> attributes_;  // null: not decoded yet
  std::vector<ir::TypeRef> types_;
  std::vector<bool> attribute_busy_, type_busy_;
  int depth_ = 0;
};

}  // namespace coreai::asset
