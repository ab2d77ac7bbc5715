// all_to_all, and collectives within groups of ranks, on every engine that threads of one process can stand for.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/group.h"
#include "tests/support/child_processes.h"
#include "tests/support/ranks_as_threads.h"
#include "tests/support/workers_as_threads.h"

namespace lockstep::comm {
namespace {

using lockstep::tests::EngineKind;
using ::testing::HasSubstr;

struct Places {
  std::string name;
  std::optional<EngineKind> engine;
  int num_workers = 1;
  int ranks_per_worker = 1;
};

Places in_process(int size) { return {c10::str("Local", size), std::nullopt, 1, size}; }
Places on_workers(EngineKind engine, int num_workers, int ranks_per_worker) {
  return {c10::str(engine == EngineKind::Shm ? "Shm" : "Messages", num_workers, "x", ranks_per_worker), engine,
          num_workers, ranks_per_worker};
}
std::ostream& operator<<(std::ostream& out, const Places& places) { return out << places.name; }

class GroupWithinTest : public ::testing::TestWithParam<Places> {
 protected:
  int size() const { return GetParam().num_workers * GetParam().ranks_per_worker; }

  std::vector<std::exception_ptr> errors_of(const std::function<void(const Group&)>& body) const {
    const Places& places = GetParam();
    if (places.engine) {
      return lockstep::tests::run_worker_ranks(*places.engine, places.num_workers, places.ranks_per_worker, body);
    }
    const auto rendezvous = std::make_shared<Rendezvous>(size(), "test");
    const auto groups = make_local_groups(rendezvous);
    return lockstep::tests::run_ranks(*rendezvous, [&](int rank) { body(groups[static_cast<size_t>(rank)]); });
  }
  void run(const std::function<void(const Group&)>& body) const {
    for (const auto& error : errors_of(body)) {
      if (error) std::rethrow_exception(error);
    }
  }

