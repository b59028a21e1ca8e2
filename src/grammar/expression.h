// Extended regular expressions over bytes, hash-consed: equal expressions have equal numbers. Union, intersection and
// complement are nodes, and a counted repetition stays one node whatever its bounds.
// Sources: Brzozowski, "Derivatives of regular expressions", JACM 1964; Owens, Reppy and Turon, "Regular-expression
// derivatives re-examined", JFP 2009.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/byte_set.h"
#include "grammar/machine.h"

namespace coreai::grammar {

using ExprId = std::uint32_t;
constexpr ExprId kNothing = 0;      // the empty language
constexpr ExprId kEmptyString = 1;  // the language of the empty string
constexpr ExprId kAnything = 2;     // every string of bytes
constexpr std::uint32_t kUnbounded = UINT32_MAX;

// The bytes in classes that one expression cannot tell apart.
struct ByteClasses {
  std::array<std::uint8_t, 256> class_of{};
  std::vector<std::uint8_t> representatives;  // one byte of each class
};

// What an expression says, the same in every pool of the process; keyed, so that no text can be made to collide.
struct ContentHash {
  std::uint64_t high, low;
  bool operator==(const ContentHash&) const = default;
  struct Hash {
    std::size_t operator()(const ContentHash& of) const { return static_cast<std::size_t>(of.low); }
  };
};

// `min` to `max` times `unit`, without the language `excluded`, then `rest`. What is excluded takes few ways: away from
// those every sequence of units can be continued.
struct Run {
  ExprId unit;
  std::uint32_t min, max;
  ExprId excluded;
  ExprId rest;
};

// Not safe to use from several threads at once.
class ExpressionPool {
 public:
  // `max_nodes` bounds the memory, `max_search` the states that one test of emptiness may visit.
  // Every function below throws UnsupportedError when its bound is reached.
  explicit ExpressionPool(std::size_t max_nodes = 4'000'000, std::size_t max_search = 200'000);
  // All that `of` knows, with bounds of its own.
  ExpressionPool(const ExpressionPool& of, std::size_t max_nodes, std::size_t max_search);

  ExprId bytes(const ByteSet& set);
  ExprId literal(std::string_view text);
  ExprId concat(ExprId first, ExprId second);
  ExprId concat(std::initializer_list<ExprId> parts);
  ExprId any_of(const std::vector<ExprId>& choices);
  ExprId all_of(const std::vector<ExprId>& conditions);
  ExprId negate(ExprId e);
  ExprId repeat(ExprId e, std::uint32_t min, std::uint32_t max = kUnbounded);
  ExprId optional(ExprId e) { return any_of({kEmptyString, e}); }
  // The strings of one, joined as a tree of prefixes.
  ExprId any_literal(const std::vector<std::string_view>& texts);
  // The same for sequences of symbols, each of which `symbol` writes as an expression.
  ExprId any_sequence(std::vector<std::vector<std::uint32_t>> sequences,
                      const std::function<ExprId(std::uint32_t)>& symbol);

  // What `make` gives, made once for a key. Callers keep their keys apart by the upper half.
  ExprId once(std::uint64_t key, const std::function<ExprId()>& make);

  // A name for an expression that may hold the name itself, behind something that is not empty. It must have a string;
  // `nullable` says whether the empty one is among them. Conditions and complements of it are not decided.
  ExprId rule(bool nullable);
  void define(ExprId rule, ExprId body) { bodies_[nodes_[rule].a] = body; }

  // The texts of another machine, which the pool keeps. Its steps are taken as they are asked for.
  ExprId foreign(std::shared_ptr<Machine> machine);

  bool nullable(ExprId e) const { return nodes_[e].nullable; }
  // The strings that may follow `byte`. Never throws for want of search: it may be an expression without strings.
  ExprId derive(ExprId e, std::uint8_t byte);
  // Whether no string belongs to it.
  bool is_nothing(ExprId e);
  ByteClasses classes(ExprId e);
  // An expression that says the same of the next `bytes` bytes, with counters above that made equal: a key for what
  // depends on so many bytes only. Of conditions only a length that is too far away to matter is left out.
  ExprId clamp(ExprId e, std::uint32_t bytes);
  // Whether a step changes a counter: such states are many and each is visited once.
  bool counts(ExprId e) const { return nodes_[e].counts; }

  // The bytes that may come first, or more of them where conditions or complements say which.
  ByteSet first_bytes(ExprId e);
  // Nothing where rules are inside, or where it is very large.
  std::optional<ContentHash> content_hash(ExprId e);
  // Known to have finitely many strings.
  bool is_finite(ExprId e);
  // Few bytes may come first, so that a walk through the tokens is short.
  bool is_narrow(ExprId e) { return first_bytes(e).size() < 16; }
  // The choices of which `e` is the union; `e` itself where it is none.
  std::vector<ExprId> choices(ExprId e);
  // `e` as a repetition whose end the next byte tells: none that begins a unit begins the rest.
  std::optional<Run> run(ExprId e);
  // Where `e` is not empty, every sequence of up to `max` units can be continued.
  struct Absorbed {
    ExprId unit;
    std::uint32_t max;
  };
  std::optional<Absorbed> absorbed(ExprId e);

  std::size_t size() const { return nodes_.size(); }
  std::size_t memory_bytes() const;

 private:
  enum class Kind : std::uint8_t { kVoid, kEpsilon, kBytes, kConcat, kAnyOf, kAllOf, kNot, kRepeat, kRule, kForeign };
  struct Node {
    Kind kind;
    bool nullable = false;
    bool algebra = false;        // conditions or complements inside: it may be empty without being kNothing
    bool counts = false;         // a bounded repetition inside
    std::uint32_t a = 0, b = 0;  // children; kBytes: index of the set; kAnyOf, kAllOf: first child and their number;
                                 // kRule: index of the body; kForeign: of the machine, and its state
    std::uint32_t min = 0, max = 0;  // kRepeat, of child a
  };
  std::uint64_t hash(const Node& node, std::span<const ExprId> children) const;
  ExprId intern(Node node, std::span<const ExprId> children = {});
  void rehash();
  std::span<const ExprId> children(const Node& node) const { return std::span(children_).subspan(node.a, node.b); }
  const Node* as(ExprId e, Kind kind) const { return nodes_[e].kind == kind ? &nodes_[e] : nullptr; }
  void join_heads(std::vector<ExprId>& choices);
  bool join_repetitions(std::vector<ExprId>& conditions);
  bool flatten(std::vector<ExprId>& out, const std::vector<ExprId>& in, Kind kind, ExprId neutral, ExprId absorbing);
  ExprId derive_node(ExprId e, std::uint8_t byte);
  void new_mark();
  ExprId foreign_state(std::uint32_t machine, StateId state);
  void first_sets(ExprId e, std::vector<std::uint32_t>& sets, std::vector<ExprId>& foreign);
  bool search(ExprId from);
  bool is_infinite_rest(const Node& node);
  std::optional<Run> find_run(ExprId e);
  struct Lengths {
    std::uint64_t shortest, farthest;  // in bytes: of the strings; of the way to an end from any beginning of one
  };
  std::optional<Lengths> lengths(ExprId e);
  ExprId clamp_length(ExprId e, std::uint32_t bytes);
  struct Unbounded {
    ExprId expression;
    std::uint32_t max;  // the bound that it had
  };
  std::optional<Unbounded> without_bound(ExprId e);
  ExprId without_counters(ExprId e);
  bool absorbs(ExprId e, std::optional<ExprId>& unit);
  bool is_prefix_code(ExprId e);
  std::optional<ExprId> meet(ExprId a, ExprId b);

  std::size_t max_nodes_, max_search_;
  class Depth {  // one level deeper while it lives
   public:
    explicit Depth(int& depth) : depth_(depth) { ++depth_; }
    ~Depth() { --depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    int& depth_;
  };
  int join_depth_ = 0, derive_depth_ = 0, hash_depth_ = 0;
  std::size_t hash_nodes_ = 0;  // met by the present question
  std::vector<Node> nodes_;
  std::vector<ExprId> children_;
  std::vector<ByteSet> sets_;
  std::vector<ExprId> bodies_;
  std::vector<std::shared_ptr<Machine>> machines_;
  std::vector<std::uint32_t> marks_;  // per node: the last call of classes() that met it
  std::uint32_t mark_ = 0;
  std::vector<std::uint32_t> table_;  // open addressing, 0: free, else id + 1
  std::unordered_map<std::uint64_t, ExprId> derived_, once_;
  std::unordered_map<ExprId, bool> empty_;  // of nodes with algebra
  std::unordered_map<ExprId, bool> finite_, prefix_codes_;
  std::unordered_map<ExprId, ByteSet> first_bytes_;
  std::unordered_map<ExprId, std::optional<ContentHash>> hashes_;
  std::unordered_map<ExprId, std::optional<Run>> runs_;
};

}  // namespace coreai::grammar
