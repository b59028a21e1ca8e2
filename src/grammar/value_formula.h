// What a JSON value is held to: a formula over atoms, hash-consed. Atoms of objects and arrays are read member by
// member: each has a successor, which may depend on whether the member's value meets a schema of the atom.
// Source of the idea: progression of temporal formulas (Bacchus and Kabanza 1998), derivatives (Brzozowski 1964).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/expression.h"
#include "grammar/intern_table.h"
#include "grammar/json_number.h"

namespace coreai::grammar {

enum class JsonType : std::uint8_t { kNull, kBoolean, kNumber, kString, kArray, kObject };
constexpr std::uint32_t kJsonTypes = 6;
constexpr std::uint32_t type_bit(JsonType type) {
  return 1u << static_cast<unsigned>(type);
}
constexpr std::uint32_t kAllTypes = (1u << kJsonTypes) - 1;

using FormulaId = std::uint32_t;
constexpr FormulaId kNever = 0, kAlways = 1;
// A formula by a name, so that it may hold the name itself below an object or an array.
using SchemaId = std::uint32_t;
using KeyId = std::uint32_t;  // a member name that the schema writes
constexpr KeyId kOtherKey = UINT32_MAX;

// The schemas of an object's members.
struct MemberSchemas {
  std::vector<std::pair<KeyId, SchemaId>> properties;  // ascending
  std::vector<std::pair<ExprId, SchemaId>> patterns;   // of the text between the quotes
  SchemaId additional = 0;                             // where neither names the member
};
struct ItemSchemas {
  std::vector<SchemaId> prefix;
  SchemaId rest = 0;
};

// A member name: one that the schema writes or any other, and the patterns among those of the formula that it matches.
struct MemberName {
  KeyId key = kOtherKey;
  std::vector<ExprId> matched;
  bool matches(ExprId pattern) const;
};

// What becomes of an atom with the next member or item: `when_true` where its value meets `schema`, else `when_false`.
struct AtomStep {
  FormulaId schema = kAlways;
  FormulaId when_true, when_false = kNever;
};

class FormulaPool {
 public:
  // `texts` outlives it and holds the expressions of its atoms.
  explicit FormulaPool(ExpressionPool& texts);

  FormulaId all_of(const std::vector<FormulaId>& conditions);
  FormulaId any_of(const std::vector<FormulaId>& choices);
  FormulaId one_of(std::vector<FormulaId> choices);  // exactly one
  FormulaId negate(FormulaId f);

  // The value is of one of the types.
  FormulaId type(std::uint32_t types);
  // It is of that type and holds to the rest. Texts are null, true, false, or between the quotes of a string.
  FormulaId text(JsonType type, ExprId text);
  // The same for all ways to write one value: no two of them hold at once.
  FormulaId constant(JsonType type, ExprId text);
  FormulaId number(const NumberText& number);
  FormulaId has(KeyId key);
  FormulaId members(const MemberSchemas& schemas);
  FormulaId names(ExprId pattern);  // every member's name
  FormulaId member_count(std::uint32_t min, std::uint32_t max);
  FormulaId items(const ItemSchemas& schemas);
  FormulaId item_count(std::uint32_t min, std::uint32_t max);
  FormulaId contains(SchemaId schema, std::uint32_t min, std::uint32_t max);

  // Schemas: a name first, what it says later; kAlways and kNever are schemas of the same numbers.
  SchemaId new_schema();
  void define(SchemaId schema, FormulaId formula) { schemas_[schema] = formula; }
  FormulaId formula(SchemaId schema) const { return schemas_[schema]; }

  // What remains of the formula once the type is known; only atoms of that type are left.
  FormulaId restrict(FormulaId f, JsonType type);
  // The texts of a restricted formula, in quotes where they are strings.
  ExprId scalar_expression(FormulaId f, JsonType type);
  // The same for what stands between the quotes of a string.
  ExprId string_expression(FormulaId f) { return text_expression(f, any_string_); }

  // Of a formula that was restricted to an object or an array:
  const std::vector<FormulaId>& atoms(FormulaId f);   // ascending
  bool holds_at_end(FormulaId f) const;               // nothing more comes
  std::optional<KeyId> key_of(FormulaId atom) const;  // of has()
  bool requires_key(FormulaId f, KeyId key);          // has(key) is one of its conditions
  // Formulas of which one holds wherever `f` does; `f` alone where there is no choice in it.
  std::vector<FormulaId> alternatives(FormulaId f);
  // The parts of a formula of which each member can be looked at by itself: required names, and what holds for every
  // member. Nothing for other formulas.
  struct Independent {
    std::vector<KeyId> required;
    FormulaId every = kAlways;
  };
  const std::optional<Independent>& independent(FormulaId f);
  // Names and patterns that members() and names() ask for.
  void collect_names(FormulaId atom, std::vector<KeyId>& keys, std::vector<ExprId>& patterns) const;
  AtomStep step(FormulaId atom, const MemberName& name);
  AtomStep step(FormulaId atom);  // of an array
  // An atom that stands for one whose truth is open.
  FormulaId open_atom(std::uint32_t number);
  // `f` with atoms replaced.
  FormulaId replace(FormulaId f, const std::unordered_map<FormulaId, FormulaId>& with);

  std::size_t memory_bytes() const { return nodes_.memory_bytes() + specs_.memory_bytes(); }

 private:
  enum Kind : std::uint32_t {
    kNeverNode,
    kAlwaysNode,
    kAll,
    kAny,
    kOne,
    kNot,
    kType,
    kText,
    kConstant,
    kNumber,
    kHas,
    kMembers,
    kNames,
    kMemberCount,
    kItems,
    kItemCount,
    kContains,
    kOpen
  };
  std::span<const std::uint32_t> operands(FormulaId f) const { return nodes_[f].subspan(1); }
  Kind kind(FormulaId f) const { return static_cast<Kind>(nodes_[f][0]); }
  FormulaId node(std::initializer_list<std::uint32_t> words) { return nodes_.intern(words); }
  FormulaId join(Kind kind, const std::vector<FormulaId>& operands, FormulaId neutral, FormulaId absorbing);
  FormulaId rebuild(Kind kind, std::vector<FormulaId> operands);
  FormulaId counted(Kind kind, std::span<const std::uint32_t> before, std::uint32_t min, std::uint32_t max);
  FormulaId replace(FormulaId f, const std::unordered_map<FormulaId, FormulaId>& with,
                    std::unordered_map<FormulaId, FormulaId>& known);
  FormulaId restrict_atom(FormulaId f, JsonType type);
  std::optional<JsonType> type_of(FormulaId f) const;  // that an atom asks for
  bool use_types_and_constants(std::vector<FormulaId>& conditions);
  ExprId text_expression(FormulaId f, ExprId all);
  NumberText number_text(FormulaId f);
  // Exactly one of the operands, in terms of the other connectives.
  std::vector<FormulaId> ways_of_one(FormulaId f);
  std::optional<Independent> find_independent(FormulaId f);
  bool is_connective(FormulaId f) const { return kind(f) >= kAll && kind(f) <= kNot; }

  ExpressionPool& texts_;
  ExprId any_string_;  // between the quotes
  InternTable nodes_, specs_;
  std::vector<FormulaId> schemas_{kNever, kAlways};
  std::unordered_map<std::uint64_t, FormulaId> restricted_;
  std::unordered_map<FormulaId, std::vector<FormulaId>> atoms_;
  std::unordered_map<FormulaId, std::optional<Independent>> independent_;
};

}  // namespace coreai::grammar