  /// Partitions of all ranks: pairs, every second one, one group of all, each alone, and groups of different sizes.
  std::vector<RankGroups> partitions() const {
    std::vector<int> all(static_cast<size_t>(size()));
    std::iota(all.begin(), all.end(), 0);
    std::vector<std::vector<int>> pairs, alone, halves(size() > 1 ? 2 : 1), uneven(size() > 2 ? 2 : 1);
    for (const int rank : all) {
      if (rank % 2 == 0) pairs.emplace_back();
      pairs.back().push_back(rank);
      alone.push_back({rank});
      halves[static_cast<size_t>(rank) % halves.size()].push_back(rank);
      uneven[rank == 1 ? 0 : uneven.size() - 1].push_back(rank);
    }
    return {RankGroups(pairs), RankGroups(alone), RankGroups(halves), RankGroups(uneven),
            RankGroups(std::vector<std::vector<int>>{all})};
  }
};

const auto kPlaces = ::testing::Values(in_process(1), in_process(2), in_process(3), in_process(5),
                                       on_workers(EngineKind::Shm, 2, 2), on_workers(EngineKind::Shm, 3, 1),
                                       on_workers(EngineKind::Messages, 2, 1), on_workers(EngineKind::Messages, 2, 2),
                                       on_workers(EngineKind::Messages, 3, 2), on_workers(EngineKind::Messages, 3, 1));
INSTANTIATE_TEST_SUITE_P(Engines, GroupWithinTest, kPlaces, [](const auto& info) { return info.param.name; });

/// Values that depend on the rank, such that sums are rounded.
at::Tensor rough_values(int rank, at::IntArrayRef shape, at::ScalarType dtype = at::kFloat) {
  const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  const at::Tensor ramp = at::arange(count, at::kDouble);
  if (c10::isIntegralType(dtype, true)) return at::remainder(ramp * 7 + rank * 13, 23).to(dtype).reshape(shape);
  return (at::sin(ramp * 0.7 + rank * 1.3) * at::exp(at::cos(ramp * 0.11 + rank) * 3)).to(dtype).reshape(shape);
}

bool equal_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return x.nbytes() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

/// What a group of these ranks alone computes, by position.
std::vector<at::Tensor> computed_alone(const std::vector<int>& members,
                                       const std::function<at::Tensor(const Group&, int rank)>& collective) {
  std::vector<at::Tensor> results(members.size());
  lockstep::tests::run_groups(static_cast<int>(members.size()), [&](const Group& group) {
    const auto position = static_cast<size_t>(group.rank());
    results[position] = collective(group, members[position]);
  });
  return results;
}

TEST_P(GroupWithinTest, ResultsAreThoseOfAGroupOfTheMembersAlone) {
  using Collective = std::function<at::Tensor(const Group&, int)>;
  const std::vector<std::pair<const char*, Collective>> collectives{
      {"sum",
       [](const Group& g, int r) {
         return g.all_reduce(rough_values(r, {7, 3}), "sum");
       }},
      {"mean of halves", [](const Group& g, int r) { return g.all_reduce(rough_values(r, {65}, at::kHalf), "mean"); }},
      {"mean of integers", [](const Group& g, int r) { return g.all_reduce(rough_values(r, {5}, at::kInt), "mean"); }},
      {"max", [](const Group& g, int r) { return g.all_reduce(rough_values(r, {4}, at::kLong), "max"); }},
      {"in place",
       [](const Group& g, int r) {
         const at::Tensor large = rough_values(r, {20011}), view = rough_values(r, {6, 4}).t();
         g.all_reduce_({large, view}, "sum");
         return at::cat({large, view.reshape(-1)});
       }},
      {"empty",
       [](const Group& g, int r) {
         return g.all_reduce(rough_values(r, {0, 3}), "sum");
       }},
      {"gather",
       [](const Group& g, int r) {
         return g.all_gather(rough_values(r, {r % 3, 2}), 0);
       }},
      {"broadcast", [](const Group& g, int r) { return g.broadcast(rough_values(r, {3}, at::kBFloat16), 0); }},
      {"reduce",
       [](const Group& g, int r) {
         const at::Tensor sum = g.reduce(rough_values(r, {9}), 0, "sum");
         return sum.defined() ? sum : at::zeros({1});
       }},
      {"reduce_scatter",
       [](const Group& g, int r) {
         return g.reduce_scatter(rough_values(r, {7, 3}), "mean");
       }},
      {"reduce_scatter of few rows",
       [](const Group& g, int r) { return g.reduce_scatter(rough_values(r, {1}), "sum"); }},
      {"all_to_all",
       [](const Group& g, int r) {
         return g.all_to_all(rough_values(r, {g.size() * (r % 3), 2}, at::kDouble));
       }},
      {"sparse",
       [](const Group& g, int r) {
         const at::Tensor rows = at::sparse_coo_tensor(at::full({1, 2}, r, at::kLong), rough_values(r, {2, 3}), {9, 3});
         return g.all_reduce(rows, "sum").to_dense();
       }},
  };
  for (const RankGroups& groups : partitions()) {
    for (const auto& [name, collective] : collectives) {
      std::vector<at::Tensor> wanted(static_cast<size_t>(size()));
      for (const auto& members : groups.groups()) {
        const auto alone = computed_alone(members, collective);
        for (size_t i = 0; i < members.size(); ++i) wanted[static_cast<size_t>(members[i])] = alone[i];
      }
      run([&, &name = name, &collective = collective](const Group& whole) {
        const Group group = whole.within(groups);
        EXPECT_EQ(group.size(), groups.members(whole.rank()).size());
        EXPECT_EQ(group.rank(), groups.position(whole.rank()));
        group.barrier();
        EXPECT_TRUE(equal_bits(collective(group, whole.rank()), wanted[static_cast<size_t>(whole.rank())]))
            << name << " within " << groups << " on rank " << whole.rank();
      });
    }
  }
}

TEST_P(GroupWithinTest, AllToAllSendsPartRToRankR) {
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kLong, at::kBool, at::kComplexFloat}) {
    run([&](const Group& group) {
      const int64_t n = group.size();
      const auto of_rank = [&](int64_t rank) {
        return at::arange(n * 2 * 3).add(rank * 100).view({n * 2, 3}).to(dtype);
      };
      const at::Tensor got = group.all_to_all(of_rank(group.rank()));
      std::vector<at::Tensor> wanted;
      for (int64_t rank = 0; rank < n; ++rank) wanted.push_back(of_rank(rank).narrow(0, group.rank() * 2, 2));
      EXPECT_TRUE(equal_bits(got, at::cat(wanted)));
    });
  }
}

