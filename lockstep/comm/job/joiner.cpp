#include "lockstep/comm/job/joiner.h"

#include <algorithm>
#include <poll.h>
#include <stdexcept>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/job/handshake.h"
#include "lockstep/comm/job/join_gate.h"
#include "lockstep/comm/job/join_reminder.h"
#include "lockstep/comm/job/message.h"

namespace lockstep::comm::job {
namespace {

using namespace std::chrono_literals;

constexpr auto kFirstPause = 10ms;
constexpr auto kLongestPause = 500ms;
// A coordinator answers at once; another program at its address may not answer at all.
constexpr auto kAnswerTime = 10s;

std::string next_frame(Channel& channel, Clock::time_point deadline) {
  while (true) {
    if (auto content = channel.next()) return std::move(*content);
    if (!wait_until_ready(channel.socket(), POLLIN, deadline)) throw ProtocolError("it does not answer");
    if (!channel.receive()) throw ProtocolError("it closed the connection");
  }
}

// The messages of the handshake have other first fields.
void check_not_turned_away(const JobOptions& options, const std::string& content) {
  constexpr auto kTurnedAway = static_cast<uint64_t>(Message::Type::TurnedAway);
  if (FieldReader(content).number() != kTurnedAway) return;
  const Message message = decode_message(content);
  throw_turned_away(options, message.number, message.value);
}

std::string own_address(const JobOptions& options, const std::string& otherwise) {
  return options.interface_address.empty() ? otherwise : resolve_interface(options.interface_address);
}

Entrance shake_hands(const JobOptions& options, Socket socket, Clock::time_point deadline) {
  Entrance entrance{.channel = Channel(std::move(socket))};
  Channel& channel = entrance.channel;
  const std::string hello = encode(Hello{.worker = static_cast<uint64_t>(options.worker),
                                         .num_workers = options.addresses.size(),
                                         .nonce = fresh_nonce()});
  channel.send(hello);
  const std::string challenge = next_frame(channel, deadline);
  check_not_turned_away(options, challenge);
  decode_challenge(challenge);
  const Signer signer(options.token, hello, challenge);
  channel.send(encode(signer.sign(Proof{machine_id()})));
  const std::string answer = next_frame(channel, deadline);
  check_not_turned_away(options, answer);
  const Welcome welcome = decode_welcome(answer);
  LOCKSTEP_CHECK_COLLECTIVE(signer.is_signed(welcome), "[join_job] the coordinator could not prove that it knows the ",
                            "job's token: address=", options.addresses[0],
                            "; give all workers the same token, and check which program listens there");
  channel.trust(Seal(signer.key_to_coordinator()), Seal(signer.key_to_member()));
  entrance.heartbeat_interval = welcome.heartbeat_interval;
  entrance.heartbeat_timeout = welcome.heartbeat_timeout;
  entrance.local_address = own_address(options, local_address(channel.socket()));
  return entrance;
}

}  // namespace

Entrance enter_as_coordinator(const JobOptions& options) {
  auto [near, far] = connected_pair();
  Entrance entrance{.channel = Channel(std::move(near))};
  entrance.channel.trust({}, {});
  entrance.heartbeat_interval = options.heartbeat_interval;
  entrance.heartbeat_timeout = options.heartbeat_timeout;
  entrance.local_address = own_address(options, "");
  entrance.coordinator = std::make_unique<Coordinator>(options, std::move(far));
  return entrance;
}

Entrance enter_as_joiner(const JobOptions& options, Clock::time_point deadline, std::string& last_error,
                         const char* how_to_reach) {
  const Endpoint coordinator = parse_endpoint(options.addresses[0]);
  Clock::duration pause = kFirstPause;
  JoinReminder reminder(options, deadline);
  do {
    check_joining_open();
    try {
      Socket socket = connect_to(coordinator, std::min(deadline, Clock::now() + kAnswerTime));
      return shake_hands(options, std::move(socket), std::min(deadline, Clock::now() + kAnswerTime));
    } catch (const c10::Error&) {
      throw;
    } catch (const std::runtime_error& error) {
      last_error = error.what();
    }
    reminder.remind((options.names.empty() ? "worker 0" : options.names.front()) + " cannot be reached: " + last_error);
    std::this_thread::sleep_for(std::min(pause, std::max(deadline - Clock::now(), Clock::duration(0))));
    pause = std::min<Clock::duration>(2 * pause, kLongestPause);
  } while (Clock::now() < deadline);
  LOCKSTEP_THROW(CollectiveError, "[join_job] ", options.worker_name(options.worker),
                 " cannot reach the coordinator: address=", coordinator.text(),
                 ", join_timeout=", seconds(options.join_timeout), ", last error: ", last_error, "; ", how_to_reach);
}

void throw_turned_away(const JobOptions& options, uint64_t refusal, const std::string& reason) {
  LOCKSTEP_CHECK_VALUE(refusal != static_cast<uint64_t>(Refusal::Options), "[join_job] ", reason);
  LOCKSTEP_THROW(CollectiveError, "[join_job] ", options.worker_name(options.worker),
                 " was turned away by the coordinator at ", options.addresses[0], ": ", reason);
}

}  // namespace lockstep::comm::job
