#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/xla/pjrt/client.h"
#include "tests/xla/plugin.h"

namespace lockstep::xla {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

/// Sets a variable of the environment, or unsets it, for the length of a test.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    set(value);
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;
  ~ScopedVariable() { set(before_ ? before_->c_str() : nullptr); }

 private:
  void set(const char* value) {
    if (value == nullptr) {
      unsetenv(name_);
    } else {
      setenv(name_, value, 1);
    }
  }

  const char* name_;
  std::optional<std::string> before_;
};

/// Returns what a call throws.
template <typename Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

std::string open_error(const std::string& plugin) {
  return error_of([&] { Client::open({.plugin = plugin}); });
}

/// A folder of files that are no plugins but have their names, and an environment that names no other.
class FindPluginTest : public ::testing::Test {
 protected:
  FindPluginTest() : folder_(fs::canonical(fs::temp_directory_path()) / "lockstep_find_plugin_test_XXXXXX") {
    std::string name = folder_;
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  ~FindPluginTest() override { fs::remove_all(folder_); }

  std::string make(const char* name) {
    const fs::path file = folder_ / name;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << "not a plugin";
    for (const fs::path& made : {file, file.parent_path()}) {
      fs::permissions(made, fs::perms::group_write | fs::perms::others_write, fs::perm_options::remove);
    }
    return file;
  }

  fs::path folder_;
  ScopedVariable no_plugin_{"LOCKSTEP_PJRT_PLUGIN", nullptr};
  ScopedVariable no_plugins_{"PJRT_PLUGIN_LIBRARY_PATH", nullptr};
  ScopedVariable no_tpu_{"TPU_LIBRARY_PATH", nullptr};
};

TEST_F(FindPluginTest, LooksBesideTheLibraryAndNotAboveIt) {
  std::vector<std::string> searched;
  find_plugin(&searched);
  Dl_info library{};
  ASSERT_NE(dladdr(reinterpret_cast<const void*>(&find_plugin), &library), 0);
  const std::string beside = fs::absolute(library.dli_fname).parent_path().lexically_normal();
  EXPECT_THAT(searched, Contains(beside + "/pjrt"));
  EXPECT_THAT(searched, Contains(beside + "/lockstep/pjrt"));
  EXPECT_THAT(searched, Each(StartsWith(beside)));
}

TEST_F(FindPluginTest, FoldersAboveTheLibraryAreNotSearched) {
  make("pjrt/pjrt_plugin_above.so");
  make("prefix/pjrt/pjrt_plugin_above.so");
  const std::string inside = make("prefix/lib/pjrt/pjrt_plugin_inside.so");
  const std::string installed = make("prefix/lib/lockstep/pjrt/pjrt_plugin_installed.so");
  EXPECT_THAT(plugins_beside(make("prefix/lib/liblockstep.so")), ElementsAre(inside, installed));
}

TEST_F(FindPluginTest, WhatOthersMayWriteIsNotLoaded) {
  const std::string library = make("lib/liblockstep.so");
  const std::string plugin = make("lib/pjrt/pjrt_plugin_x.so");
  for (const fs::path& open : {fs::path(plugin), fs::path(plugin).parent_path()}) {
    for (const fs::perms bit : {fs::perms::group_write, fs::perms::others_write}) {
      fs::permissions(open, bit, fs::perm_options::add);
      std::vector<std::string> searched;
      EXPECT_THAT(plugins_beside(library, &searched), IsEmpty()) << open;
      EXPECT_THAT(searched, Contains(AllOf(StartsWith(plugin), HasSubstr("not used"), HasSubstr("writable by other"))));
      fs::permissions(open, bit, fs::perm_options::remove);
    }
  }
  EXPECT_THAT(plugins_beside(library), ElementsAre(plugin));
}

TEST_F(FindPluginTest, WhatAnotherUserOwnsIsNotLoaded) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const std::string library = make("lib/liblockstep.so");
  const std::string plugin = make("lib/pjrt/pjrt_plugin_x.so");
  constexpr uid_t kStranger = 54321;
  ASSERT_EQ(::chown(plugin.c_str(), kStranger, 0), 0);
  EXPECT_THAT(plugins_beside(library), IsEmpty());
  ASSERT_EQ(::chown(library.c_str(), kStranger, 0), 0);
  EXPECT_THAT(plugins_beside(library), ElementsAre(plugin)) << "the owner of the library is trusted";
}

