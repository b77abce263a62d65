// CRC32C (Castagnoli, reflected polynomial 0x82f63b78), as iSCSI and RFC 3720 use it, incremental:
// crc32c(crc32c(0, a), b) is the sum of a followed by b. The CPU's instruction is used where it has one (SSE4.2), found
// once at start; a table else. Any thread; noexcept.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lk {

// Continues `crc` (0 to begin) over `length` bytes.
std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t length) noexcept;

// The two ways, for tests and for the figures of `lanekeeper-perf`. The hardware one must only be called when it
// exists.
bool crc32c_has_hardware() noexcept;
std::uint32_t crc32c_hardware(std::uint32_t crc, const void* data, std::size_t length) noexcept;
std::uint32_t crc32c_table(std::uint32_t crc, const void* data, std::size_t length) noexcept;

}  // namespace lk
