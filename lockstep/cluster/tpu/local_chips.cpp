#include "lockstep/cluster/tpu/local_chips.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "lockstep/cluster/tpu/accelerator_type.h"

namespace lockstep::tpu {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGoogle = "0x1ae0";

// Google's devices that are TPU chips, and how many devices each shows: v2 and v3, v4, v5p, v5e, v6e, 7x.
constexpr std::array<std::pair<std::string_view, int>, 6> kChips{
    {{"0x0027", 2}, {"0x005e", 1}, {"0x0062", 1}, {"0x0063", 1}, {"0x006f", 1}, {"0x0076", 2}}};

std::string first_word(const fs::path& file) {
  std::ifstream stream(file);
  std::string word;
  stream >> word;
  return word;
}

/// Calls `visit` with each entry of a folder; a folder that cannot be read has none.
template <typename Visit>
void each_entry(const fs::path& folder, Visit&& visit) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    visit(entry->path());
  }
}

LocalChips on_pci_bus(const fs::path& root) {
  LocalChips chips{0, 1, "PCI devices of Google"};
  each_entry(root / "sys/bus/pci/devices", [&](const fs::path& device) {
    if (first_word(device / "vendor") != kGoogle) return;
    const std::string id = first_word(device / "device");
    const auto* kind = std::find_if(kChips.begin(), kChips.end(), [&](const auto& chip) { return chip.first == id; });
    if (kind == kChips.end()) return;
    ++chips.num_chips;
    chips.cores_per_chip = kind->second;
  });
  return chips;
}

/// Counts entries whose names are `prefix` and a number.
int count_numbered(const fs::path& folder, std::string_view prefix) {
  int count = 0;
  each_entry(folder, [&](const fs::path& entry) {
    const std::string name = entry.filename().string();
    if (!name.starts_with(prefix) || name.size() == prefix.size()) return;
    count += std::all_of(name.begin() + static_cast<ptrdiff_t>(prefix.size()), name.end(),
                         [](unsigned char c) { return std::isdigit(c) != 0; })
                 ? 1
                 : 0;
  });
  return count;
}

int cores_of_type(const Environment& variables) {
  for (const char* name : {"TPU_ACCELERATOR_TYPE", "ACCELERATOR_TYPE"}) {
    const auto text = variables.given(name);
    const auto type = text ? find_accelerator_type(*text) : std::nullopt;
    if (type) return type->cores_per_chip;
  }
  return 1;
}

LocalChips found(const fs::path& root, const Environment& variables) {
  LocalChips chips = on_pci_bus(root);
  if (chips.num_chips > 0) return chips;
  if (const int count = count_numbered(root / "dev", "accel"); count > 0) {
    return {count, cores_of_type(variables), "/dev/accel*"};
  }
  if (const int count = count_numbered(root / "dev/vfio", ""); count > 0) {
    return {count, cores_of_type(variables), "/dev/vfio"};
  }
  return {0, 1, "no chip on the PCI bus, in /dev/accel* or /dev/vfio"};
}

}  // namespace

LocalChips local_chips(const std::string& root, const Environment& variables) {
  LocalChips chips = found(root, variables);
  for (const char* name : {"TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES"}) {
    const auto text = variables.given(name);
    if (!text) continue;
    const auto listed = static_cast<int>(std::count(text->begin(), text->end(), ',')) + 1;
    if (listed < chips.num_chips) {
      chips.num_chips = listed;
      chips.source = std::string(name) + "=" + *text;
    }
    break;
  }
  return chips;
}

}  // namespace lockstep::tpu