TEST_P(GroupWithinTest, AllToAllWithSplitSizesAndWithoutRows) {
  run([&](const Group& group) {
    const int n = group.size();
    const auto rows = [](int from, int to) { return int64_t{(from * 2 + to) % 4}; };
    const auto splits_of = [&](int from) {
      std::vector<int64_t> splits;
      for (int to = 0; to < n; ++to) splits.push_back(rows(from, to));
      return splits;
    };
    const auto of_rank = [&](int from, int64_t columns) {
      const auto splits = splits_of(from);
      return rough_values(from, {std::accumulate(splits.begin(), splits.end(), int64_t{0}), columns});
    };
    RowCounts received;
    const auto got = group.all_to_all({of_rank(group.rank(), 3), of_rank(group.rank(), 1).t().contiguous().t()},
                                      splits_of(group.rank()), {}, &received);
    for (size_t tensor = 0; tensor < 2; ++tensor) {
      std::vector<at::Tensor> wanted;
      for (int from = 0; from < n; ++from) {
        int64_t begin = 0;
        for (int to = 0; to < group.rank(); ++to) begin += rows(from, to);
        wanted.push_back(of_rank(from, tensor == 0 ? 3 : 1).narrow(0, begin, rows(from, group.rank())));
        EXPECT_EQ(received[tensor][static_cast<size_t>(from)], rows(from, group.rank()));
      }
      EXPECT_TRUE(equal_bits(got[tensor], at::cat(wanted))) << "rank " << group.rank() << ": " << got[tensor];
    }
    EXPECT_EQ(group.all_to_all(at::zeros({0, 2})).sizes(), at::IntArrayRef({0, 2}));
  });
}

TEST_P(GroupWithinTest, WrongSplitSizes) {
  run([&](const Group& group) {
    const int64_t n = group.size();
    const auto error_of = [&](const at::Tensor& tensor, const std::vector<int64_t>& splits) -> std::string {
      try {
        group.all_to_all(tensor, splits);
      } catch (const c10::ValueError& error) {
        return error.what_without_backtrace();
      }
      return "no error";
    };
    EXPECT_THAT(error_of(at::ones({n}), std::vector<int64_t>(static_cast<size_t>(n + 1), 1)),
                HasSubstr("one split size for each rank"));
    EXPECT_THAT(error_of(at::ones({n + 1}), std::vector<int64_t>(static_cast<size_t>(n), 1)), HasSubstr("add up"));
    EXPECT_THAT(error_of(at::scalar_tensor(1), {}), HasSubstr("scalar"));
    if (n > 1) {
      EXPECT_THAT(error_of(at::ones({n + 1}), {}), HasSubstr("give split sizes"));
    }
    std::vector<int64_t> negative(static_cast<size_t>(n), 1);
    negative[0] = -1;
    EXPECT_THAT(error_of(at::ones({std::max<int64_t>(n - 2, 0)}), negative), HasSubstr("numbers of rows"));
  });
}

TEST_P(GroupWithinTest, CallsThatDifferAreErrorsOnAllRanks) {
  if (size() == 1) GTEST_SKIP() << "one rank";
  const lockstep::tests::TestFolder folder;
  setenv("LOCKSTEP_DUMP", folder.path().c_str(), 1);
  const auto different = partitions();
  const auto expect_errors = [&](const std::function<void(const Group&)>& body) {
    int count = 0;
    for (const auto& error : errors_of(body)) {
      EXPECT_NE(error, nullptr);
      if (lockstep::tests::message_of(error).find("all_") != std::string::npos) ++count;
    }
    EXPECT_GT(count, 0);
  };
  expect_errors([&](const Group& whole) {  // other groups
    whole.within(RankGroups(different[whole.rank() == 0 ? 1 : 4])).all_reduce(at::ones({2}), "sum");
  });
  expect_errors([&](const Group& whole) {  // one without groups
    (whole.rank() == 0 ? whole : whole.within(different[4])).all_reduce(at::ones({2}), "sum");
  });
  expect_errors([&](const Group& whole) {  // other shapes, also between groups
    whole.within(different[1]).all_reduce(at::ones({whole.rank() + 1}), "sum");
  });
  expect_errors([&](const Group& whole) { whole.all_to_all(at::zeros({0, whole.rank() + 1})); });
  expect_errors([&](const Group& whole) {
    if (whole.rank() > 0) whole.within(different[1]).all_reduce(at::ones({2}), "sum");
    if (whole.rank() == 0) LOCKSTEP_THROW(c10::ValueError, "[test] left out all_reduce");
  });
  unsetenv("LOCKSTEP_DUMP");
}

