#include "tools/run/run_environment.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cstdio>
#include <fstream>
#include <netinet/in.h>
#include <random>
#include <set>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/job/crypto.h"

namespace lockstep::tools {
namespace {

constexpr int kLowestPort = 20'000;
constexpr int kHighestPort = 32'767;  // outgoing connections begin above it
constexpr int kHighestPossiblePort = 65'535;

bool is_free(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const int reuse = 1;  // what lingers after a connection's end does not make a port taken
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return free;
}

std::vector<int> ports_from(int first, int count) {
  LOCKSTEP_CHECK_VALUE(first >= 1 && first + count - 1 <= kHighestPossiblePort,
                       "[run] the ports of all workers must lie between 1 and ", kHighestPossiblePort, ": port=", first,
                       ", workers=", count, "; give a smaller --port");
  std::vector<int> ports;
  for (int port = first; port < first + count; ++port) {
    LOCKSTEP_CHECK_VALUE(is_free(port), "[run] the workers' ports must be free: port=", port,
                         "; give another --port, or none to have free ones found");
    ports.push_back(port);
  }
  return ports;
}

std::vector<int> any_ports(int count) {
  constexpr int kAttempts = 100'000;
  std::random_device random;
  std::uniform_int_distribution<int> draw(kLowestPort, kHighestPort);
  std::set<int> taken;
  std::vector<int> ports;
  for (int attempt = 0; attempt < kAttempts && static_cast<int>(ports.size()) < count; ++attempt) {
    const int port = draw(random);
    if (taken.insert(port).second && is_free(port)) ports.push_back(port);
  }
  LOCKSTEP_CHECK_VALUE(static_cast<int>(ports.size()) == count,
                       "[run] there must be a free port for each worker: workers=", count, ", free=", ports.size(),
                       ", from=", kLowestPort, ", to=", kHighestPort, "; start fewer workers");
  return ports;
}

std::string_view name_of(std::string_view variable) { return variable.substr(0, variable.find('=')); }

}  // namespace

std::vector<int> find_ports(int count, std::optional<int> first) {
  return first ? ports_from(*first, count) : any_ports(count);
}

std::string make_token() {
  std::random_device random;
  std::string token;
  for (int word = 0; word < 4; ++word) {
    std::array<char, 9> digits{};
    std::snprintf(digits.data(), digits.size(), "%08x", random());
    token += digits.data();
  }
  return token;
}

std::string cluster_config(const std::vector<int>& ports, int index) {
  nlohmann::ordered_json workers = nlohmann::ordered_json::array();
  for (const int port : ports) workers.push_back("127.0.0.1:" + std::to_string(port));
  return nlohmann::ordered_json{{"cluster", {{"worker", workers}}}, {"task", {{"type", "worker"}, {"index", index}}}}
      .dump();
}

std::vector<std::string> job_variables(const JobSettings& settings) {
  std::vector<std::string> result{"LOCKSTEP_RESTART=" + std::to_string(settings.restart)};
  if (!settings.token_file.empty()) {
    result.emplace_back("LOCKSTEP_JOB_TOKEN");
    result.push_back("LOCKSTEP_JOB_TOKEN_FILE=" + settings.token_file);
  } else if (settings.can_have_token && !env::given("LOCKSTEP_JOB_TOKEN") && !env::given("LOCKSTEP_JOB_TOKEN_FILE")) {
    result.push_back("LOCKSTEP_JOB_TOKEN=" + make_token());
  }
  return result;
}

std::string launcher_token(const std::string& token_file, bool required) {
  const std::string file = token_file.empty() ? env::text("LOCKSTEP_JOB_TOKEN_FILE") : token_file;
  if (!file.empty()) {
    std::ifstream in(file);
    std::string token;
    std::getline(in, token);
    LOCKSTEP_CHECK_VALUE(!token.empty(),
                         "[run] the file must hold the job's token in its first line: token_file=", file);
    return token;
  }
  if (const auto token = env::given("LOCKSTEP_JOB_TOKEN")) return *token;
  const bool is_supported = comm::job::tokens_are_supported();
  LOCKSTEP_CHECK_VALUE(
      !required, "[run] launchers of one job must have the same token; ",
      is_supported ? "give --token-file or LOCKSTEP_JOB_TOKEN" : "build lockstep with OpenSSL, which tokens need");
  return is_supported ? make_token() : "";
}

std::vector<std::string> elastic_variables(const std::string& address, uint64_t worker, int start,
                                           const std::string& token_file, const std::string& token) {
  std::vector<std::string> result{"LOCKSTEP_RESTART=" + std::to_string(start), "LOCKSTEP_VIEWS=" + address,
                                  "LOCKSTEP_VIEW_WORKER=" + std::to_string(worker), "TF_CONFIG"};
  if (!token_file.empty()) {
    result.emplace_back("LOCKSTEP_JOB_TOKEN");
    result.push_back("LOCKSTEP_JOB_TOKEN_FILE=" + token_file);
  } else if (!token.empty() && !env::given("LOCKSTEP_JOB_TOKEN_FILE")) {
    result.push_back("LOCKSTEP_JOB_TOKEN=" + token);
  }
  return result;
}

std::vector<std::string> changed_environment(const std::vector<std::string>& changes) {
  std::vector<std::string> result;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const auto is_same = [&](const std::string& change) { return name_of(change) == name_of(*variable); };
    if (std::none_of(changes.begin(), changes.end(), is_same)) result.emplace_back(*variable);
  }
  for (const std::string& change : changes) {
    if (change.find('=') != std::string::npos) result.push_back(change);
  }
  return result;
}

}  // namespace lockstep::tools
