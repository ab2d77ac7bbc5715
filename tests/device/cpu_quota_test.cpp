#include "lockstep/device/cpu_quota.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "lockstep/device/thread_share.h"

namespace lockstep::detail {
namespace {

/// A folder with the files of control groups, as a container sees them.
class CpuQuotaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "cpu_quota_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& file, const std::string& text) const {
    const auto path = std::filesystem::path(root_ + file);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  }

  double cores() const {
    const auto quota = read_cpu_quota(root_);
    return quota ? quota->cores : 0;
  }

  std::string root_;
};

TEST_F(CpuQuotaTest, ReadsVersion2) {
  EXPECT_EQ(cores(), 0) << "without control groups";
  write("/proc/self/cgroup", "0::/");
  EXPECT_EQ(cores(), 0) << "without a file";
  write("/sys/fs/cgroup/cpu.max", "max 100000");
  EXPECT_EQ(cores(), 0) << "without a limit";
  write("/sys/fs/cgroup/cpu.max", "250000 100000");
  EXPECT_EQ(cores(), 2.5);
}

TEST_F(CpuQuotaTest, GroupsAboveLimitToo) {
  write("/proc/self/cgroup", "0::/kubepods/pod7/main");
  write("/sys/fs/cgroup/kubepods/pod7/main/cpu.max", "800000 100000");
  EXPECT_EQ(cores(), 8);
  write("/sys/fs/cgroup/kubepods/pod7/cpu.max", "400000 100000");
  write("/sys/fs/cgroup/kubepods/cpu.max", "max 100000");
  EXPECT_EQ(cores(), 4);
  const auto quota = read_cpu_quota(root_);
  write("/proc/self/cgroup", "0::/kubepods/pod7");
  EXPECT_EQ(read_cpu_quota(root_)->group, quota->group) << "one limit, one group";
}

TEST_F(CpuQuotaTest, ReadsVersion1) {
  write("/proc/self/cgroup", "5:memory:/docker/7\n4:cpu,cpuacct:/docker/7\n2:cpuset:/docker/7");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "50000");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(cores(), 0) << "without a limit";
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "100000");
  EXPECT_EQ(cores(), 2) << "a container sees its own group as the root";
  write("/sys/fs/cgroup/cpu/docker/7/cpu.cfs_period_us", "50000");
  write("/sys/fs/cgroup/cpu/docker/7/cpu.cfs_quota_us", "50000");
  EXPECT_EQ(cores(), 1);
}

TEST_F(CpuQuotaTest, IgnoresWhatItCannotRead) {
  write("/proc/self/cgroup", "nonsense\n0::relative\n1:cpu\n0::/a");
  write("/sys/fs/cgroup/cpu.max", "0 0");
  write("/sys/fs/cgroup/a/cpu.max", "words");
  EXPECT_EQ(cores(), 0);
}

TEST_F(CpuQuotaTest, ThreadsAreLimited) {
  EXPECT_EQ(threads_under_quota(64, std::nullopt), 64);
  EXPECT_EQ(threads_under_quota(64, CpuQuota{2.0, 1}), 2);
  EXPECT_EQ(threads_under_quota(64, CpuQuota{2.5, 1}), 3);
  EXPECT_EQ(threads_under_quota(64, CpuQuota{0.1, 1}), 1);
  EXPECT_EQ(threads_under_quota(4, CpuQuota{16, 1}), 4);
  EXPECT_LE(num_hardware_threads(), threads_under_quota(1 << 20, cpu_quota()));
}

}  // namespace
}  // namespace lockstep::detail
