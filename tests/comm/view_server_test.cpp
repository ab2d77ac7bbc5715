// Views over real connections: workers are threads, the launcher is the test.

#include "lockstep/comm/views/view_server.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <sys/socket.h>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/job/join.h"
#include "lockstep/comm/job/join_gate.h"
#include "lockstep/comm/views/launcher_link.h"
#include "lockstep/comm/views/view_client.h"
#include "tests/comm/job_members.h"
#include "tests/support/free_port.h"

namespace lockstep::comm::views {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// Asks for a view and keeps what came: the view, or the error's text.
struct Answer {
  std::atomic<bool> is_there{false};
  OwnView own;
  std::string error;

  void take(ViewClient& client, const Question& question) {
    try {
      own = client.next(question);
    } catch (const c10::Error& e) {
      error = e.what_without_backtrace();
    }
    is_there = true;
  }
};

class ViewServerTest : public ::testing::Test {
 protected:
  // The clients of workers that are in a view together.
  std::vector<std::unique_ptr<ViewClient>> two_members() {
    std::vector<std::unique_ptr<ViewClient>> clients(2);
    Answer answers[2];
    std::vector<std::thread> threads;
    for (size_t i = 0; i < 2; ++i) {
      threads.emplace_back([&, i, number = server.add_worker()] {
        clients[i] = std::make_unique<ViewClient>(address, number, "secret");
        answers[i].take(*clients[i], {});
      });
    }
    serve([&] { return answers[0].is_there && answers[1].is_there; });
    for (auto& thread : threads) thread.join();
    return clients;
  }
  // Serves until `done` holds.
  void serve(const std::function<bool()>& done) {
    for (const auto deadline = std::chrono::steady_clock::now() + 30s; !done();) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      server.wait(-1, 10ms);
      for (ViewEvent& event : server.take_events()) events.push_back(std::move(event));
    }
  }
  int count(ViewEvent::Kind kind) const {
    return static_cast<int>(std::count_if(events.begin(), events.end(), [&](const auto& e) { return e.kind == kind; }));
  }

  std::string address = "127.0.0.1:" + std::to_string(lockstep::tests::free_port());
  ViewServer server{{.address = address, .token = "secret", .membership = {.at_least = 2, .grace = 30s}}};
  std::vector<ViewEvent> events;
};

TEST_F(ViewServerTest, WorkersGetTheSameViewAndLearnOfChanges) {
  const uint64_t first = server.add_worker();
  const uint64_t second = server.add_worker();
  Answer answers[3];
  std::unique_ptr<ViewClient> clients[3];
  const auto start = [&](int i, uint64_t number) {
    return std::thread([&, i, number] {
      clients[i] = std::make_unique<ViewClient>(address, number, "secret");
      answers[i].take(*clients[i], {});
    });
  };
  std::thread threads[2] = {start(0, first), start(1, second)};
  serve([&] { return answers[0].is_there && answers[1].is_there; });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(answers[0].own.view, answers[1].own.view);
  EXPECT_EQ(answers[0].own.view.number, 1u);
  EXPECT_EQ(answers[0].own.index, 0);
  EXPECT_EQ(answers[1].own.index, 1);
  EXPECT_EQ(answers[0].own.token, answers[1].own.token);
  EXPECT_THAT(answers[0].own.view.members[1].address, HasSubstr("127.0.0.1:"));

  // A third one comes: the change is pending, and all get the next view.
  const uint64_t third = server.add_worker();
  std::thread late = start(2, third);
  serve([&] { return clients[0]->change_is_pending() && clients[1]->change_is_pending(); });
  EXPECT_FALSE(answers[2].is_there);
  for (auto& answer : answers) answer.is_there = false;
  std::thread again[2];
  for (int i = 0; i < 2; ++i) {
    again[i] = std::thread([&, i] {
      answers[i].take(*clients[i], {.reason = AskReason::Change, .step = 7 + i});
      clients[i]->resumed(8, "memory");
    });
  }
  serve([&] {
    return answers[0].is_there && answers[1].is_there && answers[2].is_there && count(ViewEvent::Kind::Resumed) == 2;
  });
  for (auto& thread : again) thread.join();
  late.join();
  EXPECT_EQ(answers[2].own.view.number, 2u);
  EXPECT_EQ(answers[2].own.index, 2);
  EXPECT_EQ(answers[0].own.view, answers[2].own.view);
  EXPECT_NE(answers[0].own.token, "");
  EXPECT_FALSE(clients[0]->change_is_pending());

  // One is lost: the others know, and joins that would wait for it end. All clients of this process share the gate for
  // joins, which the end of a connection closes, too: that of the lost one ends before.
  clients[2].reset();
  server.end_worker(third, false, "worker 2 was killed");
  serve([&] { return !clients[0]->loss().empty() && !clients[1]->loss().empty(); });
  EXPECT_EQ(clients[0]->loss(), "worker 2 was killed");
  std::string refused;
  try {
    comm::join_job({.addresses = {"127.0.0.1:1", "127.0.0.1:2"}, .worker = 1});
  } catch (const c10::Error& error) {
    refused = error.what_without_backtrace();
  }
  EXPECT_THAT(refused, HasSubstr("not all workers can join: worker 2 was killed"));
}

