#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// The environment of the workers of `lockstep run`.
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
  /// Whether this build supports tokens; without them any process of this machine can join.
  bool can_have_token = true;
};

/// Returns `count` ports on 127.0.0.1 that are free: `first` and those after it, or any where there is no
/// `first`. They lie below the ephemeral ports of the system, so that no worker's connection takes another's port.
/// Throws ValueError where one of `first` and those after it is taken.
std::vector<int> find_ports(int count, std::optional<int> first);

/// Returns a new secret: 128 random bits in hexadecimal digits.
std::string make_token();

/// Returns TF_CONFIG of worker `index` in a cluster of one worker at each port.
std::string cluster_config(const std::vector<int>& ports, int index);

/// Returns the variables, as NAME=value, that all workers get in addition to those of the launcher; NAME alone removes
/// a variable.
std::vector<std::string> job_variables(const JobSettings& settings);

/// Returns the secret of an elastic job: the first line of `token_file`, else that of the launcher's own environment,
/// else a new one, or none where this build supports no tokens. ValueError where the file has none, and where one is
/// `required` and not given.
std::string launcher_token(const std::string& token_file, bool required);

/// Returns the variables, as `job_variables`, of a worker of an elastic job whose views are issued at `address`, which
/// is the `start`-th one of its place.
std::vector<std::string> elastic_variables(const std::string& address, uint64_t worker, int start,
                                           const std::string& token_file, const std::string& token);

/// Returns the launcher's environment with `changes` applied (NAME=value sets, NAME removes a variable).
std::vector<std::string> changed_environment(const std::vector<std::string>& changes);

}  // namespace lockstep::tools
