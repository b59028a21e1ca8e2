#include "coreai/base/error.h"

#include <fmt/format.h>

#include <cstring>

namespace coreai {
namespace {

std::string compose(const std::string& what, const std::string& where, const std::string& next_step) {
  std::string message = where.empty() ? what : fmt::format("{}: {}", where, what);
  if (!next_step.empty()) message += fmt::format(". {}", next_step);
  return message;
}

}  // namespace

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid-argument";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kMalformed:
      return "malformed";
    case ErrorCode::kHashMismatch:
      return "hash-mismatch";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kVerification:
      return "verification";
    case ErrorCode::kShape:
      return "shape";
    case ErrorCode::kNotFound:
      return "not-found";
    case ErrorCode::kContextLength:
      return "context-length";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "unknown";
}

Error::Error(ErrorCode code, std::string what, std::string where, std::string next_step)
    : std::runtime_error(compose(what, where, next_step)),
      code_(code),
      problem_(std::move(what)),
      where_(std::move(where)),
      next_step_(std::move(next_step)) {}

IoError::IoError(std::string what, std::string path, int system_error, std::string next_step)
    : Error(ErrorCode::kIo, fmt::format("{} ({})", what, std::strerror(system_error)), std::move(path),
            std::move(next_step)),
      system_error_(system_error) {}

MalformedError::MalformedError(std::string what, std::string where, std::uint64_t offset, std::string next_step)
    : Error(ErrorCode::kMalformed, fmt::format("{} (at byte {})", what, offset), std::move(where),
            std::move(next_step)),
      offset_(offset) {}

MalformedError::MalformedError(const MalformedError& error, std::string where)
    : Error(ErrorCode::kMalformed, error.problem(), std::move(where), error.next_step()), offset_(error.offset()) {}

ContextLengthError::ContextLengthError(std::int64_t requested, std::int64_t capacity, std::string where,
                                       std::string next_step)
    : Error(ErrorCode::kContextLength, fmt::format("{} positions asked for, room for {}", requested, capacity),
            std::move(where), std::move(next_step)),
      requested_(requested),
      capacity_(capacity) {}

void invariant_failed(const char* condition, const char* file, int line) {
  throw InternalError(fmt::format("broken invariant: {}", condition), fmt::format("{}:{}", file, line),
                      "This is a bug of coreai.cpp; please report it with the command that led here");
}

}  // namespace coreai
