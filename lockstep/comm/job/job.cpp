#include "lockstep/comm/job/job.h"

#include <cstdlib>
#include <mutex>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/job/join_options.h"
#include "lockstep/comm/job/joiner.h"
#include "lockstep/comm/job/member.h"

namespace lockstep::comm {
namespace {

using job::Member;

// Members that nobody has destroyed when the process exits say good-bye then.
struct Memberships {
  std::mutex mutex;
  std::vector<std::weak_ptr<Member>> members;

  void add(const std::shared_ptr<Member>& member) {
    const std::lock_guard lock(mutex);
    std::erase_if(members, [](const auto& one) { return one.expired(); });
    members.push_back(member);
  }

  void leave_all(int status) {
    std::unique_lock lock(mutex);
    const auto remaining = std::move(members);
    lock.unlock();
    for (const auto& one : remaining) {
      if (const auto member = one.lock()) member->leave(status);
    }
  }
};

// Of this process: a forked one begins without.
Memberships& memberships() {
  static std::mutex mutex;
  static pid_t process = 0;
  static Memberships* all = nullptr;
  const std::lock_guard lock(mutex);
  if (process != getpid()) {
    process = getpid();
    all = new Memberships;
    on_exit([](int status, void*) { memberships().leave_all(status); }, nullptr);
  }
  return *all;
}

std::shared_ptr<Member> make_member(const JobOptions& options, job::Entrance entrance) {
  // A forked process has none of the threads, and lets the rest be.
  const auto release = [process = getpid()](Member* member) {
    if (getpid() == process) delete member;
  };
  return {new Member(options, std::move(entrance)), release};
}

std::shared_ptr<Member> join_coordinator(const JobOptions& options, job::Clock::time_point deadline) {
  std::string last_error;
  while (true) {
    auto member = make_member(options, job::enter_as_joiner(options, deadline, last_error));
    if (member->wait_for_all(deadline)) return member;
    last_error = "the coordinator closed the connection before all workers had come";
  }
}

}  // namespace

std::shared_ptr<Job> Job::join(const JobOptions& options) {
  job::check(options);
  const auto deadline = job::deadline_in(options.join_timeout);
  std::shared_ptr<Member> member;
  if (options.worker == 0) {
    member = make_member(options, job::enter_as_coordinator(options));
    member->wait_for_all(deadline);
  } else {
    member = join_coordinator(options, deadline);
  }
  memberships().add(member);
  return member;
}

std::vector<std::string> Job::all_gather(const std::string& key, const std::string& value,
                                         std::chrono::milliseconds timeout) {
  const auto deadline = job::deadline_in(timeout);
  set(key + "/" + std::to_string(worker()), value);
  std::vector<std::string> values;
  for (int i = 0; i < num_workers(); ++i) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - job::Clock::now());
    values.push_back(get(key + "/" + std::to_string(i), left));
  }
  return values;
}

}  // namespace lockstep::comm
