#include "lockstep/cluster/multi_worker.h"

#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "lockstep/cluster/resolvers/simple.h"
#include "tests/cluster/expect_error.h"

namespace lockstep {
namespace {

std::optional<WorkerPlace> place_of(const ClusterSpec& cluster, const TaskType& type, TaskId id) {
  return worker_place(SimpleClusterResolver(cluster, {.task_type = type, .task_id = id}));
}

WorkerPlace make_place(int index, int num_workers, bool is_chief, const std::string& coordinator) {
  WorkerPlace place;
  place.index = index;
  place.num_workers = num_workers;
  place.is_chief = is_chief;
  place.coordinator = coordinator;
  return place;
}

const ClusterSpec kWorkers({{"worker", {"n1:1", "n2:1"}}});
const ClusterSpec kWithChief({{"chief", {"c:1"}}, {"worker", {"n1:1", "n2:1"}}, {"evaluator", {"e:1"}}});

TEST(WorkerPlaceTest, WorkersAreNumberedAndTheFirstLeads) {
  EXPECT_EQ(place_of(kWorkers, "worker", 0), make_place(0, 2, true, "n1:1"));
  EXPECT_EQ(place_of(kWorkers, "worker", 1), make_place(1, 2, false, "n1:1"));
}

TEST(WorkerPlaceTest, AChiefComesFirst) {
  EXPECT_EQ(place_of(kWithChief, "chief", 0), make_place(0, 3, true, "c:1"));
  EXPECT_EQ(place_of(kWithChief, "worker", 1), make_place(2, 3, false, "c:1"));
}

TEST(WorkerPlaceTest, AnEvaluatorIsAlone) {
  EXPECT_EQ(place_of(kWithChief, "evaluator", 0), make_place(0, 1, true, "e:1"));
  EXPECT_EQ(place_of(kWorkers, "evaluator", 0), std::nullopt);
}

TEST(WorkerPlaceTest, NoClusterIsNoPlace) { EXPECT_EQ(place_of({}, "worker", 0), std::nullopt); }

TEST(WorkerPlaceTest, SaysWhatIsWrong) {
  EXPECT_ERROR(place_of(kWorkers, {}, {}), c10::ValueError, "task_type=none, task_id=none");
  EXPECT_ERROR(place_of(kWorkers, "worker", 2), c10::ValueError, "task_id=2, tasks=2");
  EXPECT_ERROR(place_of(kWorkers, "worker", -1), c10::ValueError, "task_id=-1");
  EXPECT_ERROR(place_of(kWorkers, "cheif", 0), c10::ValueError, "must be chief, worker, evaluator or ps");
  EXPECT_ERROR(place_of(ClusterSpec({{"ps", {"p:1"}}, {"worker", {"n:1"}}}), "ps", 0), c10::ValueError,
               "[id_in_cluster]");
  EXPECT_ERROR(place_of(ClusterSpec({{"chief", {"a:1", "b:1"}}}), "chief", 0), c10::ValueError, "at most one chief");
  EXPECT_ERROR(place_of(ClusterSpec({{"wroker", {"a:1"}}}), {"worker"}, 0), c10::ValueError, "must be a job");
}

}  // namespace
}  // namespace lockstep
