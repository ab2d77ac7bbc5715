#include "lockstep/state/formats/safetensors_dtype.h"

#include <algorithm>
#include <array>

#include "lockstep/base/dtype_name.h"

namespace lockstep::detail {
namespace {

struct CodeRow {
  std::string_view code;
  int bits;
  /// LibTorch's name of the type; empty where it has none. By name: older versions do not have all.
  std::string_view libtorch;
};

constexpr std::array<CodeRow, 22> kCodeRows = {{
    {"BOOL", 8, "Bool"},
    {"U8", 8, "Byte"},
    {"I8", 8, "Char"},
    {"I16", 16, "Short"},
    {"I32", 32, "Int"},
    {"I64", 64, "Long"},
    {"U16", 16, "UInt16"},
    {"U32", 32, "UInt32"},
    {"U64", 64, "UInt64"},
    {"F16", 16, "Half"},
    {"BF16", 16, "BFloat16"},
    {"F32", 32, "Float"},
    {"F64", 64, "Double"},
    {"C64", 64, "ComplexFloat"},
    {"F8_E5M2", 8, "Float8_e5m2"},
    {"F8_E4M3", 8, "Float8_e4m3fn"},
    {"F8_E5M2FNUZ", 8, "Float8_e5m2fnuz"},
    {"F8_E4M3FNUZ", 8, "Float8_e4m3fnuz"},
    {"F8_E8M0", 8, "Float8_e8m0fnu"},
    {"F4", 4, ""},
    {"F6_E2M3", 6, ""},
    {"F6_E3M2", 6, ""},
}};

std::optional<at::ScalarType> dtype_called(std::string_view name, std::string (*name_of)(at::ScalarType)) {
  for (int i = 0; i < static_cast<int>(at::ScalarType::NumOptions); ++i) {
    const auto type = static_cast<at::ScalarType>(i);
    if (type != at::ScalarType::Undefined && !c10::isQIntType(type) && name_of(type) == name) return type;
  }
  return std::nullopt;
}

std::string libtorch_name(at::ScalarType type) { return c10::toString(type); }

}  // namespace

std::optional<std::string> safetensors_code(at::ScalarType dtype) {
  const std::string name = libtorch_name(dtype);
  const auto* const row =
      std::find_if(kCodeRows.begin(), kCodeRows.end(), [&](const CodeRow& r) { return r.libtorch == name; });
  if (row == kCodeRows.end()) return std::nullopt;
  return std::string(row->code);
}

int64_t safetensors_bits(std::string_view code) {
  const auto* const row =
      std::find_if(kCodeRows.begin(), kCodeRows.end(), [&](const CodeRow& r) { return r.code == code; });
  return row == kCodeRows.end() ? 0 : row->bits;
}

std::optional<at::ScalarType> dtype_of_code(std::string_view code) {
  const auto* const row =
      std::find_if(kCodeRows.begin(), kCodeRows.end(), [&](const CodeRow& r) { return r.code == code; });
  if (row == kCodeRows.end() || row->libtorch.empty()) return std::nullopt;
  return dtype_called(row->libtorch, libtorch_name);
}

std::optional<at::ScalarType> dtype_of_libtorch_name(std::string_view name) {
  return dtype_called(name, libtorch_name);
}

std::optional<at::ScalarType> dtype_of_name(std::string_view name) { return dtype_called(name, dtype_name); }

}  // namespace lockstep::detail
