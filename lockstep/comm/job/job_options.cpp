#include "lockstep/comm/job/job_options.h"

#include "lockstep/base/error.h"
#include "lockstep/comm/job/crypto.h"
#include "lockstep/comm/job/socket.h"

namespace lockstep::comm {
namespace job {
namespace {

void check_addresses(const JobOptions& options) {
  const std::string coordinator = parse_endpoint(options.addresses[0]).host;
  for (size_t i = 1; i < options.addresses.size(); ++i) {
    if (options.addresses[i].empty()) continue;
    const std::string host = parse_endpoint(options.addresses[i]).host;
    LOCKSTEP_CHECK_VALUE(!is_loopback(coordinator) || is_loopback(host),
                         "[join_job] a loopback address cannot be reached from other hosts: addresses[0]=\"",
                         options.addresses[0], "\", addresses[", i, "]=\"", options.addresses[i],
                         "\"; give worker 0 an address of its host that the others can reach");
  }
}

void check_times(const JobOptions& options) {
  using std::chrono::milliseconds;
  LOCKSTEP_CHECK_VALUE(options.join_timeout > milliseconds(0),
                       "[join_job] join_timeout must be positive: ", "join_timeout=", seconds(options.join_timeout));
  LOCKSTEP_CHECK_VALUE(
      options.heartbeat_interval > milliseconds(0),
      "[join_job] heartbeat_interval must be positive: heartbeat_interval=", seconds(options.heartbeat_interval));
  LOCKSTEP_CHECK_VALUE(options.heartbeat_timeout > options.heartbeat_interval,
                       "[join_job] heartbeat_timeout must be longer than heartbeat_interval: heartbeat_timeout=",
                       seconds(options.heartbeat_timeout),
                       ", heartbeat_interval=", seconds(options.heartbeat_interval));
}

}  // namespace

std::string seconds(std::chrono::milliseconds time) {
  const auto tenths = (time.count() + 50) / 100;
  const std::string fraction = tenths % 10 == 0 ? "" : "." + std::to_string(tenths % 10);
  return std::to_string(tenths / 10) + fraction + " s";
}

}  // namespace job

void JobOptions::validate() const {
  LOCKSTEP_CHECK_VALUE(!addresses.empty(), "[join_job] a job has at least one worker: addresses is empty");
  const int num_workers = static_cast<int>(addresses.size());
  LOCKSTEP_CHECK_VALUE(worker >= 0 && worker < num_workers,
                       "[join_job] worker must be one of the job's: worker=", worker, ", num_workers=", num_workers);
  LOCKSTEP_CHECK_VALUE(names.empty() || names.size() == addresses.size(),
                       "[join_job] names must be empty or one for each worker: names=", names.size(),
                       ", num_workers=", num_workers);
  job::check_addresses(*this);
  job::check_times(*this);
  if (!interface_address.empty()) job::resolve_interface(interface_address);
  if (!token.empty()) job::check_tokens_are_supported();
}

std::string JobOptions::worker_name(int number, const std::string& seen_address) const {
  const auto index = static_cast<size_t>(number);
  const std::string name = index >= names.size() ? "worker " + std::to_string(number) : names[index];
  // A peer that is not in a job yet has no address in it.
  const std::string& address = index >= addresses.size() || addresses[index].empty() ? seen_address : addresses[index];
  return address.empty() ? name : name + " (" + address + ")";
}

}  // namespace lockstep::comm
