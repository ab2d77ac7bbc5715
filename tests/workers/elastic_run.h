#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/workers/fault_job.h"

namespace lockstep::tests {

/// What `elastic_worker` has printed about one step.
struct ElasticStep {
  int64_t step = 0;
  int64_t view = 0;
  int worker = 0;
  int num_workers = 0;
  pid_t process = 0;
  double time = 0;
  std::vector<int64_t> ids{};
};

/// A launcher of an elastic job in tests, with workers that print their steps.
class ElasticRun {
 public:
  /// `folder` is for checkpoints. `options` are those of `lockstep run`, `variables` NAME=value.
  ElasticRun(const std::filesystem::path& folder, const std::string& name, const std::vector<std::string>& options,
             int64_t steps, int pause, const std::vector<std::string>& variables = {});

  std::string output() const { return process_.output(); }
  std::vector<ElasticStep> steps() const;
  /// The parameters that workers have printed at their end.
  std::vector<std::vector<double>> finals() const;

  /// Waits until a step of at least this number is finished in a view of `num_workers` (0: any number), of at least
  /// this number of the view; returns the processes of that view, in their order. `num_here`: how many of them belong
  /// to this launcher; 0: all.
  std::vector<pid_t> wait_for(int64_t step, int num_workers = 0, int64_t view = 1, int num_here = 0) const;
  void wait_for_text(const std::string& text, int times = 1) const;
  void send_signal(int signal) const { process_.send_signal(signal); }
  /// Waits for the end: "exit 0".
  std::string outcome();

 private:
  ChildProcess process_;
};

/// The parameters after so many steps of one process without a launcher.
std::vector<double> undisturbed(int64_t steps);

/// Fails unless every worker that has ended has the parameters of an undisturbed training, and every step, in its last
/// execution, has seen other examples of its epoch.
void expect_undisturbed(const ElasticRun& run, int64_t steps);
/// Fails where a view has repeated more than the step that was under way.
void expect_no_steps_lost(const std::vector<ElasticStep>& steps);

}  // namespace lockstep::tests
