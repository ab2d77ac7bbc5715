#include "lockstep/cluster/launcher.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>

#include "lockstep/base/error.h"

namespace lockstep::detail {
namespace {

int parsed(const std::string& name, const std::string& text, int least) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  LOCKSTEP_CHECK_VALUE(error == std::errc() && end == text.data() + text.size() && value >= least,
                       "[environment] the variable must be a whole number of at least ", least, ": ", name, "=\"", text,
                       "\"");
  return value;
}

}  // namespace

int required_number(const Environment& environment, const std::string& name, const std::string& outside, int least) {
  const auto text = environment.get(name);
  LOCKSTEP_CHECK_CONTEXT(text.has_value(), "[environment] the variable is not set: name=", name, "; ", outside);
  return parsed(name, *text, least);
}

std::optional<int> optional_number(const Environment& environment, const std::string& name, int least) {
  const auto text = environment.given(name);
  return text ? std::optional(parsed(name, *text, least)) : std::nullopt;
}

std::optional<SourcedAddress> given_coordinator(const Environment& environment) {
  const auto text = environment.given("LOCKSTEP_COORDINATOR");
  if (!text) return std::nullopt;
  const size_t colon = text->rfind(':');
  LOCKSTEP_CHECK_VALUE(colon != std::string::npos && colon > 0,
                       "[environment] the variable must be host:port: LOCKSTEP_COORDINATOR=\"", *text, "\"");
  const int port = parsed("port of LOCKSTEP_COORDINATOR", text->substr(colon + 1), 1);
  LOCKSTEP_CHECK_VALUE(port <= 65535, "[environment] a port is at most 65535: LOCKSTEP_COORDINATOR=\"", *text, "\"");
  return SourcedAddress{*text, "LOCKSTEP_COORDINATOR"};
}

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t start = 0; !text.empty() && start <= text.size();) {
    const size_t end = std::min(text.find(',', start), text.size());
    parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

std::string host_and_port(const std::string& host, int port) {
  const bool is_bare_ipv6 = host.find(':') != std::string::npos && !host.starts_with('[');
  return is_bare_ipv6 ? c10::str("[", host, "]:", port) : c10::str(host, ":", port);
}

int port_of_job(const std::string& job_id) {
  constexpr int kFirst = 20000;
  constexpr int kEnd = 32768;
  uint32_t hash = 2166136261u;  // FNV-1a: the same in every process, unlike std::hash
  for (const unsigned char c : job_id) hash = (hash ^ c) * 16777619u;
  return kFirst + static_cast<int>(hash % (kEnd - kFirst));
}

Resolution resolution_of(const RankedJob& job) {
  LOCKSTEP_CHECK_VALUE(job.rank < job.size, "[", job.launcher,
                       "] a rank is below the number of ranks: ", job.rank_source, "=", job.rank, ", ", job.size_source,
                       "=", job.size);
  std::map<int, std::string> addresses;
  for (int rank = 0; rank < job.size; ++rank) addresses[rank] = rank == 0 ? job.coordinator.address : "";
  Resolution result;
  result.cluster = ClusterSpec({{"worker", addresses}});
  result.task_type = "worker";
  result.task_id = job.rank;
  result.local_task = job.local_task;
  result.facts = {{"task type", "worker", job.launcher},
                  {"task id", std::to_string(job.rank), job.rank_source},
                  {"number of workers", std::to_string(job.size), job.size_source}};
  if (job.local_task) {
    result.facts.push_back(
        {"task on this machine", c10::str(job.local_task->index, " of ", job.local_task->num_tasks), job.local_source});
  }
  const auto tasks = task_facts(result.cluster, job.coordinator.source);
  result.facts.insert(result.facts.end(), tasks.begin(), tasks.end());
  return result;
}

}  // namespace lockstep::detail
