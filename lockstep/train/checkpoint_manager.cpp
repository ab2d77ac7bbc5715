#include "lockstep/train/checkpoint_manager.h"

#include <filesystem>
#include <functional>
#include <random>
#include <unistd.h>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/trace/trace.h"
#include "lockstep/comm/diagnostics/activity.h"
#include "lockstep/strategy/context_frame.h"
#include "lockstep/strategy/reduce/cross_device_ops.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/strategy/workers.h"
#include "lockstep/train/checkpoint_writer.h"
#include "lockstep/train/copy_pieces.h"
#include "lockstep/train/memory_snapshots.h"
#include "lockstep/train/preemption.h"
#include "lockstep/train/restore.h"
#include "lockstep/train/snapshot_index.h"
#include "lockstep/train/step_report.h"

namespace lockstep {
namespace {

using detail::StrategyImpl;

/// What workers tell each other after each step.
constexpr uint8_t kPreemptionBit = 1;
constexpr uint8_t kTimeBit = 2;
constexpr uint8_t kErrorBit = 4;
constexpr uint8_t kRequestBit = 8;
/// This worker keeps no snapshots in memory, or knows of one that could not read them.
constexpr uint8_t kNoMemoryBit = 16;
/// This worker should keep snapshots in memory, and cannot.
constexpr uint8_t kLostMemoryBit = 32;
// Two bits of the caller.
constexpr int kQuestionShift = 6;

CheckpointOptions checked(const CheckpointOptions& options) {
  LOCKSTEP_CHECK_VALUE(
      options.keep >= 0 && options.keep_every.count() >= 0 && options.every_steps >= 0 && options.every.count() >= 0,
      "[CheckpointManager] numbers and times must not be negative: keep=", options.keep,
      ", keep_every=", options.keep_every.count(), " s, every_steps=", options.every_steps,
      ", every=", options.every.count(), " ms");
  LOCKSTEP_CHECK_VALUE(options.redundancy == 0 || options.redundancy == 1,
                       "[CheckpointManager] redundancy must be 0 or 1: redundancy=", options.redundancy);
  LOCKSTEP_CHECK_VALUE(
      options.memory_every_steps > 0,
      "[CheckpointManager] memory_every_steps must be positive: memory_every_steps=", options.memory_every_steps);
  LOCKSTEP_CHECK_VALUE(options.timeout.count() > 0,
                       "[CheckpointManager] timeout must be positive: timeout=", options.timeout.count(), " ms");
  return options;
}

uint64_t random_number() {
  std::random_device source;
  return (static_cast<uint64_t>(source()) << 32U) ^ source() ^ static_cast<uint64_t>(::getpid());
}

std::string writer_text(const StrategyImpl& strategy) {
  const int replicas = strategy.num_replicas_in_sync();
  std::string text = c10::str(strategy.type_name(), ", ", replicas, replicas == 1 ? " replica" : " replicas");
  if (strategy.num_workers() > 1) text += c10::str(", ", strategy.num_workers(), " workers");
  return text;
}

/// The folder of this training's snapshots; empty where there are none.
std::string own_memory_folder(const std::string& folder, const CheckpointOptions& options) {
  if (options.redundancy == 0) return "";
  const auto given = env::given("LOCKSTEP_MEMORY_FOLDER");
  if (!given) {
    LOCKSTEP_LOG(Warn) << "[CheckpointManager] no snapshots in memory, because LOCKSTEP_MEMORY_FOLDER is not set; "
                          "lockstep run sets it";
    return "";
  }
  const std::string path = std::filesystem::weakly_canonical(folder).string();
  return c10::str(*given, "/", std::hash<std::string>{}(path));
}

}  // namespace

struct CheckpointManager::Impl {
  Impl(Checkpoint objects, std::string path, const CheckpointOptions& given)
      : checkpoint(std::move(objects)),
        strategy(checkpoint.strategy()),
        folder(std::move(path)),
        options(checked(given)),
        job(strategy->of_first_worker(random_number())),
        memory_folder(own_memory_folder(folder, options)),
        any_worker(strategy->any_worker()),
        writer({.folder = folder,
                .retention = {options.keep, options.keep_every},
                .write = {},
                .written_by = writer_text(*strategy),
                .token = c10::str(job)},
               agreement()) {
    LOCKSTEP_CHECK_VALUE(!folder.empty(), "[CheckpointManager] the folder must have a name");
    const bool shares = strategy->workers() != nullptr && strategy->workers()->shares_memory();
    if (!memory_folder.empty()) {
      memory = std::make_unique<detail::MemorySnapshots>(memory_folder, job, place(), shares);
    }
  }

