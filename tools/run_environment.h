#pragma once

#include <optional>
#include <string>
#include <vector>

/// What the workers of `lockstep run` are told through their environment.
namespace lockstep::tools {

/// What all workers of one attempt share.
struct JobSettings {
  /// Port of each worker on 127.0.0.1.
  std::vector<int> ports;
  /// How often the job was restarted before this attempt.
  int restart = 0;
  /// File with the secret of the job; empty: the launcher's own environment decides, and a new secret is made where it
  /// has none.
  std::string token_file;
};

/// Returns `count` ports on 127.0.0.1 that nobody listens on: `first` and those after it, or any where there is no
/// `first`. They lie below the ports that the system gives to outgoing connections, so that no worker's connection
/// takes another's port. Throws ValueError where one of `first` and those after it is taken.
std::vector<int> find_ports(int count, std::optional<int> first);

/// Returns a new secret: 128 random bits in hexadecimal digits.
std::string make_token();

/// Returns TF_CONFIG of worker `index` in a cluster of one worker at each port.
std::string cluster_config(const std::vector<int>& ports, int index);

/// Returns the variables, as NAME=value, that all workers get besides what the launcher itself has: a variable that
/// must go is NAME alone.
std::vector<std::string> job_variables(const JobSettings& settings);

/// Returns the launcher's environment with `changes` (NAME=value, or NAME for a variable that must go) made to it.
std::vector<std::string> changed_environment(const std::vector<std::string>& changes);

}  // namespace lockstep::tools
