#include "grammar/value_formula.h"

#include <algorithm>
#include <array>

#include "grammar/json_text.h"

namespace coreai::grammar {
namespace {

constexpr std::uint32_t kGrows = 1, kShrinks = 2;  // flags of a number atom

}  // namespace

bool MemberName::matches(ExprId pattern) const {
  return std::ranges::find(matched, pattern) != matched.end();
}

FormulaPool::FormulaPool(ExpressionPool& texts) : texts_(texts) {
  node({kNeverNode});
  node({kAlwaysNode});
  any_string_ = texts_.repeat(JsonStringEncoder().encode(texts_, CodePointSet::all()), 0);
}

// Operands of operands of the same kind, sorted, each once; the types of all of them in one atom.
FormulaId FormulaPool::join(Kind joined, const std::vector<FormulaId>& in, FormulaId neutral, FormulaId absorbing) {
  std::vector<FormulaId> out;
  std::uint32_t types = joined == kAll ? kAllTypes : 0;
  bool typed = false;
  const auto add = [&](FormulaId f) {
    if (kind(f) != kType) return out.push_back(f);
    types = joined == kAll ? types & operands(f)[0] : types | operands(f)[0];
    typed = true;
  };
  for (const FormulaId f : in) {
    if (f == absorbing) return absorbing;
    if (f == neutral) continue;
    if (kind(f) != joined)
      add(f);
    else
      for (const FormulaId inner : operands(f)) add(inner);
  }
  if (typed) {
    const FormulaId merged = type(types);
    if (merged == absorbing) return absorbing;
    if (merged != neutral) out.push_back(merged);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  for (const FormulaId f : out)
    if (kind(f) == kNot && std::ranges::binary_search(out, operands(f)[0])) return absorbing;
  if (joined == kAll && !use_types_and_constants(out)) return kNever;
  if (out.empty()) return neutral;
  if (out.size() == 1) return out[0];
  out.insert(out.begin(), joined);
  return nodes_.intern(out);
}

std::optional<JsonType> FormulaPool::type_of(FormulaId f) const {
  switch (kind(f)) {
    case kText:
    case kConstant:
      return static_cast<JsonType>(operands(f)[0]);
    case kNumber:
      return JsonType::kNumber;
    case kHas:
    case kMembers:
    case kNames:
    case kMemberCount:
      return JsonType::kObject;
    case kItems:
    case kItemCount:
    case kContains:
      return JsonType::kArray;
    default:
      return std::nullopt;
  }
}

// Drops the types that an atom asks for anyway and the constants that another one excludes; false where two exclude
// each other.
bool FormulaPool::use_types_and_constants(std::vector<FormulaId>& conditions) {
  std::optional<JsonType> type;
  std::optional<FormulaId> value;
  for (const FormulaId f : conditions) {
    const auto asked = type_of(f);
    if (!asked) continue;
    if (type && *type != *asked) return false;
    type = asked;
    if (kind(f) != kConstant) continue;
    if (value) return false;  // each stands here once
    value = f;
  }
  if (!type) return true;
  bool possible = true;
  std::erase_if(conditions, [&](FormulaId f) {
    if (kind(f) == kType) {
      possible = possible && (operands(f)[0] & type_bit(*type)) != 0;
      return true;
    }
    if (kind(f) != kNot) return false;
    const auto excluded = type_of(operands(f)[0]);
    return excluded && (*excluded != *type || (value && kind(operands(f)[0]) == kConstant));
  });
  return possible;
}

FormulaId FormulaPool::all_of(const std::vector<FormulaId>& conditions) {
  return join(kAll, conditions, kAlways, kNever);
}
FormulaId FormulaPool::any_of(const std::vector<FormulaId>& choices) {
  return join(kAny, choices, kNever, kAlways);
}

FormulaId FormulaPool::one_of(std::vector<FormulaId> choices) {
  std::sort(choices.begin(), choices.end());
  std::vector<FormulaId> single, excluded;  // excluded: must not hold
  for (std::size_t i = 0; i < choices.size();) {
    std::size_t same = i;
    while (same < choices.size() && choices[same] == choices[i]) ++same;
    if (choices[i] != kNever) (same - i == 1 ? single : excluded).push_back(choices[i]);
    i = same;
  }
  const auto sure = std::ranges::find(single, kAlways);
  if (sure != single.end()) {
    single.erase(sure);
    excluded.insert(excluded.end(), single.begin(), single.end());
    single.clear();
    single.push_back(kAlways);
  }
  std::vector<FormulaId> parts;
  parts.reserve(excluded.size() + 1);
  for (const FormulaId f : excluded) parts.push_back(negate(f));
  if (single.empty()) return kNever;
  if (std::ranges::all_of(single, [&](FormulaId f) { return kind(f) == kConstant; })) {
    parts.push_back(any_of(single));
  } else if (single.size() == 1) {
    parts.push_back(single[0]);
  } else {
    single.insert(single.begin(), kOne);
    parts.push_back(nodes_.intern(single));
  }
  return all_of(parts);
}

FormulaId FormulaPool::negate(FormulaId f) {
  if (f == kNever) return kAlways;
  if (f == kAlways) return kNever;
  if (kind(f) == kNot) return operands(f)[0];
  if (kind(f) == kType) return type(kAllTypes & ~operands(f)[0]);
  return node({kNot, f});
}

FormulaId FormulaPool::type(std::uint32_t types) {
  if (types == 0) return kNever;
  if (types == kAllTypes) return kAlways;
  return node({kType, types});
}
FormulaId FormulaPool::text(JsonType type, ExprId text) {
  return text == kNothing ? kNever : node({kText, static_cast<std::uint32_t>(type), text});
}
FormulaId FormulaPool::constant(JsonType type, ExprId text) {
  return node({kConstant, static_cast<std::uint32_t>(type), text});
}
FormulaId FormulaPool::number(const NumberText& number) {
  return node({kNumber, number.plain, (number.grows ? kGrows : 0) | (number.shrinks ? kShrinks : 0), number.further});
}
FormulaId FormulaPool::has(KeyId key) {
  return node({kHas, key});
}
FormulaId FormulaPool::names(ExprId pattern) {
  return node({kNames, pattern});
}

FormulaId FormulaPool::members(const MemberSchemas& schemas) {
  std::vector<std::uint32_t> words{static_cast<std::uint32_t>(schemas.properties.size())};
  for (const auto& [key, schema] : schemas.properties) words.insert(words.end(), {key, schema});
  words.push_back(static_cast<std::uint32_t>(schemas.patterns.size()));
  for (const auto& [pattern, schema] : schemas.patterns) words.insert(words.end(), {pattern, schema});
  words.push_back(schemas.additional);
  return node({kMembers, specs_.intern(words)});
}

FormulaId FormulaPool::items(const ItemSchemas& schemas) {
  std::vector<std::uint32_t> words(schemas.prefix.begin(), schemas.prefix.end());
  words.push_back(schemas.rest);
  return node({kItems, specs_.intern(words), 0});
}

FormulaId FormulaPool::member_count(std::uint32_t min, std::uint32_t max) {
  return min > max ? kNever : node({kMemberCount, min, max});
}
FormulaId FormulaPool::item_count(std::uint32_t min, std::uint32_t max) {
  return min > max ? kNever : node({kItemCount, min, max});
}
FormulaId FormulaPool::contains(SchemaId schema, std::uint32_t min, std::uint32_t max) {
  return min > max ? kNever : node({kContains, schema, min, max});
}

FormulaId FormulaPool::open_atom(std::uint32_t number) {
  return node({kOpen, number});
}

SchemaId FormulaPool::new_schema() {
  schemas_.push_back(kAlways);
  return static_cast<SchemaId>(schemas_.size() - 1);
}

FormulaId FormulaPool::rebuild(Kind joined, std::vector<FormulaId> in) {
  switch (joined) {
    case kAll:
      return all_of(in);
    case kAny:
      return any_of(in);
    case kOne:
      return one_of(std::move(in));
    default:
      return negate(in[0]);
  }
}

FormulaId FormulaPool::restrict(FormulaId f, JsonType type) {
  if (f <= kAlways) return f;
  const std::uint64_t key = (std::uint64_t{f} << 3) | static_cast<unsigned>(type);
  if (const auto known = restricted_.find(key); known != restricted_.end()) return known->second;
  FormulaId out;
  if (is_connective(f)) {
    const Kind joined = kind(f);
    std::vector<FormulaId> in(operands(f).begin(), operands(f).end());
    for (FormulaId& operand : in) operand = restrict(operand, type);
    out = rebuild(joined, std::move(in));
  } else {
    out = restrict_atom(f, type);
  }
  restricted_.emplace(key, out);
  return out;
}

FormulaId FormulaPool::restrict_atom(FormulaId f, JsonType type) {
  if (kind(f) == kType) return (operands(f)[0] & type_bit(type)) != 0 ? kAlways : kNever;
  return type_of(f) == type ? f : kNever;
}

std::vector<FormulaId> FormulaPool::ways_of_one(FormulaId f) {
  const std::vector<FormulaId> of(operands(f).begin(), operands(f).end());
  std::vector<FormulaId> ways;
  for (const FormulaId chosen : of) {
    std::vector<FormulaId> parts;
    parts.reserve(of.size());
    for (const FormulaId other : of) parts.push_back(other == chosen ? other : negate(other));
    ways.push_back(all_of(parts));
  }
  return ways;
}

ExprId FormulaPool::text_expression(FormulaId f, ExprId all) {
  const auto each = [&](const std::vector<FormulaId>& in) {
    std::vector<ExprId> out;
    out.reserve(in.size());
    for (const FormulaId operand : in) out.push_back(text_expression(operand, all));
    return out;
  };
  const std::vector<FormulaId> in(operands(f).begin(), operands(f).end());
  switch (kind(f)) {
    case kNeverNode:
      return kNothing;
    case kAlwaysNode:
      return all;
    case kAll:
      return texts_.all_of(each(in));
    case kAny:
      return texts_.any_of(each(in));
    case kOne:
      return texts_.any_of(each(ways_of_one(f)));
    case kNot:
      return texts_.all_of({all, texts_.negate(text_expression(in[0], all))});
    default:
      return in[1];
  }
}

NumberText FormulaPool::number_text(FormulaId f) {
  const std::vector<FormulaId> in =
      kind(f) == kOne ? ways_of_one(f) : std::vector<FormulaId>(operands(f).begin(), operands(f).end());
  const auto joined = [&](bool all) {
    NumberText out{kNothing, true, true, kNothing};
    std::vector<ExprId> plain, further;
    for (const FormulaId operand : in) {
      const NumberText part = number_text(operand);
      plain.push_back(part.plain);
      if (!all) further.push_back(number_expression(texts_, part));
      out.grows = out.grows && part.grows;
      out.shrinks = out.shrinks && part.shrinks;
    }
    out.plain = all ? texts_.all_of(plain) : texts_.any_of(plain);
    if (!all) out.further = texts_.any_of(further);
    return out;
  };
  switch (kind(f)) {
    case kNeverNode:
      return {};
    case kAlwaysNode:
      return any_number(texts_);
    case kAll:
      return joined(true);
    case kAny:
    case kOne:
      return joined(false);
    case kNot:
      return {texts_.all_of({plain_number(texts_), texts_.negate(number_text(in[0]).plain)}), false, false, kNothing};
    default:
      return {in[0], (in[1] & kGrows) != 0, (in[1] & kShrinks) != 0, in[2]};
  }
}

ExprId FormulaPool::scalar_expression(FormulaId f, JsonType type) {
  if (f == kNever) return kNothing;
  switch (type) {
    case JsonType::kNull:
      return text_expression(f, texts_.literal("null"));
    case JsonType::kBoolean:
      return text_expression(f, texts_.any_literal({"true", "false"}));
    case JsonType::kNumber:
      return number_expression(texts_, number_text(f));
    default:
      return json_string(texts_, string_expression(f));
  }
}

const std::vector<FormulaId>& FormulaPool::atoms(FormulaId f) {
  if (const auto known = atoms_.find(f); known != atoms_.end()) return known->second;
  std::vector<FormulaId> out;
  if (is_connective(f)) {
    for (const FormulaId operand : std::vector<FormulaId>(operands(f).begin(), operands(f).end())) {
      const std::vector<FormulaId>& inner = atoms(operand);
      out.insert(out.end(), inner.begin(), inner.end());
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
  } else if (f > kAlways) {
    out.push_back(f);
  }
  return atoms_.emplace(f, std::move(out)).first->second;
}

bool FormulaPool::holds_at_end(FormulaId f) const {
  const auto of = operands(f);
  const auto holds = [&](FormulaId operand) { return holds_at_end(operand); };
  switch (kind(f)) {
    case kNeverNode:
    case kHas:
      return false;
    case kAll:
      return std::ranges::all_of(of, holds);
    case kAny:
      return std::ranges::any_of(of, holds);
    case kOne:
      return std::ranges::count_if(of, holds) == 1;
    case kNot:
      return !holds(of[0]);
    case kMemberCount:
    case kItemCount:
      return of[0] == 0;
    case kContains:
      return of[1] == 0;
    default:
      return true;
  }
}

std::optional<KeyId> FormulaPool::key_of(FormulaId atom) const {
  if (kind(atom) != kHas) return std::nullopt;
  return operands(atom)[0];
}
bool FormulaPool::requires_key(FormulaId f, KeyId key) {
  const FormulaId wanted = has(key);
  return f == wanted || (kind(f) == kAll && std::ranges::binary_search(operands(f), wanted));
}

std::vector<FormulaId> FormulaPool::alternatives(FormulaId f) {
  std::vector<FormulaId> of(operands(f).begin(), operands(f).end());
  if (kind(f) == kAny) return of;
  if (kind(f) != kAll) return {f};
  std::vector<FormulaId> fewest{f};
  std::size_t place = 0;
  for (std::size_t i = 0; i < of.size(); ++i) {
    std::vector<FormulaId> choices = alternatives(of[i]);
    if (choices.size() == 1 && choices[0] == of[i]) continue;
    if (fewest[0] != f && choices.size() >= fewest.size()) continue;
    fewest = std::move(choices);
    place = i;
  }
  if (fewest[0] == f) return fewest;
  for (FormulaId& choice : fewest) {
    std::vector<FormulaId> parts = of;
    parts[place] = choice;
    choice = all_of(parts);
  }
  return fewest;
}

const std::optional<FormulaPool::Independent>& FormulaPool::independent(FormulaId f) {
  if (const auto known = independent_.find(f); known != independent_.end()) return known->second;
  auto found = find_independent(f);
  return independent_.emplace(f, std::move(found)).first->second;
}

std::optional<FormulaPool::Independent> FormulaPool::find_independent(FormulaId f) {
  Independent out;
  std::vector<FormulaId> every;
  std::uint32_t min = 0, max = kUnbounded;
  const std::vector<FormulaId> parts =
      kind(f) == kAll ? std::vector<FormulaId>(operands(f).begin(), operands(f).end()) : std::vector<FormulaId>{f};
  for (const FormulaId part : parts) {
    const auto of = operands(part);
    switch (kind(part)) {
      case kHas:
        out.required.push_back(of[0]);
        break;
      case kMembers:
      case kNames:
        every.push_back(part);
        break;
      case kMemberCount:
        min = std::max(min, of[0]);
        max = std::min(max, of[1]);
        break;
      case kNot:
        if (kind(of[0]) == kHas) break;  // it does not come
        return std::nullopt;
      default:
        return std::nullopt;
    }
  }
  if (out.required.size() < min || out.required.size() > max) return std::nullopt;
  out.every = all_of(every);
  return out;
}

void FormulaPool::collect_names(FormulaId atom, std::vector<KeyId>& keys, std::vector<ExprId>& patterns) const {
  if (kind(atom) == kHas) keys.push_back(operands(atom)[0]);
  if (kind(atom) == kNames) patterns.push_back(operands(atom)[0]);
  if (kind(atom) != kMembers) return;
  const auto words = specs_[operands(atom)[0]];
  for (std::uint32_t i = 0; i < words[0]; ++i) keys.push_back(words[1 + 2 * i]);
  const auto rest = words.subspan(1 + 2 * words[0]);
  for (std::uint32_t i = 0; i < rest[0]; ++i) patterns.push_back(rest[1 + 2 * i]);
}

// A count of one less on both sides.
FormulaId FormulaPool::counted(Kind counter, std::span<const std::uint32_t> before, std::uint32_t min,
                               std::uint32_t max) {
  if (max == 0) return kNever;
  if (min > 0) --min;
  if (max != kUnbounded) --max;
  if (min == 0 && max == kUnbounded) return kAlways;
  std::vector<std::uint32_t> words{counter};
  words.insert(words.end(), before.begin(), before.end());
  words.insert(words.end(), {min, max});
  return nodes_.intern(words);
}

AtomStep FormulaPool::step(FormulaId atom, const MemberName& name) {
  const std::vector<std::uint32_t> of(operands(atom).begin(), operands(atom).end());
  switch (kind(atom)) {
    case kHas:
      return {.when_true = name.key == of[0] ? kAlways : atom};
    case kNames:
      return {.when_true = name.matches(of[0]) ? atom : kNever};
    case kMemberCount:
      return {.when_true = counted(kMemberCount, {}, of[0], of[1])};
    default:
      break;
  }
  const std::vector<std::uint32_t> words = specs_.copy(of[0]);
  std::vector<FormulaId> schemas;
  std::size_t at = 1;
  for (std::uint32_t i = 0; i < words[0]; ++i, at += 2)
    if (words[at] == name.key) schemas.push_back(formula(words[at + 1]));
  const std::uint32_t patterns = words[at++];
  for (std::uint32_t i = 0; i < patterns; ++i, at += 2)
    if (name.matches(words[at])) schemas.push_back(formula(words[at + 1]));
  if (schemas.empty()) schemas.push_back(formula(words[at]));
  return {.schema = all_of(schemas), .when_true = atom};
}

AtomStep FormulaPool::step(FormulaId atom) {
  const std::vector<std::uint32_t> of(operands(atom).begin(), operands(atom).end());
  if (kind(atom) == kItemCount) return {.when_true = counted(kItemCount, {}, of[0], of[1])};
  if (kind(atom) == kContains) {
    const FormulaId fewer = counted(kContains, std::array{of[0]}, of[1], of[2]);
    return {.schema = formula(of[0]), .when_true = fewer, .when_false = atom};
  }
  const auto words = specs_[of[0]];
  const auto last = static_cast<std::uint32_t>(words.size() - 1);
  const SchemaId schema = words[std::min(of[1], last)];
  return {.schema = formula(schema), .when_true = node({kItems, of[0], std::min(of[1] + 1, last)})};
}

FormulaId FormulaPool::replace(FormulaId f, const std::unordered_map<FormulaId, FormulaId>& with) {
  std::unordered_map<FormulaId, FormulaId> known;
  return replace(f, with, known);
}

FormulaId FormulaPool::replace(FormulaId f, const std::unordered_map<FormulaId, FormulaId>& with,
                               std::unordered_map<FormulaId, FormulaId>& known) {
  if (f <= kAlways) return f;
  if (!is_connective(f)) {
    const auto found = with.find(f);
    return found == with.end() ? f : found->second;
  }
  if (const auto found = known.find(f); found != known.end()) return found->second;
  const Kind joined = kind(f);
  std::vector<FormulaId> in(operands(f).begin(), operands(f).end());
  for (FormulaId& operand : in) operand = replace(operand, with, known);
  const FormulaId out = rebuild(joined, std::move(in));
  known.emplace(f, out);
  return out;
}

}  // namespace coreai::grammar
