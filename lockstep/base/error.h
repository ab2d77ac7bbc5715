#pragma once

#include <string>

#include <c10/util/Exception.h>

#include "lockstep/api.h"

/// Errors that lockstep raises.
///
/// Wrong arguments are LibTorch's own types (`c10::ValueError`, `c10::TypeError`, `c10::IndexError`,
/// `c10::NotImplementedError`). Five more say what LibTorch has no word for; all are `c10::Error`:
///   - ContextError: a legal call in the wrong place, for example `run` inside `run`;
///   - CollectiveError: replicas disagree, one of them left, or a wait ran out of time;
///   - DataError: a file is missing, damaged or not what it should be; the message has file, offset and record;
///   - EndOfData: `get_next` was called where there is no next element;
///   - InternalError: a bug of lockstep itself.
///
/// A message reads `[operation] rule: name=value, ...; what to do`.
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

}  // namespace lockstep

/// Throws `type` with the message made of the arguments after `condition` unless it holds.
#define LOCKSTEP_CHECK_AS(type, condition, ...)                                                   \
  do {                                                                                            \
    if (C10_UNLIKELY(!(condition))) {                                                             \
      throw type({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, ::c10::str(__VA_ARGS__)); \
    }                                                                                             \
  } while (false)

#define LOCKSTEP_CHECK_VALUE(condition, ...) LOCKSTEP_CHECK_AS(::c10::ValueError, condition, __VA_ARGS__)
#define LOCKSTEP_CHECK_TYPE(condition, ...) LOCKSTEP_CHECK_AS(::c10::TypeError, condition, __VA_ARGS__)
#define LOCKSTEP_CHECK_INDEX(condition, ...) LOCKSTEP_CHECK_AS(::c10::IndexError, condition, __VA_ARGS__)
#define LOCKSTEP_CHECK_IMPLEMENTED(condition, ...) LOCKSTEP_CHECK_AS(::c10::NotImplementedError, condition, __VA_ARGS__)
#define LOCKSTEP_CHECK_CONTEXT(condition, ...) LOCKSTEP_CHECK_AS(::lockstep::ContextError, condition, __VA_ARGS__)
#define LOCKSTEP_CHECK_COLLECTIVE(condition, ...) LOCKSTEP_CHECK_AS(::lockstep::CollectiveError, condition, __VA_ARGS__)
#define LOCKSTEP_CHECK_DATA(condition, ...) LOCKSTEP_CHECK_AS(::lockstep::DataError, condition, __VA_ARGS__)

/// States what must be true whatever the user does.
#define LOCKSTEP_ASSERT(condition, ...)                                                                        \
  LOCKSTEP_CHECK_AS(::lockstep::InternalError, condition, "[lockstep] internal check failed: " #condition " ", \
                    ##__VA_ARGS__)
