#pragma once

#include <string>

#include "lockstep/api.h"
#include "lockstep/cluster/environment.h"
#include "lockstep/cluster/fixed_resolver.h"

namespace lockstep {

struct LOCKSTEP_API SageMakerOptions {
  int port = 2223;
  /// Override the values of SageMaker's variables.
  TaskType task_type{};
  TaskId task_id{};
  std::string rpc_layer{};
  std::string environment{};
  Environment variables{};
};

/// A training job of Amazon SageMaker: all hosts of SM_HOSTS, a list in JSON, are workers in the order of their names,
/// and this is SM_CURRENT_HOST. No cluster where that is not among them.
///
/// The constructor throws `ContextError` where a variable is not set, `c10::ValueError` where it is invalid.
class LOCKSTEP_API SageMakerClusterResolver : public FixedClusterResolver {
 public:
  explicit SageMakerClusterResolver(const SageMakerOptions& options = {});

 private:
  std::string do_master(const TaskType& task_type, TaskId task_id, const std::string& rpc_layer) const override;
};

}  // namespace lockstep
