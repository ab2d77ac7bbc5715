#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "tools/print_result.h"

namespace lockstep::tools {

struct InspectOptions {
  /// How many of the first records to show.
  int64_t first = 3;
  /// Where to stop reading; 0: at the end.
  int64_t max_records = 0;
};

/// A named part of the records: a key of a tf.Example, an array, a column, an extension.
struct InspectedKey {
  std::string name;
  /// Its type: "bytes", "int64 [2, 3]".
  std::string type;
  /// The number of records that have it.
  int64_t records = 0;
};

/// The contents of a file.
struct Inspection {
  std::string file;
  /// "tfrecord", "tfrecord of tf.Example", "npy", "npz", "tar", "jpeg", "png", "csv", "text", "unknown".
  std::string format;
  std::string compression = "none";
  uint64_t file_bytes = 0;
  int64_t records = 0;
  /// Whether all records were read.
  bool complete = true;
  uint64_t smallest_record = 0;
  uint64_t largest_record = 0;
  uint64_t record_bytes = 0;
  std::vector<InspectedKey> keys;
  std::vector<std::string> first;
  /// The damage, with file, offset and record; empty for an undamaged file.
  std::string damage;
};

/// Reads a file; its kind is detected by its contents, for texts by its name. Throws DataError where it cannot be
/// opened.
Inspection inspect(const std::string& file, const InspectOptions& options);

Json to_json(const Inspection& inspection);
void print(const Inspection& inspection, std::ostream& out);

}  // namespace lockstep::tools
