#include "lockstep/data/element/named.h"

#include <algorithm>
#include <array>
#include <functional>
#include <mutex>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace detail {

namespace {

/// The mutex that guards the tensors that an element has made; elements share a few.
std::mutex& mutex_of(const void* element) {
  static std::array<std::mutex, 16> mutexes;
  return mutexes[std::hash<const void*>{}(element) / 64 % mutexes.size()];
}

[[noreturn]] void fail_unknown_name(std::string_view name, const std::vector<std::string>& known) {
  std::string list;
  for (const std::string& each : known) list += (list.empty() ? "" : ", ") + each;
  LOCKSTEP_THROW(c10::ValueError, "[Named] the element has no part of this name: name=\"", name, "\"; it has: ", list);
}

}  // namespace

std::function<void(Element& in, Element& out)> pick_fields(std::vector<std::string> names) {
  return [names = std::move(names)](Element& in, Element& out) {
    static const std::vector<std::string> kNone;
    const std::vector<std::string>& keys = in.layout ? in.layout->keys : kNone;
    LOCKSTEP_CHECK_TYPE(keys.size() == in.leaves.size(), "[fields] elements must be Named: parts=", in.leaves.size(),
                        ", names=", keys.size());
    out.clear();
    for (const std::string& name : names) {
      const auto found = std::find(keys.begin(), keys.end(), name);
      if (found == keys.end()) fail_unknown_name(name, keys);
      out.leaves.push_back(in.leaves[found - keys.begin()]);
    }
    in.clear();  // the parts have one holder: functions get them without a copy
  };
}

}  // namespace detail

Named::Named(const Named& other) : parts_(other.parts_) {
  const std::lock_guard lock(detail::mutex_of(&other));
  made_ = other.made_;
}

Named& Named::operator=(const Named& other) {
  if (this != &other) *this = Named(other);
  return *this;
}

const Leaf& Named::leaf(std::string_view name) const {
  {
    const std::lock_guard lock(detail::mutex_of(this));
    const auto made = made_.find(name);
    if (made != made_.end()) return made->second;
  }
  const auto found = parts_.find(name);
  if (found != parts_.end()) return found->second;
  detail::fail_unknown_name(name, names());
}

void Named::set_leaf(std::string name, Leaf leaf) {
  made_.erase(name);
  parts_.insert_or_assign(std::move(name), std::move(leaf));
}

at::Tensor Named::tensor(std::string_view name) const {
  const Leaf& found = leaf(name);
  if (const auto* tensor = found.as<at::Tensor>()) return *tensor;
  Leaf part = found;
  at::Tensor tensor = detail::take_tensor(part);
  const std::lock_guard lock(detail::mutex_of(this));
  return *made_.try_emplace(std::string(name), std::move(tensor)).first->second.as<at::Tensor>();
}

std::vector<std::string> Named::names() const {
  std::vector<std::string> names;
  for (const auto& part : parts_) names.push_back(part.first);
  return names;
}

}  // namespace lockstep::data