TEST_F(FindPluginTest, TheVariableNamesAFileOrAFolder) {
  const std::string file = make("mine.so");
  const std::string known = make("folder/xla_cpu_pjrt.so");
  const std::string other = make("folder/pjrt_plugin_other.so");
  make("folder/something.so");
  {
    const ScopedVariable variable("LOCKSTEP_PJRT_PLUGIN", file.c_str());
    EXPECT_EQ(find_plugin(), file);
  }
  const ScopedVariable variable("LOCKSTEP_PJRT_PLUGIN", (folder_ / "folder").c_str());
  EXPECT_EQ(find_plugin(), known);
  const auto all = list_plugins();
  ASSERT_GE(all.size(), 2u);
  EXPECT_EQ(all[0], known);
  EXPECT_EQ(all[1], other);
}

TEST_F(FindPluginTest, OtherProgramsVariablesComeNext) {
  const std::string plugin = make("a/pjrt_plugin_a.so");
  const std::string tpu = make("b/libtpu.so");
  const std::string list = folder_ / "absent";
  const ScopedVariable of_tpu("TPU_LIBRARY_PATH", tpu.c_str());
  EXPECT_EQ(find_plugin(), tpu);
  const ScopedVariable of_plugins("PJRT_PLUGIN_LIBRARY_PATH", (list + ":" + (folder_ / "a").string()).c_str());
  std::vector<std::string> searched;
  EXPECT_EQ(find_plugin(&searched), plugin);
  EXPECT_THAT(searched, Contains("PJRT_PLUGIN_LIBRARY_PATH=" + list));
}

TEST_F(FindPluginTest, AFileThatIsNamedMustBeThere) {
  const std::string absent = folder_ / "absent.so";
  const ScopedVariable variable("LOCKSTEP_PJRT_PLUGIN", absent.c_str());
  EXPECT_EQ(find_plugin(), absent);
  EXPECT_THAT(open_error(""), AllOf(HasSubstr("must exist: plugin=" + absent), HasSubstr(how_to_get_a_plugin())));
}

TEST_F(FindPluginTest, SaysWhatIsNoPlugin) {
  EXPECT_THAT(open_error(make("text.so")), AllOf(StartsWith("[xla plugin] "), HasSubstr("shared object")));
  Dl_info library{};
  ASSERT_NE(dladdr(reinterpret_cast<const void*>(&c10::GetExceptionString), &library), 0);
  EXPECT_THAT(open_error(library.dli_fname), HasSubstr("has no function GetPjrtApi"));
}

TEST_F(FindPluginTest, PluginsLogTheirErrorsUnlessTheUserSaysOtherwise) {
  const std::string file = make("text.so");
  {
    const ScopedVariable level("TF_CPP_MIN_LOG_LEVEL", nullptr);
    open_error(file);
    EXPECT_STREQ(std::getenv("TF_CPP_MIN_LOG_LEVEL"), "2") << "3 would hide errors";
  }
  const ScopedVariable level("TF_CPP_MIN_LOG_LEVEL", "0");
  open_error(file);
  EXPECT_STREQ(std::getenv("TF_CPP_MIN_LOG_LEVEL"), "0");
}

TEST_F(FindPluginTest, VersionsWithAnotherTableAreTurnedDown) {
  for (const char* minor : {"30", "56"}) {
    const ScopedVariable version("FAKE_PLUGIN_MINOR", minor);
    EXPECT_THAT(open_error(LOCKSTEP_FAKE_PLUGIN), HasSubstr(std::string("version=0.") + minor));
  }
}

