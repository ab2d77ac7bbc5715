#include "lockstep/train/tensorboard/event_message.h"

#define PROTOZERO_USE_VIEW std::string_view
#include <protozero/exception.hpp>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>

#include "lockstep/base/error.h"

// The fields of tensorboard/compat/proto/{event,summary,tensor,tensor_shape,types}.proto and of
// tensorboard/plugins/hparams/{plugin_data,api}.proto.
namespace lockstep::tensorboard {
namespace {

using protozero::pbf_writer;

constexpr std::string_view kFileVersion = "brain.Event:2";
constexpr std::string_view kWriter = "lockstep";

enum class EventField { WallTime = 1, Step = 2, FileVersion = 3, Summary = 5, SessionLog = 7, SourceMetadata = 10 };
enum class ValueField { Tag = 1, Tensor = 8, Metadata = 9 };
enum class MetadataField { PluginData = 1, Description = 3 };
enum class TensorField { Dtype = 1, Shape = 2, Content = 4, StringValue = 8 };
enum class DataType { Float = 1, Double = 2, String = 7 };
enum class PluginData { Experiment = 2, SessionStart = 3, SessionEnd = 4 };
enum class ParameterType { String = 1, Bool = 2, Float64 = 3 };

constexpr uint32_t kFirst = 1;  // the only or the first field of a message
constexpr int32_t kSessionStart = 1;

template <class Field>
constexpr uint32_t number(Field field) {
  return static_cast<uint32_t>(field);
}

/// Returns the message that `fill` writes.
template <class Fill>
std::string message(Fill&& fill) {
  std::string bytes;
  pbf_writer writer(bytes);
  fill(writer);
  return bytes;
}

void add_time(pbf_writer& event, double wall_time, int64_t step) {
  event.add_double(number(EventField::WallTime), wall_time);
  if (step != 0) event.add_int64(number(EventField::Step), step);
}

std::string tensor_message(DataType dtype, at::IntArrayRef sizes, std::string_view content) {
  return message([&](pbf_writer& tensor) {
    tensor.add_enum(number(TensorField::Dtype), static_cast<int32_t>(dtype));
    tensor.add_message(number(TensorField::Shape), message([&](pbf_writer& shape) {
                         for (const int64_t size : sizes) {
                           shape.add_message(2, message([&](pbf_writer& dimension) {
                                               if (size != 0) dimension.add_int64(kFirst, size);
                                             }));
                         }
                       }));
    if (!content.empty()) tensor.add_bytes(number(TensorField::Content), content.data(), content.size());
  });
}

std::string plugin_data(PluginData kind, const std::string& content) {
  return message([&](pbf_writer& data) { data.add_message(number(kind), content); });
}

ParameterType type_of(const HyperParameter& value) {
  if (std::holds_alternative<bool>(value)) return ParameterType::Bool;
  return std::holds_alternative<double>(value) ? ParameterType::Float64 : ParameterType::String;
}

/// google.protobuf.Value.
std::string struct_value(const HyperParameter& parameter) {
  return message([&](pbf_writer& value) {
    if (const auto* const flag = std::get_if<bool>(&parameter)) {
      value.add_bool(4, *flag);
    } else if (const auto* const given = std::get_if<double>(&parameter)) {
      value.add_double(2, *given);
    } else {
      value.add_string(3, std::get<std::string>(parameter));
    }
  });
}

std::string metric_info(const ShownMetric& metric) {
  return message([&](pbf_writer& info) {
    info.add_message(kFirst, message([&](pbf_writer& name) {
                       if (!metric.folder.empty()) name.add_string(1, metric.folder);
                       name.add_string(2, metric.tag);
                     }));
    if (!metric.display_name.empty()) info.add_string(3, metric.display_name);
  });
}

}  // namespace

bool has_event_messages() { return true; }

std::string encode_event(double wall_time, int64_t step, const SummaryValue& value) {
  const std::string metadata = message([&](pbf_writer& writer) {
    writer.add_message(number(MetadataField::PluginData), message([&](pbf_writer& plugin) {
                         plugin.add_string(1, value.plugin.data(), value.plugin.size());
                         if (!value.plugin_content.empty()) plugin.add_bytes(2, value.plugin_content);
                       }));
    if (!value.description.empty()) {
      writer.add_string(number(MetadataField::Description), value.description.data(), value.description.size());
    }
  });
  const std::string encoded = message([&](pbf_writer& writer) {
    writer.add_string(number(ValueField::Tag), value.tag.data(), value.tag.size());
    writer.add_message(number(ValueField::Tensor), value.tensor);
    writer.add_message(number(ValueField::Metadata), metadata);
  });
  return message([&](pbf_writer& event) {
    add_time(event, wall_time, step);
    event.add_message(number(EventField::Summary),
                      message([&](pbf_writer& summary) { summary.add_message(kFirst, encoded); }));
  });
}

std::string encode_file_version(double wall_time) {
  return message([&](pbf_writer& event) {
    add_time(event, wall_time, 0);
    event.add_string(number(EventField::FileVersion), kFileVersion.data(), kFileVersion.size());
    event.add_message(number(EventField::SourceMetadata),
                      message([&](pbf_writer& source) { source.add_string(kFirst, kWriter.data(), kWriter.size()); }));
  });
}

std::string encode_session_start(double wall_time, int64_t step) {
  return message([&](pbf_writer& event) {
    add_time(event, wall_time, step);
    event.add_message(number(EventField::SessionLog),
                      message([&](pbf_writer& log) { log.add_enum(kFirst, kSessionStart); }));
  });
}

int64_t decode_step(std::string_view event) {
  try {
    protozero::pbf_reader reader(event);
    while (reader.next(number(EventField::Step))) return reader.get_int64();
  } catch (const protozero::exception&) {
    return 0;
  }
  return 0;
}

std::string encode_scalar(float value) {
  return tensor_message(DataType::Float, {}, {reinterpret_cast<const char*>(&value), sizeof(value)});
}

std::string encode_doubles(const at::Tensor& values) {
  const at::Tensor dense = values.contiguous();
  return tensor_message(DataType::Double, dense.sizes(),
                        {static_cast<const char*>(dense.data_ptr()), static_cast<size_t>(dense.nbytes())});
}

std::string encode_strings(const std::vector<std::string>& values, bool is_scalar) {
  const std::vector<int64_t> sizes(is_scalar ? 0 : 1, static_cast<int64_t>(values.size()));
  std::string bytes = tensor_message(DataType::String, sizes, {});
  pbf_writer tensor(bytes);
  for (const std::string& value : values) tensor.add_bytes(number(TensorField::StringValue), value);
  return bytes;
}

std::string encode_experiment(double time, const HyperParameters& parameters, const std::vector<ShownMetric>& metrics) {
  return plugin_data(PluginData::Experiment, message([&](pbf_writer& experiment) {
                       experiment.add_double(3, time);
                       for (const auto& [name, value] : parameters) {
                         experiment.add_message(4, message([&](pbf_writer& info) {
                                                  info.add_string(1, name);
                                                  info.add_enum(4, static_cast<int32_t>(type_of(value)));
                                                }));
                       }
                       for (const ShownMetric& metric : metrics) experiment.add_message(5, metric_info(metric));
                     }));
}

std::string encode_session_start_info(double time, const HyperParameters& parameters) {
  return plugin_data(PluginData::SessionStart, message([&](pbf_writer& session) {
                       for (const auto& [name, value] : parameters) {
                         session.add_message(1, message([&](pbf_writer& entry) {
                                               entry.add_string(1, name);
                                               entry.add_message(2, struct_value(value));
                                             }));
                       }
                       session.add_double(5, time);
                     }));
}

std::string encode_session_end_info(double time, SessionStatus status) {
  return plugin_data(PluginData::SessionEnd, message([&](pbf_writer& session) {
                       session.add_enum(1, static_cast<int32_t>(status));
                       session.add_double(2, time);
                     }));
}

std::string encode_no_tensor() { return tensor_message(DataType::Float, {0}, {}); }

}  // namespace lockstep::tensorboard
