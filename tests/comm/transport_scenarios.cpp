#include "tests/comm/transport_scenarios.h"

#include <cstdint>
#include <functional>
#include <iostream>
#include <signal.h>
#include <sstream>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/transport/engine_module.h"
#include "lockstep/comm/transport/transport.h"
#include "tests/support/fake_job.h"

namespace lockstep::tests {
namespace {

using comm::Incoming;
using comm::Outgoing;
using comm::Transport;
using namespace std::chrono_literals;

/// Limit for what must happen, on a machine under load.
constexpr std::chrono::milliseconds kScenarioTimeout = 60s;

using Bytes = std::vector<uint8_t>;

/// A message that identifies its sender, its receiver and its number.
Bytes message(int from, int to, size_t bytes, int number = 0) {
  Bytes text(bytes);
  uint32_t state = static_cast<uint32_t>(from * 7919 + to * 104729 + number * 31 + 1);
  for (auto& byte : text) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<uint8_t>(state >> 24);
  }
  return text;
}

void expect(bool held, const std::string& what) { LOCKSTEP_CHECK_AS(InternalError, held, "[scenario] ", what); }

/// Runs `body`, which must throw a CollectiveError, and returns its text and how long it took.
template <typename Body>
std::pair<std::string, std::chrono::milliseconds> failure_of(Body body) {
  const auto start = std::chrono::steady_clock::now();
  try {
    body();
  } catch (const CollectiveError& error) {
    const auto spent = std::chrono::steady_clock::now() - start;
    return {error.what_without_backtrace(), std::chrono::duration_cast<std::chrono::milliseconds>(spent)};
  }
  expect(false, "no CollectiveError was thrown");
  return {};
}

void expect_words(const std::string& text, std::initializer_list<std::string> words) {
  for (const auto& word : words) expect(text.find(word) != std::string::npos, "no \"" + word + "\" in: " + text);
}

void pass_to_next(Transport& transport, int lane, size_t bytes, int number) {
  const int size = transport.num_workers();
  const int me = transport.worker();
  const int next = (me + 1) % size;
  const int previous = (me + size - 1) % size;
  const auto sent = message(me, next, bytes, number);
  Bytes received(bytes);
  const Outgoing out{next, sent.data(), bytes};
  const Incoming in{previous, received.data(), bytes};
  transport.exchange(lane, {&out, 1}, {&in, 1}, kScenarioTimeout);
  expect(received == message(previous, me, bytes, number), "the ring changed a message");
}

void ring(Transport& transport, FakeJob&) {
  int number = 0;
  for (const size_t bytes : {1, 4096, 65'537, 5'000'000, 3}) pass_to_next(transport, 0, bytes, number++);
}

/// All to all in one exchange, where each pair of workers has its own length; some have none.
void all_to_all_of(Transport& transport, std::function<size_t(int from, int to)> length) {
  const int size = transport.num_workers();
  const int me = transport.worker();
  std::vector<Bytes> sent;
  std::vector<Bytes> received;
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (int peer = 0; peer < size; ++peer) {
    sent.push_back(message(me, peer, length(me, peer)));
    received.emplace_back(length(peer, me));
    if (peer == me) continue;
    outgoing.push_back({peer, sent.back().data(), sent.back().size()});
    incoming.push_back({peer, received.back().data(), received.back().size()});
  }
  transport.exchange(0, outgoing, incoming, kScenarioTimeout);
  for (int peer = 0; peer < size; ++peer) {
    if (peer != me) expect(received[peer] == message(peer, me, length(peer, me)), "all-to-all changed a message");
  }
}

void all_to_all(Transport& transport, FakeJob&) {
  for (int round = 0; round < 20; ++round) all_to_all_of(transport, [](int, int) { return 10'000; });
}

void unequal_sizes(Transport& transport, FakeJob&) {
  all_to_all_of(transport, [](int from, int to) { return from < to ? 0 : 4'000'001; });
  all_to_all_of(transport, [](int from, int to) { return static_cast<size_t>(from * 3'000'000 + to); });
  all_to_all_of(transport, [](int, int) { return 0; });
  all_to_all_of(transport, [](int from, int to) { return static_cast<size_t>(from + to); });
}

/// Several messages of one exchange between the same two workers, and many exchanges in a row.
void many_in_order(Transport& transport, FakeJob&) {
  constexpr int kRounds = 300;
  constexpr int kMessages = 8;
  const int size = transport.num_workers();
  const int me = transport.worker();
  const int next = (me + 1) % size;
  const int previous = (me + size - 1) % size;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<Bytes> sent;
    std::vector<Bytes> received;
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    for (int i = 0; i < kMessages; ++i) {
      const size_t bytes = i % 2 == 0 ? 16 : 24 + i;
      sent.push_back(message(me, next, bytes, round * kMessages + i));
      received.emplace_back(bytes);
      outgoing.push_back({next, sent.back().data(), bytes});
      incoming.push_back({previous, received.back().data(), bytes});
    }
    transport.exchange(0, outgoing, incoming, kScenarioTimeout);
    for (int i = 0; i < kMessages; ++i) {
      expect(received[i] == message(previous, me, received[i].size(), round * kMessages + i),
             "messages changed places");
    }
  }
}

/// A sender that is far ahead of its receiver.
void sender_ahead(Transport& transport, FakeJob& job) {
  constexpr int kMessages = 50;
  for (int i = 0; i < kMessages; ++i) {
    if (transport.worker() == 0) {
      const auto sent = message(0, 1, 32, i);
      const Outgoing out{1, sent.data(), sent.size()};
      transport.exchange(0, {&out, 1}, {}, kScenarioTimeout);
    } else if (transport.worker() == 1) {
      if (i == 0) std::this_thread::sleep_for(200ms);
      Bytes received(32);
      const Incoming in{0, received.data(), received.size()};
      transport.exchange(0, {}, {&in, 1}, kScenarioTimeout);
      expect(received == message(0, 1, 32, i), "messages changed places");
    }
  }
  job.all_gather("sender-ahead", "done", kScenarioTimeout);
}

void lanes_from_threads(Transport& transport, FakeJob&) {
  std::vector<std::thread> threads;
  std::vector<std::string> errors(transport.num_lanes());
  for (int lane = 0; lane < transport.num_lanes(); ++lane) {
    threads.emplace_back([&, lane] {
      try {
        // Lanes run at different speeds, with equal lengths of messages.
        for (int round = 0; round < 100 + 50 * lane; ++round) pass_to_next(transport, lane, 64 + round % 3, round);
        pass_to_next(transport, lane, 2'000'000, lane);
      } catch (const std::exception& error) {
        errors[lane] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors) expect(error.empty(), error);
}

/// A worker waits for a message that nobody sends.
void wait_in_vain(Transport& transport, int lane, std::chrono::milliseconds timeout) {
  Bytes received(1000);
  const Incoming in{(transport.worker() + 1) % transport.num_workers(), received.data(), received.size()};
  transport.exchange(lane, {}, {&in, 1}, timeout);
}

void deadline(Transport& transport, FakeJob& job) {
  if (transport.worker() == 0) {
    const auto [text, spent] = failure_of([&] { wait_in_vain(transport, 0, 300ms); });
    expect(spent >= 300ms, "it came before the deadline");
    expect_words(text, {"[" + std::string(transport.name()) + "]", "timeout=300 ms", "lane=0", "worker 1 (fake)"});
    // The transport stays unusable.
    expect_words(failure_of([&] { wait_in_vain(transport, 0, kScenarioTimeout); }).first,
                 {"aborted", "timeout=300 ms"});
  }
  job.all_gather("deadline", "done", kScenarioTimeout);
}

void aborted(Transport& transport, FakeJob& job) {
  std::vector<std::thread> waiters;
  std::vector<std::string> texts(transport.num_lanes());
  for (int lane = 0; lane < transport.num_lanes(); ++lane) {
    waiters.emplace_back([&, lane] {
      const auto [text, spent] = failure_of([&] { wait_in_vain(transport, lane, kScenarioTimeout); });
      texts[lane] = spent < kScenarioTimeout / 2 ? text : "it waited until its deadline";
    });
  }
  job.all_gather("abort", "waiting", kScenarioTimeout);
  std::this_thread::sleep_for(100ms);
  transport.abort("worker 7 has had enough");
  for (auto& waiter : waiters) waiter.join();
  // A worker fails by its own abort, or because a peer was faster and has closed the connection.
  for (const auto& text : texts) expect_words(text, {"[" + std::string(transport.name()) + "]"});
  expect_words(failure_of([&] { wait_in_vain(transport, 0, kScenarioTimeout); }).first, {"aborted"});
  job.all_gather("abort-done", "done", kScenarioTimeout);
}

/// One worker alone is aborted; its error names the reason, at once.
void aborted_with_reason(Transport& transport, FakeJob& job) {
  if (transport.worker() == 0) {
    std::thread other([&] {
      std::this_thread::sleep_for(100ms);
      transport.abort("worker 7 has had enough");
    });
    const auto [text, spent] = failure_of([&] { wait_in_vain(transport, 0, kScenarioTimeout); });
    other.join();
    expect_words(text, {"aborted", "worker 7 has had enough"});
    expect(spent < kScenarioTimeout / 2, "it waited until its deadline");
  }
  job.all_gather("abort-reason", "done", kScenarioTimeout);
}

/// The last worker dies while all others wait.
void killed_peer(Transport& transport, FakeJob& job) {
  const int last = transport.num_workers() - 1;
  pass_to_next(transport, 0, 100, 0);
  job.all_gather("killed", "ready", kScenarioTimeout);
  if (transport.worker() == last) {
    std::this_thread::sleep_for(100ms);
    ::kill(::getpid(), SIGKILL);
  }
  const Bytes sent(8'000'000);
  Bytes received(8'000'000);
  const Outgoing out{last, sent.data(), sent.size()};
  const Incoming in{last, received.data(), received.size()};
  const auto [text, spent] = failure_of([&] { transport.exchange(0, {&out, 1}, {&in, 1}, kScenarioTimeout); });
  expect_words(text, {"peer=", job.name(last)});
  expect(spent < kScenarioTimeout / 2, "it waited until its deadline");
}

/// Workers that disagree on a length wait until the deadline; no process dies of it.
void length_mismatch(Transport& transport, FakeJob& job) {
  Bytes sent(transport.worker() == 0 ? 1000 : 2000);
  Bytes received(500);
  const int peer = (transport.worker() + 1) % transport.num_workers();
  const int from = (transport.worker() + transport.num_workers() - 1) % transport.num_workers();
  const Outgoing out{peer, sent.data(), sent.size()};
  const Incoming in{from, received.data(), received.size()};
  failure_of([&] { transport.exchange(0, {&out, 1}, {&in, 1}, 500ms); });
  job.all_gather("mismatch", "done", kScenarioTimeout);
}

struct Scenario {
  std::string_view name;
  int num_lanes;
  void (*run)(Transport& transport, FakeJob& job);
};

constexpr Scenario kScenarios[] = {
    {"ring", 1, &ring},
    {"all_to_all", 1, &all_to_all},
    {"unequal_sizes", 1, &unequal_sizes},
    {"many_in_order", 1, &many_in_order},
    {"sender_ahead", 1, &sender_ahead},
    {"lanes_from_threads", 3, &lanes_from_threads},
    {"deadline", 2, &deadline},
    {"aborted", 3, &aborted},
    {"aborted_with_reason", 2, &aborted_with_reason},
    {"killed_peer", 1, &killed_peer},
    {"length_mismatch", 1, &length_mismatch},
};

const Scenario& find_scenario(std::string_view name) {
  for (const auto& scenario : kScenarios) {
    if (scenario.name == name) return scenario;
  }
  expect(false, "unknown scenario: " + std::string(name));
  return kScenarios[0];
}

std::shared_ptr<Transport> make_transport(const std::string& engine, FakeJob& job, const Scenario& scenario) {
  const auto name = "transport-" + std::string(scenario.name);
  return comm::make_transport(engine, job,
                              {.name = name, .num_lanes = scenario.num_lanes, .timeout = kScenarioTimeout});
}

void run_one(const std::string& engine, FakeJob& job, const Scenario& scenario) {
  const auto transport = make_transport(engine, job, scenario);
  expect(transport->name() == engine && transport->worker() == job.worker() &&
             transport->num_workers() == job.num_workers() && transport->num_lanes() == scenario.num_lanes,
         "the transport must know its place");
  scenario.run(*transport, job);
}

}  // namespace

int run_scenarios(const std::string& names, const std::string& engine, const std::string& folder, int worker,
                  int num_workers) {
  FakeJob job(folder, worker, num_workers);
  std::istringstream words(names);
  for (std::string name; std::getline(words, name, ',');) {
    try {
      run_one(engine, job, find_scenario(name));
    } catch (const std::exception& error) {
      std::cerr << "worker " << worker << ", scenario " << name << ": " << error.what() << std::endl;
      return 1;
    }
  }
  return 0;
}

}  // namespace lockstep::tests
