#include "lockstep/comm/job/join.h"

#include <cstdlib>
#include <mutex>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/job/joiner.h"
#include "lockstep/comm/job/member.h"

namespace lockstep::comm {
namespace {

using job::Member;

// Members that still exist when the process exits leave their jobs then.
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

// Those of this process: a forked process begins with none.
Memberships& memberships() {
  static std::mutex mutex;
  static pid_t process = 0;
  static Memberships* all = nullptr;
  const std::lock_guard lock(mutex);
  if (process != getpid()) {
    process = getpid();
    all = new Memberships;
    on_exit([](int status, void*) { leave_all_jobs(status); }, nullptr);
  }
  return *all;
}

std::shared_ptr<Member> make_member(const JobOptions& options, job::Entrance entrance) {
  // A forked process has none of the threads, and does not destroy the member.
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
    last_error = "the coordinator closed the connection before all workers had joined";
  }
}

}  // namespace

void leave_all_jobs(int status) { memberships().leave_all(status); }

std::shared_ptr<Job> join_job(const JobOptions& options) {
  options.validate();
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

}  // namespace lockstep::comm