TEST(FakePluginTest, TellsWhereTheCoresOfTpusAre) {
  const Client& client = Client::open({.plugin = LOCKSTEP_FAKE_PLUGIN});
  EXPECT_EQ(client.platform(), "tpu");
  EXPECT_EQ(client.platform_version(), "fake 1");
  EXPECT_EQ(client.api_version(), "0.90");
  EXPECT_EQ(client.hidden_sve(), HiddenSve::No);
  ASSERT_EQ(client.devices().size(), 2u);
  for (int core : {0, 1}) {
    const DeviceInfo& device = client.devices()[static_cast<size_t>(core)];
    EXPECT_EQ(device.id, 6 + core);
    EXPECT_EQ(device.process, 3);
    EXPECT_EQ(device.kind, "TPU v4");
    EXPECT_EQ(device.text, "a fake core");
    EXPECT_THAT(device.coordinates, ElementsAre(1, 0, 2));
    EXPECT_EQ(device.core_on_chip, core);
  }
  EXPECT_EQ(&Client::open({.plugin = LOCKSTEP_FAKE_PLUGIN, .num_cpu_devices = 9}), &client);
}

TEST(FakePluginTest, FunctionsBehindTheEndOfTheTableAreNotCalled) {
  const Client& client = Client::open({.plugin = LOCKSTEP_FAKE_PLUGIN});
  EXPECT_THAT(error_of([&] { client.compile("module {}", {{6}}).execute({{}}); }), HasSubstr("lacks a function"));
}

/// A copy of the fake plugin under another name: each file is a plugin of its own.
class PluginOptionsTest : public FindPluginTest {
 protected:
  std::string copy_of_fake(const char* name) {
    const fs::path file = folder_ / name;
    fs::copy_file(LOCKSTEP_FAKE_PLUGIN, file);
    return file;
  }
};

TEST_F(PluginOptionsTest, ReachTheClient) {
  const Client& client =
      Client::open({.plugin = copy_of_fake("pjrt_plugin_a.so"), .options = {{"memory_fraction", 0.5}}});
  EXPECT_THAT(client.platform_version(), HasSubstr("memory_fraction=0.5"));
}

TEST_F(PluginOptionsTest, PluginsForGpusDoNotPreallocateUnlessAsked) {
  EXPECT_THAT(Client::open({.plugin = copy_of_fake("fake_cuda_plugin.so")}).platform_version(),
              HasSubstr("preallocate=false"));
  EXPECT_THAT(Client::open({.plugin = copy_of_fake("other_cuda_plugin.so"), .options = {{"preallocate", true}}})
                  .platform_version(),
              HasSubstr("preallocate=true"));
}

TEST_F(PluginOptionsTest, UnknownOptionsAreErrorsThatNameThem) {
  for (const char* file : {"pjrt_plugin_b.so", "cuda_plugin_b.so", "libtpu.so"}) {
    const std::string plugin = copy_of_fake(file);
    EXPECT_THAT(error_of([&] {
                  Client::open({.plugin = plugin, .options = {{"memory_fracton", 0.5}}});
                }),
                AllOf(StartsWith("[xla client] "), HasSubstr("memory_fracton=0.5"), HasSubstr(plugin)));
    EXPECT_THAT(error_of([&] {
                  Client::open({.plugin = plugin, .options = {{"memory_fraction", true}}});
                }),
                HasSubstr("memory_fraction=true"))
        << "of another type";
  }
}

TEST_F(PluginOptionsTest, PluginsForCpusHaveNone) {
  const std::string plugin = copy_of_fake("fake_cpu_plugin.so");
  EXPECT_THAT(error_of([&] {
                Client::open({.plugin = plugin, .options = {{"memory_fraction", 0.5}}});
              }),
              AllOf(HasSubstr("memory_fraction=0.5"), HasSubstr(plugin), HasSubstr("num_cpu_devices")));
}

