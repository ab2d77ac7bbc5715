#include "bench/checkpoint.h"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>
#include <unistd.h>
#include <vector>

#include "bench/cpu_replicas.h"
#include "bench/median.h"
#include "bench/mlp_step.h"
#include "lockstep/lockstep.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;
using AdamStep = StrategyStep<torch::optim::Adam, torch::optim::AdamOptions>;

constexpr size_t kPlainBuffer = size_t{4} << 20;

/// A folder for checkpoints, which is removed at the end.
class CheckpointPlace {
 public:
  explicit CheckpointPlace(const std::string& parent) {
    const fs::path root = parent.empty() ? fs::temp_directory_path() : fs::path(parent);
    fs::create_directories(root);
    std::string name = (root / "lockstep_bench_XXXXXX").string();
    LOCKSTEP_CHECK_VALUE(::mkdtemp(name.data()) != nullptr, "[bench checkpoint] cannot make a folder: ", name, ": ",
                         std::strerror(errno));
    path_ = name;
  }
  ~CheckpointPlace() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  CheckpointPlace(const CheckpointPlace&) = delete;
  CheckpointPlace& operator=(const CheckpointPlace&) = delete;

  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

void check_call(bool good, const std::string& path) {
  LOCKSTEP_CHECK_VALUE(good, "[bench checkpoint] ", path, ": ", std::strerror(errno));
}

/// Writes the bytes one after the other, with fsync.
void plain_write(const std::string& path, const std::vector<char>& bytes) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  check_call(file >= 0, path);
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t written = ::write(file, bytes.data() + at, std::min(kPlainBuffer, bytes.size() - at));
    check_call(written > 0, path);
    at += static_cast<size_t>(written);
  }
  check_call(::fsync(file) == 0, path);
  ::close(file);
}

void plain_read(const std::string& path, std::vector<char>& bytes) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  check_call(file >= 0, path);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_SEQUENTIAL);
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t got = ::read(file, bytes.data() + at, std::min(kPlainBuffer, bytes.size() - at));
    check_call(got > 0, path);
    at += static_cast<size_t>(got);
  }
  ::close(file);
}

/// Takes all files of a folder, or one file, out of the page cache.
void forget(const std::string& path) {
  const auto forget_file = [](const std::string& name) {
    const int file = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
    check_call(file >= 0, name);
    ::fdatasync(file);
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
  };
  if (!fs::is_directory(path)) return forget_file(path);
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) forget_file(entry.path().string());
  }
}

/// Waits until the files of old checkpoints are removed, which goes on behind a save.
void wait_for_removals(const std::string& folder) {
  const auto is_removing = [&] {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".removing") return true;
    }
    return false;
  };
  while (is_removing()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

int64_t size_of(const std::string& folder) {
  int64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  }
  return bytes;
}

void measure_stall(AdamStep& step, CheckpointManager& manager, CheckpointResult& result) {
  constexpr int kSavesInARow = 2;
  const int steps = result.options.steps;
  std::vector<double> without;
  std::vector<double> saving;
  std::vector<double> calls;
  int64_t number = 0;
  time_of(steps, step);
  for (int repeat = 0; repeat <= result.options.repeats; ++repeat) {
    const double plain = time_of(kSavesInARow * steps, step);
    double call = 0;
    const double with_saves = time_of(kSavesInARow, [&] {
      call += time_of(1, [&] { manager.save(++number); });
      time_of(steps, step);
    });
    manager.wait();
    if (repeat == 0) continue;  // The first save makes its memory.
    without.push_back(plain);
    saving.push_back(with_saves / steps);
    calls.push_back(call / kSavesInARow);
  }
  result.seconds_step = median(without);
  result.seconds_step_saving = median(saving);
  result.seconds_save_call = median(calls);
  result.stall_fraction = (result.seconds_step_saving - result.seconds_step) / result.seconds_step;
}

