#include "lockstep/comm/job/join_gate.h"

#include <mutex>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

struct JoinGate {
  std::mutex mutex;
  std::string reason;
};

JoinGate& join_gate() {
  static auto* const instance = new JoinGate;
  return *instance;
}

}  // namespace

void close_joining(const std::string& reason) {
  const std::lock_guard lock(join_gate().mutex);
  join_gate().reason = reason.empty() ? "a worker will not come" : reason;
}

void open_joining() {
  const std::lock_guard lock(join_gate().mutex);
  join_gate().reason.clear();
}

namespace job {

std::string joining_closed() {
  const std::lock_guard lock(join_gate().mutex);
  return join_gate().reason;
}

void check_joining_open() {
  const std::string reason = joining_closed();
  LOCKSTEP_CHECK_COLLECTIVE(reason.empty(), "[join_job] not all workers can join: ", reason);
}

}  // namespace job
}  // namespace lockstep::comm
