#include "tests/golden/worker_processes.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/env.h"
#include "tools/run/run_environment.h"

namespace lockstep::golden {
namespace {

/// Longer than workers themselves wait for each other, so that the reason is theirs to tell.
constexpr std::chrono::seconds kPatience{150};
constexpr const char* kWorkersTimeout = "60";

[[noreturn]] void fail(int worker, const std::string& what) {
  throw HarnessError("[worker_processes] worker " + std::to_string(worker) + " " + what);
}

/// What workers get unless the environment says it already. Some cases must fail, which is no news for a log.
std::vector<std::string> default_variables() {
  std::vector<std::string> variables;
  const auto add = [&](const std::string& name, const std::string& value) {
    if (!env::given(name)) variables.push_back(name + "=" + value);
  };
  add("LOCKSTEP_JOIN_TIMEOUT", kWorkersTimeout);
  add("LOCKSTEP_COLLECTIVE_TIMEOUT", kWorkersTimeout);
  add("LOCKSTEP_LOG", "off");
  return variables;
}

std::filesystem::path make_folder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "lockstep_golden_workers_XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw HarnessError("[worker_processes] no folder can be made: " + pattern);
  return pattern;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string describe_end(int status) {
  if (WIFSIGNALED(status)) return std::string("was ended by a signal: ") + strsignal(WTERMSIG(status));
  return "has ended with status " + std::to_string(WEXITSTATUS(status));
}

/// On one line, whatever bytes an error's text has.
std::string line_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n'; }

Case case_of(const Json& question) {
  Case one;
  one.topic = question.at("topic");
  one.id = question.at("id");
  one.call = question.at("call");
  one.in = question.at("in");
  return one;
}

}  // namespace

WorkerProcesses::WorkerProcesses(int count) : folder_(make_folder()) {
  const std::vector<int> ports = tools::find_ports(count, std::nullopt);
  std::vector<std::string> shared = tools::job_variables({.ports = ports, .restart = 0, .token_file = ""});
  for (std::string& variable : default_variables()) shared.push_back(std::move(variable));
  shared.push_back("TMPDIR=" + folder_.string());
  processes_.resize(count);
  for (int index = 0; index < count; ++index) {
    std::vector<std::string> variables = shared;
    variables.push_back("TF_CONFIG=" + tools::cluster_config(ports, index));
    start(index, variables);
  }
}

WorkerProcesses::~WorkerProcesses() {
  for (const Process& process : processes_) {
    if (process.id > 0) kill(process.id, SIGKILL);
  }
  for (const Process& process : processes_) {
    if (process.id > 0) waitpid(process.id, nullptr, 0);
    if (process.socket >= 0) close(process.socket);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void WorkerProcesses::start(int index, const std::vector<std::string>& variables) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail(index, "cannot be talked to");
  Process& process = processes_[index];
  process.socket = ends[0];
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::vector<std::string> arguments{"lockstep_golden", kWorkerArgument};
  std::vector<std::string> environment = tools::changed_environment(variables);
  pid_t id = -1;
  const int error = posix_spawn(&id, "/proc/self/exe", &actions, nullptr, pointers_to(arguments).data(),
                                pointers_to(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) fail(index, std::string("cannot be started: ") + std::strerror(error));
  process.id = id;
}

Json WorkerProcesses::answers(const Case& test_case) {
  const std::string question =
      line_of({{"topic", test_case.topic}, {"id", test_case.id}, {"call", test_case.call}, {"in", test_case.in}});
  for (int index = 0; index < count(); ++index) {
    size_t sent = 0;
    while (sent < question.size()) {
      const ssize_t size = send(processes_[index].socket, question.data() + sent, question.size() - sent, MSG_NOSIGNAL);
      if (size < 0 && errno != EINTR) fail_because_ended(index);
      if (size > 0) sent += static_cast<size_t>(size);
    }
  }
  const auto deadline = Clock::now() + kPatience;
  Json all = Json::array();
  for (int index = 0; index < count(); ++index) all.push_back(Json::parse(read_line(index, deadline)));
  return all;
}

std::string WorkerProcesses::read_line(int index, Clock::time_point deadline) {
  Process& process = processes_[index];
  for (;;) {
    if (const size_t end = process.received.find('\n'); end != std::string::npos) {
      const std::string line = process.received.substr(0, end);
      process.received.erase(0, end + 1);
      return line;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd readable{process.socket, POLLIN, 0};
    if (left.count() <= 0) fail(index, "has not answered in " + std::to_string(kPatience.count()) + " s");
    if (poll(&readable, 1, static_cast<int>(left.count())) <= 0) continue;
    char bytes[4096];
    const ssize_t size = recv(process.socket, bytes, sizeof(bytes), 0);
    if (size == 0 || (size < 0 && errno != EINTR)) fail_because_ended(index);
    if (size > 0) process.received.append(bytes, static_cast<size_t>(size));
  }
}

void WorkerProcesses::fail_because_ended(int index) {
  Process& process = processes_[index];
  kill(process.id, SIGKILL);  // for one that has only closed its socket
  int status = 0;
  waitpid(process.id, &status, 0);
  process.id = -1;
  fail(index, describe_end(status));
}

void answer_as_worker(const Driver& driver) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (std::string line; std::getline(std::cin, line);) {
    const Case one = case_of(Json::parse(line));
    std::cout << line_of(run_driver(driver, one).as_answer_of_worker()) << std::flush;
  }
}

}  // namespace lockstep::golden
