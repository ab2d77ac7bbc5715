#pragma once

#include <cstdint>

namespace lockstep::data::detail {

/// Inside: where a worker stands among those that read one dataset together.
struct InputWorker {
  int64_t num_workers = 1;
  int64_t index = 0;
  int64_t replicas_per_worker = 1;

  int64_t num_replicas() const { return num_workers * replicas_per_worker; }
};

}  // namespace lockstep::data::detail