TEST_F(PluginOptionsTest, OfALaterCallMustBeThoseOfTheFirst) {
  const std::string plugin = copy_of_fake("pjrt_plugin_c.so");
  const Client& client = Client::open({.plugin = plugin, .options = {{"memory_fraction", 0.25}}});
  EXPECT_EQ(&Client::open({.plugin = plugin}), &client);
  EXPECT_EQ(&Client::open({.plugin = plugin, .options = {{"memory_fraction", 0.25}}}), &client);
  EXPECT_THAT(error_of([&] {
                Client::open({.plugin = plugin, .options = {{"memory_fraction", 0.5}}});
              }),
              AllOf(HasSubstr("memory_fraction=0.5"), HasSubstr("memory_fraction=0.25")));
}

/// Tests of a started plugin; the process has one client, so all ask for the same.
class ClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    LOCKSTEP_NEEDS_PLUGIN();
    client_ = &Client::open({});
  }

  bool has_devices(size_t count) const { return client_->devices().size() >= count; }

  /// Returns the first devices, as `replicas` of `partitions` each.
  std::vector<std::vector<int>> device_ids(int replicas, int partitions = 1) const {
    std::vector<std::vector<int>> ids(static_cast<size_t>(replicas));
    size_t next = 0;
    for (auto& replica : ids) {
      for (int i = 0; i < partitions; ++i) replica.push_back(client_->devices()[next++].id);
    }
    return ids;
  }

  Buffer upload(const std::vector<float>& values, int device = 0) const {
    return client_->upload(values.data(), ElementType::F32, {static_cast<int64_t>(values.size())}, device);
  }

  static std::vector<float> download(const Buffer& buffer, size_t count) {
    std::vector<float> values(count);
    buffer.download(values.data(), count * sizeof(float));
    return values;
  }

  Client* client_ = nullptr;
};

/// Adds its two vectors of four.
constexpr const char* kAdd = R"(
module {
  func.func public @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
    %sum = stablehlo.add %a, %b : tensor<4xf32>
    return %sum : tensor<4xf32>
  }
})";

/// Sums a vector of two over replicas. `groups` are written as "[0, 1]".
std::string all_reduce(int replicas) {
  std::string group;
  for (int i = 0; i < replicas; ++i) group += (i == 0 ? "" : ", ") + std::to_string(i);
  return "module attributes {mhlo.num_replicas = " + std::to_string(replicas) + R"( : i32} {
  func.func public @main(%a: tensor<2xf32>) -> tensor<2xf32> {
    %sum = "stablehlo.all_reduce"(%a) ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %z = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %z : tensor<f32>
    }) {replica_groups = dense<[[)" +
         group + "]]> : tensor<1x" + std::to_string(replicas) + R"(xi64>} : (tensor<2xf32>) -> tensor<2xf32>
    return %sum : tensor<2xf32>
  }
})";
}

TEST_F(ClientTest, IsOpenedOnce) {
  EXPECT_EQ(&Client::open({}), client_);
  EXPECT_EQ(&Client::open({.plugin = client_->plugin()}), client_);
  EXPECT_THAT(client_->api_version(), StartsWith("0."));
  if (client_->platform() != "cpu") GTEST_SKIP() << "only CPUs are asked for a number of devices";
  EXPECT_EQ(client_->devices().size(), 4u);
  EXPECT_THAT(error_of([] { Client::open({.num_cpu_devices = 3}); }),
              AllOf(HasSubstr("num_cpu_devices=3, open with=4"), HasSubstr(client_->plugin())));
  EXPECT_THAT(error_of([] { Client::open({.num_cpu_devices = 0}); }), HasSubstr("num_cpu_devices=0"));
}

