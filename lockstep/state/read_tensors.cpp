#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "lockstep/base/error.h"
#include "lockstep/base/progress/progress.h"
#include "lockstep/state/block_file.h"
#include "lockstep/state/flip_bits.h"
#include "lockstep/state/load_plan.h"

namespace lockstep::detail {
namespace {

/// Blocks that one thread reads, one after the other: the system reads ahead of it.
constexpr size_t kRegionBlocks = 256;
/// Blocks that are read and not yet verified.
constexpr size_t kMostFilled = 16;
/// Host memory for values of other devices that is used at a time, unless one tensor needs more.
constexpr int64_t kStagedBytes = int64_t{256} << 20;
constexpr size_t kMostReaders = 4;

/// Blocks of a file in its order.
struct Region {
  const BlockFile* file = nullptr;
  std::vector<BlockFile::WantedBlock> blocks;
};

/// Files to be read, and what is copied to other devices afterwards.
struct PendingReads {
  std::map<const BlockFile*, std::vector<BlockFile::Range>> ranges;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  int64_t staged_bytes = 0;
};

void check_target(const StateTensor& from, const StatePiece& target) {
  LOCKSTEP_CHECK_VALUE(target.values.scalar_type() == from.dtype,
                       "[State] values are read as they were stored: dtype=", from.dtype,
                       ", dtype of the target=", target.values.scalar_type());
  LOCKSTEP_CHECK_VALUE(target.begin >= 0 && target.end() <= from.numel(),
                       "[State] elements to be read must be in the tensor: begin=", target.begin,
                       ", end=", target.end(), ", elements=", from.numel());
  LOCKSTEP_CHECK_VALUE(target.values.is_contiguous(), "[State] memory for elements must be contiguous");
}

void check_covered(const StateTensor& from, const StatePiece& target) {
  std::vector<std::pair<int64_t, int64_t>> intervals;
  const auto add = [&](int64_t begin, int64_t end) {
    begin = std::max(begin, target.begin);
    end = std::min(end, target.end());
    if (begin < end) intervals.emplace_back(begin, end);
  };
  for (const StatePiece& piece : from.pieces) add(piece.begin, piece.end());
  for (const StoredPiece& piece : from.stored) add(piece.begin, piece.end);
  std::sort(intervals.begin(), intervals.end());
  int64_t position = target.begin;
  bool once = true;
  for (const auto& [begin, end] : intervals) {
    once = once && begin == position;
    if (once) position = end;
  }
  LOCKSTEP_CHECK_VALUE(once && position == target.end(), "[State] ",
                       from.gather ? "other workers hold a part of the tensor; all workers read it together: "
                                   : "the pieces of a tensor must cover it once: ",
                       "shape=", at::IntArrayRef(from.sizes), ", wrong from element ", position);
}

/// Copies what memory holds of [target.begin, target.end).
void copy_from_memory(const StateTensor& from, const StatePiece& target) {
  for (const StatePiece& piece : from.pieces) {
    const int64_t begin = std::max(piece.begin, target.begin);
    const int64_t end = std::min(piece.end(), target.end());
    if (begin >= end) continue;
    at::Tensor place = target.values.view(-1).slice(0, begin - target.begin, end - target.begin);
    const at::Tensor held = piece.values.reshape(-1).slice(0, begin - piece.begin, end - piece.begin);
    if (piece.flipped == 0 || place.device().is_cpu()) {
      place.copy_(held);
      flip_bits(place, piece.flipped);
    } else {
      const at::Tensor values = held.clone();
      flip_bits(values, piece.flipped);
      place.copy_(values);
    }
  }
}

void plan_from_files(const StateTensor& from, const StatePiece& target, PendingReads& pending) {
  const auto element = static_cast<int64_t>(c10::elementSize(from.dtype));
  for (const StoredPiece& piece : from.stored) {
    const int64_t begin = std::max(piece.begin, target.begin);
    const int64_t end = std::min(piece.end, target.end());
    if (begin >= end) continue;
    at::Tensor place = target.values.view(-1).slice(0, begin - target.begin, end - target.begin);
    if (!place.device().is_cpu()) {
      const auto options = at::device(at::kCPU).dtype(from.dtype).pinned_memory(place.device().is_cuda());
      const at::Tensor staged = at::empty({end - begin}, options);
      pending.copies.emplace_back(place, staged);
      pending.staged_bytes += (end - begin) * element;
      place = staged;
    }
    pending.ranges[piece.file.get()].push_back(
        {piece.offset + (begin - piece.begin) * element,
         {static_cast<char*>(place.data_ptr()), static_cast<size_t>((end - begin) * element)}});
  }
}

void add_regions(const BlockFile* file, std::vector<BlockFile::WantedBlock> blocks, std::vector<Region>& regions) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i % kRegionBlocks == 0) regions.push_back({file, {}});
    regions.back().blocks.push_back(std::move(blocks[i]));
  }
}

