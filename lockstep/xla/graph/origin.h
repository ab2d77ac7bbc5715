#pragma once

#include "lockstep/api.h"
#include "lockstep/base/error.h"

/// Which function of LibTorch the calling thread traces.
namespace lockstep::xla {

/// The traced function ("aten::add"), or null outside of one. Points to a string that lives as long as the process.
LOCKSTEP_API const char*& current_origin();

/// The traced function for the start of a message; "xla" outside of one.
LOCKSTEP_API const char* traced_function();

/// Checks what the caller of a builder passed; the message starts with the traced function.
#define LOCKSTEP_CHECK_TRACED(condition, ...) \
  LOCKSTEP_CHECK_VALUE(condition, "[", ::lockstep::xla::traced_function(), "] ", __VA_ARGS__)

/// Sets the traced function of the calling thread for as long as the guard lives.
class OriginGuard {
 public:
  explicit OriginGuard(const char* name) : previous_(current_origin()) { current_origin() = name; }
  ~OriginGuard() { current_origin() = previous_; }
  OriginGuard(const OriginGuard&) = delete;
  OriginGuard& operator=(const OriginGuard&) = delete;

 private:
  const char* previous_;
};

}  // namespace lockstep::xla
