#include "coreai-bundle/commands.h"

int main(int argc, char** argv) {
  return coreai::tools::coreai_bundle(argc, argv);
}
