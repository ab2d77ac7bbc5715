#include "lockstep/value/regroup.h"

namespace lockstep::detail {

void fail_different_sizes(size_t replica, size_t size, size_t first_size) {
  LOCKSTEP_THROW(c10::ValueError, "[regroup] all replicas must return structures of one length: replica 0 has ",
                 first_size, " elements, replica ", replica, " has ", size);
}

void fail_different_keys(size_t replica) {
  LOCKSTEP_THROW(c10::ValueError, "[regroup] all replicas must return maps with the same keys: replica ", replica,
                 " lacks a key of replica 0");
}

}  // namespace lockstep::detail
