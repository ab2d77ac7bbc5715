#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/api.h"

/// Messages between members and coordinator after the handshake (handshake.h).
namespace lockstep::comm::job {

struct Message {
  enum class Type : uint64_t {
    /// Both ways: the sender is alive.
    Heartbeat,

    /// To the coordinator. Set `key` to `value`, answered by Done or Refused; get `key`, answered by Done when it is
    /// set; cancel the get of this `number`; remove the value of `key`, without an answer.
    Set,
    Get,
    Cancel,
    Drop,
    /// The sender cannot go on; `value` is why. With the `key` kMismatch: calls of members do not match.
    Fail,
    /// The sender counts the coordinator's worker as lost; `value` is why.
    GaveUp,
    /// What the sender tells all members about itself, in `value`.
    Report,
    /// The sender leaves. From worker 0 before all have joined: joining has failed; `value` is why.
    Goodbye,

    /// To members. The answer to the request of this `number`: `value` is what was asked for, or why not.
    Done,
    Refused,
    /// Which workers have joined and which have not, as text.
    Progress,
    /// All have joined: `value` is a roster.
    Complete,
    /// The receiver may not join: `number` is a Refusal, `value` is why. Also sent during the handshake.
    TurnedAway,
    /// The job cannot go on because of worker `number`: `key` is the kind of failure, `value` is why.
    Failure,
    /// Worker `number` has reported `value`.
    Reported,
    /// Worker `number` has left.
    Left,
    /// Before worker 0 leaves: one value that was set, so that members can still get it.
    FinalValue,
    End,
  };

  Type type = Type::Heartbeat;
  uint64_t number = 0;
  std::string key{};
  std::string value{};
};

constexpr std::string_view kMismatch = "mismatch";

/// A Get of this key is answered at once with the coordinator's steady clock, in nanoseconds.
constexpr std::string_view kClockKey = "lockstep/clock";

/// What is wrong where a joiner is turned away.
enum class Refusal : uint64_t { Options, Job, End };

LOCKSTEP_API std::string encode(const Message& message);
/// ProtocolError where the content is no message.
LOCKSTEP_API Message decode_message(std::string_view content);

/// Returns the answer to a joiner that is turned away.
std::string turned_away(Refusal refusal, const std::string& reason);

/// What all members learn of each other when all have joined.
struct RosterEntry {
  std::string address;
  std::string machine;
};

LOCKSTEP_API std::string encode(const std::vector<RosterEntry>& roster);
LOCKSTEP_API std::vector<RosterEntry> decode_roster(std::string_view content);

}  // namespace lockstep::comm::job
