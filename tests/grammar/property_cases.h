// Grammars whose masks the property tests compare, with texts that belong to them.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "coreai/grammar/compiled_grammar.h"

namespace coreai::grammar {

struct PropertyCase {
  enum class Front { kSchema, kRegex, kSearch, kEbnf, kJson };
  Front front = Front::kSchema;
  std::string text;
  std::vector<std::string> instances{};
  JsonSchemaOptions options{};
  bool may_refuse = false;  // made at random: no value may belong to it, or the work budget may not do

  CompiledGrammar compile(GrammarCompiler& compiler) const {
    switch (front) {
      case Front::kSchema:
        return compiler.compile_json_schema(text, options);
      case Front::kRegex:
        return compiler.compile_regex(text);
      case Front::kSearch:
        return compiler.compile_regex(text, RegexMatch::kSearch);
      case Front::kEbnf:
        return compiler.compile_ebnf(text);
      default:
        return compiler.compile_json(text == "object"  ? JsonRoot::kObject
                                     : text == "array" ? JsonRoot::kArray
                                                       : JsonRoot::kAny,
                                     options.whitespace);
    }
  }
};

inline const std::vector<std::string>& property_names() {
  static const std::vector<std::string> names{"name",  "nam", "names",     "user id", "type",
                                              "x-abc", "S_1", "caf\u00e9", "q\"t",    "abcdefghijklmnop"};
  return names;
}

inline std::string object_of(const std::string& schema) {
  return R"({"type":"object","properties":{"name":)" + schema + R"(,"type":)" + schema + R"(},"required":["name"]})";
}

inline std::vector<PropertyCase> fixed_cases() {
  using Front = PropertyCase::Front;
  std::vector<PropertyCase> out;
  const JsonSchemaOptions none{.whitespace = JsonWhitespace::none()}, any{.whitespace = JsonWhitespace::any()},
      written{.property_order = PropertyOrder::kAsWritten}, few{.whitespace = {3}};
  const auto schema = [&](std::string text, std::vector<std::string> instances = {}) {
    out.push_back({Front::kSchema, std::move(text), std::move(instances)});
  };
  schema(R"({"type":"string"})", {R"("abc def")", R"("a\u0061\n\\\" \uD83D\uDE00é😀")"});
  for (const int max : {0, 1, 2, 3, 4, 5, 11, 12, 13, 14, 40, 127, 128, 129}) {
    const std::string n = std::to_string(max), text = "\"" + std::string(static_cast<std::size_t>(max), 'b') + "\"";
    schema(R"({"type":"string","maxLength":)" + n + "}", {text});
    schema(R"({"type":"string","minLength":)" + n + "}", {text});
    schema(object_of(R"({"type":"string","minLength":1,"maxLength":)" + n + "}"));
    out.back().may_refuse = true;
    schema(R"({"type":"string","minLength":)" + n + R"(,"maxLength":)" + std::to_string(max + 2) + "}", {text});
    schema(R"({"type":"string","pattern":"^[a-z]{1,)" + std::to_string(max + 1) + R"(}$"})");
    schema(R"({"type":"string","pattern":"b","maxLength":)" + std::to_string(max + 1) + "}");
    schema(R"({"type":"string","pattern":"^[^x]{)" + n + R"(,}-?a","maxLength":)" + std::to_string(max + 9) + "}");
    schema(R"({"not":{"type":"string","maxLength":)" + n + "}}");
    schema(R"({"type":"string","not":{"minLength":)" + std::to_string(max + 1) + R"(},"pattern":"^(a|bb)*"})");
  }
  for (const char* pattern : {"b",
                              ".*",
                              "^.*$",
                              ".",
                              "^.{3}$",
                              "^[a-z0-9-]{1,58}[a-z]$",
                              "\\\\S",
                              "^\\\\S+$",
                              "\\\\s",
                              "^\\\\w+( \\\\w+)*$",
                              "^(foo|bar|foobar)$",
                              "^(foo|bar)",
                              "(foo|bar)$",
                              "^[^\\\"]*$",
                              "^[a\\\"]{2,}$",
                              "^\\\\\\\\",
                              "^[\\\\u0000-\\\\u001f]*$",
                              "^[é😀a]{1,20}$",
                              "^(ab){2,5}$",
                              "^(ab|ba)*$",
                              "^a{64}",
                              "a{5}b{5}",
                              "^[0-9]{4}-[0-9]{2}$",
                              "^(?!foo)[a-z]+$",
                              "^(?!.*aa).*$",
                              "^[A-Z][a-z]{0,12}$",
                              "^$|^x",
                              "^[^/]+/[^/]+$",
                              "[ab]{3}.*[ab]{3}",
                              "^(a+b?)+$",
                              "^(([a-z]+)\\\\.)*[a-z]+$",
                              "^.{0,12}$",
                              "^.{13}a",
                              "^[ -~]*$",
                              "^\\\\d+$",
                              "^(\\\\d{3},)*\\\\d{3}$",
                              "^https?://",
                              "^[^\\\\s@]+@[^\\\\s@]+$"}) {
    schema(std::string(R"({"type":"string","pattern":")") + pattern + "\"}");
    schema(object_of(std::string(R"({"type":"string","pattern":")") + pattern + R"(","maxLength":70})"));
    schema(std::string(R"({"not":{"type":"string","pattern":")") + pattern + "\"},\"type\":[\"string\",\"null\"]}");
  }
  // Lengths that are far away at first: of words, of what may not end at once, of what does not fit into them.
  for (const char* pattern :
       {"^(\\\\S+\\\\s+){0,9}\\\\S+$", "^(ab|[^a])*$", "^[a-z]+(-[a-z]{3,20}){1,40}$", "^(a.{70}b)*$"})
    for (const char* max : {"60", "75", "150", "400"})
      schema(object_of(std::string(R"({"type":"string","pattern":")") + pattern + R"(","maxLength":)" + max + "}"));
  for (const char* format : {"hostname", "email", "uri", "date-time", "date", "ipv4", "ipv6", "uuid", "duration"}) {
    schema(std::string(R"({"type":"string","format":")") + format + "\"}");
    schema(object_of(std::string(R"({"type":"string","maxLength":40,"format":")") + format + "\"}"));
  }
  for (
      const char* text :
      {R"({})",
       R"(true)",
       R"({"enum":["a","ab","abc",1,null,{"a":[1,"b"]},"x\"y"]})",
       R"({"const":{"name":"abc","type":["a"]}})",
       R"({"type":"object"})",
       R"({"type":"object","additionalProperties":false})",
       R"({"type":"object","properties":{"name":true,"names":true},"additionalProperties":false})",
       R"({"type":"object","properties":{"name":{"type":"string"},"nam":{"type":"integer"},"names":{"enum":["a","b"]}},"required":["nam"]})",
       R"({"type":"object","properties":{"user id":{"type":"string","maxLength":5},"café":{"type":"null"},"q\"t":{"const":1}},"additionalProperties":false})",
       R"({"type":"object","patternProperties":{"^x-":{"type":"string"},"b":{"maxLength":3}},"additionalProperties":{"type":"number"}})",
       R"({"type":"object","patternProperties":{"^[a-z]{1,12}$":{"type":"boolean"}},"additionalProperties":false})",
       R"({"type":"object","propertyNames":{"pattern":"^[a-z]+$","maxLength":13},"properties":{"name":{"type":"string"}}})",
       R"({"type":"object","propertyNames":{"minLength":3,"maxLength":5},"minProperties":2,"maxProperties":3})",
       R"({"type":"object","propertyNames":{"not":{"enum":["name","a","ab"]}}})",
       R"({"type":"object","additionalProperties":{"type":"string","minLength":2},"properties":{"type":{"enum":["foo","bar"]}},"required":["type","name"]})",
       R"({"type":"object","required":["abcdefghijklmnop","name"],"properties":{"S_1":{"type":"array","items":{"type":"string","maxLength":4}}}})",
       R"({"type":"object","properties":{"name":{"type":"string"},"type":{"type":"string"}},"unevaluatedProperties":false,"anyOf":[{"properties":{"x-abc":true}},{"required":["type"]}]})",
       R"({"if":{"properties":{"type":{"const":"foo"}},"required":["type"]},"then":{"required":["name"]},"else":{"properties":{"name":{"type":"integer"}}},"type":"object"})",
       R"({"dependentRequired":{"name":["type"]},"type":"object","properties":{"name":{"type":"string","pattern":"b"}}})",
       R"({"anyOf":[{"type":"string","maxLength":3},{"type":"string","minLength":7,"maxLength":20},{"type":"string","pattern":"^b*$"}]})",
       R"({"oneOf":[{"type":"string","maxLength":5},{"type":"string","minLength":3}]})",
       R"({"oneOf":[{"type":"string","pattern":"a"},{"type":"string","pattern":"b"}]})",
       R"({"allOf":[{"type":"string","pattern":"^[a-z ]*$"},{"pattern":"b"},{"maxLength":30,"minLength":13}]})",
       R"({"allOf":[{"pattern":"^a*b*$"},{"not":{"pattern":"^ab"}},{"not":{"const":"aab"}}],"type":"string"})",
       R"({"type":"string","not":{"enum":["","a","ab","abc","name","the","caf\u00e9"]}})",
       R"({"type":"string","minLength":2,"not":{"enum":["ab","abc","the"]}})",
       R"({"type":"string","maxLength":12,"not":{"enum":["ab","abc","the","hello"]}})",
       R"({"type":"string","pattern":"^[a-z]+$","not":{"pattern":"^(foo|bar)$"}})",
       R"({"not":{"anyOf":[{"type":"string","pattern":"^a"},{"type":"number"},{"type":"object"}]}})",
       R"({"type":"array","items":{"type":"string"}})",
       R"({"type":"array","items":{"type":"string","maxLength":2},"minItems":2,"maxItems":4})",
       R"({"type":"array","prefixItems":[{"type":"string"},{"type":"integer"}],"items":{"type":"array","items":{"type":"null"}}})",
       R"({"type":"array","contains":{"const":"ab"},"minContains":2,"maxContains":3,"items":{"type":"string"}})",
       R"({"type":"array","items":{"enum":["a","b",[]]}})",
       R"({"type":"array","items":{"type":"object","properties":{"name":{"type":"string"}},"additionalProperties":false,"required":["name"]}})",
       R"({"type":"integer"})",
       R"({"type":"number"})",
       R"({"type":"integer","minimum":-12,"maximum":1234})",
       R"({"type":"number","exclusiveMinimum":0.5,"maximum":99})",
       R"({"type":"integer","multipleOf":7,"minimum":100})",
       R"({"type":"number","multipleOf":0.25})",
       R"({"type":["integer","string"],"minimum":3,"maxLength":3})",
       R"({"type":["object","array","string"],"maxLength":12,"maxItems":2,"maxProperties":1})",
       R"({"$defs":{"n":{"type":"object","properties":{"name":{"type":"string"},"type":{"$ref":"#/$defs/n"}},"required":["name"],"additionalProperties":false}},"$ref":"#/$defs/n"})",
       R"({"$ref":"#/$defs/t","$defs":{"t":{"anyOf":[{"type":"string","maxLength":13},{"type":"array","items":{"$ref":"#/$defs/t"}},{"type":"object","additionalProperties":{"$ref":"#/$defs/t"}}]}}})"}) {
    schema(text);
    for (const JsonSchemaOptions& options : {none, any, written, few}) {
      out.push_back(out.back());
      out.back().options = options;
    }
  }
  for (const char* root : {"any", "object", "array"})
    for (const JsonSchemaOptions& options : {JsonSchemaOptions{}, none, any, few})
      out.push_back({Front::kJson,
                     root,
                     {std::string(root) == "array" ? R"([{"a":[]},"b c",-1.5e+3])" : R"({"a":[1,{}],"q\"":"x\n"})"},
                     options});
  for (const char* pattern : {".*",
                              ".+",
                              "b",
                              "[a-z]{1,20}",
                              "a{0,1000}b",
                              "[^\"]{0,12}\"",
                              "[^\"\\\\]*(\\\\.[^\"\\\\]*)*\"",
                              "(ab|ba){2,5}",
                              "(a|b)*abb",
                              "\\s{0,5}x",
                              "\\s*x",
                              "[ab]{3,}c",
                              "([a-z]+,)*[a-z]+",
                              "(?!.*aa)[ab]{3,16}",
                              "(a{1,3}b){1,4}",
                              "[ab]{12}a",
                              "[ab]{0,13}",
                              "(é|bé)+",
                              "[^a]{2,14}a.*",
                              "( {4})*a",
                              "(x|[ab]{2,40})(c|\")",
                              "[a-y]*z9",
                              "\\d{1,3}(,\\d{3})*",
                              "(.|\\n)*\"end",
                              "[^,]*,[^,]{0,12},[^,]{13,},"}) {
    out.push_back({Front::kRegex, pattern});
    out.push_back({Front::kSearch, pattern});
  }
  for (const char* text :
       {"root ::= \"\\\"\" [^\"\\\\]* \"\\\"\"",
        "root ::= ws item (\",\" ws item)* \nws ::= [ \\n]*\nitem ::= [a-z]+ | \"[\" root \"]\"",
        "root ::= e\ne ::= e \"+\" t | t\nt ::= [0-9]+ | \"(\" e \")\"", "root ::= ([a-z]{1,12} \" \"){2,3} \".\"",
        "root ::= \"\" | \"a\" root \"b\"", "root ::= (line \"\\n\")*\nline ::= [^\\n]{0,13}",
        "root ::= \" \"{0,20} \"x\" | [a-z]{3,30} \",\"", "root ::= .* \"\\\"\" .{2}"})
    out.push_back({Front::kEbnf, text});
  return out;
}

