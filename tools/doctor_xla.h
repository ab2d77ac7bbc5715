#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "lockstep/xla/pjrt/client.h"
#include "tools/report.h"

/// `lockstep doctor --xla`: which plugins of XLA are there, what devices they have, and whether they work.
namespace lockstep::tools {

/// One plugin, opened and tried.
struct PluginState {
  std::string file{};
  /// What went wrong, where it could not be opened; the fields below are then empty.
  std::string error{};
  std::string api_version{};
  std::string platform{};
  std::string platform_version{};
  std::vector<xla::DeviceInfo> devices{};
  xla::HiddenSve hidden_sve = xla::HiddenSve::kNo;
  /// What came of a sum over all devices: "sum over 4 devices: ok".
  std::string self_test{};
  bool passed = false;
};

struct XlaState {
  std::vector<PluginState> plugins{};
  /// Places that were looked at.
  std::vector<std::string> searched{};

  /// Returns whether there is a plugin, and every one works.
  bool passed() const;
};

/// Looks for plugins, opens each, and sums a number over its devices.
XlaState examine_xla();

/// Prints it for people; where there is no plugin, also where one was sought and how to get one.
void print_xla(const XlaState& state, std::ostream& out);

Json to_json(const XlaState& state);

}  // namespace lockstep::tools