TEST_F(ClientTest, DevicesComeInTheOrderOfTheirIds) {
  const auto& devices = client_->devices();
  ASSERT_FALSE(devices.empty());
  for (size_t i = 0; i < devices.size(); ++i) {
    if (i > 0) {
      EXPECT_LT(devices[i - 1].id, devices[i].id);
    }
    EXPECT_EQ(devices[i].process, 0);
    EXPECT_FALSE(devices[i].kind.empty());
    EXPECT_FALSE(devices[i].text.empty());
  }
}

TEST_F(ClientTest, ErrorsCarryTheTextOfXla) {
  EXPECT_THAT(error_of([&] { client_->compile("nonsense", device_ids(1)); }),
              AllOf(StartsWith("[xla compile] "), HasSubstr("'nonsense' is unknown")));
  EXPECT_THAT(error_of([&] { client_->compile(kAdd, {}); }), HasSubstr("one device at least"));
  EXPECT_THAT(error_of([&] { client_->compile(kAdd, {{0, 1}, {2}}); }), HasSubstr("partitions=1, of the first=2"));
  EXPECT_THAT(error_of([&] { client_->compile(kAdd, {{12345}}); }), StartsWith("[xla compile] "));
  EXPECT_THAT(error_of([&] { upload({1}, 100); }), HasSubstr("[xla upload] there is no such device: device=100"));
}

TEST_F(ClientTest, EveryElementTypeComesBackAsItWent) {
  struct Case {
    ElementType type;
    size_t bytes;
  };
  for (const auto& [type, bytes] :
       {Case{ElementType::Pred, 1}, Case{ElementType::S8, 1}, Case{ElementType::S16, 2}, Case{ElementType::S32, 4},
        Case{ElementType::S64, 8}, Case{ElementType::U8, 1}, Case{ElementType::F16, 2}, Case{ElementType::F32, 4},
        Case{ElementType::F64, 8}, Case{ElementType::BF16, 2}}) {
    std::vector<unsigned char> sent(6 * bytes);
    // Truth values are 0 and 1; the other bytes are finite numbers of every type.
    for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<unsigned char>(bytes == 1 ? i % 2 : i % 60);
    const Buffer buffer = client_->upload(sent.data(), type, {2, 3}, 0);
    std::vector<unsigned char> got(sent.size(), 0xff);
    buffer.download(got.data(), got.size());
    EXPECT_EQ(got, sent) << static_cast<int>(type);
    EXPECT_GE(buffer.device_bytes(), sent.size());
  }
}

TEST_F(ClientTest, SentDataMayChangeAtOnce) {
  std::vector<float> data(100000, 1.0f);
  const Buffer buffer = upload(data);
  std::fill(data.begin(), data.end(), 2.0f);
  EXPECT_EQ(download(buffer, data.size()), std::vector<float>(data.size(), 1.0f));
}

TEST_F(ClientTest, BuffersAreMovedNotCopied) {
  Buffer first = upload({1, 2});
  Buffer second = std::move(first);
  EXPECT_FALSE(first);
  EXPECT_TRUE(second);
  first = std::move(second);
  EXPECT_THAT(download(first, 2), ElementsAre(1, 2));
}

TEST_F(ClientTest, RunsOnAnyDevice) {
  for (size_t device = 0; device < client_->devices().size(); ++device) {
    const Executable add = client_->compile(kAdd, {{client_->devices()[device].id}});
    EXPECT_EQ(add.num_results(), 1u);
    const auto index = static_cast<int>(device);
    const Buffer a = upload({1, 2, 3, 4}, index);
    const Buffer b = upload({10, 20, 30, 40}, index);
    const auto results = add.execute({{a.handle(), b.handle()}});
    ASSERT_EQ(results.size(), 1u);
    ASSERT_EQ(results[0].size(), 1u);
    results[0][0].wait();
    EXPECT_THAT(download(results[0][0], 4), ElementsAre(11, 22, 33, 44));
  }
}

