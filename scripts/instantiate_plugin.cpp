// A plugin of g++ that makes precompiled headers cheap to use: `#pragma lockstep instantiate` instantiates the
// templates that the headers so far need. Without it g++ does that at the end of every unit, also of an empty one,
// which takes 0.7 s for ATen/core/Tensor.h and 3 s for torch/nn/module.h. scripts/check_alone.py compiles it.
//
// The headers for plugins are a package of their own, so the few functions are declared here. A g++ that does not have
// them refuses to load the plugin.

struct cpp_reader;
struct plugin_name_args;
struct plugin_gcc_version;

void instantiate_pending_templates(int retries);
void c_register_pragma(const char* space, const char* name, void (*handler)(cpp_reader*));
extern "C" void register_callback(const char* plugin, int event, void (*callback)(void*, void*), void* data);

int plugin_is_GPL_compatible;

namespace {

constexpr int kRegisterPragmas = 15;  // PLUGIN_PRAGMAS of gcc/plugin.def

void instantiate(cpp_reader*) { instantiate_pending_templates(0); }

void register_pragmas(void*, void*) { c_register_pragma("lockstep", "instantiate", instantiate); }

}  // namespace

extern "C" int plugin_init(plugin_name_args*, plugin_gcc_version*) {
  register_callback("lockstep", kRegisterPragmas, register_pragmas, nullptr);
  return 0;
}
