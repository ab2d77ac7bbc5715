#include "lockstep/comm/call_site.h"

#include <string_view>

namespace lockstep::comm {
namespace {

thread_local CallSite current_site;

}  // namespace

CallSite CallSite::current() { return current_site; }

std::ostream& operator<<(std::ostream& out, const CallSite& site) {
  if (!site) return out << "an unknown place";
  const std::string_view path = site.file;
  return out << path.substr(path.find_last_of('/') + 1) << ':' << site.line;
}

CallSiteScope::CallSiteScope(const std::source_location& where)
    : CallSiteScope(CallSite{where.file_name(), where.line()}) {}

CallSiteScope::CallSiteScope(const CallSite& site) : outermost_(!current_site) {
  if (outermost_) current_site = site;
}

CallSiteScope::~CallSiteScope() {
  if (outermost_) current_site = {};
}

}  // namespace lockstep::comm
