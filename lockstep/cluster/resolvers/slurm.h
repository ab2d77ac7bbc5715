#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/cluster/environment.h"
#include "lockstep/cluster/fixed_resolver.h"

namespace lockstep {

struct LOCKSTEP_API SlurmOptions {
  /// The number of tasks of each job; tasks are assigned to jobs in the order of their names. Empty: all are workers.
  std::map<std::string, int> jobs{};
  /// Port of a host's first task; the others have the next ones. Not given: derived from SLURM_JOB_ID and
  /// SLURM_STEP_ID, in 20000 … 32767, so that steps on one host have different ports; 8888 where Slurm sets no job id.
  std::optional<int> port_base{};
  /// GPUs of a host. Not given: those in CUDA_VISIBLE_DEVICES, else SLURM_GPUS_ON_NODE, else the cards of the machine.
  /// 0: tasks use no GPU.
  std::optional<int> gpus_per_node{};
  /// Not given: what `srun --gpus-per-task` says, else `gpus_per_node` over the largest number of tasks on a host. 0:
  /// tasks use no GPU.
  std::optional<int> gpus_per_task{};
  /// Hosts and their numbers of tasks, in the order of ranks. Empty: those of Slurm's variables.
  std::vector<std::pair<std::string, int>> tasks_per_node{};
  /// Whether CUDA_VISIBLE_DEVICES is set to this task's share (empty if tasks use no GPU), which has an effect only
  /// before CUDA is used. With fewer GPUs than tasks it is left as the launcher set it, and also where Slurm has bound
  /// GPUs to tasks (`--gpus-per-task`, `--tres-per-task`, `--gpu-bind`): it then has the GPUs of this task alone.
  bool auto_set_gpu = true;
  std::string rpc_layer = "grpc";
  Environment variables{};
  /// Root of the machine's files, in which GPUs are counted.
  std::string device_folder = "/dev";
};

/// A step of Slurm, started with `srun`: hosts, numbers of tasks and the own rank are in SLURM_STEP_NODELIST,
/// SLURM_STEP_TASKS_PER_NODE, SLURM_STEP_NUM_TASKS and SLURM_PROCID. SLURM_DISTRIBUTION
/// determines how ranks are assigned to hosts: in blocks, or cyclically. SLURM_GPUS_PER_TASK, SLURM_TRES_PER_TASK and
/// SLURM_GPU_BIND say whether Slurm has bound GPUs to tasks.
///
/// The constructor throws `ContextError` outside of a step, and `c10::ValueError` where variables or options contradict
/// each other.
class LOCKSTEP_API SlurmClusterResolver : public FixedClusterResolver {
 public:
  explicit SlurmClusterResolver(const SlurmOptions& options = {});
};

}  // namespace lockstep
