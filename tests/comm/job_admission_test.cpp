#include <arpa/inet.h>
#include <fstream>
#include <mutex>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/job/join.h"
#include "tests/comm/job_members.h"

namespace lockstep::comm {
namespace {

using namespace test;
using ::testing::Contains;
using ::testing::HasSubstr;

// Captures the log for the test.
class Log {
 public:
  Log() {
    log::set_sink([this](log::Level, std::string_view line) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(line);
    });
  }
  ~Log() { log::set_sink({}); }

  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

// A connection to the coordinator's port that is no member.
class RawPeer {
 public:
  explicit RawPeer(const JobOptions& options) : RawPeer(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in target = address_of(options);
    is_connected_ = connect(descriptor_, reinterpret_cast<const sockaddr*>(&target), sizeof target) == 0;
  }
  // Listens at the coordinator's address.
  static RawPeer listening(const JobOptions& options) {
    const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = address_of(options);
    EXPECT_EQ(bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(descriptor, 1), 0);
    return RawPeer(descriptor);
  }
  RawPeer accept_one() const { return RawPeer(accept(descriptor_, nullptr, nullptr)); }
  ~RawPeer() { close(descriptor_); }
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  bool is_connected() const { return is_connected_; }
  ssize_t say(const std::string& bytes) const { return send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  // Waits until something was received.
  void hear() const {
    char bytes[1024];
    EXPECT_GT(recv(descriptor_, bytes, sizeof bytes, 0), 0);
  }
  // Waits until the coordinator has closed the connection.
  bool is_sent_away() const {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < deadline) {
      pollfd entry{descriptor_, POLLIN, 0};
      char bytes[4096];
      if (poll(&entry, 1, 100) > 0 && recv(descriptor_, bytes, sizeof bytes, 0) <= 0) return true;
    }
    return false;
  }

 private:
  explicit RawPeer(int descriptor) : descriptor_(descriptor) {}

  static sockaddr_in address_of(const JobOptions& options) {
    const std::string& text = options.addresses[0];
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(text.substr(text.rfind(':') + 1))));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  int descriptor_;
  bool is_connected_ = false;
};

// A Hello that claims version 99 of the protocol.
const std::string kOtherVersion("\0\0\0\x1c\0\0\0\0\0\0\0\x0clockstep job\0\0\0\0\0\0\0\x63", 32);

class JobAdmissionTest : public ::testing::Test {
 protected:
  void expect_undisturbed(const std::vector<std::shared_ptr<Job>>& jobs, const std::string& key) {
    jobs[0]->set(key, "value");
    for (const auto& job : jobs) {
      EXPECT_EQ(job->get(key, kPatience), "value");
      EXPECT_EQ(job->failure(), nullptr);
    }
  }

