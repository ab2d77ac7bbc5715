#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>

#include "lockstep/api.h"
#include "lockstep/train/checkpoint_manager.h"

namespace lockstep {

namespace detail {
struct ElasticView;
}

/// The steps of a training that are still to be done: what `ElasticJob::steps` returns. One loop.
class LOCKSTEP_API ElasticSteps {
 public:
  class LOCKSTEP_API Iterator {
   public:
    using value_type = int64_t;
    using difference_type = std::ptrdiff_t;

    Iterator(detail::ElasticView& view, CheckpointManager& manager, TrainingSteps::Iterator step)
        : view_(&view), manager_(&manager), step_(step) {}
    int64_t operator*() const { return *step_; }
    Iterator& operator++();
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& iterator, std::default_sentinel_t end) { return iterator.step_ == end; }

   private:
    detail::ElasticView* view_;
    CheckpointManager* manager_;
    TrainingSteps::Iterator step_;
  };

  ElasticSteps(detail::ElasticView& view, CheckpointManager& manager, int64_t total)
      : view_(&view), manager_(&manager), total_(total) {}
  Iterator begin() const;
  std::default_sentinel_t end() const { return {}; }

 private:
  detail::ElasticView* view_;
  CheckpointManager* manager_;
  int64_t total_;
};

/// One view of an elastic job: what its workers know of it. `train_elastic` makes it.
class LOCKSTEP_API ElasticJob {
 public:
  explicit ElasticJob(detail::ElasticView& view) : view_(&view) {}
  ElasticJob(const ElasticJob&) = delete;
  ElasticJob& operator=(const ElasticJob&) = delete;

  /// The number of the view, from 1 on; equal on all of its workers.
  int64_t view() const;
  /// The place of this worker in the view, and the number of workers.
  int worker() const;
  int num_workers() const;

  /// The steps from the restored one to `total` - 1, as `CheckpointManager::steps`. When workers come, or this process
  /// is asked to end (SIGTERM), the loop is left after a step, whose state is kept: not to the statement behind the
  /// loop, but out of the function (by an exception that `train_elastic` catches). What stands behind the loop is done
  /// once, when all steps are.
  ElasticSteps steps(CheckpointManager& manager, int64_t total) { return {*view_, manager, total}; }

 private:
  detail::ElasticView* view_;
};

/// Trains with workers that come and go.
///
///     int main() {
///       return train_elastic([](ElasticJob& job) {
///         MultiWorkerMirroredStrategy strategy;
///         ...                                      // model, optimizer, dataset
///         Checkpoint checkpoint({{"model", model}, {"adam", adam}, {"train", dataset}});
///         CheckpointManager manager(checkpoint, "run1", {.every_steps = 1000, .redundancy = 1});
///         for (int64_t step : job.steps(manager, 100'000)) strategy.run(train_step, batches.get_next());
///       });
///     }
///
/// Under `lockstep run -n LEAST:MOST` the function is called once for each view of the job, with the cluster of that
/// view in TF_CONFIG: a new strategy joins its workers. When a worker is lost, the others leave the function by the
/// error of the collective (CollectiveError), and it is called again, in the same processes, with those who are left;
/// `job.steps` goes on with the newest state in memory or on disk. All other errors leave `train_elastic`.
///
/// Everywhere else the function is called once, and errors of workers leave it, too. A process of an elastic job calls
/// `train_elastic` once (ContextError): others may repeat steps of the first training while one is in the second.
///
/// Returns what the program should return: 0 when the function has returned, CheckpointManager::kPreemptedStatus when
/// this process was asked to end and the state is saved, or it has never had one. CollectiveError where the job cannot
/// go on: too few workers are left, or views in a row have finished no step.
LOCKSTEP_API int train_elastic(const std::function<void(ElasticJob&)>& train);

}  // namespace lockstep
