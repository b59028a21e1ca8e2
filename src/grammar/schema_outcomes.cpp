// What a member or an item may be, what follows from it, and whether there is any.
#include <algorithm>
#include <map>
#include <utility>

#include "coreai/base/error.h"
#include "grammar/schema_machine.h"

namespace coreai::grammar {
namespace {

constexpr std::size_t kMaxSteps = 2000;    // of a search for what may be true of one value
constexpr std::size_t kMaxPairs = 32'000;  // of alternatives that are asked whether they exclude each other
constexpr std::size_t kMaxNameClasses = 4096;
constexpr int kMaxDepth = 400;         // of questions that ask questions
constexpr int kMaxBranchDepth = 1500;  // of all searches that are open at once: both bound the stack

constexpr const char* kAdvice = "make the schema simpler: fewer alternatives that overlap";

[[noreturn]] void too_hard(const char* what) {
  throw UnsupportedError(what, "grammar", kAdvice);
}

}  // namespace

// Names of members() in the order in which the schema writes them, then those that are only required.
SchemaMachine::ListId SchemaMachine::order_of(const Entries& entries) {
  std::vector<KeyId> members, required, order;
  std::vector<ExprId> patterns;
  for (const Entry& entry : entries)
    for (const FormulaId atom : formulas_.atoms(entry.what))
      formulas_.collect_names(atom, formulas_.key_of(atom) ? required : members, patterns);
  members.insert(members.end(), required.begin(), required.end());
  std::vector<bool> seen(keys_.size());
  for (const KeyId key : members) {
    if (!seen[key]) order.push_back(key);
    seen[key] = true;
  }
  return lists_.intern(order);
}

bool SchemaMachine::used(Place place, std::uint32_t at) const {
  const auto words = lists_[place.used];
  return at / 32 < words.size() && (words[at / 32] >> (at % 32) & 1u) != 0;
}

// In the order of the schema all names before the one that came are over as well.
SchemaMachine::Place SchemaMachine::after_name(Place place, std::uint32_t at) {
  std::vector<std::uint32_t> words = lists_.copy(place.used);
  words.resize(std::max<std::size_t>(words.size(), at / 32 + 1));
  for (std::uint32_t i = property_order_ == PropertyOrder::kAny ? at : 0; i <= at; ++i) words[i / 32] |= 1u << (i % 32);
  return {place.order, lists_.intern(words)};
}

std::vector<ExprId> SchemaMachine::patterns_of(const Entries& entries) {
  std::vector<KeyId> keys;
  std::vector<ExprId> patterns;
  for (const Entry& entry : entries)
    for (const FormulaId atom : formulas_.atoms(entry.what)) formulas_.collect_names(atom, keys, patterns);
  std::sort(patterns.begin(), patterns.end());
  patterns.erase(std::unique(patterns.begin(), patterns.end()), patterns.end());
  return patterns;
}

MemberName SchemaMachine::written_name(KeyId key, const std::vector<ExprId>& patterns) {
  MemberName name{key, {}};
  for (const ExprId pattern : patterns)
    if (keys_.matches(key, pattern)) name.matched.push_back(pattern);
  return name;
}

const std::vector<std::pair<MemberName, ExprId>>& SchemaMachine::other_names(Place place,
                                                                             const std::vector<ExprId>& patterns) {
  std::vector<std::uint32_t> asked(patterns);
  asked.push_back(place.order);
  const ListId question = lists_.intern(asked);
  if (const auto known = other_names_.find(question); known != other_names_.end()) return known->second;
  std::vector<ExprId> written;
  for (const KeyId key : lists_.copy(place.order)) written.push_back(keys_.body(key));
  struct Names {
    MemberName name;
    ExprId in, out;  // in one, but not in the other
    ExprId body;
  };
  // A pattern has no other texts than strings.
  const auto names = [&](MemberName name, ExprId in, ExprId out) {
    return Names{std::move(name), in, out,
                 texts_->all_of({in == kAnything ? any_name_ : in, out == kNothing ? kAnything : texts_->negate(out)})};
  };
  std::vector<Names> found{names({}, kAnything, texts_->any_of(written))};
  for (const ExprId pattern : patterns) {
    std::vector<Names> split;
    for (const Names& of : found) {
      MemberName matching = of.name;
      matching.matched.push_back(pattern);
      split.push_back(names(std::move(matching), texts_->all_of({of.in, pattern}), of.out));
      split.push_back(names(of.name, of.in, texts_->any_of({of.out, pattern})));
    }
    std::erase_if(split, [&](const Names& of) { return texts_->is_nothing(of.body); });
    if (split.size() > kMaxNameClasses) too_hard("the patterns of member names overlap in too many ways");
    found = std::move(split);
  }
  std::vector<std::pair<MemberName, ExprId>> out;
  out.reserve(found.size());
  for (Names& of : found) out.emplace_back(std::move(of.name), of.body);
  return other_names_.emplace(question, std::move(out)).first->second;
}

// A search through what may be true of one value.
struct SchemaMachine::Branch {
  struct Open {
    FormulaId atom;  // stands for the one that is open
    AtomStep step;
  };
  std::vector<Open> open;
  std::vector<RecordId> then;  // of the entries
  std::function<bool(FormulaId)> lives;
  std::map<Entries, std::vector<FormulaId>> found;  // what the value is held to, by what follows
  std::size_t count = 0, pairs = 0;
};

FormulaId SchemaMachine::condition_of(const std::vector<Condition>& conditions) {
  std::vector<FormulaId> all;
  all.reserve(conditions.size());
  for (const Condition& condition : conditions)
    all.push_back(condition.met ? condition.schema : formulas_.negate(condition.schema));
  return formulas_.all_of(all);
}

// No value meets both. Asked of two alone it is a short question even where there are many alternatives.
bool SchemaMachine::exclude_each_other(Branch& at, FormulaId a, FormulaId b) {
  return ++at.pairs <= kMaxPairs && surely_empty(formulas_.all_of({a, b}));
}

// A no that rests on a question still open is none yet.
bool SchemaMachine::surely_empty(FormulaId f) {
  const int outer = std::exchange(lowest_, INT32_MAX);
  const bool lives = value_lives(f);
  const bool sure = lowest_ == INT32_MAX;
  lowest_ = std::min(outer, lowest_);
  return !lives && sure;
}

bool SchemaMachine::mentions(const std::vector<FormulaId>& formulas, FormulaId atom) {
  return std::ranges::any_of(formulas,
                             [&](FormulaId f) { return std::ranges::binary_search(formulas_.atoms(f), atom); });
}

void SchemaMachine::branch(Branch& at, std::size_t index, std::vector<FormulaId> formulas,
                           const std::vector<Condition>& conditions) {
  if (std::ranges::all_of(formulas, [](FormulaId f) { return f == kNever; })) return;
  if (++at.count > kMaxSteps || branch_depth_ >= kMaxBranchDepth)
    throw TooManyWays("a value may meet the schema in too many ways", "grammar", kAdvice);
  struct Level {
    explicit Level(int& depth) : depth_of(depth) { ++depth_of; }
    ~Level() { --depth_of; }
    int& depth_of;
  } level(branch_depth_);
  while (index < at.open.size() && !mentions(formulas, at.open[index].atom)) ++index;
  if (index == at.open.size()) {
    Entries next;
    for (std::size_t i = 0; i < formulas.size(); ++i)
      if (formulas[i] != kNever && at.lives(formulas[i])) next.push_back({formulas[i], at.then[i]});
    if (next.empty()) return;
    if (const FormulaId value = condition_of(conditions); value_lives(value)) at.found[next].push_back(value);
    return;
  }
  const Branch::Open& open = at.open[index];
  for (const bool met : {true, false}) {
    std::vector<Condition> inside;
    inside.reserve(conditions.size() + 1);
    for (const Condition& condition : conditions)  // what the new one implies need not be said
      if (!met || condition.met || !exclude_each_other(at, condition.schema, open.step.schema))
        inside.push_back(condition);
    inside.push_back({open.step.schema, met});
    if (inside.size() > 1 && !value_lives(condition_of(inside))) continue;
    std::unordered_map<FormulaId, FormulaId> known{{open.atom, met ? open.step.when_true : open.step.when_false}};
    if (met) exclude(at, index + 1, inside, known);
    std::vector<FormulaId> narrowed;
    narrowed.reserve(formulas.size());
    for (const FormulaId f : formulas) narrowed.push_back(formulas_.replace(f, known));
    branch(at, index + 1, std::move(narrowed), inside);
  }
}

// What cannot be true besides the conditions is false, and needs no condition of its own.
void SchemaMachine::exclude(Branch& at, std::size_t from, const std::vector<Condition>& conditions,
                            std::unordered_map<FormulaId, FormulaId>& known) {
  const FormulaId all = condition_of(conditions);
  for (std::size_t i = from; i < at.open.size(); ++i) {
    if (exclude_each_other(at, conditions.back().schema, at.open[i].step.schema)) {
      known.emplace(at.open[i].atom, at.open[i].step.when_false);
      continue;
    }
    if (conditions.size() == 1) continue;
    const FormulaId both = formulas_.all_of({all, at.open[i].step.schema});
    at.count += both > kAlways;
    if (surely_empty(both)) known.emplace(at.open[i].atom, at.open[i].step.when_false);
  }
}

std::vector<SchemaMachine::Outcome> SchemaMachine::outcomes(const Entries& entries,
                                                            const std::function<AtomStep(FormulaId)>& step,
                                                            const std::function<bool(FormulaId)>& lives) {
  Branch at;
  at.lives = lives;
  std::unordered_map<FormulaId, FormulaId> replaced;
  for (const Entry& entry : entries) {
    at.then.push_back(entry.then);
    for (const FormulaId atom : formulas_.atoms(entry.what)) {
      if (replaced.contains(atom)) continue;
      const AtomStep next = step(atom);
      if (next.schema == kAlways || next.when_true == next.when_false) {
        replaced[atom] = next.when_true;
      } else if (next.schema == kNever) {
        replaced[atom] = next.when_false;
      } else {
        const FormulaId open = formulas_.open_atom(static_cast<std::uint32_t>(at.open.size()));
        replaced[atom] = open;
        at.open.push_back({open, next});
      }
    }
  }
  std::vector<FormulaId> formulas;
  formulas.reserve(entries.size());
  for (const Entry& entry : entries) formulas.push_back(formulas_.replace(entry.what, replaced));
  branch(at, 0, std::move(formulas), {});
  std::vector<Outcome> out;
  out.reserve(at.found.size());
  for (const auto& [next, values] : at.found) out.push_back({formulas_.any_of(values), next});
  return out;
}

std::vector<SchemaMachine::Outcome> SchemaMachine::member_outcomes(Place after, const MemberName& name,
                                                                   const Entries& entries,
                                                                   const std::function<bool(FormulaId)>& lives) {
  const auto passed = [&](KeyId key) {  // it can no longer come
    const auto order = lists_[after.order];
    const auto found = std::ranges::find(order, key);
    return found != order.end() && used(after, static_cast<std::uint32_t>(found - order.begin()));
  };
  const auto step = [&](FormulaId atom) -> AtomStep {
    const auto key = formulas_.key_of(atom);
    if (key && *key != name.key && passed(*key)) return {.when_true = kNever};
    return formulas_.step(atom, name);
  };
  return outcomes(entries, step, lives);
}

std::vector<SchemaMachine::Outcome> SchemaMachine::item_outcomes(const Entries& entries) {
  return outcomes(
      entries, [&](FormulaId atom) { return formulas_.step(atom); }, [&](FormulaId f) { return array_lives(f); });
}

// A question that comes up while it is being answered is answered with no there: the smallest value that would do has
// no need of itself. Such a no is remembered only once the outermost question that was fallen back to is closed.
bool SchemaMachine::decide(std::initializer_list<std::uint32_t> question, const std::function<bool()>& find) {
  const std::uint32_t id = questions_.intern(question);
  if (id >= answers_.size()) answers_.resize(id + 1);
  if (answers_[id].known) return answers_[id].lives;
  if (answers_[id].depth != 0) {
    lowest_ = std::min(lowest_, answers_[id].depth);
    return false;
  }
  if (depth_ >= kMaxDepth) too_hard("whether any value meets the schema is asked too deep");
  struct Level {
    SchemaMachine& machine;
    std::uint32_t id;
    int outer;
    ~Level() {
      machine.answers_[id].depth = 0;
      --machine.depth_;
      machine.lowest_ = std::min(outer, machine.lowest_);
    }
  };
  answers_[id].depth = ++depth_;
  const Level level{*this, id, std::exchange(lowest_, INT32_MAX)};
  const bool lives = find();
  if (lives || lowest_ >= depth_) {
    answers_[id].known = true;
    answers_[id].lives = lives;
    lowest_ = INT32_MAX;
  }
  return lives;
}

bool SchemaMachine::value_lives(FormulaId f) {
  if (f <= kAlways) return f == kAlways;
  return decide({0, f}, [&] {
    for (const JsonType type : {JsonType::kNull, JsonType::kBoolean, JsonType::kNumber, JsonType::kString})
      if (!texts_->is_nothing(formulas_.scalar_expression(formulas_.restrict(f, type), type))) return true;
    if (array_lives(formulas_.restrict(f, JsonType::kArray))) return true;
    const FormulaId object = formulas_.restrict(f, JsonType::kObject);
    return object_lives({order_of({{object, 0}}), 0}, object);
  });
}

bool SchemaMachine::object_lives(Place place, FormulaId f) {
  if (f == kNever) return false;
  if (formulas_.holds_at_end(f)) return true;
  const auto& parts = formulas_.independent(f);
  if (!parts)
    return decide({1, f, place.order, place.used}, [&] {
      const std::vector<FormulaId> choices = formulas_.alternatives(f);
      if (choices.size() == 1 && choices[0] == f) return find_member(place, f);
      return std::ranges::any_of(choices, [&](FormulaId choice) { return object_lives(place, choice); });
    });
  const auto order = lists_.copy(place.order);
  for (std::uint32_t at = 0; at < order.size(); ++at)
    if (used(place, at) && std::ranges::find(parts->required, order[at]) != parts->required.end()) return false;
  const FormulaId every = parts->every;
  return std::ranges::all_of(std::vector<KeyId>(parts->required), [&](KeyId key) { return member_lives(every, key); });
}

// Whether a member of that name can be what every member is held to.
bool SchemaMachine::member_lives(FormulaId every, KeyId key) {
  return decide({3, every, key}, [&] {
    const MemberName name = written_name(key, patterns_of({{every, 0}}));
    std::vector<FormulaId> conditions;
    for (const FormulaId atom : std::vector<FormulaId>(formulas_.atoms(every))) {
      const AtomStep step = formulas_.step(atom, name);
      if (step.when_true == kNever) return false;
      conditions.push_back(step.schema);
    }
    return value_lives(formulas_.all_of(conditions));
  });
}

// Whether some next member leads to an end. One that leaves the formula as it is helps nothing: what could follow it
// could come in its place. In any order a required member may as well come first.
bool SchemaMachine::find_member(Place place, FormulaId f) {
  const Entries entries{{f, 0}};
  const std::vector<ExprId> patterns = patterns_of(entries);
  const std::vector<KeyId> order = lists_.copy(place.order);
  const auto leads_on = [&](const MemberName& name, Place after) {
    const auto lives = [&](FormulaId next) { return next != f && object_lives(after, next); };
    return !member_outcomes(after, name, entries, lives).empty();
  };
  std::vector<bool> wanted(keys_.size());
  for (const FormulaId atom : formulas_.atoms(f))
    if (const auto key = formulas_.key_of(atom)) wanted[*key] = true;
  for (const bool first : {true, false})
    for (std::uint32_t at = 0; at < order.size(); ++at) {
      if (wanted[order[at]] != first || used(place, at)) continue;
      if (leads_on(written_name(order[at], patterns), after_name(place, at))) return true;
      if (property_order_ == PropertyOrder::kAny && formulas_.requires_key(f, order[at])) return false;
    }
  for (const auto& [name, body] : other_names(place, patterns))
    if (leads_on(name, place)) return true;
  return false;
}

bool SchemaMachine::array_lives(FormulaId f) {
  if (f == kNever) return false;
  if (formulas_.holds_at_end(f)) return true;
  return decide({2, f}, [&] {
    const std::vector<FormulaId> choices = formulas_.alternatives(f);
    if (choices.size() == 1 && choices[0] == f) return !item_outcomes({{f, 0}}).empty();
    return std::ranges::any_of(choices, [&](FormulaId choice) { return array_lives(choice); });
  });
}

}  // namespace coreai::grammar
