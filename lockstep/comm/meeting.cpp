#include <exception>
#include <stdexcept>

#include "lockstep/base/error.h"
#include "lockstep/comm/rendezvous.h"

namespace lockstep::comm {

Meeting::Meeting(Rendezvous& rendezvous, int rank, const Call& call, std::chrono::milliseconds timeout)
    : rendezvous_(rendezvous),
      rank_(rank),
      calls_(rendezvous.arrive(rank, call, timeout)),
      exceptions_(std::uncaught_exceptions()) {}

Meeting::~Meeting() {
  if (finished_) return;
  try {
    if (std::uncaught_exceptions() > exceptions_) {
      const auto& operation = calls_[static_cast<size_t>(rank_)]->operation;
      rendezvous_.abort(
          std::make_exception_ptr(std::runtime_error(c10::str("rank ", rank_, " failed inside ", operation))));
    }
    rendezvous_.depart(rank_);
  } catch (...) {
    // The failure is the peers' or already on its way; a destructor has nobody to tell.
    return;
  }
}

void Meeting::finish() {
  finished_ = true;
  rendezvous_.depart(rank_);
}

}  // namespace lockstep::comm
