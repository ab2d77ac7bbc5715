#pragma once

#include <string>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::tests {

/// Returns the message of the `Type` that `call` throws, without the place in the sources; fails the test if there is
/// none.
template <class Type = DataError, class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Type& error) {
    return error.what_without_backtrace();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace lockstep::tests