// A compiler that takes the processor for a better one makes this die of an illegal instruction.
TEST_F(ClientTest, LongSumsSuitTheProcessor) {
  EXPECT_NE(client_->hidden_sve(), HiddenSve::NotCured);
  constexpr const char* kSum = R"(
module {
  func.func public @main(%a: tensor<64x128xf32>) -> tensor<64xf32> {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %exponential = stablehlo.exponential %a : tensor<64x128xf32>
    %sum = stablehlo.reduce(%exponential init: %zero) applies stablehlo.add across dimensions = [1]
        : (tensor<64x128xf32>, tensor<f32>) -> tensor<64xf32>
    return %sum : tensor<64xf32>
  }
})";
  const std::vector<float> zeros(64 * 128, 0.0f);
  const Buffer a = client_->upload(zeros.data(), ElementType::F32, {64, 128}, 0);
  const auto results = client_->compile(kSum, device_ids(1)).execute({{a.handle()}});
  EXPECT_EQ(download(results[0][0], 64), std::vector<float>(64, 128.0f));
}

TEST_F(ClientTest, SumsOverReplicas) {
  for (const int replicas : {1, 2, 4}) {
    if (!has_devices(static_cast<size_t>(replicas))) GTEST_SKIP() << "needs " << replicas << " devices";
    const Executable sum = client_->compile(all_reduce(replicas), device_ids(replicas));
    // Several launches in flight: the programs of a launch find each other.
    std::vector<Buffer> sent;
    std::vector<std::vector<void*>> arguments;
    for (int replica = 0; replica < replicas; ++replica) {
      sent.push_back(upload({1.0f, static_cast<float>(replica)}, replica));
      arguments.push_back({sent.back().handle()});
    }
    std::vector<std::vector<std::vector<Buffer>>> launches;
    for (int i = 0; i < 5; ++i) launches.push_back(sum.execute(arguments));
    const auto count = static_cast<float>(replicas);
    for (const auto& results : launches) {
      ASSERT_EQ(results.size(), static_cast<size_t>(replicas));
      for (const auto& of_device : results) {
        EXPECT_THAT(download(of_device[0], 2), ElementsAre(count, count * (count - 1) / 2));
      }
    }
  }
}

TEST_F(ClientTest, PartitionsHoldPiecesOfOneProgram) {
  if (!has_devices(4)) GTEST_SKIP() << "needs 4 devices";
  constexpr const char* kSumOfPieces = R"(
module attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 2 : i32} {
  sdy.mesh @mesh = <["x"=2]>
  func.func public @main(%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>})
      -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}, tensor<f32>) {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %twice = stablehlo.add %a, %a : tensor<4xf32>
    %sum = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    return %twice, %sum : tensor<4xf32>, tensor<f32>
  }
})";
  const Executable program = client_->compile(kSumOfPieces, device_ids(2, 2));
  EXPECT_THAT(program.optimized_program(), HasSubstr("all-reduce"));
  // Device d = 2 replica + partition gets its half of the replica's vector: 1 2 3 4 and 10 20 30 40.
  std::vector<Buffer> sent;
  std::vector<std::vector<void*>> arguments;
  for (int device = 0; device < 4; ++device) {
    const float unit = device < 2 ? 1.0f : 10.0f;
    const float first = device % 2 == 0 ? 1.0f : 3.0f;
    sent.push_back(upload({unit * first, unit * (first + 1)}, device));
    arguments.push_back({sent.back().handle()});
  }
  const auto results = program.execute(arguments);
  EXPECT_THAT(download(results[0][0], 2), ElementsAre(2, 4));
  EXPECT_THAT(download(results[1][0], 2), ElementsAre(6, 8));
  EXPECT_THAT(download(results[2][0], 2), ElementsAre(20, 40));
  EXPECT_THAT(download(results[3][0], 2), ElementsAre(60, 80));
  for (size_t device = 0; device < 4; ++device) {
    EXPECT_THAT(download(results[device][1], 1), ElementsAre(device < 2 ? 10.0f : 100.0f));
  }
}