/// Sets the folder of snapshots in memory for as long as it lives.
class MemoryFolder {
 public:
  MemoryFolder() : place_(fs::exists("/dev/shm") ? "/dev/shm" : "") {
    if (const char* const before = std::getenv(kVariable)) before_ = before;
    ::setenv(kVariable, place_.file("memory").c_str(), 1);
  }
  ~MemoryFolder() {
    if (before_) {
      ::setenv(kVariable, before_->c_str(), 1);
    } else {
      ::unsetenv(kVariable);
    }
  }
  MemoryFolder(const MemoryFolder&) = delete;
  MemoryFolder& operator=(const MemoryFolder&) = delete;

 private:
  static constexpr const char* kVariable = "LOCKSTEP_MEMORY_FOLDER";
  CheckpointPlace place_;
  std::optional<std::string> before_;
};

void measure_snapshots(AdamStep& step, const Checkpoint& checkpoint, const CheckpointPlace& place,
                       CheckpointResult& result) {
  const MemoryFolder memory;
  CheckpointManager manager(checkpoint, place.file("snapshots"), {.redundancy = 1});
  int64_t number = 0;
  const auto step_and_snapshot = [&] {
    step();
    manager.after_step(++number);
  };
  time_of(2, step_and_snapshot);  // The first two make their memory.
  std::vector<double> without;
  std::vector<double> with;
  for (int repeat = 0; repeat < result.options.repeats; ++repeat) {
    without.push_back(time_of(result.options.steps, step));
    with.push_back(time_of(result.options.steps, step_and_snapshot));
  }
  result.seconds_step_snapshot = median(with);
  result.snapshot_fraction = result.seconds_step_snapshot / median(without) - 1;
}

void measure_files(CheckpointManager& manager, const CheckpointPlace& place, CheckpointResult& result) {
  constexpr int64_t kStep = 1'000'000;
  const std::string plain_file = place.file("plain");
  const std::string folder = place.file("run");
  manager.save(kStep);
  manager.wait();
  result.bytes = size_of(folder + "/step_0001000000");
  std::vector<char> bytes(static_cast<size_t>(result.bytes), 'x');
  std::vector<double> writes;
  std::vector<double> plain_writes;
  std::vector<double> restores;
  std::vector<double> plain_reads;
  for (int repeat = 0; repeat < result.options.repeats; ++repeat) {
    plain_writes.push_back(time_of(1, [&] { plain_write(plain_file, bytes); }));
    writes.push_back(time_of(1, [&] {
      manager.save(kStep + repeat);
      manager.wait();
    }));
    wait_for_removals(folder);
    forget(plain_file);
    forget(folder);
    plain_reads.push_back(time_of(1, [&] { plain_read(plain_file, bytes); }));
    restores.push_back(time_of(1, [&] { manager.restore_latest(); }));
    fs::remove(plain_file);
  }
  result.seconds_write = median(writes);
  result.seconds_plain_write = median(plain_writes);
  result.write_fraction = result.seconds_plain_write / result.seconds_write;
  result.seconds_restore = median(restores);
  result.seconds_plain_read = median(plain_reads);
  result.restore_fraction = result.seconds_plain_read / result.seconds_restore;
}

}  // namespace

CheckpointResult bench_checkpoint(const CheckpointOptions& options) {
  CheckpointResult result;
  result.options = options;
  const CheckpointPlace place(options.folder);
  const CpuReplicas replicas(options.replicas);
  const StepOptions step_options{.width = options.width, .batch = options.batch, .replicas = options.replicas};
  AdamStep step(step_options, cpu_strategy("mirrored", options.replicas), torch::optim::AdamOptions(1e-4));
  const Checkpoint checkpoint({{"model", step.model()}, {"adam", step.optimizer()}});
  CheckpointManager manager(checkpoint, place.file("run"), {.keep = 1});
  measure_stall(step, manager, result);
  measure_snapshots(step, checkpoint, place, result);
  measure_files(manager, place, result);
  return result;
}

}  // namespace lockstep::bench
