// Uses an installed coreai: a tokenizer's round trip, and the error of a bundle that is not there.
#include <coreai/base/error.h>
#include <coreai/language/text_generator.h>

#include <cstdio>
#include <string>

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  const auto tokenizer = coreai::Tokenizer::from_directory(argv[1]);
  const std::string text = "Hello, world";
  if (tokenizer.decode(tokenizer.encode(text)) != text) return 1;
  try {
    coreai::TextGenerator::load("/no/such/bundle");
  } catch (const coreai::Error& error) {
    std::puts(error.what());
    return 0;
  }
  return 1;
}
