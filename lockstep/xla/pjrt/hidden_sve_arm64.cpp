#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <string>
#include <string_view>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include "lockstep/xla/pjrt/hidden_sve.h"
#include "lockstep/xla/pjrt/imports.h"

namespace lockstep::xla {
namespace {

constexpr const char* kProcessorFile = "/proc/cpuinfo";
constexpr std::string_view kImplementer = "CPU implementer";
constexpr std::string_view kPart = "CPU part";

/// Implementer and part number of a core in /proc/cpuinfo.
struct Core {
  unsigned implementer;
  unsigned part;
  bool operator==(const Core&) const = default;
};

/// Cores that LLVM compiles for with SVE.
constexpr std::array kCoresWithSve{
    Core{0x41, 0xd40},  // Neoverse V1
    Core{0x41, 0xd49},  // Neoverse N2
    Core{0x41, 0xd4f},  // Neoverse V2
    Core{0x41, 0xd83},  // Neoverse V3AE
    Core{0x41, 0xd84},  // Neoverse V3
    Core{0x41, 0xd8e},  // Neoverse N3
    Core{0x41, 0xd46},  // Cortex-A510
    Core{0x41, 0xd47},  // Cortex-A710
    Core{0x41, 0xd48},  // Cortex-X2
    Core{0x41, 0xd4d},  // Cortex-A715
    Core{0x41, 0xd4e},  // Cortex-X3
    Core{0x41, 0xd80},  // Cortex-A520
    Core{0x41, 0xd81},  // Cortex-A720
    Core{0x41, 0xd82},  // Cortex-X4
    Core{0x41, 0xd85},  // Cortex-X925
    Core{0x41, 0xd87},  // Cortex-A725
    Core{0x46, 0x001},  // A64FX
    Core{0x46, 0x003},  // Monaka
    Core{0x4e, 0x010},  // Olympus
    Core{0x6d, 0xd49},  // Azure Cobalt 100
};

/// Neoverse N1: the features of the cores above without SVE and later ones.
constexpr Core kCoreWithoutSve{0x41, 0xd0c};

/// Returns the number after the colon.
unsigned value_of(const std::string& line) {
  const auto colon = line.find(':');
  return colon == std::string::npos ? 0 : static_cast<unsigned>(std::strtoul(line.c_str() + colon + 1, nullptr, 16));
}

/// Returns whether a core of this machine is in the table.
bool has_core_with_sve() {
  std::ifstream file(kProcessorFile);
  unsigned implementer = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kImplementer)) implementer = value_of(line);
    if (!line.starts_with(kPart)) continue;
    const Core core{implementer, value_of(line)};
    if (std::find(kCoresWithSve.begin(), kCoresWithSve.end(), core) != kCoresWithSve.end()) return true;
  }
  return false;
}

/// Returns the text of /proc/cpuinfo with every core replaced.
std::string text_without_sve() {
  std::ifstream file(kProcessorFile);
  std::string text;
  char core[64];
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kImplementer)) {
      std::snprintf(core, sizeof(core), "%s\t: 0x%02x", kImplementer.data(), kCoreWithoutSve.implementer);
      line = core;
    } else if (line.starts_with(kPart)) {
      std::snprintf(core, sizeof(core), "%s\t: 0x%03x", kPart.data(), kCoreWithoutSve.part);
      line = core;
    }
    text += line + '\n';
  }
  return text;
}

/// Opens a memory file with that text; -1 on failure: a reader without the file assumes a generic core.
int open_without_sve() {
  const int file = memfd_create("cpuinfo", MFD_CLOEXEC);
  if (file < 0) return -1;
  const std::string text = text_without_sve();
  if (write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size()) || lseek(file, 0, SEEK_SET) != 0) {
    close(file);
    return -1;
  }
  return file;
}

int open_for_plugin(const char* path, int flags, ...) {
  if (std::string_view(path) == kProcessorFile) return open_without_sve();
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) {
    std::va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  return ::open(path, flags, mode);
}

std::FILE* fopen_for_plugin(const char* path, const char* mode) {
  if (std::string_view(path) != kProcessorFile) return std::fopen(path, mode);
  const int file = open_without_sve();
  return file < 0 ? nullptr : fdopen(file, mode);
}

}  // namespace

HiddenSve cure_hidden_sve(void* module) {
  const bool visible = (getauxval(AT_HWCAP) & HWCAP_SVE) != 0;
  if (visible || !has_core_with_sve()) return HiddenSve::No;
  void* const open = reinterpret_cast<void*>(&open_for_plugin);
  void* const fopen = reinterpret_cast<void*>(&fopen_for_plugin);
  const std::array redirections{Redirection{"open", open}, Redirection{"open64", open}, Redirection{"fopen", fopen},
                                Redirection{"fopen64", fopen}};
  return redirect_imports(module, redirections) > 0 ? HiddenSve::Cured : HiddenSve::NotCured;
}

}  // namespace lockstep::xla
