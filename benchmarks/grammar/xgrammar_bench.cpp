// Times xgrammar as grammar_bench times this project's engine: the library of its Python package, called through its
// own function tables (tvm-ffi), so that no interpreter stands between. Not part of the build: run makes it with the
// headers and libraries of the packages that it installs.
//
//   --library FILE                 libxgrammar_bindings.so
//   --eager                        masks made while compiling; without: when first needed
//   --open                         objects and arrays open as JSON Schema has them; without: strict mode
//   --any-order                    members in any order
//   --whitespace N|any|fixed       most white space in a place (any)
//   --shared                       one compiler for all schemas
//   --wrapping                     only print what two calls through the tables cost, as each token has two
#include <dlfcn.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/reflection/accessor.h>
#include <tvm/ffi/tvm_ffi.h>

#include "walk.h"

namespace {

namespace ffi = tvm::ffi;

ffi::Function method(const char* type, std::string_view name) {
  const std::string key = std::string("xgrammar.tvm_ffi_binding.") + type;
  const TVMFFIByteArray bytes{key.data(), key.size()};
  std::int32_t index = 0;
  TVM_FFI_CHECK_SAFE_CALL(TVMFFITypeKeyToIndex(&bytes, &index));
  const TVMFFITypeInfo* info = TVMFFIGetTypeInfo(index);
  for (std::int32_t i = 0; i < info->num_methods; ++i) {
    const TVMFFIMethodInfo& found = info->methods[i];
    if (std::string_view(found.name.data, found.name.size) == name)
      return ffi::AnyView::CopyFromTVMFFIAny(found.method).cast<ffi::Function>();
  }
  throw std::runtime_error("xgrammar has no " + key + "." + std::string(name));
}

struct EngineOptions {
  std::string library;
  bool eager = false, open = false, any_order = false, shared = false, wrapping = false, any_whitespace = true;
  std::optional<std::int64_t> most_whitespace;
};

class Engine {
 public:
  Engine(const EngineOptions& options, const grammar_bench::Vocabulary& vocabulary)
      : options_(options),
        buffer_((vocabulary.tokens.size() + 31) / 32),
        make_compiler_(method("GrammarCompiler", "__ffi_init__")),
        compile_(method("GrammarCompiler", "compile_json_schema")),
        make_matcher_(method("GrammarMatcher", "__ffi_init__")),
        fill_(method("GrammarMatcher", "fill_next_token_bitmask")),
        accept_(method("GrammarMatcher", "accept_token")),
        size_(method("CompiledGrammar", "memory_size_bytes")),
        end_id_(vocabulary.end_ids.at(0)) {
    ffi::Array<ffi::Any> tokens, ends;
    for (const std::string& token : vocabulary.tokens) tokens.push_back(ffi::String(token));
    for (const std::int32_t id : vocabulary.end_ids) ends.push_back(std::int64_t{id});
    constexpr std::int64_t kByteLevel = 2;
    tokenizer_ = method("TokenizerInfo", "__ffi_init__")(tokens, kByteLevel, static_cast<std::int64_t>(tokens.size()),
                                                         ends, false)
                     .cast<ffi::ObjectRef>();
    shape_[0] = static_cast<std::int64_t>(buffer_.size());
    tensor_.data = buffer_.data();
    tensor_.device = {kDLCPU, 0};
    tensor_.ndim = 1;
    tensor_.dtype = {kDLInt, 32, 1};
    tensor_.shape = shape_;
    tensor_.strides = strides_;
    new_compiler();
  }

