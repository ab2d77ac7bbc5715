#pragma once

#include "lockstep/xla/pjrt/plugin.h"

namespace lockstep::xla {

/// What PJRT knows of a loaded program; destroyed by who asked for it.
class ProgramDescription {
 public:
  ProgramDescription(const Plugin& plugin, void* loaded)
      : plugin_(plugin), handle_(plugin.object(c_api::Slot::kLoadedExecutableGetExecutable, loaded, "executable")) {}
  ProgramDescription(const ProgramDescription&) = delete;
  ProgramDescription& operator=(const ProgramDescription&) = delete;
  ~ProgramDescription() { plugin_.destroy(c_api::Slot::kExecutableDestroy, handle_); }

  void* handle() const { return handle_; }

 private:
  const Plugin& plugin_;
  void* handle_;
};

}  // namespace lockstep::xla