// Conditions on a string, joined at random.
inline std::string random_string_schema(std::mt19937& random, int depth) {
  const auto pick = [&](std::initializer_list<const char*> of) {
    return std::string(of.begin()[random() % of.size()]);
  };
  const auto number = [&] {
    return std::to_string(random() % 3 == 0 ? 11 + random() % 4 : random() % 3 == 0 ? random() % 130 : random() % 6);
  };
  const auto inner = [&] { return random_string_schema(random, depth - 1); };
  switch (random() % (depth > 0 ? 9 : 5)) {
    case 0:
      return R"({"maxLength":)" + number() + "}";
    case 1:
      return R"({"minLength":)" + number() + "}";
    case 2:
    case 3: {
      const std::string unit =
          pick({"[a-z]", "[^x]", ".", "a", "(ab|b)", "[a-z0-9-]", "(a|é)", "\\\\S", "[ab]", "\\\\w", "[ -~]", "(ab)"});
      const std::string count = pick({"*", "+", "?", "{2}", "{1,12}", "{13}", "{0,13}", "{3,}", "{0,40}", "{1,128}"});
      return R"({"pattern":")" + pick({"^", "", "^b", "^a*"}) + unit + count +
             pick({"$", "", "b$", "\\\"?$", "-[a-z]*$", "[^a]*$"}) + "\"}";
    }
    case 4:
      return R"({"enum":["a","ab","abcabc","the","name",""]})";
    case 5:
      return R"({"not":)" + inner() + "}";
    case 6:
      return R"({"allOf":[)" + inner() + "," + inner() + "]}";
    case 7:
      return R"({"anyOf":[)" + inner() + "," + inner() + "]}";
    default:
      return R"({"oneOf":[)" + inner() + "," + inner() + "]}";
  }
}