  Log log_;
};

TEST_F(JobAdmissionTest, AWrongTokenIsTurnedAway) {
  const auto options = options_for(2);
  auto first = join_later(options, 0);
  for (const std::string token : {"wrong", ""}) {
    auto wrong = as_worker(options, 1);
    wrong.token = token;
    EXPECT_THAT(error_of<CollectiveError>([&] { join_job(wrong); }),
                HasSubstr("worker 1 was turned away by the coordinator at " + options.addresses[0] + ": wrong token"));
  }
  const std::vector jobs{join_later(options, 1).get(), first.get()};
  EXPECT_THAT(log_.lines(), Contains(HasSubstr("turned away a connection from 127.0.0.1 (wrong token")).Times(1));
  auto late = as_worker(options, 1);
  late.token = "wrong";
  EXPECT_THAT(error_of<CollectiveError>([&] { join_job(late); }), HasSubstr("wrong token"));
  EXPECT_EQ(jobs[0]->failure(), nullptr);
  expect_undisturbed({jobs[1], jobs[0]}, "key");
}

TEST_F(JobAdmissionTest, ACoordinatorWithoutTheTokenIsNotTrusted) {
  auto options = options_for(2);
  auto without = options;
  without.token.clear();
  without.join_timeout = 3s;
  auto first = join_later(without, 0);
  EXPECT_THAT(error_of<CollectiveError>([&] { join_job(as_worker(options, 1)); }),
              HasSubstr("it has a token, worker 0 has none"));
  EXPECT_THAT(error_of<CollectiveError>([&] { first.get(); }), HasSubstr("worker 1 has not"));
}

TEST_F(JobAdmissionTest, ACoordinatorMustProveItself) {
  const auto options = options_for(2);
  const RawPeer listener = RawPeer::listening(options);
  auto joining = join_later(options, 1);
  const RawPeer pretender = listener.accept_one();
  pretender.hear();
  pretender.say(std::string("\0\0\0\x30\0\0\0\0\0\0\0\x65\0\0\0\0\0\0\0\x20", 20) + std::string(32, 'n'));
  pretender.hear();
  pretender.say(std::string("\0\0\0\x40\0\0\0\0\0\0\0\x67", 12) + std::string(6, '\0') + "\x10" + std::string(7, '\0') +
                "\x20" + std::string(8, '\0') + "\x20" + std::string(32, 'd'));
  EXPECT_THAT(error_of<CollectiveError>([&] { joining.get(); }),
              HasSubstr("the coordinator could not prove that it knows the job's token"));
}

TEST_F(JobAdmissionTest, TheTimeoutTellsOfThoseTurnedAway) {
  auto options = options_for(2);
  options.join_timeout = 2s;
  auto first = join_later(options, 0);
  auto wrong = as_worker(options, 1);
  wrong.token = "wrong";
  EXPECT_THROW(join_job(wrong), CollectiveError);
  EXPECT_THAT(error_of<CollectiveError>([&] { first.get(); }),
              HasSubstr("worker 1 has not; 1 connection was refused: 127.0.0.1 (wrong token"));
}

TEST_F(JobAdmissionTest, GarbageDoesNotDisturb) {
  const auto options = options_for(3);
  const auto jobs = join_all(options);
  const std::vector<std::string> words = {
      "GET / HTTP/1.1\r\n\r\n",
      std::string(4, '\xff') + std::string(100'000, 'x'),
      std::string("\0\0\0\x08", 4) + std::string(8, '\xff'),
      std::string("\0\0\0\x14\0\0\0\0\0\0\0\x0clockstep job", 24),
      std::string("\0\0\x01\x90", 4) + std::string(400, '\0'),
  };
  for (const auto& word : words) {
    const RawPeer peer(options);
    ASSERT_TRUE(peer.is_connected());
    peer.say(word);
    EXPECT_TRUE(peer.is_sent_away()) << ::testing::PrintToString(word);
  }
  expect_undisturbed(jobs, "key");
}

TEST_F(JobAdmissionTest, AnotherVersionIsNamed) {
  const auto options = options_for(2);
  const auto jobs = join_all(options);
  const RawPeer peer(options);
  peer.say(kOtherVersion);
  EXPECT_TRUE(eventually([&] {
    return ::testing::Value(log_.lines(), Contains(HasSubstr("it speaks version 99 of the protocol, worker 0 speaks")));
  }));
}

size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0;
  size_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST_F(JobAdmissionTest, NothingIsKeptOfWhatFollowsARefusal) {
  const auto options = options_for(2);
  const auto jobs = join_all(options);
  const RawPeer peer(options);
  peer.say(kOtherVersion);
  peer.hear();
  const std::string block(1 << 20, 'x');
  const size_t before = resident_bytes();
  size_t sent = 0;
  while (sent < size_t{256} << 20) {
    const ssize_t count = peer.say(block);
    if (count <= 0) break;
    sent += static_cast<size_t>(count);
  }
  EXPECT_GT(sent, size_t{64} << 20) << "the coordinator does not read";
  EXPECT_LT(resident_bytes(), before + sent / 4) << "sent=" << sent;
  expect_undisturbed(jobs, "key");
}

TEST_F(JobAdmissionTest, TheLogNamesThoseWhoAreMissing) {
  auto options = options_for(3);
  options.first_reminder = 20ms;
  options.reminder_interval = 20ms;
  auto second = join_later(options, 1);
  EXPECT_TRUE(eventually([&] {
    return ::testing::Value(log_.lines(), Contains(HasSubstr("worker 0 cannot be reached: connecting to ")));
  }));
  auto first = join_later(options, 0);
  const auto waits_for_the_third =
      ::testing::AllOf(HasSubstr("worker 0 (" + options.addresses[0] + ") has waited for"),
                       HasSubstr("not all workers have joined: "), HasSubstr("have joined, worker 2 has not"));
  EXPECT_TRUE(eventually(
      [&] { return ::testing::Value(log_.lines(), Contains(waits_for_the_third).Times(::testing::Ge(2))); }));
  auto third = join_later(options, 2);
  const std::vector jobs{first.get(), second.get(), third.get()};
  expect_undisturbed(jobs, "key");
}

TEST_F(JobAdmissionTest, SilentConnectionsDoNotKeepMembersOut) {
  const auto options = options_for(2);
  auto first = join_later(options, 0);
  // More than the coordinator holds at once; each sends an incomplete message.
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(eventually([&] {
      peers.push_back(std::make_unique<RawPeer>(options));
      return peers.back()->is_connected();
    }));
    peers.back()->say(std::string("\0\0", 2));
  }
  const auto second = join_later(options, 1).get();
  const std::vector jobs{first.get(), second};
  expect_undisturbed(jobs, "key");
  // Those that were not replaced run out of time.
  EXPECT_TRUE(peers.front()->is_sent_away());
  EXPECT_TRUE(peers.back()->is_sent_away());
}

}  // namespace
}  // namespace lockstep::comm
