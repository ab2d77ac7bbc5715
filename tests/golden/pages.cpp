#include "tests/golden/pages.h"

namespace lockstep::golden {

const char* const kFurtherDifferences = R"(
## Without golden cases

| what | TensorFlow | lockstep | why | test |
|---|---|---|---|---|
| `average_loss` without a global batch size (`compute_average_loss`) | divides by the number of replicas times this replica's examples, which is wrong if replicas have different numbers | divides by the examples of all replicas, counted by a collective that all replicas call | a last, smaller batch gets the right mean | OutsideRunTest.AverageLossCountsTheRowsOfAllReplicas |
| gather of a PerReplica of slices | converts the slices to dense tensors and concatenates them, unlike all_gather | NotImplementedError, like all_gather and gather of one IndexedSlices | slices are not converted to dense tensors silently | TensorFlowDifferences.GatherRefusesSlicesOfEveryReplica |
| reads in a SyncOnReadScope (`variable_sync_on_read_context`) | only a conversion to a tensor combines the copies: `v + 10` uses the replica's own copy, `value()` and `read_value()` are NotImplementedErrors | every read combines the copies | one rule for all reads, as TensorFlow's documentation promises | TensorFlowDifferences.SyncOnReadScopeHoldsForEveryRead |
| scope of a strategy inside the default strategy's scope | can be entered, but creating a variable there is a RuntimeError | variables are created as in any scope of the strategy | the default strategy's scope changes nothing | TensorFlowDifferences.AStrategyInsideTheScopeOfTheDefaultOneMakesVariables |
| `name()` of a variable | the name and `:0` | the name; `:0` is part of the printed form only | there are no graph outputs to number | TensorFlowDifferences.NamesAreAsTheProgramGaveThem |
| `Variable(1)` | an int32 variable | a float32 variable; `Variable(1, {.dtype = torch::kInt})` is int32 | variables are mostly trained, and 1 and 1.0 are easily confused | TensorFlowDifferences.AVariableOfAWholeNumberIsAFloat |
| numbers from one replica | a number, or a tuple of numbers | a bare PerReplica for each number, which converts to the number | in C++ the type of a result cannot depend on the number of replicas | TensorFlowDifferences.NumbersOfOneReplicaAreBareValues |
| list of tensors in from_tensor_slices | is stacked to one tensor | a `std::vector` is a nest, as in all of lockstep; `make_numpy_dataset` stacks it, as its page says | a C++ list of tensors is one type at any length | TensorFlowDifferences.AVectorIsANestInFromTensorSlices |
| AutoShardPolicy AUTO without files | logs a warning, also with one worker | logs a warning if there are several workers | with one worker nothing is divided | AutoShardTest.WarnsWhenAutoFallsBackToData |
| address of a Kubernetes pod | the address of its host | the address of the pod | several pods of one host have different addresses, and ports of a pod are not those of its host | KubernetesApiTest.FindsRunningPodsByLabel |
| TPU coordinator without an address | starts a server in this process | ValueError | no server is needed: workers connect to worker 0 | TPUClusterResolverTest.ACoordinatorIsAJobWithAnAddress |
| Slurm with `gpus_per_node=0` | an error of Python's range() | tasks see no GPU: CUDA_VISIBLE_DEVICES is empty | training on CPUs needs no GPUs | SlurmClusterResolverTest.NoGpusMeansThatTasksSeeNone |
)";

const char* const kPageOptions = R"(
## Options of the API pages

Every argument and option of the pages of OneDeviceStrategy, MirroredStrategy, MultiWorkerMirroredStrategy,
CentralStorageStrategy and runner.TPUStrategy.

