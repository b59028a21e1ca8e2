// For tests/oracle/tokenizer_check.py: answers JSON lines about one tokenizer folder.
//   {"encode": TEXT, "special": BOOL} -> ids   {"decode": IDS, "skip": BOOL} -> [text, streamed text]
//   {"render": MESSAGES, "tools": LIST or null, "prompt": BOOL} -> text   {"ends": true} -> end ids
#include <iostream>
#include <nlohmann/json.hpp>

#include "coreai/base/error.h"
#include "coreai/text/chat_template.h"
#include "coreai/text/tokenizer.h"

namespace {

using Json = nlohmann::ordered_json;

Json answer(const coreai::Tokenizer& tokenizer, const std::optional<coreai::ChatTemplate>& chat, const Json& request) {
  if (request.contains("encode")) return tokenizer.encode(request["encode"].get<std::string>(), request["special"]);
  if (request.contains("decode")) {
    const auto ids = request["decode"].get<std::vector<coreai::TokenId>>();
    coreai::StreamingDetokenizer detokenizer(tokenizer, request["skip"]);
    std::string streamed;
    for (const auto id : ids) streamed += detokenizer.push(id);
    streamed += detokenizer.finish();
    return Json::array({tokenizer.decode(ids, request["skip"]), streamed});
  }
  if (request.contains("render")) {
    if (!chat) return nullptr;
    coreai::ChatTemplateOptions options;
    options.add_generation_prompt = request["prompt"];
    if (request["tools"].is_array()) options.tools_json = request["tools"].dump();
    return chat->render_json(request["render"].dump(), options);
  }
  return tokenizer.end_ids();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  try {
    const auto tokenizer = coreai::Tokenizer::from_directory(argv[1]);
    const auto chat = coreai::ChatTemplate::from_directory(argv[1]);
    for (std::string line; std::getline(std::cin, line);) {
      Json reply;
      try {
        reply = {{"value", answer(tokenizer, chat, Json::parse(line))}};
      } catch (const coreai::Error& error) {
        reply = {{"error", error.what()}};
      }
      std::cout << reply.dump() << std::endl;
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