TEST_F(ViewServerTest, ALossRightAfterAViewIsNotMissed) {
  const uint64_t survivor = server.add_worker();
  std::unique_ptr<ViewClient> client;
  for (int round = 1; round <= 10; ++round) {
    open_joining();  // the gate is that of the whole process
    const uint64_t lost = server.add_worker();
    Answer answers[2];
    std::thread threads[2] = {std::thread([&] {
                                if (!client) client = std::make_unique<ViewClient>(address, survivor, "secret");
                                answers[0].take(*client, {});
                              }),
                              std::thread([&] {
                                ViewClient other(address, lost, "secret");
                                answers[1].take(other, {});
                              })};
    serve([&] { return count(ViewEvent::Kind::Issued) == round; });
    server.end_worker(lost, false, "it was killed");
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(answers[0].own.view.number, static_cast<uint64_t>(round));
    serve([&] { return client->loss() == "it was killed"; });
    if (HasFatalFailure()) return;
  }
}

TEST_F(ViewServerTest, AMemberThatCannotGoOnEndsTheJoiningOfTheOthers) {
  const auto clients = two_members();
  Answer answer;
  std::thread thread(
      [&] { answer.take(*clients[0], {.reason = AskReason::Failure, .step = 1, .failure = "its port is taken"}); });
  serve([&] { return !clients[1]->loss().empty(); });
  EXPECT_EQ(clients[1]->loss(), "another worker has left: its port is taken");
  EXPECT_EQ(clients[0]->loss(), "");
  server.close("the test ends");
  serve([&] { return answer.is_there.load(); });
  thread.join();
}

TEST_F(ViewServerTest, PendingIsToldAgainWhenTheDiskIsNeeded) {
  const auto clients = two_members();
  std::vector<std::unique_ptr<ViewClient>> newcomers(2);
  Answer answers[2];
  std::vector<std::thread> threads;
  const auto come = [&](size_t i, uint64_t launcher) {
    const uint64_t number = server.add_worker(launcher);
    threads.emplace_back([&, i, number] {
      newcomers[i] = std::make_unique<ViewClient>(address, number, "secret");
      answers[i].take(*newcomers[i], {});
    });
  };
  come(0, 0);
  serve([&] { return clients[0]->change_is_pending(); });
  EXPECT_FALSE(clients[0]->change_needs_disk());
  come(1, 1);
  serve([&] { return clients[0]->change_needs_disk() && clients[1]->change_needs_disk(); });
  EXPECT_TRUE(clients[0]->change_is_pending());
  server.close("the test ends");
  serve([&] { return answers[0].is_there && answers[1].is_there; });
  for (auto& thread : threads) thread.join();
}

TEST_F(ViewServerTest, AWorkerThatIsAskedToEndWaitsNeitherForAViewNorForOthers) {
  std::atomic<bool> is_asked{false};
  std::string errors[2];
  std::thread thread([&, worker = server.add_worker()] {
    ViewClient client(address, worker, "secret");
    client.watch([&] { return is_asked.load(); });
    const std::function<void()> waits[] = {[&] { client.next({}); },
                                           [&] {
                                             comm::join_job({.addresses = {"127.0.0.1:1", "127.0.0.1:2"}, .worker = 1});
                                           }};
    for (int i = 0; i < 2; ++i) {
      try {
        waits[i]();
      } catch (const CollectiveError& error) {
        errors[i] = error.what_without_backtrace();
      }
    }
  });
  serve([&] { return server.membership().asks(2); });
  is_asked = true;
  thread.join();
  EXPECT_EQ(errors[0], "[train_elastic] this worker was asked to end");
  EXPECT_THAT(errors[1], HasSubstr("not all workers can join: this worker was asked to end"));
}

