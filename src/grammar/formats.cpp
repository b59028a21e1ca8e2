#include "grammar/formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "coreai/base/error.h"

namespace coreai::grammar {
namespace {

// RFC 3339, 5.6, with the days that a month has, leap years included; a leap second only at the end of a UTC day
// cannot be told apart from other offsets here, so that it is written at 23:59:60Z alone.
const std::string kLeapYear = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
const std::string kDate =
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
    "02-(?:0[1-9]|1[0-9]|2[0-8]))|" +
    kLeapYear + "-02-29)";
const std::string kTime =
    "(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])|"
    "23:59:60(?:\\.[0-9]+)?(?:[zZ]|[+-]00:00))";
// RFC 3339, appendix A.
const std::string kDuration =
    "P(?:[0-9]+W|(?:[0-9]+D|[0-9]+M(?:[0-9]+D)?|[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?)"
    "(?:T(?:[0-9]+S|[0-9]+M(?:[0-9]+S)?|[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?))?|"
    "T(?:[0-9]+S|[0-9]+M(?:[0-9]+S)?|[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?))";
const std::string kByte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
const std::string kIpv4 = "(?:" + kByte + "\\.){3}" + kByte;
// Without "--" in third place: whether what follows "xn--" decodes is no regular question.
const std::string kLetter = "[a-zA-Z0-9]", kInner = "[a-zA-Z0-9-]";
const std::string kLabel = kLetter + "(?:" + kInner + "{0,2}" + kLetter + "|" + kInner + "(?:" + kLetter + kInner +
                           "|-" + kLetter + ")" + kInner + "{0,58}" + kLetter + ")?";
const std::string kHostname = "(?=.{1,253}$)" + kLabel + "(?:\\." + kLabel + ")*";

// RFC 4291, 2.2: eight groups, at most one run of zeros left out, an IPv4 address as the last two.
std::string ipv6() {
  const std::string group = "[0-9a-fA-F]{1,4}", last = "(?:" + group + ":" + group + "|" + kIpv4 + ")";
  std::string out = fmt::format("(?:{0}:){{6}}{1}|::(?:{0}:){{0,5}}{1}|::(?:{0})?", group, last);
  for (int before = 1; before <= 6; ++before) {
    const std::string head = fmt::format("{}(?::{}){{{}}}::", group, group, before - 1);
    out += fmt::format("|{}(?:{})?", head, group);
    if (before <= 5) out += fmt::format("|{}(?:{}:){{0,{}}}{}", head, group, 5 - before, last);
  }
  return "(?:" + out + ")";
}

// RFC 3986, appendix A; `more` are the characters that RFC 3987 adds.
std::string uri(bool relative, const std::string& more) {
  const std::string escape = "%[0-9a-fA-F]{2}", plain = "a-zA-Z0-9._~!$&'()*+,;=\\-" + more;
  const std::string pchar = "(?:[" + plain + ":@]|" + escape + ")";
  const std::string nc = "(?:[" + plain + "@]|" + escape + ")";
  const std::string host =
      "(?:\\[(?:" + ipv6() + "|[vV][0-9a-fA-F]+\\.[" + plain + ":]+)\\]|(?:[" + plain + "]|" + escape + ")*)";
  const std::string authority = "(?:(?:[" + plain + ":]|" + escape + ")*@)?" + host + "(?::[0-9]*)?";
  const std::string segments = "(?:/" + pchar + "*)*";
  const std::string absolute = "/(?:" + pchar + "+" + segments + ")?";
  const std::string tail = "(?:\\?(?:" + pchar + "|[/?])*)?(?:#(?:" + pchar + "|[/?])*)?";
  std::string full = "[a-zA-Z][a-zA-Z0-9+.\\-]*:(?://" + authority + segments + "|" + absolute + "|" + pchar + "+" +
                     segments + ")?" + tail;
  if (!relative) return full;
  return "(?:" + full + "|(?://" + authority + segments + "|" + absolute + "|" + nc + "+" + segments + ")?" + tail +
         ")";
}

// Beyond the first plane: ucschar and iprivate of RFC 3987, without the two last code points of each plane.
std::string planes() {
  std::string out;
  for (int plane = 1; plane <= 16; ++plane)
    out += fmt::format("\\u{{{:x}}}-\\u{{{:x}}}", plane == 14 ? 0xe1000 : plane << 16, (plane << 16) | 0xfffd);
  return out;
}

// RFC 6570, 2, with the apostrophe of its erratum 6937 and the operators that it keeps for later ones.
std::string uri_template() {
  const std::string escape = "%[0-9a-fA-F]{2}";
  const std::string literal = "(?:[!#$&-;=?-\\[\\]_a-z~\\u00a0-\\ud7ff\\ue000-\\uf8ff\\uf900-\\ufdcf\\ufdf0-\\uffef" +
                              planes() + "]|" + escape + ")";
  const std::string character = "(?:[a-zA-Z0-9_]|" + escape + ")";
  const std::string variable = character + "(?:\\.?" + character + ")*(?::[1-9][0-9]{0,3}|\\*)?";
  return "(?:" + literal + "|\\{[+#./;?&=,!@|]?" + variable + "(?:," + variable + ")*\\})*";
}

const std::string kInternational = "\\u00a0-\\ud7ff\\uf900-\\ufdcf\\ufdf0-\\uffef";

const std::map<std::string, std::string, std::less<>>& patterns() {
  static const std::map<std::string, std::string, std::less<>> table{
      {"date", kDate},
      {"time", kTime},
      {"date-time", kDate + "[tT]" + kTime},
      {"duration", kDuration},
      {"ipv4", kIpv4},
      {"ipv6", ipv6()},
      {"uuid", "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
      {"hostname", kHostname},
      {"email",
       "(?:[a-zA-Z0-9!#$%&'*+/=?^_`{|}~\\-]+(?:\\.[a-zA-Z0-9!#$%&'*+/=?^_`{|}~\\-]+)*|"
       "\"(?:[ !#-\\[\\]-~]|\\\\[ -~])*\")@(?:" +
           kLabel + "(?:\\." + kLabel + ")*|\\[" + kIpv4 + "\\]|\\[IPv6:" + ipv6() + "\\])"},
      {"uri", uri(false, "")},
      {"uri-reference", uri(true, "")},
      {"uri-template", uri_template()},
      {"iri", uri(false, kInternational)},
      {"iri-reference", uri(true, kInternational)},
      {"json-pointer", "(?:/(?:[^~/]|~[01])*)*"},
      {"relative-json-pointer", "(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^~/]|~[01])*)*)"},
  };
  return table;
}

constexpr std::array<std::string_view, 3> kNotBuilt{"idn-hostname", "idn-email", "regex"};

}  // namespace

std::optional<std::string_view> format_pattern(std::string_view name) {
  if (std::ranges::find(kNotBuilt, name) != kNotBuilt.end())
    throw UnsupportedError(fmt::format("the format \"{}\" is not enforced", name), "grammar",
                           "leave it out, or take formats as annotations");
  const auto found = patterns().find(name);
  if (found == patterns().end()) return std::nullopt;
  return found->second;
}

}  // namespace coreai::grammar
