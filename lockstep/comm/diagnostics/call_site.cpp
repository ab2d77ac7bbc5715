#include "lockstep/comm/diagnostics/call_site.h"

#include <string_view>

namespace lockstep::comm {
namespace {

thread_local CallSite current_site;
thread_local CallSite latest_site;
thread_local CallerOperation current_operation;

}  // namespace

CallSite CallSite::current() { return current_site; }

CallSite CallSite::latest() { return latest_site; }

void CallSite::forget_latest() { latest_site = {}; }

std::ostream& operator<<(std::ostream& out, const CallSite& site) {
  if (!site) return out << "an unknown place";
  const std::string_view path = site.file;
  return out << path.substr(path.find_last_of('/') + 1) << ':' << site.line;
}

CallSiteScope::CallSiteScope(const std::source_location& where)
    : CallSiteScope(CallSite{where.file_name(), where.line()}) {}

CallSiteScope::CallSiteScope(const CallSite& site) : outermost_(!current_site) {
  if (outermost_) current_site = latest_site = site;
}

CallSiteScope::~CallSiteScope() {
  if (outermost_) current_site = {};
}

CallerOperation CallerOperation::current_or(std::string_view own) {
  return current_operation.name.empty() ? CallerOperation{own} : current_operation;
}

OperationScope::OperationScope(CallerOperation operation) : outermost_(current_operation.name.empty()) {
  if (outermost_) current_operation = operation;
}

OperationScope::~OperationScope() {
  if (outermost_) current_operation = {};
}

}  // namespace lockstep::comm
