#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "lockstep/xla/pjrt/client.h"
#include "tools/print_result.h"

/// `lockstep doctor --xla`: the available XLA plugins, their devices, and whether they work.
namespace lockstep::tools {

/// One plugin, opened and tried.
struct PluginState {
  std::string file{};
  /// Why it could not be opened; the fields below are then empty.
  std::string error{};
  std::string api_version{};
  std::string platform{};
  std::string platform_version{};
  std::vector<xla::DeviceInfo> devices{};
  xla::HiddenSve hidden_sve = xla::HiddenSve::No;
  /// The result of a sum over all devices: "sum over 4 devices: ok".
  std::string self_test{};
  bool passed = false;
};

struct XlaState {
  std::vector<PluginState> plugins{};
  /// The paths that were searched.
  std::vector<std::string> searched{};

  /// Returns whether there is a plugin, and every one works.
  bool passed() const;
};

/// Looks for plugins, opens each, and sums a number over its devices.
XlaState examine_xla();

/// Prints the state for people; without a plugin, also the searched paths and how to get one.
void print_xla(const XlaState& state, std::ostream& out);

Json to_json(const XlaState& state);

}  // namespace lockstep::tools
