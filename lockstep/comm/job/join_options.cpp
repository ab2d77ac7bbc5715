#include "lockstep/comm/job/join_options.h"

#include "lockstep/base/error.h"
#include "lockstep/comm/job/endpoint.h"
#include "lockstep/comm/job/hmac.h"

namespace lockstep::comm::job {
namespace {

void check_addresses(const JobOptions& options) {
  const std::string coordinator = parse_endpoint(options.addresses[0]).host;
  for (size_t i = 1; i < options.addresses.size(); ++i) {
    if (options.addresses[i].empty()) continue;
    const std::string host = parse_endpoint(options.addresses[i]).host;
    LOCKSTEP_CHECK_VALUE(!is_loopback(coordinator) || is_loopback(host),
                         "[Job::join] a loopback address cannot be reached from other hosts: addresses[0]=\"",
                         options.addresses[0], "\", addresses[", i, "]=\"", options.addresses[i],
                         "\"; give worker 0 an address of its host that the others can reach");
  }
}

void check_times(const JobOptions& options) {
  using std::chrono::milliseconds;
  LOCKSTEP_CHECK_VALUE(options.join_timeout > milliseconds(0),
                       "[Job::join] join_timeout must be positive: ", "join_timeout=", seconds(options.join_timeout));
  LOCKSTEP_CHECK_VALUE(
      options.heartbeat_interval > milliseconds(0),
      "[Job::join] heartbeat_interval must be positive: heartbeat_interval=", seconds(options.heartbeat_interval));
  LOCKSTEP_CHECK_VALUE(options.heartbeat_timeout > options.heartbeat_interval,
                       "[Job::join] heartbeat_timeout must be longer than heartbeat_interval: heartbeat_timeout=",
                       seconds(options.heartbeat_timeout),
                       ", heartbeat_interval=", seconds(options.heartbeat_interval));
}

}  // namespace

void check(const JobOptions& options) {
  LOCKSTEP_CHECK_VALUE(!options.addresses.empty(), "[Job::join] a job has at least one worker: addresses is empty");
  const int num_workers = static_cast<int>(options.addresses.size());
  LOCKSTEP_CHECK_VALUE(options.worker >= 0 && options.worker < num_workers,
                       "[Job::join] worker must be one of the job's: worker=", options.worker,
                       ", num_workers=", num_workers);
  LOCKSTEP_CHECK_VALUE(options.names.empty() || options.names.size() == options.addresses.size(),
                       "[Job::join] names must be empty or one for each worker: names=", options.names.size(),
                       ", num_workers=", num_workers);
  check_addresses(options);
  check_times(options);
  if (!options.interface_address.empty()) resolve_interface(options.interface_address);
  if (!options.token.empty()) check_tokens_are_supported();
}

std::string worker_name(const JobOptions& options, int worker, const std::string& seen_address) {
  const auto index = static_cast<size_t>(worker);
  const std::string name = options.names.empty() ? "worker " + std::to_string(worker) : options.names[index];
  const std::string& address = options.addresses[index].empty() ? seen_address : options.addresses[index];
  return address.empty() ? name : name + " (" + address + ")";
}

std::vector<std::string> worker_names(const JobOptions& options) {
  std::vector<std::string> names;
  for (size_t i = 0; i < options.addresses.size(); ++i) names.push_back(worker_name(options, static_cast<int>(i), ""));
  return names;
}

std::string seconds(std::chrono::milliseconds time) {
  const auto tenths = (time.count() + 50) / 100;
  const std::string fraction = tenths % 10 == 0 ? "" : "." + std::to_string(tenths % 10);
  return std::to_string(tenths / 10) + fraction + " s";
}

}  // namespace lockstep::comm::job