  detail::WriterPlace place() const { return {strategy->worker(), strategy->num_workers()}; }

  detail::SaveAgreement agreement() const {
    detail::Workers* const workers = strategy->workers();
    if (workers == nullptr) return {nullptr, "", options.timeout};
    return {&workers->job(), c10::str(workers->name(), "/checkpoints", job), options.timeout};
  }

  /// No thread may be inside a run: all values are read or written.
  void check_outside_of_run(const char* operation) const {
    LOCKSTEP_CHECK_CONTEXT(!strategy->is_running(), "[CheckpointManager::", operation,
                           "] must be called outside of run");
  }

  /// The calling thread may not be inside a run; others may, as those of an evaluation beside the training.
  void check_caller_outside_of_run(const char* operation) const {
    const detail::ContextFrame* const frame = detail::current_frame();
    const bool is_inside =
        frame != nullptr && frame->strategy == strategy.get() && (frame->run > 0 || frame->depth > 0);
    LOCKSTEP_CHECK_CONTEXT(!is_inside, "[CheckpointManager::", operation, "] must be called outside of run");
  }

  /// After values were read from GPUs: throws where they are not what the program has computed.
  void check_queued_work() const {
    strategy->check_queued_work("checkpoint");
    strategy->cross_device_ops().check_queued_work("checkpoint");
  }

  void notice_preemption() {
    if (!notice) notice = std::make_unique<detail::PreemptionNotice>();
  }

  void throw_error() {
    if (const auto error = writer.take_error()) error->check();
  }

  void log_error() {
    if (const auto error = writer.take_error()) {
      LOCKSTEP_LOG(Error) << error->text;
    }
  }

  void save(int64_t step);
  void snapshot(int64_t step);
  void note_restored(const detail::RestoreSource& source);
  std::optional<int64_t> restore_newest();