  void prepare() {
    matcher_ = grammar_ = nullptr;
    if (!options_.shared) new_compiler();
  }
  void compile(const std::string& schema) {
    const ffi::Any most = options_.most_whitespace ? ffi::Any(*options_.most_whitespace) : ffi::Any(nullptr);
    grammar_ = compile_(compiler_, ffi::String(schema), options_.any_whitespace, nullptr, nullptr, !options_.open, most,
                        options_.any_order);
    restart();
    mask();
  }
  static bool is_empty(const std::exception& error) {
    return std::string_view(error.what()).find("nsatisfiable") != std::string_view::npos;
  }
  void restart() { matcher_ = make_matcher_(grammar_, nullptr, false, std::int64_t{-1}, nullptr); }
  void mask() { fill_(matcher_, &tensor_, std::int64_t{0}, false); }
  const std::uint32_t* words() const { return buffer_.data(); }
  bool accept(std::int32_t token) { return accept_(matcher_, std::int64_t{token}, false).cast<bool>(); }
  bool can_end() { return accept(end_id_); }
  std::size_t memory_bytes() { return static_cast<std::size_t>(size_(grammar_).cast<std::int64_t>()); }

  // Microseconds of two calls that do next to nothing.
  double wrapping_us() {
    constexpr int kCalls = 100'000;
    compile(R"({"type": "null"})");
    const auto terminated = method("GrammarMatcher", "is_terminated");
    bool any = false;
    const auto start = grammar_bench::Clock::now();
    for (int i = 0; i < kCalls; ++i) any |= terminated(matcher_).cast<bool>();
    const auto time = grammar_bench::nanoseconds(start, grammar_bench::Clock::now());
    if (any) throw std::runtime_error("a matcher that has accepted nothing has terminated");
    return 2e-3 * static_cast<double>(time) / kCalls;
  }

 private:
  void new_compiler() {
    compiler_ = make_compiler_(tokenizer_, std::int64_t{1}, true, std::int64_t{-1}, !options_.eager);
  }

  EngineOptions options_;
  std::vector<std::uint32_t> buffer_;
  ffi::Function make_compiler_, compile_, make_matcher_, fill_, accept_, size_;
  std::int32_t end_id_;
  ffi::Any tokenizer_, compiler_, grammar_, matcher_;
  std::int64_t shape_[1] = {0}, strides_[1] = {1};
  DLTensor tensor_{};
};

grammar_bench::Taken set_own_option(EngineOptions& options, std::string_view name, std::string_view value) {
  using grammar_bench::Taken;
  if (name == "--library") {
    options.library = value;
    return Taken::kValue;
  }
  if (name == "--whitespace") {
    options.any_whitespace = value != "fixed";
    if (value == "fixed" || value == "any") return Taken::kValue;
    const auto most = grammar_bench::whole(value);
    if (most) options.most_whitespace = static_cast<std::int64_t>(*most);
    return most ? Taken::kValue : Taken::kUnknown;
  }
  const std::pair<std::string_view, bool*> flags[] = {{"--eager", &options.eager},
                                                      {"--open", &options.open},
                                                      {"--any-order", &options.any_order},
                                                      {"--shared", &options.shared},
                                                      {"--wrapping", &options.wrapping}};
  for (const auto& [flag, target] : flags) {
    if (flag != name) continue;
    *target = true;
    return Taken::kFlag;
  }
  return Taken::kUnknown;
}

}  // namespace

int main(int argc, char** argv) {
  EngineOptions own;
  const auto options = grammar_bench::read_options(
      argc, argv, [&](std::string_view name, std::string_view value) { return set_own_option(own, name, value); });
  if (!options || own.library.empty()) {
    fmt::print(stderr,
               "usage: xgrammar_bench --library FILE {} [--eager] [--open] [--any-order] [--whitespace N|any|fixed] "
               "[--shared] [--wrapping]\n",
               grammar_bench::kCommonUsage);
    return 2;
  }
  if (dlopen(own.library.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    fmt::print(stderr, "error: {}\n", dlerror());
    return 2;
  }
  try {
    const auto vocabulary = grammar_bench::read_vocabulary(options->vocabulary);
    Engine engine(own, vocabulary);
    if (own.wrapping) {
      fmt::print("{:.4f}\n", engine.wrapping_us());
      return 0;
    }
    return grammar_bench::measure(*options, vocabulary, engine);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 2;
  }
}
