// The collectives of replicas beside all_reduce and all_gather, and collectives within groups of replicas, under every
// strategy: values and gradients against the plain computation of all replicas.

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/lockstep.h"
#include "tests/conformance/strategies.h"

namespace lockstep::conformance {
namespace {

using ::testing::HasSubstr;
using Tensors = std::vector<torch::Tensor>;

class CollectivesTest : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  /// What a replica computes from its tensor, and what all compute from the tensors of all.
  using Distributed = std::function<torch::Tensor(const torch::Tensor&)>;
  using Plain = std::function<Tensors(const Tensors&)>;

  static ReplicaContext context() { return get_replica_context(); }
  static int own_id() { return context().replica_id_in_sync_group(); }
  int replicas() const { return named.replicas; }

  /// The values of a replica's tensor of these rows.
  static torch::Tensor values(int id, int64_t rows) {
    return torch::arange(rows * 3, torch::kDouble).add(1).mul(id + 1).sin().view({rows, 3});
  }
  static torch::Tensor weights(int id, const torch::Tensor& like) {
    return torch::arange(like.numel(), torch::kDouble).add(id * 10).cos().view(like.sizes()).to(like.device());
  }

  /// Compares values and gradients with the plain computation; replica `id` has a tensor of `rows(id)` rows.
  void expect_plain(const std::string& what, const std::function<int64_t(int)>& rows, const Distributed& distributed,
                    const Plain& plain) const {
    const auto results = strategy.local_results(strategy.run([&] {
      torch::Tensor own = values(own_id(), rows(own_id())).to(named.device).set_requires_grad(true);
      const torch::Tensor got = distributed(own);
      (got * weights(own_id(), got)).sum().backward();
      return torch::cat({got.detach().reshape(-1), own.grad().reshape(-1)});
    }));
    Tensors all;
    for (int id = 0; id < replicas(); ++id) all.push_back(values(id, rows(id)).set_requires_grad(true));
    const Tensors wanted = plain(all);
    torch::Tensor loss = torch::zeros({}, torch::kDouble);
    for (int id = 0; id < replicas(); ++id) loss = loss + (wanted[id] * weights(id, wanted[id])).sum();
    loss.backward();
    for (int i = 0; i < named.local; ++i) {
      const int id = named.first + i;
      const torch::Tensor gradient = all[id].grad().defined() ? all[id].grad() : torch::zeros_like(all[id]);
      const torch::Tensor expected = torch::cat({wanted[id].detach().reshape(-1), gradient.reshape(-1)});
      ASSERT_EQ(results[i].sizes(), expected.sizes()) << what << " on replica " << id;
      EXPECT_TRUE(torch::allclose(results[i].cpu(), expected, 1e-10, 1e-12))
          << what << " on replica " << id << ": " << results[i].cpu() << " in place of " << expected;
    }
  }

  /// Replicas exchange parts of `rows(from, to)` rows.
  void expect_splits(const std::function<int64_t(int, int)>& rows) const;

  /// Every second replica.
  ReplicaGroups every_second() const {
    std::vector<std::vector<int>> groups(replicas() > 1 ? 2 : 1);
    for (int id = 0; id < replicas(); ++id) groups[id % groups.size()].push_back(id);
    return ReplicaGroups(groups);
  }

  /// Applies a plain computation to the members of each group alone.
  static Plain within(const ReplicaGroups& groups, const Plain& plain) {
    return [=](const Tensors& all) {
      Tensors results(all.size());
      for (const auto& members : groups.groups()) {
        Tensors own;
        for (const int id : members) own.push_back(all[id]);
        const Tensors computed = plain(own);
        for (size_t i = 0; i < members.size(); ++i) results[members[i]] = computed[i];
      }
      return results;
    };
  }

  /// Calls `expect(collectives, plain)` for all replicas, and within groups.
  template <class Expect>
  void with_and_without_groups(const Expect& expect) const {
    expect([] { return static_cast<Collectives>(context()); }, [](const Plain& plain) { return plain; });
    const ReplicaGroups groups = every_second();
    expect([=] { return context().within(groups); }, [=](const Plain& plain) { return within(groups, plain); });
  }

  static Plain sum_shares(bool is_mean) {
    return [=](const Tensors& all) {
      const auto size = static_cast<int>(all.size());
      torch::Tensor sum = torch::stack(all).sum(0);
      if (is_mean) sum = sum / size;
      Tensors shares;
      for (int rank = 0; rank < size; ++rank) {
        const auto share = comm::row_share(sum.size(0), rank, size);
        shares.push_back(sum.narrow(0, share.begin, share.count));
      }
      return shares;
    };
  }

