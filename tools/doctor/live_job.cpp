#include "tools/doctor/live_job.h"

#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/diagnostics/dump.h"
#include "lockstep/comm/diagnostics/straggler.h"
#include "tools/doctor/doctor_trace.h"

namespace lockstep::tools {
namespace {

using LookClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kAnswerLimit{2000};
constexpr std::chrono::milliseconds kBetweenLooks{1000};
/// What is worth a sentence where the job does not warn by itself.
constexpr double kSlowFactor = 1.5;
const std::string kGradients = "gradients";

/// Whether the answer is there: a plain file of the process's user. Others could make a file of that name.
bool has_answer(const std::string& file, pid_t pid) {
  struct stat answer {};
  struct stat process {};
  if (lstat(file.c_str(), &answer) != 0 || !S_ISREG(answer.st_mode)) return false;
  return stat(("/proc/" + std::to_string(pid)).c_str(), &process) == 0 && answer.st_uid == process.st_uid;
}

std::string duration_text(double seconds) {
  std::ostringstream text;
  text << std::fixed;
  if (seconds < 1) {
    text << std::setprecision(1) << 1000 * std::max(seconds, 0.0) << " ms";
  } else {
    text << std::setprecision(1) << seconds << " s";
  }
  return text.str();
}

std::string with_site(const RecordedCall& call) {
  return call.site.empty() ? call.text : call.text + " at " + call.site;
}

/// The ranks that wait in one call, with the longest wait.
struct CallWait {
  std::vector<int> ranks;
  double seconds = 0;
};

/// Who waits in which call of the groups that replicas and workers call; calls of threads that send gradients are
/// separate.
struct Waits {
  std::map<std::string, CallWait> calls;
  std::map<std::string, CallWait> gradients;
  size_t num_ranks = 0;
  bool in_workers = false;
  /// The end of the last call.
  int64_t last_end_ns = 0;
  std::string last_call;
};

Waits waits_of(const WorkerDump& dump) {
  Waits waits;
  for (const auto& [group, ranks] : dump.groups) {
    for (const auto& [rank, calls] : ranks) {
      const RecordedCall& last = calls.back();
      if (last.state != CallState::Arrived) {
        if (last.end_ns > waits.last_end_ns) {
          waits.last_end_ns = last.end_ns;
          waits.last_call = with_site(last);
        }
        continue;
      }
      auto& of_call = (group == kGradients ? waits.gradients : waits.calls)[with_site(last)];
      of_call.ranks.push_back(rank);
      of_call.seconds = std::max(of_call.seconds, static_cast<double>(dump.newest_ns - last.start_ns) * 1e-9);
      if (group == kGradients) continue;
      ++waits.num_ranks;
      waits.in_workers = waits.in_workers || group == "workers";
    }
  }
  return waits;
}

bool all_ranks_wait(const WorkerDump& dump, const Waits& waits) {
  return waits.in_workers || waits.num_ranks >= static_cast<size_t>(std::max(1, dump.replicas_per_worker));
}

std::string describe_waits(const WorkerDump& dump, const Waits& waits) {
  std::ostringstream text;
  const char* separator = "";
  for (const auto& [call, wait] : waits.calls) {
    text << separator;
    if (wait.ranks.size() < static_cast<size_t>(dump.replicas_per_worker) && !waits.in_workers) {
      text << (wait.ranks.size() == 1 ? "rank" : "ranks");
      for (const int rank : wait.ranks) text << ' ' << rank;
      text << ' ';
    }
    text << "in " << call << " for " << duration_text(wait.seconds);
    separator = "; ";
  }
  if (!all_ranks_wait(dump, waits)) text << "; the other ranks compute";
  return text.str();
}

std::string describe_place(const WorkerDump& dump, const Waits& waits) {
  const RecordedActivity& activity = dump.activity;
  std::ostringstream text;
  if (!waits.calls.empty()) return describe_waits(dump, waits);
  const double since = activity.since_ns > 0 ? static_cast<double>(dump.newest_ns - activity.since_ns) * 1e-9 : -1;
  if (activity.name == "input") {
    text << "waits for input";
  } else if (activity.name == "checkpoint") {
    text << "saves or restores a checkpoint";
  } else {
    text << (activity.name == "run" ? "computes" : "outside of runs");
  }
  if (since >= 0) text << " for " << duration_text(since);
  for (const auto& [call, wait] : waits.gradients) {
    text << "; gradients in " << call << " for " << duration_text(wait.seconds);
  }
  if (since < 0 && waits.last_end_ns > 0) {
    const double ended = static_cast<double>(dump.newest_ns - waits.last_end_ns) * 1e-9;
    text << "; its last collective, " << waits.last_call << ", ended " << duration_text(ended) << " ago";
  }
  return text.str();
}

void set_rates(LiveWorker& worker, const RecordedActivity& before, const RecordedActivity& after) {
  const bool has_steps = after.step >= 0;
  if (has_steps != (before.step >= 0)) return;
  const int64_t done = has_steps ? after.step - before.step : after.runs - before.runs;
  const double seconds = static_cast<double>(after.now_ns - before.now_ns) * 1e-9;
  if (before.now_ns > 0 && seconds > 0 && done >= 0) worker.rate = static_cast<double>(done) / seconds;
}

/// Since the first step; since the first run where no steps are counted.
std::optional<double> average_rate(const RecordedActivity& activity) {
  const bool has_steps = activity.step >= 0;
  const int64_t done = has_steps ? activity.step - activity.first_step : activity.runs;
  const int64_t begin = has_steps ? activity.first_step_ns : activity.first_run_ns;
  const double seconds = static_cast<double>(activity.now_ns - begin) * 1e-9;
  if (begin <= 0 || seconds <= 0 || done < (has_steps ? 1 : 0)) return std::nullopt;
  return static_cast<double>(done) / seconds;
}

/// The workers of the job that are none of these processes.
std::vector<std::string> workers_elsewhere(const std::vector<LiveWorker>& workers, const JobLook& look) {
  const WorkerDump* known = nullptr;
  for (const ProcessLook& each : look) {
    if (each.dump && (known == nullptr || each.dump->num_workers > known->num_workers)) known = &*each.dump;
  }
  if (known == nullptr) return {};
  std::set<int> here;
  size_t unknown = 0;
  for (const LiveWorker& worker : workers) {
    if (worker.worker >= 0) here.insert(worker.worker);
    unknown += worker.worker < 0 ? 1 : 0;
  }
  std::vector<std::string> result;
  for (int worker = 0; worker < known->num_workers; ++worker) {
    if (here.contains(worker)) continue;
    const auto index = static_cast<size_t>(worker);
    result.push_back(index < known->names.size() ? known->names[index] : "worker " + std::to_string(worker));
  }
  // Processes that do not answer may be these.
  return result.size() <= unknown ? std::vector<std::string>() : result;
}

std::string name_of_process(const JobProcess& process, const std::optional<WorkerDump>& dump) {
  if (dump) return "worker " + std::to_string(dump->worker);
  return process.number >= 0 ? "worker " + std::to_string(process.number) : "process " + std::to_string(process.pid);
}

/// The worker for which the others wait, by the shares that they have measured.
std::string slowest_of(const std::vector<LiveWorker>& workers) {
  std::vector<std::optional<comm::Pace>> paces;
  constexpr uint64_t kParts = 10'000;
  for (const LiveWorker& worker : workers) {
    if (worker.busy < 0) return "";
    paces.emplace_back(comm::Pace{kParts, static_cast<uint64_t>(worker.busy * kParts), 2});
  }
  const auto found = comm::find_straggler(paces, kSlowFactor);
  if (!found) return "";
  std::ostringstream text;
  text << workers[static_cast<size_t>(found->worker)].name << " computes " << std::fixed << std::setprecision(1)
       << found->factor << " times as long as the others: they wait for it " << std::setprecision(0)
       << 100 * found->waited << " % of the time";
  return text.str();
}

std::string summarize_looks(const LiveJob& job, const JobLook& after) {
  std::ostringstream text;
  for (const LiveWorker& worker : job.workers) {
    if (!worker.answers) text << worker.name << " (process " << worker.pid << ") does not answer; ";
  }
  const auto moves = [](const LiveWorker& worker) { return !worker.rate || *worker.rate > 0; };
  if (std::none_of(job.workers.begin(), job.workers.end(),
                   [&](const auto& each) { return each.answers && moves(each); })) {
    std::vector<WorkerDump> dumps;
    for (const ProcessLook& look : after) {
      if (look.dump) dumps.push_back(*look.dump);
    }
    if (dumps.empty()) return text.str() + "nobody answers";
    text << "no step has ended between the looks";
    if (dumps.size() == after.size()) text << ": " << diagnose(std::move(dumps)).summary;
    return text.str();
  }
  if (const std::string slow = slowest_of(job.workers); !slow.empty()) {
    text << slow;
    return text.str();
  }
  const auto waiting =
      std::count_if(job.workers.begin(), job.workers.end(), [](const auto& each) { return each.waits; });
  const auto busy = std::find_if(job.workers.begin(), job.workers.end(), [](const auto& each) { return !each.waits; });
  if (job.workers.size() > 1 && waiting + 1 == static_cast<int64_t>(job.workers.size())) {
    text << "at the second look the others waited for " << busy->name;
  } else if (!job.not_asked.empty() && waiting == static_cast<int64_t>(job.workers.size())) {
    text << "at the second look all of these waited; of the workers that were not asked nothing is known";
  } else {
    text << "the job goes on";
  }
  return text.str();
}

}  // namespace

JobLook look_at(const std::vector<JobProcess>& processes, std::chrono::milliseconds limit) {
  JobLook look;
  std::vector<std::string> answers;
  for (const JobProcess& process : processes) {
    look.push_back({process, std::nullopt, ""});
    answers.push_back(comm::look_file(process.dump_folder, process.pid));
    if (!process.answers) continue;
    if (has_answer(answers.back(), process.pid)) unlink(answers.back().c_str());
    look.back().process.answers = ask_process(process);
  }
  const auto deadline = LookClock::now() + limit;
  for (bool waits = true; waits && LookClock::now() < deadline;) {
    waits = false;
    for (size_t i = 0; i < look.size(); ++i) {
      if (!look[i].process.answers || look[i].dump) continue;
      if (!has_answer(answers[i], look[i].process.pid)) {
        waits = true;
        continue;
      }
      WorkerDump dump = read_dump(answers[i]);
      unlink(answers[i].c_str());
      if (dump.worker >= 0) look[i].dump = std::move(dump);
    }
    if (waits) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (ProcessLook& each : look) {
    if (!each.dump) each.silence = reason_of_silence(each.process.pid);
  }
  return look;
}

bool LiveJob::all_answer() const {
  return std::all_of(workers.begin(), workers.end(), [](const LiveWorker& worker) { return worker.answers; });
}

LiveJob compare_looks(const JobLook& before, const JobLook& after) {
  LiveJob job;
  for (const ProcessLook& look : after) {
    LiveWorker& worker = job.workers.emplace_back();
    worker.pid = look.process.pid;
    worker.name = name_of_process(look.process, look.dump);
    worker.answers = look.dump.has_value();
    if (!look.dump) {
      worker.worker = static_cast<int>(look.process.number);
      worker.where = look.silence.empty() ? "it has not answered in time" : look.silence;
      continue;
    }
    const WorkerDump& dump = *look.dump;
    const RecordedActivity& activity = dump.activity;
    const Waits waits = waits_of(dump);
    worker.worker = dump.worker;
    worker.host = dump.host;
    worker.step = activity.step;
    worker.runs = activity.runs;
    worker.busy = activity.busy;
    worker.busy_seconds = activity.busy_seconds;
    worker.busy_unknown = activity.busy_unknown;
    worker.waits = all_ranks_wait(dump, waits);
    worker.where = describe_place(dump, waits);
    const auto first = std::find_if(before.begin(), before.end(),
                                    [&](const ProcessLook& other) { return other.process.pid == worker.pid; });
    if (first != before.end() && first->dump) set_rates(worker, first->dump->activity, activity);
    worker.average_rate = average_rate(activity);
  }
  std::stable_sort(job.workers.begin(), job.workers.end(),
                   [](const LiveWorker& some, const LiveWorker& other) { return some.worker < other.worker; });
  job.not_asked = workers_elsewhere(job.workers, after);
  job.summary = summarize_looks(job, after);
  return job;
}

bool examine_running_job(const std::string& job, double watch, ResultStyle style) {
  std::vector<JobProcess> processes = find_job_processes(job);
  LOCKSTEP_CHECK_VALUE(!processes.empty(), "[doctor] no process of the job answers: JOB=", job,
                       "; give the process id of `lockstep run` or of a program, or the folder LOCKSTEP_DUMP of one; "
                       "a program without other workers answers where LOCKSTEP_DUMP is set");
  JobLook before = look_at(processes, kAnswerLimit);
  auto pause = kBetweenLooks;
  while (true) {
    std::this_thread::sleep_for(pause);
    JobLook after = look_at(processes, kAnswerLimit);
    const LiveJob result = compare_looks(before, after);
    if (style == ResultStyle::Json) {
      print_result(to_json(result), style);
    } else {
      print_live_job(result, std::cout);
    }
    std::cout << std::flush;
    if (watch <= 0) return result.all_answer();
    pause = std::chrono::milliseconds(static_cast<int64_t>(watch * 1000));
    before = std::move(after);
    try {
      processes = find_job_processes(job);
    } catch (const c10::ValueError&) {
      processes.clear();
    }
    if (processes.empty()) return result.all_answer();
  }
}

}  // namespace lockstep::tools
