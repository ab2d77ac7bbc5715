#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <thread>
#include <vector>

#include "lockstep/base/bounded_queue.h"
#include "lockstep/data/node.h"
#include "lockstep/device/upload.h"
#include "lockstep/strategy/input/step_reader.h"

namespace lockstep::detail {

/// Internal: reads steps and starts their uploads. For accelerators it prefetches on a thread of its own. For replicas
/// on the CPU it does so only if reads are slow, since that thread takes a core. Without a buffer it reads on the
/// calling thread.
class StepFeeder {
 public:
  StepFeeder(const DistributedInput& input, const data::Iteration& iteration);
  ~StepFeeder();
  StepFeeder(const StepFeeder&) = delete;
  StepFeeder& operator=(const StepFeeder&) = delete;

  /// Before the first `next`: skips steps that have been read before.
  int64_t skip(int64_t count);

  /// Reads a step on the calling thread, before the first `next`.
  Step read_ahead_of_skip() { return used(read()); }

  /// Returns the next step; at and after the end of this worker's data an empty one, or one of repeated batches.
  Step next();

 private:
  /// A step whose uploads are in flight.
  struct UploadedStep {
    Step step;
    std::vector<std::optional<StreamEvent>> ready;
  };

  Step read_here();
  void start();
  bool take(UploadedStep& step);
  bool push_next();
  UploadedStep read();
  static Step used(UploadedStep uploaded);

  int64_t buffer_size_;
  /// EmptyBatch::Repeat.
  bool repeats_;
  RepeatedBatches repeated_;
  /// Whether the calling thread reads.
  bool reads_here_ = true;
  double average_seconds_ = 0;
  std::deque<Uploader> uploaders_;
  std::vector<StepReader> readers_;
  std::optional<BoundedQueue<UploadedStep>> queue_;
  std::thread thread_;
};

}  // namespace lockstep::detail
