#include "tools/checkpoint/checkpoint_inspect.h"

#include <cmath>
#include <ctime>
#include <iomanip>
#include <sstream>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"
#include "lockstep/base/progress/progress.h"

namespace lockstep::tools {
namespace {

constexpr size_t kShownText = 60;

struct ValueJson {
  Json operator()(bool value) const { return value; }
  Json operator()(int64_t value) const { return value; }
  Json operator()(double value) const { return std::isfinite(value) ? Json(value) : Json(std::to_string(value)); }
  Json operator()(const std::string& value) const { return value; }
  Json operator()(const StateTensor& value) const {
    return {{"dtype", dtype_name(value.dtype)},
            {"shape", value.sizes},
            {"bytes", value.num_bytes()},
            {"pieces", value.stored.size() + value.pieces.size()}};
  }
};

int64_t bytes_of_tensors(const State& state) {
  int64_t bytes = 0;
  for (const auto& [name, value] : state) {
    if (const auto* tensor = std::get_if<StateTensor>(&value)) bytes += tensor->num_bytes();
  }
  return bytes;
}

std::string time_text(double time) {
  const auto seconds = static_cast<std::time_t>(time);
  std::tm parts{};
  std::ostringstream out;
  out << std::put_time(::gmtime_r(&seconds, &parts), "%Y-%m-%d %H:%M:%S UTC");
  return out.str();
}

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kShownText) text = text.substr(0, kShownText) + "...";
  return text;
}

}  // namespace

Json inspect_source(const CheckpointSource& source) {
  Json result = {{"checkpoint", source.path}};
  if (source.info) {
    result["step"] = source.info->step;
    result["time"] = source.info->time;
    result["lockstep_version"] = source.info->lockstep_version;
    result["libtorch_version"] = source.info->libtorch_version;
    result["written_by"] = source.info->written_by;
    result["parts"] = Json::array();
    for (const detail::PartIndex& part : source.info->parts) {
      result["parts"].push_back({{"file", part.file}, {"bytes", part.num_bytes}, {"pieces", part.pieces.size()}});
    }
  }
  result["bytes"] = bytes_of_tensors(source.state);
  result["tensors"] = Json::object();
  result["values"] = Json::object();
  for (const auto& [name, value] : source.state) {
    const bool tensor = std::holds_alternative<StateTensor>(value);
    result[tensor ? "tensors" : "values"].push_back({name, std::visit(ValueJson(), value)});
  }
  return result;
}

void print_source(const CheckpointSource& source, std::ostream& out) {
  out << source.path << (source.latest ? " (the latest)" : "") << '\n';
  if (source.info) {
    out << "  step " << source.info->step << ", " << time_text(source.info->time) << ", lockstep "
        << source.info->lockstep_version << ", LibTorch " << source.info->libtorch_version;
    if (!source.info->written_by.empty()) out << ", " << source.info->written_by;
    out << '\n';
    for (const detail::PartIndex& part : source.info->parts) {
      out << "  " << part.file << ": " << part.num_bytes << " bytes, " << part.pieces.size() << " pieces\n";
    }
  }
  out << "  " << source.state.size() << " names, " << bytes_of_tensors(source.state) << " bytes of tensors\n";
  for (const auto& [name, value] : source.state) {
    out << "    " << name << ": ";
    if (const auto* tensor = std::get_if<StateTensor>(&value)) {
      out << dtype_name(tensor->dtype) << ' ' << at::IntArrayRef(tensor->sizes) << ", " << tensor->num_bytes()
          << " bytes\n";
    } else {
      out << shown(std::visit(ValueJson(), value)) << '\n';
    }
  }
}

Json verify_folder(const std::string& folder) {
  Json result = {{"checkpoint", folder}};
  try {
    progress::Task task("verifying " + folder, {.unit = "bytes"});
    const detail::StoredCheckpoint checkpoint = detail::verify_checkpoint(folder, &task);
    int64_t bytes = 0;
    for (const detail::PartIndex& part : checkpoint.info.parts) bytes += part.num_bytes;
    result["step"] = checkpoint.info.step;
    result["bytes"] = bytes;
    result["sound"] = true;
  } catch (const DataError& error) {
    result["sound"] = false;
    result["damage"] = error.what_without_backtrace();
  }
  return result;
}

}  // namespace lockstep::tools
