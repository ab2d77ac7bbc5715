#include "lockstep/strategy/optimizer/exchange/message_exchange.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "lockstep/comm/group_impl.h"
#include "lockstep/strategy/optimizer/exchange/device_exchange.h"
#include "lockstep/strategy/optimizer/exchange/gradient_gate.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

/// Extends what the replicas of this worker have to all replicas of all workers.
AgreedGradients agree_in_group(const comm::Group& group, const AgreedGradients& within_worker) {
  const auto count = static_cast<int64_t>(within_worker.present.size());
  std::vector<char> both = within_worker.present;
  for (const char is_sum : within_worker.sums) both.push_back(is_sum != 0 ? 0 : 1);
  group.all_reduce_(at::from_blob(both.data(), {2 * count}, at::kChar), ReduceOp::Max);
  AgreedGradients agreed{{both.begin(), both.begin() + count}, {both.begin() + count, both.end()}};
  for (char& is_not_sum : agreed.sums) is_not_sum = is_not_sum != 0 ? 0 : 1;
  return agreed;
}

}  // namespace

MessageExchange::MessageExchange(const StrategyImpl& strategy, int replica, int num_replicas,
                                 const ReplicaParameters& parameters, const GradientCompression& compression)
    : strategy_(strategy),
      replica_(replica),
      parameters_(parameters),
      within_worker_(strategy, replica, num_replicas, parameters),
      num_replicas_(num_replicas),
      compressor_(make_compressor(compression, parameters.parameters.size())) {}

ExchangeScope MessageExchange::scope() const {
  ExchangeScope scope = within_worker_.scope();
  scope.reaches_all = false;
  scope.publishes_sparse = false;
  return scope;
}

GradientBuckets* MessageExchange::begin_backward(GradientBuckets* after) {
  if (!buckets_) {
    if (!arrivals_ && queues_on_gpu()) arrivals_ = std::make_unique<ArrivalOrder>(parameters_.parameters);
    return after;
  }
  const auto waits = strategy_.wait_for_gradients(replica_);
  buckets_->begin(after);
  return buckets_->num_buckets() > 0 ? buckets_.get() : after;
}

void MessageExchange::abandon_backward() {
  if (!buckets_) return;
  const auto waits = strategy_.wait_for_gradients(replica_);
  buckets_->abandon();
}

std::vector<char> MessageExchange::finish_buckets() {
  std::vector<char> summed(parameters_.parameters.size(), 0);
  if (!buckets_ || !buckets_->is_begun()) return summed;
  {
    const auto waits = strategy_.wait_for_gradients(replica_);
    buckets_->finish();
  }
  for (size_t p = 0; p < summed.size(); ++p) summed[p] = buckets_->holds(p) ? 1 : 0;
  return summed;
}

void MessageExchange::sum_bucket(const comm::Group& group, const std::vector<size_t>& bucket) const {
  std::vector<at::Tensor> gradients;
  for (const size_t p : bucket) {
    gradients.push_back(gradient_to_reduce(parameters_.parameters[p], parameters_.name(p)));
  }
  sum_dense(group, bucket, gradients);
}

void MessageExchange::sum_dense(const comm::Group& group, const std::vector<size_t>& parameters,
                                const std::vector<at::Tensor>& gradients, const CommunicationOptions& options) const {
  if (!compressor_) return group.all_reduce_(gradients, ReduceOp::Sum, options);
  std::vector<GradientToSum> to_sum;
  for (size_t i = 0; i < parameters.size(); ++i) to_sum.push_back({parameters[i], gradients[i]});
  compressor_->sum(WorkerSums(group, num_replicas_), to_sum);
}

void MessageExchange::reduce(ReducedGradients& reduced) {
  const bool in_buckets = buckets_ && buckets_->is_begun();
  const std::vector<char> summed = finish_buckets();
  ReplicaGradients published = gradient_presence(parameters_.parameters, reduced);
  if (in_buckets) {
    for (const size_t p : buckets_->filled_with_zeros()) published.parameters[p].presence = kAbsent;
  }
  const comm::Group& group = strategy_.group(replica_);
  AgreedGradients agreed = agree_in_group(group, agree_on_gradients(within_worker_, std::move(published)));
  const std::vector<char>& present = agreed.present;
  for (size_t p = 0; p < present.size(); ++p) {
    if (summed[p] == 0) continue;
    agreed.sums[p] = 1;
    if (present[p] == kAbsent) {
      if (compressor_) compressor_->put_back(p, parameters_.parameters[p].grad(), strategy_.num_workers());
      parameters_.parameters[p].mutable_grad().reset();
    } else {
      reduced.mark(p);
    }
  }
  sum_gradients(group, parameters_, present, agreed.sums, reduced,
                [&](const std::vector<size_t>& parameters, const std::vector<at::Tensor>& gradients) {
                  sum_dense(group, parameters, gradients,
                            {.bytes_per_pack = strategy_.communication_options().bytes_per_pack});
                });
  if (!buckets_) make_plan(present);
}

/// All ranks make the same buckets.
void MessageExchange::make_plan(const std::vector<char>& present) {
  BucketOptions options{.bytes_per_bucket = strategy_.communication_options().bytes_per_pack};
  if (queues_on_gpu()) {
    options = device_bucket_options(options.bytes_per_bucket, parameters_);
    options.order = order_of_first_rank();
  }
  arrivals_.reset();
  buckets_ = make_buckets(
      parameters_.parameters, present,
      [this, gradients = strategy_.gradient_group(replica_)](const std::vector<size_t>& bucket) {
        sum_bucket(gradients, bucket);
      },
      std::move(options));
}

/// Whether NCCL sums the gradients, so that events order all of it. It is the same on all ranks.
bool MessageExchange::queues_on_gpu() const {
  return !compressor_ && are_on_one_gpu(parameters_) && strategy_.gradient_group(replica_).impl()->uses_nccl();
}

std::vector<size_t> MessageExchange::order_of_first_rank() const {
  const auto on_host = at::device(at::kCPU).dtype(at::kLong);
  at::Tensor numbers = at::full({static_cast<int64_t>(parameters_.parameters.size())}, -1, on_host);
  const std::vector<size_t> own = arrivals_ ? arrivals_->get() : std::vector<size_t>();
  std::copy(own.begin(), own.end(), numbers.data_ptr<int64_t>());
  strategy_.group(replica_).broadcast_(numbers, 0);
  const int64_t* const first = numbers.data_ptr<int64_t>();
  return {first, std::find(first, first + numbers.numel(), -1)};
}

void MessageExchange::sum(const std::vector<char>& present, const std::vector<char>& skip, ReducedGradients& reduced) {
  within_worker_.sum(present, skip, reduced);
}

AgreedGradients MessageExchange::of_all_replicas(AgreedGradients of_readers) const {
  return agree_in_group(strategy_.group(replica_), of_readers);
}

ReplicaGradients MessageExchange::publish(const ReducedGradients& reduced) { return within_worker_.publish(reduced); }

void MessageExchange::collective(const char* operation, ReplicaGradients& published, Work work) {
  within_worker_.collective(operation, published, work);
}

}  // namespace lockstep::detail
