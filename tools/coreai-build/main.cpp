#include "coreai-build/commands.h"

int main(int argc, char** argv) {
  return coreai::tools::coreai_build(argc, argv);
}
