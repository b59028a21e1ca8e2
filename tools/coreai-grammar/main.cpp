#include "coreai-grammar/commands.h"

int main(int argc, char** argv) {
  return coreai::tools::coreai_grammar(argc, argv);
}