  Checkpoint checkpoint;
  std::shared_ptr<StrategyImpl> strategy;
  std::string folder;
  CheckpointOptions options;
  /// A number that all workers of this manager have and no other.
  uint64_t job;
  std::string memory_folder;
  std::function<uint8_t(uint8_t)> any_worker;
  detail::Staging staging;
  /// After `staging`, which it reads until it ends.
  detail::CheckpointWriter writer;
  std::unique_ptr<detail::MemorySnapshots> memory;
  std::unique_ptr<detail::PreemptionNotice> notice;
  std::function<bool()> wants_end;
  std::function<bool()> needs_disk;
  std::function<uint8_t()> question;
  std::chrono::steady_clock::time_point last_save_time = std::chrono::steady_clock::now();
  std::optional<int64_t> last_saved;
  std::optional<Restored> restored;
  bool is_preempted = false;
  bool is_ended_by_request = false;
  uint8_t answer = 0;
};

void CheckpointManager::Impl::save(int64_t step) {
  const trace::Span span(trace::Phase::Checkpoint, "save");
  LOCKSTEP_CHECK_VALUE(step >= 0, "[CheckpointManager::save] step must not be negative: step=", step);
  check_outside_of_run("save");
  const comm::ActivityScope saving(comm::Activity::Checkpoint);
  throw_error();
  const std::vector<detail::ObjectState> objects = checkpoint.collect();
  std::vector<detail::SavedPiece> pieces = staging.copy(detail::pieces_to_write(objects, place()));
  check_queued_work();
  writer.start({step, std::move(pieces), detail::values_of(objects)});
  last_saved = step;
  last_save_time = std::chrono::steady_clock::now();
}

void CheckpointManager::Impl::snapshot(int64_t step) {
  const trace::Span span(trace::Phase::Checkpoint, "snapshot");
  const comm::ActivityScope saving(comm::Activity::Checkpoint);
  std::vector<detail::ObjectState> objects = checkpoint.collect();
  memory->gather_small(objects);
  try {
    memory->write(step, objects, [&] { check_queued_work(); });
  } catch (const CollectiveError&) {
    throw;
  } catch (const c10::Error& error) {
    LOCKSTEP_LOG(Warn) << error.what_without_backtrace() << "; there will be no snapshots in memory";
    memory.reset();
  } catch (const std::exception& error) {
    LOCKSTEP_LOG(Warn) << "[CheckpointManager] " << error.what() << "; there will be no snapshots in memory";
    memory.reset();
  }
}

void CheckpointManager::Impl::note_restored(const detail::RestoreSource& source) {
  LOCKSTEP_LOG(Info) << "restored step " << source.step << " from " << source.place;
  restored = Restored{source.step, source.in_memory};
  last_saved = source.in_memory ? std::nullopt : std::optional(source.step);
  last_save_time = std::chrono::steady_clock::now();
}

std::optional<int64_t> CheckpointManager::Impl::restore_newest() {
  check_outside_of_run("restore_latest");
  const comm::ActivityScope restoring(comm::Activity::Checkpoint);
  writer.wait();
  writer.wait_for_removals();
  const bool is_first = strategy->worker() == 0;
  if (is_first) detail::remove_leftovers(folder, c10::str(job));
  std::vector<std::string> incomplete;
  if (is_first) incomplete = detail::incomplete_checkpoints(folder);
  for (const std::string& path : incomplete) {
    LOCKSTEP_LOG(Warn) << "[CheckpointManager] passed over, because it has no index.json: " << path;
  }
  size_t num_damaged = static_cast<size_t>(strategy->of_first_worker(incomplete.size()));
  std::string damage;
  for (const auto& source : detail::restore_sources(*strategy, folder, memory_folder)) {
    if (detail::restore_from(checkpoint, source, damage)) {
      note_restored(source);
      return source.step;
    }
    ++num_damaged;
    LOCKSTEP_LOG(Warn) << "[CheckpointManager] passed over " << source.place << ": " << damage;
  }
  LOCKSTEP_CHECK_DATA(num_damaged == 0,
                      "[CheckpointManager::restore_latest] none of the checkpoints is whole: folder=", folder,
                      ", checkpoints=", num_damaged, damage.empty() ? "" : "; the last one: ", damage,
                      "; to begin anew, move them away");
  return std::nullopt;
}

CheckpointManager::CheckpointManager(Checkpoint checkpoint, std::string folder, const CheckpointOptions& options)
    : impl_(std::make_unique<Impl>(std::move(checkpoint), std::move(folder), options)) {}

CheckpointManager::~CheckpointManager() = default;

void CheckpointManager::save(int64_t step) { impl_->save(step); }

void CheckpointManager::wait() {
  const comm::ActivityScope waiting(comm::Activity::Checkpoint);
  impl_->throw_error();
}

std::optional<int64_t> CheckpointManager::restore_latest() { return impl_->restore_newest(); }

int64_t CheckpointManager::restore_or_initialize() {
  impl_->notice_preemption();
  const int64_t step = restore_latest().value_or(0);
  detail::report_resumed_step(step);
  return step;
}

void CheckpointManager::restore(int64_t step) {
  impl_->check_outside_of_run("restore");
  impl_->writer.wait();
  const auto own_step = static_cast<uint64_t>(step);
  const uint8_t differs = impl_->strategy->of_first_worker(own_step) == own_step ? 0 : 1;
  LOCKSTEP_CHECK_VALUE((impl_->any_worker ? impl_->any_worker(differs) : differs) == 0,
                       "[CheckpointManager::restore] all workers must restore the same step: step=", step);
  const detail::RestoreSource source = detail::source_on_disk(impl_->folder, step);
  std::string damage;
  LOCKSTEP_CHECK_DATA(detail::restore_from(impl_->checkpoint, source, damage),
                      "[CheckpointManager::restore] the checkpoint cannot be read: ", source.place, ": ", damage);
  impl_->note_restored(source);
  const auto newest = latest();
  if (newest && *newest > step && impl_->strategy->worker() == 0) {
    LOCKSTEP_LOG(Warn) << "[CheckpointManager] restored step " << step << ", but " << impl_->folder << " has step "
                       << *newest << ", which restore_latest takes; move later ones away to go on from here";
  }
}

std::optional<int64_t> CheckpointManager::latest() const {
  const std::vector<int64_t> steps = checkpoints();
  return steps.empty() ? std::nullopt : std::optional(steps.back());
}

std::vector<int64_t> CheckpointManager::checkpoints() const { return detail::list_checkpoints(impl_->folder); }

bool CheckpointManager::after_step(int64_t step) {
  Impl& own = *impl_;
  own.check_caller_outside_of_run("after_step");
  detail::report_finished_step(step);
  own.notice_preemption();
  const bool is_first = own.strategy->worker() == 0;
  const bool is_time =
      own.options.every.count() > 0 && std::chrono::steady_clock::now() - own.last_save_time >= own.options.every;
  uint8_t bits = detail::PreemptionNotice::has_come() ? kPreemptionBit : 0;
  if (is_first && is_time) bits |= kTimeBit;
  if (own.writer.has_failed()) bits |= kErrorBit;
  if (own.wants_end && own.wants_end()) bits |= kRequestBit;
  if (!own.memory || (own.needs_disk && own.needs_disk())) bits |= kNoMemoryBit;
  if (own.options.redundancy > 0 && !own.memory) bits |= kLostMemoryBit;
  if (own.question) bits |= static_cast<uint8_t>(own.question() << kQuestionShift);
  if (own.any_worker) bits = own.any_worker(bits);
  own.answer = static_cast<uint8_t>(bits >> kQuestionShift);

  // Snapshots make collectives: all workers keep them, or none does.
  if ((bits & kLostMemoryBit) != 0) own.memory.reset();
  if ((bits & kPreemptionBit) != 0) {
    own.log_error();  // There is still time for another attempt.
  } else if ((bits & kErrorBit) != 0) {
    own.throw_error();
  }
  const bool is_due = own.options.every_steps > 0 && step % own.options.every_steps == 0;
  own.is_preempted = (bits & kPreemptionBit) != 0;
  own.is_ended_by_request = !own.is_preempted && (bits & kRequestBit) != 0;
  const bool only_on_disk = own.is_ended_by_request && (bits & kNoMemoryBit) != 0;
  if (own.is_preempted || is_due || (bits & kTimeBit) != 0 || only_on_disk) own.save(step);
  if (own.is_preempted || only_on_disk) {
    wait();
    return false;
  }
  if (own.memory && (step % own.options.memory_every_steps == 0 || own.is_ended_by_request)) own.snapshot(step);
  return !own.is_ended_by_request;
}

TrainingSteps CheckpointManager::steps(int64_t total) {
  LOCKSTEP_CHECK_VALUE(total >= 0,
                       "[CheckpointManager::steps] the number of steps must not be negative: total=", total);
  return {*this, total};
}

bool CheckpointManager::preempted() const { return impl_->is_preempted; }

std::optional<CheckpointManager::Restored> CheckpointManager::last_restored() const { return impl_->restored; }

void CheckpointManager::set_end_request(std::function<bool()> wants_end, std::function<bool()> needs_disk) {
  impl_->wants_end = std::move(wants_end);
  impl_->needs_disk = std::move(needs_disk);
}

void CheckpointManager::set_question(std::function<uint8_t()> ask) { impl_->question = std::move(ask); }

uint8_t CheckpointManager::last_answer() const { return impl_->answer; }

bool CheckpointManager::has_saved(int64_t step) {
  if (impl_->last_saved != step) return false;
  wait();
  return true;
}

bool CheckpointManager::ended_by_request() const { return impl_->is_ended_by_request; }

void CheckpointManager::finish(int64_t step) {
  if (impl_->last_saved != step) save(step);
  wait();
}

TrainingSteps::Iterator TrainingSteps::begin() const {
  const int64_t first = manager_->restore_or_initialize();
  // The state after the last step may be in memory only.
  if (first >= total_ && manager_->last_restored()) manager_->finish(first);
  return {*manager_, first, total_};
}

TrainingSteps::Iterator& TrainingSteps::Iterator::operator++() {
  ++step_;
  is_at_end_ = step_ >= total_;
  if (!manager_->after_step(step_)) {
    is_at_end_ = true;
  } else if (is_at_end_) {
    manager_->finish(step_);
  }
  return *this;
}

}  // namespace lockstep
