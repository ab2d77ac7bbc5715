#include "tests/workers/fault_job.h"

#include <chrono>
#include <cstdlib>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

#include "lockstep/base/env.h"
#include "lockstep/comm/engines.h"
#include "tests/support/free_port.h"

namespace lockstep::tests {
namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point patience() { return Clock::now() + std::chrono::seconds(static_cast<int>(kPatience)); }

}  // namespace

double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

std::filesystem::path program(const std::string& name) {
  return std::filesystem::path(this_program()).parent_path() / name;
}

FaultJob::FaultJob(FaultJobSettings settings) : settings_(std::move(settings)) {
  const auto count = static_cast<size_t>(settings_.num_workers);
  for (size_t i = 0; i < count; ++i) ports_.push_back(free_port());
  settings_.hosts.resize(count, "127.0.0.1");
  settings_.prefixes.resize(count);
}

std::vector<std::string> FaultJob::command(int worker, const std::vector<std::string>& arguments,
                                           const Difference& difference) const {
  std::vector<std::string> known = addresses();
  if (difference.num_workers > 0) known.resize(static_cast<size_t>(difference.num_workers));
  const Json config{{"cluster", {{"worker", known}}}, {"task", {{"type", "worker"}, {"index", worker}}}};
  std::vector<std::string> words = settings_.prefixes[static_cast<size_t>(worker)];
  words.insert(words.end(), {"env", "TF_CONFIG=" + config.dump(), "LOCKSTEP_JOB_TOKEN=a token of the tests",
                             "LOCKSTEP_ENGINE=" + settings_.engine, "LOCKSTEP_DUMP=" + folder_.path().string()});
  for (const auto* variables : {&settings_.variables, &difference.variables}) {
    words.insert(words.end(), variables->begin(), variables->end());
  }
  words.push_back(program("lockstep_fault_worker"));
  words.insert(words.end(), arguments.begin(), arguments.end());
  if (settings_.engine == "nccl") words.insert(words.end(), {"--device", "GPU"});
  return words;
}

void FaultJob::start(int worker, const std::vector<std::string>& arguments, const Difference& difference) {
  const auto output = folder_.path() / ("output" + std::to_string(worker));
  workers_.emplace(worker, ChildProcess(command(worker, arguments, difference), output));
}

void FaultJob::start_all(const std::vector<std::string>& arguments) {
  for (int worker = 0; worker < settings_.num_workers; ++worker) start(worker, arguments);
}

std::vector<std::string> FaultJob::addresses() const {
  std::vector<std::string> all;
  for (int i = 0; i < num_workers(); ++i) {
    all.push_back(settings_.hosts[static_cast<size_t>(i)] + ":" + std::to_string(port(i)));
  }
  return all;
}

Json FaultJob::wait_for(int worker, const std::string& event) const {
  const ChildProcess& process = workers_.at(worker);
  for (const auto deadline = patience(); Clock::now() < deadline;) {
    for (const Json& said : events_of(process.output())) {
      if (said["event"] == event) return said;
      if (said["event"] != "error") continue;
      ADD_FAILURE() << "worker " << worker << " must come to \"" << event << "\": " << said;
      return said;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ADD_FAILURE() << "worker " << worker << " must come to \"" << event << "\": " << process.output();
  return {{"at", 0.0}};
}

Ending FaultJob::end_of(int worker) {
  ChildProcess& process = workers_.at(worker);
  EXPECT_TRUE(process.wait_until(patience())) << "worker " << worker << " hangs: " << process.output();
  return ending_of(process);
}

std::map<int, std::filesystem::path> FaultJob::dumps() const {
  const std::string prefix = "lockstep-worker";
  std::map<int, std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    const std::string name = entry.path().filename();
    if (name.rfind(prefix, 0) == 0) files[std::stoi(name.substr(prefix.size()))] = entry.path();
  }
  return files;
}

std::string FaultJob::diagnosis() const {
  std::vector<std::string> words{program("lockstep"), "doctor"};
  for (const auto& [worker, file] : dumps()) words.push_back(file);
  ChildProcess doctor(words, folder_.path() / "diagnosis");
  EXPECT_TRUE(doctor.wait_until(patience())) << "the doctor hangs";
  return doctor.output();
}

std::vector<Json> events_of(const std::string& output) {
  std::vector<Json> events;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (const size_t begin = line.find("{\"event\""); begin != std::string::npos) {
      const Json event = Json::parse(line.substr(begin), nullptr, false);  // the last line may be unfinished
      if (!event.is_discarded()) events.push_back(event);
    }
  }
  return events;
}

Ending ending_of(const ChildProcess& process) {
  Ending ending{.outcome = process.outcome()};
  for (const Json& event : events_of(process.output())) {
    if (event["event"] != "error") continue;
    ending.type = event["type"];
    ending.text = event["text"];
    ending.cause = event["cause"];
    ending.at = event["at"];
  }
  return ending;
}

void in_parallel(const std::vector<std::function<void()>>& bodies) {
  std::vector<std::thread> threads;
  threads.reserve(bodies.size());
  for (const auto& body : bodies) threads.emplace_back(body);
  for (auto& thread : threads) thread.join();
}

std::vector<std::string> engines() {
  if (env::flag("LOCKSTEP_NCCL_STANDIN")) return {"nccl"};
  std::vector<std::string> names{"shm"};
  if (comm::find_engine("gloo").available) names.emplace_back("gloo");
  return names;
}

void for_engines(const std::function<void(const std::string&)>& body) {
  for_engines({""}, [&](const std::string& engine, const std::string&) { body(engine); });
}

void for_engines(const std::vector<std::string>& values,
                 const std::function<void(const std::string&, const std::string&)>& body) {
  std::vector<std::function<void()>> bodies;
  for (const std::string& engine : engines()) {
    for (const std::string& value : values) {
      bodies.push_back([&body, engine, value] {
        SCOPED_TRACE(engine + " " + value);
        body(engine, value);
      });
    }
  }
  in_parallel(bodies);
}

}  // namespace lockstep::tests

int main(int argc, char** argv) {
  // Races show after many repetitions.
  if (const char* repeats = std::getenv("LOCKSTEP_FAULT_REPEATS")) {
    ::testing::GTEST_FLAG(repeat) = std::atoi(repeats);
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
