#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/job/job.h"

namespace lockstep::tests {

/// A job whose members, threads or processes, share a folder: a value is a file there. Members do not monitor each
/// other; the test fails the job with `break_off`.
class FakeJob : public comm::Job {
 public:
  FakeJob(std::filesystem::path folder, int worker, int num_workers) : folder_(std::move(folder)), worker_(worker) {
    for (int i = 0; i < num_workers; ++i) names_.push_back("worker " + std::to_string(i) + " (fake)");
  }

  int worker() const override { return worker_; }
  int num_workers() const override { return static_cast<int>(names_.size()); }
  const std::string& name(int worker) const override { return names_.at(worker); }
  const std::string& local_address() const override { return address_; }
  bool one_machine() const override { return true; }

  void set(const std::string& key, const std::string& value) override {
    const auto written = file_of(key + ".written-by-" + std::to_string(worker_));
    std::ofstream(written, std::ios::binary) << value;
    std::filesystem::rename(written, file_of(key));
  }

  void drop(const std::string& key) override { std::filesystem::remove(file_of(key)); }

  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (!std::filesystem::exists(file_of(key))) {
      LOCKSTEP_CHECK_COLLECTIVE(std::chrono::steady_clock::now() < deadline, "[fake job] nobody has set it: key=", key);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::ifstream file(file_of(key), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const comm::JobFailure* failure() const override { return failed_ ? &failure_ : nullptr; }
  bool has_left(int) const override { return false; }
  void fail(const std::string& reason) override { break_off(worker_, reason); }
  void fail_by_mismatch(const std::string& reason) override { break_off(-1, reason); }
  void report(const std::string&) override {}
  std::string last_report(int) const override { return ""; }

  std::shared_ptr<void> on_change(std::function<void()> callback) override {
    const std::lock_guard lock(mutex_);
    callback_ = std::move(callback);
    if (failed_) callback_();
    return {nullptr, [this](void*) {
              const std::lock_guard lock(mutex_);
              callback_ = nullptr;
            }};
  }

  /// Makes the job of this member fail. The first call counts.
  void break_off(int cause, const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (failed_) return;
    failure_ = {.kind = comm::JobFailure::Kind::Died, .worker = cause, .reason = reason};
    failed_ = true;
    if (callback_) callback_();
  }

 private:
  std::filesystem::path file_of(std::string key) const {
    for (auto& letter : key) letter = letter == '/' ? '_' : letter;
    return folder_ / key;
  }

  std::filesystem::path folder_;
  int worker_;
  std::vector<std::string> names_;
  std::string address_ = "127.0.0.1";
  std::mutex mutex_;
  std::atomic<bool> failed_{false};
  comm::JobFailure failure_;
  std::function<void()> callback_;
};

}  // namespace lockstep::tests
