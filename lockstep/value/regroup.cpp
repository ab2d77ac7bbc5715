#include "lockstep/value/regroup.h"

namespace lockstep::detail {

void fail_different_sizes(size_t replica, size_t size, size_t first_size) {
  LOCKSTEP_CHECK_VALUE(false, "[regroup] all replicas must return structures of one length: replica 0 has ", first_size,
                       " elements, replica ", replica, " has ", size);
  std::abort();
}

void fail_different_keys(size_t replica) {
  LOCKSTEP_CHECK_VALUE(false, "[regroup] all replicas must return maps with the same keys: replica ", replica,
                       " lacks a key of replica 0");
  std::abort();
}

}  // namespace lockstep::detail
