#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz_targets.h"
#include <gtest/gtest.h>

namespace {

std::vector<std::filesystem::path> corpus() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(LOCKSTEP_FUZZ_CORPUS)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  return files;
}

// What is kept in tests/fuzz/corpus brought a target down once, or shows it the way in. Every target gets all of it.
TEST(FuzzCorpusTest, EveryTargetStandsEveryFile) {
  const auto files = corpus();
  ASSERT_FALSE(files.empty());
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    for (const auto& [name, target] : kFuzzTargets) {
      SCOPED_TRACE(path.string() + " in " + name);
      EXPECT_EQ(target(reinterpret_cast<const uint8_t*>(content.data()), content.size()), 0);
    }
  }
}

TEST(FuzzCorpusTest, EveryTargetHasSeeds) {
  for (const auto& [name, target] : kFuzzTargets) {
    EXPECT_TRUE(std::filesystem::is_directory(std::string(LOCKSTEP_FUZZ_CORPUS) + "/" + name)) << name;
  }
}

}  // namespace