TEST_F(ViewServerTest, TheEndOfTheJobEndsEveryWait) {
  const uint64_t worker = server.add_worker();
  Answer answer;
  std::thread thread([&] {
    ViewClient client(address, worker, "secret");
    answer.take(client, {.reason = AskReason::Failure, .step = 4, .failure = "a worker died"});
  });
  serve([&] { return count(ViewEvent::Kind::Failed) == 1; });
  EXPECT_EQ(events.back().text, "a worker died");
  EXPECT_EQ(events.back().step, 4);
  server.close("1 worker is left, 2 are needed");
  serve([&] { return answer.is_there.load(); });
  thread.join();
  EXPECT_THAT(answer.error,
              HasSubstr("the job cannot go on: 1 worker is left, 2 are needed; the last failure here: a worker died"));
}

TEST_F(ViewServerTest, StrangersAreTurnedAway) {
  const auto connect = [&](uint64_t number, const std::string& token) {
    std::atomic<bool> done{false};
    std::string error;
    std::thread thread([&] {
      try {
        ViewClient client(address, number, token);
      } catch (const c10::Error& e) {
        error = e.what_without_backtrace();
      }
      done = true;
    });
    serve([&] { return done.load(); });
    thread.join();
    return error;
  };
  const uint64_t worker = server.add_worker();
  EXPECT_THAT(connect(worker, "wrong"), HasSubstr("wrong token"));
  EXPECT_THAT(connect(worker + 1, "secret"), HasSubstr("the launcher expects no such worker"));
  EXPECT_EQ(connect(worker, "secret"), "");
}

// Also one that is alone in its view, where no other worker notices that it is stopped.
TEST(ViewServerSilenceTest, AStoppedWorkerIsOverdue) {
  const std::string address = "127.0.0.1:" + std::to_string(lockstep::tests::free_port());
  ViewServer server({.address = address, .membership = {.at_least = 3}, .worker_timeout = 500ms});
  const uint64_t stopped = server.add_worker();
  const test::Process process(test::view_worker_command(address, stopped));
  const uint64_t other = server.add_worker();
  std::atomic<bool> is_over{false};
  std::thread thread([&] {
    ViewClient client(address, other, "");
    while (!is_over) std::this_thread::sleep_for(5ms);
  });
  std::vector<uint64_t> overdue;
  bool is_stopped = false;
  for (const auto end = std::chrono::steady_clock::now() + 30s; std::chrono::steady_clock::now() < end;) {
    server.wait(-1, 10ms);
    for (const ViewEvent& event : server.take_events()) {
      if (event.kind == ViewEvent::Kind::Overdue) overdue.push_back(event.worker);
    }
    if (!is_stopped && server.membership().asks(stopped)) is_stopped = kill(process.id(), SIGSTOP) == 0;
    if (!overdue.empty()) break;
  }
  is_over = true;
  thread.join();
  EXPECT_TRUE(is_stopped);
  EXPECT_THAT(overdue, ::testing::ElementsAre(stopped));
}

// Of all connections of this process, which has both ends.
TEST_F(ViewServerTest, ConnectionsAreKeptAlive) {
  const auto clients = two_members();
  int num_connections = 0;
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) != 0 || peer.ss_family != AF_INET) continue;
    ++num_connections;
    int is_on = 0;
    size = sizeof is_on;
    ASSERT_EQ(getsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &is_on, &size), 0);
    EXPECT_EQ(is_on, 1);
  }
  EXPECT_EQ(num_connections, 4);
}

TEST_F(ViewServerTest, ALauncherJoinsStartsAndIsLost) {
  std::atomic<int> stage{0};
  std::vector<LauncherOrder> orders;
  std::thread thread([&] {
    LauncherLink link(address, "secret", 10s);
    link.offer(3);
    while (stage < 1) {
      for (auto& order : link.wait(-1, 20ms)) {
        orders.push_back(order);
        if (order.kind == LauncherOrder::Kind::Start) link.exited(order.worker, 9, 41);
      }
    }
  });
  serve([&] { return count(ViewEvent::Kind::Offered) == 1; });
  EXPECT_EQ(events.back().number, 3u);
  const uint64_t launcher = events.back().launcher;
  const uint64_t worker = server.add_worker();
  server.start_at(launcher, worker, 2, "worker 3");
  serve([&] { return count(ViewEvent::Kind::Exited) == 1; });
  EXPECT_EQ(events.back().worker, worker);
  EXPECT_EQ(events.back().number, 9u);
  EXPECT_EQ(events.back().step, 41);
  stage = 1;
  serve([&] { return count(ViewEvent::Kind::LauncherLost) == 1; });
  thread.join();
  ASSERT_EQ(orders.size(), 1u);
  EXPECT_EQ(orders[0].text, "worker 3");
  EXPECT_EQ(orders[0].number, 2u);
}

}  // namespace
}  // namespace lockstep::comm::views
