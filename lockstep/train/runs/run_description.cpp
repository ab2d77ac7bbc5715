#include "lockstep/train/runs/run_description.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <pwd.h>
#include <unistd.h>

#include <torch/version.h>

#include "lockstep/base/error.h"
#include "lockstep/base/host_name.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/strategy_impl.h"
#include "lockstep/train/runs/git_state.h"
#include "lockstep/version.h"

namespace lockstep::detail {
namespace {

constexpr std::chrono::seconds kGitLimit{5};

RunJson command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  RunJson arguments = RunJson::array();
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\0', begin), text.size());
    arguments.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return arguments;
}

std::string user_name() {
  std::array<char, 4096> memory{};
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(getuid(), &entry, memory.data(), memory.size(), &found) == 0 && found != nullptr)
    return found->pw_name;
  return std::to_string(getuid());
}

RunJson described_environment() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t end = text.find('=');
    if (end == std::string_view::npos || !is_described_variable(text.substr(0, end))) continue;
    variables.emplace(text.substr(0, end), text.substr(end + 1));
  }
  return variables;
}

std::string compiler_name() {
  const std::string version = __VERSION__;
  return std::isdigit(static_cast<unsigned char>(version[0])) != 0 ? "GCC " + version : version;
}

RunJson git_json(const std::string& folder) {
  const auto state = git_state(folder, kGitLimit);
  if (!state) return nullptr;
  return {{"commit", state->commit},
          {"branch", state->branch},
          {"dirty", state->dirty},
          {"changed_files", state->changed_files},
          {"untracked_files", state->untracked_files ? RunJson(*state->untracked_files) : RunJson(nullptr)}};
}

}  // namespace

RunJson parse_configuration(const callbacks::RunFolderOptions& options) {
  if (const auto* const values = std::get_if<std::map<std::string, std::string>>(&options.configuration)) {
    RunJson object = RunJson::object();
    for (const auto& [name, value] : *values) object[name] = value;
    return object;
  }
  const std::string& text = std::get<std::string>(options.configuration);
  RunJson json = RunJson::parse(text, nullptr, /*allow_exceptions=*/false);
  LOCKSTEP_CHECK_VALUE(json.is_object(), "[run_folder] the configuration must be the text of a JSON object: ",
                       "configuration=", text.substr(0, 200));
  return json;
}

bool is_described_variable(std::string_view name) {
  constexpr std::array kPrefixes{"LOCKSTEP_", "OMP_",  "KMP_",   "MKL_",  "CUDA_",    "NVIDIA_VISIBLE_",
                                 "NCCL_",     "GLOO_", "XLA_",   "TPU_",  "PJRT_",    "TORCH_",
                                 "PYTORCH_",  "ATEN_", "SLURM_", "OMPI_", "TF_CONFIG"};
  constexpr std::array kNames{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
  constexpr std::array kSecrets{"TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "KEY", "JWT", "COOKIE"};
  const auto has = [&](const char* part) { return name.find(part) != std::string_view::npos; };
  if (std::any_of(kSecrets.begin(), kSecrets.end(), has)) return false;
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](const char* prefix) { return name.starts_with(prefix); }) ||
         std::any_of(kNames.begin(), kNames.end(), [&](const char* known) { return name == known; });
}

RunJson describe_run(const Trainer& trainer, const callbacks::RunFolderOptions& options, const std::string& name,
                     const RunJson& devices) {
  const StrategyImpl& strategy = Access::impl(trainer.strategy());
  std::error_code ignored;
  const std::string folder = std::filesystem::current_path(ignored).string();
  const std::string now = iso_time(unix_time());
  return {
      {"format", 1},
      {"name", name},
      {"created", now},
      {"started", now},
      {"ended", nullptr},
      {"state", "running"},
      {"reason", ""},
      {"command", command_line()},
      {"working_directory", folder},
      {"host", host_name()},
      {"user", user_name()},
      {"pid", getpid()},
      {"lockstep", std::string(version())},
      {"libtorch", TORCH_VERSION},
      {"compiler", compiler_name()},
      {"git", git_json(folder)},
      {"seed", options.seed ? RunJson(*options.seed) : RunJson(nullptr)},
      {"environment", described_environment()},
      {"strategy",
       {{"name", strategy.type_name()},
        {"workers", strategy.num_workers()},
        {"replicas", strategy.num_replicas_in_sync()},
        {"devices", devices}}},
      {"configuration", parse_configuration(options)},
      {"parameters", trainer.num_parameters()},
      {"resumed_from_step", trainer.step() > 0 ? RunJson(trainer.step()) : RunJson(nullptr)},
  };
}

}  // namespace lockstep::detail
