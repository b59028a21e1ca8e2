// Loads a bundle, asks one question and streams the answer.
//   example-ask models/smollm2-135m "Why is the sky blue?"
#include <coreai/base/error.h>
#include <coreai/language/text_generator.h>

#include <iostream>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: example-ask BUNDLE QUESTION\n";
    return 64;
  }
  try {
    auto model = coreai::TextGenerator::load(argv[1]);
    coreai::GenerationOptions options;
    options.max_tokens = 256;
    auto answer = model.generate(model.encode(argv[2]).ids, options);
    while (const auto piece = answer.next()) std::cout << piece->text << std::flush;
    std::cout << '\n';
  } catch (const coreai::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
