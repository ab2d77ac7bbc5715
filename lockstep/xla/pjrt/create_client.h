#pragma once

#include "lockstep/xla/pjrt/plugin.h"
#include "lockstep/xla/pjrt/plugin_options.h"

namespace lockstep::xla {

/// Whether the file name is that of a plugin for accelerators, whose number of devices is fixed.
bool has_own_devices(const Plugin& plugin);

/// Throws if there are options: plugins for CPUs ignore all but the number of devices.
void check_known_to_cpu(const Plugin& plugin, const PluginOptions& options);

/// Creates a client of the plugin, with `options` and these defaults: a plugin for CPUs gets `num_cpu_devices`; one for
/// GPUs takes memory as it is needed (preallocate=false), because LibTorch uses the same GPU. Throws an error that
/// names the options if the plugin does not know one of them.
void* create_client(const Plugin& plugin, const PluginOptions& options, int num_cpu_devices);

}  // namespace lockstep::xla
