#include <algorithm>
#include <set>

#include <ATen/ATen.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"
#include "lockstep/state/checkpoint_folder.h"
#include "lockstep/state/file_writer.h"
#include "lockstep/state/formats/safetensors.h"
#include "lockstep/state/formats/safetensors_dtype.h"
#include "lockstep/state/json_values.h"

namespace lockstep::detail {
namespace {

/// Where data begin: pages of the file and those of memory match.
constexpr size_t kDataAlignment = 4096;

int64_t elements_of(const std::vector<int64_t>& sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

int64_t element_bytes(const SavedPiece& piece) { return static_cast<int64_t>(c10::elementSize(piece.dtype)); }

void check_piece(const SavedPiece& piece) {
  LOCKSTEP_CHECK_VALUE(is_utf8(piece.name) && !piece.name.empty(),
                       "[save] the name of a tensor must be a text in UTF-8: name=", piece.name);
  LOCKSTEP_CHECK_VALUE(piece.begin >= 0 && piece.begin <= piece.end && piece.end <= elements_of(piece.sizes),
                       "[save] a piece must be inside its tensor: name=", piece.name, ", begin=", piece.begin,
                       ", end=", piece.end, ", shape=", at::IntArrayRef(piece.sizes));
  LOCKSTEP_CHECK_VALUE(!c10::isQIntType(piece.dtype), "[save] quantized tensors cannot be saved: name=", piece.name,
                       ", dtype=", dtype_name(piece.dtype), "; save its int_repr, scale and zero point");
}

/// Joins pieces that follow each other. The widest elements come first, so that all are aligned.
std::vector<SavedPiece> joined(const std::vector<SavedPiece>& pieces) {
  std::vector<SavedPiece> result;
  for (const SavedPiece& piece : pieces) {
    check_piece(piece);
    if (!result.empty()) {
      SavedPiece& last = result.back();
      const bool same = last.name == piece.name && last.dtype == piece.dtype && last.sizes == piece.sizes;
      if (same && last.end == piece.begin &&
          last.bytes + (last.end - last.begin) * element_bytes(last) == piece.bytes) {
        last.end = piece.end;
        continue;
      }
    }
    result.push_back(piece);
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const SavedPiece& a, const SavedPiece& b) { return element_bytes(a) > element_bytes(b); });
  return result;
}

/// The entry in the file. Complex numbers, which many readers of the format do not have, are pairs.
SafetensorsEntry entry_of(const SavedPiece& piece, int64_t position) {
  const bool whole = piece.begin == 0 && piece.end == elements_of(piece.sizes);
  std::vector<int64_t> sizes = whole ? piece.sizes : std::vector<int64_t>{piece.end - piece.begin};
  at::ScalarType dtype = piece.dtype;
  if (c10::isComplexType(dtype)) {
    dtype = c10::toRealValueType(dtype);
    sizes.push_back(2);
  }
  const auto code = safetensors_code(dtype);
  LOCKSTEP_CHECK_VALUE(code.has_value(), "[save] safetensors files have no such dtype: name=", piece.name,
                       ", dtype=", dtype_name(piece.dtype));
  return {whole ? piece.name : c10::str(piece.name, "[", piece.begin, ":", piece.end, "]"), *code, std::move(sizes),
          position, position + (piece.end - piece.begin) * element_bytes(piece)};
}

}  // namespace

PartIndex write_part(const std::string& path, const std::vector<SavedPiece>& pieces, const WriteOptions& options) {
  PartIndex index;
  index.file = path.substr(path.rfind('/') + 1);
  SafetensorsHeader header;
  header.metadata.emplace("format", "pt");
  std::vector<std::string_view> bytes = {{}};
  int64_t offset = 0;
  std::set<std::string> names = {"__metadata__"};
  for (const SavedPiece& piece : joined(pieces)) {
    SafetensorsEntry entry = entry_of(piece, offset);
    LOCKSTEP_CHECK_VALUE(names.insert(entry.name).second, "[save] names in a file must differ: name=", entry.name);
    bytes.emplace_back(piece.bytes, static_cast<size_t>(entry.end - entry.begin));
    index.pieces.push_back({piece.name, piece.dtype, piece.sizes, piece.begin, piece.end, offset});
    for (const std::string& alias : piece.aliases) {
      LOCKSTEP_CHECK_VALUE(is_utf8(alias) && !alias.empty(),
                           "[save] the name of a tensor must be a text in UTF-8: name=", alias);
      index.pieces.push_back({alias, piece.dtype, piece.sizes, piece.begin, piece.end, offset});
      // As Python's `safetensors.torch.save_model` does.
      if (entry.name == piece.name) header.metadata.emplace(alias, piece.name);
    }
    offset = entry.end;
    header.entries.push_back(std::move(entry));
  }
  const std::string start = safetensors_start(header, kDataAlignment);
  bytes.front() = start;
  for (PartIndex::Piece& piece : index.pieces) piece.offset += static_cast<int64_t>(start.size());
  index.num_bytes = static_cast<int64_t>(start.size()) + offset;
  index.checksums = write_file(path, bytes, options.sync, options.direct, options.task);
  return index;
}

}  // namespace lockstep::detail
