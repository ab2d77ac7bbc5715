#include "lockstep/data/element/named.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace detail {

namespace {

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
  };
}

}  // namespace detail

const Leaf& Named::leaf(std::string_view name) const {
  const auto found = parts_.find(name);
  if (found != parts_.end()) return found->second;
  detail::fail_unknown_name(name, names());
}

std::vector<std::string> Named::names() const {
  std::vector<std::string> names;
  for (const auto& part : parts_) names.push_back(part.first);
  return names;
}

}  // namespace lockstep::data