| page, call | argument | in lockstep |
|---|---|---|
| `OneDeviceStrategy` | `device` | the device of variables, of distributed input and of the functions that `run` calls. It must exist |
| `MirroredStrategy` | `devices` | the devices of the replicas, in replica order; none or an empty list: all GPUs, or all logical CPUs if there is no GPU |
| | `cross_device_ops` | reduces values outside of replicas. A subclass of the user also reduces inside replicas and sums gradients |
| `MultiWorkerMirroredStrategy` | `communication` | the engine between workers: AUTO the fastest that all workers have, RING messages between CPUs (gloo or MPI), NCCL only NCCL (ValueError without GPUs) |
| | `cluster_resolver` | describes the cluster; none: TF_CONFIG or the launcher's variables |
| `CentralStorageStrategy` | `compute_devices` | the devices of the replicas; none or an empty list: all GPUs, or the first CPU |
| | `parameter_device` | the device of all variables; none: the only compute device, or the CPU if there are several |
| `runner.TPUStrategy` | `tpu` | the TPU as in `TPUOptions::tpu`; it must be in this machine |
| | `tpu_cluster_resolver` | first argument of `TPUStrategy`, not of `runner::TPUStrategy` (nor in TensorFlow) |
| | `experimental_device_assignment` | `device_assignment`, second argument of `TPUStrategy` |
| | `experimental_spmd_xla_partitioning` | `TPUStrategyOptions::use_spmd_partitioning`; with it `assign_to_logical_device` is a ValueError |
| attributes | `cluster_resolver` | `cluster_resolver()`; null for strategies of one process |
| | `extended` | `extended()` |
| | `num_replicas_in_sync` | `num_replicas_in_sync()` |
| `scope` | | returns a guard: `auto scope = strategy.scope();` |
| `run` | `fn` | a function, which is called once for each replica, on its thread |
| | `args` | the arguments after `fn`: `run(fn, a, b)` |
| | `kwargs` | none: C++ has no named arguments; pass them in order, or a struct |
| | `options` | `run(RunOptions{...}, fn, args...)`, see below |
| `experimental_run` | `fn`, `input_iterator` | runs `fn` on the next element of the iterator; without one, without arguments |
| `reduce` | `reduce_op` | SUM, MEAN, MIN, MAX, PRODUCT, as an enumerator or a string in any case |
| | `value` | a PerReplica or a nest of them; a value that is the same on all replicas has a mean, but no sum |
| | `axis` | one axis, several axes, or none; it may be left out |
| `gather` | `value`, `axis` | concatenates along `axis`; negative axes count from the last one; slices are a NotImplementedError |
| `experimental_local_results` | `value` | `local_results(value)`: a vector with the part of each local replica |
| `experimental_distribute_values_from_function` | `value_fn` | called with a `ValueContext` for each local replica, in order |
| `experimental_distribute_dataset` | `dataset` | divided among replicas and workers; it must be batched if there are several replicas |
| | `options` | `InputOptions`, see below |
| `distribute_datasets_from_function`, `experimental_distribute_datasets_from_function` | `dataset_fn` | called with an `InputContext` for each input pipeline of this process |
| | `options` | `InputOptions`, see below |
| `experimental_make_numpy_dataset` | `numpy_input` | tensors or nests of them; lists (vectors) are stacked |
| | `session` | none: there are no sessions |
| `make_dataset_iterator` | `dataset` | `distribute_dataset(dataset).iterator()` |
| `make_input_fn_iterator` | `input_fn` | returns a dataset, or a function without arguments that is called for each replica and step |
| | `replication_mode` | PerWorker; PerReplica is a ValueError, as in TensorFlow |
| `update_config_proto` | `config_proto` | a `RuntimeConfig`; returns a changed copy. Nothing in lockstep reads it |
| `experimental_assign_to_logical_device` | `tensor`, `logical_device_id` | checks the id; all logical devices compute the tensor |
| `experimental_replicate_to_logical_devices` | `tensor` | the whole tensor on every logical device |
| `experimental_split_to_logical_devices` | `tensor`, `partition_dimensions` | equal parts along each dimension; the product must be the number of logical devices |
| `InputOptions` | `experimental_fetch_to_device` | `fetch_to_device`: batches are copied to the replicas' devices; false leaves them on the host |
| | `experimental_replication_mode` | `replication_mode`: PerReplica is for `distribute_datasets_from_function` of MirroredStrategy, otherwise a NotImplementedError |
| | `experimental_place_dataset_on_device` | `place_dataset_on_device`: the dataset function runs with the replica's device current, elements on the device are not copied; needs PerReplica and no `fetch_to_device`, otherwise a ValueError |
| | `experimental_per_replica_buffer_size` | `per_replica_buffer_size`: steps that are prefetched; 0 for none. Replicas on CPUs prefetch only if reading is slow |
| `InputContext` | `num_input_pipelines`, `input_pipeline_id`, `num_replicas_in_sync` | fields of the same names |
| | `get_per_replica_batch_size` | `get_per_replica_batch_size(global)`; ValueError if it is not divisible |
| `RunOptions` | `experimental_enable_dynamic_batch_size` | `enable_dynamic_batch_size`, under TPUStrategy: steps with fewer rows are padded and masked, so that one program serves all sizes; false makes another size a ValueError. No effect elsewhere: nothing is compiled |
| | `experimental_bucketizing_dynamic_shape` | `bucketizing_dynamic_shape`, under TPUStrategy: sizes that change are padded to powers of two. No effect elsewhere |
| | `experimental_xla_options` | `xla_options`, under TPUStrategy: options of XLA's compiler by name. No effect elsewhere |
| `DistributeOptions` of the dataset | `auto_shard_policy` | `with_options({.auto_shard_policy = ...})`: Off, Auto, File, Data, Hint |
| `CollectiveHints`, `CommunicationOptions` of `all_reduce` | `bytes_per_pack` | a pack of many tensors is closed when it is larger than this; 0 for one pack |
| | `timeout_seconds` | how long a rank waits for the others |
| | `implementation` | RING exchanges tensors of GPUs through the CPU; NCCL is an error where it does not carry the call |
)";

