#include "lockstep/strategy/optimizer/exchange/device_exchange.h"

#include <algorithm>
#include <optional>

#include "lockstep/strategy/optimizer/exchange/gradient_gate.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

/// A bucket costs its ranks two rendezvous on the host, some 20 us, and the GPU some 10 us in which streams wait for
/// each other. At the 20 to 400 GB/s between GPUs, 25 MiB take 60 us and more. The first bucket is small, so that data
/// is sent soon after backward has begun, and so are the last ones, so that little is sent after its end.
constexpr int64_t kBytesOfDeviceBucket = 25 << 20;
constexpr int64_t kBytesOfFirstDeviceBucket = 1 << 20;

}  // namespace

bool are_on_one_gpu(const ReplicaParameters& parameters) {
  const auto& tensors = parameters.parameters;
  return !tensors.empty() && std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
    return tensor.is_cuda() && tensor.device() == tensors[0].device();
  });
}

BucketOptions device_bucket_options(int64_t bytes_per_pack, const ReplicaParameters& parameters) {
  return {.bytes_per_bucket = bytes_per_pack > 0 ? bytes_per_pack : kBytesOfDeviceBucket,
          .bytes_of_first = kBytesOfFirstDeviceBucket,
          .prepare = [&parameters](const std::vector<size_t>& bucket) {
            for (const size_t p : bucket) gradient_to_reduce(parameters.parameters[p], parameters.name(p));
          }};
}

DeviceExchange::DeviceExchange(const StrategyImpl& strategy, int replica, int num_replicas,
                               const ReplicaParameters& parameters)
    : strategy_(strategy),
      replica_(replica),
      parameters_(parameters),
      local_(strategy, replica, num_replicas, parameters) {}

bool DeviceExchange::is_for(const StrategyImpl& strategy, const ReplicaParameters& parameters) {
  return strategy.has_local_gradient_groups() && are_on_one_gpu(parameters);
}

ExchangeScope DeviceExchange::scope() const {
  ExchangeScope scope = local_.scope();
  scope.reaches_all = false;
  return scope;
}

GradientBuckets* DeviceExchange::begin_backward(GradientBuckets* after) {
  if (!is_planned_ && !arrivals_) arrivals_ = std::make_unique<ArrivalOrder>(parameters_.parameters);
  if (!buckets_) return after;
  buckets_->begin(after);
  return buckets_.get();
}

void DeviceExchange::abandon_backward() {
  if (buckets_) buckets_->abandon();
}

void DeviceExchange::reduce(ReducedGradients& reduced) {
  const bool in_buckets = buckets_ && buckets_->is_begun();
  if (in_buckets) buckets_->send_rest();
  ReplicaGradients published = gradient_presence(parameters_.parameters, reduced);
  if (in_buckets) {
    for (const size_t p : buckets_->filled_with_zeros()) published.parameters[p].presence = kAbsent;
  }
  if (!is_planned_ && arrivals_) published.order = arrivals_->get();
  AgreedGradients agreed;
  std::optional<std::vector<size_t>> order;
  try {
    // Before the wait: replicas that call something else are found here.
    local_.collective("reduce_gradients", published, [&](const AllGradients& all) {
      agreed = {presence(all), sums_on_all(all)};
      order = all[0]->order;
    });
  } catch (...) {
    abandon_backward();
    throw;
  }
  if (in_buckets) buckets_->finish();
  for (size_t p = 0; in_buckets && p < agreed.present.size(); ++p) {
    if (!buckets_->holds(p)) continue;
    agreed.sums[p] = 1;
    if (agreed.present[p] == kAbsent) {
      parameters_.parameters[p].mutable_grad().reset();
    } else {
      reduced.mark(p);
    }
  }
  // Nothing on one replica alone can fail in between. The first one decides: a run that failed may have seen backward
  // on some replicas only.
  if (order) make_plan(agreed.present, std::move(*order));
  local_.sum(agreed.present, agreed.sums, reduced);
}

/// All replicas make the same buckets: of gradients that one of them has, in the order of the first one.
void DeviceExchange::make_plan(const std::vector<char>& present, std::vector<size_t> order) {
  arrivals_.reset();
  is_planned_ = true;
  BucketOptions options = device_bucket_options(strategy_.communication_options().bytes_per_pack, parameters_);
  options.order = std::move(order);
  CommunicationOptions of_call;
  of_call.timeout_seconds = strategy_.communication_options().timeout_seconds;
  of_call.deterministic = strategy_.communication_options().deterministic;
  const auto send = [this, of_call, group = strategy_.gradient_group(replica_)](const std::vector<size_t>& bucket) {
    std::vector<at::Tensor> gradients;
    for (const size_t p : bucket) gradients.push_back(parameters_.parameters[p].grad());
    group.all_reduce_(gradients, ReduceOp::Sum, of_call);
  };
  buckets_ = make_buckets(parameters_.parameters, present, send, std::move(options));
  if (buckets_->num_buckets() < 2) buckets_.reset();
}

void DeviceExchange::sum(const std::vector<char>& present, const std::vector<char>& skip, ReducedGradients& reduced) {
  local_.sum(present, skip, reduced);
}

ReplicaGradients DeviceExchange::publish(const ReducedGradients& reduced) { return local_.publish(reduced); }

void DeviceExchange::collective(const char* operation, ReplicaGradients& published, Work work) {
  local_.collective(operation, published, work);
}

}  // namespace lockstep::detail