TEST_F(ClientTest, EmptyBuffersGoThrough) {
  constexpr const char* kNegate = R"(
module {
  func.func public @main(%a: tensor<0x3xf32>) -> tensor<0x3xf32> {
    %b = stablehlo.negate %a : tensor<0x3xf32>
    return %b : tensor<0x3xf32>
  }
})";
  const Buffer empty = client_->upload(nullptr, ElementType::F32, {0, 3}, 0);
  const auto results = client_->compile(kNegate, device_ids(1)).execute({{empty.handle()}});
  ASSERT_TRUE(results[0][0]);
  results[0][0].download(nullptr, 0);
  EXPECT_EQ(download(results[0][0], 0), std::vector<float>());
}

TEST_F(ClientTest, TellsTheMemoryOfAProgram) {
  constexpr const char* kIncrease = R"(
module {
  func.func public @main(%a: tensor<1024xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<1024xf32>) -> tensor<1024xf32> {
    %c = stablehlo.add %a, %b : tensor<1024xf32>
    return %c : tensor<1024xf32>
  }
})";
  const MemoryUse use = client_->compile(kIncrease, device_ids(1)).memory_use();
  EXPECT_EQ(use.arguments, 2 * 4096);
  EXPECT_GE(use.results, 4096);
  EXPECT_EQ(use.aliased, 4096);
}

TEST_F(ClientTest, WrongArgumentsAreErrors) {
  const Executable add = client_->compile(kAdd, device_ids(1));
  const Buffer a = upload({1, 2, 3, 4});
  EXPECT_THAT(error_of([&] { add.execute({}); }), HasSubstr("one device at least"));
  EXPECT_THAT(error_of([&] { add.execute({{a.handle()}, {}}); }), HasSubstr("arguments=0, of the first=1"));
  EXPECT_THAT(error_of([&] { add.execute({{a.handle()}}); }), StartsWith("[xla execute] "));
  std::vector<float> too_small(2);
  EXPECT_THAT(error_of([&] { a.download(too_small.data(), 8); }), StartsWith("[xla download] "));
  EXPECT_THAT(download(a, 4), ElementsAre(1, 2, 3, 4)) << "the client must be usable after errors";
}

TEST_F(ClientTest, APluginForCpusHasNoOptions) {
  if (client_->platform() != "cpu") GTEST_SKIP() << "this test needs a plugin for CPUs";
  EXPECT_THAT(error_of([&] { Client::open({.options = {{"memory_fraction", 0.5}}}); }), HasSubstr("memory_fraction"));
}

TEST_F(ClientTest, ProgramsAreSerializedAndLoaded) {
  const std::string serialized = client_->compile(kAdd, device_ids(1)).serialized();
  EXPECT_GT(serialized.size(), 0u);
  const Executable loaded = client_->load(serialized);
  EXPECT_EQ(loaded.num_results(), 1u);
  const Buffer a = upload({1, 2, 3, 4});
  EXPECT_THAT(download(loaded.execute({{a.handle(), a.handle()}})[0][0], 4), ElementsAre(2, 4, 6, 8));
  EXPECT_THAT(error_of([&] { client_->load("not a program"); }), StartsWith("[xla load] "));
}

TEST_F(ClientTest, ThreadsShareAClient) {
  const Executable add = client_->compile(kAdd, device_ids(1));
  std::vector<std::vector<float>> sums(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < sums.size(); ++i) {
    threads.emplace_back([&, i] {
      const Buffer a = upload(std::vector<float>(4, static_cast<float>(i)));
      for (int round = 0; round < 50; ++round) sums[i] = download(add.execute({{a.handle(), a.handle()}})[0][0], 4);
    });
  }
  for (auto& thread : threads) thread.join();
  for (size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(sums[i], std::vector<float>(4, 2.0f * static_cast<float>(i)));
}

}  // namespace
}  // namespace lockstep::xla
