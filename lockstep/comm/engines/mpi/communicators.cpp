#include "lockstep/comm/engines/mpi/communicators.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <dlfcn.h>
#include <mutex>
#include <set>
#include <thread>
#include <unistd.h>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/job/join.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;

/// How long a process that has failed waits at its exit for the others. mpirun kills all processes when one exits
/// without MPI_Finalize, and reports that in place of their errors.
constexpr std::chrono::seconds kFailedExitTime{5};
constexpr std::chrono::milliseconds kExitPoll{2};
constexpr int kWorkersTag = 0;
constexpr int kExitTag = 1;

/// The process that initialized MPI here.
pid_t process = 0;
std::atomic<bool> has_failed{false};
std::atomic<int> num_calls{0};

/// Where processes wait for each other at exit: all of MPI_COMM_WORLD, or null where some of them are no workers.
struct ExitCommunicator {
  std::mutex mutex;
  MPI_Comm communicator = MPI_COMM_NULL;
};

ExitCommunicator& exit_communicator() {
  static auto* const instance = new ExitCommunicator;  // used after static objects are destroyed
  return *instance;
}

bool is_running() {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0;
}

/// Returns whether all processes have come to their exit. One that has failed waits for kFailedExitTime at most.
bool all_exit(bool failed) {
  const MPI_Comm communicator = exit_communicator().communicator;
  if (communicator == MPI_COMM_NULL) return !failed;  // MPI_Finalize itself waits
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Ibarrier(communicator, &request) != MPI_SUCCESS) return false;
  const auto deadline = Clock::now() + kFailedExitTime;
  int done = 0;
  while (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0) {
    if (failed && Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kExitPoll);
  }
  return done != 0;
}

/// MPI_Finalize waits for all processes, so others must learn before it that this one has left. It is not called where
/// it would wait for processes that are gone, or beside a thread that is in a call of MPI.
void finish(int status, void*) {
  if (getpid() != process) return;  // a forked process has not started MPI
  leave_all_jobs(status);
  if (!is_running() || num_calls > 0) return;
  if (all_exit(has_failed || status != 0) && num_calls == 0) MPI_Finalize();
}

/// Open MPI's plugins look up its symbols among those of the whole program.
void show_symbols_to_plugins() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&MPI_Init_thread), &info) == 0) return;
  dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

void check(int code, std::string_view call, const std::string& name) {
  LOCKSTEP_CHECK_COLLECTIVE(code == MPI_SUCCESS, "[mpi] ", call, " failed: transport=", name,
                            "; MPI says: ", mpi_words(code));
}

MPI_Comm communicator_of(MPI_Group workers, int tag, const std::string& name) {
  MPI_Comm communicator = MPI_COMM_NULL;
  check(MPI_Comm_create_group(MPI_COMM_WORLD, workers, tag, &communicator), "MPI_Comm_create_group", name);
  MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
  return communicator;
}

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

}  // namespace

std::string mpi_words(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return {text.data(), static_cast<size_t>(length)};
}

void start_mpi() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  int initialized = 0;
  MPI_Initialized(&initialized);
  int level = MPI_THREAD_SINGLE;
  if (initialized == 0) {
    show_symbols_to_plugins();
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread", "-");
    process = getpid();
    on_exit(&finish, nullptr);
  } else {
    MPI_Query_thread(&level);
  }
  LOCKSTEP_CHECK_IMPLEMENTED(
      level >= MPI_THREAD_MULTIPLE, "[mpi] several threads must be allowed to communicate: level=", level,
      ", needed=", MPI_THREAD_MULTIPLE, "; start MPI with MPI_Init_thread(MPI_THREAD_MULTIPLE), or not at all");
}

void note_mpi_failure() { has_failed = true; }

MpiCall::MpiCall() { ++num_calls; }
MpiCall::~MpiCall() { --num_calls; }

MPI_Comm make_communicator(Job& job, const std::string& name, std::chrono::milliseconds timeout) {
  std::vector<int> ranks;
  for (const auto& rank : job.all_gather(name + "/mpi", std::to_string(world_rank()), timeout)) {
    ranks.push_back(std::stoi(rank));
  }
  int world_size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  const bool one_program =
      std::set<int>(ranks.begin(), ranks.end()).size() == ranks.size() && *std::ranges::max_element(ranks) < world_size;
  LOCKSTEP_CHECK_COLLECTIVE(one_program,
                            "[mpi] all workers must be processes of one MPI program: workers=", ranks.size(),
                            ", processes=", world_size, ", rank=", world_rank(), "; start all of them by one mpirun");

  MPI_Group world{};
  MPI_Group workers{};
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group", name);
  check(MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &workers), "MPI_Group_incl", name);
  MPI_Comm communicator = communicator_of(workers, kWorkersTag, name);
  if (static_cast<int>(ranks.size()) == world_size) {
    const std::lock_guard lock(exit_communicator().mutex);
    MPI_Comm& at_exit = exit_communicator().communicator;
    if (at_exit == MPI_COMM_NULL) at_exit = communicator_of(workers, kExitTag, name);
  }
  MPI_Group_free(&workers);
  MPI_Group_free(&world);
  has_failed = false;  // all workers have taken part: this is a new job
  return communicator;
}

void free_communicator(MPI_Comm& communicator) {
  // MPI_Comm_free is a collective: after a failure it would not return.
  if (communicator != MPI_COMM_NULL && is_running() && !has_failed) MPI_Comm_free(&communicator);
}

}  // namespace lockstep::comm