// Repetitions and what follows them, joined at random; no anchors. `small`: for a judge that tries all ways.
inline std::string random_pattern(std::mt19937& random, int depth, std::initializer_list<const char*> units,
                                  bool small = false) {
  const auto pick = [&](std::initializer_list<const char*> of) {
    return std::string(of.begin()[random() % of.size()]);
  };
  const auto inner = [&] { return random_pattern(random, depth - 1, units, small); };
  if (depth == 0 && small) return pick(units) + pick({"", "", "*", "+", "?", "{2}", "{1,3}"});
  if (depth == 0)
    return pick(units) + pick({"", "", "*", "+", "?", "{2}", "{1,3}", "{0,12}", "{2,13}", "{13,}", "{0,40}"});
  switch (random() % 6) {
    case 0:
      return "(" + inner() + "|" + inner() + ")";
    case 1:
      return "(" + inner() + ")" + (small ? pick({"?", "{2}", "+"}) : pick({"*", "+", "?", "{2}", "{0,3}"}));
    default:
      return inner() + inner();
  }
}

inline PropertyCase random_case(std::mt19937& random) {
  PropertyCase out;
  out.may_refuse = true;
  if (random() % 3 == 0) {
    out.front = random() % 3 == 0 ? PropertyCase::Front::kSearch : PropertyCase::Front::kRegex;
    if (random() % 4 == 0) out.text = "(?!" + random_pattern(random, 1, {"a", "b", "ab", "[a-z]", "."}) + ")";
    if (random() % 4 == 0) out.text += "(?!(a|ab|abc|the|foo\")$)";
    out.text += random_pattern(random, 3,
                               {"a", "b", "[ab]", "[a-z]", "[^a]", ".", "\\s", " ", "\"", ",", "(ab|b)", "\u00e9",
                                "[^\",]", "(ab)", "\\d", "(a|\\\\.)"});
    return out;
  }
  const std::string text = R"({"type":"string","allOf":[)" + random_string_schema(random, 2) + "]}";
  switch (random() % 6) {
    case 0:
      out.text = object_of(text);
      break;
    case 1:
      out.text = R"({"type":"object","propertyNames":)" + text + R"(,"additionalProperties":{"type":"boolean"}})";
      break;
    case 2:
      out.text = R"({"type":"array","items":)" + text + R"(,"minItems":1})";
      break;
    case 3:
      out.text = R"({"type":"object","properties":{"name":)" + text + R"(},"patternProperties":{"^[a-n]{1,12}$":)" +
                 text + R"(},"minProperties":1})";
      break;
    default:
      out.text = text;
  }
  const std::uint32_t blanks[] = {0, 1, 2, 13, 32, UINT32_MAX};
  out.options.whitespace.max = blanks[random() % 6];
  if (random() % 2 == 0) out.options.property_order = PropertyOrder::kAsWritten;
  return out;
}

}  // namespace coreai::grammar
