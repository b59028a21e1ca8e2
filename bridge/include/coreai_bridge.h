// C ABI of the Rust crate: tokenizers and chat templates as opaque handles.
// Every text has an explicit length and is UTF-8 (no terminating zero). Handles are immutable and thread-safe.
// A function returns a status; on any but COREAI_BRIDGE_OK it fills `error` with a message and touches nothing else.
// What a function returns through a pointer is freed by the function named beside its type.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  COREAI_BRIDGE_OK = 0,
  COREAI_BRIDGE_MALFORMED = 1,         // the file or template does not follow its format
  COREAI_BRIDGE_INVALID_ARGUMENT = 2,  // an argument of the call, or an error that a template raised
  COREAI_BRIDGE_LIMIT = 3,             // fuel, recursion or size limits
  COREAI_BRIDGE_INTERNAL = 4,          // a panic inside the crate, caught
};

typedef struct {
  char* data;
  size_t size;
} coreai_bridge_bytes;  // coreai_bridge_free_bytes

typedef struct {
  uint32_t* data;
  size_t size;
} coreai_bridge_ids;  // coreai_bridge_free_ids

typedef struct coreai_bridge_tokenizer coreai_bridge_tokenizer;  // coreai_bridge_tokenizer_free
typedef struct coreai_bridge_template coreai_bridge_template;    // coreai_bridge_template_free

void coreai_bridge_free_bytes(coreai_bridge_bytes bytes);
void coreai_bridge_free_ids(coreai_bridge_ids ids);

int32_t coreai_bridge_tokenizer_new(const char* json, size_t size, coreai_bridge_tokenizer** out,
                                    coreai_bridge_bytes* error);
void coreai_bridge_tokenizer_free(coreai_bridge_tokenizer* tokenizer);
int32_t coreai_bridge_tokenizer_encode(const coreai_bridge_tokenizer* tokenizer, const char* text, size_t size,
                                       int32_t add_special_tokens, coreai_bridge_ids* out, coreai_bridge_bytes* error);
int32_t coreai_bridge_tokenizer_decode(const coreai_bridge_tokenizer* tokenizer, const uint32_t* ids, size_t count,
                                       int32_t skip_special_tokens, coreai_bridge_bytes* out,
                                       coreai_bridge_bytes* error);
size_t coreai_bridge_tokenizer_vocab_size(const coreai_bridge_tokenizer* tokenizer);
// 1 and the id, or 0 when there is no such token.
int32_t coreai_bridge_tokenizer_token_to_id(const coreai_bridge_tokenizer* tokenizer, const char* token, size_t size,
                                            uint32_t* out);
// 1 and the token's text in the vocabulary, or 0 when there is no such id.
int32_t coreai_bridge_tokenizer_id_to_token(const coreai_bridge_tokenizer* tokenizer, uint32_t id,
                                            coreai_bridge_bytes* out);
// The added tokens that are marked special: ids in ascending order.
int32_t coreai_bridge_tokenizer_special_ids(const coreai_bridge_tokenizer* tokenizer, coreai_bridge_ids* out,
                                            coreai_bridge_bytes* error);

int32_t coreai_bridge_template_new(const char* source, size_t size, coreai_bridge_template** out,
                                   coreai_bridge_bytes* error);
void coreai_bridge_template_free(coreai_bridge_template* chat_template);
// `variables_json`: an object whose members are the template's variables.
int32_t coreai_bridge_template_render(const coreai_bridge_template* chat_template, const char* variables_json,
                                      size_t size, coreai_bridge_bytes* out, coreai_bridge_bytes* error);

#ifdef __cplusplus
}
#endif
