#include "lockstep/cluster/slurm_lists.h"

#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cluster/expect_error.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

TEST(SlurmListsTest, ExpandsHosts) {
  EXPECT_THAT(expand_hostlist("n[1-2],m5,o[3-4,6]"), ElementsAre("n1", "n2", "m5", "o3", "o4", "o6"));
  EXPECT_THAT(expand_hostlist("t[08-10,2]"), ElementsAre("t08", "t09", "t10", "t2"));
  EXPECT_THAT(expand_hostlist("r[1-2]n[3-4]"), ElementsAre("r1n3", "r1n4", "r2n3", "r2n4"));
  EXPECT_THAT(expand_hostlist("login-1.cluster"), ElementsAre("login-1.cluster"));
}

TEST(SlurmListsTest, RejectsOtherTexts) {
  for (const char* text :
       {"",         ",",    "n1,",    ",n1",   "n[",  "n]",    "n[]",   "n[1",   "n[1-",  "n[1-2]x",      "n[2-1]",
        "n[1-2-3]", "n[a]", "n[[1]]", "[1-2]", "n 1", "n[ 1]", "n[-1]", "n[1,]", "n[1]]", "n[9999999999]"}) {
    SCOPED_TRACE(text);
    EXPECT_ERROR(expand_hostlist(text), c10::ValueError, "[expand_hostlist]");
  }
}

TEST(SlurmListsTest, RejectsListsThatFillTheMemory) {
  EXPECT_ERROR(expand_hostlist("n[0-999999999]"), c10::ValueError, "too long");
  EXPECT_ERROR(expand_hostlist("n[0-99999]m[0-99999]"), c10::ValueError, "too long");
  EXPECT_ERROR(expand_tasks_per_node("1(x999999999)"), c10::ValueError, "too long");
}

TEST(SlurmListsTest, ExpandsCounts) {
  EXPECT_THAT(expand_tasks_per_node("3(x2),2,11(x3)"), ElementsAre(3, 3, 2, 11, 11, 11));
  EXPECT_THAT(expand_tasks_per_node("0"), ElementsAre(0));
}

TEST(SlurmListsTest, RejectsOtherCounts) {
  for (const char* text : {"", ",", "1,", "x", "2(x)", "2x3", "2(3)", "1 ,2", "-1", "2(x2)3", "2(x2", "1.5"}) {
    SCOPED_TRACE(text);
    EXPECT_ERROR(expand_tasks_per_node(text), c10::ValueError, "[expand_tasks_per_node]");
  }
}

struct Host {
  std::string prefix;
  int number = 0;
  size_t width = 0;

  std::string digits() const {
    std::string text = std::to_string(number);
    return text.size() < width ? std::string(width - text.size(), '0') + text : text;
  }
  std::string name() const { return prefix + digits(); }
};

/// Writes hosts as Slurm does: runs of one prefix share brackets, runs of numbers of one width a range.
std::string compressed(const std::vector<Host>& hosts) {
  std::string text;
  for (size_t i = 0; i < hosts.size();) {
    text += (i == 0 ? "" : ",") + hosts[i].prefix + "[";
    const size_t start = i;
    while (i < hosts.size() && hosts[i].prefix == hosts[start].prefix) {
      size_t last = i;
      while (last + 1 < hosts.size() && hosts[last + 1].prefix == hosts[i].prefix &&
             hosts[last + 1].number == hosts[last].number + 1 && hosts[last + 1].width == hosts[i].width) {
        ++last;
      }
      text += (i == start ? "" : ",") + hosts[i].digits() + (last > i ? "-" + hosts[last].digits() : "");
      i = last + 1;
    }
    text += "]";
  }
  return text;
}

TEST(SlurmListsTest, ExpandingIsTheInverseOfCompressing) {
  std::mt19937 random(7);
  const auto below = [&](int bound) { return static_cast<int>(random() % bound); };
  for (int round = 0; round < 500; ++round) {
    std::vector<Host> hosts;
    std::vector<std::string> names;
    for (int run = 1 + below(4); run > 0; --run) {
      Host host{std::string(1, static_cast<char>('a' + below(3))) + (below(2) == 0 ? "-" : "2x"), below(1200), 0};
      if (below(2) == 0) host.width = 4;
      for (int length = 1 + below(12); length > 0; --length, ++host.number) {
        hosts.push_back(host);
        names.push_back(host.name());
      }
    }
    const std::string text = compressed(hosts);
    EXPECT_EQ(expand_hostlist(text), names) << text;
  }
}

TEST(SlurmListsTest, CountsResources) {
  for (const char* text : {"2", "gpu:2", "gpu=2", "a100:1,v100:1", "gpu:a100:2", "gres/gpu:a100=2"}) {
    EXPECT_EQ(count_resources(text), 2) << text;
  }
  EXPECT_EQ(count_resources("cpu:8,gres/gpu:a100:2,gres/nic:1,gres/gpu:v100:3", "gres/gpu"), 5);
  EXPECT_EQ(count_resources("cpu:8", "gres/gpu"), std::nullopt);
  for (const char* text : {"", "gpu", "gpu:", ",", "2,", "x:-1", "99999999999"}) {
    EXPECT_EQ(count_resources(text), std::nullopt) << text;
  }
}

TEST(SlurmListsTest, ExpandingCountsIsTheInverseOfCompressing) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    std::vector<int> counts;
    std::string text;
    for (int run = 1 + static_cast<int>(random() % 5); run > 0; --run) {
      const int count = static_cast<int>(random() % 20);
      const int repeats = 1 + static_cast<int>(random() % 4);
      counts.insert(counts.end(), repeats, count);
      text += (text.empty() ? "" : ",") + std::to_string(count);
      if (repeats > 1 || random() % 2 == 0) text += "(x" + std::to_string(repeats) + ")";
    }
    EXPECT_EQ(expand_tasks_per_node(text), counts) << text;
  }
}

}  // namespace
}  // namespace lockstep
