#pragma once

#include <set>
#include <string>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/state/checkpoint_folder.h"
#include "lockstep/state/state.h"
#include "lockstep/train/checkpoint.h"

/// Internal: what a snapshot in memory says of itself, as bytes that are made and read quickly.
namespace lockstep::detail {

struct SnapshotIndex {
  /// Numbers and texts.
  State values;
  /// Where the elements of tensors are in the file.
  std::vector<PartIndex::Piece> pieces;
  /// Names of values and tensors that may differ between workers: those of the first worker count.
  std::set<std::string> own;
};

/// Returns the numbers and texts of all objects, with their names.
LOCKSTEP_API State values_of(const std::vector<ObjectState>& objects);
/// Returns the names of what may differ between workers.
LOCKSTEP_API std::set<std::string> own_names_of(const std::vector<ObjectState>& objects);

LOCKSTEP_API std::string snapshot_index_text(const SnapshotIndex& index);
/// DataError where the text is no such index.
LOCKSTEP_API SnapshotIndex parse_snapshot_index(const std::string& text);

}  // namespace lockstep::detail
