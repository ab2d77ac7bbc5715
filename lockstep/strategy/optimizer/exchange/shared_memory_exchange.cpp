#include "lockstep/strategy/optimizer/exchange/shared_memory_exchange.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/shared/shared_rendezvous.h"
#include "lockstep/strategy/optimizer/exchange/gradient_gate.h"
#include "lockstep/strategy/optimizer/exchange/local_exchange.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

constexpr uint64_t kNoOffset = ~0ull;

/// A descriptor is one of these for each parameter.
struct ParameterDescriptor {
  uint64_t data = kNoOffset;
  uint64_t gradient = kNoOffset;
  uint32_t presence = kAbsent;
  uint32_t reduced = 0;
};

uint64_t offset_in(const comm::SharedArena& arena, const char* data) {
  return data == nullptr ? kNoOffset : arena.offset_of(data);
}

char* address_of(const comm::SharedMemory& memory, int worker, uint64_t offset) {
  return offset == kNoOffset ? nullptr : memory.at(worker, offset);
}

size_t descriptor_bytes(const ReplicaGradients& published) {
  return published.parameters.size() * sizeof(ParameterDescriptor);
}

void write_descriptor(const ReplicaGradients& published, const comm::SharedArena& arena, char* to) {
  auto* descriptor = reinterpret_cast<ParameterDescriptor*>(to);
  for (const ReplicaGradients::Parameter& parameter : published.parameters) {
    *descriptor++ = {offset_in(arena, parameter.data), offset_in(arena, parameter.gradient), parameter.presence,
                     parameter.reduced ? 1u : 0u};
  }
}

/// Reads the descriptor of a replica of `worker` that has as many parameters as `like`.
ReplicaGradients read_descriptor(const char* from, const ReplicaGradients& like, const comm::SharedMemory& memory,
                                 int worker) {
  ReplicaGradients read;
  read.parameters.reserve(like.parameters.size());
  const auto* descriptor = reinterpret_cast<const ParameterDescriptor*>(from);
  for (size_t p = 0; p < like.parameters.size(); ++p, ++descriptor) {
    read.parameters.push_back({address_of(memory, worker, descriptor->data),
                               address_of(memory, worker, descriptor->gradient),
                               static_cast<Presence>(descriptor->presence), descriptor->reduced != 0});
  }
  return read;
}

void check_in_arena(const comm::SharedArena& arena, const at::Tensor& tensor) {
  LOCKSTEP_CHECK_COLLECTIVE(arena.contains(tensor.data_ptr()),
                            "[optimizer] shared memory is full: bytes=", tensor.nbytes());
}

/// Moves the values of a tensor into the arena, unless they are there.
void move_to_arena(const comm::SharedArena& arena, const at::Tensor& tensor) {
  if (tensor.numel() == 0 || arena.contains(tensor.data_ptr())) return;
  const at::NoGradGuard no_grad;
  const comm::SharedAllocation shared(true);
  const at::Tensor moved = at::empty_like(tensor, tensor.options().requires_grad(false));
  moved.copy_(tensor);
  check_in_arena(arena, moved);
  tensor.set_data(moved);
}

/// Returns a dense gradient in the arena: itself, or a copy.
at::Tensor gradient_in_arena(const comm::SharedArena& arena, at::Tensor gradient) {
  if (!gradient.defined() || gradient.is_sparse() || !gradient.is_cpu()) return gradient;
  if (arena.contains(gradient_memory(gradient))) return gradient;
  const comm::SharedAllocation shared(true);
  return gradient.clone();
}

/// Returns what is updated of a parameter that can be sharded, in the arena.
at::Tensor values_in_arena(const comm::SharedArena& arena, const ReplicaParameters& replica, size_t parameter) {
  if (!replica.can_be_sharded(parameter)) return {};
  move_to_arena(arena, replica.stored[parameter]);
  const comm::SharedAllocation shared(true);
  at::Tensor values = replica.values_to_update(parameter);
  check_in_arena(arena, values);
  return values;
}

}  // namespace

SharedMemoryExchange::SharedMemoryExchange(const StrategyImpl& strategy, int replica,
                                           const ReplicaParameters& parameters)
    : strategy_(strategy),
      replica_(replica),
      parameters_(parameters),
      arena_(strategy.shared_rendezvous()->memory().own()) {
  for (size_t p = 0; p < parameters.parameters.size(); ++p) {
    if (parameters.can_be_sharded(p)) move_to_arena(arena_, parameters.parameters[p]);
  }
}

ExchangeScope SharedMemoryExchange::scope() const {
  return {strategy_.num_replicas_in_sync(), strategy_.global_replica(replica_), /*reaches_all=*/true,
          /*publishes_sparse=*/false};
}

ReplicaGradients SharedMemoryExchange::publish(const ReducedGradients& reduced) {
  ReplicaGradients published;
  published.reserve(parameters_.parameters.size());
  for (size_t p = 0; p < parameters_.parameters.size(); ++p) {
    published.add_parameter(values_in_arena(arena_, parameters_, p),
                            gradient_in_arena(arena_, exchanged_gradient(parameters_, p)), reduced.is_sum(p));
  }
  return published;
}

void SharedMemoryExchange::collective(const char* operation, ReplicaGradients& published, Work work) {
  comm::SharedRendezvous& rendezvous = *strategy_.shared_rendezvous();
  if (rendezvous.size() == 1) return work({&published});
  comm::CollectiveCall call;
  call.operation = operation;
  call.inputs = parameters_.stored;
  call.payload = &published;
  call.payload_type = &typeid(ReplicaGradients);
  write_descriptor(published, arena_, rendezvous.descriptor(replica_, descriptor_bytes(published)));
  comm::SharedCollectiveScope scope(rendezvous, replica_, call, {});
  std::vector<ReplicaGradients> of_others(static_cast<size_t>(rendezvous.size()));
  AllGradients all;
  for (int rank = 0; rank < rendezvous.size(); ++rank) {
    if (rank == rendezvous.rank_of(replica_)) {
      all.push_back(&published);
      continue;
    }
    ReplicaGradients& other = of_others[static_cast<size_t>(rank)];
    other = read_descriptor(rendezvous.descriptor_of(rank), published, rendezvous.memory(), rendezvous.worker_of(rank));
    all.push_back(&other);
  }
  scope.run([&] { work(all); });
}

void SharedMemoryExchange::reduce(ReducedGradients& reduced) {
  const auto [present, sums] = agree_on_gradients(*this, gradient_presence(parameters_.parameters, reduced));
  if (strategy_.num_replicas_in_sync() > 1) sum(present, sums, reduced);
}

void SharedMemoryExchange::sum(const std::vector<char>& present, const std::vector<char>& skip,
                               ReducedGradients& reduced) {
  sum_gradients(strategy_.group(replica_), parameters_, present, skip, reduced);
}

}  // namespace lockstep::detail