TEST(RankGroupsTest, EachRankIsInOneGroup) {
  using Lists = std::vector<std::vector<int>>;
  const auto error_of = [](const Lists& groups) -> std::string {
    try {
      RankGroups made(groups);
    } catch (const c10::ValueError& error) {
      return error.what_without_backtrace();
    }
    return "no error";
  };
  EXPECT_THAT(error_of({{0, 1}, {3}}), HasSubstr("missing=2"));
  EXPECT_THAT(error_of({{0, 1}, {1, 2}}), HasSubstr("twice=1"));
  EXPECT_THAT(error_of({{0, 3, 3, 3}}), HasSubstr("missing=1, 2, twice=3"));
  EXPECT_THAT(error_of({{0}, {}}), HasSubstr("must have members"));
  EXPECT_THAT(error_of({}), HasSubstr("there must be a group"));
  EXPECT_THAT(error_of({{-1, 0}}), HasSubstr("from 0"));
  EXPECT_EQ(error_of({{2, 0}, {1}}), "no error");
  EXPECT_EQ(c10::str(RankGroups({{2, 3}, {1, 0}})), "{{0, 1}, {2, 3}}");
  EXPECT_EQ(RankGroups({{2, 3}, {1, 0}}), RankGroups({{0, 1}, {3, 2}}));
  EXPECT_NE(RankGroups({{0, 2}, {1, 3}}).hash(), RankGroups({{0, 1}, {2, 3}}).hash());
}

TEST(RankGroupsTest, OfAnotherNumberOfRanks) {
  lockstep::tests::run_groups(3, [](const Group& group) {
    const auto error_of = [&](const RankGroups& groups) -> std::string {
      try {
        group.within(groups);
      } catch (const c10::ValueError& error) {
        return error.what_without_backtrace();
      }
      return "no error";
    };
    EXPECT_THAT(error_of(RankGroups({{0, 1}})), HasSubstr("missing=2, replicas=3"));
    EXPECT_THAT(error_of(RankGroups({{0, 1}, {2, 3}})), HasSubstr("unknown=3, replicas=3"));
    EXPECT_THROW(group.within(RankGroups({{0, 1, 2}})).within(RankGroups({{0, 1, 2}})), c10::NotImplementedError);
  });
}

TEST(MessagesOfGroupsTest, OnlyWhatIsNeededIsSent) {
  // Two workers with one rank each: half of the rows of an all_to_all stay where they are.
  std::mutex mutex;
  std::vector<uint64_t> sent;
  const auto board = std::make_shared<lockstep::tests::Board>();
  const auto mail = std::make_shared<lockstep::tests::Mail>();
  std::vector<std::thread> workers;
  for (int worker = 0; worker < 2; ++worker) {
    workers.emplace_back([&, worker] {
      const auto job = std::make_shared<lockstep::tests::BoardJob>(board, worker, 2);
      const auto groups = lockstep::tests::make_groups(EngineKind::Messages, job, mail, 1, std::chrono::seconds(60));
      groups->begin_run(1);
      const Group& group = groups->local()[0];
      group.all_to_all(at::zeros({2 << 16}));
      const uint64_t after_all_to_all = groups->bytes_sent();
      group.within(RankGroups(std::vector<std::vector<int>>{{0}, {1}})).all_reduce(at::zeros({1 << 20}), "sum");
      const std::lock_guard lock(mutex);
      sent.push_back(after_all_to_all);
      sent.push_back(groups->bytes_sent() - after_all_to_all);
    });
  }
  for (auto& worker : workers) worker.join();
  for (size_t i = 0; i < sent.size(); i += 2) {
    EXPECT_GE(sent[i], 4u << 16);
    EXPECT_LT(sent[i], (4u << 16) + 4096u);
    EXPECT_LT(sent[i + 1], 4096u);  // nothing but descriptions of calls
  }
}

}  // namespace
}  // namespace lockstep::comm
