#include "lockstep/comm/views/view_message.h"

#include "lockstep/comm/job/frame.h"

namespace lockstep::comm::views {

using job::FieldReader;
using job::FieldWriter;

std::string encode(const ViewMessage& message) {
  return FieldWriter()
      .number(static_cast<uint64_t>(message.type))
      .number(message.number)
      .number(message.other)
      .number(static_cast<uint64_t>(message.step))
      .text(message.address)
      .text(message.text)
      .take();
}

ViewMessage decode_view_message(std::string_view content) {
  FieldReader reader(content);
  ViewMessage message;
  message.type = static_cast<ViewMessage::Type>(reader.number_below(static_cast<uint64_t>(ViewMessage::Type::End)));
  message.number = reader.number();
  message.other = reader.number();
  message.step = static_cast<int64_t>(reader.number());
  message.address = reader.text();
  message.text = reader.text();
  reader.finish();
  return message;
}

std::string encode(const View& view) {
  FieldWriter writer;
  writer.number(view.number).number(view.members.size());
  for (const ViewMember& member : view.members) writer.number(member.worker).text(member.address);
  return writer.take();
}

View decode_view(std::string_view content) {
  FieldReader reader(content);
  View view{reader.number()};
  // Each member takes at least its number and the length of its address.
  view.members.resize(reader.number_below(content.size() / 16 + 1));
  for (ViewMember& member : view.members) {
    member.worker = reader.number();
    member.address = reader.text();
  }
  reader.finish();
  return view;
}

}  // namespace lockstep::comm::views
