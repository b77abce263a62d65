// Safetensors files: 8 bytes of header length, a JSON header (names, types, shapes, offsets), the data. Read whole and
// checked strictly before anything is believed; written beside the target and renamed, so that there is never half a
// file. Types that can be reduced: F32, F16, BF16; a file with another type is refused. Offsets and sizes in bytes. Any
// thread. Throws InputError for a bad file, SystemError when the system refuses a call (a full disk): one line, the
// path first. Format: https://github.com/huggingface/safetensors, README, "Format".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/base/dtype.hpp"
#include "dataplane/base/units.hpp"

namespace lk {

struct SafetensorsTensor {
  std::string name;
  DType dtype{};
  std::vector<std::uint64_t> shape;  // empty: a scalar
  Bytes begin = 0, end = 0;          // in the data
  std::uint64_t elements() const noexcept { return (end - begin) / size_of(dtype); }
};

struct SafetensorsFile {
  std::string path;
  std::string header;  // JSON as it stood in the file, padding too; written back as it is
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<SafetensorsTensor> tensors;  // in the order of the header
  std::vector<std::byte> data;
};

SafetensorsFile read_safetensors(const std::string& path);

// The same checks on bytes in memory; `path` is for messages.
SafetensorsFile parse_safetensors(const std::string& path, std::span<const std::byte> bytes);

// A file that is whole on the disk beside `path`, and in its place when told so; until then nothing that was there has
// changed. Removed again if it was never put in place, so of several results either all or none can be given.
class NewSafetensors {
 public:
  NewSafetensors(const std::string& path, const SafetensorsFile& like, std::span<const std::byte> data);
  NewSafetensors(const NewSafetensors&) = delete;
  NewSafetensors& operator=(const NewSafetensors&) = delete;
  ~NewSafetensors();
  void put_in_place();

 private:
  std::string target_, name_;
};

// Throws InputError when something is at `path` that is not a regular file.
void check_replaceable(const std::string& path);

// Writes `path` with the header of `like` (names, order, shapes, metadata) and `data`, whose size must be that of
// like.data. An existing regular file is replaced; anything else at `path` is refused.
void write_safetensors(const std::string& path, const SafetensorsFile& like, std::span<const std::byte> data);

// Throws InputError that names both files, the tensor and what differs, unless all files have the same tensors: names,
// order, types, shapes and offsets. Metadata may differ.
void check_same_layout(std::span<const SafetensorsFile> files);

}  // namespace lk
