#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/api.h"
#include "lockstep/data/bytes.h"

/// Tar archives, file by file or as WebDataset's samples. Compressed ones (gzip, zstd, xz, bzip2, lz4) are known by
/// their first bytes.
///
/// ```
/// data::TarSampleReader shard("train-0000.tar");
/// for (data::TarSample sample; shard.next(sample);) {
///   at::Tensor picture = data::decode_image(sample.files.at("jpg"));
///   std::string label = sample.files.at("cls").str();
/// }
/// ```
///
/// Files of an archive that is not compressed lie in the mapped archive and are not copied. Built without libarchive,
/// the constructors throw c10::NotImplementedError that names the package.
namespace lockstep::data {

struct LOCKSTEP_API TarEntry {
  /// With its folders, byte by byte as in the archive.
  std::string name;
  Bytes contents;
  /// Where its header starts, in the uncompressed archive.
  uint64_t offset = 0;
};

/// Reads the plain files of an archive in their order; folders, links and devices are passed over. To be used by one
/// thread.
class LOCKSTEP_API TarReader {
 public:
  /// Throws DataError where the file cannot be read.
  explicit TarReader(const std::string& path);
  /// Reads an archive in memory.
  static TarReader from_memory(Bytes archive);
  ~TarReader();
  TarReader(TarReader&&) noexcept;
  TarReader& operator=(TarReader&&) noexcept;

  /// Puts the next file into `entry` and returns true, or returns false at the end.
  /// Throws DataError that names file and offset where the archive is damaged or cut off; every call after that does
  /// so.
  bool next(TarEntry& entry);

 private:
  class Archive;
  explicit TarReader(std::unique_ptr<Archive> archive);
  std::unique_ptr<Archive> archive_;
};

/// Files that belong together: `a/0001.jpg` and `a/0001.cls` are the files "jpg" and "cls" of the key "a/0001".
struct LOCKSTEP_API TarSample {
  std::string key;
  /// By what stands behind the first dot of the name, in small letters: "jpg", "seg.png".
  std::map<std::string, Bytes> files;
};

/// Reads WebDataset's samples: files one after the other whose names agree up to the first dot of the last part. As in
/// WebDataset, files without a dot in their name, or that start with one, are passed over. To be used by one thread.
class LOCKSTEP_API TarSampleReader {
 public:
  explicit TarSampleReader(const std::string& path);
  explicit TarSampleReader(TarReader reader);

  /// Puts the next sample into `sample` and returns true, or returns false at the end.
  /// Throws DataError as TarReader does, and where a sample has two files of one kind.
  bool next(TarSample& sample);

  /// Passes over `count` samples and returns how many there were, fewer at the end only.
  int64_t skip(int64_t count);

 private:
  bool read_entry();

  TarReader reader_;
  TarEntry entry_;
  std::string key_;
  std::string extension_;
  /// Whether `entry_` is the first file of the next sample.
  bool pending_ = false;
};

enum class TarCompression {
  None,
  Gzip,
  Zstd,
};

struct LOCKSTEP_API TarWriterOptions {
  TarCompression compression = TarCompression::None;
};

/// Writes an archive that every tar program reads. The same files make the same archive. To be used by one thread.
///
/// ```
/// data::TarWriter shard("train-0000.tar");
/// shard.write("0001.jpg", picture);
/// shard.write("0001.cls", "7");
/// shard.close();
/// ```
class LOCKSTEP_API TarWriter {
 public:
  explicit TarWriter(const std::string& path, const TarWriterOptions& options = {});
  /// Without `close`, nothing is left of the archive.
  ~TarWriter();
  TarWriter(TarWriter&&) noexcept;
  TarWriter& operator=(TarWriter&&) noexcept;

  void write(const std::string& name, std::string_view contents);
  /// Completes the archive, which appears now. Nothing may be written afterwards. Throws DataError where writing fails.
  void close();

 private:
  class Archive;
  std::unique_ptr<Archive> archive_;
};

}  // namespace lockstep::data
