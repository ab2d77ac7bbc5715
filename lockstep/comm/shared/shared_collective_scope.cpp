#include <exception>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/comm/shared/shared_rendezvous.h"

namespace lockstep::comm {

SharedCollectiveScope::SharedCollectiveScope(SharedRendezvous& rendezvous, int local, const CollectiveCall& call,
                                             std::chrono::milliseconds timeout)
    : span_(call), rendezvous_(rendezvous), local_(local) {
  rendezvous_.arrive(local, call, timeout);
}

SharedCollectiveScope::~SharedCollectiveScope() {
  if (!finished_) fail(nullptr);
}

void SharedCollectiveScope::fail(const std::exception_ptr& cause) {
  finished_ = true;
  std::string reason = c10::str("rank ", rendezvous_.rank_of(local_), " failed inside a collective");
  try {
    if (cause) std::rethrow_exception(cause);
  } catch (const c10::Error& error) {
    reason += c10::str(": ", error.what_without_backtrace());
  } catch (const std::exception& error) {
    reason += c10::str(": ", error.what());
  } catch (...) {
    reason += ": an exception that is no std::exception";
  }
  rendezvous_.fail(local_, reason);
}

void SharedCollectiveScope::finish() {
  finished_ = true;
  rendezvous_.depart(local_);
}

}  // namespace lockstep::comm
