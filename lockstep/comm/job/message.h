#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/api.h"

/// What members and coordinator tell each other after the handshake (handshake.h).
namespace lockstep::comm::job {

struct Message {
  enum class Type : uint64_t {
    /// Both ways: the sender lives.
    kHeartbeat,

    /// To the coordinator. Set `key` to `value`, answered by kDone or kRefused; get `key`, answered by kDone when it is
    /// there; forget the get of this `number`.
    kSet,
    kGet,
    kCancel,
    /// The sender cannot go on; `value` is why.
    kFail,
    /// The sender has given up the coordinator's worker; `value` is why.
    kGaveUp,
    /// The sender leaves. Of worker 0 before all have come: nobody needs to wait any more; `value` is why.
    kGoodbye,

    /// To members. The answer to the request of this `number`: `value` is what was asked for, or why not.
    kDone,
    kRefused,
    /// Who has come and who has not, as text, while some have not.
    kProgress,
    /// All have come: `value` is a roster.
    kComplete,
    /// The receiver may not join: `number` is a Refusal, `value` is why. Also sent during the handshake.
    kTurnedAway,
    /// The job cannot go on because of worker `number`: `key` is the kind of failure, `value` is why.
    kFailure,
    /// Worker `number` has said good-bye.
    kLeft,
    /// Before worker 0 leaves: everything that was set, so that nobody who comes late to it needs worker 0.
    kBequest,
    kEnd,
  };

  Type type = Type::kHeartbeat;
  uint64_t number = 0;
  std::string key{};
  std::string value{};
};

/// Whose fault it is that a joiner is turned away.
enum class Refusal : uint64_t { kOptions, kJob, kEnd };

LOCKSTEP_API std::string encode(const Message& message);
/// ProtocolError where it is none.
LOCKSTEP_API Message decode_message(std::string_view content);

/// The answer to a joiner that is turned away.
std::string turned_away(Refusal refusal, const std::string& reason);

/// What all members learn of one when all have come.
struct RosterEntry {
  std::string address;
  std::string machine;
};

LOCKSTEP_API std::string encode(const std::vector<RosterEntry>& roster);
LOCKSTEP_API std::vector<RosterEntry> decode_roster(std::string_view content);

}  // namespace lockstep::comm::job