  /// The parts of replica `from` for replica `to` have `rows(from, to)` rows.
  static Plain exchanged(const std::function<int64_t(int, int)>& rows) {
    return [=](const Tensors& all) {
      const auto size = static_cast<int>(all.size());
      std::vector<Tensors> parts(all.size());
      for (int from = 0; from < size; ++from) {
        int64_t begin = 0;
        for (int to = 0; to < size; ++to) {
          parts[to].push_back(all[from].narrow(0, begin, rows(from, to)));
          begin += rows(from, to);
        }
      }
      Tensors results;
      for (const Tensors& received : parts) results.push_back(torch::cat(received));
      return results;
    };
  }

  NamedStrategy named = GetParam();
  Strategy strategy = named.make();
};

TEST_P(CollectivesTest, Broadcast) {
  with_and_without_groups([&](auto collectives, auto plain) {
    expect_plain(
        "broadcast", [](int) { return 2; }, [&](const torch::Tensor& own) { return collectives().broadcast(own); },
        plain([](const Tensors& all) { return Tensors(all.size(), all[0]); }));
  });
  const int last = replicas() - 1;
  expect_plain(
      "broadcast of the last", [](int) { return 1; },
      [&](const torch::Tensor& own) { return context().broadcast(own, last); },
      [&](const Tensors& all) { return Tensors(all.size(), all[last]); });
}

TEST_P(CollectivesTest, BroadcastOfNests) {
  strategy.run([&] {
    const auto got = context().broadcast(std::tuple{own_id() + 5, own_id() * 0.5, torch::full({2}, own_id())}, 0);
    EXPECT_EQ(std::get<0>(got), 5);
    EXPECT_EQ(std::get<1>(got), 0.0);
    EXPECT_TRUE(torch::equal(std::get<2>(got), torch::full({2}, 0)));
    EXPECT_THROW(context().broadcast(1, replicas()), c10::ValueError);
    EXPECT_THROW(context().broadcast(1, -1), c10::ValueError);
  });
}

TEST_P(CollectivesTest, ReduceScatterWithEveryRemainder) {
  with_and_without_groups([&](auto collectives, auto plain) {
    for (int64_t rows = 0; rows <= replicas() + 1; ++rows) {
      for (const bool is_mean : {false, true}) {
        if (is_mean && rows > 1) continue;
        expect_plain(
            c10::str("reduce_scatter of ", rows), [=](int) { return rows; },
            [&](const torch::Tensor& own) { return collectives().reduce_scatter(is_mean ? "mean" : "sum", own); },
            plain(sum_shares(is_mean)));
      }
    }
  });
}

TEST_P(CollectivesTest, AllToAllOfEqualParts) {
  with_and_without_groups([&](auto collectives, auto plain) {
    for (const int64_t each : {0, 2}) {
      expect_plain(
          "all_to_all", [&](int) { return each * replicas(); },
          [&](const torch::Tensor& own) {
            const auto both = collectives().all_to_all(Tensors{own.slice(0, 0, own.size(0)), own * 2});
            return both[0] + both[1];
          },
          plain([&](const Tensors& all) {
            const auto rows = static_cast<int64_t>(all[0].size(0) / all.size());
            Tensors results = exchanged([=](int, int) { return rows; })(all);
            for (torch::Tensor& result : results) result = result * 3;
            return results;
          }));
    }
  });
}

void CollectivesTest::expect_splits(const std::function<int64_t(int, int)>& rows) const {
  const auto splits = [&](int from) {
    std::vector<int64_t> sizes;
    for (int to = 0; to < replicas(); ++to) sizes.push_back(rows(from, to));
    return sizes;
  };
  const auto all_rows = [&](int from) {
    const auto sizes = splits(from);
    return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  };
  std::vector<int64_t> counts;
  for (int id = 0; id < replicas(); ++id) {
    counts.push_back(all_rows(id));
    counts.push_back(0);
    for (int from = 0; from < replicas(); ++from) counts.back() += rows(from, id);
  }
  const Distributed exchange = [&](const torch::Tensor& own) { return context().all_to_all(own, splits(own_id())); };
  const bool are_equal = std::count(counts.begin(), counts.end(), counts[0]) == std::ssize(counts);
  if (named.is_traced() && !are_equal) {
    const auto run = [&] { strategy.run([&] { exchange(values(own_id(), all_rows(own_id())).to(named.device)); }); };
    EXPECT_THROW(run(), c10::NotImplementedError);
    return;
  }
  expect_plain("all_to_all", all_rows, exchange, exchanged(rows));
}

TEST_P(CollectivesTest, AllToAllWithSplitSizes) {
  expect_splits([](int from, int to) { return int64_t{(from + 2 * to) % 3}; });
}

TEST_P(CollectivesTest, AllToAllWithSplitSizesThatAreEqualInSum) {
  expect_splits([n = replicas()](int from, int to) { return int64_t{(to - from + n) % n}; });
}

TEST_P(CollectivesTest, ReductionsWithinGroups) {
  const ReplicaGroups groups = every_second();
  expect_plain(
      "all_reduce", [](int) { return 2; },
      [&](const torch::Tensor& own) { return context().within(groups).all_reduce("mean", own); },
      within(groups, [](const Tensors& all) { return Tensors(all.size(), torch::stack(all).mean(0)); }));
  expect_plain(
      "all_gather", [](int) { return 2; },
      [&](const torch::Tensor& own) { return context().within(groups).all_gather(own, 1); },
      within(groups, [](const Tensors& all) { return Tensors(all.size(), torch::cat(all, 1)); }));
  if (!named.is_traced()) {
    expect_plain(
        "all_gather of different sizes", [](int id) { return id % 4; },
        [&](const torch::Tensor& own) { return context().within(groups).all_gather(own, 0); },
        within(groups, [](const Tensors& all) { return Tensors(all.size(), torch::cat(all, 0)); }));
  }
  strategy.run([&] {
    context().within(groups).barrier();
    context().barrier();
    const int in_group = static_cast<int>(groups.members(own_id()).size());
    EXPECT_EQ(context().within(groups).all_reduce("sum", 1), in_group);
    EXPECT_EQ(context().within(groups).broadcast(own_id()), groups.members(own_id())[0]);
    EXPECT_EQ(context().all_reduce("sum", 1), replicas());
  });
}

TEST_P(CollectivesTest, WhatIsRefused) {
  strategy.run([&] {
    const torch::Tensor rows = torch::ones({replicas() + 1}).to(named.device);
    EXPECT_THROW(context().reduce_scatter("sum", 1.0), c10::ValueError);
    EXPECT_THROW(context().all_to_all(rows[0]), c10::ValueError);
    EXPECT_THROW(context().all_to_all(rows, std::vector<int64_t>(replicas(), 0)), c10::ValueError);
    if (replicas() > 1) {
      EXPECT_THROW(context().all_to_all(rows), c10::ValueError);
    }
    std::vector<int> too_many(replicas() + 1);
    std::iota(too_many.begin(), too_many.end(), 0);
    EXPECT_THROW(context().within(ReplicaGroups(std::vector<std::vector<int>>{too_many})), c10::ValueError);
    const IndexedSlices slices{torch::tensor({0}), torch::ones({1, 2}), {3, 2}};
    EXPECT_THROW(context().broadcast(slices), c10::NotImplementedError);
  });
}

TEST_P(CollectivesTest, OtherGroupsDoNotMatch) {
  if (replicas() == 1) GTEST_SKIP() << "one replica";
  if (named.has_workers()) GTEST_SKIP() << "several processes: an error ends the job";
  std::vector<int> all(replicas());
  std::iota(all.begin(), all.end(), 0);
  const ReplicaGroups one(std::vector<std::vector<int>>{all});
  std::vector<std::vector<int>> alone;
  for (const int id : all) alone.push_back({id});
  try {
    strategy.run([&] {
      const torch::Tensor x = torch::ones({2}).to(named.device);
      return context().within(own_id() == 0 ? one : ReplicaGroups(alone)).all_reduce("sum", x);
    });
    FAIL() << "no error";
  } catch (const CollectiveError& error) {
    EXPECT_THAT(error.what(), HasSubstr("within {{0}, {1}"));
  }
}

constexpr TpuSize kCollectivesSizes[] = {{1, 1}, {2, 1}, {4, 1}, {2, 2}};
INSTANTIATE_TEST_SUITE_P(Strategies, CollectivesTest, ::testing::ValuesIn(all_strategies(kCollectivesSizes)),
                         strategy_name);

}  // namespace
}  // namespace lockstep::conformance