const char* const kOtherNames = R"(
## TensorFlow's names

| TensorFlow | lockstep |
|---|---|
| methods with `experimental_` on the pages | both forms: `local_results`, `experimental_local_results` |
| fields of options with `experimental_` | without it: `InputOptions{.fetch_to_device = false}` |
| `tf.distribute.experimental_set_strategy(s)` | `set_strategy(s)`; `set_strategy(std::nullopt)` resets it |
| `tf.distribute.get_strategy`, `has_strategy`, `in_cross_replica_context`, `get_replica_context` | functions of the same names in `lockstep` |
| `tf.variable_sync_on_read_context()` | `SyncOnReadScope scope;` |
| `with tf.device(d):` | `DeviceScope scope(d);` |
| `tf.data.experimental.SHARD_HINT` | `shard_hint()`, or `shard(kShardHint, kShardHint)` |
| `kwargs`, keyword arguments of calls | the arguments in order; options are structs with named fields |
| `tf.nn.compute_average_loss` | `average_loss` |
| `tf.nn.scale_regularization_loss` | `scale_regularization_loss` |
)";

const char* const kParameterServers = R"(
## Parameter servers

TensorFlow's `ParameterServerStrategy` has a coordinator that dispatches steps, workers that run them asynchronously, and
`ps` tasks that apply updates in the order of arrival. lockstep does not support this: its replicas train synchronously,
so a run can be reproduced, and gradients are never stale. What to use instead:

| you have | use |
|---|---|
| parameters too large for a copy on each device, on one machine | `CentralStorageStrategy`: one copy; of tables (`torch::nn::Embedding` with `sparse(true)`) only the rows that are looked up are transferred |
| many machines | `MultiWorkerMirroredStrategy`: every worker has all parameters and one or more replicas; the `ps` machines can become workers |
| a `TF_CONFIG` with `ps` tasks | resolvers accept it. Chief and workers train together; a `ps` task that makes a strategy gets a ValueError, so do not start the program there |
)";

}  // namespace lockstep::golden
