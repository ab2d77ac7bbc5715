#include "lockstep/state/state.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::array<const char*, std::variant_size_v<State::Value>> kKinds = {"a flag", "an integer", "a number",
                                                                               "a text", "a tensor"};

template <class T>
const T& value_as(const State::Value& value, const std::string& name, const char* wanted) {
  const T* const found = std::get_if<T>(&value);
  LOCKSTEP_CHECK_VALUE(found != nullptr, "[State] the value must be ", wanted, ": name=", name, " is ",
                       kKinds[value.index()]);
  return *found;
}

/// Names that look like `name`, for an error.
std::string names_near(const State& state, const std::string& name) {
  constexpr size_t kShown = 8;
  const std::string parent = name.substr(0, name.find('.'));
  std::vector<std::string> near;
  std::vector<std::string> all;
  for (const auto& [other, value] : state) {
    all.push_back(other);
    if (other.substr(0, other.find('.')) == parent) near.push_back(other);
  }
  std::vector<std::string>& shown = near.empty() ? all : near;
  std::ostringstream out;
  for (size_t i = 0; i < std::min(kShown, shown.size()); ++i) out << (i > 0 ? ", " : "") << shown[i];
  if (shown.size() > kShown) out << ", and " << shown.size() - kShown << " more";
  return out.str();
}

void print_list(std::ostream& out, const char* title, const std::vector<std::string>& names) {
  if (names.empty()) return;
  out << "\n  " << title << " (" << names.size() << "):";
  for (const std::string& name : names) out << "\n    " << name;
}

}  // namespace

int64_t StateTensor::numel() const {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

int64_t StateTensor::num_bytes() const { return numel() * static_cast<int64_t>(c10::elementSize(dtype)); }

void State::set(const std::string& name, Value value) {
  LOCKSTEP_CHECK_VALUE(!name.empty(), "[State] a value must have a name");
  values_.insert_or_assign(name, std::move(value));
}

void State::add(const std::string& parent, const State& child) {
  for (const auto& [name, value] : child) set(parent + "." + name, value);
}

const State::Value* State::find(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}

const State::Value& State::at(const std::string& name) const {
  const auto found = values_.find(name);
  LOCKSTEP_CHECK_VALUE(found != values_.end(), "[State] there is no value with this name: name=", name, "; there are ",
                       names_near(*this, name));
  return found->second;
}

const StateTensor& State::tensor(const std::string& name) const {
  return value_as<StateTensor>(at(name), name, "a tensor");
}

int64_t State::integer(const std::string& name) const { return value_as<int64_t>(at(name), name, "an integer"); }

double State::number(const std::string& name) const {
  const Value& value = at(name);
  if (const auto* integer = std::get_if<int64_t>(&value)) return static_cast<double>(*integer);
  return value_as<double>(value, name, "a number");
}

bool State::flag(const std::string& name) const { return value_as<bool>(at(name), name, "a flag"); }

const std::string& State::text(const std::string& name) const {
  return value_as<std::string>(at(name), name, "a text");
}

State State::below(const std::string& parent) const {
  State child;
  const std::string start = parent + ".";
  for (auto i = values_.lower_bound(start); i != values_.end() && i->first.starts_with(start); ++i) {
    child.set(i->first.substr(start.size()), i->second);
  }
  return child;
}

std::string LoadResult::str() const {
  std::ostringstream out;
  print_list(out, "missing in the state", missing);
  print_list(out, "unexpected in the state", unexpected);
  print_list(out, "of another type or shape", unfitting);
  return out.str();
}

}  // namespace lockstep
