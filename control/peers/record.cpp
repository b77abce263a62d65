#include "control/peers/record.hpp"

#include <algorithm>

namespace lk {

RecordWriter& RecordWriter::put_text(const std::string& text) {
  const std::size_t length = std::min<std::size_t>(text.size(), 65535);
  put(static_cast<std::uint16_t>(length));
  bytes_.insert(bytes_.end(), text.begin(), text.begin() + static_cast<std::ptrdiff_t>(length));
  return *this;
}

std::string RecordReader::get_text() {
  const auto length = get<std::uint16_t>();
  if (bytes_.size() - at_ < length) return fail<std::uint8_t>(), std::string{};
  std::string text(bytes_.begin() + static_cast<std::ptrdiff_t>(at_),
                   bytes_.begin() + static_cast<std::ptrdiff_t>(at_ + length));
  at_ += length;
  return text;
}

}  // namespace lk
