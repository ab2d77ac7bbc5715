#include "lockstep/comm/job/message.h"

#include "lockstep/comm/job/frame.h"

namespace lockstep::comm::job {

std::string encode(const Message& message) {
  return FieldWriter()
      .number(static_cast<uint64_t>(message.type))
      .number(message.number)
      .text(message.key)
      .text(message.value)
      .take();
}

Message decode_message(std::string_view content) {
  FieldReader reader(content);
  Message message;
  message.type = static_cast<Message::Type>(reader.number_below(static_cast<uint64_t>(Message::Type::End)));
  message.number = reader.number();
  message.key = reader.text();
  message.value = reader.text();
  reader.finish();
  return message;
}

std::string turned_away(Refusal refusal, const std::string& reason) {
  return encode(Message{Message::Type::TurnedAway, static_cast<uint64_t>(refusal), "", reason});
}

std::string encode(const std::vector<RosterEntry>& roster) {
  FieldWriter writer;
  writer.number(roster.size());
  for (const auto& entry : roster) writer.text(entry.address).text(entry.machine);
  return writer.take();
}

std::vector<RosterEntry> decode_roster(std::string_view content) {
  FieldReader reader(content);
  // Each entry takes at least the two lengths of its texts.
  const uint64_t count = reader.number_below(content.size() / 16 + 1);
  std::vector<RosterEntry> roster(count);
  for (auto& entry : roster) {
    entry.address = reader.text();
    entry.machine = reader.text();
  }
  reader.finish();
  return roster;
}

}  // namespace lockstep::comm::job
