#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "lockstep/comm/job/frame.h"
#include "lockstep/comm/views/view_message.h"

// What workers and launchers of an elastic job send each other after the handshake: messages, and views in them.
namespace {

using lockstep::comm::job::FrameReader;
using lockstep::comm::job::kMemberLimit;
using lockstep::comm::job::ProtocolError;
using lockstep::comm::views::decode_view;
using lockstep::comm::views::decode_view_message;

// What was understood is what comes out again, byte for byte.
void read_view(const std::string& content) {
  try {
    if (encode(decode_view(content)) != content) std::abort();
  } catch (const ProtocolError&) {
  }
}

void read_view_message(const std::string& content) {
  try {
    const auto message = decode_view_message(content);
    if (encode(message) != content) std::abort();
    read_view(message.text);
  } catch (const ProtocolError&) {
  }
}

void read_view_frames(std::string_view bytes, size_t piece) {
  FrameReader reader(kMemberLimit);
  try {
    while (!bytes.empty()) {
      reader.feed(bytes.substr(0, piece));
      bytes.remove_prefix(std::min(piece, bytes.size()));
      while (const auto content = reader.next()) read_view_message(*content);
    }
  } catch (const ProtocolError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  read_view_frames(bytes, 5);
  read_view_message(bytes);
  read_view(bytes);
  return 0;
}
