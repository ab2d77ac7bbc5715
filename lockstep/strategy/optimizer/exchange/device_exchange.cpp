#include "lockstep/strategy/optimizer/exchange/device_exchange.h"

#include <algorithm>

#include "lockstep/strategy/optimizer/exchange/gradient_gate.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

/// A bucket costs its ranks two meetings on the host, some 20 us, and the GPU some 10 us in which streams wait for each
/// other. At the 20 to 400 GB/s between GPUs, 25 MiB take 60 us and more. The first bucket is small, so that the wire
/// is busy soon after backward has begun.
constexpr int64_t kBytesOfDeviceBucket = 25 << 20;
constexpr int64_t kBytesOfFirstDeviceBucket = 1 << 20;

}  // namespace

DeviceExchange::DeviceExchange(const StrategyImpl& strategy, int replica, int num_replicas,
                               const ReplicaParameters& parameters)
    : strategy_(strategy),
      replica_(replica),
      parameters_(parameters),
      local_(strategy, replica, num_replicas, parameters) {}

bool DeviceExchange::is_for(const StrategyImpl& strategy, const ReplicaParameters& parameters) {
  const auto& tensors = parameters.parameters;
  if (!strategy.has_local_gradient_groups() || tensors.empty()) return false;
  return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
    return tensor.is_cuda() && tensor.device() == tensors[0].device();
  });
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
  if (in_buckets) buckets_->finish();
  ReplicaGradients published = gradient_presence(parameters_.parameters, reduced);
  if (in_buckets) {
    for (const size_t p : buckets_->filled_with_zeros()) published.parameters[p].presence = kAbsent;
  }
  const bool plans = !is_planned_ && arrivals_ != nullptr;
  if (plans) published.order = arrivals_->get();
  AgreedGradients agreed;
  std::vector<size_t> order;
  local_.collective("reduce_gradients", published, [&](const AllGradients& all) {
    agreed = {presence(all), sums_on_all(all)};
    if (plans) order = all[0]->order;
  });
  for (size_t p = 0; in_buckets && p < agreed.present.size(); ++p) {
    if (!buckets_->holds(p)) continue;
    agreed.sums[p] = 1;
    if (agreed.present[p] == kAbsent) {
      parameters_.parameters[p].mutable_grad().reset();
    } else {
      reduced.mark(p);
    }
  }
  if (plans) make_plan(agreed.present, std::move(order));  // nothing on one replica alone can fail in between
  local_.sum(agreed.present, agreed.sums, reduced);
}

/// All replicas make the same buckets: of gradients that one of them has, in the order of the first one.
void DeviceExchange::make_plan(const std::vector<char>& present, std::vector<size_t> order) {
  arrivals_.reset();
  is_planned_ = true;
  const int64_t bytes_per_pack = strategy_.communication_options().bytes_per_pack;
  BucketOptions options{.bytes_per_bucket = bytes_per_pack > 0 ? bytes_per_pack : kBytesOfDeviceBucket,
                        .bytes_of_first = kBytesOfFirstDeviceBucket,
                        .order = std::move(order)};
  options.prepare = [this](const std::vector<size_t>& bucket) {
    for (const size_t p : bucket) gradient_to_reduce(parameters_.parameters[p], parameters_.name(p));
  };
  const auto send = [this, group = strategy_.gradient_group(replica_)](const std::vector<size_t>& bucket) {
    std::vector<at::Tensor> gradients;
    for (const size_t p : bucket) gradients.push_back(parameters_.parameters[p].grad());
    group.all_reduce_(gradients, ReduceOp::Sum);
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
