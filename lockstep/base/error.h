#pragma once

#include <exception>
#include <string>
#include <utility>

#include <c10/util/Exception.h>

#include "lockstep/api.h"

/// Errors that lockstep raises.
///
/// Wrong arguments are LibTorch's own types (`c10::ValueError`, `c10::TypeError`, `c10::IndexError`,
/// `c10::NotImplementedError`). Five more types have no equivalent in LibTorch; all are `c10::Error`:
///   - ContextError: a valid call in the wrong context, for example `run` inside `run`;
///   - CollectiveError: replicas disagree, one of them left, or a wait timed out;
///   - DataError: a file is missing, damaged or of another format; the message has file, offset and record;
///   - EndOfData: `get_next` was called where there is no next element;
///   - InternalError: a bug of lockstep itself.
///
/// A message reads `[operation] rule: name=value, ...; what to do`. Errors have no backtrace unless LOCKSTEP_BACKTRACE
/// or LibTorch's TORCH_SHOW_CPP_STACKTRACES is 1.
namespace lockstep {

class LOCKSTEP_API ContextError : public c10::Error {
  using Error::Error;
};

class LOCKSTEP_API CollectiveError : public c10::Error {
  using Error::Error;
};

class LOCKSTEP_API DataError : public c10::Error {
  using Error::Error;
};

class LOCKSTEP_API EndOfData : public c10::Error {
  using Error::Error;
};

class LOCKSTEP_API InternalError : public c10::Error {
  using Error::Error;
};

/// The message of any exception, without a backtrace.
LOCKSTEP_API std::string error_text(const std::exception_ptr& error);

namespace detail {

/// Whether the environment asks for backtraces. Read at every call.
LOCKSTEP_API bool wants_backtrace();

template <class Error>
Error make_error(const c10::SourceLocation& where, std::string message) {
  if (wants_backtrace()) return Error(where, std::move(message));
  return Error(std::move(message), {}, nullptr);
}

template <class Error>
[[noreturn]] void throw_error(const c10::SourceLocation& where, std::string message) {
  throw make_error<Error>(where, std::move(message));
}

}  // namespace detail
}  // namespace lockstep

/// Throws `type` with the message made of the other arguments.
#define LOCKSTEP_THROW(type, ...) \
  ::lockstep::detail::throw_error<type>({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, ::c10::str(__VA_ARGS__))

/// Throws `type` with the message made of the arguments after `condition` unless it holds.
#define LOCKSTEP_CHECK_AS(type, condition, ...) \
  do {                                          \
    if (!(condition)) [[unlikely]] {            \
      LOCKSTEP_THROW(type, __VA_ARGS__);        \
    }                                           \
  } while (false)

#define LOCKSTEP_CHECK_VALUE(condition, ...) LOCKSTEP_CHECK_AS(::c10::ValueError, condition, __VA_ARGS__)
#define LOCKSTEP_CHECK_TYPE(condition, ...) LOCKSTEP_CHECK_AS(::c10::TypeError, condition, __VA_ARGS__)
#define LOCKSTEP_CHECK_INDEX(condition, ...) LOCKSTEP_CHECK_AS(::c10::IndexError, condition, __VA_ARGS__)
#define LOCKSTEP_CHECK_IMPLEMENTED(condition, ...) LOCKSTEP_CHECK_AS(::c10::NotImplementedError, condition, __VA_ARGS__)
#define LOCKSTEP_CHECK_CONTEXT(condition, ...) LOCKSTEP_CHECK_AS(::lockstep::ContextError, condition, __VA_ARGS__)
#define LOCKSTEP_CHECK_COLLECTIVE(condition, ...) LOCKSTEP_CHECK_AS(::lockstep::CollectiveError, condition, __VA_ARGS__)
#define LOCKSTEP_CHECK_DATA(condition, ...) LOCKSTEP_CHECK_AS(::lockstep::DataError, condition, __VA_ARGS__)

/// Throws InternalError unless `condition` holds, which no input can make false. The one way to state what cannot
/// happen: the library never aborts.
#define LOCKSTEP_ASSERT(condition, ...)                                                                        \
  LOCKSTEP_CHECK_AS(::lockstep::InternalError, condition, "[lockstep] internal check failed: " #condition " ", \
                    ##__VA_ARGS__)
