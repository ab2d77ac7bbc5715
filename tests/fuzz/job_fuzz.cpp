#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "lockstep/comm/job/frame.h"
#include "lockstep/comm/job/handshake.h"
#include "lockstep/comm/job/message.h"

// What a pending peer may send to a job's coordinator, and a coordinator to who joins.
namespace {

using namespace lockstep::comm::job;

// What was understood is what comes out again, byte for byte.
template <class Decode>
void refuse_or_repeat(const std::string& content, Decode&& decode) {
  try {
    if (encode(decode(content)) != content) std::abort();
  } catch (const ProtocolError&) {
  }
}

void read_frames(std::string_view bytes, size_t limit, size_t piece) {
  FrameReader reader(limit);
  try {
    while (!bytes.empty()) {
      reader.feed(bytes.substr(0, piece));
      bytes.remove_prefix(std::min(piece, bytes.size()));
      while (const auto content = reader.next()) {
        if (content->size() > limit) std::abort();
        refuse_or_repeat(*content, decode_message);
        refuse_or_repeat(*content, decode_roster);
        refuse_or_repeat(*content, decode_challenge);
        refuse_or_repeat(*content, decode_proof);
        refuse_or_repeat(*content, decode_welcome);
        refuse_or_repeat(*content, [](const std::string& hello) {
          const Hello read = decode_hello(hello);
          if (read.version != kProtocolVersion) throw ProtocolError("another version");
          return read;
        });
      }
    }
  } catch (const ProtocolError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  read_frames(bytes, kPendingPeerLimit, 7);
  read_frames(bytes, kMemberLimit, bytes.size());
  return 0;
}
