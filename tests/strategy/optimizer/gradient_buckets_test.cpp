#include "lockstep/strategy/optimizer/exchange/gradient_buckets.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include "lockstep/strategy/optimizer/exchange/replica_gradients.h"

namespace lockstep::detail {
namespace {

using ::testing::ElementsAre;

using Bucket = std::vector<size_t>;

at::Tensor leaf(int64_t size, at::ScalarType dtype = at::kFloat) {
  return torch::ones({size}, torch::dtype(dtype).requires_grad(true));
}

/// The sum of the parameters, each times its index plus one.
at::Tensor weighted_sum(const std::vector<at::Tensor>& parameters) {
  at::Tensor sum = at::zeros({}, at::kDouble);
  for (size_t p = 0; p < parameters.size(); ++p) sum = sum + parameters[p].sum() * static_cast<double>(p + 1);
  return sum;
}

/// Records the buckets that are sent.
class SentBuckets {
 public:
  GradientBuckets::Send send() {
    return [this](const Bucket& bucket) {
      const std::lock_guard lock(mutex_);
      sent_.push_back(bucket);
      changed_.notify_all();
    };
  }

  std::vector<Bucket> get() {
    const std::lock_guard lock(mutex_);
    return sent_;
  }

  void clear() {
    const std::lock_guard lock(mutex_);
    sent_.clear();
  }

