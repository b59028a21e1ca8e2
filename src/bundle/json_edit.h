// Changes to JSON text that leave every other byte as it is: numbers keep their digits, objects their order.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "bundle/metadata.h"

namespace coreai::metadata {

// A value as JSON text. Throws InvalidArgumentError when text in it is not UTF-8.
std::string json_text(const Json& value);

// `text` is an object that parse() has accepted, `value` the text of one value. The members at `keys` lead to it;
// objects on the way that are not there are made, other values in their place are replaced.
// The last key's value becomes `value`.
std::string with_member(std::string text, std::span<const std::string> keys, const std::string& value);
// `value` becomes the last element of the last key's list.
std::string with_element(std::string text, std::span<const std::string> keys, const std::string& value);

}  // namespace coreai::metadata
