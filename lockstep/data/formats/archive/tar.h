#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/data/element/bytes.h"
#include "lockstep/data/formats/stream/file_access.h"

/// Tar archives, file by file or as WebDataset's samples. Compression (gzip, zstd, xz, bzip2, lz4) is
/// detected by the first bytes.
///
/// ```
/// data::TarSampleReader shard("train-0000.tar");
/// for (data::TarSample sample; shard.next(sample);) {
///   at::Tensor image = data::decode_image(sample.files.at("jpg"));
///   std::string label = sample.files.at("cls").str();
/// }
/// ```
///
/// Files of an uncompressed archive that is mapped point into it and are not copied. Built without libarchive,
/// the constructors throw c10::NotImplementedError that names the package.
namespace lockstep::data {

struct LOCKSTEP_API TarEntry {
  /// The path, byte by byte as in the archive.
  std::string name;
  Bytes contents;
  /// Where its header starts, in the uncompressed archive.
  uint64_t offset = 0;
};

/// Reads the regular files of an archive in order; folders, links and devices are skipped. For one thread.
class LOCKSTEP_API TarReader {
 public:
  /// Throws DataError where the file cannot be read.
  explicit TarReader(const std::string& path, FileAccess access = FileAccess::Auto);
  /// Reads an archive in memory.
  static TarReader from_memory(Bytes archive);
  ~TarReader();
  TarReader(TarReader&&) noexcept;
  TarReader& operator=(TarReader&&) noexcept;

  /// Stores the next file in `entry` and returns true, or returns false at the end.
  /// Throws DataError that names file and offset where the archive is damaged or truncated; the archive ends there.
  /// Behind a file with holes, which is not read, the next call continues.
  bool next(TarEntry& entry);

 private:
  class Archive;
  explicit TarReader(std::unique_ptr<Archive> archive);
  std::unique_ptr<Archive> archive_;
};

/// Files that belong together: `a/0001.jpg` and `a/0001.cls` are the files "jpg" and "cls" of the key "a/0001".
struct LOCKSTEP_API TarSample {
  std::string key;
  /// By extension, which is all after the first dot of the name, in lower case: "jpg", "seg.png".
  std::map<std::string, Bytes> files;
};

/// Reads samples in WebDataset's layout: consecutive files whose paths agree up to the first dot of the file name. As
/// in WebDataset, files without a dot in their name, or that start with one, are skipped. For one thread.
class LOCKSTEP_API TarSampleReader {
 public:
  explicit TarSampleReader(const std::string& path, FileAccess access = FileAccess::Auto);
  explicit TarSampleReader(TarReader reader);

  /// Stores the next sample in `sample` and returns true, or returns false at the end.
  /// Throws DataError as TarReader does, and where a sample has two files of one extension; the next call continues
  /// behind that sample. A sample in which the archive is damaged is left out. So is one behind which no name can be
  /// read, unless it has files of the same kinds as the sample before it: it may lack files.
  bool next(TarSample& sample);

  /// Skips `count` samples and returns how many there were, fewer at the end only. Errors are not thrown and count as
  /// one sample, as in `next`.
  int64_t skip(int64_t count);

 private:
  bool read_entry();
  bool goes_on(const TarSample& sample);
  bool has_kinds_of_last(const TarSample& sample) const;

  TarReader reader_;
  TarEntry entry_;
  std::string key_;
  std::string extension_;
  /// Whether `entry_` is the first file of the next sample.
  bool pending_ = false;
  /// The exception of the file behind the last sample.
  std::exception_ptr error_;
  /// The extensions of the last sample, in order.
  std::vector<std::string> last_kinds_;
};

enum class TarCompression {
  None,
  Gzip,
  Zstd,
};

struct LOCKSTEP_API TarWriterOptions {
  TarCompression compression = TarCompression::None;
};

/// Writes an archive that every tar program reads. The same files make the same archive, byte by byte. For one thread.
///
/// ```
/// data::TarWriter shard("train-0000.tar");
/// shard.write("0001.jpg", jpeg);
/// shard.write("0001.cls", "7");
/// shard.close();
/// ```
class LOCKSTEP_API TarWriter {
 public:
  explicit TarWriter(const std::string& path, const TarWriterOptions& options = {});
  /// Without `close`, no archive is written.
  ~TarWriter();
  TarWriter(TarWriter&&) noexcept;
  TarWriter& operator=(TarWriter&&) noexcept;

  void write(const std::string& name, std::string_view contents);
  /// Completes the archive and gives it its name. Nothing may be written afterwards. Throws DataError where writing
  /// fails.
  void close();

 private:
  class Archive;
  std::unique_ptr<Archive> archive_;
};

}  // namespace lockstep::data
