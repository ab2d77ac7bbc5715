#include "lockstep/cluster/json_text.h"

#include <charconv>
#include <map>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace detail {
namespace {

std::string address_from_json(std::string_view source, const std::string& job, const Json& address) {
  LOCKSTEP_CHECK_TYPE(address.is_string(), "[", source, "] a task's address must be a text: job=\"", job,
                      "\", address=", address.dump(), "; write \"host:port\"");
  return address;
}

int index_from_json(std::string_view source, const std::string& job, const std::string& key) {
  int index = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
  LOCKSTEP_CHECK_TYPE(error == std::errc() && end == key.data() + key.size(), "[", source,
                      "] the index of a task must be a whole number: job=\"", job, "\", index=\"", key, "\"");
  return index;
}

TaskAddresses tasks_from_json(std::string_view source, const std::string& job, const Json& tasks) {
  if (tasks.is_array()) {
    std::vector<std::string> addresses;
    for (const Json& address : tasks) addresses.push_back(address_from_json(source, job, address));
    return addresses;
  }
  LOCKSTEP_CHECK_TYPE(tasks.is_object(), "[", source,
                      "] a job's tasks must be a list of addresses, or a mapping from index to address: job=\"", job,
                      "\", tasks=", tasks.dump(), "; write [\"host:port\", ...]");
  std::map<int, std::string> by_index;
  for (const auto& [key, address] : tasks.items()) {
    by_index[index_from_json(source, job, key)] = address_from_json(source, job, address);
  }
  return by_index;
}

}  // namespace

Json parse_json(std::string_view source, std::string_view text) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    LOCKSTEP_THROW(c10::ValueError, "[", source, "] the text must be JSON: byte=", error.byte,
                   " is wrong, bytes=", text.size());
  }
  return {};
}

ClusterSpec cluster_from_json(std::string_view source, const Json& jobs) {
  LOCKSTEP_CHECK_TYPE(jobs.is_object(), "[", source,
                      "] a cluster must map job names to lists of addresses: cluster=", jobs.dump(),
                      R"(; write {"worker": ["host:port", ...]})");
  std::map<std::string, TaskAddresses> tasks;
  for (const auto& [job, value] : jobs.items()) tasks.emplace(job, tasks_from_json(source, job, value));
  return tasks;
}

std::string text_at(const Json& value, std::initializer_list<std::string_view> path) {
  const Json* place = &value;
  for (const std::string_view key : path) {
    if (!place->is_object() || !place->contains(key)) return "";
    place = &(*place)[std::string(key)];
  }
  return place->is_string() ? place->get<std::string>() : "";
}

}  // namespace detail

ClusterSpec ClusterSpec::from_json(std::string_view text) {
  return detail::cluster_from_json("ClusterSpec", detail::parse_json("ClusterSpec", text));
}

std::string ClusterSpec::to_json() const {
  detail::Json result = detail::Json::object();
  for (const auto& [job, tasks] : jobs_) {
    for (const auto& [index, address] : tasks.by_index()) {
      if (tasks.is_dense()) {
        result[job].push_back(address);
      } else {
        result[job][std::to_string(index)] = address;
      }
    }
  }
  return result.dump(-1, ' ', false, detail::Json::error_handler_t::replace);  // addresses may be any bytes
}

}  // namespace lockstep