std::vector<Region> regions_of(std::map<const BlockFile*, std::vector<BlockFile::Range>>& all) {
  std::vector<Region> regions;
  for (auto& [file, ranges] : all) {
    std::stable_sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
    // Bytes that are wanted more than once are read again, in another pass.
    while (!ranges.empty()) {
      std::vector<BlockFile::Range> now;
      std::vector<BlockFile::Range> later;
      int64_t position = 0;
      for (const BlockFile::Range& range : ranges) {
        const bool fits = range.offset >= position;
        (fits ? now : later).push_back(range);
        if (fits) position = range.offset + static_cast<int64_t>(range.target.size());
      }
      add_regions(file, file->blocks_of(now), regions);
      ranges = std::move(later);
    }
  }
  return regions;
}

/// Threads read regions; the calling thread verifies what they have read.
class Readers {
 public:
  Readers(std::vector<Region> regions, progress::Task* task) : regions_(std::move(regions)), task_(task) {}

  void run() {
    const size_t most = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMostReaders);
    num_reading_ = std::min(most, regions_.size());
    std::vector<std::thread> threads;
    for (size_t i = num_reading_; i > 0; --i) {
      threads.emplace_back([this] {
        guarded([this] { read(); });
        const std::lock_guard lock(mutex_);
        --num_reading_;
        changed_.notify_all();
      });
    }
    guarded([this] { verify(); });
    for (std::thread& thread : threads) thread.join();
    if (failure_) LOCKSTEP_THROW(DataError, *failure_);
  }

 private:
  struct Filled {
    const BlockFile* file = nullptr;
    BlockFile::FilledBlock block;
  };

  void read() {
    for (size_t i = next_++; i < regions_.size(); i = next_++) {
      for (const BlockFile::WantedBlock& block : regions_[i].blocks) {
        Filled filled{regions_[i].file, regions_[i].file->fill(block)};
        count(block);
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return filled_.size() < kMostFilled || failure_; });
        if (failure_) return;
        filled_.push_back(std::move(filled));
        changed_.notify_all();
      }
    }
  }

  void count(const BlockFile::WantedBlock& block) const {
    if (task_ == nullptr) return;
    for (const BlockFile::Range& range : block.ranges) task_->add(static_cast<int64_t>(range.target.size()));
  }

  void verify() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return !filled_.empty() || num_reading_ == 0 || failure_; });
      if (filled_.empty() || failure_) return;
      const Filled filled = std::move(filled_.front());
      filled_.pop_front();
      changed_.notify_all();
      lock.unlock();
      filled.file->finish(filled.block);
      lock.lock();
    }
  }

  template <class Work>
  void guarded(const Work& work) {
    std::string text;
    try {
      return work();
    } catch (const c10::Error& error) {
      text = error.what_without_backtrace();
    } catch (const std::exception& error) {
      text = error.what();
    }
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = text;
    changed_.notify_all();
  }

  std::vector<Region> regions_;
  progress::Task* task_;
  std::atomic<size_t> next_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Filled> filled_;
  size_t num_reading_ = 0;
  std::optional<std::string> failure_;
};

void finish_reads(PendingReads& pending, progress::Task* task) {
  Readers(regions_of(pending.ranges), task).run();
  for (auto& [target, staged] : pending.copies) target.copy_(staged);
  pending = {};
}

int64_t bytes_in_files(const std::vector<TensorRead>& reads) {
  int64_t bytes = 0;
  for (const auto& [from, targets] : reads) {
    if (from->stored.empty()) continue;
    for (const StatePiece& target : targets) bytes += static_cast<int64_t>(target.values.nbytes());
  }
  return bytes;
}

}  // namespace

void read_tensors(const std::vector<TensorRead>& reads, progress::Task* task) {
  const c10::AutoGradMode no_gradient(false);
  for (const auto& [from, targets] : reads) {
    for (const StatePiece& target : targets) {
      check_target(*from, target);
      check_covered(*from, target);
    }
  }
  if (task != nullptr) task->set_total(bytes_in_files(reads));
  PendingReads pending;
  for (const auto& [from, targets] : reads) {
    for (const StatePiece& target : targets) {
      copy_from_memory(*from, target);
      plan_from_files(*from, target, pending);
      if (pending.staged_bytes >= kStagedBytes) finish_reads(pending, task);
    }
  }
  finish_reads(pending, task);
}

}  // namespace lockstep::detail
