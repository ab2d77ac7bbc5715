#include "lockstep/cluster/tpu/accelerator_type.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>

#include "lockstep/base/error.h"

namespace lockstep::tpu {
namespace {

struct Chips {
  int x = 1;
  int y = 1;
  int z = 1;

  constexpr int count() const { return x * y * z; }
};

// Slices that can be had by name, smallest first.
constexpr std::array kSheetsOfPods{Chips{2, 2},  Chips{4, 4},   Chips{4, 8},   Chips{8, 8},
                                   Chips{8, 16}, Chips{16, 16}, Chips{16, 32}, Chips{32, 32}};
constexpr std::array kSheets{Chips{1, 1}, Chips{2, 2}, Chips{2, 4},  Chips{4, 4},
                             Chips{4, 8}, Chips{8, 8}, Chips{8, 16}, Chips{16, 16}};
constexpr std::array kCubes{Chips{2, 2, 1},   Chips{2, 2, 2},    Chips{2, 2, 4},   Chips{2, 4, 4},  Chips{4, 4, 4},
                            Chips{4, 4, 8},   Chips{4, 8, 8},    Chips{8, 8, 8},   Chips{8, 8, 12}, Chips{8, 8, 16},
                            Chips{8, 16, 16}, Chips{16, 16, 16}, Chips{16, 16, 24}};

struct Generation {
  std::string_view name;
  std::span<const Chips> slices;
  int most_chips = 0;
  /// How much of the number in a name is one chip.
  int counted_per_chip = 1;
  int cores_per_chip = 1;
  bool has_large_hosts = false;
};

constexpr std::array kGenerations{
    Generation{"v2", kSheetsOfPods, 256, 2, 2},
    Generation{"v3", kSheetsOfPods, 1024, 2, 2},
    Generation{"v4", kCubes, 2048, 2, 1},
    Generation{"v5p", kCubes, 6144, 2, 1},
    Generation{"v5litepod", kSheets, 256, 1, 1, true},
    Generation{"v5e", kSheets, 256, 1, 1, true},
    Generation{"v6e", kSheets, 256, 1, 1, true},
    Generation{"tpu7x", kCubes, 4096, 2, 2},
};

/// A name in its two parts.
struct ParsedName {
  const Generation* generation = nullptr;
  int number = 0;
};

std::optional<ParsedName> parse(std::string_view name) {
  const size_t dash = name.rfind('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto* generation = std::find_if(kGenerations.begin(), kGenerations.end(),
                                        [&](const Generation& g) { return g.name == name.substr(0, dash); });
  int number = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + dash + 1, end, number);
  if (generation == kGenerations.end() || error != std::errc() || stop != end || number < 1) return std::nullopt;
  return ParsedName{generation, number};
}

std::string all_generations() {
  std::string names;
  for (const Generation& generation : kGenerations) names += (names.empty() ? "" : ", ") + std::string(generation.name);
  return names;
}

std::string all_names(const Generation& generation) {
  std::string names;
  for (const Chips& chips : generation.slices) {
    if (chips.count() > generation.most_chips) break;
    names += c10::str(names.empty() ? "" : ", ", generation.name, "-", chips.count() * generation.counted_per_chip);
  }
  return names;
}

}  // namespace

std::optional<AcceleratorType> find_accelerator_type(std::string_view name) {
  const auto parsed = parse(name);
  if (!parsed || parsed->number % parsed->generation->counted_per_chip != 0) return std::nullopt;
  return AcceleratorType{parsed->number / parsed->generation->counted_per_chip, parsed->generation->cores_per_chip,
                         parsed->generation->has_large_hosts};
}

MeshShape mesh_of_type(std::string_view name) {
  const auto parsed = parse(name);
  LOCKSTEP_CHECK_VALUE(parsed.has_value(), "[Topology] the type of a slice is GENERATION-SIZE: type=\"", name,
                       "\", generations: ", all_generations());
  const Generation& generation = *parsed->generation;
  for (const Chips& chips : generation.slices) {
    const bool is_it = chips.count() * generation.counted_per_chip == parsed->number;
    if (is_it && chips.count() <= generation.most_chips) return {chips.x, chips.y, chips.z, generation.cores_per_chip};
  }
  LOCKSTEP_THROW(c10::ValueError, "[Topology] there is no slice of this size: type=\"", name,
                 "\", types: ", all_names(generation), "; give the mesh where it is another");
}

MeshShape usual_host(const MeshShape& mesh, bool has_large_hosts) {
  constexpr int64_t kChipsOfLargeHost = 8;
  const int64_t num_chips = num_cores(mesh) / mesh[kCoreAxis];
  if (has_large_hosts && num_chips <= kChipsOfLargeHost) return mesh;
  return {std::min(2, mesh[0]), std::min(2, mesh[1]), 1, mesh[kCoreAxis]};
}

}  // namespace lockstep::tpu
