// A JSON Schema as a machine (docs/decisions/0003-grammar-machine.md). A state is the rest of a value, held to several
// formulas of which no two hold at once, each with the state that follows where it was the one.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "coreai/base/error.h"
#include "grammar/lazy_machine.h"
#include "grammar/schema_compiler.h"

namespace coreai::grammar {

class SchemaMachine final : public LazyMachine {
 public:
  // Throws as compile_schema, and InvalidArgumentError where no value belongs to the schema.
  SchemaMachine(std::string_view schema, const JsonSchemaOptions& options, std::unique_ptr<ExpressionPool> texts);

  StateId start() const override { return start_; }
  std::size_t memory_bytes() const override;
  std::vector<DroppedKeyword> take_dropped() { return std::move(dropped_); }

 private:
  using RecordId = std::uint32_t;  // 0: dead
  using ListId = std::uint32_t;
  static constexpr RecordId kEndOfText = 1;
  enum Kind : std::uint32_t { kDeadRecord, kEnd, kScalar, kValue, kColon, kObject, kArray };
  enum Phase : std::uint32_t { kFirst, kNext, kAfter };  // after the bracket, after a comma, after a member or item
  // A formula or an expression, and what follows it.
  struct Entry {
    std::uint32_t what;
    RecordId then;
    auto operator<=>(const Entry&) const = default;
  };
  using Entries = std::vector<Entry>;
  // The names that the schema writes, and a bit for each that may no longer come.
  struct Place {
    ListId order = 0;
    ListId used = 0;
  };
  struct Outcome {
    FormulaId value;  // what the member's or item's value is held to
    Entries next;
  };
  struct Branch;
  struct Condition {  // of a value
    FormulaId schema;
    bool met;
  };
  class TooManyWays : public UnsupportedError {
   public:
    using UnsupportedError::UnsupportedError;
  };

  StateId find_step(StateId state, std::uint8_t byte) override { return state_of(step_record(state >> 1, byte)); }
  void find_row(StateId state, Row& row) override;
  StateId find_mask_state(StateId state, std::size_t longest) override;
  ByteSet live_bytes(StateId state) override;
  Parts parts(StateId state) override;
  Parts scalar_parts(RecordId record);
  StateText state_text(ExprId text, RecordId then, const ExpressionPool::Absorbed& absorbed);
  ExpressionPool& pool() override { return *texts_; }
  void scalar_row(RecordId record, Row& row);
  StateId state_of(RecordId record);
  bool ends_text(RecordId record);

  RecordId record(std::uint32_t kind, std::initializer_list<std::uint32_t> head, std::span<const Entry> entries);
  Entries entries_of(RecordId record, std::size_t head) const;
  RecordId step_record(RecordId record, std::uint8_t byte);
  RecordId step_scalar(RecordId record, std::uint8_t byte);
  RecordId step_value(RecordId record, std::uint8_t byte);
  RecordId step_object(RecordId record, std::uint8_t byte);
  RecordId step_array(RecordId record, std::uint8_t byte);
  RecordId enter_value(const Entries& entries, std::uint8_t byte);
  RecordId enter_scalar(const Entries& entries, JsonType type, std::uint8_t byte);
  RecordId close(const Entries& entries);
  // The same record with one white space less; 0 where none may follow.
  RecordId after_space(RecordId record, std::size_t at);

  RecordId scalar(Entries entries);
  RecordId key_state(Place place, const Entries& entries);
  Entries item_goal(const Entries& entries);
  Entries member_goal(Place after, const MemberName& name, const Entries& entries);
  ListId order_of(const Entries& entries);
  bool used(Place place, std::uint32_t at) const;
  Place after_name(Place place, std::uint32_t at);
  std::vector<ExprId> patterns_of(const Entries& entries);
  MemberName written_name(KeyId key, const std::vector<ExprId>& patterns);
  // All other names, by the patterns that they match, each with its texts between the quotes.
  const std::vector<std::pair<MemberName, ExprId>>& other_names(Place place, const std::vector<ExprId>& patterns);

  std::vector<Outcome> outcomes(const Entries& entries, const std::function<AtomStep(FormulaId)>& step,
                                const std::function<bool(FormulaId)>& lives);
  void branch(Branch& branch, std::size_t index, std::vector<FormulaId> formulas,
              const std::vector<Condition>& conditions);
  // `after` is the place behind the member; next formulas are those that `lives` says yes to.
  std::vector<Outcome> member_outcomes(Place after, const MemberName& name, const Entries& entries,
                                       const std::function<bool(FormulaId)>& lives);
  bool mentions(const std::vector<FormulaId>& formulas, FormulaId atom);
  FormulaId condition_of(const std::vector<Condition>& conditions);
  bool exclude_each_other(Branch& branch, FormulaId a, FormulaId b);
  void exclude(Branch& branch, std::size_t from, const std::vector<Condition>& conditions,
               std::unordered_map<FormulaId, FormulaId>& known);
  std::vector<Outcome> item_outcomes(const Entries& entries);

  // Whether any value, any rest of an object, any rest of an array meets the formula.
  bool value_lives(FormulaId f);
  bool surely_empty(FormulaId f);
  bool object_lives(Place place, FormulaId f);
  bool find_member(Place place, FormulaId f);
  bool member_lives(FormulaId every, KeyId key);
  bool array_lives(FormulaId f);
  bool decide(std::initializer_list<std::uint32_t> question, const std::function<bool()>& find);

  std::unique_ptr<ExpressionPool> texts_;
  FormulaPool formulas_;
  KeyTable keys_;
  PropertyOrder property_order_;
  std::uint32_t spaces_;  // at most, in one place; kUnbounded
  std::vector<DroppedKeyword> dropped_;
  InternTable records_, lists_, questions_;
  std::vector<std::uint32_t> words_;                                                    // of a record while it is made
  std::unordered_map<ListId, std::vector<std::pair<MemberName, ExprId>>> other_names_;  // by patterns and order
  std::unordered_map<std::uint32_t, RecordId> key_states_;  // by the record of an object after a comma
  struct Answer {
    bool known = false, lives = false;
    int depth = 0;  // of the question while it is open
  };
  std::vector<Answer> answers_;
  int branch_depth_ = 0;
  int depth_ = 0, lowest_ = INT32_MAX;  // the outermost open question that the present one fell back to
  ExprId any_name_, blank_;
  StateId start_ = kDead;
};

// A schema inside another grammar: it may take the expressions that `used` leaves of the budget, and adds its own.
std::shared_ptr<SchemaMachine> inner_schema(std::string_view schema, const JsonSchemaOptions& options,
                                            const GrammarCompilerOptions& budget, std::size_t& used);

}  // namespace coreai::grammar
