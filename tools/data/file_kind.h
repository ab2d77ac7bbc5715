#pragma once

#include <string>

namespace lockstep::tools {

/// The kind of a data file.
enum class FileKind { Records, Npy, Npz, Tar, Jpeg, Png, Csv, Text, Unknown };

/// Detects the kind of a file by its first bytes; of texts, empty and damaged files by the name.
FileKind file_kind(const std::string& path);

/// "tfrecord", "npy", ... .
const char* kind_name(FileKind kind);

}  // namespace lockstep::tools
