#include "lockstep/train/checkpoint_writer.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/resource.h>
#include <unistd.h>

#include <c10/util/StringUtil.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/progress/progress.h"
#include "lockstep/base/trace/trace_thread.h"

namespace lockstep::detail {
namespace {

/// Of the writing thread: training threads run first.
constexpr int kNiceness = 15;

std::string index_file(const std::string& folder, int worker) {
  return folder + "/part_" + std::to_string(worker) + ".json";
}

void write_part_index(const std::string& folder, int worker, const PartIndex& part) {
  const std::string path = index_file(folder, worker);
  std::ofstream out(path, std::ios::binary);
  out << part.str();
  out.close();
  LOCKSTEP_CHECK_DATA(out.good(), "[CheckpointManager::save] cannot write: file=", path);
}

PartIndex take_part_index(const std::string& folder, int worker) {
  const std::string path = index_file(folder, worker);
  std::ifstream in(path, std::ios::binary);
  LOCKSTEP_CHECK_DATA(in.good(), "[CheckpointManager::save] the part of worker ", worker, " was not found: file=", path,
                      "; the folder of checkpoints must be on a file system that all workers share");
  std::ostringstream text;
  text << in.rdbuf();
  PartIndex part = PartIndex::parse(text.str());
  in.close();
  std::filesystem::remove(path);
  return part;
}

}  // namespace

CheckpointWriter::CheckpointWriter(Options options, SaveAgreement agreement)
    : options_(std::move(options)), agreement_(std::move(agreement)) {}

CheckpointWriter::~CheckpointWriter() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  if (error_) {
    LOCKSTEP_LOG(Error) << error_->text;
  }
}

void CheckpointWriter::start(PendingSave save) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !pending_; });
  pending_ = std::move(save);
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  changed_.notify_all();
}

void CheckpointWriter::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !pending_; });
}

void CheckpointWriter::wait_for_removals() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !is_removing_; });
}

bool CheckpointWriter::has_failed() const {
  const std::lock_guard lock(mutex_);
  return error_.has_value();
}

std::optional<SaveOutcome> CheckpointWriter::take_error() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !pending_; });
  return std::exchange(error_, std::nullopt);
}

void CheckpointWriter::work() {
  trace::set_background_thread("checkpoint writer");
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNiceness);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return pending_ || is_ending_; });
    if (!pending_) return;
    const int64_t number = num_saves_++;
    lock.unlock();
    SaveOutcome outcome = write(*pending_, number);
    lock.lock();
    is_removing_ = outcome.is_done() && agreement_.worker() == 0;
    if (!outcome.is_done()) error_ = std::move(outcome);
    pending_.reset();
    changed_.notify_all();
    if (!is_removing_) continue;
    lock.unlock();
    remove_hidden();
    lock.lock();
    is_removing_ = false;
    changed_.notify_all();
  }
}

void CheckpointWriter::hide_old() const {
  const SaveOutcome hidden = SaveOutcome::of([&] { hide_unkept(options_.folder, options_.retention); });
  if (!hidden.is_done()) {
    LOCKSTEP_LOG(Warn) << "[CheckpointManager] old checkpoints stay: " << hidden.text;
  }
}

void CheckpointWriter::remove_hidden() const {
  const SaveOutcome removed = SaveOutcome::of([&] { remove_leftovers(options_.folder, options_.token); });
  if (!removed.is_done()) {
    LOCKSTEP_LOG(Warn) << "[CheckpointManager] files of old checkpoints stay: " << removed.text;
  }
}

SaveOutcome CheckpointWriter::write(const PendingSave& save, int64_t number) {
  const trace::Span span(trace::Phase::Checkpoint, "write checkpoint");
  const TemporaryFolder folder(options_.folder, save.step, options_.token + "-" + std::to_string(number),
                               agreement_.worker() == 0);
  const SaveOutcome mine = SaveOutcome::of([&] {
    folder.make();
    write_own_part(save, folder.path());
  });
  SaveOutcome outcome = agreement_.agree(number, mine, [&] {
    SaveOutcome completed = SaveOutcome::of([&] { complete(save, folder.path()); });
    if (completed.is_done()) hide_old();
    return completed;
  });
  if (outcome.is_done()) return outcome;
  // Where a worker was lost others may still write: the next job removes the folder.
  if (outcome.kind != SaveOutcome::Kind::Lost) folder.remove();
  outcome.text += c10::str("; step ", save.step, " was not saved, older checkpoints are unchanged");
  return outcome;
}

std::string CheckpointWriter::part_name(int worker) const {
  char name[64];
  std::snprintf(name, sizeof(name), "part_%05d_of_%05d.safetensors", worker, agreement_.num_workers());
  return name;
}

void CheckpointWriter::write_own_part(const PendingSave& save, const std::string& folder) const {
  const int worker = agreement_.worker();
  int64_t bytes = 0;
  for (const SavedPiece& piece : save.pieces) {
    bytes += (piece.end - piece.begin) * static_cast<int64_t>(c10::elementSize(piece.dtype));
  }
  progress::Task task(c10::str("saving step ", save.step),
                      {.unit = "bytes", .total = bytes, .kind = progress::Kind::Background});
  WriteOptions write = options_.write;
  write.task = &task;
  const PartIndex part = write_part(folder + "/" + part_name(worker), save.pieces, write);
  write_part_index(folder, worker, part);
}

void CheckpointWriter::complete(const PendingSave& save, const std::string& folder) const {
  CheckpointInfo info;
  info.step = save.step;
  info.time = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  info.written_by = options_.written_by;
  for (int worker = 0; worker < agreement_.num_workers(); ++worker) {
    info.parts.push_back(take_part_index(folder, worker));
  }
  write_index(folder, info, save.values, options_.write);
  move_into_place(folder, options_.folder + "/" + checkpoint_name(save.step));
  if (options_.write.sync) sync_folder(options_.folder);
}

}  // namespace lockstep::detail
