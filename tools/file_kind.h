#pragma once

#include <string>

namespace lockstep::tools {

/// What a data file is.
enum class FileKind { Records, Npy, Npz, Tar, Jpeg, Png, Csv, Text, Unknown };

/// Tells by the first bytes what a file is; texts, empty and damaged files by their name.
FileKind file_kind(const std::string& path);

/// "tfrecord", "npy", ... .
const char* kind_name(FileKind kind);

}  // namespace lockstep::tools
