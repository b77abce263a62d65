// Record: one thing that a control plane says to another, of any length, as bytes. Little-endian, fixed widths, in the
// order of writing. A reader checks every length: a record that is cut or too long reads as zeros and `ok()` is false,
// and its reader drops it. Values; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "dataplane/base/ids.hpp"

namespace lk {

enum class RecordKind : std::uint8_t {
  kHealth = 1,  // links and lanes that changed, or all that are not whole
  kGroupOffer,
  kGroupAccept,
  kGroupRefuse,
  kGroupInstall,
  kGroupInstalled,
  kGroupReady,
  kGroupEnded,
  kPlanPropose,
  kPlanAck,
  kPlanNack,
  kPlanCommit,
  kPlanAbort,
  kPlanQuery,
  kShrinkPropose,
  kShrinkAck,
  kShrinkNack,
  kShrinkCommit,
};

using Bytestring = std::vector<std::uint8_t>;

class RecordWriter {
 public:
  template <typename T>
  RecordWriter& put(T value) {
    static_assert(std::is_unsigned_v<T>);
    for (std::size_t i = 0; i < sizeof(T); ++i) bytes_.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
    return *this;
  }
  RecordWriter& put_text(const std::string& text);  // cut after 65535 bytes
  template <typename T>
  RecordWriter& put_list(const std::vector<T>& list) {
    put(static_cast<std::uint32_t>(list.size()));
    for (const T value : list) put(value);
    return *this;
  }
  const Bytestring& bytes() const noexcept { return bytes_; }

 private:
  Bytestring bytes_;
};

class RecordReader {
 public:
  explicit RecordReader(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  template <typename T>
  T get() {
    static_assert(std::is_unsigned_v<T>);
    if (bytes_.size() - at_ < sizeof(T)) return fail<T>();
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) value = static_cast<T>(value | (T{bytes_[at_ + i]} << (8 * i)));
    at_ += sizeof(T);
    return value;
  }
  std::string get_text();
  template <typename T>
  std::vector<T> get_list() {
    const auto count = get<std::uint32_t>();
    std::vector<T> list;
    if ((bytes_.size() - at_) / sizeof(T) < count) return fail<T>(), list;
    list.reserve(count);
    for (std::uint32_t i = 0; i < count; ++i) list.push_back(get<T>());
    return list;
  }
  bool ok() const noexcept { return ok_; }
  bool done() const noexcept { return ok_ && at_ == bytes_.size(); }  // nothing missing, nothing left

 private:
  template <typename T>
  T fail() {
    ok_ = false;
    at_ = bytes_.size();
    return T{};
  }

  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace lk
