#include <exception>
#include <stdexcept>

#include "lockstep/comm/rendezvous.h"

namespace lockstep::comm {

CollectiveScope::CollectiveScope(Rendezvous& rendezvous, int rank, const CollectiveCall& call,
                                 std::chrono::milliseconds timeout)
    : span_(call),
      rendezvous_(rendezvous),
      rank_(rank),
      calls_(rendezvous.arrive(rank, call, timeout)),
      exceptions_(std::uncaught_exceptions()) {}

CollectiveScope::~CollectiveScope() {
  if (finished_) return;
  try {
    if (std::uncaught_exceptions() > exceptions_) {
      const auto& operation = calls_[static_cast<size_t>(rank_)]->operation;
      rendezvous_.abort(
          std::make_exception_ptr(std::runtime_error(c10::str("rank ", rank_, " failed inside ", operation))));
    }
    rendezvous_.depart(rank_);
  } catch (...) {
    // A destructor cannot throw; the failure is a peer's, or is being thrown already.
    return;
  }
}

void CollectiveScope::finish() {
  finished_ = true;
  rendezvous_.depart(rank_);
}

}  // namespace lockstep::comm
