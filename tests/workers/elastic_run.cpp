#include "tests/workers/elastic_run.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

namespace lockstep::tests {
namespace {

constexpr int64_t kStepsOfEpoch = 100;
constexpr size_t kExamplesOfEpoch = 1200;

std::vector<std::string> elastic_command(const std::filesystem::path& folder, const std::vector<std::string>& options,
                                         int64_t steps, int pause, const std::vector<std::string>& variables) {
  std::vector<std::string> words{"env", "LOCKSTEP_DUMP=" + folder.string(), "LOCKSTEP_COLLECTIVE_TIMEOUT=60"};
  words.insert(words.end(), variables.begin(), variables.end());
  if (!options.empty()) {
    words.push_back(program("lockstep"));
    words.push_back("run");
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--no-prefix", "--"});
  }
  words.push_back(program("lockstep_elastic_worker"));
  words.insert(words.end(), {(folder / "checkpoints").string(), std::to_string(steps), std::to_string(pause)});
  return words;
}

std::vector<Json> lines_of(const std::string& output) {
  std::vector<Json> found;
  std::istringstream in(output);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("{\"pid\"")) continue;
    // The last one may not be complete yet.
    const Json parsed = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_discarded()) found.push_back(parsed);
  }
  return found;
}

}  // namespace

ElasticRun::ElasticRun(const std::filesystem::path& folder, const std::string& name,
                       const std::vector<std::string>& options, int64_t steps, int pause,
                       const std::vector<std::string>& variables)
    : process_(elastic_command(folder, options, steps, pause, variables), folder / name) {}

std::vector<ElasticStep> ElasticRun::steps() const {
  std::vector<ElasticStep> found;
  for (const Json& line : lines_of(output())) {
    if (!line.contains("step")) continue;
    ElasticStep step{line["step"], line["view"], line["worker"], line["workers"], line["pid"], line["time"]};
    for (const double id : line["ids"]) step.ids.push_back(std::lround(id));
    found.push_back(std::move(step));
  }
  return found;
}

std::vector<std::vector<double>> ElasticRun::finals() const {
  std::vector<std::vector<double>> found;
  for (const Json& line : lines_of(output())) {
    if (line.contains("final")) found.push_back(line["final"].get<std::vector<double>>());
  }
  return found;
}

std::vector<pid_t> ElasticRun::wait_for(int64_t step, int num_workers, int64_t view, int num_here) const {
  for (const double deadline = now() + kPatience; now() < deadline;) {
    const auto all = steps();
    for (const ElasticStep& one : all) {
      if (one.step < step || one.view < view || (num_workers != 0 && one.num_workers != num_workers)) continue;
      std::map<int, pid_t> members;
      for (const ElasticStep& other : all) {
        if (other.view == one.view) members[other.worker] = other.process;
      }
      if (static_cast<int>(members.size()) < (num_here == 0 ? one.num_workers : num_here)) continue;
      std::vector<pid_t> processes;
      for (const auto& [worker, process] : members) processes.push_back(process);
      return processes;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ADD_FAILURE() << "no step " << step << " with " << num_workers << " workers: " << output();
  throw std::runtime_error("a job does not go on");
}

void ElasticRun::wait_for_text(const std::string& text, int times) const {
  const auto count = [&] {
    int found = 0;
    const std::string all = output();
    for (size_t at = all.find(text); at != std::string::npos; at = all.find(text, at + 1)) ++found;
    return found;
  };
  for (const double deadline = now() + kPatience; count() < times;) {
    ASSERT_LT(now(), deadline) << "no '" << text << "' in: " << output();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

std::string ElasticRun::outcome() {
  EXPECT_TRUE(process_.wait_until(std::chrono::steady_clock::now() + std::chrono::seconds(60))) << output();
  return process_.outcome();
}

std::vector<double> undisturbed(int64_t steps) {
  const TestFolder folder;
  ElasticRun run(folder.path(), "alone", {}, steps, 0);
  EXPECT_EQ(run.outcome(), "exit 0") << run.output();
  const auto finals = run.finals();
  return finals.empty() ? std::vector<double>{} : finals.front();
}

void expect_undisturbed(const ElasticRun& run, int64_t steps) {
  static std::mutex mutex;
  static std::map<int64_t, std::vector<double>> known;
  const std::lock_guard lock(mutex);
  if (!known.contains(steps)) known[steps] = undisturbed(steps);
  const auto finals = run.finals();
  EXPECT_FALSE(finals.empty()) << run.output();
  for (const auto& parameters : finals) {
    ASSERT_EQ(parameters.size(), known[steps].size());
    for (size_t i = 0; i < parameters.size(); ++i) EXPECT_NEAR(parameters[i], known[steps][i], 1e-4) << i;
  }

  std::map<int64_t, int64_t> last_view;
  for (const ElasticStep& step : run.steps()) {
    last_view[step.step] = std::max(last_view[step.step], step.view);
  }
  EXPECT_EQ(static_cast<int64_t>(last_view.size()), steps);
  std::map<int64_t, std::multiset<int64_t>> seen;
  for (const ElasticStep& step : run.steps()) {
    if (step.view == last_view[step.step]) seen[step.step / kStepsOfEpoch].insert(step.ids.begin(), step.ids.end());
  }
  for (const auto& [epoch, ids] : seen) {
    const std::set<int64_t> different(ids.begin(), ids.end());
    EXPECT_EQ(different.size(), ids.size()) << "epoch " << epoch << " has seen an example twice";
    EXPECT_TRUE((epoch + 1) * kStepsOfEpoch > steps || different.size() == kExamplesOfEpoch)
        << "epoch " << epoch << " has seen " << different.size() << " examples";
  }
}

void expect_no_steps_lost(const std::vector<ElasticStep>& steps) {
  std::map<int64_t, std::pair<int64_t, int64_t>> views;
  for (const ElasticStep& step : steps) {
    const auto [found, is_new] = views.try_emplace(step.view, step.step, step.step);
    if (is_new) continue;
    found->second.first = std::min(found->second.first, step.step);
    found->second.second = std::max(found->second.second, step.step);
  }
  for (auto view = views.begin(); view != views.end() && std::next(view) != views.end(); ++view) {
    const int64_t last = view->second.second;
    const int64_t next = std::next(view)->second.first;
    EXPECT_TRUE(next == last || next == last + 1)
        << "view " << view->first << " ended in step " << last << ", the next one began with step " << next;
  }
}

}  // namespace lockstep::tests
