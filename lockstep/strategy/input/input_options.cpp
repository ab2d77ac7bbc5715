#include "lockstep/strategy/input/input_options.h"

#include "lockstep/base/error.h"
#include "lockstep/value/print.h"

namespace lockstep {

int64_t InputContext::get_per_replica_batch_size(int64_t global_batch_size) const {
  LOCKSTEP_CHECK_VALUE(global_batch_size % num_replicas_in_sync == 0,
                       "[get_per_replica_batch_size] the global batch must be divisible by the number of replicas: "
                       "global_batch_size=",
                       global_batch_size, ", num_replicas_in_sync=", num_replicas_in_sync);
  return global_batch_size / num_replicas_in_sync;
}

std::string InputContext::str() const {
  return c10::str("tf.distribute.InputContext(input pipeline id ", input_pipeline_id, ", total: ", num_input_pipelines,
                  ")");
}

std::ostream& operator<<(std::ostream& out, const InputContext& context) { return out << context.str(); }

std::ostream& operator<<(std::ostream& out, const InputOptions& options) {
  const char* mode = options.replication_mode == InputReplicationMode::PerWorker ? "PER_WORKER" : "PER_REPLICA";
  return out << "InputOptions(experimental_fetch_to_device=" << repr(options.fetch_to_device)
             << ", experimental_replication_mode=<InputReplicationMode." << mode << ": '" << mode
             << "'>, experimental_place_dataset_on_device=" << repr(options.place_dataset_on_device)
             << ", experimental_per_replica_buffer_size=" << options.per_replica_buffer_size
             << (options.empty == EmptyBatch::Keep     ? ""
                 : options.empty == EmptyBatch::Repeat ? ", empty=Repeat"
                                                       : ", empty=Drop")
             << ")";
}

}  // namespace lockstep
