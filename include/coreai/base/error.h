// Errors of the library: one type per cause, each with the fields a program needs to act on it.
// Every message says what was wrong, the value, where, and the next step. The library never aborts, exits or prints.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace coreai {

enum class ErrorCode {
  kInvalidArgument,  // a caller's argument is out of its range
  kIo,               // the operating system refused a file operation
  kMalformed,        // bytes of a file do not follow their format
  kHashMismatch,     // main.hash does not belong to main.mlirb
  kUnsupported,      // well-formed, but nothing here can run it
  kVerification,     // a program breaks a rule of the dialect
  kShape,            // dtypes or extents of arrays do not fit
  kNotFound,         // a name, file or function does not exist
  kContextLength,    // more tokens than the model or its cache can hold
  kCancelled,        // the caller asked to stop
  kInternal,         // a broken invariant: a bug of ours
};

std::string_view error_code_name(ErrorCode code);

// Base of everything the library throws. `where` names a file, op or argument; `next_step` tells what to do.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, std::string what, std::string where = {}, std::string next_step = {});

  ErrorCode code() const { return code_; }
  const std::string& problem() const { return problem_; }
  const std::string& where() const { return where_; }
  const std::string& next_step() const { return next_step_; }

 private:
  ErrorCode code_;
  std::string problem_, where_, next_step_;
};

// One subclass per cause, so that a caller catches what it can handle.
#define COREAI_DEFINE_ERROR(Name, Code)                                                      \
  class Name : public Error {                                                                \
   public:                                                                                   \
    explicit Name(std::string what, std::string where = {}, std::string next_step = {})      \
        : Error(ErrorCode::Code, std::move(what), std::move(where), std::move(next_step)) {} \
  }

COREAI_DEFINE_ERROR(InvalidArgumentError, kInvalidArgument);
COREAI_DEFINE_ERROR(HashMismatchError, kHashMismatch);
COREAI_DEFINE_ERROR(UnsupportedError, kUnsupported);
COREAI_DEFINE_ERROR(VerificationError, kVerification);
COREAI_DEFINE_ERROR(ShapeError, kShape);
COREAI_DEFINE_ERROR(NotFoundError, kNotFound);
COREAI_DEFINE_ERROR(CancelledError, kCancelled);
COREAI_DEFINE_ERROR(InternalError, kInternal);

// The operating system refused a file operation; `system_error` is its errno.
class IoError : public Error {
 public:
  IoError(std::string what, std::string path, int system_error, std::string next_step = {});
  int system_error() const { return system_error_; }

 private:
  int system_error_;
};

// Bytes that do not follow their format. `offset` counts bytes from the start of the file.
class MalformedError : public Error {
 public:
  MalformedError(std::string what, std::string where, std::uint64_t offset, std::string next_step = {});
  MalformedError(const MalformedError& error, std::string where);  // the same error, with its place
  std::uint64_t offset() const { return offset_; }

 private:
  std::uint64_t offset_;
};

// More positions than the model or its cache can hold.
class ContextLengthError : public Error {
 public:
  ContextLengthError(std::int64_t requested, std::int64_t capacity, std::string where, std::string next_step = {});
  std::int64_t requested() const { return requested_; }
  std::int64_t capacity() const { return capacity_; }

 private:
  std::int64_t requested_, capacity_;
};

// An invariant of ours, checked in every build: a broken one throws InternalError instead of aborting.
[[noreturn]] void invariant_failed(const char* condition, const char* file, int line);

}  // namespace coreai

#define COREAI_INVARIANT(condition) \
  ((condition) ? static_cast<void>(0) : ::coreai::invariant_failed(#condition, __FILE__, __LINE__))