  /// Waits until `count` buckets have been sent; false after ten seconds.
  bool wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return sent_.size() >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Bucket> sent_;
};

constexpr int64_t kOneParameter = 1;

TEST(GradientBuckets, BucketsHoldParametersFromTheLastToTheFirst) {
  SentBuckets sent;
  const std::vector<at::Tensor> parameters{leaf(4), leaf(4), leaf(4), leaf(4), leaf(4, at::kDouble)};
  GradientBuckets buckets(parameters, {1, 0, 1, 1, 1}, 2 * 4 * sizeof(float), sent.send());
  EXPECT_EQ(buckets.num_buckets(), 3);
  EXPECT_TRUE(buckets.holds(0));
  EXPECT_FALSE(buckets.holds(1));
  buckets.begin();
  weighted_sum(parameters).backward();
  buckets.finish();
  EXPECT_THAT(sent.get(), ElementsAre(ElementsAre(4), ElementsAre(3, 2), ElementsAre(0)));
  EXPECT_TRUE(buckets.filled_with_zeros().empty());
}

TEST(GradientBuckets, GradientsAreCompleteWhenTheirBucketIsSent) {
  const std::vector<at::Tensor> parameters{leaf(3), leaf(5), leaf(2)};
  std::vector<double> first_values;
  GradientBuckets buckets(parameters, {1, 1, 1}, kOneParameter, [&](const Bucket& bucket) {
    for (const size_t p : bucket) first_values.push_back(parameters[p].grad()[0].item<double>());
  });
  for (int step = 0; step < 3; ++step) {
    first_values.clear();
    for (const at::Tensor& parameter : parameters) parameter.mutable_grad().reset();
    buckets.begin();
    EXPECT_TRUE(buckets.is_begun());
    weighted_sum(parameters).backward();
    buckets.finish();
    EXPECT_FALSE(buckets.is_begun());
    EXPECT_THAT(first_values, ElementsAre(3, 2, 1));
  }
}

TEST(GradientBuckets, ABucketIsSentWhileBackwardComputesOthers) {
  SentBuckets sent;
  const std::vector<at::Tensor> parameters{leaf(3), leaf(3)};
  GradientBuckets buckets(parameters, {1, 1}, kOneParameter, sent.send());
  const at::Tensor later = parameters[0] * 2;
  bool sent_before_the_end = false;
  later.register_hook([&](const at::Tensor& /*gradient*/) { sent_before_the_end = sent.wait_for(1); });
  buckets.begin();
  (later * parameters[1]).sum().backward();
  EXPECT_TRUE(sent_before_the_end);
  buckets.finish();
  EXPECT_THAT(sent.get(), ElementsAre(ElementsAre(1), ElementsAre(0)));
}

TEST(GradientBuckets, ABucketThatIsNeverFilledIsSentWithZeros) {
  SentBuckets sent;
  const std::vector<at::Tensor> parameters{leaf(3), leaf(3), leaf(3)};
  GradientBuckets buckets(parameters, {1, 1, 1}, kOneParameter, sent.send());
  buckets.begin();
  (parameters[0] + parameters[2]).sum().backward();
  EXPECT_TRUE(sent.wait_for(1));
  EXPECT_THAT(sent.get(), ElementsAre(ElementsAre(2))) << "bucket 1 is missing, so bucket 0 waits";
  buckets.finish();
  EXPECT_THAT(sent.get(), ElementsAre(ElementsAre(2), ElementsAre(1), ElementsAre(0)));
  EXPECT_THAT(buckets.filled_with_zeros(), ElementsAre(1));
  EXPECT_TRUE(parameters[1].grad().equal(at::zeros({3})));
  buckets.begin();
  EXPECT_TRUE(buckets.filled_with_zeros().empty());
  buckets.abandon();
}

TEST(GradientBuckets, BackwardOutsideOfAPassSendsNothing) {
  SentBuckets sent;
  const std::vector<at::Tensor> parameters{leaf(3)};
  GradientBuckets buckets(parameters, {1}, kOneParameter, sent.send());
  weighted_sum(parameters).backward();
  EXPECT_TRUE(sent.get().empty());
}

TEST(GradientBuckets, AFailedSendReachesFinish) {
  const std::vector<at::Tensor> parameters{leaf(3), leaf(3), leaf(3)};
  std::vector<Bucket> tried;
  GradientBuckets buckets(parameters, {1, 1, 1}, kOneParameter, [&](const Bucket& bucket) {
    tried.push_back(bucket);
    if (bucket[0] == 1) throw std::runtime_error("connection lost");
  });
  buckets.begin();
  weighted_sum(parameters).backward();
  EXPECT_THROW(buckets.finish(), std::runtime_error);
  EXPECT_FALSE(buckets.is_begun());
  EXPECT_THAT(tried, ElementsAre(ElementsAre(2), ElementsAre(1))) << "nothing is sent after a failure";
}

TEST(GradientBuckets, AnAbandonedPassDoesNotDisturbTheNext) {
  SentBuckets sent;
  const std::vector<at::Tensor> parameters{leaf(3), leaf(3)};
  GradientBuckets buckets(parameters, {1, 1}, kOneParameter, sent.send());
  const at::Tensor later = parameters[0] * 2;
  later.register_hook([](const at::Tensor& /*gradient*/) { throw std::runtime_error("backward fails"); });
  buckets.begin();
  EXPECT_ANY_THROW((later * parameters[1]).sum().backward());
  buckets.abandon();
  EXPECT_FALSE(buckets.is_begun());
  EXPECT_THAT(sent.get(), ElementsAre(ElementsAre(1)));
  for (const at::Tensor& parameter : parameters) parameter.mutable_grad().reset();
  buckets.begin();
  weighted_sum(parameters).backward();
  buckets.finish();
  EXPECT_THAT(sent.get(), ElementsAre(ElementsAre(1), ElementsAre(1), ElementsAre(0)));
}

TEST(GradientBuckets, SeveralAreSentOneAfterTheOther) {
  SentBuckets sent;
  const std::vector<at::Tensor> first{leaf(3), leaf(3)};
  const std::vector<at::Tensor> second{leaf(4), leaf(4)};
  GradientBuckets before(first, {1, 1}, kOneParameter, sent.send());
  GradientBuckets after(second, {1, 1}, kOneParameter, [&](const Bucket& bucket) { sent.send()({bucket[0] + 10}); });
  for (int pass = 0; pass < 3; ++pass) {
    for (const auto& parameters : {first, second}) {
      for (const at::Tensor& parameter : parameters) parameter.mutable_grad().reset();
    }
    sent.clear();
    before.begin();
    after.begin(&before);
    weighted_sum(second).backward();
    first[1].sum().backward();
    EXPECT_TRUE(sent.wait_for(1));
    EXPECT_THAT(sent.get(), ElementsAre(ElementsAre(1))) << "it is not their turn";
    if (pass == 1) {
      before.abandon();
      after.abandon();
      EXPECT_THAT(sent.get(), ElementsAre(ElementsAre(1)));
      continue;
    }
    first[0].sum().backward();
    EXPECT_TRUE(sent.wait_for(4)) << "nothing is missing, so nobody waits for the end of backward";
    before.finish();
    after.finish();
    EXPECT_THAT(sent.get(), ElementsAre(ElementsAre(1), ElementsAre(0), ElementsAre(11), ElementsAre(10)));
  }
}

TEST(GradientBuckets, AParameterIsReachedOnceInAPass) {
  SentBuckets sent;
  const std::vector<at::Tensor> parameters{leaf(3), leaf(3)};
  GradientBuckets buckets(parameters, {1, 1}, kOneParameter, sent.send());
  buckets.begin();
  parameters[0].sum().backward();
  EXPECT_THROW(parameters[0].sum().backward(), c10::NotImplementedError);
  buckets.abandon();
}

TEST(GradientBuckets, SparseGradientsOfAnUnfinishedBucketBecomeDense) {
  SentBuckets sent;
  const std::vector<at::Tensor> parameters{torch::ones({4, 2}, torch::requires_grad()), leaf(3)};
  GradientBuckets buckets(parameters, {1, 1}, kOneParameter, sent.send());
  buckets.begin();
  parameters[0].mutable_grad() = at::eye(4).slice(1, 0, 2).to_sparse(1);
  buckets.finish();
  EXPECT_FALSE(parameters[0].grad().is_sparse());
  EXPECT_THAT(buckets.filled_with_zeros(), ElementsAre(1));
}

TEST(GradientBuckets, TakeDenseGradientsOfLeavesOnly) {
  SentBuckets sent;
  const std::vector<at::Tensor> parameters{leaf(3), leaf(3), leaf(3), leaf(3) * 2, torch::ones({3})};
  const auto buckets = make_buckets(parameters, {kDense, kSparse, kAbsent, kDense, kDense}, sent.send());
  std::vector<bool> held;
  for (size_t p = 0; p < parameters.size(); ++p) held.push_back(buckets->holds(p));
  EXPECT_THAT(held, ElementsAre(true, false, false, false, false));
  EXPECT_EQ(buckets->num_buckets(), 1);
}

TEST(GradientBuckets, TheirSizeIsGiven) {
  const std::vector<at::Tensor> parameters{leaf(2), leaf(2), leaf(2), leaf(2)};  // 8 bytes each
  const std::vector<char> dense(4, kDense);
  SentBuckets sent;
  EXPECT_EQ(make_buckets(parameters, dense, sent.send())->num_buckets(), 1) << "4 MiB";
  EXPECT_EQ(make_buckets(parameters, dense, sent.send(), 1)->num_buckets(), 4);
  EXPECT_EQ(make_buckets(parameters, dense, sent.send(), 16)->num_buckets(), 2);
}

}  // namespace
}  // namespace lockstep::detail
