#include "grammar/schema_machine.h"

#include <algorithm>
#include <map>

#include "coreai/base/error.h"
#include "grammar/json_text.h"

namespace coreai::grammar {
namespace {

constexpr std::size_t kMaxRecordBytes = std::size_t{256} << 20;

constexpr ByteSet bytes_of(std::string_view text) {
  ByteSet out;
  for (const char c : text) out.insert(static_cast<std::uint8_t>(c));
  return out;
}
constexpr ByteSet kBlanks = bytes_of(" \t\n\r"), kValueStarts = bytes_of("\"-0123456789tfn{[");

bool is_space(std::uint8_t byte) {
  return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

}  // namespace

SchemaMachine::SchemaMachine(std::string_view schema, const JsonSchemaOptions& options,
                             std::unique_ptr<ExpressionPool> texts)
    : texts_(std::move(texts)),
      formulas_(*texts_),
      keys_(*texts_),
      property_order_(options.property_order),
      spaces_(options.whitespace.max) {
  any_name_ = formulas_.string_expression(kAlways);
  blank_ = json_blank(*texts_);
  CompiledSchema compiled = compile_schema(schema, options, *texts_, formulas_, keys_);
  dropped_ = std::move(compiled.dropped);
  lists_.intern({});
  record(kDeadRecord, {}, {});
  record(kEnd, {}, {});
  if (!value_lives(compiled.root))
    throw InvalidArgumentError("no value belongs to the schema", "#", "its conditions exclude each other");
  const Entry whole{compiled.root, kEndOfText};
  start_ = state_of(record(kValue, {0}, std::span(&whole, 1)));
}

SchemaMachine::RecordId SchemaMachine::record(std::uint32_t kind, std::initializer_list<std::uint32_t> head,
                                              std::span<const Entry> entries) {
  words_.assign(1, kind);
  words_.insert(words_.end(), head);
  for (const Entry& entry : entries) words_.insert(words_.end(), {entry.what, entry.then});
  if (records_.memory_bytes() >= kMaxRecordBytes)
    throw UnsupportedError("the text passed through more states than the work budget allows", "grammar",
                           "make the schema simpler");
  return records_.intern(words_);
}

SchemaMachine::Entries SchemaMachine::entries_of(RecordId of, std::size_t head) const {
  const auto words = records_[of].subspan(1 + head);
  Entries out;
  for (std::size_t i = 0; i < words.size(); i += 2) out.push_back({words[i], words[i + 1]});
  return out;
}

bool SchemaMachine::ends_text(RecordId of) {
  const auto words = records_[of];
  if (words[0] == kEnd) return true;
  if (words[0] != kScalar) return false;
  for (std::size_t i = 1; i < words.size(); i += 2)
    if (texts_->nullable(words[i]) && records_[words[i + 1]][0] == kEnd) return true;
  return false;
}

StateId SchemaMachine::state_of(RecordId of) {
  return of == 0 ? kDead : (of << 1) | static_cast<StateId>(ends_text(of));
}

SchemaMachine::RecordId SchemaMachine::step_record(RecordId of, std::uint8_t byte) {
  switch (records_[of][0]) {
    case kScalar:
      return step_scalar(of, byte);
    case kValue:
    case kColon:
      return step_value(of, byte);
    case kObject:
      return step_object(of, byte);
    case kArray:
      return step_array(of, byte);
    default:
      return 0;
  }
}

SchemaMachine::RecordId SchemaMachine::after_space(RecordId of, std::size_t at) {
  const auto words = records_[of];
  if (words[at] == 0) return 0;
  words_.assign(words.begin(), words.end());
  if (words_[at] != kUnbounded) --words_[at];
  return records_.intern(words_);
}

// One that says nothing more passes to what follows it.
SchemaMachine::RecordId SchemaMachine::scalar(Entries entries) {
  std::erase_if(entries, [&](const Entry& entry) { return texts_->is_nothing(entry.what); });
  if (entries.empty()) return 0;
  if (entries.size() == 1 && entries[0].what == kEmptyString) return entries[0].then;
  std::sort(entries.begin(), entries.end());
  return record(kScalar, {}, entries);
}

// Most states have one entry, which needs no memory of its own.
SchemaMachine::RecordId SchemaMachine::step_scalar(RecordId of, std::uint8_t byte) {
  if (const auto words = records_[of]; words.size() == 3) {
    const Entry only{words[1], words[2]};
    const ExprId next = texts_->derive(only.what, byte);
    if (next == kEmptyString) return only.then;
    const Entry after{next, only.then};
    if (!texts_->is_nothing(next)) return record(kScalar, {}, std::span(&after, 1));
    return texts_->nullable(only.what) ? step_record(only.then, byte) : 0;
  }
  const Entries before = entries_of(of, 0);
  Entries after = before;
  for (Entry& entry : after) entry.what = texts_->derive(entry.what, byte);
  if (const RecordId next = scalar(std::move(after)); next != 0) return next;
  for (const Entry& entry : before)  // a number ends with what follows it
    if (texts_->nullable(entry.what)) return step_record(entry.then, byte);
  return 0;
}

SchemaMachine::RecordId SchemaMachine::step_value(RecordId of, std::uint8_t byte) {
  if (is_space(byte)) return after_space(of, 1);
  const Entries entries = entries_of(of, 1);
  if (records_[of][0] == kValue) return enter_value(entries, byte);
  return byte == ':' ? record(kValue, {spaces_}, entries) : 0;
}

SchemaMachine::RecordId SchemaMachine::enter_scalar(const Entries& entries, JsonType type, std::uint8_t byte) {
  Entries out;
  for (const Entry& entry : entries) {
    const ExprId text = formulas_.scalar_expression(formulas_.restrict(entry.what, type), type);
    out.push_back({texts_->derive(text, byte), entry.then});
  }
  return scalar(std::move(out));
}

SchemaMachine::RecordId SchemaMachine::enter_value(const Entries& entries, std::uint8_t byte) {
  if (byte == '"') return enter_scalar(entries, JsonType::kString, byte);
  if (byte == '-' || (byte >= '0' && byte <= '9')) return enter_scalar(entries, JsonType::kNumber, byte);
  if (byte == 't' || byte == 'f') return enter_scalar(entries, JsonType::kBoolean, byte);
  if (byte == 'n') return enter_scalar(entries, JsonType::kNull, byte);
  if (byte != '{' && byte != '[') return 0;
  Entries inside = entries;
  for (Entry& entry : inside)
    entry.what = formulas_.restrict(entry.what, byte == '{' ? JsonType::kObject : JsonType::kArray);
  if (byte == '[') {
    std::erase_if(inside, [&](const Entry& entry) { return !array_lives(entry.what); });
    return inside.empty() ? 0 : record(kArray, {kFirst, spaces_}, inside);
  }
  const ListId order = order_of(inside);
  std::erase_if(inside, [&](const Entry& entry) { return !object_lives({order, 0}, entry.what); });
  return inside.empty() ? 0 : record(kObject, {kFirst, spaces_, order, 0}, inside);
}

SchemaMachine::RecordId SchemaMachine::close(const Entries& entries) {
  for (const Entry& entry : entries)
    if (formulas_.holds_at_end(entry.what)) return entry.then;
  return 0;
}

SchemaMachine::RecordId SchemaMachine::step_object(RecordId of, std::uint8_t byte) {
  if (is_space(byte)) return after_space(of, 2);
  const std::vector<std::uint32_t> words = records_.copy(of);
  const Entries entries = entries_of(of, 4);
  const Place place{words[3], words[4]};
  if (byte == '}') return words[1] == kNext ? 0 : close(entries);
  const std::uint8_t wanted = words[1] == kAfter ? ',' : '"';
  if (byte == wanted) {
    const RecordId keys = key_state(place, entries);
    if (keys == 0) return 0;
    return byte == '"' ? step_scalar(keys, byte) : record(kObject, {kNext, spaces_, place.order, place.used}, entries);
  }
  return 0;
}

SchemaMachine::RecordId SchemaMachine::step_array(RecordId of, std::uint8_t byte) {
  if (is_space(byte)) return after_space(of, 2);
  const std::uint32_t phase = records_[of][1];
  const Entries entries = entries_of(of, 2);
  if (byte == ']') return phase == kNext ? 0 : close(entries);
  if (phase == kAfter && byte != ',') return 0;
  const Entries goal = item_goal(entries);
  if (goal.empty()) return 0;
  return phase == kAfter ? record(kArray, {kNext, spaces_}, entries) : enter_value(goal, byte);
}

SchemaMachine::Entries SchemaMachine::item_goal(const Entries& entries) {
  Entries goal;
  for (const Outcome& outcome : item_outcomes(entries))
    goal.push_back({outcome.value, record(kArray, {kAfter, spaces_}, outcome.next)});
  return goal;
}

SchemaMachine::Entries SchemaMachine::member_goal(Place after, const MemberName& name, const Entries& entries) {
  Entries goal;
  const auto lives = [&](FormulaId f) { return object_lives(after, f); };
  for (const Outcome& outcome : member_outcomes(after, name, entries, lives))
    goal.push_back({outcome.value, record(kObject, {kAfter, spaces_, after.order, after.used}, outcome.next)});
  return goal;
}

// The names that may come next, before their opening quote. A name whose value might mean too many different things
// waits until other members have said more; where all names would have to wait the schema is too hard.
SchemaMachine::RecordId SchemaMachine::key_state(Place place, const Entries& entries) {
  const RecordId question = record(kObject, {kNext, 0, place.order, place.used}, entries);
  if (const auto known = key_states_.find(question); known != key_states_.end()) return known->second;
  Entries choices;
  std::optional<TooManyWays> waiting;
  bool leads_on = false;  // some member says more
  const auto add = [&](const MemberName& name, ExprId body, Place after) {
    try {
      const Entries goal = member_goal(after, name, entries);
      if (goal.empty()) return;
      choices.push_back({json_string(*texts_, body), record(kColon, {spaces_}, goal)});
      for (const Entry& entry : goal) leads_on = leads_on || entries_of(entry.then, 4) != entries;
    } catch (const TooManyWays& error) {
      waiting = error;
    }
  };
  const std::vector<ExprId> patterns = patterns_of(entries);
  const std::vector<KeyId> order = lists_.copy(place.order);
  for (std::uint32_t at = 0; at < order.size(); ++at)
    if (!used(place, at)) add(written_name(order[at], patterns), keys_.body(order[at]), after_name(place, at));
  for (const auto& [name, body] : other_names(place, patterns)) add(name, body, place);
  if (waiting && !leads_on && close(entries) == 0) throw TooManyWays(*waiting);
  const RecordId state = scalar(std::move(choices));
  key_states_.emplace(question, state);
  return state;
}

void SchemaMachine::find_row(StateId state, Row& row) {
  const RecordId of = state >> 1;
  if (records_[of][0] == kScalar) return scalar_row(of, row);
  const ByteSet live = live_bytes(state);
  for (std::size_t i = 0; i < 256; ++i) {
    const auto byte = static_cast<std::uint8_t>(i);
    row[i] = live.contains(byte) ? state_of(step_record(of, byte)) : kDead;
  }
}

ByteSet SchemaMachine::live_bytes(StateId state) {
  const RecordId of = state >> 1;
  const auto words = records_[of];
  ByteSet out;
  switch (words[0]) {
    case kScalar:
      for (const Entry& entry : entries_of(of, 0)) {
        out = out | texts_->first_bytes(entry.what);
        if (texts_->nullable(entry.what)) out = out | live_bytes(entry.then << 1);
      }
      return out;
    case kValue:
      return words[1] != 0 ? kBlanks | kValueStarts : kValueStarts;
    case kColon:
      return words[1] != 0 ? kBlanks | ByteSet::one(':') : ByteSet::one(':');
    case kObject:
    case kArray:
      out = words[0] == kArray ? kValueStarts | ByteSet::one(']') : ByteSet::one('"') | ByteSet::one('}');
      return out | ByteSet::one(',') | (words[2] != 0 ? kBlanks : ByteSet());
    default:
      return out;
  }
}

// White space is a run before all else.
LazyMachine::Parts SchemaMachine::parts(StateId state) {
  const RecordId of = state >> 1;
  const auto words = records_[of];
  if (words[0] == kScalar) return scalar_parts(of);
  if (words[0] <= kEnd) return {};
  const std::size_t at = words[0] == kObject || words[0] == kArray ? 2 : 1;
  const std::uint32_t spaces = words[at];
  if (spaces <= 1) return {};
  std::vector<std::uint32_t> bare = records_.copy(of);
  bare[at] = 0;
  const Run blanks{blank_, 0, spaces, kNothing, kEmptyString};
  return {.runs = {{blanks, state_of(records_.intern(bare)), state}}};
}

LazyMachine::Parts SchemaMachine::scalar_parts(RecordId of) {
  constexpr int kFew = 8;  // first bytes up to which a walk is cheaper than a look at what is kept
  Parts out;
  Entries others;
  for (const Entry& entry : entries_of(of, 0)) {
    if (texts_->first_bytes(entry.what).size() <= kFew) {
      others.push_back(entry);
      continue;
    }
    std::vector<ExprId> left;
    for (const ExprId choice : texts_->choices(entry.what)) {
      const auto run = texts_->run(choice);
      if (run && !texts_->nullable(run->rest))
        out.runs.push_back(
            {*run, state_of(scalar({{run->rest, entry.then}})), state_of(scalar({{choice, entry.then}}))});
      else if (const auto absorbed = texts_->absorbed(choice))
        out.texts.push_back(state_text(choice, entry.then, *absorbed));
      else
        left.push_back(choice);
    }
    if (!left.empty()) out.texts.push_back(state_text(texts_->any_of(left), entry.then, {kNothing, 0}));
  }
  if (!out.is_whole()) out.others = state_of(scalar(std::move(others)));
  return out;
}

LazyMachine::StateText SchemaMachine::state_text(ExprId text, RecordId then, const ExpressionPool::Absorbed& absorbed) {
  return {text, state_of(then), state_of(scalar({{text, kEndOfText}})), state_of(scalar({{text, then}})), absorbed};
}

// One step for all bytes that no entry tells apart.
void SchemaMachine::scalar_row(RecordId of, Row& row) {
  const Entries entries = entries_of(of, 0);
  std::vector<ByteClasses> splits;
  bool may_end = false;
  for (const Entry& entry : entries) {
    splits.push_back(texts_->classes(entry.what));
    may_end |= texts_->nullable(entry.what);
  }
  std::map<std::vector<std::uint8_t>, StateId> known;
  const ByteSet live = live_bytes(state_of(of));
  row.fill(kDead);
  live.for_each([&](std::uint8_t byte) {
    std::vector<std::uint8_t> key;
    key.reserve(splits.size() + 1);
    for (const ByteClasses& split : splits) key.push_back(split.class_of[byte]);
    if (may_end) key.push_back(byte);
    const auto [at, added] = known.try_emplace(std::move(key), kDead);
    if (added) at->second = state_of(step_scalar(of, byte));
    row[byte] = at->second;
  });
}

StateId SchemaMachine::find_mask_state(StateId state, std::size_t longest) {
  const RecordId of = state >> 1;
  if (records_[of][0] != kScalar) return state;
  Entries entries = entries_of(of, 0);
  // Several entries may differ just in what is cut off here.
  if (entries.size() != 1 || !texts_->counts(entries[0].what)) return state;
  entries[0].what = texts_->clamp(entries[0].what, static_cast<std::uint32_t>(longest));
  return state_of(scalar(std::move(entries)));
}

std::size_t SchemaMachine::memory_bytes() const {
  const std::lock_guard lock(mutex_);
  return texts_->memory_bytes() + formulas_.memory_bytes() + records_.memory_bytes() + lists_.memory_bytes() +
         questions_.memory_bytes() + key_states_.size() * 24 + row_bytes();
}

std::shared_ptr<SchemaMachine> inner_schema(std::string_view schema, const JsonSchemaOptions& options,
                                            const GrammarCompilerOptions& budget, std::size_t& used) {
  auto pool = new_json_pool(budget.max_expressions - std::min(budget.max_expressions, used), budget.max_search_steps);
  const ExpressionPool& texts = *pool;
  auto machine = std::make_shared<SchemaMachine>(schema, options, std::move(pool));
  used += texts.size();
  return machine;
}

}  // namespace coreai::grammar
