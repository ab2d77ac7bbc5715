#pragma once

#include <cstdint>
#include <ostream>
#include <source_location>
#include <string_view>

#include "lockstep/api.h"
#include "lockstep/base/reduce_op.h"

namespace lockstep::comm {

/// Where in the user's program a collective was called: for errors and for the recorder.
struct LOCKSTEP_API CallSite {
  /// A string literal, or null where it is not known.
  const char* file = nullptr;
  uint32_t line = 0;

  /// The site of the calling thread, as its outermost CallSiteScope says.
  static CallSite current();
  /// The site of the calling thread's latest CallSiteScope since `forget_latest`: where the collectives belong that
  /// follow the function of a replica.
  static CallSite latest();
  static void forget_latest();
  explicit operator bool() const { return file != nullptr; }
};

/// Prints `train.cpp:57`, without folders.
LOCKSTEP_API std::ostream& operator<<(std::ostream& out, const CallSite& site);

/// Sets the site of this thread's calls for as long as it lives. The outermost scope counts: it is the user's call.
class LOCKSTEP_API CallSiteScope {
 public:
  explicit CallSiteScope(const std::source_location& where);
  /// For a thread that works on behalf of another one, which was at `site`.
  explicit CallSiteScope(const CallSite& site);
  ~CallSiteScope();
  CallSiteScope(const CallSiteScope&) = delete;
  CallSiteScope& operator=(const CallSiteScope&) = delete;

 private:
  bool outermost_;
};

/// The operation of the user that a collective belongs to.
struct LOCKSTEP_API CallerOperation {
  /// A string literal.
  std::string_view name;
  ReduceOp::Kind reduce_op = ReduceOp::Sum;

  /// What the calling thread's outermost OperationScope says, or `own` where there is none.
  static CallerOperation current_or(std::string_view own);
};

/// Collectives of this thread are reported as `operation` for as long as it lives: `reduce` over several workers
/// gathers the values of all. The outermost scope counts: it is the user's call.
class LOCKSTEP_API OperationScope {
 public:
  explicit OperationScope(CallerOperation operation);
  ~OperationScope();
  OperationScope(const OperationScope&) = delete;
  OperationScope& operator=(const OperationScope&) = delete;

 private:
  bool outermost_;
};

}  // namespace lockstep::comm
