// What a compiled grammar holds.
#pragma once

#include <memory>

#include "coreai/grammar/compiled_grammar.h"
#include "grammar/machine.h"
#include "grammar/mask_cache.h"

namespace coreai::grammar {

struct CompiledGrammar::Data {
  Data(TokenizerInfo of, std::unique_ptr<Machine> made, std::shared_ptr<MaskCache> cache, std::uint64_t number)
      : tokenizer(std::move(of)), machine(std::move(made)), masks(std::move(cache)), id(number) {}
  ~Data() { masks->forget_grammar(id); }
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;

  TokenizerInfo tokenizer;
  std::unique_ptr<Machine> machine;
  std::vector<DroppedKeyword> dropped;
  std::shared_ptr<MaskCache> masks;
  std::uint64_t id;  // of the grammar in `masks`
};

}  // namespace coreai::grammar
