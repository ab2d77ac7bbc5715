#include "tests/comm/job_members.h"

#include <cstdlib>
#include <fcntl.h>
#include <iostream>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/views/view_client.h"
#include "tests/support/free_port.h"

extern char** environ;

namespace lockstep::comm::test {
namespace {

[[noreturn]] void watch(const std::shared_ptr<Job>& job) {
  while (job->failure() == nullptr) std::this_thread::sleep_for(1ms);
  const JobFailure& failure = *job->failure();
  std::cout << static_cast<int>(failure.kind) << " " << failure.worker << " " << failure.reason << std::endl;
  _exit(0);
}

}  // namespace

std::vector<std::string> free_addresses(int num_workers, const std::string& host) {
  std::vector<std::string> addresses(static_cast<size_t>(num_workers));
  addresses[0] = host + ":" + std::to_string(lockstep::tests::free_port());
  return addresses;
}

JobOptions options_for(int num_workers) {
  return {.addresses = free_addresses(num_workers), .token = "a token of the tests", .join_timeout = kPatience};
}

JobOptions as_worker(JobOptions options, int worker) {
  options.worker = worker;
  return options;
}

std::future<std::shared_ptr<Job>> join_later(const JobOptions& options, int worker) {
  return std::async(std::launch::async, [options, worker] { return join_job(as_worker(options, worker)); });
}

std::vector<std::shared_ptr<Job>> join_all(const JobOptions& options) {
  std::vector<std::future<std::shared_ptr<Job>>> joining;
  for (size_t i = 0; i < options.addresses.size(); ++i) joining.push_back(join_later(options, static_cast<int>(i)));
  std::vector<std::shared_ptr<Job>> jobs;
  for (auto& one : joining) jobs.push_back(one.get());
  return jobs;
}

Process::Process(const std::vector<std::string>& command) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  std::vector<char*> arguments;
  for (const auto& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  const int code = posix_spawnp(&id_, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  output_ = ends[0];
  if (code != 0) throw std::runtime_error("cannot start " + command[0]);
}

Process::~Process() {
  if (id_ > 0) {
    send_signal(SIGKILL);
    wait();
  }
  close(output_);
}

std::string Process::read_line() {
  std::string line;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < deadline) {
    pollfd entry{output_, POLLIN, 0};
    if (poll(&entry, 1, 100) <= 0) continue;
    char byte = 0;
    if (read(output_, &byte, 1) != 1 || byte == '\n') return line;
    line += byte;
  }
  return "";
}

int Process::wait() {
  int status = 0;
  waitpid(std::exchange(id_, -1), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::vector<std::string> member_command(const JobOptions& options, const std::string& task) {
  return {"/proc/self/exe",
          "--member",
          std::to_string(options.worker),
          std::to_string(options.addresses.size()),
          options.addresses[0],
          options.token,
          std::to_string(options.heartbeat_interval.count()),
          std::to_string(options.heartbeat_timeout.count()),
          task};
}

int run_member(const std::vector<std::string>& arguments) try {
  JobOptions options;
  options.worker = std::stoi(arguments[0]);
  options.addresses.resize(std::stoul(arguments[1]));
  options.addresses[0] = arguments[2];
  options.token = arguments[3];
  options.heartbeat_interval = std::chrono::milliseconds(std::stol(arguments[4]));
  options.heartbeat_timeout = std::chrono::milliseconds(std::stol(arguments[5]));
  options.join_timeout = kPatience;
  const auto job = join_job(options);
  std::cout << (job->one_machine() ? "joined" : "joined across machines") << std::endl;
  const std::string& task = arguments[6];
  if (task == "watch") watch(job);
  job->get("go/" + std::to_string(job->worker()), kPatience);
  std::exit(std::stoi(task.substr(task.find(' '))));
} catch (const c10::Error& error) {
  std::cout << error.what_without_backtrace() << std::endl;
  return 1;
}

std::vector<std::string> view_worker_command(const std::string& address, uint64_t number) {
  return {"/proc/self/exe", "--view-worker", address, std::to_string(number)};
}

}  // namespace lockstep::comm::test

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  if (argc > 2 && arguments[1] == "--member") {
    return lockstep::comm::test::run_member({arguments.begin() + 2, arguments.end()});
  }
  if (argc > 3 && arguments[1] == "--view-worker") {
    lockstep::comm::views::ViewClient client(arguments[2], std::stoul(arguments[3]), "");
    client.next({});
    return 0;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
