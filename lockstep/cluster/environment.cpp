#include "lockstep/cluster/environment.h"

#include <cstdlib>
#include <utility>

#include "lockstep/base/env.h"
#include "lockstep/base/process_variable.h"

namespace lockstep {

Environment::Environment(std::map<std::string, std::string> variables)
    : variables_(std::make_shared<std::map<std::string, std::string>>(std::move(variables))) {}

Environment::Environment(std::initializer_list<std::pair<const std::string, std::string>> variables)
    : Environment(std::map<std::string, std::string>(variables)) {}

std::optional<std::string> Environment::get(const std::string& name) const {
  if (variables_ != nullptr) {
    const auto found = variables_->find(name);
    return found == variables_->end() ? std::nullopt : std::optional(found->second);
  }
  if (name.starts_with("LOCKSTEP_")) return env::given(name);  // checks that the table has it
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::optional<std::string> Environment::given(const std::string& name) const {
  auto value = get(name);
  return value && !value->empty() ? value : std::nullopt;
}

void Environment::set(const std::string& name, const std::string& value) const {
  if (variables_ != nullptr) {
    (*variables_)[name] = value;
  } else {
    set_process_variable(name, value);
  }
}

}  // namespace lockstep
